//! The socket that probes go out by, and what is heard on it.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use fullpipe_load::Local;
use fullpipe_record::{Refusal, RouteMethod};
use fullpipe_sys::{IcmpError, arrival, enable_recverr, icmp_error};
use fullpipe_units::ByteCount;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::{Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery, set_ip_mtu_discover, set_ipv6_mtu_discover};
use socket2::{Domain, Protocol, Socket, Type};

use crate::latency::{Echoes, bind, random};

/// The port of the first datagram, as of traceroute: nobody listens there.
const FIRST_PORT: u16 = 33_434;

/// Header of ICMP, or of UDP.
const HEADER: usize = 8;

/// Payload of the smallest datagrams.
const MIN_PAYLOAD: usize = 16;

/// The longest part of a packet that is looked at: an echo request behind a header of IP, which has up to 60 bytes.
const MAX_PACKET: usize = 256;

/// Words that are taken at once: whoever floods this host must not keep it from its own work.
const MAX_AT_ONCE: usize = 256;

/// What may go the whole way, as Linux and RFC 1700 have it.
const WHOLE_WAY: u8 = 64;

/// What came of a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProbeReply {
    /// The target answers.
    Reached,
    /// It went as far as it may.
    Expired,
    /// Nobody listens on that port, says whoever it was.
    Closed,
    /// It is larger than what passes.
    TooLarge(ByteCount),
    /// It is not forwarded.
    Refused(Refusal),
}

/// What somebody says.
#[derive(Debug, Clone, Copy)]
pub(super) struct Heard {
    /// Of which probe; `None` where it is this host itself, of one that it did not send.
    pub(super) number: Option<u16>,
    pub(super) by: Option<IpAddr>,
    pub(super) word: ProbeReply,
}

/// A socket for probes to one target.
#[derive(Debug)]
pub(super) struct ProbeSocket {
    socket: Socket,
    target: IpAddr,
    /// Echo requests; datagrams if not set.
    echoes: Option<Echoes>,
}

impl ProbeSocket {
    /// Echo requests where they are permitted, by either kind of socket, and otherwise datagrams.
    ///
    /// # Errors
    /// What the socket's calls report, as for an address that is not this host's.
    pub(super) fn open(target: IpAddr, local: &Local) -> io::Result<Self> {
        let (domain, protocol) = match target {
            IpAddr::V4(_) => (Domain::IPV4, Protocol::ICMPV4),
            IpAddr::V6(_) => (Domain::IPV6, Protocol::ICMPV6),
        };
        let token = random()?;
        let of_echoes = |kind| Socket::new(domain, kind, Some(protocol));
        let (socket, is_raw) = match of_echoes(Type::DGRAM) {
            Ok(socket) => (Some(socket), false),
            Err(_) => (of_echoes(Type::RAW).ok(), true),
        };
        let echoes = socket.is_some().then_some(Echoes { is_ipv6: target.is_ipv6(), is_raw, token });
        let socket = socket.map_or_else(|| Socket::new(domain, Type::DGRAM, Some(Protocol::UDP)), Ok)?;
        bind(&socket, local)?;
        // What comes from others is not ours. A socket for datagrams takes each to a port of its own.
        if echoes.is_some() {
            socket.connect(&SocketAddr::new(target, 0).into())?;
        }
        enable_recverr(&socket, target.is_ipv6())?;
        // What this host has learned of the path earlier must not cut or stop what is to find it out.
        match target {
            IpAddr::V4(_) => set_ip_mtu_discover(&socket, Ipv4PathMtuDiscovery::PROBE)?,
            IpAddr::V6(_) => set_ipv6_mtu_discover(&socket, Ipv6PathMtuDiscovery::PROBE)?,
        }
        socket.set_nonblocking(true)?;
        Ok(Self { socket, target, echoes })
    }

    pub(super) fn method(&self) -> RouteMethod {
        if self.echoes.is_some() { RouteMethod::IcmpEcho } else { RouteMethod::Udp }
    }

    fn ip_header(&self) -> usize {
        if self.target.is_ipv4() { 20 } else { 40 }
    }

    /// The smallest packet, with its IP header.
    pub(super) fn smallest(&self) -> ByteCount {
        ByteCount::new((self.ip_header() + HEADER + MIN_PAYLOAD) as u64)
    }

    /// What must pass everywhere (RFC 791, RFC 8200).
    pub(super) fn least_mtu(&self) -> ByteCount {
        ByteCount::new(if self.target.is_ipv4() { 68 } else { 1280 })
    }

