//! Data files of flent: series on one axis of time (`x_values`, `results`) with `metadata`.

use std::ops::Range;

use fullpipe_record::{Direction, RttStats, StoredDocument, StoredFacts};
use fullpipe_units::{BitRate, Span};
use jiff::Timestamp;
use jiff::civil::DateTime;
use serde_json::Value;

use super::{ForeignRun, JsonFields};

pub(super) fn flent_head(data: &Value) -> Result<StoredDocument, String> {
    let metadata = &data["metadata"];
    let started =
        parse_time(metadata.string_field("TIME")).ok_or("the data of flent has no start time")?;
    let seconds = metadata.number_field("LENGTH").unwrap_or_default();
    let name = metadata.string_field("NAME");
    Ok(ForeignRun {
        format: "flent",
        started,
        host: metadata.string_field("LOCAL_HOST"),
        peer: metadata.string_field("HOST"),
        request_key: format!("{name}, {seconds} s, flent"),
        program: metadata.string_field("FLENT_VERSION"),
        facts: flent_facts(data),
    }
    .into_head())
}

/// Reads a time of flent, which is in UTC and says so only since version 1.
fn parse_time(text: &str) -> Option<Timestamp> {
    text.parse().ok().or_else(|| {
        let civil: DateTime = text.parse().ok()?;
        Some(civil.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp())
    })
}

/// Returns the facts of each direction in which anything went.
fn flent_facts(data: &Value) -> Vec<StoredFacts> {
    let loads = [
        ("upload", Direction::Upload),
        ("download", Direction::Download),
    ];
    loads
        .into_iter()
        .filter_map(|(name, direction)| of_direction(data, name, direction))
        .collect()
}

fn of_direction(data: &Value, name: &str, direction: Direction) -> Option<StoredFacts> {
    let loads = load_series(data, name);
    let places = number_series(&data["x_values"]);
    let means: Vec<f64> = loads
        .iter()
        .filter_map(|load| time_weighted_mean(load, &places))
        .collect();
    let rate =
        (!means.is_empty()).then(|| BitRate::from_bps_f64(means.iter().sum::<f64>() * 1e6))?;
    let times = loads
        .iter()
        .flat_map(|load| load.iter().enumerate().filter(|(_, rate)| rate.is_some()));
    let (first, last) = times.fold((usize::MAX, 0), |(first, last), (at, _)| {
        (first.min(at), last.max(at))
    });
    let pings = ping_rtts(data);
    let loaded = ping_stats(&pings, first..last + 1);
    Some(StoredFacts {
        direction,
        rate: Some(rate),
        rtt_idle: ping_stats(&pings, 0..first).map(|rtt| rtt.median),
        rtt_loaded: loaded.map(|rtt| rtt.median),
        rtt_loaded_p99: loaded.map(|rtt| rtt.p99),
        valid: rate > BitRate::ZERO,
        streams: u16::try_from(means.len()).ok(),
        duration: data["metadata"].seconds_field("LENGTH"),
        ..StoredFacts::default()
    })
}

/// Last words of the names of series that flent computes from others.
const COMPUTED: [&str; 8] = [
    "sum", "avg", "mean", "median", "min", "max", "fairness", "totals",
];

/// Returns the series of the rates of one direction in Mbit/s, without those that flent computed
/// from others, and those of the kernel's figures (`TCP upload::tcp_cwnd`).
fn load_series(data: &Value, name: &str) -> Vec<Vec<Option<f64>>> {
    let results = data["results"].as_object().into_iter().flatten();
    let of_direction = results.filter(|(series, _)| {
        let last = series.split_whitespace().next_back().unwrap_or_default();
        let is_computed =
            COMPUTED.contains(&last.to_ascii_lowercase().as_str()) || series.contains("::");
        let units = data["metadata"]["SERIES_META"][series.as_str()].string_field("UNITS");
        series.contains(name) && !is_computed && matches!(units, "" | "Mbits/s")
    });
    of_direction
        .map(|(_, values)| number_series(values))
        .collect()
}

/// Returns the round-trip times of the ICMP echoes, or of another flow of echoes where there are
/// none.
fn ping_stats(pings: &[Option<Span>], places: Range<usize>) -> Option<RttStats> {
    let within = pings.get(places.start..places.end.min(pings.len()))?;
    RttStats::from_samples(within.iter().flatten().copied().collect())
}

fn ping_rtts(data: &Value) -> Vec<Option<Span>> {
    let results = &data["results"];
    let series = results.get("Ping (ms) ICMP").or_else(|| {
        results
            .as_object()?
            .iter()
            .find(|(series, _)| series.starts_with("Ping (ms)"))
            .map(|(_, it)| it)
    });
    let milliseconds = series.map(number_series).unwrap_or_default();
    milliseconds
        .into_iter()
        .map(|rtt| rtt.map(|rtt| Span::from_secs_f64(rtt / 1e3)))
        .collect()
}

fn number_series(values: &Value) -> Vec<Option<f64>> {
    let values = values.as_array().into_iter().flatten();
    values
        .map(|value| {
            value
                .as_f64()
                .filter(|number| number.is_finite() && *number >= 0.0)
        })
        .collect()
}

/// Returns the mean over time of a series; `None` without a value. Each value holds from the place
/// of the one before it: flent leaves places without a value where a slow flow reports rarely.
fn time_weighted_mean(values: &[Option<f64>], places: &[Option<f64>]) -> Option<f64> {
    let known: Vec<(f64, f64)> = values
        .iter()
        .enumerate()
        .filter_map(|(at, value)| Some((axis_position(places, at), (*value)?)))
        .collect();
    let spans = known
        .windows(2)
        .map(|pair| (pair[1].0 - pair[0].0).max(0.0));
    // The first value is of a time that is not known: of one step.
    let first = spans
        .clone()
        .filter(|span| *span > 0.0)
        .min_by(f64::total_cmp)
        .unwrap_or(1.0);
    let weighed = std::iter::once(first).chain(spans).zip(&known);
    let time: f64 = weighed.clone().map(|(span, _)| span).sum();
    let sum: f64 = weighed.map(|(span, (_, value))| span * value).sum();
    (time > 0.0 && time.is_finite()).then(|| sum / time)
}

/// Returns the place of a value on the axis of time.
fn axis_position(places: &[Option<f64>], at: usize) -> f64 {
    places.get(at).copied().flatten().unwrap_or(at as f64)
}
