//! Processors that have no more time to give.

use fullpipe_record::{Cause as CauseName, CpuSample, CpuTime, CpuVerdict};

use crate::limits::prelude::*;
use crate::thresholds::FULL_PIPE_SHARE;

pub(crate) const FULL: Cause = Cause {
    manual_remedies: &[ManualRemedy::new(
        "less-work-for-the-processor",
        Scope::Host,
        "One processor does all of this connection's work: larger packets, offloads, larger \
         writes, zero-copy, or several connections on several processors.",
    )],
    ..cause_of_processor(&["cpu/user", "cpu/system"], |_, finding| {
        let place = match finding.verdict.limit_cause() {
            CauseName::User => "in programs",
            _ => "in the kernel",
        };
        format!(
            "The {}'s processor is full ({} of one), most of it {place}.",
            end_of(finding),
            finding.share
        )
    })
};

pub(crate) const STOLEN: Cause = Cause {
    manual_remedies: &[ManualRemedy::new(
        "more-processor-time",
        Scope::Host,
        "A quota of the control group (cpu.max) or the hypervisor withholds processor time: raise \
         the quota, or move the machine.",
    )],
    ..cause_of_processor(&["cpu/stolen"], |_, finding| {
        format!(
            "The {} lacks processor time: for {} of the time a quota or the hypervisor withheld it.",
            end_of(finding),
            finding.share
        )
    })
};

const fn cause_of_processor(names: CauseNames, sentence: SenderSentence) -> Cause {
    Cause {
        received_sentence: |arrivals, finding| {
            format!(
                "This end, which receives, lacks processor time for {} of the time, and only {} arrives.",
                finding.share, arrivals.rate
            )
        },
        ..Cause::new(names, sentence)
    }
}

fn end_of(finding: &Finding) -> &'static str {
    if finding.verdict.limit_place() == At::Sender {
        "sender"
    } else {
        "receiver"
    }
}

/// Returns the processors of the end whose program or window `found` is, if they had no more time
/// to give for most of the judged part.
pub(crate) fn find_cause(figures: &SenderView, found: &Finding) -> Option<Finding> {
    match found.limit_kind() {
        Limit::SenderApplication => of_sender(figures),
        Limit::ReceiverApplication | Limit::ReceiveWindow => of_receiver(figures),
        // What a program sends in the moments that are left to it may look like any limit of the
        // path.
        Limit::Capacity
        | Limit::Loss
        | Limit::CongestionWindow
        | Limit::SendBuffer
        | Limit::Unknown => {
            let full = stated_capacity(figures).map(|stated| stated.scale_by(FULL_PIPE_SHARE));
            find_withheld_time(figures).filter(|_| full.is_none_or(|full| figures.rate < full))
        }
        Limit::ApplicationWindow | Limit::Pacing | Limit::Cpu | Limit::Mtu => None,
    }
}

/// Returns the end that a quota kept from running for most of the judged part.
fn find_withheld_time(figures: &SenderView) -> Option<Finding> {
    let (from, to) = figures.judged_period();
    let ends = [
        (&figures.evidence.sender_machine, CpuVerdict::StolenOfSender),
        (
            &figures.evidence.receiver_machine,
            CpuVerdict::StolenOfReceiver,
        ),
    ];
    ends.into_iter().find_map(|(machine, verdict)| {
        let throttled = CpuUse::between_times(&machine.processors, from, to)?.throttled?;
        (throttled >= MIN_LIMIT_SHARE)
            .then(|| Finding::new(verdict, Ratio::new(throttled.min(1.0))))
    })
}

/// Returns the receiver's processors as the limit, of a transfer that only that end saw.
fn of_this_receiver(machine: &Machine, streams: u16, from: Span, to: Span) -> Option<Finding> {
    let (use_of_time, share) =
        CpuUse::between_times(&machine.processors, from, to)?.find_limit(streams)?;
    let verdict = match use_of_time {
        UseOfTime::User => CpuVerdict::UserOfReceiver,
        UseOfTime::System => CpuVerdict::SystemOfReceiver,
        UseOfTime::Stolen => CpuVerdict::StolenOfReceiver,
    };
    Some(Finding::new(verdict, share))
}

pub(crate) fn of_sender(figures: &SenderView) -> Option<Finding> {
    let (from, to) = figures.judged_period();
    let processors = &figures.evidence.sender_machine.processors;
    let (use_of_time, share) =
        CpuUse::between_times(processors, from, to)?.find_limit(figures.stream_count())?;
    let verdict = match use_of_time {
        UseOfTime::User => CpuVerdict::UserOfSender,
        UseOfTime::System => CpuVerdict::SystemOfSender,
        UseOfTime::Stolen => CpuVerdict::StolenOfSender,
    };
    Some(Finding::new(verdict, share))
}

pub(crate) fn of_receiver(figures: &SenderView) -> Option<Finding> {
    let (from, to) = figures.judged_period();
    of_this_receiver(
        &figures.evidence.receiver_machine,
        figures.stream_count(),
        from,
        to,
    )
}

