use fullpipe_experiment::{
    CaptureNumbers, CaptureTo, ExperimentError, GridPlace, grid_duration, run_grid, run_scenario,
    run_scenario_virtually,
};
use fullpipe_host::{SysctlTree, inspect_host};
use fullpipe_lab::{
    Backend, Host, JoinedLab, Lab, LabError, LabPlan, ProgramStdio, StandingLab,
    check_congestion_control,
};
use fullpipe_record::{HostSettings, LabReport};
use fullpipe_scenario::{
    RequiredControl, Scenario, ScenarioGrid, builtin_comparisons, builtin_grids, builtin_scenarios,
};

use super::compare::CompareArguments;
use super::diagnose::explained_rate;
use super::grid_runs::GridRuns;
use super::prelude::*;
use super::sweep::{SweepArguments, sweep_scenario};
use super::up::{LabSettings, describe_path, run_standing_lab};
use crate::commands::emulated::EmulatedArguments;
use crate::input::read_text;
use crate::sibling::read_sibling;
use crate::values::parse_backend;

/// Run scenarios, or any program, over emulated paths.
///
/// A lab consists of two hosts, the sender and the receiver, and an emulated path between them,
/// with two relays on the way if the scenario has stretches. All hosts are network namespaces of
/// this machine and use its kernel.
#[derive(Debug, Args)]
pub(crate) struct LabArguments {
    /// Backend of the path: auto, tun, packet or kernel
    ///
    /// `tun` connects the hosts to the emulated link by TUN interfaces, `packet` by packet sockets.
    /// `auto` uses `tun` if /dev/net/tun can be opened, or else `packet`. `kernel` replaces the
    /// emulated link by the tbf and netem of the kernel, which support only rate, queue, loss and
    /// delay.
    #[arg(
        long,
        help_heading = "Lab",
        global = true,
        default_value = "auto",
        value_parser = parse_backend,
        value_name = "KIND"
    )]
    backend: Backend,
    #[command(subcommand)]
    action: LabAction,
}

#[derive(Debug, Subcommand)]
enum LabAction {
    /// List the built-in scenarios
    List,
    /// Run scenarios and compare measured with predicted and published rates
    Run(RunArguments),
    /// Measure the paths of a grid and compare with predictions (about 25 minutes)
    ///
    /// Two grids are built in: `accuracy`, with windows, buffers and random loss, and `queues`,
    /// with shallow and deep queues (about 4 minutes).
    Grid(GridArguments),
    /// Find the window and the number of streams that fill the path of a scenario
    ///
    /// The path and the cross traffic of its first step are those of every run.
    Sweep {
        /// Scenario file or name from `lab list`
        #[arg(default_value = "slac-sweep", value_name = "SCENARIO")]
        scenario: String,
        /// Simulate the path and both hosts in virtual time instead of building a lab
        ///
        /// The hosts have the default settings of Linux 6.18 where the scenario sets no others. No
        /// processor and no network card take part. Needs no privileges.
        #[arg(long = "virtual")]
        is_virtual: bool,
        #[command(flatten)]
        sweep: SweepArguments,
        #[command(flatten)]
        output: OutputArguments,
    },
    /// Move one file by several programs, and name the limit of each
    ///
    /// iperf3, scp, rsync, curl with nginx, and FTP, unmodified: each moves the same random bytes
    /// from the sender to the receiver, under the path and settings of each step of the scenario.
    /// Their servers, keys and files are in the lab and end with it.
    Compare(CompareArguments),
    /// Keep the lab of a scenario running, so that other programs can use it
    ///
    /// `lab ls` lists the labs that are up, `lab down` ends one, and so does `q`.
    Up(UpArguments),
    /// List the labs of this user that are up
    Ls,
    /// End a lab that is up, and the programs in it
    Down {
        /// Name of the lab, as `lab ls` lists it
        #[arg(value_name = "NAME")]
        name: String,
    },
    /// Open a shell on a host of a lab
    Shell {
        /// Scenario file or name from `lab list`; with --join, name of a running lab
        #[arg(default_value = "demo", value_name = "SCENARIO")]
        scenario: String,
        /// Use the running lab named SCENARIO instead of building a lab
        #[arg(long)]
        join: bool,
        /// Host: sender, receiver, near-relay or far-relay
        #[arg(default_value = "sender", value_parser = parse_host)]
        host: Host,
    },
    /// Run a program on a host of a lab
    Exec {
        /// Scenario file or name from `lab list`; with --join, name of a running lab
        #[arg(value_name = "SCENARIO")]
        scenario: String,
        /// Use the running lab named SCENARIO instead of building a lab
        #[arg(long)]
        join: bool,
        /// Host: sender, receiver, near-relay or far-relay
        #[arg(value_parser = parse_host)]
        host: Host,
        /// Program and its arguments
        #[arg(required = true, last = true, value_name = "COMMAND")]
        command: Vec<String>,
    },
}

