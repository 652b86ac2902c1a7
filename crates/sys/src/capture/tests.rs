use super::*;

/// Runs a filter over an IP packet as bpf(4) describes it. Returns how many bytes are kept.
fn kept(program: &[libc::sock_filter], packet: &[u8], protocol: u32, packet_type: u32) -> u32 {
    kept_on(DEVICE, program, packet, protocol, packet_type)
}

fn kept_on(
    device: u32,
    program: &[libc::sock_filter],
    packet: &[u8],
    protocol: u32,
    packet_type: u32,
) -> u32 {
    let byte = |at: u32| packet.get(at as usize).copied();
    let half = |at: u32| Some(u32::from(byte(at)?) << 8 | u32::from(byte(at + 1)?));
    let (mut a, mut x, mut at) = (0, 0, 0);
    loop {
        let line = program[at];
        at += 1;
        let loaded = match line.code {
            0x20 if line.k == libc::SKF_AD_OFF as u32 => Some(protocol),
            0x20 if line.k == libc::SKF_AD_OFF as u32 + 4 => Some(packet_type),
            0x20 if line.k == libc::SKF_AD_OFF as u32 + 8 => Some(device),
            0x20 => half(line.k)
                .zip(half(line.k + 2))
                .map(|(high, low)| high << 16 | low),
            0x28 => half(line.k),
            0x30 => byte(line.k).map(u32::from),
            0x48 => half(line.k + x),
            0xB1 => {
                x = u32::from(packet[0] & 0x0F) * 4;
                Some(a)
            }
            0x54 => Some(a & line.k),
            0x15 => {
                at += usize::from(if a == line.k { line.jt } else { line.jf });
                Some(a)
            }
            0x06 => return line.k,
            other => panic!("{other:x}"),
        };
        // A packet that is too short is not kept.
        let Some(loaded) = loaded else { return 0 };
        a = loaded;
    }
}

fn v4(protocol: u8, hosts: [u8; 2], ports: [u16; 2]) -> Vec<u8> {
    let mut packet = vec![0x46, 0, 0, 44, 0, 0, 0x40, 0, 64, protocol, 0, 0];
    for host in hosts {
        packet.extend([10, 0, 0, host]);
    }
    packet.extend([1, 1, 1, 0]);
    for port in ports {
        packet.extend(port.to_be_bytes());
    }
    packet.extend([0; 16]);
    packet
}

fn v6(protocol: u8, hosts: [u8; 2], ports: [u16; 2]) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0, 0, 20, protocol, 64];
    for host in hosts {
        packet.extend([0xFD, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host]);
    }
    for port in ports {
        packet.extend(port.to_be_bytes());
    }
    packet.extend([0; 16]);
    packet
}

const LOOPBACK: u32 = 1;
const DEVICE: u32 = 7;
const V4: u32 = 0x0800;
const V6: u32 = 0x86DD;

#[test]
fn a_filter_passes_tcp_alone() {
    let program = filter_program(&[], Some(LOOPBACK));
    let kept = |packet: &[u8], protocol| kept(&program, packet, protocol, 0);
    assert_eq!(kept(&v4(6, [1, 2], [7, 8]), V4), CAPTURED_LENGTH);
    assert_eq!(kept(&v6(6, [1, 2], [7, 8]), V6), CAPTURED_LENGTH);
    let fragment = |protocol| {
        [
            &v6(44, [1, 2], [0, 0])[..40],
            &[protocol, 0, 0, 0, 0, 0, 0, 0],
        ]
        .concat()
    };
    assert_eq!(
        (kept(&fragment(6), V6), kept(&fragment(17), V6)),
        (CAPTURED_LENGTH, 0)
    );
    assert_eq!(
        (
            kept(&v4(17, [1, 2], [7, 8]), V4),
            kept(&v6(58, [1, 2], [7, 8]), V6)
        ),
        (0, 0)
    );
    assert_eq!(
        (kept(&[0; 28], 0x0806), kept(&[0x45; 4], V4)),
        (0, 0),
        "ARP, and what is too short"
    );
}

