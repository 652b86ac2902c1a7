//! Changes by the journal, in network namespaces of the test's own: whatever happens to whom makes
//! them, `undo` puts back what was.

use std::collections::BTreeMap;
use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use fullpipe_host::{
    AppliedChanges, ApplyOptions, HostSystem, JournalDir, JournalError, JournalStep, SysctlTree,
};
use fullpipe_record::{Change, HostUndone};
use fullpipe_sys::{self as sys, NetNamespace};
use fullpipe_testkit::{network_sysctls, require};
use fullpipe_units::{ByteCount, SegCount, Span};
use rustix::process::{Signal, getpid, kill_process};
use tempfile::TempDir;

/// The device of the namespaces here.
const DEVICE: &str = "pair0";

/// Variable with the folder of the helper's journal.
const FOLDER: &str = "TEST_JOURNAL";
/// Variable with the step at which the helper dies.
const STEP: &str = "TEST_STEP";

/// The calling thread in a network namespace of its own with a device and a route, and a folder for
/// journals.
struct Bench {
    folder: TempDir,
    _networks: [NetNamespace; 2],
}

impl Bench {
    fn new() -> Self {
        let far = NetNamespace::create().unwrap();
        let here = NetNamespace::create().unwrap();
        sys::create_veth(DEVICE, [&here, &far]).unwrap();
        let [local, peer] = [1, 2].map(|last| Ipv4Addr::new(10, 9, 0, last));
        let link = sys::Ipv4Link {
            local,
            peer,
            mtu: ByteCount::new(1500),
            transmit_queue: SegCount::new(1000),
        };
        sys::configure_ipv4(DEVICE, link).unwrap();
        Self {
            folder: tempfile::tempdir().unwrap(),
            _networks: [here, far],
        }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn journal_dir(&self) -> JournalDir {
        JournalDir::open(self.path(), system()).unwrap()
    }

    fn journal(&self) -> PathBuf {
        let mut files = fs::read_dir(self.path())
            .unwrap()
            .map(|entry| entry.unwrap().path());
        files
            .find(|file| {
                file.extension()
                    .is_some_and(|extension| extension == "jsonl")
            })
            .unwrap()
    }

    fn has_journal(&self) -> bool {
        fs::read_dir(self.path())
            .unwrap()
            .any(|entry| entry.unwrap().path().extension().is_some())
    }
}

fn system() -> HostSystem {
    HostSystem::new(SysctlTree::of_this_host(), "/nowhere")
}

fn sysctl(name: &str, value: &str) -> Change {
    Change::Sysctl {
        name: name.to_owned(),
        value: value.to_owned(),
    }
}

/// One of each kind, and one setting twice.
fn changes() -> Vec<Change> {
    let device = || DEVICE.to_owned();
    vec![
        Change::TcpRmemMax(ByteCount::from_mib(64)),
        Change::WindowScaling(false),
        sysctl("net.ipv4.tcp_rmem", "8192 100000 9000000"),
        Change::Mtu {
            device: device(),
            mtu: ByteCount::new(1400),
        },
        Change::QueueLength {
            device: device(),
            packets: SegCount::new(77),
        },
        Change::Qdisc {
            device: device(),
            kind: "pfifo".to_owned(),
        },
        Change::Offload {
            device: device(),
            feature: "tx-tcp-segmentation".to_owned(),
            on: false,
        },
        Change::RouteMetric {
            destination: "10.0.0.0/8".to_owned(),
            metric: "initcwnd".to_owned(),
            value: Some(40),
        },
        Change::TcpWmemMax(ByteCount::from_mib(32)),
    ]
}

fn apply(journal_dir: &JournalDir, changes: &[Change]) -> Result<usize, JournalError> {
    journal_dir
        .apply_changes(
            changes,
            ApplyOptions::default(),
            &mut |_| Ok(()),
            &mut |_| {},
        )
        .map(|made| made.len())
}

/// Every setting of the network that can be read, to the byte.
fn everything() -> BTreeMap<String, String> {
    let mut all = network_sysctls();
    for device in sys::list_devices().unwrap() {
        let features = sys::device_features(&device.name).unwrap();
        all.insert(
            device.name.clone(),
            format!(
                "{device:?} {:?} {features:?}",
                sys::root_qdisc(&device.name)
            ),
        );
    }
    for route in sys::list_routes().unwrap() {
        all.insert(
            format!("route {}", route.destination),
            format!("{:?} {:?}", route.device, route.metrics),
        );
    }
    all
}

fn assert_as_before(before: &BTreeMap<String, String>, when: &str) {
    let now = everything();
    for (name, text) in before {
        assert_eq!(now.get(name), Some(text), "{name} {when}");
    }
    assert_eq!(now.len(), before.len(), "{when}");
}

#[test]
#[ignore = "it is the process that the next test kills"]
fn apply_until_killed() {
    let step: usize = std::env::var(STEP).unwrap().parse().unwrap();
    let journal_dir =
        JournalDir::open(Path::new(&std::env::var(FOLDER).unwrap()), system()).unwrap();
    let mut seen = 0;
    let mut die = |_: JournalStep| {
        if seen == step {
            kill_process(getpid(), Signal::KILL).unwrap();
        }
        seen += 1;
    };
    journal_dir
        .apply_changes(
            &changes(),
            ApplyOptions::default(),
            &mut |_| Ok(()),
            &mut die,
        )
        .unwrap();
}

#[test]
fn whoever_is_killed_at_any_step_leaves_a_way_back_to_the_byte() {
    require!(Root);
    let bench = Bench::new();
    let before = everything();
    let mut step = 0;
    loop {
        let mut helper = Command::new(std::env::current_exe().unwrap());
        helper
            .args(["--exact", "apply_until_killed", "--ignored"])
            .env(STEP, step.to_string())
            .env(FOLDER, bench.path());
        let output = helper.output().unwrap();
        let finished = output.status.success();
        // One step before all changes, two for each.
        assert_eq!(
            finished,
            step == 1 + 2 * changes().len(),
            "{}",
            String::from_utf8_lossy(&output.stdout)
        );
        let made = step / 2;
        let undone = bench.journal_dir().undo_changes(false).unwrap();
        assert_eq!(undone.left, [], "after step {step}");
        // One setting is there twice, and is put back once.
        assert_eq!(
            undone.restored.len(),
            if made > 2 { made - 1 } else { made },
            "after step {step}: {undone:?}"
        );
        assert_as_before(&before, &format!("after step {step}"));
        assert!(!bench.has_journal(), "after step {step}");
        if finished {
            return;
        }
        step += 1;
    }
}

#[test]
fn an_undo_that_was_itself_cut_short_is_finished_by_the_next() {
    require!(Root);
    let bench = Bench::new();
    let before = everything();
    apply(&bench.journal_dir(), &changes()).unwrap();
    let whole = fs::read(bench.journal()).unwrap();
    let path = bench.journal();
    bench.journal_dir().undo_changes(false).unwrap();
    // As if it had died before it could take the journal away, with everything put back, and with
    // half.
    fs::write(&path, &whole).unwrap();
    assert_eq!(
        bench.journal_dir().undo_changes(false).unwrap(),
        HostUndone::default()
    );
    apply(&bench.journal_dir(), &changes()[..2]).unwrap();
    fs::write(&path, &whole).unwrap();
    assert_eq!(bench.journal_dir().undo_changes(false).unwrap().left, []);
    assert_as_before(&before, "after both");
}

#[test]
fn a_line_that_somebody_died_over_counts_for_nothing_and_garbage_is_reported() {
    require!(Root);
    let bench = Bench::new();
    let before = everything();
    apply(&bench.journal_dir(), &changes()[..1]).unwrap();
    let path = bench.journal();
    let one = fs::read(&path).unwrap();
    apply(&bench.journal_dir(), &changes()[1..2]).unwrap();
    bench.journal_dir().undo_changes(false).unwrap();
    apply(&bench.journal_dir(), &changes()[..1]).unwrap();
    let whole = fs::read(&path).unwrap();
    assert!(whole.starts_with(&one[..40]));
    // A second apply wrote its lines in part, and died before its change.
    let second = br#"{"change":{"setting":{"sysctl":"net.ipv4.tcp_window_scaling"},"before":"1\n","wanted":"0"}}"#;
    for length in 1..second.len() {
        fs::write(&path, [whole.as_slice(), &second[..length]].concat()).unwrap();
        if length % 9 == 0 {
            // What is appended then begins a line of its own.
            apply(&bench.journal_dir(), &changes()[8..]).unwrap();
            let lines = fs::read_to_string(&path).unwrap();
            assert!(
                lines
                    .lines()
                    .all(|line| serde_json::from_str::<serde_json::Value>(line).is_ok()),
                "{lines}"
            );
            assert_eq!(
                bench
                    .journal_dir()
                    .undo_changes(false)
                    .unwrap()
                    .restored
                    .len(),
                2,
                "cut at {length}"
            );
            assert_as_before(&before, &format!("cut at {length}"));
            apply(&bench.journal_dir(), &changes()[..1]).unwrap();
        }
    }
    fs::write(
        &path,
        [whole.as_slice(), b"rubbish\n", second, b"\n"].concat(),
    )
    .unwrap();
    let error = bench.journal_dir().undo_changes(false).unwrap_err();
    assert!(
        matches!(error, JournalError::Malformed { line: 4, .. }),
        "{error}"
    );
    assert!(
        error.to_string().contains("undo --forget` sets it aside"),
        "{error}"
    );
    let evil =
        br#"{"change":{"setting":{"sysctl":"net.//.//.etc.passwd"},"before":"x","wanted":"y"}}"#;
    fs::write(&path, [whole.as_slice(), evil, b"\n"].concat()).unwrap();
    assert!(matches!(
        bench.journal_dir().undo_changes(false).unwrap_err(),
        JournalError::Malformed { line: 4, .. }
    ));
    fs::write(&path, &whole).unwrap();
    bench.journal_dir().undo_changes(false).unwrap();
    assert_as_before(&before, "in the end");
}

#[test]
fn a_journal_whose_maker_died_before_its_first_line_is_removed() {
    require!(Root);
    let bench = Bench::new();
    for begun in ["", "{\"opened\""] {
        let path = bench.path().join(format!("host-{OTHER_BOOT}-1-1.jsonl"));
        fs::write(&path, begun).unwrap();
        assert!(
            bench
                .journal_dir()
                .undo_changes(false)
                .unwrap()
                .restored
                .is_empty()
        );
        assert!(!path.exists(), "{begun:?}");
    }
}

/// No boot of this machine.
const OTHER_BOOT: &str = "00000000-0000-0000-0000-000000000000";

#[test]
fn a_journal_that_cannot_be_read_blocks_no_other_and_can_be_set_aside() {
    require!(Root);
    let bench = Bench::new();
    let before = everything();
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let place = |name: &str| bench.path().join(name);
    // Of nobody, of another namespace that is there, and of another boot.
    let (nobody, elsewhere) = (
        place("notes.jsonl"),
        place(&format!("host-{}-1-1.jsonl", boot.trim())),
    );
    let earlier = place(&format!("host-{OTHER_BOOT}-1-1.jsonl"));
    for path in [&nobody, &elsewhere, &earlier] {
        fs::write(path, "{\"opened\":{\"version\":2}}\n").unwrap();
    }
    let empty = place("empty.jsonl");
    fs::write(&empty, "nothing").unwrap();
    for forget in [false, true] {
        apply(&bench.journal_dir(), &changes()[..2]).unwrap();
        let undone = bench.journal_dir().undo_changes(forget).unwrap();
        assert_eq!(
            (undone.restored.len(), undone.left.len(), undone.elsewhere),
            (2, 0, 1),
            "{undone:?}"
        );
        assert!(
            undone.unreadable[0].contains(if forget {
                "was set aside as"
            } else {
                "no journal"
            }),
            "{undone:?}"
        );
        assert_as_before(&before, "after the undo");
        assert!(nobody.exists() && elsewhere.exists() && empty.exists());
        assert_eq!(earlier.exists(), !forget);
    }
    assert_eq!(
        bench.journal_dir().undo_changes(false).unwrap(),
        HostUndone {
            elsewhere: 1,
            ..HostUndone::default()
        }
    );
    // Of this namespace.
    apply(&bench.journal_dir(), &changes()[..1]).unwrap();
    let ours = place("")
        .read_dir()
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let ours = ours
        .max_by_key(|path| path.metadata().unwrap().modified().unwrap())
        .unwrap();
    let whole = fs::read(&ours).unwrap();
    fs::write(&ours, [&whole[..], b"rubbish\n"].concat()).unwrap();
    assert!(matches!(
        apply(&bench.journal_dir(), &changes()[1..2]),
        Err(JournalError::Malformed { .. })
    ));
    assert!(matches!(
        bench.journal_dir().undo_changes(false),
        Err(JournalError::Malformed { .. })
    ));
    let undone = bench.journal_dir().undo_changes(true).unwrap();
    let aside = undone.unreadable[0].split(" as ").last().unwrap();
    assert_eq!(
        fs::read(aside).unwrap(),
        [&whole[..], b"rubbish\n"].concat()
    );
    apply(&bench.journal_dir(), &changes()[1..2]).unwrap();
    // Mended by hand, it counts again.
    bench.journal_dir().undo_changes(false).unwrap();
    fs::write(&ours, &whole).unwrap();
    assert_eq!(
        bench
            .journal_dir()
            .undo_changes(false)
            .unwrap()
            .restored
            .len(),
        1
    );
    assert_as_before(&before, "in the end");
}

#[test]
fn what_somebody_else_changed_is_left_alone_and_the_rest_is_put_back() {
    require!(Root);
    let bench = Bench::new();
    let tree = SysctlTree::of_this_host();
    let before = everything();
    apply(&bench.journal_dir(), &changes()).unwrap();
    tree.write("net.ipv4.tcp_wmem", "4096 16384 5000000")
        .unwrap();
    for _ in 0..2 {
        let undone = bench.journal_dir().undo_changes(false).unwrap();
        assert_eq!((undone.left.len(), undone.kept), (1, 1), "{undone:?}");
        assert!(
            undone.left[0]
                .why
                .contains("net.ipv4.tcp_wmem was left alone"),
            "{undone:?}"
        );
        assert!(
            undone.left[0].why.contains("4096 16384 5000000"),
            "{undone:?}"
        );
    }
    let now = everything();
    let differing: Vec<_> = before
        .iter()
        .filter(|(name, text)| now.get(*name) != Some(text))
        .map(|(name, _)| name)
        .collect();
    assert_eq!(differing, ["/proc/sys/net/ipv4/tcp_wmem"]);
    // Once it is as we left it, it is ours again; and it can be given up.
    tree.write("net.ipv4.tcp_wmem", "4096 16384 33554432")
        .unwrap();
    assert_eq!(
        bench
            .journal_dir()
            .undo_changes(false)
            .unwrap()
            .restored
            .len(),
        1
    );
    assert_as_before(&before, "after all");
    apply(&bench.journal_dir(), &changes()[8..]).unwrap();
    tree.write("net.ipv4.tcp_wmem", "4096 16384 5000000")
        .unwrap();
    let forgotten = bench.journal_dir().undo_changes(true).unwrap();
    assert_eq!((forgotten.left.len(), forgotten.kept), (1, 0));
    assert_eq!(
        bench.journal_dir().undo_changes(false).unwrap(),
        HostUndone::default()
    );
}

/// Offloads of which the first takes the others with it.
const CHECKSUMS: &str = "tx-checksum-ip-generic";
const SEGMENTATIONS: [&str; 2] = ["tx-tcp-segmentation", "tx-tcp6-segmentation"];

/// Orders in which they are switched off: the first, second and last of them is that of the
/// checksums.
fn orders() -> [[&'static str; 3]; 3] {
    let [v4, v6] = SEGMENTATIONS;
    [
        [CHECKSUMS, v4, v6],
        [v4, CHECKSUMS, v6],
        [v4, v6, CHECKSUMS],
    ]
}

fn offload(feature: &str, on: bool) -> Change {
    Change::Offload {
        device: DEVICE.to_owned(),
        feature: feature.to_owned(),
        on,
    }
}

#[test]
fn an_offload_that_went_with_another_comes_back_with_it() {
    require!(Root);
    let bench = Bench::new();
    let before = everything();
    for names in orders() {
        apply(
            &bench.journal_dir(),
            &names.map(|name| offload(name, false)),
        )
        .unwrap();
        let undone = bench.journal_dir().undo_changes(false).unwrap();
        assert_eq!(
            (undone.restored.len(), undone.left),
            (3, Vec::new()),
            "{names:?}"
        );
        assert_as_before(&before, &format!("after {names:?}"));
        // Each by itself, of which the second finds off what is to be off.
        for name in names {
            apply(&bench.journal_dir(), &[offload(name, false)]).unwrap();
        }
        assert_eq!(
            bench.journal_dir().undo_changes(false).unwrap().left,
            [],
            "{names:?}"
        );
        assert_as_before(&before, &format!("after {names:?} one by one"));
    }
    // Segmentation waits for somebody's checksums: it cannot be had, and goes on waiting.
    let checksums = sys::device_features(DEVICE)
        .unwrap()
        .into_iter()
        .find(|feature| feature.name == CHECKSUMS)
        .unwrap();
    sys::set_feature(DEVICE, &checksums, false).unwrap();
    let waiting = everything();
    let error = apply(&bench.journal_dir(), &[offload(SEGMENTATIONS[0], true)]).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("reads back as \"off [requested on]\""),
        "{error}"
    );
    assert_as_before(&waiting, "after the refusal");
    sys::set_feature(DEVICE, &checksums, true).unwrap();
    assert_as_before(&before, "with checksums");
}

#[test]
fn what_was_applied_without_a_journal_comes_back_in_the_same_order() {
    require!(Root);
    let _bench = Bench::new();
    let tree = SysctlTree::of_this_host();
    let before = everything();
    for names in orders() {
        fullpipe_host::apply_changes(&tree, &names.map(|name| offload(name, false)))
            .unwrap()
            .undo_changes(&tree)
            .unwrap();
        assert_as_before(&before, &format!("after {names:?}"));
        let mut applied = AppliedChanges::default();
        for change in names
            .map(|name| offload(name, false))
            .into_iter()
            .chain(changes())
        {
            applied.append(fullpipe_host::apply_changes(&tree, &[change]).unwrap());
        }
        applied.undo_changes(&tree).unwrap();
        assert_as_before(&before, &format!("after {names:?} one by one"));
    }
}

#[test]
fn what_somebody_set_between_two_applies_is_what_undo_goes_back_to() {
    require!(Root);
    let bench = Bench::new();
    let before = everything();
    let tree = SysctlTree::of_this_host();
    let (name, theirs) = ("net.ipv4.tcp_wmem", "4096\t16384\t12345678");
    for sets_it_again in [false, true] {
        apply(
            &bench.journal_dir(),
            &[Change::TcpWmemMax(ByteCount::from_mib(8))],
        )
        .unwrap();
        tree.write(name, theirs).unwrap();
        for larger in [32, 64] {
            apply(
                &bench.journal_dir(),
                &[Change::TcpWmemMax(ByteCount::from_mib(larger))],
            )
            .unwrap();
        }
        if sets_it_again {
            tree.write(name, theirs).unwrap();
        }
        for round in 0..2 {
            let undone = bench.journal_dir().undo_changes(false).unwrap();
            assert_eq!(
                undone.restored.len(),
                usize::from(!sets_it_again && round == 0),
                "{undone:?}"
            );
            assert_eq!(undone.left.len(), 1, "{undone:?}");
            assert!(
                undone.left[0]
                    .why
                    .contains("it should still be \"4096 16384 8388608\""),
                "{undone:?}"
            );
            assert_eq!(tree.read(name).unwrap(), theirs, "{undone:?}");
        }
        tree.write(name, "4096 16384 8388608").unwrap();
        assert_eq!(bench.journal_dir().undo_changes(false).unwrap().left, []);
        assert_as_before(&before, "in the end");
    }
    // Of three who set it, nobody's is overwritten.
    apply(
        &bench.journal_dir(),
        &[Change::TcpWmemMax(ByteCount::from_mib(8))],
    )
    .unwrap();
    tree.write(name, theirs).unwrap();
    apply(
        &bench.journal_dir(),
        &[Change::TcpWmemMax(ByteCount::from_mib(64))],
    )
    .unwrap();
    tree.write(name, "4096 16384 8388608").unwrap();
    let undone = bench.journal_dir().undo_changes(false).unwrap();
    assert_eq!(
        (undone.restored.len(), tree.read(name).unwrap().as_str()),
        (0, "4096\t16384\t8388608"),
        "{undone:?}"
    );
    assert!(!undone.left.is_empty(), "{undone:?}");
}

/// Runs a command of iproute2 in the namespace of the calling thread.
fn ip(arguments: &str) -> String {
    let output = Command::new("ip")
        .args(arguments.split(' '))
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "ip {arguments}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn what_moves_more_than_itself_is_refused() {
    require!(Root, Tc);
    let bench = Bench::new();
    ip("-6 addr add fd00::1/64 dev pair0 nodad");
    ip("link add link pair0 name above type macvlan");
    let mtu = |mtu| Change::Mtu {
        device: DEVICE.to_owned(),
        mtu: ByteCount::new(mtu),
    };
    let before = everything();
    let refused = |change: Change, why: &str| {
        let now = everything();
        let error = apply(
            &bench.journal_dir(),
            &[Change::TcpWmemMax(ByteCount::from_mib(8)), change],
        )
        .unwrap_err();
        assert!(
            matches!(&error, JournalError::Unfit(text) if text.contains(why)),
            "{error}"
        );
        assert_as_before(&now, why);
    };
    refused(sysctl("net.ipv4.ip_forward", "1"), "changes other settings");
    refused(
        sysctl("net.ipv6.conf.pair0.disable_ipv6", "1"),
        "changes other settings",
    );
    refused(mtu(1279), "would lose its addresses");
    refused(mtu(1400), "the MTU of above would follow");
    ip("link set above mtu 1300");
    ip("-6 route add fd77::/64 via fd00::2 dev pair0 mtu 1450");
    refused(mtu(1400), "the route to fd77::/64 has an MTU of its own");
    ip("-6 route del fd77::/64");
    SysctlTree::of_this_host()
        .write("net.ipv6.conf.pair0.mtu", "1350")
        .unwrap();
    refused(mtu(1400), "IPv6 has an MTU of its own");
    SysctlTree::of_this_host()
        .write("net.ipv6.conf.pair0.mtu", "1500")
        .unwrap();
    ip("link set above mtu 1500");
    assert_as_before(&before, "in the end");
    // None of that is so of one that is larger, and what follows a default follows it back.
    apply(
        &bench.journal_dir(),
        &[mtu(1600), sysctl("net.ipv4.conf.default.rp_filter", "2")],
    )
    .unwrap();
    assert_eq!(
        SysctlTree::of_this_host()
            .read("net.ipv4.conf.above.rp_filter")
            .unwrap(),
        "2"
    );
    assert_eq!(bench.journal_dir().undo_changes(false).unwrap().left, []);
    assert_as_before(&before, "of a larger one");
}

#[test]
fn a_route_that_goes_by_itself_goes_after_an_undo_too() {
    require!(Root, Tc);
    let bench = Bench::new();
    ip("-6 addr add fd00::1/64 dev pair0 nodad");
    ip("-6 route add fd77::/64 via fd00::2 dev pair0 expires 500");
    let destination = "fd77::/64".to_owned();
    let change = Change::RouteMetric {
        destination,
        metric: "initcwnd".to_owned(),
        value: Some(40),
    };
    let expires = || {
        let shown = ip("-6 route show fd77::/64");
        let (_, rest) = shown
            .split_once("expires ")
            .unwrap_or_else(|| panic!("{shown}"));
        rest.split("sec").next().unwrap().parse::<u32>().unwrap()
    };
    apply(&bench.journal_dir(), std::slice::from_ref(&change)).unwrap();
    assert!((400..=501).contains(&expires()));
    assert_eq!(bench.journal_dir().undo_changes(false).unwrap().left, []);
    assert!((400..=502).contains(&expires()));
    // One that routers advertise is theirs.
    ip("-6 route replace fd77::/64 via fd00::2 dev pair0 proto ra");
    let error = apply(&bench.journal_dir(), &[change]).unwrap_err();
    assert!(
        matches!(&error, JournalError::Unfit(text) if text.contains("router advertisements")),
        "{error}"
    );
}

#[test]
fn a_failure_half_way_leaves_nothing_changed() {
    require!(Root);
    let bench = Bench::new();
    let before = everything();
    let refused = sysctl("net.ipv4.tcp_congestion_control", "no_such_control");
    let error = apply(&bench.journal_dir(), &[changes(), vec![refused]].concat()).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("cannot write net.ipv4.tcp_congestion_control"),
        "{error}"
    );
    assert_as_before(&before, "after a value that the kernel refuses");
    // What a namespace may only read, and what is not there.
    for name in ["net.core.rmem_max", "net.ipv4.tcp_no_such_thing"] {
        let error = apply(
            &bench.journal_dir(),
            &[changes(), vec![sysctl(name, "1")]].concat(),
        )
        .unwrap_err();
        assert!(error.to_string().contains(name), "{error}");
        assert_as_before(&before, name);
    }
    assert!(!bench.has_journal());
    // A discipline that somebody chose, of a kind that cannot be put back.
    sys::set_root_qdisc(DEVICE, "noqueue").unwrap();
    let error = apply(&bench.journal_dir(), &[qdisc("bfifo")]).unwrap_err();
    assert!(matches!(error, JournalError::Unfit(_)), "{error}");
}

