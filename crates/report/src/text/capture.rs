use fullpipe_record::{
    AdvertisedWindow, BurstRate, CapturePoint, CaptureReport, CapturedTransfer, FlowEnd,
    FlowReport, OwnCapture, RedactedFile, RoundTrips, StallTimes,
};

use super::course::stream_over_time;
use super::diagnosis::{confidence_percent, diagnosis_text, verdict_sentences};
use super::prelude::*;
use super::two_captures::capture_comparison;

/// The connections of a capture: a line each for the `top` with most data, and the one with most at
/// length.
pub fn capture_text(report: &CaptureReport, top: usize) -> String {
    let bytes: ByteCount = report.flows.iter().map(FlowReport::total_bytes).sum();
    let (name, time) = (printable_line(&report.name), flow_duration(report.duration));
    let head = format!(
        "{name}: {}, {bytes} of data in {time}",
        count_noun(report.flows.len(), "connection")
    );
    let mut text = heading_line(&head);
    for note in &report.notes {
        text += &dim_paragraph(note, 2);
    }
    let mut flows: Vec<&FlowReport> = report.flows.iter().collect();
    flows.sort_by_cached_key(|flow| (std::cmp::Reverse(flow.total_bytes()), flow.number));
    if !flows.is_empty() && top > 0 {
        text += "\n";
        text += &flow_list(&flows[..flows.len().min(top)]);
    }
    if flows.len() > top && top > 0 {
        let rest = format!("{} with less data are left out (--top).", flows.len() - top);
        text += &dim_paragraph(&rest, 2);
    }
    let explained = report
        .transfers
        .first()
        .and_then(|transfer| transfer.flows.first());
    let largest = explained.and_then(|number| flows.iter().find(|flow| flow.number == *number));
    if let Some(largest) = largest.or(flows.first()) {
        text += &capture_comparison(report, largest.number);
        text += &flow_text(largest, &report.transfers);
    }
    text
}

/// Returns the figures of the capture of a test, and the limit that it shows next to that of the
/// test.
pub fn own_capture(capture: &OwnCapture) -> String {
    let mut text = heading_line("Capture");
    let held = match capture.packets {
        0 => "No packet of the transfer passed the device: there is no file".to_owned(),
        packets => format!(
            "{}: {}",
            printable_line(&capture.name),
            count_noun(packets, "packet")
        ),
    };
    let dropped = nonzero_count(capture.dropped, "dropped by the kernel");
    let left_out = nonzero_count(capture.left_out, "beyond the size of the file");
    text += &dim_paragraph(&format!("{held}{dropped}{left_out}."), 2);
    let Some(limit) = &capture.limit else {
        return text;
    };
    text += &verdict_sentences(limit);
    text + &paragraph(
        &format!(
            "{}; confidence {}.",
            agreement_clause(capture),
            confidence_percent(limit.confidence)
        ),
        2,
    )
}

/// Returns a clause that says if a capture and the measurement show the same limit.
pub(super) fn agreement_clause(capture: &OwnCapture) -> &'static str {
    match capture.agrees {
        Some(true) => "The packets and the kernel's figures show the same limit",
        Some(false) => "The packets show another limit than the kernel's figures",
        None => "One of both views names no limit",
    }
}

/// Returns a paragraph on the content of a capture that was written anew.
pub fn redaction_text(file: &RedactedFile) -> String {
    let left_out = match file.left_out {
        0 => "nothing was left out".to_owned(),
        count => format!("left out: {}", count_noun(count, "other packet")),
    };
    let headers = count_noun(file.segments, "TCP header");
    let text = format!(
        "{}: {headers} with other addresses; {left_out}.",
        printable_line(&file.name)
    );
    heading_line("Redacted") + &paragraph(&text, 2)
}

/// The only connection of a capture at length; `None` without any.
pub fn one_flow(report: &CaptureReport) -> Option<String> {
    let only = report.flows.first()?;
    Some(capture_comparison(report, only.number) + &flow_text(only, &report.transfers))
}

fn flow_list(flows: &[&FlowReport]) -> String {
    let mut table = TextTable::new(">no|>data|>Mbit/s|>again|");
    for flow in flows {
        let [sender, receiver] = by_direction(flow);
        table.push_row(cells![
            flow.number,
            sender.moved_bytes(),
            format!("{:.3}", sender.rate.as_mbps()),
            sender.retransmitted_packets,
            format!("{} > {}", sender.address, receiver.address)
        ]);
    }
    table.render(2)
}

