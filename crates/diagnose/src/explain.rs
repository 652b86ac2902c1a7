//! The verdict in words, for readers who are new to TCP, and the figures behind it by their names.

use std::collections::BTreeMap;

use fullpipe_record::{At, Cause, Evidence, Limit};
use fullpipe_units::{BitRate, ByteCount, Ratio, Span};

use crate::application;
use crate::figures::Figures;
use crate::finding::Finding;
use crate::middlebox;
use crate::pacing;
use crate::path;
use crate::syn_quotes;

/// One plain sentence with the figures that matter.
pub(crate) fn sentence(figures: &Figures, finding: &Finding, ceilings: &BTreeMap<Limit, BitRate>) -> String {
    match finding.kind {
        Limit::ReceiveWindow => receive_window(figures, finding.cause, ceilings),
        Limit::ReceiverApplication if finding.cause == Cause::Storage => {
            format!("Writing the file holds the transfer back: {} of the receiver's time went into it.", finding.share)
        }
        Limit::ReceiverApplication => slow_reader(figures),
        Limit::SendBuffer => send_buffer(figures, finding.cause, ceilings),
        Limit::SenderApplication if finding.cause == Cause::RateLimited => format!(
            "The sending program was asked for {} and offered no more; neither network nor buffers held it back.",
            rate(figures.offered())
        ),
        Limit::SenderApplication if finding.cause == Cause::Storage => {
            format!("Reading the file holds the transfer back: {} of the sender's time went into it.", finding.share)
        }
        Limit::SenderApplication => format!(
            "The sending program is slow: for {} of the time it left the connection without enough to send; \
             neither network nor buffers held it back.",
            finding.share
        ),
        Limit::Capacity => capacity(figures, finding.cause),
        Limit::Loss => loss(figures, finding.cause),
        Limit::CongestionWindow => congestion_window(figures, finding.cause),
        Limit::Pacing => pacing(figures, finding.cause),
        Limit::Cpu => cpu(finding),
        Limit::Mtu => mtu(figures, finding.cause),
        Limit::ApplicationWindow => application::sentence(figures.evidence, figures.rate, figures.rtt),
        Limit::Unknown => format!(
            "What limits this transfer cannot be said; to tell, this would be needed: {}.",
            finding.missing.join(", ")
        ),
    }
}

fn receive_window(figures: &Figures, cause: Cause, ceilings: &BTreeMap<Limit, BitRate>) -> String {
    let window = size(figures.most(|snapshot| snapshot.window));
    let reason = match cause {
        // An offer may also have been lost on the way to a host that is not seen.
        Cause::NoWindowScaling if figures.evidence.receiver.is_none() => {
            "the other end agreed to no window scaling".to_owned()
        }
        cause => reason_of_window(cause, &syn_quotes::place(figures.evidence)),
    };
    let misread = middlebox::misread(figures).filter(|_| cause != Cause::WindowClamped);
    let misread =
        misread.map_or_else(String::new, |factor| format!(", so that the sender takes it for 1/{factor} of itself"));
    format!(
        "The receiver allows at most {window} on the way{} ({reason}{misread}), which is {} over {}{}.",
        in_streams(figures),
        rate(ceilings.get(&Limit::ReceiveWindow).copied()),
        time(figures.rtt),
        could_carry(figures),
    )
}

/// Why a window is as small as it is; where a device makes it so, the device stands at `place`.
pub(crate) fn reason_of_window(cause: Cause, place: &str) -> String {
    let device = |does| format!("a device {place} {does}");
    match cause {
        Cause::NoWindowScaling => "window scaling is off".to_owned(),
        Cause::SoRcvbuf => "its program fixed the buffer, SO_RCVBUF".to_owned(),
        Cause::WindowScaleStripped => device("removes the option that scales windows"),
        Cause::WindowScaleRewritten => device("changes the scale of the window"),
        Cause::WindowClamped => device("lowers the window"),
        _ => "tcp_rmem".to_owned(),
    }
}

fn send_buffer(figures: &Figures, cause: Cause, ceilings: &BTreeMap<Limit, BitRate>) -> String {
    let reason = if cause == Cause::SoSndbuf { "fixed by its program, SO_SNDBUF" } else { "tcp_wmem" };
    format!(
        "The sender's send buffer is full: it holds {}{} ({reason}), which is {} over {}{}.",
        size(figures.most(|snapshot| snapshot.sndbuf)),
        in_streams(figures),
        rate(ceilings.get(&Limit::SendBuffer).copied()),
        time(figures.rtt),
        could_carry(figures),
    )
}

fn slow_reader(figures: &Figures) -> String {
    format!(
        "The receiving program reads too slowly: it leaves room for {} at a time, where there was once room for {}.",
        size(figures.mean(|snapshot| snapshot.window)),
        size(largest_window(figures)),
    )
}

