//! What was over before the judged part, and times in which BBR looks at the idle path, as the
//! receiving end alone sees them.

use fullpipe_diagnose::diagnose;
use fullpipe_record::{Cause, Evidence, Limit, Request, Steady};
use fullpipe_units::{BitRate, ByteCount, SegCount, Span};

use crate::builder::{MSS, stated};
use crate::receiving::{changing, in_bursts_each, named};

fn asked_for(congestion: &str, evidence: Evidence) -> Evidence {
    Evidence {
        request: Request {
            congestion: Some(congestion.to_owned()),
            ..evidence.request.clone()
        },
        ..evidence
    }
}

#[test]
fn losses_that_are_long_over_leave_a_program_the_limit_and_a_window_that_grows_a_policer() {
    let overshoots = |later: fn(f64) -> f64| {
        let course = move |at| {
            if at < 2.5 {
                (150.0, 40)
            } else {
                (later(at), 0)
            }
        };
        named(&asked_for("reno", changing(course)))
    };
    assert_eq!(
        overshoots(|_| 60.0),
        (Limit::SenderApplication, Cause::RateLimited)
    );
    assert_eq!(
        overshoots(|at| 50.0 + 2.0 * at),
        (Limit::Loss, Cause::Policer)
    );
}

#[test]
fn even_data_that_came_far_faster_before_is_behind_no_full_link() {
    let slightly_late = |mbps: f64| {
        let mut course = changing(move |at| (if at < 0.5 { mbps } else { 60.0 }, 0));
        for sample in &mut course.receiver_samples {
            sample.tcp.rcv_rtt = Some(Span::from_millis(106));
        }
        named(&course).0
    };
    assert_eq!(slightly_late(65.0), Limit::Capacity);
    assert_eq!(slightly_late(120.0), Limit::SenderApplication);
}

#[test]
fn losses_at_one_rate_without_a_queue_of_others_are_of_a_policer() {
    let at_one_rate = |rtt_ms| {
        let sawtooth = |at: f64| {
            let since_loss = at % 1.0;
            (3.0 + 2.0 * since_loss, 20 * u64::from(since_loss > 0.92))
        };
        let mut lossy = asked_for("reno", changing(sawtooth));
        for sample in &mut lossy.receiver_samples {
            sample.tcp.rcv_rtt = Some(Span::from_millis(rtt_ms));
        }
        named(&stated(lossy, 12))
    };
    assert_eq!(at_one_rate(101), (Limit::Loss, Cause::Policer));
    assert_eq!(at_one_rate(104), (Limit::Capacity, Cause::Shared));
}

#[test]
fn a_pace_under_bbr_is_even_though_it_looks_at_the_idle_path_once() {
    let stops_once = |congestion| {
        let course = |at| (if (7.0..7.4).contains(&at) { 0.0 } else { 60.0 }, 0);
        named(&asked_for(congestion, changing(course)))
    };
    assert_eq!(stops_once("bbr"), (Limit::Pacing, Cause::Qdisc));
    assert_ne!(stops_once("cubic").0, Limit::Pacing);
}

#[test]
fn a_rate_that_falls_for_good_and_is_cut_there_is_an_allowance_or_a_policer() {
    let falls = changing(|at| {
        let since_loss = at % 1.0;
        if at < 4.0 {
            (100.0, 0)
        } else {
            (40.0 + 8.0 * since_loss, 200 * u64::from(since_loss > 0.92))
        }
    });
    let verdict = diagnose(&asked_for("reno", falls));
    let all: Vec<&str> = verdict.candidates.iter().map(|one| one.name()).collect();
    assert_eq!(all, ["capacity/allowance", "loss/policer"], "{verdict:#?}");
    assert!(
        verdict.sentence.contains("An allowance was used up"),
        "{}",
        verdict.sentence
    );
}

#[test]
fn a_few_segments_each_round_trip_after_a_larger_first_window_are_of_another_scale() {
    let two_a_round_trip = |first: u64| {
        let mut trickle = in_bursts_each(Span::from_millis(71), 2 * MSS);
        for sample in trickle.receiver_samples.iter_mut().skip(2) {
            let tcp = &mut sample.tcp;
            tcp.bytes_received = tcp
                .bytes_received
                .map(|all| all + ByteCount::new(first * MSS));
            tcp.data_segs_in = tcp.data_segs_in.map(|all| SegCount::new(all.get() + first));
        }
        named(&trickle)
    };
    assert_eq!(
        two_a_round_trip(10),
        (Limit::ReceiveWindow, Cause::WindowScaleRewritten)
    );
    assert_eq!(two_a_round_trip(0).0, Limit::SendBuffer);
}

/// Returns a transfer of which 60 Mbit/s of packets come for two seconds, `late` of a hundred out of
/// order in the middle of them, with round trips of `rtt_ms`, and `later` Mbit/s after that.
fn with_first_packets(late: u64, rtt_ms: u64, later: f64) -> Evidence {
    let first = 60.0 * 1e6 / 8.0 / MSS as f64 / 100.0;
    let mut course = changing(move |at| (if at < 2.0 { 60.0 } else { later }, 0));
    for sample in &mut course.receiver_samples {
        let at = sample.at.as_secs_f64();
        let lossy = first * (at.clamp(0.5, 1.5) - 0.5);
        sample.tcp.out_of_order_in = Some(SegCount::new(lossy as u64 * late));
        if (0.3..2.0).contains(&at) {
            sample.tcp.rcv_rtt = Some(Span::from_millis(rtt_ms));
        }
    }
    course.steady = course.steady.map(|steady| Steady {
        ramp: Span::from_secs(2),
        duration: Span::from_secs(8),
        rate: BitRate::from_bps((later * 1e6) as u64),
        ..steady
    });
    course
}

/// Both senders were taken for programs that pause: which congestion control a browser's host has is
/// not known here.
#[test]
fn even_data_that_once_filled_a_queue_or_a_policer_is_behind_that() {
    let link = (Limit::Capacity, Cause::Link);
    assert_eq!(named(&with_first_packets(10, 250, 60.0)), link);
    // Nothing overflowed, or the path passed clearly more.
    assert_ne!(named(&with_first_packets(0, 250, 60.0)), link);
    assert_ne!(named(&with_first_packets(10, 250, 45.0)), link);
    let policer = (Limit::Loss, Cause::Policer);
    assert_eq!(named(&with_first_packets(90, 101, 58.0)), policer);
    assert_ne!(named(&with_first_packets(30, 101, 58.0)), policer);
    assert_ne!(named(&with_first_packets(90, 101, 45.0)), policer);
}
