use super::*;
use proptest::prelude::*;

fn client_in(step: SessionStep) -> ClientSession {
    let cookie = TestCookie::from_random([0; 36]);
    let mut client =
        ClientSession::new(&Request::default(), cookie, Time::ZERO, Timeouts::default()).unwrap();
    client.enter_step(step, Time::ZERO);
    client
}

#[test]
fn no_more_than_one_message_is_held() {
    let limit = usize::try_from(JsonMessage::Results.max_length().get()).unwrap();
    let chunk = vec![b'x'; 60_000];
    let mut client = client_in(SessionStep::Results);
    client.receive_bytes(Time::ZERO, &u32::try_from(limit).unwrap().to_be_bytes());
    let mut most = 0;
    for _ in 0..400 {
        client.receive_bytes(Time::ZERO, &chunk);
        most = most.max(client.inbox.len());
    }
    assert!(most > limit / 2 && most <= limit + 4, "{most}");
    assert_eq!((client.phase, client.inbox.len()), (ClientPhase::Over, 0));
}

proptest! {
    #[test]
    fn outside_a_message_next_to_nothing_is_held(
        chunks in prop::collection::vec(prop::collection::vec(0_u8..17, 0..6), 0..40),
        step in prop::sample::select(vec![SessionStep::Greeting, SessionStep::Streams, SessionStep::Transfer, SessionStep::LocalResults]),
    ) {
        let mut client = client_in(step);
        for chunk in chunks {
            client.receive_bytes(Time::ZERO, &chunk);
            prop_assert!(client.inbox.len() <= MAX_HELD);
        }
    }
}
