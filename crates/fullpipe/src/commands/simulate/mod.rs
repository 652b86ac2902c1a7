mod axes;
mod past;
mod trace;

use std::num::NonZeroUsize;
use std::thread;

use fullpipe_experiment::{
    ExperimentError, LoadRamp, NamedPlan, PastOptions, PastTransfer, RampLoads,
    cross_traffic_phases, forecast_size, simulate_each, simulate_summaries,
};
use fullpipe_model::{kernel, predict};
use fullpipe_record::{
    Change, CompletionForecast, HostSettings, KernelVersion, Limit, SimulatedTransfer,
};
use fullpipe_scenario::{Scenario, ScenarioStep};
use fullpipe_sim::{NotModelled, SimulationPlan, TrainGranularity};
use fullpipe_store::one_transfer;

use self::axes::AxisCombination;
pub(super) use self::axes::PathLists;
pub(super) use self::axes::path_key;
use self::past::PastArguments;
use self::trace::TraceArguments;
use super::prelude::*;
use super::rows::{RowArchive, RowArguments};
use super::stated::{EndSystems, LoadArguments, LoadLists, PredictionFlags};
use crate::commands::emulated::EmulatedArguments;

/// TCP transfers over an emulated path, in virtual time.
///
/// Two modelled hosts send over the same emulated path as in the lab, without its clock: an hour
/// takes seconds, and the same seed gives the same result. No processor and no network card take
/// part, so that the rate of a fast path is what the protocol permits, and not what a host does.
#[derive(Debug, Args)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct SimulateArguments {
    /// Scenario file or name from `lab list`, whose steps are simulated in place of the flags of
    /// path and load
    #[arg(value_name = "SCENARIO", conflicts_with_all = ["EmulatedArguments", "PathLists", "LoadArguments", "LoadLists"])]
    scenario: Option<String>,
    #[command(flatten)]
    past: PastArguments,
    #[command(flatten)]
    emulated: EmulatedArguments,
    #[command(flatten)]
    lists: PathLists,
    /// Kernel of both hosts, whose defaults they have
    #[arg(
        long,
        help_heading = "Lab",
        default_value = "6.18",
        value_name = "VERSION"
    )]
    kernel: KernelVersion,
    #[command(flatten)]
    systems: EndSystems,
    /// Ticks a second of both kernels (`CONFIG_HZ`)
    #[arg(
        long,
        help_heading = "Lab",
        default_value_t = SimulationPlan::USUAL_TICKS,
        value_parser = integer_parser(100..=1000_u32),
        value_name = "N",
        hide_short_help = true
    )]
    hz: u32,
    /// Seed of the random losses
    #[arg(
        long,
        help_heading = "Lab",
        default_value_t = 1,
        value_parser = integer_parser(0..=u64::MAX),
        value_name = "NUMBER",
        hide_short_help = true
    )]
    seed: u64,
    /// Number of seeds, from --seed on, of which the median and the range are shown
    #[arg(
        long,
        help_heading = "Lab",
        default_value_t = 1,
        value_parser = integer_parser(1..=10_000_u16),
        value_name = "N"
    )]
    seeds: u16,
    /// Length of the trains that the path carries: segment, cut or train
    ///
    /// `cut` is as in the lab: what the path sends within 100 µs. `train`, within a hundredth of
    /// the round trip, is the fastest.
    #[arg(
        long,
        help_heading = "Lab",
        default_value = "cut",
        value_parser = parse_granularity,
        value_name = "KIND",
        hide_short_help = true
    )]
    granularity: TrainGranularity,
    /// Transfers that are computed at the same time [default: one for each processor]
    ///
    /// The results do not depend on it.
    #[arg(long, help_heading = "Lab", value_name = "N", value_parser = parse_jobs, hide_short_help = true)]
    jobs: Option<NonZeroUsize>,
    #[command(flatten)]
    load: LoadArguments,
    /// Say when so much would be complete
    #[arg(long, help_heading = "Load", value_name = "BYTES", value_parser = some_bytes, conflicts_with_all = ["bytes", "scenario"])]
    size: Option<ByteCount>,
    #[command(flatten)]
    stated: LoadLists,
    #[command(flatten)]
    predicted: PredictionFlags,
    /// Print one line of CSV for each combination
    #[arg(long, help_heading = "Output", conflicts_with_all = ["json", "json_lines", "html"])]
    csv: bool,
    #[command(flatten)]
    rows: RowArguments,
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

