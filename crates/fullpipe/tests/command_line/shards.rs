//! Grids in shards: each has its rows only, as one process has them, and they merge in the archive.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use fullpipe_store::{ArchiveLocation, DocumentFilter, Store, read_import};
use fullpipe_testkit::{Postgres, assert_says, document, require};
use jiff::Timestamp;
use serde_json::Value;
use tempfile::TempDir;

use crate::common::{fullpipe, run};

/// Twelve rows, of which some lose packets at random.
const GRID: [&str; 13] = [
    "simulate",
    "--bandwidth",
    "5M,10M,20M",
    "--rtt",
    "10ms,40ms",
    "--loss",
    "0,1e-3",
    "-t",
    "3",
    "--seeds",
    "2",
    "--seed",
    "7",
];

const SHARDS: usize = 5;

/// Runs the grid with more flags.
fn grid(more: &[&str]) -> Output {
    done(&mut fullpipe(&[&GRID, more].concat()))
}

fn done(command: &mut Command) -> Output {
    let output = run(command, 120);
    assert!(output.status.success(), "{command:?}: {output:?}");
    output
}

fn shard(number: usize) -> String {
    format!("{number}/{SHARDS}")
}

/// Returns identifier and bytes of each document that an archive has, in the order of identifiers.
pub(crate) fn documents(archive: &Path) -> Vec<(String, Vec<u8>)> {
    let mut store = Store::open(&ArchiveLocation::File(archive.to_owned())).unwrap();
    let heads = store.list_documents(&DocumentFilter::default()).unwrap();
    let body = |head| store.document_body(head).unwrap();
    let mut all: Vec<_> = heads
        .iter()
        .map(|head| head.id.clone())
        .zip(heads.iter().map(body))
        .collect();
    all.sort();
    all
}

/// Writes what each shard prints with `--json`, and returns the files.
fn printed_shards(folder: &TempDir) -> Vec<String> {
    let files = (1..=SHARDS).map(|number| {
        let file = folder.path().join(format!("shard-{number}.json"));
        fs::write(&file, grid(&["--json", "--shard", &shard(number)]).stdout).unwrap();
        file.display().to_string()
    });
    files.collect()
}

fn import(files: &[String], archive: &str) -> Value {
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    let flags = ["store", "import", "--json", "--store", archive];
    document(&done(&mut fullpipe(&[&flags, &files[..]].concat())))["imported"].clone()
}

#[test]
fn shards_have_every_row_once_as_one_process_has_it() {
    let lines = |output: &Output| -> Vec<String> {
        let text = String::from_utf8(output.stdout.clone()).unwrap();
        text.lines().map(str::to_owned).collect()
    };
    let whole = lines(&grid(&["--csv"]));
    let (head, rows) = whole.split_first().unwrap();
    assert_eq!(rows.len(), 12);
    let json = grid(&["--json"]).stdout;
    let bodies: Vec<Vec<u8>> = read_import(&json, Timestamp::UNIX_EPOCH)
        .unwrap()
        .into_iter()
        .map(|row| row.body)
        .collect();
    for number in 1..=SHARDS {
        let own = |index: usize| index % SHARDS == number - 1;
        let csv = lines(&grid(&["--csv", "--shard", &shard(number), "--jobs", "1"]));
        let expected = rows.iter().enumerate().filter(|(index, _)| own(*index));
        let expected: Vec<&String> = std::iter::once(head)
            .chain(expected.map(|(_, row)| row))
            .collect();
        assert_eq!(csv.iter().collect::<Vec<_>>(), expected, "shard {number}");
        let json = grid(&["--json", "--shard", &shard(number)]).stdout;
        let printed = read_import(&json, Timestamp::UNIX_EPOCH)
            .unwrap()
            .into_iter();
        let expected = bodies.iter().enumerate().filter(|(index, _)| own(*index));
        let expected: Vec<&Vec<u8>> = expected.map(|(_, body)| body).collect();
        assert_eq!(
            printed
                .map(|row| row.body)
                .collect::<Vec<_>>()
                .iter()
                .collect::<Vec<_>>(),
            expected
        );
    }
}

