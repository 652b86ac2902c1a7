//! The JSON of `-J` and the events of `--json-stream`. Keys, units and order are iperf3's:
//! microseconds for round-trip times, bytes for windows, bits per second as a number that need not
//! be whole.

use fullpipe_record::{
    Buffer, ConnectedTest, Interval, Request, SocketReadback, StreamInterval, StreamSummary,
};
use serde::{Serialize, Serializer};
use serde_json::ser::PrettyFormatter;
use serde_json::value::RawValue;

use super::line::{LineCounts, LineDatagrams};
use super::text::congestion_control;
use super::view::{
    DirectionTotals, IntervalSums, TcpExtremes, count_together, datagram_counts, interval_times,
    is_empty_rest, stream_counts,
};
use super::{TestHeader, TestRole, amount, socket_number};
use crate::text::prelude::*;

/// The JSON of one test.
#[derive(Debug)]
pub struct JsonOutput {
    role: TestRole,
    request: Request,
    /// The upload of an interval whose download is not reported yet.
    half: Option<Interval>,
    course: IntervalSums,
    document: Document,
}

impl JsonOutput {
    /// Begins the document of a test with this `request` and this `header`.
    pub fn new(role: TestRole, request: Request, header: &TestHeader) -> Self {
        let start = Start {
            version: header.version.clone(),
            system_info: header.system.clone(),
            ..Start::default()
        };
        let document = Document {
            title: request.title.clone(),
            extra_data: request.extra_data.clone(),
            start,
            ..Document::default()
        };
        Self {
            role,
            request,
            half: None,
            course: IntervalSums::default(),
            document,
        }
    }

    /// Notes that the data connections are open. Returns the event as a line.
    pub fn add_connections(&mut self, header: &TestHeader, connections: &ConnectedTest) -> String {
        self.request = connections.request.clone();
        self.document.title = self.request.title.clone();
        self.document.extra_data = self.request.extra_data.clone();
        self.document
            .start
            .set_connections(self.role, header, connections);
        event_line("start", &self.document.start)
    }

    /// Adds an interval to the document. Returns the event as a line. If data goes both ways, an
    /// event needs two intervals, the upload first.
    pub fn add_interval(&mut self, interval: &Interval) -> Option<String> {
        let part = self.interval_part(interval)?;
        let line = event_line("interval", &part);
        self.document.intervals.push(part);
        Some(line)
    }

    /// Returns the event of an interval as [`Self::add_interval`] does, but adds nothing to the
    /// document.
    pub fn interval_event(&mut self, interval: &Interval) -> Option<String> {
        Some(event_line("interval", &self.interval_part(interval)?))
    }

    fn interval_part(&mut self, interval: &Interval) -> Option<IntervalPart> {
        self.course.add_interval(interval, &self.request, self.role);
        let both = match (self.request.direction, interval.direction, self.half.take()) {
            (Direction::Both, Direction::Upload, _) => {
                self.half = Some(interval.clone());
                return None;
            }
            (Direction::Both, _, Some(upload)) => vec![upload, interval.clone()],
            _ => vec![interval.clone()],
        };
        let says_anything = both
            .iter()
            .any(|interval| !is_empty_rest(interval, &self.request));
        says_anything.then(|| IntervalPart::from_intervals(&both, &self.request, self.role))
    }

    /// Adds the totals to the document. Returns the event as a line.
    pub fn add_results(&mut self, seen: &Measurement) -> String {
        self.document.end = End::from_measurement(seen, &self.course, self.role);
        event_line("end", &self.document.end)
    }

    /// Adds the server's output, text or JSON, to the document. Returns the event as a line.
    pub fn server_output(&mut self, output: &str) -> String {
        // JSON has breaks of lines between its tokens only, and an event is one line.
        match serde_json::from_str::<Box<RawValue>>(&output.replace(['\n', '\r'], " ")) {
            Ok(json) if json.get().starts_with('{') => {
                let line = event_line("server_output_json", &json);
                self.document.server_output_json = Some(json);
                line
            }
            _ => {
                self.document.server_output_text = Some(output.to_owned());
                event_line("server_output_text", &output)
            }
        }
    }

