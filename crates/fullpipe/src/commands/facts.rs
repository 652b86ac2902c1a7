//! Facts of documents, for other programs.

use std::io::Write;

use fullpipe_record::StoredDocument;
use fullpipe_store::{csv_head, csv_rows};

use super::prelude::*;

/// Prints documents with their facts: an object a line with `Format::JsonLines`, and else CSV, a
/// row a fact.
pub(crate) fn print_facts(documents: Vec<StoredDocument>, format: OutputFormat) {
    let mut out = Terminal::output_stream();
    // A reader that went away, as `head` does, is no failure.
    let _ = match format {
        OutputFormat::JsonLines => documents.into_iter().try_for_each(|document| {
            let line = Document::new(Content::Stored {
                stored: vec![document],
            });
            writeln!(out, "{}", serde_json::to_string(&line).unwrap_or_default())
        }),
        _ => write!(out, "{}", csv_head()).and_then(|()| {
            documents
                .iter()
                .try_for_each(|document| write!(out, "{}", csv_rows(document)))
        }),
    };
}
