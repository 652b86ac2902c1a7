//! A case over a network of its own.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

use fullpipe_record::{Evidence, Framing, Measurement, Remedy, Trial, Verdict};
use fullpipe_units::Ratio;
use serde::Deserialize;

use super::captures::Captures;
use super::case::{CROSS_TRAFFIC_PORT, Case, PORT, View};
use super::network::{Host, Network};
use super::other_kernel::run_in;
use super::others::kept_by_others;
use super::record::{Record, stem};
use crate::accuracy::RemedyResult;
use crate::diagnosis::{Quota, slowed};
use crate::process::{Process, RunError, last_words};

/// Longest time until a server can be reached.
const STARTING: Duration = Duration::from_secs(10);

/// Longest time for a diagnosis.
const TIMEOUT: Duration = Duration::from_secs(75);

/// Time for which cross traffic runs before a load.
const LEAD: Duration = Duration::from_secs(3);

/// The programs that take part.
#[derive(Debug)]
pub(crate) struct Programs<'p> {
    /// The program under test.
    pub(crate) fullpipe: &'p Path,
    /// This one, whose `peer` is a small foreign program.
    pub(crate) bench: &'p Path,
    /// A User-Mode Linux in which the near host runs.
    pub(crate) kernel: Option<&'p Path>,
    /// Set if the best remedy of a load of its own is applied and measured.
    pub(crate) proves: bool,
    /// The folder for captures of both ends, if they are taken.
    pub(crate) captures: Option<&'p Path>,
}

/// The document that `fullpipe diagnose --json` prints.
#[derive(Deserialize)]
struct Document {
    diagnosis: Option<Diagnosis>,
    /// Of the program's own load, which holds the evidence then.
    measurement: Option<Measurement>,
}

#[derive(Deserialize)]
struct Diagnosis {
    transfers: Vec<Found>,
    trial: Option<Trial>,
}

#[derive(Deserialize)]
struct Found {
    verdict: Verdict,
    evidence: Option<Evidence>,
    #[serde(default)]
    remedies: Vec<Remedy>,
}

