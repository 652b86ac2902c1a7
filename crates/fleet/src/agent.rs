use std::collections::BTreeSet;

use fullpipe_store::{NewDocument, StoreError};

use crate::plan::{
    AgentChanges, AgentClock, AgentPolicy, AgentSlot, AgentState, AgentStep, PollAnswer,
    PollRequest, Slot, SlotReport, SlotTicket,
};

/// What keeps an agent's slots and documents when it ends.
pub trait AgentStorage {
    /// Returns the slots that it has.
    ///
    /// # Errors
    /// Fails if it cannot be read.
    fn slots(&mut self) -> Result<Vec<AgentSlot>, StoreError>;

    /// Keeps changes, and the document that they speak of, as a whole or not at all.
    ///
    /// # Errors
    /// Fails if it refuses.
    fn keep(
        &mut self,
        changes: &AgentChanges,
        document: Option<&NewDocument>,
    ) -> Result<(), StoreError>;
}

/// An agent: its state, and the same on its disk. Where the disk refuses, the agent is of no use
/// any more: it ends, and another one goes on with what the disk has.
#[derive(Debug)]
pub struct Agent<D> {
    state: AgentState,
    disk: D,
    /// Slots whose documents the controller has.
    handed_over: BTreeSet<String>,
}

impl<D: AgentStorage> Agent<D> {
    /// Returns the agent of a host with what its disk has.
    ///
    /// # Errors
    /// Fails if the disk does.
    pub fn restored(host: &str, policy: AgentPolicy, mut disk: D) -> Result<Self, StoreError> {
        let (state, changes) = AgentState::restored(host, policy, disk.slots()?);
        disk.keep(&changes, None)?;
        Ok(Self {
            state,
            disk,
            handed_over: BTreeSet::new(),
        })
    }

    /// Returns the disk.
    pub fn disk(&mut self) -> &mut D {
        &mut self.disk
    }

    /// Returns what the agent says when it asks for its slots: not that a slot is done before its
    /// document is handed over.
    pub fn poll_request(&self, clock: AgentClock) -> PollRequest {
        let reports = self.state.unconfirmed();
        let reports = reports
            .filter(|report| report.document.is_none() || self.handed_over.contains(&report.slot));
        PollRequest {
            offset_ms: self.state.offset_ms(clock).unwrap_or(0),
            program: env!("CARGO_PKG_VERSION").to_owned(),
            reports: reports.cloned().collect(),
            tickets: self.state.given_tickets(clock.seconds()),
            ..PollRequest::default()
        }
    }

    /// Takes what a controller answered.
    ///
    /// # Errors
    /// Fails if the disk does.
    pub fn take_answer(
        &mut self,
        answer: &PollAnswer,
        clock: AgentClock,
    ) -> Result<(), StoreError> {
        let changes = self.state.take_answer(answer, clock);
        for slot in &answer.confirmed {
            self.handed_over.remove(slot);
        }
        self.disk.keep(&changes, None)
    }

    /// Returns the slots in which others may connect to this host, which await a ticket.
    pub fn unticketed(&self, clock: AgentClock) -> Vec<Slot> {
        let slots = self.state.unticketed(clock.seconds());
        slots.into_iter().cloned().collect()
    }

    /// Gives a ticket for a slot.
    ///
    /// # Errors
    /// Fails if the disk does.
    pub fn give_ticket(&mut self, ticket: &SlotTicket) -> Result<(), StoreError> {
        let kept = self.state.take_ticket(ticket);
        self.keep(kept, None)
    }

    /// Returns what is to be done now. A test that is returned is to be begun: the disk says so.
    ///
    /// # Errors
    /// Fails if the disk does.
    pub fn next_step(&mut self, clock: AgentClock) -> Result<AgentStep, StoreError> {
        let (step, changes) = self.state.next_step(clock);
        self.disk.keep(&changes, None)?;
        Ok(step)
    }

    /// Ends the test of a slot, with its document if it has one.
    ///
    /// # Errors
    /// Fails if the disk does.
    pub fn end_run(
        &mut self,
        report: SlotReport,
        document: Option<&NewDocument>,
    ) -> Result<(), StoreError> {
        let kept = self.state.end_run(report);
        self.keep(kept, document)
    }

    /// Returns slots with their documents which the controller does not have yet.
    pub fn documents_to_hand_over(&self) -> Vec<(String, String)> {
        let reports = self.state.unconfirmed();
        let reports = reports.filter(|report| !self.handed_over.contains(&report.slot));
        reports
            .filter_map(|report| Some((report.slot.clone(), report.document.clone()?)))
            .collect()
    }

    /// Notes that the controller has the document of a slot.
    pub fn note_handed_over(&mut self, slot: &str) {
        self.handed_over.insert(slot.to_owned());
    }

    fn keep(
        &mut self,
        slot: Option<AgentSlot>,
        document: Option<&NewDocument>,
    ) -> Result<(), StoreError> {
        let changes = AgentChanges {
            kept: slot.into_iter().collect(),
            dropped: Vec::new(),
        };
        self.disk.keep(&changes, document)
    }
}
