//! Files and network devices of the ends.

use fullpipe_record::{DeviceReport, Limit, Machine};
use fullpipe_units::Ratio;

use crate::figures::SenderSampleFigures;
use crate::finding::LimitFinding;
use crate::thresholds::MIN_FILE_SHARE;

/// Returns the share of the transfer's time that an end spent on its file, if that was most of it.
pub(crate) fn busy_with_file(figures: &SenderSampleFigures, machine: &Machine) -> Option<Ratio> {
    let file = machine.storage?;
    let last = figures
        .evidence
        .sender_samples
        .iter()
        .map(|sample| sample.at)
        .max()?;
    let busy = Ratio::from_quotient(
        file.busy.as_secs_f64(),
        last.as_secs_f64() * f64::from(figures.stream_count()),
    );
    (busy.get() >= MIN_FILE_SHARE).then_some(busy)
}

/// Returns the sender's device, if `found` may be its doing.
pub(crate) fn suspected_device<'a>(
    figures: &SenderSampleFigures<'a>,
    found: &LimitFinding,
) -> Option<&'a DeviceReport> {
    let may_be = matches!(
        found.limit_kind(),
        Limit::Capacity | Limit::Loss | Limit::CongestionWindow | Limit::Unknown
    );
    figures
        .evidence
        .sender_machine
        .device
        .as_ref()
        .filter(|_| may_be)
}
