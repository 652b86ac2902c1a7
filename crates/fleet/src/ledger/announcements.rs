use fullpipe_store::StoreError;
use serde_json::{Value, json};

use super::FleetLedger;
use super::incidents::{FleetIncident, rfc3339};

/// Name of the setting with the address to which incidents are announced.
pub const WEBHOOK: &str = "webhook";

/// Seconds after which another controller may announce what one has claimed and not confirmed: it
/// has died, or the other end does not answer.
const CLAIMED: u64 = 60;

/// Seconds for which what could not be announced is tried again.
const TRIED: u64 = 7 * 86_400;

/// Pairs that an announcement lists.
const MAX_PAIRS: usize = 100;

/// A message that an incident is new, or that it is over.
#[derive(Debug, Clone, PartialEq)]
pub struct Announcement {
    /// Where it goes.
    pub url: String,
    /// What is sent, as JSON.
    pub body: String,
    incident: String,
    /// `open` or `ended`.
    state: &'static str,
}

impl FleetLedger<'_> {
    /// Returns what is to be announced now. What one controller gets, no other gets for a minute:
    /// within that, it is to be sent, and [`FleetLedger::note_announced`] told.
    ///
    /// # Errors
    /// Fails if the archive does.
    pub fn incidents_to_announce(&mut self, now: u64) -> Result<Vec<Announcement>, StoreError> {
        let Some(url) = self.setting(WEBHOOK)?.filter(|url| !url.is_empty()) else {
            return Ok(Vec::new());
        };
        let sql = "UPDATE fleet_incident SET claimed = $1
                   WHERE changed > $2 AND claimed < $3
                   AND announced <> CASE WHEN ended IS NULL THEN 'open' ELSE 'ended' END
                   RETURNING content";
        let values = [
            now.into(),
            now.saturating_sub(TRIED).into(),
            now.saturating_sub(CLAIMED).into(),
        ];
        let rows = self.0.transact(|archive| archive.query(sql, &values))?;
        let incidents = rows
            .into_iter()
            .filter_map(|mut row| serde_json::from_str(&row.next_string()).ok());
        Ok(incidents
            .map(|incident: FleetIncident| Announcement {
                url: url.clone(),
                body: announcement_body(&incident).to_string(),
                state: incident_state(&incident),
                incident: incident.id,
            })
            .collect())
    }

    /// Notes that an announcement has arrived: it is not made again.
    ///
    /// # Errors
    /// Fails if the archive does.
    pub fn note_announced(&mut self, announcement: &Announcement) -> Result<(), StoreError> {
        let sql = "UPDATE fleet_incident SET announced = $2, claimed = 0 WHERE id = $1";
        let values = [
            announcement.incident.as_str().into(),
            announcement.state.into(),
        ];
        self.0
            .transact(|archive| archive.query(sql, &values).map(drop))
    }
}

fn incident_state(incident: &FleetIncident) -> &'static str {
    if incident.ended.is_some() {
        "ended"
    } else {
        "open"
    }
}

/// Returns what is said of an incident; `text` is what chat programs show.
fn announcement_body(incident: &FleetIncident) -> Value {
    let over = if incident.ended.is_some() {
        "Over: "
    } else {
        ""
    };
    let pairs: Vec<_> = incident.changed.iter().take(MAX_PAIRS).collect();
    json!({
        "text": format!("{over}{}", incident.sentence),
        "incident": incident.id,
        "state": incident_state(incident),
        "since": rfc3339(incident.since),
        "ended": incident.ended.map(rfc3339),
        "cause": incident.cause,
        "candidates": incident.candidates,
        "pairs": pairs,
        "pairs_in_all": incident.changed.len(),
        "unchanged": incident.unchanged.len(),
        "unmeasured": incident.unmeasured,
    })
}
