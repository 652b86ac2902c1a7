use std::io;
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fullpipe_record::{Cpu, Sample, StorageUse, thin_out_snapshots};
use fullpipe_sys::{CpuTime, lock, process_cpu_time, start_thread, tcp_info};
use fullpipe_units::{ByteCount, Ratio, Span};
use rustix::thread::{CpuSet, sched_setaffinity};
use socket2::SockRef;

use super::lane::{PlannedStream, RunningStream, StreamChannel, StreamCount, StreamRole};
use super::plan::TransferPlan;
use super::shared::TransferState;
use super::storage::{FileStorage, StorageFailure};
use super::{framed, sampler, tcp, udp_receiver, udp_sender};

/// Streams with data on them.
pub(crate) struct RunningTransfer {
    /// When the data began to flow.
    pub origin: Instant,
    streams: Arc<Vec<RunningStream>>,
    shared: Arc<TransferState>,
    /// Ends the sampler.
    stop_sampling: Sender<()>,
    samples: Arc<Mutex<Vec<Sample>>>,
    workers: Vec<JoinHandle<io::Result<()>>>,
    sampler: JoinHandle<()>,
    cpu: CpuTime,
}

/// The bytes and datagrams that a transfer moved up to a moment.
#[derive(Debug, Clone)]
pub(crate) struct TransferTotals {
    /// The moment, since the data began to flow.
    pub at: Span,
    /// Each stream, in the order of the lanes.
    pub streams: Vec<StreamCount>,
}

/// A transfer that is over.
pub(crate) struct StreamTotals {
    /// The totals of the transfer.
    pub totals: TransferTotals,
    /// Every snapshot of every stream of TCP.
    pub samples: Vec<Sample>,
    /// The connections of TCP on which this end sent.
    pub sent_on: SenderSockets,
    /// Processor time of this process while it ran.
    pub cpu: Option<Cpu>,
    /// The use of the file that was read or written, if any.
    pub storage: Option<StorageUse>,
    /// Streams that ended with an error, and which.
    pub failures: Vec<(u16, io::Error)>,
    /// Requests that could not be carried out, a sentence each.
    pub notes: Vec<String>,
}

/// Connections of TCP of a transfer that is over. They stay open: what was written before its end
/// goes out after it.
#[derive(Default)]
pub(crate) struct SenderSockets(Vec<TcpStream>);

impl SenderSockets {
    /// Returns the connections of the senders.
    fn of_senders(streams: Vec<RunningStream>) -> Self {
        let senders = streams
            .into_iter()
            .filter(|stream| stream.role == StreamRole::Sender);
        let sockets = senders.filter_map(|stream| match stream.channel {
            StreamChannel::Tcp(socket) => Some(socket),
            StreamChannel::Udp(_) | StreamChannel::Framed(_) => None,
        });
        Self(sockets.collect())
    }

    /// Returns the payload that they have sent so far, retransmissions included (`tcpi_bytes_sent`,
    /// Linux 4.19); `None` if there are none, or the kernel does not count it.
    pub(crate) fn carried_bytes(&self) -> Option<ByteCount> {
        let bytes: Option<Vec<ByteCount>> = self
            .0
            .iter()
            .map(|socket| tcp_info(socket).ok()?.bytes_sent)
            .collect();
        bytes
            .filter(|bytes| !bytes.is_empty())
            .map(|bytes| bytes.into_iter().sum())
    }

    /// Makes those whose other ends have not acknowledged everything close with a reset: the kernel
    /// would keep the rest as long as that end answers its probes, which may be for ever.
    pub(crate) fn reset_undelivered(&self) {
        for socket in self.0.iter().filter(|socket| !is_delivered(socket)) {
            let _ = SockRef::from(socket).set_linger(Some(Duration::ZERO));
        }
    }
}

