//! The tables of a fleet, by the same statements in SQLite and PostgreSQL.

mod announcements;
mod changes;
mod hosts;
mod incidents;
mod poll;
mod turns;

pub use announcements::{Announcement, WEBHOOK};
pub(crate) use changes::PairRow;
pub use hosts::{FleetHost, InviteError};
pub use incidents::{ChangedPair, FleetIncident};

use fullpipe_record::Direction;
use fullpipe_store::{RowReader, Store};

use crate::plan::{Slot, SlotPurpose};

/// Hosts, slots and what they have for themselves, in an archive.
pub struct FleetLedger<'s>(pub(crate) &'s mut Store);

impl<'s> FleetLedger<'s> {
    /// Returns the ledger in an archive.
    pub fn new(archive: &'s mut Store) -> Self {
        Self(archive)
    }
}

/// Columns of a slot, in the order of [`next_slot`].
const SLOT: &str = "id, client, server, direction, purpose, starts, ends, load";

/// Returns the slot of a row that begins with [`SLOT`]; `None` if a newer program wrote it.
fn next_slot(row: &mut RowReader) -> Option<Slot> {
    let [id, client, server, direction, purpose] = std::array::from_fn(|_| row.next_string());
    let [starts, ends] = [row.next_count(), row.next_count()];
    let load = row.next_string();
    Some(Slot {
        id,
        client,
        server,
        direction: [Direction::Upload, Direction::Download]
            .into_iter()
            .find(|known| known.name() == direction)?,
        purpose: SlotPurpose::from_name(&purpose)?,
        starts: starts?,
        ends: ends?,
        load: serde_json::from_str(&load).ok()?,
    })
}
