//! The connections of a capture, followed on this thread, or on several where there are many.

use std::panic::resume_unwind;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::{self, JoinHandle};

use fullpipe_flow::{ExplainedTransfers, FinishedFlows, FlowTable, NumberedSegment, SettledFlows};
use fullpipe_sys::start_thread;
use fullpipe_units::Time;
use fullpipe_wire::CapturedSegment;

/// Connections from which on several threads follow them. Fewer are in the caches, where passing a
/// packet to another thread takes as long as following it.
const MANY: usize = 2048;

/// Threads that follow at most: one that reads has no packets for more.
const MAX_THREADS: usize = 8;

/// Packets that are passed to a thread at a time, and how many times so many may wait for all
/// threads together: one that finds none, or no room for more, sleeps, and may have to wait for a
/// processor then.
const BATCH: usize = 4096;
const WAITING: usize = 32;

/// The threads that follow the connections.
pub(crate) enum FlowFollower {
    /// This thread, where as many others may take over.
    Here {
        flows: Box<FlowTable>,
        threads: usize,
    },
    Threads {
        parts: Vec<FollowerThread>,
        count: u64,
    },
}

impl FlowFollower {
    /// Returns the threads of a capture, which keep the times of packets if it is compared with
    /// another.
    pub(crate) fn new(is_compared: bool) -> Self {
        let threads = thread::available_parallelism()
            .map_or(1, usize::from)
            .min(MAX_THREADS);
        let flows = if is_compared {
            FlowTable::default()
        } else {
            FlowTable::without_packet_times()
        };
        Self::Here {
            flows: Box::new(flows),
            threads,
        }
    }

    /// Adds a segment that was captured at `at`.
    #[inline]
    pub(crate) fn add_segment(&mut self, segment: &CapturedSegment, at: Time) {
        match self {
            Self::Here { flows, threads } => {
                flows.add_segment(segment, at);
                if flows.flow_count() >= MANY && *threads > 1 {
                    self.start_threads();
                }
            }
            Self::Threads { parts, count } => {
                let segment = NumberedSegment::new(*count, segment, at);
                let part = segment.part_index(parts.len());
                parts[part].add_segment(segment);
                *count += 1;
            }
        }
    }

    /// Has threads follow the connections from here on.
    fn start_threads(&mut self) {
        let Self::Here { flows, threads } = self else {
            return;
        };
        let waiting = WAITING / *threads;
        let Ok(parts) = (0..*threads)
            .map(|_| FollowerThread::start(waiting))
            .collect::<Result<Vec<_>, _>>()
        else {
            // There is no memory for a thread.
            *threads = 1;
            return;
        };
        let count = flows.segment_count();
        for (part, flows) in parts
            .iter()
            .zip(std::mem::take(&mut **flows).split_parts(*threads))
        {
            // One that ended has panicked, which its end shows.
            let _ = part.begin.send(flows);
        }
        *self = Self::Threads { parts, count };
    }

    /// Returns everything that was found, with the evidence of the transfers that are to be
    /// `explained`.
    pub(crate) fn finish_flows(self, explained: ExplainedTransfers<'_>) -> FinishedFlows {
        match self {
            Self::Here { flows, .. } => flows.finish_flows(explained),
            Self::Threads { parts, .. } => {
                let threads: Vec<JoinHandle<SettledFlows>> =
                    parts.into_iter().map(FollowerThread::end_thread).collect();
                let settled = threads
                    .into_iter()
                    .map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)))
                    .collect();
                SettledFlows::finish_parts(settled, explained)
            }
        }
    }
}

/// A thread that follows a part of the connections.
pub(crate) struct FollowerThread {
    thread: JoinHandle<SettledFlows>,
    /// The connections that it begins with.
    begin: SyncSender<FlowTable>,
    batches: SyncSender<Vec<NumberedSegment>>,
    batch: Vec<NumberedSegment>,
    /// Batches that it has followed, whose room is free for others.
    followed: Receiver<Vec<NumberedSegment>>,
}

impl FollowerThread {
    /// Starts a thread for which so many batches may wait.
    fn start(waiting: usize) -> std::io::Result<Self> {
        let (begin, flows) = sync_channel(1);
        let (batches, segments) = sync_channel(waiting);
        let (free, followed) = channel();
        let thread = start_thread("connections", move || {
            follow_batches(&flows, &segments, &free)
        })?;
        Ok(Self {
            thread,
            begin,
            batches,
            batch: Vec::with_capacity(BATCH),
            followed,
        })
    }

    fn add_segment(&mut self, segment: NumberedSegment) {
        self.batch.push(segment);
        if self.batch.len() == BATCH {
            let next = self
                .followed
                .try_recv()
                .unwrap_or_else(|_| Vec::with_capacity(BATCH));
            self.send_batch(next);
        }
    }

    /// Passes the batch on, and begins `next`.
    fn send_batch(&mut self, next: Vec<NumberedSegment>) {
        // One that ended has panicked, which its end shows.
        let _ = self.batches.send(std::mem::replace(&mut self.batch, next));
    }

    fn end_thread(mut self) -> JoinHandle<SettledFlows> {
        self.send_batch(Vec::new());
        self.thread
    }
}

fn follow_batches(
    flows: &Receiver<FlowTable>,
    segments: &Receiver<Vec<NumberedSegment>>,
    free: &Sender<Vec<NumberedSegment>>,
) -> SettledFlows {
    let mut flows = flows.recv().unwrap_or_default();
    for mut batch in segments {
        flows.add_all(&batch);
        batch.clear();
        // At the end the reading thread takes no batch any more.
        let _ = free.send(batch);
    }
    flows.settle_flows()
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_wire::{CapturedContent, LinkType, read_captured};

    #[test]
    fn several_threads_find_what_one_does() {
        const CONNECTIONS: u32 = MANY as u32 + 500;
        let new = |threads| FlowFollower::Here {
            flows: Box::default(),
            threads,
        };
        let (mut one, mut three) = (new(1), new(3));
        for number in 0..10 * CONNECTIONS {
            let (connection, index) = (number % CONNECTIONS, number / CONNECTIONS);
            let [.., high, low] = connection.to_be_bytes();
            // 100 bytes of data each, without options.
            let ip = [
                0x45, 0, 0, 140, 0, 0, 0, 0, 64, 6, 0, 0, 198, 18, high, low, 198, 19, 0, 1,
            ];
            let [sequence_high, sequence_low] = (100 * index as u16).to_be_bytes();
            let tcp = [
                0x9C,
                0x40,
                0x14,
                0x51,
                0,
                0,
                sequence_high,
                sequence_low,
                0,
                0,
                0,
                1,
                0x50,
                0x10,
                1,
                0,
            ];
            let bytes = [&ip[..], &tcp, &[0; 4]].concat();
            let CapturedContent::Tcp(segment) = read_captured(LinkType::RAW, &bytes, 140) else {
                panic!("no segment")
            };
            let at = Time::from_nanos(u64::from(number / 2) * 1_000);
            one.add_segment(&segment, at);
            three.add_segment(&segment, at);
        }
        assert!(
            matches!(one, FlowFollower::Here { .. })
                && matches!(three, FlowFollower::Threads { .. })
        );
        let [one, three] =
            [one, three].map(|following| following.finish_flows(ExplainedTransfers::Largest(2)));
        assert_eq!(one.flows.len(), CONNECTIONS as usize);
        assert!(
            one.flows
                .iter()
                .all(|flow| flow.ends[0].unique_bytes.get() == 1_000)
        );
        assert_eq!(
            (&one.flows, &one.transfers),
            (&three.flows, &three.transfers)
        );
    }
}
