//! Limits that the counters of a host show: drops of the receiving host, memory of TCP, a link at
//! half duplex.

use fullpipe_diagnose::{diagnose, find_remedies};
use fullpipe_record::{
    At, Basis, Cause, DeviceReport, Evidence, Limit, Machine, NetworkStack, Sample, SocketMemory,
    TcpInfo, Verdict,
};
use fullpipe_units::{ByteCount, Span};

use crate::builder::{MIB, MSS, capacity, receive_window, slow_reader, stated, without};
use crate::limits::{IRREGULAR, lossy};
use crate::receiving::{self, Seen, WELL};

/// Losses that cut the window again and again, ten packets at a time.
fn losses() -> Evidence {
    without(lossy(&IRREGULAR), |sample| {
        sample.tcp.total_retrans = sample.tcp.total_retrans.map(|lost| lost * 10);
    })
}

fn sent_again(evidence: &Evidence) -> u64 {
    let last = evidence.sender_samples.last().unwrap();
    last.tcp.total_retrans.unwrap().get()
}

fn with_device(device: DeviceReport) -> Machine {
    Machine {
        device: Some(device),
        ..Machine::default()
    }
}

fn with_network(network: NetworkStack) -> Machine {
    Machine {
        network: Some(network),
        ..Machine::default()
    }
}

fn at_receiver(evidence: Evidence, receiver_machine: Machine) -> Evidence {
    Evidence {
        receiver_machine,
        ..evidence
    }
}

fn named(evidence: &Evidence) -> (Cause, At) {
    let verdict = diagnose(evidence);
    (verdict.cause, verdict.at)
}

fn remedies(evidence: &Evidence, verdict: &Verdict) -> Vec<String> {
    let all = find_remedies(evidence, verdict);
    all.into_iter().map(|remedy| remedy.id).collect()
}

#[test]
fn drops_of_the_receiving_host_are_named_by_each_counter_with_what_helps() {
    let lost = sent_again(&losses());
    assert!(lost >= 50, "{lost}");
    let device = |device: DeviceReport| with_device(device);
    let network = with_network;
    let table = [
        (
            device(DeviceReport {
                dropped_in: lost,
                ..DeviceReport::default()
            }),
            "larger-receive-ring",
            "rx_missed_errors",
        ),
        (
            device(DeviceReport {
                without_buffer: lost,
                ..DeviceReport::default()
            }),
            "larger-receive-ring",
            "rx_missed_errors",
        ),
        (
            device(DeviceReport {
                filtered_in: lost,
                ..DeviceReport::default()
            }),
            "lift-ingress-filter",
            "clsact",
        ),
        (
            network(NetworkStack {
                backlog_dropped: lost,
                ..NetworkStack::default()
            }),
            "longer-backlog",
            "netdev_max_backlog",
        ),
        (
            network(NetworkStack {
                receive_queue_dropped: lost / 2,
                socket_backlog_dropped: lost / 2,
                ..NetworkStack::default()
            }),
            "room-in-sockets",
            "TCPRcvQDrop",
        ),
    ];
    for (machine, remedy, counter) in table {
        let evidence = at_receiver(losses(), machine);
        let verdict = diagnose(&evidence);
        assert_eq!(
            (verdict.kind, verdict.cause, verdict.at),
            (Limit::Loss, Cause::ReceiverHost, At::Receiver),
            "{verdict:#?}"
        );
        assert!(verdict.sentence.contains(counter), "{}", verdict.sentence);
        let all = remedies(&evidence, &verdict);
        assert!(all.iter().any(|id| id == remedy), "{remedy}: {all:?}");
        assert!(!all.iter().any(|id| id == "parallel-streams"), "{all:?}");
        assert!(
            verdict.evidence["dropped by the receiving host"].contains("packets"),
            "{:?}",
            verdict.evidence
        );
    }
}

