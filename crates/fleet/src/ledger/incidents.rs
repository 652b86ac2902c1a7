use fullpipe_store::{ArchiveTransaction, EngineResult, StoreError};
use fullpipe_units::{BitRate, Ratio, Span};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::changes::{PairRow, pair_rows, pair_states};
use super::{FleetHost, FleetLedger};
use crate::plan::{PairChange, PairGroup, PairState, Scope, group_pairs};

/// Pairs of an incident that are listed.
const MAX_PAIRS: usize = 500;

/// Seconds for which incidents that are over are kept.
const KEPT: u64 = 90 * 86_400;

/// Pairs that are otherwise for one reason.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FleetIncident {
    /// Its name.
    pub id: String,
    /// Which pairs, since when, and what of them.
    pub sentence: String,
    /// What is otherwise: `round trips`, `loss`, or the limit of the rates.
    pub cause: String,
    /// When the first pair was last as usual.
    pub after: u64,
    /// When the first was seen to be otherwise.
    pub since: u64,
    /// When all were as usual again; `None` while it goes on.
    pub ended: Option<u64>,
    /// The incident that it turned out to be part of.
    pub joined: Option<String>,
    /// The pairs that are otherwise.
    pub changed: Vec<ChangedPair>,
    /// Pairs of the same place that were as usual since then: sender and receiver.
    pub unchanged: Vec<[String; 2]>,
    /// Number of pairs of the same place that nobody has measured since then.
    pub unmeasured: u64,
    /// Places that would explain it equally well.
    pub candidates: Vec<String>,
}

/// A pair of an incident.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ChangedPair {
    /// The sending host.
    pub sender: String,
    /// The receiving host.
    pub receiver: String,
    /// When it was first otherwise.
    pub since: u64,
    /// Its rate now.
    pub rate: Option<BitRate>,
    /// Its usual rate.
    pub usual_rate: Option<BitRate>,
    /// Its round trip without load now, if that is otherwise.
    pub rtt: Option<Span>,
    /// Its usual one.
    pub usual_rtt: Option<Span>,
    /// Share of echoes that are lost, if more are than usual.
    pub loss: Option<Ratio>,
    /// What limits its rate.
    pub limit: Option<String>,
    /// Document of its newest run.
    pub document: Option<String>,
}

impl FleetIncident {
    /// Returns the pairs that are otherwise.
    pub(super) fn pair_names(&self) -> Vec<(&str, &str)> {
        let pairs = self.changed.iter();
        pairs
            .map(|pair| (pair.sender.as_str(), pair.receiver.as_str()))
            .collect()
    }

    /// Returns the incident as it goes on: with what is said of it now, or, once pairs are as usual
    /// again, with what was said of all and the pairs that are left.
    pub(super) fn continued(&self, now: Self) -> Self {
        let own = self.pair_names();
        if now.pair_names().iter().all(|pair| own.contains(pair)) {
            let changed = now.changed;
            return Self {
                changed,
                ..self.clone()
            };
        }
        Self {
            id: self.id.clone(),
            since: self.since.min(now.since),
            ..now
        }
    }

    /// Returns true if a pair is in both.
    pub(super) fn has_pair_of(&self, other: &Self) -> bool {
        let own = self.pair_names();
        other.pair_names().iter().any(|pair| own.contains(pair))
    }
}

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

/// Returns a time in seconds since 1970 as a day and a minute in UTC: `2026-11-30 14:05 UTC`.
fn time_words(seconds: u64) -> String {
    let text = rfc3339(seconds);
    format!("{} {} UTC", &text[..10], &text[11..16])
}

/// Returns a time in seconds since 1970 as RFC 3339 has it.
pub(super) fn rfc3339(seconds: u64) -> String {
    let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
    let time = Timestamp::from_second(seconds).unwrap_or(Timestamp::UNIX_EPOCH);
    time.to_string()
}
