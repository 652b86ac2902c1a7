use fullpipe_record::{Buffer, Direction, HostSettings, Request, Transport};
use fullpipe_units::{BitRate, ByteCount, Span, without_control_characters};
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};

use crate::inbox::{PREFIX, framed};
use crate::json::{self, Extension, Flag, Text, Whole};
use crate::{Error, ErrorNumber, MAX_TEST, Message, Refusal, udp};

/// The parameters that a client asks for, as they go over the wire.
///
/// Only what this program acts on is read; iperf3's other keys (flow label, …) are ignored. The
/// numbers are the peer's until [`Parameters::to_request`] has judged them.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a key of the protocol")]
pub struct Parameters {
    carrier: Carrier,
    omit_seconds: i64,
    seconds: i64,
    bytes: i64,
    blocks: i64,
    mss: i64,
    no_delay: bool,
    streams: i64,
    heading: Heading,
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
    settings: Option<HostSettings>,
    /// The client's request, for what iperf3 has no key for.
    request: Option<Box<Request>>,
}

/// The transport protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Carrier {
    Tcp,
    Udp,
    Sctp,
}

/// Which way the data goes, seen from the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Heading {
    Up,
    Down,
    Both,
}

/// Version of our extension.
const EXTENSION_VERSION: u32 = 2;

/// The first version of our extension, without proofs that are bound to a nonce.
const FIRST_VERSION: u32 = 1;

/// Block size of a TCP test where the client names none.
const USUAL_BLOCK: i64 = 128 * 1024;

/// Payload of a datagram where the client names none: what iperf3 takes where it cannot see the path's MTU.
const USUAL_DATAGRAM: i64 = 1460;

/// The largest UDP payload over IPv4.
const MAX_DATAGRAM: i64 = 65_507;

/// An exbibyte takes a link of 100 Gbit/s three years.
const MAX_BYTES: i64 = 1 << 60;

/// Linux has room for 15 characters and a zero byte (`TCP_CA_NAME_MAX`).
const MAX_CONGESTION_NAME: usize = 15;

/// The longest parameters that iperf3 servers accept since 3.18.
const MAX_PARAMETERS: usize = 8 * 1024;

/// Value of `zerocopy` that asks a fullpipe server for `MSG_ZEROCOPY`. To iperf3 every value but zero means `sendfile`,
/// the nearest that it has.
const ZERO_COPY: i64 = 2;

/// Interval at which iperf3 checks whether a rate permits the next block, in microseconds; its default, and so ours for
/// it.
const PACING_TIMER: i64 = 1000;

impl Parameters {
    /// Returns what to send for `request`. Durations are rounded up to whole seconds, which is all that the protocol
    /// has: the client ends the test, the server's clock is only a backstop. The peer learns that we understand our
    /// extension.
    ///
    /// # Errors
    ///
    /// Refuses what newer servers would refuse, what the protocol cannot say (a test of no time or no bytes), a
    /// [`Buffer::Window`] and a UDP test with block zero: which buffer yields a window, and what the path's packets
    /// hold, is for the caller to find out. Texts that make the message longer than servers accept are refused too.
    pub fn from_request(request: &Request) -> Result<Self, Refusal> {
        let (bytes, seconds) = match request.bytes {
            Some(ByteCount::ZERO) => {
                return Err(refusal(ErrorNumber::END_CONDITIONS, "a test of no bytes cannot be run"));
            }
            Some(bytes) => (number(bytes.get()), 0),
            None if request.duration == Span::ZERO => {
                return Err(refusal(ErrorNumber::DURATION, "a test of no duration cannot be run"));
            }
            None => (0, whole_seconds(request.duration)),
        };
        let buffer = match request.buffer {
            Buffer::Automatic => 0,
            Buffer::Request(size) => number(size.get()),
            Buffer::Window(_) => {
                return Err(refusal(ErrorNumber::BUFFER_SIZE, "a window must be turned into a buffer request first"));
            }
        };
        let rate = |rate: Option<BitRate>| rate.map_or(0, |rate| number(rate.bps()));
        let parameters = Self {
            carrier: match request.transport {
                Transport::Tcp => Carrier::Tcp,
                Transport::Udp => Carrier::Udp,
            },
            omit_seconds: whole_seconds(request.omit),
            seconds,
            bytes,
            blocks: 0,
            mss: request.mss.map_or(0, |mss| number(mss.get())),
            no_delay: request.no_delay,
            streams: i64::from(request.streams),
            heading: match request.direction {
                Direction::Upload => Heading::Up,
                Direction::Download => Heading::Down,
                Direction::Both => Heading::Both,
            },
            multipath: request.multipath,
            buffer,
            block: match (request.transport, request.block) {
                (Transport::Tcp, ByteCount::ZERO) => USUAL_BLOCK,
                (_, block) => number(block.get()),
            },
            rate: rate(request.rate),
            pacing: rate(request.pacing),
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
            settings: None,
            request: None,
        };
        parameters.to_request()?;
        parameters.if_it_fits()
    }

    /// The same, asking the server for what it prints about the test.
    #[must_use]
    pub fn with_server_output(self) -> Self {
        Self { server_output: true, ..self }
    }

