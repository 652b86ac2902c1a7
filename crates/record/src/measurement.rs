use std::iter::Sum;
use std::net::{IpAddr, SocketAddr};

use crate::prelude::*;
use crate::{
    CpuSample, DeviceReport, EchoReport, HostSettings, Inflation, MAX_SAMPLES, NetworkStack,
    OwnCapture, Placement, Request, ResolvedRequest, Responsiveness, RouteReport, RpmReport,
    Sample, TcpInfo, Thinning, Transport, UntilSure, Verdict, Web100, Web100Report,
    samples_by_stream,
};

/// Direction of the data, seen from the end that asked for the test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// This end sends.
    #[default]
    Upload,
    /// The other end sends.
    Download,
    /// Both ends send at the same time.
    Both,
}

impl Direction {
    /// Returns the direction in words: `upload`, `download` or `both ways`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Upload => "upload",
            Self::Download => "download",
            Self::Both => "both ways",
        }
    }
}

/// The host at the other end of a test.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Peer {
    /// Host as it was named on the command line.
    pub host: String,
    /// Address and port that were reached.
    pub address: String,
    /// True if it speaks our extension of the protocol, and so states its settings and samples.
    pub speaks_fullpipe: bool,
}

/// Identity of a host.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct HostIdentity {
    /// Name of the host (`uname -n`).
    pub name: String,
    /// Release of the kernel (`uname -r`).
    pub kernel: String,
    /// Random number of this boot (`/proc/sys/kernel/random/boot_id`); `None` if it cannot be read.
    pub boot_id: Option<String>,
    /// Version of fullpipe that measured; `None` in older records.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
}

/// Payload and time of a whole measurement at this end, set-up, omitted time and drain included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunTotals {
    /// Time from the first connection attempt to the last result.
    pub wall: Span,
    /// Payload bytes that this end wrote to data connections.
    pub written: ByteCount,
    /// Payload bytes that this end read from data connections.
    pub read: ByteCount,
    /// Payload bytes that the path carried in the direction of the data on connections of TCP, the
    /// control connection's included: those that left this end, retransmitted ones too
    /// (`tcpi_bytes_sent`, Linux 4.19), or those that arrived at an end that only receives. `None`
    /// where the kernel does not count them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub carried: Option<ByteCount>,
}

/// Processor time of one end during the test, as shares of one core.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Cpu {
    /// In the program.
    pub user: Ratio,
    /// In the kernel on the program's behalf.
    pub system: Ratio,
}

impl Cpu {
    /// Both together.
    pub fn total_share(&self) -> Ratio {
        Ratio::new(self.user.get() + self.system.get())
    }
}

/// Options read back from a data socket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SocketReadback {
    /// Number of the stream, from 0.
    pub stream: u16,
    /// `SO_SNDBUF`, as the kernel stores it (twice what was asked).
    pub sndbuf: ByteCount,
    /// `SO_RCVBUF`, as the kernel stores it.
    pub rcvbuf: ByteCount,
    /// `TCP_CONGESTION`; empty with UDP.
    pub congestion: String,
    /// This end's address and port.
    #[serde(default)]
    pub local: String,
    /// The other end's.
    #[serde(default)]
    pub remote: String,
    /// The other end's handshake segment, where it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handshake: Option<Handshake>,
    /// SYN probes with a limited TTL, as routers quoted them, nearest first; they are sent where
    /// the connection shows that something on the way changed its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub syn_quotes: Vec<SynQuote>,
}

/// A SYN as quoted by the router where its TTL expired.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SynQuote {
    /// Hops from this end; the nearest router is the first.
    pub hop: u8,
    /// The router.
    pub by: IpAddr,
    /// Shift of the window scale option (RFC 7323, 2.2), if it is still there.
    pub window_scale: Option<u8>,
    /// Value of the MSS option (RFC 9293, 3.7.1), likewise.
    pub mss: Option<ByteCount>,
}

/// The other end's handshake segment as it arrived: its SYN-ACK, or its SYN if it opened the
/// connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Handshake {
    /// Window field of the segment, which is never scaled (RFC 7323, 2.2).
    pub window: Option<ByteCount>,
    /// True if an option had been overwritten with padding on the way; `None` without permission
    /// for raw sockets.
    pub options_overwritten: Option<bool>,
}

