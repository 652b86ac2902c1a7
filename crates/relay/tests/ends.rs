//! Ends and failures of connections through relays of this process.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use fullpipe_control::AuthenticatedPeer;
use fullpipe_iperf::SharedKey;
use fullpipe_record::RelayEnding;
use fullpipe_relay::{RelayEvent, RelayOptions, RelayRole, relay_connections};
use fullpipe_sys::tcp_info;
use fullpipe_testkit::{allow_descriptors, within};
use fullpipe_units::Span;
use socket2::{Domain, SockRef, Socket, Type};
use tokio::io::AsyncReadExt;
use tokio::runtime::Builder;

const DEADLINE: Duration = Duration::from_secs(10);

/// Status of a far relay that has connected.
const CONNECTED: u8 = 0;

/// A relay in a thread.
struct Running {
    address: SocketAddr,
    interrupt: Arc<AtomicBool>,
    thread: JoinHandle<Vec<RelayEvent>>,
}

impl Running {
    fn start(role: RelayRole, max_connections: u32) -> Self {
        Self::with_limits(role, [max_connections; 2])
    }

    /// Starts a relay with at most so many connections, and so many of one address.
    fn with_limits(
        role: RelayRole,
        [max_connections, max_connections_per_address]: [u32; 2],
    ) -> Self {
        let options = RelayOptions {
            address: Some([127, 0, 0, 1].into()),
            port: 0,
            allow: Vec::new(),
            max_connections,
            max_connections_per_address,
            drain: Span::ZERO,
            interval: None,
            role,
        };
        let interrupt = Arc::new(AtomicBool::new(false));
        let (listens, address) = mpsc::channel();
        let stops = Arc::clone(&interrupt);
        let thread = thread::spawn(move || {
            let mut events = Vec::new();
            let note = &mut |event: RelayEvent| {
                if let RelayEvent::Listening(address) = event {
                    listens.send(address).unwrap();
                }
                events.push(event);
            };
            relay_connections(&options, &stops, note).unwrap();
            events
        });
        Self {
            address: address.recv_timeout(DEADLINE).unwrap(),
            interrupt,
            thread,
        }
    }

    fn alone(target: SocketAddr) -> Self {
        Self::start(
            RelayRole::Alone {
                to: target.to_string().parse().unwrap(),
            },
            100,
        )
    }

    fn far(allowed: &str, plain: bool, max_connections: u32) -> Self {
        Self::start(
            RelayRole::Far {
                targets: vec![allowed.parse().unwrap()],
                key: key(),
                plain,
            },
            max_connections,
        )
    }

    fn near(target: SocketAddr, via: SocketAddr, plain: bool) -> Self {
        let [to, via] = [target, via].map(|address| address.to_string().parse().unwrap());
        Self::start(
            RelayRole::Near {
                to,
                via,
                key: key(),
                plain,
                compress: false,
                pool: 0,
            },
            100,
        )
    }

    fn connect(&self) -> TcpStream {
        with_timeouts(TcpStream::connect(self.address).unwrap())
    }

