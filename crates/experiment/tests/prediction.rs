//! The prediction is fixed before the first data packet, from path, settings and kernel alone.

use std::cell::RefCell;
use std::sync::atomic::AtomicBool;

use fullpipe_experiment::{EndSettings, ExperimentError, ExperimentTarget, Interrupt, run};
use fullpipe_record::{
    At, Change, Encapsulation, EndReport, Event, Experiment, Framing, HostSettings, Interval,
    IpVersion, Limit, Measurement, Path, PathDirection, Peer, Prediction, Request, RttReport,
    Sample, SocketMemory, Summary, TcpInfo, Validity,
};
use fullpipe_units::{BitRate, ByteCount, SegCount, Span};

/// Two hosts of Linux 6.18 with its defaults, 1 Gbit/s and 100 ms apart, whose sender saw what the
/// test sets.
struct Pretended {
    path: Path,
    ends: RefCell<EndSettings>,
    samples: Vec<Sample>,
    /// Events, in order.
    journal: RefCell<Vec<String>>,
    refuses_to_measure_again: bool,
}

impl Pretended {
    fn new(samples: Vec<Sample>) -> Self {
        let direction = PathDirection {
            rate: Some(BitRate::from_mbps(1000)),
            delay: Span::ZERO,
            queue: Some(ByteCount::new(12_500_000)),
            loss: None,
            mtu: ByteCount::new(1500),
            framing: Framing::Ethernet,
            ip: IpVersion::V4,
            encapsulation: Encapsulation::default(),
            effects: fullpipe_record::Effects::default(),
        };
        Self {
            path: Path::with_symmetric_rtt(&direction, RTT),
            ends: RefCell::new(EndSettings {
                sender: settings(),
                receiver: settings(),
            }),
            samples,
            journal: RefCell::default(),
            refuses_to_measure_again: false,
        }
    }

    fn note(&self, what: impl Into<String>) {
        self.journal.borrow_mut().push(what.into());
    }
}

impl ExperimentTarget for Pretended {
    fn path(&self) -> &Path {
        &self.path
    }

    fn end_settings(&self) -> Result<EndSettings, ExperimentError> {
        Ok(self.ends.borrow().clone())
    }

    fn measure(
        &self,
        request: &Request,
        _: Interrupt<'_>,
        _: &mut dyn FnMut(&Interval),
    ) -> Result<Measurement, ExperimentError> {
        let again = self
            .journal
            .borrow()
            .iter()
            .any(|entry| entry == "measured");
        if again && self.refuses_to_measure_again {
            return Err(ExperimentError::Measurement(
                "it was set to fail".to_owned(),
            ));
        }
        self.note("measured");
        Ok(measurement(request, self.samples.clone()))
    }

    fn apply_changes(&self, at: At, changes: &[Change]) -> Result<(), ExperimentError> {
        self.note(format!("applied at {at:?}"));
        let mut ends = self.ends.borrow_mut();
        let host = if at == At::Receiver {
            &mut ends.receiver
        } else {
            &mut ends.sender
        };
        *host = host.changed_by(changes);
        Ok(())
    }

    fn undo_changes(&self) -> Result<(), ExperimentError> {
        self.note("undone");
        *self.ends.borrow_mut() = EndSettings {
            sender: settings(),
            receiver: settings(),
        };
        Ok(())
    }
}

const RTT: Span = Span::from_millis(100);

fn settings() -> HostSettings {
    HostSettings::of_linux_6_18()
}

/// Ten seconds at a window of `in_flight`, under a receive window of `window`, every 50 ms.
fn samples(in_flight: ByteCount, window: ByteCount, rtt: Span) -> Vec<Sample> {
    let mss = ByteCount::new(1448);
    let rate = BitRate::from_bytes_in(in_flight, rtt);
    let sample = |step: u64| {
        let at = Span::from_millis(50) * step;
        let acked = rate.bytes_in(at);
        Sample {
            at,
            stream: 0,
            bytes: acked + in_flight,
            tcp: TcpInfo {
                bytes_acked: Some(acked),
                bytes_sent: Some(acked + in_flight),
                bytes_retrans: Some(ByteCount::ZERO),
                unacked: Some(SegCount::new(in_flight.get() / mss.get())),
                cwnd: Some(SegCount::new(8_000)),
                snd_mss: Some(mss),
                snd_wnd: Some(window),
                rtt: Some(rtt),
                min_rtt: Some(rtt),
                not_sent: Some(ByteCount::ZERO),
                total_retrans: Some(SegCount::ZERO),
                data_segs_out: Some(SegCount::new(acked.get() / mss.get())),
                busy: Some(at),
                rwnd_limited: Some(Span::ZERO),
                sndbuf_limited: Some(at),
                window_scaling: Some(true),
                ..TcpInfo::default()
            },
            memory: Some(SocketMemory {
                sndbuf: ByteCount::from_mib(4),
                wmem_queued: in_flight.min(ByteCount::from_mib(4)),
                ..SocketMemory::default()
            }),
        }
    };
    (1..=200).map(sample).collect()
}

