//! A case over a lab.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fullpipe_diagnose::{diagnose, find_remedies};
use fullpipe_experiment::measure_arguments;
use fullpipe_lab::{Backend, Host, Lab, LabError, LabPlan, LabProgram, OutputLine, ProgramStdio};
use fullpipe_model::{application, predict};
use fullpipe_record::{At, DiagnosisReport, Direction, Measurement, Prediction, Remedy, Request};
use fullpipe_units::{ByteCount, Span};
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::captures::{stem, write_middle};
use super::case_record::{CaseRecord, Observation, Watched};
use super::cases::Case;
use super::plant::{Plant, Quota, busy, slowed};
use super::ssh::{self, Ssh};
use crate::accuracy::RemedyResult;

/// Runs of a case that may be invalid before it is given up.
const RUNS: usize = 3;

/// Text that `fullpipe serve` prints once it can be reached, and sshd too.
const LISTENING: &str = "listening";

/// Longest time that a program takes to come up, and to end after its work; its protocol has
/// deadlines of its own.
const TIMEOUT: Duration = Duration::from_secs(40);

/// Longest that an interrupt goes unheard.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Time for which cross traffic runs before a load, and after it.
const LEAD: Span = Span::from_secs(3);

/// The port of the server.
const PORT: u16 = 5201;

/// The port of the server for cross traffic.
const CROSS_TRAFFIC_PORT: &str = "5202";

/// Maximum size of a capture: seven million packets.
const MAX_CAPTURE: ByteCount = ByteCount::from_mib(1 << 10);

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
    /// Folder for files of a run.
    pub(crate) scratch: &'r Path,
    /// True if the best remedy is applied and proven.
    pub(crate) prove: bool,
    /// The folder for captures of both ends and from the middle, if they are taken.
    pub(crate) captures: Option<PathBuf>,
    /// Set when the user asks to stop.
    pub(crate) interrupt: &'r AtomicBool,
}

impl Runner<'_> {
    /// Runs `case` until a run is valid, three times at most.
    ///
    /// # Errors
    /// If it could not be planted, or nothing was measured.
    pub(crate) fn run(&self, case: &Case) -> Result<CaseRecord, RunError> {
        check_tools(&case.plant)?;
        // Dropped last: a control group goes only when the lab's programs have left it.
        let quota = quota(&case.plant)?;
        let wrap = self.wrap(&case.plant, quota.as_ref())?;
        let lab = Lab::start(&plan(case))?;
        let scene = Scene {
            runner: self,
            case,
            lab: &lab,
            wrap,
        };
        scene.prepare()?;
        let (prediction, observation) = scene.observe(&case.request, self.captures.as_deref())?;
        let forward = &case.path.forward;
        let mut record = CaseRecord {
            name: case.name.clone(),
            expected_verdict: case.expected_verdict,
            bandwidth: forward.rate,
            framing: forward.framing,
            prediction,
            observation,
            remedy_result: None,
        };
        // No change of a host or of our own load is a remedy for another program's window.
        if self.prove && case.plant != Plant::SshChannel {
            record.remedy_result = scene.prove(&record)?;
        }
        record.observation.thin();
        Ok(record)
    }

    /// The words before the program of an end that is held back, and which end that is.
    fn wrap(
        &self,
        plant: &Plant,
        quota: Option<&Quota>,
    ) -> Result<Option<(Host, Vec<String>)>, RunError> {
        Ok(match plant {
            Plant::SlowCall { host, call, by } => Some((*host, slowed(call, *by))),
            Plant::SlowFile { host, by } => Some((*host, slowed(file_call(*host), *by))),
            Plant::BusyCall { host, call, by } => Some((*host, self.busy(call, *by)?)),
            Plant::Quota { host, call, by, .. } => match quota {
                Some(quota) => Some((*host, [quota.wrap(), self.busy(call, *by)?].concat())),
                None => None,
            },
            Plant::InPlan
            | Plant::Prepared { .. }
            | Plant::CrossTraffic(_)
            | Plant::Iperf2
            | Plant::SshChannel => None,
        })
    }

    /// Returns the words before a command that make each call of `call` begin with work.
    fn busy(&self, call: &str, by: Span) -> Result<Vec<String>, RunError> {
        busy(call, by, self.scratch).map_err(|error| RunError::NotPlanted(format!("cc: {error}")))
    }
}