/// The scenarios to run, and how.
#[derive(Debug, Args)]
struct RunArguments {
    /// Scenario files or names from `lab list`
    #[arg(required_unless_present = "all", value_name = "SCENARIO")]
    scenarios: Vec<String>,
    /// Run every built-in scenario (about 20 minutes)
    #[arg(long, conflicts_with = "scenarios")]
    all: bool,
    /// Multiply the duration of every load by this factor
    ///
    /// A factor below 1 shortens no load below the time of its ramp and, after the ramp, 20
    /// round trips or 4 s. A load that is shorter than this time keeps its duration.
    #[arg(long, value_parser = time_scale, default_value = "1", value_name = "FACTOR")]
    time_scale: Ratio,
    /// Simulate the path and both hosts in virtual time instead of building a lab
    ///
    /// The hosts have the default settings of Linux 6.18 where the scenario sets no others.
    /// TCP, datagrams and cross traffic are modelled. No processor and no network card take
    /// part. Needs no privileges.
    #[arg(long = "virtual", conflicts_with = "capture")]
    is_virtual: bool,
    /// Write packet captures from both endpoints of the path to this folder
    ///
    /// Each run writes one pcap file for each endpoint. A file holds the first 128 bytes of
    /// each packet, with the time stamps of the emulated link. The limit that the packets of a
    /// TCP load show is printed next to the one that the kernel's figures show. Not available
    /// with `--backend kernel`.
    #[arg(long, value_name = "FOLDER")]
    capture: Option<PathBuf>,
    /// Maximum size of a capture file
    #[arg(
        long,
        requires = "capture",
        conflicts_with = "is_virtual",
        default_value = "256MiB",
        value_parser = some_bytes,
        value_name = "BYTES"
    )]
    capture_size: ByteCount,
    #[command(flatten)]
    keep: KeepArguments,
    #[command(flatten)]
    output: OutputArguments,
}

/// The grid to measure, and how.
#[derive(Debug, Args)]
struct GridArguments {
    /// Grid file, or accuracy or queues
    #[arg(default_value = "accuracy", value_name = "GRID")]
    grid: String,
    /// Compare each run also with its simulation in virtual time
    ///
    /// Each run that counts is simulated with the settings that its hosts stated and the load
    /// that was carried out. Rates and retransmissions of both are printed next to each other.
    #[arg(
        long,
        value_enum,
        value_name = "virtual",
        conflicts_with = "is_virtual",
        hide_possible_values = true
    )]
    against: Option<ReferenceClock>,
    /// Simulate the paths and both hosts in virtual time instead of building labs
    ///
    /// The hosts have the default settings of Linux 6.18 where a cell sets no others. No
    /// processor and no network card take part. Takes seconds, and needs no privileges.
    #[arg(long = "virtual")]
    is_virtual: bool,
    /// Write each valid run, with its path, to a JSON file of its own in this folder
    ///
    /// Files that are there stay: a grid that is measured again adds to them.
    #[arg(long, conflicts_with = "is_virtual", value_name = "FOLDER")]
    record: Option<PathBuf>,
    #[command(flatten)]
    output: OutputArguments,
}

/// The lab to keep running.
#[derive(Debug, Args)]
struct UpArguments {
    /// Scenario file or name from `lab list` [default: demo]
    #[arg(value_name = "SCENARIO", conflicts_with = "path")]
    scenario: Option<String>,
    #[command(flatten)]
    emulated: EmulatedArguments,
    /// Name of the lab for `--join` [default: name of the scenario]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Interval between status lines of the path
    #[arg(
        long,
        short,
        help_heading = "Output",
        default_value = "1",
        value_parser = parse_status_interval,
        value_name = "SECONDS"
    )]
    interval: Span,
    /// Run no cross traffic
    ///
    /// By default, the cross traffic of the first step that defines cross traffic is running.
    #[arg(long)]
    no_cross_traffic: bool,
    /// Print one JSON object a line for each event
    #[arg(long, help_heading = "Output")]
    json_lines: bool,
}

