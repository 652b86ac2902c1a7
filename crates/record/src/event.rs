//! Everything that happens while a command runs, as one enum.

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};

use crate::prelude::*;
use crate::{
    CopyProgress, CopyReport, DiagnosisReport, DifferenceReport, ErrorReport, Experiment, FlowPair,
    FlowReport, GridCell, GridReport, Interval, LabReport, Measurement, Path, PathDirection,
    PathStatus, Prediction, ProgramRun, ProgramsReport, RampReport, RampStep, RelayJoined,
    RelayProgress, RelayedConnection, Remedy, Request, RouteReport, SimulatedTransfer, SweepPlan,
    SweepReport, SweepRun, Undone, WhatIfReport,
};

/// One line of `--json-lines`: an event and its time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EventLine<'e> {
    /// Wall-clock time, RFC 3339 in UTC.
    pub time: String,
    /// The event.
    #[serde(flatten)]
    pub event: Cow<'e, Event>,
}

/// Something that happened while a command ran.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "event", content = "data", rename_all = "kebab-case")]
pub enum Event {
    /// The route to the other end is known.
    Route(Box<RouteReport>),
    /// An interval of a measurement is over.
    Interval(Box<Interval>),
    /// A measurement is over.
    Measurement(Box<Measurement>),
    /// One load of a ramp is over.
    RampStep(Box<RampStep>),
    /// A ramp is over.
    Ramp(Box<RampReport>),
    /// A diagnosis is complete.
    Diagnosis(Box<DiagnosisReport>),

    /// A comparison is complete.
    Difference(Box<DifferenceReport>),

    /// A connection of a capture.
    Flow(Box<FlowReport>),
    /// A connection in two captures.
    FlowPair(Box<FlowPair>),

    /// The prediction for a path is fixed, before the first measurement.
    Predicted(Box<Predicted>),
    /// The remedies are known.
    Remedies(Vec<Remedy>),
    /// A remedy is applied, and the prediction for the changed settings is fixed.
    Applied(Box<Applied>),
    /// The changes are undone.
    Undone(Box<Undone>),
    /// The whole loop is over.
    Experiment(Box<Experiment>),

    /// A scenario begins.
    ScenarioBegan(ScenarioBegan),
    /// A run of a step of a scenario begins.
    StepBegan(Box<StepBegan>),
    /// A scenario is over.
    Scenario(Box<LabReport>),
    /// A cell of a grid begins.
    CellBegan(CellBegan),
    /// A cell of a grid is over.
    Cell(Box<GridCell>),
    /// A grid is over.
    Grid(Box<GridReport>),

    /// The plan of a sweep is fixed, before its first run.
    SweepPlan(Box<SweepPlan>),
    /// A run of a sweep is over.
    SweepRun(Box<SweepRun>),
    /// A sweep is over.
    Sweep(Box<SweepReport>),

    /// A program in a lab has moved the file, or failed to.
    ProgramRun(Box<ProgramMoved>),
    /// All programs have moved the file.
    Programs(Box<ProgramsReport>),

    /// A transfer in virtual time is over, with all its seeds.
    Simulated(Box<SimulatedTransfer>),
    /// A past measurement was simulated, as it was and with changes.
    WhatIf(Box<WhatIfReport>),

    /// A lab is up.
    Up(LabUp),
    /// The user changed the path of a lab; both directions, forward first.
    Changed(Box<[PathDirection; 2]>),
    /// An interval of a lab's path is over.
    Path(Box<PathStatus>),
    /// A phase of cross traffic begins.
    CrossTraffic(CrossTrafficPhase),
    /// A phase of cross traffic failed for the first time; it is tried again.
    CrossTrafficFailed(CrossTrafficFailure),

    /// A server listens.
    Listening(Listening),
    /// A server cannot listen on a port that was not asked for, and goes on without it.
    NotListening(NotListening),
    /// A client's test began.
    Began(Box<ClientTest>),
    /// An iperf2 client began to send.
    BeganIperf2(Client),
    /// A client's test is complete.
    Ended(ClientTotals),
    /// A client's test ended early.
    Failed(ClientFailure),
    /// Connections were closed at once.
    Rejected(Rejected),
    /// Flows of iperf2 datagrams began that are not reported one by one.
    UnreportedFlows(UnreportedFlows),
    /// A server ends because no test came for as long as it was to wait.
    Idle,

    /// Progress of a copy.
    CopyProgress(CopyProgress),
    /// A step of a copy, in one sentence.
    CopyNote(CopyNote),
    /// A copy is over.
    Copy(Box<CopyReport>),

    /// A relay begins to carry a connection.
    RelayJoined(RelayJoined),
    /// A relay reports what it carried of a connection since the last report.
    RelayProgress(Box<RelayProgress>),
    /// A connection through a relay is over.
    Relayed(Box<RelayedConnection>),
    /// A client of a relay could not be joined to its target.
    NotRelayed(ClientFailure),
    /// The other relay of a pair cannot be used.
    NoPeer(NoPeer),
    /// A relay cannot accept connections for now; they wait.
    NotAccepting(NotAccepting),
    /// A relay stops.
    RelayStopping(RelayStopping),

