use std::fmt;
use std::str::FromStr;

use crate::prelude::*;
use crate::{At, Buffer, Request};

/// Version of a Linux kernel. The rules that turn buffers into windows differ between versions.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub struct KernelVersion {
    /// The 6 of 6.18.44.
    pub major: u16,
    /// The 18 of 6.18.44.
    pub minor: u16,
    /// The 44 of 6.18.44.
    pub patch: u16,
}

impl KernelVersion {
    /// A release, without a point release.
    pub const fn new(major: u16, minor: u16) -> Self {
        Self {
            major,
            minor,
            patch: 0,
        }
    }
}

impl fmt::Display for KernelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

impl FromStr for KernelVersion {
    type Err = String;

    /// Reads what `uname -r` prints; whatever follows the numbers is the distribution's.
    fn from_str(release: &str) -> Result<Self, String> {
        let mut numbers = release
            .split(|c: char| !c.is_ascii_digit())
            .map_while(|part| part.parse().ok());
        match (numbers.next(), numbers.next()) {
            (Some(major), Some(minor)) => Ok(Self {
                major,
                minor,
                patch: numbers.next().unwrap_or(0),
            }),
            _ => Err(format!("\"{release}\" is not a kernel release")),
        }
    }
}

/// `tcp_rmem` or `tcp_wmem`: what a socket's buffer is at least, at first, and at most when the
/// kernel tunes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BufferTriple {
    /// Guaranteed even under memory pressure.
    pub min: ByteCount,
    /// Size of a new socket's buffer.
    pub default: ByteCount,
    /// Largest size that autotuning reaches.
    pub max: ByteCount,
}

impl BufferTriple {
    /// Returns these sizes with another maximum. A larger default is lowered to it: a socket begins
    /// with the default, and keeps it whatever the maximum is.
    #[must_use]
    pub fn with_max(self, max: ByteCount) -> Self {
        Self {
            default: self.default.min(max),
            max,
            ..self
        }
    }
}

/// The settings of a host, or of a network namespace, that bear on bulk TCP.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is one switch of the kernel"
)]
pub struct HostSettings {
    /// Running kernel.
    pub kernel: KernelVersion,
    /// Name of a system that is not Linux; then `kernel` says nothing, and buffers count payload.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// `net.ipv4.tcp_rmem`.
    pub tcp_rmem: BufferTriple,
    /// `net.ipv4.tcp_wmem`.
    pub tcp_wmem: BufferTriple,
    /// `net.core.rmem_max`: the largest `SO_RCVBUF` request; not visible everywhere.
    pub rmem_max: Option<ByteCount>,
    /// `net.core.wmem_max`: the largest `SO_SNDBUF` request; not visible everywhere.
    pub wmem_max: Option<ByteCount>,
    /// `net.ipv4.tcp_window_scaling`.
    pub window_scaling: bool,
    /// `net.ipv4.tcp_timestamps`.
    pub timestamps: bool,
    /// `net.ipv4.tcp_sack`.
    pub sack: bool,
    /// `net.ipv4.tcp_moderate_rcvbuf`: receive buffers are tuned.
    pub moderate_rcvbuf: bool,
    /// `net.ipv4.tcp_adv_win_scale`: share of the receive buffer that is advertised, before Linux
    /// 6.6.
    pub adv_win_scale: i32,
    /// `net.ipv4.tcp_congestion_control`: what a socket gets if it asks for nothing.
    pub congestion_control: String,
    /// `net.ipv4.tcp_available_congestion_control`.
    pub available_congestion_controls: Vec<String>,
}

impl HostSettings {
    /// Returns the settings after these changes, in order.
    #[must_use]
    pub fn changed_by<'c>(&self, changes: impl IntoIterator<Item = &'c Change>) -> Self {
        changes.into_iter().fold(self.clone(), |settings, change| {
            change.applied_to(&settings)
        })
    }

    /// An untouched host: what Linux 6.18 starts with where memory is ample, and CUBIC.
    pub fn of_linux_6_18() -> Self {
        let [tcp_rmem, tcp_wmem] =
            [(131_072, 32), (16_384, 4)].map(|(default, max)| BufferTriple {
                min: ByteCount::new(4096),
                default: ByteCount::new(default),
                max: ByteCount::from_mib(max),
            });
        Self {
            kernel: KernelVersion::new(6, 18),
            system: None,
            tcp_rmem,
            tcp_wmem,
            rmem_max: Some(ByteCount::from_mib(4)),
            wmem_max: Some(ByteCount::from_mib(4)),
            window_scaling: true,
            timestamps: true,
            sack: true,
            moderate_rcvbuf: true,
            adv_win_scale: 1,
            congestion_control: "cubic".to_owned(),
            available_congestion_controls: ["reno", "cubic", "bbr"].map(str::to_owned).to_vec(),
        }
    }

    /// Returns a host that sets no ceiling, in place of one of which nothing is known.
    pub fn without_limits() -> Self {
        let size = ByteCount::from_mib(1 << 20);
        let triple = BufferTriple {
            min: size,
            default: size,
            max: size,
        };
        Self {
            tcp_rmem: triple,
            tcp_wmem: triple,
            rmem_max: Some(size),
            wmem_max: Some(size),
            available_congestion_controls: Vec::new(),
            ..Self::of_linux_6_18()
        }
    }
}

