//! What a request asks a server of speed tests for.

use fullpipe_units::ByteCount;
use serde_json::{Value, json};

use crate::{RequestHead, RequestRefusal, SUBPROTOCOL};

/// Bytes of the query of ndt7 at most.
const MAX_QUERY: usize = 4096;

/// Bytes of the large object of responsiveness, which must not end before the test does, and of any
/// other download at most.
const MAX_DOWNLOAD: ByteCount = ByteCount::from_mib(64 << 10);

/// What a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpeedTest<'r> {
    /// The page from which a browser runs a test, or a file that belongs to it, by its path.
    Page(&'r str),
    /// The verdict of a run, by its name.
    Result(&'r str),
    /// The URLs of a test of responsiveness (draft-ietf-ippm-responsiveness).
    ResponsivenessConfig,
    /// So many bytes.
    Download(ByteCount),
    /// The body of the request is counted and discarded.
    Upload,
    /// The address of the client, as LibreSpeed asks for it.
    ClientAddress,
    /// A download or an upload of ndt7.
    Ndt7 {
        /// True if the server sends.
        is_download: bool,
        /// Bytes after whose acknowledgement a download ends early.
        early_exit: Option<ByteCount>,
    },
}

impl<'r> SpeedTest<'r> {
    /// Returns what the request with this `head` asks for.
    ///
    /// # Errors
    /// Fails if it asks for nothing that there is, or in the wrong way.
    pub fn from_head(head: &'r RequestHead) -> Result<Self, RequestRefusal> {
        let is_read = matches!(head.method.as_str(), "GET" | "HEAD");
        let path = head.path.as_str();
        let asked = match path {
            "/" | "/page.css" | "/page.js" | "/chart.js" | "/texts.js" => Self::Page(path),
            "/.well-known/nq" | "/config" => Self::ResponsivenessConfig,
            "/nq/small" => Self::Download(ByteCount::new(1)),
            "/nq/large" => Self::Download(MAX_DOWNLOAD),
            "/__down" => Self::Download(size_of(head, "bytes", 1, ByteCount::ZERO)?),
            "/nq/upload" | "/__up" => Self::Upload,
            "/ndt/v7/download" => ndt7_test(head, true)?,
            "/ndt/v7/upload" => ndt7_test(head, false)?,
            _ => match librespeed_name(path) {
                "garbage" => {
                    Self::Download(size_of(head, "ckSize", 1 << 20, ByteCount::from_mib(4))?)
                }
                "empty" if is_read => Self::Download(ByteCount::ZERO),
                "empty" => Self::Upload,
                "getIP" => Self::ClientAddress,
                _ => Self::Result(result_name(path)?),
            },
        };
        let is_right = if asked == Self::Upload {
            matches!(head.method.as_str(), "POST" | "PUT")
        } else {
            is_read
        };
        if is_right {
            Ok(asked)
        } else {
            Err(RequestRefusal {
                status: 405,
                why: "this path has another method",
            })
        }
    }
}

/// Returns the name of a path of LibreSpeed, whose servers have it in PHP or in a folder.
fn librespeed_name(path: &str) -> &str {
    let path = path.strip_prefix("/backend").unwrap_or(path);
    let name = path.strip_prefix('/').unwrap_or_default();
    name.strip_suffix(".php").unwrap_or(name)
}

fn result_name(path: &str) -> Result<&str, RequestRefusal> {
    path.strip_prefix("/result/").ok_or(RequestRefusal {
        status: 404,
        why: "there is no such path",
    })
}

/// Returns the size that a parameter states in so many bytes.
fn size_of(
    head: &RequestHead,
    name: &str,
    unit: u64,
    usual: ByteCount,
) -> Result<ByteCount, RequestRefusal> {
    let Some(text) = head.parameter(name) else {
        return Ok(usual);
    };
    crate::parse_number(text)
        .and_then(|count| count.checked_mul(unit))
        .map(ByteCount::new)
        .filter(|bytes| *bytes <= MAX_DOWNLOAD)
        .ok_or(RequestRefusal::bad_request(
            "the size is no number, or more than 64 GiB",
        ))
}

fn ndt7_test(head: &RequestHead, is_download: bool) -> Result<SpeedTest<'_>, RequestRefusal> {
    let speaks = |offer: &crate::WebSocketOffer| {
        offer
            .protocols
            .iter()
            .any(|protocol| protocol == SUBPROTOCOL)
    };
    if !head.websocket.as_ref().is_some_and(speaks) {
        return Err("ndt7 is asked for by a WebSocket with its protocol".into());
    }
    if head.query.len() > MAX_QUERY {
        return Err("the query is longer than 4096 bytes".into());
    }
    let early_exit = match head.parameter("early_exit") {
        None => None,
        // The only value of the specification, in 10^6 bytes.
        Some("250") if is_download => Some(ByteCount::new(250_000_000)),
        Some(_) => return Err("early_exit is 250, of a download".into()),
    };
    Ok(SpeedTest::Ndt7 {
        is_download,
        early_exit,
    })
}

