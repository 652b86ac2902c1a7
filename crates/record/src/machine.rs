use crate::StorageUse;
use crate::prelude::*;

/// Load on the CPUs, the network interface and the file of one endpoint during a test.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Machine {
    /// Samples of CPU times, ordered by time; empty if the endpoint reported none.
    pub processors: Vec<CpuSample>,
    /// Network interface of the test's data packets; `None` if the interface is unknown or the
    /// endpoint reported none.
    pub device: Option<DeviceReport>,
    /// Drops and memory of the network stack of its host; `None` if the endpoint reported none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkStack>,
    /// File whose content the endpoint sent, or to which the endpoint wrote the received data;
    /// `None` if there was no such file.
    pub storage: Option<StorageUse>,
}

/// CPU times of one endpoint, counted from the moment at which data began to flow. The times of the
/// fullpipe process cover the whole process: a server that runs several tests at once reports the
/// sum of them in each test.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct CpuSample {
    /// Time of this sample since data began to flow.
    pub at: Span,
    /// CPU time of all threads of the process in user mode (`ru_utime` of `getrusage`).
    pub user: Span,
    /// CPU time of all threads of the process in kernel mode (`ru_stime` of `getrusage`).
    pub system: Span,
    /// Time for which threads of the process were ready to run and waited for a CPU, summed over
    /// all threads (second field of `/proc/PID/task/TID/schedstat`). `None` if the kernel does not
    /// count this time, or if the process has more than 512 threads.
    pub waited: Option<Span>,
    /// Time for which the thread of the process that rested least ran or was ready to run: the sum
    /// over the intervals between samples of that of the busiest thread in each. `None` if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub awake: Option<Span>,
    /// Time for which CPU quotas kept the process from running, summed over all CPUs and over the
    /// control groups around the process that have a quota (`throttled_usec` in `cpu.stat`, or
    /// `throttled_time` in version 1). Zero if no group has a quota; `None` if `cpu.stat` of no
    /// group can be read.
    pub throttled: Option<Span>,
    /// Times of each CPU of the machine, ordered by CPU number. Empty if `/proc/stat` cannot be
    /// read, or if the set of online CPUs has changed since data began to flow.
    pub cores: Vec<CpuTime>,
}

/// Times that one CPU has spent in each state since data began to flow, from the line `cpuN` of
/// `/proc/stat` with a resolution of 10 ms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct CpuTime {
    /// Time in user mode, including niced programs and virtual machines (fields `user` and `nice`).
    pub user: Span,
    /// Time in kernel mode, without interrupts (field `system`).
    pub system: Span,
    /// Time in interrupts and soft interrupts (fields `irq` and `softirq`).
    pub interrupts: Span,
    /// Steal time: the hypervisor ran something else while this CPU was ready to run (field
    /// `steal`).
    pub stolen: Span,
    /// Idle time, including the time with input or output to a disk under way (fields `idle` and
    /// `iowait`).
    pub idle: Span,
}

