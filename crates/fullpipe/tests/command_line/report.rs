//! Results as pages with charts.

use std::fs;
use std::process::Output;

use crate::common::{fullpipe, run};
use fullpipe_testkit::sentence;

const SIMULATE: [&str; 6] = ["simulate", "--path", "rate=20M,rtt=20ms", "-t", "2", "--html"];

fn report(arguments: &[&str]) -> Output {
    run(fullpipe(&["report"]).args(arguments), 30)
}

#[test]
fn a_result_becomes_the_same_page_at_once_and_from_its_document() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (page, json, again) = (file("page.html"), file("result.json"), file("again.html"));
    let done = run(fullpipe(&SIMULATE).args([&page, "--json"]), 30);
    assert!(done.status.success(), "{done:?}");
    fs::write(&json, &done.stdout).unwrap();
    let html = fs::read_to_string(&page).unwrap();
    assert!(html.contains("limited by the path&#39;s capacity") && html.contains("<svg"), "{html}");
    let made = report(&[&json, "--html", &again]);
    assert_eq!((made.status.code(), made.stdout), (Some(0), format!("{again}\n").into_bytes()));
    // The file has a name only there.
    let named = fs::read_to_string(&again).unwrap();
    assert_eq!(named.replace(&format!("<span>{json}</span>"), ""), html);
    let text = String::from_utf8(report(&[&json]).stdout).unwrap();
    assert!(text.contains("limited by the path's capacity") && text.contains("rate, Mbit/s"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

#[test]
fn a_file_that_is_no_result_is_stated_in_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("wrong.json");
    let name = file.to_str().unwrap();
    for (content, why) in [
        ("", "is no JSON document of fullpipe"),
        ("{\"schema\":2}", "is no JSON document of fullpipe"),
        ("{\"schema\":2,\"kind\":\"error\"}", "has no result that a page can show"),
    ] {
        fs::write(&file, content).unwrap();
        let output = report(&[name]);
        assert!(sentence(&output, 2).contains(why), "{output:?}");
    }
    assert!(sentence(&report(&["/nonexistent.json"]), 2).starts_with("cannot read /nonexistent.json"));
}

#[test]
fn a_page_that_cannot_be_written_fails_the_command_but_not_its_result() {
    let done = run(fullpipe(&SIMULATE).arg("/nonexistent/page.html"), 30);
    assert!(sentence(&done, 1).contains("cannot write the page /nonexistent/page.html"), "{done:?}");
    assert!(String::from_utf8_lossy(&done.stdout).contains("Mbit/s"), "{done:?}");
}
