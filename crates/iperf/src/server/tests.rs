use super::*;
use crate::{ClientAction, ClientSession};
use fullpipe_units::ByteCount;

#[test]
fn streams_that_trickle_in_are_not_waited_for_longer_than_all_may_take() {
    let second = |second| Time::ZERO + Span::from_secs(second);
    let mut server = ServerSession::new(Time::ZERO, Timeouts::default());
    let parameters = br#"{"udp":true,"time":1,"parallel":20}"#;
    server.receive_bytes(
        Time::ZERO,
        &u32::try_from(parameters.len()).unwrap().to_be_bytes(),
    );
    server.receive_bytes(Time::ZERO, parameters);
    // Each within its ten seconds, the whole within fifty.
    for at in [9, 18, 27, 36, 45] {
        server.check_deadline(second(at));
        assert!(server.stream_connected(second(at)), "at {at} s");
    }
    server.check_deadline(second(49));
    assert_eq!(server.phase, Some(SessionStep::Streams));
    server.check_deadline(second(50));
    assert_eq!(server.phase, None);
}

fn key(text: &str) -> SharedKey {
    SharedKey::from_file_content(text.as_bytes()).unwrap()
}

/// Returns a server that asks for a key with the nonce `random`, after the client's cookie.
fn server_with_key(random: u8) -> ServerSession {
    let check = KeyCheck::new(
        ServerKey::Shared(key("correct horse battery")),
        TestCookie::from_random([7; 36]),
        ServerNonce::new([random; 32]),
    );
    ServerSession::new(Time::ZERO, Timeouts::default()).with_key(check)
}

/// Runs a client with this key against `server` until neither has more to send. Returns the
/// bytes that the client sent, and the server's last action.
fn talk(client_key: Option<&str>, server: &mut ServerSession) -> (Vec<u8>, Option<ServerAction>) {
    let cookie = TestCookie::from_random([7; 36]);
    let mut client =
        ClientSession::new(&Request::default(), cookie, Time::ZERO, Timeouts::default()).unwrap();
    client = client_key
        .map(key)
        .into_iter()
        .fold(client, ClientSession::with_key);
    let (mut sent, mut last) = (Vec::new(), None);
    client.next_action();
    loop {
        let mut is_quiet = true;
        while let Some(action) = server.next_action() {
            if let ServerAction::Send(bytes) = &action {
                is_quiet = false;
                client.receive_bytes(Time::ZERO, bytes);
            }
            last = Some(action);
        }
        while let Some(action) = client.next_action() {
            if let ClientAction::Send(bytes) = action {
                server.receive_bytes(Time::ZERO, &bytes);
                sent.extend(bytes);
            }
        }
        if is_quiet {
            return (sent, last);
        }
    }
}

fn is_unauthorized(action: Option<&ServerAction>) -> bool {
    matches!(action, Some(ServerAction::Failed(TestError::Refused(refusal)))
            if refusal.number == ErrorNumber::AUTHENTICATION)
}

#[test]
fn a_recorded_proof_of_a_key_is_not_accepted_again_nor_for_another_test() {
    let mut server = server_with_key(1);
    let (recorded, _) = talk(Some("correct horse battery"), &mut server);
    assert_eq!(server.phase, Some(SessionStep::Streams));
    let mut again = server_with_key(2);
    again.receive_bytes(Time::ZERO, &recorded);
    assert!(is_unauthorized(again.actions.back()), "{:?}", again.actions);
    let mut changed = recorded.clone();
    let at = recorded
        .windows(9)
        .position(|bytes| bytes == b"\"time\":10")
        .unwrap();
    changed[at + 7] = b'9';
    let mut server = server_with_key(1);
    server.receive_bytes(Time::ZERO, &changed);
    assert!(
        is_unauthorized(server.actions.back()),
        "{:?}",
        server.actions
    );
}

#[test]
fn who_does_not_prove_the_key_is_refused_and_the_log_has_the_reason() {
    let (_, last) = talk(Some("incorrect horse battery"), &mut server_with_key(1));
    assert!(is_unauthorized(last.as_ref()), "{last:?}");
    let (_, last) = talk(None, &mut server_with_key(1));
    assert_eq!(
        last,
        Some(ServerAction::Failed(TestError::ClientTerminated {
            step: SessionStep::Key
        }))
    );
    for (json, why) in [
        (r#"{"tcp":true}"#, "not fullpipe"),
        (r#"{"x_fullpipe":{"version":1}}"#, "update it"),
    ] {
        let mut server = server_with_key(1);
        server.receive_bytes(
            Time::ZERO,
            &u32::try_from(json.len()).unwrap().to_be_bytes(),
        );
        server.receive_bytes(Time::ZERO, json.as_bytes());
        let Some(ServerAction::Failed(error)) = server.actions.back() else {
            panic!("{:?}", server.actions)
        };
        assert!(error.to_string().contains(why), "{error}");
    }
}

#[test]
fn a_busy_server_denies_access_in_the_words_of_iperf3() {
    let mut server = ServerSession::new(Time::ZERO, Timeouts::default());
    server.refuse_test(
        TestRefusal {
            number: ErrorNumber::BUSY,
            why: "all streams are taken".to_owned(),
        },
        None,
    );
    assert!(
        server
            .actions
            .contains(&ServerAction::Send(vec![StateByte::AccessDenied.to_byte()]))
    );
}

#[test]
fn a_clients_results_hold_no_more_memory_than_its_streams_need() {
    assert_eq!(client_results_limit(1).get(), 8_704);
    assert!(client_results_limit(256) < ByteCount::from_kib(140));
    let mut server = ServerSession::new(Time::ZERO, Timeouts::default());
    server.enter_step(SessionStep::Results, Time::ZERO);
    server.receive_bytes(Time::ZERO, &(16_u32 << 20).to_be_bytes());
    assert!(matches!(
        server.actions.back(),
        Some(ServerAction::Failed(TestError::Oversized { .. }))
    ));
}

#[test]
fn no_more_than_one_message_is_held() {
    for (step, limit) in [
        (
            SessionStep::Parameters,
            JsonMessage::Parameters.max_length(),
        ),
        (SessionStep::Results, client_results_limit(0)),
    ] {
        let limit = usize::try_from(limit.get()).unwrap();
        let mut server = ServerSession::new(Time::ZERO, Timeouts::default());
        server.enter_step(step, Time::ZERO);
        server.receive_bytes(Time::ZERO, &u32::try_from(limit).unwrap().to_be_bytes());
        let mut most = 0;
        for _ in 0..(limit / 1000 + 10) {
            server.receive_bytes(Time::ZERO, &[b'x'; 1000]);
            most = most.max(server.inbox.len());
        }
        assert!(most > limit / 2 && most <= limit + 4, "{most}");
        assert_eq!((server.phase, server.inbox.len()), (None, 0));
    }
}
