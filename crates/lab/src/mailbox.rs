use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};

use fullpipe_record::PathChange;
use rustix::event::{EventfdFlags, eventfd};

use crate::capture::Tap;
use crate::packet::Packet;

/// What a direction of the link is told from outside of its device.
pub(crate) enum Mail {
    /// A router's answer to a packet of the other direction.
    Reply(Packet),
    /// The path is different from now on.
    Change(PathChange),
    /// What passes is to be captured from now on, or no longer.
    Capture(Option<Tap>),
}

/// Where to send it.
#[derive(Clone)]
pub(crate) struct Mailbox {
    mails: Sender<Mail>,
    bell: Arc<OwnedFd>,
}

/// Where it arrives.
pub(crate) struct Inbox {
    mails: Receiver<Mail>,
    bell: Arc<OwnedFd>,
}

/// Both ends of a box. What is sent wakes who polls the bell.
pub(crate) fn mailbox() -> io::Result<(Mailbox, Inbox)> {
    let (sender, receiver) = mpsc::channel();
    let bell = Arc::new(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?);
    Ok((Mailbox { mails: sender, bell: Arc::clone(&bell) }, Inbox { mails: receiver, bell }))
}

impl Mailbox {
    /// A direction that has ended needs no mail.
    pub(crate) fn post(&self, mail: Mail) {
        if self.mails.send(mail).is_ok() {
            let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
        }
    }
}

impl Inbox {
    /// Readable while there may be mail.
    pub(crate) fn bell(&self) -> &OwnedFd {
        &self.bell
    }

    /// All that has come.
    pub(crate) fn take(&self) -> impl Iterator<Item = Mail> {
        let _ = rustix::io::read(&self.bell, &mut [0; 8]);
        self.mails.try_iter()
    }
}
