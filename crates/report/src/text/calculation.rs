//! Answers of the calculator: one in full, or many as a table.

use fullpipe_record::{
    Buffer, Calculation, Change, Combination, Improvement, Inputs, Leg, Need, Quantity, Side,
    Solved, Value, WhatIf,
};

use super::completion::{efficiency_sentence, forecast_time};
use super::prediction::{assumption_notes, ceiling_chart, chart_above};
use super::prelude::*;

/// A calculation: the equation's answer, what the hosts would make of the path and what lifts that,
/// what-ifs, what the target takes, and the settings that yield the window.
pub fn calculation_text(solved: &Calculation) -> String {
    [
        bold_paragraph(&equation_answer(solved), 0),
        between_hosts(solved),
        what_ifs(&solved.what_ifs),
        target_needs(solved),
        linux_settings(solved),
    ]
    .concat()
}

/// Combinations as rows: what differs between them, the rates by textbook and by kernel, and the
/// limit.
///
/// If the columns are wider than a terminal, first the BDP is left out, then the textbook's rate,
/// then the limit; JSON and CSV have them all.
pub fn combination_table(rows: &[Combination]) -> String {
    let heads = INPUTS.map(|(head, _)| format!(">{head}|")).concat();
    let rows = rows.iter().map(combination_cells);
    TextTable::from_rows(&(heads + ">BDP|>textbook|>kernel model|>time|limit"), rows)
        .without_constant(INPUTS.len())
        .without_unknown()
        .without_excess(&["BDP", "textbook", "limit"])
        .render(0)
}

fn equation_answer(solved: &Calculation) -> String {
    let Calculation {
        rtt,
        window,
        rate,
        inputs,
        ..
    } = solved;
    let each = inputs.streams.filter(|streams| *streams > 1);
    let each = each.map_text(|streams| format!(" in each of {streams} streams"));
    let how = match (stated_window(inputs), inputs.loss) {
        (Some(stated), _) => format!("{stated}{each}"),
        (None, Some(loss)) => format!("A window of {window}, which {loss} loss leaves,{each}"),
        (None, None) => format!("A window of {window}{each}"),
    };
    if solved.solved == Solved::Rate
        && let (true, Some(size), Some(time)) =
            (short_transfer(solved).is_some(), inputs.size, solved.time)
    {
        return format!("{size} over {rtt} take {time}, on average {rate}.");
    }
    match (solved.solved, solved.bandwidth.or(solved.target)) {
        (Solved::Window, Some(wanted)) => {
            format!(
                "{wanted} × {rtt} needs a window of {window} ({} bytes){each}.",
                window.get()
            )
        }
        (Solved::Window, None) => format!(
            "{rtt} needs a window of {window} ({} bytes){each}.",
            window.get()
        ),
        (Solved::Rtt, Some(wanted)) => format!("{how} fills {wanted} up to a round trip of {rtt}."),
        _ => match solved.bandwidth {
            Some(bandwidth) => format!("{how} over {rtt} gives {rate} of {bandwidth}."),
            None => format!("{how} over {rtt} gives {rate}."),
        },
    }
}

/// Returns the windows and requests for buffers that were stated, as the subject of a sentence;
/// `None` where none was.
fn stated_window(inputs: &Inputs) -> Option<String> {
    let of_programs = inputs.stated;
    let pause = of_programs
        .pause
        .map_text(|pause| format!(" and a pause of {pause}"));
    let stated = [
        of_programs.app_window.map(|window| match window.request {
            ByteCount::ZERO => format!("an application's window of {window}{pause}"),
            _ => format!("{window} under way{pause}"),
        }),
        inputs.window.map(|size| format!("a window of {size}")),
        inputs
            .buffer
            .map(|size| format!("a buffer request of {size}")),
        of_programs
            .sndbuf
            .map(|size| format!("a send buffer request of {size}")),
        of_programs
            .rcvbuf
            .map(|size| format!("a receive buffer request of {size}")),
    ];
    let stated: Vec<String> = stated.into_iter().flatten().collect();
    (!stated.is_empty()).then(|| capitalise_first(&stated.join(" with ")))
}

fn between_hosts(solved: &Calculation) -> String {
    let short = short_transfer(solved);
    let mut text = heading_line("What the hosts make of that path")
        + &match &short {
            Some(outcome) => chart_above(outcome, &solved.prediction),
            None => ceiling_chart(&solved.prediction),
        };
    // What lifts the steady rate is no help to a transfer that ends before.
    let improvement = improvement_sentence(solved).filter(|_| short.is_none());
    for line in [improvement, transfer_duration(solved)]
        .into_iter()
        .flatten()
    {
        text += &paragraph(&line, 4);
    }
    text + &assumption_notes(&solved.prediction)
}

