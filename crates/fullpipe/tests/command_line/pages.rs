//! `fullpipe web`: its pages in a real Chromium, its interface for programs, and who is kept out.

use std::io::ErrorKind::ConnectionReset;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use fullpipe_record::{StoredDocument, StoredFacts};
use fullpipe_store::{ArchiveLocation, NewDocument, Store};
use fullpipe_testkit::{
    Browser, Running, assert_says, free_port, load_slot, require, sentence, wait_for_listener,
    write_secret,
};
use fullpipe_units::BitRate;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use socket2::{Domain, Socket, Type};
use tempfile::TempDir;

use crate::common::{fullpipe, run};
use crate::far_end;

/// Longest time for what takes seconds, also on a busy machine.
const TIMEOUT: Duration = Duration::from_mins(1);

pub(crate) const TOKEN: &str = "0123456789abcdef-test";

/// A server of pages, and its archive.
pub(crate) struct Pages {
    folder: TempDir,
    archive: String,
    pub(crate) port: u16,
    pub(crate) server: Option<Running>,
}

impl Pages {
    /// Starts a server of an archive in a file.
    pub(crate) fn start(more: &[&str]) -> Self {
        Self::start_with(None, more)
    }

    /// Starts a server of this archive, or of one in a file, which is made.
    pub(crate) fn start_with(archive: Option<String>, more: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        write_secret(folder.path().join("token"), TOKEN);
        let file = folder.path().join("a.db").display().to_string();
        let mut pages = Self {
            folder,
            archive: archive.unwrap_or(file),
            port: free_port(),
            server: None,
        };
        Store::create(&pages.location()).unwrap();
        pages.serve(more);
        pages
    }

