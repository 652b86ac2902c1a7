//! Many connections at once through a port, to a target of the same process.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::Timespec;
use rustix::event::epoll::{CreateFlags, Event, EventData, EventFlags, add, create, wait};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Many connections from this process to a target in it, through whatever listens on a port. All
/// send their number and a few bytes; some of them send as fast as they can.
#[derive(Debug, Clone, Copy)]
pub struct ManyConnections {
    /// Connections that are open at once.
    pub connections: usize,
    /// Those of them that send as fast as they can.
    pub active: usize,
    /// Time for which they do. The first quarter does not count for their shares.
    pub duration: Duration,
}

/// The result of many connections.
#[derive(Debug)]
pub struct Carried {
    /// Time until all connections had reached the target.
    pub opened_in: Duration,
    /// Connections that were refused or reset, or did not reach the target.
    pub refused: usize,
    /// Connections of which the target received other bytes than were sent, or not all.
    pub wrong: usize,
    /// Payload that each active connection delivered while it counts.
    pub shares: Vec<u64>,
    /// The time that counts.
    pub counted: Duration,
}

/// Bytes that are written at once, and read.
const CHUNK: usize = 64 << 10;

/// Bytes after which the payload repeats.
const PERIOD: usize = 1 << 20;

/// Bytes that a connection sends which is not active.
const FEW: usize = 100;

/// Time for connections to open, and to end.
const DEADLINE: Duration = Duration::from_mins(1);

/// Events that are taken at once.
const EVENTS: usize = 512;

/// Raises this process's limit of open files so that it, and the processes that it starts, may have
/// `descriptors`.
///
/// # Errors
/// Returns a sentence with the number if the hard limit is lower and this user may not raise it.
pub fn allow_descriptors(descriptors: u64) -> Result<(), String> {
    let limit = getrlimit(Resource::Nofile);
    let maximum = limit.maximum.map(|hard| hard.max(descriptors));
    let soft = limit.current.map(|soft| soft.max(descriptors));
    setrlimit(Resource::Nofile, Rlimit { current: soft, maximum }).map_err(|error| {
        let hard = limit.maximum.unwrap_or(u64::MAX);
        format!("{descriptors} open files are needed and {hard} permitted ({error}): raise the limit with `ulimit -Hn`")
    })
}

impl ManyConnections {
    /// Opens the connections to `port` of the loopback address, sends, and closes them in order.
    /// `target` accepts them. `at_the_end` is called once the active ones have sent for as long as
    /// they were to, while all are open.
    ///
    /// # Panics
    /// If this process lacks descriptors or threads.
    pub fn run(&self, port: u16, target: TcpListener, at_the_end: impl FnOnce()) -> Carried {
        let payload = Arc::new(Payload::new());
        let counts: Arc<Vec<AtomicU64>> =
            Arc::new((0..self.connections).map(|_| AtomicU64::new(0)).collect());
        let ended = Arc::new(AtomicBool::new(false));
        let serving = {
            let (payload, counts, ended) = (
                Arc::clone(&payload),
                Arc::clone(&counts),
                Arc::clone(&ended),
            );
            thread::spawn(move || Target::new(target, payload, counts).serve(&ended))
        };
        let began = Instant::now();
        let mut clients = Clients::open(self.connections, port, payload);
        clients.wait_until_reached();
        let opened_in = began.elapsed();
        let active = self.active_ones();
        let read = |index: &usize| counts[*index].load(Ordering::Relaxed);
        clients.send(&active, self.duration / 4);
        let (before, counted_from): (Vec<u64>, _) =
            (active.iter().map(read).collect(), Instant::now());
        clients.send(&active, self.duration * 3 / 4);
        let (after, counted): (Vec<u64>, _) =
            (active.iter().map(read).collect(), counted_from.elapsed());
        at_the_end();
        let (refused, wrong) = clients.finish();
        ended.store(true, Ordering::Relaxed);
        serving
            .join()
            .expect("the target does not panic")
            .expect("the target has descriptors");
        let shares = after
            .iter()
            .zip(&before)
            .map(|(after, before)| after - before)
            .collect();
        Carried {
            opened_in,
            refused,
            wrong,
            shares,
            counted,
        }
    }

