use std::io;
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use fullpipe_record::{Cpu, Sample, StorageUse};
use fullpipe_sys::{CpuTime, process_cpu_time, tcp_info};
use fullpipe_units::{ByteCount, Ratio, SegCount, Span};
use rustix::thread::{CpuSet, sched_setaffinity};
use socket2::SockRef;

use crate::lane::{PlannedStream, RunningStream, StreamChannel, StreamCount, StreamRole};
use crate::plan::TransferPlan;
use crate::shared::TransferState;
use crate::storage::{FileStorage, StorageFailure};
use crate::{sampler, tcp, udp_receiver, udp_sender};

/// Streams with data on them.
pub struct RunningTransfer {
    origin: Instant,
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
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransferTotals {
    /// The moment, since the data began to flow.
    pub at: Span,
    /// Each stream, in the order of the lanes.
    pub streams: Vec<StreamCount>,
}

/// A transfer that is over.
#[derive(Debug)]
pub struct StreamTotals {
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
#[derive(Debug, Default)]
pub struct SenderSockets(Vec<TcpStream>);

impl SenderSockets {
    /// Returns the connections of the senders.
    fn of_senders(streams: Vec<RunningStream>) -> Self {
        let senders = streams
            .into_iter()
            .filter(|stream| stream.role == StreamRole::Sender);
        let sockets = senders.filter_map(|stream| match stream.channel {
            StreamChannel::Tcp(socket) => Some(socket),
            StreamChannel::Udp(_) => None,
        });
        Self(sockets.collect())
    }

    /// Returns the payload that they have sent so far, retransmissions included (`tcpi_bytes_sent`,
    /// Linux 4.19); `None` if there are none, or the kernel does not count it.
    pub fn carried_bytes(&self) -> Option<ByteCount> {
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
    pub fn reset_undelivered(&self) {
        for socket in self.0.iter().filter(|socket| !is_delivered(socket)) {
            let _ = SockRef::from(socket).set_linger(Some(Duration::ZERO));
        }
    }
}

/// Returns true if everything that was written to `socket` has been sent and acknowledged.
fn is_delivered(socket: &TcpStream) -> bool {
    tcp_info(socket).is_ok_and(|info| {
        info.not_sent.unwrap_or_default() == ByteCount::ZERO
            && info.unacked.unwrap_or_default() == SegCount::ZERO
    })
}

impl RunningTransfer {
    /// Starts data on `lanes`, stream 0 first. Where data goes both ways, lanes of both roles are
    /// one transfer.
    ///
    /// # Errors
    /// If a thread cannot be started.
    pub fn start_transfer(lanes: Vec<PlannedStream>, plan: TransferPlan) -> io::Result<Self> {
        Self::start_with(lanes, plan, None)
    }

