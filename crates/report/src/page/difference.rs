//! The difference between two results, or of two settings measured in pairs.

use crate::chart::RateChange;
use fullpipe_record::{
    ComparedRun, ComparedRuns, ComparedSide, ComparisonDesign, DifferenceConclusion,
    DifferenceReport, LimitCount, QuantityDifference,
};

use super::prelude::*;
use super::text::brief_text;
use crate::text::ratio_change;

/// Returns the article on a difference.
pub(super) fn difference_article(report: &DifferenceReport) -> Article {
    let design = match report.design {
        ComparisonDesign::Pairs => "in pairs",
        ComparisonDesign::Samples => "not in pairs",
    };
    let runs = report.a.runs + report.b.runs;
    let sections = known_sections([
        Some(quantity_changes_section(report)),
        Some(run_rates_section(report)),
        in_order(report),
        limit_counts_section(&report.limits),
        Some(compared_runs_section(&report.runs)),
    ]);
    Article {
        origin: format!("fullpipe diff · {runs} runs, {design}"),
        headline: report.sentence.clone(),
        sentences: difference_sentences(report),
        facts: difference_facts(report),
        sections,
        ..Article::default()
    }
}

/// Returns a difference without its runs: the finding, the changes of all quantities, and the limits.
pub fn difference_text(report: &DifferenceReport) -> String {
    brief_text(&Article {
        sections: known_sections([
            Some(quantity_changes_section(report)),
            limit_counts_section(&report.limits),
        ]),
        ..difference_article(report)
    })
}

fn difference_sentences(report: &DifferenceReport) -> Vec<String> {
    let incomparable = report
        .incomparable
        .iter()
        .map(|why| format!("Not comparable: {why}."));
    let mut all = vec![side_sentence("A", &report.a), side_sentence("B", &report.b)];
    all.extend(incomparable.chain(report.left_out.iter().cloned()));
    if report.interrupted {
        all.push("Interrupted: these are the pairs that were complete.".to_owned());
    }
    all
}

fn side_sentence(letter: &str, runs: &ComparedRuns) -> String {
    let within = runs.within_run.map_text(|[low, high]| {
        format!(" Within this run the rate is {low} to {high} (95 %), which says nothing about the next.")
    });
    let count = count_noun(runs.runs, "run");
    format!("{letter}: {}, {count}.{within}", runs.name)
}

fn difference_facts(report: &DifferenceReport) -> Vec<(String, String)> {
    let part = if report.is_steady {
        "steady rate"
    } else {
        "rate"
    };
    let mut facts = vec![
        fact(report.rate.a, format!("{part} of A, median")),
        fact(report.rate.b, format!("{part} of B, median")),
    ];
    facts.extend(
        report
            .rate
            .ratio
            .map(|ratio| fact(ratio_change(ratio), "from A to B")),
    );
    facts.extend(report.detectable.map(|share| {
        fact(
            tenths_of_percent(share),
            "difference that four of five such comparisons show",
        )
    }));
    facts
}

/// Returns the changes of all quantities with their intervals.
fn quantity_changes_section(report: &DifferenceReport) -> PageSection {
    let (median, p99) = (report.rtt_median.as_ref(), report.rtt_p99.as_ref());
    let resent = report.retransmits.as_ref();
    let all = [
        quantity_row("rate", &report.rate, ToString::to_string, Blue),
        median
            .and_then(|of| quantity_row("round trip under load", of, |rtt| round_trip(*rtt), Plum)),
        p99.and_then(|of| quantity_row("its 99th percentile", of, |rtt| round_trip(*rtt), Plum)),
        resent
            .and_then(|of| quantity_row("segments retransmitted", of, ToString::to_string, Orange)),
    ];
    let rows = RowChart::new("Changes from A to B", ["quantity", "B to A"])
        .with_rows(all.into_iter().flatten());
    let title = match report.rate.conclusion {
        DifferenceConclusion::Different => "A and B differ in rate",
        DifferenceConclusion::Same => "The rates of A and B are the same within 2 %",
        DifferenceConclusion::NoneShown => "No difference in rate was shown, and none was excluded",
        DifferenceConclusion::TooFew => "Too few runs to show a difference",
    };
    let method =
        "B to A, with the 95 % interval between runs; a hollow dot: no difference was shown.";
    PageSection::new(title, method, rows)
}

