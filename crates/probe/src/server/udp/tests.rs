use super::*;

fn datagram(number: i64, millis: u64) -> Vec<u8> {
    let mut payload = vec![0; 1470];
    let sent = Span::from_secs(1_700_000_000) + Span::from_millis(millis);
    Iperf2Datagram { number, sent }.write_payload(payload.first_chunk_mut().unwrap());
    payload
}

#[test]
fn a_flow_is_counted_by_its_sequence_numbers() {
    let mut flow = Iperf2Flow::new();
    for number in [1, 2, 5, 4, 7, 7] {
        flow.count_datagram(&datagram(number, 0));
    }
    flow.count_datagram(&[0; 10]);
    flow.count_datagram(&datagram(-8, 0));
    flow.count_datagram(&datagram(-8, 0));
    flow.count_datagram(&datagram(9, 0));
    let report = flow.final_report();
    assert_eq!(
        (report.datagrams, report.lost, report.out_of_order),
        (8, 1, 2)
    );
    assert_eq!(report.bytes, ByteCount::new(7 * 1470));
    assert!(flow.ended.is_some());
}

#[test]
fn datagrams_from_new_ports_do_not_displace_a_flow_with_a_history() {
    let (mut old, mut new) = (Iperf2Flow::new(), Iperf2Flow::new());
    for number in 1..100 {
        old.count_datagram(&datagram(number, 0));
    }
    new.count_datagram(&datagram(1, 0));
    assert!(new.latest >= old.latest && new.eviction_order() < old.eviction_order());
    assert!(
        Iperf2Flow {
            latest: old.latest,
            ..Iperf2Flow::new()
        }
        .eviction_order()
            < new.eviction_order(),
        "of two flows with as many datagrams, the silent one"
    );
}

#[test]
fn the_jitter_of_a_flow_is_a_sixteenth_of_each_change() {
    let mut flow = Iperf2Flow::new();
    for (number, millis) in [(1, 0), (2, 16_000)] {
        flow.count_datagram(&datagram(number, millis));
    }
    let jitter = flow.final_report().jitter;
    assert!(
        (Span::from_millis(900)..=Span::from_secs(1)).contains(&jitter),
        "{jitter}"
    );
}

#[test]
fn impossible_sequence_numbers_do_no_harm() {
    let mut flow = Iperf2Flow::new();
    for number in [i64::MAX, 1, i64::MAX, i64::MIN] {
        flow.count_datagram(&datagram(number, u64::from(u32::MAX)));
    }
    assert_eq!(flow.final_report().datagrams, i64::MIN.unsigned_abs());
    let answer = flow
        .final_report()
        .encode_answer(&datagram(i64::MIN, 0))
        .unwrap();
    assert!(answer.len() <= 128);
}

#[test]
fn a_connected_socket_receives_only_from_its_peer() {
    let any = "127.0.0.1:0".parse::<SocketAddr>().unwrap();
    let listener = Socket::new(Domain::IPV4, Type::DGRAM, None).unwrap();
    listener.set_reuse_address(true).unwrap();
    listener.bind(&any.into()).unwrap();
    let listener = StdUdpSocket::from(listener);
    let local = listener.local_addr().unwrap();
    let [peer, other] = [any, any].map(|any| StdUdpSocket::bind(any).unwrap());
    let (connected, strays) = connected_socket(local, None, peer.local_addr().unwrap()).unwrap();
    assert!(strays.is_empty());
    for (socket, payload) in [(&peer, b"to connected"), (&other, b"to listener ")] {
        socket.send_to(payload, local).unwrap();
    }
    for (socket, payload) in [(&connected, b"to connected"), (&listener, b"to listener ")] {
        socket.set_nonblocking(false).unwrap();
        socket
            .set_read_timeout(Some(Duration::from_secs(5)))
            .unwrap();
        let mut buffer = [0; 12];
        socket.recv(&mut buffer).unwrap();
        assert_eq!(&buffer, payload);
    }
}

#[test]
fn a_hello_is_answered_on_an_open_stream_and_nothing_else_is() {
    let peer = StdUdpSocket::bind("127.0.0.1:0").unwrap();
    let local = "127.0.0.1:0".parse().unwrap();
    let (stream, _) = connected_socket(local, Some(b"lo"), peer.local_addr().unwrap()).unwrap();
    assert_eq!(
        SockRef::from(&stream).device().unwrap().as_deref(),
        Some(&b"lo"[..])
    );
    peer.connect(stream.local_addr().unwrap()).unwrap();
    peer.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    answer_hello(&stream);
    for sent in [&b"no hello"[..], b"nor this one", &udp::HELLO] {
        peer.send(sent).unwrap();
        answer_hello(&stream);
    }
    let mut answer = [0; 16];
    let length = peer.recv(&mut answer).unwrap();
    assert_eq!(answer[..length], udp::REPLY);
    peer.set_nonblocking(true).unwrap();
    assert!(peer.recv(&mut answer).is_err(), "there was one hello");
}
