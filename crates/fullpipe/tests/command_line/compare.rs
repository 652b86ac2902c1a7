//! Programs of others side by side, in a lab.

use std::path::PathBuf;
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use fullpipe_testkit::{Running, document, load_slot, require, within};

use crate::common::{fullpipe, run};

const TIMEOUT: u64 = 120;

const LACKING: i32 = 3;

const FAILED: i32 = 1;

/// The programs of which CI has all parts.
const PROGRAMS: [&str; 9] = [
    "iperf3",
    "copy",
    "copy-server",
    "scp",
    "rsync",
    "rsyncd",
    "curl",
    "curl-h2",
    "ftp",
];

/// Comparisons in a lab, which have servers and folders of the same names. Held for writing by a
/// test that searches for them.
static COMPARISONS: RwLock<()> = RwLock::new(());

/// Returns a scenario of one set of settings.
fn scenario() -> String {
    let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("compare-{}.toml", std::process::id()));
    let text = "name = 'small'\ntitle = 'A path of a test'\n[path]\nrate = '20Mbit/s'\nrtt = '10ms'\nqueue = '1bdp'\n\
                [[step]]\nname = 'as it is'\n";
    std::fs::write(&file, text).unwrap();
    file.to_str().unwrap().to_owned()
}

#[test]
fn each_program_moves_the_file_whole_and_its_connection_is_watched() {
    require!(Lab, Root, Iperf3, Sshd, Rsync, Curl, Nginx, Vsftpd);
    let _one = COMPARISONS.read().unwrap_or_else(PoisonError::into_inner);
    let _slot = load_slot();
    let with = PROGRAMS.join(",");
    let arguments = [
        "lab",
        "compare",
        &scenario(),
        "--with",
        &with,
        "--size",
        "1MB",
        "--require",
        "--json",
    ];
    let output = run(&mut fullpipe(&arguments), TIMEOUT);
    let report = &document(&output)["programs"];
    // It is that of the predictions, too.
    assert_eq!(
        report["batches"][0]["sender"]["congestion_control"], "cubic",
        "{report:#}"
    );
    let rows = report["batches"][0]["rows"].as_array().unwrap();
    assert_eq!(rows.len(), PROGRAMS.len(), "{report:#}");
    // A transfer of 0.4 s may be over before a busy machine has sampled its connection twice.
    let mut with_start = 0;
    for program in PROGRAMS {
        let row = rows.iter().find(|row| row["program"] == program).unwrap();
        let moved = &row["runs"].as_array().unwrap().last().unwrap();
        assert!(moved["failed"].is_null(), "{program}: {}", moved["failed"]);
        assert_eq!(
            moved["is_intact"].as_bool(),
            (program != "iperf3").then_some(true),
            "{program}"
        );
        assert_eq!(moved["congestion"], "cubic", "{program}");
        let goodput = moved["goodput"].as_f64().unwrap();
        assert!((0.5e6..20e6).contains(&goodput), "{program}: {goodput}");
        let took = moved["took"].as_f64().unwrap();
        if let Some(start) = moved["start_up"].as_f64() {
            assert!(
                start > 0.0 && start < took,
                "{program}: data after {start} of {took} s"
            );
            with_start += 1;
        }
        for cpu in ["sender_cpu", "receiver_cpu"] {
            let used = moved[cpu].as_f64().unwrap();
            assert!(used > 0.0 && used < 60.0, "{program}: {cpu} {used}");
        }
    }
    assert!(with_start > PROGRAMS.len() / 2, "{report:#}");
}

#[test]
fn a_program_that_is_not_installed_is_left_out_or_required() {
    let mut command = fullpipe(&[
        "lab",
        "compare",
        &scenario(),
        "--with",
        "iperf3",
        "--require",
    ]);
    let output = run(command.env("PATH", "/nonexistent"), TIMEOUT);
    assert_eq!(output.status.code(), Some(LACKING), "{output:?}");
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("iperf3 is not installed"),
        "{output:?}"
    );
}

