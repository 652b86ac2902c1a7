//! The UDP side of a port: it opens the UDP streams of iperf3 tests, counts the datagrams of iperf2 clients, and
//! answers echo requests.
//!
//! Source addresses can be forged, so no answer is longer than the datagram that it answers. The first datagram of a
//! stream is answered only if a test with a control connection from the same address waits for it. An iperf2 client
//! gets a report for its last datagram. An echo request is answered if it has the cookie of a test of the same address.
//! All other datagrams are ignored.

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, UdpSocket as StdUdpSocket};
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime};

use fullpipe_control::canonical;
use fullpipe_iperf::iperf2::{Datagram, Header, Kind, Report};
use fullpipe_iperf::{DatagramCaller, Jitter, classify_first_datagram, udp};
use fullpipe_load::Channel;
use fullpipe_route::{echo_reply, echo_test};
use fullpipe_sys::{Stamped, arrival, stamp_passages};
use fullpipe_units::{BitRate, ByteCount, Span};
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::io::Interest;
use tokio::net::UdpSocket;
use tokio::time::{sleep, timeout};

use super::admission::Rejection;
use super::registry::AcceptedStream;
use super::test::TestTotals;
use super::{POLL_INTERVAL, Server, ServerEvent, end_event};

/// Bytes of the largest datagram.
const MAX_DATAGRAM: usize = 65_535;

/// Maximum number of iperf2 flows that are counted at once; source addresses can be forged, so a further flow replaces
/// the first one by [`Flow::eviction_order`].
const MAX_FLOWS: usize = 256;

/// Maximum number of flows that are reported one by one in a [`SWEEP_INTERVAL`]; the others are only counted.
const MAX_REPORTED_FLOWS: u32 = 10;

/// Time for which a flow is kept after its end, because its client repeats the last datagram until the report arrives.
const ENDED_FLOW_TIMEOUT: Duration = Duration::from_secs(5);

/// Time between two removals of flows that have ended or are silent.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum number of datagrams that are read from a new socket before it serves its stream.
const MAX_STRAYS: usize = 64;

/// Serves the datagrams that arrive at `socket`, as long as the server runs.
pub(super) async fn serve_udp(server: Rc<Server>, socket: UdpSocket) {
    let mut listener = UdpListener { server, socket, flows: HashMap::new(), reported: 0, unreported: 0 };
    let mut buffer = vec![0; MAX_DATAGRAM];
    let mut swept = Instant::now();
    // Without timestamps of the kernel, the time that an echo request waits in this host would count as the path's.
    let _ = stamp_passages(&listener.socket, false);
    loop {
        let next = listener.socket.async_io(Interest::READABLE, || arrival(&listener.socket, &mut buffer));
        match timeout(SWEEP_INTERVAL, next).await {
            Ok(Ok(Stamped { length, from: Some(from), at })) if !listener.echo(&buffer[..length], from, at) => {
                listener.receive(&buffer[..length], from);
            }
            // An ICMP error for an earlier answer.
            Ok(Err(_)) => sleep(POLL_INTERVAL).await,
            Ok(Ok(_)) | Err(_) => {}
        }
        if swept.elapsed() >= SWEEP_INTERVAL {
            swept = Instant::now();
            listener.sweep();
        }
    }
}

struct UdpListener {
    server: Rc<Server>,
    socket: UdpSocket,
    /// The flows of iperf2 clients, by their addresses.
    flows: HashMap<SocketAddr, Flow>,
    /// Number of flows that began and were reported since the last sweep.
    reported: u32,
    /// Number of flows that began and were not reported since the last sweep.
    unreported: u64,
}

impl UdpListener {
    /// Answers an echo request of a test, with the time since it arrived `at` this host. Returns false if the datagram
    /// is not an echo request.
    fn echo(&self, datagram: &[u8], from: SocketAddr, at: Option<Span>) -> bool {
        let Some(cookie) = echo_test(datagram) else { return false };
        if self.server.registry.borrow().is_client(&cookie, canonical(from).ip()) {
            let now = SystemTime::UNIX_EPOCH.elapsed().map_or(Span::ZERO, Span::from);
            let answer = echo_reply(datagram, at.map_or(Span::ZERO, |at| now.saturating_sub(at)));
            // If the send buffer is full, the answer is lost, as it might be on the path.
            let _ = answer.map(|answer| self.socket.try_send_to(&answer, from));
        }
        true
    }

