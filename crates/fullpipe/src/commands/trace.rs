//! `fullpipe trace`: the connections in a capture.

cfg_if::cfg_if! {
    if #[cfg(target_os = "linux")] {
        mod device;
        mod pipe;
    } else {
        use super::elsewhere::{device, pipe};
    }
}

use std::fs::{self, File};
use std::io::{self, Cursor, Read};

use clap::ArgGroup;
use fullpipe_experiment::{KnownFacts, judge_capture, judge_captures};
use fullpipe_host::settings_of;
use fullpipe_record::{CaptureReport, HostSettings};
use fullpipe_trace::{
    CaptureContent, CaptureError, CaptureUse, ExplainedTransfers, PacketFile, RedactedWriter,
    read_flows, read_flows_with,
};
use fullpipe_units::Shard;

use self::device::open_device;
use self::pipe::CapturePipe;
use super::prelude::*;
use crate::values::some_time;

/// Number of connections that are listed.
const USUAL_CONNECTIONS: usize = 10;

/// The TCP connections in a capture, and what limited the largest.
///
/// Reads pcap and pcapng files, compressed or not, and lists what each connection moved, what was
/// retransmitted, late, reordered or not captured, its round-trip times and windows, and where on
/// the path the capture was taken. The transfer with most data, or the one of --flow, is judged as
/// `diagnose` judges one: its limit, the figures that decide, and what would help.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("packets").args(["files", "interface"]).required(true))]
pub(crate) struct CaptureTraceArguments {
    /// Capture file; `-` is standard input. A second one, of the same time from another place,
    /// shows what was lost and changed between both. Of a folder, each of its files by itself
    #[arg(value_name = "FILE", num_args = 1..=2)]
    files: Vec<PathBuf>,
    /// Read one shard of the captures in a folder: 3/16 is the third of 16
    ///
    /// By their names, it has file 3 and every 16th file from there on.
    #[arg(
        long,
        help_heading = "Shards",
        value_name = "I/N",
        conflicts_with = "interface"
    )]
    shard: Option<Shard>,
    /// Capture on this network device, or on all with `any`, until Ctrl-C or for --time
    ///
    /// Reads the first 128 bytes of each TCP packet and keeps none. Needs `CAP_NET_RAW`: without
    /// it, pipe `tcpdump -w -` into `fullpipe trace -`.
    #[arg(long, short, value_name = "DEVICE")]
    interface: Option<String>,
    /// Duration of the capture of --interface [default: until Ctrl-C]
    #[arg(
        long,
        short,
        requires = "interface",
        conflicts_with = "files",
        value_parser = some_time,
        value_name = "SECONDS"
    )]
    time: Option<Span>,
    /// Number of connections to list, those with most data first
    #[arg(long, default_value_t = USUAL_CONNECTIONS, value_parser = integer_parser(0..=usize::MAX), value_name = "N")]
    top: usize,
    /// Print this connection of the list at length
    #[arg(long, value_parser = integer_parser(1..=u64::MAX), value_name = "NO")]
    flow: Option<u64>,
    /// Capacity of the path, if known; it makes the verdict surer
    #[arg(long, value_name = "RATE", value_parser = parse_capacity)]
    bandwidth: Option<BitRate>,
    /// Settings of the host that sent the data: what `fullpipe host show --json` printed there
    ///
    /// The causes that they rule out are left out, and remedies have their commands and their gain.
    /// A setting may have changed since the capture.
    #[arg(long, value_name = "FILE")]
    sender_host: Option<PathBuf>,
    /// Settings of the host that received the data
    #[arg(long, value_name = "FILE")]
    receiver_host: Option<PathBuf>,
    /// Write the capture anew to this file: TCP headers alone, with other addresses
    ///
    /// Its figures are the same. Addresses of IP and Ethernet are replaced by random ones, the same
    /// throughout the file. Ports, sequence numbers and times stay.
    #[arg(long, value_name = "OUT")]
    redact: Option<PathBuf>,
    #[command(flatten)]
    output: OutputArguments,
}

