//! The features of a network device, available and enabled, by the `ioctl` of ethtool
//! (`linux/ethtool.h`).

use std::io;
use std::os::fd::AsRawFd;

use fullpipe_units::{BitRate, SegCount};

use crate::dump::{parse_text, read_word};
use crate::interface::interface_request;
use crate::socket::{check_call, control_socket};

/// Something that a device may do for the kernel: `tx-tcp-segmentation`, `rx-gro`…
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceFeature {
    /// The kernel's name of it.
    pub name: String,
    /// True if it is done.
    pub is_on: bool,
    /// True if it was asked for; what it needs may be off.
    pub is_wanted: bool,
    /// True if it can be changed.
    pub can_change: bool,
    bit: usize,
    /// Of 32 bits each: all that the kernel has, whose number it wants to know.
    blocks: usize,
}

/// Packets that a device has room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceRings {
    /// Coming in.
    pub receive: SegCount,
    /// Going out.
    pub transmit: SegCount,
    /// The most that it could have coming in.
    pub most_receive: SegCount,
    /// The most going out.
    pub most_transmit: SegCount,
}

/// Everything that device `name` may do for the kernel.
///
/// # Errors
/// Fails with the kernel's error: `ENODEV` where there is no such device.
pub fn device_features(name: &str) -> io::Result<Vec<DeviceFeature>> {
    let names = string_set(name, FEATURES)?;
    let blocks = names.len().div_ceil(32);
    let mut buffer = [GET_FEATURES.to_ne_bytes(), (blocks as u32).to_ne_bytes()].concat();
    buffer.resize(8 + blocks * 16, 0);
    ethtool_request(name, &mut buffer)?;
    let numbered = names.into_iter().enumerate();
    Ok(numbered
        .filter(|(_, name)| !name.is_empty())
        .map(|(bit, name)| {
            // For each 32 of them: which can change, which were asked for, which are on, and which
            // never change.
            let [can_change, is_wanted, is_on, never_changes] = [0, 4, 8, 12]
                .map(|place| read_word(&buffer, 8 + bit / 32 * 16 + place) >> (bit % 32) & 1 == 1);
            DeviceFeature {
                name,
                is_on,
                is_wanted,
                can_change: can_change && !never_changes,
                bit,
                blocks,
            }
        })
        .collect())
}

/// Asks device `name` to do `feature`, or not to. Whether it does shows when it is read.
///
/// # Errors
/// Fails with the kernel's error.
pub fn set_feature(name: &str, feature: &DeviceFeature, on: bool) -> io::Result<()> {
    let mask = 1_u32 << (feature.bit % 32);
    // For each 32 of them: which are meant, and which of these are wanted.
    let mut words = vec![[0, 0]; feature.blocks];
    words[feature.bit / 32] = [mask, if on { mask } else { 0 }];
    let head = [SET_FEATURES, feature.blocks as u32];
    let mut buffer: Vec<u8> = [head]
        .into_iter()
        .chain(words)
        .flatten()
        .flat_map(u32::to_ne_bytes)
        .collect();
    ethtool_request(name, &mut buffer)
}

/// The rings of device `name`.
///
/// # Errors
/// Fails with the kernel's error: `EOPNOTSUPP` where it has none.
pub fn device_rings(name: &str) -> io::Result<DeviceRings> {
    let mut buffer = GET_RINGS.to_ne_bytes().to_vec();
    buffer.resize(4 + 8 * 4, 0);
    ethtool_request(name, &mut buffer)?;
    let [most_receive, most_transmit, receive, transmit] =
        [1, 4, 5, 8].map(|word: usize| SegCount::new(read_word(&buffer, word * 4).into()));
    Ok(DeviceRings {
        receive,
        transmit,
        most_receive,
        most_transmit,
    })
}

/// What the driver of a device states of its link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DeviceLink {
    /// Its speed; `None` where the driver does not know.
    pub speed: Option<BitRate>,
    /// True if it sends or receives, but not both at once; `None` where the driver does not know.
    pub is_half_duplex: Option<bool>,
}

/// Returns what the driver of device `name` states of its link.
///
/// # Errors
/// Fails with the kernel's error: `EOPNOTSUPP` where it states nothing.
pub fn device_link(name: &str) -> io::Result<DeviceLink> {
    // `struct ethtool_cmd`: the lower half of the speed at 12, the upper at 28, in Mbit/s; the
    // duplex at 14.
    let mut buffer = GET_SETTINGS.to_ne_bytes().to_vec();
    buffer.resize(44, 0);
    ethtool_request(name, &mut buffer)?;
    let [upper, lower] =
        [28, 12].map(|at| u32::from(u16::from_ne_bytes([buffer[at], buffer[at + 1]])));
    let speed = upper << 16 | lower;
    let unknown = [0, u32::from(u16::MAX), u32::MAX];
    Ok(DeviceLink {
        speed: (!unknown.contains(&speed)).then(|| BitRate::from_mbps(speed.into())),
        is_half_duplex: match buffer[14] {
            DUPLEX_HALF => Some(true),
            DUPLEX_FULL => Some(false),
            _ => None,
        },
    })
}

