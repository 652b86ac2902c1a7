//! Headers that may stand around TCP and are not understood.

use std::fmt;

/// A header that a packet of IP may follow, and that is not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum UnreadHeader {
    /// A type of Ethernet or of GRE.
    EtherType(u16),
    /// A protocol of IP that carries packets or frames.
    Protocol(u8),
    /// A port of UDP that a tunnel uses.
    Port(u16),
}

impl UnreadHeader {
    /// Returns the name of the header; `None` for one that is not known.
    fn name(self) -> Option<&'static str> {
        Some(match self {
            Self::EtherType(0x22F3) => "TRILL",
            Self::EtherType(0x880B) => "PPP in GRE",
            Self::EtherType(0x8903) => "FabricPath",
            Self::EtherType(0x894F) => "NSH",
            Self::EtherType(0xD00D) => "Juniper's mirror",
            Self::Protocol(55) => "minimal encapsulation",
            Self::Protocol(94) => "IPIP",
            Self::Protocol(97) => "EtherIP",
            Self::Protocol(98) => "ENCAP",
            Self::Protocol(108) => "IPComp",
            Self::Protocol(115) => "L2TPv3",
            Self::Protocol(137) => "MPLS in IP",
            Self::Port(1701) => "L2TP",
            Self::Port(3544) => "Teredo",
            Self::Port(4341) => "LISP",
            Self::Port(4790) => "VXLAN-GPE",
            Self::Port(6635) => "MPLS in UDP",
            _ => return None,
        })
    }
}

impl fmt::Display for UnreadHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = match self {
            Self::EtherType(kind) => format!("Ethernet type {kind:#06x}"),
            Self::Protocol(protocol) => format!("IP protocol {protocol}"),
            Self::Port(port) => format!("UDP port {port}"),
        };
        match self.name() {
            Some(name) => write!(f, "{name} ({number})"),
            None => f.write_str(&number),
        }
    }
}
