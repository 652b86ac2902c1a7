//! The TCP connections of this network namespace, whoever they belong to (`sock_diag(7)`,
//! `linux/inet_diag.h`).
//!
//! Written by hand: the crates that offer it bring along six others for one request and one answer.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use fullpipe_record::{SocketMemory, TcpInfo};
use rustix::net::netlink::SOCK_DIAG;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
};

use crate::dump::{self, DumpProgress, read_word};
use crate::socket::memory_of;
use crate::tcp_info::decode_tcp_info;

/// One TCP connection, as the kernel describes it to anybody.
#[derive(Debug, Clone, PartialEq)]
pub struct TcpConnection {
    /// The kernel's cookie of this socket, which no other socket has or had.
    pub cookie: u64,
    /// This end.
    pub local: SocketAddr,
    /// The other end.
    pub remote: SocketAddr,
    /// Number of the socket's file, by which `/proc/PID/fd` names it; zero where no process has it
    /// any more.
    pub inode: u64,
    /// Bytes that have arrived and that the program has not read.
    pub unread: u32,
    /// `TCP_INFO`.
    pub tcp: TcpInfo,
    /// Memory of the socket, where the kernel reports it.
    pub memory: Option<SocketMemory>,
    /// Congestion control.
    pub congestion: String,
}

/// Looks at TCP connections.
#[derive(Debug)]
pub struct ConnectionTable {
    netlink: OwnedFd,
    buffer: Vec<u8>,
    /// Set while an answer is not read to its end.
    is_unread: bool,
}

