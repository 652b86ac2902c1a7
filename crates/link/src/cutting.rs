use fullpipe_record::{Effects, PathDirection};
use fullpipe_units::{BitRate, ByteCount, SegCount, Span};

use crate::Train;

/// Time on the line of the longest train that is carried whole.
const TRAIN_LASTS: Span = Span::from_micros(100);

/// The longest train that is carried packet by packet all the same.
const PAIR: SegCount = SegCount::new(2);

/// Returns the packets of `train` in order, in trains of at most `longest`, and a pair as single
/// packets.
///
/// A connection begins with pairs, and a receiver takes the share of its buffer that it advertises
/// from the first packet that it gets (`tcp_measure_rcv_mss`). Network cards give it that one by
/// itself; a pair in one block of memory would raise the share from 160 to 170 of 256.
pub fn cut_train<T: Train>(train: T, longest: SegCount) -> impl Iterator<Item = T> {
    let mut rest = Some(train);
    std::iter::from_fn(move || {
        let mut train = rest.take()?;
        let first = cut_first(&mut train, longest);
        if first.is_some() {
            rest = Some(train);
            return first;
        }
        Some(train)
    })
}

/// Takes the first of several parts of `train` out of it; `None` if it is carried whole.
#[inline]
pub(crate) fn cut_first<T: Train>(train: &mut T, longest: SegCount) -> Option<T> {
    take_first(
        train,
        if train.segment_count() <= PAIR {
            SegCount::new(1)
        } else {
            longest
        },
    )
}

/// Takes the first `longest` packets, at least one, out of a `train` that is longer; `None` if it
/// is not.
#[inline]
pub fn take_first<T: Train>(train: &mut T, longest: SegCount) -> Option<T> {
    (train.segment_count() > longest).then(|| {
        let rest = train.split_off(longest);
        std::mem::replace(train, rest)
    })
}

/// Returns the packets that `path` sends within `time` at the lowest rate that is planned, at least
/// one. Where nothing limits its rate, that is any number.
pub fn packets_within(path: &PathDirection, time: Span) -> SegCount {
    packets_at(slowest_rate(path), largest_packet(path), time)
}

/// The longest train that a path carries whole: as long as its link takes to send in
/// [`TRAIN_LASTS`], as the first of its packets arrives with the last.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LongestTrain {
    packet: ByteCount,
    pub(crate) segments: SegCount,
}

impl LongestTrain {
    pub(crate) fn new(path: &PathDirection) -> Self {
        Self {
            packet: largest_packet(path),
            segments: packets_within(path, TRAIN_LASTS),
        }
    }

    /// The link sends at `rate` from now on.
    pub(crate) fn set_rate(&mut self, rate: BitRate) {
        self.segments = packets_at(Some(rate), self.packet, TRAIN_LASTS);
    }
}

/// The lowest rate that the path is to have, at which a train lasts longest; that of a single
/// packet for a trace of moments, each of which sends one. `None` where nothing limits it.
fn slowest_rate(path: &PathDirection) -> Option<BitRate> {
    let Effects {
        opportunities,
        steps,
        ..
    } = &path.effects;
    if opportunities.is_some() {
        return Some(BitRate::ZERO);
    }
    let later = steps
        .iter()
        .filter_map(|step| step.change.rate)
        .filter(|rate| *rate > BitRate::ZERO);
    path.rate.into_iter().chain(later).min()
}

/// The largest packet, with all that the path's framing adds.
fn largest_packet(path: &PathDirection) -> ByteCount {
    path.mtu + path.framing.packet_overhead()
}

fn packets_at(rate: Option<BitRate>, packet: ByteCount, time: Span) -> SegCount {
    let packets = rate.map_or(u64::MAX, |rate| {
        rate.bytes_in(time).get() / packet.get().max(1)
    });
    SegCount::new(packets.max(1))
}
