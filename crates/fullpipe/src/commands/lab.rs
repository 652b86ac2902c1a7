use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use clap::Subcommand;
use fullpipe_experiment::{CaptureTo, ExperimentError, Interrupt, grid_duration, run_grid, run_scenario};
use fullpipe_host::{SysctlTree, inspect};
use fullpipe_lab::{Backend, Host, JoinedLab, Lab, Plan, Stdio, find_congestion_control};
use fullpipe_record::{Content, Document, Event};
use fullpipe_report as report;
use fullpipe_scenario::{Control, Grid, Scenario, builtin, builtin_grid};
use fullpipe_units::{ByteCount, Ratio, Span};

use super::up::{Standing, up};
use crate::commands::Run;
use crate::commands::output::OutputArguments;
use crate::failure::{FAILED, Failure, INTERRUPTED, USAGE};
use crate::sibling::read_sibling;
use crate::terminal::{Format, Terminal};
use crate::values::{backend, duration};

/// Emulated paths: run scenarios, or any program in their hosts.
///
/// A lab is two hosts of this machine's own kernel, joined by an emulated path.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Connection to the emulated link: auto, tun, packet or kernel
    ///
    /// `packet` uses packet sockets; `auto` takes the first kind that this machine permits. `kernel` replaces the link
    /// by the kernel's tbf and netem, for rate, queue, loss and delay only.
    #[arg(
        long,
        help_heading = "Lab",
        global = true,
        default_value = "auto",
        value_parser = backend,
        value_name = "KIND"
    )]
    backend: Backend,
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List the scenarios that come with the program
    List,
    /// Run scenarios: predicted, published and measured side by side
    Run {
        /// Files, or names from `lab list`
        #[arg(required_unless_present = "all", value_name = "SCENARIO")]
        scenarios: Vec<String>,
        /// Run every scenario that comes with the program (about 15 minutes)
        #[arg(long, conflicts_with = "scenarios")]
        all: bool,
        /// Factor on the duration of every load
        ///
        /// No load lasts less than its ramp and twenty round trips.
        #[arg(long, value_parser = time_scale, default_value = "1", value_name = "FACTOR")]
        time_scale: Ratio,
        /// Write captures of both ends of the path to this folder
        ///
        /// Two files a run hold the headers, with the path's own time stamps.
        #[arg(long, value_name = "FOLDER")]
        capture: Option<PathBuf>,
        /// Maximum size of a capture file
        #[arg(long, requires = "capture", default_value = "256MiB", value_name = "BYTES")]
        capture_size: ByteCount,
        #[command(flatten)]
        output: OutputArguments,
    },
    /// Measure a grid of paths and compare with the predictions (about 25 minutes)
    Grid {
        /// A file, instead of the grid that comes with the program
        #[arg(value_name = "FILE")]
        grid: Option<String>,
        #[command(flatten)]
        output: OutputArguments,
    },
    /// Keep a scenario's path up, for any program to run in its hosts
    Up {
        /// A file, or a name from `lab list`
        #[arg(default_value = "demo", value_name = "SCENARIO")]
        scenario: String,
        /// Name for `--join` [default: the scenario's]
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
        /// Interval of the path's status lines
        #[arg(
            long,
            short,
            help_heading = "Output",
            default_value = "1",
            value_parser = interval,
            value_name = "SECONDS"
        )]
        interval: Span,
        /// Run no cross traffic
        ///
        /// By default, the cross traffic of the scenario's first step that has any is running.
        #[arg(long)]
        no_cross_traffic: bool,
        /// Print one JSON object a line for each event
        #[arg(long, help_heading = "Output")]
        json_lines: bool,
    },
    /// Open a shell in a host of a scenario
    Shell {
        /// A file, or a name from `lab list`
        #[arg(default_value = "demo", value_name = "SCENARIO")]
        scenario: String,
        /// Enter the running lab of that name instead of building one
        #[arg(long)]
        join: bool,
        /// Host: sender or receiver
        #[arg(default_value = "sender", value_parser = host)]
        host: Host,
    },
    /// Run a program in a host of a scenario
    Exec {
        /// A file, or a name from `lab list`
        #[arg(value_name = "SCENARIO")]
        scenario: String,
        /// Enter the running lab of that name instead of building one
        #[arg(long)]
        join: bool,
        /// Host: sender or receiver
        #[arg(value_parser = host)]
        host: Host,
        /// Program and its arguments
        #[arg(required = true, last = true, value_name = "COMMAND")]
        command: Vec<String>,
    },
}

