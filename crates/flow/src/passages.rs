//! The times at which chosen positions of a sequence space passed, so that two captures can be compared.

use fullpipe_units::Time;

/// Maximum number of positions. Beyond it the distance between them doubles, and every other one is forgotten.
const MAX_POSITIONS: u64 = 4096;

/// Distance between two positions at first, as a power of two: about a packet of an Ethernet.
const FIRST_STRIDE_BITS: u32 = 10;

/// The times of packets of a connection, chosen so that another capture of it has the same ones.
#[derive(Debug, Clone, Default)]
pub struct PacketTimes {
    /// Of each end, its data and the acknowledgements of it.
    pub(crate) ends: [Box<[Passages; 2]>; 2],
}

/// The begin of a sequence space, from which positions are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Origin {
    position: u64,
    /// True for the SYN, which is the same data behind a device that renumbers; else sequence number zero.
    is_syn: bool,
}

impl Origin {
    /// The sequence number of a SYN, which has this position.
    pub(crate) fn syn(position: u64) -> Self {
        Self { position, is_syn: true }
    }

    /// Sequence number zero, for a capture without the SYN.
    pub(crate) fn zero() -> Self {
        Self { position: 0, is_syn: false }
    }
}

/// The passage of one position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Passage {
    /// Time of the first packet with it.
    at: Time,
    /// Bytes by which an acknowledgement goes beyond it; of data, how often it passed.
    mark: u32,
    /// Bytes of data from here to the next position, each copy counted.
    bytes: u32,
}

impl Passage {
    const NONE: Self = Self { at: Time::from_nanos(u64::MAX), mark: 0, bytes: 0 };

    fn has_passed(&self) -> bool {
        self.at != Self::NONE.at
    }
}

/// Positions at equal distances, from which two captures of a connection choose the same ones.
///
/// Nothing is allocated before the first distance has passed.
#[derive(Debug, Clone, Default)]
pub(crate) struct Passages {
    origin: Option<Origin>,
    /// Doublings of the distance so far.
    doublings: u32,
    /// Index of the first one that is kept.
    first: u64,
    kept: Vec<Passage>,
}

impl Passages {
    /// Takes note of a packet with everything from the first position to the one before the second.
    pub(crate) fn data(&mut self, origin: Origin, positions: [u64; 2], at: Time) {
        let Some([start, end]) = self.offsets(origin, positions).filter(|[start, end]| start < end) else { return };
        let bits = self.make_room([start, end]);
        for index in (start >> bits).max(self.first)..=((end - 1) >> bits) {
            let position = index << bits;
            if self.kept.is_empty() && position < start {
                continue;
            }
            let Some(passage) = self.at_index(index) else { continue };
            let from = start.max(position);
            let to = end.min(position.saturating_add(1 << bits));
            passage.bytes = passage.bytes.saturating_add((to - from) as u32);
            if start <= position {
                passage.mark = passage.mark.saturating_add(1);
                passage.at = passage.at.min(at);
            }
        }
    }

    /// Takes note of an acknowledgement of everything below `position`, where everything below `before` was
    /// acknowledged so far.
    pub(crate) fn acknowledgement(&mut self, origin: Origin, before: Option<u64>, position: u64, at: Time) {
        let before = before.unwrap_or(position.saturating_sub(1));
        let new = self.offsets(origin, [before, position]).filter(|[before, end]| before < end);
        let Some([before, end]) = new else { return };
        let bits = self.make_room([before, end]);
        for index in before.div_ceil(1 << bits).max(self.first)..=((end - 1) >> bits) {
            let beyond = (end - (index << bits)) as u32;
            if let Some(passage) = self.at_index(index).filter(|passage| !passage.has_passed()) {
                *passage = Passage { at, mark: beyond, bytes: 0 };
            }
        }
    }

    /// Returns positions as distances from the origin, which is the first that was given.
    fn offsets(&mut self, origin: Origin, positions: [u64; 2]) -> Option<[u64; 2]> {
        let origin = *self.origin.get_or_insert(origin);
        let [start, end] = positions.map(|position| position.checked_sub(origin.position));
        Some([start?, end?])
    }

    fn bits(&self) -> u32 {
        FIRST_STRIDE_BITS + self.doublings
    }

    /// Doubles the distance until there is room for the positions from `start` to `end`. Returns it as a power of two.
    fn make_room(&mut self, [start, end]: [u64; 2]) -> u32 {
        if self.kept.is_empty() {
            // At the SYN itself there is nothing to compare.
            self.first = (start >> self.bits()).max(1);
        }
        while (end - 1) >> self.bits() >= self.first.saturating_add(MAX_POSITIONS) {
            self.double();
        }
        self.bits()
    }

