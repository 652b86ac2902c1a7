//! Pages with charts: their text, their size, hostile names, and a real browser.

use std::fs;

use fullpipe_record::{
    Buffer, Content, CpuSample, CpuTime, DiagnosisReport, Direction, Document, Echo, EchoReport,
    ErrorReport, LabReport, LoadTime, Measurement, Published, Sample, SimulatedTransfer,
    SweepAnswer, SweepCell, SweepCost, SweepDevice, SweepEstimate, SweepForecast, SweepLoad,
    SweepOrder, SweepPlan, SweepReason, SweepReport, SweepRtt, SweepRun, SweepShape, SweepTraffic,
    TcpInfo,
};
use fullpipe_report::{PageSource, html_page, text_page, without_marks};
use fullpipe_testkit::{Browser, require};
use fullpipe_units::{BitRate, ByteCount, Ratio, SegCount, Span};
use serde_json::Value;

use crate::{archived, diagnosed, fixture};

/// Speed of a device.
const GIGABIT: BitRate = BitRate::from_mbps(1_000);

/// Largest page of one result.
const MAX_SIZE: usize = 150_000;

fn document(content: Content) -> Document {
    Document::new(content)
}

fn of_measurement(measurement: Measurement) -> Document {
    document(Content::Measurement {
        measurement: Box::new(measurement),
        path: None,
        completion: None,
        followed_by: None,
    })
}

fn html(documents: &[Document]) -> String {
    let source = |document| PageSource {
        name: "result.json",
        document,
    };
    html_page(&documents.iter().map(source).collect::<Vec<_>>()).unwrap()
}

fn text(document: &Document) -> String {
    without_marks(
        &text_page(&[PageSource {
            name: "result.json",
            document,
        }])
        .unwrap(),
    )
}

/// Returns a sample of a stream that grows to 300 Mbit/s in a second, and is then held back by its
/// send buffer.
fn sample(index: u64) -> Sample {
    let at = Span::from_millis(index * 50);
    let bytes =
        ByteCount::new(index.min(20).pow(2) * 46_875 + index.saturating_sub(20) * 1_875_000);
    let flight = ByteCount::new(index.min(20) * 187_500);
    let tcp = TcpInfo {
        rtt: Some(Span::from_micros(100_000 + index * 37 % 900)),
        snd_wnd: Some(ByteCount::from_mib(6)),
        cwnd: Some(SegCount::new(3_000)),
        snd_mss: Some(ByteCount::new(1_448)),
        bytes_acked: Some(bytes),
        bytes_sent: Some(bytes + flight),
        bytes_retrans: Some(ByteCount::ZERO),
        total_retrans: Some(SegCount::new(index / 90)),
        busy: Some(at),
        rwnd_limited: Some(Span::ZERO),
        sndbuf_limited: Some(Span::from_millis(index.saturating_sub(20) * 49)),
        ..TcpInfo::default()
    };
    Sample {
        at,
        stream: 0,
        bytes,
        tcp,
        memory: None,
    }
}

/// Returns a measurement with samples of both ends and echo requests before and during the load.
fn sampled() -> Measurement {
    let mut measured = fixture::measurement();
    measured.local.samples = (1..=240).map(sample).collect();
    measured.remote.samples = measured.local.samples.clone();
    measured.local.processors = (0..=24).map(processor_time).collect();
    let load = LoadTime {
        began: Span::from_secs(1),
        from: Span::from_secs(1),
        to: Span::from_secs(13),
        settled: None,
    };
    let rtt = |index: u64| {
        Some(Span::from_micros(if index < 40 {
            100_100
        } else {
            100_900 + index * 53 % 9_000
        }))
    };
    let echo = |index: u64| Echo {
        at: Span::from_millis(index * 26),
        rtt: rtt(index),
        host: None,
    };
    measured.rtt.echoes = Some(EchoReport {
        load,
        samples: (0..500).map(echo).collect(),
        ..EchoReport::default()
    });
    measured
}

