mod steps;

use fullpipe_record::{Change, Path};
use fullpipe_units::Ratio;

use self::steps::read_steps;
use crate::bound::{BOUND_KEYS, ExpectedRatio, RatioBound};
use crate::host::HOST_KEYS;
use crate::key::require_valid;
use crate::path::{
    DIRECTION_KEYS, DirectionSpec, PATH_KEYS, PathSpec, ReadFile, Stretches, no_files,
};
use crate::section::{FileSection, FileSource};
use crate::step::ScenarioStep;
use crate::{FileLocation, ScenarioError};

/// A checked scenario: everything needed to run it and to judge the result.
#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    /// Name of the scenario, for the command line.
    pub name: String,
    /// One line on what it shows.
    pub title: String,
    /// The source of its figures.
    pub source: Option<String>,
    /// The whole path, every queue in bytes; a queue of `None` has no limit.
    pub path: Path,
    /// The stretches of that path, if it has hosts in between that can relay.
    pub stretches: Option<Stretches>,
    /// Decides which packets the path loses.
    pub seed: u64,
    /// Settings of the host that sends that differ from the machine's.
    pub sender: Vec<Change>,
    /// Settings of the host that receives that differ from the machine's.
    pub receiver: Vec<Change>,
    /// Settings of the hosts between the stretches that differ from the machine's.
    pub relay: Vec<Change>,
    /// The measurements, in order; at least one.
    pub steps: Vec<ScenarioStep>,
    /// Bounds between steps.
    pub bounds: Vec<RatioBound>,
    /// Congestion controls that the kernel must have.
    pub controls: Vec<RequiredControl>,
}

/// A congestion control that a load runs with; the file does not show whether a kernel has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequiredControl {
    /// Name of the congestion control.
    pub name: String,
    /// The place in the file: the load, if it leaves the choice.
    pub place: FileLocation,
}

impl Scenario {
    /// The path of a step: its own, or that of all.
    pub fn path_of<'s>(&'s self, step: &'s ScenarioStep) -> &'s Path {
        step.path.as_ref().unwrap_or(&self.path)
    }

    /// The stretches of that path.
    pub fn stretches_of<'s>(&'s self, step: &'s ScenarioStep) -> Option<&'s Stretches> {
        step.stretches.as_ref().or(self.stretches.as_ref())
    }

    /// Returns the settings of a step that differ from the machine's: at the host that sends, and
    /// at the one that receives.
    pub fn hosts_of(&self, step: &ScenarioStep) -> [Vec<Change>; 2] {
        [
            [&self.sender[..], &step.sender].concat(),
            [&self.receiver[..], &step.receiver].concat(),
        ]
    }

    /// Reads the text of a scenario file; `file_name` is for errors only.
    ///
    /// # Errors
    ///
    /// The first thing that is no TOML, no key of a scenario, or cannot be, with its place.
    pub fn parse(file_name: &str, text: &str) -> Result<Self, ScenarioError> {
        Self::parse_with(file_name, text, &no_files)
    }

    /// As [`Scenario::parse`], with the traces that it names as `files` reads them.
    ///
    /// # Errors
    ///
    /// As [`Scenario::parse`]; a trace that cannot be read or used, at the place that names it.
    pub fn parse_with(
        file_name: &str,
        text: &str,
        files: ReadFile<'_>,
    ) -> Result<Self, ScenarioError> {
        let source = FileSource {
            file: file_name,
            text,
        };
        let tables = source.parse_tables()?;
        let root = FileSection::from_root(source, &tables);
        root.has_only(ROOT_KEYS)?;
        lacks_no_more_than_one(&root)?;
        let (name, title) = (read_words(&root, "name")?, read_words(&root, "title")?);
        let section = root
            .child_section("path")?
            .ok_or_else(|| root.missing_key("path"))?;
        let mut spec = PathSpec::new_unset();
        let path = read_path(&section, &["seed"], &mut spec, files)?;
        let outer = read_outer(&root, files)?;
        let (path, stretches) = join_stretches(path, outer.as_ref());
        let seed = section.read_value("seed", read_seed)?.unwrap_or(1);
        let (sender, receiver) = (read_host(&root, "sender")?, read_host(&root, "receiver")?);
        let relay = read_host(&root, "relay")?;
        if stretches.is_none() && !relay.is_empty() {
            return Err(root.error_at("relay", NO_RELAYS));
        }
        let shared = SharedPath {
            spec: &spec,
            outer: outer.as_ref(),
            files,
        };
        let steps = read_steps(&root, &shared)?;
        let controls = read_controls(&root, &steps)?;
        let bounds = root.child_sections("bound")?.into_iter();
        let bounds = bounds.map(|bound| read_bound(&bound, &steps));
        let bounds = bounds.collect::<Result<_, _>>()?;
        Ok(Self {
            name,
            title,
            source: root.read_value("source", read_sentence)?,
            path,
            stretches,
            seed,
            sender,
            receiver,
            relay,
            steps,
            bounds,
            controls,
        })
    }
}

