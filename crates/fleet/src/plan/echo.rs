//! Round trips and losses of echo requests, from one minute to the next.

use serde::{Deserialize, Serialize};

use super::change::LevelChange;
use super::message::EchoMinute;

/// Losses that are no longer what they usually are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LossChange {
    /// When they were last as usual, in seconds since 1970.
    pub after: u64,
    /// When the first was lost that shows it.
    pub since: u64,
    /// Requests since then.
    pub sent: u64,
    /// Those of them without an answer.
    pub lost: u64,
}

/// Minutes before something counts as usual: six hours.
const LEARNT: u32 = 360;

/// Minutes by which those beyond the usual round trip are more than those that are not, for a
/// change.
const PERSISTENT: u32 = 10;

/// Share of the usual round trip by which its estimate follows a minute: in a day it moves by
/// 72 % of itself at most.
const STEP: f64 = 0.0005;

/// Share of a minute in averages over a day.
const DAY: f64 = 1.0 / 1440.0;

/// Share of minutes with a loss that is nothing to speak of, and the one that is a change: of 60
/// requests a minute, one in 20 000 and one in 1500.
const QUIET: f64 = 0.003;
const LOSSY: f64 = 0.04;

/// Share of minutes with a loss beyond which more of them show nothing.
const SATURATED: f64 = 0.1;

/// Evidence for a change of losses, and for its end, as the logarithm of a likelihood ratio (E. S.
/// Page, Biometrika 41, 1954): of 100 months of 132 pairs less than one has a false one.
const EVIDENCE: f64 = 12.0;
const EVIDENCE_OF_END: f64 = 8.0;

/// Minutes by which a change may have begun before it shows: losses are few.
const UNSURE: u64 = 10;
const UNSURE_OF_LOSSES: u64 = 120;

/// Minutes after which what has changed is what is usual.
const ACCUSTOMED: u64 = 14 * 1440;

/// What is known of the echoes from a host to another.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct EchoWatch {
    /// The newest minute, counted since 1970.
    pub minute: u64,
    /// Minutes so far, up to those that are enough.
    minutes: u32,
    /// Usual round trip and the mean difference to it, in nanoseconds.
    usual_ns: f64,
    spread_ns: f64,
    /// Minutes that disagree with the present state, less those that agree.
    doubts: u32,
    /// When the first of those was.
    doubted: u64,
    /// Usual share of minutes with a loss.
    lossy: f64,
    /// Evidence against the present state of losses.
    evidence: f64,
    /// What was sent and lost since that began to grow, and when that was.
    grown: u64,
    sent: u64,
    lost: u64,
    /// Change of round trips.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) round_trips: Option<LevelChange>,
    /// Change of losses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) losses: Option<LossChange>,
}

impl EchoWatch {
    /// Takes the next minute; one that it has seen changes nothing. A minute without any answer
    /// says nothing: who is away does not lose.
    pub fn take_minute(&mut self, echo: &EchoMinute) {
        let Some(rtt) = echo.rtt_ns.filter(|_| echo.minute > self.minute) else {
            return;
        };
        if echo.sent == 0 || echo.lost >= echo.sent {
            return;
        }
        self.minute = echo.minute;
        self.take_round_trip(rtt as f64);
        self.take_losses(echo);
        self.minutes = (self.minutes + 1).min(LEARNT);
    }

    /// Returns true once there is something that counts as usual.
    pub fn is_learnt(&self) -> bool {
        self.minutes >= LEARNT
    }

    /// Returns since when the newest change is, in seconds since 1970.
    pub fn changed_since(&self) -> Option<u64> {
        let trips = self.round_trips.as_ref().map(|change| change.since);
        trips.max(self.losses.map(|change| change.since))
    }

