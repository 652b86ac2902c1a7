use fullpipe_record::IMPAIRMENTS;
use fullpipe_scenario::{Scenario, builtin_scenarios};
use proptest::prelude::*;

const GOOD: &str = r#"name = "n"
title = "t"
[path]
rate = "100M"
rtt = "10ms"
queue = "1bdp"
[path.reverse]
mtu = 1500
[sender]
tcp_wmem = "64M"
[[step]]
name = "a"
window = "64K"
kernel_model = { within = "5%" }
[[step]]
name = "b"
[[bound]]
ratio = ["a", "b"]
expect = 2
within = "5%"
"#;

/// Returns `sentence` with the keys of all impairments in the place of `EFFECTS`.
fn with_effects(sentence: &str) -> String {
    let keys: Vec<_> = IMPAIRMENTS
        .iter()
        .flat_map(|impairment| impairment.keys)
        .map(|key| key.name)
        .collect();
    sentence.replace("EFFECTS", &keys.join(", "))
}

/// Returns the error when `old`, of which there is one, is replaced by `new`.
fn stated(old: &str, new: &str) -> String {
    assert_eq!(GOOD.matches(old).count(), 1, "{old}");
    Scenario::parse("x.toml", &GOOD.replace(old, new))
        .unwrap_err()
        .to_string()
}

#[test]
#[expect(clippy::too_many_lines, reason = "a list of cases")]
fn bad_values_are_reported_with_their_place() {
    Scenario::parse("x.toml", GOOD).unwrap();
    for (old, new, sentence) in [
        (
            "\"100M\"",
            "\"-1G\"",
            "x.toml:4:8: rate: \"-1G\" is not a rate: it must not be negative; write for example 100Mbit/s or 1G",
        ),
        (
            "\"100M\"",
            "0",
            "x.toml:4:8: rate: \"0\" is not the rate of a path: nothing would ever arrive",
        ),
        (
            "\"100M\"",
            "[1]",
            "x.toml:4:8: rate: it must be one text, decimal number, true or false",
        ),
        (
            "rtt = \"10ms\"",
            "rtt = 10",
            "x.toml:5:7: rtt: \"10\" is not a time: the unit is missing; write for example 173ms, 50us or 10s",
        ),
        (
            "mtu = 1500",
            "mtu = 0",
            "x.toml:8:7: mtu: \"0\" is not an MTU: it must be from 68 to 65535 B",
        ),
        (
            "mtu = 1500",
            "mtu = 67",
            "x.toml:8:7: mtu: \"67\" is not an MTU: it must be from 68 to 65535 B",
        ),
        (
            "mtu = 1500",
            "mtu = '64K'",
            "x.toml:8:7: mtu: \"64K\" is not an MTU: it must be from 68 to 65535 B",
        ),
        (
            "mtu = 1500",
            "loss = '100%'",
            "x.toml:8:8: loss: \"100%\" is not the loss of a path: it must be below 100 %",
        ),
        (
            "mtu = 1500",
            "framing = 'atm'",
            "x.toml:8:11: framing: \"atm\" is not a framing: write ethernet or ip",
        ),
        (
            "\"1bdp\"",
            "\"7 apples\"",
            "x.toml:6:9: queue: \"7 apples\" is not a queue: write for example 1bdp, 64KiB, 100packets or 20ms",
        ),
        (
            "\"1bdp\"",
            "\"-1bdp\"",
            "x.toml:6:9: queue: \"-1bdp\" is not a queue: write for example 1bdp, 64KiB, 100packets or 20ms",
        ),
        (
            "\"64M\"",
            "\"2G\"",
            "x.toml:10:12: tcp_wmem: \"2G\" is not the size of a buffer: it must be above 0 and below 2 GiB",
        ),
        (
            "tcp_wmem = \"64M\"",
            "tcp_moderate_rcvbuf = 2",
            "x.toml:10:23: tcp_moderate_rcvbuf: \"2\" is not a switch: write on or off",
        ),
        (
            "\"64K\"",
            "0",
            "x.toml:13:10: window: \"0\" is not a window of TCP: it must be from 1 to 1073725440 B",
        ),
        (
            "\"64K\"",
            "\"1G\"",
            "x.toml:13:10: window: \"1G\" is not a window of TCP: it must be from 1 to 1073725440 B",
        ),
        (
            "window = \"64K\"",
            "buffer = 0",
            "x.toml:13:10: buffer: \"0\" is not the size of a buffer: it must be above 0 and below 2 GiB",
        ),
        (
            "window = \"64K\"",
            "streams = 0",
            "x.toml:13:11: streams: \"0\" is not a number of streams: it must be a whole number from 1 to 128",
        ),
        (
            "window = \"64K\"",
            "streams = 129",
            "x.toml:13:11: streams: \"129\" is not a number of streams: it must be a whole number from 1 to 128",
        ),
        (
            "window = \"64K\"",
            "duration = '0s'",
            "x.toml:13:12: duration: \"0s\" is not the duration of a step: it must be from 1s to 24h",
        ),
        (
            "window = \"64K\"",
            "direction = 'up'",
            "x.toml:13:13: direction: \"up\" is not a direction: write upload, download or both",
        ),
        (
            "window = \"64K\"",
            "congestion = 'New Reno'",
            "x.toml:13:14: congestion: \"New Reno\" is not a congestion control: write for example cubic, reno or bbr",
        ),
        (
            "within = \"5%\" }",
            "within = 0 }",
            "x.toml:14:27: within: \"0\" is not a bound: it must be above 0",
        ),
        (
            "expect = 2",
            "expect = 0.0",
            "x.toml:19:10: expect: \"0.0\" is not a bound: it must be above 0",
        ),
        (
            "\"n\"",
            "' '",
            "x.toml:1:8: name: \" \" is not a name: it must not be empty",
        ),
        (
            "\"n\"",
            "\"n\\u001b]0;m\\u0007\"",
            "x.toml:1:8: name: \"n\\u{1b}]0;m\\u{7}\" is not a name: it must be one line without control characters",
        ),
        (
            "\"t\"",
            "\"t\\r\"",
            "x.toml:2:9: title: \"t\\r\" is not a name: it must be one line without control characters",
        ),
        (
            "\"t\"",
            "\"t\"\nsource = \"s\\nt\"",
            "x.toml:3:10: source: \"s\\nt\" is not a name: it must be one line without control characters",
        ),
        (
            "name = \"b\"",
            "name = \"b\\u009b\"",
            "x.toml:16:8: name: \"b\\u{9b}\" is not a name: it must be one line without control characters",
        ),
    ] {
        assert_eq!(stated(old, new), sentence);
    }
}

