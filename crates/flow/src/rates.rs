//! The rates at which packets follow each other.

use fullpipe_record::BurstRate;
use fullpipe_units::{BitRate, ByteCount, Ratio, Span};

use crate::bins::{BinnedAmounts, bin_index, bin_middle};

/// Bins of a doubling, as a power of two: each is 1.6 to 3.1 % wide.
const BITS: u32 = 5;

/// Minimum number of measured rates from which the most frequent one is that of bursts.
const MIN_BURSTS: u64 = 200;

/// Bytes by the rate at which they passed.
#[derive(Debug, Clone, Default)]
pub(crate) struct BurstRates {
    bins: BinnedAmounts<PassedBytes>,
    all: u64,
}

/// Bytes that passed at about one rate.
#[derive(Debug, Clone, Copy, Default)]
struct PassedBytes {
    bytes: u64,
    time: Span,
    count: u64,
}

impl PassedBytes {
    fn plus_bytes(self, other: Self) -> Self {
        Self {
            bytes: self.bytes + other.bytes,
            time: self.time + other.time,
            count: self.count + other.count,
        }
    }
}

impl BurstRates {
    /// Returns the bytes that they take.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.bins.heap_bytes()
    }

    /// Forgets what passed so far.
    pub(crate) fn reduce_memory(&mut self) {
        *self = Self::default();
    }

    /// Adds `bytes` that took `span`.
    pub(crate) fn add_bytes(&mut self, bytes: u64, span: Span) {
        if bytes > 0 && span > Span::ZERO {
            let rate = BitRate::from_bytes_in(ByteCount::new(bytes), span);
            let passed = self.bins.amount_mut(bin_index(rate.bps(), BITS));
            passed.bytes += bytes;
            passed.time += span;
            passed.count += 1;
            self.all += bytes;
        }
    }

    /// Adds `bytes` that passed at a rate which is not known.
    pub(crate) fn add_unknown(&mut self, bytes: u64) {
        self.all += bytes;
    }

    /// Returns the most frequent rate, with the share of the bytes within 3 % of it; `None` without
    /// any.
    pub(crate) fn most_frequent_rate(&self) -> Option<BurstRate> {
        let (bin, most) = self
            .neighbouring_sums()
            .max_by_key(|(_, around)| around.bytes)?;
        let rate = BitRate::from_bps(bin_middle(bin, BITS));
        Some(BurstRate {
            rate,
            share: self.share_of_bytes(most.bytes),
        })
    }

    /// Returns the share of the bytes that passed more than a tenth faster than at the most
    /// frequent rate.
    pub(crate) fn beyond_mode(&self) -> Option<Ratio> {
        const FASTER: f64 = 1.1;
        let from = self.most_frequent_rate()?.rate.scale_by(FASTER).bps();
        let faster = self
            .bins
            .bin_amounts()
            .iter()
            .filter(|(bin, _)| bin_middle(*bin, BITS) > from);
        Some(self.share_of_bytes(faster.map(|(_, passed)| passed.bytes).sum()))
    }

    /// Returns the rate of bursts with the share of the bytes within 3 % of it: the mean of those
    /// around the most frequent rate. `None` where there are few, or the share is below
    /// `min_share`.
    pub(crate) fn burst_rate(&self, min_share: f64) -> Option<BurstRate> {
        let around = self
            .neighbouring_sums()
            .zip(self.bins.bin_amounts())
            .max_by_key(|((_, around), own)| (around.bytes, own.1.bytes));
        let ((_, PassedBytes { bytes, time, count }), _) = around?;
        let share = self.share_of_bytes(bytes);
        let is_known = count >= MIN_BURSTS && share.get() >= min_share;
        is_known.then(|| BurstRate {
            rate: BitRate::from_bytes_in(ByteCount::new(bytes), time),
            share,
        })
    }

    /// Returns each bin with what passed at rates within 3 % of it.
    fn neighbouring_sums(&self) -> impl Iterator<Item = (u16, PassedBytes)> + '_ {
        let all = self.bins.bin_amounts();
        all.iter().enumerate().map(|(index, (bin, _))| {
            let near = all[index.saturating_sub(1)..all.len().min(index + 2)].iter();
            let near = near
                .filter(|near| near.0.abs_diff(*bin) <= 1)
                .map(|(_, passed)| *passed);
            (
                *bin,
                near.fold(PassedBytes::default(), PassedBytes::plus_bytes),
            )
        })
    }

    fn share_of_bytes(&self, bytes: u64) -> Ratio {
        Ratio::from_quotient(bytes as f64, self.all as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_frequent_rate_is_found_among_others() {
        let mut rates = BurstRates::default();
        for step in 0..100_u64 {
            // A hundred megabits per second, a little early or late, and pauses in between.
            rates.add_bytes(1448, Span::from_nanos(115_840 + (step % 5) * 200));
            rates.add_bytes(1448, Span::from_micros(200 + step * 50));
        }
        let mode = rates.most_frequent_rate().unwrap();
        assert!((mode.rate.as_mbps() - 100.0).abs() < 3.0, "{}", mode.rate);
        assert!((mode.share.get() - 0.5).abs() < 0.05, "{}", mode.share);
        assert_eq!(BurstRates::default().most_frequent_rate(), None);
        assert_eq!(rates.burst_rate(0.1), None, "a hundred are too few");
    }

    #[test]
    fn what_passed_faster_than_most_is_known_as_a_share() {
        let mut rates = BurstRates::default();
        for _ in 0..70 {
            rates.add_bytes(10_000, Span::from_micros(1_000));
        }
        assert_eq!(rates.beyond_mode(), Some(Ratio::ZERO));
        for micros in [800, 1_300, 1_020] {
            (0..10).for_each(|_| rates.add_bytes(10_000, Span::from_micros(micros)));
        }
        assert_eq!(rates.beyond_mode(), Some(Ratio::new(0.1)));
        assert_eq!(BurstRates::default().beyond_mode(), None);
    }

    #[test]
    fn the_rate_of_bursts_is_more_exact_than_a_bin() {
        let mut rates = BurstRates::default();
        for step in 0..400_u64 {
            rates.add_bytes(1448, Span::from_nanos(307_600 + (step % 3) * 100));
            rates.add_bytes(1448, Span::from_micros(500 + step * 50));
        }
        let bursts = rates.burst_rate(0.3).unwrap();
        assert!(
            (bursts.rate.as_mbps() / 37.65 - 1.0).abs() < 0.001,
            "{}",
            bursts.rate
        );
        rates.add_unknown(4_000_000);
        assert_eq!(
            rates.burst_rate(0.3),
            None,
            "most of the data passed otherwise"
        );
    }
}
