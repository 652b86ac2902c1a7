use fullpipe_record::{Document, EventLine};
use schemars::Schema;

/// The one JSON document of a command, with a newline at its end.
///
/// # Panics
/// Never: records hold strings, numbers and lists, all of which can be written.
pub fn document_json(document: &Document) -> String {
    let text = serde_json::to_string_pretty(document);
    format!(
        "{}\n",
        text.expect("a record can always be written as JSON")
    )
}

/// The JSON schema of [`document_json`], with a newline at its end.
///
/// # Panics
/// Never, for the same reason.
pub fn document_schema() -> String {
    let schema: Schema = schemars::schema_for!(Document);
    format!(
        "{}\n",
        serde_json::to_string_pretty(&schema).expect("a schema can always be written as JSON")
    )
}

/// Returns the JSON schema of one line of `--json-lines`, with a newline at its end.
///
/// # Panics
/// Never, for the same reason.
pub fn event_schema() -> String {
    let schema: Schema = schemars::schema_for!(EventLine<'_>);
    format!(
        "{}\n",
        serde_json::to_string_pretty(&schema).expect("a schema can always be written as JSON")
    )
}
