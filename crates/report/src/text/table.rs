//! Columns that line up.

use super::style::{break_lines, indent_lines, text_columns};

/// Alignment of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ColumnAlignment {
    Left,
    Right,
}

impl ColumnAlignment {
    fn pad_cell(self, cell: &str, width: usize) -> String {
        match self {
            Self::Left => format!("{cell:<width$}"),
            Self::Right => format!("{cell:>width$}"),
        }
    }
}

/// Rows of cells below a head.
#[derive(Debug, Clone)]
pub(crate) struct TextTable {
    align: Vec<ColumnAlignment>,
    rows: Vec<Vec<String>>,
}

impl TextTable {
    /// A table with these column heads; `align` goes for the heads too.
    pub(crate) fn new(head: &[(&str, ColumnAlignment)]) -> Self {
        Self {
            align: head.iter().map(|(_, align)| *align).collect(),
            rows: vec![head.iter().map(|(text, _)| (*text).to_owned()).collect()],
        }
    }

    pub(crate) fn push_row(&mut self, cells: impl Into<Vec<String>>) {
        self.rows.push(cells.into());
    }

    /// Removes the columns in which every cell below the head is unknown.
    pub(crate) fn without_unknown(self) -> Self {
        let columns = 0..self.align.len();
        let kept: Vec<usize> = columns.filter(|column| self.is_known(*column)).collect();
        let rows = self.rows.iter().map(|row| {
            let cells = kept.iter().filter_map(|column| row.get(*column).cloned());
            cells.collect()
        });
        Self {
            align: kept.iter().map(|column| self.align[*column]).collect(),
            rows: rows.collect(),
        }
    }

    /// Returns true if a cell below the head of a column is known, or if there are none.
    fn is_known(&self, column: usize) -> bool {
        let mut cells = self.rows.iter().skip(1).filter_map(|row| row.get(column));
        self.rows.len() == 1 || cells.any(|cell| cell != UNKNOWN)
    }

    /// The table, each line behind `indent` spaces, the head marked by `mark`. A text in the last
    /// column that would go beyond the width is continued below itself.
    pub(crate) fn render(&self, indent: usize, mark: impl Fn(&str) -> String) -> String {
        let widths: Vec<usize> = (0..self.align.len())
            .map(|column| self.column_width(column))
            .collect();
        let mut lines = self
            .rows
            .iter()
            .flat_map(|row| self.row_lines(row, &widths, indent));
        let head = lines
            .next()
            .filter(|head| !head.is_empty())
            .map(|head| mark(&head));
        indent_lines(head.into_iter().chain(lines), indent)
    }

    /// One row as lines.
    fn row_lines(&self, row: &[String], widths: &[usize], indent: usize) -> Vec<String> {
        let aligned = row.iter().zip(&self.align).zip(widths);
        let mut cells: Vec<String> = aligned
            .map(|((cell, align), &width)| align.pad_cell(cell, width))
            .collect();
        let last = cells.pop().unwrap_or_default().trim_end().to_owned();
        let before = cells
            .iter()
            .fold(String::new(), |text, cell| text + cell + "  ");
        let margin = before.chars().count();
        let room = text_columns().saturating_sub(indent + margin);
        let last = if last.chars().count() <= room {
            vec![last]
        } else {
            break_lines(&last, room)
        };
        let befores = std::iter::once(before).chain(std::iter::repeat(" ".repeat(margin)));
        befores
            .zip(last)
            .map(|(before, text)| (before + &text).trim_end().to_owned())
            .collect()
    }

    fn column_width(&self, column: usize) -> usize {
        self.rows
            .iter()
            .map(|row| row.get(column).map_or(0, |cell| cell.chars().count()))
            .max()
            .unwrap_or(0)
    }
}

/// Returns names with their values, a line each.
pub(crate) fn pair_table<N: ToString>(
    rows: impl IntoIterator<Item = (N, String)>,
    indent: usize,
) -> String {
    let mut table = TextTable::new(&[("", ColumnAlignment::Left); 2]);
    for (name, value) in rows {
        table.push_row([name.to_string(), value]);
    }
    table.render(indent, str::to_owned)
}

/// A column with all its cells below the head.
pub(crate) struct TableColumn {
    pub(crate) head: &'static str,
    pub(crate) align: ColumnAlignment,
    pub(crate) cells: Vec<String>,
}

impl TableColumn {
    /// Returns a column with a cell for each of `rows`.
    pub(crate) fn from_rows<T>(
        head: &'static str,
        align: ColumnAlignment,
        rows: &[T],
        cell: impl Fn(&T) -> String,
    ) -> Self {
        Self {
            head,
            align,
            cells: rows.iter().map(cell).collect(),
        }
    }

    /// Returns true if any two cells differ.
    pub(crate) fn has_differences(&self) -> bool {
        self.cells
            .iter()
            .any(|cell| Some(cell) != self.cells.first())
    }

