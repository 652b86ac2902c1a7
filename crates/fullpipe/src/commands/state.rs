//! The folder in which this program keeps what is to outlast it.

use super::prelude::*;

/// Returns `fullpipe` in the user's folder for state: that of `XDG_STATE_HOME`, or ~/.local/state;
/// `None` if the user has no home.
pub(super) fn state_folder() -> Option<PathBuf> {
    let state = std::env::var_os("XDG_STATE_HOME")
        .filter(|folder| Path::new(folder).is_absolute())
        .map(PathBuf::from);
    let state = state.or_else(|| std::env::home_dir().map(|home| home.join(".local/state")));
    Some(state?.join("fullpipe"))
}
