//! The flags that say what is sent, and how the far end is reached; shared with iperf3 where it has them.

use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

use fullpipe_control::{Login, Padding, RsaPublicKey, TlsTrust};
use fullpipe_iperf::{DEFAULT_PORT, Key, iperf2};
use fullpipe_probe::{Destination, Local};
use fullpipe_record::{Buffer, Direction, IpVersion, Request, Transport, Writer};
use fullpipe_units::{BitRate, ByteCount, Span};

use super::login::login;
use crate::cli::{duration, key, rsa_public_key, tls_trust};
use crate::failure::{Failure, USAGE};

/// What a UDP sender offers if nothing else is asked for, as iperf3.
const DEFAULT_UDP_RATE: BitRate = BitRate::from_mbps(1);

/// The load.
#[derive(Debug, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub(crate) struct Load {
    /// How long to send [default: 10; 2 with --ramp]
    #[arg(long, short, value_parser = duration, value_name = "SECONDS")]
    time: Option<Span>,
    /// Send so many bytes instead
    #[arg(long, short = 'n', value_name = "BYTES", conflicts_with = "time")]
    bytes: Option<ByteCount>,
    /// Send so many blocks of --length instead
    #[arg(long, short = 'k', value_name = "N", conflicts_with_all = ["time", "bytes"])]
    blocks: Option<u64>,
    /// Leave out the beginning
    #[arg(long, short = 'O', default_value = "0", value_parser = duration, value_name = "SECONDS")]
    omit: Span,
    /// Length of the reported intervals; 0 reports the whole only
    #[arg(long, short, default_value = "1", value_parser = duration, value_name = "SECONDS")]
    interval: Span,
    /// Parallel streams, in each direction
    #[arg(long, short = 'P', default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=128), value_name = "N")]
    parallel: u16,
    /// The server sends, this end receives
    #[arg(long, short = 'R')]
    reverse: bool,
    /// Both ends send at the same time
    #[arg(long, conflicts_with = "reverse")]
    bidir: bool,
    /// Numbered datagrams in place of TCP: 1 Mbit/s a stream unless --bitrate says otherwise
    #[arg(long, short)]
    udp: bool,
    /// Rate that each stream is offered at; 0 is as fast as it goes. /N sends N blocks in a row
    #[arg(long, short, value_name = "RATE[/N]")]
    bitrate: Option<Offer>,
    /// Rate at which the kernel paces each stream
    #[arg(long, value_name = "RATE")]
    fq_rate: Option<BitRate>,
    /// Socket buffers to request at both ends; the kernel doubles them and advertises a share
    #[arg(long = "buffer", short = 'w', value_name = "BYTES")]
    buffer: Option<ByteCount>,
    /// Window that the receiver should advertise; the buffers are chosen to yield it
    #[arg(long, value_name = "BYTES", conflicts_with_all = ["buffer", "udp"])]
    window: Option<ByteCount>,
    /// Bytes of one write, or of one datagram [default: 1M or, at a rate, what it sends in a millisecond, without delay;
    /// with --udp what a packet holds]
    #[arg(long, short, value_name = "BYTES")]
    length: Option<ByteCount>,
    /// Congestion control: cubic, reno, bbr, …
    #[arg(long, short = 'C', value_name = "NAME")]
    congestion: Option<String>,
    /// Largest segment
    #[arg(long, short = 'M', value_name = "BYTES")]
    mss: Option<ByteCount>,
    /// Send small writes at once (`TCP_NODELAY`)
    #[arg(long, short = 'N')]
    no_delay: bool,
    /// Type of service: a number, decimal or 0x…
    #[arg(long, short = 'S', value_parser = type_of_service, value_name = "N")]
    tos: Option<u8>,
    /// The same by its DSCP name or number: ef, af41, cs1, 46, …
    #[arg(long, value_parser = dscp, value_name = "NAME", conflicts_with = "tos")]
    dscp: Option<u8>,
    /// Multipath TCP
    #[arg(long, short = 'm', conflicts_with = "udp")]
    mptcp: bool,
    /// Send pages of a file, without copying (`sendfile`)
    #[arg(long, short = 'Z', conflicts_with = "udp")]
    zerocopy: bool,
    /// Send data from where it lies, without copying (`MSG_ZEROCOPY`): for fast network cards
    #[arg(long, conflicts_with_all = ["udp", "zerocopy"])]
    msg_zerocopy: bool,
    /// The receiver copies what arrives, as programs that use it must; by default it discards in the kernel (`MSG_TRUNC`)
    #[arg(long, conflicts_with = "udp")]
    rx_copy: bool,
    /// The receiver discards in the kernel: the default, and iperf3's name for it
    #[arg(long, conflicts_with_all = ["udp", "rx_copy"], hide = true)]
    skip_rx_copy: bool,
    /// Hand the kernel datagrams one by one, and take them so: by default it cuts and joins them (`UDP_SEGMENT`,
    /// `UDP_GRO`)
    #[arg(long, requires = "udp")]
    no_gso: bool,
    /// Have the kernel cut and join datagrams: the default, and iperf3's name for it
    #[arg(long, requires = "udp", conflicts_with = "no_gso", hide = true)]
    gsro: bool,
    /// Number datagrams in 64 bits, for more than 4 billion of them
    #[arg(long, requires = "udp")]
    udp_counters_64bit: bool,
    /// Forbid routers to fragment datagrams
    #[arg(long, requires = "udp")]
    dont_fragment: bool,
    /// Processors to run the data threads on: at this end, and at the other. At this end `nic` is those of the NUMA node of
    /// the network card, if the machine has more
    #[arg(long, short = 'A', value_name = "N|nic[,M]")]
    affinity: Option<Affinity>,
    /// Sleep in a blocked write, as ordinary programs do, instead of keeping the send buffer full
    #[arg(long, conflicts_with_all = ["reverse", "bidir", "udp"])]
    blocking: bool,
    /// A word before each line
    #[arg(long, short = 'T', value_name = "TEXT")]
    title: Option<String>,
    /// A text to keep with the result
    #[arg(long, value_name = "TEXT")]
    extra_data: Option<String>,
    /// The whole load as JSON of `record::Request`, in place of the flags above; for a lab, which hands it over so
    #[arg(long, hide = true, value_parser = whole_request, value_name = "JSON")]
    request: Option<Box<Request>>,
}

