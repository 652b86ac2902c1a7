mod axes;
mod past;
mod trace;

use std::num::NonZeroUsize;
use std::thread;

use fullpipe_experiment::{
    ExperimentError, Interrupt, NamedPlan, PastOptions, PastTransfer, Ramp, RampLoads, cross_traffic_phases,
    simulate_each, simulate_summaries,
};
use fullpipe_model::{kernel, predict};
use fullpipe_record::{
    Content, Direction, Event, KernelVersion, Limit, Measurement, Quantity, Request, SimulatedTransfer, Writer,
};
use fullpipe_report as report;
use fullpipe_scenario::{Scenario, Step};
use fullpipe_sim::{Granularity, NotModelled, Plan};
use fullpipe_units::{BitRate, ByteCount, Span};

use self::axes::{Combination, PathLists};
use self::past::PastArguments;
use self::trace::TraceArguments;
use super::load::Offer;
use crate::commands::Run;
use crate::commands::emulated::EmulatedArguments;
use crate::commands::output::{OutputArguments, OutputChoice};
use crate::failure::{FAILED, Failure, INTERRUPTED};
use crate::terminal::{Format, Terminal};
use crate::values::{Values, duration, some_bytes, some_test_time, values, whole};

/// TCP transfers over an emulated path, in virtual time.
///
/// Two modelled hosts send over the same emulated path as in the lab, without its clock: an hour takes seconds, and the
/// same seed gives the same result. No processor and no network card take part, so that the rate of a fast path is what
/// the protocol permits, and not what a host does.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    /// Scenario file or name from `lab list`, whose steps are simulated in place of the flags of path and load
    #[arg(value_name = "SCENARIO", conflicts_with_all = ["EmulatedArguments", "PathLists", "LoadArguments"])]
    scenario: Option<String>,
    #[command(flatten)]
    past: PastArguments,
    #[command(flatten)]
    emulated: EmulatedArguments,
    #[command(flatten)]
    lists: PathLists,
    /// Kernel of both hosts, whose defaults they have
    #[arg(long, help_heading = "Lab", default_value = "6.18", value_name = "VERSION")]
    kernel: KernelVersion,
    /// Ticks a second of both kernels (`CONFIG_HZ`)
    #[arg(
        long,
        help_heading = "Lab",
        default_value_t = Plan::USUAL_TICKS,
        value_parser = whole(100..=1000_u32),
        value_name = "N",
        hide_short_help = true
    )]
    hz: u32,
    /// Seed of the random losses
    #[arg(
        long,
        help_heading = "Lab",
        default_value_t = 1,
        value_parser = whole(0..=u64::MAX),
        value_name = "NUMBER"
    )]
    seed: u64,
    /// Number of seeds, from --seed on, of which the median and the range are shown
    #[arg(
        long,
        help_heading = "Lab",
        default_value_t = 1,
        value_parser = whole(1..=10_000_u16),
        value_name = "N"
    )]
    seeds: u16,
    /// Length of the trains that the path carries: segment, cut or train
    ///
    /// `cut` is as in the lab: what the path sends within 100 µs. `train`, within a hundredth of the round trip, is the
    /// fastest.
    #[arg(
        long,
        help_heading = "Lab",
        default_value = "cut",
        value_parser = granularity,
        value_name = "KIND",
        hide_short_help = true
    )]
    granularity: Granularity,
    /// Transfers that are computed at the same time [default: one for each processor]
    ///
    /// The results do not depend on it.
    #[arg(long, help_heading = "Lab", value_name = "N", value_parser = jobs, hide_short_help = true)]
    jobs: Option<NonZeroUsize>,
    #[command(flatten)]
    load: LoadArguments,
    /// Print one line of CSV for each combination
    #[arg(long, help_heading = "Output", conflicts_with_all = ["json", "json_lines", "html"])]
    csv: bool,
    #[command(flatten)]
    trace: TraceArguments,
    #[command(flatten)]
    output: OutputArguments,
}

