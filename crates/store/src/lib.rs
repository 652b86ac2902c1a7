//! The archive: what was measured is kept, and found again.
//!
//! A document goes in as it was printed, and comes out byte for byte: a measurement of fullpipe, or
//! a result of another program ([`read_import`]). Facts of it (rates, round-trip times, the limit)
//! are derived, so that lists and histories need not read the documents. Both are kept in SQLite,
//! one file, or in PostgreSQL, by the same statements. A document is on the disk when
//! [`Store::put_document`] returns.
//!
//! Times are arguments. A document that states no identifier gets one that follows from its bytes
//! ([`id_of_bytes`]), so that it has the same one in every archive.

mod changes;
mod columns;
mod document;
mod engine;
mod error;
mod export;
mod history;
mod import;
mod location;
mod postgresql;
mod redaction;
mod sqlite;
mod statements;
mod store;
mod text;
mod upkeep;

pub use columns::RowReader;
pub use document::{NewDocument, one_cell, one_transfer};
pub use engine::{DatabaseValue, EngineError, EngineResult};
pub use error::StoreError;
pub use export::{csv_head, csv_rows};
pub use import::{iperf3_transfers, read_import, text_in_utf_8};
pub use location::ArchiveLocation;
pub use redaction::Redaction;
pub use store::{
    ArchiveTransaction, DocumentFilter, DocumentPosition, KeptDocument, Store, id_of_bytes,
};
pub use text::parse_past_time;
