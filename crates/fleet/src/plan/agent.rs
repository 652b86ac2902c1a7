use std::collections::BTreeMap;

use fullpipe_units::ByteCount;
use serde::{Deserialize, Serialize};

use super::message::{PollAnswer, SlotOrder, SlotReport, SlotTicket};
use super::policy::AgentPolicy;
use super::slot::{Slot, SlotOutcome};

/// Largest difference to the controller's clock with which an agent takes part, in milliseconds.
pub const MAX_OFFSET_MS: u64 = 1000;

/// Seconds for which a slot that has ended counts for the bytes of its day.
const REMEMBERED: u64 = 2 * 86_400;

/// A slot of an agent, as it keeps it on its disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentSlot {
    /// What the controller said.
    pub order: SlotOrder,
    /// What became of it.
    pub state: AgentSlotState,
}

/// What became of a slot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AgentSlotState {
    /// Its time has not come.
    Waiting,
    /// Its test runs.
    Running,
    /// It has ended, which the controller does not know yet.
    Ended(SlotReport),
    /// The controller knows how it ended.
    Confirmed(SlotReport),
}

/// What an agent does next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AgentStep {
    /// The test of a slot.
    Run(Box<SlotOrder>),
    /// Nothing until then, in seconds since 1970; `None` until the controller says more.
    Wait(Option<u64>),
}

/// What an agent knows. Each change is returned as a slot that its disk must have before the agent
/// acts on it.
#[derive(Debug, Clone)]
pub struct AgentState {
    host: String,
    policy: AgentPolicy,
    slots: BTreeMap<String, AgentSlot>,
    /// What the controller's clock showed, and the steady clock then.
    controller: Option<(u64, u64)>,
}

/// The clocks of an agent, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AgentClock {
    /// Time since 1970, which somebody may set.
    pub wall_ms: u64,
    /// Time since some moment, which nobody sets.
    pub steady_ms: u64,
}

impl AgentClock {
    /// Returns the seconds since 1970.
    pub fn seconds(self) -> u64 {
        self.wall_ms / 1000
    }
}

/// What changed at the agent, for its disk.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AgentChanges {
    /// Slots that are new or have changed.
    pub kept: Vec<AgentSlot>,
    /// Slots that are no more.
    pub dropped: Vec<String>,
}

impl AgentState {
    /// Returns the state of an agent that starts with what its disk has. A test that ran when it
    /// ended has failed.
    pub fn restored(host: &str, policy: AgentPolicy, disk: Vec<AgentSlot>) -> (Self, AgentChanges) {
        let mut state = Self {
            host: host.to_owned(),
            policy,
            slots: BTreeMap::new(),
            controller: None,
        };
        let mut changes = AgentChanges::default();
        for slot in disk {
            let id = slot.order.slot.id.clone();
            let was_running = slot.state == AgentSlotState::Running;
            state.slots.insert(id.clone(), slot);
            if was_running {
                let why = "the agent ended while the test ran";
                changes
                    .kept
                    .extend(state.end_slot(&id, SlotOutcome::Failed, why));
            }
        }
        (state, changes)
    }

    /// Takes what a controller answered.
    pub fn take_answer(&mut self, answer: &PollAnswer, clock: AgentClock) -> AgentChanges {
        self.controller = Some((answer.clock_ms, clock.steady_ms));
        let mut changes = self.confirm_reports(&answer.confirmed);
        // By the controller's clock: where this one is wrong, what is past is not taken back.
        changes.dropped = self.drop_cancelled(&answer.orders, answer.clock_ms / 1000);
        let mut orders: Vec<&SlotOrder> = answer.orders.iter().collect();
        // The bytes of a day are for the first.
        orders.sort_by_key(|order| order.slot.starts);
        for order in orders {
            changes.kept.extend(self.take_order(order));
        }
        changes
    }

    fn confirm_reports(&mut self, confirmed: &[String]) -> AgentChanges {
        let mut changes = AgentChanges::default();
        for id in confirmed {
            let Some(slot) = self.slots.get_mut(id) else {
                continue;
            };
            if let AgentSlotState::Ended(report) = &slot.state {
                slot.state = AgentSlotState::Confirmed(report.clone());
                changes.kept.push(slot.clone());
            }
        }
        changes
    }

