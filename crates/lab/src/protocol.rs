//! Messages between the parent and the keeper: one JSON message per packet of a socket pair, with
//! descriptors attached.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use fullpipe_record::{Change, DeviceCounts, HostSettings, Segmentation};
use fullpipe_sys::{receive_with_descriptors, send_with_descriptors};
use fullpipe_units::{ByteCount, Span};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::backend::Backend;
use crate::kernel::{Counts, Discipline};
use crate::lack::Lack;

/// Longest message: the kernel's own limit on a program's arguments is of this order, and a packet
/// must fit into the smallest default socket buffer.
const MAX_MESSAGE: usize = 160 * 1024;

/// The hardware address of both hosts where they have Ethernet devices, and of routers, of those
/// that anybody may give.
pub(crate) const ETHERNET_ADDRESS: [u8; 6] = [2, 0, 0, 0, 0, 1];

/// One of the hosts of a lab. The relays are there only if the path has stretches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Host {
    /// The host that sends the data.
    Sender,
    /// The host that receives it.
    Receiver,
    /// The host between the sender and the long stretch.
    NearRelay,
    /// The host between the long stretch and the receiver.
    FarRelay,
}

impl Host {
    /// Both ends, in the order of the path.
    pub const ALL: [Self; 2] = [Self::Sender, Self::Receiver];

    /// All hosts of a path with stretches, in its order.
    pub(crate) const CHAIN: [Self; 4] = [
        Self::Sender,
        Self::NearRelay,
        Self::FarRelay,
        Self::Receiver,
    ];

    /// The name of the host, in scenarios and as the host name that its programs see.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sender => "sender",
            Self::Receiver => "receiver",
            Self::NearRelay => "near-relay",
            Self::FarRelay => "far-relay",
        }
    }

    /// The host of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::CHAIN.into_iter().find(|host| host.name() == name)
    }

    /// The address of the host on the path, from the block that RFC 2544 reserves for benchmarks.
    pub const fn address(self) -> Ipv4Addr {
        match self {
            Self::Sender => Ipv4Addr::new(198, 18, 0, 1),
            Self::Receiver => Ipv4Addr::new(198, 18, 0, 2),
            Self::NearRelay => Ipv4Addr::new(198, 18, 0, 21),
            Self::FarRelay => Ipv4Addr::new(198, 18, 0, 22),
        }
    }

    /// The other end; of a relay, the other relay.
    #[must_use]
    pub const fn peer_host(self) -> Self {
        match self {
            Self::Sender => Self::Receiver,
            Self::Receiver => Self::Sender,
            Self::NearRelay => Self::FarRelay,
            Self::FarRelay => Self::NearRelay,
        }
    }

    pub(crate) const fn index(self) -> usize {
        self as usize
    }

    /// Returns true if the host is one of the two ends.
    pub(crate) const fn is_end(self) -> bool {
        matches!(self, Self::Sender | Self::Receiver)
    }
}

/// Layout of what a host's device reads and writes, after the `struct virtio_net_hdr` that begins
/// both.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Layout {
    /// An IP packet, of a TUN device.
    Tun,
    /// A frame of a packet socket: the Ethernet header of 14 bytes and an IP packet. Both hosts
    /// have the same hardware address and send to it, so that either takes the other's frames as
    /// they are.
    Packet,
}

impl Layout {
    /// The Ethernet header of every frame, to IPv4; empty where there is none.
    pub(crate) const fn ethernet_header(self) -> &'static [u8] {
        const HEADER: [u8; 14] = {
            let [a, b, c, d, e, f] = ETHERNET_ADDRESS;
            [a, b, c, d, e, f, a, b, c, d, e, f, 8, 0]
        };
        match self {
            Self::Tun => &[],
            Self::Packet => &HEADER,
        }
    }
}