impl Action {
    fn format(&self) -> Format {
        match *self {
            Self::Run { output, .. } | Self::Grid { output, .. } => output.format(),
            Self::Up { json_lines: true, .. } => Format::JsonLines,
            _ => Format::Text,
        }
    }
}

/// Too short an interval would be all that the program does.
fn interval(text: &str) -> Result<Span, String> {
    let interval = duration(text)?;
    let valid = (Span::from_millis(100)..=Span::from_secs(3600)).contains(&interval);
    if valid { Ok(interval) } else { Err("it must be from 0.1 to 3600 s".to_owned()) }
}

fn time_scale(text: &str) -> Result<Ratio, String> {
    let scale: Ratio = text.parse().map_err(|error: fullpipe_units::ParseError| error.to_string())?;
    let valid = scale > Ratio::ZERO && scale.get() <= MAX_SCALE;
    valid.then_some(scale).ok_or_else(|| format!("it must be above 0 and at most {MAX_SCALE}"))
}

/// Largest scale: it makes an hour of ten seconds.
const MAX_SCALE: f64 = 360.0;

fn host(name: &str) -> Result<Host, String> {
    Host::named(name).ok_or_else(|| "a lab's hosts are `sender` and `receiver`".to_owned())
}

impl Run for Arguments {
    fn format(&self) -> Format {
        self.action.format()
    }

    fn run(&self, terminal: &Terminal) -> Result<(), Failure> {
        run(self, terminal)
    }
}

fn run(arguments: &Arguments, terminal: &Terminal) -> Result<(), Failure> {
    let backend = arguments.backend;
    match &arguments.action {
        Action::List => list(terminal),
        Action::Run { scenarios, all, time_scale, capture, capture_size, .. } => {
            let every = || builtin().iter().map(|(name, _)| (*name).to_owned()).collect();
            let names = if *all { every() } else { scenarios.clone() };
            let capture = capture.as_deref().map(|folder| CaptureTo { folder, most: *capture_size });
            run_all(&names, *time_scale, capture, backend, terminal)
        }
        Action::Grid { grid, .. } => measure_grid(grid.as_deref(), backend, terminal),
        Action::Up { scenario, name, interval, no_cross_traffic, .. } => {
            let scenario = load(scenario)?;
            let name = name.as_ref().unwrap_or(&scenario.name);
            up(
                &scenario,
                &Standing { name, backend, interval: *interval, no_cross_traffic: *no_cross_traffic },
                terminal,
            )
        }
        Action::Shell { scenario, join, host } => {
            let shell = std::env::var("SHELL").unwrap_or_else(|_| "/bin/sh".to_owned());
            terminal.notice(&format!(
                "a shell in the {}; the {} answers at {}; leave with `exit`",
                host.name(),
                host.peer().name(),
                host.peer().address()
            ));
            enter(scenario, *join, backend, *host, &[shell])
        }
        Action::Exec { scenario, join, host, command } => enter(scenario, *join, backend, *host, command),
    }
}

fn list(terminal: &Terminal) -> Result<(), Failure> {
    for (name, text) in builtin() {
        let scenario = Scenario::parse(name, text)?;
        terminal.result(&format!("{:<16} {}\n", scenario.name, scenario.title));
    }
    Ok(())
}

