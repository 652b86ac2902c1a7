use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::chart::break_lines;

/// Columns of text that no terminal shows.
pub const DEFAULT_COLUMNS: usize = 80;
/// Columns that text may keep to.
const POSSIBLE_COLUMNS: RangeInclusive<usize> = 60..=120;

static COLUMNS: AtomicUsize = AtomicUsize::new(DEFAULT_COLUMNS);

/// Makes all text of this process keep to the columns of its terminal, but to no fewer than 60 and
/// no more than 120.
pub fn set_columns(terminal: usize) {
    COLUMNS.store(
        terminal.clamp(*POSSIBLE_COLUMNS.start(), *POSSIBLE_COLUMNS.end()),
        Ordering::Relaxed,
    );
}

/// Returns the columns that all text keeps to.
pub(crate) fn text_columns() -> usize {
    COLUMNS.load(Ordering::Relaxed)
}

/// Returns text in bold: the limit, which matters most.
pub fn bold_text(text: &str) -> String {
    mark_text(BOLD, text)
}

/// Returns details, dimmed.
pub(crate) fn dim_text(text: &str) -> String {
    mark_text(DIM, text)
}

/// Returns a success in its colour.
pub(crate) fn success_text(text: &str) -> String {
    mark_text(GREEN, text)
}

/// Returns a failure in its colour.
pub(crate) fn failure_text(text: &str) -> String {
    mark_text(RED, text)
}

fn mark_text(mark: &str, text: &str) -> String {
    format!("{mark}{text}{PLAIN}")
}

/// Returns text without colour and weight, for a file, a pipe, or `NO_COLOR`.
pub fn without_marks(text: &str) -> String {
    [BOLD, DIM, GREEN, RED, PLAIN]
        .iter()
        .fold(text.to_owned(), |text, mark| text.replace(mark, ""))
}

// ECMA-48, SGR.
const BOLD: &str = "\x1b[1m";
const DIM: &str = "\x1b[2m";
const GREEN: &str = "\x1b[32m";
const RED: &str = "\x1b[31m";
const PLAIN: &str = "\x1b[0m";

/// Returns dimmed text in lines, indented by so many.
pub(crate) fn dim_paragraph(text: &str, indent: usize) -> String {
    wrap_text(text, indent, dim_text)
}

/// Returns bold text in lines, indented by so many.
pub(crate) fn bold_paragraph(text: &str, indent: usize) -> String {
    wrap_text(text, indent, bold_text)
}

/// Returns text on a failure in lines, indented by so many.
pub(crate) fn failure_paragraph(text: &str, indent: usize) -> String {
    wrap_text(text, indent, failure_text)
}

/// A heading, underlined by its own weight.
pub(crate) fn heading_line(text: &str) -> String {
    format!("\n{}", bold_paragraph(text, 0))
}

/// Returns the first `max` characters, of which the last is an ellipsis where there are more.
pub(crate) fn cut_text(text: &str, max: usize) -> String {
    let is_long = text.chars().nth(max).is_some();
    if is_long {
        text.chars().take(max - 1).chain(['…']).collect()
    } else {
        text.to_owned()
    }
}

/// Returns text in lines, indented by so many.
pub fn paragraph(text: &str, indent: usize) -> String {
    wrap_text(text, indent, str::to_owned)
}

/// Returns names, each with its description next to it.
pub fn name_list(rows: &[(String, String)]) -> String {
    let width = rows
        .iter()
        .map(|(name, _)| name.chars().count())
        .max()
        .unwrap_or(0)
        + 2;
    let lines = rows.iter().map(|(name, text)| {
        let right = paragraph(text, width);
        format!("{name:<width$}{}", right.trim_start())
    });
    lines.collect()
}

/// `text` broken at spaces into lines that, with `indent` spaces before each, keep to the width.
/// Each line is marked on its own, so that no mark spans a line break.
fn wrap_text(text: &str, indent: usize, mark: impl Fn(&str) -> String) -> String {
    indent_lines(
        break_lines(text, text_columns().saturating_sub(indent))
            .iter()
            .map(|line| mark(line)),
        indent,
    )
}

/// `lines`, each behind `indent` spaces and with a newline.
pub(crate) fn indent_lines(lines: impl IntoIterator<Item = String>, indent: usize) -> String {
    lines.into_iter().fold(String::new(), |text, line| {
        text + &format!("{:indent$}{line}\n", "")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_keep_to_the_width_with_their_indent() {
        let text = wrap_text(&"window ".repeat(40), 4, str::to_owned);
        assert!(
            text.lines()
                .all(|line| line.chars().count() <= DEFAULT_COLUMNS && line.starts_with("    w"))
        );
        assert!(text.lines().next().unwrap().chars().count() > DEFAULT_COLUMNS - 8);
    }

    #[test]
    fn a_word_longer_than_a_line_stands_alone() {
        assert_eq!(
            wrap_text(&format!("a {} b", "x".repeat(90)), 0, str::to_owned)
                .lines()
                .count(),
            3
        );
    }

    #[test]
    fn plain_text_has_no_marks() {
        assert_eq!(bold_text("limit"), "\u{1b}[1mlimit\u{1b}[0m");
        let marked = [bold_text, dim_text, success_text, failure_text].map(|mark| mark("limit"));
        assert_eq!(without_marks(&marked.concat()), "limit".repeat(4));
    }
}
