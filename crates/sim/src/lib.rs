//! A transfer in virtual time: path, two hosts and a load in, the measurement that a probe would
//! make out.
//!
//! Two ends of TCP ([`tcp`]) exchange segments over the path that the laboratory drives in
//! real time (`fullpipe-link`), so that a queue or a loss means the same in both. What comes out is
//! the same record, with samples of both ends that a diagnosis can judge. The same seed gives the
//! same bytes.
//!
//! A simulated transfer shows what the protocol and the path permit. No processor, no network card
//! and no queue of a host takes part, so that a result near the rate of a fast link is a bound, and
//! not what a host does.

mod captures;
mod connection;
mod cross_traffic;
mod datagrams;
mod division;
mod engine;
mod flow;
mod outcome;
mod packet;
mod program;
mod sampling;
pub mod tcp;

use fullpipe_record::{HostSettings, Path, Request};
use fullpipe_units::{BitRate, Span};

pub use cross_traffic::{CrossTraffic, CrossTrafficResult};
pub use division::TransferDivision;
pub use engine::Simulation;

use datagrams::MAX_DATAGRAMS;

/// The length of the trains in which the path carries segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TrainGranularity {
    /// Segment by segment.
    Segment,
    /// As the laboratory carries them: in trains that the link sends within 100 µs.
    #[default]
    Cut,
    /// Whole, as the hosts send them, where the path sends them within a hundredth of its
    /// round-trip time, and in parts that it does otherwise: the fastest. Programs wake with what
    /// happens next where they would so within a fivehundredth of the round trip, and before a
    /// second train.
    Train,
}

/// A transfer to simulate.
#[derive(Debug, Clone)]
pub struct SimulationPlan {
    /// The path; its forward direction is from the sender of the data to its receiver.
    pub path: Path,
    /// Settings of the host that sends the data.
    pub sender: HostSettings,
    /// Settings of the host that receives it.
    pub receiver: HostSettings,
    /// The load.
    pub request: Request,
    /// The way in which the connections divide the bytes of the load.
    pub division: TransferDivision,
    /// Seed for what falls to chance: losses, start times, the phases of the hosts' clocks.
    pub seed: u64,
    /// Granularity of the path.
    pub granularity: TrainGranularity,
    /// Ticks a second of both hosts' kernels (`CONFIG_HZ`).
    pub ticks_per_second: u32,
    /// Rate at which the receiving program reads each stream; at once if not set.
    pub reads: Option<BitRate>,
    /// Other loads on the same path, between the same hosts; those that still send when the
    /// transfer ends, end with it.
    pub cross_traffic: Vec<CrossTraffic>,
    /// Time from which on the path exists before the transfer begins.
    pub lead: Span,
}

impl SimulationPlan {
    /// Ticks a second of the kernels of most distributions.
    pub const USUAL_TICKS: u32 = 250;

    /// A plan with the usual granularity and ticks, and a program that reads at once unless its rate
    /// is stated.
    pub fn new(
        path: Path,
        [sender, receiver]: [HostSettings; 2],
        request: Request,
        seed: u64,
    ) -> Self {
        Self {
            path,
            sender,
            receiver,
            reads: request.stated_load().read_rate,
            request,
            division: TransferDivision::default(),
            seed,
            granularity: TrainGranularity::default(),
            ticks_per_second: Self::USUAL_TICKS,
            cross_traffic: Vec::new(),
            lead: Span::ZERO,
        }
    }
}

/// The longest time for which a load sends data. One that ends by its bytes could take for ever on
/// a path that loses all.
fn load_duration(request: &Request) -> Span {
    const DAY: Span = Span::from_secs(86_400);
    if request.bytes.is_some() {
        DAY
    } else {
        request.omit + request.duration
    }
}

/// Something that a simulation was asked for and that is not modelled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotModelled {
    /// A congestion control.
    #[error("{0}")]
    Congestion(String),
    /// Datagrams that are sent as fast as a host can.
    #[error(
        "datagrams without a rate are not modelled: no host takes part, whose speed that would be"
    )]
    DatagramsWithoutRate,
    /// Datagrams that no packet of the path holds.
    #[error("datagrams that are larger than a packet of the path are not modelled")]
    Fragments,
    /// More datagrams than a processor handles in a few minutes.
    #[error("{0} datagrams are too many to be simulated: at most {MAX_DATAGRAMS} are")]
    TooManyDatagrams(u64),
    /// Data in both directions.
    #[error("data in both directions at once is not modelled: simulate each by itself")]
    BothDirections,
    /// Multipath TCP.
    #[error("Multipath TCP is not modelled")]
    Multipath,
    /// A connection without selective acknowledgements.
    #[error("a connection without selective acknowledgements is not modelled")]
    WithoutSack,
    /// Relays that split a connection.
    #[error("relays are not modelled: a simulation has two hosts")]
    Relays,
    /// A path whose packets have no room for payload.
    #[error("packets of the path have no room for payload")]
    NoPayload,
}
