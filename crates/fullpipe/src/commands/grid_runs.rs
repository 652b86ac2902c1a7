//! The runs of a grid, kept as files.

use std::fs::{self, File};
use std::io;

use fullpipe_scenario::ScenarioGrid;
use serde_json::json;

use super::prelude::*;

/// Files of one cell.
const MAX_RUNS: u32 = 9_999;

/// A folder in which each valid run of a grid becomes a file.
#[derive(Debug)]
pub(crate) struct GridRuns<'g> {
    folder: PathBuf,
    grid: &'g ScenarioGrid,
    /// The cell that is being measured, from 1.
    number: usize,
    /// The first run that could not be kept.
    failed: Option<String>,
}

impl<'g> GridRuns<'g> {
    /// # Errors
    /// Fails if the folder cannot be made.
    pub(crate) fn in_folder(folder: &Path, grid: &'g ScenarioGrid) -> Result<Self> {
        fs::create_dir_all(folder)
            .map_err(cannot(&format!("make the folder {}", folder.display())))?;
        Ok(Self {
            folder: folder.to_owned(),
            grid,
            number: 0,
            failed: None,
        })
    }

    /// Keeps the run that `event` is of, if it is valid.
    pub(crate) fn observe_event(&mut self, event: &Event) {
        match event {
            Event::CellBegan(cell) => self.number = cell.number as usize,
            Event::Measurement(run) if run.validity.is_valid() && self.failed.is_none() => {
                self.failed = self.keep_run(run).err();
            }
            _ => {}
        }
    }

    /// # Errors
    /// Fails if a run could not be kept.
    pub(crate) fn into_result(self) -> Result {
        self.failed
            .map_or(Ok(()), |message| Err(run_failure(message)))
    }

    fn keep_run(&self, run: &Measurement) -> Result<(), String> {
        let Some(cell) = self
            .number
            .checked_sub(1)
            .and_then(|index| self.grid.cells.get(index))
        else {
            return Ok(());
        };
        let name = file_name(&cell.name);
        let (path, file) = (1..=MAX_RUNS)
            .map(|number| self.folder.join(format!("{name}.{number}.json")))
            .map(|path| (File::create_new(&path), path))
            .find(|(file, _)| !matches!(file, Err(error) if error.kind() == io::ErrorKind::AlreadyExists))
            .map(|(file, path)| (path, file))
            .ok_or_else(|| format!("there are too many runs of {name}"))?;
        let kept = json!({ "cell": cell.name, "path": cell.path, "run": run });
        file.and_then(|file| Ok(serde_json::to_writer(file, &kept)?))
            .map_err(|error| format!("cannot write {}: {error}", path.display()))
    }
}

/// Returns the name of a cell with nothing in it that a file name does not have on every system.
fn file_name(cell: &str) -> String {
    cell.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '.')
        .filter(|part| !part.is_empty())
        .collect::<Vec<_>>()
        .join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_cells_become_names_of_files() {
        assert_eq!(
            file_name("1 Gbit/s × 20 ms, 0.25 BDP, cubic"),
            "1-Gbit-s-20-ms-0.25-BDP-cubic"
        );
    }
}
