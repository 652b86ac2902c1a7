//! Bytes that clients of the web may move in a time. Time is an argument.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use fullpipe_control::{AddressPrefix, client_networks};
use fullpipe_units::ByteCount;

/// Time in which a client may move its bytes.
const HOUR: Duration = Duration::from_hours(1);

/// Time in which all clients together may move theirs.
const DAY: Duration = Duration::from_hours(24);

/// Networks whose bytes are kept at most; then those of one that moved least are forgotten.
const MAX_NETWORKS: usize = 100_000;

/// Bytes that transfers of the web may move, in both directions together; `None` for no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WebQuotas {
    /// Of one IPv4 address, or one /64 network of IPv6, in an hour; a /56 has twice and a /48 four
    /// times as much.
    pub client: Option<ByteCount>,
    /// Of all clients in a day.
    pub total: Option<ByteCount>,
}

/// The bytes of a time that begins with the first transfer.
#[derive(Clone, Copy)]
struct Account {
    ends: Instant,
    bytes: ByteCount,
}

impl Account {
    /// Adds `bytes` at `now`; begins anew if its time of `length` is over.
    fn add_bytes(&mut self, bytes: ByteCount, now: Instant, length: Duration) {
        if now >= self.ends {
            *self = Self {
                ends: now + length,
                bytes: ByteCount::ZERO,
            };
        }
        self.bytes += bytes;
    }

    /// Returns the time until it begins anew, if its bytes are used up.
    fn wait(self, most: ByteCount, now: Instant) -> Option<Duration> {
        let left = self.ends.saturating_duration_since(now);
        (self.bytes >= most && !left.is_zero()).then_some(left)
    }
}

/// The bytes that were moved lately.
pub(super) struct MovedBytes {
    quotas: WebQuotas,
    all: Account,
    networks: HashMap<AddressPrefix, Account>,
}

impl MovedBytes {
    pub(super) fn new(quotas: WebQuotas, now: Instant) -> Self {
        let all = Account {
            ends: now,
            bytes: ByteCount::ZERO,
        };
        Self {
            quotas,
            all,
            networks: HashMap::new(),
        }
    }

    /// Adds `bytes` of a `client`.
    pub(super) fn add_bytes(&mut self, client: IpAddr, bytes: ByteCount, now: Instant) {
        if self.quotas.total.is_some() {
            self.all.add_bytes(bytes, now, DAY);
        }
        if self.quotas.client.is_none() {
            return;
        }
        for (network, _) in client_networks(client) {
            if self.networks.len() >= MAX_NETWORKS && !self.networks.contains_key(&network) {
                self.forget_networks(now);
            }
            let own = self.networks.entry(network).or_insert(Account {
                ends: now,
                bytes: ByteCount::ZERO,
            });
            own.add_bytes(bytes, now, HOUR);
        }
    }

    /// Returns the time for which a `client` may move no more; `None` if it may.
    pub(super) fn wait(&self, client: IpAddr, now: Instant) -> Option<Duration> {
        let all = self.quotas.total.and_then(|most| self.all.wait(most, now));
        let own = client_networks(client).filter_map(|(network, share)| {
            let most = self.quotas.client? * u64::from(share);
            self.networks.get(&network)?.wait(most, now)
        });
        own.chain(all).max()
    }

    /// Forgets the networks whose time is over; one that moved least if there are none.
    fn forget_networks(&mut self, now: Instant) {
        self.networks.retain(|_, account| now < account.ends);
        let least = self
            .networks
            .iter()
            .min_by_key(|(_, account)| account.bytes);
        if let Some(network) = least.map(|(network, _)| *network)
            && self.networks.len() >= MAX_NETWORKS
        {
            self.networks.remove(&network);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEGABYTE: ByteCount = ByteCount::new(1_000_000);

    fn moved(client: Option<ByteCount>, total: Option<ByteCount>, now: Instant) -> MovedBytes {
        MovedBytes::new(WebQuotas { client, total }, now)
    }

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_client_waits_until_its_hour_is_over_and_others_do_not() {
        let now = Instant::now();
        let mut moved = moved(Some(MEGABYTE), None, now);
        let [one, same, neighbour, other] =
            ["2001:db8::1", "2001:db8::2", "2001:db8:0:1::1", "192.0.2.1"].map(address);
        moved.add_bytes(one, MEGABYTE - ByteCount::new(1), now);
        assert_eq!(moved.wait(one, now), None);
        let later = now + HOUR / 3;
        moved.add_bytes(same, ByteCount::new(1), later);
        assert_eq!(moved.wait(one, later), Some(HOUR * 2 / 3));
        assert_eq!(moved.wait(other, later), None);
        assert_eq!(moved.wait(neighbour, later), None);
        moved.add_bytes(neighbour, MEGABYTE, later);
        let third = address("2001:db8:0:2::1");
        assert_eq!(moved.wait(third, later), Some(HOUR * 2 / 3));
        assert_eq!(moved.wait(one, now + HOUR), None);
        moved.add_bytes(one, ByteCount::new(1), now + HOUR);
        assert_eq!(moved.wait(one, now + HOUR), None);
    }

    #[test]
    fn all_wait_until_the_day_is_over() {
        let now = Instant::now();
        let mut moved = moved(Some(MEGABYTE), Some(MEGABYTE * 2), now);
        let clients = ["192.0.2.1", "192.0.2.2", "192.0.2.3"].map(address);
        for client in &clients[..2] {
            moved.add_bytes(*client, MEGABYTE, now);
        }
        for client in clients {
            assert_eq!(moved.wait(client, now), Some(DAY));
            assert_eq!(moved.wait(client, now + DAY), None);
        }
    }

    #[test]
    fn the_networks_that_are_kept_are_bounded() {
        let now = Instant::now();
        let mut moved = moved(Some(MEGABYTE), None, now);
        let full = address("192.0.2.1");
        moved.add_bytes(full, MEGABYTE, now);
        for number in 0..=MAX_NETWORKS as u32 {
            let client = std::net::Ipv4Addr::from_bits(number).into();
            moved.add_bytes(client, ByteCount::new(1), now);
        }
        assert_eq!(moved.networks.len(), MAX_NETWORKS);
        assert_eq!(moved.wait(full, now), Some(HOUR));
    }
}
