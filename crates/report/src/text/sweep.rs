//! A sweep: a map of the rates, the knee, and the answers that the runs give.

use fullpipe_record::{SweepAnswer, SweepCost, SweepEstimate, SweepPlan, SweepReport, SweepRun, SweepShape};
use fullpipe_units::{BitRate, ByteCount, Span};

use super::measurement::round_trip;
use super::style::{Style, heading, wrapped};
use super::table::{Align, Table, or_dash};

/// Numbers of streams that a map of 80 columns shows.
const MAX_COLUMNS: usize = 14;

/// Rank correlation from which on two figures go together.
const RELATED: f64 = 0.6;

/// Quotients of variances below and above which streams depend on each other.
const TAKES_UP: f64 = 0.7;
const TOGETHER: f64 = 1.5;

/// Returns what a sweep is about to do: its settings, its cost, and what it rests on.
pub fn sweep_plan(plan: &SweepPlan, forecast: Option<SweepCost>, whole: Option<SweepCost>, style: Style) -> String {
    let cells = plan.windows.len() * plan.streams.len();
    let mut text = heading(style, &format!("Sweep of {}", plan.target));
    text += &format!(
        "  {cells} settings: windows {}, streams {}; RTT {}\n",
        range(&plan.windows),
        range(&plan.streams),
        round_trip(plan.rtt)
    );
    let cost = |cost: SweepCost| format!("{} in {}", cost.bytes, minutes(cost.time));
    let budget = plan.budget.percent();
    let sentence = match (plan.order, forecast, whole) {
        (None, Some(forecast), Some(whole)) => format!(
            "Forecast: {}; at most {budget:.0} % of the {} that the whole grid takes.",
            cost(forecast),
            cost(whole)
        ),
        (Some(_), _, Some(whole)) => format!("The whole grid takes {}.", cost(whole)),
        _ => format!(
            "The capacity is not known, and with it no bytes: at most {budget:.0} % of what the whole grid takes. \
             --bandwidth permits a forecast."
        ),
    };
    text += &wrapped(&sentence, 2, str::to_owned);
    text += &wrapped(&format!("Kept as {}.", plan.id), 2, |line| style.dim(line));
    text
}

/// Returns the line of a run; `number` counts from 0.
pub fn sweep_run(number: u32, run: &SweepRun) -> String {
    let rate = or_dash(run.rate.map(|rate| rate.to_string()));
    let rtt = or_dash(run.loaded_rtt.map(round_trip));
    let reason = serde_json::to_value(run.reason).ok().and_then(|reason| reason.as_str().map(str::to_owned));
    let broken = run.broken.first().map_or_else(String::new, |why| format!("; does not count: {why}"));
    let setting = run.cell.to_string();
    format!("{:>4}  {setting:<14} {rate:>14}  RTT {rtt:>9}  {}{broken}", number + 1, reason.unwrap_or_default())
}

/// Returns the whole report.
pub fn sweep(report: &SweepReport, style: Style) -> String {
    let mut text = heading(style, "Rates by window and streams, in % of the fastest");
    text += &map(report, style);
    if let Some(answer) = &report.answer {
        text += &heading(style, "The setting");
        text += &settings(answer, report, style);
    }
    for sentence in sweep_sentences(report) {
        text += &wrapped(&sentence, 2, str::to_owned);
    }
    text += &costs(report, style);
    if report.interrupted {
        let line = format!("Interrupted: `--resume {}` goes on with the next run.", report.plan.id);
        text += &wrapped(&line, 2, |line| style.bad(line));
    }
    text
}

