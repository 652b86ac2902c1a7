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

/// Counts of the runs with seeds 1 to 3, 11, 12, 21, 31 and 41; those of watched programs from 11 on.
const COUNTS: [Count; 56] = [
    sure(Basis::BothEnds, "capacity/host-queue", 5, 5),
    sure(Basis::BothEnds, "capacity/link", 11, 14),
    sure(Basis::BothEnds, "capacity/shared", 13, 13),
    sure(Basis::BothEnds, "congestion-window/ramp-up", 9, 9),
    sure(Basis::BothEnds, "cpu/stolen", 5, 5),
    sure(Basis::BothEnds, "loss/policer", 8, 8),
    sure(Basis::BothEnds, "loss/random", 10, 11),
    sure(Basis::BothEnds, "loss/shallow-queue", 6, 6),
    sure(Basis::BothEnds, "mtu/black-hole", 9, 9),
    sure(Basis::BothEnds, "pacing/max-pacing-rate", 8, 8),
    sure(Basis::BothEnds, "pacing/qdisc", 9, 10),
    sure(Basis::BothEnds, "receive-window/no-window-scaling", 10, 10),
    sure(Basis::BothEnds, "receive-window/so-rcvbuf", 9, 9),
    sure(Basis::BothEnds, "receive-window/tcp-rmem-max", 9, 9),
    sure(Basis::BothEnds, "receive-window/window-scale-stripped", 10, 10),
    sure(Basis::BothEnds, "receiver-application/slow-reader", 4, 5),
    sure(Basis::BothEnds, "send-buffer/tcp-wmem-max", 10, 10),
    sure(Basis::BothEnds, "sender-application/rate-limited", 10, 10),
    sure(Basis::Sender, "capacity/host-queue", 15, 15),
    sure(Basis::Sender, "capacity/link", 16, 18),
    sure(Basis::Sender, "capacity/shared", 20, 22),
    sure(Basis::Sender, "congestion-window/ramp-up", 13, 13),
    sure(Basis::Sender, "congestion-window/recovering", 0, 3),
    sure(Basis::Sender, "cpu/stolen", 7, 7),
    sure(Basis::Sender, "loss/policer", 14, 15),
    sure(Basis::Sender, "loss/random", 18, 21),
    sure(Basis::Sender, "loss/shallow-queue", 13, 13),
    sure(Basis::Sender, "mtu/black-hole", 17, 17),
    sure(Basis::Sender, "pacing/max-pacing-rate", 9, 9),
    sure(Basis::Sender, "pacing/qdisc", 19, 19),
    sure(Basis::Sender, "receive-window/no-window-scaling", 9, 9),
    several(Basis::Sender, "receive-window/no-window-scaling", 19, 19),
    sure(Basis::Sender, "receive-window/tcp-rmem-max", 11, 13),
    sure(Basis::Sender, "receive-window/window-scale-stripped", 7, 7),
    several(Basis::Sender, "receiver-application/slow-reader", 13, 13),
    sure(Basis::Sender, "send-buffer/so-sndbuf", 10, 10),
    sure(Basis::Sender, "send-buffer/tcp-wmem-max", 21, 21),
    sure(Basis::Sender, "sender-application/idle", 5, 6),
    sure(Basis::Sender, "sender-application/rate-limited", 10, 10),
    sure(Basis::Receiver, "capacity/link", 25, 27),
    sure(Basis::Receiver, "capacity/shared", 13, 14),
    sure(Basis::Receiver, "congestion-window/ramp-up", 23, 23),
    sure(Basis::Receiver, "cpu/stolen", 6, 6),
    sure(Basis::Receiver, "loss/policer", 10, 10),
    sure(Basis::Receiver, "loss/random", 16, 18),
    several(Basis::Receiver, "loss/random", 23, 25),
    sure(Basis::Receiver, "loss/shallow-queue", 7, 7),
    sure(Basis::Receiver, "receive-window/no-window-scaling", 18, 18),
    several(Basis::Receiver, "receive-window/no-window-scaling", 21, 21),
    sure(Basis::Receiver, "receive-window/so-rcvbuf", 32, 32),
    sure(Basis::Receiver, "receive-window/tcp-rmem-max", 32, 32),
    sure(Basis::Receiver, "receive-window/window-scale-stripped", 11, 11),
    sure(Basis::Receiver, "send-buffer/tcp-wmem-max", 12, 12),
    several(Basis::Receiver, "send-buffer/tcp-wmem-max", 5, 5),
    several(Basis::Receiver, "sender-application/idle", 2, 3),
    sure(Basis::Receiver, "sender-application/rate-limited", 19, 19),
];

/// Share of right verdicts that is taken where none was seen. A choice: paths elsewhere differ from those of a
/// bench.
const SHARE_BEFORE: f64 = 0.92;
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
    let share = Ratio::of(right + SHARE_BEFORE * CASES_BEFORE, all + CASES_BEFORE);
    Ratio::new((share.get() * 100.0).round() / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_record::{LegalVerdict, LossVerdict, UnknownVerdict};

    #[test]
    fn every_count_is_of_a_legal_verdict_and_stands_once() {
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
