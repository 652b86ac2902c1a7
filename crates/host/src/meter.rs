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
        Some(CpuSample {
            at,
            user: used.user.saturating_sub(self.used.user),
            system: used.system.saturating_sub(self.used.system),
            waited: waited_so_far(&mut self.threads, buffer),
            throttled: self
                .quota
                .as_ref()
                .map(|quota| quota.throttled_time(buffer).saturating_sub(self.throttled)),
            cores: since.collect(),
        })
    }
}

/// Returns the time that threads have waited. Once it is not known, it never is again: threads that
/// were not asked meanwhile would count with all their time.
fn waited_so_far(threads: &mut Option<ThreadDelays>, buffer: &mut Vec<u8>) -> Option<Span> {
    let waited = threads.as_mut()?.waited_time(buffer);
    if waited.is_none() {
        *threads = None;
    }
    waited
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

/// Time that the threads of a process have waited for a processor. A thread that ends takes its
/// count with it, so the difference of each thread is added at each sample.
#[derive(Debug)]
struct ThreadDelays {
    folder: PathBuf,
    known: HashMap<String, (File, Span)>,
    waited: Span,
}

impl ThreadDelays {
    /// None where the kernel does not count it.
    fn from_folder(folder: PathBuf, buffer: &mut Vec<u8>) -> Option<Self> {
        let mut threads = Self {
            folder,
            known: HashMap::new(),
            waited: Span::ZERO,
        };
        threads.waited_time(buffer)?;
        threads.waited = Span::ZERO;
        (!threads.known.is_empty()).then_some(threads)
    }

    /// Since it was made; none where there are too many threads to ask each.
    fn waited_time(&mut self, buffer: &mut Vec<u8>) -> Option<Span> {
        let mut before = std::mem::take(&mut self.known);
        for entry in fs::read_dir(&self.folder).ok()?.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let opened = before
                .remove(&name)
                .or_else(|| Some((File::open(entry.path().join("schedstat")).ok()?, Span::ZERO)));
            let Some((file, counted)) = opened else {
                continue;
            };
            // It may have ended since the folder was read.
            let Some(now) = parse_waited_time(&read_start(&file, buffer)) else {
                continue;
            };
            self.waited += now.saturating_sub(counted);
            self.known.insert(name, (file, now));
            if self.known.len() > MAX_THREADS {
                return None;
            }
        }
        Some(self.waited)
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

/// The second field of `schedstat`: nanoseconds ready to run without a processor.
fn parse_waited_time(text: &str) -> Option<Span> {
    text.split_whitespace()
        .nth(1)?
        .parse()
        .ok()
        .map(Span::from_nanos)
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
mod tests {
    use super::*;
    use std::thread;
    use std::time::{Duration, Instant};

    const STAT: &str = "cpu  3300 10 1100 9000 50 0 60 700 0 0
cpu0 1600 10 500 4500 20 1 30 300 0 0
cpu1 1700 0 600 4500 30 2 30 400 0 0
intr 12345 0 9 0 0
ctxt 8
btime 1700000000
";

    /// A `/proc` and control groups with these files.
    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let tree = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = tree.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        tree
    }

    fn meter(tree: &tempfile::TempDir) -> ProcessorMeter {
        ProcessorMeter::from_paths(&tree.path().join("proc"), None, &tree.path().join("groups"))
    }

    fn write(tree: &tempfile::TempDir, name: &str, text: &str) {
        // Open files stay what they are, as in `/proc`.
        fs::write(tree.path().join(name), text).unwrap();
    }

    #[test]
    fn thinning_keeps_the_last_sample_and_even_distances() {
        for count in 1..50 {
            let sample = |at| CpuSample {
                at: Span::from_millis(at),
                ..CpuSample::default()
            };
            let mut all: Vec<CpuSample> = (1..=count).map(sample).collect();
            thin_out_processors(&mut all);
            assert_eq!(all.last().unwrap().at, Span::from_millis(count));
            assert!(
                all.windows(2)
                    .all(|pair| pair[1].at == pair[0].at + Span::from_millis(2))
            );
            assert_eq!(all.len() as u64, count.div_ceil(2));
        }
    }

    #[test]
    fn each_processor_has_its_time_and_the_sum_is_none() {
        let span = Span::from_millis;
        let second = CpuTime {
            user: span(17_000),
            system: span(6_000),
            interrupts: span(320),
            stolen: span(4_000),
            idle: span(45_300),
        };
        let found = core_times(STAT);
        assert_eq!((found.len(), found[1]), (2, (1, second)));
        assert_eq!(found[0].1.user, span(16_100), "niced programs are programs");
        assert_eq!(
            core_times("cpu 1 2 3\ncpuX 1\ncpu2 7\nintr 1\ncpu3 1 1 1 1"),
            [(
                2,
                CpuTime {
                    user: span(70),
                    ..CpuTime::default()
                }
            )]
        );
    }

    #[test]
    fn differences_are_reported_and_a_clock_that_goes_back_stands() {
        let tree = tree(&[("proc/stat", STAT)]);
        let mut meter = meter(&tree);
        write(
            &tree,
            "proc/stat",
            &STAT.replace("cpu1 1700 0 600 4500", "cpu1 1710 5 620 4499"),
        );
        let sample = meter.take_sample(Span::ZERO).unwrap();
        assert_eq!(sample.cores.len(), 2);
        let busy = CpuTime {
            user: Span::from_millis(150),
            system: Span::from_millis(200),
            ..CpuTime::default()
        };
        assert_eq!(
            (sample.cores[0], sample.cores[1]),
            (CpuTime::default(), busy)
        );
        assert_eq!(
            (sample.waited, sample.throttled),
            (None, None),
            "what cannot be read is not known"
        );
        write(&tree, "proc/stat", &STAT.replace("cpu1", "cpu2"));
        assert_eq!(
            meter.take_sample(Span::ZERO).unwrap().cores,
            [],
            "another processor"
        );
    }

    #[test]
    fn a_program_that_has_ended_has_no_sample_and_never_the_time_of_this_one() {
        let stat = |ticks| format!("7 (a ) b) R 1 7 7 0 -1 0 0 0 0 0 {ticks} 20 0 0 20 0 1 0 99\n");
        let tree = tree(&[("proc/stat", STAT), ("proc/7/stat", &stat(100))]);
        let of = |pid| {
            ProcessorMeter::of_other(&tree.path().join("proc"), pid, &tree.path().join("groups"))
        };
        let mut meter = of(7).unwrap();
        write(&tree, "proc/7/stat", &stat(130));
        let sample = meter.take_sample(Span::ZERO).unwrap();
        assert_eq!(
            (sample.user, sample.system),
            (Span::from_millis(300), Span::ZERO)
        );
        // As `/proc` has it: an open file of a process that is gone cannot be read any more.
        write(&tree, "proc/7/stat", "");
        assert_eq!(meter.take_sample(Span::from_millis(1)), None);
        assert!(of(8).is_none(), "it ended before");
    }

    #[test]
    fn a_program_whose_name_is_cut_amid_a_character_has_its_time() {
        let tree = tree(&[("proc/stat", STAT)]);
        fs::create_dir_all(tree.path().join("proc/7")).unwrap();
        let stat = |ticks| {
            let times = format!(" S 1 7 7 0 -1 0 0 0 0 0 {ticks} 20 0 0 20 0 1 0 99\n");
            [b"7 (donn\xc3\xa9es-serv\xc3)", times.as_bytes()].concat()
        };
        fs::write(tree.path().join("proc/7/stat"), stat(100)).unwrap();
        let groups = tree.path().join("groups");
        let mut meter = ProcessorMeter::of_other(&tree.path().join("proc"), 7, &groups).unwrap();
        fs::write(tree.path().join("proc/7/stat"), stat(130)).unwrap();
        assert_eq!(
            meter.take_sample(Span::ZERO).map(|sample| sample.user),
            Some(Span::from_millis(300))
        );
    }

    #[test]
    fn a_thread_that_ends_takes_nothing_with_it() {
        let tree = tree(&[
            ("proc/self/task/7/schedstat", "900 500 3\n"),
            ("proc/self/task/8/schedstat", "9 2000 3\n"),
        ]);
        let mut meter = meter(&tree);
        write(&tree, "proc/self/task/8/schedstat", "9 2600 4\n");
        assert_eq!(
            meter.take_sample(Span::ZERO).unwrap().waited,
            Some(Span::from_nanos(600))
        );
        fs::remove_dir_all(tree.path().join("proc/self/task/8")).unwrap();
        write(&tree, "proc/self/task/7/schedstat", "950 501 4\n");
        assert_eq!(
            meter.take_sample(Span::ZERO).unwrap().waited,
            Some(Span::from_nanos(601))
        );
        fs::create_dir(tree.path().join("proc/self/task/9")).unwrap();
        write(&tree, "proc/self/task/9/schedstat", "1 40 1\n");
        assert_eq!(
            meter.take_sample(Span::ZERO).unwrap().waited,
            Some(Span::from_nanos(641)),
            "one that began since counts whole"
        );
    }

    #[test]
    fn threads_that_were_too_many_to_ask_do_not_count_with_all_their_time_later() {
        let tree = tree(&[("proc/self/task/1/schedstat", "900 500 3\n")]);
        let mut meter = meter(&tree);
        let task = tree.path().join("proc/self/task");
        for thread in 2..=MAX_THREADS + 2 {
            fs::create_dir(task.join(thread.to_string())).unwrap();
            write(
                &tree,
                &format!("proc/self/task/{thread}/schedstat"),
                "9 1000000 3\n",
            );
        }
        assert_eq!(meter.take_sample(Span::ZERO).unwrap().waited, None);
        for thread in 3..=MAX_THREADS + 2 {
            fs::remove_dir_all(task.join(thread.to_string())).unwrap();
        }
        assert_eq!(meter.take_sample(Span::ZERO).unwrap().waited, None);
    }

    #[test]
    fn the_groups_with_a_quota_hold_back_whichever_version_they_have() {
        let second = "usage_usec 5\nnr_periods 4\nnr_throttled 2\nthrottled_usec 1500\n";
        let first = "nr_periods 4\nnr_throttled 2\nthrottled_time 2500000\n";
        let cases = [
            // Version 2, held back by the group around its own.
            (
                vec![
                    ("proc/self/cgroup", "0::/outer/inner\n"),
                    ("groups/outer/cpu.max", "50000 100000\n"),
                    ("groups/outer/cpu.stat", second),
                    ("groups/outer/inner/cpu.max", "max 100000\n"),
                    ("groups/outer/inner/cpu.stat", second),
                    ("groups/cpu.stat", second),
                ],
                "groups/outer/cpu.stat",
            ),
            // Version 1, in a container that sees its own group at the root.
            (
                vec![
                    (
                        "proc/self/cgroup",
                        "5:memory:/docker/1\n4:cpu,cpuacct:/docker/1\n0::/docker/1\n",
                    ),
                    ("groups/cpu,cpuacct/cpu.cfs_quota_us", "50000\n"),
                    ("groups/cpu,cpuacct/cpu.stat", first),
                ],
                "groups/cpu,cpuacct/cpu.stat",
            ),
        ];
        for (files, stat) in cases {
            let tree = tree(&files);
            let mut meter = meter(&tree);
            assert_eq!(
                meter.take_sample(Span::ZERO).unwrap().throttled,
                Some(Span::ZERO)
            );
            write(&tree, stat, "throttled_usec 1740\n");
            let more = meter.take_sample(Span::ZERO).unwrap().throttled.unwrap();
            write(&tree, stat, "throttled_time 2740000\n");
            let much = meter.take_sample(Span::ZERO).unwrap().throttled.unwrap();
            let expected = [Span::from_micros(240), Span::from_micros(1_240)];
            assert!(
                if stat.contains("outer") {
                    [more, much] == expected
                } else {
                    much == expected[0]
                },
                "{more} {much}"
            );
        }
    }

    #[test]
    fn without_a_quota_nothing_holds_back_and_without_groups_nobody_knows() {
        let free = tree(&[
            ("proc/self/cgroup", "1:cpu:/\n"),
            ("groups/cpu/cpu.cfs_quota_us", "-1\n"),
            ("groups/cpu/cpu.stat", "throttled_time 9\n"),
        ]);
        assert_eq!(
            meter(&free).take_sample(Span::ZERO).unwrap().throttled,
            Some(Span::ZERO)
        );
        for text in ["", "0::/\n", "nonsense", "0::", "3:cpu:/../../../etc\n"] {
            assert_eq!(
                meter(&tree(&[("proc/self/cgroup", text)]))
                    .take_sample(Span::ZERO)
                    .unwrap()
                    .throttled,
                None,
                "{text}"
            );
        }
    }

    #[test]
    fn this_process_waits_and_its_machine_works() {
        let mut meter = ProcessorMeter::of_this_process();
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(50) {
            thread::yield_now();
        }
        let [first, second] = std::array::from_fn(|_| meter.take_sample(Span::ZERO).unwrap());
        let busy = |sample: &CpuSample| {
            sample
                .cores
                .iter()
                .map(|core| core.user + core.system + core.idle)
                .sum::<Span>()
        };
        assert!(
            !first.cores.is_empty() && busy(&first) > Span::ZERO,
            "{first:?}"
        );
        assert!(second.waited >= first.waited, "{first:?} {second:?}");
    }
}
