//! Transfers in virtual time.

use std::collections::BTreeSet;

use crate::chart::HeatTile;
use fullpipe_record::{Buffer, SimulatedTransfer, WhatIfReport};

use super::prelude::*;
use super::transfer::limit_phrase;
use crate::text::transfer_names;

/// Share of the best rate that counts as reaching it.
const NEARLY: f64 = 0.95;

/// Returns the article on simulated transfers.
pub(super) fn simulations_article(transfers: &[SimulatedTransfer]) -> Article {
    let best = transfers.iter().max_by_key(|transfer| transfer.rate.median);
    let names: Vec<String> = transfer_names(transfers);
    let headline = match (transfers, best) {
        ([one], _) => format!("{}: limited by {}", one.rate.median, simulated_limit(one)),
        (_, Some(best)) => format!(
            "The best of {} transfers reaches {}",
            transfers.len(),
            best.rate.median
        ),
        (_, None) => "No transfer was simulated".to_owned(),
    };
    let mut sections = Vec::new();
    let map = simulated_heat_map(transfers);
    let knee = map.as_ref().and_then(|(_, knee)| *knee);
    sections.extend(map.map(|(map, knee)| heat_map_section(map, knee)));
    sections.push(simulated_rates_section(transfers, &names));
    let mut warnings: Vec<String> = transfers
        .iter()
        .flat_map(|transfer| &transfer.warnings)
        .map(|warning| format!("Warning: {warning}"))
        .collect();
    warnings.sort();
    warnings.dedup();
    let mut facts: Vec<(String, String)> = Vec::new();
    facts.extend(knee.map(|knee| {
        fact(
            format!("{} × {}", knee.1, knee.0),
            "least streams × window with 95 % of the best",
        )
    }));
    facts.extend(
        best.and_then(|best| best.loaded_rtt)
            .map(|rtt| fact(round_trip(rtt), "round trip of the best")),
    );
    facts.extend(best.map(|best| {
        fact(
            best.retransmits.median.get(),
            "segments retransmitted by the best",
        )
    }));
    Article {
        origin: "fullpipe simulate".to_owned(),
        headline,
        sentences: warnings,
        facts,
        sections,
        ..Article::default()
    }
}

fn simulated_limit(transfer: &SimulatedTransfer) -> String {
    let limit = transfer.limit.map(|limit| limit_phrase(limit.kind));
    text_or(limit, "nothing that was shown")
}

/// A window and a number of streams.
type Setting = (ByteCount, u64);

/// Returns the map of transfers that differ in window and streams, and its knee; `None` of others.
fn simulated_heat_map(transfers: &[SimulatedTransfer]) -> Option<(HeatMap, Option<Setting>)> {
    let tiles: Vec<HeatTile> = transfers.iter().map(heat_tile).collect::<Option<_>>()?;
    let windows: BTreeSet<ByteCount> = tiles.iter().map(|tile| tile.window).collect();
    let streams: BTreeSet<u64> = tiles.iter().map(|tile| tile.streams).collect();
    if windows.len() < 2 || streams.len() < 2 {
        return None;
    }
    let best = tiles.iter().map(|tile| tile.rate).max()?;
    let nearly = tiles
        .iter()
        .filter(|tile| tile.rate >= best.scale_by(NEARLY));
    let least =
        nearly.min_by_key(|tile| (tile.window.get().saturating_mul(tile.streams), tile.streams));
    let knee = least.map(|tile| (tile.window, tile.streams));
    let path = &transfers.first()?.path;
    let same_path = transfers.iter().all(|transfer| transfer.path == *path);
    let mut map = HeatMap::new("Rate by window and streams", tiles);
    if let Some((window, streams)) = knee {
        map = map.with_knee(window, streams);
    }
    if let Some(rate) = path.forward.rate.filter(|_| same_path) {
        map = map.with_bdp(rate.bytes_in(path.rtt()));
    }
    Some((map, knee))
}

fn heat_tile(transfer: &SimulatedTransfer) -> Option<HeatTile> {
    let window = match transfer.request.buffer {
        Buffer::Window(size) | Buffer::Request(size) => size,
        Buffer::Automatic => return None,
    };
    Some(HeatTile {
        window,
        streams: transfer.request.streams.into(),
        rate: transfer.rate.median,
        is_measured: true,
        note: transfer
            .loaded_rtt
            .map_text(|rtt| format!("round trip {}", round_trip(rtt))),
    })
}

