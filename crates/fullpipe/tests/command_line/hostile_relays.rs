//! Clients of relays that read nothing, say nothing or take all places: they hold little, and others are served
//! meanwhile.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use fullpipe_testkit::{Running, free_port, load_slot, path, require, wait_for_listener, within};

use super::hostile::{HONEST, HOSTILE, PROMPT, connect, raise_descriptors, silent_connections};
use super::relay::{Kind, Relays, listener, listening_port, relay_command};

const MIB: u64 = 1 << 20;

/// Returns the bytes in queues of all TCP sockets of a process.
fn process_queues(process: &Running) -> u64 {
    let links = std::fs::read_dir(format!("/proc/{}/fd", process.pid())).unwrap();
    let links: Vec<_> = links.filter_map(|link| std::fs::read_link(link.ok()?.path()).ok()).collect();
    let is_own = |inode: &str| links.iter().any(|link| link.to_str() == Some(&format!("socket:[{inode}]")));
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|file| std::fs::read_to_string(file).unwrap_or_default());
    let sockets = tables.iter().flat_map(|table| table.lines().skip(1));
    let sizes = sockets.map(|line| line.split_whitespace().collect()).filter_map(|fields: Vec<&str>| {
        let (unsent, unread) = fields[4].split_once(':')?;
        let bytes = |text| u64::from_str_radix(text, 16).unwrap();
        is_own(fields[9]).then(|| bytes(unsent) + bytes(unread))
    });
    sizes.sum()
}

/// Returns the bytes that may wait in this host's kernel for all clients together: an eighth of `tcp_mem`.
fn total_limit() -> u64 {
    let tcp_mem = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_mem").unwrap();
    let pages: u64 = tcp_mem.split_whitespace().nth(1).unwrap().parse().unwrap();
    pages * rustix::param::page_size() as u64 / 8
}

/// Serves each connection on a thread of its own.
fn serve_each(listener: TcpListener, serve: fn(TcpStream) -> io::Result<()>) {
    thread::spawn(move || listener.incoming().for_each(|served| drop(thread::spawn(move || serve(served?)))));
}

/// Sends as much as the other end takes, after its first byte.
fn send_endlessly(mut served: TcpStream) -> io::Result<()> {
    served.read_exact(&mut [0])?;
    loop {
        served.write_all(&[7; 1 << 18])?;
    }
}

fn echo(served: TcpStream) -> io::Result<()> {
    io::copy(&mut &served, &mut &served).map(drop)
}

/// Reads `length` bytes of a connection from `from` through the relay at `port`, and returns how long that took.
fn exchange(port: u16, from: Ipv4Addr, length: usize) -> Duration {
    let begun = Instant::now();
    let mut client = connect(SocketAddr::from((HONEST, port)), from).unwrap();
    client.set_read_timeout(Some(PROMPT)).unwrap();
    client.write_all(b"x").unwrap();
    client.read_exact(&mut vec![0; length]).unwrap();
    begun.elapsed()
}

/// Twenty fresh clients are served, each within a second more than is `usual` here.
fn assert_serves_fresh(port: u16, usual: Duration) {
    let longest = (0..20).map(|_| exchange(port, HONEST, 1)).max().unwrap();
    assert!(longest < usual + Duration::from_secs(1), "{longest:?}, {usual:?} before");
}

/// Reads what has arrived on each connection, for so long.
fn read_for(clients: &[TcpStream], time: Duration) {
    let (begun, mut block) = (Instant::now(), vec![0; 1 << 18]);
    clients.iter().for_each(|client| client.set_nonblocking(true).unwrap());
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
        let clients: Vec<TcpStream> = (0..128).map(|_| connect(address, HOSTILE).unwrap()).collect();
        clients.iter().for_each(|mut client| client.write_all(b"x").unwrap());
        read_for(&clients, Duration::from_secs(1));
        let (near, far) = (relays.processes.last().unwrap(), &relays.processes[0]);
        let before = [near, far].map(process_queues);
        thread::sleep(Duration::from_secs(4));
        let is_bounded = || process_queues(near) <= 64 * MIB && process_queues(far) <= total_limit();
        let bounded = within(2 * PROMPT, is_bounded);
        let after = [near, far].map(process_queues);
        println!("{kind:?}: {before:?} bytes of the near and the far one, then {after:?}");
        assert!(bounded, "{kind:?}: {after:?}");
        thread::sleep(Duration::from_secs(1));
        assert!(is_bounded(), "{kind:?}");
        exchange(relays.port, HONEST, MIB as usize);
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
            serve_each(target, echo);
            let relays = Relays::start(kind, port);
            let usual = (0..5).map(|_| exchange(relays.port, HONEST, 1)).max().unwrap();
            let ports = relays.processes.iter().map(|relay| listening_port(relay.pid()));
            let silent: Vec<_> =
                ports.flat_map(|port| silent_connections(SocketAddr::from((HONEST, port)), 32, 128)).collect();
            assert_eq!(silent.len(), relays.processes.len() * 32 * 128);
            // Each of them gets a connection to the target, and then the next client its turn.
            exchange(relays.port, HONEST, 1);
            assert_serves_fresh(relays.port, usual);
        }
    }

    #[test]
    fn silent_connections_keep_nobody_out_of_a_relay_with_few_descriptors() {
        // `prlimit` comes with it.
        require!(Unshare);
        let _path = path();
        let (target, to) = listener();
        serve_each(target, echo);
        let port = free_port();
        let relay = relay_command(port);
        let mut command = Command::new("prlimit");
        command.arg("--nofile=256:256").arg(relay.get_program()).args(relay.get_args());
        let _relay = Running::start(command.args(["--to", &format!("127.0.0.1:{to}"), "--max-connections", "48"]));
        wait_for_listener(port);
        let usual = (0..5).map(|_| exchange(port, HONEST, 1)).max().unwrap();
        let silent = silent_connections(SocketAddr::from((HONEST, port)), 4, 12);
        assert_eq!(silent.len(), 48);
        assert_serves_fresh(port, usual);
    }
}