/// Returns the times of a program that spends a fifth of one of two cores.
fn processor_time(half: u64) -> CpuSample {
    let at = Span::from_millis(half * 500);
    let core = |user: u64| CpuTime {
        user: Span::from_millis(half * user),
        idle: Span::from_millis(half * (500 - user)),
        ..CpuTime::default()
    };
    CpuSample {
        at,
        user: Span::from_millis(half * 100),
        cores: vec![core(120), core(20)],
        ..CpuSample::default()
    }
}

/// Returns a diagnosis with a remedy that was tried.
fn tried() -> Document {
    let mut trial = diagnosed::trial();
    trial.measurement = sampled();
    let diagnosis = DiagnosisReport {
        trial: Some(trial),
        ..DiagnosisReport::default()
    };
    document(Content::Diagnosis {
        measurement: Some(Box::new(sampled())),
        diagnosis: Box::new(diagnosis),
    })
}

/// Returns the scenario of the tables of OCI, with one step of each batch.
fn oci() -> LabReport {
    let mut report = fixture::lab_report();
    "oci-buffers".clone_into(&mut report.scenario);
    for (step, name) in report.steps.iter_mut().zip(["default, 1", "12.5 MB, 1"]) {
        name.clone_into(&mut step.name);
        step.request.streams = 1;
        step.published = Some(Published {
            rate: Some(BitRate::from_mbps(250)),
            ..Published::default()
        });
    }
    report
}

/// Returns a sweep of the scenario that rebuilds Cottrell's, with repeated runs.
fn slac() -> SweepReport {
    let mut sweep = swept(true);
    "slac-sweep".clone_into(&mut sweep.plan.target);
    sweep.plan.predicted = vec![BitRate::from_mbps(90); 4];
    sweep.rtt = Some(SweepRtt {
        climbs_from: Some(BitRate::from_mbps(52)),
        with_rate: 0.9,
        with_window: 0.1,
        with_streams: 0.2,
        with_product: 0.3,
    });
    let again = |(index, run): (u64, &SweepRun)| SweepRun {
        reason: SweepReason::Reference,
        rate: run
            .rate
            .map(|rate| rate.scale_by(1.0 - 0.02 * index as f64)),
        ..run.clone()
    };
    let repeated: Vec<SweepRun> = (0..).zip(&sweep.runs).map(again).collect();
    sweep.runs.extend(repeated);
    sweep
}

/// Returns a sweep over the whole of the grid of Cottrell in both orders, 260 runs over 10 windows
/// × 13 numbers of streams, whose figures differ as those of real runs do.
fn whole_grid() -> SweepReport {
    let mut sweep = slac();
    let streams = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 90];
    let cells: Vec<SweepCell> = (0..130_usize)
        .map(|index| SweepCell {
            window: ByteCount::from_kib(8 << (index % 10)),
            streams: streams[index / 10],
        })
        .collect();
    sweep.plan.windows = (0..10)
        .map(|power| ByteCount::from_kib(8 << power))
        .collect();
    sweep.plan.streams = streams.to_vec();
    sweep.plan.rtt = Span::from_millis(154);
    sweep.plan.order = Some(SweepOrder::Both);
    sweep.runs = cells
        .iter()
        .chain(cells.iter().rev())
        .zip(0..)
        .map(|(cell, number)| noisy(*cell, number))
        .collect();
    let estimate = |(cell, number): (&SweepCell, u64)| {
        let rate = noisy(*cell, number).rate.unwrap();
        SweepEstimate {
            cell: *cell,
            rate,
            low: rate.scale_by(0.9713),
            high: rate.scale_by(1.0291),
            runs: 2,
        }
    };
    sweep.surface = cells.iter().zip(1_000..).map(estimate).collect();
    sweep.spent = SweepCost {
        bytes: ByteCount::from_mib(9_000),
        time: Span::from_secs(5_300),
    };
    sweep
}