    /// Passes a datagram to its flow; the first one of an address opens a stream or begins a flow.
    fn receive(&mut self, datagram: &[u8], from: SocketAddr) {
        if !self.server.admission.is_allowed(from.ip()) {
            return;
        }
        if let Some(flow) = self.flows.get_mut(&from) {
            flow.count(datagram);
            return self.answer(datagram, from);
        }
        match classify_first_datagram(datagram) {
            DatagramCaller::Iperf3 => self.accept_stream(datagram, from),
            DatagramCaller::Iperf2 if self.server.iperf2 => self.begin_flow(datagram, from),
            DatagramCaller::Iperf2 | DatagramCaller::Unknown => {}
        }
    }

    /// Opens a stream for the test that waits for one from this address. A hello that was repeated before the stream
    /// had a socket of its own opens no other.
    fn accept_stream(&mut self, hello: &[u8], from: SocketAddr) {
        let client = canonical(from);
        let Some((mut local, test)) = self.server.registry.borrow().expecting_test(client, hello) else { return };
        let Ok(permit) = self.server.admission.admit_udp_stream(client.ip()) else { return };
        local.set_port(self.socket.local_addr().map_or(0, |address| address.port()));
        let device = SockRef::from(&self.socket).device().unwrap_or_default();
        let Ok((stream, strays)) = connected_socket(local, device.as_deref(), client) else { return };
        debug_assert!(hello.len() >= udp::REPLY.len());
        if stream.send(&udp::REPLY).is_ok() {
            self.server.registry.borrow_mut().opened_udp_stream(client);
            // If the test has just ended, the stream is closed.
            let _ = test.send(AcceptedStream { channel: Channel::Udp(stream), permit });
        }
        for (datagram, from) in strays {
            self.receive(&datagram, from);
        }
    }

    /// Begins to count the flow of an iperf2 client.
    fn begin_flow(&mut self, datagram: &[u8], from: SocketAddr) {
        let kind = Header::read_datagram(datagram).kind;
        if kind != Kind::Upload {
            return self.server.reject(canonical(from).ip(), Rejection::Iperf2Reverse);
        }
        if self.flows.len() >= MAX_FLOWS {
            let evicted = self.flows.iter().min_by_key(|(_, flow)| flow.eviction_order()).map(|(from, _)| *from);
            evicted.map(|from| self.flows.remove(&from));
        }
        let mut flow = Flow::new();
        flow.count(datagram);
        flow.is_reported = self.reported < MAX_REPORTED_FLOWS;
        if flow.is_reported {
            self.reported += 1;
            self.server.report(ServerEvent::BeganIperf2 { client: canonical(from) });
        } else {
            self.unreported += 1;
        }
        self.flows.insert(from, flow);
    }

    /// Answers the last datagram of a flow, each time that it arrives, and reports the end of the flow once.
    fn answer(&mut self, datagram: &[u8], from: SocketAddr) {
        let Some(flow) = self.flows.get_mut(&from).filter(|flow| flow.ended.is_some()) else { return };
        let is_first = !std::mem::replace(&mut flow.is_answered, true);
        let report = flow.report();
        if let Some(answer) = report.answer(datagram) {
            // If the send buffer is full, the client asks again.
            let _ = self.socket.try_send_to(&answer, from);
        }
        if is_first && flow.is_reported {
            let rate = BitRate::of(report.bytes, report.duration.max(Span::from_nanos(1)));
            let totals = TestTotals { bytes: report.bytes, rate, measurement: None };
            self.server.report(end_event(canonical(from), Ok(totals)));
        }
    }

    /// Removes flows that have ended or are silent, and reports the number of flows that were not reported one by one.
    fn sweep(&mut self) {
        let timeout: Duration = self.server.client_timeout.stall().into();
        let server = &self.server;
        self.reported = 0;
        let flows = std::mem::take(&mut self.unreported);
        if flows > 0 {
            server.report(ServerEvent::UnreportedFlows { flows });
        }
        self.flows.retain(|from, flow| {
            let silent = flow.latest.elapsed() >= timeout;
            if silent && flow.ended.is_none() && flow.is_reported {
                let why = format!("no datagram arrived for {}", server.client_timeout.stall());
                server.report(end_event(canonical(*from), Err(why.into())));
            }
            !silent && flow.ended.is_none_or(|ended| ended.elapsed() < ENDED_FLOW_TIMEOUT)
        });
    }
}