/// Returns the outcome of a transfer that ends within its ramp; `None` of any other.
fn short_transfer(solved: &Calculation) -> Option<String> {
    let (size, time) = (solved.inputs.size?, solved.time?);
    let ramp = solved.prediction.ramp;
    (size < ramp.bytes).then(|| {
        format!(
            "{} of payload on average, limited by {}: the transfer ends within its ramp of {} ({} round trips)",
            BitRate::from_bytes_in(size, time),
            Limit::CongestionWindow.name(),
            ramp.duration,
            ramp.rounds,
        )
    })
}

/// Returns the sentence about the changes that raise the rate, or about why there are none; `None`
/// if there is nothing to say.
fn improvement_sentence(solved: &Calculation) -> Option<String> {
    let limit = solved.prediction.limit;
    if let Some(Improvement { changes, after }) = &solved.improvement {
        let verb = if let [change] = changes.as_slice() {
            change_verb(change)
        } else {
            "lift"
        };
        let list = capitalise_first(&join_words(
            &changes.iter().map(change_phrase).collect::<Vec<_>>(),
            "and",
        ));
        let short = wants_rate(&solved.inputs)
            && solved
                .target
                .is_some_and(|target| after.kernel_model < target);
        let rest = text_if(short, "; the rest takes more bandwidth");
        return Some(format!(
            "{list} {verb} it to {} ({}){rest}.",
            after.kernel_model,
            after.limit.name()
        ));
    }
    if solved.target.is_none() {
        return lifting_change(limit).filter(|_| solved.inputs.time.is_none());
    }
    Some(match (limit, wants_rate(&solved.inputs)) {
        (_, true) if is_met(solved) => "That is enough.".to_owned(),
        (Limit::Capacity, _) if solved.inputs.stated.flow_cap.is_some() => {
            "More streams lift it, each with its own share.".to_owned()
        }
        (Limit::Capacity, true) => "Only more bandwidth lifts it.".to_owned(),
        (Limit::Capacity, false) => "The pipe is full: only more bandwidth lifts it.".to_owned(),
        (Limit::Loss, _) if solved.inputs.effects.policer.is_some() => {
            "A pace below the policer's rate loses nothing to it; who runs it may raise that rate."
                .to_owned()
        }
        _ => lifting_by_hand(limit).to_owned(),
    })
}

/// Returns the change that lifts a limit when no target is given.
fn lifting_change(limit: Limit) -> Option<String> {
    let what = match limit {
        Limit::ReceiveWindow => "A larger window lifts it",
        Limit::SendBuffer => "A larger tcp_wmem at the sender lifts it",
        Limit::Loss => "Less loss, bbr or more streams lift it",
        _ => return None,
    };
    Some(format!(
        "{what}; with --bandwidth or --rate calc says how far."
    ))
}

/// Returns a sentence about what lifts a limit that no setting of a kernel does.
fn lifting_by_hand(limit: Limit) -> &'static str {
    match limit {
        Limit::ApplicationWindow => {
            "A larger window of the program's own protocol, more requests under way or more streams lift it."
        }
        Limit::SenderApplication => "A program that waits less, or more streams, lift it.",
        Limit::ReceiverApplication => "A program that reads faster, or more streams, lift it.",
        Limit::Pacing => "A higher pace lifts it.",
        Limit::Cpu => "Less work for each byte, or streams on more processors, lift it.",
        Limit::Mtu => "A smaller MTU, or MSS clamping where the narrow link begins, lifts it.",
        _ => "Nothing that is known here lifts it.",
    }
}

fn wants_rate(inputs: &Inputs) -> bool {
    inputs.rate.is_some() || inputs.time.is_some()
}

fn is_met(solved: &Calculation) -> bool {
    match (solved.inputs.rate, solved.inputs.time) {
        (Some(rate), _) => solved.prediction.kernel_model >= rate,
        (None, Some(within)) => solved.time.is_some_and(|time| time <= within),
        (None, None) => solved.prediction.limit == Limit::Capacity,
    }
}

fn transfer_duration(solved: &Calculation) -> Option<String> {
    let (size, completion) = (solved.inputs.size?, solved.completion?);
    let wanted = match (solved.inputs.time, solved.target) {
        (Some(within), Some(rate)) => format!("; within {within} it takes {rate}"),
        (Some(within), None) => format!("; slow start alone takes longer than {within}"),
        (None, _) => String::new(),
    };
    let (time, efficiency) = (
        forecast_time(&completion),
        efficiency_sentence(size, &completion),
    );
    Some(format!(
        "{size} take {time}, slow start included{wanted}.{efficiency}"
    ))
}

