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
use rustix::net::{RecvFlags, SendFlags, recv, send};

use crate::dump::{self, DumpProgress, attribute, read_word};
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
        let netlink = dump::netlink_socket(Some(SOCK_DIAG))?;
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
    Some(TcpConnection {
        cookie: u64::from(read_word(body, 44)) | u64::from(read_word(body, 48)) << 32,
        local: parse_end(body, 4, 8)?,
        remote: parse_end(body, 6, 24)?,
        unread: read_word(body, 56),
        inode: u64::from(read_word(body, 68)),
        tcp: decode_tcp_info(attribute(attributes, INFO)?),
        memory: attribute(attributes, SKMEMINFO).map(memory_of),
        congestion: attribute(attributes, CONG)
            .map(dump::parse_text)
            .unwrap_or_default(),
    })
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
mod tests;
