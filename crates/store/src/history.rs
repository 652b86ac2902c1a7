use std::collections::BTreeMap;

use fullpipe_record::{
    Direction, HistoryDay, HistoryPoint, HistoryReport, HistorySeries, StoredDocument, StoredFacts,
};
use fullpipe_units::{BitRate, median};
use jiff::Timestamp;

use crate::changes::{rate_changes, usual_limit};
use crate::columns::{RowReader, direction_name};
use crate::document::compared_rate;
use crate::engine::{DatabaseValue, Row};
use crate::statements::{DOCUMENT, FACT, of_table};
use crate::store::timestamp_value;
use crate::text::host_of;
use crate::{Store, StoreError};

/// Key of a series: path, request, direction.
type Key = (String, String, &'static str);

impl Store {
    /// Returns the runs towards `host`, a name or an address with or without a port, that started
    /// at `since` or later: a series for each path, request and direction, the one with the most
    /// runs first.
    ///
    /// # Errors
    /// Fails if the database refuses.
    pub fn host_history(
        &mut self,
        host: &str,
        since: Option<Timestamp>,
    ) -> Result<HistoryReport, StoreError> {
        let columns = format!(
            "{}, {}",
            of_table("document", DOCUMENT),
            of_table("fact", FACT)
        );
        let rows = self.read(
            &format!(
                "SELECT {columns} FROM document JOIN fact ON fact.document = document.id
                 WHERE (peer = $1 OR address = $1) AND started >= $2 ORDER BY started DESC, id DESC"
            ),
            &[
                host_of(host).as_str().into(),
                since.map_or(DatabaseValue::Integer(i64::MIN), timestamp_value),
            ],
        )?;
        let mut series: BTreeMap<Key, Vec<HistoryPoint>> = BTreeMap::new();
        // The newest is first.
        for (document, facts) in rows.into_iter().rev().map(read_run) {
            if let Some(point) = history_point(&document, &facts) {
                let key = (
                    document.path_key,
                    document.request_key,
                    direction_name(facts.direction),
                );
                series.entry(key).or_default().push(point);
            }
        }
        let mut series: Vec<HistorySeries> = series
            .into_iter()
            .map(|(key, points)| history_series(key, points))
            .collect();
        series.sort_by_key(|series| std::cmp::Reverse(series.points.len()));
        Ok(HistoryReport {
            host: host.to_owned(),
            series,
        })
    }
}

fn read_run(row: Row) -> (StoredDocument, StoredFacts) {
    let mut reader = RowReader::new(row);
    (reader.next_document(), reader.next_facts())
}

/// Returns the point of a run; `None` for a run with a remedy, and for one without a rate.
fn history_point(document: &StoredDocument, facts: &StoredFacts) -> Option<HistoryPoint> {
    if !facts.step.is_empty() {
        return None;
    }
    Some(HistoryPoint {
        id: document.id.clone(),
        started: document.started.clone(),
        rate: compared_rate(facts)?,
        rtt_idle: facts.rtt_idle,
        rtt_loaded: facts.rtt_loaded,
        limit: facts.limit_name(),
        valid: facts.valid,
    })
}

fn history_series(
    (path_key, request_key, direction): Key,
    points: Vec<HistoryPoint>,
) -> HistorySeries {
    let is_upload = direction == direction_name(Direction::Upload);
    let (changes, detectable) = rate_changes(&points);
    HistorySeries {
        path_key,
        request_key,
        direction: if is_upload {
            Direction::Upload
        } else {
            Direction::Download
        },
        days: history_days(&points),
        changes,
        detectable,
        points,
    }
}

/// Returns the medians by day (UTC) of the valid runs, which are in the order of time.
fn history_days(points: &[HistoryPoint]) -> Vec<HistoryDay> {
    let valid: Vec<&HistoryPoint> = points.iter().filter(|point| point.valid).collect();
    valid
        .chunk_by(|one, next| point_date(one) == point_date(next))
        .filter_map(history_day)
        .collect()
}

/// Returns the date of a time in RFC 3339.
fn point_date(point: &HistoryPoint) -> &str {
    point.started.split('T').next().unwrap_or_default()
}

fn history_day(runs: &[&HistoryPoint]) -> Option<HistoryDay> {
    let rates: Vec<BitRate> = runs.iter().map(|run| run.rate).collect();
    Some(HistoryDay {
        date: point_date(runs.first()?).to_owned(),
        runs: runs.len() as u64,
        min: rates.iter().copied().min()?,
        max: rates.iter().copied().max()?,
        rate: median(rates)?,
        rtt_idle: median(runs.iter().filter_map(|run| run.rtt_idle).collect()),
        limit: usual_limit(runs).map(str::to_owned),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(started: &str, mbps: u64, limit: &str, valid: bool) -> HistoryPoint {
        HistoryPoint {
            id: String::new(),
            started: started.to_owned(),
            rate: BitRate::from_mbps(mbps),
            rtt_idle: None,
            rtt_loaded: None,
            limit: Some(limit.to_owned()),
            valid,
        }
    }

    #[test]
    fn a_day_has_the_median_of_its_valid_runs() {
        let runs = [
            run("2026-03-11T23:59:59Z", 9, "capacity/link", true),
            run("2026-03-12T00:00:00Z", 1, "loss/random", true),
            run("2026-03-12T06:00:00Z", 5, "capacity/link", true),
            run("2026-03-12T12:00:00Z", 100, "unknown", false),
            run("2026-03-12T18:00:00Z", 3, "capacity/link", true),
        ];
        let days = history_days(&runs);
        assert_eq!(
            days.iter().map(|day| day.date.as_str()).collect::<Vec<_>>(),
            ["2026-03-11", "2026-03-12"]
        );
        let second = &days[1];
        assert_eq!(
            (second.runs, second.rate, second.min, second.max),
            (
                3,
                BitRate::from_mbps(3),
                BitRate::from_mbps(1),
                BitRate::from_mbps(5)
            )
        );
        assert_eq!(second.limit.as_deref(), Some("capacity/link"));
    }
}
