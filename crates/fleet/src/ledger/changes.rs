use std::collections::{BTreeMap, HashMap};

use fullpipe_record::Direction;
use fullpipe_store::{ArchiveTransaction, EngineResult, RowReader, StoreError};
use fullpipe_units::{BitRate, Span};

use super::incidents::keep_incidents;
use super::turns::{AHEAD, LEAD, busy_times, insert_slot, live_mesh};
use super::{FleetHost, FleetLedger};
use crate::plan::{
    APART, DuePair, EchoMinute, EchoWatch, MeshPlanner, PairChange, PairRun, PairState, PairWatch,
    PlannedSlot, SlotPurpose, attribute_losses,
};

/// Runs that are read at once.
const MAX_RUNS: u64 = 1000;

/// Seconds in which a pair is looked after once, and a host with four others: an uplink that broke
/// is not to carry tests of all its pairs.
const LOOKED_AFTER: u64 = 6 * 3600;
const LOOKED_AFTER_OF_HOST: usize = 4;

/// Seconds after which a change that nobody has measured since then is forgotten.
const FORGOTTEN: u64 = 14 * 86_400;

/// Minutes of echoes that are kept.
const ECHOES_KEPT: u64 = 2 * 1440;

/// What is known of an ordered pair.
pub(crate) struct PairRow {
    /// Places of its hosts in the list of all.
    pub(crate) sender: usize,
    pub(crate) receiver: usize,
    pub(crate) runs: PairWatch,
    pub(crate) echoes: Option<EchoWatch>,
    /// When it was last looked after.
    triggered: u64,
}

impl PairRow {
    /// Returns when it was last measured, by a run or by echoes, in seconds since 1970.
    fn measured(&self) -> u64 {
        let run = self.runs.last.as_ref().map_or(0, |last| last.at);
        let echoed = self.echoes.as_ref().map_or(0, |echoes| echoes.minute);
        run.max(echoed.saturating_mul(60))
    }

    /// Returns how it is; what nobody has measured for two weeks is not known to be otherwise.
    fn state(&self, now: u64) -> PairState {
        let learnt = self.echoes.as_ref().filter(|echoes| echoes.is_learnt());
        PairState {
            sender: self.sender,
            receiver: self.receiver,
            last_usual: self.runs.last_usual(),
            echoed: learnt.map_or(0, |echoes| echoes.minute * 60),
            change: PairChange::from_watches(&self.runs, self.echoes.as_ref())
                .filter(|_| self.measured().saturating_add(FORGOTTEN) > now),
        }
    }
}

/// Returns how each pair is otherwise than usual at a time, if it is.
pub(crate) fn pair_states(rows: &[PairRow], now: u64) -> Vec<PairState> {
    let mut states: Vec<PairState> = rows.iter().map(|row| row.state(now)).collect();
    attribute_losses(&mut states);
    states
}

impl FleetLedger<'_> {
    /// Reads the runs that are new, keeps the incidents that they show, and plans two runs and a
    /// diagnosis of each pair whose round trips, losses or rate changed, once for each change.
    /// Returns how many slots that adds. Any number of controllers may do so, as often as they
    /// like.
    ///
    /// # Errors
    /// Fails if the archive does.
    pub fn plan_changes(&mut self, now: u64) -> Result<usize, StoreError> {
        let settings = self.settings()?;
        let hosts = self.hosts()?;
        let (mesh, turns) = live_mesh(&hosts, now);
        self.0.transact(|archive| {
            archive.lock_tables()?;
            take_runs(archive)?;
            let mut rows = pair_rows(&hosts, |sql| archive.query(sql, &[]))?;
            keep_incidents(archive, &hosts, &rows, now)?;
            let busy = busy_times(archive, now)?;
            let mut planner = MeshPlanner::new(&mesh, &settings, busy, &turns);
            let places = mesh.iter().enumerate();
            let places: HashMap<&str, usize> = places
                .map(|(place, host)| (host.name.as_str(), place))
                .collect();
            let mut slots = 0;
            for place in 0..rows.len() {
                let names = [rows[place].sender, rows[place].receiver]
                    .map(|host| places.get(hosts[host].mesh.name.as_str()).copied());
                let ([Some(sender), Some(receiver)], true) =
                    (names, is_to_be_looked_after(&rows, place, now))
                else {
                    continue;
                };
                let due = DuePair {
                    due: now,
                    sender,
                    receiver,
                };
                let planned = plan_runs(&mut planner, due, &rows[place], now);
                if planned.is_empty() {
                    continue;
                }
                for slot in &planned {
                    insert_slot(archive, slot)?;
                }
                slots += planned.len();
                rows[place].triggered = now;
                note_triggered(archive, &planned[0], now)?;
            }
            let oldest = (now / 60).saturating_sub(ECHOES_KEPT);
            archive.query("DELETE FROM fleet_echo WHERE minute < $1", &[oldest.into()])?;
            Ok(slots)
        })
    }
}

