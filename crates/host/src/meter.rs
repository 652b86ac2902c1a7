//! Processor time of this machine, and of a program on it.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use fullpipe_record::{CpuSample, CpuTime};
use fullpipe_sys::{CpuTime as ProcessTime, process_cpu_time};
use fullpipe_units::Span;

/// Counts the time of a process, all its threads together, and of the machine's processors, from
/// when it was made on. Its files stay open, and are read again at each sample.
///
/// A program that runs several tests at once has one time for all of them.
#[derive(Debug)]
pub struct ProcessorMeter {
    /// `/proc/PID/stat` of another process; `None` for this one, of which the kernel reports more
    /// exact times.
    process: Option<File>,
    used: ProcessTime,
    /// `/proc/stat`.
    stat: Option<File>,
    cores: Vec<(u32, CpuTime)>,
    threads: Option<ThreadDelays>,
    quota: Option<CpuQuota>,
    throttled: Span,
    buffer: Vec<u8>,
}

impl ProcessorMeter {
    /// Starts to count the time of this process.
    pub fn of_this_process() -> Self {
        Self::from_paths(Path::new("/proc"), None, Path::new("/sys/fs/cgroup"))
    }

    /// Starts to count the time of process `pid`. Returns `None` if it has ended.
    pub fn of_process(pid: u32) -> Option<Self> {
        Self::of_other(Path::new("/proc"), pid, Path::new("/sys/fs/cgroup"))
    }

    fn of_other(proc: &Path, pid: u32, groups: &Path) -> Option<Self> {
        let stat = File::open(proc.join(pid.to_string()).join("stat")).ok()?;
        Some(Self::from_paths(proc, Some((pid, stat)), groups))
    }

    fn from_paths(proc: &Path, other: Option<(u32, File)>, groups: &Path) -> Self {
        let mut buffer = Vec::new();
        let own = proc.join(
            other
                .as_ref()
                .map_or_else(|| "self".to_owned(), |(pid, _)| pid.to_string()),
        );
        let process = other.map(|(_, stat)| stat);
        let used = used_time(process.as_ref(), &mut buffer).unwrap_or_default();
        let stat = File::open(proc.join("stat")).ok();
        let cores = read_core_times(stat.as_ref(), &mut buffer);
        let threads = ThreadDelays::from_folder(own.join("task"), &mut buffer);
        let quota = CpuQuota::from_cgroup_text(
            &fs::read_to_string(own.join("cgroup")).unwrap_or_default(),
            groups,
        );
        let throttled = quota
            .as_ref()
            .map(|quota| quota.throttled_time(&mut buffer))
            .unwrap_or_default();
        Self {
            process,
            used,
            stat,
            cores,
            threads,
            quota,
            throttled,
            buffer,
        }
    }

    /// Returns the figures since the meter was made, as a sample at time `at`; `None` once the
    /// process has ended, which takes its counters with it.
    pub fn take_sample(&mut self, at: Span) -> Option<CpuSample> {
        let buffer = &mut self.buffer;
        let used = used_time(self.process.as_ref(), buffer)?;
        let now = read_core_times(self.stat.as_ref(), buffer);
        let is_same = now
            .iter()
            .map(|core| core.0)
            .eq(self.cores.iter().map(|core| core.0));
        // A processor that came or went in between has no time that could be stated.
        let since = now
            .iter()
            .zip(&self.cores)
            .filter(|_| is_same)
            .map(|(now, before)| cpu_time_difference(now.1, before.1));
        let threads = thread_times_so_far(&mut self.threads, buffer);
        Some(CpuSample {
            at,
            user: used.user.saturating_sub(self.used.user),
            system: used.system.saturating_sub(self.used.system),
            waited: threads.map(|threads| threads.waited),
            awake: threads.map(|threads| threads.awake),
            throttled: self
                .quota
                .as_ref()
                .map(|quota| quota.throttled_time(buffer).saturating_sub(self.throttled)),
            cores: since.collect(),
        })
    }
}

/// Returns the times of the threads. Once they are not known, they never are again: threads that
/// were not asked meanwhile would count with all their time.
fn thread_times_so_far(
    threads: &mut Option<ThreadDelays>,
    buffer: &mut Vec<u8>,
) -> Option<ThreadTimes> {
    let times = threads.as_mut()?.count_times(buffer);
    if times.is_none() {
        *threads = None;
    }
    times
}

/// Returns the time that the process of this `stat` has used, or else this process; `None` if that
/// process has ended.
fn used_time(stat: Option<&File>, buffer: &mut Vec<u8>) -> Option<ProcessTime> {
    match stat {
        Some(stat) => process_time(&read_start(stat, buffer)),
        None => process_cpu_time().ok(),
    }
}

fn read_core_times(stat: Option<&File>, buffer: &mut Vec<u8>) -> Vec<(u32, CpuTime)> {
    stat.map(|stat| core_times(&read_start(stat, buffer)))
        .unwrap_or_default()
}