    /// Adds the reason for which the test failed to the document. Returns the event as a line.
    pub fn add_failure(&mut self, why: &str) -> String {
        self.document.error = Some(why.to_owned());
        event_line("error", &why)
    }

    /// Returns the document, with a newline at its end.
    ///
    /// # Panics
    /// Never: it holds strings, numbers and lists, all of which can be written.
    pub fn document_text(&self) -> String {
        let mut text = Vec::new();
        let mut writer =
            serde_json::Serializer::with_formatter(&mut text, PrettyFormatter::with_indent(b"\t"));
        self.document
            .serialize(&mut writer)
            .expect("numbers and strings can always be written");
        text.push(b'\n');
        String::from_utf8(text).expect("JSON is UTF-8")
    }
}

/// Returns one object of `--json-stream`, with its newline.
fn event_line(name: &'static str, data: &impl Serialize) -> String {
    #[derive(Serialize)]
    struct Event<'d, T> {
        event: &'static str,
        data: &'d T,
    }
    let text = serde_json::to_string(&Event { event: name, data });
    format!(
        "{}\n",
        text.expect("numbers and strings can always be written")
    )
}

/// Returns a time as `Sat, 21 Nov 2026 17:00:00 GMT`.
pub(crate) fn format_date(at: Span) -> String {
    let stamp = jiff::Timestamp::from_second(at.as_secs_f64() as i64);
    stamp.map_or_else(
        |_| String::new(),
        |stamp| stamp.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string(),
    )
}

/// Returns host and port of an address; the port is 0 if there is none.
pub(crate) fn split_address(address: &str) -> (&str, u16) {
    let (host, port) = address.rsplit_once(':').unwrap_or((address, ""));
    (
        host.trim_start_matches('[').trim_end_matches(']'),
        port.parse().unwrap_or(0),
    )
}

/// A number that is written without a fraction if it is whole, as iperf3 does.
#[derive(Debug, Clone, Copy, Default)]
struct JsonNumber(f64);

impl Serialize for JsonNumber {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        const EXACT: f64 = (1_u64 << f64::MANTISSA_DIGITS) as f64;
        if self.0.fract() == 0.0 && self.0.abs() < EXACT {
            serializer.serialize_i64(self.0 as i64)
        } else {
            serializer.serialize_f64(self.0)
        }
    }
}

#[derive(Debug, Default, Serialize)]
struct Document {
    start: Start,
    intervals: Vec<IntervalPart>,
    end: End,
    #[serde(skip_serializing_if = "Option::is_none")]
    server_output_json: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    server_output_text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    extra_data: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

#[derive(Debug, Default, Serialize)]
struct Start {
    connected: Vec<Connected>,
    version: String,
    system_info: String,
    #[serde(flatten)]
    connection: Option<Connection>,
}

/// Facts about a connection.
#[derive(Debug, Serialize)]
struct Connection {
    timestamp: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    connecting_to: Option<Endpoint>,
    #[serde(
        rename = "accepted_connection",
        skip_serializing_if = "Option::is_none"
    )]
    accepted_from: Option<Endpoint>,
    cookie: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    tcp_mss: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tcp_mss_default: Option<u64>,
    target_bitrate: u64,
    fq_rate: u64,
    sock_bufsize: u64,
    sndbuf_actual: u64,
    rcvbuf_actual: u64,
    test_start: TestStart,
}

#[derive(Debug, Serialize)]
struct Connected {
    socket: u32,
    local_host: String,
    local_port: u16,
    remote_host: String,
    remote_port: u16,
}

#[derive(Debug, Serialize)]
struct Timestamp {
    time: String,
    timesecs: u64,
    timemillisecs: u64,
}

#[derive(Debug, Serialize)]
struct Endpoint {
    host: String,
    port: u16,
}