/// The far end, and the way to it.
#[derive(Debug, clap::Args)]
pub(crate) struct Reach {
    /// Host that runs `fullpipe serve` or `iperf3 -s`, or HOST:PORT; then an IPv6 address is in brackets
    host: Server,
    #[command(flatten)]
    way: Way,
}

/// The way to the far end, whichever that is.
#[derive(Debug, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub(crate) struct Way {
    /// Port of the server [default: 5201, or 5001 with --iperf2]
    #[arg(long, short)]
    port: Option<u16>,
    /// The server is iperf2's (`iperf -s`); uploads only
    #[arg(long, conflicts_with_all = ["reverse", "bidir", "get_server_output", "username"])]
    iperf2: bool,
    /// IPv4 only
    #[arg(short = '4', long, conflicts_with = "ipv6")]
    ipv4: bool,
    /// IPv6 only
    #[arg(short = '6', long)]
    ipv6: bool,
    /// Address of this end
    #[arg(long, short = 'B', value_name = "ADDRESS")]
    bind: Option<IpAddr>,
    /// Network device of this end
    #[arg(long, value_name = "DEVICE")]
    bind_dev: Option<String>,
    /// Port of this end's data connections: the first; further streams count up
    #[arg(long, value_name = "PORT")]
    cport: Option<u16>,
    /// How long a connection may take to be made [default: 5]
    #[arg(long, value_parser = milliseconds, value_name = "MILLISECONDS")]
    connect_timeout: Option<Span>,
    /// Give up when no data arrives for so long, where the server sends [default: 120000]
    #[arg(long, value_parser = milliseconds, value_name = "MILLISECONDS")]
    rcv_timeout: Option<Span>,
    /// Send this file, once and whole, instead of made-up data; with --reverse, write what arrives to it, which must be new
    #[arg(long, value_name = "FILE", conflicts_with_all = ["bidir", "udp", "iperf2", "bytes", "blocks"])]
    file: Option<PathBuf>,
    /// Print what the server printed, too
    #[arg(long)]
    get_server_output: bool,
    /// The key that `serve --key-file` asks for; nothing is encrypted
    #[arg(long, value_parser = key, value_name = "FILE")]
    key_file: Option<Key>,
    /// Encrypt the control connection; FILE holds the certificate of the server, or of who vouches for it, in PEM. The
    /// data is not encrypted
    #[arg(long, value_parser = tls_trust, value_name = "FILE")]
    tls: Option<TlsTrust>,
    #[command(flatten)]
    login: LoginArguments,
}

