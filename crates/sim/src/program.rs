//! The programs at both ends: when they write and read.

use std::collections::VecDeque;

use fullpipe_record::{ProgramWindow, Request, Writer};
use fullpipe_units::{BitRate, ByteCount, Span, Time};

use crate::tcp::{BufferRoom, Receiver, Sender};

/// Bytes that come due in equal portions at equal times, the first at once.
#[derive(Debug, Clone)]
pub(crate) struct SendingPace {
    rate: BitRate,
    portion: ByteCount,
    start: Time,
}

impl SendingPace {
    pub(crate) const fn new(rate: BitRate, portion: ByteCount, start: Time) -> Self {
        Self {
            rate,
            portion,
            start,
        }
    }

    /// The bytes that are due at `now`, since the start.
    pub(crate) fn due_bytes(&self, now: Time) -> ByteCount {
        let passed = self.rate.bytes_in(now.duration_since(self.start));
        let portions = passed.get() / self.portion.get().max(1) + 1;
        self.portion * portions
    }

    /// When more than `bytes` are due.
    pub(crate) fn time_beyond(&self, bytes: ByteCount) -> Time {
        let portions = bytes.get() / self.portion.get().max(1);
        self.start + self.rate.time_for(self.portion * portions)
    }
}

/// The window of the programs' own protocol, as the sending one knows it: of whole segments, as
/// only the end of a stream may be short.
#[derive(Debug)]
pub(crate) struct ProgramCredit {
    window: ByteCount,
    /// Bytes that are answered together.
    request: ByteCount,
    /// Time from a read at the other end until the sending program goes on.
    answers_after: Span,
    /// What has been read, and when the sending program goes on, the earliest first.
    answers: VecDeque<(Time, ByteCount)>,
    answered: ByteCount,
}

impl ProgramCredit {
    pub(crate) fn new(window: ProgramWindow, answers_after: Span, mss: ByteCount) -> Self {
        let request = nearest_segments(window.request, mss);
        let window = match window.bytes.get().checked_div(window.request.get()) {
            Some(requests) => request * requests,
            None => nearest_segments(window.bytes, mss).max(mss),
        };
        Self {
            window,
            request,
            answers_after,
            answers: VecDeque::new(),
            answered: ByteCount::ZERO,
        }
    }

    /// Takes note that the other end has read so many bytes in all.
    fn note_read(&mut self, now: Time, read: ByteCount) {
        let part = read.get().checked_rem(self.request.get()).unwrap_or(0);
        let whole = read.saturating_sub(ByteCount::new(part));
        let known = self
            .answers
            .back()
            .map_or(self.answered, |(_, bytes)| *bytes);
        if whole > known {
            self.answers.push_back((now + self.answers_after, whole));
        }
    }

    /// Returns the bytes that may be written at `now`, since the start.
    fn allowed_bytes(&mut self, now: Time) -> ByteCount {
        while let Some((_, bytes)) = self.answers.pop_front_if(|(at, _)| *at <= now) {
            self.answered = bytes;
        }
        self.answered + self.window
    }
}

/// Returns the number of whole segments that is nearest to `bytes`: one at least, of any bytes.
fn nearest_segments(bytes: ByteCount, mss: ByteCount) -> ByteCount {
    let segments = (bytes.get() + mss.get() / 2) / mss.get().max(1);
    mss * segments.max(u64::from(bytes > ByteCount::ZERO))
}

/// A program that sends.
#[derive(Debug)]
pub(crate) struct SendingProgram {
    pace: Option<SendingPace>,
    credit: Option<ProgramCredit>,
    /// The last byte, where there is one.
    total: Option<ByteCount>,
    kind: Writer,
    /// Time after which a program that does not sleep tries again.
    retries_after: Span,
    /// When the buffer was last found full.
    blocked_since: Option<Time>,
    /// When it tries next without being woken.
    wakes: Option<Time>,
    finished: bool,
    /// Bytes that it had to write and did not before it was stopped.
    unwritten: ByteCount,
}

impl SendingProgram {
    pub(crate) fn new(
        request: &Request,
        (total, credit): (Option<ByteCount>, Option<ProgramCredit>),
        rtt: Span,
        start: Time,
    ) -> Self {
        let rate = request.rate.filter(|rate| *rate > BitRate::ZERO);
        let pace = rate.map(|rate| SendingPace {
            rate,
            portion: request.block * u64::from(request.burst.unwrap_or(1).max(1)),
            start,
        });
        let retries_after = Span::from_millis(1).min(rtt / 64).max(Span::from_micros(1));
        let (kind, unwritten) = (request.writer, ByteCount::ZERO);
        Self {
            pace,
            credit,
            total,
            kind,
            retries_after,
            blocked_since: None,
            wakes: None,
            finished: false,
            unwritten,
        }
    }

    /// Writes nothing more.
    pub(crate) fn stop(&mut self, sender: &Sender) {
        let written = sender.written_bytes();
        self.unwritten = self
            .total
            .map_or(ByteCount::ZERO, |total| total.saturating_sub(written));
        self.total = Some(written);
        self.wakes = None;
        self.finished = true;
    }

    /// Takes note that the other end has read so many bytes in all.
    pub(crate) fn note_read(&mut self, now: Time, read: ByteCount) {
        if let Some(credit) = &mut self.credit {
            credit.note_read(now, read);
        }
    }

