//! The figures and the evidence of connections once no further segment comes.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet};
use std::net::SocketAddr;
use std::sync::mpsc::sync_channel;
use std::sync::{Mutex, PoisonError};
use std::thread;

use fullpipe_record::{Evidence, FlowReport, Measurement, SocketReadback, StreamSummary};
use fullpipe_units::Time;

use crate::evidence::{flows_of_transfer, transfer_evidence};
use crate::flow::FlowState;
use crate::followed::FollowedFlow;
use crate::pairs::number_of;
use crate::passages::PacketTimes;
use crate::waiting::PacketBlocks;

/// A connection that was finished before the end of the capture.
#[derive(Debug)]
pub(crate) struct EndedFlow {
    /// Time of its first packet, and the number of the segment with which it was opened.
    pub(crate) first: (Time, u64),
    pub(crate) report: FlowReport,
}

/// Everything that was found.
#[derive(Debug, Clone)]
pub struct FinishedFlows {
    /// The connections, by their first packet.
    pub flows: Vec<FlowReport>,
    /// The times of packets of each, in the same order; none of
    /// [`crate::FlowTable::without_packet_times`].
    pub times: Vec<PacketTimes>,
    /// Connection attempts without an answer.
    pub unanswered: u64,
    /// The transfers that were asked for, those with most data first.
    pub transfers: Vec<TransferEvidence>,
    /// Connections that bounded memory left out, or parts of them.
    pub left_out: LeftOut,
}

/// Connections of which less is known, or nothing, because there were too many.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LeftOut {
    /// Number of connections that are missing: each had less data than those that are there.
    pub missing: u64,
    /// Number of connections that were finished early, when they had been silent longest; packets
    /// that they sent later count as another connection.
    pub finished_early: u64,
    /// Number of connections without round-trip times and the course of their data.
    pub thinned: u64,
}

/// Connections that carried one transfer.
#[derive(Debug, Clone, PartialEq)]
pub struct TransferEvidence {
    /// Numbers of the connections, the one with most data first.
    pub flows: Vec<u64>,
    /// Evidence of the transfer for a verdict.
    pub evidence: Evidence,
}

/// The transfers of which evidence is returned.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ExplainedTransfers<'f> {
    /// As many of the largest.
    Largest(usize),
    /// The one over a connection between these; without such a connection, as behind address
    /// translation, the largest.
    Between([SocketAddr; 2]),
    /// The one that a connection of this number belongs to.
    Flow(u64),
    /// The one that this connection of another capture belongs to.
    Same(&'f FlowReport),
}

impl ExplainedTransfers<'static> {
    /// Returns the transfer of a test: the connection that moved most of its data, though one that
    /// controls it may carry more.
    pub fn of_test(measurement: &Measurement) -> Self {
        largest_connection(&measurement.streams, &measurement.local.sockets)
            .map_or(Self::Largest(1), Self::Between)
    }
}

/// Returns the addresses of the stream that moved most, of those in the direction of the first; of
/// the first socket where no stream says what it moved. `None` where they are not known.
fn largest_connection(
    streams: &[StreamSummary],
    sockets: &[SocketReadback],
) -> Option<[SocketAddr; 2]> {
    let of_direction = streams
        .iter()
        .filter(|stream| stream.direction == streams[0].direction);
    let largest = of_direction.min_by_key(|stream| Reverse(stream.sent.max(stream.received)));
    let of_largest = sockets
        .iter()
        .find(|socket| largest.is_some_and(|largest| largest.stream == socket.stream));
    let socket = of_largest.or(sockets.first())?;
    Some([socket.local.parse().ok()?, socket.remote.parse().ok()?])
}

/// The connections of a part of a capture, by their first packets.
#[derive(Debug, Default)]
pub struct SettledFlows {
    /// Number and time of the first segment.
    pub(crate) begin: Option<(u64, Time)>,
    pub(crate) followed: Vec<FollowedFlow>,
    /// Packets of the connections that wait.
    pub(crate) blocks: PacketBlocks,
    /// Connections that were finished before the end.
    pub(crate) finished: Vec<EndedFlow>,
    pub(crate) unanswered: u64,
    pub(crate) left_out: LeftOut,
}

