use fullpipe_units::{ByteCount, SegCount, Span, Time};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};

use crate::connection::PacketSizes;
use crate::program::{ReceivingProgram, SendingProgram};
use crate::tcp::{AckSegment, Receiver, SegmentBurst, Sender};

/// A program that sleeps until something arrives reads within so much of that. In the lab the
/// acknowledgements that a reader gives came 50 µs after the segment in the median, those that the
/// kernel gives by itself after 10 µs.
pub(crate) const WAKES_WITHIN: Span = Span::from_micros(100);
/// Time after which a processor sleeps so soundly that the program needs [`WAKES_LATE`] instead: on
/// the paths of 100 ms and more of the lab the first read of a flight came up to half a millisecond
/// late.
const DOZES_AFTER: Span = Span::from_millis(5);
const WAKES_LATE: Span = Span::from_millis(1);

/// One connection with the programs at both ends.
#[derive(Debug)]
pub(crate) struct SimulatedFlow {
    pub(crate) sender: Sender,
    pub(crate) receiver: Receiver,
    pub(crate) wire: PacketSizes,
    source: SendingProgram,
    sink: ReceivingProgram,
    /// When its data begins to flow.
    starts: Time,
    /// When the receiving program, which sleeps while nothing waits for it, has been woken.
    reads_at: Option<Time>,
    /// When it last read.
    read_last: Time,
    /// True if a read without a visible effect may be made up for when something else happens at
    /// the receiving end, or somebody asks for its state ([`Self::catch_up`]).
    defers_reads: bool,
    /// True if the exact moment at which a program wakes has no visible effect: it reads as soon as
    /// something arrives, and tries to write again when something is acknowledged.
    wakes_early: bool,
    random: Pcg64Mcg,
    /// The deadlines that are queued for it, the earliest first: those of both programs, of the
    /// receiver and of the sender, of which near ones come and go many times before one that is far
    /// away.
    queued: [Option<Time>; 4],
    /// True if everything that it has to send has been read, or never will be.
    ended: bool,
    /// Bytes for which the receiving program has asked, and when the sending one knows.
    asked: Option<(Time, ByteCount)>,
    /// Set if the receiving program has closed the connection: when the sender knows.
    closes: Option<Time>,
}

impl SimulatedFlow {
    pub(crate) fn new(
        (sender, receiver): (Sender, Receiver),
        wire: PacketSizes,
        (source, sink): (SendingProgram, ReceivingProgram),
        starts: Time,
        seed: u64,
    ) -> Self {
        Self {
            sender,
            receiver,
            wire,
            source,
            sink,
            starts,
            reads_at: None,
            read_last: Time::ZERO,
            defers_reads: false,
            wakes_early: false,
            random: Pcg64Mcg::seed_from_u64(seed),
            queued: [None; 4],
            ended: false,
            asked: None,
            closes: None,
        }
    }

    /// Returns true if the sending end has something to do at `now` of its own accord.
    pub(crate) fn sends_at(&self, now: Time) -> bool {
        now <= self.starts || self.sending_deadline().is_some_and(|due| due <= now)
    }

    /// Lets timers go off that are due, unless the connection was closed: what its sender does for
    /// half a round trip from then on follows the last acknowledgements alone. Returns an
    /// acknowledgement that was delayed.
    pub(crate) fn wake_timers(&mut self, now: Time) -> Option<AckSegment> {
        if self.is_closed() {
            return None;
        }
        self.sender.wake_timer(now);
        self.receiver.wake_timer(now)
    }

    /// Lets the sending program write, and returns the next segments to send.
    pub(crate) fn next_burst(&mut self, now: Time) -> Option<SegmentBurst> {
        if now < self.starts || self.is_gone(now) || self.sender.is_dead() {
            return None;
        }
        if let Some((_, bytes)) = self.asked.take_if(|(at, _)| *at <= now) {
            self.grant_bytes(bytes);
        }
        loop {
            if let Some(burst) = self.sender.next_burst(now) {
                return Some(burst);
            }
            if !self.source.write_due(now, &mut self.sender) {
                return None;
            }
        }
    }

