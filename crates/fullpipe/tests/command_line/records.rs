//! Records of measurements: what was asked, what was done, by whom, and how much.

use crate::common::{fullpipe, run};
use fullpipe_testkit::{Running, document, free_port, wait_for_listener};
use serde_json::{Value, json};

fn measured(arguments: &[&str]) -> Value {
    let port = free_port();
    let _server = Running::start(&mut fullpipe(&["serve", "-p", &port.to_string()]));
    wait_for_listener(port);
    let mut command = fullpipe(&["measure", "127.0.0.1", "-p", &port.to_string(), "--json"]);
    let document = document(&run(command.args(arguments), 30));
    assert_eq!(
        (&document["schema"], &document["kind"]),
        (&json!(2), &json!("measurement"))
    );
    document["measurement"].clone()
}

#[test]
fn a_window_is_recorded_as_asked_and_as_carried_out() {
    let measurement = measured(&["--window", "64KiB", "-n", "1M"]);
    assert_eq!(measurement["request"]["buffer"], json!({ "window": 65536 }));
    let carried_out = &measurement["resolved"]["buffer"]["request"];
    assert!(
        carried_out.as_u64().is_some_and(|request| request < 65536),
        "{carried_out}"
    );
    assert_eq!(measurement["request"]["block"], 0, "left to the program");
    assert_eq!(measurement["resolved"]["block"], 1 << 20);
}

#[test]
fn bytes_are_counted_from_the_end_of_the_omitted_time() {
    for way in [&[][..], &["-R"], &["--bidir"], &["-u"]] {
        let measurement = measured(&[&["-n", "200K", "-O", "0.3", "-b", "8M"], way].concat());
        let summary = &measurement["summary"];
        let sent = summary["sent"].as_u64().unwrap();
        // What is under way when the counting begins counts at one end only.
        assert!((180_000..600_000).contains(&sent), "{way:?}: {summary}");
        let first = &measurement["intervals"][0];
        assert_eq!(first["omitted"], true, "{first}");
        let to = first["to"].as_f64().unwrap();
        assert!(
            (0.3..0.6).contains(&to),
            "the first interval ends with the omitted time: {to}"
        );
    }
}

#[test]
fn a_measurement_knows_itself_its_hosts_and_its_whole_extent() {
    let measurement = measured(&["-t", "0.5", "-O", "0.3", "-P", "2"]);
    let id = measurement["id"].as_str().unwrap();
    assert!(id.len() == 36 && &id[14..15] == "7", "{id}");
    let hosts = [
        &measurement["local"]["host"],
        &measurement["remote"]["host"],
    ];
    assert!(
        hosts[0]["kernel"].is_string() && hosts[0]["kernel"] == hosts[1]["kernel"],
        "{hosts:?}"
    );
    // Name and boot of a server are for clients that it knows.
    assert!(
        hosts[0]["boot_id"].is_string() && hosts[1]["boot_id"].is_null() && hosts[1]["name"] == "",
        "{hosts:?}"
    );
    let run = &measurement["run"];
    assert!(run["wall"].as_f64().unwrap() > 0.8, "{run}");
    assert!(
        run["written"].as_u64() > measurement["summary"]["sent"].as_u64() && run["read"] == 0,
        "{run}"
    );
    assert_eq!(measurement["local"]["thinning"]["kept_every"], 1);
    let web100 = &measurement["web100"];
    assert_eq!(web100["streams"].as_array().unwrap().len(), 2);
    let unknown: Vec<&String> = web100["sum"]
        .as_object()
        .unwrap()
        .iter()
        .filter(|(_, value)| value.is_null())
        .map(|(name, _)| name)
        .collect();
    // Linux returns the advertised window since 6.2.
    assert!(
        unknown.iter().all(|name| name.contains("Rwin")),
        "{unknown:?}"
    );
    assert!(web100["sum"]["PktsOut"].as_u64() >= web100["streams"][0]["PktsOut"].as_u64());
}
