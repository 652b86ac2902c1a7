//! Pairs of evidence on either side of a threshold.

use fullpipe_diagnose::diagnose;
use fullpipe_record::{Cause, Evidence, Limit, Steady};
use fullpipe_units::{BitRate, ByteCount, Span};

use crate::builder::{MIB, Moment, capacity, evidence, moment, samples, sawtooth, stated, without};

/// 40 Mbit/s over 100 ms with room in every window and buffer: nothing holds it back.
fn unhindered() -> Moment {
    Moment {
        cwnd: MIB,
        window: 2.0 * MIB,
        sndbuf: 4.0 * MIB,
        unsent: 0.0,
        ..moment(40.0, 100.0)
    }
}

/// The same with some data that waits for nothing that shows.
fn unexplained() -> Moment {
    Moment {
        unsent: 50e3,
        ..unhindered()
    }
}

fn of(congestion: &str, at: impl Fn(f64) -> Moment) -> Evidence {
    evidence(congestion, 100, samples(10.0, 1, at))
}

fn kind(evidence: &Evidence) -> Limit {
    diagnose(evidence).kind
}

/// `within` gives `kind`, and `beyond` does not.
fn assert_edge(kind_within: Limit, within: &Evidence, beyond: &Evidence) {
    assert_eq!(kind(within), kind_within, "{:#?}", diagnose(within));
    assert_ne!(kind(beyond), kind_within, "{:#?}", diagnose(beyond));
}

#[test]
fn nothing_that_holds_is_unknown() {
    assert_eq!(kind(&of("cubic", |_| unexplained())), Limit::Unknown);
}

#[test]
fn a_tenth_of_the_time_idle_is_idle() {
    let busy = |busy| {
        of("cubic", move |_| Moment {
            busy,
            ..unexplained()
        })
    };
    assert_edge(Limit::SenderApplication, &busy(0.88), &busy(0.92));
}

#[test]
fn idle_is_the_limit_only_where_nothing_held_for_longer() {
    let full_for = |share: f64| {
        of("cubic", move |t| {
            let full = (t * 2.0).fract() < share;
            Moment {
                busy: 0.35,
                in_flight: if full { 2.0 * MIB } else { 0.0 },
                cwnd: 3.0 * MIB,
                ..unhindered()
            }
        })
    };
    assert_edge(Limit::ReceiveWindow, &full_for(0.8), &full_for(0.5));
    assert_eq!(kind(&full_for(0.5)), Limit::SenderApplication);
}

#[test]
fn a_window_that_is_full_for_half_of_the_time_limits() {
    let full_for = |share: f64| {
        of("cubic", move |t| {
            let full = (t * 2.0).fract() < share;
            Moment {
                in_flight: if full { 2.0 * MIB } else { MIB },
                cwnd: 3.0 * MIB,
                ..unhindered()
            }
        })
    };
    assert_edge(Limit::ReceiveWindow, &full_for(0.6), &full_for(0.4));
}

/// On loopback, a burst of 80 KB at 616 kbit/s was called a receive window of 27.59 Gbit/s.
#[test]
fn a_window_that_allows_far_more_than_is_carried_is_not_the_limit() {
    let carrying = |mbps: f64| {
        of("cubic", move |_| Moment {
            mbps,
            in_flight: 2.0 * MIB,
            cwnd: 3.0 * MIB,
            rwnd_limited: 0.99,
            ..unhindered()
        })
    };
    assert_edge(Limit::ReceiveWindow, &carrying(20.0), &carrying(15.0));
}

#[test]
fn of_a_small_window_a_quarter_may_seem_unused_and_of_a_large_one_a_sixteenth() {
    let used = |window: f64, share: f64| {
        let mbps = window * share * 8.0 / 1e6 / 0.1;
        of("cubic", move |_| Moment {
            mbps,
            in_flight: window * share,
            window,
            cwnd: window * 2.0,
            ..unhindered()
        })
    };
    assert_edge(
        Limit::ReceiveWindow,
        &used(65_536.0, 0.78),
        &used(65_536.0, 0.72),
    );
    assert_edge(
        Limit::ReceiveWindow,
        &used(8.0 * MIB, 0.95),
        &used(8.0 * MIB, 0.92),
    );
    // Segments as on loopback, three of which are more than a train.
    let segments = |share| {
        without(used(MIB, share), |sample| {
            sample.tcp.snd_mss = Some(ByteCount::new(65_483));
        })
    };
    assert_edge(Limit::ReceiveWindow, &segments(0.83), &segments(0.79));
}

