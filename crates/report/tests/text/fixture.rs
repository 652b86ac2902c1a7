//! Records with figures as a machine of our time yields them on 1 Gbit/s × 100 ms.

use std::collections::BTreeMap;

use fullpipe_record::{
    At, Buffer, BufferAdvice, Calculation, Candidate, Cause, Ceiling, Change, Combination,
    Commands, CompletionForecast, Datagrams, Direction, EchoPhase, EchoReport, Encapsulation,
    EndReport, Estimate, Experiment, Forecast, Framing, GridAccuracy, GridAgreement, GridCell,
    GridReport, GridRun, Hop, HostSettings, Improvement, Inferred, Inflation, Inputs, Interval,
    IpVersion, KernelVersion, LabReport, LabStep, Leg, Limit, MeasuredTransfer, Measurement, Need,
    OwnCapture, Path, PathDirection, Peer, Prediction, Proof, Published, Quantity, Ramp,
    RampReport, RampStep, RateSpread, Refusal, Remedy, Request, Responsiveness, RouteMethod,
    RouteMtu, RouteReport, RttForecast, RttMethod, RttReport, RttStats, Scope, SegmentSpread,
    Segmentation, Side, SimulatedTransfer, Solved, Steady, Summary, Transport, Undone, Validity,
    Value, Verdict, WhatIf, WhatIfReport,
};
use fullpipe_units::{BitRate, ByteCount, Distance, Ratio, SegCount, Span};

pub(crate) fn calculation() -> Calculation {
    Calculation {
        solved: Solved::Window,
        bandwidth: Some(BitRate::from_mbps(1000)),
        rtt: millis(100.0),
        window: ByteCount::new(12_500_000),
        rate: BitRate::from_mbps(1000),
        mss: ByteCount::new(1448),
        efficiency: Ratio::new(0.9415),
        buffers: BufferAdvice {
            tcp_rmem_max: ByteCount::new(19_753_087),
            tcp_rmem_reason: String::new(),
            tcp_wmem_max: ByteCount::new(25_000_000),
            tcp_wmem_reason: "2 × 11.92 MiB on the way".to_owned(),
            so_rcvbuf: ByteCount::new(9_876_544),
            rmem_max: ByteCount::from_mib(4),
        },
        prediction: before(),
        inputs: Inputs {
            bandwidth: Some(BitRate::from_mbps(1000)),
            rtt: Some(millis(100.0)),
            size: Some(ByteCount::from_mib(10_240)),
            ..Inputs::default()
        },
        time: Some(Span::from_secs(263)),
        completion: Some(CompletionForecast {
            time: Span::from_secs(263),
            low: Span::from_secs(251),
            high: Span::from_secs(276),
            efficiency: Some(Ratio::new(0.32)),
        }),
        target: Some(mbps(941.5)),
        needs: needs(),
        alone: alone(),
        improvement: Some(Improvement {
            changes: vec![
                Change::TcpWmemMax(ByteCount::from_mib(24)),
                Change::CongestionControl("bbr".to_owned()),
                Change::Streams(2),
            ],
            after: estimate(941.5, Limit::Capacity),
        }),
        what_ifs: vec![
            what_if("rtt=4ms", 2.88, None),
            what_if("relay", 2.88, Some(Leg::Middle)),
            what_if("relay=10ms", 2.0, Some(Leg::Outer)),
        ],
    }
}

fn needs() -> Vec<Need> {
    let mib = |size: f64| Value::Bytes(ByteCount::from_mib(1).scale_by(size));
    let need = |quantity, value, now, met| Need {
        quantity,
        side: Side::AtLeast,
        value: Some(value),
        now: Some(now),
        met,
    };
    vec![
        need(
            Quantity::Bandwidth,
            Value::Rate(mbps(1000.0)),
            Value::Rate(mbps(1000.0)),
            true,
        ),
        need(Quantity::Window, mib(11.23), mib(3.9), false),
        need(Quantity::TcpWmem, mib(11.51), mib(4.0), false),
        need(Quantity::TcpRmem, mib(17.97), mib(32.0), true),
        Need {
            side: Side::AtMost,
            now: None,
            ..need(
                Quantity::Loss,
                Value::Share(Ratio::new(2.7e-7)),
                Value::Count(0),
                true,
            )
        },
    ]
}

