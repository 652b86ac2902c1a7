//! The number of connections, by prediction, and what is changed while they run.

use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Instant;

use fullpipe_model::improvement::LOSS_TOLERANT;
use fullpipe_model::{evaluate_ceilings, streams};
use fullpipe_record::{
    Effects, Encapsulation, Framing, HostSettings, IpVersion, Path, PathDirection, Request,
    TcpInfo, Writer,
};
use fullpipe_sys::tcp_info;
use fullpipe_units::{BitRate, ByteCount, Ratio, Span, Time, count_noun};
use socket2::SockRef;

use crate::connect::MAX_CONNECTIONS;
use crate::course::{AdaptationChange, CopyAdaptation};
use crate::data_stream::DEAD_AFTER;
use crate::pacing::{CUBIC, ConnectionPacer};
use crate::quic::{QuicConnection, QuicWatch};
use crate::sender::FileSender;
use crate::shared::SharedFlag;
use crate::summary::Figures;
use fullpipe_sys::lock;

/// The rate that connections should carry together, where the path's is not known.
const TARGET: BitRate = BitRate::from_mbps(1000);

/// Connections at most that are chosen by prediction: each adds to the burst of the start.
pub(crate) const MAX_CHOSEN: u16 = 8;

/// Connections at most under CUBIC where packets are lost without a queue, and BBR may not be used:
/// each then carries little. They are made in any case, but carry nothing elsewhere.
const MAX_UNDER_LOSS: u16 = MAX_CONNECTIONS;

/// Connections that carry data at first on such a path. Its rate is not known: they are doubled
/// while that helps.
const FIRST_UNDER_LOSS: usize = 64;

/// Growth of the rate from which twice as many connections have helped.
const MIN_GAIN: f64 = 1.5;

/// Bytes that wait in the buffer of a slow connection at most, beyond what is on its way: at the
/// end of the copy others can take the rest.
const UNSENT: u32 = 64 << 10;

/// Connections at least: two processors encrypt, and a loss halves only one.
const MIN_CHOSEN: u16 = 2;

/// The round-trip time from which only as many connections carry data at first as the path may
/// need. Within a building the rate may be such that two processors encrypt from the beginning.
const LONG: Span = Span::from_millis(1);

/// The round-trip time from which connections are made for loss, if BBR may not be used.
const LONG_UNDER_LOSS: Span = Span::from_millis(10);

/// A number of connections, with its reason.
#[derive(Debug, Clone)]
pub(crate) struct ConnectionChoice {
    pub count: u16,
    /// Number of connections that carry data at first.
    pub active: u16,
    pub reason: String,
}

/// Returns the number of connections for a path of this round-trip time. `ends` are the sender and
/// the receiver.
pub(crate) fn choose_connections(
    asked: Option<u16>,
    may_use_bbr: bool,
    rtt: Span,
    ends: [&HostSettings; 2],
) -> ConnectionChoice {
    if let Some(count) = asked {
        return ConnectionChoice {
            count,
            active: count,
            reason: format!("{}, as asked for", count_noun(count, "connection")),
        };
    }
    let each = carried_by_one(rtt, None, ends);
    let needed = streams::to_fill(each, TARGET).unwrap_or(MAX_CHOSEN);
    let count = needed.clamp(MIN_CHOSEN, MAX_CHOSEN);
    let active = active_at_first(rtt, each).min(count);
    let carried = if each >= TARGET {
        format!("{TARGET} or more")
    } else {
        each.to_string()
    };
    let at_first = if active < count {
        format!(", {active} at first")
    } else {
        String::new()
    };
    let reason = format!(
        "{}{at_first}: at {rtt} the buffers let one carry {carried}",
        count_noun(count, "connection")
    );
    let (count, reason) = if may_use_bbr || rtt < LONG_UNDER_LOSS {
        (count, reason)
    } else {
        let more = "if packets are lost, as BBR may not be used";
        let reason = format!("{reason}; up to {MAX_UNDER_LOSS} {more}");
        (MAX_UNDER_LOSS, reason)
    };
    ConnectionChoice {
        count,
        active,
        reason,
    }
}

