//! A verdict at length, and what would help.

use crate::chart::value_bar;
use fullpipe_record::{
    At, Basis, CommandEnd, CommandTimeForecast, Diagnosis, Evidence, Forecast, Http1Download,
    KernelDefect, Remedy, RttForecast, RunnerUp, Transfer, TransferTimeUse, Trial, Verdict,
};
use serde::Serialize;

use super::measurement::rounded_time;
use super::prelude::*;

/// Characters of the longest bar.
const BAR: usize = 10;

/// Smallest ratio of the bounds of a forecast that is printed as an interval.
const WIDE: f64 = 1.05;

/// Remedy of a full link, which no setting of a host makes wider.
const NOTHING_TO_CHANGE: &str = "none";

/// Returns the limit of a transfer, the evidence and the remedies, whose gains are multiples of the
/// rate that was judged: that of the steady part, or else `mean`.
pub fn diagnosis_text(diagnosis: &Diagnosis, mean: BitRate) -> String {
    let steady = diagnosis
        .evidence
        .as_ref()
        .and_then(|evidence| evidence.steady);
    let present = steady.map_or(mean, |steady| steady.rate);
    let watched = diagnosis.transfer.as_ref().map_text(watched_transfer);
    let defects: String = diagnosis.defects.iter().map(defect).collect();
    watched
        + &limit_text(diagnosis)
        + &defects
        + &what_would_help(&diagnosis.remedies, present)
        + &next_commands(&diagnosis.next)
}

/// Returns the commands whose output would show more.
fn next_commands(commands: &[String]) -> String {
    if commands.is_empty() {
        return String::new();
    }
    let lines = commands
        .iter()
        .map(|command| format!("  {}\n", dim_text(&printable_line(command))));
    heading_line("What would show more") + &lines.collect::<String>()
}

/// Returns a known defect of a kernel, in a sentence.
pub(super) fn defect(defect: &KernelDefect) -> String {
    let KernelDefect {
        kernel,
        at,
        effect,
        fixed,
        source,
    } = defect;
    let end = if *at == At::Receiver {
        "receivers"
    } else {
        "senders"
    };
    let text = format!(
        "Known defect of Linux {kernel} for {end}: {effect}. Linux {fixed} has the fix ({source})."
    );
    paragraph(&text, 2)
}

/// Returns the text on the watched connections: their program and their data.
fn watched_transfer(seen: &Transfer) -> String {
    let program = match (&seen.program, seen.pid) {
        (Some(name), Some(pid)) => format!("{} (process {pid})", printable_line(name)),
        (Some(name), None) => printable_line(name),
        _ => "A connection".to_owned(),
    };
    let way = if seen.direction == Direction::Download {
        "receives"
    } else {
        "sends"
    };
    let connections = match seen.streams {
        1 => format!("{} ↔ {}", seen.local, seen.remote),
        many => format!("{many} connections to {}", seen.remote),
    };
    let closed = text_if(seen.closed, "; closed since");
    let moved = format!(
        "{} in {}: {}{closed}",
        seen.bytes,
        rounded_time(seen.watched),
        seen.rate
    );
    heading_line(&format!("{program} {way}")) + &paragraph(&format!("{connections}: {moved}"), 2)
}

fn limit_text(diagnosis: &Diagnosis) -> String {
    let verdict = &diagnosis.verdict;
    let mut text = heading_line("Limit");
    text += &verdict_sentences(verdict);
    text += &ceiling_bars(verdict);
    text += &pair_table(&verdict.evidence, 4);
    for other in &verdict.others {
        let (kind, cause) = (other.kind.name(), json_name(other.cause));
        text += &paragraph(
            &format!(
                "For {} of the transfer's time: {kind} ({cause}), {}",
                other.share,
                limit_place(other.at)
            ),
            2,
        );
    }
    text += &paragraph(&where_time_went(verdict), 2);
    let few_looks = diagnosis.evidence.as_ref().and_then(Evidence::few_looks);
    text + &dim_paragraph(&verdict_basis(verdict, few_looks), 2)
}

/// Returns the uses of the time of the transfer that took most of it; nothing where it was not
/// booked.
fn where_time_went(verdict: &Verdict) -> String {
    const MAX_USES: usize = 4;
    let longest = verdict.where_time_went.iter().take(MAX_USES);
    let uses: Vec<String> = longest
        .map(|one| match one.used_for {
            TransferTimeUse::AfterTransfer => {
                format!("{} {}", one.used_for.text(), rounded_time(one.time))
            }
            used_for => format!("{} {:.0} %", used_for.text(), one.share.as_percent()),
        })
        .collect();
    format_if(!uses.is_empty(), || {
        format!("Where the time went: {}.", uses.join(", "))
    })
}

