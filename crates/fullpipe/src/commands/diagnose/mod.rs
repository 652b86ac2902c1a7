//! What limits a transfer, and what would lift the limit.

mod measured;
mod watched;

use std::net::SocketAddr;
use std::str::FromStr;

use fullpipe_observe::Subject;
use fullpipe_units::BitRate;

use crate::cli::OutputArguments;
use crate::commands::host::JournalFolder;
use crate::commands::load::{Load, Server, Way};
use crate::failure::{Failure, USAGE};
use crate::terminal::Terminal;

/// The group in one line is too wide for a terminal.
const USAGES: &str = "\
fullpipe diagnose [OPTIONS] <HOST|URL>
       fullpipe diagnose [OPTIONS] --pid <PID>
       fullpipe diagnose [OPTIONS] --connection <HERE:PORT> <THERE:PORT>
       fullpipe diagnose [OPTIONS] -- <COMMAND>...";

/// Measures, says what limited the transfer and what shows it, and what would lift that limit: by how much, by which
/// commands, and how to undo them. Flags shared with iperf3 have its letters and its meaning.
///
/// Without a server at the far end, watches the connections of other programs and explains them, without sending a byte.
#[derive(Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("subject").required(true)), override_usage = USAGES)]
pub(crate) struct Arguments {
    /// Host that runs `fullpipe serve` or `iperf3 -s`, or HOST:PORT; then an IPv6 address is in brackets. Or an address that
    /// begins with http:// or https://, which is downloaded with `curl` and thrown away: up to 10 s (--time) and 16 GiB
    /// (--bytes)
    #[arg(group = "subject", value_name = "HOST|URL")]
    target: Option<Target>,
    /// Watch the connections of this process and of those that it started, for 5 s or --time
    #[arg(long, group = "subject", value_name = "PID")]
    pid: Option<u32>,
    /// Watch one connection, this end's address and port first
    #[arg(long, group = "subject", num_args = 2, value_names = ["HERE:PORT", "THERE:PORT"])]
    connection: Option<Vec<SocketAddr>>,
    /// A program and its arguments, to be run and watched until it ends or --time is over
    #[arg(last = true, group = "subject", value_name = "COMMAND")]
    command: Option<Vec<String>>,
    #[command(flatten)]
    way: Way,
    #[command(flatten)]
    load: Load,
    /// What the path can carry, if you know it: the verdict then need not guess
    #[arg(long, value_name = "RATE")]
    bandwidth: Option<BitRate>,
    /// Carry out this remedy of the list, by its number or its name: change this host or the load, measure again, compare
    /// with the prediction, and undo it. What the other end must change is printed
    #[arg(long, value_name = "N|NAME")]
    apply: Option<String>,
    /// Leave in place what --apply changed; `fullpipe host undo` takes it back
    #[arg(long, requires = "apply")]
    keep: bool,
    #[command(flatten)]
    journal: JournalFolder,
    #[command(flatten)]
    pub(crate) output: OutputArguments,
}

pub(crate) fn run(arguments: &Arguments, terminal: &Terminal) -> Result<(), Failure> {
    match (&arguments.target, arguments.pid, arguments.connection.as_deref(), arguments.command.as_deref()) {
        (Some(Target::Host(host)), ..) => measured::run(arguments, host, terminal),
        _ if arguments.apply.is_some() => {
            let message = "--apply measures again, which takes a server at the far end: name its host";
            Err(Failure::new(USAGE, message))
        }
        (Some(Target::Url(url)), ..) => watched::run_download(arguments, url, terminal),
        (_, Some(pid), ..) => watched::run(arguments, Subject::Process(pid), terminal),
        (_, _, Some(&[local, remote]), _) => watched::run(arguments, Subject::Connection(local, remote), terminal),
        (_, _, _, Some(words)) => watched::run_command(arguments, words, terminal),
        _ => Err(Failure::new(USAGE, "nothing to diagnose is named")),
    }
}

/// What is diagnosed by name.
#[derive(Debug, Clone)]
enum Target {
    Host(Server),
    Url(String),
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let scheme = text.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
        match scheme.as_deref() {
            Some("http" | "https") => Ok(Self::Url(text.to_owned())),
            Some(other) => Err(format!("{other}:// is not known; http:// and https:// are")),
            None => text.parse().map(Self::Host),
        }
    }
}
