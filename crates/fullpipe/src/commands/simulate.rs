use fullpipe_diagnose::diagnose;
use fullpipe_experiment::{Ramp, RampLoads, cross_traffic_phases};
use fullpipe_model::{kernel, predict};
use fullpipe_record::{
    Buffer, Content, Direction, Document, Event, Evidence, KernelVersion, Limit, Measurement, Request, Transport,
    Writer,
};
use fullpipe_report as report;
use fullpipe_scenario::{Scenario, Step};
use fullpipe_sim::{Granularity, Plan, Simulation};
use fullpipe_units::{BitRate, ByteCount, SegCount, Span};

use super::load::Offer;
use crate::commands::Run;
use crate::commands::emulated::EmulatedArguments;
use crate::commands::output::OutputArguments;
use crate::failure::{Failure, USAGE};
use crate::terminal::{Format, Terminal};
use crate::values::duration;

/// One TCP transfer over an emulated path in virtual time, and what limited it.
///
/// Two modelled hosts send over the same emulated path as in the lab, without its clock: an hour takes seconds, and the
/// same seed gives the same result. No processor and no network card take part, so that the rate of a fast path is what
/// the protocol permits, and not what a host does.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Scenario file or name from `lab list`, whose steps are simulated in place of the flags of path and load
    #[arg(value_name = "SCENARIO", conflicts_with_all = ["EmulatedArguments", "LoadArguments"])]
    scenario: Option<String>,
    #[command(flatten)]
    emulated: EmulatedArguments,
    /// Kernel of both hosts, whose defaults they have
    #[arg(long, help_heading = "Lab", default_value = "6.18", value_name = "VERSION")]
    kernel: KernelVersion,
    /// Ticks a second of both kernels (`CONFIG_HZ`)
    #[arg(
        long,
        help_heading = "Lab",
        default_value_t = Plan::USUAL_TICKS,
        value_parser = clap::value_parser!(u32).range(100..=1000),
        value_name = "N",
        hide_short_help = true
    )]
    hz: u32,
    /// Seed of the random losses
    #[arg(long, help_heading = "Lab", default_value_t = 1, value_name = "NUMBER")]
    seed: u64,
    /// Number of seeds, from --seed on; the text shows the median and the range
    #[arg(
        long,
        help_heading = "Lab",
        default_value_t = 1,
        value_parser = clap::value_parser!(u16).range(1..=10_000),
        value_name = "N"
    )]
    seeds: u16,
    /// Length of the trains that the path carries: segment, cut or train
    ///
    /// `cut` is as in the lab: what the path sends within 100 µs. `train` is the fastest.
    #[arg(
        long,
        help_heading = "Lab",
        default_value = "cut",
        value_parser = granularity,
        value_name = "KIND",
        hide_short_help = true
    )]
    granularity: Granularity,
    #[command(flatten)]
    load: LoadArguments,
    #[command(flatten)]
    output: OutputArguments,
}

/// The load, by the letters of `measure`.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Load")]
struct LoadArguments {
    /// Duration of the transfer
    #[arg(long, short, default_value = "10", value_parser = duration, value_name = "SECONDS")]
    time: Span,
    /// End after this many bytes instead
    #[arg(long, short = 'n', value_name = "BYTES", conflicts_with = "time")]
    bytes: Option<ByteCount>,
    /// Leave the first seconds out of the result
    #[arg(
        long,
        short = 'O',
        default_value = "0",
        value_parser = duration,
        value_name = "SECONDS",
        hide_short_help = true
    )]
    omit: Span,
    /// Parallel streams
    #[arg(
        long,
        short = 'P',
        visible_alias = "parallel",
        default_value_t = 1,
        value_parser = clap::value_parser!(u16).range(1..=10_000),
        value_name = "N"
    )]
    streams: u16,
    /// Rate offered by each stream; 0 is unlimited
    ///
    /// With /N, a stream sends N blocks in a row, then waits.
    #[arg(long, short, value_name = "RATE[/N]")]
    bitrate: Option<Offer>,
    /// Congestion control: cubic, reno or bbr
    #[arg(long, short = 'C', value_name = "NAME")]
    congestion: Option<String>,
    /// Socket buffers to request at both ends
    ///
    /// The kernel doubles the request, and advertises a share of the receive buffer as window.
    #[arg(long = "buffer", short = 'w', value_name = "BYTES")]
    buffer: Option<ByteCount>,
    /// Window that the receiver should advertise
    ///
    /// The socket buffers are chosen to yield it.
    #[arg(long, value_name = "BYTES", conflicts_with = "buffer")]
    window: Option<ByteCount>,
    /// Rate at which the kernel paces each stream
    #[arg(long, value_name = "RATE", hide_short_help = true)]
    fq_rate: Option<BitRate>,
    /// Write as ordinary programs do, and sleep while the send buffer is full
    ///
    /// By default the sender keeps the send buffer full.
    #[arg(long, hide_short_help = true)]
    blocking: bool,
}

