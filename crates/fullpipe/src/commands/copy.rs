use std::ffi::OsString;
use std::fs::File;
use std::io::{stdin, stdout};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;

use fullpipe_control::{AddressPrefix, FarProgram, SshHost};
use fullpipe_copy::http::FileDigest;
use fullpipe_copy::{
    CopyError, CopyEvent, CopyOptions, CopyPath, DataTransport, copy_files, far_end,
};
use fullpipe_iperf::SharedKey;
use fullpipe_record::CopyReport;
use fullpipe_record::event::CopyNote;

use super::far_end::SshArguments;
use super::prelude::*;
use crate::values::read_key_file;

/// Copy files and trees to or from a host, verified and resumable.
///
/// Starts fullpipe at the other host through ssh, as rsync and scp do, or calls
/// `fullpipe serve --share` there, and carries the data on parallel, encrypted TCP connections,
/// whose number follows from a prediction. Every chunk is verified by its BLAKE3 hash as it
/// arrives. The same command continues a copy that was interrupted. Folders are copied with
/// everything in them, with permissions, times, symbolic and hard links and holes. A file of a web
/// server (`https://`, `http://`, `ftp://`) comes in parts, on as many connections as the path needs.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP, override_usage = "fullpipe copy [OPTIONS] <PATH>... <DESTINATION>")]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub(crate) struct CopyArguments {
    /// Files and folders, the destination last; USER@HOST:PATH or `fullpipe://HOST/PATH` at the
    /// other host, or one `https://HOST/FILE`
    #[arg(value_name = "PATH", required_unless_present = "far")]
    paths: Vec<OsString>,
    /// Do what the near end asks, over standard input and output
    #[arg(long, hide = true, exclusive = true)]
    far: bool,
    #[command(flatten)]
    ssh: SshArguments,
    /// fullpipe at the other host [default: fullpipe, which is sent there if it has none]
    #[arg(long, value_name = "PROGRAM", help_heading = "Far end")]
    far_path: Option<String>,
    /// Key in FILE of the server, if one is named
    #[arg(long, value_name = "FILE", value_parser = read_key_file, help_heading = "Far end")]
    key_file: Option<SharedKey>,
    /// Ports on which to listen for the data, as 5300-5310; any if absent
    #[arg(long, value_name = "FROM-TO", value_parser = parse_port_range, help_heading = "Far end")]
    ports: Option<(u16, u16)>,
    /// Give up after so long without a word of the other end
    #[arg(
        long,
        value_name = "SECONDS",
        default_value = "30",
        value_parser = parse_timeout,
        hide_short_help = true,
        help_heading = "Far end"
    )]
    timeout: Span,
    /// Do not encrypt data between addresses of this network; repeatable
    ///
    /// The hashes still find bits that flip on the way, but who can read or change packets can read
    /// or change the files.
    #[arg(
        long,
        value_name = "NETWORK",
        hide_short_help = true,
        help_heading = "Far end"
    )]
    insecure_data: Vec<AddressPrefix>,
    /// Show what would be copied and deleted, and change nothing
    #[arg(long, help_heading = "Copy")]
    dry_run: bool,
    /// Delete in the copied folders what the sender does not have
    #[arg(long, help_heading = "Copy")]
    delete: bool,
    /// Neither copy nor delete what fits, as rsync reads it; repeatable
    #[arg(long, value_name = "PATTERN", help_heading = "Copy")]
    exclude: Vec<OsString>,
    /// Send no faster: 100Mbit/s, or a number of KiB a second as for rsync
    #[arg(long, value_name = "RATE", value_parser = rate_limit, help_heading = "Copy")]
    bwlimit: Option<BitRate>,
    /// TCP, QUIC, or TCP until only QUIC fills the path
    #[arg(long, value_enum, default_value = "auto", help_heading = "Copy")]
    transport: TransportChoice,
    /// Connections for data, 1 to 64, or auto
    #[arg(long, value_name = "N", default_value = "auto", value_parser = parse_stream_count, help_heading = "Copy")]
    streams: ConnectionCount,
    /// Give way to all other traffic: take only what it leaves
    #[arg(long, help_heading = "Copy")]
    scavenge: bool,
    /// Never change to BBR, whatever the path loses
    #[arg(long, help_heading = "Copy")]
    no_bbr: bool,
    /// Compress nothing, also where that would save time
    ///
    /// The lengths of what crosses then say nothing of the content.
    #[arg(long, help_heading = "Copy")]
    no_compress: bool,
    /// Keep access lists and extended attributes of users, too
    #[arg(long, short = 'a', help_heading = "Copy")]
    attributes: bool,
    /// Read each file back from the receiver's disk before it gets its name
    #[arg(long, help_heading = "Copy")]
    verify_disk: bool,
    /// Keep a file of a web server only if it has this digest, as sha256:HEX
    ///
    /// Of sha256, sha512 and blake3, with all hexadecimal digits.
    #[arg(long, value_name = "DIGEST", help_heading = "Copy")]
    digest: Option<FileDigest>,
    /// Print the result as JSON
    #[arg(
        long,
        short = 'J',
        conflicts_with = "json_lines",
        help_heading = "Output"
    )]
    json: bool,
    /// Print one JSON object a line for each event
    #[arg(long, help_heading = "Output")]
    json_lines: bool,
}

