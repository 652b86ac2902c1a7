//! Sweeps in virtual time, ended and resumed.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use fullpipe_testkit::document;
use serde_json::Value;

use crate::common::{fullpipe, run};

/// A small grid, so that a sweep takes a moment.
const SWEEP: [&str; 8] = ["lab", "sweep", "slac-sweep", "--virtual", "--windows", "64KiB..1MiB", "--streams", "1..8"];

fn sweep(state: &Path, more: &[&str]) -> Command {
    let mut command = fullpipe(&SWEEP);
    command.args(more).env("XDG_STATE_HOME", state);
    command
}

#[test]
fn a_sweep_in_virtual_time_finds_the_knee_and_is_the_same_each_time() {
    let swept = |state: &Path| document(&run(&mut sweep(state, &["--budget", "100%", "--json"]), 60));
    let [first, second] = [(); 2].map(|()| swept(tempfile::tempdir().unwrap().path()));
    let report = &first["sweep"];
    assert_eq!((&first["kind"], &report["interrupted"]), (&"sweep".into(), &false.into()), "{first}");
    let knee = &report["answer"]["knee"];
    let product = knee["cell"]["window"].as_u64().unwrap() * knee["cell"]["streams"].as_u64().unwrap();
    // The bandwidth-delay product is 1169 KiB.
    assert!((900 << 10..4 << 20).contains(&product), "{knee}");
    assert_eq!(runs(&first), runs(&second));
}

fn runs(document: &Value) -> &Vec<Value> {
    document["sweep"]["runs"].as_array().unwrap()
}

#[test]
fn a_sweep_that_was_killed_goes_on_with_the_run_that_it_would_have_made() {
    let [whole, killed] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let expected = document(&run(&mut sweep(whole.path(), &["--json"]), 60));
    let mut begun: Child =
        sweep(killed.path(), &["--json"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(400));
    begun.kill().unwrap();
    begun.wait().unwrap();
    let again = run(&mut sweep(killed.path(), &["--resume", "--json"]), 60);
    // Killed before its plan was kept, there is nothing to resume.
    if again.status.code() == Some(2) {
        return;
    }
    assert_eq!(runs(&document(&again)), runs(&expected));
}

#[test]
fn a_dry_run_keeps_nothing_and_a_resumed_sweep_must_exist() {
    let state = tempfile::tempdir().unwrap();
    let dry = document(&run(&mut sweep(state.path(), &["--dry-run", "--json"]), 30));
    assert_eq!(dry["kind"], "sweep-plan", "{dry}");
    for resume in [&["--resume"][..], &["--resume", "../x"], &["--resume", "none"]] {
        let refused = run(&mut sweep(state.path(), resume), 30);
        assert_eq!(refused.status.code(), Some(2), "{resume:?}");
        assert!(String::from_utf8_lossy(&refused.stderr).contains("no sweep is kept in"), "{resume:?}");
    }
}
