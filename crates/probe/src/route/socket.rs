//! The socket that sends probes and receives their replies.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::engine::LocalEndpoint;
use fullpipe_record::{Refusal, RouteMethod};
use fullpipe_sys::{IcmpError, enable_recverr, icmp_error, receive_arrival, wait_readable};
use fullpipe_units::ByteCount;
use rustix::net::sockopt::{
    Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery, set_ip_mtu_discover, set_ipv6_mtu_discover,
};
use socket2::{Domain, Protocol, Socket, Type};

use crate::echo::{EchoMessages, bind_socket, open_echo_socket, random_u64};

/// Port of the first datagram, as in traceroute, where no program is expected to listen.
const FIRST_PORT: u16 = 33_434;

/// Bytes of the ICMP or UDP header.
const HEADER: usize = 8;

/// Payload bytes of the smallest datagram.
const MIN_PAYLOAD: usize = 16;

/// Bytes of a received packet that are read: an echo request behind an IP header of up to 60 bytes.
const MAX_PACKET: usize = 256;

/// Maximum number of replies received in one go, so that a flood does not stop the probes.
const MAX_AT_ONCE: usize = 256;

/// TTL of a packet for the whole way: the default of Linux and of RFC 1700.
const WHOLE_WAY: u8 = 64;

/// The kind of reply to a probe.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ProbeReply {
    /// The target answered.
    Reached,
    /// The TTL expired.
    Expired,
    /// The port is closed, as the target or a router reports.
    Closed,
    /// The packet is too large for a link; with the MTU of that link.
    TooLarge(ByteCount),
    /// A router does not forward it.
    Refused(Refusal),
}

/// A reply to a probe.
#[derive(Clone, Copy)]
pub(super) struct ReceivedReply {
    /// Number of the probe; `None` if this host itself did not send it.
    pub number: Option<u16>,
    pub by: Option<IpAddr>,
    pub reply: ProbeReply,
}

/// A socket for probes to one target.
pub(super) struct ProbeSocket {
    socket: Socket,
    target: IpAddr,
    /// `None` if the probes are datagrams.
    echoes: Option<EchoMessages>,
}

impl ProbeSocket {
    /// Opens a socket for echo requests, of type ping or raw, or else one for datagrams.
    ///
    /// # Errors
    /// Fails if a system call does, as for an address that is not this host's.
    pub(super) fn open(target: IpAddr, local: &LocalEndpoint) -> io::Result<Self> {
        let address = SocketAddr::new(target, 0);
        let opened = open_echo_socket(target, random_u64()?);
        let (socket, echoes) = if let Ok((socket, echoes)) = opened {
            (socket, Some(echoes))
        } else {
            let domain = Domain::for_address(address);
            let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
            (socket, None)
        };
        bind_socket(&socket, local)?;
        // Connected, it receives from the target alone. A socket for datagrams sends each to
        // another port.
        if echoes.is_some() {
            socket.connect(&address.into())?;
        }
        enable_recverr(&socket, target.is_ipv6())?;
        // The path MTU that this host knows already must not limit or fragment the packets that
        // measure it.
        match target {
            IpAddr::V4(_) => set_ip_mtu_discover(&socket, Ipv4PathMtuDiscovery::PROBE)?,
            IpAddr::V6(_) => set_ipv6_mtu_discover(&socket, Ipv6PathMtuDiscovery::PROBE)?,
        }
        socket.set_nonblocking(true)?;
        Ok(Self {
            socket,
            target,
            echoes,
        })
    }

    pub(super) fn method(&self) -> RouteMethod {
        if self.echoes.is_some() {
            RouteMethod::IcmpEcho
        } else {
            RouteMethod::Udp
        }
    }

    fn ip_header(&self) -> usize {
        if self.target.is_ipv4() { 20 } else { 40 }
    }

    /// Returns the bytes of the smallest probe, with its IP header.
    pub(super) fn min_probe(&self) -> ByteCount {
        ByteCount::new((self.ip_header() + HEADER + MIN_PAYLOAD) as u64)
    }

    /// Returns the MTU that every link has at least (RFC 791, RFC 8200).
    pub(super) fn min_mtu(&self) -> ByteCount {
        ByteCount::new(if self.target.is_ipv4() { 68 } else { 1280 })
    }

