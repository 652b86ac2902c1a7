//! Copies in which an end, ssh, the connections or the disk fails at random moments. The same
//! command again must make what is missing, and send no more.

mod stage;
mod tree;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::panic::catch_unwind;
use std::path::PathBuf;
use std::process::Output;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use fullpipe_testkit::{Running, load_slot, random_bytes, require, within};
use rand_pcg::Pcg32;
use rand_pcg::rand_core::Rng as _;
use serde_json::Value;

use crate::stage::Stage;
use crate::tree::Tree;

/// Time in which a copy ends, whatever fails. A QUIC connection is given up after 20 s.
const TIMEOUT: Duration = Duration::from_mins(1);

/// The way of messages and data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Tcp,
    Quic,
    InsideSsh,
    Server,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    NearEndKilled,
    FarEndKilled,
    SshKilled,
    /// The connections for data.
    DataCut,
    /// That of the messages, with a server.
    CallCut,
    DiskFull,
    /// Its file system goes read-only, and what it had not written is lost.
    DiskReadOnly,
    /// It fails to write, which its file system finds out later.
    DiskFails,
}

impl Fault {
    fn is_of_disk(self) -> bool {
        matches!(self, Self::DiskFull | Self::DiskReadOnly | Self::DiskFails)
    }
}

/// The moment of a fault.
#[derive(Debug, Clone, Copy)]
enum When {
    /// So long after the start.
    After(Duration),
    /// When so much of the tree has arrived.
    Arrived(f64),
}

/// A copy, and what happens to it: one fault, or another one after it while it is continued.
#[derive(Debug, Clone)]
struct Course {
    seed: u64,
    way: Way,
    up: bool,
    faults: Vec<(Fault, When)>,
}

impl Course {
    fn random(seed: u64) -> Self {
        let mut random = Pcg32::new(seed, 0);
        let way = *choose(
            &mut random,
            &[Way::Tcp, Way::Tcp, Way::Quic, Way::InsideSsh, Way::Server],
        );
        let up = random.next_u32().is_multiple_of(2);
        let lines = match way {
            Way::Tcp | Way::Quic => &[Fault::SshKilled, Fault::DataCut][..],
            Way::InsideSsh => &[Fault::SshKilled],
            Way::Server => &[Fault::CallCut, Fault::DataCut],
        };
        let disks = [Fault::DiskFull, Fault::DiskReadOnly, Fault::DiskFails];
        let ends = [Fault::NearEndKilled, Fault::FarEndKilled];
        let fault = match random.next_u32() % 7 {
            0..3 => *choose(&mut random, &ends),
            3..5 => *choose(&mut random, lines),
            _ => *choose(&mut random, &disks),
        };
        let mut faults = vec![(fault, When::random(&mut random))];
        if random.next_u32().is_multiple_of(3) {
            faults.push((
                *choose(&mut random, &[&ends[..], lines].concat()),
                When::random(&mut random),
            ));
        }
        Self {
            seed,
            way,
            up,
            faults,
        }
    }
}

impl When {
    fn random(random: &mut Pcg32) -> Self {
        match random.next_u32() % 2 {
            0 => Self::After(Duration::from_millis(u64::from(random.next_u32() % 1000))),
            _ => Self::Arrived(f64::from(random.next_u32() % 1000) / 1000.0),
        }
    }
}

fn choose<'c, T>(random: &mut Pcg32, of: &'c [T]) -> &'c T {
    &of[random.next_u32() as usize % of.len()]
}

#[test]
fn whatever_fails_the_same_command_again_makes_the_tree_and_sends_nothing_twice() {
    require!(Root, Unshare, Tc, Socat, Loop);
    let _slot = load_slot();
    at_random_moments(10, 24, 3);
}

#[test]
#[ignore = "takes some minutes"]
fn whatever_fails_at_1000_moments_the_same_command_again_makes_the_tree() {
    require!(Root, Unshare, Tc, Socat, Loop);
    let _slot = load_slot();
    at_random_moments(1000, 2400, 4);
}

/// Runs so many courses, `together` at a time. All of them run, whatever becomes of one.
#[expect(clippy::print_stdout, reason = "a test prints its courses")]
fn at_random_moments(count: u32, seed: u64, together: u32) {
    let (next, struck, failed) = (AtomicU32::new(0), AtomicU32::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some(number) =
            Some(next.fetch_add(1, Ordering::Relaxed)).filter(|number| *number < count)
        {
            let course = Course::random(seed << 32 | u64::from(number));
            println!("{number}: {course:?}");
            match catch_unwind(|| survive(&course)) {
                Ok(was_struck) => drop(struck.fetch_add(u32::from(was_struck), Ordering::Relaxed)),
                Err(_) => failed.lock().unwrap().push(number),
            }
        }
    };
    thread::scope(|threads| (0..together).for_each(|_| drop(threads.spawn(work))));
    let (struck, failed) = (struck.into_inner(), failed.into_inner().unwrap());
    println!("{struck} of {count} copies had not ended when something failed");
    assert!(
        failed.is_empty(),
        "seed {seed}: {failed:?} of {count} were not survived"
    );
    assert!(struck * 2 > count, "most faults come too late");
}