/// Fails with the names of all keys that a scenario must have, if more than one of them is missing:
/// whoever writes a scenario from nothing learns of them at once.
fn lacks_no_more_than_one(root: &FileSection<'_>) -> Result<(), ScenarioError> {
    let lacks_rtt = root.is_table("path")
        && root.child_section("path")?.is_some_and(|path| {
            let mut keys = ["rtt", "forward", "reverse"].into_iter();
            keys.all(|key| !path.has_key(key))
        });
    let missing: Vec<&str> = [
        ("name", !root.has_key("name")),
        ("title", !root.has_key("title")),
        ("[path] with rtt", !root.has_key("path")),
        ("rtt of [path]", lacks_rtt),
        ("[[step]] with name", !root.has_key("step")),
    ]
    .into_iter()
    .filter_map(|(key, is_missing)| is_missing.then_some(key))
    .collect();
    if missing.len() < 2 {
        Ok(())
    } else {
        Err(root.error_at("missing", missing.join(", ")))
    }
}

const ROOT_KEYS: &[&str] = &[
    "name", "title", "source", "path", "near", "far", "sender", "receiver", "relay", "step",
    "bound",
];

/// The error of a scenario of two hosts that says what relays are to do.
const NO_RELAYS: &str = "no hosts can relay; write [near] and [far]";

/// The path that `section` makes of `spec`; `others` are keys that the caller reads. A rate takes
/// the place of a trace that was there before.
fn read_path(
    section: &FileSection<'_>,
    others: &[&str],
    spec: &mut PathSpec,
    files: ReadFile<'_>,
) -> Result<Path, ScenarioError> {
    if section.has_key("rate") {
        spec.forget_traces();
    }
    let others = [others, &["forward", "reverse"]].concat();
    section.set_all(&PATH_KEYS, &others, spec)?;
    read_direction(section, "forward", &mut spec.forward)?;
    read_direction(section, "reverse", &mut spec.reverse)?;
    if spec.forward.delay.is_none() || spec.reverse.delay.is_none() {
        return Err(section.error_at("rtt", "it is missing, and so is the delay of a direction"));
    }
    spec.resolve_path(files).or_else(|bad| {
        let own = section.child_section(if bad.reverse { "reverse" } else { "forward" })?;
        let place = own
            .as_ref()
            .filter(|own| own.has_key(bad.key))
            .unwrap_or(section);
        Err(place.error_at(bad.key, bad.why))
    })
}

/// Reads the section `[key]` of a path into one direction of it.
fn read_direction(
    section: &FileSection<'_>,
    key: &str,
    direction: &mut DirectionSpec,
) -> Result<(), ScenarioError> {
    let Some(own) = section.child_section(key)? else {
        return Ok(());
    };
    if own.has_key("rate") {
        direction.forget_trace();
    }
    own.set_all(&DIRECTION_KEYS, &[], direction)?;
    if section.has_key("rtt") && own.has_key("delay") {
        return Err(own.error_at(
            "delay",
            "write the rtt of [path] or the delay of both directions, not both",
        ));
    }
    Ok(())
}

/// The path of all steps, and what surrounds it.
struct SharedPath<'r> {
    spec: &'r PathSpec,
    /// The near stretch and the far one.
    outer: Option<&'r [Path; 2]>,
    files: ReadFile<'r>,
}

/// Reads the stretches `[near]` and `[far]`.
fn read_outer(
    root: &FileSection<'_>,
    files: ReadFile<'_>,
) -> Result<Option<[Path; 2]>, ScenarioError> {
    let near = read_stretch(root, "near", files)?;
    let (there, other) = match (near, read_stretch(root, "far", files)?) {
        (Some(near), Some(far)) => return Ok(Some([near, far])),
        (None, None) => return Ok(None),
        (Some(_), None) => ("near", "far"),
        (None, Some(_)) => ("far", "near"),
    };
    let why = format!("write [{other}], too: each end has a stretch to its relay");
    Err(root.error_at(there, why))
}

