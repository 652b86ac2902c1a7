/// The least or greatest value in a window of time, from three samples (`lib/minmax.c`).
///
/// Kathleen Nichols' algorithm: exact where values rise and fall slowly, and close where they do
/// not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct MinMaxFilter {
    samples: [FilterSample; 3],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct FilterSample {
    time: u64,
    value: u64,
}

impl MinMaxFilter {
    /// A filter whose value is `value` since `time`.
    pub(crate) const fn new(time: u64, value: u64) -> Self {
        Self {
            samples: [FilterSample { time, value }; 3],
        }
    }

    pub(crate) const fn best_value(&self) -> u64 {
        self.samples[0].value
    }

    /// Takes a sample into a filter for the greatest value (`minmax_running_max`).
    pub(crate) fn raise_max(&mut self, window: u64, time: u64, value: u64) {
        self.update_samples(window, FilterSample { time, value }, |new, old| new >= old);
    }

    /// Takes a sample into a filter for the least value (`minmax_running_min`).
    pub(crate) fn lower_min(&mut self, window: u64, time: u64, value: u64) {
        self.update_samples(window, FilterSample { time, value }, |new, old| new <= old);
    }

    fn update_samples(
        &mut self,
        window: u64,
        new: FilterSample,
        better: impl Fn(u64, u64) -> bool,
    ) {
        let [first, second, third] = self.samples;
        if better(new.value, first.value) || new.time.saturating_sub(third.time) > window {
            self.samples = [new; 3];
            return;
        }
        if better(new.value, second.value) {
            self.samples = [first, new, new];
        } else if better(new.value, third.value) {
            self.samples = [first, second, new];
        }
        self.age_samples(window, new);
    }

    /// `minmax_subwin_update`: the second and third choice come from later parts of the window.
    fn age_samples(&mut self, window: u64, new: FilterSample) {
        let [first, second, third] = self.samples;
        let age = new.time.saturating_sub(first.time);
        if age > window {
            self.samples = [second, third, new];
            if new.time.saturating_sub(second.time) > window {
                self.samples = [third, new, new];
            }
        } else if second.time == first.time && age > window / 4 {
            self.samples = [first, new, new];
        } else if third.time == second.time && age > window / 2 {
            self.samples = [first, second, new];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_greatest_of_ten_rounds_is_forgotten_after_them() {
        let mut filter = MinMaxFilter::new(0, 0);
        let mut seen = Vec::new();
        for round in 1..=14 {
            filter.raise_max(10, round, if round == 2 { 9 } else { round.min(5) });
            seen.push(filter.best_value());
        }
        assert_eq!(seen, [1, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 5, 5]);
    }

    #[test]
    fn the_least_is_kept_for_its_window() {
        let mut filter = MinMaxFilter::new(0, u64::MAX);
        for (time, value, least) in [
            (1, 40, 40),
            (2, 30, 30),
            (3, 50, 30),
            (200, 35, 30),
            (303, 60, 35),
        ] {
            filter.lower_min(300, time, value);
            assert_eq!(filter.best_value(), least, "{time}");
        }
    }
}
