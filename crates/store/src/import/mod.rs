//! Files of this program and of others → documents. Each is kept as it was; facts are taken from
//! it.

mod encoding;
mod flent;
mod iperf3;
mod iperf3_transfer;
mod json;
mod pscheduler;
mod value;

use std::borrow::Cow;
use std::io::Read;

use flate2::read::MultiGzDecoder;
use fullpipe_record::{Document, StoredDocument, StoredFacts};
use jiff::Timestamp;
use serde::de::IgnoredAny;
use serde_json::{Deserializer, Value};

use crate::document::{self, NewDocument, has_rows};
use crate::text::{self, clean_line};
use json::JsonFields;

pub use encoding::text_in_utf_8;
pub use iperf3_transfer::iperf3_transfers;

/// Size of the largest file that is decompressed, in bytes: gzip makes a thousand times as much of
/// zeros.
const MAX_UNPACKED: u64 = 64 << 20;

/// Memory that one document may take, of a file that was compressed and of another one, in bytes. A
/// minute of 90 streams is 180 MB of text, nearly all of which is skipped.
const MEMORY_OF_PACKED: usize = 64 << 20;
const MEMORY: usize = 1 << 30;

/// Bytes of memory that a document may take for each byte of a file that is larger than a
/// compressed one may be. Those of this program take four, and what is made to exhaust memory takes
/// a hundred.
const MEMORY_OF_BYTE: usize = 8;

/// First bytes of a gzip file (RFC 1952, 2.3.1).
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Returns the documents in a file: a document of fullpipe, JSON of iperf3 (`-J`, `--json-stream`
/// with and without `--json-stream-full-output`), data of flent (`.flent.gz`), or a run of
/// pScheduler; several after one another make several documents, as in a log that was appended to.
/// Lines around them that do not begin with a brace are passed over, as a shell or the standard
/// error of the program leaves them. The text is in UTF-8 or UTF-16. `now` is the time of documents
/// that state none.
///
/// # Errors
/// Returns a sentence, without the name of the file, if it is none of these or has no time.
pub fn read_import(bytes: &[u8], now: Timestamp) -> Result<Vec<NewDocument>, String> {
    let is_packed = bytes.starts_with(&GZIP);
    let unpacked = if is_packed {
        Cow::Owned(decompress_import(bytes, MAX_UNPACKED)?)
    } else {
        Cow::Borrowed(bytes)
    };
    let text = text_in_utf_8(&unpacked)?;
    let mut documents = read_text(
        &text,
        if is_packed {
            MEMORY_OF_PACKED
        } else {
            memory_for(bytes.len())
        },
        now,
    )?;
    if let ([only], false) = (&mut documents[..], *text == *bytes)
        && !has_rows(&only.head.kind)
    {
        // One document is kept as the file is, compressed or in its encoding.
        only.body = bytes.to_vec();
    }
    Ok(documents)
}

/// Returns the memory that a document in a file of this length may take, in bytes.
fn memory_for(length: usize) -> usize {
    (length * MEMORY_OF_BYTE).clamp(MEMORY_OF_PACKED, MEMORY)
}

/// Returns the facts of a body as this program derives them; `None` if the body is not of a kind
/// that it knows.
pub(crate) fn facts_of(body: &[u8]) -> Option<Vec<StoredFacts>> {
    let mut documents = read_import(body, Timestamp::UNIX_EPOCH).ok()?;
    let only = documents.pop().filter(|_| documents.is_empty())?;
    Some(only.head.facts)
}

fn decompress_import(bytes: &[u8], most: u64) -> Result<Vec<u8>, String> {
    let mut unpacked = Vec::new();
    let read = MultiGzDecoder::new(bytes)
        .take(most + 1)
        .read_to_end(&mut unpacked);
    read.map_err(|error| format!("its compression (gzip) is damaged: {error}"))?;
    if unpacked.len() as u64 > most {
        return Err(format!(
            "it has more than {} MiB, decompressed; `gunzip` it first",
            most >> 20
        ));
    }
    Ok(unpacked)
}

fn read_text(bytes: &[u8], memory: usize, now: Timestamp) -> Result<Vec<NewDocument>, String> {
    let mut documents = Vec::new();
    let mut events: Option<iperf3::TestEvents> = None;
    for value in json_values(bytes, memory, &value::SKIPPED) {
        let (value, body) = value?;
        let is_start = iperf3::is_start(&value);
        let goes_on = |events: &iperf3::TestEvents| !is_start && events.contains_value(&value);
        if !events.as_ref().is_some_and(goes_on) {
            let ended = events.take().map(iperf3::TestEvents::into_document);
            documents.extend(ended.transpose()?);
            events = is_start.then(iperf3::TestEvents::default);
        }
        match &mut events {
            Some(events) => events.add_event(value, body),
            None if iperf3::is_event(&value) => {
                return Err("its first event is not the start of a test".to_owned());
            }
            None => documents.extend(read_value(value, body, now)?),
        }
    }
    documents.extend(events.map(iperf3::TestEvents::into_document).transpose()?);
    if documents.is_empty() {
        Err("it is empty".to_owned())
    } else {
        Ok(documents)
    }
}

/// Returns the JSON values that follow one another without their fields in `skipped`, each with its
/// bytes, of which each may take `memory`.
fn json_values<'b>(
    bytes: &'b [u8],
    memory: usize,
    skipped: &[&str],
) -> impl Iterator<Item = Result<(Value, &'b [u8]), String>> {
    let finite = encoding::with_finite_numbers(bytes);
    let mut from = 0;
    std::iter::from_fn(move || {
        from += next_document(&finite[from..], from == 0)?;
        let mut stream = Deserializer::from_slice(&finite[from..]).into_iter::<IgnoredAny>();
        let found = stream.next()?.map_err(|error| not_json(&error));
        let (begun, ended) = (from, from + stream.byte_offset());
        from = ended;
        let value = found.and_then(|_| {
            let read = value::read_value(&finite[begun..ended], memory, skipped);
            read.map_err(|error| {
                if error.is_data() {
                    value::too_much(memory)
                } else {
                    not_json(&error)
                }
            })
        });
        Some(value.map(|value| (value, bytes[begun..ended].trim_ascii())))
    })
}

