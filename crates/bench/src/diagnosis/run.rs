//! A case over a lab.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fullpipe_experiment::measure_arguments;
use fullpipe_lab::{Backend, Host, Lab, LabProgram, ProgramStdio};
use fullpipe_model::application;
use fullpipe_record::{At, DiagnosisReport, Direction, Evidence, Measurement, Request};
use fullpipe_units::{ByteCount, Span};
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::cases::Case;
use super::plant::{Plant, Quota, busy, slowed};
use super::ssh::{self, Ssh};
use crate::judged::{JudgedView, Record, RemedyResult};
use crate::lab;
use crate::process::RunError;

/// Runs of a case that may be invalid before it is given up.
const RUNS: usize = 3;

/// Longest time that a program takes to come up, and to end after its work; its protocol has
/// deadlines of its own.
const TIMEOUT: Duration = Duration::from_secs(40);

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
    pub(crate) fn run(&self, case: &Case) -> Result<Record, RunError> {
        check_tools(case.plant.as_ref())?;
        // Dropped last: a control group goes only when the lab's programs have left it.
        let quota = quota(case)?;
        let wrap = self.wrap(case, quota.as_ref())?;
        let changes = [case.sender.clone(), case.receiver.clone()];
        let lab = lab::start(case.path.clone(), changes, Backend::default())?;
        let scene = Scene {
            runner: self,
            case,
            lab: &lab,
            wrap,
        };
        scene.prepare()?;
        let captures = self.captures.as_deref();
        let mut record = scene.observe(&case.request, captures)?;
        record.judge_again();
        // No change of a host or of our own load is a remedy for another program's window.
        if self.prove && case.plant != Some(Plant::SshChannel) {
            record.remedy_result = scene.prove(&record)?;
        }
        record.thin_samples();
        Ok(record)
    }

    /// Returns true once the user has stopped the bench.
    pub(crate) fn is_interrupted(&self) -> bool {
        self.interrupt.load(Ordering::Relaxed)
    }

    /// The words before the program of an end that is held back, and which end that is.
    fn wrap(
        &self,
        case: &Case,
        quota: Option<&Quota>,
    ) -> Result<Option<(Host, Vec<String>)>, RunError> {
        let slow = case.time_of_block(false);
        Ok(match &case.plant {
            Some(Plant::SlowCall(host, call)) => Some((*host, slowed(call, slow))),
            Some(Plant::SlowFile(host)) => Some((*host, slowed(file_call(*host), slow))),
            Some(Plant::BusyCall(host, call)) => {
                Some((*host, self.busy(call, case.time_of_block(true))?))
            }
            Some(Plant::Quota(host, call)) => {
                let enter = quota.map(Quota::wrap).unwrap_or_default();
                Some((*host, [enter, self.busy(call, case.quota().1)?].concat()))
            }
            _ => None,
        })
    }

    /// Returns the words before a command that make each call of `call` begin with work.
    fn busy(&self, call: &str, by: Span) -> Result<Vec<String>, RunError> {
        busy(call, by, self.scratch).map_err(|error| not_planted(format!("cc: {error}")))
    }
}

fn check_tools(plant: Option<&Plant>) -> Result<(), RunError> {
    match plant {
        Some(Plant::SlowCall(..) | Plant::SlowFile(_)) => {
            let asked = Command::new("strace").arg("-V").output();
            asked
                .map(drop)
                .map_err(|error| not_planted(format!("strace: {error}")))
        }
        Some(Plant::SshChannel) => ssh::check_programs().map_err(not_planted),
        _ => Ok(()),
    }
}

/// Says that this machine has not what the limit is planted with.
fn not_planted(why: impl std::fmt::Display) -> RunError {
    RunError::Failed(format!("it cannot be planted here: {why}"))
}

