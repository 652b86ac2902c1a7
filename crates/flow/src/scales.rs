//! The shift of windows where no SYN shows it.

/// Largest shift (RFC 7323, 2.3).
const MAX_SHIFT: usize = 14;

/// Share of the segments that may have more in flight than the window allows.
const MAX_BEYOND: f64 = 0.01;

/// Share of a window up to which it allows what is in flight, which is an estimate away from the
/// sender.
const ALLOWED: f64 = 1.1;

/// Share of a window from which it is full: another shift would be half or twice of it.
const FULL: f64 = 0.8;

/// Share of the segments with a full window from which the window limits: otherwise it may be of
/// any size above what was in flight.
const MIN_FULL: f64 = 0.3;

/// Segments by the least shift with which the window allows what was in flight after them.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ScaleCounts {
    least: [u32; MAX_SHIFT + 1],
    /// Segments that nearly filled the window of that shift.
    full: [u32; MAX_SHIFT + 1],
}

impl ScaleCounts {
    /// Takes note of a segment after which `flight` bytes are in flight, with the `window` as it
    /// stands in the header. A window is full, too, if less than one MSS of it is left.
    pub(crate) fn record_sent_segment(&mut self, flight: u64, window: Option<u16>, mss: u64) {
        let Some(window) = window.map(u64::from).filter(|window| *window > 0) else {
            return;
        };
        // With a lower shift the window has two bits less than what is in flight, and so less than
        // half of it.
        let lower_bound = (window
            .leading_zeros()
            .saturating_sub(flight.leading_zeros() + 1) as usize)
            .min(MAX_SHIFT);
        let shift = (lower_bound..MAX_SHIFT)
            .find(|shift| flight as f64 <= (window << shift) as f64 * ALLOWED)
            .unwrap_or(MAX_SHIFT);
        self.least[shift] += 1;
        let bytes = window << shift;
        self.full[shift] += u32::from(flight + mss > bytes || flight as f64 >= bytes as f64 * FULL);
    }

    /// Returns the shift with which hardly more is ever in flight than the window allows, and often
    /// as much; `None` where the window is never full.
    pub(crate) fn window_shift(&self) -> Option<u8> {
        let all: u32 = self.least.iter().sum();
        let mut beyond = 0;
        let shift = (0..=MAX_SHIFT).rev().find(|shift| {
            beyond += self.least[*shift];
            f64::from(beyond) > f64::from(all) * MAX_BEYOND
        })?;
        (f64::from(self.full[shift]) >= f64::from(all) * MIN_FULL).then_some(shift as u8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(sizes: impl IntoIterator<Item = u64>) -> Option<u8> {
        let mut scales = ScaleCounts::default();
        for flight in sizes {
            scales.record_sent_segment(flight, Some(1_000), 100);
        }
        scales.window_shift()
    }

    #[test]
    fn a_window_that_is_full_shows_its_shift_and_another_does_not() {
        assert_eq!(seen((0..5_000).map(|index| 7_900 - index % 400)), Some(3));
        assert_eq!(seen([1_000; 100]), Some(0));
        assert_eq!(seen((0..5_000).map(|index| 4_500 + index % 1_500)), None);
        assert_eq!(seen([]), None);
        let mut small = ScaleCounts::default();
        (0..100).for_each(|_| small.record_sent_segment(2 * 1_448, Some(1_000), 1_448));
        assert_eq!(
            small.window_shift(),
            Some(2),
            "two segments are all that four thousand bytes hold"
        );
    }
}
