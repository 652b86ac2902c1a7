//! Any text is a scenario, a grid or an error in one line; any flag is a path, settings, or an
//! error; and so is any trace.

#![no_main]

use fullpipe_scenario::{
    PathSpec, Scenario, ScenarioGrid, parse_host_flag, parse_path_flag, parse_path_flag_with,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    match Scenario::parse("fuzz.toml", text) {
        Ok(scenario) => assert!(!scenario.steps.is_empty()),
        Err(error) => assert_eq!(error.to_string().lines().count(), 1),
    }
    match ScenarioGrid::parse("fuzz.toml", text) {
        Ok(grid) => assert!(!grid.cells.is_empty()),
        Err(error) => assert_eq!(error.to_string().lines().count(), 1),
    }
    let _ = parse_path_flag(text, &PathSpec::demo_path());
    let _ = parse_host_flag(text);
    for flag in ["trace=mahimahi x", "trace=rates x"] {
        let _ = parse_path_flag_with(flag, &PathSpec::demo_path(), &|_| Ok(text.to_owned()));
    }
});