fn measurement(request: &Request, samples: Vec<Sample>) -> Measurement {
    let rtt = samples
        .first()
        .and_then(|sample| sample.tcp.rtt)
        .unwrap_or(RTT);
    let end = samples.last().map_or(Span::ZERO, |sample| sample.at);
    let bytes = samples
        .last()
        .and_then(|sample| sample.tcp.bytes_acked)
        .unwrap_or_default();
    Measurement {
        id: String::new(),
        started: "2026-01-01T00:00:00.000Z".to_owned(),
        setup: None,
        peer: Peer {
            host: "far".to_owned(),
            address: "198.18.0.2:5201".to_owned(),
            speaks_fullpipe: true,
        },
        request: request.clone(),
        resolved: None,
        run: None,
        web100: None,
        summary: Summary {
            duration: end,
            sent: bytes,
            received: bytes,
            rate: BitRate::from_bytes_in(bytes, end),
            retransmits: Some(SegCount::ZERO),
            steady: fullpipe_record::find_steady(&samples, Some(rtt), end),
            datagrams_sent: None,
            datagrams: None,
        },
        reverse: None,
        local: EndReport {
            settings: Some(settings()),
            samples,
            ..EndReport::default()
        },
        remote: EndReport {
            settings: Some(settings()),
            ..EndReport::default()
        },
        streams: Vec::new(),
        intervals: Vec::new(),
        rtt: RttReport::of_kernel(Some(rtt), vec![rtt]),
        route: None,
        limit: None,
        capture: None,
        interrupted: false,
        until_sure: None,
        broken_off: None,
        warnings: Vec::new(),
        validity: Validity::default(),
    }
}

/// The loop over `target`, and the prediction as it stood when it was fixed.
fn run_over(target: &Pretended) -> (Experiment, Prediction) {
    let mut fixed = None;
    let experiment = run(
        target,
        &Request::default(),
        Interrupt(&AtomicBool::new(false)),
        &mut |event| {
            if let Event::Predicted(predicted) = event {
                assert!(
                    target.journal.borrow().is_empty(),
                    "the prediction comes before any measurement"
                );
                fixed = Some(predicted.prediction.clone());
            }
        },
    );
    (experiment.unwrap(), fixed.unwrap())
}

#[test]
fn what_tcp_info_says_does_not_move_the_prediction() {
    let (mib, ample) = (ByteCount::from_mib, ByteCount::from_mib(20));
    let full_buffer = Pretended::new(samples(mib(4), ample, RTT));
    let (sender_limited, fixed) = run_over(&full_buffer);
    assert_eq!(sender_limited.verdict.kind, Limit::SendBuffer);
    assert_eq!(sender_limited.prediction, fixed);

    // Another world in TCP_INFO: a small receive window, a slower rate, a longer round trip.
    let small_window = Pretended::new(samples(mib(1), mib(1), Span::from_millis(250)));
    let (window_limited, other) = run_over(&small_window);
    assert_eq!(
        window_limited.verdict.kind,
        Limit::ReceiveWindow,
        "the evidence was read"
    );
    assert_eq!(other, fixed);
    assert_eq!(window_limited.prediction, fixed);
}

#[test]
fn a_remedy_is_applied_proven_and_undone_in_this_order() {
    let target = Pretended::new(samples(
        ByteCount::from_mib(4),
        ByteCount::from_mib(20),
        RTT,
    ));
    let (experiment, _) = run_over(&target);
    assert_eq!(
        *target.journal.borrow(),
        ["measured", "applied at Sender", "measured", "undone"]
    );
    let proof = experiment.proof.unwrap();
    assert!(proof.prediction.kernel_model > experiment.prediction.kernel_model);
    assert!(experiment.undone.unwrap().restored);
    assert!(
        proof.remedy.commands.apply[0].starts_with("sysctl -w net.ipv4.tcp_wmem="),
        "{:?}",
        proof.remedy.commands
    );
    assert_eq!(
        proof.remedy.commands.undo,
        ["sysctl -w net.ipv4.tcp_wmem=\"4096 16384 4194304\"  # sender"]
    );
}

#[test]
fn a_proof_that_fails_is_undone_all_the_same() {
    let mut target = Pretended::new(samples(
        ByteCount::from_mib(4),
        ByteCount::from_mib(20),
        RTT,
    ));
    target.refuses_to_measure_again = true;
    let result = run(
        &target,
        &Request::default(),
        Interrupt(&AtomicBool::new(false)),
        &mut |_| {},
    );
    assert!(
        matches!(result, Err(ExperimentError::Measurement(_))),
        "{result:?}"
    );
    assert_eq!(
        *target.journal.borrow(),
        ["measured", "applied at Sender", "undone"]
    );
}
