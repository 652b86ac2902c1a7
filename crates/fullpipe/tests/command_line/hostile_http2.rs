//! A thousand clients of the web server by HTTP/2 at once, of which 400 are hostile and 200 slow.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::time::{Duration, Instant};

use fullpipe_control::{ControlConnection, WebClientTls};
use fullpipe_testkit::http2::{
    CONTINUATION, DATA, HEADERS, PING, PREFACE, RESET, SETTINGS, WINDOW_UPDATE, frame, get,
    request, request_fields,
};
use fullpipe_testkit::{Running, free_port, load_slot, wait_for_listener};
use tokio::io::AsyncReadExt;
use tokio::net::TcpSocket;
use tokio::sync::Semaphore;
use tokio::task::{JoinSet, LocalSet};
use tokio::time::{sleep, timeout};

use crate::common::fullpipe;
use crate::hostile::raise_descriptors;

/// Hostile clients in each state, slow clients, and others.
const HOSTILE: u8 = 50;
const SLOW: u16 = 200;
const OTHERS: u16 = 400;

/// Clients that begin their handshakes at once; all of them take processor time of this test, too.
const AT_ONCE: usize = 16;

/// Time after which the server ends a client that does nothing, and what it may take beyond that
/// while this test has the processors.
const CLIENT_TIMEOUT: &str = "3";
const DEADLINE: Duration = Duration::from_secs(20);

/// Longest time that a client may wait that is neither hostile nor slow.
const PROMPT: Duration = Duration::from_secs(5);

/// Most anonymous memory of the server while it has all those clients, in KiB: 128 for each.
const MAX_KIB: u64 = 128 * 1000;

/// Returns what the hostile clients send, each state with its name.
fn hostile_states() -> Vec<(&'static str, Vec<u8>)> {
    let greeting = [PREFACE, &frame(SETTINGS, 0, 0, &[])].concat();
    let flood = |one: &dyn Fn(u32) -> Vec<u8>| {
        let frames = (0..3000).flat_map(one);
        greeting.iter().copied().chain(frames).collect::<Vec<u8>>()
    };
    let endless = |at| match at {
        0 => frame(HEADERS, 0, 1, &request_fields(2, "/nq/small")),
        _ => frame(CONTINUATION, 0, 1, &[0x82; 1000]),
    };
    let reset = |at| {
        let stream = 2 * at + 1;
        [get(stream, "/nq/small"), frame(RESET, 0, stream, &[0; 4])].concat()
    };
    let no_window = frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]);
    let upload = request(1, 3, "/nq/upload", 0);
    let half = &frame(DATA, 0, 1, &[0; 1000])[..500];
    let overflow = frame(WINDOW_UPDATE, 0, 0, &0x7fff_ffff_u32.to_be_bytes());
    vec![
        ("preface alone", PREFACE.to_vec()),
        ("settings", flood(&|_| frame(SETTINGS, 0, 0, &[]))),
        ("pings", flood(&|_| frame(PING, 0, 0, &[0; 8]))),
        ("fields without an end", flood(&endless)),
        ("resets", flood(&reset)),
        (
            "no window",
            [PREFACE, &no_window, &get(1, "/nq/large")].concat(),
        ),
        ("half a frame", [&greeting[..], &upload, half].concat()),
        ("too large a window", [&greeting[..], &overflow].concat()),
    ]
}

/// How clients reach the server.
struct Reach {
    server: SocketAddr,
    tls: WebClientTls,
    at_once: Semaphore,
}

impl Reach {
    async fn connect(&self, from: Ipv4Addr) -> io::Result<ControlConnection> {
        let _turn = self.at_once.acquire().await.map_err(io::Error::other)?;
        let socket = TcpSocket::new_v4()?;
        socket.bind((from, 0).into())?;
        let stream = socket.connect(self.server).await?;
        self.tls.connect_tls("localhost", stream).await
    }

    /// Sends `bytes` and nothing more. Returns the time until the server has ended the connection.
    async fn outlast(&self, from: Ipv4Addr, bytes: &[u8]) -> io::Result<Duration> {
        let mut connection = self.connect(from).await?;
        let begun = Instant::now();
        // The server may end the connection before it has read all of it.
        let _ = timeout(DEADLINE, connection.send_bytes(bytes)).await?;
        let mut buffer = vec![0; 4096];
        let is_open = |read: io::Result<usize>| read.is_ok_and(|count| count > 0);
        while is_open(timeout(DEADLINE, connection.read(&mut buffer)).await?) {}
        Ok(begun.elapsed())
    }