/// Who the user is, for an iperf3 server that asks.
#[derive(Debug, clap::Args)]
struct LoginArguments {
    /// Name of the user, where the server asks for one; the password is in `IPERF3_PASSWORD`, or is asked for
    #[arg(long, value_name = "NAME", requires = "rsa_public_key_path", help_heading = "Users")]
    username: Option<String>,
    /// The server's public RSA key in PEM; name and password are encrypted with it
    #[arg(long, value_parser = rsa_public_key, value_name = "FILE", requires = "username", help_heading = "Users")]
    rsa_public_key_path: Option<RsaPublicKey>,
    /// Encrypt as iperf3 before 3.17 does (PKCS#1 v1.5), not as later ones (OAEP)
    #[arg(long, requires = "username", help_heading = "Users")]
    use_pkcs1_padding: bool,
}

impl LoginArguments {
    fn login(&self) -> Result<Option<Login>, Failure> {
        let asked = self.username.as_deref().zip(self.rsa_public_key_path.as_ref());
        asked.map(|(user, key)| login(user, key, padding(self.use_pkcs1_padding))).transpose()
    }
}

/// OAEP, unless the older one is asked for.
pub(crate) fn padding(use_pkcs1: bool) -> Padding {
    if use_pkcs1 { Padding::Pkcs1 } else { Padding::Oaep }
}

impl Load {
    /// How long, if somebody said so.
    pub(crate) fn time(&self) -> Option<Span> {
        self.time
    }

    /// How many bytes, if somebody said so.
    pub(crate) fn bytes(&self) -> Option<ByteCount> {
        self.bytes
    }

    /// The request, `usual` long if nobody said how long.
    ///
    /// # Errors
    /// Where the flags together make no test.
    pub(crate) fn request(&self, usual: Span) -> Result<Request, Failure> {
        if let Some(request) = &self.request {
            return Ok(Request::clone(request));
        }
        let buffer = match (self.buffer, self.window) {
            (Some(size), _) => Buffer::Request(size),
            (None, Some(size)) => Buffer::Window(size),
            (None, None) => Buffer::Automatic,
        };
        let direction = match (self.reverse, self.bidir) {
            (_, true) => Direction::Both,
            (true, _) => Direction::Download,
            _ => Direction::Upload,
        };
        let gentle = self.udp.then_some(DEFAULT_UDP_RATE);
        let rate = self.bitrate.map_or(gentle, |offer| Some(offer.rate)).filter(|&rate| rate > BitRate::ZERO);
        // Whoever counts blocks means iperf3's.
        let counted = self.blocks.filter(|_| !self.udp).map(|_| Request::default().block);
        let block = self.length.or(counted).unwrap_or(ByteCount::ZERO);
        Ok(Request {
            transport: if self.udp { Transport::Udp } else { Transport::Tcp },
            direction,
            streams: self.parallel,
            duration: self.time.unwrap_or(usual),
            omit: self.omit,
            bytes: self.bytes_of(block)?,
            block,
            rate,
            burst: self.bitrate.and_then(|offer| offer.burst),
            pacing: self.fq_rate,
            buffer,
            congestion: self.congestion.clone(),
            mss: self.mss,
            no_delay: self.no_delay,
            tos: self.tos.or(self.dscp).unwrap_or(0),
            multipath: self.mptcp,
            sendfile: self.zerocopy,
            zero_copy: self.msg_zerocopy,
            discard: !self.udp && !self.rx_copy,
            rx_copy: self.rx_copy,
            offload: self.udp && !self.no_gso,
            no_gso: self.no_gso,
            wide_counters: self.udp_counters_64bit,
            dont_fragment: self.dont_fragment,
            processor: self.affinity.and_then(|affinity| affinity.here),
            far_processor: self.affinity.and_then(|affinity| affinity.there),
            near_device: self.affinity.is_some_and(|affinity| affinity.here.is_none()),
            writer: if self.blocking { Writer::Blocking } else { Writer::Retrying },
            interval: self.interval,
            title: self.title.clone(),
            extra_data: self.extra_data.clone(),
        })
    }

    fn bytes_of(&self, block: ByteCount) -> Result<Option<ByteCount>, Failure> {
        let Some(blocks) = self.blocks else { return Ok(self.bytes) };
        if block == ByteCount::ZERO {
            return Err(Failure::new(USAGE, "--blocks of datagrams needs --length: how long is one?"));
        }
        Ok(Some(ByteCount::new(block.get().saturating_mul(blocks))))
    }
}

impl Reach {
    /// Whether the far end is known to speak iperf2's protocol.
    pub(crate) fn is_iperf2(&self) -> bool {
        self.way.iperf2
    }

    /// Where to measure to, and from where.
    ///
    /// # Errors
    /// If a user is named who gives no password, or two ports are.
    pub(crate) fn destination(&self) -> Result<Destination, Failure> {
        self.way.destination(&self.host)
    }
}

