//! Scenarios and grids under way, with their progress.

use super::scenarios::{check_congestion_controls, check_path_support, load_grid};
use crate::commands::grid_runs::GridRuns;
use crate::commands::prelude::*;
use crate::commands::rows::{RowArchive, RowArguments};
use crate::commands::scenario_file::load_scenario;
use fullpipe_experiment::{
    CaptureTo, ExperimentError, GridPlace, KnownCells, grid_duration, run_grid, run_scenario,
    run_scenario_virtually, virtual_cell_ids,
};
use fullpipe_host::{SysctlTree, inspect_host};
use fullpipe_lab::Backend;
use fullpipe_record::{GridReport, HostSettings, LabReport};
use fullpipe_scenario::{GridBounds, Scenario, ScenarioGrid};
use fullpipe_store::one_cell;

/// The hosts and the path of scenarios.
#[derive(Clone, Copy)]
pub(super) enum ScenarioTarget<'c> {
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

/// Returns the scenarios with these names.
///
/// # Errors
/// Fails with the first that cannot be read.
pub(super) fn load_all(names: &[String]) -> Result<Vec<Scenario>> {
    names.iter().map(|name| load_scenario(name)).collect()
}

/// Runs the scenarios and prints the report of each, a summary, and the JSON
/// document.
///
/// # Errors
/// Fails before a lab is built if this machine lacks a congestion control, or if the backend does not support the path of a step or the captures. Fails after the
/// reports if a bound was missed, if a step with bounds had no valid run, or if the user
/// interrupted the program.
pub(super) fn run_all(
    scenarios: Vec<Scenario>,
    time_scale: Ratio,
    place: ScenarioTarget<'_>,
    keep: &KeepArguments,
    terminal: &Terminal,
) -> Result {
    place.check_requirements(&scenarios)?;
    let flag = crate::commands::interrupt_flag()?;
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
pub(super) fn measure_grid(
    name: &str,
    place: GridPlace,
    rows: &RowArguments,
    record: Option<&Path>,
    terminal: &Terminal,
) -> Result {
    let mut grid = load_grid(name)?;
    if rows.is_shard() {
        grid.cells = rows.own_rows(grid.cells)?;
        // They are of all cells together.
        grid.bounds = GridBounds::default();
    }
    let settings = host_settings(&grid, place)?;
    let mut archive = rows.open_archive()?;
    let known = known_cells(&grid, &settings, archive.as_mut())?;
    let flag = crate::commands::interrupt_flag()?;
    let (count, time) = (grid.cells.len(), grid_duration(&grid, &settings));
    terminal.print_progress(&format!(
        "{}: {}, {time} of load\n",
        grid.title,
        count_noun(count, "cell")
    ));
    let mut runs = record
        .map(|folder| GridRuns::in_folder(folder, &grid))
        .transpose()?;
    let mut kept = Ok(());
    let whole = GridReport {
        name: grid.name.clone(),
        title: grid.title.clone(),
        is_virtual: true,
        ..GridReport::default()
    };
    let report = run_grid(
        &grid,
        &settings,
        (place, &known),
        Interrupt(&flag),
        &mut |event| {
            show_cell(event, terminal);
            if let Some(runs) = &mut runs {
                runs.observe_event(event);
            }
            if let (Some(archive), Event::Cell(cell), true) = (&mut archive, event, kept.is_ok()) {
                kept = archive.keep_row(&one_cell(&whole, cell));
            }
        },
    )?;
    let (passed, interrupted) = (report.passed, report.interrupted);
    print_grid(report, terminal);
    kept?;
    runs.map_or(Ok(()), GridRuns::into_result)?;
    Failure::after_report(None, interrupted && !passed, passed)
}

/// Returns the cells of a grid in virtual time that an archive has.
fn known_cells(
    grid: &ScenarioGrid,
    settings: &HostSettings,
    archive: Option<&mut RowArchive>,
) -> Result<KnownCells> {
    let mut known = KnownCells::new();
    let Some(archive) = archive else {
        return Ok(known);
    };
    for id in virtual_cell_ids(grid, settings) {
        if let Some(Content::Grid { grid }) = archive.find_row(&id)? {
            known.extend(grid.cells.into_iter().map(|cell| (id.clone(), cell)));
        }
    }
    Ok(known)
}

fn print_grid(report: GridReport, terminal: &Terminal) {
    terminal.print_result(&report::grid_report(&report));
    terminal.print_event(&Event::Grid(Box::new(report.clone())));
    terminal.print_content(Content::Grid {
        grid: Box::new(report),
    });
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
            let rate = measurement.summary.steady_or_mean_rate();
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
