//! Transfers that end before the rate is steady, or not long after.

use crate::loss::some_of;
use crate::prelude::*;
use crate::ramp::INITIAL_WINDOW;
use crate::window;

/// From the first data packet until the last of `bytes` is acknowledged: slow start from ten
/// segments of `mss`, doubling each `rtt`, until one window fills an `rtt` at the `steady` rate,
/// and that rate for the rest. The handshake, one `rtt` more, is not in it.
///
/// `steady` is payload and already knows of every ceiling, loss too. `loss` adds what its first
/// repair costs: one `rtt`, by the chance that any packet is lost. Holds where slow start is not
/// left early ([`crate::ramp::ramp_range`]) and a loss is repaired without a timeout. Within one
/// `rtt` of a stream sent packet by packet; where the steady rate is that of a small window over a
/// fast link, up to one `rtt` too long.
pub fn transfer_time(
    bytes: ByteCount,
    mss: ByteCount,
    rtt: Span,
    steady: BitRate,
    loss: Option<Ratio>,
) -> Span {
    let mss = mss.max(ByteCount::new(1));
    transfer_time_from(INITIAL_WINDOW.of_size(mss), bytes, rtt, steady)
        + rtt.scale_by(loss.map_or(0.0, |loss| {
            some_of(segment_count(bytes, mss), loss.get().min(1.0))
        }))
}

/// As [`transfer_time`] without loss, where slow start begins with a window of `first`.
pub(crate) fn transfer_time_from(
    first: ByteCount,
    bytes: ByteCount,
    rtt: Span,
    steady: BitRate,
) -> Span {
    if bytes == ByteCount::ZERO {
        return Span::ZERO;
    }
    let full = window::bdp(steady, rtt);
    let (mut start, mut left, mut round) = (Span::ZERO, bytes, first);
    while round < full && round < left {
        left = left - round;
        start += rtt;
        round = round * 2;
    }
    start + steady.time_for(left) + rtt
}

fn segment_count(bytes: ByteCount, mss: ByteCount) -> f64 {
    bytes.get().div_ceil(mss.get()) as f64
}

#[cfg(test)]
mod tests;
