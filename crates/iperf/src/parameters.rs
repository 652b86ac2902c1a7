mod keys;

use fullpipe_record::{Buffer, Direction, HostSettings, Request, Transport};
use fullpipe_units::{BitRate, ByteCount, Span, without_control_characters};

use crate::inbox::{PREFIX, frame_json};
use crate::json;
use crate::{ErrorNumber, JsonMessage, MAX_TEST, TestError, TestRefusal, udp};

use keys::{Received, SentParameters};

/// The parameters that a client asks for, as they go over the wire.
///
/// Only what this program acts on is read; iperf3's other keys (flow label, …) are ignored. The
/// numbers are the peer's until [`TestParameters::to_request`] has judged them.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a key of the protocol"
)]
pub struct TestParameters {
    carrier: TransportProtocol,
    omit_seconds: i64,
    seconds: i64,
    bytes: i64,
    blocks: i64,
    mss: i64,
    no_delay: bool,
    streams: i64,
    heading: DataHeading,
    multipath: bool,
    buffer: i64,
    block: i64,
    rate: i64,
    pacing: i64,
    burst: i64,
    tos: i64,
    title: Option<String>,
    extra_data: Option<String>,
    congestion: Option<String>,
    server_output: bool,
    wide_counters: bool,
    dont_fragment: bool,
    sendfile: bool,
    zero_copy: bool,
    discard: bool,
    offload: bool,
    /// Of the server.
    processor: Option<i64>,
    auth_token: Option<String>,
    speaks_fullpipe: bool,
    proves_keys: bool,
    sends_cookies: bool,
    settings: Option<HostSettings>,
    /// The client's request, for what iperf3 has no key for.
    request: Option<Box<Request>>,
}

/// The transport protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TransportProtocol {
    Tcp,
    Udp,
    Sctp,
}

/// Direction of the data, seen from the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DataHeading {
    Up,
    Down,
    Both,
}

/// Block size of a TCP test where the client names none.
const USUAL_BLOCK: i64 = 128 * 1024;

/// The largest UDP payload over IPv4.
const MAX_DATAGRAM: i64 = 65_507;

/// An exbibyte takes a link of 100 Gbit/s three years.
const MAX_BYTES: i64 = 1 << 60;

/// Linux has room for 15 characters and a zero byte (`TCP_CA_NAME_MAX`).
const MAX_CONGESTION_NAME: usize = 15;

/// The longest parameters that iperf3 servers accept since 3.18.
const MAX_PARAMETERS: usize = 8 * 1024;

impl TestParameters {
    /// Returns the parameters that a client sends for `request`. Durations are rounded up to whole
    /// seconds, which is all that the protocol has: the client ends the test, the server's clock is
    /// only a backstop. The peer learns that we understand our extension.
    ///
    /// # Errors
    ///
    /// Refuses what newer servers would refuse, what the protocol cannot say (a test of no time or
    /// no bytes), a [`Buffer::Window`] and a UDP test with block zero: which buffer yields a
    /// window, and what the path's packets hold, is for the caller to find out. Texts that make the
    /// message longer than servers accept are refused too.
    pub fn from_request(request: &Request) -> Result<Self, TestRefusal> {
        let (bytes, seconds) = end_conditions(request)?;
        let [rate, pacing] = [request.rate, request.pacing]
            .map(|rate| rate.map_or(0, |rate| to_saturated_i64(rate.bps())));
        let parameters = Self {
            carrier: match request.transport {
                Transport::Tcp => TransportProtocol::Tcp,
                Transport::Udp => TransportProtocol::Udp,
            },
            omit_seconds: whole_seconds(request.omit),
            seconds,
            bytes,
            blocks: 0,
            mss: request.mss.map_or(0, |mss| to_saturated_i64(mss.get())),
            no_delay: request.no_delay,
            streams: i64::from(request.streams),
            heading: match request.direction {
                Direction::Upload => DataHeading::Up,
                Direction::Download => DataHeading::Down,
                Direction::Both => DataHeading::Both,
            },
            multipath: request.multipath,
            buffer: buffer_size(request.buffer)?,
            block: match (request.transport, request.block) {
                (Transport::Tcp, ByteCount::ZERO) => USUAL_BLOCK,
                (_, block) => to_saturated_i64(block.get()),
            },
            rate,
            pacing,
            burst: request.burst.map_or(0, i64::from),
            tos: i64::from(request.tos),
            title: request.title.clone(),
            extra_data: request.extra_data.clone(),
            congestion: request.congestion.clone().filter(|name| !name.is_empty()),
            server_output: false,
            wide_counters: request.wide_counters,
            dont_fragment: request.dont_fragment,
            sendfile: request.sendfile,
            zero_copy: request.zero_copy,
            discard: request.discard,
            offload: request.offload,
            processor: request.far_processor.map(i64::from),
            auth_token: None,
            speaks_fullpipe: true,
            proves_keys: true,
            sends_cookies: true,
            settings: None,
            request: None,
        };
        parameters.to_request()?;
        parameters.if_it_fits()
    }

