//! The flags that say what is sent, and how the far end is reached; shared with iperf3 where it has
//! them.

use std::net::IpAddr;
use std::str::FromStr;

use fullpipe_control::{ClientLogin, RsaPadding, RsaPublicKey, TlsTrust};
use fullpipe_iperf::{DEFAULT_PORT, SharedKey, iperf2};
use fullpipe_probe::LocalEndpoint;
use fullpipe_record::{Buffer, IpVersion, Writer};

use super::login::read_login;
use super::prelude::*;
use crate::values::{
    parse_dscp, parse_milliseconds, read_key_file, rsa_public_key, test_time, tls_trust,
    type_of_service,
};

/// Default rate of a UDP sender, as iperf3 has it.
const DEFAULT_UDP_RATE: BitRate = BitRate::from_mbps(1);

/// The load of a measurement.
#[derive(Debug, Args)]
pub(crate) struct MeasureLoadArguments {
    #[command(flatten)]
    amount: AmountArguments,
    #[command(flatten)]
    tcp: TcpArguments,
    #[command(flatten)]
    udp: UdpArguments,
    #[command(flatten)]
    packet: PacketArguments,
    #[command(flatten)]
    note: NoteArguments,
    /// The whole load as JSON of `record::Request`, in place of the flags above, for a lab
    #[arg(long, hide = true, value_parser = whole_request, value_name = "JSON")]
    request: Option<Box<Request>>,
}

/// Amount and direction of the data.
#[derive(Debug, Args)]
#[command(next_help_heading = "Load")]
struct AmountArguments {
    /// Duration of the transfer [default: 10; 2 with --ramp]
    #[arg(long, short, value_parser = test_time, value_name = "SECONDS")]
    time: Option<Span>,
    /// End after this many bytes instead
    #[arg(long, short = 'n', value_name = "BYTES", conflicts_with = "time")]
    bytes: Option<ByteCount>,
    /// End after this many blocks of --length instead
    #[arg(
        long,
        short = 'k',
        alias = "blockcount",
        value_name = "N",
        value_parser = integer_parser(1..=u64::MAX),
        conflicts_with_all = ["time", "bytes"],
        hide_short_help = true
    )]
    blocks: Option<u64>,
    /// Leave the first seconds out of the result
    #[arg(
        long,
        short = 'O',
        default_value = "0",
        value_parser = test_time,
        value_name = "SECONDS",
        hide_short_help = true
    )]
    omit: Span,
    /// Parallel streams, in each direction
    #[arg(
        long,
        short = 'P',
        visible_alias = "parallel",
        default_value_t = 1,
        value_parser = integer_parser(1..=128_u16),
        value_name = "N"
    )]
    streams: u16,
    /// The server sends, this end receives
    #[arg(long, short = 'R')]
    reverse: bool,
    /// Both ends send at the same time
    #[arg(long, conflicts_with = "reverse")]
    bidir: bool,
    /// Numbered datagrams in place of TCP
    ///
    /// Each stream sends 1 Mbit/s unless --bitrate gives another rate.
    #[arg(long, short)]
    udp: bool,
    /// Rate offered by each stream; 0 is unlimited
    ///
    /// With /N, a stream sends N blocks in a row, then waits.
    #[arg(long, short, value_name = "RATE[/N]")]
    bitrate: Option<OfferedRate>,
    /// Bytes of one write, or of one datagram
    ///
    /// The default is 1M; with --bitrate, what the rate sends in a millisecond, without delay; with
    /// --udp, what one packet holds.
    #[arg(long, short, value_name = "BYTES")]
    length: Option<ByteCount>,
}

