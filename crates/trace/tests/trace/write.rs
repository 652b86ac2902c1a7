//! Writers of captures, and what is read of them.

use std::io::Cursor;

use fullpipe_trace::{CaptureError, FileNotes, PacketFile};
use fullpipe_wire::LinkType;

pub(crate) const ORDERS: [Order; 2] = [Order::Big, Order::Little];

/// The order of the bytes of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    Big,
    Little,
}

impl Order {
    pub(crate) fn u16(self, number: u16) -> [u8; 2] {
        if self == Self::Big {
            number.to_be_bytes()
        } else {
            number.to_le_bytes()
        }
    }

    pub(crate) fn u32(self, number: u32) -> [u8; 4] {
        if self == Self::Big {
            number.to_be_bytes()
        } else {
            number.to_le_bytes()
        }
    }

    pub(crate) fn u64(self, number: u64) -> [u8; 8] {
        if self == Self::Big {
            number.to_be_bytes()
        } else {
            number.to_le_bytes()
        }
    }
}

/// A packet with its time in nanoseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Packet {
    pub at: u64,
    pub bytes: Vec<u8>,
    pub original: u32,
}

/// Packets of all lengths up to `count`, some of them cut by a snap length, with times in whole
/// milliseconds.
pub(crate) fn packets(count: u64) -> Vec<Packet> {
    (0..count)
        .map(|number| {
            let bytes: Vec<u8> = (0..number).map(|at| (at * 7 + number) as u8).collect();
            let original = bytes.len() as u32 + if number % 3 == 0 { 1000 } else { 0 };
            Packet {
                at: 1_700_000_000_000_000_000 + number * 37_000_000,
                bytes,
                original,
            }
        })
        .collect()
}

/// A file of the classic format, with this magic number.
pub(crate) fn pcap(order: Order, magic: u32, packets: &[Packet]) -> Vec<u8> {
    let mut file = pcap_header(order, magic, 2, 1);
    for packet in packets {
        let fraction = packet.at % 1_000_000_000;
        let fraction = if magic == 0xA1B2_3C4D {
            fraction
        } else {
            fraction / 1_000
        };
        let seconds = (packet.at / 1_000_000_000) as u32;
        for field in [
            seconds,
            fraction as u32,
            packet.bytes.len() as u32,
            packet.original,
        ] {
            file.extend(order.u32(field));
        }
        if magic == 0xA1B2_CD34 {
            file.extend([0, 0, 0, 1, 8, 0, 4, 0]);
        }
        file.extend(&packet.bytes);
    }
    file
}

pub(crate) fn pcap_header(order: Order, magic: u32, major: u16, link: u32) -> Vec<u8> {
    let mut file = order.u32(magic).to_vec();
    file.extend(order.u16(major));
    file.extend(order.u16(4));
    file.extend([0; 8]);
    file.extend(order.u32(262_144));
    file.extend(order.u32(link));
    file
}

/// A file of the newer format, block by block.
#[derive(Debug, Clone)]
pub(crate) struct PcapNg {
    order: Order,
    pub bytes: Vec<u8>,
}

impl PcapNg {
    pub(crate) fn new(order: Order) -> Self {
        Self {
            order,
            bytes: Vec::new(),
        }
        .section(order)
    }

    /// Begins a section of this order.
    pub(crate) fn section(mut self, order: Order) -> Self {
        self.order = order;
        let version = [order.u16(1), order.u16(0)].concat();
        self.block(
            0x0A0D_0D0A,
            &[&order.u32(0x1A2B_3C4D), &version, &[0xFF; 8]],
        )
    }

    pub(crate) fn block(mut self, kind: u32, body: &[&[u8]]) -> Self {
        let body = body.concat();
        let length = 12 + body.len().next_multiple_of(4) as u32;
        self.bytes.extend(self.order.u32(kind));
        self.bytes.extend(self.order.u32(length));
        self.bytes.extend(&body);
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
        self.bytes.extend(self.order.u32(length));
        self
    }

