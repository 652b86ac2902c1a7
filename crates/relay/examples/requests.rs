//! Very many small requests through a relay or a pair, on several connections at once, each of
//! which is opened anew after a hundred requests. Prints how many answers were wrong.
//!
//!     cargo run --release -p fullpipe-relay --example requests [alone|plain|tls|compress [REQUESTS [CLIENTS]]]

mod common;

use std::error::Error;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use common::{Relays, serve_if_asked};

/// Requests of a connection.
const REQUESTS: usize = 100;

/// Length of a request, at most. What the relay compresses is longer than 128 bytes.
const MAX_REQUEST: usize = 1000;

/// Time for an answer.
const DEADLINE: Duration = Duration::from_secs(10);

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    serve_if_asked(&arguments)?;
    let number = |index: usize, default: usize| {
        arguments
            .get(index)
            .map_or(Ok(default), |text| text.parse())
    };
    let kind = arguments.first().map_or("tls", String::as_str);
    let (requests, clients) = (number(1, 1_000_000)?, number(2, 16)?);
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let relays = Relays::start(kind, listener.local_addr()?.port(), 2 * clients)?;
    thread::spawn(move || {
        listener
            .incoming()
            .map_while(Result::ok)
            .for_each(|client| drop(thread::spawn(|| answer(client))));
    });
    let (began, port) = (Instant::now(), relays.port);
    let each = requests.div_ceil(clients);
    let clients: Vec<_> = (0..clients)
        .map(|client| thread::spawn(move || ask(port, client, each)))
        .collect();
    let (mut right, mut wrong) = (0, 0);
    for client in clients {
        let answers = client.join().map_err(|_| "a client panicked")??;
        right += answers.iter().filter(|is_right| **is_right).count();
        wrong += answers.iter().filter(|is_right| !**is_right).count();
    }
    let took = began.elapsed().as_secs_f64();
    let rate = (right + wrong) as f64 / took;
    writeln!(
        std::io::stdout(),
        "{kind}: {right} right answers, {wrong} wrong, {took:.1} s, {rate:.0} a second"
    )?;
    Ok(())
}

/// Returns the bytes that come, in reverse: two bytes of length, and a request.
fn answer(mut client: TcpStream) -> std::io::Result<()> {
    client.set_nodelay(true)?;
    let mut length = [0; 2];
    loop {
        match client.read_exact(&mut length) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(()),
            read => read?,
        }
        let mut request = vec![0; usize::from(u16::from_be_bytes(length))];
        client.read_exact(&mut request)?;
        request.reverse();
        client.write_all(&request)?;
    }
}

/// Asks so many `requests`, and returns which answers were right.
fn ask(port: u16, client: usize, requests: usize) -> std::io::Result<Vec<bool>> {
    let mut state = client as u64;
    // Half of the clients send what can be compressed.
    let letters = if client.is_multiple_of(2) { u8::MAX } else { 3 };
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    let mut answers = Vec::with_capacity(requests);
    while answers.len() < requests {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(DEADLINE))?;
        for _ in 0..REQUESTS.min(requests - answers.len()) {
            let length = 1 + usize::from(u16::from_be_bytes([next(), next()])) % MAX_REQUEST;
            let request: Vec<u8> = (0..length).map(|_| next() & letters).collect();
            stream.write_all(&[&(length as u16).to_be_bytes()[..], &request].concat())?;
            let mut answer = vec![0; length];
            stream.read_exact(&mut answer)?;
            answers.push(answer.iter().eq(request.iter().rev()));
        }
    }
    Ok(answers)
}