    fn double(&mut self) {
        let first = self.first.div_ceil(2);
        // The bytes of one that is forgotten belong to the one before it.
        let mut index = self.first;
        self.kept.dedup_by(|passage, before| {
            index += 1;
            let is_forgotten = !index.is_multiple_of(2);
            if is_forgotten {
                before.bytes = before.bytes.saturating_add(passage.bytes);
            }
            is_forgotten
        });
        if !self.first.is_multiple_of(2) && !self.kept.is_empty() {
            self.kept.remove(0);
        }
        self.doublings += 1;
        self.first = first;
    }

    /// Returns the bytes that it takes beyond its own size.
    pub(crate) fn room(&self) -> usize {
        self.kept.capacity() * size_of::<Passage>()
    }

    /// Doubles the distance until there are few positions.
    pub(crate) fn thin(&mut self) {
        const KEPT: usize = 2;
        while self.kept.len() > KEPT {
            self.double();
        }
        self.kept.shrink_to_fit();
    }

    fn at_index(&mut self, index: u64) -> Option<&mut Passage> {
        let place = usize::try_from(index.checked_sub(self.first)?).ok()?;
        if place >= self.kept.len() {
            self.kept.resize(place + 1, Passage::NONE);
        }
        self.kept.get_mut(place)
    }
}

/// The same positions of one connection in the nearer of two captures and in the other.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Compared<'p> {
    both: [&'p Passages; 2],
    bits: u32,
}

/// One position in both captures.
#[derive(Debug, Clone, Copy)]
struct Cell {
    passages: [Passage; 2],
}

impl<'p> Compared<'p> {
    /// Returns `None` where nothing can be compared: one of the captures lacks the SYN, or has none of this data.
    pub(crate) fn new(both: [&'p Passages; 2]) -> Option<Self> {
        let is_syn = both.map(|passages| passages.origin.map(|origin| origin.is_syn));
        let bits = both[0].bits().max(both[1].bits());
        (is_syn[0].is_some() && is_syn[0] == is_syn[1]).then_some(Self { both, bits })
    }

    /// Returns the positions that both captures may have.
    fn cells(self) -> impl Iterator<Item = Cell> + use<'p> {
        let ends = self.both.map(|passages| passages.range(self.bits));
        let range = ends[0][0].max(ends[1][0])..ends[0][1].min(ends[1][1]);
        range.map(move |index| Cell { passages: self.both.map(|passages| passages.cell(index, self.bits)) })
    }

    /// Returns the times at which the same packet passed both captures: the nearer one and the other. Data of which one
    /// shows more copies than the other is left out, and so is an acknowledgement that one lacks.
    pub(crate) fn times(self) -> impl Iterator<Item = [Time; 2]> + use<'p> {
        let is_same = |cell: &Cell| {
            let [near, far] = cell.passages;
            near.has_passed() && far.has_passed() && near.mark == far.mark
        };
        self.cells().filter(is_same).map(|cell| cell.passages.map(|passage| passage.at))
    }

    /// Returns the bytes that the nearer capture has and the other lacks, by the time at which they passed the nearer
    /// one.
    pub(crate) fn lost(self) -> impl Iterator<Item = (Time, u64)> + use<'p> {
        let lost = |cell: Cell| {
            let [near, far] = cell.passages;
            near.has_passed().then(|| (near.at, near.bytes.saturating_sub(far.bytes).into()))
        };
        self.cells().filter_map(lost)
    }
}

impl Passages {
    /// Returns the first position and the one after the last, at a distance that is a power of two.
    fn range(&self, bits: u32) -> [u64; 2] {
        let shift = bits - self.bits();
        let end = self.first + self.kept.len() as u64;
        [self.first.div_ceil(1 << shift), end.div_ceil(1 << shift)]
    }

