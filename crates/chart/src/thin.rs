//! Fewer points for the same picture: the least and the most of each pixel column, so that every spike stays.

/// Points that are drawn as they are.
const MAX_POINTS: usize = 2_000;

/// Columns of a chart with more points.
const COLUMNS: usize = 720;

/// Returns `points`, ordered by their first coordinate, or the least and the most of each of 720 columns, in the order
/// in which they come, if there are more than 2 000.
pub(crate) fn thinned(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let [Some(first), Some(last)] = [points.first(), points.last()] else { return Vec::new() };
    if points.len() <= MAX_POINTS {
        return points.to_vec();
    }
    let per_column = COLUMNS as f64 / (last.0 - first.0).max(f64::MIN_POSITIVE);
    let column = |point: &(f64, f64)| (((point.0 - first.0) * per_column) as usize).min(COLUMNS - 1);
    let mut kept = Vec::with_capacity(2 * COLUMNS + 2);
    kept.push(*first);
    for group in points.chunk_by(|one, next| column(one) == column(next)) {
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
    kept.push(*last);
    kept.dedup();
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_points_stay() {
        let points = [(0.0, 1.0), (1.0, 2.0)];
        assert_eq!(thinned(&points), points);
        assert_eq!(thinned(&[]), []);
    }

    #[test]
    fn every_spike_stays() {
        let value = |index: usize| match index {
            77_777 => 9.0,
            55_555 => -9.0,
            _ => (index % 10) as f64 / 10.0,
        };
        let points: Vec<(f64, f64)> = (0..100_000).map(|index| (index as f64, value(index))).collect();
        let kept = thinned(&points);
        assert!(kept.len() <= 2 * COLUMNS + 2, "{}", kept.len());
        assert!(kept.contains(&(77_777.0, 9.0)) && kept.contains(&(55_555.0, -9.0)));
        assert!(kept.is_sorted_by(|one, next| one.0 <= next.0));
        assert_eq!((kept.first(), kept.last()), (points.first(), points.last()));
    }

    #[test]
    fn points_at_one_moment_are_their_range() {
        let points: Vec<(f64, f64)> = (0..5_000).map(|index| (1.0, f64::from(index))).collect();
        assert_eq!(thinned(&points), [(1.0, 0.0), (1.0, 4_999.0)]);
    }
}
