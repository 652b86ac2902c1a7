//! One change of a setting, with the way back.

use serde::{Deserialize, Serialize};

use crate::setting::Setting;

/// A setting, what it was, what it was to become, and, where that says less than what was read
/// back, this.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct JournalEntry {
    pub setting: Setting,
    pub before: Option<String>,
    pub wanted: Option<String>,
    /// A line of its own in the journal.
    #[serde(skip)]
    pub made: Option<String>,
}

/// A text for a reader: in one line, with single spaces.
pub(crate) fn display_text(text: Option<&str>) -> String {
    let words = text.unwrap_or("none").split_whitespace();
    words.collect::<Vec<_>>().join(" ")
}
