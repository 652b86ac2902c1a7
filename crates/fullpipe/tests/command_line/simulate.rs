//! Transfers in virtual time.

use std::io::Read;

use crate::common::{fullpipe, pseudo_terminal, run};
use fullpipe_testkit::document;
use serde_json::{Value, json};

const PATH: &str = "rate=50M,rtt=20ms,loss=1e-4";

#[test]
fn a_simulated_transfer_is_a_measurement_with_its_limit_and_the_same_each_time() {
    let simulated = || {
        run(
            &mut fullpipe(&["simulate", "--path", PATH, "-t", "5", "-C", "bbr", "--json"]),
            30,
        )
    };
    let first = document(&simulated());
    assert_eq!(
        (&first["schema"], &first["kind"]),
        (&json!(2), &json!("measurement"))
    );
    assert_eq!(first["measurement"]["limit"]["kind"], "capacity");
    assert_eq!(
        first["measurement"]["local"]["sockets"][0]["congestion"],
        "bbr"
    );
    assert_eq!(first, document(&simulated()));
}

/// Slow transfers of public threads whose limit their experts or a fix confirmed, as far as a path
/// and two hosts state them. A small window without a scale is, as a setting, one that a program
/// fixed.
#[test]
fn what_public_threads_confirmed_is_named() {
    let threads: [(&str, &[&str], &str); 8] = [
        (
            "overlaid.net 2014/05/01",
            &["--path", "rate=1G,rtt=18ms", "-w", "8760"],
            "receive-window/so-rcvbuf",
        ),
        (
            "reggle 2013/01/10",
            &["--path", "rate=200M,rtt=8.3ms", "-w", "8500"],
            "receive-window/so-rcvbuf",
        ),
        (
            "tailscale#17993",
            &[
                "--path",
                "rate=30M,rtt=300ms,loss=0.07%",
                "-C",
                "cubic",
                "-t",
                "30",
            ],
            "loss/random",
        ),
        (
            "quic-go#918",
            &["--path", "rate=8M,rtt=240ms,loss=1%", "-t", "60"],
            "loss/random",
        ),
        (
            "wirelessmoves p=13605",
            &[
                "--path",
                "rate=1G,rtt=20ms,policer=500Mbit/s 256KiB",
                "-C",
                "bbr",
                "-t",
                "10",
            ],
            "loss/policer",
        ),
        (
            "ferstar/blog#93",
            &[
                "--path",
                "rate=50M,rtt=20ms,narrow=1400 swallowed",
                "-t",
                "5",
            ],
            "mtu/black-hole",
        ),
        (
            "nim-libp2p#850",
            &["--path", "rate=1G,rtt=20ms", "-n", "1MB"],
            "congestion-window/ramp-up",
        ),
        (
            "fir3net load balancer",
            &[
                "--path",
                "rate=100M,rtt=10ms,edits=window-scale=0",
                "-t",
                "5",
            ],
            "receive-window/window-scale-rewritten",
        ),
    ];
    for (thread, flags, expected) in threads {
        let document = document(&run(fullpipe(&["simulate", "--json"]).args(flags), 120));
        let limit = &document["measurement"]["limit"];
        let found = [&limit["kind"], &limit["cause"]]
            .map(|name| name.as_str().unwrap_or_default())
            .join("/");
        assert_eq!(found, expected, "{thread}");
    }
}

#[test]
fn the_longest_round_trip_has_its_transfer() {
    let output = run(
        &mut fullpipe(&["simulate", "--rtt", "1h", "-t", "30000", "--json"]),
        60,
    );
    let measured = document(&output)["measurement"].clone();
    assert_eq!(
        measured["rtt"]["idle"]["min"].as_f64().map(f64::round),
        Some(3600.0),
        "{measured}"
    );
    assert!(
        measured["summary"]["received"].as_u64() > Some(100_000),
        "{}",
        measured["summary"]
    );
}

