//! A fleet at a glance, for people and programs.

use std::collections::{BTreeMap, HashMap};

use fullpipe_store::StoreError;
use fullpipe_units::BitRate;
use serde::Serialize;

use crate::FleetLedger;
use crate::ledger::{FleetHost, FleetIncident, PairRow};
use crate::plan::PairState;

const DAY: u64 = 86_400;

/// Seconds without a word from a host after which nothing is known of it.
const SILENT: u64 = 1800;

/// Seconds for which incidents that are over are shown.
const SHOWN: u64 = 7 * DAY;

/// A fleet at a time. Times are in seconds since 1970.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FleetStatus {
    /// When this was so.
    pub at: u64,
    /// Incidents that go on, and those of a week that are over, the newest first.
    pub incidents: Vec<FleetIncident>,
    /// The hosts by their names.
    pub hosts: Vec<HostStatus>,
    /// Slots of a day by how they ended; `open` are those that have not.
    pub slots: BTreeMap<String, u64>,
    /// The ordered pairs.
    pub pairs: Vec<PairStatus>,
}

/// A host of the fleet.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HostStatus {
    /// Its name.
    pub name: String,
    /// Its site.
    pub site: String,
    /// When it last asked for its slots; 0 if it never did.
    pub seen: u64,
    /// True if it was not heard of for half an hour.
    pub is_silent: bool,
    /// Milliseconds by which the controller's clock was ahead of its clock.
    pub offset_ms: i64,
    /// Version of its program.
    pub program: String,
    /// Slots of a day in which it connects, by how they ended.
    pub slots: BTreeMap<String, u64>,
}

/// How an ordered pair is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PairStatusKind {
    /// It is otherwise than usual.
    Changed,
    /// There is no result that says how it is now.
    Unknown,
    /// There are too few runs to say what is usual.
    New,
    /// It is as usual.
    Usual,
}

impl PairStatusKind {
    /// Returns its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Changed => "changed",
            Self::Unknown => "unknown",
            Self::New => "new",
            Self::Usual => "usual",
        }
    }
}

/// An ordered pair.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PairStatus {
    /// The sending host.
    pub sender: String,
    /// The receiving host.
    pub receiver: String,
    /// How it is.
    pub kind: PairStatusKind,
    /// Why nothing is known of it.
    pub why: Option<&'static str>,
    /// Since when it is otherwise.
    pub since: Option<u64>,
    /// What is otherwise: `round trips`, `loss`, or the limit of its rate.
    pub cause: Option<String>,
    /// Rate of the newest run.
    pub rate: Option<BitRate>,
    /// The usual rate.
    pub usual_rate: Option<BitRate>,
    /// Limit of the newest run.
    pub limit: Option<String>,
    /// When the newest run began.
    pub at: Option<u64>,
    /// Document of the newest run.
    pub document: Option<String>,
}

/// Returns a fleet as it is at `now`, in seconds since 1970; without hosts where there is none.
///
/// # Errors
/// Fails if the archive does.
pub fn fleet_status(ledger: &mut FleetLedger<'_>, now: u64) -> Result<FleetStatus, StoreError> {
    let hosts = ledger.hosts()?;
    let every = ledger.settings()?.every.as_secs_f64() as u64;
    let mut by_host: HashMap<String, BTreeMap<String, u64>> = HashMap::new();
    let mut slots: BTreeMap<String, u64> = BTreeMap::new();
    for (host, outcome, count) in ledger.outcomes_by_host(now.saturating_sub(DAY), now)? {
        *slots.entry(outcome.clone()).or_default() += count;
        by_host.entry(host).or_default().insert(outcome, count);
    }
    let (rows, states) = ledger.pair_rows(&hosts, now)?;
    let pairs = rows.iter().zip(&states);
    Ok(FleetStatus {
        at: now,
        incidents: ledger.incidents(now.saturating_sub(SHOWN))?,
        pairs: pairs
            .map(|(row, state)| pair_status(&hosts, row, state, every, now))
            .collect(),
        slots,
        hosts: hosts
            .into_iter()
            .filter(|host| host.revoked.is_none())
            .map(|host| HostStatus {
                is_silent: is_silent(&host, now),
                slots: by_host.remove(&host.mesh.name).unwrap_or_default(),
                name: host.mesh.name,
                site: host.mesh.site,
                seen: host.seen,
                offset_ms: host.offset_ms,
                program: host.program,
            })
            .collect(),
    })
}

fn is_silent(host: &FleetHost, now: u64) -> bool {
    host.seen.saturating_add(SILENT) < now
}

fn pair_status(
    hosts: &[FleetHost],
    row: &PairRow,
    state: &PairState,
    every: u64,
    now: u64,
) -> PairStatus {
    let ends = [&hosts[row.sender], &hosts[row.receiver]];
    let last = row.runs.last.as_ref();
    let is_recent = |at: u64| at.saturating_add(2 * every) >= now;
    let why = if ends.iter().any(|host| is_silent(host, now)) {
        Some("a host is silent")
    } else if last.is_none() {
        Some("no run yet")
    } else if !last.is_some_and(|last| is_recent(last.at)) {
        Some("no run of late")
    } else if !last.is_some_and(|last| last.is_valid) && !is_recent(row.runs.last_usual()) {
        Some("its runs are not valid")
    } else {
        None
    };
    let change = state.change.as_ref();
    let kind = match (why, change, row.runs.usual_rate()) {
        (Some(_), ..) => PairStatusKind::Unknown,
        (None, Some(_), _) => PairStatusKind::Changed,
        (None, None, None) => PairStatusKind::New,
        _ => PairStatusKind::Usual,
    };
    PairStatus {
        sender: ends[0].mesh.name.clone(),
        receiver: ends[1].mesh.name.clone(),
        kind,
        why,
        since: change.map(|change| change.onset().1),
        cause: change.map(|change| change.cause().to_owned()),
        rate: last.map(|last| last.rate),
        usual_rate: row.runs.usual_rate(),
        limit: last.and_then(|last| last.limit.clone()),
        at: last.map(|last| last.at),
        document: last.map(|last| last.document.clone()),
    }
}