/// The use of most of a processor's time.
#[derive(Debug, Clone, Copy)]
enum UseOfTime {
    /// The program's own work.
    User,
    /// The kernel's work for it.
    System,
    /// None: a quota or the hypervisor withheld it.
    Stolen,
}

impl UseOfTime {
    fn larger_of(user: f64, system: f64) -> Self {
        if user > system {
            Self::User
        } else {
            Self::System
        }
    }
}

/// Use of the processors over some time, as shares of it.
struct CpuUse {
    /// The program, all its threads together, of one processor.
    user: f64,
    /// The kernel on its behalf, of one processor.
    system: f64,
    /// `None` if it is not known at both ends of that time.
    throttled: Option<f64>,
    /// Waits of all threads of the program for a processor; `None` if they are not known at both
    /// ends of that time.
    waited: Option<f64>,
    /// The time in which its busiest thread did not rest; `None` in records without it.
    awake: Option<f64>,
    /// Of the processor that was busiest.
    core_busy: f64,
    core_user: f64,
    /// The greatest share that the hypervisor took of a processor.
    stolen: f64,
}

/// Share of the time that a quota withholds from which a program lacks processor time.
const MIN_THROTTLED_SHARE: f64 = 0.2;
/// Share of a processor that the hypervisor takes from which a program lacks processor time.
const MIN_STOLEN_SHARE: f64 = 0.25;
/// Share of the time from which a busy processor has no more to give.
const FULL_CORE_SHARE: f64 = 0.9;

impl CpuUse {
    fn between_times(snapshots: &[CpuSample], from: Span, to: Span) -> Option<Self> {
        let [first, last] = samples_around(snapshots, from, to)?;
        let elapsed = growth_between((first.at, last.at));
        if elapsed <= 0.0 {
            return None;
        }
        let [user, system] = [(first.user, last.user), (first.system, last.system)]
            .map(|times| growth_between(times) / elapsed);
        let [throttled, waited, awake] = [
            first.throttled.zip(last.throttled),
            first.waited.zip(last.waited),
            first.awake.zip(last.awake),
        ]
        .map(|times| Some(growth_between(times?) / elapsed));
        let cores = last.cores.iter().zip(&first.cores);
        let cores: Vec<CoreUse> = cores
            .map(|(last, first)| CoreUse::between_times(first, last))
            .collect();
        let busiest = cores.iter().max_by(|a, b| a.busy.total_cmp(&b.busy));
        Some(Self {
            user,
            system,
            throttled,
            waited,
            awake,
            core_busy: busiest.map_or(0.0, |core| core.busy),
            core_user: busiest.map_or(0.0, |core| core.user),
            stolen: cores.iter().map(|core| core.stolen).fold(0.0, f64::max),
        })
    }

    /// Withheld time first, since it shows as little of it being used. A time that is not known
    /// shows nothing.
    fn find_limit(&self, streams: u16) -> Option<(UseOfTime, Ratio)> {
        let stolen = (self.stolen >= MIN_STOLEN_SHARE).then_some(self.stolen);
        let withheld = self
            .throttled
            .filter(|throttled| *throttled >= MIN_THROTTLED_SHARE)
            .or(stolen)
            .map(|share| (UseOfTime::Stolen, share));
        let (use_of_time, share) = withheld.or_else(|| self.find_full_use(streams))?;
        Some((use_of_time, Ratio::new(share.min(1.0))))
    }

    /// First a program that fills a processor; then a processor that is full while the program
    /// waits for it; then a program that never rests, and runs for most of the time, whichever
    /// processors it is moved between.
    ///
    /// A program may have a thread for each of its `streams`: what fills one processor in their sum
    /// may leave each of them idle, unless a processor is full. Likewise the waits of several
    /// threads may be as long together as the whole time while each of them rests between its own:
    /// one that keeps its own pace on a processor which others fill lacks nothing.
    fn find_full_use(&self, streams: u16) -> Option<(UseOfTime, f64)> {
        let own = self.user + self.system;
        let full_for_all = FULL_CORE_SHARE * f64::from(streams);
        let is_core_full = self.core_busy >= FULL_CORE_SHARE;
        let awake_in_all = self.waited.map(|waited| own + waited);
        let never_rests = self
            .awake
            .or(awake_in_all)
            .is_some_and(|awake| awake >= FULL_CORE_SHARE);
        let larger_use = UseOfTime::larger_of(self.user, self.system);
        if own >= full_for_all || (own >= FULL_CORE_SHARE && is_core_full) {
            Some((larger_use, own))
        } else if is_core_full && never_rests {
            let system = self.core_busy - self.core_user;
            let larger_use = UseOfTime::larger_of(self.core_user, system);
            Some((larger_use, self.core_busy))
        } else {
            awake_in_all
                .filter(|awake| never_rests && *awake >= full_for_all && own >= *awake - own)
                .map(|awake| (larger_use, awake))
        }
    }
}

