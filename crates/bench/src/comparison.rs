//! Contestants in turn, round after round, and what comes out.

use fullpipe_stats::paired_difference;
use fullpipe_units::{Ratio, median};
use serde::Serialize;

use crate::process::RunError;

/// The length of a run and the number of rounds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Effort {
    pub(crate) seconds: f64,
    pub(crate) rounds: usize,
    /// Set if the processors are kept awake.
    pub(crate) keeps_awake: bool,
}

/// A quantity that is measured in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Quantity {
    /// Bits that arrived, a second.
    BitsPerSecond,
    /// Datagrams that arrived, a second.
    DatagramsPerSecond,
    /// Share of the datagrams that did not arrive.
    ShareLost,
    /// Processor seconds of both processes for 10⁹ bytes that arrived.
    CpuSecondsPerGigabyte,
    /// Busy processor seconds of the whole machine for 10⁹ bytes that arrived.
    BusySecondsPerGigabyte,
    /// From the start of the process to the first byte of data.
    MillisecondsToData,
    /// Packets of a capture that are read, a second.
    PacketsPerSecond,
    /// The most memory in bytes that a process has resident.
    PeakMemory,
}

/// The values of one contestant.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Row {
    pub(crate) contestant: String,
    /// One for each round; `None` where its run failed.
    pub(crate) values: Vec<Option<f64>>,
    pub(crate) median: Option<f64>,
    pub(crate) p90: Option<f64>,
    pub(crate) largest: Option<f64>,
    /// Against the last contestant of the case, round by round.
    pub(crate) ratio: Option<RatioInterval>,
}

/// A ratio with its 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct RatioInterval {
    pub(crate) estimate: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

/// One quantity of all contestants.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Table {
    pub(crate) quantity: Quantity,
    pub(crate) rows: Vec<Row>,
}

/// The outcome of a case.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub(crate) struct Outcome {
    pub(crate) tables: Vec<Table>,
    /// Notes for the reader: runs that failed, programs that are absent.
    pub(crate) notes: Vec<String>,
    /// True if the user ended it before its time.
    pub(crate) interrupted: bool,
}

/// A contestant that fails so often is left out of the rest of a case.
const MAX_FAILURES: usize = 2;

impl Outcome {
    /// A case that cannot be run here.
    pub(crate) fn skipped(why: &impl ToString) -> Self {
        Self {
            tables: Vec::new(),
            notes: vec![format!("not run: {}", why.to_string())],
            interrupted: false,
        }
    }

    /// Both, one after the other.
    #[must_use]
    pub(crate) fn followed_by(mut self, other: Self) -> Self {
        self.tables.extend(other.tables);
        self.notes.extend(other.notes);
        self.interrupted |= other.interrupted;
        self
    }

    /// With more that the reader must know.
    #[must_use]
    pub(crate) fn with_notes(mut self, notes: Vec<String>) -> Self {
        self.notes.splice(..0, notes);
        self
    }
}

/// Runs every contestant once a round, every other round in reverse order, so that whatever drifts
/// meanwhile meets all alike. `run` takes the contestant's number and gives one value for each of
/// `quantities`. The last contestant is what the others are compared with.
pub(crate) fn alternate(
    contestants: &[String],
    quantities: &[Quantity],
    rounds: usize,
    mut run: impl FnMut(usize) -> Result<Vec<f64>, RunError>,
) -> Outcome {
    let mut runs: Vec<Vec<Option<Vec<f64>>>> = vec![Vec::new(); contestants.len()];
    let mut notes = Vec::new();
    let mut interrupted = false;
    'rounds: for round in 0..rounds {
        for turn in 0..contestants.len() {
            let contestant = if round % 2 == 0 {
                turn
            } else {
                contestants.len() - 1 - turn
            };
            if runs[contestant].iter().filter(|run| run.is_none()).count() >= MAX_FAILURES {
                runs[contestant].push(None);
                continue;
            }
            match run(contestant) {
                Ok(values) => runs[contestant].push(Some(values)),
                Err(RunError::Interrupted) => {
                    interrupted = true;
                    break 'rounds;
                }
                Err(RunError::Failed(words)) => {
                    notes.push(format!(
                        "{}, round {}: {words}",
                        contestants[contestant],
                        round + 1
                    ));
                    runs[contestant].push(None);
                }
            }
        }
    }
    let tables = quantities
        .iter()
        .enumerate()
        .map(|(column, &quantity)| table(contestants, &runs, column, quantity));
    Outcome {
        tables: tables.collect(),
        notes,
        interrupted,
    }
}

