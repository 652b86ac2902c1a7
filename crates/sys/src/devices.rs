//! The network devices of a namespace.

use std::io;

use fullpipe_units::{ByteCount, SegCount};

use crate::dump::{attribute, dump_list, parse_attributes, parse_text, parse_u32, read_word};

/// A network device, as the kernel describes it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NetworkDevice {
    /// Number of the device in this namespace (ifindex).
    pub index: u32,
    /// Name of the device.
    pub name: String,
    /// True if it is up.
    pub is_up: bool,
    /// True if it leads back to this namespace.
    pub is_loopback: bool,
    /// The kind of device if it is no card: `veth`, `tun`, `bridge`…
    pub kind: Option<String>,
    /// Number of the device that it leads to or stands on, if there is one.
    pub lower: Option<u32>,
    /// Largest IP packet.
    pub mtu: ByteCount,
    /// Queueing discipline at its root.
    pub qdisc: String,
    /// Packets that may wait for it (`txqueuelen`).
    pub transmit_queue: SegCount,
    /// Queues out of it.
    pub transmit_queues: u32,
    /// Queues into it.
    pub receive_queues: u32,
}

/// The devices of the calling thread's network namespace.
///
/// # Errors
/// Fails with the kernel's error.
pub fn list_devices() -> io::Result<Vec<NetworkDevice>> {
    let mut found = Vec::new();
    dump_list(
        None,
        libc::RTM_GETLINK,
        &[0; INFO_LENGTH],
        &mut |kind, message| {
            if kind == libc::RTM_NEWLINK {
                found.extend(parse_device(message));
            }
        },
    )?;
    Ok(found)
}

/// `struct ifinfomsg`.
const INFO_LENGTH: usize = 16;

fn parse_device(message: &[u8]) -> Option<NetworkDevice> {
    let (info, rest) = message.split_at_checked(INFO_LENGTH)?;
    let flags = parse_u32(&info[8..])?;
    let mut device = NetworkDevice {
        index: parse_u32(&info[4..])?,
        is_up: flags & libc::IFF_UP as u32 != 0,
        is_loopback: flags & libc::IFF_LOOPBACK as u32 != 0,
        ..NetworkDevice::default()
    };
    for (kind, value) in parse_attributes(rest) {
        let number = read_word(value, 0);
        match kind {
            libc::IFLA_IFNAME => device.name = parse_text(value),
            libc::IFLA_LINK => device.lower = Some(number),
            libc::IFLA_MTU => device.mtu = ByteCount::new(number.into()),
            libc::IFLA_QDISC => device.qdisc = parse_text(value),
            libc::IFLA_TXQLEN => device.transmit_queue = SegCount::new(number.into()),
            libc::IFLA_NUM_TX_QUEUES => device.transmit_queues = number,
            libc::IFLA_NUM_RX_QUEUES => device.receive_queues = number,
            libc::IFLA_LINKINFO => {
                device.kind = attribute(value, libc::IFLA_INFO_KIND).map(parse_text);
            }
            _ => {}
        }
    }
    Some(device)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_device_is_there() {
        let devices = list_devices().unwrap();
        let loopback = devices.iter().find(|device| device.name == "lo").unwrap();
        assert!(
            loopback.index > 0
                && loopback.is_loopback
                && loopback.mtu.get() >= 1500
                && loopback.transmit_queues > 0,
            "{loopback:?}"
        );
    }
}
