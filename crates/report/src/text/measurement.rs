use fullpipe_record::{
    Datagrams, DeviceReport, EndReport, Interval, Placement, Request, RpmConfidence, RpmReport,
    RttReport, RttStats, Steady, StorageUse, Summary, SureBound, TestEnd, UntilSure, Validity,
};

use super::capture::own_capture;
use super::diagnosis::verdict_sentences;
use super::prelude::*;

/// Smallest delay of this host's echo requests that is reported: every host has some.
const MIN_REPORTED_DELAY: Span = Span::from_millis(1);

/// Smallest round-trip time of an idle network: loopback has less, and the fastest network cards
/// have 10 µs or more with what the kernels of both hosts take.
const MIN_NETWORK_RTT: Span = Span::from_micros(20);

/// The head above [`interval_line`]s.
pub fn interval_head(request: &Request) -> String {
    let columns = match request.transport {
        Transport::Tcp => vec!["RTT", "cwnd", "retransmits"],
        Transport::Udp => vec!["RTT", "datagrams", "lost", "jitter"],
    };
    let columns: Vec<String> = columns.into_iter().map(str::to_owned).collect();
    dim_text(&interval_columns(request, None, "time", "rate", &columns))
}

/// Returns the line of an interval. Its round-trip time is that of the echo requests during the
/// load, or that of the first connection if they get no answer.
pub fn interval_line(request: &Request, interval: &Interval) -> String {
    let rtt = or_dash(interval.echo_rtt.or(interval.rtt).map(round_trip));
    let columns = match request.transport {
        Transport::Tcp => vec![rtt, or_dash(interval.cwnd), or_dash(interval.retransmits)],
        Transport::Udp => vec![
            rtt,
            or_dash(
                interval
                    .datagrams_sent
                    .or(interval.datagrams.map(|seen| seen.received)),
            ),
            or_dash(interval.datagrams.map(|seen| seen.lost)),
            or_dash(interval.datagrams.map(|seen| seen.jitter)),
        ],
    };
    let time = format!(
        "{:.1}–{:.1} s",
        interval.from.as_secs_f64(),
        interval.to.as_secs_f64()
    );
    let line = interval_columns(
        request,
        Some(interval.direction),
        &time,
        &interval.rate.to_string(),
        &columns,
    );
    if interval.omitted {
        dim_text(&format!("{line}  omitted"))
    } else {
        line
    }
}

/// Columns, behind the title that the user gave and, where data goes both ways, the way.
fn interval_columns(
    request: &Request,
    way: Option<Direction>,
    time: &str,
    rate: &str,
    columns: &[String],
) -> String {
    let title = request.title.as_ref().map_text(|title| format!("{title}:"));
    let way = match (request.direction, way) {
        (Direction::Both, way) => format!("  {:<4}", way.map_or("", direction_label)),
        _ => String::new(),
    };
    // Four columns are narrower than three: all must fit 80 together.
    let widths = if columns.len() > 3 {
        [8, 9, 6, 8]
    } else {
        [10, 12, 11, 0]
    };
    let columns: Vec<String> = columns
        .iter()
        .zip(widths)
        .map(|(column, width)| format!("  {column:>width$}"))
        .collect();
    format!("{title}{way}  {time:>11}  {rate:>14}{}", columns.concat())
}

fn direction_label(way: Direction) -> &'static str {
    match way {
        Direction::Upload => "up",
        Direction::Download => "down",
        Direction::Both => "both",
    }
}

/// A measurement's result: rates, times, the limit, and all of it in one line.
pub fn measurement_text(measured: &Measurement) -> String {
    let mut text = measurement_figures(measured);
    if let Some(verdict) = &measured.limit {
        text += &heading_line("Limit");
        text += &verdict_sentences(verdict);
    }
    if let Some(capture) = &measured.capture {
        text += &own_capture(capture);
    }
    if let Some(output) = &measured.remote.output {
        text += &heading_line("The server's own words");
        text += &quoted_output(output);
    }
    text + "\n" + &paragraph(&measurement_status(measured), 0)
}