    /// Sends probe `number` of `size` bytes with a TTL of `hops`, or with one for the whole way.
    ///
    /// # Errors
    /// Fails if the kernel does not send it, or reports an ICMP error about an earlier one.
    pub(super) fn send_probe(
        &self,
        number: u16,
        hops: Option<u8>,
        size: ByteCount,
    ) -> io::Result<()> {
        set_ttl(&self.socket, self.target, hops.unwrap_or(WHOLE_WAY))?;
        let payload = (size.get() as usize).saturating_sub(self.ip_header() + HEADER);
        let sent = if let Some(echoes) = self.echoes {
            self.socket.send(&echoes.request_of(number.into(), payload))
        } else {
            let port = FIRST_PORT.wrapping_add(number);
            self.socket.send_to(
                &vec![0; payload],
                &SocketAddr::new(self.target, port).into(),
            )
        };
        sent.map(drop)
    }

    /// Waits until a reply can be received, at most for `longest`.
    pub(super) fn wait_for_reply(&self, longest: Duration) {
        // An error shows at the next read.
        let _ = wait_readable(&self.socket, longest);
    }

    /// Returns the replies since the last call.
    pub(super) fn receive_replies(&self) -> Vec<ReceivedReply> {
        let errors = (0..MAX_AT_ONCE).map_while(|_| self.icmp_error().ok());
        let answers = (0..MAX_AT_ONCE).map_while(|_| self.next_answer().ok());
        errors.chain(answers).flatten().collect()
    }

    /// Returns the next ICMP error; `None` if it is not about a probe of this socket.
    ///
    /// # Errors
    /// Fails if there is none.
    fn icmp_error(&self) -> io::Result<Option<ReceivedReply>> {
        let mut packet = [0; MAX_PACKET];
        let found = icmp_error(&self.socket, &mut packet)?;
        Ok(found.and_then(|found| {
            let number = self.probe_number(&found, &packet[..found.quoted]);
            let is_ours = number.is_some() || found.by.is_none();
            let reply = reply_kind(self.target.is_ipv4(), &found).filter(|_| is_ours)?;
            Some(ReceivedReply {
                number: number.filter(|_| found.by.is_some()),
                by: found.by,
                reply,
            })
        }))
    }

    fn probe_number(&self, found: &IcmpError, quoted: &[u8]) -> Option<u16> {
        match self.echoes {
            Some(echoes) => echoes.quoted_number(quoted),
            None => found.target?.port().checked_sub(FIRST_PORT),
        }
    }

    /// Returns the next reply of the target; `None` if it does not answer a probe of this socket.
    /// Bytes after the first [`MAX_PACKET`] are cut off.
    ///
    /// # Errors
    /// Fails if there is none.
    fn next_answer(&self) -> io::Result<Option<ReceivedReply>> {
        let mut packet = [0; MAX_PACKET];
        let arrived = match receive_arrival(&self.socket, &mut packet) {
            Ok(arrived) => arrived,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(error),
            // An ICMP error about a probe, which `icmp_error` returns.
            Err(_) => return Ok(None),
        };
        let number = match self.echoes {
            Some(echoes) => echoes
                .answered_number(&packet[..arrived.length])
                .map(|number| number as u16),
            // The port is open after all.
            None => arrived
                .from
                .filter(|from| from.ip() == self.target)
                .and_then(|from| from.port().checked_sub(FIRST_PORT)),
        };
        Ok(number.map(|_| ReceivedReply {
            number,
            by: Some(self.target),
            reply: ProbeReply::Reached,
        }))
    }
}

/// Sets the TTL of what `socket` sends to `target` from now on.
///
/// # Errors
/// Fails if `setsockopt` does.
pub(super) fn set_ttl(socket: &Socket, target: IpAddr, hops: u8) -> io::Result<()> {
    match target {
        IpAddr::V4(_) => socket.set_ttl_v4(hops.into()),
        IpAddr::V6(_) => socket.set_unicast_hops_v6(hops.into()),
    }
}

/// Returns the kind of reply that an ICMP packet is (RFC 792, RFC 1812, RFC 4443); `None` for other
/// ICMP packets.
pub(super) fn reply_kind(is_ipv4: bool, found: &IcmpError) -> Option<ProbeReply> {
    let too_large = ProbeReply::TooLarge(ByteCount::new(found.mtu.into()));
    if found.by.is_none() {
        return (found.mtu > 0).then_some(too_large);
    }
    Some(match (is_ipv4, found.kind, found.code) {
        (true, 11, 0) | (false, 3, 0) => ProbeReply::Expired,
        (true, 3, 4) | (false, 2, _) => too_large,
        (true, 3, 2 | 3) | (false, 1, 4) => ProbeReply::Closed,
        (true, 3, 9 | 10 | 13) | (false, 1, 1 | 5 | 6) => ProbeReply::Refused(Refusal::Prohibited),
        (true, 3, 1 | 7 | 8 | 12) | (false, 1, 3) => ProbeReply::Refused(Refusal::NoHost),
        (true, 3, _) | (false, 1, _) => ProbeReply::Refused(Refusal::NoRoute),
        _ => return None,
    })
}
