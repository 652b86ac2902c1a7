//! Changes of this host that wait in its journal to be settled.

use std::io;
use std::path::{Path, PathBuf};

use fullpipe_host::{ApplyOptions, HostSystem, JournalDir, JournalError, check_changes};
use fullpipe_record::HostUndone;

use crate::prelude::*;

/// Time that the journal states for the changes to wait.
const WAITS: Span = Span::from_secs(3600);

/// The journal of this host, and who takes back what waits in it if this program is killed.
#[derive(Debug, Clone)]
pub struct WatchedJournal {
    /// Folder of the journal.
    pub folder: PathBuf,
    /// Starts the process that takes a change back when its time ends, or the thread that calls
    /// does. It gets the name of the change before anything is changed, the most time, and the
    /// folder.
    pub start_watchdog: fn(&str, Span, &Path) -> io::Result<()>,
}

impl WatchedJournal {
    /// Makes changes, and returns the name under which they wait in the journal; `None` where there
    /// are none.
    ///
    /// # Errors
    /// Fails if a change is refused, or nobody can watch over it; then none is made.
    pub(crate) fn apply_pending(&self, changes: &[Change]) -> Result<Option<String>, JournalError> {
        // Before there is a folder for a journal that is not to be.
        check_changes(&HostSystem::of_this_host(), changes, false)?;
        if changes.is_empty() {
            return Ok(None);
        }
        let options = ApplyOptions {
            temporary: Some(WAITS),
            ..ApplyOptions::default()
        };
        let mut name = None;
        self.open()?.apply_changes(
            changes,
            options,
            &mut |id: &str| {
                name = Some(id.to_owned());
                (self.start_watchdog)(id, WAITS, &self.folder)
            },
            &mut |_| {},
        )?;
        Ok(name)
    }

    /// Lets what was applied as `id` stay or takes it back; returns what could not be done, and why.
    /// What another program has settled meanwhile is left alone, as is a change of its own that
    /// waits.
    pub(crate) fn settle_changes(&self, id: &str, stays: bool) -> Option<String> {
        let settled = self.open().and_then(|journal_dir| {
            if stays && journal_dir.is_pending(id)? {
                journal_dir
                    .confirm_pending()
                    .map(|()| HostUndone::default())
            } else {
                journal_dir.undo_unless_confirmed(id)
            }
        });
        match settled {
            Ok(undone) if undone.left.is_empty() => None,
            Ok(undone) => Some(
                undone
                    .left
                    .into_iter()
                    .map(|left| left.why)
                    .collect::<Vec<_>>()
                    .join("; "),
            ),
            Err(error) => Some(error.to_string()),
        }
    }

    fn open(&self) -> Result<JournalDir, JournalError> {
        JournalDir::open(&self.folder, HostSystem::of_this_host())
    }
}