impl ConnectionTable {
    /// Of the network namespace of the calling thread.
    ///
    /// # Errors
    /// Fails with the kernel's error.
    pub fn open() -> io::Result<Self> {
        let netlink = socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            Some(SOCK_DIAG),
        )?;
        set_socket_timeout(&netlink, Timeout::Recv, Some(TIMEOUT))?;
        Ok(Self {
            netlink,
            buffer: vec![0; ANSWER],
            is_unread: false,
        })
    }

    /// Every connection that carries data or may: established, or closed by one end only. At most
    /// 65,536 of each family.
    ///
    /// # Errors
    /// Fails with the kernel's error: `NotFound` where it was built without the answer to this;
    /// `WouldBlock` or `TimedOut` where it does not answer within two seconds.
    pub fn list_all(&mut self) -> io::Result<Vec<TcpConnection>> {
        let mut found = Vec::new();
        for family in [libc::AF_INET, libc::AF_INET6] {
            self.dump_family(family, &[], TIMEOUT, &mut found)?;
        }
        Ok(found)
    }

    /// Returns the connections between `ends` (this end and the other) that still exist. The kernel
    /// picks them, so that thousands of others cost next to nothing.
    ///
    /// # Errors
    /// As [`ConnectionTable::list_all`].
    pub fn find_by_ends(
        &mut self,
        ends: &[(SocketAddr, SocketAddr)],
    ) -> io::Result<Vec<TcpConnection>> {
        let mut found = Vec::new();
        for (family, is_v4) in [(libc::AF_INET, true), (libc::AF_INET6, false)] {
            let own: Vec<_> = ends
                .iter()
                .filter(|(local, _)| local.is_ipv4() == is_v4)
                .copied()
                .collect();
            for some in own.chunks(MAX_WANTED) {
                self.dump_family(family, &ends_filter(some), TIMEOUT, &mut found)?;
            }
        }
        Ok(found)
    }

    fn dump_family(
        &mut self,
        family: i32,
        filter: &[u8],
        timeout: Duration,
        found: &mut Vec<TcpConnection>,
    ) -> io::Result<()> {
        let most = found.len() + MAX_CONNECTIONS;
        if self.is_unread {
            self.pass_over_the_last_answer()?;
        }
        send(
            &self.netlink,
            &diag_request(family, filter),
            SendFlags::empty(),
        )?;
        self.is_unread = true;
        self.read_to_the_end(RecvFlags::empty(), timeout, most, found)
    }

    /// Of an answer that took too long, the rest would be taken for the next one.
    fn pass_over_the_last_answer(&mut self) -> io::Result<()> {
        match self.read_to_the_end(RecvFlags::DONTWAIT, TIMEOUT, 0, &mut Vec::new()) {
            Err(error) if error.kind() == io::ErrorKind::TimedOut => Err(error),
            // Any other error is that nothing is left, or stands in place of the rest.
            _ => {
                self.is_unread = false;
                Ok(())
            }
        }
    }

    /// Reads on, beyond `most` without keeping it, so that the next answer is that to the next
    /// request.
    fn read_to_the_end(
        &mut self,
        flags: RecvFlags,
        timeout: Duration,
        most: usize,
        found: &mut Vec<TcpConnection>,
    ) -> io::Result<()> {
        let deadline = Instant::now() + timeout;
        loop {
            let (length, _) = recv(&self.netlink, &mut self.buffer, flags)?;
            let answer = self.buffer.get(..length).unwrap_or_default();
            if read_answer(answer, most, found)? == DumpProgress::Ended {
                self.is_unread = false;
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
    }
}

/// `INET_DIAG_REQ_V2` for all connections of a family that `filter` lets through.
fn diag_request(family: i32, filter: &[u8]) -> Vec<u8> {
    const SOCK_DIAG_BY_FAMILY: u16 = 20;
    const INET_DIAG_REQ_BYTECODE: u16 = 1;
    const EXTENSIONS: u8 = 1 << (INFO - 1) | 1 << (CONG - 1) | 1 << (SKMEMINFO - 1);
    let mut payload = vec![family as u8, libc::IPPROTO_TCP as u8, EXTENSIONS, 0];
    payload.extend(STATES.to_ne_bytes());
    // The ends of one connection, of which a dump takes no notice.
    payload.resize(payload.len() + 48, 0);
    if !filter.is_empty() {
        payload.extend((4 + filter.len() as u16).to_ne_bytes());
        payload.extend(INET_DIAG_REQ_BYTECODE.to_ne_bytes());
        payload.extend(filter);
    }
    dump::netlink_message(SOCK_DIAG_BY_FAMILY, libc::NLM_F_DUMP, &payload)
}

/// The kernel's little program (`struct inet_diag_bc_op`) that lets these connections through: an
/// alternative after the other, each two conditions and a jump to the end; one that fails goes on
/// with the next alternative.
fn ends_filter(ends: &[(SocketAddr, SocketAddr)]) -> Vec<u8> {
    let lengths: Vec<usize> = ends
        .iter()
        .map(|(local, remote)| condition_length(*local) + condition_length(*remote) + OP)
        .collect();
    let mut left: usize = lengths.iter().sum();
    let mut program = Vec::with_capacity(left);
    for ((local, remote), length) in ends.iter().zip(lengths) {
        let is_last = left == length;
        // Beyond the end means no.
        let no = if is_last { left + 4 } else { length };
        push_condition(&mut program, BC_S_COND, *local, no);
        push_condition(
            &mut program,
            BC_D_COND,
            *remote,
            no - condition_length(*local),
        );
        // To the end, which means yes.
        let to_end = left - condition_length(*local) - condition_length(*remote);
        push_op(&mut program, BC_JMP, OP, to_end);
        left -= length;
    }
    program
}

/// Bytes of a condition on one end.
fn condition_length(end: SocketAddr) -> usize {
    OP + 8 + if end.is_ipv4() { 4 } else { 16 }
}

/// `struct inet_diag_hostcond` behind its operation.
fn push_condition(program: &mut Vec<u8>, code: u8, end: SocketAddr, no: usize) {
    push_op(program, code, condition_length(end), no);
    let (family, address) = dump::address_bytes(end.ip());
    program.extend([family as u8, (address.len() * 8) as u8, 0, 0]);
    program.extend(i32::from(end.port()).to_ne_bytes());
    program.extend(address);
}

fn push_op(program: &mut Vec<u8>, code: u8, yes: usize, no: usize) {
    program.extend([code, yes as u8]);
    program.extend((no as u16).to_ne_bytes());
}

/// Reads the messages of one datagram; connections beyond `most` are passed over.
fn read_answer(
    answer: &[u8],
    most: usize,
    found: &mut Vec<TcpConnection>,
) -> io::Result<DumpProgress> {
    dump::read_messages(answer, &mut |_, body| {
        if found.len() < most {
            found.extend(parse_connection(body));
        }
    })
}

/// `struct inet_diag_msg` and what follows it; `None` where it is cut short, or without counters:
/// what is left of a connection that only waits for the other end's FIN (`inet_timewait_sock`) has
/// the state `FIN_WAIT2` and its cookie, and no more.
fn parse_connection(body: &[u8]) -> Option<TcpConnection> {
    const MESSAGE: usize = 72;
    let attributes = body.get(MESSAGE..)?;
    let mut connection = TcpConnection {
        cookie: u64::from(read_word(body, 44)) | u64::from(read_word(body, 48)) << 32,
        local: parse_end(body, 4, 8)?,
        remote: parse_end(body, 6, 24)?,
        unread: read_word(body, 56),
        inode: u64::from(read_word(body, 68)),
        tcp: TcpInfo::default(),
        memory: None,
        congestion: String::new(),
    };
    let mut has_counters = false;
    for (kind, value) in dump::parse_attributes(attributes) {
        match kind {
            INFO => {
                connection.tcp = decode_tcp_info(value);
                has_counters = true;
            }
            SKMEMINFO => connection.memory = Some(memory_of(value)),
            CONG => connection.congestion = dump::parse_text(value),
            _ => {}
        }
    }
    has_counters.then_some(connection)
}

/// One end of a connection, from the places of its port and its address.
fn parse_end(body: &[u8], port: usize, address: usize) -> Option<SocketAddr> {
    let ip = dump::address_of(i32::from(body[0]), body.get(address..)?)?;
    let port = u16::from_be_bytes([body[port], body[port + 1]]);
    Some(SocketAddr::new(ip, port))
}

/// More connections than this of one family are not reported.
const MAX_CONNECTIONS: usize = 65_536;

/// Most connections that a filter names: its jumps have 16 bits.
const MAX_WANTED: usize = 512;

/// The most that the kernel puts into one datagram of a dump.
const ANSWER: usize = 64 << 10;

/// Time that the kernel may take to answer.
const TIMEOUT: Duration = Duration::from_secs(2);

/// `struct inet_diag_bc_op`.
const OP: usize = 4;

// Codes of the filter (`INET_DIAG_BC_…`).
const BC_JMP: u8 = 1;
const BC_S_COND: u8 = 7;
const BC_D_COND: u8 = 8;

// Attributes of an answer (`INET_DIAG_…`).
const INFO: u16 = 2;
const CONG: u16 = 4;
const SKMEMINFO: u16 = 7;

/// Established, `SYN_SENT`, `FIN_WAIT1`, `FIN_WAIT2`, `CLOSE_WAIT`, `LAST_ACK` and `CLOSING`, a bit
/// each (`net/tcp_states.h`).
const STATES: u32 = 1 << 1 | 1 << 2 | 1 << 4 | 1 << 5 | 1 << 8 | 1 << 9 | 1 << 11;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dump::HEADER_LENGTH;
    use proptest::prelude::*;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};

    /// Connections over loopback, both ends of each.
    fn pairs(host: &str, count: usize) -> Vec<(TcpStream, TcpStream)> {
        let listener = TcpListener::bind((host, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        (0..count)
            .map(|_| {
                (
                    TcpStream::connect(address).unwrap(),
                    listener.accept().unwrap().0,
                )
            })
            .collect()
    }

    fn ends(socket: &TcpStream) -> (SocketAddr, SocketAddr) {
        (socket.local_addr().unwrap(), socket.peer_addr().unwrap())
    }

    #[test]
    fn a_connection_is_reported_as_its_owner_sees_it() {
        let pairs = pairs("127.0.0.1", 1);
        let (client, server) = &pairs[0];
        (&mut &*client).write_all(&[7; 1000]).unwrap();
        let mut connections = ConnectionTable::open().unwrap();
        let found = connections
            .find_by_ends(&[ends(client), ends(server)])
            .unwrap();
        assert_eq!(found.len(), 2, "{found:#?}");
        let of = |socket| {
            found
                .iter()
                .find(|one| (one.local, one.remote) == ends(socket))
                .unwrap()
        };
        assert_eq!(
            of(client).tcp.snd_mss,
            crate::tcp_info(client).unwrap().snd_mss
        );
        assert_eq!(
            of(client).memory.unwrap().sndbuf,
            crate::socket_memory(client).unwrap().sndbuf
        );
        assert_eq!((of(server).unread, of(client).unread), (1000, 0));
        assert!(!of(client).congestion.is_empty() && of(client).inode > 0);
        assert_ne!(of(client).cookie, of(server).cookie);
    }

    #[test]
    fn only_those_asked_for_are_reported_and_all_are_where_nobody_asks() {
        let pairs = pairs("127.0.0.1", 600);
        let wanted: Vec<_> = pairs.iter().map(|(client, _)| ends(client)).collect();
        let mut connections = ConnectionTable::open().unwrap();
        let of = |found: &[TcpConnection]| {
            found
                .iter()
                .map(|one| (one.local, one.remote))
                .collect::<Vec<_>>()
        };
        // More than one filter holds, and the first, a middle and the last of another.
        let mut found = of(&connections.find_by_ends(&wanted).unwrap());
        found.sort_unstable();
        let mut expected = wanted.clone();
        expected.sort_unstable();
        assert_eq!(found, expected);
        for one in [0, 255, 599] {
            assert_eq!(
                of(&connections.find_by_ends(&wanted[one..=one]).unwrap()),
                [wanted[one]]
            );
        }
        let all = of(&connections.list_all().unwrap());
        assert!(wanted.iter().all(|one| all.contains(one)));
        drop(pairs);
    }

    #[test]
    fn both_families_are_reported() {
        let addresses = fullpipe_testkit::loopback_addresses(module_path!()).into_iter();
        let pairs: Vec<_> = addresses.flat_map(|address| pairs(address, 2)).collect();
        let wanted: Vec<_> = pairs.iter().map(|(client, _)| ends(client)).collect();
        assert_eq!(
            ConnectionTable::open()
                .unwrap()
                .find_by_ends(&wanted)
                .unwrap()
                .len(),
            pairs.len()
        );
    }

    #[test]
    fn what_is_left_of_an_answer_that_took_too_long_is_not_the_next_one() {
        let pairs = pairs("127.0.0.1", 300);
        let wanted = ends(&pairs[7].0);
        let mut connections = ConnectionTable::open().unwrap();
        let error = connections
            .dump_family(libc::AF_INET, &[], Duration::ZERO, &mut Vec::new())
            .unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        let found = connections.find_by_ends(&[wanted]).unwrap();
        assert_eq!(
            found
                .iter()
                .map(|one| (one.local, one.remote))
                .collect::<Vec<_>>(),
            [wanted]
        );
        assert!(!connections.is_unread);
    }

    #[test]
    fn a_connection_that_is_gone_is_not_reported() {
        let pairs = pairs("127.0.0.1", 1);
        let wanted = ends(&pairs[0].0);
        let elsewhere = (wanted.0, SocketAddr::from(([192, 0, 2, 1], 9)));
        let mut connections = ConnectionTable::open().unwrap();
        assert_eq!(connections.find_by_ends(&[elsewhere]).unwrap(), []);
        assert_eq!(connections.find_by_ends(&[]).unwrap(), []);
    }

    #[test]
    fn what_is_left_of_a_connection_that_its_program_closed_is_not_reported() {
        let pairs = pairs("127.0.0.1", 1);
        let (client, server) = pairs.into_iter().next().unwrap();
        let wanted = ends(&client);
        drop(client);
        let mut connections = ConnectionTable::open().unwrap();
        let is_gone = || connections.find_by_ends(&[wanted]).unwrap().is_empty();
        assert!(
            fullpipe_testkit::within(Duration::from_secs(10), is_gone),
            "its counters are all zero"
        );
        drop(server);
    }

    proptest! {
        #[test]
        fn any_answer_is_read(answer in prop::collection::vec(any::<u8>(), 0..300), kind in 0_u8..24) {
            let _ = read_answer(&answer, 10, &mut Vec::new());
            // The same behind a header that fits.
            let mut framed = (answer.len() as u32 + 16).to_ne_bytes().to_vec();
            framed.extend([kind, 0]);
            framed.resize(HEADER_LENGTH, 0);
            framed.extend(&answer);
            let mut found = Vec::new();
            let _ = read_answer(&framed, 10, &mut found);
            prop_assert!(found.len() <= 10);
        }
    }
}