#[test]
fn a_filter_for_a_peer_passes_both_directions_of_its_connections() {
    type Build = fn(u8, [u8; 2], [u16; 2]) -> Vec<u8>;
    for (remote, packet, protocol) in [
        ("10.0.0.2:5201", v4 as Build, V4),
        ("[fd00::2]:5201", v6, V6),
    ] {
        let other = CapturedPeer {
            remote: "192.0.2.1:5201".parse().unwrap(),
            local_port: None,
        };
        let peer = CapturedPeer {
            remote: remote.parse().unwrap(),
            local_port: None,
        };
        let any_port = filter_program(&[other, peer], Some(LOOPBACK));
        let passes = |packet: &[u8]| kept(&any_port, packet, protocol, 0) > 0;
        assert!(
            passes(&packet(6, [1, 2], [40_000, 5201]))
                && passes(&packet(6, [2, 1], [5201, 40_000]))
        );
        assert!(
            !passes(&packet(6, [1, 2], [5201, 40_000])),
            "the port is the other end's"
        );
        assert!(
            !passes(&packet(6, [1, 3], [40_000, 5201]))
                && !passes(&packet(6, [3, 1], [5201, 40_000]))
        );
        assert!(!passes(&packet(17, [1, 2], [40_000, 5201])));
        let one_port = filter_program(
            &[CapturedPeer {
                local_port: Some(40_000),
                ..peer
            }],
            None,
        );
        let passes = |packet: &[u8]| kept(&one_port, packet, protocol, 0) > 0;
        assert!(
            passes(&packet(6, [1, 2], [40_000, 5201]))
                && passes(&packet(6, [2, 1], [5201, 40_000]))
        );
        assert!(
            !passes(&packet(6, [1, 2], [40_001, 5201]))
                && !passes(&packet(6, [2, 1], [5201, 40_001]))
        );
    }
    let many = vec![
        CapturedPeer {
            remote: "[fd00::2]:1".parse().unwrap(),
            local_port: Some(1)
        };
        1000
    ];
    // In the kernel a load is up to eight instructions, and a comparison two, of eight bytes
    // each.
    assert!(filter_program(&many, Some(LOOPBACK)).len() / 2 * (8 + 2) * 8 <= 20 << 10);
}

#[test]
fn loopback_passes_each_packet_once() {
    let (program, packet) = (filter_program(&[], Some(LOOPBACK)), v4(6, [1, 2], [7, 8]));
    let outgoing = 4;
    let kept = |device, packet_type| kept_on(device, &program, &packet, V4, packet_type);
    assert_eq!(
        [kept(LOOPBACK, outgoing), kept(LOOPBACK, 0)],
        [0, CAPTURED_LENGTH]
    );
    assert_eq!(
        [kept(DEVICE, outgoing), kept(DEVICE, 0)],
        [CAPTURED_LENGTH; 2]
    );
}

#[test]
fn a_block_with_wrong_lengths_ends_early() {
    let mut block = vec![0; 400];
    block[12..16].copy_from_slice(&3_u32.to_ne_bytes());
    block[16..20].copy_from_slice(&48_u32.to_ne_bytes());
    let mut frame = |at: usize, next: u32, captured: u32, begin: u16| {
        block[at..at + 4].copy_from_slice(&next.to_ne_bytes());
        block[at + 4..at + 8].copy_from_slice(&7_u32.to_ne_bytes());
        block[at + 12..at + 16].copy_from_slice(&captured.to_ne_bytes());
        block[at + 26..at + 28].copy_from_slice(&begin.to_ne_bytes());
    };
    frame(48, 100, 30, 70);
    frame(148, 100, 300, 70);
    let mut lengths = Vec::new();
    assert_eq!(
        visit_frames(&block, &mut |frame| lengths
            .push((frame.bytes.len(), frame.at.as_nanos()))),
        1
    );
    assert_eq!(lengths, [(30, 7_000_000_000)]);
    assert_eq!(visit_frames(&[], &mut |_| panic!()), 0);
}
