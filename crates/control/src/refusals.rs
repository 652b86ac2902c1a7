//! Refusals of a server, counted by reason, so that no client can fill its log.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use fullpipe_record::event::Rejected;

/// Time between two reports of one reason.
const REPORT_INTERVAL: Duration = Duration::from_mins(1);

/// Reasons that are counted apart: a reason may hold what a client has sent. The last one stands
/// for all others.
const MAX_REASONS: usize = 16;

/// Refused connections since they were last reported, by reason.
#[derive(Debug, Default)]
pub struct RefusalCounts(Vec<CountedReason>);

#[derive(Debug)]
struct CountedReason {
    latest: Rejected,
    reported: Instant,
}

impl RefusalCounts {
    /// Returns true if a refusal is the first for its reason in a minute, and is to be reported at
    /// once. Others are counted.
    pub fn is_first(&mut self, client: IpAddr, why: &str, now: Instant) -> bool {
        let known = self.0.iter().position(|reason| reason.latest.why == why);
        let index = known.or_else(|| {
            self.0
                .len()
                .checked_sub(1)
                .filter(|last| last + 1 == MAX_REASONS)
        });
        let mut latest = Rejected::of_one(client, why);
        let Some(reason) = index.and_then(|index| self.0.get_mut(index)) else {
            latest.connections = 0;
            self.0.push(CountedReason {
                latest,
                reported: now,
            });
            return true;
        };
        latest.connections += reason.latest.connections;
        reason.latest = latest;
        false
    }

    /// Returns the refusals counted for reasons that were last reported a minute ago.
    pub fn take_due(&mut self, now: Instant) -> Vec<Rejected> {
        self.take_if(now, |reason| {
            now.saturating_duration_since(reason.reported) >= REPORT_INTERVAL
        })
    }

    /// Returns all refusals that were counted and not reported. A server calls this when it ends.
    pub fn take_all(&mut self, now: Instant) -> Vec<Rejected> {
        self.take_if(now, |_| true)
    }

    /// Reasons without a refusal since they were last reported are forgotten.
    fn take_if(&mut self, now: Instant, is_due: impl Fn(&CountedReason) -> bool) -> Vec<Rejected> {
        self.0
            .retain(|reason| reason.latest.connections > 0 || !is_due(reason));
        let due = self
            .0
            .iter_mut()
            .filter(|reason| is_due(reason))
            .map(|reason| {
                reason.reported = now;
                let counted = reason.latest.clone();
                reason.latest.connections = 0;
                counted
            });
        due.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

    #[test]
    fn a_flood_of_refusals_is_a_line_at_once_and_one_a_minute_for_each_reason() {
        let (mut counts, start) = (RefusalCounts::default(), Instant::now());
        let (mut lines, mut counted) = (0, 0);
        for millis in 0..600_000 {
            let now = start + Duration::from_millis(millis);
            let why = if millis % 2 == 0 {
                "it has no key"
            } else {
                "it is late"
            };
            lines += u64::from(counts.is_first(CLIENT, why, now));
            let due = counts.take_due(now);
            lines += due.len() as u64;
            counted += due.iter().map(|refused| refused.connections).sum::<u64>();
        }
        assert_eq!(lines, 2 * 10);
        let rest = counts.take_all(start);
        assert_eq!(
            counted + rest.iter().map(|refused| refused.connections).sum::<u64>() + 2,
            600_000
        );
        assert!(counts.take_all(start).is_empty() && counts.0.is_empty());
        assert!(
            counts.is_first(CLIENT, "it is late", start),
            "the first after a pause is reported at once"
        );
    }

    #[test]
    fn reasons_that_clients_choose_do_not_become_many_lines() {
        let (mut counts, now) = (RefusalCounts::default(), Instant::now());
        let first = (0..1000)
            .filter(|number| counts.is_first(CLIENT, &format!("no user {number}"), now))
            .count();
        let due = counts.take_due(now + REPORT_INTERVAL);
        assert_eq!((first, due.len()), (MAX_REASONS, 1));
        assert_eq!(
            (&*due[0].why, due[0].connections),
            ("no user 999", 1000 - MAX_REASONS as u64)
        );
    }
}
