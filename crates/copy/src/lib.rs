//! Copies files and trees between two hosts over ssh, as fast as the path lets parallel TCP
//! connections, or one of QUIC.
//!
//! * In: [`CopyOptions`]. Out: [`CopyEvent`]s while it runs, and a report
//!   ([`fullpipe_record::CopyReport`]).
//! * The near end starts `fullpipe copy --far` at the other host through the user's own ssh, which
//!   runs [`far_end`]. Everything that is said crosses inside ssh, the secret of the connections
//!   for data among it. Data crosses on TCP connections of their own, inside TLS 1.3 unless the
//!   user did without, on a QUIC connection, or inside ssh if there are none. An end that receives
//!   nothing for a while gives up.
//! * Without ssh, the far end is a server that shares a folder ([`ShareServer`]): both prove a
//!   shared key, inside TLS 1.3.
//! * A file of a web server comes by ranges, on as many connections as the path needs; what its
//!   answers mean is decided in [`http`].
//! * The receiver decides what it wants. A chunk of 1 MiB counts when the BLAKE3 hashes of its
//!   blocks are right and it is written; a file has its name when it is complete and durable.
//! * What the other end says is decided in [`protocol`]; nothing outside the destination
//!   is opened, because every path is walked from its folder without following links.
//!
//! A thread a connection, as for every load of this project: reading, hashing, encrypting and
//! sending blocks, or receiving, decrypting, verifying and writing them.

mod address;
mod attributes;
mod bounds;
mod common;
mod connect;
mod control;
#[cfg(test)]
mod corruption_tests;
mod course;
mod data_stream;
mod far;
mod finish;
mod halves;
pub mod http;
mod joining;
mod near;
mod offered;
mod options;
mod pacing;
mod packing;
mod part;
pub mod protocol;
mod pulse;
mod queue;
mod quic;
mod rate;
mod receiver;
mod report;
mod root;
mod sender;
mod server;
mod session;
mod share;
mod shared;
#[cfg(test)]
mod slow_tests;
mod ssh;
mod summary;
mod threads;
mod tls;
mod tree;
mod tuning;
mod walk;
mod web;

pub use course::{AdaptationChange, CopyAdaptation};
pub use far::far_end;
pub use near::copy_files;
pub use options::{
    CopyError, CopyEvent, CopyOptions, CopyPath, CopyResult, DataTransport, FarHost, PlaceError,
    SHARE_PORT,
};
pub use protocol::CHUNK;
pub use share::{ShareError, ShareEvent, ShareOptions, ShareServer};
pub use tuning::initial_connections;