fn is_to_be_looked_after(rows: &[PairRow], place: usize, now: u64) -> bool {
    let row = &rows[place];
    let since = row.runs.unsettled_since(row.echoes.as_ref());
    let is_recent = |row: &PairRow| row.triggered > 0 && row.triggered + LOOKED_AFTER > now;
    if since.is_none_or(|since| since <= row.triggered) || is_recent(row) {
        return false;
    }
    [row.sender, row.receiver].into_iter().all(|host| {
        let own = rows
            .iter()
            .filter(|other| [other.sender, other.receiver].contains(&host) && is_recent(other));
        own.count() < LOOKED_AFTER_OF_HOST
    })
}

/// Returns two runs some minutes apart, so that others do not fall on both, and a diagnosis.
fn plan_runs(
    planner: &mut MeshPlanner<'_>,
    pair: DuePair,
    row: &PairRow,
    now: u64,
) -> Vec<PlannedSlot> {
    let last = row.runs.last.as_ref().map_or(0, |last| last.at);
    let (from, until) = ((now + LEAD).max(last + APART), now + AHEAD);
    let mut planned = planner.plan_at_once(pair, &[SlotPurpose::Change], from, until);
    if let Some(first) = planned.first() {
        let from = first.slot.starts + APART;
        let purposes = [SlotPurpose::Change, SlotPurpose::Diagnosis];
        planned.extend(planner.plan_at_once(pair, &purposes, from, until));
    }
    planned
}

fn note_triggered(
    archive: &mut ArchiveTransaction<'_>,
    planned: &PlannedSlot,
    now: u64,
) -> EngineResult {
    let (sender, receiver) = planned.slot.ends_of_data();
    let sql = "UPDATE fleet_pair SET triggered = $3 WHERE sender = $1 AND receiver = $2";
    let values = [sender.into(), receiver.into(), now.into()];
    archive.query(sql, &values).map(drop)
}

/// Adds the runs that are new to what is known of their pairs.
fn take_runs(archive: &mut ArchiveTransaction<'_>) -> EngineResult {
    let sql = "SELECT fleet_slot.id, client, server, fleet_slot.direction, starts, fleet_slot.document,
               COALESCE(steady_bits_per_second, bits_per_second), rtt_idle_ns, limit_kind, limit_cause, valid
               FROM fleet_slot LEFT JOIN fact ON fact.document = fleet_slot.document
               AND fact.direction = fleet_slot.direction AND step = ''
               WHERE outcome = 'done' AND watched IS NULL ORDER BY starts, fleet_slot.id, part LIMIT $1";
    let mut by_pair: BTreeMap<[String; 2], Vec<PairRun>> = BTreeMap::new();
    let mut read: Vec<String> = Vec::new();
    for mut row in archive.query(sql, &[MAX_RUNS.into()])? {
        let slot = row.next_string();
        let pair = next_pair(&mut row);
        let run = next_run(&mut row);
        if read.last() == Some(&slot) {
            continue;
        }
        read.push(slot);
        if let Some(run) = run {
            by_pair.entry(pair).or_default().push(run);
        }
    }
    for ([sender, receiver], runs) in by_pair {
        let pair = [sender.as_str().into(), receiver.as_str().into()];
        let known = "SELECT watch FROM fleet_pair WHERE sender = $1 AND receiver = $2";
        let known = archive.query(known, &pair)?.into_iter().next();
        let mut watch: PairWatch = known
            .and_then(|mut row| serde_json::from_str(&row.next_text()?).ok())
            .unwrap_or_default();
        for run in runs {
            watch.take_run(run);
        }
        let text = serde_json::to_string(&watch).unwrap_or_default();
        let [sender, receiver] = pair;
        archive.query(
            "UPDATE fleet_pair SET watch = $3 WHERE sender = $1 AND receiver = $2",
            &[sender, receiver, text.as_str().into()],
        )?;
    }
    for slot in read {
        let sql = "UPDATE fleet_slot SET watched = 1 WHERE id = $1";
        archive.query(sql, &[slot.as_str().into()])?;
    }
    Ok(())
}

