use super::*;
use crate::{
    ClientAction, ClientSession, KeyCheck, ServerAction, ServerKey, ServerNonce, ServerSession,
    TestCookie, TestError, TestParameters, Timeouts,
};
use fullpipe_units::Time;
use proptest::prelude::*;

/// A second within the slot of [`ticket`].
const NOW: u64 = 1_800_000_005;

fn secret(text: &str) -> SharedKey {
    SharedKey::from_file_content(text.as_bytes()).unwrap()
}

fn ticket() -> TestTicket {
    TestTicket {
        slot: "20270115-0800-a-b".to_owned(),
        client: "a.example".to_owned(),
        opens: 1_800_000_000,
        closes: 1_800_000_010,
        seconds: 10,
        streams: 2,
        bytes: ByteCount::from_mib(100),
        rate: None,
        udp: false,
        direction: None,
    }
}

/// Against Python: `base64.urlsafe_b64encode` of the compact JSON, and `hmac.new(b"correct horse
/// battery", b"fullpipe ticket 1" + text, "sha256")`.
#[test]
fn a_ticket_is_what_anybody_else_would_calculate() {
    let sealed = ticket().seal(&secret("correct horse battery"));
    assert_eq!(sealed.to_line(), LINE);
    assert_eq!(
        SealedTicket::from_line(format!(" {LINE}\r\n").as_bytes()),
        Ok(sealed)
    );
}

const LINE: &str = "fpt1.eyJzbG90IjoiMjAyNzAxMTUtMDgwMC1hLWIiLCJjbGllbnQiOiJhLmV4YW1wbGUiLCJvcGVucyI6MTgw\
    MDAwMDAwMCwiY2xvc2VzIjoxODAwMDAwMDEwLCJzZWNvbmRzIjoxMCwic3RyZWFtcyI6MiwiYnl0ZXMiOjEwN\
    Dg1NzYwMCwidWRwIjpmYWxzZX0.GgN3LYhnpCOGPPdszRxENMCAL5kayFiZPJpKkaPvUCk";

#[test]
fn a_ticket_does_not_show_its_key() {
    let sealed = ticket().seal(&secret("correct horse battery"));
    let key = sealed.to_line().rsplit_once('.').unwrap().1.to_owned();
    let shown = format!("{sealed:?} {}", sealed.text());
    assert!(!shown.contains(&key) && shown.contains("Key(…)"), "{shown}");
}

#[test]
fn hostile_texts_are_no_tickets() {
    let of_json = |json: &str| format!("fpt1.{}", BASE64.encode(json));
    let json = serde_json::to_string(&ticket()).unwrap();
    assert_eq!(TestTicket::from_text(&of_json(&json)), Ok(ticket()));
    let text = ticket().seal(&secret("correct horse battery")).text;
    for (text, why) in [
        (String::new(), "does not begin with fpt1."),
        (text.replace("fpt1", "fpt2"), "does not begin with fpt1."),
        (format!("{text}="), "base64url"),
        ("fpt1.\u{e4}".to_owned(), "base64url"),
        (of_json(""), "not a JSON object"),
        (of_json(&format!("[{json}]")), "not a JSON object"),
        (of_json(&"{\"slot\":".repeat(100_000)), "invalid type"),
        (
            of_json(&json.replace("udp", "rpm\\u001b")),
            "unknown field `rpm`",
        ),
        (
            of_json(&json.replace("\"udp\":false", "\"slot\":\"b\"")),
            "duplicate field",
        ),
        (of_json(&json.replace(":10,", ":-1,")), "-1"),
        (of_json(&json.replace("\"a.example\"", "\"\"")), "1 to 64"),
        (
            of_json(&json.replace("a.example", &"a".repeat(65))),
            "1 to 64",
        ),
        (of_json(&json.replace("a.example", "a\\nb")), "1 to 64"),
    ] {
        let error = TestTicket::from_text(&text).unwrap_err().to_string();
        assert!(
            error.contains(why) && error.len() < 400,
            "{text:.40}: {error}"
        );
        assert!(!error.contains(char::is_control), "{error:?}");
    }
    for line in [
        "",
        "fpt1",
        "correct horse battery",
        &text,
        &format!("{text}.AAAA"),
    ] {
        assert!(SealedTicket::from_line(line.as_bytes()).is_err(), "{line}");
    }
    assert!(SealedTicket::from_line(b"\xff.\xff").is_err());
}

