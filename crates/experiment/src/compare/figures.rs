//! The figures of one transfer, from what was watched at the host that sends.

use std::collections::BTreeMap;
use std::time::Duration;

use fullpipe_record::{Content, Diagnosis, DiagnosisReport, Document};

use crate::prelude::*;

/// Time over which the highest rate is taken.
const TOP_OVER: Span = Span::from_secs(1);

/// Data from which on a connection carries the file and no longer its handshakes.
const FIRST_DATA: ByteCount = ByteCount::from_kib(64);

/// Returns the report that `diagnose --json` printed; an error message where there is none.
pub(crate) fn parse_diagnosis(text: &str) -> Result<DiagnosisReport, String> {
    let document =
        Document::from_json(text.as_bytes()).map_err(|_| "nothing was watched".to_owned())?;
    match (document.content, document.error) {
        (Content::Diagnosis { diagnosis, .. }, _) => Ok(*diagnosis),
        (_, Some(error)) => Err(error.message),
        (_, None) => Err("nothing was watched".to_owned()),
    }
}

/// Returns the last line that has words, without control characters, and no longer than a sentence.
pub(crate) fn last_words(text: &str) -> Option<String> {
    const MAX_LENGTH: usize = 200;
    let mut lines = text.lines().rev().map(|line| {
        let shown: String = line.chars().filter(|one| !one.is_control()).collect();
        shown.trim().to_owned()
    });
    let line = lines.find(|line| !line.is_empty())?;
    let is_short = line.chars().nth(MAX_LENGTH).is_none();
    Some(if is_short {
        line
    } else {
        line.chars().take(MAX_LENGTH).chain(['…']).collect()
    })
}

/// Returns why a program moved nothing that could be watched, with the last line that it wrote: the
/// watcher writes its reason behind it.
pub(crate) fn nothing_watched(why: &str, errors: &str) -> String {
    let of_program: Vec<&str> = errors.lines().filter(|line| !line.contains(why)).collect();
    match last_words(&of_program.join("\n")) {
        Some(said) => format!("{why}: {said}"),
        None => why.to_owned(),
    }
}

/// Returns `run` as one that failed, with the reason.
pub(crate) fn failed_run(run: ProgramRun, why: String) -> ProgramRun {
    ProgramRun {
        failed: Some(why),
        ..run
    }
}

/// Returns the reason for which a transfer failed that was ended after this time.
pub(crate) fn not_ended(most: Duration) -> String {
    format!("it did not end within {}", Span::from(most))
}

/// Returns the reason for which a transfer failed whose copy is not the file.
pub(crate) fn not_intact(is_intact: Option<bool>) -> Option<String> {
    (is_intact == Some(false)).then(|| "the file that arrived is another one".to_owned())
}

/// Adds to `run`, whose time is known, the figures of the transfer that moved most.
pub(crate) fn add_transfer_figures(
    run: ProgramRun,
    size: ByteCount,
    watched: DiagnosisReport,
) -> ProgramRun {
    let Some(Diagnosis {
        verdict,
        evidence: Some(evidence),
        ..
    }) = watched.transfers.into_iter().next()
    else {
        return run;
    };
    let sends = !evidence.sender_samples.is_empty();
    let samples = if sends {
        &evidence.sender_samples[..]
    } else {
        &evidence.receiver_samples[..]
    };
    let socket = evidence
        .sender_sockets
        .first()
        .or(evidence.receiver_sockets.first());
    ProgramRun {
        goodput: run.took.map(|took| BitRate::from_bytes_in(size, took)),
        steady: evidence.steady.map(|steady| steady.rate),
        top: peak_rate(samples),
        start_up: run.took.and_then(|took| start_up(took, samples)),
        rtt: median(samples.iter().filter_map(|sample| sample.tcp.rtt).collect()),
        least_rtt: evidence.idle_rtt,
        connections: Some(evidence.request.streams),
        congestion: socket
            .filter(|_| sends)
            .map(|socket| socket.congestion.clone()),
        resent: last_of_each(&evidence)
            .filter_map(|sample| sample.tcp.bytes_retrans)
            .reduce(|sum, more| sum + more),
        verdict: Some(verdict),
        ..run
    }
}

fn last_of_each(evidence: &Evidence) -> impl Iterator<Item = &Sample> {
    let by_stream: BTreeMap<u16, &Sample> = evidence
        .sender_samples
        .iter()
        .map(|sample| (sample.stream, sample))
        .collect();
    by_stream.into_values()
}

/// Returns the highest rate over [`TOP_OVER`].
fn peak_rate(samples: &[Sample]) -> Option<BitRate> {
    let rates = TransferProgress::from_samples(samples, Span::MAX).windowed_rates(TOP_OVER);
    rates.into_iter().map(|(_, rate)| rate).max()
}

/// Returns the time from the program's start, `took` before its end, to the first data of the file.
/// The connection is taken to end with the program.
fn start_up(took: Span, samples: &[Sample]) -> Option<Span> {
    let first = samples.iter().find(|sample| sample.bytes >= FIRST_DATA)?;
    Some(took.saturating_sub(samples.last()?.at.saturating_sub(first.at)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_record::TcpInfo;

    fn samples(points: &[(u64, u64)]) -> Vec<Sample> {
        let sample = |(millis, kib): &(u64, u64)| Sample {
            at: Span::from_millis(*millis),
            stream: 0,
            bytes: ByteCount::from_kib(*kib),
            tcp: TcpInfo::default(),
            memory: None,
        };
        points.iter().map(sample).collect()
    }

    #[test]
    fn the_highest_rate_is_that_of_the_best_second() {
        let samples = samples(&[
            (0, 0),
            (500, 100),
            (1000, 200),
            (1500, 700),
            (2000, 1200),
            (2500, 1210),
        ]);
        assert_eq!(
            peak_rate(&samples),
            Some(BitRate::from_bytes_in(
                ByteCount::from_kib(1000),
                Span::from_secs(1)
            ))
        );
        assert_eq!(peak_rate(&samples[..2]), None, "shorter than a second");
    }

    #[test]
    fn start_up_is_what_came_before_the_first_data() {
        let samples = samples(&[(0, 0), (200, 4), (400, 80), (2400, 4000)]);
        assert_eq!(
            start_up(Span::from_millis(3000), &samples),
            Some(Span::from_millis(1000))
        );
        assert_eq!(start_up(Span::from_secs(3), &[]), None);
    }

    #[test]
    fn a_program_has_the_last_word() {
        let said = nothing_watched(
            "it moved too little",
            "no password\nfullpipe: it moved too little\n",
        );
        assert_eq!(said, "it moved too little: no password");
        assert_eq!(
            nothing_watched("it moved too little", "fullpipe: it moved too little"),
            "it moved too little"
        );
    }

    #[test]
    fn what_is_no_report_is_an_error_with_its_message() {
        assert_eq!(parse_diagnosis("").unwrap_err(), "nothing was watched");
        let failed = Document::from_error(fullpipe_record::ErrorReport {
            message: "no".to_owned(),
            exit_code: 1,
        });
        assert_eq!(
            parse_diagnosis(&serde_json::to_string(&failed).unwrap()).unwrap_err(),
            "no"
        );
    }
}
