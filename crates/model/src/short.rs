//! Transfers that end before the rate is steady, or not long after.

use fullpipe_units::{BitRate, ByteCount, Ratio, SegCount, Span};

use crate::loss::{LossEpoch, PftkFlow, some_of, timeout_seconds, timeout_share};
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

/// The parts of the expected time of a transfer (Cardwell, Savage, Anderson 2000, eq. 25).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransferLatency {
    /// Until the connection stands.
    pub handshake: Span,
    /// Slow start, up to the first loss or the end.
    pub slow_start: Span,
    /// Cost of the first loss: a timeout or a fast retransmit.
    pub recovery: Span,
    /// The rest, at the rate that loss leaves.
    pub congestion_avoidance: Span,
    /// The receiver's wait for a second segment, where the first window is a single one.
    pub delayed_acknowledgement: Span,
}

impl TransferLatency {
    /// From the first data packet to the last acknowledgement, with no wait for delayed ones.
    pub fn data_duration(&self) -> Span {
        self.slow_start + self.recovery + self.congestion_avoidance
    }

    /// With handshake and delayed acknowledgement.
    pub fn total_duration(&self) -> Span {
        self.handshake + self.data_duration() + self.delayed_acknowledgement
    }
}

/// The expected time of `bytes` under random `loss` (the same both ways), with slow start from
/// `initial_window`, which grows by γ = 1 + 1/b per round trip: 1.5 with delayed acknowledgements,
/// 2 where each segment counts, as on Linux.
///
/// Checked against an independent implementation of the paper, whose equation numbers are given
/// below. For Reno with timeouts of `flow.rto` at first; modern stacks repair the end of a transfer
/// sooner. The longest span where all is lost.
pub fn transfer_latency(
    flow: &PftkFlow,
    initial_window: SegCount,
    bytes: ByteCount,
    loss: Ratio,
) -> TransferLatency {
    let p = loss.get().min(1.0 - f64::EPSILON);
    let data = segment_count(bytes, flow.mss.max(ByteCount::new(1)));
    let first = initial_window.as_f64().max(1.0);
    let before_loss = slow_start_segments(data, p);
    let rtt = flow.rtt.as_secs_f64();
    let single = first < 2.0 && data > 0.0;
    TransferLatency {
        handshake: flow.rtt + Span::from_secs_f64(syn_timeouts(p)),
        slow_start: Span::from_secs_f64(rtt * slow_start_rounds(flow, first, before_loss)),
        recovery: Span::from_secs_f64(recovery_seconds(
            flow,
            data,
            last_window(flow, first, before_loss),
            p,
        )),
        congestion_avoidance: Span::from_secs_f64(steady_seconds(flow, data - before_loss, p)),
        delayed_acknowledgement: if single { MEAN_DELAYED_ACK } else { Span::ZERO },
    }
}

fn segment_count(bytes: ByteCount, mss: ByteCount) -> f64 {
    bytes.get().div_ceil(mss.get()) as f64
}

/// Eq. 5: the segments sent up to the first loss, that one too, of `data` in all.
fn slow_start_segments(data: f64, p: f64) -> f64 {
    if p == 0.0 {
        data
    } else {
        (some_of(data, p) * (1.0 - p) / p + 1.0).min(data)
    }
}

/// γ: the growth of the window in one round trip.
fn window_growth(flow: &PftkFlow) -> f64 {
    1.0 + 1.0 / flow.segments_per_ack()
}

/// Eq. 11: the window after so many segments of slow start, and no more than the largest.
fn last_window(flow: &PftkFlow, first: f64, sent: f64) -> f64 {
    unbound_window(flow, first, sent).min(flow.max_segments())
}

fn unbound_window(flow: &PftkFlow, first: f64, sent: f64) -> f64 {
    let growth = window_growth(flow);
    sent * (growth - 1.0) / growth + first / growth
}

/// Eq. 15: round trips of slow start for `sent` segments; from the largest window on, one such
/// window each.
fn slow_start_rounds(flow: &PftkFlow, first: f64, sent: f64) -> f64 {
    let (growth, largest) = (window_growth(flow), flow.max_segments());
    if unbound_window(flow, first, sent) <= largest {
        return libm::log(sent * (growth - 1.0) / first + 1.0) / libm::log(growth);
    }
    let first = first.min(largest);
    let until_largest = (growth * largest - first) / (growth - 1.0);
    libm::log(largest / first) / libm::log(growth) + 1.0 + (sent - until_largest) / largest
}

/// Eq. 16 to 20: what the end of slow start costs, by the chance that there is a loss at all.
fn recovery_seconds(flow: &PftkFlow, data: f64, window: f64, p: f64) -> f64 {
    if p == 0.0 {
        return 0.0;
    }
    let timeout = timeout_share(p, window);
    some_of(data, p)
        * (timeout * timeout_seconds(flow, p) + (1.0 - timeout) * flow.rtt.as_secs_f64())
}

/// Eq. 21 to 24: the segments that are left at PFTK's rate, counted as they arrive.
fn steady_seconds(flow: &PftkFlow, left: f64, p: f64) -> f64 {
    if p == 0.0 || left <= 0.0 {
        return 0.0;
    }
    let epoch = LossEpoch::from_loss(flow, p);
    left * epoch.seconds / ((1.0 - p) / p + epoch.peak / 2.0 + epoch.timeout)
}

/// Eq. 4: the mean time of lost SYNs and their answers, each timeout twice the one before; endless
/// from a half on.
fn syn_timeouts(p: f64) -> f64 {
    if p >= 0.5 {
        f64::INFINITY
    } else {
        SYN_TIMEOUT * 2.0 * ((1.0 - p) / (1.0 - 2.0 * p) - 1.0)
    }
}

/// First timeout of a SYN in seconds (RFC 6298 §2.1); the paper's time had three.
const SYN_TIMEOUT: f64 = 1.0;
/// The paper's mean for a timer that fires every 200 ms.
const MEAN_DELAYED_ACK: Span = Span::from_millis(100);

#[cfg(test)]
mod tests;
