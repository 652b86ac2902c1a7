use super::*;
use fullpipe_record::NetworkStack;

/// Of a host that receives, as iproute2 6.1, net-tools 2.10 and ethtool 6.1 print them.
const NSTAT: &str = "#kernel\nTcpOutSegs   500  0.0\nTcpRetransSegs  3  0.0\n\
    TcpExtTCPRcvQDrop   7   0.0\nTcpExtPruneCalled  1  0.0\n\
    IpExtInOctets  1000000 0.0\nIp6InOctets 1000 0.0\nIpExtOutOctets 90000 0.0\n";
const NETSTAT: &str = "Tcp:\n    500 segments sent out\n    3 segments retransmitted\nTcpExt:\n    \
    12 packets pruned from receive queue because of socket buffer overrun\n    \
    TCPBacklogDrop: 4\n    TCP ran low on memory 2 times\nIpExt:\n    InOctets: 5000\n    OutOctets: 900000\n";
const DRIVER: &str = "NIC statistics:\n     rx_bytes: 1000\n     tx_bytes: 10\n     rx_missed_errors: 40\n     \
    rx_no_buffer_count: 38\n     rx_queue_0_drops: 2\n     rx_queue_1_drops: 3\n     \
    bw_in_allowance_exceeded: 6\n     rx_crc_errors: 1\n";
const RINGS: &str = "Ring parameters for eth0:\nPre-set maximums:\nRX:\t\t4096\nRX Mini:\tn/a\n\
    TX:\t\t4096\nCurrent hardware settings:\nRX:\t\t256\nTX:\t\t256\n";
const QDISCS: &str = "qdisc noqueue 0: dev lo root refcnt 2 \n Sent 0 bytes 0 pkt (dropped 0, overlimits 0 requeues 0) \n \
    backlog 0b 0p requeues 0\nqdisc tbf 1: dev eth1 root refcnt 2 rate 100Mbit burst 4Kb lat 50ms \n \
    Sent 5000000 bytes 3500 pkt (dropped 21, overlimits 900 requeues 1) \n backlog 3Kb 2p requeues 1\n";
const SOFTNET: &str = "0509aa02 00000010 00000007 00000000 00000000 00000000 00000000 00000000 00000000\n\
    04ef3926 0000000f 0000000d 00000000 00000000 00000000 00000000 00000000 00000000\n";

/// Returns the counters in files, all of whose lines are counters.
fn counters_in(files: &[&str]) -> HostCounters {
    let mut reader = CounterReader::default();
    for file in files {
        reader.begin_file();
        for line in file.lines() {
            assert!(reader.read_line(line), "{line}");
        }
    }
    reader.into_counters().unwrap()
}

fn stack(counters: &HostCounters) -> NetworkStack {
    counters.machine.network.unwrap()
}

#[test]
fn nstat_counts_between_two_files_in_either_order() {
    let after = NSTAT
        .replace("TCPRcvQDrop   7", "TCPRcvQDrop 57")
        .replace("1000000", "9000000");
    for files in [[NSTAT, &after], [&after, NSTAT]] {
        let counters = counters_in(&files);
        assert_eq!(stack(&counters).receive_queue_dropped, 50);
        assert_eq!(
            (stack(&counters).sent_segments, stack(&counters).pruned),
            (0, 0)
        );
        assert_eq!(
            (counters.are_of_transfer, counters.end),
            (true, Some(At::Receiver))
        );
    }
    // In one file too, where a counter that was zero was left out.
    let (_, short) = NSTAT.split_once('\n').unwrap();
    let both = [
        &short.replace("TcpExtTCPRcvQDrop   7   0.0\n", ""),
        "#kernel\n",
        &after,
    ]
    .concat();
    assert_eq!(stack(&counters_in(&[&both])).receive_queue_dropped, 57);
}

