//! Peers that send anything at any time, and drivers that call anything at any time.

use fullpipe_iperf::{
    ClientAction, ClientSession, ServerAction, ServerSession, TestCookie, TestResults, Timeouts,
};
use fullpipe_record::{EndReport, Request};
use fullpipe_units::{Span, Time};
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum Event {
    Receive(Vec<u8>),
    Proceed,
    Results,
    Report,
    Wait(u64),
    Close,
    Interrupt,
}

fn message(json: &str) -> Vec<u8> {
    [
        &u32::try_from(json.len()).unwrap().to_be_bytes()[..],
        json.as_bytes(),
    ]
    .concat()
}

/// Mostly what moves a test on, so that random sequences reach its later steps.
fn any_event() -> impl Strategy<Value = Event> {
    let jsons = vec![
        r#"{"tcp":true,"parallel":2,"time":1,"x_fullpipe":{"version":1}}"#,
        r#"{"tcp":true,"parallel":-1}"#,
        r#"{"streams":[{"id":1,"bytes":18446744073709551615}]}"#,
        r#"{"streams":[{"id":1,"bytes":5,"retransmits":18446744073709551615}]}"#,
        r#"{"streams":[],"x_fullpipe":{"samples":"#,
        "{}",
    ];
    let reports = vec![
        r#"{"sockets":[],"samples":[],"until":1.5}"#,
        r#"{"sockets":[],"samples":[{"at":1,"stream":0,"bytes":18446744073709551615,"tcp":{},"memory":null}]}"#,
        r#"{"sockets":[],"samples":[{"at":1,"stream":9,"bytes":1,"tcp":{},"memory":null}]}"#,
        r#"{"sockets":[],"samples":"#,
    ];
    prop_oneof![
        6 => prop::sample::select(vec![1_u8, 2, 4, 9, 10, 13, 14, 16]).prop_map(|state| Event::Receive(vec![state])),
        1 => any::<u8>().prop_map(|byte| Event::Receive([&[b'k'][..], &[byte; 32]].concat())),
        2 => prop::sample::select(jsons).prop_map(|json| Event::Receive(message(json))),
        2 => prop::sample::select(reports)
            .prop_map(|json| Event::Receive([&[0x66][..], &message(json)].concat())),
        1 => Just(Event::Report),
        1 => prop::collection::vec(any::<u8>(), 0..40).prop_map(Event::Receive),
        4 => Just(Event::Proceed),
        2 => Just(Event::Results),
        1 => (0_u64..20).prop_map(Event::Wait),
        1 => Just(Event::Close),
        1 => Just(Event::Interrupt),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn a_client_ends_once_and_then_is_still(events in prop::collection::vec(any_event(), 0..40)) {
        let cookie = TestCookie::from_random([0; 36]);
        let mut client = ClientSession::new(&Request::default(), cookie, Time::ZERO, Timeouts::default()).unwrap();
        let mut now = Time::ZERO;
        let mut over = false;
        for event in events {
            match event {
                Event::Receive(bytes) => client.receive_bytes(now, &bytes),
                Event::Proceed => {
                    client.streams_opened(now);
                    client.transfer_finished(now);
                }
                Event::Results => client.local_results(now, TestResults::default()),
                Event::Report => {}
                Event::Wait(seconds) => {
                    now = now + Span::from_secs(seconds);
                    client.check_deadline(now);
                }
                Event::Close => client.connection_closed(),
                Event::Interrupt => client.interrupt_test(),
            }
            while let Some(action) = client.next_action() {
                prop_assert!(!over, "{:?} after the end", action);
                over = matches!(action, ClientAction::Finished(_) | ClientAction::Failed(_));
            }
            prop_assert_eq!(client.next_deadline().is_none(), over);
        }
    }

    #[test]
    fn a_server_session_ends_once_and_then_is_still(events in prop::collection::vec(any_event(), 0..40)) {
        let mut server = ServerSession::new(Time::ZERO, Timeouts::default());
        let mut now = Time::ZERO;
        let mut over = false;
        for event in events {
            match event {
                Event::Receive(bytes) => server.receive_bytes(now, &bytes),
                Event::Proceed => {
                    let _ = server.stream_connected(now);
                }
                Event::Results => server.local_results(now, TestResults::default()),
                Event::Report => server.send_report(&EndReport::default()),
                Event::Wait(seconds) => {
                    now = now + Span::from_secs(seconds);
                    server.check_deadline(now);
                }
                Event::Close => server.connection_closed(),
                Event::Interrupt => server.announce_shutdown(),
            }
            while let Some(action) = server.next_action() {
                prop_assert!(!over, "{:?} after the end", action);
                over = matches!(action, ServerAction::Finished(_) | ServerAction::Failed(_));
            }
            prop_assert_eq!(server.next_deadline().is_none(), over);
        }
    }
}
