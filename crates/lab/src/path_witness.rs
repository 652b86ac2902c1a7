//! The lateness of the path of a lab, for programs in its hosts that measure over it.
//!
//! Each host has a socket of the same name, an abstract one, which belongs to the network of the
//! host. Whoever connects begins to be a witness, and gets the validity of the time since then for
//! a message.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use fullpipe_record::Validity;
use rustix::io::{Errno, ioctl_fionbio};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, bind, connect,
    listen, recv, send, socket_with, sockopt,
};

/// Name of the socket in each host.
const NAME: &[u8] = b"fullpipe-lab-path";

/// The longest that a lab may take to answer.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Longest answer.
const MAX_ANSWER: usize = 16 * 1024;

/// A program's view of the lab that it is in, from one moment on.
#[derive(Debug)]
pub struct PathWitness(OwnedFd);

impl PathWitness {
    /// Begins. Returns `None` where this host is in no lab that reports it.
    pub fn begin_witness() -> Option<Self> {
        let (socket, address) = own_socket().ok()?;
        for side in [sockopt::Timeout::Send, sockopt::Timeout::Recv] {
            sockopt::set_socket_timeout(&socket, side, Some(TIMEOUT)).ok()?;
        }
        connect(&socket, &address).ok()?;
        Some(Self(socket))
    }

    /// Returns the validity of what was measured over the path since the beginning; without an
    /// answer of the lab within five seconds, a reason why it is not valid.
    pub fn finish_witness(self) -> Validity {
        let silent = "the lab does not report how late its path was; has it ended?";
        self.ask_validity().unwrap_or_else(|| Validity {
            broken: vec![silent.to_owned()],
            ..Validity::default()
        })
    }

    fn ask_validity(&self) -> Option<Validity> {
        send(&self.0, b"?", SendFlags::NOSIGNAL).ok()?;
        let mut bytes = vec![0; MAX_ANSWER];
        let (length, _) = recv(&self.0, &mut bytes[..], RecvFlags::empty()).ok()?;
        serde_json::from_slice(&bytes[..length]).ok()
    }
}

fn own_socket() -> Result<(OwnedFd, SocketAddrUnix), Errno> {
    let address = SocketAddrUnix::new_abstract_name(NAME)?;
    let socket = socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?;
    Ok((socket, address))
}

/// Returns a socket that listens in the network of this thread.
pub(crate) fn listen_here() -> io::Result<OwnedFd> {
    let (socket, address) = own_socket()?;
    bind(&socket, &address)?;
    listen(&socket, 8)?;
    // One that went away before it was accepted must not be waited for.
    ioctl_fionbio(&socket, true)?;
    Ok(socket)
}
