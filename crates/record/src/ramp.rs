use crate::prelude::*;
use crate::{Measurement, RttStats, Transport};

/// Response of a path to one load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RampStep {
    /// Rate that the senders offered, all streams together.
    pub offered: BitRate,
    /// Rate that arrived.
    pub carried: BitRate,
    /// Round-trip times meanwhile.
    pub rtt: Option<RttStats>,
    /// Datagrams that were lost, or bytes that TCP retransmitted, as a share of all that were sent;
    /// unknown where the sender does not state it.
    pub loss: Option<Ratio>,
    /// Why its test broke off, if it did: the rest is then of the time before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broken_off: Option<String>,
}

impl RampStep {
    /// Returns the step that `measured` shows for a load of `offered`.
    pub fn from_measurement(offered: BitRate, measured: &Measurement) -> Self {
        let carried = match measured.request.transport {
            Transport::Udp => measured.arrival_rate(),
            Transport::Tcp => measured.summary.rate,
        };
        Self {
            offered,
            carried,
            rtt: measured.rtt.loaded,
            loss: datagram_loss(measured),
            broken_off: measured.broken_off.clone(),
        }
    }
}

fn datagram_loss(measured: &Measurement) -> Option<Ratio> {
    if measured.request.transport == Transport::Udp {
        let seen = measured.summary.datagrams?;
        return share_of_whole(seen.lost, seen.received + seen.lost);
    }
    let streams = measured.streams.len();
    let last: Vec<_> = measured
        .sending_end()
        .samples
        .iter()
        .rev()
        .take(streams)
        .collect();
    let again: ByteCount = last
        .iter()
        .map(|sample| sample.tcp.bytes_retrans)
        .sum::<Option<ByteCount>>()?;
    let sent: ByteCount = last
        .iter()
        .map(|sample| sample.tcp.bytes_sent)
        .sum::<Option<ByteCount>>()?;
    share_of_whole(again.get(), sent.get())
}

fn share_of_whole(part: u64, whole: u64) -> Option<Ratio> {
    (whole > 0).then(|| Ratio::from_quotient(part as f64, whole as f64))
}

/// Round-trip time and loss of a path as its load grows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RampReport {
    /// Rate that the path carries, if the steps are shares of it.
    pub full: Option<BitRate>,
    /// Round-trip times without load, of the first step.
    pub idle: Option<RttStats>,
    /// In the order of their load.
    pub steps: Vec<RampStep>,
    /// The least load under which the median round trip was longer than without by more than a
    /// tenth and a millisecond.
    pub slower_from: Option<BitRate>,
    /// The least load of which more than a thousandth was lost.
    pub loses_from: Option<BitRate>,
    /// True if the user cut it short; the steps that were done are kept.
    pub interrupted: bool,
}

impl RampReport {
    /// Returns the report of `steps`.
    pub fn new(
        full: Option<BitRate>,
        idle: Option<RttStats>,
        steps: Vec<RampStep>,
        interrupted: bool,
    ) -> Self {
        const MAX_LOSS: f64 = 0.001;
        let least = |shows: &dyn Fn(&RampStep) -> bool| {
            steps
                .iter()
                .find(|step| shows(step))
                .map(|step| step.offered)
        };
        let slower_from = least(&|step| {
            step.rtt
                .zip(idle)
                .is_some_and(|(loaded, idle)| is_longer(loaded.median, idle.median))
        });
        let loses_from = least(&|step| step.loss.is_some_and(|loss| loss.get() > MAX_LOSS));
        Self {
            full,
            idle,
            steps,
            slower_from,
            loses_from,
            interrupted,
        }
    }
}

/// By more than a tenth, and more than hosts and clocks make of nothing.
pub(crate) fn is_longer(loaded: Span, idle: Span) -> bool {
    const TOLERANCE: Span = Span::from_millis(1);
    loaded > idle + (idle / 10).max(TOLERANCE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rtt(median: u64) -> Option<RttStats> {
        RttStats::from_samples(vec![Span::from_millis(median); 3])
    }

    fn step(offered: u64, median: u64, loss: f64) -> RampStep {
        let offered = BitRate::from_mbps(offered);
        RampStep {
            offered,
            carried: offered,
            rtt: rtt(median),
            loss: Some(Ratio::new(loss)),
            broken_off: None,
        }
    }

    #[test]
    fn the_knee_is_where_the_queue_begins() {
        let steps = vec![
            step(10, 20, 0.0),
            step(50, 22, 0.0005),
            step(90, 24, 0.0),
            step(110, 90, 0.08),
        ];
        let report = RampReport::new(None, rtt(20), steps, false);
        assert_eq!(report.slower_from, Some(BitRate::from_mbps(90)));
        assert_eq!(report.loses_from, Some(BitRate::from_mbps(110)));
    }

    #[test]
    fn what_is_within_the_clocks_is_no_queue() {
        let steps = vec![step(10, 1, 0.0)];
        assert_eq!(
            RampReport::new(
                None,
                RttStats::from_samples(vec![Span::from_micros(100)]),
                steps,
                false
            )
            .slower_from,
            None
        );
        assert_eq!(
            RampReport::new(None, None, vec![step(10, 100, 0.0)], true).slower_from,
            None
        );
    }
}
