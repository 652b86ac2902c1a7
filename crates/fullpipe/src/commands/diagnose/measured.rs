//! A transfer of our own, judged; and a remedy tried out.

use fullpipe_diagnose::diagnose;
use fullpipe_experiment::{FarEnd, OwnPart, measure_until_sure, ranked_remedies};
use fullpipe_host::defects_behind;
use fullpipe_probe::{measure_iperf2, measure_transfer};
use fullpipe_record::{
    At, Diagnosis, DiagnosisReport, Evidence, Framing, Remedy, SureBound, Trial,
};

use super::DiagnoseArguments;
use crate::commands::capture::with_capture;
use crate::commands::handed_over::kernels;
use crate::commands::live::pass_event;
use crate::commands::load::ServerAddress;
use crate::commands::measure::interval_printer;
use crate::commands::prelude::*;

/// Default duration of a measurement, as iperf3 has it.
const USUAL_TIME: Span = Span::from_secs(10);

pub(super) fn run(
    arguments: &DiagnoseArguments,
    host: &ServerAddress,
    terminal: &Terminal,
) -> Result {
    let request = arguments.load.to_request(USUAL_TIME)?;
    if request.transport == Transport::Udp {
        let message = "datagrams have no window and no limit but the rate that was asked for; leave out --udp, or use \
                       `fullpipe measure --udp`";
        return Err(usage_failure(message));
    }
    let bound = arguments.until_sure.bound(&request)?;
    let flag = super::super::interrupt_flag()?;
    let (destination, far_end) = arguments.way.destination(host)?;
    let bench = MeasurementSetup {
        destination,
        far_end,
        is_iperf2: arguments.way.is_iperf2(),
        sure: bound.map(|bound| (bound, arguments.bandwidth)),
        flag: &flag,
        terminal,
    };
    let recording = arguments.capture.of_test(&bench.destination)?;
    let (measurement, diagnosis) =
        diagnose_measurement(bench.measure_request(&request)?, arguments.bandwidth);
    let measurement = with_capture(measurement, recording, arguments.bandwidth);
    print_limit(&measurement, &diagnosis, terminal);
    let out = (&arguments.archive, terminal);
    let trial = match &arguments.apply {
        Some(wanted) if is_whole(&measurement) => {
            let remedy = choose_remedy(&diagnosis.remedies, wanted);
            let load = (&request, &diagnosis.remedies[..]);
            match remedy.and_then(|remedy| bench.try_remedy(remedy, load, &measurement, arguments))
            {
                Ok(trial) => Some(trial),
                Err(failure) => {
                    return Err(with_what_there_is(measurement, diagnosis, failure, out));
                }
            }
        }
        _ => None,
    };
    finish_diagnosis(measurement, diagnosis, trial, out)
}

/// Prints the limit that was found, and that of the capture if there is one.
fn print_limit(measurement: &Measurement, diagnosis: &Diagnosis, terminal: &Terminal) {
    let rate = measurement.summary.steady_or_mean_rate();
    terminal.print_progress(&report::measurement_figures(measurement));
    terminal.print_event(&Event::Measurement(Box::new(measurement.clone())));
    terminal.print_result(&report::diagnosis_text(diagnosis, rate));
    if let Some(capture) = &measurement.capture {
        terminal.print_result(&report::own_capture(capture));
    }
}

/// Settings of a measurement, without its load.
struct MeasurementSetup<'b> {
    destination: Destination,
    /// The far end, if it was started for this command.
    far_end: Option<FarEnd>,
    is_iperf2: bool,
    /// How sure the result must be for its test to end, and the bandwidth that is stated.
    sure: Option<(SureBound, Option<BitRate>)>,
    flag: &'b AtomicBool,
    terminal: &'b Terminal,
}

