//! The report of a copy.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fullpipe_record::{CopyLimit, CopyReport, CopyTransport};
use fullpipe_units::{BitRate, ByteCount, SegCount, Span, to_hexadecimal};

use super::NearCopy;
use crate::session::BothFigures;
use crate::summary::{Figures, is_limited};

/// The way that data took, for the report.
pub(super) struct DataRoute {
    pub(super) transport: CopyTransport,
    pub(super) rtt: Option<Span>,
    pub(super) reason: String,
    pub(super) streams: u16,
    /// Time until it was there.
    pub(super) set_up: Duration,
}

impl NearCopy {
    pub(super) fn to_report(
        &self,
        way: DataRoute,
        figures: BothFigures,
        duration: Duration,
    ) -> CopyReport {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (tally, data) = (&self.tally, duration.saturating_sub(way.set_up));
        let transferred = ByteCount::new(count(&tally.verified));
        let saved = ByteCount::new(count(&tally.saved));
        let crossed = transferred.saturating_sub(saved);
        let rate = BitRate::from_bytes_in(transferred, data.into());
        let has_crossed = transferred > ByteCount::ZERO;
        let crossing_rate = BitRate::from_bytes_in(crossed, data.into());
        let limit = if has_crossed {
            self.limit_at(crossing_rate, &way, &figures, data)
        } else {
            None
        };
        let files = count(&tally.files);
        let transport = if figures.sender.changed_to_quic {
            CopyTransport::Quic
        } else {
            way.transport
        };
        CopyReport {
            dry_run: self.options.dry_run,
            files,
            bytes: ByteCount::new(count(&tally.bytes)),
            transferred,
            saved,
            present: count(&tally.present),
            deleted: count(&tally.deleted),
            failed: count(&tally.failed),
            failures: tally.failure_names(),
            left_out: count(&tally.left_out),
            left_out_entries: tally.left_out_entries(),
            duration: duration.into(),
            set_up: way.set_up.into(),
            rate,
            digest: tally
                .last_digest()
                .filter(|_| files == 1)
                .map(|digest| to_hexadecimal(&digest)),
            transport: has_crossed.then_some(transport),
            streams: way.streams,
            reason: way.reason,
            rtt: way.rtt,
            congestion_control: figures.sender.congestion_control,
            retransmitted: SegCount::new(figures.sender.retransmitted),
            gave_way: figures.sender.gave_way,
            limit,
        }
    }
    /// Returns the limit of a copy that has crossed at `rate`, in the time `data`.
    fn limit_at(
        &self,
        rate: BitRate,
        way: &DataRoute,
        figures: &BothFigures,
        data: Duration,
    ) -> Option<CopyLimit> {
        match way.transport {
            _ if is_limited(rate, self.options.limit) => Some(CopyLimit::RateLimit),
            CopyTransport::Ssh => Some(CopyLimit::Ssh),
            // Its windows are not sampled.
            CopyTransport::Call => None,
            _ => Some(Figures::copy_limit(
                &figures.sender,
                &figures.receiver,
                way.streams,
                data,
            )),
        }
    }
}