    /// Chooses the active ones at random, but always the same.
    fn active_ones(&self) -> Vec<usize> {
        let mut state = 1_u64;
        let mut all: Vec<usize> = (0..self.connections).collect();
        for index in 0..self.active.min(self.connections) {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let left = (self.connections - index) as u64;
            all.swap(index, index + (state >> 33) as usize % left as usize);
        }
        all.truncate(self.active);
        all
    }
}

impl Carried {
    /// Returns the smallest and the largest share over the mean.
    pub fn spread(&self) -> (f64, f64) {
        let mean = self.bytes() as f64 / self.shares.len() as f64;
        let over = |share: Option<&u64>| share.map_or(f64::NAN, |share| *share as f64 / mean);
        (
            over(self.shares.iter().min()),
            over(self.shares.iter().max()),
        )
    }

    /// Returns Jain's index of the shares: 1 if all are the same, and the inverse of their number
    /// if one has all.
    pub fn fairness(&self) -> f64 {
        let squares: f64 = self
            .shares
            .iter()
            .map(|share| (*share as f64).powi(2))
            .sum();
        (self.bytes() as f64).powi(2) / (self.shares.len() as f64 * squares)
    }

    /// Returns the payload of all active connections while it counts.
    pub fn bytes(&self) -> u64 {
        self.shares.iter().sum()
    }
}

/// The bytes that connections send: each begins at another place.
struct Payload(Vec<u8>);

impl Payload {
    fn new() -> Self {
        let mut state = 7_u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        let mut bytes: Vec<u8> = (0..PERIOD).map(|_| next()).collect();
        bytes.extend_from_within(..CHUNK);
        Self(bytes)
    }

    fn at(&self, connection: usize, offset: u64) -> &[u8] {
        let from = (connection as u64 * 7919 + offset) as usize % PERIOD;
        &self.0[from..from + CHUNK]
    }
}

struct Poller(OwnedFd);

impl Poller {
    fn new() -> io::Result<Self> {
        Ok(Self(create(CreateFlags::CLOEXEC)?))
    }

    fn events(&self) -> io::Result<Vec<Event>> {
        let mut events = Vec::with_capacity(EVENTS);
        let timeout = Timespec {
            tv_sec: 0,
            tv_nsec: 20_000_000,
        };
        match wait(
            &self.0,
            rustix::buffer::spare_capacity(&mut events),
            Some(&timeout),
        ) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(events),
            Err(error) => Err(error.into()),
        }
    }
}

/// The clients of all connections.
struct Clients {
    payload: Arc<Payload>,
    streams: Vec<Option<TcpStream>>,
    sent: Vec<u64>,
    refused: usize,
}

impl Clients {
    fn open(connections: usize, port: u16, payload: Arc<Payload>) -> Self {
        let connect = |index: usize| {
            let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
            stream.write_all(&(index as u32).to_le_bytes()).ok()?;
            stream
                .set_read_timeout(Some(DEADLINE))
                .ok()
                .map(|()| stream)
        };
        let streams: Vec<_> = (0..connections).map(connect).collect();
        Self {
            payload,
            streams,
            sent: vec![0; connections],
            refused: 0,
        }
    }

    /// Waits for the byte by which the target confirms each connection.
    fn wait_until_reached(&mut self) {
        for stream in &mut self.streams {
            let reached = stream
                .as_mut()
                .is_some_and(|stream| stream.read_exact(&mut [0]).is_ok());
            if !reached {
                *stream = None;
                self.refused += 1;
            }
        }
    }

    fn send(&mut self, active: &[usize], duration: Duration) {
        let poller = Poller::new().expect("an epoll instance can be made");
        for index in active {
            if let Some(stream) = &self.streams[*index] {
                stream.set_nonblocking(true).expect("a socket can be set");
                add(
                    &poller.0,
                    stream,
                    EventData::new_u64(*index as u64),
                    EventFlags::OUT,
                )
                .expect("it can be watched");
            }
        }
        let deadline = Instant::now() + duration;
        while Instant::now() < deadline {
            for event in poller.events().expect("events are reported") {
                self.write(event.data.u64() as usize, CHUNK);
            }
        }
    }

    fn write(&mut self, index: usize, most: usize) {
        let Some(stream) = &mut self.streams[index] else {
            return;
        };
        match stream.write(&self.payload.at(index, self.sent[index])[..most]) {
            Ok(count) => self.sent[index] += count as u64,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => self.streams[index] = None,
        }
    }

