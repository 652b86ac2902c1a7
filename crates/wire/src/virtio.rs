use crate::malformed::MalformedPacket;

/// Bytes of the header before every packet.
pub const VIRTIO_HEADER: usize = 10;

/// `struct virtio_net_hdr` (virtio 1.2, 5.1.6.1), in the byte order of the machine as TUN and
/// packet sockets have it.
///
/// Offsets count from where the link layer's header begins, which TUN does not have.
#[derive(Clone, Copy, Default)]
pub(crate) struct VirtioHeader {
    pub flags: u8,
    pub gso_type: u8,
    /// Bytes of all headers: a hint.
    pub header: u16,
    /// Payload of each segment but perhaps the last.
    pub gso_size: u16,
    pub checksum_start: u16,
    pub checksum_offset: u16,
}

/// The checksum is to be finished: `checksum_start` and `checksum_offset` say which.
pub(crate) const NEEDS_CHECKSUM: u8 = 1;

pub(crate) const GSO_NONE: u8 = 0;
pub(crate) const GSO_TCP_V4: u8 = 1;
pub(crate) const GSO_TCP_V6: u8 = 4;
pub(crate) const GSO_UDP: u8 = 5;
/// Added to the type: the first segment says CWR.
pub(crate) const GSO_ECN: u8 = 0x80;

impl VirtioHeader {
    pub(crate) fn parse_front(bytes: &[u8]) -> Result<(Self, &[u8]), MalformedPacket> {
        let (header, rest) = bytes
            .split_first_chunk::<VIRTIO_HEADER>()
            .ok_or(MalformedPacket)?;
        let [length, gso_size, checksum_start, checksum_offset] =
            [2, 4, 6, 8].map(|at| u16::from_ne_bytes([header[at], header[at + 1]]));
        let parsed = Self {
            flags: header[0],
            gso_type: header[1],
            header: length,
            gso_size,
            checksum_start,
            checksum_offset,
        };
        Ok((parsed, rest))
    }

    pub(crate) fn emit(&self, out: &mut Vec<u8>) {
        out.extend([self.flags, self.gso_type]);
        for word in [
            self.header,
            self.gso_size,
            self.checksum_start,
            self.checksum_offset,
        ] {
            out.extend(word.to_ne_bytes());
        }
    }
}