impl SettledFlows {
    /// Returns everything that was found in the parts of a capture, on a thread for each, with the
    /// evidence of the transfers that are to be `explained`.
    pub fn finish_parts(parts: Vec<Self>, explained: ExplainedTransfers<'_>) -> FinishedFlows {
        let threads = parts.len().max(1);
        let all = parts
            .into_iter()
            .reduce(Self::join_part)
            .unwrap_or_default();
        let Self {
            begin,
            mut followed,
            blocks,
            finished,
            unanswered,
            left_out,
        } = all;
        let begin = begin.map_or(Time::ZERO, |(_, at)| at);
        // Those of each part are in order already, so that this costs little.
        followed.sort_by_key(FollowedFlow::first_packet);
        let places = flow_positions(&followed, &finished);
        let numbers: Vec<u64> = places.iter().map(|place| *place as u64 + 1).collect();
        let captured = [
            begin,
            followed
                .iter()
                .map(FollowedFlow::last_time)
                .max()
                .unwrap_or(begin),
        ];
        let (mut flows, mut times) =
            reports_in_chunks(&mut followed, &numbers, threads, |flows, numbers| {
                flow_reports(flows, numbers, &blocks, captured)
            });
        for (ended, number) in finished.into_iter().zip(&numbers[followed.len()..]) {
            flows.push(FlowReport {
                number: *number,
                begin: ended.first.0.duration_since(begin),
                ..ended.report
            });
        }
        if !times.is_empty() {
            times.resize_with(flows.len(), PacketTimes::default);
        }
        arrange_flows(&mut flows, &mut times, places);
        let transfers = explained_transfers(&mut followed, &blocks, &numbers, &flows, explained);
        FinishedFlows {
            flows,
            times,
            unanswered,
            transfers,
            left_out,
        }
    }

    /// Returns both parts of the same capture as one.
    fn join_part(mut self, other: Self) -> Self {
        self.begin = [self.begin, other.begin].into_iter().flatten().min();
        let shift = self.blocks.append(other.blocks);
        for mut flow in other.followed {
            flow.shift_blocks(shift);
            self.followed.push(flow);
        }
        self.finished.extend(other.finished);
        self.unanswered += other.unanswered;
        self.left_out.missing += other.left_out.missing;
        self.left_out.finished_early += other.left_out.finished_early;
        self.left_out.thinned += other.left_out.thinned;
        self
    }
}

/// Returns the place of each connection among all, by their first packets.
fn flow_positions(followed: &[FollowedFlow], finished: &[EndedFlow]) -> Vec<usize> {
    let firsts = followed
        .iter()
        .map(FollowedFlow::first_packet)
        .chain(finished.iter().map(|ended| ended.first));
    let firsts: Vec<(Time, u64)> = firsts.collect();
    let mut order: Vec<usize> = (0..firsts.len()).collect();
    order.sort_by_key(|index| firsts[*index]);
    let mut places = vec![0; order.len()];
    order
        .iter()
        .enumerate()
        .for_each(|(place, index)| places[*index] = place);
    places
}

/// Connections whose figures are made at a time where several threads make them: few enough to stay
/// in their caches.
const CHUNK: usize = 256;

/// Chunks of figures that wait for their place.
const WAITING: usize = 16;

/// Figures of connections, and the times of their packets if they are kept.
type Reports = (Vec<FlowReport>, Vec<PacketTimes>);

/// Returns the figures of connections with their numbers, in a capture that lasted from the first
/// time to the second.
fn flow_reports(
    flows: &mut [FollowedFlow],
    numbers: &[u64],
    blocks: &PacketBlocks,
    captured: [Time; 2],
) -> Reports {
    let (mut reports, mut times) = (Vec::with_capacity(flows.len()), Vec::new());
    for (flow, number) in flows.iter_mut().zip(numbers) {
        let (report, of_packets) = flow.take_report(blocks);
        reports.push(FlowReport {
            number: *number,
            begin: flow.first_packet().0.duration_since(captured[0]),
            ..report
        });
        times.extend(of_packets.map(|times| PacketTimes { captured, ..times }));
    }
    (reports, times)
}

/// Returns the results of `report` for connections and their numbers, on so many threads.
fn reports_in_chunks(
    followed: &mut [FollowedFlow],
    numbers: &[u64],
    threads: usize,
    report: impl Fn(&mut [FollowedFlow], &[u64]) -> Reports + Sync,
) -> Reports {
    if threads == 1 {
        return report(followed, numbers);
    }
    let (mut reports, mut times) = (Vec::with_capacity(followed.len()), Vec::new());
    let chunks = followed.chunks_mut(CHUNK).zip(numbers.chunks(CHUNK));
    in_order(
        chunks,
        threads,
        |(flows, numbers)| report(flows, numbers),
        |(figures, of_packets)| {
            reports.extend(figures);
            times.extend(of_packets);
        },
    );
    (reports, times)
}

/// Has so many threads do `work`, and passes what they make to `take` in the order of the tasks.
fn in_order<T: Send, R: Send>(
    tasks: impl Iterator<Item = T> + Send,
    threads: usize,
    work: impl Fn(T) -> R + Sync,
    mut take: impl FnMut(R),
) {
    let tasks = Mutex::new(tasks.enumerate());
    thread::scope(|scope| {
        let (made, results) = sync_channel(WAITING);
        for _ in 0..threads {
            let (made, tasks, work) = (made.clone(), &tasks, &work);
            scope.spawn(move || {
                loop {
                    // Only as long as this statement lasts, no other thread takes one.
                    let next = tasks.lock().unwrap_or_else(PoisonError::into_inner).next();
                    let Some((place, task)) = next else { break };
                    // No thread takes it if this process is about to panic.
                    let _ = made.send((place, work(task)));
                }
            });
        }
        drop(made);
        let (mut early, mut next) = (BTreeMap::new(), 0);
        for (place, result) in results {
            early.insert(place, result);
            while let Some(result) = early.remove(&next) {
                take(result);
                next += 1;
            }
        }
    });
}

