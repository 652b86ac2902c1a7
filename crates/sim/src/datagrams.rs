//! Streams of numbered datagrams, and echo requests next to them.

use fullpipe_iperf::{JitterEstimate, SequenceCounter};
use fullpipe_model::{datagrams, framing};
use fullpipe_record::{Datagrams, Echo, Path, Request, Transport};
use fullpipe_units::{BitRate, ByteCount, SegCount, Span, Time};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};

use crate::connection::tunnel_overhead;
use crate::packet::{DatagramFields, SimulatedPacket};
use crate::program::SendingPace;
use crate::{NotModelled, SimulationPlan, load_duration};

/// The most by which a program is late with a burst. Without that, streams of equal pace would stay
/// in step, and always the same ones would find a full queue.
const LATENESS: Span = Span::from_micros(50);

/// Time between two echo requests.
const ECHO_PERIOD: Span = Span::from_millis(10);

/// Bytes of an echo request behind its IP header.
const ECHO_BYTES: ByteCount = ByteCount::new(64);

/// The most datagrams of a simulation, of all loads together.
pub(crate) const MAX_DATAGRAMS: u64 = 1_000_000_000;

/// Fails if the loads of `plan` have more than [`MAX_DATAGRAMS`].
pub(crate) fn check_number(plan: &SimulationPlan) -> Result<(), NotModelled> {
    let loads =
        std::iter::once(&plan.request).chain(plan.cross_traffic.iter().map(|load| &load.request));
    let all = loads
        .map(|request| datagram_count(&plan.path, request))
        .fold(0, u64::saturating_add);
    if all <= MAX_DATAGRAMS {
        Ok(())
    } else {
        Err(NotModelled::TooManyDatagrams(all))
    }
}

/// The datagrams that `request` sends; a few more if it ends by its bytes.
fn datagram_count(path: &Path, request: &Request) -> u64 {
    if request.transport == Transport::Tcp {
        return 0;
    }
    let payload = datagrams::datagram_payload(&path.forward, request)
        .get()
        .max(1);
    let each = request
        .rate
        .unwrap_or_default()
        .bytes_in(load_duration(request))
        .get()
        / payload;
    let all = each.saturating_mul(request.streams.into());
    request
        .bytes
        .map_or(all, |bytes| all.min(bytes.get().div_ceil(payload)))
}

/// A program that sends datagrams at a rate, and what its far end has counted.
#[derive(Debug)]
pub(crate) struct DatagramStream {
    payload: ByteCount,
    /// IP bytes of each.
    packet: ByteCount,
    pace: SendingPace,
    random: Pcg64Mcg,
    lateness: Span,
    /// When it sends next.
    departs: Time,
    /// The number after which it has sent all, where there is one.
    total: Option<u64>,
    counts: StreamCounts,
    sequence: SequenceCounter,
    jitter: JitterEstimate,
}

/// Datagrams of a stream up to a moment.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct StreamCounts {
    pub(crate) sent: u64,
    /// Arrivals, copies included.
    pub(crate) arrived: u64,
    pub(crate) datagrams: Datagrams,
}

impl DatagramStream {
    /// One of the streams of `request`, which begins at `start`; it sends `bytes` in all, if that
    /// is limited.
    ///
    /// Fails if they have no rate, or travel as fragments.
    pub(crate) fn new(
        path: &Path,
        request: &Request,
        bytes: Option<ByteCount>,
        (start, seed): (Time, u64),
    ) -> Result<Self, NotModelled> {
        let way = &path.forward;
        let payload = datagrams::datagram_payload(way, request);
        let headers = framing::udp_headers(way.ip);
        let rate = request
            .rate
            .filter(|rate| *rate > BitRate::ZERO)
            .ok_or(NotModelled::DatagramsWithoutRate)?;
        if payload == ByteCount::ZERO || payload + headers > way.inner_mtu() {
            return Err(NotModelled::Fragments);
        }
        let burst = payload * u64::from(request.burst.unwrap_or(1).max(1));
        let mut stream = Self {
            payload,
            packet: payload + headers + tunnel_overhead(way),
            pace: SendingPace::new(rate, burst, start),
            random: Pcg64Mcg::seed_from_u64(seed),
            // Before the next one is due.
            lateness: LATENESS.min(rate.time_for(burst) / 2),
            departs: start,
            total: bytes.map(|bytes| bytes.get().div_ceil(payload.get())),
            counts: StreamCounts::default(),
            sequence: SequenceCounter::new(true),
            jitter: JitterEstimate::default(),
        };
        stream.departs = start + stream.burst_lateness();
        Ok(stream)
    }

