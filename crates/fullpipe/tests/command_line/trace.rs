//! `trace`: files of real tcpdump, and files that are none.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::common::oracles::{agrees_with_tcptrace, agrees_with_tshark, traced};
use crate::common::{fullpipe, run};
use fullpipe_testkit::{Running, document, require, sentence, within};
use serde_json::Value;

const TIMEOUT: u64 = 30;
const USAGE: i32 = 2;
const FAILED: i32 = 1;

/// Measures over loopback in a network of its own, and keeps the packets in `capture.pcap` and what
/// was measured in `measured.json`.
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

/// Measures between two networks that a pair of devices joins, while tcpdump and `trace` capture at
/// the sender. The address of the far end is the second argument. Ctrl-C ends both.
const CAPTURED_LIVE: &str = "
set -e
cd \"$1\"
unshare --net sh -c 'until ip link show d1 >/dev/null 2>&1; do sleep 0.02; done
    ip address add 10.9.0.2/24 dev d1; ip address add fd09::2/64 dev d1 nodad; ip link set d1 up
    exec \"$0\" serve' \"$0\" >/dev/null 2>&1 &
far=$!
until [ \"$(readlink /proc/$far/ns/net)\" != \"$(readlink /proc/self/ns/net)\" ]; do sleep 0.02; done
ip link add d0 type veth peer name d1 netns $far
ip address add 10.9.0.1/24 dev d0; ip address add fd09::1/64 dev d0 nodad; ip link set d0 up
tcpdump --interface d0 --immediate-mode -n -s 128 -U --time-stamp-precision nano -w capture.pcap tcp 2>said &
dump=$!
\"$0\" trace --interface d0 --json >live.json 2>notice &
live=$!
ready() { grep -q listening said && grep -q capturing notice && grep -q ':1451 .* 0A ' /proc/$far/net/tcp6; }
n=0; until ready || [ $n -gt 200 ]; do sleep 0.05; n=$((n+1)); done
\"$0\" measure \"$2\" -t 0.3 -b 200M --json >measured.json
sleep 0.2
kill -INT $dump $live
wait $dump; wait $live
";

fn capture_into(folder: &Path) {
    let mut command = Command::new("unshare");
    command.args([
        "--net",
        "--mount-proc",
        "--pid",
        "--fork",
        "--kill-child",
        "sh",
        "-c",
        CAPTURED,
    ]);
    command.arg(env!("CARGO_BIN_EXE_fullpipe")).arg(folder);
    let output = run(&mut command, TIMEOUT);
    assert!(output.status.success(), "{output:?}");
}

fn capture_of(arguments: &[&str]) -> Value {
    let output = run(
        &mut fullpipe(&[&["trace", "--json"], arguments].concat()),
        TIMEOUT,
    );
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
        serde_json::from_str(&fs::read_to_string(folder.path().join("measured.json")).unwrap())
            .unwrap();
    let written = measured["measurement"]["run"]["written"].as_u64().unwrap();
    let flows = capture["flows"].as_array().unwrap();
    let data = flows
        .iter()
        .filter_map(|flow| flow["ends"][0]["unique_bytes"].as_u64())
        .max()
        .unwrap();
    // The cookie of 37 bytes goes ahead. The summary lacks a write after the last sample.
    assert_eq!(data, written + 37, "{measured}");
    let captured = Command::new("tcpdump")
        .args(["-nr", name])
        .stderr(Stdio::null())
        .output()
        .unwrap();
    let lines = String::from_utf8_lossy(&captured.stdout).lines().count() as u64;
    assert_eq!(
        (capture["packets"].as_u64(), capture["segments"].as_u64()),
        (Some(lines), Some(lines))
    );
    assert_eq!(flows.len(), 2, "control and data: {capture}");

    let packed = Command::new("gzip").arg("-k").arg(&file).status().unwrap();
    assert!(packed.success());
    let again = capture_of(&[&format!("{name}.gz")]);
    assert_eq!(again["flows"], capture["flows"]);

    let script = "exec \"$0\" trace - --json <\"$1\"";
    let piped = run(
        Command::new("sh").args(["-c", script, env!("CARGO_BIN_EXE_fullpipe"), name]),
        TIMEOUT,
    );
    assert_eq!(document(&piped)["capture"]["flows"], capture["flows"]);
}

/// Leaves data unread for a while, so that the window closes, in a network of its own; and keeps
/// the packets.
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
    command
        .args([
            "--net",
            "--mount-proc",
            "--pid",
            "--fork",
            "--kill-child",
            "sh",
            "-c",
            CLOSED,
        ])
        .arg(folder.path());
    let output = run(&mut command, TIMEOUT);
    assert!(output.status.success(), "{output:?}");
    let file = folder.path().join("capture.pcap");
    let closed = traced(&[&file])["flows"][0]["ends"][1]["window"]["zero"]
        .as_u64()
        .unwrap();
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
    assert!(
        text.contains("Course: ") && text.contains("  in flight  "),
        "{text}"
    );
    assert!(
        text.contains("2 connections") && text.contains(" > 127.0.0.1:5201"),
        "{text}"
    );
    assert!(
        text.contains("from the first SYN on") && text.contains("window"),
        "{text}"
    );
    // The folder's name alone may be longer.
    assert!(
        text.lines().skip(2).all(|line| line.chars().count() <= 80),
        "{text}"
    );
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
    assert!(
        sentence(&output, USAGE).contains("standard input"),
        "{output:?}"
    );
}

