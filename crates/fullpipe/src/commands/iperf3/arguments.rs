//! iperf3's command line.

mod request;

mod warnings;

mod task;

use fullpipe_iperf::DEFAULT_PORT;
use fullpipe_probe::ServeOptions;
use fullpipe_report::iperf3::RateUnit;

use super::number;
use crate::commands::prelude::*;

/// iperf3's format of time stamps: as `ctime` has them.
const CTIME: &str = "%a %b %e %H:%M:%S %Y ";

/// Performs network throughput tests as iperf3 3.12 does, with its flags and its output
#[derive(Debug, clap::Parser)]
#[command(
    name = "iperf3",
    override_usage = "iperf3 [-s|-c host] [options]",
    args_override_self = true,
    infer_long_args = true,
    max_term_width = 80
)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub(super) struct Iperf3Arguments {
    /// Server port to listen on or connect to
    #[arg(
        long,
        short,
        value_name = "N",
        default_value_t = i64::from(DEFAULT_PORT),
        value_parser = number::parse_integer,
        allow_hyphen_values = true
    )]
    port: i64,
    /// Unit of rates: bits, or bytes where capital
    #[arg(long, short, value_name = "kmgtKMGT")]
    format: Option<String>,
    /// Seconds between reports; 0 for none
    #[arg(
        long,
        short,
        value_name = "N",
        default_value = "1",
        value_parser = number::parse_seconds,
        allow_hyphen_values = true
    )]
    interval: f64,
    /// Write the process's number here
    #[arg(long, short = 'I', value_name = "FILE")]
    pidfile: Option<PathBuf>,
    /// Run on this processor only; of a client, and the server on the second
    #[arg(long, short = 'A', value_name = "N[,M]")]
    affinity: Option<String>,
    /// Address of this end, with the name of a device if you like
    #[arg(long, short = 'B', value_name = "HOST[%DEV]")]
    bind: Option<String>,
    /// Network device of this end
    #[arg(long, value_name = "DEV")]
    bind_dev: Option<String>,
    /// Say more
    #[arg(long, short = 'V')]
    verbose: bool,
    /// One JSON document
    #[arg(long, short = 'J')]
    json: bool,
    /// One JSON object a line, as things happen
    #[arg(long)]
    json_stream: bool,
    /// With --json-stream, the whole document at the end too
    #[arg(long)]
    json_stream_full_output: bool,
    /// Append the output to a file
    #[arg(long, value_name = "FILE")]
    logfile: Option<PathBuf>,
    /// Nothing more than usual: every line is written at once
    #[arg(long)]
    forceflush: bool,
    /// Put the time before each line, as strftime has it
    #[arg(long, value_name = "FORMAT", num_args = 0..=1, require_equals = true, default_missing_value = CTIME)]
    timestamps: Option<String>,
    /// Give up when nothing arrives for so many milliseconds
    #[arg(long, value_name = "N", value_parser = number::parse_milliseconds)]
    rcv_timeout: Option<Span>,
    /// Report each step on standard error, in detail
    #[arg(short)]
    debug: bool,
    /// Level of debug output: 1 or 2 for steps, 3 for details, 4 for everything
    #[arg(
        long = "debug",
        value_name = "LEVEL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "4",
        value_parser = number::parse_integer
    )]
    debug_level: Option<i64>,
    /// Print the version
    #[arg(long, short)]
    version: bool,

    /// IPv4 only
    #[arg(long, short = '4')]
    version4: bool,
    /// IPv6 only
    #[arg(long, short = '6')]
    version6: bool,

    /// Be the server
    #[arg(long, short, help_heading = "Server")]
    server: bool,
    #[command(flatten)]
    server_flags: ServerFlags,
    /// Be the client, of this server
    #[arg(long, short, value_name = "HOST[%DEV]", help_heading = "Client")]
    client: Option<String>,
    #[command(flatten)]
    client_flags: ClientFlags,
    /// Either: PKCS#1 padding, as iperf3 before 3.17, not OAEP
    #[arg(long, help_heading = "Users")]
    use_pkcs1_padding: bool,

    #[command(flatten)]
    refused: RefusedFlags,
    #[command(flatten)]
    ignored: IgnoredFlags,
}

