//! The tests under way by their cookies, and those that wait for UDP streams by the addresses of
//! their clients.

use std::collections::{HashMap, HashSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use crate::engine::StreamChannel;
use fullpipe_control::client_prefix;
use fullpipe_iperf::{TestCookie, udp};
use tokio::sync::mpsc;

use super::admission::AdmissionPermit;

/// Maximum number of tests whose cookies are kept after their end.
const MAX_CLOSED: usize = 1024;

/// Time after the end of a test for which its echo requests are answered.
const ECHO_TIMEOUT: Duration = Duration::from_secs(3);

/// A stream that was accepted for a test.
pub(super) struct AcceptedStream {
    pub channel: StreamChannel,
    /// Permit of the pending connection. Its number orders the streams, because the first bytes of
    /// a later connection may be read earlier.
    pub permit: AdmissionPermit,
}

/// The sending half of the channel by which a test receives its streams.
pub(super) type StreamSender = mpsc::UnboundedSender<AcceptedStream>;

/// The state of the test that a cookie identifies.
pub(super) enum CookieState {
    /// The test is under way.
    Open(StreamSender),
    /// The test has ended, or belongs to another client: the connection is refused.
    Closed,
    /// There is no such test yet: the connection starts it.
    New,
}

/// A test that waits for UDP streams.
struct PendingStreams {
    cookie: TestCookie,
    /// Local address of its control connection.
    local: SocketAddr,
    /// True if its client sends its cookie with each hello.
    needs_cookie: bool,
    /// Addresses from which it has streams already.
    open: HashSet<SocketAddr>,
}

/// A test that has ended.
struct ClosedTest {
    cookie: TestCookie,
    client: Option<IpAddr>,
    ended: Instant,
}

/// The tests under way, and the last ones that have ended.
#[derive(Default)]
pub(super) struct TestRegistry {
    open: HashMap<TestCookie, (IpAddr, StreamSender)>,
    closed: VecDeque<ClosedTest>,
    /// The test that waits for UDP streams, by client. The first datagram of a stream shows only
    /// its source address, so only one test of each address opens streams at a time.
    pending_streams: HashMap<IpAddr, PendingStreams>,
}

impl TestRegistry {
    /// Returns the state of the test for a `cookie` that `client` sent. Others can read cookies on
    /// the path, so a test accepts streams only from the client prefix that started it.
    pub(super) fn cookie_state(&self, cookie: &TestCookie, client: IpAddr) -> CookieState {
        match self.open.get(cookie) {
            Some((owner, test)) if client_prefix(*owner) == client_prefix(client) => {
                CookieState::Open(test.clone())
            }
            Some(_) => CookieState::Closed,
            None if self.closed.iter().any(|test| test.cookie == *cookie) => CookieState::Closed,
            None => CookieState::New,
        }
    }

    /// Opens a test of `client`, and returns the receiver of its streams.
    pub(super) fn open_test(
        &mut self,
        cookie: TestCookie,
        client: IpAddr,
    ) -> mpsc::UnboundedReceiver<AcceptedStream> {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.open.insert(cookie, (client, sender));
        receiver
    }

    /// Returns true if `client` has a test with this `cookie`, or had one until [`ECHO_TIMEOUT`]
    /// ago: clients also measure the path after the load.
    pub(super) fn is_client(&self, cookie: &TestCookie, client: IpAddr) -> bool {
        match self.open.get(cookie) {
            Some((owner, _)) => *owner == client,
            None => self
                .closed
                .iter()
                .rev()
                .take_while(|test| test.ended.elapsed() < ECHO_TIMEOUT)
                .any(|test| test.cookie == *cookie && test.client == Some(client)),
        }
    }

    /// Closes a test, and keeps its cookie for a while.
    pub(super) fn close_test(&mut self, cookie: TestCookie) {
        self.stop_expecting(&cookie);
        let client = self.open.remove(&cookie).map(|(client, _)| client);
        if self.closed.len() == MAX_CLOSED {
            self.closed.pop_front();
        }
        self.closed.push_back(ClosedTest {
            cookie,
            client,
            ended: Instant::now(),
        });
    }

    /// Accepts UDP streams from `client` for the test with this `cookie`, whose control connection
    /// has the local address `local`; only hellos with its cookie open them if it `needs_cookie`.
    /// Returns false while another test of the same client address is opening its streams.
    pub(super) fn expect_udp_streams(
        &mut self,
        cookie: TestCookie,
        client: IpAddr,
        local: SocketAddr,
        needs_cookie: bool,
    ) -> bool {
        if self.pending_streams.contains_key(&client) {
            return false;
        }
        self.pending_streams.insert(
            client,
            PendingStreams {
                cookie,
                local,
                needs_cookie,
                open: HashSet::new(),
            },
        );
        true
    }

    /// Accepts no more UDP streams for the test with this `cookie`.
    pub(super) fn stop_expecting(&mut self, cookie: &TestCookie) {
        self.pending_streams
            .retain(|_, pending| pending.cookie != *cookie);
    }

    /// Returns the local address of the control connection, and the channel, of the test that waits
    /// for a UDP stream from `client`, which sent `hello`; `None` if there is none, it has that
    /// stream already, or the hello is not from its client.
    pub(super) fn expecting_test(
        &self,
        client: SocketAddr,
        hello: &[u8],
    ) -> Option<(SocketAddr, StreamSender)> {
        let PendingStreams {
            cookie,
            local,
            needs_cookie,
            open,
        } = self.pending_streams.get(&client.ip())?;
        if open.contains(&client) || (*needs_cookie && !udp::has_cookie(hello, cookie)) {
            return None;
        }
        Some((*local, self.open.get(cookie)?.1.clone()))
    }

    /// Notes that the test which waits for UDP streams of this client has the one from `client`.
    pub(super) fn opened_udp_stream(&mut self, client: SocketAddr) {
        if let Some(pending) = self.pending_streams.get_mut(&client.ip()) {
            pending.open.insert(client);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
    const THERE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));

    fn cookie(number: u64) -> TestCookie {
        let mut bytes = [b'a'; TestCookie::LENGTH];
        bytes[..20].copy_from_slice(format!("{number:020}").as_bytes());
        TestCookie::from_bytes(bytes)
    }

    #[test]
    fn a_late_data_connection_starts_no_test() {
        let mut registry = TestRegistry::default();
        assert!(matches!(
            registry.cookie_state(&cookie(1), HERE),
            CookieState::New
        ));
        let _streams = registry.open_test(cookie(1), HERE);
        assert!(matches!(
            registry.cookie_state(&cookie(1), HERE),
            CookieState::Open(_)
        ));
        registry.close_test(cookie(1));
        assert!(matches!(
            registry.cookie_state(&cookie(1), HERE),
            CookieState::Closed
        ));
    }

    #[test]
    fn a_cookie_is_not_enough_to_add_a_stream_from_another_address() {
        let mut registry = TestRegistry::default();
        let _streams = registry.open_test(cookie(1), HERE);
        assert!(matches!(
            registry.cookie_state(&cookie(1), THERE),
            CookieState::Closed
        ));
        assert!(matches!(
            registry.cookie_state(&cookie(1), HERE),
            CookieState::Open(_)
        ));
    }

    #[test]
    fn a_client_is_recognised_by_cookie_and_address() {
        let mut registry = TestRegistry::default();
        let _streams = registry.open_test(cookie(1), HERE);
        assert!(registry.is_client(&cookie(1), HERE));
        assert!(!registry.is_client(&cookie(1), THERE) && !registry.is_client(&cookie(2), HERE));
        registry.close_test(cookie(1));
        assert!(
            registry.is_client(&cookie(1), HERE),
            "echo requests are still answered"
        );
        assert!(!registry.is_client(&cookie(1), THERE));
    }

    #[test]
    fn the_number_of_closed_tests_is_bounded() {
        let mut registry = TestRegistry::default();
        for number in 0..5000 {
            registry.open_test(cookie(number), HERE);
            registry.close_test(cookie(number));
        }
        assert_eq!(registry.closed.len(), MAX_CLOSED);
        assert!(matches!(
            registry.cookie_state(&cookie(0), HERE),
            CookieState::New
        ));
        assert!(matches!(
            registry.cookie_state(&cookie(4999), HERE),
            CookieState::Closed
        ));
    }

    #[test]
    fn a_udp_stream_belongs_to_the_one_test_of_its_address_that_waits_for_streams() {
        let mut registry = TestRegistry::default();
        let address = |last| IpAddr::from([192, 0, 2, last]);
        let stream = |last| SocketAddr::new(address(last), 40_000);
        let local = SocketAddr::from(([198, 51, 100, 1], 5201));
        let _streams = [1, 2, 3].map(|number| registry.open_test(cookie(number), HERE));
        assert!(registry.expecting_test(stream(1), &udp::HELLO).is_none());
        assert!(registry.expect_udp_streams(cookie(1), address(1), local, false));
        assert!(
            registry
                .expecting_test(stream(1), &udp::HELLO)
                .is_some_and(|(address, _)| address == local)
        );
        assert!(registry.expecting_test(stream(2), &udp::HELLO).is_none());
        assert!(
            !registry.expect_udp_streams(cookie(2), address(1), local, false),
            "one at a time"
        );
        assert!(registry.expect_udp_streams(cookie(3), address(2), local, false));
        registry.stop_expecting(&cookie(1));
        assert!(registry.expecting_test(stream(1), &udp::HELLO).is_none());
        assert!(registry.expect_udp_streams(cookie(2), address(1), local, false));
        registry.close_test(cookie(2));
        assert!(
            registry.expecting_test(stream(1), &udp::HELLO).is_none(),
            "a test that has ended accepts no streams"
        );
    }

    #[test]
    fn a_repeated_hello_is_none_of_another_stream() {
        let mut registry = TestRegistry::default();
        let [first, second] = [40_000, 40_001].map(|port| SocketAddr::new(HERE, port));
        let local = SocketAddr::from(([198, 51, 100, 1], 5201));
        let _streams = [1, 2].map(|number| registry.open_test(cookie(number), HERE));
        assert!(registry.expect_udp_streams(cookie(1), HERE, local, false));
        registry.opened_udp_stream(first);
        assert!(
            registry.expecting_test(first, &udp::HELLO).is_none()
                && registry.expecting_test(second, &udp::HELLO).is_some()
        );
        registry.close_test(cookie(1));
        assert!(registry.expect_udp_streams(cookie(2), HERE, local, false));
        assert!(
            registry.expecting_test(first, &udp::HELLO).is_some(),
            "the next test may use the port again"
        );
    }

    /// Anybody could send one in the name of a client, which redirected a stream.
    #[test]
    fn a_forged_hello_opens_no_stream_of_a_client_that_sends_its_cookie() {
        let mut registry = TestRegistry::default();
        let local = SocketAddr::from(([198, 51, 100, 1], 5201));
        let _streams = registry.open_test(cookie(1), HERE);
        assert!(registry.expect_udp_streams(cookie(1), HERE, local, true));
        let opens = |hello: &[u8]| {
            registry
                .expecting_test(SocketAddr::new(HERE, 40_000), hello)
                .is_some()
        };
        assert!(!opens(&udp::HELLO) && !opens(&udp::hello_with(&cookie(2))));
        assert!(opens(&udp::hello_with(&cookie(1))));
    }
}
