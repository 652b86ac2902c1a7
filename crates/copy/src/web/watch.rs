//! The connections of a download, watched at this end: the evidence of what limits it.

use std::net::{Shutdown, TcpStream};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use fullpipe_diagnose::diagnose;
use fullpipe_record::{
    CopyLimit, Direction, Evidence, HostSettings, Limit, Request, Sample, SocketReadback, Verdict,
    Writer, steady_of_receiver,
};
use fullpipe_sys::{lock, socket_memory, tcp_info};
use fullpipe_units::{BitRate, ByteCount, Span};

/// Time between two samples at first.
pub(super) const SAMPLE_INTERVAL: Duration = Duration::from_millis(100);

/// Samples at most; half of them go when there are more, and later ones are twice as far apart.
const MAX_SAMPLES: usize = 16_000;

/// Part of the bytes of the largest connection below which another one is not counted.
const MIN_SHARE: f64 = 0.1;

/// Part of the shortest round-trip time, and the time, by which it grows where a queue stands.
const QUEUE_SHARE: f64 = 0.25;
const QUEUE_TIME: Span = Span::from_millis(4);

/// Watches the connections of a download.
pub(super) struct SocketWatch {
    began: Instant,
    state: Mutex<WatchState>,
}

struct WatchState {
    open: Vec<(u16, TcpStream)>,
    sockets: Vec<SocketReadback>,
    samples: Vec<Sample>,
    shortest_rtt: Option<Span>,
    /// Samples are taken at every so many calls.
    every: u32,
    calls: u32,
}

impl SocketWatch {
    pub(super) fn new() -> Self {
        let state = WatchState {
            open: Vec::new(),
            sockets: Vec::new(),
            samples: Vec::new(),
            shortest_rtt: None,
            every: 1,
            calls: 0,
        };
        Self {
            began: Instant::now(),
            state: Mutex::new(state),
        }
    }

    /// Watches a connection, whose handshake took so long, and returns its number.
    pub(super) fn add_socket(&self, socket: TcpStream, rtt: Span) -> u16 {
        let mut state = lock(&self.state);
        let stream = state.sockets.len() as u16;
        state.sockets.push(readback(stream, &socket));
        state.shortest_rtt = Some(state.shortest_rtt.map_or(rtt, |shortest| shortest.min(rtt)));
        state.open.push((stream, socket));
        stream
    }

    /// Returns the number of connections that are open.
    pub(super) fn open_count(&self) -> usize {
        lock(&self.state).open.len()
    }