/// Returns the needs of the target: those that must all hold, and those of which one is enough.
fn target_needs(solved: &Calculation) -> String {
    if solved.needs.is_empty() {
        return String::new();
    }
    let mut text =
        heading_line(&target_title(solved)) + &needs_table(["now", "needed"], &solved.needs);
    let (some, none): (Vec<&Need>, Vec<&Need>) =
        solved.alone.iter().partition(|need| need.value.is_some());
    if !some.is_empty() {
        let met = some.iter().all(|need| need.met);
        let title = if met {
            "And, with the rest as it is:"
        } else {
            "Or, with the rest as it is, one of these alone:"
        };
        text += &format!("  {title}\n{}", needs_table(["", ""], some));
    }
    if !none.is_empty() {
        let names: Vec<String> = none
            .iter()
            .map(|need| need.quantity.name().to_owned())
            .collect();
        text += &dim_paragraph(
            &format!("No other {} would do alone.", join_words(&names, "or")),
            2,
        );
    }
    text
}

fn target_title(solved: &Calculation) -> String {
    let Inputs {
        rate,
        size,
        time,
        bandwidth,
        ..
    } = &solved.inputs;
    match (rate, size.zip(*time), bandwidth) {
        (Some(rate), ..) => format!("What {rate} of payload takes"),
        (None, Some((size, time)), _) => format!("What {size} in {time} take"),
        (None, None, Some(bandwidth)) => format!("What it takes to fill {bandwidth}"),
        (None, None, None) => "What it takes".to_owned(),
    }
}

fn needs_table<'a>([now, needed]: [&str; 2], needs: impl IntoIterator<Item = &'a Need>) -> String {
    let mut table = TextTable::new(&format!("||>{now}|{needed}"));
    for need in needs {
        let mark = if need.met { "✓" } else { "✗" };
        let name = need.quantity.name().replace('-', "_");
        let side = match need.side {
            Side::AtLeast => "≥ ",
            Side::AtMost => "≤ ",
            Side::OneOf => "",
        };
        let value = need.value.as_ref();
        let value = text_or(
            value.map(|value| format!("{side}{}", value_text(value))),
            "no value will do",
        );
        let now = or_dash(need.now.as_ref().map(value_text));
        table.push_row(cells![
            mark,
            name,
            now,
            format!("{value}{}", where_set(need.quantity)),
        ]);
    }
    table.render(4)
}

fn where_set(quantity: Quantity) -> &'static str {
    match quantity {
        Quantity::Window => " in flight, each stream",
        Quantity::TcpWmem => " at the sender",
        Quantity::TcpRmem => " at the receiver",
        Quantity::Distance => " of fibre, at best",
        _ => "",
    }
}

fn linux_settings(solved: &Calculation) -> String {
    let buffers = &solved.buffers;
    let (read, write) = (&buffers.tcp_rmem_reason, &buffers.tcp_wmem_reason);
    let rows = [
        (
            "receiver",
            maximum_text("tcp_rmem", buffers.tcp_rmem_max, read),
        ),
        (
            "sender",
            maximum_text("tcp_wmem", buffers.tcp_wmem_max, write),
        ),
        (
            "or fixed",
            format!("SO_RCVBUF request {}", exact_size(buffers.so_rcvbuf)),
        ),
    ];
    let title = format!(
        "Linux settings with room for a window of {}",
        exact_size(solved.window)
    );
    let mut text = heading_line(&title) + &pair_table(rows, 2);
    if buffers.so_rcvbuf > buffers.rmem_max {
        let cut = format!(
            "The receiver cuts such a request to {} (net.core.rmem_max).",
            exact_size(buffers.rmem_max)
        );
        text += &dim_paragraph(&cut, 2);
    }
    let payload = format!(
        "Of each packet {} bytes are payload ({} of its bytes on the wire).",
        solved.mss.get(),
        solved.efficiency
    );
    text + &dim_paragraph(&payload, 2)
}

/// Returns the maximum of a setting, with its reason if there is one.
fn maximum_text(setting: &str, size: ByteCount, reason: &str) -> String {
    let reason = format_if(!reason.is_empty(), || format!(": {reason}"));
    format!("{setting} max {}{reason}", exact_size(size))
}

fn exact_size(size: ByteCount) -> String {
    format!("{size} ({} bytes)", size.get())
}

fn what_ifs(answers: &[WhatIf]) -> String {
    if answers.is_empty() {
        return String::new();
    }
    let mut table = TextTable::new("|>|>|");
    for WhatIf {
        what,
        estimate,
        gain,
        leg,
    } in answers
    {
        let leg = match leg {
            None => "",
            Some(Leg::Outer) => " next to a host",
            Some(Leg::Middle) => " between the relays",
        };
        let time = estimate.time.map_text(|time| format!(", in {time}"));
        table.push_row(cells![
            what,
            estimate.kernel_model,
            format!("× {:.2}", gain.get()),
            format!("{}{leg}{time}", estimate.limit.name())
        ]);
    }
    heading_line("What if") + &table.render(2)
}

