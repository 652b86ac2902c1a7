use fullpipe_diagnose::diagnose;
use fullpipe_record::{
    ComparedRuns, ComparedSide, ComparisonDesign, DifferenceReport, Framing, PairForecast,
};
use fullpipe_stats::{PairOrder, detectable_difference, pair_orders, pairs_needed};

use crate::prelude::*;

use super::figures::{RunFigures, invalidity_reason};
use super::report::difference_report;

/// One of two settings that are measured in pairs.
#[derive(Debug, Clone)]
pub struct PairedSide {
    /// Name for the report, one line.
    pub name: String,
    /// The load.
    pub request: Request,
}

/// Noise of single runs that a forecast assumes, as a share: on a busy wide-area path they differ
/// by 6 %, and some meet a burst of other traffic.
const USUAL_NOISE: f64 = 0.075;

/// Returns the cost of `pairs` pairs and the difference that they can show, from one run of each
/// side.
pub fn forecast_pairs(pairs: u32, first: [&Measurement; 2]) -> PairForecast {
    let times = u64::from(pairs);
    let walls = first.map(|run| run.run.map_or(run.summary.duration, |totals| totals.wall));
    let moved = first.map(|run| {
        let sent = run.summary.sent.get();
        run.run.map_or(sent, |totals| {
            sent.max(totals.written.get()).max(totals.read.get())
        })
    });
    let noise = Ratio::new(USUAL_NOISE);
    let shown = detectable_difference(noise, pairs as usize);
    PairForecast {
        pairs,
        time: walls.into_iter().sum::<Span>() * times,
        bytes: ByteCount::new(moved.into_iter().sum::<u64>().saturating_mul(times)),
        noise,
        detectable: shown,
        pairs_for_half: pairs_needed(noise, Ratio::new(shown.get() / 2.0))
            .map(|pairs| pairs as u32),
    }
}

/// Measures A and B in `pairs` pairs, each in a random order that follows from `seed`, and passes
/// each run to `done` with its side and the number of its pair. A run that fails or is invalid is
/// repeated once; if it is invalid again, its pair is left out.
///
/// Returns the report, `None` without a complete pair, and the error that ended it early, if one
/// did. An interrupted run is the last one.
pub fn run_pairs<E>(
    sides: &[PairedSide; 2],
    pairs: u32,
    seed: u64,
    measure: &mut dyn FnMut(&Request) -> Result<Measurement, E>,
    done: &mut dyn FnMut(u32, ComparedSide, &Measurement),
) -> (Option<DifferenceReport>, Option<E>) {
    let mut session = PairedSession {
        runs: Vec::new(),
        left_out: Vec::new(),
        complete: 0,
    };
    let mut ended = Ok(true);
    for (order, pair) in pair_orders(pairs as usize, seed).into_iter().zip(1..) {
        ended = session.measure_pair(sides, (pair, order), measure, done);
        if !matches!(ended, Ok(true)) {
            break;
        }
    }
    let report = session.into_report(sides, matches!(ended, Ok(false)));
    (report, ended.err())
}

/// The pairs so far.
struct PairedSession {
    runs: Vec<(ComparedSide, Option<u32>, RunFigures)>,
    left_out: Vec<String>,
    complete: u32,
}

impl PairedSession {
    /// Measures a pair; returns false if the user interrupted it.
    fn measure_pair<E>(
        &mut self,
        sides: &[PairedSide; 2],
        (pair, order): (u32, PairOrder),
        measure: &mut dyn FnMut(&Request) -> Result<Measurement, E>,
        done: &mut dyn FnMut(u32, ComparedSide, &Measurement),
    ) -> Result<bool, E> {
        let order = match order {
            PairOrder::Ab => [ComparedSide::A, ComparedSide::B],
            PairOrder::Ba => [ComparedSide::B, ComparedSide::A],
        };
        let mut of_pair = Vec::new();
        for side in order {
            let run = judge_run(measure_with_retry(
                &sides[usize::from(side == ComparedSide::B)].request,
                measure,
            )?);
            if run.interrupted {
                return Ok(false);
            }
            done(pair, side, &run);
            if let Some(why) = invalidity_reason(&run) {
                self.left_out.push(format!(
                    "Pair {pair} was left out: of its run of {side:?}, {why}"
                ));
                return Ok(true);
            }
            of_pair.push((side, Some(pair), RunFigures::from_measurement(&run)));
        }
        self.runs.append(&mut of_pair);
        self.complete += 1;
        Ok(true)
    }

    fn into_report(self, sides: &[PairedSide; 2], interrupted: bool) -> Option<DifferenceReport> {
        let Self {
            runs,
            left_out,
            complete,
        } = self;
        let sides = sides.each_ref().map(|side| ComparedRuns {
            name: side.name.clone(),
            runs: complete,
            within_run: None,
        });
        (complete > 0).then(|| DifferenceReport {
            interrupted,
            ..difference_report(ComparisonDesign::Pairs, sides, runs, left_out)
        })
    }
}

