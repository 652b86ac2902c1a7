//! The lab as people use it, and that nothing of it remains however it ends.

mod common;

use std::collections::BTreeSet;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use common::{fullpipe, run};
use fullpipe_testkit::{Mark, Running, document, path, require, sentence, valid_within, within};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;

/// The longest that anything here may take.
const PATIENCE: u64 = 60;

const INTERRUPTED: i32 = 130;

/// A scenario of one short step.
fn tiny() -> String {
    scenario(
        "tiny",
        "[path]\nrate = \"50Mbit/s\"\nrtt = \"10ms\"\nqueue = \"1bdp\"\n\n[[step]]\nname = \"as it is\"\nduration = \"2s\"\n",
    )
}

/// A scenario of this name with these sections.
fn scenario(name: &str, sections: &str) -> String {
    // One file a process: tests of one binary write the same.
    let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}.toml", std::process::id()));
    std::fs::write(&file, format!("name = \"{name}\"\ntitle = \"A path of a test\"\n\n{sections}")).unwrap();
    file.to_str().unwrap().to_owned()
}

/// The report of `lab run` on a scenario, once all of its steps were measured.
fn measured(file: &str, patience: u64) -> Value {
    valid_within(3, || {
        let output = run(&mut fullpipe(&["lab", "run", file, "--json"]), patience);
        let report = document(&output)["lab"][0].clone();
        let steps = report["steps"].as_array().unwrap();
        let unfit =
            steps.iter().filter(|step| step["measured"].is_null()).map(|step| step["missed"].to_string()).collect();
        (report, unfit)
    })
}

/// Runs a program in a host of the tiny scenario.
fn exec(host: &str, command: &[&str]) -> Command {
    fullpipe(&[&["lab", "exec", &tiny(), host, "--"], command].concat())
}

/// Runs a shell script in the sender that has left a daemon behind when it goes on to `then`.
fn with_daemon(mark: &Mark, then: &str) -> Command {
    let script = format!("setsid sleep {} </dev/null >/dev/null 2>&1 & {then}", mark.as_str());
    let mut command = exec("sender", &["sh", "-c", &script]);
    mark.put_on(&mut command);
    command
}

/// Network namespaces of what is marked, but for that of this test.
fn foreign_namespaces(mark: &Mark) -> BTreeSet<PathBuf> {
    let ours = std::fs::read_link("/proc/self/ns/net").unwrap();
    mark.network_namespaces().into_iter().filter(|namespace| *namespace != ours).collect()
}

/// Waits until the marked daemon lives; the network namespaces of its lab.
fn namespaces_of_lab(mark: &Mark) -> BTreeSet<PathBuf> {
    let daemon = format!("sleep {}", mark.as_str());
    let lives = || mark.processes().iter().any(|(_, command)| *command == daemon);
    assert!(within(Duration::from_secs(10), lives), "no daemon in the lab: {:?}", mark.processes());
    let namespaces = foreign_namespaces(mark);
    assert!(!namespaces.is_empty(), "the lab has networks of its own");
    namespaces
}

#[test]
fn a_program_runs_in_each_host_and_its_exit_code_is_passed_on() {
    require!(Lab);
    let _path = path();
    for (host, code) in [("sender", 0), ("receiver", 7)] {
        let output = run(&mut exec(host, &["sh", "-c", &format!("uname -n; exit {code}")]), PATIENCE);
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        assert_eq!(String::from_utf8_lossy(&output.stdout), format!("{host}\n"));
        assert!(output.stderr.is_empty(), "{output:?}");
    }
    let killed = run(&mut exec("sender", &["sh", "-c", "kill -9 $$"]), PATIENCE);
    assert_eq!(killed.status.code(), Some(137));
}

#[test]
fn a_program_that_does_not_exist_is_one_sentence() {
    require!(Lab);
    let _path = path();
    let output = run(&mut exec("sender", &["nosuchprogram"]), PATIENCE);
    assert!(sentence(&output, 1).contains("start `nosuchprogram` in the sender"));
}

#[test]
fn a_scenario_is_run_and_measured() {
    require!(Lab);
    let _path = path();
    let report = valid_within(3, || {
        let output = run(&mut fullpipe(&["lab", "run", &tiny(), "--json"]), PATIENCE);
        let report = document(&output)["lab"][0].clone();
        let passed = report["passed"] == true;
        assert_eq!(output.status.success(), passed, "{output:?}");
        (report.clone(), if passed { vec![] } else { vec![report["steps"][0]["missed"].to_string()] })
    });
    let step = &report["steps"][0];
    let (measured, predicted) = (step["measured"].as_f64().unwrap(), step["prediction"]["refined"].as_f64().unwrap());
    assert!((measured / predicted - 1.0).abs() < 0.05, "{measured} measured of {predicted}");
}

