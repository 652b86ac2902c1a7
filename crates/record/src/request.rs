use std::fmt;
use std::ops::Deref;
use std::str::FromStr;

use fullpipe_units::parse_quantity;

use crate::prelude::*;
use crate::{Direction, HostSettings};

/// A request for a socket's buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Buffer {
    /// Nothing: the kernel tunes them.
    #[default]
    Automatic,
    /// `SO_SNDBUF` and `SO_RCVBUF` at both ends, as iperf's `-w`. The kernel doubles it and
    /// advertises a share of that.
    Request(ByteCount),
    /// The window that the receiver should advertise: the buffer request is chosen so that the
    /// kernel yields it.
    Window(ByteCount),
}

/// Bytes that a program's own protocol lets be under way before it waits for the other end: the
/// window of a stream of HTTP/2 or of a channel of SSH, or requests that are not yet answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProgramWindow {
    /// The most that is under way.
    pub bytes: ByteCount,
    /// Bytes that are answered together, once the last of them has arrived; zero where the other
    /// end grants what it has taken at once.
    pub request: ByteCount,
}

impl fmt::Display for ProgramWindow {
    /// Writes `64 KiB`, or `64 × 32 KiB` of requests.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.bytes.get().checked_div(self.request.get()) {
            Some(1) => write!(f, "a request of {}", self.request),
            Some(count) => write!(f, "{count} × {}", self.request),
            None => write!(f, "{}", self.bytes),
        }
    }
}

impl FromStr for ProgramWindow {
    type Err = String;

    /// Reads `64KiB`, or `64x32KiB`: so many requests of this size.
    fn from_str(text: &str) -> Result<Self, String> {
        let Some((count, size)) = text.split_once(['x', '×']) else {
            let bytes = parse_quantity(text)?;
            return Ok(Self {
                bytes,
                request: ByteCount::ZERO,
            });
        };
        let request: ByteCount = parse_quantity(size.trim())?;
        let count = count.trim().parse::<u32>().ok().filter(|count| *count > 0);
        let count = count.ok_or_else(|| {
            format!(
                "\"{text}\" is not a number of requests and their size; write for example 64x32KiB"
            )
        })?;
        Ok(Self {
            bytes: request * u64::from(count),
            request,
        })
    }
}

/// What is stated of the programs and the devices of a load. A lab carries it out as a prediction
/// and a simulation take it, but for what only predictions know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct StatedLoad {
    /// `SO_SNDBUF` request of the sending program alone, in place of the buffer of both ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sndbuf: Option<ByteCount>,
    /// `SO_RCVBUF` request of the receiving program alone, in place of the buffer of both ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rcvbuf: Option<ByteCount>,
    /// Window of the programs' own protocol in each stream; none leaves the flow of data to TCP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub app_window: Option<ProgramWindow>,
    /// Time between an answer and the next request, where the program has an `app_window`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pause: Option<Span>,
    /// Rate to which a device on the path holds each stream, as clouds do. Only predictions know
    /// it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flow_cap: Option<BitRate>,
    /// Rate at which the receiving program takes each stream, as one that writes to storage or
    /// decompresses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_rate: Option<BitRate>,
    /// Rate that a processor of either end carries of each stream. Only predictions know it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_rate: Option<BitRate>,
}

/// The way in which a sending program fills its socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Writer {
    /// Non-blocking, retried at least every millisecond: the send buffer really fills.
    #[default]
    Retrying,
    /// Blocking, as ordinary programs write: woken when a third of the send buffer is free.
    Blocking,
}

/// The transport protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Transport {
    /// As fast as the path lets it, or at a given rate.
    #[default]
    Tcp,
    /// Numbered datagrams at a given rate.
    Udp,
}

impl Transport {
    /// Returns the name of the protocol: `TCP` or `UDP`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
        }
    }
}

