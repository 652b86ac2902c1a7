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

/// The admission control of a server. Whatever is admitted holds a [`AdmissionPermit`].
#[derive(Debug)]
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
    pub(super) permit: AdmissionPermit,
    /// The place of the connection, which a newcomer may take.
    pub(super) place: PendingPlace,
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct LoadActivity {
    pub(super) rate: BitRate,
    /// Time for which it has made hardly any progress.
    pub(super) idle: Span,
    /// Bytes in the queues of streams that make no progress.
    pub(super) stalled: StalledBytes,
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
mod tests {
    use super::*;
    use std::pin::pin;
    use std::task::{Context, Waker};

    const HERE: &str = "192.0.2.1";
    const THERE: &str = "198.51.100.7";

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn at(mbps: u64) -> LoadActivity {
        LoadActivity {
            rate: BitRate::from_mbps(mbps),
            ..LoadActivity::default()
        }
    }

    /// Returns a load of so many streams.
    fn streams(streams: u16) -> Request {
        Request {
            streams,
            ..Request::default()
        }
    }

    /// Admits a connection that is not classified yet.
    fn pending(
        admission: &Admission,
        address: IpAddr,
    ) -> Result<PendingConnection, ClientRejection> {
        admission.admit_pending(address, Instant::now())
    }

    fn network(text: &str) -> AddressPrefix {
        text.parse().unwrap()
    }

    fn admission(change: impl FnOnce(&mut ServerLimits)) -> Admission {
        let mut limits = ServerLimits::default();
        change(&mut limits);
        Admission::new(limits, 10_000)
    }

    #[test]
    fn addresses_that_are_denied_or_not_allowed_are_rejected() {
        let denies = admission(|limits| limits.deny = vec![network("192.0.2.0/24")]);
        assert_eq!(
            pending(&denies, ip(HERE)).unwrap_err(),
            ClientRejection::Denied
        );
        assert!(pending(&denies, ip(THERE)).is_ok());
        let allows = admission(|limits| {
            limits.allow = vec![network("192.0.2.0/24"), network("198.51.100.7")];
            limits.deny = vec![network("192.0.2.128/25")];
        });
        assert!(pending(&allows, ip(HERE)).is_ok() && pending(&allows, ip(THERE)).is_ok());
        assert_eq!(
            pending(&allows, ip("192.0.2.200")).unwrap_err(),
            ClientRejection::Denied
        );
        assert_eq!(
            pending(&allows, ip("203.0.113.1")).unwrap_err(),
            ClientRejection::Denied
        );
    }

    #[test]
    fn silent_connections_give_way_to_others_and_to_tests() {
        for max_connections in [192, 1000, 10_000] {
            let admission = Admission::new(ServerLimits::default(), max_connections);
            let addresses = || (1..=32).map(|last| IpAddr::from([198, 51, 100, last]));
            let silent: Vec<_> = (0..128)
                .flat_map(|_| addresses())
                .map(|address| pending(&admission, address).unwrap())
                .collect();
            assert_eq!(
                admission.pending.places_taken(),
                4096.min(max_connections as usize / 4)
            );
            assert!(admission.is_full_of_pending());
            // A newcomer is admitted, and keeps its place while as many silent ones come again.
            let mut newcomer = pending(&admission, ip(HERE)).unwrap();
            let again: Vec<_> = addresses()
                .map(|address| pending(&admission, address).unwrap())
                .collect();
            {
                let waits = pin!(newcomer.place.unless_lost(std::future::pending::<()>()));
                assert!(
                    waits
                        .poll(&mut Context::from_waker(Waker::noop()))
                        .is_pending()
                );
            }
            let test = admission.admit_test(ip(HERE)).unwrap();
            assert!(admission.admit_load(ip(HERE), &streams(8)).is_ok());
            drop((silent, again, newcomer, test));
            assert!(
                admission.state.borrow().prefixes.is_empty(),
                "prefixes without usage are removed"
            );
        }
    }

    #[test]
    fn a_64_bit_network_of_ipv6_counts_as_one_address() {
        let admission = admission(|limits| limits.address.tests = 1);
        let _first = admission.admit_test(ip("2001:db8:0:1::1")).unwrap();
        assert_eq!(
            admission
                .admit_test(ip("2001:db8:0:1:ffff::2"))
                .unwrap_err(),
            ClientRejection::QuotaExceeded
        );
        assert!(admission.admit_test(ip("2001:db8:0:2::1")).is_ok());
        let _other = admission.admit_test(ip("::ffff:192.0.2.1")).unwrap();
        assert_eq!(
            admission.admit_test(ip(HERE)).unwrap_err(),
            ClientRejection::QuotaExceeded
        );
    }

    #[test]
    fn tests_are_counted_for_each_address_and_in_total() {
        let admission = admission(|limits| (limits.address.tests, limits.total.tests) = (2, 3));
        let _mine = [
            admission.admit_test(ip(HERE)).unwrap(),
            admission.admit_test(ip(HERE)).unwrap(),
        ];
        assert!(admission.admit_test(ip(HERE)).is_err());
        let theirs = admission.admit_test(ip(THERE)).unwrap();
        assert!(admission.admit_test(ip("203.0.113.1")).is_err());
        drop(theirs);
        assert!(admission.admit_test(ip("203.0.113.1")).is_ok());
    }

    #[test]
    fn the_usual_test_of_128_streams_is_permitted() {
        let admission = admission(|_| {});
        let request = Request {
            streams: 128,
            direction: fullpipe_record::Direction::Both,
            ..Request::default()
        };
        assert!(admission.admit_load(ip(HERE), &request).is_ok());
    }

    #[test]
    fn streams_beyond_the_quota_are_refused_and_those_of_others_make_the_server_busy() {
        let admission = admission(|limits| limits.address.streams = 10);
        let refusal = admission.admit_load(ip(HERE), &streams(11)).unwrap_err();
        assert_eq!(refusal.number, ErrorNumber::STREAMS);
        let _first = admission.admit_load(ip(HERE), &streams(8)).unwrap();
        let refusal = admission.admit_load(ip(HERE), &streams(3)).unwrap_err();
        assert_eq!(refusal.number, ErrorNumber::BUSY);
        assert!(
            refusal.why.contains("uses 8 of the 10 that it may use"),
            "{}",
            refusal.why
        );
        assert!(
            admission.admit_load(ip(HERE), &streams(2)).is_ok()
                && admission.admit_load(ip(THERE), &streams(3)).is_ok()
        );
    }

    /// A fifth address took the whole reserve, and no other client was served.
    #[test]
    fn a_few_addresses_do_not_take_all_streams_or_tests() {
        for each in [256, 512, 2_048] {
            let admission =
                admission(|limits| (limits.address.streams, limits.address.tests) = (each, 1_024));
            let addresses = || (1..=9).map(|last| IpAddr::from([192, 0, 2, last]));
            let take = |address| std::iter::from_fn(move || Some(address));
            let loads: Vec<_> = addresses()
                .flat_map(|at| take(at).map_while(|at| admission.admit_load(at, &streams(1)).ok()))
                .collect();
            let tests: Vec<_> = addresses()
                .flat_map(|at| take(at).map_while(|at| admission.admit_test(at).ok()))
                .collect();
            assert!(
                (1_792..1_792 + 9 * 16).contains(&loads.len()),
                "{}",
                loads.len()
            );
            assert!((896..896 + 9 * 8).contains(&tests.len()), "{}", tests.len());
            // Twenty newcomers are served all the same.
            let newcomers = (1..=20).map(|last| IpAddr::from([198, 51, 100, last]));
            let served: Vec<_> = newcomers
                .map_while(|at| {
                    Some((
                        admission.admit_test(at).ok()?,
                        admission.admit_load(at, &streams(5)).ok()?,
                    ))
                })
                .collect();
            assert_eq!(served.len(), 20);
        }
    }

    /// Eight /64 networks of one customer took all streams.
    #[test]
    fn many_networks_of_one_site_share_a_quota() {
        let admission = admission(|_| {});
        let address = |network: u16| IpAddr::from([0x2001, 0xdb8, 0, network, 0, 0, 0, 1]);
        let loads: Vec<_> = (0..=u16::MAX)
            .filter_map(|net| admission.admit_load(address(net), &streams(64)).ok())
            .collect();
        assert_eq!(
            loads.len() * 64,
            896,
            "seven eighths of four times the quota of an address"
        );
        let within_one: Vec<_> = loads
            .iter()
            .filter(|load| load.client < address(0x100))
            .collect();
        assert_eq!(within_one.len() * 64, 448, "and of twice for a /56");
        assert!(admission.admit_load(address(0), &streams(1)).is_err());
        assert!(
            admission.admit_load(address(0x4000), &streams(2)).is_ok(),
            "a newcomer uses the reserve of the site"
        );
        assert!(
            admission
                .admit_load(ip("2001:db8:1::1"), &streams(128))
                .is_ok(),
            "other sites are not affected"
        );
        drop(loads);
        assert!(admission.state.borrow().sites.is_empty());
    }

    #[test]
    fn a_client_alone_may_use_all_streams_of_a_small_server() {
        let admission = admission(|limits| limits.total.streams = 128);
        let _all = admission.admit_load(ip(HERE), &streams(128)).unwrap();
        assert_eq!(
            admission
                .admit_load(ip(THERE), &streams(1))
                .unwrap_err()
                .number,
            ErrorNumber::BUSY
        );
    }

    #[test]
    fn a_load_ends_whose_client_leaves_too_much_in_the_kernel() {
        let limits = fullpipe_control::QueueLimits {
            client: ByteCount::from_mib(64),
            total: ByteCount::from_mib(96),
        };
        let admission = Admission {
            queues: QueueBudget::new(limits),
            ..admission(|_| {})
        };
        let leaves = |mib| LoadActivity {
            stalled: StalledBytes::from_lasting(ByteCount::from_mib(mib)),
            ..at(0)
        };
        let loads =
            [HERE, HERE, THERE].map(|from| admission.admit_load(ip(from), &streams(128)).unwrap());
        assert!(admission.record_activity(&loads[0], leaves(40)).is_ok());
        let refusal = admission
            .record_activity(&loads[1], leaves(41))
            .unwrap_err();
        assert_eq!(
            (refusal.number, refusal.why.contains("does not take 41 MiB")),
            (ErrorNumber::BUSY, true)
        );
        assert!(admission.record_activity(&loads[2], leaves(50)).is_ok());
        assert!(
            admission.record_activity(&loads[2], leaves(60)).is_err(),
            "more than all may leave"
        );
    }

    #[test]
    fn idle_loads_are_evicted_for_newcomers() {
        let admission =
            admission(|limits| (limits.address.streams, limits.total.streams) = (100, 100));
        let slow = LoadActivity {
            rate: BitRate::from_bps(1),
            idle: MAX_IDLE,
            ..LoadActivity::default()
        };
        let [idle, idler, busy] = [HERE, "192.0.2.2", "192.0.2.3"]
            .map(|text| admission.admit_load(ip(text), &streams(28)).unwrap());
        admission.record_activity(&idle, slow).unwrap();
        admission
            .record_activity(
                &idler,
                LoadActivity {
                    idle: MAX_IDLE * 2,
                    ..slow
                },
            )
            .unwrap();
        admission.record_activity(&busy, at(10)).unwrap();
        let refusal = admission.admit_load(ip(THERE), &streams(30)).unwrap_err();
        assert_eq!(refusal.number, ErrorNumber::BUSY);
        assert!(admission.evict_idle(28));
        assert!(
            admission
                .record_activity(&idler, slow)
                .is_err_and(|refusal| refusal.why.contains("to make room"))
        );
        assert!(
            admission.record_activity(&idle, slow).is_ok()
                && admission.record_activity(&busy, at(10)).is_ok()
        );
        drop(idler);
        assert!(admission.admit_load(ip(THERE), &streams(30)).is_ok());
        assert!(admission.evict_idle(56) && admission.record_activity(&idle, slow).is_err());
        drop(idle);
        assert!(
            !admission.evict_idle(56) && admission.record_activity(&busy, at(10)).is_ok(),
            "a busy load is not evicted"
        );
    }

    #[test]
    fn streams_of_an_admitted_load_are_not_too_many_pending_connections() {
        let admission = Admission::new(ServerLimits::default(), 1000);
        let _load = admission.admit_load(ip(HERE), &streams(128)).unwrap();
        let pending: Vec<_> = (0..128).map(|_| pending(&admission, ip(HERE))).collect();
        assert!(pending.iter().all(Result::is_ok));
    }

    #[test]
    fn requested_rates_add_up() {
        let admission = admission(|limits| limits.total.rate = Some(BitRate::from_mbps(100)));
        let request = |mbps, streams| Request {
            rate: Some(BitRate::from_mbps(mbps)),
            streams,
            ..Request::default()
        };
        let _first = admission.admit_load(ip(HERE), &request(20, 4)).unwrap();
        assert_eq!(
            admission
                .admit_load(ip(THERE), &request(21, 1))
                .unwrap_err()
                .number
                .get(),
            27
        );
        assert!(admission.admit_load(ip(THERE), &request(20, 1)).is_ok());
        assert!(
            admission.admit_load(ip(THERE), &Request::default()).is_ok(),
            "a load without a rate is checked while it runs"
        );
        let endless = Request {
            rate: Some(BitRate::from_bps(u64::MAX)),
            streams: 128,
            ..Request::default()
        };
        assert_eq!(
            admission
                .admit_load(ip(THERE), &endless)
                .unwrap_err()
                .number
                .get(),
            27
        );
    }

    #[test]
    fn the_fastest_load_ends_if_the_total_rate_is_exceeded() {
        let admission = admission(|limits| limits.total.rate = Some(BitRate::from_mbps(100)));
        let (one, other) = (
            admission.admit_load(ip(HERE), &Request::default()),
            admission.admit_load(ip(THERE), &Request::default()),
        );
        let (one, other) = (one.unwrap(), other.unwrap());
        assert!(admission.record_activity(&one, at(70)).is_ok());
        assert!(admission.record_activity(&other, at(40)).is_ok());
        assert_eq!(
            admission
                .record_activity(&one, at(70))
                .unwrap_err()
                .number
                .get(),
            27
        );
        drop(one);
        assert!(admission.record_activity(&other, at(90)).is_ok());
    }

    #[test]
    fn an_address_that_exceeds_its_rate_does_not_end_the_tests_of_others() {
        let admission = admission(|limits| limits.address.rate = Some(BitRate::from_mbps(50)));
        let (one, other) = (
            admission.admit_load(ip(HERE), &Request::default()),
            admission.admit_load(ip(THERE), &Request::default()),
        );
        let (one, other) = (one.unwrap(), other.unwrap());
        assert!(admission.record_activity(&one, at(60)).is_err());
        assert!(admission.record_activity(&other, at(45)).is_ok());
    }

    #[test]
    fn no_load_is_visited_without_a_limit_of_the_rate() {
        let visits = std::cell::Cell::new(0);
        let admission = admission(|_| {});
        let _loads =
            [HERE, THERE].map(|text| admission.admit_load(ip(text), &Request::default()).unwrap());
        let check = |limit| {
            let wanted = |_| {
                visits.set(visits.get() + 1);
                true
            };
            admission
                .state
                .borrow()
                .check_rates(limit, BitRate::ZERO, "all tests carry", wanted)
        };
        assert!(check(None).is_ok() && visits.get() == 0);
        assert!(check(Some(BitRate::ZERO)).is_ok() && visits.get() == 2);
    }

    #[test]
    fn a_test_that_is_too_long_is_refused_as_iperf3_does() {
        let admission = admission(|limits| {
            limits.duration = Some(Span::from_secs(60));
            limits.bytes = Some(ByteCount::from_mib(1));
        });
        let lasts = |seconds| Request {
            duration: Span::from_secs(seconds),
            ..Request::default()
        };
        assert!(admission.admit_load(ip(HERE), &lasts(60)).is_ok());
        assert_eq!(
            admission
                .admit_load(ip(HERE), &lasts(61))
                .unwrap_err()
                .number
                .get(),
            37
        );
        let omits = Request {
            omit: Span::from_secs(1),
            ..lasts(60)
        };
        assert_eq!(
            admission
                .admit_load(ip(HERE), &omits)
                .unwrap_err()
                .number
                .get(),
            37
        );
        let sends = |bytes| Request {
            bytes: Some(ByteCount::new(bytes)),
            ..lasts(86_400)
        };
        assert!(admission.admit_load(ip(HERE), &sends(1 << 20)).is_ok());
        assert_eq!(
            admission
                .admit_load(ip(HERE), &sends((1 << 20) + 1))
                .unwrap_err()
                .number
                .get(),
            37
        );
    }
}
