//! Pairs of relays in which something is killed or stalled at a random moment: a relay, a host, or
//! the path.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use fullpipe_sys::tcp_info;
use fullpipe_testkit::{Running, load_slot, within};
use rand_pcg::Pcg32;
use rand_pcg::rand_core::Rng as _;
use rustix::process::{Pid, Signal, kill_process};
use socket2::SockRef;

use crate::relay::{KEY, Kind, Relays, TIMEOUT, listener, reset, with_timeouts};

/// Time in which everybody must know of a failure.
const DEADLINE: Duration = Duration::from_secs(5);

/// Time between two checks of what flags say.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// The part that fails.
#[derive(Debug, Clone, Copy)]
enum Part {
    NearRelay,
    FarRelay,
    Client,
    Target,
    Path,
}

/// The way in which it fails.
#[derive(Debug, Clone, Copy)]
enum Fault {
    Killed,
    /// It stands still for a while, and goes on.
    Stalled,
    /// It stands still for a while, and is killed.
    StalledAndKilled,
}

/// A moment of a connection.
#[derive(Debug, Clone, Copy)]
struct Moment {
    kind: Kind,
    part: Part,
    fault: Fault,
    after: Duration,
    stall: Duration,
}

impl Moment {
    fn random(random: &mut Pcg32) -> Self {
        let parts = [
            Part::NearRelay,
            Part::FarRelay,
            Part::Client,
            Part::Target,
            Part::Path,
        ];
        Self {
            kind: *choose(random, &[Kind::Plain, Kind::Tls, Kind::Compressed]),
            part: *choose(random, &parts),
            fault: *choose(
                random,
                &[Fault::Killed, Fault::Stalled, Fault::StalledAndKilled],
            ),
            after: Duration::from_micros(u64::from(random.next_u32() % 150_000)),
            stall: Duration::from_millis(u64::from(50 + random.next_u32() % 150)),
        }
    }
}

fn choose<'c, T>(random: &mut Pcg32, of: &'c [T]) -> &'c T {
    &of[random.next_u32() as usize % of.len()]
}

#[test]
fn whatever_is_killed_or_stalled_nothing_hangs_and_no_byte_is_wrong() {
    let _slot = load_slot();
    at_random_moments(10, 22);
}

#[test]
#[ignore = "takes some minutes"]
fn whatever_is_killed_or_stalled_at_200_moments() {
    let _slot = load_slot();
    at_random_moments(200, 2200);
}

fn at_random_moments(count: u32, seed: u64) {
    let mut random = Pcg32::new(seed, 0);
    for number in 0..count {
        let moment = Moment::random(&mut random);
        println!("{number}: {moment:?}");
        survive(moment);
    }
}

/// Lets it happen while both ends send and receive, and checks what they and the relays make of it.
fn survive(moment: Moment) {
    let (listener, target) = listener();
    let path = Path::default();
    let allowed = format!("127.0.0.1:{target}");
    let mut relays = Relays::over(moment.kind, target, [KEY, &allowed], |far| path.start(far));
    // The pool is full when there is nothing left to come.
    assert!(within(DEADLINE, || sockets(&relays.processes[1]) >= 9));
    thread::sleep(Duration::from_millis(50));
    let before: Vec<usize> = relays.processes.iter().map(sockets).collect();
    let client = End::start(&relays.connect(), 1, 2);
    let target = End::start(&with_timeouts(listener.accept().unwrap().0), 2, 1);
    thread::sleep(moment.after);
    let survivors = happen(moment, &mut relays, &path, [&client, &target]);
    // Everybody notices, before an end in order could come first.
    if matches!(moment.fault, Fault::Stalled) {
        thread::sleep(Duration::from_millis(50));
    } else {
        within(DEADLINE / 2, || client.has_ended() && target.has_ended());
    }
    client.flags.stop.store(true, Ordering::SeqCst);
    target.flags.stop.store(true, Ordering::SeqCst);
    let began = Instant::now();
    let [client, target] = [client, target].map(End::finish);
    assert!(
        began.elapsed() < DEADLINE,
        "{moment:?}: it took {:?}",
        began.elapsed()
    );
    if matches!(moment.fault, Fault::Stalled) {
        assert!(
            client.is_whole() && target.is_whole(),
            "{moment:?}: {client:?}, {target:?}"
        );
        assert_eq!(
            (client.received, target.received),
            (target.sent, client.sent),
            "{moment:?}"
        );
    } else {
        assert!(
            client.was_reset && target.was_reset,
            "{moment:?}: {client:?}, {target:?}"
        );
        assert!(
            client.received <= target.sent && target.received <= client.sent,
            "{moment:?}"
        );
    }
    for survivor in survivors {
        let relay = &relays.processes[survivor];
        let freed = within(DEADLINE, || sockets(relay) <= before[survivor]);
        assert!(
            freed,
            "{moment:?}: {} sockets, {} before",
            sockets(relay),
            before[survivor]
        );
    }
}