fn table(
    contestants: &[String],
    runs: &[Vec<Option<Vec<f64>>>],
    column: usize,
    quantity: Quantity,
) -> Table {
    let values: Vec<Vec<Option<f64>>> = runs
        .iter()
        .map(|rounds| {
            rounds
                .iter()
                .map(|run| run.as_ref().and_then(|values| values.get(column).copied()))
                .collect()
        })
        .collect();
    let baseline = values.last().cloned().unwrap_or_default();
    let last = contestants.len() - 1;
    let rows = contestants
        .iter()
        .zip(values)
        .enumerate()
        .map(|(number, (contestant, values))| {
            // A share of zero cannot be divided by.
            let compared = number < last && quantity != Quantity::ShareLost;
            row(contestant.clone(), values, compared.then_some(&baseline))
        });
    Table {
        quantity,
        rows: rows.collect(),
    }
}

fn row(contestant: String, values: Vec<Option<f64>>, baseline: Option<&Vec<Option<f64>>>) -> Row {
    let known: Vec<f64> = values.iter().copied().flatten().collect();
    Row {
        median: median(known.clone()),
        p90: quantile(&known, 0.9),
        largest: quantile(&known, 1.0),
        ratio: baseline.and_then(|baseline| ratio_of_rounds(&values, baseline)),
        contestant,
        values,
    }
}

/// Returns the ratio to `baseline` of the rounds that both have.
fn ratio_of_rounds(values: &[Option<f64>], baseline: &[Option<f64>]) -> Option<RatioInterval> {
    let rounds = baseline.iter().zip(values);
    let pairs: Vec<(Ratio, Ratio)> = rounds
        .filter_map(|(base, value)| Some((Ratio::new((*base)?), Ratio::new((*value)?))))
        .collect();
    let difference = paired_difference(&pairs)?;
    Some(RatioInterval {
        estimate: difference.ratio.get(),
        low: difference.low.get(),
        high: difference.high.get(),
    })
}

/// Returns the smallest value that a share of `share` of all values does not exceed (nearest rank);
/// `None` of nothing.
pub(crate) fn quantile(values: &[f64], share: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (share * values.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn the_order_is_swapped_every_round() {
        let mut order = Vec::new();
        let outcome = alternate(
            &names(&["a", "b", "c"]),
            &[Quantity::BitsPerSecond],
            2,
            |contestant| {
                order.push(contestant);
                Ok(vec![contestant as f64 + 1.0])
            },
        );
        assert_eq!(order, [0, 1, 2, 2, 1, 0]);
        let rows = &outcome.tables[0].rows;
        assert_eq!(rows[1].values, [Some(2.0), Some(2.0)]);
        assert!(
            (rows[0].ratio.unwrap().estimate - 1.0 / 3.0).abs() < 1e-9 && rows[2].ratio.is_none(),
            "{rows:?}"
        );
    }

    #[test]
    fn a_run_that_fails_is_named_and_the_case_goes_on_without_it() {
        let mut count = 0;
        let outcome = alternate(
            &names(&["a", "b"]),
            &[Quantity::BitsPerSecond],
            3,
            |contestant| {
                count += 1;
                if count == 3 {
                    Err(RunError::failed("no luck"))
                } else {
                    Ok(vec![f64::from(count) + contestant as f64])
                }
            },
        );
        assert_eq!(outcome.notes, ["b, round 2: no luck"]);
        // Runs in order: a 1, b 3, (b fails), a 4, a 5, b 7.
        let rows = &outcome.tables[0].rows;
        assert_eq!(rows[0].values, [Some(1.0), Some(4.0), Some(5.0)]);
        assert_eq!(rows[1].values, [Some(3.0), None, Some(7.0)]);
        let ratio = rows[0].ratio.unwrap();
        let of_two_rounds = (5.0_f64 / 21.0).sqrt();
        assert!((ratio.estimate - of_two_rounds).abs() < 1e-9, "{ratio:?}");
    }

    #[test]
    fn what_fails_twice_is_left_out_of_the_rest() {
        let mut runs = [0; 2];
        let outcome = alternate(
            &names(&["bad", "good"]),
            &[Quantity::ShareLost],
            5,
            |contestant| {
                runs[contestant] += 1;
                if contestant == 0 {
                    Err(RunError::failed("no"))
                } else {
                    Ok(vec![0.0])
                }
            },
        );
        assert_eq!(runs, [2, 5]);
        assert_eq!(outcome.tables[0].rows[0].median, None);
        assert_eq!(outcome.tables[0].rows[1].largest, Some(0.0));
    }

    #[test]
    fn an_interrupt_keeps_what_there_is() {
        let mut count = 0;
        let outcome = alternate(&names(&["a", "b"]), &[Quantity::BitsPerSecond], 9, |_| {
            count += 1;
            if count > 2 {
                Err(RunError::Interrupted)
            } else {
                Ok(vec![1.0])
            }
        });
        assert!(outcome.interrupted);
        assert_eq!(outcome.tables[0].rows[1].values, [Some(1.0)]);
    }
}
