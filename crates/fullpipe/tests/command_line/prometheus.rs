//! Metrics and dashboards in the real Prometheus and PostgreSQL.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use fullpipe_record::StoredFacts;
use fullpipe_testkit::{
    Postgres, Running, free_port, load_slot, require, wait_for_listener, write_secret,
};
use fullpipe_units::{ByteCount, Ratio, SegCount, Span};
use jiff::Timestamp;
use serde_json::Value;

use crate::common::{fullpipe, run};
use crate::far_end;
use crate::pages::{Pages, TOKEN, bearer, facts};

/// Longest time until Prometheus has asked twice, also on a busy machine.
const TIMEOUT: Duration = Duration::from_mins(1);

fn contrib(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../contrib/grafana")
        .join(name)
}

/// Returns a run of which everything is known.
fn whole_facts(mbps: u64) -> StoredFacts {
    StoredFacts {
        rtt_idle: Some(Span::from_millis(10)),
        rtt_loaded: Some(Span::from_millis(20)),
        rtt_loaded_p99: Some(Span::from_millis(30)),
        retransmits: Some(SegCount::new(7)),
        share: Some(Ratio::from_quotient(9.0, 10.0)),
        sent: Some(ByteCount::new(mbps * 1_250_000)),
        duration: Some(Span::from_secs(10)),
        ..facts(mbps, "loss", "policer")
    }
}

/// Returns the queries of this kind in all dashboards.
fn queries(kind: &str) -> Vec<String> {
    let mut found = Vec::new();
    for file in fs::read_dir(contrib("dashboards")).unwrap() {
        let text = fs::read(file.unwrap().path()).unwrap();
        let dashboard: Value = serde_json::from_slice(&text).unwrap();
        for panel in dashboard["panels"].as_array().unwrap() {
            let targets = panel["targets"].as_array().unwrap();
            found.extend(
                targets
                    .iter()
                    .filter_map(|target| target[kind].as_str().map(str::to_owned)),
            );
        }
        let variables = dashboard["templating"]["list"].as_array().unwrap();
        if kind == "rawSql" {
            found.extend(
                variables
                    .iter()
                    .map(|variable| variable["query"].as_str().unwrap().to_owned()),
            );
        }
    }
    found
}

/// A Prometheus that asks a server of pages every second, and judges the rules.
struct Prometheus {
    port: u16,
    _server: Running,
    _folder: tempfile::TempDir,
}

impl Prometheus {
    fn start(pages: &Pages) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (port, file) = (free_port(), |name: &str| folder.path().join(name));
        write_secret(file("token"), TOKEN);
        let config = format!(
            "global: {{ scrape_interval: 1s, evaluation_interval: 1s }}\nrule_files: [ {} ]\nscrape_configs:\n\
             - job_name: fullpipe\n  authorization: {{ credentials_file: {token} }}\n  static_configs: [ {{ targets: [ {own} ] }} ]\n\
             - job_name: iperf3\n  metrics_path: /probe\n  authorization: {{ credentials_file: {token} }}\n\
             \u{20} static_configs: [ {{ targets: [ there ] }} ]\n  params: {{ port: [ '5201' ] }}\n  relabel_configs:\n\
             \u{20} - {{ source_labels: [ __address__ ], target_label: __param_target }}\n\
             \u{20} - {{ source_labels: [ __param_target ], target_label: instance }}\n\
             \u{20} - {{ target_label: __address__, replacement: {own} }}\n",
            contrib("rules.yaml").display(),
            token = file("token").display(),
            own = format_args!("'127.0.0.1:{}'", pages.port),
        );
        fs::write(file("prometheus.yml"), config).unwrap();
        let server = Running::start(
            Command::new("prometheus")
                .arg(format!(
                    "--config.file={}",
                    file("prometheus.yml").display()
                ))
                .arg(format!("--storage.tsdb.path={}", file("data").display()))
                .arg(format!("--web.listen-address=127.0.0.1:{port}")),
        );
        wait_for_listener(port);
        Self {
            port,
            _server: server,
            _folder: folder,
        }
    }

    /// Returns what its interface has at `path`.
    fn ask(&self, path: &str, query: &str) -> Value {
        let output = Command::new("curl")
            .args(["--silent", "--max-time", "20", "--get", "--data-urlencode"])
            .arg(format!("query={query}"))
            .arg(format!("http://127.0.0.1:{}/api/v1/{path}", self.port))
            .output()
            .unwrap();
        serde_json::from_slice(&output.stdout).unwrap_or_default()
    }

    /// Returns the values of a query once there are any.
    fn values(&self, query: &str) -> Vec<f64> {
        let begun = Instant::now();
        loop {
            let answer = self.ask("query", query);
            let found = answer["data"]["result"]
                .as_array()
                .cloned()
                .unwrap_or_default();
            if !found.is_empty() {
                let number = |value: &Value| value["value"][1].as_str().unwrap().parse().unwrap();
                return found.iter().map(number).collect();
            }
            assert!(begun.elapsed() < TIMEOUT, "no data: {query}: {answer}");
            sleep(Duration::from_millis(200));
        }
    }
}