/// Returns true if everything that was written to `socket` has been sent and acknowledged.
fn is_delivered(socket: &TcpStream) -> bool {
    tcp_info(socket).is_ok_and(|info| info.is_acknowledged())
}

impl RunningTransfer {
    /// Starts data on `lanes`, stream 0 first. Where data goes both ways, lanes of both roles are
    /// one transfer.
    ///
    /// # Errors
    /// If a thread cannot be started.
    pub(crate) fn start_transfer(
        lanes: Vec<PlannedStream>,
        plan: TransferPlan,
    ) -> io::Result<Self> {
        Self::start_with(lanes, plan, None)
    }

    /// Starts data on `lanes` that comes from a file, or goes to one: the purpose of `storage`
    /// decides whether senders or receivers use it.
    ///
    /// # Errors
    /// If a thread cannot be started.
    pub(crate) fn start_with(
        lanes: Vec<PlannedStream>,
        plan: TransferPlan,
        storage: Option<FileStorage>,
    ) -> io::Result<Self> {
        let plan = TransferPlan {
            block: plan.block.max(ByteCount::new(1)),
            ..plan
        };
        let origin = Instant::now();
        let cpu = process_cpu_time()?;
        let streams: Arc<Vec<RunningStream>> =
            Arc::new(lanes.into_iter().map(RunningStream::new).collect());
        let shared = Arc::new(TransferState::new(plan.budget, storage));
        let workers = start_workers(&streams, &shared, plan)?;
        let samples = Arc::new(Mutex::new(Vec::new()));
        let (stop_sampling, stop) = mpsc::channel();
        let sampler = start_sampler(&streams, origin, stop, &samples, plan.samples)
            .inspect_err(|_| shared.stop(&streams))?;
        Ok(Self {
            origin,
            streams,
            shared,
            stop_sampling,
            samples,
            workers,
            sampler,
            cpu,
        })
    }

    /// Returns the bytes and datagrams that each stream has moved so far.
    pub(crate) fn totals(&self) -> TransferTotals {
        TransferTotals {
            at: self.origin.elapsed().into(),
            streams: self
                .streams
                .iter()
                .map(RunningStream::total_count)
                .collect(),
        }
    }

    /// The latest sample of each stream of TCP; none before the first snapshot.
    pub(crate) fn latest_samples(&self) -> Vec<Sample> {
        let samples = lock(&self.samples);
        let at = samples.last().map(|sample| sample.at);
        let latest = samples
            .iter()
            .rev()
            .take_while(|sample| Some(sample.at) == at)
            .count();
        samples[samples.len() - latest..].to_vec()
    }

    /// Returns the samples so far: every second snapshot, or every fourth and so on, of more than
    /// `most` samples.
    pub(crate) fn samples_within(&self, most: usize) -> Vec<Sample> {
        let mut samples = lock(&self.samples).clone();
        while samples.len() > most.max(self.streams.len()) {
            thin_out_snapshots(&mut samples);
        }
        samples
    }

    /// A sample of each stream of TCP now, in addition to those that are kept.
    pub(crate) fn sample_now(&self) -> Vec<Sample> {
        sampler::sample_streams(&self.streams, self.origin)
    }

    /// Processor time of this process since the data began to flow.
    pub(crate) fn cpu_time(&self) -> Option<Cpu> {
        let elapsed = self.origin.elapsed().into();
        process_cpu_time()
            .ok()
            .map(|now| self.cpu_since_start(now, elapsed))
    }

    /// Returns true if every stream has ended by itself: the budget is spent, or the other end is
    /// gone. A receiver of datagrams cannot know and never does.
    pub(crate) fn is_over(&self) -> bool {
        self.workers.iter().all(JoinHandle::is_finished)
    }

    /// Returns why its file could not be read or written, if that is so: the stream that found out
    /// has ended.
    pub(crate) fn storage_failure(&self) -> Option<&StorageFailure> {
        self.shared.storage()?.failure()
    }