fn capacity(figures: &Figures, cause: Cause) -> String {
    let rate = figures.rate;
    match (path::stated_capacity(figures), figures.evidence.bandwidth) {
        _ if cause == Cause::HostQueue => format!(
            "The sender's own queue or network device drops packets at {rate}: they are lost before they leave the host."
        ),
        _ if cause == Cause::Shared => format!(
            "The pipe is full, but not with this transfer alone: its part is {rate}{} (round trip {} idle, {} now).",
            could_carry(figures),
            time(figures.idle_rtt),
            time(figures.rtt),
        ),
        (Some(capacity), Some(bandwidth)) => format!(
            "The pipe is full: {rate} of data passes, {:.0} % of the {capacity} that a path of {bandwidth} can carry.",
            rate.relative_to(capacity) * 100.0,
        ),
        _ => format!(
            "The pipe is full at {rate}: sending more only lengthens the queue (round trip {} idle, {} now).",
            time(figures.idle_rtt),
            time(figures.rtt),
        ),
    }
}

fn pacing(figures: &Figures, cause: Cause) -> String {
    let rate = figures.rate;
    match cause {
        Cause::MaxPacingRate => format!(
            "The sending program set a greatest pace of {} on its sockets, and the transfer reaches it{}.",
            self::rate(pacing::greatest_pace(figures)),
            could_carry(figures),
        ),
        Cause::Qdisc => format!(
            "A queueing discipline of the sender's network device holds packets to a rate: {rate} of data passes{}.",
            could_carry(figures),
        ),
        _ => format!(
            "The sender's congestion control paces at {}, below what its window of {} would allow{}.",
            self::rate(pacing::pace(figures)),
            size(figures.mean(|snapshot| snapshot.cwnd)),
            could_carry(figures),
        ),
    }
}

fn cpu(finding: &Finding) -> String {
    let end = if finding.at == At::Receiver { "receiver" } else { "sender" };
    let share = finding.share;
    match finding.cause {
        Cause::Stolen => {
            format!("The {end} lacks processor time: for {share} of the time a quota or the hypervisor withheld it.")
        }
        Cause::User => format!("The {end}'s processor is full ({share} of one), most of it in programs."),
        _ => format!("The {end}'s processor is full ({share} of one), most of it in the kernel."),
    }
}

fn mtu(figures: &Figures, cause: Cause) -> String {
    let mss = size(figures.mss);
    match cause {
        Cause::BlackHole => format!(
            "Packets with {mss} of data vanish on the path, and nothing says so: small ones pass, full ones do not."
        ),
        _ => format!(
            "A device {} lowers the size of segments: they carry only {mss} of data where {} would fit; headers take the rest \
             of the path, and {} of data passes.",
            syn_quotes::place(figures.evidence),
            size(middlebox::possible_mss(figures)),
            figures.rate,
        ),
    }
}

fn loss(figures: &Figures, cause: Cause) -> String {
    let share = figures.lost().map_or_else(|| "some".to_owned(), |lost| lost.ratio().to_string());
    let how = match cause {
        Cause::ShallowQueue => "always at the same amount on the way: a queue on the path is too short",
        Cause::Policer => "many at once and without a queue that fills: a device discards what exceeds a rate",
        _ => "without a queue that fills",
    };
    format!(
        "Packet loss holds the sender back: {share} of the packets were lost, {how}; that leaves {} over {}{}.",
        figures.rate,
        time(figures.rtt),
        could_carry(figures),
    )
}

fn congestion_window(figures: &Figures, cause: Cause) -> String {
    let (window, rtt) = (size(figures.mean(|snapshot| snapshot.cwnd)), time(figures.rtt));
    match cause {
        Cause::RampUp => format!(
            "The transfer was still speeding up when it ended: a sender starts slowly and doubles each round trip ({rtt}).",
        ),
        Cause::Reordering => format!(
            "Packets overtake each other, and the sender takes the late ones for lost: it keeps {window} on the way.",
        ),
        Cause::Recovering => format!(
            "The sender still recovers from an earlier loss: it lets {window} on the way and adds to it each {rtt}.",
        ),
        _ => format!(
            "The sender left its fast start early, though nothing was lost: it lets {window} on the way and adds slowly.",
        ),
    }
}

/// What the view of the other end would add to a verdict that rests on one.
pub(crate) fn other_end_would_show(evidence: &Evidence, finding: &Finding) -> Option<String> {
    if evidence.sender_samples.is_empty() || !evidence.receiver_samples.is_empty() {
        return None;
    }
    let more = match finding.kind {
        Limit::ReceiveWindow => {
            "whether its program, its tcp_rmem, its processor or a device between the ends makes the window what it is"
        }
        Limit::ReceiverApplication => "whether its program, its disk or its processor is slow",
        Limit::Mtu => "the size of the packets that reached it",
        Limit::Unknown => "its windows, buffers and processor",
        _ => return None,
    };
    Some(more.to_owned())
}

