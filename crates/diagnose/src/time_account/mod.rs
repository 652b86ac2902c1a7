//! The account of a command's time: what each moment was used for, as the samples of its
//! connections and its processor time show it.

mod connection;

use connection::{TimeBooking, TimeUse, connection_bookings};
use fullpipe_record::{ConnectionSamples, TimeAccount};
use fullpipe_units::Span;

/// Returns the account of the time `whole` of a command that had these connections. `processor` has
/// the processor time that its processes had used so far at several times, in their order.
///
/// A moment is booked from the kernel's counters and clocks (`tcpi_data_segs_out`,
/// `tcpi_data_segs_in`, `tcpi_last_data_sent`, `tcpi_last_data_recv`) between two samples; see
/// [`TimeAccount`].
pub fn time_account(
    whole: Span,
    connections: &[ConnectionSamples<'_>],
    processor: &[(Span, Span)],
) -> TimeAccount {
    // A connection may outlive the command, and be seen a moment longer.
    let within = connections
        .iter()
        .flat_map(connection_bookings)
        .filter(|booking| booking.from < booking.to.min(whole));
    let mut edges: Vec<TimelineEdge> = within
        .flat_map(|booking| TimelineEdge::both_of_booking(&booking))
        .collect();
    let used = processor
        .windows(2)
        .map(|pair| (pair[1].0, pair[1].1.saturating_sub(pair[0].1)));
    let used = used.filter(|(at, _)| *at <= whole);
    edges.extend(used.map(|(at, used)| TimelineEdge {
        at,
        change: UseChange::Processor(used),
    }));
    edges.push(TimelineEdge {
        at: whole,
        change: UseChange::Processor(Span::ZERO),
    });
    edges.sort_by_key(|edge| edge.at);
    let mut sweep = TimelineSweep {
        account: TimeAccount {
            whole,
            ..TimeAccount::default()
        },
        ..TimelineSweep::default()
    };
    for edge in edges {
        sweep.advance_to(edge.at.min(whole));
        sweep.apply_change(edge.change);
    }
    sweep.finish_account()
}

/// A moment at which the use of time may change.
struct TimelineEdge {
    at: Span,
    change: UseChange,
}

#[derive(Clone, Copy)]
enum UseChange {
    /// A use begins, on a connection with this round-trip time.
    Begin(TimeUse, Span),
    End(TimeUse),
    /// So much processor time was used since the last edge of this kind.
    Processor(Span),
}

impl TimelineEdge {
    fn both_of_booking(booking: &TimeBooking) -> [Self; 2] {
        let begin = UseChange::Begin(booking.of, booking.rtt);
        [
            Self {
                at: booking.from,
                change: begin,
            },
            Self {
                at: booking.to,
                change: UseChange::End(booking.of),
            },
        ]
    }
}

/// State of the walk along the time.
#[derive(Default)]
struct TimelineSweep {
    account: TimeAccount,
    at: Span,
    /// Bookings of each use that hold now.
    held: [u32; 4],
    /// Round-trip time of the request that began last.
    rtt: Span,
    round_trips: f64,
    /// Time since the last edge of the processor that no connection used.
    free: Span,
    /// Time since then in which only the other program was waited for.
    waited: Span,
}

impl TimelineSweep {
    fn advance_to(&mut self, to: Span) {
        let passed = to.saturating_sub(self.at);
        self.at = self.at.max(to);
        let [data, requests, connecting, other] = self.held.map(|held| held > 0);
        let account = match () {
            () if data => &mut self.account.data,
            () if requests => {
                self.round_trips +=
                    passed.as_secs_f64() / self.rtt.as_secs_f64().max(f64::MIN_POSITIVE);
                &mut self.account.requests
            }
            () if connecting => &mut self.account.connecting,
            () if other => &mut self.waited,
            () => &mut self.free,
        };
        *account += passed;
    }

    fn apply_change(&mut self, change: UseChange) {
        match change {
            UseChange::Begin(of, rtt) => {
                self.held[of as usize] += 1;
                self.rtt = if of == TimeUse::Requests {
                    rtt
                } else {
                    self.rtt
                };
            }
            UseChange::End(of) => self.held[of as usize] -= 1,
            UseChange::Processor(used) => self.book_unexplained_time(used),
        }
    }

    /// Books the time of which connections do not show the use. A program that computes does not
    /// wait for another.
    fn book_unexplained_time(&mut self, used: Span) {
        let (free, waited) = (
            std::mem::take(&mut self.free),
            std::mem::take(&mut self.waited),
        );
        let work = free.min(used);
        let work_while_waiting = waited.min(used.saturating_sub(work));
        self.account.own_work += work + work_while_waiting;
        self.account.elsewhere += free.saturating_sub(work);
        self.account.other_program += waited.saturating_sub(work_while_waiting);
    }

    fn finish_account(mut self) -> TimeAccount {
        self.book_unexplained_time(Span::ZERO);
        TimeAccount {
            round_trips: self.round_trips.round() as u64,
            ..self.account
        }
    }
}