    /// Returns true if every sender of this end has ended by itself.
    pub(crate) fn has_sent_all(&self) -> bool {
        self.have_ended(StreamRole::Sender)
    }

    /// Returns true if every receiver of this end has ended by itself: the other end has sent its
    /// last byte.
    pub(crate) fn has_received_all(&self) -> bool {
        self.have_ended(StreamRole::Receiver)
    }

    fn have_ended(&self, role: StreamRole) -> bool {
        self.streams
            .iter()
            .zip(&self.workers)
            .all(|(stream, worker)| stream.role != role || worker.is_finished())
    }

    /// Returns true if everything that was written has been sent and acknowledged. Datagrams are
    /// not acknowledged, and not waited for.
    pub(crate) fn is_drained(&self) -> bool {
        self.streams
            .iter()
            .all(|stream| match (&stream.channel, stream.role) {
                (StreamChannel::Tcp(socket), StreamRole::Sender) => is_delivered(socket),
                (StreamChannel::Framed(framed), StreamRole::Sender) => is_delivered(&framed.socket),
                _ => true,
            })
    }

    /// Lets all senders of this end together send so many bytes more, and then end by themselves.
    pub(crate) fn limit_bytes(&self, bytes: ByteCount) {
        self.shared.limit_bytes(bytes);
    }

    /// Sends no more. A receiver goes on reading: what is under way must drain, or the other end
    /// never finishes.
    pub(crate) fn stop_sending(&self) {
        self.shared.stop_sending();
        // What follows is no part of the transfer. A sampler that has ended needs no message.
        let _ = self.stop_sampling.send(());
    }

    /// After [`RunningTransfer::stop_sending`], lets the other ends of TCP streams see that no more
    /// will come, once they have read what is under way.
    pub(crate) fn close_sending(&self) {
        for stream in self.streams.iter() {
            if let (StreamChannel::Tcp(_), StreamRole::Sender) = (&stream.channel, stream.role) {
                stream.shutdown(Shutdown::Write);
            }
        }
    }

    /// Ends everything, whatever state it is in, and returns what was seen.
    pub(crate) fn finish_transfer(self) -> StreamTotals {
        let totals = self.totals();
        self.note_unknown_drops(&totals);
        let at = totals.at;
        let cpu = self.cpu_time();
        let _ = self.stop_sampling.send(());
        // Wakes a thread that is blocked in a write, too.
        self.shared.stop(&self.streams);
        let failures = join_workers(self.workers);
        // A sender counts what it wrote a moment after the other end may have it.
        let streams = self.streams.iter().zip(totals.streams);
        let written = streams.map(|(stream, count)| match stream.role {
            StreamRole::Sender => stream.total_count(),
            StreamRole::Receiver => count,
        });
        let totals = TransferTotals {
            at,
            streams: written.collect(),
        };
        let _ = self.sampler.join();
        let samples = std::mem::take(&mut *lock(&self.samples));
        let storage = self.shared.storage().map(|storage| {
            let (used, note) = storage.finish_storage();
            if let Some(note) = note {
                self.shared.add_note(note);
            }
            used
        });
        // All threads have ended, so that no other owner holds them.
        let sent_on = Arc::into_inner(self.streams)
            .map(SenderSockets::of_senders)
            .unwrap_or_default();
        StreamTotals {
            totals,
            samples,
            sent_on,
            cpu,
            storage,
            failures,
            notes: self.shared.take_notes(),
        }
    }

    fn note_unknown_drops(&self, totals: &TransferTotals) {
        for (stream, count) in self.streams.iter().zip(&totals.streams) {
            if count.datagrams.dropped_here.is_none()
                && stream.dropped_messages().is_some()
                && stream.role == StreamRole::Receiver
            {
                let why = "this host dropped datagrams that the kernel had joined, and it does not report how many they were";
                self.shared.add_note(why.to_owned());
            }
        }
    }

