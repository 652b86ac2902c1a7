//! The least cost of an emulated path: a loop that reads one TUN device and writes the other, and
//! does nothing else.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Longest that the end is waited for.
const POLL_INTERVAL: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 50_000_000,
};

/// The longest train, and virtio's header.
const MAX_FRAME: usize = 10 + 65_535;

/// One loop for each direction, until the value goes.
#[derive(Debug)]
pub(crate) struct Relay {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Relay {
    pub(crate) fn between([first, second]: [File; 2]) -> io::Result<Self> {
        let mut relay = Self {
            stop: Arc::default(),
            threads: Vec::new(),
        };
        for (from, to) in [(first.try_clone()?, second.try_clone()?), (second, first)] {
            let stop = Arc::clone(&relay.stop);
            relay
                .threads
                .push(thread::spawn(move || copy(&from, &to, &stop)));
        }
        Ok(relay)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn copy(from: &File, to: &File, stop: &AtomicBool) {
    let mut frame = vec![0; MAX_FRAME];
    while !stop.load(Ordering::Relaxed) {
        while let Ok(length) = rustix::io::read(from, &mut frame[..]) {
            // What the far host refuses is lost, as on any path.
            let _ = rustix::io::write(to, &frame[..length]);
        }
        let _ = poll(
            &mut [PollFd::new(&from.as_fd(), PollFlags::IN)],
            Some(&POLL_INTERVAL),
        );
    }
}