/// Settings of TCP sockets.
#[derive(Debug, Args)]
#[command(next_help_heading = "TCP")]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
struct TcpArguments {
    /// Socket buffers to request at both ends
    ///
    /// The kernel doubles the request, and advertises a share of the receive buffer as window.
    #[arg(long = "buffer", short = 'w', value_name = "BYTES")]
    buffer: Option<ByteCount>,
    /// Window that the receiver should advertise
    ///
    /// The socket buffers are chosen to yield it.
    #[arg(long, value_name = "BYTES", value_parser = some_bytes, conflicts_with_all = ["buffer", "udp"])]
    window: Option<ByteCount>,
    /// Congestion control: cubic, reno, bbr, …
    #[arg(long, short = 'C', value_name = "NAME")]
    congestion: Option<String>,
    /// Maximum segment size
    #[arg(
        long,
        short = 'M',
        alias = "set-mss",
        value_name = "BYTES",
        hide_short_help = true
    )]
    mss: Option<ByteCount>,
    /// Send small writes at once (`TCP_NODELAY`)
    #[arg(long, short = 'N', hide_short_help = true)]
    no_delay: bool,
    /// Multipath TCP
    #[arg(long, short = 'm', conflicts_with = "udp", hide_short_help = true)]
    mptcp: bool,
    /// Send pages of a file without copying (`sendfile`)
    #[arg(long, short = 'Z', conflicts_with = "udp", hide_short_help = true)]
    zerocopy: bool,
    /// Send from user memory without copying (`MSG_ZEROCOPY`)
    ///
    /// It pays with fast network cards only.
    #[arg(long, conflicts_with_all = ["udp", "zerocopy"], hide_short_help = true)]
    msg_zerocopy: bool,
    /// The receiver copies the data, as ordinary programs do
    ///
    /// By default it discards the data in the kernel (`MSG_TRUNC`).
    #[arg(long, conflicts_with = "udp", hide_short_help = true)]
    rx_copy: bool,
    /// The receiver discards the data in the kernel: the default, and iperf3's name for it
    #[arg(long, conflicts_with_all = ["udp", "rx_copy"], hide = true)]
    skip_rx_copy: bool,
    /// Write as ordinary programs do, and sleep while the send buffer is full
    ///
    /// By default the sender keeps the send buffer full.
    #[arg(long, conflicts_with_all = ["reverse", "bidir", "udp"], hide_short_help = true)]
    blocking: bool,
}

/// Flags with which there is no UDP. What requires it would be accepted, and left out, next to one
/// of them.
const OF_TCP: [&str; 7] = [
    "window",
    "mptcp",
    "zerocopy",
    "msg_zerocopy",
    "rx_copy",
    "skip_rx_copy",
    "blocking",
];

/// Settings of UDP sockets.
#[derive(Debug, Args)]
#[command(next_help_heading = "UDP")]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
struct UdpArguments {
    /// Send and receive each datagram by itself
    ///
    /// By default the kernel cuts and joins datagrams (`UDP_SEGMENT`, `UDP_GRO`).
    #[arg(long, requires = "udp", conflicts_with_all = OF_TCP, hide_short_help = true)]
    no_gso: bool,
    /// The kernel cuts and joins datagrams: the default, and iperf3's name for it
    #[arg(long, requires = "udp", conflicts_with = "no_gso", conflicts_with_all = OF_TCP, hide = true)]
    gsro: bool,
    /// Number datagrams in 64 bits, for more than 4 billion datagrams
    #[arg(long, requires = "udp", conflicts_with_all = OF_TCP, hide_short_help = true)]
    udp_counters_64bit: bool,
    /// Forbid routers to fragment datagrams
    #[arg(long, requires = "udp", conflicts_with_all = OF_TCP, hide_short_help = true)]
    dont_fragment: bool,
}

/// Settings of packets and of the threads that send them.
#[derive(Debug, Args)]
#[command(next_help_heading = "Packets and processors")]
struct PacketArguments {
    /// Rate at which the kernel paces each stream
    #[arg(long, value_name = "RATE", hide_short_help = true)]
    fq_rate: Option<BitRate>,
    /// Type of service: 184, 0270 and 0xb8 are the same
    #[arg(long, short = 'S', value_parser = type_of_service, value_name = "N", hide_short_help = true)]
    tos: Option<u8>,
    /// DSCP by name or number: ef, af41, cs1, 46, …
    #[arg(long, value_parser = parse_dscp, value_name = "NAME", conflicts_with = "tos", hide_short_help = true)]
    dscp: Option<u8>,
    /// Processors of the data threads, at this end and at the other
    ///
    /// At this end, `nic` stands for the processors of the network card's NUMA node, if the machine
    /// has several nodes.
    #[arg(long, short = 'A', value_name = "N|nic[,M]", hide_short_help = true)]
    affinity: Option<ProcessorAffinity>,
}

