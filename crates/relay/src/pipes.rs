//! Pipes for `splice(2)`, taken only while bytes are in them.

use std::os::fd::OwnedFd;

use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};

/// Bytes that a pipe holds. With 64 KiB, half the rate passes, and the processor does twice as
/// much.
pub(crate) const PIPE_BYTES: usize = 1 << 20;

/// Pipes of all workers together. An ordinary user may have 64 MiB in pipes
/// (`fs.pipe-user-pages-soft`), and other programs want some.
pub(crate) const MAX_PIPES: usize = 48;

/// A pipe for bytes on their way.
pub(crate) struct SplicePipe {
    pub read: OwnedFd,
    pub write: OwnedFd,
}

/// The pipes of one worker.
pub(crate) struct PipePool {
    idle: Vec<SplicePipe>,
    /// Pipes that may still be made.
    left: usize,
}

impl PipePool {
    pub(crate) const fn new(most: usize) -> Self {
        Self {
            idle: Vec::new(),
            left: most,
        }
    }

    /// Returns an empty pipe; `None` if there is none, so that the bytes must be copied.
    pub(crate) fn take_pipe(&mut self) -> Option<SplicePipe> {
        self.idle.pop().or_else(|| self.create_pipe())
    }

    /// Takes back a pipe, which must be empty.
    pub(crate) fn put_back(&mut self, pipe: SplicePipe) {
        self.idle.push(pipe);
    }

    /// Closes a pipe with what is in it.
    pub(crate) fn discard_pipe(&mut self, pipe: SplicePipe) {
        drop(pipe);
        self.left += 1;
    }

    fn create_pipe(&mut self) -> Option<SplicePipe> {
        self.left = self.left.checked_sub(1)?;
        let made = pipe_with(PipeFlags::NONBLOCK | PipeFlags::CLOEXEC).and_then(|(read, write)| {
            fcntl_setpipe_size(&write, PIPE_BYTES)?;
            Ok(SplicePipe { read, write })
        });
        // Who may have no more now will hardly have more later: the rest is copied.
        made.inspect_err(|_| self.left = 0).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_pipes_are_made_than_permitted_and_an_empty_one_is_used_again() {
        let mut pipes = PipePool::new(1);
        let pipe = pipes.take_pipe().unwrap();
        assert!(pipes.take_pipe().is_none());
        pipes.put_back(pipe);
        let pipe = pipes.take_pipe().unwrap();
        pipes.discard_pipe(pipe);
        assert!(pipes.take_pipe().is_some());
    }
}
