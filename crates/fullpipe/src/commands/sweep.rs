use std::cell::RefCell;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::thread::sleep;

use fullpipe_campaign::{CampaignPlan, CampaignStep, SweepGrid, spent_cost};
use fullpipe_experiment::{EmulatedTarget, LabTarget, VirtualTarget};
use fullpipe_host::device_counts;
use fullpipe_lab::{Backend, Host as LabHost, Lab, LabPlan};
use fullpipe_live::{SweepPage, SweepUpdate};
use fullpipe_probe::{TestEvent, measure_transfer, watch_closely};
use fullpipe_record::{
    DailyHours, DeviceCounts, Path, SweepOrder, SweepPlan, SweepReport, SweepRun, SweepRunRecord,
};
use fullpipe_scenario::{PathSpec, Scenario, ScenarioStep, parse_path_flag_with};
use fullpipe_sweep::{
    KeptSweep, PendingRuns, RunningSweep, SweepMeasurer, SweepWishes, light_request, plan_sweep,
    predicted_grid_cost,
};
use jiff::Zoned;

use super::load::{AccessArguments, ServerAddress, data_direction};
use super::measure::{ask_question, require_whole, stays_here};
use super::prelude::*;
use crate::commands::live::LivePicture;

/// Most bytes of a sweep that need no consent.
const CONSENT_BYTES: ByteCount = ByteCount::from_mib(1024);

/// Runs from one forecast to the next.
const FORECAST_EVERY: usize = 5;

/// Time between two checks for an interrupt.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

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
        let destination = self.access.destination(&self.host)?;
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
    let step = scenario
        .steps
        .first()
        .ok_or_else(|| usage_failure("the scenario has no step"))?;
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
        .map(|backend| start_lab(scenario, step, backend))
        .transpose()?;
    let mut emulated = EmulatedPath {
        scenario,
        step,
        lab: lab.as_ref(),
        interrupt: Arc::clone(&interrupts.flag),
    };
    sweep.carry_out(&place, &mut emulated, &interrupts, terminal)
}

fn start_lab(scenario: &Scenario, step: &ScenarioStep, backend: Backend) -> Result<Lab> {
    super::lab::check_congestion_controls(scenario.controls.iter())?;
    let [sender, receiver] = scenario.hosts_of(step);
    let path = scenario.path_of(step).clone();
    Ok(Lab::start(&LabPlan {
        path,
        seed: scenario.seed,
        sender,
        receiver,
        backend,
        interactive: false,
    })?)
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

/// Prints the forecast after `runs` now and then: it improves as the path is known better.
fn print_forecast(plan: &CampaignPlan, runs: &[SweepRun], terminal: &Terminal) {
    let is_due = runs.len().is_multiple_of(FORECAST_EVERY) && terminal.shows_progress();
    if !is_due || matches!(plan.next_step(runs), CampaignStep::Done(_)) {
        return;
    }
    if let Some(forecast) = plan.forecast_cost(runs) {
        terminal.print_progress(&format!(
            "{}\n",
            report::sweep_forecast(spent_cost(runs), &forecast)
        ));
    }
}

/// Draws the map after `runs`, and the run that follows from them.
fn draw_map(picture: &Drawing, plan: &CampaignPlan, runs: &[SweepRun]) {
    let Some(picture) = &*picture.borrow() else {
        return;
    };
    picture.send(SweepUpdate::Known {
        runs: runs.to_vec(),
        surface: plan.rate_estimates(runs),
        answer: plan.current_answer(runs).map(Box::new),
        grid: plan.grid_cost(runs),
    });
    if let CampaignStep::Run { cell, reason } = plan.next_step(runs) {
        picture.send(SweepUpdate::Next { cell, reason });
    }
}

/// The archive of a sweep. One that takes nothing ends no sweep, but a notice states that it cannot
/// be resumed.
struct SweepArchive<'a> {
    arguments: &'a KeepArguments,
    terminal: &'a Terminal,
    /// False if nothing is to be kept, or after a failure: without one run, those after it are of
    /// no use.
    is_on: bool,
    /// Runs that could not be started.
    waiting: PendingRuns,
}

impl<'a> SweepArchive<'a> {
    fn new(arguments: &'a KeepArguments, terminal: &'a Terminal) -> Self {
        Self {
            arguments,
            terminal,
            is_on: !arguments.is_off(),
            waiting: PendingRuns::default(),
        }
    }

