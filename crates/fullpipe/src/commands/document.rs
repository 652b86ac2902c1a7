//! Documents that were printed with --json, read again.

use std::io::Read;

use fullpipe_record::Document;

use crate::failure::{Failure, USAGE};

/// Returns the name of a file for messages: `-` is standard input.
pub(crate) fn name_of(file: &str) -> &str {
    if file == "-" { "standard input" } else { file }
}

/// Returns the document in a file.
///
/// # Errors
/// Fails if the file cannot be read, or is no document.
pub(crate) fn read(file: &str) -> Result<Document, Failure> {
    let name = name_of(file);
    let text = if file == "-" {
        let mut text = String::new();
        std::io::stdin().lock().read_to_string(&mut text).map(|_| text)
    } else {
        std::fs::read_to_string(file)
    };
    let text = text.map_err(|error| Failure::new(USAGE, format!("cannot read {name}: {error}")))?;
    serde_json::from_str(&text).map_err(|error| {
        Failure::new(USAGE, format!("{name} is no JSON document of fullpipe: {error}; measure --json prints one"))
    })
}