/// One setting and its new value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "setting", content = "value", rename_all = "kebab-case")]
pub enum Change {
    /// The third value of `net.ipv4.tcp_rmem`.
    TcpRmemMax(ByteCount),
    /// The third value of `net.ipv4.tcp_wmem`.
    TcpWmemMax(ByteCount),
    /// `net.ipv4.tcp_window_scaling`.
    WindowScaling(bool),
    /// `net.ipv4.tcp_moderate_rcvbuf`.
    ModerateRcvbuf(bool),
    /// Request for the buffers of the program's sockets.
    SocketBuffer(Buffer),
    /// Congestion control that the program requests.
    CongestionControl(String),
    /// Number of connections that the program opens.
    Streams(u16),
    /// The rate at which the program offers each stream; none lets it offer all that it can.
    Rate(Option<BitRate>),
    /// The greatest pace that the program sets on each of its sockets (`SO_MAX_PACING_RATE`); none
    /// leaves it to the kernel.
    MaxPacingRate(Option<BitRate>),
    /// Any sysctl, whole.
    Sysctl {
        /// Dotted name.
        name: String,
        /// Text of the value, as it is written.
        value: String,
    },
    /// A metric of a route in the main table.
    RouteMetric {
        /// `default`, `default6` for IPv6, or a network: `10.0.0.0/8`.
        destination: String,
        /// By the name that `ip route` has for it: `initcwnd`, `window`…
        metric: String,
        /// None takes it away.
        value: Option<u32>,
    },
    /// The queueing discipline of a device, with the kernel's parameters.
    Qdisc {
        /// The device.
        device: String,
        /// `fq`, `fq_codel`, `pfifo`…; `default` for the one that the kernel puts there by itself.
        kind: String,
    },
    /// Number of packets that may wait for a device (`txqueuelen`), where its queueing discipline
    /// has no limit of its own.
    QueueLength {
        /// The device.
        device: String,
        /// Trains of segments count as one.
        packets: SegCount,
    },
    /// An offload of a device.
    Offload {
        /// The device.
        device: String,
        /// By the kernel's name: `tx-tcp-segmentation`, `rx-gro`…
        feature: String,
        /// True if it does.
        on: bool,
    },
    /// The largest IP packet of a device.
    Mtu {
        /// The device.
        device: String,
        /// In bytes.
        mtu: ByteCount,
    },
}

/// Queueing disciplines that can be taken away from a device and put back as they were, with every
/// parameter. Of any other than these and the kernel's own, only whoever set it up knows how.
pub const RESTORABLE_QDISCS: [&str; 3] = ["tbf", "pfifo", "bfifo"];

impl Change {
    /// The kind of [`Change::Qdisc`] that stands for the kernel's own choice.
    pub const DEFAULT_QDISC: &str = "default";

    /// The settings of a host after this change; the same where the change is the program's to
    /// make, or one of a setting that is not among them.
    #[must_use]
    pub fn applied_to(&self, before: &HostSettings) -> HostSettings {
        let mut after = before.clone();
        match self {
            Self::TcpRmemMax(max) => after.tcp_rmem = before.tcp_rmem.with_max(*max),
            Self::TcpWmemMax(max) => after.tcp_wmem = before.tcp_wmem.with_max(*max),
            Self::WindowScaling(on) => after.window_scaling = *on,
            Self::ModerateRcvbuf(on) => after.moderate_rcvbuf = *on,
            Self::Sysctl { name, value } => set_by_name(&mut after, name, value),
            Self::SocketBuffer(_)
            | Self::CongestionControl(_)
            | Self::Streams(_)
            | Self::Rate(_)
            | Self::MaxPacingRate(_)
            | Self::RouteMetric { .. }
            | Self::Qdisc { .. }
            | Self::QueueLength { .. }
            | Self::Offload { .. }
            | Self::Mtu { .. } => {}
        }
        after
    }

