//! Tests over UDP on a path that loses the first answer of each stream.

mod support;

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;

use fullpipe_probe::{Destination, measure_transfer};
use fullpipe_record::{Direction, Measurement, Request, Transport};
use fullpipe_units::{BitRate, ByteCount, Span};

use support::with_server;

/// Passes connections and datagrams on to `server`, except for the first datagram that comes back
/// to each client. Returns the port for clients.
fn losing_first_answers(server: SocketAddr) -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let datagrams = Arc::new(UdpSocket::bind(address).unwrap());
    thread::spawn(move || {
        listener
            .incoming()
            .for_each(|client| join(client.unwrap(), server));
    });
    thread::spawn(move || pass_datagrams(&datagrams, server));
    address.port()
}

/// Copies what comes on a connection to one to the server, and back, until one end closes.
fn join(client: TcpStream, server: SocketAddr) {
    let server = TcpStream::connect(server).unwrap();
    let ends = [
        (client.try_clone().unwrap(), server.try_clone().unwrap()),
        (server, client),
    ];
    for (mut from, mut to) in ends {
        thread::spawn(move || {
            let _ = io::copy(&mut from, &mut to);
            let _ = to.shutdown(std::net::Shutdown::Write);
        });
    }
}

/// Passes datagrams of each client on from a socket of its own.
fn pass_datagrams(clients: &Arc<UdpSocket>, server: SocketAddr) {
    let (mut sockets, mut buffer) = (HashMap::new(), [0; 2048]);
    while let Ok((length, client)) = clients.recv_from(&mut buffer) {
        let socket = sockets.entry(client).or_insert_with(|| {
            let socket = Arc::new(UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
            socket.connect(server).unwrap();
            let (answers, clients) = (Arc::clone(&socket), Arc::clone(clients));
            thread::spawn(move || pass_answers(&answers, &clients, client));
            socket
        });
        let _ = socket.send(&buffer[..length]);
    }
}

fn pass_answers(answers: &UdpSocket, clients: &UdpSocket, client: SocketAddr) {
    let mut buffer = [0; 2048];
    let _ = answers.recv(&mut buffer);
    while let Ok(length) = answers.recv(&mut buffer) {
        let _ = clients.send_to(&buffer[..length], client);
    }
}

fn measured(port: u16, direction: Direction) -> Measurement {
    let destination = Destination {
        host: "127.0.0.1".to_owned(),
        port,
        without_echoes: true,
        ..Destination::default()
    };
    let request = Request {
        transport: Transport::Udp,
        direction,
        streams: 2,
        rate: Some(BitRate::from_mbps(1)),
        block: ByteCount::new(500),
        duration: Span::from_millis(500),
        ..Request::default()
    };
    measure_transfer(&destination, &request, &AtomicBool::new(false), &mut |_| {}).unwrap()
}

#[test]
fn the_loss_of_the_first_answers_fails_no_test() {
    with_server(|port| {
        let port = losing_first_answers((Ipv4Addr::LOCALHOST, port).into());
        for direction in [Direction::Upload, Direction::Download, Direction::Both] {
            let measurement = measured(port, direction);
            assert!(
                measurement.broken_off.is_none(),
                "{direction:?}: {:?}",
                measurement.broken_off
            );
            let received: Vec<ByteCount> = measurement
                .streams
                .iter()
                .map(|stream| stream.received)
                .collect();
            assert!(
                received.iter().all(|bytes| *bytes > ByteCount::new(10_000)),
                "{direction:?}: {received:?}"
            );
        }
    });
}