#[test]
fn what_does_not_fit_together_is_reported_with_its_place() {
    for (old, new, sentence) in [
        (
            "\"1bdp\"",
            "\"0.001bdp\"",
            "x.toml:6:9: queue: it would hold 125 B, and one packet is 1538 B; make it longer",
        ),
        (
            "mtu = 1500",
            "mtu = 65535\nqueue = 9",
            "x.toml:9:9: queue: it would hold 9 B, and one packet is 65573 B; make it longer",
        ),
        (
            "\"1bdp\"",
            "\"1500B\"",
            "x.toml:6:9: queue: it would hold 1500 B, and one packet is 1538 B; make it longer",
        ),
        (
            "rate = \"100M\"",
            "",
            "x.toml:6:9: queue: a queue in time or in BDPs needs a rate",
        ),
        (
            "rtt = \"10ms\"",
            "",
            "x.toml:3:1: rtt: it is missing, and so is the delay of a direction",
        ),
        (
            "mtu = 1500",
            "delay = '1ms'",
            "x.toml:8:9: delay: write the rtt of [path] or the delay of both directions, not both",
        ),
        (
            "window = \"64K\"",
            "window = 1\nbuffer = 1",
            "x.toml:14:10: buffer: write a window or a buffer, not both",
        ),
        (
            "{ within = \"5%\" }",
            "{}",
            "x.toml:14:16: kernel_model: write within, at_least or at_most",
        ),
        (
            "{ within = \"5%\" }",
            "{ within = 1, at_most = 2 }",
            "x.toml:14:40: at_most: write one of within, at_least and at_most, not two",
        ),
        (
            "name = \"b\"",
            "name = \"a\"",
            "x.toml:16:8: name: there is a step \"a\" already",
        ),
        ("name = \"b\"", "", "x.toml:15:1: name: it is missing"),
        (
            "[\"a\", \"b\"]",
            "[\"a\", \"c\"]",
            "x.toml:18:9: ratio: there is no step \"c\"",
        ),
        (
            "[\"a\", \"b\"]",
            "[\"a\", \"a\"]",
            "x.toml:18:9: ratio: the two steps must differ",
        ),
        (
            "[\"a\", \"b\"]",
            "[\"a\"]",
            "x.toml:18:9: ratio: write the names of two steps",
        ),
        (
            "[\"a\", \"b\"]",
            "2",
            "x.toml:18:9: ratio: it must be a list, as [[ratio]] or [a, b] makes one",
        ),
        (
            "expect = 2\nwithin = \"5%\"",
            "expect = 2",
            "x.toml:18:9: ratio: write within, at_least or at_most",
        ),
        (
            "expect = 2\nwithin = \"5%\"",
            "within = 1\nat_most = 2",
            "x.toml:20:11: at_most: write one of within, at_least and at_most, not two",
        ),
        ("title = \"t\"", "", "x.toml:1:1: title: it is missing"),
        (
            "[path]",
            "[path]\nseed = -1",
            "x.toml:4:8: seed: \"-1\" is not a seed: it must be a whole number",
        ),
    ] {
        assert_eq!(stated(old, new), sentence);
    }
}

