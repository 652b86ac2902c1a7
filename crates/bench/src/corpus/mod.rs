//! `bench corpus`: a check of the judge that needs no labels. Each capture of a folder is read, each of its transfers is
//! judged, and each verdict is held against what the packets show by themselves.
//!
//! [`witness`] reads the packets anew, [`contradictions`] holds the verdicts against them, and [`other_readers`] asks
//! tshark and tcptrace what the same files hold.

mod command;
mod contradictions;
mod finding;
mod other_readers;
mod witness;

pub(crate) use command::CorpusCheck;
