//! Limits of the receiving end itself: its window, its program, its processors.

use fullpipe_model::kernel;
use fullpipe_record::{
    Buffer, CapacityVerdict, ReceiveWindowVerdict, ReceiverApplicationVerdict, Sample,
    SenderApplicationVerdict,
};
use fullpipe_units::{ByteCount, Ratio, Span};

use crate::arrivals::ReceiverSampleFigures;
use crate::finding::LimitFinding;
use crate::limits::receive_window::cause_of_small_buffer;
use crate::limits::{cpu, memory_pressure, receiver_application};
use crate::path::exceeds_the_pipe;
use crate::syn_quotes;
use crate::thresholds::{
    FEW_SEGMENTS, FULLY_TUNED_SHARE, MAX_FIRST_WINDOW, MIN_LIMIT_SHARE, MIN_TIME_WITHOUT_PROGRESS,
    MIN_WINDOW_FILL, STOPPED_SHARE,
};

/// Finds a receive buffer that stays full of data in order: the program does not read it.
pub(crate) fn slow_reader(arrivals: &ReceiverSampleFigures) -> Option<LimitFinding> {
    let pairs = arrivals.snapshot_pairs();
    let held = receiver_application::unread_share(pairs.map(|(before, now)| [before, now]))?;
    if held.get() < MIN_LIMIT_SHARE {
        return None;
    }
    // A program that gets no time does not read either.
    own_processor(arrivals).or_else(|| {
        Some(LimitFinding::new(
            ReceiverApplicationVerdict::SlowReader,
            held,
        ))
    })
}

/// Finds the processors of this end, if they had no more time to give for most of the judged part.
pub(crate) fn own_processor(arrivals: &ReceiverSampleFigures) -> Option<LimitFinding> {
    let (first, last) = arrivals.judged_period()?;
    let streams = u16::try_from(arrivals.flows.len()).unwrap_or(u16::MAX);
    cpu::of_this_receiver(&arrivals.evidence.receiver_machine, streams, first, last)
}

/// Finds this end's window as the limit, where each round trip brings as much as it allows. A
/// window that is larger than the pipe fills a queue with the rest. Senders do not fill windows
/// below one MSS (silly-window avoidance).
pub(crate) fn own_window_in_use(arrivals: &ReceiverSampleFigures) -> Option<LimitFinding> {
    let (window, rtt) = (arrivals.usual_window()?, arrivals.rtt?);
    if !arrivals.fills_window(window, rtt) {
        return None;
    }
    let in_the_pipe = arrivals
        .rate
        .bytes_in(arrivals.evidence.idle_rtt.unwrap_or(rtt));
    if arrivals.is_inflated() && exceeds_the_pipe(window, in_the_pipe, || arrivals.is_flat()) {
        return Some(arrivals.full_path(CapacityVerdict::Link));
    }
    let held = Ratio::new(
        Ratio::from_quotient(arrivals.rate.bytes_in(rtt).as_f64(), window.as_f64())
            .get()
            .min(1.0),
    );
    let cause = arrivals.cause_of_window(window);
    let found = LimitFinding::new(cause, held);
    let is_of_a_size = matches!(
        cause,
        ReceiveWindowVerdict::SoRcvbuf
            | ReceiveWindowVerdict::TcpRmemMax
            | ReceiveWindowVerdict::AutotuningStalled
    );
    if is_of_a_size && arrivals.may_only_pause() {
        return Some(found.add_alternative(SenderApplicationVerdict::Idle));
    }
    // Where scaling is on here, only the SYN could show who took it away.
    let offered = arrivals
        .evidence
        .receiver
        .as_ref()
        .is_some_and(|host| host.window_scaling);
    let unsure = cause == ReceiveWindowVerdict::NoWindowScaling && offered;
    Some(if unsure {
        found.one_of_several()
    } else {
        found
    })
}

