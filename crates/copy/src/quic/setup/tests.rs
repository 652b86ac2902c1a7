use super::*;
use std::io::{Read, Write};
use std::net::Ipv4Addr;
use std::thread;
use std::time::Instant;

const LOOPBACK: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

fn connected() -> [QuicConnection; 2] {
    let listener = QuicListener::start_listening(None, (0, 0), &[7; 32]).unwrap();
    let near = dial_quic(&[LOOPBACK], listener.port, &[7; 32], HANDSHAKE_DEADLINE).unwrap();
    [near, listener.take_connection(HANDSHAKE_DEADLINE).unwrap()]
}

#[test]
fn streams_cross_side_by_side_in_the_order_in_which_they_were_written() {
    const SIZE: usize = 5_000_001;
    let [near, far] = connected();
    let content = |stream: usize| {
        (0..SIZE)
            .map(move |at| (at / 3 + stream) as u8)
            .collect::<Vec<u8>>()
    };
    thread::scope(|threads| {
        for (stream, mut writer) in far.stream_writers(3).into_iter().enumerate() {
            threads.spawn(move || {
                for part in content(stream).chunks(70_000) {
                    writer.write_all(part).unwrap();
                }
                writer.flush().unwrap();
            });
        }
        // What has come before there is a reader waits.
        thread::sleep(Duration::from_millis(100));
        for (stream, mut reader) in near.stream_readers(3).into_iter().enumerate() {
            threads.spawn(move || {
                let mut received = vec![0; SIZE];
                reader.read_exact(&mut received).unwrap();
                assert!(received == content(stream), "{stream}");
            });
        }
    });
    assert!(
        far.quic_figures().packets > 3 * SIZE as u64 / u64::from(MAX_DATAGRAM),
        "{:?}",
        far.quic_figures()
    );
    let mut readers = near.stream_readers(3);
    drop(far);
    assert!(readers[0].read(&mut [0]).is_err());
}

/// The answer once came from the address that the routes prefer, and the caller took none.
#[test]
fn a_listener_answers_from_the_address_that_was_called() {
    let content = vec![7; 3_000_000];
    for last in [2, 9] {
        let listener = QuicListener::start_listening(None, (0, 0), &[7; 32]).unwrap();
        let called = SocketAddr::from(([127, 0, 0, last], 0));
        let near = dial_quic(&[called], listener.port, &[7; 32], HANDSHAKE_DEADLINE).unwrap();
        let far = listener.take_connection(HANDSHAKE_DEADLINE).unwrap();
        for [from, to] in [[&near, &far], [&far, &near]] {
            let mut writer = from.stream_writers(1).pop().unwrap();
            writer.write_all(&content).unwrap();
            writer.flush().unwrap();
            let mut received = vec![0; content.len()];
            to.stream_readers(1)
                .pop()
                .unwrap()
                .read_exact(&mut received)
                .unwrap();
            assert!(received == content);
        }
    }
}

#[test]
fn who_does_not_know_the_secret_is_refused_and_rubbish_is_ignored() {
    let listener = QuicListener::start_listening(None, (0, 0), &[7; 32]).unwrap();
    let rubbish = UdpSocket::bind("127.0.0.1:0").unwrap();
    for length in [0, 1, 20, 1200, 1472, 9000] {
        // Once like the header of an Initial packet, once like a short one.
        for first in [0xc0, 0x40, 0xff] {
            let mut datagram = vec![0xaa; length];
            if let Some([a, b, c, d, e, ..]) = datagram.get_mut(..) {
                [*a, *b, *c, *d, *e] = [first, 0, 0, 0, 1];
            }
            rubbish
                .send_to(&datagram, ("127.0.0.1", listener.port))
                .unwrap();
        }
    }
    let began = Instant::now();
    assert!(dial_quic(&[LOOPBACK], listener.port, &[8; 32], HANDSHAKE_DEADLINE).is_err());
    assert!(
        began.elapsed() < HANDSHAKE_DEADLINE
            && listener
                .take_connection(Duration::from_millis(50))
                .is_none()
    );
    let near = dial_quic(&[LOOPBACK], listener.port, &[7; 32], HANDSHAKE_DEADLINE).unwrap();
    let far = listener.take_connection(HANDSHAKE_DEADLINE).unwrap();
    // Nor does it disturb a connection.
    let mut writer = near.stream_writers(1).pop().unwrap();
    writer.write_all(b"data").unwrap();
    writer.flush().unwrap();
    rubbish
        .send_to(&[0xaa; 1200], ("127.0.0.1", listener.port))
        .unwrap();
    let mut seen = [0; 4];
    far.stream_readers(1)
        .pop()
        .unwrap()
        .read_exact(&mut seen)
        .unwrap();
    assert_eq!(&seen, b"data");
}

#[test]
fn a_silent_path_has_a_deadline_and_a_closed_port_is_noticed_at_once() {
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let began = Instant::now();
    let error = dial_quic(&[LOOPBACK], port, &[7; 32], Duration::from_millis(300)).unwrap_err();
    assert!(
        error.kind() == io::ErrorKind::TimedOut && began.elapsed() < Duration::from_secs(2),
        "{error}"
    );
    drop(silent);
    let error = dial_quic(&[LOOPBACK], port, &[7; 32], HANDSHAKE_DEADLINE).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
}