/// Intervals and texts of the result.
#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
struct NoteArguments {
    /// Length of reported intervals; 0 reports the whole only
    #[arg(long, short, default_value = "1", value_parser = parse_duration, value_name = "SECONDS", hide_short_help = true)]
    interval: Span,
    /// Text printed before each line
    #[arg(long, short = 'T', value_name = "TEXT", hide_short_help = true)]
    title: Option<String>,
    /// Text kept in the result
    #[arg(long, value_name = "TEXT", hide_short_help = true)]
    extra_data: Option<String>,
}

/// The server and the way to it.
#[derive(Debug, Args)]
pub(crate) struct ServerArguments {
    /// Server: HOST or HOST:PORT
    ///
    /// The host runs `fullpipe serve`, `iperf3 -s` or, with --iperf2, `iperf -s`. Write an IPv6
    /// address with a port in brackets: `[2001:db8::1]:5201`.
    host: ServerAddress,
    #[command(flatten)]
    way: RouteArguments,
}

/// The way to the server of a measurement.
#[derive(Debug, Args)]
#[command(
    next_help_heading = "Server",
    mut_arg("port", |port| port.help("Port of the server [default: 5201, or 5001 with --iperf2]"))
)]
pub(crate) struct RouteArguments {
    #[command(flatten)]
    access: AccessArguments,
    /// The server is iperf2's (`iperf -s`); uploads only
    #[arg(
        long,
        conflicts_with_all = ["reverse", "bidir", "get_server_output", "username", "rsa_public_key_path"],
        help_heading = "Server"
    )]
    iperf2: bool,
    /// Send this file instead of made-up data
    ///
    /// The file is sent once and whole. With --reverse, the received data is written to it; the
    /// file must be new.
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["bidir", "udp", "iperf2", "bytes", "blocks"],
        hide_short_help = true,
        help_heading = "Load"
    )]
    file: Option<PathBuf>,
    /// Print the server's own output too
    #[arg(long, hide_short_help = true, help_heading = "Server")]
    get_server_output: bool,
}

/// The connections to a server, and what it asks of a client.
#[derive(Debug, Args)]
#[command(next_help_heading = "Server")]
pub(crate) struct AccessArguments {
    /// Port of the server [default: 5201]
    #[arg(long, short, value_parser = integer_parser(1..=u16::MAX))]
    port: Option<u16>,
    /// IPv4 only
    #[arg(short = '4', long, alias = "version4", conflicts_with = "ipv6")]
    ipv4: bool,
    /// IPv6 only
    #[arg(short = '6', long, alias = "version6")]
    ipv6: bool,
    /// Address of this end
    #[arg(long, short = 'B', value_name = "ADDRESS", hide_short_help = true)]
    bind: Option<IpAddr>,
    /// Network device of this end
    #[arg(long, value_name = "DEVICE", hide_short_help = true)]
    bind_dev: Option<String>,
    /// First port of this end's data connections; further streams count up
    #[arg(long, value_name = "PORT", value_parser = integer_parser(1..=u16::MAX), hide_short_help = true)]
    cport: Option<u16>,
    /// Time limit for making a connection [default: 5s]
    ///
    /// A number without a unit is in milliseconds, as in iperf3.
    #[arg(long, value_parser = parse_milliseconds, value_name = "MILLISECONDS", hide_short_help = true)]
    connect_timeout: Option<Span>,
    /// Give up after so long without data, where the server sends [default: 120s]
    ///
    /// A number without a unit is in milliseconds, as in iperf3.
    #[arg(long, value_parser = parse_milliseconds, value_name = "MILLISECONDS", hide_short_help = true)]
    rcv_timeout: Option<Span>,
    #[command(flatten)]
    security: SecurityArguments,
    #[command(flatten)]
    login: LoginArguments,
}

