//! Verdicts from captures: what packets show of the sender, next to what is in flight.

use fullpipe_diagnose::diagnose;
use fullpipe_record::{At, Basis, BurstRate, CaptureEvidence, Evidence, Sample, TcpInfo, Verdict, WindowEdit};
use fullpipe_units::{BitRate, ByteCount, Ratio};

use crate::builder::{Moment, evidence, moment, samples};

/// A sender whose data follows its acknowledgements, in bursts that are three times as fast as the whole.
fn seen(point: At, mbps: f64) -> CaptureEvidence {
    let burst = |factor: f64, share| {
        Some(BurstRate { rate: BitRate::from_bps_f64(mbps * factor * 1e6), share: Ratio::new(share) })
    };
    CaptureEvidence {
        point: Some(point),
        by_echo: point != At::Sender,
        clocked: Some(Ratio::new(0.95)),
        idle: Ratio::ZERO,
        train: ByteCount::from_kib(10),
        arrivals: burst(3.0, 0.3),
        departures: burst(3.0, 0.3),
        acknowledgements: burst(3.0, 0.3),
        partial: Ratio::ZERO,
        lost_before: 0,
        closed: true,
        sender_offers_scale: Some(true),
        receiver_offers_scale: Some(true),
        window_edit: None,
    }
}

/// Leaves of a sample what a capture gives: no congestion window, no buffer and no clock of the kernel.
fn captured(sample: &mut Sample) {
    let tcp = sample.tcp.clone();
    sample.memory = None;
    sample.tcp = TcpInfo {
        congestion_state: tcp.congestion_state,
        timestamps: tcp.timestamps,
        sack: tcp.sack,
        window_scaling: tcp.window_scaling,
        snd_wscale: tcp.snd_wscale,
        snd_mss: tcp.snd_mss,
        unacked: tcp.unacked,
        rtt: tcp.rtt,
        min_rtt: tcp.min_rtt,
        total_retrans: tcp.total_retrans,
        data_segs_out: tcp.data_segs_out,
        bytes_sent: tcp.bytes_sent,
        bytes_retrans: tcp.bytes_retrans,
        bytes_acked: tcp.bytes_acked,
        snd_wnd: tcp.snd_wnd,
        ..TcpInfo::default()
    };
}

/// The verdict on a transfer over 50 ms, of which a capture shows `seen`.
fn verdict(at: impl Fn(f64) -> Moment, seen: CaptureEvidence) -> Verdict {
    let mut samples = samples(10.0, 1, at);
    samples.iter_mut().for_each(captured);
    let hosts = evidence("cubic", 50, samples);
    let evidence = Evidence {
        request: fullpipe_record::Request { congestion: None, ..hosts.request.clone() },
        sender: None,
        receiver: None,
        sender_sockets: Vec::new(),
        capture: Some(seen),
        ..hosts
    };
    let verdict = diagnose(&evidence);
    assert_eq!(verdict.basis, Basis::Capture);
    assert!(!verdict.sentence.contains("unknown amount"), "{}", verdict.sentence);
    verdict
}

/// The same amount in flight throughout, with room in the window.
fn flat(_: f64) -> Moment {
    moment(20.0, 50.0)
}

fn candidates(verdict: &Verdict) -> Vec<&str> {
    verdict.candidates.iter().map(|candidate| candidate.name()).collect()
}

#[test]
fn what_follows_acknowledgements_and_never_grows_is_a_send_buffer() {
    let found = verdict(flat, seen(At::Sender, 20.0));
    assert_eq!(candidates(&found), ["send-buffer/so-sndbuf", "send-buffer/tcp-wmem-max"]);
    let from_afar = verdict(flat, seen(At::Receiver, 20.0));
    let which = ["send-buffer/tcp-wmem-max", "sender-application/idle", "pacing/qdisc"];
    assert_eq!(candidates(&from_afar), which);
}

#[test]
fn trains_at_the_rate_of_the_whole_are_a_pace_or_a_program_with_parts_of_segments() {
    let even = BurstRate { rate: BitRate::from_mbps(20), share: Ratio::new(0.9) };
    let paced = CaptureEvidence { departures: Some(even), arrivals: Some(even), ..seen(At::Sender, 20.0) };
    let found = verdict(flat, CaptureEvidence { clocked: Some(Ratio::ZERO), ..paced });
    assert_eq!(candidates(&found), ["pacing/max-pacing-rate", "pacing/qdisc"]);
    let found = verdict(flat, CaptureEvidence { partial: Ratio::new(0.5), ..paced });
    assert_eq!(found.name(), "sender-application/rate-limited");
}

