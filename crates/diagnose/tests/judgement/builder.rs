//! Evidence as Linux 6.18 gives it, made from a few lines about a transfer.

use fullpipe_record::{
    Buffer, CongestionState, Evidence, Framing, HostSettings, Machine, Request, Sample,
    SocketMemory, SocketReadback, TcpInfo, find_steady,
};
use fullpipe_units::{BitRate, ByteCount, SegCount, Span};

pub(crate) const MSS: u64 = 1448;
pub(crate) const MIB: f64 = 1024.0 * 1024.0;
const SAMPLE_MILLIS: u64 = 50;

/// One stream at a moment; sizes in bytes, rates in Mbit/s, shares of the time since the last
/// moment.
#[derive(Clone)]
pub(crate) struct Moment {
    pub(crate) mbps: f64,
    pub(crate) rtt_ms: f64,
    pub(crate) in_flight: f64,
    pub(crate) cwnd: f64,
    pub(crate) ssthresh: Option<f64>,
    pub(crate) window: f64,
    pub(crate) sndbuf: f64,
    pub(crate) unsent: f64,
    pub(crate) busy: f64,
    pub(crate) rwnd_limited: f64,
    pub(crate) sndbuf_limited: f64,
    pub(crate) app_limited: bool,
    /// Segments sent again per second.
    pub(crate) lost_per_second: f64,
    pub(crate) recovering: bool,
}

/// A stream with more than enough of everything, at its congestion window.
pub(crate) fn moment(mbps: f64, rtt_ms: f64) -> Moment {
    let in_flight = mbps * 1e6 / 8.0 * rtt_ms / 1e3;
    Moment {
        mbps,
        rtt_ms,
        in_flight,
        cwnd: in_flight,
        ssthresh: Some(in_flight * 0.7),
        window: in_flight * 2.0 + 64.0 * 1024.0,
        sndbuf: in_flight * 3.2,
        unsent: in_flight * 2.2,
        busy: 1.0,
        rwnd_limited: 0.0,
        sndbuf_limited: 0.0,
        app_limited: false,
        lost_per_second: 0.0,
        recovering: false,
    }
}

/// A transfer of so many seconds; `at` gives each stream at a time in seconds.
pub(crate) fn samples(seconds: f64, streams: u16, at: impl Fn(f64) -> Moment) -> Vec<Sample> {
    (0..streams)
        .flat_map(|stream| stream_samples(seconds, stream, &at))
        .collect()
}

fn stream_samples(seconds: f64, stream: u16, at: &impl Fn(f64) -> Moment) -> Vec<Sample> {
    let step = SAMPLE_MILLIS as f64 / 1e3;
    let mut sums = Sums::default();
    let mut samples = Vec::new();
    for snapshot in 1..=(seconds / step).round() as u64 {
        let moment = at(snapshot as f64 * step);
        sums.add(&moment, step);
        samples.push(sample(
            Span::from_millis(snapshot * SAMPLE_MILLIS),
            stream,
            &moment,
            &sums,
        ));
    }
    samples
}

#[derive(Default)]
struct Sums {
    acked: f64,
    lost: f64,
    busy: f64,
    rwnd_limited: f64,
    sndbuf_limited: f64,
    least_rtt_ms: Option<f64>,
}

impl Sums {
    fn add(&mut self, moment: &Moment, step: f64) {
        self.acked += moment.mbps * 1e6 / 8.0 * step;
        self.lost += moment.lost_per_second * step;
        self.busy += moment.busy * step;
        self.rwnd_limited += moment.rwnd_limited * step;
        self.sndbuf_limited += moment.sndbuf_limited * step;
        self.least_rtt_ms = Some(
            self.least_rtt_ms
                .map_or(moment.rtt_ms, |least| least.min(moment.rtt_ms)),
        );
    }
}