/// The wait of a sender by HTTP/2 for the windows of the other end (RFC 9113, section 5.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Http2Wait {
    /// Time in which they let it send nothing, though it had data and TCP had taken all so far.
    pub time: Span,
    /// Bytes that those windows let it send before any had arrived: the smaller one of the stream and
    /// of the connection.
    pub window: ByteCount,
}

/// One end of a test.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct EndReport {
    /// Identity of its host, where it is stated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<HostIdentity>,
    /// Settings, where they are known.
    pub settings: Option<HostSettings>,
    /// Processor time, where it is known.
    pub cpu: Option<Cpu>,
    /// Data sockets when the data began to flow.
    pub sockets: Vec<SocketReadback>,
    /// Samples of this end while data flowed; empty where it did not say.
    pub samples: Vec<Sample>,
    /// The rule by which `samples` were thinned; `None` in records of schema 1, and of an end
    /// without samples.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thinning: Option<Thinning>,
    /// Congestion control of its data sockets, of an end that does not report the sockets
    /// themselves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub congestion: Option<String>,
    /// Output of this end about the test, where it was requested: text, or one JSON object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// The file that this end read to send it, or wrote from arriving data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage: Option<StorageUse>,
    /// Counters of its processors, by time; empty where it did not say.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub processors: Vec<CpuSample>,
    /// The device through which its data packets went, where it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<DeviceReport>,
    /// Drops and memory of the network stack of its host, where they are known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkStack>,
    /// Placement of its data threads near its network device, where that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub placement: Option<Placement>,
    /// The wait of this end for windows of HTTP/2, where it sent by that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http2_wait: Option<Http2Wait>,
    /// Requests to this end that could not be carried out as asked, a sentence each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Counts of each stream that this end received as datagrams, in the order of the streams.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub datagrams: Vec<Datagrams>,
    /// Up to when this was reported, since the data began to flow, of an end that did not report
    /// the whole: what it said while data flowed, a snapshot of its streams now and then, is then
    /// all that there is. Not set where it reported the whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Span>,
}

impl EndReport {
    /// Thins the samples to about `max`.
    pub fn thin_samples(&mut self, ramp: Option<Span>, max: usize) {
        if self.samples.is_empty() || self.thinning.is_some() {
            return;
        }
        let rule = Thinning::from_samples(&self.samples, ramp, max);
        self.samples = rule.apply_rule(std::mem::take(&mut self.samples));
        self.thinning = Some(rule);
    }
}

/// The part that a file had in a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct StorageUse {
    /// True if the file was written; it was read if not.
    pub writes: bool,
    /// Bytes read or written.
    pub bytes: ByteCount,
    /// Time in reads or writes, of all streams together.
    pub busy: Span,
    /// Time that it took, after the data had arrived, until all of it was on the disk.
    pub sync: Span,
}

/// A receiver's counts of one stream of numbered datagrams, or of many.
///
/// Every datagram that was sent is received or lost; the other counts are of those that arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Datagrams {
    /// Different ones that arrived.
    pub received: u64,
    /// Datagrams that never arrived, up to the last of which this end knows.
    pub lost: u64,
    /// Arrivals beyond the first of the same datagram.
    pub duplicated: u64,
    /// First arrivals behind a later one (RFC 4737, section 3.3).
    pub reordered: u64,
    /// Greatest distance, in datagrams, between one that was reordered and the first later one
    /// before it (RFC 4737, section 4.2.1).
    pub reordering_extent: u64,
    /// Arrivals so late that it is no longer known whether they are the first of their kind:
    /// neither received nor duplicated, and what they carry was counted as lost.
    pub late: u64,
    /// Datagrams that this end's own kernel dropped, for want of room in the socket
    /// (`SO_RXQ_OVFL`). But for those behind the last that arrived they are among the lost, though
    /// the network delivered them. Unknown where the kernel had joined them (`UDP_GRO`): it drops
    /// many as one.
    pub dropped_here: Option<u64>,
    /// Interarrival jitter (RFC 3550, section 6.4.1).
    pub jitter: Span,
    /// Lost ones as iperf3 counts: each gap adds, each datagram out of order takes one away.
    pub lost_like_iperf3: u64,
    /// Datagrams not above the highest so far, as iperf3 counts them: reordered, duplicated and
    /// late ones alike.
    pub out_of_order_like_iperf3: u64,
}

