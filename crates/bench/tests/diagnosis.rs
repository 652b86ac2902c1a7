//! The diagnosis against one planted limit of each kind, over a lab; and against a record of it,
//! without one.

use std::process::{Command, Output};
use std::thread;
use std::time::Duration;

use fullpipe_testkit::{Running, fullpipe, path, require};

/// Three quarters of a minute alone; each case may run three times on a machine that is busy.
const TIMEOUT: Duration = Duration::from_mins(6);

fn diagnosis(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fullpipe-bench"));
    let program = fullpipe();
    command
        .args(["diagnosis", "--fullpipe"])
        .arg(program.get_program())
        .args(arguments);
    Running::start(&mut command).finish(TIMEOUT)
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Returns the numbers in what is said of a view: how many verdicts are right, of how many, and how
/// many name kind and cause.
fn view_figures(judged: &str, view: &str) -> [usize; 3] {
    let (_, score) = judged.split_once(&format!("\n{view}: ")).unwrap();
    let line = score.lines().next().unwrap().replace("),", ")");
    let words = line.split_whitespace().filter_map(|word| word.parse().ok());
    // The share that is right at least stands before the third.
    let figures: Vec<usize> = words.collect();
    [figures[0], figures[1], figures[3]]
}

/// Asserts that the captures of all cases were judged from every place. Packets do not show the
/// window of an SSH channel, nor that segments could be larger, and a case of a busy machine may be
/// another one.
fn captures_are_judged(judged: &str, all: usize) {
    for place in ["Sender", "Receiver", "Both"] {
        let [right, judged_cases, _] = view_figures(judged, &format!("CapturedAt{place}"));
        assert!(right + 4 >= all && judged_cases + 1 >= all, "{judged}");
    }
    let (_, contradictions) = judged.split_once("contradict each other: in ").unwrap();
    let count = contradictions.split(' ').next().unwrap();
    assert!(count.parse::<usize>().unwrap() <= 4, "{judged}");
}

#[test]
fn what_was_recorded_is_judged_without_a_network() {
    let folder = tempfile::tempdir().unwrap();
    let record = concat!(env!("CARGO_MANIFEST_DIR"), "/src/recorded/diagnosis.json");
    std::fs::copy(record, folder.path().join("one.json")).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_fullpipe-bench"));
    command.args(["diagnosis", "--from"]).arg(folder.path());
    let output = Running::start(&mut command).finish(Duration::from_secs(20));
    let said = text(&output);
    assert!(said.contains("1 records, 1 of them valid"), "{said}");
    for view in ["BothEnds", "Sender"] {
        let right = format!("\n{view}: 1 of 1 right (100.0 %");
        // With a stated bandwidth, and without.
        assert_eq!(said.matches(&right).count(), 2, "{said}");
    }
    assert_eq!(output.status.code(), Some(0), "{said}");
}

#[test]
fn a_record_that_is_none_is_named() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("two.json"), "{}").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_fullpipe-bench"));
    command.args(["diagnosis", "--from"]).arg(folder.path());
    let output = Running::start(&mut command).finish(Duration::from_secs(20));
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("two.json: missing field"),
        "{output:?}"
    );
    assert_eq!(output.status.code(), Some(3));
}

#[test]
fn a_case_that_does_not_exist_is_no_success() {
    let output = diagnosis(&["--only", "no such case"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
}

/// Tests whose figures are judged.
mod tests_alone {
    use super::*;

    #[test]
    fn one_limit_of_each_kind_is_distinguished_from_both_ends() {
        require!(Lab, Root, Strace, Sshd);
        let _path = path();
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().to_str().unwrap();
        let list = text(&diagnosis(&["--short", "--list"]));
        let names: Vec<&str> = list.lines().collect();
        assert_eq!(names.len(), 12, "{list}");
        // Three cases at a time leave the machine idle for most of the time, as each one does.
        let run = |names: &[&str]| {
            let only = names.iter().flat_map(|name| ["--only", name]);
            text(&diagnosis(
                &["--short", "--capture", "--record", folder]
                    .into_iter()
                    .chain(only)
                    .collect::<Vec<_>>(),
            ))
        };
        let thirds = thread::scope(|scope| {
            let threads: Vec<_> = names
                .chunks(4)
                .map(|names| scope.spawn(|| run(names)))
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .collect::<String>()
        });
        // Every case is recorded; one that was invalid three times is not judged.
        assert_eq!(thirds.matches("4 records").count(), 3, "{thirds}");
        let judged = text(&diagnosis(&["--from", folder]));
        let [_, all, exact] = view_figures(&judged, "BothEnds");
        assert!(all >= 8, "no valid run of {} cases: {thirds}", 11 - all);
        assert_eq!(exact, all, "{judged}");
        // OpenSSH is watched.
        assert!(!judged.contains("\nWatched: 0 of 1"), "{judged}");
        captures_are_judged(&judged, all);
    }
}
