//! Many questions at once: every combination of what was given as lists.

use std::num::NonZeroUsize;

use crate::window;
use fullpipe_record::{Combination, Inputs, Quantity};

use super::calculate::WINDOW_AND_BUFFER;
use super::case::{HostPair, estimate_inputs, round_trip};
use super::{InputError, QuantitySetting};

/// The quantities that bound what is in flight.
const WINDOWS: [Quantity; 5] = [
    Quantity::Window,
    Quantity::Buffer,
    Quantity::Sndbuf,
    Quantity::Rcvbuf,
    Quantity::AppWindow,
];

/// The values that every combination has, and the lists of which it has one value each. The last
/// list varies fastest.
#[derive(Debug, Clone, Default)]
pub struct CombinationAxes {
    fixed: Inputs,
    lists: Vec<Vec<QuantitySetting>>,
}

impl CombinationAxes {
    /// `values` is what [`super::read_values`] gave for each quantity; what has one value goes to
    /// `fixed`.
    ///
    /// # Errors
    /// A window and a buffer together.
    pub fn new(
        mut fixed: Inputs,
        values: impl IntoIterator<Item = Vec<QuantitySetting>>,
    ) -> Result<Self, InputError> {
        let values: Vec<Vec<QuantitySetting>> = values.into_iter().collect();
        let [has_window, has_buffer] = [Quantity::Window, Quantity::Buffer].map(|quantity| {
            let mut settings = values.iter().flatten();
            settings.any(|setting| setting.quantity() == quantity)
        });
        if has_window && has_buffer {
            return Err(InputError::new(WINDOW_AND_BUFFER));
        }
        let mut lists = Vec::new();
        for list in values {
            match list.as_slice() {
                [one] => one.apply_to(&mut fixed),
                [] => {}
                _ => lists.push(list),
            }
        }
        Ok(Self { fixed, lists })
    }

    /// The values that every combination has.
    pub fn fixed_inputs(&self) -> &Inputs {
        &self.fixed
    }

    /// Returns true if there is any list.
    pub fn is_table(&self) -> bool {
        !self.lists.is_empty()
    }

    /// Returns true if no round-trip time is given and none follows: that takes a rate and a window,
    /// or a rate and loss.
    pub fn lacks_rtt(&self) -> bool {
        let [has_rate, has_window] = [self.has_rate(), self.has_window()];
        if self.fixed.rate.is_some() || self.fixed.time.is_some() {
            return false;
        }
        let follows = has_window || self.has_quantity(Quantity::Loss);
        !self.has_round_trip() && (has_rate && !follows || has_window && !has_rate)
    }

    /// Returns true if the round-trip time follows from a rate and a window.
    pub fn infers_rtt(&self) -> bool {
        !self.has_round_trip() && self.has_rate() && self.has_window()
    }

    fn has_round_trip(&self) -> bool {
        self.has_quantity(Quantity::Rtt) || self.has_quantity(Quantity::Distance)
    }

    fn has_rate(&self) -> bool {
        self.has_quantity(Quantity::Bandwidth)
            || self.fixed.rate.is_some()
            || self.fixed.time.is_some()
    }

    fn has_window(&self) -> bool {
        WINDOWS
            .into_iter()
            .any(|quantity| self.has_quantity(quantity))
    }

    /// Returns the same with each of these round-trip times.
    #[must_use]
    pub fn over_round_trips(mut self, values: Vec<QuantitySetting>) -> Self {
        self.lists.push(values);
        self
    }

    /// Each combination with what it comes to.
    ///
    /// # Errors
    /// More combinations than `most`, or no round-trip time.
    pub fn combination_table(
        &self,
        hosts: &HostPair,
        most: NonZeroUsize,
    ) -> Result<Vec<Combination>, InputError> {
        self.check_combinations(|_| false)?;
        let count = self.len();
        if count > most.get() as u64 {
            return Err(InputError::new(format!(
                "that is {count} combinations, more than {most} to print so; take shorter lists, or --csv"
            )));
        }
        Ok((0..count)
            .map(|index| self.combination_at(index, hosts))
            .collect())
    }

    fn combination_at(&self, index: u64, hosts: &HostPair) -> Combination {
        let mut inputs = self.fixed.clone();
        self.combination_settings(index)
            .for_each(|setting| setting.apply_to(&mut inputs));
        let bdp = inputs
            .bandwidth
            .zip(round_trip(&inputs))
            .map(|(rate, rtt)| window::bdp(rate, rtt));
        Combination {
            estimate: estimate_inputs(&inputs, hosts),
            bdp,
            inputs,
        }
    }

    /// Refuses lists of which no combination can be calculated; `in_file` has the quantities that a
    /// file gives in addition.
    pub(crate) fn check_combinations(
        &self,
        in_file: impl Fn(Quantity) -> bool,
    ) -> Result<(), InputError> {
        let [has_rtt, has_distance, has_window, has_buffer] = [
            Quantity::Rtt,
            Quantity::Distance,
            Quantity::Window,
            Quantity::Buffer,
        ]
        .map(|quantity| self.has_quantity(quantity) || in_file(quantity));
        if !has_rtt && !has_distance {
            return Err(InputError::new(
                "a table needs --rtt or --distance, as in --rtt 10ms..200ms",
            ));
        }
        if self.checked_len().is_none() {
            return Err(InputError::new(
                "the lists have more combinations than can be counted; take shorter ones",
            ));
        }
        if has_window && has_buffer {
            return Err(InputError::new(WINDOW_AND_BUFFER));
        }
        Ok(())
    }