/// Clocks that the runs of a grid can be compared with.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum ReferenceClock {
    Virtual,
}

impl LabAction {
    fn output(&self) -> OutputChoice<'_> {
        match self {
            Self::Run(RunArguments { output, .. })
            | Self::Grid(GridArguments { output, .. })
            | Self::Sweep { output, .. } => output.output_choice(),
            Self::Compare(compare) => compare.output_arguments().output_choice(),
            Self::Up(up) => (OutputFormat::from_flags(false, up.json_lines), None),
            _ => (OutputFormat::Text, None),
        }
    }
}

/// Reads the interval of status lines.
///
/// # Errors
/// Fails if `text` is not a duration, or if the duration is shorter than 0.1 s or longer than an
/// hour.
fn parse_status_interval(text: &str) -> Result<Span, String> {
    let bounds = Span::from_millis(100)..=Span::from_secs(3600);
    let sentence = "the interval must be from 0.1 s to 3600 s";
    value_within(parse_duration(text)?, bounds, sentence)
}

/// Reads the factor on the duration of loads.
///
/// # Errors
/// Fails if `text` is not a number or percentage, or if the factor is 0 or above
/// [`MAX_TIME_SCALE`].
fn time_scale(text: &str) -> Result<Ratio, String> {
    let scale: Ratio = parse_quantity(text)?;
    let valid = scale > Ratio::ZERO && scale.get() <= MAX_TIME_SCALE;
    valid
        .then_some(scale)
        .ok_or_else(|| format!("the factor must be above 0 and at most {MAX_TIME_SCALE}"))
}

/// Largest factor on the duration of loads, with which a load of 10 s lasts an hour.
const MAX_TIME_SCALE: f64 = 360.0;

/// Reads the name of a host.
///
/// # Errors
/// Fails if `name` is none of `sender`, `receiver`, `near-relay` and `far-relay`.
fn parse_host(name: &str) -> Result<Host, String> {
    Host::from_name(name).ok_or_else(|| {
        "the host must be `sender`, `receiver`, `near-relay` or `far-relay`".to_owned()
    })
}

impl RunCommand for LabArguments {
    fn output(&self) -> OutputChoice<'_> {
        self.action.output()
    }

    fn run(&self, terminal: &Terminal) -> Result {
        let backend = self.backend;
        match &self.action {
            LabAction::List => list_scenarios(terminal),
            LabAction::Run(run) => run.run_scenarios(backend, terminal),
            LabAction::Grid(grid) => grid.measure_grid(backend, terminal),
            LabAction::Sweep {
                scenario,
                is_virtual,
                sweep,
                ..
            } => {
                let backend = (!is_virtual).then_some(backend);
                sweep_scenario(&load_scenario(scenario)?, backend, sweep, terminal)
            }
            LabAction::Compare(compare) => compare.carry_out(backend, terminal),
            LabAction::Up(up) => up.keep_running(backend, terminal),
            LabAction::Ls => list_standing(terminal),
            LabAction::Down { name } => {
                StandingLab::find_named(name)?.end_lab()?;
                terminal.print_progress(&format!("{name} is down\n"));
                Ok(())
            }
            LabAction::Shell {
                scenario,
                join,
                host,
            } => enter_shell(scenario, *join, backend, *host, terminal),
            LabAction::Exec {
                scenario,
                join,
                host,
                command,
            } => enter_host(scenario, *join, backend, *host, command, &|| {}),
        }
    }
}

impl RunArguments {
    fn run_scenarios(&self, backend: Backend, terminal: &Terminal) -> Result {
        let names = if self.all {
            builtin_names()
        } else {
            self.scenarios.clone()
        };
        let numbers = &CaptureNumbers::default();
        let capture = self.capture.as_deref().map(|folder| CaptureTo {
            folder,
            max_size: self.capture_size,
            numbers,
        });
        let place = if self.is_virtual {
            ScenarioTarget::Virtual
        } else {
            ScenarioTarget::Lab { backend, capture }
        };
        run_all(&names, self.time_scale, place, &self.keep, terminal)
    }
}

