//! The connections of a capture, followed on this thread, or on several where there are many.

use std::mem;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use fullpipe_flow::{Explained, Finished, Flows, Settled, part_of};
use fullpipe_wire::{Captured, read_captured};

use crate::block::Block;
use crate::file::CapturedPacket;
use crate::others::Others;

/// Connections from which on several threads follow them. Fewer are in the caches, where passing a packet to another
/// thread takes as long as following it.
const MANY: usize = 2048;

/// Threads that follow at most: one that reads has no packets for more.
const MAX_THREADS: usize = 8;

/// Blocks that may wait for a thread.
const WAITING: usize = 8;

/// Those who follow the connections.
pub(crate) enum Following {
    /// This thread, where as many others may take over.
    Here { flows: Box<Flows>, others: Others, threads: usize },
    /// Each reads all packets, and follows its part of the connections: to read a packet takes less time than to pass
    /// on what was read of it.
    Threads { parts: Vec<Part>, others: Others, block: Block },
}

impl Following {
    pub(crate) fn new() -> Self {
        let threads = thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS);
        Self::on(threads)
    }

    fn on(threads: usize) -> Self {
        Self::Here { flows: Box::default(), others: Others::default(), threads }
    }

    /// Adds a packet.
    #[inline]
    pub(crate) fn add(&mut self, packet: &CapturedPacket) {
        match self {
            Self::Here { flows, others, threads } => {
                let captured = read_captured(packet.link, packet.bytes, packet.original as usize);
                others.count(&captured);
                let Captured::Tcp(segment) = &captured else { return };
                flows.add(segment, packet.at);
                if flows.connections() >= MANY && *threads > 1 {
                    self.share();
                }
            }
            Self::Threads { parts, block, .. } => {
                if block.add(packet) {
                    pass(parts, mem::replace(block, Block::with_room()));
                }
            }
        }
    }

    /// Has threads follow the connections from here on.
    fn share(&mut self) {
        let Self::Here { flows, others, threads } = self else { return };
        let number = *threads;
        let Ok(parts) = (0..number).map(|part| Part::start(part, number)).collect::<Result<Vec<_>, _>>() else {
            // There is no memory for a thread.
            *threads = 1;
            return;
        };
        let first = flows.segments();
        for (part, flows) in parts.iter().zip(mem::take(&mut **flows).split(number)) {
            // One that ended has panicked, which its end shows.
            let _ = part.begin.send((flows, first));
        }
        *self = Self::Threads { parts, others: mem::take(others), block: Block::with_room() };
    }

    /// Returns everything that was found, with the evidence of the transfers that are to be `explained`, and what the
    /// packets were.
    pub(crate) fn finish(self, explained: Explained<'_>) -> (Finished, Others) {
        match self {
            Self::Here { flows, others, .. } => (flows.finish(explained), others),
            Self::Threads { parts, mut others, block } => {
                pass(&parts, block);
                let threads: Vec<_> = parts.into_iter().map(|part| part.thread).collect();
                let mut all = Settled::default();
                for thread in threads {
                    let (settled, counted) = thread.join().unwrap_or_else(|panic| resume_unwind(panic));
                    all.join(settled);
                    others.join(&counted);
                }
                (all.finish(explained), others)
            }
        }
    }
}

/// A thread that follows a part of the connections.
pub(crate) struct Part {
    thread: JoinHandle<(Settled, Others)>,
    /// The connections that it begins with, and the number of the first packet.
    begin: SyncSender<(Flows, u64)>,
    blocks: SyncSender<Arc<Block>>,
}

impl Part {
    /// Starts the thread that follows part `own` of so many `parts`.
    fn start(own: usize, parts: usize) -> std::io::Result<Self> {
        let (begin, flows) = sync_channel(1);
        let (blocks, packets) = sync_channel(WAITING);
        let work = move || follow([own, parts], &flows, &packets);
        let thread = thread::Builder::new().name("connections".to_owned()).spawn(work)?;
        Ok(Self { thread, begin, blocks })
    }
}

/// Passes a block to all.
fn pass(parts: &[Part], block: Block) {
    let block = Arc::new(block);
    for part in parts {
        // One that ended has panicked, which its end shows.
        let _ = part.blocks.send(Arc::clone(&block));
    }
}

fn follow(
    [own, parts]: [usize; 2],
    flows: &Receiver<(Flows, u64)>,
    blocks: &Receiver<Arc<Block>>,
) -> (Settled, Others) {
    let (mut flows, mut first) = flows.recv().unwrap_or_default();
    let mut others = Others::default();
    for block in blocks {
        for ((captured, at), number) in block.read().zip(first..) {
            match &captured {
                Captured::Tcp(segment) if part_of(segment, parts) == own => {
                    others.count(&captured);
                    flows.add_numbered(number, segment, at);
                }
                Captured::Tcp(_) => {}
                _ if own == 0 => others.count(&captured),
                _ => {}
            }
        }
        first += block.len();
    }
    (flows.settle(), others)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_units::Time;
    use fullpipe_wire::LinkType;

    #[test]
    fn several_threads_find_what_one_does() {
        const CONNECTIONS: u32 = MANY as u32 + 500;
        let (mut one, mut three) = (Following::on(1), Following::on(3));
        for number in 0..10 * CONNECTIONS {
            let (connection, index) = (number % CONNECTIONS, number / CONNECTIONS);
            let [.., high, low] = connection.to_be_bytes();
            // 100 bytes of data each, without options.
            let ip = [0x45, 0, 0, 140, 0, 0, 0, 0, 64, 6, 0, 0, 198, 18, high, low, 198, 19, 0, 1];
            let [sequence_high, sequence_low] = (100 * index as u16).to_be_bytes();
            let tcp = [0x9C, 0x40, 0x14, 0x51, 0, 0, sequence_high, sequence_low, 0, 0, 0, 1, 0x50, 0x10, 1, 0];
            let mut bytes = [&ip[..], &tcp, &[0; 4]].concat();
            // Now and then a packet that is no segment.
            bytes[0] = if number % 1_000 == 0 { 0 } else { bytes[0] };
            let at = Time::from_nanos(u64::from(number / 2) * 1_000);
            let packet =
                CapturedPacket { at, link: LinkType::RAW, interface: 0, bytes: &bytes, original: 140, direction: None };
            one.add(&packet);
            three.add(&packet);
        }
        assert!(matches!(one, Following::Here { .. }) && matches!(three, Following::Threads { .. }));
        let [(one, others), (three, same)] = [one, three].map(|following| following.finish(Explained::Largest(2)));
        assert_eq!(one.flows.len(), CONNECTIONS as usize);
        assert!(one.flows.iter().all(|flow| (900..=1_000).contains(&flow.ends[0].unique_bytes.get())));
        assert_eq!((&one.flows, &one.transfers), (&three.flows, &three.transfers));
        assert_eq!((others.segments, others.malformed), (10 * u64::from(CONNECTIONS) - others.malformed, 26));
        assert_eq!(format!("{others:?}"), format!("{same:?}"));
    }
}
