//! The number of connections, by prediction, and what is changed while they run.

use std::net::TcpStream;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use fullpipe_model::{evaluate, streams};
use fullpipe_record::{
    Effects, Encapsulation, Framing, HostSettings, IpVersion, Path, PathDirection, Request, TcpInfo, Writer,
};
use fullpipe_sys::tcp_info;
use fullpipe_units::{BitRate, ByteCount, Ratio, Span};
use socket2::SockRef;

use crate::course::{Change, Course};
use crate::sender::Sender;
use crate::summary::Figures;

/// The rate that connections should carry together, where nobody knows the path's.
const TARGET: BitRate = BitRate::from_mbps(1000);

/// Connections at most that are chosen by prediction: each adds to the burst of the start.
const MAX_CHOSEN: u16 = 8;

/// Connections at least: two processors encrypt, and a loss halves only one.
const MIN_CHOSEN: u16 = 2;

/// The congestion control for a path that loses packets without a queue.
pub const BBR: &str = "bbr";

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

/// Returns whether fewer connections than those that are `active` carry `rate`, over a path of this round-trip time.
pub fn one_may_rest(active: usize, rate: BitRate, rtt: Span, [sender, receiver]: [&HostSettings; 2]) -> bool {
    let each = carried_by_one(rtt, sender, receiver);
    usize::from(streams::to_fill(each, rate).unwrap_or(MAX_CHOSEN).max(1)) < active
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
}

impl Monitor {
    /// Returns a monitor of these sockets. `settings` are those of the sender and the receiver.
    pub(crate) fn new(sender: &Arc<Sender>, sockets: Vec<TcpStream>, rtt: Span, settings: [HostSettings; 2]) -> Self {
        Self { sockets, sender: Arc::clone(sender), rtt, settings }
    }

    /// Watches until the transfer has ended.
    pub(crate) fn watch(&self) {
        let mut course = Course::default();
        while !self.sender.common.has_failed() && !self.sender.queue.is_over() {
            thread::sleep(Duration::from(Course::INTERVAL));
            let infos: Vec<TcpInfo> = self.infos().collect();
            match course.follow(&infos) {
                Some(Change::Lossy(loss)) => self.use_bbr(loss),
                Some(Change::Queued(rate)) => self.rest(rate),
                None => {}
            }
        }
    }

    /// Returns the figures of all connections up to now.
    pub(crate) fn figures(&self) -> Figures {
        let infos: Vec<TcpInfo> = self.infos().collect();
        Figures::of_sender(&infos, self.congestion_control())
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
        let active = self.sender.queue.active();
        let [sender, receiver] = &self.settings;
        let one_may = one_may_rest(active, rate, self.rtt, [sender, receiver]);
        if one_may && self.congestion_control().as_deref() != Some(BBR) {
            self.sender.queue.restrict(active - 1);
            let text = format!("one of {active} connections rests: it would only fill the queue of the path");
            self.sender.common.note(text);
        }
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
}
