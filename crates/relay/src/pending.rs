//! Callers of a far relay that have not yet proved who they are, or wait for room: how many there may be, and who gives
//! way.
//!
//! Once all places are taken, a caller of the address that has most of them gives way. A near relay sends its first
//! bytes at once, so silent callers give way first, and hosts that open connections and send nothing keep nobody out,
//! whatever their address. A near relay has proved itself after three round trips, and has a second for them.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::io;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use fullpipe_control::client_prefix;
use tokio::sync::oneshot;

/// Callers of a far relay at once that have not yet proved who they are, or wait for room.
pub(crate) const MAX_PENDING: usize = 1024;

/// Callers of one address that wait for room, at most.
const MAX_WAITING_OF_ONE: usize = 256;

/// Time after which a caller that has sent something gives way to others of its own address. Were it none, more near
/// relays behind one address than there are places for would keep each other from ever proving themselves.
const GRACE: Duration = Duration::from_secs(1);

/// The callers of a far relay by address (IPv6: by /64 network).
#[derive(Debug, Default, Clone)]
pub(crate) struct Pending(Rc<RefCell<Places>>);

#[derive(Debug, Default)]
struct Places {
    of_each: HashMap<u128, OfOne>,
    /// The number of the next caller.
    next: u64,
}

/// The callers of one address.
#[derive(Debug, Default)]
struct OfOne {
    /// Those that have sent nothing, and others that have not proved who they are: the first first.
    silent: VecDeque<Unproven>,
    speaking: VecDeque<Unproven>,
    /// Those that have, and wait for room.
    waiting: usize,
}

#[derive(Debug)]
struct Unproven {
    number: u64,
    since: Instant,
    /// Once this is dropped, its place is lost.
    _keeps: oneshot::Sender<Infallible>,
}

/// The place of a caller, until it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    all: Pending,
    prefix: u128,
    number: u64,
    lost: oneshot::Receiver<Infallible>,
    is_proven: bool,
}

impl Pending {
    /// Gives a caller a place, which another may lose by that; `None` if there is none.
    pub(crate) fn admit(&self, address: IpAddr, now: Instant) -> Option<Place> {
        let prefix = client_prefix(address);
        let mut places = self.0.borrow_mut();
        if places.count() >= MAX_PENDING && !places.make_room(prefix, now) {
            return None;
        }
        let (keeps, lost) = oneshot::channel();
        let number = places.next;
        places.next += 1;
        let caller = Unproven { number, since: now, _keeps: keeps };
        places.of_each.entry(prefix).or_default().silent.push_back(caller);
        Some(Place { all: self.clone(), prefix, number, lost, is_proven: false })
    }

    /// Returns whether all places are taken.
    pub(crate) fn is_full(&self) -> bool {
        self.0.borrow().count() >= MAX_PENDING
    }
}

impl OfOne {
    fn unproven(&self) -> usize {
        self.silent.len() + self.speaking.len()
    }

    fn remove(&mut self, number: u64) -> Option<Unproven> {
        [&mut self.silent, &mut self.speaking].into_iter().find_map(|callers| {
            let place = callers.binary_search_by_key(&number, |caller| caller.number).ok()?;
            callers.remove(place)
        })
    }
}

impl Places {
    fn count(&self) -> usize {
        self.of_each.values().map(|one| one.unproven() + one.waiting).sum()
    }

    /// Takes a place of the address with most of them, which is that of the new caller if no other has more than that
    /// would then; and where that has none to give, of the caller that has been silent longest. Returns false if all
    /// keep theirs.
    fn make_room(&mut self, newcomer: u128, now: Instant) -> bool {
        let own = self.of_each.get(&newcomer).map_or(0, OfOne::unproven);
        let most = self.of_each.values_mut().max_by_key(|one| one.unproven());
        if let Some(most) = most.filter(|one| one.unproven() > own + 1) {
            return most.silent.pop_front().or_else(|| most.speaking.pop_front()).is_some();
        }
        let is_late = |first: &mut Unproven| now.saturating_duration_since(first.since) >= GRACE;
        let of_own = self.of_each.get_mut(&newcomer);
        let leaves = of_own.and_then(|one| one.silent.pop_front().or_else(|| one.speaking.pop_front_if(is_late)));
        leaves.or_else(|| self.take_longest_silent()).is_some()
    }

    fn take_longest_silent(&mut self) -> Option<Unproven> {
        let first = |one: &&mut OfOne| one.silent.front().map(|caller| caller.number);
        self.of_each.values_mut().filter(|one| !one.silent.is_empty()).min_by_key(first)?.silent.pop_front()
    }

    fn remove(&mut self, place: &Place) {
        let Some(one) = self.of_each.get_mut(&place.prefix) else { return };
        if place.is_proven {
            one.waiting -= 1;
        } else {
            // One that has lost its place is not there any more.
            one.remove(place.number);
        }
        if one.unproven() + one.waiting == 0 {
            self.of_each.remove(&place.prefix);
        }
    }
}