/// Returns the last sample before a part of the transfer and the first one after it, or those next
/// to them within it.
fn samples_around(snapshots: &[CpuSample], from: Span, to: Span) -> Option<[&CpuSample; 2]> {
    let mut before = snapshots.iter().rev();
    let mut after = snapshots.iter();
    let first = before.find(|snapshot| snapshot.at <= from);
    let last = after.find(|snapshot| snapshot.at >= to);
    Some([first.or(snapshots.first())?, last.or(snapshots.last())?])
}

/// Returns the seconds by which a clock moved on from its first reading to its last one.
fn growth_between((first, last): (Span, Span)) -> f64 {
    last.saturating_sub(first).as_secs_f64()
}

/// Use of one processor over some time, as shares of it.
struct CoreUse {
    busy: f64,
    user: f64,
    stolen: f64,
}

impl CoreUse {
    fn between_times(first: &CpuTime, last: &CpuTime) -> Self {
        let [user, system, interrupts, stolen, idle] = [
            (first.user, last.user),
            (first.system, last.system),
            (first.interrupts, last.interrupts),
            (first.stolen, last.stolen),
            (first.idle, last.idle),
        ]
        .map(growth_between);
        let busy = user + system + interrupts;
        let all = busy + stolen + idle;
        let [busy, user, stolen] =
            [busy, user, stolen].map(|part| if all > 0.0 { part / all } else { 0.0 });
        Self { busy, user, stolen }
    }
}

/// Finds the processors of this end, if they had no more time to give for most of the judged part.
pub(crate) fn own_processor(arrivals: &ReceiverView) -> Option<Finding> {
    let (first, last) = arrivals.judged_period()?;
    let streams = u16::try_from(arrivals.flows.len()).unwrap_or(u16::MAX);
    of_this_receiver(&arrivals.evidence.receiver_machine, streams, first, last)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(seconds: u64, user: u64, withheld: Option<u64>) -> CpuSample {
        CpuSample {
            at: Span::from_secs(seconds),
            user: Span::from_millis(user),
            waited: withheld.map(Span::from_millis),
            throttled: withheld.map(Span::from_millis),
            ..CpuSample::default()
        }
    }

    fn spent(first: Option<u64>, last: Option<u64>) -> CpuUse {
        let samples = [sample(10, 5_000, first), sample(20, 11_000, last)];
        CpuUse::between_times(&samples, Span::from_secs(10), Span::from_secs(20)).unwrap()
    }

    /// A sum since the begin of the transfer passed for the time after a sample that did not have
    /// it.
    #[test]
    fn a_time_that_one_end_of_the_part_does_not_have_is_not_known() {
        for (first, last) in [(None, Some(9_000)), (Some(9_000), None), (None, None)] {
            let spent = spent(first, last);
            assert_eq!(
                (spent.waited, spent.throttled),
                (None, None),
                "{first:?} {last:?}"
            );
            assert!(spent.find_limit(1).is_none(), "{first:?} {last:?}");
        }
        let known = spent(Some(5_000), Some(9_000));
        assert_eq!((known.waited, known.throttled), (Some(0.4), Some(0.4)));
        assert!(known.find_limit(1).is_some());
    }

    #[test]
    fn threads_of_many_streams_fill_a_processor_together_only_if_one_is_full() {
        let spent = |user: f64, waited: f64, core_busy: f64| CpuUse {
            user,
            system: 0.0,
            throttled: None,
            waited: Some(waited),
            awake: None,
            core_busy,
            core_user: core_busy,
            stolen: 0.0,
        };
        let limits = |spent: CpuUse, streams: u16| spent.find_limit(streams).is_some();
        assert!(
            limits(spent(0.96, 0.0, 0.5), 1),
            "one thread that is moved between processors"
        );
        assert!(
            !limits(spent(0.96, 0.0, 0.5), 8),
            "eight threads, each of which rests"
        );
        assert!(limits(spent(0.96, 0.0, 0.95), 8), "a processor is full");
        assert!(limits(spent(7.6, 0.0, 0.5), 8), "none of them rests");
        assert!(
            limits(spent(0.6, 0.4, 0.5), 1) && !limits(spent(0.6, 0.4, 0.5), 8),
            "nor while they wait"
        );
    }

    /// On one processor, a program that kept its pace of 40 Mbit/s counted as out of processor
    /// time: its thread of the stream ran for 2 % of the time and waited for 69 %, four others
    /// waited for the rest.
    #[test]
    fn waits_of_several_threads_that_rest_are_no_limit_and_those_of_one_that_never_rests_are() {
        let spent = |awake: Option<f64>| CpuUse {
            user: 0.03,
            system: 0.02,
            throttled: None,
            waited: Some(0.9),
            awake,
            core_busy: 1.0,
            core_user: 0.9,
            stolen: 0.0,
        };
        assert!(spent(Some(0.72)).find_limit(1).is_none());
        assert!(spent(Some(0.97)).find_limit(1).is_some());
        assert!(
            spent(None).find_limit(1).is_some(),
            "an earlier record has only the sum"
        );
    }
}
