//! A thread that moves the bytes of many connections.

use std::collections::VecDeque;
use std::io;
use std::mem::replace;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use fullpipe_control::{QUEUE_INTERVAL, QueueBudget, QueueExcess, QueueShare, RefusedConnections};
use fullpipe_record::{
    RelayCompression, RelayEnding, RelayJoined, RelayProgress, RelayStretch, RelayedConnection,
    TcpInfo,
};
use fullpipe_sys::lock;
use fullpipe_units::{BitRate, ByteCount, Span, Time};
use rustix::event::epoll::{CreateFlags, Event, EventData, EventFlags, add, create, wait};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use tokio::sync::mpsc::UnboundedSender;

use crate::blocks::BlockReader;
use crate::direction::{DirectionBlocks, MoveResult, RelayDirection, WorkerBuffers};
use crate::ending::{EndingState, EndingStep, RelaySide};
use crate::followed::LastReport;
use crate::leg::RelaySocket;
use crate::message::TargetStatus;
use crate::options::RelayEvent;
use crate::packer::BlockPacker;
use crate::pipes::PipePool;
use crate::quotas::{ClientQuotas, DISPLACED};
use crate::sockets::{CONNECT_DEADLINE, disable_pacing};

/// Two sides that are to be joined.
pub(crate) struct UnjoinedPair {
    pub sides: Sides,
    pub who: SocketAddr,
    pub quotas: ClientQuotas,
}

/// Both sides of a connection.
pub(crate) struct Sides {
    pub client: RelaySocket,
    pub target: RelaySocket,
    pub whither: String,
    pub joint: ConnectionRole,
}

/// The part that a relay plays for a connection.
#[derive(Clone, Copy)]
pub(crate) enum ConnectionRole {
    /// Both sides are hosts.
    Alone,
    /// The target's side is a far relay. It begins with a status.
    Near { compress: bool },
    /// The client's side is a near relay.
    Far { compress: bool },
}

/// The connections of a worker, for those who hand them over.
pub(crate) struct WorkerInbox {
    pairs: Mutex<Vec<UnjoinedPair>>,
    wake: OwnedFd,
    /// No more come: what is left at the deadline is reset.
    deadline: OnceLock<Instant>,
    load: AtomicUsize,
    /// A far relay has not answered a request since this was last asked.
    is_unanswered: AtomicBool,
    /// A client that has sent nothing has lost its place since the worker last checked.
    has_displaced: AtomicBool,
}

impl ConnectionRole {
    /// Returns the directions from the client and from the target.
    fn new_directions(self) -> [RelayDirection; 2] {
        let [made, read] = match self {
            Self::Near { compress: true } | Self::Far { compress: true } => [
                DirectionBlocks::Made(BlockPacker::default()),
                DirectionBlocks::Read(BlockReader::default()),
            ],
            _ => [DirectionBlocks::None, DirectionBlocks::None],
        };
        match self {
            Self::Alone => [RelayDirection::default(), RelayDirection::default()],
            Self::Near { .. } => [
                RelayDirection::new(false, made),
                RelayDirection::new(true, read),
            ],
            Self::Far { .. } => [
                RelayDirection::new(false, read),
                RelayDirection::new(false, made),
            ],
        }
    }
}

/// Time in which the other side of a connection, of which one was reset, must take some of the
/// rest.
const LAST_BYTES: Duration = Duration::from_mins(2);

/// Time for the status of a far relay, which may wait for [`CONNECT_DEADLINE`] until it has room,
/// and then take as long for the target, and time for the path.
const STATUS_DEADLINE: Duration = Duration::from_secs(2 * CONNECT_DEADLINE.as_secs() + 5);

/// Time after which a side that acknowledges nothing counts as gone.
const SILENCE: Span = Span::from_secs(120);

/// Bytes that a target may send to a client that has sent nothing and is still taken for silent:
/// the greeting of a server that speaks first.
const GREETING: u64 = 64 << 10;

/// Time between two checks of connections that end, and of all of them.
const SHORT: Duration = Duration::from_millis(10);
const LONG: Duration = Duration::from_secs(5);

/// Connections of a worker up to which a new one is not paced where it stays within this host, and
/// so shares no path. Over loopback, one connection has two thirds of the rate under BBR, which
/// paces, and takes 1.7 times the processor time; but a hundred connections without pacing have so
/// much on the way that they lose a fifth.
const FEW: usize = 8;

