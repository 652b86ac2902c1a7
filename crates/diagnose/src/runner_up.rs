//! The limit that is as good as the deciding one: without the deciding one, this one holds at once.

use std::collections::BTreeMap;

use fullpipe_record::{Cause, OtherLimit, RunnerUp};

use crate::prelude::*;
use crate::signals::time_ratio;

/// Returns the limit closest to `kind`, which leaves the rate `rate`: by `ceilings`, or else by the
/// time in which it held, of which `kind` had the share `of_the_time`.
pub(crate) fn runner_up(
    (kind, rate): (Limit, BitRate),
    ceilings: &BTreeMap<Limit, BitRate>,
    others: &[OtherLimit],
    of_the_time: Ratio,
) -> Option<RunnerUp> {
    by_ceiling(kind, rate, ceilings).or_else(|| by_time(others, of_the_time))
}

/// Returns the ceilings as they would be without limit `kind`: without a full pipe, its queue does
/// not lengthen the round trips over which windows open. Takes the round-trip time under load and
/// that of the idle path.
pub(crate) fn once_lifted(
    kind: Limit,
    [loaded, idle]: [Option<Span>; 2],
    ceilings: &BTreeMap<Limit, BitRate>,
) -> BTreeMap<Limit, BitRate> {
    let queued = loaded.zip(idle).filter(|_| kind == Limit::Capacity);
    let longer = queued.map_or(1.0, |(rtt, idle)| time_ratio(rtt, idle).get().max(1.0));
    let mut lifted = ceilings.clone();
    for (kind, rate) in &mut lifted {
        if is_of_a_rule(*kind) {
            *rate = rate.scale_by(longer);
        }
    }
    lifted
}

/// Largest difference from the deciding limit, as a share of it, at which another limit is as good
/// as it.
///
/// The share applies to ceilings and to the times in which limits held. A choice, not measured:
/// predictions are held to three percent, and round trips vary by more.
const CLOSE_LIMIT_SHARE: f64 = 0.1;

fn by_ceiling(kind: Limit, rate: BitRate, ceilings: &BTreeMap<Limit, BitRate>) -> Option<RunnerUp> {
    let deciding = ceilings
        .get(&kind)
        .copied()
        .filter(|_| is_of_a_rule(kind))
        .unwrap_or(rate);
    let close =
        deciding.scale_by(1.0 - CLOSE_LIMIT_SHARE)..=deciding.scale_by(1.0 + CLOSE_LIMIT_SHARE);
    let others = ceilings
        .iter()
        .filter(|(other, ceiling)| is_comparable(kind, **other) && close.contains(ceiling));
    let (next, ceiling) = others
        .min_by_key(|(_, ceiling)| **ceiling)
        .filter(|_| deciding > BitRate::ZERO)?;
    Some(RunnerUp {
        kind: *next,
        bits_per_second: Some(*ceiling),
        share: None,
    })
}

/// Returns true if a ceiling follows from sizes, and not from the course of the transfer on the
/// path.
const fn is_of_a_rule(kind: Limit) -> bool {
    matches!(
        kind,
        Limit::ReceiveWindow | Limit::SendBuffer | Limit::ApplicationWindow
    )
}

/// Returns true if ceiling `other` would stand if the limit `kind` were lifted. A congestion window
/// follows whatever else holds the transfer; a full pipe or a growing window makes loss; and larger
/// segments leave another share of the path than small ones.
fn is_comparable(kind: Limit, other: Limit) -> bool {
    match other {
        _ if other == kind => false,
        Limit::ReceiveWindow | Limit::SendBuffer | Limit::ApplicationWindow => true,
        Limit::Capacity => !matches!(kind, Limit::Mtu | Limit::Unknown),
        Limit::Loss => {
            is_of_a_rule(kind) || matches!(kind, Limit::SenderApplication | Limit::Pacing)
        }
        _ => false,
    }
}

