//! Answers of HTTP/1.1 that are sent at once, and the heads of those that carry a load.

use std::fmt::Write;
use std::net::IpAddr;
use std::time::Duration;

use fullpipe_http::{RequestHead, RequestRefusal, SUBPROTOCOL, WebSocketOffer, accept_key};
use fullpipe_units::ByteCount;
use serde_json::json;

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

/// Seconds after which a client that finds no room may ask again.
const RETRY_AFTER: u64 = 10;

/// A short answer.
pub(super) struct Answer {
    status: u16,
    kind: &'static str,
    body: Vec<u8>,
    /// What a browser permits it (Content Security Policy), of pages.
    policy: Option<&'static str>,
}

impl Answer {
    const fn new(status: u16, kind: &'static str, body: Vec<u8>) -> Self {
        Self {
            status,
            kind,
            body,
            policy: None,
        }
    }

    /// Returns the page, or the file of it at `path`.
    pub(super) fn page(path: &str) -> Self {
        let (kind, text) = match path {
            "/page.css" => ("text/css; charset=utf-8", include_str!("page/page.css")),
            "/page.js" => (SCRIPT, include_str!("page/page.js")),
            "/chart.js" => (SCRIPT, include_str!("page/chart.js")),
            "/texts.js" => (SCRIPT, include_str!("page/texts.js")),
            _ => (HTML, include_str!("page/page.html")),
        };
        Self {
            policy: Some(PAGE_POLICY),
            ..Self::new(200, kind, text.into())
        }
    }

    /// Returns a result as a page.
    pub(super) fn result_page(page: String) -> Self {
        Self {
            policy: Some(RESULT_POLICY),
            ..Self::new(200, HTML, page.into())
        }
    }

    pub(super) fn json(text: String) -> Self {
        Self::new(200, "application/json", text.into())
    }

    pub(super) fn not_found() -> Self {
        let why = "there is no such result, or it is not kept any more\n";
        Self::new(404, "text/plain", why.into())
    }

    /// Returns the address of the client as LibreSpeed has it.
    pub(super) fn address(client: IpAddr) -> Self {
        Self::json(json!({ "processedString": client, "rawIspInfo": "" }).to_string())
    }

    /// Returns so many bytes; of a request for the head alone none of them is sent.
    pub(super) fn data(bytes: ByteCount) -> Self {
        Self::new(
            200,
            "application/octet-stream",
            vec![0; bytes.get() as usize],
        )
    }

    /// Returns the answer to the request with this `head`.
    pub(super) fn to_bytes(&self, head: &RequestHead) -> Vec<u8> {
        let mut text = begin_head(self.status, self.kind, self.body.len() as u64);
        if let Some(policy) = self.policy {
            let _ = write!(
                text,
                "Content-Security-Policy: {policy}\r\nX-Content-Type-Options: nosniff\r\n\
                 Referrer-Policy: no-referrer\r\n"
            );
        }
        if !head.keeps_connection {
            text += "Connection: close\r\n";
        }
        text += "\r\n";
        let mut bytes = text.into_bytes();
        if head.method != "HEAD" {
            bytes.extend_from_slice(&self.body);
        }
        bytes
    }

    /// Returns the answer to a request that is not served, after which the connection closes.
    pub(super) fn refusal(refusal: RequestRefusal) -> Vec<u8> {
        Self::refusal_for(refusal, RETRY_AFTER)
    }

    /// Returns the answer to a client that has moved all that it may, for so long.
    pub(super) fn quota_refusal(wait: Duration) -> Vec<u8> {
        let refusal = RequestRefusal {
            status: 429,
            why: "all bytes that are permitted in a time have been moved",
        };
        // A part of a second is waited for, too.
        Self::refusal_for(refusal, wait.as_secs() + 1)
    }

    fn refusal_for(refusal: RequestRefusal, retry_after: u64) -> Vec<u8> {
        let body = format!("{}\n", refusal.why);
        let mut text = begin_head(refusal.status, "text/plain", body.len() as u64);
        if matches!(refusal.status, 429 | 503) {
            let _ = write!(text, "Retry-After: {retry_after}\r\n");
        }
        if refusal.status == 426 {
            text += "Sec-WebSocket-Version: 13\r\n";
        }
        text += "Connection: close\r\n\r\n";
        (text + &body).into_bytes()
    }
}

/// Returns the head of an answer with `length` bytes of data, whose verdict will be the result
/// `id`.
pub(super) fn data_head(length: u64, id: &str, keeps_connection: bool) -> String {
    let mut text = begin_head(200, "application/octet-stream", length);
    let _ = write!(text, "Link: </result/{id}>; rel=\"describedby\"\r\n");
    if !keeps_connection {
        text += "Connection: close\r\n";
    }
    text + "\r\n"
}

/// Returns the answer that accepts the WebSocket of ndt7.
pub(super) fn upgrade_head(offer: &WebSocketOffer) -> String {
    let accept = accept_key(&offer.key);
    format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: {accept}\r\nSec-WebSocket-Protocol: {SUBPROTOCOL}\r\n\r\n"
    )
}

fn begin_head(status: u16, kind: &str, length: u64) -> String {
    // Cloudflare's client subtracts the time of the server, which answers at once.
    format!(
        "HTTP/1.1 {status} {}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\
         Cache-Control: no-store\r\nServer-Timing: cfRequestDuration;dur=0\r\n",
        reason(status)
    )
}

const fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        426 => "Upgrade Required",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        503 => "Service Unavailable",
        505 => "HTTP Version Not Supported",
        _ => "Bad Request",
    }
}