    /// Makes the archive, if there is none, and keeps the plan.
    fn keep_plan(&mut self, plan: Content) {
        if self.is_on {
            let kept = self
                .arguments
                .require_archive()
                .and_then(|()| self.arguments.put_document(&Document::new(plan)));
            self.disable_on_failure(kept.map(drop));
        }
    }

    /// Keeps a run, and those that wait for it.
    ///
    /// # Errors
    /// Fails if another program has kept a run with this number.
    fn keep_run(&mut self, record: SweepRunRecord) -> Result {
        self.waiting
            .push_record(record)
            .into_iter()
            .try_for_each(|record| self.put_run(record))
    }

    fn put_run(&mut self, record: SweepRunRecord) -> Result {
        if !self.is_on {
            return Ok(());
        }
        let kept = self
            .arguments
            .put_document(&Document::new(Content::SweepRun {
                sweep_run: Box::new(record),
            }));
        if kept
            .as_ref()
            .is_ok_and(|kept| kept.iter().any(|kept| !kept.is_new))
        {
            return Err(run_failure(
                "another program goes on with this sweep: only one can",
            ));
        }
        self.disable_on_failure(kept.map(drop));
        Ok(())
    }

    /// Runs a sweep, and keeps and shows each run.
    fn run_sweep<M: SweepMeasurer<Error = Failure>>(
        &mut self,
        sweep: RunningSweep<'_>,
        picture: &Drawing,
        measure: &mut M,
    ) -> Result<SweepReport> {
        let (plan, terminal) = (sweep.plan, self.terminal);
        let mut known = sweep.runs.clone();
        draw_map(picture, plan, &known);
        sweep.run(measure, &mut |record| {
            let (number, run) = (record.number, record.run.clone());
            self.keep_run(record)?;
            terminal.print_progress(&format!("{}\n", report::sweep_run(number, &run)));
            terminal.print_event(&Event::SweepRun(Box::new(run.clone())));
            known.push(run);
            print_forecast(plan, &known, terminal);
            draw_map(picture, plan, &known);
            Ok(())
        })
    }

    /// Prints and keeps the report.
    fn finish_sweep(&self, done: SweepReport, plan: &SweepPlan) -> Result {
        let (terminal, sweep) = (self.terminal, Box::new(done));
        terminal.print_result(&report::sweep_text(&sweep));
        terminal.print_event(&Event::Sweep(sweep.clone()));
        let (interrupted, has_answer) = (sweep.interrupted, sweep.answer.is_some());
        let document = terminal.print_report(Content::Sweep { sweep }, None);
        if self.is_on {
            self.arguments.keep_as_asked(&document, terminal);
        }
        self.note_waiting(plan);
        Failure::after_report(None, interrupted, has_answer)
    }

    /// States how to go on with a sweep whose last runs could not be started.
    fn note_waiting(&self, plan: &SweepPlan) {
        if self.is_on && !self.waiting.is_empty() {
            let again = format!("`--resume {}` tries them again", plan.id);
            self.terminal
                .print_notice(&format!("the last runs could not be started: {again}"));
        }
    }

    fn disable_on_failure(&mut self, kept: Result) {
        if let Err(failure) = kept {
            self.is_on = false;
            self.terminal.print_notice(&format!(
                "the sweep is not kept, and cannot be resumed: {}",
                failure.message
            ));
        }
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

/// A real host.
struct RealHost<'p> {
    destination: Destination,
    /// Name of the device of the last measurement; each of them states it anew, as the route may
    /// change.
    device: Option<String>,
    interrupt: Arc<AtomicBool>,
    picture: &'p Drawing,
    terminal: &'p Terminal,
}

impl RealHost<'_> {
    fn measure_request(&self, request: &Request, most: Option<ByteCount>) -> Result<Measurement> {
        if most.is_none() && self.picture.borrow().is_none() {
            let interrupt = &self.interrupt;
            let measured = measure_transfer(&self.destination, request, interrupt, &mut |_| {});
            return Ok(measured?);
        }
        let mut is_over = false;
        let measured = watch_closely(&self.destination, request, &self.interrupt, &mut |event| {
            let TestEvent::Snapshot(snapshot) = event else {
                return;
            };
            if let Some(picture) = &*self.picture.borrow() {
                picture.send(SweepUpdate::Snapshot(snapshot.clone()));
            }
            let moved: ByteCount = snapshot.streams.iter().map(|stream| stream.bytes).sum();
            if most.is_some_and(|most| moved > most) && !is_over {
                is_over = true;
                self.interrupt.store(true, Ordering::Relaxed);
            }
        });
        if is_over {
            // Not by the user: the sweep ends with its answer.
            self.interrupt.store(false, Ordering::Relaxed);
        }
        Ok(measured?)
    }
}

