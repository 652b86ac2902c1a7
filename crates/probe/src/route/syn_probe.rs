//! SYN probes: connection attempts with a TTL of one hop, two hops and so on, and the headers that
//! the ICMP errors of the routers quote. A field that differs from one quote to the next was
//! changed by a device between these two routers (Detal et al., "Revealing Middlebox Interference
//! with Tracebox", IMC 2013).
//!
//! No raw sockets are needed: the kernel passes the quoted header to the socket that tries to
//! connect (`tcp_v4_err`).

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::engine::LocalEndpoint;
use fullpipe_model::framing;
use fullpipe_record::{IpVersion, SocketReadback, SynQuote, TcpInfo};
use fullpipe_sys::{enable_recverr, icmp_error};
use fullpipe_units::{ByteCount, Span};
use fullpipe_wire::SynSegment;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use socket2::{Domain, Protocol, Socket, Type};

use super::MAX_HOPS;
use super::socket::{ProbeReply, reply_kind, set_ttl};
use crate::echo::bind_socket;

/// Maximum duration of all SYN probes.
const MAX_DURATION: Duration = Duration::from_secs(4);

/// Minimum timeout of a SYN probe.
const MIN_TIMEOUT: Duration = Duration::from_millis(200);

/// Maximum timeout of a SYN probe: after a second the kernel would send the SYN again.
const MAX_TIMEOUT: Duration = Duration::from_millis(900);

/// Maximum bytes of TCP options in a segment.
const MAX_OPTIONS: ByteCount = ByteCount::new(40);

/// Bytes of the longest TCP header.
const MAX_HEADER: usize = 60;

/// The outcome of a SYN probe.
enum SynProbeOutcome {
    /// A router quoted the SYN.
    SynQuote(SynQuote),
    /// No usable reply came.
    Silence,
    /// The SYN arrived, or cannot go further.
    Ended,
}

/// Returns true if a connection shows that a device on the way changed its SYN or SYN-ACK: the peer
/// agreed to no window scaling, an option was overwritten in its SYN-ACK, or segments are smaller
/// than the MTU of this end's device.
pub(crate) fn was_changed(socket: &SocketReadback, tcp: &TcpInfo) -> bool {
    let options_overwritten = socket
        .handshake
        .is_some_and(|answer| answer.options_overwritten == Some(true));
    // `snd_mss` leaves out the options of each segment, `advmss` includes them.
    let [sent, taken] = [tcp.timestamps == Some(true), false]
        .map(|timestamps| framing::tcp_headers(IpVersion::V4, timestamps));
    let smaller = tcp
        .snd_mss
        .zip(tcp.advmss)
        .is_some_and(|(snd_mss, advmss)| snd_mss + sent < advmss + taken);
    // The first window limits segments to half of it, as over loopback (`tcp_bound_to_half_wnd`).
    let by_window = tcp
        .snd_mss
        .zip(tcp.snd_wnd)
        .is_some_and(|(snd_mss, window)| snd_mss * 2 + MAX_OPTIONS >= window);
    tcp.window_scaling == Some(false) || options_overwritten || smaller && !by_window
}

/// Returns the SYN as the routers on the way to the peer of another program's connection quote it,
/// if the connection shows that a device changed its SYN; empty otherwise.
pub fn changed_syn_quotes(
    connection: &SocketReadback,
    tcp: &TcpInfo,
    rtt: Option<Span>,
    interrupt: &AtomicBool,
) -> Vec<SynQuote> {
    let ends = [&connection.remote, &connection.local].map(|end| end.parse::<SocketAddr>().ok());
    let ([Some(remote), Some(local)], true) = (ends, was_changed(connection, tcp)) else {
        return Vec::new();
    };
    let from = LocalEndpoint {
        address: Some(local.ip()),
        ..LocalEndpoint::default()
    };
    syn_quotes(remote, &from, rtt, interrupt)
}

/// Returns the SYN as the routers on the way to `address` quote it, nearest first, within four
/// seconds. One SYN probe may reach the target; its connection is reset at once.
pub(crate) fn syn_quotes(
    address: SocketAddr,
    local: &LocalEndpoint,
    rtt: Option<Span>,
    interrupt: &AtomicBool,
) -> Vec<SynQuote> {
    let begun = Instant::now();
    let timeout = Duration::from(rtt.unwrap_or_default() * 2).clamp(MIN_TIMEOUT, MAX_TIMEOUT);
    let mut found = Vec::new();
    for hop in 1..=MAX_HOPS {
        if begun.elapsed() + timeout > MAX_DURATION || interrupt.load(Ordering::Relaxed) {
            break;
        }
        match attempt_probe(address, local, hop, timeout) {
            Ok(SynProbeOutcome::SynQuote(quoted)) => found.push(quoted),
            Ok(SynProbeOutcome::Silence) => {}
            Ok(SynProbeOutcome::Ended) | Err(_) => break,
        }
    }
    found
}

/// Tries to connect to `address` with a SYN whose TTL is `hop`.
///
/// # Errors
/// Fails if a system call does, as for an address that is not this host's.
fn attempt_probe(
    address: SocketAddr,
    local: &LocalEndpoint,
    hop: u8,
    timeout: Duration,
) -> io::Result<SynProbeOutcome> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    bind_socket(&socket, local)?;
    enable_recverr(&socket, address.is_ipv6())?;
    set_ttl(&socket, address.ip(), hop)?;
    // A connection that is accepted after all is reset at once.
    socket.set_linger(Some(Duration::ZERO))?;
    socket.set_nonblocking(true)?;
    match socket.connect(&address.into()) {
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {}
        _ => return Ok(SynProbeOutcome::Ended),
    }
    let limit = Timespec::try_from(timeout).ok();
    let moved =
        retry_on_intr(|| poll(&mut [PollFd::new(&socket, PollFlags::OUT)], limit.as_ref()))? > 0;
    let mut header = [0; MAX_HEADER];
    let Ok(Some(found)) = icmp_error(&socket, &mut header) else {
        return Ok(if moved {
            SynProbeOutcome::Ended
        } else {
            SynProbeOutcome::Silence
        });
    };
    let (Some(by), Some(ProbeReply::Expired)) = (found.by, reply_kind(address.is_ipv4(), &found))
    else {
        return Ok(SynProbeOutcome::Ended);
    };
    // A router needs to quote no more than the ports and the sequence number (RFC 792).
    let syn = SynSegment::parse_header(&header[..found.quoted]);
    Ok(syn.map_or(SynProbeOutcome::Silence, |syn| {
        SynProbeOutcome::SynQuote(SynQuote {
            hop,
            by,
            window_scale: syn.window_scale,
            mss: syn.mss,
        })
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn loopback_shows_no_device() {
        for address in fullpipe_testkit::loopback_addresses(module_path!()) {
            let listener = TcpListener::bind((address, 0)).unwrap();
            let connection = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let socket = crate::engine::read_back(&(&connection).into(), 0).unwrap();
            let tcp = fullpipe_sys::tcp_info(&connection).unwrap();
            assert!(!was_changed(&socket, &tcp), "{tcp:?}");
        }
    }

    #[test]
    fn a_target_that_is_reached_quotes_nothing() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let reached = syn_quotes(
            listener.local_addr().unwrap(),
            &LocalEndpoint::default(),
            None,
            &AtomicBool::new(false),
        );
        assert_eq!(reached, []);
    }
}
