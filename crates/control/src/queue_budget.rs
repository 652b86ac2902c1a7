//! The budget of kernel memory in which servers keep what clients do not take.
//!
//! The memory of TCP is one for the whole host (`net.ipv4.tcp_mem`): who lets a server fill it, by
//! asking for data and reading nothing, slows down every other connection. What moves is not
//! counted, however much is on its way: only the queues of connections whose other ends have
//! stopped to acknowledge, or to read.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use fullpipe_record::{SocketMemory, TcpInfo};
use fullpipe_sys::{lock, socket_memory, tcp_info};
use fullpipe_units::{ByteCount, Span};

use crate::network::{AddressPrefix, client_networks};

/// Bytes for one client where the host has plenty of memory.
const MAX_OF_CLIENT: ByteCount = ByteCount::from_mib(64);

/// Bytes for all clients where the host does not say how much memory TCP may take.
const USUAL_TOTAL: ByteCount = ByteCount::from_mib(128);

/// Time in which a part of what waits for a connection must move, on a path with a round trip of up
/// to a quarter of it; if it does not, all of that counts.
const STALLED_AFTER: Span = Span::from_secs(2);

/// That part is one of so many. A queue that takes longer than half a minute is a store.
const MIN_PART: u64 = 16;

/// Time without any progress after which it counts for all clients together where the other end
/// says itself that it has no room: no loss and no path explains that.
const BLOCKED_AFTER: Span = Span::from_millis(500);

/// Time between two snapshots of a connection.
pub const QUEUE_INTERVAL: Duration = Duration::from_millis(250);

/// A snapshot of a connection and of what waits for its other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QueueSample {
    /// Bytes that the other end has acknowledged, or that have arrived from it.
    pub carried: ByteCount,
    /// Bytes in the queues of the socket.
    pub queued: ByteCount,
    /// Smoothed round-trip time.
    pub rtt: Span,
    /// True if the window of the other end takes no segment.
    pub is_closed: bool,
}

impl QueueSample {
    /// Returns the snapshot of a connection on which this end sends, which holds this memory.
    pub fn from_sender(info: &TcpInfo, memory: &SocketMemory) -> Self {
        Self {
            carried: info.bytes_acked.unwrap_or_default(),
            queued: memory.wmem_queued,
            rtt: info.rtt.unwrap_or_default(),
            is_closed: info
                .snd_wnd
                .zip(info.snd_mss)
                .is_some_and(|(window, segment)| window < segment),
        }
    }

    /// Returns the snapshot of a socket on which this end sends.
    ///
    /// # Errors
    /// Fails as `getsockopt` does.
    pub fn from_socket(socket: impl AsFd) -> io::Result<Self> {
        Ok(Self::from_sender(
            &tcp_info(&socket)?,
            &socket_memory(&socket)?,
        ))
    }
}

/// Bytes that wait in the kernel for ends that do not take them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StalledBytes {
    /// Those of connections that have hardly moved for two seconds and four round trips.
    pub lasting: ByteCount,
    /// Those, and those of connections whose other ends have closed their windows for half a
    /// second.
    pub blocked: ByteCount,
}

impl StalledBytes {
    /// Returns so many bytes of connections that have hardly moved for long.
    pub const fn from_lasting(lasting: ByteCount) -> Self {
        Self {
            lasting,
            blocked: lasting,
        }
    }

    /// Returns the sum of both.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            lasting: self.lasting + other.lasting,
            blocked: self.blocked + other.blocked,
        }
    }

    fn minus(self, other: Self) -> Self {
        Self {
            lasting: self.lasting.saturating_sub(other.lasting),
            blocked: self.blocked.saturating_sub(other.blocked),
        }
    }
}

/// The progress of one connection, by the snapshots so far.
#[derive(Debug, Clone, Copy, Default)]
pub struct QueueWatch {
    /// Bytes that were carried at last, and when they last grew.
    carried: ByteCount,
    grown: Span,
    /// The same when a [`MIN_PART`] of the queue had moved, or it began.
    moved: ByteCount,
    moved_at: Span,
    queued: ByteCount,
}

