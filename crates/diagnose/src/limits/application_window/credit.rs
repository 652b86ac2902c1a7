//! Credit above TCP: the sending program may have so many bytes on the way, and waits for a message
//! of the receiving one before it sends more.

use crate::limits::prelude::*;
use crate::signals::arrivals::growth_in_flow;
use crate::signals::{JudgedSample, time_ratio};
use crate::thresholds::{MIN_CHANNEL_FILL, TICK_TOLERANCE};

/// Credit that holds a transfer back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProgramCredit {
    /// Bytes of one connection that are usually on the way or about to be sent.
    pub(crate) size: ByteCount,
    /// The most of them at any time; `None` from the receiving end, which does not see it.
    pub(crate) most: Option<ByteCount>,
    /// Rate that `size` allows, all connections together.
    pub(crate) allowed: BitRate,
    /// True if the messages alone show it, whatever the programs are.
    pub(crate) is_shown_by_messages: bool,
}

/// Snapshots of silence by what came before it.
#[derive(Debug, Clone, Copy, Default)]
struct SilenceVotes {
    /// The last data and the last message went together.
    following: u32,
    /// One went without the other.
    apart: u32,
}

/// Least number of snapshots of silence that show what a sending program waits for.
const MIN_CREDIT_VOTES: u32 = 8;
/// Least number of snapshots of silence where all credit is used nearly always, so that there is
/// little silence.
const FEW_CREDIT_VOTES: u32 = 3;
/// Share of the snapshots of silence in which the last data left when the last message had come
/// (measured: 0.96 and more with credit; 0 to 0.7 of a program that keeps to a rate, whose peer
/// sends messages too).
const MIN_FOLLOWING_SHARE: f64 = 0.8;
/// Share of the snapshots of silence in which data left with a message, below which it leaves at
/// times of its own.
const MIN_UNREFUTED_SHARE: f64 = 0.25;

impl SilenceVotes {
    fn from_votes(votes: impl Iterator<Item = bool>) -> Self {
        votes.fold(Self::default(), |mut sum, follows| {
            sum.following += u32::from(follows);
            sum.apart += u32::from(!follows);
            sum
        })
    }

    fn following_share(self) -> f64 {
        Ratio::from_quotient(
            f64::from(self.following),
            f64::from(self.following + self.apart),
        )
        .get()
    }

    /// Returns true if data leaves when a message has come, and at no other times.
    fn are_clear(self) -> bool {
        self.following >= MIN_CREDIT_VOTES && self.following_share() >= MIN_FOLLOWING_SHARE
    }

    /// Returns true if mostly so, of the few snapshots of silence that there are.
    fn are_likely(self) -> bool {
        self.following >= FEW_CREDIT_VOTES && self.following_share() >= MIN_LIMIT_SHARE
    }

    /// Returns true if data often leaves at times of its own.
    fn refute(self) -> bool {
        self.apart >= MIN_CREDIT_VOTES && self.following_share() < MIN_UNREFUTED_SHARE
    }
}

/// Share of the snapshots in which all credit is used, at least. A program that keeps to a rate has
/// as much on the way as ever in 1 to 5 % of them (measured).
const MIN_FULL_CREDIT_TIME: f64 = 0.4;

impl ProgramCredit {
    /// Returns the window that the request states of its programs, if the rate is what that allows;
    /// `None` also where they pause for longer than a round trip takes, which is then the limit.
    fn as_stated(evidence: &Evidence, rate: BitRate, rtt: Span) -> Option<Self> {
        let (stated, request) = (evidence.request.stated_load(), &evidence.request);
        let (window, pause) = (stated.app_window?, stated.pause.unwrap_or_default());
        let all = window.bytes * u64::from(request.streams.max(1));
        let allowed = BitRate::from_bytes_in(all, rtt + pause);
        (pause <= rtt && is_reached(rate, allowed)).then_some(Self {
            size: window.bytes,
            most: None,
            allowed,
            is_shown_by_messages: true,
        })
    }

