use std::fmt;
use std::str::FromStr;

use fullpipe_units::ByteCount;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{At, Buffer, Request};

/// Version of a Linux kernel. The rules that turn buffers into windows differ between versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
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
        Self { major, minor, patch: 0 }
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
        let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map_while(|part| part.parse().ok());
        match (numbers.next(), numbers.next()) {
            (Some(major), Some(minor)) => Ok(Self { major, minor, patch: numbers.next().unwrap_or(0) }),
            _ => Err(format!("\"{release}\" is not a kernel release")),
        }
    }
}

/// `tcp_rmem` or `tcp_wmem`: what a socket's buffer is at least, at first, and at most when the kernel tunes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BufferTriple {
    /// Guaranteed even under memory pressure.
    pub min: ByteCount,
    /// Size of a new socket's buffer.
    pub default: ByteCount,
    /// Largest size that autotuning reaches.
    pub max: ByteCount,
}

/// The settings of a host, or of a network namespace, that bear on bulk TCP.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[expect(clippy::struct_excessive_bools, reason = "each is one switch of the kernel")]
pub struct HostSettings {
    /// Running kernel.
    pub kernel: KernelVersion,
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
    /// `net.ipv4.tcp_adv_win_scale`: share of the receive buffer that is advertised, before Linux 6.6.
    pub adv_win_scale: i32,
    /// `net.ipv4.tcp_congestion_control`: what a socket gets if it asks for nothing.
    pub congestion_control: String,
    /// `net.ipv4.tcp_available_congestion_control`.
    pub available_congestion_controls: Vec<String>,
}

impl HostSettings {
    /// An untouched host: what Linux 6.18 starts with where memory is ample, and CUBIC.
    pub fn of_linux_6_18() -> Self {
        let triple = |default, max| BufferTriple { min: ByteCount::new(4096), default: ByteCount::new(default), max };
        Self {
            kernel: KernelVersion::new(6, 18),
            tcp_rmem: triple(131_072, ByteCount::from_mib(32)),
            tcp_wmem: triple(16_384, ByteCount::from_mib(4)),
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
    /// What the program asks of its sockets' buffers.
    SocketBuffer(Buffer),
    /// What the program asks as congestion control.
    CongestionControl(String),
    /// How many connections the program opens.
    Streams(u16),
}

impl Change {
    /// The settings of a host after this change; the same where the change is the program's to make.
    #[must_use]
    pub fn applied_to(&self, before: &HostSettings) -> HostSettings {
        let mut after = before.clone();
        match self {
            Self::TcpRmemMax(max) => after.tcp_rmem.max = *max,
            Self::TcpWmemMax(max) => after.tcp_wmem.max = *max,
            Self::WindowScaling(on) => after.window_scaling = *on,
            Self::ModerateRcvbuf(on) => after.moderate_rcvbuf = *on,
            Self::SocketBuffer(_) | Self::CongestionControl(_) | Self::Streams(_) => {}
        }
        after
    }

    /// The ends that must make this change for it to help: a send buffer the sender, a receive buffer the receiver, window
    /// scaling both, as it works only where both offer it. None where it is the program's to make.
    pub const fn ends(&self) -> &'static [At] {
        match self {
            Self::TcpWmemMax(_) => &[At::Sender],
            Self::TcpRmemMax(_) | Self::ModerateRcvbuf(_) => &[At::Receiver],
            Self::WindowScaling(_) => &[At::Sender, At::Receiver],
            Self::SocketBuffer(_) | Self::CongestionControl(_) | Self::Streams(_) => &[],
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
            Self::TcpRmemMax(_) | Self::TcpWmemMax(_) | Self::WindowScaling(_) | Self::ModerateRcvbuf(_) => {}
        }
        after
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_of_distributions_are_read() {
        for (release, version) in [
            ("6.18.44-fc-v657", (6, 18, 44)),
            ("5.15.0-91-generic", (5, 15, 0)),
            ("7.0", (7, 0, 0)),
            ("6.1-rc3", (6, 1, 0)),
        ] {
            let read: KernelVersion = release.parse().unwrap();
            assert_eq!((read.major, read.minor, read.patch), version, "{release}");
        }
        assert!("linux".parse::<KernelVersion>().is_err());
    }
}