impl SweepMeasurer for RealHost<'_> {
    type Error = Failure;

    fn of_single(error: &Failure) -> Option<String> {
        of_single(error)
    }

    fn measure_run(
        &mut self,
        _: u32,
        request: &Request,
        most: Option<ByteCount>,
    ) -> Result<Measurement> {
        let measurement = self.measure_request(request, most)?;
        self.device = measurement
            .local
            .device
            .as_ref()
            .map(|device| device.name.clone());
        Ok(measurement)
    }

    fn device_counts(&mut self) -> Option<DeviceCounts> {
        device_counts(self.device.as_deref()?).ok()
    }

    fn wait_idle(&mut self, span: Span) {
        sleep_interruptibly(span, &self.interrupt);
    }

    fn wait_for(&mut self, hours: DailyHours) {
        if hours.wait_until_start(time_of_day()) > Span::ZERO {
            self.terminal
                .print_progress(&format!("runs begin at {hours}: waiting\n"));
        }
        // The clock may be set meanwhile.
        while hours.wait_until_start(time_of_day()) > Span::ZERO
            && !self.interrupt.load(Ordering::Relaxed)
        {
            sleep(POLL_INTERVAL);
        }
    }
}

/// Returns the sentence of a failure that another run may not have: a server that does not answer,
/// too many streams. `None` for errors of the command line, and for permissions that this host
/// lacks: every run would fail alike.
fn of_single(error: &Failure) -> Option<String> {
    (error.code == FAILED).then(|| error.message.clone())
}

/// Returns the time since midnight by the clock on the wall.
fn time_of_day() -> Span {
    let now = Zoned::now();
    let parts = [now.hour(), now.minute(), now.second()];
    let parts = parts.map(|part| u64::try_from(part).unwrap_or(0));
    Span::from_secs(parts.into_iter().fold(0, |whole, part| whole * 60 + part))
}

/// A lab or a simulation.
struct EmulatedPath<'s> {
    scenario: &'s Scenario,
    step: &'s ScenarioStep,
    /// `None` in virtual time.
    lab: Option<&'s Lab>,
    interrupt: Arc<AtomicBool>,
}

impl SweepMeasurer for EmulatedPath<'_> {
    type Error = Failure;

    fn of_single(error: &Failure) -> Option<String> {
        of_single(error)
    }

    /// Bytes of an emulated path cost nobody anything.
    fn measure_run(
        &mut self,
        number: u32,
        request: &Request,
        _: Option<ByteCount>,
    ) -> Result<Measurement> {
        let seed = self.scenario.seed.wrapping_add(number.into());
        let load = (&self.step.cross_traffic[..], seed);
        let interrupt = Interrupt(&self.interrupt);
        if let Some(lab) = self.lab {
            return Ok(EmulatedTarget::Lab(&LabTarget::new(lab)).measure(request, load, interrupt)?);
        }
        let [sender, receiver] = self.scenario.hosts_of(self.step);
        let target = VirtualTarget::new(
            self.scenario.path_of(self.step).clone(),
            [&sender, &receiver],
            seed,
        );
        Ok(EmulatedTarget::Virtual(&target).measure(request, load, interrupt)?)
    }

    fn device_counts(&mut self) -> Option<DeviceCounts> {
        self.lab?.device_counts(LabHost::Sender).ok()
    }

    fn wait_idle(&mut self, span: Span) {
        if self.lab.is_some() {
            sleep_interruptibly(span, &self.interrupt);
        }
    }

    /// No emulated path has users whom a run could disturb at any hour.
    fn wait_for(&mut self, _: DailyHours) {}
}

fn sleep_interruptibly(span: Span, interrupt: &AtomicBool) {
    let until = Instant::now() + Duration::from(span);
    while !interrupt.load(Ordering::Relaxed) {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        sleep(left.min(POLL_INTERVAL));
    }
}

/// Returns a path of which capacity and round-trip time are known.
fn known_path(rate: BitRate, rtt: Span) -> Result<Path> {
    let flag = format!("rate={}bit/s,rtt={}ns", rate.bps(), rtt.as_nanos().max(1));
    Ok(parse_path_flag_with(
        &flag,
        &PathSpec::demo_path(),
        &|file| Err(file.to_owned()),
    )?)
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
