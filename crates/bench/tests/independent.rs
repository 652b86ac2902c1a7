//! The independent half of the labelled bench: a case of each view over a path that is not the
//! lab's.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread;
use std::time::Duration;

use fullpipe_testkit::{Running, fullpipe, path, require};

/// A quarter of a minute alone; each case may run three times on a machine that is busy.
const TIMEOUT: Duration = Duration::from_mins(2);

fn independent(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fullpipe-bench"));
    let program = fullpipe();
    command
        .args(["independent", "--fullpipe"])
        .arg(program.get_program())
        .args(arguments);
    Running::start(&mut command).finish(TIMEOUT)
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Of each view a case that a busy machine does not disturb: its seed, and the begin of its name.
const CASES: [[&str; 3]; 4] = [
    ["both-ends", "11", "11-006 receive-window/tcp-rmem-max"],
    ["sender", "1", "1-009 send-buffer/tcp-wmem-max"],
    ["receiver", "1", "1-000 capacity/link"],
    ["watched", "11", "11-014 pacing/qdisc"],
];

#[test]
fn the_same_seed_draws_the_same_cases_and_another_one_others() {
    let list = |seed: &str| text(&independent(&["--list", "--seed", seed]));
    let (first, again, other) = (list("7"), list("7"), list("8"));
    assert_eq!(first, again);
    assert_ne!(first, other);
    let of_web = text(&independent(&["--web", "--list", "--seed", "7"]));
    for list in [first, of_web] {
        let named = list.lines().filter(|line| line.starts_with("Receiver 7-"));
        assert_eq!(named.count(), 50, "{list}");
    }
}

#[test]
fn a_folder_that_is_none_is_named() {
    let output = independent(&["--from", "/nonexistent"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("No such file"),
        "{output:?}"
    );
}

#[test]
fn a_simulated_transfer_is_judged_from_nine_views_as_its_seed_has_it() {
    let judge = |seed: &str| {
        text(&independent(&[
            "--virtual",
            "--seed",
            seed,
            "--count",
            "20",
            "--only",
            "receive-window/so-rcvbuf",
        ]))
    };
    let said = judge("5");
    let views = [
        "BothEnds",
        "Sender",
        "Receiver",
        "Watched",
        "CapturedAtSender",
        "CapturedAtReceiver",
        "CapturedAtBoth",
        "OneListing",
        "FiveListings",
    ];
    for view in views {
        assert!(
            said.contains(&format!("\n{view}: 1 of 1 right")),
            "{view}: {said}"
        );
        assert!(
            said.contains(&format!("  {view:<18}   1 cases: claimed")),
            "{view}: {said}"
        );
    }
    assert!(
        said.contains("contradict each other: in 0 of 1 transfers"),
        "{said}"
    );
    assert_eq!(said, judge("5"));
}

#[test]
fn simulated_cases_of_two_seeds_are_pooled() {
    let list = |seeds: &[&str]| {
        let seeds = seeds.iter().flat_map(|seed| ["--seed", seed]);
        text(&independent(
            &["--virtual", "--list", "--count", "20"]
                .into_iter()
                .chain(seeds)
                .collect::<Vec<_>>(),
        ))
    };
    let both = list(&["7", "8"]);
    assert_eq!(both, list(&["7"]) + &list(&["8"]));
    let limits: BTreeSet<&str> = both
        .lines()
        .filter_map(|name| name.split(' ').nth(1))
        .collect();
    assert_eq!(limits.len(), 17, "{limits:?}");
}

#[test]
fn transfers_that_end_once_they_are_sure_are_about_as_right_as_whole_ones() {
    let arguments = [
        "--virtual",
        "--until-sure",
        "--seed",
        "9103",
        "--count",
        "40",
    ];
    let said = text(&independent(&arguments));
    for view in ["Sender", "Receiver"] {
        let head = format!("ended by the view of {view}: ");
        let line = said
            .lines()
            .find(|line| line.starts_with(&head))
            .expect(&said);
        let number_after = |words: &str| -> f64 {
            let (_, rest) = line.split_once(words).expect(line);
            let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.');
            rest[..end.unwrap_or(rest.len())].parse().expect(line)
        };
        let all = number_after(&head);
        assert!(all > 30.0, "{line}");
        assert!(number_after("only whole ") <= 0.05 * all, "{line}");
        assert!(number_after("rate within 5 % in ") >= 0.9 * all, "{line}");
        assert!(number_after(" %); ") <= 25.0, "{line}");
    }
}

/// Tests whose figures are judged.
mod tests_alone {
    use super::*;

    #[test]
    fn a_limit_is_named_in_each_view_over_the_kernels_own_path() {
        require!(Lab, Root, Tc, Nft, Iperf3, Socat, Ethtool);
        let _path = path();
        // Together they leave the machine idle for most of the time, as each one does.
        let run = |[view, seed, name]: [&str; 3]| {
            text(&independent(&[
                "--seed", seed, "--view", view, "--count", "20", "--only", name,
            ]))
        };
        let said = thread::scope(|scope| {
            let threads = CASES.map(|case| scope.spawn(move || run(case)));
            threads.map(|thread| thread.join().unwrap())
        });
        let all = said.concat();
        assert!(!all.contains("WRONG"), "{all}");
        // A run that is invalid three times is left out.
        assert!(
            said.iter().filter(|said| said.contains("right ")).count() >= 3,
            "{all}"
        );
        let listed = Command::new("ip").args(["netns", "list"]).output().unwrap();
        assert!(
            !text(&listed).contains("fpb"),
            "nothing remains: {}",
            text(&listed)
        );
    }

    /// The server sends and receives over HTTP/1.1 with TLS, and nothing is known of the other end.
    #[test]
    fn limits_of_browsers_are_named_by_the_server_alone() {
        require!(Lab, Root, Tc, Nft, Curl, Ethtool);
        let _path = path();
        let said = text(&independent(&[
            "--web", "--seed", "31", "--count", "8", "--only", "31-003", "--only", "31-004",
        ]));
        assert!(!said.contains("WRONG"), "{said}");
        // A run that is invalid three times is left out.
        assert!(
            said.lines()
                .filter(|line| line.starts_with("right "))
                .count()
                >= 3,
            "{said}"
        );
    }
}

/// Returns the files of a folder of records by their names.
fn records(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let files = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let named = files.map(|file| (file.file_name().unwrap().into(), fs::read(file).unwrap()));
    named.collect()
}

#[test]
fn shards_of_a_seed_write_the_records_of_one_process() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let [whole, shards] = folders
        .each_ref()
        .map(|folder| folder.path().to_str().unwrap());
    let cases = [
        "--virtual",
        "--view",
        "both-ends",
        "--seed",
        "5",
        "--seed",
        "6",
        "--count",
        "5",
        "--record",
    ];
    independent(&[&cases[..], &[whole]].concat());
    let of_shard = |shard: &str| {
        independent(&[&cases[..], &[shards, "--shard", shard]].concat());
        records(folders[1].path()).len()
    };
    let counts: Vec<usize> = ["1/3", "2/3", "2/3", "3/3"].map(of_shard).to_vec();
    let all = records(folders[0].path());
    assert!(
        all.len() > 5 && counts[0] < counts[1] && counts[2] < counts[3],
        "{counts:?}"
    );
    assert_eq!(counts[1], counts[2], "twice the same is once");
    assert!(all == records(folders[1].path()), "{:?}", all.keys());
    let judged = folders
        .each_ref()
        .map(|folder| text(&independent(&["--from", folder.path().to_str().unwrap()])));
    assert_eq!(judged[0], judged[1]);
    let unseeded = independent(&["--shard", "1/2"]);
    assert_eq!(
        unseeded.status.code(),
        Some(2),
        "each process would draw its own cases"
    );
}