    /// Returns true if every combination has a value of `quantity`.
    pub(crate) fn has_quantity(&self, quantity: Quantity) -> bool {
        QuantitySetting::from_inputs(quantity, &self.fixed).is_some()
            || self.listed_quantities().any(|listed| listed == quantity)
    }

    /// Returns the number of combinations; `u64::MAX` if there are more than can be counted, which
    /// [`CombinationAxes::check_combinations`] refuses.
    pub(crate) fn len(&self) -> u64 {
        self.checked_len().unwrap_or(u64::MAX)
    }

    fn checked_len(&self) -> Option<u64> {
        self.lists.iter().try_fold(1_u64, |product, list| {
            product.checked_mul(list.len() as u64)
        })
    }

    /// The quantities that have a list, in order.
    pub(crate) fn listed_quantities(&self) -> impl Iterator<Item = Quantity> {
        self.lists
            .iter()
            .filter_map(|list| list.first())
            .map(QuantitySetting::quantity)
    }

    /// For each list the index of its value in combination `index`.
    pub(crate) fn list_positions(&self, index: u64) -> impl Iterator<Item = usize> {
        let mut after = self.len();
        let mut rest = index;
        self.lists.iter().map(move |list| {
            after /= list.len() as u64;
            let position = rest / after;
            rest %= after;
            position as usize
        })
    }

    /// The values of combination `index`, one of each list.
    pub(crate) fn combination_settings(
        &self,
        index: u64,
    ) -> impl Iterator<Item = &QuantitySetting> {
        self.lists
            .iter()
            .zip(self.list_positions(index))
            .filter_map(|(list, position)| list.get(position))
    }

    /// The lists as cells of a file.
    pub(crate) fn list_cells(&self) -> Vec<Vec<String>> {
        self.lists
            .iter()
            .map(|list| list.iter().map(QuantitySetting::to_cell).collect())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calc::read_values;
    use crate::test_fixture;

    fn axes(values: &[(Quantity, &str)]) -> CombinationAxes {
        CombinationAxes::new(
            Inputs::default(),
            values
                .iter()
                .map(|(quantity, text)| read_values(*quantity, text).unwrap()),
        )
        .unwrap()
    }

    const MANY: NonZeroUsize = NonZeroUsize::new(100_000).unwrap();

    #[test]
    fn the_last_list_varies_fastest() {
        let axes = axes(&[
            (Quantity::Rtt, "10ms,20ms"),
            (Quantity::Loss, "0"),
            (Quantity::Window, "1M,2M,3M"),
        ]);
        let table = axes
            .combination_table(&test_fixture::default_hosts(), MANY)
            .unwrap();
        let rows: Vec<String> = table
            .iter()
            .map(|row| format!("{} {}", row.inputs.rtt.unwrap(), row.inputs.window.unwrap()))
            .collect();
        assert_eq!(
            rows,
            [
                "10 ms 1 MiB",
                "10 ms 2 MiB",
                "10 ms 3 MiB",
                "20 ms 1 MiB",
                "20 ms 2 MiB",
                "20 ms 3 MiB"
            ]
        );
        assert!(table.iter().all(|row| row.inputs.loss.is_some()));
    }

    #[test]
    fn a_row_is_what_the_same_question_alone_gives() {
        let axes = axes(&[
            (Quantity::Bandwidth, "1G"),
            (Quantity::Rtt, "1ms..1s"),
            (Quantity::Streams, "1..8"),
        ]);
        for row in axes
            .combination_table(&test_fixture::default_hosts(), MANY)
            .unwrap()
        {
            let alone =
                crate::calc::calculate(&row.inputs, &test_fixture::default_hosts(), &[]).unwrap();
            assert_eq!(
                (alone.prediction.kernel_model, alone.prediction.limit),
                (row.estimate.kernel_model, row.estimate.limit)
            );
            assert_eq!(alone.prediction.bdp, row.bdp);
        }
    }

    #[test]
    fn a_window_with_a_buffer_is_refused() {
        let values = [(Quantity::Window, "1M"), (Quantity::Buffer, "1M,2M")];
        let values = values.map(|(quantity, text)| read_values(quantity, text).unwrap());
        assert!(
            CombinationAxes::new(Inputs::default(), values)
                .unwrap_err()
                .to_string()
                .starts_with("--window and --buffer")
        );
    }

    #[test]
    fn tables_that_cannot_be_are_refused_in_a_sentence() {
        let long = "1M..3M+60";
        for (values, part) in [
            (vec![(Quantity::Window, "1M,2M")], "--rtt"),
            (
                vec![(Quantity::Rtt, "1ms,2ms,3ms"), (Quantity::Window, long)],
                "combinations, more than 100000",
            ),
            (
                [Quantity::Rtt; 4]
                    .map(|quantity| (quantity, "1us..1s+11us"))
                    .to_vec(),
                "counted",
            ),
        ] {
            let stated = axes(&values)
                .combination_table(&test_fixture::default_hosts(), MANY)
                .unwrap_err()
                .to_string();
            assert!(stated.contains(part), "{stated}");
        }
    }
}
