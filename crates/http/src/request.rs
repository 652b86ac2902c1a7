//! The head of a request.

use httparse::{EMPTY_HEADER, Header, Request, Response, Status};

use crate::{BodyFraming, HeadFields, MAX_FIELDS, MAX_HEAD, RuleBroken, accept_key};

/// The head of a request, as far as a server of speed tests needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestHead {
    /// Method, as `GET`.
    pub method: String,
    /// Path, which begins with `/`.
    pub path: String,
    /// What follows `?`; empty if there is none.
    pub query: String,
    /// Name or address of the server, with its port if it was stated.
    pub host: String,
    /// The way in which the body ends; of no bytes if no field states one.
    pub body: BodyFraming,
    /// True unless the client closes the connection after the answer.
    pub keeps_connection: bool,
    /// True if the client waits for leave to send its body (`Expect: 100-continue`).
    pub waits_for_leave: bool,
    /// True if the client shows pages, as a browser that opens an address does.
    pub accepts_html: bool,
    /// The WebSocket that the client asks for.
    pub websocket: Option<WebSocketOffer>,
}

/// A request for a WebSocket (RFC 6455, section 4.1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebSocketOffer {
    /// Key that the server proves to have read.
    pub key: String,
    /// Protocols that the client speaks.
    pub protocols: Vec<String>,
}

/// A request that is not served: the status of the answer, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestRefusal {
    /// Status code of HTTP.
    pub status: u16,
    /// The reason, as a sentence without its end.
    pub why: &'static str,
}

impl RequestRefusal {
    /// Returns the refusal of a request that breaks a rule.
    pub const fn bad_request(why: &'static str) -> Self {
        Self { status: 400, why }
    }
}

impl From<RuleBroken> for RequestRefusal {
    fn from(why: RuleBroken) -> Self {
        Self::bad_request(why)
    }
}

impl RequestHead {
    /// Reads the head at the begin of `bytes`, and returns it with its length; `None` if it is not
    /// complete.
    ///
    /// # Errors
    /// Fails if it is none of HTTP/1.1, is too long, contradicts itself, or was caused by a page of
    /// another site: no page may send load through its visitors.
    pub fn parse(bytes: &[u8]) -> Result<Option<(Self, usize)>, RequestRefusal> {
        let mut fields = [EMPTY_HEADER; MAX_FIELDS];
        let mut request = Request::new(&mut fields);
        match request.parse(bytes) {
            Ok(Status::Complete(length)) if length <= MAX_HEAD => {
                Ok(Some((Self::from_request(&request)?, length)))
            }
            Ok(Status::Partial) if bytes.len() < MAX_HEAD => Ok(None),
            Ok(_) | Err(httparse::Error::TooManyHeaders) => Err(RequestRefusal {
                status: 431,
                why: "the head of the request is longer than 16 KiB or 100 fields",
            }),
            Err(_) => Err(RequestRefusal::bad_request("the request is not HTTP/1.1")),
        }
    }

    fn from_request(request: &Request<'_, '_>) -> Result<Self, RequestRefusal> {
        let method = request.method.unwrap_or_default();
        let target = request.path.unwrap_or_default();
        let head = Self::from_fields(method, target, HeadFields(request.headers))?;
        if request.version != Some(1) {
            return Err(RequestRefusal {
                status: 505,
                why: "this server speaks HTTP/1.1 and HTTP/2",
            });
        }
        Ok(head)
    }

    /// Returns the head of a request by HTTP/2 (RFC 9113, section 8.3), whose `:authority` is the
    /// field `host` here, and which may have a body or not.
    ///
    /// # Errors
    /// Fails as [`Self::parse`] does.
    pub fn from_http2<'r>(
        method: &str,
        target: &str,
        fields: impl Iterator<Item = (&'r str, &'r [u8])>,
        has_body: bool,
    ) -> Result<Self, RequestRefusal> {
        let fields: Vec<Header<'_>> = fields.map(|(name, value)| Header { name, value }).collect();
        let head = Self::from_fields(method, target, HeadFields(&fields))?;
        let body = match HeadFields(&fields).stated_framing()? {
            _ if !has_body => BodyFraming::Length(0),
            stated => stated.unwrap_or(BodyFraming::UntilClose),
        };
        Ok(Self { body, ..head })
    }

    fn from_fields(
        method: &str,
        target: &str,
        fields: HeadFields<'_>,
    ) -> Result<Self, RequestRefusal> {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        if !path.starts_with('/') {
            return Err("the target of the request is no path".into());
        }
        let host = single_host(fields)?;
        if let Some(origin) = fields.only("origin")?
            && !is_same_site(origin, host)
        {
            return Err(RequestRefusal {
                status: 403,
                why: "a page of another site may not use this server",
            });
        }
        Ok(Self {
            method: method.to_owned(),
            path: path.to_owned(),
            query: query.to_owned(),
            host: host.to_owned(),
            body: fields.stated_framing()?.unwrap_or(BodyFraming::Length(0)),
            keeps_connection: !fields.has_token("connection", "close"),
            waits_for_leave: fields.has_token("expect", "100-continue"),
            accepts_html: fields.has_token("accept", "text/html"),
            websocket: websocket_offer(fields)?,
        })
    }

    /// Returns the value of a parameter of the query.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.query
            .split('&')
            .filter_map(|pair| pair.split_once('='))
            .find_map(|(its, value)| (its == name).then_some(value))
    }
}

