//! Captured segments with their times → connections: what each end sent, what was lost, reordered
//! or missing, the windows that were advertised, round-trip times, where on the path the capture
//! was taken, and what the sender had in flight; and the connections of two captures → what was
//! lost and changed between them.
//!
//! [`FlowTable`] takes segments in the order of their times, in one pass, and keeps a bounded
//! amount for each connection. No file and no clock: a capture, a lab and a simulator can all feed
//! it.

mod bins;
mod both;
mod changes;
mod clocks;
mod closing;
mod comparison;
mod counts;
mod course;
mod echoes;
mod end;
mod evidence;
mod finish;
mod flow;
mod followed;
mod intervals;
mod key;
mod loops;
mod losses;
mod packet;
mod pairs;
mod passages;
mod places;
mod rates;
mod repetitions;
mod rounds;
mod scales;
mod sending;
mod sequence;
mod sizes;
mod spans;
mod stalls;
mod table;
#[cfg(test)]
mod test_segment;
mod unacknowledged;
mod waiting;
mod windows;

pub use both::of_both;
pub use changes::window_edit;
pub use finish::{ExplainedTransfers, FinishedFlows, LeftOut, SettledFlows, TransferEvidence};
pub use packet::NumberedSegment;
pub use pairs::{FlowsWithTimes, match_flows};
pub use passages::PacketTimes;
pub use table::FlowTable;
