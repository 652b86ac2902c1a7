//! The keys of iperf3's JSON for the parameters of a test, as they are sent and read.

use fullpipe_record::{HostSettings, Request};
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};

use super::{DataHeading, MAX_DATAGRAM, TestParameters, TransportProtocol, USUAL_BLOCK};
use crate::json::{Extension, Flag, Text, Whole};

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

/// Parameters as a client sends them, keys in iperf3's order and of the types that it wants since
/// 3.18.
pub(super) struct SentParameters<'p>(pub(super) &'p TestParameters);

impl Serialize for SentParameters<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Self(asked) = self;
        let mut keys = JsonKeys(to.serialize_map(None)?);
        keys.put_flag(asked.carrier.key_name(), true)?;
        keys.put_entry("omit", asked.omit_seconds)?;
        keys.put_entry("time", asked.seconds)?;
        keys.put_entry("num", asked.bytes)?;
        keys.put_entry("blockcount", asked.blocks)?;
        keys.put_number("MSS", asked.mss)?;
        keys.put_flag("nodelay", asked.no_delay)?;
        keys.put_entry("parallel", asked.streams)?;
        keys.put_flag("reverse", asked.heading == DataHeading::Down)?;
        keys.put_flag("bidirectional", asked.heading == DataHeading::Both)?;
        keys.put_flag("mptcp", asked.multipath)?;
        keys.put_number("window", asked.buffer)?;
        keys.put_entry("len", asked.block)?;
        keys.put_number("bandwidth", asked.rate)?;
        keys.put_number("fqrate", asked.pacing)?;
        keys.put_number(
            "pacing_timer",
            if asked.rate == 0 { 0 } else { PACING_TIMER },
        )?;
        keys.put_number("burst", asked.burst)?;
        keys.put_number("TOS", asked.tos)?;
        keys.put_text("title", asked.title.as_deref())?;
        keys.put_text("extra_data", asked.extra_data.as_deref())?;
        keys.put_text("congestion", asked.congestion.as_deref())?;
        asked
            .processor
            .map_or(Ok(()), |number| keys.put_entry("server_affinity", number))?;
        keys.put_number("get_server_output", asked.server_output.into())?;
        keys.put_number("udp_counters_64bit", asked.wide_counters.into())?;
        keys.put_number(
            "zerocopy",
            if asked.zero_copy {
                ZERO_COPY
            } else {
                asked.sendfile.into()
            },
        )?;
        keys.put_number("dont_fragment", asked.dont_fragment.into())?;
        keys.put_number("skip_rx_copy", asked.discard.into())?;
        if asked.offload && asked.carrier == TransportProtocol::Udp {
            keys.put_offload(asked.block)?;
        }
        keys.put_text("authtoken", asked.auth_token.as_deref())?;
        keys.put_entry(
            "client_version",
            concat!("fullpipe ", env!("CARGO_PKG_VERSION")),
        )?;
        if asked.speaks_fullpipe {
            keys.put_entry("x_fullpipe", Announced::from_parameters(asked))?;
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
    fn from_parameters(asked: &'p TestParameters) -> Self {
        Self {
            version: EXTENSION_VERSION,
            settings: asked.settings.as_ref(),
            request: asked.request.as_deref(),
        }
    }
}

impl TransportProtocol {
    fn key_name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Sctp => "sctp",
        }
    }
}

/// The members of a JSON object.
struct JsonKeys<M>(M);

impl<M: SerializeMap> JsonKeys<M> {
    fn put_entry(&mut self, key: &str, value: impl Serialize) -> Result<(), M::Error> {
        self.0.serialize_entry(key, &value)
    }

    /// Writes `true` if it is on; otherwise nothing, as `false` would be on for iperf3 up to 3.17.
    fn put_flag(&mut self, key: &str, on: bool) -> Result<(), M::Error> {
        if on {
            self.put_entry(key, true)
        } else {
            Ok(())
        }
    }

    fn put_number(&mut self, key: &str, value: i64) -> Result<(), M::Error> {
        if value == 0 {
            Ok(())
        } else {
            self.put_entry(key, value)
        }
    }

    fn put_text(&mut self, key: &str, value: Option<&str>) -> Result<(), M::Error> {
        value.map_or(Ok(()), |text| self.put_entry(key, text))
    }

    /// As iperf3 3.21 has it: as many whole datagrams at once as one of the largest size holds.
    fn put_offload(&mut self, datagram: i64) -> Result<(), M::Error> {
        self.put_entry("gso", 1)?;
        self.put_entry("gso_dg_size", datagram)?;
        self.put_entry("gso_bf_size", MAX_DATAGRAM / datagram.max(1) * datagram)?;
        self.put_entry("gro", 1)?;
        self.put_entry("gro_bf_size", MAX_DATAGRAM)
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Received {
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

/// The value of the key `x_fullpipe` as it was received.
#[derive(Deserialize)]
struct Announcement {
    version: u32,
    #[serde(default)]
    settings: Extension,
    #[serde(default)]
    request: Extension,
}

impl From<Received> for TestParameters {
    fn from(received: Received) -> Self {
        let extension = received.x_fullpipe.parse_value::<Announcement>();
        let carrier = match (received.udp.0, received.sctp.0) {
            (true, _) => TransportProtocol::Udp,
            (_, true) => TransportProtocol::Sctp,
            _ => TransportProtocol::Tcp,
        };
        let heading = match (received.bidirectional.0, received.reverse.0) {
            (true, _) => DataHeading::Both,
            (_, true) => DataHeading::Down,
            _ => DataHeading::Up,
        };
        let usual_block = if carrier == TransportProtocol::Udp {
            USUAL_DATAGRAM
        } else {
            USUAL_BLOCK
        };
        let version = extension.as_ref().map_or(0, |extension| extension.version);
        Self {
            carrier,
            omit_seconds: received.omit.or_zero(),
            seconds: received.time.or_zero(),
            bytes: received.num.or_zero(),
            blocks: received.blockcount.or_zero(),
            mss: received.mss.or_zero(),
            no_delay: received.nodelay.0,
            streams: received.parallel.0.unwrap_or(1),
            heading,
            multipath: received.mptcp.0,
            buffer: received.window.or_zero(),
            block: received.len.0.unwrap_or(usual_block),
            rate: received.bandwidth.or_zero(),
            pacing: received.fqrate.or_zero(),
            burst: received.burst.or_zero(),
            tos: received.tos.or_zero(),
            title: received.title.0,
            extra_data: received.extra_data.0,
            congestion: received.congestion.0,
            processor: received.server_affinity.0,
            server_output: received.get_server_output.is_set(),
            wide_counters: received.udp_counters_64bit.is_set(),
            dont_fragment: received.dont_fragment.is_set(),
            sendfile: received.zerocopy.is_set() && received.zerocopy.or_zero() != ZERO_COPY,
            zero_copy: received.zerocopy.or_zero() == ZERO_COPY,
            discard: received.skip_rx_copy.is_set(),
            offload: received.gso.is_set() || received.gro.is_set(),
            auth_token: received.authtoken.0,
            // Later versions add to this one.
            speaks_fullpipe: version >= FIRST_VERSION,
            proves_keys: version >= PROVING_VERSION,
            sends_cookies: version >= EXTENSION_VERSION,
            request: extension
                .as_ref()
                .and_then(|extension| extension.request.parse_value())
                .map(Box::new),
            settings: extension.and_then(|extension| extension.settings.parse_value()),
        }
    }
}