fn plan(case: &Case) -> LabPlan {
    LabPlan {
        path: case.path.clone(),
        seed: 1,
        sender: case.sender.clone(),
        receiver: case.receiver.clone(),
        backend: Backend::default(),
        interactive: false,
    }
}

fn check_tools(plant: &Plant) -> Result<(), RunError> {
    match plant {
        Plant::SlowCall { .. } | Plant::SlowFile { .. } => {
            let asked = Command::new("strace").arg("-V").output();
            asked
                .map(drop)
                .map_err(|error| RunError::NotPlanted(format!("strace: {error}")))
        }
        Plant::SshChannel => ssh::check_programs().map_err(|error| not_planted(&error)),
        _ => Ok(()),
    }
}

fn not_planted(error: &std::io::Error) -> RunError {
    RunError::NotPlanted(error.to_string())
}

fn quota(plant: &Plant) -> Result<Option<Quota>, RunError> {
    let Plant::Quota { share, .. } = plant else {
        return Ok(None);
    };
    let made = Quota::make(*share)
        .map_err(|error| RunError::NotPlanted(format!("no control group: {error}")))?;
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
        let (host, command) = match &self.case.plant {
            Plant::Prepared { host, command } => (*host, command.clone()),
            Plant::SshChannel => (Host::Sender, self.route()),
            _ => return Ok(()),
        };
        let arguments = ["-c".to_owned(), command];
        let output = self
            .lab
            .start_program(host, "sh", &arguments, ProgramStdio::Collected)?
            .finish_within(TIMEOUT)?;
        if output.code == 0 {
            Ok(())
        } else {
            Err(RunError::NotPlanted(output.stderr.trim().to_owned()))
        }
    }

    /// Gives connections to the receiver the congestion control of the case, for a program that
    /// asks for none: in a namespace the kernel takes one that it does not allow to everybody from
    /// a route, but not as the default.
    fn route(&self) -> String {
        let control = self.case.request.congestion.as_deref().unwrap_or_default();
        format!(
            "ip route replace {} dev path0 congctl {control}",
            self.lab.host_address(Host::Receiver)
        )
    }

    /// Returns the prediction for the load and the first valid run of the load, or the last of
    /// [`RUNS`] invalid runs, whose packets are captured into the folder of captures, if there is
    /// one.
    fn observe(
        &self,
        request: &Request,
        captures: Option<&Path>,
    ) -> Result<(Prediction, Observation), RunError> {
        let (sender, receiver) = (
            self.lab.host_settings(Host::Sender)?,
            self.lab.host_settings(Host::Receiver)?,
        );
        let prediction = predict(&self.case.path, &sender, &receiver, request);
        let mut runs = 0;
        loop {
            let cross_traffic = self.start_cross_traffic(request)?;
            let observation = self.captured(request, captures)?;
            cross_traffic
                .into_iter()
                .try_for_each(|program| program.finish_within(Duration::ZERO).map(drop))?;
            runs += 1;
            if observation.validity().is_valid() || runs == RUNS {
                return Ok((prediction, observation));
            }
        }
    }

    /// As [`Scene::once`], with captures in `folder` if it is given. A run is invalid if packets
    /// are missing in them.
    fn captured(&self, request: &Request, folder: Option<&Path>) -> Result<Observation, RunError> {
        let Some(folder) = folder else {
            return self.once(request);
        };
        let capture = self
            .lab
            .start_capture(folder, &stem(&self.case.name), MAX_CAPTURE)?;
        let observed = self.once(request);
        let missed = self.lab.finish_capture(capture)?.missed;
        let mut observation = observed?;
        if missed > 0 {
            let broken = &mut observation.validity_mut().broken;
            broken.push(format!("{missed} packets are missing in its captures"));
        }
        write_middle(folder, &self.case.name, &self.case.path)
            .map_err(|error| RunError::Failed(error.to_string()))?;
        Ok(observation)
    }

    fn once(&self, request: &Request) -> Result<Observation, RunError> {
        if self.case.plant == Plant::SshChannel {
            return Ok(Observation::Watched(Box::new(self.watched(request)?)));
        }
        Ok(Observation::Measured(Box::new(self.measured(request)?)))
    }

    fn measured(&self, request: &Request) -> Result<Measurement, RunError> {
        let near = near_end(request);
        let server = self.serve(near.peer_host(), &["--one-off"])?;
        let watch = self.lab.start_watch()?;
        let client = self.start(near, &self.client_arguments(near, request))?;
        let measurement = self.finish(client, request, "measurement")?;
        let validity = watch.finish_watch()?;
        server.finish_within(Duration::from_secs(1))?;
        Ok(Measurement {
            validity,
            ..measurement
        })
    }

    /// As [`Scene::measured`], of a load that OpenSSH makes.
    fn watched(&self, request: &Request) -> Result<Watched, RunError> {
        let ssh = Ssh::prepare(self.runner.scratch).map_err(|error| not_planted(&error))?;
        let server = self.lab.start_program(
            Host::Receiver,
            "sh",
            &["-c".to_owned(), ssh.server()],
            ProgramStdio::Collected,
        )?;
        let server = self.once_it_listens(server)?;
        let script = ssh.client(
            self.lab.host_address(Host::Receiver),
            self.let_through(request.duration),
        );
        let time = request.duration.as_secs_f64().to_string();
        let arguments = [
            "diagnose", "--json", "--time", &time, "--", "sh", "-c", &script,
        ]
        .map(str::to_owned);
        let watch = self.lab.start_watch()?;
        let client = self.start(Host::Sender, &arguments)?;
        let diagnosis: DiagnosisReport = self.finish(client, request, "diagnosis")?;
        // The first is the transfer that moved most.
        let largest = diagnosis.transfers.into_iter().next();
        let (transfer, evidence) = largest
            .and_then(|largest| largest.transfer.zip(largest.evidence))
            .ok_or_else(|| RunError::Failed("no transfer was diagnosed".to_owned()))?;
        let validity = watch.finish_watch()?;
        server.finish_within(Duration::ZERO)?;
        let mut controls = evidence
            .sender_sockets
            .iter()
            .map(|socket| Some(&socket.congestion));
        if !controls.all(|control| control == request.congestion.as_ref()) {
            return Err(RunError::NotPlanted(
                "its connection has another congestion control".to_owned(),
            ));
        }
        Ok(Watched {
            transfer,
            evidence,
            validity,
        })
    }

    /// Returns the bytes that the window of a channel allows in this time: as the watch does not
    /// end the program, its data must.
    fn let_through(&self, time: Span) -> ByteCount {
        let ceiling = application::find_application("ssh")
            .and_then(|ssh| ssh.window_ceiling(self.case.path.rtt()));
        ceiling.unwrap_or_default().bytes_in(time)
    }

    fn client_arguments(&self, near: Host, request: &Request) -> Vec<String> {
        let mut arguments = measure_arguments(
            &self.lab.host_address(near.peer_host()).to_string(),
            request,
        );
        if self.case.plant == Plant::Iperf2 {
            // The server knows clients by what they say, not by the port.
            arguments.extend(["--iperf2", "--port", &PORT.to_string()].map(str::to_owned));
        }
        arguments.push("--json".to_owned());
        arguments
    }

    /// Returns the value at `key` of the client's document, also where the test broke off.
    fn finish<T: DeserializeOwned>(
        &self,
        client: LabProgram<'_>,
        request: &Request,
        key: &str,
    ) -> Result<T, RunError> {
        let deadline = Instant::now() + Duration::from(request.omit + request.duration) + TIMEOUT;
        let mut printed = String::new();
        while Instant::now() < deadline {
            if self.runner.interrupt.load(Ordering::Relaxed) {
                return Err(RunError::Interrupted);
            }
            match client.next_line(POLL_INTERVAL) {
                OutputLine::Text(line) => printed += &line,
                OutputLine::NotYet => {}
                OutputLine::End => break,
            }
        }
        let output = client.finish_within(Duration::from_secs(1))?;
        let failed = |error| RunError::Failed(format!("{error}: {}", output.stderr.trim()));
        let mut document: BTreeMap<String, &RawValue> =
            serde_json::from_str(&printed).map_err(failed)?;
        let part = document
            .remove(key)
            .ok_or_else(|| RunError::Failed(output.stderr.trim().to_owned()))?;
        serde_json::from_str(part.get()).map_err(failed)
    }

    /// Starts the program under test with whatever holds it back there.
    fn start(&self, host: Host, arguments: &[String]) -> Result<LabProgram<'_>, RunError> {
        let program = self.runner.program.to_string_lossy().into_owned();
        let before = self
            .wrap
            .iter()
            .filter(|(held, _)| *held == host)
            .flat_map(|(_, words)| words.clone());
        let mut words: Vec<String> = before
            .chain([program])
            .chain(arguments.iter().cloned())
            .collect();
        let program = words.remove(0);
        Ok(self
            .lab
            .start_program(host, &program, &words, ProgramStdio::Collected)?)
    }

    /// A far end in `host`, once it can be reached.
    fn serve(&self, host: Host, flags: &[&str]) -> Result<LabProgram<'_>, RunError> {
        let mut arguments: Vec<String> = std::iter::once("serve")
            .chain(flags.iter().copied())
            .map(str::to_owned)
            .collect();
        if let Plant::SlowFile { host: slow, .. } = self.case.plant
            && slow == host
        {
            arguments.extend(self.file_flags(host)?);
        }
        self.once_it_listens(self.start(host, &arguments)?)
    }

    fn once_it_listens<'p>(&self, server: LabProgram<'p>) -> Result<LabProgram<'p>, RunError> {
        let mut said = String::new();
        let deadline = Instant::now() + TIMEOUT;
        while Instant::now() < deadline && !self.runner.interrupt.load(Ordering::Relaxed) {
            match server.next_line(POLL_INTERVAL) {
                OutputLine::Text(line) if line.contains(LISTENING) => return Ok(server),
                OutputLine::Text(line) => said += &line,
                OutputLine::NotYet => {}
                OutputLine::End => break,
            }
        }
        said += &server.finish_within(Duration::ZERO)?.stderr;
        Err(RunError::Failed(format!(
            "the far end did not come up: {}",
            said.trim()
        )))
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

    /// Starts cross traffic and its server; they end when they are killed.
    fn start_cross_traffic(&self, main: &Request) -> Result<Vec<LabProgram<'_>>, RunError> {
        let Plant::CrossTraffic(load) = &self.case.plant else {
            return Ok(Vec::new());
        };
        let server = self.serve(
            Host::Receiver,
            &["--port", CROSS_TRAFFIC_PORT, "--no-iperf2"],
        )?;
        let load = Request {
            duration: main.duration + LEAD * 8,
            ..load.clone()
        };
        let mut arguments =
            measure_arguments(&self.lab.host_address(Host::Receiver).to_string(), &load);
        arguments.extend(["--port", CROSS_TRAFFIC_PORT, "--json"].map(str::to_owned));
        let client = self.start(Host::Sender, &arguments)?;
        std::thread::sleep(LEAD.into());
        Ok(vec![client, server])
    }

    /// Applies the best remedy that a program can, measures again, and takes it back.
    fn prove(&self, record: &CaseRecord) -> Result<Option<RemedyResult>, RunError> {
        let evidence = record.evidence(record.bandwidth);
        let advice = find_remedies(&evidence, &diagnose(&evidence));
        let Some((best, predicted)) = best_of(&advice) else {
            return Ok(None);
        };
        for (at, changes) in best.by_end() {
            match at {
                At::Sender => self.lab.apply_changes(Host::Sender, &changes)?,
                At::Receiver => self.lab.apply_changes(Host::Receiver, &changes)?,
                At::Path | At::Middlebox | At::None => {}
            }
        }
        let request = best
            .changes
            .iter()
            .fold(self.case.request.clone(), |request, change| {
                change.applied_to_request(&request)
            });
        let measured = self.observe(&request, None);
        for host in Host::ALL {
            self.lab.undo_changes(host)?;
        }
        let (_, observation) = measured?;
        let steady = observation
            .steady()
            .filter(|_| observation.validity().is_valid());
        Ok(steady.map(|steady| RemedyResult {
            remedy: best.id.clone(),
            predicted,
            measured: steady.rate,
            predicted_rtt: best.rtt,
            loaded_rtt: observation.loaded_rtt(),
        }))
    }
}

fn best_of(advice: &[Remedy]) -> Option<(&Remedy, fullpipe_record::Forecast)> {
    let best = advice.first().filter(|best| !best.changes.is_empty())?;
    Some((best, best.predicted?))
}

/// The call with which that end reads or writes its file.
const fn file_call(host: Host) -> &'static str {
    if matches!(host, Host::Sender) {
        "pread64"
    } else {
        "pwrite64"
    }
}

/// The host that asks for the load.
const fn near_end(request: &Request) -> Host {
    match request.direction {
        Direction::Upload | Direction::Both => Host::Sender,
        Direction::Download => Host::Receiver,
    }
}
