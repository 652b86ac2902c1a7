//! Counts of a capture's packets.

use fullpipe_wire::Captured;

/// Packets of a capture by what they are.
#[derive(Debug, Default)]
pub(crate) struct Others {
    /// TCP segments.
    pub(crate) segments: u64,
    pub(crate) fragments: u64,
    pub(crate) cut: u64,
    pub(crate) encrypted: u64,
    pub(crate) malformed: u64,
    /// TCP segments of whose options the snap length cut some off.
    pub(crate) cut_options: u64,
}

impl Others {
    /// Counts a packet.
    #[inline]
    pub(crate) fn count(&mut self, captured: &Captured) {
        match captured {
            Captured::Tcp(segment) => {
                self.segments += 1;
                self.cut_options += u64::from(segment.options.cut);
            }
            Captured::FirstFragment | Captured::LaterFragment => self.fragments += 1,
            Captured::Cut => self.cut += 1,
            Captured::Encrypted => self.encrypted += 1,
            Captured::Malformed => self.malformed += 1,
            Captured::Udp | Captured::Other => {}
        }
    }

    /// Adds what another thread counted.
    pub(crate) fn join(&mut self, other: &Self) {
        let &Self { segments, fragments, cut, encrypted, malformed, cut_options } = other;
        self.segments += segments;
        self.fragments += fragments;
        self.cut += cut;
        self.encrypted += encrypted;
        self.malformed += malformed;
        self.cut_options += cut_options;
    }
}