/// Redeems `ticket` for `request`.
fn redeem(ticket: &TestTicket, request: &Request, now: u64) -> Result<(), TestRefusal> {
    let text = ticket.seal(&secret("correct horse battery")).text;
    let redeemed = UsedSlots::default().redeem_ticket(&text, request, now)?;
    assert_eq!(redeemed, *ticket);
    Ok(())
}

fn assert_refused(refused: &Result<(), TestRefusal>, number: ErrorNumber, what: &str) {
    let why = format!("the ticket of a.example for slot 20270115-0800-a-b {what}");
    assert_eq!(*refused, Err(TestRefusal { number, why }));
}

#[test]
fn a_ticket_is_good_from_its_first_second_to_its_last() {
    let at = |now| redeem(&ticket(), &Request::default(), now);
    assert_refused(
        &at(1_799_999_970),
        ErrorNumber::TICKET_EARLY,
        "opens in 30 s",
    );
    assert_refused(&at(0), ErrorNumber::TICKET_EARLY, "opens in 1800000000 s");
    assert_eq!([at(1_800_000_000), at(1_800_000_010)], [Ok(()), Ok(())]);
    assert_refused(
        &at(1_800_000_011),
        ErrorNumber::TICKET_EXPIRED,
        "closed 1 s ago",
    );
    assert!(at(u64::MAX).is_err());
}

#[test]
fn a_test_asks_for_no_more_than_its_ticket_permits() {
    let full = Request {
        streams: 2,
        duration: Span::from_secs(9),
        omit: Span::from_secs(1),
        direction: Direction::Both,
        ..Request::default()
    };
    let asked = |request| redeem(&ticket(), &request, NOW);
    assert_eq!(asked(full.clone()), Ok(()));
    let more = Request {
        streams: 3,
        ..full.clone()
    };
    assert_refused(
        &asked(more),
        ErrorNumber::STREAMS,
        "permits 2 streams; 3 asked for",
    );
    let longer = Request {
        duration: Span::from_secs(10),
        ..full.clone()
    };
    assert_refused(
        &asked(longer),
        ErrorNumber::MAX_DURATION,
        "permits 10 s; 11 s asked for",
    );
    let endless = TestParameters::decode_json(b"{\"tcp\":true,\"time\":0}").unwrap();
    assert!(asked(endless.to_request().unwrap()).is_err());
    let bytes = |mib| Request {
        bytes: Some(ByteCount::from_mib(mib)),
        duration: crate::MAX_TEST,
        ..full.clone()
    };
    assert_eq!(asked(bytes(100)), Ok(()));
    let too_many = "permits 100 MiB; 101 MiB asked for";
    assert_refused(&asked(bytes(101)), ErrorNumber::MAX_DURATION, too_many);
    let datagrams = Request {
        transport: Transport::Udp,
        ..full
    };
    assert_refused(
        &asked(datagrams.clone()),
        ErrorNumber::UNIMPLEMENTED,
        "permits no UDP",
    );
    let udp = TestTicket {
        udp: true,
        ..ticket()
    };
    assert_eq!(redeem(&udp, &datagrams, NOW), Ok(()));
}

#[test]
fn a_ticket_may_have_one_direction_and_a_rate_of_all_streams() {
    let narrow = TestTicket {
        direction: Some(Direction::Download),
        rate: Some(BitRate::from_mbps(10)),
        ..ticket()
    };
    let asked = |direction, rate| {
        let request = Request {
            direction,
            rate,
            streams: 2,
            ..Request::default()
        };
        redeem(&narrow, &request, NOW)
    };
    let each = |mbps| Some(BitRate::from_mbps(mbps));
    assert_eq!(asked(Direction::Download, each(5)), Ok(()));
    for direction in [Direction::Upload, Direction::Both] {
        let refused = asked(direction, each(1));
        assert_refused(
            &refused,
            ErrorNumber::UNIMPLEMENTED,
            "permits download only",
        );
    }
    let limit = "permits 10 Mbit/s; 12 Mbit/s asked for";
    assert_refused(
        &asked(Direction::Download, each(6)),
        ErrorNumber::TOTAL_RATE,
        limit,
    );
    let limit = "permits 10 Mbit/s; no limit asked for";
    assert_refused(
        &asked(Direction::Download, None),
        ErrorNumber::TOTAL_RATE,
        limit,
    );
    let both = TestTicket {
        direction: None,
        ..narrow
    };
    let request = Request {
        direction: Direction::Both,
        rate: each(6),
        ..Request::default()
    };
    assert!(redeem(&both, &request, NOW).is_err());
}

