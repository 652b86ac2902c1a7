use std::fs::{File, OpenOptions};
use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::thread;

use fullpipe_control::{
    AddressPrefix, LoginAuthenticator, RefusedConnections, RsaPrivateKey, TlsIdentity,
};
use fullpipe_copy::{SHARE_PORT, ShareError, ShareEvent, ShareOptions, ShareServer};
use fullpipe_iperf::{DEFAULT_PORT, SharedKey, UserList};
use fullpipe_live::{ServerPage, ServerUpdate};
use fullpipe_probe::{
    AdmissionQuota, ServeError, ServeOptions, ServerEvent, ServerLimits, StorageConfig,
    serve_clients,
};
use fullpipe_record::event::{
    Client, ClientFailure, ClientTest, ClientTotals, Listening, NotListening, Rejected,
    UnreportedFlows,
};

use super::load::rsa_padding;
use super::log_thread::LogThread;
use super::pidfile::PidFile;
use super::prelude::*;
use super::{daemon, server_text};
use crate::commands::live::LivePicture;
use crate::terminal::event_line;
use crate::values::{read_key_file, read_user_file, rsa_private_key, tls_identity};

/// Time between two counts of a test for a picture.
const PICTURE_INTERVAL: Span = Span::from_secs(1);

/// Default port for iperf2 clients.
const IPERF2_PORT: u16 = 5001;

/// The far end, for fullpipe and iperf3 clients.
///
/// Answers fullpipe and iperf3 clients, and iperf2 clients that send, any number at once, until
/// interrupted.
#[derive(Debug, Args)]
#[command(mut_arg("live", |live| live.conflicts_with("daemon")))]
pub(crate) struct ServeArguments {
    /// Port to listen on [default: 5201, and 5001 for iperf2]
    #[arg(long, short, value_parser = integer_parser(0..=u16::MAX), help_heading = "Server")]
    port: Option<u16>,
    /// Second port to listen on, if it is free; both serve all clients
    #[arg(
        long,
        value_name = "PORT",
        value_parser = integer_parser(0..=u16::MAX),
        hide_short_help = true,
        help_heading = "Server"
    )]
    iperf2_port: Option<u16>,
    /// Refuse iperf2 clients, and leave their port free
    #[arg(
        long,
        hide_short_help = true,
        help_heading = "Server",
        conflicts_with = "iperf2_port"
    )]
    no_iperf2: bool,
    /// Address to listen on [default: all]
    #[arg(long, short = 'B', value_name = "ADDRESS", help_heading = "Server")]
    bind: Option<IpAddr>,
    /// End after one test
    #[arg(long, short = '1', help_heading = "Server")]
    one_off: bool,
    /// End after so long without a test
    #[arg(long, value_parser = parse_duration, value_name = "SECONDS", help_heading = "Server")]
    idle_timeout: Option<Span>,
    /// Time limit for a client's answer
    ///
    /// Results may take three times as long, and data may pause for twelve times as long; where
    /// most of more than 8 streams pause, for three times as long.
    #[arg(
        long,
        default_value = "10",
        value_parser = parse_duration,
        value_name = "SECONDS",
        hide_short_help = true,
        help_heading = "Limits"
    )]
    client_timeout: Span,
    /// Serve only fullpipe clients that know the key in FILE
    ///
    /// The key proves who the client is. It encrypts nothing.
    #[arg(long, value_parser = read_key_file, value_name = "FILE", help_heading = "Security")]
    key_file: Option<SharedKey>,
    /// Encrypt the control connections of clients that ask for it
    ///
    /// FILE holds a certificate and its private key in PEM. The data is not encrypted.
    #[arg(long, value_parser = tls_identity, value_name = "FILE", help_heading = "Security")]
    tls: Option<TlsIdentity>,
    /// Send FILE in downloads, again and again, instead of made-up data
    #[arg(
        long,
        value_name = "FILE",
        hide_short_help = true,
        help_heading = "Data"
    )]
    file: Option<PathBuf>,
    /// Write uploads to temporary files in FOLDER
    ///
    /// The files have no name, so nothing remains of them.
    #[arg(
        long,
        value_name = "FOLDER",
        hide_short_help = true,
        help_heading = "Data"
    )]
    store: Option<PathBuf>,
    #[command(flatten)]
    share: ShareArguments,
    #[command(flatten)]
    users: UserArguments,
    #[command(flatten)]
    log: LogArguments,
    #[command(flatten)]
    limits: LimitArguments,
    #[command(flatten)]
    live: LiveArgument,
}