/// Returns the number of connections that carry data at first, if the buffers let each carry the
/// rate `each`. One more than the path needs makes its queue overflow while all of them find out
/// its rate, which takes long where round trips are long.
fn active_at_first(rtt: Span, each: BitRate) -> u16 {
    if rtt < LONG {
        return MAX_CHOSEN;
    }
    TARGET
        .relative_to(each)
        .round()
        .clamp(1.0, f64::from(MAX_CHOSEN)) as u16
}

/// Returns the number of connections of a copy that carry data at first over a path of this
/// round-trip time.
pub fn initial_connections(rtt: Span, sender: &HostSettings, receiver: &HostSettings) -> u16 {
    choose_connections(None, true, rtt, [sender, receiver]).active
}

/// Returns the rate of one connection over a path whose only limit is this loss, if any, under
/// CUBIC.
fn carried_by_one(
    rtt: Span,
    loss: Option<Ratio>,
    [sender, receiver]: [&HostSettings; 2],
) -> BitRate {
    let direction = PathDirection {
        rate: None,
        delay: Span::ZERO,
        queue: None,
        loss,
        mtu: ByteCount::new(1500),
        framing: Framing::default(),
        ip: IpVersion::default(),
        encapsulation: Encapsulation::default(),
        effects: Effects::default(),
    };
    let congestion = loss.map(|_| CUBIC.to_owned());
    let request = Request {
        writer: Writer::Blocking,
        congestion,
        ..Request::default()
    };
    evaluate_ceilings(
        &Path::with_symmetric_rtt(&direction, rtt),
        sender,
        receiver,
        &request,
    )
    .kernel_model
}

/// Watches the connections of a sender, and adapts them to what they meet.
pub(crate) struct SenderMonitor {
    sockets: Arc<[TcpStream]>,
    /// A QUIC connection with so many streams.
    quic: Option<(Arc<QuicConnection>, u16)>,
    has_changed_over: SharedFlag,
    sender: Arc<FileSender>,
    rtt: Span,
    settings: [HostSettings; 2],
    /// Part of the time for which the connections gave way to other traffic, if they do.
    gave_way: Mutex<Option<Ratio>>,
}

impl SenderMonitor {
    /// Returns a monitor of these sockets. `settings` are those of the sender and the receiver.
    pub(crate) fn new(
        sender: &Arc<FileSender>,
        sockets: Arc<[TcpStream]>,
        quic: Option<(Arc<QuicConnection>, u16)>,
        rtt: Span,
        settings: [HostSettings; 2],
    ) -> Self {
        Self {
            sockets,
            quic,
            has_changed_over: SharedFlag::default(),
            sender: Arc::clone(sender),
            rtt,
            settings,
            gave_way: Mutex::default(),
        }
    }

    /// Watches until the transfer has ended.
    pub(crate) fn watch_transfer(&self) {
        let bounds = &self.sender.common.bounds;
        let mut pacer = ConnectionPacer::new(&self.sockets, self.rtt, bounds);
        let (mut course, mut before, began) =
            (CopyAdaptation::default(), BitRate::ZERO, Instant::now());
        let quic = self.quic.as_ref().filter(|_| !bounds.no_bbr);
        let mut quic = quic.map(|(connection, _)| QuicWatch::new(Arc::clone(connection)));
        while !self.is_over() {
            self.check_quic();
            self.check_tcp();
            self.sender.name_long_broken();
            if let Some(loss) = quic.as_mut().and_then(QuicWatch::check_loss) {
                self.sender
                    .common
                    .send_note(format!("BBR from here on: {}", loss_sentence(loss)));
            }
            pacer.update_pace();
            *lock(&self.gave_way) = pacer.gave_way();
            thread::sleep(CopyAdaptation::INTERVAL.into());
            if bounds.scavenge {
                continue;
            }
            let infos: Vec<TcpInfo> = self.tcp_infos().collect();
            let at = Time::from_nanos(began.elapsed().as_nanos() as u64);
            if let Some(change) = course.add_infos(at, &infos) {
                self.meet_change(change, &mut pacer, &mut before);
            }
        }
    }

