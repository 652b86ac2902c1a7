//! Metrics of the archive in the text format of Prometheus, and with the names of `iperf3_exporter`
//! for the panels that were made for that.

use std::fmt::Write as _;

use fullpipe_fleet::{FleetStatus, HostStatus, PairStatus};
use fullpipe_record::{Direction, StoredDocument, StoredFacts};
use fullpipe_units::{BitRate, ByteCount, Ratio, SegCount, Span};
use jiff::Timestamp;

/// Kind of the text format, version 0.0.4.
pub(crate) const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A metric: its name, its meaning, and its value for a run.
struct Metric {
    name: &'static str,
    help: &'static str,
    value: fn(&Measured<'_>) -> Option<f64>,
}

/// One direction of the newest measurement of a host.
struct Measured<'d> {
    document: &'d StoredDocument,
    facts: &'d StoredFacts,
    now: Timestamp,
}

impl Measured<'_> {
    fn started(&self) -> Option<f64> {
        let started: Timestamp = self.document.started.parse().ok()?;
        Some(started.as_millisecond() as f64 / 1e3)
    }

    fn rate_bits(&self) -> Option<f64> {
        let rate = self.facts.steady.or(self.facts.rate);
        rate.map(BitRate::as_f64)
    }

    fn seconds(&self) -> Option<f64> {
        self.facts.duration.map(Span::as_secs_f64)
    }

    fn sent_bytes(&self) -> Option<f64> {
        self.facts.sent.map(ByteCount::as_f64)
    }

    fn received_bytes(&self) -> Option<f64> {
        let rate = self.facts.rate?.as_f64();
        self.seconds().map(|seconds| rate / 8.0 * seconds)
    }
}

const METRICS_OF_RUNS: [Metric; 9] = [
    Metric {
        name: "fullpipe_throughput_bytes_per_second",
        help: "Payload that arrived in the newest measurement, after the ramp.",
        value: |run| run.rate_bits().map(|bits| bits / 8.0),
    },
    Metric {
        name: "fullpipe_idle_rtt_seconds",
        help: "Median round-trip time without load.",
        value: |run| run.facts.rtt_idle.map(Span::as_secs_f64),
    },
    Metric {
        name: "fullpipe_loaded_rtt_seconds",
        help: "Median round-trip time under load.",
        value: |run| run.facts.rtt_loaded.map(Span::as_secs_f64),
    },
    Metric {
        name: "fullpipe_retransmitted_segments",
        help: "Segments that were retransmitted in the newest measurement.",
        value: |run| run.facts.retransmits.map(SegCount::as_f64),
    },
    Metric {
        name: "fullpipe_datagram_loss_ratio",
        help: "Datagrams that were lost, as a share of those sent.",
        value: |run| run.facts.loss.map(Ratio::get),
    },
    Metric {
        name: "fullpipe_limit_time_ratio",
        help: "Share of the time in which the limit held.",
        value: |run| run.facts.share.map(Ratio::get),
    },
    Metric {
        name: "fullpipe_measurement_valid",
        help: "1 if the newest measurement was whole and its own checks passed.",
        value: |run| Some(f64::from(u8::from(run.facts.valid))),
    },
    Metric {
        name: "fullpipe_measurement_timestamp_seconds",
        help: "When the newest measurement began, since 1970.",
        value: |run| run.started(),
    },
    Metric {
        name: "fullpipe_measurement_age_seconds",
        help: "Time since the newest measurement began.",
        value: |run| Some((run.now.as_millisecond() as f64 / 1e3 - run.started()?).max(0.0)),
    },
];