#[test]
fn a_slot_is_used_once_whatever_its_tickets_say_and_until_no_clock_can_bring_it_back() {
    let (mut used, request) = (UsedSlots::default(), Request::default());
    let mut redeem = |ticket: &TestTicket, now| {
        let text = ticket.seal(&secret("correct horse battery")).text;
        used.redeem_ticket(&text, &request, now)
            .map_err(|refusal| refusal.number)
    };
    let refused = redeem(
        &TestTicket {
            streams: 0,
            ..ticket()
        },
        NOW,
    );
    assert_eq!(refused, Err(ErrorNumber::STREAMS), "which does not use it");
    assert_eq!(redeem(&ticket(), NOW), Ok(ticket()));
    let again = TestTicket {
        client: "b".to_owned(),
        seconds: 11,
        ..ticket()
    };
    assert_eq!(redeem(&again, NOW), Err(ErrorNumber::TICKET_USED));
    let other = |slot: &str, closes| TestTicket {
        slot: slot.to_owned(),
        closes,
        ..ticket()
    };
    assert!(redeem(&other("next", u64::MAX), NOW + 3000).is_ok());
    assert_eq!(
        redeem(&ticket(), NOW),
        Err(ErrorNumber::TICKET_USED),
        "the clock was set back"
    );
    assert!(redeem(&other("last", u64::MAX), NOW + 4000).is_ok());
    assert_eq!(
        redeem(&other("next", u64::MAX), NOW + 4000),
        Err(ErrorNumber::TICKET_USED)
    );
}

#[test]
fn a_server_remembers_a_bounded_number_of_slots() {
    let (mut used, request) = (UsedSlots::default(), Request::default());
    let mut redeem = |slot: usize, now| {
        let ticket = TestTicket {
            slot: slot.to_string(),
            closes: now,
            ..ticket()
        };
        let text = ticket.seal(&secret("correct horse battery")).text;
        used.redeem_ticket(&text, &request, now)
            .map_err(|refusal| refusal.number)
    };
    assert!((0..UsedSlots::MOST).all(|slot| redeem(slot, NOW).is_ok()));
    assert_eq!(redeem(UsedSlots::MOST, NOW + 3600), Err(ErrorNumber::BUSY));
    assert!(redeem(UsedSlots::MOST, NOW + 3601).is_ok());
}

/// Runs a client that shows `shown` and proves `key` against a server of tickets. Returns what
/// became of the test at the server, and the client's bytes.
fn talk(shown: Option<&SealedTicket>, key: &SharedKey, nonce: u8) -> (ServerAction, Vec<u8>) {
    let cookie = TestCookie::from_random([7; 36]);
    let parameters = TestParameters::from_request(&Request::default()).unwrap();
    let parameters = shown.into_iter().fold(parameters, |parameters, ticket| {
        parameters.with_ticket(ticket).unwrap()
    });
    let client =
        ClientSession::with_parameters(parameters, cookie, Time::ZERO, Timeouts::default());
    let mut client = client.unwrap().with_key(key.clone());
    let mut server = server(nonce);
    let (mut sent, mut last) = (Vec::new(), None);
    client.next_action();
    while let Some(action) = server.next_action() {
        if let ServerAction::Send(bytes) = &action {
            client.receive_bytes(Time::ZERO, bytes);
        } else {
            last = Some(action);
        }
        while let Some(ClientAction::Send(bytes)) = client.next_action() {
            server.receive_bytes(Time::ZERO, &bytes);
            sent.extend(bytes);
        }
    }
    (last.unwrap(), sent)
}

fn server(nonce: u8) -> ServerSession {
    let key = ServerKey::OfTickets(secret("correct horse battery"));
    let cookie = TestCookie::from_random([7; 36]);
    let check = KeyCheck::new(key, cookie, ServerNonce::new([nonce; 32]));
    ServerSession::new(Time::ZERO, Timeouts::default()).with_key(check)
}

fn is_forged(action: &ServerAction) -> bool {
    matches!(action, ServerAction::Failed(TestError::Refused(refusal))
        if refusal.number == ErrorNumber::AUTHENTICATION && refusal.why.contains("is forged"))
}