fn qdisc(kind: &str) -> Change {
    Change::Qdisc {
        device: DEVICE.to_owned(),
        kind: kind.to_owned(),
    }
}

/// The kernel's parameters after
/// `tc qdisc add dev DEVICE root tbf rate 200mbit burst 64kb limit 200kb`.
const SHAPER: [u8; 40] = [
    0x28, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0x40, 0x78, 0x7d, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    0x00, 0x20, 0x03, 0, 0x00, 0xa0, 0, 0, 0, 0, 0, 0,
];

#[test]
fn a_discipline_that_somebody_chose_comes_back_with_its_parameters() {
    require!(Root);
    let bench = Bench::new();
    let plain = everything();
    // A limit of 30 packets, one of 30 000 bytes, and a token bucket.
    let [packets, bytes] = [30_u32, 30_000].map(|limit| limit.to_ne_bytes().to_vec());
    for (kind, options) in [
        ("pfifo", packets),
        ("bfifo", bytes),
        ("tbf", SHAPER.to_vec()),
    ] {
        sys::restore_root_qdisc(DEVICE, kind, 0x0077_0000, &options).unwrap();
        let chosen = everything();
        assert_ne!(chosen, plain, "{kind}");
        for change in [qdisc(Change::DEFAULT_QDISC), qdisc("pfifo")] {
            apply(&bench.journal_dir(), std::slice::from_ref(&change)).unwrap();
            let undone = bench.journal_dir().undo_changes(false).unwrap();
            assert_eq!(undone.left, [], "{kind}, {change:?}");
            assert_as_before(&chosen, &format!("of {kind}, after {change:?}"));
            assert!(
                undone
                    .restored
                    .iter()
                    .all(|change| change.to.as_deref() == Some(kind)),
                "{undone:?}"
            );
        }
        apply(&bench.journal_dir(), &[qdisc(Change::DEFAULT_QDISC)]).unwrap();
        assert_as_before(&plain, "without it");
        // Somebody took another since: it is theirs.
        sys::set_root_qdisc(DEVICE, "noqueue").unwrap();
        assert_eq!(
            bench.journal_dir().undo_changes(true).unwrap().left.len(),
            1
        );
        sys::delete_root_qdisc(DEVICE).unwrap();
    }
}