/// Tiles, windows by streams: figures where a setting was measured, shades where its rate follows from its neighbours.
fn map(report: &SweepReport, style: Style) -> String {
    let SweepPlan { windows, streams, .. } = &report.plan;
    let fastest = report.surface.iter().filter(|of| of.runs > 0).map(|of| of.rate).max().unwrap_or_default();
    let knee = report.answer.as_ref().map(|answer| answer.knee.cell);
    let mut text = String::new();
    for part in (0..streams.len()).collect::<Vec<_>>().chunks(MAX_COLUMNS) {
        for (row, window) in windows.iter().enumerate().rev() {
            text += &format!("{:>9} ", window.to_string());
            for column in part {
                let Some(of) = report.surface.get(column * windows.len() + row) else { continue };
                text += &tile(of, fastest, knee == Some(of.cell), style);
            }
            text += "\n";
        }
        let counts: Vec<String> = part.iter().map(|column| format!("{:>4} ", streams[*column])).collect();
        text += &style.dim(&format!("{:>9} {}", "streams", counts.concat()));
        text += "\n\n";
    }
    text += &style.dim("  [ ] knee; figures measured; ░ ▒ ▓ █ from 0, 50, 80 and 95 %, by the neighbours\n");
    text
}

fn tile(of: &SweepEstimate, fastest: BitRate, is_knee: bool, style: Style) -> String {
    let share = of.rate.relative_to(fastest) * 100.0;
    let shade = match share {
        share if share < 50.0 => '░',
        share if share < 80.0 => '▒',
        share if share < 95.0 => '▓',
        _ => '█',
    };
    match (of.runs, is_knee) {
        (0, _) => style.dim(&format!("   {shade} ")),
        (_, true) => style.bold(&format!("[{share:>3.0}]")),
        (_, false) => format!("{share:>4.0} "),
    }
}

fn settings(answer: &SweepAnswer, report: &SweepReport, style: Style) -> String {
    let right = Align::Right;
    let mut table = Table::new(&[
        ("", Align::Left),
        ("streams × window", right),
        ("rate", right),
        ("95 % interval", right),
        ("RTT", right),
    ]);
    for (name, of) in named_settings(answer) {
        table.row([
            name.to_owned(),
            of.cell.to_string(),
            of.rate.to_string(),
            format!("{:.1} to {:.1}", of.low.as_mbps(), of.high.as_mbps()),
            or_dash(added_rtt(report, of).map(|added| format!("+{}", round_trip(added)))),
        ]);
    }
    table.render(2, |head| style.dim(head))
}

