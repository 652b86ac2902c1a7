//! Connections that were watched or listed, with their samples.

use std::net::SocketAddr;

use fullpipe_record::{ConnectionSamples, HostSettings, Sample};
use fullpipe_units::{ByteCount, Span};

use crate::readings::MachineReadings;

/// Snapshots in a row without a connection after which it counts as closed: a list that the kernel
/// makes while others come and go may miss one that is open.
pub(crate) const MISSES: u8 = 2;

/// The connections that were watched, with their samples.
#[derive(Debug)]
pub struct WatchedConnections {
    /// Settings of the host, in the network namespace of the connections; `None` of listings.
    pub settings: Option<HostSettings>,
    /// Time for which they were watched.
    pub took: Span,
    /// The connections; the index is the number of the stream.
    pub(crate) connections: Vec<ObservedConnection>,
    /// The samples of the connections, in the order of time.
    pub(crate) samples: Vec<Sample>,
    /// The processors and devices that they used.
    pub(crate) machines: MachineReadings,
    /// Processor time that the processes had used together, at times since the watching began.
    pub processor: Vec<(Span, Span)>,
    /// Number of samples of a connection from which it can be judged.
    pub(crate) fewest_snapshots: usize,
}

impl WatchedConnections {
    /// Returns the samples of each connection, those that carried next to nothing too.
    pub fn samples_by_connection(&self) -> Vec<ConnectionSamples<'_>> {
        let connections = self.connections.iter();
        let mut all: Vec<_> = connections
            .map(|seen| ConnectionSamples {
                ends: [seen.local, seen.remote],
                found: seen.found,
                is_old: seen.is_old,
                samples: Vec::new(),
            })
            .collect();
        for sample in &self.samples {
            all[usize::from(sample.stream)].samples.push(sample);
        }
        all
    }
}

/// A connection that is watched.
#[derive(Debug, Clone)]
pub(crate) struct ObservedConnection {
    pub cookie: u64,
    pub owner: ConnectionOwner,
    pub local: SocketAddr,
    pub remote: SocketAddr,
    pub congestion: String,
    /// Set if its program is known to have fixed the receive buffer.
    pub has_fixed_rcvbuf: bool,
    /// Set if it was open when the watching began.
    pub is_old: bool,
    /// Time at which it was found.
    pub found: Span,
    /// Snapshots in a row, up to now, without it.
    pub misses: u8,
}

impl ObservedConnection {
    /// Returns a connection, this end first, that was open before the first listing of it.
    pub(crate) fn from_listing(
        [local, remote]: [SocketAddr; 2],
        owner: ConnectionOwner,
        congestion: String,
    ) -> Self {
        Self {
            cookie: 0,
            owner,
            local,
            remote,
            congestion,
            has_fixed_rcvbuf: false,
            is_old: true,
            found: Span::ZERO,
            misses: 0,
        }
    }

    /// Returns true if the connection is asked for in the next snapshot.
    pub(crate) fn is_open(&self) -> bool {
        self.misses < MISSES
    }

    /// Returns true if the connection was not in the last snapshot.
    pub(crate) fn is_missing(&self) -> bool {
        self.misses > 0
    }
}

/// The process that has a connection, as far as it is known.
#[derive(Debug, Clone, Default)]
pub(crate) struct ConnectionOwner {
    pub pid: Option<u32>,
    pub program: Option<String>,
    pub descriptor: Option<i32>,
}

impl ConnectionOwner {
    /// Returns the process that a listing names.
    pub(crate) fn from_listing(program: &str, pid: u32) -> Self {
        Self {
            pid: Some(pid),
            program: Some(program.to_owned()),
            descriptor: None,
        }
    }
}

/// Returns the bytes that a connection has moved, in both directions, since it was opened.
pub(crate) fn both_ways(sample: &Sample) -> ByteCount {
    acknowledged_bytes(sample) + received_bytes(sample)
}

pub(crate) fn acknowledged_bytes(sample: &Sample) -> ByteCount {
    sample.tcp.bytes_acked.unwrap_or_default()
}

pub(crate) fn received_bytes(sample: &Sample) -> ByteCount {
    sample.tcp.bytes_received.unwrap_or_default()
}