    /// Returns true if reads at the other end let it write.
    pub(crate) fn awaits_reads(&self) -> bool {
        self.credit.is_some()
    }

    /// Lets it write so many bytes more, which end with a whole segment of `mss`.
    pub(crate) fn grant_bytes(&mut self, bytes: ByteCount, mss: ByteCount) {
        let total = self.total.unwrap_or_default() + bytes;
        self.total = Some(mss * total.get().div_ceil(mss.get().max(1)));
        self.finished = false;
    }

    /// Returns true if the program has written all that it has to.
    pub(crate) fn has_written_all(&self, sender: &Sender) -> bool {
        self.total
            .is_some_and(|total| sender.written_bytes() >= total)
    }

    /// Returns the bytes that it writes in all, where that is known.
    pub(crate) fn total_bytes(&self) -> Option<ByteCount> {
        self.total
    }

    /// Returns the bytes that it had to write and did not before it was stopped.
    pub(crate) fn unwritten_bytes(&self) -> ByteCount {
        self.unwritten
    }

    /// Writes what is due and fits. Returns whether anything was written.
    pub(crate) fn write_due(&mut self, now: Time, sender: &mut Sender) -> bool {
        let wanted = self.wanted_bytes(now, sender);
        if wanted == ByteCount::ZERO {
            self.wakes = self.next_portion(sender);
            return false;
        }
        if !self.may_write(now, sender) {
            return false;
        }
        let taken = sender.write(now, wanted);
        (self.blocked_since, self.wakes) = ((taken < wanted).then_some(now), None);
        if self.has_written_all(sender) && !self.finished {
            self.finished = true;
            sender.finish_stream();
        }
        taken > ByteCount::ZERO
    }

    /// Returns when the program writes next without being woken, as far as its last attempt shows.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        let answer = self
            .credit
            .as_ref()
            .and_then(|credit| credit.answers.front());
        Time::earlier_deadline(self.wakes, answer.map(|(at, _)| *at))
    }

    /// When more is due, if not everything is written.
    fn next_portion(&self, sender: &Sender) -> Option<Time> {
        let written = sender.written_bytes();
        let pace = self
            .pace
            .as_ref()
            .filter(|_| self.total.is_none_or(|total| written < total));
        pace.map(|pace| pace.time_beyond(written))
    }

    fn wanted_bytes(&mut self, now: Time, sender: &Sender) -> ByteCount {
        let due = self.pace.as_ref().map(|pace| pace.due_bytes(now));
        let allowed = self.credit.as_mut().map(|credit| credit.allowed_bytes(now));
        let wanted = [due, allowed, self.total].into_iter().flatten().min();
        wanted
            .unwrap_or(ByteCount::new(u64::MAX))
            .saturating_sub(sender.written_bytes())
    }

    /// Returns true if the program tries now, and notes when it does otherwise.
    fn may_write(&mut self, now: Time, sender: &Sender) -> bool {
        let Some(since) = self.blocked_since else {
            return true;
        };
        let room = sender.free_room();
        if room == BufferRoom::Third {
            return true;
        }
        let retries = self.kind == Writer::Retrying && room == BufferRoom::Little;
        // Before now, where no program waited for that.
        let is_due = self.wakes.is_some_and(|known| known <= now);
        self.wakes = retries.then(|| self.next_try(since, now));
        retries && now > since && (is_due || self.wakes == Some(now))
    }

    /// The first of the equally spaced tries after `since` that is not before `now`.
    fn next_try(&self, since: Time, now: Time) -> Time {
        // Most often the one that is already known.
        if let Some(known) = self
            .wakes
            .filter(|known| *known >= now && *known < now + self.retries_after)
        {
            return known;
        }
        let tries = now
            .duration_since(since)
            .as_nanos()
            .div_ceil(self.retries_after.as_nanos())
            .max(1);
        since + self.retries_after * tries
    }
}

/// A program that receives.
#[derive(Debug)]
pub(crate) struct ReceivingProgram {
    pace: Option<SendingPace>,
}

impl ReceivingProgram {
    /// Bytes of one read of a program that reads at a rate.
    const PORTION: ByteCount = ByteCount::from_kib(16);

    pub(crate) fn new(rate: Option<BitRate>, start: Time) -> Self {
        let rate = rate.filter(|rate| *rate > BitRate::ZERO);
        Self {
            pace: rate.map(|rate| SendingPace {
                rate,
                portion: Self::PORTION,
                start,
            }),
        }
    }

    /// Returns true if the program sleeps until something arrives, and reads all of it then.
    pub(crate) fn is_sleeping(&self) -> bool {
        self.pace.is_none()
    }

    /// The bytes that it reads now, at most.
    pub(crate) fn wanted_bytes(&self, now: Time, receiver: &Receiver) -> ByteCount {
        let due = self
            .pace
            .as_ref()
            .map_or(ByteCount::new(u64::MAX), |pace| pace.due_bytes(now));
        due.saturating_sub(receiver.bytes_read())
    }

    pub(crate) fn next_deadline(&self, receiver: &Receiver) -> Option<Time> {
        let pace = self.pace.as_ref()?;
        (receiver.unread_bytes() > ByteCount::ZERO).then(|| pace.time_beyond(receiver.bytes_read()))
    }
}
