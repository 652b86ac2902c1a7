use std::collections::BTreeMap;

use fullpipe_record::{
    AdvisedChange, Allowance, Change, Folklore, HostAdvice, HostApplied, HostChange, HostDevice,
    HostLeft, HostManager, HostMemory, HostReport, HostRoute, HostUndone, KernelVersion,
};
use fullpipe_report as report;
use fullpipe_units::{BitRate, ByteCount, SegCount, Span};

use crate::{fixture, textbook};

fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

fn shown() -> HostReport {
    HostReport {
        kernel: KernelVersion::new(6, 18),
        defects: Vec::new(),
        memory: Some(ByteCount::from_mib(24_000)),
        sysctls: map(&[
            ("net.ipv4.tcp_rmem", "4096 131072 33554432"),
            ("net.ipv4.tcp_wmem", "4096 16384 4194304"),
            ("net.ipv4.tcp_mem", "287898 383867 575796"),
            (
                "net.ipv4.tcp_available_congestion_control",
                "reno bbr cubic",
            ),
            ("net.core.default_qdisc", "fq_codel"),
        ]),
        governors: vec!["powersave".to_owned()],
        devices: vec![HostDevice {
            name: "eth0".to_owned(),
            is_up: true,
            mtu: ByteCount::new(9000),
            speed: Some(BitRate::from_mbps(10_000)),
            qdisc: "mq".to_owned(),
            transmit_queue: SegCount::new(1000),
            queues: [8, 8],
            rings: Some([512, 512, 4096, 4096].map(SegCount::new)),
            offloads: [("rx-gro".to_owned(), true), ("rx-lro".to_owned(), false)].into(),
            interrupts: ["0", "1", "2-3"].map(str::to_owned).to_vec(),
            ..HostDevice::default()
        }],
        routes: vec![HostRoute {
            destination: "10.0.0.0/8".to_owned(),
            device: Some("eth0".to_owned()),
            metrics: map(&[("initcwnd", "40")]),
        }],
        remembered: vec![HostMemory {
            address: "10.0.0.7".to_owned(),
            rtt: Some(Span::from_millis(100)),
            ssthresh: None,
            cwnd: Some(SegCount::new(94)),
        }],
        managers: vec![HostManager {
            name: "/etc/sysctl.d/60-net.conf".to_owned(),
            sets: map(&[("net.ipv4.tcp_rmem", "4096 131072 33554432")]),
            note: "sets them again at each boot".to_owned(),
        }],
        allows: vec![Allowance {
            setting: "net.ipv4.tcp_wmem".to_owned(),
            of: "programs that leave their buffers to the kernel".to_owned(),
            window: Some(ByteCount::from_mib(4)),
            rate: BitRate::from_mbps(323),
            formula: "tcp_wmem 4 MiB × 96.86 % ÷ 100 ms".to_owned(),
        }],
    }
}

#[test]
fn a_host_as_it_is() {
    let path = Some((Span::from_millis(100), BitRate::from_mbps(1000)));
    insta::assert_snapshot!(textbook(&report::host_settings(&shown(), path)));
}

#[test]
fn a_host_as_it_should_be() {
    let prediction = fixture::calculation().prediction;
    let advice = HostAdvice {
        changes: vec![AdvisedChange {
            change: Change::TcpWmemMax(ByteCount::from_mib(24)),
            setting: "net.ipv4.tcp_wmem".to_owned(),
            from: "4096 16384 4194304".to_owned(),
            to: "4096 16384 25165824".to_owned(),
            why: "as sender: what is on the way over 100 ms".to_owned(),
            risk: "a connection whose peer stops may hold 24 MiB of kernel memory".to_owned(),
        }],
        folklore: vec![Folklore {
            setting: "net.ipv4.tcp_sack".to_owned(),
            value: "0".to_owned(),
            file: Some("/etc/sysctl.d/60-net.conf".to_owned()),
            why: "each packet lost of a window costs a round trip of its own".to_owned(),
        }],
        before: prediction.clone(),
        after: prediction,
        notes: vec!["tuned manages settings here too.".to_owned()],
    };
    insta::assert_snapshot!(textbook(&report::host_advice(&advice)));
}

#[test]
fn changes_of_a_host_and_their_way_back() {
    let change = |setting: &str, from: Option<&str>, to: Option<&str>| {
        let [from, to] = [from, to].map(|text| text.map(str::to_owned));
        HostChange {
            setting: setting.to_owned(),
            from,
            to,
        }
    };
    let changes = vec![
        change(
            "net.ipv4.tcp_wmem",
            Some("4096\t16384\t4194304"),
            Some("4096 16384 25165824"),
        ),
        change("initcwnd of the route to 10.0.0.0/8", None, Some("40")),
    ];
    let applied = HostApplied {
        changes: changes.clone(),
        dry_run: false,
        temporary: None,
        notes: Vec::new(),
    };
    let dry = HostApplied {
        dry_run: true,
        ..applied.clone()
    };
    let temporary = HostApplied {
        temporary: Some(Span::from_secs(60)),
        ..applied.clone()
    };
    let left = HostLeft {
        setting: "net.ipv4.tcp_rmem".to_owned(),
        why: "net.ipv4.tcp_rmem was left alone: it should still be \"1 2 3\" but somebody made it \"4 5 6\"".to_owned(),
    };
    let undone = HostUndone {
        restored: changes,
        left: vec![left],
        kept: 1,
        elsewhere: 2,
        ..HostUndone::default()
    };
    let forgotten = HostUndone {
        kept: 0,
        elsewhere: 0,
        ..undone.clone()
    };
    let all = HostUndone {
        left: Vec::new(),
        ..forgotten.clone()
    };
    let unreadable = vec!["host-1-2-3.jsonl was set aside as host-1-2-3.damaged-4".to_owned()];
    let damaged = HostUndone {
        unreadable: unreadable.clone(),
        ..all.clone()
    };
    let only_damaged = HostUndone {
        unreadable,
        ..HostUndone::default()
    };
    let text = textbook(&{
        let applied = [&applied, &dry, &temporary].map(report::host_applied);
        let undone = [
            &undone,
            &forgotten,
            &all,
            &damaged,
            &only_damaged,
            &HostUndone::default(),
        ];
        [&applied[..], &undone.map(report::host_undone)]
            .concat()
            .join("---\n")
    });
    insta::assert_snapshot!(text);
}
