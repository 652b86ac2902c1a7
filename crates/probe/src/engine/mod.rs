//! The load itself: a thread for each stream, and one that samples those of TCP.
//!
//! No async runtime and no channel is on the data path. A sending thread never waits longer than a
//! millisecond before it tries again, so that the send buffer is really full when it is the limit;
//! with [`Writer::Blocking`] it sleeps as ordinary programs do.
//!
//! [`Writer::Blocking`]: fullpipe_record::Writer::Blocking

#![warn(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss
)]

mod credit;
mod files;
mod framed;
mod lane;
mod pace;
mod pause;
mod plan;
mod prepare;
mod sampler;
mod shared;
mod source;
mod storage;
mod tcp;
mod transfer;
mod udp_receiver;
mod udp_sender;

pub use files::StorageConfig;
pub use prepare::{LocalEndpoint, PrepareError};

pub(crate) use files::open_file;
pub(crate) use framed::{FramedStream, Framing};
pub(crate) use lane::{PlannedStream, StreamChannel, StreamCount, StreamRole};
pub(crate) use pace::WriteAllowance;
pub(crate) use plan::TransferPlan;
pub(crate) use prepare::{apply_options, prepare_socket, prepare_udp, read_back};
pub(crate) use shared::incompressible_bytes;
pub(crate) use storage::{FileStorage, StorageFailure};
pub(crate) use transfer::{RunningTransfer, SenderSockets, StreamTotals, TransferTotals};

#[cfg(test)]
mod tests;
