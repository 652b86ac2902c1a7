//! Admission of clients: the networks that may connect, and quotas for each address and in total.
//! There are no sockets and no clock here.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use fullpipe_control::{
    AddressPrefix, PendingClients, PendingPlace, QueueBudget, QueueShare, StalledBytes,
    available_quota, client_networks, client_prefix, is_admitted,
};
use fullpipe_iperf::{ErrorNumber, TestRefusal};
use fullpipe_record::Request;
use fullpipe_units::{BitRate, ByteCount, Span, count_noun};

/// Limits of what may be under way at once, for one address or in total.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdmissionQuota {
    /// Pending connections: those that have not been classified yet.
    pub pending: u32,
    /// Tests under way.
    pub tests: u32,
    /// Streams of all tests.
    pub streams: u32,
    /// Rate of all tests together, both as requested and as measured; `None` for no limit.
    pub rate: Option<BitRate>,
}

/// The limits of a server. The defaults are ample even for many users behind one address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerLimits {
    /// Networks that may connect; all if empty.
    pub allow: Vec<AddressPrefix>,
    /// Networks that may not connect, even if `allow` contains them.
    pub deny: Vec<AddressPrefix>,
    /// Limits of one client prefix: one IPv4 address, or one /64 network of IPv6.
    pub address: AdmissionQuota,
    /// Limits of all clients together.
    pub total: AdmissionQuota,
    /// Maximum duration of a test; `None` for that of the protocol.
    pub duration: Option<Span>,
    /// Maximum bytes of a test, in both directions together; `None` for no limit.
    pub bytes: Option<ByteCount>,
}

impl Default for ServerLimits {
    /// Returns 64 tests, 256 streams and 128 pending connections for each address, and 1024 tests,
    /// 2048 streams and 4096 pending connections in total.
    fn default() -> Self {
        Self {
            allow: Vec::new(),
            deny: Vec::new(),
            address: AdmissionQuota {
                pending: 128,
                tests: 64,
                streams: 256,
                rate: None,
            },
            total: AdmissionQuota {
                pending: 4096,
                tests: 1024,
                streams: 2048,
                rate: None,
            },
            duration: None,
            bytes: None,
        }
    }
}

/// The reason for which a client is rejected before it can ask for anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClientRejection {
    /// The client's address is not allowed to connect.
    Denied,
    /// The client's address, or all clients together, have reached the quota of pending connections
    /// or of tests.
    QuotaExceeded,
    /// The client is one of iperf2, which this server does not serve.
    Iperf2,
    /// The client is one of iperf2 that asks the server to send datagrams.
    Iperf2Reverse,
    /// The client is not of a known kind, or did not send enough bytes in time to be classified.
    Unknown,
}

impl ClientRejection {
    /// Returns the reason as a clause that fits after "because".
    pub(super) const fn reason_text(self) -> &'static str {
        match self {
            Self::Denied => "its address is not allowed to connect",
            Self::QuotaExceeded => "the limit of pending connections or tests is reached",
            Self::Iperf2 => {
                "it is an iperf2 client, which this server does not serve: use iperf3 or fullpipe there"
            }
            Self::Iperf2Reverse => {
                "an iperf2 client asked the server to send datagrams, which is not offered"
            }
            Self::Unknown => "it is neither fullpipe nor iperf3 nor iperf2",
        }
    }
}

/// The admission control of a server. Whatever is admitted holds an [`AdmissionPermit`].
pub(super) struct Admission {
    limits: ServerLimits,
    /// Number of connections, of any kind, for which there are descriptors.
    max_connections: u32,
    /// The kernel memory that stalled loads hold.
    queues: Arc<QueueBudget>,
    pending: PendingClients,
    state: Rc<RefCell<AdmissionState>>,
}

/// A connection that is not classified yet.
#[derive(Debug)]
pub(super) struct PendingConnection {
    pub permit: AdmissionPermit,
    /// The place of the connection, which a newcomer may take.
    pub place: PendingPlace,
}

/// A share of the quotas that is in use; dropping it releases the share.
#[derive(Debug)]
pub(super) struct AdmissionPermit {
    state: Rc<RefCell<AdmissionState>>,
    client: IpAddr,
    client_prefix: u128,
    number: u64,
    usage: QuotaUsage,
}

