//! Policers, short queues and full links that resemble another limit.

use fullpipe_diagnose::diagnose;
use fullpipe_record::{Cause, CongestionState, Evidence, Limit, RttStats, Sample};
use fullpipe_units::{BitRate, ByteCount, SegCount, Span};

use crate::builder::{self, Moment, moment, samples, sawtooth, stated};

fn named(evidence: &Evidence) -> (Limit, Cause) {
    let verdict = diagnose(evidence);
    (verdict.kind, verdict.cause)
}

/// A transfer that fills 400 Mbit/s over 55 ms, with a queue, for a second. Then it loses a third
/// of a window, and takes its window back `cuts` times; since then it grows, without a queue.
fn full_until_a_burst(cuts: u32) -> Evidence {
    let full = samples(8.0, 1, |t| {
        let cut = f64::from(cuts.min(((t - 1.0) / 0.1) as u32));
        match t {
            _ if t < 1.0 => Moment {
                ssthresh: Some(3e6),
                ..moment(390.0, 90.0)
            },
            _ if t < 2.0 => Moment {
                recovering: true,
                lost_per_second: 3000.0,
                ssthresh: Some(2e6 * 0.7_f64.powf(cut)),
                ..moment(150.0, 56.0)
            },
            _ => moment(
                2e6 * 0.7_f64.powf(f64::from(cuts)) * 8.0 / 55.8e3 * (1.0 + 0.02 * t),
                55.8,
            ),
        }
    });
    stated(builder::evidence("cubic", 55, full), 415)
}

#[test]
fn a_policer_with_a_large_bucket_lets_the_link_be_full_first() {
    assert_eq!(named(&full_until_a_burst(4)), (Limit::Loss, Cause::Policer));
    assert_eq!(
        named(&full_until_a_burst(1)),
        (Limit::CongestionWindow, Cause::Recovering),
        "a queue overflowed"
    );
}

#[test]
fn a_policer_shows_in_a_later_burst_where_a_queue_stood_before_the_first() {
    let burst_at = |later: f64| {
        let full = samples(8.0, 1, |t| match t {
            _ if t < 0.6 => Moment {
                ssthresh: None,
                ..moment(12.5, 200.0)
            },
            _ if t < 1.5 => Moment {
                recovering: true,
                lost_per_second: 400.0,
                ..moment(7.0, 150.0)
            },
            _ if (later..later + 0.1).contains(&t) => Moment {
                recovering: true,
                lost_per_second: 250.0,
                ..moment(7.0, 73.5)
            },
            _ => moment(6.0 + (t * 0.3).fract(), 73.5),
        });
        let mut evidence = stated(builder::evidence("reno", 73, full), 13);
        let steady = evidence.steady.as_mut().unwrap();
        (steady.ramp, steady.duration) = (Span::from_secs(2), Span::from_secs(6));
        evidence
    };
    assert_eq!(named(&burst_at(4.85)), (Limit::Loss, Cause::Policer));
    assert_ne!(
        named(&burst_at(20.0)).1,
        Cause::Policer,
        "one that never came"
    );
}

#[test]
fn bbr_that_keeps_to_one_pace_without_a_queue_has_found_a_policer() {
    let paced = |probes: bool| {
        let half = samples(20.0, 1, |t| {
            let usual = moment(47.0, 40.4);
            let lost_per_second = if t < 7.0 { 350.0 } else { 0.0 };
            Moment {
                cwnd: usual.in_flight * 2.0,
                lost_per_second,
                ..usual
            }
        });
        let mut evidence = builder::evidence("bbr", 40, half);
        let steady = evidence.steady.as_mut().unwrap();
        (steady.ramp, steady.duration) = (Span::from_secs(8), Span::from_secs(12));
        for (index, sample) in evidence.sender_samples.iter_mut().enumerate() {
            let gain = if probes && index % 8 == 0 { 1.25 } else { 1.0 };
            sample.tcp.pacing_rate = Some(BitRate::from_mbps(48).scale_by(gain));
        }
        evidence
    };
    assert_eq!(named(&paced(false)), (Limit::Loss, Cause::Policer));
    assert_eq!(
        named(&paced(true)),
        (Limit::Capacity, Cause::Link),
        "it looks for more and finds none"
    );
}

/// A window that grows after an early loss, over round trips of `rtt_ms` where echoes of the idle
/// path took 100 to 104 ms.
fn grows_over(rtt_ms: f64) -> Evidence {
    let mut evidence = stated(sawtooth("reno", 10.0, &[1.2], 2.0, 0.3, 100.0), 200);
    let span = Span::from_secs_f64(rtt_ms / 1e3);
    for sample in &mut evidence.sender_samples {
        sample.tcp.rtt = Some(span);
    }
    let ms = Span::from_millis;
    evidence.idle_spread = Some(RttStats {
        count: 50,
        min: ms(100),
        median: ms(102),
        p90: ms(103),
        p99: ms(104),
        max: ms(104),
    });
    evidence.loaded_rtt = Some(span);
    evidence
}