    /// The same, with the token by which the server knows the user: base64 of what iperf3 encrypts with the server's
    /// RSA key.
    ///
    /// # Errors
    ///
    /// Refuses a token that makes the message longer than servers accept.
    pub fn with_auth_token(self, token: String) -> Result<Self, Refusal> {
        Self { auth_token: Some(token), ..self }.if_it_fits()
    }

    /// Adds the settings of the client's host, for a server that is fullpipe. They are left out if they make the
    /// message longer than servers accept.
    #[must_use]
    pub fn with_settings(self, settings: HostSettings) -> Self {
        let stated = Self { settings: Some(settings), ..self.clone() };
        if stated.length() <= MAX_PARAMETERS { stated } else { self }
    }

    /// Adds the whole request for a server that is fullpipe, which takes from it what iperf3 has no key for: a new
    /// field of [`Request`] needs no key here. It is left out where it makes the message longer than servers accept.
    #[must_use]
    pub fn with_request(self, request: &Request) -> Self {
        let request = Request { title: None, extra_data: None, ..request.clone() };
        let whole = Self { request: Some(Box::new(request)), ..self.clone() };
        if whole.length() <= MAX_PARAMETERS { whole } else { self }
    }

    /// The load that the client asks for, within the limits of newer iperf3 servers.
    ///
    /// A test that bytes limit, or nothing, gets the duration [`MAX_TEST`]: the client ends it. Control characters in
    /// the title, which is printed, are left out.
    ///
    /// # Errors
    ///
    /// Says which value is out of its range, or which kind of test this program does not run, with the number that
    /// iperf3 uses for it.
    pub fn to_request(&self) -> Result<Request, Refusal> {
        Ok(Request {
            transport: self.checked_transport()?,
            direction: match self.heading {
                Heading::Up => Direction::Upload,
                Heading::Down => Direction::Download,
                Heading::Both => Direction::Both,
            },
            streams: within(self.streams, 1..=128, ErrorNumber::STREAMS, "parallel streams")?,
            duration: self.checked_duration()?,
            omit: self.checked_omit()?,
            bytes: self.checked_bytes()?,
            block: self.checked_block()?,
            rate: checked_rate(self.rate, "bit/s")?,
            burst: if_any(within(self.burst, 0..=1000, ErrorNumber::BURST, "blocks in a burst")?),
            pacing: checked_rate(self.pacing, "bit/s of pacing")?,
            buffer: self.checked_buffer()?,
            congestion: self.checked_congestion()?,
            mss: if_any(within(self.mss, 0..=32_767, ErrorNumber::MSS, "bytes of segment")?).map(ByteCount::new),
            no_delay: self.no_delay,
            tos: within(self.tos, 0..=255, ErrorNumber::TOS, "as type of service")?,
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

    /// Returns the client's request for the fields that iperf3 has no key for, without those of the client's own end.
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

    /// Returns whether the end that sent these understands our extension.
    pub fn speaks_fullpipe(&self) -> bool {
        self.speaks_fullpipe
    }

    /// Returns whether the client wants the server's output with the results.
    pub fn wants_server_output(&self) -> bool {
        self.server_output
    }

    /// The token by which the client says who its user is; never judged here.
    pub fn auth_token(&self) -> Option<&str> {
        self.auth_token.as_deref()
    }

    /// Returns whether the client can prove that it has a key: it is fullpipe, of version 2 or later.
    pub fn proves_keys(&self) -> bool {
        self.proves_keys
    }

    /// The settings of the client's host, where it sent them.
    pub fn settings(&self) -> Option<&HostSettings> {
        self.settings.as_ref()
    }

    /// Returns what a client sends: four bytes of length and JSON, never longer than the 8 KiB that iperf3 servers
    /// accept since 3.18. Whatever is off or zero is left out, but for the keys that iperf3 always sends.
    pub(crate) fn encode(&self) -> Vec<u8> {
        framed(&Sent(self))
    }

    /// Reads a client's JSON, without its length. A key that is missing or of the wrong type has its default, unknown
    /// keys are ignored.
    ///
    /// # Errors
    ///
    /// [`Error::Malformed`] for what is not a JSON object.
    pub fn decode(json: &[u8]) -> Result<Self, Error> {
        let received: Received =
            json::object(json).map_err(|why| Error::Malformed { message: Message::Parameters, why })?;
        Ok(received.into())
    }

    fn if_it_fits(self) -> Result<Self, Refusal> {
        let length = self.length();
        if length > MAX_PARAMETERS {
            return Err(Refusal {
                number: ErrorNumber::SEND_PARAMETERS,
                why: format!("title, extra data and token make a message of {length} bytes; servers accept 8192"),
            });
        }
        Ok(self)
    }

    /// Bytes of its JSON.
    fn length(&self) -> usize {
        self.encode().len() - PREFIX
    }

    /// Returns the time to omit: exactly what a fullpipe client asked for, of which its key has the whole seconds.
    fn checked_omit(&self) -> Result<Span, Refusal> {
        let whole = Span::from_secs(within(self.omit_seconds, 0..=600, ErrorNumber::OMIT, "seconds to omit")?);
        let exact = self.request.as_ref().map(|request| request.omit);
        Ok(exact.filter(|exact| whole_seconds(*exact) == self.omit_seconds).unwrap_or(whole))
    }

    fn checked_transport(&self) -> Result<Transport, Refusal> {
        match self.carrier {
            Carrier::Tcp => Ok(Transport::Tcp),
            Carrier::Udp => Ok(Transport::Udp),
            Carrier::Sctp => Err(refusal(ErrorNumber::NO_SCTP, "SCTP tests are not offered")),
        }
    }

    fn checked_duration(&self) -> Result<Span, Refusal> {
        let seconds = within(self.seconds, 0..=whole_seconds(MAX_TEST), ErrorNumber::DURATION, "seconds of test")?;
        let limited_otherwise = self.bytes != 0 || self.blocks != 0;
        Ok(if seconds == 0 || limited_otherwise { MAX_TEST } else { Span::from_secs(seconds) })
    }

    fn checked_bytes(&self) -> Result<Option<ByteCount>, Refusal> {
        let bytes = if self.bytes == 0 { self.blocks.saturating_mul(self.block) } else { self.bytes };
        let bytes = within(bytes, 0..=MAX_BYTES, ErrorNumber::END_CONDITIONS, "bytes of test")?;
        Ok(if_any(bytes).map(ByteCount::new))
    }

    fn checked_block(&self) -> Result<ByteCount, Refusal> {
        let block = match self.carrier {
            Carrier::Udp => {
                let range = number(udp::MIN_PAYLOAD as u64)..=MAX_DATAGRAM;
                within(self.block, range, ErrorNumber::UDP_BLOCK_SIZE, "bytes of one datagram")
            }
            Carrier::Tcp | Carrier::Sctp => {
                within(self.block, 1..=1024 * 1024, ErrorNumber::BLOCK_SIZE, "bytes of one block")
            }
        };
        block.map(ByteCount::new)
    }

    fn checked_buffer(&self) -> Result<Buffer, Refusal> {
        let buffer = within(self.buffer, 0..=512 * 1024 * 1024, ErrorNumber::BUFFER_SIZE, "bytes of socket buffer")?;
        Ok(if buffer == 0 { Buffer::Automatic } else { Buffer::Request(ByteCount::new(buffer)) })
    }

    /// A name goes into a socket option, records and error texts, so it must look like one.
    fn checked_congestion(&self) -> Result<Option<String>, Refusal> {
        match self.congestion.as_deref() {
            None | Some("") => Ok(None),
            Some(name) if is_congestion_name(name) => Ok(Some(name.to_owned())),
            Some(_) => Err(refusal(ErrorNumber::CONGESTION, "the name of the congestion control is not one")),
        }
    }
}

/// Returns whether `name` can be a congestion control's. Names are printed, so they must not hold escape codes.
pub(crate) fn is_congestion_name(name: &str) -> bool {
    name.len() <= MAX_CONGESTION_NAME && name.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Parameters as a client sends them, keys in iperf3's order and of the types that it wants since 3.18.
struct Sent<'p>(&'p Parameters);

impl Serialize for Sent<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Self(asked) = self;
        let mut keys = Keys(to.serialize_map(None)?);
        keys.flag(asked.carrier.key(), true)?;
        keys.put("omit", asked.omit_seconds)?;
        keys.put("time", asked.seconds)?;
        keys.put("num", asked.bytes)?;
        keys.put("blockcount", asked.blocks)?;
        keys.number("MSS", asked.mss)?;
        keys.flag("nodelay", asked.no_delay)?;
        keys.put("parallel", asked.streams)?;
        keys.flag("reverse", asked.heading == Heading::Down)?;
        keys.flag("bidirectional", asked.heading == Heading::Both)?;
        keys.flag("mptcp", asked.multipath)?;
        keys.number("window", asked.buffer)?;
        keys.put("len", asked.block)?;
        keys.number("bandwidth", asked.rate)?;
        keys.number("fqrate", asked.pacing)?;
        keys.number("pacing_timer", if asked.rate == 0 { 0 } else { PACING_TIMER })?;
        keys.number("burst", asked.burst)?;
        keys.number("TOS", asked.tos)?;
        keys.text("title", asked.title.as_deref())?;
        keys.text("extra_data", asked.extra_data.as_deref())?;
        keys.text("congestion", asked.congestion.as_deref())?;
        asked.processor.map_or(Ok(()), |number| keys.put("server_affinity", number))?;
        keys.number("get_server_output", asked.server_output.into())?;
        keys.number("udp_counters_64bit", asked.wide_counters.into())?;
        keys.number("zerocopy", if asked.zero_copy { ZERO_COPY } else { asked.sendfile.into() })?;
        keys.number("dont_fragment", asked.dont_fragment.into())?;
        keys.number("skip_rx_copy", asked.discard.into())?;
        if asked.offload && asked.carrier == Carrier::Udp {
            keys.offload(asked.block)?;
        }
        keys.text("authtoken", asked.auth_token.as_deref())?;
        keys.put("client_version", concat!("fullpipe ", env!("CARGO_PKG_VERSION")))?;
        if asked.speaks_fullpipe {
            keys.put("x_fullpipe", Announced::by(asked))?;
        }
        keys.0.end()
    }
}

/// The extension that a client sends to a fullpipe server.
#[derive(Serialize)]
struct Announced<'p> {
    version: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    settings: Option<&'p HostSettings>,
    #[serde(skip_serializing_if = "Option::is_none")]
    request: Option<&'p Request>,
}

