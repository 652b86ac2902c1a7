use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr, TcpListener, UdpSocket};
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use crate::deadline::within;
use crate::need::note_skipped;

/// `st` of a socket that listens, in `/proc/net/tcp`.
const LISTENING: &str = "0A";

/// Returns a port that nobody listens on, over TCP or UDP, and that no other test of this process
/// was given. It is none of those that the kernel gives to clients: one of these could be in use
/// again before a server listens there.
///
/// # Panics
/// If there is none.
pub fn free_port() -> u16 {
    static NEXT: OnceLock<AtomicU16> = OnceLock::new();
    // Processes that run at the same time begin far apart.
    let first = || AtomicU16::new((std::process::id() % u32::from(PORTS / 64)) as u16 * 64);
    let next = NEXT.get_or_init(first);
    for _ in 0..PORTS {
        let port = FIRST_PORT + next.fetch_add(1, Ordering::Relaxed) % PORTS;
        let address = (Ipv4Addr::UNSPECIFIED, port);
        if TcpListener::bind(address).is_ok() && UdpSocket::bind(address).is_ok() {
            return port;
        }
    }
    panic!("no port is free");
}

/// Returns the loopback addresses that a socket of this host can have: IPv4's, and IPv6's unless
/// IPv6 is off, which is noted as a part of the test at `place` that is skipped.
pub fn loopback_addresses(place: &str) -> Vec<&'static str> {
    let mut addresses = vec!["127.0.0.1"];
    match UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)) {
        Ok(_) => addresses.push("::1"),
        Err(error) => note_skipped(
            place,
            &format!("for ::1, which no socket can have: {error}"),
        ),
    }
    addresses
}

/// First of the ports that tests are given. The kernel gives clients those from 32 768 on by
/// default (`ip_local_port_range`).
const FIRST_PORT: u16 = 12_000;

/// Number of those ports; a divisor of 65 536, so that the count may overflow.
const PORTS: u16 = 16_384;

/// Waits until somebody listens on TCP port `port`, without a connection that a server would take
/// for a client.
///
/// # Panics
/// If nobody does within ten seconds.
pub fn wait_for_listener(port: u16) {
    assert!(
        within(Duration::from_secs(10), || is_listening(port)),
        "nobody listens on port {port}"
    );
}

/// Every sysctl of this thread's network namespace that can be read, to the byte, by its file.
///
/// # Panics
/// If there is no `/proc`.
pub fn network_sysctls() -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    collect(Path::new("/proc/sys/net"), &mut all);
    all
}

fn collect(folder: &Path, all: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(folder)
        .expect("/proc is there")
        .map(|entry| entry.expect("/proc lists its files"))
    {
        if entry
            .file_type()
            .expect("/proc has the type of each entry")
            .is_dir()
        {
            collect(&entry.path(), all);
        } else if let Ok(text) = fs::read_to_string(entry.path()) {
            all.insert(entry.path().display().to_string(), text);
        }
    }
}

fn is_listening(port: u16) -> bool {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"]
        .map(|file| fs::read_to_string(file).unwrap_or_default());
    tables
        .iter()
        .flat_map(|table| table.lines())
        .any(|line| listens(line, port))
}

/// Columns: number, local address and port, remote address and port, state.
fn listens(line: &str, port: u16) -> bool {
    let columns: Vec<&str> = line.split_whitespace().take(4).collect();
    let [_, local, _, state] = columns[..] else {
        return false;
    };
    state == LISTENING && local.ends_with(&format!(":{port:04X}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_is_found_and_missed() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        wait_for_listener(port);
        drop(listener);
        assert!(!is_listening(port));
    }
}