fn quota(case: &Case) -> Result<Option<Quota>, RunError> {
    let is_held = matches!(case.plant, Some(Plant::Quota(..)));
    let made = is_held.then(|| Quota::make(case.quota().0));
    made.transpose()
        .map_err(|error| not_planted(format!("no control group: {error}")))
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
            Some(Plant::Prepared(host, command)) => (*host, command.clone()),
            Some(Plant::SshChannel) => (Host::Sender, self.route()),
            _ => return Ok(()),
        };
        let arguments = ["-c".to_owned(), command];
        let program = self.program(host, "sh", &arguments)?;
        let output = program.finish_within(TIMEOUT)?;
        if output.code == 0 {
            Ok(())
        } else {
            Err(not_planted(output.stderr.trim()))
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

    /// Returns the first valid run of the load, or the last of [`RUNS`] invalid ones, whose packets
    /// are captured into the folder of captures, if there is one.
    fn observe(&self, request: &Request, captures: Option<&Path>) -> Result<Record, RunError> {
        let mut runs = 0;
        loop {
            let cross_traffic = self.start_cross_traffic(request)?;
            let record = self.captured(request, captures)?;
            for program in cross_traffic {
                program.finish_within(Duration::ZERO)?;
            }
            runs += 1;
            if record.broken.is_none() || runs == RUNS {
                return Ok(record);
            }
        }
    }

    /// As [`Scene::once`], with captures in `folder` if it is given. A run is invalid if packets
    /// are missing in them.
    fn captured(&self, request: &Request, folder: Option<&Path>) -> Result<Record, RunError> {
        let Some(folder) = folder else {
            return self.once(request);
        };
        let stem = self.record().stem();
        let capture = self.lab.start_capture(folder, &stem, MAX_CAPTURE);
        let capture = capture?;
        let observed = self.once(request);
        let missed = self.lab.finish_capture(capture)?.missed;
        let mut record = observed?;
        if missed > 0 {
            record.broken = Some(format!("{missed} packets are missing in its captures"));
        }
        Ok(record)
    }

    /// Returns a record without evidence.
    fn record(&self) -> Record {
        let Case {
            name,
            expected,
            path,
            plant,
            ..
        } = self.case;
        let view = match plant {
            Some(Plant::SshChannel) => JudgedView::Watched,
            _ => JudgedView::BothEnds,
        };
        let mut record = Record::new(name, view, expected.name(), path.clone());
        record.states_rate = true;
        record
    }

    fn once(&self, request: &Request) -> Result<Record, RunError> {
        let watch = self.lab.start_watch();
        let watch = watch?;
        let evidence = if self.case.plant == Some(Plant::SshChannel) {
            self.watched(request)?
        } else {
            self.measured(request)?
        };
        let broken = watch.finish_watch()?.broken;
        let mut record = self.record();
        record.broken = (!broken.is_empty()).then(|| broken.join("; "));
        record.evidence = Some(evidence);
        Ok(record)
    }

    fn measured(&self, request: &Request) -> Result<Evidence, RunError> {
        let near = near_end(request);
        let server = self.serve(near.peer_host(), &["--one-off"])?;
        let client = self.start(near, &self.client_arguments(near, request))?;
        let measurement: Measurement = self.finish(client, request, "measurement")?;
        let ended = server.finish_within(Duration::from_secs(1));
        ended?;
        let forward = &self.case.path.forward;
        Ok(Evidence::from_measurement(
            &measurement,
            forward.rate,
            forward.framing,
        ))
    }

    /// As [`Scene::measured`], of a load that OpenSSH makes.
    fn watched(&self, request: &Request) -> Result<Evidence, RunError> {
        let ssh = Ssh::prepare(self.runner.scratch).map_err(not_planted)?;
        let script = ["-c".to_owned(), ssh.server()];
        let server = self.program(Host::Receiver, "sh", &script)?;
        let server = lab::once_it_listens(server, self.runner.interrupt)?;
        let script = ssh.client(
            self.lab.host_address(Host::Receiver),
            self.let_through(request.duration),
        );
        let time = request.duration.as_secs_f64().to_string();
        let arguments = [
            "diagnose", "--json", "--time", &time, "--", "sh", "-c", &script,
        ]
        .map(str::to_owned);
        let client = self.start(Host::Sender, &arguments)?;
        let diagnosis: DiagnosisReport = self.finish(client, request, "diagnosis")?;
        // The first is the transfer that moved most.
        let largest = diagnosis.transfers.into_iter().next();
        let evidence = largest
            .and_then(|largest| largest.evidence)
            .ok_or_else(|| RunError::failed("no transfer was diagnosed"))?;
        server.finish_within(Duration::ZERO)?;
        let mut sockets = evidence.sender_sockets.iter();
        if !sockets.all(|socket| Some(&socket.congestion) == request.congestion.as_ref()) {
            return Err(not_planted("its connection has another congestion control"));
        }
        let forward = &self.case.path.forward;
        Ok(Evidence {
            bandwidth: forward.rate,
            framing: forward.framing,
            ..evidence
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
        if self.case.plant == Some(Plant::Iperf2) {
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
        let duration = Duration::from(request.omit + request.duration);
        let output = lab::finish(client, duration, self.runner.interrupt, &mut || Ok(()))?;
        let failed = |error| RunError::Failed(format!("{error}: {}", output.stderr.trim()));
        let mut document: BTreeMap<String, &RawValue> =
            serde_json::from_str(&output.stdout).map_err(failed)?;
        let part = document
            .remove(key)
            .ok_or_else(|| RunError::Failed(output.stderr.trim().to_owned()))?;
        serde_json::from_str(part.get()).map_err(failed)
    }

    /// Starts the program under test with whatever holds it back there.
    fn start(&self, host: Host, arguments: &[String]) -> Result<LabProgram<'_>, RunError> {
        let program = [self.runner.program.to_string_lossy().into_owned()];
        let before = self.wrap.as_ref().filter(|(held, _)| *held == host);
        let before = before.map_or(&[][..], |(_, words)| words);
        let words = [before, &program, arguments].concat();
        self.program(host, &words[0], &words[1..])
    }

    fn program(
        &self,
        host: Host,
        program: &str,
        arguments: &[String],
    ) -> Result<LabProgram<'_>, RunError> {
        let started = self
            .lab
            .start_program(host, program, arguments, ProgramStdio::Collected);
        Ok(started?)
    }

    /// A far end in `host`, once it can be reached.
    fn serve(&self, host: Host, flags: &[&str]) -> Result<LabProgram<'_>, RunError> {
        let mut arguments: Vec<String> = std::iter::once("serve")
            .chain(flags.iter().copied())
            .map(str::to_owned)
            .collect();
        if let Some(Plant::SlowFile(slow)) = self.case.plant
            && slow == host
        {
            arguments.extend(self.file_flags(host)?);
        }
        lab::once_it_listens(self.start(host, &arguments)?, self.runner.interrupt)
    }

    /// The far end's file or folder.
    fn file_flags(&self, host: Host) -> Result<[String; 2], RunError> {
        let scratch = self.runner.scratch;
        if host == Host::Receiver {
            return Ok(["--store".to_owned(), scratch.to_string_lossy().into_owned()]);
        }
        let name = scratch.join("holes");
        let made = File::create(&name).and_then(|file| file.set_len(FILE_SIZE));
        made.map_err(|error| not_planted(format!("{}: {error}", name.display())))?;
        Ok(["--file".to_owned(), name.to_string_lossy().into_owned()])
    }

    /// Starts cross traffic and its server; they end when they are killed.
    fn start_cross_traffic(&self, main: &Request) -> Result<Vec<LabProgram<'_>>, RunError> {
        let Some(Plant::CrossTraffic(streams)) = self.case.plant else {
            return Ok(Vec::new());
        };
        let server = self.serve(
            Host::Receiver,
            &["--port", CROSS_TRAFFIC_PORT, "--no-iperf2"],
        )?;
        let load = Request {
            duration: main.duration + LEAD * 8,
            streams,
            ..self.case.request.clone()
        };
        let mut arguments =
            measure_arguments(&self.lab.host_address(Host::Receiver).to_string(), &load);
        arguments.extend(["--port", CROSS_TRAFFIC_PORT, "--json"].map(str::to_owned));
        let client = self.start(Host::Sender, &arguments)?;
        std::thread::sleep(LEAD.into());
        Ok(vec![client, server])
    }

    /// Applies the best remedy that a program can, measures again, and takes it back.
    fn prove(&self, record: &Record) -> Result<Option<RemedyResult>, RunError> {
        let best = record
            .remedies
            .first()
            .filter(|best| !best.changes.is_empty());
        let Some((best, predicted)) = best.and_then(|best| Some((best, best.predicted?))) else {
            return Ok(None);
        };
        for (at, changes) in best.by_end() {
            match at {
                At::Sender => self.lab.apply_changes(Host::Sender, &changes)?,
                At::Receiver => self.lab.apply_changes(Host::Receiver, &changes)?,
                At::Path | At::Middlebox | At::None => {}
            }
        }
        let mut request = self.case.request.clone();
        for change in &best.changes {
            request = change.applied_to_request(&request);
        }
        let measured = self.observe(&request, None);
        for host in Host::ALL {
            self.lab.undo_changes(host)?;
        }
        let measured = measured?;
        let evidence = measured.evidence.filter(|_| measured.broken.is_none());
        Ok(evidence.and_then(|evidence| {
            Some(RemedyResult {
                remedy: best.id.clone(),
                predicted,
                measured: evidence.steady?.rate,
                predicted_rtt: best.rtt,
                loaded_rtt: evidence.loaded_rtt,
            })
        }))
    }
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
