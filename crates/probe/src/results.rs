//! The results of this end in the form that is sent to the other end, and the summaries of both.

use std::time::Instant;

use crate::engine::StreamCount;
use fullpipe_iperf::{DatagramCounts, ServerOutput, StreamResult, TestResults};
use fullpipe_record::{
    Datagrams, Direction, EndReport, HostIdentity, RunTotals, SocketReadback, StreamSummary,
    Summary, TcpInfo, Transport,
};
use fullpipe_units::{BitRate, ByteCount, Span};

use crate::progress::FinishedTransfer;

/// Returns the results of a transfer that is over, without the fields that only fullpipe reads.
pub(crate) fn results_of(finished: &FinishedTransfer, sockets: &[SocketReadback]) -> TestResults {
    TestResults {
        cpu: finished.rest.cpu.unwrap_or_default(),
        congestion: sockets
            .first()
            .map(|socket| socket.congestion.clone())
            .filter(|name| !name.is_empty()),
        streams: (0..finished.ways.len())
            .map(|index| stream_result(finished, index))
            .collect(),
        ..TestResults::default()
    }
}

fn stream_result(finished: &FinishedTransfer, index: usize) -> StreamResult {
    let (from, to) = (
        &finished.from.totals.streams[index],
        &finished.to.totals.streams[index],
    );
    let sends = finished.ways[index] == Direction::Upload;
    StreamResult {
        stream: index as u16,
        bytes: to.counts_since(from).bytes,
        retransmits: finished
            .stream_retransmits()
            .get(index)
            .copied()
            .filter(|_| sends),
        from: Span::ZERO,
        to: finished.duration(),
        datagrams: if sends {
            DatagramCounts::from_sender(to.datagrams_sent, from.datagrams_sent)
        } else {
            DatagramCounts::from_receiver(&to.datagrams, &from.datagrams)
        },
    }
}

/// Returns the report of an end from results without fullpipe's own fields.
pub(crate) fn as_stated(results: &TestResults) -> EndReport {
    let output = results.server_output.clone().map(|output| match output {
        ServerOutput::Text(text) | ServerOutput::Json(text) => text,
    });
    // Results that were received have at least one stream; the default ones have none.
    let cpu = (!results.streams.is_empty()).then_some(results.cpu);
    EndReport {
        cpu,
        congestion: results.congestion.clone(),
        output,
        ..EndReport::default()
    }
}

/// Returns the counts of both ends, stream by stream. Directions are as this end sees them.
pub(crate) fn stream_summaries(
    finished: &FinishedTransfer,
    theirs: &TestResults,
    transport: Transport,
) -> Vec<StreamSummary> {
    let both = MergedResults {
        finished,
        theirs,
        transport,
    };
    (0..finished.ways.len())
        .map(|index| both.stream_summary(index))
        .collect()
}

/// Returns the sum of all streams of one direction, over `duration`.
pub(crate) fn direction_summary(
    way: Direction,
    streams: &[StreamSummary],
    duration: Span,
) -> Summary {
    let of_way = streams.iter().filter(|stream| stream.direction == way);
    let of_way: Vec<&StreamSummary> = of_way.collect();
    let received: ByteCount = of_way.iter().map(|stream| stream.received).sum();
    Summary {
        duration,
        sent: of_way.iter().map(|stream| stream.sent).sum(),
        received,
        rate: BitRate::from_bytes_in(received, duration),
        retransmits: of_way.iter().map(|stream| stream.retransmits).sum(),
        steady: None,
        datagrams_sent: of_way.iter().map(|stream| stream.datagrams_sent).sum(),
        datagrams: of_way.iter().map(|stream| stream.datagrams).sum(),
    }
}

/// The counts of both ends.
struct MergedResults<'t> {
    finished: &'t FinishedTransfer,
    theirs: &'t TestResults,
    transport: Transport,
}

