//! Cases side by side, as many as a machine of two processors carries.

use std::cmp::Reverse;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use super::case::Case;

/// Rates of the paths of all cases that run at a time, in bit/s.
const ROOM: u64 = 450_000_000;

/// Largest part of it that one case takes, so that slow ones run next to a fast one.
const MAX_OF_A_CASE: u64 = 300_000_000;

/// Added for each case: its programs cost something however slow the path is.
const PROGRAMS: u64 = 30_000_000;

/// Longest that an interrupt goes unheard.
const INTERRUPT_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The cases that wait, and the room for them.
struct Plan {
    waiting: Vec<Case>,
    /// Of [`ROOM`].
    left: u64,
}

/// Calls `run` for each of `cases`, for some at a time, until `stop` is set.
pub(crate) fn side_by_side(mut cases: Vec<Case>, stop: &AtomicBool, run: impl Fn(&Case) + Sync) {
    let most = cases.len().min((ROOM / PROGRAMS) as usize);
    // Fast ones fit less often, so they have the first choice.
    cases.sort_by_key(|case| Reverse(cost(case)));
    let plan = Mutex::new(Plan {
        waiting: cases,
        left: ROOM,
    });
    let ended = Condvar::new();
    thread::scope(|scope| {
        for _ in 0..most {
            scope.spawn(|| {
                while let Some(case) = next(&plan, &ended, stop) {
                    run(&case);
                    plan.lock().unwrap_or_else(PoisonError::into_inner).left += cost(&case);
                    ended.notify_all();
                }
            });
        }
    });
}

/// Waits for room, and returns the first case that fits; `None` when none is left, or once `stop`
/// is set.
fn next(plan: &Mutex<Plan>, ended: &Condvar, stop: &AtomicBool) -> Option<Case> {
    let mut plan = plan.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        if plan.waiting.is_empty() || stop.load(Ordering::Relaxed) {
            return None;
        }
        if let Some(index) = plan.waiting.iter().position(|case| cost(case) <= plan.left) {
            let case = plan.waiting.remove(index);
            plan.left -= cost(&case);
            return Some(case);
        }
        plan = ended
            .wait_timeout(plan, INTERRUPT_POLL_INTERVAL)
            .unwrap_or_else(PoisonError::into_inner)
            .0;
    }
}

fn cost(case: &Case) -> u64 {
    (case.path.rate.bps() + PROGRAMS).min(MAX_OF_A_CASE)
}
