use std::io;
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use fullpipe_record::{Cpu, Sample, Writer};
use fullpipe_sys::{CpuTime, process_cpu_time, tcp_info};
use fullpipe_units::{ByteCount, Ratio, SegCount, Span};

use crate::sampler;
use crate::stream::{self, Shared};

/// Samples that are kept of a transfer, about 16 MB: when there are more, every second look goes and looks come half as
/// often.
const MOST_SAMPLES: usize = 20_000;

/// Which part this end plays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It writes.
    Sender,
    /// It reads.
    Receiver,
}

/// How a transfer is to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransferPlan {
    /// The part of this end.
    pub role: Role,
    /// Bytes of one write or read.
    pub block: ByteCount,
    /// Bytes after which the sender stops by itself, all streams together.
    pub budget: Option<ByteCount>,
    /// How the sender fills its socket.
    pub writer: Writer,
    /// Round-trip time of the idle path, if known: a sender retries at least every 64th part of it.
    pub base_rtt: Option<Span>,
}

/// Streams with data on them.
pub struct Transfer {
    origin: Instant,
    role: Role,
    streams: Arc<[Stream]>,
    shared: Arc<Shared>,
    sampling: Arc<AtomicBool>,
    samples: Arc<Mutex<Vec<Sample>>>,
    workers: Vec<JoinHandle<io::Result<()>>>,
    sampler: JoinHandle<()>,
    cpu: CpuTime,
}

/// What all threads of a transfer may look at.
pub(crate) struct Stream {
    pub(crate) socket: TcpStream,
    pub(crate) bytes: AtomicU64,
}

/// What a transfer moved up to a moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Totals {
    /// The moment, since the data began to flow.
    pub at: Span,
    /// Each stream.
    pub streams: Vec<ByteCount>,
}

/// A transfer that is over.
#[derive(Debug)]
pub struct StreamTotals {
    /// What it moved.
    pub totals: Totals,
    /// Every look at every stream.
    pub samples: Vec<Sample>,
    /// Processor time of this process while it ran.
    pub cpu: Option<Cpu>,
    /// Streams that ended with an error, and which.
    pub failures: Vec<(u16, io::Error)>,
}

impl Transfer {
    /// Starts data on connected `sockets`, stream 0 first.
    ///
    /// # Errors
    /// If a thread cannot be started.
    pub fn start(sockets: Vec<TcpStream>, plan: TransferPlan) -> io::Result<Self> {
        let origin = Instant::now();
        let cpu = process_cpu_time()?;
        let streams: Arc<[Stream]> =
            sockets.into_iter().map(|socket| Stream { socket, bytes: AtomicU64::new(0) }).collect();
        let budget = plan.budget.map_or(u64::MAX, ByteCount::get);
        let shared = Arc::new(Shared { stop: AtomicBool::new(false), budget: AtomicU64::new(budget) });
        let workers = start_workers(&streams, &shared, plan)?;
        let samples = Arc::new(Mutex::new(Vec::new()));
        let sampling = Arc::new(AtomicBool::new(true));
        let sampler = start_sampler(&streams, origin, &sampling, &samples).inspect_err(|_| shared.give_up(&streams))?;
        Ok(Self { origin, role: plan.role, streams, shared, sampling, samples, workers, sampler, cpu })
    }

    /// When the data began to flow.
    pub fn origin(&self) -> Instant {
        self.origin
    }

    /// What has been moved so far.
    pub fn totals(&self) -> Totals {
        let bytes = |stream: &Stream| ByteCount::new(stream.bytes.load(Ordering::Relaxed));
        Totals { at: self.origin.elapsed().into(), streams: self.streams.iter().map(bytes).collect() }
    }

    /// The latest sample of each stream; none before the first look.
    pub fn latest(&self) -> Vec<Sample> {
        let samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        let from = samples.len().saturating_sub(self.streams.len());
        samples[from..].to_vec()
    }

    /// Whether every stream has ended by itself: the budget is spent, or the other end is gone.
    pub fn is_over(&self) -> bool {
        self.workers.iter().all(JoinHandle::is_finished)
    }

