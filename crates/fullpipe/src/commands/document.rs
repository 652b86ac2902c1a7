//! Documents that were printed with --json, read again.

use super::prelude::*;
use crate::input::read_text;

/// Returns the name of a file for messages: `-` is standard input.
pub(crate) fn name_of(file: &str) -> &str {
    if file == "-" { "standard input" } else { file }
}

/// Returns the document in a file.
///
/// # Errors
/// Fails if the file cannot be read, or is no document.
pub(crate) fn read_document(file: &str) -> Result<Document> {
    Document::from_json(text_of(file)?.as_bytes())
        .map_err(|error| not_a_document(name_of(file), &error))
}

/// Returns the documents in a text, one after another or in arrays.
///
/// # Errors
/// Fails if the text is no JSON, or a value in it no document.
pub(crate) fn own_documents(text: &str) -> serde_json::Result<Vec<Document>> {
    let mut documents = Vec::new();
    for value in serde_json::Deserializer::from_str(text).into_iter::<serde_json::Value>() {
        match value? {
            serde_json::Value::Array(values) => {
                for value in values {
                    documents.push(Document::from_value(value)?);
                }
            }
            value => documents.push(Document::from_value(value)?),
        }
    }
    Ok(documents)
}

/// Returns the text of a file.
///
/// # Errors
/// Fails if the file cannot be read.
pub(crate) fn text_of(file: &str) -> Result<String> {
    read_text(Path::new(file))
        .map_err(|error| usage_failure(format!("cannot read {}: {error}", name_of(file))))
}

/// Returns the failure of a file, by its name, that holds no document.
pub(crate) fn not_a_document(name: &str, error: &serde_json::Error) -> Failure {
    let sentence = format!(
        "{name} is no JSON document of fullpipe: {error}; measure --json prints one, and `store import` reads results \
         of other programs"
    );
    usage_failure(sentence)
}
