//! Where the connections of one thread are waited for.

use std::io;

use tokio::runtime::{Builder, Runtime};

/// Returns a runtime with sockets and timers on the thread that waits for it.
///
/// # Errors
/// Fails if the process has no descriptor left.
pub fn single_threaded_runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}
