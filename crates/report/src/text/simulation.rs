//! Transfers in virtual time: as a table of what differs, with the spread of several seeds, and as
//! CSV.

use crate::chart::trim_zeros;
use fullpipe_record::{Buffer, Candidate, Inferred, SimulatedTransfer, WhatIfReport};

use super::prelude::*;

/// Transfers as rows: what differs between them, the rate, retransmissions, the round-trip time and
/// the limit.
///
/// If the columns are wider than a terminal, first the retransmissions are left out, then the
/// round-trip time, then the range of the rates; JSON and CSV have them all.
pub fn simulations_text(transfers: &[SimulatedTransfer]) -> String {
    let heads = INPUTS.map(|(head, _)| format!(">{head}|")).concat();
    let rows = transfers.iter().map(|transfer| {
        let inputs = INPUTS.iter().map(|(_, cell)| or_dash(cell(transfer)));
        inputs.chain(simulated_cells(transfer)).collect::<Vec<_>>()
    });
    let table = TextTable::from_rows(&(heads + ">rate|>range|>resent|>RTT|limit"), rows)
        .without_constant(INPUTS.len())
        .without_unknown()
        .without_excess(&["resent", "RTT", "range"]);
    table.render(0) + &simulation_warnings(transfers)
}

/// Returns the rate of a transfer, its range if there are several seeds, the retransmissions, the
/// round-trip time and the limit.
fn simulated_cells(transfer: &SimulatedTransfer) -> [String; 5] {
    let rate = &transfer.rate;
    cells![
        rate.median,
        or_dash((transfer.seeds > 1).then(|| rate_range(rate.low, rate.high))),
        transfer.retransmits.median,
        or_dash(transfer.loaded_rtt.map(round_trip)),
        limit_cell(transfer.limit)
    ]
}

/// Returns each warning of the transfers once.
fn simulation_warnings(transfers: &[SimulatedTransfer]) -> String {
    let mut all: Vec<&String> = Vec::new();
    for warning in transfers.iter().flat_map(|transfer| &transfer.warnings) {
        if !all.contains(&warning) {
            all.push(warning);
        }
    }
    all.iter()
        .map(|warning| failure_paragraph(&format!("Warning: {warning}"), 0))
        .collect()
}

/// Returns the median and the range of the rates of several seeds of each transfer, and those of
/// its retransmissions.
pub fn seed_spreads(transfers: &[SimulatedTransfer]) -> String {
    let spreads: String = transfers.iter().map(seed_spread).collect();
    spreads + &simulation_warnings(transfers)
}

fn seed_spread(transfer: &SimulatedTransfer) -> String {
    let SimulatedTransfer {
        rate,
        retransmits,
        seeds,
        ..
    } = transfer;
    let name = transfer
        .name
        .as_ref()
        .map_text(|name| format!("{}\n", bold_text(name)));
    format!(
        "{name}rate         {} (median of {seeds} seeds; {} to {})\nretransmits  {} ({} to {})\n\
         RTT          {}\nlimit        {}\n",
        rate.median,
        rate.low,
        rate.high,
        retransmits.median.get(),
        retransmits.low.get(),
        retransmits.high.get(),
        or_dash(transfer.loaded_rtt.map(round_trip)),
        limit_cell(transfer.limit)
    )
}

fn limit_cell(limit: Option<Candidate>) -> String {
    or_dash(limit.map(|limit| limit.kind.name()))
}

/// In Mbit/s, as the rate before it has a unit.
fn rate_range(low: BitRate, high: BitRate) -> String {
    format!("{:.2} to {:.2}", low.as_mbps(), high.as_mbps())
}