    /// Starts data on `lanes` that comes from a file, or goes to one: the purpose of `storage`
    /// decides whether senders or receivers use it.
    ///
    /// # Errors
    /// If a thread cannot be started.
    pub fn start_with(
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

    /// When the data began to flow.
    pub fn origin(&self) -> Instant {
        self.origin
    }

    /// Returns the bytes and datagrams that each stream has moved so far.
    pub fn totals(&self) -> TransferTotals {
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
    pub fn latest_samples(&self) -> Vec<Sample> {
        let samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
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
    pub fn samples_within(&self, most: usize) -> Vec<Sample> {
        let mut samples = self
            .samples
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        while samples.len() > most.max(self.streams.len()) {
            sampler::thin_out(&mut samples);
        }
        samples
    }

    /// A sample of each stream of TCP now, in addition to those that are kept.
    pub fn sample_now(&self) -> Vec<Sample> {
        sampler::sample_streams(&self.streams, self.origin)
    }

    /// Processor time of this process since the data began to flow.
    pub fn cpu_time(&self) -> Option<Cpu> {
        let elapsed = self.origin.elapsed().into();
        process_cpu_time()
            .ok()
            .map(|now| self.cpu_since_start(now, elapsed))
    }

    /// Returns true if every stream has ended by itself: the budget is spent, or the other end is
    /// gone. A receiver of datagrams cannot know and never does.
    pub fn is_over(&self) -> bool {
        self.workers.iter().all(JoinHandle::is_finished)
    }

    /// Returns why its file could not be read or written, if that is so: the stream that found out
    /// has ended.
    pub fn storage_failure(&self) -> Option<&StorageFailure> {
        self.shared.storage()?.failure()
    }

    /// Returns true if every sender of this end has ended by itself.
    pub fn has_sent_all(&self) -> bool {
        self.have_ended(StreamRole::Sender)
    }

    /// Returns true if every receiver of this end has ended by itself: the other end has sent its
    /// last byte.
    pub fn has_received_all(&self) -> bool {
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
    pub fn is_drained(&self) -> bool {
        self.streams
            .iter()
            .all(|stream| match (&stream.channel, stream.role) {
                (StreamChannel::Tcp(socket), StreamRole::Sender) => is_delivered(socket),
                _ => true,
            })
    }

    /// Lets all senders of this end together send so many bytes more, and then end by themselves.
    pub fn limit_bytes(&self, bytes: ByteCount) {
        self.shared.limit_bytes(bytes);
    }

    /// Sends no more. A receiver goes on reading: what is under way must drain, or the other end
    /// never finishes.
    pub fn stop_sending(&self) {
        self.shared.stop_sending();
        // What follows is no part of the transfer. A sampler that has ended needs no message.
        let _ = self.stop_sampling.send(());
    }

    /// After [`RunningTransfer::stop_sending`], lets the other ends of TCP streams see that no more
    /// will come, once they have read what is under way.
    pub fn close_sending(&self) {
        for stream in self.streams.iter() {
            if let (StreamChannel::Tcp(_), StreamRole::Sender) = (&stream.channel, stream.role) {
                stream.shutdown(Shutdown::Write);
            }
        }
    }

    /// Ends everything, whatever state it is in, and returns what was seen.
    pub fn finish_transfer(self) -> StreamTotals {
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
        let samples =
            std::mem::take(&mut *self.samples.lock().unwrap_or_else(PoisonError::into_inner));
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
    thread::Builder::new()
        .name(format!("stream {index}"))
        .spawn(move || run_stream(&streams[index], &shared, &plan))
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
    match (&stream.channel, stream.role) {
        (StreamChannel::Tcp(socket), StreamRole::Sender) => {
            tcp::send_stream(socket, stream, shared, plan)
        }
        (StreamChannel::Tcp(socket), StreamRole::Receiver) => {
            tcp::receive_stream(socket, stream, shared, plan)
        }
        (StreamChannel::Udp(socket), StreamRole::Sender) => {
            udp_sender::send_datagrams(socket, stream, shared, plan)
        }
        (StreamChannel::Udp(socket), StreamRole::Receiver) => {
            udp_receiver::receive_datagrams(socket, stream, shared, plan)
        }
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
    thread::Builder::new()
        .name("sampler".to_owned())
        .spawn(move || {
            sampler::run_sampler(&streams, origin, &stop, |snapshot| {
                let mut samples = samples.lock().unwrap_or_else(PoisonError::into_inner);
                samples.extend(snapshot);
                let full = samples.len() > most;
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
    use crate::prepare::{LocalEndpoint, prepare_socket};
    use fullpipe_record::{Request, Writer};
    use fullpipe_testkit::within;
    use fullpipe_units::BitRate;
    use rustix::fs::{MemfdFlags, memfd_create};
    use socket2::{Domain, Protocol, Socket, Type};
    use std::fs::File;
    use std::net::{SocketAddr, TcpListener, TcpStream};
    use std::os::fd::{AsRawFd, RawFd};
    use std::os::unix::fs::FileExt;

    const TIMEOUT: Duration = Duration::from_secs(10);

    fn plan() -> TransferPlan {
        TransferPlan {
            whole_blocks: false,
            ..TransferPlan::from_request(&Request::default(), None)
        }
    }

    fn connected(streams: usize) -> (Vec<TcpStream>, Vec<TcpStream>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let pair = |_| {
            (
                TcpStream::connect(address).unwrap(),
                listener.accept().unwrap().0,
            )
        };
        (0..streams).map(pair).unzip()
    }

    fn lanes(role: StreamRole, sockets: Vec<TcpStream>) -> Vec<PlannedStream> {
        sockets
            .into_iter()
            .map(|socket| PlannedStream {
                channel: StreamChannel::Tcp(socket),
                role,
            })
            .collect()
    }

    fn sender(sockets: Vec<TcpStream>, plan: TransferPlan) -> RunningTransfer {
        RunningTransfer::start_transfer(lanes(StreamRole::Sender, sockets), plan).unwrap()
    }

    fn receiver(sockets: Vec<TcpStream>, plan: TransferPlan) -> RunningTransfer {
        RunningTransfer::start_transfer(lanes(StreamRole::Receiver, sockets), plan).unwrap()
    }

    fn bytes(totals: &TransferTotals) -> Vec<ByteCount> {
        totals.streams.iter().map(|stream| stream.bytes).collect()
    }

    fn moved(transfer: &RunningTransfer) -> ByteCount {
        bytes(&transfer.totals()).into_iter().sum()
    }

    /// Sends a budget over three streams; what both ends say of it.
    fn send_budget(plan: TransferPlan) -> (StreamTotals, StreamTotals) {
        let (left, right) = connected(3);
        let budget = ByteCount::new(10_000_001);
        let receiver = receiver(right, plan);
        let sender = sender(
            left,
            TransferPlan {
                budget: Some(budget),
                ..plan
            },
        );
        assert!(
            within(TIMEOUT, || moved(&receiver) == budget && sender.is_over()),
            "{:?}",
            receiver.totals()
        );
        assert!(sender.has_sent_all() && within(TIMEOUT, || sender.is_drained()));
        let (sent, received) = (sender.finish_transfer(), receiver.finish_transfer());
        assert_eq!(sent.totals.streams, received.totals.streams);
        assert!(sent.failures.is_empty() && received.failures.is_empty());
        (sent, received)
    }

    #[test]
    fn only_a_receiver_that_must_copy_copies_and_only_who_asked_is_informed_of_a_lack() {
        let plan = |request: Request| TransferPlan::from_request(&request, None);
        let free = plan(Request::default());
        assert!(free.discard && free.offload && !free.notes_lack_of_offload);
        assert!(
            !plan(Request {
                rx_copy: true,
                ..Request::default()
            })
            .discard
        );
        assert!(
            !plan(Request {
                no_gso: true,
                ..Request::default()
            })
            .offload
        );
        assert!(
            plan(Request {
                offload: true,
                ..Request::default()
            })
            .notes_lack_of_offload
        );
    }

    #[test]
    fn a_budget_arrives_to_the_byte() {
        send_budget(plan());
    }

    #[test]
    fn a_receiver_of_whole_blocks_gets_the_rest_of_the_last() {
        let (left, right) = connected(3);
        let plan = TransferPlan {
            whole_blocks: true,
            budget: Some(ByteCount::new(10_000_001)),
            ..plan()
        };
        let (receiver, sender) = (receiver(right, plan), sender(left, plan));
        assert!(within(TIMEOUT, || sender.is_over() && sender.is_drained()));
        let whole = plan.block * 10_000_001_u64.div_ceil(plan.block.get());
        assert!(
            within(TIMEOUT, || moved(&receiver) == whole),
            "{:?}",
            receiver.totals()
        );
        let sent = sender.finish_transfer().totals.streams;
        assert!(
            sent.iter()
                .all(|stream| stream.bytes.get() % plan.block.get() == 0),
            "{sent:?}"
        );
    }

    #[test]
    fn pages_of_a_file_arrive_and_what_arrives_may_be_discarded() {
        let (sent, received) = send_budget(TransferPlan {
            sendfile: true,
            discard: true,
            ..plan()
        });
        assert!(
            sent.notes.is_empty() && received.notes.is_empty(),
            "{:?}",
            sent.notes
        );
    }

    /// Data arrives as over TCP, whichever of the options the kernel supports for Multipath TCP.
    #[test]
    fn multipath_connections_carry_data_with_every_option() {
        let request = Request {
            multipath: true,
            sendfile: true,
            discard: true,
            ..Request::default()
        };
        let listener = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::MPTCP));
        let Ok(listener) = listener else { return };
        listener
            .bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into())
            .unwrap();
        listener.listen(1).unwrap();
        let address = listener.local_addr().unwrap().as_socket().unwrap();
        let left = prepare_socket(address, &request, &LocalEndpoint::default()).unwrap();
        left.connect(&address.into()).unwrap();
        let right = listener.accept().unwrap().0;
        let budget = ByteCount::new(10_000_001);
        let plan = TransferPlan {
            budget: Some(budget),
            whole_blocks: false,
            ..TransferPlan::from_request(&request, None)
        };
        let receiver = receiver(vec![right.into()], plan);
        let sender = sender(vec![left.into()], plan);
        assert!(
            within(TIMEOUT, || moved(&receiver) == budget),
            "{:?}",
            receiver.totals()
        );
        assert!(within(TIMEOUT, || sender.is_over() && sender.is_drained()));
        assert!(within(TIMEOUT, || sender.latest_samples().len() == 1));
        let (sent, received) = (sender.finish_transfer(), receiver.finish_transfer());
        assert!(
            sent.failures.is_empty() && received.failures.is_empty(),
            "{:?}",
            sent.failures
        );
    }

    #[test]
    fn every_way_of_sending_sends_the_same() {
        for (sendfile, zero_copy) in [(false, false), (true, false), (false, true)] {
            let (left, mut right) = connected(1);
            let budget = Some(ByteCount::new(300_000));
            let sender = sender(
                left,
                TransferPlan {
                    budget,
                    sendfile,
                    zero_copy,
                    ..plan()
                },
            );
            let mut read = vec![0; 300_000];
            std::io::Read::read_exact(&mut right[0], &mut read).unwrap();
            // Chunks begin anew wherever a write ended: what is sent is part of the pattern in any
            // case.
            let pattern = crate::shared::incompressible_bytes(131_072);
            assert!(
                read.starts_with(&pattern[..16_384]),
                "sendfile {sendfile}, zero copy {zero_copy}"
            );
            assert!(
                within(TIMEOUT, || sender.is_over()),
                "it also waits for what the kernel says of the sends"
            );
            let notes = sender.finish_transfer().notes;
            assert_eq!(
                notes.len(),
                usize::from(zero_copy),
                "loopback copies, and that is said: {notes:?}"
            );
        }
    }

    fn file_of(bytes: &[u8]) -> File {
        let mut file = File::from(memfd_create("storage", MemfdFlags::CLOEXEC).unwrap());
        std::io::Write::write_all(&mut file, bytes).unwrap();
        file
    }

    #[test]
    fn threads_run_where_they_are_reported_or_it_is_said_that_they_do_not() {
        let (left, right) = connected(1);
        let (missing, here) = (
            TransferPlan {
                processor: Some(4_000),
                ..plan()
            },
            TransferPlan {
                processor: Some(0),
                ..plan()
            },
        );
        let (sender, receiver) = (sender(left, here), receiver(right, missing));
        assert!(within(TIMEOUT, || moved(&receiver) > ByteCount::ZERO));
        let (sent, received) = (sender.finish_transfer(), receiver.finish_transfer());
        assert!(
            sent.notes.is_empty() && received.notes[0].contains("processor 4000"),
            "{:?}",
            received.notes
        );
    }

    #[test]
    fn a_file_goes_from_storage_to_storage() {
        let content = crate::shared::incompressible_bytes(3_000_001);
        let (left, right) = connected(1);
        let kept = file_of(&[]);
        let into = Some(FileStorage::for_writing(kept.try_clone().unwrap()));
        let receiver =
            RunningTransfer::start_with(lanes(StreamRole::Receiver, right), plan(), into).unwrap();
        let from = Some(FileStorage::for_reading(
            file_of(&content),
            ByteCount::new(3_000_001),
        ));
        let sender =
            RunningTransfer::start_with(lanes(StreamRole::Sender, left), plan(), from).unwrap();
        assert!(within(TIMEOUT, || sender.has_sent_all()
            && moved(&receiver).get() == 3_000_001));
        let (sent, received) = (sender.finish_transfer(), receiver.finish_transfer());
        let (read, written) = (sent.storage.unwrap(), received.storage.unwrap());
        assert_eq!(
            (read.bytes.get(), written.bytes.get()),
            (3_000_001, 3_000_001)
        );
        assert!(
            !read.writes && written.writes && read.busy > Span::ZERO && written.busy > Span::ZERO
        );
        let mut found = vec![0; 3_000_001];
        kept.read_exact_at(&mut found, 0).unwrap();
        assert!(found == content);
    }

    #[test]
    fn three_streams_share_a_file() {
        let (left, right) = connected(3);
        let receiver = receiver(right, plan());
        let from = Some(FileStorage::for_reading(
            file_of(&crate::shared::incompressible_bytes(3_000_001)),
            ByteCount::new(3_000_001),
        ));
        let budget = Some(ByteCount::new(3_000_001));
        let plan = TransferPlan { budget, ..plan() };
        let sender =
            RunningTransfer::start_with(lanes(StreamRole::Sender, left), plan, from).unwrap();
        assert!(within(TIMEOUT, || sender.has_sent_all()
            && moved(&receiver).get() == 3_000_001));
        assert_eq!(
            sender.finish_transfer().storage.unwrap().bytes.get(),
            3_000_001
        );
        receiver.finish_transfer();
    }

    #[test]
    fn a_full_disk_ends_the_stream_and_says_so() {
        let (left, right) = connected(1);
        let full = Some(FileStorage::for_writing(
            File::options().write(true).open("/dev/full").unwrap(),
        ));
        let receiver =
            RunningTransfer::start_with(lanes(StreamRole::Receiver, right), plan(), full).unwrap();
        let sender = sender(left, plan());
        assert!(within(TIMEOUT, || receiver.is_over()));
        let failures = receiver.finish_transfer().failures;
        assert!(
            failures[0]
                .1
                .to_string()
                .contains("No space left on device"),
            "{failures:?}"
        );
        sender.finish_transfer();
    }

    /// A receiver looks again after a moment while much arrives, and waits for the kernel's word
    /// else.
    #[test]
    fn little_data_is_read_at_once() {
        let (left, right) = connected(1);
        let receiver = receiver(right, plan());
        for count in 1..=20 {
            std::io::Write::write_all(&mut &left[0], &[7; 100]).unwrap();
            assert!(within(TIMEOUT, || moved(&receiver).get() == count * 100));
        }
        receiver.finish_transfer();
    }

    /// Each was once kept a second time, so that many streams took twice the descriptors.
    #[test]
    fn connections_that_are_over_are_kept_by_those_who_send_and_by_nobody_else() {
        let (left, right) = connected(2);
        let descriptors: Vec<RawFd> = left.iter().map(AsRawFd::as_raw_fd).collect();
        let budget = ByteCount::new(50_000);
        let receiver = receiver(right, plan());
        let sender = sender(
            left,
            TransferPlan {
                budget: Some(budget),
                ..plan()
            },
        );
        assert!(within(TIMEOUT, || moved(&receiver) == budget));
        let (sent, received) = (sender.finish_transfer(), receiver.finish_transfer());
        let kept: Vec<RawFd> = sent.sent_on.0.iter().map(AsRawFd::as_raw_fd).collect();
        assert_eq!(kept, descriptors);
        assert!(
            sent.sent_on
                .carried_bytes()
                .is_some_and(|carried| carried >= budget)
        );
        assert_eq!(received.sent_on.carried_bytes(), None);
    }

    #[test]
    fn data_goes_both_ways_in_one_transfer() {
        let (left, right) = connected(4);
        let both = |sockets: Vec<TcpStream>, first, second| {
            let mut lanes = lanes(first, sockets);
            lanes[2..].iter_mut().for_each(|lane| lane.role = second);
            lanes
        };
        let budget = ByteCount::new(5_000_001);
        let plan = TransferPlan {
            budget: Some(budget),
            ..plan()
        };
        let here = RunningTransfer::start_transfer(
            both(left, StreamRole::Sender, StreamRole::Receiver),
            plan,
        )
        .unwrap();
        let there = RunningTransfer::start_transfer(
            both(right, StreamRole::Receiver, StreamRole::Sender),
            plan,
        )
        .unwrap();
        let total = budget * 2;
        assert!(within(TIMEOUT, || moved(&here) == total && moved(&there) == total));
        assert!(within(TIMEOUT, || here.has_sent_all() && there.has_sent_all()));
        // Receivers go on reading, as no sender has closed.
        assert!(!here.is_over() && !there.is_over());
        assert!(within(TIMEOUT, || here.latest_samples().len() == 4));
        here.stop_sending();
        here.close_sending();
        there.close_sending();
        assert!(within(TIMEOUT, || here.is_over() && there.is_over()));
        let (here, there) = (here.finish_transfer(), there.finish_transfer());
        assert_eq!(here.totals.streams, there.totals.streams);
        assert_eq!(
            bytes(&here.totals)[2..].iter().copied().sum::<ByteCount>(),
            budget
        );
        assert!(here.failures.is_empty() && there.failures.is_empty());
    }

    #[test]
    fn a_rate_is_kept() {
        let (left, right) = connected(2);
        let rate = BitRate::from_mbps(40);
        let block = ByteCount::new(20_000);
        let receiver = receiver(right, plan());
        let sender = sender(
            left,
            TransferPlan {
                rate: Some(rate),
                burst: Some(3),
                block,
                ..plan()
            },
        );
        thread::sleep(Duration::from_secs(1));
        let sent = sender.totals();
        let least = rate.bytes_in(sent.at).scale_by(0.5);
        assert!(bytes(&sent).iter().all(|bytes| *bytes > least), "{sent:?}");
        sender.stop_sending();
        assert!(within(TIMEOUT, || sender.is_over()));
        let sent = sender.finish_transfer().totals;
        let most = rate.bytes_in(sent.at) + block * 3;
        assert!(bytes(&sent).iter().all(|bytes| *bytes <= most), "{sent:?}");
        receiver.finish_transfer();
    }

    #[test]
    fn a_sender_that_waits_for_its_time_ends_when_reported() {
        let (left, _right) = connected(1);
        let sender = sender(
            left,
            TransferPlan {
                rate: Some(BitRate::from_bps(8)),
                ..plan()
            },
        );
        assert!(within(TIMEOUT, || moved(&sender) == plan().block));
        let begun = Instant::now();
        sender.stop_sending();
        assert!(within(TIMEOUT, || sender.is_over()));
        sender.finish_transfer();
        assert!(begun.elapsed() < Duration::from_secs(2));
    }

    #[test]
    fn no_more_samples_are_kept_than_asked_for() {
        let (left, right) = connected(2);
        let sender = sender(
            left,
            TransferPlan {
                samples: 10,
                ..plan()
            },
        );
        let mut most = 0;
        for _ in 0..100 {
            most = most.max(sender.samples.lock().unwrap().len());
            thread::sleep(Duration::from_millis(5));
        }
        assert!((4..=10).contains(&most), "{most}");
        let kept = sender.finish_transfer().samples;
        assert!((4..=10).contains(&kept.len()), "{}", kept.len());
        drop(right);
    }

    #[test]
    fn both_writers_end_when_reported_although_nobody_reads() {
        for writer in [Writer::Retrying, Writer::Blocking] {
            let (left, right) = connected(1);
            let sender = sender(left, TransferPlan { writer, ..plan() });
            thread::sleep(Duration::from_millis(120));
            sender.stop_sending();
            let begun = Instant::now();
            let end = sender.finish_transfer();
            assert!(begun.elapsed() < Duration::from_secs(2), "{writer:?}");
            assert!(
                end.samples.len() >= 2 && end.totals.streams[0].bytes > ByteCount::ZERO,
                "{writer:?}"
            );
            drop(right);
        }
    }

    #[test]
    fn a_bounded_sender_to_a_peer_that_reads_nothing_fills_no_memory_and_still_carries_all_to_one_that_reads()
     {
        let queued = |bounds_unsent| {
            let (left, right) = connected(1);
            let sender = sender(
                left,
                TransferPlan {
                    bounds_unsent,
                    ..plan()
                },
            );
            thread::sleep(Duration::from_millis(300));
            let queued = sender.sample_now()[0].memory.as_ref().unwrap().wmem_queued;
            sender.finish_transfer().sent_on.reset_undelivered();
            let end = std::io::copy(&mut &right[0], &mut std::io::sink()).unwrap_err();
            assert_eq!(
                end.kind(),
                io::ErrorKind::ConnectionReset,
                "the kernel keeps nothing for it"
            );
            queued
        };
        let [bounded, free] = [true, false].map(queued);
        assert!(
            bounded <= ByteCount::from_kib(192) && free > ByteCount::from_mib(1),
            "{bounded} of {free}"
        );
        send_budget(TransferPlan {
            bounds_unsent: true,
            ..plan()
        });
    }

    #[test]
    fn a_reader_that_waits_for_whole_blocks_sees_the_end() {
        let (left, mut right) = connected(1);
        let sender = sender(left, plan());
        let reader =
            thread::spawn(move || std::io::copy(&mut right[0], &mut std::io::sink()).unwrap());
        thread::sleep(Duration::from_millis(50));
        sender.stop_sending();
        sender.close_sending();
        assert!(within(TIMEOUT, || reader.is_finished()));
        let end = sender.finish_transfer();
        assert!(end.failures.is_empty());
        assert_eq!(reader.join().unwrap(), end.totals.streams[0].bytes.get());
    }

    /// A snapshot from before the first write once passed for the state after the last.
    #[test]
    fn what_nobody_reads_is_not_drained() {
        let (left, right) = connected(1);
        let sender = sender(
            left,
            TransferPlan {
                budget: Some(ByteCount::from_mib(64)),
                ..plan()
            },
        );
        assert!(within(TIMEOUT, || moved(&sender) >= ByteCount::from_mib(1)));
        assert!(!sender.is_drained());
        sender.stop_sending();
        drop(right);
    }

    #[test]
    fn a_connection_that_breaks_is_a_failure_of_its_stream() {
        let (left, right) = connected(2);
        let sender = sender(left, plan());
        thread::sleep(Duration::from_millis(20));
        drop(right);
        assert!(within(TIMEOUT, || sender.is_over()));
        assert_eq!(sender.finish_transfer().failures.len(), 2);
    }
}
