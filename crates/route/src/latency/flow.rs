//! The socket of a flow of echo requests.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use fullpipe_iperf::Cookie;
use fullpipe_load::Local;
use fullpipe_record::RttMethod;
use fullpipe_sys::{arrival, departure, stamp_passages};
use fullpipe_units::{ByteCount, Span};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use socket2::{Domain, Protocol, Socket, Type};

use super::datagram;
use super::icmp::{self, Echoes};

/// The longest packet that comes back, with room for what an IP header may have.
const MAX_PACKET: usize = 256;

/// An answer to a request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Handshake {
    pub(super) number: u64,
    /// When it came in, by the wall clock.
    pub(super) came: Option<Span>,
    /// For how long the other end had the request.
    pub(super) residence: Span,
}

/// A socket, and what it speaks.
#[derive(Debug)]
pub(super) struct Flow {
    socket: Socket,
    speaks: Speaks,
}

#[derive(Debug)]
enum Speaks {
    Icmp(Echoes),
    Datagrams(Box<Cookie>),
}

impl Flow {
    /// Echo requests to the kernel at `target`, with a `token` that nobody else has.
    ///
    /// # Errors
    /// Where this user may not: ping sockets are closed (`net.ipv4.ping_group_range`) and so are raw ones.
    pub(super) fn of_icmp(target: SocketAddr, local: &Local, token: u64) -> io::Result<Self> {
        let protocol = if target.is_ipv4() { Protocol::ICMPV4 } else { Protocol::ICMPV6 };
        let domain = Domain::for_address(target);
        let (socket, is_raw) = match Socket::new(domain, Type::DGRAM, Some(protocol)) {
            Ok(socket) => (socket, false),
            Err(_) => (Socket::new(domain, Type::RAW, Some(protocol))?, true),
        };
        let mut target = target;
        target.set_port(0);
        prepare(&socket, target, local)?;
        Ok(Self { socket, speaks: Speaks::Icmp(Echoes { is_ipv6: target.is_ipv6(), is_raw, token }) })
    }

    /// Datagrams to the server at `target`, in the test with this `cookie`.
    ///
    /// # Errors
    /// What the socket's calls report.
    pub(super) fn of_datagrams(target: SocketAddr, local: &Local, cookie: Cookie) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(target), Type::DGRAM, Some(Protocol::UDP))?;
        prepare(&socket, target, local)?;
        Ok(Self { socket, speaks: Speaks::Datagrams(Box::new(cookie)) })
    }

    pub(super) fn method(&self) -> RttMethod {
        match self.speaks {
            Speaks::Icmp(_) => RttMethod::Icmp,
            Speaks::Datagrams(_) => RttMethod::UdpEcho,
        }
    }

    /// What a request is on a link, about: with the header of IPv4 or IPv6, and those of UDP and Ethernet.
    pub(super) fn wire_bytes(&self) -> ByteCount {
        const HEADERS: usize = 40 + 8 + 18;
        let payload = match self.speaks {
            Speaks::Icmp(_) => icmp::LENGTH,
            Speaks::Datagrams(_) => datagram::LENGTH,
        };
        ByteCount::new((payload + HEADERS) as u64)
    }

    /// Sends request `number`.
    ///
    /// # Errors
    /// What the kernel says, of this request or of what came of an earlier one.
    pub(super) fn request(&self, number: u64) -> io::Result<()> {
        match &self.speaks {
            Speaks::Icmp(echoes) => self.socket.send(&echoes.request(number)),
            Speaks::Datagrams(cookie) => self.socket.send(&datagram::request(cookie, number)),
        }
        .map(drop)
    }

    /// Waits until something has come, at most for `longest`.
    pub(super) fn wait(&self, longest: Duration) {
        let limit = Timespec::try_from(longest).ok();
        // Whatever goes wrong here shows at the next read.
        let _ = poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], limit.as_ref());
    }

    /// A request that has left the host, and when, by the wall clock; `None` if none has since the last was told.
    pub(super) fn departed(&self) -> Option<(u64, Option<Span>)> {
        let mut packet = [0; MAX_PACKET];
        let gone = departure(&self.socket, &mut packet).ok()?;
        // Either kind ends with its number.
        let number = packet[..gone.length].last_chunk().map(|bytes| u64::from_be_bytes(*bytes));
        Some((number.unwrap_or(u64::MAX), gone.at))
    }

    /// The next packet that has come; `None` if it is no answer.
    ///
    /// # Errors
    /// `WouldBlock` if there is none, or what came of an earlier request, as that nobody listens there.
    pub(super) fn arrived(&self) -> io::Result<Option<Handshake>> {
        let mut packet = [0; MAX_PACKET];
        let come = arrival(&self.socket, &mut packet)?;
        let packet = &packet[..come.length];
        let answered = match &self.speaks {
            Speaks::Icmp(echoes) => echoes.answered(packet).map(|number| (number, Span::ZERO)),
            Speaks::Datagrams(cookie) => datagram::answered(packet, cookie),
        };
        Ok(answered.map(|(number, residence)| Handshake { number, came: come.at, residence }))
    }
}

/// Binds and connects `socket`, and has the kernel stamp what passes; without stamps the program's own clock will do.
fn prepare(socket: &Socket, target: SocketAddr, local: &Local) -> io::Result<()> {
    bind(socket, local)?;
    socket.connect(&target.into())?;
    socket.set_nonblocking(true)?;
    let _ = stamp_passages(socket, true);
    Ok(())
}

/// Has what `socket` sends begin where `local` says; its port is the kernel's choice.
pub(crate) fn bind(socket: &Socket, local: &Local) -> io::Result<()> {
    if let Some(device) = &local.device {
        socket.bind_device(Some(device.as_bytes()))?;
    }
    if let Some(address) = local.address {
        socket.bind(&SocketAddr::new(address, 0).into())?;
    }
    Ok(())
}
