//! Each ceiling on the rate, by the textbook and by the running kernel.

use fullpipe_record::{Buffer, Ceiling, Limit};
use fullpipe_units::{ByteCount, Ratio};

use crate::connection::Connection;
use crate::kernel::{largest_window, payload_share, writer_fill};
use crate::loss::{self, CongestionControl};
use crate::{Likely, window};

/// What probing for the round-trip time costs BBR: at most 200 ms in 10 s, and what it drains before.
const BBR_FILLS: f64 = 0.98;

/// Every ceiling that is known, in no order.
pub(crate) fn ceilings(connection: &Connection) -> Vec<Ceiling> {
    [Some(receive_window(connection)), Some(send_buffer(connection)), capacity(connection), loss(connection)]
        .into_iter()
        .flatten()
        .collect()
}

fn receive_window(connection: &Connection) -> Ceiling {
    let buffer = connection.receive;
    let advertised = match connection.request.buffer {
        Buffer::Window(wanted) => wanted.min(buffer.advertised()),
        Buffer::Automatic | Buffer::Request(_) => buffer.advertised(),
    };
    let in_flight = buffer.in_flight(connection.mss);
    let source = format!("{in_flight} in flight ({})", advertised_source(connection));
    let windows = Windows { plain: advertised, refined: in_flight };
    per_stream(connection, Limit::ReceiveWindow, &windows, Likely::by_rule(), &source)
}

/// Where the advertised window comes from: the buffer, or the scale if that says less.
fn advertised_source(connection: &Connection) -> String {
    let buffer = connection.receive;
    let said = largest_window(buffer.scale());
    if said < buffer.share().window(buffer.space()) {
        return match buffer.scale() {
            Some(scale) => format!("{said} at window scale {scale}"),
            None => format!("{said} without window scaling"),
        };
    }
    let name = match connection.fixed {
        Some(_) => "SO_RCVBUF",
        None if connection.receiver.moderate_rcvbuf => "tcp_rmem",
        None => "untuned tcp_rmem",
    };
    format!("{name} {} × {}", buffer.space(), buffer.share().ratio())
}

fn send_buffer(connection: &Connection) -> Ceiling {
    let fill = writer_fill(connection.request.writer);
    let name = if connection.fixed.is_some() { "SO_SNDBUF" } else { "tcp_wmem" };
    let payload = payload_share(connection.path.segmentation);
    let held = connection.send.scaled(payload.get());
    let share = if payload < Ratio::ONE { format!(" × {payload}") } else { String::new() };
    let source = format!("{name} {}{share} × {}", connection.send, fill.mid.get());
    let windows = Windows { plain: connection.send, refined: held };
    per_stream(connection, Limit::SendBuffer, &windows, fill, &source)
}

fn capacity(connection: &Connection) -> Option<Ceiling> {
    let rate = connection.path.forward.rate?;
    let payload = connection.payload_capacity()?;
    let rule = Likely::by_rule();
    let (fills, probing) = match connection.control {
        CongestionControl::Bbr => (BBR_FILLS, format!(" × {BBR_FILLS}")),
        CongestionControl::Cubic | CongestionControl::Reno => (1.0, String::new()),
    };
    Some(Ceiling {
        kind: Limit::Capacity,
        plain: rate,
        refined: payload.scaled(fills),
        low: payload.scaled(fills * rule.low.get() * drop_tail_utilisation(connection).get()),
        high: payload.scaled(rule.high.get()).min(rate),
        window: None,
        because: format!("{rate} × {}{probing}", connection.efficiency()),
    })
}

/// What the congestion control makes of the link if the queue is known to be too short for its back-off and the
/// windows are large enough to overflow it.
///
/// It lowers only `low`: the figure for no queue at all is the worst case, most queues lie between it and full use, and
/// a link that the window cannot overfill loses nothing.
fn drop_tail_utilisation(connection: &Connection) -> Ratio {
    let (Some(bdp), Some(queue)) = (connection.bdp(), connection.path.forward.queue) else {
        return Ratio::ONE;
    };
    let control = connection.control;
    let together =
        connection.receive.in_flight(connection.mss).min(connection.send) * u64::from(connection.request.streams);
    let overflows = together > bdp + queue;
    if overflows && queue < bdp.scaled(control.queue_needed().get()) {
        control.utilisation_without_queue(connection.request.streams)
    } else {
        Ratio::ONE
    }
}

fn loss(connection: &Connection) -> Option<Ceiling> {
    let share = connection.path.forward.loss?;
    let kept = connection.control.window(share, connection.rtt, connection.mss)?;
    let windows = Windows { plain: loss::mathis(share, connection.mss), refined: kept };
    let source = format!("{kept} of {} under {share} loss", connection.control.name());
    let ceiling = per_stream(connection, Limit::Loss, &windows, loss::spread(share), &source);
    let high = if too_few_losses(connection).is_some() { window::UNBOUNDED } else { ceiling.high };
    Some(Ceiling { high, ..ceiling })
}

/// Losses after which a window no longer depends on where slow start left it: CUBIC comes down from 1 Gbit/s × 100 ms to
/// its share under 10⁻⁴ loss in eleven steps of 0.7.
const FORGETS_AFTER: f64 = 12.0;

/// Losses that each stream should see in the time asked for, if they are too few for the formula, which is a mean over
/// many; `None` if they are enough, or bytes and not time limit the transfer.
pub(crate) fn too_few_losses(connection: &Connection) -> Option<f64> {
    let share = connection.path.forward.loss?;
    let kept = connection.control.window(share, connection.rtt, connection.mss)?;
    let seconds = connection.request.bytes.is_none().then(|| connection.request.duration.as_secs_f64())?;
    let segments = kept.as_f64() / connection.mss.as_f64() / connection.rtt.as_secs_f64() * seconds;
    Some(segments * share.get()).filter(|losses| *losses < FORGETS_AFTER)
}

/// Bytes in flight of each stream, by the textbook and by the running kernel.
struct Windows {
    plain: ByteCount,
    refined: ByteCount,
}

/// A ceiling of one window per round trip and stream. The textbook's round trip is propagation alone; the refined one
/// has the serialisation too.
fn per_stream(connection: &Connection, kind: Limit, windows: &Windows, likely: Likely, source: &str) -> Ceiling {
    let streams = u64::from(connection.request.streams);
    let times = if streams == 1 { String::new() } else { format!(" × {streams} streams") };
    let whole = window::rate(windows.refined * streams, connection.rtt);
    Ceiling {
        kind,
        plain: window::rate(windows.plain * streams, connection.path.rtt()),
        refined: whole.scaled(likely.mid.get()),
        low: whole.scaled(likely.low.get()),
        high: whole.scaled(likely.high.get()),
        window: Some(windows.refined.scaled(likely.mid.get())),
        because: format!("{source} ÷ {}{times}", connection.rtt),
    }
}
