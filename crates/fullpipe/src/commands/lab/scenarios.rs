//! Scenarios and grids by their names or files, and what they need.

use crate::commands::emulated::EmulatedArguments;
use crate::commands::prelude::*;
use crate::commands::scenario_file::{known_text, load_known};
use crate::commands::up::describe_path;

use fullpipe_lab::{Backend, check_congestion_control};
use fullpipe_scenario::{
    RequiredControl, Scenario, ScenarioGrid, builtin_comparisons, builtin_grids, builtin_scenarios,
};

pub(super) fn builtin_names() -> Vec<String> {
    builtin_scenarios()
        .iter()
        .map(|(name, _)| (*name).to_owned())
        .collect()
}

/// Returns `scenario` with the path and the settings that the flags of `emulated` give.
pub(super) fn apply_emulated_flags(
    mut scenario: Scenario,
    emulated: &EmulatedArguments,
) -> Result<Scenario> {
    if emulated.path_flag().is_some() {
        scenario.path = emulated.emulated_path()?;
        scenario.title = describe_path(&scenario.path);
    }
    let [sender, receiver] = emulated.host_changes()?;
    scenario.sender.extend(sender);
    scenario.receiver.extend(receiver);
    Ok(scenario)
}

/// Prints name and title of each built-in scenario.
pub(super) fn list_scenarios(terminal: &Terminal) -> Result {
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

/// Checks that this kernel has every congestion control of `controls`.
///
/// # Errors
/// Fails with the place in the scenario file of the first congestion control that is missing.
pub(crate) fn check_congestion_controls<'c>(
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
pub(super) fn check_path_support(scenarios: &[Scenario], backend: Backend) -> Result {
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
pub(super) fn load_grid(name: &str) -> Result<ScenarioGrid> {
    let text = known_text("grid", name, builtin_grids())?;
    Ok(ScenarioGrid::parse(name, &text)?)
}

/// Returns the scenario `name` under whose settings programs are compared: one that is built in for
/// that, or else as [`load_scenario`](crate::commands::scenario_file::load_scenario).
///
/// # Errors
/// Fails as that does.
pub(crate) fn load_comparison(name: &str) -> Result<Scenario> {
    load_known(name, &[builtin_comparisons(), builtin_scenarios()].concat())
}
