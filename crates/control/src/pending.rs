//! Clients of a server that have not yet proved who they are, or said what they want: how many
//! there may be, and who gives way.
//!
//! Once all places are taken, a client of the prefix that has most of them gives way. Honest
//! clients send their first bytes at once, so silent ones give way first, and hosts that open
//! connections and send nothing keep no client out, whatever their address. Who has sent something
//! has a second to prove itself.

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::net::TcpStream;
use tokio::sync::oneshot;

use crate::network::client_prefix;
use fullpipe_sys::lock;

/// Time after which a client that has sent something gives way to others of its own prefix, and
/// where no client is silent to those of all. Were it none, more honest clients behind one address
/// than there are places for would keep each other from ever proving themselves.
const GRACE: Duration = Duration::from_secs(1);

/// The pending clients of a server by prefix ([`client_prefix`]).
#[derive(Debug, Clone)]
pub struct PendingClients {
    places: Arc<Mutex<PendingPlaces>>,
    max: usize,
    max_waiting_of_one: usize,
}

#[derive(Debug, Default)]
struct PendingPlaces {
    of_each: HashMap<u128, PlacesOfOne>,
    taken: usize,
    /// The number of the next client.
    next: u64,
}

/// The clients of one prefix.
#[derive(Debug, Default)]
struct PlacesOfOne {
    /// Clients that have sent nothing, and others that have not proved who they are: the first
    /// first.
    silent: VecDeque<UnprovenClient>,
    speaking: VecDeque<UnprovenClient>,
    /// Number of clients that have proved who they are, and wait for a place.
    waiting: usize,
}

#[derive(Debug)]
struct UnprovenClient {
    number: u64,
    since: Instant,
    /// Once this is dropped, its place is lost.
    _keeps: oneshot::Sender<Infallible>,
}

/// The place of a pending client, until it is dropped.
#[derive(Debug)]
pub struct PendingPlace {
    places: Arc<Mutex<PendingPlaces>>,
    max_waiting_of_one: usize,
    prefix: u128,
    number: u64,
    lost: oneshot::Receiver<Infallible>,
    is_proven: bool,
}

impl PendingClients {
    /// Returns `max` places. Of the clients of one prefix that have proved themselves,
    /// `max_waiting_of_one` may wait.
    pub fn new(max: usize, max_waiting_of_one: usize) -> Self {
        Self {
            places: Arc::default(),
            max,
            max_waiting_of_one,
        }
    }

    /// Gives a client a place, which another may lose by that; `None` if there is none.
    pub fn admit_client(&self, address: IpAddr, now: Instant) -> Option<PendingPlace> {
        self.admit_expecting(address, now, self.is_full(), &|_| 0)
    }

    /// Does the same as [`PendingClients::admit_client`] at a server that says whether it
    /// `is_full`, and how many connections it expects of a prefix: they give way to no other
    /// client.
    pub fn admit_expecting(
        &self,
        address: IpAddr,
        now: Instant,
        is_full: bool,
        expected: &dyn Fn(u128) -> usize,
    ) -> Option<PendingPlace> {
        let prefix = client_prefix(address);
        let mut places = lock(&self.places);
        if is_full && !places.make_room(prefix, now, expected) {
            return None;
        }
        let (number, lost) = places.add_silent(prefix, now);
        Some(PendingPlace {
            places: Arc::clone(&self.places),
            max_waiting_of_one: self.max_waiting_of_one,
            prefix,
            number,
            lost,
            is_proven: false,
        })
    }

    /// Returns the number of places that are taken.
    pub fn places_taken(&self) -> usize {
        lock(&self.places).taken
    }

    /// Returns true if all places are taken.
    pub fn is_full(&self) -> bool {
        self.places_taken() >= self.max
    }
}

impl PlacesOfOne {
    fn unproven_clients(&self) -> usize {
        self.silent.len() + self.speaking.len()
    }

    /// Takes the place of the first silent client, else of the first that is in `speaking` and
    /// permitted to lose it.
    fn take_first(
        &mut self,
        may_speak: impl FnOnce(&mut UnprovenClient) -> bool,
    ) -> Option<UnprovenClient> {
        self.silent
            .pop_front()
            .or_else(|| self.speaking.pop_front_if(may_speak))
    }

    fn remove_client(&mut self, number: u64) -> Option<UnprovenClient> {
        [&mut self.silent, &mut self.speaking]
            .into_iter()
            .find_map(|clients| {
                let place = clients
                    .binary_search_by_key(&number, |client| client.number)
                    .ok()?;
                clients.remove(place)
            })
    }
}

impl PendingPlaces {
    /// Adds a client that has sent nothing. Returns its number, and the end at which it learns that
    /// its place is lost.
    fn add_silent(&mut self, prefix: u128, since: Instant) -> (u64, oneshot::Receiver<Infallible>) {
        let (keeps, lost) = oneshot::channel();
        let number = self.next;
        self.next += 1;
        self.taken += 1;
        let one = self.of_each.entry(prefix).or_default();
        one.silent.push_back(UnprovenClient {
            number,
            since,
            _keeps: keeps,
        });
        (number, lost)
    }

