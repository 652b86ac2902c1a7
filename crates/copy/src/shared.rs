//! Numbers and flags that threads share; nothing else is ordered by them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A number.
#[derive(Debug, Default)]
pub(crate) struct SharedNumber(AtomicU64);

impl SharedNumber {
    /// Adds `amount`, and returns the value before.
    pub(crate) fn increase_by(&self, amount: u64) -> u64 {
        self.0.fetch_add(amount, Ordering::Relaxed)
    }

    pub(crate) fn set_value(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    pub(crate) fn current_value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A flag that is raised once.
#[derive(Debug, Default)]
pub(crate) struct SharedFlag(AtomicBool);

impl SharedFlag {
    /// Raises the flag, and returns true if it was raised before.
    pub(crate) fn raise_flag(&self) -> bool {
        self.0.swap(true, Ordering::Relaxed)
    }

    pub(crate) fn is_raised(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