/// Returns the only row of a comparison in a lab in which a script of the shell moves the file.
/// Repeats a run over a path that was late by its own check, twice at most.
fn row_of(script: &str, flags: &[&str]) -> (Option<i32>, serde_json::Value) {
    let scenario = scenario();
    let arguments = [
        &["lab", "compare", &scenario, "--size", "1MB", "--json"],
        flags,
        &["--", "sh", "-c", script],
    ];
    let run_once = || {
        let output = run(&mut fullpipe(&arguments.concat()), TIMEOUT);
        let row = document(&output)["programs"]["batches"][0]["rows"][0].clone();
        (output.status.code(), row)
    };
    let is_valid = |row: &serde_json::Value| {
        let broken = row["runs"][0]["validity"]["broken"].as_array();
        broken.is_none_or(Vec::is_empty)
    };
    let mut last = run_once();
    for _ in 0..2 {
        if is_valid(&last.1) {
            break;
        }
        last = run_once();
    }
    last
}

#[test]
fn a_command_of_the_users_takes_part() {
    require!(Lab, Root, Sshd);
    let _one = COMPARISONS.read().unwrap_or_else(PoisonError::into_inner);
    let _slot = load_slot();
    let (code, row) = row_of("{ssh} {host} 'cat > {copy}' < {file}", &[]);
    assert_eq!(
        (code, row["program"].as_str()),
        (Some(0), Some("command")),
        "{row:#}"
    );
    assert_eq!(row["runs"][0]["is_intact"], true, "{row:#}");
    assert!(row["verdict"]["kind"].is_string(), "{row:#}");
}

#[test]
fn programs_that_do_not_move_the_file_have_one_clear_row() {
    require!(Lab, Root, Sshd);
    let _one = COMPARISONS.read().unwrap_or_else(PoisonError::into_inner);
    let _slot = load_slot();
    for (script, reason) in [
        // Asks for input, of which there is none.
        (
            "read -r word || { echo 'no password was typed' >&2; exit 5; }",
            "no password was typed",
        ),
        // Hangs, with a child that holds its output.
        ("sleep 600", "it did not end within 3 s"),
        // Prints without end what no terminal should see.
        (
            "yes \"$(printf '\\033[31mrubbish')\" >&2",
            "it did not end within 3 s",
        ),
        ("printf '\\033[31m\\a\\000rubbish\\n'; exit 3", "rubbish"),
        // Never opens a connection.
        ("true", "too little TCP data for a verdict"),
        // Sends another file.
        (
            "{ssh} {host} 'head -c 1000000 /dev/zero > {copy}' < {file}; true",
            "another one",
        ),
        ("no-such-program-at-all", "not found"),
    ] {
        // Those that end by themselves may take long on a slow machine.
        let timeout = if reason.contains("within 3 s") {
            "3"
        } else {
            "30"
        };
        let (code, row) = row_of(script, &["--timeout", timeout]);
        assert_eq!(code, Some(FAILED), "{script}: {row:#}");
        let failed = row["runs"][0]["failed"].as_str().unwrap();
        assert!(
            failed.contains(reason) && !failed.contains('\u{1b}'),
            "{script}: {failed}"
        );
    }
}

#[test]
fn a_host_without_ssh_has_its_other_programs() {
    require!(Iperf3);
    let _slot = load_slot();
    // Nothing has this name.
    let target = "nobody@host.invalid";
    let arguments = [
        "compare",
        target,
        "--with",
        "scp,iperf3",
        "--size",
        "1MB",
        "--timeout",
        "5",
        "--json",
    ];
    let output = run(&mut fullpipe(&arguments), TIMEOUT);
    assert_eq!(output.status.code(), Some(FAILED), "{output:?}");
    let report = &document(&output)["programs"];
    assert_eq!(report["left_out"][0]["program"], "scp", "{report:#}");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        said.contains("scp skipped: cannot create a folder on ") && !said.contains(".."),
        "it was named: {said}"
    );
    let failed = report["batches"][0]["rows"][0]["runs"][0]["failed"]
        .as_str()
        .unwrap();
    assert!(failed.contains("iperf3"), "{failed}");
    assert_eq!(report["scenario"], serde_json::Value::Null);
}

