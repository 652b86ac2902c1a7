use fullpipe_units::BitRate;

use crate::magnitude::Magnitude;
use crate::order_statistics::median;

/// The advice that the runs of a campaign's reference cell give.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advice {
    /// Go on.
    GoOn,
    /// Measure the reference cell again before anything else: its last two runs differ from the earlier ones.
    AskAgain,
    /// The path has changed: what was measured before the last three references is not comparable with what follows.
    Changed,
}

/// A reference is off if it differs from the median of the earlier ones by more than this share.
const OFF: f64 = 0.15;

/// References without which there is no median to differ from: of two, one that met a burst would be half of it.
const MIN_EARLIER: usize = 3;

/// Returns the advice of `references`, the rates of one cell that a campaign measures again and again, in the order of
/// time, since its start or since the path changed last.
///
/// Two references in a row that are more than 15 % above, or more than 15 % below, the median of the earlier ones (at
/// least three) are asked for a third; if it is off in the same direction too, the path has changed. With 6 % noise,
/// up to 2 % of the campaigns with ten references have a false alarm, and a fall by 30 % is noticed with the third
/// reference after it in 98 % (`tests/error_rates/references.rs`; the kinds of noise differ).
pub fn reference_advice(references: &[BitRate]) -> Advice {
    if last_are_off(references, 3) {
        Advice::Changed
    } else if last_are_off(references, 2) {
        Advice::AskAgain
    } else {
        Advice::GoOn
    }
}

/// Returns true if the last `count` of `references` are all off in the same direction.
fn last_are_off(references: &[BitRate], count: usize) -> bool {
    let Some(earlier) = references.len().checked_sub(count).filter(|earlier| *earlier >= MIN_EARLIER) else {
        return false;
    };
    let (earlier, last) = references.split_at(earlier);
    let usual = median(&earlier.iter().map(|rate| rate.magnitude()).collect::<Vec<_>>()).unwrap_or(0.0);
    let all = |off: &dyn Fn(f64) -> bool| last.iter().all(|rate| off(rate.magnitude()));
    all(&|rate| rate > usual * (1.0 + OFF)) || all(&|rate| rate < usual * (1.0 - OFF))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn advice(mbps: &[u64]) -> Advice {
        reference_advice(&mbps.iter().map(|mbps| BitRate::from_mbps(*mbps)).collect::<Vec<_>>())
    }

    #[test]
    fn two_in_a_row_ask_for_a_third_and_three_are_a_change() {
        assert_eq!(advice(&[100, 104, 98, 70]), Advice::GoOn);
        assert_eq!(advice(&[100, 104, 98, 70, 72]), Advice::AskAgain);
        assert_eq!(advice(&[100, 104, 98, 70, 72, 69]), Advice::Changed);
        assert_eq!(advice(&[100, 104, 98, 70, 72, 99]), Advice::GoOn, "the third was as usual");
        assert_eq!(advice(&[100, 104, 98, 130, 131, 140]), Advice::Changed);
    }

    #[test]
    fn up_and_down_is_noise_and_too_few_say_nothing() {
        assert_eq!(advice(&[100, 104, 98, 70, 130]), Advice::GoOn);
        assert_eq!(advice(&[100, 50, 50]), Advice::GoOn);
        assert_eq!(advice(&[]), Advice::GoOn);
        assert_eq!(advice(&[0, 0, 0, 0, 0]), Advice::GoOn);
    }
}
