mod measurers;

mod archive;

use self::archive::SweepArchive;
use self::measurers::{EmulatedPath, RealHost, known_path};
use std::cell::RefCell;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

use crate::live::{SweepPage, SweepUpdate};
use fullpipe_experiment::{
    KeptSweep, RunningSweep, SweepMeasurer, SweepWishes, lab_plan, light_request, plan_sweep,
    predicted_grid_cost,
};
use fullpipe_lab::{Backend, Lab};
use fullpipe_record::{DailyHours, Path, SweepOrder, SweepPlan, SweepRun};
use fullpipe_scenario::Scenario;
use fullpipe_stats::campaign::{CampaignPlan, SweepGrid};

use super::load::{AccessArguments, ServerAddress, data_direction};
use super::measure::{ask_question, require_whole, stays_here};
use super::prelude::*;
use crate::commands::live::LivePicture;

/// Most bytes of a sweep that need no consent.
const CONSENT_BYTES: ByteCount = ByteCount::from_mib(1024);

/// Flags that a sweep which is resumed does not take: those that are fixed once it has begun, and
/// that of no archive.
const FIXED: [&str; 9] = [
    "windows",
    "streams",
    "full",
    "order",
    "duty",
    "budget",
    "congestion",
    "seed",
    "no_store",
];

/// The sweep that was begun last, instead of an ID.
const LAST: &str = "last";

/// Find the window and the number of streams that fill the path.
///
/// Measures windows × streams where the answer depends on it, a fifth of the grid's bytes and time
/// at most, and names the cheapest setting with 95 % of the best rate. The server runs
/// `fullpipe serve` or `iperf3 -s`. Each run is kept in the archive before the next begins, so that
/// --resume goes on after an end of any kind.
#[derive(Debug, Args)]
pub(crate) struct SweepServerArguments {
    /// Server: HOST or HOST:PORT
    host: ServerAddress,
    #[command(flatten)]
    access: AccessArguments,
    /// Capacity of the path, if known; it permits a forecast
    #[arg(long, value_name = "RATE", value_parser = parse_capacity, help_heading = "Path", conflicts_with = "resume")]
    bandwidth: Option<BitRate>,
    /// The server sends, this end receives
    #[arg(long, short = 'R', help_heading = "Sweep", conflicts_with = "resume")]
    reverse: bool,
    /// Begin runs in these hours of the day only: 01:00-05:00
    ///
    /// Local time. The first second of 1 Mbit/s and the question for consent come at once.
    #[arg(
        long,
        value_name = "FROM-TO",
        help_heading = "Sweep",
        conflicts_with = "resume"
    )]
    hours: Option<DailyHours>,
    #[command(flatten)]
    sweep: SweepArguments,
    #[command(flatten)]
    output: OutputArguments,
}

/// The flags of a sweep, over whatever path.
#[derive(Debug, Args)]
#[command(next_help_heading = "Sweep")]
pub(crate) struct SweepArguments {
    /// Windows, doubled from the first to the last
    #[arg(long, default_value = "8KiB..4MiB", value_parser = parse_range::<ByteCount>, value_name = "FROM..TO")]
    windows: RangeInclusive<ByteCount>,
    /// Numbers of streams: 1, 2, 3, 4, 6, 8, 12 and so on, both ends included
    #[arg(long, default_value = "1..90", value_parser = parse_stream_range, value_name = "FROM..TO")]
    streams: RangeInclusive<u16>,
    /// Measure the whole grid, 10 s a setting
    #[arg(long)]
    full: bool,
    /// Order of the whole grid: nested, scrambled or both [default: scrambled]
    ///
    /// `nested` is all windows with the fewest streams first, as SLAC measured. `scrambled` is
    /// blocks in random order of which each has every window once, so that a slow change of the
    /// path does not look like an effect of the settings. `both` measures the grid in the one order
    /// and then in the other: what comes again belongs to the settings, and what does not to the
    /// path at that time.
    #[arg(long, requires = "full", conflicts_with = "budget", value_parser = parse_order, value_name = "ORDER")]
    order: Option<SweepOrder>,
    /// Part of the time in which the path is loaded; the rest is rest
    #[arg(long, default_value = "50%", value_parser = parse_share, value_name = "SHARE")]
    duty: Ratio,
    /// Bytes and time at most, as a share of those of the whole grid
    #[arg(long, default_value = "20%", value_parser = parse_share, value_name = "SHARE", conflicts_with = "full")]
    budget: Ratio,
    /// Bytes at most
    #[arg(long, value_name = "BYTES", value_parser = some_bytes)]
    max_bytes: Option<ByteCount>,
    /// Congestion control: cubic, reno, bbr, …
    #[arg(long, short = 'C', value_name = "NAME")]
    congestion: Option<String>,
    /// Seed of what falls to chance
    #[arg(long, default_value_t = 1, value_parser = integer_parser(0..=u64::MAX), value_name = "NUMBER")]
    seed: u64,
    /// Print settings and cost, and end
    ///
    /// One second with 1 Mbit/s shows round-trip time and settings of both ends.
    #[arg(long, conflicts_with = "resume")]
    dry_run: bool,
    /// Go on with the sweep ID, or the last one, with the flags that it began with
    ///
    /// Of these only --max-bytes may be given again, to lower it.
    #[arg(long, value_name = "ID", num_args = 0..=1, default_missing_value = LAST, conflicts_with_all = FIXED)]
    resume: Option<String>,
    /// Send more than 1 GiB without asking
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    live: LiveArgument,
    #[command(flatten)]
    archive: KeepArguments,
}