/// Returns the limit in one sentence and, if the next limit is close, that one in another.
pub(crate) fn verdict_sentences(verdict: &Verdict) -> String {
    let next = verdict
        .runner_up
        .as_ref()
        .and_then(runner_up_sentence)
        .map_text(|next| paragraph(&next, 2));
    bold_paragraph(&verdict.sentence, 2) + &next
}

fn runner_up_sentence(next: &RunnerUp) -> Option<String> {
    let name = limit_name(next.kind)?;
    match (next.bits_per_second, next.share) {
        (Some(rate), _) => Some(format!("{name} would be next, at {rate}.")),
        (None, Some(share)) => Some(format!(
            "{name} was the limit for about as long: {share} of the transfer's time."
        )),
        (None, None) => None,
    }
}

/// Returns the part that is a limit, with an article at the beginning of a sentence; `None` of an
/// unknown one.
pub(crate) const fn limit_name(kind: Limit) -> Option<&'static str> {
    Some(match kind {
        Limit::ReceiveWindow => "The receive window",
        Limit::ReceiverApplication => "The receiving program",
        Limit::SendBuffer => "The send buffer",
        Limit::SenderApplication => "The sending program",
        Limit::ApplicationWindow => "The program's own window",
        Limit::CongestionWindow => "The congestion window",
        Limit::Capacity => "The path's capacity",
        Limit::Loss => "Packet loss",
        Limit::Pacing => "The sender's pace",
        Limit::Cpu => "The processor",
        Limit::Mtu => "The size of the packets",
        Limit::Unknown => return None,
    })
}

/// Returns the ceilings of a verdict, the lowest first.
pub(crate) fn sorted_ceilings(verdict: &Verdict) -> Vec<(Limit, BitRate)> {
    let ceilings = verdict.ceilings.iter();
    let mut all: Vec<(Limit, BitRate)> = ceilings.map(|(kind, rate)| (*kind, *rate)).collect();
    all.sort_by_key(|(_, rate)| *rate);
    all
}

/// Returns a bar for every ceiling, the lowest first, the limit marked.
fn ceiling_bars(verdict: &Verdict) -> String {
    let ceilings = sorted_ceilings(verdict);
    let full = ceilings.last().map_or(0.0, |(_, rate)| rate.as_f64());
    let mut table = TextTable::new("|>|");
    for (kind, rate) in ceilings {
        let mark = text_if(kind == verdict.kind, " the limit");
        table.push_row(cells![
            kind.name(),
            at_most_a_terabit(rate),
            value_bar(rate.as_f64(), full, BAR) + mark,
        ]);
    }
    table.render(4)
}

/// Returns a ceiling; one above every network, as that of a window over loopback, without its
/// figure.
fn at_most_a_terabit(rate: BitRate) -> String {
    let terabit = BitRate::from_mbps(1_000_000);
    if rate > terabit {
        format!("above {terabit}")
    } else {
        rate.to_string()
    }
}

/// Returns the end from which the limit was seen, and the facts that the other end would add.
fn verdict_basis(verdict: &Verdict, few_looks: Option<u64>) -> String {
    let seen = match verdict.basis {
        Basis::Sender => "Seen from the sending end alone",
        Basis::Receiver => "Seen from the receiving end alone",
        Basis::BothEnds => "Seen from both ends",
        Basis::Capture => "Seen in the capture",
    };
    let held = match verdict.kind {
        Limit::Unknown => format!("{seen}."),
        _ => format!(
            "{seen}, confidence {}; {}.",
            confidence_percent(verdict.confidence),
            if few_looks == Some(1) {
                "there was one look at it".to_owned()
            } else {
                held_for(verdict.share)
            }
        ),
    };
    let more = verdict
        .other_end_would_show
        .as_ref()
        .map(|more| format!(" The other end would show: {more}."));
    held + &candidate_verdicts(verdict) + &more.unwrap_or_default()
}

/// Returns a confidence, which is never complete.
pub(crate) fn confidence_percent(confidence: Ratio) -> String {
    /// Above it nothing is distinguished.
    const MAX_PRINTED: f64 = 0.99;
    if confidence.get() > MAX_PRINTED {
        "over 99 %".to_owned()
    } else {
        confidence.to_string()
    }
}

/// Returns the share of the judged time in which a limit held, as words.
fn held_for(share: Ratio) -> String {
    /// From here on a share is printed as all of the time.
    const THROUGHOUT: f64 = 0.995;
    if share.get() >= THROUGHOUT {
        "this was the limit throughout".to_owned()
    } else {
        format!("it held for {share} of the judged time")
    }
}

