use fullpipe_record::{Change, HostSettings};
use thiserror::Error;

use crate::chain::{RestoreOutcome, put_back, setting_histories};
use crate::entry::{JournalEntry, display_text};
use crate::inspect::inspect_host;
use crate::setting::{HostSystem, setting_writes};
use crate::sysctl::{SysctlError, SysctlTree};

/// Why changes were not made, or not undone.
#[derive(Debug, Error)]
pub enum ApplyError {
    /// A setting could not be read or written.
    #[error(transparent)]
    Sysctl(#[from] SysctlError),
    /// The kernel took the value and keeps another.
    #[error("{name} was set to \"{wanted}\" and reads back as \"{found}\"")]
    NotKept {
        /// Dotted name.
        name: String,
        /// The text that was written.
        wanted: String,
        /// The text that was read back.
        found: String,
    },
    /// A setting was not put back, as the sentence states: somebody else changed it since, the
    /// setting is gone, or the kernel refused.
    #[error("{0}")]
    NotPutBack(String),
}

/// Changes that were made, with the way back.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AppliedChanges {
    entries: Vec<JournalEntry>,
}

/// Makes `changes` in order, reading each back. Changes that are a program's to make are passed
/// over. If one fails, those before it are undone.
///
/// # Errors
/// If a setting cannot be read or written, or the kernel does not keep what was written.
pub fn apply_changes(tree: &SysctlTree, changes: &[Change]) -> Result<AppliedChanges, ApplyError> {
    let system = HostSystem::new(tree.clone(), "/nowhere");
    let mut applied = AppliedChanges::default();
    for change in changes {
        // Inspected each time, because a triple is written whole and an earlier change may have
        // been to the same one.
        let made = inspect_host(tree)
            .map_err(ApplyError::from)
            .and_then(|settings| apply_one(&system, change, &settings));
        match made {
            Ok(entry) => applied.entries.extend(entry),
            Err(error) => {
                // The first failure is the one to report, whether or not the way back is whole.
                let _ = applied.undo_changes(tree);
                return Err(error);
            }
        }
    }
    Ok(applied)
}

fn apply_one(
    system: &HostSystem,
    change: &Change,
    settings: &HostSettings,
) -> Result<Option<JournalEntry>, ApplyError> {
    let Some((setting, wanted)) = setting_writes(change, settings) else {
        return Ok(None);
    };
    let before = setting.read(system)?;
    let entry = JournalEntry {
        setting,
        before,
        wanted,
        made: None,
    };
    let made = entry.write_setting(system)?;
    Ok(Some(JournalEntry { made, ..entry }))
}

impl AppliedChanges {
    /// Adds changes that were made after these.
    pub fn append(&mut self, mut later: Self) {
        self.entries.append(&mut later.entries);
    }

    /// Puts everything back, in the order of `host undo`. A setting that somebody else changed
    /// since is left alone, and the rest is put back all the same.
    ///
    /// # Errors
    /// The first failure, after everything else was tried.
    pub fn undo_changes(self, tree: &SysctlTree) -> Result<(), ApplyError> {
        let chains = setting_histories(self.entries);
        let mut result = Ok(());
        for (chain, back) in chains.iter().zip(put_back(
            &chains,
            &HostSystem::new(tree.clone(), "/nowhere"),
        )) {
            let failed = match back {
                Ok(RestoreOutcome::Done(_)) => continue,
                Ok(RestoreOutcome::Foreign(found)) => chain.left_alone(found.as_deref()),
                Ok(RestoreOutcome::Vanished) => {
                    format!("{} is gone, and with it what was changed", chain.setting)
                }
                Err(why) => why,
            };
            result = result.and(Err(ApplyError::NotPutBack(failed)));
        }
        result
    }
}

