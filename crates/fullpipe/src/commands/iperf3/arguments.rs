//! iperf3's command line.

use std::net::IpAddr;

use fullpipe_control::{ClientLogin, LoginAuthenticator, RsaPadding, RsaPrivateKey};
use fullpipe_iperf::{DEFAULT_PORT, UserList};
use fullpipe_probe::{AdmissionQuota, LocalEndpoint, ServeOptions, ServerLimits};
use fullpipe_record::Buffer;
use fullpipe_report::iperf3::RateUnit;

use super::number;
use crate::commands::load::{data_direction, ip_version, rsa_padding};
use crate::commands::login::read_login;
use crate::commands::prelude::*;
use crate::values::{read_secret_file, rsa_public_key};

/// Default rate of a UDP sender: a binary million, though `-b 1M` is a decimal one.
const DEFAULT_UDP_RATE: BitRate = BitRate::from_bps(1_048_576);

/// Payload of a datagram where blocks are counted before the path has been seen.
const COMMON_DATAGRAM: ByteCount = ByteCount::new(1460);

/// The longest test, in seconds, and the longest time to be left out.
const MAX_SECONDS: i64 = 86_400;
const MAX_OMIT: i64 = 600;

/// Largest number of streams.
const MAX_STREAMS: i64 = 128;

/// Default for the largest difference of a user's clock.
const USUAL_SKEW: Span = Span::from_secs(10);

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

impl Iperf3Arguments {
    pub(super) fn wants_version(&self) -> bool {
        self.version
    }

    /// Returns the detail of the reported steps: 0 for none, 1 for steps, 2 for details, 3 for
    /// everything.
    pub(super) fn verbosity(&self) -> u8 {
        match self.debug_level {
            Some(1 | 2) => 1,
            Some(3) => 2,
            Some(4..) => 3,
            _ => u8::from(self.debug) * 3,
        }
    }

    /// Returns a warning for each flag that changes nothing.
    pub(super) fn warnings(&self) -> Vec<String> {
        self.ignored.warnings()
    }

    pub(super) fn logfile(&self) -> Option<&Path> {
        self.logfile.as_deref()
    }

    pub(super) fn timestamp_format(&self) -> Option<&str> {
        self.timestamps.as_deref()
    }

    /// The task.
    ///
    /// # Errors
    /// Where iperf3 would refuse it, in its words; and where it cannot be done here, by the flag's
    /// name.
    pub(super) fn to_task(&self) -> Result<Iperf3Task, String> {
        self.refused.by_name()?;
        match (&self.client, self.server) {
            (Some(_), true) => Err("cannot be both server and client".to_owned()),
            (None, false) => Err("must either be a client (-c) or server (-s)".to_owned()),
            (Some(host), false) => {
                let plan = self.client_plan(host)?;
                Ok(Iperf3Task::Client(Box::new(plan)))
            }
            (None, true) => Ok(Iperf3Task::Server(Box::new(self.server_plan()?))),
        }
    }

    fn client_plan(&self, host: &str) -> Result<ClientPlan, String> {
        if self.server_flags != ServerFlags::default() {
            return Err("some option you are trying to set is server only".to_owned());
        }
        // `-A` pins the whole process, so that its threads need no processor of their own.
        let request = self
            .client_flags
            .to_request(self.report_interval()?, self.processor_affinity()?.1)?;
        Ok(ClientPlan {
            destination: self.destination(host)?,
            request,
            shape: self.program_settings()?,
        })
    }

    fn server_plan(&self) -> Result<ServerPlan, String> {
        if self.client_flags != ClientFlags::default() {
            return Err("some option you are trying to set is client only".to_owned());
        }
        if self.rcv_timeout.is_some() {
            return Err(
                "--rcv-timeout of a server is not supported by fullpipe: it has its own".to_owned(),
            );
        }
        Ok(ServerPlan {
            options: self.serve_options()?,
            daemon: self.server_flags.daemon,
            shape: self.program_settings()?,
        })
    }

    fn serve_options(&self) -> Result<ServeOptions, String> {
        let (bind, device) = self.local_endpoint()?;
        let flags = &self.server_flags;
        let limits = ServerLimits {
            duration: flags.server_max_duration,
            ..ServerLimits::default()
        };
        // iperf3 answers a second client that it is busy; its output has no room for two tests at
        // once either.
        let total = AdmissionQuota {
            rate: flags.server_bitrate_limit,
            tests: 1,
            ..limits.total
        };
        Ok(ServeOptions {
            bind,
            device,
            port: parse_port(self.port)?,
            // iperf3 serves no others.
            iperf2: false,
            one_off: flags.one_off,
            // iperf3 reports each.
            counts_refusals: false,
            // Else iperf3 only starts anew, which leaves everything as it is.
            idle_timeout: flags.idle_timeout.filter(|_| flags.one_off),
            authenticator: flags.authenticator(rsa_padding(self.use_pkcs1_padding))?,
            limits: ServerLimits { total, ..limits },
            interval: self.report_interval()?,
            ..ServeOptions::default()
        })
    }

