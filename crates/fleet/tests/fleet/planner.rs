use std::collections::{BTreeMap, BTreeSet};

use fullpipe_fleet::plan::{
    BusyTimes, DuePair, MeshError, MeshHost, MeshPlanner, MeshSettings, PlannedSlot, SlotPurpose,
    rounds_of_mesh,
};
use fullpipe_units::Span;

fn hosts(count: usize, of_site: usize) -> Vec<MeshHost> {
    (0..count)
        .map(|number| MeshHost {
            name: format!("host{number:03}"),
            site: format!("site{:03}", number / of_site),
            reach: Some(format!("192.0.2.1:{number}")),
        })
        .collect()
}

fn all_pairs(count: usize) -> Vec<DuePair> {
    let pairs = (0..count).flat_map(|sender| (0..count).map(move |receiver| (sender, receiver)));
    pairs
        .filter(|(sender, receiver)| sender != receiver)
        .map(|(sender, receiver)| DuePair {
            due: 0,
            sender,
            receiver,
        })
        .collect()
}

fn plan(hosts: &[MeshHost], settings: &MeshSettings, until: u64) -> Vec<PlannedSlot> {
    let turns = vec![0; hosts.len()];
    let mut planner = MeshPlanner::new(hosts, settings, BusyTimes::default(), &turns);
    planner.plan_turns(&all_pairs(hosts.len()), 1_000_000, 1_000_000 + until)
}

/// Fails if two slots have something for themselves at the same time.
fn assert_no_overlap(planned: &[PlannedSlot]) {
    let mut taken: BTreeMap<&str, Vec<(u64, u64)>> = BTreeMap::new();
    for slot in planned {
        for resource in &slot.resources {
            let times = taken.entry(resource).or_default();
            times.push((slot.slot.starts, slot.slot.ends));
        }
    }
    for (resource, mut times) in taken {
        times.sort_unstable();
        for pair in times.windows(2) {
            assert!(pair[0].1 <= pair[1].0, "{resource}: {pair:?}");
        }
    }
}

#[test]
fn a_mesh_has_as_many_rounds_as_the_circle_method() {
    let day = 86_400;
    for (count, every, bound) in [(10, day, 18), (11, day, 22), (30, day, 58), (100, day, 198)] {
        let settings = MeshSettings {
            every: Span::from_secs(every),
            ..MeshSettings::default()
        };
        assert_eq!(rounds_of_mesh(count), bound);
        let planned = plan(&hosts(count, 1), &settings, every);
        assert_no_overlap(&planned);
        let first: BTreeMap<_, _> = planned
            .iter()
            .rev()
            .map(|slot| (slot.slot.ends_of_data(), slot.slot.starts))
            .collect();
        assert_eq!(
            first.len(),
            count * (count - 1),
            "each pair has its turn in a day"
        );
        let rounds: BTreeSet<u64> = first.into_values().collect();
        crate::show(&format!(
            "{count} hosts: {} rounds, {bound} at least",
            rounds.len()
        ));
        assert!(
            rounds.len() as f64 <= 1.1 * bound as f64,
            "{}",
            rounds.len()
        );
    }
}

#[test]
fn turns_are_spread_over_the_time_and_leave_a_host_alone_between() {
    let settings = MeshSettings::default();
    let planned = plan(&hosts(10, 1), &settings, 2 * 86_400);
    for host in ["host000", "host007"] {
        let own = planned
            .iter()
            .filter(|slot| slot.slot.client == host || slot.slot.server == host);
        let starts: Vec<u64> = own.map(|slot| slot.slot.starts).collect();
        let apart: Vec<u64> = starts.windows(2).map(|two| two[1] - two[0]).collect();
        // 18 turns a day: one in 80 minutes.
        assert!(apart.iter().all(|apart| *apart >= 70 * 60), "{apart:?}");
        assert_eq!(starts.len(), 36, "{apart:?}");
    }
}

