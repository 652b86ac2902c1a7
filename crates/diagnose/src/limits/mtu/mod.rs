//! Packets of the wrong size: too large for a link on the way, or needlessly small.

pub(crate) mod black_hole;
pub(crate) mod mss_clamped;

use fullpipe_record::{At, MtuVerdict, Remedy, Scope};
use fullpipe_units::{BitRate, ByteCount};

use crate::limits::LimitFacts;
use crate::remedies::advice::RemedyAdvice;
use crate::remedies::manual_remedy::ManualRemedy;
use crate::signals::sender::SenderView;
use crate::signals::syn_quotes;
use crate::text::{self, Row, size_text};

/// The figures of packets of the wrong size.
pub(crate) struct PacketSize {
    verdict: MtuVerdict,
    rate: BitRate,
    mss: Option<ByteCount>,
    /// Payload that the devices of both ends would let pass.
    possible: Option<ByteCount>,
    /// Part of the path that has the device.
    place: String,
    shown: Vec<Row>,
}

impl PacketSize {
    pub(crate) fn from_figures(verdict: MtuVerdict, figures: &SenderView) -> Self {
        Self {
            verdict,
            rate: figures.rate,
            mss: figures.mss,
            possible: mss_clamped::possible_mss(figures),
            place: syn_quotes::device_place(figures.evidence),
            shown: text::trend_rows(figures),
        }
    }
}

impl LimitFacts for PacketSize {
    fn sentence(&self) -> String {
        let mss = size_text(self.mss);
        match self.verdict {
            MtuVerdict::BlackHole => format!(
                "Packets with {mss} of data vanish on the path without an ICMP error: small packets pass, full ones do \
                 not."
            ),
            MtuVerdict::MssClamped => format!(
                "A device {} lowers the size of segments: they carry only {mss} of data where {} would fit; headers \
                 take the rest of the path, and {} of data arrives.",
                self.place,
                size_text(self.possible),
                self.rate,
            ),
        }
    }

    fn shown_rows(&self) -> Vec<Row> {
        self.shown.clone()
    }

    fn other_end_would_show(&self) -> Option<&'static str> {
        Some("the size of the packets that reached it")
    }

    fn setting_remedies(&self, advice: &RemedyAdvice) -> Vec<Remedy> {
        match self.verdict {
            MtuVerdict::BlackHole => vec![black_hole::probe_the_mtu(advice)],
            MtuVerdict::MssClamped => Vec::new(),
        }
    }

    fn manual_remedies(&self) -> &'static [ManualRemedy] {
        match self.verdict {
            MtuVerdict::BlackHole => &[
                ManualRemedy {
                    id: "let-too-big-pass",
                    scope: Scope::Path,
                    at: None,
                    why: "A narrow link drops full packets and its ICMP error is filtered: let ICMP \"too big\" pass, \
                          and the sender learns the size at once.",
                },
                ManualRemedy {
                    id: "lower-the-mtu",
                    scope: Scope::Host,
                    at: Some(At::Sender),
                    why: "An MTU of the device, or of the route, that the narrow link lets pass: with it no packet is \
                          too large.",
                },
            ],
            MtuVerdict::MssClamped => &[ManualRemedy {
                id: "larger-segments",
                scope: Scope::Path,
                at: None,
                why: "A device between the ends lowers the largest segment in the handshake: its clamp should be the \
                      MTU of its tunnel less the headers, no lower.",
            }],
        }
    }
}
