//! The times at which chosen positions of a sequence space passed, so that two captures can be
//! compared.

use fullpipe_units::Time;

/// Maximum number of positions. Beyond it the distance between them doubles, and every other one is
/// forgotten.
const MAX_POSITIONS: u64 = 4096;

/// Distance between two positions at first, as a power of two: about a packet of an Ethernet.
const FIRST_STRIDE_BITS: u32 = 10;

/// The times of packets of a connection, chosen so that another capture of it has the same ones.
#[derive(Debug, Clone, Default)]
pub struct PacketTimes {
    /// Of each end, its data and the acknowledgements of it.
    pub(crate) ends: [Box<[PassageGrids; 2]>; 2],
    /// Times of the first and of the last segment of the capture.
    pub(crate) captured: [Time; 2],
}

/// Positions of one sequence space, counted from its SYN and from sequence number zero: of two
/// captures one may have begun after the SYN.
#[derive(Debug, Clone, Default)]
pub(crate) struct PassageGrids {
    from_syn: Passages,
    from_zero: Passages,
}

impl PassageGrids {
    /// Takes note of a packet with everything from the first position to the one before the second.
    pub(crate) fn record_data(&mut self, origin: SequenceOrigin, positions: [u64; 2], at: Time) {
        for (passages, origin) in self.with_origins(origin) {
            passages.record_data(origin, positions, at);
        }
    }

    /// Takes note of an acknowledgement, like [`Passages::record_acknowledgement`].
    pub(crate) fn record_acknowledgement(
        &mut self,
        origin: SequenceOrigin,
        before: Option<u64>,
        position: u64,
        at: Time,
    ) {
        for (passages, origin) in self.with_origins(origin) {
            passages.record_acknowledgement(origin, before, position, at);
        }
    }

    fn with_origins(
        &mut self,
        origin: SequenceOrigin,
    ) -> impl Iterator<Item = (&mut Passages, SequenceOrigin)> {
        let from_syn = origin.is_syn.then_some((&mut self.from_syn, origin));
        from_syn
            .into_iter()
            .chain([(&mut self.from_zero, SequenceOrigin::at_zero())])
    }

    /// Returns the bytes that they take beyond their own size.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.from_syn.heap_bytes() + self.from_zero.heap_bytes()
    }

    /// Doubles the distances until there are few positions.
    pub(crate) fn reduce_memory(&mut self) {
        self.from_syn.reduce_memory();
        self.from_zero.reduce_memory();
    }
}

/// The begin of a sequence space, from which positions are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SequenceOrigin {
    position: u64,
    /// True for the SYN, which is the same data behind a device that renumbers; else sequence
    /// number zero.
    is_syn: bool,
}

impl SequenceOrigin {
    /// The sequence number of a SYN, which has this position.
    pub(crate) fn at_syn(position: u64) -> Self {
        Self {
            position,
            is_syn: true,
        }
    }

    /// Sequence number zero, for a capture without the SYN.
    pub(crate) fn at_zero() -> Self {
        Self {
            position: 0,
            is_syn: false,
        }
    }
}

/// The passage of one position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Passage {
    /// Time of the first packet with it.
    at: Time,
    /// Time of the last packet with data from here to the next position.
    last: Time,
    /// Bytes by which an acknowledgement goes beyond it; of data, how often it passed.
    mark: u32,
    /// Bytes of data from here to the next position, each copy counted.
    bytes: u32,
}

impl Passage {
    const NONE: Self = Self {
        at: Time::from_nanos(u64::MAX),
        last: Time::ZERO,
        mark: 0,
        bytes: 0,
    };

    fn has_passed(&self) -> bool {
        self.at != Self::NONE.at
    }

    /// Returns this passage with the data from the next position on to the one behind that.
    fn with_next(self, next: Self) -> Self {
        let bytes = self.bytes.saturating_add(next.bytes);
        Self {
            bytes,
            last: self.last.max(next.last),
            ..self
        }
    }
}

/// Positions at equal distances, from which two captures of a connection choose the same ones.
///
/// Nothing is allocated before the first distance has passed.
#[derive(Debug, Clone, Default)]
pub(crate) struct Passages {
    origin: Option<SequenceOrigin>,
    /// Doublings of the distance so far.
    doublings: u32,
    /// Index of the first one that is kept.
    first: u64,
    kept: Vec<Passage>,
    /// The begin of the lowest data, and the end of the highest.
    lowest: Option<OutermostPosition>,
    highest: Option<OutermostPosition>,
    /// Time of the last packet with data.
    last: Time,
}

/// The begin or the end of all data.
#[derive(Debug, Clone, Copy)]
struct OutermostPosition {
    position: u64,
    /// Time of the first packet that begins or ends there.
    at: Time,
    /// Packets that do so.
    count: u32,
}

