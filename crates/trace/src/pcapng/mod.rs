//! The newer format (draft-ietf-opsawg-pcapng).

mod interface;
mod options;

use std::ops::Range;

use self::interface::CaptureInterface;
use self::options::iter_options;
use crate::error::CaptureFault;
use crate::input::InputBuffer;
use crate::notes::FileNotes;
use crate::order::ByteOrder;
use crate::record::{MAX_CAPTURED, PacketRecord};

/// Types of blocks. That of a section reads the same in either order.
const SECTION: u32 = 0x0A0D_0D0A;
const INTERFACE: u32 = 1;
const OBSOLETE_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const STATISTICS: u32 = 5;
const ENHANCED_PACKET: u32 = 6;

/// A number that shows the order of a section.
const ORDER_MAGIC: u32 = 0x1A2B_3C4D;

/// Bytes of a block without a body.
const MIN_BLOCK: usize = 12;
/// Bytes at its end: the length once more.
const END: usize = 4;
/// Bytes of a block that is read; others are passed over.
const MAX_BLOCK: usize = 16 << 20;
/// Interfaces of a section.
const MAX_INTERFACES: usize = 4096;

/// A file within a section.
pub(crate) struct PcapNg {
    order: ByteOrder,
    /// Interfaces of this section.
    interfaces: Vec<CaptureInterface>,
    /// Time of the packet before in nanoseconds since 1970, for packets without one.
    at: u64,
}

impl PcapNg {
    /// Returns `None` for a file of another format.
    pub(crate) fn open(
        input: &mut InputBuffer,
        notes: &mut FileNotes,
    ) -> Result<Option<Self>, CaptureFault> {
        if ByteOrder::from_magic(input.buffered_bytes(), SECTION).is_none() {
            return Ok(None);
        }
        if !input.fill_buffer(MIN_BLOCK)? {
            return Err(CaptureFault::NoCapture("it ends within its header"));
        }
        if ByteOrder::from_magic(&input.buffered_bytes()[8..], ORDER_MAGIC).is_none() {
            return Err(CaptureFault::NoCapture(
                "it begins as pcapng does, but its byte order is unknown",
            ));
        }
        notes.format = "pcapng";
        Ok(Some(Self {
            order: ByteOrder::Big,
            interfaces: Vec::new(),
            at: 0,
        }))
    }

    /// Reads up to the next packet. Returns `None` at the end of the file, which may be within a
    /// block.
    pub(crate) fn next_record(
        &mut self,
        input: &mut InputBuffer,
        notes: &mut FileNotes,
    ) -> Result<Option<PacketRecord>, CaptureFault> {
        loop {
            let offset = input.file_offset();
            let Some((kind, body)) = self.next_block(input)? else {
                return Ok(None);
            };
            match kind {
                SECTION => self.begin_section(input.taken_bytes(body))?,
                INTERFACE => self
                    .add_interface(input.taken_bytes(body), notes)
                    .map_err(|reason| damaged_at(offset, reason))?,
                STATISTICS => self.read_statistics(input.taken_bytes(body), notes),
                ENHANCED_PACKET | SIMPLE_PACKET | OBSOLETE_PACKET => {
                    return self
                        .read_packet(kind, input, body, notes)
                        .map(Some)
                        .map_err(|reason| damaged_at(offset, reason));
                }
                _ => {}
            }
        }
    }

