//! The text that users read, kept as snapshots: review every change of them.

mod archived;
mod diagnosed;
mod fixture;
mod host;
mod page;
mod programs;

use fullpipe_record::{
    Basis, Content, Document, Http1Download, Published, Steady, SureBound, SweepOrder, SweepReport,
    SweepRun, TestEnd,
};
use fullpipe_report::{self as report, PageSource, without_marks};
use fullpipe_units::{BitRate, ByteCount, Ratio, Span};

/// The width of a terminal that nobody has widened.
const WIDTH: usize = 80;

#[test]
fn a_calculation() {
    let text = textbook(&report::calculation_text(&fixture::calculation()));
    insta::assert_snapshot!(text);
}

#[test]
fn a_table_of_calculations() {
    let text = textbook(&report::combination_table(&fixture::table()));
    insta::assert_snapshot!(text);
}

#[test]
fn a_table_too_wide_leaves_out_what_it_can() {
    let text = textbook(&report::combination_table(&fixture::wide_table()));
    insta::assert_snapshot!(text);
}

#[test]
fn a_comparison_of_programs() {
    let found = programs::compared();
    insta::assert_snapshot!(textbook(&report::programs_text(&found)));
}

#[test]
fn a_transfer_that_was_watched() {
    let found = diagnosed::watched();
    insta::assert_snapshot!(textbook(&{
        report::diagnosis_text(&found, BitRate::from_mbps(320))
            + &report::command_end(&diagnosed::command_end())
    }));
}

#[test]
fn a_verdict_from_which_nothing_follows() {
    let nothing = diagnosed::unknown();
    insta::assert_snapshot!(textbook(&report::diagnosis_text(&nothing, BitRate::ZERO)));
}

