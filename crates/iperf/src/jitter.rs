//! Interarrival jitter.

use fullpipe_units::Span;

/// The jitter of RFC 3550, section 6.4.1: a sixteenth of each change in the time that datagrams
/// take, as far as two clocks show it, which need not agree.
#[derive(Debug, Clone, Copy, Default)]
pub struct JitterEstimate {
    /// Nanoseconds from the last stamp to its arrival, by two clocks.
    transit: Option<i128>,
    /// In seconds.
    mean: f64,
}

impl JitterEstimate {
    /// Notes that a datagram which was sent at `sent` of the sender's clock has arrived at `at` of
    /// some clock of this end.
    pub fn record_datagram(&mut self, sent: Span, at: Span) {
        let transit = i128::from(at.as_nanos()) - i128::from(sent.as_nanos());
        let change = transit - self.transit.unwrap_or(transit);
        let change = Span::from_nanos(u64::try_from(change.unsigned_abs()).unwrap_or(u64::MAX));
        self.mean += (change.as_secs_f64() - self.mean) / 16.0;
        self.transit = Some(transit);
    }

    /// Returns the jitter so far.
    pub fn get(self) -> Span {
        Span::from_secs_f64(self.mean)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn jitter(arrivals: &[(u64, u64)]) -> Span {
        let mut jitter = JitterEstimate::default();
        for &(sent, at) in arrivals {
            jitter.record_datagram(Span::from_micros(sent), Span::from_micros(at));
        }
        jitter.get()
    }

    #[test]
    fn a_steady_stream_has_none_whatever_the_clocks_say() {
        assert_eq!(jitter(&[(0, 0), (100, 100), (200, 200)]), Span::ZERO);
        assert_eq!(
            jitter(&[(0, 90_000_000_000), (100, 90_000_000_100)]),
            Span::ZERO
        );
    }

    #[test]
    fn each_change_counts_a_sixteenth() {
        assert_eq!(jitter(&[(0, 0), (100, 260)]), Span::from_micros(10));
        // (10 × 15 + 160) ÷ 16 = 19.375
        assert_eq!(
            jitter(&[(0, 0), (100, 260), (200, 200)]),
            Span::from_nanos(19_375)
        );
    }

    #[test]
    fn any_stamp_has_a_jitter() {
        let mut jitter = JitterEstimate::default();
        for sent in [Span::ZERO, Span::MAX] {
            jitter.record_datagram(sent, Span::MAX);
        }
        assert!(jitter.get() > Span::from_secs(1_000_000));
    }
}
