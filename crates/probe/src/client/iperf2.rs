//! A client for servers of iperf2: it sends, over TCP or UDP.
//!
//! iperf2 has no control connection. Over TCP the server does not report the bytes that it
//! received, so the bytes acknowledged by its kernel are counted. Over UDP it answers the last
//! datagram with a report.

use std::io::{self, ErrorKind, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use crate::echo::EchoProber;
use crate::engine::{
    PlannedStream, RunningTransfer, StreamChannel, StreamRole, TransferPlan, WriteAllowance,
    prepare_socket, prepare_udp, read_back,
};
use fullpipe_host::{SysctlTree, inspect_host};
use fullpipe_iperf::iperf2::{HEADER_LENGTH, Iperf2Datagram, Iperf2Header, Iperf2Report};
use fullpipe_iperf::{ErrorNumber, TestRefusal};
use fullpipe_lab::PathWitness;
use fullpipe_record::{
    Buffer, Cpu, Direction, EndReport, Interval, Measurement, Peer, Request, ResolvedRequest,
    RttReport, RunTotals, Sample, SocketReadback, StreamInterval, StreamSummary, Summary,
    Transport, find_steady,
};
use fullpipe_sys::start_thread;
use fullpipe_units::{BitRate, ByteCount, Span};
use socket2::SockRef;

use super::placement::go_near;
use super::session::{round_trips, unmet_rate};
use crate::destination::Destination;
use crate::error::ProbeError;
use crate::progress::all_broke;
use crate::results::{direction_summary, new_id, this_host};

/// Timeout for the last bytes of a TCP upload to be acknowledged.
const DRAIN: Duration = Duration::from_secs(10);

/// Timeout for the last bytes of a TCP upload that the user interrupts, or of which nothing more is
/// acknowledged.
const HASTY_DRAIN: Duration = Duration::from_secs(1);

/// Maximum time in which a server acknowledges nothing of an upload of a number of bytes, as with
/// iperf3 servers.
const MAX_SILENCE: Span = Span::from_secs(120);

/// Bytes of the header that begins the data of a TCP connection.
const HEADER: ByteCount = ByteCount::new(HEADER_LENGTH as u64);

/// Time between two checks of a transfer, and for an interrupt.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Time after which a last datagram that was not answered is repeated, as in iperf 2.1.
const REPEAT: Duration = Duration::from_millis(10);

/// Maximum time to wait for the report of a stream, as in iperf 2.1.
const MAX_REPORT: Duration = Duration::from_secs(2);

/// Default payload bytes of a datagram, as in iperf2.
const USUAL_DATAGRAM: ByteCount = ByteCount::new(1470);

/// Payload bytes of the largest datagram over IPv4.
const MAX_DATAGRAM: u64 = 65_507;

/// Maximum time for which the server's UDP port may seem closed, or a device may have no room for a
/// datagram.
const MAX_REFUSAL: Duration = Duration::from_secs(1);

/// Time from the start of one stream of datagrams to the next: the server makes a socket for each,
/// and loses datagrams of other streams meanwhile.
const STAGGER: Duration = Duration::from_millis(2);

/// Measures an upload to an iperf2 server. An interrupt ends it cleanly; the measurement then holds
/// what was counted so far.
///
/// # Errors
/// Fails if the request is for more than an upload without omitted time, the server cannot be
/// reached, or this host lacks what was asked for.
pub fn measure_iperf2(
    destination: &Destination,
    request: &Request,
    interrupt: &AtomicBool,
    progress: &mut dyn FnMut(&Interval),
) -> Result<Measurement, ProbeError> {
    let (begun, witness) = (Instant::now(), PathWitness::begin_witness());
    let asked = request.clone();
    let request = sendable_request(request).map_err(ProbeError::Request)?;
    let settings = inspect_host(&SysctlTree::of_this_host())?;
    let addresses = destination.resolve_host()?;
    let placement = addresses.first().filter(|_| request.near_device);
    let placement = placement.map(|address| go_near(address.ip(), &destination.local));
    let started = jiff::Timestamp::now();
    let upload = match request.transport {
        Transport::Tcp => over_tcp(
            destination,
            &addresses,
            &request,
            MAX_SILENCE,
            interrupt,
            progress,
        )?,
        Transport::Udp => over_udp(destination, &addresses, &request, interrupt, progress)?,
    };
    let summary = upload.to_summary();
    let run = RunTotals {
        wall: begun.elapsed().into(),
        written: summary.sent,
        read: ByteCount::ZERO,
        carried: upload.carried,
    };
    let unmet = unmet_rate(&request, Direction::Upload, summary.sent, upload.watched.to);
    let unmet: Vec<String> = unmet
        .filter(|_| upload.broken_off.is_none())
        .into_iter()
        .collect();
    let measurement = Measurement {
        id: new_id(),
        started: format!("{started:.3}"),
        peer: Peer {
            host: destination.host.clone(),
            address: upload.address.to_string(),
            speaks_fullpipe: false,
        },
        request: asked,
        resolved: Some(ResolvedRequest::new(request)),
        run: Some(run),
        local: EndReport {
            host: Some(this_host()),
            settings: Some(settings),
            cpu: upload.cpu,
            sockets: upload.sockets,
            samples: upload.samples,
            placement,
            ..EndReport::default()
        },
        streams: upload.streams,
        intervals: upload.watched.intervals,
        rtt: upload.rtt,
        summary,
        interrupted: upload.watched.interrupted,
        broken_off: upload.broken_off,
        validity: witness
            .map(PathWitness::finish_witness)
            .unwrap_or_default()
            .with_reasons(unmet),
        ..Measurement::default()
    };
    Ok(measurement.to_bounded())
}

/// Returns the request with its block filled in.
///
/// # Errors
/// Fails if an iperf2 server cannot run the test.
fn sendable_request(request: &Request) -> Result<Request, TestRefusal> {
    let usual = match request.transport {
        Transport::Tcp => ByteCount::from_kib(128),
        Transport::Udp => USUAL_DATAGRAM,
    };
    let block = if request.block == ByteCount::ZERO {
        usual
    } else {
        request.block
    };
    let datagrams = Iperf2Datagram::LENGTH as u64..=MAX_DATAGRAM;
    if request.direction != Direction::Upload {
        return Err(TestRefusal::new(
            ErrorNumber::UNIMPLEMENTED,
            "with iperf2 servers only uploads are measured",
        ));
    }
    if request.omit != Span::ZERO {
        return Err(TestRefusal::new(
            ErrorNumber::OMIT,
            "iperf2 servers cannot leave out the start of a test",
        ));
    }
    if matches!(request.buffer, Buffer::Window(_)) {
        return Err(TestRefusal::new(
            ErrorNumber::UNIMPLEMENTED,
            "the window is the server's with iperf2: start `iperf -s -w` there",
        ));
    }
    if request.transport == Transport::Udp && !datagrams.contains(&block.get()) {
        return Err(TestRefusal::new(
            ErrorNumber::UDP_BLOCK_SIZE,
            "iperf2's datagrams have 20 to 65507 bytes",
        ));
    }
    Ok(Request {
        block,
        ..request.clone()
    })
}

/// An upload that is over.
struct FinishedUpload {
    address: SocketAddr,
    sockets: Vec<SocketReadback>,
    streams: Vec<StreamSummary>,
    /// Time until everything that counts had arrived.
    duration: Span,
    cpu: Option<Cpu>,
    samples: Vec<Sample>,
    /// Payload that left this host, with TCP.
    carried: Option<ByteCount>,
    rtt: RttReport,
    watched: WatchedUpload,
    broken_off: Option<String>,
}

impl FinishedUpload {
    fn to_summary(&self) -> Summary {
        let summary = direction_summary(Direction::Upload, &self.streams, self.duration);
        let duration = self.duration.max(Span::from_nanos(1));
        Summary {
            rate: BitRate::from_bytes_in(summary.received, duration),
            steady: find_steady(
                &self.samples,
                self.rtt.idle.map(|idle| idle.min),
                self.watched.to,
            ),
            ..summary
        }
    }
}

/// Bytes and datagrams that one stream has sent so far.
#[derive(Clone, Copy, Default)]
struct SentAmount {
    bytes: ByteCount,
    datagrams: Option<u64>,
}

/// The course of a transfer until its end was due.
struct WatchedUpload {
    origin: Instant,
    intervals: Vec<Interval>,
    to: Span,
    interrupted: bool,
}

/// Reports intervals until the time has passed, the transfer is over by itself, or the user
/// interrupts it.
fn watch_upload(
    request: &Request,
    prober: Option<&EchoProber>,
    interrupt: &AtomicBool,
    progress: &mut dyn FnMut(&Interval),
    sent: &dyn Fn() -> Vec<SentAmount>,
    is_over: &mut dyn FnMut() -> bool,
) -> WatchedUpload {
    const MIN_INTERVAL: Span = Span::from_millis(1);
    let origin = Instant::now();
    prober.inspect(|prober| prober.load_begins());
    let mut watched = WatchedUpload {
        origin,
        intervals: Vec::new(),
        to: Span::ZERO,
        interrupted: false,
    };
    let mut before = vec![SentAmount::default(); request.streams.into()];
    let mut next = request.interval;
    loop {
        let now: Span = origin.elapsed().into();
        watched.interrupted = interrupt.load(Ordering::Relaxed);
        let is_due = watched.interrupted
            || is_over()
            || (request.bytes.is_none() && now >= request.duration);
        let has_passed = request.interval != Span::ZERO && now >= next;
        if (has_passed || is_due) && now >= watched.to + MIN_INTERVAL {
            let after = sent();
            let echo_rtt = prober.and_then(EchoProber::take_recent_rtt);
            let interval = Interval {
                echo_rtt,
                ..upload_interval(watched.to, now, &before, &after)
            };
            progress(&interval);
            watched.intervals.push(interval);
            (before, watched.to) = (after, now);
            if has_passed {
                next = request.interval * (now.as_nanos() / request.interval.as_nanos() + 1);
            }
        }
        if is_due {
            return watched;
        }
        if let Some(prober) = prober {
            let bytes = sent().iter().map(|sent| sent.bytes).sum();
            prober.load_carries(
                request,
                BitRate::from_bytes_in(bytes, now.max(MIN_INTERVAL)),
                now,
            );
        }
        thread::sleep(POLL_INTERVAL);
    }
}

fn upload_interval(from: Span, to: Span, before: &[SentAmount], after: &[SentAmount]) -> Interval {
    let streams: Vec<StreamInterval> = before
        .iter()
        .zip(after)
        .zip(0..)
        .map(|((before, after), stream)| StreamInterval {
            stream,
            bytes: after.bytes.saturating_sub(before.bytes),
            datagrams_sent: after
                .datagrams
                .map(|after| after.saturating_sub(before.datagrams.unwrap_or(0))),
            datagrams: None,
            retransmits: None,
            tcp: None,
        })
        .collect();
    let bytes = streams.iter().map(|stream| stream.bytes).sum();
    Interval {
        datagrams_sent: streams.iter().map(|stream| stream.datagrams_sent).sum(),
        streams,
        ..Interval::from_bytes(Direction::Upload, [from, to], bytes)
    }
}

/// The acknowledgements of an upload so far.
struct AcknowledgementWatch {
    max_silence: Span,
    bytes: ByteCount,
    /// Time at which the bytes last became more.
    grew: Span,
    /// Time at which they are read next.
    next: Span,
}

impl AcknowledgementWatch {
    fn with_max_silence(max_silence: Span) -> Self {
        Self {
            max_silence,
            bytes: ByteCount::ZERO,
            grew: Span::ZERO,
            next: Span::ZERO,
        }
    }

    /// Returns true if the server has acknowledged nothing more for longer than is permitted, at
    /// `now`, although bytes are missing. The acknowledged `bytes`, `None` if none are missing, are
    /// read a hundred times in that time at most: each reading asks the kernel about every stream.
    fn is_overdue(&mut self, now: Span, bytes: impl FnOnce() -> Option<ByteCount>) -> bool {
        if now < self.next {
            return false;
        }
        self.next = now + self.max_silence / 100;
        match bytes() {
            Some(bytes) if bytes <= self.bytes => {}
            other => (self.bytes, self.grew) = (other.unwrap_or(self.bytes), now),
        }
        now.saturating_sub(self.grew) > self.max_silence
    }
}

/// Returns what each stream of an upload carried. Where the kernel still holds data (`is_drained` is
/// false), only acknowledged bytes count as received.
fn upload_summaries(
    sent: &[SentAmount],
    samples: &[Sample],
    is_drained: bool,
) -> Vec<StreamSummary> {
    sent.iter()
        .zip(0..)
        .map(|(sent, index)| {
            let last = samples.iter().rev().find(|sample| sample.stream == index);
            let acknowledged = last
                .and_then(|sample| sample.tcp.bytes_acked)
                .unwrap_or_default();
            StreamSummary {
                stream: index,
                direction: Direction::Upload,
                sent: sent.bytes,
                received: if is_drained {
                    sent.bytes
                } else {
                    acknowledged.min(sent.bytes)
                },
                retransmits: last.and_then(|sample| sample.tcp.total_retrans),
                datagrams_sent: None,
                datagrams: None,
            }
        })
        .collect()
}

/// Uploads over TCP. An upload of a number of bytes breaks off once the server has acknowledged
/// nothing for longer than `max_silence`.
fn over_tcp(
    destination: &Destination,
    addresses: &[SocketAddr],
    request: &Request,
    max_silence: Span,
    interrupt: &AtomicBool,
    progress: &mut dyn FnMut(&Interval),
) -> Result<FinishedUpload, ProbeError> {
    let (address, prober, streams) = connect_streams(destination, addresses, request)?;
    let handshake = streams
        .first()
        .and_then(|stream| fullpipe_sys::tcp_info(stream).ok()?.rtt);
    let sockets = streams
        .iter()
        .zip(0..)
        .map(|(stream, index)| read_back(&SockRef::from(stream), index));
    let sockets = sockets
        .collect::<Result<_, _>>()
        .map_err(ProbeError::from_io("read a socket's options"))?;
    let transfer = start_upload(streams, request, handshake)?;
    let mut acknowledged = AcknowledgementWatch::with_max_silence(max_silence);
    let mut is_silent = false;
    let watched = watch_upload(
        request,
        prober.as_ref(),
        interrupt,
        progress,
        &|| sent_amounts(&transfer),
        &mut || {
            let now = transfer.origin.elapsed().into();
            is_silent = request.bytes.is_some()
                && acknowledged.is_overdue(now, || acknowledged_bytes(&transfer));
            transfer.is_over() || is_silent
        },
    );
    drain_upload(&transfer, watched.interrupted || is_silent);
    let (sent, is_drained) = (sent_amounts(&transfer), transfer.is_drained());
    let duration = transfer.origin.elapsed().into();
    let rest = transfer.finish_transfer();
    let within = rest
        .samples
        .iter()
        .filter_map(|sample| sample.tcp.rtt)
        .collect();
    Ok(FinishedUpload {
        address,
        sockets,
        streams: upload_summaries(&sent, &rest.samples, is_drained),
        duration,
        cpu: rest.cpu,
        rtt: settled_round_trips(prober, &watched, interrupt, handshake, within),
        watched,
        broken_off: is_silent
            .then(|| format!("the server acknowledged nothing for {max_silence}"))
            .or_else(|| all_broke(&rest)),
        samples: rest.samples,
        carried: rest.sent_on.carried_bytes(),
    })
}

/// Starts to send on connections that have carried their header already.
fn start_upload(
    streams: Vec<TcpStream>,
    request: &Request,
    handshake: Option<Span>,
) -> Result<RunningTransfer, ProbeError> {
    let plan = TransferPlan {
        budget: request
            .bytes
            .map(|bytes| bytes.saturating_sub(HEADER * u64::from(request.streams))),
        whole_blocks: false,
        ..TransferPlan::from_request(request, handshake)
    };
    let lanes = streams.into_iter().map(|stream| PlannedStream {
        channel: StreamChannel::Tcp(stream),
        role: StreamRole::Sender,
    });
    RunningTransfer::start_transfer(lanes.collect(), plan)
        .map_err(ProbeError::from_io("start the data threads"))
}

fn sent_amounts(transfer: &RunningTransfer) -> Vec<SentAmount> {
    let streams = transfer.totals().streams;
    streams
        .iter()
        .map(|count| SentAmount {
            bytes: count.bytes + HEADER,
            datagrams: None,
        })
        .collect()
}

/// Returns the bytes of all streams that the server has acknowledged; `None` if none are missing:
/// at a low rate there may be nothing to acknowledge for long.
fn acknowledged_bytes(transfer: &RunningTransfer) -> Option<ByteCount> {
    if transfer.is_drained() {
        return None;
    }
    let samples = transfer.sample_now();
    let acknowledged = samples.iter().filter_map(|sample| sample.tcp.bytes_acked);
    Some(acknowledged.sum())
}

/// Ends an upload, and waits until its last bytes are acknowledged, or for too long.
fn drain_upload(transfer: &RunningTransfer, is_hasty: bool) {
    transfer.stop_sending();
    transfer.close_sending();
    let deadline = Instant::now() + if is_hasty { HASTY_DRAIN } else { DRAIN };
    while !transfer.is_drained() && Instant::now() < deadline {
        thread::sleep(POLL_INTERVAL);
    }
}

/// Returns the round-trip times of a load that is over, once the path has settled: those of echo
/// requests, and those of its `handshake` and `within` it.
fn settled_round_trips(
    prober: Option<EchoProber>,
    watched: &WatchedUpload,
    interrupt: &AtomicBool,
    handshake: Option<Span>,
    within: Vec<Span>,
) -> RttReport {
    let taken = prober.and_then(|prober| {
        if !watched.interrupted {
            prober.wait_until_settled(interrupt);
        }
        prober.finish()
    });
    round_trips(
        taken.as_ref(),
        (watched.origin, Span::ZERO, watched.to),
        handshake,
        within,
    )
}

/// Opens every stream to the first address that answers and sends its header; starts echo requests
/// to that address.
fn connect_streams(
    destination: &Destination,
    addresses: &[SocketAddr],
    request: &Request,
) -> Result<(SocketAddr, Option<EchoProber>, Vec<TcpStream>), ProbeError> {
    let mut first = Err(ProbeError::Interrupted);
    for &address in addresses {
        let prober = destination.start_prober(address);
        first = connect_stream(destination, address, request, 0)
            .map(|stream| (address, prober, stream));
        if first.is_ok() {
            break;
        }
    }
    let (address, prober, first) = first?;
    let rest =
        (1..request.streams).map(|stream| connect_stream(destination, address, request, stream));
    let streams = std::iter::once(Ok(first))
        .chain(rest)
        .collect::<Result<Vec<_>, _>>()?;
    for mut stream in &streams {
        stream
            .write_all(&Iperf2Header::tcp_header(request))
            .map_err(ProbeError::from_io("write to a data connection"))?;
    }
    Ok((address, prober, streams))
}

fn connect_stream(
    destination: &Destination,
    address: SocketAddr,
    request: &Request,
    stream: u16,
) -> Result<TcpStream, ProbeError> {
    let host = destination.host.clone();
    let socket = prepare_socket(address, request, &destination.local.of_stream(stream))?;
    match socket.connect_timeout(&address.into(), destination.connect_timeout()) {
        Ok(()) => Ok(socket.into()),
        Err(cause) if cause.kind() == ErrorKind::TimedOut => Err(ProbeError::Silent {
            host,
            address,
            after: destination.connect_timeout().into(),
        }),
        Err(cause) => {
            let is_refused = cause.kind() == ErrorKind::ConnectionRefused;
            let hint = if is_refused {
                "; start `iperf -s` there"
            } else {
                ""
            };
            Err(ProbeError::Connect {
                host,
                address,
                cause,
                hint,
            })
        }
    }
}

/// State shared by all senders of datagrams.
struct DatagramState {
    stop: AtomicBool,
    /// Bytes that may still be sent; [`u64::MAX`] without a limit.
    budget: AtomicU64,
    block: usize,
    plan: TransferPlan,
}

/// One stream of datagrams; its thread returns the report of the server, if there was one.
struct DatagramSender {
    counted: Arc<(AtomicU64, AtomicU64)>,
    thread: JoinHandle<io::Result<Option<Iperf2Report>>>,
}

fn sent_amount((bytes, datagrams): &(AtomicU64, AtomicU64)) -> SentAmount {
    SentAmount {
        bytes: ByteCount::new(bytes.load(Ordering::Relaxed)),
        datagrams: Some(datagrams.load(Ordering::Relaxed)),
    }
}

fn over_udp(
    destination: &Destination,
    addresses: &[SocketAddr],
    request: &Request,
    interrupt: &AtomicBool,
    progress: &mut dyn FnMut(&Interval),
) -> Result<FinishedUpload, ProbeError> {
    let address = *addresses.first().ok_or(ProbeError::Interrupted)?;
    let prober = destination.start_prober(address);
    let shared = Arc::new(DatagramState {
        stop: AtomicBool::new(false),
        budget: AtomicU64::new(request.bytes.map_or(u64::MAX, ByteCount::get)),
        block: request.block.get() as usize,
        plan: TransferPlan::from_request(request, None),
    });
    let opened =
        (0..request.streams).map(|stream| bind_stream(destination, address, request, stream));
    let (sockets, found): (Vec<_>, Vec<_>) =
        opened.collect::<Result<Vec<_>, _>>()?.into_iter().unzip();
    let senders = start_senders(sockets, &shared)?;
    let watched = watch_upload(
        request,
        prober.as_ref(),
        interrupt,
        progress,
        &|| {
            senders
                .iter()
                .map(|one| sent_amount(&one.counted))
                .collect()
        },
        &mut || senders.iter().all(|one| one.thread.is_finished()),
    );
    shared.give_up();
    let mut broken_off = None;
    let mut reported = None;
    let mut streams = Vec::new();
    for (sender, stream) in senders.into_iter().zip(0..) {
        let DatagramSender { counted, thread } = sender;
        let report = thread
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("its thread panicked")));
        let report = report.unwrap_or_else(|error| {
            broken_off = Some(format!("stream {stream} broke: {error}"));
            None
        });
        if report.is_none() && broken_off.is_none() {
            broken_off = Some("the server did not say what it received".to_owned());
        }
        reported = reported.max(report.map(|report| report.duration));
        streams.push(datagram_summary(stream, sent_amount(&counted), report));
    }
    Ok(FinishedUpload {
        address,
        sockets: found,
        streams,
        duration: reported.unwrap_or(watched.to),
        cpu: None,
        samples: Vec::new(),
        carried: None,
        rtt: settled_round_trips(prober, &watched, interrupt, None, Vec::new()),
        watched,
        broken_off,
    })
}

