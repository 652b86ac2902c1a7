//! The thread that sends echo requests and receives their answers.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::engine::LocalEndpoint;
use fullpipe_iperf::TestCookie;
use fullpipe_record::{Request, RttMethod, RttStats};
use fullpipe_sys::{lock, random_bytes, start_thread};
use fullpipe_units::{BitRate, Span};

use super::flow::{EchoAnswer, EchoFlow};
use super::log::{EchoLog, EchoResult};

/// Time between two requests under load.
const PERIOD: Duration = Duration::from_millis(10);

/// Minimum time between two requests without load, when each follows the answer to the one before:
/// a connection over a short path is set up in a moment, and the load needs round-trip times to
/// compare with.
const MIN_PERIOD: Duration = Duration::from_millis(1);

/// Maximum time between two requests, on the slowest paths.
const MAX_PERIOD: Duration = Duration::from_secs(1);

/// Part of the rate of a path that echo requests may use: one in this many.
const SHARE: u64 = 100;

/// Time after which the rate of a load counts as that of the path.
const RAMP: Span = Span::from_secs(1);

/// Minimum rate that is assumed for a path whose load limits itself or has only begun: it allows a
/// request every 20 ms.
const MODEST: BitRate = BitRate::from_mbps(4);

/// Time for the kernel of the other end to answer the first ICMP echo request before datagrams
/// replace them: on a busy machine this thread may have only just begun.
const FAIR: Duration = Duration::from_millis(200);

/// Time without any answer after which a flow is given up.
const UNANSWERED: Duration = Duration::from_secs(3);

/// Time between two checks if the path has settled.
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Maximum number of packets received before the next request is sent if it is due.
const MAX_AT_ONCE: usize = 64;

/// Maximum number of round-trip times kept for [`EchoProber::take_recent_rtt`]: those of a minute
/// and a half under load.
const MAX_LATELY: usize = 1 << 13;

/// Number of answers that are wanted once the queues have emptied.
const WANTED_AFTER: u32 = 10;

/// Maximum time to wait for these answers, in addition to two round trips.
const MAX_AFTER: Duration = Duration::from_secs(1);

/// Sends echo requests from a thread until [`EchoProber::finish`] is called or this is dropped.
pub(crate) struct EchoProber {
    shared: Arc<Mutex<ProberState>>,
    thread: Option<JoinHandle<Option<EchoResult>>>,
}

/// State shared between the thread and its owner.
#[derive(Default)]
struct ProberState {
    stop: bool,
    phase: LoadPhase,
    /// Address of a server that answers datagrams, and the cookie of the test.
    server: Option<(SocketAddr, TestCookie)>,
    /// Rate of the path, as far as it is known.
    rate: BitRate,
    least: Option<Span>,
    most: Span,
    /// Round-trip times since the last call of [`EchoProber::take_recent_rtt`].
    lately: Vec<Span>,
    /// The last round-trip time.
    latest: Option<Span>,
    /// Set once enough requests have been answered after the load.
    is_settled: bool,
}

#[derive(Clone, Copy, Default)]
enum LoadPhase {
    #[default]
    Before,
    During,
    After(Instant),
}

