//! Past transfers, simulated again as they were and with changes.

use std::cmp::Reverse;
use std::num::NonZeroUsize;

use fullpipe_diagnose::{diagnose, find_remedies};
use fullpipe_record::{
    Buffer, Content, Document, Inferred, LabReport, MeasuredTransfer, SimulatedTransfer,
    WhatIfReport,
};
use fullpipe_scenario::{
    PathSpec, ReadFile, parse_host_flag, parse_path_flag, parse_path_flag_with,
};
use fullpipe_sim::SimulationPlan;
use fullpipe_units::printable_line;

use crate::error::ExperimentError;
use crate::inferred::{check_modelled, limit_of, path_of};
use crate::prelude::*;
use crate::simulated::{NamedPlan, simulate_summaries};
use crate::target::Interrupt;

/// Streams of a transfer, at most.
const MAX_STREAMS: u16 = 10_000;
/// The shortest interval of a measurement.
const MIN_INTERVAL: Span = Span::from_millis(100);

/// A measurement that was read, with its path where that was emulated.
#[derive(Debug, Clone)]
pub struct PastTransfer {
    /// The name of the measurement, where a document has several.
    pub name: Option<String>,
    /// The measurement.
    pub measurement: Box<Measurement>,
    /// The emulated path.
    pub path: Option<Path>,
}

/// A change of a transfer in the past, as the user writes it: `congestion=bbr`, `queue=0.1bdp`,
/// `receiver.tcp_rmem=64MiB`; or `remedies`, which stands for each remedy for its limit.
#[derive(Debug, Clone, PartialEq)]
pub struct PastChange {
    text: String,
    kind: PastChangeKind,
}

#[derive(Debug, Clone, PartialEq)]
enum PastChangeKind {
    /// Of the load.
    Load(Change),
    /// Of the settings of one end.
    Host(At, Vec<Change>),
    /// Of the path: a key with its value.
    Path(String),
    /// Each remedy for the limit, by itself.
    Remedies,
}

/// The facts that a past transfer is simulated with, beyond those in its record.
#[derive(Clone, Copy)]
pub struct PastOptions<'o> {
    /// Keys of the path that are stated, as `--path` has them.
    pub path: Option<&'o str>,
    /// Changes of the settings of the sender and of the receiver.
    pub hosts: &'o [Vec<Change>; 2],
    /// Settings of an end whose settings are not in the record.
    pub unknown_host: &'o HostSettings,
    /// Seed, and number of seeds.
    pub seeds: (u64, u16),
    /// Ticks a second of both kernels.
    pub ticks_per_second: u32,
    /// Transfers that are computed at the same time.
    pub jobs: NonZeroUsize,
}

impl PastTransfer {
    /// Returns the measurements in `document`, each valid run of a scenario's last one a step.
    ///
    /// # Errors
    /// A sentence if there is none.
    pub fn all_in(document: Document) -> Result<Vec<Self>, String> {
        let all = match document.content {
            Content::Measurement {
                measurement, path, ..
            } => {
                vec![Self::unnamed(measurement, path.map(|path| *path))]
            }
            Content::Diagnosis {
                measurement: Some(measurement),
                ..
            } => vec![Self::unnamed(measurement, None)],
            Content::Experiment { experiment } => vec![Self::unnamed(
                Box::new(experiment.measurement),
                Some(experiment.path),
            )],
            Content::Lab { lab } => lab.into_iter().flat_map(of_scenario).collect(),
            _ => Vec::new(),
        };
        let none =
            "it has no measurement; measure, diagnose, demo and lab run print some with --json";
        if all.is_empty() {
            Err(none.to_owned())
        } else {
            Ok(all)
        }
    }

    fn unnamed(measurement: Box<Measurement>, path: Option<Path>) -> Self {
        Self {
            name: None,
            measurement,
            path,
        }
    }