/// Returns the sender and the receiver of a slot with its client, server and direction.
fn next_pair(row: &mut RowReader) -> [String; 2] {
    let [client, server, direction] = std::array::from_fn(|_| row.next_string());
    if direction == Direction::Download.name() {
        [server, client]
    } else {
        [client, server]
    }
}

fn next_run(row: &mut RowReader) -> Option<PairRun> {
    let at = row.next_count();
    let document = row.next_string();
    let [rate, rtt] = [row.next_count(), row.next_count()];
    let [kind, cause] = [row.next_text(), row.next_text()];
    let is_valid = row.next_integer() == Some(1);
    Some(PairRun {
        at: at?,
        rate: BitRate::from_bps(rate?),
        rtt_idle: rtt.map(Span::from_nanos),
        limit: kind.map(|kind| match cause {
            Some(cause) => format!("{kind}/{cause}"),
            None => kind,
        }),
        is_valid,
        document,
    })
}

/// Returns what is known of all pairs of these hosts.
///
/// # Errors
/// Fails if `query` does.
pub(crate) fn pair_rows<E>(
    hosts: &[FleetHost],
    mut query: impl FnMut(&str) -> Result<Vec<RowReader>, E>,
) -> Result<Vec<PairRow>, E> {
    let places = hosts.iter().enumerate();
    let places: HashMap<&str, usize> = places
        .map(|(place, host)| (host.mesh.name.as_str(), place))
        .collect();
    let mut echoes: HashMap<String, HashMap<String, EchoWatch>> = HashMap::new();
    for mut row in query("SELECT client, content FROM fleet_watch")? {
        let client = row.next_string();
        let content = serde_json::from_str(&row.next_string());
        echoes.insert(client, content.unwrap_or_default());
    }
    let sql = "SELECT sender, receiver, watch, triggered FROM fleet_pair ORDER BY sender, receiver";
    let rows = query(sql)?.into_iter().filter_map(|mut row| {
        let [sender, receiver] = [row.next_string(), row.next_string()];
        let watch = row.next_text();
        let echoed = |client: &str, server: &str| echoes.get(client)?.get(server).cloned();
        Some(PairRow {
            runs: watch
                .and_then(|text| serde_json::from_str(&text).ok())
                .unwrap_or_default(),
            echoes: echoed(&sender, &receiver).or_else(|| echoed(&receiver, &sender)),
            triggered: row.next_count().unwrap_or(0),
            sender: *places.get(sender.as_str())?,
            receiver: *places.get(receiver.as_str())?,
        })
    });
    Ok(rows.collect())
}

/// Adds minutes of echoes to what is known of a host's; minutes that are still to come, and hosts
/// that the fleet does not have, are none.
pub(super) fn watch_echoes(
    archive: &mut ArchiveTransaction<'_>,
    host: &str,
    minutes: &[EchoMinute],
    now: u64,
) -> EngineResult {
    if minutes.is_empty() {
        return Ok(());
    }
    let known = archive.query("SELECT name FROM fleet_host WHERE revoked IS NULL", &[])?;
    let known: Vec<String> = known.into_iter().map(|mut row| row.next_string()).collect();
    let sql = "SELECT content FROM fleet_watch WHERE client = $1";
    let content = archive.query(sql, &[host.into()])?.into_iter().next();
    let mut watches: BTreeMap<String, EchoWatch> = content
        .and_then(|mut row| serde_json::from_str(&row.next_string()).ok())
        .unwrap_or_default();
    watches.retain(|server, _| known.contains(server));
    let mut minutes: Vec<&EchoMinute> = minutes
        .iter()
        .filter(|minute| known.contains(&minute.host) && minute.minute <= now / 60 + 1)
        .collect();
    minutes.sort_by_key(|minute| minute.minute);
    for minute in minutes {
        let watch = watches.entry(minute.host.clone()).or_default();
        watch.take_minute(minute);
    }
    let text = serde_json::to_string(&watches).unwrap_or_default();
    archive.query(
        "INSERT INTO fleet_watch (client, content) VALUES ($1, $2)
         ON CONFLICT (client) DO UPDATE SET content = excluded.content",
        &[host.into(), text.as_str().into()],
    )?;
    Ok(())
}
