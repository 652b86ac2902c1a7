//! Runs over one and the same path: references, and the round-trip time without load, show where it
//! has changed.

use fullpipe_record::{SweepCell, SweepRun};
use fullpipe_units::{Span, median};

use crate::left_out::AttemptCounts;

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
        let course = follow_segment(&runs[from..], anchors);
        match course.changed {
            Some(changed) => begins.push(from + changed),
            None => {
                return (
                    begins,
                    PathSegment {
                        from: from + course.segment.from,
                        ..course.segment
                    },
                );
            }
        }
    }
}

#[derive(Default)]
struct FollowedSegment {
    segment: PathSegment,
    /// The first run over another path.
    changed: Option<usize>,
}

/// Follows runs up to the first change of the path.
fn follow_segment(runs: &[SweepRun], anchors: usize) -> FollowedSegment {
    let mut references = ReferenceRates::default();
    let mut rtts = RoundTrips::default();
    let mut attempts = AttemptCounts::default();
    let mut course = FollowedSegment::default();
    for (number, run) in runs.iter().enumerate() {
        if let Some(changed) = rtts.observe_rtt(number, run.idle_rtt) {
            return FollowedSegment {
                changed: Some(changed),
                ..course
            };
        }
        attempts.add_run(run);
        let Some(rate) = run.rate else {
            if course.segment.reference == Some(run.cell) && attempts.is_left_out(run.cell) {
                references = references.without_reference(run.cell);
                course.segment = PathSegment {
                    reference: None,
                    suspicious: 0,
                    ..course.segment
                };
            }
            continue;
        };
        let rate = libm::log(rate.as_f64().max(1.0));
        course.segment.since_reference += 1;
        if course.segment.reference == Some(run.cell) {
            course.segment.since_reference = 0;
            if let Some(changed) = references.observe_rate(number, rate) {
                return FollowedSegment {
                    changed: Some(changed),
                    ..course
                };
            }
        } else if course.segment.reference.is_none() {
            references.anchors.push((run.cell, rate));
            if references.anchors.len() >= anchors {
                course.segment.reference = references.choose_reference(&attempts);
            }
        } else if references.are_slower(rate) {
            // What windows limit does not show that the path has less to give: until now it may
            // have changed unseen.
            course.segment.from = number;
            course.segment.reference = Some(run.cell);
            references = ReferenceRates {
                usual: vec![rate],
                ..ReferenceRates::default()
            };
            course.segment.since_reference = 0;
        }
        course.segment.suspicious = references.suspicious.len();
        course.segment.references = references.usual.len();
    }
    course
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

    /// Returns the state without a reference that is left out: the next run that counts leads to
    /// another.
    fn without_reference(self, left_out: SweepCell) -> Self {
        let anchors = self
            .anchors
            .into_iter()
            .filter(|(cell, _)| *cell != left_out)
            .collect();
        Self {
            anchors,
            ..Self::default()
        }
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
        let turned = |earlier: &(usize, f64)| (earlier.1 - self.usual_rate()) * difference < 0.0;
        if self.suspicious.last().is_some_and(turned) {
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
