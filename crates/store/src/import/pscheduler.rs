//! Runs of pScheduler, as its API returns them (`result-merged`) and as archivers get them (`result`).

use fullpipe_record::{Direction, StoredDocument, StoredFacts};
use fullpipe_units::{Ratio, Span};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::{Foreign, Json};

pub(super) fn head(run: &Value) -> Result<StoredDocument, String> {
    let (test, spec) = (&run["test"], &run["test"]["spec"]);
    let started = [&run["start-time"], &run["schedule"]["start"]].into_iter().find_map(time);
    let participants = &run["participants"];
    let name = |named: &str, number: usize| {
        let participant = participants[number].as_str().or_else(|| participants[number]["pscheduler-name"].as_str());
        spec[named].as_str().or(participant).unwrap_or_default().to_owned()
    };
    let (host, peer) = (name("source", 0), name("dest", 1));
    Ok(Foreign {
        format: "pscheduler",
        started: started.ok_or("the run of pScheduler has no start time")?,
        host: &host,
        peer: &peer,
        request_key: request_key(test.string("type"), spec),
        program: run["tool"]["name"].as_str().or(run["tool"].as_str()).unwrap_or("pscheduler"),
        facts: vec![facts(test.string("type"), spec, result(run))],
    }
    .head())
}

fn time(text: &Value) -> Option<Timestamp> {
    text.as_str()?.parse().ok()
}

fn result(run: &Value) -> &Value {
    ["result-merged", "result"].into_iter().map(|name| &run[name]).find(|result| result.is_object()).unwrap_or(run)
}

/// Returns type and fields of the test, but not its ends.
fn request_key(kind: &str, spec: &Value) -> String {
    let ends = ["source", "dest", "source-node", "dest-node", "schema"];
    let fields = spec.as_object().into_iter().flatten().filter(|(name, _)| !ends.contains(&name.as_str()));
    let fields: Vec<String> = fields.map(|(name, value)| format!(", {name}={}", plain(value))).collect();
    format!("{kind}{}, pscheduler", fields.concat())
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn facts(kind: &str, spec: &Value, result: &Value) -> StoredFacts {
    let succeeded = result["succeeded"].as_bool().unwrap_or(false);
    let is_reverse = spec["reverse"].as_bool().unwrap_or(false);
    let direction = if is_reverse { Direction::Download } else { Direction::Upload };
    let figures = match kind {
        "throughput" => throughput(spec, result),
        "rtt" => rtt(result),
        "latency" => latency(result),
        _ => StoredFacts::default(),
    };
    StoredFacts { direction, valid: succeeded, duration: span(&spec["duration"]), ..figures }
}

fn throughput(spec: &Value, result: &Value) -> StoredFacts {
    let summary = &result["summary"]["summary"];
    let lost = summary.number("lost").zip(summary.number("sent")).map(|(lost, sent)| Ratio::of(lost, sent));
    StoredFacts {
        rate: summary.rate("receiver-throughput-bits").or_else(|| summary.rate("throughput-bits")),
        retransmits: summary.segments("retransmits"),
        loss: lost,
        streams: spec.number("parallel").map(|streams| streams as u16).or(Some(1)),
        buffer: spec.bytes("window-size"),
        congestion: spec["congestion"].as_str().map(str::to_owned),
        sent: summary.bytes("throughput-bytes"),
        ..StoredFacts::default()
    }
}

fn rtt(result: &Value) -> StoredFacts {
    StoredFacts { rtt_idle: span(&result["mean"]), loss: result.number("loss").map(Ratio::new), ..Default::default() }
}

/// One-way delays are no round trips; their loss is a loss all the same.
fn latency(result: &Value) -> StoredFacts {
    let lost = result.number("packets-lost").zip(result.number("packets-sent"));
    StoredFacts { loss: lost.map(|(lost, sent)| Ratio::of(lost, sent)), ..StoredFacts::default() }
}

/// Reads an ISO 8601 duration, as `PT0.0123S`.
fn span(text: &Value) -> Option<Span> {
    let duration: SignedDuration = text.as_str()?.parse().ok()?;
    u64::try_from(duration.as_nanos()).ok().map(Span::from_nanos)
}