#[test]
fn a_discipline_whose_parameters_somebody_changed_is_left_alone() {
    require!(Root);
    // Of a kind that can be put back as somebody chose it, and of another.
    let limit = 77_u32.to_ne_bytes();
    for kind in ["pfifo", "pfifo_head_drop"] {
        let bench = Bench::new();
        let before = everything();
        let root = || sys::root_qdisc(DEVICE).unwrap().unwrap();
        apply(&bench.journal_dir(), &[qdisc(kind)]).unwrap();
        let made = root();
        sys::restore_root_qdisc(DEVICE, kind, made.handle, &limit).unwrap();
        let changed = root();
        assert_ne!(changed, made, "{kind}");
        let undone = bench.journal_dir().undo_changes(false).unwrap();
        assert!(
            undone.left[0]
                .why
                .contains("somebody changed its parameters since"),
            "{undone:?}"
        );
        assert_eq!(root(), changed, "{kind}");
        // Another of the same kind is somebody's too.
        sys::delete_root_qdisc(DEVICE).unwrap();
        sys::set_root_qdisc(DEVICE, kind).unwrap();
        assert_eq!(
            bench.journal_dir().undo_changes(false).unwrap().left.len(),
            1,
            "{kind}"
        );
        assert_eq!(root().kind, kind);
        // As we left it, it is ours; and so it is if we died before its parameters were written
        // down.
        sys::delete_root_qdisc(DEVICE).unwrap();
        sys::restore_root_qdisc(DEVICE, kind, made.handle, &made.options).unwrap();
        assert_eq!(
            bench.journal_dir().undo_changes(false).unwrap().left,
            [],
            "{kind}"
        );
        apply(&bench.journal_dir(), &[qdisc(kind)]).unwrap();
        let text = fs::read_to_string(bench.journal()).unwrap();
        let without = text
            .lines()
            .filter(|line| !line.contains("made"))
            .map(|line| line.to_owned() + "\n");
        fs::write(bench.journal(), without.collect::<String>()).unwrap();
        assert_eq!(
            bench.journal_dir().undo_changes(false).unwrap().left,
            [],
            "{kind}"
        );
        assert_as_before(&before, kind);
    }
}

