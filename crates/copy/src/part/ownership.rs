//! Working files are of this user, and one transfer at a time writes to them.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use rustix::io::Errno;

use crate::tree::{TreeEntryName, set_mode};

/// Time for which a lock is tried, and between two attempts.
const LOCK_TIMEOUT: Duration = Duration::from_millis(300);
const LOCK_INTERVAL: Duration = Duration::from_millis(10);

/// Locks a file that was opened under a working name. Returns it, and true if the file system has
/// locks.
///
/// # Errors
/// Fails with `ResourceBusy` if another transfer writes it, or has removed it before it was locked.
pub(super) fn lock_opened(within: &TreeEntryName, data: File) -> io::Result<(File, bool)> {
    let is_locked = lock_data(&data)?;
    if within.is_same_file(&data)? {
        Ok((data, is_locked))
    } else {
        Err(busy_error())
    }
}

pub(super) fn busy_error() -> io::Error {
    io::Error::new(
        io::ErrorKind::ResourceBusy,
        "another transfer is writing it",
    )
}

/// Opens, to read and to write, a file that a transfer of this user has made: a name that others could have prepared is
/// not trusted.
pub(super) fn own_file(within: &TreeEntryName) -> io::Result<File> {
    let file = within
        .open_file(OFlags::RDWR)
        .or_else(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => {
                let_owner_write(within)?;
                within.open_file(OFlags::RDWR)
            }
            _ => Err(error),
        })?;
    check_own(&file)?;
    Ok(file)
}

fn check_own(file: &File) -> io::Result<()> {
    let found = file.metadata()?;
    let is_own =
        found.is_file() && found.nlink() == 1 && found.uid() == rustix::process::geteuid().as_raw();
    if is_own {
        Ok(())
    } else {
        Err(io::ErrorKind::PermissionDenied.into())
    }
}

/// Lets this user write to a file that a transfer has left complete but for its name, with the
/// permissions that it was to have.
fn let_owner_write(within: &TreeEntryName) -> io::Result<()> {
    let file = within.open_file(OFlags::PATH)?;
    check_own(&file)?;
    set_mode(file, Mode::RUSR | Mode::WUSR)
}

/// Locks the data for this transfer. Returns false if its file system has no locks. A program that
/// is being started shares the locks of its parent until it runs, so that of a transfer that has
/// ended may last: it is tried for a while.
fn lock_data(data: &File) -> io::Result<bool> {
    let deadline = Instant::now() + LOCK_TIMEOUT;
    loop {
        if let Some(is_locked) =
            lock_outcome(flock(data, FlockOperation::NonBlockingLockExclusive))?
        {
            return Ok(is_locked);
        }
        if Instant::now() >= deadline {
            return Err(busy_error());
        }
        thread::sleep(LOCK_INTERVAL);
    }
}

/// Judges an attempt to lock a file: true if it is locked, false if the file system has no locks,
/// `None` if the attempt is to be repeated.
pub(super) fn lock_outcome(attempt: rustix::io::Result<()>) -> io::Result<Option<bool>> {
    match attempt {
        Ok(()) => Ok(Some(true)),
        Err(Errno::WOULDBLOCK | Errno::INTR) => Ok(None),
        Err(Errno::NOSYS | Errno::OPNOTSUPP | Errno::NOLCK) => Ok(Some(false)),
        Err(error) => Err(error.into()),
    }
}
