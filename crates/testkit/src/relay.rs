//! A path over loopback that loses exactly the datagrams that it is told to lose.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// Which way a datagram goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heading {
    /// From the client.
    ToServer,
    /// From the server.
    ToClient,
}

/// What is dropped: the way, and the number of the datagram among those of its flow that carry data, from one.
type Losses = dyn Fn(Heading, u64) -> bool + Send + Sync;

/// Data is at least this long; what opens a flow is shorter.
const SHORTEST_DATA: usize = 16;

/// A flow that is silent for so long is over.
const SILENCE: Duration = Duration::from_secs(20);

/// Forwards TCP and UDP of one loopback port to another.
#[derive(Debug)]
pub struct Relay {
    port: u16,
}

impl Relay {
    /// Starts one in front of the server at `server`. It ends with the test's process.
    ///
    /// # Panics
    /// If no port is free.
    pub fn start(server: u16, loses: impl Fn(Heading, u64) -> bool + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
        let port = listener.local_addr().expect("a bound socket has an address").port();
        let datagrams = UdpSocket::bind((Ipv4Addr::LOCALHOST, port)).expect("the port is free for UDP too");
        let server = SocketAddr::from((Ipv4Addr::LOCALHOST, server));
        thread::spawn(move || forward_connections(&listener, server));
        thread::spawn(move || forward_datagrams(&Arc::new(datagrams), server, &(Arc::new(loses) as Arc<Losses>)));
        Self { port }
    }

    /// Where clients find it.
    pub fn port(&self) -> u16 {
        self.port
    }
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

/// One socket towards the server for each flow of a client.
struct Flow {
    upstream: Arc<UdpSocket>,
    sent: u64,
}

impl Flow {
    fn open(
        client: SocketAddr,
        server: SocketAddr,
        clients: &Arc<UdpSocket>,
        losses: &Arc<Losses>,
    ) -> io::Result<Self> {
        let upstream = Arc::new(UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?);
        upstream.connect(server)?;
        upstream.set_read_timeout(Some(SILENCE))?;
        let (back, clients, losses) = (Arc::clone(&upstream), Arc::clone(clients), Arc::clone(losses));
        thread::spawn(move || forward_back(&back, &clients, client, &losses));
        Ok(Self { upstream, sent: 0 })
    }
}

fn forward_datagrams(clients: &Arc<UdpSocket>, server: SocketAddr, losses: &Arc<Losses>) -> io::Result<()> {
    let mut flows: HashMap<SocketAddr, Flow> = HashMap::new();
    let mut buffer = vec![0; 65_536];
    loop {
        let (length, client) = clients.recv_from(&mut buffer)?;
        let flow = match flows.entry(client) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(Flow::open(client, server, clients, losses)?),
        };
        if passes(length, Heading::ToServer, &mut flow.sent, losses) {
            // A server that has gone shows at the client.
            let _ = flow.upstream.send(&buffer[..length]);
        }
    }
}

fn forward_back(upstream: &UdpSocket, clients: &UdpSocket, client: SocketAddr, losses: &Arc<Losses>) {
    let mut buffer = vec![0; 65_536];
    let mut sent = 0;
    while let Ok(length) = upstream.recv(&mut buffer) {
        if passes(length, Heading::ToClient, &mut sent, losses) {
            let _ = clients.send_to(&buffer[..length], client);
        }
    }
}

fn passes(length: usize, heading: Heading, sent: &mut u64, losses: &Arc<Losses>) -> bool {
    if length < SHORTEST_DATA {
        return true;
    }
    *sent += 1;
    !losses(heading, *sent)
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
            client.send(&[number; SHORTEST_DATA]).unwrap();
        }
        let mut buffer = [0; 64];
        let mut seen = Vec::new();
        for _ in 0..4 {
            let (length, from) = server.recv_from(&mut buffer).unwrap();
            seen.push((length, buffer[0]));
            server.send_to(&buffer[..length], from).unwrap();
        }
        assert_eq!(seen, [(4, b'o'), (SHORTEST_DATA, 1), (SHORTEST_DATA, 4), (SHORTEST_DATA, 5)]);
        assert_eq!(client.recv(&mut buffer).unwrap(), 4);
        assert_eq!((client.recv(&mut buffer).unwrap(), buffer[0]), (SHORTEST_DATA, 1));
    }
}
