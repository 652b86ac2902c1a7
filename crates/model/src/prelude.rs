//! The names that most modules use.

pub(crate) use fullpipe_record::{
    Buffer, Estimate, HostSettings, Inputs, KernelVersion, Limit, Path, PathDirection, Prediction,
    Quantity, Ramp, Request,
};
pub(crate) use fullpipe_units::{BitRate, ByteCount, Ratio, SegCount, Span};