#[test]
fn unknown_keys_are_reported_with_those_there_are() {
    for (old, new, sentence) in [
        (
            "title = \"t\"",
            "colour = 1",
            "x.toml:2:1: \"colour\" is not a key here; the keys are name, title, source, path, near, far, sender, \
             receiver, relay, step, bound",
        ),
        (
            "rtt = \"10ms\"",
            "delay = '5ms'",
            "x.toml:5:1: \"delay\" is not a key here; the keys are rtt, rate, queue, loss, mtu, framing, trace, \
             EFFECTS, segmentation, seed, forward, reverse",
        ),
        (
            "mtu = 1500",
            "rtt = '1ms'",
            "x.toml:8:1: \"rtt\" is not a key here; the keys are delay, rate, queue, loss, mtu, framing, trace, \
             EFFECTS",
        ),
        (
            "tcp_wmem",
            "rmem_max",
            "x.toml:10:1: \"rmem_max\" is not a key here; the keys are tcp_rmem, tcp_wmem, tcp_window_scaling, \
             tcp_moderate_rcvbuf",
        ),
        (
            "window = \"64K\"",
            "  bytes = 1",
            "x.toml:13:3: \"bytes\" is not a key here; the keys are transport, window, buffer, sndbuf, rcvbuf, \
             app_window, requests, request_size, pause, read_rate, fq_rate, blocking, streams, rate, length, \
             congestion, duration, omit, direction, relays, name, published, ramp, cross_traffic, path, \
             sender, receiver, kernel_model, textbook, capacity, loss, reordered, fills, verdict",
        ),
        (
            "{ within = \"5%\" }",
            "{ near = 1 }",
            "x.toml:14:18: \"near\" is not a key here; the keys are within, at_least, at_most",
        ),
        (
            "expect = 2",
            "expects = 2",
            "x.toml:19:1: \"expects\" is not a key here; the keys are within, at_least, at_most, ratio, expect",
        ),
    ] {
        assert_eq!(stated(old, new), with_effects(sentence));
    }
}

#[test]
fn whole_files_that_are_none_are_reported_so() {
    for (text, sentence) in [
        (
            "",
            "x.toml:1:1: missing: name, title, [path] with rtt, [[step]] with name",
        ),
        (
            "[path]\nrate = '1G'",
            "x.toml:1:1: missing: name, title, rtt of [path], [[step]] with name",
        ),
        (
            "title = 't'\n[path]\nrtt = '1s'\n[[step]]",
            "x.toml:1:1: name: it is missing",
        ),
        (
            "name = 'n'\ntitle = 't'",
            "x.toml:1:1: missing: [path] with rtt, [[step]] with name",
        ),
        (
            "name = 'n'\ntitle = 't'\n[[step]]\nname = 'a'",
            "x.toml:1:1: path: it is missing",
        ),
        (
            "name = 'n'\ntitle = 't'\npath = 5",
            "x.toml:3:8: path: it must be a table",
        ),
        (
            "name = 'n'\ntitle = 't'\n[path]\nrtt = '1s'",
            "x.toml:1:1: step: it is missing",
        ),
        (
            "name = 'n'\ntitle = 't'\nstep = []\n[path]\nrtt = '1s'",
            "x.toml:3:8: step: it is missing",
        ),
        (
            "name = 'n'\ntitle = 't'\nstep = [5]\n[path]\nrtt = '1s'",
            "x.toml:3:8: step: each must be a table, [[step]]",
        ),
        (
            "name = 'n'\ntitle = 't'\n[step]\n[path]\nrtt = '1s'",
            "x.toml:3:1: step: it must be a list, as [[step]] or [a, b] makes one",
        ),
        ("name = 'n'\nname = 'm'", "x.toml:2:1: duplicate key"),
        ("rate is 5", "x.toml:1:6: key with no value, expected `=`"),
        (
            "title = 'é' =",
            "x.toml:1:13: unexpected key or value, expected newline, `#`",
        ),
    ] {
        assert_eq!(
            Scenario::parse("x.toml", text).unwrap_err().to_string(),
            sentence
        );
    }
}

