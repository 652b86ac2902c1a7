//! Accepting, joining and stopping.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle, available_parallelism};
use std::time::{Duration, Instant};

use fullpipe_control::{
    AddressPrefix, ClientPlaces, PeerTls, PendingClients, PendingPlace, RefusalCounts,
    RefusedConnections, TlsError, canonical_address, is_admitted, single_threaded_runtime,
};
use fullpipe_sys::start_thread;
use fullpipe_units::Span;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{LocalSet, spawn_local, unconstrained, yield_now};
use tokio::time::{interval, sleep, timeout};

use crate::far::FarSettings;
use crate::leg::RelaySocket;
use crate::near::{FarConnection, FarConnectionPool};
use crate::options::{RelayError, RelayEvent, RelayOptions, RelayRole};
use crate::pipes::{MAX_PIPES, PipePool};
use crate::quotas::{ClientQuotas, DISPLACED, MAX_PENDING, ReservedRoom};
use crate::rules::TargetAddress;
use crate::sockets::{
    CONNECT_DEADLINE, connect_target, listen_for_clients, prepare_socket, raise_descriptors,
    unless_reset,
};
use crate::worker::{ConnectionRole, RelayWorker, Sides, UnjoinedPair, WorkerInbox};

/// Time between two checks for an interrupt.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Time after a failure to accept, for example because there are no descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Clients that are accepted before others go on, whose handshakes take ten times as long: where
/// thousands have come, the last one waits for few of those.
const ACCEPTED_AT_ONCE: usize = 1024;

/// Time between two reports that no connection can be accepted.
const REPORT_INTERVAL: Duration = Duration::from_mins(1);

/// Callers of one address that wait for room, at most.
const MAX_WAITING_OF_ONE: usize = 256;

/// Reason for which a caller of a far relay is not served.
const NO_PLACE: &str = "too many callers have not yet proved who they are, or wait for room";

/// Relays connections until `interrupt` is set. Then it stops listening, gives connections the time
/// of the options to end by themselves, and resets the rest. `report` is called with each event, on
/// this thread.
///
/// # Errors
/// Fails if it cannot listen, may open too few files, or has no threads.
pub fn relay_connections(
    options: &RelayOptions,
    interrupt: &AtomicBool,
    report: &mut dyn FnMut(RelayEvent),
) -> Result<(), RelayError> {
    raise_descriptors(options)?;
    let mut reporter = EventReporter::new(report);
    let (events, mut received) = unbounded_channel();
    let workers = WorkerThreads::start_workers(&events, options.interval)?;
    let runtime = single_threaded_runtime().map_err(RelayError::from_io("the runtime"))?;
    let served = LocalSet::new().block_on(&runtime, async {
        let relay = Rc::new(RelayServer::new(options, &workers, events)?);
        let listener = listen_for_clients(options)?;
        let address = listener
            .local_addr()
            .map_err(RelayError::from_io("getsockname"))?;
        reporter.report_event(RelayEvent::Listening(address), Instant::now());
        if let RelayPart::OfClients(onward, ..) = &relay.part
            && let NextHop::Near(pool, _) = &**onward
        {
            pool.start_calls();
        }
        spawn_local(unconstrained(Rc::clone(&relay).accept_clients(listener)));
        report_until(interrupt, &mut received, &mut reporter).await;
        Ok(())
    });
    // What the runtime holds is not joined yet: it is reset. No task waits for names that are being
    // resolved.
    runtime.shutdown_background();
    if served.is_ok() {
        workers.stop_workers(options.drain, &mut received, &mut reporter);
    }
    served
}

async fn report_until(
    interrupt: &AtomicBool,
    events: &mut UnboundedReceiver<RelayEvent>,
    reporter: &mut EventReporter<'_>,
) {
    let mut ticks = interval(POLL_INTERVAL);
    while !interrupt.load(Ordering::Relaxed) {
        tokio::select! {
            event = events.recv() => event.into_iter().for_each(|event| reporter.report_event(event, Instant::now())),
            _ = ticks.tick() => {}
        }
        reporter.report_due(Instant::now());
    }
}

