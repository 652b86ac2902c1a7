//! The JSON of both messages. What is accepted as a request can be sent again, unless its texts are too long, and means
//! the same.
#![no_main]

use fullpipe_iperf::{ErrorNumber, Parameters, Results};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|json: &[u8]| {
    if let Ok(results) = Results::decode(json, 256) {
        for stream in &results.streams {
            let _ = stream.datagrams.as_seen();
        }
    }
    if let Ok(Ok(request)) = Parameters::decode(json).map(|parameters| parameters.to_request()) {
        match Parameters::from_request(&request) {
            Ok(again) => assert_eq!(again.to_request(), Ok(request)),
            Err(refusal) => assert_eq!(refusal.number, ErrorNumber::SEND_PARAMETERS, "{refusal}"),
        }
    }
});