/// Returns the error of a step with these keys, the first in line 5.
fn reported_of_step(keys: &str) -> String {
    let text = format!(
        "name = 'n'\ntitle = 't'\npath = {{ rate = '1G', rtt = '1ms' }}\n[[step]]\n{keys}\nname = 's'"
    );
    Scenario::parse("x.toml", &text).unwrap_err().to_string()
}

#[test]
#[expect(clippy::too_many_lines, reason = "a list of cases")]
fn a_step_that_cannot_be_run_is_reported_with_its_place() {
    for (keys, sentence) in [
        (
            "transport = 'sctp'",
            "x.toml:5:13: transport: \"sctp\" is not a transport: write tcp or udp",
        ),
        (
            "transport = 'udp'",
            "x.toml:4:1: rate: it is missing: at what rate does each stream send?",
        ),
        (
            "rate = 0",
            "x.toml:5:8: rate: \"0\" is not the rate of a load: nothing would be sent",
        ),
        (
            "reordered = { within = '5%' }",
            "x.toml:5:13: reordered: only datagrams show how many came out of order; write transport = \"udp\"",
        ),
        (
            "length = 1470",
            "x.toml:5:10: length: it is that of datagrams; write transport = \"udp\"",
        ),
        (
            "length = 16",
            "x.toml:5:10: length: \"16\" is not the length of a datagram: it must be from 32 to 65507 B",
        ),
        (
            "pause = '1s'",
            "x.toml:5:9: pause: it is the time between an answer and the next request; add app_window, requests or \
             request_size",
        ),
        (
            "transport = 'udp'\nrate = 1\napp_window = '64KiB'",
            "x.toml:7:14: app_window: it is that of a byte stream; write transport = \"tcp\"",
        ),
        (
            "app_window = '0x4KiB'",
            "x.toml:5:14: app_window: \"0x4KiB\" is not a number of requests and their size; write for example 64x32KiB",
        ),
        (
            "requests = '4x4KiB'\nrequest_size = '4KiB'",
            "x.toml:6:16: request_size: write one of app_window, requests and request_size",
        ),
        (
            "window = '64KiB'\nrcvbuf = '64KiB'",
            "x.toml:6:10: rcvbuf: write a window or a buffer, not both",
        ),
        (
            "window = 1\ntransport = 'udp'\nrate = 1",
            "x.toml:5:10: window: datagrams have no window; write transport = \"tcp\", or a buffer",
        ),
        (
            "congestion = 'reno'\ntransport = 'udp'\nrate = 1",
            "x.toml:5:14: congestion: datagrams have no congestion control; write transport = \"tcp\"",
        ),
        (
            "omit = '11min'",
            "x.toml:5:8: omit: \"11min\" is not a time to omit: 600s is the most",
        ),
        (
            "published = {rates = 1}",
            "x.toml:5:14: \"rates\" is not a key here; the keys are rate, loss, jitter, reordered",
        ),
        (
            "ramp = {from = 1, to = 2, loads = 3}",
            "x.toml:5:8: ramp: only datagrams are offered at a rate whatever the path does; write transport = \"udp\"",
        ),
        (
            "ramp = {from = 2, to = 1, loads = 3}",
            "x.toml:5:8: ramp: write from, to and loads: it goes from a load above 0 to a greater one",
        ),
        (
            "ramp = {loads = 1}",
            "x.toml:5:17: loads: \"1\" is no number of loads: it must be from 2 to 100",
        ),
        (
            "rate = 1\nramp = {from = 1, to = 2, loads = 3}\ntransport = 'udp'",
            "x.toml:5:8: rate: a ramp says the rates; write one of the two",
        ),
        (
            "loss = {within = 1}",
            "x.toml:5:8: loss: only datagrams show how many were lost; write transport = \"udp\"",
        ),
        (
            "loss = {at_most = 1}",
            "x.toml:5:8: loss: write within: points around the loss that is predicted",
        ),
        (
            "verdict = 'luck'",
            "x.toml:5:11: verdict: \"luck\" is no verdict: write a kind, as loss, or kind/cause, as loss/random",
        ),
        (
            "path = {rtt = 1}",
            "x.toml:5:15: rtt: \"1\" is not a time: the unit is missing; write for example 173ms, 50us or 10s",
        ),
        (
            "path = {queue = 1}",
            "x.toml:5:17: queue: it would hold 1 B, and one packet is 1538 B; make it longer",
        ),
        (
            "path = {seed = 1}",
            "x.toml:5:9: \"seed\" is not a key here; the keys are rtt, rate, queue, loss, mtu, framing, trace, \
             EFFECTS, segmentation, forward, reverse",
        ),
        (
            "cross_traffic = [{transport = 'udp'}]",
            "x.toml:5:18: rate: it is missing: at what rate does each stream send?",
        ),
        (
            "cross_traffic = [{rate = '2M..1M'}]",
            "x.toml:5:26: rate: \"2M..1M\" is no range of rates: it must go from a rate to a higher one",
        ),
        (
            "cross_traffic = [{before = '1s', after = '1s'}]",
            "x.toml:5:42: after: write before or after, not both",
        ),
        (
            "cross_traffic = [{on = '1s'}]",
            "x.toml:5:18: off: it is missing",
        ),
        (
            "cross_traffic = [{off = '1ms'}]",
            "x.toml:5:25: off: \"1ms\" is not a phase: it must be from 500ms to 10 minutes",
        ),
        (
            "cross_traffic = [{duration = '1s'}]",
            "x.toml:5:19: \"duration\" is not a key here; the keys are transport, window, buffer, streams, rate, \
             length, congestion, before, after, on, off, published",
        ),
    ] {
        assert_eq!(reported_of_step(keys), with_effects(sentence));
    }
    let unlimited = "name = 'n'\ntitle = 't'\npath = { rtt = '1ms' }\n[[step]]\nname = 's'\ncapacity = { at_least = 1 }";
    let stated = Scenario::parse("x.toml", unlimited)
        .unwrap_err()
        .to_string();
    assert_eq!(stated, "x.toml:6:12: capacity: the path has no rate");
}

