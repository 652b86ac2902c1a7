//! Files of captures from their bytes to what is printed: whatever they hold, they are refused in
//! one line, or give connections, a limit with its remedies, and a text that commands no
//! terminal. A file of itself shows the same, and one that is written anew without addresses is
//! read again.
#![no_main]

use std::io::Cursor;
use std::sync::atomic::AtomicBool;
use std::{env, fs, process};

use fullpipe_diagnose::{diagnose, find_remedies};
use fullpipe_record::{CaptureReport, CapturedTransfer, Diagnosis};
use fullpipe_trace::{
    CaptureContent, CaptureUse, ExplainedTransfers, PacketFile, RedactedWriter, TransferEvidence,
    match_flows, of_both, read_flows,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let (Some(first), Some(second)) = (read(data), read(data)) else {
        return;
    };
    let pairs = match_flows(first.flows_with_times(), second.flows_with_times());
    assert_eq!(pairs.len(), first.report.flows.len());
    let flows = first.report.flows.clone();
    write_redacted(data);
    let both = of_both(first.transfers.clone(), &second.transfers, &flows, &pairs);
    print(CaptureReport {
        transfers: judged(first.transfers),
        ..first.report.clone()
    });
    print(CaptureReport {
        transfers: judged(both),
        pairs,
        other: Some(Box::new(second.report)),
        ..first.report
    });
});

fn read(data: &[u8]) -> Option<CaptureContent> {
    let mut file = match PacketFile::new(Cursor::new(data.to_vec()), "input") {
        Ok(file) => file,
        Err(error) => {
            assert_eq!(error.to_string().lines().count(), 1);
            return None;
        }
    };
    let wanted = CaptureUse {
        explained: ExplainedTransfers::Largest(1),
        is_compared: true,
    };
    let read = read_flows(&mut file, "input", wanted, &AtomicBool::new(false));
    assert!(
        read.error
            .as_ref()
            .is_none_or(|error| error.to_string().lines().count() == 1)
    );
    Some(read)
}

/// Writes the capture anew, in a folder that then goes.
fn write_redacted(data: &[u8]) {
    let folder = env::temp_dir().join(format!("fullpipe-fuzz-trace-{}", process::id()));
    fs::create_dir_all(&folder).expect("a folder is made");
    let open = || PacketFile::new(Cursor::new(data.to_vec()), "input").ok();
    if let Some(mut file) = open() {
        let name = folder.join("redacted.pcap");
        let mut redaction = RedactedWriter::create(&name).expect("a file is made");
        while let Ok(Some(packet)) = file.next_packet() {
            redaction.write(&packet).expect("it is written");
        }
        redaction.finish().expect("it is written");
        let mut again = PacketFile::open(&name).expect("what is written is read");
        while again
            .next_packet()
            .expect("what is written is read")
            .is_some()
        {}
    }
    fs::remove_dir_all(&folder).expect("the folder goes");
}

fn judged(transfers: Vec<TransferEvidence>) -> Vec<CapturedTransfer> {
    let judge = |TransferEvidence { flows, evidence }| {
        let verdict = diagnose(&evidence);
        let remedies = find_remedies(&evidence, &verdict);
        CapturedTransfer {
            flows,
            diagnosis: Diagnosis {
                transfer: None,
                verdict,
                remedies,
                evidence: Some(evidence),
                defects: Vec::new(),
                next: Vec::new(),
            },
        }
    };
    transfers.into_iter().map(judge).collect()
}

fn print(report: CaptureReport) {
    let text = fullpipe_report::capture_text(&report, 10);
    assert!(
        !text.chars().any(|sign| sign.is_control() && sign != '\n'),
        "{text:?}"
    );
    let json = serde_json::to_string(&report).expect("a report is written");
    let again: CaptureReport = serde_json::from_str(&json).expect("what is written is read");
    assert_eq!(
        serde_json::to_string(&again).expect("a report is written"),
        json
    );
}
