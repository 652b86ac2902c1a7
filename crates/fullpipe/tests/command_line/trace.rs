//! `trace`: files of real tcpdump, and files that are none.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::oracles::{agrees_with_tcptrace, agrees_with_tshark, traced};
use crate::common::{fullpipe, run};
use fullpipe_testkit::{document, require, sentence};
use serde_json::Value;

const TIMEOUT: u64 = 30;
const USAGE: i32 = 2;

/// Measures over loopback in a network of its own, and keeps the packets in `capture.pcap` and what was measured in
/// `measured.json`.
const CAPTURED: &str = "
set -e
cd \"$1\"
ip link set lo up
\"$0\" serve >/dev/null 2>&1 &
tcpdump --interface lo --immediate-mode -n -s 96 -U -w capture.pcap tcp port 5201 2>said &
dump=$!
ready() { grep -q listening said && grep -q ':1451 .* 0A ' /proc/net/tcp6; }
n=0; until ready || [ $n -gt 200 ]; do sleep 0.05; n=$((n+1)); done
\"$0\" measure 127.0.0.1 -t 0.3 -b 20M --json >measured.json
kill -INT $dump
wait $dump
";

fn capture_into(folder: &Path) {
    let mut command = Command::new("unshare");
    command.args(["--net", "--mount-proc", "--pid", "--fork", "--kill-child", "sh", "-c", CAPTURED]);
    command.arg(env!("CARGO_BIN_EXE_fullpipe")).arg(folder);
    let output = run(&mut command, TIMEOUT);
    assert!(output.status.success(), "{output:?}");
}

fn capture_of(arguments: &[&str]) -> Value {
    let output = run(&mut fullpipe(&[&["trace", "--json"], arguments].concat()), TIMEOUT);
    assert!(output.status.success(), "{output:?}");
    document(&output)["capture"].clone()
}

#[test]
fn the_data_of_a_transfer_is_found_in_a_capture_of_tcpdump() {
    require!(Root, Unshare, Tcpdump);
    let folder = tempfile::tempdir().unwrap();
    capture_into(folder.path());
    let file = folder.path().join("capture.pcap");
    let name = file.to_str().unwrap();
    let capture = capture_of(&[name]);
    let measured: Value =
        serde_json::from_str(&fs::read_to_string(folder.path().join("measured.json")).unwrap()).unwrap();
    let sent = measured["measurement"]["summary"]["sent"].as_u64().unwrap();
    let flows = capture["flows"].as_array().unwrap();
    let data = flows.iter().filter_map(|flow| flow["ends"][0]["unique_bytes"].as_u64()).max().unwrap();
    // The cookie of 37 bytes goes ahead.
    assert_eq!(data, sent + 37, "{measured}");
    let captured = Command::new("tcpdump").args(["-nr", name]).stderr(Stdio::null()).output().unwrap();
    let lines = String::from_utf8_lossy(&captured.stdout).lines().count() as u64;
    assert_eq!((capture["packets"].as_u64(), capture["segments"].as_u64()), (Some(lines), Some(lines)));
    assert_eq!(flows.len(), 2, "control and data: {capture}");

    let packed = Command::new("gzip").arg("-k").arg(&file).status().unwrap();
    assert!(packed.success());
    let again = capture_of(&[&format!("{name}.gz")]);
    assert_eq!(again["flows"], capture["flows"]);

    let script = "exec \"$0\" trace - --json <\"$1\"";
    let piped = run(Command::new("sh").args(["-c", script, env!("CARGO_BIN_EXE_fullpipe"), name]), TIMEOUT);
    assert_eq!(document(&piped)["capture"]["flows"], capture["flows"]);
}

/// Leaves data unread for a while, so that the window closes, in a network of its own; and keeps the packets.
const CLOSED: &str = "
set -e
cd \"$0\"
ip link set lo up
tcpdump --interface lo --immediate-mode -n -s 96 -U -w capture.pcap tcp port 5201 2>said &
dump=$!
socat -u TCP-LISTEN:5201,reuseaddr,rcvbuf=65536 SYSTEM:'sleep 0.7; cat >/dev/null' &
ready() { grep -q listening said && grep -q ':1451 .* 0A ' /proc/net/tcp; }
n=0; until ready || [ $n -gt 200 ]; do sleep 0.05; n=$((n+1)); done
head -c 3000000 /dev/zero | socat -u - TCP:127.0.0.1:5201
sleep 1
kill -INT $dump
wait $dump
";

#[test]
fn other_programs_read_the_same_from_a_capture_of_tcpdump() {
    require!(Root, Unshare, Tcpdump, Tshark, Tcptrace);
    let folder = tempfile::tempdir().unwrap();
    capture_into(folder.path());
    let file = folder.path().join("capture.pcap");
    agrees_with_tshark(&file);
    agrees_with_tcptrace(&file);
}

#[test]
fn other_programs_count_the_same_windows_of_zero() {
    require!(Root, Unshare, Tcpdump, Socat, Tshark, Tcptrace);
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new("unshare");
    command.args(["--net", "--mount-proc", "--pid", "--fork", "--kill-child", "sh", "-c", CLOSED]).arg(folder.path());
    let output = run(&mut command, TIMEOUT);
    assert!(output.status.success(), "{output:?}");
    let file = folder.path().join("capture.pcap");
    let closed = traced(&[&file])["flows"][0]["ends"][1]["window"]["zero"].as_u64().unwrap();
    assert!(closed > 0, "the window closed");
    agrees_with_tshark(&file);
    agrees_with_tcptrace(&file);
}

#[test]
fn the_text_fits_eighty_columns_and_names_each_connection() {
    require!(Root, Unshare, Tcpdump);
    let folder = tempfile::tempdir().unwrap();
    capture_into(folder.path());
    let file = folder.path().join("capture.pcap");
    let output = run(&mut fullpipe(&["trace", file.to_str().unwrap()]), TIMEOUT);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("2 connections") && text.contains(" > 127.0.0.1:5201"), "{text}");
    assert!(text.contains("from the first SYN on") && text.contains("window"), "{text}");
    // The folder's name alone may be longer.
    assert!(text.lines().skip(2).all(|line| line.chars().count() <= 80), "{text}");
}

#[test]
fn what_is_no_capture_gets_one_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("notes.txt");
    fs::write(&file, "no packets at all, only words\n").unwrap();
    for name in [file.to_str().unwrap(), "/nonexistent/capture.pcap"] {
        let output = run(&mut fullpipe(&["trace", name]), TIMEOUT);
        assert!(sentence(&output, USAGE).contains(name), "{output:?}");
    }
    let output = run(&mut fullpipe(&["trace", "-"]), TIMEOUT);
    assert!(sentence(&output, USAGE).contains("standard input"), "{output:?}");
}
