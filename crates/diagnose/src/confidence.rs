//! The confidence of a verdict: the share of the limits planted over this kernel by `fullpipe-bench` that such a
//! verdict named.

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

/// Counts of `fullpipe-bench independent` with seeds 401, 411 and 421, each as it was run, and half of those with seeds
/// 61, 71, 101, 111, 131, 171, 181, 251, 261, 271, 281 and 291, by earlier rules, and of two runs of `fullpipe-bench
/// diagnosis`, from both ends and from the sending end alone.
const COUNTS: [Count; 84] = [
    sure(Basis::BothEnds, "application-window/ssh-channel", 3, 3),
    sure(Basis::BothEnds, "capacity/host-queue", 21, 21),
    sure(Basis::BothEnds, "capacity/link", 41, 42),
    sure(Basis::BothEnds, "capacity/shared", 25, 26),
    sure(Basis::BothEnds, "congestion-window/early-exit", 3, 3),
    sure(Basis::BothEnds, "congestion-window/ramp-up", 26, 26),
    sure(Basis::BothEnds, "congestion-window/recovering", 3, 4),
    sure(Basis::BothEnds, "congestion-window/reordering", 3, 3),
    sure(Basis::BothEnds, "cpu/stolen", 36, 36),
    sure(Basis::BothEnds, "cpu/system", 0, 2),
    sure(Basis::BothEnds, "cpu/user", 9, 10),
    sure(Basis::BothEnds, "loss/policer", 31, 32),
    sure(Basis::BothEnds, "loss/random", 27, 31),
    sure(Basis::BothEnds, "loss/shallow-queue", 15, 20),
    sure(Basis::BothEnds, "mtu/black-hole", 22, 22),
    sure(Basis::BothEnds, "mtu/mss-clamped", 5, 5),
    sure(Basis::BothEnds, "pacing/congestion-control", 3, 3),
    sure(Basis::BothEnds, "pacing/max-pacing-rate", 29, 29),
    sure(Basis::BothEnds, "pacing/qdisc", 28, 28),
    sure(Basis::BothEnds, "receive-window/no-window-scaling", 30, 30),
    sure(Basis::BothEnds, "receive-window/so-rcvbuf", 28, 29),
    sure(Basis::BothEnds, "receive-window/tcp-rmem-max", 30, 30),
    sure(Basis::BothEnds, "receive-window/window-clamped", 7, 7),
    sure(Basis::BothEnds, "receive-window/window-scale-rewritten", 7, 7),
    sure(Basis::BothEnds, "receive-window/window-scale-stripped", 40, 40),
    sure(Basis::BothEnds, "receiver-application/slow-reader", 17, 19),
    sure(Basis::BothEnds, "receiver-application/storage", 6, 6),
    sure(Basis::BothEnds, "send-buffer/so-sndbuf", 6, 6),
    sure(Basis::BothEnds, "send-buffer/tcp-wmem-max", 41, 41),
    sure(Basis::BothEnds, "sender-application/idle", 7, 7),
    sure(Basis::BothEnds, "sender-application/rate-limited", 36, 36),
    sure(Basis::BothEnds, "sender-application/storage", 6, 6),
    sure(Basis::Sender, "application-window/ssh-channel", 3, 3),
    sure(Basis::Sender, "capacity/host-queue", 27, 27),
    sure(Basis::Sender, "capacity/link", 52, 57),
    sure(Basis::Sender, "capacity/shared", 38, 40),
    sure(Basis::Sender, "congestion-window/early-exit", 3, 3),
    sure(Basis::Sender, "congestion-window/ramp-up", 34, 34),
    sure(Basis::Sender, "congestion-window/recovering", 3, 5),
    sure(Basis::Sender, "congestion-window/reordering", 3, 3),
    sure(Basis::Sender, "cpu/stolen", 26, 26),
    sure(Basis::Sender, "cpu/system", 1, 1),
    sure(Basis::Sender, "cpu/user", 4, 5),
    sure(Basis::Sender, "loss/policer", 37, 38),
    sure(Basis::Sender, "loss/random", 39, 44),
    sure(Basis::Sender, "loss/shallow-queue", 27, 30),
    sure(Basis::Sender, "mtu/black-hole", 39, 39),
    sure(Basis::Sender, "mtu/mss-clamped", 5, 5),
    sure(Basis::Sender, "pacing/congestion-control", 3, 3),
    sure(Basis::Sender, "pacing/max-pacing-rate", 29, 29),
    sure(Basis::Sender, "pacing/qdisc", 46, 46),
    sure(Basis::Sender, "receive-window/no-window-scaling", 9, 9),
    several(Basis::Sender, "receive-window/no-window-scaling", 42, 42),
    sure(Basis::Sender, "receive-window/so-rcvbuf", 8, 8),
    sure(Basis::Sender, "receive-window/tcp-rmem-max", 31, 33),
    sure(Basis::Sender, "receive-window/window-clamped", 7, 7),
    sure(Basis::Sender, "receive-window/window-scale-rewritten", 7, 7),
    sure(Basis::Sender, "receive-window/window-scale-stripped", 35, 35),
    several(Basis::Sender, "receiver-application/slow-reader", 38, 44),
    sure(Basis::Sender, "send-buffer/so-sndbuf", 17, 17),
    sure(Basis::Sender, "send-buffer/tcp-wmem-max", 54, 54),
    sure(Basis::Sender, "sender-application/idle", 13, 15),
    sure(Basis::Sender, "sender-application/rate-limited", 43, 43),
    sure(Basis::Sender, "sender-application/storage", 6, 6),
    sure(Basis::Receiver, "capacity/link", 34, 34),
    sure(Basis::Receiver, "capacity/shared", 20, 21),
    sure(Basis::Receiver, "congestion-window/ramp-up", 31, 31),
    sure(Basis::Receiver, "cpu/stolen", 14, 14),
    sure(Basis::Receiver, "loss/policer", 34, 36),
    sure(Basis::Receiver, "loss/random", 23, 26),
    several(Basis::Receiver, "loss/random", 27, 30),
    sure(Basis::Receiver, "loss/shallow-queue", 20, 20),
    sure(Basis::Receiver, "mtu/black-hole", 1, 1),
    sure(Basis::Receiver, "receive-window/no-window-scaling", 20, 20),
    several(Basis::Receiver, "receive-window/no-window-scaling", 33, 33),
    sure(Basis::Receiver, "receive-window/so-rcvbuf", 42, 42),
    sure(Basis::Receiver, "receive-window/tcp-rmem-max", 42, 42),
    sure(Basis::Receiver, "receive-window/window-scale-stripped", 16, 16),
    sure(Basis::Receiver, "receiver-application/slow-reader", 0, 1),
    sure(Basis::Receiver, "send-buffer/tcp-wmem-max", 22, 23),
    several(Basis::Receiver, "send-buffer/tcp-wmem-max", 2, 3),
    sure(Basis::Receiver, "sender-application/idle", 1, 1),
    several(Basis::Receiver, "sender-application/idle", 2, 3),
    sure(Basis::Receiver, "sender-application/rate-limited", 43, 43),
];

