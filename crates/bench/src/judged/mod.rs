//! What the benches with planted limits share: the views of a transfer, records of it, verdicts on
//! its captures and on listings of it, transfers in virtual time, and the score.

mod accuracy;
mod captures;
mod command;
mod completion;
mod listing;
mod parallel;
mod random;
mod record;
mod score;
mod silent_tail;
mod simulated;
mod until_sure;
mod view;

pub(crate) use accuracy::RemedyResult;
pub(crate) use command::{CAPTURES, Judging, LISTED_AT, PlantedCases, Session};
pub(crate) use completion::draw_duration;
pub(crate) use parallel::map_in_parallel;
pub(crate) use random::Random;
pub(crate) use record::{MUST_KEEP, Record};
pub(crate) use simulated::VirtualCase;
pub(crate) use view::JudgedView;

#[cfg(test)]
pub(crate) use score::score_text;
