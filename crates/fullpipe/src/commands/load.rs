//! The flags that say what is sent, and how the far end is reached; shared with iperf3 where it has
//! them.

mod values;

mod request;

use self::values::{ProcessorAffinity, whole_request};
pub(crate) use self::values::{ServerAddress, WebTest};
use std::net::IpAddr;

use fullpipe_control::{ClientLogin, RsaPadding, RsaPublicKey, SshHost, TlsTrust};
use fullpipe_experiment::FarEnd;
use fullpipe_iperf::{DEFAULT_PORT, SealedTicket, SharedKey, iperf2};
use fullpipe_probe::LocalEndpoint;
use fullpipe_record::IpVersion;

use super::far_end::FarEndArguments;
use super::login::read_login;
use super::offered_rate::OfferedRate;
use super::prelude::*;
use crate::values::{
    parse_dscp, parse_milliseconds, read_key_file, read_ticket_file, rsa_public_key, test_time,
    tls_trust, type_of_service,
};

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
    /// Server: HOST, HOST:PORT, `ssh://HOST`, `ndt7://HOST`, or `https://HOST` with --rpm
    ///
    /// The host runs `fullpipe serve`, `iperf3 -s` or, with --iperf2, `iperf -s`. With `ssh://` it
    /// needs to run nothing: fullpipe is started there for this command. `ndt7://` and, without
    /// TLS, `ndt7+ws://` are speed tests of M-Lab or of `fullpipe serve --web`: a download, and an
    /// upload unless --reverse. `https://HOST/PATH` is the URL of a test of responsiveness. Write an
    /// IPv6 address with a port in brackets: `[2001:db8::1]:5201`.
    host: ServerAddress,
    #[command(flatten)]
    way: RouteArguments,
    /// Send the data through ssh, where a firewall lets nothing else pass
    ///
    /// With `ssh://` only. This measures ssh: its windows, its cipher and two connections of
    /// loopback hide the path, so no limit is named.
    #[arg(long, hide_short_help = true, help_heading = "Far end")]
    through_ssh: bool,
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
    /// Ticket for one test, where the server serves only those that have one
    ///
    /// `serve --tickets` checks it. The file is as secret as a key.
    #[arg(
        long,
        value_parser = read_ticket_file,
        value_name = "FILE",
        conflicts_with_all = ["key_file", "iperf2"],
        hide_short_help = true,
        help_heading = "Security"
    )]
    ticket: Option<SealedTicket>,
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
    #[command(flatten)]
    far_end: FarEndArguments,
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

impl ServerArguments {
    /// Returns true if the user says that the far end speaks iperf2's protocol.
    pub(crate) fn is_iperf2(&self) -> bool {
        self.way.iperf2
    }

    /// Returns the address of the far end and the local address; and the far end, if it was started
    /// for this command, which ends with it.
    ///
    /// # Errors
    /// Fails as [`RouteArguments::destination`], and if data shall go through ssh to a host that is
    /// not behind `ssh://`.
    pub(crate) fn destination(&self) -> Result<(Destination, Option<FarEnd>)> {
        let mut host = self.host.clone();
        match &mut host.ssh {
            Some(ssh) => ssh.tunnels_data = self.through_ssh,
            None => self.require_no_ssh()?,
        }
        self.way.destination(&host)
    }

    fn require_no_ssh(&self) -> Result {
        if self.through_ssh {
            let message = "--through-ssh needs a host of ssh: ssh://HOST";
            return Err(usage_failure(message));
        }
        Ok(())
    }

    /// Returns true if the data goes through ssh.
    pub(crate) const fn is_through_ssh(&self) -> bool {
        self.through_ssh
    }

    /// Returns the address of a server of speed tests over the web, and the test, if the far end is
    /// one.
    ///
    /// # Errors
    /// Fails if two ports are given, or if data shall go through ssh.
    pub(crate) fn web_destination(&self) -> Result<Option<(Destination, WebTest)>> {
        let Some(test) = self.host.web.clone() else {
            return Ok(None);
        };
        self.require_no_ssh()?;
        let address = ServerAddress {
            web: None,
            ..self.host.clone()
        };
        let (destination, _) = self.way.destination(&address)?;
        Ok(Some((destination, test)))
    }
}

impl RouteArguments {
    /// Returns true if the user says that the far end speaks iperf2's protocol.
    pub(crate) fn is_iperf2(&self) -> bool {
        self.iperf2
    }

    /// Returns the address of the far end and the local address; and the far end, if it was started
    /// for this command, which ends with it.
    ///
    /// # Errors
    /// Fails if there is no password for a named user, if two ports are given, or if a far end
    /// cannot be started.
    pub(crate) fn destination(
        &self,
        host: &ServerAddress,
    ) -> Result<(Destination, Option<FarEnd>)> {
        if host.ssh.is_some() && (self.iperf2 || self.ticket.is_some()) {
            return Err(usage_failure(
                "a far end over ssh is fullpipe's own; leave out --iperf2 and --ticket",
            ));
        }
        let usual = if self.iperf2 {
            iperf2::DEFAULT_PORT
        } else {
            DEFAULT_PORT
        };
        let (destination, far_end) = self.access.resolve_destination(host, usual)?;
        let destination = Destination {
            server_output: self.get_server_output,
            file: self.file.clone(),
            ticket: self.ticket.clone(),
            ..destination
        };
        Ok((destination, far_end))
    }
}

impl AccessArguments {
    /// Returns the address of the far end, which speaks iperf3's protocol, and the local address; and
    /// the far end, if it was started for this command, which ends with it.
    ///
    /// # Errors
    /// Fails if there is no password for a named user, if two ports are given, or if a far end
    /// cannot be started.
    pub(crate) fn destination(
        &self,
        host: &ServerAddress,
    ) -> Result<(Destination, Option<FarEnd>)> {
        self.resolve_destination(host, DEFAULT_PORT)
    }

    fn resolve_destination(
        &self,
        host: &ServerAddress,
        usual: u16,
    ) -> Result<(Destination, Option<FarEnd>)> {
        if host.web.is_some() {
            return Err(usage_failure(
                "servers of speed tests over the web are for `fullpipe measure`",
            ));
        }
        let destination = Destination {
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
        };
        match &host.ssh {
            Some(ssh) => self.start_far_end(ssh, destination),
            None => Ok((destination, None)),
        }
    }

    /// Starts a far end over ssh, to which `destination` leads then.
    fn start_far_end(
        &self,
        ssh: &SshHost,
        destination: Destination,
    ) -> Result<(Destination, Option<FarEnd>)> {
        if destination.key.is_some() || destination.login.is_some() || destination.tls.is_some() {
            return Err(usage_failure(
                "a far end over ssh has a key of its own; leave out --key-file, --username and --tls",
            ));
        }
        let far_end = self.far_end.start(ssh, self.port)?;
        let destination = Destination {
            host: far_end.host.clone(),
            port: far_end.port(),
            key: Some(far_end.key.clone()),
            call_back: far_end.call_back.clone(),
            // Echo requests do not go through ssh.
            without_echoes: ssh.tunnels_data,
            ..destination
        };
        Ok((destination, Some(far_end)))
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

#[cfg(test)]
mod tests;
