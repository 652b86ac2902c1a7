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
            "neither a listing of `ss -tinmoe`, a result of `iperf3 -J`, counters, a capture",
        ),
        (
            "prose",
            "it is slow, please help\n",
            "`fullpipe explain inputs` lists",
        ),
        (
            "iperf3-text",
            "[  5]   0.00-1.00   sec  11.9 MBytes  99.6 Mbits/sec    0   1.24 MBytes\n",
            "run it with -J",
        ),
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
    let folder = sentence(&diagnosed(&["--from", env!("CARGO_TARGET_TMPDIR")]), USAGE);
    assert_says(&folder, &["cannot read", "directory"]);
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
    assert!(confidence < 0.95, "{confidence}");
}

#[test]
fn what_is_stated_with_files_counts_and_nowhere_else() {
    let causes = |arguments: &[&str]| -> Vec<String> {
        let document = document(&diagnosed(arguments));
        let verdict = document["diagnosis"]["transfers"][0]["verdict"].clone();
        let candidates = verdict["candidates"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let all = std::iter::once(&verdict).chain(&candidates);
        all.map(|one| one["cause"].as_str().unwrap().to_owned())
            .collect()
    };
    let [buffer, rate] = ["rcvbuf", "rate"].map(recorded);
    let plain = causes(&["--json", "--from", &buffer]);
    assert!(
        plain.iter().any(|cause| cause == "tcp-rmem-max"),
        "{plain:?}"
    );
    let stated = causes(&["--json", "--from", &buffer, "--rcvbuf", "32KiB"]);
    assert_eq!(stated[0], "so-rcvbuf");
    assert!(
        !stated.iter().any(|cause| cause == "tcp-rmem-max"),
        "{stated:?}"
    );
    assert_eq!(causes(&["--json", "--from", &rate])[0], "idle");
    let window = ["--json", "--from", &rate, "--app-window", "64KiB"];
    assert_eq!(causes(&window)[0], "other");
    for (arguments, part) in [
        (&["--from", &rate, "--pause", "1s"][..], "--request-size"),
        (&["--pid", "1", "--sndbuf", "64KiB"], "--from FILE"),
        (&["--pid", "1", "--sender-os", "windows-10"], "--from FILE"),
    ] {
        let said = sentence(&diagnosed(arguments), USAGE);
        assert!(said.contains(part), "{said}");
    }
    let capture = "../trace/tests/captures/dupack-four-packets.pcap.gz";
    let packets = diagnosed(&["--from", capture, "--app-window", "64KiB"]);
    assert!(sentence(&packets, USAGE).contains("packets show"));
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

/// Returns a file of the tests of the archive.
fn iperf3_file(name: &str) -> String {
    format!(
        "{}/../store/tests/files/{name}.json",
        env!("CARGO_MANIFEST_DIR")
    )
}

/// `iperf3 -w 64K` over 100 Mbit/s and 40 ms; as `PowerShell` writes it, too.
#[test]
fn a_result_of_iperf3_is_judged() {
    let file = iperf3_file("iperf3-window");
    let text = fs::read_to_string(&file).unwrap();
    let utf_16: Vec<u8> = std::iter::once(0xfeff)
        .chain(text.encode_utf16())
        .flat_map(u16::to_le_bytes)
        .collect();
    let shell = format!("$ iperf3 -c server -w 64K -J\n{text}\n$ exit\n");
    let files = [
        file,
        file_of("utf-16.json", &utf_16),
        file_of("shell.json", shell.as_bytes()),
    ];
    for file in &files {
        let (kind, cause, confidence) = verdict(&diagnosed(&["--json", "--from", file]));
        assert_eq!((&kind[..], &cause[..]), ("receive-window", "so-rcvbuf"));
        assert!(confidence > 0.5, "{confidence}");
    }
}

/// Returns `/proc/net/softnet_stat` of one processor that dropped so many packets.
fn softnet(dropped: u32) -> String {
    format!("0509aa02 {dropped:08x}{}\n", " 00000000".repeat(8))
}

#[test]
fn counters_before_and_after_show_what_the_host_of_a_listing_dropped() {
    let files = [(0x10, "before"), (0x810, "after")]
        .map(|(dropped, name)| file_of(name, softnet(dropped).as_bytes()));
    let listing = recorded("loss-receiver");
    let alone = verdict(&diagnosed(&["--json", "--from", &listing]));
    assert_eq!(alone.0, "unknown");
    let output = diagnosed(&["--json", "--from", &listing, &files[0], &files[1]]);
    let (kind, cause, _) = verdict(&output);
    assert_eq!((&kind[..], &cause[..]), ("loss", "receiver-host"));
    let notice = String::from_utf8(output.stderr).unwrap();
    assert_says(&notice, &["what /proc/net/softnet_stat counted in between"]);
    // One reading has all that was dropped since the host started, which shows nothing.
    let output = diagnosed(&["--json", "--from", &listing, &files[1]]);
    assert_eq!(verdict(&output), alone);
    let notice = String::from_utf8(output.stderr).unwrap();
    assert_says(&notice, &["was read once", "since the host started"]);
}

/// Returns what `nstat -az` prints of a host that has received so many segments, and dropped some.
fn nstat_of_receiver(segments: u64, dropped: u64) -> String {
    let octets = segments * 1500;
    format!(
        "#kernel\nTcpInSegs {segments} 0.0\nTcpOutSegs 100 0.0\nTcpExtTCPBacklogDrop {dropped} 0.0\n\
         IpExtInOctets {octets} 0.0\nIpExtOutOctets 9000 0.0\n"
    )
}

#[test]
fn a_capture_and_the_counters_of_the_receiving_host_are_one_case() {
    let capture = format!(
        "{}/../trace/tests/captures/rto-stalls.pcap.gz",
        env!("CARGO_MANIFEST_DIR")
    );
    let files = [(100, 1, "nstat-before"), (90_000, 6, "nstat-after")]
        .map(|(all, dropped, name)| file_of(name, nstat_of_receiver(all, dropped).as_bytes()));
    let cause = |files: &[&str]| {
        let output = diagnosed(&[&["--json", "--from", &*capture], files].concat());
        let verdict = &document(&output)["capture"]["transfers"][0]["diagnosis"]["verdict"];
        (verdict["kind"].clone(), verdict["cause"].clone())
    };
    assert_eq!(cause(&[]), ("loss".into(), "random".into()));
    assert_eq!(
        cause(&[&files[0], &files[1]]),
        ("loss".into(), "receiver-host".into())
    );
    let refused = sentence(&diagnosed(&["--from", &capture, &recorded("sndbuf")]), 2);
    assert_says(&refused, &["alone or with counters"]);
}

#[test]
fn counters_alone_leave_candidates_and_say_what_to_run() {
    let nstat = "#kernel\nTcpOutSegs 10000 0.0\nTcpRetransSegs 200 0.0\nTcpExtTCPTimeouts 3 0.0\n";
    let qdisc = "qdisc fq 0: dev eth0 root refcnt 2 limit 10000p\n \
                 Sent 900 bytes 9 pkt (dropped 70, overlimits 0 requeues 0)\n";
    let file = file_of("alone", [nstat, qdisc].concat().as_bytes());
    let output = diagnosed(&["--from", &file]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_says(
        &text,
        &[
            "dropped 70 packets on their way out",
            "sent 200 segments again (2 %)",
            "and had 3 timeouts",
            "capacity/host-queue or",
            "date >> counters; nstat -az >> counters; tc -s qdisc >> counters",
        ],
    );
    let (kind, _, confidence) = verdict(&diagnosed(&["--json", "--from", &file]));
    assert_eq!((&kind[..], confidence), ("unknown", 0.0));
}

/// What is to be run next is safe to paste, and `ss` takes it.
#[test]
fn the_next_command_names_the_other_end_as_ss_takes_it() {
    let listing = fs::read_to_string(recorded("sndbuf")).unwrap();
    let ipv6 = listing
        .replace("198.18.0.1:", "[2001:db8::1]:")
        .replace("198.18.0.2:", "[2001:db8::2]:");
    let result = fs::read_to_string(iperf3_file("iperf3-window")).unwrap();
    let hostile = result
        .replace("198.18.0.2", "; reboot;")
        .replace("80480", "0");
    for (name, content, says) in [
        ("ipv6", ipv6, "ss -tinmoe dst '[2001:db8::2]'; sleep"),
        ("hostile.json", hostile, "ss -tinmoe dst HOST; sleep"),
    ] {
        let output = diagnosed(&["--from", &file_of(name, content.as_bytes())]);
        assert_says(&String::from_utf8(output.stdout).unwrap(), &[says]);
    }
}

/// Two files that are not of the same transfer are judged one by one.
#[test]
fn files_of_different_connections_are_different_transfers() {
    let elsewhere = fs::read_to_string(recorded("rcvbuf")).unwrap();
    let elsewhere = elsewhere.replace("198.18.0.2", "198.51.100.7");
    let files = [
        recorded("sndbuf"),
        file_of("elsewhere", elsewhere.as_bytes()),
        iperf3_file("iperf3-window"),
    ];
    let output = diagnosed(&["--json", "--from", &files[0], &files[1], &files[2]]);
    let report = document(&output);
    let transfers = report["diagnosis"]["transfers"].as_array().unwrap();
    assert_eq!(transfers.len(), 3);
}

/// Returns `text` with a few bytes changed, cut out or repeated.
fn mutated(text: &[u8], random: &mut impl FnMut(usize) -> usize) -> Vec<u8> {
    let mut bytes = text.to_vec();
    for _ in 0..=random(8) {
        let (at, length) = (random(bytes.len()), random(40));
        let end = (at + length).min(bytes.len());
        match random(5) {
            0 => bytes[at] = random(256) as u8,
            1 => drop(bytes.drain(at..end)),
            2 => {
                let part = bytes[at..end].to_vec();
                let to = random(bytes.len());
                bytes.splice(to..to, part);
            }
            3 => drop(bytes.splice(at..end, *b"99999999999999999999")),
            _ => bytes.truncate(at.max(bytes.len() / 2)),
        }
    }
    bytes
}

/// Each is read, or refused in one sentence; none ends the program in another way.
#[test]
fn two_hundred_mutated_files_are_read_or_refused_in_one_sentence() {
    let demo = run(&mut fullpipe(&["demo", "--virtual", "--json"]), TIMEOUT);
    let nstat = "TcpOutSegs 10000 0.0\nTcpRetransSegs 200 0.0\nIpExtInOctets 99 0.0\n".repeat(2);
    let driver =
        "NIC statistics:\n     rx_missed_errors: 40\nRing parameters for eth0:\nRX:\t\t256\n";
    let qdisc = "qdisc tbf 1: dev eth0 root rate 1Gbit\n Sent 9 bytes 9 pkt (dropped 7, overlimits 0 requeues 0)\n";
    let netstat = "Tcp:\n    500 segments sent out\nTcpExt:\n    TCPBacklogDrop: 4\n";
    let mut kinds: Vec<Vec<u8>> = ["sndbuf", "loss-five", "iproute2-5.10", "iproute2-7.1-mptcp"]
        .map(|name| fs::read(recorded(name)).unwrap())
        .into();
    kinds.push(fs::read(iperf3_file("iperf3-window")).unwrap());
    kinds.push(demo.stdout);
    kinds.push(
        [&nstat, driver, qdisc, netstat, &softnet(7)]
            .concat()
            .into_bytes(),
    );
    let mut state = 55_u64;
    let mut random = |below: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) as usize % below.max(1)
    };
    let (mut read, mut refused) = (0, 0);
    for number in 0..200 {
        let bytes = mutated(&kinds[number % kinds.len()], &mut random);
        let file = file_of("mutated", &bytes);
        let output = diagnosed(&["--from", &file]);
        if output.status.success() {
            read += 1;
            let text = String::from_utf8(output.stdout).unwrap();
            assert!(!text.contains(['\u{1b}', '\u{7}']), "{number}: {text:?}");
        } else {
            refused += 1;
            let said = sentence(&output, USAGE);
            assert!(said.contains(&file), "{number}: {said}");
        }
    }
    assert!(read > 40 && refused > 10, "{read} read, {refused} refused");
}

const PAGE: &str = include_str!("../../../../docs/inputs.md");

/// The page runs as it is written, on files of the kinds that it describes.
#[test]
fn commands_of_the_page_on_inputs_work() {
    let folder = tempfile::tempdir().unwrap();
    let traced = "../trace/tests/captures/dupack-four-packets.pcap.gz";
    let demo = run(&mut fullpipe(&["demo", "--virtual", "--json"]), TIMEOUT);
    let copies = [
        ("listing", fs::read(recorded("loss-receiver")).unwrap()),
        (
            "result.json",
            fs::read(iperf3_file("iperf3-window")).unwrap(),
        ),
        (
            "counters",
            (softnet(3) + "then\n" + &softnet(900)).into_bytes(),
        ),
        ("capture.pcap", fs::read(traced).unwrap()),
        ("measured.json", demo.stdout),
    ];
    for (name, content) in copies {
        fs::write(folder.path().join(name), content).unwrap();
    }
    let samples = PAGE
        .lines()
        .filter_map(|line| line.strip_prefix("    fullpipe "));
    let samples: Vec<&str> = samples.filter(|line| line.contains("--from")).collect();
    assert_eq!(samples.len(), 5);
    for sample in samples {
        let words: Vec<&str> = sample.split(' ').collect();
        let output = run(fullpipe(&words).current_dir(folder.path()), TIMEOUT);
        assert!(output.status.success(), "{sample}: {output:?}");
    }
    let explained = run(&mut fullpipe(&["explain", "inputs"]), TIMEOUT);
    let text = String::from_utf8(explained.stdout).unwrap();
    assert_says(
        &text,
        &["What you have, what to type", "* a capture: `fullpipe"],
    );
    let is_command = |line: &str| line.starts_with("    ");
    assert!(
        text.lines()
            .all(|line| is_command(line) || line.chars().count() <= 80)
    );
}

/// Every question of the table is answered as it is written.
#[test]
fn rows_of_the_page_on_inputs_are_answered() {
    let commands = PAGE
        .lines()
        .filter_map(|line| line.strip_prefix("| "))
        .filter_map(|row| {
            row.split('`')
                .rev()
                .find(|cell| cell.starts_with("fullpipe "))
        })
        .filter_map(|cell| cell.strip_prefix("fullpipe "))
        .filter(|command| command.starts_with("calc") || command.starts_with("simulate"));
    let mut answered = 0;
    for command in commands {
        let mut shell = std::process::Command::new("sh");
        let line = format!("exec \"$0\" {command}");
        let output = run(
            shell.args(["-c", &line, env!("CARGO_BIN_EXE_fullpipe")]),
            TIMEOUT,
        );
        assert!(output.status.success(), "{command}: {output:?}");
        answered += 1;
    }
    assert!(answered >= 18, "{answered}");
}
