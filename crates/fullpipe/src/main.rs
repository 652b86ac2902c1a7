//! `fullpipe`: why a transfer does not fill the pipe, and what exactly would fix it.
//!
//! This crate parses the command line, calls one crate below it and prints what comes back.

mod arguments;
mod cli;
mod commands;
mod failure;
mod input;
mod live;
mod sibling;
mod terminal;
mod values;
mod verbosity;
mod whole_file;

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::process::ExitCode;

use fullpipe_lab::keeper;
use fullpipe_sys::look_up_without_modules;

use cli::Cli;
use commands::{RunCommand, iperf3};
use failure::{FAILED, Result, USAGE, usage_failure};
use terminal::{OutputFormat, Terminal};

fn main() -> ExitCode {
    look_up_without_modules();
    // Before a thread starts, because the keeper may not have a second one.
    if std::env::args_os()
        .nth(1)
        .is_some_and(|argument| argument == keeper::ARGUMENT)
    {
        return keeper::main();
    }
    remove_own_file();
    if let Some(arguments) = iperf3::arguments_of(std::env::args_os()) {
        let terminal = Terminal::new(OutputFormat::Text, false);
        return finish_program(&terminal, iperf3::run(&arguments));
    }
    match arguments::parse_arguments::<Cli>(std::env::args_os()) {
        Ok(cli) => {
            verbosity::report_events(cli.verbose);
            let (format, page) = cli.command.output();
            let terminal = Terminal::new(format, cli.quiet).with_page(page);
            finish_program(&terminal, cli.command.run(&terminal))
        }
        Err(error) => print_clap_error(&error),
    }
}

/// Removes the file of this program, and its folders, if it was sent here for one command that is to
/// leave nothing: the script that ssh started names its folder in the environment.
fn remove_own_file() {
    let sent_to = std::env::var_os("FULLPIPE_REMOVE_PROGRAM");
    let own = std::env::current_exe().ok();
    if let Some((own, sent_to)) = own.zip(sent_to)
        && own.parent() == Some(Path::new(&sent_to))
    {
        // What fails stays, as a program that is kept does.
        let _ = fs::remove_file(&own);
        let _ = own.ancestors().skip(1).take(2).try_for_each(fs::remove_dir);
    }
}

fn finish_program(terminal: &Terminal, result: Result) -> ExitCode {
    let failure = match result {
        Ok(()) if terminal.lacks_page() => return ExitCode::from(FAILED),
        Ok(()) => Terminal::output_failure(),
        Err(failure) => Some(failure),
    };
    failure.map_or(ExitCode::SUCCESS, |failure| {
        ExitCode::from(terminal.print_failure(failure))
    })
}

/// Prints help or a version, which are no failures, or the error in the command line.
fn print_clap_error(error: &clap::Error) -> ExitCode {
    let format = cli::format_of(std::env::args());
    if error.use_stderr() && format != OutputFormat::Text {
        let failure = usage_failure(usage_error_sentence(&error.render().to_string()));
        return ExitCode::from(Terminal::new(format, false).print_failure(failure));
    }
    if error.use_stderr() {
        // A terminal that is gone reads nothing.
        let _ = error.print();
        return ExitCode::from(USAGE);
    }
    match error.print() {
        Err(cause) if cause.kind() != ErrorKind::BrokenPipe => {
            Terminal::print_error(&format!("standard output is not complete: {cause}"));
            ExitCode::from(FAILED)
        }
        _ => ExitCode::SUCCESS,
    }
}

/// Returns the error in a command line as one sentence. What is missing, or excludes each other,
/// stands in lines of its own below the first.
fn usage_error_sentence(text: &str) -> String {
    let mut lines = text
        .lines()
        .take_while(|line| !line.trim().is_empty())
        .map(str::trim);
    let first = lines
        .next()
        .unwrap_or_default()
        .trim_start_matches("error: ");
    let names = lines.collect::<Vec<_>>().join(", ");
    if names.is_empty() {
        first.to_owned()
    } else {
        format!("{first} {names}")
    }
}
