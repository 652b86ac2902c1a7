use std::fs::File;
use std::os::fd::OwnedFd;

use rustix::fs::{FlockOperation, flock};

/// The right to use an emulated path or to load the machine otherwise; given back when dropped.
#[derive(Debug)]
pub struct PathLock {
    _file: OwnedFd,
}

/// Waits until no other test on this machine uses an emulated path, in this process or another: two paths on two
/// processors would spoil each other's figures.
///
/// # Panics
/// If the lock's file cannot be made or locked.
pub fn path() -> PathLock {
    let file = File::create(std::env::temp_dir().join("fullpipe-test-path.lock")).expect("the lock's file can be made");
    flock(&file, FlockOperation::LockExclusive).expect("a file can be locked");
    PathLock { _file: file.into() }
}