proptest! {
    #[test]
    fn no_text_panics(text in "(\\PC|\n)*") {
        let _ = Scenario::parse("x.toml", &text);
    }

    /// Close to a good file, so that more than the TOML parser is reached.
    #[test]
    fn no_spoilt_file_panics(
        which in 0..builtin_scenarios().len(),
        from in 0.0..1.0,
        length in 0_usize..12,
        new in "\\PC{0,6}|[0-9eE.%+-]{0,20}[a-zA-Z/]{0,6}",
    ) {
        let text = builtin_scenarios()[which].1;
        let chars: Vec<_> = text.chars().collect();
        let from = (from * chars.len() as f64) as usize;
        let until = (from + length).min(chars.len());
        let (before, after) = (chars[..from].iter().copied(), chars[until..].iter().copied());
        let spoilt: String = before.chain(new.chars()).chain(after).collect();
        if let Err(error) = Scenario::parse("x.toml", &spoilt) {
            prop_assert!(error.place.line >= 1 && error.place.column >= 1 && !error.message.contains('\n'));
        }
    }

    #[test]
    fn any_value_is_taken_or_reported(
        key in "rate|rtt|queue|loss|mtu|framing|seed|tcp_moderate_rcvbuf|buffer|window|published|expect|within|streams|\
                length|omit|duration|path|ramp|after|before|on|off|verdict|at_most|at_least",
        value in "[0-9]{0,20}[.]?[0-9]{0,3}(e[0-9]{1,3})?(bdp|packets|ms|s|h|K|G|T|%|Mbit/s)?",
    ) {
        let line = format!("\n{key} = ");
        let (_, text) = builtin_scenarios().iter().find(|(_, text)| text.contains(&line)).unwrap();
        let at = text.find(&line).unwrap() + 1;
        let end = at + text[at..].find('\n').unwrap();
        let _ = Scenario::parse("x.toml", &format!("{}{key} = '{value}'{}", &text[..at], &text[end..]));
    }
}

