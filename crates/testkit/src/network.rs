use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::deadline::within;

/// `st` of a socket that listens, in `/proc/net/tcp`.
const LISTENING: &str = "0A";

/// A TCP port of the loopback addresses that nobody has at the moment, and that no other test of this program was
/// given: one that is free again for a moment would be given twice.
///
/// # Panics
/// If there is none.
pub fn free_port() -> u16 {
    static HANDED_OUT: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    let mut handed_out = HANDED_OUT.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).expect("a port is free");
        let port = listener.local_addr().expect("a bound socket has an address").port();
        if handed_out.insert(port) {
            return port;
        }
    }
}

/// Waits until somebody listens on TCP port `port`, without a connection that a server would take for a client.
///
/// # Panics
/// If nobody does within ten seconds.
pub fn wait_for_listener(port: u16) {
    assert!(within(Duration::from_secs(10), || is_listening(port)), "nobody listens on port {port}");
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
    for entry in fs::read_dir(folder).expect("/proc is there").map(|entry| entry.expect("/proc lists its files")) {
        if entry.file_type().expect("/proc has the type of each entry").is_dir() {
            collect(&entry.path(), all);
        } else if let Ok(text) = fs::read_to_string(entry.path()) {
            all.insert(entry.path().display().to_string(), text);
        }
    }
}

fn is_listening(port: u16) -> bool {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|file| fs::read_to_string(file).unwrap_or_default());
    tables.iter().flat_map(|table| table.lines()).any(|line| listens(line, port))
}

/// Columns: number, local address and port, remote address and port, state.
fn listens(line: &str, port: u16) -> bool {
    let columns: Vec<&str> = line.split_whitespace().take(4).collect();
    let [_, local, _, state] = columns[..] else { return false };
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
