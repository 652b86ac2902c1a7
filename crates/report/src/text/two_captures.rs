//! One connection in two captures.

use fullpipe_record::{
    CaptureReport, ChangedField, ClockOffset, ClockSkew, FlowChange, FlowDirection, FlowPair,
    FlowReport, OneWayDelay,
};

use super::prelude::*;
use super::table::spark_line;

/// Returns the comparison of connection `number` in two captures: losses and changes between them,
/// delays, and their clocks. Returns nothing of one capture.
pub(crate) fn capture_comparison(report: &CaptureReport, number: u64) -> String {
    let Some(other) = &report.other else {
        return String::new();
    };
    let count = count_noun(report.pairs.len(), "connection");
    let [first, second] = [&report.name, &other.name].map(|name| printable_line(name));
    let mut text = heading_line(&format!("Between {first} and {second}: {count} in both"));
    for note in &other.notes {
        text += &dim_paragraph(note, 2);
    }
    let flow = report.flows.iter().find(|flow| flow.number == number);
    let pair = report.pairs.iter().find(|pair| pair.numbers[0] == number);
    let Some((flow, pair)) = flow.zip(pair) else {
        return text + &paragraph(&format!("Connection {number} is in the first alone."), 2);
    };
    text += &pair_table(pair_rows(flow, pair), 2);
    text + &field_changes_table(flow, pair)
}

fn pair_rows(flow: &FlowReport, pair: &FlowPair) -> Vec<(&'static str, String)> {
    let mut rows = Vec::new();
    if pair.nearer_to_first.is_none() {
        rows.push((
            "order",
            "not known; they are taken to lie on the way in the order given".to_owned(),
        ));
    }
    rows.extend(pair_path(pair).map(|path| ("path", path)));
    for (end, name) in flow_ends(flow) {
        let direction = &pair.directions[end];
        rows.push((name, loss_text(direction, flow.ends[end].data_packets > 0)));
        if let Some(course) = &direction.loss_course {
            let lost: Vec<f64> = course.lost.iter().map(|bytes| bytes.as_f64()).collect();
            rows.push((
                "  over time",
                format!("{}  each {}", spark_line(&lost), round_trip(course.width)),
            ));
        }
        rows.extend(direction.delay.map(|delay| ("  delay", delay_text(delay))));
    }
    rows.push(("clocks", clock_text(pair.clock_offset, pair.clock_skew)));
    rows
}

