//! Admission: networks that may connect, and quotas of each address and of all together. Neither sockets nor a clock.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::IpAddr;
use std::rc::Rc;
use std::str::FromStr;

use fullpipe_iperf::{ErrorNumber, Refusal};
use fullpipe_record::Request;
use fullpipe_units::{BitRate, ByteCount, Span};
use thiserror::Error;

/// All addresses that begin with the same bits, as `192.0.2.0/24` or `2001:db8::/32`; a lone address is a network of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    first: u128,
    bits: u32,
}

/// A text that is no network.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{0}` is no network: write an address, or a network as 192.0.2.0/24 or 2001:db8::/32")]
pub struct NetworkError(String);

impl Network {
    /// Returns whether `address` belongs to it. An IPv4 address is the same however it is written (`::ffff:192.0.2.1`).
    pub fn contains(&self, address: IpAddr) -> bool {
        masked(number(address), self.bits) == self.first
    }
}

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, NetworkError> {
        let error = || NetworkError(text.to_owned());
        let (address, length) = text.split_once('/').map_or((text, None), |(address, length)| (address, Some(length)));
        let address: IpAddr = address.parse().map_err(|_| error())?;
        let family = if address.is_ipv4() { 32 } else { 128 };
        let length = length.map_or(Ok(family), str::parse).map_err(|_| error())?;
        if length > family {
            return Err(error());
        }
        let bits = length + 128 - family;
        Ok(Self { first: masked(number(address), bits), bits })
    }
}

/// IPv4 addresses in their place among those of IPv6.
fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// The first `bits` of `address`.
fn masked(address: u128, bits: u32) -> u128 {
    address & u128::MAX.checked_shl(128 - bits).unwrap_or(0)
}

/// Limits of what is under way at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    /// Connections that have not yet sent what they are.
    pub pending: u32,
    /// Tests.
    pub tests: u32,
    /// Streams of all tests.
    pub streams: u32,
    /// Rate of all tests together, both as asked for and as measured; any if not set.
    pub rate: Option<BitRate>,
}

/// The limits of a server. The defaults hinder no user and no office behind one address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Networks that may call; all if empty.
    pub allow: Vec<Network>,
    /// Networks that may not call, whatever `allow` says.
    pub deny: Vec<Network>,
    /// Limits of one address: one IPv4 address, or one /64 network of IPv6, which is one client prefix.
    pub address: Quota,
    /// Limits of all together.
    pub total: Quota,
    /// Longest test; as long as the protocol permits if not set.
    pub duration: Option<Span>,
    /// Most bytes of a test, in both directions together; any number if not set.
    pub bytes: Option<ByteCount>,
}

impl Default for Limits {
    /// 64 tests, 512 streams and 128 unknown connections an address; 1024 tests, 2048 streams and 4096 unknown
    /// connections in all.
    fn default() -> Self {
        Self {
            allow: Vec::new(),
            deny: Vec::new(),
            address: Quota { pending: 128, tests: 64, streams: 512, rate: None },
            total: Quota { pending: 4096, tests: 1024, streams: 2048, rate: None },
            duration: None,
            bytes: None,
        }
    }
}

/// The reason for which a connection is closed without an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Closed {
    /// Its address may not call.
    Forbidden,
    /// Its address, or all together, have enough of its kind open.
    Full,
    /// It is an iperf2 client, which are not served.
    Iperf2,
    /// It is an iperf2 client that asks to be sent datagrams.
    Iperf2Reverse,
    /// It did not say who it is, or is no client of ours.
    Unknown,
}

impl Closed {
    /// Fits behind "because".
    pub(super) const fn reason(self) -> &'static str {
        match self {
            Self::Forbidden => "its address may not call",
            Self::Full => "there are as many of its kind as may be",
            Self::Iperf2 => "it is an iperf2 client, and those are not served here: use iperf3 or fullpipe there",
            Self::Iperf2Reverse => "an iperf2 client asked to be sent datagrams, which is not offered",
            Self::Unknown => "it is neither fullpipe nor iperf3 nor iperf2",
        }
    }
}

