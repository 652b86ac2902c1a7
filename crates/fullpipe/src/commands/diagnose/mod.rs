//! What limits a transfer, and what would lift the limit.

mod measured;

use fullpipe_units::BitRate;

use crate::commands::load::{Load, Server, Way};
use crate::failure::Failure;
use crate::terminal::Terminal;

/// Measures, says what limited the transfer and what shows it, and what would lift that limit: by how much, by which
/// commands, and how to undo them. Flags shared with iperf3 have its letters and its meaning.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Host that runs `fullpipe serve` or `iperf3 -s`, or HOST:PORT; then an IPv6 address is in brackets
    host: Server,
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
    /// Leave in place what --apply changed
    #[arg(long, requires = "apply")]
    keep: bool,
    /// Print one JSON document
    #[arg(long, short = 'J')]
    pub(crate) json: bool,
}

pub(crate) fn run(arguments: &Arguments, terminal: &Terminal) -> Result<(), Failure> {
    measured::run(arguments, &arguments.host, terminal)
}
