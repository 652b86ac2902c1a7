//! Holds the workspace against the plan: which crate stands on which layer, and what it may use.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

#[test]
fn every_member_is_in_the_plan_and_every_line_of_the_plan_is_a_member() {
    let built: BTreeSet<String> = packages()
        .into_iter()
        .map(|package| package.member)
        .collect();
    let planned: BTreeSet<String> = PLAN.iter().map(|member| member.name.to_owned()).collect();
    assert_eq!(
        built, planned,
        "the workspace's packages, and the table in this test"
    );
}

#[test]
fn a_member_uses_only_members_on_layers_below_its_own() {
    for package in packages() {
        let layer = plan(&package.member).layer;
        for used in package.members() {
            assert!(
                plan(used).layer < layer,
                "{} is on layer {layer} and may not use {used}",
                package.member
            );
        }
    }
}

#[test]
fn a_pure_member_reaches_neither_sockets_nor_the_kernel() {
    for package in packages()
        .iter()
        .filter(|package| plan(&package.member).pure)
    {
        for library in IMPURE {
            assert!(
                !package.uses.contains(library),
                "{} is pure and may not use {library}",
                package.member
            );
        }
        for used in package.members() {
            assert!(
                plan(used).pure,
                "{} is pure, and {used} is not",
                package.member
            );
        }
    }
}

#[test]
fn a_pure_folder_reaches_neither_clock_nor_files_nor_sockets() {
    for folder in PURE_FOLDERS {
        let sources = sources(&crates().join(folder));
        assert!(!sources.is_empty(), "{folder} has no sources");
        for source in sources {
            let text = read(&source);
            for name in IMPURE.iter().chain(&IMPURE_NAMES) {
                assert!(
                    !text.contains(&format!("{name}::")),
                    "{folder} is pure, and {} uses {name}",
                    source.display()
                );
            }
        }
    }
}

#[test]
fn what_measures_neither_judges_nor_prints() {
    for package in packages()
        .iter()
        .filter(|package| MEASURES.contains(&package.member.as_str()))
    {
        for used in package.members() {
            assert!(
                !["diagnose", "report"].contains(&used),
                "{} measures and may not use {used}",
                package.member
            );
        }
    }
}

#[test]
fn only_sys_has_lints_of_its_own() {
    for package in packages()
        .iter()
        .filter(|package| package.member != MAY_BE_UNSAFE)
    {
        let manifest = read(&package.manifest);
        let lints = manifest
            .split("\n[")
            .find_map(|section| section.strip_prefix("lints]"));
        let whole = lints.is_some_and(|lints| lints.trim() == "workspace = true");
        assert!(
            whole,
            "{} must have the workspace's lints, and with them `unsafe_code = \"forbid\"`",
            package.member
        );
    }
    let forbids = read(&crates().join("../Cargo.toml")).contains("\nunsafe_code = \"forbid\"\n");
    assert!(forbids, "the workspace's lints must forbid unsafe code");
}

#[test]
fn the_list_of_members_states_their_layers() {
    let list = read(&crates().join("README.md"));
    for member in PLAN {
        let layer = if member.layer == ATTIC {
            "–".to_owned()
        } else {
            member.layer.to_string()
        };
        let line = format!("\n| {layer} | `{}` |", member.name);
        assert!(
            list.contains(&line),
            "crates/README.md has no line that begins with {}",
            line.trim()
        );
    }
}

/// The picture once showed crates that had long been joined to others.
#[test]
fn the_picture_of_the_members_has_each_in_its_layer() {
    let picture = read(&crates().join("../docs/pictures/crates.svg"));
    let drawn = picture.split("From the top: ").nth(1).unwrap();
    let drawn: Vec<(String, &str)> = drawn[..drawn.find('.').unwrap()]
        .split("; ")
        .flat_map(|row| {
            let (layer, names) = row.split_once(": ").unwrap();
            names.split(", ").map(|name| (layer.to_owned(), name))
        })
        .collect();
    let members = PLAN.iter().filter(|member| member.layer != ATTIC);
    let planned: Vec<_> = members
        .map(|member| (format!("layer {}", member.layer), member.name))
        .collect();
    for member in &planned {
        assert!(drawn.contains(member), "{member:?} is not drawn");
        let name = format!(">{}</text>", member.1);
        assert!(picture.contains(&name), "{member:?} has no box");
    }
    assert_eq!(drawn.len(), planned.len(), "{drawn:?}");
}

