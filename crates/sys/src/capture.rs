//! Sockets that capture the TCP segments of a device.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use fullpipe_units::Time;
use rustix::net::netdevice::name_to_index;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with, sockopt};

use crate::devices::list_devices;
use crate::dump::read_word;
use crate::mapping::Mapping;
use crate::packet::{bind_to, packet_drops};
use crate::readable::wait_readable;
use crate::socket::{check_call, set_option};

/// The name that stands for all devices, unless one has it.
pub const ALL_DEVICES: &str = "any";

/// Bytes kept of each packet: more than the headers of IPv6 and TCP with all options.
pub const CAPTURED_LENGTH: u32 = 128;

/// The ring between the kernel and the reader: 32 MiB, more than 100 000 packets.
const BLOCK: usize = 1 << 18;
const BLOCKS: usize = 128;

/// The kernel hands over a block that is not full after this time, in milliseconds.
const RETIRE_AFTER: u32 = 20;

/// Time in which it has done so, on a busy machine too.
const LAST_WAIT: Duration = Duration::from_millis(60);

/// Bytes of a frame, by which nothing but the size of the ring is checked (`TPACKET_V3` packs
/// them).
const FRAME: usize = 2048;

/// Connections that are captured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CapturedPeer {
    /// Address and port of their remote end.
    pub remote: SocketAddr,
    /// Port of their local end; any if not set.
    pub local_port: Option<u16>,
}

/// Maximum number of peers: those beyond it are not captured. Their filter must fit into the memory
/// of options that a socket has (`net.core.optmem_max`, 20 KiB until Linux 6.7).
pub const MAX_PEERS: usize = 12;

/// A packet that passed the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CapturedFrame<'f> {
    /// The kernel's time, since 1970 in UTC.
    pub at: Time,
    /// First bytes of the packet, from the IP header on.
    pub bytes: &'f [u8],
    /// Length of the packet in bytes.
    pub original: u32,
}

/// A socket that captures the TCP segments which pass a device, each once, through a ring that it
/// shares with the kernel (`TPACKET_V3`, packet(7)).
#[derive(Debug)]
pub struct CaptureSocket {
    socket: OwnedFd,
    ring: CaptureRing,
    /// Number of the block that the kernel hands over next.
    next: usize,
    drops: u64,
}

impl CaptureSocket {
    /// Opens a socket on device `name` of the calling thread's network namespace, or with
    /// [`ALL_DEVICES`] on all of them: for all TCP, or for what passes to and from the first
    /// [`MAX_PEERS`] of `peers` if there are any. What passes several devices is captured on each.
    ///
    /// # Errors
    /// `PermissionDenied` without `CAP_NET_RAW` over the namespace, `ENODEV` if there is no such
    /// device.
    pub fn open(name: &str, peers: &[CapturedPeer]) -> io::Result<Self> {
        // Without a protocol it receives nothing yet. A socket of datagrams begins packets at the
        // IP header, whatever the device is.
        let socket = socket_with(
            AddressFamily::PACKET,
            SocketType::DGRAM,
            SocketFlags::CLOEXEC,
            None,
        )?;
        let index = match name_to_index(&socket, name) {
            Err(rustix::io::Errno::NODEV) if name == ALL_DEVICES => None,
            found => Some(found?),
        };
        let loopback = list_devices()?
            .into_iter()
            .find(|device| device.is_loopback)
            .map(|device| device.index);
        attach_filter(&socket, &filter_program(peers, loopback))?;
        set_option(
            &socket,
            libc::SOL_PACKET,
            PACKET_VERSION,
            &TPACKET_V3.to_ne_bytes(),
        )?;
        let ring = CaptureRing::map_ring(&socket)?;
        bind_to(&socket, index.unwrap_or(0), libc::ETH_P_ALL as u16)?;
        Ok(Self {
            socket,
            ring,
            next: 0,
            drops: 0,
        })
    }

