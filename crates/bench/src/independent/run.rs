//! A case over a network of its own.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

use fullpipe_record::event::Event;
use fullpipe_record::{DiagnosisReport, Direction, Evidence, Framing, Measurement, Trial};
use fullpipe_units::Ratio;
use serde::Deserialize;

use super::case::{CROSS_TRAFFIC_PORT, Case, PORT};
use super::network::{Host, Network};
use super::others::kept_by_others;
use crate::diagnosis::{Quota, slowed};
use crate::judged::{JudgedView, Record, RemedyResult};
use crate::process::{Process, RunError, last_words};

/// Longest time until a server can be reached.
const STARTING: Duration = Duration::from_secs(10);

/// Longest time until a server of the web has judged what has ended.
const JUDGING: Duration = Duration::from_secs(10);

/// Longest time for a diagnosis.
const TIMEOUT: Duration = Duration::from_secs(700);

/// Time for which cross traffic runs before a load.
const LEAD: Duration = Duration::from_secs(3);

/// The programs that take part.
#[derive(Debug)]
pub(crate) struct Programs<'p> {
    /// The program under test.
    pub(crate) fullpipe: &'p Path,
    /// This one, whose `peer` is a small foreign program.
    pub(crate) bench: &'p Path,
    /// Set if the best remedy of a load of its own is applied and measured.
    pub(crate) proves: bool,
}

/// The document that `fullpipe diagnose --json` prints.
#[derive(Deserialize)]
struct Document {
    diagnosis: Option<DiagnosisReport>,
    /// Of the program's own load, which holds the evidence then.
    measurement: Option<Measurement>,
}

impl Programs<'_> {
    /// Runs `case`, and returns its record, with the reason why it does not count, if there is one.
    ///
    /// # Errors
    /// If it could not be planted, or the user stopped it.
    pub(crate) fn run(&self, case: &Case, stop: &AtomicBool) -> Result<Record, RunError> {
        let network = Network::make(&case.path, case.seed)?;
        for (host, script) in &case.scripts {
            network.shell(*host, script)?;
        }
        let quota = case.quota.map(|(_, share)| Quota::make(share));
        let quota = quota.transpose()?;
        let wrap = |host: Host| match (&quota, case.quota) {
            (Some(quota), Some((held, _))) if held == host => quota.wrap(),
            _ => Vec::new(),
        };
        let slow = case.slow_call.map(|(call, by)| slowed(call, by));
        let words = self.words(&case.server, &network);
        let server = [wrap(case.server_host), slow.unwrap_or_default(), words].concat();
        let mut server = start(&network, case.server_host, &server, PORT, stop)?;
        let _cross_traffic = cross_traffic(&network, case, stop)?;
        let client_quota = match case.server_host {
            Host::Near => Vec::new(),
            _ => wrap(Host::Near),
        };
        let client = self.client(case, &client_quota, &network);
        let change = case.change.as_ref().map(|(host, script)| {
            let words = ["sh", "-ec", script].map(str::to_owned);
            Process::start(&mut network.command(*host, &words))
        });
        let _change = change.transpose()?;
        let ended =
            Process::start(&mut network.command(Host::Near, &client))?.finish(TIMEOUT, stop)?;
        let document = if case.is_of_web {
            server.wait_until("judge", JUDGING, stop, |server| {
                judged_by_server(case, &server.stdout()).is_some()
            })?;
            judged_by_server(case, &server.stdout())
        } else {
            serde_json::from_str(&ended.stdout).ok()
        };
        let mut record = record_of(case, document);
        if record.verdict.is_none() {
            record.failed = Some(last_words(&ended.stderr, "no words"));
        }
        record.kept_by_others = self.kept_by_others(&network, case, &record, stop)?;
        record.broken = network.finish().broken();
        Ok(record)
    }

    /// Compares transfers of another program without and with a remedy, where remedies are proven
    /// and the path gives the same rate twice: one without cross traffic and losses, which does not
    /// change.
    fn kept_by_others(
        &self,
        network: &Network,
        case: &Case,
        record: &Record,
        stop: &AtomicBool,
    ) -> Result<Option<Ratio>, RunError> {
        let is_steady = case.cross_traffic.is_none()
            && case.change.is_none()
            && !case.expected.starts_with("loss/");
        let evidence = record.evidence.as_ref();
        let Some(evidence) = evidence.filter(|_| self.proves && is_steady) else {
            return Ok(None);
        };
        let words = ["iperf3", "-s", "-p", &CROSS_TRAFFIC_PORT.to_string()].map(str::to_owned);
        let _server = start(network, Host::Far, &words, CROSS_TRAFFIC_PORT, stop)?;
        let direction = evidence.request.direction;
        kept_by_others(network, &record.remedies, direction, self.fullpipe, stop)
    }

    /// The program under test, with whatever holds its own load back, or the one that it watches.
    fn client(&self, case: &Case, wrap: &[String], network: &Network) -> Vec<String> {
        let mut own = ["FULLPIPE", "diagnose", "--json"]
            .map(str::to_owned)
            .to_vec();
        if case.is_of_web {
            return [wrap, &self.words(&case.client, network)].concat();
        }
        let watched = case.client.iter().position(|word| word == "--");
        let watched = watched.filter(|_| case.view == JudgedView::Watched);
        if self.proves && case.view != JudgedView::Watched {
            own.extend(["--apply", "1"].map(str::to_owned));
        }
        let (before, after) = case.client.split_at(watched.map_or(0, |at| at + 1));
        let [own, after] = [&own[..], after].map(|words| self.words(words, network));
        if watched.is_some() {
            [&own[..], before, wrap, &after].concat()
        } else {
            [wrap, &own, &after].concat()
        }
    }

    fn words(&self, words: &[String], network: &Network) -> Vec<String> {
        let scratch = network.scratch().display().to_string();
        let real = |word: &String| match word.as_str() {
            "FULLPIPE" => self.fullpipe.display().to_string(),
            "BENCH" => self.bench.display().to_string(),
            _ => word.replace("SCRATCH", &scratch),
        };
        words.iter().map(real).collect()
    }
}

