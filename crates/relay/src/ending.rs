//! Rules by which the end of one side passes to the other, without a socket.
//!
//! Each of two directions is open until its source has closed (FIN), and then until everything
//! before that has been passed on. A direction is broken once its destination takes nothing any
//! more.

/// One of the two sides of a relayed connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RelaySide {
    /// The one that called.
    Client,
    /// The one that was called.
    Target,
}

/// The state of the direction that begins at a side.
#[derive(Clone, Copy)]
enum DirectionState {
    Open,
    /// Everything and the FIN were passed on.
    Passed,
    /// The destination was reset after it had closed: no peer reads the bytes that the direction
    /// carries, or carried last.
    Broken,
}

/// The state of both directions.
pub(crate) struct EndingState {
    courses: [DirectionState; 2],
}

/// The next step of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EndingStep {
    /// Go on.
    Go,
    /// Close both sides in order.
    Close,
    /// Reset both sides now: the given side failed.
    Abort(RelaySide),
    /// The given side was reset after its FIN: reset the other once it has acknowledged everything.
    ResetOther(RelaySide),
}

impl RelaySide {
    pub(crate) const BOTH: [Self; 2] = [Self::Client, Self::Target];

    pub(crate) const fn other_side(self) -> Self {
        match self {
            Self::Client => Self::Target,
            Self::Target => Self::Client,
        }
    }
}

impl EndingState {
    pub(crate) const fn new() -> Self {
        Self {
            courses: [DirectionState::Open; 2],
        }
    }

    /// Returns true if bytes still move in the direction that begins at `side`.
    pub(crate) const fn is_moving(&self, side: RelaySide) -> bool {
        matches!(self.courses[side as usize], DirectionState::Open)
    }

    /// The direction from `side` has passed on everything and the FIN.
    pub(crate) const fn record_fin(&mut self, side: RelaySide) -> EndingStep {
        self.courses[side as usize] = DirectionState::Passed;
        self.next_step()
    }

    /// The socket of `side` failed. `has_closed` is true if its FIN came before, whether or not it
    /// has been read: then everything before the FIN is still to be delivered.
    pub(crate) const fn record_failure(&mut self, side: RelaySide, has_closed: bool) -> EndingStep {
        if !has_closed && self.is_moving(side) {
            return EndingStep::Abort(side);
        }
        self.courses[side.other_side() as usize] = DirectionState::Broken;
        self.next_step()
    }

    const fn next_step(&self) -> EndingStep {
        match self.courses {
            [DirectionState::Passed, DirectionState::Passed] => EndingStep::Close,
            [DirectionState::Passed, DirectionState::Broken] => {
                EndingStep::ResetOther(RelaySide::Client)
            }
            [DirectionState::Broken, DirectionState::Passed] => {
                EndingStep::ResetOther(RelaySide::Target)
            }
            [DirectionState::Broken, DirectionState::Broken] => {
                EndingStep::Abort(RelaySide::Client)
            }
            _ => EndingStep::Go,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::RelaySide::{Client, Target};
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn one_side_may_close_long_before_the_other() {
        for first in RelaySide::BOTH {
            let mut ending = EndingState::new();
            assert_eq!(ending.record_fin(first), EndingStep::Go);
            assert!(!ending.is_moving(first) && ending.is_moving(first.other_side()));
            assert_eq!(ending.record_fin(first.other_side()), EndingStep::Close);
        }
    }

    #[test]
    fn a_reset_without_a_fin_is_passed_on_at_once() {
        let mut ending = EndingState::new();
        assert_eq!(
            ending.record_failure(Client, false),
            EndingStep::Abort(Client)
        );
        let mut ending = EndingState::new();
        ending.record_fin(Client);
        assert_eq!(
            ending.record_failure(Target, false),
            EndingStep::Abort(Target)
        );
    }

    #[test]
    fn a_reset_after_the_fin_discards_nothing_that_came_before_it() {
        // The FIN has been passed on.
        let mut ending = EndingState::new();
        ending.record_fin(Client);
        assert_eq!(
            ending.record_failure(Client, false),
            EndingStep::ResetOther(Client)
        );
        // The kernel has the FIN, but there are bytes before it.
        let mut ending = EndingState::new();
        assert_eq!(ending.record_failure(Target, true), EndingStep::Go);
        assert!(ending.is_moving(Target) && !ending.is_moving(Client));
        assert_eq!(ending.record_fin(Target), EndingStep::ResetOther(Target));
    }

    #[test]
    fn a_reset_while_bytes_before_the_fin_are_on_their_way_to_a_side_that_is_reset_too() {
        let mut ending = EndingState::new();
        assert_eq!(ending.record_failure(Client, true), EndingStep::Go);
        assert_eq!(
            ending.record_failure(Target, true),
            EndingStep::Abort(Client)
        );
    }

    proptest! {
        /// Whatever happens in whatever order, both directions end in order or the other side sees
        /// a reset.
        #[test]
        fn only_two_fins_close_in_order(events in prop::collection::vec(any::<[bool; 3]>(), 1..8)) {
            let mut ending = EndingState::new();
            let mut failed = false;
            for [client, fails, closed] in events {
                let side = if client { Client } else { Target };
                let next = if fails {
                    failed |= ending.is_moving(side) || ending.is_moving(side.other_side());
                    ending.record_failure(side, closed)
                } else if ending.is_moving(side) {
                    ending.record_fin(side)
                } else {
                    continue;
                };
                prop_assert!(!failed || next != EndingStep::Close);
                if next != EndingStep::Go {
                    break;
                }
            }
        }
    }
}