#[test]
fn what_the_kernel_put_there_by_itself_is_nobody_s_choice() {
    require!(Root);
    let bench = Bench::new();
    let before = everything();
    apply(&bench.journal_dir(), &[qdisc("pfifo")]).unwrap();
    // As if another had been the kernel's default at that time, and this one went in between.
    let text = fs::read_to_string(bench.journal()).unwrap();
    assert!(text.contains("default noqueue"), "{text}");
    fs::write(
        bench.journal(),
        text.replace("default noqueue", "default pfifo_fast"),
    )
    .unwrap();
    sys::delete_root_qdisc(DEVICE).unwrap();
    assert_eq!(
        bench.journal_dir().undo_changes(false).unwrap(),
        HostUndone::default()
    );
    assert_as_before(&before, "after the undo");
}

#[test]
fn a_device_that_is_down_gets_its_queueing_discipline_back_too() {
    require!(Root);
    let bench = Bench::new();
    let before = everything();
    let down = Change::Qdisc {
        device: "lo".to_owned(),
        kind: "pfifo".to_owned(),
    };
    apply(&bench.journal_dir(), std::slice::from_ref(&down)).unwrap();
    assert_ne!(everything(), before);
    assert_eq!(bench.journal_dir().undo_changes(false).unwrap().left, []);
    assert_as_before(&before, "of a device that is down");
    apply(&bench.journal_dir(), &[down]).unwrap();
    sys::loopback_up().unwrap();
    assert_eq!(
        bench.journal_dir().undo_changes(false).unwrap().left,
        [],
        "a device that came up since"
    );
    assert!(
        sys::root_qdisc("lo")
            .unwrap()
            .is_none_or(|root| root.is_default)
    );
}

