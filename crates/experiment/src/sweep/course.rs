//! The load of a run: its course over time, the kernel's round-trip time, the processors.

use fullpipe_record::{EndReport, SweepLoad};

use crate::prelude::*;

/// Returns the load of a run; `None` where no end has samples of it.
pub(crate) fn sweep_load(measurement: &Measurement) -> Option<SweepLoad> {
    let (sender, receiver) = (measurement.sending_end(), measurement.receiving_end());
    let (streams, duration) = (measurement.request.streams, measurement.summary.duration);
    let ramp = measurement.summary.steady.map(|steady| steady.ramp);
    let [sent, received] = [sender, receiver].map(|end| uploaded_samples(end, streams));
    let mut rates = rates_of(&TransferProgress::from_samples(sent, Span::MAX), duration);
    if rates.is_empty() {
        rates = rates_of(
            &TransferProgress::of_receiver(received, Span::MAX),
            duration,
        );
    }
    let steady = sender
        .samples
        .iter()
        .filter(|sample| sample.at >= ramp.unwrap_or_default());
    let smoothed_rtt = median(steady.filter_map(|sample| sample.tcp.rtt).collect());
    let [cpu_sender, cpu_receiver] =
        [sender, receiver].map(|end| end.cpu.map(|cpu| cpu.total_share()));
    (!rates.is_empty()).then_some(SweepLoad {
        rates,
        ramp,
        smoothed_rtt,
        cpu_sender,
        cpu_receiver,
    })
}

/// Returns the samples of the first `streams` streams, which of two directions are the upload's.
fn uploaded_samples(end: &EndReport, streams: u16) -> impl Iterator<Item = &Sample> {
    end.samples
        .iter()
        .filter(move |sample| sample.stream < streams)
}

/// Returns the rate of each whole half second of a load of this duration.
fn rates_of(progress: &TransferProgress, duration: Span) -> Vec<BitRate> {
    let last = progress
        .snapshot_times()
        .last()
        .copied()
        .unwrap_or_default()
        .min(duration);
    let ends = (1..)
        .map(|number| SweepLoad::STEP * number)
        .take_while(|end| *end <= last);
    ends.map(|end| progress.mean_rate(end - SweepLoad::STEP, end))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_record::TcpInfo;

    #[test]
    fn a_rate_is_that_of_all_streams_in_a_half_second() {
        let sample = |index: u64, stream: u16| {
            let at = Span::from_millis(100 * index);
            let bytes = BitRate::from_mbps(80).bytes_in(at);
            Sample {
                at,
                stream,
                bytes,
                tcp: TcpInfo::default(),
                memory: None,
            }
        };
        let samples: Vec<Sample> = (1..=17)
            .flat_map(|index| [sample(index, 0), sample(index, 1)])
            .collect();
        let of = |samples: &[Sample], duration| {
            rates_of(
                &TransferProgress::from_samples(samples, Span::MAX),
                duration,
            )
        };
        assert_eq!(
            of(&samples, Span::from_millis(1_600)),
            [BitRate::from_mbps(160); 3]
        );
        assert_eq!(
            of(&samples, Span::from_millis(1_400)),
            [BitRate::from_mbps(160); 2],
            "what drains is no load"
        );
        assert_eq!(of(&[], Span::from_secs(1)), []);
        // Of samples far apart, none falls into the second half second.
        let sparse: Vec<Sample> = [4, 11, 15]
            .into_iter()
            .flat_map(|index| [sample(index, 0), sample(index, 1)])
            .collect();
        assert_eq!(
            of(&sparse, Span::from_secs(2)),
            [BitRate::from_mbps(160); 3]
        );
    }
}