impl Place {
    /// Returns the result of `work`; `None` as soon as the place is lost.
    pub(crate) async fn unless_lost<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            result = work => Some(result),
            _ = &mut self.lost => None,
        }
    }

    /// Notes that the caller has sent something.
    pub(crate) fn speaks(&self) {
        if let Some(one) = self.all.0.borrow_mut().of_each.get_mut(&self.prefix)
            && let Some(caller) = one.remove(self.number)
        {
            let place = one.speaking.partition_point(|other| other.number < caller.number);
            one.speaking.insert(place, caller);
        }
    }

    /// Notes that the caller has proved who it is: it keeps its place from now on.
    ///
    /// # Errors
    /// Fails if too many of its address wait for room.
    pub(crate) fn prove(&mut self) -> io::Result<()> {
        let mut places = self.all.0.borrow_mut();
        let one = places.of_each.entry(self.prefix).or_default();
        if one.waiting >= MAX_WAITING_OF_ONE {
            return Err(io::Error::other("too many connections of its address wait for room"));
        }
        one.remove(self.number);
        one.waiting += 1;
        self.is_proven = true;
        Ok(())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.all.0.borrow_mut().remove(self);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const OTHER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));

    /// All places, taken by one address at this time, by callers that have sent something.
    fn full(pending: &Pending, at: Instant) -> VecDeque<Place> {
        let places: VecDeque<_> = (0..MAX_PENDING).map(|_| pending.admit(ONE, at).unwrap()).collect();
        places.iter().for_each(Place::speaks);
        places
    }

    fn is_lost(place: &mut Place) -> bool {
        place.lost.try_recv() == Err(oneshot::error::TryRecvError::Closed)
    }

    #[test]
    fn the_address_with_most_callers_gives_way_until_both_have_as_many() {
        let (pending, now) = (Pending::default(), Instant::now());
        let mut callers = full(&pending, now);
        let mut others: VecDeque<_> = (0..MAX_PENDING / 2).map(|_| pending.admit(OTHER, now).unwrap()).collect();
        // Those that were there first have lost their places.
        let lost: Vec<bool> = callers.iter_mut().map(is_lost).collect();
        assert!(lost[..MAX_PENDING / 2].iter().all(|lost| *lost) && !lost[MAX_PENDING / 2..].contains(&true));
        assert!(!others.iter_mut().any(is_lost));
        others.iter().for_each(Place::speaks);
        assert!(pending.admit(OTHER, now).is_none() && pending.admit(ONE, now).is_none());
        drop((callers, others));
        assert!(pending.0.borrow().of_each.is_empty());
    }

    #[test]
    fn a_caller_gives_way_to_its_own_address_once_it_has_had_time_to_prove_itself() {
        let (pending, now) = (Pending::default(), Instant::now());
        let mut callers = full(&pending, now);
        assert!(pending.is_full() && pending.admit(ONE, now + GRACE / 2).is_none());
        let next = pending.admit(ONE, now + GRACE).unwrap();
        assert!(is_lost(&mut callers[0]) && !is_lost(&mut callers[1]));
        // One that ends by itself leaves its place to the next.
        callers.pop_back();
        assert!(!pending.is_full());
        drop(next);
    }

    #[test]
    fn silent_callers_give_way_first() {
        let (pending, now) = (Pending::default(), Instant::now());
        let mut silent: Vec<_> = (0..MAX_PENDING).map(|_| pending.admit(ONE, now).unwrap()).collect();
        let mut speaking = silent.remove(0);
        speaking.speaks();
        // As many again of the same address, and all of them lose their places to those that follow.
        let _more: Vec<_> = (0..2 * MAX_PENDING).map(|_| pending.admit(ONE, now).unwrap()).collect();
        assert!(silent.iter_mut().all(is_lost) && !is_lost(&mut speaking) && pending.is_full());
    }

    #[test]
    fn silent_callers_of_very_many_addresses_give_way_too() {
        let (pending, now) = (Pending::default(), Instant::now());
        let address = |number: usize| IpAddr::from((number as u32).to_be_bytes());
        let mut silent: Vec<_> = (0..MAX_PENDING).map(|number| pending.admit(address(number), now).unwrap()).collect();
        let _newcomer = pending.admit(ONE, now).unwrap();
        assert!(is_lost(&mut silent[0]) && !silent[1..].iter_mut().any(is_lost));
    }

    #[test]
    fn who_has_proved_itself_keeps_its_place() {
        let (pending, now) = (Pending::default(), Instant::now());
        let mut callers = full(&pending, now);
        let results: Vec<bool> = callers.iter_mut().map(|place| place.prove().is_ok()).collect();
        assert!(results[..MAX_WAITING_OF_ONE].iter().all(|proven| *proven));
        assert!(!results[MAX_WAITING_OF_ONE..].contains(&true));
        let newcomer = || pending.admit(OTHER, now).inspect(Place::speaks);
        let newcomers: Vec<_> = (0..MAX_PENDING).map_while(|_| newcomer()).collect();
        // Half of the others' places, as many as they have then.
        assert_eq!(newcomers.len(), (MAX_PENDING - MAX_WAITING_OF_ONE) / 2);
        // Room was found for them.
        callers.drain(..MAX_WAITING_OF_ONE);
        assert!(callers.back_mut().unwrap().prove().is_ok());
    }

    #[tokio::test]
    async fn a_proof_is_given_up_when_its_place_is_lost() {
        let (pending, now) = (Pending::default(), Instant::now());
        let mut callers = full(&pending, now);
        assert_eq!(callers[0].unless_lost(std::future::ready(7)).await, Some(7));
        let _other = pending.admit(OTHER, now).unwrap();
        assert_eq!(callers[0].unless_lost(std::future::pending::<()>()).await, None);
    }
}
