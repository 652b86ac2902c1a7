//! The way to a target, and what passes it: probes that may go one hop, two hops and so on, all on their way at once, and
//! what routers say of them.
//!
//! trippy-core was weighed for this: on Linux it always needs raw sockets, it finds no MTU, and brings some forty crates. The
//! kernel gives each socket what the network says of its own packets (`IP_RECVERR`), and asks for no privilege.

mod route_state;
mod socket;
mod syn_probe;

pub use syn_probe::{syn_quotes, was_changed};

use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fullpipe_load::Local;
use fullpipe_record::{RouteMethod, RouteMtu, RouteReport};
use fullpipe_units::ByteCount;
use thiserror::Error;

use route_state::RouteState;
use socket::{ProbeReply, ProbeSocket};

/// Routers beyond this are not asked.
const MAX_HOPS: u8 = 30;

/// Probes to each hop. Linux answers no more than six in a row to anybody.
const PROBES: u16 = 5;

/// Time from one probe to the next: by then, one that goes too far has often been answered on a short path.
const PACE: Duration = Duration::from_millis(3);

/// The same of datagrams: the target's kernel answers only few of those that go too far.
const DATAGRAM_PACE: Duration = Duration::from_millis(20);

/// Time from the first probe to a hop to the next.
const WAVE: Duration = Duration::from_millis(100);

/// How long an answer is waited for as long as there is none to tell how long answers take.
const TIMEOUT: Duration = Duration::from_secs(2);

/// The least that an answer is waited for.
const MIN_TIMEOUT: Duration = Duration::from_millis(300);

/// When all must be over.
const MAX_DURATION: Duration = Duration::from_secs(5);

/// The largest packet that there can be.
const MAX_PACKET: ByteCount = ByteCount::new(65_535);

/// Sizes that are tried.
const MAX_SIZES: usize = 10;

/// How often a packet of a size is sent before it counts as not answered.
const TRIES: usize = 2;

/// Longest that an interrupt goes unheard.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Why a route was not traced.
#[derive(Debug, Error)]
pub enum TraceError {
    /// There is no socket for probes, or none at the address or the device asked for.
    #[error("cannot open a socket for the route: {0}")]
    Open(#[source] io::Error),
    /// This host sends nothing there.
    #[error("cannot send along the route: {0}")]
    Send(#[source] io::Error),
}

/// Finds the way to `target`, within five seconds. An interrupt ends it with what there is.
///
/// # Errors
/// If this host sends nothing there.
pub fn trace(target: IpAddr, local: &Local, interrupt: &AtomicBool) -> Result<RouteReport, TraceError> {
    let socket = ProbeSocket::open(target, local).map_err(TraceError::Open)?;
    let mut tracer = Tracer { begun: Instant::now(), trail: RouteState::new(target), socket, interrupt };
    tracer.find_hops().map_err(TraceError::Send)?;
    let mtu = tracer.find_mtu();
    Ok(tracer.trail.report(tracer.socket.method(), mtu))
}

struct Tracer<'t> {
    begun: Instant,
    trail: RouteState,
    socket: ProbeSocket,
    interrupt: &'t AtomicBool,
}

/// What became of a packet of some size.
enum Passage {
    Answered,
    TooLarge { fits: ByteCount, reported_by: Option<String> },
    Silence,
}

impl Tracer<'_> {
    /// Sends to each hop, from the first to the target or the last that there may be, again and again.
    fn find_hops(&mut self) -> io::Result<()> {
        for wave in 0..PROBES {
            let begun = Instant::now();
            for hop in 1..=MAX_HOPS {
                if hop > self.trail.end().unwrap_or(MAX_HOPS) || self.is_over() {
                    break;
                }
                let sent = self.send(Some(hop), self.socket.smallest());
                // One that could be sent before may fail for what came of another.
                if wave == 0 && hop == 1 {
                    sent?;
                }
                self.listen(Instant::now() + self.pace(), |_| false);
            }
            self.listen(begun + WAVE, |_| false);
        }
        let last = Instant::now();
        while !self.trail.is_complete() && last.elapsed() < self.timeout() && !self.is_over() {
            self.listen(last + self.timeout(), RouteState::is_complete);
        }
        Ok(())
    }

    /// Sends the largest packet that there can be, and then ever what somebody says that passes.
    fn find_mtu(&mut self) -> Option<RouteMtu> {
        let (mut size, mut reported_by) = (MAX_PACKET, None);
        for _ in 0..MAX_SIZES {
            let found = |answered| RouteMtu { size, answered, reported_by: reported_by.clone() };
            match self.pass(size) {
                Passage::Answered => return Some(found(true)),
                Passage::TooLarge { fits, reported_by: by } if fits < size => {
                    size = fits.max(self.socket.least_mtu());
                    reported_by = by;
                }
                // A target that answers nothing says nothing of large packets either.
                _ if self.is_over() || !(self.trail.is_reached() || reported_by.is_some()) => return None,
                _ => return Some(found(false)),
            }
        }
        None
    }

    fn pass(&mut self, size: ByteCount) -> Passage {
        for _ in 0..TRIES {
            let number = self.trail.next();
            // A packet that this host's own device does not take is told of as if a router had said so.
            let _ = self.send(None, size);
            let (sent, timeout) = (Instant::now(), self.timeout());
            self.listen(sent + timeout, |trail| trail.word(number).is_some());
            match self.trail.word(number) {
                Some((ProbeReply::TooLarge(fits), by)) => {
                    return Passage::TooLarge { fits, reported_by: by.map(|by| by.to_string()) };
                }
                Some((ProbeReply::Reached, _)) => return Passage::Answered,
                _ if self.is_over() => break,
                _ => {}
            }
        }
        Passage::Silence
    }

    /// Sends a probe of so many bytes, which may go as far as `hop`, or the whole way.
    fn send(&mut self, hop: Option<u8>, size: ByteCount) -> io::Result<()> {
        let number = self.trail.next();
        self.trail.sent(hop, Instant::now());
        let sent = self.socket.send(number, hop, size);
        self.take();
        if sent.is_err() {
            self.trail.unsent(number);
        }
        sent
    }

    /// Takes what is said until `deadline`, or it is `enough`.
    fn listen(&mut self, deadline: Instant, enough: impl Fn(&RouteState) -> bool) {
        let deadline = deadline.min(self.begun + MAX_DURATION);
        while !enough(&self.trail) && !self.is_over() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            self.socket.wait(left.min(POLL_INTERVAL));
            self.take();
        }
    }

    fn take(&mut self) {
        let latest = self.trail.next().wrapping_sub(1);
        for heard in self.socket.heard() {
            // Only this host itself does not say which: it is the last that it did not take.
            self.trail.heard(heard.number.unwrap_or(latest), heard.by, heard.word, Instant::now());
        }
    }

    fn is_over(&self) -> bool {
        self.begun.elapsed() >= MAX_DURATION || self.interrupt.load(Ordering::Relaxed)
    }

    fn timeout(&self) -> Duration {
        self.trail.slowest().map_or(TIMEOUT, |slowest| (slowest * 2).clamp(MIN_TIMEOUT, TIMEOUT))
    }

    fn pace(&self) -> Duration {
        if self.socket.method() == RouteMethod::Udp { DATAGRAM_PACE } else { PACE }
    }
}