impl Way {
    /// Whether the far end is known to speak iperf2's protocol.
    pub(crate) fn is_iperf2(&self) -> bool {
        self.iperf2
    }

    fn one_port(&self, host: &Server) -> Result<Option<u16>, Failure> {
        match (host.port, self.port) {
            (Some(one), Some(other)) if one != other => {
                Err(Failure::new(USAGE, format!("port {one} and --port {other} both asked for; which is it?")))
            }
            (one, other) => Ok(one.or(other)),
        }
    }

    /// Where to measure to, and from where.
    ///
    /// # Errors
    /// If a user is named who gives no password, or two ports are.
    pub(crate) fn destination(&self, host: &Server) -> Result<Destination, Failure> {
        let usual = if self.iperf2 { iperf2::DEFAULT_PORT } else { DEFAULT_PORT };
        Ok(Destination {
            host: host.name.clone(),
            port: self.one_port(host)?.unwrap_or(usual),
            family: match (self.ipv4, self.ipv6) {
                (true, _) => Some(IpVersion::V4),
                (_, true) => Some(IpVersion::V6),
                _ => None,
            },
            local: Local { address: self.bind, device: self.bind_dev.clone(), port: self.cport },
            connect_timeout: self.connect_timeout,
            receive_timeout: self.rcv_timeout,
            server_output: self.get_server_output,
            without_echoes: false,
            file: self.file.clone(),
            key: self.key_file.clone(),
            login: self.login.login()?,
            tls: self.tls.clone(),
        })
    }
}

/// A host, and a port where it is named with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Server {
    name: String,
    port: Option<u16>,
}

impl FromStr for Server {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (name, rest) = rest.split_once(']').ok_or("the bracket is not closed")?;
                let port = rest.strip_prefix(':');
                if port.is_none() && !rest.is_empty() {
                    return Err(format!("{rest:?} behind the bracket is no port"));
                }
                (name, port)
            }
            // More than one colon is an IPv6 address without a port.
            None => match text.split_once(':') {
                Some((name, port)) if !port.contains(':') => (name, Some(port)),
                _ => (text, None),
            },
        };
        if name.is_empty() {
            return Err("no host is named".to_owned());
        }
        let number = |text: &str| text.parse().ok().filter(|port| *port > 0).ok_or(format!("{text:?} is no port"));
        Ok(Self { name: name.to_owned(), port: port.map(number).transpose()? })
    }
}

/// A rate, and how many blocks go at once.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Offer {
    rate: BitRate,
    burst: Option<u16>,
}

impl FromStr for Offer {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const MAX_STREAMS: u16 = 1000;
        // The slash of a unit, as in Mbit/s, is followed by a letter.
        let (rate, burst) = match text.rsplit_once('/') {
            Some((rate, burst)) if burst.bytes().all(|byte| byte.is_ascii_digit()) => (rate, Some(burst)),
            _ => (text, None),
        };
        let burst = burst.map(|burst| match burst.parse() {
            Ok(count) if (1..=MAX_STREAMS).contains(&count) => Ok(count),
            _ => Err(format!("{burst} blocks in a row asked for; 1 to {MAX_STREAMS} are possible")),
        });
        let rate = if rate == "0" { BitRate::ZERO } else { rate.parse().map_err(|error| format!("{error}"))? };
        Ok(Self { rate, burst: burst.transpose()? })
    }
}

/// Processors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Affinity {
    /// Those near the network card if not set.
    here: Option<u16>,
    there: Option<u16>,
}

impl FromStr for Affinity {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (here, there) = text.split_once(',').map_or((text, None), |(here, there)| (here, Some(there)));
        let number = |text: &str| text.parse().map_err(|_| format!("{text:?} is no processor's number"));
        let here = if here == "nic" { None } else { Some(number(here)?) };
        Ok(Self { here, there: there.map(number).transpose()? })
    }
}

/// As iperf3 takes it: milliseconds without a unit, or with any unit.
fn milliseconds(text: &str) -> Result<Span, String> {
    let with_unit = if text.parse::<f64>().is_ok() { format!("{text}ms") } else { text.to_owned() };
    with_unit.parse().map_err(|error: fullpipe_units::ParseError| error.to_string())
}

fn whole_request(json: &str) -> Result<Box<Request>, String> {
    serde_json::from_str(json).map_err(|error| error.to_string())
}

