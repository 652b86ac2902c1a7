//! Transfers that end before their congestion window has grown.

use fullpipe_record::Sample;
use fullpipe_units::{ByteCount, Span};

use crate::thresholds::{INITIAL_WINDOW, SLOW_START_TOLERANCE};

/// Returns whether a stream moved all of its data in hardly more round trips than slow start takes for so much: its
/// window doubles in each (RFC 5681, 3.1), from ten segments (RFC 6928).
///
/// Takes the stream's samples by time, the bytes that each of them says were moved, and the payload of its segments.
pub(crate) fn is_slow_start(
    samples: &[&Sample],
    moved: impl Fn(&Sample) -> Option<ByteCount>,
    mss: ByteCount,
    rtt: Span,
) -> bool {
    let Some(all) = samples.last().and_then(|last| moved(last)).filter(|all| *all > ByteCount::ZERO) else {
        return false;
    };
    // Between two samples it is not known when the last data moved: at the earlier one it had not.
    let still_moving = samples.iter().filter(|sample| moved(sample) < Some(all)).map(|sample| sample.at).max();
    let first_round = mss * INITIAL_WINDOW;
    let rounds = (all.as_f64() / first_round.as_f64() + 1.0).log2().ceil();
    mss > ByteCount::ZERO && still_moving.unwrap_or_default() <= rtt.scaled(rounds + SLOW_START_TOLERANCE)
}
