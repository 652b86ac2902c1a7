//! The number of connections, by prediction, and what is changed while they run.

use std::net::TcpStream;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use fullpipe_model::{evaluate, streams};
use fullpipe_record::{
    Effects, Encapsulation, Framing, HostSettings, IpVersion, Path, PathDirection, Request, TcpInfo, Writer,
};
use fullpipe_sys::tcp_info;
use fullpipe_units::{BitRate, ByteCount, Ratio, SegCount, Span};
use socket2::SockRef;

use crate::locks::lock;
use crate::pacing::{INTERVAL as PACE_INTERVAL, Pacer};
use crate::sender::Sender;
use crate::summary::Figures;

/// The rate that connections should carry together, where nobody knows the path's.
const TARGET: BitRate = BitRate::from_mbps(1000);

/// Connections at most that are chosen by prediction: each adds to the burst of the start.
const MAX_CHOSEN: u16 = 8;

/// Connections at least: two processors encrypt, and a loss halves only one.
const MIN_CHOSEN: u16 = 2;

/// Time between two samples of the connections.
const INTERVAL: Duration = Duration::from_secs(1);

/// A share of lost segments above which CUBIC suffers: at 100 ms it carries less than 100 Mbit/s.
const LOSSY: f64 = 5e-5;

/// Lost segments from which a share can be taken.
const MIN_LOST: u64 = 5;

/// Intervals without a queue from which a share can be taken.
const QUIET_INTERVALS: u32 = 2;

/// Intervals with a queue until connections rest.
const QUEUED_INTERVALS: u32 = 3;

const BBR: &str = "bbr";

/// A number of connections, with its reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Choice {
    pub(crate) count: u16,
    pub(crate) reason: String,
}

/// Returns the number of connections for a path of this round-trip time.
pub(crate) fn choose(asked: Option<u16>, rtt: Span, sender: &HostSettings, receiver: &HostSettings) -> Choice {
    if let Some(count) = asked {
        return Choice { count, reason: format!("{}, as asked for", counted(count)) };
    }
    let each = carried_by_one(rtt, sender, receiver);
    let needed = streams::to_fill(each, TARGET).unwrap_or(MAX_CHOSEN);
    let count = needed.clamp(MIN_CHOSEN, MAX_CHOSEN);
    let reason = if each >= TARGET {
        format!("{}: at {rtt} the buffers let one carry {TARGET} or more", counted(count))
    } else {
        format!("{}: at {rtt} the buffers let one carry {each}", counted(count))
    };
    Choice { count, reason }
}

/// Returns how many connections a copy makes over a path of this round-trip time.
pub fn connections(rtt: Span, sender: &HostSettings, receiver: &HostSettings) -> u16 {
    choose(None, rtt, sender, receiver).count
}

fn counted(count: u16) -> String {
    if count == 1 { "1 connection".to_owned() } else { format!("{count} connections") }
}

/// Returns the rate of one connection over a path without a limit of its own.
fn carried_by_one(rtt: Span, sender: &HostSettings, receiver: &HostSettings) -> BitRate {
    let direction = PathDirection {
        rate: None,
        delay: Span::ZERO,
        queue: None,
        loss: None,
        mtu: ByteCount::new(1500),
        framing: Framing::default(),
        ip: IpVersion::default(),
        encapsulation: Encapsulation::default(),
        effects: Effects::default(),
    };
    let request = Request { writer: Writer::Blocking, ..Request::default() };
    evaluate(&Path::symmetric(&direction, rtt), sender, receiver, &request).kernel_model
}

/// Watches the connections of a sender, and adapts them to what they meet.
pub(crate) struct Monitor {
    sockets: Vec<TcpStream>,
    sender: Arc<Sender>,
    rtt: Span,
    settings: [HostSettings; 2],
    /// Part of the time for which the connections gave way to other traffic, if they do.
    gave_way: Mutex<Option<Ratio>>,
}

/// The figures of all connections together.
#[derive(Debug, Clone, Copy, Default)]
struct Sample {
    segments: u64,
    retransmitted: u64,
    acknowledged: u64,
    /// The shortest of the connections: a queue delays all of them, and a busy host only some.
    rtt: Span,
    min_rtt: Span,
}

