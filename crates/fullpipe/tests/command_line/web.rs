//! The server of speed tests over the web: what others' clients ask for, and what hostile ones do.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use fullpipe_testkit::websocket::{ndt7_head, request_head};
use fullpipe_testkit::{
    Running, assert_says, document, free_port, load_slot, require, sentence, wait_for_listener,
    within,
};
use serde_json::Value;

use crate::common::{fullpipe, run};

const TIMEOUT: u64 = 40;

/// Longest time that an honest client may wait for an answer, whatever others do.
const PROMPT: Duration = Duration::from_secs(5);

/// A server of the web on this host.
struct Server {
    running: Running,
    port: u16,
}

impl Server {
    fn start(more: &[&str]) -> Self {
        let [tests, port] = [free_port(), free_port()];
        let (tests, web) = (tests.to_string(), format!("127.0.0.1:{port}"));
        let usual = [
            "serve",
            "-p",
            &tests,
            "-B",
            "127.0.0.1",
            "--no-iperf2",
            "--web",
            &web,
        ];
        let mut command = fullpipe(&[&usual, more].concat());
        let running = Running::start(&mut command);
        wait_for_listener(port);
        Self { running, port }
    }

    fn url(&self, scheme: &str, path: &str) -> String {
        format!("{scheme}://127.0.0.1:{}{path}", self.port)
    }

