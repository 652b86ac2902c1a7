//! The UDP side of a port: it opens the UDP streams of iperf3 tests, counts the datagrams of iperf2
//! clients, and answers echo requests.
//!
//! Source addresses can be forged, so no answer is longer than the datagram that it answers. The
//! first datagram of a stream is answered only if a test with a control connection from the same
//! address waits for it. An iperf2 client gets a report for its last datagram. An echo request is
//! answered if it has the cookie of a test of the same address. All other datagrams are ignored.

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, UdpSocket as StdUdpSocket};
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime};

use crate::echo::{echo_reply, echo_test};
use crate::engine::StreamChannel;
use fullpipe_control::canonical_address;
use fullpipe_iperf::iperf2::{Iperf2Datagram, Iperf2Header, Iperf2Report, Iperf2TestKind};
use fullpipe_iperf::{DatagramCaller, JitterEstimate, classify_first_datagram, udp};
use fullpipe_sys::{TimestampedMessage, receive_arrival, stamp_passages};
use fullpipe_units::{ByteCount, Span};
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::io::Interest;
use tokio::net::UdpSocket;
use tokio::time::{sleep, timeout};

use super::admission::ClientRejection;
use super::registry::AcceptedStream;
use super::session::TestTotals;
use super::{POLL_INTERVAL, ServerEvent, TestServer, end_event};

/// Bytes of the largest datagram.
const MAX_DATAGRAM: usize = 65_535;

/// Maximum number of iperf2 flows that are counted at once; source addresses can be forged, so a
/// further flow replaces the first one by [`Iperf2Flow::eviction_order`].
const MAX_FLOWS: usize = 256;

/// Maximum number of flows that are reported one by one in a [`SWEEP_INTERVAL`]; the others are
/// only counted.
const MAX_REPORTED_FLOWS: u32 = 10;

/// Time for which a flow is kept after its end, because its client repeats the last datagram until
/// the report arrives.
const ENDED_FLOW_TIMEOUT: Duration = Duration::from_secs(5);

/// Time between two removals of flows that have ended or are silent.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum number of datagrams that are read from a new socket before it serves its stream.
const MAX_STRAYS: usize = 64;

/// Serves the datagrams that arrive at `socket`, as long as the server runs.
pub(super) async fn serve_udp(server: Rc<TestServer>, socket: UdpSocket) {
    let mut listener = UdpListener {
        server,
        socket,
        flows: HashMap::new(),
        reported: 0,
        unreported: 0,
    };
    let mut buffer = vec![0; MAX_DATAGRAM];
    let mut swept = Instant::now();
    // Without timestamps of the kernel, the time that an echo request waits in this host would
    // count as the path's.
    let _ = stamp_passages(&listener.socket, false);
    loop {
        let next = listener.socket.async_io(Interest::READABLE, || {
            receive_arrival(&listener.socket, &mut buffer)
        });
        match timeout(SWEEP_INTERVAL, next).await {
            Ok(Ok(TimestampedMessage {
                length,
                from: Some(from),
                at,
            })) if !listener.answer_echo(&buffer[..length], from, at) => {
                listener.dispatch_datagram(&buffer[..length], from);
            }
            // An ICMP error for an earlier answer.
            Ok(Err(_)) => sleep(POLL_INTERVAL).await,
            Ok(Ok(_)) | Err(_) => {}
        }
        if swept.elapsed() >= SWEEP_INTERVAL {
            swept = Instant::now();
            listener.remove_idle_flows();
        }
    }
}

struct UdpListener {
    server: Rc<TestServer>,
    socket: UdpSocket,
    /// The flows of iperf2 clients, by their addresses.
    flows: HashMap<SocketAddr, Iperf2Flow>,
    /// Number of flows that began and were reported since the last sweep.
    reported: u32,
    /// Number of flows that began and were not reported since the last sweep.
    unreported: u64,
}

impl UdpListener {
    /// Answers an echo request of a test, with the time since it arrived `at` this host. Returns
    /// false if the datagram is not an echo request.
    fn answer_echo(&self, datagram: &[u8], from: SocketAddr, at: Option<Span>) -> bool {
        let Some(cookie) = echo_test(datagram) else {
            return false;
        };
        if self
            .server
            .registry
            .borrow()
            .is_client(&cookie, canonical_address(from).ip())
        {
            let now = SystemTime::UNIX_EPOCH
                .elapsed()
                .map_or(Span::ZERO, Span::from);
            let answer = echo_reply(datagram, at.map_or(Span::ZERO, |at| now.saturating_sub(at)));
            // If the send buffer is full, the answer is lost, as it might be on the path.
            let _ = answer.map(|answer| self.socket.try_send_to(&answer, from));
        }
        true
    }

    /// Passes a datagram to its flow; the first one of an address opens a stream or begins a flow.
    fn dispatch_datagram(&mut self, datagram: &[u8], from: SocketAddr) {
        if !self.server.admission.is_allowed(from.ip()) {
            return;
        }
        if let Some(flow) = self.flows.get_mut(&from) {
            flow.count_datagram(datagram);
            return self.answer_flow_end(datagram, from);
        }
        match classify_first_datagram(datagram) {
            DatagramCaller::Iperf3 => self.accept_stream(datagram, from),
            DatagramCaller::Iperf2 if self.server.iperf2 => self.begin_flow(datagram, from),
            DatagramCaller::Iperf2 | DatagramCaller::Unknown => {}
        }
    }