/// Names and values of `iperf3_exporter` for one run.
const METRICS_OF_IPERF3: [Metric; 7] = [
    Metric {
        name: "iperf3_sent_seconds",
        help: "Time over which data was sent.",
        value: |run| run.seconds(),
    },
    Metric {
        name: "iperf3_sent_bytes",
        help: "Payload that the sender wrote.",
        value: |run| run.sent_bytes(),
    },
    Metric {
        name: "iperf3_sent_bps",
        help: "Bits a second that the sender wrote.",
        value: |run| Some(run.sent_bytes()? * 8.0 / run.seconds()?),
    },
    Metric {
        name: "iperf3_received_seconds",
        help: "Time over which data arrived.",
        value: |run| run.seconds(),
    },
    Metric {
        name: "iperf3_received_bytes",
        help: "Payload that arrived.",
        value: |run| run.received_bytes(),
    },
    Metric {
        name: "iperf3_received_bps",
        help: "Bits a second that arrived.",
        value: |run| run.facts.rate.map(BitRate::as_f64),
    },
    Metric {
        name: "iperf3_retransmits",
        help: "Segments that were retransmitted.",
        value: |run| run.facts.retransmits.map(SegCount::as_f64),
    },
];

/// Returns the metrics of the newest run to each host in each direction, of documents with the
/// newest first, in the text format of Prometheus.
pub fn archive_metrics(newest: &[StoredDocument], now: Timestamp) -> String {
    let runs = newest_runs(newest, now);
    let labels = |run: &Measured<'_>| {
        label_list(&[
            ("peer", &run.document.peer),
            ("direction", run.facts.direction.name()),
        ])
    };
    let mut text = String::new();
    for metric in &METRICS_OF_RUNS {
        push_metric(&mut text, metric, &runs, labels);
    }
    text + &limit_info(&runs)
}

/// Labels and values of a metric.
type Values = Vec<(String, f64)>;

/// Returns the metrics of a fleet; nothing where there is none.
pub(crate) fn fleet_metrics(status: &FleetStatus) -> String {
    if status.hosts.is_empty() {
        return String::new();
    }
    let outcomes = status.slots.iter();
    let outcomes = outcomes.map(|(outcome, count)| {
        let labels = label_list(&[("outcome", outcome)]);
        (labels, *count as f64)
    });
    let bytes = |rate: BitRate| rate.as_f64() / 8.0;
    let of_pairs = |value: fn(&PairStatus) -> Option<BitRate>| {
        let pairs = status.pairs.iter();
        pairs.filter_map(move |pair| Some((pair_labels(pair, &[]), bytes(value(pair)?))))
    };
    let of_hosts = |value: fn(&HostStatus) -> f64| {
        let hosts = status.hosts.iter();
        hosts.map(move |host| (label_list(&[("host", &host.name)]), value(host)))
    };
    let limits = status.pairs.iter().filter_map(|pair| {
        let limit = pair.limit.as_deref()?;
        Some((pair_labels(pair, &[("limit", limit)]), 1.0))
    });
    let states = status
        .pairs
        .iter()
        .map(|pair| (pair_labels(pair, &[("state", pair.kind.name())]), 1.0));
    let open = status
        .incidents
        .iter()
        .filter(|incident| incident.ended.is_none());
    let open = [(String::new(), open.count() as f64)].into_iter();
    let families: [(&str, &str, Values); 8] = [
        (
            "fullpipe_slots",
            "Slots that began within a day, by how they ended.",
            outcomes.collect(),
        ),
        (
            "fullpipe_pair_throughput_bytes_per_second",
            "Payload that arrived in the newest run of a pair.",
            of_pairs(|pair| pair.rate).collect(),
        ),
        (
            "fullpipe_pair_usual_throughput_bytes_per_second",
            "Payload that usually arrives.",
            of_pairs(|pair| pair.usual_rate).collect(),
        ),
        (
            "fullpipe_pair_limit_info",
            "What limited the newest run of a pair.",
            limits.collect(),
        ),
        (
            "fullpipe_pair_state_info",
            "How a pair is: changed, unknown, new or usual.",
            states.collect(),
        ),
        (
            "fullpipe_fleet_incidents",
            "Incidents that go on.",
            open.collect(),
        ),
        (
            "fullpipe_host_seen_timestamp_seconds",
            "When a host last asked for its slots, since 1970.",
            of_hosts(|host| host.seen as f64).collect(),
        ),
        (
            "fullpipe_host_clock_offset_seconds",
            "Time by which the controller's clock was ahead of a host's.",
            of_hosts(|host| host.offset_ms as f64 / 1e3).collect(),
        ),
    ];
    let mut text = String::new();
    for (name, help, values) in families {
        push_head(&mut text, name, help);
        for (labels, value) in values {
            push_value(&mut text, name, &labels, value);
        }
    }
    text
}

