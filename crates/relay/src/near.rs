//! The near relay: connections to the far one, made and authenticated before a client needs them.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use fullpipe_control::{Peer, PeerTls};
use fullpipe_iperf::Key;
use tokio::sync::Semaphore;
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::spawn_local;
use tokio::time::{sleep, timeout};

use crate::message::TargetRequest;
use crate::options::RelayEvent;
use crate::rules::Target;
use crate::sockets::{CONNECT_DEADLINE, late, reach};

/// Time between two attempts to reach the far relay.
const RETRY: Duration = Duration::from_secs(1);

/// Calls of the far relay at once: fewer than it permits of one address.
const CALLS: usize = 64;

/// The connections to the far relay.
pub(crate) struct Pool {
    pub(crate) via: Target,
    pub(crate) key: Key,
    pub(crate) tls: Option<PeerTls>,
    pub(crate) events: UnboundedSender<RelayEvent>,
    /// Connections that are to wait.
    pub(crate) size: usize,
    idle: RefCell<VecDeque<Peer>>,
    /// Connections that are being made.
    coming: Cell<usize>,
    /// Calls at once, so that the far relay does not take a burst of clients for an attack.
    calls: Semaphore,
}

impl Pool {
    pub(crate) fn new(
        via: Target,
        key: Key,
        tls: Option<PeerTls>,
        size: u16,
        events: UnboundedSender<RelayEvent>,
    ) -> Rc<Self> {
        let (idle, coming, calls) = (RefCell::default(), Cell::default(), Semaphore::new(CALLS));
        Rc::new(Self { via, key, tls, events, size: size.into(), idle, coming, calls })
    }

    /// Makes connections until as many wait as are to wait.
    pub(crate) fn fill(self: &Rc<Self>) {
        while self.idle.borrow().len() + self.coming.get() < self.size {
            self.coming.set(self.coming.get() + 1);
            let pool = Rc::clone(self);
            spawn_local(async move {
                let peer = pool.call_until_answered().await;
                pool.idle.borrow_mut().push_back(peer);
                pool.coming.set(pool.coming.get() - 1);
            });
        }
    }

    async fn call_until_answered(&self) -> Peer {
        let mut is_reported = false;
        loop {
            match self.call().await {
                Ok(peer) => return peer,
                Err(error) if !is_reported => {
                    is_reported = true;
                    let why = format!("the far relay {} cannot be used: {error}", self.via);
                    let _ = self.events.send(RelayEvent::NoPeer { why });
                }
                Err(_) => {}
            }
            sleep(RETRY).await;
        }
    }

    async fn call(&self) -> io::Result<Peer> {
        let _call = self.calls.acquire().await.map_err(io::Error::other)?;
        let stream = reach(&self.via).await?;
        let called = timeout(CONNECT_DEADLINE, Peer::call(stream, &self.key, self.tls.as_ref())).await;
        called.unwrap_or_else(|_| Err(late(CONNECT_DEADLINE)))
    }

    /// Returns a connection to the far relay that has been asked for `target`: one that waited, or a new one.
    ///
    /// # Errors
    /// Fails if the far relay cannot be reached, or does not have the key.
    pub(crate) async fn ask(self: &Rc<Self>, target: &Target) -> io::Result<Peer> {
        let waited = self.take();
        self.fill();
        let mut peer = match waited {
            Some(peer) => peer,
            None => self.call().await?,
        };
        let text = TargetRequest { target: target.clone() }.to_bytes();
        let length = u8::try_from(text.len()).map_err(|_| io::Error::other("the target's name is too long"))?;
        let request = [&[length][..], &text, &peer.tag(&text)].concat();
        peer.control.send(&request).await?;
        Ok(peer)
    }

    /// Returns a connection that waited and has not gone: the far relay sends nothing of its own accord.
    fn take(&self) -> Option<Peer> {
        let mut idle = self.idle.borrow_mut();
        std::iter::from_fn(|| idle.pop_front()).find(|peer| {
            let read = peer.control.tcp().try_read(&mut [0; 1]);
            read.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
        })
    }
}
