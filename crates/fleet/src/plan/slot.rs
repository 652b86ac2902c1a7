use fullpipe_record::Direction;
use fullpipe_units::{ByteCount, Span};
use serde::{Deserialize, Serialize};

/// A time in which one host may load the path to another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Slot {
    /// Its name, which follows from what it is, so that two controllers make it only once.
    pub id: String,
    /// The host that connects.
    pub client: String,
    /// The host that is connected to.
    pub server: String,
    /// Where the data goes, as the client sees it.
    pub direction: Direction,
    /// Why there is a test.
    pub purpose: SlotPurpose,
    /// When the load begins, in seconds since 1970.
    pub starts: u64,
    /// When both hosts are free again, in seconds since 1970.
    pub ends: u64,
    /// What the test may do.
    pub load: SlotLoad,
}

/// Bounds of a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SlotLoad {
    /// Duration of the load.
    pub duration: Span,
    /// Parallel streams.
    pub streams: u16,
    /// Most bytes.
    pub bytes: ByteCount,
}

/// Why there is a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SlotPurpose {
    /// It is the pair's turn.
    Rotation,
    /// Round trips, losses or the rate of the pair changed.
    Change,
    /// The cause of a change is sought: a longer run, with the route.
    Diagnosis,
}

/// How a slot ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SlotOutcome {
    /// It has a result.
    Done,
    /// The policy of one of both hosts forbids it, or its clock is wrong.
    Refused,
    /// Its host was busy or away when it should have begun.
    Late,
    /// The test broke off.
    Failed,
    /// The other end was not there, or never agreed.
    NoShow,
    /// Nobody has said how it ended.
    Unknown,
}

impl SlotOutcome {
    /// All, in the order in which they are shown.
    pub const ALL: [Self; 6] = [
        Self::Done,
        Self::Refused,
        Self::Late,
        Self::Failed,
        Self::NoShow,
        Self::Unknown,
    ];

    /// Returns the name in tables, metrics and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Refused => "refused",
            Self::Late => "late",
            Self::Failed => "failed",
            Self::NoShow => "no-show",
            Self::Unknown => "unknown",
        }
    }

    /// Returns the outcome with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|outcome| outcome.name() == name)
    }
}

impl SlotPurpose {
    const ALL: [Self; 3] = [Self::Rotation, Self::Change, Self::Diagnosis];

    /// Returns the name in tables and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rotation => "rotation",
            Self::Change => "change",
            Self::Diagnosis => "diagnosis",
        }
    }

    /// Returns the purpose with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|purpose| purpose.name() == name)
    }
}

impl Slot {
    /// Seconds after its start in which a test may still begin.
    pub const LATEST: u64 = 3;

    /// Returns the host whose data is measured.
    pub fn sender(&self) -> &str {
        self.ends_of_data().0
    }

    /// Returns the sending and the receiving host.
    pub fn ends_of_data(&self) -> (&str, &str) {
        match self.direction {
            Direction::Download => (&self.server, &self.client),
            Direction::Upload | Direction::Both => (&self.client, &self.server),
        }
    }

    /// Returns the name that a slot of these hosts at this time has.
    pub fn id_at(client: &str, server: &str, direction: Direction, starts: u64) -> String {
        let what = format!("{client}\n{server}\n{}\n{starts}", direction.name());
        let hash = blake3::derive_key("fullpipe 2026 slot of a fleet", what.as_bytes());
        uuid::Builder::from_custom_bytes(hash[..16].try_into().unwrap_or_default())
            .into_uuid()
            .to_string()
    }
}
