//! Sweeps that are kept in the archive, ended and opened again.

use fullpipe_experiment::{KeptError, KeptSweep};
use fullpipe_record::{Content, Document, SweepPlan, SweepReason, SweepRun, SweepRunRecord};
use fullpipe_stats::campaign::{CampaignPlan, CampaignStep};
use fullpipe_store::{ArchiveLocation, DocumentFilter, NewDocument, Store};
use fullpipe_units::{BitRate, ByteCount, Ratio, Span};
use jiff::Timestamp;
use tempfile::TempDir;

/// Names of sweeps, in the order in which they began.
const FIRST: &str = "01900000-0000-7000-8000-000000000001";
const SECOND: &str = "01900000-ffff-7000-8000-000000000002";

fn archive() -> (TempDir, Store) {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::create(&ArchiveLocation::File(folder.path().join("archive.db"))).unwrap();
    (folder, store)
}

fn plan(id: &str) -> SweepPlan {
    SweepPlan {
        id: id.to_owned(),
        target: "host".to_owned(),
        windows: vec![
            ByteCount::from_kib(64),
            ByteCount::from_kib(128),
            ByteCount::from_kib(256),
        ],
        streams: vec![1, 2, 4],
        seed: 1,
        rtt: Span::from_millis(20),
        overhead: Span::from_millis(100),
        duty: Ratio::new(0.5),
        ..SweepPlan::default()
    }
}

/// A run of the next cell: 100 Mbit/s, or what the windows permit.
fn next_run(plan: &CampaignPlan, runs: &[SweepRun]) -> Option<SweepRun> {
    let CampaignStep::Run { cell, reason } = plan.next_step(runs) else {
        return None;
    };
    let rate = BitRate::from_bytes_in(cell.flight_capacity(), Span::from_millis(20))
        .min(BitRate::from_mbps(100));
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
        load: None,
        device: None,
        broken: Vec::new(),
    })
}

/// Keeps a document; returns whether the archive did not have it.
fn keep(store: &mut Store, content: Content) -> bool {
    let [new] = &NewDocument::from_document(&Document::new(content), Timestamp::UNIX_EPOCH)[..]
    else {
        panic!("not one document")
    };
    store.put_document(new).unwrap().is_new
}

fn keep_plan(store: &mut Store, plan: &SweepPlan) -> bool {
    keep(
        store,
        Content::SweepPlan {
            sweep_plan: Box::new(plan.clone()),
        },
    )
}

fn keep_run(store: &mut Store, number: usize, run: &SweepRun) -> bool {
    let number = u32::try_from(number).unwrap();
    let record = SweepRunRecord {
        sweep: FIRST.to_owned(),
        number,
        run: run.clone(),
        measurement: None,
    };
    keep(
        store,
        Content::SweepRun {
            sweep_run: Box::new(record),
        },
    )
}

#[test]
fn a_sweep_that_was_ended_after_any_run_has_the_same_next_one() {
    let (_folder, mut store) = archive();
    let plan = CampaignPlan::new(plan(FIRST)).unwrap();
    assert!(keep_plan(&mut store, plan.fixed_plan()));
    let mut runs = Vec::new();
    loop {
        let kept = KeptSweep::find_sweep(&mut store, None).unwrap();
        assert_eq!((&kept.plan, &kept.runs), (plan.fixed_plan(), &runs));
        let next = next_run(&CampaignPlan::new(kept.plan).unwrap(), &kept.runs);
        assert_eq!(next, next_run(&plan, &runs));
        let Some(run) = next else { break };
        assert!(keep_run(&mut store, runs.len(), &run));
        runs.push(run);
    }
    assert!(
        runs.len() >= 10 && runs.iter().any(|run| run.reason == SweepReason::Reference),
        "{runs:?}"
    );
}

#[test]
fn no_run_is_kept_twice_and_none_is_read_after_one_that_is_missing() {
    let (_folder, mut store) = archive();
    let plan = CampaignPlan::new(plan(FIRST)).unwrap();
    keep_plan(&mut store, plan.fixed_plan());
    let run = next_run(&plan, &[]).unwrap();
    assert!(keep_run(&mut store, 0, &run) && keep_run(&mut store, 2, &run));
    let faster = SweepRun {
        rate: Some(BitRate::from_mbps(1000)),
        ..run.clone()
    };
    assert!(
        !keep_run(&mut store, 0, &faster),
        "another program has kept this run"
    );
    assert_eq!(
        KeptSweep::find_sweep(&mut store, Some(FIRST)).unwrap().runs,
        [run]
    );
    let listed = store
        .list_documents(&DocumentFilter {
            campaign: Some(FIRST.to_owned()),
            ..DocumentFilter::default()
        })
        .unwrap();
    let cells: Vec<&str> = listed
        .iter()
        .map(|document| document.cell.as_str())
        .collect();
    assert_eq!(listed.len(), 3, "{cells:?}");
    assert!(
        cells.iter().any(|cell| cell.starts_with("1: ")),
        "{cells:?}"
    );
}

#[test]
fn the_last_sweep_is_found_and_others_by_the_end_of_their_identifier() {
    let (_folder, mut store) = archive();
    assert!(matches!(
        KeptSweep::find_sweep(&mut store, None),
        Err(KeptError::Nothing)
    ));
    for id in [SECOND, FIRST] {
        keep_plan(&mut store, &plan(id));
    }
    keep_run(
        &mut store,
        0,
        &next_run(&CampaignPlan::new(plan(FIRST)).unwrap(), &[]).unwrap(),
    );
    let found = |store: &mut Store, id| KeptSweep::find_sweep(store, id).map(|kept| kept.plan.id);
    assert_eq!(found(&mut store, None).unwrap(), SECOND);
    assert_eq!(found(&mut store, Some("0000001")).unwrap(), FIRST);
    let unknown = found(&mut store, Some("../x")).unwrap_err().to_string();
    assert!(
        unknown.contains("no document of the archive has the identifier"),
        "{unknown}"
    );
    let run = store
        .list_documents(&DocumentFilter {
            kind: Some("sweep-run".to_owned()),
            ..DocumentFilter::default()
        })
        .unwrap()
        .remove(0);
    let other = found(&mut store, Some(&run.id)).unwrap_err().to_string();
    assert_eq!(other, format!("document {} is no sweep-plan", run.id));
}
