//! Lists and ranges: `a,b,c`, `LOW..HIGH`, `LOW..HIGH+STEP`.

use fullpipe_record::Quantity;

use super::{InputError, QuantitySetting};

/// Reads the values of one quantity: one value, or several between commas, or ranges.
///
/// `LOW..HIGH` goes from LOW to HIGH, both included: sizes and streams by doublings of LOW,
/// everything else by the steps 1, 2, 5, 10 … that lie between. `LOW..HIGH+STEP` goes from LOW in
/// equal steps and not beyond HIGH.
///
/// # Errors
/// A value that [`QuantitySetting::read`] refuses, a range that runs backwards or has no end, or
/// more than 100 000 values.
pub fn read_values(quantity: Quantity, text: &str) -> Result<Vec<QuantitySetting>, InputError> {
    let mut values = Vec::new();
    for item in text.split(',') {
        match item.split_once("..") {
            Some((low, rest)) => {
                values.extend(SettingRange::read(quantity, low, rest)?.range_values()?);
            }
            None => values.push(QuantitySetting::read(quantity, item)?),
        }
        if values.len() > MAX_VALUES {
            return Err(too_many(values.len()));
        }
    }
    Ok(values)
}

/// Returns the numbers from `low` to `high`, both included, by the steps 1, 2, 5, 10 … that lie
/// between, or by `step` from `low` and not beyond `high`.
///
/// # Errors
/// A range that runs backwards or has no end, or more than 100 000 numbers.
pub fn numbers_between(low: f64, high: f64, step: Option<f64>) -> Result<Vec<f64>, InputError> {
    if low > high {
        return Err(InputError::new(format!(
            "the range {low}..{high} runs backwards; write {high}..{low}"
        )));
    }
    if let Some(step) = step {
        return Ok(equal_steps(low, high, step)?.collect());
    }
    if low == 0.0 {
        return Err(InputError::new(
            "a range from 0 has no steps of its own; write for example 0..1+0.1 or 0.1..1",
        ));
    }
    let end = (low < high).then_some(high);
    Ok(std::iter::once(low)
        .chain(decade_values(low, high))
        .chain(end)
        .collect())
}

struct SettingRange {
    low: QuantitySetting,
    high: QuantitySetting,
    step: Option<f64>,
}

impl SettingRange {
    fn read(quantity: Quantity, low: &str, rest: &str) -> Result<Self, InputError> {
        let (high, step) = split_step(rest);
        let step = step
            .map(|step| QuantitySetting::read(quantity, step))
            .transpose()?;
        let range = Self {
            low: QuantitySetting::read(quantity, low)?,
            high: QuantitySetting::read(quantity, high)?,
            step: step.and_then(|step| step.as_number()),
        };
        match (range.low.as_number(), range.high.as_number()) {
            (Some(from), Some(to)) if from > to => Err(InputError::new(format!(
                "the range {low}..{high} runs backwards; write {high}..{low}"
            ))),
            (Some(_), Some(_)) => Ok(range),
            _ => Err(InputError::new(
                "there is no range of these; write a list, for example cubic,bbr",
            )),
        }
    }

    fn range_values(&self) -> Result<Vec<QuantitySetting>, InputError> {
        let quantity = self.low.quantity();
        let (low, high) = (
            self.low.as_number().unwrap_or(0.0),
            self.high.as_number().unwrap_or(0.0),
        );
        let numbers = match self.step {
            Some(step) => equal_steps(low, high, step)?.collect(),
            None => usual_values(quantity, low, high)?,
        };
        let settings = numbers
            .into_iter()
            .filter_map(|number| QuantitySetting::of_number(quantity, number));
        if self.step.is_some() {
            return Ok(settings.collect());
        }
        let last = (low < high).then(|| self.high.clone());
        let values = std::iter::once(self.low.clone()).chain(settings);
        Ok(values.chain(last).collect())
    }
}

