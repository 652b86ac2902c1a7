use super::*;
use clap::{CommandFactory, Parser};
use fullpipe_record::Buffer;
use fullpipe_record::{Direction, IpVersion};
use std::net::IpAddr;

fn task(line: &str) -> Result<Iperf3Task, String> {
    let words = std::iter::once("iperf3").chain(line.split_whitespace());
    Iperf3Arguments::try_parse_from(words)
        .map_err(|error| error.to_string())?
        .to_task()
}

fn request(line: &str) -> Request {
    match task(line) {
        Ok(Iperf3Task::Client(plan)) => plan.request,
        other => panic!("{line}: {other:?}"),
    }
}

#[test]
fn the_definition_is_sound() {
    Iperf3Arguments::command().debug_assert();
}

#[test]
fn without_flags_it_is_iperf3s_default() {
    assert_eq!(
        request("-c host"),
        Request {
            catches_up_at_once: true,
            ..Request::default()
        }
    );
    let udp = request("-c host -u");
    assert_eq!(
        (udp.transport, udp.rate),
        (Transport::Udp, Some(BitRate::from_bps(1_048_576)))
    );
    assert_eq!(udp.block, ByteCount::ZERO);
    assert_eq!(request("-u -c host -b 0").rate, None);
}

#[test]
fn short_flags_may_stand_together_with_their_values() {
    let request = request("-uRchost -P4 -b10M/8 -t5 -i.5 -w256K -l1200 -VJ -O2 -S0x10");
    assert_eq!(
        (request.transport, request.direction),
        (Transport::Udp, Direction::Download)
    );
    assert_eq!(
        (request.streams, request.rate, request.burst),
        (4, Some(BitRate::from_mbps(10)), Some(8))
    );
    assert_eq!(
        (request.duration, request.omit),
        (Span::from_secs(5), Span::from_secs(2))
    );
    assert_eq!(
        (request.interval, request.tos),
        (Span::from_millis(500), 16)
    );
    assert_eq!(request.buffer, Buffer::Request(ByteCount::from_kib(256)));
    assert_eq!(request.block, ByteCount::new(1200));
}

#[test]
fn long_flags_may_be_cut_short_and_the_last_of_two_counts() {
    let request = request(
        "--client host --rev --time 3 --time 4 --zero --bandwidth 5M --linux-congestion reno",
    );
    assert_eq!(
        (request.direction, request.duration),
        (Direction::Download, Span::from_secs(4))
    );
    assert_eq!(
        (request.sendfile, request.rate),
        (true, Some(BitRate::from_mbps(5)))
    );
    assert_eq!(request.congestion.as_deref(), Some("reno"));
}

#[test]
fn blocks_are_counted_in_bytes() {
    assert_eq!(
        request("-c host -k 10").bytes,
        Some(ByteCount::new(10 * 131_072))
    );
    assert_eq!(
        request("-c host -k 1K -l 1000").bytes,
        Some(ByteCount::new(1_024_000))
    );
    assert_eq!(
        request("-c host -u -k 10").bytes,
        Some(ByteCount::new(14_600))
    );
}

#[test]
fn what_iperf3_refuses_is_refused_in_its_words() {
    for (line, why) in [
        ("", "must either be a client (-c) or server (-s)"),
        ("-s -c host", "cannot be both server and client"),
        (
            "-s -t 5",
            "some option you are trying to set is client only",
        ),
        (
            "-s -P 1",
            "some option you are trying to set is client only",
        ),
        (
            "-s --pacing-timer 1",
            "some option you are trying to set is client only",
        ),
        (
            "-c host -1",
            "some option you are trying to set is server only",
        ),
        (
            "-c host -t 5 -n 1M",
            "only one test end condition (-t, -n, -k) may be specified",
        ),
        (
            "-c host -R --bidir",
            "cannot be both reverse and bidirectional",
        ),
        (
            "-c host -P 129",
            "number of parallel streams too large (maximum = 128)",
        ),
        (
            "-c host -t 86401",
            "test duration too long (maximum = 86400 seconds)",
        ),
        (
            "-c host -i 0.01",
            "invalid report interval (min = 0.1, max = 60 seconds)",
        ),
        (
            "-c host -l 2M",
            "block size too large (maximum = 1048576 bytes)",
        ),
        (
            "-c host -u -l 8",
            "block size invalid (minimum = 16 bytes, maximum = 65507 bytes)",
        ),
        (
            "-c host -p 0",
            "port number must be between 1 and 65535 inclusive",
        ),
        ("-c host -O -1", "bogus value for --omit"),
        (
            "-c host -M 10000",
            "TCP MSS too large (maximum = 9216 bytes)",
        ),
        (
            "-c host -w 1G",
            "socket buffer size too large (maximum = 536870912 bytes)",
        ),
        (
            "-c host --time-skew-threshold 5",
            "some option you are trying to set is server only",
        ),
        (
            "-s --username mario",
            "some option you are trying to set is client only",
        ),
        (
            "-s --time-skew-threshold 0",
            "skew threshold must be a positive number",
        ),
        (
            "-c host --username mario",
            "you must specify a username, password, and path to a valid RSA public key",
        ),
        (
            "-s --rsa-private-key-path key.pem",
            "you must specify a path to a valid RSA private key and a user credential file",
        ),
        (
            "-c host -f x",
            "bad format specifier (valid formats are in the set [kmgtKMGT])",
        ),
    ] {
        assert_eq!(task(line), Err(why.to_owned()), "{line}");
    }
}