impl MergedResults<'_> {
    fn stream_summary(&self, index: usize) -> StreamSummary {
        let way = self.finished.ways[index];
        let sends = way == Direction::Upload;
        let here = self.finished.stream_counts()[index];
        let there = self
            .theirs
            .streams
            .iter()
            .find(|result| usize::from(result.stream) == index);
        let counted = there.map(|result| result.bytes);
        let (sent, received) = if sends {
            (
                here.bytes,
                counted.unwrap_or_else(|| self.acknowledged_bytes(index, here)),
            )
        } else {
            // iperf3 has zero as well for what only the other end knows.
            (counted.unwrap_or_default(), here.bytes)
        };
        let retransmits = if sends {
            self.finished.stream_retransmits().get(index).copied()
        } else {
            there.and_then(|result| result.retransmits)
        };
        let is_udp = self.transport == Transport::Udp;
        StreamSummary {
            stream: index as u16,
            direction: way,
            sent,
            received,
            retransmits,
            datagrams_sent: if is_udp {
                datagrams_sent(sends, here, there)
            } else {
                None
            },
            datagrams: if is_udp {
                self.receiver_datagrams(index, sends, here, there)
            } else {
                None
            },
        }
    }

    /// Returns the counts of the receiver: exact if it is fullpipe, in the way of iperf3 if it is
    /// iperf3.
    fn receiver_datagrams(
        &self,
        index: usize,
        sends: bool,
        here: StreamCount,
        there: Option<&StreamResult>,
    ) -> Option<Datagrams> {
        if !sends {
            return Some(here.datagrams);
        }
        // Their report has the streams that they receive, which this end sends, in the order of the
        // streams.
        let before = self.finished.ways[..index]
            .iter()
            .filter(|way| **way == Direction::Upload)
            .count();
        let exact = self
            .theirs
            .report
            .as_ref()
            .and_then(|report| report.datagrams.get(before));
        exact.copied().or_else(|| Some(there?.datagrams.as_seen()))
    }

    /// Returns the bytes of a stream that were acknowledged while this end counted, of those that
    /// it sent `here`: the kernel also counts those from before, and of the cookie.
    fn acknowledged_bytes(&self, stream: usize, here: StreamCount) -> ByteCount {
        self.finished
            .acknowledged_bytes()
            .get(stream)
            .map_or(ByteCount::ZERO, |bytes| here.bytes.min(*bytes))
    }
}

fn datagrams_sent(sends: bool, here: StreamCount, there: Option<&StreamResult>) -> Option<u64> {
    if sends {
        Some(here.datagrams_sent)
    } else {
        Some(there?.datagrams.counted_datagrams().packets)
    }
}

/// Returns the time at which data began to flow, by the wall clock as it was then; empty if that
/// cannot be written as a date.
pub(crate) fn start_date(finished: &FinishedTransfer) -> String {
    let stamp = jiff::Timestamp::try_from(finished.wall_start).ok();
    stamp.map_or_else(String::new, |stamp| format!("{stamp:.3}"))
}

/// Returns the identifier of a measurement that is over now.
pub(crate) fn new_id() -> String {
    uuid::Uuid::now_v7().to_string()
}

/// Returns the identity of this host.
pub(crate) fn this_host() -> HostIdentity {
    let names = rustix::system::uname();
    let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok();
    HostIdentity {
        name: names.nodename().to_string_lossy().into_owned(),
        kernel: names.release().to_string_lossy().into_owned(),
        boot_id: boot_id.map(|id| id.trim().to_owned()),
        program: Some(env!("CARGO_PKG_VERSION").to_owned()),
    }
}

/// Returns the payload that the connections of `finished` and its `control` connection moved at
/// this end, and the time since `begun`.
pub(crate) fn run_totals(
    begun: Instant,
    finished: &FinishedTransfer,
    control: Option<&TcpInfo>,
) -> RunTotals {
    let streams = finished.ways.iter().zip(&finished.rest.totals.streams);
    let [written, read] = [Direction::Upload, Direction::Download].map(|way| {
        let its = streams.clone().filter(|(its, _)| **its == way);
        its.map(|(_, count)| count.bytes).sum()
    });
    let carried = control.and_then(|control| {
        if finished.ways.contains(&Direction::Upload) {
            Some(finished.rest.sent_on.carried_bytes()? + control.bytes_sent?)
        } else {
            Some(read + control.bytes_received?)
        }
    });
    RunTotals {
        wall: begun.elapsed().into(),
        written,
        read,
        carried,
    }
}