/// The protection of the control connection.
#[derive(Debug, Args)]
#[command(next_help_heading = "Security")]
struct SecurityArguments {
    /// Shared key that `serve --key-file` asks for
    ///
    /// The key proves who this client is. It encrypts nothing.
    #[arg(long, value_parser = read_key_file, value_name = "FILE", hide_short_help = true)]
    key_file: Option<SharedKey>,
    /// Encrypt the control connection
    ///
    /// FILE holds the certificate of the server, or of the authority that signed it, in PEM. The
    /// data is not encrypted.
    #[arg(long, value_parser = tls_trust, value_name = "FILE", hide_short_help = true)]
    tls: Option<TlsTrust>,
}

/// The login at an iperf3 server that asks for one.
#[derive(Debug, Args)]
#[command(next_help_heading = "Security")]
struct LoginArguments {
    /// User name, where the server asks for one
    ///
    /// The password is read from the environment variable `IPERF3_PASSWORD`, or asked for.
    #[arg(
        long,
        value_name = "NAME",
        requires = "rsa_public_key_path",
        hide_short_help = true
    )]
    username: Option<String>,
    /// The server's public RSA key in PEM, which encrypts name and password
    #[arg(long, value_parser = rsa_public_key, value_name = "FILE", requires = "username", hide_short_help = true)]
    rsa_public_key_path: Option<RsaPublicKey>,
    /// Encrypt as iperf3 before 3.17 does (PKCS#1 v1.5), not as later versions do (OAEP)
    #[arg(long, requires = "username", hide_short_help = true)]
    use_pkcs1_padding: bool,
}

impl LoginArguments {
    fn login(&self) -> Result<Option<ClientLogin>> {
        let asked = self
            .username
            .as_deref()
            .zip(self.rsa_public_key_path.as_ref());
        asked
            .map(|(user, key)| read_login(user, key, rsa_padding(self.use_pkcs1_padding)))
            .transpose()
    }
}

/// OAEP, unless the older one is asked for.
pub(crate) fn rsa_padding(use_pkcs1: bool) -> RsaPadding {
    if use_pkcs1 {
        RsaPadding::Pkcs1
    } else {
        RsaPadding::Oaep
    }
}

impl MeasureLoadArguments {
    /// Returns the duration, if one is given.
    pub(crate) fn requested_time(&self) -> Option<Span> {
        self.amount.time
    }

    /// Returns the number of bytes, if one is given.
    pub(crate) fn bytes(&self) -> Option<ByteCount> {
        self.amount.bytes
    }

    /// Returns the request; its duration is `usual` if no other is given.
    ///
    /// # Errors
    /// Where the flags together make no test.
    pub(crate) fn to_request(&self, usual: Span) -> Result<Request> {
        if let Some(request) = &self.request {
            return Ok(Request::clone(request));
        }
        let buffer = match (self.tcp.buffer, self.tcp.window) {
            (Some(size), _) => Buffer::Request(size),
            (None, Some(size)) => Buffer::Window(size),
            (None, None) => Buffer::Automatic,
        };
        let gentle = self.amount.udp.then_some(DEFAULT_UDP_RATE);
        let rate = self
            .amount
            .bitrate
            .map_or(gentle, |offer| Some(offer.rate))
            .filter(|&rate| rate > BitRate::ZERO);
        // Whoever counts blocks means iperf3's.
        let counted = self
            .amount
            .blocks
            .filter(|_| !self.amount.udp)
            .map(|_| Request::default().block);
        let block = self.amount.length.or(counted).unwrap_or(ByteCount::ZERO);
        Ok(Request {
            transport: if self.amount.udp {
                Transport::Udp
            } else {
                Transport::Tcp
            },
            direction: data_direction(self.amount.reverse, self.amount.bidir),
            streams: self.amount.streams,
            duration: self.amount.time.unwrap_or(usual),
            omit: self.amount.omit,
            bytes: self.bytes_of(block)?,
            block,
            rate,
            burst: self.amount.bitrate.and_then(|offer| offer.burst),
            pacing: self.packet.fq_rate,
            buffer,
            congestion: self.tcp.congestion.clone(),
            mss: self.tcp.mss,
            no_delay: self.tcp.no_delay,
            tos: self.packet.tos.or(self.packet.dscp).unwrap_or(0),
            multipath: self.tcp.mptcp,
            sendfile: self.tcp.zerocopy,
            zero_copy: self.tcp.msg_zerocopy,
            discard: !self.amount.udp && !self.tcp.rx_copy,
            rx_copy: self.tcp.rx_copy,
            offload: self.amount.udp && !self.udp.no_gso,
            no_gso: self.udp.no_gso,
            wide_counters: self.udp.udp_counters_64bit,
            dont_fragment: self.udp.dont_fragment,
            processor: self.packet.affinity.and_then(|affinity| affinity.here),
            far_processor: self.packet.affinity.and_then(|affinity| affinity.there),
            near_device: self
                .packet
                .affinity
                .is_some_and(|affinity| affinity.here.is_none()),
            writer: if self.tcp.blocking {
                Writer::Blocking
            } else {
                Writer::Retrying
            },
            interval: self.note.interval,
            title: self.note.title.clone(),
            extra_data: self.note.extra_data.clone(),
            ..Request::default()
        })
    }

