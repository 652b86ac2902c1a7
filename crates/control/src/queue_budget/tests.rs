use super::*;

const MIB: ByteCount = ByteCount::from_mib(1);

fn budget(client: u64, total: u64) -> Arc<QueueBudget> {
    QueueBudget::new(QueueLimits {
        client: MIB * client,
        total: MIB * total,
    })
}

fn stalled(mib: u64) -> StalledBytes {
    StalledBytes::from_lasting(MIB * mib)
}

fn join(budget: &Arc<QueueBudget>, address: &str) -> QueueShare {
    budget.join(Some(address.parse().unwrap()))
}

#[test]
fn the_limits_follow_from_the_memory_that_tcp_may_take() {
    let page = ByteCount::from_kib(4);
    let usual = QueueLimits::from_tcp_mem("287898\t383867\t575796\n", page);
    assert_eq!((usual.client, usual.total.get()), (MIB * 64, 383_867 * 512));
    let small = QueueLimits::from_tcp_mem("5000 8192 10000", page);
    assert_eq!((small.client, small.total), (MIB * 2, MIB * 4));
    assert_eq!(QueueLimits::from_tcp_mem("", page).total, USUAL_TOTAL);
}

#[test]
fn the_user_with_most_bytes_ends_first_and_only_until_the_rest_is_within_the_limit() {
    let budget = budget(64, 1_000);
    let [small, large, other] =
        ["192.0.2.1", "::ffff:192.0.2.1", "192.0.2.2"].map(|at| join(&budget, at));
    assert_eq!(large.record_bytes(stalled(50)), Ok(()));
    assert_eq!(
        other.record_bytes(stalled(60)),
        Ok(()),
        "another client has its own limit"
    );
    assert_eq!(
        small.record_bytes(stalled(20)),
        Ok(()),
        "the other one has more"
    );
    let why = large.record_bytes(stalled(50)).unwrap_err().to_string();
    assert_eq!(
        why,
        "its client does not take 50 MiB that wait in this host's kernel; a client may leave 64 MiB there"
    );
    drop(large);
    assert_eq!(small.record_bytes(stalled(20)), Ok(()));
    assert_eq!(budget.lock_users().all, stalled(80));
    drop((small, other));
    let users = budget.lock_users();
    assert!(users.of_each.is_empty() && users.lasting.is_empty() && users.all == stalled(0));
}

#[test]
fn many_clients_are_held_to_the_limit_of_all() {
    let budget = budget(64, 100);
    let shares: Vec<QueueShare> = (1..=10)
        .map(|last| join(&budget, &format!("192.0.2.{last}")))
        .collect();
    let ended = shares
        .iter()
        .filter(|share| share.record_bytes(stalled(30)).is_err())
        .count();
    assert_eq!(ended, 7, "those that exceed the limit, and no more");
}

/// One of them ended in each round.
#[test]
fn all_that_must_end_do_so_in_one_round_whatever_their_order() {
    let budget = budget(64, 1_000);
    let mut shares: Vec<_> = (1..=20)
        .rev()
        .map(|mib| (mib, join(&budget, "192.0.2.1")))
        .collect();
    let ended = |shares: &[(u64, QueueShare)]| {
        shares
            .iter()
            .filter(|(mib, share)| share.record_bytes(stalled(*mib)).is_err())
            .count()
    };
    assert_eq!(ended(&shares), 0, "those before have more");
    shares.reverse();
    assert_eq!(ended(&shares), 10, "the others have 55 MiB");
    assert_eq!(budget.lock_users().all, stalled(55));
}

#[test]
fn many_networks_of_one_site_are_held_to_the_limit_of_the_site() {
    let budget = budget(10, 1_000);
    let shares: Vec<QueueShare> = (0..8)
        .map(|network| join(&budget, &format!("2001:db8:0:{network}::1")))
        .collect();
    let results: Vec<bool> = shares
        .iter()
        .map(|share| share.record_bytes(stalled(9)).is_ok())
        .collect();
    assert_eq!(
        results[..3],
        [true, true, false],
        "eight /64 are of one /56, which may leave 20 MiB"
    );
}

