//! Files that compress, and one that does not, over emulated paths: a copy, one that compresses nothing, and
//! `rsync -z` to its daemon, in turn.

use std::fmt::Write;
use std::fs::{read, remove_file, write};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use fullpipe_units::ByteCount;

use super::files::write_random;
use super::scene::{RECEIVER, Scene};
use super::shown;
use crate::process::{Process, RunError, last_words};
use crate::statistics::ratio;

/// Time for a transfer.
const TIMEOUT: Duration = Duration::from_mins(5);

const RSYNC_PORT: u16 = 8730;

/// A path, and the file that crosses it.
pub(super) struct Case {
    pub(super) name: &'static str,
    path: &'static str,
    megabytes: u64,
    /// Of the sources of this workspace; random bytes otherwise.
    is_text: bool,
}

const fn of_text(name: &'static str, path: &'static str, megabytes: u64) -> Case {
    Case { name, path, megabytes, is_text: true }
}

/// All of them.
pub(super) const CASES: [Case; 7] = [
    of_text("compression-10", "rate = '10Mbit/s'\nrtt = '40ms'", 12),
    of_text("compression-100", "rate = '100Mbit/s'\nrtt = '100ms'", 100),
    of_text("compression-loss-1e-3", "rate = '100Mbit/s'\nrtt = '100ms'\nloss = '1e-3'", 100),
    of_text("compression-98ms", "rate = '1Gbit/s'\nrtt = '98ms'", 500),
    of_text("compression-4ms", "rate = '1Gbit/s'\nrtt = '4ms'", 500),
    Case { name: "compression-random-100", path: "rate = '100Mbit/s'\nrtt = '100ms'", megabytes: 100, is_text: false },
    Case { name: "compression-random-4ms", path: "rate = '1Gbit/s'\nrtt = '4ms'", megabytes: 500, is_text: false },
];

/// A way to move the file.
#[derive(Debug, Clone, Copy)]
enum Way {
    /// A copy with these flags.
    Copy(&'static [&'static str]),
    Rsync,
}

/// All of them, with their names.
const WAYS: [(&str, Way); 3] =
    [("copy", Way::Copy(&[])), ("copy --no-compress", Way::Copy(&["--no-compress"])), ("rsync -z", Way::Rsync)];

impl Case {
    /// Moves the file so many times each way. Returns the text.
    ///
    /// # Errors
    /// Fails if the user stops it, or a program is missing or fails, or makes another file.
    pub(super) fn run(&self, fullpipe: &Path, rounds: u16, stop: &AtomicBool) -> Result<String, RunError> {
        let mut scene = Scene::start(&self.scenario(), fullpipe, stop)?;
        let file = scene.at("file");
        let size = ByteCount::new(self.megabytes * 1_000_000);
        if self.is_text {
            write_sources(&file, size)?;
        } else {
            write_random(&file, size)?;
        }
        start_rsync(&mut scene)?;
        let mut took = WAYS.map(|_| Vec::new());
        for round in 0..usize::from(rounds) {
            for turn in 0..WAYS.len() {
                let index = (turn + round) % WAYS.len();
                took[index].push(transfer(&scene, WAYS[index].1, stop)?.as_secs_f64());
            }
        }
        Ok(self.text(size, &took))
    }

    fn scenario(&self) -> String {
        let Self { name, path, .. } = self;
        format!("name = 'compression'\ntitle = '{name}'\n[path]\n{path}\nqueue = '1bdp'\n[[step]]\nname = 'none'\n")
    }

    fn text(&self, size: ByteCount, took: &[Vec<f64>]) -> String {
        let what = if self.is_text { "text" } else { "random bytes" };
        let mut text = format!("\n{}: {}, {size} of {what}\n", self.name, self.path.replace('\n', ", "));
        for ((name, _), times) in WAYS.iter().zip(took) {
            let ratios: Vec<f64> = times.iter().zip(&took[0]).map(|(theirs, ours)| theirs / ours).collect();
            let _ = writeln!(
                text,
                "  {name:<20} {:<22} s, {} × the time of copy",
                shown(ratio(times)),
                shown(ratio(&ratios))
            );
        }
        text
    }
}

/// Makes a file of the sources of this workspace, as often as it takes: blocks are compressed one by one.
fn write_sources(at: &Path, size: ByteCount) -> Result<(), RunError> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut find = Command::new("find");
    find.arg(crates).args(["-name", "*.rs", "-exec", "cat", "{}", "+"]);
    let sources = find.output().map_err(RunError::failed)?.stdout;
    if sources.is_empty() {
        return Err(RunError::Failed("the sources of this workspace are not there".to_owned()));
    }
    let text: Vec<u8> = sources.into_iter().cycle().take(size.get() as usize).collect();
    write(at, text).map_err(RunError::failed)
}

/// Starts a daemon of rsync in the receiver.
fn start_rsync(scene: &mut Scene<'_>) -> Result<(), RunError> {
    let (to, configuration) = (scene.at("to"), scene.at("rsyncd.conf"));
    let module = format!("uid = root\ngid = root\nuse chroot = no\n[to]\npath = {}\nread only = no\n", to.display());
    write(&configuration, module).map_err(RunError::failed)?;
    let mut daemon = scene.command("receiver");
    daemon.args(["rsync", "--daemon", "--no-detach", "--config"]).arg(configuration);
    daemon.args(["--port", &RSYNC_PORT.to_string()]);
    scene.serve(&mut daemon, &[RSYNC_PORT])
}

/// Returns the time of the whole command.
fn transfer(scene: &Scene<'_>, way: Way, stop: &AtomicBool) -> Result<Duration, RunError> {
    let mut command = match way {
        Way::Copy(flags) => {
            let mut copy = scene.copy();
            copy.args(flags);
            copy
        }
        Way::Rsync => {
            let mut rsync = scene.command("sender");
            rsync.args(["rsync", "-z"]).arg(scene.at("file")).arg(format!("rsync://{RECEIVER}:{RSYNC_PORT}/to/"));
            rsync
        }
    };
    let began = Instant::now();
    let ended = Process::start(&mut command)?.finish(TIMEOUT, stop)?;
    let took = began.elapsed();
    if !ended.succeeded {
        return Err(RunError::Failed(last_words(&ended.stderr, "a transfer failed")));
    }
    let arrived = scene.at("to").join("file");
    let is_same = read(&arrived).map_err(RunError::failed)? == read(scene.at("file")).map_err(RunError::failed)?;
    // The next one makes the file anew.
    remove_file(arrived).map_err(RunError::failed)?;
    if is_same { Ok(took) } else { Err(RunError::Failed("another file arrived".to_owned())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_those_of_the_same_round() {
        let text = CASES[0].text(ByteCount::new(12_000_000), &[vec![2.0, 4.0, 2.0], vec![4.0, 6.0, 3.0], vec![2.0; 3]]);
        assert!(text.contains("rate = '10Mbit/s', rtt = '40ms'") && text.contains("1.50 [1.50, 2.00] ×"), "{text}");
    }
}
