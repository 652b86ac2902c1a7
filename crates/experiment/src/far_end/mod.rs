//! The far end of a measurement, started over ssh for as long as this end wants it: it serves tests
//! to whoever knows a key that it makes, and changes its host and takes that back when asked,
//! or when the connection ends.
//!
//! Each message is JSON in one line ([`FarRequest`], [`FarAnswer`]).

mod near;
mod there;

pub use near::{FarEnd, FarEndFailure};
pub use there::serve_far_end;

use std::time::Duration;

use fullpipe_record::Change;
use serde::{Deserialize, Serialize};

/// Time between two signs of life of the near end.
const PULSE: Duration = Duration::from_secs(5);

/// Time after which a near end without a sign of life is gone: far above the pauses of a path that
/// is worth a test.
const SILENCE: Duration = Duration::from_mins(1);

/// A request of the near end.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
enum FarRequest {
    /// Open so many connections to this port of the near end, each of which begins with the token,
    /// and serve tests on them.
    Call {
        port: u16,
        count: u16,
        token: String,
    },
    /// Make these changes, as ones that wait.
    Apply(Vec<Change>),
    /// Let the changes that wait stay, or take them back.
    Settle { stay: bool },
    /// The near end is still there.
    Pulse,
}

/// An answer of the far end; a pulse has none.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
enum FarAnswer {
    /// Clients that know this key are served on this port: the first answer, which nothing asks for.
    Serves { key: String, port: u16 },
    /// It is done.
    Done,
    /// It was not done, in a sentence.
    Failed(String),
}