/// Passes events on, except that of those which anybody can cause in any number most are counted.
struct EventReporter<'r> {
    report: &'r mut dyn FnMut(RelayEvent),
    refusals: RefusalCounts,
    /// Time of the last report that no connection can be accepted.
    not_accepting: Option<Instant>,
}

impl<'r> EventReporter<'r> {
    fn new(report: &'r mut dyn FnMut(RelayEvent)) -> Self {
        Self {
            report,
            refusals: RefusalCounts::default(),
            not_accepting: None,
        }
    }

    fn report_received(&mut self, events: &mut UnboundedReceiver<RelayEvent>) {
        while let Ok(event) = events.try_recv() {
            self.report_event(event, Instant::now());
        }
    }

    fn report_event(&mut self, event: RelayEvent, now: Instant) {
        let is_due = match &event {
            RelayEvent::Rejected(RefusedConnections { client, why, .. }) => {
                self.refusals.is_first(*client, why, now)
            }
            RelayEvent::NotRelayed { client, why } => self.refusals.is_first(client.ip(), why, now),
            RelayEvent::NotAccepting { .. } => {
                let is_due = self
                    .not_accepting
                    .is_none_or(|last| now.saturating_duration_since(last) >= REPORT_INTERVAL);
                self.not_accepting = if is_due {
                    Some(now)
                } else {
                    self.not_accepting
                };
                is_due
            }
            _ => true,
        };
        if is_due {
            (self.report)(event);
        }
    }

    /// Reports what was counted, if it is time.
    fn report_due(&mut self, now: Instant) {
        self.refusals
            .take_due(now)
            .into_iter()
            .map(RelayEvent::Rejected)
            .for_each(&mut *self.report);
    }

    /// Reports what was counted.
    fn report_all(&mut self, now: Instant) {
        self.refusals
            .take_all(now)
            .into_iter()
            .map(RelayEvent::Rejected)
            .for_each(&mut *self.report);
    }
}

/// The part of a relay, with what it needs.
enum RelayPart {
    /// Clients call it, and go on in this way.
    OfClients(Rc<NextHop>, Arc<ClientPlaces>, PendingClients),
    /// Near relays call it.
    OfNearRelays(Rc<FarSettings>, PendingClients),
}

impl RelayPart {
    fn from_options(
        options: &RelayOptions,
        events: &UnboundedSender<RelayEvent>,
    ) -> Result<Self, RelayError> {
        let onward = match options.role.clone() {
            RelayRole::Alone { to } => NextHop::Alone(to),
            RelayRole::Near {
                to,
                via,
                key,
                plain,
                compress,
                pool,
            } => {
                let tls = tls_unless(plain)?;
                let pool = FarConnectionPool::new(via, key, tls, compress, pool, events.clone());
                NextHop::Near(pool, to)
            }
            RelayRole::Far {
                targets,
                key,
                plain,
            } => {
                let tls = tls_unless(plain)?;
                let pending = PendingClients::new(MAX_PENDING, MAX_WAITING_OF_ONE);
                let far = FarSettings { targets, key, tls };
                return Ok(Self::OfNearRelays(Rc::new(far), pending));
            }
        };
        let places = ClientPlaces::with_waiting(
            options.max_connections,
            options.max_connections_per_address,
        );
        // There are as many as connections.
        let silent = PendingClients::new(usize::MAX, 0);
        Ok(Self::OfClients(Rc::new(onward), places, silent))
    }
}

fn tls_unless(plain: bool) -> Result<Option<PeerTls>, TlsError> {
    (!plain).then(PeerTls::new).transpose()
}

/// The way of a connection from here.
enum NextHop {
    Alone(TargetAddress),
    Near(Rc<FarConnectionPool>, TargetAddress),
}

