//! Transfers in virtual time: as a table of what differs, with the spread of several seeds, and as CSV.

use fullpipe_record::{Buffer, Candidate, Inferred, SimulatedTransfer, WhatIfReport};
use fullpipe_units::{BitRate, ByteCount, printable};

use super::measurement::round_trip;
use super::style::{Style, heading, wrapped};
use super::table::{Align, Column, Table, columns_table, or_dash};

/// Transfers as rows: what differs between them, the rate, retransmissions, the round-trip time and the limit.
///
/// If the columns are wider than a terminal, first the retransmissions are left out, then the round-trip time, then the
/// range of the rates; JSON and CSV have them all.
pub fn simulations(transfers: &[SimulatedTransfer], style: Style) -> String {
    let column = |head, align, cell: &dyn Fn(&SimulatedTransfer) -> String| Column {
        head,
        align,
        cells: transfers.iter().map(cell).collect(),
    };
    let inputs = INPUTS.into_iter().map(|(head, cell)| column(head, Align::Right, &|transfer| or_dash(cell(transfer))));
    let mut columns: Vec<Column> = inputs.filter(Column::differs).collect();
    columns.push(column("rate", Align::Right, &|transfer| transfer.rate.median.to_string()));
    if transfers.iter().any(|transfer| transfer.seeds > 1) {
        columns.push(column("range", Align::Right, &|transfer| range(transfer.rate.low, transfer.rate.high)));
    }
    columns.push(column("resent", Align::Right, &|transfer| transfer.retransmits.median.get().to_string()));
    columns.push(column("RTT", Align::Right, &|transfer| or_dash(transfer.loaded_rtt.map(round_trip))));
    columns.push(column("limit", Align::Left, &limit));
    let table = columns_table(columns, &["resent", "RTT", "range"]);
    table.render(0, |head| style.bold(head)) + &warnings(transfers, style)
}

/// Returns each warning of the transfers once.
fn warnings(transfers: &[SimulatedTransfer], style: Style) -> String {
    let mut all: Vec<&String> = Vec::new();
    for warning in transfers.iter().flat_map(|transfer| &transfer.warnings) {
        if !all.contains(&warning) {
            all.push(warning);
        }
    }
    all.iter().map(|warning| wrapped(&format!("Warning: {warning}"), 0, |line| style.bad(line))).collect()
}

/// Returns the median and the range of the rates of several seeds of each transfer, and those of its retransmissions.
pub fn seeds(transfers: &[SimulatedTransfer], style: Style) -> String {
    let spreads: String = transfers.iter().map(|transfer| spread(transfer, style)).collect();
    spreads + &warnings(transfers, style)
}

fn spread(transfer: &SimulatedTransfer, style: Style) -> String {
    let SimulatedTransfer { rate, retransmits, seeds, .. } = transfer;
    let name = transfer.name.as_ref().map_or_else(String::new, |name| format!("{}\n", style.bold(name)));
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
        limit(transfer)
    )
}

fn limit(transfer: &SimulatedTransfer) -> String {
    or_dash(transfer.limit.map(|limit| limit.kind.name().to_owned()))
}

/// In Mbit/s, as the rate before it has a unit.
fn range(low: BitRate, high: BitRate) -> String {
    format!("{:.2} to {:.2}", low.as_mbps(), high.as_mbps())
}

/// Returns a name for each transfer: its own, or the quantities in which the transfers differ.
pub(crate) fn described(transfers: &[SimulatedTransfer]) -> Vec<String> {
    let column = |(head, cell): &(&str, Cell)| -> Vec<String> {
        transfers
            .iter()
            .map(|transfer| cell(transfer).map_or_else(String::new, |value| format!("{head} {value}")))
            .collect()
    };
    let differing: Vec<Vec<String>> =
        INPUTS.iter().map(column).filter(|cells| cells.iter().any(|cell| Some(cell) != cells.first())).collect();
    let name = |(index, transfer): (usize, &SimulatedTransfer)| {
        let parts: Vec<&str> =
            differing.iter().map(|cells| cells[index].as_str()).filter(|part| !part.is_empty()).collect();
        transfer.name.clone().unwrap_or_else(|| parts.join(", "))
    };
    transfers.iter().enumerate().map(name).collect()
}

