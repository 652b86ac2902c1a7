//! Socket options that the standard library lacks, read and set.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use fullpipe_record::{SocketMemory, TcpInfo};
use fullpipe_units::{BitRate, ByteCount};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use crate::dump::read_word;
use crate::tcp_info::{MAX_TCP_INFO, decode_tcp_info};

/// Longest that is asked for of a packet that opened a connection: its headers without what IPv6
/// may put between them.
const MAX_SAVED_SYN: usize = 120;

/// Words of `SO_MEMINFO` (`enum sk_meminfo_vars`).
const MEMINFO_WORDS: usize = 9;

/// Option with the buffers that a program has fixed (`asm-generic/socket.h`); the crate `libc` has
/// no name for it.
const SO_BUF_LOCK: i32 = 72;

/// `TCP_INFO` of a connection: every field that the running kernel returns.
///
/// # Errors
/// Fails as `getsockopt` does, for example for a descriptor that is not a TCP socket.
pub fn tcp_info(socket: impl AsFd) -> io::Result<TcpInfo> {
    let answer = socket_option(socket, libc::IPPROTO_TCP, libc::TCP_INFO, MAX_TCP_INFO)?;
    Ok(decode_tcp_info(&answer))
}

/// Memory of a socket (`SO_MEMINFO`, Linux 4.12).
///
/// # Errors
/// Fails as `getsockopt` does, or if its answer ends before the sizes of the buffers: an emulator of
/// processors (qemu) gives one word.
pub fn socket_memory(socket: impl AsFd) -> io::Result<SocketMemory> {
    let answer = socket_option(
        socket,
        libc::SOL_SOCKET,
        libc::SO_MEMINFO,
        MEMINFO_WORDS * 4,
    )?;
    if answer.len() < 6 * 4 {
        return Err(io::ErrorKind::Unsupported.into());
    }
    Ok(memory_of(&answer))
}

/// Lets the kernel keep the packet that opens a connection for each that `listener` takes in
/// (`TCP_SAVE_SYN`, Linux 4.2).
///
/// # Errors
/// Fails as `setsockopt` does, for example where the kernel lacks it.
pub fn save_syn(listener: impl AsFd) -> io::Result<()> {
    enable_option(listener, libc::IPPROTO_TCP, libc::TCP_SAVE_SYN)
}

/// Returns the IP and TCP headers of the SYN with which the peer opened `connection`
/// (`TCP_SAVED_SYN`); empty if the kernel was not asked to keep them, or they have been read
/// before.
///
/// # Errors
/// Fails as `getsockopt` does, for example for headers that are longer than 120 bytes.
pub fn saved_syn(connection: impl AsFd) -> io::Result<Vec<u8>> {
    socket_option(
        connection,
        libc::IPPROTO_TCP,
        libc::TCP_SAVED_SYN,
        MAX_SAVED_SYN,
    )
}

/// Returns true for each buffer of a socket, send buffer first, that a program fixed itself
/// (`SO_BUF_LOCK`, Linux 5.14); the kernel then leaves it as it is. `descriptor` is of process
/// `pid`, which may be another.
///
/// # Errors
/// Fails with the kernel's error: `PermissionDenied` where that process is not ours to trace,
/// `NotFound` (`ESRCH`) where it is gone; and as `getsockopt` does, for example for a descriptor
/// that is no socket, or before Linux 5.14.
pub fn fixed_buffers(pid: u32, descriptor: i32) -> io::Result<[bool; 2]> {
    let pid = Pid::from_raw(pid.cast_signed()).ok_or(io::ErrorKind::NotFound)?;
    let process = pidfd_open(pid, PidfdFlags::empty())?;
    let socket = pidfd_getfd(process, descriptor, PidfdGetfdFlags::empty())?;
    let answer = socket_option(socket, libc::SOL_SOCKET, SO_BUF_LOCK, 4)?;
    let locks = read_word(&answer, 0);
    Ok([locks & 1 != 0, locks & 2 != 0])
}

/// Gives the sizes of both buffers of `socket` back to the kernel, which then tunes them as if no
/// program had set them (`SO_BUF_LOCK`, Linux 5.14). The sizes stay as they are until it does.
///
/// # Errors
/// Fails if `setsockopt` does, as before Linux 5.14.
pub fn unfix_buffers(socket: impl AsFd) -> io::Result<()> {
    set_option(socket, libc::SOL_SOCKET, SO_BUF_LOCK, &0_u32.to_ne_bytes())
}