impl Run for Arguments {
    fn format(&self) -> Format {
        self.output.format()
    }

    fn run(&self, terminal: &Terminal) -> Result<(), Failure> {
        let plans = self.plans()?;
        if (self.seeds > 1 || plans.len() > 1) && self.format() == Format::Json {
            return Err(Failure::new(USAGE, "--json prints one transfer: use --json-lines for several"));
        }
        for (name, plan) in &plans {
            if let Some(name) = name {
                terminal.result(&format!("{}\n", terminal.style().bold(name)));
            }
            self.simulate(plan, terminal).map_err(|failure| match name {
                Some(name) => Failure::new(failure.code, format!("step \"{name}\": {}", failure.message)),
                None => failure,
            })?;
        }
        Ok(())
    }
}

impl Arguments {
    /// Simulates a transfer with each seed.
    fn simulate(&self, plan: &Plan, terminal: &Terminal) -> Result<(), Failure> {
        let mut rates = Vec::new();
        for offset in 0..u64::from(self.seeds) {
            let plan = Plan { seed: self.seed.wrapping_add(offset), ..plan.clone() };
            let measurement = judged(plan)?;
            if self.seeds == 1 {
                terminal.result(&report::measurement(&measurement, terminal.style()));
            }
            rates.push((measurement.summary.rate, measurement.summary.retransmits.unwrap_or_default()));
            terminal.event(&Event::Measurement(Box::new(measurement.clone())));
            terminal.document(&Document::new(Content::Measurement { measurement: Box::new(measurement) }));
        }
        if self.seeds > 1 {
            terminal.result(&spread(rates));
        }
        Ok(())
    }

    /// Returns the transfers, those of a scenario with the names of its steps.
    fn plans(&self) -> Result<Vec<(Option<String>, Plan)>, Failure> {
        let Some(name) = &self.scenario else { return Ok(vec![(None, self.plan()?)]) };
        let scenario = super::lab::load(name)?;
        Ok(scenario.steps.iter().flat_map(|step| self.plans_of(&scenario, step)).collect())
    }

    /// Returns the transfer of a step; of loads that grow, each.
    fn plans_of(&self, scenario: &Scenario, step: &Step) -> Vec<(Option<String>, Plan)> {
        let host = kernel::defaults(self.kernel);
        let hosts = scenario.hosts_of(step).map(|changes| host.changed_by(&changes));
        let (lead, phases) = cross_traffic_phases(&step.cross_traffic, &step.request, scenario.seed);
        // The data of a download goes from the sender to the receiver, too: the receiver asks for it.
        let plan = Plan::new(scenario.path_of(step).clone(), hosts, step.request.clone(), self.seed);
        let cross_traffic = phases.concat();
        let plan = Plan { granularity: self.granularity, ticks_per_second: self.hz, lead, cross_traffic, ..plan };
        let Some(ramp) = step.ramp else { return vec![(Some(step.name.clone()), plan)] };
        let loads = Ramp { loads: RampLoads::Shares(ramp.from, ramp.to), steps: ramp.loads }.loads(carried(&plan));
        let of_load = |load: BitRate| {
            let rate = Some(load.scaled(1.0 / f64::from(step.request.streams.max(1))));
            let request = Request { rate, ..step.request.clone() };
            (Some(format!("{}, {load}", step.name)), Plan { request, ..plan.clone() })
        };
        loads.into_iter().map(of_load).collect()
    }

