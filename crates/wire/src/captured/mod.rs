//! A lenient view of packets as captures hold them: with their link's header, with tags and tunnels
//! around them, cut off by a snap length, or longer than any link carries.
//!
//! [`crate::IpPacketTrain`] is for packets that are to be cut and passed on, and refuses what it
//! cannot do that with. Here nothing is changed, and whatever can be read is read.

mod around;
mod ether_type;
mod ip;
mod link_layer;
mod link_type;
mod redact;
mod segment;
mod tunnel;
mod unread;
mod usual;
mod view;

use around::NetworkLayers;
use segment::SegmentHeader;
use usual::UsualHeaders;
use view::PacketView;

use crate::headers::TCP;

pub use link_layer::is_known;
pub use link_type::LinkType;
pub use redact::{Pseudonyms, redact_segment};
pub use segment::{CapturedSegment, SegmentOptions, flags};
pub use unread::UnreadHeader;

/// Packets in packets that are followed.
const MAX_LAYERS: usize = 8;

/// The content of a captured packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CapturedContent {
    /// A segment of TCP, in tunnels or not.
    Tcp(CapturedSegment),
    /// A datagram of UDP that is no tunnel's.
    Udp,
    /// Headers around it that are not understood: it may be a segment of TCP.
    Unread(UnreadHeader),
    /// Anything else: other protocols, an unknown link type, more layers than are followed.
    Other,
    /// A fragment other than the first, so without a transport's header.
    LaterFragment,
    /// The first fragment of a packet, of TCP or not.
    FirstFragment,
    /// An encrypted packet: ESP, of a wireless network, or in DTLS.
    Encrypted,
    /// The snap length cut a header off.
    Cut,
    /// Headers that contradict each other, or are longer than the packet was.
    Malformed,
}

/// Reads the first `bytes` of a packet that had the length `original` (in bytes) on a link of this
/// type.
///
/// Lengths of IP headers are believed before `original`, since short frames are padded. `original`
/// counts where an IP header leaves its length out, as those of trains above 64 KiB do (BIG TCP).
///
/// ```
/// use fullpipe_wire::{CapturedContent, LinkType, read_captured};
///
/// let query = [&[0x45, 0, 0, 28, 0, 1, 0, 0, 64, 17, 0, 0][..], &[10, 0, 0, 1, 10, 0, 0, 2], &[0; 8]].concat();
/// assert_eq!(read_captured(LinkType::RAW, &query, query.len()), CapturedContent::Udp);
/// assert_eq!(read_captured(LinkType::RAW, &query[..19], query.len()), CapturedContent::Cut);
/// ```
#[inline]
pub fn read_captured(link: LinkType, bytes: &[u8], original: usize) -> CapturedContent {
    match UsualHeaders::from_frame(link, bytes) {
        // Written where it stays: a copy of it costs as much as reading it.
        Some(usual) => CapturedContent::Tcp(usual.captured_segment()),
        None => read_any(link, bytes, original),
    }
}

fn read_any(link: LinkType, bytes: &[u8], original: usize) -> CapturedContent {
    let mut captured = CapturedContent::Other;
    if let Err(stop) = find_segment(link, PacketView::new(bytes, original), &mut captured) {
        captured = stop.into();
    }
    captured
}

/// Writes the innermost segment into `found`, since copies of it would cost as much as all else.
#[inline]
fn find_segment(
    link: LinkType,
    frame: PacketView,
    found: &mut CapturedContent,
) -> Result<(), ParseStop> {
    let mut around = NetworkLayers::default();
    let (mut kind, mut view) = link_layer::open_frame(link, frame)?;
    let mut outermost = None;
    for _ in 0..MAX_LAYERS {
        let packet = ether_type::to_ip(kind, view, &mut around)?;
        let overhead = packet.offset - *outermost.get_or_insert(packet.offset);
        let mut ip = ip::read_header(packet)?;
        if ip.protocol != TCP {
            ip.follow_extensions()?;
        }
        if ip.protocol == TCP {
            let header = SegmentHeader::read(ip.payload)?;
            *found = CapturedContent::Tcp(CapturedSegment::new(&ip, &header, around, overhead));
            return Ok(());
        }
        (kind, view) = tunnel::open_tunnel(&ip, &mut around)?;
    }
    Err(ParseStop::Other)
}

/// The Ethernet type of what a header carries, and what it carries.
type Carried<'p> = Result<(u16, PacketView<'p>), ParseStop>;

/// The reason why no segment is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ParseStop {
    Udp,
    Unread(UnreadHeader),
    Other,
    LaterFragment,
    FirstFragment,
    Encrypted,
    Cut,
    Malformed,
}

impl From<ParseStop> for CapturedContent {
    fn from(stop: ParseStop) -> Self {
        match stop {
            ParseStop::Udp => Self::Udp,
            ParseStop::Unread(unread) => Self::Unread(unread),
            ParseStop::Other => Self::Other,
            ParseStop::LaterFragment => Self::LaterFragment,
            ParseStop::FirstFragment => Self::FirstFragment,
            ParseStop::Encrypted => Self::Encrypted,
            ParseStop::Cut => Self::Cut,
            ParseStop::Malformed => Self::Malformed,
        }
    }
}
