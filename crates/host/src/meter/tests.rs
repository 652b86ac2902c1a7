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
    let of =
        |pid| ProcessorMeter::of_other(&tree.path().join("proc"), pid, &tree.path().join("groups"));
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

/// Three threads, each of which rests for most of the time, passed for one that never does.
#[test]
fn the_time_awake_is_that_of_the_busiest_thread_of_each_interval_and_no_sum() {
    let tree = tree(&[
        ("proc/self/task/7/schedstat", "900 500 3\n"),
        ("proc/self/task/8/schedstat", "100 0 3\n"),
    ]);
    let mut meter = meter(&tree);
    let mut awake = |seventh: &str, eighth: &str| {
        write(&tree, "proc/self/task/7/schedstat", seventh);
        write(&tree, "proc/self/task/8/schedstat", eighth);
        let sample = meter.take_sample(Span::ZERO).unwrap();
        (sample.waited.unwrap(), sample.awake.unwrap())
    };
    let nanos = |waited, awake| (Span::from_nanos(waited), Span::from_nanos(awake));
    assert_eq!(awake("910 530 4\n", "120 10 4\n"), nanos(40, 40));
    assert_eq!(awake("910 531 5\n", "160 30 5\n"), nanos(61, 100));
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