#[test]
fn the_smaller_of_two_full_windows_limits_and_the_clock_decides_where_they_are_alike() {
    let with_cwnd = |cwnd: f64, rwnd_limited: f64| {
        of("cubic", move |t| Moment {
            in_flight: 1.96 * MIB,
            cwnd: (cwnd + 0.003 * t) * MIB,
            rwnd_limited,
            unsent: MIB,
            ..unhindered()
        })
    };
    assert_edge(
        Limit::ReceiveWindow,
        &with_cwnd(2.1, 0.0),
        &with_cwnd(1.96, 0.0),
    );
    assert_eq!(kind(&with_cwnd(1.96, 0.9)), Limit::ReceiveWindow);
}

#[test]
fn the_clock_needs_half_of_the_time_and_a_quarter_under_bbr() {
    let clock = |congestion: &str, rwnd_limited: f64| {
        let full = of(congestion, move |_| Moment {
            rwnd_limited,
            unsent: 20e3,
            app_limited: true,
            ..unhindered()
        });
        without(full, |sample| sample.tcp.snd_wnd = None)
    };
    assert_edge(
        Limit::ReceiveWindow,
        &clock("cubic", 0.55),
        &clock("cubic", 0.45),
    );
    assert_edge(Limit::ReceiveWindow, &clock("bbr", 0.3), &clock("bbr", 0.2));
}

#[test]
fn the_clock_needs_half_of_the_window_in_use() {
    let used = |share: f64| {
        of("cubic", move |_| Moment {
            rwnd_limited: 0.9,
            in_flight: share * 2.0 * MIB,
            cwnd: 4.0 * MIB,
            unsent: 20e3,
            ..unhindered()
        })
    };
    assert_edge(Limit::ReceiveWindow, &used(0.55), &used(0.45));
}

#[test]
fn a_window_that_fell_by_a_quarter_shows_a_slow_reader() {
    let fell_to = |share: f64| {
        of("cubic", move |t| {
            let window = if t < 2.0 {
                2.0 * MIB
            } else {
                share * 2.0 * MIB
            };
            Moment {
                window,
                in_flight: window,
                cwnd: 3.0 * MIB,
                ..unhindered()
            }
        })
    };
    assert_edge(Limit::ReceiverApplication, &fell_to(0.7), &fell_to(0.8));
}

#[test]
fn a_send_buffer_limits_when_it_is_full_at_times_and_much_used() {
    // `low` for most of the time, `high` for one sample in five.
    let used = |low: f64, high: f64| {
        of("cubic", move |t| {
            let share = if (t * 4.0).fract() < 0.2 { high } else { low };
            let sndbuf_limited = 0.015;
            Moment {
                in_flight: share * 4.0 * MIB,
                cwnd: 8.0 * MIB,
                window: 9.0 * MIB,
                sndbuf_limited,
                ..unhindered()
            }
        })
    };
    assert_edge(Limit::SendBuffer, &used(0.7, 0.93), &used(0.7, 0.87));
    assert_edge(Limit::SendBuffer, &used(0.56, 0.95), &used(0.48, 0.95));
}

#[test]
fn a_writer_that_never_waits_for_room_is_not_stopped_by_its_buffer() {
    let waits = |sndbuf_limited: f64| {
        of("cubic", move |_| Moment {
            in_flight: 3.9 * MIB,
            cwnd: 8.0 * MIB,
            window: 9.0 * MIB,
            sndbuf_limited,
            ..unhindered()
        })
    };
    assert_edge(Limit::SendBuffer, &waits(0.003), &waits(0.001));
}

#[test]
fn a_send_buffer_that_is_more_than_full_and_never_much_emptier_limits_without_the_kernels_word() {
    let buffer = |least: f64, most: f64| {
        of("cubic", move |t| {
            let used = if ((t / 0.05).round() as u64).is_multiple_of(2) {
                least
            } else {
                most
            };
            Moment {
                in_flight: used * 1e6,
                sndbuf: 1e6,
                unsent: 0.0,
                app_limited: true,
                cwnd: 5e6,
                ..unhindered()
            }
        })
    };
    assert_edge(Limit::SendBuffer, &buffer(0.89, 1.01), &buffer(0.82, 0.96));
}

#[test]
fn writes_larger_than_the_buffer_leave_data_unsent_and_the_kernels_clock_decides() {
    let limited = |share: f64| {
        of("bbr", move |t| {
            let unsent = if ((t / 0.05).round() as u64).is_multiple_of(3) {
                0.0
            } else {
                60e3
            };
            Moment {
                mbps: 4.0,
                in_flight: 50e3,
                unsent,
                sndbuf: 60e3,
                sndbuf_limited: share,
                cwnd: 300e3,
                ..unhindered()
            }
        })
    };
    assert_edge(Limit::SendBuffer, &limited(0.4), &limited(0.1));
}