#[test]
fn shards_merge_in_the_archive_and_twice_the_same_is_once() {
    let folder = tempfile::tempdir().unwrap();
    let [merged, whole] = ["merged.db", "whole.db"].map(|name| folder.path().join(name));
    let archive = merged.to_str().unwrap();
    let files = printed_shards(&folder);
    let imported = import(&files, archive);
    let rows = imported
        .as_array()
        .unwrap()
        .iter()
        .map(|file| file["ids"].as_array().unwrap().len());
    assert_eq!(rows.collect::<Vec<_>>(), [3, 3, 2, 2, 2]);
    assert_eq!(import(&files[1..2], archive)[0]["known"], 3);
    let one = folder.path().join("whole.json");
    fs::write(&one, grid(&["--json"]).stdout).unwrap();
    import(&[one.display().to_string()], whole.to_str().unwrap());
    let documents_of_shards = documents(&merged);
    assert_eq!(documents_of_shards.len(), 12);
    assert_eq!(documents_of_shards, documents(&whole));
    let check = done(&mut fullpipe(&[
        "store", "check", "--json", "--store", archive,
    ]));
    assert_eq!(document(&check)["archive_check"]["stale"], 0);
    let facts = done(&mut fullpipe(&[
        "store", "export", "--csv", "--store", archive,
    ]));
    let facts = String::from_utf8(facts.stdout).unwrap();
    assert_eq!(facts.lines().count(), 13);
    assert!(facts.contains("capacity,link"), "{facts}");
}

#[test]
fn a_grid_takes_the_rows_that_an_archive_has_and_computes_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().join("grid.db");
    let archive = archive.to_str().unwrap();
    let files = printed_shards(&folder);
    // A figure that no simulation gives shows where a row comes from.
    let changed = fs::read_to_string(&files[2]).unwrap();
    let (rate, median) = {
        let row: Value = serde_json::from_str(&changed).unwrap();
        let spread = &row["simulations"][0]["rate"];
        (
            spread["median"].as_u64().unwrap(),
            format!("\"median\": {}", spread["median"]),
        )
    };
    assert!(changed.contains(&median));
    let marked = changed.replacen(&median, &format!("\"median\": {}", rate + 1), 1);
    fs::write(&files[2], marked).unwrap();
    // The fourth shard is missing.
    import(&[&files[..3], &files[4..]].concat(), archive);
    assert_eq!(documents(Path::new(archive)).len(), 10);
    for format in ["--json", "--csv"] {
        let resumed = String::from_utf8(grid(&[format, "--fill", archive]).stdout).unwrap();
        let whole = String::from_utf8(grid(&[format]).stdout).unwrap();
        let differ = resumed
            .lines()
            .zip(whole.lines())
            .filter(|(resumed, whole)| resumed != whole);
        let differ: Vec<_> = differ.collect();
        assert_eq!(
            (differ.len(), resumed.lines().count()),
            (1, whole.lines().count()),
            "{differ:?}"
        );
        assert!(differ[0].0.contains(&(rate + 1).to_string()), "{differ:?}");
    }
    assert_eq!(documents(Path::new(archive)).len(), 12);
}

#[test]
fn shards_that_run_at_the_same_time_meet_in_postgresql() {
    require!(Postgres);
    let server = Postgres::start();
    let archive = server.database("grid");
    let resume = ["--csv", "--fill", &archive];
    std::thread::scope(|scope| {
        // The first shard runs twice.
        for number in [1, 1, 2, 3, 5] {
            scope.spawn(move || grid(&[&resume[..], &["--shard", &shard(number)]].concat()));
        }
    });
    let count = || {
        let path = ["store", "path", "--json", "--store", &archive];
        document(&done(&mut fullpipe(&path)))["archive"]["documents"]["simulations"].clone()
    };
    assert_eq!(count(), 10);
    let whole = grid(&["--csv"]).stdout;
    assert!(grid(&resume).stdout == whole);
    assert_eq!(count(), 12);
}

#[test]
fn a_row_is_another_with_another_seed_setting_or_kernel() {
    let id = |more: &[&str]| {
        let one = [
            "simulate",
            "--rtt",
            "10ms,20ms",
            "--bandwidth",
            "5M",
            "--json",
        ];
        let rows = document(&done(&mut fullpipe(&[&one, more].concat())));
        rows["simulations"][0]["id"].as_str().unwrap().to_owned()
    };
    let usual = id(&[]);
    assert_eq!(usual, id(&["--jobs", "2"]));
    assert_eq!(usual, id(&["--shard", "1/2"]));
    for flags in [
        &["--seed", "2"][..],
        &["--seeds", "2"],
        &["--kernel", "6.12"],
        &["--hz", "1000"],
        &["--granularity", "train"],
        &["--receiver", "tcp_rmem=64MiB"],
        &["-n", "100k"],
    ] {
        assert_ne!(usual, id(flags), "{flags:?}");
    }
}

