//! Columns that line up.

use std::fmt::Display;

use crate::chart::{break_lines, format_if};

use super::style::{dim_text, indent_lines, text_columns};

/// Makes the cells of a row of what can be displayed.
macro_rules! cells {
    ($($cell:expr),+ $(,)?) => {
        [$(ToString::to_string(&$cell)),+]
    };
}

pub(crate) use cells;

/// Rows of cells below a head.
#[derive(Debug, Clone)]
pub(crate) struct TextTable {
    /// True for columns that are aligned right.
    is_right: Vec<bool>,
    rows: Vec<Vec<String>>,
}

impl TextTable {
    /// Returns a table with these heads, a `|` between two; a column is aligned right if its head
    /// begins with `>`.
    pub(crate) fn new(heads: &str) -> Self {
        Self::with_heads(heads.split('|').map(|head| {
            (
                head.trim_start_matches('>').to_owned(),
                head.starts_with('>'),
            )
        }))
    }

    /// Returns a table with these heads, each with true if its column is aligned right.
    pub(crate) fn with_heads(heads: impl Iterator<Item = (String, bool)>) -> Self {
        let (heads, is_right) = heads.unzip();
        Self {
            is_right,
            rows: vec![heads],
        }
    }

    /// Returns a table with these heads and rows.
    pub(crate) fn from_rows<R: Into<Vec<String>>>(
        heads: &str,
        rows: impl IntoIterator<Item = R>,
    ) -> Self {
        let mut table = Self::new(heads);
        table.rows.extend(rows.into_iter().map(R::into));
        table
    }

    pub(crate) fn push_row(&mut self, cells: impl Into<Vec<String>>) {
        self.rows.push(cells.into());
    }

    /// Removes the columns in which every cell below the head is unknown.
    pub(crate) fn without_unknown(self) -> Self {
        self.retain_columns(|_, cells| {
            cells.is_empty() || cells.iter().any(|cell| !["", UNKNOWN].contains(cell))
        })
    }

    /// Removes those of the first `count` columns whose cells below the head are all alike.
    pub(crate) fn without_constant(self, count: usize) -> Self {
        self.retain_columns(|column, cells| {
            column >= count || cells.iter().any(|cell| cell != &cells[0])
        })
    }

    /// Removes those of the columns `dispensable` that are too much for the width, the first of
    /// them first.
    pub(crate) fn without_excess(mut self, dispensable: &[&str]) -> Self {
        for head in dispensable {
            let width: usize = (0..self.is_right.len())
                .map(|column| self.column_width(column) + 2)
                .sum();
            if width > text_columns() + 2 {
                let heads = self.rows[0].clone();
                self = self.retain_columns(|column, _| heads[column] != *head);
            }
        }
        self
    }

    /// Keeps the columns for whose number and cells below the head `is_kept` returns true.
    fn retain_columns(self, is_kept: impl Fn(usize, &[&str]) -> bool) -> Self {
        let kept = (0..self.is_right.len()).filter(|&column| {
            let rows = self.rows.iter().skip(1);
            let cells = rows.filter_map(|row| row.get(column).map(String::as_str));
            is_kept(column, &cells.collect::<Vec<_>>())
        });
        let kept: Vec<usize> = kept.collect();
        let rows = self.rows.iter().map(|row| {
            let cells = kept.iter().filter_map(|column| row.get(*column).cloned());
            cells.collect()
        });
        Self {
            is_right: kept.iter().map(|column| self.is_right[*column]).collect(),
            rows: rows.collect(),
        }
    }

    /// Returns the table, each line behind `indent` spaces, the head dimmed. A text in the last
    /// column that would go beyond the width is continued below itself.
    pub(crate) fn render(&self, indent: usize) -> String {
        let widths: Vec<usize> = (0..self.is_right.len())
            .map(|column| self.column_width(column))
            .collect();
        let mut lines = self
            .rows
            .iter()
            .flat_map(|row| self.row_lines(row, &widths, indent));
        let head = lines
            .next()
            .filter(|head| !head.is_empty())
            .map(|head| dim_text(&head));
        indent_lines(head.into_iter().chain(lines), indent)
    }

