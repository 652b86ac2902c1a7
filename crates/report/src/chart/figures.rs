//! The figures of a chart as a table.

use crate::chart::svg::{cut_text, escape_html};

/// Longest text of a cell, in characters.
const MAX_CELL: usize = 480;

/// Characters of a cell from which on its column is wide enough for a sentence, also on a narrow
/// page.
const LONG_CELL: usize = 60;

/// The figures of a chart: heads of columns, and rows of as many cells.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FigureTable {
    /// Heads of the columns.
    pub heads: Vec<String>,
    /// Rows; each has a cell for each column.
    pub rows: Vec<Vec<String>>,
}

impl FigureTable {
    /// Returns the table as HTML; the first cell of a row is its head. Tags are left out where HTML
    /// permits it: a table of all runs is the largest part of a page.
    pub fn to_html(&self) -> String {
        let mut html = "<table><thead><tr>".to_owned();
        for (column, head) in self.heads.iter().enumerate() {
            html += match (head.is_empty(), self.has_sentences(column)) {
                (true, _) => "<td>",
                (false, true) => "<th class=l>",
                (false, false) => "<th>",
            };
            html += &escape_cell(head);
        }
        html += "<tbody>";
        for row in &self.rows {
            html += "<tr>";
            for (index, cell) in row.iter().enumerate() {
                html += if index == 0 { "<th>" } else { "<td>" };
                html += &escape_cell(cell);
            }
        }
        html + "</table>"
    }

    /// Returns true if a cell of the column is too long for a narrow one.
    fn has_sentences(&self, column: usize) -> bool {
        let mut cells = self.rows.iter().filter_map(|row| row.get(column));
        cells.any(|cell| cell.chars().nth(LONG_CELL).is_some())
    }
}

fn escape_cell(cell: &str) -> String {
    escape_html(&cut_text(cell, MAX_CELL))
}
