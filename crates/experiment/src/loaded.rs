//! A path with its cross traffic, on which one measurement follows another.

use fullpipe_scenario::CrossTraffic;

use crate::cross_traffic::{measure_with_cross_traffic, run_with_cross_traffic};
use crate::error::ExperimentError;
use crate::in_lab::LabTarget;
use crate::prelude::*;
use crate::target::{ExperimentTarget as _, Interrupt};
use crate::virtual_target::VirtualTarget;

/// A lab or a simulation.
pub enum EmulatedTarget<'t> {
    /// A lab.
    Lab(&'t LabTarget<'t>),
    /// Virtual time.
    Virtual(&'t VirtualTarget),
}

impl EmulatedTarget<'_> {
    /// Returns the path in the direction of the data.
    pub fn path(&self) -> &Path {
        match self {
            Self::Lab(target) => target.path(),
            Self::Virtual(target) => target.path(),
        }
    }

    /// Makes one measurement while `cross_traffic` runs, whose loads with a range of rates draw
    /// from `seed`.
    ///
    /// # Errors
    /// If it fails, or something is not modelled. One that broke off or was interrupted in a lab is
    /// no failure.
    pub fn measure(
        &self,
        request: &Request,
        (cross_traffic, seed): (&[CrossTraffic], u64),
        interrupt: Interrupt<'_>,
    ) -> Result<Measurement, ExperimentError> {
        let load = (cross_traffic, seed);
        let done = match self {
            Self::Lab(target) => run_with_cross_traffic(target, load, request, interrupt, || {
                target.measure_even_part(request, interrupt)
            }),
            Self::Virtual(target) => {
                measure_with_cross_traffic(target, load, request, interrupt, &mut |_| {})
            }
        };
        Ok(done?.0)
    }
}
