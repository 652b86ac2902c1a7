//! Many durations in little room.

use std::collections::BTreeMap;

use fullpipe_record::RoundTrips;
use fullpipe_units::Span;

/// Bins of a doubling: each is 1.1 % wide.
const BINS: f64 = 64.0;

/// Durations, whose quantiles are known within half a percent.
#[derive(Debug, Clone, Default)]
pub(crate) struct Spans {
    counts: BTreeMap<u16, u64>,
    all: u64,
    sum: f64,
    least: Option<Span>,
    most: Span,
}

impl Spans {
    pub(crate) fn add(&mut self, span: Span) {
        *self.counts.entry(bin(span)).or_default() += 1;
        self.all += 1;
        self.sum += span.as_secs_f64();
        self.least = Some(self.least.map_or(span, |least| least.min(span)));
        self.most = self.most.max(span);
    }

    pub(crate) fn least(&self) -> Option<Span> {
        self.least
    }

    /// Returns the figures; `None` without a duration.
    pub(crate) fn figures(&self) -> Option<RoundTrips> {
        Some(RoundTrips {
            samples: self.all,
            least: self.least?,
            mean: Span::from_secs_f64(self.sum / self.all as f64),
            median: self.quantile(0.5),
            p90: self.quantile(0.9),
            most: self.most,
        })
    }

    fn quantile(&self, share: f64) -> Span {
        let (mut below, wanted) = (0, share * self.all as f64);
        for (bin, count) in &self.counts {
            below += count;
            if below as f64 >= wanted {
                return middle(*bin).clamp(self.least.unwrap_or_default(), self.most);
            }
        }
        self.most
    }
}

fn bin(span: Span) -> u16 {
    ((span.as_nanos().max(1) as f64).log2() * BINS) as u16
}

fn middle(bin: u16) -> Span {
    Span::from_nanos(((f64::from(bin) + 0.5) / BINS).exp2() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn quantiles_are_within_a_percent(mut nanos in prop::collection::vec(1_000_u64..10_000_000_000, 1..200)) {
            let mut spans = Spans::default();
            for span in &nanos {
                spans.add(Span::from_nanos(*span));
            }
            nanos.sort_unstable();
            let figures = spans.figures().unwrap();
            let exact = nanos[nanos.len().div_ceil(2) - 1] as f64;
            prop_assert!((figures.median.as_nanos() as f64 / exact - 1.0).abs() < 0.01);
            prop_assert_eq!(figures.least.as_nanos(), nanos[0]);
            prop_assert_eq!(figures.most.as_nanos(), *nanos.last().unwrap());
        }
    }
}
