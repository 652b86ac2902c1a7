//! Probes that were sent, and what was said of them.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use fullpipe_record::{Hop, Refusal, RouteMethod, RouteMtu, RouteReport};

use super::socket::ProbeReply;

/// What is known of a way.
#[derive(Debug)]
pub(super) struct RouteState {
    target: IpAddr,
    /// In the order of their numbers.
    probes: Vec<Probe>,
}

#[derive(Debug)]
struct Probe {
    /// How far it may go; `None` if that is the whole way.
    hop: Option<u8>,
    /// `None` if this host did not send it.
    sent: Option<Instant>,
    said: Option<Reply>,
}

#[derive(Debug, Clone, Copy)]
struct Reply {
    word: ProbeReply,
    by: Option<IpAddr>,
    after: Duration,
}

impl RouteState {
    pub(super) fn new(target: IpAddr) -> Self {
        Self { target, probes: Vec::new() }
    }

    /// The number of the next probe.
    pub(super) fn next(&self) -> u16 {
        self.probes.len() as u16
    }

    /// The next probe is about to be sent.
    pub(super) fn sent(&mut self, hop: Option<u8>, now: Instant) {
        self.probes.push(Probe { hop, sent: Some(now), said: None });
    }

    /// It was not.
    pub(super) fn unsent(&mut self, number: u16) {
        if let Some(probe) = self.probes.get_mut(usize::from(number)) {
            probe.sent = None;
        }
    }

    /// The first that is said of a probe counts.
    pub(super) fn heard(&mut self, number: u16, by: Option<IpAddr>, word: ProbeReply, now: Instant) {
        let Some(probe) = self.probes.get_mut(usize::from(number)) else { return };
        // What the target does not accept has reached it.
        let word = if by == Some(self.target) && word == ProbeReply::Closed { ProbeReply::Reached } else { word };
        if let (Some(sent), None) = (probe.sent, probe.said) {
            probe.said = Some(Reply { word, by, after: now.duration_since(sent) });
        }
    }

    /// What was said of a probe.
    pub(super) fn word(&self, number: u16) -> Option<(ProbeReply, Option<IpAddr>)> {
        self.probes.get(usize::from(number))?.said.map(|said| (said.word, said.by))
    }

    /// Whether every probe was answered.
    pub(super) fn is_complete(&self) -> bool {
        let end = self.end();
        let counts = |probe: &&Probe| end.is_none() || probe.hop <= end;
        self.probes.iter().filter(counts).all(|probe| probe.said.is_some() || probe.sent.is_none())
    }

    /// The slowest answer so far.
    pub(super) fn slowest(&self) -> Option<Duration> {
        self.probes.iter().filter_map(|probe| probe.said.map(|said| said.after)).max()
    }

    /// The nearest hop from which nothing goes on: that of the target, or of a router that refuses.
    pub(super) fn end(&self) -> Option<u8> {
        let ends = |probe: &&Probe| probe.said.is_some_and(|said| said.word.ends());
        self.probes.iter().filter(ends).filter_map(|probe| probe.hop).min()
    }

    /// Whether the target answered.
    pub(super) fn is_reached(&self) -> bool {
        self.probes.iter().filter_map(|probe| probe.said).any(|said| self.is_from_target(said))
    }

    fn is_from_target(&self, said: Reply) -> bool {
        said.word == ProbeReply::Reached || (said.by == Some(self.target) && said.word.ends())
    }

    /// All of it.
    pub(super) fn report(&self, method: RouteMethod, mtu: Option<RouteMtu>) -> RouteReport {
        let last_heard = self.probes.iter().filter(|probe| probe.said.is_some()).filter_map(|probe| probe.hop).max();
        let last = self.end().or(last_heard).unwrap_or(0);
        RouteReport {
            target: self.target.to_string(),
            method,
            hops: (1..=last).map(|number| self.hop(number)).collect(),
            reached: self.is_reached(),
            mtu,
        }
    }

    fn hop(&self, number: u8) -> Hop {
        let sent: Vec<&Probe> =
            self.probes.iter().filter(|probe| probe.hop == Some(number) && probe.sent.is_some()).collect();
        let said: Vec<Reply> = sent.iter().filter_map(|probe| probe.said).collect();
        let mut addresses = Vec::new();
        for address in said.iter().filter_map(|said| said.by).map(|by| by.to_string()) {
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        Hop {
            number,
            addresses,
            sent: sent.len() as u16,
            rtts: said.iter().map(|said| said.after.into()).collect(),
            refusal: said.iter().find_map(|said| said.word.refusal()),
        }
    }
}

impl ProbeReply {
    /// Whether nothing goes on from there.
    fn ends(self) -> bool {
        matches!(self, Self::Reached | Self::Closed | Self::Refused(_))
    }

