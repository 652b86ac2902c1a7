use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::ExperimentError;
use crate::prelude::*;

/// Settings of both ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndSettings {
    /// Of the end that sends the data.
    pub sender: HostSettings,
    /// Of the end that receives it.
    pub receiver: HostSettings,
}

/// True if the user asked to stop. A measurement under way is ended cleanly and kept.
#[derive(Debug, Clone, Copy)]
pub struct Interrupt<'f>(pub &'f AtomicBool);

impl Interrupt<'_> {
    /// True if it was asked.
    pub fn is_requested(self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The hosts and the path that the loop works on.
pub trait ExperimentTarget {
    /// The path in the direction of the data.
    fn path(&self) -> &Path;

    /// Settings of both ends, read now.
    ///
    /// # Errors
    /// If one cannot be read.
    fn end_settings(&self) -> Result<EndSettings, ExperimentError>;

    /// One measurement.
    ///
    /// # Errors
    /// If it fails. One that was interrupted is no failure.
    fn measure(
        &self,
        request: &Request,
        interrupt: Interrupt<'_>,
        progress: &mut dyn FnMut(&Interval),
    ) -> Result<Measurement, ExperimentError>;

    /// Changes the settings of one end; what is no host's to change is passed over.
    ///
    /// # Errors
    /// If a change is refused or not kept; then none is made.
    fn apply_changes(&self, at: At, changes: &[Change]) -> Result<(), ExperimentError>;

    /// Undoes every change.
    ///
    /// # Errors
    /// If something is not as it was left.
    fn undo_changes(&self) -> Result<(), ExperimentError>;
}
