use super::*;
use std::net::Ipv4Addr;
use tokio::net::TcpListener;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::{LocalSet, yield_now};

const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn pool(via: &str, size: u16) -> (Rc<FarConnectionPool>, UnboundedReceiver<RelayEvent>) {
    let key = SharedKey::from_file_content(b"correct horse battery").unwrap();
    let (events, reported) = tokio::sync::mpsc::unbounded_channel();
    (
        FarConnectionPool::new(via.parse().unwrap(), key, None, false, size, events),
        reported,
    )
}

/// Returns the request that a near relay makes of a far one with these abilities, and whether
/// it will compress.
fn asked(compress: bool, abilities: Option<u8>) -> io::Result<(String, bool)> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    LocalSet::new().block_on(&runtime, async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let via = listener.local_addr().unwrap().to_string().parse().unwrap();
        let key = SharedKey::from_file_content(b"correct horse battery").unwrap();
        let (events, _) = tokio::sync::mpsc::unbounded_channel();
        let pool = FarConnectionPool::new(via, key.clone(), None, compress, 0, events);
        let target = "host:22".parse().unwrap();
        let (ready, requests) = tokio::join!(
            pool.request_target(CLIENT, &target),
            far(&listener, &key, abilities)
        );
        let text = requests.last().cloned().unwrap_or_default();
        Ok((String::from_utf8(text).unwrap(), ready?.compress))
    })
}

#[test]
fn connections_that_wait_in_vain_report_each_reason_once() {
    let (pool, mut reported) = pool("192.0.2.1:9", 8);
    for why in ["refused", "refused", "no key", "refused"] {
        pool.report_failure(&io::Error::other(why));
    }
    let whys: Vec<String> = std::iter::from_fn(|| reported.try_recv().ok())
        .map(|event| match event {
            RelayEvent::NoPeer { why } => why,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(
        whys,
        ["refused", "no key"].map(|why| format!("the far relay 192.0.2.1:9 cannot be used: {why}"))
    );
}

#[test]
fn a_client_that_waits_for_its_turn_is_given_up_once_nobody_has_been_answered() {
    let pool = pool("192.0.2.1:9", 0).0;
    let (before, limit) = (Instant::now(), Duration::from_millis(20));
    let began = before + limit;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let error = runtime.block_on(async {
        // Others have all calls.
        pool.coming.set(MAX_CALLS);
        pool.wait_for_call(CLIENT, limit).await.err().unwrap()
    });
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    pool.answered.set(Some(before));
    assert_eq!(pool.call_deadline(began, limit), began + limit);
    pool.answered.set(Some(began + limit / 2));
    assert_eq!(pool.call_deadline(began, limit), began + limit + limit / 2);
}

#[test]
fn calls_that_wait_for_each_other_become_few_and_those_over_a_long_path_remain_many() {
    let pool = pool("192.0.2.1:9", 0).0;
    let limit_after = |calls: usize, millis: u64| {
        for _ in 0..calls {
            pool.adapt_call_limit(Duration::from_millis(millis));
        }
        pool.call_limit.get()
    };
    assert_eq!(limit_after(1, 2), MAX_CALLS);
    assert_eq!(limit_after(30, 250), MIN_CALLS);
    assert_eq!(limit_after(100, 2), MIN_CALLS + 100, "one more for each");
    // The path has become longer.
    assert_eq!(limit_after(1000, 520), MAX_CALLS);
    assert_eq!(limit_after(1000, 600), MAX_CALLS);
}

#[test]
fn a_call_that_finds_no_place_is_repeated_where_the_far_relay_has_answered_before() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let pool = pool(&listener.local_addr().unwrap().to_string(), 0).0;
        let refuse = async || drop(listener.accept().await.unwrap());
        let (refused, ()) = tokio::join!(pool.call_patiently(), refuse());
        assert!(refused.is_err(), "it may be another program");
        pool.answered.set(Some(Instant::now()));
        let answer = async {
            refuse().await;
            refuse().await;
            AuthenticatedPeer::accept_peer(listener.accept().await.unwrap().0, &pool.key, None)
                .await
                .unwrap()
        };
        let (called, _peer) = tokio::join!(pool.call_patiently(), answer);
        called.unwrap();
    });
}

/// Answers one near relay as a far one that can do this, or does not say what it can do, and
/// returns its requests.
async fn far(listener: &TcpListener, key: &SharedKey, abilities: Option<u8>) -> Vec<Vec<u8>> {
    let mut peer = AuthenticatedPeer::accept_peer(listener.accept().await.unwrap().0, key, None)
        .await
        .unwrap();
    let mut requests = Vec::new();
    loop {
        let mut text = vec![0; peer.control.read_u8().await.unwrap().into()];
        peer.control.read_exact(&mut text).await.unwrap();
        peer.control
            .read_exact(&mut [0; AuthenticatedPeer::TAG])
            .await
            .unwrap();
        requests.push(text.clone());
        match &text[..] {
            [] => match abilities {
                Some(abilities) => peer.control.send_bytes(&[abilities]).await.unwrap(),
                None => return requests,
            },
            PAD => {
                read_padding(&mut peer).await.unwrap();
                send_padding(&mut peer).await.unwrap();
            }
            _ => return requests,
        }
    }
}

#[test]
fn windows_of_connections_that_wait_grow_where_the_far_relay_takes_padding() {
    for (abilities, expected) in [
        (TAKES_PADDING, &[b"" as &[u8], PAD, b"host:22"][..]),
        (0, &[b"", b"host:22"]),
    ] {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        LocalSet::new().block_on(&runtime, async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let via = listener.local_addr().unwrap().to_string();
            let pool = pool(&via, 1).0;
            let key = pool.key.clone();
            let requests = spawn_local(async move { far(&listener, &key, Some(abilities)).await });
            pool.start_calls();
            let has_grown = || {
                pool.idle
                    .borrow()
                    .front()
                    .is_some_and(|ready| ready.window.is_some())
            };
            while !has_grown() {
                // As each client that comes meanwhile does.
                pool.start_calls();
                yield_now().await;
            }
            assert_eq!((pool.idle.borrow().len(), pool.coming.get()), (1, 0));
            pool.request_target(CLIENT, &"host:22".parse().unwrap())
                .await
                .unwrap();
            assert_eq!(requests.await.unwrap(), expected);
        });
    }
}

#[test]
fn only_relays_that_both_compress_do_so() {
    let plain = |text: &str| (text.to_owned(), false);
    assert_eq!(
        asked(true, Some(TAKES_BLOCKS)).unwrap(),
        ("zstd host:22".to_owned(), true)
    );
    assert_eq!(asked(true, Some(0)).unwrap(), plain("host:22"));
    assert_eq!(asked(false, Some(TAKES_BLOCKS)).unwrap(), plain("host:22"));
    let error = asked(true, None).unwrap_err().to_string();
    assert!(error.contains("earlier version"), "{error}");
}
