//! The parent's side of the keeper: starts it, asks it, learns when programs end.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use fullpipe_sys::{
    UnsharePrivilege, ends_within, lock, seqpacket_pair, unshare_before_exec, wait_readable,
};
use fullpipe_units::Span;
use rustix::io::retry_on_intr;
use rustix::net::{Shutdown, shutdown};
use rustix::process::{Signal, pidfd_send_signal};

use crate::error::LabError;
use crate::join_socket::LabEntry;
use crate::keeper;
use crate::lack::{lacking_error, lacking_namespaces};
use crate::protocol::{Blueprint, Layout, Reply, Request, receive_message, send_message};

/// The longest that the keeper may take over anything. Everything that it does is a handful of
/// system calls.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The devices at both ends of a stretch, in the order of the path, and their layout.
pub(crate) struct StretchDevices {
    pub layout: Layout,
    pub files: [File; 2],
}

/// A running keeper.
pub(crate) struct RemoteKeeper {
    control: Arc<OwnedFd>,
    /// One request at a time: the keeper answers in order.
    replies: Mutex<Receiver<Answer>>,
    ended: Arc<EndedPrograms>,
    process: Child,
    inside: LabEntry,
}

/// A reply, with its descriptors.
type Answer = (Reply, Vec<OwnedFd>);

/// The end of a program.
#[derive(Clone, Copy)]
pub(crate) struct ProgramEnd {
    /// Exit code, or 128 and the signal that ended it.
    pub code: i32,
    /// Processor time of it and of the children that it waited for.
    pub cpu: Span,
}

/// Programs that have ended.
#[derive(Default)]
pub(crate) struct EndedPrograms {
    state: Mutex<EndedState>,
    changed: Condvar,
}

#[derive(Default)]
struct EndedState {
    ends: HashMap<i32, ProgramEnd>,
    keeper_gone: bool,
}

impl EndedState {
    fn take_end(&mut self, pid: i32) -> Option<ProgramEnd> {
        const KILLED: ProgramEnd = ProgramEnd {
            code: 128 + 9,
            cpu: Span::ZERO,
        };
        self.ends
            .remove(&pid)
            .or(self.keeper_gone.then_some(KILLED))
    }
}

impl RemoteKeeper {
    /// Starts the keeper and lets it build what `blueprint` says; with it come the devices of each
    /// stretch, where a link is to read them. `interactive` leaves it in the terminal's foreground,
    /// for programs that read from there.
    pub(crate) fn start(
        blueprint: &Blueprint,
        interactive: bool,
    ) -> Result<(Self, Option<Vec<StretchDevices>>), LabError> {
        let (ours, theirs) = seqpacket_pair().map_err(LabError::from_io("make a socket pair"))?;
        let mut process = spawn_keeper(&theirs, interactive)?;
        // The keeper alone has its end, so that its end is noticed.
        drop(theirs);
        match first_words(&ours, blueprint) {
            Ok((devices, inside)) => {
                let control = Arc::new(ours);
                let (replies, ended) = listen_to_keeper(Arc::clone(&control));
                Ok((
                    Self {
                        control,
                        replies: Mutex::new(replies),
                        ended,
                        process,
                        inside,
                    },
                    devices,
                ))
            }
            Err(error) => {
                drop(ours);
                if !ends_within(&mut process, TIMEOUT) {
                    // What cannot be killed is gone already.
                    let _ = process.kill();
                }
                Err(error)
            }
        }
    }

