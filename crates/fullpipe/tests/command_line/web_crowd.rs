//! A thousand clients of the web server at once, of which many are hostile or slow.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;
use std::rc::Rc;
use std::thread;
use std::time::Duration;

use fullpipe_control::{ControlConnection, WebClientTls};
use fullpipe_testkit::{Running, free_port, load_slot, wait_for_listener, within};
use tokio::io::AsyncReadExt;
use tokio::net::TcpSocket;
use tokio::sync::Semaphore;
use tokio::task::{JoinSet, LocalSet};
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

use crate::common::{fullpipe, run};
use crate::hostile::raise_descriptors;

/// All clients, those of them that are slow, and the hostile ones in each state.
const CLIENTS: usize = 1000;
const SLOW: usize = 200;
const HOSTILE: usize = 50;

/// Clients that begin their handshakes at once; all of them take processor time of this test, too.
const AT_ONCE: usize = 16;

/// Time after which the server ends a client that does nothing, and a transfer that stalls.
pub(super) const CLIENT_TIMEOUT: Duration = Duration::from_secs(3);
pub(super) const STALL_TIMEOUT: Duration = Duration::from_secs(9);

/// Longest time that a client may wait that is neither hostile nor slow, and what the server may take
/// beyond a deadline while this test has the processors.
const PROMPT: Duration = Duration::from_secs(5);

/// Time between two parts of what a slow or a hostile client sends.
const GAP: Duration = Duration::from_millis(200);

/// Parts in which a slow client sends its request.
const SLOW_PARTS: usize = 4;

/// Most memory of the server while it has all those clients, in KiB: 300 MB.
const MAX_KIB: u64 = 300_000_000 / 1024;

/// State of a TCP connection that neither end has closed (`TCP_ESTABLISHED`).
const ESTABLISHED: u8 = 1;

/// A state in which hostile clients hold a connection.
pub(super) struct HostileState {
    pub(super) name: &'static str,
    /// False if they do not even begin TLS.
    pub(super) is_encrypted: bool,
    /// What they send at once.
    pub(super) begin: Vec<u8>,
    /// What they send again and again after that.
    pub(super) again: Vec<u8>,
    /// True if they read what the server sends.
    pub(super) reads: bool,
    /// The time that the server permits for this.
    pub(super) deadline: Duration,
}

impl HostileState {
    /// Returns the state of clients that send `begin` over TLS, read, and do nothing more.
    pub(super) fn new(name: &'static str, begin: Vec<u8>, deadline: Duration) -> Self {
        Self {
            name,
            is_encrypted: true,
            begin,
            again: Vec::new(),
            reads: true,
            deadline,
        }
    }

    /// Returns the state of clients that send `again` five times a second, too.
    pub(super) fn with_more(self, again: &[u8]) -> Self {
        Self {
            again: again.to_vec(),
            ..self
        }
    }

    pub(super) fn without_reading(self) -> Self {
        Self {
            reads: false,
            ..self
        }
    }

    pub(super) fn without_tls(self) -> Self {
        Self {
            is_encrypted: false,
            ..self
        }
    }
}

/// What other clients ask for.
pub(super) struct HonestRequest {
    pub(super) name: &'static str,
    pub(super) bytes: Vec<u8>,
    /// Returns true if this answer is whole.
    pub(super) is_answered: fn(&[u8]) -> bool,
}

/// All clients of one version of HTTP.
pub(super) struct WebCrowd {
    pub(super) speaks_http2: bool,
    pub(super) hostile: Vec<HostileState>,
    pub(super) honest: Vec<HonestRequest>,
    /// Arguments with which this program is a client, too, before the address of the server.
    pub(super) measures: Option<&'static [&'static str]>,
}

/// How clients reach the server.
struct Reach {
    server: SocketAddr,
    tls: WebClientTls,
    at_once: Semaphore,
}

impl Reach {
    async fn connect(&self, from: Ipv4Addr, is_encrypted: bool) -> io::Result<ControlConnection> {
        let _turn = self.at_once.acquire().await.map_err(io::Error::other)?;
        let socket = TcpSocket::new_v4()?;
        socket.bind((from, 0).into())?;
        let stream = socket.connect(self.server).await?;
        if is_encrypted {
            self.tls.connect_tls("localhost", stream).await
        } else {
            Ok(ControlConnection::Plain(stream))
        }
    }