#[test]
fn a_damaged_capture_gives_one_document_with_what_was_before() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("damaged.pcap");
    let header = [
        [0xD4, 0xC3, 0xB2, 0xA1, 2, 0, 4, 0],
        [0; 8],
        [0, 0, 4, 0, 101, 0, 0, 0],
    ]
    .concat();
    fs::write(&file, [header, vec![0xFF; 40]].concat()).unwrap();
    let output = run(
        &mut fullpipe(&["trace", "--json", file.to_str().unwrap()]),
        TIMEOUT,
    );
    assert_eq!(output.status.code(), Some(FAILED));
    let document = serde_json::from_slice::<Value>(&output.stdout).unwrap();
    assert!(
        document["error"]["message"]
            .as_str()
            .unwrap()
            .contains("is damaged at byte 24"),
        "{document}"
    );
    assert_eq!(document["capture"]["packets"], 0);
}

#[test]
fn a_redacted_capture_of_tcpdump_has_the_same_figures() {
    require!(Root, Unshare, Tcpdump);
    let folder = tempfile::tempdir().unwrap();
    capture_into(folder.path());
    let [file, redacted] = ["capture.pcap", "redacted.pcap"].map(|name| folder.path().join(name));
    let [file, redacted] = [&file, &redacted].map(|path| path.to_str().unwrap());
    let before = capture_of(&[file, "--redact", redacted]);
    assert_eq!(before["redacted"]["segments"], before["segments"]);
    let after = capture_of(&[redacted]);
    // The addresses are those of loopback, which stay.
    assert_eq!(
        (&after["flows"], &after["transfers"]),
        (&before["flows"], &before["transfers"])
    );
    let listed = |name| {
        Command::new("tcpdump")
            .args(["-vnr", name])
            .output()
            .unwrap()
    };
    let (out, listing) = (listed(redacted), listed(file));
    let lines = |output: &std::process::Output| {
        String::from_utf8_lossy(&output.stdout)
            .matches("Flags [")
            .count()
    };
    assert_eq!(lines(&out), lines(&listing));
    assert!(
        !String::from_utf8_lossy(&out.stdout).contains("bad cksum"),
        "IPv4's checksums are right"
    );

    let again = run(
        &mut fullpipe(&["trace", file, "--redact", redacted]),
        TIMEOUT,
    );
    assert!(sentence(&again, USAGE).contains("File exists"), "{again:?}");
    let full = run(
        &mut fullpipe(&["trace", file, "--redact", "/dev/full"]),
        TIMEOUT,
    );
    assert!(
        String::from_utf8_lossy(&full.stderr).contains("cannot write /dev/full: No space left"),
        "{full:?}"
    );
    assert_eq!(full.status.code(), Some(1));
    let two = run(
        &mut fullpipe(&["trace", file, file, "--redact", "x.pcap"]),
        TIMEOUT,
    );
    assert!(sentence(&two, USAGE).contains("--redact"), "{two:?}");
}

/// The figures of a flow that do not depend on times, as those of windows do that are counted since
/// the time had doubled.
fn counts(capture: &Value) -> Vec<Value> {
    // Data that leaves at one processor while an acknowledgement comes at another may be before or
    // behind it at each socket, and so what was in flight before it.
    let times = ["rtt", "longest_pause", "rate", "stalls", "flight"];
    let of_late_windows = ["settled", "settled_share"];
    let forget = |of: &mut Value, names: &[&str]| {
        let of = of.as_object_mut();
        of.unwrap().retain(|name, _| !names.contains(&&**name));
    };
    let ends = |flow: &Value| {
        let mut ends = flow["ends"].clone();
        for end in ends.as_array_mut().unwrap() {
            forget(end, &times);
            forget(&mut end["window"], &of_late_windows);
        }
        ends
    };
    capture["flows"]
        .as_array()
        .unwrap()
        .iter()
        .map(ends)
        .collect()
}

