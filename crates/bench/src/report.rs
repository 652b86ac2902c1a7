//! The output: text of 80 columns, and the same as one JSON document.

use std::fmt::Write;

use fullpipe_units::{BitRate, ByteCount};
use serde::Serialize;

use crate::case::Case;
use crate::comparison::{Effort, Outcome, Quantity, RatioInterval, Row, Table};
use crate::machine::Machine;
use crate::program::{Tool, Tools};

const COLUMNS: usize = 80;

/// The version of the document; its fields only grow within one.
const SCHEMA: u32 = 2;

/// Everything that came out.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    schema: u32,
    heading: Heading,
    cases: Vec<CaseReport>,
}

/// Under which conditions.
#[derive(Debug, Serialize)]
pub(crate) struct Heading {
    machine: Machine,
    /// True if the processors were kept from sleeping.
    kept_awake: bool,
    rounds: usize,
    seconds: f64,
    programs: Vec<ProgramReport>,
}

#[derive(Debug, Serialize)]
struct ProgramReport {
    path: String,
    version: Option<String>,
    /// Why it cannot be run.
    absent: Option<String>,
}

#[derive(Debug, Serialize)]
struct CaseReport {
    name: String,
    title: String,
    #[serde(flatten)]
    outcome: Outcome,
}

impl Heading {
    pub(crate) fn new(machine: Machine, effort: Effort, tools: &Tools) -> Self {
        let programs = [&tools.fullpipe, &tools.iperf3, &tools.iperf2]
            .map(ProgramReport::new)
            .into();
        Self {
            machine,
            kept_awake: effort.keeps_awake,
            rounds: effort.rounds,
            seconds: effort.seconds,
            programs,
        }
    }

    /// As text.
    pub(crate) fn text(&self) -> String {
        let Machine {
            kernel,
            processors,
            busy_before,
        } = &self.machine;
        let awake = if self.kept_awake {
            "kept awake"
        } else {
            "free to sleep"
        };
        let rounds = if self.rounds == 1 {
            "1 round".to_owned()
        } else {
            format!("{} rounds", self.rounds)
        };
        let mut text = format!(
            "{rounds} of {} s a run, in turn; CUBIC\nLinux {kernel}, {processors} processors, {awake}\n\
             {:.0} % busy with other things before the first run\n",
            self.seconds,
            100.0 * busy_before
        );
        for program in &self.programs {
            text += &wrapped(&program.text());
        }
        text
    }
}

impl ProgramReport {
    fn new(tool: &Tool) -> Self {
        let path = tool.path.display().to_string();
        Self {
            path,
            version: tool.version.clone().ok(),
            absent: tool.version.clone().err(),
        }
    }

    fn text(&self) -> String {
        match (&self.version, &self.absent) {
            (Some(version), _) => format!("{}: {version}", self.path),
            (None, Some(why)) => why.clone(),
            (None, None) => self.path.clone(),
        }
    }
}

impl Report {
    pub(crate) fn new(heading: Heading) -> Self {
        Self {
            schema: SCHEMA,
            heading,
            cases: Vec::new(),
        }
    }

    pub(crate) fn add(&mut self, case: Case, outcome: Outcome) {
        self.cases.push(CaseReport {
            name: case.name(),
            title: case.title(),
            outcome,
        });
    }

    /// The document.
    pub(crate) fn json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default()
    }
}

/// Returns what a case is.
pub(crate) fn case_head(case: Case) -> String {
    wrapped(&format!("{}: {}", case.name(), case.title()))
}

/// Returns what came out of it.
pub(crate) fn outcome_text(outcome: &Outcome) -> String {
    let tables = outcome.tables.iter().map(table_text).collect::<String>();
    let notes = outcome
        .notes
        .iter()
        .map(|note| indented(note))
        .collect::<String>();
    let cut_short = if outcome.interrupted {
        indented("interrupted: what there is")
    } else {
        String::new()
    };
    tables + &notes + &cut_short
}

fn table_text(table: &Table) -> String {
    let compared = if table.rows.iter().any(|row| row.ratio.is_some()) {
        "ratio (95 %)"
    } else {
        ""
    };
    let head = format!(
        "  {:<42}{:>12}  {compared}",
        describe(table.quantity),
        spread_name(table.quantity)
    );
    let mut text = head.trim_end().to_owned() + "\n";
    for row in &table.rows {
        text += &row_text(row, table.quantity);
    }
    text
}