#[test]
fn netstat_has_sentences_and_names() {
    let counters = counters_in(&[NETSTAT]);
    let stack = stack(&counters);
    assert_eq!(
        [stack.sent_segments, stack.retransmitted_segments],
        [500, 3]
    );
    assert_eq!(
        [
            stack.pruned,
            stack.socket_backlog_dropped,
            stack.memory_pressures
        ],
        [12, 4, 2]
    );
    assert_eq!(
        (counters.are_of_transfer, counters.end),
        (false, Some(At::Sender))
    );
    assert_eq!(counters.machine_of_transfer(), Machine::default());
}

#[test]
fn counters_of_a_driver_are_counted_once_and_its_ring_is_known() {
    let counters = counters_in(&[DRIVER, RINGS]);
    let device = counters.machine.device.clone().unwrap();
    assert_eq!([device.dropped_in, device.without_buffer], [40, 38]);
    assert_eq!([device.beyond_allowance, device.checksum_errors], [6, 1]);
    assert_eq!(
        (device.name.as_str(), device.receive_ring),
        ("eth0", Some([256, 4096]))
    );
    assert_eq!(counters.end, Some(At::Receiver));
    let queues = DRIVER.replace("missed_errors: 40", "missed_errors: 1");
    let device = counters_in(&[&queues]).machine.device.unwrap();
    assert_eq!(device.dropped_in, 5, "of all queues");
    // Of a single reading the settings alone are those of a transfer.
    let device = counters.machine_of_transfer().device.unwrap();
    assert_eq!(
        (device.dropped_in, device.receive_ring),
        (0, Some([256, 4096]))
    );
    let filtered = counters_in(&["rx_missed_errors: 5\n", "     rx_missed_errors: 9\n"]);
    assert_eq!(filtered.machine.device.unwrap().dropped_in, 4);
}

#[test]
fn the_discipline_of_the_device_that_sent_most_counts() {
    let after = QDISCS
        .replace("dropped 21", "dropped 64")
        .replace("5000000", "7000000");
    let device = counters_in(&[QDISCS, &after]).machine.device.unwrap();
    assert_eq!(device.name, "eth1");
    let [qdisc] = &device.qdiscs[..] else {
        panic!("{device:?}");
    };
    assert_eq!(
        (qdisc.kind.as_str(), qdisc.dropped, qdisc.overlimits),
        ("tbf", 43, 0)
    );
    assert_eq!(qdisc.rate, Some(BitRate::from_mbps(100)));
}

#[test]
fn queues_of_processors_are_added_up() {
    let after = SOFTNET.replace("00000010", "00000020");
    assert_eq!(stack(&counters_in(&[SOFTNET, &after])).backlog_dropped, 16);
    // Since Linux 5.10 a line has the number of the processor.
    let numbered = |first: &str| {
        let zeros = " 00000000".repeat(11);
        let line = |dropped: &str, number: u8| {
            format!("0509aa02 {dropped}{zeros} {number:08x}\n").replacen(
                " 00000000 0000000",
                " 0000000",
                1,
            )
        };
        line(first, 0) + &line("00000002", 1)
    };
    let both = numbered("00000001") + &numbered("00000004");
    assert_eq!(stack(&counters_in(&[&both])).backlog_dropped, 3);
}

/// Connections and times beside counters are left to the reader of listings.
#[test]
fn other_lines_are_none_of_counters() {
    let listing = include_str!("../listing/recorded/iproute2-7.1.txt");
    let five = include_str!("../listing/recorded/loss-five.txt");
    let text = [
        NETSTAT, listing, RINGS, five, DRIVER, listing, QDISCS, five, SOFTNET, listing,
    ]
    .concat();
    let mut reader = CounterReader::default();
    let others: Vec<&str> = text
        .lines()
        .filter(|line| !reader.read_line(line))
        .collect();
    let expected: Vec<&str> = [listing, five, listing, five, listing]
        .iter()
        .flat_map(|text| text.lines())
        .collect();
    assert_eq!(others, expected);
    for line in [
        "",
        "hello",
        "State Recv-Q",
        "1700000000.5",
        "a 1 b",
        "Tcp",
        "rx: y",
        "TcpOutSegs x 0.0",
    ] {
        assert!(!CounterReader::default().read_line(line), "{line}");
    }
    assert!(CounterReader::default().into_counters().is_none());
}
