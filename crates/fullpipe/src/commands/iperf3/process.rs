//! The process: where it runs, and how others find it.

use std::fs;
use std::io::ErrorKind;

use rustix::process::{Pid, test_kill_process};
use rustix::thread::{CpuSet, sched_setaffinity};

use super::arguments::ProgramSettings;
use crate::commands::pidfile::PidFile;

/// iperf3's words for a process number that is taken.
const RUNNING: &str = "Another instance of iperf3 appears to be running";

/// Moves to the processor that was asked for, and writes the process's number.
pub(super) fn prepare_process(shape: &ProgramSettings) -> Result<Option<PidFile>, String> {
    if let Some(processor) = shape.processor {
        move_to(processor).map_err(|error| format!("unable to set CPU affinity: {error}"))?;
    }
    let Some(path) = &shape.pidfile else {
        return Ok(None);
    };
    let written = fs::read_to_string(path)
        .ok()
        .and_then(|text| text.trim_matches(['\0', '\n']).parse().ok());
    let others = written
        .and_then(Pid::from_raw)
        .filter(|pid| Some(*pid) != Pid::from_raw(std::process::id().cast_signed()));
    if others.is_some_and(|pid| test_kill_process(pid).is_ok()) {
        return Err(RUNNING.to_owned());
    }
    PidFile::write(path, &std::process::id().to_string())
        .map(Some)
        .map_err(|error| match error.kind() {
            ErrorKind::ResourceBusy => RUNNING.to_owned(),
            _ => format!("unable to write PID file: {error}"),
        })
}

fn move_to(processor: usize) -> rustix::io::Result<()> {
    // Beyond what a set can hold, there is no such processor.
    let mut set = CpuSet::new();
    if processor < CpuSet::MAX_CPU {
        set.set(processor);
    }
    sched_setaffinity(None, &set)
}
