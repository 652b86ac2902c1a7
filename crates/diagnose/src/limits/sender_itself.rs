//! A sender that holds itself back, by its program, its buffer, a pace or its queue, where packets
//! alone show it.

use fullpipe_record::ApplicationWindowVerdict;

use crate::limits::application_window::GRANTED_OR_BUFFER;
use crate::limits::prelude::*;
use crate::limits::receive_window::device::SCALE_OR_SILENCE;
use crate::signals::ArrivalCourse;
use crate::signals::arrivals::counter_growth;
use crate::thresholds::{
    CLOCK_TICK, CLOCKED_SHARE, FASTER_THAN_A_BUFFER, FASTER_THAN_A_PACE, IDLE_SHARE_OF_PATH,
    INITIAL_WINDOW, MIN_PACED_SHARE, MIN_RECOVERIES, MIN_SHARE_OF_BURSTS,
};

candidate_sets! {
    /// Several connections that bring the same in each round trip.
    BUFFER_OR_DEVICE: [SendBuffer TcpWmemMax, Pacing Qdisc, ReceiveWindow WindowClamped],
        "the queueing discipline of the sender's device (tc -s qdisc), and what waits in its \
         buffer (ss -tnm)";
    /// A round trip that brings the same and then nothing.
    BUFFER_OR_WRITES: [SendBuffer TcpWmemMax, SendBuffer SoSndbuf, SenderApplication Idle],
        "what waits in the sender's buffer (ss -tnm)";
    /// Data that is lost at times, at about the same rate as ever.
    LOST_OR_HELD_BACK: [
        Loss Random, Loss Policer, SenderApplication Idle, SendBuffer TcpWmemMax
    ],
        "what the sender sent again, and what waits in its buffer (ss -tnmi)";
    /// Data that comes with no relation to round trips.
    PROGRAM_OR_BUFFER: [
        SenderApplication Idle, SenderApplication RateLimited, SendBuffer TcpWmemMax
    ],
        "what the sending program waits for, and what waits in its buffer (ss -tnm)";
    /// Data that comes evenly.
    WHOSE_PACE: [Pacing Qdisc, SenderApplication RateLimited, SendBuffer TcpWmemMax],
        "the queueing discipline of the sender's device (tc -s qdisc), whether its program sets \
         a pace or a rate";
    /// As much in flight at any time, in a capture.
    pub(crate) BUFFER_OR_PROGRAM: [SendBuffer TcpWmemMax, SenderApplication Idle, Pacing Qdisc],
        "a capture at the sender, and what waits in its buffer (ss -tnm)";
    /// As much in flight at any time, sent as acknowledgements come.
    BUFFER_OR_WINDOW: [SendBuffer TcpWmemMax, ReceiveWindow WindowClamped, SenderApplication Idle],
        "a capture at the sender, which shows the windows that reach it, and what waits in its \
         buffer (ss -tnm)";
    /// As much in flight at any time, with data that waits at the sender throughout.
    pub(crate) WAITS_IN_HOST: [
        SendBuffer TcpWmemMax, Pacing Qdisc, Capacity HostQueue, SenderApplication Idle
    ],
        "what waits in the sender's buffer (ss -tnm), and the queueing discipline of its device \
         with its drops (tc -s qdisc)";
    /// A sender that sends at times of its own and never pauses.
    QUEUE_OR_PROGRAM: [Capacity HostQueue, SenderApplication Idle, Pacing Qdisc],
        "the queueing discipline of the sender's device and its drops, and what its program does";
}

/// Share of the variance of the arrivals that is left within the phases of a round trip, up to which
/// they repeat with it (simulated: at most 0.36 of 45 of 50 full send buffers, 0.30 and more of 42
/// of 50 programs that pause).
const REPEATED_COURSE: f64 = 0.4;
/// Share of the variance that is left within the phases of a round trip where the arrivals repeat
/// with another time, too, as with parts of a round trip: clearly with the round trip, and perhaps
/// with both (simulated: at most 0.16 of 54 full send buffers with such times; 0.18 and more of 38
/// of 49 programs that pause, 0.1 and more of 41).
const CLEARLY_REPEATED_COURSE: f64 = 0.1;
const OWN_COURSE: f64 = 0.2;
/// Share of the variance that round trips leave from which what comes has nothing to do with them
/// (simulated: 0.9 and more of paces and of programs with a rate, one of 112 send buffers).
const NO_ROUND_TRIPS: f64 = 0.85;

