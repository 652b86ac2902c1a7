use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::deadline::within;

/// The environment variable that carries a mark.
const VARIABLE: &str = "FULLPIPE_TEST_MARK";

/// Longest time for which left-over processes may take to end.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A mark that a program and everything that it starts carries, in whatever namespace: in its
/// environment, and where a test puts it, in its arguments. It is a number of seconds too, so that
/// a marked `sleep` ends some day.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark(String);

impl Mark {
    /// A mark that no other process has.
    #[expect(clippy::new_without_default, reason = "each is another")]
    pub fn new() -> Self {
        static MARKS: AtomicU32 = AtomicU32::new(0);
        Self(format!(
            "300.{}{:04}",
            std::process::id(),
            MARKS.fetch_add(1, Ordering::Relaxed)
        ))
    }

    /// The mark as an argument.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Marks what `command` starts.
    pub fn put_on<'c>(&self, command: &'c mut Command) -> &'c mut Command {
        command.env(VARIABLE, &self.0)
    }

    /// Processes that carry it, by number and command line.
    pub fn processes(&self) -> Vec<(u32, String)> {
        processes()
            .filter(|(_, folder)| self.is_on(folder))
            .map(|(pid, folder)| (pid, command_line(&folder)))
            .collect()
    }

    /// Network namespaces of the processes that carry it.
    pub fn network_namespaces(&self) -> BTreeSet<PathBuf> {
        processes()
            .filter(|(_, folder)| self.is_on(folder))
            .filter_map(|(_, folder)| network_namespace(&folder))
            .collect()
    }

    /// Holds that within ten seconds nothing carries the mark, and that nobody is in any of
    /// `namespaces`.
    ///
    /// # Panics
    /// If something is left.
    pub fn assert_gone(&self, namespaces: &BTreeSet<PathBuf>) {
        assert!(
            within(TIMEOUT, || self.processes().is_empty()),
            "left behind: {:?}",
            self.processes()
        );
        let left = || {
            network_namespaces()
                .intersection(namespaces)
                .cloned()
                .collect::<Vec<_>>()
        };
        assert!(
            within(TIMEOUT, || left().is_empty()),
            "left behind: {:?}",
            left()
        );
    }

    fn is_on(&self, folder: &Path) -> bool {
        let carries = |file: &str| {
            let bytes = fs::read(folder.join(file)).unwrap_or_default();
            bytes
                .windows(self.0.len())
                .any(|window| window == self.0.as_bytes())
        };
        carries("cmdline") || carries("environ")
    }
}

/// Every network namespace that a process of this machine is in, as far as this user may see.
fn network_namespaces() -> BTreeSet<PathBuf> {
    processes()
        .filter_map(|(_, folder)| network_namespace(&folder))
        .collect()
}

/// Processes of this machine, by number and folder.
pub(crate) fn processes() -> impl Iterator<Item = (u32, PathBuf)> {
    let entries = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(Result::ok);
    entries.filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path())))
}

fn network_namespace(folder: &Path) -> Option<PathBuf> {
    fs::read_link(folder.join("ns/net")).ok()
}

fn command_line(folder: &Path) -> String {
    let bytes = fs::read(folder.join("cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&bytes)
        .replace('\0', " ")
        .trim_end()
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Running;

    #[test]
    fn a_marked_program_is_seen_until_it_ends() {
        let mark = Mark::new();
        let mut program = Running::start(mark.put_on(Command::new("sleep").arg("30")));
        assert!(within(TIMEOUT, || mark.processes()
            == [(program.pid(), "sleep 30".to_owned())]));
        assert!(mark.network_namespaces().is_subset(&network_namespaces()));
        program.kill();
        drop(program);
        mark.assert_gone(&BTreeSet::new());
    }
}