/// Returns the other verdicts that the evidence allows, and what would show which is right; nothing
/// where there are none.
fn candidate_verdicts(verdict: &Verdict) -> String {
    let others: Vec<&str> = verdict
        .candidates
        .iter()
        .skip(1)
        .map(|candidate| candidate.name())
        .collect();
    if others.is_empty() {
        return String::new();
    }
    let which = verdict
        .would_distinguish
        .as_ref()
        .map(|what| format!("; {what} would show which"))
        .unwrap_or_default();
    format!(" It may as well be {}{which}.", others.join(" or "))
}

fn what_would_help(remedies: &[Remedy], present: BitRate) -> String {
    let mut text = heading_line("What would help");
    if remedies.is_empty() {
        return text + "  Nothing that follows from this.\n";
    }
    if let [only] = remedies
        && only.id == NOTHING_TO_CHANGE
    {
        return text + "  Nothing to change on the hosts: the link is full.\n";
    }
    for (index, remedy) in remedies.iter().enumerate() {
        text += &remedy_lines(index, remedy, present);
    }
    text
}

fn remedy_lines(index: usize, remedy: &Remedy, present: BitRate) -> String {
    let title = format!(
        "{} ({}){}{}",
        remedy.id,
        json_name(remedy.scope),
        remedy_gain(remedy, present),
        remedy.command_time.map_text(command_time_text)
    );
    let mut text = numbered_remedy(index, &title, remedy);
    for command in &remedy.commands.undo {
        text += &format!("     {}\n", dim_text(&format!("undo: {command}")));
    }
    for other in &remedy.commands.elsewhere {
        let commands = other.apply.join("; ");
        text += &dim_paragraph(&format!("on {}: {commands}", other.system.name()), 5);
    }
    text
}

/// Returns a remedy at length: its title, which begins with its name, its reason and its commands.
pub(super) fn numbered_remedy(index: usize, title: &str, remedy: &Remedy) -> String {
    // The number takes the place of the first line's indent.
    let mut text = paragraph(title, 5)
        .replacen("     ", &format!("  {}. ", index + 1), 1)
        .replacen(&remedy.id, &bold_text(&remedy.id), 1);
    text += &paragraph(&remedy_reason(remedy), 5);
    for command in &remedy.commands.apply {
        text += &format!("     {}\n", dim_text(command));
    }
    text
}

/// Returns the forecast of a remedy as the end of a clause; nothing without one.
pub(super) fn remedy_gain(remedy: &Remedy, present: BitRate) -> String {
    remedy
        .predicted
        .map_text(|forecast| forecast_gain(forecast, present))
}

/// Returns why a remedy should help, and its price: the round trips that it makes for everyone on
/// the link.
pub(crate) fn remedy_reason(remedy: &Remedy) -> String {
    let price = remedy.rtt.map_text(|rtt| match rtt.high {
        Some(high) if high <= rtt.low => format!(" Round trips stay at {}.", round_trip(rtt.low)),
        _ => format!(
            " Round trips under load: {}, for everyone on the link.",
            round_trips(rtt)
        ),
    });
    format!("{}{price}", remedy.why)
}

fn round_trips(forecast: RttForecast) -> String {
    match forecast.high {
        Some(high) => format!("{} to {}", round_trip(forecast.low), round_trip(high)),
        None => format!(
            "{} and as much more as the queue of the bottleneck holds",
            round_trip(forecast.low)
        ),
    }
}

/// Returns a forecast as
/// `: 941.5 Mbit/s predicted (332 Mbit/s to 941.5 Mbit/s), 2.9× the 324.7 Mbit/s measured`, where
/// `present` is the rate that was measured.
fn forecast_gain(forecast: Forecast, present: BitRate) -> String {
    let rate = forecast.bits_per_second;
    let times = format_if(present > BitRate::ZERO, || {
        format!(", {:.1}× the {present} measured", rate.relative_to(present))
    });
    let more = text_if(forecast.capacity_unknown, " or more");
    format!(
        ": {rate}{more} predicted{}{times}",
        forecast_interval(forecast)
    )
}

/// Returns the bounds of a forecast in brackets; nothing where they are close.
fn forecast_interval(forecast: Forecast) -> String {
    if forecast.capacity_unknown {
        format!(
            " (at least {}; the path's capacity is not known)",
            forecast.low
        )
    } else if forecast.high.as_f64() > WIDE * forecast.low.as_f64() {
        format!(" ({} to {})", forecast.low, forecast.high)
    } else {
        String::new()
    }
}