/// The permits that are in use.
#[derive(Debug, Default)]
struct AdmissionState {
    total: QuotaUsage,
    prefixes: HashMap<u128, QuotaUsage>,
    /// Usage of the wider networks that may be of one site.
    sites: HashMap<AddressPrefix, QuotaUsage>,
    /// Number of permits granted so far.
    permits: u64,
    /// The loads under way, by the numbers of their permits.
    loads: HashMap<u64, AdmittedLoad>,
}

/// A load under way, as it was last measured.
#[derive(Debug)]
struct AdmittedLoad {
    client_prefix: u128,
    streams: u32,
    activity: LoadActivity,
    queues: QueueShare,
    /// True if it must end to make room for others.
    evicted: bool,
}

/// The recent activity of a load.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct LoadActivity {
    pub rate: BitRate,
    /// Time for which it has made hardly any progress.
    pub idle: Span,
    /// Bytes in the queues of streams that make no progress.
    pub stalled: StalledBytes,
}

/// Idle time after which a load may be evicted.
const MAX_IDLE: Span = Span::from_secs(10);

/// A usage of the quotas: of one permit, of a client prefix, or in total.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct QuotaUsage {
    pending: u32,
    tests: u32,
    streams: u32,
    rate: BitRate,
}

impl Admission {
    /// Returns the admission control of a server that may hold `max_connections`, of any kind.
    pub(super) fn new(limits: ServerLimits, max_connections: u32) -> Self {
        // How many there may be depends on the streams of admitted tests.
        let pending = PendingClients::new(usize::MAX, usize::MAX);
        Self {
            limits,
            max_connections,
            pending,
            queues: QueueBudget::of_this_process(),
            state: Rc::default(),
        }
    }

    pub(super) fn limits(&self) -> &ServerLimits {
        &self.limits
    }

    /// Returns true if `address` may connect.
    pub(super) fn is_allowed(&self, address: IpAddr) -> bool {
        is_admitted(address, &self.limits.allow, &self.limits.deny)
    }

    /// Admits a connection that is not classified yet. At most a quarter of all connections may be
    /// pending, which leaves room for tests; beyond that, another one loses its place. Connections
    /// that may be streams of admitted tests do not count.
    ///
    /// # Errors
    /// Fails if the address may not connect, or all that are pending keep their places.
    pub(super) fn admit_pending(
        &self,
        address: IpAddr,
        now: Instant,
    ) -> Result<PendingConnection, ClientRejection> {
        if !self.is_allowed(address) {
            return Err(ClientRejection::Denied);
        }
        let is_full = self.is_full_of_pending();
        let place = self
            .pending
            .admit_expecting(address, now, is_full, &|prefix| {
                let state = self.state.borrow();
                let own = state.prefixes.get(&prefix);
                own.map_or(0, |own| own.streams as usize)
            });
        let place = place.ok_or(ClientRejection::QuotaExceeded)?;
        let permit = self.grant_permit(
            address,
            QuotaUsage {
                pending: 1,
                ..QuotaUsage::default()
            },
        );
        Ok(PendingConnection { permit, place })
    }

    /// Returns true if another pending connection takes the place of one.
    pub(super) fn is_full_of_pending(&self) -> bool {
        let all = self.state.borrow().total;
        let max = self.max_pending().saturating_add(all.streams);
        self.pending.places_taken() >= max as usize || all.socket_count() >= self.max_connections
    }

    /// Returns the number of connections that may be pending besides streams of admitted tests.
    fn max_pending(&self) -> u32 {
        self.limits
            .total
            .pending
            .min((self.max_connections / 4).max(1))
    }

    /// Admits a UDP stream that a test waits for, until the test takes it.
    ///
    /// # Errors
    /// Fails if its client has as many as it may have.
    pub(super) fn admit_udp_stream(
        &self,
        address: IpAddr,
    ) -> Result<AdmissionPermit, ClientRejection> {
        let usage = QuotaUsage {
            pending: 1,
            ..QuotaUsage::default()
        };
        let (_, own) = self.usage_with(address, usage);
        let each = self
            .limits
            .address
            .pending
            .min((self.max_pending() / 4).max(1));
        if own.pending > each.saturating_add(own.streams) {
            return Err(ClientRejection::QuotaExceeded);
        }
        Ok(self.grant_permit(address, usage))
    }