/// Events that are taken at once.
const EVENTS: usize = 256;

/// The event of the inbox; the others are twice the slot, plus one for the target's side.
const WAKE: u64 = u64::MAX;

impl WorkerInbox {
    pub(crate) fn new() -> io::Result<Self> {
        let wake = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Self {
            pairs: Mutex::default(),
            wake,
            deadline: OnceLock::new(),
            load: AtomicUsize::new(0),
            is_unanswered: AtomicBool::new(false),
            has_displaced: AtomicBool::new(false),
        })
    }

    /// Returns the number of connections.
    pub(crate) fn connection_count(&self) -> usize {
        self.load.load(Ordering::Relaxed)
    }

    /// Returns true if a far relay has not answered a request since the last call.
    pub(crate) fn take_unanswered(&self) -> bool {
        self.is_unanswered.swap(false, Ordering::Relaxed)
    }

    /// Lets the worker end connections of clients that have lost their places.
    pub(crate) fn note_displaced(&self) {
        self.has_displaced.store(true, Ordering::Relaxed);
        self.wake_worker();
    }

    /// Hands a connection over.
    pub(crate) fn add_connection(&self, pair: UnjoinedPair) {
        self.load.fetch_add(1, Ordering::Relaxed);
        lock(&self.pairs).push(pair);
        self.wake_worker();
    }

    /// Lets the worker end once it has no connection left, and at the deadline.
    pub(crate) fn stop_at(&self, deadline: Instant) {
        // A relay stops once.
        let _ = self.deadline.set(deadline);
        self.wake_worker();
    }

    fn wake_worker(&self) {
        // The counter is full only if the worker is awake.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    fn take_connections(&self) -> Vec<UnjoinedPair> {
        let _ = rustix::io::read(&self.wake, &mut [0; 8]);
        std::mem::take(&mut *lock(&self.pairs))
    }

    fn stop_deadline(&self) -> Option<Instant> {
        self.deadline.get().copied()
    }
}

/// A connection that is under way.
struct RelayConnection {
    legs: [RelaySocket; 2],
    directions: [RelayDirection; 2],
    ending: EndingState,
    /// The connection stands in the queue of those that can go on.
    is_queued: bool,
    /// One side was reset after its FIN, and the other is waited for.
    resets: Option<LastBytes>,
    who: SocketAddr,
    whither: String,
    began: Instant,
    /// The last report, where an interval of reports was asked for.
    followed: Option<Box<LastReport>>,
    quotas: ClientQuotas,
    share: QueueShare,
}

/// The wait for the acknowledgement of the last bytes.
struct LastBytes {
    /// The side that was reset.
    side: RelaySide,
    until: Instant,
    /// Bytes that were not acknowledged when it was last extended.
    left: u64,
}

/// A worker.
pub(crate) struct RelayWorker {
    inbox: Arc<WorkerInbox>,
    events: UnboundedSender<RelayEvent>,
    epoll: OwnedFd,
    joined: Vec<Option<Box<RelayConnection>>>,
    free: Vec<usize>,
    queue: VecDeque<usize>,
    /// Connections that wait for last acknowledgements.
    resetting: Vec<usize>,
    shared: WorkerBuffers,
    sampled: Instant,
    /// Something was written since that may not be acknowledged.
    has_unsettled: bool,
    checked: Instant,
    /// Time between two reports of a connection, and the time of the last ones.
    interval: Option<Span>,
    reported: Instant,
}

impl RelayWorker {
    pub(crate) fn new(
        inbox: Arc<WorkerInbox>,
        events: UnboundedSender<RelayEvent>,
        pipes: PipePool,
        interval: Option<Span>,
    ) -> io::Result<Self> {
        let epoll = create(CreateFlags::CLOEXEC)?;
        add(
            &epoll,
            &inbox.wake,
            EventData::new_u64(WAKE),
            EventFlags::IN,
        )?;
        Ok(Self {
            inbox,
            events,
            epoll,
            joined: Vec::new(),
            free: Vec::new(),
            queue: VecDeque::new(),
            resetting: Vec::new(),
            shared: WorkerBuffers::new(pipes),
            sampled: Instant::now(),
            has_unsettled: false,
            checked: Instant::now(),
            interval,
            reported: Instant::now(),
        })
    }