    /// Closes all in order. Returns how many were refused, and of how many the target did not
    /// receive what was sent.
    fn finish(mut self) -> (usize, usize) {
        for index in 0..self.streams.len() {
            if let Some(stream) = &self.streams[index] {
                stream.set_nonblocking(false).expect("a socket can be set");
            }
            self.write(index, FEW);
            if let Some(stream) = &self.streams[index] {
                // One that was reset shows it at the next read.
                let _ = stream.shutdown(Shutdown::Write);
            }
        }
        let mut right = 0;
        for (stream, sent) in self.streams.iter_mut().zip(&self.sent) {
            let Some(stream) = stream else { continue };
            let mut answer = Vec::new();
            let closed = stream.read_to_end(&mut answer).is_ok();
            right += usize::from(closed && answer == sent.to_le_bytes());
        }
        (self.refused, self.streams.len() - self.refused - right)
    }
}

/// The target of all connections.
struct Target {
    listener: TcpListener,
    poller: Poller,
    payload: Arc<Payload>,
    counts: Arc<Vec<AtomicU64>>,
    connections: Vec<Option<Received>>,
    buffer: Vec<u8>,
}

/// A connection at the target.
struct Received {
    stream: TcpStream,
    number: Option<usize>,
    bytes: u64,
    is_right: bool,
}

/// The event of the listener.
const LISTENER: u64 = u64::MAX;

impl Target {
    fn new(listener: TcpListener, payload: Arc<Payload>, counts: Arc<Vec<AtomicU64>>) -> Self {
        let poller = Poller::new().expect("an epoll instance can be made");
        listener.set_nonblocking(true).expect("a socket can be set");
        add(
            &poller.0,
            &listener,
            EventData::new_u64(LISTENER),
            EventFlags::IN,
        )
        .expect("it can be watched");
        Self {
            listener,
            poller,
            payload,
            counts,
            connections: Vec::new(),
            buffer: vec![0; CHUNK],
        }
    }

    fn serve(mut self, ended: &AtomicBool) -> io::Result<()> {
        while !ended.load(Ordering::Relaxed) {
            for event in self.poller.events()? {
                match event.data.u64() {
                    LISTENER => self.accept()?,
                    slot => self.read(slot as usize),
                }
            }
        }
        Ok(())
    }

    fn accept(&mut self) -> io::Result<()> {
        loop {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    let slot = EventData::new_u64(self.connections.len() as u64);
                    add(&self.poller.0, &stream, slot, EventFlags::IN)?;
                    self.connections.push(Some(Received {
                        stream,
                        number: None,
                        bytes: 0,
                        is_right: true,
                    }));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    fn read(&mut self, slot: usize) {
        let Some(received) = &mut self.connections[slot] else {
            return;
        };
        let ended = match received.number {
            None => received.begin(self.counts.len()),
            Some(number) => received.check(
                number,
                &self.payload,
                &self.counts[number],
                &mut self.buffer,
            ),
        };
        if ended {
            self.connections[slot] = None;
        }
    }
}

impl Received {
    /// Reads the number, which arrives whole, and confirms it. Returns whether the connection is
    /// over.
    fn begin(&mut self, connections: usize) -> bool {
        let mut number = [0; 4];
        let read = self
            .stream
            .read_exact(&mut number)
            .and_then(|()| self.stream.write_all(&[1]));
        let number = u32::from_le_bytes(number) as usize;
        self.number = Some(number).filter(|number| *number < connections);
        read.is_err() || self.number.is_none()
    }

    /// Compares what has come, and answers at the end. Returns whether the connection is over.
    fn check(
        &mut self,
        number: usize,
        payload: &Payload,
        total: &AtomicU64,
        buffer: &mut [u8],
    ) -> bool {
        let Ok(count) = self.stream.read(buffer) else {
            return true;
        };
        if count == 0 {
            let right = if self.is_right { self.bytes } else { u64::MAX };
            // A client that has gone does not wait for it.
            let _ = self.stream.write_all(&right.to_le_bytes());
            return true;
        }
        self.is_right &= buffer[..count] == payload.at(number, self.bytes)[..count];
        self.bytes += count as u64;
        total.store(self.bytes, Ordering::Relaxed);
        false
    }
}

#[cfg(test)]
mod tests;
