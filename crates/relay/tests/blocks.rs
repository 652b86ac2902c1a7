//! A far relay and a near one that has the key, but sends no proper blocks.

use std::io::{ErrorKind, Read};
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use fullpipe_control::AuthenticatedPeer;
use fullpipe_iperf::SharedKey;
use fullpipe_record::{RelayEnding, RelayedConnection};
use fullpipe_relay::{
    BLOCK_BYTES, RelayEvent, RelayOptions, RelayRole, TargetRequest, relay_connections,
};
use fullpipe_units::Span;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

const DEADLINE: Duration = Duration::from_secs(10);

fn key() -> SharedKey {
    SharedKey::from_file_content(b"correct horse battery").unwrap()
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// Runs `test` with the address of a far relay that may reach `target`. Returns its connections.
fn with_far_relay(target: SocketAddr, test: impl FnOnce(SocketAddr)) -> Vec<RelayedConnection> {
    let options = RelayOptions {
        address: Some([127, 0, 0, 1].into()),
        port: 0,
        allow: Vec::new(),
        max_connections: 20,
        max_connections_per_address: 20,
        drain: Span::ZERO,
        interval: None,
        role: RelayRole::Far {
            targets: vec![target.to_string().parse().unwrap()],
            key: key(),
            plain: true,
        },
    };
    let interrupt = Arc::new(AtomicBool::new(false));
    let (listens, address) = mpsc::channel();
    let far = {
        let interrupt = Arc::clone(&interrupt);
        thread::spawn(move || {
            let mut done = Vec::new();
            let note = &mut |event| match event {
                RelayEvent::Listening(address) => listens.send(address).unwrap(),
                RelayEvent::Relayed(connection) => done.push(*connection),
                _ => {}
            };
            relay_connections(&options, &interrupt, note).unwrap();
            done
        })
    };
    test(address.recv_timeout(DEADLINE).unwrap());
    interrupt.store(true, Ordering::Relaxed);
    far.join().unwrap()
}

/// Calls the far relay, and asks for `target` with blocks.
async fn ask(far: SocketAddr, target: SocketAddr) -> AuthenticatedPeer {
    let mut peer =
        AuthenticatedPeer::connect_peer(TcpStream::connect(far).await.unwrap(), &key(), None)
            .await
            .unwrap();
    peer.control
        .send_bytes(&[&[0][..], &peer.tag_text(&[])].concat())
        .await
        .unwrap();
    assert_eq!(
        peer.control.read_u8().await.unwrap() & 1,
        1,
        "it takes blocks"
    );
    let text = TargetRequest {
        target: target.to_string().parse().unwrap(),
        compress: true,
    }
    .to_bytes();
    peer.control
        .send_bytes(&[&[text.len() as u8][..], &text, &peer.tag_text(&text)].concat())
        .await
        .unwrap();
    assert_eq!(peer.control.read_u8().await.unwrap(), 0, "it is connected");
    peer
}

fn block(kind: u8, body: &[u8]) -> Vec<u8> {
    let [_, length @ ..] = (body.len() as u32).to_be_bytes();
    [&[kind][..], &length, body].concat()
}

#[test]
fn bombs_and_rubbish_are_refused_and_others_are_served() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = listener.local_addr().unwrap();
    let zeros = vec![0; BLOCK_BYTES];
    let bomb = zstd::bulk::compress(&vec![0; 64 << 20], 1).unwrap();
    assert!(bomb.len() < BLOCK_BYTES, "{}", bomb.len());
    let bad = [
        block(1, &bomb),
        block(1, &zstd::bulk::compress(&zeros, 1).unwrap().repeat(300)),
        block(1, b"rubbish"),
        block(7, b"rubbish"),
        vec![0, 0, 0, 0],
        vec![0xff; 5000],
    ];
    let count = bad.len();
    let done = with_far_relay(target, |far| {
        runtime().block_on(async {
            let mut others = ask(far, target).await;
            let (mut served, _) = listener.accept().unwrap();
            for bytes in bad {
                let mut peer = ask(far, target).await;
                let (mut victim, _) = listener.accept().unwrap();
                victim.set_read_timeout(Some(DEADLINE)).unwrap();
                peer.control
                    .send_bytes(&[block(0, b"first"), bytes].concat())
                    .await
                    .unwrap();
                let refused = timeout(DEADLINE, peer.control.read_u8()).await.unwrap();
                assert_eq!(refused.unwrap_err().kind(), ErrorKind::ConnectionReset);
                let mut received = Vec::new();
                let ended = victim.read_to_end(&mut received).unwrap_err();
                assert_eq!(ended.kind(), ErrorKind::ConnectionReset);
                assert!(
                    b"first".starts_with(&received[..]),
                    "{} bytes",
                    received.len()
                );
            }
            others
                .control
                .send_bytes(&block(1, &zstd::bulk::compress(&zeros, 1).unwrap()))
                .await
                .unwrap();
            let mut received = vec![1; BLOCK_BYTES];
            served.set_read_timeout(Some(DEADLINE)).unwrap();
            served.read_exact(&mut received).unwrap();
            assert!(received == zeros);
        });
    });
    let malformed = done
        .iter()
        .filter(|connection| connection.ending == RelayEnding::Malformed);
    assert_eq!(malformed.count(), count, "{done:#?}");
}

#[test]
fn an_end_within_a_block_is_no_end_of_the_data() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = listener.local_addr().unwrap();
    with_far_relay(target, |far| {
        runtime().block_on(async {
            let mut peer = ask(far, target).await;
            let (mut victim, _) = listener.accept().unwrap();
            victim.set_read_timeout(Some(DEADLINE)).unwrap();
            peer.control
                .send_bytes(&block(0, b"half of a block")[..9])
                .await
                .unwrap();
            let (stream, _) = peer.control.into_records().unwrap();
            stream
                .into_std()
                .unwrap()
                .shutdown(std::net::Shutdown::Write)
                .unwrap();
            let ended = victim.read_to_end(&mut Vec::new()).unwrap_err();
            assert_eq!(ended.kind(), ErrorKind::ConnectionReset);
        });
    });
}