/// The first message to the keeper: what to build.
#[derive(Serialize, Deserialize)]
pub(crate) struct Blueprint {
    /// The backend.
    pub backend: Backend,
    /// The stretches in the order of the path: one, or three with a relay between each two.
    pub stretches: Vec<Stretch>,
    /// Segmentation of the hosts' data.
    pub segmentation: Segmentation,
    /// Settings of each end from the beginning, in the order of [`Host::ALL`].
    pub changes: [Vec<Change>; 2],
    /// Settings of each relay from the beginning.
    pub relay_changes: Vec<Change>,
    /// Disciplines of each host's router, in the same order; none where there is a link.
    pub disciplines: [Vec<Discipline>; 2],
}

/// The devices at both ends of a stretch, the sender's side first.
#[derive(Serialize, Deserialize)]
pub(crate) struct Stretch {
    /// MTU of each.
    pub mtu: [ByteCount; 2],
    /// Packets that each holds for the link.
    pub transmit_queue: u64,
}

impl Blueprint {
    /// Returns the hosts in the order of the path.
    pub(crate) fn path_hosts(&self) -> &'static [Host] {
        if self.stretches.len() == 1 {
            &Host::ALL
        } else {
            &Host::CHAIN
        }
    }
}

/// A request to the keeper; each gets one [`Reply`].
#[derive(Serialize, Deserialize)]
pub(crate) enum Request {
    /// Start a program in a host; its input, output and errors come as descriptors.
    Start {
        host: Host,
        program: String,
        arguments: Vec<String>,
    },
    /// Send a signal to a program that was started.
    Signal { pid: i32, signal: i32 },
    /// Read a host's settings.
    Inspect { host: Host },
    /// Change them.
    Apply { host: Host, changes: Vec<Change> },
    /// Undo all changes to a host, last first.
    Undo { host: Host },
    /// Count the packets that a host's device dropped, and the device between the routers on the
    /// way to its own.
    DeviceDrops { host: Host },
    /// Count what a host's device sent and received.
    Device { host: Host },
    /// Count what the routers carried in each direction.
    Counts,
    /// Make a socket that listens in the host for programs that ask about the path; it is the
    /// descriptor of the answer.
    Listen { host: Host },
}

/// A message of the keeper.
#[derive(Serialize, Deserialize)]
pub(crate) enum Reply {
    /// The hosts stand; as descriptors come the keeper and the hosts' networks and, where there is
    /// a link, their devices, which have that layout.
    Ready { layout: Option<Layout> },
    /// Done, without a result.
    Done,
    /// A program runs; as a descriptor comes its process.
    Started { pid: i32 },
    /// Settings.
    Settings(HostSettings),
    /// A count.
    Count(u64),
    /// Counts of a device.
    Device(DeviceCounts),
    /// Counts of each direction, forward first.
    Counts([Counts; 2]),
    /// The request could not be done; one sentence says why.
    Failed { message: String },
    /// The hosts cannot be built because this machine lacks something; what the kernel said, and
    /// with which number.
    Lacking {
        what: Lack,
        message: String,
        errno: Option<i32>,
    },
    /// Unasked: a program ended, with its exit code, or 128 and the signal that ended it, and its
    /// processor time.
    Exited { pid: i32, code: i32, cpu: Span },
}

/// Sends one message.
pub(crate) fn send_message(
    socket: impl AsFd,
    message: &impl Serialize,
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let bytes = serde_json::to_vec(message)?;
    if bytes.len() > MAX_MESSAGE {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "the command line is too long for the lab",
        ));
    }
    send_with_descriptors(socket, &bytes, descriptors)
}

/// Receives one message; `None` once the other end is gone.
pub(crate) fn receive_message<M: DeserializeOwned>(
    socket: impl AsFd,
) -> io::Result<Option<(M, Vec<OwnedFd>)>> {
    let mut buffer = vec![0; MAX_MESSAGE];
    let (length, descriptors) = match receive_with_descriptors(socket, &mut buffer) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
        other => other?,
    };
    if length == 0 {
        return Ok(None);
    }
    Ok(Some((
        serde_json::from_slice(&buffer[..length])?,
        descriptors,
    )))
}
