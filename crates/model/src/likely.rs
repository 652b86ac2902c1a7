use fullpipe_units::Ratio;

/// A factor that is known within bounds: 0 ≤ `low` ≤ `mid` ≤ `high`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LikelyFactor {
    /// The least that is likely.
    pub low: Ratio,
    /// The best single figure.
    pub mid: Ratio,
    /// The most that is likely.
    pub high: Ratio,
}

impl LikelyFactor {
    /// The interval of a rule of the kernel or of arithmetic: three percent either way, for timers,
    /// trains of segments and acknowledgements that the rule does not count.
    pub(crate) fn by_rule() -> Self {
        Self::new(0.97, 1.0, 1.03)
    }

    pub(crate) fn new(low: f64, mid: f64, high: f64) -> Self {
        Self {
            low: Ratio::new(low),
            mid: Ratio::new(mid),
            high: Ratio::new(high),
        }
    }
}