/// Flags that only a server has.
#[derive(Debug, Default, PartialEq, Args)]
#[command(next_help_heading = "Server")]
struct ServerFlags {
    /// Go on in the background
    #[arg(long, short = 'D')]
    daemon: bool,
    /// End after one test
    #[arg(long, short = '1')]
    one_off: bool,
    /// Rate of all tests together
    #[arg(long, value_name = "N[KMG]", value_parser = number::parse_rate_limit)]
    server_bitrate_limit: Option<BitRate>,
    /// Longest test, in seconds
    #[arg(long, value_name = "N", value_parser = number::whole_seconds)]
    server_max_duration: Option<Span>,
    /// With -1, end after so many seconds without a test
    #[arg(long, value_name = "N", value_parser = number::whole_seconds)]
    idle_timeout: Option<Span>,
    /// Server: RSA key that decrypts what users send, in PEM
    #[arg(long, value_name = "FILE", help_heading = "Users")]
    rsa_private_key_path: Option<String>,
    /// Server: the users, a line NAME,DIGEST each
    #[arg(long, value_name = "FILE", help_heading = "Users")]
    authorized_users_path: Option<String>,
    /// Server: by how many seconds clocks may differ [default: 10]
    #[arg(long, value_name = "N", value_parser = number::parse_integer, allow_hyphen_values = true, help_heading = "Users")]
    time_skew_threshold: Option<i64>,
}

/// Flags that only a client has.
#[derive(Debug, Default, PartialEq, Args)]
#[command(next_help_heading = "Client")]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
struct ClientFlags {
    /// UDP rather than TCP
    #[arg(long, short)]
    udp: bool,
    /// Multipath TCP rather than TCP
    #[arg(long, short = 'm')]
    mptcp: bool,
    /// Longest time to connect, in milliseconds
    #[arg(long, value_name = "N", value_parser = number::parse_milliseconds)]
    connect_timeout: Option<Span>,
    /// Rate of each stream, 0 for as fast as it goes; blocks in a row [default: 1M with UDP, else
    /// 0]
    #[arg(
        long,
        short,
        alias = "bandwidth",
        value_name = "N[KMG][/N]",
        value_parser = number::parse_offered_rate
    )]
    bitrate: Option<(BitRate, Option<u16>)>,
    /// Not needed: no timer is used for pacing
    #[arg(long, value_name = "N[KMG]", value_parser = number::parse_count)]
    pacing_timer: Option<u64>,
    /// Rate at which the kernel paces each stream
    #[arg(long, value_name = "N[KMG]", value_parser = number::parse_rate)]
    fq_rate: Option<BitRate>,
    /// Do not pace in the kernel, as --fq-rate=0
    #[arg(long, hide = true)]
    no_fq_socket_pacing: bool,
    /// Seconds to send; 0 for a day [default: 10]
    #[arg(
        long,
        short,
        value_name = "N",
        value_parser = number::parse_integer,
        allow_hyphen_values = true
    )]
    time: Option<i64>,
    /// Send so many bytes instead
    #[arg(long, short = 'n', value_name = "N[KMG]", value_parser = number::parse_bytes)]
    bytes: Option<ByteCount>,
    /// Send so many blocks instead
    #[arg(long, short = 'k', value_name = "N[KMG]", value_parser = number::parse_count)]
    blockcount: Option<u64>,
    /// Bytes of a block or a datagram [default: 128K with TCP, what a packet holds with UDP]
    #[arg(long, short, value_name = "N[KMG]", value_parser = number::parse_bytes)]
    length: Option<ByteCount>,
    /// Port of this end's data connections
    #[arg(long, value_name = "N", value_parser = number::parse_integer)]
    cport: Option<i64>,
    /// Parallel streams [default: 1]
    #[arg(
        long,
        short = 'P',
        value_name = "N",
        value_parser = number::parse_integer,
        allow_hyphen_values = true
    )]
    parallel: Option<i64>,
    /// The server sends
    #[arg(long, short = 'R')]
    reverse: bool,
    /// Both ends send
    #[arg(long)]
    bidir: bool,
    /// Socket buffers at both ends
    #[arg(long, short, value_name = "N[KMG]", value_parser = number::parse_bytes)]
    window: Option<ByteCount>,
    /// Congestion control
    #[arg(long, short = 'C', alias = "linux-congestion", value_name = "NAME")]
    congestion: Option<String>,
    /// Largest segment
    #[arg(long, short = 'M', value_name = "N", value_parser = number::parse_integer)]
    set_mss: Option<i64>,
    /// Send small writes at once
    #[arg(long, short = 'N')]
    no_delay: bool,
    /// Type of service: 52, 064 and 0x34 are the same
    #[arg(
        long,
        short = 'S',
        value_name = "N",
        value_parser = number::type_of_service,
        allow_hyphen_values = true
    )]
    tos: Option<u8>,
    /// Type of service by DSCP: number or name
    #[arg(long, value_name = "N", value_parser = number::parse_dscp)]
    dscp: Option<u8>,
    /// Send without copying
    #[arg(long, short = 'Z')]
    zerocopy: bool,
    /// Receive without copying
    #[arg(long)]
    skip_rx_copy: bool,
    /// Hand the kernel many datagrams at once
    #[arg(long)]
    gsro: bool,
    /// Leave out so many seconds at the beginning [default: 0]
    #[arg(
        long,
        short = 'O',
        value_name = "N",
        value_parser = number::parse_integer,
        allow_hyphen_values = true
    )]
    omit: Option<i64>,
    /// Put this before each line
    #[arg(long, short = 'T', value_name = "TEXT")]
    title: Option<String>,
    /// Put this into the JSON
    #[arg(long, value_name = "TEXT")]
    extra_data: Option<String>,
    /// Print what the server printed
    #[arg(long)]
    get_server_output: bool,
    /// Number datagrams in 64 bits
    #[arg(long)]
    udp_counters_64bit: bool,
    /// Forbid routers to fragment datagrams
    #[arg(long)]
    dont_fragment: bool,
    /// Send this file, or write to it what arrives
    #[arg(long, short = 'F', value_name = "FILE")]
    file: Option<PathBuf>,
    /// Client: the user; the password is in `IPERF3_PASSWORD`, or is asked for
    #[arg(long, value_name = "NAME", help_heading = "Users")]
    username: Option<String>,
    /// Client: the server's public RSA key, in PEM
    #[arg(long, value_name = "FILE", help_heading = "Users")]
    rsa_public_key_path: Option<String>,
}