/// The sockets of a relay. It keeps the pipes that it has once used.
fn sockets(relay: &Running) -> usize {
    let entries = std::fs::read_dir(format!("/proc/{}/fd", relay.pid())).unwrap();
    let links = entries.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    links
        .filter(|link| link.to_string_lossy().starts_with("socket:"))
        .count()
}

/// Lets it happen. Returns the relays that are still there, by their index.
fn happen(moment: Moment, relays: &mut Relays, path: &Path, ends: [&End; 2]) -> Vec<usize> {
    let stalls = !matches!(moment.fault, Fault::Killed);
    let kills = !matches!(moment.fault, Fault::Stalled);
    match moment.part {
        Part::FarRelay | Part::NearRelay => {
            let index = usize::from(matches!(moment.part, Part::NearRelay));
            let relay = &mut relays.processes[index];
            if stalls {
                signal(relay, Signal::STOP);
                thread::sleep(moment.stall);
            }
            if kills {
                relay.kill();
                return vec![1 - index];
            }
            signal(relay, Signal::CONT);
        }
        Part::Client | Part::Target => {
            let end = ends[usize::from(matches!(moment.part, Part::Target))];
            if stalls {
                end.flags.stalls.store(true, Ordering::SeqCst);
                thread::sleep(moment.stall);
            }
            if kills {
                end.flags.dies.store(true, Ordering::SeqCst);
            }
            end.flags.stalls.store(false, Ordering::SeqCst);
        }
        Part::Path => {
            if stalls {
                path.set(STALLED);
                thread::sleep(moment.stall);
            }
            path.set(if kills { BROKEN } else { FLOWS });
        }
    }
    vec![0, 1]
}

fn signal(relay: &Running, signal: Signal) {
    let pid = Pid::from_raw(relay.pid().cast_signed()).expect("a process has a number");
    kill_process(pid, signal).expect("it has not ended");
}

/// One end of the connection: sends until it is to stop, and receives until the other has closed.
struct End {
    flags: Arc<Flags>,
    sender: JoinHandle<(u64, io::Result<()>)>,
    receiver: JoinHandle<(u64, io::Result<()>)>,
}

#[derive(Debug, Default)]
struct Flags {
    stop: AtomicBool,
    stalls: AtomicBool,
    dies: AtomicBool,
}

/// The result of an end.
#[derive(Debug)]
struct Ended {
    sent: u64,
    received: u64,
    was_reset: bool,
    errors: [Option<ErrorKind>; 2],
}

impl Ended {
    fn is_whole(&self) -> bool {
        self.errors == [None, None]
    }
}