impl RunCommand for SimulateArguments {
    fn output(&self) -> OutputChoice<'_> {
        self.output.output_choice()
    }

    fn run(&self, terminal: &Terminal) -> Result {
        // Before Ctrl-C is anything but the end: a file may be a pipe, and standard input a
        // terminal.
        let past = self.past.read_transfers()?;
        let flag = super::interrupt_flag()?;
        if let Some(past) = past {
            return self.simulate_past(past, Interrupt(&flag), terminal);
        }
        let (plans, is_table) = self.named_plans()?;
        let plans = self.own_plans(plans, is_table)?;
        if let Some(file) = self.trace.file_path() {
            trace::check_transfer_count(plans.len() * usize::from(self.seeds), file)?;
            let plan = &plans[0].plan;
            let measurement = self
                .trace
                .simulate_to_file(file, plan.clone(), Interrupt(&flag))?;
            return print_measurement(measurement, plan, self.complete_size(), terminal);
        }
        let is_one = !is_table && plans.len() == 1 && self.seeds == 1;
        if self.size.is_some() && (!is_one || self.csv) {
            return Err(usage_failure(
                "--size is of one transfer: leave lists, --seeds and --csv out",
            ));
        }
        let work = SimulationWork {
            plans: &plans,
            seeds: self.seeds,
            jobs: self.job_count(),
            size: self.complete_size(),
            interrupt: Interrupt(&flag),
            rows: &self.rows,
        };
        let (format, page) = self.output();
        if self.csv {
            return work.print_csv();
        }
        match format {
            OutputFormat::JsonLines if !is_table => work.print_measurements(terminal),
            OutputFormat::JsonLines => work.for_each_transfer(&mut |done| {
                terminal.print_event(&Event::Simulated(Box::new(done)));
            }),
            // A page is of one document.
            OutputFormat::Text if !is_table && self.seeds == 1 && page.is_none() => {
                work.print_measurements(terminal)
            }
            OutputFormat::Text | OutputFormat::Json if is_one => work.print_measurements(terminal),
            OutputFormat::Text | OutputFormat::Json => work.print_summaries(is_table, terminal),
        }
    }
}

/// Prints the measurement of `plan`. Fails if it is not valid.
fn print_measurement(
    measurement: Measurement,
    plan: &SimulationPlan,
    size: Option<ByteCount>,
    terminal: &Terminal,
) -> Result {
    let is_valid = measurement.validity.is_valid() && measurement.broken_off.is_none();
    terminal.print_result(&report::measurement_text(&measurement));
    let completion = size.and_then(|size| Some((size, completion(&measurement, plan, size)?)));
    terminal.print_result(
        &completion.map_text(|(size, completion)| report::completion_text(size, &completion)),
    );
    terminal.print_event(&Event::Measurement(Box::new(measurement.clone())));
    let path = Some(Box::new(plan.path.clone()));
    terminal.print_content(Content::Measurement {
        measurement: Box::new(measurement),
        path,
        completion: completion.map(|(_, completion)| completion),
        followed_by: None,
    });
    Failure::after_report(None, false, is_valid)
}

fn completion(
    measurement: &Measurement,
    plan: &SimulationPlan,
    size: ByteCount,
) -> Option<CompletionForecast> {
    let prediction = predict(&plan.path, &plan.sender, &plan.receiver, &plan.request);
    let rate = plan.path.forward.rate;
    let capacity = rate.map(|rate| rate.scale_by(prediction.efficiency.get()));
    forecast_size(measurement, size, capacity)
}

/// Transfers, and the way to compute them.
struct SimulationWork<'w> {
    plans: &'w [NamedPlan],
    seeds: u16,
    jobs: NonZeroUsize,
    /// Size of which is said when it would be complete.
    size: Option<ByteCount>,
    interrupt: Interrupt<'w>,
    rows: &'w RowArguments,
}

