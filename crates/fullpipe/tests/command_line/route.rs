//! `measure --route` through a chain of routers, each a network namespace.

use std::process::{Command, Output};
use std::time::{Duration, Instant};

use crate::common::{fullpipe, run};
use fullpipe_testkit::{
    Running, document, free_port, loopback_addresses, require, wait_for_listener,
};
use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_fullpipe");
const TIMEOUT: u64 = 60;

/// Builds client – r1 – r2 – r3 – server with pairs of devices; the client is in the namespace in
/// which the script begins. Link n is `10.0.n.0/24` and `fd00:n::/64`; the node nearer to the
/// client is 1 on it. Duplicate address detection is off, so that neighbours are found at once.
const CHAIN: &str = "
set -e
mount -t tmpfs tmpfs /run
no_dad() { $1 sh -c 'for kind in all default; do echo 0 > /proc/sys/net/ipv6/conf/$kind/accept_dad; done'; }
no_dad
ip link set lo up
for node in r1 r2 r3 server; do ip netns add $node; no_dad \"ip netns exec $node\"; ip -n $node link set lo up; done
link() {
    ip link add a$1 type veth peer name b$1
    if [ $2 = client ]; then near=; else ip link set a$1 netns $2; near=\"-n $2\"; fi
    ip link set b$1 netns $3
    ip $near address add 10.0.$1.1/24 dev a$1
    ip $near address add fd00:$1::1/64 dev a$1 nodad
    ip -n $3 address add 10.0.$1.2/24 dev b$1
    ip -n $3 address add fd00:$1::2/64 dev b$1 nodad
    ip $near link set a$1 up
    ip -n $3 link set b$1 up
}
link 1 client r1; link 2 r1 r2; link 3 r2 r3; link 4 r3 server
for node in r1 r2 r3; do
    ip netns exec $node sh -c 'echo 1 > /proc/sys/net/ipv4/ip_forward; echo 1 > /proc/sys/net/ipv6/conf/all/forwarding'
done
there() { ip $1 route add default via 10.0.$2.2; ip $1 route add default via fd00:$2::2; }
back() { ip -n $1 route add 10.0.1.0/24 via 10.0.$2.1; ip -n $1 route add fd00:1::/64 via fd00:$2::1; }
there '' 1; there '-n r1' 2; there '-n r2' 3
back server 4; back r3 3; back r2 2
";

fn measured(change: &str, starter: &str, arguments: &str) -> (Output, Duration) {
    run_in_chain(change, starter, &format!("measure {arguments}"))
}

/// Changes the chain with the commands `change`, runs `fullpipe` with `arguments` in it, and
/// returns its output and the time that it took.
fn run_in_chain(change: &str, starter: &str, arguments: &str) -> (Output, Duration) {
    // The port in hexadecimal and the state of a socket that listens, as in /proc/net/tcp6.
    let script = format!(
        "{CHAIN}\n{change}\nip netns exec server {PROGRAM} serve >/dev/null 2>&1 &
         n=0; until ip netns exec server grep -q ':1451 .* 0A ' /proc/net/tcp6 || [ $n -gt 200 ]; do
         sleep 0.05; n=$((n+1)); done
         exec {starter} {PROGRAM} {arguments}"
    );
    let mut command = Command::new("unshare");
    // What is left ends with the program that measures, and the networks with it.
    command.args([
        "--net",
        "--mount-proc",
        "--pid",
        "--fork",
        "--kill-child",
        "sh",
        "-c",
        &script,
    ]);
    let begun = Instant::now();
    (run(&mut command, TIMEOUT), begun.elapsed())
}

fn route(change: &str, starter: &str, target: &str) -> Value {
    let load = format!("{target} -t 0.2 -b 10M --route --json");
    document(&measured(change, starter, &load).0)["measurement"]["route"].clone()
}

/// Returns the addresses that answered at each hop.
fn addresses(route: &Value) -> Vec<String> {
    let hops = route["hops"]
        .as_array()
        .unwrap_or_else(|| panic!("{route}"));
    let names = |hop: &Value| {
        let names = hop["addresses"]
            .as_array()
            .unwrap()
            .iter()
            .map(|name| name.as_str().unwrap().to_owned());
        names.collect::<Vec<_>>().join(" ")
    };
    hops.iter().map(names).collect()
}