/// Returns the error of a path in `[path.reverse]`, with a trace file of this text.
fn reported_of(key: &str, trace: &str) -> String {
    let text = GOOD.replace("mtu = 1500", key);
    let files = |name: &str| {
        if name == "lte.up" {
            Ok(trace.to_owned())
        } else {
            Err("no such file".to_owned())
        }
    };
    Scenario::parse_with("x.toml", &text, &files)
        .unwrap_err()
        .to_string()
}

#[test]
#[expect(clippy::too_many_lines, reason = "a list of cases")]
fn impossible_effects_are_reported_with_their_place_and_what_would_be_valid() {
    for (key, sentence) in [
        (
            "loss = 'gilbert 1% 2%'",
            "x.toml:8:8: loss: \"gilbert 1% 2%\" is not a loss: write for example 0.01%, gilbert-elliott 0.1% 20%, \
             packets 3 17 or data 3 17",
        ),
        (
            "loss = 'gilbert-elliott 1% 120%'",
            "x.toml:8:8: loss: \"120%\" is not a share of packets: it must not be above 100 %",
        ),
        (
            "loss = 'gilbert-elliott 100% 0%'",
            "x.toml:8:8: loss: \"100% 0% 0 1\" is not a loss: nothing would ever arrive",
        ),
        (
            "loss = 'packets 0'",
            "x.toml:8:8: loss: \"packets 0\" does not list packets: they count from 1",
        ),
        (
            "loss = 'data 3 x'",
            "x.toml:8:8: loss: \"data 3 x\" does not list packets: they count from 1",
        ),
        (
            "duplicate = 2",
            "x.toml:8:13: duplicate: \"2\" is not a share of packets: it must not be above 100 %",
        ),
        (
            "reorder = '1%'",
            "x.toml:8:11: reorder: \"1%\" is not a reordering: write for example 0.1% 5ms",
        ),
        (
            "jitter = '5ms'",
            "x.toml:8:10: jitter: \"5ms\" is not a jitter: write for example uniform 2ms, normal 2ms 1ms, \
             exponential 1ms, pareto 1ms 3 or listed 0ms 5ms",
        ),
        (
            "jitter = 'uniform 11s'",
            "x.toml:8:10: jitter: \"11s\" is not a jitter: it must not be above 10 s",
        ),
        (
            "jitter = 'pareto 1ms 1'",
            "x.toml:8:10: jitter: \"1\" is not a shape: above 1 it has a mean",
        ),
        (
            "jitter_order = 'no'",
            "x.toml:8:16: jitter_order: \"no\" is not an order: write kept or free",
        ),
        (
            "policer = '1M'",
            "x.toml:8:11: policer: \"1M\" is not a policer: write for example 20Mbit/s 64KiB",
        ),
        (
            "policer = '0 64K'",
            "x.toml:8:11: policer: \"0\" is not the rate of a path: nothing would ever arrive",
        ),
        (
            "policer = '1M 100'",
            "x.toml:8:11: policer: its burst of 100 B would never pass a packet of 1538 B; make it larger",
        ),
        (
            "narrow = 20",
            "x.toml:8:10: narrow: \"20\" is not an MTU: it must be from 68 to 65535 B",
        ),
        (
            "narrow = '1400 lost'",
            "x.toml:8:10: narrow: \"1400 lost\" is not a narrow link: write for example 1400 or 1400 swallowed",
        ),
        (
            "edits = 'strip-all'",
            "x.toml:8:9: edits: \"strip-all\" is not an edit: write strip-window-scale, window-scale=2, strip-sack, \
             strip-timestamps, clamp-mss=1200, clamp-window=32KiB or router=198.18.1.1",
        ),
        (
            "edits = 'window-scale=15'",
            "x.toml:8:9: edits: \"15\" is not a window scale: it must be from 0 to 14",
        ),
        (
            "edits = 'clamp-window=64KiB'",
            "x.toml:8:9: edits: \"64KiB\" is not what TCP's header can say: it must be from 1 to 65535 B",
        ),
        (
            "aqm = 'pie'",
            "x.toml:8:7: aqm: \"pie\" is not the management of a queue: write drop-tail, threshold 30KiB, codel, \
             codel 5ms 100ms ecn, or fq-codel likewise",
        ),
        (
            "aqm = 'codel 5ms 5ms'",
            "x.toml:8:7: aqm: \"codel 5ms 5ms\" is not a managed queue: its target must be above 0 and below its \
             interval",
        ),
        (
            "changes = '1s'",
            "x.toml:8:11: changes: \"1s\" is not a change: write for example 10s rate=50M delay=20ms",
        ),
        (
            "changes = '1s mtu=9'",
            "x.toml:8:11: changes: \"mtu=9\" is not a change: write rate=50M, delay=20ms or loss=1%",
        ),
        (
            "changes = '2s loss=1; 1s loss=0'",
            "x.toml:8:11: changes: 1 s comes after 2 s; write the changes in order of time",
        ),
        (
            "changes = '1s rate=0'",
            "x.toml:8:11: changes: \"1s rate=0\" is not a course of changes: in the end nothing would ever arrive",
        ),
    ] {
        assert_eq!(reported_of(key, ""), sentence);
    }
}