    pub(crate) fn location(&self) -> ArchiveLocation {
        self.archive.parse().unwrap()
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    fn serve(&mut self, more: &[&str]) {
        let (port, token) = (self.port.to_string(), self.path("token"));
        let usual = [
            "web",
            "-p",
            &port,
            "--store",
            &self.archive,
            "--token-file",
            &token,
        ];
        let mut command = fullpipe(&[&usual, more].concat());
        command.env("XDG_STATE_HOME", self.folder.path());
        self.server = Some(Running::start(&mut command));
        wait_for_listener(self.port);
    }

    /// Keeps a document of another program.
    pub(crate) fn keep(
        &self,
        number: i64,
        facts: StoredFacts,
        change: impl Fn(&mut StoredDocument),
    ) {
        let started: Timestamp = "2026-03-01T00:00:00Z".parse().unwrap();
        let mut head = StoredDocument {
            kind: "foreign/iperf3".to_owned(),
            started: (started + SignedDuration::from_mins(number)).to_string(),
            host: "here".to_owned(),
            peer: "there".to_owned(),
            program: "iperf 3.18".to_owned(),
            facts: vec![facts],
            ..StoredDocument::default()
        };
        change(&mut head);
        let body = format!("{{\"run\": {number}}}").into_bytes();
        let mut store = Store::open(&self.location()).unwrap();
        store.put_document(&NewDocument { head, body }).unwrap();
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    /// Sends the lines of a request, and returns status, head and body of the answer.
    pub(crate) fn ask(&self, request: &str, fields: &[&str], body: &str) -> (u16, String, String) {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        let host = format!("Host: 127.0.0.1:{}", self.port);
        let own = fields.iter().any(|field| field.starts_with("Host:"));
        let mut lines = fields.to_vec();
        lines.extend((!own).then_some(host.as_str()));
        let fields = lines.join("\r\n");
        write!(
            stream,
            "{request} HTTP/1.1\r\n{fields}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, head.to_owned(), body.to_owned())
    }

    /// Returns the body of what a program gets that has the token.
    pub(crate) fn get(&self, path: &str) -> String {
        let (status, _, body) = self.ask(&format!("GET {path}"), &[&bearer()], "");
        assert_eq!(status, 200, "{path}: {body}");
        body
    }
}

pub(crate) fn bearer() -> String {
    format!("Authorization: Bearer {TOKEN}")
}

pub(crate) fn facts(mbps: u64, limit: &str, cause: &str) -> StoredFacts {
    StoredFacts {
        rate: Some(BitRate::from_mbps(mbps)),
        limit: Some(limit.to_owned()),
        cause: Some(cause.to_owned()),
        valid: true,
        ..StoredFacts::default()
    }
}

pub(crate) fn wait_until(browser: &mut Browser, expression: &str) {
    let begun = Instant::now();
    while browser.evaluate(&format!("Boolean({expression})")) != true {
        let shown = browser.evaluate("document.body?.innerText");
        assert!(begun.elapsed() < TIMEOUT, "never: {expression}; {shown}");
        sleep(Duration::from_millis(100));
    }
}

/// Sees the page wide and narrow, in light and in dark; nothing else than this server was asked, and
/// the console has nothing.
pub(crate) fn assert_everybody_can_use_it(browser: &mut Browser, pages: &Pages, place: &str) {
    for (width, scheme) in [(1_000, "light"), (360, "dark")] {
        browser.show(width, &[("prefers-color-scheme", scheme)]);
        let faults = browser.accessibility_faults();
        assert_eq!(faults, json!([]), "{place}, {width}, {scheme}");
        let needed = browser.evaluate("document.documentElement.scrollWidth");
        assert_eq!(needed, width, "{place}");
    }
    for noise in [
        "Runtime.consoleAPICalled",
        "Runtime.exceptionThrown",
        "Log.entryAdded",
    ] {
        assert_eq!(browser.events(noise).next(), None, "{place}");
    }
    for event in browser.events("Network.requestWillBeSent") {
        let address = event["params"]["request"]["url"].as_str().unwrap();
        let own = [pages.url("/"), "data:".to_owned(), "about:".to_owned()];
        assert!(own.iter().any(|own| address.starts_with(own)), "{address}");
    }
}

#[test]
fn a_browser_finds_compares_and_measures_and_outlives_the_server() {
    require!(Chromium, AxeCore);
    let _load = load_slot();
    let (_far, port) = far_end();
    let target = format!("127.0.0.1:{port}");
    let mut pages = Pages::start(&["--targets", &target]);
    let archive = pages.archive.clone();
    for _ in 0..2 {
        let measured = run(
            &mut fullpipe(&["measure", &target, "-t", "1", "--yes", "--store", &archive]),
            60,
        );
        assert!(measured.status.success(), "{measured:?}");
    }
    pages.keep(1, facts(100, "loss", "policer"), |_| ());
    let mut browser = Browser::start();

    browser.open_url(&pages.url("/"));
    assert_eq!(browser.evaluate("document.title"), "Token – fullpipe");
    browser.open_url(&pages.url(&format!("/#{TOKEN}")));
    wait_until(&mut browser, "document.title === 'Now – fullpipe'");
    assert_eq!(browser.evaluate("location.hash"), "");
    browser.open_url(&pages.url("/"));
    assert_everybody_can_use_it(&mut browser, &pages, "now");

    browser.open_url(&pages.url("/measurements?limit=loss"));
    assert_eq!(
        browser.evaluate("document.querySelectorAll('tbody tr').length"),
        1
    );
    browser.open_url(&pages.url("/measurements?host=127.0.0.1"));
    assert_everybody_can_use_it(&mut browser, &pages, "list");
    browser.evaluate("for (const one of document.querySelectorAll('[type=checkbox]')) one.click()");
    browser.evaluate("[...document.querySelectorAll('button')].at(-1).click()");
    wait_until(
        &mut browser,
        "location.pathname === '/compare' && document.querySelector('svg')",
    );
    let both = browser.evaluate("location.href");
    browser.open_url(both.as_str().unwrap());
    assert_everybody_can_use_it(&mut browser, &pages, "comparison");

    browser.open_url(&pages.url("/history?host=127.0.0.1"));
    assert_everybody_can_use_it(&mut browser, &pages, "history");

    browser.open_url(&pages.url(&format!("/new?host={target}&seconds=3")));
    assert_everybody_can_use_it(&mut browser, &pages, "new test");
    browser.evaluate("document.querySelector('[data-run]').click()");
    wait_until(&mut browser, "document.querySelector('[data-rate]')");
    assert_eq!(browser.accessibility_faults(), json!([]), "while it runs");
    wait_until(&mut browser, "document.querySelector('[data-result]')");
    browser.evaluate("document.querySelector('[data-result]').click()");
    wait_until(&mut browser, "location.pathname.startsWith('/documents/')");
    let result = browser.evaluate("location.href");
    browser.open_url(result.as_str().unwrap());
    assert_everybody_can_use_it(&mut browser, &pages, "result");

    browser.open_url(&pages.url("/"));
    wait_until(&mut browser, "document.querySelector('#lost')?.hidden");
    pages.server = None;
    wait_until(&mut browser, "!document.querySelector('#lost').hidden");
    pages.serve(&[]);
    wait_until(&mut browser, "document.querySelector('#lost')?.hidden");
}

#[test]
fn a_browser_sees_the_map_of_a_sweep_and_the_settings_of_the_host() {
    require!(Chromium, AxeCore);
    let pages = Pages::start(&[]);
    let sweep = "lab sweep slac-sweep --virtual --windows 64KiB..1MiB --streams 1..8 --store";
    let words: Vec<&str> = sweep.split(' ').chain([&*pages.archive]).collect();
    let swept = run(&mut fullpipe(&words), 60);
    assert!(swept.status.success(), "{swept:?}");
    let mut browser = Browser::start();
    browser.open_url(&pages.url(&format!("/#{TOKEN}")));
    wait_until(&mut browser, "document.title === 'Now – fullpipe'");
    browser.open_url(&pages.url("/campaigns"));
    assert_everybody_can_use_it(&mut browser, &pages, "campaigns");
    let sweep = browser.evaluate("document.querySelector('.newest a').href");
    browser.open_url(sweep.as_str().unwrap());
    assert_everybody_can_use_it(&mut browser, &pages, "sweep");
    let tiles = "[...document.querySelectorAll('.tile')].filter((tile) => tile.getBoundingClientRect().width > 9).length";
    assert!(browser.evaluate(tiles).as_u64().unwrap() > 9);
    browser.open_url(&pages.url("/host?bandwidth=1G&rtt=150ms"));
    assert_everybody_can_use_it(&mut browser, &pages, "host");
    let texts = browser.evaluate("document.querySelectorAll('pre').length");
    assert_eq!(texts, 2);
    browser.open_url(&pages.url("/host?bandwidth=1G&rtt=%3Cb%3E"));
    let why = browser.evaluate("document.querySelector('[role=alert]').textContent");
    assert_says(why.as_str().unwrap(), &["<b>", "is not a time"]);
}

#[test]
fn the_rate_on_the_page_is_that_of_the_result_and_a_test_can_be_stopped() {
    let _load = load_slot();
    let (_far, port) = far_end();
    let target = format!("127.0.0.1:{port}");
    let pages = Pages::start(&["--targets", &target]);
    let run = |seconds: u16| {
        let body = json!({"host": target, "reverse": true, "seconds": seconds, "streams": 2});
        let fields = [&*bearer(), "Content-Type: application/json"];
        pages.ask("POST /api/v1/runs", &fields, &body.to_string())
    };
    let state = || pages.get("/");
    let wait_for = |text: &str| {
        let begun = Instant::now();
        while !state().contains(text) {
            assert!(begun.elapsed() < TIMEOUT, "never {text}: {}", state());
            sleep(Duration::from_millis(50));
        }
    };
    assert_eq!(run(60).0, 200);
    let (status, _, body) = run(1);
    assert_eq!(status, 409, "{body}");
    wait_for("data-rate");
    let stopped = pages.ask("DELETE /api/v1/runs", &[&bearer()], "");
    assert_eq!(stopped.0, 200);
    wait_for("is over: ");

    assert_eq!(run(3).0, 200);
    wait_for("data-rate");
    let mut shown = Vec::new();
    while state().contains("data-stop") {
        let page = state();
        let rate = page.split("data-rate=\"").nth(1);
        shown.extend(rate.map(|rest| rest.split('"').next().unwrap().parse::<f64>().unwrap()));
        sleep(Duration::from_millis(50));
    }
    let newest: Value = serde_json::from_str(&pages.get("/api/v1/documents?length=1")).unwrap();
    let id = newest["stored"][0]["id"].as_str().unwrap();
    let document: Value =
        serde_json::from_str(&pages.get(&format!("/api/v1/documents/{id}"))).unwrap();
    let intervals = document["measurement"]["intervals"].as_array().unwrap();
    let known: Vec<f64> = intervals
        .iter()
        .map(|interval| interval["rate"].as_f64().unwrap())
        .collect();
    assert!(!shown.is_empty() && !known.is_empty(), "{document}");
    for rate in shown {
        let is_one = known
            .iter()
            .any(|known| (rate - known).abs() <= 0.05 * known);
        assert!(is_one, "{rate} of {known:?}");
    }
}

#[test]
fn who_does_not_belong_there_gets_and_changes_nothing() {
    let pages = Pages::start(&[]);
    pages.keep(1, facts(100, "loss", "policer"), |_| ());
    let own = bearer();
    let ask = |request: &str, fields: &[&str]| pages.ask(request, fields, "{}").0;
    assert_eq!(ask("GET /measurements", &[&own]), 200);
    // By another name, which may lead here (DNS rebinding), whatever the origin says.
    let named = ["Host: evil.example", "Origin: http://evil.example", &own];
    assert_eq!(ask("GET /measurements", &named), 421);
    assert_eq!(ask("GET /measurements", &["Host: localhost", &own]), 200);
    // Without the token, or with a wrong one.
    for path in [
        "/",
        "/measurements",
        "/campaigns",
        "/campaigns/zz",
        "/fleet",
        "/fleet/incidents/zz",
        "/api/v1/fleet",
        "/host",
        "/metrics",
        "/api/v1/documents",
        "/nothing",
        "/new",
    ] {
        assert_eq!(ask(&format!("GET {path}"), &[]), 401, "{path}");
        let wrong = ["Authorization: Bearer 0123456789abcdef-tesu"];
        assert_eq!(ask(&format!("GET {path}"), &wrong), 401, "{path}");
        let wrong = [&*format!("Cookie: fullpipe_{}={TOKEN}", pages.port)];
        assert_eq!(ask(&format!("GET {path}"), &wrong), 401, "{path}");
    }
}

#[test]
fn a_page_of_another_site_changes_nothing() {
    let pages = Pages::start(&[]);
    let own = bearer();
    let ask = |request: &str, fields: &[&str]| pages.ask(request, fields, "{}").0;
    // With the token and all.
    let kind = "Content-Type: application/json";
    for foreign in [
        "Origin: http://evil.example",
        "Origin: null",
        "Sec-Fetch-Site: cross-site",
        "Sec-Fetch-Site: same-site",
    ] {
        for request in ["POST /api/v1/runs", "DELETE /api/v1/runs", "POST /login"] {
            assert_eq!(
                ask(request, &[&own, kind, foreign]),
                403,
                "{request} {foreign}"
            );
        }
    }
    // A form of another site can send this kind, and not JSON.
    assert_eq!(
        ask("POST /api/v1/runs", &[&own, "Content-Type: text/plain"]),
        415
    );
    assert_eq!(ask("PUT /measurements", &[&own]), 405);
    let login = |token: &str| {
        let body = json!({ "token": token }).to_string();
        pages.ask("POST /login", &[kind], &body)
    };
    assert_eq!(login("0123456789abcdef-tesu").0, 403);
    let (status, head, _) = login(TOKEN);
    assert_eq!(status, 200);
    assert_says(
        &head,
        &[
            "set-cookie: fullpipe_",
            "HttpOnly",
            "SameSite=Strict",
            "Path=/",
        ],
    );
    assert!(!head.contains(TOKEN));
}

#[test]
fn a_browser_is_told_to_load_nothing_from_elsewhere() {
    let pages = Pages::start(&[]);
    let (_, head, _) = pages.ask("GET /", &[&bearer()], "");
    assert_says(
        &head,
        &[
            "content-security-policy: default-src 'none'; script-src 'self'",
            "frame-ancestors 'none'",
            "x-content-type-options: nosniff",
            "cache-control: no-store",
        ],
    );
    assert!(!head.contains("access-control"), "{head}");
}

#[test]
fn tests_go_to_known_hosts_and_within_bounds() {
    let pages = Pages::start(&[]);
    pages.keep(1, facts(100, "loss", "policer"), |_| ());
    let fields = [&*bearer(), "Content-Type: application/json"];
    let run = |body: &str| pages.ask("POST /api/v1/runs", &fields, body);
    for (body, status) in [
        (
            r#"{"host":"elsewhere.example","reverse":false,"seconds":1,"streams":1}"#,
            403,
        ),
        (
            r#"{"host":"--file=/etc/passwd","reverse":false,"seconds":1,"streams":1}"#,
            403,
        ),
        (
            r#"{"host":"there","reverse":false,"seconds":0,"streams":1}"#,
            400,
        ),
        (
            r#"{"host":"there","reverse":false,"seconds":301,"streams":1}"#,
            400,
        ),
        (
            r#"{"host":"there","reverse":false,"seconds":1,"streams":65}"#,
            400,
        ),
        (
            r#"{"host":"there","reverse":false,"seconds":1,"streams":1,"file":"x"}"#,
            400,
        ),
        ("[]", 400),
        ("", 400),
        (&"x".repeat(10_000), 400),
    ] {
        assert_eq!(run(body).0, status, "{body}");
    }
}

/// Opens connections that hold their places as long as they may, from another address.
fn hostile_connections(pages: &Pages, first: &[u8]) -> Vec<TcpStream> {
    let connect = |_| {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket
            .bind(&SocketAddr::from(([127, 0, 0, 2], 0)).into())
            .unwrap();
        let server = SocketAddr::from(([127, 0, 0, 1], pages.port));
        socket.connect(&server.into()).unwrap();
        let mut stream = TcpStream::from(socket);
        // One that is refused is closed at once.
        let _ = stream.write_all(first);
        stream
    };
    (0..300).map(connect).collect()
}

#[test]
fn whoever_says_nothing_or_half_keeps_nobody_out() {
    let pages = Pages::start(&[]);
    let begun = Instant::now();
    let held: Vec<Vec<TcpStream>> = [
        &b""[..],
        b"GET / HTTP/1.1\r\nHost: localhost\r\n",
        b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{",
        b"GET /style.css HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ]
    .iter()
    .map(|first| hostile_connections(&pages, first))
    .collect();
    let asked = Instant::now();
    pages.get("/measurements");
    println!("served after {:?} beside 1500 others", asked.elapsed());
    for mut stream in held.into_iter().flatten() {
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        // All that is there, until the server closes it.
        let ended = stream.read_to_end(&mut Vec::new());
        assert!(ended.is_ok() || ended.is_err_and(|error| error.kind() == ConnectionReset));
    }
    println!("all places free after {:?}", begun.elapsed());
}

#[test]
fn other_hosts_reach_pages_by_a_token_and_tls_alone() {
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().join("a.db").display().to_string();
    let start = |more: &[&str]| {
        let usual = ["web", "-p", "0", "--store", &archive];
        let mut command = fullpipe(&[&usual, more].concat());
        command.env("XDG_STATE_HOME", folder.path());
        run(&mut command, 20)
    };
    assert_says(
        &sentence(&start(&["-B", "0.0.0.0"]), 2),
        &["--token-file", "--cert", "--key-pem"],
    );
    let token = folder.path().join("token");
    std::fs::write(&token, TOKEN).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    std::fs::set_permissions(&token, mode).unwrap();
    let token = token.display().to_string();
    assert_says(
        &sentence(&start(&["--token-file", &token]), 2),
        &["cannot use the token", "chmod 600"],
    );
    assert_says(
        &sentence(&start(&["-B", "::", "--token-file", &token]), 2),
        &["--cert"],
    );
}

#[test]
fn names_with_markup_are_text_and_no_address_fails() {
    let pages = Pages::start(&[]);
    let markup = "\"><script>alert(1)</script><img src=x onerror=alert(1)>'&{{}}";
    let evil = || markup.to_owned();
    for number in 1..=3 {
        pages.keep(number, facts(100, markup, markup), |head| {
            head.peer = evil();
            head.host = evil();
            head.address = evil();
            head.campaign = evil();
            head.cell = evil();
            head.path_key = evil();
            head.request_key = evil();
            head.program = evil();
        });
    }
    let listed: Value = serde_json::from_str(&pages.get("/api/v1/documents")).unwrap();
    let ids: Vec<&str> = listed["stored"]
        .as_array()
        .unwrap()
        .iter()
        .map(|document| document["id"].as_str().unwrap())
        .collect();
    let host: Vec<String> = markup.bytes().map(|byte| format!("%{byte:02x}")).collect();
    let host = host.concat();
    let mut addresses = vec![
        "/style.css".to_owned(),
        "/chart.js".to_owned(),
        "/web.js".to_owned(),
    ];
    let values = [
        "",
        &host,
        "%00",
        "%ff%fe",
        "-1",
        "99999999999999999999",
        "a_b",
        "30d",
    ];
    for path in [
        "/",
        "/measurements",
        "/compare",
        "/history",
        "/new",
        "/metrics",
        "/probe",
        "/api/v1/documents",
        "/api/v1/history",
        "/api/v1/openapi.json",
        "/api/v1/runs",
    ] {
        addresses.push(path.to_owned());
        for name in [
            "host",
            "limit",
            "since",
            "kind",
            "campaign",
            "length",
            "behind",
            "id",
            "seconds",
            "streams",
            "direction",
            "target",
            "port",
            "reverse_mode",
        ] {
            addresses.extend(values.map(|value| format!("{path}?{name}={value}&host={host}")));
        }
    }
    for path in ["/documents/", "/api/v1/documents/"] {
        addresses.extend(ids.iter().map(|id| format!("{path}{id}")));
        addresses.extend(["", "..", "%2e%2e", "0", "zz", &host].map(|id| format!("{path}{id}")));
    }
    let both = format!("/compare?id={}&id={}", ids[0], ids[1]);
    addresses.push(both);
    addresses.push(format!("/probe?target={host}&port={host}"));
    let mut answered = 0;
    for address in &addresses {
        let (status, head, body) = pages.ask(&format!("GET {address}"), &[&bearer()], "");
        assert!(status < 500, "{address}: {status} {body}");
        answered += u32::from(status == 200);
        let is_page = head.contains("content-type: text/html");
        for tag in ["<script>alert", "<img src=x"] {
            assert!(!is_page || !body.contains(tag), "{address}: {body}");
        }
    }
    println!("{answered} of {} addresses have a result", addresses.len());
    assert!(answered > 100);
}

/// Fails unless promtool finds nothing to say of these metrics.
pub(crate) fn check_metrics(text: &str) {
    let mut check = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    check
        .stdin
        .take()
        .unwrap()
        .write_all(text.as_bytes())
        .unwrap();
    let checked = check.wait_with_output().unwrap();
    assert!(checked.status.success(), "{checked:?}: {text}");
    assert_eq!(String::from_utf8_lossy(&checked.stderr), "");
    assert_eq!(String::from_utf8_lossy(&checked.stdout), "");
}

#[test]
fn metrics_are_those_of_the_newest_run_in_each_direction() {
    require!(Promtool);
    let pages = Pages::start(&[]);
    for (number, mbps) in [(1, 100), (2, 200), (3, 300)] {
        let mut measured = facts(mbps, "receive-window", "host");
        measured.direction = if number == 2 {
            fullpipe_record::Direction::Download
        } else {
            fullpipe_record::Direction::Upload
        };
        pages.keep(number, measured, |head| {
            head.peer = "a \"b\" \\c".to_owned();
        });
    }
    let text = pages.get("/metrics");
    let labels = r#"{peer="a \"b\" \\c",direction="#;
    for line in [
        format!("fullpipe_throughput_bytes_per_second{labels}\"upload\"}} 37500000"),
        format!("fullpipe_throughput_bytes_per_second{labels}\"download\"}} 25000000"),
        format!("fullpipe_limit_info{labels}\"upload\",limit=\"receive-window/host\"}} 1"),
    ] {
        assert!(text.lines().any(|other| other == line), "{line}: {text}");
    }
    assert_eq!(
        text.matches("fullpipe_measurement_age_seconds{").count(),
        2,
        "{text}"
    );
    let known = pages.get("/probe?target=a+%22b%22+%5cc&port=5201&reverse_mode=true");
    assert_says(
        &known,
        &[
            "iperf3_up{",
            "} 1\n",
            "iperf3_received_bps{",
            "} 200000000\n",
        ],
    );
    let unknown = pages.get("/probe?target=nobody");
    assert_says(
        &unknown,
        &["iperf3_up{target=\"nobody\",port=\"5201\"} 0\n"],
    );
    for text in [text, known, unknown] {
        check_metrics(&text);
    }
}

#[test]
fn each_choice_of_a_page_has_a_result() {
    let pages = Pages::start(&[]);
    pages.keep(1, facts(100, "loss", "policer"), |_| ());
    for path in ["/measurements?", "/history?host=there&"] {
        let page = pages.get(path);
        let mut choices = 0;
        for select in page.split("<select name=\"").skip(1) {
            let (name, rest) = select.split_once('"').unwrap();
            let (offered, _) = rest.split_once("</select>").unwrap();
            for option in offered.split("<option value=\"").skip(1) {
                let (value, _) = option.split_once('"').unwrap();
                pages.get(&format!("{path}{name}={value}"));
                choices += 1;
            }
        }
        assert!(choices > 4, "{page}");
    }
    for since in ["30d", "2026-02-01", "2026-02-01T00:00:00Z"] {
        let body = pages.get(&format!("/api/v1/history?host=there&since={since}"));
        assert!(body.contains("\"history\""), "{body}");
    }
}

#[test]
fn a_list_goes_on_behind_its_last_document() {
    let pages = Pages::start(&[]);
    for number in 0..120 {
        // Some began at the same time.
        pages.keep(number / 3, facts(100, "capacity", "link"), |head| {
            head.cell = number.to_string();
        });
    }
    let mut next = Some("/api/v1/documents?length=7&limit=capacity".to_owned());
    let mut found = Vec::new();
    while let Some(path) = next {
        let (status, head, body) = pages.ask(&format!("GET {path}"), &[&bearer()], "");
        assert_eq!(status, 200, "{body}");
        let document: Value = serde_json::from_str(&body).unwrap();
        let stored = document["stored"].as_array().unwrap();
        found.extend(
            stored
                .iter()
                .map(|one| one["id"].as_str().unwrap().to_owned()),
        );
        let link = head.lines().find_map(|line| line.strip_prefix("link: <"));
        next = link.map(|link| link.split_once('>').unwrap().0.to_owned());
    }
    found.sort();
    found.dedup();
    // Bodies that are the same are one document.
    assert_eq!(found.len(), 40);
}

#[test]
fn an_archive_that_is_missing_is_said_and_found_once_it_is_there() {
    let mut pages = Pages::start(&[]);
    pages.server = None;
    std::fs::remove_file(&pages.archive).unwrap();
    pages.serve(&[]);
    let (status, _, body) = pages.ask("GET /measurements", &[&bearer()], "");
    assert_eq!(status, 503);
    assert_says(&body, &["no archive at", "store create", "href=\"/demo\""]);
    assert_says(&pages.get("/demo"), &["<svg", "send-buffer"]);
    Store::create(&pages.location()).unwrap();
    assert!(pages.get("/measurements").contains("No document"));
}

#[test]
fn a_result_that_finds_a_full_disk_is_said_and_nothing_else_is_lost() {
    require!(Root, Unshare);
    let _load = load_slot();
    let (_far, port) = far_end();
    let folder = tempfile::tempdir().unwrap();
    write_secret(folder.path().join("token"), TOKEN);
    // Whoever does not leave room for it finds no archive on that disk.
    let script = "mount -t tmpfs -o size=400k none \"$1\" && cd \"$1\" && \"$2\" store create --store a.db >/dev/null && \
                  { head -c 10M /dev/zero > rest || true; } 2>/dev/null && shift && exec \"$@\"";
    let disk = folder.path().join("disk");
    std::fs::create_dir(&disk).unwrap();
    let own = free_port();
    let target = format!("127.0.0.1:{port}");
    let program = fullpipe(&[]).get_program().to_owned();
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "sh", "-c", script, "sh"])
        .arg(&disk)
        .arg(program)
        .args(["web", "--store", "a.db", "-p", &own.to_string()])
        .args(["--targets", &target, "--token-file"])
        .arg(folder.path().join("token"))
        .env("XDG_STATE_HOME", folder.path());
    let pages = Pages {
        folder,
        archive: String::new(),
        port: own,
        server: Some(Running::start(&mut command)),
    };
    wait_for_listener(own);
    let fields = [&*bearer(), "Content-Type: application/json"];
    let body = json!({"host": target, "reverse": false, "seconds": 1, "streams": 1});
    let (status, _, answer) = pages.ask("POST /api/v1/runs", &fields, &body.to_string());
    assert_eq!(status, 200, "{answer}");
    let begun = Instant::now();
    let state = loop {
        let state = pages.get("/api/v1/runs");
        if !state.contains("running") {
            break state;
        }
        assert!(begun.elapsed() < TIMEOUT, "{state}");
        sleep(Duration::from_millis(100));
    };
    assert_says(&state, &["failed", "its result is not kept"]);
    assert!(pages.get("/measurements").contains("No document"));
}

#[test]
fn a_server_that_is_killed_leaves_its_test_to_its_end_and_the_next_waits_for_that() {
    let _load = load_slot();
    let (_far, port) = far_end();
    let target = format!("127.0.0.1:{port}");
    let targets = ["--targets", &target];
    let mut pages = Pages::start(&targets);
    let body = json!({"host": target, "reverse": true, "seconds": 3, "streams": 1}).to_string();
    let fields = [&*bearer(), "Content-Type: application/json"];
    assert_eq!(pages.ask("POST /api/v1/runs", &fields, &body).0, 200);
    pages.server = None;
    pages.serve(&targets);
    let (status, _, why) = pages.ask("POST /api/v1/runs", &fields, &body);
    assert_eq!(status, 409, "{why}");
    let begun = Instant::now();
    while !pages.get("/measurements").contains("/documents/") {
        assert!(begun.elapsed() < TIMEOUT, "its result is lost");
        sleep(Duration::from_millis(100));
    }
}
