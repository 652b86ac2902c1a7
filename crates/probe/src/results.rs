//! What this end counted, as the other end is told.

use fullpipe_iperf::{DatagramCounts, Results, StreamResult};
use fullpipe_record::{Direction, SocketReadback};
use fullpipe_units::Span;

use crate::progress::Finished;

/// The results of a transfer that is over, without what only fullpipe understands.
pub(crate) fn results_of(finished: &Finished, sockets: &[SocketReadback]) -> Results {
    Results {
        cpu: finished.rest.cpu.unwrap_or_default(),
        congestion: sockets.first().map(|socket| socket.congestion.clone()).filter(|name| !name.is_empty()),
        streams: (0..finished.ways.len()).map(|index| stream_result(finished, index)).collect(),
        ..Results::default()
    }
}

fn stream_result(finished: &Finished, index: usize) -> StreamResult {
    let (from, to) = (&finished.from.totals.streams[index], &finished.to.totals.streams[index]);
    let sends = finished.ways[index] == Direction::Upload;
    StreamResult {
        stream: index as u16,
        bytes: to.since(from).bytes,
        retransmits: finished.retransmits().get(index).copied().filter(|_| sends),
        from: Span::ZERO,
        to: finished.duration(),
        datagrams: if sends {
            DatagramCounts::sent(to.datagrams_sent, from.datagrams_sent)
        } else {
            DatagramCounts::received(&to.datagrams, &from.datagrams)
        },
    }
}
