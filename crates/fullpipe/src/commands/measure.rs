use std::net::IpAddr;
use std::path::Path;

use fullpipe_diagnose::diagnose;
use fullpipe_experiment::RAMP_STEP;
use fullpipe_live::MeasurementPage;
use fullpipe_probe::{Destination, measure, measure_iperf2, trace};
use fullpipe_record::{
    Content, Document, ErrorReport, Event, Evidence, Framing, Interval, Measurement, Request, Transport,
};
use fullpipe_report as report;
use fullpipe_units::{BitRate, Span};

use crate::commands::Run;
use crate::commands::capture::{CaptureArgument, with_capture};
use crate::commands::every::{interval, local_time, repeat};
use crate::commands::keep::KeepArguments;
use crate::commands::live::{Interrupts, LiveArgument, draw};
use crate::commands::load::{Load, Reach};
use crate::commands::output::OutputArguments;
use crate::commands::ramp::{self, RampArgument};
use crate::failure::{FAILED, Failure, INTERRUPTED, USAGE};
use crate::terminal::{Format, Terminal};
use crate::values::capacity;

/// Largest rate of UDP load that needs no consent of the users of the path.
const UDP_CONSENT_RATE: BitRate = BitRate::from_mbps(10);

/// Default duration of a measurement, as iperf3 has it.
const USUAL_TIME: Span = Span::from_secs(10);

/// One measurement over TCP or UDP, and what limited it.
///
/// The server runs `fullpipe serve`, `iperf3 -s` or, with --iperf2, `iperf -s`. Flags shared with iperf3 have its
/// letters and its meaning, but for its --window, which is --buffer (-w) here.
#[derive(Debug, clap::Args)]
#[command(mut_arg("live", |live| live.conflicts_with("iperf2")))]
pub(crate) struct Arguments {
    #[command(flatten)]
    reach: Reach,
    /// Capacity of the path, if known; it makes the verdict surer
    #[arg(long, value_name = "RATE", value_parser = capacity, help_heading = "Path")]
    bandwidth: Option<BitRate>,
    /// Increase the load in steps: 10%..120% or 5M..60M/12
    ///
    /// Shows round-trip time and loss by load. FROM and TO are rates, or shares of the capacity: that of --bandwidth,
    /// or else what TCP moves. --time is the duration of each step.
    #[arg(
        long,
        help_heading = "Path",
        value_name = "FROM..TO[/N]",
        conflicts_with_all = ["bitrate", "bytes", "blocks", "file", "iperf2", "bidir", "capture"]
    )]
    ramp: Option<RampArgument>,
    /// Trace the route first (up to 5 s)
    ///
    /// Finds the routers, their round-trip times and losses, the path MTU, and changes of TCP options on the way.
    #[arg(long, conflicts_with = "ramp", help_heading = "Path")]
    route: bool,
    #[command(flatten)]
    load: Load,
    /// Measure again and again, until Ctrl-C, and keep each result: 30s, 1h
    ///
    /// One line for each run. Makes the archive if there is none. `fullpipe history` shows what changed.
    #[arg(
        long,
        value_parser = interval,
        value_name = "TIME",
        conflicts_with_all = ["ramp", "json", "capture", "no_store", "file"],
        help_heading = "Archive"
    )]
    every: Option<Span>,
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

impl Run for Arguments {
    fn format(&self) -> Format {
        self.output.format()
    }

    fn page(&self) -> Option<&Path> {
        self.output.page()
    }

    fn run(&self, terminal: &Terminal) -> Result<(), Failure> {
        run(self, terminal)
    }
}

fn run(arguments: &Arguments, terminal: &Terminal) -> Result<(), Failure> {
    let interrupts = arguments.live.interrupts()?;
    let flag = &interrupts.flag;
    let usual = if arguments.ramp.is_some() { RAMP_STEP } else { USUAL_TIME };
    let (destination, request) = (arguments.reach.destination()?, arguments.load.request(usual)?);
    let consent = |request: &Request| if arguments.yes { Ok(()) } else { consent(&destination, request) };
    if let Some(ramp) = arguments.ramp {
        let live = (arguments.live, &interrupts);
        return ramp::run(ramp, arguments.bandwidth, (&destination, &request), &consent, live, terminal);
    }
    consent(&request)?;
    let Some(every) = arguments.every else {
        return measure_once(arguments, &destination, &request, &interrupts, terminal);
    };
    arguments.archive.require()?;
    repeat(every, flag, terminal, &|| measure_once(arguments, &destination, &request, &interrupts, terminal))
}