    /// Asks for `request`, which a person would call `action`, and waits for the answer.
    pub(crate) fn ask_keeper(
        &self,
        action: &str,
        request: &Request,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<Reply, LabError> {
        self.exchange_messages(action, request, descriptors)
            .map(|(reply, _)| reply)
    }

    /// As [`Self::ask_keeper`], with the descriptors of the answer.
    pub(crate) fn exchange_messages(
        &self,
        action: &str,
        request: &Request,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<Answer, LabError> {
        let replies = lock(&self.replies);
        send_message(&self.control, request, descriptors).map_err(|cause| match cause.kind() {
            io::ErrorKind::InvalidInput => LabError::Io {
                action: action.to_owned(),
                cause,
            },
            _ => lab_gone(action),
        })?;
        match replies.recv_timeout(TIMEOUT) {
            Ok((Reply::Failed { message }, _)) => Err(LabError::Refused {
                action: action.to_owned(),
                reason: message,
            }),
            Ok(answer) => Ok(answer),
            // A late answer would be taken for the answer to the next request.
            Err(RecvTimeoutError::Timeout) => Err(self.give_up(action)),
            Err(RecvTimeoutError::Disconnected) => Err(lab_gone(action)),
        }
    }

    /// Kills a keeper that does not answer, and with it every program in the lab. Returns the error
    /// of `action`.
    pub(crate) fn give_up(&self, action: &str) -> LabError {
        self.end_keeper();
        // One that cannot be killed has ended.
        let _ = pidfd_send_signal(&self.inside.keeper, Signal::KILL);
        LabError::Silent {
            action: action.to_owned(),
        }
    }

    /// Ends the keeper, and with it every program in the lab.
    pub(crate) fn end_keeper(&self) {
        let _ = shutdown(&self.control, Shutdown::Both);
    }

    /// The way into the lab.
    pub(crate) fn lab_entry(&self) -> &LabEntry {
        &self.inside
    }

    /// Returns the programs that have ended.
    pub(crate) fn ended_programs(&self) -> Arc<EndedPrograms> {
        Arc::clone(&self.ended)
    }
}

impl Drop for RemoteKeeper {
    /// Ends the keeper, and with it every program in the lab, and waits until the kernel has done
    /// so.
    fn drop(&mut self) {
        self.end_keeper();
        if !ends_within(&mut self.process, TIMEOUT) {
            // They are stopped, or wait for a kernel that does not answer. In the first case they
            // end now.
            let _ = pidfd_send_signal(&self.inside.keeper, Signal::KILL);
            let _ = self.process.kill();
            ends_within(&mut self.process, TIMEOUT);
        }
    }
}

impl EndedPrograms {
    /// The end of `pid`, or `None` if `deadline` passes first. A program whose keeper is gone has
    /// ended too.
    pub(crate) fn wait_until(&self, pid: i32, deadline: Instant) -> Option<ProgramEnd> {
        let mut state = lock(&self.state);
        loop {
            if let Some(end) = state.take_end(pid) {
                return Some(end);
            }
            let left = deadline.checked_duration_since(Instant::now())?;
            state = self
                .changed
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }
}

fn lab_gone(action: &str) -> LabError {
    LabError::Gone {
        action: action.to_owned(),
    }
}

fn spawn_keeper(control: &OwnedFd, interactive: bool) -> Result<Child, LabError> {
    let is_root = rustix::process::geteuid().is_root();
    let spawned = if is_root {
        // Root of a container may lack the capability, and yet be one in a user namespace.
        spawn_keeper_as(UnsharePrivilege::AsRoot, control, interactive).or_else(|cause| {
            spawn_keeper_as(UnsharePrivilege::AsUser, control, interactive).map_err(|_| cause)
        })
    } else {
        spawn_keeper_as(UnsharePrivilege::AsUser, control, interactive)
    };
    spawned.map_err(|cause| lacking_namespaces(&cause, is_root))
}

fn spawn_keeper_as(
    unsharing: UnsharePrivilege,
    control: &OwnedFd,
    interactive: bool,
) -> io::Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command
        .arg(keeper::ARGUMENT)
        .stdin(Stdio::from(control.try_clone()?))
        .stdout(Stdio::null());
    if !interactive {
        command.process_group(0);
    }
    unshare_before_exec(&mut command, unsharing);
    command.spawn()
}

/// Returns the hosts that the keeper has built, by the descriptors that it sent: its own, those of
/// the networks, and two of each stretch with devices. `None` where some are missing.
fn built_hosts(
    blueprint: &Blueprint,
    layout: Option<Layout>,
    descriptors: Vec<OwnedFd>,
) -> Option<(Option<Vec<StretchDevices>>, LabEntry)> {
    let mut descriptors = descriptors.into_iter();
    let keeper = descriptors.next()?;
    let hosts = blueprint.path_hosts();
    let networks = hosts
        .iter()
        .map(|_| descriptors.next())
        .collect::<Option<_>>()?;
    let entry = LabEntry { keeper, networks };
    let Some(layout) = layout else {
        return Some((None, entry));
    };
    let devices = blueprint.stretches.iter().map(|_| {
        Some(StretchDevices {
            layout,
            files: [descriptors.next()?.into(), descriptors.next()?.into()],
        })
    });
    Some((Some(devices.collect::<Option<_>>()?), entry))
}

fn first_words(
    control: &OwnedFd,
    blueprint: &Blueprint,
) -> Result<(Option<Vec<StretchDevices>>, LabEntry), LabError> {
    let action = "build the hosts";
    send_message(control, blueprint, &[]).map_err(|_| lab_gone(action))?;
    // Whoever interrupts this process finds the hosts built, or knows why they are not.
    let answered = retry_on_intr(|| wait_readable(control, TIMEOUT));
    if !answered.map_err(|_| lab_gone(action))? {
        return Err(lab_gone(action));
    }
    match receive_message::<Reply>(control).map_err(|_| lab_gone(action))? {
        Some((Reply::Ready { layout }, descriptors)) => {
            built_hosts(blueprint, layout, descriptors).ok_or_else(|| lab_gone(action))
        }
        Some((
            Reply::Lacking {
                what,
                message,
                errno,
            },
            _,
        )) => Err(lacking_error(what, blueprint.backend, &message, errno)),
        Some((Reply::Failed { message }, _)) => Err(LabError::Refused {
            action: action.to_owned(),
            reason: message,
        }),
        _ => Err(LabError::Gone {
            action: action.to_owned(),
        }),
    }
}

/// Receives everything that the keeper sends, on a thread of its own that ends with the keeper.
fn listen_to_keeper(control: Arc<OwnedFd>) -> (Receiver<Answer>, Arc<EndedPrograms>) {
    let (answers, replies) = mpsc::channel();
    let ended = Arc::new(EndedPrograms::default());
    let state = Arc::clone(&ended);
    thread::spawn(move || {
        while let Ok(Some(answer)) = receive_message::<Reply>(control.as_fd()) {
            if let Reply::Exited { pid, code, cpu } = answer.0 {
                lock(&state.state)
                    .ends
                    .insert(pid, ProgramEnd { code, cpu });
                state.changed.notify_all();
            } else if answers.send(answer).is_err() {
                break;
            }
        }
        lock(&state.state).keeper_gone = true;
        state.changed.notify_all();
    });
    (replies, ended)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_keeper_that_does_not_end_is_not_waited_for() {
        let mut process = Command::new("sleep").arg("60").spawn().unwrap();
        let began = Instant::now();
        assert!(!ends_within(&mut process, Duration::from_millis(20)));
        process.kill().unwrap();
        assert!(ends_within(&mut process, TIMEOUT));
        assert!(began.elapsed() < TIMEOUT);
    }
}
