//! Tests under way, by their cookies.

use std::collections::{HashMap, VecDeque};
use std::net::TcpStream;

use fullpipe_iperf::Cookie;
use tokio::sync::mpsc;

use super::gate::Pass;

/// Tests that are remembered after their end.
const PAST: usize = 1024;

/// A data connection on its way to its test.
#[derive(Debug)]
pub(super) struct Arrival {
    pub(super) stream: TcpStream,
    /// Its place, until the test takes it in. Streams are numbered in the order of these, which is that in which they were
    /// accepted: greetings may overtake each other.
    pub(super) pass: Pass,
}

/// What a cookie stands for.
pub(super) enum Known {
    /// A test under way, and where its data connections go.
    Test(mpsc::UnboundedSender<Arrival>),
    /// A test that has ended: what still comes is late.
    Past,
    /// Nothing yet: a new test.
    New,
}

/// Tests by their cookies, those under way and the last that have ended.
#[derive(Debug, Default)]
pub(super) struct Registry {
    open: HashMap<Cookie, mpsc::UnboundedSender<Arrival>>,
    past: VecDeque<Cookie>,
}

impl Registry {
    pub(super) fn find(&self, cookie: &Cookie) -> Known {
        match self.open.get(cookie) {
            Some(test) => Known::Test(test.clone()),
            None if self.past.contains(cookie) => Known::Past,
            None => Known::New,
        }
    }

    /// Begins a test; its data connections come out of what is given back.
    pub(super) fn open(&mut self, cookie: Cookie) -> mpsc::UnboundedReceiver<Arrival> {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.open.insert(cookie, sender);
        receiver
    }

    pub(super) fn close(&mut self, cookie: Cookie) {
        self.open.remove(&cookie);
        if self.past.len() == PAST {
            self.past.pop_front();
        }
        self.past.push_back(cookie);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cookie(number: u64) -> Cookie {
        let mut bytes = [b'a'; Cookie::LENGTH];
        bytes[..20].copy_from_slice(format!("{number:020}").as_bytes());
        Cookie::from_bytes(bytes)
    }

    #[test]
    fn a_late_data_connection_begins_no_test() {
        let mut registry = Registry::default();
        assert!(matches!(registry.find(&cookie(1)), Known::New));
        let _arrivals = registry.open(cookie(1));
        assert!(matches!(registry.find(&cookie(1)), Known::Test(_)));
        registry.close(cookie(1));
        assert!(matches!(registry.find(&cookie(1)), Known::Past));
    }

    #[test]
    fn the_past_is_forgotten() {
        let mut registry = Registry::default();
        for number in 0..5000 {
            registry.open(cookie(number));
            registry.close(cookie(number));
        }
        assert_eq!(registry.past.len(), PAST);
        assert!(matches!(registry.find(&cookie(0)), Known::New));
        assert!(matches!(registry.find(&cookie(4999)), Known::Past));
    }
}