/// Measures, and once more if that fails or is not valid.
fn measure_with_retry<E>(
    request: &Request,
    measure: &mut dyn FnMut(&Request) -> Result<Measurement, E>,
) -> Result<Measurement, E> {
    match measure(request) {
        Ok(run) if run.interrupted || invalidity_reason(&run).is_none() => Ok(run),
        _ => measure(request),
    }
}

/// Returns the run with its limit. Datagrams have none.
fn judge_run(run: Measurement) -> Measurement {
    if run.limit.is_some() || run.request.transport == Transport::Udp {
        return run;
    }
    let limit = diagnose(&Evidence::from_measurement(&run, None, Framing::Ethernet));
    Measurement {
        limit: Some(limit),
        ..run
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::difference::test_run::run;
    use fullpipe_record::DifferenceConclusion;

    fn sides() -> [PairedSide; 2] {
        ["one stream", "two streams"].map(|name| {
            let streams = if name == "one stream" { 1 } else { 2 };
            PairedSide {
                name: name.to_owned(),
                request: Request {
                    streams,
                    ..Request::default()
                },
            }
        })
    }

    #[test]
    fn pairs_are_measured_in_both_orders_and_compared_within_each() {
        // The path becomes slower and slower; B is a tenth faster.
        let mut at = 0;
        let mut measure = |request: &Request| {
            at += 1;
            let drifting = 1000 - 20 * at;
            Ok::<_, ()>(run(
                if request.streams == 2 {
                    drifting * 11 / 10
                } else {
                    drifting
                },
                &at.to_string(),
            ))
        };
        let mut order = Vec::new();
        let (report, error) = run_pairs(&sides(), 8, 3, &mut measure, &mut |pair, side, _| {
            order.push((pair, side));
        });
        let report = report.unwrap();
        assert_eq!(
            (error, report.a.runs, report.runs.len(), order.len()),
            (None, 8, 16, 16)
        );
        assert_eq!(
            order
                .chunks(2)
                .filter(|pair| pair[0].1 == ComparedSide::A)
                .count(),
            4
        );
        assert_eq!(report.conclusion, DifferenceConclusion::Different);
        let ratio = report.rate.ratio.unwrap().get();
        assert!((ratio - 1.1).abs() < 0.03, "{ratio}");
        assert!(report.sentence.contains("8 pairs"), "{}", report.sentence);
    }

    #[test]
    fn an_invalid_run_is_repeated_and_its_pair_left_out_if_it_is_invalid_again() {
        let mut calls = 0;
        let mut measure = |_: &Request| {
            calls += 1;
            let mut run = run(100, &calls.to_string());
            // The first run once, one of the second pair twice.
            if [1, 4, 5].contains(&calls) {
                run.validity.broken.push("the machine was busy".to_owned());
            }
            Ok::<_, ()>(run)
        };
        let (report, _) = run_pairs(&sides(), 3, 1, &mut measure, &mut |_, _, _| {});
        let report = report.unwrap();
        assert_eq!(
            (report.a.runs, report.left_out.len()),
            (2, 1),
            "{:?}",
            report.left_out
        );
        assert!(report.left_out[0].contains("Pair 2") && report.left_out[0].contains("busy"));
    }

    #[test]
    fn an_error_and_an_interrupt_keep_the_complete_pairs() {
        for stop in ["error", "interrupt"] {
            let mut calls = 0;
            let mut measure = |_: &Request| {
                calls += 1;
                let mut run = run(100, &calls.to_string());
                run.interrupted = stop == "interrupt" && calls > 5;
                if stop == "error" && calls > 5 {
                    Err("gone")
                } else {
                    Ok(run)
                }
            };
            let (report, error) = run_pairs(&sides(), 6, 1, &mut measure, &mut |_, _, _| {});
            let report = report.unwrap();
            assert_eq!(
                (report.a.runs, report.interrupted),
                (2, stop == "interrupt")
            );
            assert_eq!(error, (stop == "error").then_some("gone"));
        }
    }

    #[test]
    fn a_forecast_is_the_first_runs_times_the_pairs() {
        let (mut a, b) = (run(100, "1"), run(100, "2"));
        a.summary.sent = ByteCount::from_mib(3);
        let forecast = forecast_pairs(12, [&a, &b]);
        let all = 12 * (ByteCount::from_mib(3).get() + b.summary.sent.get());
        assert_eq!(forecast.bytes, ByteCount::new(all));
        assert!(
            (0.09..0.1).contains(&forecast.detectable.get()),
            "{forecast:?}"
        );
        assert!(
            forecast
                .pairs_for_half
                .is_some_and(|pairs| (40..50).contains(&pairs)),
            "{forecast:?}"
        );
    }
}
