//! `fullpipe`: why a transfer does not fill the pipe, and what exactly would fix it.
//!
//! This crate parses the command line, calls one room and prints what comes back.

mod cli;
mod commands;
mod failure;
mod sibling;
mod terminal;

use std::process::ExitCode;

use clap::Parser;
use fullpipe_lab::keeper;

use cli::Cli;
use commands::iperf3;
use failure::{Failure, USAGE};
use terminal::{Format, Terminal};

fn main() -> ExitCode {
    // Before anything else, because the keeper may not have a second thread.
    if std::env::args_os().nth(1).is_some_and(|argument| argument == keeper::ARGUMENT) {
        return keeper::main();
    }
    let mut words = std::env::args_os();
    if words.next().is_some_and(|program| iperf3::is_meant_by(&program)) {
        let terminal = Terminal::new(Format::Text, false);
        return finish(&terminal, iperf3::run(&words.collect::<Vec<_>>()));
    }
    match Cli::try_parse() {
        Ok(cli) => {
            let terminal = Terminal::new(cli.format(), cli.quiet);
            finish(&terminal, commands::run(cli, &terminal))
        }
        Err(error) => explain(&error),
    }
}

fn finish(terminal: &Terminal, result: Result<(), Failure>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            terminal.failure(&failure);
            ExitCode::from(failure.code)
        }
    }
}

/// Help and versions are no failures; everything else that clap says is about the command line.
fn explain(error: &clap::Error) -> ExitCode {
    let format = cli::format_of(std::env::args());
    if error.use_stderr() && format != Format::Text {
        let text = error.render().to_string();
        let sentence = text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned();
        Terminal::new(format, false).failure(&Failure::new(USAGE, sentence));
        return ExitCode::from(USAGE);
    }
    // Nobody is left to tell if the terminal is gone.
    let _ = error.print();
    if error.use_stderr() { ExitCode::from(USAGE) } else { ExitCode::SUCCESS }
}
