//! TUN devices: packets of a network namespace, as reads and writes.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

use crate::interface::interface_request;
use crate::socket::check_call;

/// `TUN_F_…` of `linux/if_tun.h`, which libc does not have.
const CHECKSUMS: libc::c_uint = 0x01;
const TRAINS_OF_TCP: libc::c_uint = 0x02 | 0x04 | 0x08;
const TRAINS_OF_UDP: libc::c_uint = 0x20 | 0x40;

/// The work that a TUN device leaves undone on the packets that it gives to its reader, and takes
/// from its writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TunOffload {
    /// Checksums: each packet is a single one.
    Checksums,
    /// Checksums, and the cutting of trains of TCP and UDP into segments.
    Trains,
}

/// Makes the TUN device `name` in the network namespace of the calling thread. Each read returns
/// `struct virtio_net_hdr` (10 bytes, in the machine's byte order) and one IP packet or one train,
/// and each write takes the same; the descriptor is non-blocking. The device lives as long as the
/// descriptor.
///
/// # Errors
/// `PermissionDenied` or `NotFound` where `/dev/net/tun` is closed or missing, and what the kernel
/// says to the requests.
pub fn open_tun(name: &str, offload: TunOffload) -> io::Result<File> {
    let tun = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK)
        .open("/dev/net/tun")?;
    let mut request = interface_request(name)?;
    request.ifr_ifru.ifru_flags =
        (libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR) as libc::c_short;
    // SAFETY: TUNSETIFF reads and writes one `ifreq`, which `request` is; the descriptor is open.
    let done = unsafe { libc::ioctl(tun.as_raw_fd(), libc::TUNSETIFF as _, &raw mut request) };
    check_call(done >= 0)?;
    set_offload(&tun, offload)?;
    Ok(tun)
}

fn set_offload(tun: &File, offload: TunOffload) -> io::Result<()> {
    // Linux before 6.2 knows no trains of UDP, and refuses what it does not know.
    let [first, second] = match offload {
        TunOffload::Checksums => [CHECKSUMS; 2],
        TunOffload::Trains => [
            CHECKSUMS | TRAINS_OF_TCP | TRAINS_OF_UDP,
            CHECKSUMS | TRAINS_OF_TCP,
        ],
    };
    request_offload(tun, first).or_else(|_| request_offload(tun, second))
}

fn request_offload(tun: &File, features: libc::c_uint) -> io::Result<()> {
    let features = libc::c_ulong::from(features);
    // SAFETY: TUNSETOFFLOAD takes its argument by value; the descriptor is open.
    let done = unsafe { libc::ioctl(tun.as_raw_fd(), libc::TUNSETOFFLOAD as _, features) };
    check_call(done >= 0)
}
