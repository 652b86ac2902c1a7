//! The bounds of the files, compared with those that were published or decided for each experiment:
//! neither changes alone.

use std::collections::BTreeSet;

use fullpipe_scenario::{
    AccuracyBound, ExpectedRatio, ExpectedVerdict, Scenario, builtin_scenarios,
};

/// Scenario, path (rate, RTT, queue and MTU of the first step), steps with their bounds, and bounds
/// between steps.
type Row = (
    &'static str,
    &'static str,
    &'static [(&'static str, &'static str)],
    &'static [&'static str],
);

const BOUNDS: &[Row] = &[
    (
        "demo",
        "1 Gbit/s, 100 ms, 11.92 MiB, 1500",
        &[("as it is", "")],
        &[],
    ),
    (
        "elsen-window",
        "100 Mbit/s, 173 ms, 2.062 MiB, 1500",
        &[
            ("64 KiB", "kernel_model within 100 ± 5 %"),
            ("128 KiB", "kernel_model within 100 ± 5 %"),
        ],
        &["128 KiB ÷ 64 KiB within 100 ± 5 % of 2"],
    ),
    (
        "elsen-accelerate",
        "100 Mbit/s, 173.4 ms, 2.062 MiB, 1500",
        &[
            (
                "direct",
                "kernel_model within 100 ± 5 %, verdict receive-window",
            ),
            (
                "relays",
                "kernel_model within 100 ± 5 %, capacity at least 95 %",
            ),
            ("lossy, direct", ""),
            ("lossy, relays", "kernel_model at least 80 %"),
            ("622 Mbit/s, direct", "kernel_model within 100 ± 5 %"),
            (
                "622 Mbit/s, relays",
                "kernel_model within 100 ± 5 %, capacity at least 95 %",
            ),
        ],
        &["relays ÷ direct within 100 ± 10 % of kernel_model"],
    ),
    (
        "elsen-parallel",
        "100 Mbit/s, 173 ms, 2.062 MiB, 1500",
        &[("1 stream", ""), ("10 streams", "")],
        &["10 streams ÷ 1 stream within 100 ± 5 % of 10"],
    ),
    (
        "elsen-udp",
        "100 Mbit/s, 173 ms, 244.1 KiB, 1500",
        &[(
            "110 Mbit/s",
            "capacity within 100 ± 1 %, loss ± 0.5 points, reordered within 100 ± 5 %",
        )],
        &[],
    ),
    (
        "elsen-starvation",
        "100 Mbit/s, 173 ms, 2.062 MiB, 1500",
        &[("TCP alone", ""), ("with UDP", "fills within 100 ± 2 %")],
        &["with UDP ÷ TCP alone at most 50 % of 1"],
    ),
    (
        "elsen-window-scale",
        "100 Mbit/s, 173 ms, 2.062 MiB, 1500",
        &[
            ("stripped", "verdict receive-window/WindowScaleStripped"),
            ("rewritten", "verdict receive-window/WindowScaleRewritten"),
        ],
        &[],
    ),
    (
        "elsen-cdn",
        "100 Mbit/s, 170 ms, 2.027 MiB, 1500",
        &[("170 ms", ""), ("4 ms", "")],
        &["4 ms ÷ 170 ms within 100 ± 5 % of kernel_model"],
    ),
    (
        "gordon-bdp",
        "100 Mbit/s, 10 ms, 122.1 KiB, 1500",
        &[
            (
                "50000 B",
                "kernel_model at least 95 %, textbook at least 85 %",
            ),
            (
                "75000 B",
                "kernel_model at least 95 %, textbook at least 85 %",
            ),
            (
                "83000 B",
                "kernel_model at least 95 %, textbook at least 85 %",
            ),
            (
                "100000 B",
                "kernel_model at least 95 %, textbook at least 85 %",
            ),
            (
                "125000 B",
                "kernel_model at least 95 %, textbook at least 85 %",
            ),
        ],
        &[],
    ),
    (
        "liu-backup",
        "1 Gbit/s, 15 ms, 4 MiB, 1500",
        &[
            ("17520 B", "kernel_model within 100 ± 5 %"),
            ("6553500 B", "capacity at least 90 %"),
        ],
        &[],
    ),
    (
        "oci-buffers",
        "1 Gbit/s, 98 ms, 11.68 MiB, 9000",
        &[
            ("default, 1", "kernel_model within 100 ± 10 %"),
            ("default, 4", ""),
            ("12.5 MB, 1", "kernel_model within 100 ± 10 %"),
            ("12.5 MB, 2", ""),
            ("24.5 MB, 1", "kernel_model within 100 ± 10 %"),
        ],
        &[],
    ),
    (
        "oci-mtu",
        "1 Gbit/s, 98 ms, 11.68 MiB, 1500",
        &[("MTU 1500", "verdict loss"), ("MTU 9000", "")],
        &["MTU 9000 ÷ MTU 1500 at least 300 % of 1"],
    ),
    (
        "slac-load",
        "622 Mbit/s, 154 ms, 5.709 MiB, 1500",
        &[("the link alone", "ramp"), ("cross-traffic", "ramp")],
        &[],
    ),
    (
        "slac-sweep",
        "62.2 Mbit/s, 154 ms, 584.6 KiB, 1500",
        &[("one stream", "")],
        &[],
    ),
];

