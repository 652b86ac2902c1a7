use std::collections::BTreeMap;

use crate::prelude::*;
use crate::{Cause, Change, LegalVerdict, Limit, TransferTimeShare};

/// The end, or the part of the path, that has the limit.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum At {
    /// The end that sends.
    Sender,
    /// The end that receives.
    Receiver,
    /// Between them.
    Path,
    /// A device between them that edits packets.
    Middlebox,
    /// Nowhere that is known.
    None,
}

/// The ends whose view a verdict rests on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Basis {
    /// The sending end alone.
    #[default]
    Sender,
    /// The receiving end alone.
    Receiver,
    /// Both ends.
    BothEnds,
    /// A capture of the packets, whether from an end or between them.
    Capture,
}

/// A limit that held for another part of the time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OtherLimit {
    /// The limit.
    pub kind: Limit,
    /// Cause of the limit.
    pub cause: Cause,
    /// The end, or the part of the path, that has it.
    pub at: At,
    /// Share of the time in which it held.
    pub share: Ratio,
}

/// A limit so close behind the deciding one that lifting that one alone brings little.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunnerUp {
    /// The limit.
    pub kind: Limit,
    /// The rate that it would allow, where it is close by its ceiling.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bits_per_second: Option<BitRate>,
    /// Share of the transfer's time in which it held, where it is close by that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share: Option<Ratio>,
}

/// A verdict that may be the right one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Candidate {
    /// The limit.
    pub kind: Limit,
    /// Cause of the limit.
    pub cause: Cause,
    /// The end, or the part of the path, that has it.
    pub at: At,
}

impl Candidate {
    /// Returns kind and cause as `loss/policer`; the kind alone where they do not belong together.
    pub fn name(self) -> &'static str {
        LegalVerdict::from_parts(self.kind, self.cause, self.at)
            .map_or(self.kind.name(), LegalVerdict::name)
    }
}

impl From<LegalVerdict> for Candidate {
    fn from(verdict: LegalVerdict) -> Self {
        Self {
            kind: verdict.limit_kind(),
            cause: verdict.limit_cause(),
            at: verdict.limit_place(),
        }
    }
}

/// The limit of a transfer, and its evidence.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Verdict {
    /// The limit.
    pub kind: Limit,
    /// Cause of the limit.
    pub cause: Cause,
    /// The end, or the part of the path, that has it.
    pub at: At,
    /// Share of the judged time in which it held.
    pub share: Ratio,
    /// Share of planted limits of which verdicts with as much evidence, from the same view, name
    /// the right one, or name it among their candidates.
    #[serde(default)]
    pub confidence: Ratio,
    /// The whole in one sentence.
    pub sentence: String,
    /// Every ceiling that the evidence gives, by kind.
    pub ceilings: BTreeMap<Limit, BitRate>,
    /// The limit that is as good as this one, by a ceiling within a tenth of it or by the time in
    /// which it held.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runner_up: Option<RunnerUp>,
    /// The figures that decided, by name.
    pub evidence: BTreeMap<String, String>,
    /// Other limits, the largest share first: in other seconds, or as good as this.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<OtherLimit>,
    /// The use of the time of the transfer, the largest part first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub where_time_went: Vec<TransferTimeShare>,
    /// Whose view it rests on.
    #[serde(default)]
    pub basis: Basis,
    /// The verdicts of which the evidence does not show which one is right, this one first; at most
    /// three, and none where it shows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub candidates: Vec<Candidate>,
    /// The figures that would show which of the candidates is right.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub would_distinguish: Option<String>,
    /// Figures that the view of the other end would add, where it is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub other_end_would_show: Option<String>,
}

impl Verdict {
    /// Returns the row of the table of legal verdicts; `None` where kind, cause and end do not
    /// belong together.
    pub fn legal_verdict(&self) -> Option<LegalVerdict> {
        LegalVerdict::from_parts(self.kind, self.cause, self.at)
    }

    /// Returns true if this verdict and `other` name the same limit, or one that is among the
    /// candidates of the other; `None` where one of both names none.
    pub fn agrees_with(&self, other: &Self) -> Option<bool> {
        let are_known = self.kind != Limit::Unknown && other.kind != Limit::Unknown;
        are_known.then(|| self.may_be(other.kind) || other.may_be(self.kind))
    }

    fn may_be(&self, kind: Limit) -> bool {
        self.kind == kind || self.candidates.iter().any(|one| one.kind == kind)
    }

    /// Returns limit, cause and end alone.
    pub fn as_candidate(&self) -> Candidate {
        Candidate {
            kind: self.kind,
            cause: self.cause,
            at: self.at,
        }
    }

