use fullpipe_link::Train;
use fullpipe_units::{ByteCount, SegCount};
use fullpipe_wire::Malformed;

/// A packet or a train of a host, as the link carries it.
pub(crate) struct Packet(fullpipe_wire::Packet);

impl Packet {
    /// Reads what a TUN device gave.
    pub(crate) fn parse(frame: &[u8]) -> Result<Self, Malformed> {
        fullpipe_wire::Packet::parse(frame, 0).map(Self)
    }

    /// What the device is to be given: headers, which replace what is in `front`, and payload.
    pub(crate) fn emit<'p>(&'p self, front: &mut Vec<u8>) -> &'p [u8] {
        self.0.emit(&[], front)
    }

    /// In trains of at most `longest`, in order.
    pub(crate) fn pieces(self, longest: SegCount) -> impl Iterator<Item = Self> {
        let mut rest = Some(self);
        std::iter::from_fn(move || {
            let mut first = rest.take()?;
            if first.segments() > longest {
                rest = Some(first.split_off(longest));
            }
            Some(first)
        })
    }
}

impl Train for Packet {
    fn segments(&self) -> SegCount {
        self.0.segments()
    }

    fn segment_bytes(&self) -> ByteCount {
        self.0.segment_bytes()
    }

    fn ip_bytes(&self) -> ByteCount {
        self.0.ip_bytes()
    }

    fn split_off(&mut self, at: SegCount) -> Self {
        Self(self.0.split_off(at))
    }
}
