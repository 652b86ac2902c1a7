//! Error rates of what this crate states, in simulated campaigns and histories with ten kinds of
//! noise.

mod changes;
mod correlation;
mod differences;
mod noise;
