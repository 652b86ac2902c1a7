//! Clients of relays that read nothing, say nothing or take all places: they hold little, and
//! others are served meanwhile.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fullpipe_testkit::{Running, load_slot, path, require, within};
use rustix::event::epoll::{CreateFlags, EventData, EventFlags, add, create, wait};
use socket2::SockRef;

use super::hostile::{HONEST, HOSTILE, PROMPT, connect, raise_descriptors, silent_connections};
use super::hostile_loads::total_limit;
use super::relay::{Kind, Relays, listener, listening_port};

const MIB: u64 = 1 << 20;

/// Returns the bytes in queues of all TCP sockets of a process.
fn process_queues(process: &Running) -> u64 {
    let links = std::fs::read_dir(format!("/proc/{}/fd", process.pid())).unwrap();
    let links: Vec<_> = links
        .filter_map(|link| std::fs::read_link(link.ok()?.path()).ok())
        .collect();
    let is_own = |inode: &str| {
        links
            .iter()
            .any(|link| link.to_str() == Some(&format!("socket:[{inode}]")))
    };
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"]
        .map(|file| std::fs::read_to_string(file).unwrap_or_default());
    let sockets = tables.iter().flat_map(|table| table.lines().skip(1));
    let sizes = sockets
        .map(|line| line.split_whitespace().collect())
        .filter_map(|fields: Vec<&str>| {
            let (unsent, unread) = fields[4].split_once(':')?;
            let bytes = |text| u64::from_str_radix(text, 16).unwrap();
            is_own(fields[9]).then(|| bytes(unsent) + bytes(unread))
        });
    sizes.sum()
}

/// Serves each connection on a thread of its own.
fn serve_each(listener: TcpListener, serve: fn(&TcpStream) -> io::Result<()>) {
    thread::spawn(move || {
        listener
            .incoming()
            .for_each(|served| drop(thread::spawn(move || serve(&served?))));
    });
}

/// Sends as much as the other end takes, after its first byte.
fn send_endlessly(mut served: &TcpStream) -> io::Result<()> {
    served.read_exact(&mut [0])?;
    let block = vec![7; 1 << 18];
    loop {
        served.write_all(&block)?;
    }
}

/// Sends what arrives on any connection back on it. One thread serves them all, because thousands
/// would take the time of the processors. Returns the number of connections so far.
fn echo_each(listener: TcpListener) -> Arc<AtomicUsize> {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    // A relay opens a connection to its target for each client.
    SockRef::from(&listener).listen(4096).unwrap();
    thread::spawn(move || {
        let epoll = create(CreateFlags::CLOEXEC).unwrap();
        let watch = |socket: &dyn AsFd, number: usize| {
            let data = EventData::new_u64(number as u64);
            add(&epoll, socket.as_fd(), data, EventFlags::IN).unwrap();
        };
        watch(&listener, 0);
        let mut served = Vec::new();
        let mut events = Vec::with_capacity(64);
        loop {
            wait(&epoll, rustix::buffer::spare_capacity(&mut events), None).unwrap();
            for number in events.drain(..).map(|event| event.data.u64() as usize) {
                if number == 0 {
                    served.push(listener.accept().ok().map(|(stream, _)| stream));
                    watch(served.last().unwrap().as_ref().unwrap(), served.len());
                    counted.fetch_add(1, Ordering::Relaxed);
                } else if served[number - 1]
                    .as_ref()
                    .is_some_and(|served| echo_once(served).is_err())
                {
                    served[number - 1] = None;
                }
            }
        }
    });
    count
}

/// Sends what has arrived back; fails at the end of the connection.
fn echo_once(mut served: &TcpStream) -> io::Result<()> {
    let mut bytes = [0; 4096];
    match served.read(&mut bytes)? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        length => served.write_all(&bytes[..length]),
    }
}

/// Reads `length` bytes of a new connection through the relay at `port`, and returns how long that
/// took.
fn exchange(port: u16, length: usize) -> io::Result<Duration> {
    let begun = Instant::now();
    let mut client = connect(SocketAddr::from((HONEST, port)), HONEST)?;
    client.set_read_timeout(Some(PROMPT))?;
    client.write_all(b"x")?;
    client.read_exact(&mut vec![0; length])?;
    Ok(begun.elapsed())
}

/// Returns the longest time that so many fresh clients took, one after the other.
fn longest_of(count: u32, port: u16) -> Duration {
    (0..count)
        .map(|_| exchange(port, 1).unwrap())
        .max()
        .unwrap()
}

