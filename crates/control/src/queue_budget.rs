//! The budget of kernel memory in which servers keep what clients do not take.
//!
//! The memory of TCP is one for the whole host (`net.ipv4.tcp_mem`): who lets a server fill it, by asking for data and
//! reading nothing, slows down every other connection. What moves is not counted, however much is on its way: only the
//! queues of connections whose other ends have stopped to acknowledge, or to read.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use fullpipe_units::ByteCount;

use crate::network::client_networks;

/// Bytes for one client where the host has plenty of memory.
const MAX_OF_CLIENT: ByteCount = ByteCount::from_mib(64);

/// Bytes for all clients where the host does not say how much memory TCP may take.
const USUAL_TOTAL: ByteCount = ByteCount::from_mib(128);

/// Limits of the bytes in queues that do not move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueLimits {
    /// Of one client: an IPv4 address, or a /64 network of IPv6. Wider networks of IPv6 may have twice as much (/56) or
    /// four times (/48).
    pub client: ByteCount,
    /// Of all clients together.
    pub total: ByteCount,
}

impl QueueLimits {
    /// Returns the limits for a host whose `net.ipv4.tcp_mem` is `tcp_mem`, three numbers of pages of `page` bytes: in
    /// all an eighth of the second, above which the kernel saves memory at the cost of every connection; for a client
    /// half of that, but 64 MiB at most.
    pub fn from_tcp_mem(tcp_mem: &str, page: ByteCount) -> Self {
        let pressure = tcp_mem.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok());
        let total = pressure.map_or(USUAL_TOTAL, |pages| ByteCount::new(page.get().saturating_mul(pages) / 8));
        Self { client: MAX_OF_CLIENT.min(ByteCount::new(total.get() / 2)), total }
    }

    /// Returns the limit that `users` exceed, if the one at `client` must end for it, which has `own` bytes.
    fn excess(&self, users: &HashMap<u64, User>, client: IpAddr, own: ByteCount) -> Option<QueueExcess> {
        if own == ByteCount::ZERO {
            return None;
        }
        if is_excessive(users, own, self.total, |_| true) {
            return Some(QueueExcess { own, whose: "all clients", limit: self.total });
        }
        client_networks(client).find_map(|(network, share)| {
            let limit = self.client * u64::from(share);
            let exceeds = is_excessive(users, own, limit, |user| network.contains(user.client));
            exceeds.then_some(QueueExcess { own, whose: "a client", limit })
        })
    }

    fn from_this_host() -> Self {
        let tcp_mem = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_mem").unwrap_or_default();
        Self::from_tcp_mem(&tcp_mem, ByteCount::new(rustix::param::page_size() as u64))
    }
}

/// The bytes in queues that do not move, by whom they belong to.
#[derive(Debug)]
pub struct QueueBudget {
    limits: QueueLimits,
    users: Mutex<HashMap<u64, User>>,
    /// The number of the next user.
    next: AtomicU64,
}

/// A test, a copy or a relayed connection.
#[derive(Debug)]
struct User {
    client: IpAddr,
    bytes: ByteCount,
}

/// One user's part of a budget, until it is dropped.
#[derive(Debug)]
pub struct QueueShare {
    budget: Arc<QueueBudget>,
    number: u64,
}

/// The reason for which a user must end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("its client does not take {own} that wait in this host's kernel; {whose} may leave {limit} there")]
pub struct QueueExcess {
    own: ByteCount,
    whose: &'static str,
    limit: ByteCount,
}

impl QueueBudget {
    /// Returns an empty budget.
    pub fn new(limits: QueueLimits) -> Arc<Self> {
        Arc::new(Self { limits, users: Mutex::default(), next: AtomicU64::new(0) })
    }

    /// Returns the budget of all servers of this process.
    pub fn of_this_process() -> Arc<Self> {
        static BUDGET: OnceLock<Arc<QueueBudget>> = OnceLock::new();
        Arc::clone(BUDGET.get_or_init(|| Self::new(QueueLimits::from_this_host())))
    }

    /// Lets a user with a client at this address take part.
    pub fn join(self: &Arc<Self>, client: IpAddr) -> QueueShare {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.lock().insert(number, User { client, bytes: ByteCount::ZERO });
        QueueShare { budget: Arc::clone(self), number }
    }

