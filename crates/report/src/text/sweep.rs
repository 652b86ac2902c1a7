//! A sweep: a map of the rates, the knee, and the answers that the runs give.

use crate::chart::{HeatTile, join_figures};
use fullpipe_record::{
    SweepAnswer, SweepCell, SweepCost, SweepDipCause, SweepDips, SweepEstimate, SweepForecast,
    SweepOrder, SweepPlan, SweepReport, SweepRun, SweepShape,
};

use super::completion::rounded_duration;
use super::diagnosis::json_name;
use super::prelude::*;
use crate::timeline::{device_traffic, timed_runs};

/// Rank correlation from which on two figures go together.
const RELATED: f64 = 0.6;

/// Quotients of variances below and above which streams depend on each other.
const TAKES_UP: f64 = 0.7;
const TOGETHER: f64 = 1.5;

/// Returns the plan of a sweep: its settings, its cost, and the evidence that it rests on.
pub fn sweep_plan(plan: &SweepPlan, whole: Option<SweepCost>) -> String {
    let cells = plan.windows.len() * plan.streams.len();
    let mut text = heading_line(&format!("Sweep of {}", plan.target));
    text += &format!(
        "  {}: windows {}, streams {}; RTT {}\n",
        count_noun(cells, "setting"),
        first_to_last(&plan.windows),
        first_to_last(&plan.streams),
        round_trip(plan.rtt)
    );
    if plan.direction == Direction::Download {
        text += "  The far end sends.\n";
    }
    if let Some(hours) = plan.hours {
        text += &format!("  Runs begin at {hours} only, local time.\n");
    }
    text + &paragraph(&sweep_cost(plan, whole), 2)
}

/// Returns the sentence on the forecast of a sweep, and on the cost of the whole grid.
fn sweep_cost(plan: &SweepPlan, whole: Option<SweepCost>) -> String {
    let budget = plan.budget.as_percent();
    match (plan.order, plan.forecast, whole) {
        (None, Some(forecast), Some(whole)) => format!(
            "Forecast: {}; in 8 of 10 such sweeps {} to {} in {} to {}. At most {budget:.0} % of the {} that the whole \
             grid takes.",
            cost_text(forecast.median),
            forecast.low.bytes,
            forecast.high.bytes,
            rounded_duration(forecast.low.time),
            rounded_duration(forecast.high.time),
            cost_text(whole)
        ),
        (Some(_), _, Some(whole)) => format!("The whole grid takes {}.", cost_text(whole)),
        _ => format!(
            "Capacity unknown, so the cost cannot be forecast: at most {budget:.0} % of what the whole grid takes. \
             --bandwidth permits a forecast."
        ),
    }
}

fn cost_text(cost: SweepCost) -> String {
    format!("{} in {}", cost.bytes, rounded_duration(cost.time))
}

/// Returns the line of a sweep that the archive keeps, and that can be resumed.
pub fn sweep_kept(plan: &SweepPlan) -> String {
    dim_paragraph(&format!("Kept as {}.", plan.id), 2)
}

/// Returns the line of a forecast amid a sweep that has spent so much.
pub fn sweep_forecast(spent: SweepCost, forecast: &SweepForecast) -> String {
    let SweepForecast { median, low, high } = forecast;
    let [least, most] = [low, high].map(|end| end.bytes);
    let time = rounded_duration(median.time);
    format!(
        "      spent {}; forecast {} ({least} to {most}) in {time}",
        spent.bytes, median.bytes
    )
}

/// Returns the line of a run; `number` counts from 0.
pub fn sweep_run(number: u32, run: &SweepRun) -> String {
    let rate = or_dash(run.rate);
    let rtt = or_dash(run.loaded_rtt.map(round_trip));
    let broken = run
        .broken
        .first()
        .map_text(|why| format!("; does not count: {why}"));
    let setting = run.cell.to_string();
    format!(
        "{:>4}  {setting:<14} {rate:>14}  RTT {rtt:>9}  {}{broken}",
        number + 1,
        json_name(run.reason)
    )
}

/// Returns the rates by window and streams.
pub(crate) fn rate_map(report: &SweepReport) -> HeatMap {
    let settings = report.surface.iter();
    let map = HeatMap::new(
        "Rate by window and streams",
        settings.map(|of| rate_tile(report, of)).collect(),
    );
    let Some(answer) = &report.answer else {
        return map;
    };
    let (knee, best) = (answer.knee.cell, answer.best.rate);
    map.with_knee(knee.window, knee.streams.into())
        .with_bdp(best.bytes_in(report.plan.rtt))
}

fn rate_tile(report: &SweepReport, of: &SweepEstimate) -> HeatTile {
    let own = own_rates(report, of.cell);
    let is_measured = of.runs > 0 || !own.is_empty();
    let interval = rate_interval(of);
    let runs = count_noun(own.len(), "run");
    let (rate, note) = match (of.runs, median(own)) {
        (0, None) => (of.rate, interval),
        // The estimate is of the path as it is now, and knows nothing of runs that were made
        // before.
        (0, Some(rate)) => (rate, format!("{runs} before those that count")),
        (counted, _) => (
            of.rate,
            format!("{interval}, {}", count_noun(counted, "run")),
        ),
    };
    HeatTile {
        window: of.cell.window,
        streams: of.cell.streams.into(),
        rate,
        is_measured,
        note,
    }
}

