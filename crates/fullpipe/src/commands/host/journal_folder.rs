//! Where the journals of changes are.

use fullpipe_experiment::WatchedJournal;
use fullpipe_host::{HostSystem, JournalDir};

use super::watchdog::start_tied_watchdog;
use crate::commands::prelude::*;
use crate::commands::state::state_folder;

/// The folder of the journals.
#[derive(Debug, Default, Args)]
pub(crate) struct JournalFolder {
    /// Folder of the journals
    ///
    /// The default is /var/lib/fullpipe for root and ~/.local/state/fullpipe for other users.
    #[arg(
        long,
        hide_short_help = true,
        help_heading = "Journal",
        value_name = "FOLDER"
    )]
    journal: Option<PathBuf>,
}

impl JournalFolder {
    pub(crate) fn folder_path(&self) -> Result<PathBuf> {
        if let Some(folder) = &self.journal {
            return std::path::absolute(folder)
                .map_err(|error| usage_failure(format!("--journal: {error}")));
        }
        if rustix::process::geteuid().is_root() {
            return Ok("/var/lib/fullpipe".into());
        }
        state_folder().ok_or_else(|| {
            usage_failure("this user has no home for a journal; --journal names a folder")
        })
    }

    /// Returns the journal of a command that takes its own changes back, also if it is killed.
    pub(crate) fn watched(&self) -> Result<WatchedJournal> {
        Ok(WatchedJournal {
            folder: self.folder_path()?,
            start_watchdog: start_tied_watchdog,
        })
    }

    pub(super) fn open(&self) -> Result<JournalDir> {
        Ok(JournalDir::open(
            &self.folder_path()?,
            HostSystem::of_this_host(),
        )?)
    }
}