    /// Returns true if `usage` leaves too few descriptors for pending connections.
    fn lacks_descriptors(&self, usage: QuotaUsage) -> bool {
        usage.tests.saturating_add(usage.streams) > self.max_connections - self.max_pending()
    }

    /// Admits a test of which only the cookie has been received. An eighth of the quota is reserved
    /// for addresses with few tests.
    ///
    /// # Errors
    /// Fails if a quota is used up.
    pub(super) fn admit_test(&self, address: IpAddr) -> Result<AdmissionPermit, ClientRejection> {
        let usage = QuotaUsage {
            tests: 1,
            ..QuotaUsage::default()
        };
        let (all, own) = self.usage_with(address, usage);
        let (total, each) = (&self.limits.total, &self.limits.address);
        let is_full = all.tests > available_quota(total.tests, own.tests, all.tests == 1)
            || self.exceeds_site(address, each.tests, own.tests, |usage| usage.tests + 1);
        if is_full || own.tests > each.tests || self.lacks_descriptors(all) {
            return Err(ClientRejection::QuotaExceeded);
        }
        Ok(self.grant_permit(address, usage))
    }

    /// Admits the load of a test.
    ///
    /// # Errors
    /// Fails if the load would exceed a limit; the error has iperf3's number for it.
    pub(super) fn admit_load(
        &self,
        address: IpAddr,
        request: &Request,
    ) -> Result<AdmissionPermit, TestRefusal> {
        self.check_size(request)?;
        let streams = u32::from(request.streams) * request.data_directions().len() as u32;
        let each = request.rate.map_or(0, BitRate::bps);
        let usage = QuotaUsage {
            streams,
            rate: BitRate::from_bps(each.saturating_mul(streams.into())),
            ..QuotaUsage::default()
        };
        let (all, own) = self.usage_with(address, usage);
        self.check_streams(address, streams, all, own)?;
        self.check_rate(all.rate, own.rate)?;
        let permit = self.grant_permit(address, usage);
        let load = AdmittedLoad {
            client_prefix: permit.client_prefix,
            streams,
            activity: LoadActivity::default(),
            queues: self.queues.join(Some(address)),
            evicted: false,
        };
        self.state.borrow_mut().loads.insert(permit.number, load);
        Ok(permit)
    }

    /// Records the recent activity of the load with this `permit`.
    ///
    /// # Errors
    /// Fails if the load must end: because it was evicted, because its client leaves too much in
    /// queues of the kernel, or because a limit of the rate is exceeded and no other load within
    /// that limit is faster.
    pub(super) fn record_activity(
        &self,
        permit: &AdmissionPermit,
        activity: LoadActivity,
    ) -> Result<(), TestRefusal> {
        let mut state = self.state.borrow_mut();
        let Some(load) = state.loads.get_mut(&permit.number) else {
            return Ok(());
        };
        load.activity = activity;
        if load.evicted {
            let why = format!(
                "it was idle for {} and is ended to make room for others",
                activity.idle
            );
            return Err(TestRefusal::new(ErrorNumber::BUSY, why));
        }
        load.queues
            .record_bytes(activity.stalled)
            .map_err(|excess| TestRefusal::new(ErrorNumber::BUSY, excess.to_string()))?;
        let (each, total) = (self.limits.address.rate, self.limits.total.rate);
        state.check_rates(each, activity.rate, "its address carries", |prefix| {
            prefix == permit.client_prefix
        })?;
        state.check_rates(total, activity.rate, "all tests carry", |_| true)
    }

    /// Evicts loads that were idle for [`MAX_IDLE`], the idlest first, until they free the given
    /// number of `streams`. Returns true if any load is ending, so that it is worth trying again.
    pub(super) fn evict_idle(&self, streams: u32) -> bool {
        let mut state = self.state.borrow_mut();
        let mut freed: u32 = state
            .loads
            .values()
            .filter(|load| load.evicted)
            .map(|load| load.streams)
            .sum();
        let mut idle: Vec<&mut AdmittedLoad> = state
            .loads
            .values_mut()
            .filter(|load| !load.evicted && load.activity.idle >= MAX_IDLE)
            .collect();
        idle.sort_unstable_by_key(|load| std::cmp::Reverse(load.activity.idle));
        for load in idle {
            if freed >= streams {
                break;
            }
            load.evicted = true;
            freed += load.streams;
        }
        freed > 0
    }

