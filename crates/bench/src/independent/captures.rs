//! Captures of both ends of a case, taken by tcpdump, and what `trace` makes of each.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use fullpipe_trace::ExplainedTransfers;
use rustix::process::{Pid, Signal, kill_process};

use super::network::{FAR, Host, Network};
use super::record::Record;
use crate::captures::{Captured, Seen, Taken};

/// Time that tcpdump has to begin.
const STARTING: Duration = Duration::from_secs(5);

/// Time after which the kernel has handed over every packet.
const BLOCK_TIME: Duration = Duration::from_millis(1200);

/// Bytes of each packet that are kept: every header that there is.
const SNAP_LENGTH: &str = "128";

/// Captures of both ends that go on until it is dropped.
pub(crate) struct Captures {
    running: Vec<Child>,
}

impl Captures {
    /// Begins to capture at both ends, into files in `folder` that begin with `name`.
    ///
    /// # Errors
    /// Fails if tcpdump does not start.
    pub(crate) fn start(network: &Network, folder: &Path, name: &str) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        let mut captures = Self {
            running: Vec::new(),
        };
        for host in [Host::Near, Host::Far] {
            let file = path(folder, name, host);
            let words = [
                "tcpdump",
                "-i",
                "any",
                "-n",
                "-s",
                SNAP_LENGTH,
                "-B",
                "32768",
                "-w",
            ]
            .map(str::to_owned);
            let words = [&words[..], &[file.display().to_string(), "tcp".to_owned()]].concat();
            captures.running.push(
                network
                    .command(host, &words)
                    .stdin(Stdio::null())
                    .stderr(Stdio::null())
                    .spawn()?,
            );
            // The file has its header as soon as tcpdump listens.
            let started = Instant::now();
            while fs::metadata(&file).map_or(0, |file| file.len()) == 0
                && started.elapsed() < STARTING
            {
                thread::sleep(Duration::from_millis(20));
            }
        }
        Ok(captures)
    }
}

impl Drop for Captures {
    fn drop(&mut self) {
        // The kernel hands packets over by the block, each after a second at most.
        thread::sleep(BLOCK_TIME);
        for child in &mut self.running {
            if let Some(pid) = Pid::from_raw(child.id().cast_signed()) {
                // It writes what it has, and ends; one that has ended needs nothing.
                let _ = kill_process(pid, Signal::INT);
            }
            let _ = child.wait();
        }
    }
}

fn path(folder: &Path, name: &str, host: Host) -> PathBuf {
    folder.join(format!(
        "{name}-{}.pcap",
        if host == Host::Near { "near" } else { "far" }
    ))
}

/// Returns what `trace` says of the captures of `record` in `folder`, each and both, if it counts.
pub(crate) fn seen(record: &Record, folder: &Path) -> Vec<Seen> {
    if record.left_out().is_some() {
        return Vec::new();
    }
    let captured = Captured {
        name: &record.name,
        expected: &record.expected,
        bandwidth: record.states_rate.then_some(record.bandwidth),
        explained: ExplainedTransfers::Largest(1),
    };
    let [near, far] = [Host::Near, Host::Far].map(|host| path(folder, &record.stem(), host));
    // Of a test in both directions the transfer that moved more is judged.
    let at_end = |file: &Path, is_far: bool| {
        let seen = captured.seen(Taken::Sender, file, None)?;
        let from_far = seen
            .sender
            .as_ref()
            .is_some_and(|address| address.starts_with(FAR));
        Some(Seen {
            taken: if from_far == is_far {
                Taken::Sender
            } else {
                Taken::Receiver
            },
            ..seen
        })
    };
    let seen = [
        at_end(&near, false),
        at_end(&far, true),
        captured.seen(Taken::BothEnds, &near, Some(&far)),
    ];
    seen.into_iter().flatten().collect()
}
