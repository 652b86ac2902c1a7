//! Work on many items, on all processors.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Applies `work` to each item and its number, on all processors, and returns what came of each, in
/// the order of the items.
pub(crate) fn map_in_parallel<T: Sync, R: Send>(
    items: &[T],
    work: impl Fn(usize, &T) -> R + Sync,
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let take_next = || {
        let index = next.fetch_add(1, Ordering::Relaxed);
        Some((index, work(index, items.get(index)?)))
    };
    let mut done = Vec::with_capacity(items.len());
    thread::scope(|scope| {
        let threads: Vec<_> = (0..thread::available_parallelism().map_or(1, usize::from))
            .map(|_| scope.spawn(|| std::iter::from_fn(take_next).collect::<Vec<_>>()))
            .collect();
        for thread in threads {
            done.extend(thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
        }
    });
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_the_order_of_the_items() {
        let items: Vec<usize> = (0..1_000).rev().collect();
        let results = map_in_parallel(&items, |index, item| index + item);
        assert_eq!(results, vec![999; 1_000]);
        assert!(map_in_parallel(&[], |_, item: &u8| *item).is_empty());
    }
}
