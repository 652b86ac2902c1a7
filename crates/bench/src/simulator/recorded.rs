//! Runs over the lab's path, kept as files: `CELL.NUMBER.json` each.

use std::fs;
use std::io;
use std::path::Path as FilePath;

use fullpipe_record::{Measurement, Path};
use serde::Deserialize;

/// One valid run, with the path that it was over.
#[derive(Debug, Deserialize)]
pub(crate) struct Recorded {
    pub(crate) path: Path,
    pub(crate) run: Measurement,
}

/// The runs of one cell: the same path, hosts and load.
#[derive(Debug)]
pub(crate) struct RecordedCell {
    pub(crate) name: String,
    pub(crate) runs: Vec<Recorded>,
}

/// Reads the runs of `folder` whose cell `includes` accepts, sorted by cell and number.
///
/// # Errors
/// Fails if the folder or a file cannot be read, and with [`io::ErrorKind::InvalidData`] and the path of the file if a
/// file is not the JSON of a run.
pub(crate) fn read_cells(folder: &FilePath, includes: impl Fn(&str) -> bool) -> io::Result<Vec<RecordedCell>> {
    let mut files: Vec<_> = fs::read_dir(folder)?.filter_map(|entry| Some(entry.ok()?.path())).collect();
    files.sort();
    let mut cells: Vec<RecordedCell> = Vec::new();
    for file in files {
        let name = file.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_suffix(".json"));
        let Some((cell, _)) = name.and_then(|name| name.rsplit_once('.')).filter(|(cell, _)| includes(cell)) else {
            continue;
        };
        let run = serde_json::from_slice(&fs::read(&file)?)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, format!("{}: {error}", file.display())))?;
        match cells.last_mut().filter(|last| last.name == cell) {
            Some(last) => last.runs.push(run),
            None => cells.push(RecordedCell { name: cell.to_owned(), runs: vec![run] }),
        }
    }
    Ok(cells)
}
