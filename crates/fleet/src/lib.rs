//! Many hosts, one plan: who measures whom and when, and what became of it.
//!
//! * [`plan`] decides, without clock, files and sockets: the turns of pairs ([`plan::MeshPlanner`]),
//!   what a host lets the fleet do ([`plan::AgentPolicy`]), what an agent does next
//!   ([`plan::AgentState`]), what changed of a pair ([`plan::PairWatch`], [`plan::EchoWatch`]), and
//!   what changed pairs have in common ([`plan::group_pairs`]).
//! * [`FleetLedger`] keeps hosts, slots and what they have for themselves in the archive, so that a
//!   controller has no state of its own and any number of them may run.
//! * [`fleet_status`] is a fleet at a glance, with its incidents.
//! * [`AgentDisk`] keeps what an agent has not handed over, in an archive of its own.

mod agent;
mod disk;
mod identity;
mod ledger;
pub mod plan;
pub mod service;
mod status;

pub use agent::{Agent, AgentStorage};
pub use disk::AgentDisk;
pub use identity::{
    FleetAuthority, HostKey, IdentityError, InviteCode, SignedCertificate, certificate_hash,
};
pub use ledger::{
    Announcement, ChangedPair, FleetHost, FleetIncident, FleetLedger, InviteError, WEBHOOK,
};
pub use status::{FleetStatus, HostStatus, PairStatus, PairStatusKind, fleet_status};
