//! Round numbers for the ticks of an axis.

use crate::chart::quantity::{AxisUnit, Dimension, format_date, format_digits};

/// Steps that read well, as parts of a power of ten.
const STEPS: [f64; 4] = [1.0, 2.0, 2.5, 5.0];

/// Steps of an axis of dates, in seconds.
const DATE_STEPS: [f64; 15] = [
    1.0,
    10.0,
    60.0,
    300.0,
    900.0,
    3_600.0,
    10_800.0,
    21_600.0,
    43_200.0,
    86_400.0,
    172_800.0,
    604_800.0,
    1_209_600.0,
    2_592_000.0,
    7_776_000.0,
];

/// Factors whose change in percent is round.
const CHANGES: [f64; 17] = [
    0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 0.7, 0.9, 1.0, 1.1, 1.3, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0,
];

/// Returns the smallest round step of which at most `count` fit into `range`.
fn round_step(range: f64, count: f64) -> f64 {
    let least = (range / count).max(f64::MIN_POSITIVE);
    let power = libm::pow(10.0, libm::floor(libm::log10(least)));
    STEPS
        .iter()
        .map(|step| step * power)
        .find(|step| *step >= least * 0.999_999)
        .unwrap_or(power * 10.0)
}

/// Returns the multiples of a round step from `low` to `high`, about `count` of them.
pub(crate) fn linear_ticks(low: f64, high: f64, count: f64) -> Vec<f64> {
    step_multiples(low, high, round_step(high - low, count))
}

fn step_multiples(low: f64, high: f64, step: f64) -> Vec<f64> {
    let (first, last) = (
        libm::ceil(low / step - 1e-9),
        libm::floor(high / step + 1e-9),
    );
    // A range of no width, or one beyond the digits of a number, has its begin alone.
    if !(last - first).is_finite() || last - first > 1_000.0 || last < first {
        return vec![low];
    }
    (0..=(last - first) as u64)
        .map(|index| (first + index as f64) * step)
        .collect()
}

/// Returns about `count` ticks from zero to `high`, in a unit of the dimension; those of numbers
/// are whole.
pub(crate) fn from_zero(dimension: Dimension, high: f64, count: f64) -> Vec<f64> {
    let mut ticks = linear_ticks(0.0, high, count);
    if dimension == Dimension::Count {
        ticks.retain(|tick| tick.fract() == 0.0);
    }
    ticks
}

/// Returns ticks of an axis with a logarithmic scale: powers of two of a number, factors of a
/// change, or else 1, 2 and 5 times powers of ten.
pub(crate) fn logarithmic_ticks(dimension: Dimension, low: f64, high: f64) -> Vec<f64> {
    let within = |tick: &f64| *tick >= low * 0.999_999 && *tick <= high * 1.000_001;
    match dimension {
        Dimension::Change => CHANGES.into_iter().filter(within).collect(),
        Dimension::Count | Dimension::Size => {
            let all: Vec<f64> = (0..64)
                .map(|power| libm::exp2(f64::from(power)))
                .filter(within)
                .collect();
            thin_ticks(all)
        }
        _ => {
            let decade =
                |power| [1.0, 2.0, 5.0].map(|step| step * libm::pow(10.0, f64::from(power)));
            thin_ticks((-12..16).flat_map(decade).filter(within).collect())
        }
    }
}

/// Returns ticks with their labels in `unit`, of which that at `unit_index` names it.
pub(crate) fn labelled_ticks(
    dimension: Dimension,
    places: Vec<f64>,
    unit: AxisUnit,
    unit_index: Option<usize>,
) -> Vec<(f64, String)> {
    let labels = places.into_iter().enumerate().map(|(index, place)| {
        let number = tick_label(dimension, place, unit.size);
        if unit_index == Some(index) && !unit.name.is_empty() {
            (place, format!("{number} {}", unit.name))
        } else {
            (place, number)
        }
    });
    labels.collect()
}

/// Returns every second, third, … of `ticks`, so that at most ten are left.
fn thin_ticks(ticks: Vec<f64>) -> Vec<f64> {
    let every = ticks.len().div_ceil(10).max(1);
    ticks.into_iter().step_by(every).collect()
}

/// Returns ticks of an axis of dates with their labels: the day, or the time where the step is
/// shorter.
pub(crate) fn date_ticks(low: f64, high: f64, count: f64) -> Vec<(f64, String)> {
    let least = (high - low) / count;
    let year = 31_557_600.0;
    let step = DATE_STEPS
        .into_iter()
        .find(|step| *step >= least)
        .unwrap_or_else(|| least.max(year));
    let format = if step >= 86_400.0 { "%-d %b" } else { "%H:%M" };
    let format = if high - low > year { "%b %Y" } else { format };
    step_multiples(low, high, step)
        .into_iter()
        .map(|at| (at, format_date(at, format)))
        .collect()
}

/// Returns the end of an axis from zero: the first multiple of a round step that is not below
/// `most`.
pub(crate) fn end_of(most: f64, count: f64) -> f64 {
    let step = round_step(most, count);
    // A little above the last tick needs no further one.
    libm::ceil(most / step - 0.02) * step
}

/// Returns the label of a tick in a unit of this size.
pub(crate) fn tick_label(dimension: Dimension, tick: f64, unit: f64) -> String {
    if dimension == Dimension::Change {
        dimension.format_value(tick)
    } else {
        format_digits(tick / unit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round() {
        assert_eq!(
            linear_ticks(0.0, 1_000.0, 5.0),
            [0.0, 200.0, 400.0, 600.0, 800.0, 1_000.0]
        );
        assert_eq!(
            linear_ticks(0.0, 12.0, 6.0),
            [0.0, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0]
        );
        assert_eq!(linear_ticks(0.3, 1.1, 4.0).len(), 4);
        assert_eq!(linear_ticks(7.0, 7.0, 4.0), [7.0]);
        assert_eq!(
            (end_of(941.0, 4.0), end_of(178.0, 4.0), end_of(0.0, 4.0)),
            (1_000.0, 200.0, 0.0)
        );
    }

    #[test]
    fn logarithmic_ticks_are_powers_or_round_changes() {
        assert_eq!(
            logarithmic_ticks(Dimension::Count, 1.0, 90.0),
            [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0]
        );
        assert_eq!(
            logarithmic_ticks(Dimension::Change, 0.6, 2.5),
            [0.7, 0.9, 1.0, 1.1, 1.3, 2.0]
        );
        assert_eq!(
            logarithmic_ticks(Dimension::Rate, 1e6, 1e7),
            [1e6, 2e6, 5e6, 1e7]
        );
    }

    #[test]
    fn dates_are_days_or_times() {
        let day = 86_400.0;
        let labels = |low, high| {
            date_ticks(low, high, 6.0)
                .into_iter()
                .map(|(_, label)| label)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            labels(0.0, 3.0 * day),
            [
                "00:00", "12:00", "00:00", "12:00", "00:00", "12:00", "00:00"
            ]
        );
        assert_eq!(
            labels(10.0 * day, 90.0 * day),
            ["15 Jan", "29 Jan", "12 Feb", "26 Feb", "12 Mar", "26 Mar"]
        );
    }
}