const AFTER_HELP: &str = "\
The quantities -r -C -P -w, --bandwidth, --queue, --loss, --mtu and --window may
be lists, 64KiB,1MiB, or ranges, 10ms..200ms (by 1, 2, 5, sizes by doublings) or
10ms..200ms+10ms. Then each combination is a row of a table. All rows have the
same seeds.";

/// The load, by the letters of `measure`.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Load")]
struct LoadArguments {
    /// Duration of the transfer
    #[arg(long, short, default_value = "10", value_parser = some_test_time, value_name = "SECONDS")]
    time: Span,
    /// End after this many bytes instead
    #[arg(long, short = 'n', value_name = "BYTES", value_parser = some_bytes, conflicts_with = "time")]
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
    /// Parallel streams [default: 1]
    #[arg(
        long,
        short = 'P',
        visible_alias = "parallel",
        value_parser = values(Quantity::Streams),
        value_name = "N"
    )]
    streams: Option<Values>,
    /// Rate offered by each stream; 0 is unlimited
    ///
    /// With /N, a stream sends N blocks in a row, then waits.
    #[arg(long, short, value_name = "RATE[/N]")]
    bitrate: Option<Offer>,
    /// Congestion control: cubic, reno or bbr
    #[arg(long, short = 'C', value_name = "NAME", value_parser = values(Quantity::Congestion))]
    congestion: Option<Values>,
    /// Socket buffers to request at both ends
    ///
    /// The kernel doubles the request, and advertises a share of the receive buffer as window.
    #[arg(long = "buffer", short = 'w', value_name = "BYTES", value_parser = values(Quantity::Buffer))]
    buffer: Option<Values>,
    /// Window that the receiver should advertise
    ///
    /// The socket buffers are chosen to yield it.
    #[arg(long, value_name = "BYTES", conflicts_with = "buffer", value_parser = values(Quantity::Window))]
    window: Option<Values>,
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
    fn output(&self) -> OutputChoice<'_> {
        self.output.output_choice()
    }

    fn run(&self, terminal: &Terminal) -> Result<(), Failure> {
        // Before Ctrl-C is anything but the end: a file may be a pipe, and standard input a terminal.
        let past = self.past.read()?;
        let flag = super::interrupt_flag()?;
        if let Some(past) = past {
            return self.simulate_past(past, Interrupt(&flag), terminal);
        }
        let (plans, is_table) = self.plans()?;
        if let Some(file) = self.trace.file() {
            trace::check(plans.len() * usize::from(self.seeds), file)?;
            let Some(NamedPlan { plan, .. }) = plans.into_iter().next() else { return Ok(()) };
            let measurement = self.trace.simulate(file, plan.clone(), Interrupt(&flag))?;
            return print_measurement(measurement, &plan, terminal);
        }
        let work = Work { plans: &plans, seeds: self.seeds, jobs: self.jobs(), interrupt: Interrupt(&flag) };
        let (is_one, (format, page)) = (plans.len() == 1 && self.seeds == 1, self.output());
        if self.csv {
            return work.print_csv();
        }
        match format {
            Format::JsonLines if !is_table => work.print_measurements(terminal),
            Format::JsonLines => work.each(&mut |done| terminal.event(&Event::Simulated(Box::new(done)))),
            // A page is of one document.
            Format::Text if !is_table && self.seeds == 1 && page.is_none() => work.print_measurements(terminal),
            Format::Text | Format::Json if is_one => work.print_measurements(terminal),
            Format::Text | Format::Json => work.print_summaries(is_table, terminal),
        }
    }
}

/// Prints the measurement of `plan`. Fails if it is not valid.
fn print_measurement(measurement: Measurement, plan: &Plan, terminal: &Terminal) -> Result<(), Failure> {
    let is_valid = measurement.validity.is_valid() && measurement.broken_off.is_none();
    terminal.result(&report::measurement(&measurement, terminal.style()));
    terminal.event(&Event::Measurement(Box::new(measurement.clone())));
    let path = Some(Box::new(plan.path.clone()));
    terminal.print_content(Content::Measurement { measurement: Box::new(measurement), path });
    if is_valid { Ok(()) } else { Err(Failure::already_printed(FAILED)) }
}