/// Conclusions from successive samples.
#[derive(Debug, Default)]
struct Course {
    last: Sample,
    /// Intervals without a queue, and the segments that were sent and sent again in them.
    quiet: u32,
    segments: u64,
    retransmitted: u64,
    queued: u32,
    has_changed: bool,
}

/// A change that the samples ask for.
#[derive(Debug, PartialEq)]
enum Change {
    /// Loss without a queue, of this share.
    Lossy(Ratio),
    /// A queue stands, at this rate.
    Queued(BitRate),
}

impl Monitor {
    /// Returns a monitor of these sockets. `settings` are those of the sender and the receiver.
    pub(crate) fn new(sender: &Arc<Sender>, sockets: Vec<TcpStream>, rtt: Span, settings: [HostSettings; 2]) -> Self {
        Self { sockets, sender: Arc::clone(sender), rtt, settings, gave_way: Mutex::default() }
    }

    /// Watches until the transfer has ended.
    pub(crate) fn watch(&self) {
        let scavenges = self.sender.common.bounds.scavenge;
        let mut pacer = Pacer::new(&self.sockets, self.rtt, scavenges);
        let (mut course, mut sampled) = (Course::default(), Instant::now());
        while !self.is_over() {
            pacer.step();
            *lock(&self.gave_way) = pacer.gave_way();
            thread::sleep(PACE_INTERVAL);
            if scavenges || sampled.elapsed() < INTERVAL {
                continue;
            }
            sampled = Instant::now();
            let infos: Vec<TcpInfo> = self.infos().collect();
            match course.follow(Sample::of(&infos)) {
                Some(Change::Lossy(loss)) => {
                    pacer.release();
                    self.use_bbr(loss);
                }
                // Bounded as one, they leave a queue to others as one would.
                Some(Change::Queued(_)) if pacer.couples() => {}
                Some(Change::Queued(rate)) => self.rest(rate),
                None => {}
            }
        }
    }

    fn is_over(&self) -> bool {
        self.sender.common.has_failed() || self.sender.queue.is_over()
    }

    /// Returns the figures of all connections up to now.
    pub(crate) fn figures(&self) -> Figures {
        let infos: Vec<TcpInfo> = self.infos().collect();
        Figures::of_sender(&infos, self.congestion_control(), *lock(&self.gave_way))
    }

    fn infos(&self) -> impl Iterator<Item = TcpInfo> {
        self.sockets.iter().filter_map(|socket| tcp_info(socket).ok())
    }

    fn congestion_control(&self) -> Option<String> {
        let name = SockRef::from(self.sockets.first()?).tcp_congestion().ok()?;
        Some(String::from_utf8_lossy(&name).trim_end_matches('\0').to_owned())
    }

    fn use_bbr(&self, loss: Ratio) {
        if self.congestion_control().as_deref() == Some(BBR) {
            return;
        }
        let path = format!("this path loses {:.2} % of its packets without a queue", loss.percent());
        let changed =
            self.sockets.iter().filter(|socket| SockRef::from(*socket).set_tcp_congestion(BBR.as_bytes()).is_ok());
        let text = if changed.count() > 0 && self.congestion_control().as_deref() == Some(BBR) {
            format!("BBR from here on: {path}")
        } else {
            format!("{path}; BBR would carry more, but net.ipv4.tcp_allowed_congestion_control does not list it")
        };
        self.sender.common.note(text);
    }

    /// Lets one connection rest, if the others can carry the rate. BBR keeps a queue with any number of connections.
    fn rest(&self, rate: BitRate) {
        let each = carried_by_one(self.rtt, &self.settings[0], &self.settings[1]);
        let needed = streams::to_fill(each, rate).unwrap_or(MAX_CHOSEN).max(1);
        let active = self.sender.queue.active();
        if usize::from(needed) < active && self.congestion_control().as_deref() != Some(BBR) {
            self.sender.queue.restrict(active - 1);
            let text = format!("one of {active} connections rests: it would only fill the queue of the path");
            self.sender.common.note(text);
        }
    }
}