    /// Adapts the connections to a change. `before` is the rate when they last filled no path.
    fn meet_change(
        &self,
        change: AdaptationChange,
        pacer: &mut ConnectionPacer<'_>,
        before: &mut BitRate,
    ) {
        match change {
            AdaptationChange::Lossy(loss) => {
                pacer.bound_by_delay();
                self.meet_loss(loss);
            }
            // Bounded as one, they leave a queue to others as one would.
            AdaptationChange::Queued(_) if pacer.is_coupled() => {}
            AdaptationChange::Queued(rate) => self.rest_connection(rate),
            AdaptationChange::Held => self.add_connection("full buffers hold back fewer"),
            AdaptationChange::Fast => self.add_connection("one processor may not keep up"),
            AdaptationChange::Unfilled(rate) => {
                if rate >= before.scale_by(MIN_GAIN) {
                    self.double_under_loss(rate);
                }
                *before = rate;
            }
        }
    }

    /// Gives the streams of a QUIC connection up that has ended: threads that have sent everything
    /// do not notice.
    fn check_quic(&self) {
        let Some((connection, streams)) = &self.quic else {
            return;
        };
        if let Some(why) = connection.closed_reason() {
            let first = self.sockets.len() as u16;
            (first..first + streams).for_each(|index| self.sender.lose_connection(index, &why));
        }
    }

    /// Gives the TCP connections up whose path is dead.
    fn check_tcp(&self) {
        for (index, socket) in (0..).zip(&*self.sockets) {
            self.end_silent(index, socket, &tcp_info(socket).unwrap_or_default());
        }
    }