impl QueueWatch {
    /// Records a snapshot of the time `at`, and returns the bytes that wait for an end that does
    /// not take them.
    pub fn follow(&mut self, at: Span, sample: &QueueSample) -> StalledBytes {
        if sample.carried > self.carried {
            (self.carried, self.grown) = (sample.carried, at);
        }
        let is_new = std::mem::replace(&mut self.queued, sample.queued) == ByteCount::ZERO;
        if is_new || self.carried.saturating_sub(self.moved) * MIN_PART >= sample.queued {
            (self.moved, self.moved_at) = (self.carried, at);
        }
        let is_stalled = at.saturating_sub(self.moved_at) >= STALLED_AFTER.max(sample.rtt * 4);
        let since = self.grown.max(self.moved_at);
        let is_blocked =
            is_stalled || sample.is_closed && at.saturating_sub(since) >= BLOCKED_AFTER;
        StalledBytes {
            lasting: sample.queued * u64::from(is_stalled),
            blocked: sample.queued * u64::from(is_blocked),
        }
    }

    /// Returns the time without any progress up to `at`.
    pub fn silence(&self, at: Span) -> Span {
        at.saturating_sub(self.grown)
    }
}

/// Limits of the bytes in queues that do not move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueLimits {
    /// Of one client: an IPv4 address, or a /64 network of IPv6. Wider networks of IPv6 may have
    /// twice as much (/56) or four times (/48).
    pub client: ByteCount,
    /// Of all clients together, which includes what is only blocked: beyond it, others of this host
    /// suffer.
    pub total: ByteCount,
}

impl QueueLimits {
    /// Returns the limits for a host whose `net.ipv4.tcp_mem` is `tcp_mem`, three numbers of pages
    /// of `page` bytes: in all an eighth of the second, above which the kernel saves memory at the
    /// cost of every connection; for a client half of that, but 64 MiB at most.
    pub fn from_tcp_mem(tcp_mem: &str, page: ByteCount) -> Self {
        let pressure = tcp_mem
            .split_whitespace()
            .nth(1)
            .and_then(|pages| pages.parse::<u64>().ok());
        let total = pressure.map_or(USUAL_TOTAL, |pages| {
            ByteCount::new(page.get().saturating_mul(pages) / 8)
        });
        Self {
            client: MAX_OF_CLIENT.min(ByteCount::new(total.get() / 2)),
            total,
        }
    }

