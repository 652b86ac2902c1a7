//! `fullpipe compare` and `fullpipe lab compare`: real programs side by side.

use fullpipe_control::SshHost;
use fullpipe_experiment::{
    CompareError, ComparisonRequest, RemoteServers, TransferProgram, compare_programs,
    compare_with_servers,
};
use fullpipe_lab::Backend;
use fullpipe_record::event::ProgramMoved;
use fullpipe_record::{ProgramLeftOut, ProgramsReport};

use super::far_end::{SCHEME, SshUrl, config_options};
use super::lab::load_comparison;
use super::prelude::*;
use crate::values::some_time;

/// The flags of a comparison in a lab.
#[derive(Debug, Args)]
pub(super) struct CompareArguments {
    /// Scenario file or name from `lab list`
    #[arg(default_value = "oci-applications", value_name = "SCENARIO")]
    scenario: String,
    #[command(flatten)]
    transfers: TransferArguments,
}

/// Move one file by several programs, and name the limit of each.
///
/// Uses servers that are there: copy, scp and rsync over ssh, iperf3, and what is at a URL. The
/// copies at HOST are in a folder that is removed at the end, however that comes.
#[derive(Debug, Args)]
pub(crate) struct CompareServersArguments {
    /// Other host: HOST or USER@HOST as ssh takes it, or `ssh://[USER@]HOST[:PORT]`
    #[arg(value_name = "HOST", value_parser = parse_ssh_host)]
    host: SshHost,
    /// File to fetch by curl or aria2c: http, https or ftp; repeatable
    ///
    /// Its first bytes are fetched, up to the size of the file.
    #[arg(long = "url", value_name = "URL", value_parser = parse_url)]
    urls: Vec<String>,
    /// Configuration of ssh in place of the user's
    #[arg(long, value_name = "FILE")]
    ssh_config: Option<String>,
    /// Capacity of the path, if known; without it nothing is predicted
    #[arg(long, value_name = "RATE", value_parser = parse_capacity)]
    bandwidth: Option<BitRate>,
    #[command(flatten)]
    transfers: TransferArguments,
}

/// The programs and their transfers.
#[derive(Debug, Args)]
struct TransferArguments {
    /// Programs [default: all that can take part]
    ///
    /// iperf3, copy (fullpipe's own, over SSH), copy-server (to its server), scp, rsync (over SSH),
    /// rsyncd (to its daemon), curl (HTTP/1.1), curl-h2 (HTTP/2 over TLS), ftp, aria2c (eight
    /// connections).
    #[arg(long = "with", value_delimiter = ',', value_parser = parse_program, value_name = "PROGRAMS")]
    programs: Vec<TransferProgram>,
    /// Size of the file
    #[arg(long, default_value = "250MB", value_parser = parse_file_size, value_name = "BYTES")]
    size: ByteCount,
    /// Transfers of each program under each set of settings
    #[arg(long, default_value_t = 1, value_parser = integer_parser(1..=100_u32), value_name = "N")]
    rounds: u32,
    /// Time after which a transfer is ended
    ///
    /// The default is 20 times what is predicted, or the time of 1 Mbit/s, and a minute.
    #[arg(long, value_parser = some_time, value_name = "SECONDS")]
    timeout: Option<Span>,
    /// Keep the file and its copies on disks, not in memory
    #[arg(long)]
    disk: bool,
    /// Fail if one of the programs cannot take part
    #[arg(long)]
    require: bool,
    /// Command that moves the file too, with {file}, {host}, {copy}, {size} and {ssh}
    ///
    /// {file} is the file, {copy} its name at the receiver, {host} the receiver, {ssh} an ssh that
    /// logs in there. It has no input. A copy, if it makes one, must be the file.
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
    #[command(flatten)]
    keep: KeepArguments,
    #[command(flatten)]
    output: OutputArguments,
}

impl TransferArguments {
    /// Returns the wishes: all programs, unless some were named or there is only a command.
    fn to_request(&self) -> ComparisonRequest {
        let is_command_alone = self.programs.is_empty() && !self.command.is_empty();
        let all = if is_command_alone {
            Vec::new()
        } else {
            TransferProgram::ALL.to_vec()
        };
        ComparisonRequest {
            programs: if self.programs.is_empty() {
                all
            } else {
                self.programs.clone()
            },
            command: self.command.clone(),
            require: self.require,
            size: self.size,
            rounds: self.rounds,
            timeout: self.timeout,
            disk: self.disk,
        }
    }