impl End {
    fn start(stream: &TcpStream, sends: u64, receives: u64) -> Self {
        let flags = Arc::<Flags>::default();
        // Who waits must see what the flags say.
        stream.set_read_timeout(Some(POLL_INTERVAL)).unwrap();
        stream.set_write_timeout(Some(POLL_INTERVAL)).unwrap();
        let half = |work: fn(&TcpStream, u64, &mut u64, &Flags) -> io::Result<()>, seed: u64| {
            let (stream, flags) = (stream.try_clone().unwrap(), Arc::clone(&flags));
            thread::spawn(move || {
                let mut bytes = 0;
                let ended = work(&stream, seed, &mut bytes, &flags);
                (bytes, ended)
            })
        };
        let (sender, receiver) = (half(send, sends), half(receive, receives));
        Self {
            flags,
            sender,
            receiver,
        }
    }

    fn has_ended(&self) -> bool {
        self.sender.is_finished() && self.receiver.is_finished()
    }

    fn finish(self) -> Ended {
        let ((sent, first), (received, second)) =
            (self.sender.join().unwrap(), self.receiver.join().unwrap());
        let errors = [first, second].map(|ended| ended.err().map(|error| error.kind()));
        // The kernel reports a reset to whoever asks first, and an end or a broken pipe to the
        // other.
        let was_reset = errors.contains(&Some(ErrorKind::ConnectionReset))
            || self.flags.dies.load(Ordering::SeqCst);
        Ended {
            sent,
            received,
            was_reset,
            errors,
        }
    }
}

impl Flags {
    /// Waits while the end stalls.
    ///
    /// # Errors
    /// Fails if it is to die. Its socket is reset once both of its threads have gone, as that of a
    /// program which is killed with data still to read.
    fn go_on(&self, stream: &TcpStream) -> io::Result<()> {
        while self.stalls.load(Ordering::SeqCst) && !self.dies.load(Ordering::SeqCst) {
            thread::sleep(POLL_INTERVAL);
        }
        if self.dies.load(Ordering::SeqCst) {
            SockRef::from(stream).set_linger(Some(Duration::ZERO))?;
            return Err(ErrorKind::ConnectionAborted.into());
        }
        Ok(())
    }
}

const CHUNK: usize = 16 << 10;

/// Fills `chunk` with what stands at `offset` of the stream `seed`: half of it can be compressed.
fn fill(chunk: &mut [u8], seed: u64, offset: u64) {
    for (index, byte) in chunk.iter_mut().enumerate() {
        let at = offset + index as u64;
        let mixed = (at / 2 + seed).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        *byte = if at.is_multiple_of(2) {
            (mixed >> 56) as u8
        } else {
            seed as u8
        };
    }
}

