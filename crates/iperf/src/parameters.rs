use fullpipe_record::{Buffer, Direction, Request, Writer};
use fullpipe_units::{ByteCount, Span};
use serde::{Deserialize, Serialize};

use crate::inbox::framed;
use crate::json::{self, Extension, Flag, Number, Text, Whole};
use crate::{Error, ErrorNumber, LONGEST_TEST, Message, Refusal};

/// What the client asks for, as it goes over the wire.
///
/// Only what this program acts on is read; iperf3's other keys (type of service, title, authentication, …) are
/// ignored. The numbers are the peer's until [`Parameters::to_request`] has judged them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameters {
    transport: Transport,
    omit_seconds: i64,
    seconds: i64,
    bytes: i64,
    blocks: i64,
    mss: i64,
    streams: i64,
    heading: Heading,
    buffer: i64,
    block: i64,
    paced: bool,
    congestion: Option<String>,
    speaks_fullpipe: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Transport {
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
const EXTENSION_VERSION: u32 = 1;

/// Block size where the client names none.
const DEFAULT_BLOCK: i64 = 128 * 1024;

/// An exbibyte takes a link of 100 Gbit/s three years.
const MOST_BYTES: i64 = 1 << 60;

/// Linux has room for 15 characters and a zero byte (`TCP_CA_NAME_MAX`).
const LONGEST_CONGESTION_NAME: usize = 15;

impl Parameters {
    /// What to send for `request`. Durations are rounded up to whole seconds, which is all that the protocol has: the
    /// client ends the test, the server's clock is only a backstop. The peer is told that we understand our extension.
    ///
    /// # Errors
    ///
    /// Refuses what newer servers would refuse, what the protocol cannot say (a test of no time or no bytes), and a
    /// [`Buffer::Window`]: which buffer yields a window is for the caller to find out.
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
        let parameters = Self {
            transport: Transport::Tcp,
            omit_seconds: whole_seconds(request.omit),
            seconds,
            bytes,
            blocks: 0,
            mss: request.mss.map_or(0, |mss| number(mss.get())),
            streams: i64::from(request.streams),
            heading: match request.direction {
                Direction::Upload => Heading::Up,
                Direction::Download => Heading::Down,
            },
            buffer,
            block: number(request.block.get()),
            paced: false,
            congestion: request.congestion.clone().filter(|name| !name.is_empty()),
            speaks_fullpipe: true,
        };
        parameters.to_request().map(|_| parameters)
    }

    /// The load that the client asks for, within the limits of newer iperf3 servers.
    ///
    /// A test that bytes limit, or nothing, gets the duration [`LONGEST_TEST`]: the client ends it.
    ///
    /// # Errors
    ///
    /// Says which value is out of its range, or which kind of test this program does not run, with the number that
    /// iperf3 uses for it. A rate limit is the sender's business: where this end would have to send so (reverse), the
    /// test is refused rather than run at full speed.
    pub fn to_request(&self) -> Result<Request, Refusal> {
        self.check_transport()?;
        Ok(Request {
            direction: self.checked_direction()?,
            streams: self.checked_streams()?,
            duration: self.checked_duration()?,
            omit: Span::from_secs(within(self.omit_seconds, 0..=600, ErrorNumber::OMIT, "seconds to omit")?),
            bytes: self.checked_bytes()?,
            block: self.checked_block()?,
            buffer: self.checked_buffer()?,
            congestion: self.checked_congestion()?,
            mss: self.checked_mss()?,
            writer: Writer::default(),
            interval: Request::default().interval,
        })
    }

    /// Whether the end that sent these understands our extension.
    pub fn speaks_fullpipe(&self) -> bool {
        self.speaks_fullpipe
    }

    /// What a client sends: four bytes of length and JSON, always shorter than the 8 KiB that iperf3 servers accept
    /// since 3.18. Whatever is off or zero is left out, but for the keys that iperf3 always sends.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let some = |value: i64| (value != 0).then_some(value);
        framed(&Sent {
            tcp: true,
            omit: self.omit_seconds,
            time: self.seconds,
            num: self.bytes,
            blockcount: self.blocks,
            mss: some(self.mss),
            parallel: self.streams,
            reverse: (self.heading == Heading::Down).then_some(true),
            window: some(self.buffer),
            len: self.block,
            congestion: self.congestion.as_deref(),
            client_version: concat!("fullpipe ", env!("CARGO_PKG_VERSION")),
            x_fullpipe: self.speaks_fullpipe.then_some(Version { version: EXTENSION_VERSION }),
        })
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

    fn check_transport(&self) -> Result<(), Refusal> {
        match self.transport {
            Transport::Tcp => Ok(()),
            Transport::Udp => Err(refusal(ErrorNumber::UNIMPLEMENTED, "UDP tests are not offered")),
            Transport::Sctp => Err(refusal(ErrorNumber::NO_SCTP, "SCTP tests are not offered")),
        }
    }

    fn checked_direction(&self) -> Result<Direction, Refusal> {
        let unimplemented = |why| Err(refusal(ErrorNumber::UNIMPLEMENTED, why));
        match self.heading {
            Heading::Up => Ok(Direction::Upload),
            Heading::Down if self.paced => unimplemented("sending at a given rate is not offered"),
            Heading::Down => Ok(Direction::Download),
            Heading::Both => unimplemented("tests in both directions at once are not offered"),
        }
    }

    fn checked_streams(&self) -> Result<u16, Refusal> {
        let streams = within(self.streams, 1..=128, ErrorNumber::STREAMS, "parallel streams")?;
        Ok(streams as u16)
    }

    fn checked_duration(&self) -> Result<Span, Refusal> {
        let seconds = within(self.seconds, 0..=whole_seconds(LONGEST_TEST), ErrorNumber::DURATION, "seconds of test")?;
        let limited_otherwise = self.bytes != 0 || self.blocks != 0;
        Ok(if seconds == 0 || limited_otherwise { LONGEST_TEST } else { Span::from_secs(seconds) })
    }

    fn checked_bytes(&self) -> Result<Option<ByteCount>, Refusal> {
        let bytes = if self.bytes == 0 { self.blocks.saturating_mul(self.block) } else { self.bytes };
        let bytes = within(bytes, 0..=MOST_BYTES, ErrorNumber::END_CONDITIONS, "bytes of test")?;
        Ok((bytes != 0).then_some(ByteCount::new(bytes)))
    }

    fn checked_block(&self) -> Result<ByteCount, Refusal> {
        within(self.block, 1..=1024 * 1024, ErrorNumber::BLOCK_SIZE, "bytes of one block").map(ByteCount::new)
    }

    fn checked_buffer(&self) -> Result<Buffer, Refusal> {
        let buffer = within(self.buffer, 0..=512 * 1024 * 1024, ErrorNumber::BUFFER_SIZE, "bytes of socket buffer")?;
        Ok(if buffer == 0 { Buffer::Automatic } else { Buffer::Request(ByteCount::new(buffer)) })
    }

    fn checked_mss(&self) -> Result<Option<ByteCount>, Refusal> {
        let mss = within(self.mss, 0..=32_767, ErrorNumber::MSS, "bytes of segment")?;
        Ok((mss != 0).then_some(ByteCount::new(mss)))
    }

    /// A name goes into a socket option, records and error texts, so it must look like one.
    fn checked_congestion(&self) -> Result<Option<String>, Refusal> {
        match self.congestion.as_deref() {
            None | Some("") => Ok(None),
            Some(name) if name.len() <= LONGEST_CONGESTION_NAME && name.bytes().all(|b| b.is_ascii_graphic()) => {
                Ok(Some(name.to_owned()))
            }
            Some(_) => Err(refusal(ErrorNumber::CONGESTION, "the name of the congestion control is not one")),
        }
    }
}

