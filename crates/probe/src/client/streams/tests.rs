use super::*;
use std::io::Read;
use std::net::{Ipv4Addr, TcpListener};
use std::thread::{self, JoinHandle};

use socket2::{Domain, Socket, Type};

const TIMEOUT: Duration = Duration::from_secs(5);

fn opened(
    address: SocketAddr,
    request: &Request,
    together: bool,
    count: u16,
) -> Result<Vec<OpenStream>, ProbeError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let (local, cookie) = (
        LocalEndpoint::default(),
        TestCookie::from_bytes([b'c'; TestCookie::LENGTH]),
    );
    let opener = StreamOpener {
        address,
        request,
        local: &local,
        cookie,
        timeout: TIMEOUT,
        rtt: None,
        together,
        call_back: None,
    };
    runtime.block_on(opener.open_streams(count))
}

fn groups(request: &Request, together: bool, count: u16) -> Vec<Range<u16>> {
    let (local, cookie) = (
        LocalEndpoint::default(),
        TestCookie::from_bytes([b'c'; TestCookie::LENGTH]),
    );
    let address = (Ipv4Addr::LOCALHOST, 1).into();
    let opener = StreamOpener {
        address,
        request,
        local: &local,
        cookie,
        timeout: TIMEOUT,
        rtt: None,
        together,
        call_back: None,
    };
    opener.stream_groups(count)
}

fn udp() -> Request {
    Request {
        transport: Transport::Udp,
        ..Request::default()
    }
}

#[test]
fn one_direction_is_open_before_the_other_begins() {
    let both = Request {
        direction: Direction::Both,
        streams: 90,
        ..Request::default()
    };
    assert_eq!(groups(&both, false, 180), [0..90, 90..180]);
    let many = Request {
        streams: 128,
        ..Request::default()
    };
    assert_eq!(groups(&many, false, 128), [0..96, 96..128]);
}

#[test]
fn an_iperf3_server_gets_one_hello_at_a_time() {
    assert_eq!(groups(&udp(), false, 3), [0..1, 1..2, 2..3]);
    assert_eq!(groups(&udp(), true, 3), [0..3; 1]);
}

/// Returns the ports from which connections came, in the order in which they were accepted.
fn accepting(listener: TcpListener, count: u16) -> JoinHandle<Vec<u16>> {
    let accept = move |_| {
        let (mut stream, peer) = listener.accept().unwrap();
        stream.read_exact(&mut [0; TestCookie::LENGTH]).unwrap();
        peer.port()
    };
    thread::spawn(move || (0..count).map(accept).collect())
}

#[test]
fn connections_are_numbered_as_the_server_accepts_them() {
    let request = Request {
        direction: Direction::Both,
        streams: 20,
        ..Request::default()
    };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let accepted = accepting(listener, 40);
    let streams = opened(address, &request, false, 40).unwrap();
    let port = |stream: &OpenStream| match &stream.channel {
        StreamChannel::Tcp(socket) => socket.local_addr().unwrap().port(),
        StreamChannel::Udp(_) | StreamChannel::Framed(_) => 0,
    };
    assert_eq!(
        streams.iter().map(port).collect::<Vec<_>>(),
        accepted.join().unwrap()
    );
    assert!(streams.iter().all(|stream| {
        stream
            .handshake
            .is_some_and(|answer| answer.window.is_some())
    }));
}

#[test]
fn a_closed_port_is_an_error_of_the_first_connection() {
    let address = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let error = opened(address, &Request::default(), false, 3)
        .err()
        .unwrap();
    assert!(error.to_string().contains("refused"), "{error}");
}

/// Returns a socket that shares its port with sockets that are already connected.
fn bound(address: SocketAddr) -> StdUdpSocket {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None).unwrap();
    socket.set_reuse_address(true).unwrap();
    socket.bind(&address.into()).unwrap();
    socket.into()
}

