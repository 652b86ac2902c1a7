//! Files of this program and of others → documents. Each is kept as it was; facts are taken from it.

mod flent;
mod iperf3;
mod json;
mod pscheduler;

use std::io::Read;

use flate2::read::MultiGzDecoder;
use fullpipe_record::{Document, StoredDocument, StoredFacts};
use fullpipe_units::printable;
use jiff::Timestamp;
use serde_json::Value;

use crate::document::{self, NewDocument};
use crate::text::{self, clean};
use json::Json;

/// Size of the largest file that is read, decompressed, in bytes. A minute of 90 streams is 180 MB.
const MAX_FILE: u64 = 512 << 20;

/// First bytes of a gzip file (RFC 1952, 2.3.1).
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Returns the documents in a file: a document of fullpipe, JSON of iperf3 (`-J` or `--json-stream`), data of flent
/// (`.flent.gz`), or a run of pScheduler; several after one another make several documents, as in a log that was
/// appended to. `now` is the time of documents that state none.
///
/// # Errors
/// Returns a sentence, without the name of the file, if it is none of these or has no time.
pub fn read_import(bytes: &[u8], now: Timestamp) -> Result<Vec<NewDocument>, String> {
    if bytes.starts_with(&GZIP) {
        let unpacked = unpacked(bytes)?;
        return match &mut read_text(&unpacked, now)?[..] {
            // One document is kept as the file is, compressed.
            [only] => Ok(vec![NewDocument { head: std::mem::take(&mut only.head), body: bytes.to_vec() }]),
            several => Ok(several.to_vec()),
        };
    }
    read_text(bytes, now)
}

/// Returns the facts of a body as this program derives them; `None` if the body is not of a kind that it knows.
pub(crate) fn facts_of(body: &[u8]) -> Option<Vec<StoredFacts>> {
    let mut documents = read_import(body, Timestamp::UNIX_EPOCH).ok()?;
    let only = documents.pop().filter(|_| documents.is_empty())?;
    Some(only.head.facts)
}

fn unpacked(bytes: &[u8]) -> Result<Vec<u8>, String> {
    let mut unpacked = Vec::new();
    let read = MultiGzDecoder::new(bytes).take(MAX_FILE + 1).read_to_end(&mut unpacked);
    read.map_err(|error| format!("its compression (gzip) is damaged: {error}"))?;
    if unpacked.len() as u64 > MAX_FILE {
        return Err(format!("it has more than {} MiB, decompressed", MAX_FILE >> 20));
    }
    Ok(unpacked)
}

fn read_text(bytes: &[u8], now: Timestamp) -> Result<Vec<NewDocument>, String> {
    let values = values(bytes)?;
    if values.is_empty() {
        return Err("it is empty".to_owned());
    }
    if values.iter().all(|(value, _)| iperf3::is_event(value)) {
        return iperf3::read_stream(&values);
    }
    values.into_iter().map(|(value, body)| read_value(&value, body, now)).collect()
}

/// Returns the JSON values that follow one another, each with its bytes.
fn values(bytes: &[u8]) -> Result<Vec<(Value, &[u8])>, String> {
    let mut stream = serde_json::Deserializer::from_slice(bytes).into_iter::<Value>();
    let (mut values, mut from) = (Vec::new(), 0);
    while let Some(value) = stream.next() {
        let value = value.map_err(|error| format!("it is not JSON: {}", printable(&error.to_string())))?;
        let to = stream.byte_offset();
        values.push((value, bytes[from..to].trim_ascii()));
        from = to;
    }
    Ok(values)
}

fn read_value(value: &Value, body: &[u8], now: Timestamp) -> Result<NewDocument, String> {
    let head = if let (true, Some(kind)) = (value["schema"].is_u64(), value["kind"].as_str()) {
        own(value, kind, now)?
    } else if value["start"].is_object() && value["end"].is_object() {
        iperf3::head(value)?
    } else if value["x_values"].is_array() && value["results"].is_object() {
        flent::head(value)?
    } else if value["test"]["type"].is_string() {
        pscheduler::head(value)?
    } else {
        let known = "a document of fullpipe, JSON of iperf3, data of flent, or a run of pScheduler";
        return Err(format!("it is JSON, but not {known}"));
    };
    Ok(NewDocument { head, body: body.to_vec() })
}

/// Returns the head of a document that a fullpipe printed.
fn own(value: &Value, kind: &str, now: Timestamp) -> Result<StoredDocument, String> {
    let document = Document::from_value(value.clone())
        .map_err(|error| format!("it is no document of fullpipe: {}", printable(&error.to_string())))?;
    let head = document::head(&document, now);
    if head.facts.is_empty() && !head.kind.starts_with("sweep") {
        return Err(format!("a document of the kind {} has no measurement to keep", printable(kind)));
    }
    Ok(head)
}

/// Figures of a run as another program states them.
struct Foreign<'v> {
    /// Kind, behind `foreign/`.
    format: &'static str,
    started: Timestamp,
    /// Names, with or without ports.
    host: &'v str,
    peer: &'v str,
    request_key: String,
    program: &'v str,
    facts: Vec<StoredFacts>,
}

impl Foreign<'_> {
    fn head(self) -> StoredDocument {
        let (host, peer) = (clean(&text::host_of(self.host)), clean(&text::host_of(self.peer)));
        let address = text::ip_of(&peer);
        StoredDocument {
            kind: format!("foreign/{}", self.format),
            started: self.started.to_string(),
            path_key: document::path_key(&host, &peer, &address),
            host,
            peer,
            address,
            request_key: clean(&self.request_key),
            program: clean(self.program),
            facts: self.facts,
            ..StoredDocument::default()
        }
    }
}