/// Returns a run over 58 Mbit/s and 154 ms, with noise by its number.
fn noisy(cell: SweepCell, number: u64) -> SweepRun {
    let noise = |per_mille: u64| 1.0 + (number * 7_919 % per_mille) as f64 / 1_000.0;
    let rate = BitRate::from_bytes_in(cell.flight_capacity(), Span::from_millis(154))
        .min(BitRate::from_bps(58_123_000));
    let rate = rate.scale_by(1.0 / noise(97));
    let loaded = Span::from_millis(154).scale_by(noise(13)) + Span::from_micros(rate.bps() / 1_700);
    let arrived = |half: u64| rate.scale_by((half as f64 / 4.0).min(1.0) * noise(31));
    let load = SweepLoad {
        rates: (1..=20).map(arrived).collect(),
        ramp: Some(Span::from_millis(1_848)),
        smoothed_rtt: Some(loaded.scale_by(noise(7))),
        cpu_sender: Some(Ratio::new(0.021 * noise(211))),
        cpu_receiver: Some(Ratio::new(0.034 * noise(301))),
    };
    SweepRun {
        idle_rtt: Some(Span::from_micros(154_000 + number * 53 % 901)),
        loaded_rtt: Some(loaded),
        retransmits: Some(SegCount::new(if rate > BitRate::from_mbps(50) {
            number * 31 % 97
        } else {
            0
        })),
        together: Some(Ratio::new(noise(400))),
        load: Some(load),
        ..SweepRun::from_cost(
            cell,
            SweepReason::Grid,
            rate,
            SweepCost {
                bytes: rate.bytes_in(Span::from_secs(10)),
                time: Span::from_millis(20_400 + number % 90),
            },
        )
    }
}

/// Returns transfers that differ in window and streams.
fn settings() -> Vec<SimulatedTransfer> {
    let first = fixture::simulations().remove(0);
    let transfer = |streams: u16, window: u64| {
        let mut transfer = first.clone();
        transfer.name = None;
        transfer.request.streams = streams;
        transfer.request.buffer = Buffer::Window(ByteCount::from_kib(window));
        transfer.rate.median = BitRate::from_mbps((u64::from(streams) * window / 10).min(200));
        transfer
    };
    [64, 256, 1024]
        .into_iter()
        .flat_map(|window| [1, 4, 16].map(|streams| transfer(streams, window)))
        .collect()
}

/// Returns a sweep over four settings, with an answer or without.
pub(crate) fn swept(is_answered: bool) -> SweepReport {
    let cost = |mib, seconds| SweepCost {
        bytes: ByteCount::from_mib(mib),
        time: Span::from_secs(seconds),
    };
    let cells: Vec<SweepCell> = [1, 8]
        .into_iter()
        .flat_map(|streams| {
            [64, 1024].map(|kib| SweepCell {
                window: ByteCount::from_kib(kib),
                streams,
            })
        })
        .collect();
    let rate =
        |cell: SweepCell| BitRate::from_mbps((cell.flight_capacity().get() / 20_000).min(94));
    let estimate = |cell: SweepCell, runs: u32| SweepEstimate {
        cell,
        rate: rate(cell),
        low: rate(cell).scale_by(0.97),
        high: rate(cell).scale_by(1.03),
        runs,
    };
    let run = |cell: SweepCell| SweepRun {
        cell,
        reason: SweepReason::Grid,
        rate: Some(rate(cell)),
        sent: ByteCount::from_mib(10),
        took: Span::from_secs(5),
        idle_rtt: Some(Span::from_millis(20)),
        loaded_rtt: Some(Span::from_millis(20 + rate(cell).bps() / 10_000_000)),
        retransmits: Some(SegCount::new(u64::from(cell.streams / 8))),
        together: None,
        load: None,
        device: None,
        broken: Vec::new(),
    };
    let [knee, best] = [estimate(cells[1], 1), estimate(cells[3], 2)];
    let answer = SweepAnswer {
        knee,
        sure: true,
        shape: SweepShape::Knee,
        best,
        cheapest: cells[1],
        dearest: cells[1],
        fewest_streams: knee,
        smallest_window: estimate(cells[2], 0),
        frontier: vec![knee],
    };
    SweepReport {
        plan: SweepPlan {
            id: "2026-11-25-1".to_owned(),
            target: "host.example".to_owned(),
            is_virtual: false,
            windows: vec![ByteCount::from_kib(64), ByteCount::from_kib(1024)],
            streams: vec![1, 8],
            order: None,
            seed: 1,
            rtt: Span::from_millis(20),
            overhead: Span::from_secs(1),
            duty: Ratio::new(0.5),
            budget: Ratio::new(0.2),
            max_bytes: None,
            congestion: None,
            direction: Direction::Upload,
            hours: None,
            predicted: Vec::new(),
            forecast: Some(SweepForecast {
                median: cost(40, 20),
                low: cost(25, 12),
                high: cost(50, 30),
            }),
        },
        runs: if is_answered {
            vec![run(cells[0]), run(cells[1]), run(cells[3])]
        } else {
            Vec::new()
        },
        segments: vec![0],
        answer: is_answered.then_some(answer),
        left_out: Vec::new(),
        predicted_knee: None,
        surface: cells
            .iter()
            .map(|cell| estimate(*cell, u32::from(is_answered)))
            .collect(),
        rtt: None,
        dips: None,
        forecast: Some(cost(40, 20)),
        spent: cost(30, 15),
        grid: cost(200, 80),
        interrupted: false,
    }
}