impl GridArguments {
    fn measure_grid(&self, backend: Backend, terminal: &Terminal) -> Result {
        let place = if self.is_virtual {
            GridPlace::Virtual
        } else {
            GridPlace::Lab {
                backend,
                simulated: self.against.is_some(),
            }
        };
        measure_grid(&self.grid, place, self.record.as_deref(), terminal)
    }
}

impl UpArguments {
    fn keep_running(&self, backend: Backend, terminal: &Terminal) -> Result {
        let scenario = load_scenario(self.scenario.as_deref().unwrap_or("demo"))?;
        let scenario = apply_emulated_flags(scenario, &self.emulated)?;
        let settings = LabSettings {
            name: self.name.as_ref().unwrap_or(&scenario.name),
            backend,
            interval: self.interval,
            no_cross_traffic: self.no_cross_traffic,
        };
        run_standing_lab(&scenario, &settings, terminal)
    }
}

fn builtin_names() -> Vec<String> {
    builtin_scenarios()
        .iter()
        .map(|(name, _)| (*name).to_owned())
        .collect()
}

fn enter_shell(
    scenario: &str,
    joins: bool,
    backend: Backend,
    host: Host,
    terminal: &Terminal,
) -> Result {
    let shell = std::env::var("SHELL").unwrap_or_else(|_| "/bin/sh".to_owned());
    let peer = host.peer_host();
    let (name, peer, address) = (host.name(), peer.name(), peer.address());
    let text = format!(
        "shell on the {name}; the {peer} has the address {address}; `exit` leaves the shell"
    );
    enter_host(scenario, joins, backend, host, &[shell], &|| {
        terminal.print_notice(&text);
    })
}

/// Returns `scenario` with the path and the settings that the flags of `emulated` give.
fn apply_emulated_flags(mut scenario: Scenario, emulated: &EmulatedArguments) -> Result<Scenario> {
    if emulated.path_flag().is_some() {
        scenario.path = emulated.emulated_path()?;
        scenario.title = describe_path(&scenario.path);
    }
    let [sender, receiver] = emulated.host_changes()?;
    scenario.sender.extend(sender);
    scenario.receiver.extend(receiver);
    Ok(scenario)
}

/// Prints name, path and age of each lab of this user that is up.
fn list_standing(terminal: &Terminal) -> Result {
    let labs = StandingLab::find_all()?.into_iter();
    let rows: Vec<_> = labs.map(standing_lab_row).collect();
    if rows.is_empty() {
        terminal.print_progress("No lab is up; `fullpipe lab up` makes one.\n");
    }
    terminal.print_result(&report::name_list(&rows));
    Ok(())
}

/// Returns the name of a lab, and its path and age.
fn standing_lab_row(lab: StandingLab) -> (String, String) {
    let since = lab
        .since
        .and_then(|since| jiff::Timestamp::try_from(since).ok());
    let since = since.map_or_else(
        || "a time that is not known".to_owned(),
        |since| {
            let since = since.to_zoned(jiff::tz::TimeZone::system());
            since.strftime("%F %T").to_string()
        },
    );
    (lab.name, format!("{}, since {since}", lab.description))
}

/// Prints name and title of each built-in scenario.
fn list_scenarios(terminal: &Terminal) -> Result {
    let mut all = Vec::new();
    for (scenarios, remark) in [
        (builtin_scenarios(), ""),
        (builtin_comparisons(), " (for `lab compare`)"),
    ] {
        for (name, text) in scenarios {
            let scenario = Scenario::parse(name, text)?;
            all.push((scenario.name, scenario.title + remark));
        }
    }
    terminal.print_result(&report::name_list(&all));
    Ok(())
}

/// The hosts and the path of scenarios.
#[derive(Clone, Copy)]
enum ScenarioTarget<'c> {
    Lab {
        backend: Backend,
        capture: Option<CaptureTo<'c>>,
    },
    Virtual,
}

