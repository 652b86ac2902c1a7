use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks, also after a thread has panicked: what is guarded is sound at every moment.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