/// Network interface through which an endpoint sends or receives the data packets of a test. Counts
/// cover the time since data began to flow.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct DeviceReport {
    /// Name of the interface, such as `eth0`.
    pub name: String,
    /// Maximum size of an IP packet on the interface, in bytes.
    pub mtu: ByteCount,
    /// Link speed that the driver reports; `None` if the driver reports none.
    pub speed: Option<BitRate>,
    /// Maximum number of packets that wait in a queueing discipline that has no limit of its own
    /// (`txqueuelen`); `None` if the endpoint did not report the number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_length: Option<SegCount>,
    /// Outgoing packets that the interface dropped (`tx_dropped`).
    pub dropped_out: u64,
    /// Incoming packets that the interface dropped or had no buffer for (`rx_dropped` and
    /// `rx_missed_errors`).
    pub dropped_in: u64,
    /// True if the interface can only send or receive at a time (half duplex); `None` if the driver
    /// does not report it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub is_half_duplex: Option<bool>,
    /// Collisions while the interface sent (`collisions`).
    #[serde(skip_serializing_if = "is_zero")]
    pub collisions: u64,
    /// Frames lost in collisions after their first 64 bytes (`tx_window_errors`), which occur only
    /// where the other end of the link sends at any time, as in full duplex.
    #[serde(skip_serializing_if = "is_zero")]
    pub late_collisions: u64,
    /// Frames lost with the carrier (`tx_carrier_errors`).
    #[serde(skip_serializing_if = "is_zero")]
    pub carrier_errors: u64,
    /// Frames that came with a wrong checksum (`rx_crc_errors`).
    #[serde(skip_serializing_if = "is_zero")]
    pub checksum_errors: u64,
    /// Incoming packets for which the driver found no buffer, by its own counters (`ethtool -S`:
    /// those with `no_buffer`, `out_of_buffer` or the like in their names).
    #[serde(skip_serializing_if = "is_zero")]
    pub without_buffer: u64,
    /// Incoming packets that filters of the interface dropped (queueing disciplines `ingress` and
    /// `clsact`).
    #[serde(skip_serializing_if = "is_zero")]
    pub filtered_in: u64,
    /// Packets that the provider of a virtual machine held back or dropped beyond its allowance
    /// (`ethtool -S`: `bw_in_allowance_exceeded` and the like).
    #[serde(skip_serializing_if = "is_zero")]
    pub beyond_allowance: u64,
    /// Descriptors of the receive ring and the most that there may be (`ethtool -g`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receive_ring: Option<[u64; 2]>,
    /// Packets that the interface sent; some drivers count a train of segments as one.
    #[serde(skip_serializing_if = "is_zero")]
    pub sent_packets: u64,
    /// Queueing disciplines for outgoing packets, the root first; at most 64. One that was removed
    /// during the test stays.
    pub qdiscs: Vec<QdiscReport>,
}

/// Drops and memory of the network stack of an endpoint's host. Counts cover the time since data
/// began to flow and all connections of the host or of its network namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct NetworkStack {
    /// Incoming packets dropped because the queue of a CPU was full (`netdev_max_backlog`; second
    /// field of `/proc/net/softnet_stat`), of all network namespaces.
    pub backlog_dropped: u64,
    /// Incoming packets dropped because the queue of a socket in use was full (`TCPBacklogDrop`).
    pub socket_backlog_dropped: u64,
    /// Incoming packets dropped because a receive buffer had no room (`TCPRcvQDrop`).
    pub receive_queue_dropped: u64,
    /// Incoming packets dropped because a receive buffer had no room for data that is out of order
    /// (`TCPOFODrop`).
    pub out_of_order_dropped: u64,
    /// Number of times that a receive buffer was searched for memory to free (`PruneCalled`).
    pub pruned: u64,
    /// Packets in receive buffers that were joined to free memory (`TCPRcvCollapsed`).
    pub collapsed: u64,
    /// Number of times that the memory of TCP rose above the second value of `tcp_mem`
    /// (`TCPMemoryPressures`), as far as a socket of this network namespace brought it there.
    pub memory_pressures: u64,
    /// Segments that TCP sent (`OutSegs`), of counters that were handed over.
    #[serde(skip_serializing_if = "is_zero")]
    pub sent_segments: u64,
    /// Segments that TCP sent again (`RetransSegs`), of counters that were handed over.
    #[serde(skip_serializing_if = "is_zero")]
    pub retransmitted_segments: u64,
    /// Retransmission timeouts (`TCPTimeouts`).
    #[serde(skip_serializing_if = "is_zero")]
    pub timeouts: u64,
    /// Time in which the kernel saved memory of TCP, by samples (column `press` of
    /// `/proc/net/protocols`), of all network namespaces.
    pub under_memory_pressure: Span,
    /// Time that the samples cover.
    pub sampled: Span,
    /// The most memory of all TCP sockets, of all network namespaces, among the samples (column
    /// `memory` of `/proc/net/protocols`).
    pub tcp_memory: ByteCount,
    /// Memory of TCP from which the kernel saves it (second value of `tcp_mem`). `None` if it
    /// cannot be read, as in a network namespace that is not the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcp_memory_limit: Option<ByteCount>,
}

