use std::cmp::Ordering;
use std::collections::BTreeMap;

use fullpipe_record::{
    ComparedRun, ComparedRuns, ComparedSide, ComparisonDesign, DifferenceConclusion,
    DifferenceReport, LimitCount, QuantityDifference,
};
use fullpipe_stats::{
    Conclusion, Magnitude, RatioDifference, paired_difference, unpaired_difference, within_run,
};
use fullpipe_units::Midpoint;

use super::figures::{RunFigures, invalidity_reason};
use super::sentence::rate_sentence;
use crate::error::ExperimentError;
use crate::prelude::*;

/// Measurements of one of the two that are compared.
#[derive(Debug, Clone)]
pub struct NamedRuns {
    /// Name for the report, one line.
    pub name: String,
    /// The measurements.
    pub measurements: Vec<Measurement>,
}

/// Returns the difference of measurements that were not made in pairs. Those that broke off, were
/// interrupted or are invalid are left out, and one that is in a sample twice counts once.
///
/// # Errors
/// Fails if nothing is left of A or of B.
pub fn compare_samples(samples: [NamedRuns; 2]) -> Result<DifferenceReport, ExperimentError> {
    let mut left_out = Vec::new();
    let mut kept = Vec::new();
    let [a, b] = samples;
    let sides = [(a, ComparedSide::A), (b, ComparedSide::B)].map(|(sample, side)| {
        let valid = valid_runs(sample.measurements, side, &mut left_out);
        let figures = valid.iter().map(RunFigures::from_measurement);
        kept.extend(figures.map(|figures| (side, None, figures)));
        ComparedRuns {
            name: sample.name,
            runs: valid.len() as u32,
            within_run: match &valid[..] {
                [only] => rate_interval(only),
                _ => None,
            },
        }
    });
    if let Some(side) = sides.iter().find(|side| side.runs == 0) {
        let why = left_out
            .first()
            .map_or_else(String::new, |why| format!(" ({why})"));
        return Err(ExperimentError::Unsuitable(format!(
            "{} has no run that is valid{why}",
            side.name
        )));
    }
    Ok(difference_report(
        ComparisonDesign::Samples,
        sides,
        kept,
        left_out,
    ))
}

/// Returns the runs of a side that are valid, each once, and adds the reasons for the others to
/// `left_out`.
fn valid_runs(
    runs: Vec<Measurement>,
    side: ComparedSide,
    left_out: &mut Vec<String>,
) -> Vec<Measurement> {
    let mut valid: Vec<Measurement> = Vec::new();
    for run in runs {
        let twice = !run.id.is_empty() && valid.iter().any(|other| other.id == run.id);
        match invalidity_reason(&run).or_else(|| twice.then(|| "it is there twice".to_owned())) {
            Some(why) => left_out.push(format!(
                "A run of {side:?} of {} was left out: {why}",
                run.started
            )),
            None => valid.push(run),
        }
    }
    valid
}

/// Returns the interval of the rate within one run, after its ramp.
fn rate_interval(run: &Measurement) -> Option<[BitRate; 2]> {
    let ramp = run
        .summary
        .steady
        .map(|steady| steady.ramp)
        .unwrap_or_default();
    let counted = run
        .intervals
        .iter()
        .filter(|interval| !interval.omitted && interval.from >= ramp);
    let rates: Vec<BitRate> = counted
        .filter(|it| it.direction == run.request.direction)
        .map(|it| it.rate)
        .collect();
    within_run(&rates).map(|interval| [interval.low, interval.high])
}