impl EchoProber {
    /// Starts to send echo requests to `target` from `local`. If they are not permitted, it waits
    /// for [`EchoProber::use_server`].
    ///
    /// # Errors
    /// Fails if no thread can be started.
    pub(crate) fn start(target: SocketAddr, local: &LocalEndpoint) -> io::Result<Self> {
        let shared = Arc::new(Mutex::new(ProberState::default()));
        let (theirs, local) = (Arc::clone(&shared), local.clone());
        let thread = start_thread("echo", move || {
            let flow = random_u64()
                .and_then(|token| EchoFlow::of_icmp(target, &local, token))
                .ok();
            ProberWorker::new(flow, local, theirs).run_worker()
        })?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// Names a server at `address` that answers datagrams of the test with this `cookie`, if it is
    /// fullpipe. They are sent if ICMP echo requests are not permitted, or not answered in time.
    pub(crate) fn use_server(&self, address: SocketAddr, cookie: TestCookie) {
        lock(&self.shared).server = Some((address, cookie));
    }

    /// Reports that data begins to flow.
    pub(crate) fn load_begins(&self) {
        let mut shared = lock(&self.shared);
        shared.phase = LoadPhase::During;
        shared.lately.clear();
    }

    /// Returns the median of the round-trip times since the last call, or since data began to flow;
    /// `None` if there are none.
    pub(crate) fn take_recent_rtt(&self) -> Option<Span> {
        let lately = std::mem::take(&mut lock(&self.shared).lately);
        RttStats::from_samples(lately).map(|stats| stats.median)
    }

    /// Reports the mean `rate` of the load of `request`, `elapsed` after its start. Echo requests
    /// use at most a hundredth of the rate of the path.
    pub(crate) fn load_carries(&self, request: &Request, rate: BitRate, elapsed: Span) {
        let limits_itself =
            request.rate.is_some_and(|asked| asked > BitRate::ZERO) || request.pacing.is_some();
        let says_little = limits_itself || elapsed < RAMP;
        lock(&self.shared).rate = if says_little { rate.max(MODEST) } else { rate };
    }

    /// Returns the last round-trip time.
    pub(crate) fn last_rtt(&self) -> Option<Span> {
        lock(&self.shared).latest
    }

    fn load_ends(&self) {
        lock(&self.shared).phase = LoadPhase::After(Instant::now());
    }

    /// Returns the minimum round-trip time so far.
    pub(crate) fn min_rtt(&self) -> Option<Span> {
        lock(&self.shared).least
    }

    /// Waits until the round-trip time of the path without load is known, or the user interrupts;
    /// called when neither data nor results are sent any more.
    pub(crate) fn wait_until_settled(&self, interrupt: &AtomicBool) {
        self.load_ends();
        while !self.is_settled() && !interrupt.load(Ordering::Relaxed) {
            thread::sleep(MIN_POLL_INTERVAL);
        }
    }

    /// Returns true if there is nothing more to wait for: enough requests were answered after the
    /// load, or it takes too long.
    fn is_settled(&self) -> bool {
        let shared = lock(&self.shared);
        let LoadPhase::After(ended) = shared.phase else {
            return true;
        };
        let too_long = ended.elapsed() >= MAX_AFTER + (shared.most * 2).into();
        shared.is_settled || shared.least.is_none() || too_long || self.has_ended()
    }

    fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Stops and returns the echo requests; `None` if none was answered.
    pub(crate) fn finish(mut self) -> Option<EchoResult> {
        lock(&self.shared).stop = true;
        self.thread.take()?.join().ok().flatten()
    }
}

impl Drop for EchoProber {
    fn drop(&mut self) {
        lock(&self.shared).stop = true;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Returns an unguessable random number.
///
/// # Errors
/// Fails if `getrandom` does.
pub(crate) fn random_u64() -> io::Result<u64> {
    Ok(u64::from_ne_bytes(random_bytes()?))
}

struct ProberWorker {
    flow: Option<EchoFlow>,
    local: LocalEndpoint,
    shared: Arc<Mutex<ProberState>>,
    log: EchoLog,
    method: RttMethod,
    number: u64,
    /// Time at which this flow began.
    begun: Instant,
    /// Time at which its next request is due.
    next: Instant,
    /// Time at which a request that was sent after the load was first answered: the queue then
    /// holds no data of the load.
    emptied: Option<Instant>,
    /// Time at which the first request was sent that found the path as it was before the load.
    settled: Option<Instant>,
    answered_since: u32,
}

impl ProberWorker {
    fn new(flow: Option<EchoFlow>, local: LocalEndpoint, shared: Arc<Mutex<ProberState>>) -> Self {
        let now = Instant::now();
        Self {
            flow,
            local,
            shared,
            log: EchoLog::new(now),
            method: RttMethod::Icmp,
            number: 0,
            begun: now,
            next: now,
            emptied: None,
            settled: None,
            answered_since: 0,
        }
    }

    fn run_worker(mut self) -> Option<EchoResult> {
        while let Some(phase) = self.apply_command() {
            let now = Instant::now();
            if now >= self.next {
                self.send_request(now);
                self.next = now + self.request_period(phase);
            }
            // Commands of the owner must not wait longer than this.
            let rest = self.next.saturating_duration_since(Instant::now());
            let longest = rest.min(PERIOD);
            match &self.flow {
                Some(flow) => flow.wait_for_packet(longest),
                None => thread::sleep(longest),
            }
            self.take_packets(phase);
            self.publish_state();
            if self.log.min_rtt().is_none() && self.begun.elapsed() >= UNANSWERED {
                self.flow = None;
            }
        }
        self.log.min_rtt()?;
        let now = Instant::now();
        Some(self.log.into_result(self.method, now, self.settled))
    }

    /// Applies the commands of the owner and returns the phase; `None` if the thread is to stop.
    fn apply_command(&mut self) -> Option<LoadPhase> {
        let (stop, phase, server) = {
            let mut shared = lock(&self.shared);
            let is_due = self.flow.is_none() || self.begun.elapsed() >= FAIR;
            (shared.stop, shared.phase, shared.server.take_if(|_| is_due))
        };
        if let Some((address, cookie)) = server.filter(|_| self.log.min_rtt().is_none()) {
            self.flow = EchoFlow::of_datagrams(address, &self.local, cookie).ok();
            self.method = self.flow.as_ref().map_or(self.method, EchoFlow::method);
            self.begun = Instant::now();
            self.log = EchoLog::new(self.begun);
            self.next = self.begun;
        }
        (!stop).then_some(phase)
    }

    fn send_request(&mut self, now: Instant) {
        let Some(flow) = &self.flow else { return };
        self.log.record_sent(self.number, now);
        let sent = flow.send_request(self.number);
        self.number += 1;
        // Any other request that cannot be sent counts as not answered.
        if sent.is_err_and(|error| self.is_no_server(&error)) {
            self.flow = None;
        }
    }

    /// Returns true if the port is closed and no request has been answered.
    fn is_no_server(&self, error: &io::Error) -> bool {
        error.kind() == io::ErrorKind::ConnectionRefused && self.log.min_rtt().is_none()
    }

    /// Returns the time from one request to the next.
    fn request_period(&self, phase: LoadPhase) -> Duration {
        let rate = lock(&self.shared).rate;
        let bytes = self
            .flow
            .as_ref()
            .map(EchoFlow::wire_bytes)
            .unwrap_or_default();
        let polite = if rate == BitRate::ZERO {
            Span::ZERO
        } else {
            rate.time_for(bytes) * SHARE
        };
        let usual = match (phase, self.log.min_rtt()) {
            (LoadPhase::Before | LoadPhase::After(_), Some(rtt)) => {
                Duration::from(rtt).clamp(MIN_PERIOD, PERIOD)
            }
            _ => PERIOD,
        };
        Duration::from(polite).clamp(usual, MAX_PERIOD)
    }

    /// Takes the stamps of requests that have left, and the answers that have arrived.
    fn take_packets(&mut self, phase: LoadPhase) {
        self.note_departures();
        // A raw socket also receives the answers to other programs, which must not delay the next
        // request.
        for _ in 0..MAX_AT_ONCE {
            let Some(flow) = &self.flow else { return };
            match flow.next_answer() {
                Ok(Some(answer)) => self.record_answer(answer, phase),
                Ok(None) => {}
                Err(error) if self.is_no_server(&error) => self.flow = None,
                // No packet is left, or an ICMP error about one request was read, which says
                // nothing about the next.
                Err(_) => return,
            }
        }
    }

    fn note_departures(&mut self) {
        while let Some((number, left)) = self.flow.as_ref().and_then(EchoFlow::next_departure) {
            self.log.record_departure(number, left);
        }
    }

    fn record_answer(&mut self, answer: EchoAnswer, phase: LoadPhase) {
        let now = Instant::now();
        // It may have left since the stamps were last read.
        if !self.log.has_left(answer.number) {
            self.note_departures();
        }
        let Some((sent, rtt)) =
            self.log
                .record_answer(answer.number, answer.came, now, answer.residence)
        else {
            return;
        };
        let mut shared = lock(&self.shared);
        if shared.lately.len() < MAX_LATELY {
            shared.lately.push(rtt);
        }
        shared.latest = Some(rtt);
        drop(shared);
        // The path may now be known to be short.
        self.next = self.next.min(now + self.request_period(phase));
        let LoadPhase::After(ended) = phase else {
            return;
        };
        if self.emptied.is_some_and(|emptied| sent >= emptied)
            && (self.settled.is_some() || self.is_as_before(rtt))
        {
            self.settled.get_or_insert(sent);
            self.answered_since += 1;
        }
        if sent >= ended {
            self.emptied.get_or_insert(now);
        }
    }

    /// Returns true if `rtt` shows a path whose queues are as empty as they have ever been.
    fn is_as_before(&self, rtt: Span) -> bool {
        const FACTOR: f64 = 1.1;
        const TOLERANCE: Span = Span::from_millis(1);
        self.log
            .min_rtt()
            .is_some_and(|least| rtt <= least.scale_by(FACTOR) + TOLERANCE)
    }

    fn publish_state(&self) {
        let mut shared = lock(&self.shared);
        shared.least = self.log.min_rtt();
        shared.most = self.log.max_rtt();
        shared.is_settled = self.answered_since >= WANTED_AFTER;
    }
}

#[cfg(test)]
mod tests;
