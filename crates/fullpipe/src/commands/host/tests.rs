use super::watchdog::write_syslog;
use super::*;
use fullpipe_units::ByteCount;
use fullpipe_units::SegCount;
use std::os::unix::net::UnixDatagram;

#[test]
fn what_is_not_back_is_in_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    // Without a log there is nobody to write to.
    write_syslog(&path, "nothing");
    let socket = UnixDatagram::bind(&path).unwrap();
    write_syslog(&path, "net.ipv4.tcp_wmem was left alone");
    let mut line = [0; 200];
    let length = socket.recv(&mut line).unwrap();
    let line = String::from_utf8_lossy(&line[..length]);
    assert!(
        line.starts_with("<3>fullpipe: ") && line.ends_with(": net.ipv4.tcp_wmem was left alone"),
        "{line}"
    );
}

#[test]
fn settings_are_read() {
    let sysctl = |name: &str, value: &str| Change::Sysctl {
        name: name.to_owned(),
        value: value.to_owned(),
    };
    for (text, change) in [
        (
            "tcp_wmem=64MiB",
            Change::TcpWmemMax(ByteCount::from_mib(64)),
        ),
        (
            "net.ipv4.tcp_rmem=4096 1 2",
            sysctl("net.ipv4.tcp_rmem", "4096 1 2"),
        ),
        (
            "mtu:eth0=9000",
            Change::Mtu {
                device: "eth0".to_owned(),
                mtu: ByteCount::new(9000),
            },
        ),
        (
            "txqueuelen:eth0=2000",
            Change::QueueLength {
                device: "eth0".to_owned(),
                packets: SegCount::new(2000),
            },
        ),
        (
            "qdisc:eth0.7=fq",
            Change::Qdisc {
                device: "eth0.7".to_owned(),
                kind: "fq".to_owned(),
            },
        ),
        (
            "route:2001:db8::/32:window=none",
            Change::RouteMetric {
                destination: "2001:db8::/32".to_owned(),
                metric: "window".to_owned(),
                value: None,
            },
        ),
    ] {
        assert_eq!(parse_setting(text), Ok(vec![change]), "{text}");
    }
    assert_eq!(parse_setting("offload:eth0:tso=off").unwrap().len(), 2);
}

#[test]
fn nonsense_is_reported() {
    for text in [
        "",
        "=",
        "tcp_rmem",
        "tcp_rmem=",
        "kernel.hostname=x",
        "net.ipv4.tcp_rmem=1\nnet.ipv4.tcp_sack=0",
        "net.//.kernel.x=1",
        "mtu:eth0=big",
        "mtu:=1",
        "txqueuelen:eth0=-1",
        "offload:eth0:gro=maybe",
        "offload:gro=on",
        "route:default=1",
        "route:default:speed=1",
        "route:default:window=-1",
        "qdisc:eth0=f q",
        "unknown=1",
        "a:b=1",
    ] {
        assert!(parse_setting(text).is_err(), "{text:?}");
    }
}
