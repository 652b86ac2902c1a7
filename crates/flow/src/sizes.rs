//! The size of full segments, as the packets show it where no SYN does.

/// The usual size on an Ethernet, with timestamps.
const USUAL: u32 = 1448;

/// Sizes that segments have on an Ethernet: IPv4 and IPv6, with timestamps and without. A card or
/// the kernel joins several of them to one packet.
const OF_ETHERNET: [u32; 4] = [USUAL, 1460, 1428, 1440];

/// Least size of a segment that every path carries (RFC 9293, 3.7.1), less timestamps; and the
/// largest of an Ethernet with jumbo frames. A longer packet holds several segments.
const POSSIBLE: std::ops::RangeInclusive<u32> = 524..=9176;

/// Packets from which a smaller size is that of a segment, too, if none is larger: a path may have
/// lowered it as far as the ends allow (`tcp_min_snd_mss` is 48).
const MANY: u32 = 1000;

/// Sizes that are counted at a time.
const COUNTED: usize = 4;

/// Packets after each of which the size is estimated anew, and of the later ones every so many.
const FIRST: u32 = 64;
const LATER: u32 = 64;

/// The most frequent sizes of packets that do not end what a program wrote.
#[derive(Debug, Clone, Default)]
pub(crate) struct SegmentSizes {
    /// Each with its count, which is short by the packets of other sizes (Misra and Gries, 1982).
    counted: [(u32, u32); COUNTED],
    packets: u32,
    largest: u32,
    segment: u32,
}

impl SegmentSizes {
    /// Counts a packet with so many bytes of data. A program's data ended with it if `is_pushed`.
    pub(crate) fn add_packet(&mut self, bytes: u32, is_pushed: bool) {
        self.largest = self.largest.max(bytes);
        self.packets = self.packets.saturating_add(1);
        if !is_pushed {
            self.count_size(bytes);
        }
        if self.packets < FIRST || self.packets.is_multiple_of(LATER) {
            self.segment = self.segment_estimate();
        }
    }

    fn count_size(&mut self, bytes: u32) {
        let known = self
            .counted
            .iter_mut()
            .find(|(size, count)| *count > 0 && *size == bytes);
        if let Some((_, count)) = known {
            *count = count.saturating_add(1);
        } else if let Some(free) = self.counted.iter_mut().find(|(_, count)| *count == 0) {
            *free = (bytes, 1);
        } else {
            self.counted.iter_mut().for_each(|(_, count)| *count -= 1);
        }
    }

    fn segment_estimate(&self) -> u32 {
        let most = self
            .counted
            .iter()
            .fold(0, |most, (_, count)| most.max(*count));
        let frequent = self
            .counted
            .iter()
            .filter(|(_, count)| most > 0 && *count * 4 >= most);
        // What several sizes are multiples of is the segment. Without any, all that is known is
        // that none is larger.
        let common = frequent.map(|(size, _)| *size).reduce(|one, other| {
            let divisor = greatest_common_divisor(one, other);
            if POSSIBLE.contains(&divisor) {
                divisor
            } else {
                one
            }
        });
        let size = common.unwrap_or_else(|| self.largest.max(USUAL));
        let of_ethernet = OF_ETHERNET
            .into_iter()
            .find(|segment| size.is_multiple_of(*segment));
        let is_small = size < *POSSIBLE.start() && size == self.largest && most >= MANY;
        of_ethernet.unwrap_or(if POSSIBLE.contains(&size) || is_small {
            size
        } else {
            USUAL
        })
    }

    /// Returns the size of full segments.
    pub(crate) fn segment_size(&self) -> u64 {
        self.segment.into()
    }

    /// Returns the size of full segments that is assumed of an end without data.
    pub(crate) const fn default_segment_size() -> u64 {
        USUAL as u64
    }
}

/// Returns the greatest common divisor.
fn greatest_common_divisor(one: u32, other: u32) -> u32 {
    if other == 0 {
        one
    } else {
        greatest_common_divisor(other, one % other)
    }
}

/// Returns the number of segments of size `mss` that so many bytes take.
pub(crate) fn segment_count(bytes: u64, mss: u64) -> u64 {
    // Nearly all are one, which takes no division.
    if bytes <= mss {
        u64::from(bytes > 0)
    } else {
        bytes.div_ceil(mss.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(packets: impl IntoIterator<Item = (u32, bool)>) -> u64 {
        let mut sizes = SegmentSizes::default();
        for (bytes, is_pushed) in packets {
            sizes.add_packet(bytes, is_pushed);
        }
        sizes.segment_size()
    }

    #[test]
    fn the_most_frequent_size_is_that_of_a_segment_and_the_end_of_a_write_is_none() {
        let writes = |size: u32| {
            (0..1_000).map(move |index| {
                if index % 4 == 3 {
                    (700, true)
                } else {
                    (size, false)
                }
            })
        };
        assert_eq!(
            [536, 1_376, 1_460, 8_948].map(|size| seen(writes(size))),
            [536, 1_376, 1_460, 8_948]
        );
        assert_eq!(seen([(100, true)]), 1448, "a request is no full segment");
        assert_eq!(
            seen((0..500).map(|_| (1_000, true))),
            1448,
            "nor is what a program writes at a time"
        );
        assert_eq!(seen((0..500).map(|_| (88, false))), 1448);
        assert_eq!(
            seen((0..5_000).map(|index| (108, index % 20 == 19))),
            108,
            "the ends agreed on hardly more"
        );
        assert_eq!(
            seen((0..5_000).map(|index| (if index == 0 { 700 } else { 108 }, false))),
            1448
        );
    }

    #[test]
    fn packets_that_hold_several_segments_show_what_all_are_multiples_of() {
        let trains =
            |segment: u32| (0..1_000_u32).map(move |index| (segment * (20 + index * 7 % 3), false));
        assert_eq!(
            [1_376, 1_448, 8_948].map(|segment| seen(trains(segment))),
            [1_376, 1_448, 8_948]
        );
        assert_eq!(
            seen((0..1_000).map(|_| (2 * 1_448, false))),
            1_448,
            "two of an Ethernet are no jumbo frame"
        );
        assert_eq!(seen((0..1_000).map(|_| (62_264, false))), 1_448);
        assert_eq!(
            seen((0..1_000).map(|_| (60_001, false))),
            1_448,
            "it is not known"
        );
        // Others in between, of any size.
        assert_eq!(
            seen((0..1_000).map(|index| (if index % 3 == 0 { 30 + index } else { 1_340 }, false))),
            1_340
        );
    }
}
