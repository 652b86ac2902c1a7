//! The confidence of a verdict: the share of the limits planted by `fullpipe-bench independent` that such a verdict
//! named.

use fullpipe_record::{Basis, Limit};
use fullpipe_units::Ratio;

use crate::finding::Finding;

/// The cases of the bench that got one verdict from one view.
struct Count {
    view: Basis,
    /// Kind and cause.
    verdict: &'static str,
    /// Set for the cases whose verdict was one of several candidates; those were right if one of them was.
    is_one_of_several: bool,
    right: u16,
    all: u16,
}

const fn sure(view: Basis, verdict: &'static str, right: u16, all: u16) -> Count {
    Count { view, verdict, is_one_of_several: false, right, all }
}

const fn several(view: Basis, verdict: &'static str, right: u16, all: u16) -> Count {
    Count { view, verdict, is_one_of_several: true, right, all }
}

/// Counts of the runs with seeds 61, 71, 101, 111, 131, 171 and 181, each as it was run.
const COUNTS: [Count; 58] = [
    sure(Basis::BothEnds, "capacity/host-queue", 12, 12),
    sure(Basis::BothEnds, "capacity/link", 21, 22),
    sure(Basis::BothEnds, "capacity/shared", 16, 16),
    sure(Basis::BothEnds, "congestion-window/ramp-up", 16, 16),
    sure(Basis::BothEnds, "cpu/stolen", 20, 20),
    sure(Basis::BothEnds, "loss/policer", 17, 17),
    sure(Basis::BothEnds, "loss/random", 18, 19),
    sure(Basis::BothEnds, "loss/shallow-queue", 12, 14),
    sure(Basis::BothEnds, "mtu/black-hole", 16, 16),
    sure(Basis::BothEnds, "pacing/max-pacing-rate", 16, 16),
    sure(Basis::BothEnds, "pacing/qdisc", 16, 16),
    sure(Basis::BothEnds, "receive-window/no-window-scaling", 20, 20),
    sure(Basis::BothEnds, "receive-window/so-rcvbuf", 17, 18),
    sure(Basis::BothEnds, "receive-window/tcp-rmem-max", 19, 19),
    sure(Basis::BothEnds, "receive-window/window-scale-stripped", 20, 20),
    sure(Basis::BothEnds, "receiver-application/slow-reader", 7, 10),
    sure(Basis::BothEnds, "send-buffer/tcp-wmem-max", 15, 15),
    sure(Basis::BothEnds, "sender-application/rate-limited", 18, 18),
    sure(Basis::Sender, "capacity/host-queue", 20, 20),
    sure(Basis::Sender, "capacity/link", 36, 42),
    sure(Basis::Sender, "capacity/shared", 36, 37),
    sure(Basis::Sender, "congestion-window/ramp-up", 25, 25),
    sure(Basis::Sender, "congestion-window/recovering", 0, 2),
    sure(Basis::Sender, "cpu/stolen", 23, 23),
    sure(Basis::Sender, "loss/policer", 34, 35),
    sure(Basis::Sender, "loss/random", 33, 35),
    sure(Basis::Sender, "loss/shallow-queue", 28, 29),
    sure(Basis::Sender, "mtu/black-hole", 31, 31),
    sure(Basis::Sender, "pacing/max-pacing-rate", 16, 16),
    sure(Basis::Sender, "pacing/qdisc", 36, 36),
    sure(Basis::Sender, "receive-window/no-window-scaling", 7, 7),
    several(Basis::Sender, "receive-window/no-window-scaling", 41, 41),
    sure(Basis::Sender, "receive-window/tcp-rmem-max", 20, 21),
    sure(Basis::Sender, "receive-window/window-scale-stripped", 14, 14),
    several(Basis::Sender, "receiver-application/slow-reader", 21, 21),
    sure(Basis::Sender, "send-buffer/so-sndbuf", 18, 18),
    sure(Basis::Sender, "send-buffer/tcp-wmem-max", 36, 36),
    sure(Basis::Sender, "sender-application/idle", 9, 12),
    sure(Basis::Sender, "sender-application/rate-limited", 22, 22),
    sure(Basis::Receiver, "capacity/link", 34, 34),
    sure(Basis::Receiver, "capacity/shared", 18, 18),
    sure(Basis::Receiver, "congestion-window/ramp-up", 30, 30),
    sure(Basis::Receiver, "cpu/stolen", 11, 11),
    sure(Basis::Receiver, "loss/policer", 21, 23),
    sure(Basis::Receiver, "loss/random", 21, 22),
    several(Basis::Receiver, "loss/random", 20, 23),
    sure(Basis::Receiver, "loss/shallow-queue", 15, 15),
    sure(Basis::Receiver, "receive-window/no-window-scaling", 16, 16),
    several(Basis::Receiver, "receive-window/no-window-scaling", 39, 39),
    sure(Basis::Receiver, "receive-window/so-rcvbuf", 45, 45),
    sure(Basis::Receiver, "receive-window/tcp-rmem-max", 44, 44),
    sure(Basis::Receiver, "receive-window/window-scale-stripped", 9, 9),
    sure(Basis::Receiver, "receiver-application/slow-reader", 0, 2),
    sure(Basis::Receiver, "send-buffer/tcp-wmem-max", 18, 18),
    several(Basis::Receiver, "send-buffer/tcp-wmem-max", 3, 4),
    sure(Basis::Receiver, "sender-application/idle", 1, 1),
    several(Basis::Receiver, "sender-application/idle", 3, 4),
    sure(Basis::Receiver, "sender-application/rate-limited", 25, 25),
];

