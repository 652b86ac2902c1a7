//! Results as a page with charts: one HTML file, or the same as text.
//!
//! A page begins with its finding. Each section has its own finding as its title, below it the method, a chart, and all
//! figures of the chart as a table.

mod capture;
mod course;
mod experiment;
mod html;
mod lab;
mod runs;
mod simulation;
mod text;
mod transfer;

use fullpipe_chart::{Figures, HeatMap, Plot, Rows};
use fullpipe_record::{Content, Document, Measurement};

/// A document, and the name of the file that has it.
#[derive(Debug, Clone, PartialEq)]
pub struct Source {
    /// Name of the file.
    pub name: String,
    /// The document.
    pub document: Document,
}

/// A document that no page can be made of.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name} has no result that a page can show; pages show what demo, measure, diagnose, lab, simulate and trace print with --json")]
pub struct PageError {
    name: String,
}

/// Returns a page of `sources` as one HTML file that requests nothing. The first 20 have an article each. Measurements
/// are compared before that, if there are several.
///
/// # Errors
/// If a document has no result that a page can show, such as settings of a host or an error.
pub fn html_page(sources: &[Source]) -> Result<String, PageError> {
    Ok(html::page(&articles(sources)?))
}

/// Returns the same as [`html_page`] as text of at most 80 columns.
///
/// # Errors
/// As [`html_page`].
pub fn text_page(sources: &[Source], style: crate::Style) -> Result<String, PageError> {
    Ok(articles(sources)?.iter().map(|article| text::article(article, style)).collect())
}

/// Sources with an article of their own.
const MAX_ARTICLES: usize = 20;

fn articles(sources: &[Source]) -> Result<Vec<Article>, PageError> {
    let measured: Vec<(&str, &Measurement)> = sources.iter().filter_map(measurement).collect();
    let several = (measured.len() > 1).then(|| runs::article(&measured));
    let own = sources.iter().map(|source| article(source).ok_or_else(|| PageError { name: source.name.clone() }));
    let own: Vec<Article> = own.collect::<Result<_, _>>()?;
    Ok(several.into_iter().chain(own.into_iter().take(MAX_ARTICLES)).collect())
}

fn measurement(source: &Source) -> Option<(&str, &Measurement)> {
    match &source.document.content {
        Content::Measurement { measurement } | Content::Diagnosis { measurement: Some(measurement), .. } => {
            Some((&source.name, measurement))
        }
        _ => None,
    }
}

fn article(source: &Source) -> Option<Article> {
    let article = match &source.document.content {
        Content::Experiment { experiment } => experiment::article(experiment),
        Content::Measurement { measurement } => transfer::article(measurement),
        Content::Diagnosis { measurement, diagnosis } => transfer::diagnosis(measurement.as_deref(), diagnosis)?,
        Content::Ramp { ramp } => transfer::ramp(ramp),
        Content::Lab { lab } => lab::article(lab),
        Content::Grid { grid } => lab::grid(grid),
        Content::Simulations { simulations } => simulation::article(simulations),
        Content::WhatIf { what_if } => simulation::what_if(what_if),
        Content::Capture { capture } => capture::article(capture),
        _ => return None,
    };
    Some(Article { source: source.name.clone(), ..article })
}

/// The result of one document.
#[derive(Debug, Clone, PartialEq, Default)]
struct Article {
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
    sections: Vec<Section>,
}

/// A finding with its chart.
#[derive(Debug, Clone, PartialEq)]
struct Section {
    /// The finding.
    title: String,
    /// Units and method.
    method: String,
    view: View,
}

/// The form in which a section shows its figures.
#[derive(Debug, Clone, PartialEq)]
enum View {
    Plot(Plot),
    Rows(Rows),
    Heat(HeatMap),
    Table(Figures),
}

impl Section {
    fn new(title: impl Into<String>, method: &str, view: impl Into<View>) -> Self {
        Self { title: title.into(), method: method.to_owned(), view: view.into() }
    }
}

impl From<Plot> for View {
    fn from(plot: Plot) -> Self {
        Self::Plot(plot)
    }
}

impl From<Rows> for View {
    fn from(rows: Rows) -> Self {
        Self::Rows(rows)
    }
}

impl From<HeatMap> for View {
    fn from(map: HeatMap) -> Self {
        Self::Heat(map)
    }
}

impl From<Figures> for View {
    fn from(figures: Figures) -> Self {
        Self::Table(figures)
    }
}

/// Returns a table with these heads.
fn figures<const N: usize>(heads: [&str; N], rows: Vec<[String; N]>) -> Figures {
    Figures { heads: heads.map(str::to_owned).to_vec(), rows: rows.into_iter().map(Vec::from).collect() }
}

#[cfg(test)]
mod tests;