    /// Returns these parameters, with a request for the server's output about the test.
    #[must_use]
    pub fn with_server_output(self) -> Self {
        Self {
            server_output: true,
            ..self
        }
    }

    /// Returns these parameters with the token by which the server knows the user: base64 of the
    /// text that iperf3 encrypts with the server's RSA key.
    ///
    /// # Errors
    ///
    /// Refuses a token that makes the message longer than servers accept.
    pub fn with_auth_token(self, token: String) -> Result<Self, TestRefusal> {
        Self {
            auth_token: Some(token),
            ..self
        }
        .if_it_fits()
    }

    /// Adds the settings of the client's host, for a server that is fullpipe. They are left out if
    /// they make the message longer than servers accept.
    #[must_use]
    pub fn with_settings(self, settings: HostSettings) -> Self {
        let stated = Self {
            settings: Some(settings),
            ..self.clone()
        };
        if stated.json_length() <= MAX_PARAMETERS {
            stated
        } else {
            self
        }
    }

    /// Adds the whole request for a server that is fullpipe, which takes from it what iperf3 has no
    /// key for: a new field of [`Request`] needs no key here. It is left out where it makes the
    /// message longer than servers accept.
    #[must_use]
    pub fn with_request(self, request: &Request) -> Self {
        let request = Request {
            title: None,
            extra_data: None,
            ..request.clone()
        };
        let whole = Self {
            request: Some(Box::new(request)),
            ..self.clone()
        };
        if whole.json_length() <= MAX_PARAMETERS {
            whole
        } else {
            self
        }
    }

    /// The load that the client asks for, within the limits of newer iperf3 servers.
    ///
    /// A test that bytes limit, or nothing, gets the duration [`MAX_TEST`]: the client ends it.
    /// Control characters in the title, which is printed, are left out.
    ///
    /// # Errors
    ///
    /// Says which value is out of its range, or which kind of test this program does not run, with
    /// the number that iperf3 uses for it.
    pub fn to_request(&self) -> Result<Request, TestRefusal> {
        Ok(Request {
            transport: self.checked_transport()?,
            direction: match self.heading {
                DataHeading::Up => Direction::Upload,
                DataHeading::Down => Direction::Download,
                DataHeading::Both => Direction::Both,
            },
            streams: checked_value(
                self.streams,
                1..=128,
                ErrorNumber::STREAMS,
                "parallel streams",
            )?,
            duration: self.checked_duration()?,
            omit: self.checked_omit()?,
            bytes: self.checked_bytes()?,
            block: self.checked_block()?,
            rate: checked_rate(self.rate, "bit/s")?,
            burst: if_any(checked_value(
                self.burst,
                0..=1000,
                ErrorNumber::BURST,
                "blocks in a burst",
            )?),
            pacing: checked_rate(self.pacing, "bit/s of pacing")?,
            buffer: self.checked_buffer()?,
            congestion: self.checked_congestion()?,
            mss: if_any(checked_value(
                self.mss,
                0..=32_767,
                ErrorNumber::MSS,
                "bytes of segment",
            )?)
            .map(ByteCount::new),
            no_delay: self.no_delay,
            tos: checked_value(self.tos, 0..=255, ErrorNumber::TOS, "as type of service")?,
            multipath: self.multipath,
            sendfile: self.sendfile,
            zero_copy: self.zero_copy,
            discard: self.discard,
            offload: self.offload,
            wide_counters: self.wide_counters,
            dont_fragment: self.dont_fragment,
            // What is no processor is a wish like that for one that is not there.
            processor: self.processor.and_then(|number| u16::try_from(number).ok()),
            title: self.title.as_deref().map(without_control_characters),
            extra_data: self.extra_data.clone(),
            ..self.beyond_iperf3()
        })
    }

