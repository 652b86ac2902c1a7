//! A file that comes in ranges, on as many connections as the path needs.

use std::io;
use std::sync::{Mutex, PoisonError};
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use fullpipe_sys::lock;
use fullpipe_units::{BitRate, ByteCount, Span, count_noun};

use super::connection::{FetchFailure, WebConnection, status_failure};
use super::opened::OpenedFile;
use super::watch::{ArrivalRate, SAMPLE_INTERVAL};
use super::{WebCopy, not_written};
use crate::http::{ConnectionGrowth, RangePlan, RangeWork, ResponseHead, Validator};
use crate::part::{PartWriter, PartialFile};
use crate::protocol::{CHUNK, VerifiedChunks, chunk_hash};
use crate::shared::{SharedFlag, SharedNumber};

/// Rate that a connection is taken to carry before it has carried anything.
const FIRST_RATE: BitRate = BitRate::from_mbps(16);

/// Time from which the rate of all connections is judged, and the same in round trips.
const JUDGED_TIME: Span = Span::from_secs(1);
const JUDGED_ROUNDS: u64 = 12;

/// Time that one request should take, and into how many each connection's share is cut at least:
/// between two of them a connection carries nothing for a round trip, and one of FTP for ten, since
/// each needs a connection of its own.
const REQUESTS: (Span, u64) = (Span::from_secs(8), 2);
const FTP_REQUESTS: (Span, u64) = (Span::from_secs(40), 1);

/// Bounds of the time after which a connection is made again.
const FIRST_WAIT: Duration = Duration::from_millis(200);
const MAX_WAIT: Duration = Duration::from_secs(5);

/// Longest time that a server may want to be left alone for.
const MAX_RETRY_AFTER: Span = Span::from_secs(120);

/// A file that comes in ranges.
pub(super) struct RangedFile<'c> {
    copy: &'c WebCopy,
    file: &'c OpenedFile,
    size: ByteCount,
    validator: &'c Validator,
    state: Mutex<RangedState>,
    writer: PartWriter,
    growth: Mutex<ConnectionGrowth>,
    received: SharedNumber,
    /// The time at which something last came.
    progress_at: Mutex<Instant>,
    failure: Mutex<Option<FetchFailure>>,
    is_over: SharedFlag,
}

/// What has come of a file, and what is still to be asked for.
pub(super) struct RangedState {
    pub part: PartialFile,
    pub verified: VerifiedChunks,
    plan: RangePlan,
}

impl<'c> RangedFile<'c> {
    pub(super) fn new(
        copy: &'c WebCopy,
        file: &'c OpenedFile,
        (size, validator): (ByteCount, &'c Validator),
        part: PartialFile,
        verified: VerifiedChunks,
    ) -> Self {
        let growth = copy.connection_growth(file.rtt);
        let writer = part.new_writer();
        let (request_time, requests) = if file.url.is_ftp() {
            FTP_REQUESTS
        } else {
            REQUESTS
        };
        let plan = RangePlan::new(verified.missing_ranges(), request_time, requests);
        Self {
            copy,
            file,
            size,
            validator,
            state: Mutex::new(RangedState {
                part,
                verified,
                plan,
            }),
            writer,
            growth: Mutex::new(growth),
            received: SharedNumber::default(),
            progress_at: Mutex::new(Instant::now()),
            failure: Mutex::default(),
            is_over: SharedFlag::default(),
        }
    }

    /// Gets what is missing. `first` is a connection whose answer has the first chunk. Returns what
    /// has come, and why that is not all.
    pub(super) fn download(
        self,
        first: Option<WebConnection>,
    ) -> (RangedState, Result<(), FetchFailure>) {
        thread::scope(|scope| self.run_workers(scope, first));
        let failure = self
            .failure
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        let state = self
            .state
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        (state, failure.map_or(Ok(()), Err))
    }

    /// Keeps as many workers at work as connections are needed, until nothing is missing.
    fn run_workers<'s>(&'s self, scope: &'s Scope<'s, '_>, mut first: Option<WebConnection>) {
        let mut workers: Vec<Option<ScopedJoinHandle<'s, ()>>> = Vec::new();
        let (mut rate, mut has_queue) = (ArrivalRate::new(0), true);
        while !self.has_ended() {
            let active = lock(&self.growth).active();
            workers.resize_with(active.max(workers.len()), || None);
            for (index, worker) in workers.iter_mut().enumerate().take(active) {
                if worker.as_ref().is_none_or(ScopedJoinHandle::is_finished) && self.has_missing() {
                    *worker = self.start_worker(scope, index, first.take());
                }
            }
            thread::sleep(SAMPLE_INTERVAL);
            self.copy.watch.sample_sockets();
            has_queue &= self.copy.watch.has_queue();
            if self.judge_rate(&mut rate, has_queue) {
                has_queue = true;
            }
        }
        self.is_over.raise_flag();
        self.copy.watch.close_all();
    }

