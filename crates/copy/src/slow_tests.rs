//! Copies of which one connection passes nothing any more: a proxy stops it.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use fullpipe_testkit::random_bytes;

use crate::address::at_port;
use crate::bounds::CopyBounds;
use crate::connect::{CONNECT_DEADLINE, CopyCredentials, DataListener, dial_hosts};
use crate::corruption_tests::{LOOPBACK, receive, send};

/// Bytes that pass at first, behind the handshakes.
const PASSED: usize = 1_000_000;

/// Bytes of the file: more than the buffers of a connection hold.
const SIZE: usize = 24_000_000;

/// Time within which the copy is to end, though the connection stays: what is left in its buffers
/// would never arrive.
const MAX_DURATION: Duration = Duration::from_secs(10);

/// Passes the first bytes that its caller sends on to `port`, and no more until the sender of
/// `until` is dropped.
fn stopping_proxy(port: u16, until: Receiver<()>) -> u16 {
    let listener = TcpListener::bind(LOOPBACK).unwrap();
    let own = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        let mut caller = listener.accept().unwrap().0;
        let mut to = TcpStream::connect(at_port(LOOPBACK, port)).unwrap();
        let mut back = (to.try_clone().unwrap(), caller.try_clone().unwrap());
        thread::spawn(move || std::io::copy(&mut back.0, &mut back.1));
        let mut passed = 0;
        while passed < PASSED {
            let mut buffer = vec![0; 32 << 10];
            let Ok(count @ 1..) = caller.read(&mut buffer) else {
                break;
            };
            to.write_all(&buffer[..count]).unwrap();
            passed += count;
        }
        let _ = until.recv();
        // Either may have ended by itself.
        let _ = (to.shutdown(Shutdown::Both), caller.shutdown(Shutdown::Both));
    });
    own
}

#[test]
fn a_connection_that_stops_does_not_keep_the_end_waiting() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("file"), folder.path().join("to"));
    let content = random_bytes(SIZE);
    fs::write(&from, &content).unwrap();
    fs::create_dir(&to).unwrap();
    let credentials = CopyCredentials::new(&[7; 32], &[]).unwrap();
    let listener = DataListener::start_listening(None, (0, 0), &credentials).unwrap();
    let (stopped, until) = channel();
    let mut made = Vec::new();
    for port in [stopping_proxy(listener.port, until), listener.port] {
        made.extend(
            dial_hosts(&[LOOPBACK], port, &credentials, &mut |_| 1)
                .unwrap()
                .1,
        );
    }
    let taken = listener.take_streams(2, CONNECT_DEADLINE);
    assert_eq!(taken.len(), 2);
    let (near, far) = UnixStream::pair().unwrap();
    let (began, receiving) = (Instant::now(), to.clone());
    let receiver = thread::spawn(move || receive(&far, &receiving, taken));
    let (notes, repeated) = send(&near, &from, made, CopyBounds::default(), None).unwrap();
    let took = began.elapsed();
    near.shutdown(Shutdown::Both).unwrap();
    receiver.join().unwrap();
    drop(stopped);
    assert!(
        fs::read(to.join("file")).unwrap() == content && notes.is_empty(),
        "{notes:?}"
    );
    assert!(took < MAX_DURATION, "{took:?}");
    // What is sent again had been given to the connection that stopped: its buffers, and the
    // proxy's, hold it.
    let most = SIZE as u64 / 2 / (64 << 10);
    assert!((1..most).contains(&repeated), "{repeated} of {most}");
}
