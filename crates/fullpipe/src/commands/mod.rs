//! One module a command: parse → call one room → print.

mod calc;
mod diff;
pub(crate) mod document;
mod emulated;
mod explain;
mod facts;
mod handed_over;
mod history;
mod keep;
mod offered_rate;
mod output;
mod prelude;
mod report;
mod rows;
mod scenario_file;
mod schema;
mod simulate;
mod state;
mod stated;
mod store;
mod trace;

cfg_if::cfg_if! {
    if #[cfg(target_os = "linux")] {
        mod capture;
        mod compare;
        mod completions;
        mod copy;
        mod daemon;
        mod demo;
        mod diagnose;
        mod every;
        mod far_end;
        mod fleet;
        mod grid_runs;
        mod host;
        pub(crate) mod iperf3;
        mod lab;
        mod live;
        mod load;
        mod log_thread;
        mod login;
        mod man;
        mod mcp;
        mod measure;
        mod pidfile;
        mod ramp;
        mod relay;
        mod serve;
        mod server_text;
        mod sweep;
        mod until_sure;
        mod up;
        mod web;
    } else {
        mod elsewhere;

        use elsewhere::{
            compare, completions, copy, demo, diagnose, fleet, host, iperf3, lab, man, mcp, measure,
            relay, serve, sweep, web,
        };
    }
}

use std::fmt::Write as _;
use std::io;

use clap::builder::StyledStr;
use clap::builder::styling::Styles;

use crate::commands::prelude::*;

/// A command: its arguments, which carry it out.
pub(crate) trait RunCommand {
    /// Returns the form of the result that the arguments ask for.
    fn output(&self) -> OutputChoice<'_> {
        (OutputFormat::Text, None)
    }

    /// Carries out the command.
    ///
    /// # Errors
    /// The sentence for the user and the exit code.
    fn run(&self, terminal: &Terminal) -> Result;
}

/// Makes the enum of all commands and the groups of the help, both in the order of the help.
macro_rules! commands {
    ($($group:literal: $($(#[$attribute:meta])* $name:ident($arguments:ty),)+)+) => {
        /// A command with its arguments.
        #[derive(Debug, Subcommand)]
        pub(crate) enum Command {
            $($($(#[$attribute])* $name(Box<$arguments>),)+)+
        }

        /// Names of the groups of commands, each with the variants of its commands.
        const COMMAND_GROUPS: &[(&str, &[&str])] = &[$(($group, &[$(stringify!($name)),+])),+];

        impl Command {
            fn arguments(&self) -> &dyn RunCommand {
                match self {
                    $($(Self::$name(arguments) => &**arguments),+),+
                }
            }
        }
    };
}

commands! {
    "Measure":
        Measure(measure::MeasureArguments),
        Diagnose(diagnose::DiagnoseArguments),
        Sweep(sweep::SweepServerArguments),
        Compare(compare::CompareServersArguments),
        Serve(serve::ServeArguments),
        #[command(disable_help_flag = true)]
        Iperf3(iperf3::RawArguments),
    "Explain":
        Calc(calc::CalcArguments),
        Trace(trace::CaptureTraceArguments),
        Diff(diff::DiffArguments),
        Explain(explain::ExplainArguments),
    "Change":
        Host(host::HostArguments),
        Copy(copy::CopyArguments),
        Relay(relay::RelayArguments),
    "Emulate":
        Demo(demo::DemoArguments),
        Lab(lab::LabArguments),
        Simulate(simulate::SimulateArguments),
    "Keep":
        Report(report::ReportArguments),
        Store(store::StoreArguments),
        History(history::HistoryArguments),
        Web(web::WebArguments),
        Fleet(fleet::FleetArguments),
    "Tools":
        Schema(schema::SchemaArguments),
        Completions(completions::CompletionsArguments),
        Man(man::ManArguments),
        Mcp(mcp::McpArguments),
}

/// Returns the template of the program's help, which lists the commands by group, each in one line.
pub(crate) fn help_template(styles: &Styles) -> StyledStr {
    let commands = Command::augment_subcommands(clap::Command::new("fullpipe"));
    let (header, literal) = (styles.get_header(), styles.get_literal());
    let mut text = "{about-with-newline}{usage-heading} {usage}\n\n".to_owned();
    for (group, variants) in COMMAND_GROUPS {
        let _ = writeln!(text, "{header}{group}:{header:#}");
        for name in variants.iter().map(|variant| variant.to_lowercase()) {
            let about = commands
                .find_subcommand(&name)
                .and_then(clap::Command::get_about)
                .cloned();
            let _ = writeln!(
                text,
                "  {literal}{name:<11}{literal:#}  {}",
                about.unwrap_or_default()
            );
        }
    }
    let _ = write!(
        text,
        "\n{header}Options:{header:#}\n{{options}}{{after-help}}"
    );
    text.into()
}

impl RunCommand for Command {
    fn output(&self) -> OutputChoice<'_> {
        self.arguments().output()
    }

    fn run(&self, terminal: &Terminal) -> Result {
        self.arguments().run(terminal)
    }
}

/// Makes Ctrl-C the affair of a program that has the terminal too; this one ends after it.
fn leave_interrupts_to_others() -> Result {
    let ignored = signal_hook::flag::register(signal_hook::consts::SIGINT, Arc::default());
    ignored.map(drop).map_err(cannot("ignore Ctrl-C"))
}

/// A flag that a request to end sets (SIGTERM, SIGHUP), so that a program that was started can be
/// ended first.
#[cfg(target_os = "linux")]
fn end_flag() -> Result<Arc<AtomicBool>> {
    use signal_hook::consts::{SIGHUP, SIGTERM};
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&flag))
            .map_err(cannot("listen for a request to end"))?;
    }
    Ok(flag)
}

/// A flag that Ctrl-C sets, so that work can end cleanly; the second Ctrl-C ends the program at
/// once.
fn interrupt_flag() -> Result<Arc<AtomicBool>> {
    use signal_hook::consts::{SIGINT, SIGTERM};
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        let (first, second) = (Arc::clone(&flag), Arc::clone(&flag));
        signal_hook::flag::register_conditional_shutdown(signal, INTERRUPTED.into(), second)
            .and_then(|_| signal_hook::flag::register(signal, first))
            .map_err(|error| cannot_listen(&error))?;
    }
    Ok(flag)
}

/// Does `work` until it ends, or until the user ends the program.
#[cfg(target_os = "linux")]
async fn until_asked_to_end(work: impl Future<Output = Result>) -> Result {
    use tokio::signal::unix::{SignalKind, signal};
    let mut interrupt = signal(SignalKind::interrupt()).map_err(|error| cannot_listen(&error))?;
    let mut end = signal(SignalKind::terminate()).map_err(|error| cannot_listen(&error))?;
    tokio::select! {
        done = work => done,
        _ = interrupt.recv() => Err(Failure::already_printed(INTERRUPTED)),
        _ = end.recv() => Err(Failure::already_printed(INTERRUPTED)),
    }
}

fn cannot_listen(error: &io::Error) -> Failure {
    run_failure(format!("cannot listen for Ctrl-C: {error}"))
}
