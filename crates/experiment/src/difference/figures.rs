use fullpipe_record::{ComparedRun, ComparedSide};

use crate::prelude::*;

/// The figures of a run that are compared.
#[derive(Debug, Clone)]
pub(super) struct RunFigures {
    id: String,
    started: String,
    whole: BitRate,
    steady: Option<BitRate>,
    rtt_median: Option<Span>,
    rtt_p99: Option<Span>,
    retransmits: Option<SegCount>,
    limit: Option<Limit>,
}

impl RunFigures {
    pub(super) fn from_measurement(measurement: &Measurement) -> Self {
        let summary = &measurement.summary;
        let is_udp = measurement.request.transport == Transport::Udp;
        Self {
            id: measurement.id.clone(),
            started: measurement.started.clone(),
            whole: if is_udp {
                measurement.arrival_rate()
            } else {
                summary.rate
            },
            steady: summary.steady.map(|steady| steady.rate).filter(|_| !is_udp),
            rtt_median: measurement.rtt.loaded.map(|rtt| rtt.median),
            rtt_p99: measurement.rtt.loaded.map(|rtt| rtt.p99),
            retransmits: summary.retransmits,
            limit: measurement.limit.as_ref().map(|verdict| verdict.kind),
        }
    }

    /// Returns true if the run has a steady part.
    pub(super) fn is_steady(&self) -> bool {
        self.steady.is_some()
    }

    /// Returns the run as it is recorded, with the rate of its steady part if `is_steady`.
    pub(super) fn into_compared_run(
        self,
        side: ComparedSide,
        pair: Option<u32>,
        is_steady: bool,
    ) -> ComparedRun {
        let rate = self.steady.filter(|_| is_steady).unwrap_or(self.whole);
        let Self {
            id,
            started,
            rtt_median,
            rtt_p99,
            retransmits,
            limit,
            ..
        } = self;
        ComparedRun {
            side,
            pair,
            id,
            started,
            rate,
            rtt_median,
            rtt_p99,
            retransmits,
            limit,
        }
    }
}

/// Returns why a run may not be compared; `None` if it may.
pub(super) fn invalidity_reason(measurement: &Measurement) -> Option<String> {
    let broken_off = measurement
        .broken_off
        .as_ref()
        .map(|why| format!("it broke off: {why}"));
    let interrupted = measurement
        .interrupted
        .then(|| "it was interrupted".to_owned());
    let invalid = measurement
        .validity
        .broken
        .first()
        .map(|why| format!("it is invalid: {why}"));
    broken_off.or(interrupted).or(invalid)
}
