//! The page of `serve --web` in a real Chromium, against the server on this host.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread::sleep;
use std::time::{Duration, Instant};

use fullpipe_record::LegalVerdict;
use fullpipe_testkit::{Browser, Running, free_port, load_slot, require, wait_for_listener};
use serde_json::{Value, json};

use crate::common::fullpipe;

/// Bytes of the page and its files at most, with their heads.
const MAX_PAGE: f64 = 100e3;

/// Longest time for a whole test of the page, which takes 22 seconds, also on a busy machine.
const TIMEOUT: Duration = Duration::from_mins(2);

/// Bytes that both buffers hold at most: the largest `tcp_wmem` and `tcp_rmem` here.
const IN_BUFFERS: f64 = 36e6;

/// Numbers of keys for Windows.
const TAB: (&str, u32) = ("Tab", 9);
const SPACE: (&str, u32) = (" ", 32);

/// A server whose page is asked for without TLS, and the address of the page.
fn start_server(more: &[&str]) -> (Running, String) {
    let [tests, port] = [free_port(), free_port()];
    let (tests, web) = (tests.to_string(), format!("127.0.0.1:{port}"));
    let usual = ["serve", "-p", &tests, "-B", "127.0.0.1", "--no-iperf2"];
    let of_web = ["--web", &web, "--web-plain"];
    let running = Running::start(&mut fullpipe(&[&usual, &of_web[..], more].concat()));
    wait_for_listener(port);
    (running, format!("http://{web}/"))
}

fn text(browser: &mut Browser, selector: &str) -> String {
    let text = browser.evaluate(&format!("document.querySelector('{selector}').textContent"));
    text.as_str().unwrap().replace('\u{a0}', " ")
}

/// Waits until an expression on the page is true.
fn wait_until(browser: &mut Browser, expression: &str) {
    let begun = Instant::now();
    while browser.evaluate(&format!("Boolean({expression})")) != true {
        assert!(begun.elapsed() < TIMEOUT, "never: {expression}");
        sleep(Duration::from_millis(200));
    }
}

/// Presses Tab until the button has the focus, and then the space bar.
fn press_start(browser: &mut Browser) {
    for _ in 0..10 {
        if browser.evaluate("document.activeElement.id") == "start" {
            return browser.key(SPACE.0, SPACE.1);
        }
        browser.key(TAB.0, TAB.1);
    }
    panic!("the keyboard does not reach the button");
}

/// Sees the page in light, in dark and on a phone.
fn assert_everybody_can_use_it(browser: &mut Browser, place: &str) {
    for (width, scheme) in [
        (1_000, "light"),
        (1_000, "dark"),
        (360, "dark"),
        (360, "light"),
    ] {
        browser.show(width, &[("prefers-color-scheme", scheme)]);
        assert_eq!(
            browser.accessibility_faults(),
            json!([]),
            "{place}, {width}, {scheme}"
        );
        let needed = browser.evaluate("document.documentElement.scrollWidth");
        assert_eq!(needed, width, "{place}");
    }
}

fn assert_quiet(browser: &Browser, url: &str) {
    for noise in [
        "Runtime.consoleAPICalled",
        "Runtime.exceptionThrown",
        "Log.entryAdded",
    ] {
        assert_eq!(browser.events(noise).next(), None);
    }
    let asked = browser.events("Network.requestWillBeSent");
    let asked = asked.map(|event| event["params"]["request"]["url"].as_str().unwrap());
    let sockets = browser.events("Network.webSocketCreated");
    let sockets = sockets.map(|event| event["params"]["url"].as_str().unwrap());
    let own = [
        url.to_owned(),
        url.replace("http", "ws"),
        "data:".to_owned(),
    ];
    for address in asked.chain(sockets) {
        assert!(own.iter().any(|own| address.starts_with(own)), "{address}");
    }
}

