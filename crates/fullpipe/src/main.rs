//! `fullpipe`: why a transfer does not fill the pipe, and what exactly would fix it.
//!
//! This crate parses the command line, calls one crate below it and prints what comes back.

// What needs Linux is left out elsewhere, and with it the only use of parts that are shared.
#![cfg_attr(not(target_os = "linux"), allow(dead_code, unused_imports))]

mod arguments;
mod cli;
mod commands;
mod failure;
mod input;
#[cfg(target_os = "linux")]
mod live;
#[cfg(target_os = "linux")]
mod other_roles;
mod sibling;
mod terminal;
mod values;
mod verbosity;
mod whole_file;

use std::io::ErrorKind;
use std::process::ExitCode;

use cli::Cli;
use commands::RunCommand;
use failure::{FAILED, Result, USAGE, usage_failure};
use terminal::{OutputFormat, Terminal};

fn main() -> ExitCode {
    #[cfg(target_os = "linux")]
    if let Some(code) = other_roles::run() {
        return code;
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