    /// Whether everything that was written has been sent and acknowledged.
    pub fn is_drained(&self) -> bool {
        let is_empty = |stream: &Stream| {
            tcp_info(&stream.socket).is_ok_and(|info| {
                info.not_sent.unwrap_or_default() == ByteCount::ZERO
                    && info.unacked.unwrap_or_default() == SegCount::ZERO
            })
        };
        self.streams.iter().all(is_empty)
    }

    /// Sends no more. A receiver goes on reading: what is under way must drain, or the other end never finishes.
    pub fn stop_sending(&self) {
        if self.role == Role::Sender {
            self.shared.stop.store(true, Ordering::Relaxed);
        }
        // What follows is no part of the transfer.
        self.sampling.store(false, Ordering::Relaxed);
    }

    /// After [`Transfer::stop_sending`], lets the other ends see that no more will come, once they have read what is under
    /// way.
    pub fn close_sending(&self) {
        if self.role == Role::Sender {
            for stream in self.streams.iter() {
                // A connection that is gone already needs no closing.
                let _ = stream.socket.shutdown(Shutdown::Write);
            }
        }
    }

    /// Ends everything, whatever state it is in, and tells what was seen.
    pub fn finish(self) -> StreamTotals {
        let totals = self.totals();
        let cpu = process_cpu_time().ok().map(|now| self.cpu_since_start(now, totals.at));
        self.shared.stop.store(true, Ordering::Relaxed);
        self.sampling.store(false, Ordering::Relaxed);
        for stream in self.streams.iter() {
            // Wakes a thread that is blocked in a write; a connection that is gone already needs none.
            let _ = stream.socket.shutdown(Shutdown::Both);
        }
        let outcomes = self
            .workers
            .into_iter()
            .map(|worker| worker.join().unwrap_or_else(|_| Err(io::Error::other("its thread panicked"))));
        let failures = outcomes.enumerate().filter_map(|(index, end)| Some((index as u16, end.err()?))).collect();
        let _ = self.sampler.join();
        let samples = std::mem::take(&mut *self.samples.lock().unwrap_or_else(PoisonError::into_inner));
        StreamTotals { totals, samples, cpu, failures }
    }

    fn cpu_since_start(&self, now: CpuTime, elapsed: Span) -> Cpu {
        let share =
            |now: Span, before: Span| Ratio::of(now.saturating_sub(before).as_secs_f64(), elapsed.as_secs_f64());
        Cpu { user: share(now.user, self.cpu.user), system: share(now.system, self.cpu.system) }
    }
}

/// A thread for each stream; none remains if one cannot be started.
fn start_workers(
    streams: &Arc<[Stream]>,
    shared: &Arc<Shared>,
    plan: TransferPlan,
) -> io::Result<Vec<JoinHandle<io::Result<()>>>> {
    let workers: io::Result<Vec<_>> =
        (0..streams.len()).map(|index| start_worker(index, streams, shared, plan)).collect();
    workers.inspect_err(|_| shared.give_up(streams))
}

fn start_worker(
    index: usize,
    streams: &Arc<[Stream]>,
    shared: &Arc<Shared>,
    plan: TransferPlan,
) -> io::Result<JoinHandle<io::Result<()>>> {
    let (streams, shared) = (Arc::clone(streams), Arc::clone(shared));
    thread::Builder::new().name(format!("stream {index}")).spawn(move || {
        let stream = &streams[index];
        match plan.role {
            Role::Sender => {
                stream::send(&stream.socket, &shared, &stream.bytes, plan.block, plan.writer, plan.base_rtt)
            }
            Role::Receiver => stream::receive(&stream.socket, &shared, &stream.bytes, plan.block),
        }
    })
}

