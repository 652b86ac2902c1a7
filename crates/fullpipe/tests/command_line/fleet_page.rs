//! The page of a fleet in a real Chromium, its metrics, and its JSON: what is wrong is first, what
//! nobody knows is unknown, and names of others are text.

use fullpipe_fleet::FleetLedger;
use fullpipe_fleet::plan::{MeshHost, PairRun, PairWatch, PollRequest};
use fullpipe_store::Store;
use fullpipe_testkit::{Browser, assert_says, require};
use fullpipe_units::{BitRate, Span};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::pages::{Pages, TOKEN, assert_everybody_can_use_it, bearer, check_metrics, wait_until};

const DAY: u64 = 86_400;

/// Text that must be shown, and do nothing.
const HOSTILE: &str = "<script>document.title='broken'</script>\"'&\u{202e}\n";

fn now() -> u64 {
    Timestamp::now().as_second().cast_unsigned()
}

fn host_name(number: usize) -> String {
    if number == 1 {
        format!("{HOSTILE}beta")
    } else {
        format!("host{number:03}.a-rather-long-name.example.net")
    }
}

/// Makes a fleet in the archive, in which all pairs into the second host are policed since a day,
/// and the last host is silent.
fn make_fleet(pages: &Pages, hosts: usize) {
    let mut store = Store::open(&pages.location()).unwrap();
    let mut ledger = FleetLedger::new(&mut store);
    for number in 0..hosts {
        let name = host_name(number);
        ledger.keep_invite(&name, "", 1, now() + 900).unwrap();
        let host = MeshHost {
            name: name.clone(),
            site: format!("{HOSTILE}{}", number / 4),
            reach: Some("192.0.2.1:5201".to_owned()),
        };
        ledger.enrol_host(&name, &host, &name, now()).unwrap();
        let asked = PollRequest {
            offset_ms: 12,
            program: HOSTILE.to_owned(),
            ..PollRequest::default()
        };
        if number + 1 < hosts {
            ledger.answer_poll(&name, &asked, now() * 1000).unwrap();
        }
    }
    let watches = [watch(false), watch(true)];
    let receiver = host_name(1);
    store
        .transact(|archive| {
            let sql = "UPDATE fleet_pair SET watch = $1";
            archive.query(sql, &[watches[0].as_str().into()])?;
            let sql = "UPDATE fleet_pair SET watch = $1 WHERE receiver = $2";
            archive.query(sql, &[watches[1].as_str().into(), receiver.as_str().into()])
        })
        .unwrap();
    FleetLedger::new(&mut store).plan_changes(now()).unwrap();
}

/// Returns what is known of a pair after ten days with a run each, the last of which may be slow.
fn watch(is_slow: bool) -> String {
    let mut watch = PairWatch::default();
    for day in 0..10 {
        let is_slow = is_slow && day >= 8;
        watch.take_run(PairRun {
            at: now() - (10 - day) * DAY + 3600,
            rate: BitRate::from_mbps(if is_slow { 200 } else { 940 }),
            rtt_idle: Some(Span::from_millis(20)),
            limit: Some(if is_slow {
                format!("loss/policer{HOSTILE}")
            } else {
                "capacity/link".to_owned()
            }),
            is_valid: true,
            document: format!("{HOSTILE}document"),
        });
    }
    serde_json::to_string(&watch).unwrap()
}

