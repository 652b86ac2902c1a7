mod web;

use std::io::Write;
use std::net::IpAddr;
use std::sync::atomic::AtomicBool;

use crate::live::MeasurementPage;
use fullpipe_diagnose::diagnose;
use fullpipe_experiment::{RAMP_STEP, measure_until_sure};
use fullpipe_probe::{measure_iperf2, measure_transfer, trace_route};
use fullpipe_record::{Evidence, Framing, Interval, RouteReport};
use fullpipe_store::NewDocument;
use fullpipe_web::archive_metrics;
use jiff::Timestamp;

use super::prelude::*;
use crate::commands::capture::{CaptureArgument, with_capture};
use crate::commands::every::{local_time, parse_interval, run_repeatedly};
use crate::commands::live::{draw_measurement, pass_event};
use crate::commands::load::{MeasureLoadArguments, ServerArguments};
use crate::commands::ramp::{self, RampArgument};
use crate::commands::until_sure::UntilSureArgument;
use crate::whole_file::WholeFile;

/// Largest rate of UDP load that needs no consent of the users of the path.
const UDP_CONSENT_RATE: BitRate = BitRate::from_mbps(10);

/// Default duration of a measurement, as iperf3 has it.
const USUAL_TIME: Span = Span::from_secs(10);

/// Longest time of a test of responsiveness, in each direction.
const RPM_TIME: Span = Span::from_secs(20);

/// One measurement over TCP or UDP, and what limited it.
///
/// The server runs `fullpipe serve`, `iperf3 -s` or, with --iperf2, `iperf -s`. Flags shared with
/// iperf3 have its letters and its meaning, but for its --window, which is --buffer (-w) here.
#[derive(Debug, Args)]
#[command(mut_arg("live", |live| live.conflicts_with("iperf2")))]
pub(crate) struct MeasureArguments {
    #[command(flatten)]
    reach: ServerArguments,
    /// Capacity of the path, if known; it makes the verdict surer
    #[arg(long, value_name = "RATE", value_parser = parse_capacity, help_heading = "Path")]
    bandwidth: Option<BitRate>,
    /// Increase the load in steps: 10%..120% or 5M..60M/12
    ///
    /// Shows round-trip time and loss by load. FROM and TO are rates, or shares of the capacity:
    /// that of --bandwidth, or else what TCP moves. --time is the duration of each step.
    #[arg(
        long,
        help_heading = "Path",
        value_name = "FROM..TO[/N]",
        conflicts_with_all = ["bitrate", "bytes", "blocks", "file", "iperf2", "bidir", "capture", "until_sure"]
    )]
    ramp: Option<RampArgument>,
    /// Trace the route first (up to 5 s)
    ///
    /// Finds the routers, their round-trip times and losses, the path MTU, and changes of TCP
    /// options on the way.
    #[arg(long, conflicts_with = "ramp", help_heading = "Path")]
    route: bool,
    #[command(flatten)]
    load: MeasureLoadArguments,
    /// Measure how fast answers come under load, in round trips a minute: `https://HOST --rpm`
    ///
    /// Any server of draft-ietf-ippm-responsiveness will do, as `fullpipe serve --web` is one. Up to
    /// 16 connections fill the path, first down and then up, while requests by HTTP/2 are timed on
    /// them and on new ones. Ends when that has become stable, after --time (20 s) at the latest.
    #[arg(long, help_heading = "Path")]
    rpm: bool,
    #[command(flatten)]
    until_sure: UntilSureArgument,
    /// Measure again and again, until Ctrl-C, and keep each result: 30s, 1h
    ///
    /// One line for each run. Makes the archive if there is none. `fullpipe history` shows what
    /// changed.
    #[arg(
        long,
        value_parser = parse_interval,
        value_name = "TIME",
        conflicts_with_all = ["ramp", "json", "capture", "no_store", "file"],
        help_heading = "Archive"
    )]
    every: Option<Span>,
    /// Write the metrics of `fullpipe web` to FILE, for `node_exporter`: NAME.prom
    ///
    /// The file is replaced whole after each run.
    #[arg(
        long,
        value_name = "FILE",
        hide_short_help = true,
        conflicts_with = "ramp",
        help_heading = "Output"
    )]
    metrics: Option<PathBuf>,
    /// Send UDP faster than 10 Mbit/s without asking
    ///
    /// UDP does not give way to other traffic.
    #[arg(long, help_heading = "UDP")]
    yes: bool,
    #[command(flatten)]
    capture: CaptureArgument,
    #[command(flatten)]
    archive: KeepArguments,
    #[command(flatten)]
    output: OutputArguments,
    #[command(flatten)]
    live: LiveArgument,
}

