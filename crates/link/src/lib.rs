//! The emulated path, without a clock: what happens to packets between two hosts.
//!
//! A [`LinkDirection`] takes trains of packets in and gives them out again, late and maybe fewer.
//! Time is an argument of every call, so the same code runs in real time (the laboratory) and in
//! virtual time (the simulator), and the two cannot disagree about a queue or a loss. Every packet
//! passes these stages, in this order; those that the path's [`Effects`](fullpipe_record::Effects)
//! do not name do nothing:
//!
//! 1. **Loss.** Independent, by the chain of Gilbert and Elliott, or of listed packets: of all, or
//!    of those with data.
//! 2. **Edits.** Changes that a middlebox makes in the headers; a router drops what has no hops
//!    left, and answers the sender.
//! 3. **MTU.** A packet too big for a narrow link is dropped; the sender may get an answer.
//! 4. **Policer.** A token bucket drops what is above its rate.
//! 5. **Queue.** What was accepted and has not been sent to its last bit counts against the limit,
//!    in bytes as the path's framing counts them, or in packets; a packet that finds the link idle
//!    is always accepted. Drop-tail, the same with ECN marks above a threshold, CoDel, or FQ-CoDel.
//!    A threshold marks when a packet comes, CoDel when its turn has come.
//! 6. **Rate.** Packets are sent one after the other at the rate of the bottleneck, or at the
//!    moments of a trace.
//! 7. **Wrong bits**, 8. **copies.** Of packets that have been sent: both took their time on the
//!    link, a copy does not.
//! 9. **Delay.** Each packet arrives the path's delay and its own jitter after its last bit was
//!    sent. Unless jitter may reorder, none arrives before one that was sent before it; packets
//!    that are held back leave this order.
//!
//! A lost packet therefore takes no room in the queue and no time on the link, as on a path whose
//! losses lie before its bottleneck. What a train does in a stage is what its packets would do one
//! by one; only where they fare differently is it cut. With jitter every packet does. A driver cuts
//! the trains of the hosts before it offers them ([`LinkDirection::cut_train`]), so that none is
//! longer than a moment.
//!
//! Everything happens at its own logical time: the link chooses the next packet when the last one
//! has been sent, and the path changes when its steps say so. When, and how often, a driver calls
//! [`LinkDirection::pop_arrived`] changes nothing.
//!
//! If stages 5 to 9 are a drop-tail queue, a rate and a delay, a packet's times are computed when
//! it comes. A property test holds the result against that of the stages.

mod bottleneck;
mod chance;
mod codel;
mod counters;
mod cutting;
mod delay_line;
mod direction;
mod express;
mod fifo;
mod fq_codel;
mod jitter;
mod limit;
mod load;
mod log;
mod loss;
mod policer;
mod queue;
mod server;
mod train;

pub use counters::{DirectionCounters, PacketTally};
pub use cutting::{cut_train, packets_within, take_first};
pub use direction::{ArrivedTrain, LinkDirection, QueueOutcome};
pub use log::PacketIncident;
pub use train::{EditEffect, Train};