/// Answers `count` hellos as a server does that makes a socket for each stream and has none in
/// between.
fn answering_with_gaps(count: usize) -> (SocketAddr, JoinHandle<()>) {
    let first = bound((Ipv4Addr::LOCALHOST, 0).into());
    let address = first.local_addr().unwrap();
    let serve = move || {
        let mut listener = Some(first);
        let mut streams = Vec::new();
        while streams.len() < count {
            let socket = listener.take().unwrap_or_else(|| bound(address));
            let (_, client) = socket.recv_from(&mut [0; 16]).unwrap();
            socket.connect(client).unwrap();
            socket.send(&udp::REPLY).unwrap();
            streams.push(socket);
            thread::sleep(Duration::from_millis(20));
        }
    };
    (address, thread::spawn(serve))
}

#[test]
fn a_udp_port_that_is_closed_between_two_streams_gets_another_hello() {
    let (address, server) = answering_with_gaps(4);
    let request = Request {
        streams: 4,
        ..udp()
    };
    assert_eq!(opened(address, &request, false, 4).unwrap().len(), 4);
    server.join().unwrap();
}

/// Answers the first hello with `answer` only. Returns whatever comes to the socket of the
/// stream next, in 200 ms.
fn answering_with(answer: Vec<u8>) -> (SocketAddr, JoinHandle<Option<usize>>) {
    let socket = StdUdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let serve = move || {
        let (_, client) = socket.recv_from(&mut [0; 16]).unwrap();
        socket.send_to(&answer, client).unwrap();
        socket
            .set_read_timeout(Some(Duration::from_millis(200)))
            .unwrap();
        socket.recv(&mut [0; 16]).ok()
    };
    (address, thread::spawn(serve))
}

#[test]
fn data_of_a_download_is_an_answer_and_stays_to_be_counted() {
    let (address, server) = answering_with(vec![7; 1000]);
    let request = Request {
        direction: Direction::Download,
        ..udp()
    };
    let streams = opened(address, &request, true, 1).unwrap();
    let StreamChannel::Udp(socket) = &streams[0].channel else {
        panic!("it is no UDP stream")
    };
    socket.set_read_timeout(Some(TIMEOUT)).unwrap();
    assert_eq!(socket.recv(&mut [0; 2000]).unwrap(), 1000);
    assert_eq!(server.join().unwrap(), None, "no other hello was sent");
}

#[test]
fn data_is_no_answer_on_a_port_that_an_earlier_test_may_have_used_or_of_an_upload() {
    let [free, chosen] = [None, Some(5000)].map(|port| LocalEndpoint {
        port,
        ..LocalEndpoint::default()
    });
    let takes = |direction, local| {
        let request = Request {
            direction,
            streams: 2,
            ..udp()
        };
        let (address, cookie) = (
            (Ipv4Addr::LOCALHOST, 1).into(),
            TestCookie::from_bytes([b'c'; TestCookie::LENGTH]),
        );
        let opener = StreamOpener {
            address,
            request: &request,
            local,
            cookie,
            timeout: TIMEOUT,
            rtt: None,
            together: true,
            call_back: None,
        };
        [0, 2].map(|index| opener.takes_data(index))
    };
    assert_eq!(takes(Direction::Upload, &free), [false; 2]);
    assert_eq!(takes(Direction::Download, &free), [true; 2]);
    assert_eq!(takes(Direction::Both, &free), [false, true]);
    assert_eq!(takes(Direction::Download, &chosen), [false; 2]);
}

#[test]
fn a_udp_port_that_stays_closed_is_refused_long_before_the_deadline() {
    let address = StdUdpSocket::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let begun = Instant::now();
    let error = opened(address, &udp(), false, 1).err().unwrap();
    assert!(error.to_string().contains("refused"), "{error}");
    assert!(
        begun.elapsed() >= REFUSED_TIMEOUT && begun.elapsed() < HELLO_TIMEOUT,
        "{:?}",
        begun.elapsed()
    );
}
