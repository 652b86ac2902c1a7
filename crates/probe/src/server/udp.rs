//! The UDP side of a port: it opens streams of iperf3 tests, and counts what iperf2 clients send.
//!
//! Nothing proves where a datagram comes from. A hello is answered only to an address from which a control connection was
//! made whose test waits for it, with as many bytes as it has; an iperf2 client gets one report for its last datagram, never
//! longer than that. Echo requests are answered with as many bytes, to the address of a test whose cookie they bring.
//! Whatever else comes is ignored.

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, UdpSocket as StdUdpSocket};
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime};

use fullpipe_iperf::iperf2::{Datagram, Header, Kind, Report};
use fullpipe_iperf::{DatagramCaller, classify_first_datagram, udp};
use fullpipe_load::Channel;
use fullpipe_route::{echo_reply, echo_test};
use fullpipe_sys::{Stamped, arrival, stamp_passages};
use fullpipe_units::{BitRate, ByteCount, Span};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::Interest;
use tokio::net::UdpSocket;
use tokio::time::{sleep, timeout};

use super::admission::Rejection;
use super::listen::canonical;
use super::registry::AcceptedStream;
use super::test::Carried;
use super::{POLL_INTERVAL, Server, ServerEvent, end_event};

/// The largest datagram that there is.
const MAX_DATAGRAM: usize = 65_535;

/// Flows of iperf2 that are counted at once. Addresses can be forged, so a new one takes the place of the one with the
/// fewest datagrams, and of those of the one that has been silent longest.
const FLOWS: usize = 256;

/// Flows that are reported in one [`SWEEP`]; of more, only the number is reported.
const REPORTED_FLOWS: u32 = 10;

/// How long the end of a flow is remembered, because its client may not have got the report.
const LINGER: Duration = Duration::from_secs(5);

/// How often flows are looked at that say nothing.
const SWEEP: Duration = Duration::from_secs(1);

/// Datagrams that are looked at where a stream's socket was open to all for a moment.
const STRAYS: usize = 64;

/// Deals with what comes to `socket`, as long as the server runs.
pub(super) async fn serve_udp(server: Rc<Server>, socket: UdpSocket) {
    let mut listener = UdpListener { server, socket, flows: HashMap::new(), reported: 0, unreported: 0 };
    let mut buffer = vec![0; MAX_DATAGRAM];
    let mut swept = Instant::now();
    // Without, the time that an echo request waits here counts as the path's.
    let _ = stamp_passages(&listener.socket, false);
    loop {
        let next = listener.socket.async_io(Interest::READABLE, || arrival(&listener.socket, &mut buffer));
        match timeout(SWEEP, next).await {
            Ok(Ok(Stamped { length, from: Some(from), at })) if !listener.echo(&buffer[..length], from, at) => {
                listener.take(&buffer[..length], from);
            }
            // What an earlier answer of ours ran into.
            Ok(Err(_)) => sleep(POLL_INTERVAL).await,
            Ok(Ok(_)) | Err(_) => {}
        }
        if swept.elapsed() >= SWEEP {
            swept = Instant::now();
            listener.sweep();
        }
    }
}

struct UdpListener {
    server: Rc<Server>,
    socket: UdpSocket,
    /// Flows of iperf2 clients, by their addresses.
    flows: HashMap<SocketAddr, Flow>,
    /// Flows that were reported since the last sweep.
    reported: u32,
    /// Flows that began since the last sweep and were not.
    unreported: u64,
}

impl UdpListener {
    /// Sends an echo request back, of a test that is known, with the time since it came `at` the host; whether it is one.
    fn echo(&self, datagram: &[u8], from: SocketAddr, at: Option<Span>) -> bool {
        let Some(cookie) = echo_test(datagram) else { return false };
        if self.server.registry.borrow().is_client(&cookie, canonical(from).ip()) {
            let now = SystemTime::UNIX_EPOCH.elapsed().map_or(Span::ZERO, Span::from);
            let answer = echo_reply(datagram, at.map_or(Span::ZERO, |at| now.saturating_sub(at)));
            // One that does not fit now is lost, as on any path.
            let _ = answer.map(|answer| self.socket.try_send_to(&answer, from));
        }
        true
    }

    fn take(&mut self, datagram: &[u8], from: SocketAddr) {
        if !self.server.admission.is_allowed(from.ip()) {
            return;
        }
        if let Some(flow) = self.flows.get_mut(&from) {
            flow.count(datagram);
            return self.answer(datagram, from);
        }
        match classify_first_datagram(datagram) {
            DatagramCaller::Iperf3 => self.open(datagram, from),
            DatagramCaller::Iperf2 if self.server.iperf2 => self.begin(datagram, from),
            DatagramCaller::Iperf2 | DatagramCaller::Unknown => {}
        }
    }