/// Returns the URLs of a test of responsiveness at a server that the client names `host`.
pub fn responsiveness_config(host: &str, is_encrypted: bool) -> Value {
    let scheme = if is_encrypted { "https" } else { "http" };
    let [small, large, upload] =
        ["small", "large", "upload"].map(|name| format!("{scheme}://{host}/nq/{name}"));
    json!({
        "version": 1,
        "urls": {
            "small_download_url": small, "small_https_download_url": small,
            "large_download_url": large, "large_https_download_url": large,
            "upload_url": upload, "https_upload_url": upload,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(line: &str) -> Result<String, u16> {
        let text = format!("{line} HTTP/1.1\r\nHost: h\r\n\r\n");
        let (head, _) = RequestHead::parse(text.as_bytes()).unwrap().unwrap();
        SpeedTest::from_head(&head)
            .map(|test| format!("{test:?}"))
            .map_err(|refusal| refusal.status)
    }

    #[test]
    fn paths_are_those_of_their_protocols() {
        for (line, expected) in [
            ("GET /", "Page(\"/\")"),
            ("GET /page.js", "Page(\"/page.js\")"),
            ("GET /.well-known/nq", "ResponsivenessConfig"),
            ("GET /__down?bytes=1000&x=y", "Download(ByteCount(1000))"),
            ("GET /garbage.php?ckSize=2", "Download(ByteCount(2097152))"),
            ("GET /backend/garbage", "Download(ByteCount(4194304))"),
            ("GET /backend/empty.php", "Download(ByteCount(0))"),
            ("POST /empty", "Upload"),
            ("POST /__up", "Upload"),
            ("GET /backend/getIP.php?isp=true", "ClientAddress"),
            ("GET /result/abc", "Result(\"abc\")"),
        ] {
            assert_eq!(asked(line).as_deref(), Ok(expected), "{line}");
        }
    }

    #[test]
    fn what_there_is_not_is_refused() {
        for (line, status) in [
            ("GET /other", 404),
            ("POST /", 405),
            ("GET /__up", 405),
            ("DELETE /__down?bytes=1", 405),
            ("GET /__down?bytes=-1", 400),
            ("GET /__down?bytes=99999999999999999999", 400),
            ("GET /garbage?ckSize=18446744073709551615", 400),
            ("GET /ndt/v7/download", 400),
        ] {
            assert_eq!(asked(line), Err(status), "{line}");
        }
    }

    #[test]
    fn a_test_of_responsiveness_stays_at_the_server() {
        let config = responsiveness_config("h:4443", true);
        assert_eq!(
            config["urls"]["large_download_url"],
            "https://h:4443/nq/large"
        );
        assert_eq!(
            config["urls"]["https_upload_url"],
            "https://h:4443/nq/upload"
        );
    }
}