impl Sample {
    fn of(infos: &[TcpInfo]) -> Self {
        let count = |of: fn(&TcpInfo) -> Option<SegCount>| infos.iter().filter_map(of).map(SegCount::get).sum();
        Self {
            segments: count(|info| info.data_segs_out),
            retransmitted: count(|info| info.total_retrans),
            acknowledged: infos.iter().filter_map(|info| info.bytes_acked).map(ByteCount::get).sum(),
            rtt: infos.iter().filter_map(|info| info.rtt).min().unwrap_or_default(),
            min_rtt: infos.iter().filter_map(|info| info.min_rtt).min().unwrap_or_default(),
        }
    }

    /// Packets wait for less than a tenth of the propagation time.
    fn has_no_queue(self) -> bool {
        self.rtt <= self.min_rtt.scaled(1.1) + Span::from_millis(2)
    }

    /// Packets wait for more than half of it.
    fn has_queue(self) -> bool {
        self.rtt > self.min_rtt.scaled(1.5) + Span::from_millis(5)
    }
}

impl Course {
    fn follow(&mut self, sample: Sample) -> Option<Change> {
        let last = std::mem::replace(&mut self.last, sample);
        // What overflows a queue is lost while packets wait in it, before or after.
        if last.segments > 0 && last.has_no_queue() && sample.has_no_queue() {
            self.quiet += 1;
            self.segments += sample.segments.saturating_sub(last.segments);
            self.retransmitted += sample.retransmitted.saturating_sub(last.retransmitted);
        }
        let loss = Ratio::of(self.retransmitted as f64, self.segments.max(1) as f64);
        let is_lossy = self.retransmitted >= MIN_LOST && loss.get() >= LOSSY;
        self.queued = if sample.has_queue() { self.queued + 1 } else { 0 };
        if is_lossy && self.quiet >= QUIET_INTERVALS && !self.has_changed {
            self.has_changed = true;
            return Some(Change::Lossy(loss));
        }
        if self.queued >= QUEUED_INTERVALS && !self.has_changed {
            self.queued = 0;
            let bytes = ByteCount::new(sample.acknowledged.saturating_sub(last.acknowledged));
            return Some(Change::Queued(BitRate::of(bytes, Span::from_secs(INTERVAL.as_secs()))));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_buffers_on_a_long_path_take_more_connections() {
        let host = HostSettings::of_linux_6_18();
        let long = choose(None, Span::from_millis(98), &host, &host);
        assert!((4..=8).contains(&long.count), "{long:?}");
        assert!(long.reason.contains("at 98 ms the buffers let one carry"), "{long:?}");
        let short = choose(None, Span::from_micros(200), &host, &host);
        assert_eq!(short.count, MIN_CHOSEN);
        assert_eq!(choose(Some(3), Span::from_millis(98), &host, &host).count, 3);
    }

    fn sample(second: u64, retransmitted: u64, rtt: u64) -> Sample {
        Sample {
            segments: second * 1000,
            retransmitted,
            acknowledged: second * 1_250_000,
            rtt: Span::from_millis(rtt),
            min_rtt: Span::from_millis(100),
        }
    }

    #[test]
    fn loss_without_a_queue_is_found_and_loss_by_a_full_queue_is_not() {
        let follow = |samples: &[(u64, u64)]| {
            let mut course = Course::default();
            let samples = samples.iter().enumerate();
            let changes = samples.map(|(at, (lost, rtt))| course.follow(sample(at as u64 + 1, *lost, *rtt)));
            changes.flatten().collect::<Vec<_>>()
        };
        let lossy = follow(&[(10, 101), (20, 101), (30, 102), (40, 101)]);
        assert_eq!(lossy, [Change::Lossy(Ratio::new(0.01))]);
        assert_eq!(follow(&[(0, 100), (0, 101), (0, 100), (0, 100)]), []);
        let full = follow(&[(500, 199), (510, 190), (520, 180), (520, 101), (520, 101)]);
        assert_eq!(full, [Change::Queued(BitRate::from_mbps(10))]);
    }
}
