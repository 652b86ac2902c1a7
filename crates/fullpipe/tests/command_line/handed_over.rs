//! `fullpipe diagnose --from`: listings, documents and captures that people hand over.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Output, Stdio};

use crate::common::{fullpipe, run};
use fullpipe_testkit::{assert_says, document, sentence};
use serde_json::Value;

const TIMEOUT: u64 = 30;
const USAGE: i32 = 2;

/// Returns the path of a listing that was recorded over a path of 50 Mbit/s and 40 ms.
fn recorded(name: &str) -> String {
    format!(
        "{}/../observe/src/listing/recorded/{name}.txt",
        env!("CARGO_MANIFEST_DIR")
    )
}

fn file_of(name: &str, content: &[u8]) -> String {
    let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::write(&file, content).unwrap();
    file.to_str().unwrap().to_owned()
}

fn diagnosed(arguments: &[&str]) -> Output {
    run(&mut fullpipe(&[&["diagnose"], arguments].concat()), TIMEOUT)
}

fn refused(name: &str, content: &[u8]) -> String {
    let file = file_of(name, content);
    let said = sentence(&diagnosed(&["--from", &file]), USAGE);
    assert!(said.contains(&file), "{said}");
    said
}

/// Returns kind, cause and confidence of the largest transfer.
fn verdict(output: &Output) -> (String, String, f64) {
    let report = document(output);
    let verdict = &report["diagnosis"]["transfers"][0]["verdict"];
    let text = |key: &str| verdict[key].as_str().unwrap().to_owned();
    (
        text("kind"),
        text("cause"),
        verdict["confidence"].as_f64().unwrap(),
    )
}

#[test]
fn nonsense_is_refused_in_one_sentence() {
    for (name, content, says) in [
        (
            "empty",
            "",
            "neither a listing of `ss -tinmoe`, a capture, or a JSON document",
        ),
        ("prose", "it is slow, please help\n", "neither a listing"),
        ("object", "{\"a\":1}", "no JSON document of fullpipe"),
        ("broken", "{\"schema\":2,", "no JSON document of fullpipe"),
        (
            "no-figures",
            "ESTAB 0 0 10.0.0.1:5 10.0.0.2:6\n",
            "no figures of TCP",
        ),
        (
            "nothing-moved",
            "ESTAB 0 0 10.0.0.1:5 10.0.0.2:6\n\t cubic rto:200 mss:1448 cwnd:10 segs_out:2\n",
            "has moved data",
        ),
    ] {
        assert_says(&refused(name, content.as_bytes()), &[says]);
    }
    refused("binary", &[0, 1, 2, 3]);
    refused("latin", b"ESTAB 0 0 \xe4");
    let table = "{\"schema\":2,\"kind\":\"table\",\"table\":[]}";
    assert_says(
        &refused("table", table.as_bytes()),
        &["without a transfer to judge"],
    );
    let missing = sentence(&diagnosed(&["--from", "/nonexistent"]), USAGE);
    assert_says(&missing, &["cannot read /nonexistent", "No such file"]);
}

#[test]
fn one_listing_names_the_limit_and_the_command_that_would_show_more() {
    let file = recorded("sndbuf");
    let output = diagnosed(&["--from", &file]);
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    assert!(
        output.status.success() && output.stderr.is_empty(),
        "{output:?}"
    );
    assert_says(
        &text,
        &[
            "send buffer is full: it holds 64 KiB",
            "send buffer full 75 %",
            "there was one look at it",
            "ss -tinmoe dst 198.18.0.2",
            "fullpipe diagnose --from five",
        ],
    );
    let is_narrow = |line: &str| line.chars().count() <= 80 || line.contains("ss -tinmoe");
    assert!(text.lines().all(is_narrow), "{text}");
    let (kind, _, confidence) = verdict(&diagnosed(&["--json", "--from", &file]));
    assert_eq!(kind, "send-buffer");
    assert!(confidence < 0.85, "{confidence}");
}

#[test]
fn more_listings_say_more_and_come_from_standard_input_as_well() {
    let (kind, cause, five) = verdict(&diagnosed(&["--json", "--from", &recorded("loss-five")]));
    assert_eq!((&kind[..], &cause[..]), ("loss", "random"));
    let mut command = fullpipe(&["diagnose", "--json", "--from", "-"]);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let text = fs::read(recorded("loss-five")).unwrap();
    child.stdin.take().unwrap().write_all(&text).unwrap();
    let again = verdict(&child.wait_with_output().unwrap());
    assert_eq!(again, (kind, cause, five));
}

/// Escape sequences of a name stand in the report as text.
#[test]
fn a_listing_commands_no_terminal() {
    let text = fs::read_to_string(recorded("sndbuf")).unwrap();
    let hostile = text.replace(
        " timer:(on",
        " users:((\"\u{1b}]0;owned\u{7}\u{202e}\",pid=7,fd=5)) timer:(on",
    );
    assert_ne!(hostile, text);
    let file = file_of("hostile", hostile.as_bytes());
    let output = diagnosed(&["--from", &file]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_says(&text, &["\\u{1b}]0;owned\\u{7}\\u{202e} (process 7) sends"]);
    assert!(!text.contains(['\u{1b}', '\u{7}', '\u{202e}']), "{text:?}");
}

#[test]
fn unknown_words_and_lines_are_passed_over_and_counted() {
    let text = fs::read_to_string(recorded("sndbuf")).unwrap();
    let file = file_of(
        "unknown",
        format!("$ ss -tinmoe\n{} later:1 so:2\n", text.trim_end()).as_bytes(),
    );
    let output = diagnosed(&["--json", "--from", &file]);
    assert_eq!(verdict(&output).0, "send-buffer");
    let notice = String::from_utf8(output.stderr).unwrap();
    assert_says(&notice, &["passed over: 2 words, 1 line"]);
}

#[test]
fn documents_of_fullpipe_are_judged_again() {
    let demo = run(&mut fullpipe(&["demo", "--virtual", "--json"]), TIMEOUT);
    let stated = document(&demo);
    let file = file_of("demo.json", &demo.stdout);
    let output = diagnosed(&["--json", "--from", &file]);
    let report = document(&output);
    let found = &report["diagnosis"]["transfers"][0];
    assert_eq!(
        found["verdict"]["kind"],
        stated["experiment"]["verdict"]["kind"]
    );
    assert_eq!(found["transfer"], Value::Null);
    // What this printed can be handed over in its turn.
    let file = file_of("again.json", &output.stdout);
    let again = document(&diagnosed(&["--json", "--from", &file]));
    assert_eq!(again["diagnosis"], report["diagnosis"]);
}
