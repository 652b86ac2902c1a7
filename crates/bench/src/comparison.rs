//! Contestants in turn, round after round, and what comes out.

use fullpipe_units::median;
use serde::Serialize;

use crate::process::RunError;
use crate::statistics::{Ratio, quantile, ratio};

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
    pub(crate) ratio: Option<Ratio>,
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
    let ratios = |baseline: &Vec<Option<f64>>| -> Vec<f64> {
        let pairs = values
            .iter()
            .zip(baseline)
            .filter_map(|(value, base)| value.zip(*base));
        pairs
            .filter(|(_, base)| *base > 0.0)
            .map(|(value, base)| value / base)
            .collect()
    };
    Row {
        median: median(known.clone()),
        p90: quantile(&known, 0.9),
        largest: quantile(&known, 1.0),
        ratio: baseline.and_then(|baseline| ratio(&ratios(baseline))),
        contestant,
        values,
    }
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
            (rows[0].ratio.unwrap().median - 1.0 / 3.0).abs() < 1e-12 && rows[2].ratio.is_none(),
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
        assert!(
            (ratio.median - f64::midpoint(1.0 / 3.0, 5.0 / 7.0)).abs() < 1e-12,
            "of two rounds: {ratio:?}"
        );
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