const AFTER_HELP: &str = "\
A folder with a / at its end stands for what is in it, as for rsync. A file of
the same size and time at the destination is not copied again.

Exit codes: 1 if something could not be copied, which is named; 3 if the other
host has no fullpipe and cannot run this one.";

/// The way that data takes.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum TransportChoice {
    /// TCP, or QUIC if TCP does not pass, or may not use BBR and packets are lost without a queue
    Auto,
    /// TCP connections
    Tcp,
    /// A QUIC connection, or TCP if UDP does not pass
    Quic,
}

impl From<TransportChoice> for DataTransport {
    fn from(choice: TransportChoice) -> Self {
        match choice {
            TransportChoice::Auto => Self::Auto,
            TransportChoice::Tcp => Self::Tcp,
            TransportChoice::Quic => Self::Quic,
        }
    }
}

/// A number of connections; by prediction if absent.
#[derive(Debug, Clone, Copy)]
struct ConnectionCount(Option<u16>);

fn parse_port_range(text: &str) -> Result<(u16, u16), String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (first.parse(), last.parse()) {
        (Ok(first), Ok(last)) if first > 0 && first <= last => Ok((first, last)),
        _ => Err("write the first and the last port, as 5300-5310".to_owned()),
    }
}

fn parse_stream_count(text: &str) -> Result<ConnectionCount, String> {
    if text == "auto" {
        return Ok(ConnectionCount(None));
    }
    let count = text.parse().ok().filter(|count| (1..=64).contains(count));
    count
        .map(|count| ConnectionCount(Some(count)))
        .ok_or_else(|| "write a number from 1 to 64, or auto".to_owned())
}

fn parse_timeout(text: &str) -> Result<Span, String> {
    let bounds = Span::from_secs(2)..=Span::from_secs(3600);
    value_within(parse_duration(text)?, bounds, "write 2 to 3600 seconds")
}

fn rate_limit(text: &str) -> Result<BitRate, String> {
    if let Ok(kib) = text.parse::<u64>() {
        // rsync's unit.
        return Ok(BitRate::from_bps(kib.saturating_mul(1024 * 8))).and_then(above_zero);
    }
    if !text.contains("bit") {
        return Err(
            "write a rate with its unit, as 100Mbit/s, or a bare number of KiB a second".to_owned(),
        );
    }
    parse_quantity(text).and_then(above_zero)
}

fn above_zero(rate: BitRate) -> Result<BitRate, String> {
    if rate > BitRate::ZERO {
        Ok(rate)
    } else {
        Err("nothing would ever be sent".to_owned())
    }
}

impl CopyArguments {
    fn sources_and_destination(&self) -> Result<(Vec<CopyPath>, CopyPath)> {
        let mut places = self
            .paths
            .iter()
            .map(|text| CopyPath::parse_path(text.as_bytes()))
            .collect::<Result<Vec<_>, _>>()
            .map_err(usage_failure)?;
        match places.pop() {
            Some(destination) if !places.is_empty() => Ok((places, destination)),
            _ => Err(usage_failure("name what to copy, and where to")),
        }
    }

    fn copy_options(&self) -> Result<CopyOptions> {
        let (sources, destination) = self.sources_and_destination()?;
        let excludes = self.exclude.iter();
        Ok(CopyOptions {
            sources,
            destination,
            ssh: self.ssh.words(),
            far_path: self.far_path.as_deref().unwrap_or("fullpipe").to_owned(),
            dry_run: self.dry_run,
            delete: self.delete,
            excludes: excludes
                .map(|pattern| pattern.as_bytes().to_vec())
                .collect(),
            limit: self.bwlimit,
            ports: self.ports,
            streams: self.streams.0,
            transport: self.transport.into(),
            verify_disk: self.verify_disk,
            scavenge: self.scavenge,
            no_bbr: self.no_bbr,
            no_compress: self.no_compress,
            attributes: self.attributes,
            timeout: self.timeout,
            unencrypted: self.insecure_data.clone(),
            key: self.key_file.clone(),
            digest: self.digest.clone(),
        })
    }

    /// Brings fullpipe to `host`, which has none, and returns `options` with its name there.
    ///
    /// # Errors
    /// Fails if the host cannot run it.
    fn with_program_brought(&self, host: &str, options: CopyOptions) -> Result<CopyOptions> {
        let host = SshHost::new(None, host, None).map_err(usage_failure)?;
        let far_path = FarProgram::bring(&host, &self.ssh.far_end_options())?;
        Ok(CopyOptions {
            far_path,
            ..options
        })
    }
}

