use fullpipe_record::{Effects, PathDirection};
use fullpipe_units::{BitRate, ByteCount, SegCount, Span};

use crate::Train;

/// Time on the line of the longest train that is carried whole.
const TRAIN_LASTS: Span = Span::from_micros(100);

/// The longest train that is carried packet by packet all the same.
const PAIR: SegCount = SegCount::new(2);

/// Returns the packets of `train` in order, in trains of at most `longest`, and a pair as single packets.
///
/// A connection begins with pairs, and a receiver takes the share of its buffer that it advertises from the first
/// packet that it gets (`tcp_measure_rcv_mss`). Network cards give it that one by itself; a pair in one block of
/// memory would raise the share from 160 to 170 of 256.
pub fn cut_train<T: Train>(train: T, longest: SegCount) -> impl Iterator<Item = T> {
    Parts { rest: Some(train), longest }
}

/// The parts of a train that are still to come.
struct Parts<T> {
    rest: Option<T>,
    longest: SegCount,
}

impl<T: Train> Iterator for Parts<T> {
    type Item = T;

    #[inline]
    fn next(&mut self) -> Option<T> {
        let mut first = self.rest.take()?;
        let segments = first.segments();
        let whole = if segments <= PAIR { SegCount::new(1) } else { self.longest };
        if segments > whole {
            self.rest = Some(first.split_off(whole));
        }
        Some(first)
    }
}

/// The longest train that a path carries whole: as long as its link takes to send in [`TRAIN_LASTS`], as the first of
/// its packets arrives with the last.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LongestTrain {
    /// The largest packet, with all that the path's framing adds.
    packet: ByteCount,
    pub(crate) segments: SegCount,
}

impl LongestTrain {
    pub(crate) fn new(path: &PathDirection) -> Self {
        let packet = path.mtu + path.framing.overhead();
        Self { packet, segments: longest(slowest(path), packet) }
    }

    /// The link sends at `rate` from now on.
    pub(crate) fn set_rate(&mut self, rate: BitRate) {
        self.segments = longest(Some(rate), self.packet);
    }
}

/// The lowest rate that the path is to have, at which a train lasts longest; that of a single packet for a trace of
/// moments, each of which sends one. `None` where nothing limits it.
fn slowest(path: &PathDirection) -> Option<BitRate> {
    let Effects { opportunities, steps, .. } = &path.effects;
    if opportunities.is_some() {
        return Some(BitRate::ZERO);
    }
    let later = steps.iter().filter_map(|step| step.change.rate).filter(|rate| *rate > BitRate::ZERO);
    path.rate.into_iter().chain(later).min()
}

fn longest(rate: Option<BitRate>, packet: ByteCount) -> SegCount {
    let packets = rate.map_or(u64::MAX, |rate| rate.bytes_in(TRAIN_LASTS).get() / packet.get().max(1));
    SegCount::new(packets.max(1))
}
