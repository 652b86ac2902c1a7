//! A lab as a target: both ends are this program, run in a host each.

use std::io::Write;
use std::time::{Duration, Instant};

use fullpipe_lab::{Host, Lab, LabError, LabProgram, OutputLine, ProgramOutput};
use fullpipe_record::{ErrorReport, Summary, steady_of_receiver};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::arguments::measure_arguments;
use crate::error::ExperimentError;
use crate::prelude::*;
use crate::target::{EndSettings, ExperimentTarget, Interrupt};

/// Word that `fullpipe serve` prints once it can be reached.
const LISTENING: &str = "listening";

/// Port of the far end, and of the near relay in its place.
const PORT: u16 = 5201;

/// Port of the far relay.
const RELAY_PORT: u16 = 8443;

/// The key of both relays. No other host reaches them.
const RELAY_KEY: &str = "relays of a lab, which nobody else can reach";

/// Maximum time for the far end to come up, and for either program to end after its work.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(20);

/// Maximum time for a far end to end after its one test.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Exit code of this program when its user stopped it, by its own handler or by the signal itself.
/// An interrupt from a terminal reaches the programs in the hosts too, and one of them may end
/// before this one has seen the signal.
const INTERRUPTED: i32 = 130;

/// Interval of the checks for an interrupt.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Both hosts of a lab, with the data going from sender to receiver.
pub struct LabTarget<'l> {
    pub(crate) lab: &'l Lab,
}

impl<'l> LabTarget<'l> {
    /// The target that `lab` is.
    pub const fn new(lab: &'l Lab) -> Self {
        Self { lab }
    }

    /// Measures from sender to receiver through a pair of relays. The steady part is that of the
    /// receiver: data that has left the sender may still be in a relay.
    pub(crate) fn measure_through_relays(
        &self,
        request: &Request,
        interrupt: Interrupt<'_>,
        progress: &mut dyn FnMut(&Interval),
    ) -> Result<Measurement, ExperimentError> {
        let relays = self.start_relays()?;
        let near = self.lab.host_address(Host::NearRelay);
        let measured = self.measure_to(&near.to_string(), request, interrupt, progress);
        for relay in relays {
            relay.finish_within(Duration::ZERO)?;
        }
        let measured = require_complete(measured?)?;
        let samples = &measured.receiving_end().samples;
        let ended_at = samples.last().map_or(Span::ZERO, |sample| sample.at);
        let steady = steady_of_receiver(samples, Some(self.path().rtt()), ended_at);
        Ok(Measurement {
            summary: Summary {
                steady,
                ..measured.summary
            },
            ..measured
        })
    }

    /// Starts a pair of relays to the receiver.
    fn start_relays(&self) -> Result<[LabProgram<'l>; 2], ExperimentError> {
        let mut key = tempfile::NamedTempFile::new()
            .map_err(LabError::from_io("make a key for the relays"))?;
        writeln!(key, "{RELAY_KEY}").map_err(LabError::from_io("write the key of the relays"))?;
        let key = key.path().to_string_lossy();
        let to = format!("{}:{PORT}", self.lab.host_address(Host::Receiver));
        let via = format!("{}:{RELAY_PORT}", self.lab.host_address(Host::FarRelay));
        let allowed = format!("{}/32:{PORT}", self.lab.host_address(Host::Receiver));
        let far = [
            "relay",
            "--listen",
            &format!(":{RELAY_PORT}"),
            "--key-file",
            &key,
            "--allow-to",
            &allowed,
        ];
        let near = [
            "relay",
            "--listen",
            &format!(":{PORT}"),
            "--key-file",
            &key,
            "--to",
            &to,
            "--via",
            &via,
        ];
        let far = self.start_listener(Host::FarRelay, &far)?;
        match self.start_listener(Host::NearRelay, &near) {
            Ok(near) => Ok([far, near]),
            Err(error) => {
                far.finish_within(Duration::ZERO)?;
                Err(error)
            }
        }
    }

