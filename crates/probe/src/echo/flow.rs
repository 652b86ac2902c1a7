//! The socket of a flow of echo requests.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::engine::LocalEndpoint;
use fullpipe_iperf::TestCookie;
use fullpipe_record::RttMethod;
use fullpipe_sys::{receive_arrival, receive_departure, stamp_passages, wait_readable};
use fullpipe_units::{ByteCount, Span};
use socket2::{Domain, Protocol, Socket, Type};

use super::datagram;
use super::icmp::{self, EchoMessages};

/// Bytes of the longest packet that is received, including an IP header with options.
const MAX_PACKET: usize = 256;

/// An answer to an echo request.
#[derive(Clone, Copy)]
pub(super) struct EchoAnswer {
    pub number: u64,
    /// Time at which it arrived, by the wall clock.
    pub came: Option<Span>,
    /// Time for which the other end had the request.
    pub residence: Span,
}

/// A socket for echo requests, and the protocol on it.
pub(super) struct EchoFlow {
    socket: Socket,
    protocol: EchoProtocol,
}

enum EchoProtocol {
    Icmp(EchoMessages),
    Datagrams(Box<TestCookie>),
}

impl EchoFlow {
    /// Opens a flow of echo requests to the kernel at `target`, with a `token` that no other flow
    /// has.
    ///
    /// # Errors
    /// Fails if this user may open neither ping sockets (`net.ipv4.ping_group_range`) nor raw ones
    /// (`CAP_NET_RAW`).
    pub(super) fn of_icmp(
        target: SocketAddr,
        local: &LocalEndpoint,
        token: u64,
    ) -> io::Result<Self> {
        let (socket, echoes) = open_echo_socket(target.ip(), token)?;
        let mut target = target;
        target.set_port(0);
        prepare_socket(&socket, target, local)?;
        Ok(Self {
            socket,
            protocol: EchoProtocol::Icmp(echoes),
        })
    }

    /// Opens a flow of datagrams to the server at `target`, in the test with this `cookie`.
    ///
    /// # Errors
    /// Fails if a system call does.
    pub(super) fn of_datagrams(
        target: SocketAddr,
        local: &LocalEndpoint,
        cookie: TestCookie,
    ) -> io::Result<Self> {
        let socket = Socket::new(
            Domain::for_address(target),
            Type::DGRAM,
            Some(Protocol::UDP),
        )?;
        prepare_socket(&socket, target, local)?;
        Ok(Self {
            socket,
            protocol: EchoProtocol::Datagrams(Box::new(cookie)),
        })
    }

    pub(super) fn method(&self) -> RttMethod {
        match self.protocol {
            EchoProtocol::Icmp(_) => RttMethod::Icmp,
            EchoProtocol::Datagrams(_) => RttMethod::UdpEcho,
        }
    }

    /// Returns about the bytes of a request on a link: with the header of IPv4 or IPv6, and those
    /// of UDP and Ethernet.
    pub(super) fn wire_bytes(&self) -> ByteCount {
        const HEADERS: usize = 40 + 8 + 18;
        let payload = match self.protocol {
            EchoProtocol::Icmp(_) => icmp::LENGTH,
            EchoProtocol::Datagrams(_) => datagram::LENGTH,
        };
        ByteCount::new((payload + HEADERS) as u64)
    }

    /// Sends request `number`.
    ///
    /// # Errors
    /// Fails if the kernel does not send it, or reports an ICMP error about an earlier one.
    pub(super) fn send_request(&self, number: u64) -> io::Result<()> {
        match &self.protocol {
            EchoProtocol::Icmp(echoes) => self.socket.send(&echoes.encode_request(number)),
            EchoProtocol::Datagrams(cookie) => {
                self.socket.send(&datagram::encode_request(cookie, number))
            }
        }
        .map(drop)
    }

    /// Waits until a packet can be received, at most for `longest`.
    pub(super) fn wait_for_packet(&self, longest: Duration) {
        // An error shows at the next read.
        let _ = wait_readable(&self.socket, longest);
    }

    /// Returns the next request that has left the host, and the time, by the wall clock; `None` if
    /// no other has left since the last call.
    pub(super) fn next_departure(&self) -> Option<(u64, Option<Span>)> {
        let mut packet = [0; MAX_PACKET];
        let gone = receive_departure(&self.socket, &mut packet).ok()?;
        // Messages of both protocols end with the number.
        let number = packet[..gone.length]
            .last_chunk()
            .map(|bytes| u64::from_be_bytes(*bytes));
        Some((number.unwrap_or(u64::MAX), gone.at))
    }

    /// Returns the answer in the next packet; `None` if the packet is no answer.
    ///
    /// # Errors
    /// `WouldBlock` if there is no packet, or the ICMP error about an earlier request, as for a
    /// closed port.
    pub(super) fn next_answer(&self) -> io::Result<Option<EchoAnswer>> {
        let mut packet = [0; MAX_PACKET];
        let come = receive_arrival(&self.socket, &mut packet)?;
        let packet = &packet[..come.length];
        let answered = match &self.protocol {
            EchoProtocol::Icmp(echoes) => echoes
                .answered_number(packet)
                .map(|number| (number, Span::ZERO)),
            EchoProtocol::Datagrams(cookie) => datagram::parse_answer(packet, cookie),
        };
        Ok(answered.map(|(number, residence)| EchoAnswer {
            number,
            came: come.at,
            residence,
        }))
    }
}

/// Opens a socket for echo requests to `target`, of type ping or raw. Returns the form of the
/// messages with this `token` on it too.
///
/// # Errors
/// Fails if this user may open neither.
pub(crate) fn open_echo_socket(target: IpAddr, token: u64) -> io::Result<(Socket, EchoMessages)> {
    let (domain, protocol) = match target {
        IpAddr::V4(_) => (Domain::IPV4, Protocol::ICMPV4),
        IpAddr::V6(_) => (Domain::IPV6, Protocol::ICMPV6),
    };
    let (socket, is_raw) = match Socket::new(domain, Type::DGRAM, Some(protocol)) {
        Ok(socket) => (socket, false),
        Err(_) => (Socket::new(domain, Type::RAW, Some(protocol))?, true),
    };
    let echoes = EchoMessages {
        is_ipv6: target.is_ipv6(),
        is_raw,
        token,
    };
    Ok((socket, echoes))
}

/// Binds and connects `socket`, and asks the kernel for time stamps; without them the program's own
/// clock is used.
fn prepare_socket(socket: &Socket, target: SocketAddr, local: &LocalEndpoint) -> io::Result<()> {
    bind_socket(socket, local)?;
    socket.connect(&target.into())?;
    socket.set_nonblocking(true)?;
    let _ = stamp_passages(socket, true);
    Ok(())
}

/// Binds `socket` to the device and the address of `local`; the kernel chooses its port.
pub(crate) fn bind_socket(socket: &Socket, local: &LocalEndpoint) -> io::Result<()> {
    if let Some(device) = &local.device {
        socket.bind_device(Some(device.as_bytes()))?;
    }
    if let Some(address) = local.address {
        socket.bind(&SocketAddr::new(address, 0).into())?;
    }
    Ok(())
}