/// Transfers, and the way to compute them.
struct Work<'w> {
    plans: &'w [NamedPlan],
    seeds: u16,
    jobs: NonZeroUsize,
    interrupt: Interrupt<'w>,
}

impl Work<'_> {
    /// Prints each measurement whole.
    fn print_measurements(&self, terminal: &Terminal) -> Result<(), Failure> {
        let Self { plans, seeds, jobs, interrupt } = *self;
        let mut of_runs = plans.iter().flat_map(|plan| std::iter::repeat_n(plan, usize::from(seeds)));
        let mut any = false;
        let mut printed = Ok(());
        let ended = simulate_each(plans, seeds, jobs, interrupt, &mut |measurement| {
            any = true;
            let Some(NamedPlan { name, plan }) = of_runs.next() else { return };
            if let Some(name) = name {
                terminal.result(&format!("{}\n", terminal.style().bold(name)));
            }
            if let Err(invalid) = print_measurement(measurement, plan, terminal) {
                printed = Err(invalid);
            }
        });
        in_part(ended, any).and(printed)
    }

    /// Prints the summaries of all transfers, those that are done if the user interrupts the work.
    fn print_summaries(&self, is_table: bool, terminal: &Terminal) -> Result<(), Failure> {
        let mut simulations = Vec::new();
        let ended = self.each(&mut |done| simulations.push(done));
        if !simulations.is_empty() {
            let text = if is_table { report::simulations } else { report::seeds };
            terminal.result(&text(&simulations, terminal.style()));
            terminal.print_content(Content::Simulations { simulations });
        }
        ended
    }

    /// Prints each summary as a row of CSV, as soon as those before it are there.
    fn print_csv(&self) -> Result<(), Failure> {
        let mut head = Some(report::simulations_csv_head());
        self.each(&mut |done| {
            head.take().iter().for_each(|head| Terminal::line(head));
            Terminal::line(&report::simulations_csv_row(&done));
        })
    }

    fn each(&self, each: &mut dyn FnMut(SimulatedTransfer)) -> Result<(), Failure> {
        let Self { plans, seeds, jobs, interrupt } = *self;
        let mut any = false;
        let ended = simulate_summaries(plans, seeds, jobs, interrupt, &mut |done| {
            any = true;
            each(done);
        });
        in_part(ended, any)
    }
}

/// Returns the result of a work that may have been interrupted after a part of its results was printed.
fn in_part(ended: Result<(), ExperimentError>, any: bool) -> Result<(), Failure> {
    match ended {
        Err(ExperimentError::Interrupted) if any => Err(Failure::already_printed(INTERRUPTED)),
        ended => Ok(ended?),
    }
}

impl Arguments {
    /// Returns the transfers, those of a scenario with the names of its steps, and true if they are combinations of
    /// lists.
    fn plans(&self) -> Result<(Vec<NamedPlan>, bool), Failure> {
        let Some(name) = &self.scenario else {
            let combinations = self.lists.combinations(self.load.lists())?;
            let plans: Vec<NamedPlan> = combinations.iter().map(|one| self.plan(one)).collect::<Result<_, _>>()?;
            let is_table = plans.len() > 1;
            return Ok((plans, is_table));
        };
        let scenario = super::lab::load(name)?;
        if let Some(step) = scenario.steps.iter().find(|step| step.relays) {
            return Err(ExperimentError::Named { name: step.name.clone(), cause: NotModelled::Relays }.into());
        }
        Ok((scenario.steps.iter().flat_map(|step| self.plans_of(&scenario, step)).collect(), false))
    }