/// Returns a name for each transfer: its own, or the quantities in which the transfers differ.
pub(crate) fn transfer_names(transfers: &[SimulatedTransfer]) -> Vec<String> {
    let rows: Vec<[String; INPUTS.len()]> = transfers
        .iter()
        .map(|transfer| {
            INPUTS.map(|(head, cell)| cell(transfer).map_text(|value| format!("{head} {value}")))
        })
        .collect();
    let names = rows.iter().zip(transfers).map(|(row, transfer)| {
        let parts: Vec<&str> = (0..row.len())
            .filter(|&column| rows.iter().any(|other| other[column] != row[column]))
            .map(|column| row[column].as_str())
            .filter(|part| !part.is_empty())
            .collect();
        transfer.name.clone().unwrap_or_else(|| parts.join(", "))
    });
    names.collect()
}

type Cell = fn(&SimulatedTransfer) -> Option<String>;

/// The quantities that may differ, with the heads of their columns.
const INPUTS: [(&str, Cell); 9] = [
    ("bandwidth", |transfer| {
        figure_text(transfer.path.forward.rate)
    }),
    ("rtt", |transfer| Some(transfer.path.rtt().to_string())),
    ("queue", queue_size),
    ("loss", |transfer| figure_text(transfer.path.forward.loss)),
    ("mtu", |transfer| {
        Some(transfer.path.forward.mtu.get().to_string())
    }),
    ("congestion", |transfer| transfer.request.congestion.clone()),
    ("streams", |transfer| {
        Some(transfer.request.streams.to_string())
    }),
    ("window", |transfer| figure_text(requested_window(transfer))),
    ("buffer", |transfer| figure_text(requested_buffer(transfer))),
];

/// In BDPs where the path has any, so that a queue that follows rate and round-trip time is the
/// same.
fn queue_size(transfer: &SimulatedTransfer) -> Option<String> {
    let forward = &transfer.path.forward;
    let (queue, rate) = (forward.queue?, forward.rate?);
    let bdp = rate.bytes_in(transfer.path.rtt());
    if bdp == ByteCount::ZERO {
        return Some(queue.to_string());
    }
    let times = format!("{:.3}", queue.as_f64() / bdp.as_f64());
    Some(format!("{} BDP", trim_zeros(&times)))
}

fn requested_window(transfer: &SimulatedTransfer) -> Option<ByteCount> {
    match transfer.request.buffer {
        Buffer::Window(size) => Some(size),
        _ => None,
    }
}

fn requested_buffer(transfer: &SimulatedTransfer) -> Option<ByteCount> {
    match transfer.request.buffer {
        Buffer::Request(size) => Some(size),
        _ => None,
    }
}

/// Returns the names of the columns of [`simulations_csv_row`].
pub fn simulations_csv_head() -> String {
    "name,bandwidth,rtt,queue,loss,mtu,congestion,streams,window,buffer,seeds,rate_bps,low_bps,high_bps,retransmits,\
     loaded_rtt,limit,cause"
        .to_owned()
}

/// Returns a transfer as one line of CSV, without its end: rates in bit/s, times in seconds, sizes
/// in bytes. A quantity that is not set is empty.
pub fn simulations_csv_row(transfer: &SimulatedTransfer) -> String {
    let forward = &transfer.path.forward;
    let (request, rate) = (&transfer.request, &transfer.rate);
    let [queue, window, buffer] = [
        forward.queue,
        requested_window(transfer),
        requested_buffer(transfer),
    ]
    .map(|size| size.map_text(|size| size.get().to_string()));
    let limit = transfer
        .limit
        .map(|limit| limit.name().to_owned())
        .unwrap_or_default();
    let (kind, cause) = limit.split_once('/').unwrap_or((&limit, ""));
    cells![
        csv_cell(transfer.name.as_deref().unwrap_or_default()),
        forward.rate.map_text(|rate| rate.bps().to_string()),
        transfer.path.rtt().as_secs_f64(),
        queue,
        forward.loss.map_text(|loss| loss.get().to_string()),
        forward.mtu.get(),
        request.congestion.clone().unwrap_or_default(),
        request.streams,
        window,
        buffer,
        transfer.seeds,
        rate.median.bps(),
        rate.low.bps(),
        rate.high.bps(),
        transfer.retransmits.median.get(),
        transfer
            .loaded_rtt
            .map_text(|rtt| rtt.as_secs_f64().to_string()),
        kind,
        cause
    ]
    .join(",")
}