    /// Opens a stream of the test that waits for it.
    fn open(&mut self, hello: &[u8], from: SocketAddr) {
        let client = canonical(from);
        let Some((mut local, test)) = self.server.registry.borrow().expecting_test(client.ip()) else { return };
        let Ok(permit) = self.server.admission.admit_pending(client.ip()) else { return };
        local.set_port(self.socket.local_addr().map_or(0, |address| address.port()));
        let Ok((stream, strays)) = branch(local, client) else { return };
        debug_assert!(hello.len() >= udp::REPLY.len());
        if stream.send(&udp::REPLY).is_ok() {
            // A test that has just ended drops the stream.
            let _ = test.send(AcceptedStream { channel: Channel::Udp(stream), permit });
        }
        for (datagram, from) in strays {
            self.take(&datagram, from);
        }
    }

    /// Begins to count a flow.
    fn begin(&mut self, datagram: &[u8], from: SocketAddr) {
        let kind = Header::read_datagram(datagram).kind;
        if kind != Kind::Upload {
            return self.server.turned_away.add(canonical(from).ip(), Rejection::Iperf2Reverse);
        }
        if self.flows.len() >= FLOWS {
            let least = self.flows.iter().min_by_key(|(_, flow)| flow.rank()).map(|(from, _)| *from);
            least.map(|from| self.flows.remove(&from));
        }
        let mut flow = Flow::new();
        flow.count(datagram);
        flow.is_reported = self.reported < REPORTED_FLOWS;
        if flow.is_reported {
            self.reported += 1;
            self.server.report(ServerEvent::BeganIperf2 { client: canonical(from) });
        } else {
            self.unreported += 1;
        }
        self.flows.insert(from, flow);
    }

    /// Answers the last datagram of a flow, each time that it comes.
    fn answer(&mut self, datagram: &[u8], from: SocketAddr) {
        let Some(flow) = self.flows.get_mut(&from).filter(|flow| flow.ended.is_some()) else { return };
        let newly = !std::mem::replace(&mut flow.stated, true);
        let report = flow.report();
        if let Some(answer) = report.answer(datagram) {
            // One that does not fit now is asked for again.
            let _ = self.socket.try_send_to(&answer, from);
        }
        if newly && flow.is_reported {
            let rate = BitRate::of(report.bytes, report.duration.max(Span::from_nanos(1)));
            self.server.report(end_event(canonical(from), Ok(Carried { bytes: report.bytes, rate, seen: None })));
        }
    }

    /// Forgets flows that are over or say nothing any more.
    fn sweep(&mut self) {
        let standstill: Duration = self.server.client_timeout.standstill().into();
        let server = &self.server;
        self.reported = 0;
        let flows = std::mem::take(&mut self.unreported);
        if flows > 0 {
            server.report(ServerEvent::UnreportedFlows { flows });
        }
        self.flows.retain(|from, flow| {
            let silent = flow.latest.elapsed() >= standstill;
            if silent && flow.ended.is_none() && flow.is_reported {
                let why = format!("no datagram came for {}", server.client_timeout.standstill());
                server.report(end_event(canonical(*from), Err(why.into())));
            }
            !silent && flow.ended.is_none_or(|ended| ended.elapsed() < LINGER)
        });
    }
}

/// What an iperf2 client sends.
struct Flow {
    begun: Instant,
    latest: Instant,
    /// Between which two datagrams the jitter is taken: when the last one came, and its stamp.
    before: Option<(Instant, Span)>,
    bytes: u64,
    datagrams: u64,
    /// The highest number. That of the last datagram may be one more than that of the one before: then it counts as one,
    /// as iperf2 counts it.
    highest: u64,
    out_of_order: u64,
    /// Seconds.
    jitter: f64,
    ended: Option<Instant>,
    stated: bool,
    /// Set if its begin was reported, so that its end is too.
    is_reported: bool,
}

impl Flow {
    fn new() -> Self {
        let now = Instant::now();
        Self {
            begun: now,
            latest: now,
            before: None,
            bytes: 0,
            datagrams: 0,
            highest: 0,
            out_of_order: 0,
            jitter: 0.0,
            ended: None,
            stated: false,
            is_reported: true,
        }
    }

