//! The difference between two results, or of two settings measured in pairs.

use fullpipe_chart::{Change, Hue, Mark, Panel, Plot, Row, Rows, Series};
use fullpipe_record::{
    ComparedRun, ComparedRuns, ComparedSide, ComparisonDesign, DifferenceConclusion, DifferenceReport, LimitCount,
    QuantityDifference,
};
use fullpipe_units::{BitRate, counted};

use super::{Article, Section, figures};
use crate::text::{change, round_trip};

/// Returns the article on a difference.
pub(super) fn article(report: &DifferenceReport) -> Article {
    let design = match report.design {
        ComparisonDesign::Pairs => "in pairs",
        ComparisonDesign::Samples => "not in pairs",
    };
    let runs = report.a.runs + report.b.runs;
    let mut sections = vec![changes(report), spread(report)];
    sections.extend(in_order(report));
    sections.extend(limits(&report.limits));
    sections.push(table(&report.runs));
    Article {
        origin: format!("fullpipe diff · {runs} runs, {design}"),
        headline: report.sentence.clone(),
        sentences: sentences(report),
        facts: facts(report),
        sections,
        ..Article::default()
    }
}

fn sentences(report: &DifferenceReport) -> Vec<String> {
    let side = |letter: &str, runs: &ComparedRuns| {
        let within = runs.within_run.map_or_else(String::new, |[low, high]| {
            format!(" Within this run the rate is {low} to {high} (95 %), which says nothing about the next.")
        });
        format!("{letter}: {}, {}.{within}", runs.name, counted(runs.runs, "run"))
    };
    let incomparable = report.incomparable.iter().map(|why| format!("Not comparable: {why}."));
    let mut all = vec![side("A", &report.a), side("B", &report.b)];
    all.extend(incomparable.chain(report.left_out.iter().cloned()));
    if report.interrupted {
        all.push("Interrupted: these are the pairs that were complete.".to_owned());
    }
    all
}

fn facts(report: &DifferenceReport) -> Vec<(String, String)> {
    let part = if report.is_steady { "steady rate" } else { "rate" };
    let mut facts = vec![
        (report.rate.a.to_string(), format!("{part} of A, median")),
        (report.rate.b.to_string(), format!("{part} of B, median")),
    ];
    facts.extend(report.rate.ratio.map(|ratio| (change(ratio), "from A to B".to_owned())));
    facts.extend(report.detectable.map(|share| {
        (format!("{:.1} %", share.percent()), "difference that four of five such comparisons show".to_owned())
    }));
    facts
}

/// Returns the changes of all quantities with their intervals.
fn changes(report: &DifferenceReport) -> Section {
    let all = [
        quantity("rate", &report.rate, Hue::Blue),
        report.rtt_median.as_ref().and_then(|rtt| quantity("round trip under load", rtt, Hue::Plum)),
        report.rtt_p99.as_ref().and_then(|rtt| quantity("its 99th percentile", rtt, Hue::Plum)),
        report.retransmits.as_ref().and_then(|count| quantity("segments retransmitted", count, Hue::Orange)),
    ];
    let rows = all.into_iter().flatten().fold(Rows::new("Changes from A to B", ["quantity", "B to A"]), Rows::with);
    let title = match report.rate.conclusion {
        DifferenceConclusion::Different => "A and B differ in rate",
        DifferenceConclusion::Same => "The rates of A and B are the same within 2 %",
        DifferenceConclusion::NoneShown => "No difference in rate was shown, and none was excluded",
        DifferenceConclusion::TooFew => "Too few runs to show a difference",
    };
    let method = "B to A, with the 95 % interval between runs; a hollow dot: no difference was shown.";
    Section::new(title, method, rows)
}