#[test]
fn a_send_buffer_with_a_quarter_unsent_is_not_the_limit() {
    let unsent = |share: f64| {
        of("cubic", move |_| Moment {
            in_flight: (1.0 - share) * 4.0 * MIB,
            unsent: share * 4.0 * MIB,
            cwnd: 8.0 * MIB,
            window: 9.0 * MIB,
            sndbuf_limited: 0.015,
            ..unhindered()
        })
    };
    assert_edge(Limit::SendBuffer, &unsent(0.22), &unsent(0.28));
}

#[test]
fn a_program_is_behind_unless_the_send_buffer_is_full() {
    let used = |share: f64| {
        of("cubic", move |_| Moment {
            in_flight: share * 4.0 * MIB,
            app_limited: true,
            sndbuf_limited: 0.015,
            cwnd: 8.0 * MIB,
            window: 9.0 * MIB,
            ..unhindered()
        })
    };
    assert_edge(Limit::SenderApplication, &used(0.55), &used(0.95));
    // Before Linux 4.9: nothing unsent, and a tenth of the window unused.
    let windowed = |share: f64| {
        let full = of("cubic", move |_| Moment {
            cwnd: 500e3 / share,
            ..unhindered()
        });
        without(full, |sample| sample.tcp.app_limited = None)
    };
    assert_edge(Limit::SenderApplication, &windowed(0.85), &windowed(0.95));
}

#[test]
fn a_pipe_of_nine_tenths_of_the_congestion_window_is_full() {
    // All else is missing; the window grows, after a loss.
    let piped = |share: f64| {
        let full = of("cubic", move |t| {
            let grows = moment(40.0 + t, 100.0);
            Moment {
                cwnd: grows.in_flight / share,
                lost_per_second: if t < 1.0 { 3.0 } else { 0.0 },
                ..grows
            }
        });
        without(full, |sample| {
            sample.memory = None;
            (sample.tcp.not_sent, sample.tcp.app_limited) = (None, Some(false));
        })
    };
    assert_edge(Limit::CongestionWindow, &piped(0.93), &piped(0.87));
}

#[test]
fn nine_tenths_of_what_was_reported_is_all_of_it() {
    // A window that limits, and a rate that is close to the path's or not.
    let rate = |share: f64| {
        let mbps = 94.148 * share;
        let full = of("cubic", move |_| {
            let then = moment(mbps, 100.0);
            Moment {
                window: then.in_flight,
                cwnd: then.in_flight * 2.0,
                ..then
            }
        });
        stated(full, 100)
    };
    assert_edge(Limit::Capacity, &rate(0.92), &rate(0.88));
}

#[test]
fn under_bbr_four_fifths_are_all_of_it_too() {
    let rate = |mbps: f64| {
        stated(
            of("bbr", move |_| Moment {
                cwnd: moment(mbps, 100.0).in_flight * 2.0,
                ..moment(mbps, 100.0)
            }),
            100,
        )
    };
    assert_edge(Limit::Capacity, &rate(94.148 * 0.83), &rate(94.148 * 0.77));
}

#[test]
fn a_quarter_more_of_round_trip_time_is_a_queue() {
    // Two segments take 0.6 ms at this rate. The window grows a little, or there would be no other
    // limit to find.
    let loaded = |rtt_ms: f64| {
        let full = of("cubic", move |t| {
            moment(40.0 + t, if t < 0.2 { 100.0 } else { rtt_ms })
        });
        evidence("cubic", 100, full.sender_samples)
    };
    assert_edge(Limit::Capacity, &loaded(128.0), &loaded(123.0));
}

#[test]
fn a_window_that_grows_for_nothing_meets_a_full_pipe() {
    // From 100 to 120 ms, with the same rate or with one that grows too.
    let gaining = |gain: f64| of("cubic", move |t| moment(40.0 + gain * t, 100.0 + 2.0 * t));
    assert_edge(Limit::Capacity, &gaining(0.0), &gaining(1.0));
    // Little growth, and too little to decide.
    assert_eq!(
        kind(&of("cubic", |t| moment(40.0, 100.0 + t))),
        Limit::Capacity,
        "the round trips grow with it"
    );
    assert_ne!(
        kind(&of("cubic", |t| moment(40.0, 100.0 + 0.5 * t))),
        Limit::Capacity
    );
}

/// A loss in each of the named seconds, each in its own recovery, at `mbps` that do not change.
fn lost_in(seconds: &'static [f64], mbps: f64) -> Evidence {
    of("reno", move |t| {
        let lost = t.fract() < 0.05 && seconds.contains(&t.floor());
        Moment {
            recovering: lost,
            lost_per_second: if lost { 20.0 } else { 0.0 },
            ..moment(mbps, 100.0)
        }
    })
}