/// Finds a sender that holds itself back: this end would take more, nothing is lost, and no queue
/// stands on the path.
///
/// Data that comes evenly has a rate of its own. What a full buffer lets through follows the
/// acknowledgements, so that each round trip brings the same at the same phase; a program writes at
/// times that have nothing to do with round trips.
pub(crate) fn sender_itself(arrivals: &ReceiverView) -> Option<Finding> {
    if arrivals.rate == BitRate::ZERO {
        return None;
    }
    let course = arrivals.busiest_course()?;
    let idle = Finding::always(SenderApplicationVerdict::Idle);
    let (is_own, is_even) = (arrivals.is_own_load(), arrivals.comes_evenly(&course));
    let left = arrivals.left_by_round_trips(&course);
    let has_own_times = arrivals.has_times_of_its_own(&course, left);
    // A full buffer lets nothing be lost; a program may have lost what it caught up with.
    if arrivals.loss_rounds() >= MIN_RECOVERIES && !arrivals.was_faster(FASTER_THAN_A_BUFFER) {
        return Some(Finding::always(LossVerdict::Random).one_of(&LOST_OR_HELD_BACK));
    }
    // The halves of a round trip repeat, too, where it does.
    let most_left = if has_own_times {
        CLEARLY_REPEATED_COURSE
    } else {
        REPEATED_COURSE
    };
    Some(match () {
        // What a program writes waits while the congestion window opens, and then comes faster.
        () if is_own && is_even && arrivals.was_faster(FASTER_THAN_A_PACE) => {
            Finding::always(SenderApplicationVerdict::RateLimited)
        }
        () if is_own && is_even => rate_of_the_sender(arrivals),
        // One of several connections has the pattern of all of them.
        () if is_own && arrivals.flows.len() > 1 => full_buffer(arrivals).one_of(&BUFFER_OR_DEVICE),
        () if !is_even && is_own && trickles_after_first_window(arrivals, &course) => {
            Finding::always(ReceiveWindowVerdict::WindowScaleRewritten).one_of(&SCALE_OR_SILENCE)
        }
        () if !is_even && arrivals.is_away_beyond_windows(&course) => idle,
        () if is_own && arrivals.was_faster(FASTER_THAN_A_BUFFER) => idle,
        () if !is_even && is_silent_for_round_trips(arrivals, &course) => {
            full_buffer(arrivals).one_of(&BUFFER_OR_WRITES)
        }
        () if !is_even && left <= most_left => full_buffer(arrivals),
        () if !is_even && has_own_times && left <= OWN_COURSE => {
            full_buffer(arrivals).one_of(&BUFFER_OR_WRITES)
        }
        () if !is_even && has_own_times => idle.one_of(&PROGRAM_OR_BUFFER),
        () if is_own && left >= NO_ROUND_TRIPS => rate_of_the_sender(arrivals).one_of(&WHOSE_PACE),
        () if is_own => full_buffer(arrivals),
        () => idle.one_of(&PROGRAM_OR_BUFFER),
    })
}

/// Silence ÷ round trip that nineteen of twenty samples keep to, from which a send buffer and a
/// program look alike (simulated: at most 0.78 of buffers that hold a quarter of the pipe).
const SILENT_ROUND_TRIP: f64 = 0.92;

/// Returns true if what comes in a round trip comes so fast that the rest of it is silent, as with a
/// buffer of a few segments, or with writes that are far between.
fn is_silent_for_round_trips(arrivals: &ReceiverView, course: &ArrivalCourse) -> bool {
    arrivals
        .round_trip_of_the_path()
        .is_some_and(|rtt| course.usual_silence >= rtt.scale_by(SILENT_ROUND_TRIP))
}

