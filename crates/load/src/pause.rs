//! The wait of a receiver for more data.

use std::num::NonZeroU64;
use std::os::fd::AsFd;
use std::thread;
use std::time::Duration;

use fullpipe_sys::socket_memory;
use rustix::event::PollFlags;
use rustix::thread::set_current_timer_slack;

use crate::shared::{POLL_INTERVAL, wait};

/// The wait of a receiver for more data.
///
/// One that waits in `poll` is woken for every packet, at the sender's expense where both share a machine. While much
/// arrives, it looks again after a moment instead, as network cards do that moderate their interrupts. The kernel
/// acknowledges all the same, and the moment is too short to fill much of the buffer.
#[derive(Debug)]
pub(crate) struct Pause {
    /// Bytes read since the last wait.
    fresh: u64,
}

impl Pause {
    /// The moment.
    const MOMENT: Duration = Duration::from_micros(50);

    /// Bytes that must have arrived since the last wait to make it worth while: so much in each moment is 5 Gbit/s.
    const WORTH: u64 = 32 * 1024;

    /// The part of the receive buffer that may have been filled since the last wait; with more, the moment would hold
    /// the sender up.
    const PART: u64 = 8;

    pub(crate) fn new() -> Self {
        // A sleep ends up to 50 µs late otherwise. Where the kernel refuses, it does.
        let _ = set_current_timer_slack(NonZeroU64::new(1));
        Self { fresh: 0 }
    }

    pub(crate) fn read(&mut self, bytes: u64) {
        self.fresh += bytes;
    }

    pub(crate) fn until_more(&mut self, socket: impl AsFd) {
        let fresh = std::mem::take(&mut self.fresh);
        let room = || socket_memory(&socket).map_or(0, |memory| memory.rcvbuf.get());
        if fresh >= Self::WORTH && fresh <= room() / Self::PART {
            thread::sleep(Self::MOMENT);
        } else {
            wait(&socket, PollFlags::IN, POLL_INTERVAL);
        }
    }
}