    /// A far end in `host`, once it can be reached.
    pub(crate) fn start_server(
        &self,
        host: Host,
        flags: &[&str],
    ) -> Result<LabProgram<'l>, ExperimentError> {
        self.start_listener(host, &[&["serve"], flags].concat())
    }

    /// This program in `host`, once it listens.
    fn start_listener(
        &self,
        host: Host,
        arguments: &[&str],
    ) -> Result<LabProgram<'l>, ExperimentError> {
        let arguments: Vec<String> = arguments.iter().copied().map(str::to_owned).collect();
        let server = self.lab.start_self(host, &arguments)?;
        let deadline = Instant::now() + TIMEOUT;
        while Instant::now() < deadline {
            match server.next_line(POLL_INTERVAL) {
                OutputLine::Text(line) if line.contains(LISTENING) => return Ok(server),
                OutputLine::Text(_) | OutputLine::NotYet => {}
                OutputLine::End => break,
            }
        }
        let output = server.finish_within(Duration::ZERO)?;
        // Stopped by its user, a server has done its work.
        if output.code == INTERRUPTED || output.code == 0 {
            return Err(ExperimentError::Interrupted);
        }
        Err(ExperimentError::FarEnd(format!(
            "the far end in the lab did not start: {}",
            error_sentence(&output)
        )))
    }

    /// Measures as [`ExperimentTarget::measure`] does; one that broke off is returned as far as it
    /// came.
    pub(crate) fn measure_even_part(
        &self,
        request: &Request,
        interrupt: Interrupt<'_>,
    ) -> Result<Measurement, ExperimentError> {
        let to = self.lab.host_address(near_end(request).peer_host());
        self.measure_to(&to.to_string(), request, interrupt, &mut |_| {})
    }

    /// Sends what `request` asks for to a far end that this starts, by way of `address`. It may
    /// break off.
    fn measure_to(
        &self,
        address: &str,
        request: &Request,
        interrupt: Interrupt<'_>,
        progress: &mut dyn FnMut(&Interval),
    ) -> Result<Measurement, ExperimentError> {
        let server = self.start_server(near_end(request).peer_host(), &["--one-off"])?;
        let measured =
            self.watch_measurement(|| self.send_to(address, request, &[], interrupt, progress));
        // A server without a measurement still waits for a client.
        let ended = server.finish_within(if measured.is_ok() {
            LAST_WORDS
        } else {
            Duration::ZERO
        });
        let measured = measured?;
        ended?;
        Ok(measured)
    }

    /// Returns a measurement with what the lab saw while it ran.
    fn watch_measurement(
        &self,
        measure: impl FnOnce() -> Result<Measurement, ExperimentError>,
    ) -> Result<Measurement, ExperimentError> {
        let watch = self.lab.start_watch()?;
        let measured = measure()?;
        Ok(Measurement {
            validity: watch.finish_watch()?,
            ..measured
        })
    }

    /// Sends what `request` asks for to a far end that is there, as `flags` have it.
    pub(crate) fn send_load(
        &self,
        request: &Request,
        flags: &[&str],
        interrupt: Interrupt<'_>,
        progress: &mut dyn FnMut(&Interval),
    ) -> Result<Measurement, ExperimentError> {
        let to = self.lab.host_address(near_end(request).peer_host());
        require_complete(self.send_to(&to.to_string(), request, flags, interrupt, progress)?)
    }

    fn send_to(
        &self,
        address: &str,
        request: &Request,
        flags: &[&str],
        interrupt: Interrupt<'_>,
        progress: &mut dyn FnMut(&Interval),
    ) -> Result<Measurement, ExperimentError> {
        let mut arguments = measure_arguments(address, request);
        arguments.extend(
            flags
                .iter()
                .copied()
                .chain(["--json-lines"])
                .map(str::to_owned),
        );
        let client = self.lab.start_self(near_end(request), &arguments)?;
        let followed = follow_client(&client, time_for(request), interrupt, progress)?;
        let output = client.finish_within(TIMEOUT)?;
        let is_interrupted = interrupt.is_requested() || output.code == INTERRUPTED;
        match followed {
            ClientOutcome::Measured(done) if done.broken_off.is_none() || !is_interrupted => {
                Ok(*done)
            }
            // Interrupted before data flowed, it has nothing to show.
            _ if is_interrupted => Err(ExperimentError::Interrupted),
            ClientOutcome::Failed(message) => Err(ExperimentError::Measurement(message)),
            ClientOutcome::Measured(_) | ClientOutcome::Ended => {
                Err(ExperimentError::Measurement(error_sentence(&output)))
            }
        }
    }
}

/// Returns a measurement, unless it broke off.
fn require_complete(measurement: Measurement) -> Result<Measurement, ExperimentError> {
    match measurement.broken_off {
        Some(why) => Err(ExperimentError::Measurement(why)),
        None => Ok(measurement),
    }
}

/// The host that asks for the load.
const fn near_end(request: &Request) -> Host {
    match request.direction {
        Direction::Upload | Direction::Both => Host::Sender,
        Direction::Download => Host::Receiver,
    }
}

