//! Columns that line up.

use crate::style::indented;

/// Where a column's text stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// Rows of cells below a head.
#[derive(Debug, Clone)]
pub(crate) struct Table {
    align: Vec<Align>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these column heads; `align` goes for the heads too.
    pub(crate) fn new(head: &[(&str, Align)]) -> Self {
        Self {
            align: head.iter().map(|(_, align)| *align).collect(),
            rows: vec![head.iter().map(|(text, _)| (*text).to_owned()).collect()],
        }
    }

    pub(crate) fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.into());
    }

    /// The table, each line behind `indent` spaces, the head marked by `mark`.
    pub(crate) fn render(&self, indent: usize, mark: impl Fn(&str) -> String) -> String {
        let widths: Vec<usize> = (0..self.align.len()).map(|column| self.width(column)).collect();
        let line = |row: &Vec<String>| {
            let cells: Vec<String> = row
                .iter()
                .zip(&self.align)
                .zip(&widths)
                .map(|((cell, align), &width)| match align {
                    Align::Left => format!("{cell:<width$}"),
                    Align::Right => format!("{cell:>width$}"),
                })
                .collect();
            cells.join("  ").trim_end().to_owned()
        };
        let mut lines = self.rows.iter().map(line);
        let head = lines.next().map(|head| mark(&head));
        indented(head.into_iter().filter(|head| !head.is_empty()).chain(lines), indent)
    }

    fn width(&self, column: usize) -> usize {
        self.rows.iter().map(|row| row.get(column).map_or(0, |cell| cell.chars().count())).max().unwrap_or(0)
    }
}

/// A bar of at most `width` characters for `value` out of `full`, to an eighth of a character.
pub(crate) fn bar(value: f64, full: f64, width: usize) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let share = if full > 0.0 { (value / full).clamp(0.0, 1.0) } else { 0.0 };
    let eighths = (share * width as f64 * 8.0).round() as usize;
    format!("{}{}", "█".repeat(eighths / 8), EIGHTHS[eighths % 8])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(&[("what", Align::Left), ("rate", Align::Right)]);
        table.row(["window".to_owned(), "3 Mbit/s".to_owned()]);
        table.row(["µ".to_owned(), "100 Mbit/s".to_owned()]);
        assert_eq!(table.render(1, str::to_owned), " what          rate\n window    3 Mbit/s\n µ       100 Mbit/s\n");
    }

    #[test]
    fn bars_grow_by_eighths() {
        assert_eq!(bar(0.0, 1.0, 4), "");
        assert_eq!(bar(0.5, 1.0, 4), "██");
        assert_eq!(bar(0.53, 1.0, 4), "██▏");
        assert_eq!(bar(9.0, 1.0, 4), "████");
        assert_eq!(bar(1.0, 0.0, 4), "");
    }
}