#[test]
fn a_fleet_of_a_hundred_hosts_shows_first_what_is_wrong() {
    require!(Chromium, AxeCore);
    let pages = Pages::start(&[]);
    make_fleet(&pages, 100);
    let mut browser = Browser::start();
    browser.open_url(&pages.url(&format!("/#{TOKEN}")));
    wait_until(&mut browser, "document.title === 'Now – fullpipe'");
    let links = "document.querySelectorAll('nav a[href=\"/fleet\"]').length";
    assert_eq!(browser.evaluate(links), 1);
    browser.open_url(&pages.url("/fleet"));
    assert_eq!(browser.evaluate("document.title"), "Fleet – fullpipe");
    assert_everybody_can_use_it(&mut browser, &pages, "fleet");
    let order = "[...document.querySelectorAll('h2')].map((one) => one.textContent)";
    assert_eq!(
        browser.evaluate(order),
        json!(["Incidents", "Hosts", "Pairs"])
    );
    let text = |browser: &mut Browser, part: &str| {
        let shown = browser.evaluate(&format!("document.querySelector('{part}').innerText"));
        shown.as_str().unwrap().to_owned()
    };
    let incidents = text(&mut browser, "section");
    assert_says(
        &incidents,
        &["all pairs into <script>", "loss/policer<script>"],
    );
    let hosts = text(&mut browser, "section:nth-of-type(2)");
    assert_says(&hosts, &["100 hosts, 1 silent", "never", "+12 ms"]);
    let pairs = text(&mut browser, "section:nth-of-type(3)");
    assert_says(
        &pairs,
        &[
            "98 changed, 198 unknown, 0 new, 9604 usual",
            "(21 %)",
            "9700 more",
        ],
    );

    // What lies behind.
    let asked = browser.evaluate("document.querySelector('section a').href");
    browser.open_url(asked.as_str().unwrap());
    assert_eq!(browser.evaluate("document.title"), "Incident – fullpipe");
    assert_everybody_can_use_it(&mut browser, &pages, "incident");
    assert_eq!(
        browser.evaluate("document.querySelectorAll('tbody tr').length"),
        99
    );
    let rest = text(&mut browser, "main");
    assert_says(
        &rest,
        &["It goes on", "No pair of the same place was as usual"],
    );

    let silent = host_name(99);
    browser.open_url(&pages.url(&format!("/fleet?host={silent}")));
    let pairs = text(&mut browser, "section:nth-of-type(3)");
    assert_says(
        &pairs,
        &[
            "0 changed, 198 unknown, 0 new, 0 usual",
            "unknown: a host is silent",
        ],
    );
}

#[test]
fn an_archive_without_a_fleet_has_no_page_of_it() {
    let pages = Pages::start(&[]);
    for path in ["/", "/measurements"] {
        let page = pages.get(path);
        assert!(!page.contains("/fleet"), "{page}");
    }
    for path in ["/fleet", "/fleet/incidents/x"] {
        let (status, _, page) = pages.ask(&format!("GET {path}"), &[&bearer()], "");
        assert_eq!(status, 404, "{page}");
    }
    assert!(!pages.get("/metrics").contains("fullpipe_host_"));
    let fleet: Value = serde_json::from_str(&pages.get("/api/v1/fleet")).unwrap();
    assert_eq!((&fleet["hosts"], &fleet["pairs"]), (&json!([]), &json!([])));
}

#[test]
fn a_fleet_is_in_the_metrics_and_in_json() {
    require!(Promtool);
    let pages = Pages::start(&[]);
    make_fleet(&pages, 6);
    let text = pages.get("/metrics");
    let pair = "sender=\"host000.a-rather-long-name.example.net\",receiver=\"host002.a-rather-long-name.example.net\"";
    for line in [
        format!("fullpipe_pair_throughput_bytes_per_second{{{pair}}} 117500000\n"),
        format!("fullpipe_pair_usual_throughput_bytes_per_second{{{pair}}} 117500000\n"),
        format!("fullpipe_pair_limit_info{{{pair},limit=\"capacity/link\"}} 1\n"),
        format!("fullpipe_pair_state_info{{{pair},state=\"usual\"}} 1\n"),
        "fullpipe_host_clock_offset_seconds{host=\"host000.a-rather-long-name.example.net\"} 0.012\n".to_owned(),
        "fullpipe_fleet_incidents 1\n".to_owned(),
    ] {
        assert_says(&text, &[&line]);
    }
    check_metrics(&text);

    let fleet: Value = serde_json::from_str(&pages.get("/api/v1/fleet")).unwrap();
    assert_eq!(fleet["hosts"].as_array().map(Vec::len), Some(6));
    assert_eq!(fleet["pairs"].as_array().map(Vec::len), Some(30));
    let incident = &fleet["incidents"][0];
    assert_eq!(incident["changed"].as_array().map(Vec::len), Some(5));
    assert_eq!(incident["ended"], Value::Null);
}