struct RelayServer {
    part: RelayPart,
    allow: Vec<AddressPrefix>,
    inboxes: Vec<Arc<WorkerInbox>>,
    permits: Arc<Semaphore>,
    reserved: ReservedRoom,
    events: UnboundedSender<RelayEvent>,
}

impl RelayServer {
    fn new(
        options: &RelayOptions,
        workers: &WorkerThreads,
        events: UnboundedSender<RelayEvent>,
    ) -> Result<Self, RelayError> {
        Ok(Self {
            part: RelayPart::from_options(options, &events)?,
            allow: options.allow.clone(),
            inboxes: workers.inboxes.clone(),
            permits: Arc::new(Semaphore::new(options.max_connections as usize)),
            reserved: ReservedRoom::default(),
            events,
        })
    }

    /// Accepts clients. At the limit of connections, one that has sent nothing gives way; where
    /// there is none, those that follow wait until one ends. Callers of a far relay count only once
    /// they have proved themselves.
    async fn accept_clients(self: Rc<Self>, listener: TcpListener) {
        for accepted in 1_usize.. {
            match listener.accept().await {
                Ok((stream, client)) => {
                    self.admit_client(stream, canonical_address(client)).await;
                    // Who has lost its place closes its socket before the next one comes.
                    let is_full = matches!(&self.part, RelayPart::OfNearRelays(_, pending) if pending.is_full());
                    if is_full || accepted.is_multiple_of(ACCEPTED_AT_ONCE) {
                        yield_now().await;
                    }
                }
                Err(error) => {
                    let _ = self.events.send(RelayEvent::NotAccepting {
                        why: error.to_string(),
                    });
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    async fn admit_client(self: &Rc<Self>, stream: TcpStream, client: SocketAddr) {
        if prepare_socket(&stream).is_err() {
            return;
        }
        if !is_admitted(client.ip(), &self.allow, &[]) {
            return self.reject_client(client, "its address is not allowed to connect");
        }
        let relay = Rc::clone(self);
        match &self.part {
            RelayPart::OfClients(onward, places, silent) => {
                let Ok(place) = places.take_besides(client.ip(), silent.places_taken()) else {
                    return self.reject_client(
                        client,
                        "its address has as many connections as one may have",
                    );
                };
                let (permit, silent) = self.permit_of_client(client, silent).await;
                let quotas = ClientQuotas {
                    _permit: permit,
                    _place: Some(place),
                    silent,
                };
                let onward = Rc::clone(onward);
                self.start_connection(client, async move {
                    relay.join_client(&onward, stream, client, quotas).await
                });
            }
            RelayPart::OfNearRelays(far, pending) => {
                let Some(place) = pending.admit_client(client.ip(), Instant::now()) else {
                    return self.reject_client(client, NO_PLACE);
                };
                let far = Rc::clone(far);
                self.start_connection(client, async move {
                    relay.answer_near_relay(&far, stream, client, place).await
                });
            }
        }
    }

    /// Returns both sides of the connection of a client; `None` if it has lost its place.
    async fn join_client(
        &self,
        onward: &NextHop,
        stream: TcpStream,
        client: SocketAddr,
        mut quotas: ClientQuotas,
    ) -> io::Result<Option<(Sides, ClientQuotas)>> {
        let connecting = self.connect_sides(onward, stream, client.ip());
        let Some(sides) = quotas.unless_displaced(connecting).await else {
            self.reject_client(client, DISPLACED);
            return Ok(None);
        };
        Ok(Some((sides?, quotas)))
    }

    /// Waits until there is room for a connection of a client, and makes it where one that has sent
    /// nothing can give way. Returns the client's share of all connections, and its place among
    /// those that have sent nothing.
    async fn permit_of_client(
        &self,
        client: SocketAddr,
        silent: &PendingClients,
    ) -> (Option<OwnedSemaphorePermit>, Option<PendingPlace>) {
        let is_full = self.permits.available_permits() == 0;
        let place = silent.admit_expecting(client.ip(), Instant::now(), is_full, &|_| 0);
        if is_full && place.is_some() {
            self.inboxes.iter().for_each(|inbox| inbox.note_displaced());
        }
        let permit = Arc::clone(&self.permits).acquire_owned().await.ok();
        let place = place.or_else(|| silent.admit_client(client.ip(), Instant::now()));
        (permit, place)
    }

    fn reject_client(&self, client: SocketAddr, why: &'static str) {
        let refused = RefusedConnections::of_one(client.ip(), why);
        let _ = self.events.send(RelayEvent::Rejected(refused));
    }

    /// Hands a connection over once it is `joined`.
    fn start_connection(
        self: &Rc<Self>,
        client: SocketAddr,
        joined: impl Future<Output = io::Result<Option<(Sides, ClientQuotas)>>> + 'static,
    ) {
        let relay = Rc::clone(self);
        spawn_local(async move {
            match joined.await {
                Ok(Some((sides, quotas))) => relay.hand_over(sides, client, quotas),
                Ok(None) => {}
                Err(error) => {
                    let _ = relay.events.send(RelayEvent::NotRelayed {
                        client,
                        why: error.to_string(),
                    });
                }
            }
        });
    }

    /// Returns both sides of the connection of a client.
    async fn connect_sides(
        &self,
        onward: &NextHop,
        stream: TcpStream,
        client: IpAddr,
    ) -> io::Result<Sides> {
        let (to, target, joint) = match onward {
            NextHop::Alone(to) => {
                let reached = async {
                    connect_target(to, stream.local_addr().ok())
                        .await
                        .map_err(|error| {
                            io::Error::other(format!("the target {to} cannot be reached: {error}"))
                        })
                };
                let target = plain_socket(unless_reset(&stream, reached).await?)?;
                (to, target, ConnectionRole::Alone)
            }
            NextHop::Near(pool, to) => {
                let FarConnection { peer, compress, .. } =
                    unless_reset(&stream, self.request_target(pool, client, to)).await?;
                let (far, tls) = peer.control.into_records()?;
                let target = RelaySocket::new(far.into_std()?, tls);
                (to, target, ConnectionRole::Near { compress })
            }
        };
        Ok(Sides {
            client: plain_socket(stream)?,
            target,
            whither: to.to_string(),
            joint,
        })
    }

    /// Asks the far relay for a target, for a client at this address.
    async fn request_target(
        &self,
        pool: &Rc<FarConnectionPool>,
        client: IpAddr,
        to: &TargetAddress,
    ) -> io::Result<FarConnection> {
        // Each is asked, so that none says later what is known now.
        let unanswered = self.inboxes.iter().filter(|inbox| inbox.take_unanswered());
        if unanswered.count() > 0 {
            pool.drop_idle();
        }
        pool.request_target(client, to).await.map_err(|error| {
            io::Error::other(format!(
                "the far relay {} cannot be used: {error}",
                pool.via
            ))
        })
    }

    /// Returns both sides of the connection of a near relay; `None` if it has lost its place, or
    /// wants nothing.
    async fn answer_near_relay(
        &self,
        far: &FarSettings,
        stream: TcpStream,
        client: SocketAddr,
        mut place: PendingPlace,
    ) -> io::Result<Option<(Sides, ClientQuotas)>> {
        let Some(peer) = far.accept_caller(stream, &mut place).await? else {
            self.reject_client(client, NO_PLACE);
            return Ok(None);
        };
        let in_reserve = Arc::clone(&self.permits).try_acquire_owned().ok();
        let waiting = if in_reserve.is_some() {
            None
        } else {
            place.mark_proven()?;
            Some(place)
        };
        let reserved = self.reserved.add_connection(in_reserve);
        let mut permit = None;
        let room = async {
            permit = match reserved.take_room() {
                Some(room) => Some(room),
                None => Some(self.connection_permit().await?),
            };
            Ok(())
        };
        let Some((peer, request, target)) = far.serve_request(peer, room).await? else {
            return Ok(None);
        };
        drop(waiting);
        let quotas = ClientQuotas {
            _permit: permit,
            ..ClientQuotas::default()
        };
        let (near, tls) = peer.control.into_records()?;
        let client = RelaySocket::new(near.into_std()?, tls);
        let joint = ConnectionRole::Far {
            compress: request.compress,
        };
        Ok(Some((
            Sides {
                client,
                target: plain_socket(target)?,
                whither: request.target.to_string(),
                joint,
            },
            quotas,
        )))
    }

    /// Waits until there is room for a connection.
    ///
    /// # Errors
    /// Fails at the deadline.
    async fn connection_permit(&self) -> io::Result<OwnedSemaphorePermit> {
        timeout(CONNECT_DEADLINE, Arc::clone(&self.permits).acquire_owned())
            .await
            .map_err(|_| io::Error::other("as many connections as permitted are open"))?
            .map_err(io::Error::other)
    }

    /// Gives a connection to the worker with the fewest.
    fn hand_over(&self, sides: Sides, who: SocketAddr, quotas: ClientQuotas) {
        let pair = UnjoinedPair { sides, who, quotas };
        if let Some(inbox) = self
            .inboxes
            .iter()
            .min_by_key(|inbox| inbox.connection_count())
        {
            inbox.add_connection(pair);
        }
    }
}

fn plain_socket(stream: TcpStream) -> io::Result<RelaySocket> {
    stream
        .into_std()
        .map(|stream| RelaySocket::new(stream, None))
}

/// The threads that move data.
struct WorkerThreads {
    inboxes: Vec<Arc<WorkerInbox>>,
    threads: Vec<JoinHandle<io::Result<()>>>,
}

/// Threads of a relay that cannot start end, too.
impl Drop for WorkerThreads {
    fn drop(&mut self) {
        self.inboxes
            .iter()
            .for_each(|inbox| inbox.stop_at(Instant::now()));
    }
}

impl WorkerThreads {
    fn start_workers(
        events: &UnboundedSender<RelayEvent>,
        interval: Option<Span>,
    ) -> Result<Self, RelayError> {
        let failed = RelayError::from_io("starting a thread for data");
        let count = available_parallelism().map_or(1, usize::from);
        let mut workers = Self {
            inboxes: Vec::new(),
            threads: Vec::new(),
        };
        for _ in 0..count {
            let inbox = Arc::new(WorkerInbox::new().map_err(&failed)?);
            let pipes = PipePool::new(MAX_PIPES.div_ceil(count));
            let mut worker = RelayWorker::new(Arc::clone(&inbox), events.clone(), pipes, interval)
                .map_err(&failed)?;
            let thread = start_thread("relay", move || worker.run_worker());
            workers.threads.push(thread.map_err(&failed)?);
            workers.inboxes.push(inbox);
        }
        Ok(workers)
    }

    /// Waits for the workers, which reset at the deadline what is left, and reports what ends
    /// meanwhile.
    fn stop_workers(
        self,
        drain: Span,
        events: &mut UnboundedReceiver<RelayEvent>,
        reporter: &mut EventReporter<'_>,
    ) {
        let connections = self
            .inboxes
            .iter()
            .map(|inbox| inbox.connection_count() as u32)
            .sum();
        reporter.report_event(
            RelayEvent::Stopping {
                connections,
                deadline: drain,
            },
            Instant::now(),
        );
        let deadline = Instant::now() + Duration::from(drain);
        self.inboxes
            .iter()
            .for_each(|inbox| inbox.stop_at(deadline));
        while !self.threads.iter().all(JoinHandle::is_finished) {
            thread::sleep(POLL_INTERVAL);
            reporter.report_received(events);
        }
        reporter.report_received(events);
        reporter.report_all(Instant::now());
    }
}

#[cfg(test)]
mod tests;