/// Returns the same sweep with what a device carried: 20 Mbit/s of other traffic in each rest, 10
/// in each run.
fn with_device(mut sweep: SweepReport, name: &str, speed: Option<BitRate>) -> SweepReport {
    let carried = |seconds: u64, mbps: u64, own: ByteCount| {
        let span = Span::from_secs(seconds);
        SweepTraffic {
            span,
            sent: own + BitRate::from_mbps(mbps).bytes_in(span),
            received: ByteCount::ZERO,
        }
    };
    for (number, run) in sweep.runs.iter_mut().enumerate() {
        let own = run.rate.unwrap().bytes_in(Span::from_secs(10));
        run.device = Some(SweepDevice {
            name: name.to_owned(),
            speed,
            before: (number > 0).then(|| carried(10, 20, ByteCount::ZERO)),
            during: carried(10, 10, own),
            own,
        });
    }
    sweep
}

/// Returns a document of each kind that a page shows.
fn documents() -> Vec<Document> {
    let mut experiment = fixture::experiment();
    experiment.measurement = sampled();
    vec![
        document(Content::Experiment {
            experiment: Box::new(experiment),
        }),
        of_measurement(sampled()),
        of_measurement(fixture::datagrams_both_ways()),
        of_measurement(fixture::invalid()),
        document(Content::Ramp {
            ramp: Box::new(fixture::ramp()),
        }),
        document(Content::Lab {
            lab: vec![fixture::lab_report()],
        }),
        document(Content::Grid {
            grid: Box::new(fixture::grid_against_virtual()),
        }),
        document(Content::Simulations {
            simulations: settings(),
        }),
        document(Content::WhatIf {
            what_if: vec![fixture::past_with_changes()],
        }),
        document(Content::Capture {
            capture: Box::default(),
        }),
        document(Content::Sweep {
            sweep: Box::new(swept(true)),
        }),
        document(Content::Sweep {
            sweep: Box::new(swept(false)),
        }),
        document(Content::Programs {
            programs: Box::new(crate::programs::compared()),
        }),
        document(Content::Sweep {
            sweep: Box::new(slac()),
        }),
        document(Content::Sweep {
            sweep: Box::new(with_device(whole_grid(), "eth0", Some(GIGABIT))),
        }),
        document(Content::Lab { lab: vec![oci()] }),
        document(Content::Difference {
            difference: Box::new(archived::difference(12)),
        }),
        document(Content::Difference {
            difference: Box::new(archived::difference(1)),
        }),
        document(Content::History {
            history: Box::new(archived::history(400)),
        }),
        document(Content::History {
            history: Box::new(archived::history(1)),
        }),
        document(Content::Stored {
            stored: archived::stored(1_000),
        }),
        document(Content::Stored {
            stored: archived::stored(2),
        }),
        tried(),
        document(Content::Lab { lab: Vec::new() }),
        document(Content::Simulations {
            simulations: Vec::new(),
        }),
        document(Content::History {
            history: Box::new(archived::history(0)),
        }),
        document(Content::Stored { stored: Vec::new() }),
    ]
}

