//! Packet captures: files of every common format and compression, packet by packet.
//!
//! [`PacketFile`] reads pcap and pcapng, plain or compressed, from a file or a pipe. It never
//! seeks, holds no more of a file than a block, and trusts no length that the file states.
//! [`fullpipe_wire::read_captured`] reads the packets themselves.
//!
//! ```no_run
//! use fullpipe_trace::PacketFile;
//!
//! # fn main() -> Result<(), fullpipe_trace::CaptureError> {
//! let mut file = PacketFile::open("trace.pcap.gz".as_ref())?;
//! let mut bytes = 0;
//! while let Some(packet) = file.next_packet()? {
//!     bytes += u64::from(packet.original);
//! }
//! assert!(!file.file_notes().cut_end);
//! # Ok(())
//! # }
//! ```

mod appearance;
mod clock;
mod compression;
mod decompress;
mod error;
mod file;
mod flows;
mod following;
mod input;
mod live;
mod notes;
mod order;
mod pcap;
mod pcap_writer;
mod pcapng;
mod pseudonyms;
mod record;
mod recording;
mod redaction;
mod sorter;

pub use compression::Compression;
pub use error::CaptureError;
pub use file::{CapturedPacket, PacketFile};
pub use flows::{CaptureContent, CaptureUse, read_flows, read_flows_with};
pub use fullpipe_flow::{
    ExplainedTransfers, FlowsWithTimes, TransferEvidence, match_flows, of_both,
};
pub use fullpipe_sys::CapturedPeer;
pub use live::capture_live;
pub use notes::FileNotes;
pub use recording::{HeaderRecording, RecordedCapture};
pub use redaction::RedactedWriter;