    fn plan(&self) -> Result<Plan, Failure> {
        let host = kernel::defaults(self.kernel);
        let hosts = self.emulated.changes()?.map(|changes| host.changed_by(&changes));
        let plan = Plan::new(self.emulated.path()?, hosts, self.load.request(), self.seed);
        Ok(Plan { granularity: self.granularity, ticks_per_second: self.hz, ..plan })
    }
}

/// Returns the payload that the path of `plan` carries of such packets.
fn carried(plan: &Plan) -> BitRate {
    let prediction = predict(&plan.path, &plan.sender, &plan.receiver, &plan.request);
    prediction.ceiling(Limit::Capacity).map(|capacity| capacity.kernel_model).unwrap_or_default()
}

impl LoadArguments {
    fn request(&self) -> Request {
        let buffer = match (self.buffer, self.window) {
            (Some(size), _) => Buffer::Request(size),
            (None, Some(size)) => Buffer::Window(size),
            (None, None) => Buffer::Automatic,
        };
        Request {
            direction: Direction::Upload,
            streams: self.streams,
            duration: self.time,
            omit: self.omit,
            bytes: self.bytes,
            block: ByteCount::ZERO,
            rate: self.bitrate.map(|offer| offer.rate).filter(|rate| *rate > BitRate::ZERO),
            burst: self.bitrate.and_then(|offer| offer.burst),
            pacing: self.fq_rate,
            buffer,
            congestion: self.congestion.clone(),
            writer: if self.blocking { Writer::Blocking } else { Writer::Retrying },
            ..Request::default()
        }
    }
}

fn granularity(text: &str) -> Result<Granularity, String> {
    match text {
        "segment" => Ok(Granularity::Segment),
        "cut" => Ok(Granularity::Cut),
        "train" => Ok(Granularity::Train),
        _ => Err("write segment, cut or train".to_owned()),
    }
}

/// Returns the simulated transfer with its limit.
fn judged(plan: Plan) -> Result<Measurement, Failure> {
    let (bandwidth, framing) = (plan.path.forward.rate, plan.path.forward.framing);
    // What other loads do is no evidence of its own.
    let is_judged = plan.request.transport == Transport::Tcp && plan.cross_traffic.is_empty();
    let simulation = Simulation::new(plan).map_err(|refused| Failure::new(USAGE, refused.to_string()))?;
    let measurement = simulation.measure();
    let limit = is_judged.then(|| diagnose(&Evidence::of(&measurement, bandwidth, framing)));
    Ok(Measurement { limit, ..measurement })
}

/// Returns the median and the range of the rates of several seeds, and those of their retransmissions.
fn spread(mut results: Vec<(BitRate, SegCount)>) -> String {
    results.sort_unstable();
    let mut again: Vec<SegCount> = results.iter().map(|(_, again)| *again).collect();
    again.sort_unstable();
    let middle = results.len() / 2;
    match (results.as_slice(), again.as_slice()) {
        ([(low, _), .., (high, _)], [fewest, .., most]) => format!(
            "rate         {} (median of {} seeds; {low} to {high})\nretransmits  {} ({} to {})\n",
            results[middle].0,
            results.len(),
            again[middle].get(),
            fewest.get(),
            most.get()
        ),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_seeds_have_a_median_and_a_range() {
        let results = [30, 10, 20].map(|mbps| (BitRate::from_mbps(mbps), SegCount::new(100 - mbps)));
        let expected = "rate         20 Mbit/s (median of 3 seeds; 10 Mbit/s to 30 Mbit/s)\n\
                        retransmits  80 (70 to 90)\n";
        assert_eq!(spread(results.to_vec()), expected);
    }
}