/// Returns the time of the whole command as `; the command 9.12 s → 8.3 s (1.1× as fast)`.
pub(crate) fn command_time_text(time: CommandTimeForecast) -> String {
    let faster =
        Ratio::from_quotient(time.measured.as_secs_f64(), time.predicted.as_secs_f64()).get();
    format!(
        "; the command {} → {} ({faster:.1}× as fast)",
        rounded_time(time.measured),
        rounded_time(time.predicted)
    )
}

/// Returns the commands of a remedy that change the end that is not `here`, without those that
/// change the load.
pub fn commands_elsewhere(remedy: &Remedy, here: At) -> Vec<&str> {
    let mark = if here == At::Sender {
        "# receiver"
    } else {
        "# sender"
    };
    let commands = remedy
        .commands
        .apply
        .iter()
        .filter(|command| !command.starts_with("fullpipe measure "));
    commands
        .filter_map(|command| command.strip_suffix(mark))
        .map(str::trim_end)
        .collect()
}

/// The same download by HTTP/1.1: what came, and what that says of HTTP/2.
pub fn http1_text(again: &Http1Download) -> String {
    let rates = [("HTTP/2", again.before), ("HTTP/1.1", again.measured)];
    let table = pair_table(rates, 2);
    let said = if again.is_faster() {
        "The same download is faster by HTTP/1.1, over the same path from the same server: the window of HTTP/2 held \
         it back."
            .to_owned()
    } else {
        format!(
            "The same download is no faster by HTTP/1.1, where the limit is {}: HTTP/2 did not hold it back alone.",
            again.verdict.kind.name()
        )
    };
    heading_line("By HTTP/1.1") + &table + &bold_paragraph(&said, 2)
}

/// A remedy that was carried out: predicted against measured, and whether it is still in place.
pub fn trial_text(trial: &Trial) -> String {
    let mut text = heading_line(&format!("With {}", trial.remedy));
    text += &trial_table(trial);
    let limit = trial.measurement.limit.as_ref();
    let now = limit.map_or("unknown", |verdict| verdict.kind.name());
    text += &bold_paragraph(&format!("The limit is now {now}."), 2);
    text + &match (&trial.not_undone, trial.kept) {
        (Some(why), _) => {
            failure_paragraph(&format!("The settings are not all as they were: {why}."), 2)
        }
        (None, true) => "  It was left in place.\n".to_owned(),
        (None, false) => format!("  {}\n", success_text("It was undone.")),
    }
}

/// Returns the rates before and with a remedy, and the round trips with it, next to the forecast.
fn trial_table(trial: &Trial) -> String {
    let mut table = TextTable::new("|>|");
    table.push_row(cells!["before", trial.before, ""]);
    if let Some(forecast) = trial.predicted {
        let (low, high) = (forecast.low, forecast.high);
        let bounds = if forecast.capacity_unknown {
            format!("at least {low}; the path's capacity was not known")
        } else {
            format!("{low} to {high}")
        };
        table.push_row(cells!["predicted", forecast.bits_per_second, bounds]);
    }
    table.push_row(cells!["measured", trial.measured, of_predicted(trial)]);
    if let Some((loaded, forecast)) = trial.measurement.rtt.loaded.zip(trial.predicted_rtt) {
        table.push_row(cells![
            "round trip under load",
            round_trip(loaded.median),
            format!("predicted: {}", round_trips(forecast)),
        ]);
    }
    table.render(2)
}

fn of_predicted(trial: &Trial) -> String {
    let Some(forecast) = trial.predicted else {
        return String::new();
    };
    if !forecast.capacity_unknown {
        let share = trial.measured.relative_to(forecast.bits_per_second) * 100.0;
        return format!("{share:.1} % of the prediction");
    }
    if trial.measured >= forecast.low {
        return "as predicted: no less".to_owned();
    }
    let share = trial.measured.relative_to(forecast.low) * 100.0;
    format!("{share:.1} % of the least that was predicted")
}

/// Returns the end of a command as `The command ended with code 0 after 3.21 s`.
pub fn command_end(end: &CommandEnd) -> String {
    let how = match (end.code, end.signal) {
        (Some(code), _) => format!("with code {code}"),
        (None, Some(signal)) => format!("by signal {signal}"),
        (None, None) => "in an unknown way".to_owned(),
    };
    format!(
        "\nThe command ended {how} after {}.\n",
        rounded_time(end.ran)
    )
}

const fn limit_place(at: At) -> &'static str {
    match at {
        At::Sender => "at the sender",
        At::Receiver => "at the receiver",
        At::Path => "on the path",
        At::Middlebox => "at a middlebox",
        At::None => "where is not known",
    }
}

/// Returns the name of a value in JSON.
pub(super) fn json_name(of: impl Serialize) -> String {
    serde_json::to_value(of)
        .ok()
        .and_then(|value| value.as_str().map(str::to_owned))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests;