#[test]
fn files_and_table_have_the_same_bounds() {
    let names: BTreeSet<&str> = builtin_scenarios().iter().map(|(name, _)| *name).collect();
    assert_eq!(
        BOUNDS
            .iter()
            .map(|(name, ..)| *name)
            .collect::<BTreeSet<_>>(),
        names
    );
    for (name, path, steps, between) in BOUNDS {
        let (_, text) = builtin_scenarios()
            .iter()
            .find(|(builtin, _)| builtin == name)
            .unwrap();
        let scenario = Scenario::parse(name, text).unwrap();
        assert_eq!(path_of(&scenario), *path, "{name}");
        assert_eq!(steps_of(&scenario), *steps, "{name}");
        assert_eq!(between_steps(&scenario), *between, "{name}");
    }
}

fn path_of(scenario: &Scenario) -> String {
    let path = scenario.path_of(&scenario.steps[0]);
    let forward = &path.forward;
    format!(
        "{}, {}, {}, {}",
        forward.rate.unwrap(),
        path.rtt(),
        forward.queue.unwrap(),
        forward.mtu.get()
    )
}

fn steps_of(scenario: &Scenario) -> Vec<(&str, &'static str)> {
    // The words are leaked so that both sides of the comparison have one type.
    scenario
        .steps
        .iter()
        .map(|step| (step.name.as_str(), &*step_bounds(step).leak()))
        .collect()
}

fn step_bounds(step: &fullpipe_scenario::ScenarioStep) -> String {
    let bounds = &step.bounds;
    let said = |of: &str, bound: Option<AccuracyBound>| bound.map(|bound| format!("{of} {bound}"));
    let parts = [
        step.ramp.map(|_| "ramp".to_owned()),
        said("kernel_model", bounds.kernel_model),
        said("textbook", bounds.textbook),
        said("capacity", bounds.capacity),
        bounds
            .loss
            .map(|points| format!("loss ± {} points", points.as_percent())),
        said("reordered", bounds.reordered),
        said("fills", bounds.fills),
        bounds
            .verdict
            .map(|verdict| format!("verdict {}", named(verdict))),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn named(verdict: ExpectedVerdict) -> String {
    let cause = verdict.cause.map(|cause| format!("/{cause:?}"));
    verdict.kind.name().to_owned() + &cause.unwrap_or_default()
}

fn between_steps(scenario: &Scenario) -> Vec<String> {
    let name = |index: usize| &scenario.steps[index].name;
    let bounds = scenario.bounds.iter().map(|bound| {
        let expected = match bound.expect {
            ExpectedRatio::Ratio(ratio) => ratio.get().to_string(),
            ExpectedRatio::KernelModel => "kernel_model".to_owned(),
        };
        format!(
            "{} ÷ {} {} of {expected}",
            name(bound.numerator),
            name(bound.denominator),
            bound.bound
        )
    });
    bounds.collect()
}