fn send(mut stream: &TcpStream, seed: u64, sent: &mut u64, flags: &Flags) -> io::Result<()> {
    let mut chunk = vec![0; CHUNK];
    while !flags.stop.load(Ordering::SeqCst) {
        flags.go_on(stream)?;
        fill(&mut chunk, seed, *sent);
        match stream.write(&chunk) {
            Ok(count) => *sent += count as u64,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    flags.go_on(stream)?;
    stream.shutdown(Shutdown::Write)
}

fn receive(mut stream: &TcpStream, seed: u64, received: &mut u64, flags: &Flags) -> io::Result<()> {
    let (mut chunk, mut expected) = (vec![0; CHUNK], vec![0; CHUNK]);
    let deadline = Instant::now() + TIMEOUT;
    while Instant::now() < deadline {
        flags.go_on(stream)?;
        let count = match stream.read(&mut chunk) {
            Ok(0) => return Ok(()),
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
            Err(error) => return Err(error),
        };
        fill(&mut expected[..count], seed, *received);
        assert!(
            chunk[..count] == expected[..count],
            "wrong bytes behind {received}"
        );
        *received += count as u64;
    }
    Err(ErrorKind::TimedOut.into())
}

const FLOWS: u8 = 0;
const STALLED: u8 = 1;
const BROKEN: u8 = 2;

/// The path between the relays: bytes pass through this process.
#[derive(Default, Clone)]
struct Path(Arc<AtomicU8>);

impl Path {
    /// Starts to forward connections to the far relay's port; returns the port for the near one.
    fn start(&self, far: u16) -> u16 {
        let (listener, port) = listener();
        let path = self.clone();
        thread::spawn(move || path.accept(&listener, far));
        port
    }

    fn set(&self, state: u8) {
        self.0.store(state, Ordering::SeqCst);
    }

    fn state(&self) -> u8 {
        self.0.load(Ordering::SeqCst)
    }

    fn accept(&self, listener: &TcpListener, far: u16) {
        for near in listener.incoming().map_while(Result::ok) {
            if self.state() == BROKEN {
                reset(near);
                continue;
            }
            let Ok(far) = TcpStream::connect(("127.0.0.1", far)) else {
                reset(near);
                continue;
            };
            let (path, streams) = (self.clone(), Arc::new([near, far]));
            thread::spawn(move || path.join(&streams));
        }
    }

    /// Forwards both ways until either end is reset or the path breaks, and resets what is left.
    fn join(&self, streams: &Arc<[TcpStream; 2]>) {
        for stream in streams.iter() {
            stream.set_nodelay(true).unwrap();
            stream.set_read_timeout(Some(POLL_INTERVAL)).unwrap();
            stream.set_write_timeout(Some(POLL_INTERVAL)).unwrap();
            SockRef::from(stream)
                .set_linger(Some(Duration::ZERO))
                .unwrap();
        }
        let ways = Arc::<Ways>::default();
        let threads = [(0, 1), (1, 0)].map(|(from, to)| {
            let (path, streams, ways) = (self.clone(), Arc::clone(streams), Arc::clone(&ways));
            thread::spawn(move || {
                let ended = path.forward(&streams[from], &streams[to], &ways);
                ways.one_has_failed
                    .fetch_or(ended.is_err(), Ordering::SeqCst);
                ended
            })
        });
        if threads
            .map(|way| way.join().unwrap())
            .iter()
            .all(Result::is_ok)
        {
            streams
                .iter()
                .for_each(|stream| SockRef::from(stream).set_linger(None).unwrap());
        }
    }

    fn forward(&self, mut from: &TcpStream, to: &TcpStream, ways: &Ways) -> io::Result<()> {
        let mut chunk = vec![0; CHUNK];
        loop {
            self.check(ways)?;
            if self.state() == STALLED {
                thread::sleep(POLL_INTERVAL);
                continue;
            }
            match from.read(&mut chunk) {
                // After a reset that the other way was informed of, there is an end, too.
                Ok(0) if is_closed(from) && !ways.one_has_ended.load(Ordering::SeqCst) => {
                    return Err(ErrorKind::ConnectionReset.into());
                }
                Ok(0) => {
                    // First: the other way may see its end before this thread goes on.
                    ways.one_has_ended.store(true, Ordering::SeqCst);
                    return to.shutdown(Shutdown::Write);
                }
                Ok(count) => self.write(to, &chunk[..count], ways)?,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn write(&self, mut to: &TcpStream, mut bytes: &[u8], ways: &Ways) -> io::Result<()> {
        while !bytes.is_empty() {
            self.check(ways)?;
            match to.write(bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn check(&self, ways: &Ways) -> io::Result<()> {
        let broken = self.state() == BROKEN || ways.one_has_failed.load(Ordering::SeqCst);
        if broken {
            Err(ErrorKind::ConnectionReset.into())
        } else {
            Ok(())
        }
    }
}

/// The ways of a connection on the path.
#[derive(Debug, Default)]
struct Ways {
    one_has_ended: AtomicBool,
    one_has_failed: AtomicBool,
}

fn is_closed(stream: &TcpStream) -> bool {
    // TCP_CLOSE of the kernel's tcp_states.h.
    tcp_info(stream).is_ok_and(|info| info.state == Some(7))
}
