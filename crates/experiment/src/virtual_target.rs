//! Virtual time as a target: the path and both hosts are modelled.

use std::cell::{Cell, RefCell};

use fullpipe_sim::{CrossTraffic, CrossTrafficResult, Simulation, SimulationPlan};

use crate::error::ExperimentError;
use crate::prelude::*;
use crate::simulated::run_to_end;
use crate::target::{EndSettings, ExperimentTarget, Interrupt};

/// A simulated path between two modelled hosts. Each measurement draws from a seed of its own, so
/// that several differ as those of a lab do; the same measurements in the same order are the same.
pub struct VirtualTarget {
    path: Path,
    seed: u64,
    measured: Cell<u64>,
    ends: RefCell<EndSettings>,
    before: EndSettings,
}

impl VirtualTarget {
    /// A target with `path` between hosts with the default settings of Linux 6.18, but for the
    /// `changes` of the sender and of the receiver.
    pub fn new(path: Path, [sender, receiver]: [&[Change]; 2], seed: u64) -> Self {
        let host = HostSettings::of_linux_6_18();
        let ends = EndSettings {
            sender: host.changed_by(sender),
            receiver: host.changed_by(receiver),
        };
        Self {
            path,
            seed,
            measured: Cell::new(0),
            ends: RefCell::new(ends.clone()),
            before: ends,
        }
    }

    /// One measurement while other loads share the path, which exists for `lead` when it begins.
    /// Returns the results of those, too.
    ///
    /// # Errors
    /// If something is not modelled, or it is interrupted.
    pub(crate) fn measure_with(
        &self,
        request: &Request,
        (lead, cross_traffic): (Span, Vec<CrossTraffic>),
        interrupt: Interrupt<'_>,
        progress: &mut dyn FnMut(&Interval),
    ) -> Result<(Measurement, Vec<CrossTrafficResult>), ExperimentError> {
        let seed = self
            .seed
            .wrapping_add(self.measured.replace(self.measured.get() + 1));
        let EndSettings { sender, receiver } = self.ends.borrow().clone();
        let plan =
            SimulationPlan::new(self.path.clone(), [sender, receiver], request.clone(), seed);
        let mut simulation = Simulation::new(SimulationPlan {
            lead,
            cross_traffic,
            ..plan
        })?;
        run_to_end(&mut simulation, interrupt)?;
        let (measurement, results) = simulation.measure_with_cross_traffic();
        measurement.intervals.iter().for_each(progress);
        Ok((measurement, results))
    }
}

impl ExperimentTarget for VirtualTarget {
    fn path(&self) -> &Path {
        &self.path
    }

    fn end_settings(&self) -> Result<EndSettings, ExperimentError> {
        Ok(self.ends.borrow().clone())
    }

    fn measure(
        &self,
        request: &Request,
        interrupt: Interrupt<'_>,
        progress: &mut dyn FnMut(&Interval),
    ) -> Result<Measurement, ExperimentError> {
        Ok(self
            .measure_with(request, (Span::ZERO, Vec::new()), interrupt, progress)?
            .0)
    }

    fn apply_changes(&self, at: At, changes: &[Change]) -> Result<(), ExperimentError> {
        let mut ends = self.ends.borrow_mut();
        let end = match at {
            At::Sender => &mut ends.sender,
            At::Receiver => &mut ends.receiver,
            At::Path | At::Middlebox | At::None => return Ok(()),
        };
        *end = end.changed_by(changes);
        Ok(())
    }

    fn undo_changes(&self) -> Result<(), ExperimentError> {
        self.ends.replace(self.before.clone());
        Ok(())
    }
}
