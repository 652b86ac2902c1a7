//! A path over loopback that loses, delays and reorders exactly the datagrams that a test names.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::iter;
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Which way a datagram goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heading {
    /// From the client.
    ToServer,
    /// From the server.
    ToClient,
}

/// The fate of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It goes on at once.
    Passes,
    /// It is lost.
    IsLost,
    /// It goes on after so long, and whatever follows waits behind it.
    Waits(Duration),
    /// It goes on behind so many later ones that carry data.
    Follows(u64),
}

/// Returns the fate of each: by the way, and the number of the datagram among those of its flow
/// that carry data, from one.
type Fates = dyn Fn(Heading, u64) -> Fate + Send + Sync;

/// Data is at least this long; what opens a flow is shorter.
const MIN_DATA: usize = 16;

/// A flow that is silent for so long is over.
const SILENCE: Duration = Duration::from_secs(20);

/// Forwards TCP and UDP of one loopback port to another.
#[derive(Debug)]
pub struct Relay {
    port: u16,
    late: Arc<AtomicU64>,
}

impl Relay {
    /// Starts one in front of the server at `server`. It ends with the test's process.
    ///
    /// # Panics
    /// If no port is free.
    pub fn start(
        server: u16,
        loses: impl Fn(Heading, u64) -> bool + Send + Sync + 'static,
    ) -> Self {
        let fate = move |lost| if lost { Fate::IsLost } else { Fate::Passes };
        Self::with_fates(server, move |heading, number| fate(loses(heading, number)))
    }

    /// Starts one that does more to datagrams than to lose them.
    ///
    /// # Panics
    /// If no port is free.
    pub fn with_fates(
        server: u16,
        fates: impl Fn(Heading, u64) -> Fate + Send + Sync + 'static,
    ) -> Self {
        let (listener, datagrams, port) = iter::repeat_with(bind_both)
            .take(PORT_ATTEMPTS)
            .flatten()
            .next()
            .expect("a port is free for TCP and UDP");
        let server = SocketAddr::from((Ipv4Addr::LOCALHOST, server));
        thread::spawn(move || forward_connections(&listener, server));
        let late = Arc::new(AtomicU64::new(0));
        let rule = Rule {
            fates: Arc::new(fates),
            late: Arc::clone(&late),
        };
        thread::spawn(move || forward_datagrams(&Arc::new(datagrams), server, &rule));
        Self { port, late }
    }

    /// By how much the machine has delayed a datagram beyond what was asked for, at most.
    pub fn lateness(&self) -> Duration {
        Duration::from_nanos(self.late.load(Ordering::Relaxed))
    }

    /// Returns the port to which clients connect.
    pub fn port(&self) -> u16 {
        self.port
    }
}

/// Number of ports to try: one that is free for TCP may be in use for UDP.
const PORT_ATTEMPTS: usize = 100;

/// Binds sockets of TCP and UDP to one free port; `None` if it is in use for UDP.
fn bind_both() -> Option<(TcpListener, UdpSocket, u16)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
    let port = listener
        .local_addr()
        .expect("a bound socket has an address")
        .port();
    UdpSocket::bind((Ipv4Addr::LOCALHOST, port))
        .ok()
        .map(|datagrams| (listener, datagrams, port))
}

fn forward_connections(listener: &TcpListener, server: SocketAddr) {
    for client in listener.incoming().map_while(Result::ok) {
        if let Ok(upstream) = TcpStream::connect(server) {
            let _ = join(client, upstream);
        }
    }
}

fn join(client: TcpStream, server: TcpStream) -> io::Result<()> {
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    for (from, to) in [(client.try_clone()?, server.try_clone()?), (server, client)] {
        thread::spawn(move || {
            let _ = io::copy(&mut &from, &mut &to);
            let _ = to.shutdown(Shutdown::Write);
        });
    }
    Ok(())
}

/// The rule by which datagrams are handled.
#[derive(Clone)]
struct Rule {
    fates: Arc<Fates>,
    late: Arc<AtomicU64>,
}

/// One way of a flow.
struct Lane {
    rule: Rule,
    heading: Heading,
    /// Datagrams with data so far.
    sent: u64,
    /// Those that are held back, each with the number behind which it goes.
    held: Vec<(u64, Vec<u8>)>,
}

impl Lane {
    fn new(rule: &Rule, heading: Heading) -> Self {
        Self {
            rule: rule.clone(),
            heading,
            sent: 0,
            held: Vec::new(),
        }
    }

