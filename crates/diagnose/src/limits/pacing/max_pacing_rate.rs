//! A maximum pace of the sockets.

use fullpipe_record::BurstRate;

use crate::limits::capacity::link::FULL_OR_PACED;
use crate::limits::pacing::cause_of_pace;
use crate::limits::prelude::*;
use crate::limits::sender_application::rate_limited;
use crate::limits::sender_itself::BUFFER_OR_PROGRAM;
use crate::signals::path;
use crate::text::{self, rate_text};
use crate::thresholds::{MAX_PACE_FACTOR, MIN_PACED_SHARE, REACHED_RATE_SHARE, WHOLE_RATE_SHARE};

candidate_sets! {
    /// Data that comes evenly, with more in flight at times.
    PROGRAM_OR_PACE: [SenderApplication RateLimited, Pacing MaxPacingRate, Pacing Qdisc],
        "whether the sender's program sets a pace, and the queueing discipline of its device";
}

pub(crate) const CAUSE: Cause = Cause {
    setting_remedies: |advice| vec![higher_pace(advice)],
    manual_remedies: &[ManualRemedy::new(
        "higher-pace",
        Scope::Application,
        "The program set a maximum pace on its sockets: set a higher one, or none.",
    )],
    ..cause_of_pace(&["pacing/max-pacing-rate"], |figures, _| {
        format!(
            "The sending program set a maximum pace of {} on its sockets, and the transfer reaches it{}.",
            rate_text(max_pace(figures)),
            text::could_carry(figures),
        )
    })
};

/// Returns the maximum pace of the sockets (`SO_MAX_PACING_RATE`) as the limit, if they reach all
/// of it; or nearly all, and no queue stands on the path: headers and waiting may take the rest,
/// and so may a full link that carries no more.
pub(crate) fn by_program(figures: &SenderView) -> Option<Finding> {
    let set = max_pace(figures)?;
    let share = if path::rtt_is_inflated(figures) {
        WHOLE_RATE_SHARE
    } else {
        REACHED_RATE_SHARE
    };
    (figures.rate >= set.scale_by(share)).then(|| Finding::always(PacingVerdict::MaxPacingRate))
}

/// Finds a sender that was asked for a maximum pace and keeps to it, where its data arrives. Headers
/// and waiting may take a part of it, and so may a full link that carries no more: a queue shows it.
pub(crate) fn arrives_as_paced(arrivals: &ReceiverView) -> Option<Finding> {
    let pacing = arrivals.evidence.request.pacing;
    let is_paced = rate_limited::reaches_rate(arrivals, pacing, WHOLE_RATE_SHARE)
        || (rate_limited::reaches_rate(arrivals, pacing, REACHED_RATE_SHARE)
            && !arrivals.is_inflated());
    is_paced.then(|| Finding::always(PacingVerdict::MaxPacingRate))
}

/// Returns the maximum pace that the program set, all streams together; `None` where a stream has
/// none.
fn max_pace(figures: &SenderView) -> Option<BitRate> {
    figures
        .flows
        .iter()
        .map(|flow| flow.snapshots.last()?.sample.tcp.max_pacing_rate)
        .sum()
}

/// `None` where the load is another program's, which was asked for its pace by somebody else.
fn higher_pace(advice: &RemedyAdvice) -> Option<Remedy> {
    let pace = advice.evidence.request.pacing?;
    let why = format!(
        "The load was asked for a maximum pace of {pace} on each connection; without that the congestion control sets \
         the pace."
    );
    Some(advice.build_remedy(
        "higher-pace",
        Scope::Application,
        At::Sender,
        vec![Change::MaxPacingRate(None)],
        why,
    ))
}

