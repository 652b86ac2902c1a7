use std::fs::{File, OpenOptions};
use std::io::Write;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use fullpipe_control::{Authenticator, RsaPrivateKey, TlsIdentity};
use fullpipe_iperf::{DEFAULT_PORT, Key, Users};
use fullpipe_probe::{Limits, Network, Quota, ServeError, ServeOptions, ServerEvent, StorageConfig, serve};
use fullpipe_record::event::{Client, ClientFailure, ClientTest, ClientTotals, Listening, NotListening, TurnedAway};
use fullpipe_record::{Direction, Event};
use fullpipe_units::{BitRate, ByteCount, Span};

use super::load::padding;
use super::{daemon, server_text};
use crate::cli::{duration, key, rsa_private_key, tls_identity, users};
use crate::failure::{FAILED, Failure, LACKING, USAGE};
use crate::terminal::{Terminal, event_line};

/// Where iperf2 clients call.
const IPERF2_PORT: u16 = 5001;

/// Answers fullpipe and iperf3 clients, and iperf2 clients that send (TCP), any number at once, until interrupted.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Port to listen on [default: 5201, and 5001 for iperf2 clients]
    #[arg(long, short)]
    port: Option<u16>,
    /// Another port to listen on, if it is free; all clients are served on both
    #[arg(long, value_name = "PORT")]
    iperf2_port: Option<u16>,
    /// Turn iperf2 clients away, and leave their port to others
    #[arg(long, conflicts_with = "iperf2_port")]
    no_iperf2: bool,
    /// Address to listen on; every address if not given
    #[arg(long, short = 'B', value_name = "ADDRESS")]
    bind: Option<IpAddr>,
    /// End after one test
    #[arg(long, short = '1')]
    one_off: bool,
    /// End after so long without a test
    #[arg(long, value_parser = duration, value_name = "SECONDS")]
    idle_timeout: Option<Span>,
    /// How long a client may take for an answer; for its results it has three times as long, and data may stand still for
    /// twelve times as long
    #[arg(long, default_value = "10", value_parser = duration, value_name = "SECONDS")]
    timeout: Span,
    /// Serve only fullpipe clients that know the key in FILE; nothing is encrypted
    #[arg(long, value_parser = key, value_name = "FILE")]
    key_file: Option<Key>,
    /// Encrypt the control connections of fullpipe clients that ask for it; FILE holds a certificate and its private key
    /// in PEM. The data is not encrypted
    #[arg(long, value_parser = tls_identity, value_name = "FILE")]
    tls: Option<TlsIdentity>,
    /// Send FILE in downloads, over and over, instead of made-up data
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Write uploads to files in FOLDER that have no name: nothing remains of them
    #[arg(long, value_name = "FOLDER")]
    store: Option<PathBuf>,
    #[command(flatten)]
    users: UserArguments,
    #[command(flatten)]
    log: LogArguments,
    #[command(flatten)]
    limits: LimitArguments,
}

/// By what users are known, as iperf3 has them.
#[derive(Debug, clap::Args)]
struct UserArguments {
    /// Serve only users who encrypt their names and passwords with the public part of this RSA key; FILE is PEM
    #[arg(long, value_parser = rsa_private_key, value_name = "FILE", requires = "authorized_users_path", help_heading = "Users")]
    rsa_private_key_path: Option<RsaPrivateKey>,
    /// The users, read once: a line `NAME,DIGEST` each, with SHA-256 of `{NAME}PASSWORD` in hexadecimal
    #[arg(long, value_parser = users, value_name = "FILE", requires = "rsa_private_key_path", help_heading = "Users")]
    authorized_users_path: Option<Users>,
    /// By how much a user's clock may differ from ours
    #[arg(long, default_value = "10", value_parser = duration, value_name = "SECONDS", requires = "rsa_private_key_path", help_heading = "Users")]
    time_skew_threshold: Span,
    /// Take what iperf3 before 3.17 encrypts (PKCS#1 v1.5), not what later ones do (OAEP)
    #[arg(long, requires = "rsa_private_key_path", help_heading = "Users")]
    use_pkcs1_padding: bool,
}

/// Where it runs, and what it leaves there.
#[derive(Debug, clap::Args)]
struct LogArguments {
    /// Run in the background, once it can be reached
    #[arg(long, short = 'D')]
    daemon: bool,
    /// Write the process number into FILE while it runs
    #[arg(long, short = 'I', value_name = "FILE")]
    pidfile: Option<PathBuf>,
    /// Append what happens to FILE instead of printing it
    #[arg(long, value_name = "FILE")]
    logfile: Option<PathBuf>,
    /// Print one JSON object a line, as things happen
    #[arg(long)]
    json_lines: bool,
}