fn sample(at: Span, stream: u16, moment: &Moment, sums: &Sums) -> Sample {
    let bytes = ByteCount::from_f64;
    let segments = |size: f64| SegCount::new((size / MSS as f64).round() as u64);
    let lost = sums.lost.floor();
    let sent = sums.acked + moment.in_flight + lost * MSS as f64;
    let state = if moment.recovering {
        CongestionState::Recovery
    } else {
        CongestionState::Open
    };
    let tcp = TcpInfo {
        congestion_state: Some(state),
        timestamps: Some(true),
        sack: Some(true),
        window_scaling: Some(true),
        snd_wscale: Some(10),
        rcv_wscale: Some(10),
        app_limited: Some(moment.app_limited),
        snd_mss: Some(ByteCount::new(MSS)),
        unacked: Some(segments(moment.in_flight)),
        sacked: Some(SegCount::ZERO),
        lost: Some(SegCount::ZERO),
        retrans: Some(SegCount::ZERO),
        path_mtu: Some(ByteCount::new(1500)),
        rtt: Some(Span::from_secs_f64(moment.rtt_ms / 1e3)),
        ssthresh: moment.ssthresh.map(segments),
        cwnd: Some(segments(moment.cwnd)),
        total_retrans: Some(SegCount::new(lost as u64)),
        bytes_acked: Some(bytes(sums.acked)),
        not_sent: Some(bytes(moment.unsent)),
        min_rtt: sums.least_rtt_ms.map(|rtt| Span::from_secs_f64(rtt / 1e3)),
        data_segs_out: Some(segments(sent)),
        delivery_rate: Some(BitRate::from_bps_f64(moment.mbps * 1e6)),
        busy: Some(Span::from_secs_f64(sums.busy)),
        rwnd_limited: Some(Span::from_secs_f64(sums.rwnd_limited)),
        sndbuf_limited: Some(Span::from_secs_f64(sums.sndbuf_limited)),
        bytes_sent: Some(bytes(sent)),
        bytes_retrans: Some(bytes(lost * MSS as f64)),
        dsack_dups: Some(SegCount::ZERO),
        snd_wnd: Some(bytes(moment.window)),
        ..TcpInfo::default()
    };
    let memory = SocketMemory {
        sndbuf: bytes(moment.sndbuf),
        wmem_queued: bytes(moment.in_flight + moment.unsent),
        wmem_alloc: bytes(moment.in_flight),
        ..SocketMemory::default()
    };
    Sample {
        at,
        stream,
        bytes: bytes(sums.acked + moment.in_flight + moment.unsent),
        tcp,
        memory: Some(memory),
    }
}

/// The evidence of those samples, between two hosts with the defaults of Linux 6.18.
pub(crate) fn evidence(congestion: &str, idle_ms: u64, samples: Vec<Sample>) -> Evidence {
    let ended_at = samples
        .iter()
        .map(|sample| sample.at)
        .max()
        .unwrap_or_default();
    let idle_rtt = Some(Span::from_millis(idle_ms));
    let streams = samples
        .iter()
        .map(|sample| sample.stream)
        .max()
        .map_or(1, |last| last + 1);
    Evidence {
        request: Request {
            streams,
            duration: ended_at,
            congestion: Some(congestion.to_owned()),
            ..Request::default()
        },
        sender: Some(host()),
        receiver: Some(host()),
        sender_sockets: (0..streams)
            .map(|stream| socket(stream, congestion))
            .collect(),
        receiver_sockets: vec![],
        sender_machine: Machine::default(),
        receiver_machine: Machine::default(),
        program: None,
        is_watched: false,
        steady: find_steady(&samples, idle_rtt, ended_at),
        sender_samples: samples,
        receiver_samples: vec![],
        idle_rtt,
        idle_spread: None,
        loaded_rtt: None,
        bandwidth: None,
        framing: Framing::Ethernet,
        http2_wait: None,
        capture: None,
    }
}

pub(crate) fn socket(stream: u16, congestion: &str) -> SocketReadback {
    SocketReadback {
        stream,
        sndbuf: ByteCount::new(87_040),
        rcvbuf: ByteCount::new(131_072),
        congestion: congestion.to_owned(),
        local: "198.18.0.1:40000".to_owned(),
        remote: "198.18.0.2:5201".to_owned(),
        handshake: None,
        syn_quotes: Vec::new(),
    }
}

