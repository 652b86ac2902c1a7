//! Completions and manual pages, held against the programs that read them, where these are installed.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::common::{fullpipe, run};

fn printed(arguments: &[&str]) -> String {
    let output = run(&mut fullpipe(arguments), 15);
    assert!(output.status.success() && output.stderr.is_empty(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn is_installed(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok()
}

fn assert_accepted(program: &str, arguments: &[&str], file: &Path) {
    if is_installed(program) {
        let output = run(Command::new(program).args(arguments).arg(file), 15);
        assert!(output.status.success(), "{program} {}: {output:?}", file.display());
    }
}

#[test]
fn shells_accept_their_completions() {
    let folder = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish"] {
        let script = printed(&["completions", shell]);
        assert!(script.contains("measure") && script.contains("no-cross-traffic"), "{shell}: {script}");
        let file = folder.path().join(shell);
        fs::write(&file, script).unwrap();
        assert_accepted(shell, &["-n"], &file);
    }
}

#[test]
fn every_command_has_a_page_that_groff_accepts() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().to_str().unwrap();
    assert_eq!(printed(&["man", "--dir", place]), "");
    let pages: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|page| page.unwrap().path()).collect();
    for page in ["fullpipe.1", "fullpipe-measure.1", "fullpipe-lab-grid.1", "fullpipe-iperf3.1", "fullpipe-man.1"] {
        assert!(pages.contains(&folder.path().join(page)), "{page} is not among {pages:?}");
    }
    for page in &pages {
        assert_accepted("groff", &["-man", "-Tutf8", "-z"], page);
    }
    assert!(!pages.contains(&folder.path().join("fullpipe-host-watch.1")), "a hidden command has no page");
}

/// Returns the lines of a page in which a flag or a value is named.
fn headers(page: &str) -> impl Iterator<Item = &str> {
    page.lines().zip(page.lines().skip(1)).filter(|(macro_line, _)| *macro_line == ".TP").map(|(_, header)| header)
}

#[test]
fn a_page_has_the_text_of_every_flag() {
    // 21 flags of `measure`, 21 of `diagnose` and 12 of `serve` had none: those that `-h` leaves out.
    let folder = tempfile::tempdir().unwrap();
    printed(&["man", "--dir", folder.path().to_str().unwrap()]);
    let mut flags = 0;
    for entry in fs::read_dir(folder.path()).unwrap() {
        let path = entry.unwrap().path();
        let page = fs::read_to_string(&path).unwrap();
        for header in headers(&page) {
            let text = page.split_once(header).unwrap().1.trim_start_matches('\n');
            assert!(!text.is_empty() && !text.starts_with('.'), "{}: {header} has no text", path.display());
            flags += 1;
        }
    }
    assert!(flags > 400, "{flags}");
}

#[test]
fn a_page_is_found_by_its_command() {
    assert!(printed(&["man", "lab", "up"]).contains(".TH fullpipe-lab-up 1"));
    assert!(printed(&["man", "iperf3"]).contains("\\-\\-get\\-server\\-output"));
    let output = run(&mut fullpipe(&["man", "nosuch"]), 15);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

#[test]
fn steps_are_reported_on_standard_error_only_if_asked_for() {
    let quiet = run(&mut fullpipe(&["calc", "--json", "--bandwidth", "1G", "--rtt", "10ms"]), 15);
    let verbose = run(&mut fullpipe(&["calc", "--json", "--bandwidth", "1G", "--rtt", "10ms", "-vv"]), 15);
    assert!(quiet.stderr.is_empty(), "{quiet:?}");
    let figures = |output: &std::process::Output| {
        let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        document["calculation"].clone()
    };
    assert_eq!(figures(&quiet), figures(&verbose));
}

#[test]
fn lists_of_verdicts_and_of_scenarios_have_80_columns() {
    for command in [&["explain"][..], &["lab", "list"]] {
        let list = printed(command);
        let wide: Vec<&str> = list.lines().filter(|line| line.chars().count() > 80).collect();
        assert!(wide.is_empty() && list.lines().count() > 10, "{wide:#?}");
    }
}