    /// Returns `burst` as the path carries it, with the size of its packets, and what of it is a
    /// packet of its own behind them: the last segment of a stream may be short.
    #[inline]
    pub(crate) fn split_burst(
        &self,
        burst: SegmentBurst,
    ) -> ((SegmentBurst, ByteCount), Option<(SegmentBurst, ByteCount)>) {
        let PacketSizes { segment, empty, .. } = self.wire;
        if burst.is_probe {
            return ((burst, empty), None);
        }
        let end = burst.first + burst.segments.get();
        let short = self
            .sender
            .short_segment()
            .filter(|(last, _)| (burst.first..end).contains(last));
        let Some((last, payload)) = short else {
            return ((burst, segment), None);
        };
        let tail = (
            SegmentBurst {
                first: last,
                segments: SegCount::new(1),
                ..burst
            },
            segment.min(empty + payload),
        );
        if last == burst.first {
            return (tail, None);
        }
        let whole = SegmentBurst {
            segments: SegCount::new(last - burst.first),
            pushes: false,
            ..burst
        };
        ((whole, segment), Some(tail))
    }

    /// Lets the receiving program read. Returns the acknowledgement that follows.
    pub(crate) fn read(&mut self, now: Time) -> Option<AckSegment> {
        if self.sink.is_sleeping() && !self.is_awake(now) {
            return None;
        }
        // The last segment may be shorter than the others.
        let left = self
            .source
            .total_bytes()
            .map(|total| total.saturating_sub(self.receiver.bytes_read()));
        let wanted = self.sink.wanted_bytes(now, &self.receiver);
        let answer = self
            .receiver
            .read(now, left.map_or(wanted, |left| wanted.min(left)));
        self.source.note_read(now, self.receiver.bytes_read());
        answer
    }

    /// Lets the receiving program defer reads without a visible effect, or no longer.
    pub(crate) fn defer_reads(&mut self, defers: bool) {
        self.defers_reads = defers && !self.source.awaits_reads();
    }

    /// Lets the programs wake with what happens next, unless they slept for long, or no longer.
    pub(crate) fn wake_early(&mut self, early: bool) {
        self.wakes_early = early;
    }

    /// Makes up for a read that was deferred and has come before `until`.
    #[inline]
    pub(crate) fn catch_up(&mut self, until: Time) {
        if let Some(at) = self.reads_at.filter(|at| self.defers_reads && *at < until) {
            let answer = self.read(at);
            debug_assert!(
                answer.is_none(),
                "an acknowledgement by a read that was deferred"
            );
        }
    }

    /// When the receiving program reads, unless that is deferred.
    #[inline]
    fn next_read(&self) -> Option<Time> {
        self.reads_at
            .filter(|_| !(self.defers_reads && self.receiver.reads_silently()))
    }

    /// Returns true if the receiving program has been woken by what waits for it, and lets it sleep
    /// again then.
    fn is_awake(&mut self, now: Time) -> bool {
        if self.receiver.unread_bytes() == ByteCount::ZERO {
            return false;
        }
        let dozes = now.duration_since(self.read_last) >= DOZES_AFTER;
        if self.wakes_early && !dozes && self.reads_at.is_none() {
            self.read_last = now;
            return true;
        }
        let within = if dozes { WAKES_LATE } else { WAKES_WITHIN };
        let reads_at = *self.reads_at.get_or_insert_with(|| {
            now + Span::from_nanos(self.random.next_u64() % within.as_nanos())
        });
        let awake = reads_at <= now;
        if awake {
            (self.reads_at, self.read_last) = (None, now);
        }
        awake
    }

    /// Returns the next deadline if it is earlier than the one that is queued, and takes it for
    /// queued.
    pub(crate) fn arm_deadline(&mut self, now: Time) -> Option<Time> {
        self.arm_at(self.next_deadline(now))
    }

    /// As [`Self::arm_deadline`], where only the receiving end has changed.
    pub(crate) fn arm_receiver(&mut self, now: Time) -> Option<Time> {
        let answers = self
            .source
            .next_deadline()
            .filter(|_| self.source.awaits_reads());
        let due = Time::earlier_deadline(self.receiving_deadline(), answers);
        self.arm_at(due.map(|due| due.max(now)))
    }

    /// As [`Self::arm_deadline`], where only the sending end has changed.
    pub(crate) fn arm_sender(&mut self, now: Time) -> Option<Time> {
        let due = self.sending_deadline().filter(|_| self.has_deadlines());
        self.arm_at(due.map(|due| due.max(now)))
    }