fn datagram_summary(stream: u16, sent: SentAmount, report: Option<Iperf2Report>) -> StreamSummary {
    StreamSummary {
        stream,
        direction: Direction::Upload,
        sent: sent.bytes,
        // A server counts a repeated last datagram twice.
        received: report.map_or(ByteCount::ZERO, |report| report.bytes.min(sent.bytes)),
        retransmits: None,
        datagrams_sent: sent.datagrams,
        datagrams: report.map(|report| report.as_seen()),
    }
}

fn bind_stream(
    destination: &Destination,
    address: SocketAddr,
    request: &Request,
    stream: u16,
) -> Result<(UdpSocket, SocketReadback), ProbeError> {
    let socket: UdpSocket =
        prepare_udp(address, request, &destination.local.of_stream(stream))?.into();
    let found = connect_datagrams(&socket, address, stream)
        .map_err(ProbeError::from_io("open a UDP socket"))?;
    Ok((socket, found))
}

fn connect_datagrams(
    socket: &UdpSocket,
    address: SocketAddr,
    stream: u16,
) -> io::Result<SocketReadback> {
    socket.connect(address)?;
    socket.set_read_timeout(Some(REPEAT))?;
    read_back(&SockRef::from(socket), stream)
}

impl DatagramState {
    fn give_up(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Returns the bytes of the next datagram; `None` if there is no next one.
    fn next_datagram_length(&self) -> Option<usize> {
        if self.stop.load(Ordering::Relaxed) {
            return None;
        }
        let wanted = self.block as u64;
        if self.budget.load(Ordering::Relaxed) == u64::MAX {
            return Some(self.block);
        }
        let left = self
            .budget
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                Some(left.saturating_sub(wanted))
            });
        let length = left.map_or(0, |left| left.min(wanted)) as usize;
        // The bytes that are left may be too few for a number and a time.
        (length > 0).then_some(length.max(Iperf2Datagram::LENGTH))
    }
}