    /// Returns what `curl` prints with these arguments.
    fn curl(&self, path: &str, more: &[&str]) -> String {
        let url = self.url("https", path);
        let mut command = Command::new("curl");
        command.args(["-sSk", "--max-time", "30", &url]).args(more);
        let output = run(&mut command, TIMEOUT);
        assert!(output.status.success(), "{path}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Returns what `curl` writes as `format` of a request for `path` and one for its address.
    fn curl_and_address(&self, path: &str, format: &str) -> String {
        let address = self.url("https", "/getIP");
        let nowhere = ["-o", "/dev/null"];
        let written = ["-w", format, &address];
        self.curl(path, &[&nowhere[..], &nowhere, &written].concat())
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        stream
    }

    /// Sends `request` in the clear, and returns the first line of the answer.
    fn status(&self, request: &str) -> String {
        let mut stream = self.connect();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        let _ = stream.take(4096).read_to_end(&mut answer);
        let text = String::from_utf8_lossy(&answer);
        text.lines().next().unwrap_or_default().to_owned()
    }
}

#[test]
fn curl_gets_what_cloudflare_librespeed_and_responsiveness_have() {
    require!(Curl);
    let server = Server::start(&[]);
    assert!(server.curl("/", &[]).contains("<h1 data-text=\"title\">"));
    for (version, more) in [
        ("1.1", &["--http1.1"][..]),
        ("2", &[]),
        ("1.1", &["--no-alpn"]),
    ] {
        let written = ["-o", "/dev/null", "-w", "%{size_download} %{http_version}"];
        let count = server.curl("/__down?bytes=123456", &[&written, more].concat());
        assert_eq!(count, format!("123456 {version}"));
    }
    let chunk = server.curl(
        "/backend/garbage.php?ckSize=2",
        &["-o", "/dev/null", "-w", "%{size_download}"],
    );
    assert_eq!(chunk, "2097152");
    assert_eq!(server.curl("/empty.php", &[]), "");
    let address: Value = serde_json::from_str(&server.curl("/getIP.php", &[])).unwrap();
    assert_eq!(address["processedString"], "127.0.0.1");
    let config: Value = serde_json::from_str(&server.curl("/.well-known/nq", &[])).unwrap();
    let small = config["urls"]["small_download_url"].as_str().unwrap();
    assert_eq!(small, server.url("https", "/nq/small"));
    // Of a body in chunks, curl counts their sizes, too.
    for (path, more, sent) in [
        ("/__up", "--data-binary @-", "200 3000000"),
        (
            "/nq/upload",
            "--http1.1 -X POST -T - -H 'Transfer-Encoding: chunked'",
            "200 30",
        ),
        ("/__up", "--http1.1 --data-binary @-", "200 3000000"),
        ("/nq/upload", "-X POST -T -", "200 3000000"),
    ] {
        let url = server.url("https", path);
        let script = format!(
            "head -c 3000000 /dev/zero | curl -sSk --max-time 30 -o /dev/null \
             -w '%{{http_code}} %{{size_upload}}' {more} '{url}'"
        );
        let output = run(Command::new("sh").args(["-c", &script]), TIMEOUT);
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(printed.starts_with(sent), "{output:?}");
    }
    // Both requests on one connection.
    let both = server.curl_and_address("/__down?bytes=3000000", "%{num_connects} ");
    assert_eq!(both, "1 0 ");
}

#[test]
fn a_transfer_has_a_verdict_that_its_client_can_ask_for() {
    require!(Curl);
    let _load = load_slot();
    let server = Server::start(&[]);
    let head = server.curl(
        "/__down?bytes=40000000",
        &["--limit-rate", "10M", "-o", "/dev/null", "-D", "-"],
    );
    let link = head.lines().find_map(|line| line.strip_prefix("link: <"));
    let path = link.unwrap().split('>').next().unwrap();
    let is_there = || server.curl(path, &["-o", "/dev/null", "-w", "%{http_code}"]) == "200";
    assert!(within(PROMPT, is_there), "{path} is not there");
    let result: Value = serde_json::from_str(&server.curl(path, &[])).unwrap();
    assert_eq!(result["bytes"], 40_000_000, "{result}");
    // Between two of its reads, the slow reader's window is all that the sender sees.
    assert_eq!(result["limit"]["at"], "receiver", "{result}");
    assert!(
        result["remedies"].is_array() && result["sentence"].is_string(),
        "{result}"
    );
    let none = server.curl("/result/0123", &["-o", "/dev/null", "-w", "%{http_code}"]);
    assert_eq!(none, "404");
}

#[test]
fn either_version_of_http_refuses_the_same() {
    require!(Curl);
    let server = Server::start(&["--max-bytes", "1M"]);
    let nowhere = ["-H", "Origin: https://elsewhere"];
    for (path, more, status) in [
        ("/", &nowhere[..], "403"),
        ("/other", &[], "404"),
        ("/", &["-X", "POST"], "405"),
        ("/getIP", &["-X", "GET", "-d", "body"], "400"),
        ("/ndt/v7/download", &[], "400"),
        ("/__down?bytes=5000000", &[], "429"),
        ("/nq/large", &["-I"], "200"),
    ] {
        for version in ["--http1.1", "--http2"] {
            let written = ["-o", "/dev/null", "-w", "%{http_code}", version];
            let code = server.curl(path, &[&written, more].concat());
            assert_eq!(code, status, "{path} {version}");
        }
    }
    // What is refused on one stream does not end the others.
    let both = server.curl_and_address("/other", "%{http_code} %{num_connects} ");
    assert_eq!(both, "404 1 200 0 ");
}

#[test]
fn streams_of_one_connection_are_one_test() {
    require!(Nghttp);
    let _load = load_slot();
    let server = Server::start(&["--json-lines"]);
    let port = server.port;
    let url = |path: &str| format!("https://127.0.0.1:{port}{path}");
    let body = |paths: &[&str], more: &[&str]| {
        let mut command = Command::new("nghttp");
        command.args(more).args(paths.iter().map(|path| url(path)));
        let output = run(&mut command, TIMEOUT);
        assert!(output.status.success(), "{paths:?}: {output:?}");
        output.stdout
    };
    let config: Value = serde_json::from_slice(&body(&["/.well-known/nq"], &[])).unwrap();
    assert_eq!(config["urls"]["upload_url"], url("/nq/upload"));
    assert_eq!(body(&["/nq/small"], &[]).len(), 1);
    let large = "/__down?bytes=30000000";
    let other = "/__down?bytes=30000000&again=1";
    assert_eq!(body(&[large, "/nq/small", other], &[]).len(), 60_000_001);
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), vec![7; 3_000_000]).unwrap();
    let file = file.path().to_str().unwrap();
    let sent = String::from_utf8(body(&["/nq/upload"], &["-v", "-d", file])).unwrap();
    assert!(
        sent.contains(":status: 200") && sent.contains("link: </result/"),
        "{sent}"
    );
    server.running.interrupt();
    let output = server.running.finish(Duration::from_secs(20));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    // One of a second or more is a measurement.
    let is_end = |line: &&str| {
        ["\"ended\"", "\"measurement\""]
            .iter()
            .any(|event| line.contains(event))
    };
    assert_eq!(said.lines().filter(is_end).count(), 2);
}