impl Datagrams {
    /// Returns the counts since `earlier`, of the same stream. They are differences, and zero if
    /// one has gone down: a datagram that was lost then and has come since is lost no more. Jitter
    /// and extent, of which there is no difference, are those of now.
    #[must_use]
    pub fn counts_since(&self, earlier: &Self) -> Self {
        Self {
            received: self.received.saturating_sub(earlier.received),
            lost: self.lost.saturating_sub(earlier.lost),
            duplicated: self.duplicated.saturating_sub(earlier.duplicated),
            reordered: self.reordered.saturating_sub(earlier.reordered),
            reordering_extent: self.reordering_extent,
            late: self.late.saturating_sub(earlier.late),
            dropped_here: self
                .dropped_here
                .map(|now| now.saturating_sub(earlier.dropped_here.unwrap_or(0))),
            jitter: self.jitter,
            lost_like_iperf3: self
                .lost_like_iperf3
                .saturating_sub(earlier.lost_like_iperf3),
            out_of_order_like_iperf3: self
                .out_of_order_like_iperf3
                .saturating_sub(earlier.out_of_order_like_iperf3),
        }
    }
}

impl Sum for Datagrams {
    /// Streams together: the counts of all, the greatest extent and, as iperf3 has it, the mean
    /// jitter. How many were dropped here is known if it is of every stream.
    fn sum<I: Iterator<Item = Self>>(streams: I) -> Self {
        let streams: Vec<Self> = streams.collect();
        let count = |of: fn(&Self) -> u64| streams.iter().map(of).fold(0, u64::saturating_add);
        let jitter: Span = streams.iter().map(|stream| stream.jitter).sum();
        let known =
            !streams.is_empty() && streams.iter().all(|stream| stream.dropped_here.is_some());
        Self {
            received: count(|stream| stream.received),
            lost: count(|stream| stream.lost),
            duplicated: count(|stream| stream.duplicated),
            reordered: count(|stream| stream.reordered),
            reordering_extent: streams
                .iter()
                .map(|stream| stream.reordering_extent)
                .max()
                .unwrap_or(0),
            late: count(|stream| stream.late),
            dropped_here: known.then(|| count(|stream| stream.dropped_here.unwrap_or(0))),
            jitter: jitter / (streams.len() as u64).max(1),
            lost_like_iperf3: count(|stream| stream.lost_like_iperf3),
            out_of_order_like_iperf3: count(|stream| stream.out_of_order_like_iperf3),
        }
    }
}

/// Totals of one stream.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StreamSummary {
    /// Number of the stream, from 0.
    pub stream: u16,
    /// Direction of the stream.
    #[serde(default)]
    pub direction: Direction,
    /// Bytes that the sender wrote, after `omit`.
    pub sent: ByteCount,
    /// Bytes that the receiver read, after `omit`.
    pub received: ByteCount,
    /// Retransmitted segments; unknown where the sender did not say.
    pub retransmits: Option<SegCount>,
    /// Datagrams that were sent, with UDP, where the sender said.
    #[serde(default)]
    pub datagrams_sent: Option<u64>,
    /// Counts of the receiver. Of a receiver that does not speak our extension, only iperf3's own
    /// counts.
    #[serde(default)]
    pub datagrams: Option<Datagrams>,
}

/// One stream in one interval, as this end saw it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StreamInterval {
    /// Number of the stream, from 0.
    pub stream: u16,
    /// Bytes written or read.
    pub bytes: ByteCount,
    /// Datagrams sent, where this end is the sender of UDP.
    pub datagrams_sent: Option<u64>,
    /// Counts of arrivals in this interval, where this end is the receiver of UDP.
    pub datagrams: Option<Datagrams>,
    /// Retransmitted segments, where this end is the sender of TCP.
    pub retransmits: Option<SegCount>,
    /// The kernel's view at its end, with TCP.
    pub tcp: Option<Box<TcpInfo>>,
}

