use super::*;
use std::pin::pin;
use std::task::{Context, Waker};

const HERE: &str = "192.0.2.1";
const THERE: &str = "198.51.100.7";

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn at(mbps: u64) -> LoadActivity {
    LoadActivity {
        rate: BitRate::from_mbps(mbps),
        ..LoadActivity::default()
    }
}

/// Returns a load of so many streams.
fn streams(streams: u16) -> Request {
    Request {
        streams,
        ..Request::default()
    }
}

/// Admits a connection that is not classified yet.
fn pending(admission: &Admission, address: IpAddr) -> Result<PendingConnection, ClientRejection> {
    admission.admit_pending(address, Instant::now())
}

fn network(text: &str) -> AddressPrefix {
    text.parse().unwrap()
}

fn admission(change: impl FnOnce(&mut ServerLimits)) -> Admission {
    let mut limits = ServerLimits::default();
    change(&mut limits);
    Admission::new(limits, 10_000)
}

#[test]
fn addresses_that_are_denied_or_not_allowed_are_rejected() {
    let denies = admission(|limits| limits.deny = vec![network("192.0.2.0/24")]);
    assert_eq!(
        pending(&denies, ip(HERE)).unwrap_err(),
        ClientRejection::Denied
    );
    assert!(pending(&denies, ip(THERE)).is_ok());
    let allows = admission(|limits| {
        limits.allow = vec![network("192.0.2.0/24"), network("198.51.100.7")];
        limits.deny = vec![network("192.0.2.128/25")];
    });
    assert!(pending(&allows, ip(HERE)).is_ok() && pending(&allows, ip(THERE)).is_ok());
    assert_eq!(
        pending(&allows, ip("192.0.2.200")).unwrap_err(),
        ClientRejection::Denied
    );
    assert_eq!(
        pending(&allows, ip("203.0.113.1")).unwrap_err(),
        ClientRejection::Denied
    );
}

#[test]
fn silent_connections_give_way_to_others_and_to_tests() {
    for max_connections in [192, 1000, 10_000] {
        let admission = Admission::new(ServerLimits::default(), max_connections);
        let addresses = || (1..=32).map(|last| IpAddr::from([198, 51, 100, last]));
        let silent: Vec<_> = (0..128)
            .flat_map(|_| addresses())
            .map(|address| pending(&admission, address).unwrap())
            .collect();
        assert_eq!(
            admission.pending.places_taken(),
            4096.min(max_connections as usize / 4)
        );
        assert!(admission.is_full_of_pending());
        // A newcomer is admitted, and keeps its place while as many silent ones come again.
        let mut newcomer = pending(&admission, ip(HERE)).unwrap();
        let again: Vec<_> = addresses()
            .map(|address| pending(&admission, address).unwrap())
            .collect();
        {
            let waits = pin!(newcomer.place.unless_lost(std::future::pending::<()>()));
            assert!(
                waits
                    .poll(&mut Context::from_waker(Waker::noop()))
                    .is_pending()
            );
        }
        let test = admission.admit_test(ip(HERE)).unwrap();
        assert!(admission.admit_load(ip(HERE), &streams(8)).is_ok());
        drop((silent, again, newcomer, test));
        assert!(
            admission.state.borrow().prefixes.is_empty(),
            "prefixes without usage are removed"
        );
    }
}

#[test]
fn a_64_bit_network_of_ipv6_counts_as_one_address() {
    let admission = admission(|limits| limits.address.tests = 1);
    let _first = admission.admit_test(ip("2001:db8:0:1::1")).unwrap();
    assert_eq!(
        admission
            .admit_test(ip("2001:db8:0:1:ffff::2"))
            .unwrap_err(),
        ClientRejection::QuotaExceeded
    );
    assert!(admission.admit_test(ip("2001:db8:0:2::1")).is_ok());
    let _other = admission.admit_test(ip("::ffff:192.0.2.1")).unwrap();
    assert_eq!(
        admission.admit_test(ip(HERE)).unwrap_err(),
        ClientRejection::QuotaExceeded
    );
}

