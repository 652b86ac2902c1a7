//! The report of a copy between two fullpipes.

use std::time::Duration;

use fullpipe_record::{CopyLimit, CopyReport, CopyTransport};
use fullpipe_units::{BitRate, ByteCount};

use super::NearCopy;
use crate::report::{DataRoute, byte_count, copy_report};
use crate::session::BothFigures;
use crate::summary::{Figures, is_limited};

impl NearCopy {
    pub(super) fn to_report(
        &self,
        way: DataRoute,
        figures: BothFigures,
        duration: Duration,
    ) -> CopyReport {
        let tally = &self.tally;
        let data = duration.saturating_sub(way.set_up);
        let [transferred, saved] = [&tally.verified, &tally.saved].map(byte_count);
        let has_crossed = transferred > ByteCount::ZERO;
        let crossing_rate = BitRate::from_bytes_in(transferred.saturating_sub(saved), data.into());
        let limit = if has_crossed {
            self.limit_at(crossing_rate, &way, &figures, data)
        } else {
            None
        };
        copy_report(&self.options, tally, way, figures.sender, limit, duration)
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
