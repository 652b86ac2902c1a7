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

/// Counts of `fullpipe-bench independent` with seeds 61, 71, 101, 111, 131, 171, 181, 251, 261, 271, 281 and 291, each
/// as it was run, and of two runs of `fullpipe-bench diagnosis`, from both ends and from the sending end alone.
const COUNTS: [Count; 84] = [
    sure(Basis::BothEnds, "application-window/ssh-channel", 6, 6),
    sure(Basis::BothEnds, "capacity/host-queue", 27, 27),
    sure(Basis::BothEnds, "capacity/link", 50, 52),
    sure(Basis::BothEnds, "capacity/shared", 36, 36),
    sure(Basis::BothEnds, "congestion-window/early-exit", 6, 6),
    sure(Basis::BothEnds, "congestion-window/ramp-up", 35, 35),
    sure(Basis::BothEnds, "congestion-window/recovering", 6, 8),
    sure(Basis::BothEnds, "congestion-window/reordering", 6, 6),
    sure(Basis::BothEnds, "cpu/stolen", 43, 43),
    sure(Basis::BothEnds, "cpu/system", 1, 4),
    sure(Basis::BothEnds, "cpu/user", 18, 20),
    sure(Basis::BothEnds, "loss/policer", 34, 34),
    sure(Basis::BothEnds, "loss/random", 35, 40),
    sure(Basis::BothEnds, "loss/shallow-queue", 19, 24),
    sure(Basis::BothEnds, "mtu/black-hole", 28, 28),
    sure(Basis::BothEnds, "mtu/mss-clamped", 9, 9),
    sure(Basis::BothEnds, "pacing/congestion-control", 5, 5),
    sure(Basis::BothEnds, "pacing/max-pacing-rate", 37, 37),
    sure(Basis::BothEnds, "pacing/qdisc", 32, 32),
    sure(Basis::BothEnds, "receive-window/no-window-scaling", 39, 39),
    sure(Basis::BothEnds, "receive-window/so-rcvbuf", 38, 39),
    sure(Basis::BothEnds, "receive-window/tcp-rmem-max", 39, 39),
    sure(Basis::BothEnds, "receive-window/window-clamped", 14, 14),
    sure(Basis::BothEnds, "receive-window/window-scale-rewritten", 14, 14),
    sure(Basis::BothEnds, "receive-window/window-scale-stripped", 59, 59),
    sure(Basis::BothEnds, "receiver-application/slow-reader", 24, 27),
    sure(Basis::BothEnds, "receiver-application/storage", 12, 12),
    sure(Basis::BothEnds, "send-buffer/so-sndbuf", 12, 12),
    sure(Basis::BothEnds, "send-buffer/tcp-wmem-max", 62, 62),
    sure(Basis::BothEnds, "sender-application/idle", 14, 14),
    sure(Basis::BothEnds, "sender-application/rate-limited", 43, 43),
    sure(Basis::BothEnds, "sender-application/storage", 12, 12),
    sure(Basis::Sender, "application-window/ssh-channel", 6, 6),
    sure(Basis::Sender, "capacity/host-queue", 37, 37),
    sure(Basis::Sender, "capacity/link", 67, 77),
    sure(Basis::Sender, "capacity/shared", 65, 66),
    sure(Basis::Sender, "congestion-window/early-exit", 6, 6),
    sure(Basis::Sender, "congestion-window/ramp-up", 48, 48),
    sure(Basis::Sender, "congestion-window/recovering", 6, 9),
    sure(Basis::Sender, "congestion-window/reordering", 6, 6),
    sure(Basis::Sender, "cpu/stolen", 40, 40),
    sure(Basis::Sender, "cpu/system", 1, 1),
    sure(Basis::Sender, "cpu/user", 9, 10),
    sure(Basis::Sender, "loss/policer", 51, 53),
    sure(Basis::Sender, "loss/random", 60, 66),
    sure(Basis::Sender, "loss/shallow-queue", 40, 45),
    sure(Basis::Sender, "mtu/black-hole", 57, 57),
    sure(Basis::Sender, "mtu/mss-clamped", 9, 9),
    sure(Basis::Sender, "pacing/congestion-control", 5, 5),
    sure(Basis::Sender, "pacing/max-pacing-rate", 37, 37),
    sure(Basis::Sender, "pacing/qdisc", 63, 63),
    sure(Basis::Sender, "receive-window/no-window-scaling", 12, 12),
    several(Basis::Sender, "receive-window/no-window-scaling", 66, 66),
    sure(Basis::Sender, "receive-window/so-rcvbuf", 16, 16),
    sure(Basis::Sender, "receive-window/tcp-rmem-max", 40, 42),
    sure(Basis::Sender, "receive-window/window-clamped", 14, 14),
    sure(Basis::Sender, "receive-window/window-scale-rewritten", 14, 14),
    sure(Basis::Sender, "receive-window/window-scale-stripped", 52, 52),
    several(Basis::Sender, "receiver-application/slow-reader", 62, 74),
    sure(Basis::Sender, "send-buffer/so-sndbuf", 34, 34),
    sure(Basis::Sender, "send-buffer/tcp-wmem-max", 88, 88),
    sure(Basis::Sender, "sender-application/idle", 27, 30),
    sure(Basis::Sender, "sender-application/rate-limited", 49, 49),
    sure(Basis::Sender, "sender-application/storage", 12, 12),
    sure(Basis::Receiver, "capacity/link", 47, 47),
    sure(Basis::Receiver, "capacity/shared", 24, 25),
    sure(Basis::Receiver, "congestion-window/ramp-up", 37, 37),
    sure(Basis::Receiver, "cpu/stolen", 16, 16),
    sure(Basis::Receiver, "loss/policer", 29, 32),
    sure(Basis::Receiver, "loss/random", 29, 32),
    several(Basis::Receiver, "loss/random", 28, 32),
    sure(Basis::Receiver, "loss/shallow-queue", 21, 21),
    sure(Basis::Receiver, "mtu/black-hole", 1, 1),
    sure(Basis::Receiver, "receive-window/no-window-scaling", 25, 25),
    several(Basis::Receiver, "receive-window/no-window-scaling", 44, 44),
    sure(Basis::Receiver, "receive-window/so-rcvbuf", 62, 62),
    sure(Basis::Receiver, "receive-window/tcp-rmem-max", 58, 58),
    sure(Basis::Receiver, "receive-window/window-scale-stripped", 19, 19),
    sure(Basis::Receiver, "receiver-application/slow-reader", 0, 2),
    sure(Basis::Receiver, "send-buffer/tcp-wmem-max", 23, 24),
    several(Basis::Receiver, "send-buffer/tcp-wmem-max", 4, 6),
    sure(Basis::Receiver, "sender-application/idle", 1, 1),
    several(Basis::Receiver, "sender-application/idle", 4, 5),
    sure(Basis::Receiver, "sender-application/rate-limited", 36, 36),
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