fn measure_once(
    arguments: &Arguments,
    destination: &Destination,
    request: &Request,
    interrupts: &Interrupts,
    terminal: &Terminal,
) -> Result<(), Failure> {
    let (style, flag) = (terminal.style(), &interrupts.flag);
    let route = arguments.route.then(|| trace(destination, flag)).transpose()?;
    if let Some(route) = &route {
        terminal.result(&report::route(route, style));
        terminal.event(&Event::Route(Box::new(route.clone())));
    }
    let recording = arguments.capture.of_test(destination)?;
    let mut head = Some(report::interval_head(request, style));
    let page = || MeasurementPage::new(&destination.host, request, arguments.bandwidth);
    let picture = arguments.live.start(page, interrupts)?;
    let mut progress = |interval: &Interval| {
        // One of many runs is a single line.
        if arguments.every.is_none() {
            if let Some(head) = head.take() {
                terminal.progress(&format!("{head}\n"));
            }
            terminal.progress(&format!("{}\n", report::interval_line(request, interval, style)));
        }
        terminal.event(&Event::Interval(Box::new(interval.clone())));
    };
    let measured = match picture {
        Some(picture) => draw(&picture, destination, request, interrupts, &mut progress),
        None if arguments.reach.is_iperf2() => measure_iperf2(destination, request, flag, &mut progress),
        None => measure(destination, request, flag, &mut progress),
    };
    let measurement = judged(Measurement { route, ..measured? }, arguments.bandwidth);
    finish(with_capture(measurement, recording, arguments.bandwidth), arguments, terminal)
}

/// Asks for consent before UDP load that displaces other traffic leaves this host.
pub(super) fn consent(destination: &Destination, request: &Request) -> Result<(), Failure> {
    let offered = request.rate.map(|rate| rate.scaled(f64::from(request.streams)));
    let harmless = request.transport == Transport::Tcp
        || offered.is_some_and(|rate| rate <= UDP_CONSENT_RATE)
        || stays_here(&destination.host);
    if harmless {
        return Ok(());
    }
    let offered = offered.map_or_else(|| "UDP as fast as it goes".to_owned(), |rate| format!("{rate} of UDP"));
    let warning = format!(
        "{offered} does not give way to other traffic: on a path that others use it can starve them, and it is lost \
         where the path carries less"
    );
    let question = format!("{warning}. Send it? [y/N] ");
    ask(&question, &warning)
}

/// Asks `question`; where no user can be asked, the refusal begins with `warning`.
pub(super) fn ask(question: &str, warning: &str) -> Result<(), Failure> {
    match Terminal::ask(question) {
        Some(answer) if answer.trim().eq_ignore_ascii_case("y") => Ok(()),
        Some(_) => Err(Failure::new(USAGE, "nothing was sent")),
        None => Err(Failure::new(USAGE, format!("{warning}; add --yes if you mean it"))),
    }
}

pub(super) fn stays_here(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Returns the measurement with its limit. Datagrams at a given rate have no window, and no limit but that rate.
fn judged(measurement: Measurement, bandwidth: Option<BitRate>) -> Measurement {
    if measurement.request.transport == Transport::Udp {
        return measurement;
    }
    let verdict = diagnose(&Evidence::of(&measurement, bandwidth, Framing::Ethernet));
    Measurement { limit: Some(verdict), ..measurement }
}

/// Prints what there is, also of a test that broke off.
fn finish(measurement: Measurement, arguments: &Arguments, terminal: &Terminal) -> Result<(), Failure> {
    let (interrupted, is_valid) = (measurement.interrupted, measurement.validity.is_valid());
    let exit_code = if interrupted { INTERRUPTED } else { FAILED };
    let error = measurement.broken_off.clone().map(|message| ErrorReport { message, exit_code });
    let is_repeated = arguments.every.is_some();
    terminal.result(&if is_repeated {
        report::measurement_line(&measurement, &local_time(&measurement.started))
    } else {
        report::measurement(&measurement, terminal.style())
    });
    terminal.event(&Event::Measurement(Box::new(measurement.clone())));
    if let Some(error) = &error {
        Terminal::print_error(&error.message);
    }
    let content = Content::Measurement { measurement: Box::new(measurement), path: None };
    if let Some(error) = &error {
        terminal.event(&Event::Error(error.clone()));
    }
    let document = Document::new(content).with_error(error.clone());
    terminal.document(&document);
    if is_repeated {
        arguments.archive.keep_as_asked(&document, terminal);
    } else {
        arguments.archive.keep(&document, terminal);
    }
    match (error, interrupted) {
        (Some(error), _) => Err(Failure::already_printed(error.exit_code)),
        (None, true) => Err(Failure::already_printed(INTERRUPTED)),
        (None, false) if !is_valid => Err(Failure::already_printed(FAILED)),
        (None, false) => Ok(()),
    }
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
        let arguments = std::iter::once("fullpipe".to_owned()).chain(measure_arguments("host", request));
        match Cli::try_parse_from(arguments).unwrap().command {
            Command::Measure(arguments) => arguments.load.request(USUAL_TIME).unwrap(),
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
        let flood = Request { transport: Transport::Udp, block: ByteCount::ZERO, offload: true, ..Request::default() };
        for request in [Request::default(), window, flood] {
            assert_eq!(read_back(&request), request);
        }
    }
}