/// Share of right verdicts of captures, in kind: 339 of 352 files of the runs with seeds 241 and 251, each as it was
/// run, of all verdicts together.
const SHARE_OF_CAPTURES: f64 = 0.96;
/// Cases for which the share of all verdicts of a view stands, where one of them was seen seldom.
const CASES_BEFORE: f64 = 6.0;

/// Returns the share of cases in which such a finding is right, to a hundredth; zero of one that finds nothing.
///
/// The mean of a beta distribution: of the counts, and of [`CASES_BEFORE`] cases of all verdicts of the view.
pub(crate) fn confidence(view: Basis, found: &Finding) -> Ratio {
    if found.kind() == Limit::Unknown {
        return Ratio::ZERO;
    }
    let (right, all) = counted(|count| {
        (count.view, count.verdict, count.is_one_of_several) == (view, found.verdict.name(), found.is_one_of_several)
    });
    let share = Ratio::of(right + share_of_all(view) * CASES_BEFORE, all + CASES_BEFORE);
    Ratio::new((share.get() * 100.0).round() / 100.0)
}

fn share_of_all(view: Basis) -> f64 {
    let (right, all) = counted(|count| count.view == view);
    if all > 0.0 { right / all } else { SHARE_OF_CAPTURES }
}

/// Returns the right ones and all of the cases whose count is `wanted`.
fn counted(wanted: impl Fn(&Count) -> bool) -> (f64, f64) {
    let wanted = COUNTS.iter().filter(|count| wanted(count));
    wanted.fold((0.0, 0.0), |(right, all), count| (right + f64::from(count.right), all + f64::from(count.all)))
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
    fn what_was_never_seen_is_as_sure_as_the_view_and_nothing_found_is_not_sure_at_all() {
        let policer = Finding::new(LossVerdict::Policer, Ratio::ONE);
        let unseen = policer.clone().one_of_several();
        assert!((confidence(Basis::BothEnds, &unseen).get() - share_of_all(Basis::BothEnds)).abs() <= 0.005);
        assert!((confidence(Basis::Capture, &policer).get() - SHARE_OF_CAPTURES).abs() < 1e-9);
        assert_eq!(
            confidence(Basis::BothEnds, &Finding::new(UnknownVerdict::EvidenceMissing, Ratio::ONE)),
            Ratio::ZERO
        );
    }
}
