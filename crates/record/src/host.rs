//! Records of the commands about a host's settings.

use std::collections::BTreeMap;

use crate::prelude::*;
use crate::{At, Change, KernelVersion, Prediction};

/// The settings of a host that bear on bulk transfers, from `fullpipe host show`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HostReport {
    /// Running kernel.
    pub kernel: KernelVersion,
    /// Known defects of that version.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub defects: Vec<KernelDefect>,
    /// Memory of the machine.
    pub memory: Option<ByteCount>,
    /// Sysctls by name, with their text; those that this namespace or kernel lacks are left out.
    pub sysctls: BTreeMap<String, String>,
    /// Governors of the processors' clocks (`scaling_governor`), each once; empty if there are
    /// none.
    pub governors: Vec<String>,
    /// The devices of this namespace.
    pub devices: Vec<HostDevice>,
    /// Routes that have metrics.
    pub routes: Vec<HostRoute>,
    /// The kernel's cached metrics of other hosts, for the next connection to each.
    pub remembered: Vec<HostMemory>,
    /// Programs and files that also set these settings.
    pub managers: Vec<HostManager>,
    /// Rate that each buffer setting allows on the given path; empty if none is given.
    pub allows: Vec<Allowance>,
}

/// A known defect of a version of the kernel that slows transfers down. Distributions may have
/// fixed it earlier.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KernelDefect {
    /// The version that has it.
    pub kernel: KernelVersion,
    /// The end at which it matters.
    pub at: At,
    /// The harm that it does to transfers.
    pub effect: String,
    /// The version that fixed it.
    pub fixed: KernelVersion,
    /// Commits that brought and fixed it.
    pub source: String,
}

/// A network device and how it is set.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct HostDevice {
    /// Name of the device.
    pub name: String,
    /// Kind of the device if it is virtual: `veth`, `tun`…
    pub kind: Option<String>,
    /// True if it is up.
    pub is_up: bool,
    /// Largest IP packet.
    pub mtu: ByteCount,
    /// Speed that the driver states.
    pub speed: Option<BitRate>,
    /// Queueing discipline at its root.
    pub qdisc: String,
    /// Packets that may wait for it (`txqueuelen`).
    pub transmit_queue: SegCount,
    /// Queues out of it and into it.
    pub queues: [u32; 2],
    /// Packets that it has room for, going out and coming in, and the most that it could have.
    pub rings: Option<[SegCount; 4]>,
    /// Offloads that can be switched, on or off, by the kernel's names.
    pub offloads: BTreeMap<String, bool>,
    /// Processors that the interrupts of the device go to, as the kernel lists them, one entry for
    /// each interrupt.
    pub interrupts: Vec<String>,
}

/// A route with its metrics.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HostRoute {
    /// `default`, `default6` for IPv6, or a network.
    pub destination: String,
    /// The device that it leads to.
    pub device: Option<String>,
    /// By the names of `ip route`.
    pub metrics: BTreeMap<String, String>,
}

/// The kernel's cached metrics of another host (`ip tcp_metrics`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HostMemory {
    /// The host.
    pub address: String,
    /// Round-trip time.
    pub rtt: Option<Span>,
    /// With what a new connection would leave slow start.
    pub ssthresh: Option<SegCount>,
    /// The window of the last connection.
    pub cwnd: Option<SegCount>,
}

/// A program or a file that sets some of these settings too.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HostManager {
    /// `tuned`, `bpftune`, or the file.
    pub name: String,
    /// Settings that it makes, by name; empty for a program.
    pub sets: BTreeMap<String, String>,
    /// The consequence for a change made here.
    pub note: String,
}

/// Rate that one setting allows on a path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Allowance {
    /// By name.
    pub setting: String,
    /// For whom: of which end, and which programs.
    pub of: String,
    /// The window behind it, of each stream.
    pub window: Option<ByteCount>,
    /// The rate of all streams.
    pub rate: BitRate,
    /// The rule behind the figure.
    pub formula: String,
}

/// Advised settings of a host for a path, from `fullpipe host advise`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HostAdvice {
    /// The changes; empty if nothing needs to change.
    pub changes: Vec<AdvisedChange>,
    /// Settings that harm transfers, and common beliefs about them.
    pub folklore: Vec<Folklore>,
    /// Prediction for two hosts like this one as they are.
    pub before: Prediction,
    /// And with the changes.
    pub after: Prediction,
    /// Bounds of the advice, and other remarks.
    pub notes: Vec<String>,
}

/// One setting that should be another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AdvisedChange {
    /// The change.
    pub change: Change,
    /// By name.
    pub setting: String,
    /// As it is.
    pub from: String,
    /// As it should be.
    pub to: String,
    /// Why.
    pub why: String,
    /// The risk.
    pub risk: String,
}

/// Advice that harms, found followed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Folklore {
    /// By name.
    pub setting: String,
    /// As it is.
    pub value: String,
    /// The file that says so, where it is not the running kernel.
    pub file: Option<String>,
    /// The fault.
    pub why: String,
}

/// One setting that was made another, or would be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HostChange {
    /// By name.
    pub setting: String,
    /// The value before; none if it was not there.
    pub from: Option<String>,
    /// The value after.
    pub to: Option<String>,
}

/// Changes of `fullpipe host apply`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HostApplied {
    /// In the order in which they were made. What was so already is left out.
    pub changes: Vec<HostChange>,
    /// True if nothing was changed, and the changes were only printed.
    pub dry_run: bool,
    /// Time for which they last unless they are confirmed.
    pub temporary: Option<Span>,
    /// Other programs that may change the same settings.
    pub notes: Vec<String>,
}

/// Settings that `fullpipe host undo` restored.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct HostUndone {
    /// In the order in which they were put back.
    pub restored: Vec<HostChange>,
    /// Settings that were not restored, and why.
    pub left: Vec<HostLeft>,
    /// Number of those that stay in the journal, for the next undo.
    #[serde(default)]
    pub kept: usize,
    /// Journals that cannot be read, each with the reason or its new name.
    #[serde(default)]
    pub unreadable: Vec<String>,
    /// Journals of other namespaces, which were not touched.
    pub elsewhere: usize,
}

/// A setting that was not put back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HostLeft {
    /// By name.
    pub setting: String,
    /// Why.
    pub why: String,
}