/// Reads the answer to a request for a WebSocket with `key` at the begin of `bytes`, and returns its
/// length; `None` if it is not complete.
///
/// # Errors
/// Fails if it is no answer, or the server refuses, with its status.
pub fn read_upgrade(bytes: &[u8], key: &str) -> Result<Option<((), usize)>, RequestRefusal> {
    let mut fields = [EMPTY_HEADER; MAX_FIELDS];
    let mut answer = Response::new(&mut fields);
    let length = match answer.parse(bytes) {
        Ok(Status::Complete(length)) => length,
        Ok(Status::Partial) if bytes.len() < MAX_HEAD => return Ok(None),
        _ => return Err("its answer is not HTTP/1.1".into()),
    };
    let status = answer.code.unwrap_or_default();
    if status != 101 {
        let why = match status {
            429 | 503 => "it carries as many tests as it may, or permits no such test",
            _ => "it does not speak ndt7",
        };
        return Err(RequestRefusal { status, why });
    }
    let fields = HeadFields(answer.headers);
    if fields.only("sec-websocket-accept")? != Some(&accept_key(key)) {
        return Err("its answer is none to the request for a WebSocket".into());
    }
    Ok(Some(((), length)))
}

/// Returns the host of a request, which states exactly one (RFC 9112, section 3.2).
fn single_host(fields: HeadFields<'_>) -> Result<&str, RuleBroken> {
    let is_authority = |host: &&str| {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:[]%".contains(&byte);
        (1..=260).contains(&host.len()) && host.bytes().all(allowed)
    };
    fields
        .only("host")?
        .filter(is_authority)
        .ok_or("the request states no host")
}

/// Returns true if the page at `origin` is of the server that its visitor names `host`.
fn is_same_site(origin: &str, host: &str) -> bool {
    let (scheme, authority) = origin.split_once("://").unwrap_or_default();
    let port = if scheme == "https" { ":443" } else { ":80" };
    let without_default = |name: &str| name.strip_suffix(port).unwrap_or(name).to_owned();
    matches!(scheme, "http" | "https")
        && without_default(authority).eq_ignore_ascii_case(&without_default(host))
}

