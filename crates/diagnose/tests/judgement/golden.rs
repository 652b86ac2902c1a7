//! Measurements in `tests/evidence/`, one file each with the verdict that it must give. A new
//! recording is a new file.

use std::path::Path;

use fullpipe_diagnose::diagnose;
use fullpipe_record::{Cause, Evidence, Framing, Limit, Measurement};
use fullpipe_units::BitRate;
use serde::Deserialize;

#[derive(Deserialize)]
pub(crate) struct Golden {
    pub(crate) measurement: Measurement,
    /// Bandwidth that a user states.
    pub(crate) bandwidth: Option<BitRate>,
    pub(crate) framing: Framing,
    kind: Limit,
    cause: Cause,
}

#[test]
fn recorded_measurements_keep_their_verdict() {
    hold(|_| {});
}

#[test]
fn bounded_measurements_keep_their_verdict() {
    hold(|measurement| *measurement = measurement.clone().to_bounded());
}

/// Far harder than a bounded record, which loses nothing of tests as short as these.
#[test]
fn measurements_with_half_of_their_snapshots_keep_their_verdict() {
    /// Two seconds of snapshots; a bounded record has never so few of one stream.
    const MIN: usize = 40;
    hold(|measurement| {
        let ramp = measurement.summary.steady.map(|steady| steady.ramp);
        for end in [&mut measurement.local, &mut measurement.remote] {
            end.thin_samples(ramp, (end.samples.len() / 2).max(MIN));
        }
    });
}

/// Judges every recording after `change`.
#[expect(
    clippy::disallowed_methods,
    reason = "the test reads recorded evidence; the crate does not"
)]
fn hold(change: impl Fn(&mut Measurement)) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/evidence");
    let mut judged = 0;
    let mut missed = Vec::new();
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let mut golden: Golden = serde_json::from_str(&text)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        change(&mut golden.measurement);
        let verdict = diagnose(&Evidence::from_measurement(
            &golden.measurement,
            golden.bandwidth,
            golden.framing,
        ));
        if (verdict.kind, verdict.cause) != (golden.kind, golden.cause) {
            missed.push(format!(
                "{}: {:?}, {}",
                path.display(),
                verdict.cause,
                verdict.sentence
            ));
        }
        judged += 1;
    }
    assert!(
        judged > 30,
        "only {judged} recordings in {}",
        folder.display()
    );
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}