/// Twenty fresh clients are served, each within a second more than is `usual` here, once those that
/// call now have their turn: a relay opens a connection to the target for each.
fn assert_serves_fresh(port: u16, usual: Duration) {
    assert!(
        within(Duration::from_mins(1), || exchange(port, 1).is_ok()),
        "nobody is served"
    );
    let longest = longest_of(20, port);
    assert!(
        longest < usual + Duration::from_secs(1),
        "{longest:?}, {usual:?} before"
    );
}

/// Reads what has arrived on each connection, for so long.
fn read_for(clients: &[TcpStream], time: Duration) {
    let (begun, mut block) = (Instant::now(), vec![0; 1 << 18]);
    for client in clients {
        client.set_nonblocking(true).unwrap();
    }
    while begun.elapsed() < time {
        for mut client in clients {
            let _ = client.read(&mut block);
        }
    }
}

/// They held half a gigabyte, for as long as they liked.
#[test]
fn relayed_downloads_that_nobody_reads_hold_little_memory() {
    let _slot = load_slot();
    raise_descriptors();
    for kind in [Kind::Alone, Kind::Tls] {
        let (target, port) = listener();
        serve_each(target, send_endlessly);
        let relays = Relays::start(kind, port);
        let address = SocketAddr::from((HONEST, relays.port));
        let clients: Vec<TcpStream> = (0..128)
            .map(|_| connect(address, HOSTILE).unwrap())
            .collect();
        for mut client in &clients {
            client.write_all(b"x").unwrap();
        }
        read_for(&clients, Duration::from_secs(1));
        let (near, far) = (relays.processes.last().unwrap(), &relays.processes[0]);
        let before = [near, far].map(process_queues);
        thread::sleep(Duration::from_secs(4));
        let is_bounded =
            || process_queues(near) <= 64 * MIB && process_queues(far) <= total_limit();
        let bounded = within(2 * PROMPT, is_bounded);
        let after = [near, far].map(process_queues);
        println!("{kind:?}: {before:?} bytes of the near and the far one, then {after:?}");
        assert!(bounded, "{kind:?}: {after:?}");
        thread::sleep(Duration::from_secs(1));
        assert!(is_bounded(), "{kind:?}");
        exchange(relays.port, MIB as usize).unwrap();
        drop(clients);
    }
}

/// Tests of how soon clients are served, which the load of others would delay.
mod tests_alone {
    use super::*;

    #[test]
    fn silent_connections_from_many_addresses_keep_nobody_out_of_relays() {
        let _path = path();
        raise_descriptors();
        for kind in [Kind::Alone, Kind::Tls] {
            let (target, port) = listener();
            echo_each(target);
            let relays = Relays::start(kind, port);
            let usual = longest_of(5, relays.port);
            // The relay alone, or the far one of a pair.
            let port = listening_port(relays.processes[0].pid());
            let silent = silent_connections(SocketAddr::from((HONEST, port)), 32, 128);
            assert_eq!(silent.len(), 32 * 128);
            assert_serves_fresh(relays.port, usual);
        }
    }

    /// A fresh client waited for a handshake with the far relay for each of those before it.
    #[test]
    fn clients_of_a_near_relay_wait_for_few_handshakes_of_silent_ones() {
        let _path = path();
        raise_descriptors();
        let (target, port) = listener();
        let reached = echo_each(target);
        let relays = Relays::start(Kind::Tls, port);
        let usual = longest_of(5, relays.port);
        let begun = Instant::now();
        let silent = silent_connections(SocketAddr::from((HONEST, relays.port)), 32, 128);
        assert_eq!(silent.len(), 32 * 128);
        let longest = longest_of(20, relays.port);
        // Some have lost their places.
        let have_all_reached = || reached.load(Ordering::Relaxed) >= silent.len();
        assert!(within(Duration::from_mins(2), have_all_reached));
        let of_all = begun.elapsed();
        println!("{longest:?}, {usual:?} before, {of_all:?} for all");
        assert!(
            longest < usual + Duration::from_secs(1),
            "{longest:?}, {usual:?} before, {of_all:?} for all"
        );
    }

    #[test]
    fn silent_connections_keep_nobody_out_of_a_relay_with_few_descriptors() {
        // `prlimit` comes with it.
        require!(Unshare);
        let _path = path();
        let starter = ["prlimit", "--nofile=256:256"];
        for kind in [Kind::Alone, Kind::Tls] {
            let (target, to) = listener();
            echo_each(target);
            let relays = Relays::start_with(&starter, &["--max-connections", "44"], kind, to);
            let usual = longest_of(5, relays.port);
            let silent = silent_connections(SocketAddr::from((HONEST, relays.port)), 4, 12);
            assert_eq!(silent.len(), 48);
            assert_serves_fresh(relays.port, usual);
        }
    }
}
