use fullpipe_store::{ArchiveTransaction, EngineResult, StoreError};
use fullpipe_units::{BitRate, Ratio, Span};

use super::changes::{PairRow, pair_rows, pair_states};
use super::{FleetHost, FleetLedger};
use crate::plan::{PairChange, PairGroup, PairState, Scope, group_pairs};
use crate::status::{ChangedPair, FleetIncident, time_words};

/// Pairs of an incident that are listed.
const MAX_PAIRS: usize = 500;

/// Seconds for which incidents that are over are kept.
const KEPT: u64 = 90 * 86_400;

/// Keeps the incidents that pairs show: those that go on, those that are new, and the end of
/// others.
pub(super) fn keep_incidents(
    archive: &mut ArchiveTransaction<'_>,
    hosts: &[FleetHost],
    rows: &[PairRow],
    now: u64,
) -> EngineResult {
    let states = pair_states(rows, now);
    let known = open_incidents(archive)?;
    let mut gone_on: Vec<Option<FleetIncident>> = vec![None; known.len()];
    for group in group_pairs(&states, &sites(hosts)) {
        let mut incident = describe_group(hosts, rows, &states, &group);
        let Some(place) = known.iter().position(|one| one.has_pair_of(&incident)) else {
            incident.id = incident_id(&incident);
            keep_incident(archive, &incident, true, now)?;
            continue;
        };
        match &mut gone_on[place] {
            Some(rest) => rest.changed.append(&mut incident.changed),
            empty => *empty = Some(known[place].continued(incident)),
        }
    }
    let parts: Vec<FleetIncident> = gone_on.iter().flatten().cloned().collect();
    for (mut known, now_on) in known.into_iter().zip(gone_on) {
        if let Some(incident) = now_on {
            keep_incident(archive, &incident, false, now)?;
            continue;
        }
        // One that turns out to be the same as another is not over: it is part of that.
        let whole = parts.iter().find(|other| other.has_pair_of(&known));
        known.joined = whole.map(|whole| whole.id.clone());
        end_incident(archive, known, now)?;
    }
    let oldest = now.saturating_sub(KEPT);
    let sql = "DELETE FROM fleet_incident WHERE changed < $1 AND ended IS NOT NULL";
    archive.query(sql, &[oldest.into()]).map(drop)
}

fn open_incidents(archive: &mut ArchiveTransaction<'_>) -> EngineResult<Vec<FleetIncident>> {
    let sql = "SELECT content FROM fleet_incident WHERE ended IS NULL ORDER BY since, id";
    let rows = archive.query(sql, &[])?;
    let read = rows
        .into_iter()
        .filter_map(|mut row| serde_json::from_str(&row.next_string()).ok());
    Ok(read.collect())
}

/// Returns the name that an incident has, whoever finds it.
fn incident_id(incident: &FleetIncident) -> String {
    let what = format!(
        "{}\n{}\n{:?}",
        incident.since,
        incident.cause,
        incident.pair_names()
    );
    let hash = blake3::derive_key("fullpipe 2026 incident of a fleet", what.as_bytes());
    uuid::Builder::from_custom_bytes(hash[..16].try_into().unwrap_or_default())
        .into_uuid()
        .to_string()
}

fn keep_incident(
    archive: &mut ArchiveTransaction<'_>,
    incident: &FleetIncident,
    is_new: bool,
    now: u64,
) -> EngineResult {
    let content = serde_json::to_string(incident).unwrap_or_default();
    let id = incident.id.as_str().into();
    let content = content.as_str().into();
    if is_new {
        archive.query(
            "INSERT INTO fleet_incident (id, since, changed, content, announced, claimed)
             VALUES ($1, $2, $3, $4, '', 0)
             ON CONFLICT (id) DO UPDATE SET ended = NULL, changed = excluded.changed, content = excluded.content",
            &[id, incident.since.into(), now.into(), content],
        )?;
    } else {
        let sql = "UPDATE fleet_incident SET since = $2, content = $3 WHERE id = $1";
        archive.query(sql, &[id, incident.since.into(), content])?;
    }
    Ok(())
}

/// Ends an incident. One that is part of another has nothing to announce any more.
fn end_incident(
    archive: &mut ArchiveTransaction<'_>,
    mut incident: FleetIncident,
    now: u64,
) -> EngineResult {
    incident.ended = Some(now);
    let announced = if incident.joined.is_some() {
        "'ended'"
    } else {
        "announced"
    };
    let content = serde_json::to_string(&incident).unwrap_or_default();
    archive.query(
        &format!(
            "UPDATE fleet_incident SET ended = $2, changed = $2, content = $3, claimed = 0,
             announced = {announced} WHERE id = $1"
        ),
        &[
            incident.id.as_str().into(),
            now.into(),
            content.as_str().into(),
        ],
    )?;
    Ok(())
}

