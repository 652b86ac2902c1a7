use fullpipe_host::{SysctlTree, inspect};
use fullpipe_model::loss::CongestionControl;
use fullpipe_model::{kernel, predict, window};
use fullpipe_record::{
    Buffer, BufferAdvice, Calculation, Document, Encapsulation, Framing, HostSettings, IpVersion, Path, PathDirection,
    Request, Solved,
};
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
    let calculation = calculate(arguments, &settings)?;
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

fn calculate(arguments: &Arguments, settings: &HostSettings) -> Result<Calculation, Failure> {
    let (solved, rtt, size) = match (arguments.bandwidth, arguments.rtt, arguments.window) {
        (Some(rate), Some(rtt), None) => (Solved::Window, rtt, window::bdp(rate, rtt)),
        (Some(rate), None, Some(size)) => (Solved::Rtt, window::rtt(size, rate), size),
        (_, Some(rtt), Some(size)) => (Solved::Rate, rtt, size),
        _ => {
            let sentence = "calc needs two of --bandwidth, --rtt and --window, as in \
                            `fullpipe calc --bandwidth 100Mbit/s --rtt 173ms`";
            return Err(Failure::new(USAGE, sentence));
        }
    };
    let by_window = window::rate(size, rtt);
    let request = Request {
        streams: arguments.streams,
        congestion: Some(arguments.congestion.clone()),
        buffer: arguments.window.map_or(Buffer::Automatic, Buffer::Window),
        ..Request::default()
    };
    let prediction = predict(&path(arguments, rtt), settings, settings, &request);
    Ok(Calculation {
        solved,
        bandwidth: arguments.bandwidth,
        rtt,
        window: size,
        rate: arguments.bandwidth.map_or(by_window, |bandwidth| by_window.min(bandwidth)),
        mss: prediction.mss,
        efficiency: prediction.efficiency,
        buffers: buffers(arguments, settings, size, prediction.mss),
        prediction,
    })
}

/// The path that the arguments describe, the same both ways, with a queue of one BDP.
fn path(arguments: &Arguments, rtt: Span) -> Path {
    let direction = PathDirection {
        rate: arguments.bandwidth,
        delay: Span::ZERO,
        queue: arguments.bandwidth.map(|rate| window::bdp(rate, rtt)),
        loss: arguments.loss,
        mtu: arguments.mtu,
        framing: arguments.framing,
        ip: IpVersion::V4,
        encapsulation: Encapsulation::default(),
    };
    Path::symmetric(&direction, rtt)
}

fn buffers(arguments: &Arguments, settings: &HostSettings, size: ByteCount, mss: ByteCount) -> BufferAdvice {
    let congestion = CongestionControl::named(&arguments.congestion).unwrap_or(CongestionControl::Cubic);
    BufferAdvice {
        tcp_rmem_max: kernel::tcp_rmem_max_for(settings, size),
        tcp_wmem_max: kernel::tcp_wmem_max_for(congestion, size),
        so_rcvbuf: kernel::request_for_window(settings, size, mss),
        rmem_max: kernel::rmem_max(settings),
    }
}
