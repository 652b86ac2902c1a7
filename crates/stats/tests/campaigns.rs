//! Simulated campaigns: a few of those that the example `families` prints.

mod families;

use families::{Change, FURTHER, Family, SEVEN, SimulatedPath};
use fullpipe_record::{SweepCell, SweepForecast, SweepPlan, SweepReason, SweepRun, SweepShape};
use fullpipe_stats::campaign::{CampaignEnd, CampaignPlan, CampaignStep};
use fullpipe_units::{ByteCount, Span};

fn plan(path: &SimulatedPath) -> CampaignPlan {
    CampaignPlan::new(path.plan()).unwrap()
}

#[test]
fn most_campaigns_find_a_knee_for_a_fifth_of_the_grid() {
    let families = SEVEN.iter().chain(&FURTHER);
    let outcomes =
        families.flat_map(|family| (0..3).map(|seed| SimulatedPath::new(*family, seed).campaign()));
    let outcomes: Vec<_> = outcomes.collect();
    let good = outcomes
        .iter()
        .filter(|outcome| outcome.rate >= 0.95)
        .count();
    assert!(
        good * 100 >= outcomes.len() * 95,
        "{good} of {}",
        outcomes.len()
    );
    for outcome in &outcomes {
        assert!(
            outcome.bytes <= 0.25 && outcome.time <= 0.2,
            "{} {}",
            outcome.bytes,
            outcome.time
        );
    }
}

#[test]
fn a_campaign_goes_on_from_its_runs_with_the_very_run_that_it_would_have_made() {
    let mut path = SimulatedPath::new(Family::Mixed, 3);
    let runs = path.campaign().runs;
    let plan = plan(&path);
    for (done, next) in runs.iter().enumerate() {
        let again = plan.next_step(&runs[..done]);
        assert_eq!(
            again,
            CampaignStep::Run {
                cell: next.cell,
                reason: next.reason
            },
            "after {done} runs"
        );
    }
    assert!(matches!(plan.next_step(&runs), CampaignStep::Done(_)));
}

#[test]
fn a_path_that_changes_has_no_knee_across_the_change() {
    for family in [Family::Clean, Family::Cross, Family::Decline] {
        let mut path = SimulatedPath::new(family, 5);
        let unchanged = SimulatedPath::new(family, 5).campaign();
        let at = unchanged.begun[unchanged.begun.len() / 2];
        path.change = Some(Change {
            at,
            factor: 0.7,
            rtt: Span::from_millis(40),
        });
        let outcome = path.campaign();
        let last = outcome.segments[outcome.segments.len() - 1];
        assert!(
            outcome.segments.len() == 2 && outcome.begun[last] >= at,
            "{family:?}: {:?}",
            outcome.segments
        );
    }
}

#[test]
fn a_flat_surface_and_a_knee_beyond_the_grid_are_said() {
    for (family, shape) in [
        (Family::Flat, SweepShape::Flat),
        (Family::Beyond, SweepShape::BeyondGrid),
    ] {
        let shapes = (0..4).map(|seed| {
            SimulatedPath::new(family, seed)
                .campaign()
                .answer
                .map(|answer| answer.shape)
        });
        assert!(
            shapes.filter(|found| *found == Some(shape)).count() >= 3,
            "{family:?}"
        );
    }
}

#[test]
fn a_run_that_does_not_count_is_repeated_once_and_not_fitted() {
    let path = SimulatedPath::new(Family::Clean, 1);
    let plan = plan(&path);
    let CampaignStep::Run {
        cell,
        reason: SweepReason::Anchor,
    } = plan.next_step(&[])
    else {
        panic!("no anchor")
    };
    let broken = families::broken(cell);
    assert_eq!(
        plan.next_step(std::slice::from_ref(&broken)),
        CampaignStep::Run {
            cell,
            reason: SweepReason::Again
        }
    );
    let twice = plan.next_step(&[broken.clone(), broken.clone()]);
    assert!(
        !matches!(
            twice,
            CampaignStep::Run {
                reason: SweepReason::Again,
                ..
            }
        ),
        "{twice:?}"
    );
    assert_eq!(plan.current_answer(&[broken]), None);
}

#[test]
fn a_campaign_of_which_no_run_counts_ends() {
    let path = SimulatedPath::new(Family::Clean, 1);
    let plan = plan(&path);
    let mut runs = Vec::new();
    while let CampaignStep::Run { cell, .. } = plan.next_step(&runs) {
        runs.push(families::broken(cell));
        assert!(runs.len() <= 6, "it goes on for ever");
    }
    assert_eq!(
        (plan.next_step(&runs), plan.current_answer(&runs)),
        (CampaignStep::Done(CampaignEnd::Broken), None)
    );
}

#[test]
fn settings_that_are_too_much_for_the_machine_are_left_out_and_the_others_have_a_knee() {
    for (family, seed) in [
        (Family::Clean, 1),
        (Family::Cross, 2),
        (Family::Loss, 3),
        (Family::Mixed, 4),
    ] {
        let mut path = SimulatedPath::new(family, seed);
        let plan = plan(&path);
        let is_too_much = |cell: SweepCell| cell.streams > 48;
        let runs = path.runs_but(&plan, |_, run| is_too_much(run.cell));
        let left_out = plan.left_out(&runs);
        assert!(
            !left_out.is_empty() && left_out.iter().all(|cell| is_too_much(*cell)),
            "{left_out:?}"
        );
        for cell in left_out {
            assert_eq!(
                runs.iter().filter(|run| run.cell == cell).count(),
                2,
                "{family:?}: {cell}"
            );
        }
        assert_ne!(
            plan.next_step(&runs),
            CampaignStep::Done(CampaignEnd::Broken),
            "{family:?}"
        );
        let knee = plan.current_answer(&runs).unwrap().knee.cell;
        assert!(
            knee.streams <= 48 && path.rate(knee) >= 0.93 * path.best(),
            "{family:?}: {knee}"
        );
    }
}

