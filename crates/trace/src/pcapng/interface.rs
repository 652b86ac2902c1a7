//! Interfaces of a section, with the unit of their times.

use fullpipe_wire::LinkType;

use super::options::iter_options;
use crate::order::ByteOrder;

const RESOLUTION: u16 = 9;
const OFFSET: u16 = 14;

/// An interface as its packets need it.
pub(super) struct CaptureInterface {
    pub link: LinkType,
    /// Bytes kept of each packet; zero where there is no limit.
    pub snap_length: u32,
    unit: TimeUnit,
    /// Seconds that are added to each time.
    offset: i64,
    /// Losses counted at packets, and the latest count for the interface.
    lost_at_packets: u64,
    lost_in_all: u64,
}

impl CaptureInterface {
    /// Reads the body of an interface description block. `None` if it is too short.
    pub(super) fn parse_body(body: &[u8], order: ByteOrder) -> Option<Self> {
        let (link, snap_length) = (LinkType(order.read_u16(body, 0)?), order.read_u32(body, 4)?);
        let mut interface = Self {
            link,
            snap_length,
            unit: TimeUnit::from_resolution(6),
            offset: 0,
            lost_at_packets: 0,
            lost_in_all: 0,
        };
        for (code, value) in iter_options(body.get(8..).unwrap_or_default(), order) {
            match (code, value) {
                (RESOLUTION, [resolution, ..]) => {
                    interface.unit = TimeUnit::from_resolution(*resolution);
                }
                (OFFSET, value) => {
                    interface.offset = order.read_u64(value, 0).unwrap_or(0).cast_signed();
                }
                _ => {}
            }
        }
        Some(interface)
    }

    /// Returns the nanoseconds since 1970 for a time in the interface's unit, as far as 64 bits
    /// hold them.
    #[inline]
    pub(super) fn ticks_to_nanos(&self, ticks: u64) -> u64 {
        let nanos =
            self.unit.ticks_to_nanos(ticks).cast_signed() + i128::from(self.offset) * 1_000_000_000;
        nanos.clamp(0, u64::MAX.into()) as u64
    }

    /// Packets lost on this interface.
    pub(super) fn lost_packets(&self) -> u64 {
        self.lost_at_packets.max(self.lost_in_all)
    }

    /// Adds losses between two packets.
    pub(super) fn add_lost(&mut self, packets: u64) {
        self.lost_at_packets = self.lost_at_packets.saturating_add(packets);
    }

    /// Sets the losses since the capture began.
    pub(super) fn set_lost(&mut self, packets: u64) {
        self.lost_in_all = packets;
    }
}

/// The unit of times.
#[derive(Clone, Copy)]
enum TimeUnit {
    /// Nanoseconds per unit.
    Many(u64),
    /// Units per nanosecond.
    Fraction(u64),
    /// A power of two of units per second.
    Binary(u32),
}

impl TimeUnit {
    /// Returns the unit for a value of `if_tsresol`: a negative power of ten, or of two with the
    /// highest bit.
    fn from_resolution(resolution: u8) -> Self {
        let power = u32::from(resolution & 0x7F);
        match power {
            _ if resolution & 0x80 != 0 => Self::Binary(power),
            0..=9 => Self::Many(10_u64.pow(9 - power)),
            _ => Self::Fraction(10_u64.checked_pow(power - 9).unwrap_or(u64::MAX)),
        }
    }

    /// Less than 2⁹⁴.
    #[inline]
    fn ticks_to_nanos(self, ticks: u64) -> u128 {
        match self {
            Self::Many(nanos) => u128::from(ticks) * u128::from(nanos),
            Self::Fraction(units) => u128::from(ticks / units),
            Self::Binary(power) => (u128::from(ticks) * 1_000_000_000) >> power,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_of_either_base_give_nanoseconds() {
        let nanos = |resolution, ticks| TimeUnit::from_resolution(resolution).ticks_to_nanos(ticks);
        assert_eq!(nanos(6, 1_500_000), 1_500_000_000);
        assert_eq!(nanos(0, 3), 3_000_000_000);
        assert_eq!(nanos(9, 7), 7);
        assert_eq!(nanos(12, 7_999), 7);
        assert_eq!(nanos(127, u64::MAX - 1), 0);
        assert_eq!(nanos(0x80, 3), 3_000_000_000);
        assert_eq!(nanos(0x94, 3 << 19), 1_500_000_000);
        assert_eq!(nanos(0xBF, 1 << 62), 500_000_000);
        assert_eq!(nanos(0xFF, u64::MAX), 0);
        assert!(nanos(0, u64::MAX) < 1 << 94);
    }
}
