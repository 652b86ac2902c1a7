//! Figures in JSON of other programs: whatever is missing, negative or no number is not known.

use fullpipe_units::{BitRate, ByteCount, Ratio, SegCount, Span};
use serde_json::Value;

/// Reads figures of a value by their names.
pub(super) trait JsonFields {
    /// Returns a number that is not negative.
    fn number_field(&self, name: &str) -> Option<f64>;

    /// Returns a text; empty if there is none.
    fn string_field(&self, name: &str) -> &str;

    fn rate_field(&self, name: &str) -> Option<BitRate> {
        self.number_field(name).map(BitRate::from_bps_f64)
    }

    fn bytes_field(&self, name: &str) -> Option<ByteCount> {
        self.number_field(name).map(ByteCount::from_f64)
    }

    /// Returns a size, which is zero where it is not known.
    fn known_bytes_field(&self, name: &str) -> Option<ByteCount> {
        self.bytes_field(name)
            .filter(|bytes| *bytes > ByteCount::ZERO)
    }

    /// Returns a time in µs, which is zero where it is not known.
    fn known_micros_field(&self, name: &str) -> Option<Span> {
        self.number_field(name)
            .filter(|micros| *micros > 0.0)
            .map(|micros| Span::from_micros(micros as u64))
    }

    fn segments_field(&self, name: &str) -> Option<SegCount> {
        self.number_field(name)
            .map(|number| SegCount::new(number as u64))
    }

    fn seconds_field(&self, name: &str) -> Option<Span> {
        self.number_field(name).map(Span::from_secs_f64)
    }

    fn percent_field(&self, name: &str) -> Option<Ratio> {
        self.number_field(name)
            .map(|percent| Ratio::new(percent / 100.0))
    }
}

impl JsonFields for Value {
    fn number_field(&self, name: &str) -> Option<f64> {
        self[name]
            .as_f64()
            .filter(|number| number.is_finite() && *number >= 0.0)
    }

    fn string_field(&self, name: &str) -> &str {
        self[name].as_str().unwrap_or_default()
    }
}
