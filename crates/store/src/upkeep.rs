//! Checks of an archive, and the removal of what is old.

use fullpipe_record::{ArchiveCheck, ArchiveThinned, DamagedDocument, StoredDocument};
use fullpipe_units::ByteCount;
use jiff::Timestamp;
use serde_json::Value as Json;

use crate::columns::{RowReader, facts_row};
use crate::engine::{DatabaseEngine, DatabaseValue, EngineResult};
use crate::import::facts_of;
use crate::store::{compress_body, insert_facts};
use crate::{DocumentFilter, Store, StoreError};

/// Keys of the lists of samples in documents of fullpipe.
const SAMPLES: [&str; 4] = [
    "samples",
    "sender_samples",
    "receiver_samples",
    "processors",
];

impl Store {
    /// Reads every document and derives its facts again; with `repair`, facts that differ are
    /// replaced. Nothing else is changed: a damaged document remains as it is.
    ///
    /// # Errors
    /// Fails if the database refuses.
    pub fn check_documents(&mut self, repair: bool) -> Result<ArchiveCheck, StoreError> {
        let mut check = ArchiveCheck {
            database: self.database_faults(),
            repaired: repair,
            ..ArchiveCheck::default()
        };
        for document in self.list_documents(&DocumentFilter::default())? {
            check.documents += 1;
            match self.document_body(&document) {
                Ok(body) if !document.thinned && self.is_stale(&document, &body, repair)? => {
                    check.stale += 1;
                }
                Ok(_) | Err(StoreError::Removed(_)) => {}
                Err(StoreError::Damaged { id, why }) => {
                    check.damaged.push(DamagedDocument { id, why });
                }
                Err(error) => check.damaged.push(DamagedDocument {
                    id: document.id.clone(),
                    why: error.to_string(),
                }),
            }
        }
        Ok(check)
    }

    /// Returns what is wrong with the tables. A database that is damaged may not even carry out its
    /// check.
    fn database_faults(&mut self) -> Vec<String> {
        let mut faults = self
            .engine
            .own_check()
            .unwrap_or_else(|error| vec![error.cause]);
        faults.extend(
            self.find_stray_rows()
                .unwrap_or_else(|error| Some(error.to_string())),
        );
        faults
    }

    /// Returns a clause with the number of bodies and facts that belong to no document, if there
    /// are any.
    fn find_stray_rows(&mut self) -> Result<Option<String>, StoreError> {
        let (bodies, facts) = (self.stray_row_count("body")?, self.stray_row_count("fact")?);
        let words = format!("bodies that belong to no document: {bodies}, facts: {facts}");
        Ok((bodies + facts > 0).then_some(words))
    }

    fn stray_row_count(&mut self, table: &str) -> Result<u64, StoreError> {
        let document = format!("SELECT 1 FROM document WHERE document.id = {table}.document");
        self.read_count(&format!(
            "SELECT count(*) FROM {table} WHERE NOT EXISTS ({document})"
        ))
    }

    /// Returns true if the facts of a document differ from those that its body has. With `repair`,
    /// they are replaced.
    fn is_stale(
        &mut self,
        document: &StoredDocument,
        body: &[u8],
        repair: bool,
    ) -> Result<bool, StoreError> {
        let stored = document.facts.iter().map(facts_row);
        let Some(derived) = facts_of(body).filter(|own| stored.ne(own.iter().map(facts_row)))
        else {
            return Ok(false);
        };
        if repair {
            self.write(|engine| {
                engine.query(
                    "DELETE FROM fact WHERE document = $1",
                    &[document.id.as_str().into()],
                )?;
                insert_facts(engine, &document.id, &derived)
            })?;
        }
        Ok(true)
    }

