//! Being awake at a moment rather than some time after it.

use fullpipe_units::{Span, Time};

/// The timer of a link's thread: it sleeps until shortly before each moment, and polls the clock
/// for the rest.
///
/// A thread that sleeps until a moment wakes tens of microseconds after it, which each packet would
/// be late by. How long before it is to wake is learnt from how late it was. What that takes of a
/// processor is bounded: where packets come so densely that it would take more, some of them are
/// slept for.
pub(crate) struct SpinSleeper {
    /// Time before its moment at which the thread is to wake.
    lead: Span,
    /// Processor time that it may still spend.
    credit: Span,
    /// When the credit was last added to.
    credited: Time,
    /// The moment that it is awake for, and what that costs.
    held: Option<(Time, Span)>,
}

/// The way in which a thread waits for its moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitMode {
    /// Look again at once.
    None,
    /// Sleep so long.
    Sleep(Span),
}

/// Bounds of the lead.
const LEADS: [Span; 2] = [Span::from_micros(20), Span::from_micros(150)];

/// Step by which the lead grows if it was too short, and by a share of which it shrinks if it was
/// not: it settles where one in nine is late.
const LONGER: Span = Span::from_micros(8);
const SHORTER: Span = Span::from_micros(1);

/// Share of a processor that each thread may spend.
const SHARE: f64 = 0.15;

/// The most that can be saved up, for packets that come in bursts.
const MAX_CREDIT: Span = Span::from_millis(10);

impl SpinSleeper {
    pub(crate) fn new() -> Self {
        Self {
            lead: Span::from_micros(100),
            credit: MAX_CREDIT,
            credited: Time::ZERO,
            held: None,
        }
    }

    /// Returns the way to wait at `now` until `due`.
    pub(crate) fn wait_mode(&mut self, now: Time, due: Time) -> WaitMode {
        if self.held.is_some_and(|(moment, _)| now < moment) {
            return WaitMode::None;
        }
        self.credit =
            (self.credit + now.duration_since(self.credited).scale_by(SHARE)).min(MAX_CREDIT);
        self.credited = now;
        let left = due.duration_since(now);
        let cost = left.min(self.lead);
        if cost > self.credit {
            self.held = None;
            return WaitMode::Sleep(left);
        }
        self.credit = self.credit.saturating_sub(cost);
        self.held = Some((due, cost));
        if left == cost {
            WaitMode::None
        } else {
            WaitMode::Sleep(left.saturating_sub(cost))
        }
    }

    /// Takes note that the thread woke at `now`, `early` if something else than its moment woke it.
    pub(crate) fn record_wakeup(&mut self, now: Time, early: bool) {
        let Some((due, cost)) = self.held else { return };
        if early {
            // There may be another moment to be awake for now.
            self.credit += cost;
            self.held = None;
            return;
        }
        let [least, most] = LEADS;
        let lead = if now > due {
            self.lead + LONGER
        } else {
            self.lead.saturating_sub(SHORTER)
        };
        self.lead = lead.clamp(least, most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: u64) -> Time {
        Time::ZERO + Span::from_micros(micros)
    }

    /// The thread sleeps until shortly before its moment, and not again before it.
    #[test]
    fn it_is_awake_before_its_moment() {
        let mut sleeper = SpinSleeper::new();
        assert_eq!(
            sleeper.wait_mode(at(0), at(1_000)),
            WaitMode::Sleep(Span::from_micros(900))
        );
        sleeper.record_wakeup(at(950), false);
        assert_eq!(sleeper.wait_mode(at(950), at(1_000)), WaitMode::None);
        assert_eq!(sleeper.wait_mode(at(999), at(1_000)), WaitMode::None);
        assert_ne!(sleeper.wait_mode(at(1_000), at(2_000)), WaitMode::None);
    }

    #[test]
    fn what_wakes_it_early_costs_nothing() {
        let mut sleeper = SpinSleeper::new();
        for moment in 0..1_000 {
            let now = at(moment);
            assert_eq!(
                sleeper.wait_mode(now, now + Span::from_millis(1)),
                WaitMode::Sleep(Span::from_micros(900))
            );
            sleeper.record_wakeup(now, true);
        }
    }

    /// The lead at which it settles where each sleep lasts so much too long.
    fn lead_after(late: Span) -> Span {
        let mut sleeper = SpinSleeper::new();
        let mut now = Time::ZERO;
        for _ in 0..2_000 {
            let due = now + Span::from_millis(10);
            if let WaitMode::Sleep(sleep) = sleeper.wait_mode(now, due) {
                now = now + sleep + late;
                sleeper.record_wakeup(now, false);
            }
            now = now.max(due);
        }
        sleeper.lead
    }

    #[test]
    fn it_learns_how_late_it_wakes() {
        for late in [30, 60, 100] {
            let lead = lead_after(Span::from_micros(late)).as_micros();
            assert!(
                (late..=late + 10).contains(&lead),
                "{lead} µs where it wakes {late} µs late"
            );
        }
        assert_eq!(
            [0, 10_000].map(|late| lead_after(Span::from_micros(late))),
            LEADS
        );
    }

    /// However close its moments are, it spends no more than its share.
    #[test]
    fn what_it_spends_is_bounded() {
        for gap in [5, 50, 123, 300, 5_000] {
            let (mut sleeper, mut awake) = (SpinSleeper::new(), Span::ZERO);
            let mut now = Time::ZERO;
            let end = at(10_000_000);
            while now < end {
                let due = now + Span::from_micros(gap);
                let slept = match sleeper.wait_mode(now, due) {
                    WaitMode::Sleep(sleep) => sleep,
                    WaitMode::None => Span::ZERO,
                };
                let woke = now + slept;
                if slept > Span::ZERO {
                    sleeper.record_wakeup(woke, false);
                }
                awake += due.duration_since(woke);
                now = due;
            }
            let share = awake.as_secs_f64() / 10.0;
            assert!(
                share < SHARE + 0.002,
                "{share} of a processor at a packet each {gap} µs"
            );
        }
    }
}
