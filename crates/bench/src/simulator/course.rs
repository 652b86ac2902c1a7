//! The figures by which two runs are compared, of the kernel or simulated alike.

use fullpipe_record::Measurement;
use fullpipe_units::median;

/// One run: what arrived, what was sent again, and the congestion window by time.
#[derive(Debug, Clone)]
pub(crate) struct Course {
    /// Mbit/s.
    pub(crate) goodput: f64,
    pub(crate) retransmits: f64,
    /// Seconds since the data began to flow, and segments, of a single stream.
    windows: Vec<(f64, f64)>,
}

impl Course {
    pub(crate) fn of(measurement: &Measurement) -> Self {
        let samples = measurement.sender().samples.iter();
        let window = |segments: u64| segments as f64;
        let windows = samples.filter_map(|sample| Some((sample.at.as_secs_f64(), window(sample.tcp.cwnd?.get()))));
        let is_single = measurement.request.streams <= 1;
        Self {
            goodput: measurement.summary.rate.as_mbps(),
            retransmits: measurement.summary.retransmits.map_or(0.0, |segments| segments.get() as f64),
            windows: if is_single { windows.collect() } else { Vec::new() },
        }
    }

    /// Returns Σ|Δcwnd| ÷ Σcwnd over the moments of this run's samples, each with the other run's sample that is
    /// nearest to it in time. `None` without samples.
    pub(crate) fn distance(&self, other: &Self) -> Option<f64> {
        let (mut apart, mut all) = (0.0, 0.0);
        for &(at, window) in &self.windows {
            apart += (window - other.window_at(at)?).abs();
            all += window;
        }
        (all > 0.0).then(|| apart / all)
    }

    fn window_at(&self, at: f64) -> Option<f64> {
        let next = self.windows.partition_point(|(time, _)| *time < at);
        let candidates = [next.checked_sub(1), Some(next)].into_iter().flatten();
        let candidates = candidates.filter_map(|index| self.windows.get(index));
        candidates.min_by(|a, b| (a.0 - at).abs().total_cmp(&(b.0 - at).abs())).map(|(_, window)| *window)
    }
}

/// Returns the medians of goodput and of retransmissions.
pub(crate) fn medians(courses: &[Course]) -> Option<[f64; 2]> {
    let of = |figure: fn(&Course) -> f64| median(courses.iter().map(figure).collect());
    Some([of(|course| course.goodput)?, of(|course| course.retransmits)?])
}

#[cfg(test)]
pub(crate) fn course(goodput: f64, retransmits: f64, windows: &[(f64, f64)]) -> Course {
    Course { goodput, retransmits, windows: windows.to_vec() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distance_is_taken_at_the_nearest_samples() {
        let kernel = course(1.0, 0.0, &[(0.051, 10.0), (0.1, 30.0)]);
        let simulated = course(1.0, 0.0, &[(0.0, 99.0), (0.05, 12.0), (0.1, 24.0)]);
        assert_eq!(kernel.distance(&simulated), Some(8.0 / 40.0));
        assert_eq!(kernel.distance(&kernel), Some(0.0));
        assert_eq!(kernel.distance(&course(1.0, 0.0, &[])), None);
    }
}