#[test]
fn prometheus_has_data_for_each_query_and_an_alert_on_the_limit_fires() {
    require!(Promtool, Curl);
    let pages = Pages::start_with(None, &[]);
    let mut invalid = whole_facts(50);
    invalid.valid = false;
    pages.keep(1, whole_facts(100), |_| ());
    pages.keep(2, invalid, |head| head.peer = "elsewhere".to_owned());
    let rules = Command::new("promtool")
        .arg("check")
        .arg("rules")
        .arg(contrib("rules.yaml"))
        .output();
    assert!(rules.as_ref().unwrap().status.success(), "{rules:?}");
    let prometheus = Prometheus::start(&pages);
    let all = queries("expr");
    assert_eq!(all.len(), 7);
    for query in all {
        println!("{query}: {:?}", prometheus.values(&query));
    }
    assert_eq!(
        prometheus.values("fullpipe_throughput_bytes_per_second{peer=\"there\"}"),
        [12_500_000.0]
    );
    // What panels for iperf3_exporter ask.
    assert_eq!(prometheus.values("iperf3_up"), [1.0]);
    let rate = "iperf3_received_bytes / iperf3_received_seconds * 8 / 1000000";
    assert_eq!(prometheus.values(rate), [100.0]);
    assert_eq!(
        prometheus.values("iperf3_retransmits{instance=\"there\"}"),
        [7.0]
    );
    let begun = Instant::now();
    loop {
        let alerts = prometheus.ask("alerts", "");
        let fires = |name: &str, limit: Option<&str>| {
            alerts["data"]["alerts"]
                .as_array()
                .unwrap()
                .iter()
                .any(|alert| {
                    alert["labels"]["alertname"] == name
                        && alert["state"] == "firing"
                        && limit.is_none_or(|limit| alert["labels"]["limit"] == limit)
                })
        };
        if fires("PathLosesPackets", Some("loss/policer"))
            && fires("MeasurementInvalid", None)
            && fires("NoMeasurement", None)
        {
            break;
        }
        assert!(begun.elapsed() < TIMEOUT, "{alerts}");
        sleep(Duration::from_millis(200));
    }
}

#[test]
fn postgresql_has_data_for_each_query_and_may_go_away() {
    require!(Postgres);
    let mut postgres = Postgres::start();
    let archive = postgres.database("grafana");
    let _load = load_slot();
    let (_far, port) = far_end();
    let target = format!("127.0.0.1:{port}");
    let pages = Pages::start_with(Some(archive.clone()), &["--targets", &target]);
    pages.keep(1, whole_facts(100), |_| ());
    let day = Timestamp::now().as_millisecond();
    let all = queries("rawSql");
    assert_eq!(all.len(), 9);
    for query in all {
        let query = query
            .replace("$__from", "0")
            .replace("$__to", &day.to_string())
            .replace("${host:sqlstring}", "'there'");
        let output = Command::new("psql")
            .args([
                "--no-psqlrc",
                "--tuples-only",
                "--no-align",
                "--command",
                &query,
                &archive,
            ])
            .output()
            .unwrap();
        let rows = String::from_utf8_lossy(&output.stdout);
        println!("{query}: {rows}");
        assert!(
            output.status.success() && !rows.trim().is_empty(),
            "{query}: {output:?}"
        );
    }
    assert!(pages.get("/measurements").contains("there"));
    let fields = [&*bearer(), "Content-Type: application/json"];
    let body = format!(r#"{{"host":"{target}","reverse":false,"seconds":1,"streams":1}}"#);
    let started = pages.ask("POST /api/v1/runs", &fields, &body);
    assert_eq!(started.0, 200, "{started:?}");
    postgres.crash();
    let begun = Instant::now();
    loop {
        let state = pages.get("/api/v1/runs");
        if state.contains("is not kept") {
            break;
        }
        assert!(begun.elapsed() < TIMEOUT, "{state}");
        sleep(Duration::from_millis(100));
    }
    let (status, _, body) = pages.ask("GET /measurements", &[&bearer()], "");
    assert_eq!(status, 503, "{body}");
    let (status, _, body) = pages.ask("GET /api/v1/documents", &[&bearer()], "");
    assert_eq!(status, 503, "{body}");
    postgres.run();
    assert!(pages.get("/measurements").contains("there"));
}

#[test]
fn a_measurement_writes_its_metrics_for_node_exporter() {
    require!(Promtool);
    let _load = load_slot();
    let (_far, port) = far_end();
    let target = format!("127.0.0.1:{port}");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("fullpipe.prom");
    fs::write(&file, "old").unwrap();
    let name = file.to_str().unwrap();
    let measured = run(
        &mut fullpipe(&[
            "measure",
            &target,
            "-t",
            "1",
            "--no-store",
            "--metrics",
            name,
        ]),
        60,
    );
    assert!(measured.status.success(), "{measured:?}");
    let text = fs::read_to_string(&file).unwrap();
    assert!(
        text.contains("fullpipe_throughput_bytes_per_second{peer=\"127.0.0.1\""),
        "{text}"
    );
    assert!(text.contains("fullpipe_limit_info{"), "{text}");
    let checked = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(fs::File::open(&file).unwrap())
        .output()
        .unwrap();
    assert!(
        checked.status.success() && checked.stderr.is_empty(),
        "{checked:?}"
    );
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
}
