//! Runs of pScheduler, as its API returns them (`result-merged`) and as archivers get them
//! (`result`).

use fullpipe_record::{Direction, StoredDocument, StoredFacts};
use fullpipe_units::{Ratio, Span};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::{ForeignRun, JsonFields};
use crate::document::plain_text;

pub(super) fn pscheduler_head(run: &Value) -> Result<StoredDocument, String> {
    let (test, spec) = (&run["test"], &run["test"]["spec"]);
    let started = [&run["start-time"], &run["schedule"]["start"]]
        .into_iter()
        .find_map(parse_time);
    let [host, peer] = [("source", 0), ("dest", 1)].map(|(end, number)| {
        let participant = &run["participants"][number];
        spec[end]
            .as_str()
            .or_else(|| participant.as_str())
            .or_else(|| participant["pscheduler-name"].as_str())
            .unwrap_or_default()
    });
    Ok(ForeignRun {
        format: "pscheduler",
        started: started.ok_or("the run of pScheduler has no start time")?,
        host,
        peer,
        request_key: request_key(test.string_field("type"), spec),
        program: run["tool"]["name"]
            .as_str()
            .or(run["tool"].as_str())
            .unwrap_or("pscheduler"),
        facts: vec![test_facts(test.string_field("type"), spec, run_result(run))],
    }
    .into_head())
}

fn parse_time(text: &Value) -> Option<Timestamp> {
    text.as_str()?.parse().ok()
}

fn run_result(run: &Value) -> &Value {
    ["result-merged", "result"]
        .into_iter()
        .map(|name| &run[name])
        .find(|result| result.is_object())
        .unwrap_or(run)
}

/// Returns type and fields of the test, but not its ends.
fn request_key(kind: &str, spec: &Value) -> String {
    let ends = ["source", "dest", "source-node", "dest-node", "schema"];
    let fields = spec
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(name, _)| !ends.contains(&name.as_str()));
    let fields: Vec<String> = fields
        .map(|(name, value)| format!(", {name}={}", plain_text(value)))
        .collect();
    format!("{kind}{}, pscheduler", fields.concat())
}

fn test_facts(kind: &str, spec: &Value, result: &Value) -> StoredFacts {
    let succeeded = result["succeeded"].as_bool().unwrap_or(false);
    let is_reverse = spec["reverse"].as_bool().unwrap_or(false);
    let direction = if is_reverse {
        Direction::Download
    } else {
        Direction::Upload
    };
    let figures = match kind {
        "throughput" => throughput_facts(spec, result),
        "rtt" => rtt_facts(result),
        "latency" => latency_facts(result),
        _ => StoredFacts::default(),
    };
    StoredFacts {
        direction,
        valid: succeeded,
        duration: parse_duration(&spec["duration"]),
        ..figures
    }
}

fn throughput_facts(spec: &Value, result: &Value) -> StoredFacts {
    let summary = &result["summary"]["summary"];
    let lost = summary
        .number_field("lost")
        .zip(summary.number_field("sent"))
        .map(|(lost, sent)| Ratio::from_quotient(lost, sent));
    StoredFacts {
        rate: summary
            .rate_field("receiver-throughput-bits")
            .or_else(|| summary.rate_field("throughput-bits")),
        retransmits: summary.segments_field("retransmits"),
        loss: lost,
        streams: spec
            .number_field("parallel")
            .map(|streams| streams as u16)
            .or(Some(1)),
        buffer: spec.bytes_field("window-size"),
        congestion: spec["congestion"].as_str().map(str::to_owned),
        sent: summary.bytes_field("throughput-bytes"),
        ..StoredFacts::default()
    }
}

fn rtt_facts(result: &Value) -> StoredFacts {
    StoredFacts {
        rtt_idle: parse_duration(&result["mean"]),
        loss: result.number_field("loss").map(Ratio::new),
        ..Default::default()
    }
}

/// One-way delays are no round trips; their loss is a loss all the same.
fn latency_facts(result: &Value) -> StoredFacts {
    let lost = result
        .number_field("packets-lost")
        .zip(result.number_field("packets-sent"));
    StoredFacts {
        loss: lost.map(|(lost, sent)| Ratio::from_quotient(lost, sent)),
        ..StoredFacts::default()
    }
}

/// Reads an ISO 8601 duration, as `PT0.0123S`.
fn parse_duration(text: &Value) -> Option<Span> {
    let duration: SignedDuration = text.as_str()?.parse().ok()?;
    u64::try_from(duration.as_nanos())
        .ok()
        .map(Span::from_nanos)
}