#[test]
fn what_moves_is_not_counted() {
    let budget = budget(1, 1);
    let [waiting, moving] = ["192.0.2.1"; 2].map(|at| join(&budget, at));
    assert!(waiting.record_bytes(stalled(2)).is_err() && moving.record_bytes(stalled(0)).is_ok());
}

/// Such a client held 360 MiB for up to three seconds.
#[test]
fn what_is_only_blocked_counts_once_all_have_too_much() {
    let budget = budget(64, 196);
    let blocked = |mib| StalledBytes {
        lasting: ByteCount::ZERO,
        blocked: MIB * mib,
    };
    let [fast, slow] = ["192.0.2.1", "192.0.2.2"].map(|at| join(&budget, at));
    assert_eq!(
        fast.record_bytes(blocked(190)),
        Ok(()),
        "a program may pause"
    );
    assert_eq!(
        slow.record_bytes(blocked(100)),
        Ok(()),
        "it is enough that another one ends"
    );
    let why = fast.record_bytes(blocked(190)).unwrap_err().to_string();
    assert!(
        why.contains("190 MiB") && why.contains("all clients"),
        "{why}"
    );
    assert_eq!(slow.record_bytes(blocked(100)), Ok(()));
}

#[test]
fn a_connection_stalls_after_two_seconds_and_is_blocked_after_half_a_second_with_a_closed_window() {
    let sample = |carried: u64, rtt, is_closed| QueueSample {
        carried: ByteCount::new(carried),
        queued: MIB,
        rtt: Span::from_millis(rtt),
        is_closed,
    };
    let first_ms = |rtt, is_closed, bytes: fn(StalledBytes) -> ByteCount| {
        let mut watch = QueueWatch::default();
        (0..10_000_u64).step_by(250).find(|&ms| {
            // It moves for a second.
            let sample = sample(ms.min(1_000) * 1_000, rtt, is_closed);
            bytes(watch.follow(Span::from_millis(ms), &sample)) == MIB
        })
    };
    assert_eq!(first_ms(10, true, |bytes| bytes.blocked), Some(1_500));
    for (rtt, is_closed, after) in [(10, true, 3_000), (10, false, 3_000), (1_000, false, 5_000)] {
        assert_eq!(
            first_ms(rtt, is_closed, |bytes| bytes.lasting),
            Some(after),
            "{rtt} {is_closed}"
        );
    }
    // A queue that begins late is not old.
    let late = QueueWatch::default().follow(Span::from_secs(3_600), &sample(1, 10, true));
    assert_eq!(late, StalledBytes::default());
    assert_eq!(first_ms(10, false, |bytes| bytes.blocked), Some(3_000));
}

/// So a client kept any number of full queues.
#[test]
fn a_trickle_does_not_keep_a_queue_alive_and_a_slow_path_does() {
    let lasts = |queued_kib, bytes_a_second: u64| {
        let mut watch = QueueWatch::default();
        let mut stalls = (0..60_000_u64).step_by(250).map(|ms| {
            let carried = ByteCount::new(ms * bytes_a_second / 1000);
            let queued = ByteCount::from_kib(queued_kib);
            let sample = QueueSample {
                carried,
                queued,
                rtt: Span::from_millis(50),
                is_closed: false,
            };
            watch.follow(Span::from_millis(ms), &sample).lasting
        });
        stalls.all(|stalled| stalled == ByteCount::ZERO)
    };
    assert!(!lasts(3 << 10, 4 << 10) && !lasts(3 << 10, 64 << 10));
    assert!(lasts(3 << 10, 200 << 10) && lasts(64, 4 << 10) && lasts(0, 0));
}