/// Returns the report of runs, each with its side and the number of its pair, with the names and
/// counts of both sides.
pub(super) fn difference_report(
    design: ComparisonDesign,
    [a, b]: [ComparedRuns; 2],
    runs: Vec<(ComparedSide, Option<u32>, RunFigures)>,
    left_out: Vec<String>,
) -> DifferenceReport {
    let is_steady = runs.iter().all(|(_, _, figures)| figures.is_steady());
    let runs: Vec<ComparedRun> = runs
        .into_iter()
        .map(|(side, pair, figures)| figures.into_compared_run(side, pair, is_steady))
        .collect();
    let (rate, difference) =
        compare_quantity(design, &runs, |run| Some(run.rate)).unwrap_or((no_difference(), None));
    DifferenceReport {
        design,
        conclusion: rate.conclusion,
        sentence: rate_sentence(design, [&a, &b], &rate, difference.as_ref()),
        detectable: difference.map(|difference| difference.detectable_share()),
        is_steady,
        rate,
        rtt_median: compare_quantity(design, &runs, |run| run.rtt_median)
            .map(|(quantity, _)| quantity),
        rtt_p99: compare_quantity(design, &runs, |run| run.rtt_p99).map(|(quantity, _)| quantity),
        retransmits: compare_quantity(design, &runs, |run| Some(PlusOne(run.retransmits?)))
            .map(|(plus_one, _)| to_segment_counts(&plus_one)),
        limits: count_limits(&runs),
        a,
        b,
        runs,
        forecast: None,
        incomparable: Vec::new(),
        left_out,
        interrupted: false,
    }
}

fn no_difference() -> QuantityDifference<BitRate> {
    let (a, b, conclusion) = (BitRate::ZERO, BitRate::ZERO, DifferenceConclusion::TooFew);
    QuantityDifference {
        a,
        b,
        ratio: None,
        low: None,
        high: None,
        conclusion,
    }
}

/// Returns the difference of a quantity; `None` if a run lacks it.
fn compare_quantity<T: Magnitude + Midpoint>(
    design: ComparisonDesign,
    runs: &[ComparedRun],
    of: impl Fn(&ComparedRun) -> Option<T>,
) -> Option<(QuantityDifference<T>, Option<RatioDifference>)> {
    let [a, b] = [ComparedSide::A, ComparedSide::B].map(|side| {
        let of_side = runs.iter().filter(|run| run.side == side);
        of_side.map(&of).collect::<Option<Vec<T>>>()
    });
    let (a, b) = (a?, b?);
    let difference = match design {
        ComparisonDesign::Samples => unpaired_difference(&a, &b),
        ComparisonDesign::Pairs => paired_difference(&paired_values(runs, of)),
    };
    let conclusion = match difference.map(|difference| difference.conclusion()) {
        None => DifferenceConclusion::TooFew,
        Some(Conclusion::Different) => DifferenceConclusion::Different,
        Some(Conclusion::Same) => DifferenceConclusion::Same,
        Some(Conclusion::NoneShown) => DifferenceConclusion::NoneShown,
    };
    let (ratio, range) = (
        difference.map(|it| it.ratio),
        difference.map(|it| (it.low, it.high)),
    );
    let (low, high) = range.unzip();
    Some((
        QuantityDifference {
            a: median(a)?,
            b: median(b)?,
            ratio,
            low,
            high,
            conclusion,
        },
        difference,
    ))
}

/// Returns the values of A and B of each pair.
fn paired_values<T: Copy>(
    runs: &[ComparedRun],
    of: impl Fn(&ComparedRun) -> Option<T>,
) -> Vec<(T, T)> {
    let mut pairs: BTreeMap<u32, [Option<T>; 2]> = BTreeMap::new();
    for run in runs {
        let values = pairs.entry(run.pair.unwrap_or(0)).or_default();
        values[usize::from(run.side == ComparedSide::B)] = of(run);
    }
    pairs.into_values().filter_map(|[a, b]| a.zip(b)).collect()
}

/// A count of which ratios are taken, though it may be zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct PlusOne(SegCount);

impl Magnitude for PlusOne {
    fn magnitude(self) -> f64 {
        self.0.magnitude() + 1.0
    }
}

impl Midpoint for PlusOne {
    fn order(&self, other: &Self) -> Ordering {
        self.cmp(other)
    }

    fn midpoint(self, other: Self) -> Self {
        Self(self.0.midpoint(other.0))
    }
}

fn to_segment_counts(of: &QuantityDifference<PlusOne>) -> QuantityDifference<SegCount> {
    let QuantityDifference {
        a,
        b,
        ratio,
        low,
        high,
        conclusion,
    } = *of;
    QuantityDifference {
        a: a.0,
        b: b.0,
        ratio,
        low,
        high,
        conclusion,
    }
}