impl RunCommand for SweepServerArguments {
    fn output(&self) -> OutputChoice<'_> {
        self.output.output_choice()
    }

    fn run(&self, terminal: &Terminal) -> Result {
        let (destination, _far_end) = self.access.destination(&self.host)?;
        let interrupts = self.sweep.live.interrupt_flags()?;
        let target = destination.host.clone();
        let needs_consent = !self.sweep.yes && !stays_here(&target);
        let picture = Drawing::default();
        let interrupt = Arc::clone(&interrupts.flag);
        let mut host = RealHost {
            destination,
            device: None,
            interrupt,
            picture: &picture,
            terminal,
        };
        let place = SweepPath {
            target,
            is_virtual: false,
            needs_consent,
            path: &|rtt| self.bandwidth.map(|rate| known_path(rate, rtt)).transpose(),
            load: (data_direction(self.reverse, false), self.hours),
            picture: &picture,
        };
        self.sweep
            .carry_out(&place, &mut host, &interrupts, terminal)
    }
}

/// Finds the knee of the path of `scenario`, in a lab over `backend` or, without one, in virtual
/// time.
///
/// # Errors
/// Fails if the lab cannot be made or a run cannot be measured or kept. Fails after the report if
/// it was interrupted or has no answer.
pub(super) fn sweep_scenario(
    scenario: &Scenario,
    backend: Option<Backend>,
    sweep: &SweepArguments,
    terminal: &Terminal,
) -> Result {
    let interrupts = sweep.live.interrupt_flags()?;
    let first = scenario.steps.first();
    let step = first.ok_or_else(|| usage_failure("the scenario has no step"))?;
    let path = scenario.path_of(step);
    let is_virtual = backend.is_none();
    let (target, picture) = (scenario.name.clone(), Drawing::default());
    let place = SweepPath {
        target,
        is_virtual,
        needs_consent: false,
        path: &|_| Ok(Some(path.clone())),
        load: (Direction::Upload, None),
        picture: &picture,
    };
    let lab = backend
        .map(|backend| -> Result<Lab> {
            super::lab::check_congestion_controls(scenario.controls.iter())?;
            Ok(Lab::start(&lab_plan(scenario, step, backend))?)
        })
        .transpose()?;
    let mut emulated = EmulatedPath {
        scenario,
        step,
        lab: lab.as_ref(),
        interrupt: Arc::clone(&interrupts.flag),
    };
    sweep.carry_out(&place, &mut emulated, &interrupts, terminal)
}

/// The picture of a sweep, once it has begun, if one is asked for.
type Drawing = RefCell<Option<LivePicture<SweepUpdate>>>;

/// The path of a sweep.
struct SweepPath<'p> {
    /// Name of the far end or the scenario.
    target: String,
    is_virtual: bool,
    needs_consent: bool,
    /// Returns the path for a round-trip time, if its capacity is known.
    path: &'p dyn Fn(Span) -> Result<Option<Path>>,
    /// Direction of the data, and the hours in which runs begin.
    load: (Direction, Option<DailyHours>),
    picture: &'p Drawing,
}

impl SweepArguments {
    fn carry_out<M: SweepMeasurer<Error = Failure>>(
        &self,
        place: &SweepPath<'_>,
        measure: &mut M,
        interrupts: &InterruptFlags,
        terminal: &Terminal,
    ) -> Result {
        let (plan, runs) = self.plan_and_runs(place, measure)?;
        let fixed = plan.fixed_plan();
        let cost = predicted_grid_cost(&plan);
        terminal.print_progress(&report::sweep_plan(fixed, cost));
        let planned = Event::SweepPlan(Box::new(fixed.clone()));
        let sweep_plan = Box::new(fixed.clone());
        if self.dry_run {
            terminal.print_event(&planned);
            terminal.print_content(Content::SweepPlan { sweep_plan });
            return Ok(());
        }
        let mut archive = SweepArchive::new(&self.archive, terminal);
        if self.resume.is_none() {
            self.ask_consent(place, &plan)?;
            archive.keep_plan(Content::SweepPlan { sweep_plan });
        }
        if archive.is_on {
            terminal.print_progress(&report::sweep_kept(fixed));
        }
        let picture = self
            .live
            .start_picture(|| SweepPage::new(fixed), interrupts)?;
        *place.picture.borrow_mut() = picture;
        // Whoever sees this event can resume the sweep.
        terminal.print_event(&planned);
        let sweep = RunningSweep {
            plan: &plan,
            runs,
            interrupt: &interrupts.flag,
        };
        let done = archive.run_sweep(sweep, place.picture, measure)?;
        drop(place.picture.take());
        archive.finish_sweep(done, fixed)
    }

