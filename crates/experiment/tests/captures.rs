//! Verdicts on captures that were misjudged or misread once.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use fullpipe_experiment::{Interrupt, KnownFacts, judge_files};
use fullpipe_record::{CaptureReport, Limit, Verdict};
use fullpipe_trace::ExplainedTransfers;

fn judge(name: &str) -> (CaptureReport, Verdict) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../trace/tests/captures")
        .join(name)
        .with_extension("pcap.gz");
    let (known, never) = (KnownFacts::default(), AtomicBool::new(false));
    let explained = ExplainedTransfers::Largest(1);
    let report = judge_files(&path, None, explained, &known, Interrupt(&never)).unwrap();
    assert_eq!(
        (
            report.flows.len(),
            report.transfers.len(),
            report.unanswered
        ),
        (1, 1, 0),
        "{name}"
    );
    let verdict = report.explained_limit().unwrap().clone();
    (report, verdict)
}

/// Returns true if a verdict is of `limit`, or has it among its candidates.
fn may_be(verdict: &Verdict, limit: Limit) -> bool {
    verdict.kind == limit || verdict.candidates.iter().any(|one| one.kind == limit)
}

#[test]
fn four_packets_have_no_limit_of_rate() {
    let (_, verdict) = judge("dupack-four-packets");
    assert_eq!(verdict.kind, Limit::Unknown, "{verdict:?}");
}

#[test]
fn a_connection_that_is_kept_alive_has_nothing_to_send() {
    let (_, verdict) = judge("keepalive-idle");
    assert_eq!(verdict.name(), "sender-application/idle", "{verdict:?}");
}

#[test]
fn four_timeouts_of_a_minute_are_loss_and_no_slow_start() {
    let (_, verdict) = judge("rto-stalls");
    assert_eq!(verdict.kind, Limit::Loss, "{verdict:?}");
    assert!(!may_be(&verdict, Limit::CongestionWindow), "{verdict:?}");
}

#[test]
fn a_full_segment_that_was_acknowledged_disproves_a_black_hole() {
    let (_, verdict) = judge("slow-server-one-full-segment");
    let idle_or_unknown = [Limit::SenderApplication, Limit::Unknown];
    assert!(idle_or_unknown.contains(&verdict.kind), "{verdict:?}");
    assert!(!may_be(&verdict, Limit::Mtu), "{verdict:?}");
}

#[test]
fn options_that_were_cut_off_show_no_small_window() {
    let (_, verdict) = judge("snap68");
    assert_ne!(verdict.kind, Limit::Unknown, "{verdict:?}");
    assert!(!may_be(&verdict, Limit::ReceiveWindow), "{verdict:?}");
}

#[test]
fn windows_of_zero_show_a_slow_reader_under_any_scale() {
    let (report, verdict) = judge("zero-window-mid");
    let name = "receiver-application/slow-reader";
    assert_eq!(verdict.name(), name, "{verdict:?}");
    assert!(!may_be(&verdict, Limit::Mtu), "{verdict:?}");
    let zero = |window: fullpipe_record::AdvertisedWindow| window.zero;
    let mut ends = report.flows[0].ends.iter();
    assert!(ends.any(|end| end.window.map(zero) == Some(7)));
}

#[test]
fn tags_of_one_direction_change_no_verdict() {
    let names = ["vlan-none", "vlan-one-way", "vlan-two-ids"];
    let [none, others @ ..] = names.map(|name| judge(name).1);
    assert_ne!(none.kind, Limit::Unknown, "{none:?}");
    for other in others {
        assert_eq!(
            (other.name(), other.candidates),
            (none.name(), none.candidates.clone())
        );
    }
}

#[test]
fn frames_of_802_3_and_ends_that_open_together_have_a_verdict() {
    for name in ["llc-snap", "simultaneous-open"] {
        let (_, verdict) = judge(name);
        assert_ne!(verdict.kind, Limit::Unknown, "{name}: {verdict:?}");
    }
}