#[test]
fn a_page_of_each_kind_is_small_and_requests_nothing() {
    for document in documents() {
        let page = html(std::slice::from_ref(&document));
        assert!(page.len() <= MAX_SIZE, "{}", page.len());
        assert!(
            page.contains("Content-Security-Policy") && page.contains("<h1>"),
            "{page}"
        );
        let page = page.replace("http://www.w3.org/2000/svg", "");
        for reference in ["http:", "https:", "src=", "url(", "@import", "NaN", "inf\""] {
            assert!(!page.contains(reference), "{reference}: {page}");
        }
        let text = text(&document);
        assert!(
            text.lines()
                .all(|line| line.chars().count() <= crate::WIDTH),
            "{text}"
        );
    }
}

#[test]
fn the_text_of_a_page() {
    insta::assert_snapshot!(text(&of_measurement(sampled())));
}

#[test]
fn what_has_no_page_is_stated() {
    let failed = Document::from_error(ErrorReport {
        message: "no route".to_owned(),
        exit_code: 1,
    });
    let error = html_page(&[PageSource {
        name: "failed.json",
        document: &failed,
    }])
    .unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("failed.json has no result that a page can show"),
        "{error}"
    );
}

#[test]
fn names_of_others_are_text() {
    for name in [
        "</style><script>alert(1)</script>",
        "\u{202e}<b>moc",
        &"<".repeat(1_000_000),
    ] {
        let mut measured = sampled();
        name.clone_into(&mut measured.peer.host);
        measured.warnings = vec![name.to_owned()];
        measured.limit.as_mut().unwrap().sentence = name.to_owned();
        let mut stored = archived::stored(3);
        for document in &mut stored {
            name.clone_into(&mut document.peer);
        }
        let mut difference = archived::difference(6);
        name.clone_into(&mut difference.a.name);
        let mut history = archived::history(3);
        name.clone_into(&mut history.series[0].path_key);
        history.series[0].points[0].limit = Some(name.to_owned());
        let page = html(&[
            of_measurement(measured.clone()),
            of_measurement(measured),
            document(Content::Stored { stored }),
            document(Content::Difference {
                difference: Box::new(difference),
            }),
            document(Content::History {
                history: Box::new(history),
            }),
        ]);
        assert!(
            !page.contains("<script>alert") && !page.contains("<b>") && !page.contains('\u{202e}')
        );
        assert_eq!(page.matches("<script").count(), 1);
        assert!(page.len() <= 4 * MAX_SIZE, "{}", page.len());
    }
}

#[test]
fn many_measurements_are_compared() {
    let run = |index: u64| {
        let mut measured = fixture::measurement();
        measured.started = format!(
            "2025-03-{:02}T{:02}:00:00Z",
            1 + index / 24 % 28,
            index % 24
        );
        measured.summary.steady.as_mut().unwrap().rate = BitRate::from_mbps(300 + index % 40);
        of_measurement(measured)
    };
    let page = html(&(0..1_000).map(run).collect::<Vec<_>>());
    assert!(page.len() <= MAX_SIZE, "{}", page.len());
    assert!(
        page.contains("1000 measurements: 300 Mbit/s to 339 Mbit/s")
            && page.contains("the time of the measurement")
    );
}

