//! A case over a lab.

use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fullpipe_diagnose::{diagnose, remedies};
use fullpipe_experiment::measure_arguments;
use fullpipe_lab::{Backend, Host, Lab, LabError, Line, Plan, Program, Stdio};
use fullpipe_model::predict;
use fullpipe_record::{At, Direction, Document, Evidence, Measurement, Prediction, Remedy, Request};
use fullpipe_units::Span;

use super::cases::Case;
use super::plant::{Plant, Quota, busy, slowed};
use super::recorded::{Proven, Recorded, thin};

/// Runs of a case that may be invalid before it is given up.
const RUNS: usize = 3;

/// What `fullpipe serve` prints once it can be reached.
const LISTENING: &str = "listening";

/// How long a program may take to come up, and to end after its work; its protocol has deadlines of its own.
const PATIENCE: Duration = Duration::from_secs(40);

/// Longest that an interrupt goes unheard.
const LOOK: Duration = Duration::from_millis(50);

/// How long the loads beside it run before a load, and how much longer than it.
const LEAD: Span = Span::from_secs(3);

/// The port of the server.
const PORT: &str = "5201";

/// The port of the server of the loads beside.
const BESIDE_PORT: &str = "5202";

/// Bytes of a file that is sent: it has holes only, and no test comes to its end.
const FILE_SIZE: u64 = 1 << 36;

/// Why a case has no record.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RunError {
    /// The user stopped the bench.
    #[error("interrupted")]
    Interrupted,
    /// The lab, or a program in it.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// This machine has not what the limit is planted with.
    #[error("it cannot be planted here: {0}")]
    NotPlanted(String),
    /// A program, in its own words.
    #[error("{0}")]
    Failed(String),
}

/// Who runs cases, and with what.
#[derive(Debug)]
pub(crate) struct Runner<'r> {
    /// The program under test.
    pub(crate) program: &'r Path,
    /// Where files may be put for the time of a run.
    pub(crate) scratch: &'r Path,
    /// Whether the best remedy is applied and proven.
    pub(crate) prove: bool,
    /// Whether the user asked to stop.
    pub(crate) interrupt: &'r AtomicBool,
}

impl Runner<'_> {
    /// Runs `case` until a run is valid, three times at most.
    ///
    /// # Errors
    /// If it could not be planted, or nothing was measured.
    pub(crate) fn run(&self, case: &Case) -> Result<Recorded, RunError> {
        look_for_tools(&case.plant)?;
        // Dropped last: a control group goes only when the lab's programs have left it.
        let quota = quota(&case.plant)?;
        let wrap = self.wrap(&case.plant, quota.as_ref())?;
        let lab = Lab::start(&plan(case))?;
        let scene = Scene { runner: self, case, lab: &lab, wrap };
        scene.prepare()?;
        let (prediction, measurement) = scene.measured(&case.request)?;
        let forward = &case.path.forward;
        let mut recorded = Recorded {
            name: case.name.clone(),
            label: case.label,
            bandwidth: forward.rate,
            framing: forward.framing,
            prediction,
            measurement,
            proof: None,
        };
        if self.prove {
            recorded.proof = scene.prove(&recorded)?;
        }
        thin(&mut recorded.measurement);
        Ok(recorded)
    }

    /// The words before the program of an end that is held back, and which end that is.
    fn wrap(&self, plant: &Plant, quota: Option<&Quota>) -> Result<Option<(Host, Vec<String>)>, RunError> {
        Ok(match plant {
            Plant::SlowCall { host, call, by } => Some((*host, slowed(call, *by))),
            Plant::SlowFile { host, by } => Some((*host, slowed(file_call(*host), *by))),
            Plant::BusyCall { host, call, by } => {
                let words = busy(call, *by, self.scratch);
                Some((*host, words.map_err(|error| RunError::NotPlanted(format!("cc: {error}")))?))
            }
            Plant::Quota { host, .. } => quota.map(|quota| (*host, quota.wrap())),
            Plant::InPlan | Plant::Prepared { .. } | Plant::Beside(_) | Plant::Iperf2 => None,
        })
    }
}

fn plan(case: &Case) -> Plan {
    Plan {
        path: case.path.clone(),
        seed: 1,
        sender: case.sender.clone(),
        receiver: case.receiver.clone(),
        backend: Backend::default(),
        interactive: false,
    }
}

