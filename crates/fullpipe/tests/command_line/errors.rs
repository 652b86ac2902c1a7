//! Bad input gives one clear sentence and the right exit code, soon, and leaves nothing behind.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{fullpipe, run};
use fullpipe_testkit::{
    FalseServer, Mark, Part, assert_says, document, free_port, sentence, within,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Longest time until a failure is reported, in seconds.
const TIMEOUT: u64 = 15;

const FAILED: i32 = 1;
const USAGE: i32 = 2;

/// Runs the program and asserts that it leaves no process behind.
fn fail(command: &mut Command) -> Output {
    let mark = Mark::new();
    let output = run(mark.put_on(command), TIMEOUT);
    mark.assert_gone(&BTreeSet::new());
    output
}

/// Returns the sentence of a program that was called with `arguments` and must exit with `code`.
fn stated(arguments: &[&str], code: i32) -> String {
    let output = fail(&mut fullpipe(arguments));
    assert!(
        output.stdout.is_empty(),
        "{}",
        String::from_utf8_lossy(&output.stdout)
    );
    sentence(&output, code)
}

/// Returns the error of clap for a wrong command line.
fn refused(arguments: &[&str]) -> String {
    let output = fail(&mut fullpipe(arguments));
    assert_eq!(output.status.code(), Some(USAGE));
    assert!(output.stdout.is_empty());
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.starts_with("error: "), "{stderr}");
    stderr
}

fn scenario(name: &str, text: &str) -> String {
    let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&file, text).unwrap();
    file.to_str().unwrap().to_owned()
}

/// Returns the sentence of a measurement against a false server.
fn against(part: Part, more: &[&str]) -> String {
    let server = FalseServer::start(part);
    let port = server.port().to_string();
    stated(
        &[
            &["measure", "127.0.0.1", "-p", &port, "-t", "1", "--quiet"],
            more,
        ]
        .concat(),
        FAILED,
    )
}

#[test]
fn a_host_that_is_unknown() {
    assert_says(
        &stated(&["measure", "nosuchhost.invalid"], FAILED),
        &["cannot find the host nosuchhost.invalid"],
    );
}

#[test]
fn a_connection_that_is_refused() {
    let port = free_port().to_string();
    let said = stated(&["measure", "127.0.0.1", "-p", &port], FAILED);
    assert_says(
        &said,
        &["127.0.0.1", &port, "refused", "fullpipe serve", "iperf3 -s"],
    );
}

#[test]
fn units_that_are_nonsense() {
    assert_says(
        &refused(&["measure", "h", "-w", "3parsecs"]),
        &["3parsecs", "--buffer", "64KiB"],
    );
    assert_says(
        &refused(&["calc", "--bandwidth", "fast", "--rtt", "1ms"]),
        &["fast", "--bandwidth", "100Mbit/s"],
    );
    assert_says(
        &refused(&["calc", "--bandwidth=-1", "--rtt", "1ms"]),
        &["-1", "negative"],
    );
    assert_says(
        &refused(&["measure", "h", "-t", "soon"]),
        &["soon", "--time"],
    );
    assert_says(
        &refused(&["measure", "h", "-P", "0"]),
        &["--streams", "from 1 to 128"],
    );
}

#[test]
fn flags_that_do_not_exist_or_do_not_fit() {
    assert_says(&refused(&["measure", "h", "--nosuch"]), &["--nosuch"]);
    assert_says(&refused(&["measure"]), &["<HOST>"]);
    assert_says(&refused(&["nosuch"]), &["nosuch"]);
    assert_says(
        &refused(&["measure", "h", "-n", "1M", "-t", "1"]),
        &["--bytes", "--time"],
    );
    assert_says(
        &refused(&["lab", "exec", "demo", "middle", "--", "true"]),
        &["middle", "`sender`", "`receiver`"],
    );
}

