//! Messages with file descriptors over a Unix socket pair.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg,
    sendmsg, socketpair,
};

/// Descriptors that one message may carry.
const MAX_DESCRIPTORS: usize = 11;

/// Two connected ends that keep message borders and show when the other end is gone.
///
/// # Errors
/// Fails as `socketpair` does.
pub fn seqpacket_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?)
}

/// Sends one message, with at most eleven descriptors.
///
/// # Errors
/// Fails as `sendmsg` does: with `EPIPE` once the other end is gone, `EMSGSIZE` for a message that
/// is too long.
///
/// # Panics
/// With more than eleven descriptors.
pub fn send_with_descriptors(
    socket: impl AsFd,
    message: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    assert!(
        descriptors.len() <= MAX_DESCRIPTORS,
        "at most {MAX_DESCRIPTORS} descriptors a message"
    );
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        assert!(
            ancillary.push(SendAncillaryMessage::ScmRights(descriptors)),
            "the space was sized for them"
        );
    }
    let part = [IoSlice::new(message)];
    rustix::io::retry_on_intr(|| sendmsg(&socket, &part, &mut ancillary, SendFlags::NOSIGNAL))?;
    Ok(())
}

/// Receives one message into `buffer`; its length and its descriptors. A length of 0 means that the
/// other end is gone.
///
/// # Errors
/// Fails as `recvmsg` does, and with `InvalidData` for a message longer than `buffer`.
pub fn receive_with_descriptors(
    socket: impl AsFd,
    buffer: &mut [u8],
) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let message = loop {
        match recvmsg(
            &socket,
            &mut [IoSliceMut::new(buffer)],
            &mut ancillary,
            RecvFlags::CMSG_CLOEXEC,
        ) {
            Err(rustix::io::Errno::INTR) => {}
            other => break other?,
        }
    };
    let descriptors = ancillary
        .drain()
        .filter_map(|part| match part {
            RecvAncillaryMessage::ScmRights(list) => Some(list),
            _ => None,
        })
        .flatten()
        .collect();
    if message.flags.contains(ReturnFlags::TRUNC) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "a message longer than the buffer for it",
        ));
    }
    Ok((message.bytes, descriptors))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::Read;
    use std::os::fd::AsFd;

    #[test]
    fn a_descriptor_arrives_open() {
        let (left, right) = seqpacket_pair().unwrap();
        let zero = File::open("/dev/zero").unwrap();
        send_with_descriptors(&left, b"here", &[zero.as_fd()]).unwrap();
        let mut buffer = [0; 16];
        let (length, mut descriptors) = receive_with_descriptors(&right, &mut buffer).unwrap();
        assert_eq!(&buffer[..length], b"here");
        let mut byte = [1];
        File::from(descriptors.pop().unwrap())
            .read_exact(&mut byte)
            .unwrap();
        assert_eq!(byte, [0]);
        drop(left);
        assert_eq!(receive_with_descriptors(&right, &mut buffer).unwrap().0, 0);
    }
}
