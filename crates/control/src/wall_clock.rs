use std::time::{SystemTime, UNIX_EPOCH};

/// Returns the seconds since 1970-01-01 UTC by this host's clock, as tokens and proofs state them.
pub fn wall_clock() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
