//! The thread that sends echo requests and receives their answers.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use fullpipe_iperf::Cookie;
use fullpipe_load::Local;
use fullpipe_record::{Request, RttMethod, RttStats};
use fullpipe_units::{BitRate, Span};

use super::flow::{EchoAnswer, Flow};
use super::log::{Log, Taken};

/// Time between two requests under load.
const PERIOD: Duration = Duration::from_millis(10);

/// Minimum time between two requests without load, when each follows the answer to the one before: a connection over a
/// short path is set up in a moment, and the load needs round-trip times to compare with.
const MIN_PERIOD: Duration = Duration::from_millis(1);

/// Maximum time between two requests, on the slowest paths.
const MAX_PERIOD: Duration = Duration::from_secs(1);

/// Part of the rate of a path that echo requests may use: one in this many.
const SHARE: u64 = 100;

/// Time after which the rate of a load counts as that of the path.
const RAMP: Span = Span::from_secs(1);

/// Minimum rate that is assumed for a path whose load limits itself or has only begun: it allows a request every 20 ms.
const MODEST: BitRate = BitRate::from_mbps(4);

/// Time for the kernel of the other end to answer the first ICMP echo request before datagrams replace them: on a busy
/// machine this thread may have only just begun.
const FAIR: Duration = Duration::from_millis(200);

/// Time without any answer after which a flow is given up.
const UNANSWERED: Duration = Duration::from_secs(3);

/// Time between two checks if the path has settled.
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Maximum number of packets received before the next request is sent if it is due.
const MAX_AT_ONCE: usize = 64;

/// Maximum number of round-trip times kept for [`Prober::lately`]: those of a minute and a half under load.
const MAX_LATELY: usize = 1 << 13;

/// Number of answers that are wanted once the queues have emptied.
const WANTED_AFTER: u32 = 10;

/// Maximum time to wait for these answers, in addition to two round trips.
const MAX_AFTER: Duration = Duration::from_secs(1);

/// Sends echo requests from a thread until [`Prober::finish`] is called or this is dropped.
#[derive(Debug)]
pub struct Prober {
    shared: Arc<Mutex<Shared>>,
    thread: Option<JoinHandle<Option<Taken>>>,
}

