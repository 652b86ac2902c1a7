use fullpipe_record::Policer as Bucket;
use fullpipe_units::{ByteCount, SegCount, Time};

use crate::load::Load;
use crate::server::WORK_PER_BYTE;

/// A token bucket that drops what finds too few tokens. It counts tokens exactly, in billionths of a bit.
#[derive(Debug)]
pub(crate) struct Policer {
    bucket: Bucket,
    tokens: u128,
    /// Up to when tokens have come.
    filled: Time,
}

impl Policer {
    /// With a full bucket.
    pub(crate) fn new(bucket: Bucket) -> Self {
        Self { bucket, tokens: full(bucket), filled: Time::ZERO }
    }

    /// Returns the number of packets of `load` that pass at `at`, counted from the first.
    pub(crate) fn pass(&mut self, at: Time, load: Load) -> SegCount {
        let came = u128::from(self.bucket.rate.bps()) * u128::from(at.since(self.filled).as_nanos());
        self.tokens = self.tokens.saturating_add(came).min(full(self.bucket));
        self.filled = at;
        let bytes = u64::try_from(self.tokens / WORK_PER_BYTE).unwrap_or(u64::MAX);
        let packets = load.packets_in(ByteCount::new(bytes));
        self.tokens -= u128::from(load.first(packets).total.get()) * WORK_PER_BYTE;
        packets
    }
}

fn full(bucket: Bucket) -> u128 {
    u128::from(bucket.burst.get()) * WORK_PER_BYTE
}
