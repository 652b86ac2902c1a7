//! Two documents beside each other: the page of `diff`.

use fullpipe_experiment::{NamedRuns, comparability_faults, compare_samples};
use fullpipe_record::{Content, DifferenceReport, Document, Measurement, StoredDocument};
use fullpipe_report::{PageSource, page_content};

use super::measurements::short_time;
use super::shell::{NavigationPage, whole_page};
use crate::answer::Refusal;

/// Returns the page of the difference between two documents, and of both.
///
/// # Errors
/// Fails if one has no measurement, or none that is valid.
pub(crate) fn comparison_page([a, b]: [(StoredDocument, Document); 2]) -> Result<String, Refusal> {
    let names = [&a.0, &b.0].map(|head| format!("{} {}", short_time(&head.started), head.peer));
    let measured = [measurement_of(&a)?, measurement_of(&b)?];
    let incomparable = comparability_faults(&measured[..1], &measured[1..]);
    let mut names_left = names.clone().into_iter();
    let samples = measured.map(|measurement| NamedRuns {
        name: names_left.next().unwrap_or_default(),
        measurements: vec![measurement],
    });
    let compared =
        compare_samples(samples).map_err(|error| Refusal::bad_request(error.to_string()))?;
    let difference = Document::new(Content::Difference {
        difference: Box::new(DifferenceReport {
            incomparable,
            ..compared
        }),
    });
    let sources = [(&*names[0], &a.1), (&*names[1], &b.1), ("", &difference)];
    let sources = sources.map(|(name, document)| PageSource { name, document });
    let shown = page_content(&sources[2..])
        .and_then(|difference| Ok((difference, page_content(&sources[..2])?)))
        .map_err(|error| Refusal::bad_request(error.to_string()))?;
    let (difference, both) = shown;
    Ok(whole_page(
        &difference.title,
        Some(NavigationPage::Measurements),
        &(difference.body + &both.body),
    ))
}

fn measurement_of((head, document): &(StoredDocument, Document)) -> Result<Measurement, Refusal> {
    let measurement = document.content.measurement().cloned();
    measurement.ok_or_else(|| {
        Refusal::bad_request(format!(
            "document {} is a {} and has no measurement to compare",
            head.id, head.kind
        ))
    })
}