/// Returns the names of the counters that the driver of device `name` has of its own, in the order
/// of [`device_counters`].
///
/// # Errors
/// Fails with the kernel's error: `EOPNOTSUPP` where it has none.
pub fn device_counter_names(name: &str) -> io::Result<Vec<String>> {
    string_set(name, COUNTERS)
}

/// Returns the counters that the driver of device `name` has of its own, of which it has `count`.
///
/// # Errors
/// Fails with the kernel's error, or if the driver has another number of them.
pub fn device_counters(name: &str, count: usize) -> io::Result<Vec<u64>> {
    let mut buffer = [GET_COUNTERS, count as u32].map(u32::to_ne_bytes).concat();
    buffer.resize(8 + (count + SPARE_STRINGS) * 8, 0);
    ethtool_request(name, &mut buffer)?;
    if read_word(&buffer, 4) as usize != count {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "the driver's counters have changed",
        ));
    }
    let values = buffer[8..].chunks_exact(8).take(count);
    Ok(values
        .map(|value| value.first_chunk().copied().map_or(0, u64::from_ne_bytes))
        .collect())
}

const GET_SETTINGS: u32 = 0x01;
const GET_RINGS: u32 = 0x10;
const GET_STRINGS: u32 = 0x1b;
const GET_COUNTERS: u32 = 0x1d;
const GET_STRING_COUNT: u32 = 0x37;
const GET_FEATURES: u32 = 0x3a;
const SET_FEATURES: u32 = 0x3b;
/// `ETH_SS_STATS` and `ETH_SS_FEATURES`.
const COUNTERS: u32 = 1;
const FEATURES: u32 = 4;
const DUPLEX_HALF: u8 = 0;
const DUPLEX_FULL: u8 = 1;
/// `ETH_GSTRING_LEN`.
const NAME_LENGTH: usize = 32;
/// More features than any kernel has, and more counters than a driver with hundreds of queues.
const MAX_STRINGS: usize = 16 << 10;
/// Room for more of them than there were a moment ago: the kernel writes as many as there are now.
const SPARE_STRINGS: usize = 1024;

/// The names of the features, by their bits and empty where a bit has none, or of the counters.
fn string_set(name: &str, set: u32) -> io::Result<Vec<String>> {
    // How many there are: a mask of one set, and a number for it.
    let mut count = [GET_STRING_COUNT, 0].map(u32::to_ne_bytes).concat();
    count.extend((1_u64 << set).to_ne_bytes());
    count.resize(20, 0);
    ethtool_request(name, &mut count)?;
    let there = read_word(&count, 16) as usize;
    if there > MAX_STRINGS {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "the kernel reports of too many features or counters",
        ));
    }
    let mut strings = [GET_STRINGS, set, there as u32]
        .map(u32::to_ne_bytes)
        .concat();
    strings.resize(12 + (there + SPARE_STRINGS) * NAME_LENGTH, 0);
    ethtool_request(name, &mut strings)?;
    Ok(strings[12..]
        .chunks(NAME_LENGTH)
        .take(there)
        .map(parse_text)
        .collect())
}

/// Asks of device `name` what `buffer` begins with, which has room for the answer.
fn ethtool_request(name: &str, buffer: &mut [u8]) -> io::Result<()> {
    let mut request = interface_request(name)?;
    request.ifr_ifru.ifru_data = buffer.as_mut_ptr().cast();
    let control = control_socket()?;
    let number = libc::SIOCETHTOOL as _;
    // SAFETY: the request holds a name and a pointer to `buffer`, which is borrowed mutably
    // meanwhile. Each caller sizes it for the whole answer: of fixed length, or of as many blocks
    // as it says, or with room for more names or counters than there are.
    let done = unsafe { libc::ioctl(control.as_raw_fd(), number, &raw mut request) };
    check_call(done >= 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_device_joins_packets_and_has_neither_rings_nor_speed() {
        let features = device_features("lo").unwrap();
        let gro = features
            .iter()
            .find(|feature| feature.name == "rx-gro")
            .unwrap();
        assert!(gro.can_change, "{gro:?}");
        assert!(device_rings("lo").is_err() && device_link("lo").is_err());
        assert!(device_counters("lo", 1).is_err() && device_counter_names("lo").is_err());
        assert!(super::device_features("no-such-device").is_err());
    }
}