/// The counts of an iperf2 client's datagrams.
struct Flow {
    started: Instant,
    latest: Instant,
    bytes: u64,
    datagrams: u64,
    /// Highest sequence number. The last datagram counts as a datagram if its number is new, as in iperf2.
    highest: u64,
    out_of_order: u64,
    jitter: Jitter,
    ended: Option<Instant>,
    is_answered: bool,
    /// True if the start of the flow was reported; its end is then reported as well.
    is_reported: bool,
}

impl Flow {
    fn new() -> Self {
        let now = Instant::now();
        Self {
            started: now,
            latest: now,
            bytes: 0,
            datagrams: 0,
            highest: 0,
            out_of_order: 0,
            jitter: Jitter::default(),
            ended: None,
            is_answered: false,
            is_reported: true,
        }
    }

    /// Returns a key by which flows are evicted, lowest first: those with few datagrams, and among these the longest
    /// silent.
    fn eviction_order(&self) -> (u32, Instant) {
        (self.datagrams.max(1).ilog2(), self.latest)
    }

    fn count(&mut self, payload: &[u8]) {
        let Some(datagram) = Datagram::read(payload).filter(|_| self.ended.is_none()) else { return };
        let now = Instant::now();
        self.latest = now;
        self.bytes = self.bytes.saturating_add(payload.len() as u64);
        let number = datagram.number.unsigned_abs();
        if number > self.highest {
            self.highest = number;
            self.datagrams += 1;
        } else if !datagram.is_last() {
            self.datagrams += 1;
            self.out_of_order += 1;
        }
        if datagram.is_last() {
            self.ended = Some(now);
        } else {
            self.jitter.arrived(datagram.sent, now.duration_since(self.started).into());
        }
    }

    fn report(&self) -> Report {
        Report {
            bytes: ByteCount::new(self.bytes),
            duration: self.latest.duration_since(self.started).into(),
            lost: self.highest.saturating_sub(self.datagrams),
            out_of_order: self.out_of_order,
            datagrams: self.highest,
            jitter: self.jitter.get(),
        }
    }
}

/// A datagram from another address that arrived at the new socket of a stream, with that address.
type Stray = (Vec<u8>, SocketAddr);

/// Answers a hello that has arrived at the socket of a stream before data flows there: the answer to the first one was
/// lost, or is late.
pub(super) fn answer_hello(stream: &StdUdpSocket) {
    let mut datagram = [0; 64];
    if stream.recv(&mut datagram).is_ok_and(|length| udp::is_hello(&datagram[..length])) {
        // If this answer is lost as well, the client asks once more.
        let _ = stream.send(&udp::REPLY);
    }
}