    /// Returns the number of tests under way.
    pub(super) fn test_count(&self) -> u32 {
        self.state.borrow().total.tests
    }

    /// Returns true if there is no test and no load.
    pub(super) fn is_idle(&self) -> bool {
        let all = self.state.borrow().total;
        all.tests == 0 && all.streams == 0
    }

    /// Returns the total usage and the usage of the client prefix of `address`, each with `more`
    /// added.
    fn usage_with(&self, address: IpAddr, more: QuotaUsage) -> (QuotaUsage, QuotaUsage) {
        let state = self.state.borrow();
        let own = state
            .prefixes
            .get(&client_prefix(address))
            .copied()
            .unwrap_or_default();
        (state.total.add_usage(more), own.add_usage(more))
    }

    fn grant_permit(&self, address: IpAddr, usage: QuotaUsage) -> AdmissionPermit {
        let client_prefix = client_prefix(address);
        let mut state = self.state.borrow_mut();
        state.total = state.total.add_usage(usage);
        let own = state.prefixes.entry(client_prefix).or_default();
        *own = own.add_usage(usage);
        for (site, _) in site_networks(address) {
            let used = state.sites.entry(site).or_default();
            *used = used.add_usage(usage);
        }
        state.permits += 1;
        AdmissionPermit {
            state: Rc::clone(&self.state),
            client: address,
            client_prefix,
            number: state.permits,
            usage,
        }
    }

    /// Fails if the test would be too long or too large. A test of a number of bytes has no
    /// duration that is known in advance.
    fn check_size(&self, request: &Request) -> Result<(), TestRefusal> {
        let duration = request.omit + request.duration;
        let why = match (self.limits.duration, self.limits.bytes, request.bytes) {
            (Some(max), _, None) if duration > max => {
                format!("a test of {duration} asked for; at most {max} is permitted")
            }
            (_, Some(max), Some(bytes)) if bytes > max => {
                format!("a test of {bytes} asked for; at most {max} is permitted")
            }
            _ => return Ok(()),
        };
        // iperf3 has no number for too many bytes; the one for a test that is too long comes
        // closest.
        Err(TestRefusal::new(ErrorNumber::MAX_DURATION, why))
    }

    /// Fails if there would be too many streams. A request that exceeds a quota by itself is
    /// invalid at any time; otherwise the server is busy.
    fn check_streams(
        &self,
        address: IpAddr,
        streams: u32,
        all: QuotaUsage,
        own: QuotaUsage,
    ) -> Result<(), TestRefusal> {
        let (each, total) = (self.limits.address.streams, self.limits.total.streams);
        if streams > each.min(total) {
            let why = format!(
                "{streams} streams asked for; the limits are {each} for an address and {total} in total"
            );
            return Err(TestRefusal::new(ErrorNumber::STREAMS, why));
        }
        if own.streams > each {
            let used = own.streams - streams;
            let why = format!(
                "{} asked for; its address uses {used} of the {each} that it may use",
                count_noun(streams, "stream")
            );
            return Err(TestRefusal::new(ErrorNumber::BUSY, why));
        }
        if self.exceeds_site(address, each, own.streams, |usage| usage.streams + streams) {
            let why = format!(
                "{} asked for; its network uses too many already",
                count_noun(streams, "stream")
            );
            return Err(TestRefusal::new(ErrorNumber::BUSY, why));
        }
        if all.streams > available_quota(total, own.streams, all.streams == streams)
            || self.lacks_descriptors(all)
        {
            let used = all.streams - streams;
            let why = format!(
                "{} asked for; all tests together use {used} of {total}",
                count_noun(streams, "stream")
            );
            return Err(TestRefusal::new(ErrorNumber::BUSY, why));
        }
        Ok(())
    }