impl RunCommand for CaptureTraceArguments {
    fn output(&self) -> OutputChoice<'_> {
        self.output.output_choice()
    }

    fn run(&self, terminal: &Terminal) -> Result {
        if self.redact.is_some() && self.files.len() > 1 {
            return Err(usage_failure(
                "--redact writes one capture anew: name one FILE",
            ));
        }
        let known = self.known_facts()?;
        if let [folder] = &self.files[..]
            && folder.is_dir()
        {
            return self.explain_folder(folder, &known, terminal);
        }
        if self.shard.is_some() {
            return Err(usage_failure(
                "--shard is of the captures in a folder: name one",
            ));
        }
        // Before Ctrl-C is anything but the end: a named pipe is opened once it has a writer.
        let inputs = self
            .files
            .iter()
            .map(|file| open_input(file))
            .collect::<Result<Vec<_>, _>>()?;
        self.explain_inputs(inputs, &known, &super::interrupt_flag()?, terminal)
    }
}

/// A capture that was handed over to another command.
pub(super) enum HandedCapture {
    /// In a file.
    File(PathBuf),
    /// From a pipe, with its name.
    Bytes(Vec<u8>, String),
}

/// Explains one capture, or two of the same time.
pub(super) fn explain_captures(
    captures: Vec<HandedCapture>,
    known: &KnownFacts,
    output: OutputArguments,
    terminal: &Terminal,
) -> Result {
    let files = captures.iter().map(|capture| match capture {
        HandedCapture::File(file) => file.clone(),
        HandedCapture::Bytes(..) => PathBuf::from("-"),
    });
    let files: Vec<PathBuf> = files.collect();
    let inputs = captures
        .into_iter()
        .zip(&files)
        .map(|(capture, file)| match capture {
            HandedCapture::File(_) => open_input(file),
            HandedCapture::Bytes(bytes, name) => Ok(CaptureInput::Bytes(bytes, name)),
        });
    let inputs: Vec<CaptureInput<'_>> = inputs.collect::<Result<_>>()?;
    let trace = CaptureTraceArguments {
        files: files.clone(),
        interface: None,
        time: None,
        top: USUAL_CONNECTIONS,
        flow: None,
        bandwidth: known.bandwidth,
        sender_host: None,
        receiver_host: None,
        redact: None,
        shard: None,
        output,
    };
    trace.explain_inputs(inputs, known, &super::interrupt_flag()?, terminal)
}

impl CaptureTraceArguments {
    /// Explains each file of a folder, or of its shard, by itself: a document each. One that cannot
    /// be read does not keep the others out.
    fn explain_folder(&self, folder: &Path, known: &KnownFacts, terminal: &Terminal) -> Result {
        if self.redact.is_some() || self.output.output_choice().1.is_some() {
            let why = "--redact and --html write one file, and these are the captures of a folder";
            return Err(usage_failure(why));
        }
        let mut files = files_of(folder).map_err(cannot(&format!("read {}", folder.display())))?;
        if let Some(shard) = self.shard {
            files = shard.rows_of(files).map_err(usage_failure)?;
        }
        let flag = super::interrupt_flag()?;
        let mut failed = None;
        for file in &files {
            let input = vec![CaptureInput::File(file)];
            match self.explain_inputs(input, known, &flag, terminal) {
                Err(failure) if failure.code == INTERRUPTED => return Err(failure),
                Err(failure) => failed = Some(terminal.print_failure(failure)),
                Ok(()) => {}
            }
        }
        failed.map_or(Ok(()), |code| Err(Failure::already_printed(code)))
    }

    fn explain_inputs(
        &self,
        inputs: Vec<CaptureInput<'_>>,
        known: &KnownFacts,
        flag: &Arc<AtomicBool>,
        terminal: &Terminal,
    ) -> Result {
        let files = read_headers(inputs, flag)?;
        let (mut readings, is_complete) = match &self.interface {
            // Its end is that of the capture.
            Some(device) => (
                vec![self.capture_packets(device, Arc::clone(flag), terminal)?],
                true,
            ),
            None => (self.read_files(files, flag)?, !flag.load(Ordering::Relaxed)),
        };
        let error = readings.last_mut().and_then(|reading| reading.error.take());
        // What ends within a compressed block was cut off by the interrupt.
        let error = error.filter(|_| is_complete || self.interface.is_some());
        let mut readings = readings.into_iter();
        let (first, second) = (readings.next(), readings.next());
        let Some(first) = first else { return Ok(()) };
        let capture = match second {
            Some(second) => judge_captures(first, second, known),
            None => judge_capture(first, known),
        };
        let error = error.map(|error| {
            let Failure { code, message } = error.into();
            ErrorReport {
                message,
                exit_code: self.interface.as_ref().map_or(code, |_| FAILED),
            }
        });
        // What was read before an error or an interrupt is printed with it.
        self.show_report(capture, error.as_ref(), terminal)?;
        Failure::after_report(error.as_ref(), !is_complete, true)
    }
}