/// State shared between the thread and its owner.
#[derive(Debug, Default)]
struct Shared {
    stop: bool,
    phase: Phase,
    /// Address of a server that answers datagrams, and the cookie of the test.
    server: Option<(SocketAddr, Cookie)>,
    /// Rate of the path, as far as it is known.
    rate: BitRate,
    least: Option<Span>,
    most: Span,
    /// Round-trip times since the last call of [`Prober::lately`].
    lately: Vec<Span>,
    /// The last round-trip time.
    latest: Option<Span>,
    /// Set once enough requests have been answered after the load.
    is_settled: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Phase {
    #[default]
    Before,
    During,
    After(Instant),
}

impl Prober {
    /// Starts to send echo requests to `target` from `local`. If they are not permitted, it waits for
    /// [`Prober::use_server`].
    ///
    /// # Errors
    /// Fails if no thread can be started.
    pub fn start(target: SocketAddr, local: &Local) -> io::Result<Self> {
        let shared = Arc::new(Mutex::new(Shared::default()));
        let (theirs, local) = (Arc::clone(&shared), local.clone());
        let run = move || {
            let flow = random().and_then(|token| Flow::of_icmp(target, &local, token)).ok();
            Worker::new(flow, local, theirs).run()
        };
        let thread = thread::Builder::new().name("echo".to_owned()).spawn(run)?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Names a server at `address` that answers datagrams of the test with this `cookie`, if it is fullpipe. They are
    /// sent if ICMP echo requests are not permitted, or not answered in time.
    pub fn use_server(&self, address: SocketAddr, cookie: Cookie) {
        locked(&self.shared).server = Some((address, cookie));
    }

    /// Reports that data begins to flow.
    pub fn load_begins(&self) {
        let mut shared = locked(&self.shared);
        shared.phase = Phase::During;
        shared.lately.clear();
    }

    /// Returns the median of the round-trip times since the last call, or since data began to flow; `None` if there are
    /// none.
    pub fn lately(&self) -> Option<Span> {
        let lately = std::mem::take(&mut locked(&self.shared).lately);
        RttStats::of(lately).map(|stats| stats.median)
    }

    /// Reports the mean `rate` of the load of `request`, `elapsed` after its start. Echo requests use at most a
    /// hundredth of the rate of the path.
    pub fn load_carries(&self, request: &Request, rate: BitRate, elapsed: Span) {
        let limits_itself = request.rate.is_some_and(|asked| asked > BitRate::ZERO) || request.pacing.is_some();
        let says_little = limits_itself || elapsed < RAMP;
        locked(&self.shared).rate = if says_little { rate.max(MODEST) } else { rate };
    }

    /// Returns the last round-trip time.
    pub fn latest(&self) -> Option<Span> {
        locked(&self.shared).latest
    }

    fn load_ends(&self) {
        locked(&self.shared).phase = Phase::After(Instant::now());
    }

    /// Returns the minimum round-trip time so far.
    pub fn least(&self) -> Option<Span> {
        locked(&self.shared).least
    }

    /// Waits until the round-trip time of the path without load is known, or the user interrupts; called when neither
    /// data nor results are sent any more.
    pub fn settle(&self, interrupt: &AtomicBool) {
        self.load_ends();
        while !self.is_settled() && !interrupt.load(Ordering::Relaxed) {
            thread::sleep(MIN_POLL_INTERVAL);
        }
    }

    /// Returns true if there is nothing more to wait for: enough requests were answered after the load, or it takes too
    /// long.
    fn is_settled(&self) -> bool {
        let shared = locked(&self.shared);
        let Phase::After(ended) = shared.phase else { return true };
        let too_long = ended.elapsed() >= MAX_AFTER + (shared.most * 2).into();
        shared.is_settled || shared.least.is_none() || too_long || self.has_ended()
    }

    fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Stops and returns the echo requests; `None` if none was answered.
    pub fn finish(mut self) -> Option<Taken> {
        locked(&self.shared).stop = true;
        self.thread.take()?.join().ok().flatten()
    }
}

impl Drop for Prober {
    fn drop(&mut self) {
        locked(&self.shared).stop = true;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn locked(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns an unguessable random number.
///
/// # Errors
/// Fails if `getrandom` does.
pub(crate) fn random() -> io::Result<u64> {
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(u64::from_ne_bytes(bytes))
}

struct Worker {
    flow: Option<Flow>,
    local: Local,
    shared: Arc<Mutex<Shared>>,
    log: Log,
    method: RttMethod,
    number: u64,
    /// Time at which this flow began.
    begun: Instant,
    /// Time at which its next request is due.
    next: Instant,
    /// Time at which a request that was sent after the load was first answered: the queue then holds no data of the
    /// load.
    emptied: Option<Instant>,
    /// Time at which the first request was sent that found the path as it was before the load.
    settled: Option<Instant>,
    answered_since: u32,
}

impl Worker {
    fn new(flow: Option<Flow>, local: Local, shared: Arc<Mutex<Shared>>) -> Self {
        let now = Instant::now();
        Self {
            flow,
            local,
            shared,
            log: Log::new(now),
            method: RttMethod::Icmp,
            number: 0,
            begun: now,
            next: now,
            emptied: None,
            settled: None,
            answered_since: 0,
        }
    }

    fn run(mut self) -> Option<Taken> {
        while let Some(phase) = self.apply_command() {
            let now = Instant::now();
            if now >= self.next {
                self.request(now);
                self.next = now + self.period(phase);
            }
            // Commands of the owner must not wait longer than this.
            let longest = self.next.saturating_duration_since(Instant::now()).min(PERIOD);
            match &self.flow {
                Some(flow) => flow.wait(longest),
                None => thread::sleep(longest),
            }
            self.take(phase);
            self.publish();
            if self.log.least().is_none() && self.begun.elapsed() >= UNANSWERED {
                self.flow = None;
            }
        }
        self.log.least()?;
        Some(self.log.close(self.method, Instant::now(), self.settled))
    }

    /// Applies the commands of the owner and returns the phase; `None` if the thread is to stop.
    fn apply_command(&mut self) -> Option<Phase> {
        let (stop, phase, server) = {
            let mut shared = locked(&self.shared);
            let is_due = self.flow.is_none() || self.begun.elapsed() >= FAIR;
            (shared.stop, shared.phase, shared.server.take_if(|_| is_due))
        };
        if let Some((address, cookie)) = server.filter(|_| self.log.least().is_none()) {
            self.flow = Flow::of_datagrams(address, &self.local, cookie).ok();
            self.method = self.flow.as_ref().map_or(self.method, Flow::method);
            self.begun = Instant::now();
            self.log = Log::new(self.begun);
            self.next = self.begun;
        }
        (!stop).then_some(phase)
    }

    fn request(&mut self, now: Instant) {
        let Some(flow) = &self.flow else { return };
        self.log.sent(self.number, now);
        let sent = flow.request(self.number);
        self.number += 1;
        // Any other request that cannot be sent counts as not answered.
        if sent.is_err_and(|error| self.is_no_server(&error)) {
            self.flow = None;
        }
    }

    /// Returns true if the port is closed and no request has been answered.
    fn is_no_server(&self, error: &io::Error) -> bool {
        error.kind() == io::ErrorKind::ConnectionRefused && self.log.least().is_none()
    }

    /// Returns the time from one request to the next.
    fn period(&self, phase: Phase) -> Duration {
        let rate = locked(&self.shared).rate;
        let bytes = self.flow.as_ref().map(Flow::wire_bytes).unwrap_or_default();
        let polite = if rate == BitRate::ZERO { Span::ZERO } else { rate.time_for(bytes) * SHARE };
        let usual = match (phase, self.log.least()) {
            (Phase::Before | Phase::After(_), Some(rtt)) => Duration::from(rtt).clamp(MIN_PERIOD, PERIOD),
            _ => PERIOD,
        };
        Duration::from(polite).clamp(usual, MAX_PERIOD)
    }

    /// Takes the stamps of requests that have left, and the answers that have arrived.
    fn take(&mut self, phase: Phase) {
        self.note_departures();
        // A raw socket also receives the answers to other programs, which must not delay the next request.
        for _ in 0..MAX_AT_ONCE {
            let Some(flow) = &self.flow else { return };
            match flow.arrived() {
                Ok(Some(answer)) => self.note(answer, phase),
                Ok(None) => {}
                Err(error) if self.is_no_server(&error) => self.flow = None,
                // No packet is left, or an ICMP error about one request was read, which says nothing about the next.
                Err(_) => return,
            }
        }
    }

    fn note_departures(&mut self) {
        while let Some((number, left)) = self.flow.as_ref().and_then(Flow::departed) {
            self.log.left(number, left);
        }
    }

    fn note(&mut self, answer: EchoAnswer, phase: Phase) {
        let now = Instant::now();
        // It may have left since the stamps were last read.
        if !self.log.has_left(answer.number) {
            self.note_departures();
        }
        let Some((sent, rtt)) = self.log.answered(answer.number, answer.came, now, answer.residence) else { return };
        let mut shared = locked(&self.shared);
        if shared.lately.len() < MAX_LATELY {
            shared.lately.push(rtt);
        }
        shared.latest = Some(rtt);
        drop(shared);
        // The path may now be known to be short.
        self.next = self.next.min(now + self.period(phase));
        let Phase::After(ended) = phase else { return };
        if self.emptied.is_some_and(|emptied| sent >= emptied) && (self.settled.is_some() || self.is_as_before(rtt)) {
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
        self.log.least().is_some_and(|least| rtt <= least.scaled(FACTOR) + TOLERANCE)
    }

    fn publish(&self) {
        let mut shared = locked(&self.shared);
        shared.least = self.log.least();
        shared.most = self.log.most();
        shared.is_settled = self.answered_since >= WANTED_AFTER;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_testkit::valid_within;
    use std::net::{Ipv4Addr, UdpSocket};

    use super::super::datagram;

    const TIMEOUT: Duration = Duration::from_secs(5);

    fn until(mut done: impl FnMut() -> bool) -> bool {
        let deadline = Instant::now() + TIMEOUT;
        while !done() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(2));
        }
        done()
    }

    fn cookie() -> Cookie {
        Cookie::from_bytes([b'c'; Cookie::LENGTH])
    }

    /// Returns a prober that sends datagrams alone.
    fn with_datagrams(server: SocketAddr) -> Prober {
        let shared = Arc::new(Mutex::new(Shared::default()));
        let theirs = Arc::clone(&shared);
        let thread = thread::spawn(move || Worker::new(None, Local::default(), theirs).run());
        let prober = Prober { shared, thread: Some(thread) };
        prober.use_server(server, cookie());
        prober
    }

    /// Starts a server that answers `answers` requests, each with `residence` as its stated time at the server.
    fn server(answers: usize, residence: Span) -> SocketAddr {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = socket.local_addr().unwrap();
        thread::spawn(move || {
            let mut buffer = [0; 100];
            for _ in 0..answers {
                let (length, from) = socket.recv_from(&mut buffer).unwrap();
                assert_eq!(datagram::echo_test(&buffer[..length]), Some(cookie()));
                socket.send_to(&datagram::echo_reply(&buffer[..length], residence).unwrap(), from).unwrap();
            }
            thread::sleep(TIMEOUT);
        });
        address
    }

    #[test]
    fn loopback_answers_before_during_and_after() {
        let once = || {
            let prober = Prober::start((Ipv4Addr::LOCALHOST, 0).into(), &Local::default()).unwrap();
            if !until(|| prober.least().is_some()) {
                // This user may open neither ping sockets nor raw ones; another test covers a measurement without them.
                return (None, vec![]);
            }
            prober.load_begins();
            thread::sleep(Duration::from_millis(50));
            assert!(prober.lately().is_some());
            prober.load_ends();
            assert!(until(|| prober.is_settled()));
            let taken = prober.finish().unwrap();
            let starved = taken.echoes.windows(2).any(|pair| pair[1].at - pair[0].at > Span::from_millis(100));
            (Some(taken), starved.then(|| "the machine did not let the thread run".to_owned()).into_iter().collect())
        };
        let Some(taken) = valid_within(5, once) else { return };
        assert_eq!(taken.method, RttMethod::Icmp);
        assert!(taken.settled.is_some() && taken.echoes.len() >= 10, "{taken:?}");
        assert!(taken.echoes.iter().any(|echo| echo.host.is_some()), "the kernel stamps: {taken:?}");
    }

    #[test]
    fn a_server_answers_datagrams_until_it_falls_silent() {
        let prober = with_datagrams(server(20, Span::ZERO));
        assert!(until(|| prober.least().is_some()));
        prober.load_begins();
        thread::sleep(Duration::from_millis(500));
        prober.load_ends();
        let begun = Instant::now();
        assert!(until(|| prober.is_settled()) && begun.elapsed() < 2 * MAX_AFTER);
        let taken = prober.finish().unwrap();
        let answered = taken.echoes.iter().filter(|echo| echo.rtt.is_some()).count();
        assert_eq!((taken.method, answered), (RttMethod::UdpEcho, 20));
        assert!(taken.echoes.len() > 20, "what was not answered is counted");
    }

    #[test]
    fn a_slow_path_gets_few_requests_unless_its_load_limits_itself() {
        let sent_under_load = |request: &Request| {
            let prober = with_datagrams(server(usize::MAX, Span::ZERO));
            assert!(until(|| prober.least().is_some()));
            prober.load_carries(request, BitRate::from_bps(100_000), RAMP);
            prober.load_begins();
            thread::sleep(Duration::from_millis(600));
            let echoes = prober.finish().unwrap().echoes;
            echoes.iter().filter(|echo| echo.at > Span::from_millis(100)).count()
        };
        // A hundredth of 100 kbit/s is one request a second; with a load that limits itself there are at most 50 a
        // second.
        assert!(sent_under_load(&Request::default()) <= 3);
        let modest = sent_under_load(&Request { rate: Some(BitRate::from_bps(100_000)), ..Request::default() });
        assert!((5..=40).contains(&modest), "{modest}");
    }

    #[test]
    fn an_answer_with_a_residence_longer_than_its_round_trip_is_ignored() {
        let prober = with_datagrams(server(usize::MAX, Span::from_secs(1)));
        thread::sleep(Duration::from_millis(100));
        assert!(prober.least().is_none() && prober.is_settled());
        assert!(prober.finish().is_none());
    }

    #[test]
    fn a_closed_port_ends_the_flow() {
        let closed = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
        let prober = with_datagrams(closed);
        thread::sleep(Duration::from_millis(50));
        prober.load_ends();
        assert!(prober.is_settled(), "nothing is waited for");
        assert!(prober.finish().is_none());
    }
}