/// Flags of iperf3 that are known and not carried out.
#[derive(Debug, Args)]
struct RefusedFlags {
    #[arg(long, hide = true)]
    sctp: bool,
    #[arg(long, short = 'X', hide = true)]
    xbind: Option<String>,
    #[arg(long, hide = true)]
    nstreams: Option<String>,
}

/// Flags of iperf3 that change nothing here.
#[derive(Debug, Args)]
struct IgnoredFlags {
    #[arg(long, short = 'L', hide = true)]
    flowlabel: Option<String>,
    #[arg(long, hide = true)]
    snd_timeout: Option<String>,
    #[arg(long, hide = true)]
    repeating_payload: bool,
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "", hide = true)]
    cntl_ka: Option<String>,
    /// Arguments that are no flags, which iperf3 ignores too.
    #[arg(hide = true)]
    stray: Vec<String>,
}

/// The task that the command line asks for.
#[derive(Debug, PartialEq)]
pub(super) enum Iperf3Task {
    Client(Box<ClientPlan>),
    Server(Box<ServerPlan>),
}

/// One test.
#[derive(Debug, PartialEq)]
pub(super) struct ClientPlan {
    pub(super) destination: Destination,
    pub(super) request: Request,
    pub(super) shape: ProgramSettings,
}

/// A server.
#[derive(Debug, PartialEq)]
pub(super) struct ServerPlan {
    pub(super) options: ServeOptions,
    pub(super) daemon: bool,
    pub(super) shape: ProgramSettings,
}

/// Settings of the program and of its output.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ProgramSettings {
    pub(super) form: ProgramFormat,
    pub(super) unit: RateUnit,
    pub(super) verbose: bool,
    pub(super) pidfile: Option<PathBuf>,
    pub(super) processor: Option<usize>,
}

/// Format of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProgramFormat {
    Text,
    Json,
    JsonStream,
    JsonStreamAndDocument,
}

#[cfg(test)]
mod tests;