/// Returns the change of a quantity; `None` of too few runs.
fn quantity<T>(name: &str, of: &QuantityDifference<T>, hue: Hue) -> Option<Row> {
    let ratio = of.ratio?;
    let range = of.low.zip(of.high);
    let words = range.map_or_else(String::new, |(low, high)| format!("{} to {}", change(low), change(high)));
    let row = Row::new(name, &change(ratio), hue).detail(&words).dot(Change(ratio));
    let row = match range {
        Some((low, high)) => row.interval(Change(low), Change(high)),
        None => row,
    };
    Some(if of.conclusion == DifferenceConclusion::Different { row } else { row.hollow() })
}

fn of_side(report: &DifferenceReport, side: ComparedSide) -> impl Iterator<Item = &ComparedRun> {
    report.runs.iter().filter(move |run| run.side == side)
}

/// Returns the rates of the runs of each side.
fn spread(report: &DifferenceReport) -> Section {
    let row = |letter: &str, name: &str, side, median: BitRate, hue| {
        let rates = of_side(report, side).map(|run| run.rate);
        Row::new(&format!("{letter}: {name}"), &median.to_string(), hue).dots(rates).dot(median)
    };
    let rows = Rows::new("Rates of the runs", ["side", "median"])
        .with(row("A", &report.a.name, ComparedSide::A, report.rate.a, Hue::Orange))
        .with(row("B", &report.b.name, ComparedSide::B, report.rate.b, Hue::Blue));
    Section::new("The runs of each side", "Small dots: runs. Large dot: their median.", rows)
}

/// Returns the rates in the order in which they were measured; `None` of fewer than two runs a side.
fn in_order(report: &DifferenceReport) -> Option<Section> {
    if report.a.runs.min(report.b.runs) < 2 {
        return None;
    }
    let numbered: Vec<(u64, &ComparedRun)> = (1..).zip(&report.runs).collect();
    let series = |name: &str, side, hue| {
        let own = numbered.iter().filter(move |(_, run)| run.side == side);
        Series::new(name, Mark::Dots, hue, own.map(|(number, run)| (*number, run.rate))).labelled(name)
    };
    let panel = Panel::new("rate").with(series("A", ComparedSide::A, Hue::Orange)).with(series(
        "B",
        ComparedSide::B,
        Hue::Blue,
    ));
    let plot = Plot::new("Rates in the order of the runs").axis("run").with(panel);
    let method = match report.design {
        ComparisonDesign::Pairs => "Pairs in random order: what drifts falls on both sides alike.",
        ComparisonDesign::Samples => "Not in pairs: what changed between A and B counts as their difference.",
    };
    Some(Section::new("In the order of the runs", method, plot))
}

/// Returns the number of runs by limit; `None` where no limit is known.
fn limits(counts: &[LimitCount]) -> Option<Section> {
    let most = counts.first()?;
    let row = |count: &LimitCount| [count.limit.name().to_owned(), count.a.to_string(), count.b.to_string()];
    let title = format!("{} limits {} of A and {} of B", most.limit.name(), counted(most.a, "run"), most.b);
    let table = figures(["limit", "runs of A", "runs of B"], counts.iter().map(row).collect());
    Some(Section::new(title, "The limit that each run was judged to have.", table))
}

fn table(runs: &[ComparedRun]) -> Section {
    let row = |(number, run): (usize, &ComparedRun)| {
        [
            (number + 1).to_string(),
            if run.side == ComparedSide::A { "A" } else { "B" }.to_owned(),
            run.pair.map_or_else(String::new, |pair| pair.to_string()),
            run.rate.to_string(),
            run.rtt_median.map_or_else(String::new, round_trip),
            run.rtt_p99.map_or_else(String::new, round_trip),
            run.retransmits.map_or_else(String::new, |count| count.get().to_string()),
            run.limit.map_or_else(String::new, |limit| limit.name().to_owned()),
        ]
    };
    let heads = ["run", "side", "pair", "rate", "RTT", "p99", "retransmitted", "limit"];
    Section::new("The runs", "", figures(heads, runs.iter().enumerate().map(row).collect()))
}
