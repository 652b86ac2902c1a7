//! Sweeps in virtual time, ended and resumed.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use fullpipe_record::{SweepReport, SweepRun};
use fullpipe_stats::campaign::{CampaignPlan, CampaignStep};
use fullpipe_testkit::{Running, document, free_port, path, require, sentence, wait_for_listener};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::common::{fullpipe, run};

/// A small grid, so that a sweep takes a moment.
const SWEEP: [&str; 8] = [
    "lab",
    "sweep",
    "slac-sweep",
    "--virtual",
    "--windows",
    "64KiB..1MiB",
    "--streams",
    "1..8",
];

/// A path that loads the machine little.
const SLOW: &str = "name = \"slow\"\ntitle = \"Slow\"\n[path]\nrate = \"20Mbit/s\"\nrtt = \"20ms\"\n\
                    [[step]]\nname = \"as it is\"\n";

fn sweep(data: &Path, more: &[&str]) -> Command {
    let mut command = fullpipe(&SWEEP);
    command.args(more).env("XDG_DATA_HOME", data);
    command
}

/// A sweep that goes on with the flags that it began with.
fn resumed(data: &Path, more: &[&str]) -> Command {
    let mut command = fullpipe(&SWEEP[..4]);
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
    assert_eq!(
        (&first["kind"], &report["interrupted"]),
        (&"sweep".into(), &false.into()),
        "{first}"
    );
    let knee = &report["answer"]["knee"];
    let product =
        knee["cell"]["window"].as_u64().unwrap() * knee["cell"]["streams"].as_u64().unwrap();
    // The bandwidth-delay product is 1169 KiB.
    assert!((900 << 10..4 << 20).contains(&product), "{knee}");
    assert_eq!(runs(&first), runs(&second));
}

#[test]
fn below_the_knee_the_measurements_of_slac_have_the_rate_that_their_windows_permit() {
    let data = tempfile::tempdir().unwrap();
    let grid = [
        "lab",
        "sweep",
        "slac-sweep",
        "--virtual",
        "--full",
        "--order",
        "nested",
        "--no-store",
        "--json",
    ];
    let whole = document(&run(fullpipe(&grid).env("XDG_DATA_HOME", data.path()), 120));
    let plan = &whole["sweep"]["plan"];
    let flight = 62.2e6 * 0.154 / 8.0;
    let mut below = 0;
    // The nested order is that of the predictions.
    for (run, predicted) in runs(&whole)
        .iter()
        .zip(plan["predicted"].as_array().unwrap())
    {
        let [window, streams] = ["window", "streams"].map(|key| run["cell"][key].as_f64().unwrap());
        if window * streams > 0.9 * flight {
            continue;
        }
        below += 1;
        let rate = run["rate"].as_f64().unwrap();
        let refined = rate / predicted.as_f64().unwrap();
        assert!(
            (0.9..1.1).contains(&refined),
            "{refined:.3} of the prediction: {run}"
        );
        // Of 8 KiB, a window holds five whole segments: 12 % less.
        let plain = rate * 0.154 / (8.0 * window * streams);
        assert!(
            (0.9..1.1).contains(&plain) || window < 9000.0,
            "{plain:.3} of the window: {run}"
        );
    }
    assert!(below >= 40, "{below} settings lie below the knee");
}

fn runs(document: &Value) -> &Vec<Value> {
    document["sweep"]["runs"].as_array().unwrap()
}

#[test]
fn a_sweep_that_is_killed_again_and_again_has_the_runs_that_it_would_have_made_and_each_once() {
    kills_in_virtual_time(6, 1);
}

#[test]
#[ignore = "the first runs of it are in every build"]
fn sweeps_that_are_killed_at_fifty_moments_in_virtual_time() {
    kills_in_virtual_time(50, 2);
}

fn kills_in_virtual_time(kills: u64, seed: u64) {
    let begin = |data: &Path, more: &[&str]| match more.first() {
        Some(&"--resume") => resumed(data, more),
        _ => sweep(data, &[&["--budget", "100%"], more].concat()),
    };
    let (whole, begun) = (tempfile::tempdir().unwrap(), Instant::now());
    let expected = document(&run(&mut begin(whole.path(), &["--json"]), 60));
    // At moments that fall into all parts of a sweep, however fast the machine is.
    for again in kill(&begin, kills, seed, begun.elapsed().mul_f64(0.7)) {
        assert_eq!(runs(&again), runs(&expected));
    }
}