#[test]
fn what_is_no_shard_of_a_grid_is_refused() {
    for (flags, sentence) in [
        (
            &["simulate", "--rtt", "10ms,20ms", "--shard", "0/2"][..],
            "write a shard and their number",
        ),
        (
            &["simulate", "--rtt", "10ms,20ms", "--shard", "3/3"],
            "take 2 shards at most",
        ),
        (
            &["simulate", "--rtt", "10ms", "--shard", "1/1"],
            "give a quantity several values",
        ),
        (
            &["simulate", "--rtt", "10ms", "--fill", "/tmp"],
            "give a quantity several values",
        ),
        (
            &["simulate", "demo", "--shard", "1/1"],
            "give a quantity several values",
        ),
        (
            &["simulate", "--rtt", "10ms,20ms", "--fill", "/proc/a.db"],
            "/proc/a.db",
        ),
        (
            &["lab", "grid", "--fill", "grid.db"],
            "--fill is of --virtual",
        ),
        (
            &["lab", "grid", "--virtual", "--shard", "1/1000"],
            "shards at most",
        ),
        (
            &["trace", "/dev/null", "--shard", "1/2"],
            "the captures in a folder",
        ),
    ] {
        let refused = run(&mut fullpipe(flags), 20);
        assert!(!refused.status.success(), "{flags:?}");
        assert_says(&String::from_utf8_lossy(&refused.stderr), &[sentence]);
    }
}

/// Four cells and a bound that they miss.
const CELLS: &str = r#"
name = "small"
title = "Four cells"
longest = "5s"

[bounds]
median = "0.0001%"

[[block]]
rate = ["5Mbit/s", "10Mbit/s"]
rtt = ["20ms", "40ms"]
window = ["0.5"]
"#;

#[test]
fn cells_of_a_grid_in_virtual_time_merge_into_the_report_of_one_process() {
    let folder = tempfile::tempdir().unwrap();
    let [file, archive, first] = ["small.toml", "grid.db", "first.json"]
        .map(|name| folder.path().join(name).display().to_string());
    fs::write(&file, CELLS).unwrap();
    let cells = |more: &[&str]| {
        let flags = ["lab", "grid", &file, "--virtual", "--json"];
        let output = run(&mut fullpipe(&[&flags, more].concat()), 120);
        let mut grid = document(&output)["grid"].clone();
        grid.as_object_mut().unwrap().remove("took");
        (output, grid)
    };
    let (missed, whole) = cells(&[]);
    assert_eq!(missed.status.code(), Some(1));
    assert_eq!(whole["missed"].as_array().unwrap().len(), 1);
    let (shard, own) = cells(&["--shard", "2/3"]);
    // Bounds are of all cells together.
    assert_eq!(
        (shard.status.code(), &own["passed"]),
        (Some(0), &Value::Bool(true))
    );
    assert_eq!(
        own["cells"].as_array().unwrap()[..],
        whole["cells"].as_array().unwrap()[1..2]
    );
    fs::write(&first, &shard.stdout).unwrap();
    import(std::slice::from_ref(&first), &archive);
    assert_eq!(import(&[first], &archive)[0]["known"], 1);
    cells(&["--shard", "1/3", "--fill", &archive]);
    assert_eq!(documents(Path::new(&archive)).len(), 3);
    assert_eq!(cells(&["--fill", &archive]).1, whole);
    assert_eq!(documents(Path::new(&archive)).len(), 4);
}

/// A folder of three captures.
fn captures() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../trace/tests/captures");
    for name in ["dupack-four-packets", "rto-stalls", "zero-window-mid"] {
        let name = format!("{name}.pcap.gz");
        fs::copy(source.join(&name), folder.path().join(&name)).unwrap();
    }
    fs::write(folder.path().join(".hidden"), "no capture").unwrap();
    folder
}

#[test]
fn each_capture_of_a_folder_is_a_document_in_one_shard() {
    let folder = captures();
    let name = folder.path().to_str().unwrap();
    let whole = done(&mut fullpipe(&["trace", name, "--json"])).stdout;
    let mut shards = Vec::new();
    for number in ["1/3", "2/3", "3/3"] {
        shards.extend(done(&mut fullpipe(&["trace", name, "--json", "--shard", number])).stdout);
    }
    assert_eq!(
        String::from_utf8_lossy(&shards),
        String::from_utf8_lossy(&whole)
    );
    let values = serde_json::Deserializer::from_slice(&whole).into_iter::<Value>();
    assert_eq!(
        values
            .filter(|value| value.as_ref().unwrap()["kind"] == "capture")
            .count(),
        3
    );
    let (file, archive) = (
        folder.path().join(".all.json"),
        folder.path().join(".archive.db"),
    );
    fs::write(&file, [&whole[..], &shards].concat()).unwrap();
    let imported = import(&[file.display().to_string()], archive.to_str().unwrap());
    assert_eq!(imported[0]["known"], 3);
    assert_eq!(documents(&archive).len(), 3);
    // One that is none keeps the others not out, and is said.
    fs::write(folder.path().join("none"), "no capture").unwrap();
    let spoiled = run(&mut fullpipe(&["trace", name, "--json"]), 60);
    assert_eq!(spoiled.status.code(), Some(2));
    assert!(
        String::from_utf8_lossy(&spoiled.stderr).contains("none"),
        "{spoiled:?}"
    );
    let values = serde_json::Deserializer::from_slice(&spoiled.stdout).into_iter::<Value>();
    assert_eq!(values.count(), 4);
}
