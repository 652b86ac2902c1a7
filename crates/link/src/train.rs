use std::net::IpAddr;

use fullpipe_record::{Edit, Framing};
use fullpipe_units::{ByteCount, SegCount};

use crate::load::TrainLoad;

/// Packets that travel as one: a single packet, or the super-packet of segmentation offload, which
/// a network card would cut into segments of equal size, only the last of which may be shorter.
///
/// Sizes are those of IP packets: headers included, link layer not. Nothing that the path does to a
/// train changes them. A clone is a second copy on the wire.
pub trait Train: Clone {
    /// Returns the number of packets on the wire; at least one.
    fn segment_count(&self) -> SegCount;

    /// Size of the first packet, and of every other but perhaps the last, which may be smaller.
    fn segment_bytes(&self) -> ByteCount;

    /// All packets together: more than the packets before the last, and at most `segments` ×
    /// `segment_bytes`.
    fn ip_bytes(&self) -> ByteCount;

    /// Keeps the first `at` packets and returns the others. `at` is at least one and less than
    /// [`Train::segment_count`].
    #[must_use]
    fn split_off(&mut self, at: SegCount) -> Self;

    /// A number that all packets of one connection in one direction share, and few others: a hash
    /// of addresses, protocol and ports.
    fn flow_hash(&self) -> u64;

    /// Marks every packet "congestion experienced" (RFC 3168); `false`, and nothing, where they
    /// cannot carry the mark.
    fn mark_ce(&mut self) -> bool;

    /// Spoils a bit, which `random` chooses, of a train of one packet, so that its receiver
    /// notices: checksums stay as they were on the wire.
    fn corrupt_bit(&mut self, random: u64);

    /// Does to the headers of every packet what a middlebox that makes this edit does; nothing if
    /// there is nothing to edit.
    #[must_use]
    fn apply_edit(&mut self, edit: &Edit) -> EditEffect;

    /// Returns the answer of the router `by` about the first packet, whose hops are used up; `None`
    /// if it may not answer.
    fn time_exceeded(&self, by: IpAddr) -> Option<Self>;

    /// Returns a router's answer about the first packet, which is larger than `mtu`; `None` if it
    /// may not answer.
    fn too_big(&self, mtu: ByteCount) -> Option<Self>;

    /// All packets together, as a path with this framing counts them.
    fn wire_bytes(&self, framing: Framing) -> ByteCount {
        self.ip_bytes() + self.segment_count().of_size(framing.packet_overhead())
    }
}

/// Effect of an edit on a train.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EditEffect {
    /// The packets have nothing to edit.
    Unchanged,
    /// The packets were changed.
    Changed,
    /// The packets go no further, as a router finds no hops left.
    Stopped,
}

/// Cuts `train` behind its first `at` packets; a side without packets is `None`.
pub(crate) fn split_train_at<T: Train>(mut train: T, at: SegCount) -> (Option<T>, Option<T>) {
    if at == SegCount::ZERO {
        return (None, Some(train));
    }
    if at >= train.segment_count() {
        return (Some(train), None);
    }
    let rest = train.split_off(at);
    (Some(train), Some(rest))
}

/// A train behind a stage that stops packets by their size.
pub(crate) struct SievedTrain<T> {
    /// The packets that passed, in order: from the first, and the last if it is smaller than one
    /// that was stopped.
    pub(crate) passed: [Option<T>; 2],
    /// The packets that did not pass.
    pub(crate) stopped: Option<T>,
}

/// Sends the packets of `train` through a stage one by one. `pass` takes packets of equal size of
/// which only the last may be smaller, and returns how many of them pass, counted from the first,
/// before one is stopped.
pub(crate) fn sieve_train<T: Train>(
    train: T,
    framing: Framing,
    mut pass: impl FnMut(TrainLoad) -> SegCount,
) -> SievedTrain<T> {
    let passing = pass(TrainLoad::from_train(&train, framing));
    let (first, rest) = split_train_at(train, passing);
    let Some(rest) = rest else {
        return SievedTrain {
            passed: [first, None],
            stopped: None,
        };
    };
    let load = TrainLoad::from_train(&rest, framing);
    if load
        .smaller_last()
        .is_some_and(|last| pass(last) > SegCount::ZERO)
    {
        let (stopped, last) = split_train_at(rest, load.segments - SegCount::new(1));
        return SievedTrain {
            passed: [first, last],
            stopped,
        };
    }
    SievedTrain {
        passed: [first, None],
        stopped: Some(rest),
    }
}
