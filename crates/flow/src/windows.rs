//! The windows that an end advertises, and the one at which they settle.

use fullpipe_record::AdvertisedWindow;
use fullpipe_units::{ByteCount, Ratio, Span, Time};

/// Maximum number of different windows that are counted at a time. The rarest gives way to a new
/// one.
const MAX_VALUES: usize = 32;

/// Counts of the most frequent values.
#[derive(Debug, Clone, Default)]
struct ValueCounts {
    values: Vec<u32>,
    /// Count of each of them.
    times: Vec<u32>,
    all: u64,
    /// No count is less.
    least: u32,
    /// Place of the value that was counted last.
    last: usize,
}

impl ValueCounts {
    fn add_value(&mut self, value: u32) {
        self.all += 1;
        // Most follow their equal.
        if self.values.get(self.last) != Some(&value) {
            self.last = self.value_index(value);
            // A new value takes over a count, since it may have been here before (Metwally and
            // others, 2005).
            self.values[self.last] = value;
        }
        let count = &mut self.times[self.last];
        *count = count.saturating_add(1);
    }

    /// Returns the place of a value, or one for it: a new one, or that of the rarest.
    fn value_index(&mut self, value: u32) -> usize {
        if let Some(place) = place_of(value, &self.values) {
            return place;
        }
        if self.values.len() < MAX_VALUES {
            self.values.push(value);
            self.times.push(0);
            return self.values.len() - 1;
        }
        place_of(self.least, &self.times).unwrap_or_else(|| {
            // Counts never fall, so those that were the least have all been counted since.
            self.least = self.times.iter().copied().min().unwrap_or_default();
            place_of(self.least, &self.times).unwrap_or_default()
        })
    }

    fn most_frequent(&self) -> Option<(u32, u32)> {
        let all = self.values.iter().copied().zip(self.times.iter().copied());
        all.max_by_key(|(value, count)| (*count, *value))
    }
}

/// Returns the first place of a number.
fn place_of(wanted: u32, all: &[u32]) -> Option<usize> {
    // Without a branch for each it is known sooner which of them has it.
    let (chunks, rest) = all.as_chunks::<8>();
    let of_chunk = chunks.iter().position(|chunk| {
        chunk
            .iter()
            .fold(0, |found, one| found | u32::from(*one == wanted))
            > 0
    });
    let begin = of_chunk.map_or(all.len() - rest.len(), |chunk| chunk * 8);
    Some(begin + all[begin..].iter().position(|one| *one == wanted)?)
}

/// The windows of one end.
#[derive(Debug, Clone, Default)]
pub(crate) struct WindowFigures {
    range: Option<[u32; 3]>,
    zero: u64,
    begin: Option<Time>,
    /// Windows since the time had last doubled, and those of the time before.
    counts: [ValueCounts; 2],
    /// Time after the begin at which it doubles next.
    doubles_at: Span,
}

impl WindowFigures {
    /// Returns the bytes that they take.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.counts
            .iter()
            .map(|counts| counts.values.capacity() * 2 * size_of::<u32>())
            .sum()
    }

    /// Takes note of a window in bytes.
    pub(crate) fn add_window(&mut self, window: u32, at: Time) {
        const FIRST: Span = Span::from_millis(100);
        let elapsed = at.duration_since(*self.begin.get_or_insert(at));
        if elapsed >= self.doubles_at {
            self.counts.swap(0, 1);
            self.counts[0] = ValueCounts::default();
            self.doubles_at = (elapsed * 2).max(FIRST);
        }
        let [first, least, most] = self.range.unwrap_or([window; 3]);
        self.range = Some([first, least.min(window), most.max(window)]);
        self.zero += u64::from(window == 0);
        self.counts[0].add_value(window);
    }

    /// Returns the figures; `None` without a window. They are those of the header's field if it
    /// `is_unscaled`.
    pub(crate) fn window_figures(&self, is_unscaled: bool) -> Option<AdvertisedWindow> {
        let [first, least, most] = self.range?;
        // Right after a doubling there are few.
        let later = &self.counts[usize::from(self.counts[0].all * 4 < self.counts[1].all)];
        let (settled, count) = later.most_frequent()?;
        let [first, least, most, settled] =
            [first, least, most, settled].map(|window| ByteCount::new(window.into()));
        Some(AdvertisedWindow {
            first,
            least,
            most,
            settled,
            settled_share: Ratio::from_quotient(f64::from(count), later.all as f64),
            zero: self.zero,
            is_unscaled,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_settles_after_it_has_grown() {
        let mut windows = WindowFigures::default();
        for millis in 0..10_000_u32 {
            let window = (millis * 100).min(131_070);
            windows.add_window(window, Time::ZERO + Span::from_millis(millis.into()));
        }
        let figures = windows.window_figures(false).unwrap();
        assert_eq!(figures.settled.get(), 131_070);
        assert!(figures.settled_share.get() > 0.99, "{figures:?}");
        assert_eq!(
            (figures.first.get(), figures.most.get(), figures.zero),
            (0, 131_070, 1)
        );
    }
}
