/// The error of a device's bytes that are no packet, or a train that cannot be cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MalformedPacket;
