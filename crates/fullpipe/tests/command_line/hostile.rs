//! Peers that stall, lie, open many connections or disappear: every place is free again within its
//! deadline, and others are served meanwhile.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fullpipe_testkit::{
    Running, free_port, load_slot, path, require, wait_for_listener, within, write_secret,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::Value;
use socket2::{Domain, Socket, Type};

/// States of the protocol, as bytes on the wire.
pub(super) mod state {
    pub(crate) const TEST_START: u8 = 1;
    pub(crate) const TEST_RUNNING: u8 = 2;
    pub(crate) const TEST_END: u8 = 4;
    pub(crate) const PARAMETERS: u8 = 9;
    pub(crate) const CREATE_STREAMS: u8 = 10;
    pub(crate) const RESULTS: u8 = 13;
    pub(crate) const DISPLAY: u8 = 14;
    pub(crate) const DONE: u8 = 16;
    pub(crate) const KEY: u8 = 0x6B;
    pub(crate) const SERVER_ERROR: u8 = 0xFE;
    pub(crate) const DENIED: u8 = 0xFF;
}

/// Longest time that an honest client may wait for an answer, whatever others do.
pub(super) const PROMPT: Duration = Duration::from_secs(5);

/// Longest time after its deadline at which a connection may be closed on a busy machine.
const SLACK: Duration = Duration::from_secs(3);

/// Address of honest clients.
pub(super) const HONEST: Ipv4Addr = Ipv4Addr::LOCALHOST;

/// Address of the other clients.
pub(super) const HOSTILE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// The program under test.
fn fullpipe(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fullpipe"));
    command.args(arguments);
    command
}

/// A server under attack. It writes a log, because nobody reads what it prints.
pub(super) struct Server {
    pub(super) running: Running,
    pub(super) address: SocketAddr,
    log: PathBuf,
}

impl Server {
    pub(super) fn start(arguments: &[&str]) -> Self {
        Self::start_with(&[], arguments)
    }

    /// Started by another program.
    pub(super) fn start_with(starter: &[&str], arguments: &[&str]) -> Self {
        static LOGS: AtomicU32 = AtomicU32::new(0);
        let port = free_port();
        let name = format!(
            "hostile-{}-{}.log",
            std::process::id(),
            LOGS.fetch_add(1, Ordering::Relaxed)
        );
        let log = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        let mut whole = starter.to_vec();
        whole.push(env!("CARGO_BIN_EXE_fullpipe"));
        let mut command = Command::new(whole[0]);
        command.args(&whole[1..]).args([
            "serve",
            "-p",
            &port.to_string(),
            "--logfile",
            log.to_str().unwrap(),
        ]);
        let running = Running::start(command.args(arguments));
        wait_for_listener(port);
        Self {
            running,
            address: (HONEST, port).into(),
            log,
        }
    }

    fn port(&self) -> String {
        self.address.port().to_string()
    }

    pub(super) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Waits until the log says `what`.
    pub(super) fn assert_says(&self, what: &str) {
        assert!(
            within(PROMPT, || self.log().contains(what)),
            "no {what:?} in the log:\n{}",
            self.log()
        );
    }

    /// Serves an honest client, as it must at any time.
    pub(super) fn assert_serves(&self) {
        assert_eq!(
            upload(self.address, HONEST, 1, 100_000),
            Ok(100_000),
            "{}",
            self.log()
        );
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.log);
    }
}

/// A connection to `server` from one of this host's many loopback addresses.
pub(super) fn connect(server: SocketAddr, from: Ipv4Addr) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.bind(&SocketAddr::from((from, 0)).into())?;
    socket.connect_timeout(&server.into(), PROMPT)?;
    let stream = TcpStream::from(socket);
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// A client of which every byte is the test's own.
pub(super) struct Peer {
    pub(super) control: TcpStream,
    cookie: [u8; 37],
    server: SocketAddr,
    from: Ipv4Addr,
}

impl Peer {
    pub(super) fn call(server: SocketAddr, from: Ipv4Addr) -> io::Result<Self> {
        static CALLS: AtomicU32 = AtomicU32::new(0);
        let mut cookie = [b'a'; 37];
        let number = format!(
            "{:010}{:010}",
            std::process::id(),
            CALLS.fetch_add(1, Ordering::Relaxed)
        );
        // The alphabet has no 0, 1, 8 and 9, but servers ask nothing of a cookie's characters.
        cookie[..20].copy_from_slice(number.as_bytes());
        cookie[36] = 0;
        let mut control = connect(server, from)?;
        control.set_read_timeout(Some(PROMPT))?;
        control.write_all(&cookie)?;
        Ok(Self {
            control,
            cookie,
            server,
            from,
        })
    }

    fn read(&mut self) -> io::Result<u8> {
        let mut byte = [0];
        self.control.read_exact(&mut byte).map(|()| byte[0])
    }

    /// Reads one state, which must be `wanted`.
    pub(super) fn expect(&mut self, wanted: u8) -> io::Result<()> {
        let got = self.read()?;
        if got == wanted {
            Ok(())
        } else {
            Err(io::Error::other(format!("state {got} instead of {wanted}")))
        }
    }

    fn send(&mut self, message: &str) -> io::Result<()> {
        let length = u32::try_from(message.len()).unwrap();
        self.control
            .write_all(&[&length.to_be_bytes()[..], message.as_bytes()].concat())
    }

    pub(super) fn ask(&mut self, parameters: &str) -> io::Result<()> {
        self.expect(state::PARAMETERS)?;
        self.send(parameters)
    }

    pub(super) fn open(&self) -> io::Result<TcpStream> {
        let mut stream = connect(self.server, self.from)?;
        stream.write_all(&self.cookie)?;
        Ok(stream)
    }

