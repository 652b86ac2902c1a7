//! The way in which an end sends its data.

use fullpipe_record::{BurstRate, QuietRounds, StallTimes};
use fullpipe_units::{ByteCount, Ratio, Span, Time};

use crate::course::{SenderState, SenderTimeline};
use crate::echoes::EchoedState;
use crate::rates::BurstRates;
use crate::rounds::RoundTripHistory;
use crate::scales::ScaleCounts;
use crate::sizes::segment_count;
use crate::stalls::Stalls;

/// Maximum time after an acknowledgement at which the data that it allowed is sent, at the sender
/// itself; and as seen from elsewhere, where the clock of timestamps and waiting on the path add to
/// it.
const PROMPT: [Span; 2] = [Span::from_micros(300), Span::from_millis(1)];

/// Minimum time between two trains of segments.
const BETWEEN_TRAINS: Span = Span::from_micros(100);

/// Minimum time between two packets from which it shows the rate of the path: packets that a
/// network card hands over together are closer.
const MIN_SPACING: Span = Span::from_micros(10);

/// Pairs of packets of which each is measured, and of the later ones every so many.
const FIRST_PAIRS: u64 = 2048;
const LATER_PAIRS: u64 = 16;

/// Segments from which a connection has details again that were left out: many small ones would
/// take the room of those at once, and few can grow so large.
const LARGE: u64 = 4096;

/// Share of what was lately in flight below which much could have been sent, as a fraction.
const LOW_FLIGHT: [u64; 2] = [2, 5];

/// Multiple of the round trip from which a silence is none that a full window causes.
const LONG_SILENCE: f64 = 1.25;

/// Minimum time without a segment before one is retransmitted by timeout (RFC 6298; Linux has 200
/// ms).
const MIN_TIMEOUT: Span = Span::from_millis(190);

/// The share of the data that follows acknowledgements at once.
#[derive(Debug, Clone, Copy, Default)]
struct AckClock {
    data: u64,
    prompt: u64,
    /// Time within the limit after an acknowledgement.
    covered: Span,
    last: Option<Time>,
}

impl AckClock {
    fn record_acknowledgement(&mut self, at: Time, limit: Span) {
        self.covered += self
            .last
            .map_or(limit, |last| at.duration_since(last).min(limit));
        self.last = Some(at);
    }

    fn record_sent_segment(&mut self, bytes: u64, is_prompt: bool) {
        self.data += bytes;
        self.prompt += if is_prompt { bytes } else { 0 };
    }

    /// Returns the share that chance does not explain; `None` where acknowledgements are so
    /// frequent that it would.
    fn clocked_share(&self, duration: Span) -> Option<Ratio> {
        const MAX_COVERED: f64 = 0.8;
        let by_chance = self.covered.as_secs_f64() / duration.as_secs_f64().max(f64::MIN_POSITIVE);
        let seen = self.prompt as f64 / self.data as f64;
        let share = ((seen - by_chance) / (1.0 - by_chance)).max(0.0);
        (self.data > 0 && by_chance < MAX_COVERED).then(|| Ratio::new(share))
    }
}

/// The most of late.
#[derive(Debug, Clone, Copy, Default)]
struct RecentPeak {
    /// Most in the present interval, and in the one before.
    most: [u64; 2],
    since: Time,
}

impl RecentPeak {
    fn add_value(&mut self, value: u64, at: Time, interval: Span) {
        if at.duration_since(self.since) > interval {
            self.most = [0, self.most[0]];
            self.since = at;
        }
        self.most[0] = self.most[0].max(value);
    }

    fn max_value(&self) -> u64 {
        self.most[0].max(self.most[1])
    }
}

/// Returns the time for which a peak counts.
fn peak_horizon(round_trip: Span) -> Span {
    const MIN_HORIZON: Span = Span::from_millis(200);
    (round_trip * 4).max(MIN_HORIZON)
}