#[test]
fn a_folder_that_others_may_write_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let error = JournalDir::open(folder.path(), system()).unwrap_err();
    assert!(matches!(error, JournalError::Unfit(_)), "{error}");
}

#[test]
fn a_setting_that_vanished_with_its_device_is_reported_once() {
    require!(Root);
    let bench = Bench::new();
    apply(&bench.journal_dir(), &changes()).unwrap();
    let Bench {
        folder,
        _networks: networks,
    } = bench;
    // The pair goes with either namespace, and the kernel takes its time.
    let [here, far] = networks;
    drop(far);
    assert!(fullpipe_testkit::within(
        std::time::Duration::from_secs(30),
        || sys::list_devices().unwrap().len() == 1
    ));
    let journal_dir = JournalDir::open(folder.path(), system()).unwrap();
    let undone = journal_dir.undo_changes(false).unwrap();
    assert_eq!(undone.restored.len(), 3, "the sysctls: {undone:?}");
    assert_eq!(
        (undone.left.len(), undone.kept),
        (5, 0),
        "what was the device's: {undone:?}"
    );
    assert!(
        undone.left.iter().all(|left| left.why.contains("is gone")),
        "{undone:?}"
    );
    assert_eq!(
        journal_dir.undo_changes(false).unwrap(),
        HostUndone::default()
    );
    drop(here);
}

