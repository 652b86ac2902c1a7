mod checked;

use fullpipe_record::{Buffer, Direction, HostSettings, Request, Transport};
use fullpipe_units::{ByteCount, Span};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};

use crate::inbox::{PREFIX, frame_json};
use crate::json::{self, Extension, Flag, Text, Whole};
use crate::{ErrorNumber, JsonMessage, SealedTicket, TestError, TestRefusal};

/// The parameters that a client asks for, as they go over the wire: the keys of iperf3's JSON, in
/// its order and of the types that it wants since 3.18.
///
/// Only what this program acts on is read; iperf3's other keys (flow label, …) are ignored. The
/// numbers are the peer's until [`TestParameters::to_request`] has judged them. A key without a
/// value is not sent; neither is `false`, which would be on for iperf3 up to 3.17.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TestParameters {
    #[serde(skip_serializing_if = "is_default")]
    tcp: Flag,
    #[serde(skip_serializing_if = "is_default")]
    udp: Flag,
    #[serde(skip_serializing_if = "is_default")]
    sctp: Flag,
    omit: Whole,
    time: Whole,
    num: Whole,
    blockcount: Whole,
    #[serde(rename = "MSS", skip_serializing_if = "is_default")]
    mss: Whole,
    #[serde(skip_serializing_if = "is_default")]
    nodelay: Flag,
    parallel: Whole,
    #[serde(skip_serializing_if = "is_default")]
    reverse: Flag,
    #[serde(skip_serializing_if = "is_default")]
    bidirectional: Flag,
    #[serde(skip_serializing_if = "is_default")]
    mptcp: Flag,
    #[serde(skip_serializing_if = "is_default")]
    window: Whole,
    len: Whole,
    #[serde(skip_serializing_if = "is_default")]
    bandwidth: Whole,
    #[serde(skip_serializing_if = "is_default")]
    fqrate: Whole,
    #[serde(skip_serializing_if = "is_default")]
    pacing_timer: Whole,
    #[serde(skip_serializing_if = "is_default")]
    burst: Whole,
    #[serde(rename = "TOS", skip_serializing_if = "is_default")]
    tos: Whole,
    #[serde(skip_serializing_if = "is_default")]
    title: Text,
    #[serde(skip_serializing_if = "is_default")]
    extra_data: Text,
    #[serde(skip_serializing_if = "is_default")]
    congestion: Text,
    /// Processor of the server.
    #[serde(skip_serializing_if = "is_default")]
    server_affinity: Whole,
    #[serde(skip_serializing_if = "is_default")]
    get_server_output: Whole,
    #[serde(skip_serializing_if = "is_default")]
    udp_counters_64bit: Whole,
    #[serde(skip_serializing_if = "is_default")]
    zerocopy: Whole,
    #[serde(skip_serializing_if = "is_default")]
    dont_fragment: Whole,
    #[serde(skip_serializing_if = "is_default")]
    skip_rx_copy: Whole,
    #[serde(skip_serializing_if = "is_default")]
    gso: Whole,
    #[serde(skip_serializing_if = "is_default")]
    gso_dg_size: Whole,
    #[serde(skip_serializing_if = "is_default")]
    gso_bf_size: Whole,
    #[serde(skip_serializing_if = "is_default")]
    gro: Whole,
    #[serde(skip_serializing_if = "is_default")]
    gro_bf_size: Whole,
    #[serde(skip_serializing_if = "is_default")]
    authtoken: Text,
    #[serde(skip_serializing_if = "is_default")]
    client_version: Text,
    #[serde(
        skip_serializing_if = "is_default",
        deserialize_with = "if_well_formed"
    )]
    x_fullpipe: Option<FullpipeExtension>,
}

/// What two fullpipes say to each other. Later versions add to this one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct FullpipeExtension {
    version: u32,
    #[serde(
        default,
        skip_serializing_if = "is_default",
        deserialize_with = "if_well_formed"
    )]
    settings: Option<HostSettings>,
    /// The client's request, for what iperf3 has no key for.
    #[serde(
        default,
        skip_serializing_if = "is_default",
        deserialize_with = "if_well_formed"
    )]
    request: Option<Box<Request>>,
    /// The text of the client's ticket.
    #[serde(
        default,
        skip_serializing_if = "is_default",
        deserialize_with = "if_well_formed"
    )]
    ticket: Option<String>,
}