fn heat_map_section(map: HeatMap, knee: Option<Setting>) -> PageSection {
    let least = knee.map(|(window, streams)| {
        format!("{streams} × {window} is the least that gives 95 % of the best")
    });
    let title = text_or(least, "Rate by window and streams");
    PageSection::new(
        title,
        "Payload of all streams together, the median of the seeds; the ring marks the least.",
        map,
    )
}

/// Returns the rate of each transfer, with its range over the seeds.
fn simulated_rates_section(transfers: &[SimulatedTransfer], names: &[String]) -> PageSection {
    let mut rows = RowChart::new("Rates", ["transfer", "rate, limit"]);
    for (transfer, name) in transfers.iter().zip(names) {
        let delay = transfer
            .loaded_rtt
            .map_text(|rtt| format!("RTT {}, ", round_trip(rtt)));
        let detail = format!("{delay}limited by {}", simulated_limit(transfer));
        rows = rows.with_row(simulated_row(name, transfer, &detail));
    }
    let seeds = transfers
        .iter()
        .map(|transfer| transfer.seeds)
        .max()
        .unwrap_or(1);
    let method = match seeds {
        1 => "Payload that arrived.".to_owned(),
        many => format!("Payload that arrived: median and range of {many} seeds."),
    };
    PageSection::new("Rate of each transfer", &method, rows)
}

/// Returns the article on what would have happened with changes.
pub(super) fn what_if(reports: &[WhatIfReport]) -> Article {
    Article {
        origin: "fullpipe simulate --from".to_owned(),
        headline: reports
            .first()
            .map_or_else(|| "Nothing was simulated".to_owned(), what_if_headline),
        sections: reports.iter().flat_map(what_if_sections).collect(),
        ..Article::default()
    }
}

fn rtt_detail(rtt: Option<Span>) -> String {
    rtt.map_text(|rtt| format!("RTT {}", round_trip(rtt)))
}

fn simulated_row(name: &str, transfer: &SimulatedTransfer, detail: &str) -> ChartRow {
    let rate = &transfer.rate;
    let row = ChartRow::from_bar(name, rate.median, Blue).with_detail(detail);
    if transfer.seeds > 1 {
        row.with_interval(rate.low, rate.high)
    } else {
        row
    }
}

fn what_if_headline(report: &WhatIfReport) -> String {
    let measured = report.measured.rate;
    let changed = report.simulations.iter().skip(1);
    match changed.max_by_key(|transfer| transfer.rate.median) {
        Some(best) => {
            let name = best.name.as_deref().unwrap_or("the change");
            format!(
                "{measured} measured; {} simulated with {name}",
                best.rate.median
            )
        }
        None => format!("{measured} measured, simulated again"),
    }
}

fn what_if_sections(report: &WhatIfReport) -> Vec<PageSection> {
    let measured = report.measured.rate;
    let mut rows = RowChart::new("Measured and simulated rates", ["transfer", "rate"]);
    rows = rows.with_row(
        ChartRow::from_bar("measured", measured, Orange)
            .with_detail(&rtt_detail(report.measured.loaded_rtt)),
    );
    for (index, transfer) in report.simulations.iter().enumerate() {
        let name = match index {
            0 => "simulated, as it was",
            _ => transfer.name.as_deref().unwrap_or_default(),
        };
        rows = rows.with_row(simulated_row(
            name,
            transfer,
            &rtt_detail(transfer.loaded_rtt),
        ));
    }
    let title = match report.simulations.first() {
        Some(again) if again.rate.median > BitRate::ZERO => {
            let share = measured.relative_to(again.rate.median) * 100.0;
            format!("Measured: {share:.0} % of its simulation; below, with each change")
        }
        _ => "Measured, and simulated with each change".to_owned(),
    };
    let mut sections = vec![PageSection::new(title, "Payload that arrived.", rows)];
    if !report.inferred.is_empty() {
        let rows = report
            .inferred
            .iter()
            .map(|fact| cells![fact.key, fact.value, fact.why]);
        let table = compact_table("key|value|why", rows);
        sections.push(PageSection::new(
            "Not in the record, but inferred or assumed",
            "",
            table,
        ));
    }
    sections
}