#[test]
fn this_client_measures_both_ways() {
    let _load = load_slot();
    let server = Server::start(&["--web-plain"]);
    for scheme in ["ndt7", "ndt7+ws"] {
        let url = server.url(scheme, "");
        let arguments = [
            "measure",
            &url,
            "--json",
            "--no-store",
            "-t",
            "1",
            "-w",
            "64K",
        ];
        let report = document(&run(&mut fullpipe(&arguments), TIMEOUT));
        for part in ["measurement", "followed_by"] {
            let received = report[part]["summary"]["received"].as_f64().unwrap();
            assert!(received > 1e6, "{scheme} {part}: {report:#}");
            assert!(report[part]["limit"]["kind"].is_string());
        }
        let directions =
            ["measurement", "followed_by"].map(|part| &report[part]["request"]["direction"]);
        assert_eq!(directions, ["download", "upload"]);
    }
    let plain = server.url("ndt7+ws", "");
    let reverse = ["measure", &plain, "-R", "--json", "--no-store", "-t", "0.5"];
    let report = document(&run(&mut fullpipe(&reverse), TIMEOUT));
    assert!(report["followed_by"].is_null() && report["measurement"].is_object());
}

#[test]
fn what_ndt7_does_not_have_is_an_error_in_one_sentence() {
    let server = Server::start(&[]);
    let (tls, plain) = (server.url("ndt7", ""), server.url("ndt7+ws", ""));
    for (arguments, code, why) in [
        (&["measure", &tls, "-P", "2"][..], 2, "one stream of TCP"),
        (&["measure", &tls, "-t", "11"], 2, "10 s at most"),
        (&["measure", &tls, "--bidir"], 2, "leave out --bidir"),
        (&["measure", &tls, "--route"], 2, "neither"),
        (&["measure", &tls, "--ramp", "1M..5M"], 2, "neither"),
        // Without --web-plain nothing is said in the clear.
        (&["measure", &plain], 1, "closed the connection"),
        (&["measure", "ndt7://127.0.0.1:1"], 1, "refused"),
    ] {
        let output = run(&mut fullpipe(arguments), TIMEOUT);
        let said = String::from_utf8_lossy(&output.stderr).replace('\n', " ");
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        assert!(said.contains(why), "{arguments:?}: {said}");
    }
}

#[test]
fn responsiveness_has_its_figures_in_the_document_and_one_sentence_where_there_is_none() {
    let _load = load_slot();
    let server = Server::start(&[]);
    let url = server.url("https", "");
    let words = ["measure", &url, "--rpm", "-t", "3", "--json", "--no-store"];
    let report = document(&run(&mut fullpipe(&words), TIMEOUT));
    for part in ["measurement", "followed_by"] {
        let rpm = &report[part]["rtt"]["rpm"];
        assert!(rpm["per_minute"].as_f64().unwrap() > 0.0, "{part}: {rpm}");
        assert_eq!(rpm["confidence"], "low");
        assert!(
            report[part]["request"]["streams"].as_u64() >= Some(2),
            "{report:#}"
        );
        assert!(report[part]["limit"]["kind"].is_string());
    }
    let [host, other] = [
        format!("127.0.0.1:{}", server.port),
        server.url("https", "/other"),
    ];
    for (arguments, code, why) in [
        (&[&*host, "--rpm"][..], 2, "https://HOST --rpm"),
        (&[&url], 2, "https://HOST --rpm"),
        (&[&url, "--rpm", "-P", "2"], 2, "one connection"),
        (&[&url, "--rpm", "--bidir"], 2, "leave out --bidir"),
        (&[&other, "--rpm"], 1, "status 404"),
        (&["https://127.0.0.1:1", "--rpm"], 1, "refused"),
    ] {
        let output = run(&mut fullpipe(&[&["measure"], arguments].concat()), TIMEOUT);
        let said = String::from_utf8_lossy(&output.stderr).replace('\n', " ");
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        assert!(said.contains(why), "{arguments:?}: {said}");
    }
}

#[test]
fn a_key_of_the_web_that_every_user_may_read_is_refused() {
    let key = tempfile::NamedTempFile::new().unwrap();
    fs::set_permissions(key.path(), fs::Permissions::from_mode(0o644)).unwrap();
    let path = key.path().to_str().unwrap();
    let words = [
        "serve",
        "--web",
        "127.0.0.1:0",
        "--cert",
        path,
        "--key-pem",
        path,
    ];
    let said = sentence(&run(&mut fullpipe(&words), TIMEOUT), 2);
    assert_says(&said, &["every user of this host may read", "chmod 600"]);
}

