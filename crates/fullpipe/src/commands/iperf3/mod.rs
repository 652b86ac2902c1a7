//! `fullpipe iperf3 …`: iperf3's flags, text and JSON, carried out by the project's own crates, so
//! that scripts and programs that drive iperf3 keep working.
//!
//! Error messages, and the exit code 1 for them, are also those of iperf3.

mod arguments;
mod client;
mod number;
mod output;
mod process;
mod renderer;
mod sentences;
mod server;

use std::ffi::{OsStr, OsString};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser};

use crate::verbosity::report_events;
use arguments::{Iperf3Arguments, Iperf3Task};
use output::ResultWriter;

use super::prelude::*;

/// The name under which the program is iperf3 from its first argument on.
const NAME: &str = "iperf3";

/// iperf3's message after a wrong command line.
const USAGE: &str =
    "\nUsage: iperf3 [-s|-c host] [options]\nTry `iperf3 --help' for more information.\n";

/// In place of iperf3: its flags, its text, its JSON.
#[derive(Debug, Args)]
pub(crate) struct RawArguments {
    /// Flags of iperf3; --help lists them
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "FLAGS"
    )]
    pub(crate) all: Vec<OsString>,
}

impl RunCommand for RawArguments {
    fn run(&self, _: &Terminal) -> Result {
        run(&self.all)
    }
}

/// Returns the arguments for iperf3, if the program was called by iperf3's name or its first
/// argument is that name.
pub(crate) fn arguments_of(mut words: impl Iterator<Item = OsString>) -> Option<Vec<OsString>> {
    let program = words.next()?;
    let named = Path::new(&program).file_name() == Some(OsStr::new(NAME));
    (named || words.next()? == NAME).then(|| words.collect())
}

/// Returns the definition of iperf3's command line.
pub(super) fn iperf3_command() -> clap::Command {
    Iperf3Arguments::command()
}

/// Does what iperf3 would do with `arguments`, its name not among them.
///
/// # Errors
/// Where iperf3 would end with an exit code other than zero; everything has been said then.
pub(crate) fn run(arguments: &[OsString]) -> Result {
    let name = OsString::from(NAME);
    let parsed = match Iperf3Arguments::try_parse_from(std::iter::once(&name).chain(arguments)) {
        Ok(parsed) => parsed,
        Err(error) => return print_clap_error(&error),
    };
    if parsed.wants_version() {
        Terminal::print_line(&format!(
            "{}\n{}",
            renderer::program_version(),
            renderer::system_name()
        ));
        return Ok(());
    }
    report_events(parsed.verbosity());
    let task = parsed.to_task().map_err(|why| parameter_failure(&why))?;
    for warning in parsed.warnings() {
        ResultWriter::print_warning(&format!("iperf3: warning: {warning}\n"));
    }
    let mut output = ResultWriter::open(parsed.logfile(), parsed.timestamp_format())
        .map_err(|why| parameter_failure(&why))?;
    match task {
        Iperf3Task::Client(plan) => client::run(&plan, &mut output),
        Iperf3Task::Server(plan) => server::run(&plan, &mut output),
    }
}

/// A command line that iperf3 would not take either.
fn parameter_failure(why: &str) -> Failure {
    ResultWriter::print_warning(&format!("iperf3: parameter error - {why}\n{USAGE}"));
    Failure::already_printed(FAILED)
}

/// Help is no failure; everything else that clap says is about the command line.
fn print_clap_error(error: &clap::Error) -> Result {
    if error.kind() == ErrorKind::DisplayHelp {
        // An error here means that the terminal is gone: no user can read a message.
        let _ = error.print();
        return Ok(());
    }
    ResultWriter::print_warning(&format!("iperf3: {}\n{USAGE}", in_getopts_words(error)));
    Err(Failure::already_printed(FAILED))
}

/// Returns the message of C's `getopt_long` for the errors that it reports, else that of clap.
fn in_getopts_words(error: &clap::Error) -> String {
    let option = error.get(ContextKind::InvalidArg);
    let option = option.map(ToString::to_string).unwrap_or_default();
    let name = option.split([' ', '=']).next().unwrap_or_default();
    match (
        error.kind(),
        name.strip_prefix("--"),
        name.strip_prefix('-'),
    ) {
        (ErrorKind::UnknownArgument, None, Some(letter)) => format!("invalid option -- '{letter}'"),
        (ErrorKind::UnknownArgument, ..) => format!("unrecognized option '{name}'"),
        (ErrorKind::InvalidValue, Some(_), _) if lacks_value(error) => {
            format!("option '{name}' requires an argument")
        }
        (ErrorKind::TooManyValues, Some(_), _) => {
            format!("option '{name}' doesn't allow an argument")
        }
        _ => {
            let text = error.render().to_string();
            let first = text.lines().next().unwrap_or_default();
            format!("parameter error - {}", first.trim_start_matches("error: "))
        }
    }
}

fn lacks_value(error: &clap::Error) -> bool {
    matches!(error.get(ContextKind::InvalidValue), Some(ContextValue::String(value)) if value.is_empty())
}
