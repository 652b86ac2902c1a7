//! Small requests over loopback, one after the other: direct, and through relays, alone and next to
//! a bulk flow through the same relays. Prints the median and the 99th percentile of each.
//!
//!     cargo run --release -p fullpipe-relay --example latency

mod common;

use std::error::Error;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::{Relays, serve_if_asked};

const REQUESTS: usize = 5000;
const REQUEST: usize = 100;
/// The first byte of a connection says what it is.
const ECHO: u8 = 0;
const BULK: u8 = 1;

fn main() -> Result<(), Box<dyn Error>> {
    serve_if_asked(&std::env::args().skip(1).collect::<Vec<_>>())?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let target = listener.local_addr()?.port();
    thread::spawn(move || {
        listener
            .incoming()
            .map_while(Result::ok)
            .for_each(|client| drop(thread::spawn(|| answer(client))));
    });
    let direct = line("direct", &mut round_trips(target)?, None)?;
    let quiet = with_bulk(target, || round_trips(target))?;
    line("direct, next to a bulk flow", &mut quiet?, Some(direct))?;
    for kind in ["alone", "plain", "tls", "compress"] {
        let relays = Relays::start(kind, target, 16)?;
        // The pool of a pair fills meanwhile.
        thread::sleep(Duration::from_millis(300));
        line(kind, &mut round_trips(relays.port)?, Some(direct))?;
        let loaded = with_bulk(relays.port, || round_trips(relays.port))?;
        line(
            &format!("{kind}, next to a bulk flow"),
            &mut loaded?,
            Some(direct),
        )?;
    }
    Ok(())
}

/// Answers small requests, or takes what comes.
fn answer(mut client: TcpStream) -> std::io::Result<()> {
    client.set_nodelay(true)?;
    let mut kind = [0];
    client.read_exact(&mut kind)?;
    let mut buffer = vec![0; 256 << 10];
    loop {
        let count = client.read(&mut buffer)?;
        if count == 0 {
            return Ok(());
        }
        if kind[0] == ECHO {
            client.write_all(&buffer[..count])?;
        }
    }
}

fn round_trips(port: u16) -> Result<Vec<Duration>, Box<dyn Error>> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_nodelay(true)?;
    stream.write_all(&[ECHO])?;
    let (request, mut response) = ([7; REQUEST], [0; REQUEST]);
    let mut times = Vec::with_capacity(REQUESTS);
    for _ in 0..REQUESTS {
        let began = Instant::now();
        stream.write_all(&request)?;
        stream.read_exact(&mut response)?;
        times.push(began.elapsed());
    }
    Ok(times)
}

/// Runs `measure` while a connection sends as fast as it can.
fn with_bulk<T>(port: u16, measure: impl FnOnce() -> T) -> Result<T, Box<dyn Error>> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.write_all(&[BULK])?;
    let ends = Arc::new(AtomicBool::new(false));
    let sender = thread::spawn({
        let ends = Arc::clone(&ends);
        move || {
            let chunk = vec![7; 256 << 10];
            while !ends.load(Ordering::Relaxed) && stream.write_all(&chunk).is_ok() {}
        }
    });
    thread::sleep(Duration::from_millis(200));
    let measured = measure();
    ends.store(true, Ordering::Relaxed);
    sender.join().map_err(|_| "the sender panicked")?;
    Ok(measured)
}

/// Prints a line, and returns the median.
fn line(
    name: &str,
    times: &mut [Duration],
    direct: Option<Duration>,
) -> Result<Duration, Box<dyn Error>> {
    times.sort_unstable();
    let (median, high) = (times[times.len() / 2], times[times.len() * 99 / 100]);
    let micros = |time: Duration| time.as_secs_f64() * 1e6;
    let more = direct.map_or_else(String::new, |direct| {
        format!(", {:.0} µs more", micros(median) - micros(direct))
    });
    writeln!(
        std::io::stdout(),
        "{name}: median {:.0} µs{more}, 99 % within {:.0} µs",
        micros(median),
        micros(high)
    )?;
    Ok(median)
}
