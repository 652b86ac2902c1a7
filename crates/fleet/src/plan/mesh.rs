use std::time::Duration;

use fullpipe_units::{ByteCount, Span};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::slot::{SlotLoad, SlotPurpose};

/// A host of the mesh.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MeshHost {
    /// Its name.
    pub name: String,
    /// The site whose uplink it shares.
    pub site: String,
    /// Address and port at which others reach its server; `None` if they cannot.
    pub reach: Option<String>,
}

/// How a mesh is measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MeshSettings {
    /// Time in which each pair has its turn, in each direction.
    pub every: Span,
    /// Duration of a load.
    pub duration: Span,
    /// Parallel streams of a load.
    pub streams: u16,
    /// Most bytes of a load.
    pub bytes: ByteCount,
    /// Largest share of its time in which a host is busy with its turns.
    pub busy: f64,
    /// Tests that a site's uplink carries at once.
    pub tests_of_site: u16,
}

impl Default for MeshSettings {
    /// Returns a load of 5 s a day for each pair, while a host is busy for a tenth of its time.
    fn default() -> Self {
        Self {
            every: Span::from_secs(86_400),
            duration: Span::from_secs(5),
            streams: 1,
            bytes: ByteCount::new(16 << 30),
            busy: 0.1,
            tests_of_site: 1,
        }
    }
}

/// Why a mesh cannot be measured as it is asked for.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum MeshError {
    /// A setting has no meaning.
    #[error("{0}")]
    Setting(&'static str),
    /// Hosts do not have the time.
    #[error(
        "{hosts} hosts need {rounds} rounds of {cell}, {} at {busy:.0} % of a host's time, and each pair is to have its \
         turn in {}; --every {} fits, or at most {fits} hosts",
        hours(*.needs), hours(*.every), hours(*.needs)
    )]
    TooLarge {
        /// Hosts of the mesh.
        hosts: usize,
        /// Rounds in which each pair has its turn.
        rounds: u64,
        /// Time of a round.
        cell: Span,
        /// Time that all rounds take.
        needs: Span,
        /// Time that they may take.
        every: Span,
        /// Share of a host's time, in percent.
        busy: f64,
        /// Hosts that would fit.
        fits: usize,
    },
}

/// Returns a time in hours, which `--every` takes, rounded up to a tenth.
fn hours(time: Span) -> String {
    format!("{:.1}h", (time.as_secs_f64() / 360.0).ceil() / 10.0)
}

/// What measuring a mesh takes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MeshCost {
    /// Rounds in which each ordered pair has its turn once.
    pub rounds: u64,
    /// Time that these take at the share of time in which a host may be busy.
    pub time: Span,
    /// Most bytes that all together carry.
    pub bytes: ByteCount,
}

/// Seconds of a slot besides those of its load: for the connection, the round trips without load,
/// results, and clocks that differ by a second at most.
const SETUP: u64 = 15;

/// Duration of the run that seeks a cause, as a multiple of the usual one.
const LONGER: u64 = 2;

impl MeshSettings {
    /// Returns the seconds for which a run of this purpose has both hosts.
    pub fn slot_seconds(&self, purpose: SlotPurpose) -> u64 {
        let load = Duration::from(self.load(purpose).duration).as_secs_f64();
        load.ceil() as u64 + SETUP
    }

    /// Returns the bounds of a run of this purpose.
    pub fn load(&self, purpose: SlotPurpose) -> SlotLoad {
        let longer = if purpose == SlotPurpose::Diagnosis {
            LONGER
        } else {
            1
        };
        SlotLoad {
            duration: self.duration * longer,
            streams: self.streams,
            bytes: ByteCount::new(self.bytes.get().saturating_mul(longer)),
        }
    }

    /// Returns the seconds from the end of a host's turn to its next one.
    pub(super) fn rest_seconds(&self, rounds: u64) -> u64 {
        let cell = self.slot_seconds(SlotPurpose::Rotation);
        let even = self.every.as_secs_f64() / rounds.max(1) as f64;
        // A tenth of the time is left for what others delay.
        let spread = (even * 0.9) as u64;
        let least = (cell as f64 / self.busy) as u64;
        spread.max(least).saturating_sub(cell)
    }

    /// Returns what a mesh of so many hosts takes.
    ///
    /// # Errors
    /// Fails if it takes more time than there is, with what would fit.
    pub fn cost(&self, hosts: usize) -> Result<MeshCost, MeshError> {
        self.check_bounds()?;
        let cell = self.slot_seconds(SlotPurpose::Rotation);
        let time = |hosts| rounds_of_mesh(hosts) as f64 * cell as f64 / self.busy;
        let rounds = rounds_of_mesh(hosts);
        let every = self.every.as_secs_f64();
        if time(hosts) > every {
            let fits = (2..hosts).rev().find(|fewer| time(*fewer) <= every);
            return Err(MeshError::TooLarge {
                hosts,
                rounds,
                cell: Span::from_secs(cell),
                needs: Span::from_secs_f64(time(hosts)),
                every: self.every,
                busy: self.busy * 100.0,
                fits: fits.unwrap_or(0),
            });
        }
        let pairs = (hosts * hosts.saturating_sub(1)) as u64;
        Ok(MeshCost {
            rounds,
            time: Span::from_secs_f64(time(hosts)),
            bytes: ByteCount::new(pairs.saturating_mul(self.bytes.get())),
        })
    }

    fn check_bounds(&self) -> Result<(), MeshError> {
        let longest = Span::from_secs(60);
        let wrong = [
            (
                !(Span::from_secs(60)..=Span::from_secs(366 * 86_400)).contains(&self.every),
                "each pair has its turn once in a minute to a year",
            ),
            (
                !(Span::from_secs(1)..=longest).contains(&self.duration),
                "a load takes 1 s to 60 s",
            ),
            (
                !(1..=64).contains(&self.streams),
                "a load has 1 to 64 streams",
            ),
            (self.bytes == ByteCount::ZERO, "a load has a byte at least"),
            (
                !(0.001..=0.9).contains(&self.busy),
                "a host is busy for 0.1 % to 90 % of its time",
            ),
            (self.tests_of_site == 0, "a site carries one test at least"),
        ];
        match wrong.iter().find(|(is_wrong, _)| *is_wrong) {
            Some((_, sentence)) => Err(MeshError::Setting(sentence)),
            None => Ok(()),
        }
    }
}

/// Returns the rounds in which each ordered pair of so many hosts meets once: twice those of the
/// circle method, which are the fewest (É. Lucas, *Récréations mathématiques* II, 1883).
pub fn rounds_of_mesh(hosts: usize) -> u64 {
    2 * circle_size(hosts).saturating_sub(1) as u64
}

/// Returns the number of hosts with one that sits out if it is odd.
pub(super) fn circle_size(hosts: usize) -> usize {
    if hosts < 2 {
        return 0;
    }
    hosts.next_multiple_of(2)
}

/// Returns the round in which two hosts meet, of `circle_size(hosts) - 1`.
pub(super) fn circle_round(one: usize, other: usize, hosts: usize) -> usize {
    let last = circle_size(hosts) - 1;
    match (one == last, other == last) {
        (true, _) => 2 * other % last,
        (_, true) => 2 * one % last,
        _ => (one + other) % last,
    }
}