    /// Describes an interface of Ethernet.
    pub(crate) fn interface(self, snap_length: u32, options: &[(u16, &[u8])]) -> Self {
        let (link, snap_length) = (self.order.u16(1), self.order.u32(snap_length));
        let options = self.options(options);
        self.block(1, &[&link, &[0, 0], &snap_length, &options])
    }

    /// Adds a packet with its time in the interface's unit.
    pub(crate) fn packet(
        self,
        interface: u32,
        ticks: u64,
        packet: &Packet,
        options: &[(u16, &[u8])],
    ) -> Self {
        let interface = self.order.u32(interface);
        self.packet_of(6, &interface, ticks, packet, options)
    }

    /// Adds a packet as old programs did.
    pub(crate) fn obsolete(self, interface: u16, lost: u16, ticks: u64, packet: &Packet) -> Self {
        let head = [self.order.u16(interface), self.order.u16(lost)].concat();
        self.packet_of(2, &head, ticks, packet, &[])
    }

    fn packet_of(
        self,
        kind: u32,
        head: &[u8],
        ticks: u64,
        packet: &Packet,
        options: &[(u16, &[u8])],
    ) -> Self {
        let fields = [
            (ticks >> 32) as u32,
            ticks as u32,
            packet.bytes.len() as u32,
            packet.original,
        ];
        let fields = fields.map(|field| self.order.u32(field)).concat();
        let mut bytes = packet.bytes.clone();
        bytes.resize(bytes.len().next_multiple_of(4), 0xAA);
        let options = self.options(options);
        self.block(kind, &[head, &fields, &bytes, &options])
    }

    pub(crate) fn simple(self, packet: &Packet) -> Self {
        let original = self.order.u32(packet.original);
        self.block(3, &[&original, &packet.bytes])
    }

    pub(crate) fn statistics(self, interface: u32, options: &[(u16, &[u8])]) -> Self {
        let (interface, options) = (self.order.u32(interface), self.options(options));
        self.block(5, &[&interface, &[0; 8], &options])
    }

    pub(crate) fn packets(self, packets: &[Packet], ticks: impl Fn(u64) -> u64) -> Self {
        packets.iter().fold(self, |file, packet| {
            file.packet(0, ticks(packet.at), packet, &[])
        })
    }

    fn options(&self, options: &[(u16, &[u8])]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (code, value) in options {
            bytes.extend(self.order.u16(*code));
            bytes.extend(self.order.u16(value.len() as u16));
            bytes.extend(*value);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
        }
        if !options.is_empty() {
            bytes.extend([0; 4]);
        }
        bytes
    }
}

/// All that is read of a file.
#[derive(Debug)]
pub(crate) struct Read {
    pub packets: Vec<Packet>,
    pub links: Vec<LinkType>,
    pub notes: FileNotes,
    /// The error that ended reading.
    pub error: Option<CaptureError>,
}

/// Reads all of a file. Fails only if it cannot be opened.
pub(crate) fn try_read(bytes: Vec<u8>) -> Result<Read, CaptureError> {
    let mut file = PacketFile::new(Cursor::new(bytes), "a.pcap")?;
    let (mut packets, mut links) = (Vec::new(), Vec::new());
    let error = loop {
        match file.next_packet() {
            Ok(Some(packet)) => {
                let (at, original) = (packet.at.as_nanos(), packet.original);
                packets.push(Packet {
                    at,
                    bytes: packet.bytes.to_vec(),
                    original,
                });
                links.push(packet.link);
            }
            Ok(None) => break None,
            Err(error) => break Some(error),
        }
    };
    assert_eq!(file.next_packet().unwrap(), None, "what ended stays so");
    assert_eq!(file.file_notes().packets, packets.len() as u64);
    Ok(Read {
        packets,
        links,
        notes: file.file_notes().clone(),
        error,
    })
}

/// Reads all of a file that is in order.
pub(crate) fn read(bytes: Vec<u8>) -> Read {
    let read = try_read(bytes).unwrap();
    assert!(read.error.is_none(), "{:?}", read.error);
    read
}

/// Returns the sentence of an error with its causes.
pub(crate) fn sentence(error: &CaptureError) -> String {
    let causes = std::iter::successors(std::error::Error::source(error), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}
