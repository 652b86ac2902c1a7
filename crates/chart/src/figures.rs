//! The figures of a chart as a table.

use crate::svg::{cut, escape};

/// Longest text of a cell, in characters.
const MAX_CELL: usize = 480;

/// The figures of a chart: heads of columns, and rows of as many cells.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Figures {
    /// Heads of the columns.
    pub heads: Vec<String>,
    /// Rows; each has a cell for each column.
    pub rows: Vec<Vec<String>>,
}

impl Figures {
    /// Returns the table as HTML; the first cell of a row is its head.
    pub fn html(&self) -> String {
        let mut html = "<table><thead><tr>".to_owned();
        for head in &self.heads {
            html += &format!("<th scope=\"col\">{}</th>", text(head));
        }
        html += "</tr></thead><tbody>";
        for row in &self.rows {
            html += "<tr>";
            for (index, cell) in row.iter().enumerate() {
                html += &match index {
                    0 => format!("<th scope=\"row\">{}</th>", text(cell)),
                    _ => format!("<td>{}</td>", text(cell)),
                };
            }
            html += "</tr>";
        }
        html + "</tbody></table>"
    }
}

fn text(cell: &str) -> String {
    escape(&cut(cell, MAX_CELL))
}