fn by_time(others: &[OtherLimit], of_the_time: Ratio) -> Option<RunnerUp> {
    // Every transfer speeds up at first; that is over when the limit is lifted.
    let longest = others.iter().find(|other| other.cause != Cause::RampUp)?;
    let is_close = of_the_time > Ratio::ZERO
        && longest.share.get() >= of_the_time.get() * (1.0 - CLOSE_LIMIT_SHARE);
    is_close.then_some(RunnerUp {
        kind: longest.kind,
        bits_per_second: None,
        share: Some(longest.share),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_record::At;

    const NONE: &[OtherLimit] = &[];

    /// A ceiling.
    type Mbps = (Limit, u64);

    fn mbps(rates: &[Mbps]) -> BTreeMap<Limit, BitRate> {
        rates
            .iter()
            .map(|(kind, mbps)| (*kind, BitRate::from_mbps(*mbps)))
            .collect()
    }

    #[test]
    fn a_ceiling_within_a_tenth_would_be_next() {
        use Limit::{Capacity, CongestionWindow, Loss, Mtu, Pacing, ReceiveWindow, SendBuffer};
        let table: [(Limit, &[Mbps], Option<Mbps>); 11] = [
            (
                SendBuffer,
                &[(SendBuffer, 300), (ReceiveWindow, 329)],
                Some((ReceiveWindow, 329)),
            ),
            (SendBuffer, &[(SendBuffer, 300), (ReceiveWindow, 331)], None),
            (
                SendBuffer,
                &[(SendBuffer, 300), (ReceiveWindow, 280)],
                Some((ReceiveWindow, 280)),
            ),
            (
                SendBuffer,
                &[(SendBuffer, 300), (ReceiveWindow, 320), (Capacity, 310)],
                Some((Capacity, 310)),
            ),
            // The measured rate stands for a limit without a ceiling of its own, and for one that
            // chance decides.
            (Pacing, &[(SendBuffer, 310)], Some((SendBuffer, 310))),
            (
                Loss,
                &[(Loss, 100), (ReceiveWindow, 310)],
                Some((ReceiveWindow, 310)),
            ),
            // What follows from the limit is no other limit.
            (
                ReceiveWindow,
                &[(ReceiveWindow, 300), (CongestionWindow, 300)],
                None,
            ),
            (Capacity, &[(Capacity, 310), (Loss, 300)], None),
            (Mtu, &[(Capacity, 300)], None),
            (
                ReceiveWindow,
                &[(ReceiveWindow, 300), (Loss, 305)],
                Some((Loss, 305)),
            ),
            (SendBuffer, &[], None),
        ];
        for (kind, ceilings, expected) in table {
            let got = runner_up(
                (kind, BitRate::from_mbps(300)),
                &mbps(ceilings),
                NONE,
                Ratio::ONE,
            );
            let expected = expected.map(|(kind, mbps)| RunnerUp {
                kind,
                bits_per_second: Some(BitRate::from_mbps(mbps)),
                share: None,
            });
            assert_eq!(got, expected, "{kind:?} of {ceilings:?}");
        }
        let nothing = mbps(&[(SendBuffer, 0)]);
        assert_eq!(
            runner_up((Limit::Mtu, BitRate::ZERO), &nothing, NONE, Ratio::ONE),
            None
        );
    }

    #[test]
    fn a_full_pipe_hides_what_windows_allow_without_its_queue() {
        let ceilings = mbps(&[(Limit::ReceiveWindow, 100), (Limit::Capacity, 94)]);
        let rtts = [Some(Span::from_millis(60)), Some(Span::from_millis(40))];
        let full = once_lifted(Limit::Capacity, rtts, &ceilings);
        assert_eq!(
            full,
            mbps(&[(Limit::ReceiveWindow, 150), (Limit::Capacity, 94)])
        );
        assert_eq!(once_lifted(Limit::SendBuffer, rtts, &ceilings), ceilings);
        assert_eq!(
            once_lifted(Limit::Capacity, [None, None], &ceilings),
            ceilings
        );
    }

    #[test]
    fn a_limit_that_held_for_nearly_as_long_is_next() {
        let other = |share| OtherLimit {
            kind: Limit::SenderApplication,
            cause: Cause::Idle,
            at: At::Sender,
            share: Ratio::new(share),
        };
        let next = |share, of_the_time| {
            let rate = (Limit::ReceiveWindow, BitRate::from_mbps(300));
            runner_up(rate, &mbps(&[]), &[other(share)], Ratio::new(of_the_time))
                .map(|next| next.kind)
        };
        assert_eq!(next(0.46, 0.5), Some(Limit::SenderApplication));
        assert_eq!(next(0.44, 0.5), None);
        let ramp = OtherLimit {
            kind: Limit::CongestionWindow,
            cause: Cause::RampUp,
            ..other(0.5)
        };
        let rate = (Limit::ReceiveWindow, BitRate::from_mbps(300));
        assert_eq!(runner_up(rate, &mbps(&[]), &[ramp], Ratio::new(0.5)), None);
        assert_eq!(
            next(0.44, 0.0),
            None,
            "the limit of no second is one that seconds do not show"
        );
    }
}
