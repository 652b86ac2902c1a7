//! The JSON of both messages. What is accepted as a request can be sent again, unless its texts are
//! too long, and means the same. And what iperf3 says of users: the decrypted text, which nobody
//! can guess, and the file of users; and tickets.
#![no_main]

use fullpipe_iperf::{ErrorNumber, SealedTicket, TestParameters, TestResults, UserCredentials, UserList};
use fullpipe_units::Span;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|json: &[u8]| {
    if let Ok((credentials, time)) = UserCredentials::from_text(json) {
        assert_eq!(
            UserCredentials::from_text(credentials.to_text(time).as_bytes()),
            Ok((credentials, time))
        );
    }
    if let Ok(ticket) = SealedTicket::from_line(json) {
        assert_eq!(SealedTicket::from_line(ticket.to_line().as_bytes()), Ok(ticket));
    }
    if let Ok(users) = UserList::from_file_content(json) {
        assert!(users.check_login(json, 0, Span::ZERO).is_err());
    }
    if let Ok(results) = TestResults::decode_json(json, 256) {
        for stream in &results.streams {
            let _ = stream.datagrams.as_seen();
        }
    }
    if let Ok(Ok(request)) =
        TestParameters::decode_json(json).map(|parameters| parameters.to_request())
    {
        match TestParameters::from_request(&request) {
            Ok(again) => assert_eq!(again.to_request(), Ok(request)),
            Err(refusal) => assert_eq!(refusal.number, ErrorNumber::SEND_PARAMETERS, "{refusal}"),
        }
    }
});