/// Starts the streams one after the other.
fn start_senders(
    sockets: Vec<UdpSocket>,
    shared: &Arc<DatagramState>,
) -> Result<Vec<DatagramSender>, ProbeError> {
    let mut senders = Vec::new();
    for socket in sockets {
        senders.push(start_sender(socket, Arc::clone(shared)).inspect_err(|_| shared.give_up())?);
        thread::sleep(STAGGER);
    }
    Ok(senders)
}

fn start_sender(
    socket: UdpSocket,
    shared: Arc<DatagramState>,
) -> Result<DatagramSender, ProbeError> {
    let counted = Arc::new((AtomicU64::new(0), AtomicU64::new(0)));
    let counters = Arc::clone(&counted);
    let thread = start_thread("datagrams", move || {
        let mut stream = DatagramStream {
            socket,
            payload: vec![b'x'; shared.block],
            number: 0,
            counted: counters,
            refused: None,
        };
        stream.send_all(&shared)?;
        stream.request_report()
    });
    Ok(DatagramSender {
        counted,
        thread: thread.map_err(ProbeError::from_io("start the data threads"))?,
    })
}

/// The sending end of one stream of datagrams.
struct DatagramStream {
    socket: UdpSocket,
    payload: Vec<u8>,
    number: i64,
    counted: Arc<(AtomicU64, AtomicU64)>,
    /// Time since which the port of the server has been reported closed, and time of the latest
    /// such report.
    refused: Option<(Instant, Instant)>,
}