/// Returns the settings that an answer names.
pub(crate) fn named_settings(answer: &SweepAnswer) -> [(&'static str, &SweepEstimate); 4] {
    [
        ("knee", &answer.knee),
        ("fewest streams", &answer.fewest_streams),
        ("smallest window", &answer.smallest_window),
        ("fastest", &answer.best),
    ]
}

/// Returns what the load of a setting adds to the round trip, by the median of its runs.
pub(crate) fn added_rtt(report: &SweepReport, of: &SweepEstimate) -> Option<Span> {
    let runs = report.runs.iter().filter(|run| run.cell == of.cell);
    let added = runs.filter_map(|run| Some(run.loaded_rtt?.saturating_sub(run.idle_rtt?)));
    fullpipe_units::median(added.collect())
}

/// Returns the answers that the runs give, a sentence each.
pub(crate) fn sweep_sentences(report: &SweepReport) -> Vec<String> {
    let mut said = Vec::new();
    said.extend(change(report));
    said.extend(verdict(report));
    said.extend(next_to_prediction(report));
    said.extend(of_rtt(report));
    said.extend(of_streams(report));
    said
}

fn change(report: &SweepReport) -> Option<String> {
    let begun = report.segments.last().filter(|_| report.segments.len() > 1)?;
    Some(format!("The path changed during the sweep: only the runs from number {} on count for the answer.", begun + 1))
}

fn verdict(report: &SweepReport) -> Option<String> {
    let Some(answer) = &report.answer else {
        let few = "No knee: too few runs count over the path as it is now.";
        return (!report.interrupted).then(|| few.to_owned());
    };
    let knee = &answer.knee;
    let certainty = match (answer.sure, report.plan.order) {
        (_, Some(_)) => "the cheapest setting of the whole grid with 95 % of the best rate",
        (true, None) => "sure to have 95 % of the best rate",
        (false, None) => "the best within the budget; not sure",
    };
    let interval = match (answer.cheapest == knee.cell, answer.dearest == knee.cell) {
        (true, true) => "no other setting may be the knee".to_owned(),
        _ => format!("the knee lies between {} and {}", answer.cheapest, answer.dearest),
    };
    let shape = match answer.shape {
        SweepShape::Knee => "",
        SweepShape::BeyondGrid => {
            " The rate still grows where the grid ends: the knee lies beyond, with more streams or larger windows."
        }
        SweepShape::Flat => " The surface is flat: any setting has about the same rate, and there is no knee.",
        SweepShape::TwoPlateaus => " There are two plateaus: more streams do not help for a while, and then they do.",
    };
    Some(format!("Take {}: {certainty}; {interval}.{shape}", knee.cell))
}

fn next_to_prediction(report: &SweepReport) -> Option<String> {
    let (predicted, knee) = (report.predicted_knee?, &report.answer.as_ref()?.knee);
    if predicted == knee.cell {
        return Some(format!("{predicted} was predicted as well."));
    }
    let measured = report.surface.iter().find(|of| of.cell == predicted).map(|of| of.rate)?;
    let place = report.surface.iter().position(|of| of.cell == predicted)?;
    let expected = *report.plan.predicted.get(place)?;
    let why = if measured.relative_to(expected) < 0.9 {
        format!("but {measured} came of the {expected} that window, capacity and loss permit")
    } else {
        "which moves as much with another product of streams and window".to_owned()
    };
    Some(format!("Predicted was {predicted}, {why}."))
}

fn of_rtt(report: &SweepReport) -> Option<String> {
    let rtt = report.rtt?;
    let Some(from) = rtt.climbs_from else {
        return Some("At no rate are round trips longer than without load.".to_owned());
    };
    let named = [
        ("the rate", rtt.with_rate),
        ("the window", rtt.with_window),
        ("the streams", rtt.with_streams),
        ("streams × window", rtt.with_product),
    ];
    let related: Vec<String> = named
        .into_iter()
        .filter(|(_, correlation)| correlation.abs() >= RELATED)
        .map(|(name, correlation)| format!("{name} ({correlation:.2})"))
        .collect();
    let with = if related.is_empty() { "nothing that was set".to_owned() } else { related.join(", ") };
    Some(format!("Round trips are longer from {from} on; by rank their growth goes with {with}."))
}

/// Returns the answer to the question if other streams take up what one leaves.
fn of_streams(report: &SweepReport) -> Option<String> {
    let seen = report.runs.iter().filter_map(|run| run.together);
    let mut quotients: Vec<f64> = seen.map(fullpipe_units::Ratio::get).collect();
    quotients.sort_by(f64::total_cmp);
    let middle = *quotients.get(quotients.len() / 2)?;
    let meaning = match middle {
        low if low < TAKES_UP => "other streams take up what one leaves",
        high if high > TOGETHER => "streams rise and fall together",
        _ => "streams do not depend on each other",
    };
    Some(format!(
        "The rate of all streams varies {middle:.2} times as much as independent streams would (median of {} runs): \
         {meaning}.",
        quotients.len()
    ))
}

fn costs(report: &SweepReport, style: Style) -> String {
    let right = Align::Right;
    let mut table = Table::new(&[("", Align::Left), ("bytes", right), ("time", right)]);
    let mut row = |name: &str, cost: SweepCost| table.row([name.to_owned(), size(cost.bytes), minutes(cost.time)]);
    if let Some(forecast) = report.forecast {
        row("forecast", forecast);
    }
    row(&format!("spent on {} runs", report.runs.len()), report.spent);
    row("whole grid", report.grid);
    format!("\n{}", table.render(2, |head| style.dim(head)))
}

fn size(bytes: ByteCount) -> String {
    bytes.to_string()
}

fn minutes(span: Span) -> String {
    let seconds = span.as_secs_f64();
    if seconds < 100.0 { format!("{seconds:.0} s") } else { format!("{:.1} min", seconds / 60.0) }
}

fn range<T: std::fmt::Display>(values: &[T]) -> String {
    match values {
        [] => String::new(),
        [only] => only.to_string(),
        [first, .., last] => format!("{first} to {last}"),
    }
}