    /// Removes the samples of documents of fullpipe that started before `samples`, and the bodies
    /// of all documents that started before `bodies`. Facts remain.
    ///
    /// # Errors
    /// Fails if the archive is of a newer program, or if the database refuses; what was removed by
    /// then stays removed.
    pub fn thin_documents(
        &mut self,
        samples: Option<Timestamp>,
        bodies: Option<Timestamp>,
    ) -> Result<ArchiveThinned, StoreError> {
        let mut thinned = ArchiveThinned::default();
        for document in self
            .documents_before(bodies)?
            .into_iter()
            .filter(|document| !document.blake3.is_empty())
        {
            let size = self.packed_size(&document.id)?;
            self.write(|engine| remove_body(engine, &document.id))?;
            thinned.bodies += 1;
            thinned.freed += size;
        }
        for document in self
            .documents_before(samples)?
            .into_iter()
            .filter(|document| !document.thinned)
        {
            // A damaged document is left as it is.
            let Some(short) = self
                .document_body(&document)
                .ok()
                .and_then(|body| without_samples(&body))
            else {
                continue;
            };
            let (before, after) = (self.packed_size(&document.id)?, compress_body(&short));
            thinned.samples += 1;
            thinned.freed += before.saturating_sub(ByteCount::new(after.len() as u64));
            self.write(|engine| replace_body(engine, &document.id, &short, after))?;
        }
        if thinned.samples + thinned.bodies > 0 {
            self.engine
                .release_space()
                .map_err(|error| self.database_error("shrink", error))?;
        }
        Ok(thinned)
    }

    fn documents_before(
        &mut self,
        than: Option<Timestamp>,
    ) -> Result<Vec<StoredDocument>, StoreError> {
        than.map_or(Ok(Vec::new()), |before| {
            self.list_documents(&DocumentFilter {
                before: Some(before),
                ..DocumentFilter::default()
            })
        })
    }

    fn packed_size(&mut self, id: &str) -> Result<ByteCount, StoreError> {
        let rows = self.read(
            "SELECT CAST(length(content) AS BIGINT) FROM body WHERE document = $1",
            &[id.into()],
        )?;
        let size = rows
            .into_iter()
            .next()
            .and_then(|row| RowReader::new(row).next_count());
        Ok(ByteCount::new(size.unwrap_or(0)))
    }
}

fn remove_body(engine: &mut dyn DatabaseEngine, id: &str) -> EngineResult {
    engine.query("DELETE FROM body WHERE document = $1", &[id.into()])?;
    engine
        .query(
            "UPDATE document SET blake3 = '', thinned = 1 WHERE id = $1",
            &[id.into()],
        )
        .map(drop)
}

fn replace_body(
    engine: &mut dyn DatabaseEngine,
    id: &str,
    body: &[u8],
    packed: Vec<u8>,
) -> EngineResult {
    let hash = blake3::hash(body).to_hex();
    engine.query(
        "UPDATE body SET content = $2 WHERE document = $1",
        &[id.into(), DatabaseValue::Blob(packed)],
    )?;
    engine
        .query(
            "UPDATE document SET blake3 = $2, thinned = 1 WHERE id = $1",
            &[id.into(), hash.as_str().into()],
        )
        .map(drop)
}

/// Returns a document of fullpipe without its samples; `None` for a document of another program,
/// which stays as it was written, and where there are no samples.
fn without_samples(body: &[u8]) -> Option<Vec<u8>> {
    let mut document: Json = serde_json::from_slice(body).ok()?;
    let is_own = document["schema"].is_u64() && document["kind"].is_string();
    (is_own && remove_samples(&mut document))
        .then(|| serde_json::to_vec(&document).ok())
        .flatten()
}

/// Empties the lists of samples; returns whether there were any.
fn remove_samples(value: &mut Json) -> bool {
    match value {
        // Of all of them, not up to the first that had some.
        Json::Array(values) => {
            values
                .iter_mut()
                .filter_map(|value| remove_samples(value).then_some(()))
                .count()
                > 0
        }
        Json::Object(fields) => fields.iter_mut().fold(false, |any, (name, value)| {
            let of_this = match value {
                Json::Array(samples) if SAMPLES.contains(&name.as_str()) => {
                    let had_some = !samples.is_empty();
                    samples.clear();
                    had_some
                }
                value => remove_samples(value),
            };
            of_this || any
        }),
        _ => false,
    }
}
