//! A comparison of programs.

use fullpipe_record::{
    HostSettings, Limit, ProgramBatch, ProgramLeftOut, ProgramRow, ProgramRun, ProgramsReport,
    Validity,
};
use fullpipe_units::{BitRate, ByteCount, Ratio, Span};

use crate::{diagnosed, fixture};

/// Returns a comparison of three programs, of which one has a figure, one failed, and one had no
/// valid run.
pub(crate) fn compared() -> ProgramsReport {
    let rate = Some(BitRate::from_mbps(320));
    let moved = ProgramRun {
        round: 1,
        took: Some(Span::from_millis(6250)),
        goodput: rate,
        steady: Some(BitRate::from_mbps(410)),
        start_up: Some(Span::from_millis(310)),
        rtt: Some(Span::from_millis(101)),
        sender_cpu: Some(Span::from_millis(1940)),
        receiver_cpu: Some(Span::from_millis(1380)),
        is_intact: Some(true),
        ..ProgramRun::default()
    };
    let failed = ProgramRun {
        round: 1,
        failed: Some("its server does not listen: no hostkeys available -- exiting.".to_owned()),
        ..ProgramRun::default()
    };
    let late = ProgramRun {
        validity: Validity {
            broken: vec!["packets were late".to_owned()],
            ..Validity::default()
        },
        ..moved.clone()
    };
    let row = |program: &str, run: ProgramRun| ProgramRow {
        program: program.to_owned(),
        predicted: Some(BitRate::from_mbps(420)),
        predicted_range: (program == "scp")
            .then_some([BitRate::from_mbps(310), BitRate::from_mbps(640)]),
        predicted_limit: Some(Limit::SendBuffer),
        predicted_near_limits: Vec::new(),
        goodput: run.goodput.filter(|_| run.is_counted()),
        spread: run
            .is_counted()
            .then_some([BitRate::from_mbps(310), BitRate::from_mbps(330)]),
        steady: run.steady.filter(|_| run.is_counted()),
        top: None,
        start_up: run.start_up.filter(|_| run.is_counted()),
        rtt: run.rtt.filter(|_| run.is_counted()),
        sender_cpu: run.is_counted().then_some(Ratio::new(0.31)),
        receiver_cpu: run.is_counted().then_some(Ratio::new(0.22)),
        verdict: run.is_counted().then(|| diagnosed::watched().verdict),
        runs: vec![run],
    };
    let host = HostSettings::of_linux_6_18();
    ProgramsReport {
        scenario: Some("oci-applications".to_owned()),
        title: "Programs under three batches of buffers".to_owned(),
        command: ["cat", "{file}"].map(str::to_owned).to_vec(),
        size: ByteCount::new(250_000_000),
        batches: vec![ProgramBatch {
            name: "batch 1".to_owned(),
            path: fixture::lopsided_path(),
            sender: host.clone(),
            receiver: Some(host),
            predictions: Vec::new(),
            rows: vec![row("curl", moved), row("scp", failed), row("rsyncd", late)],
        }],
        left_out: vec![ProgramLeftOut {
            program: "ftp".to_owned(),
            why: "vsftpd is not installed".to_owned(),
        }],
        findings: vec!["scp moves 130 Mbit/s, 41 % of what the fastest moves.".to_owned()],
        interrupted: true,
    }
}