#[test]
fn a_live_capture_has_the_figures_of_one_of_tcpdump() {
    require!(Root, Unshare, Tcpdump);
    for far in ["10.9.0.2", "fd09::2"] {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new("unshare");
        command.args([
            "--net",
            "--mount-proc",
            "--pid",
            "--fork",
            "--kill-child",
            "sh",
            "-c",
            CAPTURED_LIVE,
        ]);
        let output = run(
            command
                .arg(env!("CARGO_BIN_EXE_fullpipe"))
                .arg(folder.path())
                .arg(far),
            TIMEOUT,
        );
        assert!(output.status.success(), "{output:?}");
        let live: Value =
            serde_json::from_slice(&fs::read(folder.path().join("live.json")).unwrap()).unwrap();
        let live = &live["capture"];
        let dumped = capture_of(&[folder.path().join("capture.pcap").to_str().unwrap()]);
        assert_eq!(
            (&live["name"], &live["format"], &live["dropped"]),
            (&"d0".into(), &"live".into(), &0.into())
        );
        assert_eq!(counts(live), counts(&dumped));
        assert_eq!(
            (&live["packets"], &live["notes"]),
            (&dumped["packets"], &dumped["notes"])
        );
        assert!(live["packets"].as_u64().unwrap() > 100, "{live}");
        // Each socket has stamps of its own.
        let [of_live, of_dumped] =
            [live, &dumped].map(|capture| capture["duration"].as_f64().unwrap());
        assert!((of_live - of_dumped).abs() < 1e-3, "{of_live} {of_dumped}");
    }
}

#[test]
fn a_device_that_is_not_there_or_goes_away_gets_one_sentence() {
    require!(Root, Unshare);
    let none = run(
        &mut fullpipe(&["trace", "--interface", "nowhere0"]),
        TIMEOUT,
    );
    assert!(
        sentence(&none, USAGE).contains("cannot capture on nowhere0: No such device"),
        "{none:?}"
    );
    let script = "ip link add d0 type veth peer name d1; ip link set d0 up; ip link set d1 up
        (until grep -q ' 0003 ' /proc/net/packet; do sleep 0.02; done; ip link delete d0) &
        \"$0\" trace --interface d0 --quiet";
    let mut command = Command::new("unshare");
    command.args([
        "--net",
        "--mount-proc",
        "--pid",
        "--fork",
        "--kill-child",
        "sh",
        "-c",
        script,
    ]);
    let gone = run(command.arg(env!("CARGO_BIN_EXE_fullpipe")), TIMEOUT);
    assert!(
        String::from_utf8_lossy(&gone.stderr)
            .contains("cannot read d0: the device is down or away"),
        "{gone:?}"
    );
    assert_eq!(
        gone.status.code(),
        Some(1),
        "what was captured is printed before"
    );
}

#[test]
fn a_file_whose_name_has_escapes_commands_no_terminal() {
    // The header of a pcap file of Ethernet without a packet.
    let header = [
        0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 1, 0, 0, 0,
    ];
    let folder = tempfile::tempdir().unwrap();
    let names = ["a\u{1b}[31m\n.pcap", "b\u{1b}[31m\n.pcap"].map(|name| folder.path().join(name));
    for name in &names {
        fs::write(name, header).unwrap();
    }
    for files in [&names[..1], &names[..]] {
        let output = run(fullpipe(&["trace"]).args(files), TIMEOUT);
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(
            text.contains("\\u{1b}[31m\\n.pcap") && !text.contains('\u{1b}'),
            "{text}"
        );
    }
}

#[test]
fn a_capture_without_permission_names_what_is_missing() {
    require!(Root);
    let mut command = Command::new("setpriv");
    command.args([
        "--reuid",
        "65534",
        "--clear-groups",
        "--inh-caps=-all",
        "--bounding-set=-all",
    ]);
    command.args([env!("CARGO_BIN_EXE_fullpipe"), "trace", "--interface", "lo"]);
    let refused = run(&mut command, TIMEOUT);
    let said = sentence(&refused, 3);
    assert!(
        said.contains("CAP_NET_RAW") && said.contains("tcpdump"),
        "{said}"
    );
}

