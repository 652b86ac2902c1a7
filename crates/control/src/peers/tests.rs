use super::*;
use crate::TlsRecords;
use crate::loopback::{connected_pair, run_test};
use tokio::io::AsyncWriteExt;
use tokio_rustls::TlsStream;

fn key(text: &str) -> SharedKey {
    SharedKey::from_file_content(text.as_bytes()).unwrap()
}

#[test]
fn both_ends_prove_the_key_in_the_clear_and_inside_tls() {
    run_test(async {
        for tls in [None, Some(PeerTls::new().unwrap())] {
            let (caller, listener) = connected_pair().await;
            let key = key("correct horse battery");
            let (called, answered) = tokio::join!(
                AuthenticatedPeer::connect_peer(caller, &key, tls.as_ref()),
                AuthenticatedPeer::accept_peer(listener, &key, tls.as_ref())
            );
            let (mut called, mut answered) = (called.unwrap(), answered.unwrap());
            for control in [&called.control, &answered.control] {
                assert!(control.tcp_stream().nodelay().unwrap());
            }
            called.control.send_bytes(b"text").await.unwrap();
            assert_eq!(answered.control.receive_bytes().await.unwrap(), b"text");
            assert!(answered.verifies_tag(&called.tag_text(b"text"), b"text"));
            assert!(!answered.verifies_tag(&called.tag_text(b"text"), b"test"));
        }
    });
}

/// Two ends that know each other, inside TLS.
async fn peers() -> [AuthenticatedPeer; 2] {
    let (tls, key) = (PeerTls::new().unwrap(), key("correct horse battery"));
    let (caller, listener) = connected_pair().await;
    let (called, answered) = tokio::join!(
        AuthenticatedPeer::connect_peer(caller, &key, Some(&tls)),
        AuthenticatedPeer::accept_peer(listener, &key, Some(&tls))
    );
    [called.unwrap(), answered.unwrap()]
}

/// Reads until `length` bytes of payload have come.
async fn read_records(stream: &mut TcpStream, records: &mut TlsRecords, length: usize) -> Vec<u8> {
    let mut payload = records.take_arrived();
    while payload.len() < length {
        let mut buffer = records.partial_record().to_vec();
        stream.read_buf(&mut buffer).await.unwrap();
        let opened = records.open_records(&mut buffer).unwrap();
        payload.extend_from_slice(&buffer[..opened]);
    }
    payload
}

async fn read_control(control: &mut ControlConnection, length: usize) -> Vec<u8> {
    let mut payload = vec![0; length];
    control.read_exact(&mut payload).await.unwrap();
    payload
}

fn refresh_keys(control: &mut ControlConnection) {
    let ControlConnection::Encrypted(encrypted) = control else {
        panic!("it is encrypted")
    };
    match &mut encrypted.stream {
        TlsStream::Client(stream) => stream.get_mut().1.refresh_traffic_keys(),
        TlsStream::Server(stream) => stream.get_mut().1.refresh_traffic_keys(),
    }
    .unwrap();
}

#[test]
fn an_end_that_takes_its_records_over_understands_the_tls_library_at_the_other_end() {
    run_test(async {
        let payload: Vec<u8> = (0..40_000_u32).map(|number| (number % 251) as u8).collect();
        for caller_takes_over in [true, false] {
            let [called, answered] = peers().await;
            let (taken, mut other) = if caller_takes_over {
                (called, answered)
            } else {
                (answered, called)
            };
            let (mut stream, records) = taken.control.into_records().unwrap();
            let mut records = records.expect("it is encrypted");
            for round in 0..3 {
                let mut sealed = Vec::new();
                records.seal_payload(&payload, &mut sealed).unwrap();
                stream.write_all(&sealed).await.unwrap();
                assert!(
                    read_control(&mut other.control, payload.len()).await == payload,
                    "{round}"
                );
                // Its next message asks for new keys of both directions.
                refresh_keys(&mut other.control);
                other.control.send_bytes(&payload).await.unwrap();
                assert!(
                    read_records(&mut stream, &mut records, payload.len()).await == payload,
                    "{round}"
                );
            }
            let mut end = Vec::new();
            records.seal_end(&mut end).unwrap();
            stream.write_all(&end).await.unwrap();
            assert!(other.control.receive_bytes().await.unwrap().is_empty());
            other.control.shutdown().await.unwrap();
            while !records.has_ended() {
                let mut buffer = records.partial_record().to_vec();
                assert!(stream.read_buf(&mut buffer).await.unwrap() > 0);
                assert_eq!(records.open_records(&mut buffer), Ok(0));
            }
        }
    });
}

#[test]
fn what_came_with_a_message_is_not_lost_when_records_are_taken_over() {
    run_test(async {
        let [mut called, mut answered] = peers().await;
        called
            .control
            .send_bytes(b"request and more")
            .await
            .unwrap();
        called.control.send_bytes(b" and the next").await.unwrap();
        called.control.shutdown().await.unwrap();
        assert_eq!(read_control(&mut answered.control, 7).await, b"request");
        let (mut stream, records) = answered.control.into_records().unwrap();
        let mut records = records.expect("it is encrypted");
        assert!(!records.has_ended());
        assert_eq!(
            read_records(&mut stream, &mut records, 22).await,
            b" and more and the next"
        );
    });
}

#[test]
fn neither_end_accepts_another_key() {
    run_test(async {
        for tls in [None, Some(PeerTls::new().unwrap())] {
            let (caller, listener) = connected_pair().await;
            let (right, wrong) = (key("correct horse battery"), key("correct horse batterz"));
            let (called, answered) = tokio::join!(
                AuthenticatedPeer::connect_peer(caller, &wrong, tls.as_ref()),
                AuthenticatedPeer::accept_peer(listener, &right, tls.as_ref())
            );
            assert_eq!(called.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
            assert!(answered.is_err());
        }
    });
}

#[test]
fn a_recorded_call_is_not_valid_again() {
    run_test(async {
        let key = key("correct horse battery");
        // What a caller would send to a listener whose random bytes it has recorded.
        let nonces = [[1; LENGTH], [2; LENGTH]];
        let (mut caller, listener) = connected_pair().await;
        let recorded = [
            &GREETING[..],
            &nonces[0],
            &key.tag_parts(&proof_parts(CALLER, &[0; LENGTH], &nonces)),
        ]
        .concat();
        caller.write_all(&recorded).await.unwrap();
        let refused = AuthenticatedPeer::accept_peer(listener, &key, None)
            .await
            .unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
    });
}

#[test]
fn an_echo_of_our_own_proof_proves_nothing() {
    run_test(async {
        let key = key("correct horse battery");
        let (mut caller, listener) = connected_pair().await;
        let echo = async {
            caller
                .write_all(&[&GREETING[..], &[1; LENGTH]].concat())
                .await
                .unwrap();
            let mut answer = [0; 2 * LENGTH];
            caller.read_exact(&mut answer).await.unwrap();
            caller.write_all(&answer[LENGTH..]).await.unwrap();
        };
        let (refused, ()) =
            tokio::join!(AuthenticatedPeer::accept_peer(listener, &key, None), echo);
        assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    });
}

#[test]
fn rubbish_is_refused() {
    run_test(async {
        for tls in [None, Some(PeerTls::new().unwrap())] {
            let (mut caller, listener) = connected_pair().await;
            caller.write_all(&[7; 400]).await.unwrap();
            assert!(
                AuthenticatedPeer::accept_peer(
                    listener,
                    &key("correct horse battery"),
                    tls.as_ref()
                )
                .await
                .is_err()
            );
        }
    });
}