/// Returns the last measurement in the log of a server of the web of what goes the way of the case.
fn judged_by_server(case: &Case, log: &str) -> Option<Document> {
    let direction = match case.view {
        JudgedView::Sender => Direction::Upload,
        _ => Direction::Download,
    };
    let events = log.lines().rev().filter_map(|line| {
        let Event::Measurement(measurement) = serde_json::from_str(line).ok()? else {
            return None;
        };
        Some(*measurement)
    });
    let mut events = events.filter(|one| one.request.direction == direction);
    Some(Document {
        diagnosis: None,
        measurement: Some(events.next()?),
    })
}

/// Returns what came of a remedy whose rate was predicted.
fn result(trial: Trial) -> Option<RemedyResult> {
    Some(RemedyResult {
        remedy: trial.remedy,
        predicted: trial.predicted?,
        measured: trial.measured,
        predicted_rtt: trial.predicted_rtt,
        loaded_rtt: trial.measurement.rtt.loaded.map(|rtt| rtt.median),
    })
}

/// Returns the record of a case whose program printed `document`.
fn record_of(case: &Case, document: Option<Document>) -> Record {
    let mut record = Record::new(&case.name, case.view, &case.expected, case.path());
    record.bandwidth = Some(case.stated_rate());
    record.states_rate = case.states_rate;
    let Some(Document {
        diagnosis,
        measurement,
    }) = document
    else {
        return record;
    };
    record.verdict = measurement.as_ref().and_then(|own| own.limit.clone());
    let own = measurement.map(|measurement| Evidence {
        is_watched: case.is_of_web && case.view == JudgedView::Receiver,
        ..Evidence::from_measurement(&measurement, record.stated(), Framing::Ethernet)
    });
    if let Some(report) = diagnosis {
        record.remedy_result = report.trial.and_then(result);
        if let Some(found) = report.transfers.into_iter().next() {
            record.verdict = Some(found.verdict);
            record.remedies = found.remedies;
            record.evidence = found.evidence;
        }
    }
    record.evidence = record.evidence.or(own);
    record.not_planted = not_planted(case, record.evidence.as_ref());
    record
}

/// Returns why the planted limit cannot have been the limit: a full path has none but its rate.
fn not_planted(case: &Case, evidence: Option<&Evidence>) -> Option<String> {
    const FULL: f64 = 0.7;
    let share = evidence?.steady?.rate.relative_to(case.path.rate);
    let fits = share < case.at_most && (case.expected != "capacity/link" || share > FULL);
    (!fits).then(|| format!("it carried {:.0} % of the path", share * 100.0))
}

fn start(
    network: &Network,
    host: Host,
    words: &[String],
    port: u16,
    stop: &AtomicBool,
) -> Result<Process, RunError> {
    let mut command: Command = network.command(host, words);
    let mut server = Process::start(&mut command)?;
    // A program that another one runs has its sockets, not that one.
    let listens = || network.listens(host, port);
    server.wait_until("listen", STARTING, stop, |_| listens())?;
    Ok(server)
}

fn cross_traffic(
    network: &Network,
    case: &Case,
    stop: &AtomicBool,
) -> Result<Vec<Process>, RunError> {
    let Some([client, server]) = &case.cross_traffic else {
        return Ok(Vec::new());
    };
    let server = start(network, Host::FarRouter, server, CROSS_TRAFFIC_PORT, stop)?;
    let client = Process::start(&mut network.command(Host::NearRouter, client))?;
    thread::sleep(LEAD);
    Ok(vec![client, server])
}