#[test]
fn a_relay_without_a_part() {
    let said = refused(&["relay", "--listen", "127.0.0.1:0"]);
    assert_says(&said, &["--to <HOST:PORT>|--allow-to <NETWORK:PORTS>"]);
    let said = refused(&[
        "relay",
        "--listen",
        "127.0.0.1:0",
        "--to",
        "h:1",
        "--allow-to",
        "10.0.0.0/8:1",
    ]);
    assert_says(&said, &["--to", "cannot be used with", "--allow-to"]);
}

#[test]
fn all_that_would_do_is_named() {
    assert_says(&refused(&["trace"]), &["<FILE|--interface <DEVICE>>"]);
    assert_says(
        &refused(&["store", "thin"]),
        &["<--samples <AGE>|--documents <AGE>>"],
    );
    let said = refused(&["diff", "h", "--", "-C", "cubic"]);
    assert!(
        said.contains("--pairs <N>") && !said.contains("<B>\n"),
        "{said}"
    );
}

/// A result that was lost once ended with code 0.
#[test]
fn a_full_disk_under_standard_output() {
    for arguments in [
        &["calc", "--rtt", "100ms", "--bandwidth", "1G"][..],
        &["calc", "--help"],
        &["--version"],
    ] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let output = fullpipe(arguments).stdout(full).output().unwrap();
        assert_says(
            &sentence(&output, FAILED),
            &["standard output is not complete", "No space left"],
        );
    }
}

#[test]
fn nothing_where_something_must_be() {
    for (command, flags) in [
        ("simulate", &["--time", "--bytes"][..]),
        ("demo", &["--time"]),
        ("trace --interface lo", &["--time", "--bandwidth"]),
        ("diff h --pairs 2", &["--time"]),
        ("compare h", &["--timeout", "--bandwidth"]),
        ("sweep h", &["--max-bytes", "--bandwidth"]),
        ("measure h", &["--window", "--bandwidth"]),
        ("diagnose h", &["--bandwidth"]),
        ("lab run demo --capture x", &["--capture-size"]),
    ] {
        for flag in flags {
            let zero = format!("{flag}=0");
            assert_says(
                &refused(
                    &command
                        .split(' ')
                        .chain([zero.as_str()])
                        .collect::<Vec<_>>(),
                ),
                &[flag, "above 0"],
            );
        }
    }
    assert_says(
        &refused(&["simulate", "--jobs", "0"]),
        &["--jobs", "at least 1"],
    );
    assert_says(
        &refused(&["store", "list", "--limit", "0"]),
        &["--limit", "write a whole number from 1"],
    );
    for (command, flag, bounds) in [
        ("simulate --seed -1", "--seed", "a whole number from 0 to "),
        (
            "measure h -P 0",
            "--streams",
            "a whole number from 1 to 128",
        ),
        (
            "measure h -P many",
            "--streams",
            "a whole number from 1 to 128",
        ),
        (
            "measure h -p 70000",
            "--port",
            "a whole number from 1 to 65535",
        ),
        ("measure h -t 1e9", "--time", "at most 24h"),
        (
            "sweep h --streams x",
            "--streams",
            "two numbers from 1 to 128",
        ),
        (
            "diff h --pairs 1",
            "--pairs",
            "a whole number from 2 to 1000",
        ),
    ] {
        assert_says(
            &refused(&command.split(' ').collect::<Vec<_>>()),
            &[flag, bounds],
        );
    }
}

/// The JSON of these ended at the colon.
#[test]
fn what_is_missing_on_a_command_line_is_named_in_json_too() {
    for (arguments, names) in [
        (&["history", "--json"][..], "<HOST>"),
        (
            &["store", "thin", "--json"],
            "--samples <AGE>|--documents <AGE>",
        ),
        (
            &["simulate", "demo", "-t", "3", "--json"],
            "--time <SECONDS>",
        ),
    ] {
        let output = fail(&mut fullpipe(arguments));
        let error = &document(&output)["error"];
        assert_eq!(
            (output.status.code(), error["exit_code"].as_i64()),
            (Some(USAGE), Some(USAGE.into()))
        );
        assert!(
            error["message"].as_str().unwrap().contains(names),
            "{error}"
        );
    }
}

