use super::*;
use fullpipe_record::Transport;
use fullpipe_units::BitRate;
use rustix::net::sockopt::ip_mtu_discover;
use std::net::TcpListener;

const PEER: ([u8; 4], u16) = ([127, 0, 0, 1], 5201);

#[test]
fn the_congestion_control_is_what_was_asked() {
    let request = Request {
        congestion: Some("reno".to_owned()),
        ..Request::default()
    };
    let socket = prepare_socket(PEER.into(), &request, &LocalEndpoint::default()).unwrap();
    assert_eq!(
        read_back(&SockRef::from(&socket), 3).unwrap().congestion,
        "reno"
    );
}

#[test]
fn the_kernel_doubles_a_buffer() {
    let request = Request {
        buffer: Buffer::Request(ByteCount::new(50_000)),
        ..Request::default()
    };
    let socket = prepare_socket(PEER.into(), &request, &LocalEndpoint::default()).unwrap();
    let found = read_back(&SockRef::from(&socket), 0).unwrap();
    assert_eq!((found.sndbuf.get(), found.rcvbuf.get()), (100_000, 100_000));
}

#[test]
fn sizes_of_more_than_31_bits_are_refused_and_not_cut_off() {
    let refusal = |request: &Request| {
        prepare_socket(PEER.into(), request, &LocalEndpoint::default())
            .unwrap_err()
            .to_string()
    };
    let buffer = Request {
        buffer: Buffer::Request(ByteCount::from_mib(8 << 10)),
        ..Request::default()
    };
    assert_eq!(
        refusal(&buffer),
        "cannot set the buffers on a socket: 8 GiB is more than the kernel takes"
    );
    let mss = Request {
        mss: Some(ByteCount::new(4_294_968_760)),
        ..Request::default()
    };
    assert!(
        refusal(&mss).starts_with("cannot set the segment size on a socket: "),
        "{}",
        refusal(&mss)
    );
}

#[test]
fn a_window_that_nobody_turned_into_buffers_is_refused() {
    let request = Request {
        buffer: Buffer::Window(ByteCount::from_kib(64)),
        ..Request::default()
    };
    let error = prepare_socket(PEER.into(), &request, &LocalEndpoint::default()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
}

#[test]
fn a_congestion_control_that_is_not_there_is_named() {
    let request = Request {
        congestion: Some("nosuch".to_owned()),
        ..Request::default()
    };
    let error = prepare_socket(PEER.into(), &request, &LocalEndpoint::default()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot set the congestion control nosuch on a socket: No such file or directory (os error 2)"
    );
}

#[test]
fn what_is_asked_of_tcp_is_set() {
    let request = Request {
        no_delay: true,
        tos: 0xb8,
        pacing: Some(BitRate::from_mbps(80)),
        mss: Some(ByteCount::new(1_000)),
        dont_fragment: true,
        ..Request::default()
    };
    let socket = prepare_socket(PEER.into(), &request, &LocalEndpoint::default()).unwrap();
    assert!(socket.tcp_nodelay().unwrap());
    assert_eq!(socket.tos_v4().unwrap(), 0xb8);
    assert_eq!(socket.tcp_mss().unwrap(), 1_000);
    assert_eq!(ip_mtu_discover(&socket).unwrap(), Ipv4PathMtuDiscovery::DO);
    assert_eq!(
        fullpipe_sys::tcp_info(&socket).unwrap().max_pacing_rate,
        request.pacing
    );
}

#[test]
fn what_is_asked_of_udp_is_set() {
    let request = Request {
        transport: Transport::Udp,
        tos: 0x20,
        buffer: Buffer::Request(ByteCount::new(50_000)),
        dont_fragment: true,
        congestion: Some("nosuch".to_owned()),
        mss: Some(ByteCount::new(1_000)),
        ..Request::default()
    };
    for peer in [SocketAddr::from(PEER), "[::1]:5201".parse().unwrap()] {
        let Ok(socket) = prepare_udp(peer, &request, &LocalEndpoint::default()) else {
            assert!(peer.is_ipv6(), "a machine may lack IPv6, and nothing else");
            continue;
        };
        assert_eq!(socket.tos_v4().unwrap(), 0x20);
        assert_eq!(ip_mtu_discover(&socket).unwrap(), Ipv4PathMtuDiscovery::DO);
        if peer.is_ipv6() {
            assert_eq!(socket.tclass_v6().unwrap(), 0x20);
        }
        let found = read_back(&SockRef::from(&socket), 1).unwrap();
        assert_eq!((found.sndbuf.get(), found.rcvbuf.get()), (100_000, 100_000));
        assert_eq!((found.congestion.as_str(), found.remote.as_str()), ("", ""));
    }
}

#[test]
fn datagrams_get_room_unless_somebody_asked_for_less() {
    let room = |request: &Request| {
        let socket = prepare_udp(PEER.into(), request, &LocalEndpoint::default()).unwrap();
        read_back(&SockRef::from(&socket), 0).unwrap().rcvbuf
    };
    let usual = Socket::new(Domain::IPV4, Type::DGRAM, None)
        .unwrap()
        .recv_buffer_size()
        .unwrap() as u64;
    let udp = Request {
        transport: Transport::Udp,
        ..Request::default()
    };
    // As much as this machine permits, which may be no more than the usual.
    assert!(room(&udp).get() >= usual);
    assert_eq!(
        room(&Request {
            buffer: Buffer::Request(ByteCount::new(50_000)),
            ..udp
        })
        .get(),
        100_000
    );
}

#[test]
fn streams_begin_where_they_are_reported() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = Some("127.0.0.9".parse().unwrap());
    let free = TcpListener::bind("127.0.0.9:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let local = LocalEndpoint {
        address,
        device: Some("lo".to_owned()),
        port: Some(free),
    };
    let socket = prepare_socket(
        listener.local_addr().unwrap(),
        &Request::default(),
        &local.of_stream(0),
    )
    .unwrap();
    socket
        .connect(&listener.local_addr().unwrap().into())
        .unwrap();
    let found = read_back(&SockRef::from(&socket), 0).unwrap();
    assert_eq!(found.local, format!("127.0.0.9:{free}"));
    assert_eq!(found.remote, listener.local_addr().unwrap().to_string());
    assert_eq!(local.of_stream(2).port, Some(free.saturating_add(2)));
}

#[test]
fn an_address_that_is_not_ours_and_a_device_that_is_not_there_are_named() {
    let refusal = |local| {
        prepare_udp(PEER.into(), &Request::default(), &local)
            .unwrap_err()
            .to_string()
    };
    let elsewhere = LocalEndpoint {
        address: Some("192.0.2.1".parse().unwrap()),
        ..LocalEndpoint::default()
    };
    assert_eq!(
        refusal(elsewhere),
        "cannot set the local address 192.0.2.1:0 on a socket: Cannot assign requested address (os error 99)"
    );
    let nowhere = LocalEndpoint {
        device: Some("nosuch0".to_owned()),
        ..LocalEndpoint::default()
    };
    assert!(refusal(nowhere).starts_with("cannot set the device nosuch0 on a socket: "));
}

#[test]
fn multipath_is_there_or_its_lack_is_named() {
    let request = Request {
        multipath: true,
        ..Request::default()
    };
    match prepare_socket(PEER.into(), &request, &LocalEndpoint::default()) {
        Ok(socket) => assert_eq!(socket.protocol().unwrap(), Some(Protocol::MPTCP)),
        Err(error) => assert!(error.to_string().contains("net.mptcp.enabled"), "{error}"),
    }
}