#[test]
fn little_in_flight_while_nothing_is_lost_is_a_slow_program() {
    let found = verdict(flat, CaptureEvidence { idle: Ratio::new(0.6), ..seen(At::Receiver, 20.0) });
    assert_eq!(found.name(), "sender-application/idle");
    let own_times = CaptureEvidence { clocked: Some(Ratio::new(0.05)), ..seen(At::Sender, 20.0) };
    assert_eq!(verdict(flat, own_times).name(), "sender-application/idle");
}

#[test]
fn losses_that_a_capture_at_the_sender_never_saw_leave_are_of_its_own_queue() {
    let lossy = |t: f64| {
        let again = (t * 2.0).fract() < 0.1;
        Moment {
            lost_per_second: if again { 40.0 } else { 0.0 },
            recovering: again,
            ..moment(20.0 - t.fract() * 8.0, 50.0)
        }
    };
    let own = CaptureEvidence { lost_before: 40, ..seen(At::Sender, 20.0) };
    assert_eq!(verdict(lossy, own).name(), "capacity/host-queue");
    let elsewhere = CaptureEvidence { lost_before: 40, ..seen(At::Receiver, 20.0) };
    assert_ne!(verdict(lossy, elsewhere).name(), "capacity/host-queue");
}

#[test]
fn a_full_window_is_named_with_what_may_have_made_it_so() {
    let full = |t: f64| {
        let grown = if t < 0.2 { 0.5 } else { 1.0 };
        let size = 125_000.0 * grown;
        Moment { in_flight: size, window: size, ..moment(20.0 * grown, 50.0) }
    };
    let found = verdict(full, seen(At::Receiver, 20.0));
    assert_eq!(candidates(&found), ["receive-window/tcp-rmem-max", "receive-window/so-rcvbuf"]);
    let fixed = |_: f64| Moment { in_flight: 125_000.0, window: 125_000.0, ..moment(20.0, 50.0) };
    let found = verdict(fixed, seen(At::Sender, 20.0));
    assert_eq!(candidates(&found)[2], "receiver-application/slow-reader");
    let unscaled = CaptureEvidence { receiver_offers_scale: Some(false), ..seen(At::Sender, 20.0) };
    let found = verdict(fixed, unscaled);
    assert_eq!(candidates(&found), ["receive-window/no-window-scaling", "receive-window/window-scale-stripped"]);
    let compared = |edit| verdict(fixed, CaptureEvidence { window_edit: Some(edit), ..unscaled });
    for (edit, name) in [
        (WindowEdit::Nothing, "receive-window/no-window-scaling"),
        (WindowEdit::ScaleStripped, "receive-window/window-scale-stripped"),
        (WindowEdit::ScaleRewritten, "receive-window/window-scale-rewritten"),
        (WindowEdit::Lowered, "receive-window/window-clamped"),
    ] {
        assert_eq!((compared(edit).name(), compared(edit).candidates.len()), (name, 0));
    }
}

#[test]
fn from_the_receiver_a_full_link_may_be_a_shaper_at_the_sender() {
    let queued = |_: f64| moment(20.0, 90.0);
    // The link gives its rate to all that passes it.
    let at = |point| seen(point, 20.0 / 3.0);
    assert_eq!(candidates(&verdict(queued, at(At::Receiver))), ["capacity/link", "pacing/qdisc"]);
    let found = verdict(queued, at(At::Sender));
    assert_eq!((found.name(), candidates(&found).len()), ("capacity/link", 0));
}

#[test]
fn hardly_any_data_at_the_receiver_is_a_black_hole_or_a_silent_program() {
    let nothing = |_: f64| Moment { in_flight: 0.0, ..moment(0.001, 50.0) };
    let open = CaptureEvidence { closed: false, ..seen(At::Receiver, 0.001) };
    assert_eq!(candidates(&verdict(nothing, open)), ["mtu/black-hole", "sender-application/idle"]);
}
