//! The rates at which packets follow each other.

use fullpipe_record::BurstRate;
use fullpipe_units::{BitRate, ByteCount, Ratio, Span};

use crate::bins::{Amounts, bin, middle};

/// Bins of a doubling, as a power of two: each is 1.6 to 3.1 % wide.
const BITS: u32 = 5;

/// Bytes by the rate at which they passed.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rates {
    bytes: Amounts,
    all: u64,
}

impl Rates {
    /// Returns the bytes that they take.
    pub(crate) fn room(&self) -> usize {
        self.bytes.room()
    }

    /// Adds `bytes` that took `span`.
    pub(crate) fn add(&mut self, bytes: u64, span: Span) {
        if bytes > 0 && span > Span::ZERO {
            let rate = BitRate::of(ByteCount::new(bytes), span);
            self.bytes.add(bin(rate.bps(), BITS), bytes);
            self.all += bytes;
        }
    }

    /// Returns the most frequent rate, with the share of the bytes within 3 % of it; `None` without any.
    pub(crate) fn mode(&self) -> Option<BurstRate> {
        let all = self.bytes.all();
        let around = |index: usize| {
            let near = &all[index.saturating_sub(1)..all.len().min(index + 2)];
            near.iter().filter(|near| near.0.abs_diff(all[index].0) <= 1).map(|(_, bytes)| bytes).sum::<u64>()
        };
        let (index, most) = (0..all.len()).map(|index| (index, around(index))).max_by_key(|(_, bytes)| *bytes)?;
        let (bin, _) = all[index];
        let rate = BitRate::from_bps(middle(bin, BITS));
        Some(BurstRate { rate, share: Ratio::of(most as f64, self.all as f64) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_frequent_rate_is_found_among_others() {
        let mut rates = Rates::default();
        for step in 0..100_u64 {
            // A hundred megabits per second, a little early or late, and pauses in between.
            rates.add(1448, Span::from_nanos(115_840 + (step % 5) * 200));
            rates.add(1448, Span::from_micros(200 + step * 50));
        }
        let mode = rates.mode().unwrap();
        assert!((mode.rate.as_mbps() - 100.0).abs() < 3.0, "{}", mode.rate);
        assert!((mode.share.get() - 0.5).abs() < 0.05, "{}", mode.share);
        assert_eq!(Rates::default().mode(), None);
    }
}
