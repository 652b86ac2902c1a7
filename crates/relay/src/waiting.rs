//! Clients that wait for one thing each, of which there come a few at a time.

use std::collections::VecDeque;
use std::net::IpAddr;

use fullpipe_control::client_prefix;
use tokio::sync::oneshot;

/// Clients that wait, by prefix ([`client_prefix`]): one of each has its turn before the next one
/// of any.
pub(crate) struct WaitingClients<T> {
    of_each: VecDeque<(u128, VecDeque<oneshot::Sender<T>>)>,
}

impl<T> Default for WaitingClients<T> {
    fn default() -> Self {
        Self {
            of_each: VecDeque::new(),
        }
    }
}

impl<T> WaitingClients<T> {
    /// Adds a client. It has left once it drops what is returned.
    pub(crate) fn add_client(&mut self, address: IpAddr) -> oneshot::Receiver<T> {
        let (client, receives) = oneshot::channel();
        let prefix = client_prefix(address);
        match self.of_each.iter_mut().find(|(other, _)| *other == prefix) {
            Some((_, clients)) => clients.push_back(client),
            None => self.of_each.push_back((prefix, [client].into())),
        }
        receives
    }

    /// Returns the number of clients, with some that have left.
    pub(crate) fn count(&self) -> usize {
        self.of_each.iter().map(|(_, clients)| clients.len()).sum()
    }

    /// Gives `thing` to the client whose turn it is. Returns it if none waits.
    pub(crate) fn hand_out(&mut self, mut thing: T) -> Option<T> {
        while let Some((prefix, mut clients)) = self.of_each.pop_front() {
            while let Some(client) = clients.pop_front() {
                match client.send(thing) {
                    // It has left.
                    Err(unheard) => thing = unheard,
                    Ok(()) if clients.is_empty() => return None,
                    Ok(()) => {
                        self.of_each.push_back((prefix, clients));
                        return None;
                    }
                }
            }
        }
        Some(thing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    #[test]
    fn a_client_of_another_address_waits_for_one_of_each_and_not_for_all() {
        let mut waiting = WaitingClients::default();
        let mut many: Vec<_> = (0..200)
            .map(|n| waiting.add_client(address(n % 2)))
            .collect();
        let mut fresh = waiting.add_client(address(9));
        let mut second = waiting.add_client(address(9));
        assert_eq!(waiting.count(), 202);
        for thing in 0..3 {
            assert_eq!(waiting.hand_out(thing), None);
        }
        assert_eq!(fresh.try_recv(), Ok(2));
        assert!(second.try_recv().is_err());
        assert_eq!((many[0].try_recv(), many[1].try_recv()), (Ok(0), Ok(1)));
        // Within an address the first comes first.
        assert_eq!(waiting.hand_out(3), None);
        assert_eq!(many[2].try_recv(), Ok(3));
    }

    #[test]
    fn what_nobody_waits_for_any_more_comes_back() {
        let mut waiting = WaitingClients::default();
        drop((
            waiting.add_client(address(1)),
            waiting.add_client(address(2)),
        ));
        let mut left = waiting.add_client(address(1));
        assert_eq!(waiting.hand_out(7), None);
        assert_eq!(left.try_recv(), Ok(7));
        assert_eq!((waiting.hand_out(8), waiting.count()), (Some(8), 0));
    }
}