    /// Returns the plan with the runs of a sweep that is resumed, or a new one.
    fn plan_and_runs<M: SweepMeasurer<Error = Failure>>(
        &self,
        place: &SweepPath<'_>,
        measure: &mut M,
    ) -> Result<(CampaignPlan, Vec<SweepRun>)> {
        let Some(id) = &self.resume else {
            return Ok((self.plan_sweep(place, measure)?, Vec::new()));
        };
        let id = Some(id.clone()).filter(|id| id != LAST);
        let KeptSweep { plan, runs } = self
            .archive
            .read_archive(move |store| Ok(KeptSweep::find_sweep(store, id.as_deref())?))?;
        let max_bytes = plan.max_bytes.into_iter().chain(self.max_bytes).min();
        Ok((check_plan(SweepPlan { max_bytes, ..plan }, place)?, runs))
    }

    /// Returns the plan after a measurement under hardly any load.
    fn plan_sweep<M: SweepMeasurer<Error = Failure>>(
        &self,
        place: &SweepPath<'_>,
        measure: &mut M,
    ) -> Result<CampaignPlan> {
        let (direction, hours) = place.load;
        let wishes = SweepWishes {
            target: place.target.clone(),
            is_virtual: place.is_virtual,
            grid: SweepGrid::from_ranges(self.windows.clone(), self.streams.clone())
                .map_err(usage_failure)?,
            order: self
                .full
                .then(|| self.order.unwrap_or(SweepOrder::Scrambled)),
            seed: self.seed,
            duty: self.duty,
            budget: self.budget,
            max_bytes: self.max_bytes,
            congestion: self.congestion.clone(),
            direction,
            hours,
        };
        let light = measure.measure_run(0, &light_request(&wishes), None)?;
        let what = "the measurement before the first run";
        let light = require_whole(light, "anything was measured", what)?;
        let rtt = light.rtt.idle.map_or(Span::ZERO, |idle| idle.min);
        let plan = CampaignPlan::new(plan_sweep(wishes, &light, (place.path)(rtt)?.as_ref()))
            .map_err(usage_failure)?;
        Ok(plan.with_forecast())
    }

    /// Asks for consent before more than 1 GiB leaves this host.
    fn ask_consent(&self, place: &SweepPath<'_>, plan: &CampaignPlan) -> Result {
        let forecast = predicted_grid_cost(plan).map(|whole| {
            if self.full {
                whole.bytes
            } else {
                whole.bytes.scale_by(self.budget.get())
            }
        });
        let most = forecast.into_iter().chain(self.max_bytes).min();
        if !place.needs_consent || most.is_some_and(|most| most <= CONSENT_BYTES) {
            return Ok(());
        }
        let amount = most.map_or_else(
            || "an unknown number of bytes".to_owned(),
            |most| format!("up to {most}"),
        );
        let amount = match plan.fixed_plan().forecast.filter(|_| !self.full) {
            Some(forecast) => format!("about {}, {amount},", forecast.median.bytes),
            None => amount,
        };
        let warning = format!("the sweep sends {amount} to {}", place.target);
        ask_question(
            &format!("{warning}. Begin? [y/N] "),
            &format!("{warning}; add --yes, or --max-bytes 1GiB"),
        )
    }
}

/// Returns the plan of a sweep that was kept, if it is one of this place.
fn check_plan(plan: SweepPlan, place: &SweepPath<'_>) -> Result<CampaignPlan> {
    if plan.target != place.target || plan.is_virtual != place.is_virtual {
        let how = if plan.is_virtual {
            " in virtual time"
        } else {
            ""
        };
        return Err(usage_failure(format!(
            "the sweep {} is one of {}{how}",
            plan.id, plan.target
        )));
    }
    CampaignPlan::new(plan).map_err(usage_failure)
}

/// Reads FROM..TO, or one value.
fn parse_range<T: FromStr<Err: Display>>(text: &str) -> Result<RangeInclusive<T>, String> {
    let (from, to) = text.split_once("..").unwrap_or((text, text));
    Ok(parse_quantity(from.trim())?..=parse_quantity(to.trim())?)
}

fn parse_stream_range(text: &str) -> Result<RangeInclusive<u16>, String> {
    let possible = 1..=128;
    parse_range(text)
        .ok()
        .filter(|range| possible.contains(range.start()) && possible.contains(range.end()))
        .ok_or_else(|| "write two numbers from 1 to 128, as 1..90, or one".to_owned())
}

fn parse_share(text: &str) -> Result<Ratio, String> {
    let share: Ratio = parse_quantity(text)?;
    let valid = (0.01..=1.0).contains(&share.get());
    valid
        .then_some(share)
        .ok_or_else(|| "a share is from 1 % to 100 %".to_owned())
}

fn parse_order(text: &str) -> Result<SweepOrder, String> {
    match text {
        "nested" => Ok(SweepOrder::Nested),
        "scrambled" => Ok(SweepOrder::Scrambled),
        "both" => Ok(SweepOrder::Both),
        _ => Err("write nested, scrambled or both".to_owned()),
    }
}

#[cfg(test)]
mod tests;
