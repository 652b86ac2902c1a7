use fullpipe_record::{Direction, Interval, Measurement, RttStats, Steady};
use fullpipe_units::{Ratio, Span};

use crate::style::{Style, heading, wrapped};
use crate::table::or_dash;

/// The head above [`interval_line`]s.
pub fn interval_head(style: Style) -> String {
    style.dim(&format!("  {:>11}  {:>14}  {:>10}  {:>12}  {:>11}", "time", "rate", "RTT", "cwnd", "retransmits"))
}

/// One interval as it happens.
pub fn interval_line(interval: &Interval, style: Style) -> String {
    let line = format!(
        "  {:>11}  {:>14}  {:>10}  {:>12}  {:>11}",
        format!("{:.1}–{:.1} s", interval.from.as_secs_f64(), interval.to.as_secs_f64()),
        interval.rate,
        or_dash(interval.rtt.map(|rtt| rtt.to_string())),
        or_dash(interval.cwnd.map(|cwnd| cwnd.to_string())),
        or_dash(interval.retransmits.map(|count| count.to_string())),
    );
    if interval.omitted { style.dim(&format!("{line}  omitted")) } else { line }
}

/// A measurement's result: rates, times, the limit, and all of it in one line.
pub fn measurement(measured: &Measurement, style: Style) -> String {
    let mut text = figures(measured, style);
    if let Some(verdict) = &measured.limit {
        text += &heading(style, "Limit");
        text += &wrapped(&verdict.sentence, 2, |line| style.bold(line));
    }
    text + "\n" + &wrapped(&status(measured), 0, str::to_owned)
}

/// Rates and times of a measurement, and what is wrong with it.
pub fn figures(measured: &Measurement, style: Style) -> String {
    let mut text = format!("\n{}", totals(measured));
    text += &round_trips(measured);
    if let Some(why) = &measured.broken_off {
        text += &wrapped(&format!("Broken off: {why}"), 2, |line| style.bad(line));
    }
    for warning in &measured.warnings {
        text += &wrapped(&format!("Warning: {warning}"), 2, |line| style.bad(line));
    }
    for reason in &measured.validity.broken {
        text += &wrapped(&format!("Not valid: {reason}"), 2, |line| style.bad(line));
    }
    text
}

/// The status line of a measurement: `323 Mbit/s, RTT 100 ms idle and 101 ms loaded, limited by send-buffer`.
fn status(measured: &Measurement) -> String {
    let median = |stats: Option<RttStats>| stats.map_or_else(|| "unknown".to_owned(), |stats| stats.median.to_string());
    let limit = measured.limit.as_ref().map_or("unknown", |verdict| verdict.kind.name());
    format!(
        "{}, RTT {} idle and {} loaded, limited by {limit}",
        measured.summary.rate,
        median(measured.rtt.idle),
        median(measured.rtt.loaded),
    )
}

fn totals(measured: &Measurement) -> String {
    let summary = &measured.summary;
    let mut text = match measured.request.direction {
        Direction::Upload => format!("  sent {}, of which {} arrived", summary.sent, summary.received),
        Direction::Download => format!("  received {} of {} sent", summary.received, summary.sent),
    };
    text += &format!(" in {}: {}", summary.duration, summary.rate);
    if let Some(count) = summary.retransmits {
        text += &format!(", {count} retransmissions");
    }
    text = wrapped(&text, 2, str::to_owned);
    if let Some(steady) = summary.steady {
        text += &wrapped(&steady_line(steady), 2, str::to_owned);
    }
    text
}

fn steady_line(steady: Steady) -> String {
    format!(
        "ramp {} at {}, then steady {} at {}",
        rounded(steady.ramp),
        steady.ramp_rate,
        rounded(steady.duration),
        steady.rate
    )
}

/// To a hundredth of a second: finer figures would pretend.
pub(crate) fn rounded(span: Span) -> String {
    format!("{:.2} s", span.as_secs_f64())
}

fn round_trips(measured: &Measurement) -> String {
    let line = |name: &str, stats: RttStats| {
        format!("  RTT {name:<6} median {}, least {}, p99 {}, most {}\n", stats.median, stats.min, stats.p99, stats.max)
    };
    let mut text = String::new();
    if let Some(idle) = measured.rtt.idle {
        text += &line("idle", idle);
    }
    if let Some(loaded) = measured.rtt.loaded {
        text += &line("loaded", loaded);
    }
    text
}

/// `97 %`, or a dash.
pub(crate) fn accuracy(ratio: Option<Ratio>) -> String {
    or_dash(ratio.map(|ratio| format!("{:.1} %", ratio.percent())))
}
