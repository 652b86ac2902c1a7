//! `measure -A nic`, and a server named with its port.

use crate::common::{fullpipe, run};
use fullpipe_testkit::{
    Running, document, free_port, loopback_addresses, sentence, wait_for_listener,
};

#[test]
fn over_loopback_no_processor_is_nearer_and_the_record_says_so() {
    let port = free_port();
    let _server = Running::start(&mut fullpipe(&["serve", "-p", &port.to_string()]));
    wait_for_listener(port);
    let port = port.to_string();
    for target in loopback_addresses(module_path!()) {
        let output = run(
            &mut fullpipe(&[
                "measure", target, "-p", &port, "-A", "nic", "-t", "0.2", "-b", "10M", "--json",
            ]),
            60,
        );
        let placement = document(&output)["measurement"]["local"]["placement"].clone();
        assert_eq!(
            (&placement["device"], &placement["processors"]),
            (&"lo".into(), &serde_json::json!([]))
        );
        assert!(
            placement["why_not"]
                .as_str()
                .is_some_and(|why| why.contains("no card")),
            "{placement}"
        );
    }
}

#[test]
fn two_ports_are_one_too_many() {
    let output = run(
        &mut fullpipe(&["measure", "localhost:5301", "-p", "5302"]),
        10,
    );
    assert!(sentence(&output, 2).contains("port 5301 and --port 5302"));
}