/// Returns the values between `low` and `high`, neither included, where no step is given.
fn usual_values(quantity: Quantity, low: f64, high: f64) -> Result<Vec<f64>, InputError> {
    if low == 0.0 {
        return Err(InputError::new(
            "a range from 0 has no steps of its own; write for example 0..1%+0.1% or 0.001%..1%",
        ));
    }
    Ok(match quantity {
        Quantity::Bandwidth
        | Quantity::Rtt
        | Quantity::Distance
        | Quantity::Pause
        | Quantity::Loss => decade_values(low, high),
        _ => doubled_values(low, high),
    })
}

/// Parts `HIGH+STEP`; the plus of an exponent, as in `1e+3`, is none between them.
fn split_step(text: &str) -> (&str, Option<&str>) {
    let plus = text
        .match_indices('+')
        .find(|(at, _)| !text[..*at].ends_with(['e', 'E']) && *at > 0);
    plus.map_or((text, None), |(at, _)| (&text[..at], Some(&text[at + 1..])))
}

fn equal_steps(low: f64, high: f64, step: f64) -> Result<impl Iterator<Item = f64>, InputError> {
    if step == 0.0 {
        return Err(InputError::new(
            "a range whose step is 0 has no end; write a step above 0",
        ));
    }
    // A billionth of a step more, so that the last one is not lost to rounding.
    let steps = ((high - low) / step + 1e-9).floor();
    if steps >= MAX_VALUES as f64 {
        return Err(too_many(steps as usize));
    }
    Ok((0..=steps as u32).map(move |count| low + f64::from(count) * step))
}

/// 1, 2 and 5 times the powers of ten between `low` and `high`, neither included.
fn decade_values(low: f64, high: f64) -> Vec<f64> {
    (-30..=19)
        .flat_map(|exponent| [1, 2, 5].map(|digit| format!("{digit}e{exponent}")))
        .filter_map(|text| text.parse().ok())
        .filter(|number| low < *number && *number < high)
        .collect()
}

/// `low` times powers of two, up to `high`, neither included.
fn doubled_values(low: f64, high: f64) -> Vec<f64> {
    std::iter::successors(Some(low * 2.0), |number| Some(number * 2.0))
        .take_while(|number| *number < high)
        .collect()
}

fn too_many(count: usize) -> InputError {
    InputError::new(format!(
        "that is {count} values, more than {MAX_VALUES}; write a larger step"
    ))
}