#[test]
fn a_journal_of_another_namespace_is_left_alone() {
    require!(Root);
    let bench = Bench::new();
    apply(&bench.journal_dir(), &changes()).unwrap();
    let folder = bench.path().to_owned();
    let elsewhere = std::thread::spawn(move || {
        let _network = NetNamespace::create().unwrap();
        JournalDir::open(&folder, system())
            .unwrap()
            .undo_changes(false)
            .unwrap()
    });
    let undone = elsewhere.join().unwrap();
    assert_eq!(
        undone,
        HostUndone {
            elsewhere: 1,
            ..HostUndone::default()
        }
    );
    assert_eq!(bench.journal_dir().undo_changes(false).unwrap().left, []);
}

#[test]
fn a_boot_has_undone_everything_already() {
    require!(Root);
    let bench = Bench::new();
    apply(&bench.journal_dir(), &changes()[..2]).unwrap();
    let now = everything();
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let text = fs::read_to_string(bench.journal()).unwrap();
    fs::write(bench.journal(), text.replace(boot.trim(), OTHER_BOOT)).unwrap();
    assert_eq!(
        bench.journal_dir().undo_changes(false).unwrap(),
        HostUndone::default()
    );
    assert_as_before(&now, "after the undo");
    assert!(!bench.has_journal(), "the namespace went with its boot");
}

