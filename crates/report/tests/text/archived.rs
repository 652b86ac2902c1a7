//! Results of many runs: differences, histories, lists of the archive.

use fullpipe_record::{
    ComparedRun, ComparedRuns, ComparedSide, ComparisonDesign, DifferenceConclusion,
    DifferenceReport, Direction, HistoryChange, HistoryDay, HistoryPoint, HistoryReport,
    HistorySeries, Limit, LimitCount, QuantityDifference, StoredDocument, StoredFacts,
};
use fullpipe_units::{BitRate, Ratio, SegCount, Span};

/// A difference of `pairs` pairs, or of too few to show one.
pub(crate) fn difference(pairs: u32) -> DifferenceReport {
    let side = |name: &str| ComparedRuns {
        name: name.to_owned(),
        runs: pairs,
        within_run: None,
    };
    let rate = |number: u32, side| match side {
        ComparedSide::A => BitRate::from_mbps(300 + u64::from(number % 5)),
        ComparedSide::B => BitRate::from_mbps(330 + u64::from(number % 7)),
    };
    let run = |number: u32, side| ComparedRun {
        side,
        pair: Some(number + 1),
        id: String::new(),
        started: "2026-03-12T10:00:00Z".to_owned(),
        rate: rate(number, side),
        rtt_median: Some(Span::from_millis(101)),
        rtt_p99: Some(Span::from_millis(120)),
        retransmits: Some(SegCount::new(3)),
        limit: Some(Limit::SendBuffer),
    };
    let is_shown = pairs >= 6;
    let conclusion = if is_shown {
        DifferenceConclusion::Different
    } else {
        DifferenceConclusion::TooFew
    };
    DifferenceReport {
        design: ComparisonDesign::Pairs,
        a: side("-C cubic"),
        b: side("-C bbr"),
        conclusion,
        sentence: "B is faster by 9.8 % (9.1 to 10.6 %).".to_owned(),
        detectable: is_shown.then(|| Ratio::new(0.03)),
        is_steady: true,
        rate: quantity(
            BitRate::from_mbps(302),
            BitRate::from_mbps(332),
            is_shown,
            conclusion,
        ),
        rtt_median: Some(quantity(
            Span::from_millis(101),
            Span::from_millis(101),
            is_shown,
            DifferenceConclusion::NoneShown,
        )),
        rtt_p99: None,
        retransmits: Some(quantity(
            SegCount::new(3),
            SegCount::new(3),
            is_shown,
            DifferenceConclusion::NoneShown,
        )),
        limits: vec![LimitCount {
            limit: Limit::SendBuffer,
            a: pairs,
            b: pairs,
        }],
        runs: (0..pairs)
            .flat_map(|number| [run(number, ComparedSide::A), run(number, ComparedSide::B)])
            .collect(),
        forecast: None,
        incomparable: vec!["the kernels differ".to_owned()],
        left_out: Vec::new(),
        interrupted: true,
    }
}

fn quantity<T>(
    a: T,
    b: T,
    is_shown: bool,
    conclusion: DifferenceConclusion,
) -> QuantityDifference<T> {
    let ratio = |value| is_shown.then(|| Ratio::new(value));
    QuantityDifference {
        a,
        b,
        ratio: ratio(1.098),
        low: ratio(0.991),
        high: ratio(1.106),
        conclusion,
    }
}

/// A history of `runs` runs, four a day, whose rate falls after half of them.
pub(crate) fn history(runs: u64) -> HistoryReport {
    let started = |run: u64| {
        format!(
            "2026-{:02}-{:02}T{:02}:00:00Z",
            1 + run / 112,
            1 + run / 4 % 28,
            run % 4 * 6
        )
    };
    let rate = |run: u64| BitRate::from_mbps(if run < runs / 2 { 940 } else { 610 } + run % 7);
    let limits = [
        "capacity/link",
        "loss/policer",
        "receive-window/so-rcvbuf",
        "cpu/stolen",
        "pacing/qdisc",
    ];
    let point = |run: u64| HistoryPoint {
        id: String::new(),
        started: started(run),
        rate: rate(run),
        rtt_idle: Some(Span::from_millis(20)),
        rtt_loaded: Some(Span::from_millis(24 + run % 5)),
        limit: Some(limits[(run % 11) as usize % limits.len()].to_owned()),
        valid: run % 13 != 5,
    };
    let day = |day: u64| HistoryDay {
        date: started(day * 4).chars().take(10).collect(),
        runs: 4,
        rate: rate(day * 4),
        min: rate(day * 4).scale_by(0.98),
        max: rate(day * 4).scale_by(1.01),
        rtt_idle: Some(Span::from_millis(20)),
        limit: Some("capacity/link".to_owned()),
    };
    let change = HistoryChange {
        at: started(runs / 2),
        before: BitRate::from_mbps(943),
        after: BitRate::from_mbps(613),
        low: Ratio::new(0.64),
        high: Ratio::new(0.66),
        sentence: "From 2026-01-15 on the rate is 35 % lower (95 % interval 34 to 36 %)."
            .to_owned(),
    };
    let series = HistorySeries {
        path_key: "alpha → 192.0.2.1".to_owned(),
        request_key: "tcp upload, 1 stream, 10 s".to_owned(),
        direction: Direction::Upload,
        points: (0..runs).map(point).collect(),
        days: (0..runs / 4).map(day).collect(),
        changes: if runs > 8 { vec![change] } else { Vec::new() },
        detectable: None,
    };
    HistoryReport {
        host: "beta".to_owned(),
        series: if runs > 0 { vec![series] } else { Vec::new() },
    }
}

/// Documents of an archive, each with one run; every eleventh is not valid.
pub(crate) fn stored(count: u64) -> Vec<StoredDocument> {
    let document = |number: u64| StoredDocument {
        id: format!("01a2121b-a32a-720a-9996-{number:012x}"),
        kind: "measurement".to_owned(),
        started: format!(
            "2026-03-{:02}T{:02}:00:00Z",
            1 + number / 24 % 28,
            number % 24
        ),
        peer: format!("host-{}.example", number % 3),
        facts: vec![StoredFacts {
            steady: Some(BitRate::from_mbps(300 + number % 40)),
            rtt_loaded: Some(Span::from_micros(20_000 + number * 31 % 4_000)),
            retransmits: Some(SegCount::new(number % 9)),
            limit: Some(
                if number.is_multiple_of(3) {
                    "loss"
                } else {
                    "send-buffer"
                }
                .to_owned(),
            ),
            cpu_sender: Some(Ratio::new(0.02 * (number % 8) as f64)),
            streams: Some((1 << (number % 5)) as u16),
            valid: !number.is_multiple_of(11),
            ..StoredFacts::default()
        }],
        ..StoredDocument::default()
    };
    (0..count).map(document).collect()
}