/// Values of one quantity; more are a mistake in the step.
const MAX_VALUES: usize = 100_000;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cells(quantity: Quantity, text: &str) -> String {
        let values = read_values(quantity, text).unwrap();
        values
            .iter()
            .map(QuantitySetting::to_cell)
            .collect::<Vec<_>>()
            .join(" ")
    }

    #[test]
    fn ranges_step_as_people_expect() {
        for (quantity, text, values) in [
            (Quantity::Rtt, "10ms..200ms", "0.01 0.02 0.05 0.1 0.2"),
            (Quantity::Rtt, "15ms..60ms", "0.015 0.02 0.05 0.06"),
            (Quantity::Rtt, "10ms..40ms+10ms", "0.01 0.02 0.03 0.04"),
            (Quantity::Rtt, "10ms..35ms+10ms", "0.01 0.02 0.03"),
            (Quantity::Rtt, "5ms..5ms", "0.005"),
            (
                Quantity::Bandwidth,
                "100M..2G",
                "100000000 200000000 500000000 1000000000 2000000000",
            ),
            (
                Quantity::Loss,
                "1e-6..1e-5",
                "0.000001 0.000002 0.000005 0.00001",
            ),
            (
                Quantity::Loss,
                "0,0.01%..0.1%",
                "0 0.0001 0.0002 0.0005 0.001",
            ),
            (Quantity::Loss, "0..1e-2+5e-3", "0 0.005 0.01"),
            (Quantity::Window, "64KiB,1MiB", "65536 1048576"),
            (
                Quantity::Window,
                "64KiB..300KiB",
                "65536 131072 262144 307200",
            ),
            (Quantity::Mtu, "1500,9000", "1500 9000"),
            (Quantity::Streams, "1..16", "1 2 4 8 16"),
            (Quantity::Streams, "1..3+1", "1 2 3"),
            (Quantity::Bandwidth, "1e+3..1e+4+5e+3", "1000 6000"),
            (Quantity::Congestion, "cubic,bbr", "cubic bbr"),
        ] {
            assert_eq!(cells(quantity, text), values, "{text}");
        }
    }

    #[test]
    fn a_bad_range_is_reported_in_a_sentence() {
        for (quantity, text, sentence) in [
            (
                Quantity::Rtt,
                "20ms..10ms",
                "the range 20ms..10ms runs backwards; write 10ms..20ms",
            ),
            (
                Quantity::Loss,
                "0..1%",
                "a range from 0 has no steps of its own; write for example 0..1%+0.1% or 0.001%..1%",
            ),
            (
                Quantity::Loss,
                "0..1%+0",
                "a range whose step is 0 has no end; write a step above 0",
            ),
            (
                Quantity::Window,
                "1..1G+1",
                "that is 1073741823 values, more than 100000; write a larger step",
            ),
            (
                Quantity::Congestion,
                "bbr..cubic",
                "there is no range of these; write a list, for example cubic,bbr",
            ),
            (
                Quantity::Rtt,
                "",
                "\"\" is not a time: a number must come first; write for example 173ms, 50us or 10s",
            ),
            (
                Quantity::Rtt,
                "1ms,",
                "\"\" is not a time: a number must come first; write for example 173ms, 50us or 10s",
            ),
            (
                Quantity::Rtt,
                "1..5ms",
                "\"1\" is not a time: the unit is missing; write for example 173ms, 50us or 10s",
            ),
        ] {
            assert_eq!(
                read_values(quantity, text).unwrap_err().to_string(),
                sentence,
                "{text}"
            );
        }
    }

    #[test]
    fn numbers_step_as_quantities_do() {
        let between = |low, high, step| numbers_between(low, high, step).unwrap();
        assert_eq!(between(0.1, 3.0, None), [0.1, 0.2, 0.5, 1.0, 2.0, 3.0]);
        assert_eq!(between(1.0, 2.0, Some(0.5)), [1.0, 1.5, 2.0]);
        assert_eq!(between(4.0, 4.0, None), [4.0]);
        for (low, high, step) in [(2.0, 1.0, None), (0.0, 1.0, None), (0.0, 1.0, Some(0.0))] {
            assert!(numbers_between(low, high, step).is_err());
        }
    }

    proptest! {
        #[test]
        fn a_range_rises_from_its_low_end_to_its_high_one(low in 1_u64..1 << 50, more in 1_u64..1 << 50) {
            for quantity in [Quantity::Bandwidth, Quantity::Window] {
                let numbers: Vec<f64> = read_values(quantity, &format!("{low}..{}", low + more))
                    .unwrap()
                    .iter()
                    .filter_map(QuantitySetting::as_number)
                    .collect();
                prop_assert_eq!(numbers.first().copied(), Some(low as f64));
                prop_assert_eq!(numbers.last().copied(), Some((low + more) as f64));
                prop_assert!(numbers.is_sorted_by(|a, b| a < b));
            }
        }

        #[test]
        fn any_text_is_values_or_an_error(
            text in "\\PC*|([0-9]{1,5}(ms|M|%|e\\+2)?(\\.\\.|,|\\+){0,2}){0,5}",
            which in 0..crate::calc::READABLE.len(),
        ) {
            if let Ok(values) = read_values(crate::calc::READABLE[which], &text) {
                prop_assert!(!values.is_empty());
            }
        }
    }
}
