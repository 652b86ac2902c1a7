cfg_if::cfg_if! {
    if #[cfg(target_os = "linux")] {
        mod assumed_host;
    } else {
        use super::elsewhere::assumed_host;
    }
}

use std::io::ErrorKind;
use std::iter;
use std::num::NonZeroUsize;
use std::thread;

use fullpipe_model::calc::{
    BatchError, CalculationBatch, CombinationAxes, HostPair, QuantitySetting, WhatIfChange,
    calculate, read_values,
};
use fullpipe_model::kernel::default_settings;
use fullpipe_record::{
    Change, Encapsulation, Framing, HostSettings, Inputs, IpVersion, KernelVersion, Quantity,
    StatedLoad, Tunnel,
};
use fullpipe_scenario::{PathSpec, parse_host_flag, parse_path_flag};

use super::prelude::*;
use super::simulate::path_key;
use super::stated::{EndSystems, LoadLists};
use crate::input;
use crate::values::{QuantityValues, values_parser};

/// Solve path equations for bandwidth, RTT, window, loss or streams
///
/// Takes at least two of bandwidth, round-trip time and window. Computes the rest, and what two
/// hosts reach on the path.
#[derive(Debug, Args)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct CalcArguments {
    /// Capacity of the path: 100Mbit/s, 1G
    #[arg(long, help_heading = "Path", value_name = "RATE", value_parser = values_parser(Quantity::Bandwidth))]
    bandwidth: Option<QuantityValues>,
    /// Round-trip time of the path: 173ms
    #[arg(long, short, help_heading = "Path", value_name = "TIME", value_parser = values_parser(Quantity::Rtt))]
    rtt: Option<QuantityValues>,
    /// Distance of the hosts, for a guess at the RTT: 8000km
    #[arg(long, help_heading = "Path", value_name = "DISTANCE", value_parser = values_parser(Quantity::Distance))]
    distance: Option<QuantityValues>,
    /// Share of packets lost: 0.01%
    #[arg(long, help_heading = "Path", value_name = "RATIO", value_parser = values_parser(Quantity::Loss))]
    loss: Option<QuantityValues>,
    /// Maximum size of an IP packet [default: 1500]
    #[arg(long, help_heading = "Path", value_name = "BYTES", value_parser = values_parser(Quantity::Mtu))]
    mtu: Option<QuantityValues>,
    /// More of the path, as policer=500M 19MB
    ///
    /// The keys are those of `simulate --path`.
    #[arg(long, help_heading = "Path", value_name = "KEY=VALUE,…")]
    path: Option<String>,
    /// Rate to which a device holds each flow
    ///
    /// As clouds do.
    #[arg(long, help_heading = "Path", value_name = "RATE", value_parser = some_rate)]
    flow_cap: Option<BitRate>,
    #[command(flatten)]
    lists: LoadLists,
    /// Size of the transfer: 10GiB
    #[arg(long, help_heading = "Load", value_name = "BYTES", value_parser = values_parser(Quantity::Size))]
    size: Option<QuantityValues>,
    /// Wanted rate of payload
    #[arg(long, help_heading = "Target", value_name = "RATE", value_parser = some_rate)]
    rate: Option<BitRate>,
    /// Wanted duration of a transfer of --size
    #[arg(long, short, help_heading = "Target", value_name = "SECONDS", value_parser = some_time)]
    time: Option<Span>,
    /// Effect of a change: rtt=4ms, window=4MiB, relay; repeatable
    #[arg(
        long,
        help_heading = "Target",
        value_name = "KEY=VALUE",
        value_parser = |text: &str| WhatIfChange::read(text)
    )]
    what_if: Vec<WhatIfChange>,
    /// Layer that --bandwidth counts
    #[arg(
        long,
        help_heading = "Path",
        default_value = "ethernet",
        value_parser = parse_framing,
        value_name = "ethernet|ip"
    )]
    framing: Framing,
    /// IPv6
    #[arg(long, short = '6', help_heading = "Path", hide_short_help = true)]
    ipv6: bool,
    /// VLAN tags on each frame
    #[arg(
        long,
        help_heading = "Path",
        value_name = "N",
        default_value_t = 0,
        hide_short_help = true,
        value_parser = integer_parser(0..=2_u8)
    )]
    vlan: u8,
    /// Tunnel: gre, vxlan, wireguard, ipsec, pppoe
    #[arg(long, help_heading = "Path", value_name = "NAME", value_parser = parse_tunnel)]
    tunnel: Option<Tunnel>,
    #[command(flatten)]
    systems: EndSystems,
    /// Rate that one processor of an end carries of each stream, as of a cipher
    #[arg(long, help_heading = "Hosts", value_name = "RATE", hide_short_help = true, value_parser = some_rate)]
    cpu_rate: Option<BitRate>,
    /// Default settings of this Linux, as 5.15, in place of this host's
    #[arg(long, help_heading = "Hosts", value_name = "VERSION", value_parser = parse_kernel)]
    kernel: Option<KernelVersion>,
    /// Settings of the sender, as `tcp_wmem=64MiB`
    #[arg(
        long,
        help_heading = "Hosts",
        value_name = "KEY=VALUE,…",
        value_parser = |text: &str| parse_host_flag(text).map(SettingChanges)
    )]
    sender: Option<SettingChanges>,
    /// Settings of the receiver, as `tcp_rmem=64MiB`
    #[arg(
        long,
        help_heading = "Hosts",
        value_name = "KEY=VALUE,…",
        value_parser = |text: &str| parse_host_flag(text).map(SettingChanges)
    )]
    receiver: Option<SettingChanges>,
    /// CSV file with a row for each question; - is standard input
    #[arg(long, help_heading = "Target", value_name = "FILE", conflicts_with_all = ["csv", "json"])]
    batch: Option<String>,
    /// Print one line of CSV for each combination
    #[arg(long, help_heading = "Output", conflicts_with = "json")]
    csv: bool,
    #[command(flatten)]
    json: JsonArgument,
}