/// A host with the defaults of Linux 6.18.
pub(crate) fn host() -> HostSettings {
    HostSettings::of_linux_6_18()
}

/// Those of the samples' fields that `forget` clears were not reported by the kernel.
pub(crate) fn without(mut evidence: Evidence, forget: impl Fn(&mut Sample)) -> Evidence {
    evidence.sender_samples.iter_mut().for_each(forget);
    evidence
}

pub(crate) fn stated(mut evidence: Evidence, mbps: u64) -> Evidence {
    evidence.bandwidth = Some(BitRate::from_mbps(mbps));
    evidence
}

/// Slow start from ten segments towards the stream that `then` gives, which it reaches after about
/// ten round trips.
fn after_slow_start(t: f64, then: Moment) -> Moment {
    let rounds = t * 1e3 / then.rtt_ms;
    let reached = 10.0 * MSS as f64 * 2.0_f64.powf(rounds);
    if reached >= then.in_flight {
        return then;
    }
    let mbps = reached * 8.0 / then.rtt_ms / 1e3;
    Moment {
        ssthresh: None,
        window: then.window,
        ..moment(mbps, then.rtt_ms)
    }
}

/// Between 0 and 1, up and down, without a clear period.
fn wobble(t: f64) -> f64 {
    0.5 + 0.25 * (t * 17.0).sin() + 0.25 * (t * 41.0).sin()
}

/// 3 MiB of advertised window over 100 ms: 252 Mbit/s. The sender has cwnd and data to spare.
pub(crate) fn receive_window(congestion: &str, window: f64, streams: u16) -> Evidence {
    let bbr = congestion == "bbr";
    let full = samples(10.0, streams, |t| {
        let in_flight = window - wobble(t) * (window / 8.0).min(60e3);
        after_slow_start(
            t,
            Moment {
                in_flight,
                window,
                cwnd: window * if bbr { 2.0 } else { 1.3 },
                sndbuf: window * 4.0,
                unsent: window * 2.0,
                rwnd_limited: if bbr { 0.54 } else { 0.99 },
                ..moment(in_flight * 8.0 / 1e5, 100.0)
            },
        )
    });
    evidence(congestion, 100, full)
}

/// The pattern of the program's writes.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Writes {
    Sleeping,
    Retrying,
}

/// A send buffer of `sndbuf` over 100 ms, with windows to spare.
pub(crate) fn send_buffer(congestion: &str, sndbuf: f64, writes: Writes) -> Evidence {
    let full = samples(10.0, 1, |t| {
        let used = if writes == Writes::Sleeping {
            2.0 / 3.0 + (t * 7.3).fract() / 3.0
        } else {
            0.97 + 0.03 * wobble(t)
        };
        // BBR spreads what a woken writer adds; CUBIC sends it at once.
        let unsent = match (congestion, writes) {
            ("bbr", Writes::Sleeping) => sndbuf * (used - 2.0 / 3.0) * 0.8,
            ("bbr", Writes::Retrying) => sndbuf * 0.06 * wobble(t),
            _ => 0.0,
        };
        let in_flight = sndbuf * used - unsent;
        after_slow_start(
            t,
            Moment {
                in_flight,
                cwnd: sndbuf * 2.0,
                window: sndbuf * 3.0,
                sndbuf,
                unsent,
                sndbuf_limited: if writes == Writes::Sleeping {
                    0.012
                } else {
                    0.86
                },
                app_limited: true,
                ..moment(in_flight * 8.0 / 1e5, 100.0)
            },
        )
    });
    evidence(congestion, 100, full)
}