    /// Returns the order in which flows make room for others: those without a history first.
    fn rank(&self) -> (u32, Instant) {
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
            self.smooth(now, datagram.sent);
        }
    }

    /// RFC 3550, section 6.4.1.
    fn smooth(&mut self, now: Instant, sent: Span) {
        if let Some((came, stamp)) = self.before.replace((now, sent)) {
            let change = now.duration_since(came).as_secs_f64() - (sent.as_secs_f64() - stamp.as_secs_f64());
            self.jitter += (change.abs() - self.jitter) / 16.0;
        }
    }

    fn report(&self) -> Report {
        Report {
            bytes: ByteCount::new(self.bytes),
            duration: self.latest.duration_since(self.begun).into(),
            lost: self.highest.saturating_sub(self.datagrams),
            out_of_order: self.out_of_order,
            datagrams: self.highest,
            jitter: Span::from_secs_f64(self.jitter),
        }
    }
}

/// What came to a socket, and from where.
type Stray = (Vec<u8>, SocketAddr);

/// A socket at `local` for what `peer` sends, and what else came to it: between the two calls that make it, it takes what
/// is meant for all.
fn branch(local: SocketAddr, peer: SocketAddr) -> io::Result<(StdUdpSocket, Vec<Stray>)> {
    let socket = Socket::new(Domain::for_address(local), Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&local.into())?;
    socket.connect(&peer.into())?;
    let socket = StdUdpSocket::from(socket);
    let mut strays = Vec::new();
    let mut buffer = vec![0; MAX_DATAGRAM];
    for _ in 0..STRAYS {
        match socket.recv_from(&mut buffer) {
            Ok((length, from)) if from != peer => strays.push((buffer[..length].to_vec(), from)),
            Ok(_) => {}
            Err(_) => break,
        }
    }
    socket.set_nonblocking(false)?;
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
    fn a_flow_is_counted_by_its_numbers() {
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
        assert!(new.latest >= old.latest && new.rank() < old.rank());
        assert!(Flow { latest: old.latest, ..Flow::new() }.rank() < new.rank(), "of two alike, the silent one");
    }

    #[test]
    fn jitter_is_smoothed_over_sixteen_datagrams() {
        let mut flow = Flow::new();
        let at = |millis| flow.begun + Duration::from_millis(millis);
        // The third comes 16 ms late, the fourth on time again.
        let arrivals = [(at(0), 0), (at(10), 10), (at(36), 20), (at(40), 40)];
        let seen: Vec<f64> = arrivals
            .into_iter()
            .map(|(came, sent)| {
                flow.smooth(came, Span::from_millis(sent));
                flow.jitter * 1e3
            })
            .collect();
        for (seen, expected) in seen.into_iter().zip([0.0, 0.0, 1.0, 1.0 + (16.0 - 1.0) / 16.0]) {
            assert!((seen - expected).abs() < 1e-6, "{seen} ms, {expected} ms expected");
        }
    }

    #[test]
    fn numbers_that_lie_are_no_danger() {
        let mut flow = Flow::new();
        for number in [i64::MAX, 1, i64::MAX, i64::MIN] {
            flow.count(&datagram(number, u64::from(u32::MAX)));
        }
        assert_eq!(flow.report().datagrams, i64::MIN.unsigned_abs());
        let answer = flow.report().answer(&datagram(i64::MIN, 0)).unwrap();
        assert!(answer.len() <= 128);
    }

    #[test]
    fn a_branch_takes_what_its_peer_sends_and_nothing_else() {
        let any = "127.0.0.1:0".parse::<SocketAddr>().unwrap();
        let trunk = Socket::new(Domain::IPV4, Type::DGRAM, None).unwrap();
        trunk.set_reuse_address(true).unwrap();
        trunk.bind(&any.into()).unwrap();
        let trunk = StdUdpSocket::from(trunk);
        let local = trunk.local_addr().unwrap();
        let [one, other] = [any, any].map(|any| StdUdpSocket::bind(any).unwrap());
        let (branch, strays) = branch(local, one.local_addr().unwrap()).unwrap();
        assert!(strays.is_empty());
        for (socket, words) in [(&one, b"to the branch"), (&other, b"to the trunk ")] {
            socket.send_to(words, local).unwrap();
        }
        for (socket, words) in [(&branch, b"to the branch"), (&trunk, b"to the trunk ")] {
            socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            let mut buffer = [0; 13];
            socket.recv(&mut buffer).unwrap();
            assert_eq!(&buffer, words);
        }
    }
}
