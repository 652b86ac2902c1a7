//! The formula of each ceiling, for a reader.

use fullpipe_record::{Ceiling, Limit};
use fullpipe_units::{BitRate, Ratio};

use crate::ceilings::{Ceilings, Figures};
use crate::connection::Connection;
use crate::kernel::largest_window;
use crate::loss::CongestionControl;

/// The ceilings with their words, lowest first.
pub(crate) fn explained(ceilings: &Ceilings, connection: &Connection) -> Vec<Ceiling> {
    let explain = |figures: &Figures| Ceiling {
        kind: figures.kind,
        textbook: figures.textbook,
        kernel_model: figures.kernel_model,
        low: figures.low,
        high: figures.high,
        window: figures.window,
        formula: formula(figures, connection),
    };
    let mut explained: Vec<Ceiling> = ceilings.all().map(explain).collect();
    explained.sort_by_key(|ceiling| ceiling.kernel_model);
    explained
}

fn formula(figures: &Figures, connection: &Connection) -> String {
    match figures.kind {
        Limit::ReceiveWindow => per_round_trip(&receive_window(connection), connection),
        Limit::SendBuffer => per_round_trip(&send_buffer(connection), connection),
        Limit::Loss => per_round_trip(&loss(figures, connection), connection),
        Limit::SenderApplication => asked("asked of the program", connection.request.rate, connection),
        Limit::Pacing => asked("maximum pace", connection.request.pacing, connection),
        _ => capacity(figures, connection),
    }
}

fn asked(what: &str, rate: Option<BitRate>, connection: &Connection) -> String {
    format!("{} {what}{}", rate.unwrap_or_default(), times(connection))
}

fn times(connection: &Connection) -> String {
    match connection.request.streams {
        1 => String::new(),
        streams => format!(" × {streams} streams"),
    }
}

fn per_round_trip(source: &str, connection: &Connection) -> String {
    format!("{source} ÷ {}{}", connection.rtt, times(connection))
}

/// Returns the source of the advertised window: the buffer, or the scale if that says less.
fn receive_window(connection: &Connection) -> String {
    let buffer = connection.receive;
    let in_flight = connection.allowed_in_flight();
    let said = largest_window(buffer.scale());
    if said < buffer.share().window(buffer.space()) {
        return match buffer.scale() {
            Some(scale) => format!("{in_flight} in flight ({said} at window scale {scale})"),
            None => format!("{in_flight} in flight ({said} without window scaling)"),
        };
    }
    let name = match connection.fixed {
        Some(_) => "SO_RCVBUF",
        None if connection.receiver.moderate_rcvbuf => "tcp_rmem",
        None => "untuned tcp_rmem",
    };
    format!("{in_flight} in flight ({name} {} × {})", buffer.space(), buffer.share().ratio())
}

fn send_buffer(connection: &Connection) -> String {
    let name = if connection.fixed.is_some() { "SO_SNDBUF" } else { "tcp_wmem" };
    format!("{name} {} × {}", connection.send, connection.send_fill().mid)
}

fn capacity(figures: &Figures, connection: &Connection) -> String {
    let probing = match connection.uses() {
        Ratio::ONE => String::new(),
        uses => format!(" × {uses}"),
    };
    let lost = match (connection.control, connection.path.forward.loss) {
        (CongestionControl::Bbr, Some(loss)) if loss > Ratio::ZERO => format!(" less {loss} lost"),
        _ => String::new(),
    };
    format!("{} × {}{probing}{lost}", figures.textbook, connection.efficiency())
}

fn loss(figures: &Figures, connection: &Connection) -> String {
    let kept = figures.window.unwrap_or_default();
    let share = connection.path.forward.loss.unwrap_or_default();
    format!("{kept} of {} under {share} loss", connection.control.name())
}