/// Finds a sender that takes this end's window for less than a segment, as where a device removes
/// or changes its scale: it sends what the handshake allows, whose window has none, and then next
/// to nothing, though it always has data.
pub(crate) fn too_small_a_window_for_the_sender(
    arrivals: &ReceiverSampleFigures,
) -> Option<LimitFinding> {
    let is_open = arrivals.usual_window()? >= arrivals.mss()? * FEW_SEGMENTS;
    let found = is_open
        && arrivals.is_own_load()
        && arrivals
            .whole
            .iter()
            .all(|flow| stops_early(flow) == Some(true));
    found.then(|| {
        LimitFinding::new(ReceiveWindowVerdict::WindowScaleStripped, Ratio::ONE).one_of_several()
    })
}

/// Returns true if a connection brought no more than a first window, and then about nothing for
/// long.
fn stops_early(flow: &[&Sample]) -> Option<bool> {
    let last = flow.last()?;
    let all = last.tcp.bytes_received?;
    let moving = flow
        .iter()
        .filter(|sample| sample.tcp.bytes_received < Some(all.scale_by(STOPPED_SHARE)));
    let moved_last = moving.map(|sample| sample.at).max().unwrap_or_default();
    let silent = last.at.saturating_sub(moved_last);
    let is_long = silent >= MIN_TIME_WITHOUT_PROGRESS && silent * 2 >= last.at;
    Some(is_long && all > ByteCount::ZERO && all <= MAX_FIRST_WINDOW)
}

impl ReceiverSampleFigures<'_> {
    /// Returns true if round trips of `rtt` bring as much as `window` allows, but for what is less
    /// than a segment, or than half of a window that has room for none.
    pub(super) fn fills_window(&self, window: ByteCount, rtt: Span) -> bool {
        let rest = self.mss().unwrap_or_default() * self.flows.len() as u64;
        self.rate.bytes_in(rtt)
            >= window
                .saturating_sub(rest)
                .max(window.scale_by(0.5))
                .scale_by(MIN_WINDOW_FILL)
    }

    /// Returns this end's window, if it was the limit where the round trip was as long as the
    /// estimate. The kernel would have made a window larger that no program fixed.
    pub(super) fn window_over_a_longer_round_trip(&self) -> Option<ReceiveWindowVerdict> {
        let (window, estimate) = (self.usual_window()?, self.estimate?);
        let cause = self.cause_of_window(window);
        let is_fixed = self.evidence.request.receive_buffer() != Buffer::Automatic;
        let may_be = cause == ReceiveWindowVerdict::TcpRmemMax
            || (cause == ReceiveWindowVerdict::SoRcvbuf && is_fixed);
        (may_be && self.fills_window(window, estimate)).then_some(cause)
    }

    fn cause_of_window(&self, window: ByteCount) -> ReceiveWindowVerdict {
        if memory_pressure::holds_this_end(self) {
            return ReceiveWindowVerdict::MemoryPressure;
        }
        let unscaled = self
            .snapshots()
            .any(|snapshot| snapshot.tcp.window_scaling == Some(false));
        if unscaled && window <= kernel::largest_window(None) * self.flows.len() as u64 {
            let stripped = syn_quotes::lose_their_scale(self.evidence);
            return if stripped {
                ReceiveWindowVerdict::WindowScaleStripped
            } else {
                ReceiveWindowVerdict::NoWindowScaling
            };
        }
        if self.evidence.request.receive_buffer() != Buffer::Automatic {
            return ReceiveWindowVerdict::SoRcvbuf;
        }
        let Some(settings) = &self.evidence.receiver else {
            return ReceiveWindowVerdict::TcpRmemMax;
        };
        let largest = self
            .snapshots()
            .filter_map(|snapshot| snapshot.memory)
            .map(|memory| memory.rcvbuf)
            .max();
        let to_the_end =
            largest.is_none_or(|size| size >= settings.tcp_rmem.max.scale_by(FULLY_TUNED_SHARE));
        if to_the_end || !settings.moderate_rcvbuf {
            ReceiveWindowVerdict::TcpRmemMax
        } else {
            cause_of_small_buffer(self.evidence)
        }
    }
}
