//! Captures that come through a pipe.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::commands::prelude::*;

/// A pipe, or a device.
pub(super) struct CapturePipe(File);

impl CapturePipe {
    pub(super) fn of_standard_input() -> io::Result<Self> {
        let own = io::stdin().as_fd().try_clone_to_owned()?;
        Ok(Self(own.into()))
    }

    /// Returns what comes through it, to the end or until a little after the flag is set.
    pub(super) fn until_interrupt(self, flag: Arc<AtomicBool>) -> impl Read + Send {
        UntilInterrupt::new(self.0, flag)
    }
}

impl From<File> for CapturePipe {
    fn from(file: File) -> Self {
        Self(file)
    }
}

/// A pipe that ends soon after Ctrl-C, though it may be silent. What the writer of a pipe adds at
/// the same Ctrl-C is read.
struct UntilInterrupt {
    input: File,
    flag: Arc<AtomicBool>,
    /// The time after which nothing is read.
    end: Option<Instant>,
}

impl UntilInterrupt {
    const fn new(input: File, flag: Arc<AtomicBool>) -> Self {
        Self {
            input,
            flag,
            end: None,
        }
    }

    fn is_over(&mut self) -> bool {
        const LATE: Duration = Duration::from_millis(500);
        if !self.flag.load(Ordering::Relaxed) {
            return false;
        }
        Instant::now() >= *self.end.get_or_insert_with(|| Instant::now() + LATE)
    }
}

impl Read for UntilInterrupt {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        const POLL_INTERVAL: Timespec = Timespec {
            tv_sec: 0,
            tv_nsec: 100_000_000,
        };
        while !self.is_over() {
            // A signal cuts it short.
            let ready = poll(
                &mut [PollFd::new(&self.input, PollFlags::IN)],
                Some(&POLL_INTERVAL),
            );
            if ready.is_ok_and(|count| count > 0) {
                return self.input.read(bytes);
            }
        }
        Ok(0)
    }
}