fn count_limits(runs: &[ComparedRun]) -> Vec<LimitCount> {
    let mut counts: BTreeMap<Limit, [u32; 2]> = BTreeMap::new();
    for (limit, side) in runs.iter().filter_map(|run| Some((run.limit?, run.side))) {
        counts.entry(limit).or_default()[usize::from(side == ComparedSide::B)] += 1;
    }
    let mut limits: Vec<LimitCount> = counts
        .into_iter()
        .map(|(limit, [a, b])| LimitCount { limit, a, b })
        .collect();
    limits.sort_by_key(|count| std::cmp::Reverse(count.a + count.b));
    limits
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::difference::test_run::run;

    fn sample(name: &str, rates: &[u64]) -> NamedRuns {
        let run = |(index, mbps): (usize, &u64)| run(*mbps, &format!("{name}{index}"));
        NamedRuns {
            name: name.to_owned(),
            measurements: rates.iter().enumerate().map(run).collect(),
        }
    }

    fn compared(a: &[u64], b: &[u64]) -> DifferenceReport {
        compare_samples([sample("before.json", a), sample("after.json", b)]).unwrap()
    }

    #[test]
    fn each_conclusion_is_one_sentence() {
        let slow = compared(&[100, 102, 98, 101, 99, 100], &[88, 90, 87, 89, 91, 88]);
        assert_eq!(slow.conclusion, DifferenceConclusion::Different);
        assert_eq!(
            slow.sentence,
            "B (after.json) moves 11 % less than A (before.json) (9.1 to 13 %, 95 %; 6 and 6 runs, not in pairs)."
        );
        let fast = compared(&[100, 102, 98, 101], &[300, 310, 290, 300]);
        assert!(
            fast.sentence
                .contains("moves 3.0 times as much as A (before.json) (2.8 to 3.2 times"),
            "{fast:?}"
        );
        let same = compared(&[1000, 1001, 1002, 1001], &[1001, 1002, 1000, 1003]);
        assert_eq!(same.conclusion, DifferenceConclusion::Same);
        assert!(
            same.sentence
                .contains("are the same within 2 %: −0.2 to +0.3 % (95 %"),
            "{}",
            same.sentence
        );
        let unclear = compared(&[100, 120, 80, 110], &[105, 125, 85, 90]);
        assert_eq!(unclear.conclusion, DifferenceConclusion::NoneShown);
        assert!(
            unclear
                .sentence
                .starts_with("No difference shown: B (after.json) moves −"),
            "{}",
            unclear.sentence
        );
        assert!(
            unclear.sentence.contains("or more would have shown"),
            "{}",
            unclear.sentence
        );
    }

    #[test]
    fn one_run_each_shows_no_difference() {
        let report = compared(&[100], &[300]);
        assert_eq!(report.conclusion, DifferenceConclusion::TooFew);
        assert!(report.sentence.contains("--pairs"), "{}", report.sentence);
        assert_eq!((report.rate.ratio, report.detectable), (None, None));
    }

    #[test]
    fn invalid_and_double_runs_are_left_out() {
        let mut a = sample("a", &[100, 101, 102, 103]);
        a.measurements[1].broken_off = Some("the server went away".to_owned());
        a.measurements[2].interrupted = true;
        a.measurements[3].id = a.measurements[0].id.clone();
        let report = compare_samples([a.clone(), sample("b", &[100])]).unwrap();
        assert_eq!(
            (report.a.runs, report.left_out.len()),
            (1, 3),
            "{:?}",
            report.left_out
        );
        a.measurements.truncate(2);
        a.measurements.remove(0);
        let error = compare_samples([a, sample("b", &[100])])
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("a has no run that is valid") && error.contains("went away"),
            "{error}"
        );
    }

    #[test]
    fn no_retransmits_and_many_are_compared() {
        let mut samples = [sample("a", &[100; 5]), sample("b", &[100; 5])];
        for (sample, counts) in samples
            .iter_mut()
            .zip([[0, 0, 1, 0, 0], [90, 80, 100, 95, 85]])
        {
            for (run, count) in sample.measurements.iter_mut().zip(counts) {
                run.summary.retransmits = Some(SegCount::new(count));
            }
        }
        let resent = compare_samples(samples).unwrap().retransmits.unwrap();
        assert_eq!((resent.a, resent.b), (SegCount::ZERO, SegCount::new(90)));
        assert_eq!(resent.conclusion, DifferenceConclusion::Different);
    }
}