fn pair_labels(pair: &PairStatus, more: &[(&str, &str)]) -> String {
    let own = [
        ("sender", pair.sender.as_str()),
        ("receiver", pair.receiver.as_str()),
    ];
    label_list(&[&own[..], more].concat())
}

/// Returns the metrics of the newest run to a target in a direction, with the names of
/// `iperf3_exporter`; of no run, that there is none.
pub(crate) fn probe_metrics(
    target: &str,
    port: &str,
    reverse: bool,
    newest: &[StoredDocument],
    now: Timestamp,
) -> String {
    let wanted = if reverse {
        Direction::Download
    } else {
        Direction::Upload
    };
    let mut runs = newest_runs(newest, now);
    runs.retain(|run| run.facts.direction == wanted);
    runs.truncate(1);
    let labels = label_list(&[("target", target), ("port", port)]);
    let is_up = runs.iter().any(|run| run.facts.valid);
    let mut text = String::new();
    push_head(&mut text, "iperf3_up", "1 if a valid run is kept.");
    push_value(&mut text, "iperf3_up", &labels, u8::from(is_up).into());
    for metric in METRICS_OF_IPERF3.iter().chain(&METRICS_OF_RUNS) {
        push_metric(&mut text, metric, &runs, |_| labels.clone());
    }
    text + &limit_info(&runs)
}

/// Returns the newest run to each host in each direction, of documents with the newest first;
/// without runs with a remedy.
fn newest_runs(documents: &[StoredDocument], now: Timestamp) -> Vec<Measured<'_>> {
    let mut runs: Vec<Measured<'_>> = Vec::new();
    for document in documents {
        let own = document.facts.iter().filter(|facts| facts.step.is_empty());
        for facts in own {
            let is_known = runs.iter().any(|run| {
                run.document.peer == document.peer && run.facts.direction == facts.direction
            });
            if !is_known {
                runs.push(Measured {
                    document,
                    facts,
                    now,
                });
            }
        }
    }
    runs
}

/// Returns the limit of each run as a label.
fn limit_info(runs: &[Measured<'_>]) -> String {
    const NAME: &str = "fullpipe_limit_info";
    let mut text = String::new();
    push_head(&mut text, NAME, "What limited the newest measurement.");
    for run in runs {
        let limit = run.facts.limit_name().unwrap_or_default();
        let labels = label_list(&[
            ("peer", &run.document.peer),
            ("direction", run.facts.direction.name()),
            ("limit", &limit),
        ]);
        push_value(&mut text, NAME, &labels, 1.0);
    }
    text
}

fn push_metric(
    text: &mut String,
    metric: &Metric,
    runs: &[Measured<'_>],
    labels: impl Fn(&Measured<'_>) -> String,
) {
    let values: Vec<_> = runs
        .iter()
        .filter_map(|run| Some((labels(run), (metric.value)(run)?)))
        .collect();
    if values.is_empty() {
        return;
    }
    push_head(text, metric.name, metric.help);
    for (labels, value) in values {
        push_value(text, metric.name, &labels, value);
    }
}

fn push_head(text: &mut String, name: &str, help: &str) {
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} gauge");
}

fn push_value(text: &mut String, name: &str, labels: &str, value: f64) {
    let _ = writeln!(text, "{name}{labels} {value}");
}

/// Returns labels with their values, in which a backslash, a quotation mark and a line break are
/// escaped as the text format wants it.
fn label_list(labels: &[(&str, &str)]) -> String {
    let pairs: Vec<String> = labels
        .iter()
        .map(|(name, value)| {
            let value = value
                .replace('\\', "\\\\")
                .replace('"', "\\\"")
                .replace('\n', "\\n");
            format!("{name}=\"{value}\"")
        })
        .collect();
    format!("{{{}}}", pairs.join(","))
}
