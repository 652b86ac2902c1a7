use fullpipe_record::{Document, EventLine};
use serde::Serialize;

/// The one JSON document of a command, with a newline at its end.
///
/// # Panics
/// Never: records hold strings, numbers and lists, all of which can be written.
pub fn document_json(document: &Document) -> String {
    pretty_json(document)
}

/// The JSON schema of [`document_json`], with a newline at its end.
///
/// # Panics
/// Never, for the same reason.
pub fn document_schema() -> String {
    pretty_json(&schemars::schema_for!(Document))
}

/// Returns the JSON schema of one line of `--json-lines`, with a newline at its end.
///
/// # Panics
/// Never, for the same reason.
pub fn event_schema() -> String {
    pretty_json(&schemars::schema_for!(EventLine<'_>))
}

fn pretty_json(value: &impl Serialize) -> String {
    let text = serde_json::to_string_pretty(value);
    format!(
        "{}\n",
        text.expect("a record or a schema can always be written as JSON")
    )
}