const AFTER_HELP: &str = "\
Quantities of path and load may be lists, 64KiB,1MiB, or ranges, 10ms..200ms
(by 1, 2, 5, sizes by doublings) or 10ms..200ms+10ms. Then each combination is a
row of a table.

The columns of --batch have the names of these flags; cells are written as the
flags are, or as bare bit/s, seconds, metres, bytes and fractions. What the file
leaves out comes from the flags. A row that is wrong ends the output before it.";

#[derive(Debug, Clone)]
struct SettingChanges(Vec<Change>);

fn some_rate(text: &str) -> Result<BitRate, String> {
    let rate = parse_quantity(text)?;
    if rate == BitRate::ZERO {
        Err("0 bit/s is nothing to want; write for example 500Mbit/s".to_owned())
    } else {
        Ok(rate)
    }
}

fn some_time(text: &str) -> Result<Span, String> {
    let time = parse_duration(text)?;
    if time == Span::ZERO {
        Err("nothing is carried in no time; write for example 60s".to_owned())
    } else {
        Ok(time)
    }
}

fn parse_framing(name: &str) -> Result<Framing, String> {
    match name {
        "ethernet" => Ok(Framing::Ethernet),
        "ip" => Ok(Framing::Ip),
        _ => Err("it is `ethernet` or `ip`".to_owned()),
    }
}

fn parse_kernel(release: &str) -> Result<KernelVersion, String> {
    release
        .parse()
        .map_err(|error| format!("{error}; write for example 5.15"))
}

fn parse_tunnel(name: &str) -> Result<Tunnel, String> {
    match name {
        "gre" => Ok(Tunnel::Gre),
        "vxlan" => Ok(Tunnel::Vxlan),
        "wireguard" => Ok(Tunnel::WireGuard),
        "ipsec" => Ok(Tunnel::Ipsec),
        "pppoe" => Ok(Tunnel::Pppoe),
        _ => Err("it is `gre`, `vxlan`, `wireguard`, `ipsec` or `pppoe`".to_owned()),
    }
}

