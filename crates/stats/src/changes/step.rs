use crate::changes::course::Course;
use crate::order_statistics::median;

/// Least change, as a logarithm: 3 %.
const MIN_STEP: f64 = 0.03;

/// Least change, in standard deviations of single runs.
const MIN_DEVIATIONS: f64 = 0.75;

/// Standard errors by which a change stands out from a smooth course.
const STANDS_OUT: f64 = 3.0;

/// Degree of the polynomial that a smooth course through two levels is.
const DEGREE: usize = 2;

/// Returns the place in `cuts` of the change that falls shortest of what a change must be; `None` if none does.
pub(super) fn weakest(course: &Course, cuts: &[usize]) -> Option<usize> {
    let end = |place: usize| cuts.get(place + 1).copied().unwrap_or(course.calm.len());
    let start = |place: usize| place.checked_sub(1).map_or(0, |before| cuts[before]);
    let strengths = (0..cuts.len()).map(|place| (strength(course, [start(place), cuts[place], end(place)]), place));
    strengths.filter(|(strength, _)| *strength < 1.0).min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, place)| place)
}

/// Returns the size of the change at `cut`, between levels that reach from `from` and up to `to`, as a multiple of what
/// it must be.
fn strength(course: &Course, [from, cut, to]: [usize; 3]) -> f64 {
    let level = |values: &[f64]| median(values).unwrap_or(0.0);
    let step = level(&course.logs[cut..to]) - level(&course.logs[from..cut]);
    let size = step.abs() / MIN_STEP.max(MIN_DEVIATIONS * course.deviation);
    let values = &course.calm[from..to];
    let sharp = step_in_smooth_course(values, cut - from) * step.signum() / course.variance.sqrt();
    size.min(sharp / STANDS_OUT)
}

/// Returns the size of the step at `cut` in a course that is otherwise a polynomial, divided by its standard error for
/// values of variance 1 (least squares).
fn step_in_smooth_course(values: &[f64], cut: usize) -> f64 {
    let count = values.len() as f64;
    let place = |index: usize| 2.0 * index as f64 / count - 1.0;
    let step: Vec<f64> = (0..values.len()).map(|index| f64::from(u8::from(index >= cut))).collect();
    let power = |degree: usize| (0..values.len()).map(|index| libm::pow(place(index), degree as f64)).collect();
    // Gram and Schmidt: each power without the lower ones, and the step without all of them.
    let mut smooth: Vec<Vec<f64>> = Vec::new();
    for degree in 0..=DEGREE {
        let next = without(power(degree), &smooth);
        smooth.push(next);
    }
    let step = without(step, &smooth);
    let square = dot(&step, &step);
    if square > 0.0 { dot(&step, values) / square.sqrt() } else { 0.0 }
}

/// Returns the part of `values` that is at right angles to each of `others`.
fn without(values: Vec<f64>, others: &[Vec<f64>]) -> Vec<f64> {
    others.iter().fold(values, |values, other| {
        let share = dot(&values, other) / dot(other, other);
        values.iter().zip(other).map(|(value, other)| value - share * other).collect()
    })
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_stands_out_from_a_parabola_and_a_parabola_is_no_step() {
        let parabola: Vec<f64> = (0..60).map(|index| f64::from(index * index) / 400.0).collect();
        assert!(step_in_smooth_course(&parabola, 30).abs() < 1e-9);
        let with_step = |size: f64| {
            let step = |index: usize| if index >= 30 { size } else { 0.0 };
            parabola.iter().enumerate().map(|(index, value)| value + step(index)).collect::<Vec<_>>()
        };
        let (one, two) = (step_in_smooth_course(&with_step(1.0), 30), step_in_smooth_course(&with_step(2.0), 30));
        assert!(one > 1.0 && (two - 2.0 * one).abs() < 1e-9, "{one}, {two}");
        // Of 60 values, a quarter of the information is left next to a slope: √(60 ÷ 16).
        assert!((one - (60.0_f64 / 16.0).sqrt()).abs() < 0.01, "{one}");
    }
}