/// Begins or resumes a sweep whose archive is in a folder.
type Begin<'b> = &'b dyn Fn(&Path, &[&str]) -> Command;

/// Kills sweeps `kills` times, each at a random moment within so much time after its begin, until
/// each is over. Returns their documents.
#[expect(
    clippy::print_stdout,
    reason = "figures of a run, shown by --nocapture"
)]
fn kill(begin: Begin<'_>, kills: u64, seed: u64, within: Duration) -> Vec<Value> {
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let mut moment = || within.mul_f64((random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64);
    let (mut killed, mut unseen, mut documents) = (0, 0, Vec::new());
    while killed < kills {
        let data = tempfile::tempdir().unwrap();
        let mut known = 0;
        let mut child = Killable::begin(&mut begin(data.path(), &["--json-lines"]));
        child.wait_for_plan();
        while let Some(printed) = child.kill_after(moment()) {
            killed += 1;
            let kept = kept_runs(data.path());
            // A run is kept before it is printed: none that was printed is lost, and one at most
            // was not printed yet.
            assert!(
                (known + printed..=known + printed + 1).contains(&kept),
                "{known} + {printed}, {kept} kept"
            );
            unseen += kept - known - printed;
            known = kept;
            if killed == kills {
                break;
            }
            child = Killable::begin(&mut begin(data.path(), &["--resume", "--json-lines"]));
        }
        let document = document(&run(&mut begin(data.path(), &["--resume", "--json"]), 180));
        each_run_follows_from_those_before(&document);
        assert_eq!(
            kept_runs(data.path()),
            runs(&document).len(),
            "a run is kept twice"
        );
        assert!(
            run(&mut archive(data.path(), &["check"]), 20)
                .status
                .success()
        );
        documents.push(document);
    }
    let made: usize = documents.iter().map(|document| runs(document).len()).sum();
    let sweeps = documents.len();
    println!(
        "{killed} kills of {sweeps} sweeps with {made} runs: none lost or doubled, {unseen} kept and not printed"
    );
    documents
}

fn each_run_follows_from_those_before(document: &Value) {
    let report: SweepReport = serde_json::from_value(document["sweep"].clone()).unwrap();
    let plan = CampaignPlan::new(report.plan).unwrap();
    for (number, SweepRun { cell, reason, .. }) in report.runs.iter().enumerate() {
        let next = plan.next_step(&report.runs[..number]);
        assert_eq!(
            next,
            CampaignStep::Run {
                cell: *cell,
                reason: *reason
            },
            "run {number}"
        );
    }
    assert!(matches!(
        plan.next_step(&report.runs),
        CampaignStep::Done(_)
    ));
}

/// Returns the number of runs in the archive, which has one sweep.
fn kept_runs(data: &Path) -> usize {
    let list = ["list", "--kind", "sweep-run", "--limit", "1000", "--json"];
    document(&run(&mut archive(data, &list), 20))["stored"]
        .as_array()
        .unwrap()
        .len()
}

/// A program whose lines are read until it ends.
struct Killable {
    child: Child,
    lines: Receiver<String>,
}

impl Killable {
    fn begin(command: &mut Command) -> Self {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (sender, lines) = channel();
        let output = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            output
                .lines()
                .map_while(Result::ok)
                .try_for_each(|line| sender.send(line))
        });
        Self { child, lines }
    }

    /// The plan is kept before it is printed.
    fn wait_for_plan(&self) {
        let line = self.lines.recv_timeout(Duration::from_secs(30)).unwrap();
        assert!(line.contains("sweep-plan"), "{line}");
    }

    /// Ends the program with `kill -9` and returns the number of runs that it printed; `None` if it
    /// was over.
    fn kill_after(mut self, moment: Duration) -> Option<usize> {
        std::thread::sleep(moment);
        let is_over = self.child.try_wait().unwrap().is_some();
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        let printed = self
            .lines
            .iter()
            .filter(|line| line.contains("\"sweep-run\""))
            .count();
        (!is_over).then_some(printed)
    }
}