/// 100 Mbit/s with a queue: 94.15 Mbit/s of payload. CUBIC fills the queue, up to as much as the
/// pipe, and overflows it every four seconds; BBR leaves it empty.
pub(crate) fn capacity(congestion: &str, rtt_ms: f64, streams: u16) -> Evidence {
    let mbps = 94.15 / f64::from(streams);
    let full = samples(20.0, streams, |t| {
        let tooth = (t / 4.0).fract();
        let then = if congestion == "bbr" {
            let idle = moment(mbps, rtt_ms * 1.02);
            Moment {
                cwnd: idle.in_flight * 2.0,
                ..idle
            }
        } else {
            let lost = if tooth < 0.02 { 40.0 } else { 0.0 };
            Moment {
                lost_per_second: lost,
                recovering: tooth < 0.02,
                ..moment(mbps, rtt_ms * (1.4 + 0.6 * tooth))
            }
        };
        after_slow_start(t, then)
    });
    evidence(congestion, rtt_ms as u64, full)
}

/// A sawtooth with a loss at each of `losses` seconds; between them the window grows by `growth`
/// Mbit/s a second and then keeps `kept` of it.
pub(crate) fn sawtooth(
    congestion: &str,
    seconds: f64,
    losses: &[f64],
    growth: f64,
    kept: f64,
    first: f64,
) -> Evidence {
    let full = samples(seconds, 1, |t| {
        let mut rate = first;
        let mut last = 0.0;
        for loss in losses.iter().filter(|loss| **loss <= t) {
            rate = (rate + growth * (loss - last)) * kept;
            last = *loss;
        }
        rate += growth * (t - last);
        let just_lost = losses.iter().any(|loss| (0.0..0.1).contains(&(t - loss)));
        let then = Moment {
            recovering: just_lost,
            lost_per_second: if just_lost { 10.0 } else { 0.0 },
            ssthresh: Some(rate * 1e5 / 8.0 * 0.6),
            ..moment(rate, 100.0)
        };
        after_slow_start(t, then)
    });
    evidence(congestion, 100, full)
}

/// A program that writes 10 kB every 20 ms.
pub(crate) fn idle(congestion: &str) -> Evidence {
    let full = samples(5.0, 1, |_| Moment {
        in_flight: 0.0,
        unsent: 0.0,
        busy: 0.005,
        app_limited: true,
        cwnd: 20e3,
        window: 3e6,
        sndbuf: 87e3,
        ..moment(4.0, 0.1)
    });
    evidence(congestion, 1, full)
}

/// A program that always has something on the way, and never enough: 40 Mbit/s over 100 ms.
pub(crate) fn trickle(congestion: &str) -> Evidence {
    let full = samples(10.0, 1, |t| Moment {
        in_flight: 500e3,
        unsent: 0.0,
        app_limited: true,
        cwnd: 3e6,
        window: 6e6,
        sndbuf: 4.0 * MIB,
        mbps: 40.0,
        rtt_ms: 100.0 + wobble(t),
        ..moment(40.0, 100.0)
    });
    evidence(congestion, 100, full)
}

/// A writer that was asked for 40 Mbit/s, and keeps to it.
pub(crate) fn at_a_rate(mut evidence: Evidence) -> Evidence {
    evidence.request.rate = Some(BitRate::from_mbps(40));
    evidence
}

/// A reader that falls behind: after two seconds its window is down from 3 MiB to a tenth.
pub(crate) fn slow_reader(congestion: &str) -> Evidence {
    let full = samples(10.0, 1, |t| {
        let window = if t < 2.0 {
            3.0 * MIB
        } else {
            0.3 * MIB * (0.7 + 0.3 * wobble(t))
        };
        let in_flight = window * 0.95;
        after_slow_start(
            t,
            Moment {
                in_flight,
                window,
                cwnd: 5.0 * MIB,
                sndbuf: 4.0 * MIB,
                unsent: MIB,
                rwnd_limited: if congestion == "bbr" { 0.4 } else { 0.95 },
                ..moment(in_flight * 8.0 / 1e5, 100.0)
            },
        )
    });
    evidence(congestion, 100, full)
}

/// The same evidence of a program that asked for `request` bytes of buffer.
pub(crate) fn asked(mut evidence: Evidence, request: u64) -> Evidence {
    evidence.request.buffer = Buffer::Request(ByteCount::new(request));
    evidence
}
