//! Many durations in little room.

use fullpipe_record::RoundTrips;
use fullpipe_units::Span;

use crate::bins::{BinnedAmounts, bin_index, bin_middle};

/// Bins of a doubling, as a power of two: each is 0.8 to 1.6 % wide.
const BITS: u32 = 6;

/// Durations, whose quantiles are known within a percent.
#[derive(Debug, Clone, Default)]
pub(crate) struct SpanHistogram {
    counts: BinnedAmounts,
    all: u64,
    sum: Span,
    least: Option<Span>,
    most: Span,
}

impl SpanHistogram {
    /// Returns the bytes that they take.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.counts.heap_bytes()
    }

    pub(crate) fn add_duration(&mut self, span: Span) {
        *self.counts.amount_mut(bin_index(span.as_nanos(), BITS)) += 1;
        self.all += 1;
        self.sum += span;
        self.least = Some(self.least.map_or(span, |least| least.min(span)));
        self.most = self.most.max(span);
    }

    pub(crate) fn min_duration(&self) -> Option<Span> {
        self.least
    }

    /// Returns the figures; `None` without a duration.
    pub(crate) fn round_trip_figures(&self) -> Option<RoundTrips> {
        Some(RoundTrips {
            samples: self.all,
            least: self.least?,
            mean: self.sum / self.all,
            median: self.quantile(0.5),
            p90: self.quantile(0.9),
            most: self.most,
        })
    }

    fn quantile(&self, share: f64) -> Span {
        let (mut below, wanted) = (0, share * self.all as f64);
        for (bin, count) in self.counts.bin_amounts() {
            below += count;
            if below as f64 >= wanted {
                return Span::from_nanos(bin_middle(*bin, BITS))
                    .clamp(self.least.unwrap_or_default(), self.most);
            }
        }
        self.most
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn quantiles_are_within_a_percent(mut nanos in prop::collection::vec(1_000_u64..10_000_000_000, 1..200)) {
            let mut spans = SpanHistogram::default();
            for span in &nanos {
                spans.add_duration(Span::from_nanos(*span));
            }
            nanos.sort_unstable();
            let figures = spans.round_trip_figures().unwrap();
            let exact = nanos[nanos.len().div_ceil(2) - 1] as f64;
            prop_assert!((figures.median.as_nanos() as f64 / exact - 1.0).abs() < 0.01);
            prop_assert_eq!(figures.least.as_nanos(), nanos[0]);
            prop_assert_eq!(figures.most.as_nanos(), *nanos.last().unwrap());
        }
    }
}