impl ScenarioTarget<'_> {
    /// Checks that this machine has everything that the scenarios need.
    fn check_requirements(self, scenarios: &[Scenario]) -> Result {
        let Self::Lab { backend, capture } = self else {
            return Ok(());
        };
        check_congestion_controls(scenarios.iter().flat_map(|scenario| &scenario.controls))?;
        check_path_support(scenarios, backend)?;
        if capture.is_some() {
            backend.check_capture_support()?;
        }
        Ok(())
    }

    fn run_scenario_here(
        self,
        scenario: &Scenario,
        time_scale: Ratio,
        interrupt: Interrupt<'_>,
        observe: &mut dyn FnMut(&Event),
    ) -> Result<LabReport, ExperimentError> {
        match self {
            Self::Lab { backend, capture } => {
                run_scenario(scenario, backend, time_scale, capture, interrupt, observe)
            }
            Self::Virtual => run_scenario_virtually(scenario, time_scale, interrupt, observe),
        }
    }
}

/// Runs the scenarios with these `names` and prints the report of each, a summary, and the JSON
/// document.
///
/// # Errors
/// Fails before a lab is built if a scenario cannot be read, if this machine lacks a congestion
/// control, or if the backend does not support the path of a step or the captures. Fails after the
/// reports if a bound was missed, if a step with bounds had no valid run, or if the user
/// interrupted the program.
fn run_all(
    names: &[String],
    time_scale: Ratio,
    place: ScenarioTarget<'_>,
    keep: &KeepArguments,
    terminal: &Terminal,
) -> Result {
    // All files are read and all requirements checked before the first lab is built.
    let scenarios: Vec<Scenario> = names
        .iter()
        .map(|name| load_scenario(name))
        .collect::<Result<_, _>>()?;
    place.check_requirements(&scenarios)?;
    let flag = super::interrupt_flag()?;
    let mut reports = Vec::new();
    for scenario in scenarios {
        let observe = &mut |event: &Event| show_event(event, terminal);
        let result = place.run_scenario_here(&scenario, time_scale, Interrupt(&flag), observe);
        let report = match result {
            Err(ExperimentError::Interrupted) if !reports.is_empty() => break,
            result => result?,
        };
        print_scenario(&report, keep, terminal);
        let interrupted = report.interrupted;
        reports.push(report);
        if interrupted {
            break;
        }
    }
    let summary = report::lab_summary(&reports);
    terminal.print_result(&format!("\n{summary}"));
    let interrupted = flag.load(Ordering::Relaxed);
    let passed = !interrupted && reports.iter().all(|report| report.passed);
    terminal.print_content(Content::Lab { lab: reports });
    Failure::after_report(None, interrupted, passed)
}

/// Prints and keeps the report of a scenario.
fn print_scenario(report: &LabReport, keep: &KeepArguments, terminal: &Terminal) {
    terminal.print_result(&report::lab_report(report));
    terminal.print_event(&Event::Scenario(Box::new(report.clone())));
    let lab = vec![report.clone()];
    keep.keep_document(&Document::new(Content::Lab { lab }), terminal);
}

/// Measures every cell of the grid `name` in `place` and prints the report and the JSON document.
/// Keeps each valid run in the folder `record`.
///
/// # Errors
/// Fails before the first measurement if the grid or the settings of this host cannot be read, if
/// this machine lacks a congestion control, or if the backend does not support the path of a cell.
/// Fails after the report if a bound was missed, if a cell was not measured, if a run could not be
/// kept, or if the user interrupted the program.
fn measure_grid(
    name: &str,
    place: GridPlace,
    record: Option<&Path>,
    terminal: &Terminal,
) -> Result {
    let grid = load_grid(name)?;
    let settings = host_settings(&grid, place)?;
    let flag = super::interrupt_flag()?;
    let (count, time) = (grid.cells.len(), grid_duration(&grid, &settings));
    terminal.print_progress(&format!(
        "{}: {}, {time} of load\n",
        grid.title,
        count_noun(count, "cell")
    ));
    let mut runs = record
        .map(|folder| GridRuns::in_folder(folder, &grid))
        .transpose()?;
    let report = run_grid(&grid, &settings, place, Interrupt(&flag), &mut |event| {
        show_cell(event, terminal);
        if let Some(runs) = &mut runs {
            runs.observe_event(event);
        }
    })?;
    terminal.print_result(&report::grid_report(&report));
    let (passed, interrupted) = (report.passed, report.interrupted);
    terminal.print_event(&Event::Grid(Box::new(report.clone())));
    terminal.print_content(Content::Grid {
        grid: Box::new(report),
    });
    runs.map_or(Ok(()), GridRuns::into_result)?;
    Failure::after_report(None, interrupted && !passed, passed)
}