    fn refusal(self) -> Option<Refusal> {
        match self {
            Self::Refused(refusal) => Some(refusal),
            // A router that speaks for a host whose port it closes.
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

    /// A trail to 192.0.2.9 on which each hop was sent to twice, in order, and this was said of the probes, each a
    /// millisecond after it was sent.
    fn trail(hops: u8, said: &[(u16, u8, ProbeReply)]) -> RouteState {
        let (mut trail, now) = (RouteState::new(ip(9)), Instant::now());
        for probe in 0..hops * 2 {
            trail.sent(Some(probe % hops + 1), now);
        }
        for &(number, by, word) in said {
            trail.heard(number, Some(ip(by)), word, now + Duration::from_millis(1));
        }
        trail
    }

    #[test]
    fn a_way_ends_where_the_target_answers_first() {
        let expired = ProbeReply::Expired;
        let trail = trail(
            4,
            &[
                (0, 1, expired),
                (4, 1, expired),
                (5, 2, expired),
                (2, 9, ProbeReply::Reached),
                (3, 9, ProbeReply::Reached),
            ],
        );
        assert_eq!((trail.end(), trail.is_complete()), (Some(3), false));
        let report = trail.report(RouteMethod::IcmpEcho, None);
        let hops: Vec<_> = report.hops.iter().map(|hop| (hop.addresses.join(" "), hop.sent, hop.lost())).collect();
        let expected = [("192.0.2.1", 2, 0), ("192.0.2.2", 2, 1), ("192.0.2.9", 2, 1)];
        assert_eq!(hops, expected.map(|(address, sent, lost)| (address.to_owned(), sent, lost)));
        assert!(report.reached && report.hops[0].rtts == [Span::from_millis(1); 2]);
    }

    #[test]
    fn a_silent_hop_stays_in_its_place_and_silence_behind_the_last_is_left_out() {
        let report =
            trail(4, &[(0, 1, ProbeReply::Expired), (2, 3, ProbeReply::Expired)]).report(RouteMethod::IcmpEcho, None);
        let hops: Vec<_> = report.hops.iter().map(|hop| hop.addresses.len()).collect();
        assert_eq!((hops, report.reached), (vec![1, 0, 1], false));
        assert!(trail(4, &[]).report(RouteMethod::Udp, None).hops.is_empty());
    }

    #[test]
    fn a_router_that_refuses_is_the_end_but_not_the_target() {
        let refused = ProbeReply::Refused(Refusal::NoRoute);
        let report =
            trail(4, &[(0, 1, ProbeReply::Expired), (1, 2, refused), (2, 2, refused)]).report(RouteMethod::Udp, None);
        assert_eq!((report.hops.len(), report.hops[1].refusal, report.reached), (2, Some(Refusal::NoRoute), false));
        let closed = trail(2, &[(1, 2, ProbeReply::Closed)]).report(RouteMethod::Udp, None);
        assert_eq!((closed.hops[1].refusal, closed.reached), (Some(Refusal::Prohibited), false));
        let reached = trail(2, &[(1, 9, ProbeReply::Closed)]).report(RouteMethod::Udp, None);
        assert_eq!((reached.hops[1].refusal, reached.reached), (None, true));
    }

    #[test]
    fn ways_that_take_turns_are_both_reported() {
        let report =
            trail(1, &[(0, 1, ProbeReply::Expired), (1, 2, ProbeReply::Expired)]).report(RouteMethod::IcmpEcho, None);
        assert_eq!(report.hops[0].addresses, ["192.0.2.1", "192.0.2.2"]);
    }

    #[test]
    fn nobody_is_heard_twice_nor_of_what_was_not_sent() {
        let mut trail =
            trail(1, &[(0, 1, ProbeReply::Expired), (0, 2, ProbeReply::Expired), (7, 3, ProbeReply::Expired)]);
        trail.unsent(1);
        trail.heard(1, Some(ip(4)), ProbeReply::Expired, Instant::now());
        let report = trail.report(RouteMethod::IcmpEcho, None);
        assert_eq!((report.hops[0].addresses.len(), report.hops[0].sent), (1, 1));
        assert!(trail.is_complete());
    }
}
