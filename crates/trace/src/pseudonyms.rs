//! Addresses in place of others, by a key that is not kept.

use std::collections::HashMap;

use fullpipe_wire::Pseudonyms;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// Bytes of the longest address.
const MAX_ADDRESS: usize = 16;

/// Addresses that are remembered, since each costs some microseconds.
const MAX_REMEMBERED: usize = 1 << 16;

/// Rounds of the permutation, as in FF1 (NIST SP 800-38G, 5.1).
const ROUNDS: u8 = 10;

/// An address with its length.
type Address = (u8, [u8; MAX_ADDRESS]);

/// Permutes the addresses of each length by Feistel's network, whose rounds are HMAC-SHA-256 with a
/// random key.
pub(crate) struct RandomPseudonyms {
    keyed: Hmac<Sha256>,
    remembered: HashMap<Address, [u8; MAX_ADDRESS]>,
}

impl RandomPseudonyms {
    /// Returns pseudonyms by this key, which must not be kept elsewhere.
    pub(crate) fn new(key: [u8; 32]) -> Self {
        // A key may have any length.
        let keyed = Hmac::new_from_slice(&key)
            .unwrap_or_else(|_| unreachable!("HMAC takes keys of any length"));
        Self {
            keyed,
            remembered: HashMap::new(),
        }
    }

    fn hash_parts(&self, parts: &[&[u8]]) -> [u8; 32] {
        let mut hash = self.keyed.clone();
        for part in parts {
            hash.update(part);
        }
        hash.finalize().into_bytes().into()
    }

    fn permute_address(&self, address: &mut [u8]) {
        let half = address.len() / 2;
        for round in 0..ROUNDS {
            let (left, right) = address.split_at_mut(half);
            let mask = self.hash_parts(&[&[half as u8, round], right]);
            left.iter_mut()
                .zip(mask)
                .for_each(|(byte, mask)| *byte ^= mask);
            left.swap_with_slice(right);
        }
    }
}

impl Pseudonyms for RandomPseudonyms {
    /// Loopback, multicast, broadcast and addresses of zeros stay as they are; no other address
    /// becomes one of them.
    fn replace_address(&mut self, address: &mut [u8]) {
        if is_special(address) || address.len() > MAX_ADDRESS {
            return;
        }
        let mut key = (address.len() as u8, [0; MAX_ADDRESS]);
        key.1[..address.len()].copy_from_slice(address);
        if let Some(known) = self.remembered.get(&key) {
            address.copy_from_slice(&known[..address.len()]);
            return;
        }
        // Walking on until it is no special one keeps the permutation one of the others.
        self.permute_address(address);
        while is_special(address) {
            self.permute_address(address);
        }
        if self.remembered.len() >= MAX_REMEMBERED {
            self.remembered.clear();
        }
        let mut value = [0; MAX_ADDRESS];
        value[..address.len()].copy_from_slice(address);
        self.remembered.insert(key, value);
    }

    fn digest_bytes(&mut self, bytes: &[u8]) -> u16 {
        let hash = self.hash_parts(&[&[u8::MAX], bytes]);
        u16::from_be_bytes([hash[0], hash[1]])
    }
}

/// Returns true for an address that names no single host of a network.
fn is_special(address: &[u8]) -> bool {
    match *address {
        // Network zero, loopback, multicast, reserved and broadcast (RFC 6890, 2.2.2).
        [first, _, _, _] => matches!(first, 0 | 127 | 224..),
        [0, 0, 0, 0, 0, 0] => true,
        // Groups (IEEE 802, 8.2.2).
        [first, _, _, _, _, _] => first & 1 != 0,
        // Unspecified, loopback, multicast (RFC 4291, 2.4).
        [ref zeros @ .., last] if address.len() == 16 => {
            zeros[0] == 0xFF || (last <= 1 && zeros.iter().all(|byte| *byte == 0))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn replaced(names: &mut RandomPseudonyms, address: u32) -> u32 {
        let mut bytes = address.to_be_bytes();
        names.replace_address(&mut bytes);
        u32::from_be_bytes(bytes)
    }

    #[test]
    fn different_addresses_get_different_ones_and_equal_ones_the_same() {
        let mut names = RandomPseudonyms::new([7; 32]);
        let first: Vec<u32> = (0..2_000)
            .map(|number| replaced(&mut names, 0x0A00_0000 + number))
            .collect();
        assert_eq!(first.iter().collect::<HashSet<_>>().len(), first.len());
        assert!(
            first
                .iter()
                .all(|address| !is_special(&address.to_be_bytes()))
        );
        assert_eq!(replaced(&mut names, 0x0A00_0000), first[0]);
        names.remembered.clear();
        assert_eq!(
            replaced(&mut names, 0x0A00_0000),
            first[0],
            "also one that was forgotten"
        );
    }

    #[test]
    fn addresses_that_name_no_host_stay() {
        let mut names = RandomPseudonyms::new([8; 32]);
        let loopback = std::net::Ipv6Addr::LOCALHOST.octets();
        let special: [&[u8]; 6] = [
            &[127, 0, 0, 1],
            &[239, 1, 2, 3],
            &[0; 6],
            &[0xFF; 6],
            &[1, 0, 0x5E, 0, 0, 1],
            &loopback,
        ];
        for address in special {
            let mut bytes = address.to_vec();
            names.replace_address(&mut bytes);
            assert_eq!(bytes, address);
        }
        let mut host = [0x52, 0x54, 0, 1, 2, 3];
        names.replace_address(&mut host);
        assert!(host != [0x52, 0x54, 0, 1, 2, 3] && host[0] & 1 == 0);
    }

    #[test]
    fn another_key_gives_other_addresses() {
        let of = |key: u8| {
            let mut address = std::net::Ipv6Addr::new(0x2001, 0xDB8, 0, 0, 0, 0, 0, 1).octets();
            RandomPseudonyms::new([key; 32]).replace_address(&mut address);
            address
        };
        assert_ne!(of(1), of(2));
    }
}
