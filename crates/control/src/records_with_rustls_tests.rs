//! Records with the TLS library itself at the other end.

use std::io::{self, Read, Write};
use std::sync::Arc;

use tokio_rustls::rustls::{
    CipherSuite, ClientConnection, Connection, Error, HandshakeKind, PeerMisbehaved, ServerConfig,
    ServerConnection,
};

use crate::raw_key::UNREAD_NAME;
use crate::records::tests::{receive, sealed};
use crate::records::{HEADER, TrafficSecrets, client_that_states, server_that_states};
use crate::{PeerTls, RecordError, TlsRecords};

/// Types of content.
const HANDSHAKE: u8 = 22;
const DATA: u8 = 23;

/// Records without payload that may come in a row.
const MAX_IDLE: usize = 32;

/// An end of a connection that the library keeps, and the secrets that its handshake stated.
struct End {
    tls: Connection,
    secrets: Arc<TrafficSecrets>,
}

impl End {
    fn caller(tls: &PeerTls) -> Self {
        let secrets = Arc::default();
        let tls = ClientConnection::new(
            client_that_states(&tls.0.client, &secrets),
            UNREAD_NAME.try_into().unwrap(),
        )
        .unwrap();
        Self {
            tls: tls.into(),
            secrets,
        }
    }

    fn listener(tls: &PeerTls, change: impl FnOnce(&mut ServerConfig)) -> Self {
        let secrets = Arc::default();
        let mut config = Arc::into_inner(server_that_states(&tls.0.server, &secrets)).unwrap();
        change(&mut config);
        let tls = ServerConnection::new(Arc::new(config)).unwrap();
        Self {
            tls: tls.into(),
            secrets,
        }
    }

    fn taken_over(self) -> io::Result<TlsRecords> {
        TlsRecords::take_over(self.tls, &self.secrets, Vec::new())
    }

    /// Returns the TLS records that this end writes for `payload`.
    fn sealed(&mut self, payload: &[u8]) -> Vec<u8> {
        self.tls.writer().write_all(payload).unwrap();
        self.written()
    }

    fn written(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        while self.tls.wants_write() {
            self.tls.write_tls(&mut bytes).unwrap();
        }
        bytes
    }

    /// Returns the payload of what has arrived.
    fn receive(&mut self, mut bytes: &[u8]) -> Result<Vec<u8>, Error> {
        let mut payload = Vec::new();
        while !bytes.is_empty() {
            self.tls.read_tls(&mut bytes).unwrap();
            self.tls.process_new_packets()?;
            // It fails where no more is there now.
            let _ = self.tls.reader().read_to_end(&mut payload);
        }
        Ok(payload)
    }
}

/// Lets both ends finish their handshake.
fn shake_hands(caller: &mut End, listener: &mut End) -> Result<(), Error> {
    while caller.tls.wants_write() || listener.tls.wants_write() {
        listener.receive(&caller.written())?;
        caller.receive(&listener.written())?;
    }
    assert!(!caller.tls.is_handshaking() && !listener.tls.is_handshaking());
    Ok(())
}

/// Returns two ends that know each other, the caller first if it `calls`, and the other end first
/// if not.
fn ends(calls: bool) -> [End; 2] {
    let tls = PeerTls::new().unwrap();
    let (mut caller, mut listener) = (End::caller(&tls), End::listener(&tls, |_| {}));
    shake_hands(&mut caller, &mut listener).unwrap();
    caller.tls.set_buffer_limit(None);
    listener.tls.set_buffer_limit(None);
    if calls {
        [caller, listener]
    } else {
        [listener, caller]
    }
}

/// Returns the lengths of records without their headers.
fn bodies(mut bytes: &[u8]) -> Vec<usize> {
    let mut lengths = Vec::new();
    while let Some(&[_, _, _, high, low]) = bytes.first_chunk::<HEADER>() {
        let length = usize::from(u16::from_be_bytes([high, low]));
        bytes = &bytes[HEADER + length..];
        lengths.push(length);
    }
    lengths
}