    /// Moves bytes until the relay stops.
    ///
    /// # Errors
    /// Fails if the kernel does not report events any more.
    pub(crate) fn run_worker(&mut self) -> io::Result<()> {
        let mut events = Vec::with_capacity(EVENTS);
        loop {
            events.clear();
            match wait(
                &self.epoll,
                rustix::buffer::spare_capacity(&mut events),
                Timespec::try_from(self.poll_timeout()).ok().as_ref(),
            ) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            self.handle_events(&events);
            for _ in 0..self.queue.len() {
                if let Some(slot) = self.queue.pop_front() {
                    self.advance_connection(slot);
                }
            }
            self.finish_resets(Instant::now());
            self.take_samples();
            self.end_silent(Instant::now());
            self.report_progress();
            if self.has_stopped() {
                return Ok(());
            }
        }
    }

    fn poll_timeout(&self) -> Duration {
        match () {
            () if !self.queue.is_empty() => Duration::ZERO,
            () if !self.resetting.is_empty() || self.inbox.stop_deadline().is_some() => SHORT,
            () => {
                let longest = if self.has_unsettled {
                    QUEUE_INTERVAL
                } else {
                    LONG
                };
                longest.min(self.until_report().unwrap_or(LONG))
            }
        }
    }

    fn handle_events(&mut self, events: &[Event]) {
        for event in events {
            let (token, flags) = (event.data.u64(), event.flags);
            if token == WAKE {
                self.add_connections();
                self.end_displaced();
                continue;
            }
            let slot = (token >> 1) as usize;
            let Some(joined) = connection_at(&mut self.joined, slot) else {
                continue;
            };
            joined.legs[(token & 1) as usize].note_events(flags);
            self.enqueue_slot(slot);
        }
    }

    fn enqueue_slot(&mut self, slot: usize) {
        if let Some(joined) = connection_at(&mut self.joined, slot)
            && !replace(&mut joined.is_queued, true)
        {
            self.queue.push_back(slot);
        }
    }

    fn add_connections(&mut self) {
        for pair in self.inbox.take_connections() {
            self.add_connection(pair);
        }
    }