/// A package of the workspace, with what it uses outside its tests.
struct Package {
    member: String,
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
            member: member(&text(&package["name"])).to_owned(),
            manifest: text(&package["manifest_path"]).into(),
            uses: uses.map(|dependency| text(&dependency["name"])).collect(),
        }
    }

    fn members(&self) -> impl Iterator<Item = &str> {
        self.uses
            .iter()
            .filter(|name| name.starts_with("fullpipe"))
            .map(|name| member(name))
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

/// Returns the Rust sources below `folder`.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries =
        std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    entries
        .map(|entry| entry.expect("an entry can be read").path())
        .flat_map(|path| {
            if path.is_dir() {
                sources(&path)
            } else {
                vec![path]
            }
        })
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .collect()
}

fn member(package: &str) -> &str {
    package.strip_prefix("fullpipe-").unwrap_or(package)
}

fn plan(member: &str) -> &'static Member {
    PLAN.iter()
        .find(|planned| planned.name == member)
        .unwrap_or_else(|| panic!("{member} is not in the plan"))
}

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(file: &Path) -> String {
    std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// A line of the plan.
struct Member {
    layer: u8,
    name: &'static str,
    /// Without clock, files and sockets.
    pure: bool,
}

impl Member {
    const fn new(layer: u8, name: &'static str) -> Self {
        Self {
            layer,
            name,
            pure: false,
        }
    }

    const fn pure(layer: u8, name: &'static str) -> Self {
        Self {
            layer,
            name,
            pure: true,
        }
    }
}

/// The crates that exist; `crates/README.md` describes each.
const PLAN: &[Member] = &[
    Member::pure(0, "units"),
    Member::pure(1, "record"),
    Member::pure(1, "wire"),
    Member::pure(2, "model"),
    Member::pure(2, "link"),
    Member::pure(2, "iperf"),
    Member::pure(2, "http"),
    Member::pure(2, "flow"),
    Member::pure(2, "stats"),
    Member::new(2, "sys"),
    Member::pure(3, "diagnose"),
    Member::pure(3, "report"),
    Member::pure(3, "scenario"),
    Member::pure(3, "sim"),
    Member::new(3, "store"),
    Member::new(3, "host"),
    Member::new(4, "control"),
    Member::new(4, "observe"),
    Member::new(4, "lab"),
    Member::new(4, "trace"),
    Member::new(5, "probe"),
    Member::new(5, "relay"),
    Member::new(5, "copy"),
    Member::new(6, "experiment"),
    Member::new(6, "fleet"),
    Member::new(7, "web"),
    Member::new(8, "fullpipe"),
    Member::new(ATTIC, "testkit"),
    Member::new(ATTIC, "bench"),
];

/// Above every layer: no crate uses it, though the tests of any may.
const ATTIC: u8 = u8::MAX;

/// The one crate that may have `unsafe`.
const MAY_BE_UNSAFE: &str = "sys";

/// The crates that produce records: a verdict must follow from a record alone, and a report too.
const MEASURES: [&str; 4] = ["control", "observe", "probe", "trace"];

/// Libraries that a pure crate may not use.
const IMPURE: [&str; 5] = ["rustix", "libc", "socket2", "tokio", "tracing"];

/// Folders of crates that are not pure, without clock, files and sockets all the same.
const PURE_FOLDERS: [&str; 4] = [
    "control/src/compression",
    "copy/src/protocol",
    "copy/src/rate",
    "fleet/src/plan",
];

/// Names that stand for the clock, files and sockets in a source.
const IMPURE_NAMES: [&str; 8] = [
    "Instant",
    "SystemTime",
    "fs",
    "net",
    "process",
    "thread",
    "fullpipe_host",
    "fullpipe_sys",
];
