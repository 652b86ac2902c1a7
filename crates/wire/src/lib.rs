//! Packets as a network device gives them to a program and takes them back, without the device.
//!
//! A device that speaks virtio's header does not give packets one by one: TCP and UDP hand it
//! *trains*, up to 64 KiB of payload behind one header, which a network card would cut into
//! segments (virtio 1.2, 5.1.6; `IFF_VNET_HDR` of TUN, `PACKET_VNET_HDR` of packet sockets). A
//! [`IpPacketTrain`] is such a train, or a single packet. It can be cut between its segments, and
//! every part is again valid input for a device: lengths, sequence numbers, identifications, flags
//! and checksums are those that the segments would have had on a wire.
//!
//! Checksums of the transport are usually not there yet: the device is asked to finish them, and
//! the field holds only the sum over the pseudo header. Parts keep it so;
//! [`IpPacketTrain::complete_checksum`] does the device's work where the bytes themselves are
//! wanted.

mod captured;
mod checksum;
mod headers;
mod malformed;
mod options;
mod packet;
mod pcap;
mod syn_segment;
mod virtio;

pub use captured::{
    CapturedContent, CapturedSegment, LinkType, Pseudonyms, SegmentOptions, UnreadHeader, flags,
    is_known, read_captured, redact_segment,
};
pub use checksum::internet_checksum;
pub use malformed::MalformedPacket;
pub use packet::IpPacketTrain;
pub use pcap::{pcap_header, pcap_record};
pub use syn_segment::SynSegment;
pub use virtio::VIRTIO_HEADER;
