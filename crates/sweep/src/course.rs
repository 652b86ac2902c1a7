//! The load of a run: its course over time, the kernel's round-trip time, the processors.

use fullpipe_record::{Measurement, Sample, SweepLoad};
use fullpipe_units::{BitRate, ByteCount, Span, median};

/// Returns the load of a run; `None` where no end has samples of it.
pub(crate) fn load(measurement: &Measurement) -> Option<SweepLoad> {
    let (sender, receiver) = (measurement.sender(), measurement.receiver());
    let (streams, duration) = (measurement.request.streams, measurement.summary.duration);
    let ramp = measurement.summary.steady.map(|steady| steady.ramp);
    let mut rates = rates_of(&receiver.samples, streams, duration, |sample| Some(sample.bytes));
    if rates.is_empty() {
        rates = rates_of(&sender.samples, streams, duration, |sample| sample.tcp.bytes_acked);
    }
    let steady = sender.samples.iter().filter(|sample| sample.at >= ramp.unwrap_or_default());
    let smoothed_rtt = median(steady.filter_map(|sample| sample.tcp.rtt).collect());
    let [cpu_sender, cpu_receiver] = [sender, receiver].map(|end| end.cpu.map(|cpu| cpu.total()));
    (!rates.is_empty()).then_some(SweepLoad { rates, ramp, smoothed_rtt, cpu_sender, cpu_receiver })
}

/// Returns the rate of each whole half second of a load of this duration, by the bytes that each stream had so far:
/// between two samples they grow evenly.
fn rates_of(
    samples: &[Sample],
    streams: u16,
    duration: Span,
    bytes: impl Fn(&Sample) -> Option<ByteCount>,
) -> Vec<BitRate> {
    let mut courses: Vec<Vec<(Span, ByteCount)>> = vec![Vec::new(); streams.into()];
    for sample in samples {
        if let (Some(course), Some(bytes)) = (courses.get_mut(usize::from(sample.stream)), bytes(sample)) {
            course.push((sample.at, bytes));
        }
    }
    let last = courses.iter().filter_map(|course| course.last()).map(|(at, _)| *at).max().unwrap_or_default();
    let ends = (1..).map(|number| SweepLoad::STEP * number).take_while(|end| *end <= last.min(duration));
    let totals = ends.map(|end| courses.iter().map(|course| bytes_at(course, end)).sum::<ByteCount>());
    let rate = |before: &mut ByteCount, total: ByteCount| {
        let passed = total.saturating_sub(std::mem::replace(before, total));
        Some(BitRate::of(passed, SweepLoad::STEP))
    };
    totals.scan(ByteCount::ZERO, rate).collect()
}

/// Returns the bytes of a stream at a time, by its samples around it.
fn bytes_at(course: &[(Span, ByteCount)], at: Span) -> ByteCount {
    let next = course.partition_point(|(time, _)| *time < at);
    let (from, before) = next.checked_sub(1).map_or((Span::ZERO, ByteCount::ZERO), |last| course[last]);
    let Some((to, after)) = course.get(next) else { return before };
    let share = at.saturating_sub(from).as_secs_f64() / to.saturating_sub(from).as_secs_f64().max(f64::MIN_POSITIVE);
    before + after.saturating_sub(before).scaled(share)
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
            Sample { at, stream, bytes, tcp: TcpInfo::default(), memory: None }
        };
        let samples: Vec<Sample> = (1..=17).flat_map(|index| [sample(index, 0), sample(index, 1)]).collect();
        let of = |samples: &[Sample], duration| rates_of(samples, 2, duration, |sample| Some(sample.bytes));
        assert_eq!(of(&samples, Span::from_millis(1_600)), [BitRate::from_mbps(160); 3]);
        assert_eq!(of(&samples, Span::from_millis(1_400)), [BitRate::from_mbps(160); 2], "what drains is no load");
        assert_eq!(of(&[], Span::from_secs(1)), []);
        // Of samples far apart, none falls into the second half second.
        let sparse: Vec<Sample> =
            [4, 11, 15].into_iter().flat_map(|index| [sample(index, 0), sample(index, 1)]).collect();
        assert_eq!(of(&sparse, Span::from_secs(2)), [BitRate::from_mbps(160); 3]);
    }
}