impl CaptureTraceArguments {
    /// Returns the facts that the command line adds to the packets: bandwidth, and settings of both
    /// hosts.
    fn known_facts(&self) -> Result<KnownFacts> {
        let (sender, receiver) = (self.sender_host.as_deref(), self.receiver_host.as_deref());
        Ok(KnownFacts {
            bandwidth: self.bandwidth,
            sender: sender.map(host_settings).transpose()?,
            receiver: receiver.map(host_settings).transpose()?,
            ..KnownFacts::default()
        })
    }

    fn explained_transfer(&self) -> ExplainedTransfers<'static> {
        self.flow
            .map_or(ExplainedTransfers::Largest(1), ExplainedTransfers::Flow)
    }

    /// Reads the files up to one with an error.
    fn read_files(
        &self,
        files: Vec<(PacketFile, String)>,
        flag: &AtomicBool,
    ) -> Result<Vec<CaptureContent>> {
        let mut readings: Vec<CaptureContent> = Vec::new();
        for (packets, name) in files {
            let explained = readings
                .first()
                .and_then(CaptureContent::explained_flow)
                .map_or(self.explained_transfer(), ExplainedTransfers::Same);
            let reading = self.read_packets(packets, &name, explained, flag)?;
            let is_whole = reading.error.is_none() && !flag.load(Ordering::Relaxed);
            readings.push(reading);
            if !is_whole {
                break;
            }
        }
        Ok(readings)
    }

    /// Captures on a device until the flag is set or the time is over.
    fn capture_packets(
        &self,
        device: &str,
        flag: Arc<AtomicBool>,
        terminal: &Terminal,
    ) -> Result<CaptureContent> {
        let packets = open_device(device, self.time, flag, terminal)?;
        // The capture itself ends with the flag.
        let mut reading = self.read_packets(
            packets,
            device,
            self.explained_transfer(),
            &AtomicBool::new(false),
        )?;
        LIVE.clone_into(&mut reading.report.format);
        Ok(reading)
    }

    fn read_packets(
        &self,
        mut packets: PacketFile,
        name: &str,
        explained: ExplainedTransfers<'_>,
        flag: &AtomicBool,
    ) -> Result<CaptureContent> {
        let wanted = CaptureUse {
            explained,
            is_compared: self.files.len() > 1,
        };
        let Some(redact) = &self.redact else {
            return Ok(read_flows(&mut packets, name, wanted, flag));
        };
        let mut redaction = RedactedWriter::create(redact)?;
        let mut reading = read_flows_with(&mut packets, name, wanted, flag, &mut |packet| {
            redaction.write(packet)
        });
        // What was read before an error of the capture is whole; after one of the new file nothing
        // is.
        if !matches!(reading.error, Some(CaptureError::Write { .. })) {
            reading.report.redacted = Some(redaction.finish()?);
        }
        Ok(reading)
    }

    fn show_report(
        &self,
        mut capture: CaptureReport,
        error: Option<&ErrorReport>,
        terminal: &Terminal,
    ) -> Result {
        if let Some(number) = self.flow {
            let count = capture.flows.len();
            capture.retain_connection(number);
            let text = report::one_flow(&capture);
            terminal.print_result(&text.ok_or_else(|| no_connection(number, count, error))?);
        } else {
            terminal.print_result(&report::capture_text(&capture, self.top));
        }
        if let Some(file) = &capture.redacted {
            terminal.print_result(&report::redaction_text(file));
        }
        if terminal.format == OutputFormat::JsonLines {
            for flow in &capture.flows {
                terminal.print_event(&Event::Flow(Box::new(flow.clone())));
            }
            for pair in &capture.pairs {
                terminal.print_event(&Event::FlowPair(Box::new(pair.clone())));
            }
        }
        let capture = Box::new(capture);
        let document = terminal.print_report(Content::Capture { capture }, error);
        // To free a hundred thousand connections one by one takes longer than to end with them.
        std::mem::forget(document);
        Ok(())
    }
}