    /// Returns what it reported.
    fn stop(self) -> Vec<RelayEvent> {
        self.interrupt.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

fn key() -> SharedKey {
    SharedKey::from_file_content(b"correct horse battery").unwrap()
}

fn with_timeouts(stream: TcpStream) -> TcpStream {
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    stream.set_write_timeout(Some(DEADLINE)).unwrap();
    stream
}

fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    // Of 512 calls at once none should have to send its SYN again, after a second.
    SockRef::from(&listener).listen(4096).unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

fn reset(stream: TcpStream) {
    SockRef::from(&stream)
        .set_linger(Some(Duration::ZERO))
        .unwrap();
    drop(stream);
}

/// Returns whether the other end has reset the connection, without a read or a write.
fn was_reset(stream: &TcpStream) -> bool {
    // TCP_CLOSE of the kernel's tcp_states.h.
    tcp_info(stream).is_ok_and(|info| info.state == Some(7))
}

/// Writes until nothing more is taken.
fn fill(mut stream: &TcpStream) {
    stream
        .set_write_timeout(Some(Duration::from_millis(300)))
        .unwrap();
    while stream.write(&[7; 1 << 14]).is_ok() {}
}

#[test]
fn urgent_data_keeps_its_place_and_stops_nothing() {
    // In bulk, in single messages, and again and again.
    for (chunks, length) in [(2, 2 << 20), (3, 3), (40, 64 << 10)] {
        let (listener, target) = listener();
        let relay = Running::alone(target);
        let mut client = relay.connect();
        let mut served = with_timeouts(listener.accept().unwrap().0);
        let sender = thread::spawn(move || {
            for _ in 0..chunks {
                client.write_all(&vec![b'a'; length]).unwrap();
                SockRef::from(&client).send_out_of_band(b"!").unwrap();
                client.write_all(&vec![b'b'; length]).unwrap();
            }
            let mut answer = [0; 5];
            client.read_exact(&mut answer).unwrap();
            // And just before the end.
            client.write_all(&vec![b'c'; length]).unwrap();
            SockRef::from(&client).send_out_of_band(b"!").unwrap();
            client.write_all(b"d").unwrap();
            client.shutdown(Shutdown::Write).unwrap();
            client
        });
        let chunk = [vec![b'a'; length], b"!".to_vec(), vec![b'b'; length]].concat();
        let mut received = vec![0; chunks * chunk.len()];
        served.read_exact(&mut received).unwrap();
        assert!(received == chunk.repeat(chunks), "{chunks} × {length}");
        served.write_all(b"reply").unwrap();
        received.clear();
        served.read_to_end(&mut received).unwrap();
        assert!(
            received == [&vec![b'c'; length][..], b"!d"].concat(),
            "{} bytes",
            received.len()
        );
        drop((sender.join().unwrap(), served));
        relay.stop();
    }
}

#[test]
fn a_reset_close_behind_a_fin_is_passed_on() {
    for pair in [false, true] {
        let (listener, target) = listener();
        let far = pair.then(|| Running::far(&target.to_string(), false, 100));
        let relay = far.as_ref().map_or_else(
            || Running::alone(target),
            |far| Running::near(target, far.address, false),
        );
        let ends: Vec<TcpStream> = (0..20)
            .map(|_| {
                let mut client = relay.connect();
                let served = with_timeouts(listener.accept().unwrap().0);
                client.write_all(b"last").unwrap();
                client.shutdown(Shutdown::Write).unwrap();
                reset(client);
                served
            })
            .collect();
        for mut end in ends {
            assert!(within(DEADLINE, || was_reset(&end)), "pair: {pair}");
            let mut received = [0; 4];
            let read = end.read_exact(&mut received);
            assert!(read.is_ok(), "pair: {pair}: {read:?}");
            assert_eq!(&received, b"last");
        }
        relay.stop();
        far.map(Running::stop);
    }
}

#[test]
fn a_reset_is_passed_on_to_a_side_that_does_not_read() {
    // The side that does not read has closed, or not.
    for closes in [false, true] {
        let (listener, target) = listener();
        let relay = Running::alone(target);
        let client = relay.connect();
        let (mut served, _) = listener.accept().unwrap();
        if closes {
            served.shutdown(Shutdown::Write).unwrap();
            assert_eq!((&client).read(&mut [0]).unwrap(), 0);
        } else {
            served.write_all(b"x").unwrap();
            (&client).read_exact(&mut [0]).unwrap();
        }
        fill(&client);
        reset(client);
        assert!(within(DEADLINE, || was_reset(&served)), "closes: {closes}");
        let done = relay.stop();
        assert!(
            done.iter()
                .any(|event| matches!(event, RelayEvent::Relayed(done)
            if done.ending == RelayEnding::ClientReset && done.undelivered.get() > 0))
        );
    }
}

/// A far relay that serves one connection: it says that it is connected, and sends more than the
/// client takes.
fn far_that_dies(listener: TcpListener) -> TcpStream {
    listener.set_nonblocking(true).unwrap();
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let peer = runtime.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener).unwrap();
        let mut peer =
            AuthenticatedPeer::accept_peer(listener.accept().await.unwrap().0, &key(), None)
                .await
                .unwrap();
        let length = peer.control.read_u8().await.unwrap();
        peer.control
            .read_exact(&mut vec![0; usize::from(length) + AuthenticatedPeer::TAG])
            .await
            .unwrap();
        peer.control.send_bytes(&[CONNECTED]).await.unwrap();
        peer.control.into_records().unwrap().0.into_std().unwrap()
    });
    peer.set_nonblocking(false).unwrap();
    fill(&peer);
    peer
}

#[test]
fn a_client_that_does_not_read_knows_that_the_far_relay_is_dead() {
    let (listener, far) = listener();
    let relay = Running::near("192.0.2.1:9".parse().unwrap(), far, true);
    let client = relay.connect();
    reset(far_that_dies(listener));
    assert!(within(DEADLINE, || was_reset(&client)));
    relay.stop();
}