impl ExperimentTarget for LabTarget<'_> {
    fn path(&self) -> &fullpipe_record::Path {
        self.lab.path()
    }

    fn end_settings(&self) -> Result<EndSettings, ExperimentError> {
        Ok(EndSettings {
            sender: self.lab.host_settings(Host::Sender)?,
            receiver: self.lab.host_settings(Host::Receiver)?,
        })
    }

    /// A download is asked for by the receiving host, so that data always goes from sender to
    /// receiver.
    fn measure(
        &self,
        request: &Request,
        interrupt: Interrupt<'_>,
        progress: &mut dyn FnMut(&Interval),
    ) -> Result<Measurement, ExperimentError> {
        let to = self.lab.host_address(near_end(request).peer_host());
        require_complete(self.measure_to(&to.to_string(), request, interrupt, progress)?)
    }

    fn apply_changes(&self, at: At, changes: &[Change]) -> Result<(), ExperimentError> {
        match at {
            At::Sender => Ok(self.lab.apply_changes(Host::Sender, changes)?),
            At::Receiver => Ok(self.lab.apply_changes(Host::Receiver, changes)?),
            // What is neither host's to change is the load's, which the loop asks for itself.
            At::Path | At::Middlebox | At::None => Ok(()),
        }
    }

    fn undo_changes(&self) -> Result<(), ExperimentError> {
        for host in Host::ALL {
            self.lab.undo_changes(host)?;
        }
        Ok(())
    }
}

/// The end of a measuring program's output.
enum ClientOutcome {
    Measured(Box<Measurement>),
    Failed(String),
    Ended,
}

/// The longest that a measurement may take: the load itself, and every wait of the protocol around
/// it.
fn time_for(request: &Request) -> Duration {
    const AROUND: Duration = Duration::from_secs(90);
    const LIMITED_BY_BYTES: Duration = Duration::from_hours(24);
    match request.bytes {
        Some(_) => LIMITED_BY_BYTES,
        None => Duration::from(request.omit + request.duration) + AROUND,
    }
}

/// Reads what the measuring program prints until it has its result, and passes an interrupt on to
/// it.
fn follow_client(
    client: &LabProgram<'_>,
    timeout: Duration,
    interrupt: Interrupt<'_>,
    progress: &mut dyn FnMut(&Interval),
) -> Result<ClientOutcome, ExperimentError> {
    let mut interrupted = false;
    let deadline = Instant::now() + timeout;
    loop {
        if interrupt.is_requested() && !interrupted {
            client.interrupt_program()?;
            interrupted = true;
        }
        let line = match client.next_line(POLL_INTERVAL) {
            OutputLine::Text(line) => line,
            OutputLine::NotYet if Instant::now() >= deadline => {
                return Ok(ClientOutcome::Failed(format!(
                    "it said nothing for {} s",
                    timeout.as_secs()
                )));
            }
            OutputLine::NotYet => continue,
            OutputLine::End => return Ok(ClientOutcome::Ended),
        };
        match client_event(&line) {
            Ok(ClientEvent::Interval(interval)) => progress(&interval),
            Ok(ClientEvent::Measurement(measurement)) => {
                return Ok(ClientOutcome::Measured(measurement));
            }
            Ok(ClientEvent::Error(report)) => return Ok(ClientOutcome::Failed(report.message)),
            Ok(ClientEvent::Other) => {}
            Err(error) => {
                return Ok(ClientOutcome::Failed(format!(
                    "it printed what is no event ({error}): {line}"
                )));
            }
        }
    }
}

/// An event of a client, as far as it matters here.
enum ClientEvent {
    Interval(Interval),
    Measurement(Box<Measurement>),
    Error(ErrorReport),
    Other,
}

/// Reads a line of `--json-lines`. Only the data of the events that matter is read: code to read
/// all of them would make up most of this crate.
fn client_event(line: &str) -> Result<ClientEvent, serde_json::Error> {
    #[derive(Deserialize)]
    struct ClientLine<'l> {
        event: &'l str,
        #[serde(borrow)]
        data: Option<&'l RawValue>,
    }
    let ClientLine { event, data } = serde_json::from_str(line)?;
    let data = data.map_or("null", RawValue::get);
    Ok(match event {
        "interval" => ClientEvent::Interval(serde_json::from_str(data)?),
        "measurement" => ClientEvent::Measurement(serde_json::from_str(data)?),
        "error" => ClientEvent::Error(serde_json::from_str(data)?),
        _ => ClientEvent::Other,
    })
}

/// Returns the error message of a program that failed.
fn error_sentence(output: &ProgramOutput) -> String {
    let said = output.stderr.trim();
    if said.is_empty() {
        format!("it ended with code {} and said nothing", output.code)
    } else {
        said.to_owned()
    }
}

#[cfg(test)]
mod tests;
