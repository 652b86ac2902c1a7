//! Linux's TCP as a model: two ends of a connection that carries bulk data one way, without a clock
//! and without sockets.
//!
//! A [`Sender`] takes what a program writes and what the other end acknowledges, and gives
//! [`SegmentBurst`]s of segments; a [`Receiver`] takes bursts and gives [`AckSegment`]s. Time is an
//! argument of every call. Between the two lies whatever the caller puts there: a path that delays,
//! queues and loses.
//!
//! The model counts whole segments of one size, numbered from the first; there is no payload. Each
//! rule names the function of the kernel that it follows, and the versions for which it is true
//! where they differ; the kernel is 6.18 otherwise. Modelled are
//!
//! * the congestion controls Reno, CUBIC with `HyStart`, and BBR version 1, in the kernel's
//!   integers and ticks;
//! * loss detection by time (RACK) and loss probes, proportional rate reduction, timeouts with
//!   backoff, and the undoing of what was needless (DSACK, timestamps, F-RTO);
//! * trains of segments and when a sender waits to make them longer, pacing, idle times, windows
//!   that are not used;
//! * send buffers with programs that retry or sleep; receive buffers that the kernel tunes,
//!   windows, delayed and held acknowledgements.
//!
//! Not modelled are connections without selective acknowledgements, explicit congestion
//! notification, segments that are not full but for the end of a stream, limits of the host's own
//! queues, and everything that takes a processor's time.

mod clock;
mod control;
mod figures;
mod filter;
mod packet;
mod rack;
mod rate;
mod receiver;
mod scoreboard;
mod sender;
mod window;

pub use clock::{HostClock, TimestampValue};
pub use control::CongestionControl;
pub use packet::{AckSegment, SackBlocks, SegmentBurst};
pub use receiver::{AutotuningRules, Receiver, ReceiverSetup};
pub use sender::{BufferRoom, Sender, SenderSetup};