    /// Begins a test until data may flow and returns its data connections.
    pub(super) fn begin(&mut self, parameters: &str, streams: usize) -> io::Result<Vec<TcpStream>> {
        self.ask(parameters)?;
        self.expect(state::CREATE_STREAMS)?;
        let data = (0..streams)
            .map(|_| self.open())
            .collect::<io::Result<_>>()?;
        self.expect(state::TEST_START)?;
        self.expect(state::TEST_RUNNING)?;
        Ok(data)
    }

    fn results(&mut self) -> io::Result<Value> {
        let mut length = [0; 4];
        self.control.read_exact(&mut length)?;
        let mut json = vec![0; u32::from_be_bytes(length) as usize];
        self.control.read_exact(&mut json)?;
        Ok(serde_json::from_slice(&json)?)
    }

    /// Ends a test whose data has been sent and returns the counts of the server.
    pub(super) fn finish(&mut self, results: &str) -> io::Result<Value> {
        self.control.write_all(&[state::TEST_END])?;
        self.expect(state::RESULTS)?;
        self.send(results)?;
        let counted = self.results()?;
        self.expect(state::DISPLAY)?;
        self.control.write_all(&[state::DONE])?;
        Ok(counted)
    }

    /// Returns the bytes that the server sends until it closes, and the time until then; `None` if
    /// it does not close within `timeout`.
    pub(super) fn ending(&mut self, timeout: Duration) -> (Vec<u8>, Option<Duration>) {
        let begun = Instant::now();
        let mut said = Vec::new();
        let mut byte = [0];
        while let Some(left) = timeout
            .checked_sub(begun.elapsed())
            .filter(|left| !left.is_zero())
        {
            self.control.set_read_timeout(Some(left)).unwrap();
            match self.control.read(&mut byte) {
                Ok(0) => return (said, Some(begun.elapsed())),
                Ok(_) => said.push(byte[0]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return (said, Some(begun.elapsed())),
            }
        }
        (said, None)
    }
}

pub(super) const RESULTS: &str = r#"{"cpu_util_total":1.0,"cpu_util_user":0.5,"cpu_util_system":0.5,
    "sender_has_retransmits":0,"streams":[{"id":1,"bytes":1,"retransmits":0,"jitter":0,"errors":0,"packets":0}]}"#;

