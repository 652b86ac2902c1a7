use super::*;
use fullpipe_testkit::valid_within;
use std::net::{Ipv4Addr, UdpSocket};

use super::super::datagram;

const TIMEOUT: Duration = Duration::from_secs(5);

fn until(mut done: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + TIMEOUT;
    while !done() && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(2));
    }
    done()
}

fn cookie() -> TestCookie {
    TestCookie::from_bytes([b'c'; TestCookie::LENGTH])
}

/// Returns a prober that sends datagrams alone.
fn with_datagrams(server: SocketAddr) -> EchoProber {
    let shared = Arc::new(Mutex::new(ProberState::default()));
    let theirs = Arc::clone(&shared);
    let thread = thread::spawn(move || {
        ProberWorker::new(None, LocalEndpoint::default(), theirs).run_worker()
    });
    let prober = EchoProber {
        shared,
        thread: Some(thread),
    };
    prober.use_server(server, cookie());
    prober
}

/// Starts a server that answers `answers` requests, each with `residence` as its stated time at
/// the server.
fn server(answers: usize, residence: Span) -> SocketAddr {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = socket.local_addr().unwrap();
    thread::spawn(move || {
        let mut buffer = [0; 100];
        for _ in 0..answers {
            let (length, from) = socket.recv_from(&mut buffer).unwrap();
            assert_eq!(datagram::echo_test(&buffer[..length]), Some(cookie()));
            socket
                .send_to(
                    &datagram::echo_reply(&buffer[..length], residence).unwrap(),
                    from,
                )
                .unwrap();
        }
        thread::sleep(TIMEOUT);
    });
    address
}

#[test]
fn loopback_answers_before_during_and_after() {
    let once = || {
        let prober =
            EchoProber::start((Ipv4Addr::LOCALHOST, 0).into(), &LocalEndpoint::default()).unwrap();
        if !until(|| prober.min_rtt().is_some()) {
            // This user may open neither ping sockets nor raw ones; another test covers a
            // measurement without them.
            return (None, vec![]);
        }
        prober.load_begins();
        thread::sleep(Duration::from_millis(50));
        assert!(prober.take_recent_rtt().is_some());
        prober.load_ends();
        assert!(until(|| prober.is_settled()));
        let taken = prober.finish().unwrap();
        let starved = taken
            .echoes
            .windows(2)
            .any(|pair| pair[1].at - pair[0].at > Span::from_millis(100));
        (
            Some(taken),
            starved
                .then(|| "the machine did not let the thread run".to_owned())
                .into_iter()
                .collect(),
        )
    };
    let Some(taken) = valid_within(5, once) else {
        return;
    };
    assert_eq!(taken.method, RttMethod::Icmp);
    assert!(
        taken.settled.is_some() && taken.echoes.len() >= 10,
        "{taken:?}"
    );
    assert!(
        taken.echoes.iter().any(|echo| echo.host.is_some()),
        "the kernel stamps: {taken:?}"
    );
}

#[test]
fn a_server_answers_datagrams_until_it_falls_silent() {
    let prober = with_datagrams(server(20, Span::ZERO));
    assert!(until(|| prober.min_rtt().is_some()));
    prober.load_begins();
    thread::sleep(Duration::from_millis(500));
    prober.load_ends();
    let begun = Instant::now();
    assert!(until(|| prober.is_settled()) && begun.elapsed() < 2 * MAX_AFTER);
    let taken = prober.finish().unwrap();
    let answered = taken
        .echoes
        .iter()
        .filter(|echo| echo.rtt.is_some())
        .count();
    assert_eq!((taken.method, answered), (RttMethod::UdpEcho, 20));
    assert!(taken.echoes.len() > 20, "what was not answered is counted");
}

#[test]
fn a_slow_path_gets_few_requests_unless_its_load_limits_itself() {
    let sent_under_load = |request: &Request| {
        let prober = with_datagrams(server(usize::MAX, Span::ZERO));
        assert!(until(|| prober.min_rtt().is_some()));
        prober.load_carries(request, BitRate::from_bps(100_000), RAMP);
        prober.load_begins();
        thread::sleep(Duration::from_millis(600));
        let echoes = prober.finish().unwrap().echoes;
        echoes
            .iter()
            .filter(|echo| echo.at > Span::from_millis(100))
            .count()
    };
    // A hundredth of 100 kbit/s is one request a second; with a load that limits itself there
    // are at most 50 a second.
    assert!(sent_under_load(&Request::default()) <= 3);
    let modest = sent_under_load(&Request {
        rate: Some(BitRate::from_bps(100_000)),
        ..Request::default()
    });
    assert!((5..=40).contains(&modest), "{modest}");
}

#[test]
fn an_answer_with_a_residence_longer_than_its_round_trip_is_ignored() {
    let prober = with_datagrams(server(usize::MAX, Span::from_secs(1)));
    thread::sleep(Duration::from_millis(100));
    assert!(prober.min_rtt().is_none() && prober.is_settled());
    assert!(prober.finish().is_none());
}

#[test]
fn a_closed_port_ends_the_flow() {
    let closed = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))
        .unwrap()
        .local_addr()
        .unwrap();
    let prober = with_datagrams(closed);
    thread::sleep(Duration::from_millis(50));
    prober.load_ends();
    assert!(prober.is_settled(), "nothing is waited for");
    assert!(prober.finish().is_none());
}