impl SimulationWork<'_> {
    /// Prints each measurement whole.
    fn print_measurements(&self, terminal: &Terminal) -> Result {
        let Self {
            plans,
            seeds,
            jobs,
            size,
            interrupt,
            ..
        } = *self;
        let mut of_runs = plans
            .iter()
            .flat_map(|plan| std::iter::repeat_n(plan, usize::from(seeds)));
        let mut any = false;
        let mut printed = Ok(());
        let ended = simulate_each(plans, seeds, jobs, interrupt, &mut |measurement| {
            any = true;
            let Some(NamedPlan { name, plan }) = of_runs.next() else {
                return;
            };
            if let Some(name) = name {
                terminal.print_result(&format!("{}\n", report::bold_text(name)));
            }
            if let Err(invalid) = print_measurement(measurement, plan, size, terminal) {
                printed = Err(invalid);
            }
        });
        in_part(ended, any).and(printed)
    }

    /// Prints the summaries of all transfers, those that are done if the user interrupts the work.
    fn print_summaries(&self, is_table: bool, terminal: &Terminal) -> Result {
        let mut simulations = Vec::new();
        let ended = self.for_each_transfer(&mut |done| simulations.push(done));
        if !simulations.is_empty() {
            let text = if is_table {
                report::simulations_text
            } else {
                report::seed_spreads
            };
            terminal.print_result(&text(&simulations));
            terminal.print_content(Content::Simulations { simulations });
        }
        ended
    }

    /// Prints each summary as a row of CSV, as soon as those before it are there.
    fn print_csv(&self) -> Result {
        let mut head = Some(report::simulations_csv_head());
        self.for_each_transfer(&mut |done| {
            head.take()
                .iter()
                .for_each(|head| Terminal::print_line(head));
            Terminal::print_line(&report::simulations_csv_row(&done));
        })
    }

    fn for_each_transfer(&self, each: &mut dyn FnMut(SimulatedTransfer)) -> Result {
        let Self {
            plans,
            seeds,
            jobs,
            interrupt,
            ..
        } = *self;
        let mut any = false;
        let mut each = |done| {
            any = true;
            each(done);
        };
        let mut archive = self.rows.open_archive()?;
        let known = known_rows(plans, seeds, archive.as_mut())?;
        let unknown = plans
            .iter()
            .zip(&known)
            .filter(|(_, known)| known.is_none());
        let unknown: Vec<NamedPlan> = unknown.map(|(plan, _)| plan.clone()).collect();
        let (mut known, mut kept) = (known.into_iter(), Ok(()));
        let ended = simulate_summaries(&unknown, seeds, jobs, interrupt, &mut |done| {
            // Those before it; the place where they end is its own.
            known.by_ref().map_while(|known| known).for_each(&mut each);
            if let (Some(archive), true) = (&mut archive, kept.is_ok()) {
                kept = archive.keep_row(&one_transfer(&done));
            }
            each(done);
        });
        if ended.is_ok() {
            known.flatten().for_each(&mut each);
        }
        in_part(ended, any).and(kept)
    }
}

/// Returns the row of each plan that an archive has.
fn known_rows(
    plans: &[NamedPlan],
    seeds: u16,
    archive: Option<&mut RowArchive>,
) -> Result<Vec<Option<SimulatedTransfer>>> {
    let Some(archive) = archive else {
        return Ok(vec![None; plans.len()]);
    };
    let rows = plans.iter().map(|plan| {
        let row = archive.find_row(&plan.row_id(usize::from(seeds)))?;
        Ok(match row {
            Some(Content::Simulations { mut simulations }) => simulations.pop(),
            _ => None,
        })
    });
    rows.collect()
}

/// Returns the result of a work that may have been interrupted after a part of its results was
/// printed.
fn in_part(ended: Result<(), ExperimentError>, any: bool) -> Result {
    match ended {
        Err(ExperimentError::Interrupted) if any => Err(Failure::already_printed(INTERRUPTED)),
        ended => Ok(ended?),
    }
}

impl SimulateArguments {
    /// Returns the size of which is said when it is complete.
    fn complete_size(&self) -> Option<ByteCount> {
        self.size.or(self.load.bytes)
    }

    /// Returns the transfers, those of a scenario with the names of its steps, and true if they are
    /// combinations of lists.
    fn named_plans(&self) -> Result<(Vec<NamedPlan>, bool)> {
        let Some(name) = &self.scenario else {
            self.predicted.check_absent()?;
            let combinations = self.lists.combinations(self.stated.quantity_lists())?;
            let plans: Vec<NamedPlan> = combinations
                .iter()
                .map(|one| self.combination_plan(one))
                .collect::<Result<_, _>>()?;
            let is_table = plans.len() > 1;
            return Ok((plans, is_table));
        };
        let scenario = super::scenario_file::load_scenario(name)?;
        if let Some(step) = scenario.steps.iter().find(|step| step.relays) {
            return Err(usage_failure(format!(
                "{}: {}",
                step.name,
                NotModelled::Relays
            )));
        }
        Ok((
            scenario
                .steps
                .iter()
                .flat_map(|step| self.plans_of(&scenario, step))
                .collect(),
            false,
        ))
    }

