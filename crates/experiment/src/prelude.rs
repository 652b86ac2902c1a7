//! The names that most modules use.

pub(crate) use fullpipe_record::{
    At, Change, Direction, Event, Evidence, HostSettings, Interval, Limit, Measurement, Path,
    Prediction, ProgramRun, Request, Sample, TransferProgress, Transport, Verdict,
};
pub(crate) use fullpipe_units::{BitRate, ByteCount, Ratio, SegCount, Span, median};
