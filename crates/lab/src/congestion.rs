use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, socket, sockopt};

use crate::error::LabError;

/// Finds out, before anything is made, whether the hosts of a lab have the congestion control `name`: their kernel is
/// this one. Where the user may load modules, the kernel loads it.
///
/// # Errors
/// [`LabError::Lacking`] if there is none of that name, with those that there are.
pub fn find_congestion_control(name: &str) -> Result<(), LabError> {
    let probe = socket(AddressFamily::INET, SocketType::STREAM, None)
        .map_err(|errno| LabError::io("open a TCP socket")(errno.into()))?;
    // That this user may not choose it here does not matter: root of a user namespace may.
    if sockopt::set_tcp_congestion(&probe, name) != Err(Errno::NOENT) {
        return Ok(());
    }
    let known = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap_or_default();
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
    fn what_every_kernel_has_is_found() {
        find_congestion_control("reno").unwrap();
    }

    #[test]
    fn what_none_has_is_refused_with_what_there_is() {
        let said = find_congestion_control("nosuch").unwrap_err().to_string();
        assert!(said.contains("`nosuch`") && said.contains("reno"), "{said}");
    }
}