    /// Sends `datagram` on by `send` as its fate is, and what has waited for it.
    fn forward(&mut self, datagram: &[u8], send: impl Fn(&[u8])) {
        if datagram.len() < MIN_DATA {
            return send(datagram);
        }
        self.sent += 1;
        match (self.rule.fates)(self.heading, self.sent) {
            Fate::Passes => send(datagram),
            Fate::IsLost => {}
            Fate::Waits(span) => {
                let begun = Instant::now();
                thread::sleep(span);
                let late = begun.elapsed().saturating_sub(span).as_nanos();
                self.rule.late.fetch_max(late as u64, Ordering::Relaxed);
                send(datagram);
            }
            Fate::Follows(later) => self.held.push((self.sent + later, datagram.to_vec())),
        }
        let sent = self.sent;
        for (_, datagram) in self.held.extract_if(.., |(behind, _)| *behind <= sent) {
            send(&datagram);
        }
    }
}

/// One socket towards the server for each flow of a client.
struct Flow {
    upstream: Arc<UdpSocket>,
    lane: Lane,
}

impl Flow {
    fn open(
        client: SocketAddr,
        server: SocketAddr,
        clients: &Arc<UdpSocket>,
        rule: &Rule,
    ) -> io::Result<Self> {
        let upstream = Arc::new(UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?);
        upstream.connect(server)?;
        upstream.set_read_timeout(Some(SILENCE))?;
        let (back, clients) = (Arc::clone(&upstream), Arc::clone(clients));
        let lane = Lane::new(rule, Heading::ToClient);
        thread::spawn(move || forward_back(&back, &clients, client, lane));
        Ok(Self {
            upstream,
            lane: Lane::new(rule, Heading::ToServer),
        })
    }
}

fn forward_datagrams(clients: &Arc<UdpSocket>, server: SocketAddr, rule: &Rule) -> io::Result<()> {
    let mut flows: HashMap<SocketAddr, Flow> = HashMap::new();
    let mut buffer = vec![0; 65_536];
    loop {
        let (length, client) = clients.recv_from(&mut buffer)?;
        let flow = match flows.entry(client) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(Flow::open(client, server, clients, rule)?),
        };
        let Flow { upstream, lane } = flow;
        // A server that has gone shows at the client.
        lane.forward(&buffer[..length], |datagram| drop(upstream.send(datagram)));
    }
}

fn forward_back(upstream: &UdpSocket, clients: &UdpSocket, client: SocketAddr, mut lane: Lane) {
    let mut buffer = vec![0; 65_536];
    while let Ok(length) = upstream.recv(&mut buffer) {
        lane.forward(&buffer[..length], |datagram| {
            drop(clients.send_to(datagram, client));
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_listed_is_lost_and_the_rest_arrives_in_order() {
        let server = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let relay = Relay::start(server.local_addr().unwrap().port(), |heading, number| {
            heading == Heading::ToServer && [2, 3].contains(&number)
        });
        let client = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        client.connect((Ipv4Addr::LOCALHOST, relay.port())).unwrap();
        let limit = Some(Duration::from_secs(5));
        server.set_read_timeout(limit).unwrap();
        client.set_read_timeout(limit).unwrap();
        client.send(b"open").unwrap();
        for number in 1..=5_u8 {
            client.send(&[number; MIN_DATA]).unwrap();
        }
        let mut buffer = [0; 64];
        let mut seen = Vec::new();
        for _ in 0..4 {
            let (length, from) = server.recv_from(&mut buffer).unwrap();
            seen.push((length, buffer[0]));
            server.send_to(&buffer[..length], from).unwrap();
        }
        assert_eq!(
            seen,
            [(4, b'o'), (MIN_DATA, 1), (MIN_DATA, 4), (MIN_DATA, 5)]
        );
        assert_eq!(client.recv(&mut buffer).unwrap(), 4);
        assert_eq!(
            (client.recv(&mut buffer).unwrap(), buffer[0]),
            (MIN_DATA, 1)
        );
    }

    #[test]
    fn what_is_reported_to_wait_waits_and_what_is_reported_to_follow_follows() {
        let server = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let relay = Relay::with_fates(
            server.local_addr().unwrap().port(),
            |_, number| match number {
                2 => Fate::Follows(2),
                5 => Fate::Waits(Duration::from_millis(20)),
                _ => Fate::Passes,
            },
        );
        let client = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        client.connect((Ipv4Addr::LOCALHOST, relay.port())).unwrap();
        server
            .set_read_timeout(Some(Duration::from_secs(5)))
            .unwrap();
        let begun = Instant::now();
        for number in 1..=5_u8 {
            client.send(&[number; MIN_DATA]).unwrap();
        }
        let mut buffer = [0; 64];
        let seen: Vec<u8> = (0..5)
            .map(|_| server.recv(&mut buffer).map(|_| buffer[0]).unwrap())
            .collect();
        assert_eq!(seen, [1, 3, 4, 2, 5]);
        assert!(begun.elapsed() >= Duration::from_millis(20));
    }
}