#[test]
fn a_setting_that_is_left_out_is_no_answer_even_if_a_run_of_it_counts() {
    let mut path = SimulatedPath::new(Family::Clean, 1);
    let plan = plan(&path);
    let runs = path.runs_but(&plan, |runs, _| !runs.is_empty());
    assert!(
        plan.left_out(&runs).contains(&runs[0].cell) && plan.current_answer(&runs).is_none(),
        "{runs:?}"
    );
}

#[test]
fn half_as_many_streams_take_the_place_of_an_anchor_that_is_left_out() {
    let mut path = SimulatedPath::new(Family::Clean, 1);
    let plan = plan(&path);
    let runs = path.runs_but(&plan, |_, run| run.cell.streams == 90);
    let streams: Vec<u16> = runs.iter().take(6).map(|run| run.cell.streams).collect();
    assert_eq!(streams, [8, 90, 90, 48, 1, 24]);
}

#[test]
fn a_reference_that_the_machine_no_longer_bears_is_followed_by_another() {
    let mut path = SimulatedPath::new(Family::Clean, 1);
    let plan = plan(&path);
    let first = |runs: &[SweepRun]| {
        runs.iter()
            .find(|run| run.reason == SweepReason::Reference)
            .map(|run| run.cell)
    };
    let runs = path.runs_but(&plan, |runs, run| {
        runs.len() >= 12 && first(runs) == Some(run.cell)
    });
    let lost = first(&runs).unwrap();
    assert_eq!(plan.left_out(&runs), [lost]);
    let is_reference = |run: &&SweepRun| run.reason == SweepReason::Reference && run.rate.is_some();
    let other = runs.iter().rfind(is_reference).unwrap().cell;
    assert_ne!(other, lost);
    assert!(
        plan.current_answer(&runs).is_some()
            && plan.next_step(&runs) != CampaignStep::Done(CampaignEnd::Broken),
        "{:?}",
        plan.next_step(&runs)
    );
}

#[test]
fn no_run_goes_beyond_the_bytes_that_are_permitted() {
    let mut path = SimulatedPath::new(Family::Clean, 2);
    let plan = CampaignPlan::new(SweepPlan {
        max_bytes: Some(ByteCount::from_mib(100)),
        ..path.plan()
    })
    .unwrap();
    let runs = path.runs(&plan);
    let sent: ByteCount = runs.iter().map(|run| run.sent).sum();
    // The first run's rate is not known before.
    assert!(sent <= ByteCount::from_mib(100).max(runs[0].sent), "{sent}");
    assert_eq!(
        plan.next_step(&runs),
        CampaignStep::Done(CampaignEnd::Budget)
    );
}

#[test]
fn a_prediction_forecasts_the_cost_and_is_measured_early() {
    let mut path = SimulatedPath::new(Family::Clean, 4);
    let plan = CampaignPlan::new(SweepPlan {
        predicted: path.known(),
        ..path.plan()
    })
    .unwrap()
    .with_forecast();
    let runs = path.runs(&plan);
    assert_eq!(Some(runs[4].cell), plan.predicted_knee());
    let (forecast, spent) = (
        plan.forecast_cost(&[]).unwrap(),
        fullpipe_stats::campaign::spent_cost(&runs),
    );
    assert_eq!(
        plan.fixed_plan().forecast,
        Some(forecast),
        "the same each time"
    );
    assert!(
        (forecast.low.bytes..=forecast.high.bytes).contains(&spent.bytes),
        "{forecast:?} {spent:?}"
    );
    let at_the_end = SweepForecast {
        median: spent,
        low: spent,
        high: spent,
    };
    assert_eq!(plan.forecast_cost(&runs), Some(at_the_end));
}

#[test]
fn without_a_prediction_the_first_runs_permit_a_forecast() {
    let mut path = SimulatedPath::new(Family::Clean, 4);
    let plan = plan(&path);
    let runs = path.runs(&plan);
    assert_eq!(
        (plan.forecast_cost(&[]), plan.forecast_cost(&runs[..3])),
        (None, None)
    );
    let early = plan.forecast_cost(&runs[..4]).unwrap();
    let late = plan.forecast_cost(&runs[..runs.len() - 2]).unwrap();
    let width = |forecast: SweepForecast| forecast.high.time.saturating_sub(forecast.low.time);
    assert!(width(late) < width(early), "{early:?} {late:?}");
}

#[test]
fn most_campaigns_cost_what_was_forecast() {
    let within = |family: &Family, seed: u64| {
        let mut path = SimulatedPath::new(*family, seed);
        let plan = CampaignPlan::new(SweepPlan {
            predicted: path.known(),
            ..path.plan()
        })
        .unwrap();
        let (forecast, spent) = (
            plan.forecast_cost(&[]).unwrap(),
            fullpipe_stats::campaign::spent_cost(&path.runs(&plan)),
        );
        (forecast.low.bytes..=forecast.high.bytes).contains(&spent.bytes)
    };
    let campaigns = SEVEN
        .iter()
        .flat_map(|family| (10..12).map(move |seed| within(family, seed)));
    let within = campaigns.filter(|within| *within).count();
    assert!(
        within >= 9,
        "{within} of 14 within the interval that is to have 80 %"
    );
}