/// Who may do what.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Limits")]
struct LimitArguments {
    /// Serve only this address or network, as 192.0.2.0/24; may be given again
    #[arg(long, value_name = "NETWORK")]
    allow: Vec<Network>,
    /// Do not serve this address or network, whatever is allowed; may be given again
    #[arg(long, value_name = "NETWORK")]
    deny: Vec<Network>,
    /// Rate of all tests together; tests that would exceed it are refused, those that do are ended
    #[arg(long, value_name = "RATE")]
    server_bitrate_limit: Option<BitRate>,
    /// The same for all tests of one address
    #[arg(long, value_name = "RATE")]
    address_bitrate_limit: Option<BitRate>,
    /// Longest test
    #[arg(long, value_parser = duration, value_name = "SECONDS")]
    server_max_duration: Option<Span>,
    /// Most bytes of one test
    #[arg(long, value_name = "BYTES")]
    max_bytes: Option<ByteCount>,
    /// Most tests at once
    #[arg(long, value_name = "N", default_value_t = Limits::default().total.tests)]
    max_tests: u32,
    /// Most tests of one address at once (of IPv6, one /64 network)
    #[arg(long, value_name = "N", default_value_t = Limits::default().address.tests)]
    max_tests_per_address: u32,
    /// Most streams of all tests
    #[arg(long, value_name = "N", default_value_t = Limits::default().total.streams)]
    max_streams: u32,
    /// Most streams of all tests of one address
    #[arg(long, value_name = "N", default_value_t = Limits::default().address.streams)]
    max_streams_per_address: u32,
}

impl Arguments {
    pub(crate) fn json_lines(&self) -> bool {
        self.log.json_lines
    }

    fn options(&self) -> ServeOptions {
        // Whoever chose a port, or wants one test, did not ask for another port.
        let usual = (self.port.is_none() && !self.one_off).then_some(IPERF2_PORT);
        ServeOptions {
            bind: self.bind,
            port: self.port.unwrap_or(DEFAULT_PORT),
            iperf2_port: self.iperf2_port.or(usual),
            iperf2: !self.no_iperf2,
            one_off: self.one_off,
            interval: Span::ZERO,
            idle_timeout: self.idle_timeout,
            timeout: self.timeout,
            key: self.key_file.clone(),
            authenticator: self.users.authenticator(),
            tls: self.tls.clone(),
            storage_config: StorageConfig { file: self.file.clone(), folder: self.store.clone() },
            limits: self.limits.limits(),
        }
    }
}

impl UserArguments {
    fn authenticator(&self) -> Option<Authenticator> {
        let (users, key) = self.authorized_users_path.clone().zip(self.rsa_private_key_path.clone())?;
        Some(Authenticator::new(users, key, padding(self.use_pkcs1_padding), self.time_skew_threshold))
    }
}

