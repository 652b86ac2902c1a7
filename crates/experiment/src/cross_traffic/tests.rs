use super::*;

fn scenario(path: &str, keys: &str) -> fullpipe_scenario::Scenario {
    let cross_traffic = format!("[[step.cross_traffic]]\ntransport = 'udp'\n{keys}");
    let text = format!(
        "name = 'n'\ntitle = 't'\n[path]\nrtt = '10ms'\n{path}\n[[step]]\nname = 's'\n{cross_traffic}"
    );
    fullpipe_scenario::Scenario::parse("n.toml", &text).unwrap()
}

fn load(keys: &str) -> CrossTraffic {
    scenario("", keys).steps[0].cross_traffic[0].clone()
}

/// Milliseconds that the queue of such a path takes to run empty where so many MB were sent in
/// ten seconds.
fn emptying_after(path: &str, megabytes: u64) -> u64 {
    let path = scenario(path, "rate = '29M'").path.forward;
    queue_drain_time(
        &path,
        ByteCount::new(megabytes * 1_000_000),
        Span::from_secs(10),
    )
    .as_micros()
        / 1000
}

#[test]
fn what_waits_when_a_load_ends_arrives_later() {
    let path = "rate = '100M'\nqueue = '173ms'";
    assert_eq!(
        [100, 125, 126, 364].map(|megabytes| emptying_after(path, megabytes)),
        [0, 0, 80, 173]
    );
    assert_eq!(
        emptying_after("", 364),
        0,
        "nothing waits for a link that has no rate"
    );
}

fn of(keys: &str, lead: u64, ends: u64) -> Vec<(u64, u64, u64)> {
    let mut random = Pcg64Mcg::seed_from_u64(1);
    let millis = |span: Span| span.as_micros() / 1000;
    let figures = |phase: Phase| {
        (
            millis(phase.starts),
            millis(phase.request.duration),
            phase.request.rate.unwrap().bps() / 1_000_000,
        )
    };
    let load = load(keys);
    load_phases(
        &load,
        Span::from_millis(lead),
        Span::from_millis(ends),
        &mut random,
    )
    .map(figures)
    .take(MAX_STREAMS)
    .collect()
}

/// Number of phases that are checked, of those without end.
const MAX_STREAMS: usize = 100;

#[test]
fn a_load_that_goes_on_and_off_does_so_without_end() {
    let phases = of(
        "rate = '100M..250M'\non = '2s'\noff = '1s'",
        0,
        u64::MAX / 1_000_000,
    );
    assert_eq!(phases.len(), MAX_STREAMS);
    assert!(
        phases
            .iter()
            .zip(0..)
            .all(|((starts, lasts, _), number)| (*starts, *lasts) == (3_000 * number, 2_000))
    );
    let another = of("rate = '100M..250M'\non = '2s'\noff = '1s'", 0, 10_000);
    assert_eq!(
        another[..3],
        phases[..3],
        "the same seed draws the same rates"
    );
}

#[test]
fn a_load_is_on_until_the_step_ends() {
    assert_eq!(
        of("rate = '29M'\nbefore = '1s'", 1_000, 11_000),
        [(0, 11_000, 29)]
    );
    assert_eq!(of("rate = '29M'", 1_000, 11_000), [(1_000, 10_000, 29)]);
    assert_eq!(
        of("rate = '29M'\nafter = '3s'", 0, 10_000),
        [(3_000, 7_000, 29)]
    );
    assert_eq!(of("rate = '29M'\nafter = '9.9s'", 0, 10_000), []);
}

#[test]
fn a_load_goes_on_and_off() {
    let phases = of("rate = '100M..250M'\non = '2s'\noff = '1s'", 0, 10_000);
    let times: Vec<_> = phases
        .iter()
        .map(|(starts, lasts, _)| (*starts, *lasts))
        .collect();
    assert_eq!(
        times,
        [(0, 2_000), (3_000, 2_000), (6_000, 2_000), (9_000, 1_000)]
    );
    let rates: Vec<_> = phases.iter().map(|(_, _, rate)| *rate).collect();
    assert!(
        rates.iter().all(|rate| (100..250).contains(rate)) && rates[0] != rates[1],
        "{rates:?}"
    );
}