impl Programs<'_> {
    /// Runs `case`, and returns its record, with the reason why it does not count, if there is one.
    ///
    /// # Errors
    /// If it could not be planted, or the user stopped it.
    pub(crate) fn run(&self, case: &Case, stop: &AtomicBool) -> Result<Record, RunError> {
        let network = Network::make(&case.path, case.seed, self.kernel.is_some())?;
        let is_elsewhere = |host: Host| host == Host::Near && self.kernel.is_some();
        for (host, script) in case.scripts.iter().filter(|(host, _)| !is_elsewhere(*host)) {
            network.shell(*host, script)?;
        }
        let quota = case
            .quota
            .map(|(_, share)| Quota::make(share))
            .transpose()
            .map_err(RunError::failed)?;
        let wrap = |host: Host| match (&quota, case.quota) {
            (Some(quota), Some((held, _))) if held == host => quota.wrap(),
            _ => Vec::new(),
        };
        let slow = case
            .slow_call
            .map(|(call, by)| slowed(call, by))
            .unwrap_or_default();
        let is_near = case.server_host == Host::Near;
        let [server_quota, client_quota] = if is_near {
            [wrap(Host::Near), Vec::new()]
        } else {
            [wrap(Host::Far), wrap(Host::Near)]
        };
        let server = [server_quota, slow, self.words(&case.server, &network)].concat();
        let _server = start(&network, case.server_host, &server, PORT, stop)?;
        let _cross_traffic = cross_traffic(&network, case, stop)?;
        let client = self.client(case, &client_quota, &network);
        let name = stem(case.view, &case.name);
        let captures = self
            .captures
            .map(|folder| Captures::start(&network, folder, &name));
        let captures = captures.transpose().map_err(RunError::failed)?;
        let script = case
            .change
            .as_ref()
            .map(|(host, script)| (host, ["sh", "-ec", script].map(str::to_owned)));
        let change =
            script.map(|(host, words)| Process::start(&mut network.command(*host, &words)));
        let _change = change.transpose()?;
        let ended = match self.kernel {
            Some(kernel) => {
                let near = case.scripts.iter().filter(|(host, _)| is_elsewhere(*host));
                let scripts: Vec<&str> = near.map(|(_, script)| script.as_str()).collect();
                run_in(kernel, &network, &scripts, &client, TIMEOUT, stop)?
            }
            None => {
                Process::start(&mut network.command(Host::Near, &client))?.finish(TIMEOUT, stop)?
            }
        };
        drop(captures);
        let document: Option<Document> = serde_json::from_str(&ended.stdout).ok();
        let (diagnosis, measurement) = document.map_or((None, None), |document| {
            (document.diagnosis, document.measurement)
        });
        let (found, trial) = diagnosis.map_or((None, None), |diagnosis| {
            (diagnosis.transfers.into_iter().next(), diagnosis.trial)
        });
        let own = || {
            let stated = case.states_rate.then(|| case.stated_rate());
            Some(Evidence::from_measurement(
                measurement.as_ref()?,
                stated,
                Framing::Ethernet,
            ))
        };
        let evidence = found
            .as_ref()
            .and_then(|found| found.evidence.clone())
            .or_else(own);
        let kept_by_others =
            self.kept_by_others(&network, case, found.as_ref(), evidence.as_ref(), stop)?;
        let passage = network.finish();
        Ok(Record {
            name: case.name.clone(),
            view: case.view,
            expected: case.expected.to_owned(),
            bandwidth: case.stated_rate(),
            states_rate: case.states_rate,
            path: case.path(),
            broken: passage.broken(),
            not_planted: not_planted(case, evidence.as_ref()),
            failed: found
                .is_none()
                .then(|| last_words(&ended.stderr, "no words")),
            verdict: found.as_ref().map(|found| found.verdict.clone()),
            remedies: found
                .as_ref()
                .map(|found| found.remedies.clone())
                .unwrap_or_default(),
            evidence,
            remedy_result: trial.and_then(result),
            kept_by_others,
        })
    }

    /// Compares transfers of another program without and with a remedy, where remedies are proven
    /// and the path gives the same rate twice: one without cross traffic and losses, which does not
    /// change.
    fn kept_by_others(
        &self,
        network: &Network,
        case: &Case,
        found: Option<&Found>,
        evidence: Option<&Evidence>,
        stop: &AtomicBool,
    ) -> Result<Option<Ratio>, RunError> {
        let is_steady = case.cross_traffic.is_none()
            && case.change.is_none()
            && !case.expected.starts_with("loss/");
        let (Some(found), Some(evidence), true) = (found, evidence, self.proves && is_steady)
        else {
            return Ok(None);
        };
        let words = ["iperf3", "-s", "-p", &CROSS_TRAFFIC_PORT.to_string()].map(str::to_owned);
        let _server = start(network, Host::Far, &words, CROSS_TRAFFIC_PORT, stop)?;
        kept_by_others(
            network,
            &found.remedies,
            evidence.request.direction,
            self.fullpipe,
            stop,
        )
    }

    /// The program under test, with whatever holds its own load back, or the one that it watches.
    fn client(&self, case: &Case, wrap: &[String], network: &Network) -> Vec<String> {
        let tried: &[&str] = if self.proves && case.view != View::Watched {
            &["--apply", "1"]
        } else {
            &[]
        };
        let own = ["FULLPIPE", "diagnose", "--json"].iter().chain(tried);
        let own: Vec<String> = own.map(|word| (*word).to_owned()).collect();
        let (before, after) = match case.client.iter().position(|word| word == "--") {
            Some(at) if case.view == View::Watched => case.client.split_at(at + 1),
            _ => {
                return [
                    wrap.to_vec(),
                    self.words(&[own, case.client.clone()].concat(), network),
                ]
                .concat();
            }
        };
        [
            self.words(&own, network),
            before.to_vec(),
            wrap.to_vec(),
            self.words(after, network),
        ]
        .concat()
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