/// A segment with data.
#[derive(Debug, Clone, Copy)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a property of the segment"
)]
pub(crate) struct SentSegment {
    pub(crate) bytes: u64,
    /// Bytes of the segment that are retransmitted.
    pub(crate) again: u64,
    /// True if it begins at the first byte that is not acknowledged.
    pub(crate) is_first_open: bool,
    /// End of everything that was sent.
    pub(crate) next: u64,
    /// Everything below was acknowledged.
    pub(crate) acknowledged: u64,
    pub(crate) mss: u64,
    /// True if the SYNs show the shift of the windows.
    pub(crate) is_scale_known: bool,
    /// True if its first copy was lost before it came here.
    pub(crate) is_late: bool,
    /// True if the program's data ended with it (PSH).
    pub(crate) is_pushed: bool,
}

/// The data of an end so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct SentData {
    pub(crate) course: SenderTimeline,
    clocks: [AckClock; 2],
    /// Inferred only if no SYN shows them.
    scales: Option<Box<[ScaleCounts; 2]>>,
    rounds: [RoundTripHistory; 2],
    peak: RecentPeak,
    /// Time with little in flight.
    low: Span,
    /// Time of silence that no window explains.
    silent: Span,
    stalls: Stalls,
    pub(crate) arrivals: BurstRates,
    pub(crate) departures: BurstRates,
    pub(crate) acknowledgements: BurstRates,
    /// Of each full packet behind the one before it.
    pairs: BurstRates,
    pub(crate) lost_before: u64,
    train: u64,
    trains: u64,
    bytes_of_trains: u64,
    /// Time at which the present train began, and the time from the begin of the one before it.
    train_began: Option<Time>,
    gap_before: Option<Span>,
    /// Packets of new data, and those of them with a segment that is not full.
    packets: u64,
    partial: u64,
    echoes: u64,
    segments: u64,
    last_acknowledged: Option<Time>,
    last_at: Option<Time>,
    last_sent: Option<Time>,
    repaired_at: Option<u64>,
    /// True once details were left out.
    is_thinned: bool,
}

impl SentData {
    /// Returns the state of an end that has sent no data, for which the other end allows a window,
    /// as it stands in the header.
    pub(crate) fn new(window: Option<u16>) -> Self {
        let mut sending = Self::default();
        sending.course.now.here.window = window;
        sending
    }

    /// Returns the bytes that it takes beyond its own size.
    pub(crate) fn heap_bytes(&self) -> usize {
        let rates = [
            &self.arrivals,
            &self.departures,
            &self.acknowledgements,
            &self.pairs,
        ];
        let scales = self.scales.as_deref().map_or(0, size_of_val);
        self.course.heap_bytes()
            + rates.map(BurstRates::heap_bytes).iter().sum::<usize>()
            + self
                .rounds
                .iter()
                .map(RoundTripHistory::heap_bytes)
                .sum::<usize>()
            + scales
    }

    /// Leaves out the details that take most room.
    pub(crate) fn reduce_memory(&mut self) {
        self.is_thinned = true;
        self.course.reduce_memory();
        self.rounds
            .iter_mut()
            .for_each(RoundTripHistory::reduce_memory);
        let rates = [
            &mut self.arrivals,
            &mut self.departures,
            &mut self.acknowledgements,
            &mut self.pairs,
        ];
        rates.into_iter().for_each(BurstRates::reduce_memory);
    }

    /// Returns false for a small connection whose details were left out.
    fn has_details(&self) -> bool {
        !self.is_thinned || self.segments >= LARGE
    }

    /// Takes note of a segment of new data, or of retransmitted data.
    pub(crate) fn record_sent_segment(
        &mut self,
        sent: SentSegment,
        echo: Option<EchoedState>,
        at: Time,
    ) {
        let quiet = at.duration_since(self.last_at.unwrap_or(at));
        self.count_elapsed_time(at);
        self.advance_to(at);
        self.segments += 1;
        let silence = at.duration_since(self.last_sent.unwrap_or(at));
        let closed = self.stalls.book_closed_window(at);
        if sent.again == 0 {
            self.count_clocked_bytes(sent.bytes, echo, at);
            self.count_train(sent.bytes, [silence, closed], at);
            self.count_new_packet(sent, silence);
        }
        self.count_segments(sent);
        if sent.again > 0 {
            self.record_repair(sent, silence, quiet.saturating_sub(closed));
        }
        if let Some(echo) = echo {
            self.record_echo(echo, sent.next);
        }
        if !sent.is_scale_known {
            self.infer_scale(echo.is_some(), sent.mss);
        }
        self.last_sent = Some(at);
        self.record_flight(sent.again > 0, echo.is_some(), at);
    }

