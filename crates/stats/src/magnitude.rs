use fullpipe_units::{BitRate, ByteCount, Ratio, SegCount, Span};

/// A quantity that is compared by its ratios: a rate, a time, a size, a count.
pub trait Magnitude: Copy {
    /// Returns the value in any fixed unit, zero or larger.
    fn magnitude(self) -> f64;
}

impl Magnitude for BitRate {
    fn magnitude(self) -> f64 {
        self.as_f64()
    }
}

impl Magnitude for ByteCount {
    fn magnitude(self) -> f64 {
        self.as_f64()
    }
}

impl Magnitude for SegCount {
    fn magnitude(self) -> f64 {
        self.get() as f64
    }
}

impl Magnitude for Span {
    fn magnitude(self) -> f64 {
        self.as_nanos() as f64
    }
}

impl Magnitude for Ratio {
    fn magnitude(self) -> f64 {
        self.get()
    }
}

/// Returns the natural logarithm; `None` of zero.
pub(crate) fn natural_log(value: impl Magnitude) -> Option<f64> {
    let value = value.magnitude();
    (value > 0.0).then(|| libm::log(value))
}

/// Returns the ratio of which `log` is the natural logarithm.
pub(crate) fn ratio_from_log(log: f64) -> Ratio {
    Ratio::new(libm::exp(log))
}
