use fullpipe_store::{
    ArchiveTransaction, DatabaseValue, EngineResult, KeptDocument, NewDocument, StoreError,
};

use super::changes::watch_echoes;
use super::turns::AHEAD;
use super::{FleetLedger, SLOT, next_slot};
use crate::plan::{
    EchoMinute, EchoTarget, PollAnswer, PollRequest, SlotOrder, SlotOutcome, SlotReport, SlotTicket,
};

/// Seconds after the end of a slot after which it has an end, whether somebody has said it or not.
const OVERDUE: u64 = 120;

impl FleetLedger<'_> {
    /// Keeps what an agent says, and returns its slots. The same said twice is kept once.
    ///
    /// # Errors
    /// Fails if the archive does.
    pub fn answer_poll(
        &mut self,
        host: &str,
        request: &PollRequest,
        clock_ms: u64,
    ) -> Result<PollAnswer, StoreError> {
        let now = clock_ms / 1000;
        self.0.transact(|archive| {
            for report in &request.reports {
                keep_report(archive, host, report, now)?;
            }
            for ticket in &request.tickets {
                keep_ticket(archive, host, ticket)?;
            }
            for minute in &request.echoes {
                keep_echo(archive, host, minute)?;
            }
            watch_echoes(archive, host, &request.echoes, now)?;
            archive.query(
                "UPDATE fleet_host SET seen = $2, offset_ms = $3, program = $4 WHERE name = $1",
                &[
                    host.into(),
                    now.into(),
                    request.offset_ms.into(),
                    request.program.as_str().into(),
                ],
            )?;
            let orders = orders_of_host(archive, host, now)?;
            Ok(PollAnswer {
                clock_ms,
                version: version_of_orders(&orders),
                orders,
                confirmed: request
                    .reports
                    .iter()
                    .map(|report| report.slot.clone())
                    .collect(),
            })
        })
    }

    /// Returns the hosts whose round trips a host measures.
    ///
    /// # Errors
    /// Fails if the archive does.
    pub fn echo_targets(&mut self, host: &str) -> Result<Vec<EchoTarget>, StoreError> {
        let sql = "SELECT name, reach FROM fleet_host WHERE revoked IS NULL AND reach <> '' AND name <> $1
                   ORDER BY name";
        let rows = self.0.query(sql, &[host.into()])?;
        let targets = rows.into_iter().map(|mut row| EchoTarget {
            host: row.next_string(),
            address: row.next_string(),
        });
        Ok(targets.collect())
    }

    /// Keeps the document of a slot; `None` if the host is not the client of that. The same
    /// document twice is kept once.
    ///
    /// # Errors
    /// Fails if the archive does.
    pub fn keep_slot_document(
        &mut self,
        host: &str,
        slot: &str,
        document: &NewDocument,
    ) -> Result<Option<KeptDocument>, StoreError> {
        self.0.transact(|archive| {
            let own = archive.query(
                "SELECT 1 FROM fleet_slot WHERE id = $1 AND client = $2",
                &[slot.into(), host.into()],
            )?;
            if own.is_empty() {
                return Ok(None);
            }
            let kept = archive.keep_document(document)?;
            archive.query(
                "UPDATE fleet_slot SET document = $2 WHERE id = $1",
                &[slot.into(), kept.id.as_str().into()],
            )?;
            Ok(Some(kept))
        })
    }

    /// Gives each slot an end whose end nobody has said in time, and returns how many. A client
    /// that was heard since has missed it; of one that is silent it is unknown, until its report
    /// comes after all.
    ///
    /// # Errors
    /// Fails if the archive does.
    pub fn close_overdue(&mut self, now: u64) -> Result<usize, StoreError> {
        let closed = self.0.transact(|archive| {
            archive.query(
                "UPDATE fleet_slot SET
                 outcome = CASE WHEN client IN (SELECT name FROM fleet_host WHERE seen > fleet_slot.ends)
                     THEN 'no-show' ELSE 'unknown' END,
                 why = CASE WHEN client IN (SELECT name FROM fleet_host WHERE seen > fleet_slot.ends)
                     THEN client || ' never heard of it' ELSE client || ' is silent' END
                 WHERE outcome IS NULL AND ends < $1 RETURNING id",
                &[now.saturating_sub(OVERDUE).into()],
            )
        })?;
        Ok(closed.len())
    }

    /// Returns how many slots that begin from one time to another, in seconds since 1970, ended in
    /// each way, by the host that connects; `open` are those that have no end yet.
    ///
    /// # Errors
    /// Fails if the archive does.
    pub fn outcomes_by_host(
        &mut self,
        from: u64,
        until: u64,
    ) -> Result<Vec<(String, String, u64)>, StoreError> {
        let sql = "SELECT client, COALESCE(outcome, 'open') AS ended, count(*) FROM fleet_slot
                   WHERE starts >= $1 AND starts < $2 GROUP BY client, ended ORDER BY client, ended";
        let rows = self.0.query(sql, &[from.into(), until.into()])?;
        let counts = rows.into_iter().map(|mut row| {
            let [host, outcome] = [row.next_string(), row.next_string()];
            (host, outcome, row.next_count().unwrap_or(0))
        });
        Ok(counts.collect())
    }
}