#[test]
fn a_terminal_that_takes_lines_only_gets_no_colours() {
    for (kind, has_colours) in [("xterm", true), ("dumb", false)] {
        let (mut ours, theirs) = pseudo_terminal();
        let mut child = fullpipe(&["simulate", "-t", "0.1"])
            .env("TERM", kind)
            .stdout(theirs)
            .spawn()
            .unwrap();
        let mut printed = Vec::new();
        // The end of a terminal that nobody else has is an error.
        let _ = ours.read_to_end(&mut printed);
        assert!(child.wait().unwrap().success());
        assert!(
            printed.len() > 100 && printed.contains(&0x1b) == has_colours,
            "{kind}"
        );
    }
}

#[test]
fn several_seeds_are_lines_or_a_spread_or_one_document() {
    let with = |format: &[&str]| {
        run(
            fullpipe(&["simulate", "--path", PATH, "-t", "1", "--seeds", "3"]).args(format),
            30,
        )
    };
    let lines = String::from_utf8(with(&["--json-lines"]).stdout).unwrap();
    assert_eq!(
        lines
            .lines()
            .filter(|line| line.contains("\"measurement\""))
            .count(),
        3,
        "{lines}"
    );
    let text = String::from_utf8(with(&[]).stdout).unwrap();
    assert!(text.contains("median of 3 seeds"), "{text}");
    let all = document(&with(&["--json"]))["simulations"].clone();
    assert_eq!(
        (all.as_array().unwrap().len(), &all[0]["seeds"]),
        (1, &json!(3))
    );
}

const LISTS: [&str; 11] = [
    "simulate",
    "-r",
    "5ms..20ms",
    "--bandwidth",
    "20M",
    "-C",
    "reno,bbr",
    "-t",
    "1",
    "--seeds",
    "2",
];

