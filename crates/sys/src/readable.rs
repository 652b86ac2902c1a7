//! Waits for one descriptor.

use std::os::fd::AsFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Result;

/// Waits until `descriptor` can be read, or has ended, which a process does by its pidfd: at most
/// for `longest`, or without end if the kernel cannot count so long. Returns false if it has not.
///
/// # Errors
/// Fails with `EINTR` once a signal is handled.
pub fn wait_readable(descriptor: impl AsFd, longest: Duration) -> Result<bool> {
    let longest = Timespec::try_from(longest).ok();
    let mut waiting = [PollFd::new(&descriptor, PollFlags::IN)];
    Ok(poll(&mut waiting, longest.as_ref())? > 0)
}
