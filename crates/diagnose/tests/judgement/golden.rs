//! Evidence in `tests/evidence/`, one file each with the verdict that it must give. A new recording is a new file.

use std::path::Path;

use fullpipe_diagnose::diagnose;
use fullpipe_record::{Cause, Evidence, Limit};
use serde::{Deserialize, Serialize};

use crate::builder::{MIB, Writes, send_buffer, told};

#[derive(Serialize, Deserialize)]
struct Golden {
    evidence: Evidence,
    kind: Limit,
    cause: Cause,
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the test reads recorded evidence; the crate does not")]
fn recorded_evidence_keeps_its_verdict() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/evidence");
    let mut judged = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let golden: Golden = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let verdict = diagnose(&golden.evidence);
        let expected = (golden.kind, golden.cause);
        assert_eq!((verdict.kind, verdict.cause), expected, "{}: {verdict:#?}", path.display());
        judged += 1;
    }
    assert!(judged > 0, "no evidence in {}", folder.display());
}

/// Prints the synthetic file, for when the schema of evidence grows.
#[test]
#[ignore = "writes a file's text to the screen"]
#[expect(clippy::print_stdout, reason = "that is what it is for")]
fn synthetic_evidence_as_a_file() {
    let mut evidence = told(send_buffer("cubic", 4.0 * MIB, Writes::Sleeping), 1000);
    // Every quarter second is enough, and keeps the file small.
    evidence.sender_samples.retain(|sample| sample.at.as_nanos() % 250_000_000 == 0);
    let golden = Golden { evidence, kind: Limit::SendBuffer, cause: Cause::TcpWmemMax };
    println!("{}", serde_json::to_string(&golden).unwrap());
}
