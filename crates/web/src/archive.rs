//! The archive, as pages ask it: one connection that is opened again when it breaks.

use std::sync::{Arc, Mutex};

use fullpipe_record::{Document, StoredDocument};
use fullpipe_store::{ArchiveLocation, Store, StoreError};
use fullpipe_sys::lock;
use http::StatusCode;
use tokio::task::spawn_blocking;

use crate::answer::Refusal;

/// The archive of a server.
#[derive(Clone)]
pub(crate) struct Archive {
    location: ArchiveLocation,
    opened: Arc<Mutex<Option<Store>>>,
}

impl Archive {
    pub(crate) fn new(location: ArchiveLocation) -> Self {
        Self {
            location,
            opened: Arc::default(),
        }
    }

    /// Returns what `ask` finds in the archive. After a failure of the database it is opened again
    /// by the next request.
    ///
    /// # Errors
    /// Fails if there is no archive, if it cannot be read now, or if `ask` refuses.
    pub(crate) async fn ask<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&mut Store) -> Result<T, ArchiveRefusal> + Send + 'static,
    ) -> Result<T, Refusal> {
        let archive = self.clone();
        let asked = spawn_blocking(move || archive.ask_opened(ask)).await;
        asked.unwrap_or_else(|_| {
            Err(Refusal::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                "the request could not be answered",
            ))
        })
    }

    fn ask_opened<T>(
        &self,
        ask: impl FnOnce(&mut Store) -> Result<T, ArchiveRefusal>,
    ) -> Result<T, Refusal> {
        let mut opened = lock(&self.opened);
        // One that panics half way leaves none behind.
        let mut store = match opened.take() {
            Some(store) => store,
            None => Store::open(&self.location).map_err(|error| refusal_of_store(&error))?,
        };
        let answered = ask(&mut store);
        if !matches!(&answered, Err(ArchiveRefusal::Store(error)) if is_broken(error)) {
            *opened = Some(store);
        }
        answered.map_err(|refused| match refused {
            ArchiveRefusal::Store(error) => refusal_of_store(&error),
            ArchiveRefusal::Other(refusal) => refusal,
        })
    }
}

/// Why the archive has no answer.
pub(crate) enum ArchiveRefusal {
    Store(StoreError),
    Other(Refusal),
}

impl From<StoreError> for ArchiveRefusal {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<Refusal> for ArchiveRefusal {
    fn from(refusal: Refusal) -> Self {
        Self::Other(refusal)
    }
}

/// Returns true unless the question was wrong, and the database is well.
fn is_broken(error: &StoreError) -> bool {
    status_of_store(error) == StatusCode::SERVICE_UNAVAILABLE
}

fn status_of_store(error: &StoreError) -> StatusCode {
    match error {
        StoreError::Unknown(_) => StatusCode::NOT_FOUND,
        StoreError::Removed(_) => StatusCode::GONE,
        StoreError::Ambiguous(_) | StoreError::UnknownKind { .. } => StatusCode::BAD_REQUEST,
        StoreError::Damaged { .. } => StatusCode::INTERNAL_SERVER_ERROR,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    }
}

fn refusal_of_store(error: &StoreError) -> Refusal {
    Refusal::new(status_of_store(error), error.to_string())
}

/// Reads a document of fullpipe with its head.
///
/// # Errors
/// Fails if there is none, or if it is one of another program.
pub(crate) fn read_document(
    store: &mut Store,
    id: &str,
) -> Result<(StoredDocument, Document), ArchiveRefusal> {
    let head = store.find_document(id)?;
    let body = store.document_body(&head)?;
    let document = Document::from_json(&body).map_err(|_| {
        Refusal::bad_request(format!(
            "document {} is one of {}, which no page can show",
            head.id, head.program
        ))
    })?;
    Ok((head, document))
}