    /// Returns the client's request for the fields that iperf3 has no key for, without those of the
    /// client's own end.
    fn beyond_iperf3(&self) -> Request {
        let usual = Request::default();
        Request {
            far_processor: None,
            near_device: false,
            writer: usual.writer,
            interval: usual.interval,
            ..self.request.as_deref().cloned().unwrap_or(usual)
        }
    }

    /// Returns true if the end that sent these understands our extension.
    pub fn speaks_fullpipe(&self) -> bool {
        self.speaks_fullpipe
    }

    /// Returns true if the client wants the server's output with the results.
    pub fn wants_server_output(&self) -> bool {
        self.server_output
    }

    /// The token by which the client says who its user is; never judged here.
    pub fn auth_token(&self) -> Option<&str> {
        self.auth_token.as_deref()
    }

    /// Returns true if the client can prove that it has a key: it is fullpipe, of version 2 or
    /// later.
    pub fn proves_keys(&self) -> bool {
        self.proves_keys
    }

    /// Returns true if the client sends the cookie of its test with the hello of each UDP stream:
    /// it is fullpipe, of version 3 or later.
    pub fn sends_cookies(&self) -> bool {
        self.sends_cookies
    }

    /// The settings of the client's host, where it sent them.
    pub fn host_settings(&self) -> Option<&HostSettings> {
        self.settings.as_ref()
    }

    /// Returns the message of a client: four bytes of length and JSON, never longer than the 8 KiB
    /// that iperf3 servers accept since 3.18. Whatever is off or zero is left out, but for the keys
    /// that iperf3 always sends.
    pub(crate) fn encode_message(&self) -> Vec<u8> {
        frame_json(&SentParameters(self))
    }

    /// Reads a client's JSON, without its length. A key that is missing or of the wrong type has
    /// its default, unknown keys are ignored.
    ///
    /// # Errors
    ///
    /// [`TestError::Malformed`] for what is not a JSON object.
    pub fn decode_json(json: &[u8]) -> Result<Self, TestError> {
        let received: Received = json::parse_object(json).map_err(|why| TestError::Malformed {
            message: JsonMessage::Parameters,
            why,
        })?;
        Ok(received.into())
    }

    fn if_it_fits(self) -> Result<Self, TestRefusal> {
        let length = self.json_length();
        if length > MAX_PARAMETERS {
            return Err(TestRefusal {
                number: ErrorNumber::SEND_PARAMETERS,
                why: format!(
                    "title, extra data and token make a message of {length} bytes; servers accept 8192"
                ),
            });
        }
        Ok(self)
    }

    /// Bytes of its JSON.
    fn json_length(&self) -> usize {
        self.encode_message().len() - PREFIX
    }

    /// Returns the time to omit: exactly what a fullpipe client asked for, of which its key has the
    /// whole seconds.
    fn checked_omit(&self) -> Result<Span, TestRefusal> {
        let whole = Span::from_secs(checked_value(
            self.omit_seconds,
            0..=600,
            ErrorNumber::OMIT,
            "seconds to omit",
        )?);
        let exact = self.request.as_ref().map(|request| request.omit);
        Ok(exact
            .filter(|exact| whole_seconds(*exact) == self.omit_seconds)
            .unwrap_or(whole))
    }

    fn checked_transport(&self) -> Result<Transport, TestRefusal> {
        match self.carrier {
            TransportProtocol::Tcp => Ok(Transport::Tcp),
            TransportProtocol::Udp => Ok(Transport::Udp),
            TransportProtocol::Sctp => Err(TestRefusal::new(
                ErrorNumber::NO_SCTP,
                "SCTP tests are not offered",
            )),
        }
    }

    fn checked_duration(&self) -> Result<Span, TestRefusal> {
        let seconds = checked_value(
            self.seconds,
            0..=whole_seconds(MAX_TEST),
            ErrorNumber::DURATION,
            "seconds of test",
        )?;
        let limited_otherwise = self.bytes != 0 || self.blocks != 0;
        Ok(if seconds == 0 || limited_otherwise {
            MAX_TEST
        } else {
            Span::from_secs(seconds)
        })
    }

    fn checked_bytes(&self) -> Result<Option<ByteCount>, TestRefusal> {
        let bytes = if self.bytes == 0 {
            self.blocks.saturating_mul(self.block)
        } else {
            self.bytes
        };
        let bytes = checked_value(
            bytes,
            0..=MAX_BYTES,
            ErrorNumber::END_CONDITIONS,
            "bytes of test",
        )?;
        Ok(if_any(bytes).map(ByteCount::new))
    }

