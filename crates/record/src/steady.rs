use crate::prelude::*;
use crate::{Sample, Steady, TransferProgress};

/// Fewer snapshots than this show no course.
const MIN_SNAPSHOTS: usize = 5;

/// The share of the later median rate at which the change point lies.
const CHANGE_RATE: f64 = 0.95;

/// An overshoot is this much above the later part's ninth decile: beyond what a sawtooth or a hole
/// that is filled (which acknowledges a whole window at once) shows again and again.
const OVERSHOOT: f64 = 1.5;

/// After an overshoot, the rate has come down when it is at most this much of the later median.
const COME_DOWN: f64 = 1.25;

/// The shortest time without an overshoot after which none is expected; ten round trips where that
/// is longer.
const MIN_CALM: Span = Span::from_secs(1);

/// Slow start fills any path of this field within so many round trips.
pub const RAMP_ROUND_TRIPS: u64 = 10;

/// The fewest round trips of a steady part.
const MIN_ROUND_TRIPS: u64 = 5;

/// The shortest steady part.
const MIN_STEADY: Span = Span::from_secs(1);

/// Returns the ramp and the steady part of a transfer.
///
/// Takes the samples of the sending end, all streams, in any order; the least round-trip time, for
/// which the least in the samples stands in if `base_rtt` is `None`; and when the data ended, all
/// since the data began to flow.
///
/// The steady part begins one round trip after the change point and no earlier than ten round trips
/// after the start, ends at the last sample, and lasts a whole number of round trips. The change
/// point is where the rate, over the longer of one round trip and 200 ms, first reaches 95 % of its
/// median in the second half of the transfer; where slow start overshot far above that, it is where
/// the rate has come down again and stayed down.
///
/// `None` where fewer than five snapshots were taken, or where less than the longer of five round
/// trips and one second would remain: the transfer was too short to say.
pub fn find_steady(samples: &[Sample], base_rtt: Option<Span>, ended_at: Span) -> Option<Steady> {
    split_ramp(
        &TransferProgress::from_samples(samples, ended_at),
        base_rtt.or_else(|| least_rtt(samples)),
    )
}

/// Returns the steady part, as [`find_steady`] does, from the samples of the receiving end: by what
/// it received, since what it sent is not the transfer.
pub fn steady_of_receiver(
    samples: &[Sample],
    base_rtt: Option<Span>,
    ended_at: Span,
) -> Option<Steady> {
    split_ramp(
        &TransferProgress::of_receiver(samples, ended_at),
        base_rtt.or_else(|| least_rtt(samples)),
    )
}

fn split_ramp(progress: &TransferProgress, rtt: Option<Span>) -> Option<Steady> {
    let snapshots = progress.snapshot_times();
    if snapshots.len() < MIN_SNAPSHOTS {
        return None;
    }
    let end = *snapshots.last()?;
    let rtt = rtt.unwrap_or(Span::ZERO);
    let rates = progress.windowed_rates(rtt);
    let change = change_point(&rates, end, MIN_CALM.max(rtt * RAMP_ROUND_TRIPS))?;
    let ramp_at_least = (change + rtt).max(rtt * RAMP_ROUND_TRIPS);
    let duration = whole_round_trips(end.saturating_sub(ramp_at_least), rtt);
    if duration < MIN_STEADY.max(rtt * MIN_ROUND_TRIPS) {
        return None;
    }
    Some(progress.steady_between(end - duration, end))
}

/// Returns the least round-trip time in `samples`, if any has one.
pub fn least_rtt(samples: &[Sample]) -> Option<Span> {
    samples
        .iter()
        .filter_map(|sample| sample.tcp.min_rtt.or(sample.tcp.rtt))
        .filter(|rtt| *rtt > Span::ZERO)
        .min()
}

fn change_point(rates: &[(Span, BitRate)], end: Span, calm: Span) -> Option<Span> {
    let mut later: Vec<BitRate> = rates
        .iter()
        .filter(|(at, _)| *at >= end / 2)
        .map(|(_, rate)| *rate)
        .collect();
    later.sort_unstable();
    let median = median(later.clone())?;
    let usual_peak = later[(later.len() - 1) * 9 / 10];

    let (mut change, _) = *rates
        .iter()
        .find(|(_, rate)| *rate >= median.scale_by(CHANGE_RATE))?;
    // While an overshoot follows before the rate was calm for long enough, the ramp lasts until it
    // has come down.
    let last_overshoot = |from: Span| {
        let within = |at: Span| at >= from && at.saturating_sub(from) <= calm;
        rates
            .iter()
            .rev()
            .find(|(at, rate)| within(*at) && *rate > usual_peak.scale_by(OVERSHOOT))
            .map(|(at, _)| *at)
    };
    while let Some(peak) = last_overshoot(change) {
        (change, _) = *rates
            .iter()
            .find(|(at, rate)| *at > peak && *rate <= median.scale_by(COME_DOWN))?;
    }
    Some(change)
}