    /// Prints and keeps the report. A program that was named and could not take part is a failure.
    fn finish_comparison(&self, done: ProgramsReport, terminal: &Terminal) -> Result {
        let mut is_good = true;
        for ProgramLeftOut { program, why } in &done.left_out {
            if self.programs.iter().any(|named| named.name() == program) {
                is_good = false;
                Terminal::print_error(&format!("{program} skipped: {}", why.trim_end_matches('.')));
            }
        }
        terminal.print_result(&report::programs_text(&done));
        terminal.print_event(&Event::Programs(Box::new(done.clone())));
        let mut rows = done.batches.iter().flat_map(|batch| &batch.rows);
        is_good &= rows.all(|row| row.goodput.is_some());
        let interrupted = done.interrupted;
        let document = terminal.print_report(
            Content::Programs {
                programs: Box::new(done),
            },
            None,
        );
        self.keep.keep_document(&document, terminal);
        Failure::after_report(None, interrupted, is_good)
    }
}

impl CompareArguments {
    pub(super) fn output_arguments(&self) -> &OutputArguments {
        &self.transfers.output
    }

    /// Compares the programs in labs over `backend`.
    ///
    /// # Errors
    /// Fails if the scenario cannot be read or a lab cannot be made. Fails after the report if it
    /// was interrupted or a program did not move the file.
    pub(super) fn carry_out(&self, backend: Backend, terminal: &Terminal) -> Result {
        let scenario = load_comparison(&self.scenario)?;
        let flag = super::interrupt_flag()?;
        let done = compare_programs(
            &scenario,
            backend,
            &self.transfers.to_request(),
            Interrupt(&flag),
            &mut |moved| print_moved(moved, terminal),
        )?;
        self.transfers.finish_comparison(done, terminal)
    }
}

impl CompareServersArguments {
    /// Returns options that ssh and scp understand alike.
    fn ssh_options(&self) -> Vec<String> {
        let port = self.host.port.iter();
        let port = port.flat_map(|port| ["-o".to_owned(), format!("Port={port}")]);
        config_options(self.ssh_config.as_ref())
            .chain(port)
            .collect()
    }
}

impl RunCommand for CompareServersArguments {
    fn output(&self) -> OutputChoice<'_> {
        self.transfers.output.output_choice()
    }

    fn run(&self, terminal: &Terminal) -> Result {
        let flag = super::interrupt_flag()?;
        let servers = RemoteServers {
            ssh_options: self.ssh_options(),
            host: self.host.login.clone(),
            urls: self.urls.clone(),
            bandwidth: self.bandwidth,
        };
        let done = compare_with_servers(
            &servers,
            &self.transfers.to_request(),
            Interrupt(&flag),
            &mut |moved| print_moved(moved, terminal),
        )?;
        self.transfers.finish_comparison(done, terminal)
    }
}

fn print_moved(moved: ProgramMoved, terminal: &Terminal) {
    terminal.print_progress(&report::program_moved(&moved));
    terminal.print_event(&Event::ProgramRun(Box::new(moved)));
}

impl From<CompareError> for Failure {
    fn from(error: CompareError) -> Self {
        let code = match error {
            CompareError::Lab(error) => return error.into(),
            CompareError::Interrupted => INTERRUPTED,
            CompareError::Lacking(_) => LACKING,
            CompareError::Failed(_) | CompareError::Folder(_) => FAILED,
        };
        Self::new(code, error)
    }
}

fn parse_program(name: &str) -> Result<TransferProgram, String> {
    TransferProgram::from_name(name).ok_or_else(|| {
        let all = TransferProgram::ALL.map(TransferProgram::name);
        format!("the programs are {}", all.join(", "))
    })
}

/// Reads the name of a host, which programs must not take for a flag or for a path.
fn parse_ssh_host(text: &str) -> Result<SshHost, String> {
    if text.starts_with(SCHEME) {
        return Ok(text.parse::<SshUrl>()?.0);
    }
    let valid = !text.is_empty()
        && !text.starts_with('-')
        && text
            .chars()
            .all(|one| one.is_ascii_alphanumeric() || "._-@%".contains(one));
    if !valid {
        return Err("a host is HOST, USER@HOST or ssh://HOST".to_owned());
    }
    SshHost::new(None, text, None)
}

fn parse_url(text: &str) -> Result<String, String> {
    let known = ["http://", "https://", "ftp://"]
        .iter()
        .any(|scheme| text.starts_with(scheme));
    known
        .then(|| text.to_owned())
        .ok_or_else(|| "a URL begins with http://, https:// or ftp://".to_owned())
}

/// Reads the size of the file.
///
/// # Errors
/// Fails below 1 MB, which is over before it can be judged, and above 100 GB.
fn parse_file_size(text: &str) -> Result<ByteCount, String> {
    let bounds = ByteCount::new(1_000_000)..=ByteCount::new(100_000_000_000);
    value_within(parse_quantity(text)?, bounds, "the file has 1 MB to 100 GB")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_no_flag_and_no_path() {
        assert!(parse_ssh_host("ssh://me@h:22").is_ok_and(|host| host.port == Some(22)));
        assert!(parse_ssh_host("me@host-1.example").is_ok() && parse_ssh_host("192.0.2.1").is_ok());
        for text in ["", "-oProxyCommand=x", "host:/etc", "a b", "$(x)"] {
            assert!(parse_ssh_host(text).is_err(), "{text}");
        }
    }
}