#[test]
fn the_figures_of_a_source_stand_next_to_those_of_the_scenario() {
    let page = html(&[document(Content::Sweep {
        sweep: Box::new(slac()),
    })]);
    for part in [
        "469 Mbit/s, 75 % of 622 Mbit/s",
        "from 52 Mbit/s on",
        "window 0.10",
        "Rate by streams, for each window",
        "The campaign over time",
        "Round trips of the runs, idle and loaded",
        "The rates of one setting differ by 4\u{a0}% at most",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    let whole = html(&[document(Content::Sweep {
        sweep: Box::new(whole_grid()),
    })]);
    for part in [
        "<td>260 runs in 88 min",
        "% of a core at most",
        "2002, scaled",
        "longer from here on, scaled",
        "Runs of one setting differ most with",
        "iB: rate, Mbit/s",
        "smoothed by the sender&#39;s kernel",
        "after the ramp, ",
        "Processor time by streams",
    ] {
        assert!(whole.contains(part), "{part}: {whole}");
    }
    let tables = html(&[document(Content::Lab { lab: vec![oci()] })]);
    assert!(
        tables.contains("12.5 MB, source") && tables.contains("119 Mbit/s, 150 at most"),
        "{tables}"
    );
    let other = html(&[document(Content::Sweep {
        sweep: Box::new(swept(true)),
    })]);
    assert!(!other.contains("469 Mbit/s"), "{other}");
}

#[test]
fn other_traffic_of_the_device_is_drawn_between_and_below_the_runs() {
    let page = |speed, name: &str| {
        let sweep = document(Content::Sweep {
            sweep: Box::new(with_device(swept(true), name, speed)),
        });
        (html(std::slice::from_ref(&sweep)), text(&sweep))
    };
    // Three runs of 10 s at 10 Mbit/s and two rests at 20.
    let (fast, _) = page(Some(GIGABIT), "eth0");
    for part in [
        "<h2>3 runs in 50 s; 14 Mbit/s of other traffic on average, 20 Mbit/s at most</h2>",
        "The device eth0 of 1 Gbit/s carried 14 Mbit/s",
        "data-n=\"use of eth0, 1 Gbit/s\" data-y=\"%\"",
        "d=\"M0-1H10V-2H20V-1H30V-2H40V-1H50v1L0 0z\"",
    ] {
        assert!(fast.contains(part), "{part}: {fast}");
    }
    // A speed that is less than what was carried is none.
    for (speed, name) in [(None, "eth0"), (Some(BitRate::from_mbps(10)), "tun0")] {
        let (html, text) = page(speed, name);
        let head = format!("carried by {name}");
        assert!(html.contains(&head) && text.contains(&head), "{text}");
    }
    let (hostile, _) = page(None, "</svg><script>\u{202e}");
    assert!(
        !hostile.contains("<script>\u{202e}") && !hostile.contains('\u{202e}'),
        "{hostile}"
    );
    let quiet = html(&[document(Content::Sweep {
        sweep: Box::new(swept(true)),
    })]);
    assert!(
        !quiet.contains("other traffic") && !quiet.contains("carried by"),
        "{quiet}"
    );
}

#[test]
fn a_rate_that_falls_amid_a_run_has_its_levels_and_one_that_does_not_has_none() {
    let mut measured = sampled();
    let steady = html(&[of_measurement(measured.clone())]);
    assert!(
        steady.contains("data-n=\"mean so far\"") && !steady.contains("data-n=\"level between"),
        "{steady}"
    );
    let until = measured.remote.samples[119].bytes;
    for sample in &mut measured.remote.samples[120..] {
        sample.bytes = until + ByteCount::new(sample.bytes.saturating_sub(until).get() / 2);
    }
    let fallen = html(&[of_measurement(measured)]);
    assert!(
        fallen.contains("at 6.0 s 300 → 150 Mbit/s</h2>"),
        "{fallen}"
    );
    assert!(
        fallen.contains("data-n=\"level between changes\""),
        "{fallen}"
    );
}

#[test]
fn a_remedy_that_was_tried_is_drawn_before_and_after() {
    let page = html(&[tried()]);
    assert!(
        page.contains("before the remedy and with it") && page.contains("sender, of one core"),
        "{page}"
    );
    assert!(
        page.contains("The sender spends up to 20\u{a0}% of a core")
            && page.contains("Ceilings over time"),
        "{page}"
    );
}

#[test]
fn a_difference_that_was_not_shown_is_hollow() {
    let page = html(&[document(Content::Difference {
        difference: Box::new(archived::difference(12)),
    })]);
    assert_eq!(
        page.matches("centre hollow").count(),
        2,
        "round trips and segments sent again"
    );
    assert!(
        page.contains("+9.8 %, −0.9 % to +10.6 %") && page.contains("Not comparable"),
        "{page}"
    );
}

#[test]
fn a_history_without_a_change_says_which_one_its_runs_would_have_shown() {
    let page = |runs: u64, detectable: Option<Ratio>| {
        let mut history = archived::history(runs);
        history.series[0].changes.clear();
        history.series[0].detectable = detectable;
        html(&[document(Content::History {
            history: Box::new(history),
        })])
    };
    let quiet = page(40, Some(Ratio::new(0.162)));
    assert!(
        quiet.contains("no change of the rate in 40 runs")
            && quiet.contains("No change of the rate: one of 17"),
        "{quiet}"
    );
    let few = page(12, None);
    assert!(
        few.contains("too few runs to show a change of the rate"),
        "{few}"
    );
    assert!(
        few.contains("11 valid runs cannot show a change of the rate: that takes 16."),
        "{few}"
    );
}

#[test]
fn a_history_has_its_changes_and_limits() {
    let page = html(&[document(Content::History {
        history: Box::new(archived::history(400)),
    })]);
    for part in [
        "the rate changed once in 400 runs",
        "median between changes",
        "loss</text>",
        "not valid</text>",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
}

/// Opens the page of some documents in the browser.
#[expect(
    clippy::disallowed_methods,
    reason = "a browser reads a page from a file"
)]
fn open(browser: &mut Browser, documents: &[Document]) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("page.html");
    fs::write(&file, html(documents)).unwrap();
    browser.open(&file);
}

