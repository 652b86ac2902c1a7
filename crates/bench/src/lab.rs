//! Paths between two hosts with this machine's settings, or a few others.

use fullpipe_lab::{Backend, Lab, LabPlan};
use fullpipe_record::{Change, Path};
use fullpipe_scenario::{PathSpec, parse_path_flag};

use crate::process::RunError;

/// The path that a text of `--path` describes.
pub(crate) fn path_of(text: &str) -> Result<Path, RunError> {
    parse_path_flag(text, &PathSpec::demo_path()).map_err(RunError::failed)
}

/// Two hosts joined by `path`.
pub(crate) fn start(path: Path, backend: Backend) -> Result<Lab, RunError> {
    start_with(path, Vec::new(), backend)
}

/// The same, with other settings at the sending host.
pub(crate) fn start_with(
    path: Path,
    sender: Vec<Change>,
    backend: Backend,
) -> Result<Lab, RunError> {
    let plan = LabPlan {
        path,
        seed: 1,
        sender,
        receiver: Vec::new(),
        backend,
        interactive: false,
    };
    Lab::start(&plan).map_err(RunError::failed)
}
