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

/// Asserts that the captures of all cases were judged from every place. Packets do not show the
/// window of an SSH channel, nor that segments could be larger, and a case of a busy machine may be
/// another one.
fn captures_are_judged(judged: &str, all: usize) {
    for place in ["Sender", "Receiver", "Middle", "BothEnds"] {
        let begin = format!("Captured at {place}: ");
        let figures = |words: &str| -> [usize; 2] {
            let line = judged
                .lines()
                .find(|line| line.starts_with(&begin) && line.contains(words))
                .unwrap();
            let words: Vec<usize> = line
                .split_whitespace()
                .filter_map(|word| word.parse().ok())
                .take(2)
                .collect();
            words.try_into().unwrap()
        };
        let ([right, of], [agreeing, compared]) =
            (figures("right in kind"), figures("agree with the kernel's"));
        assert_eq!(of, all, "{judged}");
        assert!(
            right + 4 >= all && agreeing + 4 >= compared && compared + 2 >= all,
            "{judged}"
        );
    }
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
    assert_eq!(said.matches(": 1 of 1 right (100.0 %").count(), 4, "{said}");
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
        let (_, score) = judged.split_once("both ends, bandwidth stated: ").unwrap();
        let figures: Vec<usize> = score
            .split_whitespace()
            .filter_map(|word| word.parse().ok())
            .take(2)
            .collect();
        let [right, all] = figures[..] else {
            panic!("{judged}")
        };
        assert!(all >= 9, "no valid run of {} cases: {thirds}", 12 - all);
        assert_eq!(right, all, "{judged}");
        captures_are_judged(&judged, all);
    }
}