#[derive(Debug, Serialize)]
struct TestStart {
    protocol: &'static str,
    num_streams: u16,
    blksize: u64,
    omit: JsonNumber,
    duration: JsonNumber,
    bytes: u64,
    blocks: u64,
    reverse: u8,
    tos: u8,
    target_bitrate: u64,
    bidir: u8,
    fqrate: u64,
    interval: JsonNumber,
    gso: u8,
    gro: u8,
}

impl Start {
    fn set_connections(
        &mut self,
        role: TestRole,
        header: &TestHeader,
        connections: &ConnectedTest,
    ) {
        let request = &connections.request;
        let endpoint = Some(Endpoint {
            host: header.host.clone(),
            port: header.port,
        });
        let (connecting_to, accepted_from) = match role {
            TestRole::Client => (endpoint, None),
            TestRole::Server => (None, endpoint),
        };
        let first = connections.sockets.first();
        let is_tcp = request.transport == Transport::Tcp;
        self.connected = connections
            .sockets
            .iter()
            .map(Connected::from_readback)
            .collect();
        self.connection = Some(Connection {
            timestamp: Timestamp {
                time: format_date(header.at),
                timesecs: header.at.as_nanos() / 1_000_000_000,
                timemillisecs: header.at.as_nanos() / 1_000_000,
            },
            connecting_to,
            accepted_from,
            cookie: connections.cookie.clone(),
            tcp_mss: request.mss.filter(|_| is_tcp).map(ByteCount::get),
            tcp_mss_default: (is_tcp && request.mss.is_none())
                .then(|| connections.mss.unwrap_or_default().get()),
            target_bitrate: rate_in_bps(request.rate),
            fq_rate: rate_in_bps(request.pacing),
            sock_bufsize: asked_buffer(request),
            sndbuf_actual: first.map_or(0, |socket| socket.sndbuf.get()),
            rcvbuf_actual: first.map_or(0, |socket| socket.rcvbuf.get()),
            test_start: TestStart::from_request(request),
        });
    }
}

fn rate_in_bps(rate: Option<BitRate>) -> u64 {
    rate.map_or(0, BitRate::bps)
}

fn asked_buffer(request: &Request) -> u64 {
    match request.buffer {
        Buffer::Request(size) => size.get(),
        Buffer::Automatic | Buffer::Window(_) => 0,
    }
}

impl Connected {
    fn from_readback(readback: &SocketReadback) -> Self {
        let ((local_host, local_port), (remote_host, remote_port)) = (
            split_address(&readback.local),
            split_address(&readback.remote),
        );
        Self {
            socket: socket_number(readback.stream),
            local_host: local_host.to_owned(),
            local_port,
            remote_host: remote_host.to_owned(),
            remote_port,
        }
    }
}

impl TestStart {
    fn from_request(request: &Request) -> Self {
        Self {
            protocol: request.transport.name(),
            num_streams: request.streams,
            blksize: request.block.get(),
            omit: JsonNumber(request.omit.as_secs_f64()),
            duration: JsonNumber(if request.bytes.is_some() {
                0.0
            } else {
                request.duration.as_secs_f64()
            }),
            bytes: request.bytes.unwrap_or_default().get(),
            blocks: 0,
            reverse: (request.direction == Direction::Download).into(),
            tos: request.tos,
            target_bitrate: rate_in_bps(request.rate),
            bidir: (request.direction == Direction::Both).into(),
            fqrate: rate_in_bps(request.pacing),
            interval: JsonNumber(request.interval.as_secs_f64()),
            gso: request.offload.into(),
            gro: request.offload.into(),
        }
    }
}

/// A time and the bytes in it: the first keys of a part, in iperf3's order.
#[derive(Debug, Default, Serialize)]
struct Amount {
    start: JsonNumber,
    end: JsonNumber,
    seconds: JsonNumber,
    bytes: u64,
    bits_per_second: JsonNumber,
}

impl Amount {
    fn new(from: f64, to: f64, bytes: ByteCount) -> Self {
        let seconds = to - from;
        Self {
            start: JsonNumber(from),
            end: JsonNumber(to),
            seconds: JsonNumber(seconds),
            bytes: bytes.get(),
            bits_per_second: JsonNumber(amount::bytes_per_second(bytes, seconds) * 8.0),
        }
    }
}

