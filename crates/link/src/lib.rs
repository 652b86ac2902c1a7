//! The emulated path, without a clock: what happens to packets between two hosts.
//!
//! A [`Direction`] takes trains of packets in and gives them out again, late and maybe fewer. Time is an argument of
//! every call, so the same code runs in real time (the laboratory) and in virtual time (the simulator), and the two
//! cannot disagree about a queue or a loss. Every packet passes four stages, in this order:
//!
//! 1. **Loss.** Each packet is lost with the same probability, independently of every other.
//! 2. **Queue.** Drop-tail, in bytes as the path's framing counts them. What was accepted and has not been sent to its
//!    last bit counts against the limit; a packet that finds the link idle is always accepted.
//! 3. **Rate.** Packets are sent one after the other at the rate of the bottleneck.
//! 4. **Delay.** Each packet arrives a constant time after its last bit was sent, in the order in which it was sent.
//!
//! A lost packet therefore takes no room in the queue and no time on the link, as on a path whose losses lie before
//! its bottleneck. What a train does in a stage is what its packets would do one by one.
//!
//! Everything happens at its own logical time: a train's departure and arrival are fixed when it is offered, from the
//! time of the offer alone. When, and how often, a driver calls [`Direction::pop`] changes nothing.

mod bottleneck;
mod counters;
mod direction;
mod loss;
mod train;

pub use counters::{Counters, Tally};
pub use direction::{Delivery, Direction, Outcome};
pub use train::Train;
