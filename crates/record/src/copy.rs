//! The result of a copy.

use crate::CompletionForecast;
use crate::prelude::*;

/// A copy of files between two hosts that is over.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CopyReport {
    /// True if nothing was to be changed: the figures are of what would be copied.
    pub dry_run: bool,
    /// Files that were copied, or would be.
    pub files: u64,
    /// Size of those files.
    pub bytes: ByteCount,
    /// The part of that which arrived in this run, verified.
    pub transferred: ByteCount,
    /// Bytes of that which compression saved on the way.
    #[serde(default)]
    pub saved: ByteCount,
    /// Files that were there already.
    pub present: u64,
    /// Entries that were deleted at the receiver, or would be.
    pub deleted: u64,
    /// Entries that could not be copied.
    pub failed: u64,
    /// The first of them, each with its reason.
    pub failures: Vec<String>,
    /// Entries that are never copied: devices, pipes and sockets.
    #[serde(default)]
    pub left_out: u64,
    /// The first of them, each with its reason.
    #[serde(default)]
    pub left_out_entries: Vec<String>,
    /// Wall time from the start of ssh to the last file that is durable under its name.
    pub duration: Span,
    /// The part of it until data could flow: ssh, its login, and the connections for data.
    pub set_up: Span,
    /// Bytes that arrived in this run ÷ the time after set-up.
    pub rate: BitRate,
    /// BLAKE3 digest of the only file that was copied, in hexadecimal digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// The way that data took; absent if none crossed, as in a dry run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transport: Option<CopyTransport>,
    /// TCP connections for data; on a QUIC connection, its streams side by side.
    pub streams: u16,
    /// Reason for their number.
    pub reason: String,
    /// Round-trip time of the first connection after its handshake.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rtt: Option<Span>,
    /// Congestion control of the connections at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub congestion_control: Option<String>,
    /// Retransmitted segments.
    pub retransmitted: SegCount,
    /// Part of the time for which it sent next to nothing, because others loaded the path; with
    /// `--scavenge` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gave_way: Option<Ratio>,
    /// The limit of the rate; absent if no data crossed, or where it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<CopyLimit>,
}

/// Progress of a copy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CopyProgress {
    /// Bytes that have crossed and are verified at the receiver.
    pub verified: ByteCount,
    /// Bytes that are known to be wanted so far.
    pub wanted: ByteCount,
    /// Rate since the last progress.
    pub rate: BitRate,
    /// When all that is wanted will have crossed; absent while too little has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion: Option<CompletionForecast>,
}

/// The way that the data of a copy took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CopyTransport {
    /// TCP connections to the far end.
    Tcp,
    /// TCP connections from the far end.
    TcpFromFarEnd,
    /// A QUIC connection to the far end, from the beginning or after TCP connections.
    Quic,
    /// A QUIC connection from the far end.
    QuicFromFarEnd,
    /// The connection of ssh.
    Ssh,
    /// The connection of the call to a server of a folder.
    Call,
}

/// The limit of the rate of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CopyLimit {
    /// For most of the time there was nothing on its way: reading the files, small files, or
    /// compression.
    Source,
    /// The receiver's windows were full while it wrote and hashed: its storage or processor.
    Storage,
    /// The receivers' windows were full: `tcp_rmem`.
    ReceiveWindow,
    /// The send buffers were full: `tcp_wmem`.
    SendBuffer,
    /// The congestion windows: the path.
    CongestionWindow,
    /// Other traffic, to which it gave way.
    OtherTraffic,
    /// The rate that the user permits.
    RateLimit,
    /// The windows of ssh.
    Ssh,
}

impl CopyReport {
    /// Returns true if every entry is at the receiver as it should be.
    pub const fn is_complete(&self) -> bool {
        self.failed == 0
    }
}