/// The longest whole number of round trips in `span`.
fn whole_round_trips(span: Span, rtt: Span) -> Span {
    span.as_nanos()
        .checked_div(rtt.as_nanos())
        .map_or(span, |times| rtt * times)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TcpInfo;
    use fullpipe_units::ByteCount;
    use proptest::prelude::*;

    const RTT: Span = Span::from_millis(100);

    /// Samples every 50 ms of one stream whose rate at `t` seconds is `mbps(t)`.
    fn course(seconds: f64, mbps: impl Fn(f64) -> f64) -> Vec<Sample> {
        const STEP: f64 = 0.001;
        let mut bytes = 0.0;
        let mut samples = Vec::new();
        for step in 1..=(seconds / STEP).round() as u64 {
            bytes += mbps(step as f64 * STEP).max(0.0) * 1e6 / 8.0 * STEP;
            if step % 50 == 0 {
                samples.push(sample(Span::from_millis(step), ByteCount::from_f64(bytes)));
            }
        }
        samples
    }

    fn sample(at: Span, acked: ByteCount) -> Sample {
        let tcp = TcpInfo {
            bytes_acked: Some(acked),
            ..TcpInfo::default()
        };
        Sample {
            at,
            stream: 0,
            bytes: acked,
            tcp,
            memory: None,
        }
    }

    /// Doubles each round trip from 0.1 Mbit/s.
    fn slow_start(t: f64) -> f64 {
        0.1 * 2.0_f64.powf(t / 0.1)
    }

    fn steady_of(samples: &[Sample]) -> Steady {
        find_steady(samples, Some(RTT), samples.last().unwrap().at).expect("a steady part")
    }

    fn assert_rate(steady: &Steady, mbps: f64, within: f64) {
        let off = steady.rate.as_mbps() / mbps - 1.0;
        assert!(
            off.abs() <= within,
            "{} is {:.1} % off {mbps} Mbit/s",
            steady.rate,
            off * 100.0
        );
    }

    #[test]
    fn slow_start_into_a_plateau_is_cut_after_the_knee() {
        let steady = steady_of(&course(10.0, |t| slow_start(t).min(327.0)));
        assert_rate(&steady, 327.0, 0.001);
        assert!(
            steady.ramp >= Span::from_millis(1300) && steady.ramp <= Span::from_millis(1700),
            "{}",
            steady.ramp
        );
        assert_eq!(steady.ramp + steady.duration, Span::from_secs(10));
        assert_eq!(steady.duration.as_nanos() % RTT.as_nanos(), 0);
        assert!(steady.ramp_rate < steady.rate);
    }

    #[test]
    fn ten_round_trips_belong_to_the_ramp_even_if_the_rate_is_there_at_once() {
        let steady = steady_of(&course(5.0, |_| 50.0));
        assert_eq!(steady.ramp, Span::from_secs(1));
    }

    #[test]
    fn a_sawtooth_does_not_push_the_ramp_into_the_transfer() {
        // CUBIC's: 0.7 to 1 of the peak, every two seconds.
        let steady = steady_of(&course(20.0, |t| {
            slow_start(t).min(100.0 * (0.7 + 0.3 * (t / 2.0).fract()))
        }));
        assert!(steady.ramp <= Span::from_secs(3), "{}", steady.ramp);
        assert_rate(&steady, 85.0, 0.02);
    }

    #[test]
    fn a_slow_start_that_overshoots_far_above_the_later_level_is_ramp() {
        // Up to 800 Mbit/s in 1.3 s, then down by losses over a second and a half, then a sawtooth
        // around 20.
        let after_loss = |t: f64| 20.0 * (0.7 + 0.6 * (t / 0.8).fract());
        let mbps = |t: f64| {
            if t < 1.3 {
                slow_start(t)
            } else {
                (800.0 * 0.05_f64.powf(t - 1.3)).max(after_loss(t))
            }
        };
        let steady = steady_of(&course(15.0, mbps));
        assert!(
            steady.ramp >= Span::from_millis(2400) && steady.ramp <= Span::from_millis(4000),
            "{}",
            steady.ramp
        );
        assert_rate(&steady, 20.0, 0.05);
        assert!(steady.ramp_rate > steady.rate);
    }

    #[test]
    fn a_pause_within_the_overshoot_is_not_its_end() {
        // A hole in the data stops the acknowledgements for 300 ms, then everything is acknowledged
        // at once.
        let mbps = |t: f64| match t {
            t if t < 1.2 => slow_start(t),
            t if t < 1.5 => 0.0,
            t if t < 1.8 => 400.0,
            _ => 20.0,
        };
        let steady = steady_of(&course(10.0, mbps));
        assert!(steady.ramp >= Span::from_millis(1900), "{}", steady.ramp);
        assert_rate(&steady, 20.0, 0.01);
    }

    #[test]
    fn an_overshoot_ends_where_the_rate_is_near_the_later_level() {
        // From 200 down by 50 Mbit/s a second to 20: within a quarter of that at 4.8 s, seen over
        // 200 ms.
        let mbps = |t: f64| {
            if t < 1.3 {
                slow_start(t).min(200.0)
            } else {
                (200.0 - 50.0 * (t - 1.3)).max(20.0)
            }
        };
        let steady = steady_of(&course(15.0, mbps));
        assert!(
            steady.ramp >= Span::from_millis(4850) && steady.ramp <= Span::from_millis(5150),
            "{}",
            steady.ramp
        );
    }

    #[test]
    fn five_snapshots_and_five_round_trips_are_the_fewest() {
        let snapshots = |count: u64| -> Vec<Sample> {
            (1..=count)
                .map(|second| sample(Span::from_secs(second), ByteCount::new(second * 1_000_000)))
                .collect()
        };
        let has_one =
            |samples: &[Sample], rtt| find_steady(samples, Some(rtt), Span::MAX).is_some();
        assert!(
            has_one(&snapshots(5), Span::from_millis(1))
                && !has_one(&snapshots(4), Span::from_millis(1))
        );
        // Ten round trips of half a second are ramp, and five must follow.
        let long = Span::from_millis(500);
        assert!(has_one(&course(7.6, |_| 50.0), long) && !has_one(&course(7.4, |_| 50.0), long));
    }

    #[test]
    fn streams_are_summed_and_written_bytes_stand_in() {
        let mut samples = course(5.0, |_| 30.0);
        samples.extend(course(5.0, |_| 12.0).into_iter().map(|mut sample| {
            sample.stream = 1;
            sample.tcp.bytes_acked = None;
            sample
        }));
        assert_rate(&steady_of(&samples), 42.0, 0.001);
    }

    #[test]
    fn a_receiver_that_sent_only_its_cookie_is_not_at_rest() {
        let received = |sample: Sample| {
            let tcp = TcpInfo {
                bytes_acked: Some(ByteCount::new(38)),
                bytes_received: sample.tcp.bytes_acked,
                ..TcpInfo::default()
            };
            Sample { tcp, ..sample }
        };
        let samples: Vec<Sample> = course(5.0, |t| slow_start(t).min(50.0))
            .into_iter()
            .map(received)
            .collect();
        let end = samples.last().unwrap().at;
        assert_rate(
            &steady_of_receiver(&samples, Some(RTT), end).unwrap(),
            50.0,
            0.001,
        );
        // Where the kernel does not count what arrives, what the program read is left.
        let unknown: Vec<Sample> = samples
            .into_iter()
            .map(|sample| Sample {
                tcp: TcpInfo::default(),
                ..sample
            })
            .collect();
        assert_rate(
            &steady_of_receiver(&unknown, Some(RTT), end).unwrap(),
            50.0,
            0.001,
        );
    }

    #[test]
    fn too_short_a_transfer_has_no_steady_part() {
        let samples = course(1.9, |_| 50.0);
        assert_eq!(find_steady(&samples, Some(RTT), Span::from_secs(2)), None);
        assert_eq!(
            find_steady(
                &course(5.0, |_| 50.0)[..4],
                Some(Span::from_millis(1)),
                Span::from_secs(5)
            ),
            None
        );
        assert_eq!(find_steady(&[], None, Span::from_secs(5)), None);
        // Still in slow start when it ends.
        assert_eq!(
            find_steady(&course(1.5, slow_start), Some(RTT), Span::from_millis(1500)),
            None
        );
    }

    #[test]
    fn without_a_round_trip_time_that_of_the_samples_counts() {
        let mut samples = course(5.0, |_| 50.0);
        for sample in &mut samples {
            sample.tcp.min_rtt = Some(Span::from_millis(200));
        }
        assert_eq!(
            find_steady(&samples, None, Span::from_secs(5))
                .unwrap()
                .ramp,
            Span::from_secs(2)
        );
    }

    proptest! {
        #[test]
        fn noise_does_not_hide_the_level(
            noise in prop::collection::vec(0.8_f64..1.2, 100),
            level in 5.0_f64..900.0,
        ) {
            let samples = course(10.0, |t| slow_start(t).min(level * noise[(t * 10.0) as usize % 100]));
            let steady = steady_of(&samples);
            let mean = level * noise.iter().sum::<f64>() / 100.0;
            prop_assert!((steady.rate.as_mbps() / mean - 1.0).abs() < 0.05, "{} against {mean}", steady.rate);
        }

        #[test]
        fn no_samples_make_it_panic(
            raw in prop::collection::vec((any::<u64>(), 0_u16..3, any::<u64>(), any::<Option<u64>>()), 0..40),
            rtt in any::<Option<u64>>(),
            ended_at in any::<u64>(),
        ) {
            let samples: Vec<Sample> = raw.into_iter().map(|(at, stream, written, acked)| Sample {
                stream,
                bytes: ByteCount::new(written),
                tcp: TcpInfo { bytes_acked: acked.map(ByteCount::new), ..TcpInfo::default() },
                ..sample(Span::from_nanos(at), ByteCount::ZERO)
            }).collect();
            let _ = find_steady(&samples, rtt.map(Span::from_nanos), Span::from_nanos(ended_at));
        }
    }
}
