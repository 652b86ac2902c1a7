//! Sweeps of which runs cannot be started.

use std::sync::atomic::{AtomicBool, Ordering};

use fullpipe_experiment::{PendingRuns, RunningSweep, SweepMeasurer};
use fullpipe_record::{
    Content, DailyHours, DeviceCounts, Document, EndReport, Measurement, Peer, Request, RttMethod,
    RttReport, Summary, SweepPlan, SweepReason, SweepReport, SweepRunRecord, Validity,
};
use fullpipe_stats::campaign::CampaignPlan;
use fullpipe_store::{ArchiveLocation, DocumentFilter, NewDocument, Store};
use fullpipe_units::{BitRate, ByteCount, SegCount, Span};
use jiff::Timestamp;

/// Returns why the `attempt`th measurement of all, of so many streams, fails.
type Fails = fn(attempt: u32, streams: u16) -> Option<&'static str>;

/// A server.
struct Server {
    fails: Fails,
    attempts: u32,
    /// Rests without load.
    rests: Vec<Span>,
}

/// An error that begins so is the same for every run.
const OF_ALL: &str = "wrong";

impl SweepMeasurer for Server {
    type Error = String;

    fn of_single(error: &String) -> Option<String> {
        (!error.starts_with(OF_ALL)).then(|| error.clone())
    }

    fn measure_run(
        &mut self,
        _: u32,
        request: &Request,
        _: Option<ByteCount>,
    ) -> Result<Measurement, String> {
        self.attempts += 1;
        match (self.fails)(self.attempts, request.streams) {
            Some(why) => Err(why.to_owned()),
            None => Ok(measurement(request)),
        }
    }

    fn device_counts(&mut self) -> Option<DeviceCounts> {
        None
    }

    fn wait_idle(&mut self, span: Span) {
        self.rests.push(span);
    }

    fn wait_for(&mut self, _: DailyHours) {}
}

/// Returns a measurement of 5 Mbit/s a stream, 20 Mbit/s at most.
fn measurement(request: &Request) -> Measurement {
    let rate = BitRate::from_mbps(5 * u64::from(request.streams.min(4)));
    let bytes = rate.bytes_in(request.duration);
    Measurement {
        id: String::new(),
        started: "2026-11-26T12:00:00Z".to_owned(),
        setup: None,
        peer: Peer {
            host: "host".to_owned(),
            address: "192.0.2.1:5201".to_owned(),
            speaks_fullpipe: true,
        },
        request: request.clone(),
        resolved: None,
        run: None,
        local: EndReport::default(),
        remote: EndReport::default(),
        streams: Vec::new(),
        web100: None,
        intervals: Vec::new(),
        rtt: RttReport {
            method: RttMethod::TcpInfo,
            idle: None,
            loaded: None,
            inflation: None,
            responsiveness: None,
            rpm: None,
            echoes: None,
        },
        route: None,
        summary: Summary {
            duration: request.duration,
            sent: bytes,
            received: bytes,
            rate,
            retransmits: Some(SegCount::ZERO),
            steady: None,
            datagrams_sent: None,
            datagrams: None,
        },
        reverse: None,
        limit: None,
        capture: None,
        interrupted: false,
        until_sure: None,
        broken_off: None,
        warnings: Vec::new(),
        validity: Validity::default(),
    }
}

fn plan() -> CampaignPlan {
    CampaignPlan::new(SweepPlan {
        id: "01900000-0000-7000-8000-000000000001".to_owned(),
        target: "host".to_owned(),
        windows: vec![
            ByteCount::from_kib(64),
            ByteCount::from_kib(128),
            ByteCount::from_kib(256),
        ],
        streams: vec![1, 2, 4, 8],
        seed: 1,
        rtt: Span::from_millis(20),
        ..SweepPlan::default()
    })
    .unwrap()
}

/// Carries out a sweep. Returns its report, what was handed over, what of it is kept, and the
/// server.
fn swept(fails: Fails) -> Result<(SweepReport, [Vec<SweepRunRecord>; 2], Server), String> {
    let (plan, interrupt) = (plan(), AtomicBool::new(false));
    let mut server = Server {
        fails,
        attempts: 0,
        rests: Vec::new(),
    };
    let (mut records, mut kept, mut waiting) = (Vec::new(), Vec::new(), PendingRuns::default());
    let sweep = RunningSweep {
        plan: &plan,
        runs: Vec::new(),
        interrupt: &interrupt,
    };
    let report = sweep.run(&mut server, &mut |record| {
        records.push(record.clone());
        kept.extend(waiting.push_record(record));
        Ok(())
    })?;
    assert_eq!(waiting.is_empty(), kept.len() == records.len());
    Ok((report, [records, kept], server))
}

