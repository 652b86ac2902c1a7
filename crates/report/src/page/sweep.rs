//! Sweeps over windows and streams.

use fullpipe_record::{SweepAnswer, SweepEstimate, SweepReport, SweepRun};

use super::campaign::{
    by_streams, counted_runs, fastest_run, fastest_run_section, processor_section,
    repetition_section, spread_by_streams, sweep_rtt_section, timeline_section,
};
use super::prelude::*;
use super::published;
use super::text::brief_text;
use crate::text::{
    added_rtt, ended_early, named_settings, rate_interval, rate_map, rounded_duration,
    sweep_sentences,
};

/// Returns the article on a sweep.
pub(super) fn sweep_article(report: &SweepReport) -> Article {
    let answer = report.answer.as_ref();
    let sections = known_sections([
        Some(rate_map_section(report)),
        published::of_sweep(report),
        by_streams(report),
        repetition_section(report),
        spread_by_streams(report),
        Some(round_trips(report)),
        sweep_rtt_section(report),
        timeline_section(report),
        fastest_run_section(report),
        processor_section(report),
        answer.map(|answer| settings_section(answer, report)),
        Some(sweep_runs_section(&report.runs)),
    ]);
    let simulated = text_if(report.plan.is_virtual, ", simulated");
    Article {
        origin: format!(
            "fullpipe sweep, {}, {}{simulated}",
            report.plan.target,
            count_noun(report.runs.len(), "run")
        ),
        headline: sweep_headline(report),
        sentences: sweep_sentences(report),
        facts: answer.map_or_else(Vec::new, |answer| sweep_facts(answer, report)),
        sections,
        ..Article::default()
    }
}

fn sweep_headline(report: &SweepReport) -> String {
    match &report.answer {
        Some(answer) if answer.sure || report.plan.order.is_some() => {
            format!("{} is enough: {}", answer.knee.cell, answer.knee.rate)
        }
        Some(answer) if ended_early(report) => {
            format!(
                "{} is the best by the runs that count: {}",
                answer.knee.cell, answer.knee.rate
            )
        }
        Some(answer) => format!(
            "{} is the best within the budget: {}",
            answer.knee.cell, answer.knee.rate
        ),
        None => "Too few runs for an answer".to_owned(),
    }
}

/// Returns the result of a sweep without its runs: the answer, the map, the settings and the cost.
pub fn sweep_text(report: &SweepReport) -> String {
    let answer = report.answer.as_ref();
    brief_text(&Article {
        sections: known_sections([
            Some(rate_map_section(report)),
            answer.map(|answer| settings_section(answer, report)),
            Some(costs_section(report)),
        ]),
        ..sweep_article(report)
    })
}

fn sweep_facts(answer: &SweepAnswer, report: &SweepReport) -> Vec<(String, String)> {
    let fastest =
        fastest_run(report).map(|(run, rate)| fact(rate, format!("the fastest run, {}", run.cell)));
    let added = added_rtt(report, &answer.knee)
        .map(|added| fact(added_time(added), "round trip that the knee adds"));
    let spent = if report.plan.order.is_some() {
        let runs = count_noun(report.runs.len(), "run");
        fact(report.spent.bytes, format!("moved in {runs}"))
    } else {
        let share = Ratio::from_quotient(report.spent.bytes.as_f64(), report.grid.bytes.as_f64());
        fact(
            format!("{:.0} %", share.as_percent()),
            "of the bytes of the whole grid",
        )
    };
    fastest.into_iter().chain(added).chain([spent]).collect()
}

fn rate_map_section(report: &SweepReport) -> PageSection {
    let knee = report.answer.as_ref().map(|answer| {
        format!(
            "{} is the cheapest setting with 95 % of the best",
            answer.knee.cell
        )
    });
    let title = text_or(knee, "Rate by window and streams");
    let method = "Payload of all streams together, by a surface fitted to all runs; large tiles were measured.";
    PageSection::new(title, method, rate_map(report))
}

