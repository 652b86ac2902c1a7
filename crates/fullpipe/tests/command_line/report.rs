//! Results as pages with charts.

use std::fs;
use std::process::Output;

use crate::common::{fullpipe, run};
use fullpipe_testkit::sentence;

const SIMULATE: [&str; 6] = [
    "simulate",
    "--path",
    "rate=20M,rtt=20ms",
    "-t",
    "2",
    "--html",
];

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
    assert!(
        html.contains("limited by the path&#39;s capacity") && html.contains("<svg"),
        "{html}"
    );
    let made = report(&[&json, "--html", &again]);
    assert_eq!(
        (made.status.code(), made.stdout),
        (Some(0), format!("{again}\n").into_bytes())
    );
    // The file has a name only there.
    let named = fs::read_to_string(&again).unwrap();
    assert_eq!(named.replace(&format!("<span>{json}</span>"), ""), html);
    let text = String::from_utf8(report(&[&json]).stdout).unwrap();
    assert!(
        text.contains("limited by the path's capacity") && text.contains("rate, Mbit/s"),
        "{text}"
    );
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
}

#[test]
fn a_file_that_is_no_result_is_stated_in_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("wrong.json");
    let name = file.to_str().unwrap();
    for (content, why) in [
        ("", "is no JSON document of fullpipe"),
        ("{\"schema\":2}", "is no JSON document of fullpipe"),
        (
            "{\"schema\":2,\"kind\":\"error\"}",
            "has no result that a page can show",
        ),
    ] {
        fs::write(&file, content).unwrap();
        let output = report(&[name]);
        assert!(sentence(&output, 2).contains(why), "{output:?}");
    }
    assert!(
        sentence(&report(&["/nonexistent.json"]), 2).starts_with("cannot read /nonexistent.json")
    );
}

#[test]
fn a_page_that_cannot_be_written_fails_the_command_but_not_its_result() {
    let done = run(fullpipe(&SIMULATE).arg("/nonexistent/page.html"), 30);
    assert!(
        sentence(&done, 1).contains("cannot write the page /nonexistent/page.html"),
        "{done:?}"
    );
    assert!(
        String::from_utf8_lossy(&done.stdout).contains("Mbit/s"),
        "{done:?}"
    );
}

/// A user with an archive of two measurements of iperf3 and a simulation that cannot be kept.
struct Archive(tempfile::TempDir);

impl Archive {
    fn new() -> Self {
        let archive = Self(tempfile::tempdir().unwrap());
        let files = ["iperf3-tcp.json", "iperf3-udp.json"]
            .map(|name| format!("{}/../store/tests/files/{name}", env!("CARGO_MANIFEST_DIR")));
        let imported = archive.run(&["store", "import", &files[0], &files[1]]);
        assert!(imported.status.success(), "{imported:?}");
        archive
    }

    fn run(&self, arguments: &[&str]) -> Output {
        run(
            fullpipe(arguments)
                .env("XDG_DATA_HOME", self.0.path())
                .env_remove("FULLPIPE_STORE"),
            30,
        )
    }

    fn page(&self, arguments: &[&str]) -> String {
        let file = self.0.path().join("page.html");
        let done = self.run(&[arguments, &["--html", file.to_str().unwrap()]].concat());
        assert!(done.status.success(), "{done:?}");
        fs::read_to_string(file).unwrap()
    }
}

#[test]
fn documents_of_the_archive_become_a_page_and_rows() {
    let archive = Archive::new();
    let page = archive.page(&["report", "--since", "2000-01-01"]);
    assert!(
        page.contains("archive, 2 documents") && page.contains("Spread of the rates"),
        "{page}"
    );
    let rows = archive.run(&["report", "--since", "2000-01-01", "--csv"]);
    let exported = archive.run(&["store", "export"]);
    assert_eq!(
        (rows.status.code(), rows.stdout),
        (Some(0), exported.stdout)
    );
    let lines = archive.run(&["report", "--since", "2000-01-01", "--json-lines"]);
    let lines = String::from_utf8(lines.stdout).unwrap();
    assert_eq!(
        lines
            .lines()
            .filter(|line| line.contains("\"kind\":\"stored\""))
            .count(),
        2,
        "{lines}"
    );
    let id = lines
        .split("\"id\":\"")
        .nth(1)
        .unwrap()
        .split('"')
        .next()
        .unwrap();
    assert!(
        archive
            .page(&["report", id])
            .contains("archive, 1 document"),
        "one of two"
    );
    assert!(
        sentence(&archive.run(&["report", "abcdef01"]), 2).contains("abcdef01"),
        "no such document"
    );
    let none = archive.run(&["report", "--since", "2100-01-01"]);
    assert!(
        String::from_utf8_lossy(&none.stdout).starts_with("No run has a rate"),
        "{none:?}"
    );
}

#[test]
fn an_archive_that_is_not_there_and_a_result_without_runs_are_stated() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("none.db");
    let missing = report(&["--since", "7d", "--store", place.to_str().unwrap()]);
    assert!(sentence(&missing, 2).contains("none.db"), "{missing:?}");
    let file = folder.path().join("calc.json");
    let calculated = run(
        &mut fullpipe(&["calc", "--bandwidth", "1G", "--rtt", "1ms", "--json"]),
        15,
    );
    fs::write(&file, calculated.stdout).unwrap();
    let output = report(&[file.to_str().unwrap(), "--csv"]);
    assert!(
        sentence(&output, 2).contains("has no run whose figures could be printed"),
        "{output:?}"
    );
    assert_eq!(report(&[]).status.code(), Some(2));
}

#[test]
fn a_history_and_a_difference_have_pages() {
    let archive = Archive::new();
    let page = archive.page(&["history", "192.0.2.99"]);
    assert!(
        page.contains("No runs towards 192.0.2.99 are kept"),
        "{page}"
    );
    let folder = archive.0.path();
    let [one, other] =
        ["one.json", "other.json"].map(|name| folder.join(name).to_str().unwrap().to_owned());
    for (file, seed) in [(&one, "1"), (&other, "2")] {
        let virtual_demo = [
            "demo",
            "--virtual",
            "-t",
            "2",
            "--json",
            "--path",
            "rate=20M,rtt=20ms",
            "--seed",
            seed,
        ];
        fs::write(file, archive.run(&virtual_demo).stdout).unwrap();
    }
    let page = archive.page(&["diff", &one, &other, "--anyway"]);
    assert!(
        page.contains("fullpipe diff") && page.contains("The runs of each side"),
        "{page}"
    );
}
