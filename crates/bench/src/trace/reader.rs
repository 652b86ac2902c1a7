//! Programs that read captures.

use std::fs::File;
use std::io;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use flate2::read::MultiGzDecoder;
use fullpipe_sys::{end_with_this_thread, wait_with_usage};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::process::RunError;

/// A program that reads a capture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reader {
    Fullpipe,
    /// The same on two processors.
    FullpipeOnTwo,
    Tcptrace,
    Tshark,
    /// No program: the decompression alone.
    Zlib,
}

/// A run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Run {
    /// Processor time, or the time by the clock where it uses several processors.
    pub(crate) seconds: f64,
    /// The most resident memory in bytes.
    pub(crate) peak: u64,
}

impl Reader {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Fullpipe => "fullpipe",
            Self::FullpipeOnTwo => "on two",
            Self::Tcptrace => "tcptrace",
            Self::Tshark => "tshark",
            Self::Zlib => "zlib alone",
        }
    }

    pub(crate) fn is_fullpipe(self) -> bool {
        matches!(self, Self::Fullpipe | Self::FullpipeOnTwo)
    }

    /// Reads the capture at `path` on one processor, or two; of gzip, on as many as there are.
    pub(crate) fn run(
        self,
        fullpipe: &Path,
        path: &str,
        is_gzip: bool,
        stop: &AtomicBool,
    ) -> Result<Run, RunError> {
        if self == Self::Zlib {
            return decompress(path).map_err(RunError::failed);
        }
        let is_parallel = is_gzip || self == Self::FullpipeOnTwo;
        let count = if self == Self::FullpipeOnTwo { 2 } else { 1 };
        let _few = if is_gzip {
            None
        } else {
            Some(FewProcessors::take(count).map_err(RunError::failed)?)
        };
        let began = Instant::now();
        let child = self.start(fullpipe, path)?;
        let mut child = Ended(Some(child));
        child.wait(stop)?;
        let elapsed = began.elapsed().as_secs_f64();
        let child = child.0.take().ok_or(RunError::Interrupted)?;
        let (status, usage) = wait_with_usage(child).map_err(RunError::failed)?;
        if !status.success() {
            return Err(RunError::Failed(format!(
                "{} failed: {status}",
                self.name()
            )));
        }
        let cpu = (usage.cpu.user + usage.cpu.system).as_secs_f64();
        Ok(Run {
            seconds: if is_parallel { elapsed } else { cpu },
            peak: usage.peak.get(),
        })
    }

    fn start(self, fullpipe: &Path, path: &str) -> Result<Child, RunError> {
        let mut command = match self {
            Self::Fullpipe | Self::FullpipeOnTwo => Command::new(fullpipe),
            Self::Tcptrace | Self::Zlib => Command::new("tcptrace"),
            Self::Tshark => Command::new("tshark"),
        };
        match self {
            Self::Fullpipe | Self::FullpipeOnTwo => command.args(["trace", path]),
            // Round-trip times, retransmissions and windows, for all connections.
            Self::Tcptrace | Self::Zlib => command.args(["-nlrW", path]),
            Self::Tshark => command.args(["-n", "-q", "-z", "conv,tcp", "-r", path]),
        };
        end_with_this_thread(&mut command);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command
            .spawn()
            .map_err(|error| RunError::Failed(format!("cannot start {}: {error}", self.name())))
    }
}

/// Decompresses a file and drops what comes out.
fn decompress(path: &str) -> io::Result<Run> {
    let began = Instant::now();
    io::copy(
        &mut MultiGzDecoder::new(io::BufReader::with_capacity(1 << 18, File::open(path)?)),
        &mut io::sink(),
    )?;
    Ok(Run {
        seconds: began.elapsed().as_secs_f64(),
        peak: 0,
    })
}

/// A program that is killed unless it was taken out.
struct Ended(Option<Child>);

impl Ended {
    /// Waits for its end without reaping it.
    fn wait(&mut self, stop: &AtomicBool) -> Result<(), RunError> {
        const INTERRUPT_POLL_INTERVAL: Timespec = Timespec {
            tv_sec: 0,
            tv_nsec: 100_000_000,
        };
        let Some(child) = &self.0 else { return Ok(()) };
        let ended =
            pidfd_open(Pid::from_child(child), PidfdFlags::empty()).map_err(RunError::failed)?;
        while poll(
            &mut [PollFd::new(&ended, PollFlags::IN)],
            Some(&INTERRUPT_POLL_INTERVAL),
        ) != Ok(1)
        {
            if stop.load(Ordering::Relaxed) {
                return Err(RunError::Interrupted);
            }
        }
        Ok(())
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// This thread, and what it starts, on the last of its processors alone; until it is dropped.
struct FewProcessors(CpuSet);

impl FewProcessors {
    fn take(count: usize) -> io::Result<Self> {
        let all = sched_getaffinity(None)?;
        let mut few = CpuSet::new();
        (0..CpuSet::MAX_CPU)
            .rev()
            .filter(|number| all.is_set(*number))
            .take(count)
            .for_each(|number| few.set(number));
        sched_setaffinity(None, &few)?;
        Ok(Self(all))
    }
}

impl Drop for FewProcessors {
    fn drop(&mut self) {
        let _ = sched_setaffinity(None, &self.0);
    }
}
