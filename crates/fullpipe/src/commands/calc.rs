use fullpipe_calc::Hosts;
use fullpipe_host::{SysctlTree, inspect};
use fullpipe_record::{Calculation, Document, Framing, Given, HostSettings};
use fullpipe_report as report;
use fullpipe_units::{BitRate, ByteCount, Ratio, Span};

use crate::failure::{Failure, USAGE};
use crate::terminal::Terminal;

/// Give two of bandwidth, round-trip time and window: the third follows, and with it what this host's settings would make
/// of the path.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Rate of the path: 100Mbit/s, 1G
    #[arg(long, short, value_name = "RATE")]
    bandwidth: Option<BitRate>,
    /// Round-trip time: 173ms
    #[arg(long, short, value_name = "TIME")]
    rtt: Option<Span>,
    /// Window: 64KiB
    #[arg(long, short, value_name = "BYTES")]
    window: Option<ByteCount>,
    /// Share of packets lost: 0.01%
    #[arg(long, value_name = "RATIO")]
    loss: Option<Ratio>,
    /// Largest IP packet
    #[arg(long, default_value = "1500", value_name = "BYTES")]
    mtu: ByteCount,
    /// Whether the bandwidth counts Ethernet frames or IP packets
    #[arg(long, default_value = "ethernet", value_parser = parse_framing, value_name = "ethernet|ip")]
    framing: Framing,
    /// Parallel connections
    #[arg(long, short = 'P', default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=128), value_name = "N")]
    streams: u16,
    /// Congestion control
    #[arg(long, short = 'C', default_value = "cubic", value_name = "NAME")]
    congestion: String,
    /// Print one JSON document
    #[arg(long, short = 'J')]
    pub(crate) json: bool,
}

fn parse_framing(name: &str) -> Result<Framing, String> {
    match name {
        "ethernet" => Ok(Framing::Ethernet),
        "ip" => Ok(Framing::Ip),
        _ => Err("it is `ethernet` or `ip`".to_owned()),
    }
}

pub(crate) fn run(arguments: &Arguments, terminal: &Terminal) -> Result<(), Failure> {
    check(arguments)?;
    let settings = inspect(&SysctlTree::of_this_host()).map_err(|error| Failure::new(USAGE, error.to_string()))?;
    let calculation = calculate(arguments, settings)?;
    terminal.result(&report::calculation(&calculation, terminal.style()));
    terminal.document(&Document { calculation: Some(calculation), ..Document::new() });
    Ok(())
}

/// What no formula has an answer for.
fn check(arguments: &Arguments) -> Result<(), Failure> {
    let refuse = |sentence: &str| Err(Failure::new(USAGE, sentence));
    if arguments.bandwidth == Some(BitRate::ZERO) {
        return refuse("--bandwidth: a path of 0 bit/s carries nothing; write for example 100Mbit/s");
    }
    if arguments.rtt == Some(Span::ZERO) {
        return refuse("--rtt: a round trip takes some time; write for example 173ms");
    }
    if arguments.window == Some(ByteCount::ZERO) {
        return refuse("--window: a window of 0 bytes carries nothing; write for example 64KiB");
    }
    if arguments.loss.is_some_and(|loss| loss >= Ratio::ONE) {
        return refuse("--loss: a path that loses every packet carries nothing; write for example 0.01%");
    }
    if !(68..=65_535).contains(&arguments.mtu.get()) {
        return refuse("--mtu: an IPv4 packet has between 68 and 65535 bytes; write for example 1500");
    }
    Ok(())
}

fn calculate(arguments: &Arguments, settings: HostSettings) -> Result<Calculation, Failure> {
    let given = Given {
        bandwidth: arguments.bandwidth,
        rtt: arguments.rtt,
        window: arguments.window,
        loss: arguments.loss,
        mtu: Some(arguments.mtu),
        framing: arguments.framing,
        streams: Some(arguments.streams),
        congestion: Some(arguments.congestion.clone()),
        ..Given::default()
    };
    let hosts = Hosts { sender: settings.clone(), receiver: settings };
    fullpipe_calc::calculate(&given, &hosts, &[]).map_err(|error| Failure::new(USAGE, error.to_string()))
}