#[test]
fn a_trace_that_cannot_be_is_refused_at_the_place_that_names_it() {
    for (key, trace, sentence) in [
        (
            "trace = 'lte.up'",
            "",
            "x.toml:8:9: trace: \"lte.up\" is not a trace: write mahimahi FILE or rates FILE",
        ),
        (
            "trace = 'mahimahi none'",
            "",
            "x.toml:8:9: trace: \"none\": no such file",
        ),
        (
            "trace = 'mahimahi lte.up'",
            "",
            "x.toml:8:9: trace: \"lte.up\": it has no length: its last time must be above 0",
        ),
        (
            "trace = 'mahimahi lte.up'",
            "5\n4\n",
            "x.toml:8:9: trace: \"lte.up\": line 2: 4 ms comes after a later time",
        ),
        (
            "trace = 'rates lte.up'",
            "1s 5M\n0s 5M\n",
            "x.toml:8:9: trace: \"lte.up\": line 2: 0 s comes after a later time",
        ),
    ] {
        assert_eq!(reported_of(key, trace), sentence);
    }
    let alone = GOOD.replace("mtu = 1500", "trace = 'mahimahi lte.up'");
    let stated = Scenario::parse("x.toml", &alone).unwrap_err().to_string();
    assert_eq!(
        stated,
        "x.toml:8:9: trace: \"lte.up\": files cannot be read here"
    );
}

#[test]
fn relays_need_stretches_and_a_load_that_they_can_carry() {
    let text = |outer: &str, step: &str| {
        format!(
            "name = 'n'\ntitle = 't'\n{outer}[path]\nrtt = '9ms'\n[[step]]\nname = 's'\nrelays = true\n{step}"
        )
    };
    let refused = |outer, step| {
        Scenario::parse("x.toml", &text(outer, step))
            .unwrap_err()
            .to_string()
    };
    let both = "near.rtt = '1ms'\nfar.rtt = '1ms'\n";
    Scenario::parse("x.toml", &text(both, "")).unwrap();
    for (outer, step, sentence) in [
        ("", "", "relays: no hosts can relay; write [near] and [far]"),
        (
            "near.rtt = '1ms'\n",
            "",
            "near: write [far], too: each end has a stretch to its relay",
        ),
        (
            both,
            "transport = 'udp'\nrate = '1M'",
            "relays: they carry TCP; write transport = \"tcp\"",
        ),
        (
            both,
            "direction = 'download'",
            "relays: the receiver cannot ask for data through them",
        ),
        (
            both,
            "[[step.cross_traffic]]\nafter = '1s'",
            "relays: cross traffic does not go through them",
        ),
        (
            "relay.tcp_wmem = '8MiB'\n",
            "",
            "relay: no hosts can relay; write [near] and [far]",
        ),
        (
            "near.rtt = '1ms'\nfar.rtt = '1ms'\nrelay.congestion = 'bbr'\n",
            "",
            "\"congestion\" is not a key here",
        ),
    ] {
        let said = refused(outer, step);
        assert!(said.contains(sentence), "{said}");
    }
}