/// Returns our end, and that of the library.
fn ours_and_theirs(calls: bool) -> (TlsRecords, End) {
    let [ours, theirs] = ends(calls);
    (ours.taken_over().unwrap(), theirs)
}

#[test]
fn records_of_every_length_are_understood_by_the_library_and_by_us() {
    for calls in [true, false] {
        let (mut ours, mut theirs) = ours_and_theirs(calls);
        for length in [0, 1, 16_383, 16_384, 16_385, 40_000] {
            let payload: Vec<u8> = (0..length).map(|number| (number % 251) as u8).collect();
            let mut bytes = Vec::new();
            ours.seal_payload(&payload, &mut bytes).unwrap();
            assert!(theirs.receive(&bytes).unwrap() == payload, "{length}");
            assert!(
                receive(&mut ours, &theirs.sealed(&payload)).unwrap() == payload,
                "{length}"
            );
        }
        let empty = sealed(&mut ours, DATA, b"");
        assert_eq!(theirs.receive(&empty).unwrap(), b"");
        let mut end = Vec::new();
        ours.seal_end(&mut end).unwrap();
        theirs.receive(&end).unwrap();
        assert_eq!(theirs.tls.reader().read(&mut [0; 9]).unwrap(), 0);
        theirs.tls.send_close_notify();
        receive(&mut ours, &theirs.written()).unwrap();
        assert!(ours.has_ended());
    }
}

#[test]
fn an_end_that_is_asked_twice_for_new_keys_makes_them_once_and_the_library_follows() {
    let payload = vec![5; 40_000];
    for calls in [true, false] {
        let (mut ours, mut theirs) = ours_and_theirs(calls);
        for _ in 0..3 {
            let mut asks = theirs.sealed(b"before, ");
            theirs.tls.refresh_traffic_keys().unwrap();
            asks.extend(theirs.sealed(b"between, "));
            theirs.tls.refresh_traffic_keys().unwrap();
            asks.extend(theirs.sealed(b"after"));
            let received: Vec<u8> = asks
                .chunks(7)
                .flat_map(|part| receive(&mut ours, part).unwrap())
                .collect();
            assert_eq!(received, b"before, between, after");
            let mut answer = Vec::new();
            ours.seal_payload(&payload, &mut answer).unwrap();
            assert_eq!(
                bodies(&answer),
                [5 + 17, 16_384 + 17, 16_384 + 17, 7_232 + 17]
            );
            assert!(theirs.receive(&answer).unwrap() == payload);
        }
    }
}

#[test]
fn records_that_are_on_their_way_while_keys_change_are_read() {
    let (mut ours, mut theirs) = ours_and_theirs(true);
    let mut on_its_way = Vec::new();
    ours.seal_payload(b"from before", &mut on_its_way).unwrap();
    theirs.tls.refresh_traffic_keys().unwrap();
    receive(&mut ours, &theirs.written()).unwrap();
    ours.seal_payload(b", and after", &mut on_its_way).unwrap();
    assert_eq!(
        theirs.receive(&on_its_way).unwrap(),
        b"from before, and after"
    );
}

#[test]
fn a_record_of_the_library_that_is_cut_anywhere_gives_nothing_until_the_rest_comes() {
    let (mut ours, mut theirs) = ours_and_theirs(false);
    for cut in 0..5 + 7 + 17 {
        let record = theirs.sealed(b"payload");
        let (begin, rest) = record.split_at(cut);
        assert_eq!(receive(&mut ours, begin).unwrap(), b"", "{cut}");
        assert_eq!(ours.partial_record().len(), cut);
        assert_eq!(receive(&mut ours, rest).unwrap(), b"payload", "{cut}");
    }
}

