//! The probes that were sent, and their replies.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use fullpipe_record::{Hop, Refusal, RouteMethod, RouteMtu, RouteReport};

use super::socket::ProbeReply;

/// The state of a route that is being traced.
pub(super) struct RouteState {
    target: IpAddr,
    /// The probes, in the order of their numbers.
    probes: Vec<SentProbe>,
}

struct SentProbe {
    /// TTL of the probe; `None` if it may go the whole way.
    hop: Option<u8>,
    /// Time at which it was sent; `None` if this host did not send it.
    sent: Option<Instant>,
    reply: Option<TimedReply>,
}

#[derive(Clone, Copy)]
struct TimedReply {
    kind: ProbeReply,
    by: Option<IpAddr>,
    after: Duration,
}

impl RouteState {
    pub(super) fn new(target: IpAddr) -> Self {
        Self {
            target,
            probes: Vec::new(),
        }
    }

    /// Returns the number of the next probe.
    pub(super) fn next_number(&self) -> u16 {
        self.probes.len() as u16
    }

    /// Records that the next probe is about to be sent.
    pub(super) fn record_sent(&mut self, hop: Option<u8>, now: Instant) {
        self.probes.push(SentProbe {
            hop,
            sent: Some(now),
            reply: None,
        });
    }

    /// Records that probe `number` could not be sent.
    pub(super) fn record_unsent(&mut self, number: u16) {
        if let Some(probe) = self.probes.get_mut(usize::from(number)) {
            probe.sent = None;
        }
    }

    /// Records a reply to probe `number`, of which only the first counts.
    pub(super) fn record_reply(
        &mut self,
        number: u16,
        by: Option<IpAddr>,
        kind: ProbeReply,
        now: Instant,
    ) {
        let Some(probe) = self.probes.get_mut(usize::from(number)) else {
            return;
        };
        // A "port unreachable" from the target itself shows that the probe reached it.
        let kind = if by == Some(self.target) && kind == ProbeReply::Closed {
            ProbeReply::Reached
        } else {
            kind
        };
        if let (Some(sent), None) = (probe.sent, probe.reply) {
            probe.reply = Some(TimedReply {
                kind,
                by,
                after: now.duration_since(sent),
            });
        }
    }

    /// Returns the reply to probe `number` and its sender; `None` if there is none yet.
    pub(super) fn probe_reply(&self, number: u16) -> Option<(ProbeReply, Option<IpAddr>)> {
        self.probes
            .get(usize::from(number))?
            .reply
            .map(|reply| (reply.kind, reply.by))
    }

    /// Returns true if every probe was answered, up to the hop at which the route ends.
    pub(super) fn is_complete(&self) -> bool {
        let end = self.last_hop();
        self.probes
            .iter()
            .filter(|probe| end.is_none() || probe.hop <= end)
            .all(|probe| probe.reply.is_some() || probe.sent.is_none())
    }

    /// Returns the longest time that a reply has taken so far.
    pub(super) fn max_reply_time(&self) -> Option<Duration> {
        self.probes
            .iter()
            .filter_map(|probe| probe.reply.map(|reply| reply.after))
            .max()
    }

    /// Returns the nearest hop that ends the route: that of the target, or of a router that
    /// refuses.
    pub(super) fn last_hop(&self) -> Option<u8> {
        self.probes
            .iter()
            .filter(|probe| probe.reply.is_some_and(|reply| reply.kind.ends_route()))
            .filter_map(|probe| probe.hop)
            .min()
    }

    /// Returns true if the target answered.
    pub(super) fn is_reached(&self) -> bool {
        self.probes
            .iter()
            .filter_map(|probe| probe.reply)
            .any(|reply| self.is_from_target(reply))
    }

    fn is_from_target(&self, reply: TimedReply) -> bool {
        reply.kind == ProbeReply::Reached
            || (reply.by == Some(self.target) && reply.kind.ends_route())
    }

    /// Returns the report of the route.
    pub(super) fn to_report(&self, method: RouteMethod, mtu: Option<RouteMtu>) -> RouteReport {
        let last_answered = self
            .probes
            .iter()
            .filter(|probe| probe.reply.is_some())
            .filter_map(|probe| probe.hop)
            .max();
        let last = self.last_hop().or(last_answered).unwrap_or(0);
        RouteReport {
            target: self.target.to_string(),
            method,
            hops: (1..=last).map(|number| self.hop_report(number)).collect(),
            reached: self.is_reached(),
            mtu,
        }
    }

    fn hop_report(&self, number: u8) -> Hop {
        let sent: Vec<&SentProbe> = self
            .probes
            .iter()
            .filter(|probe| probe.hop == Some(number) && probe.sent.is_some())
            .collect();
        let replies: Vec<TimedReply> = sent.iter().filter_map(|probe| probe.reply).collect();
        let mut addresses = Vec::new();
        for address in replies
            .iter()
            .filter_map(|reply| reply.by)
            .map(|by| by.to_string())
        {
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        Hop {
            number,
            addresses,
            sent: sent.len() as u16,
            rtts: replies.iter().map(|reply| reply.after.into()).collect(),
            refusal: replies.iter().find_map(|reply| reply.kind.refusal()),
        }
    }
}

impl ProbeReply {
    /// Returns true if probes go no further than the sender of this reply.
    fn ends_route(self) -> bool {
        matches!(self, Self::Reached | Self::Closed | Self::Refused(_))
    }

