use fullpipe_diagnose::{diagnose, find_remedies};
use fullpipe_record::{
    Buffer, CongestionState, Evidence, Limit, Request, Sample, SocketMemory, Steady, TcpInfo,
    find_steady,
};
use fullpipe_units::{BitRate, ByteCount, SegCount, Span};
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;

use crate::builder;

/// Small enough to meet each other's thresholds, and at times as large as the field is.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![3 => 0_u64..10, 6 => 0_u64..8_000_000, 1 => any::<u64>()]
}

fn bytes() -> impl Strategy<Value = Option<ByteCount>> {
    of(number().prop_map(ByteCount::new))
}

fn segments() -> impl Strategy<Value = Option<SegCount>> {
    of(prop_oneof![5 => 0_u64..5000, 1 => any::<u64>()].prop_map(SegCount::new))
}

fn span() -> impl Strategy<Value = Option<Span>> {
    of(prop_oneof![5 => 0_u64..20_000_000_000, 1 => any::<u64>()].prop_map(Span::from_nanos))
}

prop_compose! {
    fn tcp()(
        state in prop::sample::select(vec![
            None, Some(CongestionState::Open), Some(CongestionState::Recovery), Some(CongestionState::Loss),
        ]),
        (window_scaling, rcv_wscale) in (any::<Option<bool>>(), any::<Option<u8>>()),
        app_limited in any::<Option<bool>>(),
        (unacked, sacked, lost, retrans) in (segments(), segments(), segments(), segments()),
        (cwnd, ssthresh, total_retrans, data_segs_out) in (segments(), segments(), segments(), segments()),
        dsack_dups in segments(),
        (snd_mss, bytes_acked, not_sent, bytes_sent) in (bytes(), bytes(), bytes(), bytes()),
        (bytes_retrans, snd_wnd, rcv_wnd) in (bytes(), bytes(), bytes()),
        (rtt, min_rtt, busy, rwnd_limited, sndbuf_limited) in (span(), span(), span(), span(), span()),
    ) -> TcpInfo {
        TcpInfo {
            congestion_state: state, window_scaling, rcv_wscale, app_limited, unacked, sacked, lost, retrans, cwnd,
            ssthresh, total_retrans, data_segs_out, dsack_dups, snd_mss, bytes_acked, not_sent, bytes_sent,
            bytes_retrans, snd_wnd, rcv_wnd, rtt, min_rtt, busy, rwnd_limited, sndbuf_limited, ..TcpInfo::default()
        }
    }
}

prop_compose! {
    fn sample()(
        at in prop_oneof![9 => 0_u64..20_000_000_000, 1 => any::<u64>()],
        stream in 0_u16..4,
        written in number(),
        tcp in tcp(),
        memory in of((number(), number())),
    ) -> Sample {
        let memory = memory.map(|(sndbuf, queued)| SocketMemory {
            sndbuf: ByteCount::new(sndbuf), wmem_queued: ByteCount::new(queued), ..SocketMemory::default()
        });
        Sample { at: Span::from_nanos(at), stream, bytes: ByteCount::new(written), tcp, memory }
    }
}

prop_compose! {
    fn any_evidence()(
        sender_samples in vec(sample(), 0..40),
        receiver_samples in vec(sample(), 0..10),
        congestion in prop::sample::select(vec!["cubic", "reno", "bbr", "htcp"]),
        buffer in prop_oneof![
            Just(Buffer::Automatic),
            number().prop_map(|size| Buffer::Request(ByteCount::new(size))),
            number().prop_map(|size| Buffer::Window(ByteCount::new(size))),
        ],
        (streams, known, split) in (any::<u16>(), any::<(bool, bool)>(), any::<bool>()),
        (idle_rtt, loaded_rtt, ramp, duration) in (span(), span(), span(), span()),
        (bandwidth, rate) in (of(number().prop_map(BitRate::from_bps)), number()),
    ) -> Evidence {
        let made_up = ramp.zip(duration).map(|(ramp, duration)| Steady {
            ramp, duration, rate: BitRate::from_bps(rate), ramp_rate: BitRate::ZERO,
        });
        let ended_at = Span::from_secs(20);
        Evidence {
            request: Request { streams, buffer, congestion: Some(congestion.to_owned()), ..Request::default() },
            sender: known.0.then(builder::host),
            receiver: known.1.then(builder::host),
            sender_sockets: vec![],
            steady: if split { find_steady(&sender_samples, idle_rtt, ended_at) } else { made_up },
            sender_samples, receiver_samples, idle_rtt, loaded_rtt, bandwidth,
            ..builder::evidence(congestion, 100, vec![])
        }
    }
}