/// The kernel's answer, of whatever length.
pub(crate) fn memory_of(answer: &[u8]) -> SocketMemory {
    let [rmem_alloc, rcvbuf, wmem_alloc, sndbuf, wmem_queued] =
        [0, 1, 2, 3, 5].map(|index| ByteCount::new(read_word(answer, index * 4).into()));
    SocketMemory {
        rmem_alloc,
        rcvbuf,
        wmem_alloc,
        sndbuf,
        wmem_queued,
        drops: read_word(answer, 8 * 4).into(),
    }
}

/// Paces what a socket sends (`SO_MAX_PACING_RATE`): TCP by itself, UDP where the device has the
/// queue `fq`.
///
/// # Errors
/// Fails as `setsockopt` does.
pub fn set_pacing_rate(socket: impl AsFd, rate: BitRate) -> io::Result<()> {
    // Bytes per second in the kernel, of which there are 64 bits since Linux 4.20.
    set_option(
        socket,
        libc::SOL_SOCKET,
        libc::SO_MAX_PACING_RATE,
        &(rate.bps() / 8).to_ne_bytes(),
    )
}

/// `setsockopt` with a value as the kernel wants its bytes.
pub(crate) fn set_option(socket: impl AsFd, level: i32, name: i32, value: &[u8]) -> io::Result<()> {
    let length = value.len() as libc::socklen_t;
    // SAFETY: the descriptor is open for the borrow, and the kernel reads at most the `length`
    // bytes of `value`.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            name,
            value.as_ptr().cast(),
            length,
        )
    };
    check_call(result == 0)
}

/// Switches an option on.
pub(crate) fn enable_option(socket: impl AsFd, level: i32, name: i32) -> io::Result<()> {
    set_option(socket, level, name, &1_i32.to_ne_bytes())
}

pub(crate) fn control_socket() -> io::Result<OwnedFd> {
    let (family, kind) = (AddressFamily::INET, SocketType::DGRAM);
    Ok(socket_with(family, kind, SocketFlags::CLOEXEC, None)?)
}

/// Returns the error of the last system call unless it was `done`.
pub(crate) fn check_call(done: bool) -> io::Result<()> {
    if done {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// `getsockopt`: what the kernel filled of `room` bytes.
pub(crate) fn socket_option(
    socket: impl AsFd,
    level: i32,
    name: i32,
    room: usize,
) -> io::Result<Vec<u8>> {
    let (mut value, mut length) = (vec![0; room], room as libc::socklen_t);
    // SAFETY: the descriptor is open for the borrow; the kernel writes at most `length` bytes,
    // which is the length of the buffer, and puts into `length` how many it wrote.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            name,
            value.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    check_call(result == 0)?;
    value.truncate(length as usize);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_connection_over_loopback_reports_its_state() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let info = tcp_info(&client).unwrap();
        assert!(info.cwnd.unwrap().get() >= 2);
        assert!(info.snd_mss.unwrap().get() > 500);
        let memory = socket_memory(&client).unwrap();
        assert!(
            memory.sndbuf.get() >= 4096 && memory.rcvbuf.get() >= 2304,
            "{memory:?}"
        );
    }

    #[test]
    fn a_buffer_that_the_program_fixed_is_distinguished_from_one_that_the_kernel_tunes() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let locks = || fixed_buffers(std::process::id(), client.as_raw_fd());
        assert_eq!(locks().unwrap(), [false, false]);
        set_option(
            &client,
            libc::SOL_SOCKET,
            libc::SO_RCVBUF,
            &65_536_u32.to_ne_bytes(),
        )
        .unwrap();
        assert_eq!(locks().unwrap(), [false, true]);
        set_option(
            &client,
            libc::SOL_SOCKET,
            libc::SO_SNDBUF,
            &65_536_u32.to_ne_bytes(),
        )
        .unwrap();
        assert_eq!(locks().unwrap(), [true, true]);
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(fixed_buffers(std::process::id(), file.as_raw_fd()).is_err());
        assert!(fixed_buffers(1 << 30, 0).is_err() && fixed_buffers(0, 0).is_err());
    }

    #[test]
    fn a_pacing_rate_is_reported_back() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        for rate in [BitRate::from_mbps(8), BitRate::from_mbps(100_000)] {
            set_pacing_rate(&client, rate).unwrap();
            assert_eq!(tcp_info(&client).unwrap().max_pacing_rate, Some(rate));
        }
    }

    #[test]
    fn a_file_is_not_a_socket() {
        let file = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(
            tcp_info(&file).unwrap_err().raw_os_error(),
            Some(libc::ENOTSOCK)
        );
    }
}