impl MeasurementSetup<'_> {
    fn measure_request(&self, request: &Request) -> Result<Measurement> {
        let progress = &mut interval_printer(request, true, self.terminal);
        let (destination, flag) = (&self.destination, self.flag);
        let measured = match self.sure {
            Some(sure) => measure_until_sure(destination, request, sure, flag, &mut |event| {
                pass_event(None, event, progress);
            }),
            None if self.is_iperf2 => measure_iperf2(destination, request, flag, progress),
            None => measure_transfer(destination, request, flag, progress),
        };
        Ok(measured?)
    }

    /// Tries a remedy.
    ///
    /// # Errors
    /// Fails if it is for another end that is not ours as well, or for a person, and if the
    /// measurement fails.
    fn try_remedy(
        &self,
        remedy: &Remedy,
        (request, remedies): (&Request, &[Remedy]),
        before: &Measurement,
        arguments: &DiagnoseArguments,
    ) -> Result<Trial> {
        let here = this_end(request);
        let own = before.local.settings.as_ref();
        let part = OwnPart::from_remedy(remedy, here, request, own);
        if part.needs_other_end && self.far_end.is_none() {
            let others = remedies
                .iter()
                .filter(|other| OwnPart::from_remedy(other, here, request, own).is_for_here());
            let others: Vec<&str> = others.map(|other| other.id.as_str()).collect();
            return Err(for_other_end(remedy, here, &self.destination.host, &others));
        }
        if !part.does_something && !part.needs_other_end {
            return Err(run_failure(nothing_to_apply(remedy)));
        }
        self.terminal.print_progress("\n");
        let (measurement, not_undone) = part.try_out(
            arguments.keep,
            &arguments.journal.watched()?,
            self.far_end.as_ref(),
            |request| self.measure_request(request),
        )?;
        let (measurement, _) = diagnose_measurement(measurement, arguments.bandwidth);
        self.terminal
            .print_event(&Event::Measurement(Box::new(measurement.clone())));
        let trial = Trial {
            remedy: remedy.id.clone(),
            predicted: remedy.predicted,
            predicted_rtt: remedy.rtt,
            before: before.summary.steady_or_mean_rate(),
            measured: measurement.summary.steady_or_mean_rate(),
            measurement,
            kept: arguments.keep,
            not_undone,
        };
        self.terminal.print_result(&report::trial_text(&trial));
        Ok(trial)
    }
}

/// Returns why a remedy that changes nothing at this end cannot be tried.
fn nothing_to_apply(remedy: &Remedy) -> String {
    let why = remedy.why.trim_end_matches('.');
    match remedy.id.as_str() {
        "none" => format!("there is nothing to apply: {why}"),
        id => format!("{id} cannot be carried out here, because it is for a person to do: {why}"),
    }
}

/// Returns why a remedy that changes the other end cannot be tried from here, and how to go on;
/// `others` can.
fn for_other_end(remedy: &Remedy, here: At, host: &str, others: &[&str]) -> Failure {
    let end = if here == At::Sender {
        "receiver"
    } else {
        "sender"
    };
    let commands = report::commands_elsewhere(remedy, here).join("; ");
    let done = if commands.is_empty() {
        "change it there".to_owned()
    } else {
        format!("run `{commands}` there")
    };
    let instead = match others {
        [] => String::new(),
        others => format!(", or --apply {} here", others.join(" or ")),
    };
    let message = format!(
        "{} changes the other end, the {end} {host}, which cannot be done from here: {done} and diagnose \
         again{instead}",
        remedy.id
    );
    Failure::new(LACKING, message)
}

/// The remedy of this number, counted from one, or of this name.
fn choose_remedy<'r>(remedies: &'r [Remedy], wanted: &str) -> Result<&'r Remedy> {
    let by_number = wanted
        .parse::<usize>()
        .ok()
        .and_then(|number| remedies.get(number.checked_sub(1)?));
    let found = by_number.or_else(|| remedies.iter().find(|remedy| remedy.id == wanted));
    found.ok_or_else(|| {
        let names: Vec<&str> = remedies.iter().map(|remedy| remedy.id.as_str()).collect();
        let there_are = if names.is_empty() {
            "there are none".to_owned()
        } else {
            format!("there are {}", names.join(", "))
        };
        usage_failure(format!(
            "--apply {wanted} is no remedy of this transfer; {there_are}"
        ))
    })
}

/// Returns the end at which this program runs. If data goes both ways, the upload is judged.
const fn this_end(request: &Request) -> At {
    match request.direction {
        Direction::Upload | Direction::Both => At::Sender,
        Direction::Download => At::Receiver,
    }
}

fn diagnose_measurement(
    measurement: Measurement,
    bandwidth: Option<BitRate>,
) -> (Measurement, Diagnosis) {
    let evidence = Evidence::from_measurement(&measurement, bandwidth, Framing::Ethernet);
    let verdict = diagnose(&evidence);
    let remedies = ranked_remedies(&evidence, &verdict);
    let measurement = Measurement {
        limit: Some(verdict.clone()),
        ..measurement
    };
    let defects = defects_behind(&verdict, kernels(&evidence));
    (
        measurement,
        Diagnosis {
            transfer: None,
            verdict,
            remedies,
            defects,
            next: Vec::new(),
            evidence: None,
        },
    )
}