/// The load asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is an option of its own"
)]
pub struct Request {
    /// The transport protocol.
    pub transport: Transport,
    /// Direction of the data, which decides the end that sends.
    pub direction: Direction,
    /// Parallel streams, in each direction.
    pub streams: u16,
    /// Time for which data is sent, after `omit`.
    pub duration: Span,
    /// Time at the start that the totals leave out.
    pub omit: Span,
    /// If set, the test ends after so many bytes in all, in each direction, instead of after
    /// `duration`.
    pub bytes: Option<ByteCount>,
    /// Bytes of one write: of one datagram's payload with UDP. Zero asks for the usual: 1 MiB with
    /// TCP or, at a rate, what it sends in a millisecond; what one packet of the path holds with
    /// UDP. What was measured never says zero.
    pub block: ByteCount,
    /// Rate at which the sending program offers each stream; as fast as it can if not set.
    pub rate: Option<BitRate>,
    /// Writes in a row when `rate` permits one; one if not set.
    pub burst: Option<u16>,
    /// True if a sender of datagrams that has fallen behind `rate` sends all that is due at once,
    /// as iperf3 does. Without this, it sends at most twice the rate until it has caught up, and
    /// gives up what it is more than 100 ms behind.
    pub catches_up_at_once: bool,
    /// Rate at which the kernel paces each stream (`SO_MAX_PACING_RATE`).
    pub pacing: Option<BitRate>,
    /// Socket buffers.
    pub buffer: Buffer,
    /// What is stated of programs and devices, for predictions, simulations and labs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stated: Option<Box<StatedLoad>>,
    /// Congestion control, set on each socket and read back; the kernel's default if not set.
    pub congestion: Option<String>,
    /// Largest segment, if not what the path's MTU gives.
    pub mss: Option<ByteCount>,
    /// True if small writes are sent at once (`TCP_NODELAY`).
    pub no_delay: bool,
    /// Type of service: six bits of DSCP, two of ECN (RFC 2474).
    pub tos: u8,
    /// True if data connections are of Multipath TCP (RFC 8684).
    pub multipath: bool,
    /// True if a TCP sender hands the kernel pages of a file (`sendfile`) in place of copying.
    pub sendfile: bool,
    /// True if a TCP sender hands the kernel the pages that data lies in (`MSG_ZEROCOPY`) in place
    /// of copying.
    pub zero_copy: bool,
    /// True if a TCP receiver discards in the kernel what arrives (`MSG_TRUNC`), in place of
    /// copying it.
    pub discard: bool,
    /// True if a TCP receiver must copy what arrives, as programs do that use it. Without this and
    /// without `discard`, it is free to do either.
    pub rx_copy: bool,
    /// True if UDP hands the kernel many datagrams at once, and takes many (`UDP_SEGMENT`,
    /// `UDP_GRO`).
    pub offload: bool,
    /// True if UDP must hand the kernel each datagram by itself, and take it so. Without this and
    /// without `offload`, it is free to do either: the packets on the path are the same.
    pub no_gso: bool,
    /// True if datagrams are numbered in 64 bits rather than 32.
    pub wide_counters: bool,
    /// True if IPv4 datagrams must not be fragmented on their way.
    pub dont_fragment: bool,
    /// Processor that this end's data threads run on, all of them; the kernel's choice if not set.
    pub processor: Option<u16>,
    /// Processor that the other end's data threads run on, where it takes such wishes; the kernel's
    /// choice if not set.
    pub far_processor: Option<u16>,
    /// True if this end's data threads run near the network device that they use, where that makes
    /// a difference.
    pub near_device: bool,
    /// The way in which the sender fills its socket.
    pub writer: Writer,
    /// Length of the intervals that are reported.
    pub interval: Span,
    /// A word for each line of the report.
    pub title: Option<String>,
    /// A text that goes with the results.
    pub extra_data: Option<String>,
}

impl Default for Request {
    fn default() -> Self {
        Self {
            transport: Transport::Tcp,
            direction: Direction::Upload,
            streams: 1,
            duration: Span::from_secs(10),
            omit: Span::ZERO,
            bytes: None,
            block: ByteCount::from_kib(128),
            rate: None,
            burst: None,
            catches_up_at_once: false,
            pacing: None,
            buffer: Buffer::Automatic,
            stated: None,
            congestion: None,
            mss: None,
            no_delay: false,
            tos: 0,
            multipath: false,
            sendfile: false,
            zero_copy: false,
            discard: false,
            rx_copy: false,
            offload: false,
            no_gso: false,
            wide_counters: false,
            dont_fragment: false,
            processor: None,
            near_device: false,
            far_processor: None,
            writer: Writer::Retrying,
            interval: Span::from_secs(1),
            title: None,
            extra_data: None,
        }
    }
}

/// The load as it was carried out: a window has become the buffer request that yields it, a block
/// has its size, and a file its length.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct ResolvedRequest(Request);

impl ResolvedRequest {
    /// Returns `request`, in which the program has filled in everything that it chose.
    pub const fn new(request: Request) -> Self {
        Self(request)
    }
}

impl Deref for ResolvedRequest {
    type Target = Request;

    fn deref(&self) -> &Request {
        &self.0
    }
}

impl Request {
    /// Returns the name of the congestion control: that of `sender` if not set.
    pub fn congestion_at<'a>(&'a self, sender: &'a HostSettings) -> &'a str {
        let set = self.congestion.as_deref();
        set.unwrap_or(&sender.congestion_control)
    }

    /// Returns what is stated of programs and devices.
    pub fn stated_load(&self) -> StatedLoad {
        self.stated.as_deref().copied().unwrap_or_default()
    }

    /// Returns the load with this statement.
    #[must_use]
    pub fn with_stated(self, stated: StatedLoad) -> Self {
        let is_any = stated != StatedLoad::default();
        Self {
            stated: is_any.then(|| Box::new(stated)),
            ..self
        }
    }

    /// Returns the request for the send buffer of the sending end.
    pub fn send_buffer(&self) -> Buffer {
        let own = self.stated_load().sndbuf;
        own.map_or(self.buffer, Buffer::Request)
    }

    /// Returns the request for the receive buffer of the receiving end.
    pub fn receive_buffer(&self) -> Buffer {
        let own = self.stated_load().rcvbuf;
        own.map_or(self.buffer, Buffer::Request)
    }

    /// The directions in which data goes, upload first.
    pub fn data_directions(&self) -> &'static [Direction] {
        match self.direction {
            Direction::Upload => &[Direction::Upload],
            Direction::Download => &[Direction::Download],
            Direction::Both => &[Direction::Upload, Direction::Download],
        }
    }
}