impl DatagramStream {
    /// Sends datagrams on schedule until the budget is used up or the transfer is stopped.
    fn send_all(&mut self, shared: &DatagramState) -> io::Result<()> {
        let mut allowance = WriteAllowance::of_datagrams(&shared.plan);
        while allowance.wait_for_bytes(|| shared.stop.load(Ordering::Relaxed)) > 0 {
            let Some(length) = shared.next_datagram_length() else {
                break;
            };
            self.number += 1;
            self.send_datagram(self.number, length)?;
            self.count_datagram(length);
            allowance.note_used(shared.block as u64);
        }
        Ok(())
    }

    /// Repeats the last datagram until the server answers with its report; `None` if it does not in
    /// [`MAX_REPORT`].
    fn request_report(mut self) -> io::Result<Option<Iperf2Report>> {
        let deadline = Instant::now() + MAX_REPORT;
        let length = self.payload.len();
        let mut answer = [0; 2048];
        self.number += 1;
        self.count_datagram(length);
        while Instant::now() < deadline {
            self.send_datagram(-self.number, length)?;
            match self.socket.recv(&mut answer) {
                Ok(length) => {
                    let report = Iperf2Report::read_answer(&answer[..length]);
                    if report.is_some() {
                        return Ok(report);
                    }
                }
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Err(error) => self.tolerate_refusal(error)?,
            }
        }
        Ok(None)
    }