/// The admission of a server. Each [`Permit`] is a place, which dropping it gives back.
#[derive(Debug)]
pub(super) struct Admission {
    limits: Limits,
    /// Connections for which there are descriptors, of whatever kind.
    connections: u32,
    usage: Rc<RefCell<Usage>>,
}

/// A place that is taken.
#[derive(Debug)]
pub(super) struct Permit {
    usage: Rc<RefCell<Usage>>,
    client_prefix: u128,
    number: u64,
    taken: Taken,
}

/// The places that are taken.
#[derive(Debug, Default)]
struct Usage {
    all: Taken,
    client_prefixes: HashMap<u128, Taken>,
    /// Permits that were ever given.
    permits: u64,
    /// Loads under way, by the numbers of their permits.
    loads: HashMap<u64, Load>,
}

/// A load under way, as it was last measured.
#[derive(Debug, Clone, Copy)]
struct Load {
    client_prefix: u128,
    streams: u32,
    activity: Activity,
    /// Set if it must end because others need its place.
    evicted: bool,
}

/// The activity of a load in its last seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Activity {
    pub(super) rate: BitRate,
    /// The time since it was last faster than [`super::monitor::IDLE_RATE`] a stream.
    pub(super) idle: Span,
}

/// The time after which a load that carries nearly nothing gives its place to another one.
const MAX_IDLE: Span = Span::from_secs(30);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Taken {
    pending: u32,
    tests: u32,
    streams: u32,
    rate: BitRate,
}

impl Admission {
    /// Returns the admission of a server that has room for so many `connections`, of any kind.
    pub(super) fn new(limits: Limits, connections: u32) -> Self {
        Self { limits, connections, usage: Rc::default() }
    }

    pub(super) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Returns whether `address` may connect at all.
    pub(super) fn permits(&self, address: IpAddr) -> bool {
        let is_in = |networks: &[Network]| networks.iter().any(|network| network.contains(address));
        !is_in(&self.limits.deny) && (self.limits.allow.is_empty() || is_in(&self.limits.allow))
    }

    /// Admits a new connection, of which nothing is known but its address. No more than a quarter of all connections may be
    /// pending, so that there is room for tests; and no more than a quarter of these from one address, however few there
    /// are. Those that an address may open as streams of its tests do not count.
    pub(super) fn pending(&self, address: IpAddr) -> Result<Permit, Closed> {
        if !self.permits(address) {
            return Err(Closed::Forbidden);
        }
        let (all, own) = self.after(address, Taken { pending: 1, ..Taken::default() });
        let most = self.limits.total.pending.min((self.connections / 4).max(1));
        let each = self.limits.address.pending.min((most / 4).max(1));
        let is_beyond = |taken: Taken, limit: u32| taken.pending > limit.saturating_add(taken.streams);
        if is_beyond(all, most) || is_beyond(own, each) || all.sockets() > self.connections {
            return Err(Closed::Full);
        }
        Ok(self.permit(address, Taken { pending: 1, ..Taken::default() }))
    }

    /// Admits a test that has sent nothing but its cookie. An eighth of all places is left to addresses that have none.
    pub(super) fn test(&self, address: IpAddr) -> Result<Permit, Closed> {
        let taken = Taken { tests: 1, ..Taken::default() };
        let (all, own) = self.after(address, taken);
        let (total, each) = (&self.limits.total, &self.limits.address);
        let is_newcomer = own.tests == 1;
        let is_full = all.tests > without_reserve(total.tests, is_newcomer);
        if is_full || own.tests > each.tests || all.sockets() > self.connections {
            return Err(Closed::Full);
        }
        Ok(self.permit(address, taken))
    }

    /// Permits the load of a test.
    ///
    /// # Errors
    /// Says which limit it would exceed, with iperf3's number for it.
    pub(super) fn load(&self, address: IpAddr, request: &Request) -> Result<Permit, Refusal> {
        self.check_length(request)?;
        let streams = u32::from(request.streams) * request.directions().len() as u32;
        let each = request.rate.map_or(0, BitRate::bps);
        let taken = Taken { streams, rate: BitRate::from_bps(each.saturating_mul(streams.into())), ..Taken::default() };
        let (all, own) = self.after(address, taken);
        self.check_streams(streams, all, own)?;
        self.check_rate(all.rate, own.rate)?;
        let permit = self.permit(address, taken);
        let load = Load { client_prefix: permit.client_prefix, streams, activity: Activity::default(), evicted: false };
        self.usage.borrow_mut().loads.insert(permit.number, load);
        Ok(permit)
    }

