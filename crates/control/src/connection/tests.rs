use super::*;
use crate::loopback::{self, run_test};
use socket2::SockRef;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::time::timeout;

/// Two ends, with buffers that do not hold [`message`].
async fn connected() -> (ControlConnection, TcpStream) {
    let (other, stream) = loopback::connected_pair().await;
    SockRef::from(&stream)
        .set_send_buffer_size(64 << 10)
        .unwrap();
    SockRef::from(&other)
        .set_recv_buffer_size(64 << 10)
        .unwrap();
    (ControlConnection::Plain(stream), other)
}

fn message() -> Vec<u8> {
    (0..4 << 20).map(|index| (index % 251) as u8).collect()
}

#[test]
fn what_the_other_end_does_not_take_keeps_nothing_from_being_received() {
    run_test(async {
        let (mut control, mut other) = connected().await;
        let mut waiting = message();
        let idle = timeout(
            Duration::from_millis(50),
            control.receive_and_send(&mut waiting),
        )
        .await;
        assert!(
            idle.is_err() && !waiting.is_empty() && waiting.len() < message().len(),
            "{}",
            waiting.len()
        );
        other.write_all(&[4]).await.unwrap();
        assert_eq!(control.receive_and_send(&mut waiting).await.unwrap(), [4]);
        assert!(!waiting.is_empty());
        // When it does at last, it gets all of it in its order, however often the waiting was
        // given up.
        let takes = tokio::spawn(async move {
            let mut taken = vec![0; message().len()];
            other.read_exact(&mut taken).await.map(|_| taken)
        });
        while !waiting.is_empty() {
            let _ = timeout(
                Duration::from_millis(1),
                control.receive_and_send(&mut waiting),
            )
            .await;
        }
        assert!(takes.await.unwrap().unwrap() == message());
    });
}

#[test]
fn what_was_said_before_the_connection_broke_is_received() {
    run_test(async {
        let (mut control, mut other) = connected().await;
        other.write_all(&[12]).await.unwrap();
        drop(other);
        let mut waiting = message();
        assert_eq!(control.receive_and_send(&mut waiting).await.unwrap(), [12]);
        let end = control.receive_and_send(&mut waiting).await;
        assert!(end.is_err() || end.is_ok_and(|bytes| bytes.is_empty()));
        assert!(
            control
                .receive_and_send(&mut waiting)
                .await
                .map_or(true, |bytes| bytes.is_empty())
        );
        assert!(waiting.is_empty());
    });
}
