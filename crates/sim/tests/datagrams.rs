//! Datagrams, and loads during a transfer, in virtual time.

use fullpipe_record::{
    Direction, HostSettings, Measurement, Path, PathDirection, Reordering, Request, Transport,
};
use fullpipe_sim::{CrossTraffic, CrossTrafficResult, NotModelled, Simulation, SimulationPlan};
use fullpipe_units::{BitRate, ByteCount, Ratio, Span, Time};

/// Payload that 100 Mbit/s carry of datagrams of 1472 bytes.
const CAPACITY: f64 = 100.0 * 1472.0 / 1538.0;

fn udp(mbps: f64) -> Request {
    Request {
        transport: Transport::Udp,
        rate: Some(BitRate::from_bps_f64(mbps * 1e6)),
        block: ByteCount::ZERO,
        duration: Span::from_secs(5),
        ..Request::default()
    }
}

fn tcp() -> Request {
    Request {
        duration: Span::from_secs(5),
        ..Request::default()
    }
}

/// 100 Mbit/s × 20 ms with a queue of 10 ms.
fn plan(request: Request) -> SimulationPlan {
    let rate = BitRate::from_mbps(100);
    let queue = Some(rate.bytes_in(Span::from_millis(10)));
    let direction = PathDirection {
        queue,
        ..PathDirection::of_rate(Some(rate))
    };
    let host = HostSettings::of_linux_6_18();
    SimulationPlan::new(
        Path::with_symmetric_rtt(&direction, Span::from_millis(20)),
        [host.clone(), host],
        request,
        7,
    )
}

fn measure(plan: SimulationPlan) -> (Measurement, Vec<CrossTrafficResult>) {
    Simulation::new(plan).unwrap().measure_with_cross_traffic()
}

#[test]
fn loads_of_more_datagrams_than_can_be_simulated_are_refused() {
    let dense = Request {
        streams: 128,
        block: ByteCount::new(32),
        ..udp(1e5)
    };
    let refused = |plan| Simulation::new(plan).err();
    let too_many = |count| Some(NotModelled::TooManyDatagrams(count));
    assert_eq!(refused(plan(dense.clone())), too_many(250_000_000_000));
    assert_eq!(
        refused(plan(Request {
            bytes: Some(ByteCount::new(32_000)),
            ..dense.clone()
        })),
        None
    );
    let cross_traffic = vec![
        CrossTraffic {
            request: dense.clone(),
            starts: Span::ZERO
        };
        2
    ];
    assert_eq!(
        refused(SimulationPlan {
            cross_traffic,
            ..plan(tcp())
        }),
        too_many(500_000_000_000)
    );
    assert_eq!(
        refused(plan(Request {
            rate: Some(BitRate::from_bps(u64::MAX)),
            ..dense
        })),
        too_many(u64::MAX)
    );
}

#[test]
fn a_simulation_advances_by_so_many_events() {
    let mut stepped = Simulation::new(plan(udp(120.0))).unwrap();
    let end = Time::from_nanos(u64::MAX);
    assert!(!stepped.advance_to(end, 1000));
    assert_eq!(stepped.event_count(), 1000);
    while !stepped.advance_to(end, 7) {}
    assert_eq!(
        stepped.run_to_measurement(),
        Simulation::new(plan(udp(120.0)))
            .unwrap()
            .run_to_measurement()
    );
}

#[test]
fn datagrams_below_the_rate_all_arrive() {
    for direction in [Direction::Upload, Direction::Download] {
        let (measurement, _) = measure(plan(Request {
            direction,
            streams: 2,
            ..udp(20.0)
        }));
        let seen = measurement.summary.datagrams.unwrap();
        assert_eq!(
            (seen.lost, seen.reordered, seen.duplicated),
            (0, 0, 0),
            "{direction:?}"
        );
        assert!(seen.jitter < Span::from_micros(60), "{}", seen.jitter);
        let offered = measurement.summary.sent.as_f64() * 8.0 / 5.0;
        assert!((offered / 40e6 - 1.0).abs() < 0.001, "{offered}");
        assert_eq!(measurement.intervals.len(), 5);
        let parts: ByteCount = measurement
            .intervals
            .iter()
            .map(|interval| interval.bytes)
            .sum();
        assert!(
            parts.as_f64() / measurement.summary.sent.as_f64() > 0.99,
            "{parts}"
        );
        let loaded = measurement.rtt.loaded.unwrap().median;
        assert!(loaded < Span::from_millis(21), "{loaded}");
    }
}

#[test]
fn what_the_link_cannot_carry_is_lost_and_the_queue_is_full() {
    let (measurement, _) = measure(plan(udp(120.0)));
    let seen = measurement.summary.datagrams.unwrap();
    let (lost, arriving) = (
        seen.lost as f64 / (seen.lost + seen.received) as f64,
        measurement.arrival_rate().as_mbps(),
    );
    assert!((lost - (1.0 - CAPACITY / 120.0)).abs() < 0.005, "{lost}");
    assert!((arriving / CAPACITY - 1.0).abs() < 0.01, "{arriving}");
    let loaded = measurement.rtt.loaded.unwrap().median;
    assert!(
        (Span::from_millis(28)..Span::from_millis(31)).contains(&loaded),
        "{loaded}"
    );
    assert!(measurement.validity.queue_drops.unwrap() >= seen.lost);
}

