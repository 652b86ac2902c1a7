//! As many combinations as a file has rows, fast: CSV in, CSV out, on as many threads as there are.

use std::io::{self, Write};
use std::num::NonZeroUsize;
use std::ops::Range;
use std::thread;

use csv::{ByteRecord, ReaderBuilder};
use thiserror::Error;

use crate::prelude::*;

use super::case::{HostPair, estimate_inputs, round_trip};
use super::{CombinationAxes, InputError, QuantitySetting, READABLE};

/// Why a batch ends early.
#[derive(Debug, Error)]
pub enum BatchError {
    /// The header, or a flag given with it.
    #[error(transparent)]
    Inputs(#[from] InputError),
    /// A row; the rows before it were written.
    #[error("line {line}: {why}")]
    Row {
        /// From 1, which is the header's.
        line: u64,
        /// The name of the bad column, and the values that would be valid there.
        why: String,
    },
    /// The output.
    #[error("cannot write: {0}")]
    Write(#[from] io::Error),
}

/// Rows of quantities, each to be combined with every combination of lists.
///
/// The first line of a file names its columns, from [`READABLE`]. A cell has a unit as a flag has,
/// or is a bare number in bit/s, seconds, bytes, as a fraction or count; an empty one is not said.
/// The output has the file's columns as they are, then one for each list, then `textbook_bps`,
/// `kernel_model_bps`, `low_bps`, `high_bps` and `limit`, and `seconds` where there is a size.
pub struct CalculationBatch<'a> {
    columns: Vec<Quantity>,
    /// The rows after the header; without a file, one row without columns.
    rows: Option<&'a [u8]>,
    first_line: u64,
    axes: &'a CombinationAxes,
    cells: Vec<Vec<String>>,
    hosts: &'a HostPair,
}

impl<'a> CalculationBatch<'a> {
    /// A batch of the rows of `file`.
    ///
    /// # Errors
    /// A header with an unknown column, one that comes twice or is given as a flag too; no
    /// round-trip time in either.
    pub fn of_file(
        file: &'a [u8],
        axes: &'a CombinationAxes,
        hosts: &'a HostPair,
    ) -> Result<Self, InputError> {
        let mut reader = ReaderBuilder::new().from_reader(file);
        let header = reader.byte_headers().cloned().unwrap_or_default();
        let columns = read_columns(&header, axes)?;
        axes.check_combinations(|quantity| columns.contains(&quantity))?;
        let (rows, first_line) = after_header(file);
        Ok(Self {
            columns,
            rows: Some(rows),
            first_line,
            axes,
            cells: axes.list_cells(),
            hosts,
        })
    }

    /// A batch of the lists alone.
    ///
    /// # Errors
    /// No round-trip time.
    pub fn of_lists(axes: &'a CombinationAxes, hosts: &'a HostPair) -> Result<Self, InputError> {
        axes.check_combinations(|_| false)?;
        Ok(Self {
            columns: Vec::new(),
            rows: None,
            first_line: 1,
            axes,
            cells: axes.list_cells(),
            hosts,
        })
    }

    /// Writes the header and all rows, in order.
    ///
    /// # Errors
    /// The first row that is wrong, once what comes before it is written; an output that ends.
    pub fn run(&self, threads: NonZeroUsize, out: &mut impl Write) -> Result<(), BatchError> {
        out.write_all(self.header_line().as_bytes())?;
        let mut jobs = self.batch_jobs();
        loop {
            let wave: Vec<BatchJob> = jobs.by_ref().take(threads.get()).collect();
            if wave.is_empty() {
                return Ok(());
            }
            for (text, ended) in self.at_once(&wave) {
                out.write_all(&text)?;
                ended?;
            }
        }
    }

    fn at_once(&self, wave: &[BatchJob]) -> Vec<(Vec<u8>, Result<(), BatchError>)> {
        thread::scope(|scope| {
            let running: Vec<_> = wave
                .iter()
                .map(|job| scope.spawn(|| self.run_job(job)))
                .collect();
            running
                .into_iter()
                .filter_map(|thread| thread.join().ok())
                .collect()
        })
    }