/// Returns the change of a quantity; `None` of too few runs.
fn quantity_row<T>(
    name: &str,
    of: &QuantityDifference<T>,
    shown: impl Fn(&T) -> String,
    hue: Hue,
) -> Option<ChartRow> {
    let ratio = of.ratio?;
    let range = of.low.zip(of.high);
    let words =
        range.map_text(|(low, high)| format!("{} to {}, ", ratio_change(low), ratio_change(high)));
    let words = format!("{words}{} → {}", shown(&of.a), shown(&of.b));
    let row = ChartRow::new(name, &ratio_change(ratio), hue)
        .with_detail(&words)
        .with_dot(RateChange(ratio));
    let row = match range {
        Some((low, high)) => row.with_interval(RateChange(low), RateChange(high)),
        None => row,
    };
    Some(if of.conclusion == DifferenceConclusion::Different {
        row
    } else {
        row.with_hollow_dot()
    })
}

fn of_side(report: &DifferenceReport, side: ComparedSide) -> impl Iterator<Item = &ComparedRun> {
    report.runs.iter().filter(move |run| run.side == side)
}

/// Returns the rates of the runs of each side.
fn run_rates_section(report: &DifferenceReport) -> PageSection {
    let (a, b) = (ComparedSide::A, ComparedSide::B);
    let mut rows = RowChart::new("Rates of the runs", ["side", "median"]);
    for (letter, side, of, median, hue) in [
        ("A", a, &report.a, report.rate.a, Orange),
        ("B", b, &report.b, report.rate.b, Blue),
    ] {
        let rates = of_side(report, side).map(|run| run.rate);
        let name = format!("{letter}: {}", of.name);
        rows = rows.with_row(ChartRow::from_dot(&name, median, hue).with_dots(rates));
    }
    PageSection::new(
        "The runs of each side",
        "Small dots: runs. Large dot: their median.",
        rows,
    )
}

/// Returns the rates in the order in which they were measured; `None` of fewer than two runs a
/// side.
fn in_order(report: &DifferenceReport) -> Option<PageSection> {
    if report.a.runs.min(report.b.runs) < 2 {
        return None;
    }
    let mut panel = Panel::new("rate");
    for (letter, side, hue) in [("A", ComparedSide::A, Orange), ("B", ComparedSide::B, Blue)] {
        let numbered = (1_u64..).zip(&report.runs);
        let own = numbered.filter(|(_, run)| run.side == side);
        let points = own.map(|(number, run)| (number, run.rate));
        let series = PlotSeries::new(letter, Dots, hue, points);
        panel = panel.with_series(series.with_name_as_label());
    }
    let plot = Plot::new("Rates in the order of the runs")
        .with_axis_name("run")
        .with_panel(panel);
    let method = match report.design {
        ComparisonDesign::Pairs => "Pairs in random order: what drifts falls on both sides alike.",
        ComparisonDesign::Samples => {
            "Not in pairs: what changed between A and B counts as their difference."
        }
    };
    Some(PageSection::new("In the order of the runs", method, plot))
}

/// Returns the number of runs by limit; `None` where no limit is known.
fn limit_counts_section(counts: &[LimitCount]) -> Option<PageSection> {
    let most = counts.first()?;
    let title = format!(
        "{} limits {} of A and {} of B",
        most.limit.name(),
        count_noun(most.a, "run"),
        most.b
    );
    let rows = counts
        .iter()
        .map(|LimitCount { limit, a, b }| cells![limit.name(), a, b]);
    Some(PageSection::new(
        title,
        "The limit that each run was judged to have.",
        compact_table("limit|runs of A|runs of B", rows),
    ))
}

fn compared_runs_section(runs: &[ComparedRun]) -> PageSection {
    let heads = "run|side|pair|rate|RTT|p99|retransmitted|limit";
    let rows = (1..).zip(runs).map(|(number, run)| run_cells(number, run));
    PageSection::new("The runs", "", compact_table(heads, rows))
}

fn run_cells(number: u64, run: &ComparedRun) -> [String; 8] {
    let side = match run.side {
        ComparedSide::A => "A",
        ComparedSide::B => "B",
    };
    cells![
        number,
        side,
        or_empty(run.pair),
        run.rate,
        or_empty(run.rtt_median.map(round_trip)),
        or_empty(run.rtt_p99.map(round_trip)),
        or_empty(run.retransmits),
        or_empty(run.limit.map(Limit::name))
    ]
}
