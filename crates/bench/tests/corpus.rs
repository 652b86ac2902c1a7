//! The check of a folder of captures, as people run it.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use fullpipe_testkit::Running;

const TIMEOUT: Duration = Duration::from_mins(1);

fn corpus(folder: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fullpipe-bench"));
    command.args(["corpus", "--verdicts-only"]).arg(folder);
    Running::start(&mut command).finish(TIMEOUT)
}

#[test]
fn a_folder_that_cannot_be_read_is_named() {
    let output = corpus("/nonexistent".as_ref());
    assert_eq!(output.status.code(), Some(3));
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("/nonexistent"),
        "{output:?}"
    );
}

#[test]
fn files_in_all_folders_are_read_and_those_that_are_no_captures_are_no_finding() {
    let folder = tempfile::tempdir().unwrap();
    let inner = folder.path().join("inner");
    fs::create_dir(&inner).unwrap();
    fs::write(folder.path().join("README"), "no capture").unwrap();
    // A header of pcap and no packet.
    let header = [
        0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 1, 0, 0, 0,
    ];
    fs::write(inner.join("empty.pcap"), header).unwrap();
    let output = corpus(folder.path());
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("2 files, 1 captures, 0 transfers"), "{said}");
}