fn start_sampler(
    streams: &Arc<[Stream]>,
    origin: Instant,
    sampling: &Arc<AtomicBool>,
    samples: &Arc<Mutex<Vec<Sample>>>,
) -> io::Result<JoinHandle<()>> {
    let (streams, sampling, samples) = (Arc::clone(streams), Arc::clone(sampling), Arc::clone(samples));
    thread::Builder::new().name("sampler".to_owned()).spawn(move || {
        let stopped = || !sampling.load(Ordering::Relaxed);
        sampler::run(&streams, origin, stopped, |look| {
            let mut samples = samples.lock().unwrap_or_else(PoisonError::into_inner);
            samples.extend(look);
            let full = samples.len() > MOST_SAMPLES;
            if full {
                sampler::thin_out(&mut samples);
            }
            full
        });
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::time::Duration;

    fn plan(role: Role) -> TransferPlan {
        TransferPlan { role, block: ByteCount::from_kib(128), budget: None, writer: Writer::Retrying, base_rtt: None }
    }

    fn connected(streams: usize) -> (Vec<TcpStream>, Vec<TcpStream>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let pair = |_| (TcpStream::connect(address).unwrap(), listener.accept().unwrap().0);
        (0..streams).map(pair).unzip()
    }

    #[test]
    fn a_budget_arrives_to_the_byte() {
        let (left, right) = connected(3);
        let budget = ByteCount::new(10_000_001);
        let receiver = Transfer::start(right, plan(Role::Receiver)).unwrap();
        let sender = Transfer::start(left, TransferPlan { budget: Some(budget), ..plan(Role::Sender) }).unwrap();
        let deadline = Instant::now() + Duration::from_secs(10);
        let received = || receiver.totals().streams.into_iter().sum::<ByteCount>();
        while (received() < budget || !sender.is_over()) && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(received(), budget);
        assert!(sender.is_over());
        let (sent, received) = (sender.finish(), receiver.finish());
        assert_eq!(sent.totals.streams, received.totals.streams);
        assert!(sent.failures.is_empty() && received.failures.is_empty());
    }

    #[test]
    fn both_writers_end_when_told_although_nobody_reads() {
        for writer in [Writer::Retrying, Writer::Blocking] {
            let (left, right) = connected(1);
            let sender = Transfer::start(left, TransferPlan { writer, ..plan(Role::Sender) }).unwrap();
            thread::sleep(Duration::from_millis(120));
            sender.stop_sending();
            let begun = Instant::now();
            let end = sender.finish();
            assert!(begun.elapsed() < Duration::from_secs(2), "{writer:?}");
            assert!(end.samples.len() >= 2 && end.totals.streams[0] > ByteCount::ZERO, "{writer:?}");
            drop(right);
        }
    }

    #[test]
    fn a_reader_that_waits_for_whole_blocks_sees_the_end() {
        let (left, mut right) = connected(1);
        let sender = Transfer::start(left, plan(Role::Sender)).unwrap();
        let reader = thread::spawn(move || std::io::copy(&mut right[0], &mut std::io::sink()).unwrap());
        thread::sleep(Duration::from_millis(50));
        sender.stop_sending();
        sender.close_sending();
        let deadline = Instant::now() + Duration::from_secs(10);
        while !reader.is_finished() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
        assert!(reader.is_finished());
        let end = sender.finish();
        assert!(end.failures.is_empty());
        assert_eq!(reader.join().unwrap(), end.totals.streams[0].get());
    }

    /// A look from before the first write once passed for the state after the last.
    #[test]
    fn what_nobody_reads_is_not_drained() {
        let (left, right) = connected(1);
        let budget = Some(ByteCount::from_mib(64));
        let sender = Transfer::start(left, TransferPlan { budget, ..plan(Role::Sender) }).unwrap();
        let deadline = Instant::now() + Duration::from_secs(5);
        while sender.totals().streams[0] < ByteCount::from_mib(1) && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
        assert!(!sender.is_drained());
        sender.stop_sending();
        drop(right);
    }

    #[test]
    fn a_connection_that_breaks_is_a_failure_of_its_stream() {
        let (left, right) = connected(2);
        let sender = Transfer::start(left, plan(Role::Sender)).unwrap();
        thread::sleep(Duration::from_millis(20));
        drop(right);
        let deadline = Instant::now() + Duration::from_secs(10);
        while !sender.is_over() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(sender.finish().failures.len(), 2);
    }
}
