//! When a run over an emulated path may be judged. Every threshold stands here.

use fullpipe_record::{Path, Validity};
use fullpipe_units::{Ratio, Span, count_noun};

use crate::carried::{DirectionCounts, LinkTiming};

/// Mean lateness over both directions, as a share of the path's round-trip time.
const MAX_LATENESS: f64 = 0.01;

/// Lateness that is forgiven however short the path: about what a sleeping thread takes to wake.
const FORGIVEN_LATENESS: Span = Span::from_micros(200);

/// Lateness that one packet in a hundred may exceed, as a share of the path's round-trip time and
/// within bounds: the rise in delay at which CUBIC takes the queue for full and ends slow start
/// (`HYSTART_DELAY_THRESH` in `tcp_cubic.c`).
const MAX_RARE_LATENESS: f64 = 1.0 / 8.0;
const RARE_LATENESS_BOUNDS: [Span; 2] = [Span::from_millis(4), Span::from_millis(16)];

/// Processor time that a hypervisor may take away, as a share of all cores.
const MAX_STOLEN: f64 = 0.10;

/// Returns the reasons why the run is not valid. Of the path's `stretches`, which have a round-trip
/// time of `rtt` together, each has carried what `carried` says.
pub(crate) fn judge_validity(
    rtt: Span,
    stretches: &[Path],
    carried: &[[DirectionCounts; 2]],
    device_drops: u64,
    stolen: Option<Ratio>,
) -> Validity {
    let timing = all_ways(carried);
    let one_ways = carried.as_flattened();
    let device_drops = device_drops + timing.as_ref().map_or(0, |timing| timing.refused);
    let mut broken = timing
        .as_ref()
        .map_or_else(Vec::new, |timing| timing_reasons(rtt, timing));
    broken.extend(
        stretches
            .iter()
            .zip(carried)
            .filter_map(|(path, both)| standstill_reason(path, both)),
    );
    // The bottleneck is in the middle.
    let (middle, forward) = (
        &stretches[stretches.len() / 2],
        &carried[carried.len() / 2][0],
    );
    if device_drops > 0 {
        broken.push(format!(
            "devices dropped {} outside of the emulated queue",
            count_noun(device_drops, "packet")
        ));
    }
    if let Some(stolen) = stolen
        && stolen.get() > MAX_STOLEN
    {
        broken.push(format!("a hypervisor took {stolen} of the processors away"));
    }
    Validity {
        broken,
        lateness_mean: timing.as_ref().map(mean_lateness),
        lateness_p99: timing.as_ref().map(percentile_lateness),
        longest_gap: timing.as_ref().map(|timing| timing.longest_gap),
        device_drops: Some(device_drops),
        queue_drops: Some(one_ways.iter().map(|one_way| one_way.overflowed).sum()),
        injected_losses: Some(one_ways.iter().map(|one_way| one_way.lost).sum()),
        reordered: forward.reordered,
        link_busy: middle.forward.rate.map(|_| forward.busy),
        stolen,
    }
}

/// Returns the reasons for which the link's own times make the run invalid.
fn timing_reasons(rtt: Span, timing: &LinkTiming) -> Vec<String> {
    let mut broken = Vec::new();
    let (mean, rare) = (mean_lateness(timing), percentile_lateness(timing));
    let allowed = rtt.scale_by(MAX_LATENESS).max(FORGIVEN_LATENESS);
    if mean > allowed {
        broken.push(format!(
            "packets were {mean} late on average, more than {allowed}"
        ));
    }
    let [least, most] = RARE_LATENESS_BOUNDS;
    let allowed = rtt.scale_by(MAX_RARE_LATENESS).clamp(least, most);
    if rare > allowed {
        broken
            .push(format!("one packet in a hundred was more than {rare} late, and TCP may take {allowed} for a queue"));
    }
    broken
}

/// Returns the reason for which the link stood still too long, if it did.
fn standstill_reason(path: &Path, carried: &[DirectionCounts; 2]) -> Option<String> {
    let longest_gap = carried
        .iter()
        .filter_map(|one_way| Some(one_way.timing.as_ref()?.longest_gap))
        .max()?;
    let drain = drain_time(path)?;
    // Packets that piled up before the link polled again reach its queue at once. Where none was
    // dropped, the standstill only delayed them, which the lateness shows.
    let overflowed = carried.iter().any(|one_way| one_way.overflowed > 0);
    let stood_still = longest_gap > drain && overflowed;
    stood_still.then(|| {
        format!("the link stood still for {longest_gap}, longer than its queue lasts ({drain})")
    })
}

/// The times of all directions as those of one.
fn all_ways(carried: &[[DirectionCounts; 2]]) -> Option<LinkTiming> {
    let mut timings = carried
        .as_flattened()
        .iter()
        .filter_map(|one_way| one_way.timing.as_ref());
    let mut all = timings.next()?.clone();
    timings.for_each(|other| all.add_timing(other));
    Some(all)
}

fn mean_lateness(timing: &LinkTiming) -> Span {
    Span::from_nanos(timing.lateness.mean() as u64)
}

/// Returns the lateness that one packet in a hundred reaches.
fn percentile_lateness(timing: &LinkTiming) -> Span {
    Span::from_nanos(timing.lateness.value_at_quantile(0.99))
}

/// The shortest time in which a full queue of the path runs empty.
fn drain_time(path: &Path) -> Option<Span> {
    [&path.forward, &path.reverse]
        .into_iter()
        .filter_map(|d| Some(d.rate?.time_for(d.queue?)))
        .min()
}

/// Processor time of the whole machine, from `/proc/stat`, in ticks.
#[derive(Clone, Copy)]
pub(crate) struct CpuTicks {
    stolen: u64,
    all: u64,
}

impl CpuTicks {
    /// Now; `None` where the kernel does not say.
    pub(crate) fn read_now() -> Option<Self> {
        Self::parse(&std::fs::read_to_string("/proc/stat").ok()?)
    }

    /// The first line holds the sums over all processors; its eighth number is what hypervisors
    /// took.
    fn parse(text: &str) -> Option<Self> {
        let line = text.lines().next()?.strip_prefix("cpu ")?;
        let numbers: Vec<u64> = line
            .split_whitespace()
            .take(8)
            .map_while(|word| word.parse().ok())
            .collect();
        Some(Self {
            stolen: *numbers.get(7)?,
            all: numbers.iter().sum(),
        })
    }

    /// Share of the time since `earlier` that was taken away.
    pub(crate) fn stolen_since(self, earlier: Self) -> Ratio {
        Ratio::from_quotient(
            (self.stolen - earlier.stolen.min(self.stolen)) as f64,
            self.all.saturating_sub(earlier.all) as f64,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stolen_time_is_a_share_of_all_time() {
        let before = CpuTicks::parse("cpu  100 0 100 700 0 0 0 100 0 0\ncpu0 1").unwrap();
        let after = CpuTicks::parse("cpu  150 0 150 750 0 0 0 150 9 9\n").unwrap();
        assert_eq!(after.stolen_since(before), Ratio::new(0.25));
        assert!(CpuTicks::parse("cpu  1 2 3").is_none());
    }
}
