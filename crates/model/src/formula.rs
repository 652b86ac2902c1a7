//! The formula of each ceiling, for a reader.

use fullpipe_record::{Ceiling, Limit};
use fullpipe_units::{OptionText, Ratio};

use crate::ceilings::{CeilingFigures, ConnectionCeilings};
use crate::connection::ConnectionTerms;
use crate::kernel::largest_window;
use crate::loss::CongestionControl;

/// The ceilings with their words, lowest first.
pub(crate) fn explain_ceilings(
    ceilings: &ConnectionCeilings,
    connection: &ConnectionTerms,
) -> Vec<Ceiling> {
    let mut explained: Vec<Ceiling> = ceilings
        .iter_figures()
        .map(|figures| Ceiling {
            kind: figures.kind,
            textbook: figures.textbook,
            kernel_model: figures.kernel_model,
            low: figures.low,
            high: figures.high,
            window: figures.window,
            formula: ceiling_formula(figures, connection),
        })
        .collect();
    explained.sort_by_key(|ceiling| ceiling.kernel_model);
    explained
}

fn ceiling_formula(figures: &CeilingFigures, connection: &ConnectionTerms) -> String {
    if let Some((rate, name)) = figures.stated {
        return format!("{rate} {name}{}", streams_factor(connection));
    }
    match figures.kind {
        Limit::ReceiveWindow => {
            let used = connection.share_of_window_used(connection.allowed_in_flight());
            per_round_trip(
                &(receive_window(connection) + &used_share(used)),
                connection,
            )
        }
        Limit::SendBuffer => per_round_trip(
            &(send_buffer(connection) + &used_share(connection.sending_share().get())),
            connection,
        ),
        Limit::ApplicationWindow | Limit::SenderApplication => program_formula(connection),
        Limit::Loss if figures.window.is_none() => policer_formula(figures, connection),
        Limit::Loss => per_round_trip(&loss_formula(figures, connection), connection),
        Limit::Mtu => "no full segment passes the narrow link, which says nothing".to_owned(),
        _ => capacity_formula(figures, connection),
    }
}

/// Returns what a policer passes, and the share of it that its drops leave.
fn policer_formula(figures: &CeilingFigures, connection: &ConnectionTerms) -> String {
    let payload = connection.payload_share();
    let used = figures
        .kernel_model
        .relative_to(figures.textbook.scale_by(payload.get()));
    format!(
        "{} policer × {payload}{}",
        figures.textbook,
        used_share(used)
    )
}

fn streams_factor(connection: &ConnectionTerms) -> String {
    match connection.request.streams {
        1 => String::new(),
        streams => format!(" × {streams} streams"),
    }
}

/// Returns the factor for the share of a ceiling that is used, so that the formula gives the rate
/// next to it.
fn used_share(share: f64) -> String {
    /// From here on the factor is less than the rounding of the others.
    const PRACTICALLY_ALL: f64 = 0.999;
    if share >= PRACTICALLY_ALL {
        String::new()
    } else {
        format!(" × {}", Ratio::new(share))
    }
}

fn per_round_trip(source: &str, connection: &ConnectionTerms) -> String {
    format!(
        "{source} ÷ {}{}",
        connection.rtt,
        streams_factor(connection)
    )
}

/// Returns the source of the advertised window: the buffer, or the scale if that says less.
fn receive_window(connection: &ConnectionTerms) -> String {
    let buffer = connection.receive;
    let in_flight = connection.allowed_in_flight();
    let free = buffer.in_flight(connection.mss);
    if connection.arriving_window(free) != free {
        return format!("{in_flight} in flight (of {free}, changed on the way)");
    }
    let said = largest_window(buffer.window_shift());
    if said
        < buffer
            .window_share()
            .window_from_space(buffer.buffer_bytes())
    {
        return match buffer.window_shift() {
            Some(scale) => format!("{in_flight} in flight ({said} at window scale {scale})"),
            None => format!("{in_flight} in flight ({said} without window scaling)"),
        };
    }
    let name = match connection.rcvbuf {
        Some(_) => "SO_RCVBUF",
        None if connection.receiver.system.is_some() => "receive buffer",
        None if connection.receiver.moderate_rcvbuf => "tcp_rmem",
        None => "untuned tcp_rmem",
    };
    format!(
        "{in_flight} in flight ({name} {} × {})",
        buffer.buffer_bytes(),
        buffer.window_share().as_ratio()
    )
}