#[test]
fn sites_share_their_uplinks() {
    let settings = MeshSettings {
        every: Span::from_secs(3 * 86_400),
        ..MeshSettings::default()
    };
    let planned = plan(&hosts(24, 4), &settings, 3 * 86_400);
    assert_no_overlap(&planned);
    let turns: BTreeSet<_> = planned
        .iter()
        .map(|slot| slot.slot.ends_of_data())
        .collect();
    assert_eq!(turns.len(), 24 * 23);
    let wide = MeshSettings {
        tests_of_site: 4,
        ..settings
    };
    let finish = |planned: &[PlannedSlot]| {
        let mut last: BTreeMap<_, u64> = BTreeMap::new();
        for slot in planned.iter().rev() {
            last.insert(
                (
                    slot.slot.sender().to_owned(),
                    slot.slot.client.clone(),
                    slot.slot.server.clone(),
                ),
                slot.slot.starts,
            );
        }
        last.into_values().max()
    };
    let planned_wide = plan(&hosts(24, 4), &wide, 3 * 86_400);
    assert!(finish(&planned_wide) < finish(&planned));
}

#[test]
fn who_cannot_be_reached_connects_and_two_such_hosts_have_no_turn() {
    let mut hosts = hosts(4, 1);
    hosts[0].reach = None;
    hosts[1].reach = None;
    let planned = plan(&hosts, &MeshSettings::default(), 86_400);
    for slot in &planned {
        assert!(!["host000", "host001"].contains(&slot.slot.server.as_str()));
    }
    let pairs: BTreeSet<_> = planned
        .iter()
        .map(|slot| slot.slot.ends_of_data())
        .collect();
    assert_eq!(pairs.len(), 4 * 3 - 2);
}

#[test]
fn a_change_takes_the_next_room_and_later_plans_leave_it_alone() {
    let (hosts, settings) = (hosts(4, 2), MeshSettings::default());
    let mut planner = MeshPlanner::new(&hosts, &settings, BusyTimes::default(), &[900; 4]);
    let pair = DuePair {
        due: 0,
        sender: 0,
        receiver: 3,
    };
    let purposes = [
        SlotPurpose::Change,
        SlotPurpose::Change,
        SlotPurpose::Diagnosis,
    ];
    let mut planned = planner.plan_at_once(pair, &purposes, 1000, 2000);
    assert_eq!(planned.len(), 3);
    assert_eq!(planned[0].slot.starts, 1000);
    assert_eq!(planned[2].slot.load.duration, Span::from_secs(10));
    assert!(planner.plan_at_once(pair, &purposes, 1000, 1010).is_empty());
    planned.extend(planner.plan_turns(&all_pairs(4), 1000, 90_000));
    assert_no_overlap(&planned);
}

#[test]
fn a_mesh_that_does_not_fit_is_refused_with_what_would() {
    let settings = MeshSettings::default();
    assert!(settings.cost(100).is_ok());
    let Err(error) = settings.cost(1000) else {
        panic!("1000 hosts cannot meet in a day")
    };
    let MeshError::TooLarge { fits, needs, .. } = error else {
        panic!("{error}")
    };
    assert!(settings.cost(fits).is_ok() && settings.cost(fits + 1).is_err());
    let longer = MeshSettings {
        every: needs,
        ..settings.clone()
    };
    assert!(longer.cost(1000).is_ok());
    let sentence = settings.cost(1000).unwrap_err().to_string();
    assert!(
        sentence.contains("--every") && sentence.contains("1000 hosts"),
        "{sentence}"
    );
    for wrong in [
        MeshSettings {
            every: Span::from_secs(1),
            ..settings.clone()
        },
        MeshSettings {
            busy: f64::NAN,
            ..settings.clone()
        },
        MeshSettings {
            busy: 0.0,
            ..settings.clone()
        },
        MeshSettings {
            streams: 0,
            ..settings.clone()
        },
        MeshSettings {
            duration: Span::from_secs(1000),
            ..settings.clone()
        },
    ] {
        assert!(
            matches!(wrong.cost(3), Err(MeshError::Setting(_))),
            "{wrong:?}"
        );
    }
}