#[test]
fn a_record_of_which_a_bit_was_changed_is_refused_by_the_library_and_by_us() {
    for index in 0..5 + 7 + 17 {
        let (mut ours, mut theirs) = ours_and_theirs(index % 2 == 0);
        let mut bytes = theirs.sealed(b"payload");
        bytes[index] ^= 1 << (index % 8);
        // The length of a record is hidden from nobody: with a greater one, the rest is waited for.
        assert!(
            receive(&mut ours, &bytes).map_or(true, |payload| payload.is_empty()),
            "{index}"
        );
        let mut bytes = sealed(&mut ours, DATA, b"payload");
        bytes[index] ^= 1 << (index % 8);
        // The library ignores the type and the minor version in the header, which say nothing.
        let understood = theirs
            .receive(&bytes)
            .is_ok_and(|payload| !payload.is_empty());
        assert_eq!(understood, index == 0 || index == 2, "{index}");
    }
}

#[test]
fn the_library_refuses_the_same_floods_as_we_do() {
    let (mut ours, mut theirs) = ours_and_theirs(true);
    let flood: Vec<u8> = (0..=MAX_IDLE)
        .flat_map(|_| sealed(&mut ours, DATA, b""))
        .collect();
    assert_eq!(
        theirs.receive(&flood),
        Err(PeerMisbehaved::TooManyEmptyFragments.into())
    );
    let (mut ours, mut theirs) = ours_and_theirs(true);
    let flood: Vec<u8> = (0..=MAX_IDLE)
        .flat_map(|_| sealed(&mut ours, HANDSHAKE, &[24, 0, 0, 1, 1]))
        .collect();
    assert_eq!(
        theirs.receive(&flood),
        Err(PeerMisbehaved::TooManyKeyUpdateRequests.into())
    );
}

#[test]
fn a_connection_is_not_taken_over_with_keys_that_are_not_those_of_its_handshake() {
    for calls in [true, false] {
        let [mut ours, mut theirs] = ends(calls);
        theirs.tls.refresh_traffic_keys().unwrap();
        ours.receive(&theirs.written()).unwrap();
        let error = ours.taken_over().unwrap_err();
        assert!(
            error.to_string().contains("keys of TLS were changed"),
            "{error}"
        );
    }
}

#[test]
fn a_connection_is_not_taken_over_while_the_library_has_something_to_send() {
    let [mut ours, _theirs] = ends(true);
    ours.tls.writer().write_all(b"payload").unwrap();
    assert!(ours.taken_over().is_err());
    assert!(End::caller(&PeerTls::new().unwrap()).taken_over().is_err());
}

#[test]
fn no_other_cipher_suite_is_agreed_on_or_taken_over() {
    let ours = PeerTls::new().unwrap();
    for suite in [
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256,
        CipherSuite::TLS13_AES_128_GCM_SHA256,
    ] {
        let other = PeerTls::of_suite(suite).unwrap();
        for (caller, listener) in [(&ours, &other), (&other, &ours)] {
            assert!(
                shake_hands(
                    &mut End::caller(caller),
                    &mut End::listener(listener, |_| {})
                )
                .is_err()
            );
        }
        let (mut caller, mut listener) = (End::caller(&other), End::listener(&other, |_| {}));
        shake_hands(&mut caller, &mut listener).unwrap();
        assert!(caller.taken_over().is_err() && listener.taken_over().is_err());
    }
}

#[test]
fn a_caller_resumes_no_session_of_a_listener_that_gives_tickets() {
    let tls = PeerTls::new().unwrap();
    for _ in 0..2 {
        let mut caller = End::caller(&tls);
        let mut listener = End::listener(&tls, |config| config.send_tls13_tickets = 2);
        shake_hands(&mut caller, &mut listener).unwrap();
        assert_eq!(caller.tls.handshake_kind(), Some(HandshakeKind::Full));
    }
}

#[test]
fn a_ticket_that_comes_after_the_handshake_is_refused() {
    let tls = PeerTls::new().unwrap();
    let (mut caller, mut listener) = (
        End::caller(&tls),
        End::listener(&tls, |config| config.send_tls13_tickets = 1),
    );
    listener.receive(&caller.written()).unwrap();
    caller.receive(&listener.written()).unwrap();
    listener.receive(&caller.written()).unwrap();
    let tickets = listener.written();
    assert_eq!(
        receive(&mut caller.taken_over().unwrap(), &tickets),
        Err(RecordError::Content)
    );
}