    /// The command failed.
    Error(ErrorReport),
}

/// A prediction and the path that it is for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Predicted {
    /// The path.
    pub path: Path,
    /// The prediction.
    pub prediction: Prediction,
}

/// A remedy that was applied.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Applied {
    /// The remedy.
    pub remedy: Remedy,
    /// The prediction for the changed settings.
    pub prediction: Prediction,
}

/// The start of a scenario.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ScenarioBegan {
    /// Name of the scenario.
    pub scenario: String,
    /// One line about it.
    pub title: String,
}

/// The start of one run of a step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StepBegan {
    /// Name of the step.
    pub step: String,
    /// True if the load grows in steps; the prediction is then not about the rate.
    pub is_ramp: bool,
    /// The prediction.
    pub prediction: Prediction,
}

/// The transfer of the file by one program.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProgramMoved {
    /// Name of the set of settings.
    pub batch: String,
    /// Name of the program.
    pub program: String,
    /// The run.
    pub run: ProgramRun,
}

/// The start of a cell of a grid.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CellBegan {
    /// Number of the cell, from 1.
    pub number: u32,
    /// Number of cells in the grid.
    pub cells: u32,
    /// Name of the cell.
    pub name: String,
    /// Duration of its load.
    pub duration: Span,
}

/// A lab that is up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LabUp {
    /// Name for `--join`.
    pub name: String,
    /// Address of the sending host.
    pub sender: IpAddr,
    /// Address of the receiving host.
    pub receiver: IpAddr,
    /// Loads of the cross traffic, in the order of the scenario.
    pub cross_traffic: Vec<CrossTrafficLoad>,
}

/// One load of cross traffic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CrossTrafficLoad {
    /// The load.
    pub request: Request,
    /// Lowest rate of a phase, where each phase draws its rate; the highest is the request's.
    pub lowest: Option<BitRate>,
    /// Duration of a phase; `None` if the load never pauses.
    pub on: Option<Span>,
    /// Time between two phases; `None` if the load never pauses.
    pub off: Option<Span>,
}

/// The start of a phase of cross traffic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CrossTrafficPhase {
    /// Index of the load, from 0.
    pub load: usize,
    /// Rate of the phase; `None` if it is not limited.
    pub rate: Option<BitRate>,
    /// Duration of the phase.
    pub duration: Span,
}

/// A phase of cross traffic that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CrossTrafficFailure {
    /// Index of the load, from 0.
    pub load: usize,
    /// The reason.
    pub message: String,
}

/// Flows of iperf2 datagrams that are not reported one by one, as anybody can begin them in
/// anybody's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UnreportedFlows {
    /// Flows since the last report.
    pub flows: u64,
}

/// A server's listening address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Listening {
    /// The address and port.
    pub address: SocketAddr,
}

/// A port on which a server cannot listen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NotListening {
    /// The reason, with the address.
    pub why: String,
}

/// A client of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Client {
    /// The client's address and port.
    pub client: SocketAddr,
}

/// A test that a client asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClientTest {
    /// The client's address and port.
    pub client: SocketAddr,
    /// The load that it asked for.
    pub request: Request,
}

/// Totals of a client's test, both directions together, as the server saw them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClientTotals {
    /// The client's address and port.
    pub client: SocketAddr,
    /// Payload bytes.
    pub bytes: ByteCount,
    /// Mean rate.
    pub rate: BitRate,
}

/// A client's test that ended early.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClientFailure {
    /// The client's address and port.
    pub client: SocketAddr,
    /// The reason.
    pub why: String,
}

/// Connections that a server closed at once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Rejected {
    /// Address of the last of them.
    pub client: IpAddr,
    /// The reason for the last of them.
    pub why: String,
    /// Number of connections since the last such event.
    pub connections: u64,
}

impl Rejected {
    /// Returns one connection that was closed.
    pub fn of_one(client: IpAddr, why: &str) -> Self {
        Self {
            client,
            why: why.to_owned(),
            connections: 1,
        }
    }
}

/// Reason for which a relay cannot use the other one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NoPeer {
    /// The reason, with the address.
    pub why: String,
}

/// Reason for which a relay cannot accept connections.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NotAccepting {
    /// The reason.
    pub why: String,
}

/// A step of a copy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CopyNote {
    /// One sentence.
    pub text: String,
}

/// A relay that stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RelayStopping {
    /// Connections that may still end by themselves.
    pub connections: u64,
    /// Time after which those that are left are reset.
    pub deadline: Span,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_an_event_with_its_time() {
        let event = Event::Listening(Listening {
            address: "127.0.0.1:5201".parse().unwrap(),
        });
        for event in [event, Event::Idle] {
            let line = EventLine {
                time: "2026-01-01T00:00:00Z".to_owned(),
                event: Cow::Borrowed(&event),
            };
            let json = serde_json::to_string(&line).unwrap();
            assert_eq!(
                serde_json::from_str::<EventLine<'_>>(&json).unwrap(),
                line,
                "{json}"
            );
            assert_eq!(
                serde_json::from_str::<Event>(&json).unwrap(),
                event,
                "{json}"
            );
        }
    }
}