#[test]
fn a_sweep_without_an_archive_runs_and_keeps_nothing() {
    let data = tempfile::tempdir().unwrap();
    let dry = document(&run(&mut sweep(data.path(), &["--dry-run", "--json"]), 30));
    assert_eq!(dry["kind"], "sweep-plan", "{dry}");
    let kept_nowhere = run(&mut sweep(data.path(), &["--no-store", "--json"]), 60);
    assert_eq!(
        (
            document(&kept_nowhere)["kind"].as_str(),
            kept_nowhere.stderr.len()
        ),
        (Some("sweep"), 0)
    );
    assert_eq!(data.path().read_dir().unwrap().count(), 0);
    let refused = run(
        &mut sweep(data.path(), &["--store", "/dev/null/archive.db", "--json"]),
        60,
    );
    assert_eq!(
        sentence(&refused, 0)
            .matches("the sweep is not kept, and cannot be resumed: ")
            .count(),
        1
    );
    assert_eq!(document(&refused)["kind"], "sweep");
}

#[test]
fn a_sweep_that_cannot_begin_leaves_no_archive() {
    let data = tempfile::tempdir().unwrap();
    let file = data.path().join("new.db");
    let port = free_port().to_string();
    for more in [&[][..], &["--store", file.to_str().unwrap()]] {
        let mut command = fullpipe(&["sweep", "127.0.0.1", "--port", &port]);
        let refused = run(command.args(more).env("XDG_DATA_HOME", data.path()), 30);
        assert!(sentence(&refused, 1).contains("refused"), "{refused:?}");
        assert_eq!(data.path().read_dir().unwrap().count(), 0);
    }
}

#[test]
fn a_sweep_names_itself_only_if_it_is_kept() {
    let (data, grid) = (
        tempfile::tempdir().unwrap(),
        ["--windows", "64KiB", "--streams", "1"],
    );
    let text = |more: &[&str]| {
        let mut command = fullpipe(&["lab", "sweep", "slac-sweep", "--virtual"]);
        let output = run(
            command
                .args(grid)
                .args(more)
                .env("XDG_DATA_HOME", data.path()),
            60,
        );
        String::from_utf8(output.stdout).unwrap()
    };
    for (more, kept) in [
        (&["--dry-run"][..], 0),
        (&["--no-store"], 0),
        (&["--store", "/dev/null/a.db"], 0),
        (&[], 1),
    ] {
        assert_eq!(text(more).matches("Kept as ").count(), kept, "{more:?}");
    }
}

/// In virtual time an interrupt was once an error, and the runs were not reported.
#[test]
fn a_sweep_that_is_interrupted_reports_its_runs() {
    let data = tempfile::tempdir().unwrap();
    let child = Killable::begin(&mut sweep(
        data.path(),
        &["--budget", "100%", "--no-store", "--json-lines"],
    ));
    child.wait_for_plan();
    let Killable { mut child, lines } = child;
    assert!(
        lines
            .recv_timeout(Duration::from_secs(30))
            .unwrap()
            .contains("\"sweep-run\"")
    );
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let last = lines.iter().last().unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{last}");
    let last: Value = serde_json::from_str(&last).unwrap();
    assert_eq!(
        (&last["event"], &last["data"]["interrupted"]),
        (&"sweep".into(), &true.into()),
        "{last}"
    );
    assert!(!last["data"]["runs"].as_array().unwrap().is_empty());
}

/// The first run had no bound.
#[test]
fn a_sweep_ends_with_the_bytes_that_are_permitted() {
    let (port, data) = (free_port().to_string(), tempfile::tempdir().unwrap());
    let mut serve = fullpipe(&[
        "serve",
        "--port",
        &port,
        "--no-iperf2",
        "--bind",
        "127.0.0.1",
        "--json-lines",
    ]);
    let server = Running::start(&mut serve);
    wait_for_listener(port.parse().unwrap());
    let command = [
        "sweep",
        "127.0.0.1",
        "--port",
        &port,
        "--max-bytes",
        "1M",
        "--no-store",
        "--json",
    ];
    let output = run(fullpipe(&command).env("XDG_DATA_HOME", data.path()), 60);
    let swept = document(&output);
    assert_eq!(
        (output.status.code(), runs(&swept).len()),
        (Some(1), 1),
        "{swept}"
    );
    assert_eq!(runs(&swept)[0]["broken"], json!(["--max-bytes ended it"]));
    assert!(
        swept["sweep"]["spent"]["bytes"]
            .as_u64()
            .is_some_and(|bytes| bytes > 1 << 20),
        "{swept}"
    );
    server.interrupt();
    let log = String::from_utf8(server.finish(Duration::from_secs(20)).stdout).unwrap();
    let events: Vec<Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let runs = events
        .iter()
        .filter(|event| event["event"] == "began")
        .count();
    // A whole run takes more than two seconds.
    let lasted = |data: &Value| {
        data["bytes"]
            .as_f64()
            .zip(data["rate"].as_f64())
            .map(|(bytes, rate)| 8.0 * bytes / rate)
    };
    let is_short = events
        .iter()
        .filter_map(|event| lasted(&event["data"]))
        .all(|seconds| seconds < 2.0);
    assert!(runs == 2 && is_short, "{log}");
}

