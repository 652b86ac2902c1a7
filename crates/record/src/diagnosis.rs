use crate::prelude::*;
use crate::{
    Direction, Evidence, FileCompletion, Forecast, KernelDefect, Measurement, OwnCapture, Remedy,
    RttForecast, TimeAccount, Validity, Verdict,
};

/// A transfer of another program, watched at this end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Transfer {
    /// The program, as its process is called; `None` where that is not known.
    pub program: Option<String>,
    /// The process that has the connections.
    pub pid: Option<u32>,
    /// This end's address and port, of the first connection.
    pub local: String,
    /// The other end's.
    pub remote: String,
    /// Connections that were judged together.
    pub streams: u16,
    /// Direction of most of the data, seen from here.
    pub direction: Direction,
    /// Bytes that arrived at their end that way while they were watched.
    pub bytes: ByteCount,
    /// Time for which they were watched.
    pub watched: Span,
    /// Mean rate in that time.
    pub rate: BitRate,
    /// True if the connections closed before the watching ended.
    pub closed: bool,
}

/// The limit of a transfer, and the remedies.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Diagnosis {
    /// The transfer that was watched; `None` where fullpipe measured itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transfer: Option<Transfer>,
    /// The limit.
    pub verdict: Verdict,
    /// Remedies, best first.
    pub remedies: Vec<Remedy>,
    /// Known defects of the kernels of both ends that may be behind the limit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub defects: Vec<KernelDefect>,
    /// Commands whose output would show more than what was handed over.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub next: Vec<String>,
    /// Evidence of the verdict on a transfer that was watched: it can be judged again from this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evidence: Option<Evidence>,
}

/// A remedy that was carried out on real hosts, and what came of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Trial {
    /// Name of the remedy.
    pub remedy: String,
    /// The predicted effect, fixed before.
    pub predicted: Option<Forecast>,
    /// The predicted round-trip time under load, fixed before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub predicted_rtt: Option<RttForecast>,
    /// The rate before it.
    pub before: BitRate,
    /// The rate that was measured with it: the steady one, or the mean where there is none.
    pub measured: BitRate,
    /// The measurement with it, judged.
    pub measurement: Measurement,
    /// True if it was left in place.
    pub kept: bool,
    /// Why the settings could not be put back, where they could not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_undone: Option<String>,
}

/// The end of a command whose connections were watched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CommandEnd {
    /// The program and its arguments.
    pub words: Vec<String>,
    /// Exit code of the command; `None` where a signal ended it.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Time for which it ran.
    pub ran: Span,
    /// Processor time of it and of the children that it waited for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Span>,
}

/// The result of `fullpipe diagnose`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct DiagnosisReport {
    /// Of each transfer, the one that moved most first.
    pub transfers: Vec<Diagnosis>,
    /// The capture of the first of them, where one was asked for and fullpipe did not measure
    /// itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capture: Option<Box<OwnCapture>>,
    /// The end of the command, where one was run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<CommandEnd>,
    /// Account of the time of the command, or of that for which a process or a connection was
    /// watched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<TimeAccount>,
    /// Validity of what was watched, where this host is in a lab.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub validity: Option<Validity>,
    /// The same download by HTTP/1.1, where a window of HTTP/2 seemed to hold it back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http1: Option<Http1Download>,
    /// The remedy that was carried out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trial: Option<Trial>,
    /// When the file that the watched program sends is complete.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion: Option<Box<FileCompletion>>,
}

/// A download that was repeated by HTTP/1.1, which has no window above TCP.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Http1Download {
    /// The rate by HTTP/2.
    pub before: BitRate,
    /// The rate by HTTP/1.1.
    pub measured: BitRate,
    /// The limit by HTTP/1.1.
    pub verdict: Verdict,
}

impl Http1Download {
    /// Returns true if HTTP/1.1 was clearly faster, by more than a path varies.
    pub fn is_faster(&self) -> bool {
        const CLEARLY: f64 = 1.25;
        self.measured > self.before.scale_by(CLEARLY)
    }
}
