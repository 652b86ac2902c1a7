mod edit;
mod reply;

use std::ops::Range;
use std::sync::Arc;

use fullpipe_units::{ByteCount, SegCount};

use crate::checksum::{ChecksumSum, pseudo_header};
use crate::headers::{IpVersion, PacketHeaders, TCP, UDP, read_u16};
use crate::malformed::MalformedPacket;
use crate::virtio::{
    GSO_ECN, GSO_NONE, GSO_TCP_V4, GSO_TCP_V6, GSO_UDP, NEEDS_CHECKSUM, VirtioHeader,
};

/// One IP packet, or a train of TCP segments or UDP datagrams behind one header.
///
/// The parts of a train share its payload; cutting copies headers alone.
#[derive(Debug, Clone)]
pub struct IpPacketTrain {
    /// From the IP header to the payload; of a packet whose headers are not understood, nothing.
    head: Vec<u8>,
    headers: Option<PacketHeaders>,
    payload: Arc<[u8]>,
    range: Range<usize>,
    /// True if the device is to finish the transport's checksum.
    unfinished: bool,
    /// The cutting of this packet into segments; `None` for a single packet.
    train: Option<TrainHeader>,
    /// Of a packet whose headers are not understood: what the device said of its checksum, from its
    /// first byte.
    opaque_checksum: Option<(u16, u16)>,
}

#[derive(Debug, Clone, Copy)]
struct TrainHeader {
    gso_type: u8,
    /// Payload of each segment but perhaps the last; never zero.
    size: usize,
}

const FIN: u8 = 0x01;
const PSH: u8 = 0x08;
const CWR: u8 = 0x80;

impl IpPacketTrain {
    /// Reads what a device gave: virtio's header, a link-layer header of `link` bytes, which is
    /// dropped, and the packet.
    ///
    /// # Errors
    /// [`MalformedPacket`] where the bytes end too early, or are a train of something other than
    /// TCP and UDP.
    pub fn parse(bytes: &[u8], link: usize) -> Result<Self, MalformedPacket> {
        let (virtio, frame) = VirtioHeader::parse_front(bytes)?;
        let packet = frame
            .get(link..)
            .filter(|packet| !packet.is_empty())
            .ok_or(MalformedPacket)?;
        // Short Ethernet frames are padded; the packet says how long it is.
        let single = virtio.gso_type == GSO_NONE;
        let packet = if single {
            &packet[..ip_length(packet).unwrap_or(packet.len())]
        } else {
            packet
        };
        let unfinished = virtio.flags & NEEDS_CHECKSUM != 0;
        let mut packet = Self {
            unfinished,
            ..Self::from_ip_packet(packet)
        };
        packet.train = read_train(virtio, packet.headers.as_ref())?;
        if unfinished && packet.headers.is_none() {
            let start = virtio
                .checksum_start
                .checked_sub(link as u16)
                .ok_or(MalformedPacket)?;
            let end = usize::from(start) + usize::from(virtio.checksum_offset) + 2;
            if end > packet.payload.len() {
                return Err(MalformedPacket);
            }
            packet.opaque_checksum = Some((start, virtio.checksum_offset));
        }
        // A train as long as one segment is that segment.
        packet.settle_train();
        Ok(packet)
    }

    /// A finished IP packet.
    fn from_ip_packet(packet: &[u8]) -> Self {
        let headers = PacketHeaders::parse_packet(packet);
        let (head, payload) = packet.split_at(headers.map_or(0, |headers| headers.payload));
        Self {
            head: head.to_vec(),
            headers,
            range: 0..payload.len(),
            payload: payload.into(),
            unfinished: false,
            train: None,
            opaque_checksum: None,
        }
    }