    /// Counts the segments of a packet.
    fn count_segments(&mut self, sent: SentSegment) {
        let count = segment_count(sent.bytes, sent.mss);
        self.lost_before += if sent.is_late { count } else { 0 };
        let now = &mut self.course.now;
        now.segments += count;
        now.again += segment_count(sent.again, sent.mss);
        now.again_bytes += sent.again;
        now.here.flight = sent.next.saturating_sub(sent.acknowledged);
    }

    /// Takes note of retransmitted data, after a time without any and one without a packet.
    fn record_repair(&mut self, sent: SentSegment, silence: Span, quiet: Span) {
        if sent.is_first_open && silence >= MIN_TIMEOUT {
            self.course.now.timeouts += 1;
            self.stalls.book_timeout(quiet);
        }
        self.course.now.recovers = true;
        self.repaired_at.get_or_insert(sent.next);
    }

    /// Takes note of what the sender had seen, which has sent everything below `next`.
    fn record_echo(&mut self, echo: EchoedState, next: u64) {
        let echoed = &mut self.course.now.echoed;
        self.echoes += 1;
        echoed.flight = next.saturating_sub(echo.acknowledged);
        echoed.window = echo.window.or(echoed.window);
        if let Some(rtt) = echo.first_after {
            echoed.record_rtt(rtt);
            self.rounds[1].record_rtt(rtt);
        }
        if let Some(least) = echo.least {
            echoed.takes_at_least(least);
        }
    }

    /// Takes note of what is in flight, after a packet that repairs a loss if `repairs`.
    fn record_flight(&mut self, repairs: bool, has_echo: bool, at: Time) {
        let (round_trip, has_details) = (self.round_trip(), self.has_details());
        let now = &self.course.now;
        self.peak
            .add_value(now.here.flight, at, peak_horizon(round_trip));
        if !has_details {
            return;
        }
        let [here, elsewhere] = &mut self.rounds;
        here.record_sent_segment(now.here.flight, repairs, at, round_trip);
        // Until the first echo is measured, half of the round trip is not known.
        if has_echo && now.echoed.least_rtt().is_some() {
            elsewhere.record_sent_segment(now.echoed.flight, repairs, at, round_trip);
        }
    }

    /// Takes note of the first copy of data of which a later one came before it, as the repair of a
    /// loss that there was none.
    pub(crate) fn came_late(&mut self, bytes: u64, mss: u64) {
        let count = segment_count(bytes, mss);
        self.segments += 1;
        self.course.now.segments += count;
        self.lost_before = self.lost_before.saturating_sub(count);
    }

    fn advance_to(&mut self, at: Time) {
        if self.has_details() {
            self.course.advance_to(at);
        } else {
            self.course.skip_to(at);
        }
    }

    fn infer_scale(&mut self, has_echo: bool, mss: u64) {
        let [here, echoed] = &mut **self.scales.get_or_insert_default();
        let now = &self.course.now;
        here.record_sent_segment(now.here.flight, now.here.window, mss);
        if has_echo {
            echoed.record_sent_segment(now.echoed.flight, now.echoed.window, mss);
        }
    }

