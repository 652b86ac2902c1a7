//! A grid as an array job of a real Slurm.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fullpipe_testkit::{Slurm, require, within};
use rustix::process::{Pid, Signal, kill_process};

use crate::common::{fullpipe, run};
use crate::shards::documents;

/// 256 rows, of which some lose packets at random.
const GRID: [&str; 13] = [
    "simulate",
    "--bandwidth",
    "5M,10M,20M,40M",
    "--rtt",
    "5ms,10ms,20ms,40ms",
    "--queue",
    "0.5bdp,1bdp,2bdp,4bdp",
    "--loss",
    "0,1e-3",
    "-C",
    "cubic,bbr",
    "-t",
    "30",
];

const ROWS: usize = 256;

/// Tasks of the array, and the one that is killed.
const TASKS: usize = 16;
const KILLED: usize = 7;

/// Longest that all tasks take on a busy machine.
const PATIENCE: Duration = Duration::from_mins(5);

/// A job of `contrib/slurm`, with the folder in which it runs.
struct Job {
    cluster: Slurm,
    folder: PathBuf,
    number: String,
}

impl Job {
    fn submit(cluster: Slurm, folder: &Path) -> Self {
        let script =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib/slurm/fullpipe-grid.sh");
        let mut sbatch = cluster.command("sbatch");
        sbatch
            .current_dir(folder)
            .env("FULLPIPE", env!("CARGO_BIN_EXE_fullpipe"));
        sbatch.arg("--parsable").arg(format!("--array=1-{TASKS}"));
        let output = sbatch.arg(script).args(GRID).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let number = String::from_utf8(output.stdout).unwrap().trim().to_owned();
        let folder = folder.to_owned();
        Self {
            cluster,
            folder,
            number,
        }
    }

    /// Returns the state of each task that has one: `RUNNING`, `COMPLETED`, `FAILED`.
    fn states(&self) -> BTreeMap<usize, String> {
        let format = [
            "--noheader",
            "--states=all",
            "--array",
            "--format=%K %T",
            "--jobs",
        ];
        let listed = self
            .cluster
            .ask("squeue", &[&format[..], &[&self.number]].concat());
        let state = |line: &str| {
            let (task, state) = line.split_once(' ')?;
            Some((task.parse().ok()?, state.to_owned()))
        };
        listed.lines().filter_map(state).collect()
    }

    fn wait_for(&self, what: &str, is_so: impl Fn(&BTreeMap<usize, String>) -> bool) {
        let came = within(PATIENCE, || is_so(&self.states()));
        assert!(came, "not {what}: {:?}", self.states());
    }

    /// Kills the program of a task as a host that lacks memory does, once it runs.
    fn kill_program(&self, task: usize) {
        let shard = format!("\0--shard\0{task}/{TASKS}\0");
        let killed = within(PATIENCE, || {
            let processes = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
            let mut numbers =
                processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
            numbers.any(|pid: i32| {
                let is_own = fs::read_link(format!("/proc/{pid}/cwd"))
                    .is_ok_and(|cwd| cwd == self.folder)
                    && fs::read_link(format!("/proc/{pid}/exe"))
                        .is_ok_and(|exe| exe == Path::new(env!("CARGO_BIN_EXE_fullpipe")));
                let arguments =
                    fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
                is_own
                    && arguments.contains(&shard)
                    && kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).is_ok()
            })
        });
        assert!(killed, "task {task} never ran: {:?}", self.states());
    }

    /// Returns each file of the results, with what a new one of the same name would differ in.
    fn results(&self) -> BTreeMap<PathBuf, (u64, i64, i64)> {
        let folder = self.folder.join(format!("fullpipe-grid-{}", self.number));
        let files = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path());
        let one = |file: PathBuf| {
            let found = file.metadata().unwrap();
            (file, (found.ino(), found.mtime(), found.mtime_nsec()))
        };
        files.map(one).collect()
    }
}