    fn destination(&self, host: &str) -> Result<Destination, String> {
        let flags = &self.client_flags;
        let (host, of_host) = split_device(host);
        let (local_address, device) = self.local_endpoint()?;
        Ok(Destination {
            host: host.to_owned(),
            port: parse_port(self.port)?,
            family: ip_version(self.version4, self.version6),
            local: LocalEndpoint {
                address: local_address,
                device: device.or(of_host.map(str::to_owned)),
                port: flags.cport.map(parse_port).transpose()?,
            },
            connect_timeout: flags.connect_timeout,
            receive_timeout: self.rcv_timeout,
            server_output: flags.get_server_output,
            // iperf3 sends none; where a firewall drops them, each test would begin later.
            without_echoes: true,
            file: flags.file.clone(),
            login: flags.login(rsa_padding(self.use_pkcs1_padding))?,
            ..Destination::default()
        })
    }

    /// Returns the address and the device of this end. The scope of a link-local address is a
    /// device, too: a socket at that device can have the address without its scope.
    fn local_endpoint(&self) -> Result<(Option<IpAddr>, Option<String>), String> {
        let bound = self.bind.as_deref();
        let bound = bound.map(|text| match text.split_once('%') {
            Some((host, device)) => (host, Some(device)),
            None => (text, None),
        });
        let address = bound.map(|(host, _)| resolve_address(host)).transpose()?;
        let device = self
            .bind_dev
            .clone()
            .or(bound.and_then(|(_, device)| device.map(str::to_owned)));
        Ok((address, device))
    }

    fn report_interval(&self) -> Result<Span, String> {
        let is_possible = self.interval == 0.0 || (0.1..=60.0).contains(&self.interval);
        is_possible
            .then(|| Span::from_secs_f64(self.interval))
            .ok_or_else(|| "invalid report interval (min = 0.1, max = 60 seconds)".to_owned())
    }

    /// Returns the processors of this end and of the server.
    fn processor_affinity(&self) -> Result<(Option<usize>, Option<usize>), String> {
        let Some(text) = &self.affinity else {
            return Ok((None, None));
        };
        let (here, there) = text
            .split_once(',')
            .map_or((text.as_str(), None), |(here, there)| (here, Some(there)));
        Ok((
            Some(parse_processor(here)?),
            there.map(parse_processor).transpose()?,
        ))
    }

    fn program_settings(&self) -> Result<ProgramSettings, String> {
        let form = match (self.json, self.json_stream, self.json_stream_full_output) {
            (_, true, true) => ProgramFormat::JsonStreamAndDocument,
            (_, true, false) => ProgramFormat::JsonStream,
            (true, ..) => ProgramFormat::Json,
            _ => ProgramFormat::Text,
        };
        let unit = self
            .format
            .as_deref()
            .map(str::parse::<RateUnit>)
            .transpose()?
            .unwrap_or_default();
        let (processor, of_server) = self.processor_affinity()?;
        if self.server && of_server.is_some() {
            return Err("some option you are trying to set is client only".to_owned());
        }
        Ok(ProgramSettings {
            form,
            unit,
            verbose: self.verbose,
            pidfile: self.pidfile.clone(),
            processor,
        })
    }
}

impl ServerFlags {
    fn authenticator(&self, padding: RsaPadding) -> Result<Option<LoginAuthenticator>, String> {
        const INCOMPLETE: &str =
            "you must specify a path to a valid RSA private key and a user credential file";
        let skew = match self.time_skew_threshold.map(u64::try_from) {
            None => USUAL_SKEW,
            Some(Ok(seconds @ 1..)) => Span::from_secs(seconds),
            Some(_) => return Err("skew threshold must be a positive number".to_owned()),
        };
        let (key, file) = match (&self.rsa_private_key_path, &self.authorized_users_path) {
            (None, None) => return Ok(None),
            (Some(key), Some(file)) => (key, file),
            _ => return Err(INCOMPLETE.to_owned()),
        };
        // iperf3 does not ask who else may read them.
        let read = read_secret_file(key, RsaPrivateKey::from_pem)
            .and_then(|key| Ok((key, read_secret_file(file, UserList::from_file_content)?)));
        let (key, users) = read.map_err(|why| format!("{INCOMPLETE} ({why})"))?;
        Ok(Some(LoginAuthenticator::new(users, key, padding, skew)))
    }
}

