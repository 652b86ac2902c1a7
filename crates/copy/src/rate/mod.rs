//! Rates of a copy, as far as samples of its connections decide them: the rate of a copy that gives
//! way to all other traffic ([`ScavengerControl`]), of one whose connections count as one user
//! ([`CoupledRate`]), and of one under BBR that leaves no queue ([`DelayBound`]).
//!
//! Pure: no module of this folder touches a clock, a file or a socket; time is an argument.

mod coupling;
mod delay_bound;
#[cfg(test)]
mod fluid_test;
mod rounds;
mod scavenger;

pub(crate) use coupling::CoupledRate;
pub(crate) use delay_bound::DelayBound;
pub(crate) use rounds::{StreamsSample, unsmoothed_rtt};
pub(crate) use scavenger::ScavengerControl;