/// One interval of the report, all streams of one direction together, as this end saw it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Interval {
    /// Direction of the data; where it goes both ways, every time has two intervals.
    #[serde(default)]
    pub direction: Direction,
    /// Begin of the interval, since the data began to flow.
    pub from: Span,
    /// End of the interval, since the data began to flow.
    pub to: Span,
    /// Bytes written or read in it.
    pub bytes: ByteCount,
    /// Rate in the interval.
    pub rate: BitRate,
    /// Retransmitted segments, where this end is the sender.
    pub retransmits: Option<SegCount>,
    /// Smoothed round-trip time of the first stream at its end.
    pub rtt: Option<Span>,
    /// Median round-trip time of the echo requests during the load that were answered in it, where
    /// there are any.
    #[serde(default)]
    pub echo_rtt: Option<Span>,
    /// Congestion window of all streams at its end, where this end is the sender.
    pub cwnd: Option<ByteCount>,
    /// True if `omit` covers it.
    pub omitted: bool,
    /// Datagrams sent in it, where this end is the sender of UDP.
    #[serde(default)]
    pub datagrams_sent: Option<u64>,
    /// Counts of arrivals in it, where this end is the receiver of UDP.
    #[serde(default)]
    pub datagrams: Option<Datagrams>,
    /// Each stream.
    #[serde(default)]
    pub streams: Vec<StreamInterval>,
}

impl Interval {
    /// Returns the interval between two times in which so many bytes were moved, without the figures
    /// of its transport.
    pub fn from_bytes(direction: Direction, [from, to]: [Span; 2], bytes: ByteCount) -> Self {
        Self {
            direction,
            from,
            to,
            bytes,
            rate: BitRate::from_bytes_in(bytes, to.saturating_sub(from)),
            retransmits: None,
            rtt: None,
            echo_rtt: None,
            cwnd: None,
            omitted: false,
            datagrams_sent: None,
            datagrams: None,
            streams: Vec::new(),
        }
    }
}

/// The method by which round-trip times were taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RttMethod {
    /// Echo requests on their own, which the other end's kernel answers.
    Icmp,
    /// Datagrams on their own that a fullpipe server sends back, where those are not permitted or
    /// not answered.
    UdpEcho,
    /// The kernel's estimate on the test's own connections, where nothing answers on a flow of its
    /// own.
    #[default]
    TcpInfo,
}

/// Round-trip times of one phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RttStats {
    /// Number of round trips.
    pub count: u64,
    /// Least.
    pub min: Span,
    /// Half were at most this.
    pub median: Span,
    /// Nine in ten were at most this.
    pub p90: Span,
    /// Ninety-nine in a hundred were at most this.
    pub p99: Span,
    /// Greatest.
    pub max: Span,
}

impl RttStats {
    /// Statistics of `samples`, in any order; `None` where there are none.
    pub fn from_samples(mut samples: Vec<Span>) -> Option<Self> {
        samples.sort_unstable();
        let (&min, &max) = (samples.first()?, samples.last()?);
        let quantile = |q: f64| samples[((samples.len() - 1) as f64 * q).round() as usize];
        let (p90, p99) = (quantile(0.9), quantile(0.99));
        Some(Self {
            count: samples.len() as u64,
            min,
            p90,
            p99,
            max,
            median: median(samples)?,
        })
    }
}

/// Round-trip times without and under the load.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct RttReport {
    /// The method.
    pub method: RttMethod,
    /// Before the load and, where it was seen, when its queues had emptied.
    pub idle: Option<RttStats>,
    /// During the load, after `omit`.
    pub loaded: Option<RttStats>,
    /// Growth of the round-trip time under load.
    #[serde(default)]
    pub inflation: Option<Inflation>,
    /// Round trips a minute under load.
    #[serde(default)]
    pub responsiveness: Option<Responsiveness>,
    /// Responsiveness by requests under load, where that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rpm: Option<RpmReport>,
    /// The flow of its own on which they were taken, if there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub echoes: Option<EchoReport>,
}

impl RttReport {
    /// From `idle` and `loaded` round-trip times alone.
    pub(crate) fn from_stats(
        method: RttMethod,
        idle: Option<RttStats>,
        loaded: Option<RttStats>,
    ) -> Self {
        let inflation = idle
            .zip(loaded)
            .map(|(idle, loaded)| Inflation::from_stats(&idle, &loaded));
        Self {
            method,
            idle,
            loaded,
            inflation,
            ..Self::default()
        }
    }
}

/// The steady part of a transfer: after the ramp, over whole round trips.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Steady {
    /// When the ramp ended, since the data began to flow.
    pub ramp: Span,
    /// Mean rate during the ramp.
    pub ramp_rate: BitRate,
    /// Mean rate after it.
    pub rate: BitRate,
    /// Duration of the steady part.
    pub duration: Span,
}

