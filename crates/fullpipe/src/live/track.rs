//! A series of bounded length.

use fullpipe_units::Span;

/// Points that are kept, more than a terminal has room for.
const MAX_POINTS: usize = 1_000;

/// Values over time: of more than 1 000, every second one is kept, or every fourth and so on.
#[derive(Debug, Clone)]
pub(crate) struct ThinnedValues<T> {
    points: Vec<(Span, T)>,
    /// One point of so many is kept.
    every: u64,
    seen: u64,
}

impl<T: Copy> ThinnedValues<T> {
    pub(crate) fn new() -> Self {
        Self {
            points: Vec::new(),
            every: 1,
            seen: 0,
        }
    }

    pub(crate) fn push(&mut self, at: Span, value: T) {
        if self.seen.is_multiple_of(self.every) {
            self.points.push((at, value));
        }
        self.seen += 1;
        if self.points.len() > MAX_POINTS {
            let mut index = 0;
            self.points.retain(|_| {
                index += 1;
                index % 2 == 1
            });
            self.every *= 2;
        }
    }

    pub(crate) fn points(&self) -> impl Iterator<Item = (Span, T)> {
        self.points.iter().copied()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.points.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_of_points_is_bounded_and_evenly_spaced() {
        let mut track = ThinnedValues::new();
        (0..864_000).for_each(|tenth| track.push(Span::from_millis(100 * tenth), tenth));
        let points: Vec<(Span, u64)> = track.points().collect();
        assert!(
            (MAX_POINTS / 2..=MAX_POINTS).contains(&points.len()),
            "{}",
            points.len()
        );
        let step = points[1].0;
        assert!(
            points
                .windows(2)
                .all(|pair| pair[1].0.saturating_sub(pair[0].0) == step)
        );
    }
}