/// A connection at length, with the limit of its transfer if that is one of `transfers`.
fn flow_text(flow: &FlowReport, transfers: &[CapturedTransfer]) -> String {
    let [sender, receiver] = by_direction(flow);
    let head = format!(
        "Connection {}: {} sends to {}",
        flow.number, sender.address, receiver.address
    );
    let mut text = heading_line(&head);
    text += &pair_table(flow_rows(flow, sender, receiver), 2);
    let own = transfers
        .iter()
        .find(|transfer| transfer.flows.contains(&flow.number));
    text + &own.map_text(|transfer| course_of(flow, transfer) + &transfer_limit(transfer))
}

/// Returns the course of a connection, whose stream is its place among those of the transfer.
fn course_of(flow: &FlowReport, transfer: &CapturedTransfer) -> String {
    let place = transfer
        .flows
        .iter()
        .position(|number| *number == flow.number);
    let (Some(stream), Some(evidence)) = (place, &transfer.diagnosis.evidence) else {
        return String::new();
    };
    let own = evidence
        .sender_samples
        .iter()
        .filter(|sample| usize::from(sample.stream) == stream);
    stream_over_time(&own.collect::<Vec<_>>())
}

/// Returns the limit of a transfer, and what would help.
fn transfer_limit(transfer: &CapturedTransfer) -> String {
    let numbers: Vec<String> = transfer.flows.iter().map(u64::to_string).collect();
    let together = match numbers.len() {
        1 => String::new(),
        _ => dim_paragraph(
            &format!("Judged together: connections {}.", numbers.join(", ")),
            2,
        ),
    };
    together + &diagnosis_text(&transfer.diagnosis, BitRate::ZERO)
}

fn flow_rows(
    flow: &FlowReport,
    sender: &FlowEnd,
    receiver: &FlowEnd,
) -> Vec<(&'static str, String)> {
    let mut rows = vec![
        ("captured", capture_point(flow, sender, receiver)),
        ("data", sent_data(flow, sender)),
    ];
    rows.extend(sender.rtt.map(|rtt| ("RTT", flow_rtt(rtt))));
    rows.extend(sender.bursts.map(|bursts| ("bursts", burst_rate(bursts))));
    let window = receiver.window;
    rows.extend(window.map(|window| ("window", advertised_window(window))));
    rows.extend(stalls(&sender.stalls).map(|text| ("sent nothing", text)));
    if sender.packets > 0 && receiver.packets > 0 {
        let flight = format!("{} at most, as seen from here", sender.flight);
        rows.push(("in flight", flight));
    }
    if sender.packets > 0 {
        let packets = count_noun(sender.retransmitted_packets, "packet");
        let again = format!("{packets}, {}", sender.retransmitted_bytes);
        rows.push(("retransmitted", again));
    }
    if sender.mss.or(receiver.mss).is_none() && sender.data_packets > 0 {
        let size = sender.segment_size.get();
        let text = format!("of {size} B, as the packets show it: no SYN does");
        rows.push(("segments", text));
    }
    rows.extend(absent_data_rows(sender));
    rows.extend(header_rows(flow, sender, receiver));
    rows
}

fn flow_rtt(rtt: RoundTrips) -> String {
    let [least, median, p90, most] = [rtt.least, rtt.median, rtt.p90, rtt.most].map(round_trip);
    format!("{least} least, {median} median, {p90} for nine of ten, {most} most")
}

fn burst_rate(bursts: BurstRate) -> String {
    let share = bursts.share.as_percent();
    format!(
        "pass the path at {} ({share:.0} % of the data)",
        bursts.rate
    )
}

fn advertised_window(window: AdvertisedWindow) -> String {
    let closed = match window.zero {
        0 => String::new(),
        count => format!(", closed in {}", count_noun(count, "packet")),
    };
    if window.is_unscaled {
        return format!("of a scale that no SYN shows{closed}");
    }
    let AdvertisedWindow {
        settled,
        first,
        most,
        ..
    } = window;
    let share = window.settled_share.as_percent();
    format!(
        "settled at {settled} ({share:.0} % of the later half), {first} first, {most} most{closed}"
    )
}

fn header_rows(
    flow: &FlowReport,
    sender: &FlowEnd,
    receiver: &FlowEnd,
) -> impl Iterator<Item = (&'static str, String)> {
    let (sent, received) = (tcp_options(sender), tcp_options(receiver));
    let options = format!("sender: {sent}; receiver: {received}");
    let tunnels = format!("add {} B to each packet", flow.overhead.get());
    let has_tunnels = flow.overhead > ByteCount::ZERO;
    let options = flow.has_handshake.then_some(("options", options));
    let tunnels = has_tunnels.then_some(("tunnels", tunnels));
    options.into_iter().chain(tunnels)
}