/// Returns another program's output, indented, with control characters escaped.
fn quoted_output(output: &str) -> String {
    output
        .lines()
        .flat_map(|text| ["  ".to_owned(), printable_line(text), "\n".to_owned()])
        .collect()
}

/// Rates and times of a measurement, and what is wrong with it.
pub fn measurement_figures(measured: &Measurement) -> String {
    let mut text = format!("\n{}", measurement_totals(measured));
    text += &round_trips(&measured.rtt);
    if let Some(rpm) = &measured.rtt.rpm {
        text += &paragraph(&responsiveness_text(rpm), 2);
    }
    for (whose, end) in [("this", &measured.local), ("the other", &measured.remote)] {
        if let Some(line) = held_back(whose, end) {
            text += &failure_paragraph(&line, 2);
        }
    }
    for line in data_handling(measured) {
        text += &dim_paragraph(&line, 2);
    }
    if let Some(ended) = &measured.until_sure {
        text += &paragraph(&what_ended(ended), 2);
    }
    if let Some(why) = &measured.broken_off {
        text += &failure_paragraph(&format!("Broken off: {why}"), 2);
    }
    for warning in &measured.warnings {
        text += &failure_paragraph(&format!("Warning: {warning}"), 2);
    }
    text + &not_valid(&measured.validity)
}

/// Returns how fast answers came under load, and how good that is.
fn responsiveness_text(rpm: &RpmReport) -> String {
    let band = match rpm.per_minute {
        ..300 => "poor",
        300..1000 => "fair",
        1000..6000 => "good",
        _ => "excellent",
    };
    let confidence = match rpm.confidence {
        RpmConfidence::Low => "low: the load was stable too late",
        RpmConfidence::Medium => "medium: round trips still varied",
        RpmConfidence::High => "high",
    };
    format!(
        "Responsiveness {} RPM (round trips a minute under load), {band}: an answer takes {} on busy connections; on \
         new ones {}, after {} for TCP and {} for TLS. {} at {}; confidence {confidence}.",
        separate_thousands(rpm.per_minute),
        round_trip(rpm.http_loaded),
        round_trip(rpm.http),
        round_trip(rpm.tcp),
        round_trip(rpm.tls),
        count_noun(rpm.connections, "connection"),
        rpm.goodput,
    )
}

/// Returns what ended a test that was to end once its result is sure, what that saved, and what only
/// more time would show.
fn what_ended(ended: &UntilSure) -> String {
    let SureBound { confidence, rate } = ended.bound;
    let asked = format!("{} and ± {rate}", confidence.get());
    if ended.ended_by == TestEnd::Other {
        return format!("The result did not become sure to {asked} while data flowed.");
    }
    let interval = ended.rate.map_or_else(String::new, |[low, high]| {
        format!("; the steady rate is {low} to {high} at 95 %")
    });
    let rare = ended.loss_below.map_or_else(String::new, |share| {
        format!("losses of less than {share} of the segments, ")
    });
    format!(
        "Ended after {}, as the result was sure to {asked} by the figures of this end{interval}. That saved {} and {}.          Only more time shows {rare}a token bucket or a buffer of more than {}, and a rate that changes.",
        rounded_time(ended.elapsed),
        rounded_time(ended.saved_time),
        ended.saved_bytes,
        ended.passed,
    )
}

/// Returns the reasons why a result may not be judged; nothing of one that may.
pub fn not_valid(validity: &Validity) -> String {
    let reasons = validity.broken.iter();
    reasons
        .map(|reason| failure_paragraph(&format!("Not valid: {reason}"), 2))
        .collect()
}

/// Returns the result of one of many runs in one line:
/// `2026-11-28T16:33:05+01:00  323 Mbit/s, RTT 100 ms idle …`, which began at the local time `at`;
/// and why it may not be judged.
pub fn measurement_line(measured: &Measurement, at: &str) -> String {
    let reasons = measured
        .validity
        .broken
        .iter()
        .map(|why| format!("not valid: {why}"));
    format!(
        "{at}  {}\n",
        std::iter::once(measurement_status(measured))
            .chain(reasons)
            .collect::<Vec<_>>()
            .join("; ")
    )
}