impl<'p> Announced<'p> {
    fn by(asked: &'p Parameters) -> Self {
        Self { version: EXTENSION_VERSION, settings: asked.settings.as_ref(), request: asked.request.as_deref() }
    }
}

impl Carrier {
    fn key(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Sctp => "sctp",
        }
    }
}

/// The members of a JSON object.
struct Keys<M>(M);

impl<M: SerializeMap> Keys<M> {
    fn put(&mut self, key: &str, value: impl Serialize) -> Result<(), M::Error> {
        self.0.serialize_entry(key, &value)
    }

    /// Writes `true` if it is on; otherwise nothing, as `false` would be on for iperf3 up to 3.17.
    fn flag(&mut self, key: &str, on: bool) -> Result<(), M::Error> {
        if on { self.put(key, true) } else { Ok(()) }
    }

    fn number(&mut self, key: &str, value: i64) -> Result<(), M::Error> {
        if value == 0 { Ok(()) } else { self.put(key, value) }
    }

    fn text(&mut self, key: &str, value: Option<&str>) -> Result<(), M::Error> {
        value.map_or(Ok(()), |text| self.put(key, text))
    }

    /// As iperf3 3.21 has it: as many whole datagrams at once as one of the largest size holds.
    fn offload(&mut self, datagram: i64) -> Result<(), M::Error> {
        self.put("gso", 1)?;
        self.put("gso_dg_size", datagram)?;
        self.put("gso_bf_size", MAX_DATAGRAM / datagram.max(1) * datagram)?;
        self.put("gro", 1)?;
        self.put("gro_bf_size", MAX_DATAGRAM)
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Received {
    udp: Flag,
    sctp: Flag,
    omit: Whole,
    time: Whole,
    num: Whole,
    blockcount: Whole,
    #[serde(rename = "MSS")]
    mss: Whole,
    nodelay: Flag,
    parallel: Whole,
    reverse: Flag,
    bidirectional: Flag,
    mptcp: Flag,
    window: Whole,
    len: Whole,
    bandwidth: Whole,
    fqrate: Whole,
    burst: Whole,
    #[serde(rename = "TOS")]
    tos: Whole,
    title: Text,
    extra_data: Text,
    congestion: Text,
    server_affinity: Whole,
    get_server_output: Whole,
    udp_counters_64bit: Whole,
    zerocopy: Whole,
    dont_fragment: Whole,
    skip_rx_copy: Whole,
    gso: Whole,
    gro: Whole,
    authtoken: Text,
    x_fullpipe: Extension,
}

/// The same as it was received.
#[derive(Deserialize)]
struct Announcement {
    version: u32,
    #[serde(default)]
    settings: Extension,
    #[serde(default)]
    request: Extension,
}

impl From<Received> for Parameters {
    fn from(received: Received) -> Self {
        let extension = received.x_fullpipe.read::<Announcement>();
        let carrier = match (received.udp.0, received.sctp.0) {
            (true, _) => Carrier::Udp,
            (_, true) => Carrier::Sctp,
            _ => Carrier::Tcp,
        };
        let heading = match (received.bidirectional.0, received.reverse.0) {
            (true, _) => Heading::Both,
            (_, true) => Heading::Down,
            _ => Heading::Up,
        };
        let usual_block = if carrier == Carrier::Udp { USUAL_DATAGRAM } else { USUAL_BLOCK };
        let given = |value: Whole| value.0.unwrap_or(0);
        let is_on = |value: Whole| given(value) != 0;
        Self {
            carrier,
            omit_seconds: given(received.omit),
            seconds: given(received.time),
            bytes: given(received.num),
            blocks: given(received.blockcount),
            mss: given(received.mss),
            no_delay: received.nodelay.0,
            streams: received.parallel.0.unwrap_or(1),
            heading,
            multipath: received.mptcp.0,
            buffer: given(received.window),
            block: received.len.0.unwrap_or(usual_block),
            rate: given(received.bandwidth),
            pacing: given(received.fqrate),
            burst: given(received.burst),
            tos: given(received.tos),
            title: received.title.0,
            extra_data: received.extra_data.0,
            congestion: received.congestion.0,
            processor: received.server_affinity.0,
            server_output: is_on(received.get_server_output),
            wide_counters: is_on(received.udp_counters_64bit),
            dont_fragment: is_on(received.dont_fragment),
            sendfile: is_on(received.zerocopy) && given(received.zerocopy) != ZERO_COPY,
            zero_copy: given(received.zerocopy) == ZERO_COPY,
            discard: is_on(received.skip_rx_copy),
            offload: is_on(received.gso) || is_on(received.gro),
            auth_token: received.authtoken.0,
            // Later versions add to this one.
            speaks_fullpipe: extension.as_ref().is_some_and(|extension| extension.version >= FIRST_VERSION),
            proves_keys: extension.as_ref().is_some_and(|extension| extension.version >= EXTENSION_VERSION),
            request: extension.as_ref().and_then(|extension| extension.request.read()).map(Box::new),
            settings: extension.and_then(|extension| extension.settings.read()),
        }
    }
}

fn checked_rate(bits_per_second: i64, what: &str) -> Result<Option<BitRate>, Refusal> {
    let rate = within(bits_per_second, 0..=i64::MAX, ErrorNumber::TOTAL_RATE, what)?;
    Ok(if_any(rate).map(BitRate::from_bps))
}

/// Zero on the wire is what was not asked for.
fn if_any<T: Default + PartialEq>(value: T) -> Option<T> {
    (value != T::default()).then_some(value)
}

fn refusal(number: ErrorNumber, why: &str) -> Refusal {
    Refusal { number, why: why.to_owned() }
}

/// Returns `value` if it is in `range`, which `N` must hold.
fn within<N: TryFrom<i64>>(
    value: i64,
    range: std::ops::RangeInclusive<i64>,
    number: ErrorNumber,
    what: &str,
) -> Result<N, Refusal> {
    let fitting = Some(value).filter(|value| range.contains(value)).and_then(|value| N::try_from(value).ok());
    fitting.ok_or_else(|| Refusal {
        number,
        why: format!("{value} {what} asked for; {} to {} are possible", range.start(), range.end()),
    })
}

fn whole_seconds(span: Span) -> i64 {
    number(span.as_nanos().div_ceil(1_000_000_000))
}

/// Returns `value`, or the greatest number, which the range check that follows refuses.
fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn json_of(parameters: &Parameters) -> String {
        String::from_utf8(parameters.encode()[4..].to_vec()).unwrap()
    }

    fn refused(json: &str) -> i32 {
        Parameters::decode(json.as_bytes()).unwrap().to_request().unwrap_err().number.get()
    }

    fn accepted(json: &str) -> Request {
        Parameters::decode(json.as_bytes()).unwrap().to_request().unwrap()
    }

    #[test]
    fn the_default_test_is_sent_with_the_keys_of_iperf3() {
        let parameters = Parameters::from_request(&Request::default()).unwrap();
        assert_eq!(
            json_of(&parameters),
            concat!(
                r#"{"tcp":true,"omit":0,"time":10,"num":0,"blockcount":0,"parallel":1,"len":131072,"#,
                r#""client_version":"fullpipe "#,
                env!("CARGO_PKG_VERSION"),
                r#"","x_fullpipe":{"version":2}}"#
            )
        );
    }

    #[test]
    fn what_is_asked_for_is_sent_in_the_order_of_iperf3() {
        let parameters = Parameters::from_request(&Request {
            direction: Direction::Download,
            streams: 2,
            omit: Span::from_millis(300),
            bytes: Some(ByteCount::from_mib(1)),
            buffer: Buffer::Request(ByteCount::from_kib(64)),
            congestion: Some("reno".to_owned()),
            mss: Some(ByteCount::new(1400)),
            ..Request::default()
        })
        .unwrap();
        let keys = concat!(
            r#"{"tcp":true,"omit":1,"time":0,"num":1048576,"blockcount":0,"MSS":1400,"parallel":2,"reverse":true,"#,
            r#""window":65536,"len":131072,"congestion":"reno","client_version""#
        );
        assert!(json_of(&parameters).starts_with(keys), "{}", json_of(&parameters));
    }

    #[test]
    fn a_wish_for_copies_and_single_datagrams_reaches_a_fullpipe_server() {
        let asked = Request { rx_copy: true, no_gso: true, ..Request::default() };
        let json = json_of(&Parameters::from_request(&asked).unwrap().with_request(&asked));
        assert_eq!(accepted(&json), asked);
    }

    #[test]
    fn a_part_of_a_second_is_omitted_by_both_ends() {
        let asked = Request { omit: Span::from_millis(300), ..Request::default() };
        let parameters = Parameters::from_request(&asked).unwrap().with_request(&asked);
        assert_eq!(accepted(&json_of(&parameters)).omit, asked.omit);
        let other = Request { omit: Span::from_secs(9), ..asked };
        let contradicts = Parameters { request: Some(Box::new(other)), ..parameters };
        assert_eq!(accepted(&json_of(&contradicts)).omit, Span::from_secs(1), "iperf3's key decides");
    }

    #[test]
    fn recorded_parameters_of_3_12_are_understood() {
        let upload = accepted(concat!(
            r#"{"tcp":true,"omit":0,"time":1,"num":0,"blockcount":0,"parallel":1,"len":131072,"#,
            r#""pacing_timer":1000,"client_version":"3.12"}"#
        ));
        assert_eq!(upload, Request { duration: Span::from_secs(1), ..Request::default() });
        let by_bytes = accepted(concat!(
            r#"{"tcp":true,"omit":0,"time":0,"num":1048576,"blockcount":0,"parallel":1,"len":131072,"#,
            r#""pacing_timer":1000,"client_version":"3.12"}"#
        ));
        assert_eq!((by_bytes.bytes, by_bytes.duration), (Some(ByteCount::from_mib(1)), MAX_TEST));
    }

    #[test]
    fn a_reverse_test_of_3_12_keeps_its_buffer_and_congestion_control() {
        let request = accepted(concat!(
            r#"{"tcp":true,"omit":1,"time":1,"num":0,"blockcount":0,"MSS":1400,"parallel":2,"reverse":true,"#,
            r#""window":65536,"len":131072,"pacing_timer":1000,"congestion":"reno","client_version":"3.12"}"#
        ));
        let expected = Request {
            direction: Direction::Download,
            streams: 2,
            duration: Span::from_secs(1),
            omit: Span::from_secs(1),
            buffer: Buffer::Request(ByteCount::from_kib(64)),
            congestion: Some("reno".to_owned()),
            mss: Some(ByteCount::new(1400)),
            ..Request::default()
        };
        assert_eq!(request, expected);
    }

    #[test]
    fn old_clients_leave_out_what_is_zero() {
        // 3.0 to 3.2 with -k 10: neither time nor num.
        let request =
            accepted(r#"{"tcp":true,"omit":0,"blockcount":10,"parallel":1,"len":1000,"client_version":"3.1.3"}"#);
        assert_eq!((request.bytes, request.duration), (Some(ByteCount::new(10_000)), MAX_TEST));
        // 3.11 without num and blockcount.
        let request = accepted(r#"{"tcp":true,"omit":0,"time":10,"parallel":1,"len":131072,"client_version":"3.11"}"#);
        assert_eq!(request, Request::default());
        // Bytes go before time.
        assert_eq!(accepted(r#"{"tcp":true,"num":5,"time":1}"#).duration, MAX_TEST);
        // -t 0: no limit at all.
        assert_eq!(accepted(r#"{"tcp":true}"#).duration, MAX_TEST);
    }

    #[test]
    fn new_keys_and_wrong_types_are_ignored() {
        let request = accepted(concat!(
            r#"{"tcp":1,"udp":1,"reverse":1,"time":"5","parallel":null,"len":[1],"window":{"a":2},"congestion":7,"#,
            r#""mptcp":1,"skip_rx_copy":true,"gso":"1","TOS":true,"repeating_payload":1,"#,
            r#""x_other":{"deep":[[]]},"time2":9}"#
        ));
        assert_eq!(request, Request { duration: MAX_TEST, ..Request::default() });
    }

    #[test]
    fn each_value_out_of_range_has_its_number() {
        for (json, number) in [
            (r#"{"time":86401}"#, 5),
            (r#"{"time":-1}"#, 5),
            (r#"{"time":18446744073709551615}"#, 5),
            (r#"{"parallel":129}"#, 6),
            (r#"{"parallel":0}"#, 6),
            (r#"{"parallel":500}"#, 6),
            (r#"{"parallel":-4}"#, 6),
            (r#"{"len":1048577}"#, 7),
            (r#"{"len":0}"#, 7),
            (r#"{"window":536870913}"#, 8),
            (r#"{"window":-1}"#, 8),
            (r#"{"MSS":32768}"#, 10),
            (r#"{"omit":601}"#, 12),
            (r#"{"num":-1}"#, 16),
            (r#"{"blockcount":-1}"#, 16),
            (r#"{"blockcount":9223372036854775807}"#, 16),
            (r#"{"congestion":"a name that is far too long"}"#, 134),
            (r#"{"congestion":"cu\u0007bic"}"#, 134),
            (r#"{"sctp":true}"#, 18),
            (r#"{"udp":true,"len":15}"#, 20),
            (r#"{"udp":true,"len":0}"#, 20),
            (r#"{"udp":true,"len":65508}"#, 20),
            (r#"{"TOS":256}"#, 21),
            (r#"{"TOS":-1}"#, 21),
            (r#"{"burst":1001}"#, 15),
            (r#"{"burst":-1}"#, 15),
            (r#"{"bandwidth":-1}"#, 27),
            (r#"{"fqrate":18446744073709551615}"#, 27),
        ] {
            assert_eq!(refused(json), number, "{json}");
        }
    }

    #[test]
    fn the_ends_of_each_range_are_accepted() {
        for json in [
            r#"{"udp":true,"len":16,"burst":1,"TOS":0,"parallel":1,"omit":0}"#,
            r#"{"udp":true,"len":65507,"burst":1000,"TOS":255,"parallel":128,"omit":600}"#,
            r#"{"len":1048576,"MSS":32767,"window":536870912,"time":86400,"bandwidth":9223372036854775807}"#,
        ] {
            accepted(json);
        }
        assert_eq!(accepted(r#"{"udp":true}"#).block, ByteCount::new(1460));
    }

    #[test]
    fn a_refusal_names_what_was_asked_and_what_is_possible() {
        let refusal = Parameters::decode(br#"{"parallel":500}"#).unwrap().to_request().unwrap_err();
        assert_eq!(refusal.to_string(), "500 parallel streams asked for; 1 to 128 are possible");
    }

    #[test]
    fn requests_that_the_protocol_cannot_carry_are_refused_before_sending() {
        let default = Request::default;
        for (request, number) in [
            (Request { duration: Span::ZERO, ..default() }, 5),
            (Request { duration: Span::from_secs(86_401), ..default() }, 5),
            (Request { streams: 200, ..default() }, 6),
            (Request { block: ByteCount::from_mib(2), ..default() }, 7),
            (Request { buffer: Buffer::Window(ByteCount::from_kib(64)), ..default() }, 8),
            (Request { buffer: Buffer::Request(ByteCount::new(u64::MAX)), ..default() }, 8),
            (Request { bytes: Some(ByteCount::ZERO), ..default() }, 16),
            (Request { transport: Transport::Udp, block: ByteCount::ZERO, ..default() }, 20),
            (Request { transport: Transport::Udp, ..default() }, 20),
            (Request { burst: Some(1001), ..default() }, 15),
            (Request { rate: Some(BitRate::from_bps(0)), extra_data: Some("x".repeat(8192)), ..default() }, 113),
        ] {
            assert_eq!(Parameters::from_request(&request).unwrap_err().number.get(), number, "{request:?}");
        }
    }

    #[test]
    fn only_fullpipe_since_version_2_proves_keys() {
        let sent = Parameters::from_request(&Request::default()).unwrap();
        assert!(Parameters::decode(&sent.encode()[4..]).unwrap().proves_keys());
        for (json, speaks_fullpipe) in [("{}", false), (r#"{"x_fullpipe":{"version":1,"key":{"time":1}}}"#, true)] {
            let received = Parameters::decode(json.as_bytes()).unwrap();
            assert_eq!((received.proves_keys(), received.speaks_fullpipe()), (false, speaks_fullpipe), "{json}");
        }
    }

    #[test]
    fn settings_go_with_our_extension_where_there_is_room() {
        let settings = fullpipe_record::HostSettings::of_linux_6_18();
        let stated = |extra_data: usize| {
            let request = Request { extra_data: Some("e".repeat(extra_data)), ..Request::default() };
            let sent = Parameters::from_request(&request).unwrap().with_settings(settings.clone());
            let message = sent.encode();
            assert!(message.len() <= PREFIX + MAX_PARAMETERS);
            let received = Parameters::decode(&message[PREFIX..]).unwrap();
            assert_eq!(received, sent);
            received.settings().cloned()
        };
        assert_eq!((stated(1), stated(7_900)), (Some(settings.clone()), None));
        for malformed in ["7", "{}", r#"{"kernel":"6.18"}"#, "null"] {
            let json = format!(r#"{{"x_fullpipe":{{"version":1,"settings":{malformed}}}}}"#);
            let received = Parameters::decode(json.as_bytes()).unwrap();
            assert_eq!((received.settings(), received.speaks_fullpipe()), (None, true), "{json}");
        }
    }

    #[test]
    fn only_a_well_formed_extension_counts() {
        for (json, speaks) in [
            (r#"{"x_fullpipe":{"version":1}}"#, true),
            (r#"{"x_fullpipe":{"version":2,"more":[]}}"#, true),
            (r#"{"x_fullpipe":{"version":0}}"#, false),
            (r#"{"x_fullpipe":{"version":"1"}}"#, false),
            (r#"{"x_fullpipe":true}"#, false),
            (r#"{"x_fullpipe":null}"#, false),
            ("{}", false),
        ] {
            assert_eq!(Parameters::decode(json.as_bytes()).unwrap().speaks_fullpipe(), speaks, "{json}");
        }
    }

    #[test]
    fn a_datagram_test_is_sent_with_the_keys_of_iperf3() {
        let request = Request {
            transport: Transport::Udp,
            direction: Direction::Both,
            block: ByteCount::new(1448),
            rate: Some(BitRate::from_mbps(1)),
            burst: Some(10),
            pacing: Some(BitRate::from_mbps(2)),
            tos: 184,
            wide_counters: true,
            dont_fragment: true,
            title: Some("x".to_owned()),
            extra_data: Some("y".to_owned()),
            ..Request::default()
        };
        let keys = concat!(
            r#"{"udp":true,"omit":0,"time":10,"num":0,"blockcount":0,"parallel":1,"bidirectional":true,"len":1448,"#,
            r#""bandwidth":1000000,"fqrate":2000000,"pacing_timer":1000,"burst":10,"TOS":184,"title":"x","#,
            r#""extra_data":"y","udp_counters_64bit":1,"dont_fragment":1,"client_version""#
        );
        let json = json_of(&Parameters::from_request(&request).unwrap());
        assert!(json.starts_with(keys), "{json}");
    }

    #[test]
    fn each_end_is_reported_of_its_own_processor() {
        let request = Request { processor: Some(1), far_processor: Some(3), ..Request::default() };
        let sent = Parameters::from_request(&request).unwrap();
        assert!(json_of(&sent).contains("\"server_affinity\":3"));
        let asked = Parameters::decode(&sent.encode()[4..]).unwrap().to_request().unwrap();
        assert_eq!((asked.processor, asked.far_processor), (Some(3), None));
        let nonsense = Parameters::decode(br#"{"server_affinity":-1}"#).unwrap().to_request().unwrap();
        assert_eq!(nonsense.processor, None);
    }

    #[test]
    fn offload_is_asked_for_as_3_21_does() {
        let request =
            Request { transport: Transport::Udp, block: ByteCount::new(1448), offload: true, ..Request::default() };
        let json = json_of(&Parameters::from_request(&request).unwrap());
        let keys = r#""gso":1,"gso_dg_size":1448,"gso_bf_size":65160,"gro":1,"gro_bf_size":65507,"#;
        assert!(json.contains(keys), "{json}");
    }

    #[test]
    fn booleans_are_true_and_numbers_are_numbers() {
        let request = Request {
            no_delay: true,
            multipath: true,
            sendfile: true,
            discard: true,
            direction: Direction::Download,
            ..Request::default()
        };
        let json = json_of(&Parameters::from_request(&request).unwrap().with_server_output());
        let keys: serde_json::Value = serde_json::from_str(&json).unwrap();
        for (key, value) in keys.as_object().unwrap() {
            let is_boolean = ["tcp", "nodelay", "reverse", "mptcp"].contains(&key.as_str());
            assert_eq!(value.is_boolean(), is_boolean, "{key}");
            assert!(!is_boolean || value == true, "{key}");
        }
        for key in ["zerocopy", "skip_rx_copy", "get_server_output"] {
            assert_eq!(keys[key], 1, "{key}");
        }
    }

    #[test]
    fn block_zero_is_the_usual_one_for_tcp() {
        let parameters = Parameters::from_request(&Request { block: ByteCount::ZERO, ..Request::default() }).unwrap();
        assert_eq!(parameters.to_request().unwrap().block, ByteCount::from_kib(128));
    }

    #[test]
    fn output_and_token_reach_the_server() {
        let parameters = Parameters::from_request(&Request::default()).unwrap();
        assert!(!parameters.wants_server_output() && parameters.auth_token().is_none());
        let sent = parameters.with_server_output().with_auth_token("c2VjcmV0".to_owned()).unwrap();
        let received = Parameters::decode(&sent.encode()[4..]).unwrap();
        assert_eq!(received, sent);
        assert_eq!((received.wants_server_output(), received.auth_token()), (true, Some("c2VjcmV0")));
        assert_eq!(sent.with_auth_token("x".repeat(8192)).unwrap_err().number, ErrorNumber::SEND_PARAMETERS);
    }

    #[test]
    fn a_title_cannot_steer_a_terminal() {
        let request = accepted(r#"{"title":"a\u001b[2Jb\nc","extra_data":"d\ne"}"#);
        assert_eq!((request.title.as_deref(), request.extra_data.as_deref()), (Some("a[2Jbc"), Some("d\ne")));
    }

    prop_compose! {
        fn any_load()(
            udp in any::<bool>(),
            direction in prop::sample::select(vec![Direction::Upload, Direction::Download, Direction::Both]),
            streams in 1_u16..=128,
            seconds in 1_u64..=86_400,
            omit in 0_u64..=600,
            block in 16_u64..=65_507,
            rate in prop::option::of(1_u64..=1 << 50),
            burst in prop::option::of(1_u16..=1000),
            pacing in prop::option::of(1_u64..=1 << 50),
            tos in any::<u8>(),
        ) -> Request {
            Request {
                transport: if udp { Transport::Udp } else { Transport::Tcp },
                direction,
                streams,
                duration: Span::from_secs(seconds),
                omit: Span::from_secs(omit),
                block: ByteCount::new(block),
                rate: rate.map(BitRate::from_bps),
                burst,
                pacing: pacing.map(BitRate::from_bps),
                tos,
                ..Request::default()
            }
        }
    }

    prop_compose! {
        fn any_request()(
            load in any_load(),
            buffer in prop::option::of(1_u64..=512 << 20),
            mss in prop::option::of(1_u64..=32_767),
            congestion in prop::option::of("[!-~]{1,15}"),
            title in prop::option::of("[ -~]{1,40}"),
            extra_data in prop::option::of("\\PC{1,40}"),
            switches in any::<[bool; 8]>(),
        ) -> Request {
            let [no_delay, multipath, sendfile, zero_copy, discard, offload, wide_counters, dont_fragment] = switches;
            Request {
                buffer: buffer.map_or(Buffer::Automatic, |size| Buffer::Request(ByteCount::new(size))),
                mss: mss.map(ByteCount::new),
                congestion,
                title,
                extra_data,
                no_delay,
                multipath,
                // There is one key for both.
                sendfile: sendfile && !zero_copy,
                zero_copy,
                discard,
                // Only datagrams have it.
                offload: offload && load.transport == Transport::Udp,
                wide_counters,
                dont_fragment,
                ..load
            }
        }
    }

    proptest! {
        #[test]
        fn a_request_arrives_as_it_was_sent(request in any_request()) {
            let sent = Parameters::from_request(&request).unwrap();
            let bytes = sent.encode();
            prop_assert!(bytes.len() <= 8192);
            let received = Parameters::decode(&bytes[4..]).unwrap();
            prop_assert_eq!(&received, &sent);
            prop_assert_eq!(received.to_request().unwrap(), request);
        }

        #[test]
        fn any_bytes_are_parameters_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Parameters::decode(&bytes);
        }

        #[test]
        fn any_numbers_are_a_request_or_a_refusal(numbers in prop::array::uniform12(any::<i64>())) {
            let keys = [
                "omit", "time", "num", "blockcount", "MSS", "parallel", "window", "len", "bandwidth", "fqrate", "burst",
                "TOS",
            ];
            let members: Vec<String> = keys.iter().zip(numbers).map(|(key, n)| format!("\"{key}\":{n}")).collect();
            let parameters = Parameters::decode(format!("{{{}}}", members.join(",")).as_bytes()).unwrap();
            let _ = parameters.to_request();
        }
    }

    #[test]
    fn the_whole_request_travels_for_fullpipe_servers_and_says_nothing_that_iperf3s_keys_say() {
        let request = Request { streams: 4, title: Some("night".to_owned()), near_device: true, ..Request::default() };
        let sent = Parameters::from_request(&request).unwrap().with_request(&Request { streams: 9, ..request.clone() });
        let received = Parameters::decode(&sent.encode()[PREFIX..]).unwrap();
        assert_eq!(received.request.as_ref().map(|request| (request.streams, request.title.clone())), Some((9, None)));
        let judged = received.to_request().unwrap();
        assert_eq!((judged.streams, judged.near_device, judged.title), (4, false, request.title));
    }
}
