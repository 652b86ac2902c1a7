//! No document is unboundedly large.

use fullpipe_record::{
    Content, CpuSample, CpuTime, Document, EndReport, HostSettings, Interval, Measurement, Peer,
    Request, RttReport, Sample, SocketMemory, SocketReadback, StreamInterval, StreamSummary,
    Summary, TcpInfo, Validity,
};
use fullpipe_units::{BitRate, ByteCount, SegCount, Span};
use serde_json::{Value, json};

const STREAMS: u16 = 90;
const SECONDS: u64 = 60;

/// Every field set, as a new kernel does.
fn tcp() -> TcpInfo {
    let mut fields = serde_json::to_value(TcpInfo::default()).unwrap();
    let names: Vec<String> = fields.as_object().unwrap().keys().cloned().collect();
    for name in names {
        let values = [
            json!(0.173_456_789),
            json!(3_000_123_456_u64),
            json!(77),
            json!(true),
            json!("recovery"),
        ];
        let takes = |value: &Value| {
            let mut tried = fields.clone();
            tried[&name] = value.clone();
            serde_json::from_value::<TcpInfo>(tried).is_ok()
        };
        fields[&name] = values
            .into_iter()
            .find(takes)
            .unwrap_or_else(|| panic!("{name} takes none of the values"));
    }
    serde_json::from_value(fields).unwrap()
}

fn end(tcp: &TcpInfo) -> EndReport {
    let sample = |at: u64, stream| Sample {
        at: Span::from_millis(at * 50),
        stream,
        bytes: ByteCount::new(3_000_123_456),
        tcp: tcp.clone(),
        memory: Some(SocketMemory {
            sndbuf: ByteCount::from_mib(4),
            ..SocketMemory::default()
        }),
    };
    let socket = |stream| SocketReadback {
        stream,
        sndbuf: ByteCount::from_mib(4),
        rcvbuf: ByteCount::from_mib(4),
        congestion: "cubic".to_owned(),
        local: "192.0.2.100:50000".to_owned(),
        remote: "192.0.2.200:5201".to_owned(),
        handshake: None,
        syn_quotes: Vec::new(),
    };
    let core = CpuTime {
        user: Span::from_nanos(1_234_567_891),
        ..CpuTime::default()
    };
    EndReport {
        settings: Some(HostSettings::of_linux_6_18()),
        sockets: (0..STREAMS).map(socket).collect(),
        samples: (0..SECONDS * 20)
            .flat_map(|at| (0..STREAMS).map(move |stream| (at, stream)))
            .map(|(at, stream)| sample(at, stream))
            .collect(),
        processors: vec![
            CpuSample {
                cores: vec![core; 8],
                ..CpuSample::default()
            };
            600
        ],
        ..EndReport::default()
    }
}

fn interval(second: u64, tcp: &TcpInfo) -> Interval {
    let (from, to) = (Span::from_secs(second), Span::from_secs(second + 1));
    let bytes = ByteCount::new(3_000_123_456);
    let stream = |stream| StreamInterval {
        stream,
        bytes,
        datagrams_sent: None,
        datagrams: None,
        retransmits: Some(SegCount::new(12)),
        tcp: Some(Box::new(tcp.clone())),
    };
    Interval {
        direction: fullpipe_record::Direction::Upload,
        from,
        to,
        bytes,
        rate: BitRate::from_mbps(9_876),
        retransmits: Some(SegCount::new(12)),
        rtt: tcp.rtt,
        echo_rtt: tcp.rtt,
        cwnd: Some(bytes),
        omitted: false,
        datagrams_sent: None,
        datagrams: None,
        streams: (0..STREAMS).map(stream).collect(),
    }
}

#[test]
fn ninety_streams_of_a_minute_fit_into_ten_megabytes() {
    let tcp = tcp();
    let bytes = ByteCount::new(3_000_123_456);
    let stream = |stream| StreamSummary {
        stream,
        direction: fullpipe_record::Direction::Upload,
        sent: bytes,
        received: bytes,
        retransmits: None,
        datagrams_sent: None,
        datagrams: None,
    };
    let measurement = Measurement {
        id: String::new(),
        started: String::new(),
        peer: Peer {
            host: String::new(),
            address: String::new(),
            speaks_fullpipe: true,
        },
        request: Request {
            streams: STREAMS,
            ..Request::default()
        },
        resolved: None,
        run: None,
        setup: None,
        local: end(&tcp),
        remote: end(&tcp),
        streams: (0..STREAMS).map(stream).collect(),
        web100: None,
        intervals: (0..SECONDS).map(|second| interval(second, &tcp)).collect(),
        rtt: RttReport::of_kernel(None, Vec::new()),
        route: None,
        summary: Summary {
            duration: Span::from_secs(SECONDS),
            sent: bytes,
            received: bytes,
            rate: BitRate::from_mbps(9_876),
            retransmits: None,
            steady: None,
            datagrams_sent: None,
            datagrams: None,
        },
        reverse: None,
        limit: None,
        capture: None,
        interrupted: false,
        until_sure: None,
        broken_off: None,
        warnings: Vec::new(),
        validity: Validity::default(),
    };
    let bounded = measurement.to_bounded();
    let rule = bounded.local.thinning.expect("the rule is stated");
    assert!(
        rule.kept_every > 1 && rule.ramp_kept_every <= rule.kept_every,
        "{rule:?}"
    );
    assert_eq!(
        bounded.web100.as_ref().map(|report| report.streams.len()),
        Some(STREAMS.into())
    );
    let document = Document::new(Content::Measurement {
        measurement: Box::new(bounded),
        path: None,
        completion: None,
        followed_by: None,
    });
    let size = serde_json::to_string(&document).unwrap().len();
    assert!((1_000_000..10_000_000).contains(&size), "{size} bytes");
}
