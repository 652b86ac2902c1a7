//! The record of an emulated path, which a capture of both its ends can be compared with.

use crate::prelude::*;
use crate::{ChangedField, Edit, Path};

/// Effects of an emulated path on the packets of a capture, as the path itself recorded them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PathTruth {
    /// Begin of the names of the capture files: the scenario, the step and the number of the run.
    pub name: String,
    /// Begin of the capture, since 1970-01-01 UTC.
    pub began: Span,
    /// The path as it was asked for.
    pub path: Path,
    /// Rate of the bottleneck from sender to receiver; `None` where the path has none.
    pub capacity: Option<BitRate>,
    /// Round-trip time without queues.
    pub rtt: Span,
    /// The direction from the sender to the receiver, and the one back.
    pub directions: [DirectionTruth; 2],
}

/// Effects of one direction of an emulated path.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct DirectionTruth {
    /// The edits of its middleboxes, in order, with what each changed.
    pub edits: Vec<EditTruth>,
    /// The packets that did not arrive once, in order and as they were sent, by the time at which
    /// it happened.
    pub packets: Vec<PacketTruth>,
    /// Packets beyond the maximum length of that list.
    pub left_out: u64,
}

/// An edit of a middlebox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EditTruth {
    /// The edit.
    pub edit: Edit,
    /// The fields that it changes; none where it only counts hops.
    pub fields: Vec<ChangedField>,
    /// Packets that it changed, from the begin of the capture.
    pub packets: u64,
}

/// One packet to which something happened on an emulated path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PacketTruth {
    /// Time since the begin of the capture.
    pub at: Span,
    /// The fate of the packet.
    pub fate: Fate,
    /// Bytes that waited or were being sent when it was dropped or marked, as the framing of the
    /// path counts them; with CoDel, those of its queue alone that waited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<ByteCount>,
    /// TCP header of the packet; `None` of other protocols.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub segment: Option<SegmentTruth>,
}

/// Fields by which a TCP segment is known, as they were when it happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SegmentTruth {
    /// Ports of its sender and of its receiver.
    pub ports: [u16; 2],
    /// Sequence number.
    pub sequence: u32,
    /// Acknowledgement number.
    pub acknowledgement: u32,
    /// Bytes of data.
    pub payload: u32,
    /// Identification of the IPv4 header.
    pub identification: Option<u16>,
}

/// The fate of a packet on an emulated path.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Fate {
    /// Lost at random, or as one of the listed packets.
    Lost,
    /// Dropped by a router, as its hop limit was used up.
    Expired,
    /// Dropped before a narrow link, with or without an answer.
    TooBig,
    /// Dropped by a policer.
    Policed,
    /// Dropped at a full queue, or from one that made room for another packet.
    Overflowed,
    /// Dropped by CoDel.
    AqmDropped,
    /// Marked "congestion experienced".
    Marked,
    /// Arrived with a wrong bit, for which its receiver drops it.
    Corrupted,
    /// Arrived twice; this is the copy.
    Duplicated,
    /// Arrived after a packet that left the link later (RFC 4737, 4.1).
    Reordered,
}

impl Fate {
    /// Returns true if the packet did not arrive.
    pub const fn is_loss(self) -> bool {
        !matches!(
            self,
            Self::Marked | Self::Corrupted | Self::Duplicated | Self::Reordered
        )
    }
}

impl Edit {
    /// Returns the fields of a connection that this edit changes.
    pub fn changed_fields(&self) -> Vec<ChangedField> {
        match self {
            Self::StripWindowScale | Self::RewriteWindowScale(_) => vec![ChangedField::WindowScale],
            Self::StripSack => vec![ChangedField::Sack],
            Self::StripTimestamps => vec![ChangedField::Timestamps],
            Self::ClampMss(_) => vec![ChangedField::Mss],
            Self::ClampWindow(_) => vec![ChangedField::SynWindow, ChangedField::Window],
            Self::Router(_) => vec![],
        }
    }
}
