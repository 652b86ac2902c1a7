use fullpipe_record::{
    CapturePoint, CaptureReport, CapturedTransfer, FlowEnd, FlowReport, OwnCapture, RedactedFile,
    StallTimes,
};
use fullpipe_units::{BitRate, ByteCount, Span, count_noun, printable_line};

use super::course::stream_over_time;
use super::diagnosis::{confidence_percent, diagnosis_text, verdict_sentences};
use super::measurement::round_trip;
use super::style::{TextStyle, heading_line, paragraph};
use super::table::ColumnAlignment::{Left, Right};
use super::table::{TextTable, pair_table};
use super::two_captures::capture_comparison;

/// The connections of a capture: a line each for the `top` with most data, and the one with most at
/// length.
pub fn capture_text(report: &CaptureReport, top: usize, style: TextStyle) -> String {
    let bytes: ByteCount = report.flows.iter().map(FlowReport::total_bytes).sum();
    let (name, time) = (printable_line(&report.name), flow_duration(report.duration));
    let head = format!(
        "{name}: {}, {bytes} of data in {time}",
        count_noun(report.flows.len(), "connection")
    );
    let mut text = heading_line(style, &head);
    for note in &report.notes {
        text += &style.dim_paragraph(note, 2);
    }
    let mut flows: Vec<&FlowReport> = report.flows.iter().collect();
    flows.sort_by_cached_key(|flow| (std::cmp::Reverse(flow.total_bytes()), flow.number));
    if !flows.is_empty() && top > 0 {
        text += "\n";
        text += &flow_list(&flows[..flows.len().min(top)], style);
    }
    if flows.len() > top && top > 0 {
        let rest = format!("{} with less data are left out (--top).", flows.len() - top);
        text += &style.dim_paragraph(&rest, 2);
    }
    let explained = report
        .transfers
        .first()
        .and_then(|transfer| transfer.flows.first());
    let largest = explained.and_then(|number| flows.iter().find(|flow| flow.number == *number));
    if let Some(largest) = largest.or(flows.first()) {
        text += &capture_comparison(report, largest.number, style);
        text += &flow_text(largest, &report.transfers, style);
    }
    text
}