    fn arm_at(&mut self, due: Option<Time>) -> Option<Time> {
        let due = due.filter(|due| self.queued[0].is_none_or(|queued| *due < queued))?;
        // A fifth stays queued, but counts no more.
        let [first, second, third, _] = self.queued;
        self.queued = [Some(due), first, second, third];
        Some(due)
    }

    /// Returns true if a queued deadline still counts, and forgets it.
    pub(crate) fn disarm_deadline(&mut self, queued: Time) -> bool {
        let counts = self.queued[0] == Some(queued);
        if counts {
            let [_, second, third, fourth] = self.queued;
            self.queued = [second, third, fourth, None];
        }
        counts
    }

    /// Informs the sender that its segments were too big for a link on the way. Only the first
    /// answer is news.
    pub(crate) fn learn_of_narrow_link(&mut self, now: Time) {
        if let Some(segment) = self.wire.narrow_segment.take() {
            self.wire.segment = segment;
            self.sender.send_all_again(now);
        }
    }

    /// Lets the sending program write so many bytes more.
    pub(crate) fn grant_bytes(&mut self, bytes: ByteCount) {
        self.source.grant_bytes(bytes, self.sender.mss());
    }

    /// Returns true if the sending program has written all that it has to.
    pub(crate) fn has_written_all(&self) -> bool {
        self.source.has_written_all(&self.sender)
    }

    /// Returns true if all that the sending program has to write has been read.
    fn has_arrived(&self) -> bool {
        self.source
            .total_bytes()
            .is_some_and(|total| self.receiver.bytes_read() >= total)
    }

    /// Returns true if everything that the program has to send has been read, or never will be.
    pub(crate) fn is_over(&self) -> bool {
        self.has_arrived() || self.sender.is_dead()
    }

    /// Returns the bytes that the sending program had to write and that have not been read.
    pub(crate) fn missing_bytes(&self) -> ByteCount {
        let total = self.source.total_bytes().unwrap_or(ByteCount::ZERO);
        self.source.unwritten_bytes() + total.saturating_sub(self.receiver.bytes_read())
    }

    /// Asks the sending program for so many bytes more, which knows at `at`.
    pub(crate) fn request_bytes(&mut self, at: Time, bytes: ByteCount) {
        self.asked = Some((at, bytes));
    }

    /// Closes the connection at its receiving end; the sender knows at `at`.
    pub(crate) fn close_connection(&mut self, at: Time) {
        self.closes = Some(at);
    }

    /// Returns true if the receiving program has closed the connection.
    pub(crate) fn is_closed(&self) -> bool {
        self.closes.is_some()
    }

    /// Returns true if the connection is closed at both ends.
    pub(crate) fn is_gone(&self, now: Time) -> bool {
        self.closes.is_some_and(|at| at <= now)
    }

    /// Ends the sending program.
    pub(crate) fn stop(&mut self) {
        self.source.stop(&self.sender);
    }

    /// Returns true if the connection [is over](Self::is_over), the first time that this is so.
    pub(crate) fn ends_now(&mut self) -> bool {
        let is_over = self.is_over();
        let ends = is_over && !self.ended;
        self.ended |= is_over;
        ends
    }

    fn next_deadline(&self, now: Time) -> Option<Time> {
        if now < self.starts {
            return Some(self.starts);
        }
        let due = Time::earlier_deadline(self.sending_deadline(), self.receiving_deadline())
            .filter(|_| self.has_deadlines());
        due.map(|due| due.max(now))
    }

    fn has_deadlines(&self) -> bool {
        !self.is_closed() && !self.sender.is_dead()
    }

    #[inline]
    fn receiving_deadline(&self) -> Option<Time> {
        // A last segment that is shorter than the others is counted whole where it waits.
        let paced = self
            .sink
            .next_deadline(&self.receiver)
            .filter(|_| !self.has_arrived());
        Time::earlier_deadline(
            self.receiver.next_deadline(),
            Time::earlier_deadline(self.next_read(), paced),
        )
    }

    fn sending_deadline(&self) -> Option<Time> {
        let source = self
            .source
            .next_deadline()
            .filter(|_| !(self.wakes_early && self.sender.has_plenty()));
        let program = Time::earlier_deadline(source, self.asked.map(|(at, _)| at));
        Time::earlier_deadline(self.sender.next_deadline(), program)
    }
}
