//! The assumptions of a prediction, and the formulas that it left for another: one sentence each.

use crate::ceilings::{ConnectionCeilings, few_losses};
use crate::connection::ConnectionTerms;
use crate::kernel::{self, WindowShare};
use crate::loss::{BBR_ABSORBS, CongestionControl, FORMULAS_HOLD_TO};
use crate::prelude::*;
use crate::systems::system_note;

/// The sizes of packet with which learnt shares were measured.
const MEASURED_MTUS: [ByteCount; 2] = [ByteCount::new(1500), ByteCount::new(9000)];

/// Every note that applies: on the windows, the path, loss, and the length of the transfer.
pub(crate) fn prediction_notes(
    connection: &ConnectionTerms,
    ceilings: &ConnectionCeilings,
    ramp: &Ramp,
) -> Vec<String> {
    let systems = [
        ("sender", connection.sender),
        ("receiver", connection.receiver),
    ]
    .map(|(end, settings)| other_system(end, settings));
    [
        scaling_off(connection),
        clamp_without_effect(connection),
        tuning_off(connection),
        request_cut(
            "SO_RCVBUF",
            "rmem_max",
            connection.rcvbuf,
            kernel::rmem_max(connection.receiver),
        ),
        request_cut(
            "SO_SNDBUF",
            "wmem_max",
            connection.sndbuf,
            kernel::wmem_max(connection.sender),
        ),
        hidden_maximum(connection),
        window_missed(connection),
        point_release(connection),
        other_packet_size(connection),
        no_payload(connection),
        bandwidth_unknown(connection),
        queue_unknown(connection),
        control_unknown(connection),
        loss_unknown(connection),
        loss_out_of_range(connection),
        losses_few(connection),
        loss_next_to_another(ceilings),
        loss_absorbed(connection),
        acknowledgements_lost(connection),
        too_short(connection, ramp),
    ]
    .into_iter()
    .chain(systems)
    .flatten()
    .collect()
}

/// Says what is assumed of an end that is not Linux, and by whom it is known.
fn other_system(end: &str, settings: &HostSettings) -> Option<String> {
    let name = settings.system.as_deref()?;
    Some(format!("the {end} is {name}. {}", system_note(name)?))
}

fn scaling_off(connection: &ConnectionTerms) -> Option<String> {
    let end = match (
        connection.sender.window_scaling,
        connection.receiver.window_scaling,
    ) {
        (true, true) => return None,
        (true, false) => "receiver",
        (false, true) => "sender",
        (false, false) => "sender and receiver",
    };
    Some(format!(
        "window scaling is off at the {end}: no window exceeds 65 535 B"
    ))
}

fn clamp_without_effect(connection: &ConnectionTerms) -> Option<String> {
    let shift = connection.receive.window_shift()?;
    let effects = &connection.path.reverse.effects;
    effects.clamp_beyond(connection.receive.max_window(), shift)
}

fn tuning_off(connection: &ConnectionTerms) -> Option<String> {
    let untuned = connection.rcvbuf.is_none() && !connection.receiver.moderate_rcvbuf;
    untuned.then(|| {
        let space = connection.receive.buffer_bytes();
        format!("tcp_moderate_rcvbuf is off at the receiver: its buffer stays at {space}")
    })
}

fn request_cut(
    option: &str,
    setting: &str,
    request: Option<ByteCount>,
    max: ByteCount,
) -> Option<String> {
    let request = request.filter(|request| *request > max)?;
    Some(format!(
        "the kernel cuts the {option} request of {request} to net.core.{setting}, {max}"
    ))
}

fn hidden_maximum(connection: &ConnectionTerms) -> Option<String> {
    let [rmem, wmem] = [
        connection.rcvbuf.is_some() && connection.receiver.rmem_max.is_none(),
        connection.sndbuf.is_some() && connection.sender.wmem_max.is_none(),
    ];
    let setting = match (rmem, wmem) {
        (false, false) => return None,
        (true, false) => "the receiver's net.core.rmem_max",
        (false, true) => "the sender's net.core.wmem_max",
        (true, true) => "the receiver's net.core.rmem_max and the sender's net.core.wmem_max",
    };
    Some(format!(
        "{setting} not visible: taken as the kernel's default"
    ))
}

/// Says so where no request gives the window that was asked for.
fn window_missed(connection: &ConnectionTerms) -> Option<String> {
    let Buffer::Window(wanted) = connection.request.receive_buffer() else {
        return None;
    };
    let got = connection.allowed_in_flight();
    let missed = got > wanted || got + connection.mss <= wanted;
    missed.then(|| {
        format!("no SO_RCVBUF makes this receiver carry a window of {wanted}: taken as {got}")
    })
}