    /// Opens a stream for the test that waits for one from this address. A hello that was repeated
    /// before the stream had a socket of its own opens no other.
    fn accept_stream(&mut self, hello: &[u8], from: SocketAddr) {
        let client = canonical_address(from);
        let Some((mut local, test)) = self.server.registry.borrow().expecting_test(client, hello)
        else {
            return;
        };
        let Ok(permit) = self.server.admission.admit_udp_stream(client.ip()) else {
            return;
        };
        local.set_port(self.socket.local_addr().map_or(0, |address| address.port()));
        let device = SockRef::from(&self.socket).device().unwrap_or_default();
        let Ok((stream, strays)) = connected_socket(local, device.as_deref(), client) else {
            return;
        };
        debug_assert!(hello.len() >= udp::REPLY.len());
        if stream.send(&udp::REPLY).is_ok() {
            self.server.registry.borrow_mut().opened_udp_stream(client);
            // If the test has just ended, the stream is closed.
            let _ = test.send(AcceptedStream {
                channel: StreamChannel::Udp(stream),
                permit,
            });
        }
        for (datagram, from) in strays {
            self.dispatch_datagram(&datagram, from);
        }
    }

    /// Begins to count the flow of an iperf2 client.
    fn begin_flow(&mut self, datagram: &[u8], from: SocketAddr) {
        let kind = Iperf2Header::read_datagram(datagram).kind;
        if kind != Iperf2TestKind::Upload {
            return self
                .server
                .report_rejection(canonical_address(from).ip(), ClientRejection::Iperf2Reverse);
        }
        if self.flows.len() >= MAX_FLOWS {
            let evicted = self
                .flows
                .iter()
                .min_by_key(|(_, flow)| flow.eviction_order())
                .map(|(from, _)| *from);
            evicted.map(|from| self.flows.remove(&from));
        }
        let mut flow = Iperf2Flow::new();
        flow.count_datagram(datagram);
        flow.is_reported = self.reported < MAX_REPORTED_FLOWS;
        if flow.is_reported {
            self.reported += 1;
            self.server.report_event(ServerEvent::BeganIperf2 {
                client: canonical_address(from),
            });
        } else {
            self.unreported += 1;
        }
        self.flows.insert(from, flow);
    }

    /// Answers the last datagram of a flow, each time that it arrives, and reports the end of the
    /// flow once.
    fn answer_flow_end(&mut self, datagram: &[u8], from: SocketAddr) {
        let Some(flow) = self
            .flows
            .get_mut(&from)
            .filter(|flow| flow.ended.is_some())
        else {
            return;
        };
        let is_first = !std::mem::replace(&mut flow.is_answered, true);
        let report = flow.final_report();
        if let Some(answer) = report.encode_answer(datagram) {
            // If the send buffer is full, the client asks again.
            let _ = self.socket.try_send_to(&answer, from);
        }
        if is_first && flow.is_reported {
            let totals = TestTotals::from_bytes(report.bytes, report.duration);
            self.server
                .report_event(end_event(canonical_address(from), Ok(totals)));
        }
    }

    /// Removes flows that have ended or are silent, and reports the number of flows that were not
    /// reported one by one.
    fn remove_idle_flows(&mut self) {
        let timeout: Duration = self.server.client_timeout.stall_limit().into();
        let server = &self.server;
        self.reported = 0;
        let flows = std::mem::take(&mut self.unreported);
        if flows > 0 {
            server.report_event(ServerEvent::UnreportedFlows { flows });
        }
        self.flows.retain(|from, flow| {
            let silent = flow.latest.elapsed() >= timeout;
            if silent && flow.ended.is_none() && flow.is_reported {
                let why = format!(
                    "no datagram arrived for {}",
                    server.client_timeout.stall_limit()
                );
                server.report_event(end_event(canonical_address(*from), Err(why.into())));
            }
            !silent
                && flow
                    .ended
                    .is_none_or(|ended| ended.elapsed() < ENDED_FLOW_TIMEOUT)
        });
    }
}

/// The counts of an iperf2 client's datagrams.
struct Iperf2Flow {
    started: Instant,
    latest: Instant,
    bytes: u64,
    datagrams: u64,
    /// Highest sequence number. The last datagram counts as a datagram if its number is new, as in
    /// iperf2.
    highest: u64,
    out_of_order: u64,
    jitter: JitterEstimate,
    ended: Option<Instant>,
    is_answered: bool,
    /// True if the start of the flow was reported; its end is then reported as well.
    is_reported: bool,
}

impl Iperf2Flow {
    fn new() -> Self {
        let now = Instant::now();
        Self {
            started: now,
            latest: now,
            bytes: 0,
            datagrams: 0,
            highest: 0,
            out_of_order: 0,
            jitter: JitterEstimate::default(),
            ended: None,
            is_answered: false,
            is_reported: true,
        }
    }

    /// Returns a key by which flows are evicted, lowest first: those with few datagrams, and among
    /// these the longest silent.
    fn eviction_order(&self) -> (u32, Instant) {
        (self.datagrams.max(1).ilog2(), self.latest)
    }

    fn count_datagram(&mut self, payload: &[u8]) {
        let Some(datagram) = Iperf2Datagram::read_payload(payload).filter(|_| self.ended.is_none())
        else {
            return;
        };
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
            self.jitter
                .record_datagram(datagram.sent, now.duration_since(self.started).into());
        }
    }

    fn final_report(&self) -> Iperf2Report {
        Iperf2Report {
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

/// Answers a hello that has arrived at the socket of a stream before data flows there: the answer
/// to the first one was lost, or is late.
pub(super) fn answer_hello(stream: &StdUdpSocket) {
    let mut datagram = [0; 64];
    if stream
        .recv(&mut datagram)
        .is_ok_and(|length| udp::is_hello(&datagram[..length]))
    {
        // If this answer is lost as well, the client asks once more.
        let _ = stream.send(&udp::REPLY);
    }
}

/// Returns a socket bound to `local` and `device` and connected to `peer`, on which no call waits,
/// with the datagrams of others that it received between the two calls.
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
mod tests;