    /// Returns the credit that is stated, or that the sending end's samples show; `None` where TCP's
    /// windows have no room, where a round trip passes without a message, or where the rate is
    /// another.
    pub(crate) fn from_sender(figures: &SenderView) -> Option<Self> {
        let rtt = figures.rtt?;
        let stated = Self::as_stated(figures.evidence, figures.rate, rtt);
        if stated.is_some() {
            return stated;
        }
        let has_room = share_of_votes(figures.snapshots().map(JudgedSample::has_room))?;
        if has_room.get() < MIN_LIMIT_SHARE || !has_messages(figures, rtt) {
            return None;
        }
        let sizes = figures.flows.iter().map(usual_size);
        let all: ByteCount = sizes.collect::<Option<Vec<_>>>()?.into_iter().sum();
        let allowed = BitRate::from_bytes_in(all, rtt);
        let votes = SilenceVotes::from_votes(figures.flows.iter().flat_map(sender_votes));
        let full = share_of_votes(figures.flows.iter().flat_map(full_votes))?;
        let is_level = full.get() >= MIN_FULL_CREDIT_TIME && !votes.refute();
        let is_shown = votes.are_clear() || is_level;
        (is_shown && is_reached(figures.rate, allowed)).then(|| Self {
            size: ByteCount::new(all.get() / u64::from(figures.stream_count())),
            most: figures.snapshots().filter_map(offered_bytes).max(),
            allowed,
            is_shown_by_messages: votes.are_clear() || votes.are_likely(),
        })
    }

    /// Returns the credit that is stated, or that the receiving end's samples show: what a round trip
    /// brings, where data and this end's small messages come together, with silence in between.
    pub(crate) fn from_receiver(arrivals: &ReceiverView) -> Option<Self> {
        let rtt = arrivals.rtt?;
        let stated = Self::as_stated(arrivals.evidence, arrivals.rate, rtt);
        if stated.is_some() {
            return stated;
        }
        let flows = &arrivals.flows;
        let sent = receiver_growth(flows, |tcp| Some(tcp.bytes_sent?.get()))?;
        let received = receiver_growth(flows, |tcp| Some(tcp.bytes_received?.get()))?;
        let messages = receiver_growth(flows, |tcp| Some(tcp.data_segs_out?.get()))?;
        let time: Span = flows.iter().filter_map(|flow| time_of(flow)).sum();
        let are_small = sent.saturating_mul(FEW_BACK) <= received;
        let votes = arrivals
            .snapshots()
            .filter_map(|now| receiver_vote(now, rtt));
        let is_shown = are_small
            && are_enough(messages, time, rtt)
            && SilenceVotes::from_votes(votes).are_clear();
        let brought = arrivals.rate.bytes_in(rtt).get();
        is_shown.then(|| Self {
            size: ByteCount::new(brought / flows.len().max(1) as u64),
            most: None,
            allowed: arrivals.rate,
            is_shown_by_messages: true,
        })
    }
}

/// Messages of a receiving program are no more than this part of the data.
const FEW_BACK: u64 = 10;

/// Returns the growth of a counter of the receiving end, all connections together.
fn receiver_growth(flows: &[Vec<&Sample>], counter: fn(&TcpInfo) -> Option<u64>) -> Option<u64> {
    flows.iter().map(|flow| growth_in_flow(flow, counter)).sum()
}

pub(crate) fn time_of(flow: &[&Sample]) -> Option<Span> {
    Some(flow.last()?.at.saturating_sub(flow.first()?.at))
}

/// Returns of a snapshot of silence whether this end's last message is not much younger than the
/// last data, and no older than a round trip before it: data answers the messages of a round trip
/// ago, and not each train of it makes the next message.
fn receiver_vote(now: &Sample, rtt: Span) -> Option<bool> {
    let (sent, received) = (now.tcp.since_data_sent?, now.tcp.since_data_received?);
    let is_silent = received > TICK_TOLERANCE;
    let goes_with = sent + TICK_TOLERANCE >= received
        && sent <= received + rtt
        && received <= rtt + TICK_TOLERANCE;
    is_silent.then_some(goes_with)
}