    /// Closes a connection.
    pub(super) fn close_socket(&self, stream: u16) {
        let mut state = lock(&self.state);
        let at = state.open.iter().position(|(number, _)| *number == stream);
        if let Some(at) = at {
            let (_, socket) = state.open.swap_remove(at);
            state.samples.extend(self.take_sample(stream, &socket));
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    /// Closes all connections, for whoever reads from them.
    pub(super) fn close_all(&self) {
        for (_, socket) in &lock(&self.state).open {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    /// Takes samples of all connections, if it is time for that.
    pub(super) fn sample_sockets(&self) {
        let mut state = lock(&self.state);
        state.calls += 1;
        if !state.calls.is_multiple_of(state.every) {
            return;
        }
        let open = state.open.iter();
        let taken: Vec<Sample> = open
            .filter_map(|(stream, socket)| self.take_sample(*stream, socket))
            .collect();
        state.samples.extend(taken);
        if state.samples.len() > MAX_SAMPLES {
            state.every *= 2;
            let mut index = 0_u32;
            state.samples.retain(|_| {
                index += 1;
                index.is_multiple_of(2)
            });
        }
    }

    fn take_sample(&self, stream: u16, socket: &TcpStream) -> Option<Sample> {
        let tcp = tcp_info(socket).ok()?;
        Some(Sample {
            at: self.began.elapsed().into(),
            stream,
            bytes: tcp.bytes_received.unwrap_or_default(),
            memory: socket_memory(socket).ok(),
            tcp,
        })
    }

    /// Returns the shortest time that a handshake took.
    pub(super) fn shortest_rtt(&self) -> Option<Span> {
        lock(&self.state).shortest_rtt
    }

    /// Returns true if the round trips that the kernel sees on most connections are longer than the
    /// first ones: packets wait in a queue.
    pub(super) fn has_queue(&self) -> bool {
        let state = lock(&self.state);
        let infos = state
            .open
            .iter()
            .filter_map(|(_, socket)| tcp_info(socket).ok());
        let mut rtts: Vec<Span> = infos.filter_map(|info| info.rcv_rtt).collect();
        rtts.sort_unstable();
        let median = rtts.get(rtts.len() / 2);
        state
            .shortest_rtt
            .zip(median)
            .is_some_and(|(shortest, median)| {
                *median > shortest + shortest.scale_by(QUEUE_SHARE).max(QUEUE_TIME)
            })
    }

    /// Returns the number of connections that carried more than next to nothing.
    pub(super) fn carrier_count(&self) -> u16 {
        let state = lock(&self.state);
        data_carriers(&state.samples, state.sockets.len(), MIN_SHARE).len() as u16
    }

    /// Returns the verdict of this end on the connections that carried the data; `None` if that was
    /// over before it was steady.
    pub(super) fn judge_transfer(&self, receiver: &HostSettings) -> Option<Verdict> {
        let evidence = self.transfer_evidence(receiver);
        evidence.steady?;
        Some(diagnose(&evidence))
    }

    fn transfer_evidence(&self, receiver: &HostSettings) -> Evidence {
        let state = lock(&self.state);
        // Together they have the rate; each is short if a server closes them often.
        let carriers = data_carriers(&state.samples, state.sockets.len(), 0.0);
        let new_number = |stream: u16| carriers.iter().position(|one| *one == stream);
        let renumbered = state.samples.iter().filter_map(|sample| {
            let stream = new_number(sample.stream)? as u16;
            Some(Sample {
                stream,
                ..sample.clone()
            })
        });
        let receiver_samples: Vec<Sample> = renumbered.collect();
        let sockets = state.sockets.iter().filter_map(|socket| {
            let stream = new_number(socket.stream)? as u16;
            Some(SocketReadback {
                stream,
                ..socket.clone()
            })
        });
        let ended_at = receiver_samples.iter().map(|sample| sample.at).max();
        let duration = ended_at.unwrap_or_default();
        Evidence {
            request: Request {
                direction: Direction::Download,
                streams: carriers.len() as u16,
                duration,
                block: ByteCount::ZERO,
                writer: Writer::Blocking,
                ..Request::default()
            },
            idle_rtt: state.shortest_rtt,
            steady: steady_of_receiver(&receiver_samples, state.shortest_rtt, duration),
            receiver: Some(receiver.clone()),
            receiver_sockets: sockets.collect(),
            is_watched: true,
            receiver_samples,
            ..Evidence::default()
        }
    }
}

/// Returns the connections that carried data, and at least this share of what the largest did.
fn data_carriers(samples: &[Sample], count: usize, min_share: f64) -> Vec<u16> {
    let mut bytes = vec![ByteCount::ZERO; count];
    for sample in samples {
        if let Some(most) = bytes.get_mut(usize::from(sample.stream)) {
            *most = (*most).max(sample.bytes);
        }
    }
    let most = bytes.iter().max().copied().unwrap_or_default();
    let least = most.scale_by(min_share).max(ByteCount::new(1));
    let carriers = (0..).zip(bytes).filter(|(_, moved)| *moved >= least);
    carriers.map(|(stream, _)| stream).collect()
}

fn readback(stream: u16, socket: &TcpStream) -> SocketReadback {
    let memory = socket_memory(socket).unwrap_or_default();
    let address = |found: std::io::Result<std::net::SocketAddr>| {
        found.map_or_else(|_| String::new(), |address| address.to_string())
    };
    SocketReadback {
        stream,
        sndbuf: memory.sndbuf,
        rcvbuf: memory.rcvbuf,
        congestion: String::new(),
        local: address(socket.local_addr()),
        remote: address(socket.peer_addr()),
        handshake: None,
        syn_quotes: Vec::new(),
    }
}

/// Returns the limit of a copy that has this verdict; `None` where that says nothing of a copy.
pub(super) const fn copy_limit(verdict: &Verdict) -> Option<CopyLimit> {
    match verdict.kind {
        Limit::ReceiveWindow => Some(CopyLimit::ReceiveWindow),
        Limit::ReceiverApplication => Some(CopyLimit::Storage),
        Limit::SendBuffer => Some(CopyLimit::SendBuffer),
        Limit::SenderApplication => Some(CopyLimit::Source),
        Limit::CongestionWindow | Limit::Capacity | Limit::Loss => {
            Some(CopyLimit::CongestionWindow)
        }
        Limit::ApplicationWindow | Limit::Pacing | Limit::Cpu | Limit::Mtu | Limit::Unknown => None,
    }
}

/// Counts what arrives, and says how fast that was since it was last asked.
pub(super) struct ArrivalRate {
    at: Instant,
    received: u64,
}

impl ArrivalRate {
    pub(super) fn new(received: u64) -> Self {
        Self {
            at: Instant::now(),
            received,
        }
    }

    /// Returns the rate since the last call, once `interval` has passed; `received` is the number of
    /// bytes up to now.
    pub(super) fn take_rate(&mut self, received: u64, interval: Span) -> Option<BitRate> {
        let elapsed = Span::from(self.at.elapsed());
        if elapsed < interval {
            return None;
        }
        let bytes = ByteCount::new(received - self.received);
        *self = Self::new(received);
        Some(BitRate::from_bytes_in(bytes, elapsed))
    }
}