/// The least contrast of the text of a page against what is behind it, with that text.
const CONTRAST: &str = r"(() => {
  const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  const rgb = (colour) => {
    canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const light = (colour) => {
    const linear = (c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    const [r, g, b] = rgb(colour).map((c) => linear(c / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const variable = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  let least = [99, ''];
  for (const element of document.querySelectorAll('h1,h2,p,dt,dd,td,th,summary,text')) {
    if (!element.textContent) continue;
    const style = getComputedStyle(element);
    const tile = [...element.classList].find((name) => /^t\d$/.test(name));
    const ground = light(variable(tile ? `--s${tile[1]}` : '--bg'));
    const ink = light(element instanceof SVGElement ? style.fill : style.color);
    const ratio = (Math.max(ink, ground) + 0.05) / (Math.min(ink, ground) + 0.05);
    if (ratio < least[0]) least = [ratio, element.textContent];
  }
  return least;
})()";

/// Charts with marks that the arrow keys do not reach: a mark counts as reached if its text was
/// shown at its place.
const UNREACHED: &str = r"(() => {
  const tip = document.querySelector('#tip');
  const missed = [];
  for (const chart of document.querySelectorAll('svg.chart')) {
    const press = (key) => {
      chart.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true }));
      return `${tip.textContent} ${chart.querySelector('.at')?.getAttribute('d')}`;
    };
    const seen = new Set();
    for (let at = press('Home'); !seen.has(at); press('ArrowDown'), at = press('Home')) {
      for (let last = ''; at !== last; last = at, at = press('ArrowRight')) seen.add(at);
    }
    const marks = new Set();
    for (const mark of chart.querySelectorAll('.m')) {
      const point = /-?[.\d]+(,|(?=-))-?[.\d]+|H-?[.\d]+(V-?[.\d]+)?|V-?[.\d]+/g;
      const places = mark.matches('path') ? mark.getAttribute('d').match(point) : [String(marks.size)];
      places.forEach((place, index) => marks.add(`${mark.dataset.n} ${place} ${place.startsWith('V') ? index : ''}`));
    }
    if (chart.matches('.heat') && ![...seen].every((at) => at.includes('bit/s, '))) missed.push('tiles without words');
    if (seen.size !== marks.size) missed.push(`${chart.getAttribute('aria-label')}: ${seen.size} of ${marks.size}`);
  }
  return missed;
})()";