/// Share of right verdicts that is taken where none was seen. A choice: paths elsewhere differ from those of a
/// bench.
const SHARE_BEFORE: f64 = 0.92;
/// The same of captures, in kind: 339 of 352 files of the runs with seeds 241 and 251, each as it was run, of all
/// verdicts together.
const SHARE_BEFORE_OF_CAPTURES: f64 = 0.96;
/// Cases for which that share stands.
const CASES_BEFORE: f64 = 6.0;

/// Returns the share of cases in which such a finding is right, to a hundredth; zero of one that finds nothing.
///
/// The mean of a beta distribution: of the counts, and of [`CASES_BEFORE`] cases before them.
pub(crate) fn confidence(view: Basis, found: &Finding) -> Ratio {
    if found.kind() == Limit::Unknown {
        return Ratio::ZERO;
    }
    let of_this = |count: &&Count| {
        (count.view, count.verdict, count.is_one_of_several) == (view, found.verdict.name(), found.is_one_of_several)
    };
    let (right, all) = COUNTS.iter().find(of_this).map_or((0.0, 0.0), |count| (count.right.into(), count.all.into()));
    let before = if view == Basis::Capture { SHARE_BEFORE_OF_CAPTURES } else { SHARE_BEFORE };
    let share = Ratio::of(right + before * CASES_BEFORE, all + CASES_BEFORE);
    Ratio::new((share.get() * 100.0).round() / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_record::{LegalVerdict, LossVerdict, UnknownVerdict};

    #[test]
    fn every_count_is_of_a_legal_verdict_and_stands_once() {
        assert!(COUNTS.iter().map(|count| u32::from(count.all)).sum::<u32>() > 1000);
        for (index, count) in COUNTS.iter().enumerate() {
            assert!(LegalVerdict::named(count.verdict).is_some(), "{}", count.verdict);
            assert!(count.right <= count.all, "{}", count.verdict);
            let key = |count: &Count| (count.view, count.verdict, count.is_one_of_several);
            assert!(COUNTS[index + 1..].iter().all(|other| key(other) != key(count)), "{}", count.verdict);
        }
    }

    #[test]
    fn what_was_never_seen_is_less_sure_and_nothing_found_is_not_sure_at_all() {
        let unseen = Finding::new(LossVerdict::Policer, Ratio::ONE).one_of_several();
        assert!((confidence(Basis::BothEnds, &unseen).get() - SHARE_BEFORE).abs() < 1e-9);
        assert_eq!(
            confidence(Basis::BothEnds, &Finding::new(UnknownVerdict::EvidenceMissing, Ratio::ONE)),
            Ratio::ZERO
        );
    }
}