/// Returns true if a round trip brings a few segments and then nothing, fewer than came at first,
/// though none was lost: no congestion window and no buffer becomes so small, and the window of the
/// handshake has no scale that a device could have changed.
fn trickles_after_first_window(arrivals: &ReceiverView, course: &ArrivalCourse) -> bool {
    let few = arrivals.mss().unwrap_or_default() * FEW_SEGMENTS * arrivals.flows.len() as u64;
    let comes_in_turn = arrivals
        .round_trip_of_the_path()
        .is_some_and(|rtt| arrivals.rate.bytes_in(rtt) < few && course.usual_silence * 2 >= rtt);
    comes_in_turn
        && arrivals.usual_window() >= Some(few * 2)
        && arrivals.was_faster(FASTER_THAN_A_BUFFER)
        && arrivals.loss_rounds() == 0
}

/// Returns the send buffer as the limit. The window of another program fills as a buffer does.
fn full_buffer(arrivals: &ReceiverView) -> Finding {
    let is_fixed = arrivals.evidence.request.buffer != Buffer::Automatic;
    let found = if is_fixed {
        SendBufferVerdict::SoSndbuf
    } else {
        SendBufferVerdict::TcpWmemMax
    };
    let found = Finding::always(found);
    if arrivals.is_own_load() {
        found
    } else {
        found.one_of(&BUFFER_OR_WRITES)
    }
}

/// Segments of the largest train that a pace lets pass at once (`sk_pacing_shift`: those of a
/// millisecond).
const MAX_TRAIN_SEGMENTS: u32 = 9;
/// Share of a train by which the acknowledgements differ from one for each where all trains are the
/// same (simulated: 0.002 of paces).
const SAME_TRAINS: f64 = 0.0025;
/// Share of a train by which the acknowledgements differ from one for each where few trains differ,
/// as a program's may be.
const NEARLY_SAME_TRAINS: f64 = 0.004;
/// Acknowledgements for each segment from which not all segments come in pairs or trains (RFC 1122,
/// 4.2.3.2: one for every second segment; measured of paces: 0.50 but for one in ten).
const ACKNOWLEDGED_PAIRS: f64 = 0.5;

/// Returns who sets the even rate of a sender, as far as the acknowledgements show how data came:
/// a pace lets trains of as many segments pass each time, two or more, and a program writes what is
/// no whole number of segments.
fn rate_of_the_sender(arrivals: &ReceiverView) -> Finding {
    let pace = Finding::always(PacingVerdict::Qdisc);
    let may_be_pace = if arrivals.was_always_as_fast() {
        pace.clone()
    } else {
        pace.clone().one_of(&WHOSE_PACE)
    };
    let Some(acknowledged) = arrivals.acknowledgements_of_a_segment() else {
        return may_be_pace;
    };
    // One for each train, or for every second segment and the end of a train.
    let differs = (2..=MAX_TRAIN_SEGMENTS).flat_map(|train| {
        let of_train = acknowledged * f64::from(train);
        [1, train.div_ceil(2)].map(|count| (of_train - f64::from(count)).abs())
    });
    let differs = differs.fold(f64::INFINITY, f64::min);
    if differs <= SAME_TRAINS {
        pace
    } else if acknowledged > ACKNOWLEDGED_PAIRS && differs > NEARLY_SAME_TRAINS {
        let program = Finding::always(SenderApplicationVerdict::RateLimited);
        // BBR makes the same of a send buffer, but probes for more.
        if arrivals.is_bbr() && arrivals.was_faster(FASTER_BY_CHANCE) {
            program.one_of(&WHOSE_PACE)
        } else {
            program
        }
    } else {
        may_be_pace
    }
}