impl RunCommand for CopyArguments {
    fn output(&self) -> OutputChoice<'_> {
        (OutputFormat::from_flags(self.json, self.json_lines), None)
    }

    fn run(&self, terminal: &Terminal) -> Result {
        if self.far {
            // Its reasons are shown by the near end.
            let output = stdout().as_fd().try_clone_to_owned();
            let output =
                output.map_err(|error| run_failure(format!("standard output: {error}")))?;
            // A file has no lines that would be flushed one by one.
            return far_end(stdin(), File::from(output))
                .map_err(|error| Failure::already_printed(error.exit_code()));
        }
        let options = self.copy_options()?;
        let interrupt = super::interrupt_flag()?;
        let mut shown = CopyDisplay {
            terminal,
            is_line_open: false,
        };
        let done = match shown.show_copy(&options, &interrupt) {
            Err(CopyError::NotThere { host, .. }) if self.far_path.is_none() => {
                shown.show_event(CopyEvent::Note(format!(
                    "{host} has no fullpipe: it is sent there, and stays in ~/.cache/fullpipe"
                )));
                shown.show_copy(&self.with_program_brought(&host, options)?, &interrupt)
            }
            done => done,
        };
        shown.close_line();
        finish_copy(&done.map_err(|error| copy_failure(&error))?, terminal)
    }
}

fn finish_copy(done: &CopyReport, terminal: &Terminal) -> Result {
    terminal.print_result(&report::copy_summary(done));
    terminal.print_content(Content::Copy {
        copy: Box::new(done.clone()),
    });
    terminal.print_event(&Event::Copy(Box::new(done.clone())));
    Failure::after_report(None, false, done.is_complete())
}

fn copy_failure(error: &CopyError) -> Failure {
    Failure::new(error.exit_code(), error)
}

/// Shows events as they happen; progress only on a terminal.
struct CopyDisplay<'t> {
    terminal: &'t Terminal,
    is_line_open: bool,
}

impl CopyDisplay<'_> {
    fn show_copy(
        &mut self,
        options: &CopyOptions,
        interrupt: &AtomicBool,
    ) -> Result<CopyReport, CopyError> {
        copy_files(options, interrupt, &mut |event| self.show_event(event))
    }

    fn show_event(&mut self, event: CopyEvent) {
        match event {
            CopyEvent::Progress(progress) => {
                if Terminal::can_redraw() {
                    self.terminal
                        .print_live_status(&report::copy_progress(&progress));
                    self.is_line_open = true;
                }
                self.terminal.print_event(&Event::CopyProgress(progress));
            }
            CopyEvent::Note(text) => self.show_step(text, |terminal, text| {
                terminal.print_progress(&report::paragraph(text, 0));
            }),
            CopyEvent::WouldCopy(path) => {
                self.show_step(format!("would copy {path}"), |terminal, text| {
                    terminal.print_result(&format!("{text}\n"));
                });
            }
            CopyEvent::Deleted(path) => {
                self.show_step(format!("deleted {path}"), |terminal, text| {
                    terminal.print_progress(&format!("{text}\n"));
                });
            }
        }
    }

    fn show_step(&mut self, text: String, print: fn(&Terminal, &str)) {
        self.close_line();
        print(self.terminal, &text);
        self.terminal
            .print_event(&Event::CopyNote(CopyNote { text }));
    }

    /// Leaves the line of progress.
    fn close_line(&mut self) {
        if std::mem::take(&mut self.is_line_open) {
            self.terminal.print_progress("\n");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_has_a_unit_or_is_rsyncs() {
        assert_eq!(rate_limit("1000"), Ok(BitRate::from_bps(8_192_000)));
        assert_eq!(rate_limit("10Mbit/s"), Ok(BitRate::from_mbps(10)));
        assert!(
            ["10M", "0", "0bit/s", "fast"]
                .iter()
                .all(|text| rate_limit(text).is_err())
        );
    }

    #[test]
    fn silence_is_bounded() {
        assert_eq!(parse_timeout("2"), Ok(Span::from_secs(2)));
        assert!(
            ["1", "3601", "x"]
                .iter()
                .all(|text| parse_timeout(text).is_err())
        );
    }

    #[test]
    fn ports_and_connections_are_bounded() {
        assert_eq!(
            (parse_port_range("5300-5310"), parse_port_range("5300")),
            (Ok((5300, 5310)), Ok((5300, 5300)))
        );
        assert!(
            ["0-5", "9-5", "a", "1-70000"]
                .iter()
                .all(|text| parse_port_range(text).is_err())
        );
        assert!(
            ["0", "65", "x"]
                .iter()
                .all(|text| parse_stream_count(text).is_err())
        );
        assert!(parse_stream_count("auto").is_ok_and(|streams| streams.0.is_none()));
    }
}