fn not_json(error: &serde_json::Error) -> String {
    format!("it is not JSON: {}", clean_line(&error.to_string()))
}

/// Returns the place of the next document: the first line that begins with a brace. Of a text
/// without any, what it begins with, if nothing was read before; it is no document, and the error
/// says why.
fn next_document(text: &[u8], is_first: bool) -> Option<usize> {
    let mut at = indentation(text);
    while at < text.len() && text[at] != b'{' {
        let line = text[at..]
            .iter()
            .position(|byte| *byte == b'\n')
            .unwrap_or(text.len() - at);
        at += line + indentation(&text[at + line..]);
    }
    let unread = is_first.then(|| indentation(text));
    Some(at)
        .filter(|at| *at < text.len())
        .or(unread)
        .filter(|at| *at < text.len())
}

fn indentation(text: &[u8]) -> usize {
    text.len() - text.trim_ascii_start().len()
}

fn read_value(value: Value, body: &[u8], now: Timestamp) -> Result<Vec<NewDocument>, String> {
    let head = if value["schema"].is_u64() && value["kind"].is_string() {
        return own_documents(value, body, now);
    } else if value["start"].is_object() && value["end"].is_object() {
        iperf3::iperf3_head(&value)?
    } else if value["x_values"].is_array() && value["results"].is_object() {
        flent::flent_head(&value)?
    } else if value["test"]["type"].is_string() {
        pscheduler::pscheduler_head(&value)?
    } else {
        let known = "a document of fullpipe, JSON of iperf3, data of flent, or a run of pScheduler";
        return Err(format!("it is JSON, but not {known}"));
    };
    let body = body.to_vec();
    Ok(vec![NewDocument { head, body }])
}

/// Returns a document that a fullpipe printed; of a grid, one for each row.
fn own_documents(value: Value, body: &[u8], now: Timestamp) -> Result<Vec<NewDocument>, String> {
    let kind = value["kind"].as_str().map(clean_line).unwrap_or_default();
    let document = Document::from_value(value).map_err(|error| {
        format!(
            "it is no document of fullpipe: {}",
            clean_line(&error.to_string())
        )
    })?;
    if has_rows(&kind) {
        return Ok(NewDocument::from_document(&document, now));
    }
    let head = document::document_head(&document, now);
    if head.facts.is_empty() && !head.kind.starts_with("sweep") {
        return Err(format!(
            "a document of the kind {kind} has no measurement to keep"
        ));
    }
    let body = body.to_vec();
    Ok(vec![NewDocument { head, body }])
}