/// Keeps how a slot ended, unless somebody who knows has said it before. A server may refuse; how a
/// test went, its client says.
fn keep_report(
    archive: &mut ArchiveTransaction<'_>,
    host: &str,
    report: &SlotReport,
    now: u64,
) -> EngineResult {
    let role = if report.outcome == SlotOutcome::Refused {
        "(client = $4 OR server = $4)"
    } else {
        "client = $4"
    };
    let why: String = report.why.chars().take(500).collect();
    let values: [DatabaseValue; 4] = [
        report.slot.as_str().into(),
        report.outcome.name().into(),
        why.as_str().into(),
        host.into(),
    ];
    archive.query(
        &format!(
            "UPDATE fleet_slot SET outcome = $2, why = $3
             WHERE id = $1 AND {role} AND (outcome IS NULL OR outcome IN ('unknown', 'no-show'))"
        ),
        &values,
    )?;
    // What was to be done in that time others may do.
    if report.outcome == SlotOutcome::Refused {
        archive.query(
            "DELETE FROM fleet_claim WHERE slot = $1 AND starts > $2
             AND EXISTS (SELECT 1 FROM fleet_slot WHERE id = $1 AND outcome = 'refused')",
            &[report.slot.as_str().into(), now.into()],
        )?;
    }
    Ok(())
}

fn keep_ticket(
    archive: &mut ArchiveTransaction<'_>,
    host: &str,
    ticket: &SlotTicket,
) -> EngineResult {
    let sql = "UPDATE fleet_slot SET ticket = $3 WHERE id = $1 AND server = $2 AND ticket IS NULL";
    let values = [
        ticket.slot.as_str().into(),
        host.into(),
        ticket.ticket.as_str().into(),
    ];
    archive.query(sql, &values).map(drop)
}

fn keep_echo(
    archive: &mut ArchiveTransaction<'_>,
    host: &str,
    minute: &EchoMinute,
) -> EngineResult {
    let sql = "INSERT INTO fleet_echo (client, server, minute, sent, lost, rtt_ns)
               VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING";
    let values = [
        host.into(),
        minute.host.as_str().into(),
        minute.minute.into(),
        u64::from(minute.sent).into(),
        u64::from(minute.lost).into(),
        minute.rtt_ns.into(),
    ];
    archive.query(sql, &values).map(drop)
}

/// Returns what differs where slots do, or their tickets.
fn version_of_orders(orders: &[SlotOrder]) -> String {
    let mut hasher = blake3::Hasher::new();
    for order in orders {
        hasher.update(order.slot.id.as_bytes());
        hasher.update(&[u8::from(order.ticket.is_some())]);
    }
    hasher.finalize().to_hex()[..16].to_owned()
}

/// Returns the slots of a host that begin within the next hour.
fn orders_of_host(
    archive: &mut ArchiveTransaction<'_>,
    host: &str,
    now: u64,
) -> EngineResult<Vec<SlotOrder>> {
    let columns: Vec<String> = SLOT
        .split(", ")
        .map(|column| format!("fleet_slot.{column}"))
        .collect();
    let columns = columns.join(", ");
    let mut orders = Vec::new();
    for role in ["client", "server"] {
        let rows = archive.query(
            &format!(
                "SELECT {columns}, reach, ticket FROM fleet_slot JOIN fleet_host ON fleet_host.name = server
                 WHERE {role} = $1 AND starts >= $2 AND starts < $3 AND outcome IS NULL
                 ORDER BY starts"
            ),
            &[host.into(), now.into(), (now + AHEAD).into()],
        )?;
        orders.extend(rows.into_iter().filter_map(|mut row| {
            Some(SlotOrder {
                slot: next_slot(&mut row)?,
                reach: row.next_string(),
                ticket: row.next_text(),
            })
        }));
    }
    Ok(orders)
}
