//! When a test is sure of its result before its time is over.

use fullpipe_diagnose::sure_result;
use fullpipe_record::{Evidence, Limit, SureBound};
use fullpipe_units::{BitRate, Ratio, Span};

use crate::builder::{self, MIB, Moment, moment, receive_window, samples};

/// Returns the first of the moments, a fifth of a second apart, at which the result is sure.
fn first_sure(evidence: &Evidence, bound: SureBound) -> Option<Span> {
    let looks = (1..50).map(|look| Span::from_millis(200) * look);
    looks
        .into_iter()
        .find(|at| sure_result(&evidence.up_to(*at), bound).is_some())
}

#[test]
fn a_constant_window_is_sure_soon_after_the_ramp() {
    let evidence = receive_window("cubic", 3.0 * MIB, 1);
    let at = first_sure(&evidence, SureBound::default()).unwrap();
    assert!(at >= Span::from_secs(2) && at < Span::from_secs(4), "{at}");
    let result = sure_result(&evidence.up_to(at), SureBound::default()).unwrap();
    assert_eq!(result.verdict.kind, Limit::ReceiveWindow);
    let whole = evidence.steady.unwrap().rate;
    assert!(
        result.rate.low <= whole && whole <= result.rate.high,
        "{result:?}"
    );
}

#[test]
fn a_stricter_bound_takes_longer_or_is_never_reached() {
    let evidence = receive_window("cubic", 3.0 * MIB, 1);
    let sure_to = |confidence, rate| {
        let bound = SureBound {
            confidence: Ratio::new(confidence),
            rate: Ratio::new(rate),
        };
        first_sure(&evidence, bound)
    };
    assert_eq!(sure_to(0.99, 0.05), None);
    assert!(sure_to(0.9, 0.05) <= sure_to(0.9, 0.01));
}

#[test]
fn a_rate_that_falls_all_the_time_is_not_sure() {
    let falling = samples(10.0, 1, |t| moment(100.0 - 8.0 * t, 20.0));
    let evidence = builder::evidence("cubic", 20, falling);
    assert_eq!(first_sure(&evidence, SureBound::default()), None);
}

#[test]
fn data_that_stands_still_may_go_on_any_moment() {
    let stopped = samples(10.0, 1, |t| Moment {
        mbps: if t < 1.0 { 50.0 } else { 0.0 },
        ..moment(50.0, 20.0)
    });
    let evidence = builder::evidence("cubic", 20, stopped);
    assert_eq!(
        evidence.up_to(Span::from_secs(6)).steady.unwrap().rate,
        BitRate::ZERO
    );
    assert_eq!(first_sure(&evidence, SureBound::default()), None);
}

#[test]
fn two_teeth_of_a_sawtooth_must_have_passed_where_losses_would_count() {
    // Windows of 81 and of 813 segments: 4 900 and 496 000 segments of them, at 8 100 a second.
    let sure_at = |congestion, rtt| {
        let evidence = builder::capacity(congestion, rtt, 1);
        first_sure(&evidence, SureBound::default())
    };
    assert!(sure_at("cubic", 10.0) < Some(Span::from_secs(3)));
    assert!(sure_at("cubic", 10.0).is_some());
    assert_eq!(sure_at("cubic", 100.0), None);
    assert!(sure_at("bbr", 100.0).is_some());
}