/// Runs a course. Returns whether something failed before the copy was done.
fn survive(course: &Course) -> bool {
    let (first, _) = course.faults[0];
    let mut stage = Stage::new(
        course.way,
        course.up,
        Some(first).filter(|fault| fault.is_of_disk()),
    );
    let tree = Tree::make(course.seed, &stage.source(), &stage.destination());
    stage.make_durable();
    let mut struck = false;
    for (fault, when) in &course.faults {
        let began = Running::start(&mut stage.copy());
        stage.wait_until(&began, *when, &tree);
        struck |= stage.strike(*fault, &began);
        let output = began.finish(TIMEOUT);
        stage.settle(*fault);
        judge(course, *fault, &output, &stage, &tree);
    }
    let held = tree.held(&stage.destination(), stage.may_lose());
    let output = Running::start(&mut stage.copy()).finish(TIMEOUT);
    assert_eq!(output.status.code(), Some(0), "{course:?}: {output:?}");
    let report = document(&output)["copy"].clone();
    tree.assert_same(&stage.destination(), &format!("{course:?}"));
    let sent = report["transferred"].as_u64().unwrap();
    let again = (sent + held).saturating_sub(tree.bytes());
    assert!(
        again * 100 <= held,
        "{course:?}: {again} of {held} verified bytes were sent again: {report}"
    );
    struck
}

/// Judges what has become of a copy in which something has failed.
fn judge(course: &Course, fault: Fault, output: &Output, stage: &Stage, tree: &Tree) {
    tree.assert_nothing_half(&stage.destination(), &format!("{course:?}: {output:?}"));
    if fault == Fault::NearEndKilled {
        return;
    }
    match output.status.code() {
        // A copy survives the loss of connections for data, and one that was done.
        Some(0) => tree.assert_same(&stage.destination(), &format!("{course:?}: {output:?}")),
        Some(1) => {
            let said = document(output);
            let is_named = !said["error"].is_null() || said["copy"]["failed"].as_u64() > Some(0);
            assert!(is_named, "{course:?}: {said}");
            let causes = [
                "No space left",
                "Read-only file system",
                "Input/output error",
                "did not all reach",
            ];
            assert!(
                !fault.is_of_disk() || causes.iter().any(|cause| said.to_string().contains(cause)),
                "{course:?}: {said}"
            );
        }
        code => panic!("{course:?} ends with {code:?}: {output:?}"),
    }
}

fn document(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
}

/// A file gets its permissions before its name. Those that let nobody write once made the next run
/// begin anew.
#[test]
fn a_part_that_its_owner_may_not_write_is_continued() {
    require!(Root, Unshare, Tc, Socat);
    let _slot = load_slot();
    let mut stage = Stage::new(Way::Tcp, true, None);
    let content = random_bytes(8 << 20);
    fs::write(stage.source().join("a"), &content).unwrap();
    let near = Running::start(&mut stage.copy());
    let to = stage.destination();
    let working = || {
        fs::read_dir(&to)
            .unwrap()
            .map(|entry| entry.unwrap().path())
    };
    let journal = |path: &PathBuf| {
        path.extension()
            .is_some_and(|extension| extension == "fullpipe-journal")
    };
    let records = || {
        working()
            .find(journal)
            .map_or(0, |path| fs::metadata(path).unwrap().len() / 48)
    };
    assert!(within(TIMEOUT, || records() > 2), "nothing arrives");
    stage.strike(Fault::NearEndKilled, &near);
    near.finish(TIMEOUT);
    stage.settle(Fault::NearEndKilled);
    let held = (records() - 1) << 20;
    let part = working()
        .find(|path| !journal(path))
        .expect("its data is there");
    fs::set_permissions(part, Permissions::from_mode(0o444)).unwrap();
    let output = Running::start(&mut stage.copy()).finish(TIMEOUT);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(fs::read(to.join("a")).unwrap() == content);
    let sent = document(&output)["copy"]["transferred"].as_u64().unwrap();
    assert_eq!((sent + held, working().count()), (8 << 20, 1), "{output:?}");
}