type Cell = fn(&SimulatedTransfer) -> Option<String>;

/// The quantities that may differ, with the heads of their columns.
const INPUTS: [(&str, Cell); 9] = [
    ("bandwidth", |transfer| transfer.path.forward.rate.map(|rate| rate.to_string())),
    ("rtt", |transfer| Some(transfer.path.rtt().to_string())),
    ("queue", queue),
    ("loss", |transfer| transfer.path.forward.loss.map(|loss| loss.to_string())),
    ("mtu", |transfer| Some(transfer.path.forward.mtu.get().to_string())),
    ("congestion", |transfer| transfer.request.congestion.clone()),
    ("streams", |transfer| Some(transfer.request.streams.to_string())),
    ("window", |transfer| window(transfer).map(|size| size.to_string())),
    ("buffer", |transfer| buffer(transfer).map(|size| size.to_string())),
];

/// In BDPs where the path has any, so that a queue that follows rate and round-trip time is the same.
fn queue(transfer: &SimulatedTransfer) -> Option<String> {
    let forward = &transfer.path.forward;
    let (queue, rate) = (forward.queue?, forward.rate?);
    let bdp = rate.bytes_in(transfer.path.rtt());
    if bdp == ByteCount::ZERO {
        return Some(queue.to_string());
    }
    let times = format!("{:.3}", queue.as_f64() / bdp.as_f64());
    Some(format!("{} BDP", times.trim_end_matches('0').trim_end_matches('.')))
}

fn window(transfer: &SimulatedTransfer) -> Option<ByteCount> {
    match transfer.request.buffer {
        Buffer::Window(size) => Some(size),
        _ => None,
    }
}

