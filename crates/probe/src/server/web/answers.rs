//! The answers that are sent at once, by either version of HTTP.

use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use fullpipe_http::{
    Answer, BodyFraming, RequestHead, RequestRefusal, SUBPROTOCOL, SpeedTest, WebSocketOffer,
    accept_key, responsiveness_config,
};
use fullpipe_sys::lock;
use fullpipe_units::ByteCount;
use serde_json::json;

use super::results::{KeptResult, KeptResults};

/// Bytes of an answer that need neither a thread nor the permits of a test.
const SMALL_ANSWER: ByteCount = ByteCount::from_kib(16);

/// What the page may load and do: its own files, and tests of this server.
const PAGE_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                           img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// What a result may do, whose style and script are a part of it.
const RESULT_POLICY: &str = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; \
                             img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The kind of a page.
const HTML: &str = "text/html; charset=utf-8";

/// The kind of a script.
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// What the small answers to one client are made of.
#[derive(Clone)]
pub(super) struct SmallAnswers {
    pub results: Arc<Mutex<KeptResults>>,
    pub client: IpAddr,
    pub is_encrypted: bool,
}

impl SmallAnswers {
    /// Returns the answer to the request for `test` with this `head`; `None` if it is a load.
    pub(super) fn answer_to(&self, head: &RequestHead, test: SpeedTest<'_>) -> Option<Answer> {
        Some(match test {
            SpeedTest::Page(path) => page(path),
            SpeedTest::Result(id) => match lock(&self.results).result(id, Instant::now()) {
                Some(KeptResult { page, .. }) if head.accepts_html => {
                    restrict(Answer::new(200, HTML, page.clone()), RESULT_POLICY)
                }
                Some(KeptResult { json, .. }) => json_answer(json.clone()),
                None => not_found(),
            },
            SpeedTest::ResponsivenessConfig => {
                json_answer(responsiveness_config(&head.host, self.is_encrypted).to_string())
            }
            SpeedTest::ClientAddress => {
                json_answer(json!({ "processedString": self.client, "rawIspInfo": "" }).to_string())
            }
            SpeedTest::Download(bytes) if head.method == "HEAD" => Answer::of_data(bytes.get()),
            SpeedTest::Download(bytes) if bytes <= SMALL_ANSWER => Answer {
                body: vec![0; bytes.get() as usize].into(),
                ..Answer::of_data(bytes.get())
            },
            _ => return None,
        })
    }
}

/// Returns what the request with this `head` asks for.
///
/// # Errors
/// Fails if there is no such thing, or if the request has a body and uploads none.
pub(super) fn asked_test(head: &RequestHead) -> Result<SpeedTest<'_>, RequestRefusal> {
    let test = SpeedTest::from_head(head)?;
    if test != SpeedTest::Upload && head.body != BodyFraming::Length(0) {
        return Err(RequestRefusal::bad_request("this request has no body"));
    }
    Ok(test)
}

/// Returns the page, or the file of it at `path`.
fn page(path: &str) -> Answer {
    let (kind, text) = match path {
        "/page.css" => ("text/css; charset=utf-8", include_str!("page/page.css")),
        "/page.js" => (SCRIPT, include_str!("page/page.js")),
        "/chart.js" => (SCRIPT, include_str!("page/chart.js")),
        "/texts.js" => (SCRIPT, include_str!("page/texts.js")),
        _ => (HTML, include_str!("page/page.html")),
    };
    restrict(Answer::new(200, kind, text), PAGE_POLICY)
}

/// Returns an answer of which a browser permits no more than `policy` says.
fn restrict(answer: Answer, policy: &'static str) -> Answer {
    answer
        .with_field("Content-Security-Policy", policy)
        .with_field("X-Content-Type-Options", "nosniff")
        .with_field("Referrer-Policy", "no-referrer")
}

fn json_answer(text: impl Into<Bytes>) -> Answer {
    Answer::new(200, "application/json", text)
}

fn not_found() -> Answer {
    let why = "there is no such result, or it is not kept any more";
    RequestRefusal { status: 404, why }.into()
}

/// Returns the answer to a client that has moved all that it may, for so long.
pub(super) fn quota_answer(wait: Duration) -> Answer {
    let why = "all bytes that are permitted in a time have been moved";
    // A part of a second is waited for, too.
    Answer::of_refusal(RequestRefusal { status: 429, why }, wait.as_secs() + 1)
}

/// Returns the answer that accepts the WebSocket of ndt7.
pub(super) fn upgrade_head(offer: &WebSocketOffer) -> String {
    let accept = accept_key(&offer.key);
    format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: {accept}\r\nSec-WebSocket-Protocol: {SUBPROTOCOL}\r\n\r\n"
    )
}
