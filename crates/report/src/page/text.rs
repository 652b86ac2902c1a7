//! An article as text of at most 80 columns.

use fullpipe_chart::Figures;
use fullpipe_units::printable;

use super::{Article, View};
use crate::text::{Align, Style, Table, cut, heading, wrapped};

pub(super) fn article(article: &Article, style: Style) -> String {
    let mut text = wrapped(&printable(&article.headline), 0, |line| style.bold(line));
    for sentence in &article.sentences {
        text += &wrapped(&printable(sentence), 2, str::to_owned);
    }
    for (figure, meaning) in &article.facts {
        text += &wrapped(&printable(&format!("{figure}: {meaning}")), 2, str::to_owned);
    }
    for section in &article.sections {
        text += &heading(style, &printable(&section.title));
        text += &match &section.view {
            View::Plot(plot) => plot.text(),
            View::Rows(rows) => rows.text(),
            View::Heat(map) => map.text(),
            View::Table(figures) if figures.rows.is_empty() => String::new(),
            View::Table(figures) => table(figures, style),
        };
    }
    text + "\n"
}

/// Characters of a cell that is not the last of its row.
const CELL: usize = 26;

/// Returns a table with as many of its columns as fit.
fn table(figures: &Figures, style: Style) -> String {
    let short = |cell: &String| printable(&cut(cell, CELL));
    let mut columns = figures.heads.len();
    let width = |column: usize| {
        let cells = figures.rows.iter().filter_map(|row| row.get(column)).chain(figures.heads.get(column));
        cells.map(|cell| short(cell).chars().count() + 2).max().unwrap_or(0)
    };
    while columns > 1 && (0..columns).map(width).sum::<usize>() > 82 {
        columns -= 1;
    }
    let heads: Vec<(&str, Align)> =
        figures.heads.iter().take(columns).map(|head| (head.as_str(), Align::Left)).collect();
    let mut table = Table::new(&heads);
    for row in &figures.rows {
        let last = columns.saturating_sub(1);
        let cell = |(index, cell): (usize, &String)| if index == last { printable(cell) } else { short(cell) };
        table.row(row.iter().take(columns).enumerate().map(cell).collect::<Vec<_>>());
    }
    table.render(0, |head| style.dim(head))
}