    /// Asks for a small object in pieces of `piece` bytes. Returns the time until it came.
    async fn ask(&self, from: Ipv4Addr, piece: usize) -> io::Result<Duration> {
        let mut connection = self.connect(from).await?;
        let begun = Instant::now();
        let request = [PREFACE, &frame(SETTINGS, 0, 0, &[]), &get(1, "/nq/small")].concat();
        for part in request.chunks(piece) {
            connection.send_bytes(part).await?;
            if piece < request.len() {
                sleep(Duration::from_millis(200)).await;
            }
        }
        let mut answer = Vec::new();
        while !has_data(&answer) {
            if timeout(DEADLINE, connection.read_buf(&mut answer)).await?? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(begun.elapsed())
    }
}

/// Returns true if a whole frame of data is among these frames.
fn has_data(mut bytes: &[u8]) -> bool {
    while let Some((head, rest)) = bytes.split_first_chunk::<9>() {
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        if rest.len() < length {
            return false;
        }
        if head[3] == DATA {
            return true;
        }
        bytes = &rest[length..];
    }
    false
}

#[test]
fn a_thousand_clients_of_http_2_of_which_600_are_hostile_or_slow() {
    let _load = load_slot();
    raise_descriptors();
    let port = free_port();
    let web = format!("127.0.0.1:{port}");
    let command = [
        "serve",
        "-p",
        "0",
        "-B",
        "127.0.0.1",
        "--no-iperf2",
        "--web",
        &web,
    ];
    let server = Running::start(&mut fullpipe(
        &[&command[..], &["--client-timeout", CLIENT_TIMEOUT]].concat(),
    ));
    wait_for_listener(port);
    let reach = Rc::new(Reach {
        server: (Ipv4Addr::LOCALHOST, port).into(),
        tls: WebClientTls::unverified().unwrap().preferring_http2(),
        at_once: Semaphore::new(AT_ONCE),
    });
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let most = LocalSet::new().block_on(&runtime, attack(&reach, &server));
    println!("{most} KiB at most");
    assert!(most < MAX_KIB, "{most} KiB");
    // Whoever was hostile has no place any more.
    let asked = LocalSet::new().block_on(&runtime, reach.ask(Ipv4Addr::LOCALHOST, usize::MAX));
    assert!(asked.unwrap() < Duration::from_secs(2));
}

/// Lets all clients do what they do. Returns the most anonymous memory of the server, in KiB.
async fn attack(reach: &Rc<Reach>, server: &Running) -> u64 {
    let mut clients = JoinSet::new();
    for (state, (name, bytes)) in (1..).zip(hostile_states()) {
        for client in 0..HOSTILE {
            let (reach, bytes) = (Rc::clone(reach), bytes.clone());
            let from = Ipv4Addr::new(127, 1, state, client);
            clients.spawn_local(async move { (name, reach.outlast(from, &bytes).await) });
        }
    }
    for client in 0..SLOW + OTHERS {
        let reach = Rc::clone(reach);
        let (name, piece) = if client < SLOW {
            ("slow", 20)
        } else {
            ("others", usize::MAX)
        };
        let [high, low] = client.to_be_bytes();
        let from = Ipv4Addr::new(127, 2, high, low);
        clients.spawn_local(async move { (name, reach.ask(from, piece).await) });
    }
    let (mut most, mut longest) = (0, BTreeMap::new());
    while let Some(ended) = clients.join_next().await {
        let (name, took) = ended.unwrap();
        let took = took.unwrap_or_else(|error| panic!("{name}: {error}"));
        let so_far: &mut Duration = longest.entry(name).or_default();
        *so_far = took.max(*so_far);
        most = most.max(server.anonymous_kib());
    }
    println!("{longest:.1?}");
    for (name, took) in longest {
        let within = if name == "others" { PROMPT } else { DEADLINE };
        assert!(took < within, "{name}: {took:?}");
    }
    most
}
