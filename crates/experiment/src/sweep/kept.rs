//! Sweeps in the archive: the plan, and a document for each run.

use fullpipe_record::{
    Content, Document, StoredDocument, SweepPlan, SweepReport, SweepRun, SweepRunRecord,
};
use fullpipe_stats::campaign::CampaignPlan;
use fullpipe_store::{DocumentFilter, Store, StoreError};
use thiserror::Error;

use super::run::sweep_report;

/// Kinds of the documents.
const PLAN: &str = "sweep-plan";
const RUN: &str = "sweep-run";

/// A sweep that was kept.
#[derive(Debug, Clone, PartialEq)]
pub struct KeptSweep {
    /// Plan of the sweep.
    pub plan: SweepPlan,
    /// Runs of the sweep so far.
    pub runs: Vec<SweepRun>,
}

/// Why a sweep was not read.
#[derive(Debug, Error)]
pub enum KeptError {
    /// The archive cannot be read, or has no such document.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The archive has no sweep at all.
    #[error("no sweep is kept in the archive")]
    Nothing,
    /// The document is of another kind.
    #[error("document {id} is no {what}")]
    Other {
        /// Identifier of the document.
        id: String,
        /// The kind of document that it should be.
        what: &'static str,
    },
}

/// Runs on their way to the archive.
///
/// One that could not be started waits for a later one that was: if none is, as where the server is
/// gone, a sweep that is resumed tries these settings again.
#[derive(Debug, Default)]
pub struct PendingRuns(Vec<SweepRunRecord>);

impl PendingRuns {
    /// Takes the next run. Returns the runs that are to be kept now, in their order.
    pub fn push_record(&mut self, record: SweepRunRecord) -> Vec<SweepRunRecord> {
        let was_started = record.measurement.is_some();
        self.0.push(record);
        if was_started {
            std::mem::take(&mut self.0)
        } else {
            Vec::new()
        }
    }

    /// Returns true if no run waits.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl KeptSweep {
    /// Reads the sweep whose plan has this identifier, or the end of it; without one, the sweep
    /// that began last. A run that is not there, as after a failure of the archive, ends it.
    ///
    /// # Errors
    /// Fails if there is none, or if a document cannot be read.
    pub fn find_sweep(store: &mut Store, id: Option<&str>) -> Result<Self, KeptError> {
        let head = match id {
            Some(id) => store.find_document(id)?,
            None => store
                .list_documents(&DocumentFilter {
                    limit: Some(1),
                    ..of_kind(PLAN)
                })?
                .pop()
                .ok_or(KeptError::Nothing)?,
        };
        let Content::SweepPlan { sweep_plan: plan } = read_content(store, &head, PLAN)? else {
            return wrong_content(&head, PLAN);
        };
        let runs = of_sweep(store, &plan.id)?;
        Ok(Self { plan: *plan, runs })
    }

    /// Returns the report of the runs so far.
    ///
    /// # Errors
    /// Fails with the reason if the plan is none that can be followed.
    pub fn into_report(self) -> Result<SweepReport, String> {
        let plan = CampaignPlan::new(self.plan)?;
        let started = self.runs.len();
        Ok(sweep_report(&plan, self.runs, started))
    }
}

/// Returns the runs of a sweep, in their order, up to the first that is missing.
fn of_sweep(store: &mut Store, sweep: &str) -> Result<Vec<SweepRun>, KeptError> {
    let mut records: Vec<SweepRunRecord> = Vec::new();
    for head in store.list_documents(&DocumentFilter {
        campaign: Some(sweep.to_owned()),
        ..of_kind(RUN)
    })? {
        let Content::SweepRun { sweep_run } = read_content(store, &head, RUN)? else {
            return wrong_content(&head, RUN);
        };
        records.push(*sweep_run);
    }
    records.sort_by_key(|record| record.number);
    let in_order = (0..)
        .zip(records)
        .take_while(|(number, record)| *number == record.number);
    Ok(in_order.map(|(_, record)| record.run).collect())
}

fn of_kind(kind: &str) -> DocumentFilter {
    DocumentFilter {
        kind: Some(kind.to_owned()),
        ..DocumentFilter::default()
    }
}

fn read_content(
    store: &mut Store,
    head: &StoredDocument,
    what: &'static str,
) -> Result<Content, KeptError> {
    let body = store.document_body(head)?;
    let document = Document::from_json(&body);
    document
        .map(|document| document.content)
        .or_else(|_| wrong_content(head, what))
}

fn wrong_content<T>(head: &StoredDocument, what: &'static str) -> Result<T, KeptError> {
    Err(KeptError::Other {
        id: head.id.clone(),
        what,
    })
}