/// A flag that needs another one was accepted, and had no effect, next to what excludes that other
/// one.
#[test]
fn flags_without_an_effect() {
    let key = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(key.path(), "k".repeat(64)).unwrap();
    let key = key.path().display();
    for command in [
        "simulate --rtt 1ms --what-if congestion=bbr",
        "simulate demo --what-if congestion=bbr",
        "simulate --csv --trace-interval 1",
        "sweep h --budget 10% --order both",
        "lab run demo --virtual --capture-size 1M",
        "measure h --window 1M --no-gso",
        "measure h --blocking --dont-fragment",
        &format!("relay --listen :0 --allow-to 10.0.0.0/8:22 --key-file {key} --compress"),
        &format!("relay --listen :0 --allow-to 10.0.0.0/8:22 --key-file {key} --pool 3"),
        "diff a b --time 3",
        "diff a b --yes",
        "diff a b --port 3",
        "serve --one-off --share-port 3",
    ] {
        let said = refused(&command.split(' ').collect::<Vec<_>>());
        assert!(said.contains("cannot be used with"), "{command}: {said}");
    }
}

#[test]
fn a_name_with_escapes_is_part_of_one_line_that_commands_no_terminal() {
    let name = "e\u{1b}[31mvil\nname";
    for command in [
        "trace",
        "report",
        "simulate",
        "simulate --from",
        "calc --batch",
        "lab run --virtual",
    ] {
        let said = stated(&command.split(' ').chain([name]).collect::<Vec<_>>(), USAGE);
        assert_says(&said, &["e\\u{1b}[31mvil\\nname", "No such file"]);
    }
}