/// Share of the data at one rate where that is below the transfer's: faster trains must be few.
const MIN_SHARE_BELOW_PACE: f64 = 0.4;
/// Share of the data in small trains at one rate from which the kernel paces (measured: 0.65 and
/// 0.77).
const PACED_BURSTS_SHARE: f64 = 0.5;
/// Share of the packets without a whole number of full segments, from which the program had no more
/// to send (measured: 0.09 to 0.98 of programs with a rate, at most 0.03 elsewhere).
const MIN_PARTIAL_SHARE: f64 = 0.06;
/// Share of the round trips since the last loss from which a congestion window would have grown
/// again (measured: 0.9 of a pace; 0.36 of BBR that keeps to a policer's rate).
const LONG_QUIET_SHARE: f64 = 0.7;
/// Difference between the share of segments that follow another at once and that of the trains of a
/// pace (simulated: none of 240 buffers and windows, and 56 of 56 paces that a link spreads).
const SAME_SHARE_OF_TRAINS: f64 = 0.02;
/// Share of the data that leaves clearly faster than at the most frequent rate: BBR's probes do, in
/// one round trip of eight, and a maximum pace never does (measured: 0).
const MIN_FASTER_THAN_PACE: f64 = 0.04;
/// Time for which a pace sends at once (`tcp_tso_autosize`, with `sk_pacing_shift` 10).
const TIME_OF_PACED_TRAIN: Span = Span::from_nanos(1_000_000_000 / 1024);

/// Finds a sender that spaces its data by a rate: by its program, which then has no more than
/// parts of segments, or below it.
pub(crate) fn paces_itself(view: &CaptureView) -> Option<Finding> {
    let held = view
        .paced_share()
        .filter(|share| share.get() >= MIN_PACED_SHARE && !view.is_buffer())?;
    if view.exceeds_its_pace() {
        return None;
    }
    let program = Finding::new(SenderApplicationVerdict::RateLimited, held);
    if view.capture.partial.get() >= MIN_PARTIAL_SHARE || view.writes_show() {
        return Some(program);
    }
    // A pace lets no more be in flight at any time unless a round trip takes longer, and a
    // program that catches up with its rate does.
    if view.was_a_little_fuller() && !view.waits_on_path() {
        return Some(view.with_pace(program));
    }
    if view.sees_no_queue() {
        return Some(view.even_without_queue(held));
    }
    // A congestion window grows again after a loss.
    let is_own = (!view.lost_on_path() || view.is_long_level()) && !view.waits_on_path();
    let is_in_writes = view.is_at_sender() && view.is_longer_than_a_pace(view.figures.rate);
    is_own.then(|| {
        if is_in_writes {
            view.with_pace(program)
        } else {
            Finding::new(PacingVerdict::MaxPacingRate, held)
        }
    })
}

