//! The tool of pScheduler: its executables with the JSON that pScheduler hands over, over loopback.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;

use fullpipe_testkit::{Running, assert_says, document, free_port, load_slot};
use jiff::Timestamp;
use serde_json::{Value, json};

/// Gives `input` to an executable of the tool.
fn tool(name: &str, input: &str) -> Output {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib/pscheduler");
    let mut command = Command::new(folder.join(name));
    command.env("FULLPIPE", env!("CARGO_BIN_EXE_fullpipe"));
    command
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("XDG_DATA_HOME", "/dev/null/none");
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // One that refuses reads no further.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

/// Returns what an executable answers.
fn answer(name: &str, input: &Value) -> Value {
    let output = tool(name, &input.to_string());
    assert!(output.status.success(), "{name}: {output:?}");
    document(&output)
}

fn throughput(more: &Value) -> Value {
    let mut spec =
        json!({"schema": 1, "dest": "127.0.0.1", "duration": "PT2S", "bandwidth": 20_000_000});
    spec.as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    json!({"type": "throughput", "spec": spec})
}

/// Runs both ends of a test, as the two hosts of a mesh do, and returns the merged result.
fn run_both_ends(test: &Value) -> Value {
    let mut server = answer("participant-data", &json!({"participant": 1}));
    server["port"] = json!(free_port());
    let end = |participant: u8| {
        json!({
            "participant": participant,
            "participant-data": [answer("participant-data", &json!({"participant": 0})), server],
            "schedule": {"start": Timestamp::now().to_string(), "duration": "PT13S"},
            "test": test,
        })
    };
    let [measuring, serving] = [end(0), end(1)];
    let results = thread::scope(|scope| {
        let served = scope.spawn(|| answer("run", &serving));
        let measured = answer("run", &measuring);
        [measured, served.join().unwrap()]
    });
    assert_eq!(results[1]["succeeded"], true, "{results:?}");
    answer("merged-results", &json!({"test": test, "results": results}))
}

/// Holds a result against pScheduler's schema of throughput: its fields, and that numbers are
/// numbers.
fn assert_is_result(result: &Value) {
    let known = ["schema", "succeeded", "diags", "intervals", "summary"];
    assert_eq!(result["succeeded"], true, "{result}");
    assert!(
        result
            .as_object()
            .unwrap()
            .keys()
            .all(|key| known.contains(&key.as_str())),
        "{result}"
    );
    let all = result["intervals"]
        .as_array()
        .unwrap()
        .iter()
        .chain([&result["summary"]]);
    for one in all {
        let streams = one["streams"].as_array().unwrap();
        assert!(
            streams.iter().all(|stream| stream["stream-id"].is_u64()),
            "{one}"
        );
        for rates in streams.iter().chain([&one["summary"]]) {
            for name in ["start", "end", "throughput-bits", "throughput-bytes"] {
                assert!(rates[name].is_number(), "{name} of {rates}");
            }
            assert!(
                rates
                    .as_object()
                    .unwrap()
                    .values()
                    .all(|value| !value.is_null()),
                "{rates}"
            );
        }
    }
}

#[test]
fn a_test_between_two_participants_has_rates_and_the_verdict() {
    let _slot = load_slot();
    let result = run_both_ends(&throughput(&json!({"source": "127.0.0.1", "parallel": 2})));
    assert_is_result(&result);
    let summary = &result["summary"]["summary"];
    for rate in ["throughput-bits", "receiver-throughput-bits"] {
        let rate = summary[rate].as_f64().unwrap();
        assert!((36e6..44e6).contains(&rate), "{summary}");
    }
    assert_eq!(result["summary"]["streams"].as_array().unwrap().len(), 2);
    assert_eq!(result["intervals"].as_array().unwrap().len(), 2);
    let verdict = &result["summary"]["fullpipe"];
    assert_eq!(
        [&verdict["kind"], &verdict["cause"]],
        ["sender-application", "rate-limited"]
    );
    assert_eq!(verdict["remedies"], json!(["higher-rate"]));
    assert!(
        (0.5..=1.0).contains(&verdict["confidence"].as_f64().unwrap()),
        "{verdict}"
    );
    let diags = result["diags"].as_str().unwrap();
    assert_says(
        diags,
        &[
            "asked for 40 Mbit/s",
            "sender-application/rate-limited at sender",
            "Remedies: higher-rate",
        ],
    );
}

#[test]
fn datagrams_and_the_other_direction_are_tests_too() {
    let _slot = load_slot();
    let datagrams = run_both_ends(&throughput(
        &json!({"udp": true, "reverse": true, "buffer-length": 1200}),
    ));
    assert_is_result(&datagrams);
    let summary = &datagrams["summary"]["summary"];
    let sent = summary["sent"].as_u64().unwrap();
    assert!(
        sent > 3000 && summary["lost"].as_u64().unwrap() < sent && summary["jitter"].is_number(),
        "{summary}"
    );
}

#[test]
fn a_test_of_one_end_measures_to_a_server_that_is_there() {
    let _slot = load_slot();
    let port = free_port();
    let mut server = Command::new(env!("CARGO_BIN_EXE_fullpipe"));
    server.args([
        "serve",
        "--no-iperf2",
        "--bind",
        "127.0.0.1",
        "--port",
        &port.to_string(),
    ]);
    let _server = Running::start(&mut server);
    fullpipe_testkit::wait_for_listener(port);
    let test = throughput(&json!({"single-ended": true, "single-ended-port": port}));
    let run = |port: u16| {
        let mut test = test.clone();
        test["spec"]["single-ended-port"] = json!(port);
        answer(
            "run",
            &json!({
                "participant": 0,
                "participant-data": [{}],
                "schedule": {"start": Timestamp::now().to_string()},
                "test": test,
            }),
        )
    };
    assert_is_result(&answer("merged-results", &json!({"results": [run(port)]})));
    let nobody = run(free_port());
    assert_eq!(nobody["succeeded"], false);
    assert_says(
        nobody["error"].as_str().unwrap(),
        &["fullpipe: ", "refused"],
    );
}

#[test]
fn the_tool_says_what_it_is_what_it_can_and_how_long_that_takes() {
    let listed = answer("enumerate", &json!({}));
    assert_eq!(
        (&listed["name"], &listed["tests"]),
        (&json!("fullpipe"), &json!(["throughput"]))
    );
    assert_eq!(
        answer("can-run", &throughput(&json!({}))),
        json!({"can-run": true})
    );
    let duration = answer("duration", &throughput(&json!({"omit": "PT1M1.5S"})));
    assert_eq!(duration["duration"], "PT75S");
    let unknown = throughput(&json!({"burst-size": 3, "loopback": true}));
    let reasons = answer("can-run", &unknown)["reasons"].to_string();
    assert_says(
        &reasons,
        &["does not support burst-size", "does not support loopback"],
    );
}

#[test]
fn what_is_no_option_never_comes_to_the_program() {
    for (name, value) in [
        ("dest", json!("--key-file=/etc/shadow")),
        ("dest", json!("ssh://root@host")),
        ("dest", json!("ndt7://host/")),
        ("dest", json!("127.0.0.1:22")),
        ("dest", json!("a b")),
        ("dest", json!("a\n-R")),
        ("dest", json!(7)),
        ("dest", json!("")),
        ("source", json!("-e sh")),
        ("congestion", json!("--sudo")),
        ("parallel", json!(true)),
        ("parallel", json!(100_000)),
        ("parallel", json!("2; id")),
        ("bandwidth", json!(-1)),
        ("bandwidth", json!(1e300)),
        ("duration", json!("PT999999H")),
        ("duration", json!("P")),
        ("duration", json!("10")),
        ("reverse", json!("yes")),
        ("schema", json!(99)),
        ("single-ended-port", json!(0)),
        ("window-size", json!([1])),
        ("ssh", json!("sh")),
    ] {
        let test = throughput(&json!({ name: value }));
        let can_run = answer("can-run", &test);
        assert_eq!(can_run["can-run"], false, "{name}={value}");
        assert_says(&can_run["reasons"].to_string(), &[name]);
        let refused = tool("run", &json!({"participant": 0, "test": test}).to_string());
        assert_eq!(refused.status.code(), Some(1), "{name}={value}");
        assert_says(
            &String::from_utf8_lossy(&refused.stderr),
            &["fullpipe: ", name],
        );
    }
}

#[test]
fn input_that_is_none_ends_every_executable_with_a_sentence() {
    let deep = "[".repeat(100_000);
    let long = format!("{{\"a\":\"{}\"}}", "x".repeat(2 << 20));
    let whole = json!({
        "participant": 0,
        "participant-data": [{}, {"port": 5201, "_key": "0".repeat(64)}],
        "schedule": {"start": Timestamp::now().to_string()},
        "test": throughput(&json!({})),
    });
    for name in [
        "can-run",
        "duration",
        "participant-data",
        "run",
        "merged-results",
    ] {
        for input in ["", "{", "null", "[]", "7", &deep, &long] {
            let refused = tool(name, input);
            let said = String::from_utf8_lossy(&refused.stderr);
            assert_eq!(refused.status.code(), Some(1), "{name} {said}");
            assert!(
                said.starts_with("fullpipe: ") && said.lines().count() == 1,
                "{name}: {said}"
            );
        }
    }
    for (field, value) in [
        ("participant", json!(2)),
        ("participant", json!("0")),
        ("participant-data", json!([])),
        (
            "participant-data",
            json!([{}, {"port": "--x", "_key": "0".repeat(64)}]),
        ),
        (
            "participant-data",
            json!([{}, {"port": 5201, "_key": "../../etc/passwd"}]),
        ),
        ("participant-data", json!([{}, {"port": 5201}])),
        ("schedule", json!({"start": "2200-01-01T00:00:00Z"})),
        ("schedule", json!({"start": 7})),
        ("schedule", json!(null)),
        ("test", json!({"type": "rtt", "spec": {}})),
    ] {
        let mut input = whole.clone();
        input[field] = value;
        let refused = tool("run", &input.to_string());
        let said = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(1), "{field} {said}");
        assert!(
            said.starts_with("fullpipe: ") && said.lines().count() == 1,
            "{field}: {said}"
        );
    }
}