fn alone() -> Vec<Need> {
    let need = |quantity, side, value, now| Need {
        quantity,
        side,
        value,
        now,
        met: false,
    };
    let time = |time| Some(Value::Time(millis(time)));
    vec![
        need(Quantity::Rtt, Side::AtMost, time(34.72), time(100.0)),
        need(
            Quantity::Distance,
            Side::AtMost,
            Some(Value::Distance(Distance::from_km(3546))),
            None,
        ),
        need(
            Quantity::Streams,
            Side::AtLeast,
            Some(Value::Count(3)),
            Some(Value::Count(1)),
        ),
        need(
            Quantity::Mtu,
            Side::AtLeast,
            None,
            Some(Value::Bytes(ByteCount::new(1500))),
        ),
        need(
            Quantity::Congestion,
            Side::OneOf,
            None,
            Some(Value::Names(vec!["cubic".to_owned()])),
        ),
    ]
}

fn what_if(what: &str, gain: f64, leg: Option<Leg>) -> WhatIf {
    let estimate = Estimate {
        time: Some(Span::from_secs(92)),
        ..estimate(327.1 * gain, Limit::Capacity)
    };
    WhatIf {
        what: what.to_owned(),
        estimate,
        gain: Ratio::new(gain),
        leg,
    }
}

fn estimate(rate: f64, limit: Limit) -> Estimate {
    Estimate {
        textbook: mbps(rate * 1.02),
        kernel_model: mbps(rate),
        low: mbps(rate * 0.97),
        high: mbps(rate),
        limit,
        time: None,
    }
}

/// Two round trips by two windows, under two names of congestion control, two losses and two sizes:
/// as wide as it comes.
pub(crate) fn wide_table() -> Vec<Combination> {
    let row = |rtt: f64, window: u64| Combination {
        inputs: Inputs {
            bandwidth: Some(mbps(rtt * 10.0)),
            rtt: Some(millis(rtt)),
            window: Some(ByteCount::from_kib(window)),
            loss: Some(Ratio::new(rtt * 1e-6)),
            streams: Some(window as u16),
            ..Inputs::default()
        },
        bdp: Some(ByteCount::new(1_250_000)),
        estimate: Estimate {
            time: Some(millis(rtt)),
            ..estimate(rtt * 3.0, Limit::ReceiveWindow)
        },
    };
    vec![
        row(10.0, 64),
        row(173.0, 64),
        row(10.0, 1000),
        row(173.0, 1000),
    ]
}

/// The same where only round trip and window differ.
pub(crate) fn table() -> Vec<Combination> {
    let same = |row: Combination| {
        let estimate = Estimate {
            time: None,
            ..row.estimate
        };
        let inputs = Inputs {
            rtt: row.inputs.rtt,
            window: row.inputs.window,
            ..Inputs::default()
        };
        Combination {
            inputs,
            estimate,
            ..row
        }
    };
    wide_table().into_iter().map(same).collect()
}

/// The rate of the path with the sender's 4 MiB.
fn before() -> Prediction {
    let capacity = ceiling(Limit::Capacity, mbps(941.5), "1 Gbit/s × 94.15 %");
    let receive = "20.25 MiB in flight (tcp_rmem 32 MiB × 63.28 %) ÷ 100 ms";
    prediction(vec![
        ceiling(
            Limit::SendBuffer,
            mbps(327.1),
            "tcp_wmem 4 MiB × 0.975 ÷ 100 ms",
        ),
        capacity,
        ceiling(Limit::ReceiveWindow, mbps(1698.0), receive),
    ])
}

/// The same after the remedy.
fn after() -> Prediction {
    let receive = "20.25 MiB in flight (tcp_rmem 32 MiB × 63.28 %) ÷ 100 ms";
    prediction(vec![
        ceiling(Limit::Capacity, mbps(941.5), "1 Gbit/s × 94.15 %"),
        ceiling(Limit::ReceiveWindow, mbps(1698.0), receive),
        ceiling(
            Limit::SendBuffer,
            mbps(1963.0),
            "tcp_wmem 24 MiB × 0.975 ÷ 100 ms",
        ),
    ])
}