#[test]
fn a_download_by_http1_says_whether_http2_held_it_back() {
    let again = |mbps| Http1Download {
        before: BitRate::from_mbps(9),
        measured: BitRate::from_mbps(mbps),
        verdict: diagnosed::watched().verdict,
    };
    let words = |mbps| {
        let text = without_marks(&report::http1_text(&again(mbps)));
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let faster = words(38);
    assert!(
        faster.contains("By HTTP/1.1")
            && faster.contains("38 Mbit/s")
            && faster.contains("9 Mbit/s"),
        "{faster}"
    );
    assert!(faster.contains("window of HTTP/2 held"), "{faster}");
    let alike = words(10);
    assert!(
        alike.contains("no faster by HTTP/1.1") && alike.contains("send-buffer"),
        "{alike}"
    );
}

#[test]
fn a_remedy_that_was_tried_and_what_the_other_end_must_change() {
    let (trial, remedy) = (diagnosed::trial(), diagnosed::for_both_ends());
    insta::assert_snapshot!(textbook(&report::trial_text(&trial)));
    let there = report::commands_elsewhere(&remedy, fullpipe_record::At::Sender);
    assert_eq!(there, ["sysctl -w net.ipv4.tcp_window_scaling=1"]);
    let kept = fullpipe_record::Trial {
        kept: true,
        predicted: None,
        predicted_rtt: None,
        not_undone: None,
        ..trial
    };
    let text = textbook(&report::trial_text(&kept));
    assert!(
        text.contains("It was left in place.") && !text.contains("predicted"),
        "{text}"
    );
}

/// A measurement from its first interval to its last line.
fn whole(measured: &fullpipe_record::Measurement) -> String {
    textbook(&{
        let head = report::interval_head(&measured.request);
        let lines = measured
            .intervals
            .iter()
            .map(|interval| report::interval_line(&measured.request, interval));
        let lines: Vec<String> = std::iter::once(head).chain(lines).collect();
        format!(
            "{}\n{}",
            lines.join("\n"),
            report::measurement_text(measured)
        )
    })
}

#[test]
fn a_measurement() {
    insta::assert_snapshot!(whole(&fixture::measurement()));
}

#[test]
fn datagrams_both_ways() {
    insta::assert_snapshot!(whole(&fixture::datagrams_both_ways()));
}

#[test]
fn a_route_through_a_silent_router() {
    insta::assert_snapshot!(textbook(&report::route_text(&fixture::route())));
}

#[test]
fn a_route_that_ends_early() {
    let nobody = fullpipe_record::RouteReport {
        hops: Vec::new(),
        ..fixture::refused_route()
    };
    let text =
        textbook(&{ report::route_text(&fixture::refused_route()) + &report::route_text(&nobody) });
    insta::assert_snapshot!(text);
}

#[test]
fn a_ramp_whose_last_step_broke_off() {
    let text = textbook(&{
        let steps: String = fixture::ramp()
            .steps
            .iter()
            .map(|step| report::ramp_step(step) + "\n")
            .collect();
        steps + &report::ramp_text(&fixture::ramp())
    });
    insta::assert_snapshot!(text);
}

#[test]
fn a_measurement_that_ended_when_it_was_sure_says_what_more_time_would_show() {
    let ended = |ended_by, loss_below| fullpipe_record::UntilSure {
        bound: SureBound::default(),
        ended_by,
        judged_by: Basis::Sender,
        rate: Some([BitRate::from_mbps(93), BitRate::from_mbps(95)]),
        elapsed: Span::from_millis(2_400),
        saved_time: Span::from_millis(7_600),
        saved_bytes: ByteCount::from_mib(85),
        passed: ByteCount::from_mib(25),
        loss_below,
    };
    let said = |ended| {
        let measured = fullpipe_record::Measurement {
            until_sure: Some(Box::new(ended)),
            ..fixture::measurement()
        };
        let text = textbook(&report::measurement_text(&measured));
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let sure = said(ended(TestEnd::Sure, Some(Ratio::new(0.0002))));
    for part in [
        "Ended after 2.40 s, as the result was sure to 0.9 and ± 5 % by the figures of this end",
        "the steady rate is 93 Mbit/s to 95 Mbit/s at 95 %. That saved 7.60 s and 85 MiB.",
        "losses of less than 0.02 % of the segments, a token bucket or a buffer of more than 25 MiB",
    ] {
        assert!(sure.contains(part), "{sure}");
    }
    assert!(!said(ended(TestEnd::Sure, None)).contains("losses of less"));
    let other = said(ended(TestEnd::Other, None));
    assert!(
        other.contains("did not become sure to 0.9 and ± 5 %"),
        "{other}"
    );
}

#[test]
fn a_measurement_that_does_not_count() {
    let text = textbook(&report::measurement_text(&fixture::invalid()));
    insta::assert_snapshot!(text);
}

#[test]
fn the_loop_from_title_to_result() {
    let text = textbook(&{
        let done = fixture::experiment();
        let proof = done.proof.as_ref().unwrap();
        let stages = [
            report::experiment_announcement(done.request.duration),
            report::path_text(&done.path, &done.prediction),
            report::measurement_figures(&done.measurement),
            report::verdict_text(&done.verdict),
            report::remedies_text(&done.remedies, done.measurement.summary.steady),
            report::proof_begins(&proof.remedy, &proof.prediction),
            report::measurement_figures(&proof.measurement),
            report::undo_text(done.undone.as_ref().unwrap()),
            report::experiment_result(&done),
        ];
        stages.concat()
    });
    insta::assert_snapshot!(text);
}

#[test]
fn a_loop_without_a_remedy() {
    let text = textbook(&report::experiment_result(&fixture::without_remedy()));
    insta::assert_snapshot!(text);
}

#[test]
fn a_loop_that_was_interrupted_before_its_remedy() {
    let mut experiment = fixture::without_remedy();
    experiment.interrupted = true;
    let text = textbook(&report::experiment_result(&experiment));
    assert!(
        text.contains("interrupted before a remedy was proven"),
        "{text}"
    );
}

#[test]
fn rates_of_nothing_are_not_divided_by() {
    let mut experiment = fixture::spoilt_proof();
    experiment.measurement.summary.steady = None;
    experiment.measurement.summary.rate = BitRate::ZERO;
    let mut grid = fixture::grid_against_virtual();
    grid.cells
        .iter_mut()
        .filter_map(|cell| cell.kernel.as_mut())
        .for_each(|run| run.rate = BitRate::ZERO);
    let mut what_if = fixture::past_with_changes();
    what_if.simulations[0].rate.median = BitRate::ZERO;
    let mut lab = fixture::lab_report();
    for step in &mut lab.steps {
        step.published = Some(Published {
            rate: Some(BitRate::ZERO),
            ..Published::default()
        });
    }
    let pages = [
        Content::Experiment {
            experiment: Box::new(experiment.clone()),
        },
        Content::Lab { lab: vec![lab] },
        Content::WhatIf {
            what_if: vec![what_if.clone()],
        },
        Content::Grid {
            grid: Box::new(grid.clone()),
        },
    ];
    let page = |content| {
        let document = Document::new(content);
        without_marks(
            &report::text_page(&[PageSource {
                name: "result.json",
                document: &document,
            }])
            .unwrap(),
        )
    };
    let text = pages.map(page).concat()
        + &without_marks(&report::experiment_result(&experiment))
        + &without_marks(&report::grid_report(&grid))
        + &without_marks(&report::what_if(&what_if));
    let undefined = |word: &str| ["NaN", "inf"].contains(&word.trim_matches(['(', ')', '×']));
    assert!(
        text.contains("0 bit/s → ") && !text.split_whitespace().any(undefined),
        "{text}"
    );
}

#[test]
fn a_loop_whose_proof_does_not_count() {
    let text = textbook(&report::experiment_result(&fixture::spoilt_proof()));
    insta::assert_snapshot!(text);
}

#[test]
fn a_path_that_differs_by_direction() {
    let text = textbook(&report::path_text(
        &fixture::lopsided_path(),
        &fixture::lossy(),
    ));
    insta::assert_snapshot!(text);
}

#[test]
fn a_scenario_with_a_step_that_misses_its_bound() {
    let text = textbook(&{
        let done = fixture::lab_report();
        report::lab_report(&done) + &report::lab_summary(&[done])
    });
    insta::assert_snapshot!(text);
}

#[test]
fn a_grid_with_a_cell_out_of_its_interval_and_one_that_does_not_count() {
    let text = textbook(&report::grid_report(&fixture::grid()));
    insta::assert_snapshot!(text);
}

#[test]
fn a_grid_against_virtual_time_and_one_in_it() {
    for (name, report) in [
        ("against", fixture::grid_against_virtual()),
        ("virtual", fixture::virtual_grid()),
    ] {
        insta::assert_snapshot!(name, textbook(&report::grid_report(&report)));
    }
}

#[test]
fn transfers_in_virtual_time_with_their_spread_and_with_changes() {
    let many = fixture::simulations();
    insta::assert_snapshot!("simulations", textbook(&report::simulations_text(&many)));
    insta::assert_snapshot!(
        "what_if",
        textbook(&report::what_if(&fixture::past_with_changes()))
    );
    let csv = report::simulations_csv_row(&many[0]);
    assert_eq!(
        csv.split(',').count(),
        report::simulations_csv_head().split(',').count(),
        "{csv}"
    );
    assert!(
        csv.ends_with(",851400000,818300000,866100000,16259,0.0095,congestion-window,recovering"),
        "{csv}"
    );
}

#[test]
fn a_sweep_has_its_forecast_with_an_interval() {
    let swept = page::swept(true);
    let begins = textbook(&report::sweep_plan(&swept.plan, Some(swept.grid)));
    let sentence =
        "Forecast: 40 MiB in 20 s; in 8 of 10 such sweeps 25 MiB to 50 MiB in 12 s to 30 s.";
    assert!(
        begins
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
            .contains(sentence),
        "{begins}"
    );
    let line = report::sweep_forecast(swept.spent, &swept.plan.forecast.unwrap());
    assert_eq!(
        line,
        "      spent 30 MiB; forecast 40 MiB (25 MiB to 50 MiB) in 20 s"
    );
    let done = without_marks(&report::sweep_text(&swept));
    let costs: Vec<&str> = done.lines().rev().take(5).collect();
    assert!(
        costs[1].contains("spent on 3 runs") && costs[3].contains("from    25 "),
        "{done}"
    );
}

#[test]
fn a_sweep_names_the_settings_that_are_left_out_and_does_not_blame_its_budget() {
    let mut swept = page::swept(true);
    let broken = |run: &SweepRun| SweepRun {
        rate: None,
        broken: vec!["packets were late".to_owned()],
        ..run.clone()
    };
    let last = broken(&swept.runs[2]);
    swept.left_out = vec![last.cell];
    swept.runs.extend([last.clone(), last]);
    swept.answer.as_mut().unwrap().sure = false;
    let done = textbook(&report::sweep_text(&swept));
    let said = done.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        said.contains("Left out, as their runs do not count (packets were late): 8 × 1 MiB."),
        "{done}"
    );
    assert!(
        said.contains("the best by the runs that count; not sure") && !said.contains("budget"),
        "{done}"
    );
}

#[test]
fn a_map_has_a_dot_only_where_no_run_was_made() {
    let mut swept = page::swept(true);
    let map = |swept: &SweepReport| {
        let text = without_marks(&report::sweep_text(swept));
        text.lines()
            .skip_while(|line| !line.trim_start().starts_with("Mbit/s"))
            .take_while(|line| !line.contains("windows down"))
            .map(|line| line.to_owned() + "\n")
            .collect::<String>()
    };
    // One of the four settings has no run.
    swept.surface[2].runs = 0;
    let counted = map(&swept);
    assert_eq!(counted.matches('·').count(), 1, "{counted}");
    for of in &mut swept.surface {
        (of.rate, of.runs) = (BitRate::from_mbps(1), 0);
    }
    assert_eq!(
        map(&swept),
        counted,
        "the runs were made before those that count"
    );
}

#[test]
fn a_whole_grid_over_a_path_that_changed_says_so() {
    let mut swept = page::swept(true);
    (swept.plan.order, swept.segments) = (Some(SweepOrder::Nested), vec![0, 1]);
    let said = |swept: &SweepReport| {
        let text = textbook(&report::sweep_text(swept));
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let whole = said(&swept);
    assert!(
        whole.contains("the runs from number 2 on are of another path, and the answer is by all."),
        "{whole}"
    );
    assert!(
        whole.contains("the cheapest setting of the whole grid"),
        "{whole}"
    );
    swept.surface[2].runs = 0;
    let part = said(&swept);
    assert!(
        part.contains("the cheapest of the settings that were measured with 95 %"),
        "{part}"
    );
}

#[test]
fn the_longest_names_and_figures_still_keep_to_the_width() {
    let wide = {
        let mut done = fixture::without_remedy();
        done.verdict.kind = fullpipe_record::Limit::ReceiverApplication;
        done.measurement.limit = Some(done.verdict.clone());
        done.prediction.kernel_model = BitRate::from_bps(123_456_000);
        done.measurement.summary.steady = Some(Steady {
            ramp: Span::from_secs(1000),
            ramp_rate: BitRate::from_bps(123_456_000),
            rate: BitRate::from_bps(123_456_000),
            duration: Span::from_secs(1000),
        });
        report::experiment_result(&done) + &report::measurement_text(&done.measurement)
    };
    textbook(&wide);
}

/// Returns the text without colour. Asserts what must hold of any text: it is the same in colour,
/// but for the colour, and no line is longer than a terminal is wide.
fn textbook(color: &str) -> String {
    assert!(color.contains('\u{1b}'), "{color:?}");
    let textbook = without_marks(color);
    assert!(!textbook.contains('\u{1b}'), "{textbook:?}");
    for line in textbook.lines() {
        assert!(
            line.chars().count() <= WIDTH,
            "{} columns: {line}",
            line.chars().count()
        );
        assert_eq!(line, line.trim_end(), "spaces at the end");
    }
    textbook
}
