use super::*;
use fullpipe_record::{HostSettings, Request};
use fullpipe_scenario::{PathSpec, parse_path_flag};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

fn plans() -> Vec<NamedPlan> {
    let paths = [
        "rate=20M,rtt=10ms",
        "rate=20M,rtt=40ms,loss=1e-3",
        "rate=5M,rtt=5ms",
    ];
    let plan = |flag| {
        let path = parse_path_flag(flag, &PathSpec::demo_path()).unwrap();
        let host = HostSettings::of_linux_6_18();
        let request = Request {
            duration: Span::from_secs(1),
            ..Request::default()
        };
        NamedPlan {
            name: None,
            plan: SimulationPlan::new(path, [host.clone(), host], request, 7),
        }
    };
    paths.map(plan).to_vec()
}

fn jobs(count: usize) -> NonZeroUsize {
    NonZeroUsize::new(count).unwrap()
}

#[test]
fn results_come_in_order_whatever_the_number_of_threads() {
    let items: Vec<u64> = (0..200).collect();
    for threads in [1, 3, 500] {
        let mut got = Vec::new();
        in_order(
            jobs(threads),
            &items,
            |item| item * 3,
            |item, result| got.push((*item, result)),
        );
        assert!(
            got.iter()
                .zip(&items)
                .all(|((item, result), expected)| item == expected && *result == item * 3)
        );
        assert_eq!(got.len(), items.len());
    }
}

#[test]
fn a_summary_is_what_the_seeds_alone_give() {
    let idle = AtomicBool::new(false);
    let mut summaries = Vec::new();
    simulate_summaries(&plans(), 3, jobs(2), Interrupt(&idle), &mut |summary| {
        summaries.push(summary);
    })
    .unwrap();
    let mut rates: Vec<BitRate> = (0..3)
        .map(|seed| {
            let plan = plans()[1].plan.clone();
            simulate_plan(
                SimulationPlan {
                    seed: plan.seed + seed,
                    ..plan
                },
                Interrupt(&idle),
            )
            .unwrap()
            .summary
            .rate
        })
        .collect();
    rates.sort_unstable();
    let spread = summaries[1].rate;
    assert_eq!(
        (
            summaries.len(),
            [spread.low, spread.median, spread.high].to_vec()
        ),
        (3, rates)
    );
}

#[test]
fn a_trace_is_of_the_same_transfer_and_its_rates_add_up() {
    let idle = AtomicBool::new(false);
    let plan = plans()[1].plan.clone();
    let mut points = Vec::new();
    let traced = simulate_traced(
        plan.clone(),
        Span::from_millis(7),
        Interrupt(&idle),
        &mut |point| {
            points.push(point.clone());
            Ok::<(), ExperimentError>(())
        },
    );
    assert_eq!(
        traced.unwrap(),
        simulate_plan(plan.clone(), Interrupt(&idle)).unwrap()
    );
    let steps = points
        .windows(2)
        .map(|pair| pair[1].rate.bytes_in(pair[1].sender.at - pair[0].sender.at));
    let (sum, acked) = (
        steps.sum::<ByteCount>(),
        points.last().unwrap().sender.tcp.bytes_acked.unwrap(),
    );
    assert!(
        sum <= acked && sum + ByteCount::new(points.len() as u64) >= acked,
        "{sum} of {acked}"
    );
    let most = points.iter().map(|point| point.queued).max().unwrap();
    assert!(
        most > ByteCount::ZERO && most <= plan.path.forward.queue.unwrap() + ByteCount::new(1538),
        "{most}"
    );
}

#[test]
fn an_interrupt_is_seen_however_much_happens_in_a_second() {
    let NamedPlan { plan, .. } = plans().remove(0);
    let rate = Some(BitRate::from_mbps(10_000));
    let request = Request {
        transport: Transport::Udp,
        rate,
        block: ByteCount::new(32),
        ..plan.request
    };
    let mut simulation = Simulation::new(SimulationPlan { request, ..plan }).unwrap();
    let asked = AtomicBool::new(false);
    let ended = thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(20));
            asked.store(true, Ordering::Relaxed);
        });
        run_to_end(&mut simulation, Interrupt(&asked))
    });
    assert!(matches!(ended, Err(ExperimentError::Interrupted)));
    let passed = simulation.current_time().duration_since(Time::ZERO);
    assert!(
        passed > Span::ZERO && passed < Span::from_secs(1),
        "{passed} of 39 million datagrams a second"
    );
}

#[test]
fn what_is_not_modelled_is_refused_before_the_first_transfer() {
    let mut plans = plans();
    plans[2].name = Some("third".to_owned());
    plans[2].plan.request.multipath = true;
    let idle = AtomicBool::new(false);
    let ended = simulate_each(&plans, 1, jobs(1), Interrupt(&idle), &mut |_| {
        panic!("nothing runs")
    });
    assert_eq!(
        ended.unwrap_err().to_string(),
        "third: Multipath TCP is not modelled"
    );
}
