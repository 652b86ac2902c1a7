//! Runs over one and the same path: references, and the round-trip time without load, show where it
//! has changed.

use fullpipe_record::{SweepCell, SweepRun};
use fullpipe_units::{Span, median};

use super::left_out::AttemptCounts;

/// A reference that differs by more than this from the usual one, in logarithms, is a suspicion: 15
/// %.
const SUSPICION: f64 = 0.163;

/// Anchors whose rates differ by less than this, in logarithms, are about as fast.
const ALIKE: f64 = 0.1;

/// A setting that is faster than the reference by more than this, in logarithms, takes its place.
const FASTER: f64 = 0.25;

/// References in a row that confirm a change: the first is a suspicion, as a burst of other traffic
/// shows as well.
const CONFIRMING: usize = 3;

/// Runs in a row before which the round-trip time differed that confirm a change.
const CONFIRMING_RTT: usize = 2;

/// A round-trip time that differs by less than this, or a tenth, is the same.
const RTT_TOLERANCE: Span = Span::from_millis(2);

/// Runs over one path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PathSegment {
    /// Number of its first run that counts.
    pub(crate) from: usize,
    /// The cell that is measured again and again, once it is known.
    pub(crate) reference: Option<SweepCell>,
    /// References in a row that differ from those before.
    pub(crate) suspicious: usize,
    /// References that agree.
    pub(crate) references: usize,
    /// Runs since the last reference.
    pub(crate) since_reference: usize,
}

/// Returns the index in `runs` of each segment's first run, and the state of the last. `anchors`
/// runs that count come before the first reference, which is the first of them that is about as
/// fast as the fastest.
pub(crate) fn split_segments(runs: &[SweepRun], anchors: usize) -> (Vec<usize>, PathSegment) {
    let mut begins = vec![0];
    loop {
        let from = begins[begins.len() - 1];
        let mut course = FollowedSegment::default();
        let mut following = runs[from..].iter().enumerate();
        let changed = following.find_map(|(number, run)| course.observe_run(number, run, anchors));
        let Some(changed) = changed else {
            course.segment.from += from;
            return (begins, course.segment);
        };
        begins.push(from + changed);
    }
}

/// Runs that are followed up to the first change of the path.
#[derive(Default)]
struct FollowedSegment {
    segment: PathSegment,
    references: ReferenceRates,
    rtts: RoundTrips,
    attempts: AttemptCounts,
}

impl FollowedSegment {
    /// Returns the number of the first run over another path, once it is known.
    fn observe_run(&mut self, number: usize, run: &SweepRun, anchors: usize) -> Option<usize> {
        if let Some(changed) = self.rtts.observe_rtt(number, run.idle_rtt) {
            return Some(changed);
        }
        self.attempts.add_run(run);
        let Some(rate) = run.rate else {
            if self.segment.reference == Some(run.cell) && self.attempts.is_left_out(run.cell) {
                self.references.drop_reference(run.cell);
                self.segment.reference = None;
                self.segment.suspicious = 0;
            }
            return None;
        };
        let rate = libm::log(rate.as_f64().max(1.0));
        let changed = self.observe_rate(number, run.cell, rate, anchors);
        self.segment.suspicious = self.references.suspicious.len();
        self.segment.references = self.references.usual.len();
        changed
    }

    fn observe_rate(
        &mut self,
        number: usize,
        cell: SweepCell,
        rate: f64,
        anchors: usize,
    ) -> Option<usize> {
        let Self {
            segment,
            references,
            ..
        } = self;
        segment.since_reference += 1;
        if segment.reference == Some(cell) {
            segment.since_reference = 0;
            return references.observe_rate(number, rate);
        }
        if segment.reference.is_none() {
            references.anchors.push((cell, rate));
            if references.anchors.len() >= anchors {
                segment.reference = references.choose_reference(&self.attempts);
            }
        } else if references.are_slower(rate) {
            // What windows limit does not show that the path has less to give: until now it may
            // have changed unseen.
            segment.from = number;
            segment.reference = Some(cell);
            *references = ReferenceRates {
                usual: vec![rate],
                ..ReferenceRates::default()
            };
            segment.since_reference = 0;
        }
        None
    }
}

/// Rates of the reference.
#[derive(Default)]
struct ReferenceRates {
    anchors: Vec<(SweepCell, f64)>,
    usual: Vec<f64>,
    /// Numbers and rates of the last ones, if they differ from the usual ones in one direction.
    suspicious: Vec<(usize, f64)>,
}

impl ReferenceRates {
    /// Returns the first anchor that is about as fast as the fastest: from there on a change of the
    /// path shows.
    fn choose_reference(&mut self, attempts: &AttemptCounts) -> Option<SweepCell> {
        let mut anchors = self
            .anchors
            .iter()
            .filter(|(cell, _)| !attempts.is_left_out(*cell));
        let best = anchors
            .clone()
            .map(|(_, rate)| *rate)
            .max_by(f64::total_cmp)?;
        let (cell, rate) = anchors.find(|(_, rate)| best - rate <= ALIKE)?;
        self.usual = vec![*rate];
        Some(*cell)
    }

    /// Drops a reference that is left out: the next run that counts leads to another.
    fn drop_reference(&mut self, left_out: SweepCell) {
        self.anchors.retain(|(cell, _)| *cell != left_out);
        self.usual.clear();
        self.suspicious.clear();
    }

    fn usual_rate(&self) -> f64 {
        median(self.usual.clone()).unwrap_or_default()
    }

    /// Returns true if another setting is so much faster that it is to be the reference.
    fn are_slower(&self, rate: f64) -> bool {
        self.suspicious.is_empty() && rate - self.usual_rate() > FASTER
    }

    /// Returns this run's number if it is the third that agrees that the path has changed.
    fn observe_rate(&mut self, number: usize, rate: f64) -> Option<usize> {
        let difference = rate - self.usual_rate();
        if difference.abs() <= SUSPICION {
            self.usual
                .extend(self.suspicious.drain(..).map(|(_, rate)| rate));
            self.usual.push(rate);
            return None;
        }
        let last = self.suspicious.last();
        if last.is_some_and(|(_, last)| (last - self.usual_rate()) * difference < 0.0) {
            self.suspicious.clear();
        }
        self.suspicious.push((number, rate));
        if self.suspicious.len() < CONFIRMING {
            return None;
        }
        // A burst of other traffic makes a single run slower, and nothing makes one faster.
        if self.usual.len() > 1 || difference < 0.0 {
            // It may have changed after the first of the three, which was a burst then.
            return Some(number);
        }
        // A single run was not usual: it is those that followed which are.
        self.usual = self.suspicious.drain(..).map(|(_, rate)| rate).collect();
        None
    }
}

/// Round-trip times without load.
#[derive(Default)]
struct RoundTrips {
    usual: Vec<Span>,
    differing: Vec<(usize, Span)>,
}

impl RoundTrips {
    fn observe_rtt(&mut self, number: usize, rtt: Option<Span>) -> Option<usize> {
        let rtt = rtt?;
        let usual = median(self.usual.clone()).unwrap_or(rtt);
        let difference = rtt.saturating_sub(usual).max(usual.saturating_sub(rtt));
        if difference <= RTT_TOLERANCE.max(usual / 10) {
            self.differing.clear();
            self.usual.push(rtt);
            return None;
        }
        self.differing.push((number, rtt));
        (self.differing.len() == CONFIRMING_RTT).then(|| self.differing[0].0)
    }
}
