//! Two hosts, two routers and a delay box between them, made of the kernel's own devices and
//! disciplines.
//!
//! ```text
//! near ── router ── delay box ── router ── far
//! ```

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use fullpipe_sys::NetNamespace;
use fullpipe_units::{BitRate, ByteCount, Span};

use super::delay_box::{DelayBox, Passage, Treatment};
use crate::process::{RunError, is_listener, last_words};

/// Address of the far host.
pub(crate) const FAR: &str = "198.18.12.1";
/// Address of the far router, where cross traffic ends.
pub(crate) const FAR_ROUTER: &str = "198.18.11.2";

/// A host or router.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Host {
    /// The host in which `fullpipe` runs.
    Near,
    /// The router next to it.
    NearRouter,
    /// The router next to the far host.
    FarRouter,
    /// The host with the server.
    Far,
}

impl Host {
    const ALL: [Self; 4] = [Self::Near, Self::NearRouter, Self::FarRouter, Self::Far];

    const fn name(self) -> &'static str {
        match self {
            Self::Near => "near",
            Self::NearRouter => "nearrouter",
            Self::FarRouter => "farrouter",
            Self::Far => "far",
        }
    }
}

/// Properties of the path.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PathPlan {
    /// Rate of both directions, counted as the kernel's `tbf` counts: with Ethernet's header.
    pub(crate) rate: BitRate,
    /// Round-trip time of the idle path.
    pub(crate) rtt: Span,
    /// Longest queue in front of the bottleneck, at its rate.
    pub(crate) queue: ByteCount,
    /// Probability with which a packet is lost on the way to the far host, and on the way back.
    pub(crate) loss: [f64; 2],
    /// Set if the hosts' devices join segments that arrive (GRO), as real network cards do.
    pub(crate) joins_segments: bool,
}

/// The network, which goes with the value.
#[derive(Debug)]
pub(crate) struct Network {
    /// Begin of the name of each namespace.
    prefix: String,
    delay_box: Option<DelayBox>,
}

/// Makes the devices and addresses.
const SCRIPT: &str = include_str!("network.sh");

/// Time in which a full bucket of the bottleneck's `tbf` is sent. A timer that is late by more
/// loses what the bucket does not hold: with 500 µs a virtual machine's path carried 89 % of its
/// rate while its queue was full.
const BURST: Span = Span::from_micros(2000);

/// The least bucket that lets packets of 1514 bytes pass.
const MIN_BURST: ByteCount = ByteCount::new(3 * 1514);

impl Network {
    /// Makes it.
    ///
    /// # Errors
    /// In the words of the program that failed: `ip`, `tc` or `ethtool`, which all need root.
    pub(crate) fn make(plan: &PathPlan, seed: u64) -> Result<Self, RunError> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let prefix = format!("fpb{}-{number}-", std::process::id());
        let mut network = Self {
            prefix,
            delay_box: None,
        };
        let bucket = plan.rate.bytes_in(BURST).max(MIN_BURST);
        let variables = format!(
            "p={}; rate={}; burst={}; limit={}; gro={}\n",
            network.prefix,
            plan.rate.bps(),
            bucket.get(),
            plan.queue.max(bucket).get(),
            if plan.joins_segments { "on" } else { "off" },
        );
        shell(&mut Command::new("sh"), &(variables + SCRIPT))?;
        network.delay_box = Some(network.start_box(plan, seed)?);
        Ok(network)
    }

    fn start_box(&self, plan: &PathPlan, seed: u64) -> Result<DelayBox, RunError> {
        let opened = File::open(format!("/run/netns/{}box", self.prefix))?;
        let delay = Duration::from(plan.rtt) / 2;
        let treatments = plan.loss.map(|loss| Treatment { delay, loss });
        DelayBox::start(
            NetNamespace::from(OwnedFd::from(opened)),
            ["near0", "far0"],
            treatments,
            seed,
        )
        .map_err(RunError::failed)
    }

    /// Returns a command that runs `words` in `host`.
    pub(crate) fn command(&self, host: Host, words: &[String]) -> Command {
        // `ip netns exec` would hide the control groups.
        let mut command = Command::new("nsenter");
        let name = format!("--net=/run/netns/{}{}", self.prefix, host.name());
        command.arg(name).arg("--").args(words);
        command
    }

    /// Runs a script of the shell in `host`.
    ///
    /// # Errors
    /// In the script's last words.
    pub(crate) fn shell(&self, host: Host, script: &str) -> Result<(), RunError> {
        shell(&mut self.command(host, &["sh".to_owned()]), script)
    }

    /// Returns whether somebody listens on `port` in `host`.
    pub(crate) fn listens(&self, host: Host, port: u16) -> bool {
        let words = ["cat", "/proc/net/tcp", "/proc/net/tcp6"].map(str::to_owned);
        let tables = self
            .command(host, &words)
            .output()
            .map(|output| output.stdout)
            .unwrap_or_default();
        String::from_utf8_lossy(&tables)
            .lines()
            .any(|line| is_listener(line, port))
    }

    /// Returns a folder for files of this network, which need not exist yet.
    pub(crate) fn scratch(&self) -> PathBuf {
        std::env::temp_dir().join(format!("{}near", self.prefix))
    }

    /// Ends the delay box, and returns what became of the packets.
    pub(crate) fn finish(mut self) -> Passage {
        self.delay_box
            .take()
            .map(DelayBox::finish)
            .unwrap_or_default()
    }
}

fn shell(command: &mut Command, script: &str) -> Result<(), RunError> {
    let output = command.args(["-ec", script]).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() {
        Ok(())
    } else {
        Err(RunError::Failed(last_words(&said, "the shell failed")))
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for name in Host::ALL.map(Host::name).into_iter().chain(["box"]) {
            // A program that was traced outlives its tracer. A namespace that was never made is not
            // there.
            let script = "ip netns pids \"$0\" | xargs -r kill -KILL; ip netns del \"$0\"";
            let _ = Command::new("sh")
                .args(["-c", script, &format!("{}{name}", self.prefix)])
                .output();
        }
        // Only some cases have files.
        let _ = std::fs::remove_dir_all(self.scratch());
    }
}