impl JournalEntry {
    /// Writes what is wanted and reads it back; what the kernel does not keep is put back. Returns
    /// what was read where it says more than what is wanted.
    pub(crate) fn write_setting(&self, system: &HostSystem) -> Result<Option<String>, ApplyError> {
        self.setting.write(system, self.wanted.as_deref())?;
        let found = self.setting.read(system)?;
        if self
            .setting
            .is_as_asked(found.as_deref(), self.wanted.as_deref())
        {
            let says_more = !self
                .setting
                .is_same(found.as_deref(), self.wanted.as_deref());
            return Ok(found.filter(|_| says_more));
        }
        self.setting.write(system, self.before.as_deref())?;
        Err(ApplyError::NotKept {
            name: self.setting.to_string(),
            wanted: display_text(self.wanted.as_deref()),
            found: display_text(found.as_deref()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change_commands;
    use fullpipe_units::ByteCount;
    use std::fs;
    use std::path::Path;

    /// The sysctls that `inspect` reads, as files.
    fn tree(folder: &Path) -> SysctlTree {
        for (name, text) in [
            ("net/ipv4/tcp_rmem", "4096\t131072\t6291456"),
            ("net/ipv4/tcp_wmem", "4096\t16384\t4194304"),
            ("net/ipv4/tcp_window_scaling", "1"),
            ("net/ipv4/tcp_timestamps", "1"),
            ("net/ipv4/tcp_sack", "1"),
            ("net/ipv4/tcp_moderate_rcvbuf", "1"),
            ("net/ipv4/tcp_congestion_control", "cubic"),
            ("net/ipv4/tcp_available_congestion_control", "reno cubic"),
        ] {
            let path = folder.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("{text}\n")).unwrap();
        }
        SysctlTree::with_root(folder)
    }

    const RAISE: [Change; 2] = [
        Change::TcpWmemMax(ByteCount::from_mib(32)),
        Change::TcpRmemMax(ByteCount::from_mib(64)),
    ];

    #[test]
    fn what_is_applied_is_undone_to_the_byte() {
        let folder = tempfile::tempdir().unwrap();
        let tree = tree(folder.path());
        let before = inspect_host(&tree).unwrap();
        let applied = apply_changes(&tree, &RAISE).unwrap();
        assert_eq!(
            inspect_host(&tree).unwrap().tcp_wmem.max,
            ByteCount::from_mib(32)
        );
        assert_eq!(
            inspect_host(&tree).unwrap(),
            RAISE[1].applied_to(&RAISE[0].applied_to(&before))
        );
        applied.undo_changes(&tree).unwrap();
        assert_eq!(inspect_host(&tree).unwrap(), before);
        assert_eq!(
            tree.read("net.ipv4.tcp_wmem").unwrap(),
            "4096\t16384\t4194304"
        );
    }

    #[test]
    fn undo_does_not_clobber_what_somebody_else_wrote() {
        let folder = tempfile::tempdir().unwrap();
        let tree = tree(folder.path());
        let applied = apply_changes(&tree, &RAISE).unwrap();
        tree.write("net.ipv4.tcp_rmem", "1 2 3").unwrap();
        let error = applied.undo_changes(&tree).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("net.ipv4.tcp_rmem was left alone"),
            "{error}"
        );
        assert_eq!(tree.read("net.ipv4.tcp_rmem").unwrap(), "1 2 3");
        assert_eq!(
            tree.read("net.ipv4.tcp_wmem").unwrap(),
            "4096\t16384\t4194304"
        );
    }

    #[test]
    fn a_failure_half_way_undoes_the_first_half() {
        let folder = tempfile::tempdir().unwrap();
        let tree = tree(folder.path());
        // A number that even root can only read.
        let moderate = folder.path().join("net/ipv4/tcp_moderate_rcvbuf");
        fs::remove_file(&moderate).unwrap();
        std::os::unix::fs::symlink("/proc/sys/kernel/cap_last_cap", &moderate).unwrap();
        let error =
            apply_changes(&tree, &[RAISE[0].clone(), Change::ModerateRcvbuf(false)]).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("cannot write net.ipv4.tcp_moderate_rcvbuf"),
            "{error}"
        );
        assert_eq!(
            tree.read("net.ipv4.tcp_wmem").unwrap(),
            "4096\t16384\t4194304"
        );
    }

    #[test]
    fn commands_say_what_apply_does_and_how_to_go_back() {
        let folder = tempfile::tempdir().unwrap();
        let commands = change_commands(&RAISE, &inspect_host(&tree(folder.path())).unwrap());
        assert_eq!(
            commands.apply,
            [
                "sysctl -w net.ipv4.tcp_wmem=\"4096 16384 33554432\"",
                "sysctl -w net.ipv4.tcp_rmem=\"4096 131072 67108864\""
            ]
        );
        assert_eq!(
            commands.undo,
            [
                "sysctl -w net.ipv4.tcp_rmem=\"4096 131072 6291456\"",
                "sysctl -w net.ipv4.tcp_wmem=\"4096 16384 4194304\""
            ]
        );
    }
}
