//! What is usual of an ordered pair, and since when it is otherwise, from one run and one minute to
//! the next: what is known of a pair stays small.

use fullpipe_units::{BitRate, Span, median};
use serde::{Deserialize, Serialize};

use super::echo::{EchoWatch, LossChange};

/// A run of an ordered pair.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PairRun {
    /// When it began, in seconds since 1970.
    pub at: u64,
    /// Rate at which data arrived.
    pub rate: BitRate,
    /// Median round-trip time without load.
    pub rtt_idle: Option<Span>,
    /// Name of the limit.
    pub limit: Option<String>,
    /// False if its own checks failed: it shows neither a change nor that there is none.
    pub is_valid: bool,
    /// Its document.
    pub document: String,
}

/// A value that is no longer what it usually is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LevelChange {
    /// When it was last as usual, in seconds since 1970.
    pub after: u64,
    /// When it was first otherwise.
    pub since: u64,
    /// The usual value.
    pub usual: u64,
    /// Newest values since then.
    values: Vec<u64>,
}

impl LevelChange {
    /// Returns a change to a value.
    pub(super) fn new(after: u64, since: u64, usual: u64, values: Vec<u64>) -> Self {
        Self {
            after,
            since,
            usual,
            values,
        }
    }

    /// Returns the median of the newest values since then.
    pub fn value(&self) -> u64 {
        median(self.values.clone()).unwrap_or(self.usual)
    }
}

/// What counts as a change of a value.
struct LevelRule {
    /// Least decrease and increase, as logarithms of ratios.
    least: [f64; 2],
    /// Least difference.
    least_difference: u64,
    /// Deviation from one run to the next, as a share, below which none is assumed: a few runs
    /// agree by chance.
    noise: f64,
}

/// Rates change by a quarter at least.
const RATES: LevelRule = LevelRule {
    least: [0.288, 0.223],
    least_difference: 0,
    noise: 0.06,
};

/// Round trips, in nanoseconds, change by a tenth and 3 ms at least.
const ROUND_TRIPS: LevelRule = LevelRule {
    least: [0.105, 0.095],
    least_difference: 3_000_000,
    noise: 0.02,
};

/// Runs before something counts as usual.
const LEARNT: usize = 4;

/// Runs that make up what is usual, the newest.
const REMEMBERED: usize = 12;

/// Values since a change that are kept.
const NEWEST: usize = 5;

/// Standard deviations by which a value lies beyond the usual ones.
const DEVIATIONS: f64 = 4.0;

/// Largest difference of two runs that agree, as the logarithm of their ratio: losses make rates
/// vary.
const AGREEMENT: f64 = 0.3;

/// Seconds between the first and the last of the runs that show a change: what others send for a
/// few minutes is none.
pub(crate) const APART: u64 = 600;

/// Seconds after which what has changed is what is usual.
const ACCUSTOMED: u64 = 14 * 86_400;

/// What is usual of one value, and whether it is otherwise.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
struct LevelWatch {
    usual: Vec<u64>,
    /// When it was last as usual.
    usual_at: u64,
    /// Times and values in a row that disagree with the present state.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    doubts: Vec<(u64, u64)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    change: Option<LevelChange>,
}

impl LevelWatch {
    fn usual_value(&self) -> Option<u64> {
        let is_learnt = self.usual.len() >= LEARNT;
        is_learnt.then(|| median(self.usual.clone())).flatten()
    }

    fn take_value(&mut self, at: u64, value: u64, rule: &LevelRule) {
        let value = value.max(1);
        let Some(usual) = self.usual_value() else {
            self.remember(at, value);
            return;
        };
        let side = self.side(value, usual, rule);
        let is_doubt = (side == 0) == self.change.is_some();
        if is_doubt {
            let is_other = |doubt: &(u64, u64)| self.side(doubt.1, usual, rule) != side;
            if self.doubts.first().is_some_and(is_other) {
                self.refute_doubts();
            }
            self.doubts.push((at, value));
            if self.is_shown() {
                self.turn(usual);
            }
            return;
        }
        self.refute_doubts();
        match &mut self.change {
            None => self.remember(at, value),
            Some(change) => {
                push_newest(&mut change.values, value, NEWEST);
                if at > change.since + ACCUSTOMED && change.values.len() >= LEARNT {
                    self.usual.clone_from(&change.values);
                    self.usual_at = at;
                    self.change = None;
                }
            }
        }
    }

    /// Returns where a value lies: beyond the usual ones below (−1) or above (1), or among them.
    fn side(&self, value: u64, usual: u64, rule: &LevelRule) -> i8 {
        if value.abs_diff(usual) < rule.least_difference {
            return 0;
        }
        let far = DEVIATIONS * self.noise(usual).max(rule.noise);
        let log = log_ratio(value, usual);
        if log <= -far.max(rule.least[0]) {
            -1
        } else {
            i8::from(log >= far.max(rule.least[1]))
        }
    }

    /// Returns the deviation of the usual values: 1.48 medians of their differences to the median,
    /// which is the standard deviation of normal ones.
    fn noise(&self, usual: u64) -> f64 {
        let logs = self.usual.iter().map(|one| log_ratio(*one, usual).abs());
        let mut logs: Vec<f64> = logs.collect();
        logs.sort_by(f64::total_cmp);
        1.48 * logs.get(logs.len() / 2).copied().unwrap_or(0.0)
    }

    /// Returns true if the doubts outweigh the present state.
    fn is_shown(&self) -> bool {
        let [(from, _), .., (until, last)] = self.doubts[..] else {
            return false;
        };
        let before = self.doubts[self.doubts.len() - 2].1;
        let agree = log_ratio(before, last).abs() <= AGREEMENT || self.doubts.len() > 2;
        until >= from + APART && (agree || self.change.is_some())
    }