/// Share of the packets without a whole number of full segments, from which the program had no more
/// to send, in a capture at the sender. Packets are trains there, of which few end with a write
/// unless the program had no more (measured: 0.022 and more of most programs, at most 0.015 of
/// buffers and paces).
const MIN_PARTIAL_AT_SENDER: f64 = 0.02;
/// Share of the packets without a whole number of full segments, from which the program had no more
/// to send, in a capture elsewhere, and at the sender where packets hold one segment each: only the
/// last one of a write is not full (measured: 0.005 and more of most programs, at most 0.002 of
/// buffers and paces).
const MIN_PARTIAL_OF_PROGRAM: f64 = 0.004;
/// Ends of writes that show where data always waits at the sender: the first one, which begins a
/// test, and the last.
const FEW_ENDS_OF_WRITES: f64 = 3.0;
/// Share of what is usually in flight at most, which a full send buffer has in flight for nine
/// tenths of the time (measured: 0.85 and more, where a third may be free when its writer is woken;
/// 0.5 of a program that pauses).
const MIN_PLATEAU: f64 = 0.6;
/// Share of what is usually in flight at most, which a full send buffer that never wavers has in
/// flight for nine tenths of the time: losses and queues make a sender's window swing (measured: at
/// most 0.78).
const FLAT_PLATEAU: f64 = 0.85;
/// Share of the data at one rate to know that of the path where a buffer is refilled in bursts.
const MIN_SHARE_OF_REFILLS: f64 = 0.1;
/// Most in flight of the round trips with little, by that of those with much, where a buffer swings
/// by the third that is free when its writer is woken.
const MIN_LEVEL_OF_SLEEPING_WRITER: f64 = 2.0 / 3.0;

/// Finds a send buffer, whose data is always as much: losses and queues make it swing. Its own
/// bursts may wait in a queue, and at first be lost to it, but the queue is empty before the
/// next ones.
pub(crate) fn keeps_buffer_full(view: &CaptureView) -> Option<Finding> {
    if view.was_fuller() {
        return None;
    }
    let lost = view.ever_lost_on_path();
    let is_faster = view.bursts_are_faster(MIN_SHARE_OF_BURSTS) == Some(true);
    let is_flat = view.flight_plateau()? >= FLAT_PLATEAU && !lost && is_faster;
    let refills = view.is_level()
        && view.drains_queue()
        && (view.some_waits() || !lost)
        && view.bursts_are_faster(MIN_SHARE_OF_REFILLS) == Some(true);
    (is_flat || refills)
        .then(|| sends_by_itself(view))
        .flatten()
}

/// Finds a sender that holds itself back though this does not show why: its program or its own
/// queue, by which data goes out at their times, or its buffer, whose data goes out as the
/// acknowledgements come.
pub(crate) fn sends_by_itself(view: &CaptureView) -> Option<Finding> {
    if view.is_answered_in_each_round_trip() {
        return Some(
            Finding::always(ApplicationWindowVerdict::SshChannelOfReceiver)
                .one_of(&GRANTED_OR_BUFFER),
        );
    }
    let at_own_times = view
        .capture
        .clocked
        .is_some_and(|clocked| clocked.get() < CLOCKED_SHARE);
    let is_uneven = view.flight_plateau()? < MIN_PLATEAU
        && !view.is_level()
        && !view.follows_acknowledgements();
    if !view.is_at_sender() {
        let program_caught_up = view.was_fuller() && !view.ever_lost_on_path();
        if view.writes_show() || (at_own_times && is_uneven) || program_caught_up {
            return Some(Finding::always(SenderApplicationVerdict::Idle));
        }
        if view.trains_are_of_a_pace() {
            let pace = Finding::always(PacingVerdict::MaxPacingRate);
            // A buffer may be refilled in trains of that size.
            return Some(if view.follows_acknowledgements() {
                pace.one_of(&BUFFER_OR_PROGRAM)
            } else {
                pace
            });
        }
        let found = Finding::always(SendBufferVerdict::TcpWmemMax);
        // A smaller window does the same, and not every sender cuts a packet where it ends. A
        // pace cuts none.
        let may_be_window = match view.capture.clocked {
            Some(_) => view.follows_acknowledgements(),
            None => view.cuts_packets()?,
        };
        return Some(if may_be_window {
            found.one_of(&BUFFER_OR_WINDOW)
        } else {
            view.with_program(found)
        });
    }
    let is_spaced = view
        .paced_share()
        .is_some_and(|share| share.get() >= MIN_PACED_SHARE);
    if view.was_fuller() && !view.follows_acknowledgements() {
        let program = if view.writes_show() || is_spaced {
            SenderApplicationVerdict::RateLimited
        } else {
            SenderApplicationVerdict::Idle
        };
        return Some(Finding::always(program));
    }
    let is_held = at_own_times && view.is_level() && !view.was_fuller();
    if is_held && !view.writes_show() && view.data_waits_at_sender() {
        // Neither a buffer nor a pace, behind which data waits at any time.
        let found = Finding::always(SendBufferVerdict::TcpWmemMax);
        return Some(found.one_of(&WAITS_IN_HOST));
    }
    let found: LegalVerdict = if view.writes_show() {
        SenderApplicationVerdict::Idle.into()
    } else if !is_uneven && (view.bursts_are_paced() || is_spaced) {
        // The kernel's pace hides what follows acknowledgements, and a device may be what
        // spaces the data.
        SendBufferVerdict::TcpWmemMax.into()
    } else if !is_uneven && (!at_own_times || view.is_level()) {
        // What a host drops itself makes its congestion window swing.
        SendBufferVerdict::SoSndbuf.into()
    } else if view.capture.idle.get() >= IDLE_SHARE_OF_PATH {
        SenderApplicationVerdict::Idle.into()
    } else {
        // A program would leave pauses.
        CapacityVerdict::HostQueue.into()
    };
    let finding = Finding::always(found);
    Some(if found == CapacityVerdict::HostQueue.into() {
        finding.one_of(&QUEUE_OR_PROGRAM)
    } else {
        view.with_program(finding)
    })
}

