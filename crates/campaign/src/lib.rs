//! The plan of a sweep over windows and streams: runs so far in, the next run or the knee out.
//!
//! A campaign looks for the knee: the cheapest setting, by streams × window, that has 95 % of the best rate.

mod answer;
mod cost;
mod grid;
mod judged;
mod order;
mod plan;
mod segment;
mod shape;
mod surface;

pub use cost::{Length, run_cost, spent};
pub use grid::Grid;
pub use plan::{End, Next, Plan};