    /// Returns the transfer of a step; of loads that grow, each.
    fn plans_of(&self, scenario: &Scenario, step: &Step) -> Vec<NamedPlan> {
        let host = kernel::defaults(self.kernel);
        let hosts = scenario.hosts_of(step).map(|changes| host.changed_by(&changes));
        let (lead, phases) = cross_traffic_phases(&step.cross_traffic, &step.request, scenario.seed);
        // The data of a download goes from the sender to the receiver, too: the receiver asks for it.
        let plan = Plan::new(scenario.path_of(step).clone(), hosts, step.request.clone(), self.seed);
        let plan = self.with_options(Plan { lead, cross_traffic: phases.concat(), ..plan });
        let Some(ramp) = step.ramp else { return vec![NamedPlan { name: Some(step.name.clone()), plan }] };
        let loads = Ramp { loads: RampLoads::Shares(ramp.from, ramp.to), steps: ramp.loads }.loads(carried(&plan));
        let of_load = |load: BitRate| {
            let rate = Some(load.scaled(1.0 / f64::from(step.request.streams.max(1))));
            let request = Request { rate, ..step.request.clone() };
            NamedPlan { name: Some(format!("{}, {load}", step.name)), plan: Plan { request, ..plan.clone() } }
        };
        loads.into_iter().map(of_load).collect()
    }

    /// Simulates measurements that were made.
    fn simulate_past(
        &self,
        past: Vec<PastTransfer>,
        interrupt: Interrupt<'_>,
        terminal: &Terminal,
    ) -> Result<(), Failure> {
        let options = PastOptions {
            path: self.emulated.path_flag(),
            hosts: &self.emulated.changes()?,
            unknown_host: &kernel::defaults(self.kernel),
            seeds: (self.seed, self.seeds),
            ticks_per_second: self.hz,
            jobs: self.jobs(),
        };
        self.past.run(past, &options, interrupt, terminal)
    }

    fn plan(&self, combination: &Combination) -> Result<NamedPlan, Failure> {
        let host = kernel::defaults(self.kernel);
        let hosts = self.emulated.changes()?.map(|changes| host.changed_by(&changes));
        let request = combination.request(self.load.request());
        let plan = Plan::new(self.emulated.path_with(&combination.path)?, hosts, request, self.seed);
        Ok(NamedPlan { name: None, plan: self.with_options(plan) })
    }

    fn with_options(&self, plan: Plan) -> Plan {
        Plan { granularity: self.granularity, ticks_per_second: self.hz, ..plan }
    }

    fn jobs(&self) -> NonZeroUsize {
        self.jobs.unwrap_or_else(|| thread::available_parallelism().unwrap_or(NonZeroUsize::MIN))
    }
}

/// Returns the payload that the path of `plan` carries of such packets.
fn carried(plan: &Plan) -> BitRate {
    let prediction = predict(&plan.path, &plan.sender, &plan.receiver, &plan.request);
    prediction.ceiling(Limit::Capacity).map(|capacity| capacity.kernel_model).unwrap_or_default()
}

impl LoadArguments {
    /// Returns the quantities that may be lists or ranges.
    fn lists(&self) -> impl Iterator<Item = &Values> {
        let Self { congestion, streams, buffer, window, .. } = self;
        [congestion, streams, buffer, window].into_iter().flatten()
    }

    /// Returns the rest of the load.
    fn request(&self) -> Request {
        Request {
            direction: Direction::Upload,
            duration: self.time,
            omit: self.omit,
            bytes: self.bytes,
            block: ByteCount::ZERO,
            rate: self.bitrate.map(|offer| offer.rate).filter(|rate| *rate > BitRate::ZERO),
            burst: self.bitrate.and_then(|offer| offer.burst),
            pacing: self.fq_rate.filter(|rate| *rate > BitRate::ZERO),
            writer: if self.blocking { Writer::Blocking } else { Writer::Retrying },
            ..Request::default()
        }
    }
}

fn jobs(text: &str) -> Result<NonZeroUsize, String> {
    text.parse().map_err(|_| "write a number of at least 1".to_owned())
}

fn granularity(text: &str) -> Result<Granularity, String> {
    match text {
        "segment" => Ok(Granularity::Segment),
        "cut" => Ok(Granularity::Cut),
        "train" => Ok(Granularity::Train),
        _ => Err("write segment, cut or train".to_owned()),
    }
}