#[test]
fn datagrams_beyond_the_link_are_lost_as_predicted_and_starve_tcp() {
    require!(Lab);
    let _path = path();
    let file = scenario(
        "crowd",
        "[path]\nrate = \"20Mbit/s\"\nrtt = \"20ms\"\nqueue = \"200ms\"\n\n\
         [[step]]\nname = \"datagrams\"\ntransport = \"udp\"\nrate = \"25M\"\nduration = \"3s\"\n\
         capacity = { within = \"10%\" }\nloss = { within = \"2%\" }\n\n\
         [[step]]\nname = \"alone\"\nwindow = \"16KiB\"\nduration = \"3s\"\n\n\
         [[step]]\nname = \"beside\"\nwindow = \"16KiB\"\nomit = \"1s\"\nduration = \"3s\"\nfills = { within = \"15%\" }\n\
         [[step.beside]]\ntransport = \"udp\"\nstreams = 2\nrate = \"25M\"\nbefore = \"1s\"\n\n\
         [[bound]]\nratio = [\"beside\", \"alone\"]\nat_most = \"50%\"\n",
    );
    let report = measured(&file, 2 * PATIENCE);
    assert_eq!(
        report["passed"],
        true,
        "{:?} {}",
        report["steps"].as_array().map(|steps| steps.iter().map(|step| &step["missed"]).collect::<Vec<_>>()),
        report["missed"]
    );
    let datagrams = &report["steps"][0]["datagrams"];
    // A fifth of 25 Mbit/s, and what the headers take.
    let lost = datagrams["loss"].as_f64().unwrap();
    assert!((0.1..0.35).contains(&lost), "{datagrams}");
    let beside = &report["steps"][2]["beside"][0];
    assert_eq!((beside["phases"].as_u64(), beside["request"]["streams"].as_u64()), (Some(1), Some(2)));
    assert!(beside["loss"].as_f64().unwrap() > 0.4, "{beside}");
    assert_eq!(report["steps"][2]["runs"][0]["limit"], Value::Null, "what others do is no evidence of its own");
}

#[test]
fn a_step_may_have_its_own_path_and_loads_that_grow() {
    require!(Lab);
    let _path = path();
    let file = scenario(
        "ways",
        "[path]\nrate = \"20Mbit/s\"\nrtt = \"40ms\"\nqueue = \"200ms\"\n\n\
         [[step]]\nname = \"far\"\nwindow = \"16KiB\"\nduration = \"3s\"\n\n\
         [[step]]\nname = \"near\"\nwindow = \"16KiB\"\nduration = \"3s\"\npath = { rtt = \"20ms\" }\n\n\
         [[step]]\nname = \"climb\"\ntransport = \"udp\"\nramp = { from = \"50%\", to = \"120%\", loads = 2 }\nduration = \"2s\"\n\n\
         [[bound]]\nratio = [\"near\", \"far\"]\nexpect = \"refined\"\nwithin = \"15%\"\n",
    );
    let report = measured(&file, 2 * PATIENCE);
    assert_eq!(report["passed"], true, "{report}");
    let step = |index: usize| &report["steps"][index];
    assert_eq!((&step(0)["path"], step(1)["path"]["forward"]["delay"].as_f64()), (&Value::Null, Some(0.01)));
    let ramp = &step(2)["ramp"];
    assert_eq!(ramp["steps"].as_array().unwrap().len(), 2);
    // The queue grows under the second load alone.
    assert_eq!(step(2)["measured"], ramp["steps"][1]["offered"]);
    assert_eq!(ramp["slower_from"], ramp["steps"][1]["offered"]);
}

#[test]
fn a_grid_is_run_and_held_against_its_predictions() {
    require!(Lab);
    let _path = path();
    let text = "name = \"one\"\ntitle = \"One cell\"\nlongest = \"5s\"\n[bounds]\nmedian = \"0.0001%\"\n\
                [[block]]\nrate = [\"50Mbit/s\"]\nrtt = [\"20ms\"]\nwindow = [\"0.5\"]\n";
    let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("grid-{}.toml", std::process::id()));
    std::fs::write(&file, text).unwrap();
    let report = valid_within(1, || {
        let output = run(&mut fullpipe(&["lab", "grid", file.to_str().unwrap(), "--json"]), 2 * PATIENCE);
        let report = document(&output)["grid"].clone();
        // No measurement is that close to its prediction.
        assert!(!output.status.success() && report["passed"] == false, "{output:?}");
        let broken = report["cells"][0]["measured"].is_null().then(|| report["cells"][0]["broken"].to_string());
        (report, broken.into_iter().collect())
    });
    let cell = &report["cells"][0];
    let (measured, predicted) = (cell["measured"].as_f64().unwrap(), cell["prediction"]["refined"].as_f64().unwrap());
    assert!((measured / predicted - 1.0).abs() < 0.08, "{measured} measured of {predicted}");
    assert_eq!((report["by_rule"]["cells"].as_u64(), report["missed"].as_array().unwrap().len()), (Some(1), 1));
}

