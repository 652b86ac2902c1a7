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
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::net::TcpStream;
use tokio::sync::oneshot;

use crate::network::client_prefix;

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
        let mut places = lock_places(&self.places);
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
        lock_places(&self.places).taken
    }

    /// Returns true if all places are taken.
    pub fn is_full(&self) -> bool {
        self.places_taken() >= self.max
    }
}

fn lock_places(places: &Mutex<PendingPlaces>) -> MutexGuard<'_, PendingPlaces> {
    places.lock().unwrap_or_else(PoisonError::into_inner)
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
        if let Some(one) = lock_places(&self.places).of_each.get_mut(&self.prefix)
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
        let mut places = lock_places(&self.places);
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
        lock_places(&self.places).remove_place(self);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const MAX_PENDING: usize = 1024;
    const MAX_WAITING_OF_ONE: usize = 256;
    const OTHER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));

    fn pending_clients() -> PendingClients {
        PendingClients::new(MAX_PENDING, MAX_WAITING_OF_ONE)
    }

    /// All places, taken by one address at this time, by callers that have sent something.
    fn full(pending: &PendingClients, at: Instant) -> VecDeque<PendingPlace> {
        let places: VecDeque<_> = (0..MAX_PENDING)
            .map(|_| pending.admit_client(ONE, at).unwrap())
            .collect();
        places.iter().for_each(PendingPlace::note_first_byte);
        places
    }

    #[test]
    fn the_address_with_most_callers_gives_way_until_both_have_as_many() {
        let (pending, now) = (pending_clients(), Instant::now());
        let mut callers = full(&pending, now);
        let mut others: VecDeque<_> = (0..MAX_PENDING / 2)
            .map(|_| pending.admit_client(OTHER, now).unwrap())
            .collect();
        // Those that were there first have lost their places.
        let lost: Vec<bool> = callers.iter_mut().map(PendingPlace::is_lost).collect();
        assert!(
            lost[..MAX_PENDING / 2].iter().all(|lost| *lost)
                && !lost[MAX_PENDING / 2..].contains(&true)
        );
        assert!(!others.iter_mut().any(PendingPlace::is_lost));
        others.iter().for_each(PendingPlace::note_first_byte);
        assert!(
            pending.admit_client(OTHER, now).is_none() && pending.admit_client(ONE, now).is_none()
        );
        drop((callers, others));
        assert!(lock_places(&pending.places).of_each.is_empty());
    }

    #[test]
    fn a_caller_gives_way_to_its_own_address_once_it_has_had_time_to_prove_itself() {
        let (pending, now) = (pending_clients(), Instant::now());
        let mut callers = full(&pending, now);
        assert!(pending.is_full() && pending.admit_client(ONE, now + GRACE / 2).is_none());
        let next = pending.admit_client(ONE, now + GRACE).unwrap();
        assert!(callers[0].is_lost() && !callers[1].is_lost());
        // One that ends by itself leaves its place to the next.
        callers.pop_back();
        assert!(!pending.is_full());
        drop(next);
    }

    #[test]
    fn silent_callers_give_way_first() {
        let (pending, now) = (pending_clients(), Instant::now());
        let mut silent: Vec<_> = (0..MAX_PENDING)
            .map(|_| pending.admit_client(ONE, now).unwrap())
            .collect();
        let mut speaking = silent.remove(0);
        speaking.note_first_byte();
        // As many again of the same address, and all of them lose their places to those that
        // follow.
        let _more: Vec<_> = (0..2 * MAX_PENDING)
            .map(|_| pending.admit_client(ONE, now).unwrap())
            .collect();
        assert!(
            silent.iter_mut().all(PendingPlace::is_lost)
                && !speaking.is_lost()
                && pending.is_full()
        );
    }

    #[test]
    fn silent_callers_of_very_many_addresses_give_way_too() {
        let (pending, now) = (pending_clients(), Instant::now());
        let address = |number: usize| IpAddr::from((number as u32).to_be_bytes());
        let mut places: Vec<_> = (0..MAX_PENDING)
            .map(|number| pending.admit_client(address(number), now).unwrap())
            .collect();
        let newcomer = pending.admit_client(ONE, now).unwrap();
        assert!(places[0].is_lost() && !places[1..].iter_mut().any(PendingPlace::is_lost));
        // Where all have sent something, those that prove nothing give way after a while.
        places.iter().for_each(PendingPlace::note_first_byte);
        newcomer.note_first_byte();
        assert!(pending.admit_client(OTHER, now + GRACE / 2).is_none());
        let _next = pending.admit_client(OTHER, now + GRACE).unwrap();
        assert!(places[1].is_lost() && !places[2..].iter_mut().any(PendingPlace::is_lost));
    }

    #[test]
    fn connections_that_are_expected_give_way_to_nobody() {
        let (pending, now) = (pending_clients(), Instant::now());
        let expected = |prefix| {
            if prefix == client_prefix(ONE) {
                MAX_PENDING / 2
            } else {
                0
            }
        };
        let admit = |address| pending.admit_expecting(address, now, pending.is_full(), &expected);
        let mut silent: Vec<_> = (0..MAX_PENDING).map(|_| admit(OTHER).unwrap()).collect();
        let mut streams: Vec<_> = (0..MAX_PENDING / 2).map(|_| admit(ONE).unwrap()).collect();
        let _more: Vec<_> = (0..MAX_PENDING).map(|_| admit(OTHER).unwrap()).collect();
        assert!(
            silent.iter_mut().all(PendingPlace::is_lost)
                && !streams.iter_mut().any(PendingPlace::is_lost)
        );
    }

    #[test]
    fn who_has_proved_itself_keeps_its_place() {
        let (pending, now) = (pending_clients(), Instant::now());
        let mut callers = full(&pending, now);
        let results: Vec<bool> = callers
            .iter_mut()
            .map(|place| place.mark_proven().is_ok())
            .collect();
        assert!(results[..MAX_WAITING_OF_ONE].iter().all(|proven| *proven));
        assert!(!results[MAX_WAITING_OF_ONE..].contains(&true));
        let newcomer = || {
            pending
                .admit_client(OTHER, now)
                .inspect(PendingPlace::note_first_byte)
        };
        let newcomers: Vec<_> = (0..MAX_PENDING).map_while(|_| newcomer()).collect();
        // Half of the others' places, as many as they have then.
        assert_eq!(newcomers.len(), (MAX_PENDING - MAX_WAITING_OF_ONE) / 2);
        // Room was found for them.
        callers.drain(..MAX_WAITING_OF_ONE);
        assert!(callers.back_mut().unwrap().mark_proven().is_ok());
    }

    #[tokio::test]
    async fn a_proof_is_given_up_when_its_place_is_lost() {
        let (pending, now) = (pending_clients(), Instant::now());
        let mut callers = full(&pending, now);
        assert_eq!(callers[0].unless_lost(std::future::ready(7)).await, Some(7));
        let _other = pending.admit_client(OTHER, now).unwrap();
        assert_eq!(
            callers[0].unless_lost(std::future::pending::<()>()).await,
            None
        );
    }
}
