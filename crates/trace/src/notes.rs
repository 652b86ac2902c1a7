//! Facts of a file apart from its packets.

use fullpipe_wire::LinkType;

use crate::Compression;

/// Facts of a file that a reader of its figures must know. They are complete once the last packet was read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FileNotes {
    /// The format in words: "pcapng", or "pcap, microseconds".
    pub format: &'static str,
    /// The compression around the format.
    pub compression: Option<Compression>,
    /// Interfaces in the order of the file; those of sections that were concatenated follow each other.
    pub interfaces: Vec<CaptureInterface>,
    /// Packets read.
    pub packets: u64,
    /// The file ends within a record, or its compression does: its last packets are missing.
    pub cut_end: bool,
    /// Packets that the capturing host lost, where the file states it. Counts at packets and counts of a whole
    /// interface are of the same losses: the larger counts.
    pub drops: Option<u64>,
    /// Packets to which the format gives no time (pcapng's simple packet blocks).
    pub packets_without_time: u64,
    /// Blocks of pcapng that hold neither packets nor what is needed for them.
    pub skipped_blocks: u64,
    /// Times whose fraction was a second or more; they count as just below a second.
    pub clamped_fractions: u64,
}

/// An interface that packets were captured on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaptureInterface {
    /// Its name, without control characters, where the file has one.
    pub name: Option<String>,
    /// Link type of its packets.
    pub link: LinkType,
    /// Bytes kept of each packet at most, as the file states it; zero where there is no limit.
    pub snap_length: u32,
}
