use super::*;

#[test]
fn releases_of_distributions_are_read() {
    for (release, version) in [
        ("6.18.44-fc-v657", (6, 18, 44)),
        ("5.15.0-91-generic", (5, 15, 0)),
        ("7.0", (7, 0, 0)),
        ("6.1-rc3", (6, 1, 0)),
    ] {
        let read: KernelVersion = release.parse().unwrap();
        assert_eq!((read.major, read.minor, read.patch), version, "{release}");
    }
    assert!("linux".parse::<KernelVersion>().is_err());
}

#[test]
fn a_sysctl_by_name_is_the_setting_that_it_is() {
    let sysctl = |name: &str, value: &str| Change::Sysctl {
        name: name.to_owned(),
        value: value.to_owned(),
    };
    let before = HostSettings::of_linux_6_18();
    let rmem = sysctl("net.ipv4.tcp_rmem", "4096 131072 67108864");
    assert_eq!(
        rmem.applied_to(&before),
        Change::TcpRmemMax(ByteCount::from_mib(64)).applied_to(&before)
    );
    assert_eq!(
        rmem.required_ends(),
        Change::TcpRmemMax(ByteCount::ZERO).required_ends()
    );
    let small = Change::TcpRmemMax(ByteCount::from_kib(64)).applied_to(&before);
    assert_eq!(
        small,
        sysctl("net.ipv4.tcp_rmem", "4096 65536 65536").applied_to(&before)
    );
    let scaling = sysctl("net.ipv4.tcp_window_scaling", "0");
    assert_eq!(
        scaling.applied_to(&before),
        Change::WindowScaling(false).applied_to(&before)
    );
    assert_eq!(
        scaling.required_ends(),
        Change::WindowScaling(false).required_ends()
    );
    let unknown = sysctl("net.ipv4.tcp_rmem", "much");
    assert_eq!(unknown.applied_to(&before), before);
}

#[test]
fn what_a_program_asks_of_its_pace_is_of_the_load_alone() {
    let (slow, fast) = (BitRate::from_mbps(40), BitRate::from_mbps(80));
    let before = Request {
        rate: Some(slow),
        burst: Some(10),
        pacing: Some(slow),
        streams: 2,
        ..Request::default()
    };
    let table = [
        (
            Change::Rate(None),
            Request {
                rate: None,
                burst: None,
                ..before.clone()
            },
        ),
        (
            Change::Rate(Some(fast)),
            Request {
                rate: Some(fast),
                ..before.clone()
            },
        ),
        (
            Change::MaxPacingRate(None),
            Request {
                pacing: None,
                ..before.clone()
            },
        ),
        (
            Change::MaxPacingRate(Some(fast)),
            Request {
                pacing: Some(fast),
                ..before.clone()
            },
        ),
    ];
    for (change, after) in table {
        assert_eq!(change.applied_to_request(&before), after, "{change:?}");
        assert_eq!(
            change.applied_to(&HostSettings::of_linux_6_18()),
            HostSettings::of_linux_6_18()
        );
        assert_eq!(change.required_ends(), [], "{change:?}");
    }
}

#[test]
fn settings_that_only_the_sender_reads_are_for_the_sender() {
    let sysctl = |name: &str| Change::Sysctl {
        name: name.to_owned(),
        value: "1".to_owned(),
    };
    let queue = Change::QueueLength {
        device: "eth0".to_owned(),
        packets: SegCount::new(1000),
    };
    let names = [
        "net.ipv4.tcp_mtu_probing",
        "net.ipv4.tcp_pacing_ca_ratio",
        "net.ipv4.tcp_pacing_ss_ratio",
    ];
    for change in names.map(sysctl).into_iter().chain([queue]) {
        assert_eq!(change.required_ends(), [At::Sender], "{change:?}");
        assert_eq!(
            change.applied_to(&HostSettings::of_linux_6_18()),
            HostSettings::of_linux_6_18()
        );
        assert_eq!(
            change.applied_to_request(&Request::default()),
            Request::default()
        );
    }
}