/// Figures of a run as another program states them.
struct ForeignRun<'v> {
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

impl ForeignRun<'_> {
    fn into_head(self) -> StoredDocument {
        let (host, peer) = (
            clean_line(&text::host_of(self.host)),
            clean_line(&text::host_of(self.peer)),
        );
        let address = text::ip_of(&peer);
        StoredDocument {
            kind: format!("foreign/{}", self.format),
            started: self.started.to_string(),
            path_key: document::path_key(&host, &peer, &address),
            host,
            peer,
            address,
            request_key: clean_line(&self.request_key),
            program: clean_line(self.program),
            facts: self.facts,
            ..StoredDocument::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    #[test]
    fn a_few_bytes_of_gzip_take_no_more_memory_than_they_may() {
        let mut packed = GzEncoder::new(Vec::new(), Compression::best());
        packed.write_all(&vec![b' '; 3 << 20]).unwrap();
        let packed = packed.finish().unwrap();
        assert!(packed.len() < 10_000);
        assert_eq!(decompress_import(&packed, 3 << 20).unwrap().len(), 3 << 20);
        let refused = decompress_import(&packed, (3 << 20) - 1).unwrap_err();
        assert!(
            refused.starts_with("it has more than 2 MiB, decompressed"),
            "{refused}"
        );
    }

    /// A word of a document stood whole in the sentence about it.
    #[test]
    fn a_long_word_of_a_document_is_cut_in_the_sentence_about_it() {
        let long = "x".repeat(5_000_000);
        for text in [
            format!(r#"{{"schema":1,"kind":"{long}"}}"#),
            format!(r#"{{"schema":1,"kind":"path","path":"{long}"}}"#),
        ] {
            let refused = read_import(text.as_bytes(), Timestamp::UNIX_EPOCH).unwrap_err();
            assert!(refused.len() < 400, "{}", refused.len());
        }
    }

    /// 40 MB of objects with one field each took 1.3 GB.
    #[test]
    fn what_is_made_to_exhaust_memory_is_refused_by_the_length_of_its_file() {
        assert_eq!(memory_for(40 << 20), 320 << 20);
        assert_eq!(
            [memory_for(0), memory_for(1 << 30)],
            [MEMORY_OF_PACKED, MEMORY]
        );
        let hostile = format!("{{\"start\":[{}0]}}", "{\"a\":0},".repeat(2 << 20));
        let refused = read_import(hostile.as_bytes(), Timestamp::UNIX_EPOCH).unwrap_err();
        assert_eq!(refused, "it would take more than 128 MiB of memory");
    }

    #[test]
    fn a_document_takes_no_more_memory_than_it_may() {
        fn read(text: &str) -> Result<Vec<(Value, &[u8])>, String> {
            json_values(text.as_bytes(), 100_000, &value::SKIPPED).collect()
        }
        for (of, count) in [
            ("0", 3200),
            ("[0]", 700),
            ("{\"a\":0}", 200),
            ("\"a long text of some bytes\"", 1800),
        ] {
            let list =
                |count: usize| format!("{{\"start\":[{of}{}]}}", format!(",{of}").repeat(count));
            assert!(read(&list(count / 2)).is_ok(), "{of}");
            let refused = read(&list(count)).map(|values| values.len());
            assert_eq!(
                refused,
                Err("it would take more than 0 MiB of memory".to_owned()),
                "{of}"
            );
            // Of each document.
            assert_eq!(read(&list(count / 2).repeat(9)).unwrap().len(), 9);
        }
        let skipped = format!(
            "{{\"intervals\":[{}0],\"end\":{{\"intervals\":[1]}}}}",
            "0,".repeat(100_000)
        );
        let (value, body) = &read(&skipped).unwrap()[0];
        assert_eq!(
            (value.to_string().as_str(), body.len()),
            ("{\"end\":{\"intervals\":[1]}}", skipped.len())
        );
    }
}
