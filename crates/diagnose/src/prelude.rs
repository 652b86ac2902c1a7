//! The names that most modules use.

pub(crate) use fullpipe_record::{
    At, Basis, Buffer, CapacityVerdict, CaptureEvidence, Change, CongestionWindowVerdict, Evidence,
    IpVersion, LegalVerdict, Limit, LossVerdict, Machine, PacingVerdict, ReceiveWindowVerdict,
    ReceiverApplicationVerdict, Remedy, Sample, Scope, SendBufferVerdict, SenderApplicationVerdict,
    Steady, TcpInfo, TransferProgress, Verdict,
};
pub(crate) use fullpipe_units::{BitRate, ByteCount, Ratio, SegCount, Span, count_noun, median};
