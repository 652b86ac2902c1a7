//! Sweeps that are kept, ended and opened again.

use std::fs;
use std::path::Path;

use fullpipe_campaign::{Next, Plan};
use fullpipe_record::{SweepPlan, SweepReason, SweepRun, SweepRunRecord};
use fullpipe_sweep::{Folder, FolderError};
use fullpipe_units::{BitRate, ByteCount, Ratio, Span};

fn plan(id: &str) -> SweepPlan {
    SweepPlan {
        id: id.to_owned(),
        target: "host".to_owned(),
        is_virtual: false,
        windows: vec![ByteCount::from_kib(64), ByteCount::from_kib(128), ByteCount::from_kib(256)],
        streams: vec![1, 2, 4],
        order: None,
        seed: 1,
        rtt: Span::from_millis(20),
        overhead: Span::from_millis(100),
        duty: Ratio::new(0.5),
        budget: Ratio::ONE,
        max_bytes: None,
        congestion: None,
        predicted: Vec::new(),
    }
}

/// A run of the next cell: 100 Mbit/s, or what the windows permit.
fn next_run(plan: &Plan, runs: &[SweepRun]) -> Option<SweepRun> {
    let Next::Run { cell, reason } = plan.next(runs) else { return None };
    let rate = BitRate::of(cell.product(), Span::from_millis(20)).min(BitRate::from_mbps(100));
    Some(SweepRun {
        cell,
        reason,
        rate: Some(rate),
        sent: rate.bytes_in(Span::from_secs(2)),
        took: Span::from_secs(5),
        idle_rtt: Some(Span::from_millis(20)),
        loaded_rtt: None,
        retransmits: None,
        together: None,
        broken: Vec::new(),
    })
}

fn keep(folder: &Folder, number: usize, run: &SweepRun) -> Result<(), FolderError> {
    let number = u32::try_from(number).unwrap();
    folder.keep(SweepRunRecord { sweep: "s".to_owned(), number, run: run.clone(), measurement: None })
}

/// Keeps a whole sweep, and returns its runs.
fn whole(root: &Path) -> Vec<SweepRun> {
    let fixed = plan("s");
    let (folder, plan) = (Folder::create(root, &fixed).unwrap(), Plan::new(fixed).unwrap());
    let mut runs = Vec::new();
    while let Some(run) = next_run(&plan, &runs) {
        keep(&folder, runs.len(), &run).unwrap();
        runs.push(run);
    }
    runs
}

#[test]
fn a_sweep_that_was_ended_after_any_run_has_the_same_next_one() {
    let root = tempfile::tempdir().unwrap();
    let runs = whole(root.path());
    assert!(runs.len() >= 10 && runs.iter().any(|run| run.reason == SweepReason::Reference), "{runs:?}");
    for left in (0..=runs.len()).rev() {
        let kept = Folder::open(root.path(), None).unwrap();
        assert_eq!(kept.runs, runs[..left]);
        let next = next_run(&Plan::new(kept.plan).unwrap(), &kept.runs);
        assert_eq!(next.as_ref(), runs.get(left));
        if left > 0 {
            // As if it had been ended while it wrote.
            let file = root.path().join(format!("s/{:04}.json", left - 1));
            fs::rename(&file, root.path().join(format!("s/.{:04}.json.99", left - 1))).unwrap();
        }
    }
}

#[test]
fn no_run_is_kept_twice() {
    let root = tempfile::tempdir().unwrap();
    let runs = whole(root.path());
    let folder = Folder::open(root.path(), Some("s")).unwrap().folder;
    assert!(matches!(keep(&folder, 0, &runs[1]), Err(FolderError::Io { .. })));
    assert_eq!(Folder::open(root.path(), Some("s")).unwrap().runs, runs);
    assert!(matches!(Folder::create(root.path(), &plan("s")), Err(FolderError::Io { .. })));
}

#[test]
fn the_last_sweep_is_opened_and_a_damaged_document_named() {
    let root = tempfile::tempdir().unwrap();
    assert!(matches!(Folder::open(root.path(), None), Err(FolderError::Nothing(_))));
    assert!(matches!(Folder::open(root.path(), Some("../s")), Err(FolderError::Nothing(_))));
    for id in ["1", "3", "2"] {
        Folder::create(root.path(), &plan(id)).unwrap();
    }
    assert_eq!(Folder::open(root.path(), None).unwrap().plan.id, "3");
    fs::write(root.path().join("2/0000.json"), "{\"kind\":\"table\"}").unwrap();
    let error = Folder::open(root.path(), Some("2")).unwrap_err().to_string();
    assert!(error.contains("0000.json is not the run of a sweep"), "{error}");
}