    /// Ignores an error if the port of the server is closed for a short time: the server opens its
    /// sockets one after the other.
    ///
    /// # Errors
    /// Returns `error` if it is another one, or the port stays closed for [`MAX_REFUSAL`].
    fn tolerate_refusal(&mut self, error: io::Error) -> io::Result<()> {
        let now = Instant::now();
        let since = self
            .refused
            .filter(|(_, last)| now - *last < MAX_REFUSAL)
            .map_or(now, |(since, _)| since);
        self.refused = Some((since, now));
        let is_short = error.kind() == ErrorKind::ConnectionRefused && now - since < MAX_REFUSAL;
        if is_short { Ok(()) } else { Err(error) }
    }

    fn send_datagram(&mut self, number: i64, length: usize) -> io::Result<()> {
        let since_1970 = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        if let Some(start) = self.payload.first_chunk_mut() {
            Iperf2Datagram {
                number,
                sent: since_1970.into(),
            }
            .write_payload(start);
        }
        let no_room = Some(rustix::io::Errno::NOBUFS.raw_os_error());
        let deadline = Instant::now() + MAX_REFUSAL;
        loop {
            match self.socket.send(&self.payload[..length]) {
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // The queue of the device is full at this moment.
                Err(error) if error.raw_os_error() == no_room && Instant::now() < deadline => {
                    thread::sleep(Duration::from_millis(1));
                }
                Err(error) => self.tolerate_refusal(error)?,
            }
        }
    }

    fn count_datagram(&self, length: usize) {
        let (bytes, datagrams) = &*self.counted;
        bytes.fetch_add(length as u64, Ordering::Relaxed);
        datagrams.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
