use fullpipe_record::Document;

/// Returns the one JSON document of a command, with a newline at its end.
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
