use fullpipe_record::Policer as Bucket;
use fullpipe_units::{ByteCount, SegCount, Time};

use crate::load::TrainLoad;
use crate::server::WORK_PER_BYTE;

/// A token bucket that drops what finds too few tokens. It counts tokens exactly, in billionths of
/// a bit.
#[derive(Debug)]
pub(crate) struct PolicerState {
    bucket: Bucket,
    tokens: u128,
    /// Up to when tokens have come.
    filled: Time,
}

impl PolicerState {
    /// With a full bucket.
    pub(crate) fn new(bucket: Bucket) -> Self {
        Self {
            bucket,
            tokens: full_tokens(bucket),
            filled: Time::ZERO,
        }
    }

    /// Returns the number of packets of `load` that pass at `at`, counted from the first.
    pub(crate) fn passing_packets(&mut self, at: Time, load: TrainLoad) -> SegCount {
        let came = u128::from(self.bucket.rate.bps())
            * u128::from(at.duration_since(self.filled).as_nanos());
        self.tokens = self
            .tokens
            .saturating_add(came)
            .min(full_tokens(self.bucket));
        self.filled = at;
        let bytes = u64::try_from(self.tokens / WORK_PER_BYTE).unwrap_or(u64::MAX);
        let packets = load.packets_in(ByteCount::new(bytes));
        self.tokens -= u128::from(load.first_packets(packets).total.get()) * WORK_PER_BYTE;
        packets
    }
}

fn full_tokens(bucket: Bucket) -> u128 {
    u128::from(bucket.burst.get()) * WORK_PER_BYTE
}