/// Returns a cell of CSV (RFC 4180, 2.6 and 2.7).
fn csv_cell(cell: &str) -> String {
    if cell.contains(['"', ',', '\n', '\r']) {
        format!("\"{}\"", cell.replace('"', "\"\""))
    } else {
        cell.to_owned()
    }
}

/// A measurement, its simulation, and what would have happened with changes: what was inferred,
/// then a row for each.
pub fn what_if(report: &WhatIfReport) -> String {
    let heading_text = report.name.as_ref().map_text(|name| heading_line(name));
    heading_text + &inferred_path(report) + &what_if_rows(report)
}

/// The path, and the reason for each value that the record does not state.
fn inferred_path(report: &WhatIfReport) -> String {
    let forward = &report.path.forward;
    let facts = [
        text_or(forward.rate, "a path without a rate"),
        format!(" × {}", report.path.rtt()),
        forward.queue.map_text(|queue| format!(", queue {queue}")),
        forward.loss.map_text(|loss| format!(", loss {loss}")),
        format!(", MTU {}", forward.mtu.get()),
    ];
    let mut text = paragraph(&format!("Path: {}", facts.concat()), 0);
    if report.inferred.is_empty() {
        return text;
    }
    text += &dim_text("Not in the record, but inferred or assumed:\n");
    let rows = report.inferred.iter().map(|Inferred { key, value, why }| {
        let shown = match key.as_str() {
            "sender" | "receiver" => format!("{value}, "),
            _ => String::new(),
        };
        (printable_line(key), format!("{shown}{why}"))
    });
    text + &pair_table(rows, 2)
}

/// The measurement and its simulations as rows. If they are wider than a terminal, the range of the
/// rates is left out, then the retransmissions.
fn what_if_rows(report: &WhatIfReport) -> String {
    let measured = &report.measured;
    let mut rows = vec![cells![
        "measured",
        measured.rate,
        "",
        "",
        or_dash(measured.retransmits),
        or_dash(measured.loaded_rtt.map(round_trip)),
        limit_cell(measured.limit)
    ]];
    if let Some((again, changed)) = report.simulations.split_first() {
        let name = again.name.as_deref().unwrap_or_default();
        rows.push(simulated_row(again, format!("simulated {name}"), None));
        let before = Some(again.rate.median).filter(|before| *before > BitRate::ZERO);
        rows.extend(changed.iter().map(|transfer| {
            let name = printable_line(transfer.name.as_deref().unwrap_or_default());
            simulated_row(transfer, name, before)
        }));
    }
    let table = TextTable::from_rows("|>rate|>range|>×|>resent|>RTT|limit", rows)
        .without_unknown()
        .without_excess(&["range", "resent"])
        .render(0);
    format!(
        "\n{table}{}{}",
        not_modelled(report),
        simulation_warnings(&report.simulations)
    )
}

/// Returns the row of a simulated transfer, with its gain over the rate `before`.
fn simulated_row(
    transfer: &SimulatedTransfer,
    name: String,
    before: Option<BitRate>,
) -> [String; 7] {
    let [rate, range, resent, rtt, limit] = simulated_cells(transfer);
    let gain = before.map(|before| transfer.rate.median.relative_to(before));
    let gain = gain.map_text(|gain| format!("{gain:.2}"));
    [name, rate, range, gain, resent, rtt, limit]
}

fn not_modelled(report: &WhatIfReport) -> String {
    let sentence = match report.not_modelled.as_slice() {
        [] => return String::new(),
        [only] if only == "none" => "No remedies to simulate.".to_owned(),
        several => format!("Not modelled: {}", several.join(", ")),
    };
    dim_paragraph(&sentence, 0)
}
