//! Processor time.

use std::io;
use std::mem::MaybeUninit;

use fullpipe_units::Span;

/// Processor time that a process has used since it began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CpuTime {
    /// In its own code.
    pub user: Span,
    /// In the kernel on its behalf.
    pub system: Span,
}

/// Processor time of this process, all threads together (`getrusage`).
///
/// # Errors
/// What `getrusage` reports.
pub fn process_cpu_time() -> io::Result<CpuTime> {
    let mut usage = MaybeUninit::<libc::rusage>::uninit();
    // SAFETY: the kernel fills one `rusage`, which `usage` has room for.
    if unsafe { libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call succeeded, so every field is set.
    let usage = unsafe { usage.assume_init() };
    Ok(CpuTime { user: span(usage.ru_utime), system: span(usage.ru_stime) })
}

fn span(time: libc::timeval) -> Span {
    Span::from_secs(time.tv_sec as u64) + Span::from_micros(time.tv_usec as u64)
}
