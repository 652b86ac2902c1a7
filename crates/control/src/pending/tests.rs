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
    assert!(pending.admit_client(OTHER, now).is_none() && pending.admit_client(ONE, now).is_none());
    drop((callers, others));
    assert!(lock(&pending.places).of_each.is_empty());
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
        silent.iter_mut().all(PendingPlace::is_lost) && !speaking.is_lost() && pending.is_full()
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