    /// Simulates the transfer as it was, with each of `changes`, and with all of them if there are
    /// several. Remedies come last, the one with the highest rate first; of those within about 2 %,
    /// the one with the shortest round trips under load.
    ///
    /// # Errors
    /// If something that the simulation needs is neither in the record nor stated, or is not
    /// modelled; if it is interrupted.
    pub fn what_if(
        self,
        changes: &[PastChange],
        options: &PastOptions<'_>,
        files: ReadFile<'_>,
        interrupt: Interrupt<'_>,
    ) -> Result<WhatIfReport, ExperimentError> {
        let (remedies, changes): (Vec<_>, Vec<_>) = changes
            .iter()
            .partition(|change| change.kind == PastChangeKind::Remedies);
        let (before, inferred, mut plans) = self
            .to_plan(options, files)
            .and_then(|(before, inferred)| {
                let plans = changed_plans(&before, &changes, files)?;
                Ok((before, inferred, plans))
            })
            .map_err(|why| {
                let name = self.name.iter();
                ExperimentError::Unsuitable(name.fold(why, |why, name| format!("{name}: {why}")))
            })?;
        let first_remedy = plans.len();
        let mut not_modelled = Vec::new();
        if !remedies.is_empty() {
            let (plans_of, others) = with_remedies(&self.measurement, &before);
            plans.extend(plans_of);
            not_modelled = others;
        }
        let mut simulations: Vec<SimulatedTransfer> = Vec::new();
        let seeds = options.seeds.1;
        simulate_summaries(&plans, seeds, options.jobs, interrupt, &mut |done| {
            simulations.push(done);
        })?;
        rank_remedies(simulations.get_mut(first_remedy..).unwrap_or_default());
        Ok(WhatIfReport {
            name: self.name,
            path: before.path,
            sender: before.sender,
            receiver: before.receiver,
            inferred,
            measured: measured_transfer(&self.measurement),
            simulations,
            not_modelled,
        })
    }

    /// Returns the transfer as it was, and what was inferred or assumed of it.
    fn to_plan(
        &self,
        options: &PastOptions<'_>,
        files: ReadFile<'_>,
    ) -> Result<(SimulationPlan, Vec<Inferred>), String> {
        let measurement = &self.measurement;
        check_load(measurement.carried_out())?;
        check_modelled(&limit_of(measurement), measurement.carried_out())?;
        let (path, mut inferred) = match (&self.path, options.path) {
            (Some(path), None) => (path.clone(), Vec::new()),
            (Some(path), Some(flag)) => {
                let changed = parse_path_flag_with(flag, &PathSpec::from_path(path), files);
                (
                    changed.map_err(|error| format!("--path: {error}"))?,
                    Vec::new(),
                )
            }
            (None, flag) => path_of(measurement, flag, files)?,
        };
        let ends = [
            ("sender", measurement.sending_end()),
            ("receiver", measurement.receiving_end()),
        ];
        let mut hosts = Vec::new();
        for ((name, end), changes) in ends.into_iter().zip(options.hosts) {
            if end.settings.is_none() {
                let value = format!("Linux {}", options.unknown_host.kernel);
                let why = "assumed, with its defaults: the record has no settings of it".to_owned();
                inferred.push(Inferred {
                    key: name.to_owned(),
                    value,
                    why,
                });
            }
            hosts.push(
                end.settings
                    .as_ref()
                    .unwrap_or(options.unknown_host)
                    .changed_by(changes),
            );
        }
        let hosts = <[HostSettings; 2]>::try_from(hosts)
            .map_err(|_| "a transfer has two ends".to_owned())?;
        let plan = SimulationPlan::new(path, hosts, request_of(measurement), options.seeds.0);
        Ok((
            SimulationPlan {
                ticks_per_second: options.ticks_per_second,
                ..plan
            },
            inferred,
        ))
    }
}

/// Fails if `request` asks for more than the flags of a load can.
fn check_load(request: &Request) -> Result<(), String> {
    let Request {
        streams, interval, ..
    } = *request;
    if streams > MAX_STREAMS {
        return Err(format!(
            "it has {streams} streams, and at most {MAX_STREAMS} are simulated"
        ));
    }
    if interval > Span::ZERO && interval < MIN_INTERVAL {
        return Err(format!(
            "its intervals last {interval}, and those of a measurement last at least {MIN_INTERVAL}"
        ));
    }
    Ok(())
}

/// Returns the load with the congestion control that the sender's sockets had.
fn request_of(measurement: &Measurement) -> Request {
    let request = measurement.carried_out().clone();
    let end = measurement.sending_end();
    let used = end
        .sockets
        .first()
        .map(|socket| socket.congestion.clone())
        .or_else(|| end.congestion.clone());
    let used = used.filter(|name| !name.is_empty());
    let cut_short = measurement.interrupted || measurement.broken_off.is_some();
    let duration = if cut_short {
        measurement.summary.duration
    } else {
        request.duration
    };
    Request {
        congestion: request.congestion.clone().or(used),
        duration,
        ..request
    }
}