#[test]
fn a_server_that_is_away_for_a_moment_costs_no_run() {
    let (report, [records, kept], server) =
        swept(|attempt, _| (6..8).contains(&attempt).then_some("refused")).unwrap();
    assert!(
        report.runs.iter().all(|run| run.rate.is_some()) && report.answer.is_some(),
        "{report:?}"
    );
    assert_eq!(
        (records, server.attempts as usize),
        (kept, report.runs.len() + 2)
    );
    assert_eq!(
        server
            .rests
            .iter()
            .filter(|rest| **rest == Span::from_secs(5))
            .count(),
        2,
        "{:?}",
        server.rests
    );
}

#[test]
fn a_server_that_is_gone_ends_the_sweep_with_its_report_and_the_runs_may_be_tried_again() {
    let (report, [records, kept], server) =
        swept(|attempt, _| (attempt > 5).then_some("refused")).unwrap();
    // Three settings, each twice, and the reference a third time; three attempts of each.
    assert_eq!(
        (report.runs.len(), server.attempts, kept.len()),
        (5 + 7, 5 + 7 * 3, 5)
    );
    let failed = &report.runs[5..];
    assert!(
        failed.iter().all(|run| run.rate.is_none()
            && run.sent == ByteCount::ZERO
            && run.broken == ["refused"])
    );
    assert!(
        records[5..]
            .iter()
            .all(|record| record.measurement.is_none()),
        "{records:?}"
    );
    // The runs before show the answer, and no setting is blamed.
    let plan = plan();
    assert_eq!(
        (report.answer, report.left_out.len()),
        (plan.current_answer(&report.runs[..5]), 0)
    );
    assert!(!report.interrupted && plan.current_answer(&report.runs[..5]).is_some());
}

#[test]
fn a_setting_that_cannot_be_started_is_left_out_and_the_sweep_goes_on() {
    let (report, [records, kept], _) =
        swept(|_, streams| (streams == 8).then_some("too many open files")).unwrap();
    assert!(
        !report.left_out.is_empty() && report.left_out.iter().all(|cell| cell.streams == 8),
        "{report:?}"
    );
    let again = report
        .runs
        .iter()
        .filter(|run| run.reason == SweepReason::Again);
    assert!(again.count() > 0 && report.answer.unwrap().knee.cell.streams <= 4);
    assert_eq!(kept, records, "a later run was started");
    assert!(
        kept.iter()
            .zip(0..)
            .all(|(record, number)| record.number == number)
    );
}

#[test]
fn an_error_of_all_runs_is_one_of_the_sweep() {
    assert_eq!(
        swept(|attempt, _| (attempt == 3).then_some("wrong flag"))
            .err()
            .as_deref(),
        Some("wrong flag")
    );
}

#[test]
fn an_interrupt_between_two_attempts_ends_the_sweep() {
    struct Interrupted<'i>(&'i AtomicBool);
    impl SweepMeasurer for Interrupted<'_> {
        type Error = String;

        fn of_single(error: &String) -> Option<String> {
            Some(error.clone())
        }

        fn measure_run(
            &mut self,
            _: u32,
            _: &Request,
            _: Option<ByteCount>,
        ) -> Result<Measurement, String> {
            assert!(!self.0.load(Ordering::Relaxed), "it is over");
            Err("refused".to_owned())
        }

        fn device_counts(&mut self) -> Option<DeviceCounts> {
            None
        }

        fn wait_idle(&mut self, _: Span) {
            self.0.store(true, Ordering::Relaxed);
        }

        fn wait_for(&mut self, _: DailyHours) {}
    }
    let (plan, interrupt) = (plan(), AtomicBool::new(false));
    let sweep = RunningSweep {
        plan: &plan,
        runs: Vec::new(),
        interrupt: &interrupt,
    };
    let report = sweep
        .run(&mut Interrupted(&interrupt), &mut |_| Ok(()))
        .unwrap();
    assert!(report.interrupted && report.runs.is_empty(), "{report:?}");
}

#[test]
fn the_answer_of_a_sweep_that_was_not_interrupted_is_valid_in_the_archive() {
    let folder = tempfile::tempdir().unwrap();
    let mut store =
        Store::create(&ArchiveLocation::File(folder.path().join("archive.db"))).unwrap();
    let (report, ..) = swept(|_, _| None).unwrap();
    let mut answer = report.answer.clone().unwrap();
    answer.sure = false;
    for interrupted in [false, true] {
        let sweep = SweepReport {
            answer: Some(answer.clone()),
            interrupted,
            ..report.clone()
        };
        let document = Document::new(Content::Sweep {
            sweep: Box::new(sweep),
        });
        let id = store
            .put_document(&NewDocument::from_document(&document, Timestamp::UNIX_EPOCH)[0])
            .unwrap()
            .id;
        let listed = store.list_documents(&DocumentFilter::default()).unwrap();
        let kept = listed.iter().find(|kept| kept.id == id).unwrap();
        assert_eq!(
            kept.facts
                .iter()
                .map(|facts| facts.valid)
                .collect::<Vec<_>>(),
            [!interrupted]
        );
    }
}
