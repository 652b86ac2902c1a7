//! TUN devices: packets of a network namespace, as reads and writes.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

use crate::interface::interface_request;

/// Makes the TUN device `name` in the network namespace of the calling thread. Each read returns one IP packet and each
/// write takes one; the descriptor is non-blocking. The device lives as long as the descriptor.
///
/// # Errors
/// `PermissionDenied` or `NotFound` where `/dev/net/tun` is closed or missing, and what the kernel says to the request.
pub fn open_tun(name: &str) -> io::Result<File> {
    let tun = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open("/dev/net/tun")?;
    let mut request = interface_request(name)?;
    request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short;
    // SAFETY: TUNSETIFF reads and writes one `ifreq`, which `request` is; the descriptor is open.
    if unsafe { libc::ioctl(tun.as_raw_fd(), libc::TUNSETIFF as _, &raw mut request) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(tun)
}