impl RunCommand for MeasureArguments {
    fn output(&self) -> OutputChoice<'_> {
        self.output.output_choice()
    }

    fn run(&self, terminal: &Terminal) -> Result {
        let interrupts = self.live.interrupt_flags()?;
        let flag = &interrupts.flag;
        let usual = self.ramp.map_or(USUAL_TIME, |_| RAMP_STEP);
        let usual = if self.rpm { RPM_TIME } else { usual };
        let request = self.load.to_request(usual)?;
        if let Some(server) = self.reach.web_destination()? {
            return web::measure_both_ways(self, &server, &request, &interrupts, terminal);
        }
        if self.rpm {
            return Err(usage_failure(web::RPM_AND_HTTPS));
        }
        let (destination, _far_end) = self.reach.destination()?;
        if let Some(ramp) = self.ramp {
            return ramp::run_ramp_test(
                ramp,
                self.bandwidth,
                (&destination, &request),
                &|request| self.ask_consent(&destination, request),
                (self.live, &interrupts),
                terminal,
            );
        }
        self.ask_consent(&destination, &request)?;
        let Some(every) = self.every else {
            return measure_once(self, &destination, &request, &interrupts, terminal);
        };
        self.archive.require_archive()?;
        run_repeatedly(every, flag, terminal, &|| {
            measure_once(self, &destination, &request, &interrupts, terminal)
        })
    }
}

impl MeasureArguments {
    fn ask_consent(&self, destination: &Destination, request: &Request) -> Result {
        if self.yes {
            Ok(())
        } else {
            ask_consent(destination, request)
        }
    }
}

fn measure_once(
    arguments: &MeasureArguments,
    destination: &Destination,
    request: &Request,
    interrupts: &InterruptFlags,
    terminal: &Terminal,
) -> Result {
    let flag = &interrupts.flag;
    let bound = arguments.until_sure.bound(request)?;
    let route = arguments
        .route
        .then(|| show_route(destination, flag, terminal))
        .transpose()?;
    let recording = arguments.capture.of_test(destination)?;
    let picture = arguments.live.start_picture(
        || MeasurementPage::new(&destination.host, request, arguments.bandwidth),
        interrupts,
    )?;
    // One of many runs is a single line.
    let shows_rows = arguments.every.is_none();
    let progress = &mut interval_printer(request, shows_rows, terminal);
    let measured = match (&picture, bound) {
        (picture, Some(bound)) => measure_until_sure(
            destination,
            request,
            (bound, arguments.bandwidth),
            flag,
            &mut |event| pass_event(picture.as_ref(), event, progress),
        ),
        (Some(picture), None) => {
            draw_measurement(picture, destination, request, interrupts, progress)
        }
        (None, None) if arguments.reach.is_iperf2() => {
            measure_iperf2(destination, request, flag, progress)
        }
        (None, None) => measure_transfer(destination, request, flag, progress),
    };
    drop(picture);
    let measurement = Measurement { route, ..measured? };
    let measurement = if arguments.reach.is_through_ssh() {
        with_warning_of_ssh(measurement)
    } else {
        judge_measurement(measurement, arguments.bandwidth)
    };
    finish_measurement(
        with_capture(measurement, recording, arguments.bandwidth),
        None,
        arguments,
        terminal,
    )
}

fn show_route(
    destination: &Destination,
    flag: &AtomicBool,
    terminal: &Terminal,
) -> Result<RouteReport> {
    let route = trace_route(destination, flag)?;
    terminal.print_result(&report::route_text(&route));
    terminal.print_event(&Event::Route(Box::new(route.clone())));
    Ok(route)
}

/// Returns the function that prints each interval of a measurement, as a row of a table too if
/// `shows_rows`.
pub(super) fn interval_printer(
    request: &Request,
    shows_rows: bool,
    terminal: &Terminal,
) -> impl FnMut(&Interval) {
    let mut head = Some(report::interval_head(request)).filter(|_| shows_rows);
    move |interval| {
        if let Some(head) = head.take() {
            terminal.print_progress(&format!("{head}\n"));
        }
        if shows_rows {
            let line = report::interval_line(request, interval);
            terminal.print_progress(&format!("{line}\n"));
        }
        terminal.print_event(&Event::Interval(Box::new(interval.clone())));
    }
}

/// Returns a measurement on which depends what follows, unless it was cut short. `before` names
/// what follows, and `what` the measurement.
pub(super) fn require_whole(
    measured: Measurement,
    before: &str,
    what: &str,
) -> Result<Measurement> {
    if measured.interrupted {
        let message = format!("interrupted before {before}");
        return Err(Failure::new(INTERRUPTED, message));
    }
    match measured.broken_off {
        Some(why) => Err(run_failure(format!("{what} broke off: {why}"))),
        None => Ok(measured),
    }
}

/// Returns the UDP load of a request in words, if it is so much that it displaces other traffic.
pub(super) fn displacing_udp(request: &Request) -> Option<String> {
    if request.transport == Transport::Tcp {
        return None;
    }
    match request
        .rate
        .map(|rate| rate.scale_by(request.streams.into()))
    {
        Some(rate) if rate <= UDP_CONSENT_RATE => None,
        Some(rate) => Some(format!("{rate} of UDP")),
        None => Some("UDP as fast as it goes".to_owned()),
    }
}

