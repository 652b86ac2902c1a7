use fullpipe_record::{Calculation, Ceiling, Limit, Prediction, Solved};
use fullpipe_units::{BitRate, ByteCount};

use crate::style::{Style, heading, wrapped};
use crate::table::{Align, Table, bar};

/// Characters of the longest bar.
const BAR: usize = 10;

/// A prediction: every ceiling as a bar, the lowest named, and the ramp before it.
pub fn prediction(prediction: &Prediction, style: Style) -> String {
    let mut text = String::new();
    if let (Some(bdp), Some(window)) = (prediction.bdp, prediction.window_needed) {
        text += &wrapped(
            &format!("Bandwidth-delay product {bdp} ({} bytes); each stream needs {window} in flight.", bdp.get()),
            2,
            str::to_owned,
        );
    }
    text += &ceilings(prediction);
    // The arrow takes the place of the first line's indent, so that the text hangs behind it.
    text += &wrapped(&expected(prediction), 4, |line| style.bold(line)).replacen("    ", "  → ", 1);
    for note in &prediction.notes {
        text += &wrapped(&format!("Note: {note}"), 2, |line| style.dim(line));
    }
    text
}

/// A calculation: the equation's answer, the settings that yield it, and what this host's settings would make of the path.
pub fn calculation(solved: &Calculation, style: Style) -> String {
    let mut text = format!("{}\n\n", style.bold(&answer(solved)));
    let mut table = Table::new(&[("", Align::Left), ("", Align::Left)]);
    let buffers = &solved.buffers;
    let bytes = |size: ByteCount| format!("{size} ({} bytes)", size.get());
    table.row(["receiver".to_owned(), format!("tcp_rmem max {}", bytes(buffers.tcp_rmem_max))]);
    table.row(["sender".to_owned(), format!("tcp_wmem max {}", bytes(buffers.tcp_wmem_max))]);
    table.row(["or fixed".to_owned(), format!("SO_RCVBUF request {}", bytes(buffers.so_rcvbuf))]);
    text += &wrapped(
        &format!("Settings that allow a window of {} on this kernel:", bytes(solved.window)),
        2,
        str::to_owned,
    );
    text += &table.render(4, str::to_owned);
    if buffers.so_rcvbuf > buffers.rmem_max {
        let cut = format!("This host cuts such a request to {} (net.core.rmem_max).", bytes(buffers.rmem_max));
        text += &wrapped(&cut, 4, |line| style.dim(line));
    }
    text += &wrapped(
        &format!(
            "Of each packet {} bytes are payload ({} of its bytes on the wire).",
            solved.mss.get(),
            solved.efficiency
        ),
        2,
        str::to_owned,
    );
    text + &under_heading("Two hosts with this host's settings on that path", &solved.prediction, style)
}

fn answer(solved: &Calculation) -> String {
    let Calculation { rtt, window, rate, .. } = solved;
    match (solved.solved, solved.bandwidth) {
        (Solved::Window, Some(bandwidth)) => {
            format!("{bandwidth} × {rtt} needs a window of {window} ({} bytes).", window.get())
        }
        (Solved::Rtt, Some(bandwidth)) => {
            format!("A window of {window} fills {bandwidth} up to a round trip of {rtt}.")
        }
        (_, Some(bandwidth)) => format!("A window of {window} over {rtt} gives {rate} of {bandwidth}."),
        (_, None) => format!("A window of {window} over {rtt} gives {rate}."),
    }
}

/// A prediction under its heading.
pub(crate) fn under_heading(title: &str, shown: &Prediction, style: Style) -> String {
    heading(style, title) + &prediction(shown, style)
}

fn expected(prediction: &Prediction) -> String {
    let ramp = if prediction.ramp.rounds > 0 {
        format!(", after a ramp of {} ({} round trips)", prediction.ramp.duration, prediction.ramp.rounds)
    } else {
        String::new()
    };
    format!("{} of payload, limited by {}{ramp}", range(prediction), prediction.limit.name())
}

/// The refined rate, with its interval where chance makes it wide.
fn range(prediction: &Prediction) -> String {
    const WIDE: f64 = 1.2;
    if prediction.high.as_f64() > WIDE * prediction.low.as_f64() {
        format!("{} ({} to {})", prediction.refined, prediction.low, prediction.high)
    } else {
        prediction.refined.to_string()
    }
}

fn ceilings(prediction: &Prediction) -> String {
    let full = bar_scale(&prediction.ceilings);
    let mut table = Table::new(&[("", Align::Left), ("", Align::Right), ("", Align::Left), ("", Align::Left)]);
    for ceiling in &prediction.ceilings {
        table.row([
            ceiling.kind.name().to_owned(),
            ceiling.refined.to_string(),
            bar(ceiling.refined.as_f64(), full, BAR),
            ceiling.because.clone(),
        ]);
    }
    table.render(2, str::to_owned)
}

/// The longest bar stands for the capacity, or for the highest ceiling where the capacity is not known: what lies above
/// a full pipe needs no length of its own.
fn bar_scale(ceilings: &[Ceiling]) -> f64 {
    let capacity = ceilings.iter().find(|ceiling| ceiling.kind == Limit::Capacity);
    let highest = || ceilings.iter().map(|ceiling| ceiling.refined).max();
    capacity.map(|ceiling| ceiling.refined).or_else(highest).unwrap_or(BitRate::ZERO).as_f64()
}
