//! When the file that a watched program sends is complete.

use std::path::PathBuf;

use fullpipe_observe::{WatchProgress, largest_read_file};
use fullpipe_record::FileCompletion;
use fullpipe_stats::ProgressHistory;

use crate::commands::prelude::*;

/// Time between two looks at the position of the file.
const LOOK_INTERVAL: Span = Span::from_millis(200);

/// The progress of what a watched program sends.
#[derive(Default)]
pub(super) struct CompletionWatch {
    /// Process whose files are looked at.
    process: Option<u32>,
    /// Size that the user stated, in place of a file's.
    stated: Option<ByteCount>,
    looked: Span,
    file: Option<PathBuf>,
    history: ProgressHistory,
    /// What was known at the last look.
    pub(super) last: Option<FileCompletion>,
}

impl CompletionWatch {
    pub(super) fn new(process: Option<u32>, stated: Option<ByteCount>) -> Self {
        Self {
            process,
            stated,
            ..Self::default()
        }
    }

    /// Notes how far the transfer has come, if it is time for that.
    pub(super) fn update(&mut self, now: WatchProgress<'_>) {
        if now.elapsed < self.looked + LOOK_INTERVAL {
            return;
        }
        self.looked = now.elapsed;
        self.last = match self.stated {
            Some(size) => self.forecast(None, size, now.moved),
            None => self
                .process
                .and_then(largest_read_file)
                .and_then(|read| self.forecast(Some(read.path), read.size, read.position)),
        };
    }

    fn forecast(
        &mut self,
        file: Option<PathBuf>,
        size: ByteCount,
        passed: ByteCount,
    ) -> Option<FileCompletion> {
        // Another file, or one that is read again.
        let before = self.last.as_ref().map(|last| last.passed);
        if self.file != file || before.is_some_and(|before| passed < before) {
            (self.history, self.file) = (ProgressHistory::default(), file);
        }
        self.history.push_progress(self.looked, passed);
        let left = size.saturating_sub(passed);
        let forecast = self.history.forecast_completion(left)?;
        let name = self.file.as_ref();
        Some(FileCompletion {
            file: name.map(|path| path.to_string_lossy().into_owned()),
            size,
            passed,
            forecast,
        })
    }
}