    /// Returns a position at that distance, with all bytes to the next one.
    fn cell(&self, index: u64, bits: u32) -> Passage {
        let shift = bits - self.bits();
        let begin = (index << shift) - self.first;
        let cells = self.kept.iter().skip(begin as usize).take(1 << shift);
        let bytes = cells.clone().fold(0_u32, |sum, passage| sum.saturating_add(passage.bytes));
        cells.clone().next().map_or(Passage::NONE, |first| Passage { bytes, ..*first })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_units::Span;
    use proptest::prelude::*;

    fn at(millis: u64) -> Time {
        Time::ZERO + Span::from_millis(millis)
    }

    const SYN: u64 = (1 << 32) + 777;

    /// Data of `size` bytes a packet, a packet a millisecond, behind a SYN.
    fn transfer(size: u64, packets: u64, begin: Time) -> Passages {
        let mut passages = Passages::default();
        for index in 0..packets {
            let start = SYN + 1 + index * size;
            passages.data(Origin::syn(SYN), [start, start + size], begin + Span::from_millis(index));
        }
        passages
    }

    #[test]
    fn nothing_is_kept_of_a_connection_that_is_idle() {
        assert_eq!(transfer(100, 10, at(0)).kept.capacity(), 0);
        let mut passages = Passages::default();
        passages.data(Origin::zero(), [SYN, SYN + 100], at(0));
        passages.acknowledgement(Origin::syn(SYN), None, SYN + 1, at(0));
        assert_eq!(passages.kept.capacity(), 0);
    }

    #[test]
    fn trains_and_segments_pass_the_same_positions() {
        let segments = transfer(1_000, 60_000, at(5));
        let trains = transfer(60_000, 1_000, at(0));
        let compared = Compared::new([&trains, &segments]).unwrap();
        let times: Vec<[Time; 2]> = compared.times().collect();
        assert!((3_000..4_096).contains(&times.len()), "{}", times.len());
        // Each position is in the packet that holds it, and a train passes as a whole.
        for [train, segment] in times {
            assert_eq!(train.as_nanos() / 1_000_000, (segment.as_nanos() / 1_000_000 - 5) / 60);
        }
    }

    #[test]
    fn a_shorter_capture_has_the_positions_of_a_longer_one() {
        let [short, long] = [transfer(1_000, 6_000, at(0)), transfer(1_000, 600_000, at(0))];
        assert!(short.bits() < long.bits());
        let compared = Compared::new([&short, &long]).unwrap();
        let times: Vec<[Time; 2]> = compared.times().collect();
        assert_eq!(times.len() as u64, 6_000_000 >> long.bits());
        assert!(times.iter().all(|[one, other]| one == other));
        assert_eq!(compared.lost().map(|(_, bytes)| bytes).sum::<u64>(), 0);
    }

    #[test]
    fn what_was_sent_again_and_an_acknowledgement_that_one_capture_lacks_are_left_out() {
        let far = transfer(1_000, 100, at(20));
        let mut near = transfer(1_000, 100, at(0));
        near.data(Origin::syn(SYN), [SYN + 50_001, SYN + 51_001], at(200));
        let [whole, part] = [&far, &near].map(|near| Compared::new([near, &far]).unwrap().times().count());
        assert_eq!(whole - part, 1);
        assert_eq!(Compared::new([&near, &far]).unwrap().lost().map(|(_, bytes)| bytes).sum::<u64>(), 1_000);

        let acknowledged = |positions: &[u64]| {
            let mut passages = Passages::default();
            for pair in positions.windows(2) {
                passages.acknowledgement(Origin::zero(), Some(pair[0]), pair[1], at(pair[1] / 1_000));
            }
            passages
        };
        let all = acknowledged(&[5_000, 7_000, 9_000, 11_000]);
        let thinned = acknowledged(&[5_000, 7_000, 11_000]);
        let times: Vec<[Time; 2]> = Compared::new([&all, &thinned]).unwrap().times().collect();
        // 5120 and 6144 are acknowledged by the same packet, 7168 and 8192 by another one, and 9216 and 10240 again.
        assert_eq!(times, [[at(7); 2], [at(7); 2], [at(11); 2], [at(11); 2]]);
    }

    #[test]
    fn a_capture_without_the_syn_has_other_positions() {
        let with = transfer(1_000, 100, at(0));
        let mut without = Passages::default();
        without.data(Origin::zero(), [SYN + 1, SYN + 100_000], at(0));
        assert!(Compared::new([&with, &without]).is_none());
        assert!(Compared::new([&with, &Passages::default()]).is_none());
    }

    #[test]
    fn a_packet_of_four_gibibytes_below_all_others_takes_no_longer() {
        // Each would take a step per kibibyte: more than a minute in all.
        let mut passages = Passages::default();
        let begin = 1 << 40;
        passages.data(Origin::zero(), [begin, begin + 1_000], at(0));
        for index in 0..20_000 {
            passages.data(Origin::zero(), [begin - (1 << 32), begin + 1], at(index));
            passages.acknowledgement(Origin::zero(), Some(begin - (1 << 32)), begin + 1, at(index));
        }
        assert_eq!(passages.kept.len(), 1);
    }

    proptest! {
        #[test]
        fn whatever_passes_is_kept_in_bounds(
            packets in prop::collection::vec((any::<u64>(), 0_u64..1 << 33, any::<bool>()), 1..200),
            is_syn in any::<bool>(),
        ) {
            let mut both = [Passages::default(), Passages::default()];
            for (index, (start, length, is_data)) in packets.into_iter().enumerate() {
                let start = start % (1 << (20 + index % 43));
                let (passages, end) = (&mut both[index % 2], start.saturating_add(length));
                let origin = if is_syn { Origin::syn(start) } else { Origin::zero() };
                if is_data {
                    passages.data(origin, [start, end], at(index as u64));
                } else {
                    passages.acknowledgement(origin, Some(start), end, at(index as u64));
                }
                prop_assert!(passages.kept.len() as u64 <= MAX_POSITIONS);
            }
            if let Some(compared) = Compared::new([&both[0], &both[1]]) {
                prop_assert!(compared.times().count() as u64 <= MAX_POSITIONS);
                prop_assert!(compared.lost().count() as u64 <= MAX_POSITIONS);
            }
        }
    }
}
