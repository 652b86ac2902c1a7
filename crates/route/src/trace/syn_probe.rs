//! How an opening of TCP fares on the way: attempts that may go one hop, two hops and so on, and what the routers where they
//! end quote of them. What has changed from one to the next, a device between these two did (Detal et al., "Revealing
//! Middlebox Interference with Tracebox", IMC 2013).
//!
//! That takes no raw sockets: the kernel gives the quoted header to the socket that tries to connect (`tcp_v4_err`).

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fullpipe_load::Local;
use fullpipe_model::framing;
use fullpipe_record::{IpVersion, SocketReadback, SynQuote, TcpInfo};
use fullpipe_sys::{enable_recverr, icmp_error};
use fullpipe_units::{ByteCount, Span};
use fullpipe_wire::SynSegment;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use socket2::{Domain, Protocol, Socket, Type};

use super::MAX_HOPS;
use super::socket::{ProbeReply, send_syn_with_ttl, word};
use crate::latency::bind;

/// When all must be over.
const MAX_DURATION: Duration = Duration::from_secs(4);

/// How long a router's answer is waited for, at least and at most: after a second the kernel would ask again.
const MIN_TIMEOUT: Duration = Duration::from_millis(200);
const MAX_TIMEOUT: Duration = Duration::from_millis(900);

/// Options of TCP, of which segments have some.
const MAX_OPTIONS: ByteCount = ByteCount::new(40);

/// The longest header of TCP.
const MAX_HEADER: usize = 60;

/// What came of an attempt.
enum Fate {
    /// A router quotes it.
    SynQuote(SynQuote),
    /// Nobody says anything of use.
    Silence,
    /// It arrived, or can go no further.
    Ended,
}

/// Whether a connection shows that something on the way changed how it was opened: a peer that agreed to no scaling of
/// windows, an option that was overwritten in its answer, or segments smaller than this end's device sends.
pub fn was_changed(socket: &SocketReadback, tcp: &TcpInfo) -> bool {
    let options_overwritten = socket.handshake.is_some_and(|answer| answer.options_overwritten == Some(true));
    // The kernel counts what it sends without the options of each segment, and what it takes with them.
    let headers = |timestamps| framing::tcp_headers(IpVersion::V4, timestamps);
    let (sent, taken) = (headers(tcp.timestamps == Some(true)), headers(false));
    let smaller = tcp.snd_mss.zip(tcp.advmss).is_some_and(|(snd_mss, advmss)| snd_mss + sent < advmss + taken);
    // As over loopback, where no segment is larger than half of the first window (`tcp_bound_to_half_wnd`).
    let by_window = tcp.snd_mss.zip(tcp.snd_wnd).is_some_and(|(snd_mss, window)| snd_mss * 2 + MAX_OPTIONS >= window);
    tcp.window_scaling == Some(false) || options_overwritten || smaller && !by_window
}

/// What the routers on the way to `address` quote of an opening, nearest first, within four seconds. One attempt may arrive,
/// and is given up at once.
pub fn syn_quotes(address: SocketAddr, local: &Local, rtt: Option<Span>, interrupt: &AtomicBool) -> Vec<SynQuote> {
    let begun = Instant::now();
    let timeout = Duration::from(rtt.unwrap_or_default() * 2).clamp(MIN_TIMEOUT, MAX_TIMEOUT);
    let mut found = Vec::new();
    for hop in 1..=MAX_HOPS {
        if begun.elapsed() + timeout > MAX_DURATION || interrupt.load(Ordering::Relaxed) {
            break;
        }
        match attempt(address, local, hop, timeout) {
            Ok(Fate::SynQuote(quoted)) => found.push(quoted),
            Ok(Fate::Silence) => {}
            Ok(Fate::Ended) | Err(_) => break,
        }
    }
    found
}

/// Tries to connect to `address` with a SYN that may go as far as `hop`.
///
/// # Errors
/// What the socket's calls report, as for an address that is not this host's.
fn attempt(address: SocketAddr, local: &Local, hop: u8, timeout: Duration) -> io::Result<Fate> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    bind(&socket, local)?;
    enable_recverr(&socket, address.is_ipv6())?;
    send_syn_with_ttl(&socket, address.ip(), hop)?;
    // Whoever accepts it after all is to hear of its end at once.
    socket.set_linger(Some(Duration::ZERO))?;
    socket.set_nonblocking(true)?;
    match socket.connect(&address.into()) {
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {}
        _ => return Ok(Fate::Ended),
    }
    let limit = Timespec::try_from(timeout).ok();
    let moved = poll(&mut [PollFd::new(&socket, PollFlags::OUT)], limit.as_ref())? > 0;
    let mut header = [0; MAX_HEADER];
    let Ok(Some(found)) = icmp_error(&socket, &mut header) else {
        return Ok(if moved { Fate::Ended } else { Fate::Silence });
    };
    let (Some(by), Some(ProbeReply::Expired)) = (found.by, word(address.is_ipv4(), &found)) else {
        return Ok(Fate::Ended);
    };
    // Routers need to quote no more than the ports and the sequence number (RFC 792).
    let opening = SynSegment::parse(&header[..found.quoted]);
    Ok(opening.map_or(Fate::Silence, |opening| {
        Fate::SynQuote(SynQuote { hop, by, window_scale: opening.window_scale, mss: opening.mss })
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn loopback_shows_no_device() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(address) else { continue };
            let connection = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let socket = fullpipe_load::read_back(&(&connection).into(), 0).unwrap();
            let tcp = fullpipe_sys::tcp_info(&connection).unwrap();
            assert!(!was_changed(&socket, &tcp), "{tcp:?}");
        }
    }

    #[test]
    fn whoever_is_reached_quotes_nothing() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let reached = syn_quotes(listener.local_addr().unwrap(), &Local::default(), None, &AtomicBool::new(false));
        assert_eq!(reached, []);
    }
}
