use super::*;
use crate::connections::MISSES;
use fullpipe_record::TcpInfo;
use rustix::net::{AddressFamily, SocketType, connect, socket};
use std::net::{TcpListener, TcpStream};

/// Of this process, as if it had been started to be watched.
fn watch() -> ConnectionWatch {
    let subject = WatchSubject::Started(std::process::id());
    ConnectionWatch::new(
        subject,
        ConnectionTable::open().unwrap(),
        MachineMeters::new(false),
    )
}

fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

fn of(watch: &ConnectionWatch, remote: SocketAddr) -> Option<&ObservedConnection> {
    watch.seen.iter().find(|seen| seen.remote == remote)
}

#[test]
fn a_socket_that_connects_late_is_found() {
    let (_listener, address) = listener();
    let late = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    let mut watch = watch();
    for _ in 0..=SEARCHES {
        watch.search_connections(false).unwrap();
    }
    assert!(of(&watch, address).is_none());
    connect(&late, &address).unwrap();
    // Now, in place of a wait for it.
    watch.table_due = Instant::now();
    watch.search_connections(false).unwrap();
    assert!(of(&watch, address).is_some());
    // One that is known is no reason to search.
    assert!(watch.misses.values().any(|tries| *tries == FOUND));
}

#[test]
fn a_connection_is_closed_once_two_snapshots_in_a_row_miss_it() {
    let (listener, address) = listener();
    let pair = (
        TcpStream::connect(address).unwrap(),
        listener.accept().unwrap().0,
    );
    let mut watch = watch();
    watch.observe_connections(true, true).unwrap();
    assert!(of(&watch, address).is_some_and(|seen| seen.is_open() && !seen.is_missing()));
    drop(pair);
    let is_missing = || {
        watch.take_snapshot().unwrap();
        of(&watch, address).unwrap().is_missing()
    };
    assert!(fullpipe_testkit::within(
        Duration::from_secs(10),
        is_missing
    ));
    assert!(
        of(&watch, address).unwrap().is_open(),
        "one list may miss it"
    );
    watch.take_snapshot().unwrap();
    assert!(!of(&watch, address).unwrap().is_open());
}

#[test]
fn a_connection_after_thousands_of_short_ones_takes_the_place_of_the_least_of_them() {
    let (listener, address) = listener();
    let _pair = (
        TcpStream::connect(address).unwrap(),
        listener.accept().unwrap().0,
    );
    let mut watch = watch();
    watch.observe_connections(true, true).unwrap();
    // In place of as many connections, which are closed but for the first.
    let one = watch
        .seen
        .iter()
        .find(|seen| seen.remote == address)
        .unwrap()
        .clone();
    let closed = |number| ObservedConnection {
        cookie: u64::MAX - number,
        misses: MISSES,
        remote: one.local,
        ..one.clone()
    };
    watch.seen = (0..).map(closed).take(MAX_CONNECTIONS).collect();
    watch.seen[0].misses = 0;
    let sample = watch.samples[0].clone();
    let with = |stream: usize, bytes| {
        let tcp = TcpInfo {
            bytes_acked: Some(ByteCount::new(bytes)),
            ..TcpInfo::default()
        };
        Sample {
            stream: stream as u16,
            tcp,
            ..sample.clone()
        }
    };
    let least = MAX_CONNECTIONS - 2;
    watch.samples = (0..MAX_CONNECTIONS)
        .map(|stream| with(stream, if stream == least { 7 } else { 9 }))
        .collect();
    watch.misses.clear();
    watch.search_connections(false).unwrap();
    assert_eq!(watch.seen.len(), MAX_CONNECTIONS);
    assert!(of(&watch, address).is_some());
    assert!(
        watch
            .samples
            .iter()
            .all(|sample| usize::from(sample.stream) != least)
    );
    assert_eq!(
        watch.seen[0].cookie,
        u64::MAX,
        "one that is open keeps its place"
    );
}

#[test]
fn a_search_that_is_cheap_comes_with_each_snapshot_and_none_takes_more_time_than_before() {
    assert!(until_next_search(Duration::from_millis(2)) < PERIOD);
    assert_eq!(
        until_next_search(Duration::from_millis(7)),
        Duration::from_millis(140)
    );
    assert_eq!(until_next_search(Duration::from_secs(1)), MAX_SEARCH_PAUSE);
}

#[test]
fn the_first_failure_and_several_in_a_row_end_the_watching() {
    let failed = || Err(WatchError::Table(std::io::ErrorKind::TimedOut.into()));
    let mut failures = MAX_FAILURES - 1;
    assert!(
        unless_repeated(failed(), &mut failures).is_err(),
        "the first"
    );
    for _ in 0..2 {
        assert!(unless_repeated(Ok(()), &mut failures).is_ok());
        for _ in 1..MAX_FAILURES {
            assert!(unless_repeated(failed(), &mut failures).is_ok());
        }
    }
    assert!(unless_repeated(failed(), &mut failures).is_err());
}
