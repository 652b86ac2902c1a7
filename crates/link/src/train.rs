use fullpipe_record::Framing;
use fullpipe_units::{ByteCount, SegCount};

/// Packets that travel as one: a single packet, or the super-packet of segmentation offload, which a network card
/// would cut into segments of equal size, only the last of which may be shorter.
///
/// Sizes are those of IP packets: headers included, link layer not.
pub trait Train: Sized {
    /// How many packets this is on the wire; at least one.
    fn segments(&self) -> SegCount;

    /// Size of the first packet, and of every other but perhaps the last, which may be smaller.
    fn segment_bytes(&self) -> ByteCount;

    /// All packets together: more than the packets before the last, and at most `segments` × `segment_bytes`.
    fn ip_bytes(&self) -> ByteCount;

    /// Keeps the first `at` packets and returns the others. `at` is at least one and less than [`Train::segments`].
    #[must_use]
    fn split_off(&mut self, at: SegCount) -> Self;

    /// All packets together, as a path with this framing counts them.
    fn wire_bytes(&self, framing: Framing) -> ByteCount {
        self.ip_bytes() + self.segments().of_size(framing.overhead())
    }
}

/// Cuts `train` behind its first `at` packets; a side without packets is `None`.
pub(crate) fn cut<T: Train>(mut train: T, at: SegCount) -> (Option<T>, Option<T>) {
    if at == SegCount::ZERO {
        return (None, Some(train));
    }
    if at >= train.segments() {
        return (Some(train), None);
    }
    let rest = train.split_off(at);
    (Some(train), Some(rest))
}