/// Counts of datagrams at a receiver.
#[derive(Debug, Serialize)]
struct Loss {
    jitter_ms: JsonNumber,
    lost_packets: u64,
    packets: u64,
    lost_percent: JsonNumber,
}

impl Loss {
    fn from_counts(arrived: LineDatagrams) -> Self {
        Self {
            jitter_ms: JsonNumber(arrived.jitter),
            lost_packets: arrived.lost,
            packets: arrived.datagrams,
            lost_percent: JsonNumber(arrived.lost_percent()),
        }
    }

    /// Returns the loss among the datagrams that were sent, if the sender reports their number.
    fn of_sent(arrived: LineDatagrams, sent: u64) -> Self {
        let datagrams = if sent > 0 { sent } else { arrived.datagrams };
        Self::from_counts(LineDatagrams {
            datagrams,
            ..arrived
        })
    }
}

#[derive(Debug, Serialize)]
struct IntervalPart {
    streams: Vec<StreamPart>,
    sum: SumPart,
    #[serde(skip_serializing_if = "Option::is_none")]
    sum_bidir_reverse: Option<SumPart>,
}

#[derive(Debug, Serialize)]
struct StreamPart {
    socket: u32,
    #[serde(flatten)]
    part: SumPart,
}

#[derive(Debug, Default, Serialize)]
struct SumPart {
    #[serde(flatten)]
    amount: Amount,
    #[serde(flatten)]
    counts: Option<PartCounts>,
    omitted: bool,
    sender: bool,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum PartCounts {
    Sender {
        retransmits: u64,
        snd_cwnd: u64,
        snd_wnd: u64,
        rtt: u64,
        rttvar: u64,
        pmtu: u64,
        reorder: u64,
    },
    Retransmits {
        retransmits: u64,
    },
    Sent {
        packets: u64,
    },
    Arrived(Loss),
}

impl PartCounts {
    fn from_line(counts: LineCounts) -> Option<Self> {
        Some(match counts {
            LineCounts::Retransmits(retransmits) | LineCounts::Window(retransmits, _) => {
                Self::Retransmits { retransmits }
            }
            LineCounts::Sent(packets) => Self::Sent { packets },
            LineCounts::Arrived(arrived) => Self::Arrived(Loss::from_counts(arrived)),
            LineCounts::Nothing => return None,
        })
    }
}

impl IntervalPart {
    /// Returns the part of the document for one interval of time, in one direction or in both.
    fn from_intervals(intervals: &[Interval], request: &Request, role: TestRole) -> Self {
        let parts = intervals.iter().flat_map(|interval| {
            interval
                .streams
                .iter()
                .map(move |stream| StreamPart::from_stream(stream, interval, request, role))
        });
        let mut sums = intervals
            .iter()
            .map(|interval| SumPart::from_interval(interval, request, role));
        Self {
            streams: parts.collect(),
            sum: sums.next().unwrap_or_default(),
            sum_bidir_reverse: sums.next(),
        }
    }
}

impl StreamPart {
    fn from_stream(
        stream: &StreamInterval,
        interval: &Interval,
        request: &Request,
        role: TestRole,
    ) -> Self {
        let counts = match stream_counts(
            stream,
            request.transport,
            role.is_sender(interval.direction),
        ) {
            LineCounts::Window(retransmits, window) => {
                let tcp = stream.tcp.clone().unwrap_or_default();
                Some(PartCounts::Sender {
                    retransmits,
                    snd_cwnd: window.get(),
                    snd_wnd: tcp.snd_wnd.unwrap_or_default().get(),
                    rtt: tcp.rtt.map_or(0, Span::as_micros),
                    rttvar: tcp.rtt_variation.map_or(0, Span::as_micros),
                    pmtu: tcp.path_mtu.unwrap_or_default().get(),
                    reorder: tcp.reordering.unwrap_or_default().get(),
                })
            }
            counts => PartCounts::from_line(counts),
        };
        Self {
            socket: socket_number(stream.stream),
            part: SumPart::new(stream.bytes, counts, interval, request, role),
        }
    }
}

impl SumPart {
    fn from_interval(interval: &Interval, request: &Request, role: TestRole) -> Self {
        let sends = role.is_sender(interval.direction);
        let counts = PartCounts::from_line(count_together(interval, request.transport, sends));
        Self::new(interval.bytes, counts, interval, request, role)
    }

