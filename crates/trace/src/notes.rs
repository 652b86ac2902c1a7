//! Facts of a file apart from its packets.

use std::collections::BTreeSet;

use fullpipe_wire::LinkType;

use crate::Compression;

/// Facts of a file that a reader of its figures must know. They are complete once the last packet
/// was read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FileNotes {
    /// The format in words: "pcapng", or "pcap, microseconds".
    pub format: &'static str,
    /// The compression around the format.
    pub compression: Option<Compression>,
    /// Link types of its interfaces.
    pub links: BTreeSet<LinkType>,
    /// Packets read.
    pub packets: u64,
    /// The file ends within a record, or its compression does: its last packets are missing.
    pub cut_end: bool,
    /// Packets that the capturing host lost, where the file states it. Counts at packets and counts
    /// of a whole interface are of the same losses: the larger counts.
    pub drops: Option<u64>,
    /// Packets to which the format gives no time (pcapng's simple packet blocks).
    pub packets_without_time: u64,
    /// Times whose fraction was a second or more; they count as just below a second.
    pub clamped_fractions: u64,
}
