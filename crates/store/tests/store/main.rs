//! The archive over real databases: one suite for SQLite and PostgreSQL, files of other programs,
//! and everything that may go wrong with a disk or a writer.

mod faults;
mod imports;
mod kills;
mod large;
mod suite;

use fullpipe_record::{StoredDocument, StoredFacts};
use fullpipe_store::NewDocument;
use fullpipe_units::{BitRate, ByteCount, Ratio, SegCount, Span};

/// A document of another program towards `peer`, with all figures; `number` makes it differ from
/// others.
fn document(peer: &str, number: u64) -> NewDocument {
    let facts = StoredFacts {
        rate: Some(BitRate::from_mbps(90)),
        steady: Some(BitRate::from_bps(94_000_000 + number)),
        rtt_idle: Some(Span::from_millis(20)),
        rtt_loaded: Some(Span::from_millis(45)),
        rtt_loaded_p99: Some(Span::from_micros(50_500)),
        retransmits: Some(SegCount::new(7)),
        loss: Some(Ratio::new(0.125)),
        limit: Some("capacity".to_owned()),
        cause: Some("link".to_owned()),
        share: Some(Ratio::ONE),
        cpu_sender: Some(Ratio::new(0.5)),
        cpu_receiver: Some(Ratio::new(0.25)),
        valid: true,
        streams: Some(2),
        buffer: Some(ByteCount::from_kib(64)),
        window: Some(ByteCount::from_mib(1)),
        congestion: Some("cubic".to_owned()),
        sent: Some(ByteCount::from_mib(100)),
        duration: Some(Span::from_secs(10)),
        ..StoredFacts::default()
    };
    let minute = number % 60;
    let (day, hour) = (1 + number / 1440 % 28, number / 60 % 24);
    NewDocument {
        head: StoredDocument {
            kind: "foreign/test".to_owned(),
            started: format!("2026-03-{day:02}T{hour:02}:{minute:02}:00.5Z"),
            host: "alpha".to_owned(),
            peer: peer.to_owned(),
            address: "192.0.2.1".to_owned(),
            path_key: "alpha → 192.0.2.1".to_owned(),
            request_key: "tcp upload, 1 stream, 10 s".to_owned(),
            program: "test 1.0".to_owned(),
            facts: vec![facts],
            ..StoredDocument::default()
        },
        body: format!(
            "{{\"number\":{number},\"text\":\"{}\"}}",
            "x".repeat(number as usize % 5000)
        )
        .into_bytes(),
    }
}
