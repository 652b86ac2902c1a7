use std::time::{SystemTime, UNIX_EPOCH};

/// Returns the Unix time of this host's clock in whole seconds since 1970-01-01 00:00:00 UTC, which
/// login tokens carry; 0 if the clock shows an earlier time.
pub fn unix_seconds() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since_epoch| since_epoch.as_secs())
}