/// Runs a script in a network of its own with a server over loopback. The first argument is the
/// folder.
fn with_server(script: &str, folder: &Path) -> std::process::Output {
    const SERVER: &str = "cd \"$1\"; ip link set lo up; \"$0\" serve >/dev/null 2>&1 &
        until grep -q ':1451 .* 0A ' /proc/net/tcp6; do sleep 0.02; done\n";
    let mut command = Command::new("unshare");
    command.args([
        "--net",
        "--mount-proc",
        "--pid",
        "--fork",
        "--kill-child",
        "sh",
        "-c",
    ]);
    run(
        command
            .arg(format!("{SERVER}{script}"))
            .arg(env!("CARGO_BIN_EXE_fullpipe"))
            .arg(folder),
        TIMEOUT,
    )
}

/// Returns true if two verdicts name one limit, or one of them the other's among its candidates.
fn agree(one: &Value, other: &Value) -> bool {
    let names = |verdict: &Value, kind: &Value| {
        let candidates = verdict["candidates"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        verdict["kind"] == *kind
            || candidates
                .iter()
                .any(|candidate| candidate["kind"] == *kind)
    };
    names(one, &other["kind"]) || names(other, &one["kind"])
}

#[test]
fn a_test_keeps_a_capture_of_itself_and_judges_it() {
    require!(Root, Unshare);
    let folder = tempfile::tempdir().unwrap();
    let script = "\"$0\" measure 127.0.0.1 -t 1 -b 20M --capture own.pcap --json";
    let measured = document(&with_server(script, folder.path()))["measurement"].clone();
    let capture = &measured["capture"];
    assert_eq!(
        (&capture["dropped"], &capture["left_out"]),
        (&0.into(), &0.into())
    );
    assert_eq!(capture["limit"]["basis"], "capture");
    assert_eq!(
        capture["agrees"],
        agree(&capture["limit"], &measured["limit"]),
        "{capture}"
    );
    let kept = capture_of(&[folder.path().join("own.pcap").to_str().unwrap()]);
    assert_eq!(kept["packets"], capture["packets"]);
    let ends = |flow: &Value| {
        [0, 1].map(|end| {
            flow["ends"][end]["address"]
                .as_str()
                .unwrap()
                .ends_with(":5201")
        })
    };
    assert!(
        kept["flows"]
            .as_array()
            .unwrap()
            .iter()
            .all(|flow| ends(flow).contains(&true)),
        "{kept}"
    );

    let again = with_server(
        "\"$0\" measure 127.0.0.1 -t 1 --capture own.pcap",
        folder.path(),
    );
    assert!(
        sentence(&again, USAGE).contains("cannot write own.pcap: File exists"),
        "{again:?}"
    );
    let nobody = with_server(
        "\"$0\" measure 127.0.0.1:9 --capture none.pcap",
        folder.path(),
    );
    assert_eq!(nobody.status.code(), Some(1));
    assert!(
        !folder.path().join("none.pcap").exists(),
        "a test that did not begin leaves no file"
    );
}

#[test]
fn the_settings_of_the_hosts_go_into_the_verdict_on_a_capture() {
    require!(Root, Unshare);
    let folder = tempfile::tempdir().unwrap();
    let script = "\"$0\" measure 127.0.0.1 -t 0.2 -b 20M --capture own.pcap >/dev/null
        \"$0\" host show --json >host.json; echo '{}' >other.json
        \"$0\" trace own.pcap --sender-host host.json --receiver-host host.json --json";
    let capture = document(&with_server(script, folder.path()))["capture"].clone();
    let evidence = &capture["transfers"][0]["diagnosis"]["evidence"];
    let shown =
        document(&run(&mut fullpipe(&["host", "show", "--json"]), TIMEOUT))["host_settings"]
            .clone();
    for end in ["sender", "receiver"] {
        let largest = evidence[end]["tcp_rmem"]["max"]
            .as_u64()
            .unwrap()
            .to_string();
        let text = shown["sysctls"]["net.ipv4.tcp_rmem"].as_str().unwrap();
        assert_eq!(text.split(' ').next_back(), Some(largest.as_str()));
    }
    for (file, reason) in [
        ("other.json", "`fullpipe host show --json`"),
        ("none.json", "No such file"),
    ] {
        let script = format!("\"$0\" trace own.pcap --receiver-host {file}");
        let said = sentence(&with_server(&script, folder.path()), USAGE);
        assert!(said.contains(file) && said.contains(reason), "{said}");
    }
}

#[test]
fn a_watched_process_is_captured_and_judged_by_both_views() {
    require!(Root, Unshare);
    let folder = tempfile::tempdir().unwrap();
    let script = "\"$0\" measure 127.0.0.1 -t 4 -b 20M >/dev/null & watched=$!
        until [ $(grep -c ':1451 01 ' /proc/net/tcp) -ge 2 ]; do sleep 0.05; done; sleep 0.3
        \"$0\" diagnose --pid $watched -t 1 --capture own.pcap --json; wait $watched";
    let report = document(&with_server(script, folder.path()))["diagnosis"].clone();
    let capture = &report["capture"];
    assert!(capture["packets"].as_u64().unwrap() > 100, "{capture}");
    assert_eq!(capture["limit"]["basis"], "capture");
    assert_eq!(
        capture["agrees"],
        agree(&capture["limit"], &report["transfers"][0]["verdict"]),
        "{capture}"
    );

    let unknown = run(
        &mut fullpipe(&["diagnose", "--capture", "own.pcap", "--", "true"]),
        TIMEOUT,
    );
    assert!(
        sentence(&unknown, USAGE).contains("--capture"),
        "{unknown:?}"
    );
}

/// Returns a pcap file with one segment over raw IPv4.
fn one_segment() -> Vec<u8> {
    let number = |number: u32| number.to_le_bytes();
    let mut bytes = [
        number(0xA1B2_C3D4),
        [2, 0, 4, 0],
        [0; 4],
        [0; 4],
        number(96),
        number(101),
    ]
    .concat();
    bytes.extend([number(1_700_000_000), number(0), number(41), number(41)].concat());
    bytes.extend([
        0x45, 0, 0, 41, 0, 1, 0, 0, 64, 6, 0, 0, 192, 0, 2, 1, 198, 51, 100, 2,
    ]);
    bytes.extend([
        156, 64, 20, 81, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 1, 0, 0, 0, 0, 0, 7,
    ]);
    bytes
}

#[test]
fn what_is_before_the_damage_is_printed_and_the_rest_is_a_failure() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("damaged.pcap");
    // A packet that is longer than any.
    let absurd = [1_700_000_001_u32, 0, 1 << 30, 1 << 30]
        .map(u32::to_le_bytes)
        .concat();
    fs::write(&file, [one_segment(), absurd].concat()).unwrap();
    let file = file.to_str().unwrap();
    let output = run(&mut fullpipe(&["trace", file]), TIMEOUT);
    assert!(
        sentence(&output, FAILED).contains("damaged at byte 81"),
        "{output:?}"
    );
    assert!(
        String::from_utf8_lossy(&output.stdout).contains("192.0.2.1:40000"),
        "{output:?}"
    );
    let behind = run(&mut fullpipe(&["trace", file, "--flow", "3"]), TIMEOUT);
    let said = sentence(&behind, FAILED);
    assert!(
        said.contains("damaged at byte 81") && said.contains("there is no connection 3"),
        "{said}"
    );
}

