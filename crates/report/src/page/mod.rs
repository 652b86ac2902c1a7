//! Results as a page with charts: one HTML file, or the same as text.
//!
//! A page begins with its finding. Each section has its own finding as its title, below it the
//! method, a chart, and all figures of the chart as a table.

mod campaign;
mod capture;
mod course;
mod difference;
mod experiment;
mod history;
mod html;
mod lab;
mod limits;
mod prelude;
mod programs;
mod published;
mod remedy;
mod runs;
mod simulation;
mod sweep;
mod text;
mod transfer;

pub use difference::difference_text;
pub use html::{PageContent, page_script, page_style};
pub use sweep::sweep_text;

use std::cmp::Reverse;
use std::fmt::Display;

use fullpipe_record::{Content, Document};

use prelude::*;

/// A document, and the name of the file that has it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PageSource<'d> {
    /// Name of the file; empty where the result is new.
    pub name: &'d str,
    /// The document.
    pub document: &'d Document,
}

/// A document that no page can be made of.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{name} has no result that a page can show; pages show what demo, measure, diagnose, diff, sweep, compare, lab, \
     simulate, trace and history print with --json"
)]
pub struct PageError {
    name: String,
}

/// Returns a page of `sources` as one HTML file that requests nothing, with an article for each.
/// Several measurements are compared before that; of more than four, only the comparison is shown.
///
/// # Errors
/// If a document has no result that a page can show, such as settings of a host or an error.
pub fn html_page(sources: &[PageSource<'_>]) -> Result<String, PageError> {
    Ok(html::render_page(&source_articles(sources)?))
}

/// Returns the articles of [`html_page`], for a page around them that others make.
///
/// # Errors
/// As [`html_page`].
pub fn page_content(sources: &[PageSource<'_>]) -> Result<PageContent, PageError> {
    Ok(html::page_content(&source_articles(sources)?))
}

/// Returns the content of [`html_page`] as text of at most 80 columns.
///
/// # Errors
/// As [`html_page`].
pub fn text_page(sources: &[PageSource<'_>]) -> Result<String, PageError> {
    Ok(source_articles(sources)?
        .iter()
        .map(text::article_text)
        .collect())
}

/// Measurements up to which each has an article of its own; more are compared alone.
const MAX_MEASUREMENTS: usize = runs::MAX_COURSES;

fn source_articles(sources: &[PageSource<'_>]) -> Result<Vec<Article>, PageError> {
    let measured: Vec<(&str, &Measurement)> = sources
        .iter()
        .filter_map(|source| source_measurement(*source))
        .collect();
    let several = (measured.len() > 1).then(|| runs::runs_article(&measured));
    let is_many = measured.len() > MAX_MEASUREMENTS;
    let own = sources
        .iter()
        .filter(|source| !is_many || source_measurement(**source).is_none());
    let own = own.map(|source| {
        source_article(*source).ok_or_else(|| PageError {
            name: match source.name {
                "" => "the document",
                name => name,
            }
            .to_owned(),
        })
    });
    let mut articles = own.collect::<Result<Vec<_>, _>>()?;
    // The runs of a campaign stand behind its result, and a comparison before what it compares.
    let place = if is_many { articles.len() } else { 0 };
    articles.splice(place..place, several);
    Ok(articles)
}

fn source_measurement(source: PageSource<'_>) -> Option<(&str, &Measurement)> {
    match &source.document.content {
        Content::Measurement { measurement, .. }
        | Content::Diagnosis {
            measurement: Some(measurement),
            ..
        } => Some((source.name, measurement)),
        Content::SweepRun { sweep_run } => Some((source.name, sweep_run.measurement.as_ref()?)),
        _ => None,
    }
}

fn source_article(source: PageSource<'_>) -> Option<Article> {
    let article = match &source.document.content {
        Content::Experiment { experiment } => experiment::experiment_article(experiment),
        Content::Measurement { measurement, .. } => transfer::transfer_article(measurement),
        Content::Diagnosis {
            measurement,
            diagnosis,
        } => transfer::diagnosis_article(measurement.as_deref(), diagnosis)?,
        Content::Ramp { ramp } => transfer::ramp_article(ramp),
        Content::Lab { lab } => lab::lab_article(lab),
        Content::Grid { grid } => lab::grid_article(grid),
        Content::Simulations { simulations } => simulation::simulations_article(simulations),
        Content::WhatIf { what_if } => simulation::what_if(what_if),
        Content::Capture { capture } => capture::capture_article(capture),
        Content::Sweep { sweep } => sweep::sweep_article(sweep),
        Content::Programs { programs } => programs::programs_article(programs),
        Content::SweepRun { sweep_run } => {
            transfer::transfer_article(sweep_run.measurement.as_ref()?)
        }
        Content::Difference { difference } => difference::difference_article(difference),
        Content::History { history } => history::history_article(history),
        Content::Stored { stored } => runs::stored_article(stored),
        _ => return None,
    };
    Some(Article {
        source: source.name.to_owned(),
        ..article
    })
}

/// The result of one document.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Article {
    /// The file.
    source: String,
    /// The command, and when and between whom it was measured.
    origin: String,
    /// The finding.
    headline: String,
    /// Sentences below it: the verdict, what is wrong.
    sentences: Vec<String>,
    /// The most important figures, each with what it is.
    facts: Vec<(String, String)>,
    sections: Vec<PageSection>,
}

/// A finding with its chart.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PageSection {
    /// The finding.
    title: String,
    /// Units and method.
    method: String,
    view: SectionView,
}

/// The form in which a section shows its figures.
#[derive(Debug, Clone, PartialEq)]
enum SectionView {
    Plot(Plot),
    Rows(RowChart),
    Heat(HeatMap),
    Table(FigureTable),
}

impl PageSection {
    fn new(title: impl Into<String>, method: &str, view: impl Into<SectionView>) -> Self {
        Self {
            title: title.into(),
            method: method.to_owned(),
            view: view.into(),
        }
    }
}

impl From<Plot> for SectionView {
    fn from(plot: Plot) -> Self {
        Self::Plot(plot)
    }
}

impl From<RowChart> for SectionView {
    fn from(rows: RowChart) -> Self {
        Self::Rows(rows)
    }
}

impl From<HeatMap> for SectionView {
    fn from(map: HeatMap) -> Self {
        Self::Heat(map)
    }
}

impl From<FigureTable> for SectionView {
    fn from(figures: FigureTable) -> Self {
        Self::Table(figures)
    }
}

/// Returns those of these sections that there are.
fn known_sections(sections: impl IntoIterator<Item = Option<PageSection>>) -> Vec<PageSection> {
    sections.into_iter().flatten().collect()
}

/// Returns a table with these heads, a `|` between two, without the columns that are empty. A unit
/// that all cells of a column have stands in its head.
fn compact_table<const N: usize>(
    heads: &str,
    rows: impl IntoIterator<Item = [String; N]>,
) -> FigureTable {
    let mut heads: Vec<String> = heads.split('|').map(str::to_owned).collect();
    let mut rows: Vec<[String; N]> = rows.into_iter().collect();
    for (column, head) in heads.iter_mut().enumerate() {
        let Some(unit) = common_unit(rows.iter().map(|row| row[column].as_str())) else {
            continue;
        };
        for row in &mut rows {
            row[column].truncate(row[column].len().saturating_sub(unit.len() + 1));
        }
        *head = format!("{head}, {unit}");
    }
    let used: Vec<usize> = (0..N)
        .filter(|column| rows.is_empty() || rows.iter().any(|row| !row[*column].is_empty()))
        .collect();
    FigureTable {
        heads: used_cells(&heads, &used),
        rows: rows.iter().map(|row| used_cells(row, &used)).collect(),
    }
}

fn used_cells(cells: &[String], used: &[usize]) -> Vec<String> {
    used.iter().map(|column| cells[*column].clone()).collect()
}

/// Returns a figure with what it is.
fn fact(figure: impl Display, meaning: impl Into<String>) -> (String, String) {
    (figure.to_string(), meaning.into())
}

/// Returns a figure as text, nothing of one that is not known.
fn or_empty<T: ToString>(figure: Option<T>) -> String {
    figure.map_text(|figure| figure.to_string())
}

/// Returns the different ones of `items`, each with its number, the most frequent first.
fn count_each<T: PartialEq>(items: impl IntoIterator<Item = T>) -> Vec<(T, u64)> {
    let mut counts: Vec<(T, u64)> = Vec::new();
    for item in items {
        match counts.iter_mut().find(|(known, _)| *known == item) {
            Some((_, count)) => *count += 1,
            None => counts.push((item, 1)),
        }
    }
    counts.sort_by_key(|(_, count)| Reverse(*count));
    counts
}

/// Returns the largest share in percent, 0 without any.
fn max_percent<'s, X: 's>(shares: impl IntoIterator<Item = &'s (X, Ratio)>) -> f64 {
    let percents = shares.into_iter().map(|(_, share)| share.as_percent());
    percents.fold(0.0, f64::max)
}

/// Returns the unit of several cells that are all numbers with the same one, or empty.
fn common_unit<'c>(cells: impl Iterator<Item = &'c str>) -> Option<String> {
    let filled: Vec<&str> = cells.filter(|cell| !cell.is_empty()).collect();
    let units = filled.iter().map(|cell| {
        cell.rsplit_once(' ')
            .filter(|(number, _)| number.parse::<f64>().is_ok())
    });
    let units: Vec<&str> = units
        .map(|parts| parts.map(|(_, unit)| unit))
        .collect::<Option<_>>()?;
    let (first, rest) = units.split_first()?;
    (!rest.is_empty() && rest.iter().all(|unit| unit == first)).then(|| (*first).to_owned())
}
