//! Round-trip times by echo requests (RFC 792, RFC 4443), on a thread and a socket of their own.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use fullpipe_units::Span;
use socket2::{Domain, Protocol, Socket, Type};

/// Time between two requests.
pub(crate) const PERIOD: Duration = Duration::from_millis(20);

/// Requests that are remembered as unanswered: those of ten seconds.
const REMEMBERED: usize = 500;

/// Header of an echo message.
const HEADER: usize = 8;

/// An answered request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Echo {
    pub(crate) sent: Instant,
    pub(crate) rtt: Span,
}

/// Sends echo requests until dropped.
pub(crate) struct Pinger {
    echoes: Arc<Mutex<Vec<Echo>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Pinger {
    /// Starts sending echo requests to `target`.
    ///
    /// # Errors
    /// Where this user may not: ping sockets are closed (`net.ipv4.ping_group_range`) and so are raw ones.
    pub(crate) fn start(target: IpAddr) -> io::Result<Self> {
        let prober = Prober::open(target)?;
        let echoes = Arc::new(Mutex::new(Vec::new()));
        let stop = Arc::new(AtomicBool::new(false));
        let (found, stopped) = (Arc::clone(&echoes), Arc::clone(&stop));
        let thread = thread::Builder::new().name("ping".to_owned()).spawn(move || prober.run(&stopped, &found))?;
        Ok(Self { echoes, stop, thread: Some(thread) })
    }

    /// The answers so far, by the time of their requests.
    pub(crate) fn echoes(&self) -> Vec<Echo> {
        self.echoes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Pinger {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Prober {
    socket: Socket,
    target: IpAddr,
    /// A raw socket hears every echo reply of the host; the identifier tells which are ours.
    raw: bool,
    identifier: u16,
}

impl Prober {
    fn open(target: IpAddr) -> io::Result<Self> {
        let (domain, protocol) = match target {
            IpAddr::V4(_) => (Domain::IPV4, Protocol::ICMPV4),
            IpAddr::V6(_) => (Domain::IPV6, Protocol::ICMPV6),
        };
        let (socket, raw) = match Socket::new(domain, Type::DGRAM, Some(protocol)) {
            Ok(socket) => (socket, false),
            Err(_) => (Socket::new(domain, Type::RAW, Some(protocol))?, true),
        };
        socket.connect(&SocketAddr::new(target, 0).into())?;
        Ok(Self { socket, target, raw, identifier: std::process::id() as u16 })
    }

    fn run(self, stop: &AtomicBool, echoes: &Mutex<Vec<Echo>>) {
        let mut waiting: VecDeque<(u16, Instant)> = VecDeque::new();
        let mut next = Instant::now();
        let mut sequence = 0_u16;
        while !stop.load(Ordering::Relaxed) {
            if Instant::now() >= next {
                // A request that cannot be sent now is one that is not answered.
                let _ = self.socket.send(&self.request(sequence));
                waiting.push_back((sequence, Instant::now()));
                if waiting.len() > REMEMBERED {
                    waiting.pop_front();
                }
                sequence = sequence.wrapping_add(1);
                next += PERIOD;
            }
            let Some(answered) = self.receive(next) else { continue };
            let arrived = Instant::now();
            let request = waiting.iter().position(|(sequence, _)| *sequence == answered);
            if let Some((_, sent)) = request.and_then(|index| waiting.remove(index)) {
                let echo = Echo { sent, rtt: arrived.duration_since(sent).into() };
                echoes.lock().unwrap_or_else(PoisonError::into_inner).push(echo);
            }
        }
    }

    fn request(&self, sequence: u16) -> [u8; HEADER + 56] {
        const ECHO_REQUEST: u8 = 8;
        const ECHO_REQUEST_V6: u8 = 128;
        let mut packet = [0; HEADER + 56];
        packet[0] = if self.target.is_ipv4() { ECHO_REQUEST } else { ECHO_REQUEST_V6 };
        packet[4..6].copy_from_slice(&self.identifier.to_be_bytes());
        packet[6..8].copy_from_slice(&sequence.to_be_bytes());
        if self.target.is_ipv4() {
            let sum = checksum(&packet).to_be_bytes();
            packet[2..4].copy_from_slice(&sum);
        }
        packet
    }

    /// The sequence number of the next answer, if one comes before `deadline`.
    fn receive(&self, deadline: Instant) -> Option<u16> {
        let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_micros(100));
        self.socket.set_read_timeout(Some(left)).ok()?;
        let mut buffer = [0; 1500];
        let length = (&self.socket).read(&mut buffer).ok()?;
        self.parse(&buffer[..length])
    }

    fn parse(&self, packet: &[u8]) -> Option<u16> {
        const ECHO_REPLY: u8 = 0;
        const ECHO_REPLY_V6: u8 = 129;
        // A raw IPv4 socket gives the IP header too, whose length is its own low nibble.
        let skip = if self.raw && self.target.is_ipv4() { usize::from(packet.first()? & 0x0f) * 4 } else { 0 };
        let message = packet.get(skip..)?;
        let wanted = if self.target.is_ipv4() { ECHO_REPLY } else { ECHO_REPLY_V6 };
        let identifier = u16::from_be_bytes(message.get(4..6)?.try_into().ok()?);
        let sequence = u16::from_be_bytes(message.get(6..8)?.try_into().ok()?);
        // A ping socket's identifier is the kernel's choice, and the kernel hands over only answers to it.
        (*message.first()? == wanted && (!self.raw || identifier == self.identifier)).then_some(sequence)
    }
}

/// The Internet checksum of `message`, whose own checksum field is zero (RFC 1071).
fn checksum(message: &[u8]) -> u16 {
    let words = message.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)));
    let sum: u32 = words.sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !((folded & 0xffff) + (folded >> 16)) as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn the_checksum_of_a_message_with_its_checksum_is_zero() {
        let mut message = [8, 0, 0, 0, 0x12, 0x34, 0, 7, 1, 2, 3];
        let sum = checksum(&message).to_be_bytes();
        message[2..4].copy_from_slice(&sum);
        assert_eq!(checksum(&message), 0);
    }

    #[test]
    fn loopback_answers() {
        let Ok(pinger) = Pinger::start(Ipv4Addr::LOCALHOST.into()) else {
            // Neither ping sockets nor raw ones are open to this user: what a measurement then does is tested there.
            return;
        };
        let deadline = Instant::now() + Duration::from_secs(5);
        while pinger.echoes().len() < 3 && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(5));
        }
        let echoes = pinger.echoes();
        assert!(echoes.len() >= 3, "{echoes:?}");
        assert!(echoes.iter().all(|echo| echo.rtt < Span::from_secs(1)));
    }
}