    fn width(&self) -> usize {
        let cells = self.cells.iter().map(|cell| cell.chars().count());
        cells.max().unwrap_or(0).max(self.head.chars().count())
    }
}

/// Returns the table of `shown`, without those of `dispensable` that are too much for the width,
/// the first of them first.
pub(crate) fn columns_table(mut shown: Vec<TableColumn>, dispensable: &[&str]) -> TextTable {
    for head in dispensable {
        if shown.iter().map(|column| column.width() + 2).sum::<usize>() > text_columns() + 2 {
            shown.retain(|column| column.head != *head);
        }
    }
    let heads: Vec<(&str, ColumnAlignment)> = shown
        .iter()
        .map(|column| (column.head, column.align))
        .collect();
    let mut table = TextTable::new(&heads);
    for row in 0..shown.first().map_or(0, |column| column.cells.len()) {
        table.push_row(
            shown
                .iter()
                .filter_map(|column| column.cells.get(row).cloned())
                .collect::<Vec<_>>(),
        );
    }
    table
}

/// Text of a cell, or a dash if its value is unknown.
pub(crate) fn or_dash<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| UNKNOWN.to_owned(), |value| value.to_string())
}

/// Text of a cell whose value is unknown.
pub(crate) const UNKNOWN: &str = "–";

/// A bar of at most `width` characters for `value` out of `full`, to an eighth of a character.
pub(crate) fn value_bar(value: f64, full: f64, width: usize) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let share = if full > 0.0 {
        (value / full).clamp(0.0, 1.0)
    } else {
        0.0
    };
    let eighths = (share * width as f64 * 8.0).round() as usize;
    format!("{}{}", "█".repeat(eighths / 8), EIGHTHS[eighths % 8])
}

/// Marks by height.
pub(crate) const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// A character for each value, as high as its share of the largest; a dot for zero.
pub(crate) fn spark_line(values: &[f64]) -> String {
    let most = values.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    let mut line = String::new();
    for value in values {
        line.push(
            match (value / most * HEIGHTS.len() as f64).ceil() as usize {
                0 => '·',
                height => HEIGHTS[height.min(HEIGHTS.len()) - 1],
            },
        );
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = TextTable::new(&[
            ("what", ColumnAlignment::Left),
            ("rate", ColumnAlignment::Right),
        ]);
        table.push_row(["window".to_owned(), "3 Mbit/s".to_owned()]);
        table.push_row(["µ".to_owned(), "100 Mbit/s".to_owned()]);
        assert_eq!(
            table.render(1, str::to_owned),
            " what          rate\n window    3 Mbit/s\n µ       100 Mbit/s\n"
        );
    }

    #[test]
    fn a_table_without_heads_has_no_line_for_them_in_colour_either() {
        let mut table =
            TextTable::new(&[("", ColumnAlignment::Left), ("", ColumnAlignment::Right)]);
        table.push_row(["loss".to_owned(), "none".to_owned()]);
        assert_eq!(table.render(0, |head| format!("<{head}>")), "loss  none\n");
    }

    #[test]
    fn a_column_of_which_nothing_is_known_is_left_out() {
        let mut table = TextTable::new(&[
            ("a", ColumnAlignment::Left),
            ("b", ColumnAlignment::Right),
            ("c", ColumnAlignment::Right),
        ]);
        table.push_row(["1".to_owned(), UNKNOWN.to_owned(), UNKNOWN.to_owned()]);
        table.push_row(["2".to_owned(), UNKNOWN.to_owned(), "3".to_owned()]);
        assert_eq!(
            table.without_unknown().render(0, str::to_owned),
            "a  c\n1  –\n2  3\n"
        );
    }

    #[test]
    fn a_long_text_in_the_last_column_goes_on_below_itself() {
        let mut table = TextTable::new(&[("", ColumnAlignment::Left), ("", ColumnAlignment::Left)]);
        table.push_row(["capacity".to_owned(), "window ".repeat(12)]);
        table.push_row(["loss".to_owned(), "none".to_owned()]);
        let first = format!("  capacity  {}", "window ".repeat(9));
        let second = format!("{:12}{}", "", "window ".repeat(3));
        let lines = [first.trim_end(), second.trim_end(), "  loss      none"];
        assert_eq!(
            table.render(2, str::to_owned).lines().collect::<Vec<_>>(),
            lines
        );
    }

    #[test]
    fn a_spark_line_shows_each_value_that_is_not_zero() {
        assert_eq!(spark_line(&[0.0, 1.0, 400.0, 800.0]), "·▁▄█");
        assert_eq!(spark_line(&[0.0; 3]), "···");
    }

    #[test]
    fn bars_grow_by_eighths() {
        assert_eq!(value_bar(0.0, 1.0, 4), "");
        assert_eq!(value_bar(0.5, 1.0, 4), "██");
        assert_eq!(value_bar(0.53, 1.0, 4), "██▏");
        assert_eq!(value_bar(9.0, 1.0, 4), "████");
        assert_eq!(value_bar(1.0, 0.0, 4), "");
    }
}
