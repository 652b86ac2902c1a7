//! Facts as rows of text, for other programs.

use fullpipe_record::{StoredDocument, StoredFacts};
use fullpipe_units::printable_line;

use crate::columns::{document_row, facts_row};
use crate::engine::DatabaseValue;
use crate::statements::{DOCUMENT, FACT};

/// Returns the head of [`csv_rows`]: the columns of the tables. Times are nanoseconds, `started` is
/// in RFC 3339.
pub fn csv_head() -> String {
    format!(
        "{},{}\n",
        DOCUMENT.replace(", ", ","),
        FACT.replace(", ", ",")
    )
}

/// Returns a document as CSV (RFC 4180 with bare line ends): one row for each of its facts, or one
/// row without facts.
pub fn csv_rows(document: &StoredDocument) -> String {
    let none = [StoredFacts::default()];
    let facts = if document.facts.is_empty() {
        &none[..]
    } else {
        &document.facts
    };
    facts.iter().map(|facts| csv_row(document, facts)).collect()
}

fn csv_row(document: &StoredDocument, facts: &StoredFacts) -> String {
    let mut cells: Vec<String> = document_row(document)
        .iter()
        .chain(&facts_row(facts))
        .map(csv_cell)
        .collect();
    cells[STARTED].clone_from(&document.started);
    cells.join(",") + "\n"
}

/// Place of the time among the columns.
const STARTED: usize = 3;

fn csv_cell(value: &DatabaseValue) -> String {
    match value {
        DatabaseValue::Null | DatabaseValue::Blob(_) => String::new(),
        DatabaseValue::Integer(number) => number.to_string(),
        DatabaseValue::Real(number) => number.to_string(),
        DatabaseValue::Text(text) => quote_cell(text),
    }
}

/// Quotes a text where it needs that. Names come from other programs and hosts: commands to a
/// terminal are spelled out, and a text that a spreadsheet would take for a formula is made plain
/// with a quote mark in front.
fn quote_cell(text: &str) -> String {
    let text = printable_line(text);
    let text = if text.starts_with(['=', '+', '-', '@']) {
        format!("'{text}")
    } else {
        text
    };
    if text.contains([',', '"']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_a_cell_for_each_column() {
        let document = StoredDocument {
            started: "2026-03-12T00:00:00Z".to_owned(),
            ..StoredDocument::default()
        };
        let (head, row) = (csv_head(), csv_rows(&document));
        assert_eq!(head.matches(',').count(), row.matches(',').count());
        let started = head
            .split(',')
            .position(|column| column == "started")
            .unwrap();
        assert_eq!(row.split(',').nth(started), Some("2026-03-12T00:00:00Z"));
    }

    #[test]
    fn a_name_of_another_host_is_no_formula_and_no_second_cell() {
        assert_eq!(quote_cell("=cmd|' /C calc'!A0"), "'=cmd|' /C calc'!A0");
        assert_eq!(quote_cell("a,\"b\""), "\"a,\"\"b\"\"\"");
    }

    #[test]
    fn a_name_of_another_program_is_no_command_to_the_terminal() {
        assert_eq!(
            quote_cell("\u{1b}[2J\u{202e}sh\n"),
            "\\u{1b}[2J\\u{202e}sh\\n"
        );
        assert_eq!(quote_cell("Zürich"), "Zürich");
    }
}
