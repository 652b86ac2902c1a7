//! Policers, short queues and full links that resemble another limit.

use fullpipe_diagnose::diagnose;
use fullpipe_record::{Cause, Evidence, Limit, RttStats};
use fullpipe_units::{BitRate, ByteCount, SegCount, Span};

use crate::builder::{self, Moment, moment, samples, sawtooth, stated};

fn named(evidence: &Evidence) -> (Limit, Cause) {
    let verdict = diagnose(evidence);
    (verdict.kind, verdict.cause)
}

/// A transfer that fills 400 Mbit/s over 55 ms, with a queue, for a second. Then it loses a third of a window, and
/// takes its window back `cuts` times; since then it grows, without a queue.
fn full_until_a_burst(cuts: u32) -> Evidence {
    let full = samples(8.0, 1, |t| {
        let cut = f64::from(cuts.min(((t - 1.0) / 0.1) as u32));
        match t {
            _ if t < 1.0 => Moment { ssthresh: Some(3e6), ..moment(390.0, 90.0) },
            _ if t < 2.0 => Moment {
                recovering: true,
                lost_per_second: 3000.0,
                ssthresh: Some(2e6 * 0.7_f64.powf(cut)),
                ..moment(150.0, 56.0)
            },
            _ => moment(2e6 * 0.7_f64.powf(f64::from(cuts)) * 8.0 / 55.8e3 * (1.0 + 0.02 * t), 55.8),
        }
    });
    stated(builder::evidence("cubic", 55, full), 415)
}

#[test]
fn a_policer_with_a_large_bucket_lets_the_link_be_full_first() {
    assert_eq!(named(&full_until_a_burst(4)), (Limit::Loss, Cause::Policer));
    assert_eq!(named(&full_until_a_burst(1)), (Limit::CongestionWindow, Cause::Recovering), "a queue overflowed");
}

#[test]
fn a_policer_shows_in_a_later_burst_where_a_queue_stood_before_the_first() {
    let burst_at = |later: f64| {
        let full = samples(8.0, 1, |t| match t {
            _ if t < 0.6 => Moment { ssthresh: None, ..moment(12.5, 200.0) },
            _ if t < 1.5 => Moment { recovering: true, lost_per_second: 400.0, ..moment(7.0, 150.0) },
            _ if (later..later + 0.1).contains(&t) => {
                Moment { recovering: true, lost_per_second: 250.0, ..moment(7.0, 73.5) }
            }
            _ => moment(6.0 + (t * 0.3).fract(), 73.5),
        });
        let mut evidence = stated(builder::evidence("reno", 73, full), 13);
        let steady = evidence.steady.as_mut().unwrap();
        (steady.ramp, steady.duration) = (Span::from_secs(2), Span::from_secs(6));
        evidence
    };
    assert_eq!(named(&burst_at(4.85)), (Limit::Loss, Cause::Policer));
    assert_ne!(named(&burst_at(20.0)).1, Cause::Policer, "one that never came");
}

#[test]
fn bbr_that_keeps_to_one_pace_without_a_queue_has_found_a_policer() {
    let paced = |probes: bool| {
        let half = samples(20.0, 1, |t| {
            let usual = moment(47.0, 40.4);
            let lost_per_second = if t < 7.0 { 350.0 } else { 0.0 };
            Moment { cwnd: usual.in_flight * 2.0, lost_per_second, ..usual }
        });
        let mut evidence = builder::evidence("bbr", 40, half);
        let steady = evidence.steady.as_mut().unwrap();
        (steady.ramp, steady.duration) = (Span::from_secs(8), Span::from_secs(12));
        for (index, sample) in evidence.sender_samples.iter_mut().enumerate() {
            let gain = if probes && index % 8 == 0 { 1.25 } else { 1.0 };
            sample.tcp.pacing_rate = Some(BitRate::from_mbps(48).scaled(gain));
        }
        evidence
    };
    assert_eq!(named(&paced(false)), (Limit::Loss, Cause::Policer));
    assert_eq!(named(&paced(true)), (Limit::Capacity, Cause::Link), "it looks for more and finds none");
}

