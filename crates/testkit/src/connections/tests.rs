use super::*;

const FEW_CONNECTIONS: ManyConnections = ManyConnections {
    connections: 20,
    active: 4,
    duration: Duration::from_millis(80),
};

fn listener() -> (TcpListener, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

#[test]
fn connections_without_anything_between_are_right() {
    let (target, port) = listener();
    let mut called = false;
    let carried = FEW_CONNECTIONS.run(port, target, || called = true);
    assert_eq!(
        (carried.refused, carried.wrong, carried.shares.len(), called),
        (0, 0, 4, true)
    );
    assert!((0.0..=1.001).contains(&carried.fairness()), "{carried:?}");
    assert!(
        carried.bytes() > 0 && carried.spread().0 <= 1.0 && carried.spread().1 >= 1.0,
        "{carried:?}"
    );
}

#[test]
fn one_changed_byte_and_one_refused_connection_are_counted() {
    let (target, to) = listener();
    let (between, port) = listener();
    thread::spawn(move || {
        for (index, client) in between.incoming().map_while(Result::ok).enumerate() {
            if index == 3 {
                continue;
            }
            let mut client = client;
            let mut target = TcpStream::connect(("127.0.0.1", to)).unwrap();
            let (mut back, mut to_client) =
                (target.try_clone().unwrap(), client.try_clone().unwrap());
            thread::spawn(move || io::copy(&mut back, &mut to_client));
            thread::spawn(move || {
                let mut number = [0; 4];
                client.read_exact(&mut number).unwrap();
                target.write_all(&number).unwrap();
                let mut first = [0; 1];
                client.read_exact(&mut first).unwrap();
                target
                    .write_all(&[if index == 7 { !first[0] } else { first[0] }])
                    .unwrap();
                let _ = io::copy(&mut client, &mut target);
                let _ = target.shutdown(Shutdown::Write);
            });
        }
    });
    let carried = FEW_CONNECTIONS.run(port, target, || ());
    assert_eq!((carried.refused, carried.wrong), (1, 1), "{carried:?}");
}