    fn start_worker<'s>(
        &'s self,
        scope: &'s Scope<'s, '_>,
        index: usize,
        first: Option<WebConnection>,
    ) -> Option<ScopedJoinHandle<'s, ()>> {
        let name = format!("copy-web-{index}");
        let work = move || RangeWorker::new(self, index, first).run();
        let started = thread::Builder::new().name(name).spawn_scoped(scope, work);
        started
            .inspect_err(|error| {
                self.fail(FetchFailure::Final(format!(
                    "cannot start a thread: {error}"
                )));
            })
            .ok()
    }

    fn has_ended(&self) -> bool {
        if self.copy.is_stopped() {
            self.fail(FetchFailure::Final("interrupted".to_owned()));
        }
        lock(&self.failure).is_some() || lock(&self.state).verified.is_complete()
    }

    fn has_missing(&self) -> bool {
        lock(&self.state).plan.has_missing()
    }

    fn fail(&self, failure: FetchFailure) {
        lock(&self.failure).get_or_insert(failure);
        self.is_over.raise_flag();
    }

    fn is_over(&self) -> bool {
        self.is_over.is_raised()
    }

    /// Decides on the number of connections, once an interval has passed, in which a queue stood all
    /// the time or did not. Returns true if that was so.
    fn judge_rate(&self, rate: &mut ArrivalRate, has_queue: bool) -> bool {
        let rtt = self.copy.watch.shortest_rtt().unwrap_or_default();
        let interval = JUDGED_TIME.max(rtt * JUDGED_ROUNDS);
        let received = self.received.current_value();
        let Some(rate) = rate.take_rate(received, interval) else {
            return false;
        };
        if self.copy.options.streams.is_none() {
            lock(&self.growth).add_rate(rate, has_queue);
        }
        true
    }

    /// Writes and records a chunk that is whole.
    fn write_chunk(&self, index: u32, content: &[u8]) -> io::Result<()> {
        if lock(&self.state).verified.contains_chunk(index) {
            // Another connection was faster.
            return Ok(());
        }
        let hash = chunk_hash(self.size, index, content);
        self.writer.write_block(index, 0, content)?;
        let mut state = lock(&self.state);
        if state.verified.contains_chunk(index) {
            // Another connection wrote the same bytes meanwhile: they count once.
            return Ok(());
        }
        let due = state.part.record_chunk(index, &hash, content.len())?;
        state.verified.insert_chunk(index, hash);
        self.copy.tally.verified.increase_by(content.len() as u64);
        drop(state);
        if let Some(due) = due {
            let synced = due.carry_out();
            lock(&self.state).part.end_sync(&due, synced)?;
        }
        Ok(())
    }
}

/// Gets one range after the other on a connection of its own.
struct RangeWorker<'f, 'c> {
    file: &'f RangedFile<'c>,
    index: usize,
    connection: Option<(u16, WebConnection)>,
    work: Option<RangeWork>,
    rate: BitRate,
    /// Attempts in a row that brought nothing, and when the first of them failed.
    failed: u32,
    failing_since: Instant,
}

impl<'f, 'c> RangeWorker<'f, 'c> {
    fn new(file: &'f RangedFile<'c>, index: usize, first: Option<WebConnection>) -> Self {
        let mut worker = Self {
            file,
            index,
            connection: None,
            work: None,
            rate: FIRST_RATE,
            failed: 0,
            failing_since: Instant::now(),
        };
        if let Some(first) = first {
            worker.begin_with(first);
        }
        worker
    }