/// Returns the place of the first host of the site of each host; one without a site is a site of
/// its own.
fn sites(hosts: &[FleetHost]) -> Vec<usize> {
    let first = |(place, host): (usize, &FleetHost)| {
        let site = &host.mesh.site;
        let same = hosts.iter().position(|other| other.mesh.site == *site);
        same.filter(|_| !site.is_empty()).unwrap_or(place)
    };
    hosts.iter().enumerate().map(first).collect()
}

fn describe_group(
    hosts: &[FleetHost],
    rows: &[PairRow],
    states: &[PairState],
    group: &PairGroup,
) -> FleetIncident {
    let name = |host: usize| hosts[host].mesh.name.clone();
    let site = |host: usize| {
        let site = hosts[host].mesh.site.clone();
        if site.is_empty() { name(host) } else { site }
    };
    let words = |scope: &Scope| scope.words(name, site);
    let changed = group.changed.iter().take(MAX_PAIRS).filter_map(|place| {
        let change = states[*place].change.as_ref()?;
        Some(changed_pair(hosts, &rows[*place], change))
    });
    let unchanged = group.unchanged.iter().take(MAX_PAIRS);
    FleetIncident {
        id: String::new(),
        sentence: format!(
            "{} since {}: {}",
            count_words(group, &words(&group.scope)),
            time_words(group.onset.1),
            group.cause
        ),
        cause: group.cause.clone(),
        after: group.onset.0,
        since: group.onset.1,
        ended: None,
        joined: None,
        changed: changed.collect(),
        unchanged: unchanged
            .map(|place| [rows[*place].sender, rows[*place].receiver].map(name))
            .collect(),
        unmeasured: group.unmeasured as u64,
        candidates: group.candidates.iter().map(words).collect(),
    }
}

/// Returns how many pairs changed: `all pairs into B`, `3 of 5 pairs into B`, `A to B`.
fn count_words(group: &PairGroup, scope: &str) -> String {
    let changed = group.changed.len();
    let known = changed + group.unchanged.len();
    match (changed, known == changed, group.unmeasured) {
        (1, true, 0) => format!("the pair {scope}"),
        (_, true, 0) => format!("all pairs {scope}"),
        (_, _, 0) => format!("{changed} of {known} pairs {scope}"),
        (_, _, left) => format!("{changed} of {known} pairs {scope} ({left} not measured yet)"),
    }
}

fn changed_pair(hosts: &[FleetHost], row: &PairRow, change: &PairChange) -> ChangedPair {
    let level = change.rate.as_ref();
    let trips = change.round_trips.as_ref();
    let last = row.runs.last.as_ref();
    ChangedPair {
        sender: hosts[row.sender].mesh.name.clone(),
        receiver: hosts[row.receiver].mesh.name.clone(),
        since: change.onset().1,
        rate: level
            .map(|level| BitRate::from_bps(level.value()))
            .or_else(|| last.map(|last| last.rate)),
        usual_rate: row.runs.usual_rate(),
        rtt: trips.map(|trips| Span::from_nanos(trips.value())),
        usual_rtt: trips.map(|trips| Span::from_nanos(trips.usual)),
        loss: change
            .losses
            .map(|losses| Ratio::new(losses.lost as f64 / losses.sent.max(1) as f64)),
        limit: change.limit.clone(),
        document: last.map(|last| last.document.clone()),
    }
}

impl FleetLedger<'_> {
    /// Returns the incidents that go on, and those that ended since a time in seconds since 1970,
    /// the newest first.
    ///
    /// # Errors
    /// Fails if the archive does.
    pub fn incidents(&mut self, since: u64) -> Result<Vec<FleetIncident>, StoreError> {
        let sql = "SELECT content FROM fleet_incident WHERE ended IS NULL OR changed >= $1
                   ORDER BY since DESC, id LIMIT 1000";
        let rows = self.0.query(sql, &[since.into()])?;
        Ok(rows
            .into_iter()
            .filter_map(|mut row| serde_json::from_str(&row.next_string()).ok())
            .collect())
    }

    /// Returns an incident.
    ///
    /// # Errors
    /// Fails if the archive does.
    pub fn incident(&mut self, id: &str) -> Result<Option<FleetIncident>, StoreError> {
        let sql = "SELECT content FROM fleet_incident WHERE id = $1";
        let rows = self.0.query(sql, &[id.into()])?;
        let content = rows.into_iter().next().map(|mut row| row.next_string());
        Ok(content.and_then(|content| serde_json::from_str(&content).ok()))
    }

    /// Returns what is known of all pairs of these hosts, and how each is otherwise at a time.
    pub(crate) fn pair_rows(
        &mut self,
        hosts: &[FleetHost],
        now: u64,
    ) -> Result<(Vec<PairRow>, Vec<PairState>), StoreError> {
        let rows = pair_rows(hosts, |sql| self.0.query(sql, &[]))?;
        let states = pair_states(&rows, now);
        Ok((rows, states))
    }
}