/// Returns the rates of all runs of a setting.
fn own_rates(report: &SweepReport, cell: SweepCell) -> Vec<BitRate> {
    report
        .runs
        .iter()
        .filter(|run| run.cell == cell)
        .filter_map(|run| run.rate)
        .collect()
}

/// Returns the interval of a rate, with its unit once if it is the same.
pub(crate) fn rate_interval(of: &SweepEstimate) -> String {
    join_figures(&of.low.to_string(), "to", &of.high.to_string())
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

/// Returns the increase of the round-trip time by the load of a setting, as the median of its runs.
pub(crate) fn added_rtt(report: &SweepReport, of: &SweepEstimate) -> Option<Span> {
    let runs = report.runs.iter().filter(|run| run.cell == of.cell);
    let added = runs.filter_map(|run| Some(run.loaded_rtt?.saturating_sub(run.idle_rtt?)));
    median(added.collect())
}

/// Returns the answers that the runs give, a sentence each.
pub(crate) fn sweep_sentences(report: &SweepReport) -> Vec<String> {
    let mut said = Vec::new();
    said.extend(path_change(report));
    said.extend(left_out(report));
    said.extend(sweep_verdict(report));
    said.extend(next_to_prediction(report));
    said.extend(
        report
            .dips
            .iter()
            .flat_map(|dips| of_dips(dips, report.plan.order)),
    );
    said.extend(of_rtt(report));
    said.extend(of_streams(report));
    said.extend(of_others(report));
    said.extend(report.interrupted.then(|| {
        let id = &report.plan.id;
        format!("Interrupted: `--resume {id}` goes on with the next run.")
    }));
    said
}

fn path_change(report: &SweepReport) -> Option<String> {
    let begun = report
        .segments
        .last()
        .filter(|_| report.segments.len() > 1)?
        + 1;
    let what_counts = match report.plan.order {
        None => format!("only the runs from number {begun} on count for the answer"),
        Some(_) => {
            format!("the runs from number {begun} on are of another path, and the answer is by all")
        }
    };
    Some(format!("The path changed during the sweep: {what_counts}."))
}

/// Returns the settings that are left out, with the reason of the last run of them.
fn left_out(report: &SweepReport) -> Option<String> {
    let mut runs = report.runs.iter().rev();
    let last = runs.find(|run| run.rate.is_none() && report.left_out.contains(&run.cell))?;
    let settings: Vec<String> = report.left_out.iter().map(ToString::to_string).collect();
    let why = last.broken.first().map_text(|why| format!(" ({why})"));
    Some(format!(
        "Left out, as their runs do not count{why}: {}.",
        settings.join(", ")
    ))
}

fn sweep_verdict(report: &SweepReport) -> Option<String> {
    let Some(answer) = &report.answer else {
        let few = "No knee: too few runs count over the path as it is now.";
        return (!report.interrupted).then(|| few.to_owned());
    };
    let knee = &answer.knee;
    let certainty = match (answer.sure, report.plan.order) {
        (_, Some(_)) if report.surface.iter().all(|of| of.runs > 0) => {
            "the cheapest setting of the whole grid with 95 % of the best rate"
        }
        (_, Some(_)) => {
            "the cheapest of the settings that were measured with 95 % of the best rate"
        }
        (true, None) => "sure to have 95 % of the best rate",
        (false, None) if ended_early(report) => "the best by the runs that count; not sure",
        (false, None) => "the best within the budget; not sure",
    };
    let interval = match (answer.cheapest == knee.cell, answer.dearest == knee.cell) {
        (true, true) => "no other setting may be the knee".to_owned(),
        _ => format!(
            "the knee lies between {} and {}",
            answer.cheapest, answer.dearest
        ),
    };
    let shape = match answer.shape {
        SweepShape::Knee => "",
        SweepShape::BeyondGrid => {
            " The rate still grows where the grid ends: the knee lies beyond, with more streams or larger windows."
        }
        SweepShape::Flat => {
            " The surface is flat: any setting has about the same rate, and there is no knee."
        }
        SweepShape::TwoPlateaus => {
            " There are two plateaus: more streams do not help for a while, and then they do."
        }
    };
    Some(format!(
        "Take {}: {certainty}; {interval}.{shape}",
        knee.cell
    ))
}

/// Returns true if a sweep ended since its runs did not count any more.
pub(crate) fn ended_early(report: &SweepReport) -> bool {
    !report.interrupted && report.runs.last().is_some_and(|run| run.rate.is_none())
}

fn next_to_prediction(report: &SweepReport) -> Option<String> {
    let (predicted, knee) = (report.predicted_knee?, &report.answer.as_ref()?.knee);
    if predicted == knee.cell {
        return Some(format!("{predicted} was predicted as well."));
    }
    let measured = report
        .surface
        .iter()
        .find(|of| of.cell == predicted)
        .map(|of| of.rate)?;
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
    let set = [
        ("the window", rtt.with_window),
        ("the streams", rtt.with_streams),
        ("streams × window", rtt.with_product),
    ];
    let related: Vec<String> = set
        .into_iter()
        .filter(|(_, correlation)| correlation.abs() >= RELATED)
        .map(|(name, correlation)| format!("{name} ({correlation:.2})"))
        .collect();
    let with = if related.is_empty() {
        "nothing that was set".to_owned()
    } else {
        related.join(", ")
    };
    Some(format!(
        "Round trips are longer from {from} on. RTT growth correlates with rate (rank correlation {:.2}), and at the \
         same rate with {with}.",
        rtt.with_rate
    ))
}

/// Returns sentences on the dips, and on the evidence for and against each of three causes.
fn of_dips(dips: &SweepDips, order: Option<SweepOrder>) -> Vec<String> {
    if dips.dips == 0 {
        return vec![
            "No run has less than 80 % of what a smaller setting has: there are no dips."
                .to_owned(),
        ];
    }
    let mut said = vec![format!(
        "{} of {} runs are dips, below 80 % of what a setting with no more streams and no larger window has: {}.",
        dips.dips,
        dips.runs,
        dip_cause(dips)
    )];
    if dips.are_few() {
        return said;
    }
    let (Some(of_setting), Some(neighbours)) = (dips.of_setting, dips.neighbours) else {
        let both = "Hardly any was measured again; `--full --order both` measures the grid in two orders, and shows if \
                    they are of the method, of other traffic, or of streams × window.";
        return if order == Some(SweepOrder::Both) {
            said
        } else {
            said.into_iter().chain([both.to_owned()]).collect()
        };
    };
    said.extend(dip_answers(dips, of_setting, neighbours));
    said
}

fn dip_cause(dips: &SweepDips) -> &'static str {
    match dips.cause {
        Some(SweepDipCause::Order) => {
            "the path changed slowly, and the order of the runs decides where that shows"
        }
        Some(SweepDipCause::CrossTraffic) => "other traffic came and went",
        Some(SweepDipCause::BeyondFlight) => "more may be in flight than path and queue hold",
        None if dips.are_few() => "they are too few to say why",
        None => "the runs do not show why",
    }
}

