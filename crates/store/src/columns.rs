//! Documents and facts as rows, in the order of the columns in [`crate::statements`].

use std::vec::IntoIter;

use fullpipe_record::{Direction, StoredDocument, StoredFacts};
use fullpipe_units::{BitRate, ByteCount, Ratio, SegCount, Span};
use jiff::Timestamp;

use crate::engine::{DatabaseValue, Row};

/// Returns the row of a document.
pub(crate) fn document_row(document: &StoredDocument) -> Row {
    vec![
        document.id.as_str().into(),
        document.kind.as_str().into(),
        u64::from(document.schema).into(),
        parse_nanoseconds(&document.started).into(),
        document.host.as_str().into(),
        document.peer.as_str().into(),
        document.address.as_str().into(),
        document.path_key.as_str().into(),
        document.campaign.as_str().into(),
        document.cell.as_str().into(),
        document.request_key.as_str().into(),
        document.program.as_str().into(),
        document.bytes.get().into(),
        document.blake3.as_str().into(),
        document.thinned.into(),
    ]
}

/// Returns the row of facts.
pub(crate) fn facts_row(facts: &StoredFacts) -> Row {
    vec![
        facts.step.as_str().into(),
        direction_name(facts.direction).into(),
        facts.rate.map(BitRate::bps).into(),
        facts.steady.map(BitRate::bps).into(),
        facts.rtt_idle.map(Span::as_nanos).into(),
        facts.rtt_loaded.map(Span::as_nanos).into(),
        facts.rtt_loaded_p99.map(Span::as_nanos).into(),
        facts.retransmits.map(SegCount::get).into(),
        facts.loss.map(Ratio::get).into(),
        facts.limit.as_deref().into(),
        facts.cause.as_deref().into(),
        facts.share.map(Ratio::get).into(),
        facts.cpu_sender.map(Ratio::get).into(),
        facts.cpu_receiver.map(Ratio::get).into(),
        facts.valid.into(),
        facts.streams.map(u64::from).into(),
        facts.buffer.map(ByteCount::get).into(),
        facts.window.map(ByteCount::get).into(),
        facts.congestion.as_deref().into(),
        facts.sent.map(ByteCount::get).into(),
        facts.duration.map(Span::as_nanos).into(),
    ]
}

/// Values of a row, taken in the order of their columns. A value of another type than its column,
/// which only another program can have written, is taken as missing.
pub struct RowReader(IntoIter<DatabaseValue>);

impl RowReader {
    pub(crate) fn new(row: Row) -> Self {
        Self(row.into_iter())
    }

    /// Returns the next number.
    pub fn next_integer(&mut self) -> Option<i64> {
        match self.0.next() {
            Some(DatabaseValue::Integer(number)) => Some(number),
            _ => None,
        }
    }

    /// Returns the next number, if it is not negative.
    pub fn next_count(&mut self) -> Option<u64> {
        self.next_integer()
            .and_then(|number| u64::try_from(number).ok())
    }

    /// Returns the next text.
    pub fn next_text(&mut self) -> Option<String> {
        match self.0.next() {
            Some(DatabaseValue::Text(text)) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn next_blob(&mut self) -> Option<Vec<u8>> {
        match self.0.next() {
            Some(DatabaseValue::Blob(bytes)) => Some(bytes),
            _ => None,
        }
    }

    fn next_ratio(&mut self) -> Option<Ratio> {
        match self.0.next() {
            Some(DatabaseValue::Real(number)) => Some(Ratio::new(number)),
            _ => None,
        }
    }

    fn next_span(&mut self) -> Option<Span> {
        self.next_count().map(Span::from_nanos)
    }

    fn next_bytes(&mut self) -> Option<ByteCount> {
        self.next_count().map(ByteCount::new)
    }

    /// Returns the next text, empty if there is none.
    pub fn next_string(&mut self) -> String {
        self.next_text().unwrap_or_default()
    }

    /// Returns the next document, without its facts.
    pub(crate) fn next_document(&mut self) -> StoredDocument {
        StoredDocument {
            id: self.next_string(),
            kind: self.next_string(),
            schema: self
                .next_count()
                .and_then(|schema| schema.try_into().ok())
                .unwrap_or(0),
            started: format_rfc3339(self.next_integer().unwrap_or(0)),
            host: self.next_string(),
            peer: self.next_string(),
            address: self.next_string(),
            path_key: self.next_string(),
            campaign: self.next_string(),
            cell: self.next_string(),
            request_key: self.next_string(),
            program: self.next_string(),
            bytes: self.next_bytes().unwrap_or_default(),
            blake3: self.next_string(),
            thinned: self.next_integer() == Some(1),
            facts: Vec::new(),
        }
    }

    /// Returns the next facts.
    pub(crate) fn next_facts(&mut self) -> StoredFacts {
        StoredFacts {
            step: self.next_string(),
            direction: if self.next_string() == DOWNLOAD {
                Direction::Download
            } else {
                Direction::Upload
            },
            rate: self.next_count().map(BitRate::from_bps),
            steady: self.next_count().map(BitRate::from_bps),
            rtt_idle: self.next_span(),
            rtt_loaded: self.next_span(),
            rtt_loaded_p99: self.next_span(),
            retransmits: self.next_count().map(SegCount::new),
            loss: self.next_ratio(),
            limit: self.next_text(),
            cause: self.next_text(),
            share: self.next_ratio(),
            cpu_sender: self.next_ratio(),
            cpu_receiver: self.next_ratio(),
            valid: self.next_integer() == Some(1),
            streams: self
                .next_count()
                .and_then(|streams| streams.try_into().ok()),
            buffer: self.next_bytes(),
            window: self.next_bytes(),
            congestion: self.next_text(),
            sent: self.next_bytes(),
            duration: self.next_span(),
        }
    }
}

/// Direction of the data from the far end.
const DOWNLOAD: &str = "download";

/// Returns the name of a direction; facts are of one direction each.
pub(crate) const fn direction_name(direction: Direction) -> &'static str {
    match direction {
        Direction::Upload | Direction::Both => "upload",
        Direction::Download => DOWNLOAD,
    }
}

/// Returns nanoseconds since 1970 in UTC; 0 for a text that is no time.
pub(crate) fn parse_nanoseconds(rfc3339: &str) -> i64 {
    rfc3339.parse().map_or(0, timestamp_nanoseconds)
}

/// Returns nanoseconds since 1970; times that a BIGINT does not hold (before 1677, after 2262) are
/// its ends.
pub(crate) fn timestamp_nanoseconds(time: Timestamp) -> i64 {
    time.as_nanosecond().clamp(i64::MIN.into(), i64::MAX.into()) as i64
}

fn format_rfc3339(nanoseconds: i64) -> String {
    Timestamp::from_nanosecond(nanoseconds.into())
        .unwrap_or_default()
        .to_string()
}