impl ClientFlags {
    fn login(&self, padding: RsaPadding) -> Result<Option<ClientLogin>, String> {
        const INCOMPLETE: &str =
            "you must specify a username, password, and path to a valid RSA public key";
        let (user, path) = match (&self.username, &self.rsa_public_key_path) {
            (None, None) => return Ok(None),
            (Some(user), Some(path)) => (user, path),
            _ => return Err(INCOMPLETE.to_owned()),
        };
        let made = rsa_public_key(path)
            .and_then(|key| read_login(user, &key, padding).map_err(|failure| failure.message));
        made.map(Some)
            .map_err(|why| format!("{INCOMPLETE} ({why})"))
    }

    fn to_request(&self, interval: Span, far_processor: Option<usize>) -> Result<Request, String> {
        let transport = if self.udp {
            Transport::Udp
        } else {
            Transport::Tcp
        };
        self.check_conflicts()?;
        let block = self.block_size(transport)?;
        let (rate, burst) = match self.bitrate {
            Some((rate, burst)) => (Some(rate), burst),
            None => (self.udp.then_some(DEFAULT_UDP_RATE), None),
        };
        let paced = self.fq_rate.filter(|_| !self.no_fq_socket_pacing);
        Ok(Request {
            transport,
            direction: data_direction(self.reverse, self.bidir),
            streams: self.stream_count()?,
            duration: Span::from_secs(self.test_duration()?),
            omit: Span::from_secs(self.omitted_seconds()?),
            bytes: self.byte_budget(block),
            block,
            rate: rate.filter(|rate| *rate > BitRate::ZERO),
            burst,
            catches_up_at_once: true,
            pacing: paced.filter(|rate| *rate > BitRate::ZERO),
            buffer: self.socket_buffer()?,
            congestion: self.congestion.clone(),
            mss: self.segment_size()?,
            no_delay: self.no_delay,
            tos: self.tos.or(self.dscp).unwrap_or(0),
            multipath: self.mptcp,
            sendfile: self.zerocopy,
            far_processor: far_processor.and_then(|number| u16::try_from(number).ok()),
            discard: self.skip_rx_copy,
            offload: self.gsro,
            wide_counters: self.udp_counters_64bit,
            dont_fragment: self.dont_fragment,
            interval,
            title: self.title.clone(),
            extra_data: self.extra_data.clone(),
            ..Request::default()
        })
    }

    fn check_conflicts(&self) -> Result<(), String> {
        if self.reverse && self.bidir {
            return Err("cannot be both reverse and bidirectional".to_owned());
        }
        let ends = [
            self.time.is_some(),
            self.bytes.is_some(),
            self.blockcount.is_some(),
        ];
        if ends.into_iter().filter(|given| *given).count() > 1 {
            return Err("only one test end condition (-t, -n, -k) may be specified".to_owned());
        }
        Ok(())
    }

    fn stream_count(&self) -> Result<u16, String> {
        let streams = u16::try_from(self.parallel.unwrap_or(1))
            .ok()
            .filter(|streams| (1..=MAX_STREAMS).contains(&(*streams).into()));
        streams.ok_or_else(|| {
            format!("number of parallel streams too large (maximum = {MAX_STREAMS})")
        })
    }

    fn test_duration(&self) -> Result<u64, String> {
        match self.time {
            None => Ok(10),
            // iperf3 goes on for ever; a day is as long as a test may be.
            Some(0) => Ok(MAX_SECONDS.unsigned_abs()),
            Some(time) if (1..=MAX_SECONDS).contains(&time) => Ok(time.unsigned_abs()),
            Some(_) => Err(format!(
                "test duration too long (maximum = {MAX_SECONDS} seconds)"
            )),
        }
    }

    fn omitted_seconds(&self) -> Result<u64, String> {
        let omit = self.omit.unwrap_or(0);
        let is_possible = (0..=MAX_OMIT).contains(&omit);
        if is_possible {
            Ok(omit.unsigned_abs())
        } else {
            Err("bogus value for --omit".to_owned())
        }
    }