    /// Waits until `timeout` for packets, and passes those of one block to `each`. Returns how many
    /// there were.
    ///
    /// # Errors
    /// `ENETDOWN` once the device is down or away. What was captured before was passed on.
    pub fn read(
        &mut self,
        timeout: Duration,
        each: &mut dyn FnMut(CapturedFrame<'_>),
    ) -> io::Result<usize> {
        if !self.ring.is_ready(self.next) {
            match wait_readable(&self.socket, timeout) {
                Err(rustix::io::Errno::INTR) => return Ok(0),
                waited => waited?,
            };
            if !self.ring.is_ready(self.next) {
                sockopt::socket_error(&self.socket)??;
                return Ok(0);
            }
        }
        let count = visit_frames(self.ring.block_bytes(self.next), each);
        self.ring.give_back(self.next);
        self.next = (self.next + 1) % BLOCKS;
        Ok(count)
    }

    /// Passes all packets that were captured up to now to `each`, and few of the later ones: it
    /// ends though packets keep coming.
    ///
    /// # Errors
    /// As [`CaptureSocket::read`].
    pub fn drain_frames(&mut self, each: &mut dyn FnMut(CapturedFrame<'_>)) -> io::Result<()> {
        let ready = (self.next..self.next + BLOCKS)
            .take_while(|number| self.ring.is_ready(*number))
            .count();
        // One more, which the kernel is filling.
        for _ in 0..=ready {
            if self.read(LAST_WAIT, each)? == 0 {
                break;
            }
        }
        Ok(())
    }

    /// Returns the number of packets that found the ring full so far.
    ///
    /// # Errors
    /// Fails as `getsockopt` does.
    pub fn drop_count(&mut self) -> io::Result<u64> {
        self.drops += packet_drops(&self.socket)?;
        Ok(self.drops)
    }
}

/// Passes the packets of a block to `each`. Returns the number of packets. The kernel wrote the
/// block: lengths that do not fit end it.
fn visit_frames(block: &[u8], each: &mut dyn FnMut(CapturedFrame<'_>)) -> usize {
    const BLOCK_PACKETS: usize = 12;
    const BLOCK_FIRST: usize = 16;
    let packets = read_word(block, BLOCK_PACKETS);
    let mut at = read_word(block, BLOCK_FIRST) as usize;
    let mut count = 0;
    for _ in 0..packets {
        let Some((frame, next)) = block.get(at..).and_then(parse_frame) else {
            break;
        };
        each(frame);
        count += 1;
        at += next;
    }
    count
}

/// Reads a packet from its header on. Returns the distance of the next one's header too.
fn parse_frame(header: &[u8]) -> Option<(CapturedFrame<'_>, usize)> {
    if header.len() < FRAME_HEADER {
        return None;
    }
    let [next, seconds, nanos, captured, original] =
        [0, 4, 8, 12, 16].map(|place| read_word(header, place));
    let begin = usize::from(u16::from_ne_bytes([header[26], header[27]]));
    let frame = CapturedFrame {
        at: Time::from_nanos(u64::from(seconds) * 1_000_000_000 + u64::from(nanos)),
        bytes: header.get(begin..begin + captured as usize)?,
        original,
    };
    Some((frame, next as usize))
}

/// Bytes of `struct tpacket3_hdr`.
const FRAME_HEADER: usize = 48;

/// Of `linux/if_packet.h`; the crate `libc` has no names for them.
const PACKET_VERSION: i32 = 10;
const TPACKET_V3: i32 = 2;
const TP_STATUS_KERNEL: u32 = 0;
const TP_STATUS_USER: u32 = 1;

/// Place of the status in `struct tpacket_block_desc`.
const BLOCK_STATUS: usize = 8;

/// Memory that the kernel writes packets into, block by block.
#[derive(Debug)]
struct CaptureRing(Mapping);

impl CaptureRing {
    /// Gives the socket a ring, and maps it.
    fn map_ring(socket: &OwnedFd) -> io::Result<Self> {
        let request: [u32; 7] = [
            BLOCK as u32,
            BLOCKS as u32,
            FRAME as u32,
            (BLOCK / FRAME * BLOCKS) as u32,
            RETIRE_AFTER,
            0,
            0,
        ];
        let request: Vec<u8> = request.into_iter().flat_map(u32::to_ne_bytes).collect();
        set_option(socket, libc::SOL_PACKET, libc::PACKET_RX_RING, &request)?;
        Mapping::new(BLOCK * BLOCKS, libc::MAP_SHARED, socket.as_raw_fd()).map(Self)
    }

    fn block_status(&self, number: usize) -> &AtomicU32 {
        // SAFETY: block `number` is one of the ring's, and its status lies within it at a multiple
        // of four bytes. The kernel and this program change it as a whole only.
        unsafe {
            AtomicU32::from_ptr(
                self.0
                    .start
                    .as_ptr()
                    .add(number % BLOCKS * BLOCK + BLOCK_STATUS)
                    .cast(),
            )
        }
    }

    /// Returns true if the kernel has handed the block over.
    fn is_ready(&self, number: usize) -> bool {
        self.block_status(number).load(Ordering::Acquire) & TP_STATUS_USER != 0
    }

    /// Returns a block, which is empty unless the kernel has handed it over.
    fn block_bytes(&self, number: usize) -> &[u8] {
        if !self.is_ready(number) {
            return &[];
        }
        // SAFETY: the block lies within the ring. The kernel does not write it until it is given
        // back, which takes the ring exclusively.
        unsafe {
            std::slice::from_raw_parts(self.0.start.as_ptr().add(number % BLOCKS * BLOCK), BLOCK)
        }
    }

    /// Lets the kernel write the block again.
    fn give_back(&mut self, number: usize) {
        self.block_status(number)
            .store(TP_STATUS_KERNEL, Ordering::Release);
    }
}

/// A field of a packet that a filter compares.
#[derive(Clone, Copy)]
enum FilterField {
    /// The Ethernet type, as the kernel knows it.
    Protocol,
    /// `PACKET_OUTGOING` and others.
    PacketType,
    /// The index of the device.
    Device,
    Byte(u32),
    Word(u32),
    Half(u32),
    /// The fragment's offset of IPv4.
    Offset,
    /// 16 bits at this place behind IPv4's header.
    Behind(u32),
}

/// Comparison of a field: true if it is equal to the value.
type Check = (FilterField, u32);

/// Returns the filter: a packet passes if all checks of one of several lists are true, but for
/// those that the device `loopback` sends, as it receives them.
fn filter_program(peers: &[CapturedPeer], loopback: Option<u32>) -> Vec<libc::sock_filter> {
    const OUTGOING: u32 = 4;
    let kept: Vec<Vec<Check>> = if peers.is_empty() {
        any_tcp()
    } else {
        peers.iter().take(MAX_PEERS).flat_map(of_peer).collect()
    };
    let dropped = loopback.map(|loopback| {
        let sent = vec![
            (FilterField::PacketType, OUTGOING),
            (FilterField::Device, loopback),
        ];
        (sent, 0)
    });
    let kept = kept.into_iter().map(|list| (list, CAPTURED_LENGTH));
    assemble_filter(&dropped.into_iter().chain(kept).collect::<Vec<_>>())
}

const TCP: u32 = 6;

fn is_v4() -> [Check; 2] {
    [
        (FilterField::Protocol, libc::ETH_P_IP as u32),
        (FilterField::Byte(9), TCP),
    ]
}

fn is_v6(next: u32) -> [Check; 2] {
    [
        (FilterField::Protocol, libc::ETH_P_IPV6 as u32),
        (FilterField::Byte(6), next),
    ]
}

fn any_tcp() -> Vec<Vec<Check>> {
    const FRAGMENT: u32 = 44;
    let fragment = [&is_v6(FRAGMENT)[..], &[(FilterField::Byte(40), TCP)]].concat();
    vec![is_v4().to_vec(), is_v6(TCP).to_vec(), fragment]
}

fn of_peer(peer: &CapturedPeer) -> [Vec<Check>; 2] {
    // The remote end is the source, or the destination.
    [0, 1].map(|end| {
        let ports = [(end, Some(peer.remote.port())), (1 - end, peer.local_port)];
        let ports = ports
            .into_iter()
            .filter_map(|(end, port)| Some((end, u32::from(port?))));
        match peer.remote.ip().to_canonical() {
            IpAddr::V4(address) => {
                let address = (FilterField::Word(12 + 4 * end), u32::from(address));
                let ports = ports.map(|(end, port)| (FilterField::Behind(2 * end), port));
                is_v4()
                    .into_iter()
                    .chain([address, (FilterField::Offset, 0)])
                    .chain(ports)
                    .collect()
            }
            IpAddr::V6(address) => {
                let words = address.octets();
                let words = words.as_chunks::<4>().0.iter().zip(0..);
                let words = words.map(|(word, number)| {
                    let field = FilterField::Word(8 + 16 * end + 4 * number);
                    (field, u32::from_be_bytes(*word))
                });
                let ports = ports.map(|(end, port)| (FilterField::Half(40 + 2 * end), port));
                is_v6(TCP).into_iter().chain(words).chain(ports).collect()
            }
        }
    })
}

/// Returns lists of checks, each with the bytes to keep of a packet that it is the first to be true
/// for, in the classic language of filters (bpf(4), `linux/filter.h`).
fn assemble_filter(lists: &[(Vec<Check>, u32)]) -> Vec<libc::sock_filter> {
    const JUMP_IF_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    let mut all = Vec::new();
    for (list, kept) in lists {
        let mut lines: Vec<libc::sock_filter> = Vec::new();
        let mut jumps = Vec::new();
        for (field, value) in list {
            lines.extend(load_field(*field));
            jumps.push(lines.len());
            lines.push(filter_line(JUMP_IF_EQUAL, *value));
        }
        lines.push(filter_line(RETURN, *kept));
        let length = lines.len();
        for at in jumps {
            // To the next list.
            lines[at].jf = (length - at - 1) as u8;
        }
        all.extend(lines);
    }
    all.push(filter_line(RETURN, 0));
    all
}

/// Returns the lines that load a field.
fn load_field(field: FilterField) -> Vec<libc::sock_filter> {
    const LOAD_HALF: u16 = 0x28;
    const LOAD_BYTE: u16 = 0x30;
    const LOAD_HALF_BEHIND: u16 = 0x48;
    const LOAD_HEADER_LENGTH: u16 = 0xB1;
    const AND: u16 = 0x54;
    match field {
        FilterField::Protocol => vec![load_ancillary(libc::SKF_AD_PROTOCOL)],
        FilterField::PacketType => vec![load_ancillary(libc::SKF_AD_PKTTYPE)],
        FilterField::Device => vec![load_ancillary(libc::SKF_AD_IFINDEX)],
        FilterField::Byte(at) => vec![filter_line(LOAD_BYTE, at)],
        FilterField::Half(at) => vec![filter_line(LOAD_HALF, at)],
        FilterField::Word(at) => vec![filter_line(LOAD_WORD, at)],
        FilterField::Offset => vec![filter_line(LOAD_HALF, 6), filter_line(AND, 0x1FFF)],
        FilterField::Behind(at) => vec![
            filter_line(LOAD_HEADER_LENGTH, 0),
            filter_line(LOAD_HALF_BEHIND, at),
        ],
    }
}

const LOAD_WORD: u16 = 0x20;

fn load_ancillary(number: i32) -> libc::sock_filter {
    filter_line(LOAD_WORD, (libc::SKF_AD_OFF + number) as u32)
}

fn filter_line(code: u16, k: u32) -> libc::sock_filter {
    libc::sock_filter {
        code,
        jt: 0,
        jf: 0,
        k,
    }
}

fn attach_filter(socket: &OwnedFd, program: &[libc::sock_filter]) -> io::Result<()> {
    let filter = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_ptr().cast_mut(),
    };
    let length = size_of::<libc::sock_fprog>() as libc::socklen_t;
    // SAFETY: the descriptor is open; the kernel reads `length` bytes of `filter` and the `len`
    // lines that it refers to, both of which outlive the call, and writes neither.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const filter).cast(),
            length,
        )
    };
    check_call(result == 0)
}

#[cfg(test)]
mod tests;
