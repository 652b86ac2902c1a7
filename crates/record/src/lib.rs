//! The records that the crates exchange, and that `--json` prints.
//!
//! Everything here is data: what was asked ([`Request`]), over what ([`Path`]), between which
//! settings ([`HostSettings`]), what was expected ([`Prediction`]), seen ([`Sample`],
//! [`Measurement`]) and concluded ([`Verdict`], [`Remedy`]). In JSON, rates are bits per second,
//! sizes bytes, times seconds and ratios fractions. The schema grows only: fields are added, never
//! renamed or removed, within one [`SCHEMA_VERSION`].

mod archive;
mod calculation;
mod capture;
mod completion;
mod copy;
mod diagnosis;
mod difference;
mod document;
mod effects;
mod effects_text;
pub mod event;
mod evidence;
mod experiment;
mod grid;
mod host;
mod hours;
mod impairment;
mod indentation;
mod lab;
mod latency;
mod legal;
mod machine;
mod measurement;
mod path;
mod path_status;
mod placement;
mod prediction;
mod prelude;
mod programs;
mod progress;
mod ramp;
mod relay;
mod request;
mod route;
mod sample;
mod schema;
mod settings;
mod simulation;
mod steady;
mod sureness;
mod sweep;
mod thinning;
mod time_account;
mod truth;
mod verdict;
mod web100;

pub use archive::{
    ArchiveCheck, ArchiveReport, ArchiveThinned, DamagedDocument, HistoryChange, HistoryDay,
    HistoryPoint, HistoryReport, HistorySeries, ImportedFile, StoredDocument, StoredFacts,
};
pub use calculation::{
    BufferAdvice, Calculation, Combination, Estimate, Improvement, Inputs, Leg, Need, Quantity,
    Side, Solved, Value, WhatIf,
};
pub use capture::{
    AdvertisedWindow, BurstRate, CaptureEvidence, CapturePoint, CaptureReport, CapturedTransfer,
    ChangedField, ClockOffset, ClockSkew, FlowChange, FlowDirection, FlowEnd, FlowPair, FlowReport,
    LossCourse, OneWayDelay, OwnCapture, QuietRounds, RedactedFile, RoundTrips, StallTimes,
    SynReport, WindowEdit,
};
pub use completion::{CompletionForecast, FileCompletion};
pub use copy::{CopyLimit, CopyProgress, CopyReport, CopyTransport};
pub use diagnosis::{CommandEnd, Diagnosis, DiagnosisReport, Http1Download, Transfer, Trial};
pub use difference::{
    ComparedRun, ComparedRuns, ComparedSide, ComparisonDesign, DifferenceConclusion,
    DifferenceReport, LimitCount, PairForecast, QuantityDifference,
};
pub use document::{Content, Document, ErrorReport};
pub use effects::{
    Codel, Distribution, Edit, Effects, Jitter, LossPattern, NarrowLink, Opportunities, PathChange,
    PathStep, Policer, Queueing, Reordering, TooBig,
};
pub use effects_text::{path_mtu, path_rate};
pub use event::{Event, EventLine};
pub use evidence::Evidence;
pub use experiment::{Experiment, Proof, Undone};
pub use grid::{GridAccuracy, GridAgreement, GridCell, GridReport, GridRun};
pub use host::{
    AdvisedChange, Allowance, Folklore, HostAdvice, HostApplied, HostChange, HostDevice, HostLeft,
    HostManager, HostMemory, HostReport, HostRoute, HostUndone, KernelDefect,
};
pub use hours::DailyHours;
pub use impairment::{IMPAIRMENTS, ImpairmentKey, PathImpairment};
pub use lab::{LabCrossTraffic, LabDatagrams, LabReport, LabStep, Published};
pub use latency::{
    Echo, EchoPhase, EchoReport, Inflation, LoadTime, Responsiveness, RpmConfidence, RpmReport,
    trimmed_mean,
};
pub use legal::{
    ApplicationWindowVerdict, CapacityVerdict, Cause, CongestionWindowVerdict, CpuVerdict,
    LegalVerdict, LossVerdict, MtuVerdict, PacingVerdict, ReceiveWindowVerdict,
    ReceiverApplicationVerdict, SendBufferVerdict, SenderApplicationVerdict, UnknownVerdict,
};
pub use machine::{
    CpuSample, CpuTime, DeviceCounts, DeviceReport, Machine, NetworkStack, QdiscReport,
};
pub use measurement::{
    ConnectedTest, Cpu, Datagrams, Direction, EndReport, Handshake, HostIdentity, Http2Wait,
    Interval, MAX_STREAM_INTERVALS, Measurement, Peer, RttMethod, RttReport, RttStats, RunTotals,
    SocketReadback, Steady, StorageUse, StreamInterval, StreamSummary, Summary, SynQuote, Validity,
};
pub use path::{Encapsulation, Framing, IpVersion, Path, PathDirection, Segmentation, Tunnel};
pub use path_status::{DirectionStatus, PathStatus};
pub use placement::Placement;
pub use prediction::{Ceiling, Limit, Prediction, Ramp};
pub use programs::{
    ProgramBatch, ProgramLeftOut, ProgramPrediction, ProgramRow, ProgramRun, ProgramsReport,
};
pub use progress::{SNAPSHOT_SPREAD, TransferProgress};
pub use ramp::{RampReport, RampStep};
pub use relay::{
    RelayCompression, RelayEnding, RelayJoined, RelayLimit, RelayProgress, RelayStretch,
    RelayedConnection,
};
pub use request::{Buffer, ProgramWindow, Request, ResolvedRequest, StatedLoad, Transport, Writer};
pub use route::{Hop, Refusal, RouteMethod, RouteMtu, RouteReport};
pub use sample::{CongestionState, Sample, SocketMemory, TcpInfo, packets_wait, samples_by_stream};
pub use schema::{document_schema, event_schema};
pub use settings::{BufferTriple, Change, HostSettings, KernelVersion, RESTORABLE_QDISCS};
pub use simulation::{
    Inferred, MeasuredTransfer, RateSpread, SegmentSpread, SimulatedTransfer, WhatIfReport,
};
pub use steady::{RAMP_ROUND_TRIPS, find_steady, least_rtt, steady_of_receiver};
pub use sureness::{SureBound, TestEnd, UntilSure};
pub use sweep::{
    SweepAnswer, SweepCell, SweepCost, SweepDevice, SweepDipCause, SweepDips, SweepEstimate,
    SweepForecast, SweepLoad, SweepOrder, SweepPlan, SweepReason, SweepReport, SweepRtt, SweepRun,
    SweepRunRecord, SweepShape, SweepTraffic,
};
pub use thinning::{MAX_SAMPLES, Thinning, thin_out_snapshots};
pub use time_account::{ConnectionSamples, TimeAccount, TransferTimeShare, TransferTimeUse};
pub use truth::{DirectionTruth, EditTruth, Fate, PacketTruth, PathTruth, SegmentTruth};
pub use verdict::{
    At, Basis, Candidate, CommandTimeForecast, Commands, Elsewhere, Forecast, OtherLimit, Remedy,
    RttForecast, RunnerUp, Scope, System, Verdict,
};
pub use web100::{Web100, Web100Report};

/// The version that every JSON document carries. It changes when a field is renamed or removed.
pub const SCHEMA_VERSION: u32 = 2;