fn read_stretch(
    root: &FileSection<'_>,
    key: &str,
    files: ReadFile<'_>,
) -> Result<Option<Path>, ScenarioError> {
    let section = root.child_section(key)?;
    section
        .map(|section| read_path(&section, &[], &mut PathSpec::new_unset(), files))
        .transpose()
}

/// Returns the whole path of which `path` is the stretch in the middle, if it is, and all
/// stretches.
fn join_stretches(path: Path, outer: Option<&[Path; 2]>) -> (Path, Option<Stretches>) {
    match outer {
        None => (path, None),
        Some([near, far]) => (
            path.join_between(near, far),
            Some([near.clone(), path, far.clone()]),
        ),
    }
}

fn read_seed(text: &str) -> Result<u64, String> {
    text.parse()
        .map_err(|_| format!("\"{text}\" is not a seed: it must be a whole number"))
}

pub(crate) fn read_words(section: &FileSection<'_>, key: &str) -> Result<String, ScenarioError> {
    section
        .read_value(key, read_sentence)?
        .ok_or_else(|| section.missing_key(key))
}

/// Reads a name or a sentence, which is printed as it is.
fn read_sentence(text: &str) -> Result<String, String> {
    let words = require_valid(
        text.to_owned(),
        !text.trim().is_empty(),
        text,
        "a name",
        "it must not be empty",
    )?;
    let plain = !text.chars().any(char::is_control);
    require_valid(
        words,
        plain,
        text,
        "a name",
        "it must be one line without control characters",
    )
}

fn read_host(root: &FileSection<'_>, key: &str) -> Result<Vec<Change>, ScenarioError> {
    let mut changes = Vec::new();
    if let Some(section) = root.child_section(key)? {
        section.set_all(HOST_KEYS, &[], &mut changes)?;
    }
    Ok(changes)
}

/// Returns the congestion controls of `steps` and of their cross traffic, in the order of the file.
fn read_controls(
    root: &FileSection<'_>,
    steps: &[ScenarioStep],
) -> Result<Vec<RequiredControl>, ScenarioError> {
    let mut asked = Vec::new();
    for (section, step) in root.child_sections("step")?.iter().zip(steps) {
        let cross_traffic = section.child_sections("cross_traffic")?;
        let requests = step.cross_traffic.iter().map(|load| &load.request);
        let others = cross_traffic.iter().zip(requests);
        let loads = std::iter::once((section, &step.request)).chain(others);
        asked.extend(loads.filter_map(|(section, request)| {
            Some((section.offset_of("congestion"), request.congestion.clone()?))
        }));
    }
    asked.sort_by_key(|(offset, _)| *offset);
    let places = root.offset_locations(asked.iter().map(|(offset, _)| *offset));
    Ok(places
        .zip(&asked)
        .map(|(place, (_, name))| RequiredControl {
            name: name.clone(),
            place,
        })
        .collect())
}

fn read_bound(
    section: &FileSection<'_>,
    steps: &[ScenarioStep],
) -> Result<RatioBound, ScenarioError> {
    let mut bound = None;
    section.set_all(BOUND_KEYS, &["ratio", "expect"], &mut bound)?;
    let names = section
        .read_values("ratio")?
        .ok_or_else(|| section.missing_key("ratio"))?;
    let [numerator, denominator] = names.as_slice() else {
        return Err(section.error_at("ratio", "write the names of two steps"));
    };
    if numerator == denominator {
        return Err(section.error_at("ratio", "the two steps must differ"));
    }
    let [numerator, denominator] = [numerator, denominator].map(|name| {
        let found = steps.iter().position(|step| step.name == *name);
        found.ok_or_else(|| section.error_at("ratio", format!("there is no step \"{name}\"")))
    });
    Ok(RatioBound {
        numerator: numerator?,
        denominator: denominator?,
        expect: section
            .read_value("expect", ExpectedRatio::read)?
            .unwrap_or(ExpectedRatio::Ratio(Ratio::ONE)),
        bound: bound
            .ok_or_else(|| section.error_at("ratio", "write within, at_least or at_most"))?,
    })
}