/// Returns the answer to each question that dips raise, by how runs of one setting correlate and how
/// neighbours do.
fn dip_answers(dips: &SweepDips, of_setting: f64, neighbours: f64) -> [String; 3] {
    let [method, cross_traffic, flight] = [
        SweepDipCause::Order,
        SweepDipCause::CrossTraffic,
        SweepDipCause::BeyondFlight,
    ]
    .map(|of| cause_answer(dips.cause, of));
    let own = format!(
        "Is it the method? {method}: runs after one another, each relative to its setting, correlate by \
         {neighbours:.2}; a slow change of the path would make it much."
    );
    let foreign = format!(
        "Is it other traffic? {cross_traffic}: {} of {} dips that were measured again came again, and runs of one \
         setting correlate by {of_setting:.2}; traffic that comes and goes would make it little.",
        dips.again, dips.repeated
    );
    let beyond = format!(
        "Is it streams × window? {flight}: {} of the {} dips have more than the {} in flight that fill the path, and \
         so have {} of all {} runs.",
        dips.dips_beyond, dips.dips, dips.flight, dips.runs_beyond, dips.runs
    );
    [own, foreign, beyond]
}

fn cause_answer(cause: Option<SweepDipCause>, of: SweepDipCause) -> &'static str {
    match cause {
        None => "Perhaps",
        Some(cause) if cause == of => "Yes",
        Some(_) => "No",
    }
}

/// Returns the answer to the question if other streams take up what one leaves.
fn of_streams(report: &SweepReport) -> Option<String> {
    let seen = report.runs.iter().filter_map(|run| run.together);
    let quotients: Vec<f64> = seen.map(fullpipe_units::Ratio::get).collect();
    let middle = median(quotients.clone())?;
    let meaning = match middle {
        low if low < TAKES_UP => "other streams take up what one leaves",
        high if high > TOGETHER => "streams rise and fall together",
        _ => "streams do not depend on each other",
    };
    Some(format!(
        "The rate of all streams varies {middle:.2} times as much as independent streams would (median of {}): \
         {meaning}.",
        count_noun(quotients.len(), "run")
    ))
}

/// Returns a sentence on the other traffic that the device of the runs carried.
fn of_others(report: &SweepReport) -> Option<String> {
    let traffic = device_traffic(report, &timed_runs(report))?;
    let speed = traffic.speed.map_text(|speed| format!(" of {speed}"));
    Some(format!(
        "The device {}{speed} carried {}.",
        traffic.device,
        traffic.of_others()
    ))
}

fn first_to_last<T: std::fmt::Display>(values: &[T]) -> String {
    match values {
        [] => String::new(),
        [only] => only.to_string(),
        [first, .., last] => format!("{first} to {last}"),
    }
}

#[cfg(test)]
mod tests;