#[test]
fn an_interrupt_ends_who_waits_for_standard_input() {
    for arguments in [["simulate", "--from", "-"].as_slice(), &["trace", "-"]] {
        let mut program = fullpipe(arguments)
            .stdin(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let waits = || {
            std::fs::read_to_string(format!("/proc/{}/status", program.id()))
                .unwrap()
                .contains("State:\tS")
        };
        assert!(
            within(Duration::from_secs(10), waits),
            "{arguments:?}: it does not wait"
        );
        kill_process(Pid::from_child(&program), Signal::INT).unwrap();
        let ended = within(Duration::from_secs(10), || {
            program.try_wait().unwrap().is_some()
        });
        let _ = program.kill();
        assert!(ended, "{arguments:?}");
    }
}

#[test]
fn two_of_three_are_needed_to_calculate() {
    let said = stated(&["calc", "--rtt", "1ms"], USAGE);
    assert_says(&said, &["--bandwidth", "--window"]);
    assert_says(
        &refused(&["calc", "--rtt", "0ms", "--window", "1K"]),
        &["--rtt", "173ms"],
    );
}

#[test]
#[expect(clippy::too_many_lines, reason = "a list of cases")]
fn a_calculation_of_what_cannot_be() {
    // Each flag alone; clap names it, and the sentence says what is valid.
    let alone = [
        (
            "--bandwidth",
            [
                "0", "5ms", "-1", "nan", "inf", "1e30", "", "1M,", "2G..1G", "1..1T+1",
            ],
        ),
        (
            "--rtt",
            [
                "0s",
                "100Mbit/s",
                "-1ms",
                "nan",
                "3601s",
                "1e30s",
                "",
                "1ms,",
                "2s..1s",
                "5",
            ],
        ),
        (
            "--distance",
            [
                "0km", "5ms", "-1km", "nan", "inf", "1e30km", "", "1km,", "2km..1km", "8000",
            ],
        ),
        (
            "--window",
            [
                "0", "5ms", "-1", "nan", "inf", "1e30", "", "1M,", "2M..1M", "1..1T+1",
            ],
        ),
        (
            "--buffer",
            [
                "0", "5ms", "-1", "nan", "inf", "1e30", "", "1M,", "2M..1M", "1..1T+1",
            ],
        ),
        (
            "--loss",
            [
                "1", "5ms", "-1", "nan", "inf", "100%", "", "0,", "2%..1%", "0..1%",
            ],
        ),
        (
            "--mtu",
            [
                "0",
                "5ms",
                "-1",
                "nan",
                "inf",
                "67",
                "",
                "1500,",
                "9000..1500",
                "64K",
            ],
        ),
        (
            "--streams",
            [
                "0", "5ms", "-1", "nan", "inf", "10001", "", "1,", "4..1", "1.5",
            ],
        ),
        (
            "--congestion",
            [
                "",
                "a b",
                "a,",
                "bbr..cubic",
                "ä",
                "x;y",
                "a/b",
                "cubic,",
                ",",
                ".",
            ],
        ),
        (
            "--size",
            [
                "0", "5ms", "-1", "nan", "inf", "1e30", "", "1G,", "2G..1G", "1..1T+1",
            ],
        ),
    ];
    for (flag, values) in alone {
        for value in values {
            let said = refused(&["calc", &format!("{flag}={value}")]);
            assert_says(said.lines().next().unwrap(), &[flag, value, "write "]);
        }
    }
    let others = [
        ("--rate=0", "500Mbit/s"),
        ("--rate=5ms", "100Mbit/s"),
        ("--time=0", "60s"),
        ("--time=-1", "negative"),
        ("--what-if=speed=1", "the keys are bandwidth, rtt"),
        ("--what-if=rtt=0ms", "173ms"),
        ("--what-if=relay=far", "173ms"),
        ("--framing=atm", "`ethernet` or `ip`"),
        ("--tunnel=ssh", "`wireguard`"),
        ("--vlan=3", "from 0 to 2"),
        ("--kernel=linux", "5.15"),
        ("--sender=nosuch=1", "tcp_wmem"),
    ];
    for (argument, valid) in others {
        let said = refused(&["calc", argument]);
        assert_says(
            said.lines().next().unwrap(),
            &[argument.split('=').next().unwrap(), valid],
        );
    }
}

#[test]
fn arguments_of_a_calculation_that_contradict_each_other() {
    for (arguments, parts) in [
        (
            "--rtt 1ms --window 1M --buffer 1M",
            &["--window and --buffer"][..],
        ),
        (
            "--rtt 1ms --window 1M --rcvbuf 1M",
            &["--window and --rcvbuf"],
        ),
        (
            "--rtt 1ms -w 1M --rcvbuf 1M --sndbuf 1M",
            &["--buffer has no effect"],
        ),
        (
            "--rtt 1ms --bandwidth 1G --time 5",
            &["--time", "--size 10GiB"],
        ),
        (
            "--rtt 1ms --bandwidth 1G --time 5 --size 1G --rate 1M",
            &["--rate and --time"],
        ),
        ("--rtt 1ms,2ms --rate 1M", &["--rate", "one combination"]),
        (
            "--rtt 1ms --csv --what-if relay",
            &["--what-if", "one combination"],
        ),
        (
            "--rtt 100ms --bandwidth 1G --what-if relay=50ms",
            &["relay", "less than 50 ms"],
        ),
        (
            "--rtt 1us..100ms+1us --window 1K,1M",
            &["200000 combinations", "--csv"],
        ),
        ("--window 1K,1M", &["--rtt"]),
        ("--window 1K --csv", &["--rtt"]),
        (
            "--batch nosuch.csv --rtt 1ms",
            &["nosuch.csv", "No such file"],
        ),
    ] {
        let arguments: Vec<&str> = std::iter::once("calc")
            .chain(arguments.split(' '))
            .collect();
        assert_says(&stated(&arguments, USAGE), parts);
    }
    assert_says(
        &refused(&["calc", "--batch", "a.csv", "--csv"]),
        &["--batch", "--csv"],
    );
}

#[test]
fn a_batch_is_answered_up_to_its_first_bad_row() {
    let file = scenario("rows.csv", "bandwidth,rtt\n1G,100ms\n1G,0\n1G,1ms\n");
    let output = fail(&mut fullpipe(&[
        "calc",
        "--batch",
        &file,
        "--window",
        "64KiB,4MiB",
    ]));
    assert_says(
        &sentence(&output, USAGE),
        &["rows.csv", "line 3", "column rtt", "173ms"],
    );
    let printed = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = printed.lines().collect();
    assert_eq!(lines.len(), 3, "{printed}");
    assert_eq!(
        lines[0],
        "bandwidth,rtt,window,textbook_bps,kernel_model_bps,low_bps,high_bps,limit"
    );
    assert!(lines[1].starts_with("1G,100ms,65536,5242800,"), "{printed}");
}

#[test]
fn a_table_is_the_same_as_text_json_and_csv() {
    let table = [
        "calc",
        "--bandwidth",
        "1G",
        "--rtt",
        "10ms..200ms",
        "--window",
        "64KiB,1MiB,16MiB",
    ];
    let printed = |more: &[&str]| {
        let output = run(&mut fullpipe(&[&table[..], more].concat()), TIMEOUT);
        assert!(output.status.success() && output.stderr.is_empty());
        output
    };
    let text = String::from_utf8(printed(&[]).stdout).unwrap();
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
    let csv = String::from_utf8(printed(&["--csv"]).stdout).unwrap();
    let json = document(&printed(&["--json"]));
    let rows = json["table"].as_array().unwrap();
    assert_eq!(
        (text.lines().count(), csv.lines().count(), rows.len()),
        (16, 16, 15)
    );
    for (row, line) in rows.iter().zip(csv.lines().skip(1)) {
        let cells: Vec<&str> = line.split(',').collect();
        assert_eq!(row["kernel_model"].to_string(), cells[3]);
        assert_eq!(row["limit"].as_str(), Some(cells[6]));
    }
}

#[test]
fn scenarios_that_are_wrong() {
    let negative = scenario(
        "negative.toml",
        "name = \"n\"\ntitle = \"t\"\n[path]\nrate = \"-1Mbit/s\"\nrtt = \"10ms\"\n\n[[step]]\nname = \"a\"\n",
    );
    assert_says(
        &stated(&["lab", "run", &negative], USAGE),
        &["negative.toml:4:", "-1Mbit/s", "negative"],
    );
    let unknown = scenario(
        "unknown.toml",
        "name = \"n\"\ntitle = \"t\"\n[path]\nrate = \"1Mbit/s\"\nspeed = 3\n\n[[step]]\nname = \"a\"\n",
    );
    assert_says(
        &stated(&["lab", "run", &unknown], USAGE),
        &["unknown.toml:5:", "speed"],
    );
    let broken = scenario("broken.toml", "[path\n");
    assert_says(
        &stated(&["lab", "run", &broken], USAGE),
        &["broken.toml:1:"],
    );
}

#[test]
fn grids_that_are_wrong() {
    let negative = scenario(
        "grid.toml",
        "name = \"n\"\ntitle = \"t\"\nlongest = \"9s\"\n[[block]]\nrate = [\"-1Mbit/s\"]\nrtt = [\"10ms\"]\n",
    );
    assert_says(
        &stated(&["lab", "grid", &negative], USAGE),
        &["grid.toml:5:", "-1Mbit/s", "negative"],
    );
    assert_says(
        &stated(&["lab", "grid", "nosuch.toml"], USAGE),
        &["nosuch.toml", "No such file"],
    );
}

#[test]
fn a_scenario_that_is_missing() {
    for command in [
        &["lab", "run", "nosuch.toml"][..],
        &["lab", "exec", "nosuch.toml", "sender", "--", "true"],
    ] {
        assert_says(
            &stated(command, USAGE),
            &["nosuch.toml", "No such file", "elsen-window"],
        );
    }
}

#[test]
fn a_demo_of_what_cannot_be() {
    assert_says(
        &stated(&["demo", "--path", "rate=-1"], USAGE),
        &["--path", "rate", "negative"],
    );
    assert_says(
        &stated(&["demo", "--path", "speed=1"], USAGE),
        &["--path", "speed"],
    );
    assert_says(
        &stated(&["demo", "--path", "rtt=1e9s"], USAGE),
        &["--path", "rtt", "at most an hour"],
    );
    assert_says(
        &stated(&["demo", "--sender", "nosuch=1"], USAGE),
        &["--sender", "nosuch", "tcp_wmem"],
    );
    assert_says(
        &stated(&["demo", "--receiver", "tcp_rmem"], USAGE),
        &["--receiver", "tcp_rmem"],
    );
}

#[test]
fn a_congestion_control_that_does_not_exist() {
    const LACKING: i32 = 3;
    let server = FalseServer::start(Part::FallsSilentAfter(&[9, 10]));
    let port = server.port().to_string();
    let said = stated(
        &[
            "measure",
            "127.0.0.1",
            "-p",
            &port,
            "-t",
            "1",
            "-q",
            "-C",
            "nosuch",
        ],
        LACKING,
    );
    assert_says(&said, &["nosuch", "congestion control", "modprobe"]);
}

#[test]
fn a_server_that_is_not_iperf3() {
    let said = against(Part::Answers(b"HTTP/1.1 400 Bad Request\r\n\r\n"), &[]);
    assert_says(&said, &["127.0.0.1", "not as an iperf3 server"]);
    let said = against(Part::Says(b"SSH-2.0-OpenSSH_9.2p1\r\n"), &[]);
    assert_says(&said, &["127.0.0.1", "not as an iperf3 server"]);
}

#[test]
fn a_server_that_closes_at_once() {
    assert_says(&against(Part::HangsUp, &[]), &["127.0.0.1", "closed"]);
    assert_says(&against(Part::Answers(b""), &[]), &["127.0.0.1", "closed"]);
}

#[test]
fn a_server_that_is_busy() {
    assert_says(
        &against(Part::Answers(&[0xff]), &[]),
        &["127.0.0.1", "busy", "later"],
    );
}

#[test]
fn a_server_that_refuses() {
    let said = against(Part::Answers(&[0xfe, 0, 0, 0, 37, 0, 0, 0, 0]), &[]);
    assert_says(&said, &["127.0.0.1", "longer than its operator permits"]);
}

#[test]
fn a_server_that_stops_answering() {
    // They wait all at once: each does nothing but be silent.
    let silences: [(&'static [u8], &str, bool); 6] = [
        (&[], "first answer", false),
        (&[9], "parameters", false),
        (&[9, 10], "start", false),
        (&[9, 10, 1], "let data flow", false),
        (&[9, 10, 1, 2], "ending", true),
        (&[9, 10, 1, 2, 13], "results", true),
    ];
    let waiting: Vec<_> = silences
        .into_iter()
        .map(|(states, step, data_flowed)| {
            (
                thread::spawn(move || silent_after(states)),
                step,
                data_flowed,
            )
        })
        .collect();
    for (one, step, data_flowed) in waiting {
        let output = one.join().expect("a server that falls silent is given up");
        assert_says(
            &sentence(&output, FAILED),
            &["127.0.0.1", "gave up after", step],
        );
        // What was seen of the data is kept, and nothing else is printed.
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(!printed.is_empty(), data_flowed, "{step}: {printed}");
        assert_eq!(
            printed.contains("Broken off: "),
            data_flowed,
            "{step}: {printed}"
        );
    }
}

fn silent_after(states: &'static [u8]) -> Output {
    let server = FalseServer::start(Part::FallsSilentAfter(states));
    fail(&mut fullpipe(&[
        "measure",
        "127.0.0.1",
        "-t",
        "1",
        "-p",
        &server.port().to_string(),
    ]))
}

#[test]
fn a_port_that_is_taken() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let said = stated(&["serve", "-B", "127.0.0.1", "-p", &port], FAILED);
    assert_says(&said, &["cannot listen on", &port, "--port"]);
}

#[test]
fn an_address_that_is_not_ours() {
    assert_says(
        &stated(&["serve", "-B", "192.0.2.1"], FAILED),
        &["cannot listen on 192.0.2.1:5201"],
    );
}

#[test]
fn with_json_the_error_is_the_one_document() {
    let port = free_port().to_string();
    let calls: [(&[&str], i32); 6] = [
        (&["calc", "--rtt", "100Mbit/s", "--json"], USAGE),
        (&["calc", "--rtt", "1ms", "--json"], USAGE),
        (&["measure", "127.0.0.1", "-p", &port, "--json"], FAILED),
        (&["measure", "127.0.0.1", "-w", "3parsecs", "--json"], USAGE),
        (&["demo", "--path", "rate=-1", "--json"], USAGE),
        (&["lab", "run", "nosuch.toml", "--json"], USAGE),
    ];
    for (arguments, code) in calls {
        let output = fail(&mut fullpipe(arguments));
        let error = &document(&output)["error"];
        assert_eq!(error["exit_code"], code, "{arguments:?}");
        assert_eq!(error["message"], sentence(&output, code), "{arguments:?}");
    }
}

#[test]
fn with_json_lines_the_error_is_an_event() {
    let port = free_port().to_string();
    let output = fail(&mut fullpipe(&[
        "measure",
        "127.0.0.1",
        "-p",
        &port,
        "--json-lines",
    ]));
    assert_eq!(String::from_utf8_lossy(&output.stdout).lines().count(), 1);
    let event = document(&output);
    assert_eq!(
        (event["event"].as_str(), event["data"]["exit_code"].as_i64()),
        (Some("error"), Some(FAILED.into()))
    );
    assert_eq!(event["data"]["message"], sentence(&output, FAILED));
}

#[test]
fn calc_answers_what_the_equations_say() {
    let text = |arguments: &[&str]| {
        String::from_utf8(run(&mut fullpipe(arguments), TIMEOUT).stdout).unwrap()
    };
    assert!(
        text(&[
            "calc", "--kernel", "6.18", "--window", "64KiB", "--rtt", "173ms"
        ])
        .contains("gives 3.013 Mbit/s")
    );
    assert!(
        text(&["calc", "--bandwidth", "100Mbit/s", "--rtt", "173ms"]).contains("2162500 bytes")
    );

    let solved = |arguments: &[&str]| -> Value {
        let output = run(fullpipe(arguments).arg("--json"), TIMEOUT);
        assert!(output.status.success() && output.stderr.is_empty());
        document(&output)["calculation"].clone()
    };
    let rate = solved(&["calc", "--window", "64KiB", "--rtt", "173ms"]);
    // 65535 × 8 ÷ 0.173
    assert_eq!(
        (
            rate["solved"].as_str(),
            rate["prediction"]["textbook"].as_u64()
        ),
        (Some("rate"), Some(3_030_520))
    );
    assert_eq!(rate["rate"], rate["prediction"]["kernel_model"]);
    let window = solved(&["calc", "--bandwidth", "100Mbit/s", "--rtt", "173ms"]);
    // 100 × 10⁶ × 0.173 ÷ 8
    assert_eq!(
        (window["solved"].as_str(), window["window"].as_u64()),
        (Some("window"), Some(2_162_500))
    );
}

#[test]
fn a_reader_that_goes_away_is_no_panic() {
    for arguments in [
        &["schema"][..],
        &["lab", "list"],
        &["calc", "--window", "64KiB", "--rtt", "173ms"],
        &["--help"],
    ] {
        let mut child = fullpipe(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        // A small buffer takes one line and leaves the rest to fill the pipe or to find it broken.
        BufReader::with_capacity(16, child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let begun = Instant::now();
        let output = child.wait_with_output().unwrap();
        assert!(begun.elapsed().as_secs() < TIMEOUT, "{arguments:?}");
        assert!(
            !line.is_empty() && output.stderr.is_empty(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        assert!(output.status.success(), "{arguments:?}: {}", output.status);
    }
}

#[test]
fn a_server_that_falls_silent_while_it_should_send_is_given_up() {
    // The false server goes through its states and then says no more, on no connection.
    let server = FalseServer::start(Part::FallsSilentAfter(&[9, 10, 1, 2]));
    let port = server.port().to_string();
    let silent = [
        "measure",
        "127.0.0.1",
        "-p",
        &port,
        "-R",
        "-t",
        "20",
        "--rcv-timeout",
        "300",
        "-q",
    ];
    // What there was is printed nevertheless.
    assert_says(
        &sentence(&fail(&mut fullpipe(&silent)), FAILED),
        &["no data came from 127.0.0.1"],
    );
}
