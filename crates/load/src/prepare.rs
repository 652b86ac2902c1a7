//! Socket options: set as asked, read back as they are.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use fullpipe_record::{Buffer, Request, SocketReadback};
use fullpipe_sys::set_pacing_rate;
use fullpipe_units::ByteCount;
use rustix::net::sockopt::{
    Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery, set_ip_mtu_discover, set_ipv6_mtu_discover,
    set_socket_recv_buffer_size_force,
};
use socket2::{Domain, Protocol, SockAddr, SockRef, Socket, Type};
use thiserror::Error;

/// An option that the kernel refused.
#[derive(Debug, Error)]
#[error("cannot set {option} on a socket: {cause}")]
pub struct PrepareError {
    option: String,
    #[source]
    cause: io::Error,
}

impl PrepareError {
    fn with_option(option: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let option = option.into();
        move |cause| Self { option, cause }
    }

    /// Returns the kind of refusal.
    pub fn kind(&self) -> io::ErrorKind {
        self.cause.kind()
    }

    /// The operating system's number for it.
    pub fn os_error(&self) -> Option<i32> {
        self.cause.raw_os_error()
    }
}

/// Receive buffers asked for where datagrams arrive and nothing else was asked, of all streams
/// together: what 10 Gbit/s bring while a busy machine has other things to do.
const DATAGRAM_ROOM: usize = 16 << 20;

/// The least receive buffer that one of many streams asks for where datagrams arrive.
const MIN_ROOM: usize = 1 << 20;

/// The near end of a connection, as far as that is not left to the kernel.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LocalEndpoint {
    /// An address of this host.
    pub address: Option<IpAddr>,
    /// The device that everything must pass (`SO_BINDTODEVICE`).
    pub device: Option<String>,
    /// The port of the first stream.
    pub port: Option<u16>,
}

impl LocalEndpoint {
    /// The near end of stream `index`: each stream has a port of its own, one above the last.
    #[must_use]
    pub fn of_stream(&self, index: u16) -> Self {
        Self {
            port: self.port.map(|first| first.saturating_add(index)),
            ..self.clone()
        }
    }
}

/// A TCP socket for a connection to `peer`, with everything set that must be set before it
/// connects.
///
/// # Errors
/// If the kernel makes no socket or refuses an option, as a congestion control that it lacks, or
/// Multipath TCP.
pub fn prepare_socket(
    peer: SocketAddr,
    request: &Request,
    local: &LocalEndpoint,
) -> Result<Socket, PrepareError> {
    let (protocol, name) = if request.multipath {
        (
            Protocol::MPTCP,
            "the protocol Multipath TCP, which this kernel lacks or has switched off (net.mptcp.enabled),",
        )
    } else {
        (Protocol::TCP, "the protocol TCP")
    };
    let socket = Socket::new(Domain::for_address(peer), Type::STREAM, Some(protocol))
        .map_err(PrepareError::with_option(name))?;
    apply_options(&SockRef::from(&socket), request)?;
    bind_socket(&socket, peer, local)?;
    Ok(socket)
}

/// A UDP socket for datagrams to `peer`, not yet connected to it.
///
/// # Errors
/// If the kernel makes no socket or refuses an option.
pub fn prepare_udp(
    peer: SocketAddr,
    request: &Request,
    local: &LocalEndpoint,
) -> Result<Socket, PrepareError> {
    let socket = Socket::new(Domain::for_address(peer), Type::DGRAM, Some(Protocol::UDP))
        .map_err(PrepareError::with_option("the protocol UDP"))?;
    apply_options(&SockRef::from(&socket), request)?;
    bind_socket(&socket, peer, local)?;
    Ok(socket)
}

/// Sets what `request` asks for, of what a socket of this kind has. Buffers must be set before a
/// connection is made or accepted: the window scale is agreed in its first packets.
///
/// # Errors
/// If the kernel refuses an option.
pub fn apply_options(socket: &SockRef<'_>, request: &Request) -> Result<(), PrepareError> {
    apply_buffers(socket, request)?;
    if let Some(rate) = request.pacing {
        set_pacing_rate(&**socket, rate).map_err(PrepareError::with_option("the pacing rate"))?;
    }
    if request.tos != 0 {
        set_type_of_service(socket, request.tos)
            .map_err(PrepareError::with_option("the type of service"))?;
    }
    if request.dont_fragment {
        forbid_fragments(socket).map_err(PrepareError::with_option("the rule not to fragment"))?;
    }
    if is_stream(socket) {
        apply_tcp_options(socket, request)
    } else {
        Ok(())
    }
}

fn apply_buffers(socket: &SockRef<'_>, request: &Request) -> Result<(), PrepareError> {
    match request.buffer {
        Buffer::Request(size) => {
            let bytes = option_value(size, "the buffers")?;
            socket
                .set_recv_buffer_size(bytes)
                .map_err(PrepareError::with_option("the receive buffer"))?;
            socket
                .set_send_buffer_size(bytes)
                .map_err(PrepareError::with_option("the send buffer"))?;
        }
        Buffer::Window(_) => {
            let why = "a window is none of a socket's options: ask for the buffers that yield it";
            return Err(PrepareError::with_option("the window")(io::Error::new(
                io::ErrorKind::InvalidInput,
                why,
            )));
        }
        // The kernel tunes none for datagrams; the usual holds what comes in a fraction of a
        // millisecond.
        Buffer::Automatic if !is_stream(socket) => {
            let room = (DATAGRAM_ROOM / usize::from(request.streams.max(1))).max(MIN_ROOM);
            // Only who administers the network gets more than `net.core.rmem_max`.
            if set_socket_recv_buffer_size_force(&**socket, room).is_err() {
                socket
                    .set_recv_buffer_size(room)
                    .map_err(PrepareError::with_option("the receive buffer"))?;
            }
        }
        Buffer::Automatic => {}
    }
    Ok(())
}

