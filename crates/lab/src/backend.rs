use fullpipe_record::Path;
use serde::{Deserialize, Serialize};

use crate::error::LabError;
use crate::kernel::unsupported_property;

/// Kind of the connection between the hosts and the emulated link, or the replacement of the link
/// by the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Backend {
    /// [`Backend::Tun`] if `/dev/net/tun` can be opened, or else [`Backend::Packet`]; never
    /// [`Backend::Kernel`].
    #[default]
    Automatic,
    /// One TUN interface in each host.
    Tun,
    /// One pair of virtual Ethernet interfaces for each host, with packet sockets at the endpoints
    /// of the link.
    Packet,
    /// No emulated link: two routers between the hosts, with the `tbf` and `netem` of the kernel.
    Kernel,
}

impl Backend {
    /// Returns the backend with this name on the command line; `None` if there is none.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "auto" => Some(Self::Automatic),
            "tun" => Some(Self::Tun),
            "packet" => Some(Self::Packet),
            "kernel" => Some(Self::Kernel),
            _ => None,
        }
    }

    /// Checks that this backend can emulate `path`, before a lab is built.
    ///
    /// # Errors
    /// Fails with [`LabError::Unsupported`] if this is [`Backend::Kernel`] and `path` has a
    /// property that `tbf` and `netem` do not emulate, or do not emulate as the link does.
    pub fn check_path_support(self, path: &Path) -> Result<(), LabError> {
        let what = if self == Self::Kernel {
            unsupported_property(path)
        } else {
            None
        };
        what.map_or(Ok(()), |what| Err(LabError::Unsupported { what }))
    }

    /// Checks that this backend can capture packets.
    ///
    /// # Errors
    /// Fails with [`LabError::Unsupported`] if this is [`Backend::Kernel`]: only the emulated link
    /// stamps packets.
    pub fn check_capture_support(self) -> Result<(), LabError> {
        if self == Self::Kernel {
            Err(LabError::Unsupported { what: "captures" })
        } else {
            Ok(())
        }
    }
}