#[test]
fn a_queue_that_never_empties_is_a_full_link_however_short_it_is() {
    assert_eq!(named(&grows_over(118.0)).0, Limit::Capacity);
    assert_eq!(
        named(&grows_over(104.5)),
        (Limit::CongestionWindow, Cause::Recovering),
        "no longer than idle"
    );
}

#[test]
fn round_trips_that_grow_with_the_window_show_a_full_link_before_the_queue_is_long() {
    let grows = |with_queue: f64| {
        let full = samples(8.0, 1, |t| match t {
            _ if t < 1.0 => Moment {
                recovering: true,
                lost_per_second: 700.0,
                ..moment(40.0, 140.0)
            },
            _ => {
                let growth = 1.0 + 0.014 * t;
                let (queue, rate) = (growth.powf(with_queue), growth.powf(1.0 - with_queue));
                moment(58.0 * rate, 79.0 * queue)
            }
        });
        builder::evidence("reno", 78, full)
    };
    assert_eq!(named(&grows(1.0)), (Limit::Capacity, Cause::Link));
    assert_eq!(
        named(&grows(0.2)),
        (Limit::CongestionWindow, Cause::Recovering),
        "most of it speeds up the transfer"
    );
}

#[test]
fn most_losses_at_the_largest_window_are_a_short_queues() {
    // Two of eight come before the window has grown back.
    let at_the_top = [5.0, 11.0, 17.0, 19.5, 25.5, 31.5, 33.5, 39.5];
    assert_eq!(
        named(&stated(
            sawtooth("cubic", 60.0, &at_the_top, 1.7, 0.7, 24.0),
            1000
        ))
        .0,
        Limit::Loss
    );
    let windows = sawtooth_with_peaks("cubic", &[1.0, 1.0, 0.7, 1.0, 1.0, 0.6, 1.0, 1.0], 1.0);
    assert_eq!(named(&windows), (Limit::Loss, Cause::ShallowQueue));
    let windows = sawtooth_with_peaks("cubic", &[1.0, 0.8, 0.7, 0.9, 1.0, 0.6, 0.85, 0.75], 1.0);
    assert_eq!(named(&windows), (Limit::Loss, Cause::Random));
}

/// Losses of one segment each two seconds over 30 ms, which are longer by `wait` at each peak, at
/// these shares of 20 Mbit/s.
fn sawtooth_with_peaks(congestion: &str, peaks: &[f64], wait: f64) -> Evidence {
    let full = samples(2.0 * peaks.len() as f64, 1, |t| {
        let (tooth, within) = ((t / 2.0) as usize, (t / 2.0).fract());
        let peak = peaks[tooth.min(peaks.len() - 1)];
        let just_lost = within < 0.03 && tooth > 0;
        let rtt_ms = 30.0
            * if (0.03..=0.9).contains(&within) {
                1.0
            } else {
                wait
            };
        Moment {
            recovering: just_lost,
            lost_per_second: if just_lost { 20.0 } else { 0.0 },
            ..moment(20.0 * peak * (0.5 + 0.5 * within), rtt_ms)
        }
    });
    builder::evidence(congestion, 30, full)
}

/// Peaks that lie far apart, as far as a Reno sender's do.
const FAR_APART: [f64; 10] = [1.0, 0.7, 1.3, 0.8, 1.1, 0.6, 1.2, 0.9, 0.75, 1.25];

/// As [`sawtooth_with_peaks`], with so many segments lost at each peak.
fn losing(lost: u64, mut evidence: Evidence) -> Evidence {
    let mut again = 0;
    for index in 1..evidence.sender_samples.len() {
        let state = |index: usize| evidence.sender_samples[index].tcp.congestion_state;
        again += if state(index) == Some(CongestionState::Recovery)
            && state(index) != state(index - 1)
        {
            lost
        } else {
            0
        };
        let tcp = &mut evidence.sender_samples[index].tcp;
        tcp.total_retrans = Some(SegCount::new(again));
        tcp.bytes_retrans = Some(ByteCount::new(again * builder::MSS));
    }
    evidence
}

#[test]
fn losses_of_needlessly_small_segments_have_the_device_that_makes_them_small_as_a_cause() {
    let mut losing = losing(8, sawtooth_with_peaks("reno", &FAR_APART, 1.07));
    for sample in &mut losing.sender_samples {
        sample.tcp.snd_mss = Some(ByteCount::new(240));
        sample.tcp.path_mtu = Some(ByteCount::new(1500));
    }
    let verdict = diagnose(&losing);
    assert_eq!(verdict.name(), "mtu/mss-clamped", "{verdict:#?}");
    let mut others = verdict.candidates.iter();
    assert!(others.any(|other| other.kind == Limit::Loss));
    losing.request.mss = Some(ByteCount::new(240));
    assert_ne!(diagnose(&losing).kind, Limit::Mtu, "as it was asked for");
}

