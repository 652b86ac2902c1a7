use fullpipe_record::{SweepCell, SweepOrder};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::SeedableRng;

use super::grid::SweepGrid;
use crate::order::shuffle;

/// Returns all cells of `grid` in this order.
pub(crate) fn order_cells(grid: &SweepGrid, order: SweepOrder, seed: u64) -> Vec<SweepCell> {
    match order {
        SweepOrder::Nested => grid.all_cells(),
        SweepOrder::Scrambled => scramble_cells(grid, seed),
        SweepOrder::Both => [grid.all_cells(), scramble_cells(grid, seed)].concat(),
    }
}

/// Returns blocks of which each has every window once, with numbers of streams that differ as far
/// as there are enough.
fn scramble_cells(grid: &SweepGrid, seed: u64) -> Vec<SweepCell> {
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let (mut windows, mut streams) = (grid.windows().to_vec(), grid.streams().to_vec());
    shuffle(&mut windows, &mut random);
    shuffle(&mut streams, &mut random);
    let mut cells = Vec::new();
    for block in 0..streams.len() {
        let streams = streams.iter().cycle().skip(block);
        let mut cells_of_block: Vec<SweepCell> = windows
            .iter()
            .zip(streams)
            .map(|(&window, &streams)| SweepCell { window, streams })
            .collect();
        shuffle(&mut cells_of_block, &mut random);
        cells.extend(cells_of_block);
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_units::ByteCount;

    #[test]
    fn a_scrambled_grid_has_every_cell_once_and_every_window_once_a_block() {
        let grid = SweepGrid::from_ranges(ByteCount::from_kib(8)..=ByteCount::from_mib(4), 1..=90)
            .unwrap();
        let cells = order_cells(&grid, SweepOrder::Scrambled, 7);
        let mut indices: Vec<usize> = cells
            .iter()
            .map(|cell| grid.cell_index(*cell).unwrap())
            .collect();
        indices.sort_unstable();
        assert_eq!(indices, (0..130).collect::<Vec<_>>());
        for block in cells.chunks(10) {
            let mut windows: Vec<ByteCount> = block.iter().map(|cell| cell.window).collect();
            windows.sort_unstable();
            assert_eq!(windows, grid.windows());
        }
        assert_eq!(cells, order_cells(&grid, SweepOrder::Scrambled, 7));
        assert_ne!(cells, order_cells(&grid, SweepOrder::Scrambled, 8));
        assert_eq!(order_cells(&grid, SweepOrder::Nested, 7), grid.all_cells());
        assert_eq!(
            order_cells(&grid, SweepOrder::Both, 7),
            [grid.all_cells(), cells].concat()
        );
    }
}
