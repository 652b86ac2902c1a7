use fullpipe_diagnose::diagnose;
use fullpipe_experiment::MeasureEvent;
use fullpipe_iperf::DEFAULT_PORT;
use fullpipe_probe::{Destination, measure};
use fullpipe_record::{Buffer, Direction, Document, ErrorReport, Evidence, Framing, Measurement, Request, Writer};
use fullpipe_report as report;
use fullpipe_units::{BitRate, ByteCount, Span};

use crate::cli::duration;
use crate::failure::{FAILED, Failure, INTERRUPTED};
use crate::terminal::Terminal;

/// Measures once, over TCP, and says what limited it. Flags shared with iperf3 have its letters and its meaning.
#[derive(Debug, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub(crate) struct Arguments {
    /// Host that runs `fullpipe serve` or `iperf3 -s`
    host: String,
    /// Port of the server
    #[arg(long, short, default_value_t = DEFAULT_PORT)]
    port: u16,
    /// How long to send
    #[arg(long, short, default_value = "10", value_parser = duration, value_name = "SECONDS")]
    time: Span,
    /// Send so many bytes instead
    #[arg(long, short = 'n', value_name = "BYTES", conflicts_with = "time")]
    bytes: Option<ByteCount>,
    /// Leave out the beginning
    #[arg(long, short = 'O', default_value = "0", value_parser = duration, value_name = "SECONDS")]
    omit: Span,
    /// Length of the reported intervals
    #[arg(long, short, default_value = "1", value_parser = duration, value_name = "SECONDS")]
    interval: Span,
    /// Parallel connections
    #[arg(long, short = 'P', default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=128), value_name = "N")]
    parallel: u16,
    /// The server sends, this end receives
    #[arg(long, short = 'R')]
    reverse: bool,
    /// Socket buffers to request at both ends; the kernel doubles them and advertises a share
    #[arg(long = "buffer", short = 'w', value_name = "BYTES")]
    buffer: Option<ByteCount>,
    /// Window that the receiver should advertise; the buffers are chosen to yield it
    #[arg(long, value_name = "BYTES", conflicts_with = "buffer")]
    window: Option<ByteCount>,
    /// Bytes of one write
    #[arg(long, short, default_value = "128K", value_name = "BYTES")]
    length: ByteCount,
    /// Congestion control: cubic, reno, bbr, …
    #[arg(long, short = 'C', value_name = "NAME")]
    congestion: Option<String>,
    /// Largest segment
    #[arg(long, short = 'M', value_name = "BYTES")]
    mss: Option<ByteCount>,
    /// Sleep in a blocked write, as ordinary programs do, instead of keeping the send buffer full
    #[arg(long, conflicts_with = "reverse")]
    blocking: bool,
    /// What the path can carry, if you know it: the verdict then need not guess
    #[arg(long, value_name = "RATE")]
    bandwidth: Option<BitRate>,
    /// Print one JSON document
    #[arg(long, short = 'J')]
    pub(crate) json: bool,
    /// Print one JSON object a line, as things happen
    #[arg(long, conflicts_with = "json")]
    pub(crate) json_lines: bool,
}

impl Arguments {
    fn request(&self) -> Request {
        let buffer = match (self.buffer, self.window) {
            (Some(size), _) => Buffer::Request(size),
            (None, Some(size)) => Buffer::Window(size),
            (None, None) => Buffer::Automatic,
        };
        Request {
            direction: if self.reverse { Direction::Download } else { Direction::Upload },
            streams: self.parallel,
            duration: self.time,
            omit: self.omit,
            bytes: self.bytes,
            block: self.length,
            buffer,
            congestion: self.congestion.clone(),
            mss: self.mss,
            writer: if self.blocking { Writer::Blocking } else { Writer::Retrying },
            interval: self.interval,
        }
    }
}

pub(crate) fn run(arguments: &Arguments, terminal: &Terminal) -> Result<(), Failure> {
    let flag = super::interrupt_flag()?;
    let destination = Destination { host: arguments.host.clone(), port: arguments.port };
    let style = terminal.style();
    let mut head = Some(report::interval_head(style));
    let measured = measure(&destination, &arguments.request(), &flag, &mut |interval| {
        if let Some(head) = head.take() {
            terminal.progress(&format!("{head}\n"));
        }
        terminal.progress(&format!("{}\n", report::interval_line(interval, style)));
        terminal.event(&MeasureEvent::Interval(interval.clone()));
    });
    finish(judged(measured?, arguments.bandwidth), terminal)
}

fn judged(measurement: Measurement, bandwidth: Option<BitRate>) -> Measurement {
    let verdict = diagnose(&Evidence::of(&measurement, bandwidth, Framing::Ethernet));
    Measurement { limit: Some(verdict), ..measurement }
}

/// Prints what there is, also of a test that broke off.
fn finish(measurement: Measurement, terminal: &Terminal) -> Result<(), Failure> {
    let interrupted = measurement.interrupted;
    let exit_code = if interrupted { INTERRUPTED } else { FAILED };
    let error = measurement.broken_off.clone().map(|message| ErrorReport { message, exit_code });
    terminal.result(&report::measurement(&measurement, terminal.style()));
    terminal.event(&MeasureEvent::Measurement(Box::new(measurement.clone())));
    if let Some(error) = &error {
        Terminal::complain(&error.message);
    }
    terminal.document(&Document { measurement: Some(measurement), error: error.clone(), ..Document::new() });
    match (error, interrupted) {
        (Some(error), _) => Err(Failure::told(error.exit_code)),
        (None, true) => Err(Failure::told(INTERRUPTED)),
        (None, false) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use clap::Parser;
    use fullpipe_experiment::measure_arguments;

    fn read_back(request: &Request) -> Request {
        let arguments = std::iter::once("fullpipe".to_owned()).chain(measure_arguments("host", request));
        match Cli::try_parse_from(arguments).unwrap().command {
            Command::Measure(arguments) => arguments.request(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_lab_asks_for_exactly_what_was_asked_of_it() {
        let plain = Request::default();
        let full = Request {
            direction: Direction::Download,
            streams: 4,
            duration: Span::from_millis(2_500),
            omit: Span::from_secs(1),
            bytes: None,
            block: ByteCount::new(1460),
            buffer: Buffer::Window(ByteCount::from_kib(64)),
            congestion: Some("reno".to_owned()),
            mss: Some(ByteCount::new(1000)),
            writer: Writer::Retrying,
            interval: Span::from_millis(100),
        };
        let some_bytes =
            Request { bytes: Some(ByteCount::from_mib(10)), writer: Writer::Blocking, ..Request::default() };
        let buffer = Request { buffer: Buffer::Request(ByteCount::new(50_000)), ..Request::default() };
        for request in [plain, full, some_bytes, buffer] {
            assert_eq!(read_back(&request), request);
        }
    }
}
