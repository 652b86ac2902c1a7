//! Answers of the calculator: against public threads, and against each other.

use crate::common::{fullpipe, run};
use fullpipe_testkit::document;
use serde_json::Value;

/// Slow transfers of public threads and articles: what was stated, the limit that their experts or
/// a fix confirmed, and the rate that was seen, in Mbit/s, where nothing had to be assumed for it.
const THREADS: &[(&str, &str, &str, Option<f64>)] = &[
    (
        "overlaid.net 2014/05/01",
        "--bandwidth 1G --rtt 18ms --receiver-os windows-2003",
        "receive-window",
        Some(7.4),
    ),
    (
        "reggle 2013/01/10",
        "--bandwidth 200M --rtt 8.3ms --receiver-os windows-2003",
        "receive-window",
        Some(15.04),
    ),
    (
        "rpcemu-extended#105",
        "--bandwidth 100M --rtt 11ms --receiver-os slirp",
        "receive-window",
        Some(5.6),
    ),
    (
        "lightway#437, down",
        "--bandwidth 450M --rtt 190ms -w 208KiB",
        "receive-window",
        None,
    ),
    (
        "plantegg 2020/09/28",
        "--bandwidth 100M --rtt 20ms --sndbuf 16KiB --blocking",
        "send-buffer",
        Some(7.04),
    ),
    (
        "wstunnel#80",
        "--bandwidth 1G --rtt 12ms --sndbuf 36KiB",
        "send-buffer",
        None,
    ),
    (
        "restic#1996",
        "--bandwidth 10M --sender-os windows-7 --sndbuf 8KiB",
        "send-buffer",
        None,
    ),
    (
        "gsutil#1145",
        "--bandwidth 100M --rtt 60ms --sender-os windows-10 --sndbuf 64KiB",
        "send-buffer",
        Some(8.15),
    ),
    (
        "golang#17985",
        "--bandwidth 44.4M --rtt 55ms --app-window 65535",
        "application-window",
        Some(9.4),
    ),
    (
        "curl#1102",
        "--bandwidth 185M --rtt 33ms --app-window 65535",
        "application-window",
        None,
    ),
    (
        "s2n-quic#1447",
        "--bandwidth 20G --rtt 250ms --quic --app-window 3.75MB",
        "application-window",
        Some(119.0),
    ),
    (
        "pkg/sftp#158",
        "--bandwidth 20G --rtt 200ms --requests 64x32KiB",
        "application-window",
        Some(75.5),
    ),
    (
        "mcpmag 2004/12/07",
        "--bandwidth 45M --rtt 62.5ms --request-size 4292",
        "application-window",
        Some(0.5),
    ),
    (
        "sshfs#300",
        "--bandwidth 800M --rtt 200ms --app-window 200kB",
        "application-window",
        Some(8.0),
    ),
    (
        "tailscale#17993",
        "--bandwidth 30M --rtt 300ms --loss 0.07% -C cubic",
        "loss",
        None,
    ),
    (
        "quic-go#918",
        "--bandwidth 8M --rtt 240ms --loss 1%",
        "loss",
        None,
    ),
    (
        "wirelessmoves p=13605",
        "--bandwidth 1G --rtt 25ms --path policer=500Mbit/s_19MB -C bbr",
        "loss",
        Some(500.0),
    ),
    (
        "kubernetes#90838",
        "--bandwidth 10G --rtt 0.5ms --fq-rate 10M",
        "pacing",
        Some(10.5),
    ),
    (
        "nats-server#4695",
        "--bandwidth 25G --rtt 1ms --flow-cap 5G",
        "capacity",
        Some(4.97e3),
    ),
    (
        "ferstar/blog#93",
        "--bandwidth 50M --rtt 40ms --path narrow=1390_swallowed",
        "mtu",
        None,
    ),
    (
        "nim-libp2p#850",
        "--rtt 20ms --size 1MB",
        "congestion-window",
        Some(50.0),
    ),
    (
        "GnuBee#95",
        "--bandwidth 1G --rtt 0.5ms --cpu-rate 29.4M",
        "cpu",
        None,
    ),
    (
        "dittofs#1407",
        "--bandwidth 550M --rtt 30ms -P 8 --request-size 4MiB --pause 2s",
        "sender-application",
        None,
    ),
    (
        "juliaup#1603",
        "--bandwidth 1G --rtt 15ms --read-rate 231M",
        "receiver-application",
        None,
    ),
];

/// Returns the words of a command line; `_` stands for a space within one.
fn words(line: &str) -> impl Iterator<Item = String> {
    line.split(' ').map(|word| word.replace('_', " "))
}

fn calculated(line: &str) -> Value {
    let mut command = fullpipe(&["calc", "--kernel", "6.18", "--json"]);
    document(&run(command.args(words(line)), 20))
}

#[test]
fn what_public_threads_confirmed_follows_from_what_they_state() {
    for (thread, line, limit, seen) in THREADS {
        let document = calculated(line);
        let solved = &document["calculation"];
        let prediction = &solved["prediction"];
        assert_eq!(prediction["limit"], *limit, "{thread}: {prediction}");
        let rate = match solved["solved"].as_str() {
            Some("rate") => &solved["rate"],
            _ => &prediction["kernel_model"],
        };
        let rate = rate.as_f64().unwrap_or(f64::NAN) / 1e6;
        assert!(
            seen.is_none_or(|seen| (rate / seen - 1.0).abs() <= 0.15),
            "{thread}: {rate} Mbit/s, and {seen:?} were seen"
        );
    }
}

