//! Changes that a path makes to the headers of passing packets.

use std::sync::Arc;

use fullpipe_units::ByteCount;

use super::IpPacketTrain;
use crate::checksum::ChecksumSum;
use crate::headers::{IpVersion, TCP, read_u16};
use crate::options::{
    MSS, NO_OPERATION, SACK, SACK_PERMITTED, SYN, TIMESTAMPS, WINDOW_SCALE, first_length,
};

/// Both bits of the field: congestion experienced (RFC 3168, 5).
const CE: u8 = 0b11;

/// Length of a header of IP without options or extensions.
const MIN_HEADER_V4: usize = 20;
const MIN_HEADER_V6: usize = 40;

impl IpPacketTrain {
    /// A number that all packets between two sockets have in common, in this direction: a hash of
    /// addresses, protocol and ports (FNV-1a). Packets that are neither TCP nor UDP share one.
    pub fn flow_hash(&self) -> u64 {
        let Some(headers) = self.headers else {
            return 0;
        };
        let addresses = match headers.version {
            IpVersion::V4 => &self.head[12..20],
            IpVersion::V6 => &self.head[8..40],
        };
        let ports = &self.head[headers.transport..headers.transport + 4];
        let bytes = addresses.iter().chain(ports).chain([&headers.protocol]);
        bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        })
    }

    /// Marks every segment "congestion experienced"; `false` where the sender did not say that it
    /// understands the mark.
    pub fn mark_ce(&mut self) -> bool {
        // The field is the end of the second byte of an IPv4 header, and in the middle of that of
        // an IPv6 header.
        let (version, shift) = match self.headers.map(|headers| headers.version) {
            Some(IpVersion::V4) => (IpVersion::V4, 0),
            Some(IpVersion::V6) => (IpVersion::V6, 4),
            None => return false,
        };
        if self.head[1] >> shift & CE == 0 {
            return false;
        }
        self.head[1] |= CE << shift;
        if version == IpVersion::V4 {
            self.settle_ip_checksum();
        }
        true
    }

    /// Spoils a bit of the transport's header or of the payload, which `random` chooses. The
    /// checksum is finished before, so that the receiver notices. A train must be cut first.
    pub fn corrupt_bit(&mut self, random: u64) {
        self.complete_checksum();
        let front = self.headers.map_or(0, |headers| headers.transport);
        let spoilable = self.head.len() - front + self.range.len();
        let Some(at) = random.checked_rem(spoilable as u64) else {
            return;
        };
        let bit = 1 << (random >> 61);
        let at = front + at as usize;
        if let Some(byte) = self.head.get_mut(at) {
            *byte ^= bit;
        } else {
            // Others may share the payload.
            let mut payload = self.payload_bytes().to_vec();
            payload[at - self.head.len()] ^= bit;
            self.range = 0..payload.len();
            self.payload = payload.into();
        }
    }

    /// Counts one hop of every segment down (RFC 791, 3.2; RFC 8200, 3). Returns `false`, and
    /// changes nothing, if that would use up the last: such a packet goes no further.
    pub fn count_hop(&mut self) -> bool {
        let front = if self.headers.is_some() {
            &mut self.head
        } else {
            Arc::make_mut(&mut self.payload)
        };
        match front.first().map(|byte| byte >> 4) {
            Some(4) if front.len() >= MIN_HEADER_V4 => count_down_v4(front),
            Some(6) if front.len() >= MIN_HEADER_V6 => count_down(&mut front[7]),
            _ => true,
        }
    }

    /// Removes the window scale option from a SYN. Returns true if the SYN had one.
    pub fn strip_window_scale(&mut self) -> bool {
        self.edit_syn_option(WINDOW_SCALE, blank_option)
    }

    /// Writes another shift into the window scale option of a SYN. Returns true if that changed it.
    pub fn rewrite_window_scale(&mut self, shift: u8) -> bool {
        self.edit_syn_option(WINDOW_SCALE, |option| option[2..].fill(shift))
    }

    /// Removes "SACK permitted" from a SYN, and SACK blocks. Returns true if there were some.
    pub fn strip_sack(&mut self) -> bool {
        let permitted = self.edit_syn_option(SACK_PERMITTED, blank_option);
        self.edit_option(SACK, blank_option) || permitted
    }

    /// Removes timestamps. Returns true if there were some.
    pub fn strip_timestamps(&mut self) -> bool {
        self.edit_option(TIMESTAMPS, blank_option)
    }

    /// Makes a larger MSS in a SYN this one. Returns true if it was larger.
    pub fn clamp_mss(&mut self, most: ByteCount) -> bool {
        self.edit_syn_option(MSS, |option| clamp_field(&mut option[2..], most))
    }

    /// Makes a larger value of the window field this one. Returns true if it was larger.
    pub fn clamp_window(&mut self, most: ByteCount) -> bool {
        let Some(transport) = self.tcp_offset() else {
            return false;
        };
        let before = self.read_word(transport + 14);
        clamp_field(&mut self.head[transport + 14..transport + 16], most);
        let changed = self.read_word(transport + 14) != before;
        if changed {
            self.settle_transport_checksum();
        }
        changed
    }

    /// Returns the offset of TCP's header.
    fn tcp_offset(&self) -> Option<usize> {
        self.headers
            .filter(|headers| headers.protocol == TCP)
            .map(|headers| headers.transport)
    }

    fn edit_syn_option(&mut self, kind: u8, edit: impl FnMut(&mut [u8])) -> bool {
        self.tcp_offset()
            .is_some_and(|transport| self.head[transport + 13] & SYN != 0)
            && self.edit_option(kind, edit)
    }

    /// Lets `edit` change the options of this kind, each from its kind to its end. Returns true if
    /// it changed one.
    fn edit_option(&mut self, kind: u8, mut edit: impl FnMut(&mut [u8])) -> bool {
        let Some(transport) = self.tcp_offset() else {
            return false;
        };
        let mut options = &mut self.head[transport + 20..];
        let mut edited = false;
        while let Some(length) = first_length(options) {
            let (option, rest) = options.split_at_mut(length);
            if option[0] == kind {
                let before = option.to_vec();
                edit(option);
                edited |= *option != before[..];
            }
            options = rest;
        }
        if edited {
            self.settle_transport_checksum();
        }
        edited
    }
}

fn count_down_v4(header: &mut [u8]) -> bool {
    let (before, checksum) = (read_u16(header, 8), read_u16(header, 10));
    if !count_down(&mut header[8]) {
        return false;
    }
    // RFC 1624, equation 3.
    let sum = ChecksumSum::default()
        .add_word(!checksum)
        .add_word(!before)
        .add_word(read_u16(header, 8));
    header[10..12].copy_from_slice(&sum.to_checksum().to_be_bytes());
    true
}

fn count_down(hops: &mut u8) -> bool {
    let goes_on = *hops > 1;
    *hops -= u8::from(goes_on);
    goes_on
}

/// An option cannot be cut out without moving those behind it, so it becomes padding.
fn blank_option(option: &mut [u8]) {
    option.fill(NO_OPERATION);
}

/// A number of 16 bits; in a malformed option it may be shorter or longer, and stays.
fn clamp_field(field: &mut [u8], most: ByteCount) {
    if let Ok(bytes) = <[u8; 2]>::try_from(&*field) {
        let clamped = u64::from(u16::from_be_bytes(bytes)).min(most.get());
        field.copy_from_slice(&(clamped as u16).to_be_bytes());
    }
}