/// Returns the settings of the hosts of a grid, which can be measured in `place`.
fn host_settings(grid: &ScenarioGrid, place: GridPlace) -> Result<HostSettings> {
    let GridPlace::Lab { backend, .. } = place else {
        return Ok(HostSettings::of_linux_6_18());
    };
    check_congestion_controls(grid.cells.iter().flat_map(|scenario| &scenario.controls))?;
    check_path_support(&grid.cells, backend)?;
    inspect_host(&SysctlTree::of_this_host()).map_err(|error| run_failure(error.to_string()))
}

/// Prints an event of a grid. The event that a scenario begins is not printed, because each cell is
/// a scenario with one step.
fn show_cell(event: &Event, terminal: &Terminal) {
    match event {
        Event::CellBegan(cell) => {
            terminal.print_event(event);
            terminal.print_progress(&format!(
                "[{}/{}] {}, {}\n",
                cell.number, cell.cells, cell.name, cell.duration
            ));
        }
        Event::ScenarioBegan(_) => {}
        _ => show_event(event, terminal),
    }
}

/// Prints an event of a scenario: as JSON if the user asked for JSON lines, and as progress if the
/// event has a text.
fn show_event(event: &Event, terminal: &Terminal) {
    terminal.print_event(event);
    match event {
        Event::ScenarioBegan(began) => {
            terminal.print_progress(&format!("{}: {}\n", began.scenario, began.title));
        }
        Event::StepBegan(began) => {
            let predicted = if began.is_ramp {
                String::new()
            } else {
                format!(": predicted {}", began.prediction.kernel_model)
            };
            terminal.print_progress(&format!("  {}{predicted} …", began.step));
        }
        Event::Interval(_) => terminal.print_progress("."),
        Event::Measurement(measurement) => {
            let rate = explained_rate(measurement);
            let valid = if measurement.validity.is_valid() {
                ""
            } else {
                " (invalid)"
            };
            terminal.print_progress(&format!(" {rate}{valid}\n"));
        }
        _ => {}
    }
}

/// Checks that this kernel has every congestion control of `controls`.
///
/// # Errors
/// Fails with the place in the scenario file of the first congestion control that is missing.
pub(super) fn check_congestion_controls<'c>(
    mut controls: impl Iterator<Item = &'c RequiredControl>,
) -> Result {
    controls.try_for_each(|control| {
        check_congestion_control(&control.name).map_err(|error| {
            let Failure { code, message } = error.into();
            Failure::new(code, format!("{}: congestion: {message}", control.place))
        })
    })
}

/// Checks that `backend` supports the path of every step of the scenarios.
///
/// # Errors
/// Fails with the name of the first scenario that has an unsupported path.
fn check_path_support(scenarios: &[Scenario], backend: Backend) -> Result {
    scenarios.iter().try_for_each(|scenario| {
        let mut paths = scenario.steps.iter().map(|step| scenario.path_of(step));
        let checked = paths.try_for_each(|path| backend.check_path_support(path));
        checked.map_err(|error| {
            let Failure { code, message } = error.into();
            Failure::new(code, format!("{}: {message}", scenario.name))
        })
    })
}

/// Returns the built-in grid `name`, or the grid in the file `name` if there is no such built-in
/// grid.
///
/// # Errors
/// Fails if the file cannot be read or is not a valid grid.
fn load_grid(name: &str) -> Result<ScenarioGrid> {
    if let Some((name, text)) = builtin_grids().iter().find(|(known, _)| *known == name) {
        return Ok(ScenarioGrid::parse(name, text)?);
    }
    let text = read_text(Path::new(name))
        .map_err(|cause| read_failure("grid", name, &cause, builtin_grids()))?;
    Ok(ScenarioGrid::parse(name, &text)?)
}

/// Returns the scenario `name` under whose settings programs are compared: one that is built in for
/// that, or else as [`load_scenario`].
///
/// # Errors
/// Fails as [`load_scenario`].
pub(super) fn load_comparison(name: &str) -> Result<Scenario> {
    load_known(name, &[builtin_comparisons(), builtin_scenarios()].concat())
}