fn of_scenario(report: LabReport) -> Vec<PastTransfer> {
    let LabReport {
        scenario,
        path,
        steps,
        ..
    } = report;
    let of_steps = steps.into_iter().filter_map(|step| {
        let measurement = step
            .runs
            .into_iter()
            .rev()
            .find(|run| run.validity.is_valid())?;
        let path = step.path.unwrap_or_else(|| path.clone());
        let name = Some(format!("{scenario}, {}", step.name));
        Some(PastTransfer {
            name,
            measurement: Box::new(measurement),
            path: Some(path),
        })
    });
    of_steps.collect()
}

/// Returns the change of the load that `key` names; `None` if it names none.
fn read_load_change(key: &str, value: &str) -> Option<Result<Change, String>> {
    Some(match key {
        "congestion" => Ok(Change::CongestionControl(printable_line(value))),
        "streams" => value
            .parse()
            .ok()
            .filter(|streams| (1..=MAX_STREAMS).contains(streams))
            .map(Change::Streams)
            .ok_or_else(|| format!("{value:?} is not a number of streams from 1 to {MAX_STREAMS}")),
        "window" => read_size(value).map(|size| Change::SocketBuffer(Buffer::Window(size))),
        "buffer" => read_size(value).map(|size| Change::SocketBuffer(Buffer::Request(size))),
        // As --fq-rate has it.
        "pacing" => value
            .parse()
            .map(|rate| Change::MaxPacingRate(Some(rate).filter(|rate| *rate > BitRate::ZERO)))
            .map_err(|error: fullpipe_units::ParseError| error.to_string()),
        _ => return None,
    })
}

fn read_size(value: &str) -> Result<ByteCount, String> {
    match value.parse::<ByteCount>() {
        Ok(ByteCount::ZERO) => Err("of 0 bytes nothing would ever be sent".to_owned()),
        size => size.map_err(|error| error.to_string()),
    }
}

fn named_plan(name: &str, plan: SimulationPlan) -> NamedPlan {
    NamedPlan {
        name: Some(name.to_owned()),
        plan,
    }
}

/// Returns the transfer as it was, with each of `changes`, and with all of them if there are
/// several.
fn changed_plans(
    before: &SimulationPlan,
    changes: &[&PastChange],
    files: ReadFile<'_>,
) -> Result<Vec<NamedPlan>, String> {
    let mut plans = vec![named_plan("as it was", before.clone())];
    for change in changes {
        let plan = change.applied_to(before.clone(), files)?;
        plans.push(named_plan(&change.text, plan));
    }
    if changes.len() > 1 {
        let plan = all_together(changes, before.clone(), files)?;
        plans.push(named_plan("all together", plan));
    }
    Ok(plans)
}

/// Returns the transfer with each remedy for its limit, and the names of those that change nothing
/// that is modelled.
fn with_remedies(
    measurement: &Measurement,
    before: &SimulationPlan,
) -> (Vec<NamedPlan>, Vec<String>) {
    let forward = &before.path.forward;
    let evidence = Evidence {
        sender: Some(before.sender.clone()),
        receiver: Some(before.receiver.clone()),
        ..Evidence::from_measurement(measurement, forward.rate, forward.framing)
    };
    let verdict = diagnose(&evidence);
    let (mut plans, mut others) = (Vec::new(), Vec::new());
    for remedy in find_remedies(&evidence, &verdict) {
        let mut plan = before.clone();
        for (at, changes) in remedy.by_end() {
            let end = if at == At::Receiver {
                &mut plan.receiver
            } else {
                &mut plan.sender
            };
            *end = end.changed_by(&changes);
        }
        for change in &remedy.changes {
            plan.request = change.applied_to_request(&plan.request);
        }
        let same = (&plan.sender, &plan.receiver, &plan.request)
            == (&before.sender, &before.receiver, &before.request);
        if same {
            others.push(remedy.id);
        } else {
            plans.push(named_plan(&remedy.id, plan));
        }
    }
    (plans, others)
}

/// Returns `plan` with all of `changes`. Those of the path hold at once, so that a queue in BDPs
/// follows the new rate, whichever comes first; of a key that is given twice, the last one.
fn all_together(
    changes: &[&PastChange],
    plan: SimulationPlan,
    files: ReadFile<'_>,
) -> Result<SimulationPlan, String> {
    let mut pairs: Vec<&str> = Vec::new();
    let mut plan = plan;
    for change in changes {
        match &change.kind {
            PastChangeKind::Path(pair) => {
                pairs.retain(|other| other.split('=').next() != pair.split('=').next());
                pairs.push(pair);
            }
            _ => plan = change.applied_to(plan, files)?,
        }
    }
    if pairs.is_empty() {
        Ok(plan)
    } else {
        with_path(&pairs.join(","), plan, files)
    }
}

