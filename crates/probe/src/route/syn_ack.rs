//! The SYN or SYN-ACK with which the peer opened a connection.

use std::collections::HashMap;
use std::io::Read;
use std::net::SocketAddr;
use std::os::fd::AsFd;

use fullpipe_record::Handshake;
use fullpipe_sys::tcp_info;
use fullpipe_units::ByteCount;
use fullpipe_wire::SynSegment;
use socket2::{Domain, Protocol, SockFilter, Socket, Type};

/// Bytes of the longest IPv4 header and the longest TCP header.
const MAX_PACKET: usize = 60 + 60;

/// Maximum number of SYN-ACKs read in one go: other connections to the same port send theirs to
/// this socket too.
const MAX_SYN_ACKS: usize = 1024;

/// Receives the SYN-ACKs of connections that are about to be opened to one peer.
pub(crate) struct SynAckSniffer {
    peer: SocketAddr,
    /// `None` if this user may not open raw sockets (`CAP_NET_RAW`).
    raw: Option<Socket>,
    /// SYN-ACKs that have been received, by local port.
    received: HashMap<u16, SynSegment>,
}

impl SynAckSniffer {
    /// Starts to receive the SYN-ACKs that `peer` sends.
    pub(crate) fn with_peer(peer: SocketAddr) -> Self {
        Self {
            peer,
            raw: open_socket(peer).ok(),
            received: HashMap::new(),
        }
    }

    /// Returns true if an option was overwritten in the SYN-ACK of the connection that begins at
    /// `local`; `None` if that SYN-ACK was not received.
    pub(crate) fn options_overwritten(&mut self, local: SocketAddr) -> Option<bool> {
        self.receive_syn_acks();
        self.received
            .get(&local.port())
            .map(|answer| answer.options_overwritten)
    }

    fn receive_syn_acks(&mut self) {
        let Some(raw) = &mut self.raw else { return };
        let mut packet = [0; MAX_PACKET];
        for _ in 0..MAX_SYN_ACKS {
            let Ok(length) = raw.read(&mut packet) else {
                return;
            };
            // A raw socket returns an IPv4 packet whole, and an IPv6 packet without its IP header.
            let read = if self.peer.is_ipv4() {
                SynSegment::of_packet
            } else {
                SynSegment::parse_header
            };
            if let Some(answer) =
                read(&packet[..length]).filter(|answer| answer.ports[0] == self.peer.port())
            {
                self.received.insert(answer.ports[1], answer);
            }
        }
    }
}

/// Returns the window of the SYN-ACK of `connection`, on which no other packet may have arrived
/// yet: only the window of a SYN or SYN-ACK is never scaled, and the kernel keeps it until the next
/// packet.
pub(crate) fn first_window(connection: impl AsFd) -> Option<ByteCount> {
    tcp_info(connection).ok().and_then(|tcp| tcp.snd_wnd)
}

/// Returns the window and the options of the SYN with which the peer opened `connection`; `None` if
/// the kernel did not keep the SYN.
pub(crate) fn caller_handshake(connection: impl AsFd) -> Option<Handshake> {
    let syn = SynSegment::of_packet(&fullpipe_sys::saved_syn(connection).ok()?)?;
    Some(Handshake {
        window: Some(syn.window),
        options_overwritten: Some(syn.options_overwritten),
    })
}

/// Opens a socket that receives a copy of every SYN-ACK from the port of `peer`.
fn open_socket(peer: SocketAddr) -> std::io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(peer), Type::RAW, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    socket.attach_filter(&syn_acks_from(peer))?;
    Ok(socket)
}

/// Returns a classic packet filter (`linux/filter.h`) that accepts SYN-ACKs from the port of
/// `peer`. Its input is a whole IPv4 packet, or an IPv6 packet without its IP header.
fn syn_acks_from(peer: SocketAddr) -> [SockFilter; 8] {
    const SYN_AND_ACK: u32 = 0x12;
    const ACCEPT: u32 = libc::BPF_RET | libc::BPF_K;
    let load_header_length = match peer {
        SocketAddr::V4(_) => libc::BPF_LDX | libc::BPF_B | libc::BPF_MSH,
        SocketAddr::V6(_) => libc::BPF_LDX | libc::BPF_W | libc::BPF_IMM,
    };
    [
        statement(load_header_length, 0),
        statement(libc::BPF_LD | libc::BPF_H | libc::BPF_IND, 0),
        skip_unless(peer.port().into(), 4),
        statement(libc::BPF_LD | libc::BPF_B | libc::BPF_IND, 13),
        // The other flag bits negotiate ECN (RFC 3168, 6.1.1).
        statement(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, SYN_AND_ACK),
        skip_unless(SYN_AND_ACK, 1),
        statement(ACCEPT, MAX_PACKET as u32),
        statement(ACCEPT, 0),
    ]
}

fn statement(code: u32, operand: u32) -> SockFilter {
    SockFilter::new(code as u16, 0, 0, operand)
}

/// Returns the statement that skips `count` others unless the last loaded number is `value`.
fn skip_unless(value: u32, count: u8) -> SockFilter {
    let code = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    SockFilter::new(code as u16, 0, count, value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    /// Returns the handshake with a listener at `address`; `None` if this machine has no such
    /// address.
    fn answer_at(address: &str) -> Handshake {
        let listener = TcpListener::bind((address, 0)).unwrap();
        let mut sniffer = SynAckSniffer::with_peer(listener.local_addr().unwrap());
        let connection = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let local = connection.local_addr().unwrap();
        let _other = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let window = first_window(&connection);
        Handshake {
            window,
            options_overwritten: sniffer.options_overwritten(local),
        }
    }

    #[test]
    fn a_syn_ack_is_received_where_raw_sockets_are_permitted() {
        let permitted = rustix::process::geteuid().is_root();
        for answer in fullpipe_testkit::loopback_addresses(module_path!())
            .into_iter()
            .map(answer_at)
        {
            assert!(
                answer
                    .window
                    .is_some_and(|window| window.get() > 0 && window.get() < 65_536),
                "{answer:?}"
            );
            assert_eq!(answer.options_overwritten, permitted.then_some(false));
        }
    }

    #[test]
    fn the_syn_of_a_caller_is_returned_once_if_the_kernel_kept_it() {
        for address in fullpipe_testkit::loopback_addresses(module_path!()) {
            let listener = TcpListener::bind((address, 0)).unwrap();
            let accepted = || {
                let _caller = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
                listener.accept().unwrap().0
            };
            assert_eq!(caller_handshake(accepted()), None, "it was not kept");
            fullpipe_sys::save_syn(&listener).unwrap();
            let connection = accepted();
            let asked = caller_handshake(&connection).unwrap();
            assert!(
                asked.window.is_some_and(|window| window.get() > 0),
                "{asked:?}"
            );
            assert_eq!(asked.options_overwritten, Some(false));
            assert_eq!(caller_handshake(&connection), None, "it is returned once");
        }
    }
}
