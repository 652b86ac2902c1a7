use super::*;
use crate::dump::HEADER_LENGTH;
use proptest::prelude::*;
use std::io::Write;
use std::net::{TcpListener, TcpStream};

/// Connections over loopback, both ends of each.
fn pairs(host: &str, count: usize) -> Vec<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind((host, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    (0..count)
        .map(|_| {
            (
                TcpStream::connect(address).unwrap(),
                listener.accept().unwrap().0,
            )
        })
        .collect()
}

fn ends(socket: &TcpStream) -> (SocketAddr, SocketAddr) {
    (socket.local_addr().unwrap(), socket.peer_addr().unwrap())
}

#[test]
fn a_connection_is_reported_as_its_owner_sees_it() {
    let pairs = pairs("127.0.0.1", 1);
    let (client, server) = &pairs[0];
    (&mut &*client).write_all(&[7; 1000]).unwrap();
    let mut connections = ConnectionTable::open().unwrap();
    let found = connections
        .find_by_ends(&[ends(client), ends(server)])
        .unwrap();
    assert_eq!(found.len(), 2, "{found:#?}");
    let of = |socket| {
        found
            .iter()
            .find(|one| (one.local, one.remote) == ends(socket))
            .unwrap()
    };
    assert_eq!(
        of(client).tcp.snd_mss,
        crate::tcp_info(client).unwrap().snd_mss
    );
    assert_eq!(
        of(client).memory.unwrap().sndbuf,
        crate::socket_memory(client).unwrap().sndbuf
    );
    assert_eq!((of(server).unread, of(client).unread), (1000, 0));
    assert!(!of(client).congestion.is_empty() && of(client).inode > 0);
    assert_ne!(of(client).cookie, of(server).cookie);
}

#[test]
fn only_those_asked_for_are_reported_and_all_are_where_nobody_asks() {
    let pairs = pairs("127.0.0.1", 600);
    let wanted: Vec<_> = pairs.iter().map(|(client, _)| ends(client)).collect();
    let mut connections = ConnectionTable::open().unwrap();
    let of = |found: &[TcpConnection]| {
        found
            .iter()
            .map(|one| (one.local, one.remote))
            .collect::<Vec<_>>()
    };
    // More than one filter holds, and the first, a middle and the last of another.
    let mut found = of(&connections.find_by_ends(&wanted).unwrap());
    found.sort_unstable();
    let mut expected = wanted.clone();
    expected.sort_unstable();
    assert_eq!(found, expected);
    for one in [0, 255, 599] {
        assert_eq!(
            of(&connections.find_by_ends(&wanted[one..=one]).unwrap()),
            [wanted[one]]
        );
    }
    let all = of(&connections.list_all().unwrap());
    assert!(wanted.iter().all(|one| all.contains(one)));
    drop(pairs);
}

#[test]
fn both_families_are_reported() {
    let addresses = fullpipe_testkit::loopback_addresses(module_path!()).into_iter();
    let pairs: Vec<_> = addresses.flat_map(|address| pairs(address, 2)).collect();
    let wanted: Vec<_> = pairs.iter().map(|(client, _)| ends(client)).collect();
    assert_eq!(
        ConnectionTable::open()
            .unwrap()
            .find_by_ends(&wanted)
            .unwrap()
            .len(),
        pairs.len()
    );
}

#[test]
fn what_is_left_of_an_answer_that_took_too_long_is_not_the_next_one() {
    let pairs = pairs("127.0.0.1", 300);
    let wanted = ends(&pairs[7].0);
    let mut connections = ConnectionTable::open().unwrap();
    let error = connections
        .dump_family(libc::AF_INET, &[], Duration::ZERO, &mut Vec::new())
        .unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    let found = connections.find_by_ends(&[wanted]).unwrap();
    assert_eq!(
        found
            .iter()
            .map(|one| (one.local, one.remote))
            .collect::<Vec<_>>(),
        [wanted]
    );
    assert!(!connections.is_unread);
}

#[test]
fn a_connection_that_is_gone_is_not_reported() {
    let pairs = pairs("127.0.0.1", 1);
    let wanted = ends(&pairs[0].0);
    let elsewhere = (wanted.0, SocketAddr::from(([192, 0, 2, 1], 9)));
    let mut connections = ConnectionTable::open().unwrap();
    assert_eq!(connections.find_by_ends(&[elsewhere]).unwrap(), []);
    assert_eq!(connections.find_by_ends(&[]).unwrap(), []);
}

#[test]
fn what_is_left_of_a_connection_that_its_program_closed_is_not_reported() {
    let pairs = pairs("127.0.0.1", 1);
    let (client, server) = pairs.into_iter().next().unwrap();
    let wanted = ends(&client);
    drop(client);
    let mut connections = ConnectionTable::open().unwrap();
    let is_gone = || connections.find_by_ends(&[wanted]).unwrap().is_empty();
    assert!(
        fullpipe_testkit::within(Duration::from_secs(10), is_gone),
        "its counters are all zero"
    );
    drop(server);
}

proptest! {
    #[test]
    fn any_answer_is_read(answer in prop::collection::vec(any::<u8>(), 0..300), kind in 0_u8..24) {
        let _ = read_answer(&answer, 10, &mut Vec::new());
        // The same behind a header that fits.
        let mut framed = (answer.len() as u32 + 16).to_ne_bytes().to_vec();
        framed.extend([kind, 0]);
        framed.resize(HEADER_LENGTH, 0);
        framed.extend(&answer);
        let mut found = Vec::new();
        let _ = read_answer(&framed, 10, &mut found);
        prop_assert!(found.len() <= 10);
    }
}