    /// Returns the bytes for the device, in two parts: virtio's header, the link layer's header
    /// `link` and the packet's headers, which replace what is in `front`; and the payload.
    pub fn emit<'p>(&'p self, link: &[u8], front: &mut Vec<u8>) -> &'p [u8] {
        front.clear();
        self.virtio_header(link.len()).emit(front);
        front.extend_from_slice(link);
        front.extend_from_slice(&self.head);
        self.payload_bytes()
    }

    /// Returns the number of packets on a wire.
    pub fn segment_count(&self) -> SegCount {
        SegCount::new(
            self.train
                .map_or(1, |train| self.range.len().div_ceil(train.size).max(1)) as u64,
        )
    }

    /// Size of the first segment as an IP packet.
    pub fn segment_bytes(&self) -> ByteCount {
        let payload = self
            .train
            .map_or(self.range.len(), |train| train.size.min(self.range.len()));
        ByteCount::new((self.head.len() + payload) as u64)
    }

    /// All segments together, each as an IP packet with headers of its own.
    pub fn ip_bytes(&self) -> ByteCount {
        self.segment_count()
            .of_size(ByteCount::new(self.head.len() as u64))
            + ByteCount::new(self.range.len() as u64)
    }

    /// Keeps the first `at` segments and returns the others, as the kernel cuts them
    /// (`tcp_gso_segment`, `__udp_gso_segment`): CWR stays with the first segment, FIN and PSH go
    /// with the last.
    ///
    /// # Panics
    /// If that leaves nothing on one side.
    #[must_use]
    pub fn split_off(&mut self, at: SegCount) -> Self {
        assert!(
            at > SegCount::ZERO && at < self.segment_count(),
            "a train of {:?} cut at {at:?}",
            self.segment_count()
        );
        let size = self.train.map_or(0, |train| train.size);
        let cut = self.range.start + at.get() as usize * size;
        let mut rest = self.clone();
        rest.range.start = cut;
        self.range.end = cut;
        rest.advance_headers(at.get(), cut - self.range.start);
        self.clear_tcp_flags(FIN | PSH);
        rest.clear_tcp_flags(CWR);
        for part in [&mut *self, &mut rest] {
            part.settle_train();
            part.settle_lengths();
        }
        rest
    }

    /// Finishes the checksum of the transport, as the device would. A train must be cut first: it
    /// has none of its own.
    pub fn complete_checksum(&mut self) {
        let (true, None, Some(headers)) = (self.unfinished, self.train, self.headers) else {
            return;
        };
        self.unfinished = false;
        let sum = ChecksumSum::default()
            .add_bytes(&self.head[headers.transport..])
            .add_bytes(&self.payload[self.range.clone()]);
        // Zero means "no checksum" to UDP, which writes the other zero of one's complement instead
        // (RFC 768).
        let checksum = match sum.to_checksum() {
            0 if headers.protocol == UDP => 0xFFFF,
            checksum => checksum,
        };
        let field = headers.transport + headers.checksum_offset();
        self.write_word(field, checksum);
    }

    /// Makes a train one long packet, as a capture of a host holds it, and finishes its checksum.
    pub fn join_segments(&mut self) {
        self.train = None;
        self.complete_checksum();
    }

    /// The payload of the packet; all of it, where the headers are not understood.
    pub fn payload_bytes(&self) -> &[u8] {
        &self.payload[self.range.clone()]
    }

    fn virtio_header(&self, link: usize) -> VirtioHeader {
        let mut virtio = VirtioHeader {
            header: (link + self.head.len()) as u16,
            ..VirtioHeader::default()
        };
        if let Some(train) = self.train {
            virtio.gso_type = train.gso_type;
            virtio.gso_size = train.size as u16;
        }
        let checksum = match self.headers {
            Some(headers) => self
                .unfinished
                .then(|| (headers.transport as u16, headers.checksum_offset() as u16)),
            None => self.opaque_checksum,
        };
        if let Some((start, offset)) = checksum {
            virtio.flags = NEEDS_CHECKSUM;
            virtio.checksum_start = start + link as u16;
            virtio.checksum_offset = offset;
        }
        virtio
    }

    /// Makes the headers those of a segment that comes `segments` and `bytes` of payload later.
    fn advance_headers(&mut self, segments: u64, bytes: usize) {
        let Some(headers) = self.headers else { return };
        if headers.version == IpVersion::V4 {
            let identification = self.read_word(4);
            self.write_word(4, identification.wrapping_add(segments as u16));
        }
        if headers.protocol == TCP {
            let field = headers.transport + 4..headers.transport + 8;
            let mut sequence = [0; 4];
            sequence.copy_from_slice(&self.head[field.clone()]);
            let sequence = u32::from_be_bytes(sequence).wrapping_add(bytes as u32);
            self.head[field].copy_from_slice(&sequence.to_be_bytes());
        }
    }

    fn clear_tcp_flags(&mut self, flags: u8) {
        if let Some(headers) = self.headers.filter(|headers| headers.protocol == TCP) {
            self.head[headers.transport + 13] &= !flags;
        }
    }

    /// One segment is no train; of the parts of one, only that with CWR needs the care that ECN
    /// asks for.
    fn settle_train(&mut self) {
        if self.segment_count() <= SegCount::new(1) {
            self.train = None;
        }
        let cwr = self
            .headers
            .is_some_and(|h| h.protocol == TCP && self.head[h.transport + 13] & CWR != 0);
        if let Some(train) = &mut self.train
            && !cwr
        {
            train.gso_type &= !GSO_ECN;
        }
    }

    /// Lengths of IP and UDP, and the sums that depend on them.
    fn settle_lengths(&mut self) {
        let Some(headers) = self.headers else { return };
        let transport = self.head.len() - headers.transport + self.range.len();
        match headers.version {
            IpVersion::V4 => {
                self.write_word(2, (headers.transport + transport) as u16);
                self.settle_ip_checksum();
            }
            IpVersion::V6 => self.write_word(4, transport as u16),
        }
        if headers.protocol == UDP {
            self.write_word(headers.transport + 4, transport as u16);
        }
        self.settle_transport_checksum();
    }

    fn settle_ip_checksum(&mut self) {
        let Some(headers) = self.headers else { return };
        self.write_word(10, 0);
        let checksum = ChecksumSum::default()
            .add_bytes(&self.head[..headers.transport])
            .to_checksum();
        self.write_word(10, checksum);
    }

    /// Leaves the transport's checksum to the device, whether it was finished or not.
    fn settle_transport_checksum(&mut self) {
        let Some(headers) = self.headers else { return };
        self.unfinished = true;
        let transport = self.head.len() - headers.transport + self.range.len();
        let pseudo = pseudo_header(&self.head, &headers, transport).folded_sum();
        self.write_word(headers.transport + headers.checksum_offset(), pseudo);
    }

    fn read_word(&self, at: usize) -> u16 {
        read_u16(&self.head, at)
    }

    fn write_word(&mut self, at: usize, word: u16) {
        self.head[at..at + 2].copy_from_slice(&word.to_be_bytes());
    }
}