impl OutermostPosition {
    /// Returns the outermost position with a further packet, which begins or ends at `position`.
    /// `is_beyond` compares that with another.
    fn after_packet(
        known: Option<Self>,
        position: u64,
        at: Time,
        is_beyond: impl Fn(u64) -> bool,
    ) -> Self {
        match known {
            Some(known) if known.position == position => Self {
                count: known.count.saturating_add(1),
                ..known
            },
            Some(known) if !is_beyond(known.position) => known,
            _ => Self {
                position,
                at,
                count: 1,
            },
        }
    }
}

impl Passages {
    /// Takes note of a packet with everything from the first position to the one before the second.
    pub(crate) fn record_data(&mut self, origin: SequenceOrigin, positions: [u64; 2], at: Time) {
        let Some([start, end]) = self
            .origin_offsets(origin, positions)
            .filter(|[start, end]| start < end)
        else {
            return;
        };
        self.note_ends([start, end], at);
        let bits = self.make_room([start, end]);
        for index in (start >> bits).max(self.first)..=((end - 1) >> bits) {
            let position = index << bits;
            if self.kept.is_empty() && position < start {
                continue;
            }
            let Some(passage) = self.at_index(index) else {
                continue;
            };
            let from = start.max(position);
            let to = end.min(position.saturating_add(1 << bits));
            passage.bytes = passage.bytes.saturating_add((to - from) as u32);
            passage.last = passage.last.max(at);
            if start <= position {
                passage.mark = passage.mark.saturating_add(1);
                passage.at = passage.at.min(at);
            }
        }
    }

    /// Takes note of an acknowledgement of everything below `position`, where everything below
    /// `before` was acknowledged so far.
    pub(crate) fn record_acknowledgement(
        &mut self,
        origin: SequenceOrigin,
        before: Option<u64>,
        position: u64,
        at: Time,
    ) {
        let before = before.unwrap_or(position.saturating_sub(1));
        let new = self
            .origin_offsets(origin, [before, position])
            .filter(|[before, end]| before < end);
        let Some([before, end]) = new else { return };
        let bits = self.make_room([before, end]);
        for index in before.div_ceil(1 << bits).max(self.first)..=((end - 1) >> bits) {
            let beyond = (end - (index << bits)) as u32;
            if let Some(passage) = self.at_index(index).filter(|passage| !passage.has_passed()) {
                *passage = Passage {
                    at,
                    last: at,
                    mark: beyond,
                    bytes: 0,
                };
            }
        }
    }

    fn note_ends(&mut self, [start, end]: [u64; 2], at: Time) {
        self.last = self.last.max(at);
        self.lowest = Some(OutermostPosition::after_packet(
            self.lowest,
            start,
            at,
            |lowest| start < lowest,
        ));
        self.highest = Some(OutermostPosition::after_packet(
            self.highest,
            end,
            at,
            |highest| end > highest,
        ));
    }

    /// Returns positions as distances from the origin, which is the first that was given.
    fn origin_offsets(&mut self, origin: SequenceOrigin, positions: [u64; 2]) -> Option<[u64; 2]> {
        let origin = *self.origin.get_or_insert(origin);
        let [start, end] = positions.map(|position| position.checked_sub(origin.position));
        Some([start?, end?])
    }

    fn distance_bits(&self) -> u32 {
        FIRST_STRIDE_BITS + self.doublings
    }

    /// Doubles the distance until there is room for the positions from `start` to `end`. Returns
    /// the exponent of the distance, which is a power of two.
    fn make_room(&mut self, [start, end]: [u64; 2]) -> u32 {
        if self.kept.is_empty() {
            // At the SYN itself there is nothing to compare.
            self.first = (start >> self.distance_bits()).max(1);
        }
        while (end - 1) >> self.distance_bits() >= self.first.saturating_add(MAX_POSITIONS) {
            self.double_distance();
        }
        self.distance_bits()
    }