    fn take_round_trip(&mut self, rtt: f64) {
        if self.minutes == 0 {
            (self.usual_ns, self.spread_ns) = (rtt, rtt * 0.05);
        }
        let least = (self.usual_ns * 0.05).max(2e6).max(6.0 * self.spread_ns);
        let apart = (rtt - self.usual_ns).abs();
        let is_beyond = apart
            > if self.round_trips.is_some() {
                least / 2.0
            } else {
                least
            };
        if self.round_trips.is_none() {
            self.learn_round_trip(rtt);
        }
        if !self.is_learnt() {
            return;
        }
        if is_beyond == self.round_trips.is_some() {
            self.doubts = self.doubts.saturating_sub(1);
            self.accustom();
            return;
        }
        if self.doubts == 0 {
            self.doubted = self.minute;
        }
        self.doubts += 1;
        if self.doubts < PERSISTENT {
            return;
        }
        self.doubts = 0;
        if self.round_trips.take().is_none() {
            self.round_trips = Some(LevelChange::new(
                self.doubted.saturating_sub(UNSURE) * 60,
                self.doubted * 60,
                self.usual_ns as u64,
                vec![rtt as u64],
            ));
        }
    }

    /// Lets the usual round trip follow: by steps until half of all minutes are longer, which is
    /// the median whatever the others are; faster while it is not known.
    fn learn_round_trip(&mut self, rtt: f64) {
        let step = if self.is_learnt() { STEP } else { 10.0 * STEP };
        let difference = rtt - self.usual_ns;
        let most = self.usual_ns * step;
        self.usual_ns += difference.clamp(-most, most);
        let seen = difference.abs().min(4.0 * self.spread_ns);
        self.spread_ns += (seen - self.spread_ns) * (step * 20.0);
    }

    /// Lets a change of two weeks become what is usual.
    fn accustom(&mut self) {
        let minute = self.minute;
        let is_old = |since: u64| minute > since / 60 + ACCUSTOMED;
        if let Some(change) = self.round_trips.take_if(|change| is_old(change.since)) {
            self.usual_ns = change.value() as f64;
        }
        if let Some(change) = self.losses.take_if(|change| is_old(change.since)) {
            self.lossy = (change.lost as f64 / (change.sent / 60).max(1) as f64).min(1.0);
        }
    }

    fn take_losses(&mut self, echo: &EchoMinute) {
        let is_lossy = echo.lost > 0;
        let share = f64::from(u8::from(is_lossy));
        if !self.is_learnt() {
            // The mean so far.
            self.lossy += (share - self.lossy) / f64::from(self.minutes + 1);
            return;
        }
        let quiet = (2.0 * self.lossy).max(QUIET);
        if quiet > SATURATED {
            self.lossy += (share - self.lossy) * DAY;
            return;
        }
        let lossy = (4.0 * quiet).max(LOSSY);
        let ratio = if is_lossy {
            lossy / quiet
        } else {
            (1.0 - lossy) / (1.0 - quiet)
        };
        let evidence = libm::log(ratio);
        match &mut self.losses {
            None => {
                self.lossy += (share - self.lossy) * DAY;
                self.grow_evidence(evidence, echo);
            }
            Some(change) => {
                change.sent += u64::from(echo.sent);
                change.lost += u64::from(echo.lost);
                self.evidence = (self.evidence - evidence).max(0.0);
                if self.evidence > EVIDENCE_OF_END {
                    self.losses = None;
                    self.evidence = 0.0;
                }
            }
        }
    }

    fn grow_evidence(&mut self, evidence: f64, echo: &EchoMinute) {
        if self.evidence <= 0.0 {
            (self.grown, self.sent, self.lost) = (self.minute, 0, 0);
        }
        self.sent += u64::from(echo.sent);
        self.lost += u64::from(echo.lost);
        self.evidence = (self.evidence + evidence).max(0.0);
        if self.evidence > EVIDENCE {
            self.losses = Some(LossChange {
                after: self.grown.saturating_sub(UNSURE_OF_LOSSES) * 60,
                since: self.grown * 60,
                sent: self.sent,
                lost: self.lost,
            });
            self.evidence = 0.0;
        }
    }
}