    /// One row as lines.
    fn row_lines(&self, row: &[String], widths: &[usize], indent: usize) -> Vec<String> {
        let aligned = row.iter().zip(&self.is_right).zip(widths);
        let mut cells: Vec<String> = aligned
            .map(|((cell, is_right), &width)| match is_right {
                true => format!("{cell:>width$}"),
                false => format!("{cell:<width$}"),
            })
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
pub(crate) fn pair_table<N: ToString, V: ToString>(
    rows: impl IntoIterator<Item = (N, V)>,
    indent: usize,
) -> String {
    let rows = rows.into_iter().map(|(name, value)| cells![name, value]);
    TextTable::from_rows("|", rows).render(indent)
}

/// Returns a figure as text, if it is known.
pub(crate) fn figure_text<T: ToString>(figure: Option<T>) -> Option<String> {
    figure.map(|figure| figure.to_string())
}

/// Text of a cell, or a dash if its value is unknown.
pub(crate) fn or_dash<T: ToString>(value: Option<T>) -> String {
    text_or(value, UNKNOWN)
}

/// Returns a value as text, or these words if there is none.
pub(crate) fn text_or<T: ToString>(value: Option<T>, words: &str) -> String {
    value.map_or_else(|| words.to_owned(), |value| value.to_string())
}

/// Returns a count with what it is, behind a comma; nothing of none.
pub(crate) fn nonzero_count<T: Display + Default + PartialEq + Copy>(
    count: T,
    what: &str,
) -> String {
    format_if(count != T::default(), || format!(", {count} {what}"))
}

/// Text of a cell whose value is unknown.
pub(crate) const UNKNOWN: &str = "–";

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
    use crate::text::without_marks;

    #[test]
    fn columns_line_up() {
        let mut table = TextTable::new("what|>rate");
        table.push_row(["window".to_owned(), "3 Mbit/s".to_owned()]);
        table.push_row(["µ".to_owned(), "100 Mbit/s".to_owned()]);
        assert_eq!(
            without_marks(&table.render(1)),
            " what          rate\n window    3 Mbit/s\n µ       100 Mbit/s\n"
        );
    }

    #[test]
    fn a_table_without_heads_has_no_line_for_them_in_colour_either() {
        let mut table = TextTable::new("|>");
        table.push_row(["loss".to_owned(), "none".to_owned()]);
        assert_eq!(table.render(0), "loss  none\n");
    }

    #[test]
    fn a_column_of_which_nothing_is_known_is_left_out() {
        let mut table = TextTable::new("a|>b|>c");
        table.push_row(["1".to_owned(), UNKNOWN.to_owned(), UNKNOWN.to_owned()]);
        table.push_row(["2".to_owned(), UNKNOWN.to_owned(), "3".to_owned()]);
        assert_eq!(
            without_marks(&table.without_unknown().render(0)),
            "a  c\n1  –\n2  3\n"
        );
    }

    #[test]
    fn a_long_text_in_the_last_column_goes_on_below_itself() {
        let mut table = TextTable::new("|");
        table.push_row(["capacity".to_owned(), "window ".repeat(12)]);
        table.push_row(["loss".to_owned(), "none".to_owned()]);
        let first = format!("  capacity  {}", "window ".repeat(9));
        let second = format!("{:12}{}", "", "window ".repeat(3));
        let lines = [first.trim_end(), second.trim_end(), "  loss      none"];
        assert_eq!(table.render(2).lines().collect::<Vec<_>>(), lines);
    }

    #[test]
    fn a_spark_line_shows_each_value_that_is_not_zero() {
        assert_eq!(spark_line(&[0.0, 1.0, 400.0, 800.0]), "·▁▄█");
        assert_eq!(spark_line(&[0.0; 3]), "···");
    }
}