    /// Takes a place of the prefix with most of them beyond those expected, which is that of the
    /// new client if no other has more than that would then; and where that has none to give, of
    /// the client that has been silent longest, or speaking. Returns false if all keep theirs.
    fn make_room(
        &mut self,
        newcomer: u128,
        now: Instant,
        expected: &dyn Fn(u128) -> usize,
    ) -> bool {
        let beyond = |prefix: u128, one: &PlacesOfOne| {
            one.unproven_clients().saturating_sub(expected(prefix))
        };
        let own = self
            .of_each
            .get(&newcomer)
            .map_or(0, |one| beyond(newcomer, one));
        let most = self
            .of_each
            .iter_mut()
            .max_by_key(|(prefix, one)| beyond(**prefix, one));
        let is_late =
            |first: &mut UnprovenClient| now.saturating_duration_since(first.since) >= GRACE;
        let leaves = match most {
            Some((prefix, most)) if beyond(*prefix, most) > own + 1 => most.take_first(|_| true),
            _ => {
                let of_own = self.of_each.get_mut(&newcomer).filter(|_| own > 0);
                of_own
                    .and_then(|one| one.take_first(is_late))
                    .or_else(|| self.take_longest(is_late))
            }
        };
        self.taken -= usize::from(leaves.is_some());
        leaves.is_some()
    }

    /// Takes the place of the client that has been silent longest; if none is, of the one that has
    /// been speaking longest, if that `is_late`.
    fn take_longest(
        &mut self,
        is_late: impl FnOnce(&mut UnprovenClient) -> bool,
    ) -> Option<UnprovenClient> {
        let silent = self
            .of_each
            .values_mut()
            .map(|one| &mut one.silent)
            .min_by_key(|clients| first_number(clients));
        if let Some(client) = silent.and_then(VecDeque::pop_front) {
            return Some(client);
        }
        let speaking = self
            .of_each
            .values_mut()
            .map(|one| &mut one.speaking)
            .min_by_key(|clients| first_number(clients));
        speaking?.pop_front_if(is_late)
    }

    fn remove_place(&mut self, place: &PendingPlace) {
        let Some(one) = self.of_each.get_mut(&place.prefix) else {
            return;
        };
        if place.is_proven {
            one.waiting -= 1;
            self.taken -= 1;
        } else if one.remove_client(place.number).is_some() {
            // One that has lost its place is not there any more.
            self.taken -= 1;
        }
        if one.unproven_clients() + one.waiting == 0 {
            self.of_each.remove(&place.prefix);
        }
    }
}

fn first_number(clients: &VecDeque<UnprovenClient>) -> u64 {
    clients.front().map_or(u64::MAX, |client| client.number)
}

impl PendingPlace {
    /// Returns the result of `work`; `None` as soon as the place is lost.
    pub async fn unless_lost<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            result = work => Some(result),
            _ = &mut self.lost => None,
        }
    }

    /// Returns true if another client has it.
    pub fn is_lost(&mut self) -> bool {
        self.lost.try_recv() == Err(oneshot::error::TryRecvError::Closed)
    }

    /// Waits until the client has sent something, or its connection has ended, and leaves it there
    /// to be read. Returns `None` as soon as the place is lost.
    ///
    /// # Errors
    /// Fails if the socket does.
    pub async fn wait_for_first_byte(&mut self, stream: &TcpStream) -> Option<io::Result<()>> {
        let readable = self.unless_lost(stream.readable()).await?;
        self.note_first_byte();
        Some(readable)
    }

    /// Notes that the client has sent something.
    fn note_first_byte(&self) {
        if let Some(one) = lock(&self.places).of_each.get_mut(&self.prefix)
            && let Some(client) = one.remove_client(self.number)
        {
            let place = one
                .speaking
                .partition_point(|other| other.number < client.number);
            one.speaking.insert(place, client);
        }
    }

    /// Notes that the client has proved who it is: it keeps its place from now on.
    ///
    /// # Errors
    /// Fails if too many of its prefix wait for room.
    pub fn mark_proven(&mut self) -> io::Result<()> {
        let mut places = lock(&self.places);
        let one = places.of_each.entry(self.prefix).or_default();
        if one.waiting >= self.max_waiting_of_one {
            return Err(io::Error::other(
                "too many connections of its address wait for room",
            ));
        }
        let was_there = one.remove_client(self.number).is_some();
        one.waiting += 1;
        places.taken += usize::from(!was_there);
        self.is_proven = true;
        Ok(())
    }
}

impl Drop for PendingPlace {
    fn drop(&mut self) {
        lock(&self.places).remove_place(self);
    }
}

#[cfg(test)]
mod tests;