    /// Takes note that everything below `position` was acknowledged, `bytes` of data in all, with
    /// the time that it took.
    pub(crate) fn record_acknowledgement(
        &mut self,
        position: u64,
        bytes: u64,
        rtt: Option<Span>,
        at: Time,
    ) {
        self.count_elapsed_time(at);
        if self.course.begin_time().is_none() {
            return;
        }
        self.advance_to(at);
        let has_details = self.has_details();
        self.clocks[0].record_acknowledgement(at, PROMPT[0]);
        self.clocks[1].record_acknowledgement(at, PROMPT[1]);
        let now = &mut self.course.now;
        if bytes > now.acknowledged {
            if let Some(last) = self
                .last_acknowledged
                .filter(|_| has_details && !now.recovers)
            {
                self.acknowledgements
                    .add_bytes(bytes - now.acknowledged, at.duration_since(last));
            }
            self.last_acknowledged = Some(at);
            now.here.flight = now.here.flight.saturating_sub(bytes - now.acknowledged);
            now.acknowledged = bytes;
            now.timeouts = 0;
        }
        if self
            .repaired_at
            .is_some_and(|repaired| position >= repaired)
        {
            self.repaired_at = None;
            now.recovers = false;
            // The congestion window is smaller from here on.
            self.peak = RecentPeak {
                most: [now.here.flight, 0],
                since: at,
            };
        }
        if let Some(rtt) = rtt {
            now.here.record_rtt(rtt);
            self.rounds[0].record_rtt(rtt);
        }
    }

    /// Takes note of the window that the other end allows, as it stands in the header.
    pub(crate) fn is_allowed(&mut self, window: u16, at: Time) {
        self.course.now.here.window = Some(window);
        self.stalls.note_window(window, at);
    }

    /// Counts the time since the last packet.
    fn count_elapsed_time(&mut self, at: Time) {
        let since = at.duration_since(self.last_at.unwrap_or(at));
        let now = &self.course.now;
        let [part, whole] = LOW_FLIGHT;
        let may_send = !now.recovers && now.here.window != Some(0);
        if may_send
            && now.here.flight.saturating_mul(whole) < self.peak.max_value().saturating_mul(part)
        {
            self.low += since;
        }
        self.last_at = Some(at);
    }

    fn count_clocked_bytes(&mut self, bytes: u64, echo: Option<EchoedState>, at: Time) {
        let prompt = self.clocks[0]
            .last
            .is_some_and(|last| at.duration_since(last) <= PROMPT[0]);
        self.clocks[0].record_sent_segment(bytes, prompt);
        if let (Some(echo), Some(least)) = (echo, self.course.now.echoed.least_rtt()) {
            self.clocks[1].record_sent_segment(bytes, echo.after_last <= least + PROMPT[1]);
        }
    }

    /// Takes note of `bytes` of new data after a silence, in a part of which the window was closed.
    fn count_train(&mut self, bytes: u64, [silence, closed]: [Span; 2], at: Time) {
        if silence > PROMPT[1] && !self.course.now.recovers {
            self.count_pause(silence.saturating_sub(closed));
        }
        if silence <= BETWEEN_TRAINS && self.train > 0 {
            self.train += bytes;
            return;
        }
        if let Some(began) = self.train_began {
            let gap = at.duration_since(began);
            if self.has_details() {
                self.departures.add_bytes(self.train, gap);
                self.arrivals
                    .add_bytes(self.train, self.gap_before.unwrap_or_default());
            }
            self.gap_before = Some(gap);
            self.trains += 1;
            self.bytes_of_trains += self.train;
        }
        self.train_began = Some(at);
        self.train = bytes;
    }

    /// Counts a silence that no full window causes.
    fn count_pause(&mut self, silence: Span) {
        let round_trip = self.round_trip();
        if round_trip > Span::ZERO && silence > round_trip.scale_by(LONG_SILENCE) + PROMPT[1] {
            self.silent += silence.saturating_sub(round_trip);
            self.stalls.book_no_data(silence.saturating_sub(round_trip));
        }
    }

    /// Returns the times in which it sent nothing, of a connection that was open from the first
    /// time to the second.
    pub(crate) fn stalls(&self, opened: [Time; 2]) -> StallTimes {
        let [first, last] = opened;
        let begin = self.course.begin_time().unwrap_or(first);
        let moved = self.last_sent.max(self.last_acknowledged).unwrap_or(last);
        self.stalls
            .times(opened, [begin, moved], self.course.now.here.flight == 0)
    }