#[test]
fn few_drops_of_the_receiving_host_and_those_of_the_sender_are_not_its_limit() {
    let lost = sent_again(&losses());
    let dropped = |dropped_in: u64| {
        with_device(DeviceReport {
            dropped_in,
            ..DeviceReport::default()
        })
    };
    let plain = named(&losses());
    assert_eq!(plain.1, At::Path);
    let unseen = diagnose(&lossy(&IRREGULAR));
    assert!(unseen.candidates.is_empty(), "{unseen:#?}");
    let would_show = unseen.other_end_would_show.unwrap();
    assert!(would_show.contains("drops packets"), "{would_show}");
    let counted = at_receiver(lossy(&IRREGULAR), dropped(0));
    assert!(
        diagnose(&counted).candidates.is_empty(),
        "it dropped nothing"
    );
    assert_eq!(
        named(&at_receiver(losses(), dropped(9))),
        plain,
        "fewer than ten"
    );
    let few = lossy(&IRREGULAR);
    assert_eq!(sent_again(&few), 10);
    assert_eq!(
        named(&at_receiver(few.clone(), dropped(7))).0,
        Cause::Random,
        "of ten"
    );
    assert_eq!(
        named(&at_receiver(few, dropped(8))).0,
        Cause::ReceiverHost,
        "about all that was lost"
    );
    assert_eq!(
        named(&at_receiver(losses(), dropped(lost / 6))),
        plain,
        "a sixth of what was lost"
    );
    assert_eq!(
        named(&at_receiver(losses(), dropped(lost / 4))).0,
        Cause::ReceiverHost
    );
    let of_sender = Evidence {
        sender_machine: dropped(lost),
        ..losses()
    };
    assert_eq!(named(&of_sender), plain, "what it dropped on the way in");
    let of_both = |sender: u64| Evidence {
        sender_machine: with_device(DeviceReport {
            dropped_out: sender,
            ..DeviceReport::default()
        }),
        ..at_receiver(losses(), dropped(lost))
    };
    assert_eq!(
        named(&of_both(lost - 1)).0,
        Cause::ReceiverHost,
        "a pair of virtual devices"
    );
    assert_eq!(named(&of_both(lost + 1)).0, Cause::HostQueue);
    // A full link, with a queue that stands and overflows.
    let full = stated(capacity("cubic", 20.0, 1), 100);
    assert_eq!(named(&at_receiver(full, dropped(lost))).0, Cause::Link);
    let standing = capacity("cubic", 20.0, 1);
    assert_eq!(named(&at_receiver(standing, dropped(lost))).0, Cause::Link);
    // Nothing was lost.
    let window = receive_window("cubic", 3.0 * MIB, 1);
    assert_eq!(
        named(&at_receiver(window.clone(), dropped(lost))),
        named(&window)
    );
}

/// The receiver's samples of a window under pressure, as Linux 6.18 gave them: four segments of a
/// buffer of 1 MB.
fn pressed_samples(window: u64, rcv_ssthresh: u64, rcvbuf: u64, unread: u64) -> Vec<Sample> {
    let sample = |index: u64| Sample {
        at: Span::from_millis(index * 50),
        stream: 0,
        bytes: ByteCount::ZERO,
        tcp: TcpInfo {
            window_scaling: Some(true),
            rcv_wscale: Some(10),
            rcv_wnd: Some(ByteCount::new(window)),
            rcv_ssthresh: Some(ByteCount::new(rcv_ssthresh)),
            advmss: Some(ByteCount::new(MSS)),
            ..TcpInfo::default()
        },
        memory: Some(SocketMemory {
            rmem_alloc: ByteCount::new(unread),
            rcvbuf: ByteCount::new(rcvbuf),
            ..SocketMemory::default()
        }),
    };
    (1..=200).map(sample).collect()
}

/// Four segments, rounded up to the scale.
const FOUR: u64 = 6144;

fn four_segments_in_flight() -> Evidence {
    receive_window("cubic", FOUR as f64, 1)
}

fn pressed_for(seconds: u64) -> Machine {
    with_network(NetworkStack {
        under_memory_pressure: Span::from_secs(seconds),
        sampled: Span::from_secs(10),
        tcp_memory: ByteCount::from_mib(1500),
        tcp_memory_limit: Some(ByteCount::from_mib(1400)),
        ..NetworkStack::default()
    })
}

