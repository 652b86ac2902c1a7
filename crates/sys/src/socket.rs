//! What the kernel tells of a TCP socket.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use fullpipe_record::{SocketMemory, TcpInfo};
use fullpipe_units::ByteCount;

use crate::tcp_info::{LONGEST, decode};

/// Words of `SO_MEMINFO` (`enum sk_meminfo_vars`).
const MEMINFO_WORDS: usize = 9;

/// `TCP_INFO` of a connection: every field that the running kernel returns.
///
/// # Errors
/// What `getsockopt` reports, as for a descriptor that is not a TCP socket.
pub fn tcp_info(socket: impl AsFd) -> io::Result<TcpInfo> {
    let mut bytes = [MaybeUninit::<u8>::uninit(); LONGEST];
    Ok(decode(option(socket.as_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, &mut bytes)?))
}

/// Memory of a socket (`SO_MEMINFO`, Linux 4.12).
///
/// # Errors
/// What `getsockopt` reports.
pub fn socket_memory(socket: impl AsFd) -> io::Result<SocketMemory> {
    let mut bytes = [MaybeUninit::<u8>::uninit(); MEMINFO_WORDS * 4];
    let answer = option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_MEMINFO, &mut bytes)?;
    let word = |index: usize| {
        let bytes = answer.get(index * 4..index * 4 + 4).and_then(|bytes| bytes.try_into().ok());
        u64::from(bytes.map_or(0, u32::from_ne_bytes))
    };
    let size = |index| ByteCount::new(word(index));
    Ok(SocketMemory {
        rmem_alloc: size(0),
        rcvbuf: size(1),
        wmem_alloc: size(2),
        sndbuf: size(3),
        wmem_queued: size(5),
        drops: word(8),
    })
}

/// `getsockopt` into `buffer`; the part that the kernel filled.
fn option<'b>(
    socket: BorrowedFd<'_>,
    level: i32,
    name: i32,
    buffer: &'b mut [MaybeUninit<u8>],
) -> io::Result<&'b [u8]> {
    let mut length = buffer.len() as libc::socklen_t;
    // SAFETY: the descriptor is open for the borrow; the kernel writes at most `length` bytes, which is the length of
    // the buffer, and puts into `length` how many it wrote.
    let result =
        unsafe { libc::getsockopt(socket.as_raw_fd(), level, name, buffer.as_mut_ptr().cast(), &raw mut length) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has written the first `length` bytes, and `length` never grows beyond the buffer.
    Ok(unsafe { std::slice::from_raw_parts(buffer.as_ptr().cast(), (length as usize).min(buffer.len())) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_connection_over_loopback_tells_its_state() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let info = tcp_info(&client).unwrap();
        assert!(info.cwnd.unwrap().get() >= 2);
        assert!(info.snd_mss.unwrap().get() > 500);
        let memory = socket_memory(&client).unwrap();
        assert!(memory.sndbuf.get() >= 4096 && memory.rcvbuf.get() >= 2304, "{memory:?}");
    }

    #[test]
    fn a_file_is_not_a_socket() {
        let file = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(tcp_info(&file).unwrap_err().raw_os_error(), Some(libc::ENOTSOCK));
    }
}