    fn add_connection(&mut self, pair: UnjoinedPair) {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.joined.push(None);
            self.joined.len() - 1
        });
        let mut joined = RelayConnection::new(pair);
        if self.connection_count() <= FEW {
            for leg in &joined.legs {
                disable_pacing(&leg.socket);
            }
        }
        let flags =
            EventFlags::IN | EventFlags::PRI | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        let watched = joined.legs.iter().zip(0..).all(|(leg, side)| {
            let token = EventData::new_u64((slot as u64) << 1 | side);
            add(&self.epoll, &leg.socket, token, flags).is_ok()
        });
        if joined.quotas.is_displaced() {
            // It has lost its place on the way here.
            self.inbox.has_displaced.store(true, Ordering::Relaxed);
        }
        self.joined[slot] = Some(Box::new(joined));
        self.divide_memory();
        if watched {
            self.enqueue_slot(slot);
        } else {
            self.end_connection(slot, RelayEnding::Stopped);
        }
    }

    /// Divides the memory for blocks among the connections that there are.
    fn divide_memory(&mut self) {
        self.shared.share_among(self.connection_count());
    }

    /// Returns the number of connections, with one that is being joined.
    fn connection_count(&self) -> usize {
        self.joined.len() - self.free.len()
    }

    /// Gives a connection its turn.
    fn advance_connection(&mut self, slot: usize) {
        let Some(joined) = connection_at(&mut self.joined, slot) else {
            return;
        };
        joined.is_queued = false;
        // A status of the far relay stands before what ends its connection.
        let mut again = joined.expects_status() && self.advance_direction(slot, RelaySide::Target);
        self.report_begin(slot);
        self.find_failures(slot);
        for side in RelaySide::BOTH {
            again |= self.advance_direction(slot, side);
        }
        if let Some(joined) = connection_at(&mut self.joined, slot) {
            self.has_unsettled |= joined.is_unsettled();
            if joined.directions[0].read > 0 || joined.directions[1].read > GREETING {
                joined.quotas.note_first_byte();
            }
        }
        if again {
            self.enqueue_slot(slot);
        }
    }

    /// Gives one direction its turn. Returns whether it could go on.
    fn advance_direction(&mut self, slot: usize, side: RelaySide) -> bool {
        let Some(joined) = connection_at(&mut self.joined, slot) else {
            return false;
        };
        if !joined.ending.is_moving(side) {
            return false;
        }
        let next = match joined.move_side_bytes(side, &mut self.shared) {
            MoveResult::Waits => return false,
            MoveResult::Again => return true,
            MoveResult::Ended => {
                joined.legs[side.other_side() as usize].shut_down();
                Ok(joined.ending.record_fin(side))
            }
            MoveResult::SourceFailed => Ok(joined.ending.record_failure(side, false)),
            MoveResult::Malformed => Err(RelayEnding::Malformed),
            MoveResult::DestinationFailed(error) => {
                let other = side.other_side();
                // The kernel says EPIPE if the FIN came before the reset, and ECONNRESET if not;
                // and EPIPE if somebody was told of the reset before.
                let has_closed = error.kind() == io::ErrorKind::BrokenPipe
                    && joined.legs[other as usize].has_closed();
                Ok(joined.ending.record_failure(other, has_closed))
            }
            MoveResult::Refused(TargetStatus::Forbidden) => Err(RelayEnding::Forbidden),
            MoveResult::Refused(_) => Err(RelayEnding::Unreachable),
        };
        match next {
            Ok(next) => self.carry_out(slot, next),
            Err(ending) => self.end_connection(slot, ending),
        }
        false
    }

    /// Deals with errors that epoll has reported: a read or a write finds them only where there is
    /// something to move. Those of a client wait for the far relay, which takes no bytes, and no
    /// reset, before it has connected.
    fn find_failures(&mut self, slot: usize) {
        for side in RelaySide::BOTH {
            let Some(joined) = connection_at(&mut self.joined, slot) else {
                return;
            };
            if side == RelaySide::Client && joined.expects_status() {
                continue;
            }
            if let Some(has_closed) = joined.legs[side as usize].take_failure() {
                let next = joined.ending.record_failure(side, has_closed);
                self.carry_out(slot, next);
            }
        }
    }

    /// Reports that a connection begins, where an interval of reports was asked for, once its
    /// target is connected.
    fn report_begin(&mut self, slot: usize) {
        let Some(joined) = connection_at(&mut self.joined, slot) else {
            return;
        };
        if self.interval.is_none() || joined.followed.is_some() || joined.expects_status() {
            return;
        }
        joined.followed = Some(Box::new(LastReport::from_sockets(&joined.legs)));
        let begun = RelayJoined {
            client: joined.who,
            target: joined.whither.clone(),
        };
        let _ = self.events.send(RelayEvent::Joined(begun));
    }

    fn carry_out(&mut self, slot: usize, next: EndingStep) {
        match next {
            EndingStep::Go => {}
            EndingStep::Close => {
                if let Some(joined) = &self.joined[slot] {
                    joined.legs.iter().for_each(RelaySocket::close_in_order);
                }
                self.end_connection(slot, RelayEnding::Closed);
            }
            EndingStep::Abort(side) => self.end_connection(slot, reset_by(side)),
            EndingStep::ResetOther(side) => {
                if let Some(joined) = &mut self.joined[slot]
                    && joined.resets.is_none()
                {
                    joined.resets = Some(LastBytes {
                        side,
                        until: Instant::now() + LAST_BYTES,
                        left: u64::MAX,
                    });
                    self.resetting.push(slot);
                }
            }
        }
    }

    /// Resets sides that have acknowledged everything, or long nothing more, whose other side was
    /// reset.
    fn finish_resets(&mut self, now: Instant) {
        for slot in std::mem::take(&mut self.resetting) {
            let Some(joined) = connection_at(&mut self.joined, slot) else {
                continue;
            };
            let Some(last) = &mut joined.resets else {
                continue;
            };
            let leg = &joined.legs[last.side.other_side() as usize];
            let info = leg.socket_info();
            let left = leg.unacknowledged_bytes(&info);
            if left < replace(&mut last.left, left) {
                last.until = now + LAST_BYTES;
            }
            if now >= last.until || info.is_acknowledged() {
                let ending = reset_by(last.side);
                self.end_connection(slot, ending);
            } else {
                self.resetting.push(slot);
            }
        }
    }

    /// Samples the connections, for those that lose packets without a queue, and ends those whose
    /// clients have too much in queues of the kernel.
    fn take_samples(&mut self) {
        if self.sampled.elapsed() < QUEUE_INTERVAL {
            return;
        }
        self.sampled = Instant::now();
        self.has_unsettled = false;
        for slot in 0..self.joined.len() {
            let Some(joined) = &mut self.joined[slot] else {
                continue;
            };
            let checked = joined.take_sample();
            self.has_unsettled |= joined.is_unsettled();
            if let Err(excess) = checked {
                tracing::info!(client = %joined.who, %excess, "reset");
                self.end_connection(slot, RelayEnding::NotTaken);
            }
        }
    }

    /// Ends connections whose far relay does not answer, and those of which a side has long
    /// acknowledged nothing.
    fn end_silent(&mut self, now: Instant) {
        if now.saturating_duration_since(self.checked) < LONG {
            return;
        }
        self.checked = now;
        for slot in 0..self.joined.len() {
            let Some(joined) = &self.joined[slot] else {
                continue;
            };
            if joined.expects_status()
                && now.saturating_duration_since(joined.began) > STATUS_DEADLINE
            {
                self.inbox.is_unanswered.store(true, Ordering::Relaxed);
                self.end_connection(slot, RelayEnding::Unreachable);
            } else if let Some(side) = RelaySide::BOTH
                .into_iter()
                .find(|side| joined.legs[*side as usize].socket_info().is_silent(SILENCE))
            {
                self.end_connection(slot, reset_by(side));
            }
        }
    }

    /// Returns the time until connections are to be reported, if they are.
    fn until_report(&self) -> Option<Duration> {
        Some(Duration::from(self.interval?).saturating_sub(self.reported.elapsed()))
    }

    /// Reports connections that were not idle since they were last reported.
    fn report_progress(&mut self) {
        if self.until_report() != Some(Duration::ZERO) {
            return;
        }
        self.reported = Instant::now();
        for joined in self.joined.iter_mut().flatten() {
            if let Some(progress) = joined.take_progress() {
                let _ = self.events.send(RelayEvent::Progress(Box::new(progress)));
            }
        }
    }

    fn has_stopped(&mut self) -> bool {
        let Some(deadline) = self.inbox.stop_deadline() else {
            return false;
        };
        if Instant::now() >= deadline {
            self.add_connections();
            for slot in 0..self.joined.len() {
                self.end_connection(slot, RelayEnding::Stopped);
            }
        }
        self.inbox.connection_count() == 0
    }

    /// Resets connections of clients that have sent nothing and lost their places.
    fn end_displaced(&mut self) {
        if !self.inbox.has_displaced.swap(false, Ordering::Relaxed) {
            return;
        }
        for slot in 0..self.joined.len() {
            if let Some(joined) = &mut self.joined[slot]
                && joined.quotas.is_displaced()
            {
                let refused = RefusedConnections::of_one(joined.who.ip(), DISPLACED);
                let _ = self.events.send(RelayEvent::Rejected(refused));
                self.remove_connection(slot);
            }
        }
    }

    /// Ends a connection, and reports it.
    fn end_connection(&mut self, slot: usize, ending: RelayEnding) {
        self.report_begin(slot);
        let Some(joined) = &self.joined[slot] else {
            return;
        };
        // Who does not listen any more does not want to know.
        let _ = self.events.send(RelayEvent::Relayed(Box::new(
            joined.connection_report(ending),
        )));
        self.remove_connection(slot);
    }

    fn remove_connection(&mut self, slot: usize) {
        let Some(mut joined) = self.joined[slot].take() else {
            return;
        };
        self.free.push(slot);
        self.divide_memory();
        joined
            .directions
            .iter_mut()
            .for_each(|direction| direction.release_pipe(&mut self.shared));
        drop(joined);
        self.inbox.load.fetch_sub(1, Ordering::Relaxed);
    }
}