/// A path that loses packets, over which a rate is likely within an interval only.
pub(crate) fn lossy() -> Prediction {
    let loss = Ceiling {
        low: mbps(8.2),
        high: mbps(19.73),
        ..ceiling(
            Limit::Loss,
            mbps(13.51),
            "164.9 KiB of CUBIC under 0.01 % loss ÷ 100 ms × 4 streams",
        )
    };
    let notes = vec![
        "0.01 % loss of acknowledgements left out: each one covers those before it".to_owned(),
    ];
    Prediction {
        notes,
        ..prediction(vec![
            loss,
            ceiling(Limit::Capacity, mbps(941.5), "1 Gbit/s × 94.15 %"),
        ])
    }
}

/// The prediction of these ceilings, the lowest of which comes first.
fn prediction(ceilings: Vec<Ceiling>) -> Prediction {
    let lowest = ceilings[0].clone();
    Prediction {
        bdp: Some(ByteCount::new(12_500_000)),
        window_needed: Some(ByteCount::new(11_768_750)),
        efficiency: Ratio::new(0.9415),
        mss: ByteCount::new(1448),
        limit: lowest.kind,
        textbook: lowest.textbook,
        kernel_model: lowest.kernel_model,
        low: lowest.low,
        high: lowest.high,
        ramp: Ramp {
            rounds: 9,
            duration: millis(900.1),
            bytes: ByteCount::from_mib(7),
        },
        notes: Vec::new(),
        ceilings,
    }
}

fn ceiling(kind: Limit, rate: BitRate, formula: &str) -> Ceiling {
    Ceiling {
        kind,
        textbook: rate,
        kernel_model: rate,
        low: rate,
        high: rate,
        window: None,
        formula: formula.to_owned(),
    }
}

pub(crate) fn measurement() -> Measurement {
    measured(mbps(329.8), verdict())
}

/// Datagrams both ways, of which the far host dropped some itself.
pub(crate) fn datagrams_both_ways() -> Measurement {
    let seen = Datagrams {
        received: 17_200,
        lost: 66,
        duplicated: 2,
        reordered: 3,
        reordering_extent: 5,
        late: 1,
        dropped_here: Some(60),
        jitter: Span::from_micros(41),
        ..Datagrams::default()
    };
    let total = |seen| Summary {
        steady: None,
        retransmits: None,
        datagrams_sent: Some(17_266),
        datagrams: Some(seen),
        ..measurement().summary
    };
    let interval = |direction, datagrams_sent, datagrams| Interval {
        direction,
        datagrams_sent,
        datagrams,
        rtt: None,
        echo_rtt: Some(millis(103.9)),
        cwnd: None,
        retransmits: None,
        ..interval(1, mbps(20.0))
    };
    Measurement {
        request: Request {
            transport: Transport::Udp,
            direction: Direction::Both,
            title: Some("night".to_owned()),
            ..Request::default()
        },
        intervals: vec![
            interval(Direction::Upload, Some(1726), None),
            interval(
                Direction::Download,
                None,
                Some(Datagrams {
                    received: 1720,
                    lost: 6,
                    ..seen
                }),
            ),
        ],
        summary: total(seen),
        reverse: Some(total(Datagrams {
            lost: 0,
            dropped_here: Some(0),
            jitter: Span::from_micros(9),
            ..Datagrams::default()
        })),
        remote: EndReport {
            output: Some("Accepted connection\u{1b}[2J\n".to_owned()),
            ..EndReport::default()
        },
        limit: None,
        capture: None,
        ..measurement()
    }
}

/// A run that the machine spoilt.
pub(crate) fn invalid() -> Measurement {
    let late = "packets were 1.73 ms late on average, more than 1 ms".to_owned();
    let stolen = "a hypervisor took 13.12 % of the processors away".to_owned();
    Measurement {
        warnings: vec![
            "echo requests are not permitted here; round trips are the kernel's own estimates"
                .to_owned(),
        ],
        validity: Validity {
            broken: vec![late, stolen],
            ..Validity::default()
        },
        rtt: RttReport::of_kernel(None, Vec::new()),
        limit: None,
        capture: None,
        summary: Summary {
            steady: None,
            retransmits: None,
            ..measurement().summary
        },
        ..measurement()
    }
}

