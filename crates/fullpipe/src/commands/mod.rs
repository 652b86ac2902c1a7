//! One module a command: parse → call one room → print.

mod calc;
mod capture;
mod compare;
mod completions;
mod copy;
mod daemon;
mod demo;
mod diagnose;
mod diff;
pub(crate) mod document;
mod emulated;
mod every;
mod explain;
mod facts;
mod grid_runs;
mod history;
mod host;
pub(crate) mod iperf3;
mod keep;
mod lab;
mod live;
mod load;
mod log_thread;
mod login;
mod man;
mod measure;
mod output;
mod pidfile;
mod ramp;
mod relay;
mod report;
mod schema;
mod serve;
mod server_text;
mod simulate;
mod state;
mod store;
mod sweep;
mod trace;
mod up;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::Subcommand;

use crate::failure::{FAILED, Failure, INTERRUPTED};
use crate::terminal::{Format, Terminal};

/// A command: its arguments, which carry it out.
pub(crate) trait Run {
    /// Returns the form of standard output that the arguments ask for.
    fn format(&self) -> Format {
        Format::Text
    }

    /// Returns the file for the result as a page, if the arguments ask for one.
    fn page(&self) -> Option<&Path> {
        None
    }

    /// Carries out the command.
    ///
    /// # Errors
    /// The sentence for the user and the exit code.
    fn run(&self, terminal: &Terminal) -> Result<(), Failure>;
}

/// Makes the enum of all commands, in the order of the help.
macro_rules! commands {
    ($($(#[$attribute:meta])* $name:ident($arguments:ty)),+ $(,)?) => {
        /// A command with its arguments.
        #[derive(Debug, Subcommand)]
        pub(crate) enum Command {
            $($(#[$attribute])* $name(Box<$arguments>)),+
        }

        impl Command {
            fn arguments(&self) -> &dyn Run {
                match self {
                    $(Self::$name(arguments) => &**arguments),+
                }
            }
        }
    };
}

commands! {
    Demo(demo::Arguments),
    Calc(calc::Arguments),
    Serve(serve::Arguments),
    Measure(measure::Arguments),
    Diagnose(diagnose::Arguments),
    Diff(diff::Arguments),
    Sweep(sweep::Arguments),
    Copy(copy::Arguments),
    Relay(relay::Arguments),
    Trace(trace::Arguments),
    Explain(explain::Arguments),
    #[command(disable_help_flag = true)]
    Iperf3(iperf3::Raw),
    Host(host::Arguments),
    Lab(lab::Arguments),
    Simulate(simulate::Arguments),
    Report(report::Arguments),
    Store(store::Arguments),
    History(history::Arguments),
    Schema(schema::Arguments),
    Completions(completions::Arguments),
    Man(man::Arguments),
}

impl Run for Command {
    fn format(&self) -> Format {
        self.arguments().format()
    }

    fn page(&self) -> Option<&Path> {
        self.arguments().page()
    }

    fn run(&self, terminal: &Terminal) -> Result<(), Failure> {
        self.arguments().run(terminal)
    }
}

/// Makes Ctrl-C the affair of a program that has the terminal too; this one ends after it.
fn leave_interrupts_to_others() -> Result<(), Failure> {
    let ignored = signal_hook::flag::register(signal_hook::consts::SIGINT, Arc::default());
    ignored.map(drop).map_err(|error| Failure::new(FAILED, format!("cannot ignore Ctrl-C: {error}")))
}

/// A flag that a request to end sets (SIGTERM, SIGHUP), so that a program that was started can be ended first.
fn end_flag() -> Result<Arc<AtomicBool>, Failure> {
    use signal_hook::consts::{SIGHUP, SIGTERM};
    let flag = Arc::new(AtomicBool::new(false));
    let register = |signal| signal_hook::flag::register(signal, Arc::clone(&flag)).map(drop);
    let registered = register(SIGTERM).and_then(|()| register(SIGHUP));
    registered.map_err(|error| Failure::new(FAILED, format!("cannot listen for a request to end: {error}")))?;
    Ok(flag)
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
