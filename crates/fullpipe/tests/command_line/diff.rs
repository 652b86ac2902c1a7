//! Two results, or two settings in pairs, over loopback.

use std::path::{Path, PathBuf};

use crate::common::{fullpipe, run};
use crate::far_end;
use fullpipe_testkit::{document, free_port, sentence};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A folder with measurements.
struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path: PathBuf = self.0.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

/// Returns the document of a short simulated measurement with this rate and identifier.
fn measured(id: &str, mbps: f64) -> Value {
    let arguments = [
        "simulate",
        "--path",
        "rate=10M,rtt=10ms",
        "-t",
        "0.3",
        "--json",
    ];
    let mut value = document(&run(&mut fullpipe(&arguments), 20));
    value["measurement"]["id"] = json!(id);
    value["measurement"]["summary"]["rate"] = json!((mbps * 1e6) as u64);
    value["measurement"]["summary"]["steady"] = Value::Null;
    value
}

fn many(name: &str, rates: &[f64]) -> Vec<Value> {
    let template = measured(name, 0.0);
    let with = |(index, mbps): (usize, &f64)| {
        let mut value = template.clone();
        value["measurement"]["id"] = json!(format!("{name}{index}"));
        value["measurement"]["summary"]["rate"] = json!((mbps * 1e6) as u64);
        value
    };
    rates.iter().enumerate().map(with).collect()
}

fn lines(values: &[Value]) -> String {
    values
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join("\n")
}

#[test]
fn files_in_any_form_are_compared() {
    let folder = Folder::new();
    let (a, b) = (
        many("a", &[100.0, 101.0, 99.0, 100.5]),
        many("b", &[80.0, 81.0, 79.0, 80.5]),
    );
    let one_each: Vec<String> = a
        .iter()
        .enumerate()
        .map(|(index, value)| folder.file(&format!("a{index}.json"), &value.to_string()))
        .collect();
    let event =
        |value: &Value| json!({"time": "", "event": "measurement", "data": value["measurement"]});
    let events: Vec<Value> = [json!({"time": "", "event": "idle"})]
        .into_iter()
        .chain(a.iter().map(event))
        .collect();
    let forms = [
        one_each.join(","),
        folder.file("array.json", &json!(a).to_string()),
        folder.file("lines.json", &lines(&a)),
        folder.file("events.json", &lines(&events)),
    ];
    let b = folder.file("b.json", &lines(&b));
    for form in forms {
        let difference =
            document(&run(&mut fullpipe(&["diff", &form, &b, "--json"]), 20))["difference"].clone();
        assert_eq!(
            difference["conclusion"], "different",
            "{form}: {difference}"
        );
        assert_eq!(
            (&difference["design"], &difference["a"]["runs"]),
            (&json!("samples"), &json!(4))
        );
        assert!(
            (difference["rate"]["ratio"].as_f64().unwrap() - 0.8).abs() < 0.01,
            "{difference}"
        );
    }
    let text = run(
        &mut fullpipe(&["diff", &folder.file("a.json", &lines(&a)), &b]),
        20,
    );
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(
        text.contains("moves 20 % less than")
            && text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
}

#[test]
fn documents_of_the_archive_are_compared_by_the_ends_of_their_identifiers() {
    let folder = Folder::new();
    let archive = folder.0.path().join("archive.db");
    let stored = |command: &[&str]| run(fullpipe(command).arg("--store").arg(&archive), 20);
    assert!(
        sentence(&stored(&["diff", "0cf739c4", "29136ff1"]), 2)
            .starts_with("there is no file 0cf739c4, and")
    );
    let names = [("a", 100.0), ("b", 80.0)].map(|(name, mbps)| {
        let file = folder.file(name, &measured(name, mbps).to_string());
        assert!(stored(&["store", "import", &file]).status.success());
        file
    });
    let list = document(&stored(&["store", "list", "--json"]));
    let ids: Vec<&str> = list["stored"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|one| one["id"].as_str())
        .collect();
    let end = |id: &str| id[id.len() - 8..].to_owned();
    let report =
        |a: &str, b: &str| document(&stored(&["diff", a, b, "--json"]))["difference"].clone();
    let [by_id, by_file] = [report(&end(ids[1]), ids[0]), report(&names[0], &names[1])];
    for side in ["a", "b"] {
        assert_eq!(
            (&by_id[side]["runs"], &by_id[side]["rate"]),
            (&json!(1), &by_file[side]["rate"]),
            "{by_id}"
        );
    }
    assert!(
        sentence(&stored(&["diff", "00000000", ids[0]]), 2).contains("no document of the archive")
    );
}

#[test]
fn what_is_not_comparable_is_refused_with_reasons_unless_it_is_wanted() {
    let folder = Folder::new();
    let mut other = many("b", &[80.0, 81.0, 79.0, 80.0]);
    for value in &mut other {
        value["measurement"]["local"]["host"]["kernel"] = json!("5.10.0");
    }
    let (a, b) = (many("a", &[80.0, 81.0, 79.0, 80.0]), other);
    let (a, b) = (folder.file("a", &lines(&a)), folder.file("b", &lines(&b)));
    let refused = sentence(&run(&mut fullpipe(&["diff", &a, &b]), 20), 2);
    assert!(
        refused.contains("kernel of this host") && refused.contains("--anyway"),
        "{refused}"
    );
    let compared = document(&run(
        &mut fullpipe(&["diff", &a, &b, "--anyway", "--json"]),
        20,
    ));
    let reasons = compared["difference"]["incomparable"].to_string();
    assert!(reasons.contains("5.10.0 in B"), "{compared}");
    let itself = sentence(&run(&mut fullpipe(&["diff", &a, &a]), 20), 2);
    assert!(itself.contains("in A and in B"), "{itself}");
}

#[test]
fn one_run_each_is_no_difference() {
    let folder = Folder::new();
    let (a, b) = (measured("a", 100.0), measured("b", 50.0));
    let (a, b) = (
        folder.file("a", &a.to_string()),
        folder.file("b", &b.to_string()),
    );
    let text = String::from_utf8(run(&mut fullpipe(&["diff", &a, &b]), 20).stdout).unwrap();
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        text.contains("Too few runs to show a difference") && text.contains("--pairs 12"),
        "{text}"
    );
}

