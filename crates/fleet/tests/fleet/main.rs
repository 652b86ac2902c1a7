//! A fleet without sockets: turns of a mesh, and months of agents and controllers with every fault.

mod changes;
mod ledger;
mod planner;
mod simulation;
