//! Any text is a listing, a result of iperf3 or counters with transfers that can be judged, or has
//! none.
#![no_main]

use fullpipe_diagnose::{diagnose, find_remedies};
use fullpipe_observe::{CounterReader, read_listing, watched_transfers};
use fullpipe_record::Evidence;
use fullpipe_store::iperf3_transfers;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let mut counters = CounterReader::default();
    let mut others = String::new();
    // A form feed stands between two files.
    for file in text.split('\u{c}') {
        counters.begin_file();
        for line in file.lines() {
            if !counters.read_line(line) {
                others.push_str(line);
                others.push('\n');
            }
        }
    }
    let counters = counters.into_counters().unwrap_or_default();
    let listing = read_listing(&others);
    assert!(listing.other_lines.len() <= others.lines().count());
    let mut transfers = watched_transfers(&listing.watched, None);
    if let Ok(Some(found)) = iperf3_transfers(text.as_bytes()) {
        transfers.extend(found);
    }
    for (_, evidence) in transfers {
        judge(Evidence {
            receiver_machine: counters.machine_of_transfer(),
            ..evidence.clone()
        });
        judge(Evidence {
            sender_machine: counters.machine_of_transfer(),
            ..evidence
        });
    }
    judge(Evidence {
        sender_machine: counters.machine.clone(),
        receiver_machine: counters.machine,
        ..Evidence::default()
    });
});

fn judge(evidence: Evidence) {
    let verdict = diagnose(&evidence);
    let confidence = verdict.confidence.get();
    assert!((0.0..=1.0).contains(&confidence) && !verdict.sentence.is_empty());
    let _ = find_remedies(&evidence, &verdict);
}