const OPEN_PING_SOCKETS: &str = "echo '0 2147483647' > /proc/sys/net/ipv4/ping_group_range";
const CLOSED_PING_SOCKETS: &str = "echo '1 0' > /proc/sys/net/ipv4/ping_group_range";
const AS_NOBODY: &str = "setpriv --reuid 65534 --regid 65534 --clear-groups";

#[test]
fn three_routers_and_the_target_are_found_in_order_by_whatever_is_permitted() {
    require!(Root, Unshare);
    for (target, expected) in [
        ("10.0.4.2", ["10.0.1.2", "10.0.2.2", "10.0.3.2", "10.0.4.2"]),
        (
            "fd00:4::2",
            ["fd00:1::2", "fd00:2::2", "fd00:3::2", "fd00:4::2"],
        ),
    ] {
        let kinds = [
            (OPEN_PING_SOCKETS, AS_NOBODY, "icmp-echo"),
            (CLOSED_PING_SOCKETS, "", "icmp-echo"),
            (CLOSED_PING_SOCKETS, AS_NOBODY, "udp"),
        ];
        for (sockets, starter, method) in kinds {
            let route = route(sockets, starter, target);
            assert_eq!(
                (&route["method"], &route["target"]),
                (&method.into(), &target.into())
            );
            assert_eq!(addresses(&route), expected, "{method}: {route}");
            assert_eq!(route["reached"], true);
            for hop in route["hops"].as_array().unwrap() {
                let rtts = hop["rtts"].as_array().unwrap();
                assert!(
                    !rtts.is_empty()
                        && rtts
                            .iter()
                            .all(|rtt| rtt.as_f64().is_some_and(|rtt| rtt > 0.0)),
                    "{hop}"
                );
            }
            assert_eq!(
                route["mtu"],
                serde_json::json!({"size": 1500, "answered": true}),
                "{target} {method}: {route}"
            );
        }
    }
}

#[test]
fn a_narrow_link_is_found_with_the_router_before_it() {
    require!(Root, Unshare);
    let change = format!(
        "{OPEN_PING_SOCKETS}; ip -n r2 link set a3 mtu 1400; ip -n r3 link set b3 mtu 1400"
    );
    for (target, router) in [("10.0.4.2", "10.0.2.2"), ("fd00:4::2", "fd00:2::2")] {
        for starter in ["", AS_NOBODY] {
            let route = route(&change, starter, target);
            assert_eq!(
                route["mtu"],
                serde_json::json!({"size": 1400, "answered": true, "reported_by": router}),
                "{route}"
            );
        }
    }
}

#[test]
fn a_router_that_says_nothing_keeps_its_place_and_is_distinguished_from_one_that_drops() {
    require!(Root, Unshare);
    let silent =
        format!("{OPEN_PING_SOCKETS}; ip netns exec r2 sysctl -q net.ipv4.icmp_ratelimit=600000");
    let seen = route(&silent, "", "10.0.4.2");
    assert_eq!(
        addresses(&seen),
        ["10.0.1.2", "", "10.0.3.2", "10.0.4.2"],
        "{seen}"
    );
    assert_eq!(
        (&seen["hops"][1]["rtts"], &seen["reached"]),
        (&serde_json::json!([]), &true.into())
    );

    // Echo requests end in the second router; the test itself goes to another address of the
    // server.
    let drops = format!(
        "{OPEN_PING_SOCKETS}; ip -n r2 rule add ipproto icmp to 10.0.4.2 table 9; \
         ip -n r2 route add blackhole default table 9"
    );
    let seen = route(&drops, "", "10.0.4.2");
    assert_eq!(addresses(&seen), ["10.0.1.2"], "{seen}");
    assert_eq!(
        (&seen["reached"], &seen["mtu"]),
        (&false.into(), &Value::Null)
    );

    let refuses = drops.replace("blackhole", "prohibit");
    let seen = route(&refuses, "", "10.0.4.2");
    assert_eq!(addresses(&seen), ["10.0.1.2", "10.0.2.2"], "{seen}");
    assert_eq!(
        (&seen["reached"], &seen["hops"][1]["refusal"]),
        (&false.into(), &"prohibited".into())
    );
}