/// Largest share of the rate which the window of a program allows that a transfer held by it
/// reaches: the round-trip time under load varies.
const MAX_CHANNEL_FILL: f64 = 1.1;

/// Returns true if the rate is what a window above TCP allows, within the bounds of all of them.
pub(crate) fn is_reached(rate: BitRate, allowed: BitRate) -> bool {
    allowed > BitRate::ZERO
        && (MIN_CHANNEL_FILL..=MAX_CHANNEL_FILL).contains(&rate.relative_to(allowed))
}

/// Returns true if the receiving program sent something in about each round trip of each stream.
fn has_messages(figures: &SenderView, rtt: Span) -> bool {
    figures.flows.iter().all(|flow| {
        flow.counter_growth(received_count)
            .is_some_and(|messages| are_enough(messages, flow.judged_duration(), rtt))
    })
}

/// Returns the segments of the other end that held data; their bytes, if the kernel counts no
/// segments.
fn received_count(tcp: &TcpInfo) -> Option<u64> {
    tcp.data_segs_in
        .map(SegCount::get)
        .or_else(|| tcp.bytes_received.map(ByteCount::get))
}

/// Messages of the receiving program by round trips, at least, where it grants credit: one that
/// waits for the whole of it sends one in each, and the last byte comes later than the first
/// (measured: 0.67 where a pace spreads it).
const MIN_CREDIT_MESSAGES: f64 = 0.6;

fn are_enough(messages: u64, time: Span, rtt: Span) -> bool {
    let rounds = time_ratio(time, rtt).get();
    rounds > 0.0 && messages as f64 >= rounds * MIN_CREDIT_MESSAGES
}

/// Returns the bytes that the program has written and that have not arrived.
fn offered_bytes(snapshot: &JudgedSample) -> Option<ByteCount> {
    Some(snapshot.outstanding? + snapshot.not_sent?)
}

fn usual_size(flow: &SenderStream) -> Option<ByteCount> {
    median(flow.snapshots.iter().filter_map(offered_bytes).collect())
}

/// Share of the most that a stream ever had on the way from which all its credit is used: frames
/// and records make it differ a little (measured with HTTP/2: 65 535 to 65 949 bytes).
const FULL_CREDIT_SHARE: f64 = 0.97;

/// Returns of each snapshot whether the stream had as much on the way as it ever had.
fn full_votes(flow: &SenderStream) -> Vec<Option<bool>> {
    let offered = flow.snapshots.iter().map(offered_bytes);
    let most = offered.clone().flatten().max().unwrap_or_default();
    let full = most.scale_by(FULL_CREDIT_SHARE);
    offered.map(|size| Some(size? >= full)).collect()
}

/// Returns of each snapshot of silence whether the last data left when the last message had come,
/// and nothing has come since. A pace takes its time for what was granted at once.
fn sender_votes(flow: &SenderStream) -> Vec<bool> {
    let size = usual_size(flow).unwrap_or_default();
    let votes = flow.snapshots.iter().filter_map(|snapshot| {
        let tcp = &snapshot.sample.tcp;
        let (sent, received) = (tcp.since_data_sent?, tcp.since_data_received?);
        let paced = tcp
            .pacing_rate
            .map_or(Span::ZERO, |pace| pace.time_for(size));
        let late = TICK_TOLERANCE + paced;
        let is_silent = snapshot.not_sent == Some(ByteCount::ZERO)
            && snapshot.outstanding > Some(ByteCount::ZERO)
            && sent.max(received) > late;
        is_silent.then_some(sent <= received + TICK_TOLERANCE && received <= sent + late)
    });
    votes.collect()
}