    /// Takes the first chunk from an answer that has come already, if it is missing.
    fn begin_with(&mut self, first: WebConnection) {
        let taken = lock(&self.file.state)
            .plan
            .take_range(self.index, BitRate::ZERO, 1);
        match taken {
            Some(chunks) if chunks.first == 0 => {
                self.keep_connection(first);
                self.work = Some(RangeWork::new(chunks));
                let received = self.receive_range();
                self.after_attempt(received);
            }
            _ => lock(&self.file.state).plan.give_back(self.index),
        }
    }

    fn run(mut self) {
        while !self.file.is_over() && self.take_work() {
            let began = Instant::now();
            let before = self.received_bytes();
            let attempt = self.get_range();
            let received = ByteCount::new(self.received_bytes().saturating_sub(before));
            if attempt.is_ok() {
                self.rate = BitRate::from_bytes_in(received, began.elapsed().into());
            }
            self.after_attempt(attempt);
        }
        self.close_connection();
        self.give_up_work();
    }

    fn give_up_work(&mut self) {
        if self.work.take().is_some() {
            lock(&self.file.state).plan.give_back(self.index);
        }
    }

    /// Returns true if there is a range to get: the one that is not complete, or another one, as
    /// long as so many connections are needed.
    fn take_work(&mut self) -> bool {
        let active = lock(&self.file.growth).active();
        if self.work.is_none() && self.index < active {
            let mut state = lock(&self.file.state);
            self.work = state
                .plan
                .take_range(self.index, self.rate, active)
                .map(RangeWork::new);
        }
        self.work.is_some()
    }

    fn get_range(&mut self) -> Result<(), FetchFailure> {
        let Some(work) = &self.work else {
            return Ok(());
        };
        let (first, last) = work.missing_bytes(self.file.size);
        let file = self.file;
        let (url, validator) = (&file.file.url, Some(file.validator));
        if self.connection.is_none() {
            let made = file.copy.client.connect(url, Some(file.file.address))?;
            self.keep_connection(made);
        }
        if let Some((_, connection)) = &mut self.connection {
            let head = connection.request(url, Some((first, last)), validator)?;
            check_range(&head, (first, last), file.size, file.validator)?;
        }
        self.receive_range()
    }

    /// Returns the bytes that the connection has received; zero before there is one.
    fn received_bytes(&self) -> u64 {
        self.connection
            .as_ref()
            .map_or(0, |(_, connection)| connection.received)
    }

    fn keep_connection(&mut self, connection: WebConnection) {
        self.connection = self.file.copy.watch_connection(connection);
    }

    fn close_connection(&mut self) {
        if let Some((stream, _)) = self.connection.take() {
            self.file.copy.watch.close_socket(stream);
        }
    }

    /// Receives the body of an answer, and stores its chunks.
    fn receive_range(&mut self) -> Result<(), FetchFailure> {
        let (Some((_, connection)), Some(work)) = (&mut self.connection, &mut self.work) else {
            return Ok(());
        };
        let (file, received) = (self.file, connection.received);
        let mut asked = work.chunks.count;
        loop {
            let before = work.filled.len();
            let most = work
                .missing_in_chunk(file.size)
                .min(file.copy.receive_at_once());
            let has_ended = connection.receive_content(&mut work.filled, most)?;
            let count = work.filled.len() - before;
            if count > 0 {
                file.received.increase_by(count as u64);
                *lock(&file.progress_at) = Instant::now();
                self.failed = 0;
            }
            file.copy.bounds.wait_for_bytes(count);
            if work.missing_in_chunk(file.size) == 0 {
                file.write_chunk(work.chunks.first, &work.filled)
                    .map_err(not_written)?;
                asked -= 1;
                work.next_chunk(lock(&file.state).plan.end_chunk(self.index));
            }
            if work.chunks.count == 0 {
                self.work = None;
                // Where another connection has taken the rest over, it still comes on this one.
                return if asked > 0 {
                    Ok(())
                } else {
                    end_body(connection, has_ended)
                };
            }
            if has_ended && connection.received == received {
                return Err(FetchFailure::Broken("the server sends nothing".to_owned()));
            }
            if has_ended {
                // The answer was shorter than the range, which is permitted.
                return Ok(());
            }
        }
    }

