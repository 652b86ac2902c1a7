use std::path::Path;

use fullpipe_compare::{CompareError, Program, Wishes, compare};
use fullpipe_experiment::Interrupt;
use fullpipe_lab::Backend;
use fullpipe_record::{Content, Document, Event};
use fullpipe_report as report;
use fullpipe_units::ByteCount;

use super::lab::load_comparison;
use crate::commands::keep::KeepArguments;
use crate::commands::output::OutputArguments;
use crate::failure::{FAILED, Failure, INTERRUPTED, LACKING};
use crate::terminal::Terminal;

/// The flags of a comparison of programs.
#[derive(Debug, clap::Args)]
pub(super) struct CompareArguments {
    /// Scenario file, oci-applications, or a name from `lab list`
    #[arg(default_value = "oci-applications", value_name = "SCENARIO")]
    scenario: String,
    /// Programs [default: all that are installed]
    ///
    /// iperf3, scp, rsync (over SSH), rsyncd (to its daemon), curl (HTTP/1.1), curl-h2 (HTTP/2 over TLS), ftp.
    #[arg(long = "with", value_delimiter = ',', value_parser = program, value_name = "PROGRAMS")]
    programs: Vec<Program>,
    /// Size of the file, which is held in memory twice
    #[arg(long, default_value = "250MB", value_parser = size, value_name = "BYTES")]
    size: ByteCount,
    /// Transfers of each program under each set of settings
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100), value_name = "N")]
    rounds: u32,
    /// Fail if one of the programs is not installed
    #[arg(long)]
    require: bool,
    #[command(flatten)]
    keep: KeepArguments,
    #[command(flatten)]
    output: OutputArguments,
}

impl CompareArguments {
    pub(super) fn output(&self) -> &OutputArguments {
        &self.output
    }

    pub(super) fn page(&self) -> Option<&Path> {
        self.output.page()
    }

    /// Compares the programs in labs over `backend`.
    ///
    /// # Errors
    /// Fails if the scenario cannot be read or a lab cannot be made. Fails after the report if it was interrupted or a
    /// program did not move the file.
    pub(super) fn carry_out(&self, backend: Backend, terminal: &Terminal) -> Result<(), Failure> {
        let scenario = load_comparison(&self.scenario)?;
        let programs = if self.programs.is_empty() { Program::ALL.to_vec() } else { self.programs.clone() };
        let wishes = Wishes { programs, require: self.require, size: self.size, rounds: self.rounds };
        let flag = super::interrupt_flag()?;
        let done = compare(&scenario, backend, &wishes, Interrupt(&flag), &mut |moved| {
            terminal.progress(&report::program_moved(&moved));
            terminal.event(&Event::ProgramRun(Box::new(moved)));
        })?;
        terminal.result(&report::programs(&done, terminal.style()));
        terminal.event(&Event::Programs(Box::new(done.clone())));
        let all_moved = done.batches.iter().flat_map(|batch| &batch.rows).all(|row| row.goodput.is_some());
        let interrupted = done.interrupted;
        let document = Document::new(Content::Programs { programs: Box::new(done) });
        terminal.document(&document);
        self.keep.keep(&document, terminal);
        match (interrupted, all_moved) {
            (true, _) => Err(Failure::already_printed(INTERRUPTED)),
            (false, false) => Err(Failure::already_printed(FAILED)),
            (false, true) => Ok(()),
        }
    }
}

impl From<CompareError> for Failure {
    fn from(error: CompareError) -> Self {
        let code = match error {
            CompareError::Lab(error) => return error.into(),
            CompareError::Interrupted => INTERRUPTED,
            CompareError::Missing { .. } | CompareError::NoProgram => LACKING,
            CompareError::Preparation { .. } => FAILED,
        };
        Self::new(code, error.to_string())
    }
}

fn program(name: &str) -> Result<Program, String> {
    let all = || Program::ALL.map(Program::name).join(", ");
    Program::named(name).ok_or_else(|| format!("the programs are {}", all()))
}

/// Reads the size of the file.
///
/// # Errors
/// Fails below 1 MB, which is over before it can be judged, and above 100 GB.
fn size(text: &str) -> Result<ByteCount, String> {
    let size: ByteCount = text.parse().map_err(|error: fullpipe_units::ParseError| error.to_string())?;
    let valid = (ByteCount::new(1_000_000)..=ByteCount::new(100_000_000_000)).contains(&size);
    valid.then_some(size).ok_or_else(|| "the file has 1 MB to 100 GB".to_owned())
}