#[test]
fn a_file_that_is_none_is_reported_in_one_sentence() {
    let folder = Folder::new();
    let good = folder.file("good", &measured("a", 100.0).to_string());
    let failed = json!({"schema": 2, "kind": "error", "error": {"message": "no route to host", "exit_code": 1}});
    let cases = [
        (folder.file("empty", ""), "has no measurement"),
        (folder.file("text", "94 Mbit/s"), "is no JSON document"),
        (
            folder.file("cut", &measured("b", 100.0).to_string()[..500]),
            "is no JSON document",
        ),
        (folder.file("number", "17"), "is no JSON document"),
        (
            folder.file("deep", &"[".repeat(100_000)),
            "is no JSON document",
        ),
        (
            folder.file("failed", &failed.to_string()),
            "without a measurement: no route to host",
        ),
        (
            folder.file("table", r#"{"schema":2,"kind":"table","table":[]}"#),
            "without a measurement",
        ),
        (
            folder.0.path().join("missing").to_str().unwrap().to_owned(),
            "cannot read",
        ),
        (folder.0.path().to_str().unwrap().to_owned(), "cannot read"),
    ];
    for (file, part) in cases {
        let said = sentence(&run(&mut fullpipe(&["diff", &good, &file]), 20), 2);
        assert!(said.contains(part), "{file}: {said}");
        let json = run(&mut fullpipe(&["diff", &file, &good, "--json"]), 20);
        assert_eq!(document(&json)["error"]["exit_code"], 2);
    }
}

#[test]
fn a_wrong_command_line_is_reported_in_one_sentence() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    let file = file.to_str().unwrap();
    for arguments in [
        &["diff", file][..],
        &["diff", file, file, "--pairs", "3", "--", "--"],
        &["diff", "localhost", "--pairs", "3"],
        &["diff", "localhost", "--pairs", "1", "--", "--"],
        &["diff", "localhost", "--pairs", "3", "--", "-P", "2"],
        &[
            "diff",
            "localhost",
            "--pairs",
            "3",
            "--",
            "-P",
            "2",
            "--",
            "--",
            "-P",
            "4",
        ],
        &[
            "diff",
            "localhost",
            "--pairs",
            "3",
            "--",
            "-P",
            "0",
            "--",
            "-P",
            "4",
        ],
        &["diff", "-", "-"],
    ] {
        assert_eq!(
            run(&mut fullpipe(arguments), 20).status.code(),
            Some(2),
            "{arguments:?}"
        );
    }
    let wrong = [
        "diff",
        "localhost",
        "--pairs",
        "3",
        "--",
        "-P",
        "2",
        "--",
        "--no-such-flag",
    ];
    assert!(
        sentence(&run(&mut fullpipe(&wrong), 20), 2).contains("flags of B: unexpected argument")
    );
    let harmful = [
        "diff",
        "no-such-host.invalid",
        "--pairs",
        "3",
        "--",
        "-u",
        "-b",
        "50M",
        "--",
        "-u",
    ];
    assert!(sentence(&run(&mut fullpipe(&harmful), 20), 2).contains("--yes"));
}