    /// Takes the next block. Returns its type, and the place of its body in the input, of which
    /// that of an unknown type has nothing. Returns `None` at the end of the file.
    #[inline]
    fn next_block(
        &mut self,
        input: &mut InputBuffer,
    ) -> Result<Option<(u32, Range<usize>)>, CaptureFault> {
        let offset = input.file_offset();
        if !input.fill_buffer(MIN_BLOCK)? {
            return Ok(None);
        }
        let (kind, length) = self
            .block_head(input.buffered_bytes())
            .ok_or_else(|| damaged_at(offset, "a section without byte order"))?;
        // Some writers leave the padding out of the length.
        let padded = (length as usize).next_multiple_of(4);
        let is_known = matches!(
            kind,
            SECTION | INTERFACE | STATISTICS | ENHANCED_PACKET | SIMPLE_PACKET | OBSOLETE_PACKET
        );
        let is_absurd = padded < MIN_BLOCK || is_known && padded > MAX_BLOCK;
        let (unread, head) = if is_known {
            (0, 8)
        } else {
            (padded.saturating_sub(END), 0)
        };
        if is_absurd || !input.skip_bytes(unread)? || !input.fill_buffer(padded - unread)? {
            // Rather a length that is wrong than a file that ends within so long a block.
            return if is_absurd || padded > MAX_BLOCK {
                Err(damaged_at(offset, format!("a block of {length} bytes")))
            } else {
                Ok(None)
            };
        }
        let block = input.take_bytes(padded - unread);
        let end = block.end - END;
        if self.order.read_u32(input.taken_bytes(end..block.end), 0) != Some(length) {
            return Err(damaged_at(offset, "a block whose two lengths differ"));
        }
        Ok(Some((kind, block.start + head..end)))
    }

    /// Returns type and length of the block that begins here, in the order of its section. `None`
    /// for a section without a known order.
    fn block_head(&mut self, head: &[u8]) -> Option<(u32, u32)> {
        let kind = self.order.read_u32(head, 0)?;
        if kind == SECTION {
            self.order = ByteOrder::from_magic(head.get(8..)?, ORDER_MAGIC)?;
        }
        Some((kind, self.order.read_u32(head, 4)?))
    }

    /// Fails for a version other than 1. Minor versions differ in nothing that is read here.
    fn begin_section(&mut self, body: &[u8]) -> Result<(), CaptureFault> {
        let [major, minor] = [4, 6].map(|at| self.order.read_u16(body, at).unwrap_or(0));
        if major != 1 {
            return Err(CaptureFault::Version {
                format: "pcapng",
                major,
                minor,
            });
        }
        self.interfaces.clear();
        Ok(())
    }

