use super::*;
use rustix::time::{ClockId, clock_gettime};
use socket2::{Domain, SockRef, Socket, Type};
use std::io::{Read, Write};
use std::thread;

const LOOPBACK: SocketAddr = SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

#[test]
fn connections_are_made_by_who_knows_the_secret_and_by_nobody_else() {
    let credentials = CopyCredentials::new(&[7; 32], &[]).unwrap();
    let listener = DataListener::start_listening(None, (0, 0), &credentials).unwrap();
    let (_, mut made) = dial_hosts(&[LOOPBACK], listener.port, &credentials, &mut |_| 3).unwrap();
    let mut taken = listener.take_streams(3, CONNECT_DEADLINE);
    assert_eq!((made.len(), taken.len()), (3, 3));
    made[0].write_all(b"data").unwrap();
    drop(made);
    let received: Vec<bool> = taken
        .iter_mut()
        .map(|stream| stream.read_exact(&mut [0; 4]).is_ok())
        .collect();
    assert_eq!(received.iter().filter(|received| **received).count(), 1);
    let at = at_port(LOOPBACK, listener.port);
    let _made = dial_at_once(at, &credentials, 2).unwrap();
    assert_eq!(listener.take_streams(2, CONNECT_DEADLINE).len(), 2);
    let other = CopyCredentials::new(&[8; 32], &[]).unwrap();
    assert!(dial_hosts(&[LOOPBACK], listener.port, &other, &mut |_| 1).is_err());
    assert!(dial_at_once(at, &other, 2).is_err());
    assert!(
        listener
            .take_streams(1, Duration::from_millis(50))
            .is_empty()
    );
}

/// Each address that did not answer once took four seconds.
#[test]
fn an_address_that_does_not_answer_holds_up_no_other() {
    let credentials = CopyCredentials::new(&[7; 32], &[]).unwrap();
    let listener =
        DataListener::start_listening(Some(LOOPBACK.ip()), (0, 0), &credentials).unwrap();
    let at = |last| SocketAddr::from(([127, 0, 0, last], listener.port));
    // One whose queue is full says nothing, and one knows no secret.
    let silent = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    silent.bind(&at(2).into()).unwrap();
    silent.listen(0).unwrap();
    let _full = std::net::TcpStream::connect(at(2)).unwrap();
    let other = std::net::TcpListener::bind(at(3)).unwrap();
    let took = thread::spawn(move || drop(other.accept()));
    let began = Instant::now();
    let hosts = [2, 3, 1].map(at);
    let (host, made) = dial_hosts(&hosts, listener.port, &credentials, &mut |_| 1).unwrap();
    assert_eq!((host, made.len()), (at(1), 1));
    assert!(began.elapsed() < CONNECT_DEADLINE, "{:?}", began.elapsed());
    took.join().unwrap();
}

/// A host at the unspecified address was called for ever, as nothing answers from that address.
#[test]
fn a_host_without_the_secret_is_called_once_whatever_the_address_of_its_answer() {
    for host in [SocketAddr::from(([0; 4], 0)), LOOPBACK] {
        let other = std::net::TcpListener::bind(LOOPBACK).unwrap();
        let at = other.local_addr().unwrap();
        let calls = thread::spawn(move || other.incoming().take(2).count());
        let credentials = CopyCredentials::new(&[7; 32], &[]).unwrap();
        assert!(dial_hosts(&[host], at.port(), &credentials, &mut |_| 1).is_err());
        assert!(
            std::net::TcpStream::connect(at).is_ok(),
            "{host} was called twice"
        );
        assert_eq!(calls.join().unwrap(), 2);
    }
}