    /// Begins a change, or ends it.
    fn turn(&mut self, usual: u64) {
        let doubts = std::mem::take(&mut self.doubts);
        if self.change.take().is_some() {
            for (at, value) in doubts {
                self.remember(at, value);
            }
            return;
        }
        let since = doubts.first().map_or(0, |first| first.0);
        let values = doubts.into_iter().map(|doubt| doubt.1).collect();
        self.change = Some(LevelChange::new(self.usual_at, since, usual, values));
    }

    /// Lets single values that nothing has confirmed count for what they are: noise.
    fn refute_doubts(&mut self) {
        for (_, value) in std::mem::take(&mut self.doubts) {
            match &mut self.change {
                None => push_newest(&mut self.usual, value, REMEMBERED),
                Some(change) => push_newest(&mut change.values, value, NEWEST),
            }
        }
    }

    fn remember(&mut self, at: u64, value: u64) {
        self.usual_at = self.usual_at.max(at);
        push_newest(&mut self.usual, value, REMEMBERED);
    }
}

fn push_newest(values: &mut Vec<u64>, value: u64, most: usize) {
    values.push(value);
    let surplus = values.len().saturating_sub(most);
    values.drain(..surplus);
}

fn log_ratio(value: u64, usual: u64) -> f64 {
    libm::log(value.max(1) as f64 / usual.max(1) as f64)
}

/// What is known of the runs of an ordered pair.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PairWatch {
    rates: LevelWatch,
    round_trips: LevelWatch,
    /// The newest run.
    pub last: Option<PairRun>,
    /// The newest limit that is known of a run that differed from the usual ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<String>,
}

impl PairWatch {
    /// Takes the next run.
    pub fn take_run(&mut self, run: PairRun) {
        if run.is_valid {
            self.rates.take_value(run.at, run.rate.bps(), &RATES);
            if let Some(rtt) = run.rtt_idle {
                let rtt = rtt.as_nanos();
                self.round_trips.take_value(run.at, rtt, &ROUND_TRIPS);
            }
            let is_changed = self.rates.change.is_some();
            if is_changed == self.rates.doubts.is_empty() {
                // It is one of those that differ; while a change ends, others are as usual.
                let known = run.limit.clone().filter(|limit| limit != "unknown");
                self.limit = known.or(self.limit.take());
            } else if !is_changed {
                self.limit = None;
            }
        }
        self.last = Some(run);
    }

    /// Returns the usual rate; `None` of fewer than four runs.
    pub fn usual_rate(&self) -> Option<BitRate> {
        self.rates.usual_value().map(BitRate::from_bps)
    }

    /// Returns when the newest valid run began whose rate was as usual, in seconds since 1970.
    pub fn last_usual(&self) -> u64 {
        self.rates.usual_at
    }

    /// Returns since when something may be otherwise than it was, which no second run has confirmed.
    fn doubted_since(&self) -> Option<u64> {
        let watches = [&self.rates, &self.round_trips].into_iter();
        let doubted = watches.filter_map(|watch| watch.doubts.first());
        doubted.map(|doubt| doubt.0).min()
    }

    /// Returns since when there is something to look after in runs at once, by runs or by echoes.
    pub fn unsettled_since(&self, echoes: Option<&EchoWatch>) -> Option<u64> {
        let echoed = echoes.and_then(EchoWatch::changed_since);
        self.doubted_since().into_iter().chain(echoed).max()
    }
}

/// How an ordered pair is otherwise than usual.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PairChange {
    /// Its rate, in bits a second.
    pub rate: Option<LevelChange>,
    /// Its round trips without load, in nanoseconds.
    pub round_trips: Option<LevelChange>,
    /// Its losses.
    pub losses: Option<LossChange>,
    /// The limit of its runs.
    pub limit: Option<String>,
}

impl PairChange {
    /// Returns how a pair is otherwise than usual, by its runs and by its echoes; `None` if it is
    /// not.
    pub fn from_watches(runs: &PairWatch, echoes: Option<&EchoWatch>) -> Option<Self> {
        let by_runs = runs.round_trips.change.clone();
        let rate = runs.rates.change.clone();
        let change = Self {
            limit: rate.as_ref().and(runs.limit.clone()),
            rate,
            // Echoes, of which there are more, say sooner when it began and when it is over.
            round_trips: match echoes {
                Some(echoes) if echoes.is_learnt() => echoes.round_trips.clone(),
                _ => by_runs,
            },
            losses: echoes.and_then(|echoes| echoes.losses),
        };
        let is_none =
            change.rate.is_none() && change.round_trips.is_none() && change.losses.is_none();
        (!is_none).then_some(change)
    }

    /// Returns when it was last as usual and when it was first otherwise, in seconds since 1970.
    pub fn onset(&self) -> (u64, u64) {
        let levels = [&self.round_trips, &self.rate].into_iter().flatten();
        let levels = levels.map(|change| (change.after, change.since));
        let losses = self.losses.map(|change| (change.after, change.since));
        let onsets = levels.chain(losses);
        onsets.min_by_key(|onset| onset.1).unwrap_or_default()
    }

    /// Returns its losses, if nothing else is otherwise.
    pub(super) fn only_losses(&self) -> Option<LossChange> {
        let is_all = self.rate.is_none() && self.round_trips.is_none();
        self.losses.filter(|_| is_all)
    }

    /// Returns what is otherwise in a word: round trips, which explain a rate; else what limits the
    /// rate; else losses.
    pub fn cause(&self) -> &str {
        match (&self.round_trips, &self.rate) {
            (Some(_), _) => "round trips",
            (None, Some(_)) => self.limit.as_deref().unwrap_or("unknown"),
            (None, None) => "loss",
        }
    }
}