/// The figures that decided, by the names they have on the screen.
pub(crate) fn shown(figures: &Figures, finding: &Finding) -> BTreeMap<String, String> {
    let of = |part: Option<ByteCount>, whole: Option<ByteCount>| Some(format!("{} of {}", part?, whole?));
    let lost = figures.retransmitted();
    let always = [
        ("rate", Some(figures.rate.to_string())),
        ("round trip", figures.rtt.map(|rtt| format!("{rtt}, idle {}", time(figures.idle_rtt)))),
        ("congestion control", figures.congestion().map(str::to_owned)),
        ("samples", Some(samples(figures))),
        ("retransmitted", lost.map(|lost| format!("{} of {} segments", lost.again, lost.sent))),
        ("SYN as quoted by routers", syn_quotes::stated(figures.evidence)),
        ("missing", (!finding.missing.is_empty()).then(|| finding.missing.join(", "))),
    ];
    let in_flight =
        ("in flight mean", of(figures.mean(|snapshot| snapshot.outstanding), figures.mean(|snapshot| snapshot.window)));
    let unsent = ("unsent mean", figures.mean(|snapshot| snapshot.not_sent).map(|size| size.to_string()));
    let in_pipe =
        ("pipe mean", of(figures.mean(|snapshot| snapshot.sample.pipe()), figures.mean(|snapshot| snapshot.cwnd)));
    let queued =
        ("wmem_queued mean", of(figures.mean(|snapshot| snapshot.queued), figures.most(|snapshot| snapshot.sndbuf)));
    let clock = |name, share: Option<Ratio>| (name, share.map(|share| format!("{share} of busy time")));
    let deciding = match finding.kind {
        Limit::ReceiveWindow | Limit::ReceiverApplication => vec![
            in_flight,
            unsent,
            ("window most", largest_window(figures).map(|size| size.to_string())),
            clock("rwnd_limited", figures.share_of_busy(|tcp| tcp.rwnd_limited)),
        ],
        Limit::SendBuffer => {
            vec![queued, in_flight, unsent, clock("sndbuf_limited", figures.share_of_busy(|tcp| tcp.sndbuf_limited))]
        }
        Limit::SenderApplication => vec![queued, unsent, ("idle", figures.idle().map(|idle| idle.to_string()))],
        Limit::Capacity | Limit::Loss | Limit::CongestionWindow => vec![
            in_pipe,
            unsent,
            ("recoveries seen", lost.map(|lost| lost.episodes.to_string())),
            ("capacity told", path::stated_capacity(figures).map(|rate| rate.to_string())),
        ],
        _ => vec![in_flight, in_pipe, queued, unsent, ("idle", figures.idle().map(|idle| idle.to_string()))],
    };
    always.into_iter().chain(deciding).filter_map(|(name, text)| Some((name.to_owned(), text?))).collect()
}

/// The largest window that the receiver ever offered, of all streams.
fn largest_window(figures: &Figures) -> Option<ByteCount> {
    let ever = figures.flows.iter().filter_map(|flow| flow.whole.iter().filter_map(|sample| sample.tcp.snd_wnd).max());
    figures.most(|snapshot| snapshot.window).map(|judged| judged.max(ever.sum()))
}

fn could_carry(figures: &Figures) -> String {
    path::stated_capacity(figures).map_or_else(String::new, |rate| format!("; the path could carry {rate}"))
}

fn samples(figures: &Figures) -> String {
    of_streams(figures.snapshots().count(), figures.flows.len())
}

/// `100 of 3 streams`.
pub(crate) fn of_streams(snapshots: usize, streams: usize) -> String {
    if streams == 1 { format!("{snapshots} of 1 stream") } else { format!("{snapshots} of {streams} streams") }
}

fn in_streams(figures: &Figures) -> String {
    match figures.streams() {
        1 => String::new(),
        streams => format!(" in {streams} streams together"),
    }
}

fn size(size: Option<ByteCount>) -> String {
    size.map_or_else(|| UNTOLD.to_owned(), |size| size.to_string())
}

fn time(span: Option<Span>) -> String {
    span.map_or_else(|| UNTOLD.to_owned(), |span| span.to_string())
}

fn rate(rate: Option<BitRate>) -> String {
    rate.map_or_else(|| UNTOLD.to_owned(), |rate| rate.to_string())
}

/// In place of a figure that the evidence does not have.
const UNTOLD: &str = "an unknown amount";