fn no_connection(number: u64, count: usize, error: Option<&ErrorReport>) -> Failure {
    match error {
        Some(ErrorReport { message, exit_code }) => Failure::new(
            *exit_code,
            format!("{message}; before that, there is no connection {number}"),
        ),
        None => usage_failure(format!(
            "there is no connection {number}: the capture has {count}"
        )),
    }
}

/// Reads the settings of a host from what `host show --json` printed.
fn host_settings(file: &Path) -> Result<HostSettings> {
    read_host_settings(file).map_err(|cause| {
        let name = file.display();
        usage_failure(format!(
            "cannot read the settings of a host from {name}: {cause}"
        ))
    })
}

fn read_host_settings(file: &Path) -> Result<HostSettings, String> {
    /// More than a host with thousands of devices has.
    const MAX_SIZE: u64 = 16 << 20;
    let mut text = String::new();
    File::open(file)
        .and_then(|opened| opened.take(MAX_SIZE).read_to_string(&mut text))
        .map_err(|error| error.to_string())?;
    match Document::from_json(text.as_bytes()) {
        Ok(Document {
            content: Content::HostSettings { host_settings },
            ..
        }) => settings_of(&host_settings).map_err(|error| error.to_string()),
        _ => Err("it is not what `fullpipe host show --json` prints".to_owned()),
    }
}

/// Returns the files of a folder by their names, without hidden ones.
fn files_of(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let is_hidden = path
            .file_name()
            .is_some_and(|name| name.as_encoded_bytes()[0] == b'.');
        if path.is_file() && !is_hidden {
            files.push(path);
        }
    }
    files.sort_unstable();
    Ok(files)
}

/// Returns true for standard input, a pipe or a device.
fn is_read_once(file: &Path) -> bool {
    file == Path::new("-") || fs::metadata(file).is_ok_and(|found| !found.is_file())
}

/// A capture, before its header is read.
enum CaptureInput<'f> {
    /// One that can be read again.
    File(&'f Path),
    Pipe(CapturePipe, String),
    /// One that was read already, with its name.
    Bytes(Vec<u8>, String),
}

fn open_input(file: &Path) -> Result<CaptureInput<'_>> {
    if file == Path::new("-") {
        let own = CapturePipe::of_standard_input();
        let own = own.map_err(|error| run_failure(format!("standard input: {error}")))?;
        return Ok(CaptureInput::Pipe(own, "standard input".to_owned()));
    }
    if !is_read_once(file) {
        return Ok(CaptureInput::File(file));
    }
    let name = file.display().to_string();
    match File::open(file) {
        Ok(file) => Ok(CaptureInput::Pipe(file.into(), name)),
        Err(source) => Err(CaptureError::Open { file: name, source }.into()),
    }
}

/// Reads the headers of captures.
///
/// # Errors
/// Fails if one cannot be read, and as an interrupt does if there was one meanwhile.
fn read_headers(
    inputs: Vec<CaptureInput<'_>>,
    flag: &Arc<AtomicBool>,
) -> Result<Vec<(PacketFile, String)>> {
    let inputs = inputs.into_iter();
    let files: Result<_> = inputs.map(|input| read_header(input, flag)).collect();
    files.map_err(|failure| {
        if flag.load(Ordering::Relaxed) {
            Failure::already_printed(INTERRUPTED)
        } else {
            failure
        }
    })
}

/// Reads the header of a capture.
fn read_header(input: CaptureInput<'_>, flag: &Arc<AtomicBool>) -> Result<(PacketFile, String)> {
    Ok(match input {
        CaptureInput::File(file) => (PacketFile::open(file)?, file.display().to_string()),
        CaptureInput::Bytes(bytes, name) => (PacketFile::new(Cursor::new(bytes), &name)?, name),
        CaptureInput::Pipe(pipe, name) => (
            PacketFile::new(pipe.until_interrupt(Arc::clone(flag)), &name)?,
            name,
        ),
    })
}

/// The format of a capture that is no file.
const LIVE: &str = "live";
