//! Fewer marks for the same picture: the least and the most of each column of pixels stay, and with
//! them every spike.

use crate::chart::plot::SeriesForm;
use crate::chart::quantity::value_range;

/// Points that are drawn as they are.
const MAX_POINTS: usize = 2_000;

/// Columns of a chart with more points.
const COLUMNS: usize = 720;

/// Returns the points of a series, ordered by their first coordinate, or those of them that can be
/// distinguished if there are more than 2 000.
pub(crate) fn thin_points(form: SeriesForm, points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let (Some(first), Some(last)) = (points.first(), points.last()) else {
        return Vec::new();
    };
    let ends = (first.0, last.0);
    match form {
        _ if points.len() <= MAX_POINTS => points.to_vec(),
        SeriesForm::Line | SeriesForm::Steps => thin_line(points, ends),
        SeriesForm::Dots => thin_dots(points, ends),
        SeriesForm::Ranges => thin_ranges(points, ends),
        SeriesForm::Bars => thin_bars(points, ends),
    }
}

/// Returns the least and the most of each of 720 columns, in the order in which they come.
fn thin_line(points: &[(f64, f64)], ends: (f64, f64)) -> Vec<(f64, f64)> {
    let mut kept = Vec::with_capacity(2 * COLUMNS + 2);
    kept.extend(points.first());
    for group in points.chunk_by(|one, next| are_in_column(one, next, ends)) {
        let (mut least, mut most) = (0, 0);
        for (index, point) in group.iter().enumerate() {
            if point.1 < group[least].1 {
                least = index;
            }
            if point.1 > group[most].1 {
                most = index;
            }
        }
        kept.push(group[least.min(most)]);
        if least != most {
            kept.push(group[least.max(most)]);
        }
    }
    kept.extend(points.last());
    kept.dedup();
    kept
}

/// Returns true if two points lie in the same of the columns between `low` and `high`.
fn are_in_column(one: &(f64, f64), next: &(f64, f64), (low, high): (f64, f64)) -> bool {
    let per_column = COLUMNS as f64 / (high - low).max(f64::MIN_POSITIVE);
    let [one, next] = [one, next].map(|at| (((at.0 - low) * per_column) as usize).min(COLUMNS - 1));
    one == next
}

/// Rows and columns of a chart of more dots: two dots in one cell cannot be distinguished.
const CELLS: (usize, usize) = (240, 24);

/// Returns one of the points of each cell that has any, and the extremes of each column.
fn thin_dots(points: &[(f64, f64)], ends: (f64, f64)) -> Vec<(f64, f64)> {
    let range = value_range(points.iter().map(|point| point.1));
    let mut kept = Vec::new();
    for group in points
        .chunk_by(|one, next| cell_index(one.0, ends, CELLS.0) == cell_index(next.0, ends, CELLS.0))
    {
        let mut cells = [None; CELLS.1];
        let (mut low, mut high) = (group[0], group[0]);
        for point in group {
            cells[cell_index(point.1, range, CELLS.1)].get_or_insert(*point);
            low = if point.1 < low.1 { *point } else { low };
            high = if point.1 > high.1 { *point } else { high };
        }
        kept.extend(cells.into_iter().flatten().chain([low, high]));
    }
    kept.sort_by(|one, next| one.0.total_cmp(&next.0).then(one.1.total_cmp(&next.1)));
    kept.dedup();
    kept
}

/// Returns the cell of a value among `count` of them between `low` and `high`.
fn cell_index(value: f64, (low, high): (f64, f64), count: usize) -> usize {
    let share = (value - low) / (high - low).max(f64::MIN_POSITIVE);
    ((share * count as f64) as usize).min(count - 1)
}

/// Returns the reach of the vertical lines of each of 720 columns; each pair of points is one.
fn thin_ranges(points: &[(f64, f64)], ends: (f64, f64)) -> Vec<(f64, f64)> {
    points
        .chunk_by(|one, next| are_in_column(one, next, ends))
        .flat_map(|group| {
            let (low, high) = value_range(group.iter().map(|point| point.1));
            [(group[0].0, low), (group[0].0, high)]
        })
        .collect()
}