    /// Notes the `activity` of the load with this `permit`. Where all together carry too much, the one that carries most must
    /// end; where others need the place of one that carries nearly nothing, that one.
    ///
    /// # Errors
    /// If it must end.
    pub(super) fn measured(&self, permit: &Permit, activity: Activity) -> Result<(), Refusal> {
        let mut usage = self.usage.borrow_mut();
        let Some(load) = usage.loads.get_mut(&permit.number) else { return Ok(()) };
        load.activity = activity;
        if load.evicted {
            let why = format!("it carried nearly nothing for {}, and others need its place", activity.idle);
            return Err(Refusal { number: ErrorNumber::BUSY, why });
        }
        let (each, total) = (self.limits.address.rate, self.limits.total.rate);
        let (all, own) = (usage.rates(|_| true), usage.rates(|client_prefix| client_prefix == permit.client_prefix));
        excess(each, &own, activity.rate, "its address carries")?;
        excess(total, &all, activity.rate, "all tests carry")
    }

    /// Ends loads that carried nearly nothing for [`MAX_IDLE`], until there is room for so many `streams` more, the idlest
    /// first. Returns whether any is ending, so that asking again is worth it.
    pub(super) fn make_room(&self, streams: u32) -> bool {
        let mut usage = self.usage.borrow_mut();
        let mut freed: u32 = usage.loads.values().filter(|load| load.evicted).map(|load| load.streams).sum();
        let mut idle: Vec<&mut Load> =
            usage.loads.values_mut().filter(|load| !load.evicted && load.activity.idle >= MAX_IDLE).collect();
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

    /// Returns how many tests there are.
    pub(super) fn tests(&self) -> u32 {
        self.usage.borrow().all.tests
    }

    /// Returns whether there is no test and no load.
    pub(super) fn is_idle(&self) -> bool {
        let all = self.usage.borrow().all;
        all.tests == 0 && all.streams == 0
    }

    /// Returns the usage of all, and of `address`, with `more`.
    fn after(&self, address: IpAddr, more: Taken) -> (Taken, Taken) {
        let usage = self.usage.borrow();
        let own = usage.client_prefixes.get(&client_prefix(address)).copied().unwrap_or_default();
        (usage.all.plus(more), own.plus(more))
    }

    fn permit(&self, address: IpAddr, taken: Taken) -> Permit {
        let client_prefix = client_prefix(address);
        let mut usage = self.usage.borrow_mut();
        usage.all = usage.all.plus(taken);
        let own = usage.client_prefixes.entry(client_prefix).or_default();
        *own = own.plus(taken);
        usage.permits += 1;
        Permit { usage: Rc::clone(&self.usage), client_prefix, number: usage.permits, taken }
    }

    /// A test that bytes limit has no duration that could be judged before.
    fn check_length(&self, request: &Request) -> Result<(), Refusal> {
        let duration = request.omit + request.duration;
        match (self.limits.duration, self.limits.bytes, request.bytes) {
            (Some(longest), _, None) if duration > longest => {
                let why = format!("{duration} of test asked for; {longest} are permitted");
                Err(Refusal { number: ErrorNumber::MAX_DURATION, why })
            }
            (_, Some(most), Some(bytes)) if bytes > most => {
                // iperf3 has no number for this; the one of the other limit of a test's size says it best.
                let why = format!("{bytes} of test asked for; {most} are permitted");
                Err(Refusal { number: ErrorNumber::MAX_DURATION, why })
            }
            _ => Ok(()),
        }
    }

    /// Where the request is beyond its address's limit, no other time is better; else the server is busy.
    fn check_streams(&self, streams: u32, all: Taken, own: Taken) -> Result<(), Refusal> {
        let (each, total) = (self.limits.address.streams, self.limits.total.streams);
        let refuse = |number, why| Err(Refusal { number, why });
        let is_newcomer = own.streams == streams;
        if streams > each.min(total) {
            let why =
                format!("{streams} streams asked for; one address may have {each} at a time, all together {total}");
            return refuse(ErrorNumber::STREAMS, why);
        }
        if own.streams > each {
            let taken = own.streams - streams;
            let why = format!("{streams} streams asked for; its address has {taken} of the {each} that it may have");
            return refuse(ErrorNumber::BUSY, why);
        }
        if all.streams > without_reserve(total, is_newcomer) || all.sockets() > self.connections {
            let taken = all.streams - streams;
            let why = format!("{streams} streams asked for; {taken} of the {total} of all tests are taken");
            return refuse(ErrorNumber::BUSY, why);
        }
        Ok(())
    }

    fn check_rate(&self, all: BitRate, own: BitRate) -> Result<(), Refusal> {
        for (limit, asked, whose) in [
            (self.limits.address.rate, own, "with this test its address would carry"),
            (self.limits.total.rate, all, "with this test all would carry"),
        ] {
            if let Some(limit) = limit.filter(|limit| asked > *limit) {
                let why = format!("{whose} {asked}; {limit} is permitted");
                return Err(Refusal { number: ErrorNumber::TOTAL_RATE, why });
            }
        }
        Ok(())
    }
}

impl Permit {
    /// Its number, in the order in which permits are given.
    pub(super) const fn number(&self) -> u64 {
        self.number
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut usage = self.usage.borrow_mut();
        usage.loads.remove(&self.number);
        usage.all = usage.all.minus(self.taken);
        if let Some(own) = usage.client_prefixes.get_mut(&self.client_prefix) {
            *own = own.minus(self.taken);
            if *own == Taken::default() {
                usage.client_prefixes.remove(&self.client_prefix);
            }
        }
    }
}

impl Usage {
    /// Returns the rates of the loads of client prefixes that are `wanted`.
    fn rates(&self, wanted: impl Fn(u128) -> bool) -> Vec<BitRate> {
        self.loads.values().filter(|load| wanted(load.client_prefix)).map(|load| load.activity.rate).collect()
    }
}

/// Returns how many places of `total` an address may fill up to: all if it has none yet, else seven eighths.
const fn without_reserve(total: u32, is_newcomer: bool) -> u32 {
    if is_newcomer { total } else { total - total / 8 }
}

impl Taken {
    /// Sockets that it needs.
    const fn sockets(self) -> u32 {
        self.pending.saturating_add(self.tests).saturating_add(self.streams)
    }