    fn header_line(&self) -> String {
        let inputs = self
            .columns
            .iter()
            .copied()
            .chain(self.axes.listed_quantities())
            .map(Quantity::name);
        let found = [
            "textbook_bps",
            "kernel_model_bps",
            "low_bps",
            "high_bps",
            "limit",
        ]
        .into_iter();
        let names: Vec<&str> = inputs
            .chain(found)
            .chain(self.has_size().then_some("seconds"))
            .collect();
        names.join(",") + "\n"
    }

    fn has_size(&self) -> bool {
        self.columns.contains(&Quantity::Size) || self.axes.has_quantity(Quantity::Size)
    }

    /// Parts of about as many combinations each.
    fn batch_jobs(&self) -> impl Iterator<Item = BatchJob<'a>> {
        let combinations = self.axes.len();
        let rows = JOB / combinations.max(1);
        let chunks = LineChunks {
            rest: self.rows.unwrap_or(b"\n"),
            line: self.first_line,
            bytes: rows * ROW,
        };
        chunks.flat_map(move |(rows, line)| {
            let starts = (0..combinations).step_by(JOB as usize);
            starts.map(move |start| BatchJob {
                rows,
                line,
                combinations: start..combinations.min(start + JOB),
            })
        })
    }

    fn run_job(&self, job: &BatchJob) -> (Vec<u8>, Result<(), BatchError>) {
        let mut out = Vec::with_capacity(JOB as usize * LINE);
        if self.rows.is_some() {
            let ended = self.rows_of(job, &mut out);
            return (out, ended);
        }
        self.append_combinations(&mut self.axes.fixed_inputs().clone(), &[], job, &mut out);
        (out, Ok(()))
    }

    fn rows_of(&self, job: &BatchJob, out: &mut Vec<u8>) -> Result<(), BatchError> {
        let mut reader = ReaderBuilder::new()
            .has_headers(false)
            .flexible(true)
            .from_reader(job.rows);
        let mut record = ByteRecord::new();
        let mut before = Vec::new();
        while reader
            .read_byte_record(&mut record)
            .map_err(|error| BatchError::Row {
                line: job.line,
                why: error.to_string(),
            })?
        {
            let mut inputs = self.read_row(&record).map_err(|why| BatchError::Row {
                line: job.line_of(&record),
                why,
            })?;
            before.clear();
            for cell in &record {
                before.extend_from_slice(cell.trim_ascii());
                before.push(b',');
            }
            self.append_combinations(&mut inputs, &before, job, out);
        }
        Ok(())
    }

    fn read_row(&self, record: &ByteRecord) -> Result<Inputs, String> {
        if record.len() != self.columns.len() {
            return Err(format!(
                "{} cells, but the header has {} columns",
                record.len(),
                self.columns.len()
            ));
        }
        let mut inputs = self.axes.fixed_inputs().clone();
        let cells = record.iter().map(<[u8]>::trim_ascii);
        let given = self.columns.iter().zip(cells);
        for (column, cell) in given.filter(|(_, cell)| !cell.is_empty()) {
            read_cell(*column, cell)
                .map_err(|error| format!("column {}: {error}", column.name()))?
                .apply_to(&mut inputs);
        }
        if round_trip(&inputs).is_none()
            && !self.axes.has_quantity(Quantity::Rtt)
            && !self.axes.has_quantity(Quantity::Distance)
        {
            return Err(
                "it has no rtt and no distance; write for example 173ms in column rtt".to_owned(),
            );
        }
        Ok(inputs)
    }

    /// Appends to `out` one line for each combination of the job: the cells of the row, then the
    /// results for `inputs` with the settings of the combination.
    fn append_combinations(
        &self,
        inputs: &mut Inputs,
        before: &[u8],
        job: &BatchJob,
        out: &mut Vec<u8>,
    ) {
        for index in job.combinations.clone() {
            out.extend_from_slice(before);
            for (setting, (cells, position)) in self
                .axes
                .combination_settings(index)
                .zip(self.cells.iter().zip(self.axes.list_positions(index)))
            {
                setting.apply_to(inputs);
                out.extend_from_slice(cells[position].as_bytes());
                out.push(b',');
            }
            self.append_results(&estimate_inputs(inputs, self.hosts), out);
        }
    }