impl NetworkStack {
    /// Returns the segments that TCP dropped for want of room in a socket.
    pub const fn dropped_by_sockets(&self) -> u64 {
        self.socket_backlog_dropped
            .saturating_add(self.receive_queue_dropped)
            .saturating_add(self.out_of_order_dropped)
    }

    /// Returns the count that the kernel calls `name` in `/proc/net/snmp` and `/proc/net/netstat`.
    pub fn counter_mut(&mut self, name: &str) -> Option<&mut u64> {
        let mut counters = self.tcp_counters().into_iter();
        counters.find_map(|(known, count)| (known == name).then_some(count))
    }

    fn tcp_counters(&mut self) -> [(&'static str, &mut u64); 9] {
        [
            ("TCPBacklogDrop", &mut self.socket_backlog_dropped),
            ("TCPRcvQDrop", &mut self.receive_queue_dropped),
            ("TCPOFODrop", &mut self.out_of_order_dropped),
            ("PruneCalled", &mut self.pruned),
            ("TCPRcvCollapsed", &mut self.collapsed),
            ("TCPMemoryPressures", &mut self.memory_pressures),
            ("TCPTimeouts", &mut self.timeouts),
            ("OutSegs", &mut self.sent_segments),
            ("RetransSegs", &mut self.retransmitted_segments),
        ]
    }

    /// Returns the growth of each count since `before`; memory stays as it is.
    #[must_use]
    pub fn growth_since(mut self, mut before: Self) -> Self {
        let earlier = before.tcp_counters();
        for ((_, count), (_, earlier)) in self.tcp_counters().into_iter().zip(earlier) {
            *count = count.saturating_sub(*earlier);
        }
        self.backlog_dropped = self.backlog_dropped.saturating_sub(before.backlog_dropped);
        self
    }
}

/// Counts of a network device in both directions, since it was made.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DeviceCounts {
    /// Name of the device, such as `eth0`.
    pub name: String,
    /// Speed of its link; `None` if the driver reports none.
    pub speed: Option<BitRate>,
    /// Largest IP packet.
    pub mtu: ByteCount,
    /// Bytes of the header of the link that are counted with each packet.
    pub link_header: ByteCount,
    /// Packets that it sent; some drivers count a train of segments as one.
    pub sent_packets: u64,
    /// Bytes of the packets that it sent.
    pub sent: ByteCount,
    /// Packets that it received, likewise.
    pub received_packets: u64,
    /// Bytes of the packets that it received.
    pub received: ByteCount,
}

impl DeviceCounts {
    /// Returns the counts since `earlier`; `None` if they are of another device, or began anew.
    pub fn counts_since(&self, earlier: &Self) -> Option<Self> {
        let more = |now: ByteCount, before: ByteCount| {
            now.get().checked_sub(before.get()).map(ByteCount::new)
        };
        (self.name == earlier.name).then_some(())?;
        Some(Self {
            sent_packets: self.sent_packets.checked_sub(earlier.sent_packets)?,
            sent: more(self.sent, earlier.sent)?,
            received_packets: self
                .received_packets
                .checked_sub(earlier.received_packets)?,
            received: more(self.received, earlier.received)?,
            ..self.clone()
        })
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Queueing discipline for outgoing packets of a network interface. Counts cover the time since
/// data began to flow, or since the queueing discipline was added if that was later.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct QdiscReport {
    /// Kind of the queueing discipline, such as `tbf`, `fq` or `pfifo_fast`.
    pub kind: String,
    /// Configured rate limit: of all packets together (`tbf`, `cake`), or of each flow (`maxrate`
    /// of `fq`). `None` if no rate is configured or the queueing discipline is of another kind.
    pub rate: Option<BitRate>,
    /// Number of packets that the queueing discipline dropped.
    pub dropped: u64,
    /// Number of times that a packet was delayed because of a limit on the rate (`overlimits`).
    pub overlimits: u64,
    /// Number of times that the interface did not accept a packet and the packet was queued again
    /// (`requeues`).
    pub requeues: u64,
    /// Largest number of bytes in the queue among the samples taken during the test.
    pub backlog: ByteCount,
}