fn buffer(transfer: &SimulatedTransfer) -> Option<ByteCount> {
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

/// Returns a transfer as one line of CSV, without its end: rates in bit/s, times in seconds, sizes in bytes. A quantity
/// that is not set is empty.
pub fn simulations_csv_row(transfer: &SimulatedTransfer) -> String {
    let forward = &transfer.path.forward;
    let (request, rate) = (&transfer.request, &transfer.rate);
    let bytes = |size: Option<ByteCount>| size.map_or_else(String::new, |size| size.get().to_string());
    let limit = transfer.limit.map(|limit| limit.name().to_owned()).unwrap_or_default();
    let (kind, cause) = limit.split_once('/').unwrap_or((&limit, ""));
    [
        quoted(transfer.name.as_deref().unwrap_or_default()),
        forward.rate.map_or_else(String::new, |rate| rate.bps().to_string()),
        transfer.path.rtt().as_secs_f64().to_string(),
        bytes(forward.queue),
        forward.loss.map_or_else(String::new, |loss| loss.get().to_string()),
        forward.mtu.get().to_string(),
        request.congestion.clone().unwrap_or_default(),
        request.streams.to_string(),
        bytes(window(transfer)),
        bytes(buffer(transfer)),
        transfer.seeds.to_string(),
        rate.median.bps().to_string(),
        rate.low.bps().to_string(),
        rate.high.bps().to_string(),
        transfer.retransmits.median.get().to_string(),
        transfer.loaded_rtt.map_or_else(String::new, |rtt| rtt.as_secs_f64().to_string()),
        kind.to_owned(),
        cause.to_owned(),
    ]
    .join(",")
}

/// Returns a cell of CSV (RFC 4180, 2.6 and 2.7).
fn quoted(cell: &str) -> String {
    if cell.contains(['"', ',', '\n', '\r']) { format!("\"{}\"", cell.replace('"', "\"\"")) } else { cell.to_owned() }
}

/// A measurement, its simulation, and what would have happened with changes: what was inferred, then a row for each.
pub fn what_if(report: &WhatIfReport, style: Style) -> String {
    let heading_text = report.name.as_ref().map_or_else(String::new, |name| heading(style, name));
    heading_text + &known(report, style) + &rows(report, style)
}

/// The path, and the reason for each value that the record does not state.
fn known(report: &WhatIfReport, style: Style) -> String {
    let forward = &report.path.forward;
    let facts = [
        forward.rate.map_or_else(|| "a path without a rate".to_owned(), |rate| rate.to_string()),
        format!(" × {}", report.path.rtt()),
        forward.queue.map_or_else(String::new, |queue| format!(", queue {queue}")),
        forward.loss.map_or_else(String::new, |loss| format!(", loss {loss}")),
        format!(", MTU {}", forward.mtu.get()),
    ];
    let mut text = wrapped(&format!("Path: {}", facts.concat()), 0, str::to_owned);
    if report.inferred.is_empty() {
        return text;
    }
    text += &style.dim("Not in the record, but inferred or assumed:\n");
    let mut table = Table::new(&[("", Align::Left), ("", Align::Left)]);
    for Inferred { key, value, why } in &report.inferred {
        let shown = match key.as_str() {
            "sender" | "receiver" => format!("{value}, "),
            _ => String::new(),
        };
        table.row([printable(key), format!("{shown}{why}")]);
    }
    text + &table.render(2, str::to_owned)
}

/// The measurement and its simulations as rows. If they are wider than a terminal, the range of the rates is left out,
/// then the retransmissions.
fn rows(report: &WhatIfReport, style: Style) -> String {
    let before = report.simulations.first().map(|first| first.rate.median);
    let kind = |limit: Option<Candidate>| or_dash(limit.map(|limit| limit.kind.name().to_owned()));
    let measured = &report.measured;
    let mut rows = vec![[
        "measured".to_owned(),
        measured.rate.to_string(),
        String::new(),
        String::new(),
        or_dash(measured.retransmits.map(|count| count.get().to_string())),
        or_dash(measured.loaded_rtt.map(round_trip)),
        kind(measured.limit),
    ]];
    for (index, transfer) in report.simulations.iter().enumerate() {
        let name = transfer.name.as_deref().unwrap_or_default();
        let gain = before
            .filter(|before| index > 0 && *before > BitRate::ZERO)
            .map(|before| transfer.rate.median.relative_to(before));
        let several = transfer.seeds > 1;
        rows.push([
            if index == 0 { format!("simulated {name}") } else { printable(name) },
            transfer.rate.median.to_string(),
            if several { range(transfer.rate.low, transfer.rate.high) } else { String::new() },
            gain.map_or_else(String::new, |gain| format!("{gain:.2}")),
            transfer.retransmits.median.get().to_string(),
            or_dash(transfer.loaded_rtt.map(round_trip)),
            kind(transfer.limit),
        ]);
    }
    let columns = WHAT_IF_HEADS.iter().enumerate().map(|(index, &(head, align))| {
        let cells = rows.iter().filter_map(|row| row.get(index).cloned()).collect();
        Column { head, align, cells }
    });
    let columns = columns.filter(|column| column.cells.iter().any(|cell| !cell.is_empty())).collect();
    let table = columns_table(columns, &["range", "resent"]).render(0, |head| style.bold(head));
    format!("\n{table}{}{}", not_modelled(report, style), warnings(&report.simulations, style))
}

const WHAT_IF_HEADS: [(&str, Align); 7] = [
    ("", Align::Left),
    ("rate", Align::Right),
    ("range", Align::Right),
    ("×", Align::Right),
    ("resent", Align::Right),
    ("RTT", Align::Right),
    ("limit", Align::Left),
];

fn not_modelled(report: &WhatIfReport, style: Style) -> String {
    let sentence = match report.not_modelled.as_slice() {
        [] => return String::new(),
        [only] if only == "none" => "No remedies to simulate.".to_owned(),
        several => format!("Not modelled: {}", several.join(", ")),
    };
    wrapped(&sentence, 0, |line| style.dim(line))
}