/// Asks for consent before UDP load that displaces other traffic leaves this host.
pub(super) fn ask_consent(destination: &Destination, request: &Request) -> Result {
    let Some(offered) = displacing_udp(request).filter(|_| !stays_here(&destination.host)) else {
        return Ok(());
    };
    let warning = format!(
        "{offered} does not give way to other traffic: on a path that others use it can starve them, and it is lost \
         where the path carries less"
    );
    let question = format!("{warning}. Send it? [y/N] ");
    ask_question(&question, &format!("{warning}; add --yes if you mean it"))
}

/// Asks `question`; where nobody can be asked, the sentence is `refusal`.
pub(super) fn ask_question(question: &str, refusal: &str) -> Result {
    match Terminal::ask_user(question) {
        Some(answer) if answer.trim().eq_ignore_ascii_case("y") => Ok(()),
        Some(_) => Err(usage_failure("nothing was sent")),
        None => Err(usage_failure(refusal)),
    }
}

pub(super) fn stays_here(host: &str) -> bool {
    host == "localhost"
        || host
            .parse::<IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

/// Returns the measurement with its limit. Datagrams at a given rate have no window, and no limit
/// but that rate.
fn judge_measurement(measurement: Measurement, bandwidth: Option<BitRate>) -> Measurement {
    if measurement.request.transport == Transport::Udp {
        return measurement;
    }
    let verdict = diagnose(&Evidence::from_measurement(
        &measurement,
        bandwidth,
        Framing::Ethernet,
    ));
    Measurement {
        limit: Some(verdict),
        ..measurement
    }
}

/// Returns the measurement with a warning that its data went through ssh.
fn with_warning_of_ssh(mut measurement: Measurement) -> Measurement {
    measurement.warnings.push(
        "the data went through ssh: the rate is that of its channels, whose windows and cipher may hold it below what \
         the path carries, and round trips are those between programs of this host"
            .to_owned(),
    );
    measurement
}

/// Prints what there is, also of a test that broke off, and of the one that followed, if there was
/// one.
fn finish_measurement(
    measurement: Measurement,
    followed_by: Option<Measurement>,
    arguments: &MeasureArguments,
    terminal: &Terminal,
) -> Result {
    let last = followed_by.as_ref().unwrap_or(&measurement);
    let interrupted = last.interrupted;
    let is_valid = measurement.validity.is_valid() && last.validity.is_valid();
    let exit_code = if interrupted { INTERRUPTED } else { FAILED };
    let error = [&measurement, last]
        .into_iter()
        .find_map(|measured| measured.broken_off.clone())
        .map(|message| ErrorReport { message, exit_code });
    let is_repeated = arguments.every.is_some();
    for measured in std::iter::once(&measurement).chain(&followed_by) {
        terminal.print_result(&if is_repeated {
            report::measurement_line(measured, &local_time(&measured.started))
        } else {
            report::measurement_text(measured)
        });
        terminal.print_event(&Event::Measurement(Box::new(measured.clone())));
    }
    let content = Content::Measurement {
        measurement: Box::new(measurement),
        path: None,
        completion: None,
        followed_by: followed_by.map(Box::new),
    };
    let document = terminal.print_report(content, error.as_ref());
    if is_repeated {
        arguments.archive.keep_as_asked(&document, terminal);
    } else {
        arguments.archive.keep_document(&document, terminal);
    }
    if let Some(file) = &arguments.metrics {
        write_metrics(file, &document)?;
    }
    Failure::after_report(error.as_ref(), interrupted, is_valid)
}

/// Writes the metrics of a run, as the collector of text files of `node_exporter` reads them.
fn write_metrics(file: &Path, document: &Document) -> Result {
    let now = Timestamp::now();
    let documents = NewDocument::from_document(document, now);
    let heads: Vec<_> = documents.into_iter().map(|kept| kept.head).collect();
    let written = WholeFile::create(file).and_then(|mut whole| {
        whole
            .file
            .write_all(archive_metrics(&heads, now).as_bytes())?;
        whole.rename_into_place()
    });
    written.map_err(cannot(&format!("write {}", file.display())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use crate::commands::Command;
    use clap::Parser;
    use fullpipe_experiment::measure_arguments;
    use fullpipe_record::{Buffer, Direction};
    use fullpipe_units::{ByteCount, Span};

    fn read_back(request: &Request) -> Request {
        let arguments =
            std::iter::once("fullpipe".to_owned()).chain(measure_arguments("host", request));
        match Cli::try_parse_from(arguments).unwrap().command {
            Command::Measure(arguments) => arguments.load.to_request(USUAL_TIME).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_lab_asks_for_exactly_what_was_asked_of_it() {
        let window = Request {
            direction: Direction::Download,
            duration: Span::from_millis(2_500),
            bytes: Some(ByteCount::new(5)),
            buffer: Buffer::Window(ByteCount::from_kib(64)),
            congestion: Some("reno".to_owned()),
            title: Some("a \"title\"".to_owned()),
            ..Request::default()
        };
        let flood = Request {
            transport: Transport::Udp,
            block: ByteCount::ZERO,
            offload: true,
            ..Request::default()
        };
        for request in [Request::default(), window, flood] {
            assert_eq!(read_back(&request), request);
        }
    }
}
