use fullpipe_store::{NewDocument, Store, StoreError};

use crate::agent::AgentStorage;
use crate::plan::{AgentChanges, AgentSlot};

/// What an agent has on its disk: its slots beside its documents, in an archive of its own.
pub struct AgentDisk(Store);

impl AgentDisk {
    /// Returns the disk in an archive.
    pub fn new(archive: Store) -> Self {
        Self(archive)
    }

    /// Returns the bytes of a document.
    ///
    /// # Errors
    /// Fails if there is none, or if the archive cannot be read.
    pub fn document(&mut self, id: &str) -> Result<Vec<u8>, StoreError> {
        let head = self.0.find_document(id)?;
        self.0.document_body(&head)
    }
}

impl AgentStorage for AgentDisk {
    fn slots(&mut self) -> Result<Vec<AgentSlot>, StoreError> {
        let rows = self.0.query("SELECT content FROM fleet_order", &[])?;
        let contents = rows.into_iter().map(|mut row| row.next_string());
        Ok(contents
            .filter_map(|content| serde_json::from_str(&content).ok())
            .collect())
    }

    fn keep(
        &mut self,
        changes: &AgentChanges,
        document: Option<&NewDocument>,
    ) -> Result<(), StoreError> {
        if *changes == AgentChanges::default() && document.is_none() {
            return Ok(());
        }
        self.0.transact(|archive| {
            if let Some(document) = document {
                archive.keep_document(document)?;
            }
            for id in &changes.dropped {
                archive.query(
                    "DELETE FROM fleet_order WHERE slot = $1",
                    &[id.as_str().into()],
                )?;
            }
            for slot in &changes.kept {
                let id = slot.order.slot.id.as_str();
                let content = serde_json::to_string(slot).unwrap_or_default();
                archive.query(
                    "INSERT INTO fleet_order (slot, content) VALUES ($1, $2)
                     ON CONFLICT (slot) DO UPDATE SET content = excluded.content",
                    &[id.into(), content.as_str().into()],
                )?;
            }
            Ok(())
        })
    }
}
