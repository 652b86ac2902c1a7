//! The intervals of a test that are kept for its record.

use fullpipe_record::{Interval, MAX_STREAM_INTERVALS};

/// The intervals so far, with the kernel's view only as long as the record would keep it
/// ([`fullpipe_record::Measurement::to_bounded`]): it is by far the most of an interval, and a test
/// may last a day.
#[derive(Default)]
pub(crate) struct KeptIntervals {
    pub all: Vec<Interval>,
    /// Number of the intervals of streams.
    streams: usize,
}

impl KeptIntervals {
    pub(crate) fn push(&mut self, interval: Interval) {
        let had_too_many = self.has_too_many();
        self.streams += interval.streams.len();
        self.all.push(interval);
        if self.has_too_many() {
            // Those before have been cleared, unless this is the first one that is too many.
            let from = if had_too_many { self.all.len() - 1 } else { 0 };
            self.all[from..]
                .iter_mut()
                .flat_map(|interval| &mut interval.streams)
                .for_each(|stream| stream.tcp = None);
        }
    }

    const fn has_too_many(&self) -> bool {
        self.streams > MAX_STREAM_INTERVALS
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use fullpipe_record::{StreamInterval, TcpInfo};
    use fullpipe_units::ByteCount;

    fn interval(streams: u16) -> Interval {
        let stream = |stream| StreamInterval {
            stream,
            bytes: ByteCount::ZERO,
            datagrams_sent: None,
            datagrams: None,
            retransmits: None,
            tcp: Some(Box::new(TcpInfo::default())),
        };
        Interval {
            streams: (0..streams).map(stream).collect(),
            ..fixture::upload_interval(0)
        }
    }

    fn kernels_views(kept: &KeptIntervals) -> usize {
        kept.all
            .iter()
            .flat_map(|interval| &interval.streams)
            .filter(|stream| stream.tcp.is_some())
            .count()
    }

    #[test]
    fn the_kernels_view_is_kept_as_long_as_the_record_keeps_it() {
        let mut kept = KeptIntervals::default();
        for _ in 0..5 {
            kept.push(interval(100));
        }
        assert_eq!(kernels_views(&kept), MAX_STREAM_INTERVALS);
        for count in 6..9 {
            kept.push(interval(1));
            assert_eq!((kernels_views(&kept), kept.all.len()), (0, count));
        }
    }
}