/// Flags of a server that ends by itself, which shares no folder.
const OF_TESTS: [&str; 2] = ["one_off", "idle_timeout"];

/// The folder that is shared.
#[derive(Debug, Args)]
#[command(next_help_heading = "Data")]
struct ShareArguments {
    /// Let `fullpipe copy` read and change FOLDER; FOLDER:ro lets it only read
    ///
    /// Clients must know the key, and reach nothing outside the folder. All is encrypted. The
    /// limits of tests are those of copies as well, and each port of tests serves copies, too.
    #[arg(
        long,
        value_parser = shared_folder,
        value_name = "FOLDER[:ro]",
        requires = "key_file",
        conflicts_with_all = OF_TESTS
    )]
    share: Option<SharedFolder>,
    /// Port for copies alone, besides that of tests
    #[arg(
        long,
        value_name = "PORT",
        default_value_t = SHARE_PORT,
        value_parser = integer_parser(0..=u16::MAX),
        requires = "share",
        conflicts_with_all = OF_TESTS,
        hide_short_help = true
    )]
    share_port: u16,
}

/// A folder to share.
#[derive(Debug, Clone, PartialEq, Eq)]
struct SharedFolder {
    folder: PathBuf,
    is_read_only: bool,
}

fn shared_folder(text: &str) -> Result<SharedFolder, String> {
    let read_only = text.strip_suffix(":ro");
    let folder = read_only.unwrap_or(text);
    if folder.is_empty() {
        return Err("name a folder".to_owned());
    }
    Ok(SharedFolder {
        folder: folder.into(),
        is_read_only: read_only.is_some(),
    })
}

/// The users of iperf3's login.
#[derive(Debug, Args)]
#[command(next_help_heading = "Security")]
struct UserArguments {
    /// RSA key in PEM, to decrypt users' names and passwords
    ///
    /// Only users who are listed are served.
    #[arg(
        long,
        value_parser = rsa_private_key,
        value_name = "FILE",
        requires = "authorized_users_path",
        hide_short_help = true
    )]
    rsa_private_key_path: Option<RsaPrivateKey>,
    /// Users, a line NAME,DIGEST each
    ///
    /// DIGEST is SHA-256 of `{NAME}PASSWORD` in hexadecimal. The file is read once.
    #[arg(long, value_parser = read_user_file, value_name = "FILE", requires = "rsa_private_key_path", hide_short_help = true)]
    authorized_users_path: Option<UserList>,
    /// Maximum difference between a user's clock and this host's
    #[arg(
        long,
        default_value = "10",
        value_parser = parse_duration,
        value_name = "SECONDS",
        requires = "rsa_private_key_path",
        hide_short_help = true
    )]
    time_skew_threshold: Span,
    /// Decrypt as iperf3 before 3.17 does (PKCS#1 v1.5), not as later versions do (OAEP)
    #[arg(long, requires = "rsa_private_key_path", hide_short_help = true)]
    use_pkcs1_padding: bool,
}

/// The background process and its files.
#[derive(Debug, Args)]
#[command(next_help_heading = "Process and log")]
struct LogArguments {
    /// Run in the background
    ///
    /// The command returns once the server can be reached.
    #[arg(long, short = 'D')]
    daemon: bool,
    /// Write the process ID to FILE while the server runs
    #[arg(long, short = 'I', value_name = "FILE")]
    pidfile: Option<PathBuf>,
    /// Append the log to FILE instead of printing it
    #[arg(long, value_name = "FILE")]
    logfile: Option<PathBuf>,
    /// Print one JSON object a line for each event
    #[arg(long, help_heading = "Output")]
    json_lines: bool,
}