impl CaptureView<'_> {
    /// Returns what spaces the segments evenly where no queue is seen.
    fn even_without_queue(&self, held: Ratio) -> Finding {
        if self.leaves_room_on_path() {
            Finding::new(SendBufferVerdict::TcpWmemMax, held).one_of(&BUFFER_OR_PROGRAM)
        } else {
            Finding::new(CapacityVerdict::Link, held).one_of(&FULL_OR_PACED)
        }
    }

    /// Returns true if as much was in flight for long.
    fn is_long_level(&self) -> bool {
        let quiet = self.capture.quiet;
        self.is_level() && quiet.is_some_and(|quiet| quiet.share.get() >= LONG_QUIET_SHARE)
    }

    /// Returns a `program` that sends evenly, which may be a device with a bucket unless it was
    /// clearly faster for some time.
    fn with_pace(&self, program: Finding) -> Finding {
        let most = self.figures.rate.scale_by(MAX_PACE_FACTOR);
        if self.capture.sustained.is_some_and(|rate| rate > most) {
            program
        } else {
            program.one_of(&PROGRAM_OR_PACE)
        }
    }

    /// Returns true if the sender is faster at times than what seems its pace, though always as
    /// much is in flight: BBR sends a quarter faster in one of eight round trips
    /// (`bbr_pacing_gain`) if its buffer lets it, and a maximum pace never does.
    fn exceeds_its_pace(&self) -> bool {
        let departs_faster = self.capture.departures.is_some_and(|burst| {
            burst.share.get() >= MIN_PACED_SHARE
                && burst.rate > self.figures.rate.scale_by(MAX_PACE_FACTOR)
        });
        let exceeds = self
            .capture
            .faster
            .is_some_and(|share| share.get() >= MIN_FASTER_THAN_PACE);
        // Elsewhere the bottleneck spaces the segments of a train.
        let is_seen = self.is_at_sender() || self.trains_answered().is_none();
        self.is_level() && !self.was_fuller() && (exceeds || is_seen && departs_faster)
    }

    /// Returns the most frequent rate of the sender's trains where a link on the way spaces their
    /// segments: each train is acknowledged. Losses delay acknowledgements.
    fn trains_answered(&self) -> Option<BurstRate> {
        let is_link = self.is_at_sender() || self.ever_lost_on_path();
        self.capture
            .acknowledgements
            .filter(|burst| !is_link && burst.share.get() >= PACED_BURSTS_SHARE)
    }

    /// Returns the share of the time in which the sender's packets are spaced by one rate, that of
    /// the transfer.
    pub(crate) fn paced_share(&self) -> Option<Ratio> {
        let all = self.figures.rate;
        let each = all.scale_by(1.0 / f64::from(self.figures.stream_count()));
        let trains = self.trains_answered();
        let seen = [self.capture.departures, self.capture.arrivals, trains];
        let shares = seen.into_iter().flatten().filter_map(|burst| {
            let pace = [each, all]
                .into_iter()
                .find(|rate| burst.rate <= rate.scale_by(MAX_PACE_FACTOR))?;
            // At first a shaper may let more pass; at other times faster trains show that nothing
            // spaces them.
            let is_whole = burst.rate >= pace.scale_by(1.0 / MAX_PACE_FACTOR);
            let of_time = (burst.share.get() * pace.relative_to(burst.rate)).min(1.0);
            (is_whole || burst.share.get() >= MIN_SHARE_BELOW_PACE).then(|| Ratio::new(of_time))
        });
        shares.max_by(|one, other| one.get().total_cmp(&other.get()))
    }

    /// Returns true if the sender's trains are longer than those of a pace at `rate`: the kernel
    /// makes them as long as the pace sends in a millisecond, and of two segments at least
    /// (`tcp_tso_autosize`).
    pub(crate) fn is_longer_than_a_pace(&self, rate: BitRate) -> bool {
        let longest = rate
            .scale_by(MAX_PACE_FACTOR)
            .bytes_in(Span::from_millis(1));
        self.figures
            .mss
            .is_some_and(|mss| self.capture.train > longest.max(mss * FEW_SEGMENTS))
    }

    /// Returns true if a link spreads trains of as many segments as the kernel's pace at this rate
    /// sends at once: those of 1/1024 s, and two at least (`tcp_tso_autosize`). All but the first of
    /// each come at the rate of the link.
    pub(crate) fn trains_are_of_a_pace(&self) -> bool {
        let rate = self.figures.rate;
        let seen = self.capture.arrivals.zip(self.figures.mss);
        seen.is_some_and(|(burst, mss)| {
            let of_a_train = rate.bytes_in(TIME_OF_PACED_TRAIN);
            let segments = (of_a_train.get() / mss.get()).max(2) as f64;
            burst.rate > rate.scale_by(MAX_PACE_FACTOR)
                && (burst.share.get() - (1.0 - 1.0 / segments)).abs() <= SAME_SHARE_OF_TRAINS
        })
    }

    /// Returns true if small trains are spaced by a rate, which is above that of the transfer.
    pub(crate) fn bursts_are_paced(&self) -> bool {
        self.capture.departures.is_some_and(|burst| {
            burst.share.get() >= PACED_BURSTS_SHARE && !self.is_longer_than_a_pace(burst.rate)
        })
    }
}