fn type_of_service(text: &str) -> Result<u8, String> {
    let number = match text.strip_prefix("0x").or(text.strip_prefix("0X")) {
        Some(digits) => u8::from_str_radix(digits, 16),
        None => text.parse(),
    };
    number.map_err(|_| format!("{text} is no type of service: 0 to 255, or 0x00 to 0xff"))
}

/// The whole byte that a DSCP makes, its ECN bits zero. Names: RFC 2474 (CS), 2597 (AF), 3246 (EF), 5865 (VA), 8622 (LE).
fn dscp(text: &str) -> Result<u8, String> {
    let name = text.to_ascii_lowercase();
    let code = match (name.as_str(), name.strip_prefix("cs"), name.strip_prefix("af")) {
        ("ef", ..) => Some(46),
        ("va", ..) => Some(44),
        ("le", ..) => Some(1),
        (_, Some(class), _) => class.parse::<u8>().ok().filter(|class| *class < 8).map(|class| class * 8),
        (_, _, Some(class)) => class.parse::<u8>().ok().and_then(assured_forwarding),
        _ => number_of(&name).filter(|code| *code < 64),
    };
    code.map(|code| code << 2).ok_or_else(|| format!("{text} is no DSCP: 0 to 63, or ef, va, le, cs0–cs7, af11–af43"))
}

fn number_of(text: &str) -> Option<u8> {
    match text.strip_prefix("0x") {
        Some(digits) => u8::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// `afXY`: class X of 1 to 4, drop precedence Y of 1 to 3.
fn assured_forwarding(digits: u8) -> Option<u8> {
    let (class, precedence) = (digits / 10, digits % 10);
    ((1..=4).contains(&class) && (1..=3).contains(&precedence)).then_some(class * 8 + precedence * 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dscp_goes_into_the_upper_six_bits() {
        for (text, tos) in [("ef", 0xb8), ("AF41", 0x88), ("cs1", 0x20), ("46", 0xb8), ("0x2e", 0xb8), ("le", 0x04)] {
            assert_eq!(dscp(text), Ok(tos), "{text}");
        }
        for text in ["af44", "af51", "cs8", "64", "gold", ""] {
            assert!(dscp(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_type_of_service_is_a_byte() {
        assert_eq!((type_of_service("0x10"), type_of_service("184")), (Ok(16), Ok(184)));
        assert!(type_of_service("256").is_err() && type_of_service("0x").is_err());
    }

    #[test]
    fn a_rate_may_say_how_many_go_at_once() {
        assert_eq!("10M".parse(), Ok(Offer { rate: BitRate::from_mbps(10), burst: None }));
        assert_eq!("10Mbit/s/4".parse(), Ok(Offer { rate: BitRate::from_mbps(10), burst: Some(4) }));
        assert_eq!("0/8".parse(), Ok(Offer { rate: BitRate::ZERO, burst: Some(8) }));
        for text in ["10M/", "10M/0", "10M/1001", "fast"] {
            assert!(text.parse::<Offer>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_host_may_come_with_its_port() {
        let server = |text: &str| text.parse::<Server>().map(|server| (server.name, server.port));
        for (text, name, port) in [
            ("host", "host", None),
            ("host:5301", "host", Some(5301)),
            ("192.0.2.1:80", "192.0.2.1", Some(80)),
            ("2001:db8::1", "2001:db8::1", None),
            ("[2001:db8::1]", "2001:db8::1", None),
            ("[2001:db8::1]:5301", "2001:db8::1", Some(5301)),
            ("[fe80::1%eth0]:1", "fe80::1%eth0", Some(1)),
        ] {
            assert_eq!(server(text), Ok((name.to_owned(), port)), "{text}");
        }
        for text in ["", ":80", "host:", "host:0", "host:70000", "host:http", "[::1", "[::1]80", "[]:80", "[::1]:"] {
            assert!(server(text).is_err(), "{text}");
        }
    }

    #[test]
    fn processors_are_of_one_end_or_of_both() {
        assert_eq!("3".parse(), Ok(Affinity { here: Some(3), there: None }));
        assert_eq!("3,0".parse(), Ok(Affinity { here: Some(3), there: Some(0) }));
        assert_eq!("nic,0".parse(), Ok(Affinity { here: None, there: Some(0) }));
        for text in ["", ",1", "1,", "-1", "70000", "0,nic"] {
            assert!(text.parse::<Affinity>().is_err(), "{text}");
        }
    }

    #[test]
    fn timeouts_are_in_milliseconds_as_iperf3_has_them() {
        assert_eq!((milliseconds("250"), milliseconds("2s")), (Ok(Span::from_millis(250)), Ok(Span::from_secs(2))));
    }
}