#[test]
fn an_array_job_is_one_process_byte_for_byte_and_a_killed_task_is_repeated_alone() {
    require!(Slurm, Root);
    let folder = tempfile::tempdir().unwrap();
    let begun = Instant::now();
    let job = Job::submit(Slurm::start(), folder.path());
    job.kill_program(KILLED);
    job.wait_for("ended", |states| {
        let ended = states
            .values()
            .filter(|state| ["COMPLETED", "FAILED"].contains(&state.as_str()));
        ended.count() == TASKS
    });
    let failed: Vec<usize> = job
        .states()
        .into_iter()
        .filter(|(_, state)| state == "FAILED")
        .map(|(task, _)| task)
        .collect();
    assert_eq!(failed, [KILLED]);
    let before = job.results();
    assert_eq!(
        before.len(),
        TASKS - 1,
        "a killed task leaves no file: {before:?}"
    );
    let again = format!("{}_{KILLED}", job.number);
    job.cluster.ask("scontrol", &["requeue", &again]);
    job.wait_for("complete", |states| {
        states.len() == TASKS && states.values().all(|state| state == "COMPLETED")
    });
    let after = job.results();
    let new: Vec<_> = after
        .iter()
        .filter(|(file, what)| before.get(*file) != Some(what))
        .collect();
    let name = format!("shard-{KILLED}.json");
    assert!(
        new.len() == 1 && after.len() == TASKS && new[0].0.ends_with(name),
        "{new:?}"
    );
    println!("array job: {:.1} s", begun.elapsed().as_secs_f64());

    let (merged, whole) = (
        folder.path().join("merged.db"),
        folder.path().join("whole.db"),
    );
    let files: Vec<&str> = after.keys().map(|file| file.to_str().unwrap()).collect();
    // Twice: the second time changes nothing.
    for _ in 0..2 {
        import(&files, &merged);
    }
    let begun = Instant::now();
    let one_process = run(&mut fullpipe(&[&GRID[..], &["--json"]].concat()), 300);
    println!("one process: {:.1} s", begun.elapsed().as_secs_f64());
    let one_file = folder.path().join("whole.json");
    fs::write(&one_file, &one_process.stdout).unwrap();
    import(&[one_file.to_str().unwrap()], &whole);
    assert_eq!(documents(&merged).len(), ROWS);
    assert!(documents(&merged) == documents(&whole), "documents differ");
    let begun = Instant::now();
    let from_archive = run(
        &mut fullpipe(&[&GRID[..], &["--json", "--fill", merged.to_str().unwrap()]].concat()),
        300,
    );
    println!("from the archive: {:.1} s", begun.elapsed().as_secs_f64());
    assert!(
        from_archive.stdout == one_process.stdout,
        "the results differ"
    );
    assert_eq!(documents(&merged).len(), ROWS);
}

fn import(files: &[&str], archive: &Path) {
    let flags = ["store", "import", "--store", archive.to_str().unwrap()];
    let output = run(&mut fullpipe(&[&flags, files].concat()), 120);
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn an_array_that_does_not_begin_at_1_has_no_shards() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib/slurm/fullpipe-grid.sh");
    let folder = tempfile::tempdir().unwrap();
    for (least, most, count) in [("0", "15", "16"), ("5", "5", "1"), ("1", "16", "8")] {
        let mut task = std::process::Command::new(&script);
        task.current_dir(folder.path())
            .env("SLURM_ARRAY_TASK_ID", most)
            .env("SLURM_ARRAY_TASK_MIN", least);
        task.env("SLURM_ARRAY_TASK_MAX", most)
            .env("SLURM_ARRAY_TASK_COUNT", count);
        let refused = run(&mut task, 20);
        assert_eq!(refused.status.code(), Some(2));
        assert!(
            String::from_utf8_lossy(&refused.stderr).contains("write --array=1-N"),
            "{refused:?}"
        );
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}