#[test]
fn lists_are_rows_the_same_bytes_whatever_the_number_of_jobs() {
    let with = |more: &[&str]| {
        let output = run(fullpipe(&LISTS).args(more), 60);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    for format in [&["--csv"][..], &["--json"], &[]] {
        let of = |jobs| with(&[format, &["--jobs", jobs]].concat());
        assert_eq!(of("1"), of("8"), "{format:?}");
    }
    let csv = with(&["--csv"]);
    let rows: Vec<Vec<&str>> = csv.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(
        (rows.len(), rows[0][2], rows[1][2], rows[5][2]),
        (7, "rtt", "0.005", "0.02")
    );
    assert_eq!(
        (rows[0][6], rows[1][6], rows[2][6]),
        ("congestion", "reno", "bbr")
    );
    let lines = with(&["--json-lines"]);
    assert_eq!(
        lines
            .lines()
            .filter(|line| line.contains("\"event\":\"simulated\""))
            .count(),
        6,
        "{lines}"
    );
    let text = with(&[]);
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
    assert!(text.starts_with("  rtt  congestion "), "{text}");
}

#[test]
fn a_row_is_what_the_same_question_alone_gives() {
    let csv = |arguments: &[&str]| {
        let output = run(
            fullpipe(&["simulate", "--path", "loss=1e-3", "-t", "1", "--csv"]).args(arguments),
            60,
        );
        String::from_utf8(output.stdout)
            .unwrap()
            .lines()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let table = csv(&["-r", "10ms,30ms", "--queue", "0.5bdp,1bdp", "-P", "1,3"]);
    assert_eq!(
        csv(&["-r", "30ms", "--queue", "0.5bdp", "-P", "3"])[1],
        table[6]
    );
}

#[test]
fn lists_that_cannot_be_are_refused_in_a_sentence() {
    for (arguments, part) in [
        (
            &["-r", "1ms", "--path", "rtt=2ms"][..],
            "rtt: it is given twice",
        ),
        (
            &["-P", "1..10000+1", "-r", "1ms,2ms"],
            "20000 combinations, more than 10000",
        ),
        (&["--queue", "1bdp..2ms"], "the same unit"),
        (&["--queue", "long"], "is not a queue"),
        (&["-C", "reno,htcp"], "\"htcp\" is not modelled"),
        (
            &["-r", "1ms,2ms", "--trace", "x.csv"],
            "--trace is of one transfer, and these are 2",
        ),
        (&["--trace", "-"], "--trace writes a file"),
        (&["--what-if", "loss=0"], "--from"),
    ] {
        let refused = run(fullpipe(&["simulate"]).args(arguments), 30);
        let sentence = String::from_utf8(refused.stderr).unwrap();
        assert!(
            refused.status.code() == Some(2) && sentence.contains(part),
            "{arguments:?}: {sentence}"
        );
    }
}

#[test]
fn a_trace_is_written_whole_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("course.csv");
    let traced = |path: &str, file: &std::path::Path| {
        let arguments = [
            "simulate",
            "--path",
            path,
            "-t",
            "1",
            "-P",
            "2",
            "--trace-interval",
            "100ms",
            "--trace",
        ];
        run(fullpipe(&arguments).arg(file), 30)
    };
    assert!(traced("rate=20M,rtt=20ms", &file).status.success());
    let text = std::fs::read_to_string(&file).unwrap();
    let mut lines = text.lines();
    assert!(
        lines
            .next()
            .unwrap()
            .starts_with("time,stream,cwnd,ssthresh,in_flight,queue,"),
        "{text}"
    );
    // Both streams at the start, each tenth of a second and at the end.
    assert!(
        lines.clone().count() >= 22 && lines.all(|line| line.split(',').count() == 11),
        "{text}"
    );
    assert_eq!(
        traced("edits=strip-sack", &folder.path().join("refused.csv"))
            .status
            .code(),
        Some(2)
    );
    assert_eq!(
        traced("rate=20M", &folder.path().join("none/x.csv"))
            .status
            .code(),
        Some(1)
    );
    assert_eq!(
        std::fs::read_dir(&folder).unwrap().count(),
        1,
        "the first alone"
    );
}

/// Simulates a measurement again, that `arguments` print.
fn past(arguments: &[&str], more: &[&str]) -> std::process::Output {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("measurement.json");
    std::fs::write(&file, run(&mut fullpipe(arguments), 60).stdout).unwrap();
    run(
        fullpipe(&["simulate", "--from", file.to_str().unwrap()]).args(more),
        60,
    )
}

/// As [`past`], of a measurement over a path that is not in its document.
fn past_elsewhere(arguments: &[&str], more: &[&str]) -> std::process::Output {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("measurement.json");
    let mut measured = document(&run(&mut fullpipe(arguments), 60));
    assert!(measured.as_object_mut().unwrap().remove("path").is_some());
    std::fs::write(&file, measured.to_string()).unwrap();
    run(
        fullpipe(&["simulate", "--from", file.to_str().unwrap()]).args(more),
        60,
    )
}

#[test]
fn a_simulated_transfer_is_simulated_again_over_its_own_path() {
    let small = [
        "simulate",
        "--path",
        "rate=50M,rtt=20ms,loss=1e-4",
        "-t",
        "3",
        "--window",
        "32KiB",
        "--json",
    ];
    let report = document(&past(&small, &["--json"]))["what_if"][0].clone();
    assert_eq!(report["inferred"], json!([]));
    assert_eq!(report["path"]["forward"]["rate"], json!(50_000_000));
    assert_eq!(
        report["measured"]["rate"],
        report["simulations"][0]["rate"]["median"]
    );
}

#[test]
fn a_transfer_that_cannot_end_ends_with_code_1() {
    let hopeless = [
        "simulate",
        "--path",
        "rate=10M,rtt=20ms,loss=0.97",
        "-n",
        "1M",
    ];
    let output = run(&mut fullpipe(&hopeless), 60);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(
        text.contains("Broken off") && text.contains("Not valid: only"),
        "{text}"
    );
}

#[test]
fn a_past_measurement_on_an_emulated_path_is_simulated_with_changes() {
    let changes = [
        "--what-if",
        "sender.tcp_wmem=64MiB",
        "--what-if",
        "rtt=10ms",
        "--json",
    ];
    let report = document(&past(&["demo", "--virtual", "-t", "4", "--json"], &changes))["what_if"]
        [0]
    .clone();
    assert_eq!(
        (&report["inferred"], &report["measured"]["limit"]["kind"]),
        (&json!([]), &json!("send-buffer"))
    );
    let rows: Vec<(&str, f64)> = report["simulations"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| {
            (
                row["name"].as_str().unwrap(),
                row["rate"]["median"].as_f64().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        rows.iter().map(|row| row.0).collect::<Vec<_>>(),
        [
            "as it was",
            "sender.tcp_wmem=64MiB",
            "rtt=10ms",
            "all together"
        ]
    );
    // The same model, so that only the seed differs; and each change helps.
    let measured = report["measured"]["rate"].as_f64().unwrap();
    assert!(
        (rows[0].1 / measured - 1.0).abs() < 0.01,
        "{rows:?} of {measured}"
    );
    assert!(
        rows[1].1 > 1.5 * rows[0].1 && rows[2].1 > 2.0 * rows[0].1,
        "{rows:?}"
    );
}

#[test]
fn a_path_is_inferred_where_the_link_was_full_and_stated_where_it_does_not_show() {
    let full = [
        "simulate",
        "--path",
        "rate=50M,rtt=20ms",
        "-t",
        "5",
        "--json",
    ];
    let text =
        String::from_utf8(past_elsewhere(&full, &["--what-if", "queue=0.1bdp"]).stdout).unwrap();
    assert!(
        text.contains("the link was full at this rate") && text.contains("simulated as it was"),
        "{text}"
    );
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
    let inferred =
        document(&past_elsewhere(&full, &["--json"]))["what_if"][0]["path"]["forward"]["rate"]
            .as_f64()
            .unwrap();
    assert!((inferred / 5e7 - 1.0).abs() < 0.02, "{inferred}");

    let small = [
        "simulate",
        "--path",
        "rate=50M,rtt=20ms",
        "-t",
        "3",
        "--window",
        "32KiB",
        "--json",
    ];
    let refused = past_elsewhere(&small, &[]);
    let sentence = String::from_utf8(refused.stderr).unwrap();
    assert!(
        refused.status.code() == Some(2) && sentence.contains("limited by receive-window"),
        "{sentence}"
    );
    let stated =
        document(&past_elsewhere(&small, &["--path", "rate=50M", "--json"]))["what_if"][0].clone();
    let rate = |at: &serde_json::Value| at.as_f64().unwrap();
    let (was, is) = (
        rate(&stated["measured"]["rate"]),
        rate(&stated["simulations"][0]["rate"]["median"]),
    );
    assert!((is / was - 1.0).abs() < 0.02, "{is} of {was}");
}

#[test]
fn remedies_are_ranked_by_simulation() {
    let arguments = [
        "simulate",
        "--path",
        "rate=100M,rtt=40ms,loss=1e-3",
        "-t",
        "5",
        "--json",
    ];
    let more = ["--path", "rate=100M", "--what-if", "remedies", "--json"];
    let report = document(&past_elsewhere(&arguments, &more))["what_if"][0].clone();
    let rows = report["simulations"].as_array().unwrap();
    let rate = |index: usize| rows[index]["rate"]["median"].as_f64().unwrap();
    assert!(
        rows.len() >= 3 && rows[1]["name"].as_str().unwrap().contains("bbr"),
        "{report}"
    );
    assert!(
        rate(1) > 2.0 * rate(0)
            && (2..rows.len()).all(|index| rate(index) < 1.02 * rate(index - 1)),
        "{report}"
    );
}

#[test]
fn what_is_no_measurement_or_no_change_is_refused() {
    for (arguments, more, part) in [
        (
            &["calc", "-r", "10ms", "--bandwidth", "1G", "--json"][..],
            &[][..],
            "it has no measurement",
        ),
        (&["schema"], &[], "is no JSON document of fullpipe"),
        (
            &["demo", "--virtual", "-t", "2", "--json"],
            &["--what-if", "speed=1"],
            "\"speed\" is not a key here",
        ),
        (
            &["demo", "--virtual", "-t", "2", "--json"],
            &["--what-if", "congestion=htcp"],
            "\"htcp\" is not modelled",
        ),
    ] {
        let refused = past(arguments, more);
        let sentence = String::from_utf8(refused.stderr).unwrap();
        assert!(
            refused.status.code() == Some(2) && sentence.contains(part),
            "{arguments:?}: {sentence}"
        );
    }
}

#[test]
fn a_rate_that_no_host_reaches_is_remarked_on() {
    let fast = [
        "simulate",
        "--path",
        "rate=100G,rtt=1ms,mtu=9000",
        "-t",
        "0.2",
        "-w",
        "64MiB",
    ];
    let hosts = ["--sender", "tcp_wmem=1G", "--receiver", "tcp_rmem=1G"];
    let text =
        |fast: &[&str]| String::from_utf8(run(fullpipe(fast).args(hosts), 60).stdout).unwrap();
    let (one, four) = (text(&fast[..5]), text(&[&fast[..5], &["-P", "4"]].concat()));
    assert!(
        one.contains("62.6 Gbit/s on one core") && !four.contains("on one core"),
        "{one}{four}"
    );
}

#[test]
fn a_grid_in_virtual_time_needs_no_lab() {
    let text = "name = \"two\"\ntitle = \"Two cells\"\nlongest = \"2s\"\n\
                [[block]]\nrate = [\"20Mbit/s\"]\nrtt = [\"10ms\"]\nqueue = [\"0.5\", \"2\"]\n";
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("grid.toml");
    std::fs::write(&file, text).unwrap();
    let of = |more: &[&str]| {
        run(
            fullpipe(&["lab", "grid", file.to_str().unwrap(), "--virtual"]).args(more),
            60,
        )
    };
    let grid = document(&of(&["--json"]))["grid"].clone();
    assert_eq!(
        (&grid["is_virtual"], &grid["passed"]),
        (&json!(true), &json!(true))
    );
    assert!(
        grid["cells"]
            .as_array()
            .unwrap()
            .iter()
            .all(|cell| cell["simulated"]["rate"].is_u64()),
        "{grid}"
    );
    let shown = String::from_utf8(of(&["--quiet"]).stdout).unwrap();
    assert!(
        shown.contains("formula  simulated") && shown.contains("queue 0.5"),
        "{shown}"
    );
}

#[test]
fn what_is_not_modelled_is_refused_by_name() {
    let refused = run(&mut fullpipe(&["simulate", "-C", "htcp"]), 30);
    assert_eq!(refused.status.code(), Some(2));
    let sentence = String::from_utf8(refused.stderr).unwrap();
    assert!(
        sentence.contains("\"htcp\" is not modelled: reno, cubic and bbr are"),
        "{sentence}"
    );
}

#[test]
fn the_steps_of_a_scenario_are_transfers() {
    let steps = run(
        &mut fullpipe(&["simulate", "elsen-window", "--json-lines"]),
        60,
    );
    let lines = String::from_utf8(steps.stdout).unwrap();
    let rates: Vec<f64> = lines
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter_map(|event| event["data"]["summary"]["rate"].as_f64())
        .collect();
    // The scenario's own bound: twice the window is twice the rate.
    assert!(
        rates.len() >= 2 && (1.9..2.1).contains(&(rates[1] / rates[0])),
        "{rates:?}"
    );
}

#[test]
fn datagrams_cross_traffic_and_loads_that_grow_are_simulated() {
    for (scenario, shown) in [
        ("elsen-udp", "datagrams"),
        ("elsen-starvation", "sent"),
        ("slac-load", "Mbit/s"),
    ] {
        let done = run(&mut fullpipe(&["simulate", scenario]), 60);
        let text = String::from_utf8(done.stdout).unwrap();
        assert!(
            done.status.success() && text.contains(shown),
            "{scenario}: {text}"
        );
    }
}

/// Returns the largest `tcp_wmem` among `changes`, in bytes.
fn advised_tcp_wmem(changes: &Value) -> Option<u64> {
    let is_wmem = |change: &&Value| change["setting"] == "tcp-wmem-max";
    let changes = changes
        .as_array()?
        .iter()
        .map(|change| change.get("change").unwrap_or(change));
    changes.clone().find(is_wmem)?["value"].as_u64()
}

#[test]
fn every_command_advises_the_same_send_buffer_for_a_path() {
    // For 1 Gbit/s × 100 ms `demo` had 24 MiB, `diagnose` 24 or 36, `host advise` 68, and `calc`
    // 68, 36 and 11.53.
    let json = |arguments: &[&str]| document(&run(&mut fullpipe(arguments), 60));
    let path = ["--bandwidth", "400M", "--rtt", "100ms"];
    for (control, mebibytes) in [("cubic", 10), ("bbr", 15)] {
        let flags = ["-C", control, "--sender", "tcp_wmem=4MiB", "--json"];
        let calculated = json(&[&["calc"][..], &path, &flags].concat())["calculation"].clone();
        let needed = calculated["needs"]
            .as_array()
            .unwrap()
            .iter()
            .find(|need| need["quantity"] == "tcp-wmem");
        let looped = json(
            &[
                &["demo", "--virtual", "--path", "rate=400M,rtt=100ms"][..],
                &flags,
            ]
            .concat(),
        );
        let remedies = looped["experiment"]["remedies"].as_array().unwrap();
        let remedy = remedies
            .iter()
            .find(|remedy| remedy["id"] == "raise-tcp-wmem")
            .unwrap();
        let all = [
            calculated["buffers"]["tcp_wmem_max"].as_u64(),
            needed.and_then(|need| need["value"]["bytes"].as_u64()),
            advised_tcp_wmem(&calculated["lift"]["changes"]),
            advised_tcp_wmem(&remedy["changes"]),
        ];
        assert_eq!(all, [Some(mebibytes << 20); 4], "{control}");
        // The loop measures its round trip, so that the size on the way differs in the last digit.
        let reason = calculated["buffers"]["tcp_wmem_reason"].as_str().unwrap();
        let reason = reason.split_once(" on the way").unwrap().1;
        assert!(
            remedy["why"].as_str().unwrap().contains(reason),
            "{remedy}, not {reason}"
        );
    }
    // The settings of this host, with its own congestion control.
    let here = json(&[&["calc"][..], &path, &["--json"]].concat())["calculation"].clone();
    let advised =
        json(&[&["host", "advise"][..], &path, &["--json"]].concat())["host_advice"].clone();
    assert_eq!(
        advised_tcp_wmem(&advised["changes"]),
        advised_tcp_wmem(&here["lift"]["changes"])
    );
}

#[test]
fn a_size_is_complete_at_a_stated_time() {
    let completion = |words: &[&str]| {
        let path = ["simulate", "--path", "rate=50M,rtt=20ms", "--json"];
        document(&run(&mut fullpipe(&[&path, words].concat()), 30))["completion"].clone()
    };
    let figure = |completion: &Value, name: &str| completion[name].as_f64().unwrap();
    // What was carried is known, at the rate that the document states.
    let known = completion(&["-n", "30MB"]);
    assert_eq!(
        (&known["time"], &known["time"]),
        (&known["low"], &known["high"])
    );
    let ideal = 30e6 * 8.0 / (50e6 * 1448.0 / 1538.0);
    assert!((figure(&known, "efficiency") - ideal / figure(&known, "time")).abs() < 1e-3);
    // The rest goes on as it was.
    let [ten, more] = [&["--size", "5GB"][..], &["--size", "5GB", "-t", "60"]].map(completion);
    for forecast in [&ten, &more] {
        let ideal = 5e9 * 8.0 / (50e6 * 1448.0 / 1538.0);
        assert!(
            (figure(forecast, "low")..=figure(forecast, "high")).contains(&ideal),
            "{forecast}"
        );
        assert!(figure(forecast, "efficiency") > 0.9, "{forecast}");
    }
    assert!(figure(&more, "high") < figure(&ten, "high"));
    for many in [&["--seeds", "2"][..], &["--csv"], &["-r", "1ms,2ms"]] {
        let words = [&["simulate", "--size", "1GB"], many].concat();
        let refused = run(&mut fullpipe(&words), 30);
        assert_eq!(refused.status.code(), Some(2), "{many:?}");
    }
}