    /// Zero is whatever a packet holds.
    fn block_size(&self, transport: Transport) -> Result<ByteCount, String> {
        const MAX_BLOCK: u64 = 1_048_576;
        const DATAGRAMS: std::ops::RangeInclusive<u64> = 16..=65_507;
        match (
            transport,
            self.length.map(ByteCount::get).filter(|length| *length > 0),
        ) {
            (Transport::Tcp, None) => Ok(Request::default().block),
            (Transport::Udp, None) if self.blockcount.is_some() => Ok(COMMON_DATAGRAM),
            (Transport::Udp, None) => Ok(ByteCount::ZERO),
            (Transport::Tcp, Some(length)) if length > MAX_BLOCK => Err(format!(
                "block size too large (maximum = {MAX_BLOCK} bytes)"
            )),
            (Transport::Udp, Some(length)) if !DATAGRAMS.contains(&length) => {
                let (least, most) = (DATAGRAMS.start(), DATAGRAMS.end());
                Err(format!(
                    "block size invalid (minimum = {least} bytes, maximum = {most} bytes)"
                ))
            }
            (_, Some(length)) => Ok(ByteCount::new(length)),
        }
    }

    fn byte_budget(&self, block: ByteCount) -> Option<ByteCount> {
        let blocks = self
            .blockcount
            .map(|blocks| ByteCount::new(block.get().saturating_mul(blocks)));
        self.bytes
            .or(blocks)
            .filter(|budget| *budget > ByteCount::ZERO)
    }

    fn socket_buffer(&self) -> Result<Buffer, String> {
        const MAX_WINDOW: ByteCount = ByteCount::from_mib(512);
        match self.window.filter(|window| *window > ByteCount::ZERO) {
            None => Ok(Buffer::Automatic),
            Some(window) if window > MAX_WINDOW => Err(format!(
                "socket buffer size too large (maximum = {} bytes)",
                MAX_WINDOW.get()
            )),
            Some(window) => Ok(Buffer::Request(window)),
        }
    }

    fn segment_size(&self) -> Result<Option<ByteCount>, String> {
        const MAX_MSS: i64 = 9 * 1024;
        match self.set_mss {
            None | Some(0) => Ok(None),
            Some(mss) if (1..=MAX_MSS).contains(&mss) => {
                Ok(Some(ByteCount::new(mss.unsigned_abs())))
            }
            Some(_) => Err(format!("TCP MSS too large (maximum = {MAX_MSS} bytes)")),
        }
    }
}

impl RefusedFlags {
    /// Names the first of them that is given.
    fn by_name(&self) -> Result<(), String> {
        const SCTP: &str = "SCTP is not supported";
        let given = [
            (self.sctp, "--sctp", "no SCTP support available"),
            (self.xbind.is_some(), "-X, --xbind", SCTP),
            (self.nstreams.is_some(), "--nstreams", SCTP),
        ];
        let first = given.into_iter().find(|(is_given, ..)| *is_given);
        first.map_or(Ok(()), |(_, name, why)| {
            Err(format!("{name} is not supported by fullpipe: {why}"))
        })
    }
}

impl IgnoredFlags {
    /// Returns a warning for each of them that is given.
    fn warnings(&self) -> Vec<String> {
        let given = [
            (
                self.flowlabel.is_some(),
                "-L, --flowlabel: the kernel chooses IPv6 flow labels",
            ),
            (
                self.snd_timeout.is_some(),
                "--snd-timeout: the kernel's own time applies",
            ),
            (
                self.repeating_payload,
                "--repeating-payload: each block has the same random bytes",
            ),
            (
                self.cntl_ka.is_some(),
                "--cntl-ka: each answer on the control connection has a deadline",
            ),
        ];
        given
            .iter()
            .filter(|(is_given, _)| *is_given)
            .map(|(_, why)| format!("{why}; ignored by fullpipe"))
            .collect()
    }
}

fn parse_port(number: i64) -> Result<u16, String> {
    let port = u16::try_from(number).ok().filter(|port| *port > 0);
    port.ok_or_else(|| "port number must be between 1 and 65535 inclusive".to_owned())
}

fn parse_processor(text: &str) -> Result<usize, String> {
    text.parse()
        .map_err(|_| format!("-A, --affinity: \"{text}\" is not a processor's number"))
}

/// The `host%device` of a server; the device of an IPv6 link-local address stays with it as its
/// scope.
fn split_device(text: &str) -> (&str, Option<&str>) {
    match text.split_once('%') {
        Some((host, device)) if !host.to_ascii_lowercase().starts_with("fe80:") => {
            (host, Some(device))
        }
        _ => (text, None),
    }
}

fn resolve_address(host: &str) -> Result<IpAddr, String> {
    use std::net::ToSocketAddrs;
    let found = (host, 0)
        .to_socket_addrs()
        .ok()
        .and_then(|mut found| found.next());
    found
        .map(|found| found.ip())
        .ok_or_else(|| format!("-B, --bind: {host} is not an address of this host"))
}

#[cfg(test)]
mod tests;
