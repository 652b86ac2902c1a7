//! Sweeps in virtual time, ended and resumed.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use fullpipe_testkit::{document, sentence};
use serde_json::Value;

use crate::common::{fullpipe, run};

/// A small grid, so that a sweep takes a moment.
const SWEEP: [&str; 8] = ["lab", "sweep", "slac-sweep", "--virtual", "--windows", "64KiB..1MiB", "--streams", "1..8"];

/// Ends of a sweep by `kill -9`.
const KILLS: u64 = 6;

fn sweep(data: &Path, more: &[&str]) -> Command {
    let mut command = fullpipe(&SWEEP);
    command.args(more).env("XDG_DATA_HOME", data);
    command
}

fn archive(data: &Path, more: &[&str]) -> Command {
    let mut command = fullpipe(&["store"]);
    command.args(more).env("XDG_DATA_HOME", data);
    command
}

#[test]
fn a_sweep_in_virtual_time_finds_the_knee_and_is_the_same_each_time() {
    let swept = |data: &Path| document(&run(&mut sweep(data, &["--budget", "100%", "--json"]), 60));
    let [first, second] = [(); 2].map(|()| swept(tempfile::tempdir().unwrap().path()));
    let report = &first["sweep"];
    assert_eq!((&first["kind"], &report["interrupted"]), (&"sweep".into(), &false.into()), "{first}");
    let knee = &report["answer"]["knee"];
    let product = knee["cell"]["window"].as_u64().unwrap() * knee["cell"]["streams"].as_u64().unwrap();
    // The bandwidth-delay product is 1169 KiB.
    assert!((900 << 10..4 << 20).contains(&product), "{knee}");
    assert_eq!(runs(&first), runs(&second));
}

#[test]
fn below_the_knee_the_measurements_of_slac_have_the_rate_that_their_windows_permit() {
    let data = tempfile::tempdir().unwrap();
    let grid = ["lab", "sweep", "slac-sweep", "--virtual", "--full", "--order", "nested", "--no-store", "--json"];
    let whole = document(&run(fullpipe(&grid).env("XDG_DATA_HOME", data.path()), 120));
    let plan = &whole["sweep"]["plan"];
    let flight = 62.2e6 * 0.154 / 8.0;
    let mut below = 0;
    // The nested order is that of the predictions.
    for (run, predicted) in runs(&whole).iter().zip(plan["predicted"].as_array().unwrap()) {
        let [window, streams] = ["window", "streams"].map(|key| run["cell"][key].as_f64().unwrap());
        if window * streams > 0.9 * flight {
            continue;
        }
        below += 1;
        let rate = run["rate"].as_f64().unwrap();
        let refined = rate / predicted.as_f64().unwrap();
        assert!((0.9..1.1).contains(&refined), "{refined:.3} of the prediction: {run}");
        // Of 8 KiB, a window holds five whole segments: 12 % less.
        let plain = rate * 0.154 / (8.0 * window * streams);
        assert!((0.9..1.1).contains(&plain) || window < 9000.0, "{plain:.3} of the window: {run}");
    }
    assert!(below >= 40, "{below} settings lie below the knee");
}

fn runs(document: &Value) -> &Vec<Value> {
    document["sweep"]["runs"].as_array().unwrap()
}

#[test]
fn a_sweep_that_is_killed_again_and_again_has_the_runs_that_it_would_have_made_and_each_once() {
    let [whole, killed] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let expected = document(&run(&mut sweep(whole.path(), &["--json"]), 60));
    let mut resume = &[][..];
    for kill in 0..KILLS {
        let mut begun = sweep(killed.path(), &[resume, &["--json-lines"]].concat());
        let mut begun: Child = begun.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        // The plan is kept before it is printed.
        let mut lines = BufReader::new(begun.stdout.take().unwrap()).lines();
        assert!(lines.next().unwrap().unwrap().contains("sweep-plan"));
        // At moments that fall into all parts of a run.
        std::thread::sleep(Duration::from_millis(kill * 37 % 120));
        begun.kill().unwrap();
        begun.wait().unwrap();
        resume = &["--resume"];
    }
    let again = document(&run(&mut sweep(killed.path(), &["--resume", "--json"]), 60));
    assert_eq!(runs(&again), runs(&expected));
    let id = again["sweep"]["plan"]["id"].as_str().unwrap();
    let of_sweep = ["list", "--campaign", id, "--kind", "sweep-run", "--limit", "1000", "--json"];
    let kept = document(&run(&mut archive(killed.path(), &of_sweep), 20));
    assert_eq!(kept["stored"].as_array().unwrap().len(), runs(&again).len());
    assert!(run(&mut archive(killed.path(), &["check"]), 20).status.success());
}

#[test]
fn a_sweep_without_an_archive_runs_and_keeps_nothing() {
    let data = tempfile::tempdir().unwrap();
    let dry = document(&run(&mut sweep(data.path(), &["--dry-run", "--json"]), 30));
    assert_eq!(dry["kind"], "sweep-plan", "{dry}");
    let kept_nowhere = run(&mut sweep(data.path(), &["--no-store", "--json"]), 60);
    assert_eq!((document(&kept_nowhere)["kind"].as_str(), kept_nowhere.stderr.len()), (Some("sweep"), 0));
    assert_eq!(data.path().read_dir().unwrap().count(), 0);
    let refused = run(&mut sweep(data.path(), &["--store", "/dev/null/archive.db", "--json"]), 60);
    assert_eq!(sentence(&refused, 0).matches("the sweep is not kept, and cannot be resumed: ").count(), 1);
    assert_eq!(document(&refused)["kind"], "sweep");
}

#[test]
fn a_resumed_sweep_must_exist() {
    let data = tempfile::tempdir().unwrap();
    let missing = run(&mut sweep(data.path(), &["--resume"]), 30);
    assert!(sentence(&missing, 2).contains("there is no archive at"), "{missing:?}");
    assert!(run(&mut archive(data.path(), &["create"]), 30).status.success());
    for (resume, says) in [
        (&["--resume"][..], "no sweep is kept in the archive"),
        (&["--resume", "../x"], "no document of the archive has the identifier"),
        (&["--resume", "00ff"], "no document of the archive has the identifier 00ff"),
        (&["--resume", "--no-store"], "cannot be used with"),
    ] {
        let refused = run(&mut sweep(data.path(), resume), 30);
        assert_eq!(refused.status.code(), Some(2), "{resume:?}");
        assert!(String::from_utf8_lossy(&refused.stderr).contains(says), "{refused:?}");
    }
}
