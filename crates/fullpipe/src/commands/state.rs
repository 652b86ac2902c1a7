//! The folder in which this program keeps what is to outlast it.

use super::prelude::*;

/// Returns `fullpipe` in the user's folder for state: that of `XDG_STATE_HOME`, or ~/.local/state;
/// `None` if the user has no home.
pub(super) fn state_folder() -> Option<PathBuf> {
    Some(user_folder("XDG_STATE_HOME", ".local/state")?.join("fullpipe"))
}

/// Returns the user's folder that the variable `name` has, or else that `below` home (XDG Base
/// Directory Specification).
pub(super) fn user_folder(name: &str, below: &str) -> Option<PathBuf> {
    let named = std::env::var_os(name)
        .map(PathBuf::from)
        .filter(|folder| folder.is_absolute());
    named.or_else(|| Some(std::env::home_dir()?.join(below)))
}
