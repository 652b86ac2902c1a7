//! How late the path of a lab was, for programs in its hosts that measure over it.
//!
//! Each host has a socket of the same name, an abstract one, which belongs to the network of the host. Whoever connects
//! begins to be a witness, and gets the validity of the time since then for a message.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use fullpipe_record::Validity;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, ioctl_fionbio};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, listen,
    recv, send, socket_with, sockopt,
};

use crate::error::LabError;
use crate::lab::{Lab, Watch};

/// Name of the socket in each host.
const NAME: &[u8] = b"fullpipe-lab-path";

/// The longest that a lab may take to answer.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The longest that a request to stop waits to be seen.
const POLL_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// Programs that may measure at the same time.
const MAX_WITNESSES: usize = 64;

/// Longest answer.
const MAX_ANSWER: usize = 16 * 1024;

/// A program's view of the lab that it is in, from one moment on.
#[derive(Debug)]
pub struct PathWitness(OwnedFd);

impl PathWitness {
    /// Begins. Returns `None` where this host is in no lab that tells.
    pub fn begin() -> Option<Self> {
        let (socket, address) = own_socket().ok()?;
        for side in [sockopt::Timeout::Send, sockopt::Timeout::Recv] {
            sockopt::set_socket_timeout(&socket, side, Some(TIMEOUT)).ok()?;
        }
        connect(&socket, &address).ok()?;
        Some(Self(socket))
    }

    /// Returns the validity of what was measured over the path since the beginning; without an answer of the lab within
    /// five seconds, a reason why it is not valid.
    pub fn finish(self) -> Validity {
        let answer = || -> Option<Validity> {
            send(&self.0, b"?", SendFlags::NOSIGNAL).ok()?;
            let mut bytes = vec![0; MAX_ANSWER];
            let (length, _) = recv(&self.0, &mut bytes[..], RecvFlags::empty()).ok()?;
            serde_json::from_slice(&bytes[..length]).ok()
        };
        let silent = || "the lab does not tell how late its path was; has it ended?".to_owned();
        answer().unwrap_or_else(|| Validity { broken: vec![silent()], ..Validity::default() })
    }
}

fn own_socket() -> Result<(OwnedFd, SocketAddrUnix), Errno> {
    let address = SocketAddrUnix::new_abstract_name(NAME)?;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
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

impl Lab {
    /// Does `work`, and meanwhile tells the programs in the hosts how late the path is.
    ///
    /// # Errors
    /// If the hosts cannot be reached.
    pub fn while_witnessed<T>(&self, work: impl FnOnce() -> T) -> Result<T, LabError> {
        let listeners = self.hosts().iter().map(|host| self.listen_in(*host)).collect::<Result<Vec<_>, _>>()?;
        let stop = AtomicBool::new(false);
        Ok(thread::scope(|scope| {
            let _stop = StopAtEnd(&stop);
            scope.spawn(|| self.answer_witnesses(&listeners, &stop));
            work()
        }))
    }

    fn answer_witnesses(&self, listeners: &[OwnedFd], stop: &AtomicBool) {
        let mut witnesses: Vec<(OwnedFd, Watch<'_>)> = Vec::new();
        while !stop.load(Ordering::Relaxed) {
            let sockets = listeners.iter().chain(witnesses.iter().map(|(socket, _)| socket));
            let mut waiting: Vec<PollFd<'_>> = sockets.map(|socket| PollFd::new(socket, PollFlags::IN)).collect();
            // An interrupted wait is one more turn.
            let _ = poll(&mut waiting, Some(&POLL_INTERVAL));
            let is_ready: Vec<bool> = waiting.iter().map(|one| !one.revents().is_empty()).collect();
            let (come, asked) = is_ready.split_at(listeners.len());
            let mut asked = asked.iter();
            for (socket, watch) in witnesses.extract_if(.., |_| asked.next().is_some_and(|asked| *asked)) {
                answer(&socket, watch);
            }
            for (listener, _) in listeners.iter().zip(come).filter(|(_, come)| **come) {
                let visitor = accept_with(listener, SocketFlags::CLOEXEC).ok().zip(self.watch().ok());
                witnesses.extend(visitor.filter(|_| witnesses.len() < MAX_WITNESSES));
            }
        }
    }
}

/// Answers one that asked; one that went away needs no answer.
fn answer(socket: &OwnedFd, watch: Watch<'_>) {
    let asked = recv(socket, &mut [0_u8; 8][..], RecvFlags::DONTWAIT).is_ok_and(|(length, _)| length > 0);
    if let Some(Ok(text)) = asked.then(|| watch.finish().ok().map(|validity| serde_json::to_vec(&validity))).flatten() {
        let _ = send(socket, &text, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
    }
}

/// Ends the thread also where the work panics.
struct StopAtEnd<'s>(&'s AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