/// Drops every second sample, but never the last, which has the sums.
pub fn thin_out_processors(samples: &mut Vec<CpuSample>) {
    let mut keeps = samples.len().is_multiple_of(2);
    samples.retain(|_| {
        keeps = !keeps;
        keeps
    });
}

/// Time that the threads of a process have run, and waited for a processor. A thread that ends takes
/// its counts with it, so the difference of each thread is added at each sample.
#[derive(Debug)]
struct ThreadDelays {
    folder: PathBuf,
    known: HashMap<String, (File, ThreadTime)>,
    times: ThreadTimes,
}

/// What `schedstat` of a thread counts.
#[derive(Debug, Clone, Copy, Default)]
struct ThreadTime {
    ran: Span,
    waited: Span,
}

/// Times of all threads of a process.
#[derive(Debug, Clone, Copy, Default)]
struct ThreadTimes {
    /// The waits of all.
    waited: Span,
    /// The time that the busiest thread of each interval ran or waited.
    awake: Span,
}

impl ThreadDelays {
    /// None where the kernel does not count it.
    fn from_folder(folder: PathBuf, buffer: &mut Vec<u8>) -> Option<Self> {
        let mut threads = Self {
            folder,
            known: HashMap::new(),
            times: ThreadTimes::default(),
        };
        threads.count_times(buffer)?;
        threads.times = ThreadTimes::default();
        (!threads.known.is_empty()).then_some(threads)
    }

    /// Since it was made; none where there are too many threads to ask each.
    fn count_times(&mut self, buffer: &mut Vec<u8>) -> Option<ThreadTimes> {
        let mut before = std::mem::take(&mut self.known);
        let mut awake = Span::ZERO;
        for entry in fs::read_dir(&self.folder).ok()?.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let opened = before.remove(&name).or_else(|| {
                let file = File::open(entry.path().join("schedstat")).ok()?;
                Some((file, ThreadTime::default()))
            });
            let Some((file, counted)) = opened else {
                continue;
            };
            // It may have ended since the folder was read.
            let Some(now) = ThreadTime::from_schedstat(&read_start(&file, buffer)) else {
                continue;
            };
            let waited = now.waited.saturating_sub(counted.waited);
            self.times.waited += waited;
            awake = awake.max(now.ran.saturating_sub(counted.ran) + waited);
            self.known.insert(name, (file, now));
            if self.known.len() > MAX_THREADS {
                return None;
            }
        }
        self.times.awake += awake;
        Some(self.times)
    }
}

/// Threads that are asked: more would cost more than 0.5 % of a processor.
const MAX_THREADS: usize = 512;

/// `cpu.stat` of the control groups around this process that have a quota. With several, each holds
/// it back by itself.
#[derive(Debug)]
struct CpuQuota {
    stats: Vec<File>,
}

impl CpuQuota {
    /// From `/proc/self/cgroup`, and from where control groups are mounted: version 2 at `groups`
    /// itself, and the processors of version 1 below it. None where no group can be read.
    fn from_cgroup_text(text: &str, groups: &Path) -> Option<Self> {
        text.lines()
            .filter_map(|line| Self::of_line(line, groups))
            .max_by_key(|quota| quota.stats.len())
    }