/// Sends `bytes` over `streams` as an honest client and returns the bytes that the server counted.
pub(super) fn upload(
    server: SocketAddr,
    from: Ipv4Addr,
    streams: usize,
    bytes: usize,
) -> Result<u64, String> {
    let stated = |error: io::Error| error.to_string();
    let mut peer = Peer::call(server, from).map_err(stated)?;
    // One block, so that the server waits for no rest of it.
    let block = bytes.min(1 << 20);
    let parameters =
        format!(r#"{{"tcp":true,"num":{bytes},"time":0,"parallel":{streams},"len":{block}}}"#);
    let data = peer.begin(&parameters, streams).map_err(stated)?;
    for (mut stream, index) in data.iter().zip(0..) {
        let share = bytes / streams + usize::from(index < bytes % streams);
        stream.write_all(&vec![b'x'; share]).map_err(stated)?;
    }
    let counted = peer.finish(RESULTS).map_err(stated)?;
    let streams = counted["streams"].as_array().ok_or("no streams")?;
    Ok(streams
        .iter()
        .filter_map(|stream| stream["bytes"].as_u64())
        .sum())
}

/// Receivers of iperf3 count whole blocks since 3.16: they waited for the rest of the last block
/// until a timeout.
#[test]
fn a_receiver_that_counts_whole_blocks_gets_the_rest_of_the_last() {
    const BLOCK: usize = 131_072;
    let server = Server::start(&[]);
    let mut peer = Peer::call(server.address, HONEST).unwrap();
    let parameters = format!(
        r#"{{"tcp":true,"num":1000000,"time":0,"parallel":2,"reverse":true,"len":{BLOCK}}}"#
    );
    let data = peer.begin(&parameters, 2).unwrap();
    let received = AtomicU32::new(0);
    thread::scope(|scope| {
        for mut stream in data {
            let received = &received;
            scope.spawn(move || {
                let mut block = vec![0; BLOCK];
                stream.set_read_timeout(Some(PROMPT)).unwrap();
                while received.load(Ordering::Relaxed) < 1_000_000
                    && stream.read_exact(&mut block).is_ok()
                {
                    received.fetch_add(BLOCK as u32, Ordering::Relaxed);
                }
                // The other stream may have brought the last block; then the server drops what this
                // one did not take.
                let _ = stream.shutdown(Shutdown::Both);
            });
        }
        assert!(
            within(PROMPT, || received.load(Ordering::Relaxed) >= 1_000_000),
            "{received:?} bytes"
        );
        peer.control.write_all(&[12]).unwrap();
    });
}

/// Runs honest clients, one after the other, until `over`, and returns their number.
fn honest_clients(server: &Server, over: &AtomicBool) -> u32 {
    let mut served = 0;
    while !over.load(Ordering::Relaxed) {
        server.assert_serves();
        served += 1;
        thread::sleep(Duration::from_millis(100));
    }
    served
}

/// Returns the number of the refusal in the last bytes that a server sent.
pub(super) fn refusal(said: &[u8]) -> Option<i32> {
    let at = said.iter().position(|byte| *byte == state::SERVER_ERROR)?;
    let number = said.get(at + 1..at + 5)?;
    Some(i32::from_be_bytes(number.try_into().unwrap()))
}

/// Name of a stalling client, its connection, and the seconds until a server with a client timeout
/// of one second closes it.
type Stall = (&'static str, fn(SocketAddr) -> io::Result<Peer>, u64);

const TWO_STREAMS: &str = r#"{"tcp":true,"time":600,"parallel":2}"#;

fn begun(
    server: SocketAddr,
    parameters: &str,
    streams: usize,
) -> io::Result<(Peer, Vec<TcpStream>)> {
    let mut peer = Peer::call(server, HOSTILE)?;
    let data = peer.begin(parameters, streams)?;
    Ok((peer, data))
}

/// Keeps data connections open, and unread, for the rest of this process.
fn forget(data: Vec<TcpStream>) {
    std::mem::forget(data);
}

const STALLS: [Stall; 11] = [
    ("before its cookie", |server| silent(server, &[]), 1),
    ("within its cookie", |server| silent(server, b"abcdefg"), 1),
    (
        "before its parameters",
        |server| {
            let mut peer = Peer::call(server, HOSTILE)?;
            peer.expect(state::PARAMETERS)?;
            Ok(peer)
        },
        1,
    ),
    (
        "within its parameters",
        |server| {
            let mut peer = Peer::call(server, HOSTILE)?;
            peer.expect(state::PARAMETERS)?;
            peer.control.write_all(b"\0\0\0\x40{\"tcp\":")?;
            Ok(peer)
        },
        1,
    ),
    (
        "before its data connections",
        |server| {
            let mut peer = Peer::call(server, HOSTILE)?;
            peer.ask(TWO_STREAMS)?;
            peer.expect(state::CREATE_STREAMS)?;
            Ok(peer)
        },
        1,
    ),
    (
        "before its second data connection",
        |server| {
            let mut peer = Peer::call(server, HOSTILE)?;
            peer.ask(TWO_STREAMS)?;
            peer.expect(state::CREATE_STREAMS)?;
            forget(vec![peer.open()?]);
            Ok(peer)
        },
        1,
    ),
    (
        "with data to send",
        |server| {
            let (peer, data) = begun(server, TWO_STREAMS, 2)?;
            forget(data);
            Ok(peer)
        },
        12,
    ),
    (
        "with data to read",
        |server| {
            let (peer, data) = begun(server, r#"{"tcp":true,"time":600,"reverse":true}"#, 1)?;
            forget(data);
            Ok(peer)
        },
        12,
    ),
    (
        "before its results",
        |server| {
            let (mut peer, _) = begun(server, TWO_STREAMS, 2)?;
            peer.control.write_all(&[state::TEST_END])?;
            peer.expect(state::RESULTS)?;
            Ok(peer)
        },
        3,
    ),
    (
        "within its results",
        |server| {
            let (mut peer, _) = begun(server, TWO_STREAMS, 2)?;
            peer.control.write_all(&[state::TEST_END])?;
            peer.expect(state::RESULTS)?;
            peer.control.write_all(b"\0\0\x10\0{\"streams\":[")?;
            Ok(peer)
        },
        3,
    ),
    (
        "before it is done",
        |server| {
            let (mut peer, _) = begun(server, TWO_STREAMS, 2)?;
            peer.control.write_all(&[state::TEST_END])?;
            peer.expect(state::RESULTS)?;
            peer.send(RESULTS)?;
            peer.results()?;
            peer.expect(state::DISPLAY)?;
            Ok(peer)
        },
        1,
    ),
];

/// A connection that says `words`, and no more.
fn silent(server: SocketAddr, words: &[u8]) -> io::Result<Peer> {
    let mut control = connect(server, HOSTILE)?;
    control.write_all(words)?;
    Ok(Peer {
        control,
        cookie: [0; 37],
        server,
        from: HOSTILE,
    })
}

#[test]
fn whoever_stalls_is_sent_away_in_time() {
    let server = Server::start(&["--client-timeout", "1"]);
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let honest = scope.spawn(|| honest_clients(&server, &over));
        let target = &server;
        let stalls: Vec<_> = STALLS
            .into_iter()
            .map(|stall| scope.spawn(move || stalls(target, stall)))
            .collect();
        let slow = scope.spawn(|| greets_slowly(&server));
        for stall in stalls {
            stall.join().unwrap();
        }
        slow.join().unwrap();
        over.store(true, Ordering::Relaxed);
        let served = honest.join().unwrap();
        assert!(
            served > 20,
            "only {served} honest clients were served meanwhile"
        );
    });
}

fn stalls(server: &Server, (what, begin, seconds): Stall) {
    let mut peer = begin(server.address).unwrap_or_else(|error| panic!("{what}: {error}"));
    let deadline = Duration::from_secs(seconds);
    let (said, closed) = peer.ending(deadline + SLACK);
    let closed = closed
        .unwrap_or_else(|| panic!("{what}: still there after {deadline:?}; it received {said:?}"));
    assert!(
        closed + Duration::from_millis(200) >= deadline,
        "{what}: sent away after {closed:?}, which is too soon"
    );
    // A client that has sent its cookie receives the reason: it sent nothing for too long.
    let stated = !matches!(
        what,
        "before its cookie" | "within its cookie" | "before it is done"
    );
    assert_eq!(refusal(&said), stated.then_some(144), "{what}: {said:?}");
}

/// A byte now and then does not help.
fn greets_slowly(server: &Server) {
    let mut peer = silent(server.address, &[]).unwrap();
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(1) + SLACK {
        if peer.control.write_all(b"a").is_err() {
            return;
        }
        thread::sleep(Duration::from_millis(200));
    }
    panic!("a slow greeting was waited for");
}

#[test]
fn nonsense_is_refused_at_once() {
    let server = Server::start(&[]);
    let deep = format!("{{\"tcp\":true,\"x\":{}", "[".repeat(5_000));
    let parameters: [(&str, &[u8], i32); 8] = [
        ("no JSON", b"\0\0\0\x04nope", 114),
        ("an array", b"\0\0\0\x02[]", 114),
        ("not even text", b"\0\0\0\x04\xff\xfe\0\x01", 114),
        ("4 GiB", b"\xff\xff\xff\xff{}", 114),
        ("70 KB", b"\0\x01\x11\x70{}", 114),
        (
            "2^64-1 streams",
            b"\0\0\0\x21{\"parallel\":18446744073709551615}",
            6,
        ),
        (
            "2^63-1 seconds",
            b"\0\0\0\x1c{\"time\":9223372036854775807}",
            5,
        ),
        ("128 KiB of streams", b"\0\0\0\x13{\"parallel\":131072}", 6),
    ];
    for (what, message, number) in parameters {
        let mut peer = Peer::call(server.address, HOSTILE).unwrap();
        peer.expect(state::PARAMETERS).unwrap();
        peer.control.write_all(message).unwrap();
        let (said, closed) = peer.ending(PROMPT);
        assert_eq!(refusal(&said), Some(number), "{what}: {said:?}");
        assert!(closed.is_some(), "{what}");
        server.assert_serves();
    }
    let mut peer = Peer::call(server.address, HOSTILE).unwrap();
    peer.ask(&deep).unwrap();
    assert_eq!(refusal(&peer.ending(PROMPT).0), Some(114));
    server.assert_serves();
}

#[test]
fn results_that_lie_are_no_danger() {
    let server = Server::start(&[]);
    let most = u64::MAX;
    let lies = [
        format!(
            r#"{{"cpu_util_total":1e308,"streams":[{{"id":1,"bytes":{most},"retransmits":{most},"packets":{most}}}]}}"#
        ),
        format!(r#"{{"streams":[{{"id":{most},"bytes":-1,"errors":-1,"jitter":-1e300}}]}}"#),
        "{}".to_owned(),
        r#"{"streams":[]}"#.to_owned(),
    ];
    for lie in lies {
        let mut peer = Peer::call(server.address, HOSTILE).unwrap();
        drop(peer.begin(r#"{"tcp":true,"time":1}"#, 1).unwrap());
        // It may be believed or refused, but soon.
        let answered = peer.finish(&lie);
        let (said, closed) = peer.ending(PROMPT);
        assert!(
            answered.is_ok() || refusal(&said).is_some() || closed.is_some(),
            "{lie}: {said:?}"
        );
        assert!(closed.is_some(), "{lie}");
        server.assert_serves();
    }
    let mut peer = Peer::call(server.address, HOSTILE).unwrap();
    drop(peer.begin(r#"{"tcp":true,"time":1}"#, 1).unwrap());
    peer.control.write_all(&[state::TEST_END]).unwrap();
    peer.expect(state::RESULTS).unwrap();
    peer.control.write_all(b"\xff\xff\xff\xff").unwrap();
    assert_eq!(refusal(&peer.ending(PROMPT).0), Some(117));
    server.assert_serves();
}

#[test]
fn states_out_of_order_end_the_test() {
    let server = Server::start(&[]);
    for state in [state::TEST_RUNNING, state::RESULTS, state::DONE, 0, 99] {
        let (mut peer, data) = begun(server.address, TWO_STREAMS, 2).unwrap();
        peer.control.write_all(&[state]).unwrap();
        let (said, closed) = peer.ending(PROMPT);
        assert_eq!(refusal(&said), Some(110), "{state}: {said:?}");
        assert!(closed.is_some());
        for mut stream in data {
            stream.set_read_timeout(Some(PROMPT)).unwrap();
            assert!(
                matches!(stream.read(&mut [0]), Ok(0) | Err(_)),
                "its data connections are closed too"
            );
        }
    }
    server.assert_serves();
}

#[test]
fn data_connections_that_nobody_waits_for_are_denied() {
    let server = Server::start(&[]);
    let (peer, data) = begun(server.address, TWO_STREAMS, 2).unwrap();
    let denied = |peer: &Peer| {
        let mut stream = peer.open().unwrap();
        stream.set_read_timeout(Some(PROMPT)).unwrap();
        let mut said = Vec::new();
        stream.read_to_end(&mut said).unwrap();
        assert_eq!(said, [state::DENIED]);
    };
    denied(&peer);
    // Nor when its test is over: a late one begins no test of its own.
    peer.control.shutdown(Shutdown::Both).unwrap();
    drop(data);
    server.assert_says("closed the control connection");
    denied(&peer);
    server.assert_serves();
}

#[test]
fn callers_that_speak_something_else_are_reported_of() {
    let server = Server::start(&[]);
    for words in [
        &b"GET / HTTP/1.1\r\nHost: example.org\r\nAccept: */*\r\n\r\n"[..],
        &[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc],
    ] {
        let mut peer = silent(server.address, words).unwrap();
        let _ = peer.control.shutdown(Shutdown::Write);
        assert!(peer.ending(PROMPT).1.is_some());
    }
    server.assert_says("127.0.0.2");
    server.assert_says("neither fullpipe nor iperf3 nor iperf2");
    server.assert_serves();
}

#[test]
fn many_connections_from_one_address_do_not_keep_others_out() {
    const CONNECTIONS: usize = 10_000;
    let _slot = load_slot();
    raise_descriptors();
    let server = Server::start(&[]);
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let honest = scope.spawn(|| honest_clients(&server, &over));
        let connections: Vec<TcpStream> = (0..CONNECTIONS)
            .map_while(|_| connect(server.address, HOSTILE).ok())
            .collect();
        // As many as this process may have open: machines differ.
        assert!(connections.len() > 900, "{} connections", connections.len());
        let longest = (0..20)
            .map(|_| duration_of(|| server.assert_serves()))
            .max()
            .unwrap();
        over.store(true, Ordering::Relaxed);
        let served = honest.join().unwrap();
        println!(
            "{} connections from one address; {served} tests meanwhile, the longest {longest:?}",
            connections.len()
        );
        assert!(longest < PROMPT);
    });
    server.assert_says("rejected: the limit of pending connections");
    // The address itself is served too once its connections are closed.
    assert!(within(PROMPT, || upload(server.address, HOSTILE, 1, 1000)
        == Ok(1000)));
}

/// Serves so many fresh clients one after the other, and returns the longest time that one took.
fn serves_fresh_clients(server: &Server, count: u32) -> Duration {
    (0..count)
        .map(|_| duration_of(|| server.assert_serves()))
        .max()
        .unwrap()
}

/// Serves twenty fresh clients, each within a second more than is `usual` on this machine.
fn assert_serves_fresh_clients(server: &Server, usual: Duration) {
    let longest = serves_fresh_clients(server, 20);
    assert!(
        longest < usual + Duration::from_secs(1),
        "{longest:?}, {usual:?} before"
    );
}

/// So many silent connections from each of so many addresses.
pub(super) fn silent_connections(server: SocketAddr, addresses: u8, each: usize) -> Vec<TcpStream> {
    let from = (1..=addresses).map(|last| Ipv4Addr::new(127, 0, 9, last));
    from.flat_map(|from| (0..each).map_while(move |_| connect(server, from).ok()))
        .collect()
}

#[test]
fn a_server_with_few_descriptors_keeps_some_for_others() {
    // `prlimit` comes with it.
    require!(Unshare);
    let server = Server::start_with(&["prlimit", "--nofile=128:128"], &[]);
    let connections: Vec<TcpStream> = (0..300)
        .map_while(|_| connect(server.address, HOSTILE).ok())
        .collect();
    assert_eq!(connections.len(), 300);
    for _ in 0..20 {
        server.assert_serves();
    }
}

#[test]
fn a_server_with_hardly_any_descriptors_serves_or_says_why_not() {
    require!(Unshare);
    Server::start_with(&["prlimit", "--nofile=64:64"], &[]).assert_serves();
    let mut command = Command::new("prlimit");
    command.args([
        "--nofile=40:40",
        env!("CARGO_BIN_EXE_fullpipe"),
        "serve",
        "-p",
        &free_port().to_string(),
    ]);
    let output = Running::start(&mut command).finish(PROMPT);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(
        said.contains("40 open files are permitted, 64 are needed"),
        "{said}"
    );
}

/// The first datagram of an iperf2 client; with `DUAL`, of one that asks to be sent datagrams.
fn iperf2_datagram(number: i32, flags: u32) -> Vec<u8> {
    let mut datagram = vec![0; 100];
    datagram[..4].copy_from_slice(&number.to_be_bytes());
    datagram[4..8].copy_from_slice(&1_700_000_000_u32.to_be_bytes());
    datagram[16..20].copy_from_slice(&flags.to_be_bytes());
    datagram
}

/// iperf2's flags for a test in both directions at once.
const DUAL: u32 = 0x8000_0001;

#[test]
fn datagrams_in_anybodys_name_do_not_end_a_server_for_one_test() {
    let server = Server::start(&["-1"]);
    let socket = UdpSocket::bind((HOSTILE, 0)).unwrap();
    socket
        .send_to(&iperf2_datagram(1, DUAL), server.address)
        .unwrap();
    server.assert_says("asked the server to send datagrams");
    for number in [1, -2] {
        socket
            .send_to(&iperf2_datagram(number, 0), server.address)
            .unwrap();
    }
    server.assert_says("done at");
    server.assert_serves();
}

#[test]
fn datagrams_in_anybodys_name_do_not_fill_the_log() {
    const FLOWS: usize = 400;
    let server = Server::start(&[]);
    for flags in [0, DUAL] {
        for _ in 0..FLOWS {
            let socket = UdpSocket::bind((HOSTILE, 0)).unwrap();
            socket
                .send_to(&iperf2_datagram(1, flags), server.address)
                .unwrap();
        }
    }
    server.assert_says("more flows of iperf2 datagrams began");
    server.assert_says("asked the server to send datagrams");
    let lines = server.log().lines().count();
    assert!(lines < 100, "{lines} lines of {} datagrams", 2 * FLOWS);
    server.assert_serves();
}

#[test]
fn an_iperf2_client_that_waits_for_data_is_reset() {
    let server = Server::start(&[]);
    let mut stream = connect(server.address, HONEST).unwrap();
    stream.set_read_timeout(Some(PROMPT)).unwrap();
    // iperf2's flag for --bounceback.
    stream
        .write_all(&[&0x0080_0000_u32.to_be_bytes()[..], &[0; 60]].concat())
        .unwrap();
    let end = stream.read(&mut [0; 1]).unwrap_err();
    assert_eq!(end.kind(), io::ErrorKind::ConnectionReset, "{end}");
    server.assert_says("a bounce-back test (--bounceback), which is not offered");
}

#[test]
fn results_of_many_clients_hold_little_memory() {
    const TESTS: usize = 128;
    let server = Server::start(&[]);
    let addresses = [HOSTILE, Ipv4Addr::new(127, 0, 0, 3)];
    let mut peers: Vec<_> = (0..TESTS)
        .map(|index| {
            let mut peer = Peer::call(server.address, addresses[index % 2]).unwrap();
            drop(peer.begin(r#"{"tcp":true,"time":1}"#, 1).unwrap());
            peer.control.write_all(&[state::TEST_END]).unwrap();
            peer.expect(state::RESULTS).unwrap();
            peer
        })
        .collect();
    let before = server.running.anonymous_kib();
    for peer in &mut peers[1..] {
        // Nearly the most that is accepted of one stream.
        peer.control
            .write_all(&[&8_704_u32.to_be_bytes()[..], &[b' '; 8_000]].concat())
            .unwrap();
    }
    peers[0]
        .control
        .write_all(&(16_u32 << 20).to_be_bytes())
        .unwrap();
    assert_eq!(
        refusal(&peers[0].ending(PROMPT).0),
        Some(117),
        "16 MiB are refused before they come"
    );
    server.assert_serves();
    let grown = server.running.anonymous_kib().saturating_sub(before);
    println!("{TESTS} tests hold {grown} KiB of results");
    assert!(grown < 6 << 10, "{grown} KiB");
}

fn duration_of(work: impl FnOnce()) -> Duration {
    let begun = Instant::now();
    work();
    begun.elapsed()
}

/// Raises the limit of descriptors of this process to its maximum.
pub(super) fn raise_descriptors() {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let _ = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: maximum,
            maximum,
        },
    );
}

#[test]
fn a_thousand_idle_tests_take_little_memory() {
    const IDLE: usize = 1000;
    /// Most anonymous memory that they add to the server, in KiB; 64 KiB each would still be
    /// acceptable. Code that is read in meanwhile is not theirs.
    const MAX_KIB: u64 = 16 * 1024;
    let _slot = load_slot();
    raise_descriptors();
    // An eighth is left to addresses that have no test.
    let server = Server::start(&["--client-timeout", "60", "--max-tests", "1200"]);
    let before = server.running.anonymous_kib();
    let idle: Vec<Peer> = (0..IDLE)
        .map(|n| {
            let mut peer =
                Peer::call(server.address, Ipv4Addr::new(127, 0, 1, (n % 20) as u8)).unwrap();
            peer.expect(state::PARAMETERS).unwrap();
            peer
        })
        .collect();
    server.assert_serves();
    let after = server.running.anonymous_kib();
    println!("{IDLE} idle control connections: {before} KiB before, {after} KiB with them");
    assert!(after < before + MAX_KIB, "{before} KiB, then {after} KiB");
    drop(idle);
    server.assert_serves();
}

#[test]
fn fifty_clients_at_once_are_counted_to_the_byte() {
    let _slot = load_slot();
    let server = Server::start(&[]);
    thread::scope(|scope| {
        let clients: Vec<_> = (1..=50)
            .map(|n: usize| {
                let server = server.address;
                let bytes = 1_000_000 + 7 * n;
                (
                    bytes as u64,
                    scope.spawn(move || upload(server, HONEST, 1 + n % 4, bytes)),
                )
            })
            .collect();
        for (bytes, client) in clients {
            assert_eq!(client.join().unwrap(), Ok(bytes));
        }
    });
    // The server's words come a moment after its answer.
    assert!(
        within(PROMPT, || server.log().matches(": done at ").count() == 50),
        "{}",
        server.log()
    );
}

#[test]
fn a_client_that_is_killed_leaves_its_place_to_the_next() {
    require!(Iperf3);
    let _slot = load_slot();
    let server = Server::start(&["--max-tests", "1"]);
    let port = server.port();
    for direction in ["", "-R"] {
        let mut iperf3 = Command::new("iperf3");
        iperf3.args(["-c", "127.0.0.1", "-t", "30", "-P", "4", "-p", &port]);
        let ours = fullpipe(&["measure", "127.0.0.1", "-t", "30", "-P", "4", "-p", &port]);
        for mut client in [iperf3, ours] {
            let before = server.log().len();
            let mut client = Running::start(
                client.args(Some(direction).filter(|direction| !direction.is_empty())),
            );
            assert!(
                within(PROMPT, || server.log()[before..].contains("4 streams")),
                "{}",
                server.log()
            );
            assert!(
                upload(server.address, HONEST, 1, 1).is_err(),
                "there is one place"
            );
            thread::sleep(Duration::from_millis(300));
            client.kill();
            assert!(
                within(PROMPT, || upload(server.address, HONEST, 1, 1) == Ok(1)),
                "{}",
                server.log()
            );
        }
    }
}

#[test]
fn a_client_without_the_key_does_not_end_a_server_of_one_test() {
    let key =
        PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{}-one.key", std::process::id()));
    write_secret(&key, "correct horse battery\n");
    let server = Server::start(&["-1", "--key-file", key.to_str().unwrap()]);
    let mut unknown = Peer::call(server.address, HOSTILE).unwrap();
    unknown.ask(r#"{"tcp":true,"time":1}"#).unwrap();
    assert_eq!(refusal(&unknown.ending(PROMPT).0), Some(142));
    drop(Peer::call(server.address, HOSTILE).unwrap());
    let port = server.port();
    let known = [
        "measure",
        "127.0.0.1",
        "-n",
        "1M",
        "-p",
        &port,
        "--key-file",
        key.to_str().unwrap(),
    ];
    let measured = || Running::start(&mut fullpipe(&known)).finish(3 * PROMPT);
    // It has one test at a time: that of the other client must be over.
    assert!(
        within(PROMPT, || measured().status.success()),
        "{}",
        server.log()
    );
    std::fs::remove_file(key).unwrap();
}

/// They wrote thousands of lines a second.
#[test]
fn clients_that_are_refused_do_not_fill_the_log() {
    let key = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("{}-flood.key", std::process::id()));
    write_secret(&key, "correct horse battery\n");
    let server = Server::start(&["--key-file", key.to_str().unwrap()]);
    for _ in 0..200 {
        let mut unknown = Peer::call(server.address, HOSTILE).unwrap();
        unknown.ask(r#"{"tcp":true,"time":1}"#).unwrap();
        assert_eq!(refusal(&unknown.ending(PROMPT).0), Some(142));
        let mut other = silent(
            server.address,
            b"GET / HTTP/1.1\r\nHost: example.org\r\nAccept: */*\r\n\r\n",
        )
        .unwrap();
        other.ending(PROMPT);
    }
    let log = server.log();
    // One line of each reason, or two where a minute has passed.
    assert!((3..=6).contains(&log.lines().count()), "{log}");
    server.running.interrupt();
    let all_but_first =
        "199 more connections rejected, the last of 127.0.0.2: refused the client's test: ";
    server.assert_says(all_but_first);
    std::fs::remove_file(key).unwrap();
}

#[test]
fn a_client_that_has_no_key_is_refused() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let file = |name: &str, content: &str| {
        let path = folder.join(format!("{}-{name}", std::process::id()));
        write_secret(&path, content);
        path.to_str().unwrap().to_owned()
    };
    let (right, wrong) = (
        file("right.key", "correct horse battery\n"),
        file("wrong.key", "incorrect horse battery\n"),
    );
    let server = Server::start(&["--key-file", &right]);
    assert!(upload(server.address, HONEST, 1, 1000).is_err());
    let mut peer = Peer::call(server.address, HOSTILE).unwrap();
    peer.ask(r#"{"tcp":true,"time":1}"#).unwrap();
    assert_eq!(
        peer.ending(PROMPT).0,
        [state::SERVER_ERROR, 0, 0, 0, 142, 0, 0, 0, 0]
    );
    let measured = |more: &[&str]| {
        let port = server.port();
        let arguments = [&["measure", "127.0.0.1", "-n", "1M", "-p", &port], more].concat();
        Running::start(&mut fullpipe(&arguments)).finish(3 * PROMPT)
    };
    assert!(
        measured(&["--key-file", &right]).status.success(),
        "{}",
        server.log()
    );
    for (more, why) in [
        (&["--key-file", &*wrong][..], "is the key the server's own?"),
        (&[], "--key-file gives it"),
    ] {
        let said = String::from_utf8(measured(more).stderr).unwrap();
        assert!(said.contains(why), "{said}");
    }
    server.assert_says("the client does not have the key");
    server.assert_says("it is not fullpipe");
    let _ = (std::fs::remove_file(right), std::fs::remove_file(wrong));
}

#[test]
fn what_an_operator_does_not_permit_is_refused_with_the_numbers_of_iperf3() {
    let server = Server::start(&[
        "--max-tests-per-address",
        "2",
        "--max-streams-per-address",
        "4",
        "--server-max-duration",
        "5",
        "--max-bytes",
        "10M",
        "--server-bitrate-limit",
        "10M",
        "--deny",
        "127.0.0.3",
    ]);
    let stated = |parameters: &str| {
        let mut peer = Peer::call(server.address, HOSTILE).unwrap();
        peer.ask(parameters).unwrap();
        let (said, _) = peer.ending(PROMPT);
        assert_eq!(
            said.first(),
            Some(&state::SERVER_ERROR),
            "it is refused before it opens streams"
        );
        refusal(&said)
    };
    assert_eq!(stated(r#"{"tcp":true,"time":1,"parallel":5}"#), Some(6));
    assert_eq!(stated(r#"{"tcp":true,"time":6}"#), Some(37));
    assert_eq!(stated(r#"{"tcp":true,"time":0}"#), Some(37));
    assert_eq!(stated(r#"{"tcp":true,"num":10485761}"#), Some(37));
    assert_eq!(
        stated(r#"{"tcp":true,"time":1,"bandwidth":6000000,"parallel":2}"#),
        Some(27)
    );
    let _first = begun(server.address, r#"{"tcp":true,"time":1,"parallel":2}"#, 2).unwrap();
    let _second = begun(server.address, r#"{"tcp":true,"time":1,"parallel":2}"#, 2).unwrap();
    let mut third = Peer::call(server.address, HOSTILE).unwrap();
    assert_eq!(third.ending(PROMPT).0, [state::DENIED]);
    server.assert_serves();
    let denied = connect(server.address, Ipv4Addr::new(127, 0, 0, 3)).unwrap();
    let mut denied = Peer {
        control: denied,
        cookie: [0; 37],
        server: server.address,
        from: HOSTILE,
    };
    let (said, closed) = denied.ending(PROMPT);
    assert!(said.is_empty() && closed.is_some(), "{said:?}");
    server.assert_says("its address is not allowed to connect");
}

#[test]
fn a_test_that_carries_more_than_permitted_is_ended() {
    let _slot = load_slot();
    let test = r#"{"tcp":true,"time":60}"#;
    floods(
        "--server-bitrate-limit",
        "10M",
        test,
        false,
        (27, "10 Mbit/s is permitted"),
    );
    floods(
        "--max-bytes",
        "10M",
        test,
        false,
        (37, "more than the 10 MiB that are permitted"),
    );
    // A gigabyte at once would never exceed a rate.
    let burst = r#"{"tcp":true,"time":60,"len":1048576,"bandwidth":1,"burst":1000}"#;
    floods(
        "--server-bitrate-limit",
        "10M",
        burst,
        false,
        (27, "10 Mbit/s is permitted"),
    );
    // What follows the end is the same load.
    floods(
        "--max-bytes",
        "10M",
        test,
        true,
        (37, "more than the 10 MiB that are permitted"),
    );
}

/// A test of no given size, which a server with this limit must end; `ended` by the client, which
/// goes on.
fn floods(limit: &str, value: &str, test: &str, ended: bool, (number, why): (i32, &str)) {
    let server = Server::start(&[limit, value]);
    let (mut peer, mut data) = begun(server.address, test, 1).unwrap();
    if ended {
        peer.control.write_all(&[state::TEST_END]).unwrap();
        peer.expect(state::RESULTS).unwrap();
    }
    let mut stream = data.remove(0);
    stream.set_write_timeout(Some(PROMPT)).unwrap();
    // 64 Mbit/s.
    let flood = thread::spawn(move || {
        while stream.write_all(&vec![0; 80_000]).is_ok() {
            thread::sleep(Duration::from_millis(10));
        }
    });
    let (said, closed) = peer.ending(PROMPT);
    assert_eq!(refusal(&said), Some(number), "{said:?}");
    assert!(closed.is_some());
    flood.join().unwrap();
    server.assert_says(why);
    server.assert_serves();
}

/// A UDP test of one stream that the client sends, or does not.
fn udp_parameters(reverse: bool) -> String {
    let reverse = if reverse { r#","reverse":true"# } else { "" };
    format!(r#"{{"udp":true,"time":60,"parallel":1,"len":1000,"bandwidth":8000000{reverse}}}"#)
}

/// Asks for a UDP stream; the socket, if that is answered.
fn hello(server: SocketAddr, from: Ipv4Addr, timeout: Duration) -> Option<UdpSocket> {
    let socket = UdpSocket::bind((from, 0)).unwrap();
    socket.connect(server).unwrap();
    socket.set_read_timeout(Some(timeout)).unwrap();
    socket.send(b"9876").unwrap();
    let mut reply = [0; 64];
    let length = socket.recv(&mut reply).ok()?;
    assert_eq!(&reply[..length], b"6789");
    Some(socket)
}

#[test]
fn a_forged_hello_gets_no_answer() {
    const SHORT: Duration = Duration::from_millis(300);
    let server = Server::start(&[]);
    let answered = |from, timeout| hello(server.address, from, timeout).is_some();
    assert!(!answered(HOSTILE, SHORT), "nobody has asked for a test");
    let mut tcp = Peer::call(server.address, HOSTILE).unwrap();
    tcp.ask(TWO_STREAMS).unwrap();
    tcp.expect(state::CREATE_STREAMS).unwrap();
    assert!(!answered(HOSTILE, SHORT), "its test is not one of UDP");
    let mut udp = Peer::call(server.address, HONEST).unwrap();
    udp.ask(&udp_parameters(false)).unwrap();
    udp.expect(state::CREATE_STREAMS).unwrap();
    assert!(!answered(HOSTILE, SHORT), "the test is another's");
    assert!(answered(HONEST, PROMPT));
    udp.expect(state::TEST_START).unwrap();
    assert!(!answered(HONEST, SHORT), "its test has all of its streams");
}

#[test]
fn udp_load_ends_with_the_control_connection() {
    let server = Server::start(&[]);
    let mut peer = Peer::call(server.address, HOSTILE).unwrap();
    peer.ask(&udp_parameters(true)).unwrap();
    peer.expect(state::CREATE_STREAMS).unwrap();
    let socket = hello(server.address, HOSTILE, PROMPT).unwrap();
    peer.expect(state::TEST_START).unwrap();
    peer.expect(state::TEST_RUNNING).unwrap();
    let mut datagram = [0; 2000];
    assert_eq!(socket.recv(&mut datagram).unwrap(), 1000);
    drop(peer);
    socket
        .set_read_timeout(Some(Duration::from_millis(500)))
        .unwrap();
    let begun = Instant::now();
    while socket.recv(&mut datagram).is_ok() {
        assert!(begun.elapsed() < PROMPT, "it goes on sending");
    }
    server.assert_serves();
}

#[test]
fn many_addresses_open_their_udp_streams_at_once() {
    const DATAGRAMS: u32 = 20;
    let _slot = load_slot();
    let server = Server::start(&[]);
    thread::scope(|scope| {
        let clients: Vec<_> = (1..=30)
            .map(|n| {
                let server = server.address;
                scope.spawn(move || -> io::Result<Value> {
                    let from = Ipv4Addr::new(127, 0, 2, n);
                    let mut peer = Peer::call(server, from)?;
                    peer.ask(&udp_parameters(false))?;
                    peer.expect(state::CREATE_STREAMS)?;
                    let socket = hello(server, from, PROMPT).ok_or(io::ErrorKind::TimedOut)?;
                    peer.expect(state::TEST_START)?;
                    peer.expect(state::TEST_RUNNING)?;
                    for number in 1..=DATAGRAMS {
                        let mut datagram = [0; 1000];
                        datagram[8..12].copy_from_slice(&number.to_be_bytes());
                        socket.send(&datagram)?;
                    }
                    // The word that ends the test may overtake what is still to be read.
                    thread::sleep(Duration::from_millis(300));
                    peer.finish(RESULTS)
                })
            })
            .collect();
        for client in clients {
            let counted = client.join().unwrap().unwrap()["streams"][0].clone();
            let seen = (
                counted["packets"].as_u64(),
                counted["errors"].as_u64(),
                counted["bytes"].as_u64(),
            );
            assert_eq!(
                seen,
                (
                    Some(DATAGRAMS.into()),
                    Some(0),
                    Some(u64::from(DATAGRAMS) * 1000)
                ),
                "{counted}"
            );
        }
    });
}

/// Tests of how soon clients are served, which the load of others would delay.
mod tests_alone {
    use super::*;

    #[test]
    fn silent_connections_from_many_addresses_keep_nobody_out() {
        let _path = path();
        raise_descriptors();
        let server = Server::start(&["--no-iperf2", "--client-timeout", "60"]);
        let usual = serves_fresh_clients(&server, 5);
        let silent = silent_connections(server.address, 32, 128);
        assert_eq!(silent.len(), 32 * 128);
        assert_serves_fresh_clients(&server, usual);
        // Nor do those that send a byte each.
        for mut stream in &silent {
            // It may have lost its place.
            let _ = stream.write_all(b"a");
        }
        let _more = silent_connections(server.address, 32, 128);
        assert_serves_fresh_clients(&server, usual);
    }

    #[test]
    fn silent_connections_keep_nobody_out_of_a_server_with_few_descriptors() {
        // `prlimit` comes with it.
        require!(Unshare);
        let _path = path();
        let server = Server::start_with(
            &["prlimit", "--nofile=256:256"],
            &["--client-timeout", "60"],
        );
        let usual = serves_fresh_clients(&server, 5);
        let silent = silent_connections(server.address, 4, 12);
        assert_eq!(silent.len(), 48);
        assert_serves_fresh_clients(&server, usual);
        assert_eq!(
            upload(server.address, HONEST, 64, 640_000),
            Ok(640_000),
            "{}",
            server.log()
        );
    }
}