    /// Gives a connection up if nothing answers any more, and lets the thread go that waits to
    /// write to it.
    fn end_silent(&self, index: u16, socket: &TcpStream, info: &TcpInfo) {
        if info.is_silent(DEAD_AFTER.into()) {
            self.sender.lose_connection(
                index,
                &format!("nothing was acknowledged for {}", Span::from(DEAD_AFTER)),
            );
            // It may have ended by itself.
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    fn is_over(&self) -> bool {
        self.sender.common.has_failed() || self.sender.queue.is_over()
    }

    /// Returns the figures of all connections up to now.
    pub(crate) fn sender_figures(&self) -> Figures {
        let infos: Vec<TcpInfo> = self.tcp_infos().collect();
        let figures = Figures::of_sender(&infos, self.congestion_control(), *lock(&self.gave_way));
        let has_changed_over = self.has_changed_over.is_raised();
        match &self.quic {
            Some((connection, streams)) if has_changed_over || self.sockets.is_empty() => {
                figures.with_quic(connection, *streams, has_changed_over)
            }
            _ => figures,
        }
    }

    fn tcp_infos(&self) -> impl Iterator<Item = TcpInfo> {
        self.sockets
            .iter()
            .filter_map(|socket| tcp_info(socket).ok())
    }

    fn congestion_control(&self) -> Option<String> {
        let name = SockRef::from(self.sockets.first()?).tcp_congestion().ok()?;
        Some(
            String::from_utf8_lossy(&name)
                .trim_end_matches('\0')
                .to_owned(),
        )
    }

    /// Lets another connection carry data, if there is one.
    fn add_connection(&self, why: &str) {
        let (active, live) = self.sender.queue.active_connections();
        if active < live {
            self.sender.queue.set_active(active + 1);
            self.sender.common.send_note(format!(
                "{} from here on: {why}",
                count_noun(active + 1, "connection")
            ));
        }
    }

    /// Changes to BBR, of which a loss halves only one connection. Where that may not be, as many
    /// carry data as reach the usual rate in spite of the loss.
    fn meet_loss(&self, loss: Ratio) {
        if self.uses_bbr() {
            return self.sender.queue.set_active(usize::MAX);
        }
        let (path, common) = (loss_sentence(loss), &self.sender.common);
        let is_permitted = !common.bounds.no_bbr;
        if is_permitted && self.change_to_bbr() {
            self.sender.queue.set_active(usize::MAX);
            return common.send_note(format!("BBR from here on: {path}"));
        }
        if is_permitted && self.change_over() {
            return common.send_note(format!(
                "QUIC with BBR from here on: {path}, and the sender may not use BBR with TCP"
            ));
        }
        let why_not = if is_permitted {
            "net.ipv4.tcp_allowed_congestion_control does not list it"
        } else {
            "--no-bbr forbids it"
        };
        let connections = count_noun(self.spread_under_loss(loss), "connection");
        common.send_note(format!(
            "{connections} from here on: {path}; BBR would carry more, but {why_not}"
        ));
    }

    /// Lets as many connections carry data as reach the usual rate in spite of the loss, and
    /// returns their number.
    fn spread_under_loss(&self, loss: Ratio) -> usize {
        let needed = streams::to_fill(self.carried_by_one(Some(loss)), TARGET).unwrap_or(u16::MAX);
        let (before, live) = self.sender.queue.active_connections();
        let active = usize::from(needed)
            .min(FIRST_UNDER_LOSS)
            .max(before)
            .min(live);
        for socket in &*self.sockets {
            // Without that they are only slower at the end.
            let _ = SockRef::from(socket).set_tcp_notsent_lowat(UNSENT);
        }
        self.sender.queue.set_active(active);
        active
    }

    /// Lets twice as many connections carry data on a path that loses packets without a queue,
    /// under CUBIC.
    fn double_under_loss(&self, rate: BitRate) {
        let (active, live) = self.sender.queue.active_connections();
        let more = (active * 2).min(live);
        if more > active && !self.uses_bbr() {
            self.sender.queue.set_active(more);
            self.sender.common.send_note(format!(
                "{} from here on: {rate} do not fill the path",
                count_noun(more, "connection")
            ));
        }
    }

    fn change_to_bbr(&self) -> bool {
        for socket in &*self.sockets {
            // Those that refuse are found by what they have then.
            let _ = SockRef::from(socket).set_tcp_congestion(LOSS_TOLERANT.as_bytes());
        }
        self.uses_bbr()
    }

    fn uses_bbr(&self) -> bool {
        self.congestion_control().as_deref() == Some(LOSS_TOLERANT)
    }

    fn carried_by_one(&self, loss: Option<Ratio>) -> BitRate {
        carried_by_one(self.rtt, loss, [&self.settings[0], &self.settings[1]])
    }

    /// Lets the QUIC connection that stands by carry the data from now on, if there is one.
    fn change_over(&self) -> bool {
        let Some((connection, _)) = &self.quic else {
            return false;
        };
        connection.tolerate_loss();
        let has_changed = self.sender.queue.change_over();
        if has_changed {
            self.has_changed_over.raise_flag();
        }
        has_changed
    }

    /// Lets one connection rest, if the others can carry the rate. BBR keeps a queue with any
    /// number of connections.
    fn rest_connection(&self, rate: BitRate) {
        let each = self.carried_by_one(None);
        let needed = streams::to_fill(each, rate).unwrap_or(MAX_CHOSEN).max(1);
        let (active, _) = self.sender.queue.active_connections();
        if usize::from(needed) < active && !self.uses_bbr() {
            self.sender.queue.set_active(active - 1);
            let text = format!(
                "one of {active} connections rests: it would only fill the queue of the path"
            );
            self.sender.common.send_note(text);
        }
    }
}

fn loss_sentence(loss: Ratio) -> String {
    format!(
        "this path loses {:.2} % of its packets without a queue",
        loss.as_percent()
    )
}

/// Returns the reason for so many streams on a QUIC connection with this round-trip time.
pub(crate) fn quic_reason(asked: Option<u16>, streams: u16, rtt: Span) -> String {
    let asked = if asked.is_some() {
        ", as asked for"
    } else {
        ""
    };
    format!(
        "QUIC with {}{asked}, RTT {rtt}",
        count_noun(streams, "stream")
    )
}

#[cfg(test)]
mod tests;
