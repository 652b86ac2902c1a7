//! The plan of a sweep over windows and streams: runs so far in, the next run or the knee out, and
//! what the runs show of dips, of round trips and of streams that depend on each other.
//!
//! A campaign looks for the knee: the cheapest setting, by streams × window, that has 95 % of the
//! best rate.

mod answer;
mod cost;
mod dips;
mod figures;
mod forecast;
mod grid;
mod judged;
mod left_out;
mod order;
mod plan;
mod random;
mod segment;
mod shape;
mod surface;

pub use cost::{RunLength, run_cost, spent_cost};
pub use dips::find_dips;
pub use figures::{growth_of_rtt, stream_variance_ratio};
pub use grid::SweepGrid;
pub use plan::{CampaignEnd, CampaignPlan, CampaignStep};