#[test]
fn a_route_is_reported_in_eighty_columns_even_where_there_is_no_server() {
    require!(Root, Unshare);
    let (output, took) = measured(OPEN_PING_SOCKETS, "", "fd00:4::2 -t 0.2 --route");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains("Route to fd00:4::2") && text.contains("fd00:4::2 is 4 hops away."),
        "{text}"
    );
    assert!(
        text.contains("Packets of up to 1500 bytes pass: this host's own device takes no more."),
        "{text}"
    );
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
    assert!(took < Duration::from_secs(20), "{took:?}");

    let nobody = format!("{OPEN_PING_SOCKETS}; ip -n r3 route add blackhole 10.0.9.9");
    let (output, _) = measured(&nobody, "", "10.0.9.9 --route --connect-timeout 300");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        !output.status.success()
            && text.contains("does not answer, nor does any router behind hop 2."),
        "{text}"
    );
}

/// The second router's firewall removes the option from what it forwards, after it has counted the
/// hop.
const FIREWALL: &str = "ip netns exec r2 nft 'add table inet t; \
    add chain inet t c { type filter hook forward priority 0; }; \
    add rule inet t c tcp flags syn reset tcp option window'";

#[test]
fn a_firewall_that_removes_scaling_is_found_between_two_routers_without_privilege() {
    require!(Root, Unshare, Nft);
    for (target, routers) in [
        ("10.0.4.2", ["10.0.1.2", "10.0.2.2", "10.0.3.2"]),
        ("fd00:4::2", ["fd00:1::2", "fd00:2::2", "fd00:3::2"]),
    ] {
        for flags in ["-t 0.3 --json", "-t 0.3 --json -R"] {
            let (output, took) = measured(FIREWALL, AS_NOBODY, &format!("{target} {flags}"));
            let measurement = document(&output)["measurement"].clone();
            let quoted = measurement["local"]["sockets"][0]["syn_quotes"]
                .as_array()
                .cloned()
                .unwrap_or_default();
            let by: Vec<&str> = quoted
                .iter()
                .filter_map(|quoted| quoted["by"].as_str())
                .collect();
            assert_eq!(by, routers, "{measurement}");
            let scaled: Vec<bool> = quoted
                .iter()
                .map(|quoted| quoted["window_scale"].is_u64())
                .collect();
            assert_eq!(scaled, [true, true, false], "{quoted:?}");
            let stated = measurement["limit"]["evidence"]["SYN as quoted by routers"]
                .as_str()
                .unwrap_or_default();
            assert!(
                stated.contains(&format!("at {}; no scale, MSS", routers[1])),
                "{}",
                measurement["limit"]
            );
            assert!(took < Duration::from_secs(20), "{took:?}");
        }
    }
    let (output, _) = measured("", AS_NOBODY, "10.0.4.2 -t 0.2 --json");
    let quoted = &document(&output)["measurement"]["local"]["sockets"][0]["syn_quotes"];
    assert!(
        quoted.is_null(),
        "nothing was changed, and nobody asked: {quoted}"
    );
}

#[test]
fn a_firewall_is_found_that_changes_the_syn_of_a_program_which_was_started_to_be_watched() {
    require!(Root, Unshare, Nft);
    let watched = format!("-- {PROGRAM} measure 10.0.4.2 -t 0.5");
    let quotes = |change: &str| {
        let (output, took) = run_in_chain(change, AS_NOBODY, &format!("diagnose --json {watched}"));
        assert!(took < Duration::from_secs(20), "{took:?}");
        let evidence = document(&output)["diagnosis"]["transfers"][0]["evidence"].clone();
        assert!(evidence.is_object(), "{output:?}");
        evidence["sender_sockets"][0]["syn_quotes"].clone()
    };
    let quoted = quotes(FIREWALL);
    let scaled: Vec<bool> = quoted
        .as_array()
        .unwrap()
        .iter()
        .map(|quote| quote["window_scale"].is_u64())
        .collect();
    assert_eq!(scaled, [true, true, false], "{quoted}");
    assert!(quotes("").is_null(), "nothing was changed");
}

#[test]
fn loopback_is_one_hop() {
    let port = free_port().to_string();
    let _server = Running::start(&mut fullpipe(&["serve", "-p", &port]));
    wait_for_listener(port.parse().unwrap());
    for target in loopback_addresses(module_path!()) {
        let arguments = [
            "measure", target, "-p", &port, "-t", "0.2", "-b", "10M", "--route", "--json",
        ];
        let route =
            document(&run(&mut fullpipe(&arguments), TIMEOUT))["measurement"]["route"].clone();
        assert_eq!(
            (addresses(&route), &route["reached"]),
            (vec![target.to_owned()], &true.into()),
            "{route}"
        );
        assert_eq!(
            route["mtu"],
            serde_json::json!({"size": 65_535, "answered": true}),
            "{route}"
        );
    }
}