#[test]
fn pairs_of_equal_settings_do_not_differ() {
    let (_server, port) = far_end();
    let arguments = [
        "diff",
        "127.0.0.1",
        "-p",
        &port,
        "--pairs",
        "6",
        "-t",
        "0.2",
        "--json",
    ];
    let flags = ["--", "-b", "8M", "--", "-b", "8M"];
    let compared = || {
        document(&run(&mut fullpipe(&[&arguments[..], &flags].concat()), 60))["difference"].clone()
    };
    // An interval of 95 % leaves out the truth in one of twenty comparisons: three in a row are no
    // chance.
    let mut differences = (0..3).map(|_| compared());
    let difference = differences.find(|difference| difference["conclusion"] != "different");
    let difference = difference.expect("equal settings differ in three comparisons");
    assert_eq!(
        (&difference["design"], &difference["forecast"]["pairs"]),
        (&json!("pairs"), &json!(6))
    );
    let runs = difference["runs"].as_array().unwrap();
    let of_a = runs.iter().filter(|run| run["side"] == "a").count();
    assert_eq!((runs.len(), of_a), (12, 6), "{difference}");
    assert!(
        runs.iter().all(
            |run| run["limit"].is_string() && run["rate"].as_u64().is_some_and(|rate| rate > 0)
        )
    );
}

#[test]
fn pairs_of_different_settings_differ() {
    let (_server, port) = far_end();
    let arguments = [
        "diff",
        "127.0.0.1",
        "-p",
        &port,
        "--pairs",
        "6",
        "-t",
        "0.2",
    ];
    let flags = ["--", "-b", "4M", "--", "-b", "8M"];
    let output = run(&mut fullpipe(&[&arguments[..], &flags].concat()), 60);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8(output.stdout).unwrap();
    let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        flat.contains("6 pairs (") && flat.contains("can show"),
        "{text}"
    );
    assert!(
        flat.contains("B (-b 8M) moves") && flat.contains("A (-b 4M)"),
        "{text}"
    );
}

#[test]
fn a_server_that_goes_away_ends_it_with_the_error() {
    let port = free_port().to_string();
    let arguments = [
        "diff",
        "127.0.0.1",
        "-p",
        &port,
        "--pairs",
        "3",
        "-t",
        "0.2",
        "--json",
        "--",
        "--",
    ];
    let output = run(&mut fullpipe(&arguments), 30);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(document(&output)["error"]["exit_code"], 1);
}