#[test]
fn requests_that_are_not_served_are_refused_with_their_status() {
    let server = Server::start(&["--web-plain", "--max-bytes", "1M", "--max-tests", "0"]);
    let with = |line: &str, fields: &str| format!("{line} HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
    for (request, status) in [
        ("GET / HTTP/1.1\r\n\r\n".to_owned(), "400"),
        (with("GET /", "Origin: https://elsewhere\r\n"), "403"),
        (with("GET /other", ""), "404"),
        (with("POST /", ""), "405"),
        (with("GET /", "Content-Length: 5\r\n"), "400"),
        (with("GET /ndt/v7/download", ""), "400"),
        (
            with(
                "GET /ndt/v7/upload",
                "Upgrade: websocket\r\nSec-WebSocket-Version: 12\r\n",
            ),
            "426",
        ),
        (
            with("GET /", &format!("X: {}\r\n", "x".repeat(20_000))),
            "431",
        ),
        (with("GET /__down?bytes=500000", ""), "503"),
        ("SSH-2.0-x\r\n\r\n".to_owned(), "400"),
    ] {
        let line = server.status(&request);
        assert!(
            line.starts_with(&format!("HTTP/1.1 {status} ")),
            "{request:?}: {line}"
        );
    }
    let server = Server::start(&["--web-plain", "--max-bytes", "1M"]);
    let line = server.status(&with("GET /__down?bytes=5000000", ""));
    assert!(line.starts_with("HTTP/1.1 429 "), "{line}");
}

#[test]
fn frames_that_break_the_rules_end_a_test() {
    let server = Server::start(&["--web-plain"]);
    for frame in [
        // Not masked, of no known kind, a control frame of 126 bytes, text that is no JSON.
        &b"\x82\x05hello"[..],
        b"\x83\x80abcd",
        b"\x89\xfe\x00\x7eabcd",
        b"\x81\x81\0\0\0\0x",
        b"\x82\xff\xff\xff\xff\xff\xff\xff\xff\xffabcd",
    ] {
        let mut stream = server.connect();
        stream.write_all(&ndt7_head("upload")).unwrap();
        stream.write_all(frame).unwrap();
        let begun = Instant::now();
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
        assert!(rest.starts_with(b"HTTP/1.1 101 "), "{frame:x?}");
        assert!(
            begun.elapsed() < PROMPT,
            "{frame:x?}: {:?}",
            begun.elapsed()
        );
    }
}

/// Returns the field `Retry-After` of an answer.
fn retry_after(head: &str) -> u64 {
    let field = head
        .lines()
        .filter_map(|line| line.split_once(": "))
        .find_map(|(name, value)| name.eq_ignore_ascii_case("retry-after").then_some(value));
    field.unwrap_or_else(|| panic!("{head}")).parse().unwrap()
}

#[test]
fn a_client_moves_no_more_in_an_hour_and_all_no_more_in_a_day_than_is_permitted() {
    require!(Curl);
    for (flag, length) in [("--web-limit", 3600), ("--daily", 86_400)] {
        let server = Server::start(&[flag, "5M"]);
        let bytes = |asked: &str| {
            let path = format!("/__down?bytes={asked}");
            let mut command = Command::new("curl");
            let url = server.url("https", &path);
            command.args(["-sk", "--max-time", "30", "-o", "/dev/null", &url]);
            command.args(["-w", "%{http_code} %{size_download}"]);
            let said = String::from_utf8(run(&mut command, TIMEOUT).stdout).unwrap();
            let (status, bytes) = said.split_once(' ').unwrap();
            (status.to_owned(), bytes.parse::<u64>().unwrap())
        };
        assert_eq!(bytes("3000000"), ("200".to_owned(), 3_000_000), "{flag}");
        // It is cut off where the limit is seen to be exceeded, 50 times a second.
        let (status, moved) = bytes("60000000000");
        assert!(status == "200" && moved < 50_000_000_000, "{flag}: {moved}");
        for (version, status) in [("--http1.1", "HTTP/1.1 429 "), ("--http2", "HTTP/2 429 ")] {
            let head = server.curl("/__down?bytes=1000000", &["-i", version]);
            assert!(head.starts_with(status), "{head}");
            let wait = retry_after(&head);
            assert!((length - 60..=length + 1).contains(&wait), "{flag}: {wait}");
        }
        assert!(server.curl("/", &[]).contains("<html"), "the page stays");
    }
}

#[test]
fn transfers_are_kept_under_the_network_of_the_client() {
    require!(Curl);
    let _load = load_slot();
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().join("web.db");
    let archive = archive.to_str().unwrap();
    let server = Server::start(&["--web-store", archive, "--web-plain"]);
    let path = "/__down?bytes=30000000";
    server.curl(path, &["--limit-rate", "15M", "-o", "/dev/null"]);
    let history = || {
        let command = ["history", "127.0.0.0/24", "--store", archive, "--json"];
        document(&run(&mut fullpipe(&command), TIMEOUT))
    };
    within(Duration::from_secs(10), || {
        history()["history"]["series"][0]["points"][0].is_object()
    });
    let kept = fs::read(archive).unwrap();
    let named = kept.windows(9).any(|part| part == b"127.0.0.1");
    assert!(!named, "the client is not named");
    let wrong = ["serve", "--web", "0", "--web-store", "ftp://x"];
    let output = run(&mut fullpipe(&wrong), TIMEOUT);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.code() == Some(2) && said.contains("--web-store <FILE|URL>"),
        "{output:?}"
    );
}