/// Returns a figure as the page shows it, such as `5.1 MiB`.
fn shown_figure(text: &str) -> f64 {
    let (number, unit) = text.split_once(' ').unwrap_or_else(|| panic!("{text}"));
    let (prefix, base) = match unit.strip_suffix("iB") {
        Some(prefix) => (prefix, 1024_f64),
        None => (unit.trim_end_matches("bit/s").trim_end_matches('B'), 1000.0),
    };
    let powers = [("", 0), ("k", 1), ("M", 2), ("G", 3), ("T", 4)];
    let power = powers
        .iter()
        .find(|(one, _)| prefix.eq_ignore_ascii_case(one));
    number.parse::<f64>().unwrap() * base.powi(power.unwrap().1)
}

/// Returns the result at `address` as JSON, after it was seen as a page, too.
fn fetched_result(browser: &mut Browser, address: &str) -> Value {
    let ask = |kind: &str| {
        format!(
            "fetch('{address}', {{ headers: {{ Accept: '{kind}' }} }}).then(async (answer) => \
             [answer.status, answer.headers.get('content-type'), await answer.text()])"
        )
    };
    let page = browser.evaluate(&ask("text/html,application/xhtml+xml,*/*;q=0.8"));
    assert_eq!(
        (&page[0], &page[1]),
        (&json!(200), &json!("text/html; charset=utf-8"))
    );
    let page = page[2].as_str().unwrap();
    assert!(page.contains("<svg") && !page.contains("127.0.0.1"));
    let result = browser.evaluate(&ask("*/*"));
    assert_eq!(result[1], "application/json");
    serde_json::from_str(result[2].as_str().unwrap()).unwrap()
}

#[test]
fn a_browser_measures_both_ways_and_is_told_the_limit() {
    require!(Chromium, AxeCore);
    let _load = load_slot();
    let (_server, url) = start_server(&[]);
    let mut browser = Browser::start();
    browser.open_url(&url);
    let size: f64 = browser
        .events("Network.loadingFinished")
        .map(|event| event["params"]["encodedDataLength"].as_f64().unwrap())
        .sum();
    println!("the page and its files: {size} bytes");
    assert!((10e3..MAX_PAGE).contains(&size), "{size}");
    assert_everybody_can_use_it(&mut browser, "before");
    press_start(&mut browser);
    wait_until(&mut browser, "document.querySelector('#upload.shown')");
    assert_eq!(browser.accessibility_faults(), json!([]), "during");
    wait_until(
        &mut browser,
        "!document.querySelector('#share').hidden || document.querySelector('#error').textContent",
    );
    assert_eq!(text(&mut browser, "#error"), "");
    assert!(text(&mut browser, "#status").starts_with("Done."));
    for way in ["download", "upload"] {
        let delay = text(&mut browser, &format!("#{way}-delay"));
        assert!(
            delay.contains("under load") && delay.ends_with(" RPM"),
            "{delay}"
        );
        let place = usize::from(way == "upload");
        let address = browser.evaluate(&format!(
            "document.querySelectorAll('#verdicts a')[{place}].href"
        ));
        let result = fetched_result(&mut browser, address.as_str().unwrap());
        let section = format!("#verdicts section:nth-child({})", place + 1);
        let (sent, rate) = (
            result["bytes"].as_f64().unwrap(),
            result["rate"].as_f64().unwrap(),
        );
        let bytes = shown_figure(&text(&mut browser, &format!("{section} td")));
        let shown = shown_figure(&text(&mut browser, &format!("#{way}")));
        let heading = text(&mut browser, &format!("{section} h2"));
        println!("{bytes} bytes of {sent}, {shown} bit/s of {rate}: {heading}");
        // Each end counts a download for itself: the server what was acknowledged when its time was
        // over, the browser what it got, which a page that is the limit may get later: what the
        // buffers of both ends hold.
        assert!((bytes - sent).abs() < 0.05 * sent + IN_BUFFERS);
        assert!(shown > 0.5 * rate && shown < 1.1 * rate);
        let sentence = text(&mut browser, &format!("{section} dd"));
        assert_eq!(result["sentence"], sentence);
    }
    assert!(text(&mut browser, "#idle").ends_with('s'));
    assert_quiet(&browser, &url);
    browser.evaluate("for (const one of document.querySelectorAll('details')) one.open = true");
    assert_everybody_can_use_it(&mut browser, "after");
    browser.evaluate("document.querySelector('.languages [lang=de]').click()");
    assert!(text(&mut browser, "#status").starts_with("Fertig."));
    assert_everybody_can_use_it(&mut browser, "in German");
    let charts = browser.evaluate("document.querySelector('#verdicts a').href");
    let link = browser.evaluate("document.querySelector('#link').href");
    browser.open_url(link.as_str().unwrap());
    wait_until(
        &mut browser,
        "document.querySelectorAll('#verdicts h2').length === 2",
    );
    assert!(text(&mut browser, "#status").starts_with("A result of "));
    browser.open_url(charts.as_str().unwrap());
    assert_everybody_can_use_it(&mut browser, "with charts");
    assert_quiet(&browser, &url);
}

