use super::*;
use crate::sockets::UNPACED;
use std::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// Two legs over loopback, and their other ends.
fn legs() -> [(RelaySocket, TcpStream); 2] {
    [(), ()].map(|()| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let caller = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let accepted = listener.accept().unwrap().0;
        accepted.set_nonblocking(true).unwrap();
        (RelaySocket::new(accepted, None), caller)
    })
}

/// A worker with one connection, its events, and the client's and the target's ends.
fn joined(
    joint: ConnectionRole,
    interval: Option<Span>,
) -> (RelayWorker, UnboundedReceiver<RelayEvent>, [TcpStream; 2]) {
    let (events, received) = unbounded_channel();
    let inbox = Arc::new(WorkerInbox::new().unwrap());
    let mut worker =
        RelayWorker::new(Arc::clone(&inbox), events, PipePool::new(2), interval).unwrap();
    let [(client, one), (target, other)] = legs();
    inbox.add_connection(pair([client, target], joint));
    worker.add_connections();
    worker.advance_connection(0);
    (worker, received, [one, other])
}

fn pair([client, target]: [RelaySocket; 2], joint: ConnectionRole) -> UnjoinedPair {
    let who = client.socket.peer_addr().unwrap();
    let sides = Sides {
        client,
        target,
        whither: "host:22".to_owned(),
        joint,
    };
    UnjoinedPair {
        sides,
        who,
        quotas: ClientQuotas::default(),
    }
}

#[test]
fn a_few_connections_within_the_host_are_not_paced() {
    let name = |stream: &TcpStream| socket2::SockRef::from(stream).tcp_congestion().unwrap();
    let (mut worker, _events, [one, _other]) = joined(ConnectionRole::Alone, None);
    let usual = name(&one);
    let mut ends = Vec::new();
    for _ in 1..=FEW {
        let [(client, one), (target, other)] = legs();
        ends.extend([one, other]);
        worker.add_connection(pair([client, target], ConnectionRole::Alone));
    }
    let names: Vec<_> = worker
        .joined
        .iter()
        .flatten()
        .flat_map(|joined| joined.legs.each_ref().map(|leg| name(&leg.socket)))
        .collect();
    let (few, more) = names.split_at(2 * FEW);
    assert!(
        few.iter().all(|name| name.starts_with(UNPACED)) && more == [&*usual; 2],
        "{names:?}"
    );
}

/// The side of the client.
fn leg(worker: &mut RelayWorker) -> &mut RelaySocket {
    &mut worker.joined[0].as_mut().unwrap().legs[0]
}

/// Gives the connection its turn after what epoll says next.
fn next_events(worker: &mut RelayWorker) {
    let mut events = Vec::with_capacity(EVENTS);
    wait(
        &worker.epoll,
        rustix::buffer::spare_capacity(&mut events),
        None,
    )
    .unwrap();
    worker.handle_events(&events);
    worker.advance_connection(0);
}

fn ending(events: &mut UnboundedReceiver<RelayEvent>) -> Option<RelayEnding> {
    match events.try_recv().ok()? {
        RelayEvent::Relayed(done) => Some(done.ending),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_far_relay_that_does_not_answer_is_given_up_and_so_is_its_pool() {
    let (mut worker, mut events, _ends) = joined(ConnectionRole::Near { compress: false }, None);
    let began = Instant::now();
    // It may wait for room as long as for the target, one after the other.
    for most in [CONNECT_DEADLINE, 2 * CONNECT_DEADLINE] {
        worker.end_silent(began + most);
        assert!(
            ending(&mut events).is_none() && !worker.inbox.take_unanswered(),
            "{most:?}"
        );
    }
    worker.end_silent(began + STATUS_DEADLINE + LONG);
    assert_eq!(ending(&mut events), Some(RelayEnding::Unreachable));
    assert!(worker.inbox.take_unanswered() && !worker.inbox.take_unanswered());
    // A host may be silent for as long as it likes.
    let (mut worker, mut events, _ends) = joined(ConnectionRole::Alone, None);
    worker.end_silent(began + 10 * STATUS_DEADLINE);
    assert!(ending(&mut events).is_none());
}

#[test]
fn a_connection_begins_once_its_target_is_connected() {
    let interval = Some(Span::from_secs(1));
    let (_worker, mut events, _ends) = joined(ConnectionRole::Alone, interval);
    assert!(matches!(events.try_recv(), Ok(RelayEvent::Joined(_))));
    let (mut worker, mut events, [_client, mut far]) =
        joined(ConnectionRole::Near { compress: false }, interval);
    assert!(events.try_recv().is_err(), "there is no status");
    io::Write::write_all(&mut far, &[TargetStatus::Connected.to_byte()]).unwrap();
    next_events(&mut worker);
    assert!(matches!(events.try_recv(), Ok(RelayEvent::Joined(_))));
    let (mut worker, mut events, [_client, mut far]) =
        joined(ConnectionRole::Near { compress: false }, interval);
    io::Write::write_all(&mut far, &[TargetStatus::Forbidden.to_byte()]).unwrap();
    next_events(&mut worker);
    assert_eq!(ending(&mut events), Some(RelayEnding::Forbidden));
}

#[test]
fn the_last_bytes_may_take_as_long_as_some_are_acknowledged() {
    let (mut worker, mut events, [client, _target]) = joined(ConnectionRole::Alone, None);
    let began = Instant::now();
    worker.carry_out(0, EndingStep::ResetOther(RelaySide::Target));
    // More than the client takes, as it does not read.
    while leg(&mut worker).write_socket(&[0; 1 << 14]).unwrap() > 0 {}
    let written = leg(&mut worker).written;
    for (minutes, unacknowledged) in [(1, 3), (2, 2), (3, 2), (4, 1), (5, 1)] {
        leg(&mut worker).written = written + unacknowledged;
        worker.finish_resets(began + Duration::from_mins(minutes));
    }
    assert!(ending(&mut events).is_none());
    worker.finish_resets(began + Duration::from_secs(6 * 60 + 1));
    assert_eq!(ending(&mut events), Some(RelayEnding::TargetReset));
    drop(client);
}