    /// Sends probe `number` of so many bytes, which may pass so many hops, or all.
    ///
    /// # Errors
    /// What the kernel says, of this probe or of what came of an earlier one.
    pub(super) fn send(&self, number: u16, hops: Option<u8>, size: ByteCount) -> io::Result<()> {
        send_syn_with_ttl(&self.socket, self.target, hops.unwrap_or(WHOLE_WAY))?;
        let payload = (size.get() as usize).saturating_sub(self.ip_header() + HEADER);
        let sent = if let Some(echoes) = self.echoes {
            self.socket.send(&echoes.request_of(number.into(), payload))
        } else {
            let port = FIRST_PORT.wrapping_add(number);
            self.socket.send_to(&vec![0; payload], &SocketAddr::new(self.target, port).into())
        };
        sent.map(drop)
    }

    /// Waits until something is said, at most for `longest`.
    pub(super) fn wait(&self, longest: Duration) {
        let limit = Timespec::try_from(longest).ok();
        // Whatever goes wrong here shows at the next look.
        let _ = poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], limit.as_ref());
    }

    /// What has been said since the last look.
    pub(super) fn heard(&self) -> Vec<Heard> {
        let complaints = (0..MAX_AT_ONCE).map_while(|_| self.icmp_error().ok());
        let answers = (0..MAX_AT_ONCE).map_while(|_| self.answer().ok());
        complaints.chain(answers).flatten().collect()
    }

    /// The next ICMP error, if it is about one of ours.
    ///
    /// # Errors
    /// If there is none.
    fn icmp_error(&self) -> io::Result<Option<Heard>> {
        let mut packet = [0; MAX_PACKET];
        let found = icmp_error(&self.socket, &mut packet)?;
        Ok(found.and_then(|found| {
            let number = self.number(&found, &packet[..found.quoted]);
            let is_ours = number.is_some() || found.by.is_none();
            let word = word(self.target.is_ipv4(), &found).filter(|_| is_ours)?;
            Some(Heard { number: number.filter(|_| found.by.is_some()), by: found.by, word })
        }))
    }

    fn number(&self, found: &IcmpError, quoted: &[u8]) -> Option<u16> {
        match self.echoes {
            Some(echoes) => echoes.quoted(quoted),
            None => found.target?.port().checked_sub(FIRST_PORT),
        }
    }

    /// The next answer, if it is one to us. What is behind its first bytes is cut off.
    ///
    /// # Errors
    /// If there is none.
    fn answer(&self) -> io::Result<Option<Heard>> {
        let mut packet = [0; MAX_PACKET];
        let come = match arrival(&self.socket, &mut packet) {
            Ok(come) => come,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(error),
            // What came of a probe, which is told with the complaints.
            Err(_) => return Ok(None),
        };
        let number = match self.echoes {
            Some(echoes) => echoes.answered(&packet[..come.length]).map(|number| number as u16),
            // Somebody listens there after all.
            None => {
                come.from.filter(|from| from.ip() == self.target).and_then(|from| from.port().checked_sub(FIRST_PORT))
            }
        };
        Ok(number.map(|_| Heard { number, by: Some(self.target), word: ProbeReply::Reached }))
    }
}

/// Lets what `socket` sends from now on to `target` go so many hops.
///
/// # Errors
/// What `setsockopt` reports.
pub(super) fn send_syn_with_ttl(socket: &Socket, target: IpAddr, hops: u8) -> io::Result<()> {
    match target {
        IpAddr::V4(_) => socket.set_ttl_v4(hops.into()),
        IpAddr::V6(_) => socket.set_unicast_hops_v6(hops.into()),
    }
}

/// What a packet of ICMP says (RFC 792, RFC 1812, RFC 4443); `None` if that is nothing of interest here.
pub(super) fn word(is_ipv4: bool, found: &IcmpError) -> Option<ProbeReply> {
    let too_large = || ProbeReply::TooLarge(ByteCount::new(found.mtu.into()));
    if found.by.is_none() {
        return (found.mtu > 0).then(too_large);
    }
    let refused = |refusal| Some(ProbeReply::Refused(refusal));
    match (is_ipv4, found.kind, found.code) {
        (true, 11, 0) | (false, 3, 0) => Some(ProbeReply::Expired),
        (true, 3, 4) | (false, 2, _) => Some(too_large()),
        (true, 3, 2 | 3) | (false, 1, 4) => Some(ProbeReply::Closed),
        (true, 3, 9 | 10 | 13) | (false, 1, 1 | 5 | 6) => refused(Refusal::Prohibited),
        (true, 3, 1 | 7 | 8 | 12) | (false, 1, 3) => refused(Refusal::NoHost),
        (true, 3, _) | (false, 1, _) => refused(Refusal::NoRoute),
        _ => None,
    }
}
