use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// Result of reading or writing a setting.
pub type SysctlResult<T = ()> = Result<T, SysctlError>;

/// A setting that could not be read, written or understood.
#[derive(Debug, Error)]
pub enum SysctlError {
    /// The kernel refused, or the file is not there.
    #[error("cannot {verb} {name}: {cause}")]
    Io {
        /// `read` or `write`.
        verb: &'static str,
        /// Dotted name of a sysctl, or what another setting is called.
        name: String,
        /// The kernel's error.
        #[source]
        cause: io::Error,
    },
    /// The text of the setting does not have the expected form.
    #[error("{name} is \"{text}\", which is not {expected}")]
    Malformed {
        /// Dotted name.
        name: String,
        /// The text that was read.
        text: String,
        /// The form that was expected.
        expected: &'static str,
    },
}

impl SysctlError {
    /// Returns the error of reading or writing a setting.
    pub(crate) fn failed(verb: &'static str, name: &str, cause: io::Error) -> Self {
        Self::Io {
            verb,
            name: name.to_owned(),
            cause,
        }
    }

    /// Returns whether the setting does not exist, as some do not in a child namespace or on an
    /// older kernel, or went with its device.
    pub fn is_missing(&self) -> bool {
        /// `ENODEV` of Linux (`errno-base.h`).
        const NO_DEVICE: Option<i32> = Some(19);
        matches!(self, Self::Io { cause, .. }
            if cause.kind() == io::ErrorKind::NotFound || cause.raw_os_error() == NO_DEVICE)
    }

    /// Returns true if the kernel does not let this user write it.
    pub fn is_refused(&self) -> bool {
        let refusals = [
            io::ErrorKind::PermissionDenied,
            io::ErrorKind::ReadOnlyFilesystem,
        ];
        matches!(self, Self::Io { cause, .. } if refusals.contains(&cause.kind()))
    }
}

/// The folder of sysctls: `/proc/sys`, or a copy of it in a test.
#[derive(Debug, Clone)]
pub struct SysctlTree {
    root: PathBuf,
}

impl SysctlTree {
    /// The running kernel's, for the namespace of the thread that reads or writes.
    pub fn of_this_host() -> Self {
        Self::with_root("/proc/sys")
    }

    /// One below `root`.
    pub fn with_root(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Returns true if settings of TCP are there: a root without /proc has none.
    pub fn has_tcp(&self) -> bool {
        self.root.join("net/ipv4/tcp_rmem").exists()
    }

    /// The text of the sysctl with the dotted `name`.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn read(&self, name: &str) -> SysctlResult<String> {
        self.read_whole(name).map(|text| text.trim().to_owned())
    }

    /// The text of the sysctl to the byte, as an undo has to put it back.
    ///
    /// # Errors
    /// If it cannot be read.
    pub(crate) fn read_whole(&self, name: &str) -> SysctlResult<String> {
        std::fs::read_to_string(self.sysctl_path(name))
            .map_err(|cause| SysctlError::failed("read", name, cause))
    }

    /// Finds out whether it may be written, without writing.
    ///
    /// # Errors
    /// If not.
    pub(crate) fn check_writable(&self, name: &str) -> SysctlResult {
        let opened = std::fs::OpenOptions::new()
            .write(true)
            .open(self.sysctl_path(name));
        opened
            .map(drop)
            .map_err(|cause| SysctlError::failed("write", name, cause))
    }

    /// Writes `text` into the sysctl with the dotted `name`.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&self, name: &str, text: &str) -> SysctlResult {
        std::fs::write(self.sysctl_path(name), text)
            .map_err(|cause| SysctlError::failed("write", name, cause))
    }

    /// As `sysctl` writes names: a slash stands for a dot in the name of a file, as the device
    /// `eth0.7` has one.
    fn sysctl_path(&self, name: &str) -> PathBuf {
        let file = name.chars().map(|letter| match letter {
            '.' => '/',
            '/' => '.',
            other => other,
        });
        self.root.join(file.collect::<String>())
    }
}

/// Returns true if `name` is that of a sysctl of the network, and leads nowhere else.
pub fn is_network_sysctl(name: &str) -> bool {
    let mut parts = name.split('.');
    name.len() <= MAX_NAME
        && name
            .chars()
            .all(|letter| letter.is_ascii_alphanumeric() || "._-/@:".contains(letter))
        && parts.next() == Some("net")
        && parts.all(|part| part.chars().any(|letter| letter != '/'))
}

/// Returns true if writing `name` makes the kernel write others too, or take addresses or routes
/// away, which nothing brings back (Linux: `inet_forward_change()`, `addrconf_sysctl_*()`). The
/// defaults of IPv4 and of neighbours, which devices without a value of their own follow, are
/// followed back.
pub(crate) fn moves_others(name: &str) -> bool {
    let parts: Vec<&str> = name.split('.').collect();
    match parts.as_slice() {
        ["net", "ipv4", "ip_forward"] => true,
        ["net", "ipv4", "conf", _, what] => *what == "forwarding",
        ["net", "ipv6", "conf", of, what] => {
            [
                "forwarding",
                "disable_ipv6",
                "addr_gen_mode",
                "stable_secret",
            ]
            .contains(what)
                || *of == "all" && ["disable_policy", "ignore_routes_with_linkdown"].contains(what)
        }
        _ => false,
    }
}

/// Longer than the name of any sysctl.
const MAX_NAME: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_resets_other_settings_is_known() {
        for name in [
            "net.ipv4.ip_forward",
            "net.ipv4.conf.all.forwarding",
            "net.ipv4.conf.eth0/7.forwarding",
            "net.ipv6.conf.all.forwarding",
            "net.ipv6.conf.eth0.disable_ipv6",
            "net.ipv6.conf.all.disable_policy",
        ] {
            assert!(moves_others(name), "{name}");
        }
        for name in [
            "net.ipv4.tcp_rmem",
            "net.ipv4.conf.eth0.rp_filter",
            "net.ipv4.conf.all.rp_filter",
            "net.ipv4.conf.default.rp_filter",
            "net.ipv4.neigh.default.gc_thresh3",
            "net.ipv6.conf.eth0.mtu",
            "net.ipv6.conf.default.mtu",
            "net.core.default_qdisc",
        ] {
            assert!(!moves_others(name), "{name}");
        }
    }

    #[test]
    fn names_lead_to_the_files_of_the_network_and_nowhere_else() {
        let tree = SysctlTree::of_this_host();
        assert_eq!(
            tree.sysctl_path("net.ipv4.conf.eth0/7.rp_filter"),
            PathBuf::from("/proc/sys/net/ipv4/conf/eth0.7/rp_filter")
        );
        assert!(
            is_network_sysctl("net.ipv4.tcp_rmem")
                && is_network_sysctl("net.ipv4.conf.eth0/7.rp_filter")
        );
        for name in [
            "",
            "kernel.hostname",
            "net.//.kernel.hostname",
            "net..x",
            "net./.x",
            "net.ipv4.",
            "net.a b",
            "net.a\n",
        ] {
            assert!(!is_network_sysctl(name), "{name:?}");
        }
    }
}