impl RunCommand for CalcArguments {
    fn output(&self) -> OutputChoice<'_> {
        self.json.output_choice()
    }

    fn run(&self, terminal: &Terminal) -> Result {
        let hosts = host_settings(self)?;
        let mut axes = CombinationAxes::new(fixed_inputs(self)?, quantity_lists(self))?;
        let is_plain = self.batch.is_none() && !self.csv && !axes.is_table();
        let lacks_rtt = is_plain && axes.lacks_rtt();
        if lacks_rtt {
            axes = axes.over_round_trips(read_values(Quantity::Rtt, USUAL_ROUND_TRIPS)?);
        }
        let many = self.batch.is_some() || self.csv || axes.is_table();
        if many && (self.rate.is_some() || self.time.is_some() || !self.what_if.is_empty()) {
            let sentence = "--rate, --time and --what-if ask about one combination; leave them out of a table, or give \
                            each quantity one value";
            return Err(usage_failure(sentence));
        }
        match &self.batch {
            Some(file) => run_batch_file(file, &axes, &hosts),
            None if self.csv => write_batch(&CalculationBatch::of_lists(&axes, &hosts)?, "--csv"),
            None if axes.is_table() => {
                print_table(&axes, &hosts, terminal)?;
                if lacks_rtt {
                    terminal.print_result(&format!("{RTT_UNKNOWN}\n"));
                }
                Ok(())
            }
            None => print_solution(self, &axes, &hosts, terminal),
        }
    }
}

fn host_settings(arguments: &CalcArguments) -> Result<HostPair> {
    let plain = match arguments.kernel {
        Some(kernel) => default_settings(kernel),
        None => assumed_host::settings()?,
    };
    let [sender, receiver] = arguments.systems.host_settings(&plain);
    let [sender, receiver] =
        [(sender, &arguments.sender), (receiver, &arguments.receiver)].map(|(host, changes)| {
            host.changed_by(changes.iter().flat_map(|SettingChanges(changes)| changes))
        });
    Ok(HostPair { sender, receiver })
}

/// Returns the quantities that have one value for all combinations.
fn fixed_inputs(arguments: &CalcArguments) -> Result<Inputs> {
    let inputs = Inputs {
        framing: arguments.framing,
        ip: if arguments.ipv6 {
            IpVersion::V6
        } else {
            IpVersion::V4
        },
        encapsulation: Encapsulation {
            vlan_tags: arguments.vlan,
            tunnel: arguments.tunnel,
        },
        rate: arguments.rate,
        time: arguments.time,
        pacing: arguments.lists.fq_rate,
        stated: StatedLoad {
            flow_cap: arguments.flow_cap,
            cpu_rate: arguments.cpu_rate,
            ..arguments.lists.stated_load()
        },
        writer: arguments.lists.writer(),
        ..Inputs::default()
    };
    match &arguments.path {
        Some(path) => with_path(inputs, path, arguments),
        None => Ok(inputs),
    }
}

/// Returns `inputs` with what `--path` says. Flags of one value count as keys of it, as a queue in
/// BDPs follows from them.
fn with_path(inputs: Inputs, path: &str, arguments: &CalcArguments) -> Result<Inputs> {
    let flags = [
        &arguments.bandwidth,
        &arguments.rtt,
        &arguments.loss,
        &arguments.mtu,
    ];
    let single = flags
        .into_iter()
        .flatten()
        .filter_map(|QuantityValues(values)| {
            let [one] = values.as_slice() else {
                return None;
            };
            path_key(one)
        });
    let keys: Vec<String> = iter::once(path.to_owned()).chain(single).collect();
    let path = parse_path_flag(&keys.join(","), &PathSpec::new_unset())
        .map_err(|error| usage_failure(format!("--path: {error}")))?;
    let rtt = path.rtt();
    let way = path.forward;
    // What middleboxes do to acknowledgements they do to all.
    Ok(Inputs {
        bandwidth: way.rate,
        rtt: Some(rtt).filter(|rtt| *rtt > Span::ZERO),
        loss: way.loss.filter(|loss| *loss > Ratio::ZERO),
        mtu: Some(way.mtu),
        queue: way.queue.filter(|_| way.rate.is_some() && rtt > Span::ZERO),
        effects: way.effects,
        ..inputs
    })
}