impl LimitArguments {
    fn limits(&self) -> Limits {
        let usual = Limits::default();
        Limits {
            allow: self.allow.clone(),
            deny: self.deny.clone(),
            address: Quota {
                tests: self.max_tests_per_address,
                streams: self.max_streams_per_address,
                rate: self.address_bitrate_limit,
                ..usual.address
            },
            total: Quota {
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

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    if arguments.log.daemon && !daemon::is_detached() {
        return daemon::detach();
    }
    let flag = super::interrupt_flag()?;
    let log = LogThread::start(Log::open(&arguments.log)?);
    let mut pid_file = PidFile { path: arguments.log.pidfile.as_deref(), written: Ok(false) };
    let served = serve(&arguments.options(), server_text::printer, &flag, &mut |event| {
        // Only who can be reached says that it runs.
        if matches!(event, ServerEvent::Listening(_)) && !pid_file.write() {
            flag.store(true, Ordering::Relaxed);
        }
        log.note(event);
    });
    log.finish();
    pid_file.remove()?;
    served.map_err(|error| explain(&error))
}

/// The thread that writes events, so that a reader who stops reading does not stop the server.
struct LogThread {
    events: SyncSender<ServerEvent>,
    thread: JoinHandle<()>,
}

/// Events that may wait to be written; more are lost.
const WAITING: usize = 1024;

/// How long the last events may take to be written.
const LAST_WORDS: Duration = Duration::from_secs(1);

impl LogThread {
    fn start(mut log: Log) -> Self {
        let (events, waiting) = sync_channel::<ServerEvent>(WAITING);
        Self { events, thread: thread::spawn(move || waiting.iter().for_each(|event| log.note(&event))) }
    }

    fn note(&self, event: ServerEvent) {
        let _ = self.events.try_send(event);
    }

    fn finish(self) {
        drop(self.events);
        let deadline = Instant::now() + LAST_WORDS;
        while !self.thread.is_finished() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Where events go.
struct Log {
    file: Option<File>,
    json: bool,
    /// Who started a daemon waits for the line that says that it can be reached, and is gone after it.
    silent_after_listening: bool,
    silent: bool,
}

impl Log {
    fn open(arguments: &LogArguments) -> Result<Self, Failure> {
        let open = |path: &PathBuf| {
            let opened = OpenOptions::new().create(true).append(true).open(path);
            opened.map_err(|error| Failure::new(FAILED, format!("cannot write the log {}: {error}", path.display())))
        };
        Ok(Self {
            file: arguments.logfile.as_ref().map(open).transpose()?,
            json: arguments.json_lines,
            silent_after_listening: arguments.daemon,
            silent: false,
        })
    }

    fn note(&mut self, event: &ServerEvent) {
        let now = jiff::Timestamp::now().round(jiff::Unit::Second).map(|now| now.to_string()).unwrap_or_default();
        let line = if self.json { as_event(event).map(|event| event_line(&event, &now)) } else { describe(event) };
        let Some(line) = line else { return };
        if let Some(file) = &mut self.file {
            let stamped = if self.json { format!("{line}\n") } else { format!("{now} {line}\n") };
            // A full disk is no reason to stop serving.
            let _ = file.write_all(stamped.as_bytes());
        }
        if !self.silent && (self.file.is_none() || self.silent_after_listening) {
            Terminal::line(&line);
        }
        self.silent |= self.silent_after_listening;
    }
}

/// A file with our process number, for as long as we run.
struct PidFile<'p> {
    path: Option<&'p Path>,
    written: Result<bool, Failure>,
}

impl PidFile<'_> {
    /// Writes it, once; whether that is possible.
    fn write(&mut self) -> bool {
        if let (Some(path), Ok(false)) = (self.path, &self.written) {
            let written = std::fs::write(path, format!("{}\n", std::process::id())).map(|()| true);
            self.written = written.map_err(|error| {
                Failure::new(FAILED, format!("cannot write the process number into {}: {error}", path.display()))
            });
        }
        self.written.is_ok()
    }

    fn remove(self) -> Result<(), Failure> {
        if let (Some(path), true) = (self.path, self.written?) {
            // Whoever took it away has done it for us.
            let _ = std::fs::remove_file(path);
        }
        Ok(())
    }
}

/// One line; none of what goes on within a test.
fn describe(event: &ServerEvent) -> Option<String> {
    Some(match event {
        ServerEvent::Connected { .. } | ServerEvent::Interval { .. } => return None,
        ServerEvent::Listening(address) => format!("listening on {address}"),
        ServerEvent::NotListening { why } => format!("{why}; going on without: iperf2 clients may call the other port"),
        ServerEvent::Began { client, request } => {
            let streams =
                if request.streams == 1 { "1 stream".to_owned() } else { format!("{} streams", request.streams) };
            let direction = match request.direction {
                Direction::Upload => "receiving",
                Direction::Download => "sending",
                Direction::Both => "sending and receiving",
            };
            format!("{client}: {direction}, {streams}")
        }
        ServerEvent::BeganIperf2 { client } => format!("{client}: receiving, 1 stream of iperf2"),
        ServerEvent::Ended { client, bytes, rate, .. } => format!("{client}: done at {rate}, {bytes}"),
        ServerEvent::Failed { client, why, .. } => format!("{client}: {why}"),
        ServerEvent::TurnedAway { client, why, connections: 1 } => format!("{client}: turned away, because {why}"),
        ServerEvent::TurnedAway { client, why, connections } => {
            format!("{connections} connections turned away; the last, of {client}, because {why}")
        }
        ServerEvent::Idle => "nobody came: ending".to_owned(),
    })
}

/// Returns the record of an event; `None` for those within a test.
fn as_event(event: &ServerEvent) -> Option<Event> {
    Some(match event.clone() {
        ServerEvent::Connected { .. } | ServerEvent::Interval { .. } => return None,
        ServerEvent::Listening(address) => Event::Listening(Listening { address }),
        ServerEvent::NotListening { why } => Event::NotListening(NotListening { why }),
        ServerEvent::Began { client, request } => Event::Began(Box::new(ClientTest { client, request })),
        ServerEvent::BeganIperf2 { client } => Event::BeganIperf2(Client { client }),
        ServerEvent::Ended { client, bytes, rate, .. } => Event::Ended(ClientTotals { client, bytes, rate }),
        ServerEvent::Failed { client, why, .. } => Event::Failed(ClientFailure { client, why }),
        ServerEvent::TurnedAway { client, why, connections } => {
            Event::TurnedAway(TurnedAway { client, why: why.to_owned(), connections })
        }
        ServerEvent::Idle => Event::Idle,
    })
}

fn explain(error: &ServeError) -> Failure {
    use std::io::ErrorKind;
    match error {
        ServeError::Listen { cause, .. } if cause.kind() == ErrorKind::PermissionDenied => {
            Failure::new(LACKING, format!("{error}; ports below 1024 are root's: choose another with --port"))
        }
        ServeError::Listen { cause, .. } if cause.kind() == ErrorKind::AddrInUse => {
            Failure::new(FAILED, format!("{error}; another server has it: stop that, or choose another with --port"))
        }
        ServeError::File(_) => Failure::new(USAGE, error.to_string()),
        _ => Failure::new(FAILED, error.to_string()),
    }
}