    fn plus(self, more: Self) -> Self {
        Self {
            pending: self.pending.saturating_add(more.pending),
            tests: self.tests.saturating_add(more.tests),
            streams: self.streams.saturating_add(more.streams),
            rate: BitRate::from_bps(self.rate.bps().saturating_add(more.rate.bps())),
        }
    }

    fn minus(self, less: Self) -> Self {
        Self {
            pending: self.pending.saturating_sub(less.pending),
            tests: self.tests.saturating_sub(less.tests),
            streams: self.streams.saturating_sub(less.streams),
            rate: BitRate::from_bps(self.rate.bps().saturating_sub(less.rate.bps())),
        }
    }
}

/// Returns whose quota `address` uses: its own, or that of its /64 network of IPv6.
pub(super) fn client_prefix(address: IpAddr) -> u128 {
    const NETWORK: u128 = (u64::MAX as u128) << 64;
    match address.to_canonical() {
        IpAddr::V4(address) => number(IpAddr::V4(address)),
        IpAddr::V6(address) => address.to_bits() & NETWORK,
    }
}

/// Refuses the test that carries `rate` if all `rates` together are beyond `limit` and none is greater than its own.
fn excess(limit: Option<BitRate>, rates: &[BitRate], rate: BitRate, whose: &str) -> Result<(), Refusal> {
    let sum = sum(rates);
    match limit {
        Some(limit) if sum > limit && rates.iter().all(|other| *other <= rate) => {
            let why = format!("{whose} {sum}; {limit} is permitted, and no other test carries more");
            Err(Refusal { number: ErrorNumber::TOTAL_RATE, why })
        }
        _ => Ok(()),
    }
}

fn sum(rates: &[BitRate]) -> BitRate {
    BitRate::from_bps(rates.iter().fold(0, |sum, rate| sum.saturating_add(rate.bps())))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: &str = "192.0.2.1";
    const THERE: &str = "198.51.100.7";

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn at(mbps: u64) -> Activity {
        Activity { rate: BitRate::from_mbps(mbps), idle: Span::ZERO }
    }

    /// A load with so many streams.
    fn streams(streams: u16) -> Request {
        Request { streams, ..Request::default() }
    }

    fn network(text: &str) -> Network {
        text.parse().unwrap()
    }

    fn gate(change: impl FnOnce(&mut Limits)) -> Admission {
        let mut limits = Limits::default();
        change(&mut limits);
        Admission::new(limits, 10_000)
    }

    #[test]
    fn a_network_holds_what_begins_with_its_bits() {
        for (network_text, inside, outside) in [
            ("192.0.2.0/24", "192.0.2.255", "192.0.3.0"),
            ("192.0.2.77/24", "192.0.2.1", "192.0.1.255"),
            ("192.0.2.1", "192.0.2.1", "192.0.2.2"),
            ("2001:db8::/32", "2001:db8:ffff::1", "2001:db9::1"),
            ("2001:db8::1", "2001:db8::1", "2001:db8::2"),
            ("0.0.0.0/0", "203.0.113.9", "2001:db8::1"),
            ("128.0.0.0/1", "255.255.255.255", "127.255.255.255"),
        ] {
            let network = network(network_text);
            assert!(network.contains(ip(inside)) && !network.contains(ip(outside)), "{network_text}");
        }
        assert!(network("192.0.2.0/24").contains(ip("::ffff:192.0.2.9")));
        assert!(network("::/0").contains(ip("2001:db8::1")) && network("::/0").contains(ip(HERE)));
    }

    #[test]
    fn what_is_no_network_is_named() {
        for text in ["", "192.0.2.0/33", "192.0.2.0/-1", "192.0.2/24", "2001:db8::/129", "host", "192.0.2.0/", "/24"] {
            assert!(text.parse::<Network>().unwrap_err().to_string().contains(text), "{text}");
        }
    }

    #[test]
    fn who_is_denied_stays_out_and_who_is_not_allowed_too() {
        let denies = gate(|limits| limits.deny = vec![network("192.0.2.0/24")]);
        assert_eq!(denies.pending(ip(HERE)).unwrap_err(), Closed::Forbidden);
        assert!(denies.pending(ip(THERE)).is_ok());
        let allows = gate(|limits| {
            limits.allow = vec![network("192.0.2.0/24"), network("198.51.100.7")];
            limits.deny = vec![network("192.0.2.128/25")];
        });
        assert!(allows.pending(ip(HERE)).is_ok() && allows.pending(ip(THERE)).is_ok());
        assert_eq!(allows.pending(ip("192.0.2.200")).unwrap_err(), Closed::Forbidden);
        assert_eq!(allows.pending(ip("203.0.113.1")).unwrap_err(), Closed::Forbidden);
    }

    #[test]
    fn a_crowd_from_one_address_leaves_room_for_others() {
        let gate = gate(|_| {});
        let rejected: Vec<_> = (0..10_000).filter_map(|_| gate.pending(ip(HERE)).ok()).collect();
        assert_eq!(rejected.len(), 128);
        assert!(gate.pending(ip(THERE)).is_ok());
        drop(rejected);
        assert!(gate.pending(ip(HERE)).is_ok());
        assert!(gate.usage.borrow().client_prefixes.is_empty(), "whoever has gone is forgotten");
    }

    #[test]
    fn a_crowd_from_one_address_leaves_room_where_there_is_little() {
        let gate = Admission::new(Limits::default(), 64);
        let rejected: Vec<_> = (0..100).filter_map(|_| gate.pending(ip(HERE)).ok()).collect();
        assert_eq!(rejected.len(), 4);
        assert!(gate.pending(ip(THERE)).is_ok() && gate.test(ip(THERE)).is_ok());
    }

    #[test]
    fn a_crowd_from_everywhere_leaves_room_for_tests() {
        let gate = Admission::new(Limits::default(), 1000);
        let rejected: Vec<_> = (0..10_000_u32).filter_map(|n| gate.pending(IpAddr::V4(n.into())).ok()).collect();
        assert_eq!(rejected.len(), 250);
        assert!(gate.test(ip(HERE)).is_ok());
    }

    #[test]
    fn a_network_of_ipv6_is_one_address() {
        let gate = gate(|limits| limits.address.tests = 1);
        let _first = gate.test(ip("2001:db8:0:1::1")).unwrap();
        assert_eq!(gate.test(ip("2001:db8:0:1:ffff::2")).unwrap_err(), Closed::Full);
        assert!(gate.test(ip("2001:db8:0:2::1")).is_ok());
        let _other = gate.test(ip("::ffff:192.0.2.1")).unwrap();
        assert_eq!(gate.test(ip(HERE)).unwrap_err(), Closed::Full);
    }

    #[test]
    fn tests_are_counted_for_each_and_for_all() {
        let gate = gate(|limits| (limits.address.tests, limits.total.tests) = (2, 3));
        let _mine = [gate.test(ip(HERE)).unwrap(), gate.test(ip(HERE)).unwrap()];
        assert!(gate.test(ip(HERE)).is_err());
        let theirs = gate.test(ip(THERE)).unwrap();
        assert!(gate.test(ip("203.0.113.1")).is_err());
        drop(theirs);
        assert!(gate.test(ip("203.0.113.1")).is_ok());
    }

    #[test]
    fn the_usual_test_of_128_streams_is_permitted() {
        let gate = gate(|_| {});
        let request = Request { streams: 128, direction: fullpipe_record::Direction::Both, ..Request::default() };
        assert!(gate.load(ip(HERE), &request).is_ok());
    }

    #[test]
    fn streams_beyond_the_quota_are_refused_and_those_of_others_make_the_server_busy() {
        let gate = gate(|limits| limits.address.streams = 10);
        let refusal = gate.load(ip(HERE), &streams(11)).unwrap_err();
        assert_eq!(refusal.number, ErrorNumber::STREAMS);
        let _first = gate.load(ip(HERE), &streams(8)).unwrap();
        let refusal = gate.load(ip(HERE), &streams(3)).unwrap_err();
        assert_eq!(refusal.number, ErrorNumber::BUSY);
        assert!(refusal.why.contains("has 8 of the 10 that it may have"), "{}", refusal.why);
        assert!(gate.load(ip(HERE), &streams(2)).is_ok() && gate.load(ip(THERE), &streams(3)).is_ok());
    }

    #[test]
    fn four_addresses_do_not_take_all_streams() {
        let gate = gate(|_| {});
        let mut loads = Vec::new();
        for last in 1..=4_u8 {
            let address = IpAddr::from([192, 0, 2, last]);
            loads.extend(std::iter::from_fn(|| gate.load(address, &streams(128)).ok()));
        }
        assert!(loads.len() >= 13, "{}", loads.len());
        let newcomer = gate.load(ip(THERE), &streams(128));
        assert!(newcomer.is_ok(), "{newcomer:?}");
    }

    #[test]
    fn loads_that_carry_nearly_nothing_give_their_places_to_newcomers() {
        let gate = gate(|limits| (limits.address.streams, limits.total.streams) = (100, 100));
        let slow = Activity { rate: BitRate::from_bps(1), idle: MAX_IDLE };
        let [idle, idler, busy] =
            [HERE, "192.0.2.2", "192.0.2.3"].map(|text| gate.load(ip(text), &streams(30)).unwrap());
        gate.measured(&idle, slow).unwrap();
        gate.measured(&idler, Activity { idle: MAX_IDLE * 2, ..slow }).unwrap();
        gate.measured(&busy, at(10)).unwrap();
        let refusal = gate.load(ip(THERE), &streams(40)).unwrap_err();
        assert_eq!(refusal.number, ErrorNumber::BUSY);
        assert!(gate.make_room(30));
        assert!(gate.measured(&idler, slow).is_err_and(|refusal| refusal.why.contains("nearly nothing")));
        assert!(gate.measured(&idle, slow).is_ok() && gate.measured(&busy, at(10)).is_ok());
        drop(idler);
        assert!(gate.load(ip(THERE), &streams(40)).is_ok());
        assert!(gate.make_room(60) && gate.measured(&idle, slow).is_err());
        drop(idle);
        assert!(!gate.make_room(60) && gate.measured(&busy, at(10)).is_ok(), "who carries something stays");
    }

    #[test]
    fn streams_that_are_opened_together_are_not_too_many_pending() {
        let gate = Admission::new(Limits::default(), 1000);
        let _load = gate.load(ip(HERE), &streams(128)).unwrap();
        let pending: Vec<_> = (0..128).map(|_| gate.pending(ip(HERE))).collect();
        assert!(pending.iter().all(Result::is_ok));
    }

    #[test]
    fn rates_that_are_asked_for_add_up() {
        let gate = gate(|limits| limits.total.rate = Some(BitRate::from_mbps(100)));
        let request = |mbps, streams| Request { rate: Some(BitRate::from_mbps(mbps)), streams, ..Request::default() };
        let _first = gate.load(ip(HERE), &request(20, 4)).unwrap();
        assert_eq!(gate.load(ip(THERE), &request(21, 1)).unwrap_err().number.get(), 27);
        assert!(gate.load(ip(THERE), &request(20, 1)).is_ok());
        assert!(gate.load(ip(THERE), &Request::default()).is_ok(), "what has no rate is measured");
        let endless = Request { rate: Some(BitRate::from_bps(u64::MAX)), streams: 128, ..Request::default() };
        assert_eq!(gate.load(ip(THERE), &endless).unwrap_err().number.get(), 27);
    }

    #[test]
    fn of_those_that_carry_too_much_the_greatest_ends() {
        let gate = gate(|limits| limits.total.rate = Some(BitRate::from_mbps(100)));
        let (one, other) = (gate.load(ip(HERE), &Request::default()), gate.load(ip(THERE), &Request::default()));
        let (one, other) = (one.unwrap(), other.unwrap());
        assert!(gate.measured(&one, at(70)).is_ok());
        assert!(gate.measured(&other, at(40)).is_ok());
        assert_eq!(gate.measured(&one, at(70)).unwrap_err().number.get(), 27);
        drop(one);
        assert!(gate.measured(&other, at(90)).is_ok());
    }

    #[test]
    fn an_address_that_carries_too_much_does_not_end_the_tests_of_others() {
        let gate = gate(|limits| limits.address.rate = Some(BitRate::from_mbps(50)));
        let (one, other) = (gate.load(ip(HERE), &Request::default()), gate.load(ip(THERE), &Request::default()));
        let (one, other) = (one.unwrap(), other.unwrap());
        assert!(gate.measured(&one, at(60)).is_err());
        assert!(gate.measured(&other, at(45)).is_ok());
    }

    #[test]
    fn a_test_that_is_too_long_is_refused_as_iperf3_does() {
        let gate = gate(|limits| {
            limits.duration = Some(Span::from_secs(60));
            limits.bytes = Some(ByteCount::from_mib(1));
        });
        let lasts = |seconds| Request { duration: Span::from_secs(seconds), ..Request::default() };
        assert!(gate.load(ip(HERE), &lasts(60)).is_ok());
        assert_eq!(gate.load(ip(HERE), &lasts(61)).unwrap_err().number.get(), 37);
        let omits = Request { omit: Span::from_secs(1), ..lasts(60) };
        assert_eq!(gate.load(ip(HERE), &omits).unwrap_err().number.get(), 37);
        let sends = |bytes| Request { bytes: Some(ByteCount::new(bytes)), ..lasts(86_400) };
        assert!(gate.load(ip(HERE), &sends(1 << 20)).is_ok());
        assert_eq!(gate.load(ip(HERE), &sends((1 << 20) + 1)).unwrap_err().number.get(), 37);
    }
}