/// Returns a socket bound to `local` and `device` and connected to `peer`, on which no call waits, with the datagrams
/// of others that it received between the two calls.
fn connected_socket(
    local: SocketAddr,
    device: Option<&[u8]>,
    peer: SocketAddr,
) -> io::Result<(StdUdpSocket, Vec<Stray>)> {
    let socket = Socket::new(Domain::for_address(local), Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    if device.is_some() {
        socket.bind_device(device)?;
    }
    socket.bind(&local.into())?;
    socket.connect(&peer.into())?;
    let socket = StdUdpSocket::from(socket);
    let mut strays = Vec::new();
    let mut buffer = vec![0; MAX_DATAGRAM];
    for _ in 0..MAX_STRAYS {
        match socket.recv_from(&mut buffer) {
            Ok((length, from)) if from != peer => strays.push((buffer[..length].to_vec(), from)),
            Ok(_) => {}
            Err(_) => break,
        }
    }
    Ok((socket, strays))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn datagram(number: i64, millis: u64) -> Vec<u8> {
        let mut payload = vec![0; 1470];
        let sent = Span::from_secs(1_700_000_000) + Span::from_millis(millis);
        Datagram { number, sent }.write(payload.first_chunk_mut().unwrap());
        payload
    }

    #[test]
    fn a_flow_is_counted_by_its_sequence_numbers() {
        let mut flow = Flow::new();
        for number in [1, 2, 5, 4, 7, 7] {
            flow.count(&datagram(number, 0));
        }
        flow.count(&[0; 10]);
        flow.count(&datagram(-8, 0));
        flow.count(&datagram(-8, 0));
        flow.count(&datagram(9, 0));
        let report = flow.report();
        assert_eq!((report.datagrams, report.lost, report.out_of_order), (8, 1, 2));
        assert_eq!(report.bytes, ByteCount::new(7 * 1470));
        assert!(flow.ended.is_some());
    }

    #[test]
    fn datagrams_from_new_ports_do_not_displace_a_flow_with_a_history() {
        let (mut old, mut new) = (Flow::new(), Flow::new());
        for number in 1..100 {
            old.count(&datagram(number, 0));
        }
        new.count(&datagram(1, 0));
        assert!(new.latest >= old.latest && new.eviction_order() < old.eviction_order());
        assert!(
            Flow { latest: old.latest, ..Flow::new() }.eviction_order() < new.eviction_order(),
            "of two flows with as many datagrams, the silent one"
        );
    }

    #[test]
    fn the_jitter_of_a_flow_is_a_sixteenth_of_each_change() {
        let mut flow = Flow::new();
        for (number, millis) in [(1, 0), (2, 16_000)] {
            flow.count(&datagram(number, millis));
        }
        let jitter = flow.report().jitter;
        assert!((Span::from_millis(900)..=Span::from_secs(1)).contains(&jitter), "{jitter}");
    }

    #[test]
    fn impossible_sequence_numbers_do_no_harm() {
        let mut flow = Flow::new();
        for number in [i64::MAX, 1, i64::MAX, i64::MIN] {
            flow.count(&datagram(number, u64::from(u32::MAX)));
        }
        assert_eq!(flow.report().datagrams, i64::MIN.unsigned_abs());
        let answer = flow.report().answer(&datagram(i64::MIN, 0)).unwrap();
        assert!(answer.len() <= 128);
    }

    #[test]
    fn a_connected_socket_receives_only_from_its_peer() {
        let any = "127.0.0.1:0".parse::<SocketAddr>().unwrap();
        let listener = Socket::new(Domain::IPV4, Type::DGRAM, None).unwrap();
        listener.set_reuse_address(true).unwrap();
        listener.bind(&any.into()).unwrap();
        let listener = StdUdpSocket::from(listener);
        let local = listener.local_addr().unwrap();
        let [peer, other] = [any, any].map(|any| StdUdpSocket::bind(any).unwrap());
        let (connected, strays) = connected_socket(local, None, peer.local_addr().unwrap()).unwrap();
        assert!(strays.is_empty());
        for (socket, payload) in [(&peer, b"to connected"), (&other, b"to listener ")] {
            socket.send_to(payload, local).unwrap();
        }
        for (socket, payload) in [(&connected, b"to connected"), (&listener, b"to listener ")] {
            socket.set_nonblocking(false).unwrap();
            socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            let mut buffer = [0; 12];
            socket.recv(&mut buffer).unwrap();
            assert_eq!(&buffer, payload);
        }
    }

    #[test]
    fn a_hello_is_answered_on_an_open_stream_and_nothing_else_is() {
        let peer = StdUdpSocket::bind("127.0.0.1:0").unwrap();
        let local = "127.0.0.1:0".parse().unwrap();
        let (stream, _) = connected_socket(local, Some(b"lo"), peer.local_addr().unwrap()).unwrap();
        assert_eq!(SockRef::from(&stream).device().unwrap().as_deref(), Some(&b"lo"[..]));
        peer.connect(stream.local_addr().unwrap()).unwrap();
        peer.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        answer_hello(&stream);
        for sent in [&b"no hello"[..], b"nor this one", &udp::HELLO] {
            peer.send(sent).unwrap();
            answer_hello(&stream);
        }
        let mut answer = [0; 16];
        let length = peer.recv(&mut answer).unwrap();
        assert_eq!(answer[..length], udp::REPLY);
        peer.set_nonblocking(true).unwrap();
        assert!(peer.recv(&mut answer).is_err(), "there was one hello");
    }
}
