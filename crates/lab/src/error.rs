use std::io;

use thiserror::Error;

use crate::protocol::{Backend, Lack};

/// Why a lab could not be made, or could not do what was asked of it.
#[derive(Debug, Error)]
pub enum LabError {
    /// This machine lacks a permission or a feature; the text says which, and how to get it.
    #[error("{0}")]
    Lacking(String),
    /// The kernel's own path does not do this.
    #[error("a path of `--backend kernel` has no {what}: leave one of the two out")]
    Unsupported {
        /// What was asked for.
        what: &'static str,
    },
    /// The keeper could not do something.
    #[error("the lab cannot {action}: {reason}")]
    Refused {
        /// What was asked.
        action: String,
        /// What the keeper or the kernel said.
        reason: String,
    },
    /// The keeper is gone.
    #[error("the lab ended before it could {action}")]
    Gone {
        /// What was asked.
        action: String,
    },
    /// A system call of the parent failed.
    #[error("cannot {action}: {cause}")]
    Io {
        /// What was tried.
        action: String,
        /// What the kernel said.
        #[source]
        cause: io::Error,
    },
}

impl LabError {
    pub(crate) fn io(action: &str) -> impl FnOnce(io::Error) -> Self {
        let action = action.to_owned();
        move |cause| Self::Io { action, cause }
    }
}

/// Why namespaces were refused to this user, and what opens them. Reads the switches that distributions have.
pub(crate) fn lacking_namespaces(cause: &io::Error, is_root: bool) -> LabError {
    let set = |name: &str, value: &str| {
        std::fs::read_to_string(format!("/proc/sys/{}", name.replace('.', "/"))).is_ok_and(|text| text.trim() == value)
    };
    let why = if is_root {
        "root may not make namespaces here, as in a container without CAP_SYS_ADMIN: start it with --cap-add SYS_ADMIN, \
         or use a machine of your own"
    } else if set("kernel.apparmor_restrict_unprivileged_userns", "1") {
        "Ubuntu's AppArmor forbids user namespaces to this program: run it with sudo, or allow them with \
         `sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0`"
    } else if set("kernel.unprivileged_userns_clone", "0") {
        "this kernel forbids user namespaces to ordinary users: run it with sudo, or allow them with \
         `sudo sysctl -w kernel.unprivileged_userns_clone=1`"
    } else if set("user.max_user_namespaces", "0") {
        "user namespaces are switched off: run it with sudo, or allow them with \
         `sudo sysctl -w user.max_user_namespaces=10000`"
    } else {
        "user namespaces are refused to this user: run it with sudo"
    };
    LabError::Lacking(format!("an emulated path needs namespaces ({cause}); {why}"))
}

/// Why the hosts could not be built on this machine, and what would permit it.
pub(crate) fn lacking(what: Lack, backend: Backend, reason: &str, errno: Option<i32>) -> LabError {
    LabError::Lacking(match (what, backend) {
        (Lack::Namespaces, _) => format!("an emulated path needs network namespaces ({reason}); run it with sudo"),
        (Lack::Tun, _) => format!("this backend needs a TUN device ({reason}); {}", opening_tun(errno)),
        (Lack::PacketSockets, Backend::Automatic) => format!(
            "an emulated path needs a TUN device, which cannot be opened, or packet sockets ({reason}); {}",
            opening_tun(None)
        ),
        (Lack::PacketSockets, _) => format!("this backend needs packet sockets ({reason}); run it with sudo"),
        (Lack::Discipline, _) => format!("{reason}; leave `--backend kernel` out"),
        (Lack::Setting, _) => format!("a host of an emulated path cannot have what was asked for ({reason})"),
    })
}

/// How a TUN device is had where opening it fails with `errno`.
fn opening_tun(errno: Option<i32>) -> &'static str {
    if errno == Some(rustix::io::Errno::NOENT.raw_os_error()) {
        "load it with `sudo modprobe tun`, or give a container `--device /dev/net/tun`, or leave `--backend tun` out"
    } else {
        "run it with sudo, or open the device with `sudo chmod 0666 /dev/net/tun` as most distributions have it"
    }
}
