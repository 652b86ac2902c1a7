//! Transfers in virtual time: as a table of what differs, with the spread of several seeds, and as
//! CSV.

use fullpipe_record::{Buffer, Candidate, Inferred, SimulatedTransfer, WhatIfReport};
use fullpipe_units::{BitRate, ByteCount, printable_line};

use super::measurement::round_trip;
use super::style::{TextStyle, heading_line, wrap_text};
use super::table::{ColumnAlignment, TableColumn, TextTable, columns_table, or_dash};

/// Transfers as rows: what differs between them, the rate, retransmissions, the round-trip time and
/// the limit.
///
/// If the columns are wider than a terminal, first the retransmissions are left out, then the
/// round-trip time, then the range of the rates; JSON and CSV have them all.
pub fn simulations_text(transfers: &[SimulatedTransfer], style: TextStyle) -> String {
    let column = |head, align, cell: &dyn Fn(&SimulatedTransfer) -> String| TableColumn {
        head,
        align,
        cells: transfers.iter().map(cell).collect(),
    };
    let inputs = INPUTS.into_iter().map(|(head, cell)| {
        column(head, ColumnAlignment::Right, &|transfer| {
            or_dash(cell(transfer))
        })
    });
    let mut columns: Vec<TableColumn> = inputs.filter(TableColumn::has_differences).collect();
    columns.push(column("rate", ColumnAlignment::Right, &|transfer| {
        transfer.rate.median.to_string()
    }));
    if transfers.iter().any(|transfer| transfer.seeds > 1) {
        columns.push(column("range", ColumnAlignment::Right, &|transfer| {
            rate_range(transfer.rate.low, transfer.rate.high)
        }));
    }
    columns.push(column("resent", ColumnAlignment::Right, &|transfer| {
        transfer.retransmits.median.get().to_string()
    }));
    columns.push(column("RTT", ColumnAlignment::Right, &|transfer| {
        or_dash(transfer.loaded_rtt.map(round_trip))
    }));
    columns.push(column("limit", ColumnAlignment::Left, &limit_cell));
    let table = columns_table(columns, &["resent", "RTT", "range"]);
    table.render(0, |head| style.bold(head)) + &simulation_warnings(transfers, style)
}

/// Returns each warning of the transfers once.
fn simulation_warnings(transfers: &[SimulatedTransfer], style: TextStyle) -> String {
    let mut all: Vec<&String> = Vec::new();
    for warning in transfers.iter().flat_map(|transfer| &transfer.warnings) {
        if !all.contains(&warning) {
            all.push(warning);
        }
    }
    all.iter()
        .map(|warning| {
            wrap_text(&format!("Warning: {warning}"), 0, |line| {
                style.mark_failure(line)
            })
        })
        .collect()
}

/// Returns the median and the range of the rates of several seeds of each transfer, and those of
/// its retransmissions.
pub fn seed_spreads(transfers: &[SimulatedTransfer], style: TextStyle) -> String {
    let spreads: String = transfers
        .iter()
        .map(|transfer| seed_spread(transfer, style))
        .collect();
    spreads + &simulation_warnings(transfers, style)
}

fn seed_spread(transfer: &SimulatedTransfer, style: TextStyle) -> String {
    let SimulatedTransfer {
        rate,
        retransmits,
        seeds,
        ..
    } = transfer;
    let name = transfer
        .name
        .as_ref()
        .map_or_else(String::new, |name| format!("{}\n", style.bold(name)));
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
        limit_cell(transfer)
    )
}

fn limit_cell(transfer: &SimulatedTransfer) -> String {
    or_dash(transfer.limit.map(|limit| limit.kind.name().to_owned()))
}

/// In Mbit/s, as the rate before it has a unit.
fn rate_range(low: BitRate, high: BitRate) -> String {
    format!("{:.2} to {:.2}", low.as_mbps(), high.as_mbps())
}

/// Returns a name for each transfer: its own, or the quantities in which the transfers differ.
pub(crate) fn transfer_names(transfers: &[SimulatedTransfer]) -> Vec<String> {
    let column = |(head, cell): &(&str, Cell)| -> Vec<String> {
        transfers
            .iter()
            .map(|transfer| {
                cell(transfer).map_or_else(String::new, |value| format!("{head} {value}"))
            })
            .collect()
    };
    let differing: Vec<Vec<String>> = INPUTS
        .iter()
        .map(column)
        .filter(|cells| cells.iter().any(|cell| Some(cell) != cells.first()))
        .collect();
    let name = |(index, transfer): (usize, &SimulatedTransfer)| {
        let parts: Vec<&str> = differing
            .iter()
            .map(|cells| cells[index].as_str())
            .filter(|part| !part.is_empty())
            .collect();
        transfer.name.clone().unwrap_or_else(|| parts.join(", "))
    };
    transfers.iter().enumerate().map(name).collect()
}

type Cell = fn(&SimulatedTransfer) -> Option<String>;

