//! Answers of a lab to the programs in its hosts that ask how late the path is; see
//! [`crate::path_witness`].

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvFlags, SendFlags, SocketFlags, accept_with, recv, send};

use crate::error::LabError;
use crate::lab::{Lab, ValidityWatch};

/// The longest that a request to stop waits to be seen.
const POLL_INTERVAL: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};

/// Programs that may measure at the same time.
const MAX_WITNESSES: usize = 64;

impl Lab {
    /// Does `work`, and meanwhile reports to the programs in the hosts how late the path is.
    ///
    /// # Errors
    /// If the hosts cannot be reached.
    pub fn while_witnessed<T>(&self, work: impl FnOnce() -> T) -> Result<T, LabError> {
        let listeners = self
            .lab_hosts()
            .iter()
            .map(|host| self.listen_in(*host))
            .collect::<Result<Vec<_>, _>>()?;
        let stop = AtomicBool::new(false);
        Ok(thread::scope(|scope| {
            let _stop = StopAtEnd(&stop);
            scope.spawn(|| self.answer_witnesses(&listeners, &stop));
            work()
        }))
    }

    fn answer_witnesses(&self, listeners: &[OwnedFd], stop: &AtomicBool) {
        let mut witnesses: Vec<(OwnedFd, ValidityWatch<'_>)> = Vec::new();
        while !stop.load(Ordering::Relaxed) {
            let sockets = listeners
                .iter()
                .chain(witnesses.iter().map(|(socket, _)| socket));
            let mut waiting: Vec<PollFd<'_>> = sockets
                .map(|socket| PollFd::new(socket, PollFlags::IN))
                .collect();
            // An interrupted wait is one more turn.
            let _ = poll(&mut waiting, Some(&POLL_INTERVAL));
            let is_ready: Vec<bool> = waiting
                .iter()
                .map(|one| !one.revents().is_empty())
                .collect();
            let (come, asked) = is_ready.split_at(listeners.len());
            let mut asked = asked.iter();
            for (socket, watch) in
                witnesses.extract_if(.., |_| asked.next().is_some_and(|asked| *asked))
            {
                answer_witness(&socket, watch);
            }
            for (listener, _) in listeners.iter().zip(come).filter(|(_, come)| **come) {
                let visitor = accept_with(listener, SocketFlags::CLOEXEC)
                    .ok()
                    .zip(self.start_watch().ok());
                witnesses.extend(visitor.filter(|_| witnesses.len() < MAX_WITNESSES));
            }
        }
    }
}

/// Answers one that asked; one that went away needs no answer.
fn answer_witness(socket: &OwnedFd, watch: ValidityWatch<'_>) {
    let asked =
        recv(socket, &mut [0_u8; 8][..], RecvFlags::DONTWAIT).is_ok_and(|(length, _)| length > 0);
    if let Some(Ok(text)) = asked
        .then(|| {
            watch
                .finish_watch()
                .ok()
                .map(|validity| serde_json::to_vec(&validity))
        })
        .flatten()
    {
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