#[test]
fn nothing_remains_of_a_lab_that_ended_well_or_badly() {
    require!(Lab);
    let _path = path();
    for code in [0, 7] {
        let mark = Mark::new();
        let running = Running::start(&mut with_daemon(&mark, &format!("sleep 1; exit {code}")));
        let namespaces = namespaces_of_lab(&mark);
        assert_eq!(running.finish(Duration::from_secs(PATIENCE)).status.code(), Some(code));
        mark.assert_gone(&namespaces);
    }
}

#[test]
fn nothing_remains_of_a_lab_whose_program_was_interrupted() {
    require!(Lab);
    let _path = path();
    let mark = Mark::new();
    let mut command = with_daemon(&mark, &format!("sleep {}", mark.as_str()));
    // As a terminal does: everything in the foreground is interrupted, but not the daemon.
    let running = Running::start(command.process_group(0));
    let namespaces = namespaces_of_lab(&mark);
    let group = Pid::from_raw(running.pid().cast_signed()).unwrap();
    kill_process_group(group, Signal::INT).unwrap();
    assert_eq!(running.finish(Duration::from_secs(PATIENCE)).status.code(), Some(INTERRUPTED));
    mark.assert_gone(&namespaces);
}

#[test]
fn nothing_remains_of_a_run_that_was_interrupted() {
    require!(Lab);
    let _path = path();
    for wait in [100, 400, 800, 1_500] {
        let mark = Mark::new();
        let running = Running::start(mark.put_on(&mut fullpipe(&["lab", "run", &tiny()])));
        thread::sleep(Duration::from_millis(wait));
        running.interrupt();
        let output = running.finish(Duration::from_secs(PATIENCE));
        sentence(&output, INTERRUPTED);
        mark.assert_gone(&BTreeSet::new());
    }
}

/// The server once gave up its report after five seconds, in the middle of it.
#[test]
fn a_slow_path_gets_its_results_through() {
    require!(Lab);
    let _path = path();
    let arguments = ["demo", "--path", "rate=256k,rtt=100ms", "-t", "8", "--json"];
    let output = run(&mut fullpipe(&arguments), 90);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("\"speaks_fullpipe\": true"), "{text}{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
#[expect(clippy::print_stdout, reason = "the runner shows it where the test fails")]
fn nothing_remains_of_a_lab_that_was_killed_at_any_moment() {
    const MOMENTS: usize = 8;
    require!(Lab);
    let _path = path();
    let seed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    for _ in 0..MOMENTS {
        let moment = Duration::from_millis(random.next_u64() % 1_500);
        println!("seed {seed}: killed after {moment:?}");
        let mark = Mark::new();
        let mut running = Running::start(&mut with_daemon(&mark, &format!("sleep {}", mark.as_str())));
        thread::sleep(moment);
        let namespaces = foreign_namespaces(&mark);
        running.kill();
        mark.assert_gone(&namespaces);
    }
}

#[test]
fn nothing_remains_of_a_measurement_that_was_killed() {
    require!(Lab);
    let _path = path();
    let mark = Mark::new();
    let mut running = Running::start(mark.put_on(&mut fullpipe(&["demo", "-t", "5"])));
    thread::sleep(Duration::from_secs(3));
    let namespaces = foreign_namespaces(&mark);
    running.kill();
    mark.assert_gone(&namespaces);
}

/// Runs the program as nobody, with a `/dev/net/tun` that has `mode`; the machine's own is not touched.
fn as_nobody(mode: &str, arguments: &[&str]) -> Output {
    // The program is bound to where nobody may read it, whatever folder it was built in.
    let script = "mount -t tmpfs -o mode=755 tmpfs /dev/net; \
                  mknod /dev/net/tun c 10 200; chmod \"$1\" /dev/net/tun; \
                  touch /dev/net/fullpipe; mount --bind \"$2\" /dev/net/fullpipe; shift 2; cd /; \
                  exec setpriv --reuid 65534 --regid 65534 --clear-groups /dev/net/fullpipe \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-ec", script, "sh", mode, env!("CARGO_BIN_EXE_fullpipe")]).args(arguments);
    run(&mut command, PATIENCE)
}

#[test]
fn an_ordinary_user_has_a_lab_where_the_device_is_open() {
    require!(Lab, Root, Unshare, UserNamespaces);
    let _path = path();
    let output = as_nobody("0666", &["lab", "exec", "demo", "sender", "--", "true"]);
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let output = as_nobody("0666", &["lab", "exec", "demo", "receiver", "--", "sh", "-c", "uname -n; exit 7"]);
    assert_eq!((output.status.code(), &*output.stdout), (Some(7), &b"receiver\n"[..]), "{output:?}");
}

#[test]
fn an_ordinary_user_is_told_how_to_open_the_device() {
    require!(Lab, Root, Unshare, UserNamespaces);
    let _path = path();
    for command in [&["lab", "exec", "demo", "sender", "--", "true"][..], &["demo", "--json"]] {
        let output = as_nobody("0600", command);
        let said = sentence(&output, 3);
        for part in ["/dev/net/tun", "sudo", "chmod 0666 /dev/net/tun"] {
            assert!(said.contains(part), "{part:?} is not in {said:?}");
        }
    }
}