#[test]
fn programs_move_the_file_to_servers_that_are_there_and_leave_nothing() {
    require!(Lab, Root, Sshd, Rsync);
    let _only = COMPARISONS.write().unwrap_or_else(PoisonError::into_inner);
    let _slot = load_slot();
    // The lab of a comparison has the servers; the command is a comparison of its own, with those.
    let inner = "FULLPIPE compare {host} --ssh-config /run/compare/ssh.conf \
                 --with scp,rsync --require --no-store --bandwidth 20M --size 1MB --json > /tmp/RESULT; \
                 {ssh} {host} true";
    let result = format!("compare-{}.json", std::process::id());
    let inner = inner
        .replace("FULLPIPE", env!("CARGO_BIN_EXE_fullpipe"))
        .replace("RESULT", &result);
    let (_, row) = row_of(&inner, &[]);
    let result = PathBuf::from("/tmp").join(result);
    let text = std::fs::read_to_string(&result).unwrap_or_else(|error| panic!("{error}: {row:#}"));
    std::fs::remove_file(&result).unwrap();
    let report: serde_json::Value = serde_json::from_str(&text).unwrap();
    let rows = report["programs"]["batches"][0]["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2, "{report:#}");
    for row in rows {
        assert_eq!(row["runs"][0]["is_intact"], true, "{row:#}");
        assert!(row["goodput"].as_f64().unwrap() > 0.2e6, "{row:#}");
        assert!(row["predicted"].as_f64().unwrap() > 15e6, "{row:#}");
    }
    assert_eq!(folders(), Vec::<PathBuf>::new());
}

/// Returns the folders of comparisons that are left on this host.
fn folders() -> Vec<PathBuf> {
    let all = ["/dev/shm", "/var/tmp"]
        .into_iter()
        .flat_map(|place| std::fs::read_dir(place).unwrap().flatten());
    all.map(|entry| entry.path())
        .filter(|path| path.to_string_lossy().contains("fullpipe-compare."))
        .collect()
}

#[test]
fn a_folder_is_gone_after_a_kill() {
    require!(Lab, Root, Sshd);
    let _only = COMPARISONS.write().unwrap_or_else(PoisonError::into_inner);
    let _slot = load_slot();
    let scenario = scenario();
    let arguments = [
        "lab", "compare", &scenario, "--with", "scp", "--size", "50MB", "--disk",
    ];
    let mut running = Running::start(&mut fullpipe(&arguments));
    assert!(
        within(Duration::from_secs(30), || !folders().is_empty()),
        "the folder is there"
    );
    running.kill();
    assert!(
        within(Duration::from_secs(10), || folders().is_empty()),
        "{:?}",
        folders()
    );
}

#[test]
fn nothing_of_a_comparison_that_is_killed_remains() {
    require!(Lab, Root, Sshd);
    let _only = COMPARISONS.write().unwrap_or_else(PoisonError::into_inner);
    let _slot = load_slot();
    let mut running = Running::start(&mut fullpipe(&[
        "lab",
        "compare",
        &scenario(),
        "--with",
        "scp",
        "--size",
        "50MB",
    ]));
    // The configuration names the folder of the lab, which no other program does.
    let is_there = || processes_with("/run/compare/sshd.conf") > 0;
    assert!(
        within(Duration::from_secs(30), is_there),
        "the server has started"
    );
    running.kill();
    assert!(
        within(Duration::from_secs(10), || !is_there()),
        "the server has ended"
    );
    assert!(!PathBuf::from("/run/compare").exists());
}

/// Returns the number of processes whose command line contains `text`.
fn processes_with(text: &str) -> usize {
    let lines = std::fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|entry| {
            let line = std::fs::read(entry.path().join("cmdline")).ok()?;
            Some(String::from_utf8_lossy(&line).contains(text))
        });
    lines.filter(|found| *found).count()
}