    fn append_results(&self, found: &Estimate, out: &mut Vec<u8>) {
        let mut digits = itoa::Buffer::new();
        for rate in [found.textbook, found.kernel_model, found.low, found.high] {
            out.extend_from_slice(digits.format(rate.bps()).as_bytes());
            out.push(b',');
        }
        out.extend_from_slice(found.limit.name().as_bytes());
        if self.has_size() {
            // Writing to memory does not fail.
            let _ = write!(
                out,
                ",{}",
                found
                    .time
                    .map_or_else(String::new, |time| time.as_secs_f64().to_string())
            );
        }
        out.push(b'\n');
    }
}

/// Some rows, of which the first is on `line`, and the combinations to be made with each.
struct BatchJob<'a> {
    rows: &'a [u8],
    line: u64,
    combinations: Range<u64>,
}

impl BatchJob<'_> {
    /// The line on which `record` begins. The reader counts empty lines before a record as part of
    /// it.
    fn line_of(&self, record: &ByteRecord) -> u64 {
        let start = record
            .position()
            .map_or(0, |position| position.byte() as usize);
        let blank = self.rows[start..]
            .iter()
            .take_while(|byte| byte.is_ascii_whitespace())
            .count();
        self.line + count_newlines(&self.rows[..start + blank])
    }
}

/// Whole lines of at least `bytes` bytes, each with the number of the first.
struct LineChunks<'a> {
    rest: &'a [u8],
    line: u64,
    bytes: u64,
}

impl<'a> Iterator for LineChunks<'a> {
    type Item = (&'a [u8], u64);

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let least = usize::try_from(self.bytes)
            .unwrap_or(usize::MAX)
            .min(self.rest.len());
        let end = line_end(&self.rest[least.saturating_sub(1)..])
            .map_or(self.rest.len(), |end| least.saturating_sub(1) + end);
        let (chunk, rest) = self.rest.split_at(end);
        let line = self.line;
        self.line += count_newlines(chunk);
        self.rest = rest;
        Some((chunk, line))
    }
}

fn read_cell(column: Quantity, cell: &[u8]) -> Result<QuantitySetting, InputError> {
    QuantitySetting::read_cell(column, plain_text(cell)?)
}

/// A quoted cell may hold anything, and an error message about it is one line.
fn plain_text(cell: &[u8]) -> Result<&str, InputError> {
    let text = std::str::from_utf8(cell)
        .ok()
        .filter(|text| !text.contains(char::is_control));
    text.ok_or_else(|| InputError::new("a cell is plain text in one line"))
}

fn read_columns(header: &ByteRecord, axes: &CombinationAxes) -> Result<Vec<Quantity>, InputError> {
    let mut columns = Vec::new();
    for name in header {
        let name = plain_text(name.trim_ascii())?;
        let column = READABLE
            .into_iter()
            .find(|quantity| quantity.name() == name);
        let column = column.ok_or_else(|| InputError::new(unknown_column(name)))?;
        if columns.contains(&column) {
            return Err(InputError::new(format!(
                "line 1: column {name} comes twice"
            )));
        }
        if axes.has_quantity(column) {
            return Err(InputError::new(format!(
                "--{name} and the file's column {name} exclude each other; give one of them"
            )));
        }
        columns.push(column);
    }
    Ok(columns)
}

fn unknown_column(name: &str) -> String {
    let names: Vec<&str> = READABLE.iter().map(|quantity| quantity.name()).collect();
    format!(
        "line 1: \"{name}\" is not a column here; the columns are {}",
        names.join(", ")
    )
}

/// Returns the text after the first line that is not empty, and the number of the line after it.
fn after_header(file: &[u8]) -> (&[u8], u64) {
    let mut lines = LineChunks {
        rest: file,
        line: 1,
        bytes: 1,
    };
    lines.find(|(line, _)| !line.trim_ascii().is_empty());
    (lines.rest, lines.line)
}

fn count_newlines(text: &[u8]) -> u64 {
    text.iter().map(|byte| u64::from(*byte == b'\n')).sum()
}

/// Length of the first line, with its end.
fn line_end(text: &[u8]) -> Option<usize> {
    text.iter().position(|byte| *byte == b'\n').map(|at| at + 1)
}

/// Combinations of one job: some milliseconds of work, and less than a megabyte of text.
const JOB: u64 = 8192;
/// Bytes of a row of a file, about.
const ROW: u64 = 32;
/// Bytes of a line of the output, about.
const LINE: usize = 96;

#[cfg(test)]
mod tests;
