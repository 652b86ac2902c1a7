//! Rules by which the end of one side passes to the other, without a socket.
//!
//! Each of two directions is open until its source has closed (FIN), and then until everything before that has been
//! passed on. A direction is broken once its destination takes nothing any more.

/// One of the two sides of a relayed connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// The one that called.
    Client,
    /// The one that was called.
    Target,
}

/// The state of the direction that begins at a side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Course {
    Open,
    /// Everything and the FIN were passed on.
    Passed,
    /// The destination was reset after it had closed: no peer reads the bytes that the direction
    /// carries, or carried last.
    Broken,
}

/// The state of both directions.
#[derive(Debug)]
pub(crate) struct Ending {
    courses: [Course; 2],
}

/// The next step of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// Go on.
    Go,
    /// Close both sides in order.
    Close,
    /// Reset both sides now: the given side failed.
    Abort(Side),
    /// The given side was reset after its FIN: reset the other once it has acknowledged everything.
    ResetOther(Side),
}

impl Side {
    pub(crate) const BOTH: [Self; 2] = [Self::Client, Self::Target];

    pub(crate) const fn other(self) -> Self {
        match self {
            Self::Client => Self::Target,
            Self::Target => Self::Client,
        }
    }
}

impl Ending {
    pub(crate) const fn new() -> Self {
        Self { courses: [Course::Open; 2] }
    }

    /// Returns true if bytes still move in the direction that begins at `side`.
    pub(crate) const fn is_moving(&self, side: Side) -> bool {
        matches!(self.courses[side as usize], Course::Open)
    }

    /// The direction from `side` has passed on everything and the FIN.
    pub(crate) const fn passed(&mut self, side: Side) -> Next {
        self.courses[side as usize] = Course::Passed;
        self.next()
    }

    /// The socket of `side` failed. `has_closed` is true if its FIN came before, whether or not it has been read: then
    /// everything before the FIN is still to be delivered.
    pub(crate) const fn failed(&mut self, side: Side, has_closed: bool) -> Next {
        if !has_closed && self.is_moving(side) {
            return Next::Abort(side);
        }
        self.courses[side.other() as usize] = Course::Broken;
        self.next()
    }

    const fn next(&self) -> Next {
        match self.courses {
            [Course::Passed, Course::Passed] => Next::Close,
            [Course::Passed, Course::Broken] => Next::ResetOther(Side::Client),
            [Course::Broken, Course::Passed] => Next::ResetOther(Side::Target),
            [Course::Broken, Course::Broken] => Next::Abort(Side::Client),
            _ => Next::Go,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Side::{Client, Target};
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn one_side_may_close_long_before_the_other() {
        for first in Side::BOTH {
            let mut ending = Ending::new();
            assert_eq!(ending.passed(first), Next::Go);
            assert!(!ending.is_moving(first) && ending.is_moving(first.other()));
            assert_eq!(ending.passed(first.other()), Next::Close);
        }
    }

    #[test]
    fn a_reset_without_a_fin_is_passed_on_at_once() {
        let mut ending = Ending::new();
        assert_eq!(ending.failed(Client, false), Next::Abort(Client));
        let mut ending = Ending::new();
        ending.passed(Client);
        assert_eq!(ending.failed(Target, false), Next::Abort(Target));
    }

    #[test]
    fn a_reset_after_the_fin_discards_nothing_that_came_before_it() {
        // The FIN has been passed on.
        let mut ending = Ending::new();
        ending.passed(Client);
        assert_eq!(ending.failed(Client, false), Next::ResetOther(Client));
        // The kernel has the FIN, but there are bytes before it.
        let mut ending = Ending::new();
        assert_eq!(ending.failed(Target, true), Next::Go);
        assert!(ending.is_moving(Target) && !ending.is_moving(Client));
        assert_eq!(ending.passed(Target), Next::ResetOther(Target));
    }

    #[test]
    fn a_reset_while_bytes_before_the_fin_are_on_their_way_to_a_side_that_is_reset_too() {
        let mut ending = Ending::new();
        assert_eq!(ending.failed(Client, true), Next::Go);
        assert_eq!(ending.failed(Target, true), Next::Abort(Client));
    }

    proptest! {
        /// Whatever happens in whatever order, both directions end in order or the other side sees a reset.
        #[test]
        fn only_two_fins_close_in_order(events in prop::collection::vec(any::<[bool; 3]>(), 1..8)) {
            let mut ending = Ending::new();
            let mut failed = false;
            for [client, fails, closed] in events {
                let side = if client { Client } else { Target };
                let next = if fails {
                    failed |= ending.is_moving(side) || ending.is_moving(side.other());
                    ending.failed(side, closed)
                } else if ending.is_moving(side) {
                    ending.passed(side)
                } else {
                    continue;
                };
                prop_assert!(!failed || next != Next::Close);
                if next != Next::Go {
                    break;
                }
            }
        }
    }
}
