//! The answer of a server, and the way in which HTTP/1.1 writes it.

use std::borrow::Cow;

use bytes::Bytes;

use crate::RequestRefusal;

/// Seconds after which a client that finds no room may ask again.
const RETRY_AFTER: u64 = 10;

/// An answer: all of a short one, the head alone of one whose body follows.
#[derive(Debug, Clone)]
pub struct Answer {
    /// Status code.
    pub status: u16,
    /// Fields of the head, without those that say how the connection goes on.
    pub fields: Vec<(&'static str, Cow<'static, str>)>,
    /// The body, or nothing of it.
    pub body: Bytes,
}

impl Answer {
    /// Returns an answer with a body of this kind.
    pub fn new(status: u16, kind: &'static str, body: impl Into<Bytes>) -> Self {
        let body = body.into();
        let head = Self::of_length(status, kind, body.len() as u64);
        Self { body, ..head }
    }

    /// Returns the head of an answer with a body of so many bytes, none of which it has.
    pub fn of_length(status: u16, kind: &'static str, length: u64) -> Self {
        let fields = vec![
            ("Content-Type", kind.into()),
            ("Content-Length", length.to_string().into()),
            ("Cache-Control", "no-store".into()),
            // Cloudflare's client subtracts the time of the server, which answers at once.
            ("Server-Timing", "cfRequestDuration;dur=0".into()),
        ];
        Self {
            status,
            fields,
            body: Bytes::new(),
        }
    }

    /// Returns the head of an answer with so many bytes of data.
    pub fn of_data(length: u64) -> Self {
        Self::of_length(200, "application/octet-stream", length)
    }

    /// Returns the head of an answer with so many bytes of data, whose verdict will be the result
    /// `id`.
    pub fn of_described_data(length: u64, id: &str) -> Self {
        let link = format!("</result/{id}>; rel=\"describedby\"");
        Self::of_data(length).with_field("Link", link)
    }

    /// Returns the answer with one more field.
    #[must_use]
    pub fn with_field(mut self, name: &'static str, value: impl Into<Cow<'static, str>>) -> Self {
        self.fields.push((name, value.into()));
        self
    }

    /// Returns the answer to a request that is not served now, and may be in `retry_after` seconds if
    /// its status says so.
    pub fn of_refusal(refusal: RequestRefusal, retry_after: u64) -> Self {
        let answer = Self::new(refusal.status, "text/plain", format!("{}\n", refusal.why));
        match refusal.status {
            429 | 503 => answer.with_field("Retry-After", retry_after.to_string()),
            426 => answer.with_field("Sec-WebSocket-Version", "13"),
            _ => answer,
        }
    }

    /// Returns what is sent to a request with this method: of one for the head alone, no body.
    #[must_use]
    pub fn to_method(self, method: &str) -> Self {
        if method == "HEAD" {
            let body = Bytes::new();
            return Self { body, ..self };
        }
        self
    }

    /// Returns its bytes in HTTP/1.1. The connection closes after it unless it is kept.
    pub fn to_http1(&self, keeps_connection: bool) -> Vec<u8> {
        let mut text = format!("HTTP/1.1 {} {}\r\n", self.status, reason(self.status));
        let close = (!keeps_connection).then_some(("Connection", Cow::Borrowed("close")));
        for (name, value) in self.fields.iter().chain(&close) {
            text.extend([name, ": ", value, "\r\n"]);
        }
        text += "\r\n";
        [text.as_bytes(), &self.body].concat()
    }
}

impl From<RequestRefusal> for Answer {
    /// Returns the answer to a request that is not served.
    fn from(refusal: RequestRefusal) -> Self {
        Self::of_refusal(refusal, RETRY_AFTER)
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn http_1_writes_the_fields_and_the_body_of_those_that_ask_for_it() {
        let answer = Answer::new(200, "text/plain", "x\n").with_field("X-Y", "z");
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\
                    Cache-Control: no-store\r\nServer-Timing: cfRequestDuration;dur=0\r\nX-Y: z\r\n";
        for (method, keeps, rest) in [
            ("GET", true, "\r\nx\n"),
            ("HEAD", true, "\r\n"),
            ("HEAD", false, "Connection: close\r\n\r\n"),
        ] {
            let bytes = answer.clone().to_method(method).to_http1(keeps);
            assert_eq!(bytes, [head, rest].concat().as_bytes());
        }
    }
}
