use fullpipe_units::{BitRate, ByteCount, SegCount, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::StorageUse;

/// Processors, device and file of an end.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Machine {
    /// Its processors, by time; empty where it did not say.
    pub processors: Vec<CpuSample>,
    /// The device of its data packets.
    pub device: Option<DeviceReport>,
    /// The file that it read or wrote.
    pub storage: Option<StorageUse>,
}

/// Processor times of an end up to a moment, since the data began to flow. Times of the program are of its whole
/// process: a server that runs several tests at once has one for all of them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct CpuSample {
    /// Since the data began to flow.
    pub at: Span,
    /// Time of the program's threads together in the program (`getrusage`, `ru_utime`).
    pub user: Span,
    /// In the kernel on its behalf (`ru_stime`).
    pub system: Span,
    /// Time for which its threads waited for a processor (`/proc/PID/schedstat`, second field), all
    /// threads together.
    pub waited: Option<Span>,
    /// Time for which the quotas of its control groups kept it from running (`cpu.stat`, `throttled_usec`), all
    /// processors together; zero where none has a quota.
    pub throttled: Option<Span>,
    /// Each processor of the machine (`/proc/stat`).
    pub cores: Vec<CoreTime>,
}

/// Times of one processor up to a moment, since the data began to flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct CoreTime {
    /// In programs, niced ones included.
    pub user: Span,
    /// In the kernel on behalf of programs.
    pub system: Span,
    /// In interrupts and what they leave to be done soon (`softirq`).
    pub interrupts: Span,
    /// Ready to run, and the hypervisor ran others.
    pub stolen: Span,
    /// With nothing to do, or waiting for a disk.
    pub idle: Span,
}

/// The device through which an end's data packets go.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct DeviceReport {
    /// Its name: `eth0`.
    pub name: String,
    /// Its MTU.
    pub mtu: ByteCount,
    /// Its stated speed, where it states one.
    pub speed: Option<BitRate>,
    /// Packets that may wait for it, where its queueing discipline has no limit of its own (`txqueuelen`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_length: Option<SegCount>,
    /// Packets that it dropped on their way out during the test.
    pub dropped_out: u64,
    /// Packets that it dropped on their way in.
    pub dropped_in: u64,
    /// Its queueing disciplines, outermost first.
    pub qdiscs: Vec<QdiscReport>,
}

/// A queueing discipline of a device, and what it did during the test.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct QdiscReport {
    /// `tbf`, `fq`, `pfifo_fast`…
    pub kind: String,
    /// The rate that it holds packets to, where it has one: of all (`tbf`), or of each flow (`fq maxrate`).
    pub rate: Option<BitRate>,
    /// Packets that it dropped.
    pub dropped: u64,
    /// Number of times that a packet had to wait for its turn or its rate.
    pub overlimits: u64,
    /// Number of times that the device took no more (`requeues`).
    pub requeues: u64,
    /// The most that was seen to wait in it.
    pub backlog: ByteCount,
}