fn measured(rate: BitRate, limit: Verdict) -> Measurement {
    Measurement {
        id: String::new(),
        started: "2025-01-02T03:04:05Z".to_owned(),
        setup: None,
        peer: Peer {
            host: "10.0.0.2".to_owned(),
            address: "10.0.0.2:5201".to_owned(),
            speaks_fullpipe: true,
        },
        request: request(),
        resolved: None,
        run: None,
        web100: None,
        local: EndReport::default(),
        remote: EndReport::default(),
        streams: Vec::new(),
        intervals: vec![interval(0, mbps(96.1)), interval(1, rate)],
        rtt: rtt(),
        summary: Summary {
            duration: millis(12_100.0),
            sent: ByteCount::new(465_253_171),
            received: ByteCount::new(465_253_171),
            rate: rate.scale_by(0.93),
            retransmits: Some(SegCount::new(0)),
            steady: Some(Steady {
                ramp: millis(1290.0),
                ramp_rate: mbps(121.7),
                rate,
                duration: millis(10_710.0),
            }),
            datagrams_sent: None,
            datagrams: None,
        },
        reverse: None,
        route: None,
        limit: Some(limit),
        capture: None,
        interrupted: false,
        until_sure: None,
        broken_off: None,
        warnings: Vec::new(),
        validity: Validity::default(),
    }
}

fn interval(second: u64, rate: BitRate) -> Interval {
    Interval {
        direction: Direction::Upload,
        from: Span::from_secs(second),
        to: Span::from_secs(second + 1),
        bytes: rate.bytes_in(Span::from_secs(1)),
        rate,
        retransmits: Some(SegCount::new(0)),
        rtt: Some(millis(101.4)),
        // At first nobody had answered yet.
        echo_rtt: (second > 0).then(|| millis(100.7)),
        cwnd: Some(ByteCount::new(8_412_880)),
        omitted: second == 0,
        datagrams_sent: None,
        datagrams: None,
        streams: Vec::new(),
    }
}

/// Returns round-trip times with a few requests lost.
fn rtt() -> RttReport {
    let (idle, loaded) = (round_trips(100.1, 100.3), round_trips(101.2, 111.8));
    let during = EchoPhase {
        sent: 123,
        lost: 3,
        rtt: Some(loaded),
        ..EchoPhase::default()
    };
    RttReport {
        method: RttMethod::Icmp,
        idle: Some(idle),
        loaded: Some(loaded),
        inflation: Some(Inflation::from_stats(&idle, &loaded)),
        responsiveness: Responsiveness::from_rtts(vec![millis(101.2)], vec![millis(101.4)]),
        rpm: None,
        echoes: Some(EchoReport {
            during,
            ..EchoReport::default()
        }),
    }
}

fn round_trips(median: f64, max: f64) -> RttStats {
    let median = millis(median);
    RttStats {
        count: 120,
        min: millis(100.1),
        median,
        p90: median,
        p99: millis(max - 0.1),
        max: millis(max),
    }
}

/// The sender's buffer, found out.
fn verdict() -> Verdict {
    Verdict {
        kind: Limit::SendBuffer,
        cause: Cause::TcpWmemMax,
        at: At::Sender,
        share: Ratio::ONE,
        confidence: Ratio::new(0.96),
        sentence: "The sender's send buffer is full: it holds 4 MiB (tcp_wmem), which is 333.5 Mbit/s over 100.6 ms; \
                   the path could carry 941.5 Mbit/s."
            .to_owned(),
        ceilings: BTreeMap::new(),
        runner_up: None,
        evidence: evidence(&[
            ("congestion control", "cubic"),
            ("missing", "the receiver's settings, the receiver's sockets, the advertised window, losses"),
            ("sndbuf_limited", "100 % of busy time"),
            ("wmem_queued mean", "4.01 MiB of 4 MiB"),
        ]),
        others: Vec::new(),
        where_time_went: Vec::new(),
        basis: fullpipe_record::Basis::BothEnds,
        candidates: Vec::new(),
        would_distinguish: None,
        other_end_would_show: None,
    }
}