    fn double_distance(&mut self) {
        let first = self.first.div_ceil(2);
        // The bytes of one that is forgotten belong to the one before it.
        let mut index = self.first;
        self.kept.dedup_by(|passage, before| {
            index += 1;
            let is_forgotten = !index.is_multiple_of(2);
            if is_forgotten {
                *before = before.with_next(*passage);
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
    pub(crate) fn heap_bytes(&self) -> usize {
        self.kept.capacity() * size_of::<Passage>()
    }

    /// Doubles the distance until there are few positions.
    pub(crate) fn reduce_memory(&mut self) {
        const KEPT: usize = 2;
        while self.kept.len() > KEPT {
            self.double_distance();
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

/// Passages of one connection at the same positions, in the nearer of two captures and in the
/// other.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ComparedPassages<'p> {
    both: [&'p Passages; 2],
    bits: u32,
    /// Positions by which those of the other capture lie before the ones of the nearer, as the
    /// first number that each saw is in the first round of the sequence space.
    ahead: i64,
}

/// One position in both captures.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ComparedPassage {
    passages: [Passage; 2],
}

impl ComparedPassage {
    /// Returns the bytes that passed the nearer capture from here to the next position, and how
    /// many fewer passed the other one.
    pub(crate) fn passed_bytes(&self) -> [u64; 2] {
        let [near, far] = self.passages.map(|passage| u64::from(passage.bytes));
        [near, near.saturating_sub(far)]
    }

    /// Returns the times of the first and of the last packet with them in the nearer capture.
    pub(crate) fn near_times(&self) -> [Time; 2] {
        [self.passages[0].at, self.passages[0].last]
    }
}

impl<'p> ComparedPassages<'p> {
    /// Returns `None` where nothing can be compared: one of the captures has none of this data.
    pub(crate) fn new(both: [&'p PassageGrids; 2]) -> Option<Self> {
        let from_syn = both.map(|grids| &grids.from_syn);
        let has_syn = from_syn.iter().all(|passages| passages.origin.is_some());
        let both = if has_syn {
            from_syn
        } else {
            both.map(|grids| &grids.from_zero)
        };
        let bits = both[0].distance_bits().max(both[1].distance_bits());
        let rounds = if has_syn { 0 } else { rounds_ahead(both) };
        let is_known = both.iter().all(|passages| passages.origin.is_some());
        is_known.then_some(Self {
            both,
            bits,
            ahead: rounds << 32,
        })
    }

    /// Returns true if both captures have the SYN.
    pub(crate) fn has_syn(&self) -> bool {
        self.both[0].origin.is_some_and(|origin| origin.is_syn)
    }

    /// Returns the positions that passed the nearer capture.
    pub(crate) fn iter_cells(self) -> impl Iterator<Item = ComparedPassage> + use<'p> {
        let [near, far] = self.both;
        let [from, to] = near.index_range(self.bits);
        let ahead = self.ahead >> self.bits;
        (from..to)
            .map(move |index| ComparedPassage {
                passages: [
                    near.passage_at(index, self.bits),
                    far.passage_at(index.saturating_add_signed(-ahead), self.bits),
                ],
            })
            .filter(|cell| cell.passages[0].has_passed())
    }

    /// Returns the times at which the same packet passed both captures: the nearer one and the
    /// other. Data of which one shows more copies than the other is left out, and so is an
    /// acknowledgement that one lacks.
    pub(crate) fn packet_times(self) -> impl Iterator<Item = [Time; 2]> + use<'p> {
        self.iter_cells()
            .filter(|cell| {
                let [near, far] = cell.passages;
                far.has_passed() && near.mark == far.mark
            })
            .map(|cell| cell.passages.map(|passage| passage.at))
    }

    /// Returns the times at which the begin of the lowest data passed both captures, and those of
    /// the end of the highest, where both have the same.
    pub(crate) fn end_times(self) -> impl Iterator<Item = [Time; 2]> {
        let ends = self
            .both
            .map(|passages| [passages.lowest, passages.highest]);
        (0..2).filter_map(move |end| {
            let (near, far) = ends[0][end].zip(ends[1][end])?;
            let is_same = near.position == far.position.saturating_add_signed(self.ahead);
            (is_same && near.count == far.count).then_some([near.at, far.at])
        })
    }

    /// Returns the times of the first packet with data and of the last one, in each capture.
    pub(crate) fn data_spans(self) -> [[Time; 2]; 2] {
        self.both.map(|passages| {
            let ends = [passages.lowest, passages.highest];
            let first = ends.into_iter().flatten().map(|end| end.at).min();
            [first.unwrap_or(passages.last), passages.last]
        })
    }
}

/// Returns by how many rounds of 2^32 numbers the positions of the first are ahead of the same ones
/// of the second: both captures end at about the same one.
fn rounds_ahead(both: [&Passages; 2]) -> i64 {
    const ROUND: i64 = 1 << 32;
    let [one, other] = both.map(|passages| passages.end_position().cast_signed());
    (one.saturating_sub(other).saturating_add(ROUND / 2))
        .div_euclid(ROUND)
        .clamp(-ROUND / 4, ROUND / 4)
}

impl Passages {
    /// Returns the position behind the last one that is known.
    fn end_position(&self) -> u64 {
        let end = (self.first + self.kept.len() as u64)
            .checked_shl(self.distance_bits())
            .unwrap_or(0);
        self.highest.map_or(end, |highest| highest.position)
    }

    /// Returns the first position and the one after the last, at a distance that is a power of two.
    fn index_range(&self, bits: u32) -> [u64; 2] {
        let shift = bits - self.distance_bits();
        let end = self.first + self.kept.len() as u64;
        [self.first.div_ceil(1 << shift), end.div_ceil(1 << shift)]
    }

    /// Returns a position at that distance, with all bytes to the next one.
    fn passage_at(&self, index: u64, bits: u32) -> Passage {
        let shift = bits - self.distance_bits();
        let Some(begin) = index
            .checked_mul(1 << shift)
            .and_then(|begin| begin.checked_sub(self.first))
        else {
            return Passage::NONE;
        };
        let cells = self.kept.iter().skip(begin as usize).take(1 << shift);
        cells
            .copied()
            .reduce(Passage::with_next)
            .unwrap_or(Passage::NONE)
    }
}

#[cfg(test)]
mod tests;
