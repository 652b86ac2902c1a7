use std::fs::{File, Permissions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::thread;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// The right to use an emulated path, or to load the machine otherwise. Given back when dropped.
#[derive(Debug)]
pub struct PathLock {
    _slots: Vec<OwnedFd>,
}

/// Waits until no other test on this machine uses an emulated path or loads the machine, in this
/// process or another: two paths on two processors would spoil each other's figures. Such a test is
/// in a module `tests_alone`, so that CI runs it when nothing is compiled either.
///
/// # Panics
/// If the test is elsewhere, or if the lock's files cannot be made or locked.
pub fn path() -> PathLock {
    // The thread of a test has its name, but for that of a binary which runs one test at a time.
    let test = thread::current().name().unwrap_or("main").to_owned();
    assert!(
        test == "main" || test.contains("tests_alone::"),
        "{test} belongs into a module `tests_alone`"
    );
    let lock = |slot| {
        let file = slot_file(slot);
        flock(&file, FlockOperation::LockExclusive).expect("a file can be locked");
        file
    };
    PathLock {
        _slots: (0..LOAD_SLOTS).map(lock).collect(),
    }
}

/// Waits for one of five places for tests that load the machine for a moment and at a bounded rate,
/// over loopback or over a path of some 20 Mbit/s, and whose figures bear a few neighbours.
///
/// # Panics
/// If the lock's files cannot be made or locked.
pub fn load_slot() -> PathLock {
    let files: Vec<OwnedFd> = (0..LOAD_SLOTS).map(slot_file).collect();
    loop {
        for file in &files {
            match flock(file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return PathLock { _slots: files },
                Err(Errno::WOULDBLOCK) => {}
                Err(error) => panic!("a file can be locked: {error}"),
            }
        }
        thread::sleep(RETRY_INTERVAL);
    }
}

/// Opens the file of a slot, which may be another user's: to lock it takes no right to write.
fn slot_file(slot: u32) -> OwnedFd {
    let path = std::env::temp_dir().join(format!("fullpipe-test-path-{slot}.lock"));
    // Opening with O_CREAT fails for another user's file in a sticky folder
    // (`fs.protected_regular`).
    let file = File::open(&path).or_else(|_| create_readable_file(&path));
    file.expect("the lock's file can be made").into()
}

/// Creates a file that every user may read, whatever the umask.
fn create_readable_file(path: &Path) -> io::Result<File> {
    let file = File::create(path)?;
    file.set_permissions(Permissions::from_mode(0o644))?;
    Ok(file)
}

/// Number of tests that may load the machine at the same time while none uses an emulated path.
const LOAD_SLOTS: u32 = 5;

/// Between two attempts to get a slot.
const RETRY_INTERVAL: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "belongs into a module `tests_alone`")]
    fn a_path_is_for_tests_alone() {
        path();
    }

    #[test]
    fn a_path_waits_for_every_load() {
        let slot = load_slot();
        let waiting = thread::spawn(|| drop(path()));
        thread::sleep(RETRY_INTERVAL * 10);
        assert!(!waiting.is_finished());
        drop(slot);
        waiting.join().unwrap();
    }
}