/// The full pipe.
fn full() -> Verdict {
    Verdict {
        kind: Limit::Capacity,
        cause: Cause::Link,
        at: At::Path,
        share: Ratio::ONE,
        confidence: Ratio::new(0.96),
        sentence: "The pipe is full: 941.4 Mbit/s of data passes, 100 % of the 941.5 Mbit/s that a path of 1 Gbit/s \
                   can carry."
            .to_owned(),
        ceilings: BTreeMap::new(),
        runner_up: None,
        evidence: evidence(&[("stated capacity", "941.5 Mbit/s")]),
        others: Vec::new(),
        where_time_went: Vec::new(),
        basis: fullpipe_record::Basis::BothEnds,
        candidates: Vec::new(),
        would_distinguish: None,
        other_end_would_show: None,
    }
}

fn evidence(figures: &[(&str, &str)]) -> BTreeMap<String, String> {
    figures
        .iter()
        .map(|(name, figure)| ((*name).to_owned(), (*figure).to_owned()))
        .collect()
}

pub(crate) fn experiment() -> Experiment {
    let remedies = vec![larger_buffer(), more_streams()];
    Experiment {
        path: path(),
        request: request(),
        sender: settings(),
        receiver: settings(),
        prediction: before(),
        measurement: measurement(),
        verdict: verdict(),
        accuracy: Some(Ratio::new(1.008)),
        proof: Some(Proof {
            remedy: remedies[0].clone(),
            prediction: after(),
            measurement: measured(mbps(941.4), full()),
            verdict: full(),
            accuracy: Some(Ratio::new(0.9999)),
        }),
        remedies,
        interrupted: false,
        undone: Some(Undone {
            sender: settings(),
            receiver: settings(),
            restored: true,
        }),
    }
}

/// A pipe that was full at once.
pub(crate) fn without_remedy() -> Experiment {
    Experiment {
        prediction: after(),
        measurement: measured(mbps(941.4), full()),
        verdict: full(),
        accuracy: Some(Ratio::new(0.9999)),
        remedies: Vec::new(),
        proof: None,
        undone: None,
        ..experiment()
    }
}

/// A proof that the machine spoilt.
pub(crate) fn spoilt_proof() -> Experiment {
    let whole = experiment();
    let proof = whole.proof.map(|proof| Proof {
        measurement: invalid(),
        accuracy: None,
        ..proof
    });
    Experiment { proof, ..whole }
}

