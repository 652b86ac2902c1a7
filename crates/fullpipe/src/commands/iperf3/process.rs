//! The process: where it runs, and how others find it.

use std::fs;
use std::path::PathBuf;

use rustix::process::{Pid, test_kill_process};
use rustix::thread::{CpuSet, sched_setaffinity};

use super::arguments::Shape;

/// A file that holds the process's number as long as this lives.
#[derive(Debug)]
pub(super) struct PidFile {
    path: Option<PathBuf>,
}

impl Drop for PidFile {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            // It is gone already if somebody else removed it.
            let _ = fs::remove_file(path);
        }
    }
}

/// Moves to the processor that was asked for, and writes the process's number.
pub(super) fn prepare(shape: &Shape) -> Result<PidFile, String> {
    if let Some(processor) = shape.processor {
        // Beyond what a set can hold, there is no such processor.
        let mut set = CpuSet::new();
        if processor < CpuSet::MAX_CPU {
            set.set(processor);
        }
        sched_setaffinity(None, &set).map_err(|error| format!("unable to set CPU affinity: {error}"))?;
    }
    let Some(path) = &shape.pidfile else { return Ok(PidFile { path: None }) };
    let written = fs::read_to_string(path).ok().and_then(|text| text.trim_matches(['\0', '\n']).parse().ok());
    if written.and_then(Pid::from_raw).is_some_and(|pid| test_kill_process(pid).is_ok()) {
        return Err("Another instance of iperf3 appears to be running".to_owned());
    }
    fs::write(path, std::process::id().to_string()).map_err(|error| format!("unable to write PID file: {error}"))?;
    Ok(PidFile { path: Some(path.clone()) })
}
