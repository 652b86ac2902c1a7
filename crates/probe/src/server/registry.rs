//! Tests under way, by their cookies, and those that open UDP streams, by their addresses.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use fullpipe_iperf::Cookie;
use fullpipe_load::Channel;
use tokio::sync::mpsc;

use super::admission::{Permit, client_prefix};

/// Tests that are remembered after their end.
const PAST: usize = 1024;

/// How long echo requests of a test are answered after its end.
const AFTERMATH: Duration = Duration::from_secs(3);

/// A stream on its way to its test.
#[derive(Debug)]
pub(super) struct Arrival {
    pub(super) channel: Channel,
    /// Its place, until the test takes it in. Streams are numbered in the order of these, which is that in which they
    /// came: greetings may overtake each other.
    pub(super) permit: Permit,
}

/// Where the streams of a test go.
pub(super) type StreamSender = mpsc::UnboundedSender<Arrival>;

/// What a cookie stands for.
pub(super) enum Known {
    /// A test under way.
    Test(StreamSender),
    /// A test that has ended, so that what comes is late, or a test of another client.
    Past,
    /// Nothing yet: a new test.
    New,
}

/// A test that waits for UDP streams.
#[derive(Debug)]
struct PendingStreams {
    cookie: Cookie,
    /// This end of its control connection.
    local: SocketAddr,
}

/// A test that has ended.
#[derive(Debug)]
struct Past {
    cookie: Cookie,
    client: Option<IpAddr>,
    ended: Instant,
}

/// Tests by their cookies, those under way and the last that have ended.
#[derive(Debug, Default)]
pub(super) struct Registry {
    open: HashMap<Cookie, (IpAddr, StreamSender)>,
    past: VecDeque<Past>,
    /// A hello over UDP says nothing but where it comes from, so one test of each address opens its streams at a time.
    opening: HashMap<IpAddr, PendingStreams>,
}

impl Registry {
    /// Returns what a `cookie` stands for that came from `client`. Cookies can be seen on the path, so a test takes streams
    /// only from the client prefix that began it.
    pub(super) fn find(&self, cookie: &Cookie, client: IpAddr) -> Known {
        match self.open.get(cookie) {
            Some((its, test)) if client_prefix(*its) == client_prefix(client) => Known::Test(test.clone()),
            Some(_) => Known::Past,
            None if self.past.iter().any(|past| past.cookie == *cookie) => Known::Past,
            None => Known::New,
        }
    }

    /// Begins a test of `client`; its streams come out of what is given back.
    pub(super) fn open(&mut self, cookie: Cookie, client: IpAddr) -> mpsc::UnboundedReceiver<Arrival> {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.open.insert(cookie, (client, sender));
        receiver
    }

    /// Whether `client` has a test with this `cookie`, or had one a moment ago: how the path is after a load is measured
    /// too.
    pub(super) fn knows(&self, cookie: &Cookie, client: IpAddr) -> bool {
        match self.open.get(cookie) {
            Some((its, _)) => *its == client,
            None => self
                .past
                .iter()
                .rev()
                .take_while(|past| past.ended.elapsed() < AFTERMATH)
                .any(|past| past.cookie == *cookie && past.client == Some(client)),
        }
    }

    pub(super) fn close(&mut self, cookie: Cookie) {
        self.streams_are_open(&cookie);
        let client = self.open.remove(&cookie).map(|(client, _)| client);
        if self.past.len() == PAST {
            self.past.pop_front();
        }
        self.past.push_back(Past { cookie, client, ended: Instant::now() });
    }

    /// Lets hellos from `client` open streams of the test with this `cookie`, which has an end of its control connection at
    /// `local`; `false` as long as another test of the same address opens its own.
    pub(super) fn expect_hellos(&mut self, cookie: Cookie, client: IpAddr, local: SocketAddr) -> bool {
        if self.opening.contains_key(&client) {
            return false;
        }
        self.opening.insert(client, PendingStreams { cookie, local });
        true
    }

    /// The test with this `cookie` takes no more hellos.
    pub(super) fn streams_are_open(&mut self, cookie: &Cookie) {
        self.opening.retain(|_, opening| opening.cookie != *cookie);
    }

    /// The test that a hello from `client` belongs to, and this end of its control connection.
    pub(super) fn expecting(&self, client: IpAddr) -> Option<(SocketAddr, StreamSender)> {
        let PendingStreams { cookie, local } = self.opening.get(&client)?;
        Some((*local, self.open.get(cookie)?.1.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
    const THERE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));

    fn cookie(number: u64) -> Cookie {
        let mut bytes = [b'a'; Cookie::LENGTH];
        bytes[..20].copy_from_slice(format!("{number:020}").as_bytes());
        Cookie::from_bytes(bytes)
    }

    #[test]
    fn a_late_data_connection_begins_no_test() {
        let mut registry = Registry::default();
        assert!(matches!(registry.find(&cookie(1), HERE), Known::New));
        let _arrivals = registry.open(cookie(1), HERE);
        assert!(matches!(registry.find(&cookie(1), HERE), Known::Test(_)));
        registry.close(cookie(1));
        assert!(matches!(registry.find(&cookie(1), HERE), Known::Past));
    }

    #[test]
    fn a_seen_cookie_does_not_let_another_address_take_a_stream() {
        let mut registry = Registry::default();
        let _arrivals = registry.open(cookie(1), HERE);
        assert!(matches!(registry.find(&cookie(1), THERE), Known::Past));
        assert!(matches!(registry.find(&cookie(1), HERE), Known::Test(_)));
    }

    #[test]
    fn a_client_is_known_by_its_cookie_and_its_address() {
        let mut registry = Registry::default();
        let _arrivals = registry.open(cookie(1), HERE);
        assert!(registry.knows(&cookie(1), HERE));
        assert!(!registry.knows(&cookie(1), THERE) && !registry.knows(&cookie(2), HERE));
        registry.close(cookie(1));
        assert!(registry.knows(&cookie(1), HERE), "for a moment still");
        assert!(!registry.knows(&cookie(1), THERE));
    }

    #[test]
    fn the_past_is_forgotten() {
        let mut registry = Registry::default();
        for number in 0..5000 {
            registry.open(cookie(number), HERE);
            registry.close(cookie(number));
        }
        assert_eq!(registry.past.len(), PAST);
        assert!(matches!(registry.find(&cookie(0), HERE), Known::New));
        assert!(matches!(registry.find(&cookie(4999), HERE), Known::Past));
    }

    #[test]
    fn a_hello_belongs_to_the_one_test_of_its_address_that_waits_for_it() {
        let mut registry = Registry::default();
        let address = |last| IpAddr::from([192, 0, 2, last]);
        let local = SocketAddr::from(([198, 51, 100, 1], 5201));
        let _arrivals = [1, 2, 3].map(|number| registry.open(cookie(number), HERE));
        assert!(registry.expecting(address(1)).is_none());
        assert!(registry.expect_hellos(cookie(1), address(1), local));
        assert!(registry.expecting(address(1)).is_some_and(|(there, _)| there == local));
        assert!(registry.expecting(address(2)).is_none());
        assert!(!registry.expect_hellos(cookie(2), address(1), local), "one at a time");
        assert!(registry.expect_hellos(cookie(3), address(2), local));
        registry.streams_are_open(&cookie(1));
        assert!(registry.expecting(address(1)).is_none());
        assert!(registry.expect_hellos(cookie(2), address(1), local));
        registry.close(cookie(2));
        assert!(registry.expecting(address(1)).is_none(), "a test that has ended waits for nothing");
    }
}