    /// Decides what follows an attempt.
    fn after_attempt(&mut self, attempt: Result<(), FetchFailure>) {
        let is_reusable = self
            .connection
            .as_ref()
            .is_some_and(|(_, connection)| connection.is_reusable());
        if attempt.is_err() || !is_reusable {
            self.close_connection();
        }
        match attempt {
            Ok(()) => self.failed = 0,
            Err(_) if self.file.is_over() => {}
            Err(FetchFailure::Broken(why)) => self.wait_for_retry(&why, None),
            Err(FetchFailure::Busy(status, after)) => {
                self.wait_for_retry(&format!("the server answers {status}"), after);
            }
            Err(failure) => self.file.fail(failure),
        }
    }

    /// Waits before the next attempt. Where other connections get on meanwhile, the server permits
    /// no more, and this one is given up.
    fn wait_for_retry(&mut self, why: &str, after: Option<Span>) {
        if self.failed == 0 {
            self.failing_since = Instant::now();
        }
        self.failed += 1;
        let progress_at = *lock(&self.file.progress_at);
        let others_progress = progress_at > self.failing_since;
        let open = self.file.copy.watch.open_count();
        if self.index >= open.max(1) && self.failed > 1 && others_progress {
            return self.give_up_connection(why, open.max(1));
        }
        let after = after.unwrap_or_default();
        let patience = self
            .file
            .copy
            .patience()
            .max(after.min(MAX_RETRY_AFTER).into());
        if after > MAX_RETRY_AFTER || (progress_at.elapsed() > patience && !others_progress) {
            return self.file.fail(FetchFailure::Final(format!(
                "{why}; start the same command again to continue"
            )));
        }
        let wait = FIRST_WAIT * 2_u32.saturating_pow(self.failed - 1).min(64);
        self.sleep(wait.min(MAX_WAIT).max(after.into()));
    }

    fn give_up_connection(&mut self, why: &str, open: usize) {
        self.give_up_work();
        let mut growth = lock(&self.file.growth);
        if open < growth.active() {
            growth.bound(open);
            let connections = count_noun(growth.active(), "connection");
            drop(growth);
            self.file
                .copy
                .send_note(format!("no more than {connections} from here on: {why}"));
        }
    }

    fn sleep(&self, time: Duration) {
        let until = Instant::now() + time;
        while Instant::now() < until && !self.file.is_over() {
            thread::sleep(SAMPLE_INTERVAL.min(until.saturating_duration_since(Instant::now())));
        }
    }
}

/// Reads the end of a body whose content is complete.
fn end_body(connection: &mut WebConnection, mut has_ended: bool) -> Result<(), FetchFailure> {
    let mut beyond = Vec::new();
    while !has_ended {
        has_ended = connection.receive_content(&mut beyond, CHUNK)?;
        if !beyond.is_empty() {
            return Err(FetchFailure::Final(
                "the server sends more than it was asked for".to_owned(),
            ));
        }
    }
    Ok(())
}

/// Fails if an answer is not the range that was asked for, or of another state of the file.
fn check_range(
    head: &ResponseHead,
    (first, last): (u64, u64),
    size: ByteCount,
    validator: &Validator,
) -> Result<(), FetchFailure> {
    match head.status {
        206 => {}
        200 if validator.is_same_state(head) => {
            return Err(FetchFailure::Final(
                "the server no longer sends ranges".to_owned(),
            ));
        }
        200 | 412 | 416 => return Err(FetchFailure::Changed),
        _ => return Err(status_failure(head)),
    }
    let found = head.content_range.and_then(|found| found.range);
    let is_wanted = found.is_some_and(|(from, to)| from == first && to <= last);
    if head.file_length() != Some(size.get()) || !validator.is_same_state(head) {
        Err(FetchFailure::Changed)
    } else if is_wanted {
        Ok(())
    } else {
        Err(FetchFailure::Final(
            "the server sends another range than it was asked for".to_owned(),
        ))
    }
}