    fn checked_block(&self) -> Result<ByteCount, TestRefusal> {
        let block = match self.carrier {
            TransportProtocol::Udp => {
                let range = to_saturated_i64(udp::MIN_PAYLOAD as u64)..=MAX_DATAGRAM;
                checked_value(
                    self.block,
                    range,
                    ErrorNumber::UDP_BLOCK_SIZE,
                    "bytes of one datagram",
                )
            }
            TransportProtocol::Tcp | TransportProtocol::Sctp => checked_value(
                self.block,
                1..=1024 * 1024,
                ErrorNumber::BLOCK_SIZE,
                "bytes of one block",
            ),
        };
        block.map(ByteCount::new)
    }

    fn checked_buffer(&self) -> Result<Buffer, TestRefusal> {
        let buffer = checked_value(
            self.buffer,
            0..=512 * 1024 * 1024,
            ErrorNumber::BUFFER_SIZE,
            "bytes of socket buffer",
        )?;
        Ok(if buffer == 0 {
            Buffer::Automatic
        } else {
            Buffer::Request(ByteCount::new(buffer))
        })
    }

    /// A name goes into a socket option, records and error texts, so it must look like one.
    fn checked_congestion(&self) -> Result<Option<String>, TestRefusal> {
        match self.congestion.as_deref() {
            None | Some("") => Ok(None),
            Some(name) if is_congestion_name(name) => Ok(Some(name.to_owned())),
            Some(_) => Err(TestRefusal::new(
                ErrorNumber::CONGESTION,
                "the name of the congestion control is not one",
            )),
        }
    }
}

/// Returns the bytes and the seconds after which the test that `request` asks for ends, zero for
/// the one that does not end it.
fn end_conditions(request: &Request) -> Result<(i64, i64), TestRefusal> {
    match request.bytes {
        Some(ByteCount::ZERO) => Err(TestRefusal::new(
            ErrorNumber::END_CONDITIONS,
            "a test of no bytes cannot be run",
        )),
        Some(bytes) => Ok((to_saturated_i64(bytes.get()), 0)),
        None if request.duration == Span::ZERO => Err(TestRefusal::new(
            ErrorNumber::DURATION,
            "a test of no duration cannot be run",
        )),
        None => Ok((0, whole_seconds(request.duration))),
    }
}

fn buffer_size(buffer: Buffer) -> Result<i64, TestRefusal> {
    match buffer {
        Buffer::Automatic => Ok(0),
        Buffer::Request(size) => Ok(to_saturated_i64(size.get())),
        Buffer::Window(_) => Err(TestRefusal::new(
            ErrorNumber::BUFFER_SIZE,
            "a window must be turned into a buffer request first",
        )),
    }
}

/// Returns true if `name` can be a congestion control's. Names are printed, so they must not hold
/// escape codes.
pub(crate) fn is_congestion_name(name: &str) -> bool {
    name.len() <= MAX_CONGESTION_NAME && name.bytes().all(|byte| byte.is_ascii_graphic())
}

fn checked_rate(bits_per_second: i64, what: &str) -> Result<Option<BitRate>, TestRefusal> {
    let rate = checked_value(bits_per_second, 0..=i64::MAX, ErrorNumber::TOTAL_RATE, what)?;
    Ok(if_any(rate).map(BitRate::from_bps))
}

/// Zero on the wire is what was not asked for.
fn if_any<T: Default + PartialEq>(value: T) -> Option<T> {
    (value != T::default()).then_some(value)
}

/// Returns `value` if it is in `range`, which `N` must hold.
fn checked_value<N: TryFrom<i64>>(
    value: i64,
    range: std::ops::RangeInclusive<i64>,
    number: ErrorNumber,
    what: &str,
) -> Result<N, TestRefusal> {
    let fitting = Some(value)
        .filter(|value| range.contains(value))
        .and_then(|value| N::try_from(value).ok());
    fitting.ok_or_else(|| TestRefusal {
        number,
        why: format!(
            "{value} {what} asked for; {} to {} are possible",
            range.start(),
            range.end()
        ),
    })
}

fn whole_seconds(span: Span) -> i64 {
    to_saturated_i64(span.as_nanos().div_ceil(1_000_000_000))
}

/// Returns `value`, or the greatest number, which the range check that follows refuses.
fn to_saturated_i64(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
