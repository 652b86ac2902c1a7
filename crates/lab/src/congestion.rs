use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, socket, sockopt};

use crate::error::LabError;

/// Checks that the running kernel, which the hosts of a lab use too, has the congestion control
/// `name`, before a lab is built. The kernel loads the module of the congestion control if the user
/// may load modules.
///
/// # Errors
/// Fails with [`LabError::Lacking`] if the kernel has no congestion control of that name; the
/// message lists the available ones. Fails with [`LabError::Io`] if no TCP socket can be opened.
pub fn check_congestion_control(name: &str) -> Result<(), LabError> {
    let probe = socket(AddressFamily::INET, SocketType::STREAM, None)
        .map_err(|errno| LabError::from_io("open a TCP socket")(errno.into()))?;
    // That this user may not choose it here does not matter: root of a user namespace may.
    if sockopt::set_tcp_congestion(&probe, name) != Err(Errno::NOENT) {
        return Ok(());
    }
    let known = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control")
        .unwrap_or_default();
    let known: Vec<&str> = known.split_whitespace().collect();
    Err(LabError::Lacking(format!(
        "this kernel has no congestion control `{name}`; it has {}, and `sudo modprobe tcp_{name}` loads another",
        known.join(", ")
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_congestion_control_of_every_kernel_passes() {
        check_congestion_control("reno").unwrap();
    }

    #[test]
    fn an_unknown_congestion_control_fails_with_the_available_ones() {
        let message = check_congestion_control("nosuch").unwrap_err().to_string();
        assert!(
            message.contains("`nosuch`") && message.contains("reno"),
            "{message}"
        );
    }
}