/// Returns `plan` with these keys of its path.
fn with_path(
    flag: &str,
    plan: SimulationPlan,
    files: ReadFile<'_>,
) -> Result<SimulationPlan, String> {
    let path = parse_path_flag_with(flag, &PathSpec::from_path(&plan.path), files);
    Ok(SimulationPlan {
        path: path.map_err(|error| error.to_string())?,
        ..plan
    })
}

/// Sorts remedies: by their rate in steps of a fiftieth of the highest, then by their round trips
/// under load.
fn rank_remedies(remedies: &mut [SimulatedTransfer]) {
    const STEPS: f64 = 50.0;
    let best = remedies
        .iter()
        .map(|remedy| remedy.rate.median)
        .max()
        .unwrap_or_default();
    let step =
        |remedy: &SimulatedTransfer| (remedy.rate.median.relative_to(best) * STEPS).round() as u64;
    remedies.sort_by_key(|remedy| (Reverse(step(remedy)), remedy.loaded_rtt));
}

fn measured_transfer(measurement: &Measurement) -> MeasuredTransfer {
    let verdict = limit_of(measurement);
    MeasuredTransfer {
        rate: measurement.summary.rate,
        retransmits: measurement.summary.retransmits,
        loaded_rtt: measurement.rtt.loaded.map(|rtt| rtt.median),
        limit: Some(verdict.as_candidate()),
    }
}

impl PastChange {
    /// Reads `remedies`, or `KEY=VALUE`, where KEY is `congestion`, `streams`, `window`, `buffer`,
    /// `pacing`, a setting of a host as `receiver.tcp_rmem`, or a key of `--path`.
    ///
    /// # Errors
    /// A sentence if there is no such key, or the value cannot be.
    pub fn read(text: &str) -> Result<Self, String> {
        if text.trim() == "remedies" {
            return Ok(Self {
                text: text.to_owned(),
                kind: PastChangeKind::Remedies,
            });
        }
        let example = "write for example congestion=bbr, queue=0.1bdp or receiver.tcp_rmem=64MiB";
        let (key, value) = text
            .split_once('=')
            .ok_or_else(|| format!("{text:?} is neither KEY=VALUE nor remedies; {example}"))?;
        let (key, value) = (key.trim(), value.trim());
        let kind = match read_load_change(key, value) {
            Some(change) => PastChangeKind::Load(change.map_err(|why| format!("{key}: {why}"))?),
            None => Self::read_other(key, value)?,
        };
        Ok(Self {
            text: text.to_owned(),
            kind,
        })
    }

    fn read_other(key: &str, value: &str) -> Result<PastChangeKind, String> {
        for (end, at) in [("sender.", At::Sender), ("receiver.", At::Receiver)] {
            if let Some(setting) = key.strip_prefix(end) {
                let changes = parse_host_flag(&format!("{setting}={value}"));
                return changes
                    .map(|changes| PastChangeKind::Host(at, changes))
                    .map_err(|error| error.to_string());
            }
        }
        let pair = format!("{key}={value}");
        // A file that it names is read later.
        let checked = if key == "trace" {
            Ok(())
        } else {
            parse_path_flag(&pair, &PathSpec::demo_path()).map(|_| ())
        };
        let others =
            "congestion, streams, window, buffer, pacing, sender.SETTING, receiver.SETTING";
        checked
            .map(|()| PastChangeKind::Path(pair))
            .map_err(|error| match error.to_string() {
                unknown if unknown.contains("is not a key here") => format!("{unknown}, {others}"),
                bad => bad,
            })
    }

    fn applied_to(
        &self,
        plan: SimulationPlan,
        files: ReadFile<'_>,
    ) -> Result<SimulationPlan, String> {
        Ok(match &self.kind {
            PastChangeKind::Remedies => plan,
            PastChangeKind::Load(change) => SimulationPlan {
                request: change.applied_to_request(&plan.request),
                ..plan
            },
            PastChangeKind::Host(At::Receiver, changes) => SimulationPlan {
                receiver: plan.receiver.changed_by(changes),
                ..plan
            },
            PastChangeKind::Host(_, changes) => SimulationPlan {
                sender: plan.sender.changed_by(changes),
                ..plan
            },
            PastChangeKind::Path(pair) => with_path(pair, plan, files)?,
        })
    }
}

#[cfg(test)]
mod tests;