/// The status line of a measurement:
/// `323 Mbit/s, RTT 100 ms idle and 101 ms loaded, limited by send-buffer`.
fn measurement_status(measured: &Measurement) -> String {
    let rates = match &measured.reverse {
        Some(download) => format!("{} up and {} down", measured.summary.rate, download.rate),
        None if has_unknown_arrival(&measured.summary) => "an unknown rate".to_owned(),
        None => measured.summary.rate.to_string(),
    };
    let [idle, loaded] = [measured.rtt.idle, measured.rtt.loaded]
        .map(|stats| text_or(stats.map(|stats| round_trip(stats.median)), "unknown"));
    let round_trips = format!("RTT {idle} idle and {loaded} loaded");
    match (measured.request.transport, &measured.limit) {
        (Transport::Udp, _) => format!("{rates} of UDP, {round_trips}"),
        (Transport::Tcp, limit) => {
            let limit = limit
                .as_ref()
                .map(|verdict| format!(", limited by {}", verdict.kind.name()));
            format!("{rates}, {round_trips}{}", limit.unwrap_or_default())
        }
    }
}

fn measurement_totals(measured: &Measurement) -> String {
    let Some(download) = &measured.reverse else {
        return totals_of(measured.request.direction, &measured.summary);
    };
    totals_of(Direction::Upload, &measured.summary) + &totals_of(Direction::Download, download)
}

fn totals_of(way: Direction, summary: &Summary) -> String {
    let (
        Summary {
            sent,
            received,
            rate,
            duration,
            ..
        },
        is_upload,
    ) = (summary, way != Direction::Download);
    // Each end counts from a moment of its own: what was under way then was sent before.
    let is_more = received > sent;
    let mut text = match is_upload {
        true if has_unknown_arrival(summary) => {
            format!("sent {sent} in {duration}; what arrived is not known")
        }
        true if is_more => format!("sent {sent} while {received} arrived in {duration}: {rate}"),
        true => format!("sent {sent}, of which {received} arrived in {duration}: {rate}"),
        // Of a test that broke off, only the server knows it.
        false if *sent == ByteCount::ZERO => format!("received {received} in {duration}: {rate}"),
        false if is_more => {
            format!("received {received} while {sent} were sent in {duration}: {rate}")
        }
        false => format!("received {received} of {sent} sent in {duration}: {rate}"),
    };
    if let Some(count) = summary.retransmits {
        text += &format!(", {}", count_noun(count, "retransmission"));
    }
    text = paragraph(&text, 2);
    if let Some(seen) = &summary.datagrams {
        text += &paragraph(&datagram_counts(seen), 2);
    }
    if let Some(steady) = summary.steady {
        text += &paragraph(&steady_line(steady), 2);
    }
    text
}

/// Returns true if no receiver has reported which of the sent datagrams arrived: the test broke
/// off.
fn has_unknown_arrival(summary: &Summary) -> bool {
    summary.datagrams_sent.is_some() && summary.datagrams.is_none()
}

/// Returns the counts of datagrams; zeros are left out, except for losses.
fn datagram_counts(seen: &Datagrams) -> String {
    let share = Ratio::from_quotient(seen.lost as f64, (seen.received + seen.lost).max(1) as f64);
    let arrived = count_noun(seen.received, "datagram");
    let mut text = format!(
        "{arrived} arrived, {} lost ({:.3} %)",
        seen.lost,
        share.as_percent()
    );
    if let Some(here) = seen.dropped_here.filter(|&here| here > 0) {
        // It may have dropped more, behind the last that arrived.
        let share = if here >= seen.lost {
            "all".to_owned()
        } else {
            here.to_string()
        };
        text += &format!(
            ", {share} of these dropped by the receiving host itself for want of socket buffer"
        );
    }
    text += &nonzero_count(seen.duplicated, "duplicated");
    if seen.reordered > 0 {
        text += &format!(
            ", {} reordered by up to {}",
            seen.reordered, seen.reordering_extent
        );
    }
    text += &nonzero_count(seen.late, "too late to be distinguished");
    text + &format!(", jitter {}", seen.jitter)
}

