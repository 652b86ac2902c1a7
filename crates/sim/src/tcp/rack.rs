use super::clock::TimestampValue;
use super::rate::RateSample;
use super::scoreboard::DeliveredSegments;

/// Recent acknowledgement (RFC 8985; `tcp_recovery.c`): what the detection of losses by time knows.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RackState {
    /// When the segment was sent that was sent last of all that were delivered, and its end
    /// (`mstamp`, `end_seq`).
    pub(crate) newest: (u64, u64),
    /// Round-trip time of that segment in microseconds.
    pub(crate) rtt: u64,
    /// `rack.advanced`: something was delivered since losses were last sought.
    pub(crate) advanced: bool,
    /// `reo_wnd_steps`: quarters of the least round-trip time to wait for what may be reordered.
    pub(crate) steps: u64,
    /// `reo_wnd_persist`: recoveries until the wait is short again.
    pub(crate) persist: u8,
    /// `dsack_seen`.
    pub(crate) duplicate_seen: bool,
    /// `last_delivered`.
    adjusted_at: u64,
}

impl RackState {
    /// `TCP_RACK_RECOVERY_THRESH`.
    pub(crate) const RECOVERIES: u8 = 16;

    pub(crate) fn new() -> Self {
        Self {
            steps: 1,
            ..Self::default()
        }
    }

    /// `tcp_rack_advance`: a retransmission that arrived too soon may have been the first copy.
    fn advance_newest(&mut self, part: &DeliveredSegments, now: u64, min_rtt: u64) {
        let rtt = now.saturating_sub(part.sent.at);
        if part.again && rtt < min_rtt {
            return;
        }
        self.advanced = true;
        self.rtt = rtt;
        self.newest = self.newest.max((part.sent.at, part.end));
    }

    /// Waits longer where segments were retransmitted for nothing (`tcp_rack_update_reo_wnd`).
    pub(crate) fn adjust_window(&mut self, sample: &RateSample, delivered: u64) {
        let Some(prior) = sample.prior_delivered() else {
            return;
        };
        if prior < self.adjusted_at {
            self.duplicate_seen = false;
        }
        if self.duplicate_seen {
            self.steps = (self.steps + 1).min(0xff);
            self.duplicate_seen = false;
            self.adjusted_at = delivered;
            self.persist = Self::RECOVERIES;
        } else if self.persist == 0 {
            self.steps = 1;
        }
    }
}

/// The figures of one acknowledgement while it is taken in (`FLAG_…` and
/// `struct tcp_sacktag_state`).
#[derive(Debug, Clone, Copy, Default)]
#[expect(clippy::struct_excessive_bools, reason = "the kernel's own flags")]
pub(crate) struct AckTally {
    pub(crate) now: u64,
    pub(crate) min_rtt: u64,
    pub(crate) rack: RackState,
    pub(crate) sample: RateSample,
    /// `first_tx_mstamp`.
    pub(crate) first_sent: u64,
    /// The end of the recovery.
    pub(crate) high: u64,
    /// The stamp that the receiver sent back, if packets carry timestamps.
    pub(crate) echo: Option<TimestampValue>,
    /// When the first and the last of the acknowledged segments was sent that was sent only once.
    pub(crate) acked: Option<(u64, u64)>,
    /// `FLAG_RETRANS_DATA_ACKED`: its number covers retransmitted segments.
    pub(crate) again: bool,
    /// When the first and the last of the selectively acknowledged segments was sent that was sent
    /// only once.
    pub(crate) sacked: Option<(u64, u64)>,
    /// The lowest segment that arrived behind a later one (`reord`).
    pub(crate) reordered_from: u64,
    /// `FLAG_SND_UNA_ADVANCED`.
    pub(crate) advanced: bool,
    /// `FLAG_DATA_SACKED`.
    pub(crate) data_sacked: bool,
    /// `FLAG_ORIG_SACK_ACKED`: something sent once arrived that was sent before the recovery began.
    pub(crate) original: bool,
    /// `FLAG_DSACKING_ACK`.
    pub(crate) duplicate: bool,
    /// `FLAG_DSACK_TLP`.
    pub(crate) probe_duplicate: bool,
    /// `FLAG_WIN_UPDATE`.
    pub(crate) window_changed: bool,
    /// `FLAG_SET_XMIT_TIMER`.
    pub(crate) set_timer: bool,
    /// Segments that arrived twice.
    pub(crate) duplicates: u64,
}

impl AckTally {
    /// Takes in segments that this acknowledgement's number covers (`tcp_clean_rtx_queue`).
    pub(crate) fn record_acknowledged(&mut self, part: &DeliveredSegments, stamp: TimestampValue) {
        if !part.again {
            self.reordered_from = self.reordered_from.min(part.first);
            self.original |= part.end <= self.high;
            self.acked = Some((
                self.acked.map_or(part.sent.at, |(first, _)| first),
                part.sent.at,
            ));
        }
        self.again |= part.again;
        // An echo from before a retransmission shows that the first copy arrived
        // (`tcp_skb_spurious_retrans`).
        if !(part.again && self.echo.is_some_and(|echo| echo < stamp)) {
            self.rack.advance_newest(part, self.now, self.min_rtt);
        }
        self.record_delivered(part);
    }

    /// Takes in segments that one of its blocks covers (`tcp_sacktag_one`), up to `highest` before
    /// it.
    pub(crate) fn record_sacked(&mut self, part: &DeliveredSegments, highest: u64) {
        self.rack.advance_newest(part, self.now, self.min_rtt);
        if !part.again {
            if part.first < highest {
                self.reordered_from = self.reordered_from.min(part.first);
            }
            self.original |= part.end <= self.high;
            self.sacked = Some((
                self.sacked.map_or(part.sent.at, |(first, _)| first),
                part.sent.at,
            ));
        }
        self.data_sacked = true;
        self.record_delivered(part);
    }

    fn record_delivered(&mut self, part: &DeliveredSegments) {
        self.sample.acked += part.segments;
        self.sample
            .record_delivery(&mut self.first_sent, part.sent, part.end);
    }
}
