//! The thread that looks at all streams of a transfer.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use fullpipe_record::Sample;
use fullpipe_sys::{socket_memory, tcp_info};
use fullpipe_units::{ByteCount, Span};

use crate::transfer::Stream;

/// Time between two looks.
pub(crate) const PERIOD: Duration = Duration::from_millis(50);

/// Looks at every stream every [`PERIOD`], from `origin` on, until `stopped`; hands over each look.
pub(crate) fn run(streams: &[Stream], origin: Instant, stopped: impl Fn() -> bool, mut keep: impl FnMut(Vec<Sample>)) {
    let mut next = origin;
    while !stopped() {
        keep(look(streams, origin));
        // From the plan and not from now, so that lateness does not add up.
        next += PERIOD;
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    keep(look(streams, origin));
}

/// One sample of each stream. A stream whose connection is gone has nothing to tell.
fn look(streams: &[Stream], origin: Instant) -> Vec<Sample> {
    let sample = |(index, stream): (usize, &Stream)| {
        Some(Sample {
            at: Span::from(origin.elapsed()),
            stream: index as u16,
            bytes: ByteCount::new(stream.bytes.load(Ordering::Relaxed)),
            tcp: tcp_info(&stream.socket).ok()?,
            memory: socket_memory(&stream.socket).ok(),
        })
    };
    streams.iter().enumerate().filter_map(sample).collect()
}
