//! Transfers that end before their congestion window has grown.

use crate::limits::congestion_window::{cause_of_window, longer_transfer};
use crate::limits::prelude::*;
use crate::limits::receive_window;
use crate::signals::SeenEnd;
use crate::thresholds::INITIAL_WINDOW;

candidate_sets! {
    /// A transfer that seems to end while it speeds up.
    RAMP_OR_LOST: [Loss Random],
        "a capture at the sender, which shows what it repeats";
}

pub(crate) const CAUSE: Cause = Cause {
    received_sentence: |arrivals, _| {
        format!(
            "The transfer was over before it had speeded up: a sender starts slowly and doubles each round trip ({}).",
            arrivals.rtt.unwrap_or_default()
        )
    },
    setting_remedies: |advice| vec![Some(longer_transfer(advice))],
    ..cause_of_window(&["congestion-window/ramp-up"], |figures, _| {
        format!(
            "The transfer was still speeding up when it ended: a sender starts slowly and doubles each round trip \
                 ({}).",
            time_text(figures.rtt)
        )
    })
};

/// Round trips by which a transfer may take longer than slow start does for its bytes: one for the
/// request, and one for acknowledgements that are held back.
const SLOW_START_TOLERANCE: f64 = 2.0;

/// Returns true if a stream moved all of its data in hardly more round trips than slow start takes
/// for so much: its window doubles in each (RFC 5681, 3.1), from ten segments (RFC 6928).
///
/// Takes the stream's samples by time, the bytes that each of them says were moved, and the payload
/// of its segments.
fn is_slow_start(
    samples: &[&Sample],
    moved: impl Fn(&Sample) -> Option<ByteCount>,
    mss: ByteCount,
    rtt: Span,
) -> bool {
    let Some(all) = samples
        .last()
        .and_then(|last| moved(last))
        .filter(|all| *all > ByteCount::ZERO)
    else {
        return false;
    };
    // Between two samples it is not known when the last data moved: at the earlier one it had not.
    let still_moving = samples
        .iter()
        .filter(|sample| moved(sample) < Some(all))
        .map(|sample| sample.at)
        .max();
    let first_round = mss * INITIAL_WINDOW;
    let rounds = (all.as_f64() / first_round.as_f64() + 1.0).log2().ceil();
    mss > ByteCount::ZERO
        && still_moving.unwrap_or_default() <= rtt.scale_by(rounds + SLOW_START_TOLERANCE)
}

/// Finds a transfer that ended, or ran out of data, before the sender's congestion window had grown;
/// of a capture, if its program did not wait.
pub(crate) fn ended_early(view: &TransferView) -> Option<Finding> {
    let (rtt, mss) = (view.rtt()?, view.mss()?);
    let is_slow = match &view.end {
        SeenEnd::Sender(figures) => {
            let mut flows = figures.flows.iter();
            !figures.ever_lost()
                && flows.all(|flow| {
                    is_slow_start(&flow.whole, |sample| sample.tcp.bytes_acked, mss, rtt)
                })
                && receive_window::find_receive_window(figures).is_none()
        }
        SeenEnd::Receiver(arrivals) => {
            let mut flows = arrivals.whole.iter();
            arrivals.loss_rounds() == 0
                && flows
                    .all(|flow| is_slow_start(flow, |sample| sample.tcp.bytes_received, mss, rtt))
        }
    };
    let found = view.evidence.steady.is_none() && is_slow;
    let ramp = found.then(|| Finding::always(CongestionWindowVerdict::RampUp))?;
    match view.packets() {
        Some(packets) => (!packets.program_waits()).then(|| packets.with_stall(Ratio::ONE)),
        None => Some(ramp),
    }
}

/// Share of the round trips in which more was in flight than ever before, from which a transfer
/// ended while it sped up.
const GROWING_SHARE: f64 = 0.45;

/// Finds a transfer of so few round trips that what is in flight still grew in most of them: a
/// slow start that overflows the queue in the end is one. Where nothing was in flight for most
/// of the time, its program waited.
pub(crate) fn still_growing(view: &CaptureView) -> Option<Finding> {
    let quiet = view.capture.quiet?;
    let found = quiet.growing.get() >= GROWING_SHARE && !view.program_waits();
    found.then(|| view.with_stall(quiet.growing))
}

impl CaptureView<'_> {
    /// Returns the verdict on a transfer that ended while it sped up; as one of several where it may
    /// have lost all that its sender repeats, of which nothing comes here.
    fn with_stall(&self, share: Ratio) -> Finding {
        let found = Finding::new(CongestionWindowVerdict::RampUp, share);
        if self.capture.closed || self.is_at_sender() {
            found
        } else {
            found.one_of(&RAMP_OR_LOST)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_record::TcpInfo;

    const MSS: ByteCount = ByteCount::new(1448);
    const RTT: Span = Span::from_millis(100);

    /// Samples every 50 ms of a transfer of so many segments that ends at `end`.
    fn transfer(segments: u64, end: Span) -> Vec<Sample> {
        let sample = |index: u64| {
            let at = Span::from_millis(index * 50);
            let share = (at.as_secs_f64() / end.as_secs_f64()).min(1.0);
            Sample {
                at,
                stream: 0,
                bytes: (MSS * segments).scale_by(share),
                tcp: TcpInfo::default(),
                memory: None,
            }
        };
        (1..=40).map(sample).collect()
    }

    fn is_ramp(segments: u64, end_millis: u64) -> bool {
        let samples = transfer(segments, Span::from_millis(end_millis));
        is_slow_start(
            &samples.iter().collect::<Vec<_>>(),
            |sample| Some(sample.bytes),
            MSS,
            RTT,
        )
    }

    #[test]
    fn bytes_that_took_as_long_as_slow_start_takes_are_a_ramp() {
        // 10 + 20 + 40 + 80 segments in four round trips.
        assert!(is_ramp(150, 400) && is_ramp(150, 600));
        assert!(!is_ramp(150, 900), "something else took the rest");
        assert!(is_ramp(1, 200), "a single segment");
        assert!(!is_ramp(0, 100), "nothing moved");
    }
}