/// Returns the round trip under load over the rate, run by run.
fn round_trips(report: &SweepReport) -> PageSection {
    let (lossy, clean): (Vec<_>, Vec<_>) = counted_runs(report)
        .partition(|(run, _)| run.retransmits.is_some_and(|again| again.get() > 0));
    let [clean, lossy] = [clean, lossy].map(|runs| {
        let points = runs.into_iter();
        points.filter_map(|(run, rate)| Some((rate, run.loaded_rtt?)))
    });
    let of_kernel = counted_runs(report)
        .filter_map(|(run, rate)| Some((rate, run.load.as_ref()?.smoothed_rtt?)));
    let panel = Panel::new("round trip under load")
        .with_points("smoothed by the sender's kernel", Dots, Grey, of_kernel)
        .with_points("nothing retransmitted", Dots, Blue, clean)
        .with_points("segments retransmitted", Dots, Orange, lossy)
        .with_level(report.plan.rtt, "idle");
    let again = counted_runs(report).filter_map(|(run, rate)| Some((rate, run.retransmits?.get())));
    let again =
        Panel::new("segments retransmitted").with_points("retransmitted", Dots, Orange, again);
    let title = match report.rtt.and_then(|rtt| rtt.climbs_from) {
        Some(from) => format!("Round trips are longer from {from} on"),
        None => "Round trips by rate".to_owned(),
    };
    let method = "A dot a run: median round trip under load, orange where segments were retransmitted, and \
                  their number; grey: the estimate of the sender's kernel.";
    let mut plot = Plot::new("Round trip by rate")
        .with_axis_name("rate")
        .with_panel(panel)
        .with_panel(again);
    if let Some((from, top)) = published::published_climb(report) {
        plot = plot.with_shade(from, top, "2002: longer from here on, scaled");
    }
    PageSection::new(title, method, plot)
}

fn settings_section(answer: &SweepAnswer, report: &SweepReport) -> PageSection {
    let heads = "|streams × window|rate|95 % interval|RTT";
    let table = compact_table(
        heads,
        named_settings(answer)
            .into_iter()
            .map(|(name, of): (&str, &SweepEstimate)| {
                let added = added_rtt(report, of).map_text(added_time);
                cells![name, of.cell, of.rate, rate_interval(of), added]
            }),
    );
    PageSection::new("The setting, and others that do", "", table)
}

fn costs_section(report: &SweepReport) -> PageSection {
    let forecast = report.plan.forecast.map(|forecast| {
        [
            ("forecast", forecast.median),
            ("8 of 10: from", forecast.low),
            ("to", forecast.high),
        ]
    });
    let spent = format!("spent on {}", count_noun(report.runs.len(), "run"));
    let costs = [(spent.as_str(), report.spent), ("whole grid", report.grid)];
    let rows = forecast.into_iter().flatten().chain(costs);
    let rows = rows.map(|(name, cost)| {
        let time = rounded_duration(cost.time);
        cells![name, cost.bytes, time]
    });
    let table = compact_table("|bytes|time", rows);
    PageSection::new("What it cost", "", table)
}

fn sweep_runs_section(runs: &[SweepRun]) -> PageSection {
    let heads = "run|streams × window|rate|idle RTT|RTT|retransmitted|sent|does not count";
    let table = compact_table(
        heads,
        runs.iter()
            .enumerate()
            .map(|(number, run): (usize, &SweepRun)| {
                [
                    (number + 1).to_string(),
                    run.cell.to_string(),
                    run.rate.map_text(|rate| rate.to_string()),
                    run.idle_rtt.map_text(round_trip),
                    run.loaded_rtt.map_text(round_trip),
                    run.retransmits.map_text(|again| again.get().to_string()),
                    run.sent.to_string(),
                    run.broken.join(" "),
                ]
            }),
    );
    PageSection::new("The runs", "In their order.", table)
}

fn added_time(added: Span) -> String {
    format!("+{}", round_trip(added))
}