fn send_buffer(connection: &ConnectionTerms) -> String {
    let name = match connection.sndbuf {
        Some(_) => "SO_SNDBUF",
        None if connection.sender.system.is_some() => "send buffer",
        None => "tcp_wmem",
    };
    format!(
        "{name} {} × {}",
        connection.send,
        connection.send_fill().mid
    )
}

/// Returns what the programs let be under way ÷ the time between a request and the next.
fn program_formula(connection: &ConnectionTerms) -> String {
    let window = connection
        .request
        .stated_load()
        .app_window
        .map_text(|window| window.to_string());
    format!(
        "{window} under way ÷ {}{}",
        connection.program_round().unwrap_or_default(),
        streams_factor(connection)
    )
}

fn capacity_formula(figures: &CeilingFigures, connection: &ConnectionTerms) -> String {
    let probing = used_share(connection.sending_share().get());
    let lost = match (connection.control, connection.path.forward.loss) {
        (CongestionControl::Bbr, Some(loss)) if loss > Ratio::ZERO => format!(" less {loss} lost"),
        _ => String::new(),
    };
    format!(
        "{} × {}{probing}{lost}",
        figures.textbook,
        connection.payload_share()
    )
}

fn loss_formula(figures: &CeilingFigures, connection: &ConnectionTerms) -> String {
    let kept = figures.window.unwrap_or_default();
    let share = connection.loss_events();
    let kind = if share == connection.path.forward.loss {
        "loss"
    } else {
        "of loss events"
    };
    format!(
        "{kept} of {} under {} {kind}",
        connection.control.display_name(),
        share.unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use fullpipe_record::Request;
    use fullpipe_units::{BitRate, ByteCount, Span};

    use super::*;
    use crate::{predict, test_fixture};

    /// Returns the value of a printed formula: sizes are bytes, times seconds, rates bit/s.
    fn value(formula: &str) -> f64 {
        // What stands in brackets says where a size comes from.
        let open = formula
            .find(" in flight (")
            .map(|at| (at, formula.find(')').unwrap() + 1));
        let bare = open.map_or_else(
            || formula.to_owned(),
            |(at, end)| formula[..at].to_owned() + &formula[end..],
        );
        let bare = bare.trim_start_matches("tcp_wmem ").replace(" streams", "");
        let mut operation = "×";
        let mut words = bare.split(' ');
        let mut total = 1.0;
        while let Some(number) = words.next() {
            let unit = words
                .clone()
                .next()
                .filter(|word| !["×", "÷"].contains(word));
            let term = unit.map_or_else(
                || number.parse().unwrap(),
                |unit| quantity(&format!("{number} {unit}")),
            );
            if unit.is_some() {
                words.next();
            }
            total = if operation == "×" {
                total * term
            } else {
                total / term
            };
            operation = words.next().unwrap_or_default();
        }
        total
    }

    fn quantity(text: &str) -> f64 {
        let bits = |size: ByteCount| size.as_f64() * 8.0;
        let of_rate = || text.parse::<BitRate>().ok().map(BitRate::as_f64);
        let of_time = || text.parse::<Span>().ok().map(Span::as_secs_f64);
        let of_size = || text.parse::<ByteCount>().ok().map(bits);
        let of_share = || text.parse::<Ratio>().ok().map(Ratio::get);
        of_share()
            .or_else(of_rate)
            .or_else(of_time)
            .or_else(of_size)
            .unwrap_or_else(|| panic!("{text:?}"))
    }

    #[test]
    fn a_formula_comes_to_the_rate_next_to_it() {
        // Under BBR `tcp_wmem 4 MiB × 96.86 % ÷ 100 ms`, which is 324.9 Mbit/s, stood next to 312.
        for (control, mbps, millis, streams) in [
            ("bbr", 1000, 100, 1),
            ("bbr", 100, 5, 2),
            ("cubic", 100, 5, 1),
            ("cubic", 1000, 200, 4),
        ] {
            let host = test_fixture::default_settings("6.18.44");
            let path =
                test_fixture::ethernet_path(BitRate::from_mbps(mbps), Span::from_millis(millis));
            let request = Request {
                congestion: Some(control.to_owned()),
                streams,
                ..Request::default()
            };
            for ceiling in predict(&path, &host, &host, &request).ceilings {
                let (printed, shown) = (value(&ceiling.formula), ceiling.kernel_model.as_f64());
                assert!(
                    (printed / shown - 1.0).abs() < 0.002,
                    "{control}: {} is not {shown}",
                    ceiling.formula
                );
            }
        }
    }
}
