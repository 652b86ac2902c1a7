use fullpipe_record::{Codel as Parameters, Fate};
use fullpipe_units::{ByteCount, Span, Time};

use crate::Train;
use crate::fifo::{Fifo, Next};
use crate::log::Log;

/// CoDel's control of one queue, word for word the pseudocode of RFC 8289, section 5: it looks at a packet when its
/// turn has come to be sent. Marking instead of dropping ends a turn, as in Linux (`include/net/codel_impl.h`).
#[derive(Debug)]
pub(crate) struct Codel {
    parameters: Parameters,
    /// So much may wait without being a standing queue.
    packet: ByteCount,
    /// When waiting will have been too long for an interval, if it has been since.
    first_above: Option<Time>,
    dropping: bool,
    drop_next: Time,
    count: u32,
    last_count: u32,
}

impl Codel {
    /// `packet` is the largest packet.
    pub(crate) fn new(parameters: Parameters, packet: ByteCount) -> Self {
        let (drop_next, count, last_count) = (Time::ZERO, 0, 0);
        Self { parameters, packet, first_above: None, dropping: false, drop_next, count, last_count }
    }

    /// Drops or marks at `now` what the control law says; the next packet to be sent, if one is left.
    pub(crate) fn choose<T: Train>(&mut self, now: Time, fifo: &mut Fifo<T>, log: &mut Log<T>) -> Option<Next> {
        let stands = self.stands(now, fifo);
        if self.dropping {
            self.dropping = stands;
            self.go_on(now, fifo, log);
        } else if stands {
            self.begin(now, fifo, log);
        }
        fifo.next()
    }

    /// Signals again when it is time.
    fn go_on<T: Train>(&mut self, now: Time, fifo: &mut Fifo<T>, log: &mut Log<T>) {
        while self.dropping && now >= self.drop_next {
            self.count = self.count.saturating_add(1);
            if self.mark_or_drop(now, fifo, log) {
                self.drop_next = self.control_law(self.drop_next);
                return;
            }
            self.dropping = self.stands(now, fifo);
            if self.dropping {
                self.drop_next = self.control_law(self.drop_next);
            }
        }
    }

    /// Signals for the first time, at about the rate that worked last time.
    fn begin<T: Train>(&mut self, now: Time, fifo: &mut Fifo<T>, log: &mut Log<T>) {
        if !self.mark_or_drop(now, fifo, log) {
            self.stands(now, fifo);
        }
        self.dropping = true;
        let delta = self.count - self.last_count;
        let recent = now.since(self.drop_next) < self.parameters.interval * 16;
        self.count = if delta > 1 && recent { delta } else { 1 };
        self.last_count = self.count;
        self.drop_next = self.control_law(now);
    }

    /// Returns true if packets have waited too long for an interval (`ok_to_drop`).
    fn stands<T: Train>(&mut self, now: Time, fifo: &Fifo<T>) -> bool {
        let above = fifo.next().is_some_and(|next| {
            let behind = fifo.held().bytes.saturating_sub(next.bytes);
            // What goes at once has not waited, whatever came with it.
            now > next.came && now.since(next.came) >= self.parameters.target && behind > self.packet
        });
        if !above {
            self.first_above = None;
            return false;
        }
        now >= *self.first_above.get_or_insert(now + self.parameters.interval)
    }

    /// Marks or drops the next packet; returns whether it was marked.
    fn mark_or_drop<T: Train>(&self, now: Time, fifo: &mut Fifo<T>, log: &mut Log<T>) -> bool {
        let queue = Some(fifo.held().bytes);
        if let Some(marked) = self.parameters.ecn.then(|| fifo.mark_next()).flatten() {
            log.note(now, Fate::Marked, queue, marked);
            return true;
        }
        if let Some(train) = fifo.take_next() {
            log.note(now, Fate::AqmDropped, queue, &train);
        }
        false
    }

    fn control_law(&self, time: Time) -> Time {
        time + Span::from_nanos((self.parameters.interval.as_nanos() as f64 / libm::sqrt(self.count.into())) as u64)
    }
}