#[test]
fn of_several_lost_at_once_a_queue_delays_what_it_holds_and_a_policer_does_not() {
    let named = |lost, wait| named(&losing(lost, sawtooth_with_peaks("reno", &FAR_APART, wait)));
    assert_eq!(named(8, 1.07), (Limit::Loss, Cause::ShallowQueue));
    assert_eq!(named(8, 1.03), (Limit::Loss, Cause::Policer));
    assert_eq!(named(1, 1.0), (Limit::Loss, Cause::Random));
}

#[test]
fn of_two_recoveries_the_lesser_shows_whether_many_are_lost_at_once() {
    let mut evidence = losing(4, sawtooth_with_peaks("reno", &[0.6, 1.3, 0.8, 0.7], 1.0));
    let steady = evidence.steady.as_mut().unwrap();
    (steady.ramp, steady.duration) = (Span::from_millis(3500), Span::from_millis(4000));
    assert_eq!(named(&evidence), (Limit::Loss, Cause::Policer));
    let two_in_one = |samples: &mut Vec<Sample>| {
        for sample in samples
            .iter_mut()
            .filter(|sample| sample.at >= Span::from_secs(6))
        {
            sample.tcp.total_retrans = sample
                .tcp
                .total_retrans
                .map(|again| again.saturating_sub(SegCount::new(3)));
        }
    };
    two_in_one(&mut evidence.sender_samples);
    assert_eq!(named(&evidence), (Limit::Loss, Cause::Random));
}

#[test]
fn windows_that_a_burst_at_first_and_few_losses_later_come_at_are_a_policers() {
    let peaks = [1.0, 1.05, 0.95, 1.0, 1.06, 0.97];
    let with_burst = |lost: u64| {
        let mut evidence = sawtooth_with_peaks("cubic", &peaks, 1.0);
        for sample in evidence
            .sender_samples
            .iter_mut()
            .filter(|sample| sample.at > Span::from_millis(2000))
        {
            sample.tcp.total_retrans = sample
                .tcp
                .total_retrans
                .map(|again| again + SegCount::new(lost));
        }
        evidence
    };
    assert_eq!(named(&with_burst(30)), (Limit::Loss, Cause::Policer));
    assert_eq!(named(&with_burst(0)), (Limit::Loss, Cause::Random));
}

#[test]
fn bbr_that_loses_more_than_its_probes_has_found_a_policer_though_some_round_trips_are_long() {
    let lossy = |share: f64, usual: f64| {
        let full = samples(10.0, 1, |t| {
            // A busy machine delays a fifth of them.
            let rtt = if (t * 4.0).fract() < 0.2 { 46.0 } else { usual };
            let idle = moment(47.0, rtt);
            let lost_per_second = share * 47e6 / 8.0 / builder::MSS as f64;
            Moment {
                cwnd: idle.in_flight * 2.0,
                lost_per_second,
                recovering: true,
                ..idle
            }
        });
        builder::evidence("bbr", 40, full)
    };
    assert_eq!(named(&lossy(0.1, 40.4)), (Limit::Loss, Cause::Policer));
    assert_ne!(named(&lossy(0.1, 45.0)).1, Cause::Policer, "a queue stands");
    assert_ne!(
        named(&lossy(0.03, 40.4)).1,
        Cause::Policer,
        "no more than its probes"
    );
}

/// Loss over 6 ms, of which a sample every 50 ms shows several recoveries as one: so many segments
/// in those samples that are `hit`, at windows as chance makes them.
fn lost_over_a_short_way(lost: f64, hit: impl Fn(u64) -> bool) -> Evidence {
    let course = samples(8.0, 1, |t| {
        let number = (t * 20.0).round() as u64;
        let window = 1.0 + 0.6 * ((number * 7) % 10) as f64 / 10.0;
        Moment {
            lost_per_second: if hit(number) { lost * 20.0 } else { 0.0 },
            ..moment(12.0 * window, 6.2)
        }
    });
    builder::evidence("cubic", 6, course)
}

#[test]
fn many_losses_between_two_samples_are_no_burst_if_there_are_as_many_between_most() {
    assert_eq!(
        named(&lost_over_a_short_way(4.0, |sample| sample % 4 > 0)),
        (Limit::Loss, Cause::Random)
    );
    assert_eq!(
        named(&lost_over_a_short_way(8.0, |sample| sample % 12 == 0)),
        (Limit::Loss, Cause::Policer)
    );
}

#[test]
fn packets_that_wait_long_before_losses_wait_behind_others_if_their_own_rate_is_low() {
    let lossy = |wait: f64| stated(losing(8, sawtooth_with_peaks("cubic", &[1.0; 8], wait)), 60);
    assert_eq!(named(&lossy(1.3)), (Limit::Capacity, Cause::Shared));
    assert_eq!(named(&lossy(1.07)), (Limit::Loss, Cause::ShallowQueue));
}