fn steady_line(steady: Steady) -> String {
    format!(
        "ramp {} at {}, then steady {} at {}",
        rounded_time(steady.ramp),
        steady.ramp_rate,
        rounded_time(steady.duration),
        steady.rate
    )
}

/// Returns a round-trip time with two significant digits below 100 µs and three above: more are
/// noise.
pub(crate) fn round_trip(rtt: Span) -> String {
    let nanos = rtt.as_nanos();
    let digits = if nanos < 100_000 { 2 } else { 3 };
    let step = 10_u64.pow((nanos.max(1).ilog10() + 1).saturating_sub(digits));
    Span::from_nanos(nanos.saturating_add(step / 2) / step * step).to_string()
}

/// Returns a count with its thousands separated: `3,277,550`.
fn separate_thousands(count: u64) -> String {
    let digits = count.to_string();
    let groups: Vec<&str> = digits
        .as_bytes()
        .rchunks(3)
        .rev()
        .filter_map(|group| str::from_utf8(group).ok())
        .collect();
    groups.join(",")
}

/// Returns a time to a hundredth of a second, because smaller figures are not certain.
pub(crate) fn rounded_time(span: Span) -> String {
    format!("{:.2} s", span.as_secs_f64())
}

/// Returns the line about round trips:
/// `RTT idle 50.1 ms, under load 93.4 ms (p99 99 ms): +43.3 ms, 1.9 ×; …`.
fn round_trips(rtt: &RttReport) -> String {
    let mut text = match (rtt.idle, rtt.loaded) {
        (None, None) => return String::new(),
        (Some(idle), None) => format!("RTT idle {}", round_trip(idle.median)),
        (None, Some(loaded)) => format!("RTT {}", under_load(loaded)),
        (Some(idle), Some(loaded)) => format!(
            "RTT idle {}, {}",
            round_trip(idle.median),
            under_load(loaded)
        ),
    };
    if let Some(inflation) = rtt
        .inflation
        .filter(|inflation| inflation.added > Span::ZERO)
    {
        text += &format!(
            ": +{}, {:.1} ×",
            round_trip(inflation.added),
            inflation.ratio.get()
        );
    }
    // Within a host there is no network that it could speak of.
    let is_of_a_network = rtt.idle.is_none_or(|idle| idle.median >= MIN_NETWORK_RTT);
    let has_own_line = rtt.rpm.is_some();
    if let Some(responsiveness) = rtt
        .responsiveness
        .filter(|_| is_of_a_network && !has_own_line)
    {
        text += &format!("; {} RPM", separate_thousands(responsiveness.per_minute));
    }
    let during = rtt
        .echoes
        .as_ref()
        .map(|echoes| echoes.during)
        .unwrap_or_default();
    if during.lost > 0 {
        text += &format!("; {} of {} echo requests lost", during.lost, during.sent);
    }
    if let Some(host) = during.host.filter(|host| host.median >= MIN_REPORTED_DELAY) {
        text += &format!("; this host would have added {}", round_trip(host.median));
    }
    paragraph(&text, 2)
}

fn under_load(loaded: RttStats) -> String {
    format!(
        "under load {} (p99 {})",
        round_trip(loaded.median),
        round_trip(loaded.p99)
    )
}

/// Returns a clause on how an end's own machine limited the data: `At this end, tbf of eth0, at 40
/// Mbit/s, dropped 12 packets`.
fn held_back(whose: &str, end: &EndReport) -> Option<String> {
    let mut causes: Vec<String> = end.device.iter().flat_map(device_drops).collect();
    let throttled = end.processors.last().and_then(|sample| sample.throttled);
    if let Some(throttled) = throttled.filter(|throttled| *throttled > Span::ZERO) {
        causes.push(format!(
            "the quota of a control group kept the program from running for {}",
            rounded_time(throttled)
        ));
    }
    (!causes.is_empty()).then(|| format!("At {whose} end, {}", causes.join("; ")))
}

