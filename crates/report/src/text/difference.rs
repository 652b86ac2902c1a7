use fullpipe_record::{DifferenceReport, LimitCount, PairForecast, QuantityDifference};

use crate::prelude::*;

/// Returns the cost of pairs and the difference that they can show.
pub fn pair_forecast(forecast: &PairForecast) -> String {
    let PairForecast {
        pairs,
        time,
        bytes,
        noise,
        detectable,
        pairs_for_half,
    } = forecast;
    let half = share_percent(Ratio::new(detectable.get() / 2.0));
    let more = pairs_for_half.map_text(|pairs| format!("; {half} takes about {pairs}"));
    let time = if time.as_secs_f64() < 90.0 {
        format!("{:.0} s", time.as_secs_f64())
    } else {
        format!("{:.0} min", time.as_secs_f64() / 60.0)
    };
    let sentence = format!(
        "{pairs} pairs ({time}, {bytes}) can show {}{more}, if runs differ by {} as on a busy path.",
        share_percent(*detectable),
        share_percent(*noise)
    );
    paragraph(&sentence, 0)
}

/// Returns the difference of A and B: the sentence, the quantities, the limits, and what restricts
/// the answer.
pub fn difference_text(report: &DifferenceReport) -> String {
    let mut text = heading_line("Difference");
    for (side, runs) in [("A", &report.a), ("B", &report.b)] {
        text += &paragraph(
            &format!("{side}: {}, {}", runs.name, count_noun(runs.runs, "run")),
            2,
        );
        if let Some([low, high]) = runs.within_run {
            text += &dim_paragraph(&format!("within this run {low} to {high} (95 %)"), 5);
        }
    }
    text += "\n";
    text += &bold_paragraph(&report.sentence, 2);
    text += "\n";
    text += &quantity_table(report);
    text += &limit_counts(report);
    for line in report
        .incomparable
        .iter()
        .map(|why| format!("Not comparable: {why}"))
        .chain(report.left_out.clone())
    {
        text += &failure_paragraph(&line, 2);
    }
    if report.interrupted {
        text += &failure_paragraph("Interrupted: these are the pairs that were complete.", 2);
    }
    text
}

fn quantity_table(report: &DifferenceReport) -> String {
    let mut table = TextTable::new("|>A|>B|>B to A|>95 %");
    let name = if report.is_steady {
        "steady rate"
    } else {
        "rate"
    };
    table.push_row(quantity_cells(name, &report.rate, ToString::to_string));
    let times = [
        ("RTT under load", &report.rtt_median),
        ("99th percentile", &report.rtt_p99),
    ];
    for (name, quantity) in times {
        if let Some(quantity) = quantity {
            table.push_row(quantity_cells(name, quantity, |rtt| round_trip(*rtt)));
        }
    }
    if let Some(quantity) = &report.retransmits {
        table.push_row(quantity_cells(
            "resent segments",
            quantity,
            |count: &SegCount| count.get().to_string(),
        ));
    }
    table.render(2)
}

fn quantity_cells<T>(
    name: &str,
    quantity: &QuantityDifference<T>,
    shown: impl Fn(&T) -> String,
) -> [String; 5] {
    let range = quantity
        .low
        .zip(quantity.high)
        .map(|(low, high)| format!("{} to {}", ratio_change(low), ratio_change(high)));
    [
        name.to_owned(),
        shown(&quantity.a),
        shown(&quantity.b),
        or_dash(quantity.ratio.map(ratio_change)),
        or_dash(range),
    ]
}

/// Returns a ratio as a change in percent, or as a factor from 3 on.
pub(crate) fn ratio_change(ratio: Ratio) -> String {
    match ratio.get() {
        factor if factor >= 1000.0 => "> 1000 ×".to_owned(),
        factor if factor >= 3.0 => format!("{factor:.1} ×"),
        // The minus sign of charts.
        ratio => format!("{:+.1} %", (ratio - 1.0) * 100.0).replace('-', "−"),
    }
}

/// Without decimals, but below a percent.
fn share_percent(share: Ratio) -> String {
    let percent = share.as_percent();
    if percent < 0.95 {
        format!("{percent:.1} %")
    } else {
        format!("{percent:.0} %")
    }
}

fn limit_counts(report: &DifferenceReport) -> String {
    let of_a: u32 = report.limits.iter().map(|count| count.a).sum();
    let of_b: u32 = report.limits.iter().map(|count| count.b).sum();
    let mut text = String::new();
    for LimitCount { limit, a, b } in &report.limits {
        let line = format!(
            "limited by {}: {a} of {of_a} runs of A, {b} of {of_b} of B",
            limit.name()
        );
        text += &paragraph(&line, 2);
    }
    text
}