fn apply_tcp_options(socket: &SockRef<'_>, request: &Request) -> Result<(), PrepareError> {
    if let Some(name) = &request.congestion {
        socket
            .set_tcp_congestion(name.as_bytes())
            .map_err(PrepareError::with_option(format!(
                "the congestion control {name}"
            )))?;
    }
    if let Some(mss) = request.mss {
        socket
            .set_tcp_mss(option_value(mss, "the segment size")?)
            .map_err(PrepareError::with_option("the segment size"))?;
    }
    if request.no_delay {
        socket
            .set_tcp_nodelay(true)
            .map_err(PrepareError::with_option(
                "the rule not to delay small writes",
            ))?;
    }
    Ok(())
}

/// Returns `size` as the number that `option` takes: a signed one of 32 bits, of which the kernel
/// would keep only the low bits of more.
fn option_value<N: TryFrom<i32>>(size: ByteCount, option: &str) -> Result<N, PrepareError> {
    let number = i32::try_from(size.get())
        .ok()
        .and_then(|number| N::try_from(number).ok());
    number.ok_or_else(|| {
        let why = format!("{size} is more than the kernel takes");
        PrepareError::with_option(option)(io::Error::new(io::ErrorKind::InvalidInput, why))
    })
}

/// Returns the options that a data socket has, whatever was asked.
///
/// # Errors
/// If the kernel does not report them.
pub fn read_back(socket: &SockRef<'_>, stream: u16) -> io::Result<SocketReadback> {
    Ok(SocketReadback {
        stream,
        sndbuf: ByteCount::new(socket.send_buffer_size()? as u64),
        rcvbuf: ByteCount::new(socket.recv_buffer_size()? as u64),
        congestion: if is_stream(socket) {
            congestion_control(socket)?
        } else {
            String::new()
        },
        local: address_text(socket.local_addr().ok()),
        remote: address_text(socket.peer_addr().ok()),
        handshake: None,
        syn_quotes: Vec::new(),
    })
}

fn congestion_control(socket: &SockRef<'_>) -> io::Result<String> {
    let name: Vec<u8> = socket
        .tcp_congestion()?
        .into_iter()
        .take_while(|&byte| byte != 0)
        .collect();
    Ok(String::from_utf8_lossy(&name).into_owned())
}

/// An address as people write it: a socket for both families has IPv4 peers as `::ffff:192.0.2.1`.
fn address_text(address: Option<SockAddr>) -> String {
    let address = address.and_then(|address| address.as_socket());
    address.map_or_else(String::new, |address| {
        SocketAddr::new(address.ip().to_canonical(), address.port()).to_string()
    })
}

fn is_stream(socket: &SockRef<'_>) -> bool {
    socket.r#type().is_ok_and(|kind| kind == Type::STREAM)
}

/// A socket of IPv6 may have an IPv4 peer, and then heeds the rules of IPv4.
fn is_ipv6(socket: &SockRef<'_>) -> bool {
    socket.domain().is_ok_and(|domain| domain == Domain::IPV6)
}

fn set_type_of_service(socket: &SockRef<'_>, tos: u8) -> io::Result<()> {
    if is_ipv6(socket) {
        socket.set_tclass_v6(tos.into())?;
    }
    socket.set_tos_v4(tos.into())
}

fn forbid_fragments(socket: &SockRef<'_>) -> io::Result<()> {
    if is_ipv6(socket) {
        set_ipv6_mtu_discover(&**socket, Ipv6PathMtuDiscovery::DO)?;
    }
    Ok(set_ip_mtu_discover(&**socket, Ipv4PathMtuDiscovery::DO)?)
}

fn bind_socket(
    socket: &Socket,
    peer: SocketAddr,
    local: &LocalEndpoint,
) -> Result<(), PrepareError> {
    if let Some(device) = &local.device {
        socket
            .bind_device(Some(device.as_bytes()))
            .map_err(PrepareError::with_option(format!("the device {device}")))?;
    }
    if local.address.is_none() && local.port.is_none() {
        return Ok(());
    }
    if local.port.is_some() {
        // The last test from this port may still be in TIME_WAIT.
        socket
            .set_reuse_address(true)
            .map_err(PrepareError::with_option("the rule to use a port again"))?;
    }
    let any = if peer.is_ipv4() {
        IpAddr::from(Ipv4Addr::UNSPECIFIED)
    } else {
        Ipv6Addr::UNSPECIFIED.into()
    };
    let address = SocketAddr::new(local.address.unwrap_or(any), local.port.unwrap_or(0));
    socket
        .bind(&address.into())
        .map_err(PrepareError::with_option(format!(
            "the local address {address}"
        )))
}

#[cfg(test)]
mod tests {
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
}
