//! `fullpipe diagnose`: the limit of a transfer, and what would lift it.

mod completion;
mod measured;
mod own_flags;
mod progress;
mod seen;
mod watched;

use std::net::SocketAddr;
use std::str::FromStr;

use fullpipe_observe::WatchSubject;

use crate::commands::capture::CaptureArgument;
use crate::commands::handed_over::{self, HandedArguments};
use crate::commands::host::JournalFolder;
use crate::commands::load::{MeasureLoadArguments, RouteArguments, ServerAddress};
use crate::commands::stated::StatedEnds;
use crate::commands::until_sure::UntilSureArgument;

use own_flags::OwnFlags;

use super::prelude::*;

/// The group in one line is too wide for a terminal.
const USAGES: &str = "\
fullpipe diagnose [OPTIONS] <HOST|URL>
       fullpipe diagnose [OPTIONS] --pid <PID>
       fullpipe diagnose [OPTIONS] --connection <HERE> <THERE>
       fullpipe diagnose [OPTIONS] --from <FILE>...
       fullpipe diagnose [OPTIONS] -- <COMMAND>...";

/// The limit of a transfer, what would lift it, and the proof.
///
/// Measures, names the limit with its evidence, and lists remedies with the predicted gain, the
/// commands and their undo. Flags shared with iperf3 have its letters and its meaning, but for its
/// --window, which is --buffer (-w) here.
///
/// Without a server at the far end, watches the connections of other programs. Sends no byte to
/// watch a process or a connection; for a COMMAND or URL whose SYN was changed on the way, asks the
/// routers where (SYN probes, up to 4 s).
#[derive(Debug, Args)]
#[command(group(clap::ArgGroup::new("subject").required(true)), override_usage = USAGES)]
// The short help is one screen.
#[command(mut_arg("length", |length| length.hide_short_help(true)))]
pub(crate) struct DiagnoseArguments {
    // Before the flags themselves: whoever reads one takes it out of what was given.
    #[command(flatten)]
    own_flags: OwnFlags,
    /// HOST, HOST:PORT, `ssh://HOST`, or http(s) URL to download
    ///
    /// The server runs `fullpipe serve` or `iperf3 -s`; with `ssh://` it needs to run nothing:
    /// fullpipe is started there for this command. Write an IPv6 address with a port in brackets. A
    /// URL is downloaded with `curl` and discarded: up to 10 s (--time) and 16 GiB
    /// (--bytes).
    #[arg(group = "subject", value_name = "HOST|URL")]
    target: Option<DiagnoseTarget>,
    /// Watch this process and its children
    ///
    /// Watches their connections for 5 s, or --time.
    #[arg(long, help_heading = "Watch", group = "subject", value_parser = integer_parser(1..=u32::MAX), value_name = "PID")]
    pid: Option<u32>,
    /// Size of what is sent [default: of the file that the process reads]
    ///
    /// From it follows when the transfer is complete; counted since its connections were opened.
    #[arg(long, help_heading = "Watch", value_name = "BYTES", value_parser = some_bytes, conflicts_with_all = ["target", "from", "command"], hide_short_help = true)]
    size: Option<ByteCount>,
    /// Watch one connection, this end first
    ///
    /// Each end is ADDRESS:PORT, as `ss -tn` prints them.
    #[arg(long, help_heading = "Watch", group = "subject", num_args = 2, value_names = ["HERE", "THERE"])]
    connection: Option<Vec<SocketAddr>>,
    /// Read what you have (explain inputs)
    ///
    /// Listings of ss, results, captures and counters. Results are what fullpipe printed with
    /// --json, or iperf3 with -J. `ss -tinmoe` may list
    /// once, or several times with a time before each (`date +%s.%N`). - is standard input. Says
    /// what limits the transfers, or what to look at next. `fullpipe explain inputs` has more.
    #[arg(long, help_heading = "Watch", group = "subject", num_args = 1.., value_name = "FILE")]
    from: Option<Vec<PathBuf>>,
    /// Program to run and watch, with its arguments
    ///
    /// It is watched until it ends, or for --time; then it is asked to end (SIGTERM).
    #[arg(last = true, group = "subject", value_name = "COMMAND")]
    command: Option<Vec<String>>,
    #[command(flatten)]
    way: RouteArguments,
    /// Capacity of the path, if known; it makes the verdict surer
    #[arg(long, value_name = "RATE", value_parser = parse_capacity, help_heading = "Path")]
    bandwidth: Option<BitRate>,
    #[command(flatten)]
    stated: StatedEnds,
    /// Try this remedy of the list, by number or name
    ///
    /// Changes this host or the load, measures again, compares with the prediction, and undoes the
    /// change. A remedy that changes the other end is tried there, too, if that is `ssh://HOST`;
    /// otherwise it is not tried (exit code 3): its commands are printed, to be run there.
    #[arg(long, help_heading = "Remedy", value_name = "N|NAME")]
    apply: Option<String>,
    /// Keep the changes of --apply until `fullpipe host undo`
    #[arg(long, requires = "apply", help_heading = "Remedy")]
    keep: bool,
    #[command(flatten)]
    capture: CaptureArgument,
    #[command(flatten)]
    load: MeasureLoadArguments,
    #[command(flatten)]
    until_sure: UntilSureArgument,
    #[command(flatten)]
    journal: JournalFolder,
    #[command(flatten)]
    archive: KeepArguments,
    #[command(flatten)]
    live: LiveArgument,
    #[command(flatten)]
    output: OutputArguments,
}