fn look_for_tools(plant: &Plant) -> Result<(), RunError> {
    if !matches!(plant, Plant::SlowCall { .. } | Plant::SlowFile { .. }) {
        return Ok(());
    }
    let asked = Command::new("strace").arg("-V").output();
    asked.map(drop).map_err(|error| RunError::NotPlanted(format!("strace: {error}")))
}

fn quota(plant: &Plant) -> Result<Option<Quota>, RunError> {
    let Plant::Quota { share, .. } = plant else { return Ok(None) };
    let made = Quota::make(*share).map_err(|error| RunError::NotPlanted(format!("no control group: {error}")))?;
    Ok(Some(made))
}

/// A lab with a limit planted in it.
struct Scene<'s> {
    runner: &'s Runner<'s>,
    case: &'s Case,
    lab: &'s Lab,
    /// Words before the program of one end.
    wrap: Option<(Host, Vec<String>)>,
}

impl Scene<'_> {
    fn prepare(&self) -> Result<(), RunError> {
        let Plant::Prepared { host, command } = &self.case.plant else { return Ok(()) };
        let arguments = ["-c", command].map(str::to_owned);
        let output = self.lab.start_program(*host, "sh", &arguments, Stdio::Collected)?.finish(PATIENCE)?;
        if output.code == 0 { Ok(()) } else { Err(RunError::NotPlanted(output.stderr.trim().to_owned())) }
    }

    /// A valid measurement; or, after so many runs, one that is not.
    fn measured(&self, request: &Request) -> Result<(Prediction, Measurement), RunError> {
        let (sender, receiver) = (self.lab.inspect(Host::Sender)?, self.lab.inspect(Host::Receiver)?);
        let prediction = predict(&self.case.path, &sender, &receiver, request);
        let mut runs = 0;
        loop {
            let beside = self.begin_beside(request)?;
            let measurement = self.once(request)?;
            beside.into_iter().try_for_each(|program| program.finish(Duration::ZERO).map(drop))?;
            runs += 1;
            if measurement.validity.is_valid() || runs == RUNS {
                return Ok((prediction, measurement));
            }
        }
    }

    fn once(&self, request: &Request) -> Result<Measurement, RunError> {
        let near = near_end(request);
        let server = self.serve(near.peer(), &["--one-off"])?;
        let watch = self.lab.watch()?;
        let client = self.start(near, &self.client_arguments(near, request))?;
        let measurement = self.finish(client, request)?;
        let validity = watch.finish()?;
        server.finish(Duration::from_secs(1))?;
        Ok(Measurement { validity, ..measurement })
    }

    fn client_arguments(&self, near: Host, request: &Request) -> Vec<String> {
        let mut arguments = measure_arguments(&self.lab.address(near.peer()).to_string(), request);
        if self.case.plant == Plant::Iperf2 {
            // The server knows clients by what they say, not by the port.
            arguments.extend(["--iperf2", "--port", PORT].map(str::to_owned));
        }
        arguments.push("--json".to_owned());
        arguments
    }

    /// What the client measured: also what there is where it broke off.
    fn finish(&self, client: Program<'_>, request: &Request) -> Result<Measurement, RunError> {
        let deadline = Instant::now() + Duration::from(request.omit + request.duration) + PATIENCE;
        let mut printed = String::new();
        while Instant::now() < deadline {
            if self.runner.interrupt.load(Ordering::Relaxed) {
                return Err(RunError::Interrupted);
            }
            match client.next_line(LOOK) {
                Line::Text(line) => printed += &line,
                Line::NotYet => {}
                Line::End => break,
            }
        }
        let output = client.finish(Duration::from_secs(1))?;
        let document: Document = serde_json::from_str(&printed)
            .map_err(|error| RunError::Failed(format!("{error}: {}", output.stderr.trim())))?;
        document.measurement.ok_or_else(|| RunError::Failed(output.stderr.trim().to_owned()))
    }

    /// Starts the program under test with whatever holds it back there.
    fn start(&self, host: Host, arguments: &[String]) -> Result<Program<'_>, RunError> {
        let program = self.runner.program.to_string_lossy().into_owned();
        let before = self.wrap.iter().filter(|(held, _)| *held == host).flat_map(|(_, words)| words.clone());
        let mut words: Vec<String> = before.chain([program]).chain(arguments.iter().cloned()).collect();
        let program = words.remove(0);
        Ok(self.lab.start_program(host, &program, &words, Stdio::Collected)?)
    }

    /// A far end in `host`, once it can be reached.
    fn serve(&self, host: Host, flags: &[&str]) -> Result<Program<'_>, RunError> {
        let mut arguments: Vec<String> =
            std::iter::once("serve").chain(flags.iter().copied()).map(str::to_owned).collect();
        if let Plant::SlowFile { host: slow, .. } = self.case.plant
            && slow == host
        {
            arguments.extend(self.file_flags(host)?);
        }
        let server = self.start(host, &arguments)?;
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline && !self.runner.interrupt.load(Ordering::Relaxed) {
            match server.next_line(LOOK) {
                Line::Text(line) if line.contains(LISTENING) => return Ok(server),
                Line::Text(_) | Line::NotYet => {}
                Line::End => break,
            }
        }
        let output = server.finish(Duration::ZERO)?;
        Err(RunError::Failed(format!("the far end did not come up: {}", output.stderr.trim())))
    }

    /// The far end's file or folder.
    fn file_flags(&self, host: Host) -> Result<[String; 2], RunError> {
        let scratch = self.runner.scratch;
        if host == Host::Receiver {
            return Ok(["--store".to_owned(), scratch.to_string_lossy().into_owned()]);
        }
        let name = scratch.join("holes");
        let made = File::create(&name).and_then(|file| file.set_len(FILE_SIZE));
        made.map_err(|error| RunError::NotPlanted(format!("{}: {error}", name.display())))?;
        Ok(["--file".to_owned(), name.to_string_lossy().into_owned()])
    }

    /// The loads beside it and their server; they end when they are killed.
    fn begin_beside(&self, main: &Request) -> Result<Vec<Program<'_>>, RunError> {
        let Plant::Beside(load) = &self.case.plant else { return Ok(Vec::new()) };
        let server = self.serve(Host::Receiver, &["--port", BESIDE_PORT, "--no-iperf2"])?;
        let load = Request { duration: main.duration + LEAD * 8, ..load.clone() };
        let mut arguments = measure_arguments(&self.lab.address(Host::Receiver).to_string(), &load);
        arguments.extend(["--port", BESIDE_PORT, "--json"].map(str::to_owned));
        let client = self.start(Host::Sender, &arguments)?;
        std::thread::sleep(LEAD.into());
        Ok(vec![client, server])
    }

    /// Applies the best remedy that a program can, measures again, and takes it back.
    fn prove(&self, recorded: &Recorded) -> Result<Option<Proven>, RunError> {
        let evidence = Evidence::of(&recorded.measurement, recorded.bandwidth, recorded.framing);
        let advice = remedies(&evidence, &diagnose(&evidence));
        let Some((best, predicted)) = best_of(&advice) else { return Ok(None) };
        for (at, changes) in best.by_end() {
            match at {
                At::Sender => self.lab.apply(Host::Sender, &changes)?,
                At::Receiver => self.lab.apply(Host::Receiver, &changes)?,
                At::Path | At::Middlebox | At::None => {}
            }
        }
        let request =
            best.changes.iter().fold(self.case.request.clone(), |request, change| change.applied_to_request(&request));
        let measured = self.measured(&request);
        for host in Host::ALL {
            self.lab.undo(host)?;
        }
        let (_, measurement) = measured?;
        let steady = measurement.summary.steady.filter(|_| measurement.validity.is_valid());
        Ok(steady.map(|steady| Proven { remedy: best.id.clone(), predicted, measured: steady.rate }))
    }
}

fn best_of(advice: &[Remedy]) -> Option<(&Remedy, fullpipe_record::Forecast)> {
    let best = advice.first().filter(|best| !best.changes.is_empty())?;
    Some((best, best.predicted?))
}

/// The call with which that end reads or writes its file.
const fn file_call(host: Host) -> &'static str {
    match host {
        Host::Sender => "pread64",
        Host::Receiver => "pwrite64",
    }
}

/// The host that asks for the load.
const fn near_end(request: &Request) -> Host {
    match request.direction {
        Direction::Upload | Direction::Both => Host::Sender,
        Direction::Download => Host::Receiver,
    }
}
