//! Kernels and peers that report less.

use fullpipe_diagnose::diagnose;
use fullpipe_record::{At, Cause, Evidence, Limit, Sample, TcpInfo};
use fullpipe_units::ByteCount;

use crate::builder::{
    self, MIB, Writes, asked, capacity, idle, receive_window, send_buffer, trickle, without,
};

/// Fields that Linux before 4.19, 4.10, 4.9, 4.6 and 4.1 does not report, each on top of the one
/// before.
fn as_before(evidence: &Evidence, (major, minor): (u16, u16)) -> Evidence {
    without(evidence.clone(), |sample| {
        let tcp = &mut sample.tcp;
        let version = (major, minor);
        if version < (5, 4) {
            tcp.snd_wnd = None;
        }
        if version < (4, 19) {
            (tcp.bytes_sent, tcp.bytes_retrans, tcp.dsack_dups) = (None, None, None);
        }
        if version < (4, 10) {
            (tcp.busy, tcp.rwnd_limited, tcp.sndbuf_limited) = (None, None, None);
        }
        if version < (4, 9) {
            (tcp.app_limited, tcp.delivery_rate) = (None, None);
        }
        if version < (4, 6) {
            (tcp.not_sent, tcp.min_rtt, tcp.data_segs_out) = (None, None, None);
        }
        if version < (4, 1) {
            tcp.bytes_acked = None;
        }
    })
}

#[test]
fn older_kernels_still_show_their_limit() {
    for version in [
        (6, 18),
        (5, 4),
        (5, 3),
        (4, 18),
        (4, 9),
        (4, 8),
        (4, 5),
        (3, 15),
    ] {
        for (evidence, kind) in [
            (
                send_buffer("cubic", 4.0 * MIB, Writes::Sleeping),
                Limit::SendBuffer,
            ),
            (
                send_buffer("cubic", 4.0 * MIB, Writes::Retrying),
                Limit::SendBuffer,
            ),
            (capacity("cubic", 20.0, 1), Limit::Capacity),
            (idle("cubic"), Limit::SenderApplication),
            (trickle("cubic"), Limit::SenderApplication),
        ] {
            let verdict = diagnose(&as_before(&evidence, version));
            assert_eq!(
                verdict.kind, kind,
                "as by Linux before {version:?}: {verdict:#?}"
            );
        }
    }
}

#[test]
fn without_the_window_the_clock_and_waiting_data_show_it() {
    for congestion in ["cubic", "bbr"] {
        let verdict = diagnose(&as_before(
            &receive_window(congestion, 3.0 * MIB, 1),
            (5, 3),
        ));
        assert_eq!(
            (verdict.kind, verdict.at),
            (Limit::ReceiveWindow, At::Receiver),
            "{verdict:#?}"
        );
        assert!(!verdict.ceilings.contains_key(&Limit::ReceiveWindow));
    }
}

#[test]
fn without_the_sockets_memory_the_settings_stand_in() {
    let mut evidence = without(
        send_buffer("cubic", 4.0 * MIB, Writes::Retrying),
        |sample| sample.memory = None,
    );
    assert_eq!(diagnose(&evidence).kind, Limit::SendBuffer);
    // Read back from the socket where the program fixed it.
    evidence = without(send_buffer("cubic", MIB, Writes::Retrying), |sample| {
        sample.memory = None;
    });
    evidence = asked(evidence, 1 << 19);
    evidence.sender_sockets[0].sndbuf = ByteCount::from_mib(1);
    let verdict = diagnose(&evidence);
    assert_eq!(
        (verdict.kind, verdict.cause),
        (Limit::SendBuffer, Cause::SoSndbuf),
        "{verdict:#?}"
    );
}

#[test]
fn without_memory_and_settings_a_small_buffer_cannot_be_distinguished_from_a_slow_program() {
    let mut evidence = without(
        send_buffer("cubic", 4.0 * MIB, Writes::Retrying),
        |sample| sample.memory = None,
    );
    evidence.sender = None;
    let verdict = diagnose(&evidence);
    assert_eq!(
        (verdict.kind, verdict.cause, verdict.at),
        (Limit::Unknown, Cause::EvidenceMissing, At::None)
    );
    assert_eq!(verdict.evidence["missing"], "the send buffer (SO_MEMINFO)");
    assert!(
        verdict.sentence.contains("the send buffer (SO_MEMINFO)"),
        "{}",
        verdict.sentence
    );
}

#[test]
fn without_samples_the_verdict_says_so() {
    let evidence = builder::evidence("cubic", 100, vec![]);
    let verdict = diagnose(&evidence);
    assert_eq!(
        (verdict.kind, verdict.cause, verdict.at),
        (Limit::Unknown, Cause::EvidenceMissing, At::None)
    );
    assert_eq!(verdict.evidence["missing"], "samples of the sending end");
    assert!(verdict.ceilings.is_empty());
}

#[test]
fn samples_that_show_nothing_name_the_missing_figures() {
    let blank = |sample: &mut Sample| {
        sample.tcp = TcpInfo::default();
        sample.memory = None;
    };
    let mut evidence = without(capacity("cubic", 20.0, 1), blank);
    evidence.steady = None;
    let verdict = diagnose(&evidence);
    assert_eq!(verdict.kind, Limit::Unknown);
    for field in [
        "tcpi_unacked",
        "tcpi_snd_cwnd",
        "tcpi_snd_wnd",
        "tcpi_notsent_bytes",
    ] {
        assert!(
            verdict.evidence["missing"].contains(field),
            "{field} in {verdict:#?}"
        );
    }
}