impl RelayConnection {
    fn new(pair: UnjoinedPair) -> Self {
        let UnjoinedPair { sides, who, quotas } = pair;
        // A near relay has many clients, and counts them itself.
        let is_one_client = !matches!(sides.joint, ConnectionRole::Far { .. });
        Self {
            legs: [sides.client, sides.target],
            directions: sides.joint.new_directions(),
            ending: EndingState::new(),
            is_queued: false,
            resets: None,
            who,
            whither: sides.whither,
            began: Instant::now(),
            followed: None,
            quotas,
            share: QueueBudget::of_this_process().join(is_one_client.then_some(who.ip())),
        }
    }

    /// Returns true if the far relay has not said that it is connected.
    fn expects_status(&self) -> bool {
        self.directions[RelaySide::Target as usize].expects_status
    }

    fn is_unsettled(&self) -> bool {
        self.legs.iter().any(RelaySocket::is_unsettled)
    }

    /// Samples both sides.
    ///
    /// # Errors
    /// Fails if too much waits for them in the kernel.
    fn take_sample(&mut self) -> Result<(), QueueExcess> {
        let at = self.began.elapsed();
        let [client, target] = &mut self.legs;
        let stalled = client
            .stalled_bytes(target, at.into())
            .plus(target.stalled_bytes(client, at.into()));
        for leg in &mut self.legs {
            leg.watch_losses(Time::from_nanos(at.as_nanos() as u64));
        }
        self.share.record_bytes(stalled)
    }