/// Returns both ends, the sender of most data first.
fn flow_ends(flow: &FlowReport) -> [(usize, &'static str); 2] {
    let sender = flow.sender_index();
    [(sender, "from sender"), (1 - sender, "from receiver")]
}

fn pair_path(pair: &FlowPair) -> Option<String> {
    let routers = match pair
        .directions
        .each_ref()
        .map(|direction| direction.routers)
    {
        [None, None] => None,
        [Some(0), Some(0) | None] | [None, Some(0)] => Some("no router between them".to_owned()),
        [Some(there), Some(back)] if there != back => Some(format!(
            "{} between them, {back} back",
            count_noun(there, "router")
        )),
        [Some(many), _] | [None, Some(many)] => {
            Some(format!("{} between them", count_noun(many, "router")))
        }
    };
    let rtt = pair
        .clock_offset
        .map(|offset| format!("least RTT {}", round_trip(offset.rtt)));
    let all: Vec<String> = [routers, rtt].into_iter().flatten().collect();
    (!all.is_empty()).then(|| all.join(", "))
}

fn loss_text(direction: &FlowDirection, has_data: bool) -> String {
    if !direction.in_both {
        return "in one of the captures alone".to_owned();
    }
    let repeated = if direction.ends_at_receiver {
        "retransmitted that had arrived"
    } else {
        "lost behind them or retransmitted in vain"
    };
    let mut all = Vec::from_iter(losses_between(direction, "them"));
    for (count, text) in [
        (direction.lost_before, "lost before them"),
        (direction.repeated, repeated),
    ] {
        if count > 0 {
            all.push(format!("{} {text}", count_noun(count, "segment")));
        }
    }
    if all.is_empty() {
        all.push(if has_data { "no data lost" } else { "no data" }.to_owned());
    }
    all.extend(has_data.then(|| match direction.reordered_packets {
        0 => "nothing reordered".to_owned(),
        many => format!("{} reordered", count_noun(many, "packet")),
    }));
    let undecided = direction.undecided_bytes;
    all.extend(
        (undecided > ByteCount::ZERO)
            .then(|| format!("{undecided} under way as a capture began or ended")),
    );
    all.join(", ")
}

/// Returns the losses between both captures: as a share, or as counts where that is one of few
/// segments.
pub(crate) fn losses_between(direction: &FlowDirection, captures: &str) -> Option<String> {
    const FEW: f64 = 100.0;
    let (lost, share) = (direction.lost_segments, direction.lost);
    if lost == 0 {
        return None;
    }
    let all = (lost as f64 / share.get()).round();
    Some(if all < FEW {
        let all = count_noun(all as u64, "segment");
        format!("{lost} of {all} lost between {captures}")
    } else {
        let lost = count_noun(lost, "segment");
        format!("{lost} lost between {captures} ({share})")
    })
}

fn delay_text(delay: OneWayDelay) -> String {
    let [median, p95, most] = [delay.median, delay.p95, delay.most].map(round_trip);
    format!("{median} median, {p95} p95, {most} most, above the least")
}

fn clock_text(offset: Option<ClockOffset>, skew: Option<ClockSkew>) -> String {
    let offset = offset.map(|offset| {
        let order = if offset.ahead == 1 { "ahead" } else { "behind" };
        format!(
            "second {} {order}, assuming symmetry",
            round_trip(offset.by)
        )
    });
    let skew = skew.map(|skew| match skew.faster {
        _ if skew.by <= skew.error => format!("no skew beyond {} ppm", ppm(skew.error)),
        1 => format!("gains {} ± {} ppm", ppm(skew.by), ppm(skew.error)),
        _ => format!("loses {} ± {} ppm", ppm(skew.by), ppm(skew.error)),
    });
    match (offset, skew) {
        (Some(offset), Some(skew)) => format!("{offset}; {skew}"),
        (Some(offset), None) => format!("{offset}; skew not known"),
        (None, Some(skew)) => format!("offset not known; second {skew}"),
        (None, None) => {
            "not known: too few packets in both, or queues that do not empty".to_owned()
        }
    }
}

/// Returns parts per million, of which a tenth is the least that is stated.
fn ppm(ratio: Ratio) -> String {
    format!("{:.1}", (ratio.get() * 1e6).max(0.1))
}

/// Returns the table of the fields that were changed.
fn field_changes_table(flow: &FlowReport, pair: &FlowPair) -> String {
    let mut text = String::new();
    let mut table = TextTable::new("changed|of|before|after");
    let mut is_empty = true;
    for (end, name) in flow_ends(flow) {
        let name = name.trim_start_matches("from ");
        for change in &pair.directions[end].changes {
            if change.field == ChangedField::Address {
                // Two of them would not fit into a line.
                text += &address_translation(change, name);
                continue;
            }
            is_empty = false;
            table.push_row(cells![
                field_name(change.field),
                name,
                change.before,
                change.after
            ]);
        }
    }
    if is_empty {
        return text;
    }
    text + "\n" + &table.render(2)
}

fn address_translation(change: &FlowChange, name: &str) -> String {
    let line = format!(
        "The address of the {name} was changed: {} before, {} after.",
        change.before, change.after
    );
    bold_paragraph(&line, 2)
}

pub(crate) const fn field_name(field: ChangedField) -> &'static str {
    match field {
        ChangedField::Address => "address",
        ChangedField::Mss => "MSS of the SYN",
        ChangedField::WindowScale => "window scale of the SYN",
        ChangedField::Sack => "SACK",
        ChangedField::Timestamps => "timestamps",
        ChangedField::Ecn => "ECN",
        ChangedField::Multipath => "Multipath TCP",
        ChangedField::SynWindow => "window of the SYN",
        ChangedField::Window => "settled window",
        ChangedField::Sequence => "sequence number",
        ChangedField::Dscp => "DSCP",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::without_marks;
    use fullpipe_record::{FlowEnd, LossCourse};
    use fullpipe_units::Span;

    fn report() -> CaptureReport {
        let [sender, receiver] = ["1234:5678]:40000", "1234:9999]:5201"].map(|end| FlowEnd {
            address: format!("[2001:db8:1234:5678:9abc:def0:{end}"),
            ..FlowEnd::default()
        });
        let sender = FlowEnd {
            packets: 9_000,
            data_packets: 9_000,
            unique_bytes: ByteCount::from_mib(12),
            ..sender
        };
        let flow = FlowReport {
            number: 7,
            begin: Span::ZERO,
            duration: Span::from_secs(6),
            point: None,
            has_handshake: true,
            overhead: ByteCount::ZERO,
            ends: [sender, receiver],
        };
        let delay = OneWayDelay {
            packets: 4_000,
            median: Span::from_micros(140),
            p95: Span::from_micros(18_900),
            most: Span::from_millis(29),
        };
        let change = |field, before: &str, after: &str| FlowChange {
            field,
            before: before.to_owned(),
            after: after.to_owned(),
        };
        let there = FlowDirection {
            from: flow.ends[0].address.clone(),
            in_both: true,
            lost_segments: 1_106,
            lost: Ratio::new(0.02556),
            lost_before: 12,
            repeated: 1,
            undecided_bytes: ByteCount::from_mib(1),
            reordered_packets: 1,
            loss_course: Some(LossCourse {
                width: Span::from_millis(150),
                lost: (0..40).map(|bin| ByteCount::new(bin % 3)).collect(),
            }),
            routers: Some(12),
            delay: Some(delay),
            changes: vec![
                change(
                    ChangedField::Address,
                    &flow.ends[0].address,
                    "[2001:db8:1234:5678:9abc:def0:ffff:ffff]:61000",
                ),
                change(ChangedField::WindowScale, "14", "none"),
                change(ChangedField::Sequence, "4294967295", "4294967294"),
            ],
            ..FlowDirection::default()
        };
        let back = FlowDirection {
            in_both: true,
            routers: Some(13),
            delay: Some(delay),
            ..FlowDirection::default()
        };
        let pair = FlowPair {
            numbers: [7, 3],
            nearer_to_first: Some(0),
            clock_skew: Some(ClockSkew {
                faster: 0,
                by: Ratio::new(33.3e-6),
                error: Ratio::new(0.4e-6),
                packets: 4_000,
            }),
            clock_offset: Some(ClockOffset {
                ahead: 1,
                by: Span::from_millis(3_120),
                rtt: Span::from_micros(25_800),
            }),
            directions: [there, back],
        };
        let other = CaptureReport {
            name: "receiver.pcap".to_owned(),
            ..CaptureReport::default()
        };
        CaptureReport {
            name: "sender.pcap".to_owned(),
            flows: vec![flow],
            pairs: vec![pair],
            other: Some(Box::new(other)),
            ..CaptureReport::default()
        }
    }

    #[test]
    fn losses_of_few_segments_are_counts() {
        let of = |lost_segments, share| {
            let direction = FlowDirection {
                lost_segments,
                lost: Ratio::new(share),
                ..FlowDirection::default()
            };
            losses_between(&direction, "them")
        };
        assert_eq!(of(3, 0.075).unwrap(), "3 of 40 segments lost between them");
        assert_eq!(of(3, 0.01).unwrap(), "3 segments lost between them (1 %)");
        assert_eq!(of(0, 0.0), None);
    }

    #[test]
    fn two_captures_are_compared_in_a_few_lines_within_eighty_columns() {
        let text = without_marks(&capture_comparison(&report(), 7));
        assert!(
            text.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
        for part in [
            "Between sender.pcap and receiver.pcap: 1 connection in both",
            "path           12 routers between them, 13 back, least RTT 25.8 ms",
            "from sender    1106 segments lost between them (2.556 %), 12 segments lost",
            "1 segment lost behind them or retransmitted in\n",
            "vain, 1 packet reordered, 1 MiB under way as a capture began or\n",
            "over time    ·▄█·▄█",
            "delay        140 µs median, 18.9 ms p95, 29 ms most, above the least",
            "from receiver  no data",
            "clocks         second 3.12 s ahead, assuming symmetry; loses 33.3 ± 0.4 ppm",
            "The address of the sender was changed:",
            "  changed                  of      before      after\n",
            "  window scale of the SYN  sender  14          none\n",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn what_is_not_known_of_two_captures_is_stated() {
        let mut report = report();
        report.pairs[0] = FlowPair {
            nearer_to_first: None,
            clock_skew: None,
            clock_offset: None,
            directions: [
                FlowDirection::default(),
                FlowDirection {
                    in_both: true,
                    ..FlowDirection::default()
                },
            ],
            ..report.pairs[0].clone()
        };
        let text = without_marks(&capture_comparison(&report, 7));
        for part in [
            "order          not known; they are taken to lie on the way in the order given",
            "from sender    in one of the captures alone",
            "clocks         not known: too few packets in both",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        report.pairs.clear();
        assert!(
            without_marks(&capture_comparison(&report, 7))
                .contains("Connection 7 is in the first alone.")
        );
        report.other = None;
        assert_eq!(without_marks(&capture_comparison(&report, 7)), "");
    }
}
