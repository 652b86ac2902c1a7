//! The near relay: connections to the far one, made and authenticated before a client needs them.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use fullpipe_control::{AuthenticatedPeer, PeerTls};
use fullpipe_iperf::SharedKey;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::spawn_local;
use tokio::time::{sleep, timeout, timeout_at};

use crate::message::{PAD, TAKES_BLOCKS, TAKES_PADDING, TargetRequest};
use crate::options::RelayEvent;
use crate::quotas::MAX_PENDING;
use crate::rules::TargetAddress;
use crate::sockets::{CONNECT_DEADLINE, connect_target, timeout_error};
use crate::waiting::WaitingClients;
use crate::window::{HeldWindow, read_padding, send_padding};

/// Time between two attempts to reach the far relay.
const RETRY: Duration = Duration::from_secs(1);

/// Most calls of the far relay at once, so that a few near relays leave places free there. A call
/// takes three round trips: over 173 ms, 490 connections a second are made.
const MAX_CALLS: usize = MAX_PENDING / 4;

/// Calls at once that are always permitted. Over a short path they fill a processor, also where
/// other programs make each of them wait for it.
const MIN_CALLS: usize = MAX_CALLS / 4;

/// Time of a call ÷ that of the fastest one from which on more calls at once are no gain, as they
/// wait for each other at the processors of the relays.
const CROWDED: u32 = 2;

/// Time after which a far relay that had no place for a call is called again.
const AGAIN: Duration = Duration::from_millis(250);

/// Time between the padding of two connections, so that it takes little of a path: 0.4 Mbit/s each
/// way.
const PADDING_INTERVAL: Duration = Duration::from_secs(1);

/// Time without padding after it failed, for example because the path is too slow for it.
const PADDING_PAUSE: Duration = Duration::from_mins(1);

/// The connections to the far relay.
pub(crate) struct FarConnectionPool {
    pub via: TargetAddress,
    pub key: SharedKey,
    pub tls: Option<PeerTls>,
    pub events: UnboundedSender<RelayEvent>,
    /// Bytes are to be compressed if the far relay can do that, too.
    compress: bool,
    /// Connections that are to wait.
    size: usize,
    /// Connections that wait for a client; those with a window that has grown come first.
    idle: RefCell<VecDeque<FarConnection>>,
    /// The windows of those that wait are growing, one after the other.
    is_growing: Cell<bool>,
    /// Connections that are being made, or whose window is growing.
    coming: Cell<usize>,
    /// Clients that wait. None does while a connection is idle.
    waiting: RefCell<WaitingClients<io::Result<FarConnection>>>,
    /// Calls that may be made at once.
    call_limit: Cell<usize>,
    /// The time that the fastest call took of late.
    fastest_call: Cell<Duration>,
    /// The time of the last call that was answered.
    answered: Cell<Option<Instant>>,
    /// Reasons for which the far relay cannot be used, since it could.
    reported: RefCell<BTreeSet<String>>,
}

/// A connection to the far relay that can be used.
pub(crate) struct FarConnection {
    pub peer: AuthenticatedPeer,
    /// Bytes of both directions come in blocks.
    pub compress: bool,
    /// The window of the connection, once it has grown.
    window: Option<HeldWindow>,
}

impl FarConnectionPool {
    pub(crate) fn new(
        via: TargetAddress,
        key: SharedKey,
        tls: Option<PeerTls>,
        compress: bool,
        size: u16,
        events: UnboundedSender<RelayEvent>,
    ) -> Rc<Self> {
        Rc::new(Self {
            via,
            key,
            tls,
            events,
            compress,
            size: size.into(),
            idle: RefCell::default(),
            is_growing: Cell::default(),
            coming: Cell::default(),
            waiting: RefCell::default(),
            call_limit: Cell::new(MAX_CALLS),
            fastest_call: Cell::new(CONNECT_DEADLINE),
            answered: Cell::default(),
            reported: RefCell::default(),
        })
    }

    /// Calls the far relay for clients that wait, and until as many connections wait as are to. A
    /// connection is for whoever waits once it is there, not for the client for which it was made:
    /// however many clients an address has that say nothing, those of others wait for one call.
    pub(crate) fn start_calls(self: &Rc<Self>) {
        while self.coming.get() < self.call_limit.get()
            && self.idle.borrow().len() + self.coming.get()
                < self.size + self.waiting.borrow().count()
        {
            self.coming.update(|coming| coming + 1);
            let pool = Rc::clone(self);
            spawn_local(async move {
                match pool.call_patiently().await {
                    Ok(ready) => {
                        pool.reported.borrow_mut().clear();
                        pool.keep_ready(ready);
                    }
                    Err(error) => pool.pass_failure(error).await,
                }
                pool.coming.update(|coming| coming - 1);
                pool.start_calls();
                pool.grow_windows();
            });
        }
    }

