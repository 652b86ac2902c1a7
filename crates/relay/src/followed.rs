//! The part of a connection since it was last reported.

use std::array;
use std::mem::replace;
use std::time::Instant;

use fullpipe_record::RelayStretch;
use fullpipe_units::{ByteCount, Span};

use crate::leg::RelaySocket;

/// A connection at its last report: of the client first, then of the target.
pub(crate) struct LastReport {
    at: Instant,
    read: [u64; 2],
    stretches: [RelayStretch; 2],
}

/// The part of a connection since the report before.
pub(crate) struct ReportInterval {
    pub interval: Span,
    pub read: [ByteCount; 2],
    pub stretches: [RelayStretch; 2],
}

impl LastReport {
    /// Begins with a connection that has just been joined.
    pub(crate) fn from_sockets(legs: &[RelaySocket; 2]) -> Self {
        Self {
            at: Instant::now(),
            read: [0; 2],
            stretches: stretch_totals(legs),
        }
    }

    /// Returns the part until now, in which payload was `read` to these counts; `None` if that is
    /// nothing more, and nothing is held up.
    pub(crate) fn take_interval(
        &mut self,
        read: [u64; 2],
        is_held_up: bool,
        legs: &[RelaySocket; 2],
    ) -> Option<ReportInterval> {
        let now = Instant::now();
        let interval = Span::from(now - replace(&mut self.at, now));
        let before = replace(&mut self.read, read);
        // Of a part that is not reported, too: its time would count in the next part, which may be
        // shorter.
        let stretches = stretch_totals(legs);
        let earlier = replace(&mut self.stretches, stretches.clone());
        if read == before && !is_held_up {
            return None;
        }
        Some(ReportInterval {
            interval,
            read: array::from_fn(|side| ByteCount::new(read[side] - before[side])),
            stretches: array::from_fn(|side| {
                stretches[side].figures_since(&earlier[side], interval)
            }),
        })
    }
}

/// Returns the figures of both stretches so far. Only differences of them are used, so their limits
/// mean nothing.
fn stretch_totals(legs: &[RelaySocket; 2]) -> [RelayStretch; 2] {
    legs.each_ref()
        .map(|leg| RelayStretch::from_tcp_info(&leg.socket_info(), leg.loss_ratio(), Span::ZERO))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::thread;
    use std::time::Duration;

    /// Returns two legs of one connection.
    fn connected() -> [RelaySocket; 2] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let caller = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        [caller, listener.accept().unwrap().0].map(|stream| RelaySocket::new(stream, None))
    }

    #[test]
    fn the_busy_time_of_a_part_that_is_not_reported_is_none_of_the_next() {
        let legs = connected();
        let mut followed = LastReport::from_sockets(&legs);
        legs[0].socket.set_nonblocking(true).unwrap();
        // No program reads at the other end, so data stays on its way.
        while (&legs[0].socket).write(&[0; 8_192]).is_ok() {}
        thread::sleep(Duration::from_millis(300));
        assert!(followed.take_interval([0, 0], false, &legs).is_none());
        let part = followed.take_interval([1, 0], false, &legs).unwrap();
        let busy = part.stretches[0].busy;
        assert!(
            busy < Span::from_millis(200),
            "{busy} in an interval of {}",
            part.interval
        );
    }

    #[test]
    fn an_idle_connection_has_no_part_and_one_that_is_held_up_has() {
        let legs = connected();
        let mut followed = LastReport::from_sockets(&legs);
        assert!(followed.take_interval([0, 0], false, &legs).is_none());
        let read = |part: Option<ReportInterval>| part.map(|part| part.read.map(ByteCount::get));
        assert_eq!(
            read(followed.take_interval([5, 7], false, &legs)),
            Some([5, 7])
        );
        assert_eq!(
            read(followed.take_interval([5, 9], false, &legs)),
            Some([0, 2])
        );
        assert_eq!(
            read(followed.take_interval([5, 9], true, &legs)),
            Some([0, 0])
        );
        assert!(followed.take_interval([5, 9], false, &legs).is_none());
    }
}