#[test]
fn what_goes_wrong_is_one_sentence_and_the_button_works_again() {
    require!(Chromium);
    let _load = load_slot();
    let (_server, url) = start_server(&["--max-tests", "1"]);
    let mut browser = Browser::start();
    browser.open_url(&format!("{url}#{0}.{0}", "0".repeat(32)));
    wait_until(&mut browser, "document.querySelector('#error').textContent");
    assert!(text(&mut browser, "#error").starts_with("There is no such result"));
    let host = url.trim_start_matches("http://").trim_end_matches('/');
    let mut other = TcpStream::connect(host).unwrap();
    write!(other, "GET /nq/large HTTP/1.1\r\nHost: {host}\r\n\r\n").unwrap();
    other.read_exact(&mut [0; 1000]).unwrap();
    press_start(&mut browser);
    wait_until(
        &mut browser,
        "document.querySelector('#error').textContent.includes('as many tests')",
    );
    assert_eq!(text(&mut browser, "#start"), "Start again");
    drop(other);
    let begun = Instant::now();
    while browser.evaluate("document.querySelector('#download.shown') !== null") != true {
        assert!(begun.elapsed() < TIMEOUT, "the place is not free again");
        if text(&mut browser, "#start") == "Start again" {
            press_start(&mut browser);
        }
        sleep(Duration::from_millis(200));
    }
    assert_eq!(text(&mut browser, "#error"), "");
    press_start(&mut browser);
    wait_until(
        &mut browser,
        "document.querySelector('#status').textContent === 'Stopped.'",
    );
    assert_eq!(text(&mut browser, "#start"), "Start again");
}

#[test]
fn each_text_and_each_limit_is_there_in_both_languages() {
    require!(Chromium);
    let (_server, url) = start_server(&[]);
    let mut browser = Browser::start();
    browser.open_url(&url);
    let policy = "fetch('/').then((answer) => answer.headers.get('content-security-policy'))";
    let policy = browser.evaluate(policy);
    assert!(
        policy
            .as_str()
            .unwrap()
            .starts_with("default-src 'none'; script-src 'self';")
    );
    let incomplete = "import('/texts.js').then(({ TEXTS, LIMITS }) => { \
                      const limits = Object.values(LIMITS).flatMap(Object.values); \
                      return [...Object.values(TEXTS), ...limits].filter((forms) => forms.length !== 2 || !forms.every(Boolean)) })";
    assert_eq!(browser.evaluate(incomplete), json!([]));
    let unknown = "Promise.all([import('/texts.js'), fetch('/page.js').then((file) => file.text()), fetch('/').then((file) => \
                   file.text())]).then(([{ TEXTS }, ...files]) => files.flatMap((file) => \
                   [...file.matchAll(/(?:say\\(|data-(?:text|label)=|new Failure\\()\"(\\w+)\"/g)]) \
                   .map(([, key]) => key).filter((key) => !TEXTS[key]))";
    assert_eq!(browser.evaluate(unknown), json!([]));
    let limits = browser.evaluate("import('/texts.js').then(({ LIMITS }) => Object.keys(LIMITS))");
    for verdict in LegalVerdict::ALL {
        let name = verdict.limit_kind().name();
        assert!(limits.as_array().unwrap().contains(&json!(name)), "{name}");
    }
}
