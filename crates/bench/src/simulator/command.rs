//! The command line of the bench.

use std::panic::resume_unwind;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use clap::Args;
use fullpipe_sim::Granularity;

use super::cell::Cell;
use super::recorded::{RecordedCell, read_cells};
use super::summary::{HEAD, cell_line, summary, trains_summary};
use crate::{INTERRUPTED, LACKING, say};

/// The recorded runs, and how often they are simulated.
#[derive(Debug, Args)]
pub(crate) struct Simulating {
    /// Folder of runs over the lab's path, `CELL.NUMBER.json` each: an object with a path and a measurement, `run`
    #[arg(long, value_name = "DIR")]
    from: PathBuf,
    /// Only cells whose name contains this; may be given again
    #[arg(long, value_name = "PATTERN")]
    only: Vec<String>,
    /// Seeds of each cell; at least 60 where losses fall to chance
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1000), value_name = "N")]
    seeds: u16,
    /// Compare whole trains with single segments instead
    #[arg(long)]
    trains: bool,
}

impl Simulating {
    /// Prints the comparison. The exit code does not depend on it.
    pub(crate) fn run(&self, stop: &AtomicBool) -> ExitCode {
        let cells = match read_cells(&self.from, |name| self.includes(name)) {
            Ok(cells) => cells,
            Err(why) => {
                say(true, &format!("fullpipe-bench: {}: {why}\n", self.from.display()));
                return ExitCode::from(LACKING);
            }
        };
        if self.trains {
            let [trains, segments] =
                [Granularity::Train, Granularity::Segment].map(|of| self.simulated(&cells, of, stop, &|_| ()));
            say(false, &trains_summary(&trains, &segments));
        } else {
            say(false, HEAD);
            let print = |cell: &Cell| say(false, &cell_line(cell));
            say(false, &summary(&self.simulated(&cells, Granularity::Cut, stop, &print)));
        }
        if stop.load(Ordering::Relaxed) { ExitCode::from(INTERRUPTED) } else { ExitCode::SUCCESS }
    }

    fn includes(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|part| name.contains(part))
    }

    /// Simulates on all processors; what comes out does not depend on them. Cells that are not modelled are named.
    fn simulated(
        &self,
        cells: &[RecordedCell],
        granularity: Granularity,
        stop: &AtomicBool,
        print: &(dyn Fn(&Cell) + Sync),
    ) -> Vec<Cell> {
        let threads = thread::available_parallelism().map_or(1, usize::from);
        let mut done: Vec<(usize, Cell)> = Vec::with_capacity(cells.len());
        thread::scope(|scope| {
            let part = |first| {
                let own = cells.iter().enumerate().skip(first).step_by(threads);
                let own = own.take_while(|_| !stop.load(Ordering::Relaxed));
                own.filter_map(|(index, cell)| Some((index, self.simulate(cell, granularity, print)?))).collect()
            };
            let parts: Vec<_> = (0..threads).map(|first| scope.spawn(move || -> Vec<_> { part(first) })).collect();
            done.extend(parts.into_iter().flat_map(|part| part.join().unwrap_or_else(|panic| resume_unwind(panic))));
        });
        done.sort_by_key(|(index, _)| *index);
        done.into_iter().map(|(_, cell)| cell).collect()
    }

    fn simulate(&self, cell: &RecordedCell, granularity: Granularity, print: &(dyn Fn(&Cell) + Sync)) -> Option<Cell> {
        match Cell::simulate(cell, self.seeds, granularity) {
            Ok(cell) => {
                print(&cell);
                Some(cell)
            }
            Err(why) => {
                say(false, &format!("left out: {}: {why}\n", cell.name));
                None
            }
        }
    }
}