impl CaptureView<'_> {
    /// Returns a send buffer as one of several where its program may be the limit.
    fn with_program(&self, found: Finding) -> Finding {
        let may_be = found.is(SendBufferVerdict::TcpWmemMax);
        if may_be && self.was_a_little_fuller() {
            found.one_of(&BUFFER_OR_PROGRAM)
        } else {
            found
        }
    }

    /// Returns true if a buffer is refilled in long trains, each as acknowledgements come: its
    /// writer is woken seldom, when a third of it is free (`sk_stream_write_space`).
    pub(crate) fn is_buffer(&self) -> bool {
        let sleeps = self
            .capture
            .quiet
            .is_some_and(|quiet| quiet.level.get() >= MIN_LEVEL_OF_SLEEPING_WRITER);
        (self.is_level() || (!self.ever_lost_on_path() && sleeps))
            && !self.was_fuller()
            && self.follows_acknowledgements()
            && self.is_longer_than_a_pace(self.figures.rate)
    }

    /// Returns true if data always waited at the sender: hardly a packet ends where a write does.
    fn data_waits_at_sender(&self) -> bool {
        let flow = self.figures.flows.first();
        flow.and_then(|flow| flow.whole.last()?.tcp.data_segs_out)
            .is_some_and(|all| self.capture.partial.get() * all.get() as f64 <= FEW_ENDS_OF_WRITES)
    }

    /// Returns true if packets end where the program's writes do, which are joined where data waits
    /// at the sender.
    pub(crate) fn writes_show(&self) -> bool {
        let partial = self.capture.partial.get();
        if self.follows_acknowledgements() {
            return false;
        }
        // A window cuts packets, too: it is always full, and data follows the acknowledgements that
        // move it.
        let is_at_own_times = self
            .capture
            .clocked
            .is_some_and(|clocked| clocked.get() < CLOCKED_SHARE);
        let is_no_window = is_at_own_times || (self.capture.quiet.is_some() && !self.is_level());
        (self.is_at_sender() && partial >= MIN_PARTIAL_AT_SENDER)
            || (partial >= MIN_PARTIAL_OF_PROGRAM && is_no_window && !self.ever_lost_on_path())
    }
}

/// Highest rate over a round trip ÷ the usual one up to which a pace held the data back from the
/// first segment on (simulated: at most 1.012 of paces over round trips of 40 segments and more,
/// from 1.02 of buffers under BBR).
const FASTER_BY_CHANCE: f64 = 1.015;
/// Shortest round trip over which snapshots show that a program caught up.
const SHORTEST_TO_CATCH_UP: Span = Span::from_millis(10);
/// Time by which an even rate is ahead or behind at most, beside trains of a few segments
/// (simulated: at most 1.9 ms of paces and of programs that write every 2 ms).
const EVEN_TIME: Span = Span::from_millis(2);
/// Share of a round trip by which an even rate is ahead or behind at most (simulated: 0.16 and less
/// over 3 ms; 0.18 and more of send buffers where the time is as short).
const EVEN_SHARE: f64 = 0.17;
/// Multiple of the idle round-trip time up to which that of a full send buffer is, beside segments
/// on the line and the clock.
const LONGER_ROUND_TRIP: f64 = 1.03;
/// Share that is left within the phases of another time, up to which they repeat with that: many
/// such times are tried (simulated: 0.27 and more of send buffers that do not repeat with the round
/// trip; measured: 0.6 and more).
const REPEATED_TIMES: f64 = 0.12;
/// Shortest time that is tried as that of a repeated course: programs that pause for less come
/// evenly.
const SHORTEST_PERIOD: Span = Span::from_millis(9);
/// Longest time that is tried as that of a repeated course.
const LONGEST_PERIOD: Span = Span::from_millis(300);
/// Parts of a round trip between which a time is no round trip: up to the first, and from the second
/// to the third, as two round trips are one of a window, too.
const BELOW_ROUND_TRIP: f64 = 0.9;
const ABOVE_ROUND_TRIP: f64 = 1.3;
const BELOW_TWO_ROUND_TRIPS: f64 = 1.8;