/// Returns the figures of the capture of a test, and the limit that it shows next to that of the
/// test.
pub fn own_capture(capture: &OwnCapture, style: TextStyle) -> String {
    let mut text = heading_line(style, "Capture");
    let mut held = match capture.packets {
        0 => "No packet of the transfer passed the device: there is no file".to_owned(),
        packets => format!(
            "{}: {}",
            printable_line(&capture.name),
            count_noun(packets, "packet")
        ),
    };
    for (count, what) in [
        (capture.dropped, "dropped by the kernel"),
        (capture.left_out, "beyond the size of the file"),
    ] {
        if count > 0 {
            held += &format!(", {count} {what}");
        }
    }
    text += &style.dim_paragraph(&(held + "."), 2);
    let Some(limit) = &capture.limit else {
        return text;
    };
    text += &verdict_sentences(limit, style);
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
pub fn redaction_text(file: &RedactedFile, style: TextStyle) -> String {
    let left_out = match file.left_out {
        0 => "nothing was left out".to_owned(),
        count => format!("left out: {}", count_noun(count, "other packet")),
    };
    let headers = count_noun(file.segments, "TCP header");
    let text = format!(
        "{}: {headers} with other addresses; {left_out}.",
        printable_line(&file.name)
    );
    heading_line(style, "Redacted") + &paragraph(&text, 2)
}

/// The only connection of a capture at length; `None` without any.
pub fn one_flow(report: &CaptureReport, style: TextStyle) -> Option<String> {
    let only = report.flows.first()?;
    Some(
        capture_comparison(report, only.number, style) + &flow_text(only, &report.transfers, style),
    )
}

fn flow_list(flows: &[&FlowReport], style: TextStyle) -> String {
    let heads = [
        ("no", Right),
        ("data", Right),
        ("Mbit/s", Right),
        ("again", Right),
    ];
    let mut table = TextTable::new(&[&heads[..], &[("", Left)]].concat());
    for flow in flows {
        let [sender, receiver] = by_direction(flow);
        table.push_row([
            flow.number.to_string(),
            sender.moved_bytes().to_string(),
            format!("{:.3}", sender.rate.as_mbps()),
            sender.retransmitted_packets.to_string(),
            format!("{} > {}", sender.address, receiver.address),
        ]);
    }
    table.render(2, |head| style.dim(head))
}

/// A connection at length, with the limit of its transfer if that is one of `transfers`.
fn flow_text(flow: &FlowReport, transfers: &[CapturedTransfer], style: TextStyle) -> String {
    let [sender, receiver] = by_direction(flow);
    let head = format!(
        "Connection {}: {} sends to {}",
        flow.number, sender.address, receiver.address
    );
    let mut text = heading_line(style, &head);
    text += &pair_table(flow_rows(flow, sender, receiver), 2);
    let own = transfers
        .iter()
        .find(|transfer| transfer.flows.contains(&flow.number));
    text + &own.map_or_else(String::new, |transfer| {
        course_of(flow, transfer, style) + &transfer_limit(transfer, style)
    })
}

/// Returns the course of a connection, whose stream is its place among those of the transfer.
fn course_of(flow: &FlowReport, transfer: &CapturedTransfer, style: TextStyle) -> String {
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
    stream_over_time(&own.collect::<Vec<_>>(), style)
}

/// Returns the limit of a transfer, and what would help.
fn transfer_limit(transfer: &CapturedTransfer, style: TextStyle) -> String {
    let numbers: Vec<String> = transfer.flows.iter().map(u64::to_string).collect();
    let together = match numbers.len() {
        1 => String::new(),
        _ => style.dim_paragraph(
            &format!("Judged together: connections {}.", numbers.join(", ")),
            2,
        ),
    };
    together + &diagnosis_text(&transfer.diagnosis, BitRate::ZERO, style)
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
    if let Some(rtt) = sender.rtt {
        let [least, median, p90, most] = [rtt.least, rtt.median, rtt.p90, rtt.most].map(round_trip);
        rows.push((
            "RTT",
            format!("{least} least, {median} median, {p90} for nine of ten, {most} most"),
        ));
    }
    if let Some(bursts) = sender.bursts {
        let share = bursts.share.as_percent();
        rows.push((
            "bursts",
            format!(
                "pass the path at {} ({share:.0} % of the data)",
                bursts.rate
            ),
        ));
    }
    if let Some(window) = receiver.window {
        let closed = match window.zero {
            0 => String::new(),
            count => format!(", closed in {}", count_noun(count, "packet")),
        };
        let share = window.settled_share.as_percent();
        let settled = format!(
            "settled at {} ({share:.0} % of the later half)",
            window.settled
        );
        let sizes = format!("{settled}, {} first, {} most", window.first, window.most);
        let text = if window.is_unscaled {
            "of a scale that no SYN shows".to_owned()
        } else {
            sizes
        };
        rows.push(("window", text + &closed));
    }
    rows.extend(stalls(&sender.stalls).map(|text| ("sent nothing", text)));
    if sender.packets > 0 && receiver.packets > 0 {
        rows.push((
            "in flight",
            format!("{} at most, as seen from here", sender.flight),
        ));
    }
    if sender.packets > 0 {
        let packets = count_noun(sender.retransmitted_packets, "packet");
        rows.push((
            "retransmitted",
            format!("{packets}, {}", sender.retransmitted_bytes),
        ));
    }
    if sender.mss.or(receiver.mss).is_none() && sender.data_packets > 0 {
        rows.push((
            "segments",
            format!(
                "of {} B, as the packets show it: no SYN does",
                sender.segment_size.get()
            ),
        ));
    }
    rows.extend(absent_data_rows(sender));
    if flow.has_handshake {
        rows.push((
            "options",
            format!(
                "sender: {}; receiver: {}",
                tcp_options(sender),
                tcp_options(receiver)
            ),
        ));
    }
    if flow.overhead > ByteCount::ZERO {
        rows.push((
            "tunnels",
            format!("add {} B to each packet", flow.overhead.get()),
        ));
    }
    rows
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
mod tests {
    use super::*;
    use fullpipe_record::{AdvertisedWindow, BurstRate, RoundTrips, SynReport};
    use fullpipe_units::{BitRate, Ratio};

    fn report() -> CaptureReport {
        let size = ByteCount::new;
        let sender = FlowEnd {
            address: "[2001:db8:1234:5678:9abc:def0:1234:5678]:40000".to_owned(),
            packets: 12_347,
            data_packets: 12_345,
            syns: 1,
            unique_bytes: size(17_875_560),
            retransmitted_packets: 12,
            retransmitted_bytes: size(17_376),
            late_packets: 3,
            reordered_packets: 1,
            missing_bytes: size(2_896),
            mss: Some(size(1440)),
            window_scale: Some(7),
            sack_permitted: true,
            flight: size(130_320),
            rate: BitRate::from_mbps(25),
            bursts: Some(BurstRate {
                rate: BitRate::from_mbps(100),
                share: Ratio::new(0.6),
            }),
            rtt: Some(RoundTrips {
                samples: 6_000,
                least: Span::from_micros(40_100),
                mean: Span::from_micros(40_300),
                median: Span::from_micros(40_200),
                p90: Span::from_micros(41_000),
                most: Span::from_micros(80_000),
            }),
            ..FlowEnd::default()
        };
        let window = AdvertisedWindow {
            first: size(65_535),
            least: size(0),
            most: size(131_070),
            settled: size(131_070),
            settled_share: Ratio::new(0.98),
            zero: 2,
            is_unscaled: false,
        };
        let receiver = FlowEnd {
            address: "[2001:db8:1234:5678:9abc:def0:1234:9999]:5201".to_owned(),
            packets: 6_002,
            syns: 1,
            window: Some(window),
            ..FlowEnd::default()
        };
        let flow = FlowReport {
            number: 1,
            begin: Span::ZERO,
            duration: Span::from_secs(6),
            point: Some(CapturePoint::First),
            has_handshake: true,
            overhead: size(50),
            ends: [sender, receiver],
        };
        let notes =
            vec!["The last packet of the file is cut off; all before it were read.".to_owned()];
        CaptureReport {
            name: "big.pcap".to_owned(),
            flows: vec![flow.clone(), flow],
            notes,
            ..CaptureReport::default()
        }
    }

    #[test]
    fn no_line_is_longer_than_a_terminal_even_with_long_addresses() {
        let text = capture_text(&report(), 1, TextStyle::PLAIN);
        assert!(
            text.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
        for part in [
            "2 connections",
            "1 with less data are left out (--top).",
            "at the sender, from the first SYN on",
            "pass the path at 100 Mbit/s (60 % of the data)",
            "settled at 128 KiB (98 % of the later half)",
            "closed in 2 packets",
            "2 after a loss before this point, 1 reordered",
            "2.828 KiB that arrived",
            "add 50 B to each packet",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn times_without_data_are_shown_by_what_they_waited_for_and_a_scale_that_is_not_known_is_said()
    {
        let mut report = report();
        report.flows.truncate(1);
        let [sender, receiver] = &mut report.flows[0].ends;
        sender.stalls = StallTimes {
            timeouts: Span::from_secs(256),
            timeout_count: 4,
            closed_window: Span::from_millis(2_500),
            no_data: Span::from_millis(20),
            ..StallTimes::default()
        };
        receiver.window = receiver.window.map(|window| AdvertisedWindow {
            is_unscaled: true,
            zero: 7,
            ..window
        });
        let text = capture_text(&report, 1, TextStyle::PLAIN);
        assert!(
            text.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
        let text = unwrapped(&text);
        let times = "sent nothing 256.0 s before 4 retransmissions by timeout, 2.5 s while the window was closed";
        assert!(
            text.contains(times) && !text.contains("nothing to send"),
            "{text}"
        );
        assert!(
            text.contains("of a scale that no SYN shows, closed in 7 packets"),
            "{text}"
        );
    }

    #[test]
    fn options_that_were_cut_off_are_not_called_absent() {
        let syn = SynReport {
            sequence: 1,
            mss: None,
            window_scale: None,
            sack: false,
            timestamps: false,
            ecn: false,
            multipath: false,
            options_cut: true,
            window: ByteCount::ZERO,
            hops_left: 64,
            dscp: 0,
        };
        let end = FlowEnd {
            syns: 1,
            mss: Some(ByteCount::new(1460)),
            syn: Some(syn),
            ..FlowEnd::default()
        };
        assert_eq!(tcp_options(&end), "MSS 1460, the rest was cut off");
        assert_eq!(
            tcp_options(&FlowEnd { syn: None, ..end }),
            "MSS 1460, no scale"
        );
    }

    /// Returns a text without its breaks of lines.
    fn unwrapped(text: &str) -> String {
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn of_one_direction_only_what_it_shows_is_printed() {
        let shown = |edit: fn(&mut FlowReport)| {
            let mut report = report();
            report.flows.truncate(1);
            edit(&mut report.flows[0]);
            unwrapped(&capture_text(&report, 1, TextStyle::PLAIN))
        };
        let data = shown(|flow| {
            flow.ends[1] = FlowEnd {
                address: flow.ends[1].address.clone(),
                ..FlowEnd::default()
            };
            flow.ends[0].flight = ByteCount::ZERO;
        });
        assert!(
            data.contains("sender's packets alone") && data.contains("receiver: not captured"),
            "{data}"
        );
        assert!(!data.contains("in flight"), "{data}");
        let acknowledgements = shown(|flow| {
            let (address, missing_bytes) =
                (flow.ends[0].address.clone(), ByteCount::new(5_000_000));
            flow.ends[0] = FlowEnd {
                address,
                missing_bytes,
                ..FlowEnd::default()
            };
            (flow.has_handshake, flow.point) = (false, None);
        });
        assert!(
            acknowledgements.contains("receiver's packets alone"),
            "{acknowledgements}"
        );
        assert!(
            acknowledgements.contains("that were acknowledged"),
            "{acknowledgements}"
        );
        assert!(
            ["in flight", "retransmitted", "not captured"]
                .iter()
                .all(|row| !acknowledgements.contains(row))
        );
    }

    #[test]
    fn packets_that_offloads_made_are_shown_with_their_segments() {
        let mut report = report();
        let sender = &mut report.flows[0].ends[0];
        (sender.bytes, sender.segment_size, sender.largest) = (
            ByteCount::new(1448 * 32_962),
            ByteCount::new(1448),
            ByteCount::new(64_000),
        );
        sender.data_packets = 1_866;
        report.flows.truncate(1);
        let text = capture_text(&report, 1, TextStyle::PLAIN);
        assert!(
            unwrapped(&text).contains("in 1866 packets, which offloads made of 32962 segments"),
            "{text}"
        );
        assert!(
            text.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
    }

    #[test]
    fn the_size_of_segments_is_inferred_where_no_syn_shows_it() {
        let mut report = report();
        for flow in &mut report.flows {
            (flow.ends[0].mss, flow.ends[0].segment_size) = (None, ByteCount::new(8_948));
        }
        assert!(
            capture_text(&report, 1, TextStyle::PLAIN)
                .contains("of 8948 B, as the packets show it")
        );
    }

    #[test]
    fn an_empty_capture_is_stated_in_a_line() {
        let text = capture_text(
            &CaptureReport {
                name: "empty.pcap".to_owned(),
                ..CaptureReport::default()
            },
            10,
            TextStyle::PLAIN,
        );
        assert_eq!(text.trim(), "empty.pcap: 0 connections, 0 B of data in 0 s");
    }
}