/// Returns the rows on data of the sender that came late, was not captured, or never came.
fn absent_data_rows(sender: &FlowEnd) -> Vec<(&'static str, String)> {
    let mut rows = Vec::new();
    if sender.late_packets > 0 {
        let late = sender.late_packets - sender.reordered_packets;
        rows.push((
            "late",
            format!(
                "{late} after a loss before this point, {} reordered",
                sender.reordered_packets
            ),
        ));
    }
    if sender.missing_bytes > ByteCount::ZERO && sender.packets > 0 {
        let missing = sender.missing_bytes;
        rows.push((
            "not captured",
            format!("{missing} that arrived: the capture lacks them, not the receiver"),
        ));
    }
    if sender.unseen > ByteCount::ZERO {
        rows.push((
            "never came",
            format!("{} that the sender had sent by then", sender.unseen),
        ));
    }
    rows
}

/// Returns the times in which an end sent nothing; `None` where each is below a tenth of a second.
fn stalls(times: &StallTimes) -> Option<String> {
    const MIN_SHOWN: Span = Span::from_millis(100);
    let timeouts = format!(
        "before {} by timeout",
        count_noun(times.timeout_count, "retransmission")
    );
    let stalls = [
        (times.timeouts, timeouts.as_str()),
        (times.closed_window, "while the window was closed"),
        (times.before_data, "before its first data"),
        (times.no_data, "with nothing to send"),
        (times.after_data, "after its last data"),
    ];
    let shown = stalls.into_iter().filter(|(time, _)| *time >= MIN_SHOWN);
    let texts: Vec<String> = shown
        .map(|(time, text)| format!("{} {text}", flow_duration(time)))
        .collect();
    (!texts.is_empty()).then(|| texts.join(", "))
}

fn sent_data(flow: &FlowReport, sender: &FlowEnd) -> String {
    let (moved, rate, time) = (
        sender.moved_bytes(),
        sender.rate,
        flow_duration(flow.duration),
    );
    match sender.packets {
        0 => format!("{moved} that were acknowledged, {rate} in {time}"),
        _ => format!("{moved} in {}, {rate} in {time}", packets_with_data(sender)),
    }
}

/// Returns the number of packets with data, and that of the segments in them where offloads of a
/// host joined several.
fn packets_with_data(sender: &FlowEnd) -> String {
    let packets = count_noun(sender.data_packets, "packet");
    let segments = sender
        .bytes
        .get()
        .div_ceil(sender.segment_size.get().max(1));
    if sender.largest > sender.segment_size && segments > sender.data_packets {
        format!("{packets}, which offloads made of {segments} segments")
    } else {
        packets
    }
}

fn capture_point(flow: &FlowReport, sender: &FlowEnd, receiver: &FlowEnd) -> String {
    let sender_is_first = flow.sender_index() == 0;
    let place = match (flow.point, sender_is_first) {
        (Some(CapturePoint::First), true) | (Some(CapturePoint::Second), false) => "at the sender",
        (Some(CapturePoint::First), false) | (Some(CapturePoint::Second), true) => {
            "at the receiver"
        }
        (Some(CapturePoint::Between), _) => "between the ends",
        (None, _) => "at a place that the packets do not show",
    };
    let since = if flow.has_handshake {
        "from the first SYN on"
    } else {
        "from the middle on"
    };
    let only = match (sender.packets, receiver.packets) {
        (_, 0) => ", the sender's packets alone",
        (0, _) => ", the receiver's packets alone",
        _ => "",
    };
    format!("{place}, {since}{only}")
}

fn tcp_options(end: &FlowEnd) -> String {
    if end.syns == 0 {
        return "not captured".to_owned();
    }
    let mut all = Vec::new();
    all.extend(end.mss.map(|mss| format!("MSS {}", mss.get())));
    let is_cut = end.syn.is_some_and(|syn| syn.options_cut);
    let no_scale = (!is_cut).then(|| "no scale".to_owned());
    all.extend(
        end.window_scale
            .map(|scale| format!("scale {scale}"))
            .or(no_scale),
    );
    all.extend(end.sack_permitted.then(|| "SACK".to_owned()));
    all.extend(end.timestamps.then(|| "timestamps".to_owned()));
    all.extend(is_cut.then(|| "the rest was cut off".to_owned()));
    all.join(", ")
}

/// Returns the end that sent more data, and the other.
fn by_direction(flow: &FlowReport) -> [&FlowEnd; 2] {
    let sender = flow.sender_index();
    [&flow.ends[sender], &flow.ends[1 - sender]]
}

fn flow_duration(span: Span) -> String {
    if span < Span::from_secs(1) {
        round_trip(span)
    } else {
        format!("{:.1} s", span.as_secs_f64())
    }
}

#[cfg(test)]
mod tests;