    /// Sends nothing more.
    pub(crate) fn stop(&mut self) {
        self.total = Some(self.counts.sent);
    }

    /// Returns true if the stream has sent everything that it has to send.
    pub(crate) fn has_sent_all(&self) -> bool {
        self.total.is_some_and(|total| self.counts.sent >= total)
    }

    /// Returns the datagrams that are due, which leave together.
    pub(crate) fn next_burst(&mut self, now: Time, flow: u32) -> Option<SimulatedPacket> {
        if now < self.departs {
            return None;
        }
        let due = self.pace.due_bytes(now).get() / self.payload.get();
        let due = self.total.map_or(due, |total| due.min(total));
        let count = due
            .checked_sub(self.counts.sent)
            .filter(|count| *count > 0)?;
        let numbered = DatagramFields {
            first: self.counts.sent + 1,
            sent: now,
        };
        self.counts.sent += count;
        self.departs =
            self.pace.time_beyond(self.payload * self.counts.sent) + self.burst_lateness();
        Some(SimulatedPacket::datagram_packet(
            flow,
            self.packet,
            SegCount::new(count),
            numbered,
        ))
    }

    /// Returns when more is due.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        (!self.has_sent_all()).then_some(self.departs)
    }

    /// The time by which the next burst is late.
    fn burst_lateness(&mut self) -> Span {
        Span::from_nanos(self.random.next_u64() % self.lateness.as_nanos().max(1))
    }

    /// Counts datagrams that arrive together.
    pub(crate) fn record_arrivals(&mut self, now: Time, count: u64, numbered: DatagramFields) {
        self.counts.arrived += count;
        for number in numbered.first..numbered.first + count {
            self.sequence.record_datagram(number);
            self.jitter.record_datagram(
                numbered.sent.duration_since(Time::ZERO),
                now.duration_since(Time::ZERO),
            );
        }
    }

    /// Returns the counts so far.
    pub(crate) fn stream_counts(&self) -> StreamCounts {
        // No host of theirs dropped any.
        let datagrams = Datagrams {
            jitter: self.jitter.get(),
            dropped_here: Some(0),
            ..self.sequence.datagram_counts()
        };
        StreamCounts {
            datagrams,
            ..self.counts
        }
    }

    /// Returns the payload of so many datagrams.
    pub(crate) fn payload_bytes(&self, datagrams: u64) -> ByteCount {
        self.payload * datagrams
    }
}

/// The counts of all streams of a load at a moment.
#[derive(Debug, Clone)]
pub(crate) struct DatagramMark {
    pub(crate) at: Span,
    pub(crate) streams: Vec<StreamCounts>,
}

/// Echo requests during a load.
#[derive(Debug)]
pub(crate) struct EchoRequests {
    start: Time,
    bytes: ByteCount,
    taken: Vec<Echo>,
}

impl EchoRequests {
    pub(crate) fn new(path: &Path, start: Time) -> Self {
        Self {
            start,
            bytes: path.forward.ip.header_bytes() + ECHO_BYTES,
            taken: Vec::new(),
        }
    }

    /// Returns when the next request is due.
    pub(crate) fn due_time(&self) -> Time {
        self.start + ECHO_PERIOD * self.taken.len() as u64
    }

    /// Returns the next request.
    pub(crate) fn next_request(&mut self) -> SimulatedPacket {
        let number = self.taken.len() as u32;
        self.taken.push(Echo {
            at: self.due_time().duration_since(self.start),
            rtt: None,
            host: None,
        });
        SimulatedPacket::echo_packet(number, self.bytes)
    }

    /// Returns the requests up to the last that was answered; later ones are still under way. All,
    /// if none was.
    pub(crate) fn settled_echoes(&self) -> &[Echo] {
        let last = self.taken.iter().rposition(|echo| echo.rtt.is_some());
        last.and_then(|last| self.taken.get(..=last))
            .unwrap_or(&self.taken)
    }

    /// Notes that the answer to the request with this number has arrived.
    pub(crate) fn record_answer(&mut self, now: Time, number: u32) {
        if let Some(echo) = self.taken.get_mut(number as usize) {
            let rtt = now.duration_since(self.start).saturating_sub(echo.at);
            echo.rtt.get_or_insert(rtt);
        }
    }
}