#[test]
fn two_applies_do_not_interleave() {
    require!(Root);
    let bench = Bench::new();
    let before = everything();
    let pairs = [
        ("8192 20000 3000000", "8192 30000 4000000"),
        ("9216 40000 5000000", "9216 50000 6000000"),
    ];
    let network = fs::File::open("/proc/thread-self/ns/net").unwrap();
    std::thread::scope(|scope| {
        for (rmem, wmem) in pairs {
            let network =
                NetNamespace::from(std::os::fd::OwnedFd::from(network.try_clone().unwrap()));
            let folder = bench.path();
            scope.spawn(move || {
                network.enter().unwrap();
                for _ in 0..20 {
                    let changes = [
                        sysctl("net.ipv4.tcp_rmem", rmem),
                        sysctl("net.ipv4.tcp_wmem", wmem),
                    ];
                    apply(&JournalDir::open(folder, system()).unwrap(), &changes).unwrap();
                    let _lock = JournalDir::open(folder, system()).unwrap();
                    let tree = SysctlTree::of_this_host();
                    let found = ["net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"]
                        .map(|name| tree.read(name).unwrap().replace('\t', " "));
                    assert!(
                        pairs.iter().any(|(rmem, wmem)| found == [*rmem, *wmem]),
                        "of two applies: {found:?}"
                    );
                }
            });
        }
    });
    assert_eq!(bench.journal_dir().undo_changes(false).unwrap().left, []);
    assert_as_before(&before, "after forty applies");
}