impl ReceiverView<'_> {
    /// Returns true if the data comes at an even rate, but for trains of a few segments, as far as
    /// the clocks show.
    fn comes_evenly(&self, course: &ArrivalCourse) -> bool {
        let on_the_line = self.rate.time_for(self.mss().unwrap_or_default() * 2);
        let uneven = course.unevenness();
        uneven <= EVEN_TIME + on_the_line + course.tick
            && course.usual_silence <= EVEN_TIME + on_the_line + course.tick
            && self
                .round_trip_of_the_path()
                .is_some_and(|rtt| uneven <= rtt.scale_by(EVEN_SHARE) + course.tick)
    }

    /// Returns true if the data never came faster, over round trips that take several windows to
    /// fill: only a pace does not make up for those, nor probes.
    fn was_always_as_fast(&self) -> bool {
        let several_windows = self.mss().unwrap_or_default() * INITIAL_WINDOW * 4;
        !self.was_faster(FASTER_BY_CHANCE)
            && self.round_trip_of_the_path().is_some_and(|rtt| {
                rtt >= SHORTEST_TO_CATCH_UP && self.rate.bytes_in(rtt) >= several_windows
            })
    }

    /// Returns the share of the variance that is left if each round trip brings the same at the same
    /// phase; full segments and the clocks make it a little longer than that of the idle path.
    fn left_by_round_trips(&self, course: &ArrivalCourse) -> f64 {
        let (Some(rtt), Some(mss)) = (self.round_trip_of_the_path(), self.mss()) else {
            return f64::INFINITY;
        };
        if self.is_a_little_inflated() {
            return f64::INFINITY;
        }
        let rest = CLOCK_TICK + self.rate.time_for(mss * 4) + course.tick;
        course.variance_left(rtt, rtt.scale_by(LONGER_ROUND_TRIP) + rest)
    }

    /// Returns true if the sender writes at times of its own: its data makes acknowledgements wait,
    /// or repeats with another time than a round trip clearly more than with that, of whose share
    /// `left` is left. What changes slowly repeats as much with one time as with another.
    fn has_times_of_its_own(&self, course: &ArrivalCourse, left: f64) -> bool {
        let Some(rtt) = self.round_trip_of_the_path() else {
            return false;
        };
        let others = [
            (SHORTEST_PERIOD, rtt.scale_by(BELOW_ROUND_TRIP)),
            (
                rtt.scale_by(ABOVE_ROUND_TRIP),
                rtt.scale_by(BELOW_TWO_ROUND_TRIPS).min(LONGEST_PERIOD),
            ),
        ];
        self.is_a_little_inflated()
            || others.iter().any(|(from, to)| {
                course.variance_left(*from, *to) <= REPEATED_TIMES.min(left / 2.0)
            })
    }

    pub(crate) fn round_trip_of_the_path(&self) -> Option<Span> {
        self.evidence.idle_rtt.or(self.rtt)
    }

    /// Returns the acknowledgements for each segment with data, all connections together.
    fn acknowledgements_of_a_segment(&self) -> Option<f64> {
        let sent = counter_growth(&self.flows, |tcp| tcp.segs_out)?;
        let came = counter_growth(&self.flows, |tcp| tcp.data_segs_in)?;
        (came > 0).then(|| sent as f64 / came as f64)
    }
}