fn change_phrase(change: &Change) -> String {
    match change {
        Change::TcpRmemMax(size) => format!("a tcp_rmem of {size} at the receiver"),
        Change::TcpWmemMax(size) => format!("a tcp_wmem of {size} at the sender"),
        Change::WindowScaling(_) => "window scaling at both ends".to_owned(),
        Change::ModerateRcvbuf(_) => "tcp_moderate_rcvbuf at the receiver".to_owned(),
        Change::SocketBuffer(Buffer::Automatic) => "buffers left to the kernel".to_owned(),
        Change::SocketBuffer(Buffer::Request(size)) => format!("a buffer request of {size}"),
        Change::SocketBuffer(Buffer::Window(size)) => format!("a window of {size}"),
        Change::CongestionControl(name) => format!("congestion control {name}"),
        Change::Streams(streams) => count_noun(streams, "stream"),
        Change::Rate(Some(rate)) => format!("{rate} asked of each stream"),
        Change::Rate(None) => "no rate asked of the program".to_owned(),
        Change::MaxPacingRate(Some(pace)) => format!("a maximum pace of {pace} for each stream"),
        Change::MaxPacingRate(None) => "no maximum pace".to_owned(),
        Change::Sysctl { name, value } => format!("{name} = {value}"),
        Change::RouteMetric {
            destination,
            metric,
            value,
        } => {
            let value = text_or(*value, "no value");
            format!("{metric} {value} on the route to {destination}")
        }
        Change::Qdisc { device, kind } => format!("the queueing discipline {kind} on {device}"),
        Change::QueueLength { device, packets } => {
            format!(
                "room for {} before {device}",
                count_noun(packets.get(), "packet")
            )
        }
        Change::Offload {
            device,
            feature,
            on,
        } => {
            format!("{feature} {} on {device}", if *on { "on" } else { "off" })
        }
        Change::Mtu { device, mtu } => format!("an MTU of {} bytes on {device}", mtu.get()),
    }
}

/// Returns the verb for one change.
fn change_verb(change: &Change) -> &'static str {
    match change {
        Change::Streams(_) | Change::SocketBuffer(Buffer::Automatic) => "lift",
        _ => "lifts",
    }
}

fn value_text(value: &Value) -> String {
    match value {
        Value::Rate(rate) => rate.to_string(),
        Value::Time(time) => time.to_string(),
        Value::Distance(distance) => distance.to_string(),
        Value::Bytes(bytes) => bytes.to_string(),
        Value::Share(share) => share.to_string(),
        Value::Count(count) => count.to_string(),
        Value::Names(names) => join_words(names, "or"),
    }
}

/// `a, b and c`.
fn join_words(items: &[String], last: &str) -> String {
    match items {
        [] => String::new(),
        [one] => one.clone(),
        [before @ .., end] => format!("{} {last} {end}", before.join(", ")),
    }
}

fn capitalise_first(text: &str) -> String {
    let mut letters = text.chars();
    letters
        .next()
        .map_text(|first| first.to_uppercase().chain(letters).collect())
}

/// Returns all quantities of a combination, and what it comes to.
fn combination_cells(row: &Combination) -> Vec<String> {
    let estimate = &row.estimate;
    let inputs = INPUTS.iter().map(|(_, cell)| or_dash(cell(&row.inputs)));
    let answers = cells![
        or_dash(row.bdp),
        estimate.textbook,
        estimate.kernel_model,
        or_dash(estimate.time),
        estimate.limit.name()
    ];
    inputs.chain(answers).collect()
}

type Cell = fn(&Inputs) -> Option<String>;

/// The quantities that may differ, with the heads of their columns.
const INPUTS: [(&str, Cell); 14] = [
    ("bandwidth", |inputs| figure_text(inputs.bandwidth)),
    ("rtt", |inputs| figure_text(inputs.rtt)),
    ("distance", |inputs| figure_text(inputs.distance)),
    ("window", |inputs| figure_text(inputs.window)),
    ("buffer", |inputs| figure_text(inputs.buffer)),
    ("sndbuf", |inputs| figure_text(inputs.stated.sndbuf)),
    ("rcvbuf", |inputs| figure_text(inputs.stated.rcvbuf)),
    ("app window", |inputs| figure_text(inputs.stated.app_window)),
    ("pause", |inputs| figure_text(inputs.stated.pause)),
    ("loss", |inputs| figure_text(inputs.loss)),
    ("mtu", |inputs| inputs.mtu.map(|mtu| mtu.get().to_string())),
    ("streams", |inputs| figure_text(inputs.streams)),
    ("congestion", |inputs| inputs.congestion.clone()),
    ("size", |inputs| figure_text(inputs.size)),
];
