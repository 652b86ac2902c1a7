//! A transfer that flags state, as a scenario of one step.

use fullpipe_lab::check_congestion_control;
use fullpipe_scenario::{Scenario, ScenarioStep};

use crate::commands::emulated::EmulatedArguments;
use crate::commands::prelude::*;
use crate::commands::simulate::PathLists;
use crate::commands::stated::{EndSystems, LoadArguments, LoadLists, PredictionFlags};
use crate::commands::up::describe_path;

/// The groups of flags that state a transfer.
pub(super) const STATED_GROUPS: [&str; 5] = [
    "EmulatedArguments",
    "PathLists",
    "LoadArguments",
    "LoadLists",
    "EndSystems",
];

/// Path, hosts and load of one transfer, by the flags of `simulate`.
#[derive(Debug, Args)]
pub(super) struct StatedTransfer {
    #[command(flatten)]
    emulated: EmulatedArguments,
    #[command(flatten)]
    lists: PathLists,
    #[command(flatten)]
    amount: LoadArguments,
    #[command(flatten)]
    load: LoadLists,
    #[command(flatten)]
    systems: EndSystems,
    #[command(flatten)]
    predicted: PredictionFlags,
}

impl StatedTransfer {
    /// Returns a scenario of one step.
    ///
    /// # Errors
    /// Fails if a flag has no effect in a lab, if a quantity has several values, if the path cannot
    /// be, or, unless it `is_virtual`, if this machine lacks the congestion control.
    pub(super) fn to_scenario(&self, is_virtual: bool) -> Result<Scenario> {
        if self.systems.stated_ends() != [false, false] {
            return Err(usage_failure(OWN_KERNEL));
        }
        self.predicted.check_absent()?;
        let combinations = self.lists.combinations(self.load.quantity_lists())?;
        let [one] = &combinations[..] else {
            return Err(usage_failure(ONE_TRANSFER));
        };
        let request = one.to_request(self.amount.to_request(&self.load))?;
        if let Some(control) = request.congestion.as_deref().filter(|_| !is_virtual) {
            check_congestion_control(control)?;
        }
        let path = self.emulated.path_with(&one.path)?;
        let [sender, receiver] = self.emulated.host_changes()?;
        let step = ScenarioStep {
            request,
            ..ScenarioStep::with_name("transfer".to_owned())
        };
        Ok(Scenario {
            name: "stated".to_owned(),
            title: describe_path(&path),
            source: None,
            path,
            stretches: None,
            seed: 1,
            sender,
            receiver,
            relay: Vec::new(),
            steps: vec![step],
            bounds: Vec::new(),
            controls: Vec::new(),
        })
    }
}

const OWN_KERNEL: &str = "both hosts of a lab run this machine's Linux, so that --sender-os, --receiver-os and --quic \
                          have no effect there; leave them out, or ask `fullpipe simulate`, which models other systems";

const ONE_TRANSFER: &str = "`lab run` runs one transfer: give each quantity one value, write a scenario with a step for \
                            each, or ask `fullpipe simulate`, which takes lists";