fn larger_buffer() -> Remedy {
    Remedy {
        id: "raise-tcp-wmem".to_owned(),
        scope: Scope::Namespace,
        at: At::Sender,
        changes: vec![Change::TcpWmemMax(ByteCount::from_mib(24))],
        commands: Commands {
            apply: vec![r#"sysctl -w net.ipv4.tcp_wmem="4096 16384 25165824""#.to_owned()],
            undo: vec![r#"sysctl -w net.ipv4.tcp_wmem="4096 16384 4194304""#.to_owned()],
            elsewhere: Vec::new(),
        },
        predicted: Some(forecast()),
        rtt: Some(RttForecast { low: millis(100.0), high: Some(millis(191.0)) }),
        command_time: None,
        why:
            "The path keeps 11.93 MiB of each stream on the way; a tcp_wmem of 24 MiB holds that, with room to resend \
              what is lost."
                .to_owned(),
    }
}

fn more_streams() -> Remedy {
    Remedy {
        id: "parallel-streams".to_owned(),
        scope: Scope::Application,
        at: At::Sender,
        changes: vec![Change::Streams(3)],
        commands: Commands {
            apply: vec!["fullpipe measure HOST -P 3".to_owned()],
            undo: Vec::new(),
            elsewhere: Vec::new(),
        },
        predicted: Some(forecast()),
        rtt: Some(RttForecast { low: millis(100.0), high: Some(millis(191.0)) }),
        command_time: None,
        why: "Each connection has its own windows and buffers, and recovers on its own: 3 of them carry more."
            .to_owned(),
    }
}

fn forecast() -> Forecast {
    Forecast {
        bits_per_second: mbps(941.5),
        low: mbps(900.0),
        high: mbps(941.5),
        capacity_unknown: false,
    }
}

/// Two runs of one scenario: one that passes, and one that misses its bound after a run that did
/// not count.
pub(crate) fn lab_report() -> LabReport {
    LabReport {
        scenario: "gordon-bdp".to_owned(),
        title: "One stream and five receive buffers on Fast Ethernet × 10 ms".to_owned(),
        source: Some("Gordon, Impact of Bandwidth Delay Product on TCP Throughput".to_owned()),
        path: Path::with_symmetric_rtt(
            &PathDirection {
                rate: Some(mbps(100.0)),
                ..direction()
            },
            millis(10.0),
        ),
        rtt: millis(10.0),
        steps: vec![
            step("50000 B", 50_000, 0.981, true),
            step("125000 B", 125_000, 0.912, false),
        ],
        missed: vec![
            "the rate of 125000 B is 1.76 times that of 50000 B, not within 2 ± 5 %".to_owned(),
        ],
        interrupted: false,
        passed: false,
    }
}

/// A measurement whose captures show `limit`.
fn captured(limit: Verdict) -> Measurement {
    let measurement = measurement();
    let [name, other] = ["sender", "receiver"].map(|end| format!("gordon-bdp-{end}.pcap"));
    let capture = OwnCapture {
        name,
        other: Some(other),
        packets: 90_000,
        dropped: 0,
        left_out: 0,
        limit: None,
        agrees: None,
    };
    let capture = capture.with_verdict(Some(limit), measurement.limit.as_ref());
    Measurement {
        capture: Some(Box::new(capture)),
        ..measurement
    }
}

fn step(name: &str, buffer: u64, reached: f64, passed: bool) -> LabStep {
    let (size, expected) = (ByteCount::new(buffer), mbps(53.9));
    let window = Ceiling {
        window: Some(size.scale_by(1.27)),
        ..ceiling(Limit::ReceiveWindow, expected, "")
    };
    LabStep {
        name: name.to_owned(),
        request: Request {
            buffer: Buffer::Request(size),
            ..request()
        },
        path: None,
        published: Some(Published {
            rate: Some(mbps(54.1)),
            ..Published::default()
        }),
        prediction: Prediction {
            bdp: Some(ByteCount::new(125_000)),
            ..prediction(vec![window])
        },
        runs: if passed {
            vec![captured(verdict())]
        } else {
            vec![invalid(), captured(full())]
        },
        buffer: Some(size * 2),
        window_seen: Some(size.scale_by(1.26)),
        measured: Some(expected.scale_by(reached)),
        accuracy: Some(Ratio::new(reached)),
        accuracy_textbook: Some(Ratio::new(reached * 0.95)),
        datagrams: None,
        cross_traffic: Vec::new(),
        filled: None,
        ramp: None,
        passed: Some(passed),
        missed: if passed {
            Vec::new()
        } else {
            vec!["91.2 % of the kernel model's prediction, not at least 95 %".to_owned()]
        },
    }
}

fn request() -> Request {
    Request {
        duration: Span::from_secs(12),
        congestion: Some("cubic".to_owned()),
        ..Request::default()
    }
}

fn path() -> Path {
    Path::with_symmetric_rtt(&direction(), millis(100.0))
}

pub(crate) fn lopsided_path() -> Path {
    let reverse = PathDirection {
        rate: Some(mbps(100.0)),
        queue: None,
        loss: None,
        ..path().reverse
    };
    let forward = PathDirection {
        loss: Some(Ratio::new(1e-4)),
        ..path().forward
    };
    Path {
        forward,
        reverse,
        segmentation: Segmentation::Trains,
    }
}

fn direction() -> PathDirection {
    PathDirection {
        rate: Some(BitRate::from_mbps(1000)),
        delay: Span::ZERO,
        queue: Some(ByteCount::new(12_500_000)),
        loss: Some(Ratio::ZERO),
        mtu: ByteCount::new(1500),
        framing: Framing::Ethernet,
        ip: IpVersion::V4,
        encapsulation: Encapsulation::default(),
        effects: fullpipe_record::Effects::default(),
    }
}

fn settings() -> HostSettings {
    HostSettings {
        kernel: KernelVersion::new(6, 12),
        rmem_max: None,
        wmem_max: None,
        ..HostSettings::of_linux_6_18()
    }
}

fn mbps(rate: f64) -> BitRate {
    BitRate::from_mbps(1).scale_by(rate)
}

fn millis(time: f64) -> Span {
    Span::from_millis(1).scale_by(time)
}

/// Three cells: one as predicted, one outside of its interval, one of which no run counts.
pub(crate) fn grid() -> GridReport {
    let cell = |bound: &str, measured: Option<f64>, broken: &[&str]| GridCell {
        id: String::new(),
        bound: bound.to_owned(),
        path: path(),
        request: Request {
            congestion: Some("cubic".to_owned()),
            streams: 8,
            ..Request::default()
        },
        prediction: before(),
        measured: measured.map(mbps),
        accuracy: measured.map(|rate| Ratio::new(rate / 327.1)),
        inside: measured.map(|rate| (rate / 327.1 - 1.0).abs() < 0.04),
        losses: None,
        kernel: measured.map(|rate| GridRun {
            rate: mbps(rate * 0.98),
            steady: Some(mbps(rate)),
            retransmits: Some(SegCount::new(1_626)),
        }),
        simulated: None,
        broken: broken.iter().map(|&reason| reason.to_owned()).collect(),
    };
    let late = "packets were 1.32 ms late on average, more than 1 ms";
    GridReport {
        name: "accuracy".to_owned(),
        title: "How good the predictions are".to_owned(),
        cells: vec![
            cell("window 0.25 BDP", Some(329.8), &[]),
            cell("tcp_wmem 0.7 BDP", Some(283.0), &[late]),
            cell("loss 0.01 %", None, &[late]),
        ],
        by_rule: Some(GridAccuracy {
            cells: 2,
            median: Ratio::new(0.0083),
            p95: Ratio::new(0.1348),
            inside: Ratio::new(0.5),
        }),
        by_loss: None,
        simulated_without_loss: None,
        simulated_with_loss: None,
        is_virtual: false,
        missed: vec![
            "the 95th percentile where a rule limits is 13.48 %; the bound is 8 % at most"
                .to_owned(),
        ],
        took: Span::from_secs(1500),
        interrupted: false,
        passed: false,
    }
}

/// The same with a simulation of each run.
pub(crate) fn grid_against_virtual() -> GridReport {
    let mut report = grid();
    for cell in &mut report.cells {
        cell.simulated = cell.kernel.map(|run| GridRun {
            rate: run.rate.scale_by(1.01),
            steady: run.steady.map(|rate| rate.scale_by(0.99)),
            retransmits: Some(SegCount::new(16_314)),
        });
    }
    report.simulated_without_loss = Some(GridAgreement {
        cells: 2,
        rate_median: Ratio::new(0.01),
        rate_p90: Ratio::new(0.01),
        retransmits_median: Ratio::new(9.03),
        retransmits_p90: Ratio::new(9.03),
    });
    report
}

/// The same in virtual time alone.
pub(crate) fn virtual_grid() -> GridReport {
    let mut report = grid();
    for cell in &mut report.cells {
        (cell.simulated, cell.kernel) = (cell.kernel, None);
    }
    report.cells[2].broken = vec!["\"htcp\" is not modelled: reno, cubic and bbr are".to_owned()];
    GridReport {
        is_virtual: true,
        ..report
    }
}

/// A transfer with 20 seeds, in virtual time, with so many streams over so long a path.
fn simulated(name: Option<&str>, streams: u16, rtt: f64) -> SimulatedTransfer {
    let path = Path::with_symmetric_rtt(&path().forward, millis(rtt));
    SimulatedTransfer {
        id: String::new(),
        name: name.map(str::to_owned),
        request: Request {
            congestion: Some("cubic".to_owned()),
            streams,
            ..Request::default()
        },
        path,
        seeds: 20,
        rate: RateSpread {
            low: mbps(818.3),
            median: mbps(851.4),
            high: mbps(866.1),
        },
        retransmits: SegmentSpread {
            low: SegCount::new(760),
            median: SegCount::new(16_259),
            high: SegCount::new(16_314),
        },
        loaded_rtt: Some(millis(rtt * 1.9)),
        limit: Some(Candidate {
            kind: Limit::CongestionWindow,
            cause: Cause::Recovering,
            at: At::Path,
        }),
        warnings: vec![
            "simulated: no processor, no network card and no queue of a host took part".to_owned(),
        ],
    }
}

/// Combinations of two lists.
pub(crate) fn simulations() -> Vec<SimulatedTransfer> {
    [1, 16]
        .into_iter()
        .flat_map(|streams| [5.0, 100.0].map(|rtt| simulated(None, streams, rtt)))
        .collect()
}

/// A measurement over a path that was inferred, with two changes.
pub(crate) fn past_with_changes() -> WhatIfReport {
    let inferred = |key: &str, value: &str, why: &str| Inferred {
        key: key.to_owned(),
        value: value.to_owned(),
        why: why.to_owned(),
    };
    WhatIfReport {
        name: Some("elsen-window, 64 KiB".to_owned()),
        path: path(),
        sender: settings(),
        receiver: settings(),
        inferred: vec![
            inferred(
                "rate",
                "1000000000bit/s",
                "the link was full at this rate, as Ethernet counts it",
            ),
            inferred(
                "receiver",
                "Linux 6.18.0",
                "assumed, with its defaults: the record has no settings of it",
            ),
        ],
        measured: MeasuredTransfer {
            rate: mbps(821.0),
            retransmits: None,
            loaded_rtt: Some(millis(187.0)),
            limit: simulated(None, 1, 100.0).limit,
        },
        simulations: ["as it was", "receiver.tcp_rmem=64MiB", "raise-tcp-wmem"]
            .map(|name| simulated(Some(name), 1, 100.0))
            .to_vec(),
        not_modelled: vec!["ask-for-bandwidth".to_owned()],
    }
}

/// Four hops, of which one is silent and one has two routers that take turns, with a narrow link
/// behind the first.
pub(crate) fn route() -> RouteReport {
    let hop = |number, addresses: &[&str], rtts: &[f64]| Hop {
        number,
        addresses: addresses
            .iter()
            .map(|address| (*address).to_owned())
            .collect(),
        sent: 5,
        rtts: rtts.iter().map(|rtt| millis(*rtt)).collect(),
        refusal: None,
    };
    let long = "2001:0db8:aaaa:bbbb:cccc:dddd:eeee:ffff";
    RouteReport {
        target: "2001:db8::9".to_owned(),
        method: RouteMethod::IcmpEcho,
        hops: vec![
            hop(1, &["2001:db8::1"], &[0.21, 0.25, 0.22, 0.3, 0.24]),
            hop(2, &[], &[]),
            hop(3, &[long, "2001:db8::3"], &[51.2, 51.7, 60.9]),
            hop(4, &["2001:db8::9"], &[100.3, 100.4, 100.3, 100.6, 100.5]),
        ],
        reached: true,
        mtu: Some(RouteMtu {
            size: ByteCount::new(1_400),
            answered: true,
            reported_by: Some("2001:db8::1".to_owned()),
        }),
    }
}

/// The same where nothing comes behind the router that refuses, by datagrams.
pub(crate) fn refused_route() -> RouteReport {
    let mut route = RouteReport {
        method: RouteMethod::Udp,
        reached: false,
        mtu: None,
        ..route()
    };
    route.hops.truncate(1);
    route.hops[0].refusal = Some(Refusal::Prohibited);
    route
}

/// A ramp whose last step broke off.
pub(crate) fn ramp() -> RampReport {
    let step = |offered: f64, carried: f64, rtt: f64, broken_off: Option<&str>| RampStep {
        offered: mbps(offered),
        carried: mbps(carried),
        rtt: RttStats::from_samples(vec![millis(rtt); 3]),
        loss: Some(Ratio::new(0.0)),
        broken_off: broken_off.map(str::to_owned),
    };
    let broken = "the test with 198.51.100.7 failed: the server closed the connection";
    let steps = vec![
        step(10.0, 9.9, 50.2, None),
        step(50.0, 49.7, 50.4, None),
        step(90.0, 12.3, 71.0, Some(broken)),
    ];
    RampReport::new(
        Some(mbps(100.0)),
        RttStats::from_samples(vec![millis(50.1)]),
        steps,
        false,
    )
}