#[test]
fn tests_are_counted_for_each_address_and_in_total() {
    let admission = admission(|limits| (limits.address.tests, limits.total.tests) = (2, 3));
    let _mine = [
        admission.admit_test(ip(HERE)).unwrap(),
        admission.admit_test(ip(HERE)).unwrap(),
    ];
    assert!(admission.admit_test(ip(HERE)).is_err());
    let theirs = admission.admit_test(ip(THERE)).unwrap();
    assert!(admission.admit_test(ip("203.0.113.1")).is_err());
    drop(theirs);
    assert!(admission.admit_test(ip("203.0.113.1")).is_ok());
}

#[test]
fn the_usual_test_of_128_streams_is_permitted() {
    let admission = admission(|_| {});
    let request = Request {
        streams: 128,
        direction: fullpipe_record::Direction::Both,
        ..Request::default()
    };
    assert!(admission.admit_load(ip(HERE), &request).is_ok());
}

#[test]
fn streams_beyond_the_quota_are_refused_and_those_of_others_make_the_server_busy() {
    let admission = admission(|limits| limits.address.streams = 10);
    let refusal = admission.admit_load(ip(HERE), &streams(11)).unwrap_err();
    assert_eq!(refusal.number, ErrorNumber::STREAMS);
    let _first = admission.admit_load(ip(HERE), &streams(8)).unwrap();
    let refusal = admission.admit_load(ip(HERE), &streams(3)).unwrap_err();
    assert_eq!(refusal.number, ErrorNumber::BUSY);
    assert!(
        refusal.why.contains("uses 8 of the 10 that it may use"),
        "{}",
        refusal.why
    );
    assert!(
        admission.admit_load(ip(HERE), &streams(2)).is_ok()
            && admission.admit_load(ip(THERE), &streams(3)).is_ok()
    );
}

/// A fifth address took the whole reserve, and no other client was served.
#[test]
fn a_few_addresses_do_not_take_all_streams_or_tests() {
    for each in [256, 512, 2_048] {
        let admission =
            admission(|limits| (limits.address.streams, limits.address.tests) = (each, 1_024));
        let addresses = || (1..=9).map(|last| IpAddr::from([192, 0, 2, last]));
        let take = |address| std::iter::from_fn(move || Some(address));
        let loads: Vec<_> = addresses()
            .flat_map(|at| take(at).map_while(|at| admission.admit_load(at, &streams(1)).ok()))
            .collect();
        let tests: Vec<_> = addresses()
            .flat_map(|at| take(at).map_while(|at| admission.admit_test(at).ok()))
            .collect();
        assert!(
            (1_792..1_792 + 9 * 16).contains(&loads.len()),
            "{}",
            loads.len()
        );
        assert!((896..896 + 9 * 8).contains(&tests.len()), "{}", tests.len());
        // Twenty newcomers are served all the same.
        let newcomers = (1..=20).map(|last| IpAddr::from([198, 51, 100, last]));
        let served: Vec<_> = newcomers
            .map_while(|at| {
                Some((
                    admission.admit_test(at).ok()?,
                    admission.admit_load(at, &streams(5)).ok()?,
                ))
            })
            .collect();
        assert_eq!(served.len(), 20);
    }
}

/// Eight /64 networks of one customer took all streams.
#[test]
fn many_networks_of_one_site_share_a_quota() {
    let admission = admission(|_| {});
    let address = |network: u16| IpAddr::from([0x2001, 0xdb8, 0, network, 0, 0, 0, 1]);
    let loads: Vec<_> = (0..=u16::MAX)
        .filter_map(|net| admission.admit_load(address(net), &streams(64)).ok())
        .collect();
    assert_eq!(
        loads.len() * 64,
        896,
        "seven eighths of four times the quota of an address"
    );
    let within_one: Vec<_> = loads
        .iter()
        .filter(|load| load.client < address(0x100))
        .collect();
    assert_eq!(within_one.len() * 64, 448, "and of twice for a /56");
    assert!(admission.admit_load(address(0), &streams(1)).is_err());
    assert!(
        admission.admit_load(address(0x4000), &streams(2)).is_ok(),
        "a newcomer uses the reserve of the site"
    );
    assert!(
        admission
            .admit_load(ip("2001:db8:1::1"), &streams(128))
            .is_ok(),
        "other sites are not affected"
    );
    drop(loads);
    assert!(admission.state.borrow().sites.is_empty());
}