fn row_text(row: &Row, quantity: Quantity) -> String {
    let value = |value: Option<f64>| {
        value.map_or_else(|| "-".to_owned(), |value| format_value(value, quantity))
    };
    let spread = match quantity {
        Quantity::ShareLost => value(row.largest),
        Quantity::MillisecondsToData => value(row.p90),
        _ => String::new(),
    };
    let ratio = row.ratio.as_ref().map(ratio_text).unwrap_or_default();
    let text = format!(
        "    {:<26}{:>14}{spread:>12}  {ratio}",
        row.contestant,
        value(row.median)
    );
    text.trim_end().to_owned() + "\n"
}

fn ratio_text(ratio: &RatioInterval) -> String {
    let RatioInterval {
        estimate,
        low,
        high,
    } = ratio;
    format!("{estimate:.2} × ({low:.2}–{high:.2})")
}

/// Returns what a table is of, in addition to the baseline, which comes last; the first column of
/// figures is the median of the rounds.
fn describe(quantity: Quantity) -> &'static str {
    match quantity {
        Quantity::BitsPerSecond => "arrived",
        Quantity::DatagramsPerSecond => "datagrams arrived",
        Quantity::ShareLost => "lost",
        Quantity::CpuSecondsPerGigabyte => "CPU time per GB, both programs",
        Quantity::BusySecondsPerGigabyte => "busy time per GB, whole machine",
        Quantity::MillisecondsToData => "until the first byte of data",
        Quantity::PacketsPerSecond => "packets read",
        Quantity::PeakMemory => "memory",
    }
}

/// The second column of figures, where there is one.
fn spread_name(quantity: Quantity) -> &'static str {
    match quantity {
        Quantity::ShareLost => "most",
        Quantity::MillisecondsToData => "p90",
        _ => "",
    }
}

fn format_value(value: f64, quantity: Quantity) -> String {
    match quantity {
        Quantity::BitsPerSecond => BitRate::from_bps(value as u64).to_string(),
        Quantity::DatagramsPerSecond => format!("{:.1} k/s", value / 1e3),
        Quantity::ShareLost => format!("{:.4} %", 100.0 * value),
        Quantity::CpuSecondsPerGigabyte | Quantity::BusySecondsPerGigabyte => {
            format!("{value:.3} s")
        }
        Quantity::MillisecondsToData => format!("{value:.1} ms"),
        Quantity::PacketsPerSecond => format!("{:.3} M/s", value / 1e6),
        Quantity::PeakMemory => ByteCount::new(value as u64).to_string(),
    }
}

fn indented(text: &str) -> String {
    wrap(text, "  ", "    ")
}

fn wrapped(text: &str) -> String {
    wrap(text, "", "  ")
}

/// Lines of at most [`COLUMNS`], broken between words where that is possible.
fn wrap(text: &str, first: &str, others: &str) -> String {
    let mut lines = vec![first.to_owned()];
    let mut begins = true;
    for word in text.split_whitespace() {
        let last = lines.len() - 1;
        if !begins && lines[last].chars().count() + 1 + word.chars().count() > COLUMNS {
            lines.push(format!("{others}{word}"));
            continue;
        }
        let space = if begins { "" } else { " " };
        // Writing to a string cannot fail.
        let _ = write!(lines[last], "{space}{word}");
        begins = false;
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comparison::alternate;

    #[test]
    fn the_longest_lines_fit_into_80_columns() {
        let names = ["iperf3 --skip-rx-copy", "fullpipe (no --rx-copy)"].map(str::to_owned);
        let outcome = alternate(
            &names,
            &[Quantity::BitsPerSecond, Quantity::ShareLost],
            7,
            |contestant| {
                Ok(vec![
                    if contestant == 0 {
                        123_456_789_012.0
                    } else {
                        9_876_543_210.0
                    },
                    1.0,
                ])
            },
        );
        let text = outcome_text(&outcome.with_notes(vec!["a word ".repeat(60)]));
        assert!(
            text.lines().all(|line| line.chars().count() <= COLUMNS),
            "{text}"
        );
        assert!(text.contains("12.50 × (12.50–12.50)"), "{text}");
    }

    #[test]
    fn a_table_is_aligned() {
        let mut starts = [12.0, 30.0, 30.0, 12.0].into_iter();
        let names = ["fullpipe", "iperf3"].map(str::to_owned);
        let quantity = [Quantity::MillisecondsToData];
        let outcome = alternate(&names, &quantity, 2, |_| {
            Ok(vec![starts.next().unwrap_or_default()])
        });
        let expected = "  until the first byte of data                       p90  ratio (95 %)\n    \
                        fullpipe                         12.0 ms     12.0 ms  0.40 × (0.38–0.42)\n    \
                        iperf3                           30.0 ms     30.0 ms\n";
        assert_eq!(outcome_text(&outcome), expected);
    }
}
