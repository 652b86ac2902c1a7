//! Packet captures: files of every common format and compression, packet by packet.
//!
//! [`PacketFile`] reads pcap and pcapng, plain or compressed, from a file or a pipe. It never
//! seeks, holds no more of a file than a block, and trusts no length that the file states.
//! [`fullpipe_wire::read_captured`] reads the packets themselves. Devices are captured on Linux alone.
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

#![cfg_attr(not(target_os = "linux"), allow(dead_code))]

mod appearance;
mod clock;
mod compression;
mod decompress;
mod error;
mod file;
mod flows;
mod following;
mod input;
mod notes;
mod order;
mod pcap;
mod pcap_writer;
mod pcapng;
mod pseudonyms;
mod record;
mod redaction;
mod sorter;

pub use compression::Compression;
pub use error::CaptureError;
pub use file::{CapturedPacket, PacketFile};
pub use flows::{CaptureContent, CaptureUse, read_flows, read_flows_with};
pub use fullpipe_flow::{
    ExplainedTransfers, FlowsWithTimes, TransferEvidence, match_flows, of_both,
};
pub use notes::FileNotes;
pub use redaction::RedactedWriter;

cfg_if::cfg_if! {
    if #[cfg(target_os = "linux")] {
        mod live;
        mod recording;

        pub use fullpipe_sys::CapturedPeer;
        pub use live::capture_live;
        pub use recording::{HeaderRecording, RecordedCapture};
    }
}