fn point_release(connection: &ConnectionTerms) -> Option<String> {
    let fixed = connection.rcvbuf.is_some() || !connection.receiver.moderate_rcvbuf;
    (fixed && WindowShare::depends_on_point_release(connection.receiver)).then(|| {
        let kernel = connection.receiver.kernel;
        format!("point releases of Linux {kernel} differ in fixed receive buffers: the smaller window is taken")
    })
}

fn other_packet_size(connection: &ConnectionTerms) -> Option<String> {
    let mtu = connection.path.forward.mtu;
    (!MEASURED_MTUS.contains(&mtu) && WindowShare::is_learnt(connection.receiver)).then(|| {
        let share = connection.receive.window_share().as_ratio();
        format!("the advertised share was measured at MTUs of 1500 and 9000; {share} is assumed at MTU {}", mtu.get())
    })
}

fn no_payload(connection: &ConnectionTerms) -> Option<String> {
    (connection.mss == ByteCount::ZERO).then(|| "the headers leave a segment no payload".to_owned())
}

fn bandwidth_unknown(connection: &ConnectionTerms) -> Option<String> {
    let unknown = connection.path.forward.rate.is_none();
    let rest = if connection.rtt == Span::ZERO {
        "neither bandwidth nor round-trip time known: nothing bounds the rate"
    } else {
        "bandwidth not known: no capacity ceiling, and no serialisation in the round-trip time"
    };
    unknown.then(|| rest.to_owned())
}

fn queue_unknown(connection: &ConnectionTerms) -> Option<String> {
    let path = &connection.path.forward;
    let control = connection.control;
    (path.rate.is_some() && path.queue.is_none() && control.queue_needed() > Ratio::ZERO).then(
        || {
            format!(
                "queue not known: taken as long enough for {} ({} of the BDP)",
                control.display_name(),
                control.queue_needed()
            )
        },
    )
}

fn control_unknown(connection: &ConnectionTerms) -> Option<String> {
    let name = connection.control_name();
    CongestionControl::from_name(name)
        .is_none()
        .then(|| format!("no formula here for congestion control \"{name}\": taken as Reno"))
}

fn loss_unknown(connection: &ConnectionTerms) -> Option<String> {
    connection
        .path
        .forward
        .loss
        .is_none()
        .then(|| "loss not known: taken as none".to_owned())
}

fn loss_out_of_range(connection: &ConnectionTerms) -> Option<String> {
    let loss = connection.path.forward.loss?;
    let name = connection.control.display_name();
    match connection.control {
        CongestionControl::Bbr => (loss.get() > BBR_ABSORBS)
            .then(|| format!("{loss} loss is more than {name} absorbs; it has no formula there: taken as Reno")),
        _ => (loss.get() > FORMULAS_HOLD_TO).then(|| {
            format!(
                "at {loss} loss timeouts take over and {name}'s formula promises too much: Reno's with timeouts (PFTK)"
            )
        }),
    }
}

fn losses_few(connection: &ConnectionTerms) -> Option<String> {
    let losses = few_losses(connection)?;
    let length = match connection.request.bytes {
        Some(bytes) => bytes.to_string(),
        None => connection.request.duration.to_string(),
    };
    let count = if losses < 1.0 {
        "less than one loss is".to_owned()
    } else {
        format!("about {losses:.0} losses are")
    };
    Some(format!(
        "{count} expected in {length}: chance decides much, and the window that slow start leaves takes several to \
         come down, so that a transfer this short may be several times as fast"
    ))
}

/// Says so where the prediction is clearly below the lowest ceiling.
fn loss_next_to_another(ceilings: &ConnectionCeilings) -> Option<String> {
    const CLEARLY: f64 = 0.95;
    let (least, together) = (
        ceilings.lowest_figures().kernel_model,
        ceilings.combined_rate(|ceiling| ceiling.kernel_model),
    );
    (together.relative_to(least) < CLEARLY)
        .then(|| format!("loss swings the window and the next ceiling cuts its peaks: {together} instead of {least}"))
}

fn loss_absorbed(connection: &ConnectionTerms) -> Option<String> {
    let loss = connection
        .path
        .forward
        .loss
        .filter(|loss| *loss > Ratio::ZERO)?;
    (connection.control == CongestionControl::Bbr && loss.get() <= BBR_ABSORBS)
        .then(|| format!("BBR does not slow down under {loss} loss: no loss ceiling, but what is lost does not arrive"))
}

fn acknowledgements_lost(connection: &ConnectionTerms) -> Option<String> {
    let loss = connection
        .path
        .reverse
        .loss
        .filter(|loss| *loss > Ratio::ZERO)?;
    Some(format!(
        "{loss} loss of acknowledgements left out: each one covers those before it"
    ))
}

fn too_short(connection: &ConnectionTerms, ramp: &Ramp) -> Option<String> {
    connection.ends_in_ramp(ramp).then(|| {
        format!(
            "the transfer ends within its ramp of {} and {}: its mean is lower",
            ramp.duration, ramp.bytes
        )
    })
}
