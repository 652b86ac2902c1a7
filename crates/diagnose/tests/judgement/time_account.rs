//! The account of a command's time, from samples as the kernel would give them of conversations
//! whose parts are known.

use fullpipe_diagnose::time_account;
use fullpipe_record::{ConnectionSamples, Sample, TcpInfo, TimeAccount};
use fullpipe_units::{ByteCount, SegCount, Span};

const MSS: u64 = 1448;

/// Time between two samples, in milliseconds.
const PERIOD: u64 = 50;

/// A conversation: data of one way at a time, positive what this end sends.
struct Talk {
    rtt: u64,
    now: u64,
    /// Time in ms, and bytes: positive of this end.
    events: Vec<(u64, i64)>,
}

impl Talk {
    /// One that opens its connection at `from` milliseconds.
    fn new(rtt: u64, from: u64) -> Self {
        Self {
            rtt,
            now: from + rtt,
            events: Vec::new(),
        }
    }

    fn sends(&mut self, bytes: i64) -> &mut Self {
        self.events.push((self.now, bytes));
        self
    }

    /// The answer comes after a round trip, and the time that the other program takes.
    fn is_answered(&mut self, bytes: i64, after: u64) -> &mut Self {
        self.now += self.rtt + after;
        self.events.push((self.now, -bytes));
        self
    }

    fn pauses(&mut self, time: u64) -> &mut Self {
        self.now += time;
        self
    }

    /// So many bytes a millisecond, positive of this end.
    fn moves(&mut self, bytes: i64, time: u64) -> &mut Self {
        (0..time).for_each(|_| {
            self.now += 1;
            self.events.push((self.now, bytes));
        });
        self
    }

    /// Returns what the kernel shows each [`PERIOD`], with clocks of 4 ms.
    fn samples(&self) -> Vec<Sample> {
        let opened = self.opened();
        let times = (opened.div_ceil(PERIOD)..).map(|number| number * PERIOD);
        times
            .take_while(|at| *at <= self.now + PERIOD)
            .map(|at| self.sample(at, opened))
            .collect()
    }

    fn opened(&self) -> u64 {
        self.events
            .iter()
            .map(|(at, _)| *at)
            .min()
            .unwrap_or_default()
    }

    fn sample(&self, at: u64, opened: u64) -> Sample {
        let of = |is_out: bool| {
            self.events
                .iter()
                .filter(move |(time, bytes)| *time <= at && (*bytes > 0) == is_out)
        };
        let bytes = |is_out| {
            of(is_out)
                .map(|(_, bytes)| bytes.unsigned_abs())
                .sum::<u64>()
        };
        let segments = |is_out| {
            of(is_out)
                .map(|(_, bytes)| bytes.unsigned_abs().div_ceil(MSS))
                .sum::<u64>()
        };
        let ago = |is_out| {
            Span::from_millis(
                at - of(is_out).map(|(time, _)| *time).max().unwrap_or(opened) / 4 * 4,
            )
        };
        let tcp = TcpInfo {
            state: Some(1),
            snd_mss: Some(ByteCount::new(MSS)),
            min_rtt: Some(Span::from_millis(self.rtt)),
            bytes_sent: Some(ByteCount::new(bytes(true))),
            bytes_received: Some(ByteCount::new(bytes(false))),
            data_segs_out: Some(SegCount::new(segments(true))),
            data_segs_in: Some(SegCount::new(segments(false))),
            since_data_sent: Some(ago(true)),
            since_data_received: Some(ago(false)),
            ..TcpInfo::default()
        };
        Sample {
            at: Span::from_millis(at),
            stream: 0,
            bytes: ByteCount::ZERO,
            tcp,
            memory: None,
        }
    }
}

/// Returns the account of a command of `whole` milliseconds, with so much processor time in all,
/// used evenly.
fn account(talks: &[Talk], whole: u64, used: u64) -> TimeAccount {
    let samples: Vec<Vec<Sample>> = talks.iter().map(Talk::samples).collect();
    let connections: Vec<ConnectionSamples<'_>> =
        samples.iter().map(|samples| connection(samples)).collect();
    let times = (0..=whole / PERIOD).map(|number| number * PERIOD);
    let processor: Vec<(Span, Span)> = times
        .map(|at| {
            (
                Span::from_millis(at),
                Span::from_micros(at * used * 1000 / whole),
            )
        })
        .collect();
    let account = time_account(Span::from_millis(whole), &connections, &processor);
    let parts = account.data
        + account.requests
        + account.connecting
        + account.other_program
        + account.own_work
        + account.elsewhere;
    assert_eq!(parts, account.whole, "the parts are the whole: {account:?}");
    account
}

fn connection(samples: &[Sample]) -> ConnectionSamples<'_> {
    let ends = ["192.0.2.1:4000", "192.0.2.2:5432"].map(|end| end.parse().unwrap());
    let found = samples.first().map_or(Span::ZERO, |sample| sample.at);
    ConnectionSamples {
        ends,
        found,
        is_old: false,
        samples: samples.iter().collect(),
    }
}

#[track_caller]
fn assert_near(got: Span, expected_ms: u64, what: &str) {
    let (got, expected) = (got.as_secs_f64() * 1e3, expected_ms as f64);
    assert!(
        (got - expected).abs() <= (0.1 * expected).max(50.0),
        "{what}: {got:.0} ms, and not {expected} ms"
    );
}

