//! Measurements in files.

use std::path::Path;

use fullpipe_experiment::NamedRuns;
use fullpipe_record::{Content, Document, Measurement};
use fullpipe_units::printable;
use serde_json::Value;

use crate::commands::document::{name_of, not_a_document, text_of};
use crate::failure::{Failure, USAGE};

/// Reads the measurements of one of the two: of a file, or of several with commas between them.
pub(super) fn read(files: &str) -> Result<NamedRuns, Failure> {
    // A name may have a comma.
    let names: Vec<&str> = if Path::new(files).exists() { vec![files] } else { files.split(',').collect() };
    let mut measurements = Vec::new();
    for name in &names {
        measurements.extend(measurements_in(name)?);
    }
    let name = match names[..] {
        [only] => only.to_owned(),
        [first, ..] => format!("{first} and {} more", names.len() - 1),
        [] => String::new(),
    };
    Ok(NamedRuns { name: printable(&name), measurements })
}

fn measurements_in(file: &str) -> Result<Vec<Measurement>, Failure> {
    let (name, text) = (name_of(file), text_of(file)?);
    let mut measurements = Vec::new();
    for value in serde_json::Deserializer::from_str(&text).into_iter::<Value>() {
        let value = value.map_err(|error| not_a_document(name, &error))?;
        let values = if let Value::Array(values) = value { values } else { vec![value] };
        for value in values {
            measurements.extend(measurement(name, value)?);
        }
    }
    if measurements.is_empty() {
        return Err(Failure::new(USAGE, format!("{name} has no measurement; measure --json prints one")));
    }
    Ok(measurements)
}

/// Returns the measurement of a document or of an event; `None` of an event of another kind.
fn measurement(name: &str, value: Value) -> Result<Option<Measurement>, Failure> {
    match value.get("event").and_then(Value::as_str) {
        Some("measurement") => {
            let data = value.get("data").cloned().unwrap_or_default();
            serde_json::from_value(data).map(Some).map_err(|error| not_a_document(name, &error))
        }
        Some(_) => Ok(None),
        None => {
            let document = Document::from_value(value).map_err(|error| not_a_document(name, &error))?;
            of_document(name, document).map(Some)
        }
    }
}

fn of_document(name: &str, document: Document) -> Result<Measurement, Failure> {
    match document.content {
        Content::Measurement { measurement, .. } | Content::Diagnosis { measurement: Some(measurement), .. } => {
            Ok(*measurement)
        }
        Content::Experiment { experiment } => Ok(experiment.measurement),
        _ => {
            let why = document.error.map_or_else(String::new, |error| format!(": {}", error.message));
            Err(Failure::new(USAGE, format!("{name} holds a document without a measurement{why}")))
        }
    }
}
