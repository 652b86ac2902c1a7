//! Changes of this host that wait in its journal to be settled.

use std::io;
use std::path::Path;

use fullpipe_host::{ApplyOptions, HostSystem, JournalDir, JournalError, check_changes};
use fullpipe_record::{Change, HostUndone};
use fullpipe_units::Span;

/// Time that the journal states for the changes to wait.
pub(crate) const WAITS: Span = Span::from_secs(3600);

/// Makes changes, and returns the name under which they wait in the journal of folder `journal`;
/// `None` where all is so already. `guard` gets the name before anything is changed.
///
/// # Errors
/// Fails if a change is refused, or the guard fails; then none is made.
pub(crate) fn apply_pending(
    journal: &Path,
    changes: &[Change],
    guard: &dyn Fn(&str) -> io::Result<()>,
) -> Result<Option<String>, JournalError> {
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
    JournalDir::open(journal, HostSystem::of_this_host())?.apply_changes(
        changes,
        options,
        &mut |id: &str| {
            name = Some(id.to_owned());
            guard(id)
        },
        &mut |_| {},
    )?;
    Ok(name)
}

/// Lets what was applied as `id` stay or takes it back; returns what could not be done, and why.
/// What another program has settled meanwhile is left alone, as is a change of its own that waits.
pub(crate) fn settle_changes(journal: &Path, id: &str, stays: bool) -> Option<String> {
    let settled = JournalDir::open(journal, HostSystem::of_this_host()).and_then(|journal_dir| {
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