    /// Returns the limit for which the user of `share`, who has `own` bytes, must end.
    fn exceeded_limit(
        &self,
        users: &Users,
        share: &QueueShare,
        own: StalledBytes,
    ) -> Option<QueueExcess> {
        let all = [users.all.blocked, self.total];
        if users.must_end(all, (own.blocked, share.number), |user| user.bytes.blocked) {
            return Some(QueueExcess {
                own: own.blocked,
                whose: "all clients",
                limit: self.total,
            });
        }
        networks_of(share.client).find_map(|(network, times)| {
            let limit = self.client * u64::from(times);
            let all = [users.lasting_of(network), limit];
            let must_end = users.must_end(all, (own.lasting, share.number), |user| {
                user.client
                    .filter(|client| network.contains_address(*client))
                    .map_or(ByteCount::ZERO, |_| user.bytes.lasting)
            });
            must_end.then_some(QueueExcess {
                own: own.lasting,
                whose: "a client",
                limit,
            })
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
    users: Mutex<Users>,
    /// The number of the next user.
    next: AtomicU64,
}

/// The users of a budget that have bytes in it, with sums: there may be thousands of them.
#[derive(Debug, Default)]
struct Users {
    of_each: HashMap<u64, QueueUser>,
    all: StalledBytes,
    lasting: HashMap<AddressPrefix, ByteCount>,
}

/// A test, a copy or a relayed connection.
#[derive(Debug)]
struct QueueUser {
    client: Option<IpAddr>,
    bytes: StalledBytes,
}

impl Users {
    /// Replaces what a user has.
    fn set(&mut self, number: u64, client: Option<IpAddr>, bytes: StalledBytes) {
        let user = QueueUser { client, bytes };
        let is_user = bytes != StalledBytes::default();
        let before = if is_user {
            self.of_each.insert(number, user)
        } else {
            self.of_each.remove(&number)
        };
        let before = before.map_or_else(StalledBytes::default, |user| user.bytes);
        if bytes == before {
            return;
        }
        self.all = self.all.plus(bytes).minus(before);
        for (network, _) in networks_of(client) {
            let lasting = (self.lasting_of(network) + bytes.lasting).saturating_sub(before.lasting);
            match lasting {
                ByteCount::ZERO => self.lasting.remove(&network),
                _ => self.lasting.insert(network, lasting),
            };
        }
    }

    /// Returns true if `all` bytes exceed the `limit` even once those of users have gone who have
    /// more than `own` user, or as many and came later.
    fn must_end(
        &self,
        [all, limit]: [ByteCount; 2],
        own: (ByteCount, u64),
        bytes_of: impl Fn(&QueueUser) -> ByteCount,
    ) -> bool {
        if all <= limit || own.0 == ByteCount::ZERO {
            return false;
        }
        let ahead = self
            .of_each
            .iter()
            .map(|(number, user)| (bytes_of(user), *number))
            .filter(|other| *other > own)
            .map(|(bytes, _)| bytes)
            .sum();
        all.saturating_sub(ahead) > limit
    }

    fn lasting_of(&self, network: AddressPrefix) -> ByteCount {
        self.lasting.get(&network).copied().unwrap_or_default()
    }
}

fn networks_of(client: Option<IpAddr>) -> impl Iterator<Item = (AddressPrefix, u32)> {
    client.into_iter().flat_map(client_networks)
}

/// One user's part of a budget, until it is dropped.
#[derive(Debug)]
pub struct QueueShare {
    budget: Arc<QueueBudget>,
    number: u64,
    client: Option<IpAddr>,
}

/// The reason for which a user must end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "its client does not take {own} that wait in this host's kernel; {whose} may leave {limit} there"
)]
pub struct QueueExcess {
    own: ByteCount,
    whose: &'static str,
    limit: ByteCount,
}

impl QueueBudget {
    /// Returns an empty budget.
    pub fn new(limits: QueueLimits) -> Arc<Self> {
        Arc::new(Self {
            limits,
            users: Mutex::default(),
            next: AtomicU64::new(0),
        })
    }

    /// Returns the budget of all servers of this process.
    pub fn of_this_process() -> Arc<Self> {
        static BUDGET: OnceLock<Arc<QueueBudget>> = OnceLock::new();
        Arc::clone(BUDGET.get_or_init(|| Self::new(QueueLimits::from_this_host())))
    }

    /// Lets a user with a client at this address take part; without one it counts only for all.
    pub fn join(self: &Arc<Self>, client: Option<IpAddr>) -> QueueShare {
        QueueShare {
            budget: Arc::clone(self),
            number: self.next.fetch_add(1, Ordering::Relaxed),
            client,
        }
    }

    fn lock_users(&self) -> MutexGuard<'_, Users> {
        lock(&self.users)
    }
}

impl QueueShare {
    /// Records how many bytes this user's connections keep in queues that do not move.
    ///
    /// # Errors
    /// Fails if the user must end and drop its connections: a limit is exceeded, even without the
    /// users that have more.
    pub fn record_bytes(&self, bytes: StalledBytes) -> Result<(), QueueExcess> {
        let mut users = self.budget.lock_users();
        users.set(self.number, self.client, bytes);
        if bytes == StalledBytes::default() {
            return Ok(());
        }
        let Some(excess) = self.budget.limits.exceeded_limit(&users, self, bytes) else {
            return Ok(());
        };
        // It gives them back, so that no other need end for the same bytes.
        users.set(self.number, self.client, StalledBytes::default());
        Err(excess)
    }
}

impl Drop for QueueShare {
    fn drop(&mut self) {
        self.budget
            .lock_users()
            .set(self.number, self.client, StalledBytes::default());
    }
}

#[cfg(test)]
mod tests;