#[test]
fn what_cannot_be_done_is_refused_by_name() {
    for (line, name) in [
        ("-c host --sctp", "--sctp"),
        ("-c host --nstreams 3", "--nstreams"),
        ("-s --server-bitrate-limit 1G/5", "--server-bitrate-limit"),
        ("-s --rcv-timeout 100", "--rcv-timeout"),
    ] {
        let refusal = task(line).unwrap_err();
        assert!(
            refusal.contains(name) && refusal.contains("not supported"),
            "{line}: {refusal}"
        );
    }
}

#[test]
fn flags_that_scripts_pass_do_not_stop_them() {
    let line = "-c host -L 7 --snd-timeout 5000 --repeating-payload --cntl-ka stray --cntl-ka=10/5/3 -t 3 words";
    let words = std::iter::once("iperf3").chain(line.split_whitespace());
    let arguments = Iperf3Arguments::try_parse_from(words).unwrap();
    assert_eq!(arguments.warnings().len(), 4);
    let Ok(Iperf3Task::Client(plan)) = arguments.to_task() else {
        panic!("{arguments:?}")
    };
    assert_eq!(plan.request.duration, Span::from_secs(3));
    let Ok(Iperf3Task::Client(plan)) =
        task("-c host -A 1,2 -F data.bin --json-stream --json-stream-full-output")
    else {
        panic!()
    };
    assert_eq!(
        (plan.shape.processor, plan.request.far_processor),
        (Some(1), Some(2))
    );
    assert_eq!(
        plan.destination.file.as_deref(),
        Some(Path::new("data.bin"))
    );
    assert_eq!(plan.shape.form, ProgramFormat::JsonStreamAndDocument);
    assert!(task("-s -A 1,2").is_err());
}

#[test]
fn a_device_may_follow_an_address() {
    let Ok(Iperf3Task::Client(plan)) = task("-c 192.0.2.1%eth0 -B 127.0.0.1 --cport 5000 -4")
    else {
        panic!()
    };
    let destination = plan.destination;
    assert_eq!(
        (
            destination.host.as_str(),
            destination.local.device.as_deref()
        ),
        ("192.0.2.1", Some("eth0"))
    );
    assert_eq!(
        destination.local.address,
        Some(IpAddr::from([127, 0, 0, 1]))
    );
    assert_eq!(
        (destination.local.port, destination.family),
        (Some(5000), Some(IpVersion::V4))
    );
    let Ok(Iperf3Task::Client(plan)) = task("-c fe80::1%eth0") else {
        panic!()
    };
    assert_eq!(plan.destination.host, "fe80::1%eth0");
}

#[test]
fn the_scope_of_a_link_local_address_of_this_end_is_its_device() {
    let address = Some("fe80::1".parse().unwrap());
    let Ok(Iperf3Task::Client(plan)) = task("-c fe80::2%eth0 -B fe80::1%eth0") else {
        panic!()
    };
    let local = plan.destination.local;
    assert_eq!(
        (local.address, local.device.as_deref()),
        (address, Some("eth0"))
    );
    let Ok(Iperf3Task::Server(plan)) = task("-s -B fe80::1%eth0") else {
        panic!()
    };
    assert_eq!(
        (plan.options.bind, plan.options.device.as_deref()),
        (address, Some("eth0"))
    );
    let Ok(Iperf3Task::Server(plan)) = task("-s --bind-dev lo") else {
        panic!()
    };
    assert_eq!(
        (plan.options.bind, plan.options.device.as_deref()),
        (None, Some("lo"))
    );
}
