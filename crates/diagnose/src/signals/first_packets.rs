//! What the path made of the first packets, before the judged part, as the receiving end counted
//! them. It counts a packet whether or not others before it were lost.

use crate::prelude::*;
use crate::signals::ReceiverView;
use crate::thresholds::{CLOCK_TICK, INFLATED_RTT_FACTOR};

/// Round trips for which a queue stands, or packets are lost, at least, to show at which rate the
/// path passes them (measured: 2.1 and more of full links; 4 and more of policers).
const MIN_ROUND_TRIPS: f64 = 2.0;
/// Multiple of the idle round-trip time up to which packets met no queue.
const MAX_RTT_WITHOUT_QUEUE: f64 = 1.1;
/// Share of the packets that came while others before them were missing, from which a device takes
/// many (measured: 0.54 and more of policers after the burst that they let pass; up to 0.36 where
/// a sender that keeps to a rate began too fast).
const MANY_LOST: f64 = 0.5;

/// Packets in a part of the time.
#[derive(Default)]
struct CountedPackets {
    time: Span,
    packets: u64,
}

impl CountedPackets {
    fn add_pair(&mut self, before: &Sample, now: &Sample) {
        self.time += now.at.saturating_sub(before.at);
        self.packets += growth(before, now, |tcp| tcp.data_segs_in);
    }

    /// Returns the packets a second.
    fn rate(&self) -> f64 {
        self.packets as f64 / self.time.as_secs_f64()
    }
}

fn growth(before: &Sample, now: &Sample, counter: fn(&TcpInfo) -> Option<SegCount>) -> u64 {
    let [before, now] = [before, now].map(|one| counter(&one.tcp).map_or(0, SegCount::get));
    now.saturating_sub(before)
}

impl ReceiverView<'_> {
    /// Returns the packets a second of the judged part over those that came through a queue before
    /// it; `None` if none stood for long enough, or packets were not counted.
    pub(crate) fn share_of_first_queue(&self) -> Option<f64> {
        let queue = self.evidence.idle_rtt?.scale_by(INFLATED_RTT_FACTOR) + CLOCK_TICK;
        self.share_of_first_packets(|before, now| {
            let waits = |one: &Sample| one.tcp.rcv_rtt.is_some_and(|rtt| rtt > queue);
            waits(before) && waits(now)
        })
    }

    /// Returns the packets a second of the judged part over those that came before it without a
    /// queue, while many were lost; `None` if that did not last, or packets were not counted.
    pub(crate) fn share_of_first_losses(&self) -> Option<f64> {
        let queue = self.evidence.idle_rtt?.scale_by(MAX_RTT_WITHOUT_QUEUE) + CLOCK_TICK;
        self.share_of_first_packets(|before, now| {
            let came = growth(before, now, |tcp| tcp.data_segs_in);
            let after_lost = growth(before, now, |tcp| tcp.out_of_order_in);
            now.tcp.rcv_rtt.is_some_and(|rtt| rtt <= queue)
                && after_lost as f64 > came as f64 * MANY_LOST
        })
    }

    /// Returns the packets a second of the judged part of the only connection over those between the
    /// samples before it that `belong` to what is looked for.
    fn share_of_first_packets(&self, belong: impl Fn(&Sample, &Sample) -> bool) -> Option<f64> {
        let ([whole], [judged]) = (&self.whole[..], &self.flows[..]) else {
            return None;
        };
        let (begin, end) = (judged.first()?, judged.last()?);
        let mut first = CountedPackets::default();
        for pair in whole.windows(2).filter(|pair| pair[1].at <= begin.at) {
            if belong(pair[0], pair[1]) {
                first.add_pair(pair[0], pair[1]);
            }
        }
        let mut later = CountedPackets::default();
        later.add_pair(begin, end);
        let lasts = first.time >= self.evidence.idle_rtt?.scale_by(MIN_ROUND_TRIPS);
        (lasts && first.packets > 0 && later.time > Span::ZERO).then(|| later.rate() / first.rate())
    }
}
