//! What the other end says as a connection is opened: its answer, or how it asks for one.

use std::collections::HashMap;
use std::io::Read;
use std::net::SocketAddr;
use std::os::fd::AsFd;

use fullpipe_record::Handshake;
use fullpipe_sys::tcp_info;
use fullpipe_units::ByteCount;
use fullpipe_wire::SynSegment;
use socket2::{Domain, Protocol, SockFilter, Socket, Type};

/// Longest headers of IPv4 and of TCP.
const MAX_PACKET: usize = 60 + 60;

/// SYN-ACKs that are read at once, at most: others open connections to the same port, too.
const MAX_SYN_ACKS: usize = 1024;

/// Receives the SYN-ACKs of connections that are about to be opened to one peer.
pub struct SynAckSniffer {
    peer: SocketAddr,
    /// Absent where this user may use no raw sockets (`CAP_NET_RAW`).
    raw: Option<Socket>,
    /// What has been received, by the port of this end.
    received: HashMap<u16, SynSegment>,
}

impl SynAckSniffer {
    /// Receives from now on the SYN-ACKs that `peer` sends.
    pub fn open(peer: SocketAddr) -> Self {
        Self { peer, raw: listen(peer).ok(), received: HashMap::new() }
    }

    /// Returns whether an option was overwritten in the SYN-ACK of the connection that begins at `local`; `None` if it
    /// was not received.
    pub fn options_overwritten(&mut self, local: SocketAddr) -> Option<bool> {
        self.receive();
        self.received.get(&local.port()).map(|answer| answer.options_overwritten)
    }

    fn receive(&mut self) {
        let Some(raw) = &mut self.raw else { return };
        let mut packet = [0; MAX_PACKET];
        for _ in 0..MAX_SYN_ACKS {
            let Ok(length) = raw.read(&mut packet) else { return };
            // A raw socket gives a whole packet of IPv4, and of IPv6 what follows its header.
            let read = if self.peer.is_ipv4() { SynSegment::of_packet } else { SynSegment::parse };
            if let Some(answer) = read(&packet[..length]).filter(|answer| answer.ports[0] == self.peer.port()) {
                self.received.insert(answer.ports[1], answer);
            }
        }
    }
}

/// Returns the window of the SYN-ACK of `connection`, on which nothing else has arrived: of all windows only that of
/// the handshake's packets is never scaled, and the kernel holds it until the next.
pub fn first_window(connection: impl AsFd) -> Option<ByteCount> {
    tcp_info(connection).ok().and_then(|tcp| tcp.snd_wnd)
}

/// What the peer of `connection`, which it opened itself, asked for it with; `None` where the kernel did not keep it.
pub fn caller_handshake(connection: impl AsFd) -> Option<Handshake> {
    let opening = SynSegment::of_packet(&fullpipe_sys::opening(connection).ok()?)?;
    Some(Handshake { window: Some(opening.window), options_overwritten: Some(opening.options_overwritten) })
}

/// A socket that is given a copy of every SYN-ACK that comes from the port of `peer`.
fn listen(peer: SocketAddr) -> std::io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(peer), Type::RAW, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    socket.attach_filter(&syn_acks_from(peer))?;
    Ok(socket)
}

/// A program of the classic packet filter (`linux/filter.h`), which is given IPv4 packets from their first byte, and of
/// IPv6 what follows its header.
fn syn_acks_from(peer: SocketAddr) -> [SockFilter; 8] {
    const SYN_AND_ACK: u32 = 0x12;
    let code = |parts: &[u32]| parts.iter().sum::<u32>() as u16;
    let statement = |code: u16, operand: u32| SockFilter::new(code, 0, 0, operand);
    let unless =
        |value: u32, skip: u8| SockFilter::new(code(&[libc::BPF_JMP, libc::BPF_JEQ, libc::BPF_K]), 0, skip, value);
    let header_length = match peer {
        SocketAddr::V4(_) => statement(code(&[libc::BPF_LDX, libc::BPF_B, libc::BPF_MSH]), 0),
        SocketAddr::V6(_) => statement(code(&[libc::BPF_LDX, libc::BPF_W, libc::BPF_IMM]), 0),
    };
    let accept = code(&[libc::BPF_RET, libc::BPF_K]);
    [
        header_length,
        statement(code(&[libc::BPF_LD, libc::BPF_H, libc::BPF_IND]), 0),
        unless(peer.port().into(), 4),
        statement(code(&[libc::BPF_LD, libc::BPF_B, libc::BPF_IND]), 13),
        // The others agree on ECN (RFC 3168, 6.1.1).
        statement(code(&[libc::BPF_ALU, libc::BPF_AND, libc::BPF_K]), SYN_AND_ACK),
        unless(SYN_AND_ACK, 1),
        statement(accept, MAX_PACKET as u32),
        statement(accept, 0),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    /// What a listener at `address` answers; `None` where this machine has no such address.
    fn answer_at(address: &str) -> Option<Handshake> {
        let listener = TcpListener::bind(address).ok()?;
        let mut sniffer = SynAckSniffer::open(listener.local_addr().unwrap());
        let connection = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let local = connection.local_addr().unwrap();
        let _other = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let window = first_window(&connection);
        Some(Handshake { window, options_overwritten: sniffer.options_overwritten(local) })
    }

    #[test]
    fn an_answer_is_heard_where_raw_sockets_are_permitted() {
        let permitted = rustix::process::geteuid().is_root();
        for answer in ["127.0.0.1:0", "[::1]:0"].into_iter().filter_map(answer_at) {
            assert!(answer.window.is_some_and(|window| window.get() > 0 && window.get() < 65_536), "{answer:?}");
            assert_eq!(answer.options_overwritten, permitted.then_some(false));
        }
    }

    #[test]
    fn how_a_caller_opened_is_known_once_where_it_was_kept() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(address) else { continue };
            let accepted = || {
                let _caller = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
                listener.accept().unwrap().0
            };
            assert_eq!(caller_handshake(accepted()), None, "it was not kept");
            fullpipe_sys::save_syn(&listener).unwrap();
            let connection = accepted();
            let asked = caller_handshake(&connection).unwrap();
            assert!(asked.window.is_some_and(|window| window.get() > 0), "{asked:?}");
            assert_eq!(asked.options_overwritten, Some(false));
            assert_eq!(caller_handshake(&connection), None, "it is told once");
        }
    }
}
