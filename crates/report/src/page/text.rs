//! An article as text of at most 80 columns.

use super::SectionView;
use super::prelude::*;
pub(super) fn article_text(article: &Article) -> String {
    let mut text = bold_paragraph(&printable_line(&article.headline), 0);
    for sentence in &article.sentences {
        text += &paragraph(&printable_line(sentence), 2);
    }
    for (figure, meaning) in &article.facts {
        text += &paragraph(&printable_line(&format!("{figure}: {meaning}")), 2);
    }
    for section in &article.sections {
        text += &heading_line(&printable_line(&section.title));
        text += &match &section.view {
            SectionView::Plot(plot) => plot.to_text(),
            SectionView::Rows(rows) => rows.to_text(),
            SectionView::Heat(map) => map.to_text(),
            SectionView::Table(figures) if figures.rows.is_empty() => String::new(),
            SectionView::Table(figures) => figures_text(figures),
        };
    }
    text + "\n"
}

/// Returns an article as the end of what a command prints.
pub(super) fn brief_text(article: &Article) -> String {
    format!("\n{}\n", article_text(article).trim_end())
}

/// Characters of a cell that is not the last of its row.
const CELL: usize = 26;

/// Returns a table with as many of its columns as fit.
fn figures_text(figures: &FigureTable) -> String {
    let columns = fitting_columns(figures);
    let heads = figures.heads.iter().take(columns);
    let mut table = TextTable::with_heads(heads.map(|head| (head.clone(), false)));
    for row in &figures.rows {
        let last = columns.saturating_sub(1);
        table.push_row(
            row.iter()
                .take(columns)
                .enumerate()
                .map(|(index, cell): (usize, &String)| {
                    if index == last {
                        printable_line(cell)
                    } else {
                        shortened_cell(cell)
                    }
                })
                .collect::<Vec<_>>(),
        );
    }
    table.render(0)
}

fn shortened_cell(cell: &str) -> String {
    printable_line(&cut_text(cell, CELL))
}

/// Returns the number of columns that fit next to each other; at least the first does.
fn fitting_columns(figures: &FigureTable) -> usize {
    let mut columns = figures.heads.len();
    while columns > 1
        && (0..columns)
            .map(|column| column_width(figures, column))
            .sum::<usize>()
            > 82
    {
        columns -= 1;
    }
    columns
}

fn column_width(figures: &FigureTable, column: usize) -> usize {
    let cells = figures
        .rows
        .iter()
        .filter_map(|row| row.get(column))
        .chain(figures.heads.get(column));
    cells
        .map(|cell| shortened_cell(cell).chars().count() + 2)
        .max()
        .unwrap_or(0)
}