#[test]
fn a_client_alone_may_use_all_streams_of_a_small_server() {
    let admission = admission(|limits| limits.total.streams = 128);
    let _all = admission.admit_load(ip(HERE), &streams(128)).unwrap();
    assert_eq!(
        admission
            .admit_load(ip(THERE), &streams(1))
            .unwrap_err()
            .number,
        ErrorNumber::BUSY
    );
}

#[test]
fn a_load_ends_whose_client_leaves_too_much_in_the_kernel() {
    let limits = fullpipe_control::QueueLimits {
        client: ByteCount::from_mib(64),
        total: ByteCount::from_mib(96),
    };
    let admission = Admission {
        queues: QueueBudget::new(limits),
        ..admission(|_| {})
    };
    let leaves = |mib| LoadActivity {
        stalled: StalledBytes::from_lasting(ByteCount::from_mib(mib)),
        ..at(0)
    };
    let loads =
        [HERE, HERE, THERE].map(|from| admission.admit_load(ip(from), &streams(128)).unwrap());
    assert!(admission.record_activity(&loads[0], leaves(40)).is_ok());
    let refusal = admission
        .record_activity(&loads[1], leaves(41))
        .unwrap_err();
    assert_eq!(
        (refusal.number, refusal.why.contains("does not take 41 MiB")),
        (ErrorNumber::BUSY, true)
    );
    assert!(admission.record_activity(&loads[2], leaves(50)).is_ok());
    assert!(
        admission.record_activity(&loads[2], leaves(60)).is_err(),
        "more than all may leave"
    );
}

#[test]
fn idle_loads_are_evicted_for_newcomers() {
    let admission = admission(|limits| (limits.address.streams, limits.total.streams) = (100, 100));
    let slow = LoadActivity {
        rate: BitRate::from_bps(1),
        idle: MAX_IDLE,
        ..LoadActivity::default()
    };
    let [idle, idler, busy] = [HERE, "192.0.2.2", "192.0.2.3"]
        .map(|text| admission.admit_load(ip(text), &streams(28)).unwrap());
    admission.record_activity(&idle, slow).unwrap();
    admission
        .record_activity(
            &idler,
            LoadActivity {
                idle: MAX_IDLE * 2,
                ..slow
            },
        )
        .unwrap();
    admission.record_activity(&busy, at(10)).unwrap();
    let refusal = admission.admit_load(ip(THERE), &streams(30)).unwrap_err();
    assert_eq!(refusal.number, ErrorNumber::BUSY);
    assert!(admission.evict_idle(28));
    assert!(
        admission
            .record_activity(&idler, slow)
            .is_err_and(|refusal| refusal.why.contains("to make room"))
    );
    assert!(
        admission.record_activity(&idle, slow).is_ok()
            && admission.record_activity(&busy, at(10)).is_ok()
    );
    drop(idler);
    assert!(admission.admit_load(ip(THERE), &streams(30)).is_ok());
    assert!(admission.evict_idle(56) && admission.record_activity(&idle, slow).is_err());
    drop(idle);
    assert!(
        !admission.evict_idle(56) && admission.record_activity(&busy, at(10)).is_ok(),
        "a busy load is not evicted"
    );
}

#[test]
fn streams_of_an_admitted_load_are_not_too_many_pending_connections() {
    let admission = Admission::new(ServerLimits::default(), 1000);
    let _load = admission.admit_load(ip(HERE), &streams(128)).unwrap();
    let pending: Vec<_> = (0..128).map(|_| pending(&admission, ip(HERE))).collect();
    assert!(pending.iter().all(Result::is_ok));
}

