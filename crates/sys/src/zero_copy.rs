//! Data that is sent from where it lies (`MSG_ZEROCOPY`, Linux 4.14;
//! `Documentation/networking/msg_zerocopy.rst`).

use std::io;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, AsRawFd};

use crate::control::control_messages;
use crate::dump::u32_at;
use crate::mapping::Mapping;
use crate::message;
use crate::socket::enable_option;

/// `include/uapi/linux/errqueue.h`.
const ORIGIN_ZERO_COPY: u8 = 5;
const CODE_COPIED: u8 = 1;

/// Offsets of the fields that are used in a `struct sock_extended_err`.
const ORIGIN: usize = 4;
const CODE: usize = 6;
const FIRST: usize = 8;
const LAST: usize = 12;

/// The outcome of sends without a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ZeroCopyCompletions {
    /// Sends of which the kernel needs the data no longer.
    pub done: u64,
    /// Of these, how many it copied after all: over loopback, and where the device cannot gather.
    pub copied: u64,
}

/// Bytes in pages of their own, page by page from the kernel.
///
/// The kernel may go on sending them after they are dropped here: it holds the pages, and no other
/// allocation gets them before it lets go.
#[derive(Debug)]
pub struct MappedPages(Mapping);

// SAFETY: a shared reference only reads.
unsafe impl Sync for MappedPages {}

impl MappedPages {
    /// `length` bytes, all zero.
    ///
    /// # Errors
    /// Fails as `mmap` does, for example for no bytes at all.
    pub fn new(length: usize) -> io::Result<Self> {
        Mapping::new(length, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1).map(Self)
    }
}

impl Deref for MappedPages {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the mapping has `length` readable bytes until it is dropped, and nobody writes
        // them meanwhile.
        unsafe { std::slice::from_raw_parts(self.0.start.as_ptr(), self.0.length) }
    }
}

impl DerefMut for MappedPages {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and this is the only way to them.
        unsafe { std::slice::from_raw_parts_mut(self.0.start.as_ptr(), self.0.length) }
    }
}

/// Lets a socket send without a copy (`SO_ZEROCOPY`).
///
/// # Errors
/// Fails as `setsockopt` does, for example where the kernel lacks it.
pub fn allow_zero_copy(socket: impl AsFd) -> io::Result<()> {
    enable_option(socket, libc::SOL_SOCKET, libc::SO_ZEROCOPY)
}

/// Sends the first `length` bytes of `pages`, or all of them where there are fewer, without a copy
/// on a socket that was allowed to; how many the kernel took. Each call that takes any is one send
/// whose end [`receive_completions`] reports later.
///
/// # Errors
/// Fails as `send` does: with `ENOBUFS` where notices of completed sends fill the room for them, or
/// pages may not be locked.
pub fn send_zero_copy(socket: impl AsFd, pages: &MappedPages, length: usize) -> io::Result<usize> {
    let data = &pages[..length.min(pages.len())];
    let flags = libc::MSG_ZEROCOPY | libc::MSG_NOSIGNAL;
    // SAFETY: the descriptor is open for the borrow; the kernel reads `data` now, and later through
    // pages that it holds, which `Pages` never hands to anybody else.
    let sent = unsafe {
        libc::send(
            socket.as_fd().as_raw_fd(),
            data.as_ptr().cast(),
            data.len(),
            flags,
        )
    };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// Takes the notices of completed sends from a socket; never waits.
///
/// # Errors
/// Fails as `recvmsg` does, but for an empty queue.
pub fn receive_completions(socket: impl AsFd) -> io::Result<ZeroCopyCompletions> {
    let mut total = ZeroCopyCompletions::default();
    loop {
        let message = match message::receive_message(
            &socket,
            &mut [],
            libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT,
        ) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(total),
            received => received?,
        };
        for notice in
            control_messages(&message.stated.0).filter_map(|message| parse_notice(message.data))
        {
            total.done += notice.done;
            total.copied += notice.copied;
        }
    }
}

/// A `struct sock_extended_err` about sends from a first to a last, whose numbers wrap at 2³².
fn parse_notice(stated: &[u8]) -> Option<ZeroCopyCompletions> {
    let (first, last) = (u32_at(stated, FIRST)?, u32_at(stated, LAST)?);
    if stated.get(ORIGIN) != Some(&ORIGIN_ZERO_COPY) {
        return None;
    }
    let done = u64::from(last.wrapping_sub(first)) + 1;
    Some(ZeroCopyCompletions {
        done,
        copied: if stated[CODE] & CODE_COPIED == 0 {
            0
        } else {
            done
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};
    use std::time::{Duration, Instant};

    #[test]
    fn data_arrives_and_the_kernel_says_that_it_copied_over_loopback() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let left = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut right = listener.accept().unwrap().0;
        allow_zero_copy(&left).unwrap();
        let mut pages = MappedPages::new(30_000).unwrap();
        pages
            .iter_mut()
            .zip(0_u8..=255)
            .for_each(|(byte, value)| *byte = value);
        for _ in 0..3 {
            assert_eq!(send_zero_copy(&left, &pages, 30_000).unwrap(), 30_000);
        }
        let mut read = vec![1; 90_000];
        right.read_exact(&mut read).unwrap();
        assert!(read[..30_000] == pages[..] && read[60_000..] == pages[..]);
        let (mut total, deadline) = (
            ZeroCopyCompletions::default(),
            Instant::now() + Duration::from_secs(5),
        );
        while total.done < 3 && Instant::now() < deadline {
            let found = receive_completions(&left).unwrap();
            total = ZeroCopyCompletions {
                done: total.done + found.done,
                copied: total.copied + found.copied,
            };
        }
        assert_eq!(total, ZeroCopyCompletions { done: 3, copied: 3 });
    }

    #[test]
    fn a_socket_without_leave_copies_and_says_nothing() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let left = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert_eq!(
            send_zero_copy(&left, &MappedPages::new(10).unwrap(), 100).unwrap(),
            10
        );
        assert_eq!(
            receive_completions(&left).unwrap(),
            ZeroCopyCompletions::default()
        );
        assert!(MappedPages::new(0).is_err());
    }

    #[test]
    fn numbers_of_sends_wrap() {
        let mut stated = [0; 16];
        stated[ORIGIN] = ORIGIN_ZERO_COPY;
        stated[FIRST..LAST].copy_from_slice(&u32::MAX.to_ne_bytes());
        stated[LAST..].copy_from_slice(&1_u32.to_ne_bytes());
        assert_eq!(
            parse_notice(&stated),
            Some(ZeroCopyCompletions { done: 3, copied: 0 })
        );
        stated[CODE] = CODE_COPIED;
        assert_eq!(
            parse_notice(&stated),
            Some(ZeroCopyCompletions { done: 3, copied: 3 })
        );
        stated[ORIGIN] = 2;
        assert_eq!(
            (parse_notice(&stated), parse_notice(&stated[..12])),
            (None, None)
        );
    }
}
