//! Scenarios by their names or files.

use std::borrow::Cow;

use fullpipe_scenario::{Scenario, builtin_comparisons, builtin_scenarios};

use super::prelude::*;
use crate::input::read_text;
use crate::sibling::read_sibling;

/// Returns the built-in scenario `name`, or the scenario in the file `name` if there is no such
/// built-in scenario.
///
/// # Errors
/// Fails if the file, or a file to which the scenario refers, cannot be read, or if the scenario is
/// not valid.
pub(crate) fn load_scenario(name: &str) -> Result<Scenario> {
    if builtin_comparisons()
        .iter()
        .any(|(known, _)| *known == name)
    {
        return Err(usage_failure(format!(
            "{name} compares programs: `fullpipe lab compare {name}` runs it"
        )));
    }
    load_known(name, builtin_scenarios())
}

/// Returns the scenario `name` of those in `known`, or else of the file of this name.
pub(super) fn load_known(name: &str, known: &[(&str, &str)]) -> Result<Scenario> {
    let text = known_text("scenario", name, known)?;
    Ok(Scenario::parse_with(name, &text, &|file| {
        read_sibling(Path::new(name), file)
    })?)
}

/// Returns the text of what is built in under this name, or else of the file of this name; `kind`
/// is `grid` or `scenario`.
pub(super) fn known_text<'k>(
    kind: &str,
    name: &str,
    known: &[(&str, &'k str)],
) -> Result<Cow<'k, str>> {
    if let Some((_, text)) = known.iter().find(|(known, _)| *known == name) {
        return Ok(Cow::Borrowed(text));
    }
    read_text(Path::new(name)).map(Cow::Owned).map_err(|cause| {
        let known: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
        let known = known.join(", ");
        usage_failure(format!(
            "cannot read the {kind} {name}: {cause}; the built-in {kind}s are {known}"
        ))
    })
}