/// Returns the built-in scenario `name`, or the scenario in the file `name` if there is no such
/// built-in scenario.
///
/// # Errors
/// Fails if the file, or a file to which the scenario refers, cannot be read, or if the scenario is
/// not valid.
pub(super) fn load_scenario(name: &str) -> Result<Scenario> {
    if builtin_comparisons()
        .iter()
        .any(|(known, _)| *known == name)
    {
        return Err(usage_failure(format!(
            "{name} compares programs: `fullpipe lab compare {name}` runs it"
        )));
    }
    load_known(name, builtin_scenarios())
}

/// Returns the scenario `name` of those in `known`, or else of the file of this name.
fn load_known(name: &str, known: &[(&str, &str)]) -> Result<Scenario> {
    if let Some((name, text)) = known.iter().find(|(known, _)| *known == name) {
        return Ok(Scenario::parse(name, text)?);
    }
    let text = read_text(Path::new(name))
        .map_err(|cause| read_failure("scenario", name, &cause, known))?;
    Ok(Scenario::parse_with(name, &text, &|file| {
        read_sibling(Path::new(name), file)
    })?)
}

/// Returns the failure to read a file; `kind` is `grid` or `scenario`, of which `known` are built
/// in.
fn read_failure(kind: &str, name: &str, cause: &std::io::Error, known: &[(&str, &str)]) -> Failure {
    let known: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
    let known = known.join(", ");
    usage_failure(format!(
        "cannot read the {kind} {name}: {cause}; the built-in {kind}s are {known}"
    ))
}

/// Runs `command` on `host`. If `join` is true, the host belongs to the running lab `name`; or else
/// it belongs to a lab that is built from the scenario `name` and ends with the command. `ready` is
/// called once the host exists.
///
/// # Errors
/// Fails if there is no such lab or scenario, or if the lab or the program cannot be started. Fails
/// with the exit code of the program if the code is not 0.
fn enter_host(
    name: &str,
    join: bool,
    backend: Backend,
    host: Host,
    command: &[String],
    ready: &dyn Fn(),
) -> Result {
    let [program, arguments @ ..] = command else {
        return Err(usage_failure("the program to run is missing"));
    };
    super::leave_interrupts_to_others()?;
    let code = if join {
        let lab = JoinedLab::join_named(name)?;
        ready();
        lab.run(host, program, arguments, &*super::end_flag()?)?
    } else {
        let lab = lab_of(&load_scenario(name)?, backend, host)?;
        ready();
        let end = lab.while_witnessed(|| {
            lab.start_program(host, program, arguments, ProgramStdio::Inherited)?
                .wait_for_end()
        })??;
        end.code
    };
    match u8::try_from(code) {
        Ok(0) => Ok(()),
        code => Err(Failure::already_printed(code.unwrap_or(FAILED))),
    }
}

/// Returns a new lab of `scenario`, which must have `host`, for programs that read from the
/// terminal.
fn lab_of(scenario: &Scenario, backend: Backend, host: Host) -> Result<Lab> {
    if scenario.stretches.is_none() && !Host::ALL.contains(&host) {
        let why = format!(
            "{} has no {}: its path has no stretches",
            scenario.name,
            host.name()
        );
        return Err(usage_failure(why));
    }
    Ok(start_lab(
        scenario,
        &LabPlan {
            interactive: true,
            ..lab_plan(scenario, backend)
        },
    )?)
}

/// Builds the hosts of `scenario`, with relays if its path has stretches.
pub(super) fn start_lab(scenario: &Scenario, plan: &LabPlan) -> Result<Lab, LabError> {
    match &scenario.stretches {
        Some(stretches) => Lab::start_with_relays(plan, stretches, &scenario.relay),
        None => Lab::start(plan),
    }
}

/// Returns the plan for a lab of `scenario` whose programs do not read from the terminal.
pub(super) fn lab_plan(scenario: &Scenario, backend: Backend) -> LabPlan {
    LabPlan {
        path: scenario.path.clone(),
        seed: scenario.seed,
        sender: scenario.sender.clone(),
        receiver: scenario.receiver.clone(),
        backend,
        interactive: false,
    }
}
