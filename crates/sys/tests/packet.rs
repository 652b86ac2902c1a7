//! Two network namespaces whose packets go through packet sockets.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use fullpipe_sys::{
    Ipv4Link, NetNamespace, configure_ipv4, create_veth, ethernet_up, open_packet_socket,
    packet_drops, set_ethernet_address, without_arp,
};
use fullpipe_testkit::require;
use fullpipe_units::{ByteCount, SegCount};

const DEVICE: &str = "packet0";
const ADDRESS: [u8; 6] = [2, 0, 0, 0, 0, 1];
const HOSTS: [Ipv4Addr; 2] = [Ipv4Addr::new(198, 18, 2, 1), Ipv4Addr::new(198, 18, 2, 2)];
const MTU: ByteCount = ByteCount::new(1500);

const VIRTIO: usize = 10;
const ETHERNET: usize = 14;

/// A host, in whose network the calling thread is then, and the socket at the other end of its
/// device.
fn host(local: Ipv4Addr, peer: Ipv4Addr) -> (NetNamespace, File) {
    let network = NetNamespace::create().unwrap();
    let outside = NetNamespace::create().unwrap();
    create_veth(DEVICE, [&network, &outside]).unwrap();
    ethernet_up(DEVICE, ByteCount::new(65_535)).unwrap();
    let socket = open_packet_socket(DEVICE).unwrap();
    network.enter().unwrap();
    set_ethernet_address(DEVICE, ADDRESS).unwrap();
    configure_ipv4(
        DEVICE,
        Ipv4Link {
            local,
            peer,
            mtu: MTU,
            transmit_queue: SegCount::new(1000),
        },
    )
    .unwrap();
    without_arp(DEVICE).unwrap();
    (network, File::from(socket))
}

/// Passes on what the first socket reads, until all is done; the longest frame.
fn pass_on(mut from: File, mut to: File, done: &AtomicBool) -> usize {
    let (mut frame, mut longest) = (vec![0; VIRTIO + ETHERNET + 65_535], 0);
    while !done.load(Ordering::Relaxed) {
        match from.read(&mut frame) {
            Ok(length) => {
                // Without a word about hardware addresses in between, it is the frame that the
                // other host takes.
                assert_eq!(frame[VIRTIO..VIRTIO + 12], [ADDRESS, ADDRESS].concat());
                assert_eq!(frame[VIRTIO + 12..=VIRTIO + ETHERNET], [8, 0, 0x45]);
                to.write_all(&frame[..length]).unwrap();
                longest = longest.max(length);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                thread::sleep(Duration::from_micros(200));
            }
            Err(error) => panic!("{error}"),
        }
    }
    longest
}

#[test]
fn tcp_runs_through_two_sockets_in_trains() {
    const BYTES: usize = 8 << 20;
    require!(Root, Lab);
    let (first, first_socket) = host(HOSTS[0], HOSTS[1]);
    let (second, second_socket) = host(HOSTS[1], HOSTS[0]);
    let done = Arc::new(AtomicBool::new(false));
    let (forward_done, reverse_done) = (Arc::clone(&done), Arc::clone(&done));
    let (from_first, to_first) = (first_socket.try_clone().unwrap(), first_socket);
    let (from_second, to_second) = (second_socket.try_clone().unwrap(), second_socket);
    let forward = thread::spawn(move || pass_on(from_first, to_second, &forward_done));
    let reverse = thread::spawn(move || pass_on(from_second, to_first, &reverse_done));

    let listener = TcpListener::bind((HOSTS[1], 0)).unwrap();
    let to = listener.local_addr().unwrap();
    let sent: Vec<u8> = (0..BYTES).map(|index| (index % 251) as u8).collect();
    let expected = sent.clone();
    let sender = thread::spawn(move || {
        first.enter().unwrap();
        TcpStream::connect_timeout(&to, Duration::from_secs(3))
            .unwrap()
            .write_all(&sent)
            .unwrap();
        first
    });
    let (mut connection, _) = listener.accept().unwrap();
    connection
        .set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    let mut received = Vec::new();
    connection.read_to_end(&mut received).unwrap();
    // Their devices go with the namespaces.
    let _hosts = (sender.join().unwrap(), second);
    done.store(true, Ordering::Relaxed);
    assert!(
        received == expected,
        "{} bytes of {BYTES}, or other ones",
        received.len()
    );
    assert!(
        forward.join().unwrap() > VIRTIO + ETHERNET + 1500,
        "data goes in trains"
    );
    assert!(
        reverse.join().unwrap() <= VIRTIO + ETHERNET + 1500,
        "acknowledgements do not"
    );
}

#[test]
fn what_finds_the_buffer_full_is_counted() {
    require!(Root, Lab);
    let (_network, mut socket) = host(HOSTS[0], HOSTS[1]);
    rustix::net::sockopt::set_socket_recv_buffer_size(socket.as_fd(), 100_000).unwrap();
    let datagrams = UdpSocket::bind((HOSTS[0], 0)).unwrap();
    for _ in 0..1_000 {
        datagrams.send_to(&[7; 1000], (HOSTS[1], 9)).unwrap();
    }
    let drops = packet_drops(&socket).unwrap();
    let (mut frame, mut read) = ([0; 2000], 0);
    while let Ok(length) = socket.read(&mut frame) {
        assert_eq!(length, VIRTIO + ETHERNET + 20 + 8 + 1000);
        read += 1;
    }
    assert!(read > 0 && drops > 0, "{read} read, {drops} dropped");
    assert_eq!(read + drops, 1_000);
    assert_eq!(packet_drops(&socket).unwrap(), 0, "each is counted once");
}
