//! The JSON of both messages. What is accepted as a request can be sent again and means the same.
#![no_main]

use fullpipe_iperf::{Parameters, Results};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|json: &[u8]| {
    let _ = Results::decode(json, 128);
    if let Ok(Ok(request)) = Parameters::decode(json).map(|parameters| parameters.to_request()) {
        let again = Parameters::from_request(&request).expect("a request that was accepted can be sent");
        assert_eq!(again.to_request(), Ok(request));
    }
});