/// Keys in iperf3's order.
#[derive(Serialize)]
struct Sent<'a> {
    tcp: bool,
    omit: i64,
    time: i64,
    num: i64,
    blockcount: i64,
    #[serde(rename = "MSS", skip_serializing_if = "Option::is_none")]
    mss: Option<i64>,
    parallel: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    reverse: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    window: Option<i64>,
    len: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    congestion: Option<&'a str>,
    client_version: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    x_fullpipe: Option<Version>,
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
    parallel: Whole,
    reverse: Flag,
    bidirectional: Flag,
    window: Whole,
    len: Whole,
    bandwidth: Number,
    fqrate: Number,
    congestion: Text,
    x_fullpipe: Extension,
}

#[derive(Serialize, Deserialize)]
struct Version {
    version: u32,
}

impl From<Received> for Parameters {
    fn from(received: Received) -> Self {
        let transport = match (received.udp.0, received.sctp.0) {
            (true, _) => Transport::Udp,
            (_, true) => Transport::Sctp,
            _ => Transport::Tcp,
        };
        let heading = match (received.bidirectional.0, received.reverse.0) {
            (true, _) => Heading::Both,
            (_, true) => Heading::Down,
            _ => Heading::Up,
        };
        let given = |value: Whole| value.0.unwrap_or(0);
        let rate = |value: Number| value.0.is_some_and(|rate| rate > 0.0);
        Self {
            transport,
            omit_seconds: given(received.omit),
            seconds: given(received.time),
            bytes: given(received.num),
            blocks: given(received.blockcount),
            mss: given(received.mss),
            streams: received.parallel.0.unwrap_or(1),
            heading,
            buffer: given(received.window),
            block: received.len.0.unwrap_or(DEFAULT_BLOCK),
            paced: rate(received.bandwidth) || rate(received.fqrate),
            congestion: received.congestion.0,
            // Later versions will add to this one.
            speaks_fullpipe: received.x_fullpipe.read::<Version>().is_some_and(|x| x.version >= EXTENSION_VERSION),
        }
    }
}