fn seen_by_both(samples: Vec<Sample>, machine: Machine) -> Evidence {
    Evidence {
        receiver_samples: samples,
        ..at_receiver(four_segments_in_flight(), machine)
    }
}

#[test]
fn a_receiving_host_that_saves_memory_is_named_and_a_device_is_not() {
    let pressed = || pressed_samples(FOUR, 4 * MSS, 950_000, 0);
    let evidence = seen_by_both(pressed(), pressed_for(9));
    let verdict = diagnose(&evidence);
    assert_eq!(
        (verdict.kind, verdict.cause, verdict.at),
        (Limit::ReceiveWindow, Cause::MemoryPressure, At::Receiver),
        "{verdict:#?}"
    );
    assert!(verdict.candidates.is_empty());
    assert!(
        verdict
            .sentence
            .contains("1.465 GiB in all sockets, tcp_mem 1.367 GiB"),
        "{}",
        verdict.sentence
    );
    assert_eq!(
        remedies(&evidence, &verdict),
        ["end-what-holds-memory", "raise-tcp-mem"]
    );
    // It was called a device that lowers the window: the receiver still stands by an earlier offer.
    let mut offered = pressed();
    offered[120].tcp.rcv_wnd = Some(ByteCount::new(64 << 10));
    assert_eq!(
        named(&seen_by_both(offered.clone(), pressed_for(9))).0,
        Cause::MemoryPressure
    );
    assert_eq!(
        named(&seen_by_both(offered, pressed_for(0))).0,
        Cause::WindowClamped
    );
    // Of a host that does not report its memory, the kernel's limit of the window shows it.
    assert_eq!(
        named(&seen_by_both(pressed(), Machine::default())).0,
        Cause::MemoryPressure
    );
}

#[test]
fn what_disproves_a_lack_of_memory_leaves_the_window_to_its_program() {
    let table = [
        ("no pressure", pressed_samples(FOUR, 4 * MSS, 950_000, 0), 0),
        (
            "little pressure",
            pressed_samples(FOUR, 4 * MSS, 950_000, 0),
            4,
        ),
        (
            "the buffer is as small",
            pressed_samples(FOUR, 4 * MSS, 16_000, 0),
            9,
        ),
        (
            "unread data",
            pressed_samples(FOUR, 4 * MSS, 950_000, 700_000),
            9,
        ),
    ];
    for (name, samples, seconds) in table {
        let verdict = diagnose(&seen_by_both(samples, pressed_for(seconds)));
        assert_ne!(verdict.cause, Cause::MemoryPressure, "{name}: {verdict:#?}");
    }
    let unlimited = pressed_samples(FOUR, 64_088, 950_000, 0);
    let verdict = diagnose(&seen_by_both(unlimited, Machine::default()));
    assert_ne!(verdict.cause, Cause::MemoryPressure, "{verdict:#?}");
    // A reader that is slow on a host with memory.
    let slow = at_receiver(slow_reader("cubic"), pressed_for(9));
    assert_eq!(named(&slow).0, Cause::SlowReader);
}

#[test]
fn the_sender_alone_takes_four_segments_after_a_large_window_for_one_of_several() {
    let alone = |first: f64| {
        let mut evidence = four_segments_in_flight();
        evidence.receiver = None;
        for sample in evidence.sender_samples.iter_mut().take(8) {
            sample.tcp.snd_wnd = Some(ByteCount::from_f64(first));
        }
        evidence
    };
    let verdict = diagnose(&alone(543_744.0));
    assert_eq!(verdict.basis, Basis::Sender);
    let causes: Vec<Cause> = verdict
        .candidates
        .iter()
        .map(|candidate| candidate.cause)
        .collect();
    assert_eq!(
        causes,
        [Cause::MemoryPressure, Cause::WindowClamped, Cause::SoRcvbuf],
        "{verdict:#?}"
    );
    for (name, other) in [
        ("it never was larger", alone(6144.0)),
        ("the host says that it has memory", {
            at_receiver(alone(543_744.0), pressed_for(0))
        }),
    ] {
        let verdict = diagnose(&other);
        assert_ne!(verdict.cause, Cause::MemoryPressure, "{name}: {verdict:#?}");
    }
}