#[test]
fn what_was_applied_for_a_time_waits_to_be_confirmed() {
    require!(Root);
    let bench = Bench::new();
    let before = everything();
    let options = ApplyOptions {
        temporary: Some(Span::from_secs(60)),
        ..ApplyOptions::default()
    };
    let for_a_time = || {
        let mut id = String::new();
        let mut begun = |given: &str| {
            given.clone_into(&mut id);
            Ok(())
        };
        bench
            .journal_dir()
            .apply_changes(&changes(), options, &mut begun, &mut |_| {})
            .unwrap();
        id
    };
    let id = for_a_time();
    assert!(bench.journal_dir().is_pending(&id).unwrap());
    assert!(matches!(
        apply(&bench.journal_dir(), &[Change::WindowScaling(true)]),
        Err(JournalError::Pending)
    ));
    assert_eq!(
        bench
            .journal_dir()
            .undo_unless_confirmed("another")
            .unwrap(),
        HostUndone::default()
    );
    assert_eq!(
        bench.journal_dir().undo_unless_confirmed(&id).unwrap().left,
        []
    );
    assert_as_before(&before, "when the time is over");
    let id = for_a_time();
    bench.journal_dir().confirm_pending().unwrap();
    assert!(matches!(
        bench.journal_dir().confirm_pending(),
        Err(JournalError::NothingPending)
    ));
    assert_eq!(
        bench.journal_dir().undo_unless_confirmed(&id).unwrap(),
        HostUndone::default()
    );
    assert_eq!(bench.journal_dir().undo_changes(false).unwrap().left, []);
    assert_as_before(&before, "after the undo of what was confirmed");
    // Who cannot start what would take them back in time changes nothing.
    let failing = bench.journal_dir().apply_changes(
        &changes(),
        options,
        &mut |_| Err(std::io::ErrorKind::NotFound.into()),
        &mut |_| {},
    );
    assert!(matches!(failing, Err(JournalError::Watchdog(_))));
    assert_as_before(&before, "after none was started");
}