    /// Drops slots that the controller has taken back, and those that ended days ago.
    fn drop_cancelled(&mut self, orders: &[SlotOrder], now: u64) -> Vec<String> {
        let is_dropped = |slot: &AgentSlot| match slot.state {
            AgentSlotState::Waiting => {
                slot.order.slot.starts > now
                    && !orders
                        .iter()
                        .any(|order| order.slot.id == slot.order.slot.id)
            }
            AgentSlotState::Confirmed(_) => slot.order.slot.ends + REMEMBERED < now,
            AgentSlotState::Running | AgentSlotState::Ended(_) => false,
        };
        let dropped = self.slots.extract_if(.., |_, slot| is_dropped(slot));
        dropped.map(|(id, _)| id).collect()
    }

    /// Takes a slot, or its ticket; one that the policy forbids has ended with that.
    fn take_order(&mut self, order: &SlotOrder) -> Option<AgentSlot> {
        if let Some(known) = self.slots.get_mut(&order.slot.id) {
            let is_new = known.state == AgentSlotState::Waiting && known.order != *order;
            if is_new {
                known.order.ticket.clone_from(&order.ticket);
                known.order.reach.clone_from(&order.reach);
            }
            return is_new.then(|| known.clone());
        }
        let granted = self.bytes_of_day(order.slot.starts);
        let refusal = self.policy.refusal(&self.host, &order.slot, granted);
        let slot = AgentSlot {
            order: order.clone(),
            state: AgentSlotState::Waiting,
        };
        self.slots.insert(order.slot.id.clone(), slot.clone());
        match refusal {
            Some(why) => self.end_slot(&order.slot.id, SlotOutcome::Refused, &why),
            None => Some(slot),
        }
    }

    /// Returns the bytes that are granted or carried on the day of a time.
    fn bytes_of_day(&self, time: u64) -> ByteCount {
        let day = |time: u64| time / 86_400;
        let of_day = self.slots.values();
        let of_day = of_day.filter(|slot| day(slot.order.slot.starts) == day(time));
        of_day
            .map(|slot| match &slot.state {
                AgentSlotState::Waiting | AgentSlotState::Running => slot.order.slot.load.bytes,
                AgentSlotState::Ended(report) | AgentSlotState::Confirmed(report) => report.bytes,
            })
            .sum()
    }

    /// Returns the slots in which others may connect to this host and have no ticket for that yet.
    pub fn unticketed(&self, now: u64) -> Vec<&Slot> {
        self.waiting()
            .filter(|slot| slot.starts > now && slot.server == self.host)
            .filter(|slot| self.slots[&slot.id].order.ticket.is_none())
            .collect()
    }

    /// Notes the ticket of a slot.
    pub fn take_ticket(&mut self, ticket: &SlotTicket) -> Option<AgentSlot> {
        let slot = self.slots.get_mut(&ticket.slot)?;
        slot.order.ticket = Some(ticket.ticket.clone());
        Some(slot.clone())
    }

    /// Returns the tickets that this host has given, for the controller.
    pub fn given_tickets(&self, now: u64) -> Vec<SlotTicket> {
        let slots = self.waiting().filter(|slot| slot.server == self.host);
        let slots = slots.filter(|slot| slot.starts > now);
        slots
            .filter_map(|slot| {
                Some(SlotTicket {
                    slot: slot.id.clone(),
                    ticket: self.slots[&slot.id].order.ticket.clone()?,
                })
            })
            .collect()
    }

    fn waiting(&self) -> impl Iterator<Item = &Slot> {
        let waiting = self.slots.values();
        let waiting = waiting.filter(|slot| slot.state == AgentSlotState::Waiting);
        waiting.map(|slot| &slot.order.slot)
    }