    /// Returns true if a wider network of `address` would use more than its part of the quota
    /// `each`, where `used` counts with what is asked for. The address itself would use `own`.
    fn exceeds_site(
        &self,
        address: IpAddr,
        each: u32,
        own: u32,
        used: impl Fn(&QuotaUsage) -> u32,
    ) -> bool {
        let state = self.state.borrow();
        site_networks(address).any(|(site, share)| {
            let quota = each.saturating_mul(share);
            state
                .sites
                .get(&site)
                .is_some_and(|usage| used(usage) > available_quota(quota, own, false))
        })
    }

    fn check_rate(&self, all: BitRate, own: BitRate) -> Result<(), TestRefusal> {
        for (limit, rate, subject) in [
            (
                self.limits.address.rate,
                own,
                "with this test its address would carry",
            ),
            (
                self.limits.total.rate,
                all,
                "with this test all tests would carry",
            ),
        ] {
            if let Some(limit) = limit.filter(|limit| rate > *limit) {
                let why = format!("{subject} {rate}; {limit} is permitted");
                return Err(TestRefusal::new(ErrorNumber::TOTAL_RATE, why));
            }
        }
        Ok(())
    }
}

impl AdmissionPermit {
    /// Returns the number of the permit: permits are numbered in the order in which they are
    /// granted.
    pub(super) const fn permit_number(&self) -> u64 {
        self.number
    }
}

impl Drop for AdmissionPermit {
    fn drop(&mut self) {
        let mut state = self.state.borrow_mut();
        state.loads.remove(&self.number);
        state.total = state.total.subtract_usage(self.usage);
        if let Some(own) = state.prefixes.get_mut(&self.client_prefix) {
            *own = own.subtract_usage(self.usage);
            if *own == QuotaUsage::default() {
                state.prefixes.remove(&self.client_prefix);
            }
        }
        for (site, _) in site_networks(self.client) {
            if let Some(used) = state.sites.get_mut(&site) {
                *used = used.subtract_usage(self.usage);
            }
        }
        state.sites.retain(|_, used| *used != QuotaUsage::default());
    }
}

impl AdmissionState {
    /// Fails for a load of `rate` if the recent rates of the loads whose client prefix is `wanted`
    /// exceed `limit` together, and none of them is higher. The reason begins with `subject`.
    /// Without a limit no load is visited, as each of them is checked many times a second.
    fn check_rates(
        &self,
        limit: Option<BitRate>,
        rate: BitRate,
        subject: &str,
        wanted: impl Fn(u128) -> bool,
    ) -> Result<(), TestRefusal> {
        let Some(limit) = limit else { return Ok(()) };
        let (mut sum, mut fastest) = (BitRate::ZERO, BitRate::ZERO);
        for load in self
            .loads
            .values()
            .filter(|load| wanted(load.client_prefix))
        {
            sum = BitRate::from_bps(sum.bps().saturating_add(load.activity.rate.bps()));
            fastest = fastest.max(load.activity.rate);
        }
        if sum > limit && fastest <= rate {
            let why =
                format!("{subject} {sum}; {limit} is permitted, and no other test carries more");
            return Err(TestRefusal::new(ErrorNumber::TOTAL_RATE, why));
        }
        Ok(())
    }
}

/// Returns the wider networks of an address that may be of one site, with how many times the quota
/// of an address each has.
fn site_networks(address: IpAddr) -> impl Iterator<Item = (AddressPrefix, u32)> {
    client_networks(address).skip(1)
}

impl QuotaUsage {
    /// Returns the number of its sockets.
    const fn socket_count(self) -> u32 {
        self.pending
            .saturating_add(self.tests)
            .saturating_add(self.streams)
    }

    fn add_usage(self, more: Self) -> Self {
        Self {
            pending: self.pending.saturating_add(more.pending),
            tests: self.tests.saturating_add(more.tests),
            streams: self.streams.saturating_add(more.streams),
            rate: BitRate::from_bps(self.rate.bps().saturating_add(more.rate.bps())),
        }
    }

    fn subtract_usage(self, less: Self) -> Self {
        Self {
            pending: self.pending.saturating_sub(less.pending),
            tests: self.tests.saturating_sub(less.tests),
            streams: self.streams.saturating_sub(less.streams),
            rate: BitRate::from_bps(self.rate.bps().saturating_sub(less.rate.bps())),
        }
    }
}

#[cfg(test)]
mod tests;