/// Version of our extension.
const EXTENSION_VERSION: u32 = 3;

/// The first version of our extension, without proofs that are bound to a nonce.
const FIRST_VERSION: u32 = 1;

/// The first version whose clients prove that they have a key.
const PROVING_VERSION: u32 = 2;

/// Payload of a datagram where the client names none: what iperf3 takes where it cannot see the
/// path's MTU.
const USUAL_DATAGRAM: i64 = 1460;

/// Value of `zerocopy` that asks a fullpipe server for `MSG_ZEROCOPY`. To iperf3 every value but
/// zero means `sendfile`, the nearest that it has.
const ZERO_COPY: i64 = 2;

/// Interval at which iperf3 checks whether a rate permits the next block, in microseconds; its
/// default, and so ours for it.
const PACING_TIMER: i64 = 1000;

/// Block size of a TCP test where the client names none.
const USUAL_BLOCK: i64 = 128 * 1024;

/// The largest UDP payload over IPv4.
const MAX_DATAGRAM: i64 = 65_507;

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
        let is_udp = request.transport == Transport::Udp;
        let block = match (is_udp, request.block) {
            (false, ByteCount::ZERO) => USUAL_BLOCK,
            (_, block) => to_saturated_i64(block.get()),
        };
        let parameters = Self {
            tcp: Flag(!is_udp),
            udp: Flag(is_udp),
            omit: Whole(Some(whole_seconds(request.omit))),
            time: Whole(Some(seconds)),
            num: Whole(Some(bytes)),
            blockcount: Whole(Some(0)),
            mss: Whole::if_any(request.mss.map_or(0, |mss| to_saturated_i64(mss.get()))),
            nodelay: Flag(request.no_delay),
            parallel: Whole(Some(request.streams.into())),
            reverse: Flag(request.direction == Direction::Download),
            bidirectional: Flag(request.direction == Direction::Both),
            mptcp: Flag(request.multipath),
            window: Whole::if_any(buffer_size(request.buffer)?),
            len: Whole(Some(block)),
            bandwidth: Whole::if_any(rate),
            fqrate: Whole::if_any(pacing),
            pacing_timer: Whole::if_any(if rate == 0 { 0 } else { PACING_TIMER }),
            burst: Whole::if_any(request.burst.map_or(0, i64::from)),
            tos: Whole::if_any(request.tos.into()),
            title: Text(request.title.clone()),
            extra_data: Text(request.extra_data.clone()),
            congestion: Text(request.congestion.clone().filter(|name| !name.is_empty())),
            server_affinity: Whole(request.far_processor.map(i64::from)),
            udp_counters_64bit: Whole::if_any(request.wide_counters.into()),
            zerocopy: Whole::if_any(if request.zero_copy {
                ZERO_COPY
            } else {
                request.sendfile.into()
            }),
            dont_fragment: Whole::if_any(request.dont_fragment.into()),
            skip_rx_copy: Whole::if_any(request.discard.into()),
            client_version: Text(Some(
                concat!("fullpipe ", env!("CARGO_PKG_VERSION")).to_owned(),
            )),
            x_fullpipe: Some(FullpipeExtension {
                version: EXTENSION_VERSION,
                settings: None,
                request: None,
                ticket: None,
            }),
            ..Self::default()
        };
        let parameters = if request.offload && is_udp {
            parameters.with_offload(block)
        } else {
            parameters
        };
        parameters.to_request()?;
        parameters.if_it_fits()
    }

    /// As iperf3 3.21 has it: as many whole datagrams at once as one of the largest size holds.
    fn with_offload(self, datagram: i64) -> Self {
        let joined = MAX_DATAGRAM / datagram.max(1) * datagram;
        Self {
            gso: Whole(Some(1)),
            gso_dg_size: Whole(Some(datagram)),
            gso_bf_size: Whole(Some(joined)),
            gro: Whole(Some(1)),
            gro_bf_size: Whole(Some(MAX_DATAGRAM)),
            ..self
        }
    }

    /// Returns these parameters, with a request for the server's output about the test.
    #[must_use]
    pub fn with_server_output(self) -> Self {
        Self {
            get_server_output: Whole(Some(1)),
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
            authtoken: Text(Some(token)),
            ..self
        }
        .if_it_fits()
    }

    /// Adds the text of `ticket`, for a server that serves only clients that have one. Its key is
    /// for [`crate::ClientSession::with_key`].
    ///
    /// # Errors
    ///
    /// Refuses a ticket that makes the message longer than servers accept.
    pub fn with_ticket(mut self, ticket: &SealedTicket) -> Result<Self, TestRefusal> {
        if let Some(extension) = &mut self.x_fullpipe {
            extension.ticket = Some(ticket.text().to_owned());
        }
        self.if_it_fits()
    }

    /// Adds the settings of the client's host, for a server that is fullpipe. They are left out if
    /// they make the message longer than servers accept.
    #[must_use]
    pub fn with_settings(self, settings: HostSettings) -> Self {
        self.extended_if_it_fits(|extension| extension.settings = Some(settings))
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
        self.extended_if_it_fits(|extension| extension.request = Some(Box::new(request)))
    }

    fn extended_if_it_fits(self, extend: impl FnOnce(&mut FullpipeExtension)) -> Self {
        let mut extended = self.clone();
        extended.x_fullpipe.as_mut().map(extend);
        if extended.json_length() <= MAX_PARAMETERS {
            extended
        } else {
            self
        }
    }

    /// Returns true if the end that sent these understands our extension.
    pub fn speaks_fullpipe(&self) -> bool {
        self.extension_version() >= FIRST_VERSION
    }

    /// Returns true if the client wants the server's output with the results.
    pub fn wants_server_output(&self) -> bool {
        self.get_server_output.is_set()
    }

    /// The token by which the client says who its user is; never judged here.
    pub fn auth_token(&self) -> Option<&str> {
        self.authtoken.0.as_deref()
    }

    /// Returns the text of the client's ticket; never judged here.
    pub fn ticket_text(&self) -> Option<&str> {
        self.x_fullpipe.as_ref()?.ticket.as_deref()
    }

    /// Returns true if the client can prove that it has a key: it is fullpipe, of version 2 or
    /// later.
    pub fn proves_keys(&self) -> bool {
        self.extension_version() >= PROVING_VERSION
    }

    /// Returns true if the client sends the cookie of its test with the hello of each UDP stream:
    /// it is fullpipe, of version 3 or later.
    pub fn sends_cookies(&self) -> bool {
        self.extension_version() >= EXTENSION_VERSION
    }

    /// The settings of the client's host, where it sent them.
    pub fn host_settings(&self) -> Option<&HostSettings> {
        self.x_fullpipe.as_ref()?.settings.as_ref()
    }

    /// Returns the message of a client: four bytes of length and JSON, never longer than the 8 KiB
    /// that iperf3 servers accept since 3.18. Whatever is off or zero is left out, but for the keys
    /// that iperf3 always sends.
    pub(crate) fn encode_message(&self) -> Vec<u8> {
        frame_json(self)
    }

    /// Reads a client's JSON, without its length. A key that is missing or of the wrong type has
    /// its default, unknown keys are ignored.
    ///
    /// # Errors
    ///
    /// [`TestError::Malformed`] for what is not a JSON object.
    pub fn decode_json(json: &[u8]) -> Result<Self, TestError> {
        json::parse_object(json).map_err(|why| TestError::Malformed {
            message: JsonMessage::Parameters,
            why,
        })
    }

    fn extension_version(&self) -> u32 {
        let extension = self.x_fullpipe.as_ref();
        extension.map_or(0, |extension| extension.version)
    }

    fn if_it_fits(self) -> Result<Self, TestRefusal> {
        let length = self.json_length();
        if length > MAX_PARAMETERS {
            return Err(TestRefusal {
                number: ErrorNumber::SEND_PARAMETERS,
                why: format!(
                    "title, extra data, token and ticket make a message of {length} bytes; servers accept 8192"
                ),
            });
        }
        Ok(self)
    }

    /// Bytes of its JSON.
    fn json_length(&self) -> usize {
        self.encode_message().len() - PREFIX
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

/// What was not asked for is not sent.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Reads our extension apart, so that a malformed one spoils nothing else.
fn if_well_formed<'de, D: Deserializer<'de>, T: DeserializeOwned>(
    from: D,
) -> Result<Option<T>, D::Error> {
    Ok(Extension::deserialize(from)?.parse_value())
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