    /// Gives a connection to the client whose turn it is; if none waits, it is idle.
    fn keep_ready(&self, ready: FarConnection) {
        if let Some(Ok(ready)) = self.waiting.borrow_mut().hand_out(Ok(ready)) {
            let mut idle = self.idle.borrow_mut();
            match ready.window {
                // The client for which it was made has gone.
                _ if idle.len() >= self.size => {}
                Some(_) => idle.push_front(ready),
                None => idle.push_back(ready),
            }
        }
    }

    /// Lets the client whose turn it is know why a call failed; if none waits, reports it and waits
    /// until the next call.
    async fn pass_failure(&self, error: io::Error) {
        let unheard = self.waiting.borrow_mut().hand_out(Err(error));
        if let Some(Err(error)) = unheard {
            self.report_failure(&error);
            sleep(RETRY).await;
        }
    }

    /// Lets the windows of connections that wait grow, one after the other, until all have grown.
    fn grow_windows(self: &Rc<Self>) {
        if self.is_growing.replace(true) {
            return;
        }
        let pool = Rc::clone(self);
        spawn_local(async move {
            while let Some(ready) = pool.take_small() {
                pool.coming.update(|coming| coming + 1);
                let grown = timeout(CONNECT_DEADLINE, grow_window(ready))
                    .await
                    .unwrap_or_else(|_| Err(timeout_error(CONNECT_DEADLINE)));
                pool.coming.update(|coming| coming - 1);
                match grown {
                    Ok(ready) => {
                        pool.keep_ready(ready);
                        sleep(PADDING_INTERVAL).await;
                    }
                    Err(error) => {
                        tracing::info!(%error, "no padding for a while");
                        pool.start_calls();
                        sleep(PADDING_PAUSE).await;
                    }
                }
            }
            pool.is_growing.set(false);
        });
    }

    /// Returns a connection that waited and whose window has not grown.
    fn take_small(&self) -> Option<FarConnection> {
        let mut idle = self.idle.borrow_mut();
        let place = idle.iter().position(|ready| ready.window.is_none())?;
        idle.remove(place)
    }

    /// Reports that the far relay cannot be used: once for each reason until it can, however many
    /// connections wait.
    fn report_failure(&self, error: &io::Error) {
        let why = format!("the far relay {} cannot be used: {error}", self.via);
        if self.reported.borrow_mut().insert(why.clone()) {
            let _ = self.events.send(RelayEvent::NoPeer { why });
        }
    }

    /// Calls the far relay, and again if it closes the connection although it has answered before:
    /// others took all of its places for callers.
    ///
    /// # Errors
    /// Fails if it does not answer within the deadline.
    async fn call_patiently(&self) -> io::Result<FarConnection> {
        let began = Instant::now();
        loop {
            match self.call_far().await {
                Err(error) if self.has_no_place(&error) && began.elapsed() < CONNECT_DEADLINE => {
                    sleep(AGAIN).await;
                }
                called => return called,
            }
        }
    }

    fn has_no_place(&self, error: &io::Error) -> bool {
        let kinds = [
            io::ErrorKind::ConnectionReset,
            io::ErrorKind::BrokenPipe,
            io::ErrorKind::UnexpectedEof,
        ];
        self.answered.get().is_some() && kinds.contains(&error.kind())
    }

    /// Calls the far relay.
    ///
    /// # Errors
    /// Fails if it does not answer within the deadline.
    async fn call_far(&self) -> io::Result<FarConnection> {
        let began = Instant::now();
        let called = async { self.prove_key(connect_target(&self.via, None).await?).await };
        let called = timeout(CONNECT_DEADLINE, called).await;
        let ready = called.unwrap_or_else(|_| Err(timeout_error(CONNECT_DEADLINE)))?;
        self.answered.set(Some(Instant::now()));
        self.adapt_call_limit(began.elapsed());
        Ok(ready)
    }