/// Returns what a device and its queueing disciplines dropped, a clause each.
fn device_drops(device: &DeviceReport) -> Vec<String> {
    let name = printable_line(&device.name);
    // What one drops, those around it may count too.
    let queue = device.qdiscs.iter().max_by_key(|queue| queue.dropped);
    let queue = queue.filter(|queue| queue.dropped > 0).map(|queue| {
        let rate = queue.rate.map_text(|rate| format!(", at {rate},"));
        format!(
            "{} of {name}{rate} dropped {}",
            printable_line(&queue.kind),
            count_noun(queue.dropped, "packet")
        )
    });
    let ways = [
        (device.dropped_out, "out"),
        (device.dropped_in.saturating_add(device.filtered_in), "in"),
    ];
    let dropped = ways.into_iter().filter(|(dropped, _)| *dropped > 0);
    let dropped = dropped.map(|(dropped, way)| {
        let packets = count_noun(dropped, "packet");
        format!("{name} dropped {packets} on the way {way}")
    });
    queue.into_iter().chain(dropped).collect()
}

/// Returns sentences on the handling of the data at both ends, where programs that use it do more.
fn data_handling(measured: &Measurement) -> Vec<String> {
    let here = measured
        .local
        .storage
        .map(|used| format!("This end {}", storage_sentence(used)));
    let there = measured
        .remote
        .storage
        .map(|used| format!("The other end {}", storage_sentence(used)));
    let receives_here = measured.request.direction == Direction::Download;
    let kept = if receives_here {
        measured.local.storage
    } else {
        measured.remote.storage
    };
    // Another server may not know what it was asked.
    let is_known = receives_here || measured.peer.speaks_fullpipe;
    let discards =
        measured.request.discard && measured.request.transport == Transport::Tcp && is_known;
    let placed = measured.local.placement.as_ref().map(placement_sentence);
    let discards = (discards && kept.is_none())
        .then(|| "The receiver discards data in the kernel; use --rx-copy to copy it".to_owned());
    here.into_iter()
        .chain(there)
        .chain(placed)
        .chain(discards)
        .collect()
}

/// `The data threads of this end run on processors 4 5 6 7, near eth0 (NUMA node 1)`.
fn placement_sentence(placement: &Placement) -> String {
    let device = placement.device.as_deref().unwrap_or("the network device");
    match (&placement.why_not, placement.processors.as_slice()) {
        (Some(why), _) => {
            format!("The data threads of this end run anywhere, not near {device}: {why}")
        }
        (None, processors) => {
            let numbers: Vec<String> = processors.iter().map(ToString::to_string).collect();
            let node = placement
                .node
                .map_text(|node| format!(" (NUMA node {node})"));
            format!(
                "The data threads of this end run on processors {}, near {device}{node}",
                numbers.join(" ")
            )
        }
    }
}

/// `wrote 1 GiB to a file: 0.52 s in writes, and 0.31 s until all was on the disk`.
fn storage_sentence(used: StorageUse) -> String {
    let (bytes, busy) = (used.bytes, rounded_time(used.busy));
    if used.writes {
        format!(
            "wrote {bytes} to a file: {busy} in writes, and {} until all was on the disk",
            rounded_time(used.sync)
        )
    } else {
        format!("read {bytes} from a file: {busy} in reads")
    }
}

/// Returns a share in percent, to a tenth.
pub(crate) fn tenths_of_percent(share: Ratio) -> String {
    format!("{:.1} %", share.as_percent())
}

/// `97 %`, or a dash.
pub(crate) fn accuracy_percent(ratio: Option<Ratio>) -> String {
    or_dash(ratio.map(tenths_of_percent))
}

#[cfg(test)]
mod tests;