#[test]
fn the_server_takes_the_ticket_of_its_secret_with_the_key_of_that_ticket() {
    let own = ticket().seal(&secret("correct horse battery"));
    let other = TestTicket {
        seconds: 11,
        ..ticket()
    }
    .seal(&secret("correct horse battery"));
    let foreign = ticket().seal(&secret("incorrect horse battery"));
    let (served, sent) = talk(Some(&own), own.key(), 1);
    assert!(
        matches!(served, ServerAction::ExpectStreams(_)),
        "{served:?}"
    );
    for (shown, key) in [
        (&own, other.key()),
        (&other, own.key()),
        (&foreign, foreign.key()),
        (&own, foreign.key()),
        (&own, &secret("incorrect horse battery")),
    ] {
        let (refused, _) = talk(Some(shown), key, 1);
        assert!(is_forged(&refused), "{refused:?}");
    }
    let mut again = server(2);
    again.receive_bytes(Time::ZERO, &sent);
    let last = std::iter::from_fn(|| again.next_action()).last().unwrap();
    assert!(is_forged(&last), "a recorded proof: {last:?}");
    let line = own.to_line();
    let key = BASE64.decode(line.rsplit_once('.').unwrap().1).unwrap();
    let crosses = sent.windows(MAC_LENGTH).any(|bytes| bytes == key);
    assert!(!crosses, "the key does not cross the network");
}

#[test]
fn who_shows_no_ticket_is_told_so_in_words_that_the_client_knows() {
    let (refused, _) = talk(None, &secret("correct horse battery"), 1);
    let refusal = |number| TestRefusal::new(number, "the client has no ticket");
    let failed = |number| ServerAction::Failed(TestError::Refused(refusal(number)));
    assert_eq!(refused, failed(ErrorNumber::TICKET_MISSING));
    let said = ErrorNumber::TICKET_MISSING.to_string();
    assert_eq!(said, "it serves only clients that have a ticket");
    for json in [
        r#"{"tcp":true,"time":1}"#,
        r#"{"tcp":true,"x_fullpipe":{"version":1}}"#,
        r#"{"tcp":true,"x_fullpipe":{"version":0,"ticket":7}}"#,
    ] {
        let mut server = server(1);
        let length = u32::try_from(json.len()).unwrap().to_be_bytes();
        server.receive_bytes(Time::ZERO, &[&length, json.as_bytes()].concat());
        let last = std::iter::from_fn(|| server.next_action()).last().unwrap();
        assert_eq!(last, failed(ErrorNumber::AUTHENTICATION), "{json}");
    }
}

#[test]
fn other_servers_see_what_they_saw_before_there_were_tickets() {
    let parameters = TestParameters::from_request(&Request::default()).unwrap();
    let without = String::from_utf8(parameters.encode_message()[4..].to_vec()).unwrap();
    assert!(
        without.ends_with(r#""x_fullpipe":{"version":3}}"#),
        "{without}"
    );
    let sealed = ticket().seal(&secret("correct horse battery"));
    let with = parameters.with_ticket(&sealed).unwrap();
    let json = &with.encode_message()[4..];
    assert_eq!(
        TestParameters::decode_json(json).unwrap().ticket_text(),
        Some(sealed.text())
    );
    let long = TestTicket {
        slot: "a".repeat(8192),
        ..ticket()
    };
    assert!(
        with.with_ticket(&long.seal(&secret("correct horse battery")))
            .is_err()
    );
}

proptest! {
    /// A bit of the text or of the key that flips on the way.
    #[test]
    fn no_changed_ticket_is_served(at in any::<prop::sample::Index>(), bit in 0..8_u8) {
        let sealed = ticket().seal(&secret("correct horse battery"));
        let mut line = sealed.to_line().into_bytes();
        line[at.index(sealed.to_line().len())] ^= 1 << bit;
        if let Ok(changed) = SealedTicket::from_line(&line)
            && changed != sealed
        {
            let (refused, _) = talk(Some(&changed), changed.key(), 1);
            prop_assert!(is_forged(&refused), "{refused:?}");
        }
    }

    #[test]
    fn no_bytes_are_a_ticket_that_cannot_be_written_again(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        slot in "[!-~]{1,64}",
        numbers in any::<[u64; 3]>(),
        rate in prop::option::of(any::<u64>().prop_map(BitRate::from_bps)),
        direction in prop::sample::select(vec![None, Some(Direction::Upload), Some(Direction::Both)]),
    ) {
        let hostile = format!("{PREFIX}{}", BASE64.encode(&bytes));
        prop_assert!(TestTicket::from_text(&hostile).is_err());
        prop_assert!(SealedTicket::from_line(&bytes).is_err());
        let [opens, closes, seconds] = numbers;
        let ticket = TestTicket { slot, opens, closes, seconds, rate, direction, ..ticket() };
        let sealed = ticket.seal(&secret("correct horse battery"));
        prop_assert_eq!(TestTicket::from_text(sealed.text()), Ok(ticket));
        prop_assert_eq!(SealedTicket::from_line(sealed.to_line().as_bytes()), Ok(sealed));
    }
}