    /// `0::/user.slice` of version 2, `4:cpu,cpuacct:/docker/…` of version 1.
    fn of_line(line: &str, groups: &Path) -> Option<Self> {
        let mut fields = line.splitn(3, ':');
        let (number, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        let mounts = match (number, controllers) {
            ("0", "") => vec![groups.to_owned(), groups.join("unified")],
            _ if controllers.split(',').any(|name| name == "cpu") => {
                vec![groups.join("cpu"), groups.join(controllers)]
            }
            _ => return None,
        };
        mounts
            .iter()
            .find_map(|mount| Self::from_group(mount, path))
    }

    /// Of the group at `path` and of those around it. Seen from a container, the path may be one
    /// that is mounted elsewhere; what is mounted is then the container's own group.
    fn from_group(mount: &Path, path: &str) -> Option<Self> {
        let inside: PathBuf = Path::new(path)
            .components()
            .filter(|part| matches!(part, std::path::Component::Normal(_)))
            .collect();
        let groups: Vec<PathBuf> = inside
            .ancestors()
            .take(DEEPEST)
            .map(|group| mount.join(group))
            .collect();
        groups.iter().find_map(|group| open_cpu_stat(group))?;
        Some(Self {
            stats: groups
                .iter()
                .filter(|group| has_quota(group))
                .filter_map(|group| open_cpu_stat(group))
                .collect(),
        })
    }

    fn throttled_time(&self, buffer: &mut Vec<u8>) -> Span {
        self.stats
            .iter()
            .map(|stat| parse_throttled_time(&read_start(stat, buffer)).unwrap_or_default())
            .sum()
    }
}

/// Number of groups around a process that are read.
const DEEPEST: usize = 32;

/// `cpu.max` of version 2 (`50000 100000`, or `max 100000`), `cpu.cfs_quota_us` of version 1 (−1
/// without).
fn has_quota(group: &Path) -> bool {
    ["cpu.max", "cpu.cfs_quota_us"].iter().any(|name| {
        let text = fs::read_to_string(group.join(name)).unwrap_or_default();
        let first = text.split_whitespace().next();
        first.is_some_and(|word| word.parse::<u64>().is_ok())
    })
}

fn open_cpu_stat(group: &Path) -> Option<File> {
    File::open(group.join("cpu.stat")).ok()
}

/// From `cpu.stat`: microseconds in version 2, nanoseconds in version 1, of all processors
/// together.
fn parse_throttled_time(text: &str) -> Option<Span> {
    let nanos = match stat_value(text, "throttled_usec ") {
        Some(micros) => micros.saturating_mul(1_000),
        None => stat_value(text, "throttled_time ")?,
    };
    Some(Span::from_nanos(nanos))
}

/// Returns the number behind `name`, with which its line begins.
fn stat_value(text: &str, name: &str) -> Option<u64> {
    text.lines()
        .find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
}

/// From `/proc/PID/stat`: fields 14 and 15, in ticks. The name of the program, in brackets, may
/// hold anything.
fn process_time(text: &str) -> Option<ProcessTime> {
    const AFTER_THE_NAME: usize = 11;
    let (_, fields) = text.rsplit_once(')')?;
    let mut times = fields
        .split_whitespace()
        .skip(AFTER_THE_NAME)
        .map_while(|ticks| ticks.parse().ok())
        .map(span_of_ticks);
    Some(ProcessTime {
        user: times.next()?,
        system: times.next()?,
    })
}

impl ThreadTime {
    /// Reads the first two fields: nanoseconds on a processor, and ready to run without one.
    fn from_schedstat(text: &str) -> Option<Self> {
        let mut fields = text.split_whitespace().map(|field| field.parse().ok());
        let mut next = || fields.next()?.map(Span::from_nanos);
        Some(Self {
            ran: next()?,
            waited: next()?,
        })
    }
}

/// The lines `cpu0`, `cpu1`… of `/proc/stat`, each with its number.
fn core_times(text: &str) -> Vec<(u32, CpuTime)> {
    text.lines()
        .take_while(|line| line.starts_with("cpu"))
        .filter_map(core_time)
        .collect()
}

/// `cpu0 user nice system idle iowait irq softirq steal guest guest_nice`; a guest's time is in the
/// user's too.
fn core_time(line: &str) -> Option<(u32, CpuTime)> {
    let mut fields = line.strip_prefix("cpu")?.split_whitespace();
    let number = fields
        .next()?
        .parse()
        .ok()
        .filter(|_| line.as_bytes().get(3).is_some_and(u8::is_ascii_digit))?;
    let ticks: Vec<u64> = fields.map_while(|field| field.parse().ok()).collect();
    let time = CpuTime {
        user: sum_of_ticks(&ticks, &[0, 1]),
        system: sum_of_ticks(&ticks, &[2]),
        interrupts: sum_of_ticks(&ticks, &[5, 6]),
        stolen: sum_of_ticks(&ticks, &[7]),
        idle: sum_of_ticks(&ticks, &[3, 4]),
    };
    Some((number, time))
}

/// Returns the time of those ticks that stand at `places`, where the kernel has such a field.
fn sum_of_ticks(ticks: &[u64], places: &[usize]) -> Span {
    let there = places.iter().filter_map(|place| ticks.get(*place));
    span_of_ticks(there.fold(0, |sum, ticks| sum.saturating_add(*ticks)))
}

fn span_of_ticks(ticks: u64) -> Span {
    Span::from_nanos(ticks.saturating_mul(TICK))
}

/// Nanoseconds of a tick of `/proc/stat`: `USER_HZ` is 100 on all that Rust knows.
const TICK: u64 = 10_000_000;

fn cpu_time_difference(now: CpuTime, before: CpuTime) -> CpuTime {
    CpuTime {
        user: now.user.saturating_sub(before.user),
        system: now.system.saturating_sub(before.system),
        interrupts: now.interrupts.saturating_sub(before.interrupts),
        stolen: now.stolen.saturating_sub(before.stolen),
        // The kernel lets it go back by a tick now and then (proc_stat(5)).
        idle: now.idle.saturating_sub(before.idle),
    }
}

/// The start of `file`; empty where it cannot be read.
fn read_start<'b>(file: &File, buffer: &'b mut Vec<u8>) -> Cow<'b, str> {
    /// `/proc/stat` has 80 bytes a processor before what is of no interest here.
    const MAX_BYTES: usize = 128 << 10;
    const AT_FIRST: usize = 4 << 10;
    buffer.resize(buffer.len().max(AT_FIRST), 0);
    let mut length = 0;
    // These files come whole, where there is room: a shorter answer is the end.
    while let Ok(more) = file.read_at(&mut buffer[length..], length as u64) {
        length += more;
        if length < buffer.len() || length >= MAX_BYTES {
            break;
        }
        buffer.resize(length * 2, 0);
    }
    // The name of a process may be cut amid a character.
    String::from_utf8_lossy(&buffer[..length])
}

#[cfg(test)]
mod tests;