/// A device as `/sys/class/net/DEVICE` states it.
fn link(is_half_duplex: Option<bool>, collisions: u64, late_collisions: u64) -> Machine {
    with_device(DeviceReport {
        name: "eth0".to_owned(),
        sent_packets: 40_000,
        is_half_duplex,
        collisions,
        late_collisions,
        ..DeviceReport::default()
    })
}

/// No device of a test machine can be at half duplex: TUN, veth and the loopback never collide.
/// These counters are those that a card at half duplex has.
#[test]
fn a_link_at_half_duplex_is_named_at_its_end_and_one_without_collisions_is_not() {
    let at_sender = |machine| Evidence {
        sender_machine: machine,
        ..losses()
    };
    let half = || link(Some(true), 3_000, 0);
    for (evidence, at) in [
        (at_sender(half()), At::Sender),
        (at_receiver(losses(), half()), At::Receiver),
        (
            at_receiver(capacity("cubic", 20.0, 1), half()),
            At::Receiver,
        ),
        (at_sender(link(None, 0, 40)), At::Sender),
    ] {
        let verdict = diagnose(&evidence);
        assert_eq!(
            (verdict.kind, verdict.cause, verdict.at),
            (Limit::Capacity, Cause::HalfDuplex, at),
            "{verdict:#?}"
        );
        assert!(verdict.sentence.contains("eth0"), "{}", verdict.sentence);
        let all = remedies(&evidence, &verdict);
        assert!(all.iter().any(|id| id == "negotiate-duplex"), "{all:?}");
    }
    let plain = named(&losses());
    for (name, machine) in [
        ("full duplex", link(Some(false), 3_000, 0)),
        ("duplex not known", link(None, 3_000, 0)),
        ("few collisions", link(Some(true), 300, 0)),
        ("few late ones", link(Some(false), 0, 9)),
    ] {
        assert_eq!(named(&at_receiver(losses(), machine)), plain, "{name}");
    }
    let full = stated(capacity("cubic", 20.0, 1), 100);
    assert_eq!(
        named(&at_receiver(full, half())).0,
        Cause::Link,
        "all that it can carry"
    );
}

#[test]
fn the_receiving_end_alone_sees_what_its_host_does() {
    let alone = |seen, machine| at_receiver(receiving::evidence(seen), machine);
    let pressed = Seen {
        mbps: FOUR as f64 * 8.0 / 1e5 * 0.97,
        window: FOUR,
        rcvbuf: 950_000,
        ..WELL
    };
    let verdict = diagnose(&alone(pressed, pressed_for(9)));
    assert_eq!(
        (verdict.basis, verdict.cause, verdict.at),
        (Basis::Receiver, Cause::MemoryPressure, At::Receiver),
        "{verdict:#?}"
    );
    assert_ne!(
        named(&alone(pressed, pressed_for(0))).0,
        Cause::MemoryPressure
    );
    let lossy = Seen {
        out_of_order: 30,
        ..WELL
    };
    let dropped = |dropped_in| {
        with_device(DeviceReport {
            dropped_in,
            ..DeviceReport::default()
        })
    };
    let verdict = diagnose(&alone(lossy, dropped(900)));
    assert_eq!(
        (verdict.basis, verdict.cause),
        (Basis::Receiver, Cause::ReceiverHost),
        "{verdict:#?}"
    );
    assert!(
        verdict.sentence.contains("This host"),
        "{}",
        verdict.sentence
    );
    assert_eq!(
        named(&alone(lossy, dropped(10))).0,
        Cause::ShallowQueue,
        "fewer than losses"
    );
    let half = diagnose(&alone(lossy, link(Some(true), 3_000, 0)));
    assert_eq!((half.cause, half.at), (Cause::HalfDuplex, At::Receiver));
    assert!(
        half.sentence.contains("receiver's link (eth0)"),
        "{}",
        half.sentence
    );
    assert_eq!(
        named(&alone(lossy, link(Some(false), 3_000, 0))).0,
        Cause::ShallowQueue
    );
}