/// The limits of clients and tests.
#[derive(Debug, Args)]
#[command(next_help_heading = "Limits")]
struct LimitArguments {
    /// Serve only this network, as 192.0.2.0/24; repeatable
    #[arg(long, value_name = "NETWORK")]
    allow: Vec<AddressPrefix>,
    /// Never serve this network, even if it is allowed; repeatable
    #[arg(long, value_name = "NETWORK")]
    deny: Vec<AddressPrefix>,
    /// Maximum rate of all tests together
    ///
    /// Tests that would exceed it are refused; tests that do are ended.
    #[arg(long, value_name = "RATE")]
    server_bitrate_limit: Option<BitRate>,
    /// Maximum rate of all tests of one address
    #[arg(long, hide_short_help = true, value_name = "RATE")]
    address_bitrate_limit: Option<BitRate>,
    /// Maximum duration of a test
    #[arg(long, value_parser = parse_duration, value_name = "SECONDS")]
    server_max_duration: Option<Span>,
    /// Maximum bytes of a test
    #[arg(long, hide_short_help = true, value_name = "BYTES")]
    max_bytes: Option<ByteCount>,
    /// Maximum number of tests at once
    #[arg(
        long,
        hide_short_help = true,
        value_name = "N",
        value_parser = integer_parser(0..=u32::MAX),
        default_value_t = ServerLimits::default().total.tests
    )]
    max_tests: u32,
    /// Maximum number of tests of one address (IPv6: one /64 network)
    #[arg(
        long,
        hide_short_help = true,
        value_name = "N",
        value_parser = integer_parser(0..=u32::MAX),
        default_value_t = ServerLimits::default().address.tests
    )]
    max_tests_per_address: u32,
    /// Maximum number of streams of all tests
    #[arg(
        long,
        hide_short_help = true,
        value_name = "N",
        value_parser = integer_parser(0..=u32::MAX),
        default_value_t = ServerLimits::default().total.streams
    )]
    max_streams: u32,
    /// Maximum number of streams of one address (IPv6: one /64 network)
    ///
    /// A /56 network has twice and a /48 four times as many.
    #[arg(
        long,
        hide_short_help = true,
        value_name = "N",
        value_parser = integer_parser(0..=u32::MAX),
        default_value_t = ServerLimits::default().address.streams
    )]
    max_streams_per_address: u32,
}

impl ServeArguments {
    fn serve_options(&self) -> ServeOptions {
        // Whoever chose a port, or wants one test, did not ask for another port.
        let usual = (self.port.is_none() && !self.one_off).then_some(IPERF2_PORT);
        ServeOptions {
            bind: self.bind,
            port: self.port.unwrap_or(DEFAULT_PORT),
            iperf2_port: self.iperf2_port.or(usual),
            iperf2: !self.no_iperf2,
            one_off: self.one_off,
            counts_refusals: true,
            interval: if self.live.is_wanted() {
                PICTURE_INTERVAL
            } else {
                Span::ZERO
            },
            idle_timeout: self.idle_timeout,
            timeout: self.client_timeout,
            key: self.key_file.clone(),
            authenticator: self.users.authenticator(),
            tls: self.tls.clone(),
            storage_config: StorageConfig {
                file: self.file.clone(),
                folder: self.store.clone(),
            },
            limits: self.limits.limits(),
            ..ServeOptions::default()
        }
    }

    /// Opens the folder that is shared, and listens for copies, if that is asked for.
    fn open_share(&self) -> Result<Option<ShareServer>> {
        let (Some(share), Some(key)) = (&self.share.share, &self.key_file) else {
            return Ok(None);
        };
        let limits = self.limits.limits();
        let opened = ShareServer::open_share(ShareOptions {
            folder: share.folder.clone(),
            is_read_only: share.is_read_only,
            key: key.clone(),
            bind: self.bind,
            port: Some(self.share.share_port)
                .filter(|port| *port != self.port.unwrap_or(DEFAULT_PORT)),
            allow: limits.allow,
            deny: limits.deny,
            copies: limits.total.tests,
            copies_of_one: limits.address.tests,
            rate: limits.total.rate,
            duration: limits.duration,
            bytes: limits.bytes,
        });
        opened.map(Some).map_err(|error| match &error {
            ShareError::Listen(error) => Failure::cannot_listen(error, "--share-port"),
            ShareError::Folder { .. } => usage_failure(error.to_string()),
            ShareError::Start(_) => run_failure(error.to_string()),
        })
    }