    /// Returns kind and cause as `loss/policer`; the kind alone where they do not belong together.
    pub fn name(&self) -> &'static str {
        self.as_candidate().name()
    }
}

/// The scope of a remedy.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// One socket.
    Socket,
    /// One destination.
    Route,
    /// One network namespace.
    Namespace,
    /// The host.
    Host,
    /// The program.
    Application,
    /// The network between.
    Path,
}

/// The rate that a remedy should give.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Forecast {
    /// Expected steady rate.
    pub bits_per_second: BitRate,
    /// The least that is likely.
    pub low: BitRate,
    /// The most that is likely; no bound where the capacity is unknown.
    pub high: BitRate,
    /// True if the path's capacity is not known, so that the rate may be any above `low`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub capacity_unknown: bool,
}

/// The round-trip time under load that a remedy should lead to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RttForecast {
    /// Round-trip time of the path while its queues are empty.
    pub low: Span,
    /// The most that is likely; `None` where nothing but the length of the bottleneck's queue
    /// bounds it.
    pub high: Option<Span>,
}

/// The time of a command with data at the rate that a remedy should give.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CommandTimeForecast {
    /// The time that it took.
    pub measured: Span,
    /// The time that it should take: only that in which data was under way gets shorter (Amdahl's
    /// law).
    pub predicted: Span,
}

/// A system other than Linux that a host may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum System {
    /// Microsoft's.
    Windows,
    /// Apple's.
    #[serde(rename = "macos")]
    MacOs,
    /// `FreeBSD`.
    #[serde(rename = "freebsd")]
    FreeBsd,
}

impl System {
    /// The name on the screen.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Windows => "Windows",
            Self::MacOs => "macOS",
            Self::FreeBsd => "FreeBSD",
        }
    }
}

/// A remedy as text for an end that runs another system.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Elsewhere {
    /// The system.
    pub system: System,
    /// To apply it.
    pub apply: Vec<String>,
    /// To undo it.
    pub undo: Vec<String>,
}

/// Commands that carry a remedy out by hand, and back.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Commands {
    /// To apply it.
    pub apply: Vec<String>,
    /// To undo it.
    pub undo: Vec<String>,
    /// Commands of the remedy at an end that does not run Linux.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub elsewhere: Vec<Elsewhere>,
}

/// Something that would lift the limit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Remedy {
    /// A name for `--apply`: `raise-tcp-wmem`.
    pub id: String,
    /// Scope of the remedy.
    pub scope: Scope,
    /// The end that the remedy changes.
    pub at: At,
    /// The settings that it changes; empty where only a person can carry it out.
    pub changes: Vec<Change>,
    /// Commands that make the changes, filled in by the crate that knows how settings are written.
    pub commands: Commands,
    /// The predicted rate, where there is a prediction.
    pub predicted: Option<Forecast>,
    /// The predicted round-trip time under load, for everyone on the link, where there is a
    /// prediction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rtt: Option<RttForecast>,
    /// The time of the whole command, where one was watched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command_time: Option<CommandTimeForecast>,
    /// Why it should help.
    pub why: String,
}

impl Remedy {
    /// Changes of the remedy by the end that makes them; a program's own changes are made where the
    /// remedy is.
    pub fn by_end(&self) -> Vec<(At, Vec<Change>)> {
        let mut by_end: Vec<(At, Vec<Change>)> = Vec::new();
        for change in &self.changes {
            let ends = match change {
                Change::CongestionControl(_) => &[At::Sender],
                _ if change.required_ends().is_empty() => std::slice::from_ref(&self.at),
                _ => change.required_ends(),
            };
            for end in ends {
                match by_end.iter_mut().find(|(at, _)| at == end) {
                    Some((_, changes)) => changes.push(change.clone()),
                    None => by_end.push((*end, vec![change.clone()])),
                }
            }
        }
        by_end
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_units::ByteCount;

    #[test]
    fn each_change_is_made_where_it_helps() {
        let (wmem, scaling, streams) = (
            Change::TcpWmemMax(ByteCount::from_mib(24)),
            Change::WindowScaling(true),
            Change::Streams(3),
        );
        let remedy = Remedy {
            id: "raise-tcp-wmem".to_owned(),
            scope: Scope::Namespace,
            at: At::Sender,
            changes: vec![scaling.clone(), wmem.clone(), streams.clone()],
            commands: Commands::default(),
            predicted: None,
            rtt: None,
            command_time: None,
            why: String::new(),
        };
        let at_sender = vec![scaling.clone(), wmem, streams];
        assert_eq!(
            remedy.by_end(),
            [(At::Sender, at_sender), (At::Receiver, vec![scaling])]
        );
    }
}