/// A test whose data connections are open.
#[derive(Debug, Clone, PartialEq)]
pub struct ConnectedTest {
    /// The test as it is carried out, with every default filled in.
    pub request: Request,
    /// Cookie that identifies the test at both ends.
    pub cookie: String,
    /// Maximum segment size of the path, if the kernel reports it: that of the first data
    /// connection, or over UDP of the control connection.
    pub mss: Option<ByteCount>,
    /// The data connections, in the order of the streams.
    pub sockets: Vec<SocketReadback>,
}

impl ConnectedTest {
    /// Returns the test of a `request` with these data connections.
    pub fn from_sockets(
        request: &Request,
        cookie: String,
        mss: Option<ByteCount>,
        sockets: &[SocketReadback],
    ) -> Self {
        Self {
            request: request.clone(),
            cookie,
            mss,
            sockets: sockets.to_vec(),
        }
    }
}

/// The totals of one direction, all streams together.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Summary {
    /// Time over which the totals were taken.
    pub duration: Span,
    /// Bytes that the sender wrote.
    pub sent: ByteCount,
    /// Bytes that the receiver read.
    pub received: ByteCount,
    /// Rate of the bytes received.
    pub rate: BitRate,
    /// Retransmitted segments; unknown where the sender did not say.
    pub retransmits: Option<SegCount>,
    /// Steady part; `None` where the test was too short to have one, or ended by itself.
    pub steady: Option<Steady>,
    /// Datagrams that were sent, with UDP, where the sender said.
    #[serde(default)]
    pub datagrams_sent: Option<u64>,
    /// Counts of the receiver.
    #[serde(default)]
    pub datagrams: Option<Datagrams>,
}

impl Summary {
    /// Returns the rate of the steady part, or of the whole if there is none.
    pub fn steady_or_mean_rate(&self) -> BitRate {
        self.steady.map_or(self.rate, |steady| steady.rate)
    }
}

/// The run's own checks, and the reasons for which its result may not be judged.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Validity {
    /// Why not; empty if it may.
    pub broken: Vec<String>,
    /// Mean lateness of the emulated path under load, where there is one.
    pub lateness_mean: Option<Span>,
    /// 99th percentile of the same.
    pub lateness_p99: Option<Span>,
    /// Longest time in which the emulated path's loop did not look at its devices.
    pub longest_gap: Option<Span>,
    /// Packets that a device dropped outside the emulated queue.
    pub device_drops: Option<u64>,
    /// Packets that the emulated queue dropped.
    pub queue_drops: Option<u64>,
    /// Packets that the emulated path lost on purpose.
    pub injected_losses: Option<u64>,
    /// Time in which the emulated bottleneck was sending, in the direction of the data.
    #[serde(default)]
    pub link_busy: Option<Span>,
    /// Packets that the emulated path let later ones pass, in the direction of the data.
    #[serde(default)]
    pub reordered: Option<u64>,
    /// Processor time that a hypervisor took away during the run, as a share of all cores.
    pub stolen: Option<Ratio>,
}

impl Validity {
    /// True if the result may be judged.
    pub fn is_valid(&self) -> bool {
        self.broken.is_empty()
    }

    /// Returns this validity with more reasons why the result may not be judged.
    #[must_use]
    pub fn with_reasons(mut self, reasons: Vec<String>) -> Self {
        self.broken.extend(reasons);
        self
    }
}

/// One measurement, whole.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Measurement {
    /// Unique identifier (UUID version 7, RFC 9562); empty in records of schema 1.
    #[serde(default)]
    pub id: String,
    /// When the data began to flow, RFC 3339 in UTC.
    pub started: String,
    /// Time that it took to open the data connections of a test, from the first packet of the first
    /// one until all could carry data; `None` where one is watched that others opened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub setup: Option<Span>,
    /// The other end.
    pub peer: Peer,
    /// The load that was asked for.
    pub request: Request,
    /// The load that was carried out; `None` in records of schema 1, whose `request` is that.
    #[serde(default)]
    pub resolved: Option<ResolvedRequest>,
    /// Payload and time with set-up and drain; `None` in records of schema 1.
    #[serde(default)]
    pub run: Option<RunTotals>,
    /// The end that ran the test.
    pub local: EndReport,
    /// The other end.
    pub remote: EndReport,
    /// Streams.
    pub streams: Vec<StreamSummary>,
    /// Variables of Web100 of the streams; `None` with UDP, and in records of schema 1.
    #[serde(default)]
    pub web100: Option<Web100Report>,
    /// Intervals.
    pub intervals: Vec<Interval>,
    /// Round-trip times.
    pub rtt: RttReport,
    /// The way to the other end, where it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub route: Option<RouteReport>,
    /// Totals; of the upload where data goes both ways.
    pub summary: Summary,
    /// Totals of the download, where data goes both ways.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reverse: Option<Summary>,
    /// The limit.
    pub limit: Option<Verdict>,
    /// The capture of the test, where one was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capture: Option<Box<OwnCapture>>,
    /// True if the user cut it short; what there is was kept.
    pub interrupted: bool,
    /// What ended a test that was to end once its result is sure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until_sure: Option<Box<UntilSure>>,
    /// Why it broke off, if it did. Received then is what the sender knows to have arrived.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broken_off: Option<String>,
    /// Warnings for the user.
    pub warnings: Vec<String>,
    /// Checks of the run itself.
    pub validity: Validity,
}