    fn new(
        bytes: ByteCount,
        counts: Option<PartCounts>,
        interval: &Interval,
        request: &Request,
        role: TestRole,
    ) -> Self {
        let (from, to) = interval_times(interval, request);
        Self {
            amount: Amount::new(from, to, bytes),
            counts,
            omitted: interval.omitted,
            sender: role.is_sender(interval.direction),
        }
    }
}

#[derive(Debug, Default, Serialize)]
struct End {
    #[serde(skip_serializing_if = "Option::is_none")]
    streams: Option<Vec<EndStream>>,
    #[serde(flatten)]
    sums: NamedParts,
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu_utilization_percent: Option<Cpus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sender_tcp_congestion: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    receiver_tcp_congestion: Option<String>,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum EndStream {
    Tcp { sender: EndPart, receiver: EndPart },
    Udp { udp: EndPart },
}

/// The whole of a stream, or of all streams together.
#[derive(Debug, Default, Serialize)]
struct EndPart {
    #[serde(skip_serializing_if = "Option::is_none")]
    socket: Option<u32>,
    #[serde(flatten)]
    amount: Amount,
    #[serde(skip_serializing_if = "Option::is_none")]
    retransmits: Option<u64>,
    #[serde(flatten)]
    figures: Option<SenderFigures>,
    #[serde(flatten)]
    loss: Option<Loss>,
    #[serde(skip_serializing_if = "Option::is_none")]
    out_of_order: Option<u64>,
    sender: bool,
}

/// Figures of a sender, which a server that receives does not know.
#[derive(Debug, Serialize)]
struct SenderFigures {
    max_snd_cwnd: u64,
    max_snd_wnd: u64,
    max_rtt: u64,
    min_rtt: u64,
    mean_rtt: u64,
}

impl From<TcpExtremes> for SenderFigures {
    fn from(extremes: TcpExtremes) -> Self {
        Self {
            max_snd_cwnd: extremes.window,
            max_snd_wnd: extremes.peer_window,
            max_rtt: extremes.rtt_max,
            min_rtt: extremes.rtt_min,
            mean_rtt: extremes.rtt_mean(),
        }
    }
}

/// Sums of all streams with their keys, in iperf3's order.
#[derive(Debug, Default)]
struct NamedParts(Vec<(String, EndPart)>);

impl Serialize for NamedParts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(key, part)| (key, part)))
    }
}

#[derive(Debug, Serialize)]
struct Cpus {
    host_total: JsonNumber,
    host_user: JsonNumber,
    host_system: JsonNumber,
    remote_total: JsonNumber,
    remote_user: JsonNumber,
    remote_system: JsonNumber,
}

impl End {
    fn from_measurement(seen: &Measurement, course: &IntervalSums, role: TestRole) -> Self {
        let totals = DirectionTotals::from_measurement(seen, course, role);
        let transport = seen.request.transport;
        let streams = totals.iter().flat_map(|way| {
            way.streams
                .iter()
                .map(|stream| way.end_stream(stream, transport, course))
        });
        let ways = totals.iter().zip(["", "_bidir_reverse"]);
        let sums = ways.flat_map(|(way, suffix)| {
            let parts = way.total_sums(transport).into_iter();
            parts.map(move |(key, part)| (format!("{key}{suffix}"), part))
        });
        // Where data goes both ways, those of the way that iperf3 shows last.
        let ends = match totals.last() {
            Some(last) if last.sends => [&seen.local, &seen.remote],
            _ => [&seen.remote, &seen.local],
        };
        let [sender, receiver] = ends.map(|end| {
            congestion_control(end)
                .filter(|_| transport == Transport::Tcp)
                .map(str::to_owned)
        });
        Self {
            streams: Some(streams.collect()),
            sums: NamedParts(sums.collect()),
            cpu_utilization_percent: Some(Cpus::from_measurement(seen)),
            sender_tcp_congestion: sender,
            receiver_tcp_congestion: receiver,
        }
    }
}

