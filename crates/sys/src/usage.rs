//! Processor time and memory.

use std::io;
use std::mem::MaybeUninit;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};

use fullpipe_units::{ByteCount, Span};
use rustix::time::{ClockId, clock_gettime};

use crate::socket::check_call;

/// Processor time that a process has used since it began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CpuTime {
    /// In its own code.
    pub user: Span,
    /// In the kernel on its behalf.
    pub system: Span,
}

impl CpuTime {
    /// Returns both together.
    pub fn total_time(self) -> Span {
        self.user + self.system
    }
}

/// Processor time of this process, all threads together (`getrusage`).
///
/// # Errors
/// Fails as `getrusage` does.
pub fn process_cpu_time() -> io::Result<CpuTime> {
    cpu_time_of(libc::RUSAGE_SELF)
}

/// Returns the processor time of this thread (`CLOCK_THREAD_CPUTIME_ID`).
pub fn thread_cpu_time() -> Span {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Span::from_nanos(time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned())
}

/// Processor time of the children of this process that have ended and were waited for, each with
/// those that it waited for (`getrusage`).
///
/// # Errors
/// Fails as `getrusage` does.
pub fn children_cpu_time() -> io::Result<CpuTime> {
    cpu_time_of(libc::RUSAGE_CHILDREN)
}

fn cpu_time_of(whom: libc::c_int) -> io::Result<CpuTime> {
    let mut usage = MaybeUninit::<libc::rusage>::uninit();
    // SAFETY: the kernel fills one `rusage`, which `usage` has room for.
    check_call(unsafe { libc::getrusage(whom, usage.as_mut_ptr()) } == 0)?;
    // SAFETY: the call succeeded, so every field is set.
    let usage = unsafe { usage.assume_init() };
    Ok(cpu_time(&usage))
}

/// Resources that a program used from its start to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChildUsage {
    /// Processor time, with that of the children that it waited for.
    pub cpu: CpuTime,
    /// The most memory that it had resident.
    pub peak: ByteCount,
}

/// Waits for the end of a program. Returns how it ended and what it used (`wait4`).
///
/// # Errors
/// Fails as `wait4` does.
pub fn wait_with_usage(child: Child) -> io::Result<(ExitStatus, ChildUsage)> {
    let (mut status, pid) = (0, child.id().cast_signed());
    // It is reaped here, so no other code may wait for it again.
    drop(child);
    let mut usage = MaybeUninit::<libc::rusage>::uninit();
    // SAFETY: the kernel fills one status and one `rusage`, for which there is room.
    while unsafe { libc::wait4(pid, &raw mut status, 0, usage.as_mut_ptr()) } < 0 {
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    // SAFETY: the call succeeded, so every field is set.
    let usage = unsafe { usage.assume_init() };
    // The kernel counts in KiB.
    let peak = ByteCount::new((usage.ru_maxrss as u64) << 10);
    Ok((
        ExitStatus::from_raw(status),
        ChildUsage {
            cpu: cpu_time(&usage),
            peak,
        },
    ))
}

fn cpu_time(usage: &libc::rusage) -> CpuTime {
    CpuTime {
        user: span_from_timeval(usage.ru_utime),
        system: span_from_timeval(usage.ru_stime),
    }
}

fn span_from_timeval(time: libc::timeval) -> Span {
    Span::from_secs(time.tv_sec as u64) + Span::from_micros(time.tv_usec as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn the_time_of_a_child_is_that_of_the_children() {
        let total = || children_cpu_time().unwrap().total_time();
        let before = total();
        let script = "i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done";
        Command::new("sh").args(["-c", script]).status().unwrap();
        assert!(total() > before);
    }

    #[test]
    fn what_a_program_used_is_known_at_its_end() {
        let script = "i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done; exit 3";
        let (status, usage) =
            wait_with_usage(Command::new("sh").args(["-c", script]).spawn().unwrap()).unwrap();
        assert_eq!(status.code(), Some(3));
        assert!(
            usage.cpu.user + usage.cpu.system >= Span::from_millis(1),
            "{usage:?}"
        );
        assert!(
            (ByteCount::new(100 << 10)..ByteCount::new(1 << 30)).contains(&usage.peak),
            "{usage:?}"
        );
    }
}