    fn bytes_of(&self, block: ByteCount) -> Result<Option<ByteCount>> {
        let Some(blocks) = self.amount.blocks else {
            return Ok(self.amount.bytes);
        };
        if block == ByteCount::ZERO {
            return Err(usage_failure(
                "--blocks of datagrams needs --length: how long is one?",
            ));
        }
        Ok(Some(ByteCount::new(block.get().saturating_mul(blocks))))
    }
}

impl ServerArguments {
    /// Returns true if the user says that the far end speaks iperf2's protocol.
    pub(crate) fn is_iperf2(&self) -> bool {
        self.way.iperf2
    }

    /// Returns the address of the far end and the local address.
    ///
    /// # Errors
    /// Fails if there is no password for a named user, or if two ports are given.
    pub(crate) fn destination(&self) -> Result<Destination> {
        self.way.destination(&self.host)
    }
}

impl RouteArguments {
    /// Returns true if the user says that the far end speaks iperf2's protocol.
    pub(crate) fn is_iperf2(&self) -> bool {
        self.iperf2
    }

    /// Returns the address of the far end and the local address.
    ///
    /// # Errors
    /// Fails if there is no password for a named user, or if two ports are given.
    pub(crate) fn destination(&self, host: &ServerAddress) -> Result<Destination> {
        let usual = if self.iperf2 {
            iperf2::DEFAULT_PORT
        } else {
            DEFAULT_PORT
        };
        Ok(Destination {
            server_output: self.get_server_output,
            file: self.file.clone(),
            ..self.access.resolve_destination(host, usual)?
        })
    }
}

impl AccessArguments {
    /// Returns the address of the far end, which speaks iperf3's protocol, and the local address.
    ///
    /// # Errors
    /// Fails if there is no password for a named user, or if two ports are given.
    pub(crate) fn destination(&self, host: &ServerAddress) -> Result<Destination> {
        self.resolve_destination(host, DEFAULT_PORT)
    }

    fn resolve_destination(&self, host: &ServerAddress, usual: u16) -> Result<Destination> {
        Ok(Destination {
            host: host.name.clone(),
            port: host.one_port(self.port)?.unwrap_or(usual),
            family: ip_version(self.ipv4, self.ipv6),
            local: LocalEndpoint {
                address: self.bind,
                device: self.bind_dev.clone(),
                port: self.cport,
            },
            connect_timeout: self.connect_timeout,
            receive_timeout: self.rcv_timeout,
            key: self.security.key_file.clone(),
            login: self.login.login()?,
            tls: self.security.tls.clone(),
            ..Destination::default()
        })
    }
}