#[test]
fn a_target_that_is_forbidden_is_the_reason_although_the_client_speaks_first() {
    for plain in [true, false] {
        let far = Running::far("127.0.0.1:1", plain, 100);
        let near = Running::near("127.0.0.1:9".parse().unwrap(), far.address, plain);
        for _ in 0..20 {
            let mut client = near.connect();
            while client.write(&[7; 1 << 14]).is_ok() {}
        }
        let endings: Vec<_> = near
            .stop()
            .into_iter()
            .filter_map(|event| match event {
                RelayEvent::Relayed(done) => Some(done.ending),
                _ => None,
            })
            .collect();
        assert_eq!(endings, [RelayEnding::Forbidden; 20], "plain: {plain}");
        far.stop();
    }
}

#[test]
fn callers_that_prove_nothing_take_no_connection() {
    let (listener, target) = listener();
    let far = Running::far(&target.to_string(), true, 3);
    let silent: Vec<TcpStream> = (0..30)
        .map(|_| TcpStream::connect(far.address).unwrap())
        .collect();
    let near = Running::near(target, far.address, true);
    let mut client = near.connect();
    let mut served = with_timeouts(listener.accept().unwrap().0);
    client.write_all(b"hello").unwrap();
    served.read_exact(&mut [0; 5]).unwrap();
    drop(silent);
    near.stop();
    far.stop();
}

/// Connects from another address of loopback.
fn connect_from(last: u8, relay: &Running) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket
        .bind(&SocketAddr::from(([127, 0, 0, last], 0)).into())
        .unwrap();
    socket.connect(&relay.address.into()).unwrap();
    with_timeouts(socket.into())
}

/// More of them than a far relay has places for callers: of five other addresses, and of the near
/// relay's own.
#[test]
fn hosts_that_call_and_stay_silent_keep_no_near_relay_out() {
    allow_descriptors(5000).unwrap();
    for addresses in [[2, 3, 4, 5, 6], [1; 5]] {
        let (listener, target) = listener();
        // Nor does an accept last longer.
        SockRef::from(&listener)
            .set_read_timeout(Some(DEADLINE))
            .unwrap();
        let far = Running::far(&target.to_string(), true, 100);
        let near = Running::near(target, far.address, true);
        // The near relay knows then that the far one serves it.
        let _first = (near.connect(), listener.accept().unwrap());
        let silent: Vec<TcpStream> = (0..1100)
            .map(|call| connect_from(addresses[call % 5], &far))
            .collect();
        let mut clients: Vec<TcpStream> = (0..50).map(|_| near.connect()).collect();
        for client in &mut clients {
            client.write_all(b"hello").unwrap();
        }
        let served: Vec<TcpStream> = (0..50)
            .map(|_| with_timeouts(listener.accept().unwrap().0))
            .collect();
        for mut end in &served {
            end.read_exact(&mut [0; 5]).unwrap();
        }
        assert!(
            !silent.iter().all(was_reset),
            "a place is lost only to another caller"
        );
        near.stop();
        far.stop();
    }
}

#[test]
fn silent_clients_keep_nobody_out_of_a_relay() {
    allow_descriptors(2000).unwrap();
    let (listener, target) = listener();
    let relay = Running::with_limits(
        RelayRole::Alone {
            to: target.to_string().parse().unwrap(),
        },
        [128, 128],
    );
    // The target speaks first, and then answers.
    thread::spawn(move || {
        for served in listener.incoming() {
            let mut served = served.unwrap();
            thread::spawn(move || {
                let mut byte = [0];
                served
                    .write_all(b"hello")
                    .and_then(|()| served.read_exact(&mut byte))
                    .and_then(|()| served.write_all(&byte))
            });
        }
    });
    let exchange = |mut client: &TcpStream| {
        client.write_all(b"x").unwrap();
        let mut answer = [0; 6];
        client.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"hellox");
    };
    let speaking = relay.connect();
    exchange(&speaking);
    let silent: Vec<TcpStream> = (0..512)
        .map(|call| connect_from(2 + (call % 8) as u8, &relay))
        .collect();
    for _ in 0..20 {
        let began = std::time::Instant::now();
        exchange(&relay.connect());
        assert!(
            began.elapsed() < Duration::from_secs(1),
            "{:?}",
            began.elapsed()
        );
    }
    assert!(
        !was_reset(&speaking),
        "who has sent something keeps its place"
    );
    assert!(within(DEADLINE, || silent
        .iter()
        .filter(|client| was_reset(client))
        .count()
        >= 512 - 128));
    let rejected = |event: &RelayEvent| match event {
        RelayEvent::Rejected(refused) if refused.why.contains("had sent nothing") => {
            refused.connections
        }
        _ => 0,
    };
    assert!(relay.stop().iter().map(rejected).sum::<u64>() >= 512 - 128);
}

