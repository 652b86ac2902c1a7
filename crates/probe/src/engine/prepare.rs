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
    pub(crate) fn os_error(&self) -> Option<i32> {
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
    pub(crate) fn of_stream(&self, index: u16) -> Self {
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
pub(crate) fn prepare_socket(
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
pub(crate) fn prepare_udp(
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
pub(crate) fn apply_options(socket: &SockRef<'_>, request: &Request) -> Result<(), PrepareError> {
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

/// Sets the buffers of a socket. A buffer that is stated for one end is set at both: the other end
/// has no data that would fill it.
fn apply_buffers(socket: &SockRef<'_>, request: &Request) -> Result<(), PrepareError> {
    if let Buffer::Request(size) = request.send_buffer() {
        socket
            .set_send_buffer_size(option_value(size, "the buffers")?)
            .map_err(PrepareError::with_option("the send buffer"))?;
    }
    match request.receive_buffer() {
        Buffer::Request(size) => {
            socket
                .set_recv_buffer_size(option_value(size, "the buffers")?)
                .map_err(PrepareError::with_option("the receive buffer"))?;
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
pub(crate) fn read_back(socket: &SockRef<'_>, stream: u16) -> io::Result<SocketReadback> {
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
mod tests;
