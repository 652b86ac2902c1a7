//! What is decided without clock, files and sockets: who measures whom and when, what a host lets
//! others do, and what an agent does next.

mod agent;
mod change;
mod echo;
mod incident;
mod mesh;
mod message;
mod planner;
mod policy;
mod slot;

pub use agent::{
    AgentChanges, AgentClock, AgentSlot, AgentSlotState, AgentState, AgentStep, MAX_OFFSET_MS,
};
pub(crate) use change::APART;
pub use change::{LevelChange, PairChange, PairRun, PairWatch};
pub use echo::{EchoWatch, LossChange};
pub use incident::{PairGroup, PairState, Scope, ScopeEnd, attribute_losses, group_pairs};
pub use mesh::{MeshCost, MeshError, MeshHost, MeshSettings, rounds_of_mesh};
pub use message::{
    EchoMinute, EchoTarget, PollAnswer, PollRequest, SlotOrder, SlotReport, SlotTicket,
};
pub use planner::{BusyTimes, DuePair, MeshPlanner, PlannedSlot};
pub use policy::{AgentPolicy, DayTime};
pub use slot::{Slot, SlotLoad, SlotOutcome, SlotPurpose};