fn quantity_lists(arguments: &CalcArguments) -> impl Iterator<Item = Vec<QuantitySetting>> {
    let CalcArguments {
        bandwidth,
        rtt,
        distance,
        loss,
        mtu,
        size,
        ..
    } = arguments;
    [bandwidth, rtt, distance]
        .into_iter()
        .flatten()
        .chain(arguments.lists.quantity_lists())
        .chain([loss, mtu, size].into_iter().flatten())
        .map(|QuantityValues(values)| values.clone())
}

fn print_solution(
    arguments: &CalcArguments,
    axes: &CombinationAxes,
    hosts: &HostPair,
    terminal: &Terminal,
) -> Result {
    let mut calculation = calculate(axes.fixed_inputs(), hosts, &arguments.what_if)?;
    calculation
        .prediction
        .notes
        .extend(assumed_hosts(arguments, hosts));
    let mut text = report::calculation_text(&calculation);
    if axes.infers_rtt() {
        let others = axes
            .clone()
            .over_round_trips(read_values(Quantity::Rtt, USUAL_ROUND_TRIPS)?);
        let table = others.combination_table(hosts, MAX_ROWS)?;
        text = [
            &text,
            "\n",
            RTT_UNKNOWN,
            "\n",
            &report::combination_table(&table),
        ]
        .concat();
    }
    terminal.print_result(&text);
    terminal.print_content(Content::Calculation {
        calculation: Box::new(calculation),
    });
    Ok(())
}

/// Says whose settings the ends are taken to have, where none were stated.
fn assumed_hosts(arguments: &CalcArguments, hosts: &HostPair) -> Option<String> {
    let ends = [("sender", &hosts.sender), ("receiver", &hosts.receiver)];
    let assumed: Vec<(&str, &HostSettings)> = ends
        .into_iter()
        .zip(arguments.systems.stated_ends())
        .filter(|(_, is_stated)| !is_stated)
        .map(|(end, _)| end)
        .collect();
    let (_, HostSettings { kernel, .. }) = assumed.first()?;
    let names: Vec<&str> = assumed.iter().map(|(end, _)| *end).collect();
    arguments.kernel.is_none().then(|| {
        format!(
            "{} taken to be {}; --kernel 5.15, --sender-os and --receiver-os say otherwise",
            names.join(" and "),
            assumed_host::description(*kernel),
        )
    })
}

fn print_table(axes: &CombinationAxes, hosts: &HostPair, terminal: &Terminal) -> Result {
    let rows = axes.combination_table(hosts, MAX_ROWS)?;
    terminal.print_result(&report::combination_table(&rows));
    terminal.print_content(Content::Table { table: rows });
    Ok(())
}

fn run_batch_file(file: &str, axes: &CombinationAxes, hosts: &HostPair) -> Result {
    let name = if file == "-" { "standard input" } else { file };
    let bytes = input::read_input(Path::new(file))
        .map_err(|error| usage_failure(format!("cannot read {name}: {error}")))?;
    let batch = CalculationBatch::of_file(&bytes, axes, hosts)
        .map_err(|error| usage_failure(format!("{name}: {error}")))?;
    write_batch(&batch, name)
}

fn write_batch(batch: &CalculationBatch, name: &str) -> Result {
    let threads = thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    match batch.run(threads, &mut Terminal::output_stream()) {
        Err(BatchError::Write(error)) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        Err(BatchError::Write(error)) => {
            Err(run_failure(format!("cannot write the answers: {error}")))
        }
        Err(error) => Err(usage_failure(format!("{name}: {error}"))),
        Ok(()) => Ok(()),
    }
}

/// Round trips for which there is an answer where none is given: from one building to the other end
/// of the world.
const USUAL_ROUND_TRIPS: &str = "1ms..500ms";
const RTT_UNKNOWN: &str = "The round-trip time is not known: `ping -c 10 HOST` shows it, or `fullpipe measure HOST`; \
                           --rtt or --distance states it.";

/// Rows that a person or a document may be expected to hold.
const MAX_ROWS: NonZeroUsize = NonZeroUsize::new(100_000).unwrap();
