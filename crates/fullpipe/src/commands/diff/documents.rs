//! Measurements in files, and in the archive.

use fullpipe_experiment::NamedRuns;
use fullpipe_store::{Store, read_import};
use fullpipe_units::printable_line;
use jiff::Timestamp;
use serde_json::Value;

use crate::commands::document::{name_of, not_a_document, text_of};
use crate::commands::prelude::*;

/// Characters from which an identifier is taken for one.
const MIN_ID: usize = 4;

/// Reads the measurements of one of the two: of a file or a document of the archive, or of several
/// with commas between them.
pub(super) fn read_runs(files: &str, archive: &PlaceArgument) -> Result<NamedRuns> {
    // A name may have a comma.
    let names: Vec<&str> = if Path::new(files).exists() {
        vec![files]
    } else {
        files.split(',').collect()
    };
    let mut measurements = Vec::new();
    for name in &names {
        let text = if is_stored(name) {
            stored_text(name, archive)?
        } else {
            text_of(name)?
        };
        measurements.extend(measurements_in(name_of(name), &text)?);
    }
    let name = match names[..] {
        [only] => only.to_owned(),
        [first, ..] => format!("{first} and {} more", names.len() - 1),
        [] => String::new(),
    };
    Ok(NamedRuns {
        name: printable_line(&name),
        measurements,
    })
}

/// Returns true if a name is that of no file, and may be the identifier of a document, or its end.
fn is_stored(name: &str) -> bool {
    let is_identifier = name.len() >= MIN_ID
        && name
            .bytes()
            .all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    is_identifier && !Path::new(name).exists()
}

/// Returns the text of a document of the archive.
fn stored_text(id: &str, archive: &PlaceArgument) -> Result<String> {
    let mut store = Store::open(&archive.location()?).map_err(|error| {
        let failure = Failure::from(error);
        Failure::new(
            failure.code,
            format!("there is no file {id}, and {}", failure.message),
        )
    })?;
    let document = store.find_document(id)?;
    if let Some(program) = document.kind.strip_prefix("foreign/") {
        return Err(of_other_program(&format!("document {id}"), program));
    }
    let body = store.document_body(&document)?;
    String::from_utf8(body).map_err(|_| run_failure(format!("document {id} is no text in UTF-8")))
}

/// Returns the failure of a result whose runs are not known as those of fullpipe are.
fn of_other_program(name: &str, program: &str) -> Failure {
    let sentence = format!(
        "{name} is a result of {program}: documents of other programs cannot be compared; `history HOST` and `report` \
         show them from the archive"
    );
    usage_failure(sentence)
}

/// Returns the program that a text is a result of, if that is another one.
fn other_program(text: &str) -> Option<String> {
    let documents = read_import(text.as_bytes(), Timestamp::UNIX_EPOCH).ok()?;
    documents
        .first()?
        .head
        .kind
        .strip_prefix("foreign/")
        .map(str::to_owned)
}

fn measurements_in(name: &str, text: &str) -> Result<Vec<Measurement>> {
    own_measurements(name, text).map_err(|failure| match other_program(text) {
        Some(program) => of_other_program(name, &program),
        None => failure,
    })
}

fn own_measurements(name: &str, text: &str) -> Result<Vec<Measurement>> {
    let mut measurements = Vec::new();
    for value in serde_json::Deserializer::from_str(text).into_iter::<Value>() {
        let value = value.map_err(|error| not_a_document(name, &error))?;
        let values = if let Value::Array(values) = value {
            values
        } else {
            vec![value]
        };
        for value in values {
            measurements.extend(measurement_from_value(name, value)?);
        }
    }
    if measurements.is_empty() {
        return Err(usage_failure(format!(
            "{name} has no measurement; measure --json prints one"
        )));
    }
    Ok(measurements)
}

/// Returns the measurement of a document or of an event; `None` of an event of another kind.
fn measurement_from_value(name: &str, value: Value) -> Result<Option<Measurement>> {
    match value.get("event").and_then(Value::as_str) {
        Some("measurement") => {
            let data = value.get("data").cloned().unwrap_or_default();
            serde_json::from_value(data)
                .map(Some)
                .map_err(|error| not_a_document(name, &error))
        }
        Some(_) => Ok(None),
        None => {
            let document =
                Document::from_value(value).map_err(|error| not_a_document(name, &error))?;
            of_document(name, &document).map(Some)
        }
    }
}

fn of_document(name: &str, document: &Document) -> Result<Measurement> {
    document.content.measurement().cloned().ok_or_else(|| {
        let why = document
            .error
            .as_ref()
            .map_text(|error| format!(": {}", error.message));
        usage_failure(format!(
            "{name} holds a document without a measurement{why}"
        ))
    })
}
