//! Limits of the sending host, by when its data comes.

use fullpipe_record::{
    Buffer, CapacityVerdict, CpuVerdict, PacingVerdict, ReceiveWindowVerdict, SendBufferVerdict,
    SenderApplicationVerdict,
};
use fullpipe_units::{BitRate, Ratio, Span};

use crate::arrival_course::ArrivalCourse;
use crate::arrivals::{ReceiverSampleFigures, counter_growth};
use crate::figures::share_of_votes;
use crate::finding::LimitFinding;
use crate::thresholds::{
    ABOVE_ROUND_TRIP, ACKNOWLEDGED_PAIRS, BELOW_ROUND_TRIP, BELOW_TWO_ROUND_TRIPS,
    CLEARLY_REPEATED_COURSE, CLOCK_TICK, EVEN_SHARE, EVEN_TIME, FASTER_BY_CHANCE,
    FASTER_THAN_A_BUFFER, FASTER_THAN_A_PACE, FEW_SEGMENTS, INITIAL_WINDOW, LONG_SILENCE,
    LONGER_ROUND_TRIP, LONGEST_PERIOD, MAX_TRAIN_SEGMENTS, MIN_IDLE_SHARE, MIN_LONG_SILENCES,
    MIN_RETRANSMISSION_TIMEOUT, NEARLY_SAME_TRAINS, NO_ROUND_TRIPS, OWN_COURSE, REPEATED_COURSE,
    REPEATED_TIMES, SAME_TRAINS, SHORTEST_PERIOD, SHORTEST_TO_CATCH_UP, SILENCE_ROUND_TRIPS,
    SILENT_ROUND_TRIP, TICK_TOLERANCE,
};

/// Finds a sender that is often silent for longer than a round trip, though not for as long as a
/// retransmission timer takes: no window makes it so.
pub(crate) fn silent_beyond_windows(arrivals: &ReceiverSampleFigures) -> Option<LimitFinding> {
    let rtt = arrivals.estimate?;
    let away = arrivals.share_of_silences(rtt, &arrivals.busiest_course()?)?;
    (away.get() >= MIN_LONG_SILENCES)
        .then(|| LimitFinding::new(SenderApplicationVerdict::Idle, Ratio::ONE))
}

/// Finds a sender that is silent for longer than any window would explain. Where only a round trip
/// that is longer than that of the idle path would explain it, a path that others fill, or this
/// end's window over it, may be the reason.
pub(crate) fn silent_sender(arrivals: &ReceiverSampleFigures) -> Option<LimitFinding> {
    let longest = arrivals
        .evidence
        .loaded_rtt
        .and(arrivals.rtt)
        .or(arrivals.estimate)?;
    let silent = arrivals.silent_for(longest)?;
    if silent.get() > MIN_IDLE_SHARE {
        // A program that gets no time sends nothing either.
        return Some(
            LimitFinding::new(SenderApplicationVerdict::Idle, silent)
                .add_alternative(CpuVerdict::StolenOfSender),
        );
    }
    let paused = arrivals.pauses?;
    // A program that makes load on request has data whenever a buffer has room for it.
    if arrivals.is_own_load() && arrivals.silent_for(arrivals.rtt?)?.get() <= MIN_IDLE_SHARE {
        return None;
    }
    let idle = LimitFinding::new(SenderApplicationVerdict::Idle, paused);
    Some(match arrivals.window_over_a_longer_round_trip() {
        Some(window) => idle.add_alternative(window),
        None => idle.add_alternative(CapacityVerdict::Shared),
    })
}

/// Finds a sender that holds itself back: this end would take more, nothing is lost, and no queue
/// stands on the path.
///
/// Data that comes evenly has a rate of its own. What a full buffer lets through follows the
/// acknowledgements, so that each round trip brings the same at the same phase; a program writes at
/// times that have nothing to do with round trips.
pub(crate) fn sender_itself(arrivals: &ReceiverSampleFigures) -> Option<LimitFinding> {
    if arrivals.rate == BitRate::ZERO {
        return None;
    }
    let course = arrivals.busiest_course()?;
    let idle = LimitFinding::new(SenderApplicationVerdict::Idle, Ratio::ONE);
    let (is_own, is_even) = (arrivals.is_own_load(), arrivals.comes_evenly(&course));
    let left = arrivals.left_by_round_trips(&course);
    let has_own_times = arrivals.has_times_of_its_own(&course, left);
    // The halves of a round trip repeat, too, where it does.
    let most_left = if has_own_times {
        CLEARLY_REPEATED_COURSE
    } else {
        REPEATED_COURSE
    };
    Some(match () {
        // What a program writes waits while the congestion window opens, and then comes faster.
        () if is_own && is_even && arrivals.was_faster(FASTER_THAN_A_PACE) => {
            LimitFinding::new(SenderApplicationVerdict::RateLimited, Ratio::ONE)
        }
        () if is_own && is_even => rate_of_the_sender(arrivals),
        // One of several connections has the pattern of all of them.
        () if is_own && arrivals.flows.len() > 1 => {
            full_buffer(arrivals).add_alternative(PacingVerdict::Qdisc)
        }
        () if !is_even && is_own && trickles_after_first_window(arrivals, &course) => {
            LimitFinding::new(ReceiveWindowVerdict::WindowScaleRewritten, Ratio::ONE)
                .one_of_several()
        }
        () if !is_even && arrivals.is_away_beyond_windows(&course) => idle,
        () if is_own && arrivals.was_faster(FASTER_THAN_A_BUFFER) => idle,
        () if !is_even && is_silent_for_round_trips(arrivals, &course) => {
            full_buffer(arrivals).one_of_several()
        }
        () if !is_even && left <= most_left => full_buffer(arrivals),
        () if !is_even && has_own_times && left <= OWN_COURSE => {
            full_buffer(arrivals).one_of_several()
        }
        () if !is_even && has_own_times => idle.add_alternative(SendBufferVerdict::TcpWmemMax),
        () if is_own && left >= NO_ROUND_TRIPS => rate_of_the_sender(arrivals).one_of_several(),
        () if is_own => full_buffer(arrivals),
        () => idle.add_alternative(SendBufferVerdict::TcpWmemMax),
    })
}

