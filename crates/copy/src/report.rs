//! The report of a copy.

use std::time::Duration;

use fullpipe_record::{CopyLimit, CopyReport, CopyTransport};
use fullpipe_units::{BitRate, ByteCount, SegCount, Span, to_hexadecimal};

use crate::common::CopyCounts;
use crate::options::CopyOptions;
use crate::shared::SharedNumber;
use crate::summary::Figures;

/// The way that data took, for the report.
pub(crate) struct DataRoute {
    pub transport: CopyTransport,
    pub rtt: Option<Span>,
    pub reason: String,
    pub streams: u16,
    /// Time until it was there.
    pub set_up: Duration,
}

/// Returns what a counter of bytes has counted.
pub(crate) fn byte_count(counter: &SharedNumber) -> ByteCount {
    ByteCount::new(counter.current_value())
}

/// Returns the report of a copy whose data took `way`, from the figures of its sender.
pub(crate) fn copy_report(
    options: &CopyOptions,
    tally: &CopyCounts,
    way: DataRoute,
    sender: Figures,
    limit: Option<CopyLimit>,
    duration: Duration,
) -> CopyReport {
    let transferred = byte_count(&tally.verified);
    let files = tally.files.current_value();
    let transport = if sender.changed_to_quic {
        CopyTransport::Quic
    } else {
        way.transport
    };
    let data = duration.saturating_sub(way.set_up);
    CopyReport {
        dry_run: options.dry_run,
        files,
        bytes: byte_count(&tally.bytes),
        transferred,
        saved: byte_count(&tally.saved),
        present: tally.present.current_value(),
        deleted: tally.deleted.current_value(),
        failed: tally.failed.current_value(),
        failures: tally.failure_names(),
        left_out: tally.left_out.current_value(),
        left_out_entries: tally.left_out_entries(),
        duration: duration.into(),
        set_up: way.set_up.into(),
        rate: BitRate::from_bytes_in(transferred, data.into()),
        digest: tally
            .last_digest()
            .filter(|_| files == 1)
            .map(|digest| to_hexadecimal(&digest)),
        transport: (transferred > ByteCount::ZERO).then_some(transport),
        streams: way.streams,
        reason: way.reason,
        rtt: way.rtt,
        congestion_control: sender.congestion_control,
        retransmitted: SegCount::new(sender.retransmitted),
        gave_way: sender.gave_way,
        limit,
    }
}
