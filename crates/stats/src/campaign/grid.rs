use std::ops::RangeInclusive;

use fullpipe_record::SweepCell;
use fullpipe_units::ByteCount;

/// Most cells of a grid: more than the whole range of windows times all numbers of streams.
const MAX_CELLS: usize = 2_000;

/// The windows and the numbers of streams of a sweep, both in rising order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SweepGrid {
    windows: Vec<ByteCount>,
    streams: Vec<u16>,
}

/// A cell's place in a grid: windows by streams.
pub(crate) type Index = usize;

impl SweepGrid {
    /// Returns the grid of `windows`, doubled from the first to the last, and `streams`: 1, 2, 3,
    /// 4, 6, 8, 12, 16 and so on, both ends included. These are the ladders of Cottrell's
    /// measurements, up to 90 streams.
    ///
    /// # Errors
    /// A sentence if a range is empty, or begins at zero.
    pub fn from_ranges(
        windows: RangeInclusive<ByteCount>,
        streams: RangeInclusive<u16>,
    ) -> Result<Self, String> {
        if windows.is_empty() || streams.is_empty() {
            return Err(
                "the range of windows or of streams is empty: its end lies below its begin"
                    .to_owned(),
            );
        }
        if *windows.start() == ByteCount::ZERO || *streams.start() == 0 {
            return Err("a window and a number of streams are at least 1".to_owned());
        }
        let doubled =
            std::iter::successors(Some(*windows.start()), |window| Some(window.scale_by(2.0)));
        let mut listed: Vec<ByteCount> = doubled
            .take_while(|window| window < windows.end())
            .collect();
        listed.push(*windows.end());
        let mut counts: Vec<u16> = stream_ladder()
            .filter(|count| streams.contains(count))
            .collect();
        counts.extend([*streams.start(), *streams.end()]);
        Self::new(listed, counts)
    }

    /// Returns the grid of every one of `windows` with every one of `streams`, in any order.
    ///
    /// # Errors
    /// A sentence if there are none, if one is zero, or if the grid has more than 2000 cells.
    pub fn new(mut windows: Vec<ByteCount>, mut streams: Vec<u16>) -> Result<Self, String> {
        windows.sort_unstable();
        windows.dedup();
        streams.sort_unstable();
        streams.dedup();
        let smallest = windows.first().zip(streams.first());
        match smallest {
            None => Err("a sweep has at least one window and one number of streams".to_owned()),
            Some((&ByteCount::ZERO, _) | (_, 0)) => {
                Err("a window and a number of streams are at least 1".to_owned())
            }
            Some(_) if windows.len() * streams.len() > MAX_CELLS => {
                Err(format!("a sweep has at most {MAX_CELLS} settings"))
            }
            Some(_) => Ok(Self { windows, streams }),
        }
    }

    /// Returns the windows.
    pub fn windows(&self) -> &[ByteCount] {
        &self.windows
    }

    /// Returns the numbers of streams.
    pub fn streams(&self) -> &[u16] {
        &self.streams
    }

    /// Returns all settings: every window with the fewest streams, then every window with the next
    /// number, as Cottrell measured them.
    pub fn all_cells(&self) -> Vec<SweepCell> {
        let streams = self.streams.iter().copied();
        streams
            .flat_map(|streams| {
                self.windows.iter().map(move |window| SweepCell {
                    window: *window,
                    streams,
                })
            })
            .collect()
    }

    /// Returns the place of `cell` in [`SweepGrid::all_cells`].
    pub(crate) fn cell_index(&self, cell: SweepCell) -> Option<Index> {
        let window = self.windows.binary_search(&cell.window).ok()?;
        let streams = self.streams.binary_search(&cell.streams).ok()?;
        Some(self.index_at(window, streams))
    }

    /// Returns the place of the `window`th window with the `streams`th number of streams.
    pub(crate) fn index_at(&self, window: usize, streams: usize) -> Index {
        streams * self.windows.len() + window
    }

    /// Returns true if two cells are the same, or one step apart on one axis or both.
    pub(crate) fn are_neighbours(&self, one: Index, other: Index) -> bool {
        let windows = self.windows.len();
        (one % windows).abs_diff(other % windows) <= 1
            && (one / windows).abs_diff(other / windows) <= 1
    }

    /// Returns the place of the smallest window that `streams`, a place in [`SweepGrid::streams`],
    /// fill `bytes` with; of the largest window if none does.
    pub(crate) fn filling_index(&self, bytes: f64, streams: usize) -> Index {
        let enough =
            |window: &&ByteCount| window.as_f64() * f64::from(self.streams[streams]) >= bytes;
        let window = self
            .windows
            .iter()
            .position(|window| enough(&window))
            .unwrap_or(self.windows.len() - 1);
        self.index_at(window, streams)
    }

    /// Returns the place in [`SweepGrid::streams`] of the number nearest to `streams`.
    pub(crate) fn nearest_streams(&self, streams: u16) -> usize {
        (0..self.streams.len())
            .min_by_key(|place| self.streams[*place].abs_diff(streams))
            .unwrap_or(0)
    }
}

/// Returns 1, 2, 3, 4, 6, 8, 12 and so on.
fn stream_ladder() -> impl Iterator<Item = u16> {
    let powers = (0..16).map(|power| 1_u16 << power);
    powers
        .flat_map(|power| {
            [
                Some(power),
                (power > 1).then(|| power.saturating_add(power / 2)),
            ]
        })
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kib(range: RangeInclusive<u64>) -> RangeInclusive<ByteCount> {
        ByteCount::from_kib(*range.start())..=ByteCount::from_kib(*range.end())
    }

    #[test]
    fn the_grid_of_slac_has_130_cells() {
        let grid = SweepGrid::from_ranges(kib(8..=4096), 1..=90).unwrap();
        assert_eq!(
            grid.streams(),
            [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 90]
        );
        assert_eq!((grid.windows().len(), grid.all_cells().len()), (10, 130));
        for (index, cell) in grid.all_cells().into_iter().enumerate() {
            assert_eq!(grid.cell_index(cell), Some(index));
        }
    }

    #[test]
    fn both_ends_of_a_range_are_measured() {
        let grid = SweepGrid::from_ranges(kib(10..=100), 5..=7).unwrap();
        assert_eq!(
            grid.windows()
                .iter()
                .map(|window| window.get() / 1024)
                .collect::<Vec<_>>(),
            [10, 20, 40, 80, 100]
        );
        assert_eq!(grid.streams(), [5, 6, 7]);
        assert_eq!(
            SweepGrid::from_ranges(kib(64..=64), 1..=1)
                .unwrap()
                .all_cells()
                .len(),
            1
        );
    }

    #[test]
    fn an_empty_range_and_a_zero_are_refused() {
        let [large, small] = [64, 8].map(ByteCount::from_kib);
        assert!(
            SweepGrid::from_ranges(RangeInclusive::new(large, small), 1..=2)
                .unwrap_err()
                .contains("empty")
        );
        assert!(
            SweepGrid::from_ranges(kib(0..=8), 1..=2)
                .unwrap_err()
                .contains("at least 1")
        );
        assert!(
            SweepGrid::from_ranges(kib(8..=8), 0..=2)
                .unwrap_err()
                .contains("at least 1")
        );
        assert!(SweepGrid::new(Vec::new(), vec![1]).is_err());
        assert!(
            SweepGrid::new(vec![ByteCount::new(1)], (1..3000).collect())
                .unwrap_err()
                .contains("2000")
        );
    }
}