    /// Returns what is to be done now, with the slots whose time has passed.
    pub fn next_step(&mut self, clock: AgentClock) -> (AgentStep, AgentChanges) {
        let now = clock.seconds();
        let mut changes = AgentChanges::default();
        let waiting = self.waiting();
        let passed: Vec<Slot> = waiting
            .filter(|slot| slot.starts + Slot::LATEST < now)
            .cloned()
            .collect();
        for slot in passed {
            changes.kept.extend(self.pass_slot(&slot, now));
        }
        let mut slots = self.slots.values();
        let is_running = slots.any(|slot| slot.state == AgentSlotState::Running);
        let own = self.waiting().filter(|slot| slot.client == self.host);
        let next = own.min_by_key(|slot| slot.starts).cloned();
        let step = match next {
            Some(slot) if slot.starts <= now && !is_running => {
                match self.begin_slot(&slot, clock, &mut changes) {
                    Some(order) => AgentStep::Run(Box::new(order)),
                    None => AgentStep::Wait(Some(now)),
                }
            }
            next => AgentStep::Wait(next.map(|slot| slot.starts.max(now + 1))),
        };
        (step, changes)
    }

    /// Ends a slot that should have begun. Where others connect to this host they say how it ended,
    /// and here it counts with all the bytes that it may have had.
    fn pass_slot(&mut self, slot: &Slot, now: u64) -> Option<AgentSlot> {
        if slot.client == self.host {
            let why = "the agent was busy or away when it should have begun";
            return self.end_slot(&slot.id, SlotOutcome::Late, why);
        }
        let own = self.slots.get_mut(&slot.id)?;
        (slot.ends < now).then(|| {
            own.state = AgentSlotState::Confirmed(SlotReport {
                slot: slot.id.clone(),
                outcome: SlotOutcome::Unknown,
                why: String::new(),
                document: None,
                bytes: slot.load.bytes,
            });
            own.clone()
        })
    }

    /// Begins a slot, or ends it because that must not be.
    fn begin_slot(
        &mut self,
        slot: &Slot,
        clock: AgentClock,
        changes: &mut AgentChanges,
    ) -> Option<SlotOrder> {
        let has_ticket = self.slots.get(&slot.id)?.order.ticket.is_some();
        let ended = if let Some(why) = self.clock_refusal(clock) {
            self.end_slot(&slot.id, SlotOutcome::Refused, &why)
        } else if !has_ticket {
            let why = format!("{} has not agreed", slot.server);
            self.end_slot(&slot.id, SlotOutcome::NoShow, &why)
        } else {
            let own = self.slots.get_mut(&slot.id)?;
            own.state = AgentSlotState::Running;
            changes.kept.push(own.clone());
            return Some(own.order.clone());
        };
        changes.kept.extend(ended);
        None
    }

    /// Returns why this host's clock keeps it from tests; `None` if it does not.
    fn clock_refusal(&self, clock: AgentClock) -> Option<String> {
        let host = &self.host;
        let Some(offset_ms) = self.offset_ms(clock) else {
            return Some(format!(
                "the clock of {host} has not been compared with the controller's since the agent started"
            ));
        };
        let offset_ms = offset_ms.unsigned_abs();
        (offset_ms > MAX_OFFSET_MS).then(|| {
            let seconds = offset_ms as f64 / 1e3;
            format!("the clock of {host} differs from the controller's by {seconds:.1} s")
        })
    }

    /// Ends a slot whose test is over. The document, if there is one, is on the disk with this
    /// change or not at all.
    pub fn end_run(&mut self, report: SlotReport) -> Option<AgentSlot> {
        let slot = self.slots.get_mut(&report.slot)?;
        slot.state = AgentSlotState::Ended(report);
        Some(slot.clone())
    }

    fn end_slot(&mut self, id: &str, outcome: SlotOutcome, why: &str) -> Option<AgentSlot> {
        self.end_run(SlotReport {
            slot: id.to_owned(),
            outcome,
            why: why.to_owned(),
            document: None,
            bytes: ByteCount::ZERO,
        })
    }

    /// Returns what the controller does not know yet, the oldest first.
    pub fn unconfirmed(&self) -> impl Iterator<Item = &SlotReport> {
        self.slots.values().filter_map(|slot| match &slot.state {
            AgentSlotState::Ended(report) => Some(report),
            _ => None,
        })
    }

    /// Returns the milliseconds by which the controller's clock is ahead; `None` before it is
    /// known. The steady clock tells it between two answers, so that a clock that is set is noticed
    /// at once.
    pub fn offset_ms(&self, clock: AgentClock) -> Option<i64> {
        let (controller_ms, steady_ms) = self.controller?;
        let elapsed = clock.steady_ms.saturating_sub(steady_ms);
        Some((controller_ms + elapsed).cast_signed() - clock.wall_ms.cast_signed())
    }
}
