//! Limits that are named from what `ss` lists of a sender, without anything else of its transfer.

use std::fs;
use std::process::Output;

use fullpipe_testkit::{Mark, document, fullpipe, path, require};
use serde_json::Value;

use crate::diagnose::{Lab, SELF};

/// A limit: its kind, what is said of the path and of the sender, and the flags of the load.
type PlantedLimit = [&'static str; 4];

const PATH: &str = "rate = \"40Mbit/s\"\nrtt = \"40ms\"\nqueue = \"1bdp\"";
const LOSSY_PATH: &str = "rate = \"40Mbit/s\"\nrtt = \"40ms\"\nqueue = \"1bdp\"\nloss = \"0.5%\"";
const LARGE: &str = "tcp_wmem = \"4MiB\"";
const SMALL: &str = "tcp_wmem = \"96KiB\"";

const LIMITS: [PlantedLimit; 5] = [
    ["receive-window", PATH, LARGE, "--window 64KiB"],
    ["send-buffer", PATH, SMALL, ""],
    ["sender-application", PATH, LARGE, "-b 12M"],
    ["pacing", PATH, LARGE, "--fq-rate 12M"],
    ["loss", LOSSY_PATH, LARGE, "-C cubic"],
];

/// Returns five listings of the sender of a transfer, a second apart.
fn five_listings(mark: &Mark, [_, path, sender, flags]: PlantedLimit) -> String {
    let lab = Lab::start(mark, path, sender);
    let _server = lab.serve(&[SELF, "serve"], 5201);
    let load = format!("{SELF} measure {} -t 10 {flags} > load 2>&1", Lab::RECEIVER);
    let list = format!("date +%s.%N; ss -tinmoe dst {}", Lab::RECEIVER);
    let script = format!(
        "cd $(mktemp -d); {load} & sleep 4; for i in 1 2 3 4 5; do {list}; sleep 1; done; wait $! || cat load >&2"
    );
    let output: Output = lab.sender(&["sh", "-c", &script]);
    let listings = String::from_utf8(output.stdout).unwrap();
    assert_eq!(listings.matches("skmem:").count() / 2, 5, "{listings}");
    listings
}

/// Returns the kinds of the verdict on a listing and of its candidates.
fn named_kinds(listing: &str) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("listing");
    fs::write(&file, listing).unwrap();
    let mut command = fullpipe();
    command.args(["diagnose", "--json", "--from"]).arg(&file);
    let report = document(&command.output().unwrap());
    let verdict = &report["diagnosis"]["transfers"][0]["verdict"];
    let candidates = verdict["candidates"].as_array().into_iter().flatten();
    let kinds = candidates.chain([verdict]).map(|one| &one["kind"]);
    kinds.filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Tests whose figures are judged.
mod tests_alone {
    use super::*;

    #[test]
    fn one_listing_names_four_of_five_limits_and_five_do() {
        require!(Lab, Root, Tc);
        let _path = path();
        let mark = Mark::new();
        let mut missed = [Vec::new(), Vec::new()];
        for limit in LIMITS {
            let five = five_listings(&mark, limit);
            let second = five.match_indices("State").nth(1).map_or(0, |(at, _)| at);
            let one = five[..second].rsplit_once('\n').unwrap().0;
            let one = one.rsplit_once('\n').map_or(one, |(one, _)| one);
            for (text, missed) in [one, &five].into_iter().zip(&mut missed) {
                let kinds = named_kinds(text);
                if !kinds.iter().any(|kind| kind == limit[0]) {
                    missed.push(format!("{limit:?}: {kinds:?} of {text}"));
                }
            }
        }
        let [one, five] = &missed;
        assert!(
            one.len() <= 1 && five.len() <= 1,
            "{}",
            missed.concat().join("\n")
        );
    }
}