const EVERY_SECOND: &[f64] = &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0];

#[test]
fn loss_explains_a_rate_down_to_half_of_what_it_allows() {
    // 1.2 ÷ √p segments a round trip at one loss a second: 144 ÷ 10 segments, or 1.7 Mbit/s.
    assert_edge(
        Limit::Loss,
        &lost_in(EVERY_SECOND, 0.55),
        &lost_in(EVERY_SECOND, 0.35),
    );
}

#[test]
fn a_window_that_losses_bring_down_from_slow_start_is_limited_by_loss() {
    assert_eq!(kind(&lost_in(EVERY_SECOND, 40.0)), Limit::Loss);
}

#[test]
fn one_loss_is_an_accident_and_two_are_a_limit() {
    assert_edge(
        Limit::Loss,
        &lost_in(&[3.0, 6.0], 4.0),
        &lost_in(&[6.0], 4.0),
    );
}

#[test]
fn losses_that_came_again_and_again_before_the_judged_part_are_a_limit_still() {
    let early = |seconds| Evidence {
        steady: Some(late()),
        ..lost_in(seconds, 4.0)
    };
    assert_edge(
        Limit::Loss,
        &early(&[0.0, 1.0, 2.0, 3.0]),
        &early(&[0.0, 1.0]),
    );
}

/// A steady part from the sixth second on.
fn late() -> Steady {
    let rate = BitRate::from_mbps(4);
    Steady {
        ramp: Span::from_secs(6),
        ramp_rate: rate,
        rate,
        duration: Span::from_secs(4),
    }
}

#[test]
fn what_holds_far_more_at_other_times_is_no_short_queue() {
    let regular = [5.0, 11.0, 17.0, 23.0, 29.0, 35.0, 41.0];
    let cause = |seconds| {
        diagnose(&stated(
            sawtooth("cubic", seconds, &regular, 1.7, 0.7, 24.0),
            1000,
        ))
        .cause
    };
    assert_eq!(cause(44.0), Cause::ShallowQueue);
    // From then on the window grows to twice that size, and nothing is lost.
    assert_eq!(cause(60.0), Cause::Random);
}

#[test]
fn one_window_before_loss_takes_a_few_losses_at_it_or_eight_within_a_twentieth() {
    // The load ends soon after the last loss: a window that grew on without one would show that no
    // queue is too short.
    let cause = |losses: &[f64]| {
        let seconds = losses.last().unwrap() + 3.0;
        diagnose(&stated(
            sawtooth("cubic", seconds, losses, 1.7, 0.7, 24.0),
            1000,
        ))
        .cause
    };
    let regular = [5.0, 11.0, 17.0, 23.0, 29.0, 35.0, 41.0, 47.0];
    assert_eq!(cause(&regular), Cause::ShallowQueue);
    assert_eq!(cause(&regular[..7]), Cause::ShallowQueue);
    assert_eq!(cause(&regular[..4]), Cause::Random);
    // Five and seven seconds apart, the windows deviate by 3 %; four and eight apart, by 6 %.
    let irregular = [5.0, 10.0, 17.0, 22.0, 29.0, 34.0, 41.0, 46.0, 53.0, 58.0];
    assert_eq!(cause(&irregular), Cause::ShallowQueue);
    assert_eq!(cause(&irregular[..7]), Cause::Random);
    assert_eq!(
        cause(&[5.0, 9.0, 17.0, 21.0, 29.0, 33.0, 41.0, 45.0, 53.0, 57.0]),
        Cause::Random
    );
}

#[test]
fn a_window_that_stands_still_after_a_loss_is_recovering() {
    let lost_at_first = |congestion, share: f64| {
        of(congestion, move |t| {
            let early = t < 1.0;
            let then = moment(if early { 40.0 } else { 40.0 * share }, 100.0);
            // One overshoot, and many packets of it in a row.
            Moment {
                lost_per_second: if t < 0.5 { 100.0 } else { 0.0 },
                ..then
            }
        })
    };
    for share in [0.7, 0.95] {
        assert_eq!(
            diagnose(&lost_at_first("cubic", share)).cause,
            Cause::Recovering,
            "{share}"
        );
    }
    assert_ne!(
        diagnose(&lost_at_first("bbr", 0.7)).cause,
        Cause::Recovering
    );
}

#[test]
fn full_links_are_full_at_any_length() {
    for rtt_ms in [5.0, 20.0, 100.0, 200.0] {
        for congestion in ["cubic", "reno", "bbr"] {
            assert_eq!(
                kind(&capacity(congestion, rtt_ms, 1)),
                Limit::Capacity,
                "{congestion} over {rtt_ms} ms"
            );
        }
    }
}