    fn move_side_bytes(&mut self, side: RelaySide, shared: &mut WorkerBuffers) -> MoveResult {
        let [client, target] = &mut self.legs;
        let (from, to) = if side == RelaySide::Client {
            (client, target)
        } else {
            (target, client)
        };
        self.directions[side as usize].move_bytes(from, to, shared)
    }

    /// Returns the bytes that were carried since the last report; `None` if there were none, and
    /// nothing is held up.
    fn take_progress(&mut self) -> Option<RelayProgress> {
        let read = [self.directions[0].read, self.directions[1].read];
        let is_held_up = self.directions.iter().any(RelayDirection::is_held_up);
        let part = self
            .followed
            .as_mut()?
            .take_interval(read, is_held_up, &self.legs)?;
        let [from_client, from_target] = part.read;
        let [client_stretch, target_stretch] = part.stretches;
        Some(RelayProgress {
            client: self.who,
            target: self.whither.clone(),
            duration: Span::from(self.began.elapsed()),
            interval: part.interval,
            from_client,
            from_target,
            client_rate: BitRate::from_bytes_in(from_client, part.interval),
            target_rate: BitRate::from_bytes_in(from_target, part.interval),
            client_stretch,
            target_stretch,
        })
    }

    fn connection_report(&self, ending: RelayEnding) -> RelayedConnection {
        let infos = self.legs.each_ref().map(RelaySocket::socket_info);
        let duration = Span::from(self.began.elapsed());
        let undelivered = if ending == RelayEnding::Closed {
            0
        } else {
            self.undelivered_bytes(&infos)
        };
        let [client_stretch, target_stretch] = [0, 1].map(|side| {
            RelayStretch::from_tcp_info(&infos[side], self.legs[side].loss_ratio(), duration)
        });
        RelayedConnection {
            client: self.who,
            target: self.whither.clone(),
            from_client: ByteCount::new(self.directions[0].read),
            from_target: ByteCount::new(self.directions[1].read),
            duration,
            ending,
            undelivered: ByteCount::new(undelivered),
            compression: self.compression_in(duration),
            client_stretch,
            target_stretch,
        }
    }

    /// Returns the bytes that did not arrive, by the state of both sockets.
    fn undelivered_bytes(&self, infos: &[TcpInfo; 2]) -> u64 {
        let [client, target] =
            [0, 1].map(|side| self.legs[side].unacknowledged_bytes(&infos[side]));
        self.directions[0].undelivered_bytes(target) + self.directions[1].undelivered_bytes(client)
    }

    fn compression_in(&self, duration: Span) -> Option<RelayCompression> {
        let [client, target] = &self.directions;
        let (from_client, from_target) = client.block_bytes().zip(target.block_bytes())?;
        Some(RelayCompression {
            from_client: ByteCount::new(from_client),
            from_target: ByteCount::new(from_target),
            effective_rate: BitRate::from_bytes_in(
                ByteCount::new(client.read + target.read),
                duration,
            ),
            wire_rate: BitRate::from_bytes_in(ByteCount::new(from_client + from_target), duration),
        })
    }
}

fn connection_at(
    joined: &mut [Option<Box<RelayConnection>>],
    slot: usize,
) -> Option<&mut RelayConnection> {
    joined.get_mut(slot)?.as_deref_mut()
}

const fn reset_by(side: RelaySide) -> RelayEnding {
    match side {
        RelaySide::Client => RelayEnding::ClientReset,
        RelaySide::Target => RelayEnding::TargetReset,
    }
}

#[cfg(test)]
mod tests;