/// Intervals of streams that a record keeps the kernel's view in, all together; with more of them,
/// none has it.
pub const MAX_STREAM_INTERVALS: usize = 500;

impl Measurement {
    /// Returns the load that was carried out.
    pub fn carried_out(&self) -> &Request {
        self.resolved.as_deref().unwrap_or(&self.request)
    }

    /// Returns the addresses of the first connection with data, this end's first; `None` where they
    /// are not known.
    pub fn first_connection(&self) -> Option<[SocketAddr; 2]> {
        let socket = self.local.sockets.first()?;
        Some([socket.local.parse().ok()?, socket.remote.parse().ok()?])
    }

    /// Returns this measurement with the variables of Web100 filled in and its samples thinned, so
    /// that it has a bounded size: at most about `MAX_SAMPLES` samples of each end, by the rule
    /// that stands in `thinning`, and the kernel's view in the intervals of streams only if there
    /// are at most 500 of those.
    #[must_use]
    pub fn to_bounded(mut self) -> Self {
        self.web100 = self.web100_report();
        let ramp = self.summary.steady.map(|steady| steady.ramp);
        for end in [&mut self.local, &mut self.remote] {
            end.thin_samples(ramp, MAX_SAMPLES);
        }
        if self
            .intervals
            .iter()
            .map(|interval| interval.streams.len())
            .sum::<usize>()
            > MAX_STREAM_INTERVALS
        {
            self.intervals
                .iter_mut()
                .flat_map(|interval| &mut interval.streams)
                .for_each(|stream| stream.tcp = None);
        }
        self
    }

    fn web100_report(&self) -> Option<Web100Report> {
        if self.request.transport == Transport::Udp {
            return None;
        }
        let no_delay = self.carried_out().no_delay;
        let [local, remote] =
            [&self.local, &self.remote].map(|end| samples_by_stream(&end.samples));
        let of_stream = |stream: &StreamSummary| {
            let sender = if stream.direction == Direction::Download {
                &remote
            } else {
                &local
            };
            let samples = sender.get(&stream.stream).map_or(&[][..], Vec::as_slice);
            Web100::from_samples(samples.iter().copied(), no_delay)
        };
        Some(Web100Report::from_streams(
            self.streams.iter().map(of_stream).collect(),
        ))
    }

    /// The end that sent the data; where data went both ways, this one.
    pub fn sending_end(&self) -> &EndReport {
        match self.request.direction {
            Direction::Upload | Direction::Both => &self.local,
            Direction::Download => &self.remote,
        }
    }

    /// Returns the time for which the sender sent the counted data, as this end saw it.
    pub fn sending_time(&self) -> Span {
        let counted = self.intervals.iter().filter(|interval| !interval.omitted);
        let upload = counted
            .filter(|interval| interval.direction != Direction::Download || self.reverse.is_none());
        upload
            .map(|interval| interval.to.saturating_sub(interval.from))
            .sum()
    }

    /// The rate at which datagrams arrive, of those that were counted. The receiver's own time is
    /// no measure of it: it ends when the control connection says so, a round trip and a full queue
    /// after the last one was sent.
    pub fn arrival_rate(&self) -> BitRate {
        BitRate::from_bytes_in(self.summary.received, self.sending_time())
    }

    /// The end that received it.
    pub fn receiving_end(&self) -> &EndReport {
        match self.request.direction {
            Direction::Upload | Direction::Both => &self.remote,
            Direction::Download => &self.local,
        }
    }
}

#[cfg(test)]
mod tests;