fn is_whole(measurement: &Measurement) -> bool {
    !measurement.interrupted && measurement.broken_off.is_none()
}

/// The archive and the terminal that get the result.
type Out<'o> = (&'o KeepArguments, &'o Terminal);

/// Prints what there is, also of a test that broke off.
fn finish_diagnosis(
    measurement: Measurement,
    diagnosis: Diagnosis,
    trial: Option<Trial>,
    out: Out<'_>,
) -> Result {
    let last = trial
        .as_ref()
        .map_or(&measurement, |trial| &trial.measurement);
    let exit_code = if last.interrupted {
        INTERRUPTED
    } else {
        FAILED
    };
    let not_undone = trial.as_ref().and_then(|trial| trial.not_undone.clone());
    let message = last.broken_off.clone().or(not_undone);
    let (interrupted, is_valid) = (
        last.interrupted,
        last.validity.is_valid() && measurement.validity.is_valid(),
    );
    let error = message.map(|message| ErrorReport { message, exit_code });
    let report = measured_report(diagnosis, trial);
    print_diagnosis(Some(measurement), report, error.as_ref(), out);
    Failure::after_report(error.as_ref(), interrupted, is_valid)
}

/// Prints the diagnosis, which is valid although the remedy could not be tried.
fn with_what_there_is(
    measurement: Measurement,
    diagnosis: Diagnosis,
    failure: Failure,
    out: Out<'_>,
) -> Failure {
    let error = ErrorReport::from(failure);
    let report = measured_report(diagnosis, None);
    print_diagnosis(Some(measurement), report, Some(&error), out);
    Failure::already_printed(error.exit_code)
}

fn measured_report(diagnosis: Diagnosis, trial: Option<Trial>) -> DiagnosisReport {
    DiagnosisReport {
        transfers: vec![diagnosis],
        completion: None,
        trial,
        ..DiagnosisReport::default()
    }
}

pub(super) fn print_diagnosis(
    measurement: Option<Measurement>,
    report: DiagnosisReport,
    error: Option<&ErrorReport>,
    (keep, terminal): Out<'_>,
) {
    let diagnosis = Box::new(report);
    terminal.print_event(&Event::Diagnosis(diagnosis.clone()));
    let content = Content::Diagnosis {
        measurement: measurement.map(Box::new),
        diagnosis,
    };
    let document = terminal.print_report(content, error);
    keep.keep_document(&document, terminal);
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_record::{Commands, Scope};

    fn remedy(id: &str) -> Remedy {
        Remedy {
            id: id.to_owned(),
            scope: Scope::Socket,
            at: At::Sender,
            changes: Vec::new(),
            commands: Commands::default(),
            predicted: None,
            rtt: None,
            command_time: None,
            why: "The pipe is full.".to_owned(),
        }
    }

    /// The message was "none cannot be carried out here: it is for a person to do".
    #[test]
    fn a_full_link_has_nothing_to_apply() {
        assert_eq!(
            nothing_to_apply(&remedy("none")),
            "there is nothing to apply: The pipe is full"
        );
        assert!(nothing_to_apply(&remedy("share")).starts_with("share cannot be carried out here"));
    }

    #[test]
    fn a_remedy_is_chosen_by_number_or_name() {
        let remedies = [remedy("raise-tcp-wmem"), remedy("parallel-streams")];
        for (wanted, id) in [
            ("1", "raise-tcp-wmem"),
            ("2", "parallel-streams"),
            ("parallel-streams", "parallel-streams"),
        ] {
            assert_eq!(choose_remedy(&remedies, wanted).unwrap().id, id);
        }
        for wanted in ["0", "3", "-1", "", "nosuch"] {
            let failure = choose_remedy(&remedies, wanted).unwrap_err();
            assert_eq!(failure.code, USAGE);
            assert!(
                failure.message.contains("raise-tcp-wmem, parallel-streams"),
                "{}",
                failure.message
            );
        }
        assert!(
            choose_remedy(&[], "1")
                .unwrap_err()
                .message
                .contains("there are none")
        );
    }
}
