mod log;
mod web;

use self::log::{LogEntry, ServerLog, ServerObserver};
pub(super) use self::log::{rejected_event, rejected_line};
use self::web::WebArguments;
pub(super) use self::web::read_identity;
use std::net::{IpAddr, SocketAddr};
use std::thread;

use crate::live::ServerPage;
use fullpipe_control::{AddressPrefix, LoginAuthenticator, RsaPrivateKey, TlsIdentity};
use fullpipe_copy::{SHARE_PORT, ShareError, ShareOptions, ShareServer};
use fullpipe_experiment::serve_far_end;
use fullpipe_iperf::{DEFAULT_PORT, ServerKey, SharedKey, UserList};
use fullpipe_probe::{
    AdmissionQuota, ServeError, ServeOptions, ServerLimits, StorageConfig, serve_clients,
};

use super::host::JournalFolder;
use super::load::rsa_padding;
use super::log_thread::LogThread;
use super::prelude::*;
use super::{daemon, server_text};
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
    /// Serve whoever started this over ssh, over standard input and output
    #[arg(long, hide = true)]
    far_end: bool,
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
    /// Serve only tests with a ticket that was sealed with the secret in FILE
    ///
    /// A ticket permits one client one test, with bounds of time, streams, bytes and rate. Whoever
    /// issues tickets has the secret, too; each server has its own. It encrypts nothing.
    #[arg(
        long,
        value_parser = read_key_file,
        value_name = "FILE",
        conflicts_with_all = ["key_file", "share", "web", "iperf2_port"],
        hide_short_help = true,
        help_heading = "Security"
    )]
    tickets: Option<SharedKey>,
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
    web: WebArguments,
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
            key: match (&self.tickets, &self.key_file) {
                (Some(secret), _) => Some(ServerKey::OfTickets(secret.clone())),
                (None, key) => key.clone().map(ServerKey::Shared),
            },
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
        let folder = share.map_text(|share| share.folder.display().to_string());
        let rights = if share.is_some_and(|share| share.is_read_only) {
            "read-only"
        } else {
            "to read and change"
        };
        let own = own.map_text(|own| format!(" and {own}"));
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
    if arguments.far_end {
        let journal = JournalFolder::default().watched()?;
        let interrupt = super::interrupt_flag()?;
        let port = arguments.port.unwrap_or(0);
        let printer = server_text::test_printer;
        return serve_far_end(arguments.bind, port, journal, printer, &interrupt)
            .map_err(|error| serve_failure(&error));
    }
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
    options.web = arguments.web.web_options()?;
    let mut file = ServerLog::open(&arguments.log, arguments.web.open_archive()?)?;
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

fn serve_failure(error: &ServeError) -> Failure {
    match error {
        ServeError::Listen(error) => Failure::cannot_listen(error, "--port"),
        ServeError::ListenForWeb(error) => Failure::cannot_listen(error, "--web"),
        ServeError::File(_) => usage_failure(error.to_string()),
        ServeError::Descriptors { .. } => Failure::new(LACKING, error.to_string()),
        ServeError::Start(_) => run_failure(error.to_string()),
    }
}