/// A window that grows after an early loss, over round trips of `rtt_ms` where echoes of the idle path took 100 to
/// 104 ms.
fn grows_over(rtt_ms: f64) -> Evidence {
    let mut evidence = stated(sawtooth("reno", 10.0, &[1.2], 2.0, 0.3, 100.0), 200);
    let span = Span::from_secs_f64(rtt_ms / 1e3);
    for sample in &mut evidence.sender_samples {
        sample.tcp.rtt = Some(span);
    }
    let ms = Span::from_millis;
    evidence.idle_spread =
        Some(RttStats { count: 50, min: ms(100), median: ms(102), p90: ms(103), p99: ms(104), max: ms(104) });
    evidence.loaded_rtt = Some(span);
    evidence
}

#[test]
fn a_queue_that_never_empties_is_a_full_link_however_short_it_is() {
    assert_eq!(named(&grows_over(118.0)).0, Limit::Capacity);
    assert_eq!(named(&grows_over(104.5)), (Limit::CongestionWindow, Cause::Recovering), "no longer than idle");
}

#[test]
fn round_trips_that_grow_with_the_window_show_a_full_link_before_the_queue_is_long() {
    let grows = |with_queue: f64| {
        let full = samples(8.0, 1, |t| match t {
            _ if t < 1.0 => Moment { recovering: true, lost_per_second: 700.0, ..moment(40.0, 140.0) },
            _ => {
                let growth = 1.0 + 0.014 * t;
                let (queue, rate) = (growth.powf(with_queue), growth.powf(1.0 - with_queue));
                moment(58.0 * rate, 79.0 * queue)
            }
        });
        builder::evidence("reno", 78, full)
    };
    assert_eq!(named(&grows(1.0)), (Limit::Capacity, Cause::Link));
    assert_eq!(named(&grows(0.2)), (Limit::CongestionWindow, Cause::Recovering), "most of it speeds up the transfer");
}

#[test]
fn most_losses_at_the_largest_window_are_a_short_queues() {
    // Two of eight come before the window has grown back.
    let at_the_top = [5.0, 11.0, 17.0, 19.5, 25.5, 31.5, 33.5, 39.5];
    assert_eq!(named(&stated(sawtooth("cubic", 60.0, &at_the_top, 1.7, 0.7, 24.0), 1000)).0, Limit::Loss);
    let windows = sawtooth_with_peaks(&[1.0, 1.0, 0.7, 1.0, 1.0, 0.6, 1.0, 1.0]);
    assert_eq!(named(&windows), (Limit::Loss, Cause::ShallowQueue));
    let windows = sawtooth_with_peaks(&[1.0, 0.8, 0.7, 0.9, 1.0, 0.6, 0.85, 0.75]);
    assert_eq!(named(&windows), (Limit::Loss, Cause::Random));
}

/// Losses of one segment each two seconds over 30 ms, at these shares of 20 Mbit/s.
fn sawtooth_with_peaks(peaks: &[f64]) -> Evidence {
    let full = samples(2.0 * peaks.len() as f64, 1, |t| {
        let (tooth, within) = ((t / 2.0) as usize, (t / 2.0).fract());
        let peak = peaks[tooth.min(peaks.len() - 1)];
        let just_lost = within < 0.03 && tooth > 0;
        Moment {
            recovering: just_lost,
            lost_per_second: if just_lost { 20.0 } else { 0.0 },
            ..moment(20.0 * peak * (0.5 + 0.5 * within), 30.0)
        }
    });
    builder::evidence("reno", 30, full)
}

#[test]
fn several_lost_at_once_at_any_window_are_a_queue_of_a_few_packets() {
    let mut evidence = sawtooth_with_peaks(&[1.0, 0.7, 1.3, 0.8, 1.1, 0.6, 1.2, 0.9, 0.75, 1.25]);
    let mut again = 0;
    for pair in 1..evidence.sender_samples.len() {
        let lost = evidence.sender_samples[pair].tcp.congestion_state
            != evidence.sender_samples[pair - 1].tcp.congestion_state
            && pair % 40 < 3;
        again += if lost { 8 } else { 0 };
        evidence.sender_samples[pair].tcp.total_retrans = Some(SegCount::new(again));
        evidence.sender_samples[pair].tcp.bytes_retrans = Some(ByteCount::new(again * builder::MSS));
    }
    assert_eq!(named(&evidence), (Limit::Loss, Cause::ShallowQueue));
}