/// Moves each connection, with its times if they are kept, to its place among all.
fn arrange_flows(flows: &mut [FlowReport], times: &mut [PacketTimes], mut places: Vec<usize>) {
    for index in 0..places.len() {
        while places[index] != index {
            let place = places[index];
            flows.swap(index, place);
            if !times.is_empty() {
                times.swap(index, place);
            }
            places.swap(index, place);
        }
    }
}

/// Returns the evidence of the transfers over `flows` that are to be explained, whose connections
/// have `numbers`. `reports` are those of all connections.
fn explained_transfers(
    flows: &mut [FollowedFlow],
    blocks: &PacketBlocks,
    numbers: &[u64],
    reports: &[FlowReport],
    explained: ExplainedTransfers<'_>,
) -> Vec<TransferEvidence> {
    let wanted = match explained {
        ExplainedTransfers::Largest(count) => count,
        _ => 1,
    };
    let mut candidates = explained_flows(flows, numbers, reports, explained);
    candidates.sort_by_cached_key(|index| size_rank(flows, numbers, *index));
    let (mut found, mut known) = (Vec::new(), HashSet::new());
    for index in candidates {
        if found.len() == wanted {
            break;
        }
        if known.contains(&index) {
            continue;
        }
        let mut members = flows_of_transfer(index, flows);
        members.retain(|member| !known.contains(member));
        members.sort_by_key(|member| size_rank(flows, numbers, *member));
        known.extend(members.iter().copied());
        for member in &members {
            flows[*member].catch_up(blocks);
        }
        let of_one: Vec<&FlowState> = members
            .iter()
            .filter_map(|member| flows[*member].flow_state())
            .collect();
        let evidence = transfer_evidence(&of_one, flows[index].ports_from_sender());
        let flows = members.iter().map(|member| numbers[*member]).collect();
        found.extend(evidence.map(|evidence| TransferEvidence { flows, evidence }));
    }
    found
}

/// Returns the indices of connections whose transfers may be explained.
fn explained_flows(
    flows: &[FollowedFlow],
    numbers: &[u64],
    reports: &[FlowReport],
    explained: ExplainedTransfers<'_>,
) -> Vec<usize> {
    let mut candidates: Vec<usize> = (0..flows.len()).collect();
    match explained {
        ExplainedTransfers::Largest(_) => {}
        ExplainedTransfers::Between(ends) => {
            if flows.iter().any(|flow| flow.is_between(ends)) {
                candidates.retain(|index| flows[*index].is_between(ends));
            }
        }
        ExplainedTransfers::Flow(number) => candidates.retain(|index| numbers[*index] == number),
        ExplainedTransfers::Same(flow) => {
            let number = number_of(flow, reports);
            candidates.retain(|index| Some(numbers[*index]) == number);
        }
    }
    candidates
}

/// Returns a key by which the connections with most data come first.
fn size_rank(flows: &[FollowedFlow], numbers: &[u64], index: usize) -> (Reverse<u64>, u64) {
    (Reverse(flows[index].sender_bytes()), numbers[index])
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_record::Direction;
    use fullpipe_units::ByteCount;

    fn stream(stream: u16, direction: Direction, received: u64) -> StreamSummary {
        let (sent, received) = (ByteCount::new(1_000), ByteCount::new(received));
        StreamSummary {
            stream,
            direction,
            sent,
            received,
            retransmits: None,
            datagrams_sent: None,
            datagrams: None,
        }
    }

    fn socket(stream: u16) -> SocketReadback {
        SocketReadback {
            stream,
            sndbuf: ByteCount::ZERO,
            rcvbuf: ByteCount::ZERO,
            congestion: "cubic".to_owned(),
            local: format!("192.0.2.1:{}", 40_000 + stream),
            remote: "192.0.2.2:5201".to_owned(),
            handshake: None,
            syn_quotes: Vec::new(),
        }
    }

    #[test]
    fn a_test_is_explained_by_the_stream_that_moved_most_though_the_first_one_moved_hardly_anything()
     {
        let sockets = [0, 1, 2, 3].map(socket);
        let [up, down] = [Direction::Upload, Direction::Download];
        let streams = [
            stream(0, up, 0),
            stream(1, up, 9_000),
            stream(2, up, 8_000),
            stream(3, down, 90_000),
        ];
        let port =
            |streams: &[StreamSummary]| largest_connection(streams, &sockets).unwrap()[0].port();
        assert_eq!(
            (port(&streams), port(&streams[..1]), port(&[])),
            (40_001, 40_000, 40_000)
        );
        assert_eq!(largest_connection(&streams, &[]), None);
    }
}
