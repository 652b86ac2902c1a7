//! A transfer by a program, as far as predictions go.

use fullpipe_record::Writer;

use crate::prelude::*;

/// A transfer whose rate is predicted.
#[derive(Clone, Copy)]
pub(crate) struct PredictedTransfer<'p> {
    /// The path from the sender to the receiver.
    pub(crate) path: &'p Path,
    /// Settings of the sender and of the receiver.
    pub(crate) hosts: [&'p HostSettings; 2],
    /// Size of the file.
    pub(crate) size: ByteCount,
    /// Version of the iperf3 that sends, if it is known.
    pub(crate) iperf3: Option<(u32, u32)>,
}

/// A rate, and what limits it.
pub(crate) type Limited = (BitRate, Limit);

/// Largest share by which a predicted rate may be off: limits whose rates are as close cannot be
/// told from each other.
pub(crate) const NEAR: f64 = 0.1;

/// Returns a load of blocking writers over so many connections.
pub(crate) fn blocking_request(connections: u16) -> Request {
    Request {
        writer: Writer::Blocking,
        streams: connections,
        ..Request::default()
    }
}
