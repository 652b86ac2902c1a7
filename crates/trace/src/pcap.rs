//! The classic format, `pcap-savefile(5)`.

use fullpipe_wire::LinkType;

use crate::error::CaptureFault;
use crate::input::InputBuffer;
use crate::notes::FileNotes;
use crate::order::ByteOrder;
use crate::record::{MAX_CAPTURED, PacketRecord};

/// The first four bytes of a file, with the nanoseconds of a unit of time, the bytes of a record's
/// head, and the name: times in microseconds or nanoseconds, and records with a longer head, as
/// Alexey Kuznetsov's patch of libpcap wrote them.
const FORMATS: [(u32, (u64, usize, &str)); 3] = [
    (0xA1B2_C3D4, (1_000, 16, "pcap, microseconds")),
    (0xA1B2_3C4D, (1, 16, "pcap, nanoseconds")),
    (0xA1B2_CD34, (1_000, 24, "pcap (modified), microseconds")),
];

const FILE_HEAD: usize = 24;
/// Versions that differ in nothing but the order of the two lengths of a record.
const VERSIONS: std::ops::RangeInclusive<(u16, u16)> = (2, 0)..=(2, 4);
/// The first of them that has the captured length first; before it the lengths are swapped, in some
/// files.
const CAPTURED_FIRST: (u16, u16) = (2, 4);

const SECOND: u64 = 1_000_000_000;

/// A file behind its header.
pub(crate) struct PcapReader {
    order: ByteOrder,
    nanos_per_unit: u64,
    head: usize,
    link: LinkType,
    /// True if the lengths of a record may be swapped: the captured one is the smaller.
    may_be_swapped: bool,
}

impl PcapReader {
    /// Reads the file's header. Returns `None` for a file of another format.
    pub(crate) fn open(
        input: &mut InputBuffer,
        notes: &mut FileNotes,
    ) -> Result<Option<Self>, CaptureFault> {
        let known = FORMATS.into_iter().find_map(|(magic, format)| {
            Some((
                ByteOrder::from_magic(input.buffered_bytes(), magic)?,
                format,
            ))
        });
        let Some((order, (nanos_per_unit, head, format))) = known else {
            return Ok(None);
        };
        if !input.fill_buffer(FILE_HEAD)? {
            return Err(CaptureFault::NoCapture("it ends within its header"));
        }
        let range = input.take_bytes(FILE_HEAD);
        let header = input.taken_bytes(range);
        let [major, minor] = [4, 6].map(|at| order.read_u16(header, at).unwrap_or(0));
        if !VERSIONS.contains(&(major, minor)) {
            return Err(CaptureFault::Version {
                format: "pcap",
                major,
                minor,
            });
        }
        // The upper half of the field says whether frames end with a checksum, which no length in a
        // packet counts.
        let link = LinkType(order.read_u32(header, 20).unwrap_or(0) as u16);
        notes.format = format;
        notes.links.insert(link);
        Ok(Some(Self {
            order,
            nanos_per_unit,
            head,
            link,
            may_be_swapped: (major, minor) < CAPTURED_FIRST,
        }))
    }

    /// Reads the next record. Returns `None` at the end of the file, which may be within a record.
    #[inline]
    pub(crate) fn next_record(
        &self,
        input: &mut InputBuffer,
        notes: &mut FileNotes,
    ) -> Result<Option<PacketRecord>, CaptureFault> {
        if !input.fill_buffer(self.head)? {
            return Ok(None);
        }
        let Some(numbers) = input.buffered_bytes().first_chunk() else {
            return Ok(None);
        };
        let [seconds, fraction, captured, original] = self.order.read_four(numbers);
        let longer = original.max(captured);
        let captured = if self.may_be_swapped {
            original.min(captured)
        } else {
            captured
        };
        if captured > MAX_CAPTURED {
            let reason = format!("a packet of {captured} captured bytes");
            return Err(CaptureFault::Damaged {
                offset: input.file_offset(),
                reason,
            });
        }
        let length = self.head + captured as usize;
        if !input.fill_buffer(length)? {
            return Ok(None);
        }
        let record = input.take_bytes(length);
        Ok(Some(PacketRecord {
            range: record.start + self.head..record.end,
            at: u64::from(seconds) * SECOND + self.fraction_nanos(fraction, notes),
            link: self.link,
            interface: 0,
            original: longer,
        }))
    }

    #[inline]
    fn fraction_nanos(&self, fraction: u32, notes: &mut FileNotes) -> u64 {
        let nanos = u64::from(fraction) * self.nanos_per_unit;
        if nanos < SECOND {
            return nanos;
        }
        notes.clamped_fractions += 1;
        SECOND - self.nanos_per_unit
    }
}
