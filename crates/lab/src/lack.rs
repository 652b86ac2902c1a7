//! Features that this machine lacks, and what would provide them.

use std::io;

use serde::{Deserialize, Serialize};

use crate::backend::Backend;
use crate::error::LabError;

/// A feature of which hosts are built, and which a machine may lack.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Lack {
    Namespaces,
    Tun,
    PacketSockets,
    Discipline,
    Setting,
}

/// Returns the error of a user who may not make namespaces, with what permits them. Reads the
/// switches of distributions.
pub(crate) fn lacking_namespaces(cause: &io::Error, is_root: bool) -> LabError {
    let why = if is_root {
        "root may not make namespaces here, as in a container without CAP_SYS_ADMIN: start it with \
         --cap-add SYS_ADMIN, or use a machine of your own"
    } else if is_sysctl("kernel.apparmor_restrict_unprivileged_userns", "1") {
        "Ubuntu's AppArmor forbids user namespaces to this program: run it with sudo, or allow them with \
         `sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0`"
    } else if is_sysctl("kernel.unprivileged_userns_clone", "0") {
        "this kernel forbids user namespaces to ordinary users: run it with sudo, or allow them with \
         `sudo sysctl -w kernel.unprivileged_userns_clone=1`"
    } else if is_sysctl("user.max_user_namespaces", "0") {
        "user namespaces are switched off: run it with sudo, or allow them with \
         `sudo sysctl -w user.max_user_namespaces=10000`"
    } else {
        "user namespaces are refused to this user: run it with sudo"
    };
    LabError::Lacking(format!(
        "an emulated path needs namespaces ({cause}); {why}"
    ))
}

fn is_sysctl(name: &str, value: &str) -> bool {
    std::fs::read_to_string(format!("/proc/sys/{}", name.replace('.', "/")))
        .is_ok_and(|text| text.trim() == value)
}

/// Returns the error of a machine on which the hosts cannot be built, with what would permit it.
pub(crate) fn lacking_error(
    what: Lack,
    backend: Backend,
    reason: &str,
    errno: Option<i32>,
) -> LabError {
    LabError::Lacking(match (what, backend) {
        (Lack::Namespaces, _) => {
            format!("an emulated path needs network namespaces ({reason}); run it with sudo")
        }
        (Lack::Tun, _) => format!(
            "this backend needs a TUN device ({reason}); {}",
            advice_for_tun(errno)
        ),
        (Lack::PacketSockets, Backend::Automatic) => format!(
            "an emulated path needs a TUN device, which cannot be opened, or packet sockets ({reason}); {}",
            advice_for_tun(None)
        ),
        (Lack::PacketSockets, _) => {
            format!("this backend needs packet sockets ({reason}); run it with sudo")
        }
        (Lack::Discipline, _) => format!("{reason}; leave `--backend kernel` out"),
        (Lack::Setting, _) => {
            format!("a host of an emulated path cannot have what was asked for ({reason})")
        }
    })
}

/// Returns advice that makes a TUN device available if `open` failed with `errno`.
fn advice_for_tun(errno: Option<i32>) -> &'static str {
    if errno == Some(rustix::io::Errno::NOENT.raw_os_error()) {
        "load it with `sudo modprobe tun`, or give a container `--device /dev/net/tun`, or leave `--backend tun` out"
    } else {
        "run it with sudo, or open the device with `sudo chmod 0666 /dev/net/tun` as most distributions have it"
    }
}