    /// Counts a packet of new data.
    fn count_new_packet(&mut self, sent: SentSegment, silence: Span) {
        self.count_packet_pair(sent, silence);
        self.packets += 1;
        // On the way to a narrow link whole segments are smaller, too, but nothing ends with them.
        self.partial += u64::from(
            sent.is_pushed && sent.bytes != sent.mss && !sent.bytes.is_multiple_of(sent.mss),
        );
    }

    fn count_packet_pair(&mut self, sent: SentSegment, silence: Span) {
        let is_measured = self.packets < FIRST_PAIRS || self.packets.is_multiple_of(LATER_PAIRS);
        if sent.bytes < sent.mss || !is_measured || !self.has_details() {
            return;
        }
        if silence >= MIN_SPACING {
            self.pairs.add_bytes(sent.bytes, silence);
        } else {
            self.pairs.add_unknown(sent.bytes);
        }
    }

    /// Returns the rate at which bursts of its data arrive; where the capture was taken at this
    /// end, at which they are acknowledged.
    pub(crate) fn burst_rate(&self, is_here: bool) -> Option<BurstRate> {
        // Next to cross traffic a smaller share is spaced by the connection's own part of the
        // bottleneck.
        const MIN_SHARE: f64 = 0.3;
        let rates = if is_here {
            &self.acknowledgements
        } else {
            &self.pairs
        };
        rates.burst_rate(MIN_SHARE)
    }

    /// Returns the least time of both ways, to the receiver and back and to the sender and back, as
    /// far as it is known.
    fn round_trip(&self) -> Span {
        let now = &self.course.now;
        [now.here, now.echoed]
            .iter()
            .filter_map(SenderState::least_rtt)
            .sum()
    }

    fn duration(&self) -> Span {
        let begin = self.course.begin_time().unwrap_or(Time::ZERO);
        self.last_at
            .map_or(Span::ZERO, |last| last.duration_since(begin))
    }

    /// Returns the shift of the windows that it goes by, if what it has in flight shows that.
    pub(crate) fn window_shift(&self, by_echo: bool) -> Option<u8> {
        self.scales.as_ref()?[usize::from(by_echo)].window_shift()
    }

    /// Returns true if most of its segments echo timestamps whose acknowledgements were captured.
    pub(crate) fn has_echoes(&self) -> bool {
        self.echoes * 2 > self.segments
    }

    /// Returns the share of its data that was sent at once when an acknowledgement had arrived,
    /// beyond chance; as the echoes show it where `by_echo` is true.
    pub(crate) fn clocked_share(&self, by_echo: bool) -> Option<Ratio> {
        self.clocks[usize::from(by_echo)].clocked_share(self.duration())
    }

    /// Returns the share of the time in which it could have sent much more than it did.
    pub(crate) fn idle_share(&self, by_echo: bool) -> Ratio {
        let idle = if by_echo {
            self.silent
        } else {
            self.low.max(self.silent)
        };
        Ratio::new(
            Ratio::from_quotient(idle.as_secs_f64(), self.duration().as_secs_f64())
                .get()
                .min(1.0),
        )
    }

    /// Returns the sender's round trips since the last loss. `rest` is the part of each on the
    /// other side of the capture, and `handshake` the time that the handshake took.
    pub(crate) fn quiet_rounds(
        &self,
        by_echo: bool,
        rest: Span,
        handshake: Option<Span>,
    ) -> Option<QuietRounds> {
        self.rounds[usize::from(by_echo)].quiet_rounds(rest, handshake)
    }

    /// Returns the mean size of its trains of segments.
    pub(crate) fn mean_train(&self) -> ByteCount {
        ByteCount::new(
            self.bytes_of_trains
                .checked_div(self.trains)
                .unwrap_or(self.train),
        )
    }

    /// Returns the share of its packets that hold no whole number of full segments.
    pub(crate) fn partial_segment_share(&self) -> Ratio {
        Ratio::from_quotient(self.partial as f64, self.packets.max(1) as f64)
    }
}

#[cfg(test)]
mod tests;