    /// Returns the line that says what is shared.
    fn shared_line(&self, address: SocketAddr, own: Option<SocketAddr>) -> String {
        let share = self.share.share.as_ref();
        let folder = share
            .map(|share| share.folder.display().to_string())
            .unwrap_or_default();
        let rights = if share.is_some_and(|share| share.is_read_only) {
            "read-only"
        } else {
            "to read and change"
        };
        let own = own.map_or_else(String::new, |own| format!(" and {own}"));
        format!("sharing {folder} on {address}{own}, {rights}")
    }
}

impl UserArguments {
    fn authenticator(&self) -> Option<LoginAuthenticator> {
        let (users, key) = self
            .authorized_users_path
            .clone()
            .zip(self.rsa_private_key_path.clone())?;
        Some(LoginAuthenticator::new(
            users,
            key,
            rsa_padding(self.use_pkcs1_padding),
            self.time_skew_threshold,
        ))
    }
}

impl LimitArguments {
    fn limits(&self) -> ServerLimits {
        let usual = ServerLimits::default();
        ServerLimits {
            allow: self.allow.clone(),
            deny: self.deny.clone(),
            address: AdmissionQuota {
                tests: self.max_tests_per_address,
                streams: self.max_streams_per_address,
                rate: self.address_bitrate_limit,
                ..usual.address
            },
            total: AdmissionQuota {
                tests: self.max_tests,
                streams: self.max_streams,
                rate: self.server_bitrate_limit,
                ..usual.total
            },
            duration: self.server_max_duration,
            bytes: self.max_bytes,
        }
    }
}

impl RunCommand for ServeArguments {
    fn output(&self) -> OutputChoice<'_> {
        (OutputFormat::from_flags(false, self.log.json_lines), None)
    }

    fn run(&self, _: &Terminal) -> Result {
        run(self)
    }
}

fn run(arguments: &ServeArguments) -> Result {
    if arguments.log.daemon && !daemon::is_detached() {
        return daemon::restart_in_background();
    }
    let interrupts = arguments.live.interrupt_flags()?;
    let flag = &interrupts.flag;
    let picture = arguments
        .live
        .start_picture(ServerPage::default, &interrupts)?;
    let share = arguments.open_share()?;
    let mut options = arguments.serve_options();
    options.share = share.as_ref().map(ShareServer::handover);
    let mut file = ServerLog::open(&arguments.log)?;
    let log = LogThread::start(move |noted| file.write_entry(noted));
    let mut observer = ServerObserver {
        arguments,
        log: &log,
        share_address: share.as_ref().and_then(ShareServer::listen_address),
        is_share_unlogged: share.is_some(),
        picture,
        pid_file: None,
    };
    let stop = AtomicBool::new(false);
    let served = thread::scope(|threads| {
        if let Some(share) = share {
            let (stop, log) = (&stop, &log);
            threads.spawn(move || {
                share.serve_clients(stop, &mut |event| log.log_event(LogEntry::Share(event)));
            });
        }
        let served = serve_clients(&options, server_text::test_printer, flag, &mut |event| {
            observer.observe_event(event, flag);
        });
        stop.store(true, Ordering::Relaxed);
        served
    });
    let ServerObserver {
        picture, pid_file, ..
    } = observer;
    log.finish();
    drop(picture);
    pid_file.transpose()?;
    served.map_err(|error| serve_failure(&error))
}

/// The places that hear of a server's events: its log, its picture, and the file with its process
/// number.
struct ServerObserver<'s> {
    arguments: &'s ServeArguments,
    log: &'s LogThread<LogEntry>,
    /// Port for copies alone.
    share_address: Option<SocketAddr>,
    /// True until it is logged that a folder is shared.
    is_share_unlogged: bool,
    picture: Option<LivePicture<ServerUpdate>>,
    pid_file: Option<Result<PidFile>>,
}