fn run_all(
    names: &[String],
    time_scale: Ratio,
    capture: Option<CaptureTo<'_>>,
    backend: Backend,
    terminal: &Terminal,
) -> Result<(), Failure> {
    // Every file is read, and the machine is checked for what it must have, before anything is built.
    let scenarios: Vec<Scenario> = names.iter().map(|name| load(name)).collect::<Result<_, _>>()?;
    find_congestion_controls(scenarios.iter().flat_map(|scenario| &scenario.controls))?;
    find_unsupported(&scenarios, backend)?;
    if capture.is_some() {
        backend.find_captures()?;
    }
    let flag = super::interrupt_flag()?;
    let style = terminal.style();
    let mut reports = Vec::new();
    for scenario in scenarios {
        let observe = &mut |event: &Event| show(event, terminal);
        let run = run_scenario(&scenario, backend, time_scale, capture, Interrupt(&flag), observe);
        let done = match run {
            Err(ExperimentError::Interrupted) if !reports.is_empty() => break,
            done => done?,
        };
        terminal.result(&report::lab_report(&done, style));
        terminal.event(&Event::Scenario(Box::new(done.clone())));
        let interrupted = done.interrupted;
        reports.push(done);
        if interrupted {
            break;
        }
    }
    terminal.result(&format!("\n{}", report::lab_summary(&reports, style)));
    let interrupted = flag.load(Ordering::Relaxed);
    let passed = !interrupted && reports.iter().all(|report| report.passed);
    terminal.document(&Document::new(Content::Lab { lab: reports }));
    ended(passed, interrupted)
}

fn ended(passed: bool, interrupted: bool) -> Result<(), Failure> {
    match (passed, interrupted) {
        (true, _) => Ok(()),
        (false, true) => Err(Failure::already_printed(INTERRUPTED)),
        (false, false) => Err(Failure::already_printed(FAILED)),
    }
}

fn measure_grid(file: Option<&str>, backend: Backend, terminal: &Terminal) -> Result<(), Failure> {
    let grid = load_grid(file)?;
    find_congestion_controls(grid.cells.iter().flat_map(|scenario| &scenario.controls))?;
    find_unsupported(&grid.cells, backend)?;
    let settings = inspect(&SysctlTree::of_this_host()).map_err(|error| Failure::new(FAILED, error.to_string()))?;
    let flag = super::interrupt_flag()?;
    let (count, time) = (grid.cells.len(), grid_duration(&grid, &settings));
    terminal.progress(&format!("{}: {count} cells, {time} of load\n", grid.title));
    let report = run_grid(&grid, &settings, backend, Interrupt(&flag), &mut |event| show_cell(event, terminal))?;
    terminal.result(&report::grid_report(&report, terminal.style()));
    let (passed, interrupted) = (report.passed, report.interrupted);
    terminal.event(&Event::Grid(Box::new(report.clone())));
    terminal.document(&Document::new(Content::Grid { grid: Box::new(report) }));
    ended(passed, interrupted)
}

/// Prints what happens in a grid. Each cell is a scenario of one step, of which the name says enough.
fn show_cell(event: &Event, terminal: &Terminal) {
    match event {
        Event::CellBegan(cell) => {
            terminal.event(event);
            terminal.progress(&format!("[{}/{}] {}, {}\n", cell.number, cell.cells, cell.name, cell.duration));
        }
        Event::ScenarioBegan(_) => {}
        _ => show(event, terminal),
    }
}

/// Prints what happens in a scenario.
fn show(event: &Event, terminal: &Terminal) {
    terminal.event(event);
    match event {
        Event::ScenarioBegan(began) => terminal.progress(&format!("{}: {}\n", began.scenario, began.title)),
        Event::StepBegan(began) => {
            let predicted =
                if began.is_ramp { String::new() } else { format!(": predicted {}", began.prediction.kernel_model) };
            terminal.progress(&format!("  {}{predicted} …", began.step));
        }
        Event::Interval(_) => terminal.progress("."),
        Event::Measurement(measurement) => {
            let rate = measurement.summary.steady.map_or(measurement.summary.rate, |steady| steady.rate);
            let valid = if measurement.validity.is_valid() { "" } else { " (does not count)" };
            terminal.progress(&format!(" {rate}{valid}\n"));
        }
        _ => {}
    }
}