#[test]
fn a_browser_shows_each_page_in_light_in_dark_and_on_a_phone() {
    require!(Chromium);
    let mut browser = Browser::start();
    for (index, document) in documents().into_iter().enumerate() {
        open(&mut browser, &[document]);
        for scheme in ["light", "dark"] {
            browser.show(1_000, &[("prefers-color-scheme", scheme)]);
            let least = browser.evaluate(CONTRAST);
            assert!(least[0].as_f64().unwrap() >= 4.5, "{scheme}: {least}");
        }
        browser.show(360, &[]);
        let width = browser.evaluate("document.documentElement.scrollWidth");
        assert_eq!(width, 360, "page {index}");
        let outside = "[...document.querySelectorAll('h1,h2,p,dl,details,.plot')].filter((element) => \
                       element.getBoundingClientRect().right > 361).length";
        assert_eq!(browser.evaluate(outside), 0, "page {index}");
        assert_eq!(browser.events("Network.requestWillBeSent").count(), 1);
        for noise in [
            "Runtime.consoleAPICalled",
            "Runtime.exceptionThrown",
            "Log.entryAdded",
        ] {
            assert_eq!(browser.events(noise).next(), None);
        }
    }
}

#[test]
fn the_keyboard_reaches_every_mark_and_zooms() {
    require!(Chromium);
    let all = documents();
    let mut browser = Browser::start();
    open(&mut browser, &[all[0].clone(), all[7].clone()]);
    browser.show(1_000, &[]);
    // With real keys: the first chart is the first that Tab reaches, and the arrow shows its first
    // value.
    let focused = "document.activeElement.getAttribute('aria-label')";
    browser.key("Tab", 9);
    assert!(
        browser
            .evaluate(focused)
            .as_str()
            .unwrap()
            .starts_with("Rate and round-trip time")
    );
    browser.key("ArrowRight", 39);
    let tip = browser.evaluate("document.querySelector('#tip').textContent");
    assert!(tip.as_str().unwrap().contains("bit/s at "), "{tip}");
    assert_eq!(browser.evaluate(UNREACHED), Value::Array(Vec::new()));
    for content in [
        Content::Sweep {
            sweep: Box::new(slac()),
        },
        Content::Sweep {
            sweep: Box::new(whole_grid()),
        },
        Content::Difference {
            difference: Box::new(archived::difference(12)),
        },
        Content::History {
            history: Box::new(archived::history(60)),
        },
        Content::Stored {
            stored: archived::stored(60),
        },
    ] {
        open(&mut browser, &[document(content)]);
        assert_eq!(browser.evaluate(UNREACHED), Value::Array(Vec::new()));
    }
    open(&mut browser, &all[..1]);
    let zoomed = "(() => { const chart = document.querySelector('svg.plot'); const box = () => \
                  chart.querySelector('.view').getAttribute('viewBox'); const press = (key) => chart.dispatchEvent(new \
                  KeyboardEvent('keydown', { key, bubbles: true })); const before = box(); press('+'); const near = \
                  box(); press('0'); return [near !== before, box().split(' ').map(Number).join() === \
                  before.split(' ').map(Number).join()]; })()";
    assert_eq!(browser.evaluate(zoomed), serde_json::json!([true, true]));
    assert_eq!(browser.events("Runtime.exceptionThrown").next(), None);
}