    fn refusal(self) -> Option<Refusal> {
        match self {
            Self::Refused(refusal) => Some(refusal),
            // A router that rejects the packet on behalf of the host behind it.
            Self::Closed => Some(Refusal::Prohibited),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_units::Span;

    fn ip(last: u8) -> IpAddr {
        [192, 0, 2, last].into()
    }

    /// Returns a route to 192.0.2.9 with two probes to each of `hops` hops, in turn, and `replies`
    /// (probe, last byte of the sender, reply), each one millisecond after its probe.
    fn route(hops: u8, replies: &[(u16, u8, ProbeReply)]) -> RouteState {
        let (mut route, now) = (RouteState::new(ip(9)), Instant::now());
        for probe in 0..hops * 2 {
            route.record_sent(Some(probe % hops + 1), now);
        }
        for &(number, by, kind) in replies {
            route.record_reply(number, Some(ip(by)), kind, now + Duration::from_millis(1));
        }
        route
    }

    #[test]
    fn a_route_ends_where_the_target_answers_first() {
        let expired = ProbeReply::Expired;
        let route = route(
            4,
            &[
                (0, 1, expired),
                (4, 1, expired),
                (5, 2, expired),
                (2, 9, ProbeReply::Reached),
                (3, 9, ProbeReply::Reached),
            ],
        );
        assert_eq!((route.last_hop(), route.is_complete()), (Some(3), false));
        let report = route.to_report(RouteMethod::IcmpEcho, None);
        let hops: Vec<_> = report
            .hops
            .iter()
            .map(|hop| (hop.addresses.join(" "), hop.sent, hop.unanswered_probes()))
            .collect();
        let expected = [
            ("192.0.2.1", 2, 0),
            ("192.0.2.2", 2, 1),
            ("192.0.2.9", 2, 1),
        ];
        assert_eq!(
            hops,
            expected.map(|(address, sent, lost)| (address.to_owned(), sent, lost))
        );
        assert!(report.reached && report.hops[0].rtts == [Span::from_millis(1); 2]);
    }

    #[test]
    fn a_silent_hop_keeps_its_number_and_silent_hops_after_the_last_reply_are_left_out() {
        let report = route(
            4,
            &[(0, 1, ProbeReply::Expired), (2, 3, ProbeReply::Expired)],
        )
        .to_report(RouteMethod::IcmpEcho, None);
        let hops: Vec<_> = report.hops.iter().map(|hop| hop.addresses.len()).collect();
        assert_eq!((hops, report.reached), (vec![1, 0, 1], false));
        assert!(
            route(4, &[])
                .to_report(RouteMethod::Udp, None)
                .hops
                .is_empty()
        );
    }

    #[test]
    fn a_router_that_refuses_is_the_end_but_not_the_target() {
        let refused = ProbeReply::Refused(Refusal::NoRoute);
        let report = route(
            4,
            &[
                (0, 1, ProbeReply::Expired),
                (1, 2, refused),
                (2, 2, refused),
            ],
        )
        .to_report(RouteMethod::Udp, None);
        assert_eq!(
            (report.hops.len(), report.hops[1].refusal, report.reached),
            (2, Some(Refusal::NoRoute), false)
        );
        let closed = route(2, &[(1, 2, ProbeReply::Closed)]).to_report(RouteMethod::Udp, None);
        assert_eq!(
            (closed.hops[1].refusal, closed.reached),
            (Some(Refusal::Prohibited), false)
        );
        let reached = route(2, &[(1, 9, ProbeReply::Closed)]).to_report(RouteMethod::Udp, None);
        assert_eq!((reached.hops[1].refusal, reached.reached), (None, true));
    }

    #[test]
    fn routers_that_take_turns_are_both_reported() {
        let report = route(
            1,
            &[(0, 1, ProbeReply::Expired), (1, 2, ProbeReply::Expired)],
        )
        .to_report(RouteMethod::IcmpEcho, None);
        assert_eq!(report.hops[0].addresses, ["192.0.2.1", "192.0.2.2"]);
    }

    #[test]
    fn a_second_reply_and_a_reply_to_no_probe_are_ignored() {
        let mut route = route(
            1,
            &[
                (0, 1, ProbeReply::Expired),
                (0, 2, ProbeReply::Expired),
                (7, 3, ProbeReply::Expired),
            ],
        );
        route.record_unsent(1);
        route.record_reply(1, Some(ip(4)), ProbeReply::Expired, Instant::now());
        let report = route.to_report(RouteMethod::IcmpEcho, None);
        assert_eq!(
            (report.hops[0].addresses.len(), report.hops[0].sent),
            (1, 1)
        );
        assert!(route.is_complete());
    }
}