fn websocket_offer(fields: HeadFields<'_>) -> Result<Option<WebSocketOffer>, RequestRefusal> {
    if !fields.has_token("upgrade", "websocket") {
        return Ok(None);
    }
    if fields.only("sec-websocket-version")? != Some("13") {
        return Err(RequestRefusal {
            status: 426,
            why: "this server speaks version 13 of WebSocket",
        });
    }
    let key = fields
        .only("sec-websocket-key")?
        .filter(|key| key.len() == 24 && fields.has_token("connection", "upgrade"))
        .ok_or("the request for a WebSocket has no key")?;
    Ok(Some(WebSocketOffer {
        key: key.to_owned(),
        protocols: fields
            .elements("sec-websocket-protocol")
            .map(str::to_owned)
            .collect(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(text: &str) -> Result<RequestHead, RequestRefusal> {
        RequestHead::parse(text.as_bytes()).map(|found| found.unwrap().0)
    }

    fn status_of(text: &str) -> u16 {
        parse(text).unwrap_err().status
    }

    const UPGRADE: &str = "GET /ndt/v7/download?x=1&early_exit=250 HTTP/1.1\r\nHost: h:4443\r\n\
        Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
        Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: a, b\r\n\r\n";

    #[test]
    fn a_request_for_a_websocket_is_read() {
        let head = parse(UPGRADE).unwrap();
        assert_eq!(
            (
                head.path.as_str(),
                head.parameter("early_exit"),
                head.host.as_str()
            ),
            ("/ndt/v7/download", Some("250"), "h:4443")
        );
        assert_eq!(head.websocket.unwrap().protocols, ["a", "b"]);
        assert_eq!(
            status_of(&UPGRADE.replace("Version: 13", "Version: 8")),
            426
        );
        assert_eq!(status_of(&UPGRADE.replace("dGhl", "")), 400);
    }

    #[test]
    fn the_answer_to_a_request_for_a_websocket_proves_its_key() {
        let key = "dGhlIHNhbXBsZSBub25jZQ==";
        let answer = |status: u16, accept: &str| {
            format!("HTTP/1.1 {status} X\r\nSec-WebSocket-Accept: {accept}\r\n\r\nrest")
        };
        let good = answer(101, &accept_key(key));
        assert_eq!(
            read_upgrade(good.as_bytes(), key),
            Ok(Some(((), good.len() - 4)))
        );
        assert_eq!(read_upgrade(&good.as_bytes()[..30], key), Ok(None));
        assert!(read_upgrade(answer(101, "x").as_bytes(), key).is_err());
        assert_eq!(
            read_upgrade(answer(503, "").as_bytes(), key)
                .unwrap_err()
                .status,
            503
        );
        assert!(read_upgrade(b"SSH-2.0-x\r\n\r\n", key).is_err());
    }

    #[test]
    fn a_head_that_is_not_complete_is_waited_for_and_one_without_end_is_not() {
        assert_eq!(RequestHead::parse(&UPGRADE.as_bytes()[..40]), Ok(None));
        let long = format!("GET / HTTP/1.1\r\nX: {}", "x".repeat(MAX_HEAD));
        assert_eq!(RequestHead::parse(long.as_bytes()).unwrap_err().status, 431);
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "X: y\r\n".repeat(200));
        assert_eq!(status_of(&many), 431);
    }

    #[test]
    fn a_page_of_another_site_is_refused() {
        let with =
            |origin: &str| format!("GET / HTTP/1.1\r\nHost: h:443\r\nOrigin: {origin}\r\n\r\n");
        for own in ["https://h", "https://H:443"] {
            assert!(parse(&with(own)).is_ok(), "{own}");
        }
        for other in [
            "https://other",
            "https://h:4443",
            "null",
            "ftp://h",
            "http://h",
        ] {
            assert_eq!(status_of(&with(other)), 403, "{other}");
        }
    }

    #[test]
    fn heads_that_contradict_themselves_are_refused() {
        for (head, status) in [
            ("GET / HTTP/1.1\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", 400),
            ("GET x HTTP/1.1\r\nHost: a\r\n\r\n", 400),
            ("GET / HTTP/1.0\r\nHost: a\r\n\r\n", 505),
            (
                "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
                400,
            ),
            ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
        ] {
            assert_eq!(status_of(head), status, "{head}");
        }
    }

    fn by_http2(fields: &[(&str, &str)], has_body: bool) -> Result<RequestHead, RequestRefusal> {
        let fields = fields.iter().map(|(name, value)| (*name, value.as_bytes()));
        RequestHead::from_http2("POST", "/__up?x=1", fields, has_body)
    }

    #[test]
    fn a_head_of_http_2_is_checked_as_one_of_http_1() {
        let host = ("host", "h:443");
        let head = by_http2(&[host, ("origin", "https://h")], true).unwrap();
        assert_eq!((head.path.as_str(), head.query.as_str()), ("/__up", "x=1"));
        assert_eq!(head.body, BodyFraming::UntilClose);
        let length =
            |has_body| by_http2(&[host, ("content-length", "7")], has_body).map(|head| head.body);
        assert_eq!(length(true), Ok(BodyFraming::Length(7)));
        assert_eq!(length(false), Ok(BodyFraming::Length(0)));
        for (fields, status) in [
            (&[][..], 400),
            (&[host, ("host", "other")], 400),
            (&[host, ("origin", "https://other")], 403),
        ] {
            assert_eq!(
                by_http2(fields, false).unwrap_err().status,
                status,
                "{fields:?}"
            );
        }
    }

    proptest! {
        /// The same is fuzzed for longer.
        #[test]
        fn whatever_comes_is_read_or_refused(at in 0_usize..300, with in any::<[u8; 3]>()) {
            let mut bytes = UPGRADE.as_bytes().to_vec();
            let at = at.min(bytes.len() - 3);
            bytes.splice(at..at + 3, with);
            if let Ok(Some((head, length))) = RequestHead::parse(&bytes) {
                prop_assert!(length <= bytes.len() && head.path.starts_with('/'));
            }
        }
    }
}
