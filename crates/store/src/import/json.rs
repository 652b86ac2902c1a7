//! Figures in JSON of other programs: whatever is missing, negative or no number is not known.

use fullpipe_units::{BitRate, ByteCount, Ratio, SegCount, Span};
use serde_json::Value;

/// Reads figures of a value by their names.
pub(super) trait Json {
    /// Returns a number that is not negative.
    fn number(&self, name: &str) -> Option<f64>;

    /// Returns a text; empty if there is none.
    fn string(&self, name: &str) -> &str;

    fn rate(&self, name: &str) -> Option<BitRate> {
        self.number(name).map(BitRate::from_bps_f64)
    }

    fn bytes(&self, name: &str) -> Option<ByteCount> {
        self.number(name).map(ByteCount::from_f64)
    }

    fn segments(&self, name: &str) -> Option<SegCount> {
        self.number(name).map(|number| SegCount::new(number as u64))
    }

    fn seconds(&self, name: &str) -> Option<Span> {
        self.number(name).map(Span::from_secs_f64)
    }

    fn percent(&self, name: &str) -> Option<Ratio> {
        self.number(name).map(|percent| Ratio::new(percent / 100.0))
    }
}

impl Json for Value {
    fn number(&self, name: &str) -> Option<f64> {
        self[name].as_f64().filter(|number| number.is_finite() && *number >= 0.0)
    }

    fn string(&self, name: &str) -> &str {
        self[name].as_str().unwrap_or_default()
    }
}