/// Fails if a congestion control of a load is missing, with the place of the first one.
pub(super) fn find_congestion_controls<'c>(mut controls: impl Iterator<Item = &'c Control>) -> Result<(), Failure> {
    controls.try_for_each(|control| {
        find_congestion_control(&control.name).map_err(|error| {
            let Failure { code, message } = error.into();
            Failure::new(code, format!("{}: congestion: {message}", control.place))
        })
    })
}

/// Fails if `backend` does not support the path of a step, with the name of the first scenario that has one.
fn find_unsupported(scenarios: &[Scenario], backend: Backend) -> Result<(), Failure> {
    let of = |scenario: &Scenario| {
        scenario.steps.iter().try_for_each(|step| backend.find_unsupported(scenario.path_of(step)))
    };
    scenarios.iter().try_for_each(|scenario| {
        of(scenario).map_err(|error| {
            let Failure { code, message } = error.into();
            Failure::new(code, format!("{}: {message}", scenario.name))
        })
    })
}

/// The grid that comes with the program, or that of a file.
fn load_grid(file: Option<&str>) -> Result<Grid, Failure> {
    let (builtin_name, builtin_text) = builtin_grid();
    let Some(file) = file else { return Ok(Grid::parse(builtin_name, builtin_text)?) };
    let text = std::fs::read_to_string(file).map_err(|cause| cannot_read("grid", file, &cause.to_string()))?;
    Ok(Grid::parse(file, &text)?)
}

/// A scenario by the name of one that comes with the program, or from a file.
fn load(name: &str) -> Result<Scenario, Failure> {
    if let Some((name, text)) = builtin().iter().find(|(known, _)| *known == name) {
        return Ok(Scenario::parse(name, text)?);
    }
    let text = std::fs::read_to_string(name).map_err(|cause| {
        let known: Vec<&str> = builtin().iter().map(|(name, _)| *name).collect();
        cannot_read("scenario", name, &format!("{cause}; the built-in ones are {}", known.join(", ")))
    })?;
    Ok(Scenario::parse_with(name, &text, &|file| read_sibling(Path::new(name), file))?)
}

fn cannot_read(what: &str, name: &str, cause: &str) -> Failure {
    Failure::new(USAGE, format!("cannot read the {what} {name}: {cause}"))
}

/// Runs a program in a host of a lab that is up and called `lab`, or of one built for it alone.
fn enter(lab: &str, join: bool, backend: Backend, host: Host, command: &[String]) -> Result<(), Failure> {
    let [program, arguments @ ..] = command else {
        return Err(Failure::new(USAGE, "there is no program to run"));
    };
    super::leave_interrupts_to_others()?;
    let code = if join {
        JoinedLab::to(lab)?.run(host, program, arguments, &*super::end_flag()?)?
    } else {
        execute(&load(lab)?, backend, host, program, arguments)?
    };
    match u8::try_from(code) {
        Ok(0) => Ok(()),
        code => Err(Failure::already_printed(code.unwrap_or(FAILED))),
    }
}

fn execute(
    scenario: &Scenario,
    backend: Backend,
    host: Host,
    program: &str,
    arguments: &[String],
) -> Result<i32, Failure> {
    let lab = Lab::start(&Plan { interactive: true, ..plan(scenario, backend) })?;
    Ok(lab.start_program(host, program, arguments, Stdio::Inherited)?.wait().code)
}

/// The lab of `scenario`, of which programs do not read from the terminal.
pub(super) fn plan(scenario: &Scenario, backend: Backend) -> Plan {
    Plan {
        path: scenario.path.clone(),
        seed: scenario.seed,
        sender: scenario.sender.clone(),
        receiver: scenario.receiver.clone(),
        backend,
        interactive: false,
    }
}
