//! Predictions for a path, two hosts and a load.
//!
//! Each formula and each kernel rule stands in a small module with its source and its range:
//!
//! * [`window`]: rate, window and round-trip time, each from the other two;
//! * [`application`]: windows that programs keep above TCP;
//! * [`calc`]: the reference calculator;
//! * [`datagrams`]: datagrams at a given rate;
//! * [`distance`]: round-trip times that fibre and routes allow;
//! * [`framing`]: payload, packets, bytes on the wire;
//! * [`host`]: rates that processors permit, as they are published;
//! * [`improvement`]: the change that removes a limit on the rate;
//! * [`kernel`]: what Linux makes of a socket buffer, by version;
//! * [`loss`]: the congestion window that a loss rate leaves;
//! * [`queue`]: what a queue adds and needs, and what an unresponsive flow or a policer leaves;
//! * [`streams`]: several streams over one path;
//! * [`ramp`]: slow start;
//! * [`short`]: transfers that end before the rate is steady;
//! * [`systems`]: operating systems that do not scale windows as they come;
//! * [`unqueued`]: loss without a queue, as a sender sees it.
//!
//! [`predict()`] puts them together and is the one predictor: a command line, a scenario
//! and a remedy all ask it; [`predict_with_cross_traffic()`] asks it about the part of the path
//! that other loads leave, and [`predict_with_relays()`] about each stretch of a path that relays
//! split. Nothing here fails: an input at the edge of its range gives a figure at the edge of its
//! own.

pub mod application;
pub mod calc;
pub mod datagrams;
pub mod distance;
pub mod framing;
pub mod host;
pub mod improvement;
pub mod kernel;
pub mod loss;
pub mod queue;
pub mod ramp;
pub mod short;
pub mod streams;
pub mod systems;
pub mod unqueued;
pub mod window;

mod ceilings;
mod connection;
mod cross_traffic;
mod formula;
mod likely;
mod notes;
mod predict;
mod prelude;
mod relays;

#[cfg(test)]
mod test_fixture;

pub use cross_traffic::{left_by_cross_traffic, predict_with_cross_traffic};
pub use likely::LikelyFactor;
pub use predict::{RateOutlook, evaluate_ceilings, predict};
pub use relays::{USUAL_RELAY_RTT, congestion_between_relays, predict_with_relays};
