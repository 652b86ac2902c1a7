//! The wait of a receiver for more data.

use std::num::NonZeroU64;
use std::os::fd::AsFd;
use std::thread;
use std::time::Duration;

use fullpipe_sys::socket_memory;
use rustix::event::PollFlags;
use rustix::thread::set_current_timer_slack;

use super::shared::{MAX_WAIT, wait_for_socket};

/// The wait of a receiver for more data.
///
/// A receiver that waits in `poll` is woken for every packet, at the sender's expense if both share
/// a machine. While much arrives, it sleeps for a moment and reads again, as network cards do that
/// moderate their interrupts. The kernel acknowledges all the same, and the moment is too short to
/// fill the buffer.
pub(crate) struct ReadPause {
    /// Bytes read since the last wait.
    fresh: u64,
}

impl ReadPause {
    /// Time of the sleep. What arrives meanwhile still fits the processor's cache: over loopback,
    /// 50 µs carry a tenth less.
    const MOMENT: Duration = Duration::from_micros(20);

    /// Minimum number of bytes since the last wait for which a sleep saves time: so many in each
    /// moment are 5 Gbit/s.
    const WORTH: u64 = 12 * 1024;

    /// Divisor of the receive buffer. If more than that part was filled since the last wait, a
    /// sleep could let the buffer fill up, and would hold the sender up.
    const PART: u64 = 2;

    pub(crate) fn new() -> Self {
        // A sleep ends up to 50 µs late otherwise. Where the kernel refuses, it does.
        let _ = set_current_timer_slack(NonZeroU64::new(1));
        Self { fresh: 0 }
    }

    pub(crate) fn note_read(&mut self, bytes: u64) {
        self.fresh += bytes;
    }

    pub(crate) fn until_more(&mut self, socket: impl AsFd) {
        let fresh = std::mem::take(&mut self.fresh);
        if fresh >= Self::WORTH
            && fresh <= socket_memory(&socket).map_or(0, |memory| memory.rcvbuf.get()) / Self::PART
        {
            thread::sleep(Self::MOMENT);
        } else {
            wait_for_socket(&socket, PollFlags::IN, MAX_WAIT);
        }
    }
}