impl RunCommand for DiagnoseArguments {
    fn output(&self) -> OutputChoice<'_> {
        self.output.output_choice()
    }

    fn run(&self, terminal: &Terminal) -> Result {
        self.own_flags.check_target(self.target.as_ref())?;
        self.stated.check_flags(self.from.is_some())?;
        if let (Some(files), None) = (&self.from, &self.apply) {
            let known = HandedArguments {
                bandwidth: self.bandwidth,
                stated: &self.stated,
                output: &self.output,
            };
            return handed_over::run(&known, files, terminal);
        }
        match (
            &self.target,
            self.pid,
            self.connection.as_deref(),
            self.command.as_deref(),
        ) {
            (Some(DiagnoseTarget::Host(_)), ..) if self.live.is_wanted() => {
                let message = "--live draws what other programs do here; for a test of its own, use `fullpipe measure --live`";
                Err(usage_failure(message))
            }
            (Some(DiagnoseTarget::Host(host)), ..) => measured::run(self, host, terminal),
            _ if self.apply.is_some() => {
                let message =
                    "--apply measures again, which takes a server at the far end: name its host";
                Err(usage_failure(message))
            }
            (Some(DiagnoseTarget::Url(_)), ..) | (_, _, _, Some(_)) if self.capture.is_wanted() => {
                let message = "--capture needs to know the connections before: name a server, or use --pid or --connection";
                Err(usage_failure(message))
            }
            (Some(DiagnoseTarget::Url(url)), ..) => watched::run_download(self, url, terminal),
            (_, Some(pid), ..) => watched::run(self, WatchSubject::Process(pid), terminal),
            (_, _, Some(&[local, remote]), _) => {
                watched::run(self, WatchSubject::Connection(local, remote), terminal)
            }
            (_, _, _, Some(words)) => watched::run_command(self, words, terminal),
            _ => Err(usage_failure("nothing to diagnose is named")),
        }
    }
}

/// Subject that has a name.
#[derive(Debug, Clone)]
enum DiagnoseTarget {
    Host(ServerAddress),
    Url(String),
}

impl FromStr for DiagnoseTarget {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let scheme = text
            .split_once("://")
            .map(|(scheme, _)| scheme.to_ascii_lowercase());
        match scheme.as_deref() {
            Some("http" | "https") => Ok(Self::Url(text.to_owned())),
            Some(other) if other != "ssh" => Err(format!(
                "{other}:// is not known; ssh://, http:// and https:// are"
            )),
            _ => text.parse().map(Self::Host),
        }
    }
}