#[test]
fn a_resumed_sweep_must_exist() {
    let data = tempfile::tempdir().unwrap();
    let missing = run(&mut resumed(data.path(), &["--resume"]), 30);
    assert!(
        sentence(&missing, 2).contains("there is no archive at"),
        "{missing:?}"
    );
    assert!(
        run(&mut archive(data.path(), &["create"]), 30)
            .status
            .success()
    );
    for (resume, says) in [
        (&["--resume"][..], "no sweep is kept in the archive"),
        (
            &["--resume", "../x"],
            "no document of the archive has the identifier",
        ),
        (
            &["--resume", "00ff"],
            "no document of the archive has the identifier 00ff",
        ),
        (&["--resume", "--no-store"], "cannot be used with"),
        (&["--resume", "--windows", "64KiB"], "cannot be used with"),
        (&["--resume", "--budget", "1%"], "cannot be used with"),
        (&["--resume", "--full"], "cannot be used with"),
    ] {
        let refused = run(&mut resumed(data.path(), resume), 30);
        assert_eq!(refused.status.code(), Some(2), "{resume:?}");
        assert!(
            String::from_utf8_lossy(&refused.stderr).contains(says),
            "{refused:?}"
        );
    }
    let reverse = run(
        fullpipe(&["sweep", "127.0.0.1", "--resume", "--reverse"])
            .env("XDG_DATA_HOME", data.path()),
        30,
    );
    assert!(
        String::from_utf8_lossy(&reverse.stderr).contains("cannot be used with"),
        "{reverse:?}"
    );
}

#[test]
fn a_resumed_sweep_takes_fewer_bytes_and_never_more() {
    let data = tempfile::tempdir().unwrap();
    let permitted =
        |output: &std::process::Output| document(output)["sweep"]["plan"]["max_bytes"].clone();
    let begun = run(
        &mut sweep(data.path(), &["--max-bytes", "100M", "--json"]),
        60,
    );
    for (flags, bytes) in [
        (&[][..], 100 << 20),
        (&["--max-bytes", "1G"], 100 << 20),
        (&["--max-bytes", "1M"], 1 << 20),
    ] {
        let resumed = run(
            &mut resumed(data.path(), &[&["--resume", "--json"], flags].concat()),
            60,
        );
        assert_eq!(permitted(&resumed), json!(bytes), "{flags:?}");
        assert_eq!(
            runs(&document(&resumed)),
            runs(&document(&begun)),
            "it was over"
        );
    }
}

/// Tests whose figures are judged.
mod tests_alone {
    use super::*;

    /// A sweep over an emulated path, measured with the machine's own TCP: 2.3 s a run.
    #[test]
    #[ignore = "it takes four minutes"]
    fn sweeps_that_are_killed_at_fifty_moments_over_a_lab() {
        require!(Lab);
        let _path = path();
        let scenario = tempfile::NamedTempFile::with_suffix(".toml").unwrap();
        std::fs::write(scenario.path(), SLOW).unwrap();
        let begin = |data: &Path, more: &[&str]| {
            let mut command = fullpipe(&["lab", "sweep", scenario.path().to_str().unwrap()]);
            if more.first() != Some(&"--resume") {
                command.args([
                    "--duty",
                    "100%",
                    "--windows",
                    "16KiB..64KiB",
                    "--streams",
                    "1..4",
                    "--budget",
                    "100%",
                ]);
            }
            // A dozen runs.
            command
                .args(["--max-bytes", "70M"])
                .args(more)
                .env("XDG_DATA_HOME", data);
            command
        };
        kill(&begin, 50, 3, Duration::from_secs(5));
    }
}
