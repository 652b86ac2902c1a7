//! Holds the workspace against the plan: which crate stands on which layer, and what it may use.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

#[test]
fn every_room_is_in_the_plan_and_every_line_of_the_plan_is_a_room() {
    let built: BTreeSet<String> = packages().into_iter().map(|package| package.room).collect();
    let planned: BTreeSet<String> = PLAN.iter().map(|room| room.name.to_owned()).collect();
    assert_eq!(
        built, planned,
        "the workspace's packages, and the table in this test"
    );
}

#[test]
fn a_room_uses_only_rooms_on_floors_below_its_own() {
    for package in packages() {
        let floor = plan(&package.room).floor;
        for used in package.rooms() {
            assert!(
                plan(used).floor < floor,
                "{} is on floor {floor} and may not use {used}",
                package.room
            );
        }
    }
}

#[test]
fn a_pure_room_reaches_neither_sockets_nor_the_kernel() {
    for package in packages().iter().filter(|package| plan(&package.room).pure) {
        for library in IMPURE {
            assert!(
                !package.uses.contains(library),
                "{} is pure and may not use {library}",
                package.room
            );
        }
        for used in package.rooms() {
            assert!(
                plan(used).pure,
                "{} is pure, and {used} is not",
                package.room
            );
        }
    }
}

#[test]
fn what_measures_neither_judges_nor_prints() {
    for package in packages()
        .iter()
        .filter(|package| MEASURES.contains(&package.room.as_str()))
    {
        for used in package.rooms() {
            assert!(
                !["diagnose", "report"].contains(&used),
                "{} measures and may not use {used}",
                package.room
            );
        }
    }
}

#[test]
fn only_sys_has_lints_of_its_own() {
    for package in packages()
        .iter()
        .filter(|package| package.room != MAY_BE_UNSAFE)
    {
        let manifest = read(&package.manifest);
        let lints = manifest
            .split("\n[")
            .find_map(|section| section.strip_prefix("lints]"));
        let whole = lints.is_some_and(|lints| lints.trim() == "workspace = true");
        assert!(
            whole,
            "{} must have the workspace's lints, and with them `unsafe_code = \"forbid\"`",
            package.room
        );
    }
    let forbids = read(&crates().join("../Cargo.toml")).contains("\nunsafe_code = \"forbid\"\n");
    assert!(forbids, "the workspace's lints must forbid unsafe code");
}

#[test]
fn the_list_of_rooms_states_their_floors() {
    let list = read(&crates().join("README.md"));
    for room in PLAN {
        let floor = if room.floor == ATTIC {
            "–".to_owned()
        } else {
            room.floor.to_string()
        };
        let line = format!("\n| {floor} | `{}` |", room.name);
        assert!(
            list.contains(&line),
            "crates/README.md has no line that begins with {}",
            line.trim()
        );
    }
}

/// A package of the workspace, with what it uses outside its tests.
struct Package {
    room: String,
    manifest: PathBuf,
    uses: BTreeSet<String>,
}

impl Package {
    fn read(package: &Value) -> Self {
        let text = |value: &Value| {
            value
                .as_str()
                .expect("cargo metadata gives text here")
                .to_owned()
        };
        let dependencies = package["dependencies"]
            .as_array()
            .expect("a package has a list of dependencies");
        let uses = dependencies
            .iter()
            .filter(|dependency| dependency["kind"] != "dev");
        Self {
            room: room(&text(&package["name"])).to_owned(),
            manifest: text(&package["manifest_path"]).into(),
            uses: uses.map(|dependency| text(&dependency["name"])).collect(),
        }
    }

    fn rooms(&self) -> impl Iterator<Item = &str> {
        self.uses
            .iter()
            .filter(|name| name.starts_with("fullpipe"))
            .map(|name| room(name))
    }
}

/// The packages of the workspace, as cargo sees them.
fn packages() -> Vec<Package> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .current_dir(crates());
    let output = cargo.output().expect("cargo can be started");
    assert!(
        output.status.success(),
        "cargo metadata: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let metadata: Value =
        serde_json::from_slice(&output.stdout).expect("cargo metadata prints JSON");
    metadata["packages"]
        .as_array()
        .expect("a workspace has packages")
        .iter()
        .map(Package::read)
        .collect()
}

fn room(package: &str) -> &str {
    package.strip_prefix("fullpipe-").unwrap_or(package)
}

fn plan(room: &str) -> &'static Room {
    PLAN.iter()
        .find(|planned| planned.name == room)
        .unwrap_or_else(|| panic!("{room} is not in the plan"))
}

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(file: &Path) -> String {
    std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// A line of the plan.
struct Room {
    floor: u8,
    name: &'static str,
    /// Without clock, files and sockets.
    pure: bool,
}

impl Room {
    const fn new(floor: u8, name: &'static str) -> Self {
        Self {
            floor,
            name,
            pure: false,
        }
    }

    const fn pure(floor: u8, name: &'static str) -> Self {
        Self {
            floor,
            name,
            pure: true,
        }
    }
}

/// The crates that exist; `crates/README.md` describes each.
const PLAN: &[Room] = &[
    Room::pure(0, "units"),
    Room::pure(1, "compression"),
    Room::pure(1, "record"),
    Room::pure(1, "wire"),
    Room::pure(2, "model"),
    Room::pure(2, "link"),
    Room::pure(2, "iperf"),
    Room::pure(2, "flow"),
    Room::pure(2, "stats"),
    Room::new(2, "sys"),
    Room::pure(2, "transfer"),
    Room::pure(2, "tcp"),
    Room::pure(3, "calc"),
    Room::pure(3, "campaign"),
    Room::pure(3, "chart"),
    Room::pure(3, "diagnose"),
    Room::pure(3, "scenario"),
    Room::pure(3, "sim"),
    Room::new(3, "store"),
    Room::new(3, "host"),
    Room::new(3, "load"),
    Room::new(4, "control"),
    Room::new(4, "route"),
    Room::new(4, "observe"),
    Room::new(4, "lab"),
    Room::new(4, "report"),
    Room::new(4, "trace"),
    Room::new(5, "probe"),
    Room::new(5, "relay"),
    Room::new(5, "copy"),
    Room::new(6, "experiment"),
    Room::new(6, "live"),
    Room::new(7, "compare"),
    Room::new(7, "sweep"),
    Room::new(8, "fullpipe"),
    Room::new(ATTIC, "testkit"),
    Room::new(ATTIC, "bench"),
];

/// Above every layer: no crate uses it, though the tests of any may.
const ATTIC: u8 = u8::MAX;

/// The one crate that may have `unsafe`.
const MAY_BE_UNSAFE: &str = "sys";

/// The crates that produce records: a verdict must follow from a record alone, and a report too.
const MEASURES: [&str; 6] = ["load", "control", "route", "observe", "probe", "trace"];

/// Libraries that a pure crate may not use.
const IMPURE: [&str; 5] = ["rustix", "libc", "socket2", "tokio", "tracing"];