    /// The ends that must make this change for it to help: a send buffer the sender, a receive
    /// buffer the receiver, window scaling both, as it works only where both offer it. None where
    /// it is the program's to make, or helps wherever its remedy is.
    pub fn required_ends(&self) -> &'static [At] {
        match self {
            Self::TcpWmemMax(_) | Self::Qdisc { .. } | Self::QueueLength { .. } => &[At::Sender],
            Self::TcpRmemMax(_) | Self::ModerateRcvbuf(_) => &[At::Receiver],
            Self::WindowScaling(_) | Self::Mtu { .. } => &[At::Sender, At::Receiver],
            Self::Sysctl { name, .. } => ends_of(name),
            Self::SocketBuffer(_)
            | Self::CongestionControl(_)
            | Self::Streams(_)
            | Self::Rate(_)
            | Self::MaxPacingRate(_)
            | Self::RouteMetric { .. }
            | Self::Offload { .. } => &[],
        }
    }

    /// The load after this change; the same where the change is the host's to make.
    #[must_use]
    pub fn applied_to_request(&self, before: &Request) -> Request {
        let mut after = before.clone();
        match self {
            Self::SocketBuffer(buffer) => after.buffer = *buffer,
            Self::CongestionControl(name) => after.congestion = Some(name.clone()),
            Self::Streams(streams) => after.streams = *streams,
            // A burst is of writes that a rate holds back.
            Self::Rate(rate) => {
                (after.rate, after.burst) = (*rate, after.burst.filter(|_| rate.is_some()));
            }
            Self::MaxPacingRate(pace) => after.pacing = *pace,
            Self::TcpRmemMax(_)
            | Self::TcpWmemMax(_)
            | Self::WindowScaling(_)
            | Self::ModerateRcvbuf(_)
            | Self::Sysctl { .. }
            | Self::RouteMetric { .. }
            | Self::Qdisc { .. }
            | Self::QueueLength { .. }
            | Self::Offload { .. }
            | Self::Mtu { .. } => {}
        }
        after
    }
}

/// Returns the settings after `text` is written into a sysctl; nothing where the kernel would
/// refuse it, or it is not among them.
fn set_by_name(settings: &mut HostSettings, name: &str, text: &str) {
    let size = || text.trim().parse().map(ByteCount::new).ok();
    let switch = || text.trim().parse().ok().map(|value: u8| value != 0);
    match name {
        "net.ipv4.tcp_rmem" => settings.tcp_rmem = parse_triple(settings.tcp_rmem, text),
        "net.ipv4.tcp_wmem" => settings.tcp_wmem = parse_triple(settings.tcp_wmem, text),
        "net.core.rmem_max" => settings.rmem_max = size().or(settings.rmem_max),
        "net.core.wmem_max" => settings.wmem_max = size().or(settings.wmem_max),
        "net.ipv4.tcp_window_scaling" => {
            settings.window_scaling = switch().unwrap_or(settings.window_scaling);
        }
        "net.ipv4.tcp_timestamps" => settings.timestamps = switch().unwrap_or(settings.timestamps),
        "net.ipv4.tcp_sack" => settings.sack = switch().unwrap_or(settings.sack),
        "net.ipv4.tcp_moderate_rcvbuf" => {
            settings.moderate_rcvbuf = switch().unwrap_or(settings.moderate_rcvbuf);
        }
        "net.ipv4.tcp_adv_win_scale" => {
            settings.adv_win_scale = text.trim().parse().unwrap_or(settings.adv_win_scale);
        }
        "net.ipv4.tcp_congestion_control" => {
            text.trim().clone_into(&mut settings.congestion_control);
        }
        _ => {}
    }
}

/// Fewer than three sizes leave the rest as it was, as the kernel does.
fn parse_triple(before: BufferTriple, text: &str) -> BufferTriple {
    let mut sizes = text
        .split_whitespace()
        .map_while(|word| word.parse().map(ByteCount::new).ok());
    let mut next = |before| sizes.next().unwrap_or(before);
    BufferTriple {
        min: next(before.min),
        default: next(before.default),
        max: next(before.max),
    }
}

/// The ends at which a sysctl matters to bulk TCP.
fn ends_of(name: &str) -> &'static [At] {
    match name {
        "net.ipv4.tcp_wmem"
        | "net.core.wmem_max"
        | "net.core.wmem_default"
        | "net.ipv4.tcp_congestion_control"
        | "net.ipv4.tcp_mtu_probing"
        | "net.ipv4.tcp_pacing_ca_ratio"
        | "net.ipv4.tcp_pacing_ss_ratio" => &[At::Sender],
        "net.ipv4.tcp_rmem"
        | "net.core.rmem_max"
        | "net.core.rmem_default"
        | "net.ipv4.tcp_moderate_rcvbuf"
        | "net.ipv4.tcp_adv_win_scale" => &[At::Receiver],
        "net.ipv4.tcp_window_scaling" | "net.ipv4.tcp_timestamps" | "net.ipv4.tcp_sack" => {
            &[At::Sender, At::Receiver]
        }
        _ => &[],
    }
}

#[cfg(test)]
mod tests;