#[test]
fn requested_rates_add_up() {
    let admission = admission(|limits| limits.total.rate = Some(BitRate::from_mbps(100)));
    let request = |mbps, streams| Request {
        rate: Some(BitRate::from_mbps(mbps)),
        streams,
        ..Request::default()
    };
    let _first = admission.admit_load(ip(HERE), &request(20, 4)).unwrap();
    assert_eq!(
        admission
            .admit_load(ip(THERE), &request(21, 1))
            .unwrap_err()
            .number
            .get(),
        27
    );
    assert!(admission.admit_load(ip(THERE), &request(20, 1)).is_ok());
    assert!(
        admission.admit_load(ip(THERE), &Request::default()).is_ok(),
        "a load without a rate is checked while it runs"
    );
    let endless = Request {
        rate: Some(BitRate::from_bps(u64::MAX)),
        streams: 128,
        ..Request::default()
    };
    assert_eq!(
        admission
            .admit_load(ip(THERE), &endless)
            .unwrap_err()
            .number
            .get(),
        27
    );
}

#[test]
fn the_fastest_load_ends_if_the_total_rate_is_exceeded() {
    let admission = admission(|limits| limits.total.rate = Some(BitRate::from_mbps(100)));
    let (one, other) = (
        admission.admit_load(ip(HERE), &Request::default()),
        admission.admit_load(ip(THERE), &Request::default()),
    );
    let (one, other) = (one.unwrap(), other.unwrap());
    assert!(admission.record_activity(&one, at(70)).is_ok());
    assert!(admission.record_activity(&other, at(40)).is_ok());
    assert_eq!(
        admission
            .record_activity(&one, at(70))
            .unwrap_err()
            .number
            .get(),
        27
    );
    drop(one);
    assert!(admission.record_activity(&other, at(90)).is_ok());
}

#[test]
fn an_address_that_exceeds_its_rate_does_not_end_the_tests_of_others() {
    let admission = admission(|limits| limits.address.rate = Some(BitRate::from_mbps(50)));
    let (one, other) = (
        admission.admit_load(ip(HERE), &Request::default()),
        admission.admit_load(ip(THERE), &Request::default()),
    );
    let (one, other) = (one.unwrap(), other.unwrap());
    assert!(admission.record_activity(&one, at(60)).is_err());
    assert!(admission.record_activity(&other, at(45)).is_ok());
}

#[test]
fn no_load_is_visited_without_a_limit_of_the_rate() {
    let visits = std::cell::Cell::new(0);
    let admission = admission(|_| {});
    let _loads =
        [HERE, THERE].map(|text| admission.admit_load(ip(text), &Request::default()).unwrap());
    let check = |limit| {
        let wanted = |_| {
            visits.set(visits.get() + 1);
            true
        };
        admission
            .state
            .borrow()
            .check_rates(limit, BitRate::ZERO, "all tests carry", wanted)
    };
    assert!(check(None).is_ok() && visits.get() == 0);
    assert!(check(Some(BitRate::ZERO)).is_ok() && visits.get() == 2);
}

#[test]
fn a_test_that_is_too_long_is_refused_as_iperf3_does() {
    let admission = admission(|limits| {
        limits.duration = Some(Span::from_secs(60));
        limits.bytes = Some(ByteCount::from_mib(1));
    });
    let lasts = |seconds| Request {
        duration: Span::from_secs(seconds),
        ..Request::default()
    };
    assert!(admission.admit_load(ip(HERE), &lasts(60)).is_ok());
    assert_eq!(
        admission
            .admit_load(ip(HERE), &lasts(61))
            .unwrap_err()
            .number
            .get(),
        37
    );
    let omits = Request {
        omit: Span::from_secs(1),
        ..lasts(60)
    };
    assert_eq!(
        admission
            .admit_load(ip(HERE), &omits)
            .unwrap_err()
            .number
            .get(),
        37
    );
    let sends = |bytes| Request {
        bytes: Some(ByteCount::new(bytes)),
        ..lasts(86_400)
    };
    assert!(admission.admit_load(ip(HERE), &sends(1 << 20)).is_ok());
    assert_eq!(
        admission
            .admit_load(ip(HERE), &sends((1 << 20) + 1))
            .unwrap_err()
            .number
            .get(),
        37
    );
}