#[test]
fn who_knows_the_secret_has_no_more_connections_than_a_copy_may_have() {
    let credentials = CopyCredentials::new(&[7; 32], &["127.0.0.0/8".parse().unwrap()]).unwrap();
    let listener = DataListener::start_listening(None, (0, 0), &credentials).unwrap();
    let call = |count| {
        dial_hosts(&[LOOPBACK], listener.port, &credentials, &mut |_| count)
            .unwrap()
            .1
    };
    let made = [
        call(MAX_CONNECTIONS / 2),
        call(MAX_CONNECTIONS / 2),
        call(3),
    ];
    let taken = listener.take_streams(MAX_CONNECTIONS.into(), CONNECT_DEADLINE);
    assert_eq!(taken.len(), usize::from(MAX_CONNECTIONS));
    assert!(
        listener
            .take_streams(1, Duration::from_millis(50))
            .is_empty()
    );
    drop(made);
}

/// The accept loop took all of a processor.
#[test]
fn a_listener_that_cannot_accept_waits_before_it_tries_again() {
    const TIME: Duration = Duration::from_millis(400);
    let worked = thread::spawn(|| {
        let runtime = single_threaded_runtime().unwrap();
        let credentials = CopyCredentials::new(&[7; 32], &[]).unwrap();
        let (streams, _taken) = channel();
        runtime.block_on(async {
            let listener = bind_port(Some(LOOPBACK.ip()), (0, 0)).unwrap();
            // Each attempt fails from here on, as it does without descriptors.
            SockRef::from(&listener)
                .shutdown(std::net::Shutdown::Both)
                .unwrap();
            let stop = SharedFlag::default();
            let accepting = accept_streams(&listener, &credentials, &streams, &stop);
            assert!(timeout(TIME, accepting).await.is_err());
        });
        let time = clock_gettime(ClockId::ThreadCPUTime);
        Duration::try_from(time).unwrap()
    });
    let worked = worked.join().unwrap();
    assert!(worked < TIME / 4, "{worked:?}");
}

#[test]
fn only_between_addresses_that_were_named_is_a_connection_in_the_clear() {
    let named =
        |network: &str| CopyCredentials::new(&[7; 32], &[network.parse().unwrap()]).unwrap();
    for (caller, listener, is_plain) in [
        ("127.0.0.0/8", "127.0.0.0/8", true),
        ("127.0.0.2", "127.0.0.0/8", false),
        // A listener that would not encrypt answers a caller that does.
        ("192.0.2.0/24", "127.0.0.0/8", false),
    ] {
        let listening = DataListener::start_listening(None, (0, 0), &named(listener)).unwrap();
        let (_, mut made) =
            dial_hosts(&[LOOPBACK], listening.port, &named(caller), &mut |_| 1).unwrap();
        let mut taken = listening.take_streams(1, CONNECT_DEADLINE);
        made[0].write_all(b"data").unwrap();
        let mut seen = [0; 4];
        let peeked = taken[0].tcp_socket().peek(&mut seen).unwrap();
        assert_eq!(&seen[..peeked] == b"data", is_plain, "{caller} {listener}");
        taken[0].read_exact(&mut seen).unwrap();
        assert_eq!(&seen, b"data");
    }
    // And a listener that encrypts refuses a caller that does not.
    let listening = DataListener::start_listening(None, (0, 0), &named("192.0.2.0/24")).unwrap();
    assert!(
        dial_hosts(
            &[LOOPBACK],
            listening.port,
            &named("127.0.0.0/8"),
            &mut |_| 1
        )
        .is_err()
    );
}

#[test]
fn a_listener_stays_within_its_range() {
    let credentials = CopyCredentials::new(&[7; 32], &[]).unwrap();
    let first = DataListener::start_listening(None, (0, 0), &credentials).unwrap();
    assert!(DataListener::start_listening(None, (first.port, first.port), &credentials).is_err());
    let port = first.port;
    drop(first);
    assert!(
        dial_hosts(
            &[LOOPBACK],
            port,
            &CopyCredentials::new(&[9; 32], &[]).unwrap(),
            &mut |_| 1
        )
        .is_err()
    );
}