    fn cpu_since_start(&self, now: CpuTime, elapsed: Span) -> Cpu {
        let [user, system] =
            [(now.user, self.cpu.user), (now.system, self.cpu.system)].map(|(now, before)| {
                Ratio::from_quotient(
                    now.saturating_sub(before).as_secs_f64(),
                    elapsed.as_secs_f64(),
                )
            });
        Cpu { user, system }
    }
}

/// A thread for each stream; none remains if one cannot be started.
fn start_workers(
    streams: &Arc<Vec<RunningStream>>,
    shared: &Arc<TransferState>,
    plan: TransferPlan,
) -> io::Result<Vec<JoinHandle<io::Result<()>>>> {
    let workers: io::Result<Vec<_>> = (0..streams.len())
        .map(|index| start_worker(index, streams, shared, plan))
        .collect();
    workers.inspect_err(|_| shared.stop(streams))
}

/// Waits for the end of all threads. Returns the errors of those that failed, with the numbers of
/// their streams.
fn join_workers(workers: Vec<JoinHandle<io::Result<()>>>) -> Vec<(u16, io::Error)> {
    let outcomes = workers.into_iter().map(|worker| {
        worker
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("its thread panicked")))
    });
    outcomes
        .zip(0..)
        .filter_map(|(end, index)| Some((index, end.err()?)))
        .collect()
}

fn start_worker(
    index: usize,
    streams: &Arc<Vec<RunningStream>>,
    shared: &Arc<TransferState>,
    plan: TransferPlan,
) -> io::Result<JoinHandle<io::Result<()>>> {
    let (streams, shared) = (Arc::clone(streams), Arc::clone(shared));
    start_thread(&format!("stream {index}"), move || {
        run_stream(&streams[index], &shared, &plan)
    })
}

/// Sends or receives the data of a stream until it ends.
fn run_stream(
    stream: &RunningStream,
    shared: &TransferState,
    plan: &TransferPlan,
) -> io::Result<()> {
    if let Some(processor) = plan.processor
        && let Err(error) = run_on(processor)
    {
        shared.add_note(format!(
            "data threads run where the kernel puts them, not on processor {processor}: {error}"
        ));
    }
    let sends = stream.role == StreamRole::Sender;
    match &stream.channel {
        StreamChannel::Tcp(socket) if sends => tcp::send_stream(socket, stream, shared, plan),
        StreamChannel::Tcp(socket) => tcp::receive_stream(socket, stream, shared, plan),
        StreamChannel::Udp(socket) if sends => {
            udp_sender::send_datagrams(socket, stream, shared, plan)
        }
        StreamChannel::Udp(socket) => udp_receiver::receive_datagrams(socket, stream, shared, plan),
        StreamChannel::Framed(framed) => framed::run_framed(framed, stream, shared, plan),
    }
}

/// Keeps this thread on one processor.
fn run_on(processor: u16) -> io::Result<()> {
    let (mut set, processor) = (CpuSet::new(), usize::from(processor));
    // Beyond what a set can hold, there is no such processor, as the kernel says of an empty set.
    if processor < CpuSet::MAX_CPU {
        set.set(processor);
    }
    Ok(sched_setaffinity(None, &set)?)
}

fn start_sampler(
    streams: &Arc<Vec<RunningStream>>,
    origin: Instant,
    stop: mpsc::Receiver<()>,
    samples: &Arc<Mutex<Vec<Sample>>>,
    most: usize,
) -> io::Result<JoinHandle<()>> {
    let (streams, samples) = (Arc::clone(streams), Arc::clone(samples));
    start_thread("sampler", move || {
        sampler::run_sampler(&streams, origin, &stop, |snapshot| {
            let mut samples = lock(&samples);
            samples.extend(snapshot);
            let full = samples.len() > most;
            if full {
                thin_out_snapshots(&mut samples);
            }
            full
        });
    })
}

#[cfg(test)]
mod tests;