impl ServerObserver<'_> {
    /// Notes an event. Sets `flag`, which ends the server, if its process number cannot be written.
    fn observe_event(&mut self, event: ServerEvent, flag: &AtomicBool) {
        let listening = match event {
            ServerEvent::Listening(address) => Some(address),
            _ => None,
        };
        if listening.is_some() && !self.writes_pid_file() {
            flag.store(true, Ordering::Relaxed);
            return;
        }
        if let Some(picture) = &self.picture {
            picture.send(ServerUpdate {
                line: describe_event(&event),
                event: event.clone(),
            });
        }
        self.log.log_event(LogEntry::Server(Box::new(event)));
        if let Some(address) = listening
            && std::mem::take(&mut self.is_share_unlogged)
        {
            let own = self.share_address;
            self.log.log_event(LogEntry::Sharing(
                own.unwrap_or(address),
                self.arguments.shared_line(address, own),
            ));
        }
    }

    /// Writes the process number once, if that is asked for: only a server that can be reached
    /// writes that it runs. Returns false if it cannot be written.
    fn writes_pid_file(&mut self) -> bool {
        let (Some(path), None) = (&self.arguments.log.pidfile, &self.pid_file) else {
            return true;
        };
        let written = PidFile::write(path, &format!("{}\n", std::process::id()));
        let written = written.map_err(|error| {
            let name = path.display();
            run_failure(format!(
                "cannot write the process number into {name}: {error}"
            ))
        });
        self.pid_file.insert(written).is_ok()
    }
}

/// An entry of the log.
enum LogEntry {
    Server(Box<ServerEvent>),
    /// A folder is shared on this address, with the line that says so.
    Sharing(SocketAddr, String),
    Share(ShareEvent),
}

impl LogEntry {
    /// Returns one line; none of what goes on within a test.
    fn text_line(&self) -> Option<String> {
        match self {
            Self::Server(event) => describe_event(event),
            Self::Sharing(_, line) => Some(line.clone()),
            Self::Share(event) => Some(describe_copy(event)),
        }
    }

    /// Returns the record; `None` of events within a test.
    fn to_event(&self) -> Option<Event> {
        match self {
            Self::Server(event) => as_event(event),
            Self::Sharing(address, _) => Some(Event::Listening(Listening { address: *address })),
            Self::Share(event) => Some(copy_as_event(event.clone())),
        }
    }
}

/// Log of events.
struct ServerLog {
    file: Option<File>,
    json: bool,
    /// True for a daemon: the process that starts it waits for the line that it can be reached, and
    /// ends after that.
    silent_after_listening: bool,
    silent: bool,
}

impl ServerLog {
    fn open(arguments: &LogArguments) -> Result<Self> {
        let file = arguments.logfile.as_ref().map(|path| {
            let opened = OpenOptions::new().create(true).append(true).open(path);
            opened.map_err(cannot(&format!("write the log {}", path.display())))
        });
        Ok(Self {
            file: file.transpose()?,
            json: arguments.json_lines,
            silent_after_listening: arguments.daemon,
            silent: false,
        })
    }

    fn write_entry(&mut self, noted: &LogEntry) {
        let now = jiff::Timestamp::now()
            .round(jiff::Unit::Second)
            .map(|now| now.to_string())
            .unwrap_or_default();
        let line = if self.json {
            noted.to_event().map(|event| event_line(&event, &now))
        } else {
            noted.text_line()
        };
        let Some(line) = line else { return };
        if let Some(file) = &mut self.file {
            let stamped = if self.json {
                format!("{line}\n")
            } else {
                format!("{now} {line}\n")
            };
            // A full disk is no reason to stop serving.
            let _ = file.write_all(stamped.as_bytes());
        }
        if !self.silent && (self.file.is_none() || self.silent_after_listening) {
            Terminal::print_line(&line);
        }
        self.silent |= self.silent_after_listening;
    }
}

