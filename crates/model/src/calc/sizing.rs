//! The window that a rate takes, and the buffers that hold it.

use crate::improvement::WindowConstraint;
use crate::loss::CongestionControl;
use crate::prelude::*;

use super::case::{HostPair, PredictorCase};

/// The window that each stream needs in flight for `rate` of all together: in proportion to the one
/// that fills the link, or, where the bandwidth is not known, to the one that there is.
pub(crate) fn window_for(rate: BitRate, prediction: &Prediction) -> Option<ByteCount> {
    let full = prediction.window_needed;
    let (window, ceiling) = match full.zip(prediction.find_ceiling(Limit::Capacity)) {
        Some(full) => full,
        None => lower_window(prediction).and_then(|ceiling| Some((ceiling.window?, ceiling)))?,
    };
    let times = rate.as_f64() / ceiling.kernel_model.as_f64();
    times
        .is_finite()
        .then(|| window.scale_by(times) + ByteCount::new(1))
}

/// Returns the ceiling of the lower of the two windows that receiver and sender allow.
pub(crate) fn lower_window(prediction: &Prediction) -> Option<&fullpipe_record::Ceiling> {
    let windows = [Limit::ReceiveWindow, Limit::SendBuffer]
        .into_iter()
        .filter_map(|kind| prediction.find_ceiling(kind));
    windows.min_by_key(|ceiling| ceiling.kernel_model)
}

/// Returns the maximum of `tcp_wmem` or `tcp_rmem` for the payload `rate` of all streams: what
/// verdicts and the advice for a host recommend for the same path too. `None` if `constraint` is
/// neither of these settings, or if the prediction yields no window.
///
/// The maximum is reckoned from the stream's share of the BDP, and not from what a congestion
/// control may have in flight beyond it: the kernel's factor on the window covers that.
pub(crate) fn maximum_for(
    constraint: WindowConstraint,
    rate: BitRate,
    inputs: &Inputs,
    hosts: &HostPair,
) -> Option<ByteCount> {
    let prediction = PredictorCase::from_inputs(inputs).prediction(hosts);
    let window = prediction
        .bdp_of_each(inputs.streams.unwrap_or(1))
        .or_else(|| window_for(rate, &prediction))?;
    constraint.maximum_for(
        window,
        congestion_control(inputs, &hosts.sender),
        &hosts.receiver,
    )
}

/// Returns the congestion control whose formulas apply: that of the inputs, or else that of the
/// sender; Reno, as in the predictor, if the model has no formulas for it.
pub(crate) fn congestion_control(inputs: &Inputs, sender: &HostSettings) -> CongestionControl {
    let name = control_name(inputs, sender);
    CongestionControl::from_name(name).unwrap_or(CongestionControl::Reno)
}

/// Returns the name of the congestion control of the inputs, or else of the sender's.
pub(crate) fn control_name<'a>(inputs: &'a Inputs, sender: &'a HostSettings) -> &'a str {
    inputs
        .congestion
        .as_deref()
        .unwrap_or(&sender.congestion_control)
}
