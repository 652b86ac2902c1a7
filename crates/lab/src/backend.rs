use fullpipe_record::Path;
use serde::{Deserialize, Serialize};

use crate::error::LabError;
use crate::kernel::unsupported;

/// The devices between the hosts and the link, or the disciplines in the place of the link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Backend {
    /// TUN where `/dev/net/tun` can be opened, else packet sockets.
    #[default]
    Automatic,
    /// TUN devices.
    Tun,
    /// Pairs of Ethernet devices, with packet sockets at the ends of the link.
    Packet,
    /// No link: the kernel's own `tbf` and `netem`, in two routers between the hosts.
    Kernel,
}

impl Backend {
    /// Returns the backend of this name, as flags have it.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "auto" => Some(Self::Automatic),
            "tun" => Some(Self::Tun),
            "packet" => Some(Self::Packet),
            "kernel" => Some(Self::Kernel),
            _ => None,
        }
    }

    /// Checks, before anything is made, that `path` can be made in this way.
    ///
    /// # Errors
    /// [`LabError::Unsupported`] for what the kernel's own disciplines do not do, or not as the emulated link does it.
    pub fn find_unsupported(self, path: &Path) -> Result<(), LabError> {
        let what = if self == Self::Kernel { unsupported(path) } else { None };
        what.map_or(Ok(()), |what| Err(LabError::Unsupported { what }))
    }

    /// Checks that packets can be captured in this way.
    ///
    /// # Errors
    /// [`LabError::Unsupported`] where there is no link, which alone knows its times.
    pub fn find_captures(self) -> Result<(), LabError> {
        if self == Self::Kernel { Err(LabError::Unsupported { what: "captures" }) } else { Ok(()) }
    }
}