    /// Does what a hostile client does. Returns the time until the server has ended the connection.
    async fn outlast(&self, from: Ipv4Addr, state: &HostileState) -> io::Result<Duration> {
        let mut connection = self.connect(from, state.is_encrypted).await?;
        let begun = Instant::now();
        // The server may end the connection before it has read all of it.
        let mut sent = timeout(GAP, connection.send_bytes(&state.begin)).await;
        while fullpipe_sys::tcp_info(connection.tcp_stream())?.state == Some(ESTABLISHED) {
            if begun.elapsed() > state.deadline + PROMPT {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let due = Instant::now() + GAP;
            if state.reads && ends_by(&mut connection, due).await {
                break;
            }
            sleep_until(due).await;
            if sent.is_ok() {
                sent = timeout(GAP, connection.send_bytes(&state.again)).await;
            }
        }
        Ok(begun.elapsed())
    }

    /// Sends `asked` in so many `parts`. Returns the time until the answer was whole.
    async fn ask(
        &self,
        from: Ipv4Addr,
        asked: &HonestRequest,
        parts: usize,
    ) -> io::Result<Duration> {
        let mut connection = self.connect(from, true).await?;
        let begun = Instant::now();
        for part in asked.bytes.chunks(asked.bytes.len().div_ceil(parts)) {
            connection.send_bytes(part).await?;
            if parts > 1 {
                sleep(GAP).await;
            }
        }
        let mut answer = Vec::new();
        while !(asked.is_answered)(&answer) {
            if timeout(4 * PROMPT, connection.read_buf(&mut answer)).await?? == 0 {
                let said = String::from_utf8_lossy(&answer[..answer.len().min(300)]).into_owned();
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, said));
            }
        }
        Ok(begun.elapsed())
    }
}

/// Reads whatever comes until `due`. Returns true if the connection ends before.
async fn ends_by(connection: &mut ControlConnection, due: Instant) -> bool {
    let mut buffer = vec![0; 16 << 10];
    loop {
        match timeout_at(due, connection.read(&mut buffer)).await {
            Err(_) => return false,
            Ok(Ok(count)) if count > 0 => {}
            Ok(_) => return true,
        }
    }
}

impl WebCrowd {
    /// Lets all clients do what they do to a server of their own. It must end every hostile one by
    /// its deadline, serve all others, and hold no more memory than it may and nothing afterwards.
    pub(super) fn assert_withstood(self) {
        let _load = load_slot();
        raise_descriptors();
        let port = free_port();
        let web = format!("127.0.0.1:{port}");
        let seconds = CLIENT_TIMEOUT.as_secs().to_string();
        let server = Running::start(&mut fullpipe(&[
            "serve",
            "-p",
            "0",
            "-B",
            "127.0.0.1",
            "--no-iperf2",
            "--web",
            &web,
            "--client-timeout",
            &seconds,
        ]));
        wait_for_listener(port);
        let tls = WebClientTls::unverified().unwrap();
        let reach = Rc::new(Reach {
            server: (Ipv4Addr::LOCALHOST, port).into(),
            tls: if self.speaks_http2 {
                tls.preferring_http2()
            } else {
                tls
            },
            at_once: Semaphore::new(AT_ONCE),
        });
        let descriptors = server.count_of("fd");
        let measuring = self.measures.map(|arguments| {
            let target = format!("ndt7://{web}");
            let command = fullpipe(&[arguments, &[&target]].concat());
            thread::spawn(move || measures(command))
        });
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let most = LocalSet::new().block_on(&runtime, self.attack(&reach, &server));
        println!("{most} KiB at most");
        assert!(most < MAX_KIB, "{most} KiB");
        measuring.map(thread::JoinHandle::join).transpose().unwrap();
        // Those of threads that wait for work are the runtime's.
        let is_free = || server.count_of("fd") <= descriptors;
        assert!(
            within(PROMPT, is_free),
            "{} of {descriptors}",
            server.count_of("fd")
        );
    }

    /// Lets all clients do what they do. Returns the most memory of the server, in KiB.
    async fn attack(self, reach: &Rc<Reach>, server: &Running) -> u64 {
        let mut clients = JoinSet::new();
        let mut within_of = BTreeMap::new();
        for (number, state) in (1..).zip(self.hostile) {
            within_of.insert(state.name, state.deadline + PROMPT);
            let state = Rc::new(state);
            for client in 0..HOSTILE as u8 {
                let (reach, state) = (Rc::clone(reach), Rc::clone(&state));
                let from = Ipv4Addr::new(127, 1, number, client);
                clients.spawn_local(async move { (state.name, reach.outlast(from, &state).await) });
            }
        }
        let honest = Rc::new(self.honest);
        for client in 0..CLIENTS - clients.len() {
            let (reach, honest) = (Rc::clone(reach), Rc::clone(&honest));
            let asked = client % honest.len();
            let (name, parts) = if client < SLOW {
                ("slow", SLOW_PARTS)
            } else {
                (honest[asked].name, 1)
            };
            within_of.insert(name, PROMPT);
            let [high, low] = (client as u16).to_be_bytes();
            let from = Ipv4Addr::new(127, 2, high, low);
            clients
                .spawn_local(async move { (name, reach.ask(from, &honest[asked], parts).await) });
        }
        let (mut most, mut longest) = (0, BTreeMap::new());
        while let Some(ended) = clients.join_next().await {
            let (name, took) = ended.unwrap();
            let took = took.unwrap_or_else(|error| panic!("{name}: {error}"));
            let so_far: &mut Duration = longest.entry(name).or_default();
            *so_far = took.max(*so_far);
            most = most.max(server.resident_kib());
        }
        println!("{longest:.1?}");
        for (name, took) in longest {
            assert!(took < within_of[name], "{name}: {took:?}");
        }
        most
    }
}

/// Runs this program as a client, which must measure both ways.
fn measures(mut command: Command) {
    let output = run(&mut command, 60);
    assert!(output.status.success(), "{output:?}");
}
