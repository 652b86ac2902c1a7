//! The thread that samples all TCP streams of a transfer.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use fullpipe_record::Sample;
use fullpipe_sys::{socket_memory, tcp_info};
use fullpipe_units::Span;

use super::lane::{RunningStream, StreamChannel};

/// Time between two snapshots at first.
const PERIOD: Duration = Duration::from_millis(50);

/// Takes a snapshot of every stream every [`PERIOD`], from `origin` on, until `stop` says so; hands
/// over each snapshot. Where `keep` says that there are too many, they come half as often from then
/// on.
pub(crate) fn run_sampler(
    streams: &[RunningStream],
    origin: Instant,
    stop: &Receiver<()>,
    mut keep: impl FnMut(Vec<Sample>) -> bool,
) {
    let mut next = origin;
    let mut period = PERIOD;
    // After an hour a period may be half a minute long: the end must not wait for it.
    while stop.recv_timeout(next.saturating_duration_since(Instant::now()))
        == Err(RecvTimeoutError::Timeout)
    {
        if keep(sample_streams(streams, origin)) {
            period *= 2;
        }
        // From the plan and not from now, so that lateness does not add up.
        next += period;
    }
    keep(sample_streams(streams, origin));
}

/// One sample of each stream of TCP. A stream whose connection is gone has nothing to report.
pub(crate) fn sample_streams(streams: &[RunningStream], origin: Instant) -> Vec<Sample> {
    let at = Span::from(origin.elapsed());
    let numbered = streams.iter().zip(0..);
    let samples = numbered.filter_map(|(stream, index)| {
        let socket = match &stream.channel {
            StreamChannel::Tcp(socket) => socket,
            StreamChannel::Framed(framed) => &framed.socket,
            StreamChannel::Udp(_) => return None,
        };
        Some(Sample {
            at,
            stream: index,
            bytes: stream.lock_count().bytes,
            tcp: tcp_info(socket).ok()?,
            memory: socket_memory(socket).ok(),
        })
    });
    samples.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_does_not_wait_for_the_next_snapshot() {
        let (stop, stopped) = std::sync::mpsc::channel();
        let begun = Instant::now();
        let ends = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(10));
            stop.send(()).unwrap();
        });
        let mut snapshots = 0;
        run_sampler(&[], begun + Duration::from_mins(1), &stopped, |_| {
            snapshots += 1;
            false
        });
        assert!(
            snapshots == 1 && begun.elapsed() < Duration::from_secs(30),
            "{snapshots}"
        );
        ends.join().unwrap();
    }
}