/// Scenes of every limit, with some fields forgotten and some time cut away.
fn mutilated(
    scene: usize,
    forgotten: u16,
    from: usize,
    to: usize,
    bandwidth: Option<u64>,
) -> Evidence {
    let scenes = [
        builder::receive_window("bbr", 3e6, 2),
        builder::send_buffer("cubic", 4e6, builder::Writes::Sleeping),
        builder::capacity("cubic", 20.0, 3),
        builder::capacity("bbr", 20.0, 1),
        builder::sawtooth("reno", 20.0, &[3.0, 4.0, 11.0, 15.0], 2.0, 0.5, 30.0),
        builder::slow_reader("cubic"),
        builder::trickle("bbr"),
    ];
    let mut evidence = scenes[scene % scenes.len()].clone();
    let count = evidence.sender_samples.len();
    evidence.sender_samples = evidence.sender_samples.split_off(from.min(count));
    evidence.sender_samples.truncate(to);
    evidence.bandwidth = bandwidth.map(BitRate::from_mbps);
    let forget = |bit: u16| forgotten & (1 << bit) != 0;
    for sample in &mut evidence.sender_samples {
        let tcp = &mut sample.tcp;
        let sizes = [
            (&mut tcp.snd_wnd, 0),
            (&mut tcp.not_sent, 1),
            (&mut tcp.bytes_acked, 2),
            (&mut tcp.snd_mss, 3),
        ];
        sizes
            .into_iter()
            .filter(|(_, bit)| forget(*bit))
            .for_each(|(size, _)| *size = None);
        let counts = [
            (&mut tcp.cwnd, 4),
            (&mut tcp.unacked, 5),
            (&mut tcp.total_retrans, 6),
            (&mut tcp.data_segs_out, 7),
            (&mut tcp.ssthresh, 8),
        ];
        counts
            .into_iter()
            .filter(|(_, bit)| forget(*bit))
            .for_each(|(count, _)| *count = None);
        let spans = [
            (&mut tcp.rtt, 9),
            (&mut tcp.busy, 10),
            (&mut tcp.rwnd_limited, 11),
        ];
        spans
            .into_iter()
            .filter(|(_, bit)| forget(*bit))
            .for_each(|(span, _)| *span = None);
        sample.memory = sample.memory.filter(|_| !forget(12));
    }
    evidence
}

fn assert_of_the_table(evidence: &Evidence) -> Result<(), TestCaseError> {
    let verdict = diagnose(evidence);
    prop_assert!(verdict.legal_verdict().is_some(), "{verdict:#?}");
    prop_assert!((0.0..=1.0).contains(&verdict.share.get()), "{verdict:#?}");
    prop_assert!(verdict.sentence.ends_with('.'), "{verdict:#?}");
    prop_assert_eq!(
        verdict.kind == Limit::Unknown,
        verdict.evidence.contains_key("missing")
    );
    for remedy in find_remedies(evidence, &verdict) {
        let in_order = remedy.predicted.is_none_or(|rate| {
            rate.low <= rate.bits_per_second && rate.bits_per_second <= rate.high
        });
        prop_assert!(in_order, "{remedy:#?}");
    }
    Ok(())
}

proptest! {
    #[test]
    fn any_evidence_gives_a_verdict_of_the_table(evidence in any_evidence()) {
        assert_of_the_table(&evidence)?;
    }

    #[test]
    fn what_is_left_of_a_transfer_gives_a_verdict_of_the_table(
        scene in 0_usize..7, forgotten: u16, from in 0_usize..400, to in 0_usize..400, mbps in of(0_u64..2000),
    ) {
        assert_of_the_table(&mutilated(scene, forgotten, from, to, mbps))?;
    }
}
