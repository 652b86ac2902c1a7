use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};

use fullpipe_record::PathChange;
use rustix::event::{EventfdFlags, eventfd};

use crate::capture::CaptureTap;
use crate::packet::LinkPacket;

/// A command to one direction of the link from outside of its device.
pub(crate) enum LinkCommand {
    /// A router's answer to a packet of the other direction.
    Reply(LinkPacket),
    /// The path is different from now on.
    Change(PathChange),
    /// Starts a capture of what passes, or ends it.
    Capture(Option<CaptureTap>),
}

/// The sending end.
#[derive(Clone)]
pub(crate) struct CommandChannel {
    mails: Sender<LinkCommand>,
    eventfd: Arc<OwnedFd>,
}

/// The receiving end.
pub(crate) struct CommandInbox {
    mails: Receiver<LinkCommand>,
    eventfd: Arc<OwnedFd>,
}

/// Both ends of a box. What is sent wakes who polls the eventfd.
pub(crate) fn new_channel() -> io::Result<(CommandChannel, CommandInbox)> {
    let (sender, receiver) = mpsc::channel();
    let eventfd = Arc::new(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?);
    Ok((
        CommandChannel {
            mails: sender,
            eventfd: Arc::clone(&eventfd),
        },
        CommandInbox {
            mails: receiver,
            eventfd,
        },
    ))
}

impl CommandChannel {
    /// A direction that has ended needs no mail.
    pub(crate) fn post_command(&self, mail: LinkCommand) {
        if self.mails.send(mail).is_ok() {
            let _ = rustix::io::write(&self.eventfd, &1_u64.to_ne_bytes());
        }
    }
}

impl CommandInbox {
    /// Readable while there may be mail.
    pub(crate) fn event_fd(&self) -> &OwnedFd {
        &self.eventfd
    }

    /// All that has come.
    pub(crate) fn take_commands(&self) -> impl Iterator<Item = LinkCommand> {
        let _ = rustix::io::read(&self.eventfd, &mut [0; 8]);
        self.mails.try_iter()
    }
}