/// Returns the direction of the data that these two flags ask for.
pub(super) fn data_direction(reverse: bool, bidir: bool) -> Direction {
    match (reverse, bidir) {
        (_, true) => Direction::Both,
        (true, _) => Direction::Download,
        _ => Direction::Upload,
    }
}

/// Returns the version of IP that these two flags ask for.
pub(super) fn ip_version(ipv4: bool, ipv6: bool) -> Option<IpVersion> {
    match (ipv4, ipv6) {
        (true, _) => Some(IpVersion::V4),
        (_, true) => Some(IpVersion::V6),
        _ => None,
    }
}

/// A host, and a port where it is named with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServerAddress {
    name: String,
    port: Option<u16>,
}

impl ServerAddress {
    /// Returns the port of the host, which a flag may state, too.
    fn one_port(&self, flag: Option<u16>) -> Result<Option<u16>> {
        match (self.port, flag) {
            (Some(one), Some(other)) if one != other => Err(usage_failure(format!(
                "port {one} and --port {other} both asked for; which is it?"
            ))),
            (one, other) => Ok(one.or(other)),
        }
    }
}

impl FromStr for ServerAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, port) = split_port(text)?;
        if name.is_empty() {
            return Err("no host is named".to_owned());
        }
        let port = port.map(|text| {
            let port = text.parse().ok().filter(|port| *port > 0);
            port.ok_or(format!("{text:?} is no port"))
        });
        Ok(Self {
            name: name.to_owned(),
            port: port.transpose()?,
        })
    }
}

/// Returns a host without brackets, and the text of its port.
fn split_port(text: &str) -> Result<(&str, Option<&str>), String> {
    if let Some(rest) = text.strip_prefix('[') {
        let (name, rest) = rest.split_once(']').ok_or("the bracket is not closed")?;
        let port = rest.strip_prefix(':');
        if port.is_none() && !rest.is_empty() {
            return Err(format!("{rest:?} behind the bracket is no port"));
        }
        return Ok((name, port));
    }
    Ok(match text.split_once(':') {
        // More than one colon is an IPv6 address without a port.
        Some((name, port)) if !port.contains(':') => (name, Some(port)),
        _ => (text, None),
    })
}

/// A rate, and how many blocks go at once.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct OfferedRate {
    pub(crate) rate: BitRate,
    pub(crate) burst: Option<u16>,
}

impl FromStr for OfferedRate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const MAX_STREAMS: u16 = 1000;
        let (rate, burst) = split_count(text);
        let burst = burst.map(|burst| match burst.parse() {
            Ok(count) if (1..=MAX_STREAMS).contains(&count) => Ok(count),
            _ => Err(format!(
                "{burst} blocks in a row asked for; 1 to {MAX_STREAMS} are possible"
            )),
        });
        let rate = if rate == "0" {
            BitRate::ZERO
        } else {
            parse_quantity(rate)?
        };
        Ok(Self {
            rate,
            burst: burst.transpose()?,
        })
    }
}

/// Returns a value or a range of values, and the number behind its slash. The slash of a unit, as
/// in Mbit/s, is followed by a letter.
pub(super) fn split_count(text: &str) -> (&str, Option<&str>) {
    match text.rsplit_once('/') {
        Some((value, count)) if count.bytes().all(|byte| byte.is_ascii_digit()) => {
            (value, Some(count))
        }
        _ => (text, None),
    }
}

/// Processors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ProcessorAffinity {
    /// Processor of this end; near the network card if not set.
    here: Option<u16>,
    there: Option<u16>,
}

impl FromStr for ProcessorAffinity {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (here, there) = text
            .split_once(',')
            .map_or((text, None), |(here, there)| (here, Some(there)));
        let here = if here == "nic" {
            None
        } else {
            Some(parse_processor(here)?)
        };
        Ok(Self {
            here,
            there: there.map(parse_processor).transpose()?,
        })
    }
}

fn parse_processor(text: &str) -> Result<u16, String> {
    text.parse()
        .map_err(|_| format!("{text:?} is no processor's number"))
}

fn whole_request(json: &str) -> Result<Box<Request>, String> {
    serde_json::from_str(json).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests;
