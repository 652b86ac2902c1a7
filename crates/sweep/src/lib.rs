//! Sweeps over windows and streams: a plan and something that measures in, the knee out.
//!
//! `fullpipe-campaign` decides which run is next. This room carries it out, and keeps each run as a document before the
//! next begins, so that a sweep that was ended goes on with the very run that it would have made.

mod figures;
mod folder;
mod prepare;
mod run;

pub use folder::{Folder, FolderError, Kept};
pub use prepare::{Wishes, light_request, plan, price};
pub use run::{Measure, Sweep};