#[test]
fn a_dump_of_small_queries_and_one_table_is_what_it_is() {
    for rtt in [20, 80, 250] {
        let mut talk = Talk::new(rtt, 0);
        (0..60).for_each(|_| {
            talk.sends(90).is_answered(300, 0);
        });
        talk.sends(60).is_answered(500, 0).moves(-20_000, 2000);
        (0..20).for_each(|_| {
            talk.sends(90).is_answered(300, 0);
        });
        let whole = talk.now;
        let account = account(&[talk], whole, 0);
        assert_near(account.requests, 81 * rtt, "requests");
        assert_near(account.data, 2000, "data");
        assert_near(account.connecting, rtt, "connecting");
        assert!(
            (77..=84).contains(&account.round_trips),
            "{rtt}: {account:?}"
        );
    }
}

#[test]
fn round_trips_that_are_shorter_than_the_time_between_samples_are_counted() {
    let mut talk = Talk::new(4, 0);
    (0..400).for_each(|_| {
        talk.sends(90).is_answered(300, 4);
    });
    let whole = talk.now;
    let account = account(&[talk], whole, 0);
    assert_near(account.requests, 1600, "requests");
    assert_near(account.other_program, 1600, "the other program");
}

#[test]
fn an_answer_that_takes_longer_than_a_round_trip_is_the_work_of_the_other_program() {
    let mut talk = Talk::new(80, 100);
    (0..5).for_each(|_| {
        talk.sends(90).is_answered(300, 400);
    });
    let whole = talk.now;
    let account = account(&[talk], whole, 0);
    assert_near(account.requests, 400, "requests");
    assert_near(account.other_program, 2000, "the other program");
}

#[test]
fn the_time_between_an_answer_and_the_next_request_is_work_or_a_wait_of_ours() {
    let talk = || {
        let mut talk = Talk::new(80, 0);
        (0..5).for_each(|_| {
            talk.sends(90).is_answered(300, 0).pauses(400);
        });
        talk
    };
    let whole = talk().now;
    let working = account(&[talk()], whole, whole);
    assert_near(working.own_work, 2000, "work");
    assert_near(working.requests, 400, "requests");
    let idle = account(&[talk()], whole, 0);
    assert_near(idle.elsewhere, 2000, "the rest");
}

#[test]
fn a_slow_stream_one_way_is_data_and_no_request() {
    for bytes in [100, -100] {
        let mut talk = Talk::new(80, 0);
        talk.moves(bytes, 3000);
        let whole = talk.now;
        let account = account(&[talk], whole, 0);
        assert_near(account.data, 3000, "data");
    }
}

/// Flights of 2 MiB that follow on messages of the receiver, as a window of an ssh channel makes
/// them.
#[test]
fn flights_that_many_small_messages_follow_are_data_and_such_that_one_waits_for_are_requests() {
    let flights = |replies: usize| {
        let mut talk = Talk::new(200, 0);
        talk.sends(90).is_answered(300, 0);
        for _ in 0..10 {
            for _ in 0..replies {
                talk.moves(-20_000, 20 / replies as u64).sends(36);
            }
            talk.pauses(200);
        }
        let whole = talk.now;
        account(&[talk], whole, 0)
    };
    assert_near(flights(10).data, 2000, "data");
    let one_by_one = flights(1);
    assert_near(one_by_one.requests, 2000, "requests");
    assert_near(one_by_one.data, 200, "data");
}

#[test]
fn an_upload_is_data_while_it_waits_to_be_sent() {
    let mut talk = Talk::new(80, 0);
    talk.sends(90)
        .is_answered(300, 0)
        .moves(20_000, 1000)
        .pauses(500)
        .moves(20_000, 500);
    let whole = talk.now;
    let mut samples = talk.samples();
    let assert_data = |samples: &[Sample], expected| {
        let account = time_account(Span::from_millis(whole), &[connection(samples)], &[]);
        assert_near(account.data, expected, "data");
    };
    assert_data(&samples, 1500);
    // A closed window.
    for sample in &mut samples {
        let is_held = (1150..1800).contains(&(sample.at.as_nanos() / 1_000_000));
        sample.tcp.not_sent = Some(ByteCount::new(if is_held { 100_000 } else { 0 }));
    }
    assert_data(&samples, 2000);
}

#[test]
fn connections_one_after_another_each_take_a_round_trip_to_open() {
    let mut begin = 0;
    let talks: Vec<Talk> = (0..10)
        .map(|_| {
            let mut talk = Talk::new(80, begin);
            talk.sends(60)
                .is_answered(400, 0)
                .sends(90)
                .is_answered(300, 0);
            begin = talk.now + 60;
            talk
        })
        .collect();
    let account = account(&talks, begin, begin);
    assert_near(account.connecting, 800, "connecting");
    assert_near(account.requests, 1600, "requests");
    assert_near(account.own_work, 600, "work");
}

#[test]
fn one_connection_that_carries_data_decides_over_others_that_wait() {
    let mut waits = Talk::new(80, 0);
    waits.sends(90).is_answered(300, 1000);
    let mut carries = Talk::new(80, 0);
    carries.sends(90).is_answered(300, 0).moves(-20_000, 800);
    let whole = waits.now;
    let account = account(&[waits, carries], whole, 0);
    assert_near(account.data, 800, "data");
    assert_near(account.requests, 80, "requests");
}

#[test]
fn what_is_seen_after_the_end_of_the_command_does_not_count() {
    let mut talk = Talk::new(80, 0);
    talk.moves(-20_000, 400)
        .pauses(300)
        .sends(90)
        .is_answered(300, 0)
        .moves(-20_000, 400);
    assert_near(account(&[talk], 300, 0).data, 220, "data");
}

#[test]
fn nothing_seen_is_work_and_the_rest() {
    let none = account(&[], 1000, 300);
    assert_near(none.own_work, 300, "work");
    assert_eq!(
        (none.data, none.requests, none.round_trips),
        (Span::ZERO, Span::ZERO, 0)
    );
    assert_eq!(time_account(Span::ZERO, &[], &[]), TimeAccount::default());
}