/// Figures for ends that are not Linux, or do not scale windows: published in an article on a
/// Windows Server 2003 (17 520 B over 1000 km, and what it then measured), and 65 535 B, the most
/// without scaling, over the round trips of vendors' tables.
#[test]
fn published_figures_of_other_ends_are_met() {
    for (line, published) in [
        (
            "--bandwidth 1G --rtt 15ms --receiver-os windows-2003",
            9.344,
        ),
        (
            "--bandwidth 1G --distance 1000km --receiver-os windows-2003",
            10.16,
        ),
        (
            "--bandwidth 1G --rtt 10ms --receiver-os windows-2003 --rcvbuf 65535",
            52.4,
        ),
        (
            "--bandwidth 1G --rtt 50ms --receiver-os windows-xp --rcvbuf 65535",
            10.5,
        ),
        (
            "--bandwidth 1G --rtt 100ms --receiver-os windows-2000 --rcvbuf 65535",
            5.24,
        ),
        (
            "--bandwidth 1G --rtt 200ms --receiver-os windows-2003 --rcvbuf 65535",
            2.62,
        ),
    ] {
        let rate = calculated(line)["calculation"]["prediction"]["kernel_model"].as_f64();
        let ratio = rate.unwrap_or(f64::NAN) / 1e6 / published;
        assert!((ratio - 1.0).abs() <= 0.15, "{line}: {ratio}");
    }
}

/// A question drawn from `seed`: a path, and at times each of the windows that can be stated.
fn drawn_question(seed: u64) -> String {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut draw = |below: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let path = format!(
        "--bandwidth {}M --rtt {}ms -C {}",
        1 + draw(1000),
        1 + draw(300),
        ["cubic", "reno", "bbr"][draw(3) as usize],
    );
    let size = 8 + draw(2000);
    let window = match draw(9) {
        0 => format!("-w {size}KiB"),
        1 => format!("--window {size}KiB"),
        2 => format!("--sndbuf {size}KiB"),
        3 => format!("--rcvbuf {size}KiB"),
        4 => format!("--app-window {size}KiB"),
        5 => format!("--requests {}x{}KiB", 1 + draw(64), 4 + draw(64)),
        6 => format!("--request-size {size}KiB --pause {}ms", 1 + draw(500)),
        7 => format!(
            "--receiver-os {}",
            ["windows-2003", "macos-14", "freebsd-14"][draw(3) as usize]
        ),
        _ => format!("--loss 0.0{}% --fq-rate {}M", 1 + draw(9), 1 + draw(100)),
    };
    format!("{path} {window} -P {}", 1 + draw(4))
}

#[test]
fn every_figure_that_is_stated_twice_is_the_same_figure() {
    for seed in 0..200 {
        let line = drawn_question(seed);
        let solved = calculated(&line)["calculation"].clone();
        let prediction = &solved["prediction"];
        let lowest = &prediction["ceilings"][0];
        let rate = &prediction["kernel_model"];
        // Next to losses at random the lowest ceiling is cut further.
        if !line.contains("loss") {
            assert_eq!(&lowest["kernel_model"], rate, "{line}");
            assert_eq!(lowest["kind"], prediction["limit"], "{line}");
        }
        if solved["solved"] == "rate" {
            assert_eq!(&solved["rate"], rate, "{line}");
        }
        let command = || {
            let mut command = fullpipe(&["calc", "--kernel", "6.18"]);
            command.args(words(&line));
            command
        };
        let cells = String::from_utf8(run(command().arg("--csv"), 20).stdout).unwrap();
        assert!(
            cells.contains(&format!(",{rate},")),
            "{line}: {rate} is not in {cells}"
        );
        let text = String::from_utf8(run(&mut command(), 20).stdout).unwrap();
        let shown =
            fullpipe_units::BitRate::from_bps(rate.as_u64().unwrap_or_default()).to_string();
        let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            flat.contains(&format!("→ {shown}")),
            "{line}: {shown} is not in {text}"
        );
        if solved["solved"] == "rate" {
            assert!(flat.contains(&format!("gives {shown}")), "{line}: {text}");
        }
    }
}

/// Loss is a matter of chance, and whether a pause outlasts a timeout one of a few milliseconds.
#[test]
fn the_simulator_has_the_figure_that_is_calculated() {
    let questions = (0..24).map(drawn_question);
    for line in questions.filter(|line| !line.contains("--loss") && !line.contains("--pause")) {
        let calculated = calculated(&line)["calculation"]["prediction"]["kernel_model"].as_f64();
        let mut command = fullpipe(&["simulate", "--kernel", "6.18", "--json", "-t", "20"]);
        let simulated = document(&run(command.args(words(&line)), 60));
        let steady = simulated["measurement"]["summary"]["steady"]["rate"].as_f64();
        let ratio = steady.unwrap_or(f64::NAN) / calculated.unwrap();
        assert!((ratio - 1.0).abs() <= 0.1, "{line}: {ratio}");
    }
}
