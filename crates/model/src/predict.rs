use fullpipe_record::Transport;

use crate::ceilings::ConnectionCeilings;
use crate::connection::ConnectionTerms;
use crate::datagrams;
use crate::formula::explain_ceilings;
use crate::notes::prediction_notes;
use crate::prelude::*;
use crate::ramp::slow_start;
use crate::window;

/// Returns the prediction for `request` over `path`, from `sender` to `receiver`: every ceiling
/// that is known, the lowest, and the steady rate of payload of all streams together.
///
/// The data goes along `path.forward`, whatever `request.direction` says: `sender` is the end that
/// sends it, also where the other one asked for it.
///
/// Every rate stands twice. *Plain* is the textbook's: window ÷ propagation time, the link's own
/// rate, Mathis. *Refined* follows the running kernel: the effective window of its buffers, the
/// writer, serialisation, framing, the formula of the congestion control under losses at random. It
/// is the lowest ceiling, and less where loss and another one lie close: losses keep the window
/// swinging, and the other cuts its peaks.
///
/// `low` and `high` bound the `kernel_model` figure: three percent either way where a rule gives
/// it, the measured range of a sleeping writer, and for loss what the formula and the number of
/// losses to be seen leave open. A queue too short for the congestion control lowers only `low`.
///
/// Datagrams have two ceilings alone: what is offered, and the link.
///
/// Nothing fails. What is not known of the path sets no ceiling, and `notes` says so.
pub fn predict(
    path: &Path,
    sender: &HostSettings,
    receiver: &HostSettings,
    request: &Request,
) -> Prediction {
    if request.transport == Transport::Udp {
        return datagrams::predict_datagrams(path, request);
    }
    let connection = ConnectionTerms::new(path, sender, receiver, request);
    let ceilings = ConnectionCeilings::from_connection(&connection);
    let outlook = RateOutlook::from_ceilings(&ceilings, &connection);
    let ramp = ramp_to(outlook.kernel_model, &connection);
    Prediction {
        bdp: connection.bdp(),
        window_needed: connection.window_needed(),
        efficiency: connection.payload_share(),
        mss: connection.mss,
        limit: outlook.limit,
        textbook: outlook.textbook,
        kernel_model: outlook.kernel_model,
        low: outlook.low,
        high: outlook.high,
        notes: prediction_notes(&connection, &ceilings, &ramp),
        ramp,
        ceilings: explain_ceilings(&ceilings, &connection),
    }
}

/// The figures of [`predict()`] alone, for those who ask for millions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateOutlook {
    /// Steady rate by the textbook's formulas.
    pub textbook: BitRate,
    /// Steady rate by the running kernel's rules.
    pub kernel_model: BitRate,
    /// The least that is likely.
    pub low: BitRate,
    /// The most that is likely.
    pub high: BitRate,
    /// The lowest ceiling.
    pub limit: Limit,
    /// True if the transfer ends within its ramp, before any of these rates is reached.
    pub ends_in_ramp: bool,
}

impl RateOutlook {
    fn from_ceilings(ceilings: &ConnectionCeilings, connection: &ConnectionTerms) -> Self {
        let kernel_model = ceilings.combined_rate(|ceiling| ceiling.kernel_model);
        Self {
            textbook: ceilings.least_rate(|ceiling| ceiling.textbook),
            kernel_model,
            ends_in_ramp: connection.ends_in_ramp(&ramp_to(kernel_model, connection)),
            low: ceilings.combined_rate(|ceiling| ceiling.low),
            high: ceilings.least_rate(|ceiling| ceiling.high),
            limit: ceilings.lowest_figures().kind,
        }
    }
}

/// Returns the figures of [`predict()`] for TCP, without text: the same figures in a
/// fraction of a microsecond.
pub fn evaluate_ceilings(
    path: &Path,
    sender: &HostSettings,
    receiver: &HostSettings,
    request: &Request,
) -> RateOutlook {
    let connection = ConnectionTerms::new(path, sender, receiver, request);
    RateOutlook::from_ceilings(
        &ConnectionCeilings::from_connection(&connection),
        &connection,
    )
}

/// Slow start of every stream at once, each to its part of `rate`.
fn ramp_to(rate: BitRate, connection: &ConnectionTerms) -> Ramp {
    let streams = u64::from(connection.request.streams);
    let together = window::bdp(rate, connection.rtt).get();
    let each = slow_start(
        ByteCount::new(together / streams.max(1)),
        connection.mss,
        connection.rtt,
    );
    Ramp {
        bytes: each.bytes * streams,
        ..each
    }
}

#[cfg(test)]
mod tests;