/// One line; none of what goes on within a test.
fn describe_event(event: &ServerEvent) -> Option<String> {
    Some(match event {
        ServerEvent::Connected { .. } | ServerEvent::Interval { .. } => return None,
        ServerEvent::Listening(address) => format!("listening on {address}"),
        ServerEvent::NotListening { why } => {
            format!("{why}; going on without: iperf2 clients may call the other port")
        }
        ServerEvent::Began { client, request } => format!("{client}: {}", describe_test(request)),
        ServerEvent::BeganIperf2 { client } => format!("{client}: receiving, 1 stream of iperf2"),
        ServerEvent::Ended {
            client,
            bytes,
            rate,
            ..
        } => format!("{client}: done at {rate}, {bytes}"),
        ServerEvent::Failed { client, why, .. } => format!("{client}: {why}"),
        ServerEvent::Rejected(refused) => rejected_line(refused),
        ServerEvent::UnreportedFlows { flows } => {
            format!(
                "{} of iperf2 datagrams began",
                count_noun(flows, "more flow")
            )
        }
        ServerEvent::Idle => "nobody came: ending".to_owned(),
    })
}

fn describe_test(request: &Request) -> String {
    let direction = match request.direction {
        Direction::Upload => "receiving",
        Direction::Download => "sending",
        Direction::Both => "sending and receiving",
    };
    format!("{direction}, {}", count_noun(request.streams, "stream"))
}

/// Returns the record of an event; `None` for those within a test.
fn as_event(event: &ServerEvent) -> Option<Event> {
    Some(match event.clone() {
        ServerEvent::Connected { .. } | ServerEvent::Interval { .. } => return None,
        ServerEvent::Listening(address) => Event::Listening(Listening { address }),
        ServerEvent::NotListening { why } => Event::NotListening(NotListening { why }),
        ServerEvent::Began { client, request } => {
            Event::Began(Box::new(ClientTest { client, request }))
        }
        ServerEvent::BeganIperf2 { client } => Event::BeganIperf2(Client { client }),
        ServerEvent::Ended {
            client,
            bytes,
            rate,
            ..
        } => Event::Ended(ClientTotals {
            client,
            bytes,
            rate,
        }),
        ServerEvent::Failed { client, why, .. } => Event::Failed(ClientFailure { client, why }),
        ServerEvent::Rejected(refused) => rejected_event(refused),
        ServerEvent::UnreportedFlows { flows } => Event::UnreportedFlows(UnreportedFlows { flows }),
        ServerEvent::Idle => Event::Idle,
    })
}

fn describe_copy(event: &ShareEvent) -> String {
    match event {
        ShareEvent::Copied {
            client,
            bytes,
            rate,
        } => format!("{client}: copied {bytes} at {rate}"),
        ShareEvent::Failed { client, why } => format!("{client}: {why}"),
        ShareEvent::Rejected(refused) => rejected_line(refused),
    }
}

fn copy_as_event(event: ShareEvent) -> Event {
    match event {
        ShareEvent::Copied {
            client,
            bytes,
            rate,
        } => Event::Ended(ClientTotals {
            client,
            bytes,
            rate,
        }),
        ShareEvent::Failed { client, why } => Event::Failed(ClientFailure { client, why }),
        ShareEvent::Rejected(refused) => rejected_event(refused),
    }
}

/// Returns one line for connections that a server has refused.
pub(super) fn rejected_line(refused: &RefusedConnections) -> String {
    let RefusedConnections {
        client,
        why,
        connections,
    } = refused;
    match connections {
        1 => format!("{client}: rejected: {why}"),
        _ => format!("{connections} more connections rejected, the last of {client}: {why}"),
    }
}

/// Returns the record of connections that a server has refused.
pub(super) fn rejected_event(refused: RefusedConnections) -> Event {
    let RefusedConnections {
        client,
        why,
        connections,
    } = refused;
    Event::Rejected(Rejected {
        client,
        why,
        connections,
    })
}

fn serve_failure(error: &ServeError) -> Failure {
    match error {
        ServeError::Listen(error) => Failure::cannot_listen(error, "--port"),
        ServeError::File(_) => usage_failure(error.to_string()),
        ServeError::Descriptors { .. } => Failure::new(LACKING, error.to_string()),
        ServeError::Start(_) => run_failure(error.to_string()),
    }
}