/// The train that a device announces, if it is of the kind that its headers show.
fn read_train(
    virtio: VirtioHeader,
    headers: Option<&PacketHeaders>,
) -> Result<Option<TrainHeader>, MalformedPacket> {
    let kind = virtio.gso_type & !GSO_ECN;
    if kind == GSO_NONE {
        return Ok(None);
    }
    let headers = headers.ok_or(MalformedPacket)?;
    let fits = match kind {
        GSO_TCP_V4 => headers.protocol == TCP && headers.version == IpVersion::V4,
        GSO_TCP_V6 => headers.protocol == TCP && headers.version == IpVersion::V6,
        GSO_UDP => headers.protocol == UDP,
        _ => false,
    };
    let size = usize::from(virtio.gso_size);
    if !fits || size == 0 {
        return Err(MalformedPacket);
    }
    Ok(Some(TrainHeader {
        gso_type: virtio.gso_type,
        size,
    }))
}

/// Returns the packet's length by its IP header, if the packet is at least so long.
fn ip_length(packet: &[u8]) -> Option<usize> {
    let (at, fixed) = match packet.first()? >> 4 {
        4 => (2, 0),
        6 => (4, 40),
        _ => return None,
    };
    let length = fixed + usize::from(u16::from_be_bytes(*packet.get(at..)?.first_chunk()?));
    (length >= 20 && length <= packet.len()).then_some(length)
}