/// The quantities that may differ, with the heads of their columns.
const INPUTS: [(&str, Cell); 9] = [
    ("bandwidth", |transfer| {
        transfer.path.forward.rate.map(|rate| rate.to_string())
    }),
    ("rtt", |transfer| Some(transfer.path.rtt().to_string())),
    ("queue", queue_size),
    ("loss", |transfer| {
        transfer.path.forward.loss.map(|loss| loss.to_string())
    }),
    ("mtu", |transfer| {
        Some(transfer.path.forward.mtu.get().to_string())
    }),
    ("congestion", |transfer| transfer.request.congestion.clone()),
    ("streams", |transfer| {
        Some(transfer.request.streams.to_string())
    }),
    ("window", |transfer| {
        requested_window(transfer).map(|size| size.to_string())
    }),
    ("buffer", |transfer| {
        requested_buffer(transfer).map(|size| size.to_string())
    }),
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
    Some(format!(
        "{} BDP",
        times.trim_end_matches('0').trim_end_matches('.')
    ))
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
    let bytes =
        |size: Option<ByteCount>| size.map_or_else(String::new, |size| size.get().to_string());
    let limit = transfer
        .limit
        .map(|limit| limit.name().to_owned())
        .unwrap_or_default();
    let (kind, cause) = limit.split_once('/').unwrap_or((&limit, ""));
    [
        csv_cell(transfer.name.as_deref().unwrap_or_default()),
        forward
            .rate
            .map_or_else(String::new, |rate| rate.bps().to_string()),
        transfer.path.rtt().as_secs_f64().to_string(),
        bytes(forward.queue),
        forward
            .loss
            .map_or_else(String::new, |loss| loss.get().to_string()),
        forward.mtu.get().to_string(),
        request.congestion.clone().unwrap_or_default(),
        request.streams.to_string(),
        bytes(requested_window(transfer)),
        bytes(requested_buffer(transfer)),
        transfer.seeds.to_string(),
        rate.median.bps().to_string(),
        rate.low.bps().to_string(),
        rate.high.bps().to_string(),
        transfer.retransmits.median.get().to_string(),
        transfer
            .loaded_rtt
            .map_or_else(String::new, |rtt| rtt.as_secs_f64().to_string()),
        kind.to_owned(),
        cause.to_owned(),
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
pub fn what_if(report: &WhatIfReport, style: TextStyle) -> String {
    let heading_text = report
        .name
        .as_ref()
        .map_or_else(String::new, |name| heading_line(style, name));
    heading_text + &inferred_path(report, style) + &what_if_rows(report, style)
}

/// The path, and the reason for each value that the record does not state.
fn inferred_path(report: &WhatIfReport, style: TextStyle) -> String {
    let forward = &report.path.forward;
    let facts = [
        forward.rate.map_or_else(
            || "a path without a rate".to_owned(),
            |rate| rate.to_string(),
        ),
        format!(" × {}", report.path.rtt()),
        forward
            .queue
            .map_or_else(String::new, |queue| format!(", queue {queue}")),
        forward
            .loss
            .map_or_else(String::new, |loss| format!(", loss {loss}")),
        format!(", MTU {}", forward.mtu.get()),
    ];
    let mut text = wrap_text(&format!("Path: {}", facts.concat()), 0, str::to_owned);
    if report.inferred.is_empty() {
        return text;
    }
    text += &style.dim("Not in the record, but inferred or assumed:\n");
    let mut table = TextTable::new(&[("", ColumnAlignment::Left), ("", ColumnAlignment::Left)]);
    for Inferred { key, value, why } in &report.inferred {
        let shown = match key.as_str() {
            "sender" | "receiver" => format!("{value}, "),
            _ => String::new(),
        };
        table.push_row([printable_line(key), format!("{shown}{why}")]);
    }
    text + &table.render(2, str::to_owned)
}

/// The measurement and its simulations as rows. If they are wider than a terminal, the range of the
/// rates is left out, then the retransmissions.
fn what_if_rows(report: &WhatIfReport, style: TextStyle) -> String {
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
            if index == 0 {
                format!("simulated {name}")
            } else {
                printable_line(name)
            },
            transfer.rate.median.to_string(),
            if several {
                rate_range(transfer.rate.low, transfer.rate.high)
            } else {
                String::new()
            },
            gain.map_or_else(String::new, |gain| format!("{gain:.2}")),
            transfer.retransmits.median.get().to_string(),
            or_dash(transfer.loaded_rtt.map(round_trip)),
            kind(transfer.limit),
        ]);
    }
    let columns = WHAT_IF_HEADS
        .iter()
        .enumerate()
        .map(|(index, &(head, align))| {
            let cells = rows
                .iter()
                .filter_map(|row| row.get(index).cloned())
                .collect();
            TableColumn { head, align, cells }
        });
    let columns = columns
        .filter(|column| column.cells.iter().any(|cell| !cell.is_empty()))
        .collect();
    let table = columns_table(columns, &["range", "resent"]).render(0, |head| style.bold(head));
    format!(
        "\n{table}{}{}",
        not_modelled(report, style),
        simulation_warnings(&report.simulations, style)
    )
}

const WHAT_IF_HEADS: [(&str, ColumnAlignment); 7] = [
    ("", ColumnAlignment::Left),
    ("rate", ColumnAlignment::Right),
    ("range", ColumnAlignment::Right),
    ("×", ColumnAlignment::Right),
    ("resent", ColumnAlignment::Right),
    ("RTT", ColumnAlignment::Right),
    ("limit", ColumnAlignment::Left),
];

fn not_modelled(report: &WhatIfReport, style: TextStyle) -> String {
    let sentence = match report.not_modelled.as_slice() {
        [] => return String::new(),
        [only] if only == "none" => "No remedies to simulate.".to_owned(),
        several => format!("Not modelled: {}", several.join(", ")),
    };
    wrap_text(&sentence, 0, |line| style.dim(line))
}
