use std::collections::HashSet;

use fullpipe_record::{Change, Path};

use crate::bound::{BOUND_KEYS, Bound, RatioBound, positive};
use crate::host::HOST_KEYS;
use crate::key::require;
use crate::path::{DIRECTION_KEYS, PATH_KEYS, PathSpec, ReadFile, no_files};
use crate::section::{Section, Source};
use crate::step::{STEP_KEYS, Step};
use crate::{ScenarioError, StepBounds};

/// A checked scenario: everything needed to run it and to judge the result.
#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    /// Its name, for the command line.
    pub name: String,
    /// One line on what it shows.
    pub title: String,
    /// Where its figures come from.
    pub source: Option<String>,
    /// The path, every queue in bytes; a queue of `None` has no limit.
    pub path: Path,
    /// Decides which packets the path loses.
    pub seed: u64,
    /// What differs from the machine's settings at the host that sends.
    pub sender: Vec<Change>,
    /// What differs from the machine's settings at the host that receives.
    pub receiver: Vec<Change>,
    /// The measurements, in order; at least one.
    pub steps: Vec<Step>,
    /// Bounds between steps.
    pub bounds: Vec<RatioBound>,
}

impl Scenario {
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
    pub fn parse_with(file_name: &str, text: &str, files: ReadFile<'_>) -> Result<Self, ScenarioError> {
        let source = Source { file: file_name, text };
        let tables = source.tables()?;
        let root = Section::root(source, &tables);
        root.set_all(&[], ROOT_KEYS, &mut ())?;
        let (name, title) = (read_words(&root, "name")?, read_words(&root, "title")?);
        let (path, seed) = read_path(&root, files)?;
        let (sender, receiver) = (read_host(&root, "sender")?, read_host(&root, "receiver")?);
        let steps = read_steps(&root)?;
        let bounds = root.sections("bound")?.iter().map(|bound| read_bound(bound, &steps)).collect::<Result<_, _>>()?;
        Ok(Self { name, title, source: root.value("source", words)?, path, seed, sender, receiver, steps, bounds })
    }
}

const ROOT_KEYS: &[&str] = &["name", "title", "source", "path", "sender", "receiver", "step", "bound"];

/// The path and the seed of its losses.
fn read_path(root: &Section<'_>, files: ReadFile<'_>) -> Result<(Path, u64), ScenarioError> {
    let section = root.section("path")?.ok_or_else(|| root.missing("path"))?;
    let mut spec = PathSpec::unknown();
    section.set_all(PATH_KEYS, &["seed", "forward", "reverse"], &mut spec)?;
    for (key, direction) in [("forward", &mut spec.forward), ("reverse", &mut spec.reverse)] {
        let Some(own) = section.section(key)? else { continue };
        own.set_all(DIRECTION_KEYS, &[], direction)?;
        if section.has("rtt") && own.has("delay") {
            return Err(own.error_at("delay", "write the rtt of [path] or the delay of both directions, not both"));
        }
    }
    if spec.forward.delay.is_none() || spec.reverse.delay.is_none() {
        return Err(section.error_at("rtt", "it is missing, and so is the delay of a direction"));
    }
    let path = spec.resolve(files).or_else(|bad| {
        let own = section.section(if bad.reverse { "reverse" } else { "forward" })?;
        let place = own.as_ref().filter(|own| own.has(bad.key)).unwrap_or(&section);
        Err(place.error_at(bad.key, bad.why))
    })?;
    Ok((path, section.value("seed", read_seed)?.unwrap_or(1)))
}

fn read_seed(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("\"{text}\" is not a seed: it must be a whole number"))
}

pub(crate) fn read_words(section: &Section<'_>, key: &str) -> Result<String, ScenarioError> {
    section.value(key, words)?.ok_or_else(|| section.missing(key))
}

fn words(text: &str) -> Result<String, String> {
    require(text.to_owned(), !text.trim().is_empty(), text, "a name", "it must not be empty")
}

fn read_host(root: &Section<'_>, key: &str) -> Result<Vec<Change>, ScenarioError> {
    let mut changes = Vec::new();
    if let Some(section) = root.section(key)? {
        section.set_all(HOST_KEYS, &[], &mut changes)?;
    }
    Ok(changes)
}

fn read_steps(root: &Section<'_>) -> Result<Vec<Step>, ScenarioError> {
    let sections = root.sections("step")?;
    let mut names = HashSet::new();
    let mut steps = Vec::with_capacity(sections.len());
    for section in sections {
        let step = read_step(&section)?;
        if !names.insert(step.name.clone()) {
            return Err(section.error_at("name", format!("there is a step \"{}\" already", step.name)));
        }
        steps.push(step);
    }
    if steps.is_empty() {
        return Err(root.missing("step"));
    }
    Ok(steps)
}

fn read_step(section: &Section<'_>) -> Result<Step, ScenarioError> {
    let mut step = Step::named(read_words(section, "name")?);
    section.set_all(STEP_KEYS, &["name", "refined", "plain"], &mut step)?;
    step.bounds =
        StepBounds { refined: read_step_bound(section, "refined")?, plain: read_step_bound(section, "plain")? };
    Ok(step)
}

fn read_step_bound(step: &Section<'_>, key: &str) -> Result<Option<Bound>, ScenarioError> {
    let Some(section) = step.section(key)? else { return Ok(None) };
    let mut bound = None;
    section.set_all(BOUND_KEYS, &[], &mut bound)?;
    if bound.is_none() {
        return Err(step.error_at(key, "write within, at_least or at_most"));
    }
    Ok(bound)
}

fn read_bound(section: &Section<'_>, steps: &[Step]) -> Result<RatioBound, ScenarioError> {
    section.set_all(&[], &["ratio", "expect", "within"], &mut ())?;
    let names = section.values("ratio")?.ok_or_else(|| section.missing("ratio"))?;
    let [numerator, denominator] = names.as_slice() else {
        return Err(section.error_at("ratio", "write the names of two steps"));
    };
    if numerator == denominator {
        return Err(section.error_at("ratio", "the two steps must differ"));
    }
    let index = |name: &str| {
        let found = steps.iter().position(|step| step.name == name);
        found.ok_or_else(|| section.error_at("ratio", format!("there is no step \"{name}\"")))
    };
    Ok(RatioBound {
        numerator: index(numerator)?,
        denominator: index(denominator)?,
        expect: section.value("expect", positive)?.ok_or_else(|| section.missing("expect"))?,
        within: section.value("within", positive)?.ok_or_else(|| section.missing("within"))?,
    })
}