    /// Permits one call more at once if one `took` hardly longer than the fastest, and an eighth
    /// less if not: those that wait for each other keep everything else of a relay waiting, too.
    /// The fastest time grows slowly, as that of a path may.
    fn adapt_call_limit(&self, took: Duration) {
        let fastest = self.fastest_call.get();
        let fastest = took.min(fastest + fastest / 64);
        self.fastest_call.set(fastest);
        self.call_limit.update(|limit| {
            if took < CROWDED * fastest {
                (limit + 1).min(MAX_CALLS)
            } else {
                (limit - limit / 8).max(MIN_CALLS)
            }
        });
    }

    /// Waits for a connection, in turn with clients of other addresses.
    ///
    /// # Errors
    /// Fails if a call does, and with `TimedOut` once none has been answered for `limit`.
    async fn wait_for_call(
        self: &Rc<Self>,
        client: IpAddr,
        limit: Duration,
    ) -> io::Result<FarConnection> {
        let began = Instant::now();
        let mut called = self.waiting.borrow_mut().add_client(client);
        self.start_calls();
        loop {
            let deadline = self.call_deadline(began, limit);
            match timeout_at(deadline.into(), &mut called).await {
                Ok(called) => return called.map_err(io::Error::other)?,
                Err(_) if self.call_deadline(began, limit) <= deadline => {
                    return Err(timeout_error(limit));
                }
                Err(_) => {}
            }
        }
    }

    /// Returns the time at which a client that has waited since then is given up: later if calls
    /// have been answered since.
    fn call_deadline(&self, began: Instant, limit: Duration) -> Instant {
        self.answered
            .get()
            .map_or(began, |answered| answered.max(began))
            + limit
    }

    async fn prove_key(&self, stream: TcpStream) -> io::Result<FarConnection> {
        let mut peer =
            AuthenticatedPeer::connect_peer(stream, &self.key, self.tls.as_ref()).await?;
        let compress = self.compress && request_abilities(&mut peer).await? & TAKES_BLOCKS != 0;
        Ok(FarConnection {
            peer,
            compress,
            window: None,
        })
    }

    /// Returns a connection to the far relay that has been asked for `target`, for a client at this
    /// address: one that waited, or a new one.
    ///
    /// # Errors
    /// Fails if the far relay cannot be reached, or does not have the key.
    pub(crate) async fn request_target(
        self: &Rc<Self>,
        client: IpAddr,
        target: &TargetAddress,
    ) -> io::Result<FarConnection> {
        let waited = self.take_idle();
        self.start_calls();
        let mut ready = match waited {
            Some(ready) => ready,
            None => self.wait_for_call(client, CONNECT_DEADLINE).await?,
        };
        let text = TargetRequest {
            target: target.clone(),
            compress: ready.compress,
        }
        .to_bytes();
        let length = u8::try_from(text.len())
            .map_err(|_| io::Error::other("the target's name is too long"))?;
        let request = [&[length][..], &text, &ready.peer.tag_text(&text)].concat();
        ready.peer.control.send_bytes(&request).await?;
        if let Some(window) = ready.window.take() {
            window.release_window(&ready.peer);
        }
        Ok(ready)
    }

    /// Closes the connections that wait: the far relay does not answer on one of them.
    pub(crate) fn drop_idle(&self) {
        self.idle.borrow_mut().clear();
    }

    /// Returns a connection that waited and has not gone: the far relay sends nothing of its own
    /// accord.
    fn take_idle(&self) -> Option<FarConnection> {
        let mut idle = self.idle.borrow_mut();
        std::iter::from_fn(|| idle.pop_front()).find(|ready| {
            let read = ready.peer.control.tcp_stream().try_read(&mut [0; 1]);
            read.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
        })
    }
}

/// Asks the far relay for what it can do.
async fn request_abilities(peer: &mut AuthenticatedPeer) -> io::Result<u8> {
    let question = [&[0][..], &peer.tag_text(&[])].concat();
    peer.control.send_bytes(&question).await?;
    let unanswered =
        |_| io::Error::other("it does not answer what it can do: it is of an earlier version");
    peer.control.read_u8().await.map_err(unanswered)
}

/// Returns the connection once its window has grown, at both relays; as it is, if the far relay
/// takes no padding.
async fn grow_window(mut ready: FarConnection) -> io::Result<FarConnection> {
    let peer = &mut ready.peer;
    if request_abilities(peer).await? & TAKES_PADDING != 0 {
        let length = PAD.len() as u8;
        let request = [&[length][..], PAD, &peer.tag_text(PAD)].concat();
        peer.control.send_bytes(&request).await?;
        send_padding(peer).await?;
        read_padding(peer).await?;
    }
    ready.window = Some(HeldWindow::hold_window(&ready.peer));
    Ok(ready)
}

#[cfg(test)]
mod tests;