/// A first Ctrl-C had no effect while nothing came.
#[test]
fn a_silent_pipe_ends_at_the_first_interrupt_with_what_was_read() {
    const HEADER: [u8; 24] = [
        0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 1, 0, 0, 0,
    ];
    const PACKET: [u8; 18] = [7, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 60, 0, 0, 0, 0xaa, 0xbb];
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    rustix::fs::mkfifoat(
        rustix::fs::CWD,
        &pipe,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
    )
    .unwrap();
    for (content, packets) in [
        (&[&HEADER[..], &PACKET, &PACKET[..9]].concat()[..], Some(1)),
        (&HEADER[..9], None),
    ] {
        // With both ends open here, nothing waits for the other.
        let mut writer = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open(&pipe)
            .unwrap();
        let mut command = Command::new("sh");
        command
            .args([
                "-c",
                "exec \"$0\" trace - --json <\"$1\"",
                env!("CARGO_BIN_EXE_fullpipe"),
            ])
            .arg(&pipe);
        let running = Running::start(&mut command);
        writer.write_all(content).unwrap();
        // It listens to signals before it reads.
        assert!(
            within(Duration::from_secs(10), || rustix::io::ioctl_fionread(
                &writer
            )
            .unwrap()
                == 0),
            "nobody reads"
        );
        running.interrupt();
        let output = running.finish(Duration::from_secs(10));
        assert_eq!(output.status.code(), Some(130), "{output:?}");
        let read = packets.map(|_| document(&output)["capture"]["packets"].as_u64().unwrap());
        assert_eq!(read, packets, "{output:?}");
    }
}
