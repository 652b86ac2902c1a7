//! One module a command: parse → call one room → print.

pub(crate) mod calc;
mod daemon;
pub(crate) mod demo;
pub(crate) mod diagnose;
pub(crate) mod explain;
pub(crate) mod host;
pub(crate) mod iperf3;
pub(crate) mod lab;
pub(crate) mod load;
mod login;
pub(crate) mod measure;
pub(crate) mod ramp;
pub(crate) mod schema;
pub(crate) mod serve;
mod server_text;
mod up;

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::cli::{Cli, Command};
use crate::failure::{FAILED, Failure, INTERRUPTED};
use crate::terminal::Terminal;

/// Carries out what the command line asks for.
pub(crate) fn run(cli: Cli, terminal: &Terminal) -> Result<(), Failure> {
    match cli.command {
        Command::Demo(arguments) => demo::run(&arguments, terminal),
        Command::Calc(arguments) => calc::run(&arguments, terminal),
        Command::Serve(arguments) => serve::run(&arguments),
        Command::Measure(arguments) => measure::run(&arguments, terminal),
        Command::Diagnose(arguments) => diagnose::run(&arguments, terminal),
        Command::Explain(arguments) => explain::run(&arguments, terminal),
        Command::Iperf3(arguments) => iperf3::run(&arguments.all),
        Command::Host(arguments) => host::run(&arguments, terminal),
        Command::Lab(arguments) => lab::run(&arguments, terminal),
        Command::Schema(arguments) => {
            schema::run(&arguments, terminal);
            Ok(())
        }
    }
}

/// Makes Ctrl-C the affair of a program that has the terminal too; this one ends after it.
fn leave_interrupts_to_others() -> Result<(), Failure> {
    let ignored = signal_hook::flag::register(signal_hook::consts::SIGINT, Arc::default());
    ignored.map(drop).map_err(|error| Failure::new(FAILED, format!("cannot ignore Ctrl-C: {error}")))
}

/// A flag that Ctrl-C sets, so that work can end cleanly; the second Ctrl-C ends the program at once.
fn interrupt_flag() -> Result<Arc<AtomicBool>, Failure> {
    use signal_hook::consts::{SIGINT, SIGTERM};
    let flag = Arc::new(AtomicBool::new(false));
    let register = |signal| -> io::Result<()> {
        signal_hook::flag::register_conditional_shutdown(signal, INTERRUPTED.into(), Arc::clone(&flag))?;
        signal_hook::flag::register(signal, Arc::clone(&flag))?;
        Ok(())
    };
    let registered = register(SIGINT).and_then(|()| register(SIGTERM));
    registered.map_err(|error| Failure::new(FAILED, format!("cannot listen for Ctrl-C: {error}")))?;
    Ok(flag)
}
