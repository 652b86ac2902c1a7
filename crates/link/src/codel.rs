use fullpipe_record::{Codel as Parameters, Fate};
use fullpipe_units::{ByteCount, Span, Time};

use crate::Train;
use crate::fifo::{NextPacket, TrainFifo};
use crate::log::DirectionLog;

/// CoDel's control of one queue, word for word the pseudocode of RFC 8289, section 5: it looks at a
/// packet when its turn has come to be sent. Marking instead of dropping ends a turn, as in Linux
/// (`include/net/codel_impl.h`).
#[derive(Debug)]
pub(crate) struct CodelState {
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

impl CodelState {
    /// `packet` is the largest packet.
    pub(crate) fn new(parameters: Parameters, packet: ByteCount) -> Self {
        let (drop_next, count, last_count) = (Time::ZERO, 0, 0);
        Self {
            parameters,
            packet,
            first_above: None,
            dropping: false,
            drop_next,
            count,
            last_count,
        }
    }

    /// Drops or marks at `now` what the control law says; the next packet to be sent, if one is
    /// left.
    pub(crate) fn choose_next<T: Train>(
        &mut self,
        now: Time,
        fifo: &mut TrainFifo<T>,
        log: &mut DirectionLog<T>,
    ) -> Option<NextPacket> {
        let stands = self.has_standing_queue(now, fifo);
        if self.dropping {
            self.dropping = stands;
            self.go_on(now, fifo, log);
        } else if stands {
            self.begin_dropping(now, fifo, log);
        }
        fifo.next_packet()
    }

    /// Signals again when it is time.
    fn go_on<T: Train>(&mut self, now: Time, fifo: &mut TrainFifo<T>, log: &mut DirectionLog<T>) {
        while self.dropping && now >= self.drop_next {
            self.count = self.count.saturating_add(1);
            if self.mark_or_drop(now, fifo, log) {
                self.drop_next = self.control_law(self.drop_next);
                return;
            }
            self.dropping = self.has_standing_queue(now, fifo);
            if self.dropping {
                self.drop_next = self.control_law(self.drop_next);
            }
        }
    }

    /// Signals for the first time, at about the rate that worked last time.
    fn begin_dropping<T: Train>(
        &mut self,
        now: Time,
        fifo: &mut TrainFifo<T>,
        log: &mut DirectionLog<T>,
    ) {
        if !self.mark_or_drop(now, fifo, log) {
            self.has_standing_queue(now, fifo);
        }
        self.dropping = true;
        let delta = self.count - self.last_count;
        let recent = now.duration_since(self.drop_next) < self.parameters.interval * 16;
        self.count = if delta > 1 && recent { delta } else { 1 };
        self.last_count = self.count;
        self.drop_next = self.control_law(now);
    }

    /// Returns true if packets have waited too long for an interval (`ok_to_drop`).
    fn has_standing_queue<T: Train>(&mut self, now: Time, fifo: &TrainFifo<T>) -> bool {
        let above = fifo.next_packet().is_some_and(|next| {
            let behind = fifo.waiting_tally().bytes.saturating_sub(next.bytes);
            // What goes at once has not waited, whatever came with it.
            now > next.came
                && now.duration_since(next.came) >= self.parameters.target
                && behind > self.packet
        });
        if !above {
            self.first_above = None;
            return false;
        }
        now >= *self
            .first_above
            .get_or_insert(now + self.parameters.interval)
    }

    /// Marks or drops the next packet; returns whether it was marked.
    fn mark_or_drop<T: Train>(
        &self,
        now: Time,
        fifo: &mut TrainFifo<T>,
        log: &mut DirectionLog<T>,
    ) -> bool {
        let queue = Some(fifo.waiting_tally().bytes);
        if let Some(marked) = self.parameters.ecn.then(|| fifo.mark_next()).flatten() {
            log.record_fate(now, Fate::Marked, queue, marked);
            return true;
        }
        if let Some(train) = fifo.take_next() {
            log.record_fate(now, Fate::AqmDropped, queue, &train);
        }
        false
    }

    fn control_law(&self, time: Time) -> Time {
        time + Span::from_nanos(
            (self.parameters.interval.as_nanos() as f64 / libm::sqrt(self.count.into())) as u64,
        )
    }
}
