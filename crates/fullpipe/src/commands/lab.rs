mod scenarios;

mod runs;

mod hosts;

mod stated;

pub(super) use self::hosts::lab_plan;
use self::hosts::{enter_host, enter_shell, list_standing};
use self::runs::{ScenarioTarget, load_all, measure_grid, run_all};
use self::scenarios::{apply_emulated_flags, builtin_names, list_scenarios};
pub(super) use self::scenarios::{check_congestion_controls, load_comparison};
use self::stated::{STATED_GROUPS, StatedTransfer};
use fullpipe_experiment::{CaptureNumbers, CaptureTo, GridPlace};
use fullpipe_lab::{Backend, Host, StandingLab};

use super::compare::CompareArguments;
use super::prelude::*;
use super::rows::RowArguments;
use super::scenario_file::load_scenario;
use super::sweep::{SweepArguments, sweep_scenario};
use super::up::{LabSettings, run_standing_lab};
use crate::commands::emulated::EmulatedArguments;

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
    Run(Box<RunArguments>),
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
#[command(
    mut_arg("sender_os", |system| system.hide(true)),
    mut_arg("receiver_os", |system| system.hide(true)),
    mut_arg("quic", |quic| quic.hide(true))
)]
struct RunArguments {
    /// Scenario files or names from `lab list`; without, the flags of path and load state a transfer
    #[arg(required_unless_present_any = ["all", "path", "bandwidth", "rtt"], value_name = "SCENARIO", conflicts_with_all = STATED_GROUPS)]
    scenarios: Vec<String>,
    /// Run every built-in scenario (about 20 minutes)
    #[arg(long, conflicts_with = "scenarios", conflicts_with_all = STATED_GROUPS)]
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
    stated: StatedTransfer,
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
    rows: RowArguments,
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
            Self::Run(run) => run.output.output_choice(),
            Self::Grid(GridArguments { output, .. }) | Self::Sweep { output, .. } => {
                output.output_choice()
            }
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
        let scenarios = match &self.scenarios[..] {
            _ if self.all => load_all(&builtin_names())?,
            [] => vec![self.stated.to_scenario(self.is_virtual)?],
            names => load_all(names)?,
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
        run_all(scenarios, self.time_scale, place, &self.keep, terminal)
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
        if self.rows.fills_archive() && !self.is_virtual {
            return Err(usage_failure(MEASURED_ANEW));
        }
        let record = self.record.as_deref();
        measure_grid(&self.grid, place, &self.rows, record, terminal)
    }
}

const MEASURED_ANEW: &str = "--fill is of --virtual: a cell that this machine's kernel runs is measured anew each \
                             time";

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

/// Reads the name of a lab's backend.
pub(super) fn parse_backend(name: &str) -> Result<Backend, String> {
    Backend::from_name(name)
        .ok_or_else(|| "the backends are auto, tun, packet and kernel".to_owned())
}
