use std::collections::HashMap;

use fullpipe_store::{ArchiveTransaction, EngineResult, StoreError};

use super::{FleetHost, FleetLedger};
use crate::plan::{BusyTimes, DuePair, MeshHost, MeshPlanner, PlannedSlot};

/// Seconds ahead for which slots are planned, and for which agents get theirs.
pub(super) const AHEAD: u64 = 3600;

/// Seconds before a slot begins within which it is no longer planned: both hosts must hear of it,
/// one after the other.
pub(super) const LEAD: u64 = 30;

/// Seconds without a word from a host after which it has no turns.
const SILENT: u64 = 2 * 3600;

/// Seconds for which what a slot had for itself is kept.
const CLAIMS_KEPT: u64 = 600;

impl FleetLedger<'_> {
    /// Plans the turns of the next hour, and returns how many slots that adds. Any number of
    /// controllers may do so.
    ///
    /// # Errors
    /// Fails if the archive does.
    pub fn plan_turns(&mut self, now: u64) -> Result<usize, StoreError> {
        let settings = self.settings()?;
        let hosts = self.hosts()?;
        let (mesh, turns) = live_mesh(&hosts, now);
        if mesh.len() < 2 {
            return Ok(0);
        }
        let until = now + AHEAD;
        let every = settings.every.as_secs_f64() as u64;
        self.0.transact(|archive| {
            archive.lock_tables()?;
            let busy = busy_times(archive, now)?;
            let pairs = due_pairs(archive, &mesh, every, until)?;
            let mut planner = MeshPlanner::new(&mesh, &settings, busy, &turns);
            let planned = planner.plan_turns(&pairs, now + LEAD, until);
            for slot in &planned {
                insert_slot(archive, slot)?;
                note_turn(archive, slot)?;
            }
            archive.query(
                "DELETE FROM fleet_claim WHERE ends < $1",
                &[now.saturating_sub(CLAIMS_KEPT).into()],
            )?;
            Ok(planned.len())
        })
    }
}

/// Returns the hosts that were heard of late, and when each had its newest turn.
pub(super) fn live_mesh(hosts: &[FleetHost], now: u64) -> (Vec<MeshHost>, Vec<u64>) {
    let live = hosts
        .iter()
        .filter(|host| host.revoked.is_none() && host.seen.saturating_add(SILENT) > now);
    live.map(|host| (host.mesh.clone(), host.turn)).unzip()
}

pub(super) fn busy_times(
    archive: &mut ArchiveTransaction<'_>,
    now: u64,
) -> EngineResult<BusyTimes> {
    let sql = "SELECT resource, starts, ends FROM fleet_claim WHERE ends > $1";
    let mut busy = BusyTimes::default();
    for mut row in archive.query(sql, &[now.into()])? {
        let resource = row.next_string();
        if let (Some(starts), Some(ends)) = (row.next_count(), row.next_count()) {
            busy.take(&resource, starts, ends);
        }
    }
    Ok(busy)
}

/// Returns the pairs of these hosts that are due until a time.
fn due_pairs(
    archive: &mut ArchiveTransaction<'_>,
    hosts: &[MeshHost],
    every: u64,
    until: u64,
) -> EngineResult<Vec<DuePair>> {
    let places: HashMap<&str, usize> = hosts
        .iter()
        .enumerate()
        .map(|(place, host)| (host.name.as_str(), place))
        .collect();
    let sql = "SELECT sender, receiver, planned FROM fleet_pair WHERE planned <= $1";
    let rows = archive.query(sql, &[until.saturating_sub(every).into()])?;
    let pairs = rows.into_iter().filter_map(|mut row| {
        let [sender, receiver] = [(); 2].map(|()| row.next_string());
        let planned = row.next_count()?;
        Some(DuePair {
            due: if planned == 0 { 0 } else { planned + every },
            sender: *places.get(sender.as_str())?,
            receiver: *places.get(receiver.as_str())?,
        })
    });
    Ok(pairs.collect())
}

/// Inserts a slot with what it has for itself.
///
/// # Errors
/// Fails if the database does, also because another slot has some of that.
pub(super) fn insert_slot(
    archive: &mut ArchiveTransaction<'_>,
    planned: &PlannedSlot,
) -> EngineResult {
    let slot = &planned.slot;
    let load = serde_json::to_string(&slot.load).unwrap_or_default();
    archive.query(
        "INSERT INTO fleet_slot (id, client, server, direction, purpose, starts, ends, load, why, document)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, '', '')",
        &[
            slot.id.as_str().into(),
            slot.client.as_str().into(),
            slot.server.as_str().into(),
            slot.direction.name().into(),
            slot.purpose.name().into(),
            slot.starts.into(),
            slot.ends.into(),
            load.as_str().into(),
        ],
    )?;
    for resource in &planned.resources {
        archive.query(
            "INSERT INTO fleet_claim (slot, resource, resource_key, starts, ends) VALUES ($1, $2, $3, $4, $5)",
            &[
                slot.id.as_str().into(),
                resource.as_str().into(),
                resource_key(resource).into(),
                slot.starts.into(),
                slot.ends.into(),
            ],
        )?;
    }
    Ok(())
}

/// Returns the number by which the database knows a resource.
fn resource_key(resource: &str) -> i64 {
    let hash = blake3::hash(resource.as_bytes());
    let first = hash.as_bytes().first_chunk().copied().unwrap_or_default();
    // The end of a range that has it alone is one more.
    i64::from_le_bytes(first) >> 1
}

/// Notes when a pair and its hosts had their turn.
fn note_turn(archive: &mut ArchiveTransaction<'_>, planned: &PlannedSlot) -> EngineResult {
    let slot = &planned.slot;
    let (sender, receiver) = slot.ends_of_data();
    archive.query(
        "UPDATE fleet_pair SET planned = $3 WHERE sender = $1 AND receiver = $2",
        &[sender.into(), receiver.into(), slot.starts.into()],
    )?;
    archive.query(
        "UPDATE fleet_host SET turn = $3 WHERE name IN ($1, $2) AND turn < $3",
        &[sender.into(), receiver.into(), slot.starts.into()],
    )?;
    Ok(())
}