/// Returns a bar as high as the highest of each of 720 columns; each pair of points is one.
fn thin_bars(points: &[(f64, f64)], ends: (f64, f64)) -> Vec<(f64, f64)> {
    let bars: Vec<&[(f64, f64)]> = points.chunks_exact(2).collect();
    bars.chunk_by(|one, next| are_in_column(&one[0], &next[0], ends))
        .flat_map(|group| {
            let height = group.iter().map(|bar| bar[0].1).fold(f64::MIN, f64::max);
            let last = group[group.len() - 1];
            [(group[0][0].0, height), (last[1].0, height)]
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_points_stay() {
        let points = [(0.0, 1.0), (1.0, 2.0)];
        assert_eq!(thin_points(SeriesForm::Line, &points), points);
        assert_eq!(thin_points(SeriesForm::Line, &[]), []);
    }

    #[test]
    fn the_highest_bar_of_each_column_stays() {
        let bar = |index: u32| {
            let height = if index == 77_777 { 9.0 } else { 1.0 };
            [(f64::from(index), height), (f64::from(index) + 0.5, height)]
        };
        let kept = thin_points(
            SeriesForm::Bars,
            &(0..100_000).flat_map(bar).collect::<Vec<_>>(),
        );
        assert!(
            kept.len() <= 2 * COLUMNS && kept.chunks(2).all(|ends| ends[0].0 < ends[1].0),
            "{}",
            kept.len()
        );
        assert_eq!(kept.iter().filter(|end| end.1 > 8.0).count(), 2);
        assert_eq!(thin_points(SeriesForm::Bars, &bar(7)), bar(7));
    }

    #[test]
    fn every_spike_stays() {
        let value = |index: usize| match index {
            77_777 => 9.0,
            55_555 => -9.0,
            _ => (index % 10) as f64 / 10.0,
        };
        let points: Vec<(f64, f64)> = (0..100_000)
            .map(|index| (index as f64, value(index)))
            .collect();
        let kept = thin_points(SeriesForm::Line, &points);
        assert!(kept.len() <= 2 * COLUMNS + 2, "{}", kept.len());
        assert!(kept.contains(&(77_777.0, 9.0)) && kept.contains(&(55_555.0, -9.0)));
        assert!(kept.is_sorted_by(|one, next| one.0 <= next.0));
        assert_eq!((kept.first(), kept.last()), (points.first(), points.last()));
    }

    #[test]
    fn of_a_million_dots_those_that_can_be_distinguished_stay() {
        let value = |index: u32| {
            if index == 777_777 {
                9.0
            } else {
                f64::from(index % 97) / 97.0
            }
        };
        let points: Vec<(f64, f64)> = (0..1_000_000)
            .map(|index| (f64::from(index), value(index)))
            .collect();
        let kept = thin_points(SeriesForm::Dots, &points);
        assert!(kept.len() <= CELLS.0 * (CELLS.1 + 2), "{}", kept.len());
        assert!(kept.contains(&(777_777.0, 9.0)) && kept.is_sorted_by(|one, next| one.0 <= next.0));
        assert_eq!(
            (
                thin_points(SeriesForm::Dots, &points[..9]),
                thin_points(SeriesForm::Dots, &[])
            ),
            (points[..9].to_vec(), Vec::new())
        );
    }

    #[test]
    fn of_many_ranges_the_farthest_stay() {
        let high = |index: u32| if index == 55_555 { 9.0 } else { 1.0 };
        let range = |index: u32| [(f64::from(index), 0.0), (f64::from(index), high(index))];
        let kept = thin_points(
            SeriesForm::Ranges,
            &(0..100_000).flat_map(range).collect::<Vec<_>>(),
        );
        assert!(
            kept.len() <= 2 * COLUMNS && kept.iter().any(|at| at.1 > 8.0),
            "{}",
            kept.len()
        );
        assert!(
            kept.chunks(2)
                .all(|pair| pair[0].0.to_bits() == pair[1].0.to_bits())
        );
    }

    #[test]
    fn points_at_one_moment_are_their_range() {
        let points: Vec<(f64, f64)> = (0..5_000).map(|index| (1.0, f64::from(index))).collect();
        assert_eq!(
            thin_points(SeriesForm::Line, &points),
            [(1.0, 0.0), (1.0, 4_999.0)]
        );
    }
}