/// Reads what a download brings for two seconds, and then nothing until the server ends it.
fn stop_reading(server: &Server) {
    let mut stream = server.connect();
    let request = request_head("GET /__down?bytes=60000000000", "");
    stream.write_all(&request).unwrap();
    let (begun, mut buffer) = (Instant::now(), vec![0; 1 << 20]);
    while begun.elapsed() < Duration::from_secs(2) {
        stream.read_exact(&mut buffer).unwrap();
        thread::sleep(Duration::from_millis(20));
    }
    thread::sleep(Duration::from_secs(5));
}

/// A download of ndt7 whose client had died was held until it counted as stalled, with a verdict on
/// the silence.
#[test]
fn transfers_that_break_off_have_a_verdict_on_what_there_was() {
    require!(Curl);
    let _load = load_slot();
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let [archive, body, log] = ["web.db", "body", "log"].map(file);
    fs::File::create(&body).unwrap().set_len(1 << 32).unwrap();
    let words = ["--json-lines", "--web-plain", "--client-timeout", "1"];
    let files = ["--web-store", &archive, "--logfile", &log];
    let server = Server::start(&[&words[..], &files].concat());
    let leave = |path: &str, more: &[&str]| {
        let mut command = Command::new("curl");
        command.args([
            "-sk",
            "--max-time",
            "5",
            "--limit-rate",
            "20M",
            "-o",
            "/dev/null",
        ]);
        command.arg(server.url("https", path)).args(more);
        assert_eq!(run(&mut command, TIMEOUT).status.code(), Some(28), "{path}");
    };
    thread::scope(|scope| {
        scope.spawn(|| stop_reading(&server));
        for version in ["--http1.1", "--http2"] {
            let upload = [version, "-X", "POST", "-T", &body].map(str::to_owned);
            scope.spawn(move || leave("/__down?bytes=60000000000", &[version]));
            scope.spawn(move || leave("/__up", &upload.each_ref().map(String::as_str)));
        }
        let target = server.url("ndt7", "");
        let ndt7 = ["measure", &target, "--no-store", "--reverse"];
        let mut client = Running::start(&mut fullpipe(&ndt7));
        thread::sleep(Duration::from_secs(3));
        client.kill();
    });
    let ended = || {
        let said = fs::read_to_string(&log).unwrap();
        let events = said
            .lines()
            .map_while(|line| serde_json::from_str::<Value>(line).ok());
        events
            .filter(|event| event["event"] == "measurement")
            .collect::<Vec<_>>()
    };
    assert!(
        within(Duration::from_secs(20), || ended().len() == 6),
        "{}",
        ended().len()
    );
    let command = ["history", "127.0.0.0/24", "--store", &archive, "--json"];
    let history = run(&mut fullpipe(&command), TIMEOUT).stdout;
    let history = String::from_utf8(history).unwrap();
    assert_eq!(history.matches("\"valid\": false").count(), 6, "{history}");
    for event in ended() {
        let measured = &event["data"];
        let why = measured["broken_off"].as_str().unwrap();
        let about = format!("{} {why}", measured["request"]["title"]);
        let sentence = measured["limit"]["sentence"].as_str().unwrap();
        assert!(!sentence.contains(" 0 bit/s"), "{about}: {sentence}");
        // The silence until a transfer counts as stalled is no part of it.
        let duration = measured["summary"]["duration"].as_f64().unwrap();
        let longest = if why.contains("no data") { 4.0 } else { 6.0 };
        assert!((1.0..longest).contains(&duration), "{about}: {duration} s");
    }
}
