//! Any text is a listing with connections that can be judged, or has none.
#![no_main]

use fullpipe_diagnose::{diagnose, find_remedies};
use fullpipe_observe::{read_listing, watched_transfers};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let listing = read_listing(text);
    assert!(listing.other_lines.len() <= text.lines().count());
    for (_, evidence) in watched_transfers(&listing.watched, None) {
        let verdict = diagnose(&evidence);
        let confidence = verdict.confidence.get();
        assert!((0.0..=1.0).contains(&confidence) && !verdict.sentence.is_empty());
        let _ = find_remedies(&evidence, &verdict);
    }
});