fn refusal(number: ErrorNumber, why: &str) -> Refusal {
    Refusal { number, why: why.to_owned() }
}

fn within(value: i64, range: std::ops::RangeInclusive<i64>, number: ErrorNumber, what: &str) -> Result<u64, Refusal> {
    if range.contains(&value) {
        Ok(value.unsigned_abs())
    } else {
        Err(Refusal {
            number,
            why: format!("{value} {what} asked for; {} to {} are possible", range.start(), range.end()),
        })
    }
}

fn whole_seconds(span: Span) -> i64 {
    number(span.as_nanos().div_ceil(1_000_000_000))
}

/// What does not fit is refused by the range check that follows.
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
                r#"","x_fullpipe":{"version":1}}"#
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
        assert_eq!((by_bytes.bytes, by_bytes.duration), (Some(ByteCount::from_mib(1)), LONGEST_TEST));
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
        assert_eq!((request.bytes, request.duration), (Some(ByteCount::new(10_000)), LONGEST_TEST));
        // 3.11 without num and blockcount.
        let request = accepted(r#"{"tcp":true,"omit":0,"time":10,"parallel":1,"len":131072,"client_version":"3.11"}"#);
        assert_eq!(request, Request::default());
        // Bytes go before time.
        assert_eq!(accepted(r#"{"tcp":true,"num":5,"time":1}"#).duration, LONGEST_TEST);
        // -t 0: no limit at all.
        assert_eq!(accepted(r#"{"tcp":true}"#).duration, LONGEST_TEST);
    }

    #[test]
    fn new_keys_and_wrong_types_are_ignored() {
        let request = accepted(concat!(
            r#"{"tcp":1,"udp":1,"reverse":1,"time":"5","parallel":null,"len":[1],"window":{"a":2},"congestion":7,"#,
            r#""mptcp":true,"skip_rx_copy":1,"gso":1,"x_other":{"deep":[[]]},"time2":9}"#
        ));
        assert_eq!(request, Request { duration: LONGEST_TEST, ..Request::default() });
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
            (r#"{"udp":true}"#, 13),
            (r#"{"sctp":true}"#, 18),
            (r#"{"tcp":true,"bidirectional":true}"#, 13),
            (r#"{"tcp":true,"reverse":true,"bandwidth":10000000}"#, 13),
            (r#"{"tcp":true,"reverse":true,"fqrate":1}"#, 13),
        ] {
            assert_eq!(refused(json), number, "{json}");
        }
        assert_eq!(accepted(r#"{"tcp":true,"bandwidth":10000000}"#).direction, Direction::Upload);
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
        ] {
            assert_eq!(Parameters::from_request(&request).unwrap_err().number.get(), number, "{request:?}");
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

    prop_compose! {
        fn any_request()(
            download in any::<bool>(),
            streams in 1_u16..=128,
            seconds in 1_u64..=86_400,
            omit in 0_u64..=600,
            block in 1_u64..=1 << 20,
            buffer in prop::option::of(1_u64..=512 << 20),
            mss in prop::option::of(1_u64..=32_767),
            congestion in prop::option::of("[!-~]{1,15}"),
        ) -> Request {
            Request {
                direction: if download { Direction::Download } else { Direction::Upload },
                streams,
                duration: Span::from_secs(seconds),
                omit: Span::from_secs(omit),
                block: ByteCount::new(block),
                buffer: buffer.map_or(Buffer::Automatic, |size| Buffer::Request(ByteCount::new(size))),
                mss: mss.map(ByteCount::new),
                congestion,
                ..Request::default()
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
        fn any_numbers_are_a_request_or_a_refusal(numbers in prop::array::uniform8(any::<i64>())) {
            let keys = ["omit", "time", "num", "blockcount", "MSS", "parallel", "window", "len"];
            let members: Vec<String> = keys.iter().zip(numbers).map(|(key, n)| format!("\"{key}\":{n}")).collect();
            let parameters = Parameters::decode(format!("{{{}}}", members.join(",")).as_bytes()).unwrap();
            let _ = parameters.to_request();
        }
    }
}