/// Returns true if what comes in a round trip comes so fast that the rest of it is silent, as with a
/// buffer of a few segments, or with writes that are far between.
fn is_silent_for_round_trips(arrivals: &ReceiverSampleFigures, course: &ArrivalCourse) -> bool {
    arrivals
        .round_trip_of_the_path()
        .is_some_and(|rtt| course.usual_silence >= rtt.scale_by(SILENT_ROUND_TRIP))
}

/// Returns true if a round trip brings a few segments and then nothing, fewer than came at first,
/// though none was lost: no congestion window and no buffer becomes so small, and the window of the
/// handshake has no scale that a device could have changed.
fn trickles_after_first_window(arrivals: &ReceiverSampleFigures, course: &ArrivalCourse) -> bool {
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
fn full_buffer(arrivals: &ReceiverSampleFigures) -> LimitFinding {
    let is_fixed = arrivals.evidence.request.buffer != Buffer::Automatic;
    let found = if is_fixed {
        SendBufferVerdict::SoSndbuf
    } else {
        SendBufferVerdict::TcpWmemMax
    };
    let found = LimitFinding::new(found, Ratio::ONE);
    if arrivals.is_own_load() {
        found
    } else {
        found.one_of_several()
    }
}

/// Returns who sets the even rate of a sender, as far as the acknowledgements show how data came:
/// a pace lets trains of as many segments pass each time, two or more, and a program writes what is
/// no whole number of segments.
fn rate_of_the_sender(arrivals: &ReceiverSampleFigures) -> LimitFinding {
    let pace = LimitFinding::new(PacingVerdict::Qdisc, Ratio::ONE);
    let may_be_pace = if arrivals.was_always_as_fast() {
        pace.clone()
    } else {
        pace.clone().one_of_several()
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
        LimitFinding::new(SenderApplicationVerdict::RateLimited, Ratio::ONE)
    } else {
        may_be_pace
    }
}

impl ReceiverSampleFigures<'_> {
    /// Returns the share of the snapshots in which nothing has come for longer than a round trip of
    /// `rtt` explains.
    pub(super) fn silent_for(&self, rtt: Span) -> Option<Ratio> {
        let timeout = rtt.scale_by(SILENCE_ROUND_TRIPS) + TICK_TOLERANCE;
        share_of_votes(
            self.snapshots()
                .map(|now| Some(now.tcp.since_data_received? > timeout)),
        )
    }

    /// Returns the share of the snapshots in silences that are longer than a window over `rtt`
    /// explains, but shorter than a retransmission timer.
    fn share_of_silences(&self, rtt: Span, course: &ArrivalCourse) -> Option<Ratio> {
        let on_the_line = self.rate.time_for(self.mss()? * 2);
        let longest = rtt.scale_by(LONG_SILENCE) + CLOCK_TICK + on_the_line + course.tick;
        let away = self.snapshots().map(|now| {
            let silence = now.tcp.since_data_received?;
            Some(silence > longest && silence < MIN_RETRANSMISSION_TIMEOUT.max(rtt))
        });
        share_of_votes(away)
    }

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

    /// Returns true if data is away for longer than a round trip of the path explains.
    pub(super) fn is_away_beyond_windows(&self, course: &ArrivalCourse) -> bool {
        self.round_trip_of_the_path()
            .and_then(|rtt| self.share_of_silences(rtt, course))
            .is_some_and(|away| away.get() >= MIN_LONG_SILENCES)
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

    fn round_trip_of_the_path(&self) -> Option<Span> {
        self.evidence.idle_rtt.or(self.rtt)
    }

    /// Returns the acknowledgements for each segment with data, all connections together.
    fn acknowledgements_of_a_segment(&self) -> Option<f64> {
        let sent = counter_growth(&self.flows, |tcp| tcp.segs_out)?;
        let came = counter_growth(&self.flows, |tcp| tcp.data_segs_in)?;
        (came > 0).then(|| sent as f64 / came as f64)
    }
}