#[test]
fn streams_of_equal_pace_lose_alike() {
    let (measurement, _) = measure(plan(Request {
        streams: 10,
        ..udp(29.1)
    }));
    let lost = 1.0 - CAPACITY / 291.0;
    for stream in &measurement.streams {
        let seen = stream.datagrams.unwrap();
        let share = seen.lost as f64 / (seen.lost + seen.received) as f64;
        assert!(
            (share - lost).abs() < 0.2,
            "{share} of stream {}",
            stream.stream
        );
    }
    let all = measurement.summary.datagrams.unwrap();
    assert!(
        (all.lost as f64 / (all.lost + all.received) as f64 - lost).abs() < 0.01,
        "{all:?}"
    );
}

#[test]
fn datagrams_out_of_order_are_those_that_the_link_held_back() {
    let mut reordered = plan(udp(50.0));
    reordered.path.forward.effects.reordering = Some(Reordering {
        share: Ratio::new(0.01),
        by: Span::from_millis(2),
    });
    let (measurement, _) = measure(reordered);
    let seen = measurement.summary.datagrams.unwrap();
    assert!(seen.reordered > 100 && seen.lost == 0, "{seen:?}");
    // The link counts echo requests, too.
    let planted = measurement.validity.reordered.unwrap();
    assert!(
        planted >= seen.reordered && planted - seen.reordered < 20,
        "{planted} {}",
        seen.reordered
    );
}

#[test]
fn a_number_of_bytes_is_sent_and_a_part_of_the_time_omitted() {
    let (measurement, _) = measure(plan(Request {
        bytes: Some(ByteCount::new(1_000_000)),
        ..udp(50.0)
    }));
    assert_eq!(measurement.summary.datagrams_sent, Some(680));
    assert_eq!(measurement.summary.datagrams.unwrap().received, 680);
    let (whole, _) = measure(plan(Request {
        omit: Span::from_secs(1),
        ..udp(50.0)
    }));
    assert!((whole.summary.sent.as_f64() * 8.0 / 5.0 / 50e6 - 1.0).abs() < 0.001);
}

#[test]
fn datagrams_that_no_host_could_send_are_refused() {
    let refused = |request| Simulation::new(plan(request)).unwrap_err();
    assert_eq!(
        refused(Request {
            rate: None,
            ..udp(1.0)
        }),
        NotModelled::DatagramsWithoutRate
    );
    assert_eq!(
        refused(Request {
            block: ByteCount::new(1473),
            ..udp(1.0)
        }),
        NotModelled::Fragments
    );
}

#[test]
fn a_transfer_gets_what_other_loads_leave() {
    let mut shared = plan(Request {
        duration: Span::from_secs(9),
        ..tcp()
    });
    shared.lead = Span::from_secs(1);
    shared.cross_traffic = vec![
        CrossTraffic {
            request: Request {
                duration: Span::from_secs(10),
                ..udp(30.0)
            },
            starts: Span::ZERO,
        },
        CrossTraffic {
            request: Request {
                duration: Span::from_secs(3),
                ..udp(30.0)
            },
            starts: Span::from_secs(4),
        },
    ];
    let (measurement, loads) = measure(shared);
    let rates: Vec<f64> = measurement
        .intervals
        .iter()
        .map(|interval| interval.rate.as_mbps())
        .collect();
    let mean = |from: usize, to: usize| rates[from..to].iter().sum::<f64>() / (to - from) as f64;
    assert!((mean(1, 3) - 65.0).abs() < 5.0, "{rates:?}");
    assert!((mean(4, 6) - 37.0).abs() < 6.0, "{rates:?}");
    assert_eq!(measurement.sending_end().samples[0].at, Span::ZERO);
    assert_eq!(
        loads.iter().map(|load| load.sending).collect::<Vec<_>>(),
        [10, 3].map(Span::from_secs)
    );
    for load in loads {
        let offered = load.sent.as_f64() * 8.0 / load.sending.as_secs_f64();
        assert!((offered / 30e6 - 1.0).abs() < 0.001, "{offered}");
        let seen = load.datagrams.unwrap();
        assert!(
            seen.received > 0 && seen.lost * 20 < seen.received,
            "{seen:?}"
        );
    }
}

#[test]
fn connections_compete_and_stops_change_nothing() {
    let shared = || {
        let mut shared = plan(tcp());
        shared.lead = Span::from_millis(500);
        let four = Request {
            streams: 4,
            duration: Span::from_secs(4),
            ..tcp()
        };
        let bursts = Request {
            burst: Some(8),
            duration: Span::from_secs(1),
            ..udp(9.0)
        };
        shared.cross_traffic = vec![
            CrossTraffic {
                request: four,
                starts: Span::ZERO,
            },
            CrossTraffic {
                request: bursts,
                starts: Span::from_secs(2),
            },
        ];
        shared
    };
    let (alone, _) = measure(plan(tcp()));
    let (measurement, loads) = measure(shared());
    assert!(
        measurement.summary.rate < alone.summary.rate.scale_by(0.6),
        "{}",
        measurement.summary.rate
    );
    assert!(
        loads[0].received.as_f64() * 8.0 / 4.0 > 50e6,
        "{:?}",
        loads[0]
    );
    let mut stepped = Simulation::new(shared()).unwrap();
    for stop in 1.. {
        stepped.run_until(Time::ZERO + Span::from_millis(stop * 37));
        if stepped.is_over() {
            break;
        }
    }
    assert!(stepped.measure_with_cross_traffic() == (measurement, loads));
}
