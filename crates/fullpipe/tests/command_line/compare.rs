//! Programs of others side by side, in a lab.

use std::path::PathBuf;
use std::time::Duration;

use fullpipe_testkit::{Running, document, load_slot, require, within};

use crate::common::{fullpipe, run};

const TIMEOUT: u64 = 120;

const LACKING: i32 = 3;

const PROGRAMS: [&str; 7] = ["iperf3", "scp", "rsync", "rsyncd", "curl", "curl-h2", "ftp"];

/// Returns a scenario of one set of settings.
fn scenario() -> String {
    let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("compare-{}.toml", std::process::id()));
    let text = "name = 'small'\ntitle = 'A path of a test'\n[path]\nrate = '20Mbit/s'\nrtt = '10ms'\nqueue = '1bdp'\n\
                [[step]]\nname = 'as it is'\n";
    std::fs::write(&file, text).unwrap();
    file.to_str().unwrap().to_owned()
}

#[test]
fn each_program_moves_the_file_whole_and_its_connection_is_watched() {
    require!(Lab, Root, Iperf3, Sshd, Rsync, Curl, Nginx, Vsftpd);
    let _slot = load_slot();
    let output = run(&mut fullpipe(&["lab", "compare", &scenario(), "--size", "1MB", "--require", "--json"]), TIMEOUT);
    let report = &document(&output)["programs"];
    let rows = report["batches"][0]["rows"].as_array().unwrap();
    assert_eq!(rows.len(), PROGRAMS.len(), "{report:#}");
    for (row, program) in rows.iter().zip(PROGRAMS) {
        assert_eq!(row["program"], program);
        let moved = &row["runs"].as_array().unwrap().last().unwrap();
        assert!(moved["failed"].is_null(), "{program}: {}", moved["failed"]);
        assert_eq!(moved["is_intact"].as_bool(), (program != "iperf3").then_some(true), "{program}");
        assert_eq!(moved["congestion"], "cubic", "{program}");
        let goodput = moved["goodput"].as_f64().unwrap();
        assert!((0.5e6..20e6).contains(&goodput), "{program}: {goodput}");
        let [took, start] = ["took", "start_up"].map(|time| moved[time].as_f64().unwrap());
        assert!(start > 0.0 && start < took, "{program}: data after {start} of {took} s");
    }
}

#[test]
fn a_program_that_is_not_installed_is_left_out_or_required() {
    let mut command = fullpipe(&["lab", "compare", &scenario(), "--with", "iperf3", "--require"]);
    let output = run(command.env("PATH", "/nonexistent"), TIMEOUT);
    assert_eq!(output.status.code(), Some(LACKING), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("iperf3 is not installed"), "{output:?}");
}

#[test]
fn nothing_of_a_comparison_that_is_killed_remains() {
    require!(Lab, Root, Sshd);
    let _slot = load_slot();
    let mut running =
        Running::start(&mut fullpipe(&["lab", "compare", &scenario(), "--with", "scp", "--size", "50MB"]));
    // The configuration names the folder of the lab, which no other program does.
    let is_there = || processes_with("/run/compare/sshd.conf") > 0;
    assert!(within(Duration::from_secs(30), is_there), "the server has started");
    running.kill();
    assert!(within(Duration::from_secs(10), || !is_there()), "the server has ended");
    assert!(!PathBuf::from("/run/compare").exists());
}

/// Returns the number of processes whose command line contains `text`.
fn processes_with(text: &str) -> usize {
    let lines = std::fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| {
        let line = std::fs::read(entry.path().join("cmdline")).ok()?;
        Some(String::from_utf8_lossy(&line).contains(text))
    });
    lines.filter(|found| *found).count()
}