#[test]
fn one_address_does_not_take_the_places_of_all() {
    let (listener, target) = listener();
    let relay = Running::with_limits(
        RelayRole::Alone {
            to: target.to_string().parse().unwrap(),
        },
        [10, 2],
    );
    let served = || with_timeouts(listener.accept().unwrap().0);
    let first = [connect_from(2, &relay), connect_from(2, &relay)];
    let _open = [served(), served()];
    assert!(within(DEADLINE, || was_reset(&connect_from(2, &relay))));
    // Another address has its own, and one that ended makes room.
    let (mut other, mut at_target) = (connect_from(3, &relay), served());
    other.write_all(b"x").unwrap();
    at_target.read_exact(&mut [0]).unwrap();
    first.into_iter().for_each(reset);
    assert!(within(DEADLINE, || {
        let again = connect_from(2, &relay);
        thread::sleep(Duration::from_millis(50));
        !was_reset(&again)
    }));
    let one = IpAddr::from([127, 0, 0, 2]);
    let is_of_one = |event: &RelayEvent| matches!(event, RelayEvent::Rejected(refused) if refused.client == one);
    assert!(relay.stop().iter().any(is_of_one));
}

/// They took all connections, and everybody else waited.
#[test]
fn a_few_addresses_that_take_all_they_get_keep_nobody_out() {
    allow_descriptors(2000).unwrap();
    let (listener, target) = listener();
    let relay = Running::with_limits(
        RelayRole::Alone {
            to: target.to_string().parse().unwrap(),
        },
        [160, 40],
    );
    thread::spawn(move || {
        for served in listener.incoming() {
            let served = served.unwrap();
            thread::spawn(move || std::io::copy(&mut &served, &mut &served));
        }
    });
    let exchange = |mut client: &TcpStream| {
        client
            .write_all(b"x")
            .and_then(|()| client.read_exact(&mut [0]))
    };
    let taken: Vec<TcpStream> = (0..5 * 40)
        .map(|call| connect_from(2 + (call % 5) as u8, &relay))
        .filter(|client| exchange(client).is_ok())
        .collect();
    assert_eq!(taken.len(), 140, "all but the reserve");
    let newcomers: Vec<TcpStream> = (0..20)
        .map(|last| {
            let (began, client) = (std::time::Instant::now(), connect_from(100 + last, &relay));
            exchange(&client).unwrap();
            assert!(
                began.elapsed() < Duration::from_secs(1),
                "{:?}",
                began.elapsed()
            );
            client
        })
        .collect();
    assert!(
        taken
            .iter()
            .chain(&newcomers)
            .all(|client| exchange(client).is_ok()),
        "nobody has to leave"
    );
    relay.stop();
}

#[test]
fn a_client_that_closes_at_once_is_served_and_one_that_is_reset_takes_no_time() {
    // Nobody answers: the queue of connections is full.
    let silent = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    silent
        .bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into())
        .unwrap();
    silent.listen(0).unwrap();
    let target = silent.local_addr().unwrap().as_socket().unwrap();
    let _queued = TcpStream::connect(target).unwrap();
    let relay = Running::alone(target);
    let (waiting, gone) = (relay.connect(), relay.connect());
    waiting.shutdown(Shutdown::Write).unwrap();
    let address = gone.local_addr().unwrap();
    reset(gone);
    // The reset is the only event before the stop.
    thread::sleep(Duration::from_millis(100));
    let mut buffer = [0];
    waiting.set_nonblocking(true).unwrap();
    assert_eq!(
        (&waiting).read(&mut buffer).unwrap_err().kind(),
        ErrorKind::WouldBlock
    );
    let events = relay.stop();
    let ended: Vec<_> = events
        .iter()
        .filter_map(|event| match event {
            RelayEvent::NotRelayed { client, .. } => Some(*client),
            _ => None,
        })
        .collect();
    assert_eq!(ended, [address], "{events:?}");
}