    fn add_interface(&mut self, body: &[u8], notes: &mut FileNotes) -> Result<(), &'static str> {
        if self.interfaces.len() == MAX_INTERFACES {
            return Err("more than 4096 interfaces of a section");
        }
        let interface = CaptureInterface::parse_body(body, self.order).ok_or(TOO_SHORT)?;
        notes.links.insert(interface.link);
        self.interfaces.push(interface);
        Ok(())
    }

    /// Reads the losses of an interface: its own and those of the operating system, since the
    /// capture began.
    fn read_statistics(&mut self, body: &[u8], notes: &mut FileNotes) {
        const BY_INTERFACE: u16 = 5;
        const BY_SYSTEM: u16 = 7;
        let order = self.order;
        let number = order.read_u32(body, 0).unwrap_or(u32::MAX);
        let counts = iter_options(body.get(12..).unwrap_or_default(), order)
            .filter(|(code, _)| matches!(*code, BY_INTERFACE | BY_SYSTEM))
            .filter_map(|(_, value)| order.read_u64(value, 0));
        if let Some(lost) = counts.reduce(u64::saturating_add) {
            self.note_lost(number, notes, |interface| interface.set_lost(lost));
        }
    }

    fn note_lost(
        &mut self,
        number: u32,
        notes: &mut FileNotes,
        change: impl FnOnce(&mut CaptureInterface),
    ) {
        let Some(interface) = self.interfaces.get_mut(number as usize) else {
            return;
        };
        let before = interface.lost_packets();
        change(interface);
        notes.drops = Some(
            notes
                .drops
                .unwrap_or(0)
                .saturating_sub(before)
                .saturating_add(interface.lost_packets()),
        );
    }

    /// Reads a packet of any kind, whose block has its body at this place of the input.
    fn read_packet(
        &mut self,
        kind: u32,
        input: &InputBuffer,
        body: Range<usize>,
        notes: &mut FileNotes,
    ) -> Result<PacketRecord, &'static str> {
        let start = body.start;
        let body = input.taken_bytes(body);
        let head = if kind == SIMPLE_PACKET {
            self.simple_head(body)
        } else {
            packet_head(kind, body, self.order)
        };
        let head = head.ok_or(TOO_SHORT)?;
        let interface = self
            .interfaces
            .get(head.interface as usize)
            .ok_or("a packet of an unknown interface")?;
        if head.captured > MAX_CAPTURED {
            return Err("a packet of more than 256 KiB captured bytes");
        }
        let data = head.length..head.length + head.captured as usize;
        if data.end > body.len() {
            return Err("a packet that is longer than its block");
        }
        match head.ticks {
            Some(ticks) => self.at = interface.ticks_to_nanos(ticks),
            None => notes.packets_without_time += 1,
        }
        let record = PacketRecord {
            range: start + data.start..start + data.end,
            at: self.at,
            link: interface.link,
            interface: head.interface as u16,
            original: head.original.max(head.captured),
        };
        let options = body.get(data.end.next_multiple_of(4)..).unwrap_or_default();
        if kind != SIMPLE_PACKET && (!options.is_empty() || head.lost.is_some()) {
            self.read_losses(options, &head, notes);
        }
        Ok(record)
    }

    /// Reads the head of a packet without interface, time and captured length.
    fn simple_head(&self, body: &[u8]) -> Option<PacketHead> {
        const LENGTH: usize = 4;
        let original = self.order.read_u32(body, 0)?;
        let limit = self
            .interfaces
            .first()
            .map_or(0, |interface| interface.snap_length);
        let limit = if limit == 0 { u32::MAX } else { limit };
        let there = (body.len() - LENGTH) as u32;
        let captured = original.min(limit).min(there);
        Some(PacketHead {
            length: LENGTH,
            interface: 0,
            ticks: None,
            captured,
            original,
            lost: None,
        })
    }

    /// Reads the losses before a packet.
    fn read_losses(&mut self, bytes: &[u8], head: &PacketHead, notes: &mut FileNotes) {
        const LOST: u16 = 4;
        let options = iter_options(bytes, self.order).filter(|(code, _)| *code == LOST);
        let stated = options
            .map(|(_, value)| self.order.read_u64(value, 0))
            .last();
        if let Some(lost) = stated.unwrap_or(head.lost) {
            self.note_lost(head.interface, notes, |interface| interface.add_lost(lost));
        }
    }
}

fn damaged_at(offset: u64, reason: impl Into<String>) -> CaptureFault {
    let reason = reason.into();
    CaptureFault::Damaged { offset, reason }
}

const TOO_SHORT: &str = "a block that is too short for its type";

/// The fields before a packet's bytes.
struct PacketHead {
    /// Bytes of these fields.
    length: usize,
    interface: u32,
    ticks: Option<u64>,
    captured: u32,
    original: u32,
    lost: Option<u64>,
}

/// Reads the head of an enhanced packet block, or of an obsolete one.
fn packet_head(kind: u32, body: &[u8], order: ByteOrder) -> Option<PacketHead> {
    let (interface, lost) = if kind == ENHANCED_PACKET {
        (order.read_u32(body, 0)?, None)
    } else {
        // All ones say that the count is unknown.
        (
            order.read_u16(body, 0)?.into(),
            order
                .read_u16(body, 2)
                .filter(|lost| *lost != u16::MAX)
                .map(u64::from),
        )
    };
    let [high, low] = [order.read_u32(body, 4)?, order.read_u32(body, 8)?].map(u64::from);
    let (captured, original) = (order.read_u32(body, 12)?, order.read_u32(body, 16)?);
    Some(PacketHead {
        length: 20,
        interface,
        ticks: Some(high << 32 | low),
        captured,
        original,
        lost,
    })
}
