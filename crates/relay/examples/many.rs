//! Many connections over loopback through one relay or a pair, some of them as fast as they can.
//! Prints which were refused, whether all bytes were right, how the shares of the active ones
//! differ, and the memory of each relay. As root, the relays run as an ordinary user.
//!
//!     cargo run --release -p fullpipe-relay --example many [alone|plain|tls|compress [CONNECTIONS [ACTIVE [SECONDS]]]]

mod common;

use std::error::Error;
use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::time::Duration;

use fullpipe_testkit::{ManyConnections, allow_descriptors};

use common::{Relays, serve_if_asked};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    serve_if_asked(&arguments)?;
    let number = |index: usize, default: usize| {
        arguments
            .get(index)
            .map_or(Ok(default), |text| text.parse())
    };
    let kind = arguments.first().map_or("alone", String::as_str);
    let (connections, active) = (number(1, 10_000)?, number(2, 1000)?);
    let many = ManyConnections {
        connections,
        active,
        duration: Duration::from_secs(number(3, 10)? as u64),
    };
    // Two for each here and in a relay, and what they have for themselves.
    allow_descriptors(2 * connections as u64 + 200)?;
    let target = TcpListener::bind("127.0.0.1:0")?;
    let relays = Relays::start(kind, target.local_addr()?.port(), connections)?;
    let mut memory = Vec::new();
    let carried = many.run(relays.port, target, || {
        memory = relays
            .processes
            .iter()
            .map(|(name, process)| (*name, memory_of(process.id())))
            .collect();
    });
    let (min, max) = carried.spread();
    let gbits = carried.bytes() as f64 * 8.0 / 1e9 / carried.counted.as_secs_f64();
    let opened_in = carried.opened_in.as_secs_f64();
    let mut out = std::io::stdout().lock();
    writeln!(
        out,
        "{kind}: {connections} connections open after {opened_in:.1} s, {active} of them active"
    )?;
    writeln!(
        out,
        "refused: {}, with wrong bytes: {}",
        carried.refused, carried.wrong
    )?;
    writeln!(
        out,
        "shares: {min:.2} to {max:.2} of the mean; {gbits:.2} Gbit/s in all"
    )?;
    for (name, memory) in memory {
        writeln!(out, "{name}: {memory}")?;
    }
    Ok(())
}

/// Returns the memory of a process as the kernel states it, its descriptors, and how many of them
/// are pipes.
fn memory_of(pid: u32) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let [resident, peak, anonymous] = ["VmRSS", "VmHWM", "RssAnon"].map(|name| {
        let value = status
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        format!("{name} {}", value.map_or("unknown", str::trim))
    });
    let entries = fs::read_dir(format!("/proc/{pid}/fd"))
        .into_iter()
        .flatten();
    let descriptors: Vec<_> = entries
        .filter_map(|entry| fs::read_link(entry.ok()?.path()).ok())
        .collect();
    let ends = descriptors
        .iter()
        .filter(|link| link.to_string_lossy().starts_with("pipe:"))
        .count();
    format!(
        "{resident}, {peak}, {anonymous}, {} descriptors, {} pipes",
        descriptors.len(),
        ends / 2
    )
}