impl Cpus {
    fn from_measurement(seen: &Measurement) -> Self {
        let (host, remote) = (
            seen.local.cpu.unwrap_or_default(),
            seen.remote.cpu.unwrap_or_default(),
        );
        Self {
            host_total: JsonNumber(host.total_share().as_percent()),
            host_user: JsonNumber(host.user.as_percent()),
            host_system: JsonNumber(host.system.as_percent()),
            remote_total: JsonNumber(remote.total_share().as_percent()),
            remote_user: JsonNumber(remote.user.as_percent()),
            remote_system: JsonNumber(remote.system.as_percent()),
        }
    }
}

impl DirectionTotals<'_> {
    fn end_stream(
        &self,
        stream: &StreamSummary,
        transport: Transport,
        course: &IntervalSums,
    ) -> EndStream {
        let sent = self.end_part(Amount::new(0.0, self.sending, stream.sent), Some(stream));
        if transport == Transport::Udp {
            let datagrams = stream.datagrams.unwrap_or_default();
            let sent_datagrams = stream.datagrams_sent.unwrap_or_default();
            let udp = EndPart {
                loss: Some(Loss::of_sent(
                    datagram_counts(stream.datagrams),
                    sent_datagrams,
                )),
                out_of_order: Some(datagrams.out_of_order_like_iperf3),
                ..sent
            };
            return EndStream::Udp { udp };
        }
        let retransmits = stream.retransmits.map(SegCount::get);
        let received = Amount::new(0.0, self.receiving, stream.received);
        EndStream::Tcp {
            sender: EndPart {
                retransmits,
                figures: retransmits.map(|_| course.stream_extremes(stream.stream).into()),
                ..sent
            },
            receiver: self.end_part(received, Some(stream)),
        }
    }

    fn end_part(&self, amount: Amount, stream: Option<&StreamSummary>) -> EndPart {
        EndPart {
            socket: stream.map(|stream| socket_number(stream.stream)),
            amount,
            sender: self.sends,
            ..EndPart::default()
        }
    }

    fn total_sums(&self, transport: Transport) -> Vec<(&'static str, EndPart)> {
        let sent = Amount::new(0.0, self.sending, self.sent_bytes());
        let received = Amount::new(0.0, self.receiving, self.received_bytes());
        match transport {
            Transport::Tcp => {
                let mut counts = self.streams.iter().map(|stream| stream.retransmits);
                let is_known = counts.any(|count| count.is_some());
                let sent = EndPart {
                    retransmits: is_known.then(|| self.retransmit_count()),
                    ..self.end_part(sent, None)
                };
                let received = self.end_part(received, None);
                vec![("sum_sent", sent), ("sum_received", received)]
            }
            Transport::Udp => self.datagram_sums(sent, received),
        }
    }

    fn datagram_sums(&self, sent: Amount, received: Amount) -> Vec<(&'static str, EndPart)> {
        let (arrived, datagrams) = (self.datagram_counts(), self.datagrams_sent());
        let sent_only = LineDatagrams {
            datagrams,
            ..LineDatagrams::default()
        };
        // iperf3 writes the time of the receiver, but the rate in the time of the sender.
        let whole = Amount {
            bits_per_second: sent.bits_per_second,
            ..Amount::new(0.0, self.receiving, self.sent_bytes())
        };
        [
            ("sum", whole, Loss::of_sent(arrived, datagrams), self.sends),
            ("sum_sent", sent, Loss::from_counts(sent_only), true),
            ("sum_received", received, Loss::from_counts(arrived), false),
        ]
        .map(|(key, amount, loss, sender)| {
            let part = EndPart {
                amount,
                loss: Some(loss),
                sender,
                ..EndPart::default()
            };
            (key, part)
        })
        .into()
    }
}