    /// Returns the transfers of the shard, if one is asked for.
    fn own_plans(&self, plans: Vec<NamedPlan>, is_table: bool) -> Result<Vec<NamedPlan>> {
        let is_of_rows = self.rows.is_shard() || self.rows.fills_archive();
        if is_of_rows && !is_table {
            let why = "--shard and --fill are of a table: give a quantity several values";
            return Err(usage_failure(why));
        }
        self.rows.own_rows(plans)
    }

    /// Returns the transfer of a step; of loads that grow, each.
    fn plans_of(&self, scenario: &Scenario, step: &ScenarioStep) -> Vec<NamedPlan> {
        let plan = self.step_plan(scenario, step);
        let Some(ramp) = step.ramp else {
            return vec![NamedPlan {
                name: Some(step.name.clone()),
                plan,
            }];
        };
        let loads = LoadRamp {
            loads: RampLoads::Shares(ramp.from, ramp.to),
            steps: ramp.loads,
        }
        .offered_loads(payload_capacity(&plan));
        loads
            .into_iter()
            .map(|load| {
                let mut plan = plan.clone();
                let streams = step.request.streams.max(1);
                plan.request.rate = Some(load.scale_by(1.0 / f64::from(streams)));
                NamedPlan {
                    name: Some(format!("{}, {load}", step.name)),
                    plan,
                }
            })
            .collect()
    }

    fn step_plan(&self, scenario: &Scenario, step: &ScenarioStep) -> SimulationPlan {
        let (lead, phases) =
            cross_traffic_phases(&step.cross_traffic, &step.request, scenario.seed);
        // The data of a download goes from the sender to the receiver, too: the receiver asks for
        // it.
        let plan = SimulationPlan::new(
            scenario.path_of(step).clone(),
            self.changed_hosts(&scenario.hosts_of(step)),
            step.request.clone(),
            self.seed,
        );
        self.with_options(SimulationPlan {
            lead,
            cross_traffic: phases.concat(),
            ..plan
        })
    }

    /// Returns the default settings of the kernel after the changes of both hosts.
    fn changed_hosts(&self, changes: &[Vec<Change>; 2]) -> [HostSettings; 2] {
        let [sender, receiver] = self
            .systems
            .host_settings(&kernel::default_settings(self.kernel));
        [
            sender.changed_by(&changes[0]),
            receiver.changed_by(&changes[1]),
        ]
    }

    /// Simulates measurements that were made.
    fn simulate_past(
        &self,
        past: Vec<PastTransfer>,
        interrupt: Interrupt<'_>,
        terminal: &Terminal,
    ) -> Result {
        let options = PastOptions {
            path: self.emulated.path_flag(),
            hosts: &self.emulated.host_changes()?,
            unknown_host: &kernel::default_settings(self.kernel),
            seeds: (self.seed, self.seeds),
            ticks_per_second: self.hz,
            jobs: self.job_count(),
        };
        self.past.run(past, &options, interrupt, terminal)
    }

    fn combination_plan(&self, combination: &AxisCombination) -> Result<NamedPlan> {
        let hosts = self.changed_hosts(&self.emulated.host_changes()?);
        let request = combination.to_request(self.load.to_request(&self.stated))?;
        let plan = SimulationPlan::new(
            self.emulated.path_with(&combination.path)?,
            hosts,
            request,
            self.seed,
        );
        Ok(NamedPlan {
            name: None,
            plan: self.with_options(plan),
        })
    }

    fn with_options(&self, plan: SimulationPlan) -> SimulationPlan {
        SimulationPlan {
            granularity: self.granularity,
            ticks_per_second: self.hz,
            ..plan
        }
    }

    fn job_count(&self) -> NonZeroUsize {
        self.jobs
            .unwrap_or_else(|| thread::available_parallelism().unwrap_or(NonZeroUsize::MIN))
    }
}

/// Returns the payload that the path of `plan` carries of such packets.
fn payload_capacity(plan: &SimulationPlan) -> BitRate {
    let prediction = predict(&plan.path, &plan.sender, &plan.receiver, &plan.request);
    prediction
        .find_ceiling(Limit::Capacity)
        .map(|capacity| capacity.kernel_model)
        .unwrap_or_default()
}

fn parse_jobs(text: &str) -> Result<NonZeroUsize, String> {
    text.parse()
        .map_err(|_| "write a number of at least 1".to_owned())
}

fn parse_granularity(text: &str) -> Result<TrainGranularity, String> {
    match text {
        "segment" => Ok(TrainGranularity::Segment),
        "cut" => Ok(TrainGranularity::Cut),
        "train" => Ok(TrainGranularity::Train),
        _ => Err("write segment, cut or train".to_owned()),
    }
}