    /// Returns the bytes of all users.
    pub fn used_bytes(&self) -> ByteCount {
        self.lock().values().map(|user| user.bytes).sum()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, User>> {
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl QueueShare {
    /// Records how many bytes this user's connections keep in queues that do not move.
    ///
    /// # Errors
    /// Fails if the user must end and drop its connections: a limit is exceeded, and no other user within it has more.
    pub fn record(&self, bytes: ByteCount) -> Result<(), QueueExcess> {
        let mut users = self.budget.lock();
        let Some(user) = users.get_mut(&self.number) else { return Ok(()) };
        user.bytes = bytes;
        let client = user.client;
        let Some(excess) = self.budget.limits.excess(&users, client, bytes) else { return Ok(()) };
        // It gives them back, so that no other need end for the same bytes.
        users.entry(self.number).and_modify(|user| user.bytes = ByteCount::ZERO);
        Err(excess)
    }
}

impl Drop for QueueShare {
    fn drop(&mut self) {
        self.budget.lock().remove(&self.number);
    }
}

/// Returns true if the users that are `meant` exceed `limit` together, and none of them has more than `own`.
fn is_excessive(users: &HashMap<u64, User>, own: ByteCount, limit: ByteCount, meant: impl Fn(&User) -> bool) -> bool {
    let bytes = || users.values().filter(|user| meant(user)).map(|user| user.bytes);
    bytes().sum::<ByteCount>() > limit && bytes().all(|other| other <= own)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: ByteCount = ByteCount::from_mib(1);

    fn budget(client: u64, total: u64) -> Arc<QueueBudget> {
        QueueBudget::new(QueueLimits { client: MIB * client, total: MIB * total })
    }

    fn join(budget: &Arc<QueueBudget>, address: &str) -> QueueShare {
        budget.join(address.parse().unwrap())
    }

    #[test]
    fn the_limits_follow_from_the_memory_that_tcp_may_take() {
        let page = ByteCount::from_kib(4);
        let usual = QueueLimits::from_tcp_mem("287898\t383867\t575796\n", page);
        assert_eq!((usual.client, usual.total.get()), (MIB * 64, 383_867 * 512));
        let small = QueueLimits::from_tcp_mem("5000 8192 10000", page);
        assert_eq!((small.client, small.total), (MIB * 2, MIB * 4));
        assert_eq!(QueueLimits::from_tcp_mem("", page).total, USUAL_TOTAL);
    }

    #[test]
    fn the_user_with_most_bytes_ends_first_and_only_until_the_rest_is_within_the_limit() {
        let budget = budget(64, 1_000);
        let [small, large, other] = ["192.0.2.1", "::ffff:192.0.2.1", "192.0.2.2"].map(|at| join(&budget, at));
        assert_eq!(large.record(MIB * 50), Ok(()));
        assert_eq!(other.record(MIB * 60), Ok(()), "another client has its own limit");
        assert_eq!(small.record(MIB * 20), Ok(()), "the other one has more");
        let why = large.record(MIB * 50).unwrap_err().to_string();
        assert_eq!(
            why,
            "its client does not take 50 MiB that wait in this host's kernel; a client may leave 64 MiB there"
        );
        drop(large);
        assert_eq!(small.record(MIB * 20), Ok(()));
        assert_eq!(budget.used_bytes(), MIB * 80);
    }

    #[test]
    fn many_clients_are_held_to_the_limit_of_all() {
        let budget = budget(64, 100);
        let shares: Vec<QueueShare> = (1..=10).map(|last| join(&budget, &format!("192.0.2.{last}"))).collect();
        let ended = shares.iter().filter(|share| share.record(MIB * 30).is_err()).count();
        assert_eq!(ended, 7, "those that exceed the limit, and no more");
    }

    #[test]
    fn many_networks_of_one_site_are_held_to_the_limit_of_the_site() {
        let budget = budget(10, 1_000);
        let shares: Vec<QueueShare> =
            (0..8).map(|network| join(&budget, &format!("2001:db8:0:{network}::1"))).collect();
        let results: Vec<bool> = shares.iter().map(|share| share.record(MIB * 9).is_ok()).collect();
        assert_eq!(results[..3], [true, true, false], "eight /64 are of one /56, which may leave 20 MiB");
    }

    #[test]
    fn what_moves_is_not_counted() {
        let budget = budget(1, 1);
        let [stalled, moving] = ["192.0.2.1"; 2].map(|at| join(&budget, at));
        assert!(stalled.record(MIB * 2).is_err() && moving.record(ByteCount::ZERO).is_ok());
    }
}
